"""The contract of docs/reference/transports.md, with the WebSocket transport that it writes and with sessions fed by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal

import pytest
from opentelemetry.trace import SpanKind
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin as WebOrigin

from gemel import CallNext, CallTimeout, Client, ConnectFailed, ConnectionLost, Context, DefinitionError, Limits, Server
from gemel.session import Session
from gemel.transports import Call, Origin, Outgoing, SessionLike
from tests import serving
from tests.observed import Observed, attributes, observing

websockets: Any = serving.websocket_transport()

Era = Literal["2025", "2026"]
ERAS: tuple[Era, ...] = ("2025", "2026")
NEWEST = {"2025": "2025-11-25", "2026": "2026-07-28"}
HELLO = {"protocolVersion": NEWEST["2025"], "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
META = {
    "io.modelcontextprotocol/protocolVersion": NEWEST["2026"],
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
}


def connected(server: Server[Any], era: Era, **options: Any) -> AbstractAsyncContextManager[Client]:
    return serving.connected(server, "websocket", era=era, **options)


def remember_channels(server: Server[Any]) -> list[Any]:
    """The channels that the server serves from now on."""
    channels: list[Any] = []
    serve = server.serve

    def remember(channel: Any) -> Session:
        channels.append(channel)
        return serve(channel)

    server.serve = remember  # type: ignore[method-assign]  # to get hold of them
    return channels


def message(method: str, number: int | None = None, **params: Any) -> bytes:
    return json.dumps(
        {"jsonrpc": "2.0", "method": method, "params": params} | ({} if number is None else {"id": number})
    ).encode()


# ---------------------------------------------------------------- begin


@asynccontextmanager
async def lifespan(server: Server[Any]) -> AsyncIterator[str]:
    yield "state"


class Mute:
    """A channel that keeps what is sent."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.sent: asyncio.Queue[bytes] = asyncio.Queue()

    async def send(self, message: Outgoing, /) -> None:
        self.sent.put_nowait(message.data)

    async def close(self) -> None: ...

    def close_stream(self, call: Call, retry_ms: int, /) -> bool:
        return False

    def set_revision(self, revision: str, /) -> None: ...


@pytest.mark.parametrize("kind", ["test", "post", "session"])
async def test_a_server_with_a_lifespan_serves_within_running_only(kind: str) -> None:
    server = Server("x", lifespan=lifespan)
    with pytest.raises(
        DefinitionError, match=r"lifespan of server 'x' was not entered .* `async with server.running\(\):`"
    ):
        server.serve(Mute(kind))
    async with server.running():
        server.serve(Mute(kind))
    with pytest.raises(DefinitionError, match="was not entered"):
        server.serve(Mute(kind))


async def test_the_lifespan_of_a_mounted_server_counts() -> None:
    outer: Server[Any] = Server("outer")
    outer.mount(Server("inner", lifespan=lifespan))
    with pytest.raises(DefinitionError, match="was not entered"):
        outer.serve(Mute("test"))


async def test_a_server_without_a_lifespan_needs_no_running() -> None:
    session = Server[Any]("x").serve(Mute("test"))
    received = session.receive(message("ping", 1, _meta=META))
    assert isinstance(received, Call | Outgoing)


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Observed]:
    yield from observing(monkeypatch)


@pytest.mark.parametrize("era", ERAS)
async def test_a_kind_of_its_own_is_the_protocol_that_telemetry_records(observed: Observed, era: Era) -> None:
    server: Server[Any] = Server("x")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    async with connected(server, era) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
    span = observed.span(SpanKind.SERVER, "tools/call add")
    assert attributes(span)["network.protocol.name"] == "websocket"
    assert attributes(span)["client.address"] == "127.0.0.1"
    (session,) = [attributes(point) for point in observed.points("mcp.server.session.duration")]
    assert session["network.protocol.name"] == "websocket"


async def test_a_client_that_cannot_connect_says_so() -> None:
    async with serving.over_websocket(Server("x")) as url:
        pass
    with pytest.raises(ConnectFailed, match="No WebSocket at"):
        async with Client(websockets.WebSocketTransport(url)):
            pass


# ---------------------------------------------------------------- what arrives


