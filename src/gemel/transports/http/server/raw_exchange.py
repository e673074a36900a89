"""One HTTP request with its response as an HTTP server offers it, and the adapter for any ASGI server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Protocol

from gemel.http1.asgi import HeaderPairs, Message, Receive, Scope, Send
from gemel.protocol.http.headers import CommonHead
from gemel.protocol.records import Record

#: An ASGI server may send this many other messages before `http.disconnect`, beginning with the empty body of a GET.
_STRAY_MESSAGES = 4


class RawExchange(Protocol):
    """One HTTP request with its response as an HTTP server offers it.

    The response is sent by `respond`, or by `start` and `piece`, or by the ASGI `send`.
    """

    @property
    def scope(self) -> Scope:
        """The ASGI scope of the request."""
        ...

    @property
    def task(self) -> asyncio.Task[Any]:
        """The task that serves the request."""
        ...

    @property
    def form(self) -> CommonHead | None:
        """The form of the head, if it is known."""
        ...

    @property
    def complete(self) -> bool:
        """Whether all of the body is there, in `body`."""
        ...

    @property
    def body(self) -> bytes | bytearray:
        """What has arrived of the body and was not read."""
        ...

    async def read(self, limit: int, grow: Callable[[int], None], /) -> bytes | None:
        """Read the body, or more than `limit` bytes of a longer one; None if the client left before its end.

        `grow(size)` is called with the number of bytes while more are to come; what it raises is passed on.
        """
        ...

    def respond(self, status: int, kind: bytes, data: bytes, headers: HeaderPairs, /) -> Awaitable[None]:
        """Send the whole response. `kind` is the content type, b"" without a body. Ignored if the client left."""
        ...

    def start(self, status: int, headers: HeaderPairs, /) -> None:
        """Begin a response in pieces. Its head is sent with the first piece."""

    async def piece(self, data: bytes, more: bool, /) -> None:
        """Send a piece of the body; waits while the client doesn't read. Raises OSError if it left."""

    def piece_now(self, data: bytes, more: bool, /) -> bool:
        """Send a piece of the body if that needs no waiting. Returns whether it was sent."""
        ...

    def watch(self, on_disconnect: Callable[[], None], /) -> None:
        """Call `on_disconnect` when the client disconnects, at once if it has. Not while `read` runs."""

    def unwatch(self) -> None:
        """Stop watching the client."""

    def cut(self) -> None:
        """Close the connection at once, without what was not sent yet, if the HTTP server allows it."""

    #: Whether the exchange can go on without a task.
    can_detach: ClassVar[bool]

    def detach(self) -> None:
        """Go on without a task when the current one is over, until `run`."""

    def run(self, serve: Callable[[Any], Awaitable[None]], /) -> None:
        """Serve the rest of a detached exchange, by `serve(self)` in a new task."""

    def receive(self) -> Awaitable[Message]:
        """ASGI `receive`, for other apps."""
        ...

    def send(self, message: Message, /) -> Awaitable[None]:
        """ASGI `send`, for other apps."""
        ...


class AsgiExchange(Record):
    """An exchange of any ASGI server; see RawExchange."""

    scope: Scope
    receive: Receive
    send: Send
    task: asyncio.Task[Any]
    _start: Message | None = None
    _watcher: asyncio.Task[None] | None = None
    #: What was received while the client was watched, before the body was read.
    _early: tuple[Message, ...] = ()
    form: CommonHead | None = None
    #: The body is read by `receive`.
    complete: bool = False
    body: bytes = b""
    #: The response ends when the app returns.
    can_detach: ClassVar[bool] = False

    async def read(self, limit: int, grow: Callable[[int], None], /) -> bytes | None:
        self.unwatch()
        message = await self._next()
        body: bytes = message.get("body", b"")
        if message.get("more_body", False):
            parts = bytearray(body)
            while message.get("more_body", False) and len(parts) <= limit:
                grow(len(parts))
                message = await self._next()
                parts += message.get("body", b"")
            body = bytes(parts)
        return None if message["type"] == "http.disconnect" else body

    async def _next(self) -> Message:
        if not self._early:
            return await self.receive()
        message, self._early = self._early[0], self._early[1:]
        return message

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
        self._start = {"type": "http.response.start", "status": status, "headers": list(headers)}

    async def piece(self, data: bytes, more: bool, /) -> None:
        if self._start is not None:
            start, self._start = self._start, None
            await self.send(start)
        await self.send({"type": "http.response.body", "body": data, "more_body": more})

    def piece_now(self, data: bytes, more: bool, /) -> bool:
        """Any ASGI `send` may wait."""
        return False

    def watch(self, on_disconnect: Callable[[], None], /) -> None:
        """ASGI reports a disconnect from `receive` only, so a task waits for it."""
        if self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._await_disconnect(on_disconnect))

    async def _await_disconnect(self, on_disconnect: Callable[[], None]) -> None:
        try:
            for _ in range(_STRAY_MESSAGES):
                message = await self.receive()
                if message["type"] == "http.disconnect":
                    on_disconnect()
                    return
                self._early += (message,)
        except OSError:
            on_disconnect()

    def unwatch(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None

    def detach(self) -> None:
        raise RuntimeError("The response of an ASGI app ends when the app returns")

    def run(self, serve: Callable[[Any], Awaitable[None]], /) -> None:
        raise RuntimeError("It is not detached")

    def cut(self) -> None:
        """ASGI has no message for this. The `send` of uvicorn is a method of an object that holds the transport.

        A regular close would wait until the client has read everything.
        """
        transport = getattr(getattr(self.send, "__self__", None), "transport", None)
        abort = getattr(transport, "abort", None)
        if abort is not None:
            abort()
