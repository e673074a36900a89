"""The path of one warmed `tools/call` through Gemel's files: `python -m tools.call_path` prints the counts.

Of each function of the package the first entry counts. "files" is how many files these functions are in, "switches" how
often the next function is in another file than the one before. It runs in a process of its own, since what else is
imported there can lengthen the path. It uses public entry points only.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import gemel
from gemel import Client, Server

PACKAGE = f"{Path(gemel.__file__).parent}/"
WARM_UP = 3
REPEATS = 3
#: Bytes on a socket: the own HTTP client does not count, as if a foreign one were used.
NOT_COUNTED = f"{PACKAGE}http1/client/"
LIMIT_SECONDS = 20
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
async def asgi_app() -> AsyncIterator[Callable[..., Awaitable[tuple[dict[bytes, bytes], Any]]]]:
    """Post messages to the ASGI application; gives a function that returns the response's headers and its message."""
    app = adding_server().http_app()
    to_app: asyncio.Queue[Message] = asyncio.Queue()
    from_app: asyncio.Queue[Any] = asyncio.Queue()
    await to_app.put({"type": "lifespan.startup"})
    lifespan = asyncio.create_task(app({"type": "lifespan", "asgi": {"version": "3.0"}}, to_app.get, from_app.put))
    await from_app.get()

    async def post(body: Message, headers: Mapping[str, str]) -> tuple[dict[bytes, bytes], Any]:
        sent: list[Any] = []
        bodies = [json.dumps(body).encode()]
        fields = {"host": "127.0.0.1:8000", "content-type": "application/json", **headers}
        fields |= {"accept": "application/json, text/event-stream"}

        async def receive() -> Message:
            if not bodies:
                await asyncio.Event().wait()
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}

        async def send(part: Any) -> None:
            sent.append(part)

        scope: Message = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "path": "/mcp",
        }
        scope |= {"raw_path": b"/mcp", "root_path": "", "query_string": b"", "scheme": "http"}
        scope |= {"server": ("127.0.0.1", 8000), "client": ("127.0.0.1", 1)}
        await app({**scope, "headers": [(k.encode(), v.encode()) for k, v in fields.items()]}, receive, send)
        assert sent[0]["status"] in (200, 202), sent
        content = b"".join(part.get("body", b"") for part in sent[1:])
        if content.startswith(b"{"):
            return dict(sent[0]["headers"]), json.loads(content)
        events = [line[5:] for line in content.splitlines() if line.startswith(b"data:")]
        return dict(sent[0]["headers"]), json.loads(events[-1]) if events else None

    try:
        yield post
    finally:
        await to_app.put({"type": "lifespan.shutdown"})
        await lifespan


async def stateless_post() -> CallPath:
    """From the ASGI callable, one POST of the stateless revision."""
    headers = {"mcp-protocol-version": STATELESS, "mcp-method": "tools/call", "mcp-name": "add"}
    async with asgi_app() as post:

        async def call() -> None:
            _, answer = await post(message("tools/call", {**CALL, "_meta": META}), headers)
            assert "3" in str(answer["result"]["content"])

        return await traced(call)


async def handshake_session() -> CallPath:
    """From the ASGI callable, one POST in an HTTP session of the handshake era."""
    async with asgi_app() as post:
        headers, _ = await post(message("initialize", INITIALIZE, 0), {})
        session = {"mcp-session-id": headers[b"mcp-session-id"].decode(), "mcp-protocol-version": HANDSHAKE}
        await post(message("notifications/initialized", {}, None), session)

        async def call() -> None:
            _, answer = await post(message("tools/call", CALL), session)
            assert "3" in str(answer["result"]["content"])
            await asyncio.sleep(0)

        return await traced(call)


async def line_channel() -> CallPath:
    """The server's half of a call over a unix socket, in the handshake era."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "s"
        running = asyncio.create_task(adding_server().run_async("socket", path=path))
        while not path.exists():  # noqa: ASYNC110 (nothing tells when a socket is there)
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_unix_connection(str(path))

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
            writer.close()
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


ROUTES: dict[str, Callable[[], Awaitable[CallPath]]] = {
    "stateless POST": stateless_post,
    "handshake session": handshake_session,
    "line channel": line_channel,
    "HTTP client": http_client,
}


async def measure() -> dict[str, CallPath]:
    """The path on each route."""
    found = {}
    for name, route in ROUTES.items():
        async with asyncio.timeout(LIMIT_SECONDS):
            found[name] = await route()
    return found


def main(words: list[str]) -> None:
    """Print the counts, with `-v` also the functions."""
    for name, path in asyncio.run(measure()).items():
        print(f"{name:<18}{path.files:>3} files {path.switches:>3} switches {len(path.entered):>3} functions")
        if "-v" in words:
            print("".join(f"    {file}: {function}\n" for file, function in path.entered), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