def slow_to_agree(gate: asyncio.Event) -> Server[Any]:
    async def slow(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "initialize":
            await gate.wait()
        return await call_next(ctx)

    return Server("x", middleware=[slow], limits=Limits(backlog=3))


async def read(socket: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(10):
        found: dict[str, Any] = json.loads(await socket.recv())
    return found


async def test_what_is_sent_behind_a_slow_initialize_waits_for_its_answer() -> None:
    """More than the backlog holds, so that reading stops and goes on."""
    gate = asyncio.Event()
    async with (
        serving.over_websocket(slow_to_agree(gate)) as url,
        connect(url, subprotocols=[websockets.MCP]) as socket,
    ):
        await socket.send(message("initialize", 0, **HELLO), text=True)
        for number in range(1, 11):
            await socket.send(message("tools/list", number), text=True)
        await (await socket.ping())
        gate.set()
        answers = [await read(socket) for _ in range(11)]
    assert answers[0]["id"] == 0
    assert answers[0]["result"]["protocolVersion"] == NEWEST["2025"]
    assert sorted(answer["id"] for answer in answers[1:]) == list(range(1, 11))
    assert all("result" in answer for answer in answers)


async def test_an_inline_call_is_marked_and_no_other() -> None:
    session = Server[Any]("x").serve(Mute("test"))
    hello = session.receive(message("initialize", 0, **HELLO))
    assert isinstance(hello, Call)
    assert hello.inline
    too_early = session.receive(message("tools/list", 1))
    assert isinstance(too_early, Call)
    refusal = await session.answer(too_early)
    assert refusal is not None
    assert refusal.error is not None
    assert refusal.error.message == "Received 'tools/list' before 'initialize'."
    assert await session.answer(hello) is not None
    call = session.receive(message("tools/list", 2))
    assert isinstance(call, Call)
    assert not call.inline


async def test_what_cannot_be_read_is_answered_and_the_connection_goes_on() -> None:
    async with serving.over_websocket(Server("x")) as url, connect(url, subprotocols=[websockets.MCP]) as socket:
        for text in (b"nonsense", b"\xff\xfe", b"[]", b"{}"):
            await socket.send(text, text=True)
            assert (await read(socket))["error"]["code"] in (-32700, -32600)
        await socket.send(message("initialize", 0, **HELLO), text=True)
        assert "result" in await read(socket)


@pytest.mark.parametrize("era", ERAS)
async def test_calls_are_served_beside_each_other_and_the_client_is_asked_meanwhile(era: Era) -> None:
    server: Server[Any] = Server("x")
    begun, gate = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        begun.set()
        await gate.wait()
        return "waited"

    @server.tool
    async def greet(ctx: Context[Any]) -> str:
        await ctx.report_progress(1, 2)
        return f"Hello {await ctx.elicit('Who are you?', str)}"

    progress: list[float] = []

    async def told(done: Any) -> None:
        progress.append(done.progress)

    async def answer(question: Any) -> Any:
        return {"value": "Ada"}

    async with connected(server, era, on_elicit=answer) as client:
        waiting = asyncio.create_task(client.call_tool("wait"))
        await begun.wait()
        assert (await client.call_tool("greet", on_progress=told)).text == "Hello Ada"
        assert 1 in progress
        gate.set()
        assert (await waiting).text == "waited"


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_its_client_gives_up_is_cancelled(era: Era) -> None:
    server: Server[Any] = Server("x")
    cancelled = asyncio.Event()

    @server.tool
    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with connected(server, era) as client:
        with pytest.raises(CallTimeout):
            await client.call_tool("wait", total=0.05)
        async with asyncio.timeout(10):
            await cancelled.wait()


# ---------------------------------------------------------------- what is sent


async def test_a_parting_message_follows_the_result() -> None:
    """A subscription that the server ends: `session.answer` returns both, the documented transport sends both."""
    server: Server[Any] = Server("x")

    @server.tool
    async def nothing() -> None: ...

    listen = message("subscriptions/listen", 1, notifications={"toolsListChanged": True}, _meta=META)
    async with serving.over_websocket(server) as url, connect(url, subprotocols=[websockets.MCP]) as socket:
        await socket.send(listen, text=True)
        assert (await read(socket))["method"] == "notifications/subscriptions/acknowledged"
        await server._drain()
        result, parting = await read(socket), await read(socket)
    assert result["id"] == 1
    assert "result" in result
    assert parting["method"] == "notifications/cancelled"
    assert parting["params"]["requestId"] == 1


async def test_the_parting_message_is_the_follow_of_the_response() -> None:
    server: Server[Any] = Server("x")
    channel = Mute("test")
    async with server.running():
        session = server.serve(channel)
        call = session.receive(message("subscriptions/listen", 1, notifications={"toolsListChanged": True}, _meta=META))
        assert isinstance(call, Call)
        answering = asyncio.create_task(session.answer(call))
        async with asyncio.timeout(10):
            await channel.sent.get()
        session.end_input("nothing more comes")
        reply = await answering
    assert reply is not None
    assert json.loads(reply.data)["id"] == 1
    assert reply.follow is not None
    assert json.loads(reply.follow.data)["method"] == "notifications/cancelled"


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize("era", ERAS)
async def test_handlers_and_clean_up_end_with_the_connection(era: Era) -> None:
    ended: list[str] = []
    over = asyncio.Event()

    @asynccontextmanager
    async def connection(ctx: Context[Any]) -> AsyncIterator[None]:
        try:
            yield
        finally:
            ended.append("connection")
            over.set()

    server: Server[Any] = Server("x", connection_lifespan=connection)
    begun = asyncio.Event()

    @server.tool
    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("handler")

    async with serving.over_websocket(server) as url:
        async with connect(url, subprotocols=[websockets.MCP]) as socket:
            if era == "2025":
                await socket.send(message("initialize", 0, **HELLO), text=True)
                await read(socket)
            await socket.send(
                message("tools/call", 1, name="wait", arguments={}, _meta=META if era == "2026" else {}), text=True
            )
            async with asyncio.timeout(10):
                await begun.wait()
        async with asyncio.timeout(10):
            await over.wait()
    assert ended == ["handler", "connection"]


async def test_finish_waits_for_the_handlers_of_a_closed_session() -> None:
    server: Server[Any] = Server("x")
    begun, ended = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    session: SessionLike = server.serve(Mute("test"))
    call = session.receive(message("tools/call", 1, name="wait", arguments={}, _meta=META))
    assert isinstance(call, Call)
    answering = asyncio.create_task(session.answer(call))
    await begun.wait()
    assert session.close("the connection is gone")
    assert not ended.is_set()
    await session.wait_closed()
    assert ended.is_set()
    assert await answering is None


async def test_a_server_that_stops_lets_calls_finish_and_closes() -> None:
    """`end_input` on the server's end: the reply is sent, then the WebSocket is closed."""
    server: Server[Any] = Server("x")
    begun, gate = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        begun.set()
        await gate.wait()
        return "done"

    channels = remember_channels(server)
    async with serving.over_websocket(server) as url, connect(url, subprotocols=[websockets.MCP]) as socket:
        await socket.send(message("tools/call", 1, name="wait", arguments={}, _meta=META), text=True)
        await begun.wait()
        channels[0].end_input("the server stops")
        gate.set()
        assert (await read(socket))["result"]["content"][0]["text"] == "done"
        async with asyncio.timeout(10):
            await socket.wait_closed()


# ---------------------------------------------------------------- who sent it


async def test_handlers_find_who_sent_it() -> None:
    server: Server[Any] = Server("x")
    found: list[Any] = []

    @server.request("acme/who")
    async def who(ctx: Context[Any], params: Any) -> None:
        found.append((ctx.principal, sorted(ctx.scopes), ctx.client_address))

    session = server.serve(Mute("test"))
    origins = [
        Origin(),
        Origin(principal="alice", scopes=frozenset({"read"}), transport=("192.0.2.7", 4711)),
        Origin(transport={"type": "http", "client": ["2001:db8::1", 80]}),
        Origin(transport="/run/socket"),
    ]
    for number, origin in enumerate(origins):
        call = session.receive(message("acme/who", number, _meta=META), origin)
        assert isinstance(call, Call)
        assert await session.answer(call) is not None
    assert found == [
        (None, [], None),
        ("alice", ["read"], ("192.0.2.7", 4711)),
        (None, [], ("2001:db8::1", 80)),
        (None, [], None),
    ]


async def test_a_web_page_cannot_connect_to_the_documented_transport() -> None:
    async with serving.over_websocket(Server("x")) as url:
        with pytest.raises(InvalidStatus):
            async with connect(url, origin=WebOrigin("https://evil.example"), subprotocols=[websockets.MCP]):
                pass


# ---------------------------------------------------------------- the end of the documented transport


@pytest.mark.parametrize("era", ERAS)
async def test_requests_fail_when_the_websocket_is_lost(era: Era) -> None:
    server: Server[Any] = Server("x")
    begun = asyncio.Event()

    @server.tool
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    channels = remember_channels(server)
    async with connected(server, era) as client:
        waiting = asyncio.create_task(client.call_tool("wait"))
        await begun.wait()
        await channels[-1].close()
        with pytest.raises(ConnectionLost):
            await waiting


async def test_a_peer_that_does_not_read_is_left() -> None:
    """Replies don't pile up: nothing is read while they wait, and after `limits.stream_wait` the connection ends."""
    over, calls = asyncio.Event(), 0

    @asynccontextmanager
    async def connection(ctx: Context[Any]) -> AsyncIterator[None]:
        yield
        over.set()

    server: Server[Any] = Server("x", connection_lifespan=connection, limits=Limits(stream_wait=0.2))

    @server.tool
    async def large() -> str:
        nonlocal calls
        calls += 1
        return "x" * 1_000_000

    async with (
        serving.over_websocket(server) as url,
        connect(url, subprotocols=[websockets.MCP], max_queue=1) as socket,
    ):
        await socket.send(message("initialize", 0, **HELLO), text=True)
        await read(socket)

        async def flood() -> None:
            for number in range(1, 1000):
                await socket.send(message("tools/call", number, name="large", arguments={}), text=True)
                await asyncio.sleep(0.001)  # so that they don't arrive at once

        flooding = asyncio.create_task(flood())
        async with asyncio.timeout(10):
            await over.wait()
        assert calls < 100
        flooding.cancel()
        await asyncio.wait([flooding])
        socket.transport.abort()
