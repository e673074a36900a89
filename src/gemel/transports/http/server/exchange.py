"""One HTTP request with its response: a bounded body in; JSON or an event stream out; whether the client has disconnected."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from math import ceil
from typing import Final, Protocol

from gemel import jsonrpc
from gemel.errors import ChannelClosed, ErrorObject, InvalidRequest, Overloaded, ProtocolError, wire_error
from gemel.http1.asgi import CLOSE, HeaderPairs, Scope
from gemel.jsonrpc import RequestId
from gemel.protocol.http import sse
from gemel.protocol.http.headers import body_too_large
from gemel.protocol.http.media_types import TAKES_EVENTS
from gemel.protocol.http.request import Refusal
from gemel.protocol.records import Call, Inbound, Origin, Outgoing, Record, RefusedMessage
from gemel.protocol.scopes import write_scopes
from gemel.protocol.states import RESPONSE_MOVES, ResponseState
from gemel.telemetry import count
from gemel.transports.http.server.bodies import BodiesFull, LargeBody
from gemel.transports.http.server.browser_page import PAGE, PAGE_HEADERS, PAGE_TYPE
from gemel.transports.http.server.open_exchanges import OpenExchanges
from gemel.transports.http.server.options import Auth, HttpSettings
from gemel.transports.http.server.raw_exchange import RawExchange

JSON_TYPE = b"application/json"
EVENTS_TYPE = b"text/event-stream"
#: Without the second and third header a proxy may hold events back.
STREAM_HEADERS: HeaderPairs = (
    (b"content-type", EVENTS_TYPE),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
RETRY_LATER: HeaderPairs = ((b"retry-after", b"1"),)

KEEP_ALIVE = sse.comment("keep-alive")
LEFT = "the client closed the connection"
EXPIRED = "the authorization has ended"
NOT_READING = "the client doesn't read its stream"

STOPPING = Refusal(503, "The server is stopping: call again", (*RETRY_LATER, *CLOSE))
BODY_TOO_SLOW = Refusal(408, "The body took too long to arrive", CLOSE)

OPEN: Final = ResponseState.OPEN
STREAMING: Final = ResponseState.STREAMING
ENDED: Final = ResponseState.ENDED
LOST: Final = ResponseState.LOST

#: Bytes of an event stream that are written at once.
PIECE = 64 * 1024


def overloaded(text: str, *headers: tuple[bytes, bytes]) -> Refusal:
    """503 with `Overloaded`: the request was not served and may be repeated after the delay that the response names."""
    return Refusal(503, text, (*RETRY_LATER, *headers), Overloaded(text).error)


def bad_request(error: ProtocolError) -> Refusal:
    """400 with an error of the protocol."""
    return Refusal(400, str(error), error=error.error)


_BODIES_FULL = overloaded("Too many request bodies are arriving at once: try again later", *CLOSE)
#: The answer to a request that could be read and has not started.
STOPPING_ANSWER = overloaded(STOPPING.text)


def retry_after(error: ErrorObject | None) -> HeaderPairs:
    """The headers of a 503: when to repeat the request, as far as the error says so."""
    data = None if error is None else error.data
    delay = data.get("retryAfterMs", 0) if isinstance(data, dict) else 0
    return ((b"retry-after", b"%d" % max(1, ceil(delay / 1000))),)


def step_up_headers(error: ErrorObject | None, auth: Auth | None, scope: Scope) -> HeaderPairs:
    """The headers of a 403: which scopes the client may ask its user for ("Runtime Insufficient Scope Errors")."""
    data = None if error is None else error.data
    scopes = write_scopes(data.get("requiredScopes", ())) if isinstance(data, dict) else ""
    if auth is None:
        challenge = f'Bearer error="insufficient_scope", scope="{scopes}"'
    else:
        challenge = auth.challenge(scope, error="insufficient_scope", scopes=scopes.split())
    return challenge_headers(challenge)


def challenge_headers(challenge: str) -> HeaderPairs:
    """The headers of a challenge."""
    return ((b"www-authenticate", challenge.encode("ascii")),)


class ExchangeOwner(Protocol):
    """What an exchange carries messages for: a channel or a stream."""

    #: The kinds of answer that the client accepts. If it takes events, a keep-alive may turn a slow answer into a stream.
    accepts: int

    def disconnected(self, reason: str) -> None:
        """The response can't be delivered any more."""

    def stop(self, reason: str) -> None:
        """The server stops: cancel what runs for this exchange alone."""

    def expired(self) -> None:
        """The authorization of the request has ended: end what has no end of its own; a call may finish."""

    def unfinished(self, reason: str) -> Outgoing | None:
        """The answer to send if the handler does not stop; None if there is none."""

    def opening(self) -> bytes:
        """The first bytes of an event stream, empty if there are none."""
        ...


