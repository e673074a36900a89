"""The path of one warmed `tools/call` through Gemel's files, from the first byte to the last: `python -m tools.call_path`.

Of each function of the package the first entry counts. "switches" is how often the next function is in another file than
the one before; the exit code is 1 if they are more than the table says. "files", how many files the functions are in, is
only told. The server's half is measured on a socket of the HTTP server of `server.run("http")`, and on pipes; the other
end is a raw one. It runs in a process of its own, since what else is imported there can lengthen the path. It uses public
entry points only.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, NamedTuple

import gemel
from gemel import Client, Server

PACKAGE = f"{Path(gemel.__file__).parent}/"
WARM_UP = 3
REPEATS = 10
#: Bytes on a socket: the own HTTP client does not count, as if a foreign one were used.
NOT_COUNTED = f"{PACKAGE}http1/client/"
LIMIT_SECONDS = 20
#: Turns of the event loop between the head of a request and its body, if the client sends them apart.
TURNS = 5
STATELESS, HANDSHAKE = "2026-07-28", "2025-11-25"
IDENTITY = {"name": "path", "version": "1"}
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": IDENTITY,
}
CALL = {"name": "add", "arguments": {"a": 1, "b": 2}}
INITIALIZE = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": IDENTITY}
Message = dict[str, Any]


class CallPath(NamedTuple):
    """The functions in the order of their first entry, each with its file below the package."""

    entered: list[tuple[str, str]]

    @property
    def files(self) -> int:
        """How many files the functions are in."""
        return len({file for file, _ in self.entered})

    @property
    def switches(self) -> int:
        """How often the next function is in another file."""
        return sum(one[0] != other[0] for one, other in zip(self.entered, self.entered[1:], strict=False))


async def traced(call: Callable[[], Awaitable[object]]) -> CallPath:
    """Make a call several times, then record it. Only the thread of this loop is watched."""
    entered: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        file = code.co_filename
        if event == "call" and file.startswith(PACKAGE) and not file.startswith(NOT_COUNTED) and code.co_name[0] != "<":
            entered[file.removeprefix(PACKAGE), code.co_qualname] = None

    for _ in range(WARM_UP):
        await call()
    paths = []
    for _ in range(REPEATS):
        entered.clear()
        sys.setprofile(note)
        try:
            await call()
        finally:
            sys.setprofile(None)
        paths.append(CallPath(list(entered)))
    return min(paths, key=lambda path: len(path.entered))  # a timer of the server may run during one of them


def adding_server() -> Server[Any]:
    """The server that is called."""
    server: Server[Any] = Server("path")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return server


def message(method: str, params: Message, request_id: int | None = 1) -> Message:
    """A request, or without an id a notification."""
    identified = {} if request_id is None else {"id": request_id}
    return {"jsonrpc": "2.0", **identified, "method": method, "params": params}


@asynccontextmanager
async def http_connection() -> AsyncIterator[Callable[..., Awaitable[tuple[dict[str, str], Any]]]]:
    """Serve HTTP as `server.run("http")` does; yield a function that posts a message on one connection.

    It returns the headers of the response and its message.
    """
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(adding_server().run_async("http", port=0, announce=url.set_result))
    host, _, port = (await url).removeprefix("http://").partition("/")[0].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))

    async def post(body: Message, headers: Mapping[str, str], *, apart: bool = False) -> tuple[dict[str, str], Any]:
        content = json.dumps(body).encode()
        fields = {"host": f"{host}:{port}", "content-type": "application/json", **headers}
        fields |= {"accept": "application/json, text/event-stream", "content-length": str(len(content))}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        request = f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode()
        if apart:
            writer.write(request)
            for _ in range(TURNS):
                await asyncio.sleep(0)
            writer.write(content)
        else:
            writer.write(request + content)
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        assert status.split()[1] in ("200", "202"), status
        received = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        answer = await reader.readexactly(int(received["content-length"]))
        return received, json.loads(answer) if answer else None

    try:
        yield post
    finally:
        writer.close()
        running.cancel()
        await asyncio.wait([running])


async def http_stateless(*, apart: bool = False) -> CallPath:
    """One POST of the stateless revision, to the HTTP server of `server.run("http")`."""
    headers = {"mcp-protocol-version": STATELESS, "mcp-method": "tools/call", "mcp-name": "add"}
    async with http_connection() as post:

        async def call() -> None:
            _, answer = await post(message("tools/call", {**CALL, "_meta": META}), headers, apart=apart)
            assert "3" in str(answer["result"]["content"])

        return await traced(call)


async def http_session(*, apart: bool = False) -> CallPath:
    """One POST in an HTTP session of the handshake era, to the HTTP server of `server.run("http")`."""
    async with http_connection() as post:
        headers, _ = await post(message("initialize", INITIALIZE, 0), {}, apart=apart)
        session = {"mcp-session-id": headers["mcp-session-id"], "mcp-protocol-version": HANDSHAKE}
        await post(message("notifications/initialized", {}, None), session, apart=apart)

        async def call() -> None:
            _, answer = await post(message("tools/call", CALL), session, apart=apart)
            assert "3" in str(answer["result"]["content"])

        return await traced(call)


@asynccontextmanager
async def standard_pipes() -> AsyncIterator[tuple[asyncio.StreamReader, BinaryIO]]:
    """Make pipes the standard input and output of this process; yield their other ends."""
    saved = os.dup(0), os.dup(1)
    from_client, to_server = os.pipe()
    from_server, to_client = os.pipe()
    os.dup2(from_client, 0)
    os.dup2(to_client, 1)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_server, "rb")
    )
    with os.fdopen(to_server, "wb", buffering=0) as writer:
        try:
            yield reader, writer
        finally:
            os.dup2(saved[0], 0)
            os.dup2(saved[1], 1)
            transport.close()
            for descriptor in (*saved, from_client, to_client):
                os.close(descriptor)


async def stdio() -> CallPath:
    """One call over standard input and output, which are pipes, in the handshake era."""
    async with standard_pipes() as (reader, writer):
        running = asyncio.create_task(adding_server().run_async("stdio"))

        async def request(method: str, params: Message) -> Any:
            writer.write(json.dumps(message(method, params)).encode() + b"\n")
            return json.loads(await reader.readline())["result"]

        await request("initialize", INITIALIZE)
        writer.write(json.dumps(message("notifications/initialized", {}, None)).encode() + b"\n")

        async def call() -> None:
            assert "3" in str((await request("tools/call", CALL))["content"])

        try:
            return await traced(call)
        finally:
            running.cancel()
            await asyncio.wait([running])


async def http_client() -> CallPath:
    """The client's half of a call over HTTP, in the stateless era. The server's half runs in another process."""
    code = "from tools.call_path import adding_server; adding_server().run('http', port=0)"
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert server.stdout is not None
    try:
        line = ""
        while "http://" not in line:
            line = (await server.stdout.readline()).decode()
        url = next(word for word in line.split() if word.startswith("http://"))
        async with Client(url.rstrip(".,)"), era="2026") as client:

            async def call() -> None:
                assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content is not None

            return await traced(call)
    finally:
        server.terminate()
        await server.wait()


class Route(NamedTuple):
    """How a call is made, and how many switches it may take, on Python 3.11."""

    name: str
    switches: int
    measure: Callable[[], Awaitable[CallPath]]


#: "apart": the client writes the head of the request and its body apart, as Python's httpx does.
ROUTES = (
    Route("HTTP 2026", 33, http_stateless),
    Route("HTTP 2026, apart", 37, partial(http_stateless, apart=True)),
    Route("HTTP session", 31, http_session),
    Route("HTTP session, apart", 35, partial(http_session, apart=True)),
    Route("stdio", 22, stdio),
    Route("HTTP client", 18, http_client),
)


async def measure() -> dict[Route, CallPath]:
    """The path on each route."""
    found = {}
    for route in ROUTES:
        async with asyncio.timeout(LIMIT_SECONDS):
            found[route] = await route.measure()
    return found


def main(words: list[str]) -> int:
    """Print the counts, with `-v` also the functions. Returns 1 if a path has more switches than its route may have."""
    found = asyncio.run(measure())
    for route, path in found.items():
        most = f"{path.switches:>3} switches, at most {route.switches}"
        print(f"{route.name:<20}{path.files:>3} files {most} {len(path.entered):>3} functions")
        if "-v" in words:
            print("".join(f"    {file}: {function}\n" for file, function in path.entered), end="")
    return int(any(path.switches > route.switches for route, path in found.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
