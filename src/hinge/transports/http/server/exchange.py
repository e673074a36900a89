"""One HTTP request and its response: a bounded body in; JSON or an event stream out; who notices that the client left.

Knows SSE framing. Must not know eras, sessions, what the messages mean, or which HTTP server there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from hinge import jsonrpc
from hinge.errors import ChannelClosed, ErrorObject, InvalidRequest
from hinge.http1.asgi import CLOSE, JSON_TYPE, RETRY_LATER, STREAM_HEADERS, HeaderPairs
from hinge.http1.server.carrier import Carrier
from hinge.protocol.calls import Record
from hinge.protocol.http import sse
from hinge.protocol.http.headers import Headers, Refusal
from hinge.transports.http.server.lifecycle import Clock
from hinge.transports.http.server.options import HttpSettings

KEEP_ALIVE = sse.comment("keep-alive")
LEFT = "the client closed the connection"
NOT_READING = "the client doesn't read its stream"

STOPPING = Refusal(503, "The server is stopping: call again", (*RETRY_LATER, *CLOSE))
_TOO_SLOW = Refusal(408, "The body took too long to arrive", CLOSE)


class Owner(Protocol):
    """Who is served by an exchange."""

    def gone(self, reason: str) -> None:
        """The response can't be delivered any more."""

    def stop(self, reason: str) -> None:
        """The server stops: cancel what runs for this exchange alone."""

    def opening(self) -> bytes:
        """What an event stream begins with; empty for nothing."""
        ...