class Exchange(Record):
    """One request and its response; what becomes of that is in `RESPONSE_MOVES`. `close` frees it, once."""

    raw: RawExchange
    _open: OpenExchanges
    _options: HttpSettings
    _lock: asyncio.Lock | None = None
    _reading: bool = False
    #: Why its body is not read to its end.
    _stopped: Refusal | None = None
    #: Why the response can't be delivered.
    _lost: str = LEFT
    _quiet_since: float = 0.0
    #: What its body takes of the shared half of the budget; None if its part is enough.
    large_body: LargeBody | None = None
    #: Notified when the client leaves.
    owner: ExchangeOwner | None = None
    #: Who sent the request, if it is to end with their authorization.
    origin: Origin | None = None
    state: ResponseState = OPEN
    #: Whether the response is complete or its client gone.
    over: bool = False
    #: Set by OpenExchanges.
    watched: bool = False
    #: Whether no task serves it although it is not over.
    detached: bool = False
    #: Headers of the response, whatever it is: for a web page of another origin.
    cors: HeaderPairs = ()
    #: Whether a refusal is a page: a browser has opened the endpoint.
    shows_page: bool = False

    # ---------------------------------------------------------------- in

    async def read(self) -> bytes | Refusal | None:
        """Read the body, bounded in size and time; None if the client left before its end."""
        limit = self._options.limits.body
        self._reading = True
        try:
            body = await self.raw.read(limit, self._grow)
            if body is not None and len(body) > self._open.bodies.part:
                self._grow(len(body))
        except BodiesFull:
            return _BODIES_FULL
        except asyncio.CancelledError:
            if self._stopped is None:
                raise
            self.raw.task.uncancel()
            return self._stopped
        finally:
            self._reading = False
        if self.watched:
            self.watch()
        return body if body is None or len(body) <= limit else body_too_large(limit)

    def _grow(self, size: int) -> None:
        """The body has this many bytes now. Raises BodiesFull."""
        bodies = self._open.bodies
        if size > bodies.part:
            if self.large_body is None:
                self.large_body = LargeBody(bodies, self.raw.scope)
            self.large_body.grow(size)

    # ---------------------------------------------------------------- out

    def reply(self, status: int, data: bytes, headers: HeaderPairs = (), kind: bytes = JSON_TYPE) -> Awaitable[None]:
        """Send the whole response in one piece."""
        self._move("answer")
        return self.raw.respond(status, kind, data, self._with_cors(headers))

    def answer(self, reply: Outgoing, headers: HeaderPairs = ()) -> Awaitable[None]:
        """Send the response to a message: the whole body, or the last event of a stream that has begun.

        With 503 goes a `Retry-After`, with 403 a challenge.
        """
        if self.state is STREAMING:
            return self.end(sse.encode(reply.data))
        status = reply.status
        if status == 503:
            headers = (*headers, *retry_after(reply.error))
        elif status == 403:
            headers = (*headers, *step_up_headers(reply.error, self._options.auth, self.raw.scope))
        self._move("answer")
        return self.raw.respond(status, JSON_TYPE, reply.data, self._with_cors(headers))

    def refuse(
        self, refusal: Refusal, inbound: Inbound | bytes | None = None, *, request_id: RequestId | None = None
    ) -> Awaitable[None]:
        """Send a refusal as a JSON-RPC error, with the id of the request if it could be read; to a browser as a page."""
        if self.shows_page:
            return self.reply(refusal.status, PAGE, (*refusal.headers, *PAGE_HEADERS), PAGE_TYPE)
        error = refusal.error or ErrorObject(InvalidRequest.code, refusal.text)
        if isinstance(inbound, Call):
            request_id = inbound.id
        if self._options.on_refused is not None and (scope := self.raw.scope).get("method") == "POST":
            method = inbound.method if isinstance(inbound, Call) else None
            self._options.on_refused(RefusedMessage(error, method, request_id, scope.get("gemel.principal")))
        return self.reply(refusal.status, jsonrpc.encode_failure(request_id, error), refusal.headers)

    def empty(self, status: int, headers: HeaderPairs = ()) -> Awaitable[None]:
        """Send a response without a body: 202 if there is no answer, 204."""
        self._move("answer")
        return self.raw.respond(status, b"", b"", self._with_cors(headers))

    def _with_cors(self, headers: HeaderPairs) -> HeaderPairs:
        return (*headers, *self.cors) if self.cors else headers

    async def write(self, data: bytes) -> None:
        """Write a piece of an event stream; the first one begins the response.

        Waits while the client doesn't read, at most `limits.stream_wait`; then the connection is cut.

        Raises:
            ChannelClosed: The client left or doesn't read.
        """
        if not self.write_now(data):
            async with self._writing():
                if not self.over:
                    await self._put(data, True)
        # The `send` of a server may return at once; a handler that only sends must not starve other tasks.
        await asyncio.sleep(0)
        if self.over:
            raise ChannelClosed(self._lost)

    def write_now(self, data: bytes) -> bool:
        """Write a piece of an event stream that has begun, if that needs no waiting. Returns whether it was written."""
        if self.state is not STREAMING or len(data) > PIECE or (self._lock is not None and self._lock.locked()):
            return False
        if not self.raw.piece_now(data, True):
            return False
        self._quiet_since = self._open.time()
        return True

    async def end(self, data: bytes = b"") -> None:
        """Write the last piece of an event stream. Ignored if it can't be delivered."""
        async with self._writing():
            if not self.over:
                await self._put(data, False)
            if not self.over:
                self._move("end")

    def _writing(self) -> asyncio.Lock:
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    async def _put(self, data: bytes, more: bool) -> None:
        raw = self.raw
        if self.state is OPEN:
            self._move("event")
            raw.start(200, self._with_cors(STREAM_HEADERS))
            data = (self.owner.opening() if self.owner is not None else b"") + data
        try:
            # A slow client has the time for each piece, so that one large event does not cut it off.
            for position in range(0, max(len(data), 1), PIECE):
                piece = data[position : position + PIECE]
                more_pieces = more or position + PIECE < len(data)
                if not raw.piece_now(piece, more_pieces):
                    async with asyncio.timeout(self._options.limits.stream_wait):
                        await raw.piece(piece, more_pieces)
        except TimeoutError:
            raw.cut()
            self._disconnected(NOT_READING)
        except OSError:
            self._disconnected()
        self._quiet_since = self._open.time()

    # ---------------------------------------------------------------- disconnect, timer, end

    def watch(self) -> None:
        """It takes long: notice from now on when the client leaves."""
        self._quiet_since = self._open.time()
        if not self._reading and not self.over:
            self.raw.watch(self._disconnected)
            self._check_expiry()

    def _check_expiry(self) -> None:
        """End the stream of a caller whose authorization has ended; else look again when it ends."""
        expires = None if self.origin is None else self.origin.expires
        if expires is None or self.over:
            return
        if expires > time.time():
            self._open.beat_at(expires)
        elif self.owner is not None:
            self.origin = None
            self.owner.expired()

    def _disconnected(self, reason: str = LEFT) -> None:
        if not self.over:
            self._move("disconnect")
            self._lost = reason
            if self.owner is not None:
                self.owner.disconnected(reason)

    def _move(self, event: str) -> None:
        before, self.state = self.state, RESPONSE_MOVES[self.state][event]
        self.over = self.state is ENDED or self.state is LOST
        if before is not self.state and (before is STREAMING or self.state is STREAMING):
            count("gemel.server.active_streams", 1 if self.state is STREAMING else -1)

    def beat(self, now: float) -> None:
        """Give up on a slow body; end what has expired; send a keep-alive on a quiet stream."""
        if self.origin is not None:
            self._check_expiry()
        quiet = now - self._quiet_since
        if self._reading:
            if quiet > self._options.body_wait:
                self._stop_reading(BODY_TOO_SLOW)
        elif (
            self.owner is not None
            and self.owner.accepts & TAKES_EVENTS
            and not self.over
            and quiet >= self._options.limits.keep_alive * 0.8
        ):
            self._open.keep(asyncio.get_running_loop().create_task(self._keep_alive()))

    def drain(self) -> None:
        """The server stops: a request whose body is not complete counts as new work."""
        self._stop_reading(STOPPING)

    def _stop_reading(self, refusal: Refusal) -> None:
        if self._reading and self._stopped is None:
            self._stopped = refusal
            self.raw.task.cancel()

    async def _keep_alive(self) -> None:
        if self._lock is not None and self._lock.locked():
            return  # something is being written: the stream isn't quiet
        try:
            await self.write(KEEP_ALIVE)
        except ChannelClosed:
            return

    def stop(self, reason: str) -> None:
        """The time to drain is over: cancel what runs for this exchange alone."""
        if self.owner is not None:
            self.owner.stop(reason)

    def end_unfinished(self, reason: str) -> None:
        """The handler did not stop: answer in its place."""
        reply = None if self.over or self.owner is None else self.owner.unfinished(reason)
        if reply is not None:
            self._open.keep(asyncio.get_running_loop().create_task(self._answer(reply)))

    async def _answer(self, reply: Outgoing) -> None:
        await self.answer(reply)

    def cut(self) -> None:
        """End it at once."""
        if not self.over:
            self.raw.cut()
            self._disconnected("the server is stopping")

    def detach(self) -> None:
        """Go on without a task when the current one is over."""
        self.detached = True
        self._lock = None  # nothing is being written
        self.raw.detach()

    def resume(self, serve: Callable[[], Awaitable[None]]) -> None:
        """Serve the rest of a detached exchange in a new task."""
        self.detached = False
        self.raw.run(lambda raw: self._serve(serve))

    async def _serve(self, serve: Callable[[], Awaitable[None]]) -> None:
        try:
            await serve()
        except Exception as exc:
            await self.answer_error(exc)
        finally:
            self.close()

    async def answer_error(self, exc: Exception) -> None:
        """Answer in the place of what failed."""
        error = wire_error(exc, "an HTTP request")
        if self.state is STREAMING:
            self.cut()
        elif self.state is OPEN:
            await self.reply(500, jsonrpc.encode_failure(None, error.error))

    def close(self) -> None:
        """The request was served, unless it goes on without a task."""
        if self.detached:
            return
        self._move("close")
        # Breaks a reference cycle; the garbage collector would have to find one per request.
        self.owner = None
        self._open.remove(self)
        if self.large_body is not None:
            self.large_body.end()
        if self.watched:
            self.raw.unwatch()
