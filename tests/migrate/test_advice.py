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
    for name, text in advice.SESSION_MEMBERS.items():
        function = f"@mcp.tool\nasync def f(ctx: Context) -> str:\n    return ctx.session.{name}()\n"
        yield f"ctx.session.{name}", f"{SERVER}\n{function}", 7, text
    for name, text in advice.SERVER_MEMBERS.items():
        yield f"server.{name}", f"{SDK if name in OF_THE_SDK else SERVER}\nprint(mcp.{name})\n", 5, text
    for name, text in advice.CLIENT_OPTIONS.items():
        yield f"client option {name}", f"{SERVER}\nclient = Client('a.py', {name}=x)\n", 5, text
    for method, keywords in advice.KEYWORD_ADVICE.items():
        for name, text in keywords.items():
            call = f'{method}("info", "a", {name}=x)'
            if method.startswith("ctx."):
                source, line = f"{SERVER}\n@mcp.tool\nasync def f(ctx: Context) -> None:\n    await {call}\n", 7
            else:
                source, line = f"{SERVER}{IN_CLIENT}await {method}({name}=x)\n", 8
            yield f"{method}({name}=…)", source, line, text
    for name, text in advice.CLIENT_MEMBERS.items():
        yield f"client.{name}", f"{SERVER}{IN_CLIENT}print(client.{name})\n", 8, text


@pytest.mark.parametrize("program", list(programs()), ids=lambda program: program[0])
def test_a_name_without_a_counterpart_is_noted_at_its_line(program: tuple[str, str, int, str]) -> None:
    _, source, line, text = program
    notes = migrate_source(source).notes
    assert any(note.line == line and note.text.endswith(text) for note in notes), notes


@pytest.mark.parametrize(
    ("method", "old", "new"),
    [
        (method, old, new)
        for method, renamed in advice.RENAMED_KEYWORDS.items()
        for old, new in renamed.items()
        if old != "message"  # it becomes the first argument
    ],
)
def test_a_keyword_with_another_name_is_renamed(method: str, old: str, new: str) -> None:
    if method.startswith("ctx."):
        source = f'{SERVER}\n@mcp.tool\nasync def f(ctx: Context) -> None:\n    await {method}("a", {old}=x)\n'
    else:
        source = f"{SERVER}{IN_CLIENT}{method}({old}=x)\n"
    line = migrate_source(source).source.splitlines()[-1]
    assert f"{new}=x" in line
    assert f"{old}=" not in line


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('ctx.info(message="a")', 'ctx.info("a")'),
        ('ctx.info("a", "b")', 'ctx.info("a", logger="b")'),
        ('ctx.log("a", "error", "b")', 'ctx.log("error", "a", logger="b")'),
        ('ctx.elicit("a", ["x", "y"])', 'ctx.elicit("a", Literal["x", "y"])'),
        ('ctx.elicit("a", None)', 'ctx.elicit("a", {"type": "object", "properties": {}})'),
    ],
)
def test_arguments_of_a_context_are_those_of_gemel(old: str, new: str) -> None:
    source = f"{SERVER}\n@mcp.tool\nasync def f(ctx: Context) -> None:\n    await {old}\n"
    assert migrate_source(source).source.splitlines()[-1] == f"    await {new}"


def test_choices_in_another_form_are_noted() -> None:
    call = 'ctx.elicit("a", response_type={"x": {"title": "X"}})'
    notes = migrate_source(f"{SERVER}\n@mcp.tool\nasync def f(ctx: Context) -> None:\n    await {call}\n").notes
    assert any("write the choices as Literal[…]" in note.text for note in notes)


def test_limits_of_the_official_client_are_seconds() -> None:
    source = (
        "from datetime import timedelta\n\nfrom mcp import ClientSession\n\n\n"
        "async def f(session: ClientSession) -> None:\n    await session.call_tool("
    )
    for old, new in (("None, timedelta(seconds=5)", "idle=timedelta(seconds=5).total_seconds()"), ("{}, 5", "idle=5")):
        assert new in migrate_source(f'{source}"a", {old})\n').source


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
