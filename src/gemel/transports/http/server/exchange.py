"""One HTTP request with its response: a bounded body in; JSON or an event stream out; whether the client has disconnected.

`Exchange` works on any `RawExchange`: a request of Gemel's own HTTP server, or an `AsgiExchange` of another one.
`OpenExchanges` watches the exchanges of one app that take long.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from math import ceil, inf
from typing import Any, ClassVar, Protocol

from gemel import jsonrpc
from gemel.errors import ChannelClosed, ErrorObject, InvalidRequest, Overloaded, wire_error
from gemel.http1.asgi import CLOSE, HeaderPairs, Message, Receive, Scope, Send
from gemel.jsonrpc import RequestId
from gemel.protocol.http import sse
from gemel.protocol.http.headers import body_too_large
from gemel.protocol.http.media_types import TAKES_EVENTS
from gemel.protocol.http.request import Refusal
from gemel.protocol.records import Batch, Call, Inbound, Origin, Outgoing, Record, RefusedMessage
from gemel.protocol.scopes import write_scopes
from gemel.shares import address_share
from gemel.structs import sets_like_slots
from gemel.telemetry import count
from gemel.transports.http.server.browser_page import PAGE, PAGE_HEADERS, PAGE_TYPE
from gemel.transports.http.server.options import Auth, HttpSettings

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

#: Bytes of an event stream that are written at once.
PIECE = 64 * 1024
#: Seconds (up to twice as many) after which a request is watched: from then on a disconnect of its client is noticed.
WATCH_AFTER = 0.005
#: Seconds between two looks for authorizations that have ended, at least: many may end one after the other.
EXPIRY_INTERVAL = 0.1
#: An ASGI server may send this many other messages before `http.disconnect`, beginning with the empty body of a GET.
_STRAY_MESSAGES = 4


def overloaded(text: str, *headers: tuple[bytes, bytes]) -> Refusal:
    """503 with `Overloaded`: the request was not served and may be repeated after the delay that the response names."""
    return Refusal(503, text, (*RETRY_LATER, *headers), Overloaded(text).error)


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


class RawExchange(Protocol):
    """One HTTP request with its response as an HTTP server offers it.

    The response is sent by `respond`, or by `start` and `piece`, or by the ASGI `send`.
    """

    @property
    def scope_view(self) -> Scope:
        """The ASGI scope of the request, to be read only: other requests may share it."""
        ...

    @property
    def scope(self) -> Scope:
        """The ASGI scope of the request, which may be changed."""
        ...

    @property
    def task(self) -> asyncio.Task[Any]:
        """The task that serves the request."""
        ...

    @property
    def head(self) -> bytes:
        """The bytes of the head if they are known to have come before, else empty: what follows from them can be looked up."""
        ...

    @property
    def body(self) -> bytes | bytearray:
        """What has arrived of the body and was not read: all of it, as bytes, if `head` is known."""
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

    def release(self) -> None:
        """Stop watching the client."""

    def cut(self) -> None:
        """Close the connection at once, without what was not sent yet, if the HTTP server allows it."""

    #: Whether the exchange can go on without a task.
    can_detach: ClassVar[bool]

    def detach(self) -> None:
        """Go on without a task when the present one is over, until `run`."""

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

    scope_view: Scope
    receive: Receive
    send: Send
    task: asyncio.Task[Any]
    head: bytes = b""
    body: bytes = b""
    _start: Message | None = None
    _watcher: asyncio.Task[None] | None = None
    #: What was received while the client was watched, before the body was read.
    _early: tuple[Message, ...] = ()
    #: The response ends when the app returns.
    can_detach: ClassVar[bool] = False

    @property
    def scope(self) -> Scope:
        return self.scope_view

    async def read(self, limit: int, grow: Callable[[int], None], /) -> bytes | None:
        self.release()
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

    def release(self) -> None:
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


class BodiesFull(Exception):
    """The budget is used up."""


class BodyBudget:
    """Bytes of the bodies of requests that are not over: while they arrive, and while their calls are served.

    Half of the budget is divided equally among all requests, the other half is shared: clients that send large bodies and
    never finish them do not keep small ones out. One body beyond its part is always read; with further ones an address takes at
    most as much of the shared half as it leaves to others.

    Args:
        total: Bytes.
        requests: Maximum number of requests at once.
    """

    def __init__(self, total: int, requests: int) -> None:
        self._part = total // 2 // requests
        self._shared = total // 2
        #: Bytes of the shared half that are in use; in all, and by address.
        self.used = 0
        self._used_by: Counter[str] = Counter()

    def begin(self, scope: Scope) -> GrowingBody:
        """Begin to read the body of a request."""
        return GrowingBody(self, self._part, scope)

    def take(self, size: int, held: int, holder: str) -> None:
        """Take bytes for a body that holds some already. Raises BodiesFull."""
        mine = self._used_by[holder]
        if self.used > held and (
            self.used + size > self._shared or (mine > held and mine + size > self._shared - self.used)
        ):
            raise BodiesFull
        self.used += size
        self._used_by[holder] += size

    def give_back(self, size: int, holder: str) -> None:
        """A body is no longer in memory."""
        self.used -= size
        self._used_by[holder] -= size
        if not self._used_by[holder]:
            del self._used_by[holder]


class GrowingBody:
    """What one body takes of the budget."""

    __slots__ = ("_address", "_budget", "_holders", "_part", "_scope", "held")

    def __init__(self, budget: BodyBudget, part: int, scope: Scope) -> None:
        self._budget = budget
        self._part = part
        self._scope = scope
        #: The share of the address that it comes from, once it has some of the shared half.
        self._address = ""
        #: Bytes of the shared half.
        self.held = 0
        #: What keeps the body in memory: its exchange, and tasks and functions in threads that may outlive it.
        self._holders = 1

    def grow(self, size: int) -> None:
        """The body has this many bytes now. Raises BodiesFull."""
        more = size - self._part - self.held
        if more > 0:
            if not self.held:
                client = self._scope.get("client")
                self._address = address_share(str(client[0]) if client else None)
            self._budget.take(more, self.held, self._address)
            self.held += more

    def hold(self, task: asyncio.Task[None], served: Call | Batch) -> None:
        """Count the body until the task that serves it is done, too."""
        self._holders += 1

        def end(_task: object) -> None:
            self.hold_for(served)
            self.end()

        task.add_done_callback(end)

    def hold_for(self, served: Call | Batch) -> None:
        """Count the body while anything keeps the params of what was served."""
        for call in served.calls if type(served) is Batch else (served,):
            self._holders += 1
            call.when_released(self.end)

    def end(self) -> None:
        """One of those that keep the body is over."""
        self._holders -= 1
        if not self._holders and self.held:
            self._budget.give_back(self.held, self._address)


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


@sets_like_slots
class Exchange(Record):
    """One request and its response. `close` ends it, once."""

    raw: RawExchange
    _open: OpenExchanges
    _options: HttpSettings
    _lock: asyncio.Lock | None = None
    _reading: bool = False
    _given_up: Refusal | None = None
    _lost: str = ""
    _quiet_since: float = 0.0
    #: What its body takes of the budget, if it had to be read piece by piece.
    growing: GrowingBody | None = None
    #: Notified when the client leaves.
    owner: ExchangeOwner | None = None
    #: Who sent the request, if it is to end with their authorization.
    origin: Origin | None = None
    #: Whether an event stream has begun, so that a JSON answer is no longer possible.
    streaming: bool = False
    #: Whether the head of an event stream was sent.
    started: bool = False
    #: Whether the response is complete or the client gone.
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
        self.growing = growing = self._open.bodies.begin(self.raw.scope_view)
        self._reading = True
        try:
            body = await self.raw.read(limit, growing.grow)
            if body is not None:
                growing.grow(len(body))
        except BodiesFull:
            return _BODIES_FULL
        except asyncio.CancelledError:
            if self._given_up is None:
                raise
            self.raw.task.uncancel()
            return self._given_up
        finally:
            self._reading = False
        if self.watched:
            self.watch()
        return body if body is None or len(body) <= limit else body_too_large(limit)

    # ---------------------------------------------------------------- out

    def reply(self, status: int, data: bytes, headers: HeaderPairs = (), kind: bytes = JSON_TYPE) -> Awaitable[None]:
        """Send the whole response in one piece."""
        self.over = True
        return self.raw.respond(status, kind, data, self._with_cors(headers))

    def answer(self, reply: Outgoing, headers: HeaderPairs = ()) -> Awaitable[None]:
        """Send the response to a message in one piece; with 503 goes a `Retry-After`, with 403 a challenge."""
        status = reply.status
        if status == 503:
            headers = (*headers, *retry_after(reply.error))
        elif status == 403:
            headers = (*headers, *step_up_headers(reply.error, self._options.auth, self.raw.scope_view))
        self.over = True
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
        if self._options.on_refused is not None and (scope := self.raw.scope_view).get("method") == "POST":
            method = inbound.method if isinstance(inbound, Call) else None
            self._options.on_refused(RefusedMessage(error, method, request_id, scope.get("gemel.principal")))
        return self.reply(refusal.status, jsonrpc.encode_failure(request_id, error), refusal.headers)

    def empty(self, status: int, headers: HeaderPairs = ()) -> Awaitable[None]:
        """Send a response without a body: 202 if there is no answer, 204."""
        self.over = True
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
            raise ChannelClosed(self._lost or LEFT)

    def write_now(self, data: bytes) -> bool:
        """Write a piece of an event stream that has begun, if that needs no waiting. Returns whether it was written."""
        if not self.started or self.over or len(data) > PIECE or (self._lock is not None and self._lock.locked()):
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
                self._finish()

    def _writing(self) -> asyncio.Lock:
        if self._lock is None:
            self._lock = asyncio.Lock()
            self.streaming = True
        return self._lock

    async def _put(self, data: bytes, more: bool) -> None:
        raw = self.raw
        if not self.started:
            raw.start(200, self._with_cors(STREAM_HEADERS))
            self.started = True
            count("gemel.server.active_streams", 1)
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
            self._lose(NOT_READING)
        except OSError:
            self._lose(LEFT)
        self._quiet_since = self._open.time()

    # ---------------------------------------------------------------- disconnect, timer, end

    def watch(self) -> None:
        """It takes long: notice from now on when the client leaves."""
        self._quiet_since = self._open.time()
        if not self._reading and not self.over:
            self.raw.watch(self._leave)
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

    def _leave(self) -> None:
        self._lose(LEFT)

    def _lose(self, reason: str) -> None:
        if not self.over:
            self._finish()
            self._lost = reason
            if self.owner is not None:
                self.owner.disconnected(reason)

    def _finish(self) -> None:
        if not self.over and self.started:
            count("gemel.server.active_streams", -1)
        self.over = True

    def beat(self, now: float) -> None:
        """Give up on a slow body; end what has expired; send a keep-alive on a quiet stream."""
        if self.origin is not None:
            self._check_expiry()
        quiet = now - self._quiet_since
        if self._reading:
            if quiet > self._options.body_wait:
                self._give_up(BODY_TOO_SLOW)
        elif (
            self.owner is not None
            and self.owner.accepts & TAKES_EVENTS
            and not self.over
            and quiet >= self._options.limits.keep_alive * 0.8
        ):
            self._open.keep(asyncio.get_running_loop().create_task(self._keep_alive()))

    def drain(self) -> None:
        """The server stops: a request whose body is not complete counts as new work."""
        self._give_up(STOPPING)

    def _give_up(self, refusal: Refusal) -> None:
        if self._reading and self._given_up is None:
            self._given_up = refusal
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

    def expire(self, reason: str) -> None:
        """The handler did not stop: answer in its place."""
        reply = None if self.over or self.owner is None else self.owner.unfinished(reason)
        if reply is not None:
            self._open.keep(asyncio.get_running_loop().create_task(self.finish(reply)))

    async def finish(self, reply: Outgoing) -> None:
        """End the response with an answer: the last event of a stream that has begun, else the whole body."""
        if self.streaming:
            await self.end(sse.encode(reply.data))
        elif not self.over:
            await self.answer(reply)

    def cut(self) -> None:
        """End it at once."""
        if not self.over:
            self.raw.cut()
            self._lose("the server is stopping")

    def detach(self) -> None:
        """Go on without a task when the present one is over."""
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
            await self.fail(exc)
        finally:
            self.close()

    async def fail(self, exc: Exception) -> None:
        """Answer in the place of what failed."""
        error = wire_error(exc, "an HTTP request")
        if self.streaming:
            self.cut()
        elif not self.over:
            await self.reply(500, jsonrpc.encode_failure(None, error.error))

    def close(self) -> None:
        """The request was served, unless it goes on without a task."""
        if self.detached:
            return
        if not self.over:
            self._finish()
        # Breaks a reference cycle; the garbage collector would have to find one per request.
        self.owner = None
        self._open.remove(self)
        if self.growing is not None:
            self.growing.end()
        if self.watched:
            self.raw.release()


class WatchedRequest(Protocol):
    """A request as `OpenExchanges` sees it."""

    watched: bool

    def watch(self) -> None:
        """It takes long: notice from now on when the client leaves."""

    def beat(self, now: float) -> None:
        """Called periodically while it is watched."""

    def drain(self) -> None:
        """The server takes no new work."""

    def stop(self, reason: str) -> None:
        """The time to drain is over."""

    def expire(self, reason: str) -> None:
        """Its handler did not stop."""

    def cut(self) -> None:
        """It is still open after `expire`."""


class OpenExchanges:
    """The requests of one app that are not over, and the one timer that looks after the slow ones.

    A request that is answered within a few milliseconds costs two set operations and no timer of its own.
    `each_beat(now)` is called periodically while a request is watched or `needed()` is true.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: HttpSettings,
        each_beat: Callable[[float], None],
        needed: Callable[[], bool],
    ) -> None:
        limits = options.limits
        self._loop = loop
        #: The time of the event loop.
        self.time = loop.time
        self._period = min(limits.keep_alive / 4, limits.session_idle / 4, options.body_wait / 4)
        self._each_beat = each_beat
        self._needed = needed
        self.bodies = BodyBudget(limits.bodies, options.requests)
        #: How many requests are not over.
        self.running = 0
        #: Whether new requests are turned away.
        self.stopping = False
        #: Requests by age: since the last look, since the one before, and those that are watched.
        self._young: set[WatchedRequest] = set()
        self._old: set[WatchedRequest] = set()
        self._watched: set[WatchedRequest] = set()
        #: When the next authorization of a watched request ends, in seconds since 1970.
        self._next_expiry = inf
        self._tasks: set[asyncio.Task[None]] = set()
        self._look_handle: asyncio.TimerHandle | None = None
        self._beat_handle: asyncio.TimerHandle | None = None

    def add(self, request: WatchedRequest) -> None:
        """Count and watch a request until `remove`."""
        self.running += 1
        self._young.add(request)
        if self._look_handle is None:
            self._look_handle = self._loop.call_later(WATCH_AFTER, self._look)

    def remove(self, request: WatchedRequest) -> None:
        """The request is over."""
        self.running -= 1
        if request.watched:
            self._watched.discard(request)
        else:
            self._young.discard(request)
            self._old.discard(request)

    def everyone(self) -> list[WatchedRequest]:
        """All requests that are not over."""
        return [*self._young, *self._old, *self._watched]

    def _look(self) -> None:
        slow, self._old, self._young = self._old, self._young, set()
        self._look_handle = self._loop.call_later(WATCH_AFTER, self._look) if self._old else None
        for request in slow:
            request.watched = True
            self._watched.add(request)
            request.watch()
        if slow:
            self.wake()

    def wake(self) -> None:
        """Start the periodic timer: there is something to look after."""
        if self._beat_handle is None:
            self._beat_handle = self._loop.call_later(self._delay(), self._beat)

    def beat_at(self, expires: float) -> None:
        """Look after the watched requests when an authorization ends, at the latest; in seconds since 1970."""
        if expires < self._next_expiry:
            self._next_expiry = expires
            if self._beat_handle is not None:
                self._beat_handle.cancel()
                self._beat_handle = self._loop.call_later(self._delay(), self._beat)

    def _delay(self) -> float:
        return min(self._period, max(self._next_expiry - time.time(), EXPIRY_INTERVAL))

    def _beat(self) -> None:
        self._beat_handle = None
        self._next_expiry = inf
        now = self._loop.time()
        for request in list(self._watched):
            request.beat(now)
        self._each_beat(now)
        if self._watched or self._needed():
            self.wake()

    def keep(self, task: asyncio.Task[None]) -> None:
        """Hold a reference to a background task; the event loop has only a weak one."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """Cancel the timers."""
        for handle in (self._look_handle, self._beat_handle):
            if handle is not None:
                handle.cancel()
        self._look_handle = self._beat_handle = None
