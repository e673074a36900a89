"""The extra `cli`: loaded only when somebody is asked or something is drawn, and not needed by the commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.typist import at_the_terminal

SERVER = """
from gemel import Context, Server

server = Server("shop")


@server.tool
async def order(ctx: Context, item: str) -> str:
    "Order something [bold]now[/bold]."
    await ctx.report_progress(1, 2, "looking \\x1b[2J")
    return item


@server.tool
async def gift(ctx: Context) -> str:
    return str(await ctx.elicit("Wrap it?", bool))
"""
LIBRARIES = ("rich", "prompt_toolkit", "watchfiles")

WITHOUT = f"""
import sys
for name in {LIBRARIES}:
    sys.modules[name] = None
from gemel.cli import main
sys.exit(main(sys.argv[1:]))
"""
WHICH = f"""
import contextlib, sys
from gemel.cli import main
import gemel
gemel.Terminal()
with contextlib.suppress(SystemExit):
    main(sys.argv[1:])
print([name for name in {LIBRARIES} if name in sys.modules], file=sys.stderr)
"""


@pytest.fixture
def server(tmp_path: Path) -> str:
    (tmp_path / "shop.py").write_text(SERVER)
    return f"{tmp_path}/shop.py"


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("words", [["--help"], ["run", "{}"], ["list", "{}"], ["call", "{}", "order", "item=tea"]])
def test_a_command_that_draws_nothing_loads_none_of_it(server: str, words: list[str]) -> None:
    done = python(WHICH, *(word.format(server) for word in words))
    assert done.stderr.splitlines()[-1] == "[]"


async def test_the_commands_work_without_it(server: str) -> None:
    """Progress is a line, a list is plain, and a warning says what to install."""
    async with at_the_terminal([sys.executable, "-c", WITHOUT, "call", server, "order", "item=tea"]) as (
        typist,
        process,
    ):
        await typist.sees("gemel: Servers can't ask for input: prompts need the extra cli: pip install 'gemel[cli]'\n")
        await typist.sees("1/2 looking \\x1b[2J\n")
        await typist.sees("tea\n")
    assert process.returncode == 0
    async with at_the_terminal([sys.executable, "-c", WITHOUT, "list", server]) as (typist, process):
        await typist.sees("\norder(item: string)\n    Order something [bold]now[/bold].\n")
    assert process.returncode == 0
    assert "\x1b" not in typist.raw
    assert "install" not in typist.raw


async def test_a_server_is_told_that_it_cannot_ask_without_it(server: str) -> None:
    command = [sys.executable, "-c", WITHOUT, "call", server, "gift"]
    async with at_the_terminal(command) as (typist, process):
        await typist.sees("prompts need the extra cli")
        await typist.sees("gemel: Missing required client capability: elicitation")
    assert process.returncode == 1
    async with at_the_terminal([*command, "--no-input"]) as (typist, process):
        await typist.sees("gemel: Missing required client capability: elicitation")
    assert "install" not in typist.seen


def test_reload_names_what_to_install(server: str) -> None:
    done = python(WITHOUT, "run", server, "--http", "--port", "0", "--reload")
    assert (done.returncode, done.stderr) == (1, "gemel: --reload needs the extra cli: pip install 'gemel[cli]'\n")


async def test_the_markup_of_rich_is_not_interpreted(server: str) -> None:
    async with at_the_terminal([sys.executable, "-m", "gemel", "list", server], {"NO_COLOR": ""}) as (typist, _):
        await typist.sees("    Order something [bold]now[/bold].\n")
