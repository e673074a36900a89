"""What a user does with Hinge, in one process and without sockets: each path gives a function that does it once.

They are measured by `benchmarks.profile` and counted by `benchmarks.ceilings`.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache, partial
from typing import Any, Literal

from benchmarks.wire import INITIALIZE, INITIALIZED, REVISION, SESSION_REVISION, call, check, http_post, http_request
from hinge import Client, Server

#: Does it once and looks at the answer.
One = Callable[[], Awaitable[None]]
#: Tools of a large server, and the size of a large result.
TOOLS, SIZE = 1000, 1_000_000

_HEADERS = [
    (b"host", b"127.0.0.1:8000"),
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
    (b"mcp-protocol-version", REVISION.encode()),
    (b"mcp-method", b"tools/call"),
    (b"mcp-name", b"add"),
]


def adding_server() -> Server[Any]:
    """The server that is called."""
    server: Server[Any] = Server("bench", version="1")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server


def sync_server() -> Server[Any]:
    """The same with a plain function, which runs in a thread."""
    server: Server[Any] = Server("bench", version="1")

    @server.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server


def large_server() -> Server[Any]:
    """A server with many tools."""
    server: Server[Any] = Server("bench", version="1")
    for number in range(TOOLS):

        @server.tool(f"forecast_{number}")
        async def forecast(city: str, days: int = 3, units: Literal["metric", "imperial"] = "metric") -> list[float]:
            """The weather of the coming days.

            Args:
                city: Where.
                days: How many days.
                units: The units of the result.
            """
            return [20.0] * days

    return server


#: The same, made once: making it costs more than listing its tools.
listed_server = cache(large_server)


# ---------------------------------------------------------------- HTTP


class _Transport(asyncio.Transport):
    """Takes what our HTTP server writes."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 8000), "peername": ("127.0.0.1", 50000)})
        self.written: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.set_result(bytes(data))

    def is_closing(self) -> bool:
        return False


@asynccontextmanager
async def over_http(make: Callable[[], Server[Any]] = adding_server, *, session: bool = False) -> AsyncIterator[One]:
    """Our own HTTP server, from the bytes of a request to the bytes of its response."""
    from hinge.http1.server.connection import HttpConnection
    from hinge.http1.server.listener import Listener

    app = make().http_app()
    await app.start()
    listener, transport = Listener(app.serve, 1 << 17), _Transport()
    await listener.open([], None)
    connection = HttpConnection(listener)
    connection.connection_made(transport)
    loop = asyncio.get_running_loop()

    async def post(request: bytes) -> tuple[bytes, bytes]:
        transport.written = loop.create_future()
        connection.data_received(request)
        head, _, body = (await transport.written).partition(b"\r\n\r\n")
        return head, body

    request = http_request(3, 8000)
    if session:
        head, _ = await post(http_post(8000, SESSION_REVISION, INITIALIZE))
        opened = next(line[16:] for line in head.decode().split("\r\n") if line.lower().startswith("mcp-session-id: "))
        await post(http_post(8000, SESSION_REVISION, INITIALIZED, f"Mcp-Session-Id: {opened}"))
        request = http_request(3, 8000, session=opened)

    async def one() -> None:
        _, body = await post(request)
        check(body, 3)

    yield one
    connection.connection_lost(None)
    listener.close()
    await app.stop()


def _scope(body: bytes) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/mcp",
        "raw_path": b"/mcp",
        "query_string": b"",
        "root_path": "",
        "headers": [*_HEADERS, (b"content-length", b"%d" % len(body))],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
        "state": {},
    }


@asynccontextmanager
async def over_asgi() -> AsyncIterator[One]:
    """The ASGI app, called as uvicorn calls it."""
    app, body = adding_server().http_app(), call(3)
    received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    told: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
    life = asyncio.create_task(
        app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, received.get, told.put)
    )
    received.put_nowait({"type": "lifespan.startup"})
    await told.get()

    async def one() -> None:
        parts = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return parts.pop() if parts else await asyncio.get_running_loop().create_future()

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        await app(_scope(body), receive, send)
        check(sent[1]["body"], 3)

    yield one
    received.put_nowait({"type": "lifespan.shutdown"})
    await life


# ---------------------------------------------------------------- stdio


@asynccontextmanager
async def over_stdio() -> AsyncIterator[One]:
    """A server on standard input and output, which are pipes. Meanwhile `print` writes to standard error."""
    (stdin, to_server), (from_server, stdout) = os.pipe(), os.pipe()
    saved = os.dup(0), os.dup(1)
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    serving = asyncio.create_task(adding_server().run_async())
    loop, request = asyncio.get_running_loop(), call(3) + b"\n"
    answer: asyncio.Future[bytes] = loop.create_future()
    loop.add_reader(from_server, lambda: answer.set_result(os.read(from_server, 1 << 16)))

    async def one() -> None:
        nonlocal answer
        answer = loop.create_future()
        os.write(to_server, request)
        check(await answer, 3)

    yield one
    loop.remove_reader(from_server)
    os.close(to_server)
    await serving
    for number, descriptor in enumerate(saved):
        os.dup2(descriptor, number)
    for descriptor in (*saved, stdin, stdout, from_server):
        os.close(descriptor)


# ---------------------------------------------------------------- client and server together


@asynccontextmanager
async def in_memory() -> AsyncIterator[One]:
    """A call of a client in the same process."""
    async with Client(adding_server()) as client:
        await client.list_tools()  # its results are held against the schema from now on

        async def one() -> None:
            result = await client.call_tool("add", {"a": 3, "b": 7})
            assert result.data == 10, result

        yield one


@asynccontextmanager
async def large_text() -> AsyncIterator[One]:
    """A call of a client in the same process whose result is a text of a megabyte."""
    server: Server[Any] = Server("bench")
    text = "0123456789" * (SIZE // 10)

    @server.tool
    async def read() -> str:
        """Read the text."""
        return text

    async with Client(server) as client:

        async def one() -> None:
            result = await client.call_tool("read")
            assert len(result.text) == SIZE

        yield one


@asynccontextmanager
async def listing() -> AsyncIterator[One]:
    """A client in the same process lists many tools."""
    async with Client(listed_server()) as client:

        async def one() -> None:
            assert len(await client.list_tools(cache="bypass")) == TOOLS

        yield one


@asynccontextmanager
async def registering() -> AsyncIterator[One]:
    """A server with many tools is made."""

    async def one() -> None:
        large_server()

    yield one


PATHS: dict[str, Callable[[], AbstractAsyncContextManager[One]]] = {
    "http": over_http,
    "session": partial(over_http, session=True),
    "asgi": over_asgi,
    "stdio": over_stdio,
    "memory": in_memory,
    "sync": partial(over_http, sync_server),
    "text": large_text,
    "list": listing,
    "register": registering,
}
