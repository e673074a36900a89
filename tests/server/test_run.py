"""Running a server in an event loop that is there already, and in one of its own, from its start to the end."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gemel import CallError, Client, NotFinished, Outcome, PeerError, Server, StartError
from gemel.server.run import loading
from tests.serving import running

OURS = "io.modelcontextprotocol/"
META = {
    f"{OURS}protocolVersion": "2026-07-28",
    f"{OURS}clientInfo": {"name": "x", "version": "1"},
    f"{OURS}clientCapabilities": {},
}


def counting() -> Server[Any]:
    server: Server[Any] = Server("counting")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    return server


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_server_runs_beside_other_things_until_it_is_cancelled(era: Any) -> None:
    async with running(counting(), "http", port=0) as url, Client(url, era=era) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2}, returns=int)).data == 3


async def test_a_server_whose_file_is_only_loaded_does_not_run() -> None:
    with loading():
        await counting().run_async("http")
        counting().run()


@pytest.mark.parametrize("route", ["stdio", "http"])
@pytest.mark.parametrize("tool", ["go_on", "leave_a_task"])
async def test_a_process_ends_although_a_tool_does_not(route: str, tool: str) -> None:
    """Whoever ignores its cancellation is left behind, with a line in the log."""
    pipe = asyncio.subprocess.PIPE
    words = [sys.executable, "-m", "tests.server.stubborn", route][: 3 + (route == "http")]
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin is not None
    assert process.stderr is not None
    params = {"name": tool, "arguments": {}, "_meta": META}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    writer = None
    if route == "stdio":
        process.stdin.write(body + b"\n")
    else:
        announced = (await process.stderr.readline()).decode()
        port = int(announced.rpartition("127.0.0.1:")[2].partition("/")[0])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        names = ("mcp-protocol-version: 2026-07-28", "mcp-method: tools/call", f"mcp-name: {tool}")
        head = ["POST /mcp HTTP/1.1", f"host: 127.0.0.1:{port}", "content-type: application/json", *names]
        accept = "accept: application/json, text/event-stream"
        writer.write("\r\n".join([*head, accept, f"content-length: {len(body)}", "", ""]).encode() + body)
    async with asyncio.timeout(20):
        assert await process.stderr.readline() == b"begun\n"
        process.terminate()
        _, log = await process.communicate()
    assert process.returncode == 0
    assert b"did not stop when it was cancelled" in log
    assert route == "http" or b"Traceback" not in log
    if writer is not None:
        writer.close()


def blocking_call(until: Path) -> bytes:
    params = {"name": "block", "arguments": {"until": str(until)}, "_meta": META}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


async def blocked(stack: AsyncExitStack, *words: str, until: Path) -> tuple[asyncio.subprocess.Process, Any]:
    """A process whose event loop is blocked by a tool, and what keeps its connection open."""
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "tests.server.stubborn", *words]
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin is not None
    assert process.stderr is not None
    connection: Any = None
    if words in ((), ("thread",)):
        process.stdin.write(blocking_call(until) + b"\n")
    elif words[0] == "http":
        announced = (await process.stderr.readline()).decode()
        url = next(word for word in announced.split() if word.startswith("http://"))
        client = await stack.enter_async_context(Client(url, era="2026"))
        connection = asyncio.create_task(client.call_tool("block", {"until": str(until)}))
    else:
        assert b"unix:" in await process.stderr.readline()
        connection = await asyncio.open_unix_connection(words[-1])
        stack.callback(connection[1].close)
        connection[1].write(blocking_call(until) + b"\n")
    assert await process.stderr.readline() == b"begun\n"
    return process, connection


@pytest.mark.parametrize("route", ["stdio", "http", "unix"])
async def test_a_blocked_event_loop_does_not_hold_the_end_of_the_process(route: str, tmp_path: Path) -> None:
    words = {"stdio": (), "http": ("http",), "unix": (str(tmp_path / "socket"),)}[route]
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        process, connection = await blocked(stack, *words, until=tmp_path / "never")
        process.terminate()
        _, log = await process.communicate()
        assert process.returncode == 1
        assert b"Tool 'block' blocks the event loop" in log
        if isinstance(connection, asyncio.Task):
            with pytest.raises(CallError) as lost:
                await connection
            assert lost.value.outcome is Outcome.UNKNOWN


async def test_a_blocked_event_loop_does_not_outlive_the_end_of_standard_input(tmp_path: Path) -> None:
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        process, _ = await blocked(stack, until=tmp_path / "never")
        assert process.stdin is not None
        process.stdin.close()  # and no signal
        _, log = await process.communicate()
        assert process.returncode == 1
        assert b"Tool 'block' blocks the event loop" in log


async def _ignore(params: Any) -> None:
    return None


@pytest.mark.parametrize("obedient", [True, False])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("route", ["stdio", "http", "unix"])
async def test_a_call_that_runs_when_the_server_stops_may_have_run(
    route: str, era: Any, stream: bool, obedient: bool, tmp_path: Path
) -> None:
    """Whether or not the handler obeys its cancellation, and whether or not its answer is a stream."""
    command = [sys.executable, "-m", "tests.server.stubborn"]
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        target: Any = command
        if route != "stdio":
            words = (*command, "http" if route == "http" else str(tmp_path / "socket"))
            process = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)
            stack.push_async_callback(process.communicate)
            assert process.stderr is not None
            announced = (await process.stderr.readline()).decode()
            target = next(word for word in announced.split() if word.startswith(("http://", "unix:")))
        client = await stack.enter_async_context(Client(target, era=era, reconnect=False))
        arguments = {"obedient": obedient, "stream": stream}
        with pytest.raises(PeerError) as caught:
            await client.call_tool("stop_the_server", arguments, on_progress=_ignore if stream else None)
    assert (caught.value.code, caught.value.outcome) == (NotFinished.code, Outcome.UNKNOWN)


async def test_a_process_that_embeds_the_server_is_not_ended(tmp_path: Path) -> None:
    until = tmp_path / "go on"
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        process, connection = await blocked(stack, "embedded", str(tmp_path / "socket"), until=until)
        process.terminate()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.wait(), 1.5)
        until.touch()
        assert json.loads(await connection[0].readline())["result"]["content"] == [{"type": "text", "text": "done"}]
        await process.communicate()
        assert process.returncode == 0


async def test_a_process_that_serves_in_a_thread_is_not_ended(tmp_path: Path) -> None:
    until = tmp_path / "go on"
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        process, _ = await blocked(stack, "thread", until=until)
        assert process.stdin is not None
        process.stdin.close()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.wait(), 1.5)
        until.touch()
        answer, _ = await process.communicate()
        assert json.loads(answer)["id"] == 1
        assert process.returncode == 0


def test_a_signal_after_the_end_of_input_leaves_no_call_without_its_answer(tmp_path: Path) -> None:
    """The handler hangs in the draining server; its caller still hears that it won't come."""
    program = tmp_path / "hanging.py"
    program.write_text(
        "import asyncio\n"
        "from gemel import Server\n"
        "server = Server('x')\n"
        "@server.tool\n"
        "async def hang() -> str:\n"
        "    print('hanging', flush=True)\n"
        "    await asyncio.sleep(100)\n"
        "    return 'never'\n"
        "server.run()\n"
    )
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, str(program)], **pipes) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        assert process.stdout is not None
        asked = {"name": "hang", "arguments": {}, "_meta": META}
        process.stdin.write(
            json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": asked}).encode() + b"\n"
        )
        process.stdin.close()
        assert process.stderr.readline() == b"hanging\n"
        process.send_signal(signal.SIGTERM)
        answers = [json.loads(line) for line in process.stdout]
        assert process.wait(20) == 0
    assert [(answer["id"], "error" in answer) for answer in answers] == [(7, True)]


