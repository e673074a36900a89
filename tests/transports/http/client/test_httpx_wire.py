"""The HTTP client over httpx2 (`wire="httpx2"`), as over our own connections, and what only it can do."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from gemel import (
    Client,
    ConnectionLost,
    DefinitionError,
    GemelError,
    InvalidResponse,
    Limits,
    NotSent,
    Server,
    content_to_text,
)
from gemel.transports.http.client.transport import HttpTransport
from tests.ports import free_port
from tests.transports.certificates import server_tls
from tests.transports.scripted_http import (
    Answer,
    Asked,
    ScriptedServer,
    Talking,
    legacy,
    notification,
    result_of,
    until,
)

for package in ("httpx2", "brotli", "hypercorn"):
    pytest.importorskip(package)


async def answers(asked: Asked, answer: Answer) -> None:
    await answer.result(asked)


def talking(server: ScriptedServer, **options: Any) -> Talking:
    return Talking(server.url, wire="httpx2", **options)


# --- as over our own connections --------------------------------------------------------------------------------------


async def test_calls_one_after_the_other_share_a_connection_and_those_at_once_do_not() -> None:
    together = asyncio.Barrier(3)

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.message["method"] == "together":
            await together.wait()
        await answer.result(asked)

    async with ScriptedServer(script) as server, talking(server) as client:
        for _ in range(3):
            assert await client.call() == {}
        assert server.connections == 1
        await asyncio.gather(*(client.call("together") for _ in range(3)))
        assert server.connections == 3


def test_a_client_that_is_closed_after_half_an_answer_leaves_no_error_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The event loop logs asynchronous generators that are left open."""

    async def script(asked: Asked, answer: Answer) -> None:
        await answer.body(b" " * 3_000_000)

    async def main() -> None:
        async with ScriptedServer(script) as server:
            client = Client(server.url, wire="httpx2", era="2026", limits=Limits(reply=100_000))
            with pytest.raises(GemelError):
                await client.connect()
            await client.close()

    asyncio.run(main())
    assert not [record for record in caplog.records if record.name == "asyncio"]


async def test_a_session_of_the_handshake_era_works() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        if asked.method == "GET":
            await answer.stream()
            await answer.event(notification("notifications/tools/list_changed"))
            await answer.gone()
        elif asked.method == "POST" and asked.message.get("method") == "tools/call":
            await answer.stream()
            await answer.event(notification("notifications/message"), id="e-1")
            await answer.event(result_of(asked, {"streamed": True}))
            await answer.end()
        else:
            await legacy(asked, answer)

    async with ScriptedServer(script) as server:
        async with talking(server) as client:
            await client.handshake()
            assert await client.call() == {"streamed": True}
            await until(lambda: "notifications/tools/list_changed" in client.talk.methods())
            assert server.asked[-1].headers["mcp-session-id"] == "s-1"
        assert len(server.by("DELETE")) == 1


async def test_a_cancelled_call_closes_its_connection_at_once() -> None:
    """The server must see it: in the stateless era nothing else cancels a call."""
    seen = asyncio.Event()

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.message["method"] == "streamed":
            await answer.stream()
        await answer.gone()
        seen.set()

    async with ScriptedServer(script) as server, talking(server) as client:
        for method in ("streamed", "silent"):
            seen.clear()
            calling = asyncio.create_task(client.call(method))
            await until(lambda method=method: bool(server.messages(method)))  # type: ignore[misc] # bound at once
            await asyncio.sleep(0.02)
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
            async with asyncio.timeout(5):
                await seen.wait()


