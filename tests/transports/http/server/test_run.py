"""Serving as a process: sockets, signals, an end that comes in time; also under a server that somebody else started."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from gemel import CallNext, Context, Limits, NotFinished, Overloaded, StartError
from gemel.http1.server import listener as http_listener
from gemel.transports.http.server.run import bind, serve_http
from tests.ports import free_port
from tests.serving import serving_app
from tests.transports.http_rig import (
    JSON_HEADERS,
    Log,
    Site,
    Wire,
    exchange,
    handshake_call,
    make_server,
    modern_call,
    process,
    serving,
    text_of,
)

Reach = Callable[[asyncio.subprocess.Process], Awaitable[Site]]

PROGRAM = """
import asyncio, sys
from gemel import Limits
from gemel.transports.http.server.app import HttpApp
from tests.transports.http_rig import Log, make_server

log = Log()
server = make_server(log, limits=Limits(drain=DRAIN))

async def release():
    log.gate.set()

app = HttpApp(lambda: server.serve, limits=server.limits, on_drain=release if RELEASE else None)
if __name__ == "__main__":
    from gemel.transports.http.server.run import serve_http
    asyncio.run(serve_http(app, port=0))
"""


def program(drain: float = 60.0, release: bool = False) -> str:
    """A server that is given so many seconds to drain; `release` opens the gate when the stop begins."""
    return PROGRAM.replace("DRAIN", str(drain)).replace("RELEASE", str(release))


async def port_of(running: asyncio.subprocess.Process) -> int:
    """The port from the line that tells that the server is ready."""
    assert running.stderr is not None
    async with asyncio.timeout(20):
        while line := (await running.stderr.readline()).decode():
            if "http://127.0.0.1:" in line:
                return int(line.split("http://127.0.0.1:")[1].split("/")[0].split()[0])
    raise AssertionError("the server ended before it was ready")


@pytest.fixture
async def reach() -> AsyncIterator[Reach]:
    """Call a process that serves; what was opened is closed at the end."""
    sites: list[Site] = []

    async def make(running: asyncio.subprocess.Process) -> Site:
        sites.append(Site(await port_of(running)))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


async def end_of(running: asyncio.subprocess.Process) -> int:
    """The exit code of a process that must end long before the drain time of most of these servers."""
    async with asyncio.timeout(20):
        return await running.wait()


# ---------------------------------------------------------------- starting


async def test_a_port_in_use_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=f"port {port}: the port is in use"):
            await serve_http(make_server(Log()).http_app(), port=port)


async def test_a_host_that_does_not_exist_is_one_clear_line() -> None:
    with pytest.raises(StartError, match="has no address"):
        await serve_http(make_server(Log()).http_app(), host="no.such.host.invalid", port=0)


async def test_a_start_hook_that_fails_is_the_servers_failure() -> None:
    async def on_start() -> None:
        raise OSError("no database")

    from gemel.transports.http.server.app import HttpApp

    with pytest.raises(OSError, match="no database"):
        await serve_http(HttpApp(lambda: make_server(Log()).serve, on_start=on_start), port=0)


@pytest.mark.parametrize("engine", ["gemel", "uvicorn"])
async def test_nobody_can_connect_before_the_app_has_started(engine: Literal["gemel", "uvicorn"]) -> None:
    """What waits for the port must not be told too early that the server is there."""
    from gemel.transports.http.server.app import HttpApp

    port, starting, go = free_port(), asyncio.Event(), asyncio.Event()
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def on_start() -> None:
        starting.set()
        await go.wait()

    app = HttpApp(lambda: make_server(Log()).serve, on_start=on_start)
    task = asyncio.create_task(serve_http(app, port=port, engine=engine, announce=ready.set_result))
    await starting.wait()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    go.set()
    await ready
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    task.cancel()
    await asyncio.wait([task])


async def test_a_unix_socket_is_served_and_removed_at_the_end(tmp_path: Path) -> None:
    path = str(tmp_path / "mcp.sock")
    async with serving_app(make_server(Log()).http_app(), uds=path) as url:
        assert path in url
        with pytest.raises(StartError, match="in use by a running server"):
            await serve_http(make_server(Log()).http_app(), uds=path)
        wire = Wire(*await asyncio.open_unix_connection(path))
        headers, body = modern_call("add", a=1, b=2)
        await wire.send("POST", headers, json.dumps(body).encode())
        assert text_of((await wire.reply()).json()) == "3"
        wire.close()
    assert not os.path.exists(path)  # noqa: ASYNC240 - a test may


async def test_a_unix_socket_left_behind_by_a_dead_server_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "mcp.sock")
    left = socket.socket(socket.AF_UNIX)
    left.bind(path)
    left.close()
    async with serving_app(make_server(Log()).http_app(), uds=path):
        pass


async def test_a_file_that_is_no_socket_is_not_replaced_by_one(tmp_path: Path) -> None:
    """Connecting to a file is refused as connecting to the socket of a dead server is."""
    path, link = tmp_path / "notes.txt", tmp_path / "link"
    path.write_text("mine")
    link.symlink_to(path)
    for place in (path, link):
        with pytest.raises(StartError, match="it exists and is not a socket; choose another path"):
            await serve_http(make_server(Log()).http_app(), uds=str(place))
    assert link.is_symlink()
    assert path.read_text() == "mine"


async def test_small_pieces_of_a_stream_leave_at_once() -> None:
    """Nagle's algorithm would hold an event back until the client has confirmed the one before, up to 40 ms later."""
    accepted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            connection = transport.get_extra_info("socket")
            accepted.set_result(bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))

    (listening,) = bind("127.0.0.1", 0, None)
    async with await asyncio.get_running_loop().create_server(Accepted, sock=listening):
        _, writer = await asyncio.open_connection(*listening.getsockname())
        assert await accepted
        writer.close()


