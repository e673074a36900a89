"""How the HTTP client opens connections: TLS contexts, several addresses, TCP keep-alive, tunnels, clear errors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gemel import CallTimeout, DefinitionError, InvalidResponse, NotSent
from gemel.http1.client import network
from gemel.http1.client.network import TlsContext
from gemel.http1.client.pool import SocketWire
from gemel.http1.client.proxy import from_environment
from gemel.http1.client.wire import BODY_PROGRESS
from gemel.session import Session
from gemel.transports.http.client.transport import HttpTransport
from tests.jumping_clock import SteppedLoop
from tests.ports import free_port
from tests.programs import require
from tests.session_ends import asking
from tests.transports.certificates import make_certificate, server_tls
from tests.transports.loops import on_both_loops
from tests.transports.scripted_http import Answer, Asked, ScriptedServer, Talking, tunnel

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


async def answers(asked: Asked, answer: Answer) -> None:
    await answer.result(asked)


async def says_ok(asked: Asked, answer: Answer) -> None:
    await answer.raw(OK)


async def fetch(wire: SocketWire, url: str) -> bytes:
    response = await wire.open("POST", url, [], b"{}")
    content = b""
    while piece := await response.read():
        content += piece
    return content


# --- TLS contexts -----------------------------------------------------------------------------------------------------


async def test_the_tls_context_of_a_client_is_built_once_and_off_the_event_loop(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the number of connections: loading authorities takes long."""
    built: list[threading.Thread] = []
    create = ssl.create_default_context

    def counting(*args: Any, **options: Any) -> ssl.SSLContext:
        built.append(threading.current_thread())
        return create(*args, **options)

    monkeypatch.setattr(ssl, "create_default_context", counting)
    together = asyncio.Barrier(16)

    async def waits(asked: Asked, answer: Answer) -> None:
        async with together:
            await answer.result(asked)

    async with (
        ScriptedServer(waits, server_tls(certificate)) as server,
        Talking(server.url, tls=str(certificate)) as client,
    ):
        async with asyncio.TaskGroup() as group:
            for _ in range(16):
                group.create_task(client.call())
        assert server.connections == 16
        channel = await client._transport.open(client._serve)
        await channel.close()
    assert len(built) == 1
    assert built[0] is not threading.current_thread()


async def test_a_context_that_cannot_be_built_is_tried_again(certificate: Path, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    context = TlsContext(str(path))
    for _ in range(2):
        with pytest.raises(DefinitionError, match=r"ca\.pem"):
            await context.get()
    path.write_bytes(certificate.read_bytes())  # noqa: ASYNC240 # it is small
    assert (await context.get()).verify_mode == ssl.CERT_REQUIRED


async def test_a_file_of_authorities_adds_to_those_of_the_system(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A company's CA for the internal servers, and the public ones as before."""
    public = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(public))
    async with (
        ScriptedServer(answers, server_tls(certificate)) as internal,
        ScriptedServer(answers, server_tls(public)) as outside,
    ):
        for server in (internal, outside):
            async with Talking(server.url, tls=str(certificate)) as client:
                assert await client.call() == {}


# --- addresses --------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def dead_address() -> AsyncIterator[tuple[str, int]]:
    """An address at which nothing answers, not even with a refusal: its backlog is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.2", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(listener.getsockname())
        yield listener.getsockname()


def listed(*places: tuple[str, int]) -> Any:
    """A resolver that knows these addresses of every name."""

    async def resolve(host: str, port: int) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]

    return resolve


@on_both_loops
async def test_an_address_that_does_not_answer_delays_and_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 8305: 250 ms, however long the connect timeout."""
    with monkeypatch.context() as patch:
        async with dead_address() as dead, ScriptedServer(says_ok) as server:
            patch.setattr(network, "resolve", listed(dead, ("127.0.0.1", server.port)))
            wire = SocketWire(proxy="", connect=20)
            started = asyncio.get_running_loop().time()
            assert await fetch(wire, f"http://example.test:{server.port}/") == b"ok"
            assert asyncio.get_running_loop().time() - started >= network.NEXT_ADDRESS_SECONDS * 0.9
            assert len(wire._connections) == 1
            await wire.close()


@on_both_loops
async def test_an_address_that_refuses_costs_no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        patch.setattr(network, "NEXT_ADDRESS_SECONDS", 60.0)
        async with ScriptedServer(says_ok) as server:
            patch.setattr(network, "resolve", listed(unused.getsockname(), ("127.0.0.1", server.port)))
            wire = SocketWire(proxy="", connect=5)
            assert await fetch(wire, "http://example.test/") == b"ok"
            await wire.close()


@on_both_loops
async def test_a_proxy_is_tried_at_each_of_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        async with dead_address() as dead, ScriptedServer(says_ok) as proxy:
            patch.setattr(network, "resolve", listed(dead, ("127.0.0.1", proxy.port)))
            wire = SocketWire(proxy="http://proxy.test:3128", connect=20)
            assert await fetch(wire, "http://example.test/") == b"ok"
            assert proxy.asked[0].path == "http://example.test/"
            await wire.close()


async def test_cancelling_while_several_addresses_are_tried_leaves_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "NEXT_ADDRESS_SECONDS", 0.0)
    opened: list[socket.socket] = []
    connect = network._connect

    async def tracking(address: Any) -> socket.socket:
        sock = await connect(address)
        opened.append(sock)
        return sock

    monkeypatch.setattr(network, "_connect", tracking)
    async with dead_address() as dead:
        monkeypatch.setattr(network, "resolve", listed(dead, dead, dead))
        connecting = asyncio.create_task(network.open_socket("example.test", 1))
        await asyncio.sleep(0.05)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await asyncio.sleep(0)
    assert all(sock.fileno() == -1 for sock in opened)


