"""Requests over HTTP and their answers.

`RemoteEndpoint` makes a request: headers of the user, authorization, redirects. `run_exchange` follows one request to its
answer: JSON, an event stream, a stream that is resumed, or an error status. An `Inbox` gives the messages of all streams
to the conversation.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import urljoin

from hinge.channel import Conversation
from hinge.errors import (
    CallError,
    ConnectionLost,
    DefinitionError,
    ErrorObject,
    HingeError,
    HttpStatus,
    InvalidResponse,
    NotSent,
    PeerError,
    ProtocolError,
    SessionEnded,
    shorten,
)
from hinge.http1.client.pool import check_name, read_url
from hinge.http1.client.wire import HeaderPairs, Wire, WireResponse
from hinge.jsonrpc import Failure, Response, decode, is_batch, is_no_answer, split_batch
from hinge.options import are_texts
from hinge.protocol.calls import Call, Inbound, Outgoing, Pending
from hinge.protocol.eras import detect
from hinge.protocol.http.media_types import EVENT_STREAM, JSON, media_type
from hinge.protocol.http.sse import Decoder, Event
from hinge.protocol.limits import Limits
from hinge.protocol.states import PendingState
from hinge.transports.http.client.options import AuthValue, Credentials, UserHeaders

logger = logging.getLogger("hinge")

#: Maximum number of redirects in a row, and of refusals (401, 403) in a row that the credentials may react to.
MAX_REDIRECTS = 5
MAX_REFUSALS = 3

#: Headers that the protocol or the connection sets; those of the user are ignored.
_OURS = frozenset(
    {"accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "host", "te"}
    | {"last-event-id", "mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id", "trailer", "upgrade"}
    | {"transfer-encoding"}
)
_SAME_METHOD = (301, 302, 307, 308)
_REDIRECTS = (*_SAME_METHOD, 303)

#: This much of a body is read if only an excerpt is wanted.
ERROR_BYTES = 4096

#: Statuses that are about access or load, not about the message, whatever error object their body holds.
_ABOUT_ACCESS = frozenset({401, 403, 407, 429, 502, 503, 504})
_UNKNOWN_METHOD = -32601


class RemoteEndpoint:
    """Makes requests to one URL over one Wire."""

    def __init__(
        self, url: str, wire: Wire, headers: UserHeaders | None = None, auth: AuthValue | Credentials | None = None
    ) -> None:
        self.url = url
        self._wire = wire
        self._auth = auth
        self._fixed: list[tuple[str, str]] = [("User-Agent", "hinge")]
        self._asked: Callable[[], object] | None = None
        if callable(headers):
            self._asked = headers
        elif headers is not None:
            self._fixed = user_headers(headers)
        #: Whether no function has to be called before a request.
        self._plain = self._asked is None and auth is None

    async def request(self, method: str, headers: HeaderPairs, body: bytes | None = None) -> WireResponse:
        """Make a request and follow redirects.

        Args:
            method: The HTTP method.
            headers: The headers of this request.
            body: The body, None for none.

        Raises:
            NotSent: The request never left.
            ConnectionLost: The connection broke.
            InvalidResponse: The answer is not HTTP.
            HttpStatus: A redirect is not allowed, or the credentials gave up after a refusal.
        """
        if self._plain:
            fixed = self._fixed if len(self._fixed) == 1 else _unless_given(headers, self._fixed)
            response = await self._wire.open(method, self.url, [*headers, *fixed], body)
            if response.status not in _REDIRECTS:
                return response
            return await self._elsewhere(method, [*headers, *fixed], body, response)
        refusals = 0
        while True:
            asked, sent = await self._ask()
            pairs = [*headers, *_unless_given(headers, asked)]
            response = await self._wire.open(method, self.url, pairs, body)
            if response.status in _REDIRECTS:
                response = await self._elsewhere(method, pairs, body, response)
            if response.status not in (401, 403) or not isinstance(self._auth, Credentials):
                return response
            refusals += 1
            refusal = await refusal_of(response, f"The server refuses {method}")
            if refusals > MAX_REFUSALS or not await self._auth.refused(refusal, sent):
                raise refusal

    async def close(self) -> None:
        """Close the wire."""
        await self._wire.close()

    async def _ask(self) -> tuple[list[tuple[str, str]], str | None]:
        """Return the headers of the user for the next request, and the Authorization among them."""
        try:
            given = self._asked() if self._asked is not None else None
            if inspect.isawaitable(given):
                given = await given
            headers = self._fixed if given is None else user_headers(cast("Mapping[str, str]", given))
            value = self._auth() if self._auth is not None else None
            if inspect.isawaitable(value):
                value = await value
        except CallError:
            raise
        except Exception as exc:
            raise NotSent(f"The headers for {self.url} could not be made: {type(exc).__name__}: {exc}") from exc
        if value is None:
            return headers, None
        return [*(pair for pair in headers if pair[0].lower() != "authorization"), ("Authorization", value)], value

    async def _elsewhere(
        self, method: str, headers: HeaderPairs, body: bytes | None, response: WireResponse
    ) -> WireResponse:
        """Follow redirects within the origin with the same method; remember a permanent one."""
        url, permanent = self.url, True
        for _ in range(MAX_REDIRECTS):
            url = self._location(url, response)
            permanent = permanent and response.status in (301, 308)
            response.release(finish=True)
            response = await self._wire.open(method, url, headers, body)
            if response.status not in _REDIRECTS:
                if permanent:
                    self.url = url
                return response
        status = status_error(f"More than {MAX_REDIRECTS} redirects", response.status, response.headers)
        response.release()
        raise status

    def _location(self, url: str, response: WireResponse) -> str:
        """Return the target of a redirect, if it may be followed: messages go only to the origin that the user named."""
        location = response.headers.get("location", "")
        try:
            target = urljoin(url, location).partition("#")[0]
            same = bool(location) and read_url(target).origin == read_url(url).origin
        except (DefinitionError, ValueError):
            target, same = shorten(location), False
        if same and response.status in _SAME_METHOD:
            return target
        why = f"The server redirects to {target!r}" if location else "The server redirects to nowhere"
        if not same:
            why += ", which is not the same scheme, host and port. Use that URL if you trust it"
        response.release()
        raise status_error(why, response.status, response.headers)


def user_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Check headers for every request; drop those that the protocol sets itself."""
    pairs = _checked(headers)
    if all(name.lower() != "user-agent" for name, _ in pairs):
        pairs.append(("User-Agent", "hinge"))
    return pairs


