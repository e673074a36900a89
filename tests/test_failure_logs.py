"""What the log says of a failure, and a script that ends by one: the lines of the user's code, without those of Gemel."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

import gemel
from gemel import CallNext, Client, Context, Depends, GemelError, Server, Tasks

PACKAGE = str(Path(gemel.__file__).parent)


def fail() -> Any:
    """What the functions of a user call."""
    raise ValueError("out of paper")


async def fail_first(ctx: Context[Any], call_next: CallNext) -> Any:
    return fail() if ctx.method == "tools/call" else await call_next(ctx)


@asynccontextmanager
async def fail_at_begin(owner: Any) -> AsyncIterator[None]:
    fail()
    yield


@asynccontextmanager
async def fail_at_end(owner: Any) -> AsyncIterator[None]:
    yield
    fail()


def failing(**options: Any) -> Server[Any]:
    """A server each of whose functions fails."""
    server: Server[Any] = Server("printer", **options)
    server.add_extension(Tasks(poll_interval=0.01))

    async def made() -> str:
        fail()
        return ""

    async def cleaned() -> AsyncIterator[str]:
        yield "paper"
        fail()

    @server.tool
    def in_thread() -> str:
        return str(fail())

    @server.tool
    async def on_loop() -> str:
        return str(fail())

    @server.tool(task=True)
    async def as_task() -> str:
        return str(fail())

    @server.tool
    async def depends(paper: Annotated[str, Depends(made)]) -> str:
        return paper

    @server.tool
    async def cleans_up(paper: Annotated[str, Depends(cleaned)]) -> str:
        return paper

    @server.tool
    async def tells(ctx: Context[Any]) -> str:
        await ctx.report_progress(1)
        await ctx.warning("low on ink")
        return await ctx.elicit("Which paper?")

    @server.prompt
    def prompt(name: str) -> str:
        return str(fail())

    @prompt.complete("name")
    def names(value: str) -> list[str]:
        return [str(fail())]

    @server.resource("page://1")
    def page() -> str:
        return str(fail())

    @server.resource("page://{number}/back")
    def back(number: int) -> str:
        return str(fail())

    @server.tool(visible=lambda ctx: bool(fail()))
    def hidden() -> str:
        return ""

    @server.request("acme/print")
    async def custom(ctx: Context[Any], params: Any) -> Any:
        return fail()

    return server


async def _task(client: Client) -> Any:
    return await (await client.call_tool("as_task", task=True)).result()


USES: dict[str, Any] = {
    "tool in a thread": lambda client: client.call_tool("in_thread"),
    "tool on the loop": lambda client: client.call_tool("on_loop"),
    "task": _task,
    "dependency": lambda client: client.call_tool("depends"),
    "clean-up of a dependency": lambda client: client.call_tool("cleans_up"),
    "callbacks of the client": lambda client: client.call_tool("tells", on_progress=lambda params: fail()),
    "prompt": lambda client: client.get_prompt("prompt", {"name": "a"}),
    "completion": lambda client: client.complete(prompt="prompt", argument="name"),
    "resource": lambda client: client.read_resource("page://1"),
    "template": lambda client: client.read_resource("page://1/back"),
    "visibility": lambda client: client.list_tools(),
    "method": lambda client: client.request("acme/print", {}),
}
AROUND: dict[str, dict[str, Any]] = {
    "middleware": {"middleware": [fail_first]},
    "connection lifespan": {"connection_lifespan": fail_at_begin},
    "end of a lifespan": {"lifespan": fail_at_end},
}


def check_log(caplog: pytest.LogCaptureFixture) -> None:
    """Each record with an exception shows the lines of this file, and not much more."""
    failed = [record for record in caplog.records if record.exc_info]
    assert failed
    for record in failed:
        text = logging.Formatter().format(record)
        assert 'raise ValueError("out of paper")' in text
        assert PACKAGE not in text
        assert "not shown; GEMEL_TRACEBACKS=full shows all)" in text.splitlines()[-1]
        assert len(text.splitlines()) <= 12
        assert record.exc_info is not None
        trace, files = record.exc_info[2], []
        while trace is not None:
            files.append(trace.tb_frame.f_code.co_filename)
            trace = trace.tb_next
        assert any(file.startswith(PACKAGE) for file in files)  # handlers get the whole


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("kind", [*USES, *AROUND])
async def test_a_failure_shows_the_lines_of_the_user(
    kind: str, era: Literal["2025", "2026"], caplog: pytest.LogCaptureFixture
) -> None:
    callbacks: Any = {"on_elicit": lambda form: fail(), "on_log": lambda params: fail()}
    use = USES.get(kind, USES["tool on the loop"])
    async with Client(failing(**AROUND.get(kind, {})), era=era, **callbacks) as client:
        with suppress(GemelError, ValueError):
            await use(client)
    check_log(caplog)


def text_of(function: Any, *arguments: Any) -> str:
    """What the log shows of an exception of a function that Python called in a thread."""
    with ThreadPoolExecutor() as threads:
        error = threads.submit(function, *arguments).exception()
    assert error is not None
    record = logging.getLogger("gemel").makeRecord(
        "gemel", logging.ERROR, "", 0, "failed", (), (type(error), error, None)
    )
    logging.getLogger("gemel").filter(record)
    return logging.Formatter().format(record)


def test_a_setting_shows_all_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "thread.py" not in text_of(fail)
    monkeypatch.setenv("GEMEL_TRACEBACKS", "full")
    assert "thread.py" in text_of(fail)
    assert "not shown" not in text_of(fail)


def test_a_failure_of_gemel_itself_shows_its_frames() -> None:
    text = text_of(gemel.Image)
    assert PACKAGE in text
    assert "not shown" not in text


def test_what_the_users_code_called_is_shown() -> None:
    assert os.path.join("json", "decoder.py") in text_of(lambda: json.loads("{"))


def test_causes_and_groups_are_shown_alike() -> None:
    def both() -> None:
        try:
            fail()
        except ValueError as exc:
            raise ExceptionGroup("several", [RuntimeError("a"), exc]) from exc

    text = text_of(both)
    assert text.count('raise ValueError("out of paper")') == 2
    assert "direct cause" in text
    assert "RuntimeError: a" in text
    assert "thread.py" not in text


SCRIPT = """
import sys
from contextlib import asynccontextmanager
from gemel import Server

def connect():
    raise ValueError("no database")

@asynccontextmanager
async def lifespan(server):
    yield connect()

server = Server("notes", lifespan=lifespan)

if __name__ == "__main__":
    server.run(*sys.argv[1:2], **({"port": 0} if "http" in sys.argv else {}), **({"workers": 2} if "workers" in sys.argv else {}))
"""


@pytest.mark.parametrize(
    "command",
    [["{file}"], ["{file}", "http"], ["{file}", "http", "workers"], ["-m", "gemel", "run", "{file}"]],
    ids=["stdio", "http", "workers", "gemel run"],
)
def test_a_lifespan_that_fails_is_named_with_the_lines_of_the_user(command: list[str], tmp_path: Path) -> None:
    if "workers" in command and not hasattr(os, "fork"):
        pytest.skip("several workers need fork")
    file = tmp_path / "notes.py"
    file.write_text(SCRIPT)
    words = [sys.executable, *(word.format(file=file) for word in command)]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    failures = done.stderr.count("in connect\n")
    assert failures == 1 or ("workers" in command and failures >= 3)
    assert lines.count("The lifespan of server 'notes' failed") == failures
    assert "ValueError: no database" in lines
    assert PACKAGE not in done.stderr
    assert len(lines) <= 12 * failures
