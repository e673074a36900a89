"""Where the time of one call goes in Hinge: `python -m benchmarks.profile http|asgi|memory [--lines 40]`.

Drives the path in one process without sockets, so that only our own code is seen: CPU time per call, Python functions
entered per call, objects left to the garbage collector per call, and the functions that cost most.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import pstats
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from benchmarks.installing import ROOT
from benchmarks.wire import REVISION, call, check, http_request

#: Makes one call and looks at its answer.
One = Callable[[], Awaitable[None]]

_HEADERS = [
    (b"host", b"127.0.0.1:8000"),
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
    (b"mcp-protocol-version", REVISION.encode()),
    (b"mcp-method", b"tools/call"),
    (b"mcp-name", b"add"),
]


def _server() -> Any:
    from benchmarks.programs.hinge_server import server

    return server


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


class _Transport(asyncio.Transport):
    """Takes what our HTTP server writes."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 8000), "peername": ("127.0.0.1", 50000)})
        self.written: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.set_result(bytes(data))

    def is_closing(self) -> bool:
        return False


async def over_http(run: Callable[[One], Awaitable[None]]) -> None:
    """Our own HTTP server, from the bytes of a request to the bytes of its response."""
    from hinge.http1.server.connection import HttpConnection
    from hinge.http1.server.listener import Listener

    app, request = _server().http_app(), http_request(3, 8000)
    await app.start()
    listener, transport = Listener(app.serve, 1 << 17), _Transport()
    await listener.open([], None)
    connection = HttpConnection(listener)
    connection.connection_made(transport)
    loop = asyncio.get_running_loop()

    async def one() -> None:
        transport.written = loop.create_future()
        connection.data_received(request)
        check((await transport.written).split(b"\r\n\r\n")[1], 3)

    await run(one)
    connection.connection_lost(None)
    listener.close()
    await app.stop()


async def over_asgi(run: Callable[[One], Awaitable[None]]) -> None:
    """The ASGI app, called as uvicorn calls it."""
    app, body = _server().http_app(), call(3)
    received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    life = asyncio.create_task(
        app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, received.get, told.put)
    )
    received.put_nowait({"type": "lifespan.startup"})
    await told.get()

    async def one() -> None:
        parts = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return parts.pop() if parts else await asyncio.get_running_loop().create_future()

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await app(_scope(body), receive, send)
        check(sent[1]["body"], 3)

    await run(one)
    received.put_nowait({"type": "lifespan.shutdown"})
    await life


async def in_memory(run: Callable[[One], Awaitable[None]]) -> None:
    """Client and server in one process."""
    from hinge import Client

    async with Client(_server()) as client:
        await client.list_tools()  # its results are held against the schema from now on

        async def one() -> None:
            result = await client.call_tool("add", {"a": 3, "b": 7})
            assert result.data == 10, result

        await run(one)


PATHS = {"http": over_http, "asgi": over_asgi, "memory": in_memory}


async def profile(one: One, lines: int, calls: int = 4000) -> None:
    """Measure and print."""

    async def many(count: int) -> None:
        for _ in range(count):
            await one()

    await many(calls // 2)
    best = float("inf")
    for _ in range(5):
        begin = time.process_time()
        await many(calls)
        best = min(best, (time.process_time() - begin) / calls)
    garbage = await _garbage(one)
    profiler = cProfile.Profile()
    profiler.enable()
    await many(calls)
    profiler.disable()
    rows = sorted(_rows(profiler, calls), reverse=True)
    entered = sum(row[2] for row in rows if not row[3].startswith("~"))
    print(f"{best * 1e6:.1f} µs CPU per call (the harness's own share included)")
    print(f"{entered:.0f} Python functions entered, {sum(row[2] for row in rows):.0f} with built-in ones")
    print(f"{garbage:.0f} objects per call in cycles, left to the garbage collector\n")
    print("under the profiler, µs per call:   own     cum   times  function")
    for own, cumulated, times, place in rows[:lines]:
        print(f"{own:38.2f} {cumulated:7.2f} {times:7.2f}  {place}")


def _rows(profiler: cProfile.Profile, calls: int) -> list[tuple[float, float, float, str]]:
    rows = []
    # `stats` is what pstats is made of: place -> (calls without recursion, calls, own, cumulated, callers).
    stats: dict[tuple[str, int, str], tuple[int, int, float, float, Any]] = vars(pstats.Stats(profiler))["stats"]
    for (file, line, name), (_, times, own, cumulated, _) in stats.items():
        place = f"{file.removeprefix(f'{ROOT}/src/hinge/')}:{line} {name}"
        rows.append((own / calls * 1e6, cumulated / calls * 1e6, times / calls, place))
    return rows


async def _garbage(one: One, calls: int = 100) -> float:
    gc.collect()
    gc.disable()
    for _ in range(calls):
        await one()
    found = gc.collect()
    gc.enable()
    return found / calls


def main() -> None:
    """Read the path and run it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__)
    parser.add_argument("path", choices=PATHS)
    parser.add_argument("--lines", type=int, default=30)
    options = parser.parse_args()
    uvloop.run(PATHS[options.path](lambda one: profile(one, options.lines)))


if __name__ == "__main__":
    main()
