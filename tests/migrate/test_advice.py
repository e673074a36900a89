"""What is said of names and options without a counterpart: each text reaches the reader, with the line that it is about."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

pytest.importorskip("libcst")
from gemel.migrate import advice, migrate_source  # needs libcst
from tests.source import PACKAGE, ROOT  # libcst first

SERVER = 'from fastmcp import Client, Context, FastMCP\n\nmcp = FastMCP("a")\n'
SDK = 'from mcp.server.mcpserver import MCPServer\n\nmcp = MCPServer("a")\n'
LOW_LEVEL = 'from mcp.server.lowlevel import Server\n\nserver = Server("a")\n'
IN_CLIENT = '\n\nasync def main() -> None:\n    async with Client("a.py") as client:\n        '
#: What is said about names that each table has for one library only.
OF_THE_SDK = {
    "auth_server_provider",
    "debug",
    "resources",
    "subscriptions",
    "token_verifier",
    "completion",
}


def programs() -> Iterator[tuple[str, str, int, str]]:
    """A name for each text, a program that needs it, its line, and the text."""
    for name, text in advice.NAME_ADVICE.items():
        module, last = (name, "Anything") if "." in name or name.islower() else (name.rpartition(".")[0], name)
        if name.rpartition(".")[2][0].isupper():
            module, _, last = name.rpartition(".")
        if "owlevel" not in name and name != "mcp.server.Server":
            yield f"import {name}", f"from {module} import {last}\n\nprint({last})\n", 1, text
    for name, text in advice.SERVER_OPTIONS.items():
        kind = "MCPServer" if name in OF_THE_SDK else "FastMCP"
        home = "mcp.server.mcpserver" if name in OF_THE_SDK else "fastmcp"
        yield f"server option {name}", f'from {home} import {kind}\n\nmcp = {kind}("a", {name}=x)\n', 3, text
    for name, text in advice.ITEM_OPTIONS.items():
        yield f"tool option {name}", f"{SERVER}\n@mcp.tool({name}=x)\ndef f() -> str:\n    return ''\n", 5, text
    for name, text in advice.CONTEXT_MEMBERS.items():
        attribute = "request_context.experimental" if name == "request_context" else name
        function = f"@mcp.tool\nasync def f(ctx: Context) -> str:\n    return ctx.{attribute}\n"
        yield f"ctx.{name}", f"{SERVER}\n{function}", 7, text
    for name, text in advice.SERVER_MEMBERS.items():
        yield f"server.{name}", f"{SDK if name in OF_THE_SDK else SERVER}\nprint(mcp.{name})\n", 5, text
    for name, text in advice.CLIENT_OPTIONS.items():
        yield f"client option {name}", f"{SERVER}\nclient = Client('a.py', {name}=x)\n", 5, text
    for name, text in advice.CALL_OPTIONS.items():
        yield f"call option {name}", f"{SERVER}{IN_CLIENT}await client.call_tool('a', {{}}, {name}=x)\n", 8, text
    for name, text in advice.CLIENT_MEMBERS.items():
        yield f"client.{name}", f"{SERVER}{IN_CLIENT}print(client.{name})\n", 8, text


@pytest.mark.parametrize("program", list(programs()), ids=lambda program: program[0])
def test_a_name_without_a_counterpart_is_noted_at_its_line(program: tuple[str, str, int, str]) -> None:
    _, source, line, text = program
    notes = migrate_source(source).notes
    assert any(note.line == line and note.text.endswith(text) for note in notes), notes


@pytest.mark.parametrize("option", sorted(advice.DROPPED_SERVER_OPTIONS))
def test_an_option_that_gemel_does_not_need_goes(option: str) -> None:
    result = migrate_source(f'from fastmcp import FastMCP\n\nmcp = FastMCP("a", {option}=x)\n')
    assert (
        result.source
        == 'from gemel import Server\n\nmcp = Server("a", coerce=True, error_details=True, structured_text=True)\n'
    )


def test_documents_that_the_notes_name_are_there() -> None:
    for path in (PACKAGE / "migrate").glob("*.py"):
        for name in re.findall(r"docs/[\w/-]+\.md", path.read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), f"{path.name} names {name}"