def test_families_alternate() -> None:
    """RFC 8305, section 4: the family that the resolver prefers comes first."""
    six, four = socket.AF_INET6, socket.AF_INET
    addresses = [(six, 1), (six, 2), (six, 3), (four, 1)]
    assert network._alternate(addresses) == [(six, 1), (four, 1), (six, 2), (six, 3)]


@on_both_loops
async def test_tcp_asks_whether_a_silent_server_is_still_there(certificate: Path) -> None:
    """Also through a tunnel, where only the proxy may have noticed that the connection is gone."""
    async with ScriptedServer(says_ok, server_tls(certificate)) as server, ScriptedServer(tunnel) as proxy:
        for address in ("", f"http://127.0.0.1:{proxy.port}"):
            wire = SocketWire(tls=str(certificate), proxy=address)
            assert await fetch(wire, server.url) == b"ok"
            (connection,) = wire._connections
            assert connection._transport is not None
            sock = connection._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
            await wire.close()
            await asyncio.sleep(0.05)
        assert len(proxy.asked) == 1


# --- idle connections -------------------------------------------------------------------------------------------------


@on_both_loops
async def test_a_connection_is_used_for_less_time_than_the_server_keeps_it() -> None:
    """RFC 9112, section 9.3.1: a request that meets the server's close may be lost, and can't be sent again."""

    async def keeps(asked: Asked, answer: Answer) -> None:
        seconds = asked.path.removeprefix("/")
        await answer.raw(OK.replace(b"\r\n\r\n", f"\r\nkeep-alive: timeout={seconds}\r\n\r\n".encode()))
        if seconds == "1":
            asyncio.get_running_loop().call_later(1, answer.close)

    async with ScriptedServer(keeps) as server:
        wire = SocketWire()
        url = f"http://127.0.0.1:{server.port}"
        for path, connections in (("/1", 1), ("/1", 2), ("/60", 3), ("/60", 3)):
            assert await fetch(wire, url + path) == b"ok"
            assert server.connections == connections
        assert len(server.asked) == 4
        await wire.close()


# --- errors -----------------------------------------------------------------------------------------------------------


def discard_input(descriptor: int) -> None:
    """Read until the client closes; what is unread at a close would make it a reset, which may overtake the alert."""
    with socket.socket(fileno=os.dup(descriptor)) as near, contextlib.suppress(OSError):
        near.shutdown(socket.SHUT_WR)
        while near.recv(4096):
            pass