# ---------------------------------------------------------------- what keeps a script from starting

SCRIPT = """
from contextlib import asynccontextmanager
from gemel import Server, StartError

@asynccontextmanager
async def lifespan(server):
    raise StartError("no library: mount it at /books")
    yield

server = Server("x")
server.tool("here")(lambda: None)
unready = Server("x", lifespan=lifespan)
unreachable = Server.from_client("http://127.0.0.1:1/mcp", strict=True)

if __name__ == "__main__":
    {call}
"""


def _runs(call: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "script.py"
    program.write_text(SCRIPT.format(call=call))
    words = [sys.executable, str(program)]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("server.run('http', port=TAKEN)", "Can't listen on 127.0.0.1 port TAKEN: the port is in use; "),
        ("server.run('http', port=TAKEN, workers=2)", "Can't listen on 127.0.0.1 port TAKEN: the port is in use; "),
        ("server.run('socket', port=TAKEN)", "Can't listen on 127.0.0.1:TAKEN: Address already in use"),
        ("server.run('htp')", 'There is no transport \'htp\': use "stdio", "http" or "socket"'),
        ("server.run('stdio', port=1)", "run('stdio') has no option 'port': it has principal"),
        ("server.run('http', prt=1)", "HTTP has no option 'prt': did you mean 'port'?"),
        ("unready.run()", "no library: mount it at /books"),
        ("unready.run('http', port=0)", "no library: mount it at /books"),
        ("unreachable.run()", "No connection to 127.0.0.1:1: "),
    ],
)
def test_a_script_that_can_not_start_says_so_in_one_line(call: str, said: str, taken: int, tmp_path: Path) -> None:
    ended = _runs(call.replace("TAKEN", str(taken)), tmp_path)
    *warnings, line = ended.stderr.splitlines()
    assert line.startswith("gemel: " + said.replace("TAKEN", str(taken)))
    assert warnings == [] or ("workers" in call and len(warnings) == 1)
    assert (ended.returncode, ended.stdout) == (1, "")


def test_gemel_run_says_it_the_same_way(taken: int, tmp_path: Path) -> None:
    by_script = _runs(f"server.run('http', port={taken})", tmp_path)
    words = [sys.executable, "-m", "gemel", "run", f"{tmp_path / 'script.py'}:server", "--http", "--port", str(taken)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", by_script.stderr)


def test_whoever_catches_it_goes_on_and_knows_the_reason(taken: int) -> None:
    with pytest.raises(StartError, match="the port is in use") as caught:
        counting().run("http", port=taken)
    assert isinstance(caught.value, Exception)
    assert isinstance(caught.value.__cause__, StartError)
    assert isinstance(caught.value.__cause__.__cause__, OSError)


def test_in_a_thread_it_is_an_error_like_any_other(taken: int) -> None:
    """An exit is nobody's news there: threads pass over it, and the loop that waits for one would end."""
    with ThreadPoolExecutor() as threads:
        error = threads.submit(counting().run, "http", port=taken).exception()
    assert isinstance(error, StartError)
    assert not isinstance(error, SystemExit)
