"""What carries one HTTP request to the app and its response back: our own server's connection, or any ASGI server.

The contract between the two, and its ASGI side. Must not know MCP, paths, or what a response says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from hinge.http1.asgi import HeaderPairs, Message, Receive, Scope, Send
from hinge.protocol.calls import Record

#: The empty body of a GET comes first; a server that goes on telling of bodies never tells of the end.
_STRAY_MESSAGES = 4


class Carrier(Protocol):
    """One request and the way back. The response goes out by `respond`, or by `start` and `piece`, or by `send`."""

    @property
    def scope(self) -> Scope:
        """The request's head as ASGI tells it."""
        ...

    @property
    def task(self) -> asyncio.Task[Any]:
        """What the request is served in."""
        ...

    def whole(self) -> bytes | None:
        """Take the body, where all of it is there already; None where it has to be waited for with `read`."""
        ...

    @property
    def ready(self) -> bool:
        """Whether the next `piece` certainly doesn't wait."""
        ...

    async def read(self, limit: int) -> bytes | None:
        """The body, or more than `limit` bytes of one that is longer; None if the client left before its end."""
        ...

    def respond(self, status: int, kind: bytes, data: bytes, headers: HeaderPairs, /) -> Awaitable[None]:
        """The whole response; `kind` is the content type, b"" for a response without a body. Silent if the client left."""
        ...

    def start(self, status: int, headers: HeaderPairs, /) -> None:
        """The head of a response that comes in pieces; it is sent with the first of them."""

    async def piece(self, data: bytes, more: bool, /) -> None:
        """The next piece of the body; waits while the client doesn't read. Raises OSError when it left."""

    def watch(self, left: Callable[[], None], /) -> None:
        """From now on, say when the client leaves; at once if it is gone. Not to be asked for while `read` runs."""

    def release(self) -> None:
        """Nobody wants to hear of the client any more."""

    def cut(self) -> None:
        """Cut the connection at once, whatever wasn't sent yet, where the HTTP server lets an app do so."""

    def receive(self) -> Awaitable[Message]:
        """ASGI's `receive`, for other apps."""
        ...

    def send(self, message: Message, /) -> Awaitable[None]:
        """ASGI's `send`, for other apps."""
        ...


class AsgiCarrier(Record):
    """A request that an ASGI server gave us."""

    scope: Scope
    receive: Receive
    send: Send
    task: asyncio.Task[Any]
    _head: Message | None = None
    _watcher: asyncio.Task[None] | None = None

    def whole(self) -> bytes | None:
        """The server may have it, but doesn't say so before it is asked."""
        return None

    @property
    def ready(self) -> bool:
        """Any `send` may wait."""
        return False

    async def read(self, limit: int) -> bytes | None:
        message = await self.receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body", False):
            parts = bytearray(body)  # it grows in place
            while message.get("more_body", False) and len(parts) <= limit:
                message = await self.receive()
                parts += message.get("body", b"")
            body = bytes(parts)
        return None if message["type"] == "http.disconnect" else body

    async def respond(self, status: int, kind: bytes, data: bytes, headers: HeaderPairs, /) -> None:
        pairs = [] if status == 204 else [(b"content-length", b"%d" % len(data))]
        if kind:
            pairs.append((b"content-type", kind))
        pairs += headers
        try:
            await self.send({"type": "http.response.start", "status": status, "headers": pairs})
            await self.send({"type": "http.response.body", "body": data})
        except OSError:
            return

    def start(self, status: int, headers: HeaderPairs, /) -> None:
        self._head = {"type": "http.response.start", "status": status, "headers": list(headers)}

    async def piece(self, data: bytes, more: bool, /) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            await self.send(head)
        await self.send({"type": "http.response.body", "body": data, "more_body": more})

    def watch(self, left: Callable[[], None], /) -> None:
        """ASGI tells of a disconnect to who waits for it: that takes a task."""
        if self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._await_disconnect(left))

    async def _await_disconnect(self, left: Callable[[], None]) -> None:
        try:
            for _ in range(_STRAY_MESSAGES):
                if (await self.receive())["type"] == "http.disconnect":
                    left()
                    return
        except OSError:
            left()

    def release(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None

    def cut(self) -> None:
        """ASGI knows no such message, and servers that close in good order first wait until a reader that doesn't read
        has read everything. uvicorn's `send` is a method of an object that holds the transport.
        """
        transport = getattr(getattr(self.send, "__self__", None), "transport", None)
        abort = getattr(transport, "abort", None)
        if abort is not None:
            abort()