def call_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Check headers for one request.

    Args:
        headers: Names and values.

    Returns:
        The headers without those that the protocol sets itself.

    Raises:
        DefinitionError: A header can't be sent.
    """
    pairs = _checked(headers)
    if any(name.lower() == "user-agent" for name, _ in pairs):
        raise DefinitionError(
            "`headers` of one request: the User-Agent is a header of the client, Client(…, headers=…)"
        )
    return pairs


def _checked(headers: Any) -> list[tuple[str, str]]:
    if not (isinstance(headers, Mapping) and are_texts(headers) and are_texts(list(headers.values()))):
        raise DefinitionError('`headers` must map header names to text: {"X-Name": "value"}')
    pairs = [(name, value) for name, value in headers.items() if name.lower() not in _OURS]
    try:
        for name, value in pairs:
            check_name(name)
            if set(value) & {"\r", "\n", "\0"}:
                raise NotSent(f"The value of the header {name} holds a line end or NUL")
    except NotSent as exc:
        raise DefinitionError(f"`headers` must map header names to text: {exc}") from None
    return pairs


def _unless_given(headers: HeaderPairs, fixed: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the headers of the client that a request does not have itself."""
    given = {name.lower() for name, _ in headers}
    return [pair for pair in fixed if pair[0].lower() not in given]


# --- One request and its answer ----------------------------------------------------------------------------------------


