r"""Unix sockets and named pipes (`\\.\pipe\NAME`) for local servers, over HTTP and with a message per line.

The pipes of asyncio's proactor event loop are simulated with Unix sockets, as its `start_serving_pipe` and
`create_pipe_connection` behave: one server for a name, no half-closed state, no addresses, no `socket`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from gemel import Client, ConnectFailed, DefinitionError, Server, StartError
from gemel.cli import main
from gemel.client.targets import network_attributes
from gemel.local_sockets import is_pipe
from gemel.transports.http.client.transport import HttpTransport
from gemel.transports.http.server.run import bind, serve_http
from gemel.transports.stream.sockets import UnixSocket, serve_socket
from tests.serving import serving_app
from tests.transports.loops import until

PIPE = r"\\.\pipe\weather"


class PipeTransport(asyncio.Transport):
    """What asyncio's duplex pipe transport has, and no more."""

    def __init__(self, inner: asyncio.Transport, address: str) -> None:
        super().__init__({"pipe": object(), "addr": address})
        self._inner = inner
        for name in (
            *("close", "abort", "is_closing", "write", "writelines", "pause_reading", "resume_reading", "is_reading"),
            *("get_write_buffer_size", "get_write_buffer_limits", "set_write_buffer_limits"),
        ):
            setattr(self, name, getattr(inner, name))

    def can_write_eof(self) -> bool:
        return False

    def write_eof(self) -> None:
        raise NotImplementedError


class PipeProtocol(asyncio.Protocol):
    """Gives the real protocol a pipe's transport."""

    def __init__(self, protocol: Any, address: str) -> None:
        self.real, self._address = protocol, address

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.real.connection_made(PipeTransport(cast(asyncio.Transport, transport), self._address))

    def data_received(self, data: bytes) -> None:
        self.real.data_received(data)

    def eof_received(self) -> bool | None:
        return cast("bool | None", self.real.eof_received())

    def connection_lost(self, exc: Exception | None) -> None:
        self.real.connection_lost(exc)

    def pause_writing(self) -> None:
        self.real.pause_writing()

    def resume_writing(self) -> None:
        self.real.resume_writing()


class PipeServer:
    """As asyncio's: `close` frees the name, connections go on."""

    def __init__(self, server: asyncio.Server, names: set[str], name: str) -> None:
        self._server, self._names, self._name = server, names, name

    def close(self) -> None:
        self._server.close()
        self._names.discard(self._name)


@pytest.fixture
async def pipes(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[set[str]]:
    """The event loop has named pipes; the names that servers hold."""
    loop = asyncio.get_running_loop()
    names: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:  # short enough for the path of a socket

        def place(address: str) -> tuple[str, str]:
            name = address.replace("/", "\\").lower().rpartition("\\")[2]
            return name, f"{folder}/{name}"

        async def start_serving_pipe(make: Callable[[], Any], address: str) -> list[PipeServer]:
            name, path = place(address)
            if name in names:
                raise PermissionError(13, "Access is denied")
            names.add(name)
            Path(path).unlink(missing_ok=True)  # noqa: ASYNC240 - a test may
            server = await loop.create_unix_server(lambda: PipeProtocol(make(), address), path)
            return [PipeServer(server, names, name)]

        async def create_pipe_connection(make: Callable[[], Any], address: str) -> tuple[Any, Any]:
            name, path = place(address)
            if name not in names:
                raise FileNotFoundError(2, "The system cannot find the file specified")
            transport, protocol = await loop.create_unix_connection(lambda: PipeProtocol(make(), address), path)
            return transport, protocol.real

        monkeypatch.setattr(loop, "start_serving_pipe", start_serving_pipe, raising=False)
        monkeypatch.setattr(loop, "create_pipe_connection", create_pipe_connection, raising=False)
        yield names


def make_server() -> Server:
    server = Server("local")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    return server


def http(uds: str, server: Server | None = None, **options: Any) -> contextlib.AbstractAsyncContextManager[str]:
    """Serve HTTP on a path; the address that is announced."""
    return serving_app((server or make_server()).http_app(), uds=uds, **options)


@contextlib.asynccontextmanager
async def lines(path: str, server: Server | None = None) -> AsyncIterator[None]:
    """Serve a message per line on a path."""
    server = server or make_server()
    ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    async with server.running():
        task = asyncio.create_task(serve_socket(server.serve, path=path, ready=ready.set_result))
        await until(lambda: task.done() or ready.done())
        try:
            if not ready.done():
                await task
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        (PIPE, True),
        ("//./PIPE/weather", True),
        (r"\\server\pipe\weather", False),
        ("/run/weather.sock", False),
        ("", False),
    ],
)
def test_the_name_of_a_pipe_is_recognized(path: str, is_one: bool) -> None:
    assert is_pipe(path) is is_one


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_http_on_a_named_pipe(pipes: set[str], era: Any) -> None:
    async with http(PIPE) as address:
        assert address == rf"{PIPE}/mcp"
        async with Client("http://localhost/mcp", uds=PIPE, era=era) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
            with pytest.raises(StartError, match="another server listens"):
                async with http(PIPE):
                    pass
            assert (await client.call_tool("add", {"a": 2, "b": 2})).text == "4"
    assert pipes == set()


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_named_pipe_with_a_message_per_line(pipes: set[str], era: Any) -> None:
    async with lines(PIPE), Client(PIPE, era=era) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
        with pytest.raises(StartError, match="another server listens"):
            async with lines(PIPE):
                pass
        assert (await client.call_tool("add", {"a": 2, "b": 2})).text == "4"
    assert pipes == set()
    async with lines(PIPE), Client(f"unix:{PIPE}", era=era) as client:
        assert (await client.call_tool("add", {"a": 3, "b": 2})).text == "5"


