"""One request over HTTP and all of its answer: JSON, a stream, a stream that is resumed, or a refusal.

Runs in the task of whoever asks. Knows what a response means for the request; must not know how requests are made.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from hinge.errors import CallError, ConnectionLost, InvalidResponse, NotSent, PeerError, ProtocolError
from hinge.http1.client.wire import WireResponse
from hinge.jsonrpc import Failure, decode
from hinge.protocol.calls import Outgoing, Pending
from hinge.protocol.http.media_types import EVENT_STREAM, JSON, media_type
from hinge.protocol.http.sse import Event
from hinge.protocol.limits import Limits
from hinge.protocol.states import PendingState
from hinge.transports.http.client.endpoint import ERROR_BYTES, read_start
from hinge.transports.http.client.errors import excerpt, session_ended, status_error
from hinge.transports.http.client.events import Backoff, Cursor, EventReader
from hinge.transports.http.client.inbox import Inbox

#: Statuses that are about access or load, not about the message, whatever error object their body holds.
_ABOUT_ACCESS = frozenset({401, 403, 407, 429, 502, 503, 504})
_UNKNOWN_METHOD = -32601


class Line(Protocol):
    """What an exchange needs of its channel."""

    inbox: Inbox
    limits: Limits

    async def post(self, message: Outgoing, /) -> WireResponse:
        """POST a message."""
        ...

    async def get(self, last_event_id: str, /) -> WireResponse:
        """Open a stream with GET, after an event."""
        ...

    def session_of(self, message: Outgoing, /) -> str | None:
        """The id of the session that the message will be posted in, if any."""
        ...

    def session_ended(self, session: str, message: Outgoing, /) -> None:
        """The server no longer knows this session, as it said to the message.

        Who waits for the answer learns it by the error; where nobody waits, by the end of the conversation.
        """
        ...

    def is_legacy(self, message: Outgoing, /) -> bool:
        """Whether the message belongs to the handshake era: its streams can be resumed and may carry requests."""
        ...


async def run_exchange(line: Line, message: Outgoing, pending: Pending) -> None:
    """POST a request and feed its answer until the request is settled.

    Raises a CallError that says what became of the request if it isn't settled then.
    """
    session = line.session_of(message)
    try:
        response = await line.post(message)
        try:
            await _take(line, message, pending, response, session)
        finally:
            response.release(finish=pending.state is PendingState.ANSWERED)
    except CallError:
        if pending.state is PendingState.WAITING:
            raise
    if pending.state is PendingState.WAITING:
        raise InvalidResponse(f"The server answered {pending.method} with a message that is no answer")


async def _take(line: Line, message: Outgoing, pending: Pending, response: WireResponse, session: str | None) -> None:
    """Feed what the response holds."""
    if response.status >= 300:
        raise await refusal(line, message, response, session)
    kind = media_type(response.headers.get("content-type"))
    if kind == JSON:
        body = await read_body(response, line.limits.reply, pending.method)
        line.inbox.answer(body, pending, legacy=line.is_legacy(message))
    elif kind == EVENT_STREAM:
        await _Follower(line, message, pending).follow(response)
    else:
        raise await _no_answer(response, pending.method)


async def read_body(response: WireResponse, limit: int, about: str) -> bytes:
    """The whole content, decoded. Raises InvalidResponse when it is longer than `limit` bytes."""
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


async def refusal(line: Line, message: Outgoing, response: WireResponse, session: str | None) -> CallError:
    """The error for a message, posted in a session, that was answered with an HTTP error status.

    A JSON-RPC error that names no request, or this one, becomes a PeerError unless the status is about access or load.
    """
    status = response.status
    is_json = media_type(response.headers.get("content-type")) == JSON
    body = await read_start(response, line.limits.reply if is_json else ERROR_BYTES)
    failure = _failure(body) if is_json else None
    what = f"The server refuses {message.method or 'an answer'}"
    error = failure.error if failure is not None else None
    known = error is not None and error.code == _UNKNOWN_METHOD
    if status == 404 and session is not None and not known:
        line.session_ended(session, message)
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
    """The error for a 2xx that holds neither JSON nor events."""
    kind = response.headers.get("content-type")
    body = await read_start(response, ERROR_BYTES)
    if not body:
        return InvalidResponse(f"The server accepted {about} (HTTP {response.status}) and gave no answer")
    what = f"content of the type {kind!r}" if kind else "content without a type"
    return InvalidResponse(f"The server answered {about} with {what}: {excerpt(body)}. Is the URL an MCP endpoint's?")


class _Follower:
    """Follows the stream of one request to its answer, over as many connections as that takes."""

    def __init__(self, line: Line, message: Outgoing, pending: Pending) -> None:
        self._line = line
        self._pending = pending
        self._legacy = line.is_legacy(message)
        self._cursor = Cursor()
        self._backoff = Backoff()
        self._resumed = False
        self._response: WireResponse | None = None
        self._taking = False
        self._over = asyncio.Event()

    async def follow(self, response: WireResponse | None) -> None:
        """Feed events until the request is settled. Raises ConnectionLost when no answer will come."""
        pending = self._pending
        pending.wake = self._settled
        try:
            while response is not None:
                self._response = response
                reason = await self._feed(response)
                response.release(finish=pending.state is PendingState.ANSWERED)
                self._response = None
                if pending.state is not PendingState.WAITING:
                    await self._line.inbox.heard()
                    return
                if not self._legacy or not self._cursor.last_id:
                    raise ConnectionLost(f"The answer to {pending.method} ended without a result: {reason}")
                response = await self._resume(reason)
                self._resumed = True
        finally:
            pending.wake = None

    def _settled(self) -> None:
        """The request is over. If that isn't this stream's doing, nothing more need be waited for here."""
        if not self._taking:
            self._over.set()
            if self._response is not None:
                self._response.release()

    async def _feed(self, response: WireResponse) -> str:
        """Take events until the request is settled or the stream is over; returns how it ended."""
        reader = EventReader(response, self._line.limits.reply)
        try:
            while (events := await reader.read()) is not None:
                for event in events:
                    self._take(event)
                    if self._pending.state is not PendingState.WAITING:
                        return ""
                await self._line.inbox.room()
        except ConnectionLost as exc:
            return str(exc)
        except BaseException:
            response.release()
            raise
        return "the server closed the stream"

    def _take(self, event: Event) -> None:
        self._cursor.note(event)
        if event.data and event.type == "message":  # LHTTP-08
            self._backoff.progress()
            self._taking = True
            try:
                self._line.inbox.answer(event.data, self._pending, legacy=self._legacy, replay=self._resumed)
            finally:
                self._taking = False

    async def _resume(self, reason: str) -> WireResponse | None:
        """Open the stream again after its last event, in due time (LHTTP-10, LHTTP-18). None when it is over."""
        about = self._pending.method
        while (delay := self._backoff.wait(self._cursor.retry)) is not None:
            try:
                async with asyncio.timeout(delay):
                    await self._over.wait()
                return None
            except TimeoutError:
                pass
            try:
                response = await self._line.get(self._cursor.last_id)
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