class ExchangeChannel(Protocol):
    """What an exchange needs from its channel."""

    inbox: Inbox
    limits: Limits

    async def post(self, message: Outgoing, /) -> WireResponse:
        """POST a message."""
        ...

    async def get(self, last_event_id: str, /) -> WireResponse:
        """Open a stream with GET, after an event."""
        ...

    def session_of(self, message: Outgoing, /) -> str | None:
        """The id of the HTTP session that the message will be posted in, if any."""
        ...

    def session_ended(self, session: str, message: Outgoing, /) -> None:
        """The server answered the message that it no longer knows this HTTP session.

        A waiting caller gets an error; if none waits, the conversation ends.
        """
        ...

    def is_legacy(self, message: Outgoing, /) -> bool:
        """Whether the message belongs to the handshake era: its streams can be resumed and may carry requests."""
        ...


async def run_exchange(channel: ExchangeChannel, message: Outgoing, pending: Pending) -> None:
    """POST a request and feed its answer to the conversation until the request is settled.

    Raises:
        CallError: The request was not settled; `outcome` says how far it got.
    """
    session, legacy = channel.session_of(message), channel.is_legacy(message)
    try:
        response = await channel.post(message)
        try:
            if response.status >= 300:
                raise await refusal(channel, message, response, session)
            content_type = response.headers.get("content-type")
            kind = content_type if content_type == JSON else media_type(content_type)
            if kind == JSON:
                body = await read_body(response, channel.limits.reply, pending.method)
                channel.inbox.answer(body, pending, legacy=legacy)
            elif kind == EVENT_STREAM:
                await _Follower(channel, pending, legacy).follow(response)
            else:
                raise await _no_answer(response, pending.method)
        finally:
            response.release(finish=pending.state is PendingState.ANSWERED)
    except CallError:
        if pending.state is PendingState.WAITING:
            raise
    if pending.state is PendingState.WAITING:
        raise InvalidResponse(f"The server answered {pending.method} with a message that is not an answer")


async def read_body(response: WireResponse, limit: int, about: str) -> bytes:
    """Read the whole content. Raises InvalidResponse if it is longer than `limit` bytes."""
    body = await response.read()
    size = len(body)
    parts = [body]
    while size <= limit:
        piece = await response.read()
        if not piece:
            return body if len(parts) == 1 else b"".join(parts)
        parts.append(piece)
        size += len(piece)
    raise InvalidResponse(
        f"The server's answer to {about} has more than {limit} bytes. Raise `limits.reply` to take it"
    )


async def refusal(
    channel: ExchangeChannel, message: Outgoing, response: WireResponse, session: str | None
) -> CallError:
    """Make the error for a message that was answered with an HTTP error status.

    A JSON-RPC error without id, or with the id of the message, becomes a PeerError, unless the status is about access or
    load.
    """
    status = response.status
    is_json = media_type(response.headers.get("content-type")) == JSON
    body = await read_start(response, channel.limits.reply if is_json else ERROR_BYTES)
    failure = _failure(body) if is_json else None
    what = f"The server refuses {message.method or 'an answer'}"
    error = failure.error if failure is not None else None
    known = error is not None and error.code == _UNKNOWN_METHOD
    if status == 404 and session is not None and not known:
        channel.session_ended(session, message)
        return session_ended(what, status, response.headers, body, error)
    if failure is not None and status not in _ABOUT_ACCESS and failure.id in (None, message.id):
        return PeerError(failure.error)
    return status_error(what, status, response.headers, body, error)


def _failure(body: bytes) -> Failure | None:
    try:
        message = decode(body)
    except ProtocolError:
        return None
    return message if isinstance(message, Failure) else None


async def _no_answer(response: WireResponse, about: str) -> InvalidResponse:
    """Make the error for a 2xx that holds neither JSON nor events."""
    kind = response.headers.get("content-type")
    body = await read_start(response, ERROR_BYTES)
    if not body:
        return InvalidResponse(f"The server accepted {about} (HTTP {response.status}) and gave no answer")
    what = f"content of the type {kind!r}" if kind else "content without a type"
    return InvalidResponse(f"The server answered {about} with {what}: {excerpt(body)}. Is the URL an MCP endpoint's?")