async def test_the_address_is_told_on_stderr_and_stdout_stays_clean(tmp_path: Path) -> None:
    async with process(tmp_path, program()) as running:
        await port_of(running)
        running.send_signal(signal.SIGTERM)
        out, _ = await running.communicate()
        assert (running.returncode, out) == (0, b"")


async def test_a_connection_that_never_sends_a_head_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-sent requests must not be kept for ever."""
    monkeypatch.setattr(http_listener, "TICK", 0.02)
    async with serving(make_server(Log())) as site:
        silent, half = await site.open(), await site.open()
        half.writer.write(b"POST /mcp HT")
        served = await site.tool("add", a=1, b=2)
        assert (await served.reply()).status == 200
        for wire in (silent, half):
            async with asyncio.timeout(5):
                assert await wire.reader.read() == b""
        headers, body = modern_call("add", a=1, b=2)
        await served.send("POST", headers, json.dumps(body).encode())
        assert (await served.reply()).status == 200


# ---------------------------------------------------------------- stopping

STOPS = [signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize("number", STOPS)
async def test_an_idle_server_ends_at_once_with_status_zero(
    tmp_path: Path, reach: Reach, number: signal.Signals
) -> None:
    async with process(tmp_path, program()) as running:
        site = await reach(running)
        assert (await (await site.tool("add", a=1, b=2)).reply()).status == 200
        running.send_signal(number)
        assert await end_of(running) == 0


async def test_calls_may_finish_while_the_server_stops(tmp_path: Path, reach: Reach) -> None:
    """JSON and streams of both eras get their answers; the standing stream ends in good order."""
    async with process(tmp_path, program(release=True)) as running:
        site = await reach(running)
        session = await site.session()
        standing = await site.listen(session)
        await standing.head()
        quick, stream = await site.tool("wait"), await site.tool("stream", count=1)
        legacy = await site.call(session, handshake_call("wait"))
        await stream.head()
        await asyncio.sleep(0.1)
        running.send_signal(signal.SIGTERM)
        assert text_of((await quick.reply()).json()) == "wait"
        assert text_of((await legacy.reply()).json()) == "wait"
        assert [(await stream.message()).get("method"), text_of(await stream.message())][1] == "stream"
        assert await standing.event() is not None
        assert await standing.event() is None
        assert await end_of(running) == 0


async def test_a_server_that_stops_ends_idle_connections_at_once_and_says_that_nothing_ran(
    tmp_path: Path, reach: Reach
) -> None:
    """A client whose call is on its way may repeat it, whatever the method; a new connection is told so by status 503."""
    async with process(tmp_path, program(release=True)) as running:
        site = await reach(running)
        idle = await site.tool("add", a=1, b=2)
        assert (await idle.reply()).status == 200
        new = await site.open()
        waiting = await site.tool("wait")
        await asyncio.sleep(0.1)
        running.send_signal(signal.SIGTERM)
        refused = await idle.reply()
        assert (refused.status, refused.headers["connection"]) == (408, "close")
        assert refused.json()["error"]["code"] == Overloaded.code
        headers, body = modern_call("add", a=1, b=2)
        await new.send("POST", headers, json.dumps(body).encode())
        refused = await new.reply()
        assert (refused.status, refused.headers["connection"], refused.headers["retry-after"]) == (503, "close", "1")
        assert refused.json()["error"]["code"] == Overloaded.code
        assert text_of((await waiting.reply()).json()) == "wait"
        assert await end_of(running) == 0


async def test_calls_that_do_not_finish_are_ended_with_words_within_the_drain_time(
    tmp_path: Path, reach: Reach
) -> None:
    async with process(tmp_path, program(drain=0.5)) as running:
        site = await reach(running)
        session = await site.session()
        wires = [await site.tool("wait"), await site.call(session, handshake_call("wait"))]
        stream = await site.tool("stream", count=1)
        await stream.head()
        await asyncio.sleep(0.1)
        began = time.monotonic()
        running.send_signal(signal.SIGTERM)
        for wire in wires:
            reply = await wire.reply()
            assert (reply.status, reply.json()["id"], reply.json()["error"]["code"]) == (200, 1, NotFinished.code)
            assert "stopping" in reply.json()["error"]["message"]
        await stream.message()
        assert "stopping" in (await stream.message())["error"]["message"]
        assert await end_of(running) == 0
        assert time.monotonic() - began > 0.4


async def test_a_reader_that_does_not_read_does_not_hold_the_end(tmp_path: Path, reach: Reach) -> None:
    async with process(tmp_path, program(drain=0.3)) as running:
        site = await reach(running)
        await site.tool("flood", count=10_000)
        session = await site.session()
        await site.call(session, handshake_call("flood", count=10_000))
        await asyncio.sleep(0.3)
        running.send_signal(signal.SIGTERM)
        assert await end_of(running) == 0


async def test_a_second_signal_ends_the_process_at_once(tmp_path: Path, reach: Reach) -> None:
    async with process(tmp_path, program()) as running:
        site = await reach(running)
        await site.tool("wait")
        await asyncio.sleep(0.1)
        running.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        running.send_signal(signal.SIGTERM)
        assert await end_of(running) == -signal.SIGTERM


async def test_while_a_server_drains_new_work_is_turned_away_and_old_work_goes_on() -> None:
    log = Log()
    async with serving(make_server(log, limits=Limits(drain=5))) as site:
        session = await site.session()
        waiting = await site.call(session, handshake_call("ask"))
        await waiting.head()
        question = await waiting.message()
        assert site.app is not None
        stopping = asyncio.create_task(site.app.stop())
        await asyncio.sleep(0.05)
        assert (await site.ask(session, handshake_call("add", a=1, b=2))).status == 503
        assert (await (await site.listen(session)).reply()).status == 503
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "file:///x"}]}}
        assert (await site.ask(session, answer)).status == 202
        assert text_of(await waiting.message()) == "file:///x"
        await stopping


# ---------------------------------------------------------------- under a server that somebody else started


async def plain(tmp_path: Path, text: str, *options: str) -> Any:
    return process(tmp_path, text, "-m", "uvicorn", "program:app", "--port", "0", *options)


@pytest.mark.parametrize("options", [(), ("--loop", "asyncio", "--http", "h11"), ("--lifespan", "off")])
async def test_plain_uvicorn_ends_although_streams_are_open(
    tmp_path: Path, reach: Reach, options: tuple[str, ...]
) -> None:
    """The app hears of the signal by itself: uvicorn alone would wait for ever."""
    async with await plain(tmp_path, program(drain=0.5), *options) as running:
        site = await reach(running)
        session = await site.session()
        standing = await site.listen(session)
        await standing.head()
        stream = await site.tool("stream", count=1)
        await stream.head()
        running.send_signal(signal.SIGTERM)
        assert await end_of(running) in (0, -signal.SIGTERM)
        await standing.event()
        assert await standing.event() is None


async def test_mounted_in_another_app_it_still_hears_the_signal(tmp_path: Path, reach: Reach) -> None:
    text = program(drain=0.3) + (
        "\ninner = app\n"
        "async def app(scope, receive, send):\n"
        "    if scope['type'] == 'http':\n"
        "        await inner({**scope, 'root_path': '/mcp'}, receive, send)\n"
    )
    async with await plain(tmp_path, text) as running:
        site = await reach(running)
        stream = await site.tool("stream", count=1)
        await stream.head()
        running.send_signal(signal.SIGTERM)
        assert await end_of(running) in (0, -signal.SIGTERM)


async def test_a_process_without_free_descriptors_goes_on_serving() -> None:
    """asyncio reports the failure once per attempt, not once for each place in the backlog."""
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["message"]))
    async with serving(make_server(Log())) as site:
        client = socket.socket()
        client.setblocking(False)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        spare = []
        with suppress(OSError):
            while True:
                spare.append(os.dup(client.fileno()))
        try:
            await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", site.port))
            while not reported:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
            assert len(reported) == 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for descriptor in spare:
                os.close(descriptor)
        wire = Wire(*await asyncio.open_connection(sock=client))
        await wire.send("GET", {}, path="/livez")
        assert (await wire.reply()).status == 200
        wire.close()


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_handler_that_ignores_its_cancellation_is_answered_for_once(era: str, streams: bool) -> None:
    log = Log()
    server = make_server(log, limits=Limits(drain=0.1, teardown=0.1))

    @server.tool
    async def stubborn(ctx: Context[Any]) -> str:
        if streams:
            await ctx.report_progress(1)
        log.add("begun")
        while not log.gate.is_set():
            with suppress(asyncio.CancelledError):
                await log.gate.wait()
        return "done"

    async with serving(server) as site:
        try:
            if era == "2025":
                call = await site.call(await site.session(), handshake_call("stubborn"))
            else:
                call = await site.tool("stubborn")
            await log.until("begun")
            assert site.app is not None
            await site.app.stop()
            reply = await call.head()
            if reply.streams:
                answer = await call.message()
                while "error" not in answer:
                    answer = await call.message()
            else:
                answer = json.loads(await call.reader.readexactly(int(reply.headers["content-length"])))
            assert answer["error"]["code"] == NotFinished.code
        finally:
            log.gate.set()


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_call_that_was_answered_for_sends_no_second_response_when_it_ends(era: str) -> None:
    """An ASGI server would refuse it, or mistake it for the response to the next request."""
    log, sent = Log(), list[Any]()
    server = make_server(log, limits=Limits(drain=0.1, teardown=0.1))

    @server.tool
    async def stubborn() -> str:
        log.add("begun")
        while not log.gate.is_set():
            with suppress(asyncio.CancelledError):
                await log.gate.wait()
        return "done"

    headers, body = modern_call("stubborn")
    if era == "2025":  # a POST that stands alone
        headers, body = {**JSON_HEADERS, "MCP-Protocol-Version": "2025-11-25"}, handshake_call("stubborn")
    pairs = [(name.lower().encode(), value.encode()) for name, value in {"Host": "localhost", **headers}.items()]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "root_path": "", "headers": pairs}
    incoming = asyncio.Queue[Any]()
    incoming.put_nowait({"type": "http.request", "body": json.dumps(body).encode(), "more_body": False})

    async def send(message: Any) -> None:
        sent.append(message)

    app = server.http_app() if era == "2026" else server.http_app(sessions=False)
    serving_it = asyncio.ensure_future(app(scope, incoming.get, send))
    await log.until("begun")
    await app.stop()
    log.gate.set()
    await serving_it
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert json.loads(sent[1]["body"])["error"]["code"] == NotFinished.code


async def test_uvicorn_can_serve_in_place_of_the_own_server(tmp_path: Path) -> None:
    code = PROGRAM.replace("DRAIN", "5").replace("RELEASE", "False").replace("port=0", "port=0, engine='uvicorn'")
    async with process(tmp_path, code) as running:
        site = Site(await port_of(running))
        reply = await (await site.tool("add", a=1, b=2)).reply()
        assert (reply.headers["server"], text_of(reply.json())) == ("uvicorn", "3")
        site.close()
        running.send_signal(signal.SIGTERM)
        assert await end_of(running) == 0


async def test_uvicorn_lets_the_app_answer_the_calls_that_run_at_the_end(tmp_path: Path) -> None:
    code = PROGRAM.replace("DRAIN", "0.1").replace("RELEASE", "False").replace("port=0", "port=0, engine='uvicorn'")
    async with process(tmp_path, code) as running:
        site = Site(await port_of(running))
        calls = [
            await site.call(await site.session(), handshake_call("stream", count=1)),
            await site.tool("stream", count=1),
        ]
        for call in calls:
            await call.head()
            assert (await call.message())["method"] == "notifications/progress"
        running.send_signal(signal.SIGTERM)
        assert [(await call.message())["error"]["code"] for call in calls] == [NotFinished.code] * 2
        site.close()
        assert await end_of(running) == 0


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_call_whose_http_server_gives_up_its_exchange_is_answered_first(era: str, streams: bool) -> None:
    """Servers cancel the tasks of requests when their own time to stop is over."""
    log = Log()
    async with serving(make_server(log)) as site:
        headers, body = modern_call("stream", count=int(streams))
        if era == "2025":
            headers, body = await site.session(), handshake_call("stream", count=int(streams))
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        task = exchange(site, headers, body, send)
        await log.until("stream has told")
        task.cancel()
        await asyncio.wait([task])
        assert sent[0]["status"] == 200
        text = b"".join(message.get("body", b"") for message in sent[1:]).decode()
        assert text.count('"code":504') == 1
        assert not sent[-1].get("more_body", False)


async def test_each_call_of_a_batch_is_answered_when_the_server_stops() -> None:
    log = Log()
    async with serving(make_server(log, limits=Limits(drain=0.05))) as site:
        session = await site.session("2025-03-26")
        call = await site.call(session, [handshake_call("wait", 1), handshake_call("wait", 2, name="other")])
        await log.until("other begins")
        assert site.app is not None
        await site.app.stop()
        answers = (await call.reply()).json()
        assert sorted((answer["id"], answer["error"]["code"]) for answer in answers) == [
            (1, NotFinished.code),
            (2, NotFinished.code),
        ]


async def test_a_call_that_did_not_start_is_told_when_to_come_back_in_both_eras() -> None:
    log = Log()

    async def arrives(ctx: Context[Any], call_next: CallNext) -> Any:
        log.add(f"{ctx.method} {ctx.request_id}")
        return await call_next(ctx)

    server = make_server(log, limits=Limits(drain=0.05), middleware=[arrives])

    @server.tool(concurrency=1)
    async def narrow() -> None:
        log.add("narrow begins")
        await log.gate.wait()

    async with serving(server) as site:
        session = await site.session()
        await site.tool("narrow")
        await log.until("narrow begins")
        waiting = [await site.call(session, handshake_call("narrow", 2)), await site.tool("narrow", 3)]
        for number in (2, 3):
            await log.until(f"tools/call {number}")
        assert site.app is not None
        await site.app.stop()
        for call in waiting:
            reply = await call.reply()
            assert (reply.status, reply.headers.get("retry-after")) == (503, "1")
