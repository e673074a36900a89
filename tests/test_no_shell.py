"""Names and arguments are never interpreted by a shell: what a name may hold, and how programs are started."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeGuard

import pytest

from gemel import Client, ClientGroup, Context, DefinitionError, ResourceLink, Server, TextContent
from gemel.transports.stream.command_line import windows_command_line
from tests.source import read_package

#: Functions that run their text in a shell, by module.
SHELLS = {
    "os": {"system", "popen"},
    "subprocess": {"getoutput", "getstatusoutput"},
    "asyncio": {"create_subprocess_shell"},
    "pty": {"spawn"},
}
#: What shells of POSIX systems and of Windows interpret, besides blanks and ends of lines.
INTERPRETED = "\"'`$&|;<>(){}[]*?!#~%^\\ \t\r\n\0"


@pytest.mark.parametrize("character", INTERPRETED)
def test_names_hold_nothing_that_a_shell_interprets(character: str) -> None:
    """Names become arguments, file names and entries of configurations."""
    server: Server[Any] = Server("named")
    name = f"tool{character}id"
    with pytest.raises(DefinitionError, match="use 1 to 128 of A-Z a-z 0-9"):
        server.tool(name)(lambda: "x")
    with pytest.raises(DefinitionError):
        server.mount(Server("inner"), prefix=name)


async def test_a_group_makes_names_of_any_name_of_a_server() -> None:
    """Names that a group makes of the names in a configuration."""
    first, second = Server("first"), Server("second")
    first.tool("same")(lambda: "1")
    second.tool("same")(lambda: "2")
    async with ClientGroup({f"a{INTERPRETED}": first, f"b{INTERPRETED}": second}) as group:
        names = [tool.name for tool in await group.list_tools()]
    assert len(set(names)) == 2
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+", name) for name in names)


def test_nothing_is_started_by_a_shell() -> None:
    """As far as the source tells."""
    wrong = [module.at(node.lineno) for module in read_package() for node in ast.walk(module.tree) if _is_shell(node)]
    assert wrong == []


def _is_shell(node: ast.AST) -> TypeGuard[ast.keyword | ast.ImportFrom | ast.Attribute]:
    if isinstance(node, ast.keyword):
        return node.arg == "shell"
    if isinstance(node, ast.ImportFrom):
        return any(one.name in SHELLS.get(node.module or "", ()) for one in node.names)
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.attr in SHELLS.get(node.value.id, ())
    )


@pytest.mark.parametrize("line", ["import os; os.system(x)", "from os import popen", "run(x, shell=True)"])
def test_a_shell_in_the_source_is_noticed(line: str) -> None:
    assert any(map(_is_shell, ast.walk(ast.parse(line))))


PROGRAM = """
import sys
from gemel import Server

server = Server("echo")

@server.tool
def words() -> list[str]:
    return sys.argv[1:]

server.run()
"""


@pytest.mark.parametrize("as_text", [False, True])
async def test_arguments_of_a_program_arrive_as_they_are(tmp_path: Path, as_text: bool) -> None:
    """Nothing in arguments is run, expanded or redirected."""
    program, trace = tmp_path / "pro gram.py", tmp_path / "trace"
    program.write_text(PROGRAM)
    hostile = [
        f"; touch {trace}",
        f"$(touch {trace})",
        f"`touch {trace}`",
        f"| tee {trace}",
        f"> {trace}",
        "$HOME",
        "*",
    ]
    command = [sys.executable, str(program), *hostile]
    target: Any = " ".join(map(shlex.quote, command)) if as_text else command
    async with Client(target, cwd=tmp_path) as client:
        assert (await client.call_tool("words", returns=list[str])).data == hostile
    if as_text:  # without quotes, too
        async with Client(f"{shlex.quote(sys.executable)} {shlex.quote(str(program))} ;touch {trace}") as client:
            assert (await client.call_tool("words", returns=list[str])).data == [";touch", str(trace)]
    assert not trace.exists()


@pytest.mark.parametrize("program", ["run.cmd", "RUN.BAT"])
@pytest.mark.parametrize("character", '"%!^&|<>()\r\n\0')
def test_batch_files_take_no_argument_that_cmd_exe_interprets(program: str, character: str) -> None:
    """Windows runs batch files in its shell whatever the caller does."""
    with pytest.raises(DefinitionError, match="batch file"):
        windows_command_line([program, f"a{character}b"], {}, is_file=lambda path: True)


#: What Python reports of a process that is started (`sys.addaudithook`).
STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.startfile"}


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_nothing_that_a_server_says_starts_a_process(tmp_path: Path, era: Any) -> None:
    """It says commands and addresses of programs wherever it may say text, and what it asks is agreed to."""
    line, address = f"touch {tmp_path}/trace", Path(sys.executable).as_uri()
    server: Server[Any] = Server("starts", title=line, instructions=line, website_url=address)
    server.resource(address, name=line)(lambda: line)

    @server.tool(title=line, description=line)
    async def run(ctx: Context[Any]) -> Any:
        await ctx.elicit_url(line, "https://example.com/;touch")
        return [ResourceLink(uri=address, name=line), TextContent(text=line), await ctx.elicit(line, str)]

    started: list[str] | None = []
    sys.addaudithook(lambda event, _: started.append(event) if started is not None and event in STARTS else None)
    async with Client(server, era=era, on_elicit=lambda _: {"value": line}, on_elicit_url=lambda _: True) as client:
        assert [tool.title for tool in await client.list_tools()] == [line]
        assert line in (await client.call_tool("run")).text
        assert (await client.read_resource(address)).text == line
    assert started == []
    subprocess.run([sys.executable, "-c", ""], check=True)  # noqa: ASYNC221 - there is nothing else to do
    assert started, "a process that is started is noticed"
    started = None