class _Follower:
    """Follows the stream of one request to its answer, reconnecting as often as needed."""

    def __init__(self, channel: ExchangeChannel, pending: Pending, legacy: bool) -> None:
        self._channel = channel
        self._pending = pending
        self._legacy = legacy
        self._cursor = Cursor()
        self._backoff = Backoff()
        self._resumed = False
        self._response: WireResponse | None = None
        self._taking = False
        self._over = asyncio.Event()

    async def follow(self, response: WireResponse | None) -> None:
        """Feed events until the request is settled. Raises ConnectionLost if no answer will come."""
        pending = self._pending
        pending.wake = self._settled
        try:
            while response is not None:
                self._response = response
                reason = await self._feed(response)
                response.release(finish=pending.state is PendingState.ANSWERED)
                self._response = None
                if pending.state is not PendingState.WAITING:
                    await self._channel.inbox.heard()
                    return
                if not self._legacy or not self._cursor.last_id:
                    raise ConnectionLost(f"The answer to {pending.method} ended without a result: {reason}")
                response = await self._resume(reason)
                self._resumed = True
        finally:
            pending.wake = None

    def _settled(self) -> None:
        """The request is over. If another stream settled it, stop waiting on this one."""
        if not self._taking:
            self._over.set()
            if self._response is not None:
                self._response.release()

    async def _feed(self, response: WireResponse) -> str:
        """Take events until the request is settled or the stream is over; returns how it ended."""
        reader = EventReader(response, self._channel.limits.reply)
        try:
            while (events := await reader.read()) is not None:
                for event in events:
                    self._take(event)
                    if self._pending.state is not PendingState.WAITING:
                        return ""
                await self._channel.inbox.room()
        except ConnectionLost as exc:
            return str(exc)
        except BaseException:
            response.release()
            raise
        return "the server closed the stream"

    def _take(self, event: Event) -> None:
        self._cursor.note(event)
        if event.data and event.type == "message":  # an opening event has no data
            self._backoff.progress()
            self._taking = True
            try:
                self._channel.inbox.answer(event.data, self._pending, legacy=self._legacy, replay=self._resumed)
            finally:
                self._taking = False

    async def _resume(self, reason: str) -> WireResponse | None:
        """Reopen the stream after its last event, when it is due. Returns None if the request is over."""
        about = self._pending.method
        while (delay := self._backoff.wait(self._cursor.retry)) is not None:
            try:
                async with asyncio.timeout(delay):
                    await self._over.wait()
                return None
            except TimeoutError:
                pass
            try:
                response = await self._channel.get(self._cursor.last_id)
            except (NotSent, ConnectionLost) as exc:
                reason = str(exc)
                continue
            except CallError as exc:
                raise ConnectionLost(f"The answer to {about} broke off and could not be resumed: {exc}") from exc
            status = response.status
            if status == 200 and media_type(response.headers.get("content-type")) == EVENT_STREAM:
                return response
            response.release(finish=True)
            reason = f"HTTP {status}"
            if status < 500 and status not in (408, 429):
                break
        raise ConnectionLost(f"The answer to {about} broke off and could not be resumed: {reason}")


# --- Messages ---------------------------------------------------------------------------------------------------------

#: Seconds before an answer that got lost is sent again. The server waits for it and accepts only one.
_PAUSES = (0.2, 0.8)
#: Maximum number of answers in delivery at once, each on a connection of its own.
_DELIVERIES = 32