class Exchange(Record):
    """One request, one response. Whoever makes it says `begin` to the clock, and calls `close` in the end."""

    _carrier: Carrier
    _clock: Clock
    _options: HttpSettings
    _lock: asyncio.Lock | None = None
    _reading: bool = False
    _given_up: Refusal | None = None
    _lost: str = ""
    _quiet_since: float = 0.0
    #: Who is told that the client left.
    owner: Owner | None = None
    #: A comment may turn a slow answer into an event stream.
    may_stream: bool = False
    #: Somebody has begun to write an event stream: a JSON answer is no longer possible.
    streaming: bool = False
    #: The head of an event stream is sent (T-03).
    started: bool = False
    #: Nothing more can be sent, because all was or because the client is gone.
    over: bool = False
    #: The clock's mark.
    watched: bool = False

    # ---------------------------------------------------------------- in

    def arrived(self) -> bytes | Refusal | None:
        """The body, if it is all there already: most of the time, where the HTTP server says so."""
        body = self._carrier.whole()
        return body if body is None or len(body) <= self._options.limits.body else self._too_large()

    async def read(self, headers: Headers) -> bytes | Refusal | None:
        """The body, bounded while reading (C-142); None when the client left before its end."""
        limit = self._options.limits.body
        declared = headers.raw.get(b"content-length", b"")
        if len(declared) > 6 and declared.isdigit() and int(declared[:20]) > limit:
            return self._too_large()
        self._reading = True
        try:
            body = await self._carrier.read(limit)
        except asyncio.CancelledError:
            if self._given_up is None:
                raise
            self._carrier.task.uncancel()
            return self._given_up
        finally:
            self._reading = False
        if self.watched:
            self.watch()
        return body if body is None or len(body) <= limit else self._too_large()

    def _too_large(self) -> Refusal:
        return Refusal(413, f"A body may have {self._options.limits.body} bytes here", CLOSE)

    # ---------------------------------------------------------------- out

    def reply(self, status: int, data: bytes, headers: HeaderPairs = (), kind: bytes = JSON_TYPE) -> Awaitable[None]:
        """The whole response in one piece: a JSON text, or what `kind` says."""
        self.over = True
        return self._carrier.respond(status, kind, data, headers)

    async def refuse(self, refusal: Refusal) -> None:
        """Turn the request away before its message was understood: a JSON-RPC error without id (T-04)."""
        error = ErrorObject(InvalidRequest.code, refusal.text)
        await self.reply(refusal.status, jsonrpc.encode_failure(None, error), refusal.headers)

    def empty(self, status: int) -> Awaitable[None]:
        """A response without a body: 202 for what needs no answer (MHTTP-04), 204."""
        self.over = True
        return self._carrier.respond(status, b"", b"", ())

    async def write(self, data: bytes) -> None:
        """A piece of an event stream, which begins with the first one. Raises ChannelClosed when nobody can get it.

        Waits while the reader is slow, within the limit; then the stream is over and the connection is cut.
        """
        async with self._writing():
            if not self.over:
                await self._put(data, True)
        # A server's `send` needn't wait for anything, and a handler that only sends would starve all others.
        await asyncio.sleep(0)
        if self.over:
            raise ChannelClosed(self._lost or LEFT)

    async def end(self, data: bytes = b"") -> None:
        """The last piece of an event stream; nothing happens when it can't be delivered."""
        async with self._writing():
            if not self.over:
                await self._put(data, False)
                self.over = True

    def _writing(self) -> asyncio.Lock:
        if self._lock is None:
            self._lock = asyncio.Lock()
            self.streaming = True
        return self._lock

    async def _put(self, data: bytes, more: bool) -> None:
        carrier = self._carrier
        if not self.started:
            carrier.start(200, STREAM_HEADERS)
            self.started = True
            data = (self.owner.opening() if self.owner is not None else b"") + data
        try:
            if carrier.ready:
                await carrier.piece(data, more)
            else:
                async with asyncio.timeout(self._options.limits.stream_wait):
                    await carrier.piece(data, more)
        except TimeoutError:
            carrier.cut()
            self._lose(NOT_READING)
        except OSError:
            self._lose(LEFT)
        self._quiet_since = asyncio.get_running_loop().time()

    # ---------------------------------------------------------------- the client, the clock, the end

    def watch(self) -> None:
        """It takes long: notice when the client leaves (MHTTP-13)."""
        self._quiet_since = asyncio.get_running_loop().time()
        if not self._reading and not self.over:
            self._carrier.watch(self._leave)

    def _leave(self) -> None:
        self._lose(LEFT)

    def _lose(self, reason: str) -> None:
        if not self.over:
            self.over = True
            self._lost = reason
            if self.owner is not None:
                self.owner.gone(reason)

    def beat(self, now: float) -> None:
        """Give up on a slow body, keep a quiet stream open (MHTTP-10)."""
        quiet = now - self._quiet_since
        if self._reading:
            if quiet > self._options.body_wait:
                self._give_up(_TOO_SLOW)
        elif self.may_stream and not self.over and quiet >= self._options.limits.keep_alive * 0.8:
            self._clock.keep(asyncio.get_running_loop().create_task(self._keep_alive()))

    def drain(self) -> None:
        """The server stops: what hasn't come whole by now is new work."""
        self._give_up(STOPPING)

    def _give_up(self, refusal: Refusal) -> None:
        if self._reading and self._given_up is None:
            self._given_up = refusal
            self._carrier.task.cancel()

    async def _keep_alive(self) -> None:
        if self._lock is not None and self._lock.locked():
            return  # something is being written: the stream isn't quiet
        try:
            await self.write(KEEP_ALIVE)
        except ChannelClosed:
            return

    def stop(self, reason: str) -> None:
        """The server can wait no longer: cancel what runs for this exchange alone."""
        if self.owner is not None:
            self.owner.stop(reason)

    def cut(self) -> None:
        """End it at once, whatever the client reads."""
        if not self.over:
            self._carrier.cut()
            self._lose("the server is stopping")

    def close(self) -> None:
        """It is over: nobody waits for the client any more."""
        if not self.over:
            self.over = True
        # A cycle that the garbage collector would have to find, once per request.
        self.owner = None
        self._clock.end(self)
        if self.watched:
            self._carrier.release()
