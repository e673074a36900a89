"""The files of a new project, for `gemel init`. `{name}` stands for the name of the project."""

from __future__ import annotations

from gemel.version import requirement

SERVER = '''"""{name}: a server for the Model Context Protocol."""

from gemel import Context, Server, ToolError

server = Server("{name}", version="0.1.0", instructions="Search before you add a note.")
notes: dict[str, str] = {}


@server.tool
async def add_note(ctx: Context, title: str, text: str) -> str:
    """Add a note. The user is asked before an existing one is replaced.

    Args:
        title: a short title
        text: what to remember
    """
    if title in notes and not await ctx.elicit(f"Replace the note {title!r}?", bool):
        raise ToolError(f"{title!r} was not replaced.")
    notes[title] = text
    return f"Saved {title!r}."


@server.tool(annotations={"read_only_hint": True})
def search_notes(word: str) -> dict[str, str]:
    """Find notes that contain a word; returns the texts by title."""
    word = word.lower()
    return {key: note for key, note in notes.items() if word in f"{key} {note}".lower()}


@server.resource("notes://{title}")
def read_note(title: str) -> str | None:
    """The text of a note. None means that there is no such resource."""
    return notes.get(title)


@server.prompt
def summarize(word: str) -> str:
    """Ask for a summary of the notes that contain a word."""
    return f"Search the notes for {word!r} and summarize them in three sentences."


if __name__ == "__main__":
    server.run()
'''

TESTS = '''"""The server as clients see it, in both eras of the protocol; without a process."""

from collections.abc import Iterator
from typing import Literal

import pytest
from gemel import TextContent, ToolCallError
from gemel.sync import Client
from gemel.testing import both_eras

from server import notes, server

Era = Literal["2025", "2026"]


@pytest.fixture(autouse=True)
def no_notes() -> Iterator[None]:
    yield
    notes.clear()


@both_eras
def test_a_note_is_found_by_a_word(era: Era) -> None:
    with Client(server, era=era) as client:
        saved = client.call_tool("add_note", {"title": "tea", "text": "Buy green tea"})
        assert saved.text == "Saved 'tea'."
        found = client.call_tool("search_notes", {"word": "GREEN"})
        assert found.data == {"tea": "Buy green tea"}
        assert client.read_resource("notes://tea").contents[0].text == "Buy green tea"


@both_eras
def test_the_user_is_asked_before_a_note_is_replaced(era: Era) -> None:
    notes["tea"] = "old"
    with Client(server, era=era, on_elicit=lambda form: {"value": True}) as client:
        client.call_tool("add_note", {"title": "tea", "text": "new"})
        assert notes == {"tea": "new"}
    with Client(server, era=era, on_elicit=lambda form: {"value": False}) as client:
        with pytest.raises(ToolCallError, match="was not replaced"):
            client.call_tool("add_note", {"title": "tea", "text": "newer"})
        assert notes == {"tea": "new"}


@both_eras
def test_the_prompt_names_the_word(era: Era) -> None:
    with Client(server, era=era) as client:
        content = client.get_prompt("summarize", {"word": "tea"}).messages[0].content
        assert isinstance(content, TextContent)
        assert "'tea'" in content.text
'''

PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1.0"
description = "A server for the Model Context Protocol"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["{gemel}"]

[project.scripts]
{name} = "server:server.run"

[tool.setuptools]
py-modules = ["server"]

[dependency-groups]
dev = ["{gemel_cli}", "pytest"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
"""

README = """\
# {name}

A server for the Model Context Protocol, made with Gemel.

```sh
{commands}
```

`gemel COMMAND --help` lists the options of a command. Hosts such as Claude Code and VS Code start the server with `gemel run`
and the absolute path of `server.py`.
"""

GITIGNORE = """\
.venv/
__pycache__/
*.pyc
.pytest_cache/
.env
"""

#: What to type next, and what it does.
COMMANDS = (
    ("pip install pytest", "the only other package"),
    ("pytest", "the tests, in both eras of the protocol"),
    ("gemel list server.py", "what clients see"),
    ("gemel call server.py add_note title=tea text='Buy green tea'", "call a tool"),
    ("gemel dev server.py", "look at it and try it, in the browser"),
    ("gemel run server.py --http", "serve at http://127.0.0.1:8000/mcp"),
    ("gemel install server.py", "write it into the configuration of a host"),
)


def project_files(name: str) -> dict[str, str]:
    """Return the files of a project by their paths.

    Args:
        name: The name of the project and of its server.
    """
    return {
        "server.py": SERVER.replace("{name}", name),
        "tests/test_server.py": TESTS,
        "pyproject.toml": PYPROJECT.format(name=name, gemel=requirement(), gemel_cli=requirement("cli")),
        "README.md": README.format(name=name, commands="\n".join(command_lines())),
        ".gitignore": GITIGNORE,
    }


def command_lines() -> list[str]:
    """Return what to type next, each line with a comment."""
    width = max(len(command) for command, _ in COMMANDS)
    return [f"{command:{width}}  # {meaning}" for command, meaning in COMMANDS]