class Inbox:
    """Gives the messages of all streams to one conversation, and owns the tasks that answer the server's requests.

    Args:
        conversation: What receives the messages.
        deliver: POSTs a reply to the server.
        limits: Limits of calls and batches.
    """

    def __init__(
        self, conversation: Conversation, deliver: Callable[[Outgoing], Awaitable[None]], limits: Limits
    ) -> None:
        self._conversation = conversation
        self._deliver_now = deliver
        self._deliveries = asyncio.Semaphore(_DELIVERIES)
        self._limits = limits
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(self, data: bytes, pending: Pending, *, legacy: bool, replay: bool = False) -> None:
        """Take one message from the response to a request.

        Args:
            data: The message.
            pending: The request.
            legacy: Whether the request belongs to the handshake era, so that the server may send requests.
            replay: Whether the stream was resumed, so that it may repeat answers to other requests.

        Raises:
            InvalidResponse: The data is not a message, or an answer to another request.
            PeerError: The answer is an error without id, which on this stream means the request.
        """
        for inbound in self._read(data, pending.method):
            message = inbound.message
            if isinstance(message, Response | Failure):
                if message.id is None:
                    raise PeerError(message.error)
                if message.id != pending.id:
                    if replay:
                        continue
                    raise InvalidResponse(
                        f"The server answered {pending.method} with the id {message.id!r}, not {pending.id!r}"
                    )
            self._feed(inbound, legacy=legacy)

    def notice(self, data: bytes) -> bool:
        """Take one message from the standing stream. Returns False if it is useless; never raises."""
        try:
            inbounds = self._read(data, "The server's own stream")
        except InvalidResponse as exc:
            logger.warning("%s", exc)
            return False
        # Answers do not belong here, but some servers send them here when the stream of the call has ended.
        useful = [inbound for inbound in inbounds if getattr(inbound.message, "id", "") is not None]
        for inbound in useful:
            self._feed(inbound, legacy=True)
        return bool(useful)

    async def room(self) -> None:
        """Wait while too many requests of the server are being answered."""
        while len(self._tasks) >= self._limits.calls:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def heard(self) -> None:
        """Let requests that came before an answer start before the caller gets the answer."""
        if self._tasks:
            await asyncio.sleep(0)

    def end(self, reason: str) -> None:
        """Close the conversation."""
        self._conversation.close(reason)

    async def close(self) -> None:
        """Stop the tasks; waits for a bounded time."""
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._limits.teardown)

    def _read(self, data: bytes, about: str) -> Iterable[Inbound]:
        """Decode a message, or those of a batch."""
        try:
            if is_batch(data):
                return [detect.read(item) for item in split_batch(data, self._limits.batch)]
            return (detect.read(data),)
        except ProtocolError as exc:
            if is_no_answer(data):
                logger.warning(
                    "%s: what came beside the answer is not a message: %s: %s", about, str(exc), excerpt(data)
                )
                return ()
            raise InvalidResponse(
                f"{about}: the server sent data that is not a message: {exc}: {excerpt(data)}"
            ) from exc

    def _feed(self, inbound: Inbound, *, legacy: bool) -> None:
        got = self._conversation.receive(inbound)
        if got is None:
            return
        if isinstance(got, Outgoing):
            if legacy:
                self._start(self._deliver(got))
        elif legacy or (isinstance(got, Call) and got.id is None):
            self._start(self._serve(got))
        else:
            # In the stateless era a stream carries no requests and a client sends no responses.
            logger.warning("The server sent a request on a stream that can't carry one; it is not answered")
            self._conversation.cancel(got, "requests can't be answered on this stream")

    async def _deliver(self, reply: Outgoing) -> None:
        async with self._deliveries:
            await self._deliver_now(reply)

    async def _serve(self, call: Any) -> None:
        reply = await self._conversation.answer(call)
        if reply is None:
            return
        for pause in _PAUSES:
            try:
                await self._deliver(reply)
            except (NotSent, ConnectionLost) as exc:
                logger.debug("An answer is sent again: %s", exc)
                await asyncio.sleep(pause)
            else:
                return
        await self._deliver(reply)

    def _start(self, work: Awaitable[None]) -> None:
        assert isinstance(work, Coroutine)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        exc = task.exception()
        if isinstance(exc, HingeError):
            logger.warning("An answer did not reach the server: %s", exc)
        elif exc is not None:
            logger.error("Answering the server failed", exc_info=exc)


# --- Event streams ----------------------------------------------------------------------------------------------------

#: Event ids that are longer can't go back in a header.
_ID_LENGTH = 4096


class Cursor:
    """How far a stream was read: the last event id, and the seconds to wait before resuming."""

    __slots__ = ("last_id", "retry")

    def __init__(self) -> None:
        self.last_id = ""
        self.retry = 0.0

    def note(self, event: Event) -> None:
        """Remember the id and `retry` of an event."""
        if event.id is not None:
            usable = event.id.isprintable() and len(event.id) <= _ID_LENGTH
            self.last_id = event.id if usable else ""
        if event.retry is not None:
            self.retry = event.retry / 1000