async def test_a_client_that_closes_its_pipe_cancels_its_calls(pipes: set[str]) -> None:
    """A pipe has no half-closed state: after its end nobody reads the answer."""
    server, started, ended = make_server(), asyncio.Event(), asyncio.Event()

    @server.tool
    async def long() -> None:
        started.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    messages: list[dict[str, Any]] = [
        {
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            },
        },
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "long", "arguments": {}}},
    ]
    async with lines(PIPE, server):
        loop: Any = asyncio.get_running_loop()
        transport, _ = await loop.create_pipe_connection(asyncio.Protocol, PIPE)
        transport.write(b"".join(json.dumps({"jsonrpc": "2.0", **one}).encode() + b"\n" for one in messages))
        await started.wait()
        transport.close()
        await asyncio.wait_for(ended.wait(), 10)


async def test_where_nobody_listens_the_error_names_the_pipe(pipes: set[str]) -> None:
    for client in (Client(PIPE, reconnect=False), Client("http://localhost/mcp", uds=PIPE, reconnect=False)):
        with pytest.raises(ConnectFailed) as caught:
            await client.connect()
        assert PIPE in str(caught.value)
        assert "cannot find the file" in str(caught.value)


async def test_what_a_pipe_does_not_carry_is_refused(pipes: set[str]) -> None:
    app = make_server().http_app()
    with pytest.raises(StartError, match="no TLS"):
        await serve_http(app, uds=PIPE, tls=ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
    with pytest.raises(StartError, match="uvicorn"):
        await serve_http(app, uds=PIPE, engine="uvicorn")
    with pytest.raises(StartError, match="workers"):
        bind("127.0.0.1", 0, PIPE)
    with pytest.raises(ConnectFailed, match="no TLS"):
        await Client("https://localhost/mcp", uds=PIPE, reconnect=False).connect()


async def test_elsewhere_a_pipe_is_refused() -> None:
    for serving in (http(PIPE), lines(PIPE)):
        with pytest.raises(StartError, match="Windows only"):
            async with serving:
                pass
    with pytest.raises(ConnectFailed, match="Windows only"):
        await Client(PIPE, reconnect=False).connect()


async def test_without_unix_sockets_a_path_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(socket, "AF_UNIX")
    path = str(tmp_path / "s")
    for serving in (http(path), lines(path)):
        with pytest.raises(StartError, match="name of a pipe"):
            async with serving:
                pass
    with pytest.raises(ConnectFailed, match="name of a pipe"):
        await Client(f"unix:{path}", reconnect=False).connect()


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_http_on_a_unix_socket_whatever_the_environment_says_about_proxies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, era: Any
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    path = tmp_path / "s"
    async with http(str(path)), Client("http://localhost/mcp", uds=path, era=era) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
    with pytest.raises(ConnectFailed, match=rf"{path}.*Is a server listening there"):
        await Client("http://localhost/mcp", uds=path, reconnect=False).connect()


def test_a_path_needs_the_built_in_http_client() -> None:
    with pytest.raises(DefinitionError, match="leave out `wire`"):
        HttpTransport("http://localhost/mcp", uds="s", wire="httpx2")


def test_telemetry_tells_pipes_from_unix_sockets() -> None:
    assert network_attributes(UnixSocket(PIPE))["network.transport"] == "pipe"
    assert network_attributes(UnixSocket("/s"))["network.transport"] == "unix"


def test_what_knows_an_address_loads_no_event_loop() -> None:
    """`gemel --help` and completion would take a third longer."""
    code = "import sys, gemel.cli.arguments; sys.exit('asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_on_the_command_line_a_pipe_is_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", PIPE]) != 0
    assert "Windows only" in capsys.readouterr().err