async def test_what_broke_off_may_have_run_and_what_was_refused_has_not() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        match asked.message["method"]:
            case "reset":
                answer.reset()
            case "halfway":
                await answer.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{")
                answer.close()
            case "nonsense":
                await answer.raw(b"nonsense\r\n\r\n")
                answer.close()

    async with ScriptedServer(script) as server, talking(server) as client:
        for method in ("reset", "halfway"):
            with pytest.raises(ConnectionLost):
                await client.call(method)
        with pytest.raises(InvalidResponse):
            await client.call("nonsense")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with Talking(f"http://127.0.0.1:{unused.getsockname()[1]}/", wire="httpx2") as client:
            with pytest.raises(NotSent, match="Is the server running"):
                await client.call()


async def test_closing_the_channel_ends_what_waits() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        if asked.message["method"] == "streamed":
            await answer.stream()
        await answer.gone()

    async with ScriptedServer(script) as server:
        async with talking(server) as client:
            calls = [asyncio.create_task(client.call(method)) for method in ("streamed", "silent")]
            await until(lambda: len(server.asked) == 2)
            await asyncio.sleep(0.02)
        for call in calls:
            with pytest.raises(ConnectionLost):
                await call
        await until(lambda: server.open == 0)


async def test_a_connection_is_closed_after_it_was_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemel.transports.http.client.httpx_wire.IDLE_SECONDS", 0.05)
    async with ScriptedServer(answers) as server, talking(server) as client:
        assert await client.call() == {}
        await until(lambda: server.open == 0)
        assert await client.call() == {}
        assert server.connections == 2


async def test_a_certificate_is_verified_and_a_file_of_authorities_is_added(certificate: Path) -> None:
    async with ScriptedServer(answers, server_tls(certificate)) as server:
        async with talking(server, tls=str(certificate)) as client:
            assert await client.call() == {}
        async with talking(server) as client:
            with pytest.raises(NotSent, match="certificate"):
                await client.call()


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemel.transports.http.client.channel.find_spec", lambda name: None)
    with pytest.raises(DefinitionError, match=r"gemel\[httpx2\]"):
        HttpTransport("http://127.0.0.1/", wire="httpx2")


# --- what only it can do ----------------------------------------------------------------------------------------------


def slow_server() -> tuple[Server[Any], asyncio.Event, asyncio.Event]:
    server: Server[Any] = Server("slow")
    started, cancelled = asyncio.Event(), asyncio.Event()

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def wait() -> str:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "done"

    return server, started, cancelled


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # hypercorn's
async def test_a_server_that_speaks_http2_only_is_called_and_learns_of_a_cancelled_call(
    certificate: Path, era: Any
) -> None:
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    server, started, cancelled = slow_server()
    port = free_port()
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.certfile = config.keyfile = str(certificate)
    config.alpn_protocols = ["h2"]
    config.graceful_timeout = 0.5
    versions: list[str] = []
    app = server.http_app()

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            versions.append(scope["http_version"])
        await app(scope, receive, send)

    stop = asyncio.Event()
    serving = asyncio.create_task(serve(noting, config, shutdown_trigger=stop.wait))
    try:
        await until(lambda: is_open(port))
        context = ssl.create_default_context(cafile=str(certificate))
        async with Client(f"https://127.0.0.1:{port}/mcp", wire="httpx2", tls=context, era=era) as client:
            assert content_to_text(await client.call_tool("add", {"a": 1, "b": 2})) == "3"
            calling = asyncio.create_task(client.call_tool("wait"))
            await started.wait()
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
            async with asyncio.timeout(5):
                await cancelled.wait()
            assert content_to_text(await client.call_tool("add", {"a": 2, "b": 2})) == "4"
        assert set(versions) == {"2"}
    finally:
        stop.set()
        await serving


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_brotli_and_cookies() -> None:
    """All connections of a client have its cookies."""
    import brotli

    together = asyncio.Barrier(2)

    async def script(asked: Asked, answer: Answer) -> None:
        if "br" not in asked.headers["accept-encoding"]:
            raise AssertionError("brotli was not offered")
        if asked.message["method"] == "together":
            await together.wait()
        data = brotli.compress(b'{"jsonrpc":"2.0","id":%d,"result":{"text":"%b"}}' % (asked.message["id"], b"x" * 999))
        await answer.body(data, headers={"content-encoding": "br", "set-cookie": "route=b; Path=/"})

    async with ScriptedServer(script) as server, talking(server) as client:
        for _ in range(2):
            assert await client.call() == {"text": "x" * 999}
        await asyncio.gather(client.call("together"), client.call("together"))
        assert [asked.headers.get("cookie") for asked in server.asked] == [None, *["route=b"] * 3]
        assert server.connections == 2


async def test_a_socks_proxy_is_used() -> None:
    names: list[str] = []

    async def socks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """RFC 1928, without authentication."""
        _, count = await reader.readexactly(2)
        await reader.readexactly(count)
        writer.write(b"\x05\x00")
        _, _, _, kind = await reader.readexactly(4)
        assert kind == 3, "the name is resolved by the proxy"
        names.append((await reader.readexactly((await reader.readexactly(1))[0])).decode())
        await reader.readexactly(2)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00")

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                target.write(data)
            target.close()

        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))

    async with ScriptedServer(answers) as server, await asyncio.start_server(socks, "127.0.0.1", 0) as proxy:
        address = f"socks5h://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        async with Talking("http://far.example/mcp", wire="httpx2", proxy=address) as client:
            assert await client.call() == {}
            assert await client.call() == {}
        assert names == ["far.example"]
        assert server.asked[0].headers["host"] == "far.example"