class Backoff:
    """When to reconnect: after 0.5 s to 30 s, doubling, with jitter; after 8 tries without progress, never.

    The server's `retry` makes a wait longer, not shorter. The minimum is 0.2 s.
    """

    FIRST = 0.5
    MOST = 30.0
    FLOOR = 0.2
    TRIES = 8

    __slots__ = ("tries",)

    def __init__(self) -> None:
        self.tries = 0

    def progress(self) -> None:
        """Reset the tries: a message came."""
        self.tries = 0

    def wait(self, retry: float) -> float | None:
        """Return the seconds until the next try, None after the last one."""
        if self.tries >= self.TRIES:
            return None
        full = min(self.FIRST * float(2**self.tries), self.MOST)
        self.tries += 1
        return max(retry, self.FLOOR, full * random.uniform(0.5, 1.0))


class EventReader:
    """Reads the events of one response."""

    __slots__ = ("_decoder", "_over", "_response")

    def __init__(self, response: WireResponse, limit: int) -> None:
        self._response = response
        self._decoder = Decoder(limit)
        self._over = False

    async def read(self) -> list[Event] | None:
        """Read the next events; None at a regular end of the stream.

        Raises:
            ConnectionLost: The stream broke off.
            InvalidResponse: An event exceeds the limit.
        """
        while not self._over:
            piece = await self._response.read()
            self._over = not piece
            events = self._decoder.feed(piece) if piece else self._decoder.end()
            if events:
                return events
        return None


# --- Errors -----------------------------------------------------------------------------------------------------------

#: Bytes of a body that is not a message in an error text.
EXCERPT_BYTES = 200
#: The headers of an error response that an HttpStatus keeps.
_KEPT_HEADERS = ("www-authenticate", "retry-after", "location", "content-type", "allow")

_HINTS = {
    401: 'The server wants authorization (auth=… in code, "headers" in a configuration, --header on the command line)',
    403: "The credentials do not allow it, or the server refuses where it comes from (Origin, Host)",
    404: "Is the path of the URL right?",
    405: "Is this the URL of an MCP endpoint over Streamable HTTP?",
    413: "The message is larger than the server takes",
    429: "The server asks to slow down",
    431: "The headers are larger than the server takes",
}


ErrorT = TypeVar("ErrorT", bound=HttpStatus)


def excerpt(body: bytes) -> str:
    """The start of a body that is no message, on one channel, fit for an error."""
    text = body[: EXCERPT_BYTES + 1].decode("utf-8", "replace")
    return shorten(" ".join("".join(c if c.isprintable() else " " for c in text).split()), EXCERPT_BYTES)


def status_error(
    what: str, status: int, headers: Mapping[str, str], body: bytes = b"", error: ErrorObject | None = None
) -> HttpStatus:
    """Make the error for an HTTP status: what was requested, what came, what to do."""
    return _status_error(HttpStatus, what, status, headers, body, error)


def session_ended(
    what: str, status: int, headers: Mapping[str, str], body: bytes = b"", error: ErrorObject | None = None
) -> SessionEnded:
    """Make the error for an HTTP session that the server no longer knows."""
    return _status_error(SessionEnded, what, status, headers, body, error)


def _status_error(
    kind: type[ErrorT], what: str, status: int, headers: Mapping[str, str], body: bytes, error: ErrorObject | None
) -> ErrorT:
    text = excerpt(body)
    said = f"{error.message} ({error.code})" if error is not None else text
    parts = [f"{what}: HTTP {status}", shorten(said), _HINTS.get(status, "")]
    message = ". ".join(part for part in parts if part)
    kept = {name: headers[name] for name in _KEPT_HEADERS if name in headers}
    return kind(message, status, kept, text, error)


async def read_start(response: WireResponse, limit: int) -> bytes:
    """Read about `limit` bytes of a body and discard the rest. A broken connection counts as the end."""
    parts: list[bytes] = []
    size = 0
    try:
        while size < limit and (piece := await response.read()):
            parts.append(piece)
            size += len(piece)
    except (ConnectionLost, InvalidResponse):
        pass
    response.release()
    return b"".join(parts)


async def refusal_of(response: WireResponse, what: str) -> HttpStatus:
    """Make the error for a response with an excerpt of its body."""
    return status_error(what, response.status, response.headers, await read_start(response, ERROR_BYTES))