@contextlib.contextmanager
def blocking_server(context: ssl.SSLContext) -> Iterator[int]:
    """A TLS server in a thread, which sends the alert of a failed handshake; asyncio's drops it."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                with context.wrap_socket(near, server_side=True, do_handshake_on_connect=False) as secured:
                    try:
                        secured.do_handshake()
                        while b"{}" not in secured.recv(4096):
                            pass
                        secured.sendall(OK)
                    except OSError:
                        discard_input(secured.fileno())

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@on_both_loops
async def test_a_server_that_wants_a_client_certificate_says_so(certificate: Path, version: ssl.TLSVersion) -> None:
    """mTLS: with TLS 1.3 the refusal comes only after the first request, which nobody has read."""
    context = server_tls(certificate)
    context.minimum_version = context.maximum_version = version
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificate)
    with blocking_server(context) as port:
        wire = SocketWire(tls=str(certificate))
        with pytest.raises(NotSent, match="load_cert_chain"):
            await fetch(wire, f"https://127.0.0.1:{port}/")
        await wire.close()
        identified = ssl.create_default_context(cafile=str(certificate))
        identified.load_cert_chain(certificate)
        wire = SocketWire(tls=identified)
        assert await fetch(wire, f"https://127.0.0.1:{port}/") == b"ok"
        await wire.close()
        await asyncio.sleep(0.05)


SETTINGS = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64"


@pytest.mark.parametrize("waits", [True, False])
async def test_a_server_that_speaks_http2_only_is_named(waits: bool) -> None:
    async def http2(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if waits:
            await reader.readuntil(b"\r\n\r\n")
        writer.write(SETTINGS)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(http2, "127.0.0.1", 0) as server:
        wire = SocketWire()
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        with pytest.raises((InvalidResponse, NotSent), match=r"HTTP/2 only.*wire="):
            await fetch(wire, url)
        await wire.close()


async def test_a_server_that_offers_no_http1_in_tls_is_named(certificate: Path) -> None:
    """ALPN (RFC 7301) ends the handshake."""
    port = free_port()
    command = (
        f"{require('openssl')} s_server -quiet -accept 127.0.0.1:{port} -cert {certificate} -key {certificate} -alpn h2"
    )
    process = await asyncio.create_subprocess_exec(*command.split(), stdin=asyncio.subprocess.PIPE)
    wire = SocketWire(tls=str(certificate))
    try:
        async with asyncio.timeout(10):
            error = NotSent("Is the server running")
            while "Is the server running" in str(error):
                with pytest.raises(NotSent) as caught:
                    await fetch(wire, f"https://127.0.0.1:{port}/")
                error = caught.value
        assert "HTTP/2 only" in str(error)
    finally:
        await wire.close()
        process.terminate()
        await process.wait()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_is_not_there_is_named(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(host: str, port: int) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(network, "resolve", unknown)
    wire = SocketWire(proxy="http://proxy.test:3128")
    with pytest.raises(NotSent, match=r"No proxy for far\.example: The host 'proxy\.test' was not found"):
        await fetch(wire, f"{scheme}://far.example/")
    await wire.close()


async def test_a_socks_proxy_of_the_environment_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5h://user:secret@127.0.0.1:1080")
    async with Talking("http://far.example/mcp") as client:
        with pytest.raises(DefinitionError, match=r"ALL_PROXY .* SOCKS .*wire=") as caught:
            await client.call()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("no_proxy", "host", "exempt"),
    [
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.1.2.3/8", "10.9.9.9", True),
        ("fd00::/8", "fd12::1", True),
        ("fd00::/8", "fe80::1", False),
        ("10.0.0.0/8:81", "10.1.2.3", False),
        ("10.0.0.0/8:80", "10.1.2.3", True),
        ("[fd12::1]:80", "fd12::1", True),
        ("fd12::1", "fd12::1", True),
        ("10.0.0.0/8", "10.example", False),
        ("10.0.0.0/99, nonsense/8", "10.0.0.1", False),
    ],
)
def test_no_proxy_takes_networks(no_proxy: str, host: str, exempt: bool) -> None:
    route = from_environment({"http_proxy": "http://p:1", "no_proxy": no_proxy}, "http", host, 80)
    assert (route is None) is exempt


# --- long requests ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("secured", "stops"), [(False, False), (True, False), (True, True)])
def test_a_long_request_lasts_while_the_server_takes_it_and_no_longer(
    certificate: Path, secured: bool, stops: bool
) -> None:
    """Its idle time begins anew with what the server has taken, so a slow line is not taken for a silent server."""
    size, idle = 24 * 1024 * 1024, 1.5
    loop = SteppedLoop()
    taken = 0
    finished = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        try:
            while taken < size and not (stops and taken > size // 8):
                taken += len(await reader.read(256 * 1024))
                loop.skip(0.03)
            while stops and not finished.is_set():
                loop.skip(0.03)
                await asyncio.sleep(0)
            if not stops:
                writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
                await reader.read()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def send() -> None:
        sessions: dict[str, Session] = {}
        context = server_tls(certificate) if secured else None
        async with await asyncio.start_server(slow, "127.0.0.1", 0, ssl=context, limit=65536) as server:
            url = f"{'https' if secured else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            transport = HttpTransport(url, tls=str(certificate) if secured else True)
            channel = await transport.open(lambda channel: sessions.setdefault("client", asking(channel)))
            started = loop.time()
            try:
                # The server accepts the request and gives no answer.
                with pytest.raises(CallTimeout if stops else InvalidResponse):
                    await sessions["client"].request(
                        "tools/call", {"name": "store", "arguments": {"text": "x" * size}}, idle=idle
                    )
                elapsed = loop.time() - started
                assert taken < size if stops else taken >= size and elapsed > idle
            finally:
                finished.set()
                await channel.close()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(send())


@on_both_loops
async def test_the_wire_tells_of_each_part_of_a_long_body_that_the_server_has_taken() -> None:
    size, steps = 24 * 1024 * 1024, 0

    def progress() -> None:
        nonlocal steps
        steps += 1

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken = 0
        while taken < size:
            taken += len(await reader.read(256 * 1024))
        writer.write(OK)
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0, limit=65536) as server:
        wire = SocketWire()
        BODY_PROGRESS.set(progress)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        response = await wire.open("POST", url, [], b"x" * size)
        assert await response.read() == b"ok"
        await wire.close()
    assert steps > 2
