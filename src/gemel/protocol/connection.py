"""The protocol state of one connection, without I/O: everything that is in flight, changed in one place.

There are two tables: calls that we have to answer, and requests that the peer has to answer. Each has one function that
removes entries, so no request is answered twice or after its cancellation, and none stays open. What a cancellation does is
decided here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gemel import jsonrpc
from gemel.errors import (
    ConnectionLost,
    GemelError,
    InsufficientScope,
    InvalidParams,
    InvalidRequest,
    InvalidResponse,
    NotSent,
    Overloaded,
    PeerError,
    ProtocolError,
    shorten,
    wire_error,
)
from gemel.jsonrpc import Failure, Notification, Request, RequestId, Response, Unreadable
from gemel.protocol.decoding import SMALL, check_values
from gemel.protocol.description import ServerDescription
from gemel.protocol.deviations import Deviations
from gemel.protocol.eras import detect
from gemel.protocol.eras.base import NO_HANDSHAKE, Era, Handshake
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.http.mirror import HeaderTexts
from gemel.protocol.limits import DEFAULT_LIMITS, Limits
from gemel.protocol.mending import mend
from gemel.protocol.peer_log import warn_about_peer
from gemel.protocol.records import (
    UNKNOWN_ORIGIN,
    Batch,
    Call,
    Inbound,
    LostAnswer,
    Origin,
    Outgoing,
    Pending,
    Record,
    RefusedMessage,
)
from gemel.protocol.states import CALL_MOVES, CLOSED, PENDING_MOVES, RUNNING, WAITING, HandshakeState
from gemel.schema.notifications import CancelledParams
from gemel.values.encoding import encode_value

logger = logging.getLogger("gemel")

_cancelled = msgspec.json.Decoder(CancelledParams)

#: So many requests of `Era.liveness_method` are served beyond the limits of running calls: a busy server is not a dead one.
LIVENESS_RESERVE = 8

#: They are handled while they are received, and no handler keeps their params.
_AT_ONCE = frozenset({"notifications/cancelled", "notifications/progress"})
#: A value in the params of a handshake may have so many bytes of `Limits.handshake_bytes`, on average: it needs more in memory.
_VALUE_BYTES = 64

#: What may become of a running call and of a waiting request.
_CALL_ENDS = CALL_MOVES[RUNNING]
_PENDING_ENDS = PENDING_MOVES[WAITING]

#: The result of a subscription that the server ended by `notifications/cancelled`.
_ENDED = msgspec.Raw(b'{"resultType":"complete"}')


#: Where a message may begin in a line that begins with other text.
_MESSAGE_START = re.compile(rb'\{\s*"(?:jsonrpc|id|result|error)"\s*:')


class _Token(msgspec.Struct, rename="camel"):
    progress_token: str | int


_token = msgspec.json.Decoder(_Token)
_encode_token = msgspec.json.Encoder().encode


class Connection(Record):
    """One connection."""

    #: Describes our server; None for a client.
    description: ServerDescription | None
    limits: Limits = DEFAULT_LIMITS
    #: Whether the channel carries one request and ends, such as an HTTP POST.
    one_shot: bool = False
    #: Whether all calls share one stream, so that their ids must be unique.
    shared: bool = True
    handshake: Handshake = msgspec.field(default_factory=Handshake)
    #: Calls that are being served, by `Call.key`.
    incoming: dict[object, Call] = msgspec.field(default_factory=dict)
    #: Bytes of the params over SMALL of all calls whose handlers run, also of cancelled ones. Counted by the session.
    held: int = 0
    #: Our requests that wait for a response, by id.
    outgoing: dict[RequestId, Pending] = msgspec.field(default_factory=dict)
    #: Why the connection is closed; None while it is open.
    closed: str | None = None
    #: Whether lines that are not messages are ignored: a process may print to its standard output.
    printed_on: bool = False
    #: For errors: the last ignored line.
    noise: str = ""
    #: The era of the requests that our side sends: a server's are always handshake requests, a client's are negotiated.
    era: Era = HANDSHAKE
    #: What the ids of our requests begin with, where the answers of several processes arrive at any of them.
    id_prefix: str = ""
    #: Called with the progress of our calls that run as tasks, by token.
    task_progress: Mapping[RequestId, Callable[[msgspec.Raw], None]] | None = None
    #: How many warnings about the peer were logged.
    warnings: int = 0
    #: On a client: where deviations of the server are noted.
    deviations: Deviations | None = None
    #: On a client: whether it has sent a notification. Some servers answer these, with errors that name no request.
    has_notified: bool = False
    _next_id: int = 0

    def _warn(self, text: str, *arguments: object) -> None:
        self.warnings = warn_about_peer(self.warnings, text, *arguments)

    # ---------------------------------------------------------------- messages that arrive

    def receive(self, data: bytes | Inbound, origin: Origin = UNKNOWN_ORIGIN) -> Call | Batch | Outgoing | None:
        """Decode a message and update the state. Never raises.

        Returns:
            A call or batch to be served, a response that needs no handler, or None.
        """
        if type(data) is Call:
            return self._receive_call(data, origin)
        if type(data) is LostAnswer:
            self._receive_lost(data)
            return None
        if type(data) is Response or type(data) is Failure:
            return self._receive_answer(data, origin)
        assert isinstance(data, bytes)
        eras = (self.era,) if self.description is None else self.description.eras
        version = None if origin.head is None else origin.head.version
        try:
            message = jsonrpc.decode(data)
            if type(message) is Response or type(message) is Failure:
                return self._receive_answer(message, origin)
            assert type(message) is Request or type(message) is Notification
            call = detect.classify(message, eras, version)
        except ProtocolError as exc:
            if self.description is None and (mended := mend(data)) is not None:
                self._note_slips(mended[1], data)
                return self.receive(mended[0], origin)
            return self._receive_unreadable(data, exc, origin)
        return self._receive_call(call, origin)

    def note(self, name: str, detail: str = "") -> None:
        """Note a deviation of the server, where there is a record of them; see `Deviations.note`."""
        if self.deviations is not None:
            self.deviations.note(name, detail)

    def _note_slips(self, names: list[str], data: bytes) -> None:
        for name in names:
            self.note(name, _excerpt(data))

    def _receive_answer(self, message: Response | Failure, origin: Origin) -> Outgoing | None:
        """Take the answer to a request of ours, unless the channel carries none: there it is an error."""
        if self.one_shot:
            era = self.era if self.description is None else detect.era_of_answer(self.description.eras)
            try:
                era.check_response()
            except InvalidRequest as exc:
                return self._unreadable(exc, b"", origin)
        self.receive_response(message)
        return None

    def _receive_unreadable(self, data: bytes, exc: ProtocolError, origin: Origin) -> Batch | Outgoing | None:
        """Handle what is not one message: a batch, a line that a server printed, or an error."""
        if jsonrpc.is_batch(data):
            try:
                return self._receive_batch(data, origin)
            except ProtocolError as batch_exc:
                exc = batch_exc
        if self.description is None and jsonrpc.meant_as(data) == "notification" and not jsonrpc.is_print(data):
            self.note("invalid-notification", f"{exc}: {_excerpt(data)}")
            return None
        if self.description is None and _is_noise(data, self.printed_on):
            self.noise = f"; it wrote a line that is not a message: {_excerpt(data)}"
            self._warn("the server wrote a line that is not a message: %s", _excerpt(data))
            if b"{" in data:
                self._fail_printed_answer(data)
            return None
        return self._unreadable(exc, data, origin)

    def _receive_call(self, call: Call, origin: Origin) -> Call | Outgoing | None:
        """Admit a call, or answer it with an error."""
        if self.closed is not None:
            return None
        request_id, era, description = call.id, call.era, self.description
        try:
            if request_id is not None and len(self.incoming) >= self.limits.calls:
                self._check_room(era, call.method)
            if len(call.params) > SMALL:
                self._check_size(call)
            if era.negotiation_method and self.handshake is NO_HANDSHAKE:
                self.handshake = Handshake(lasting=False)
            if description is not None:
                if call.method == era.negotiation_method and request_id is not None and self.handshake.open:
                    self._begin_anew(era)
                call.revision = era.admit(
                    call.method,
                    request_id,
                    call.meta,
                    origin.head,
                    self.handshake,
                    description.revisions,
                    self.one_shot,
                )
            else:
                revision = era.admit_from_server(call.method, request_id, self.handshake)
                if revision is None:
                    self._warn("The server sent the request %r, which this era does not have", shorten(call.method))
                    return None
                call.revision = revision
            call.origin = origin
            if request_id is not None:
                if call.method == era.negotiation_method:
                    call.inline = description is not None
                if request_id in self.incoming:
                    if self.shared:
                        raise InvalidRequest("A request with this id is still being served")
                    call.key = call
                self.incoming[call.key] = call
            elif call.method == "notifications/cancelled":
                self._cancelled_by_peer(call)
            elif call.method == "notifications/progress":
                return None if self._progress(call) else call
            return call
        except ProtocolError as exc:
            exc, status = era.finish_error(exc)
            self._report_refusal(exc, origin, call.method, request_id)
            if request_id is None:
                return None
            return Outgoing.failure(jsonrpc.encode_failure(request_id, exc.error), request_id, exc, status)

    def _report_refusal(
        self, exc: ProtocolError, origin: Origin, method: str | None = None, request_id: RequestId | None = None
    ) -> None:
        if self.description is not None and self.description.on_refused is not None:
            self.description.on_refused(RefusedMessage(exc.error, method, request_id, origin.principal))

    def _check_room(self, era: Era, method: str) -> None:
        """Raise Overloaded while `limits.calls` requests are served, except for a few checks whether this side is alive."""
        if method != era.liveness_method or len(self.incoming) >= self.limits.calls + LIVENESS_RESERVE:
            raise Overloaded(f"Too many requests: {self.limits.calls} at once is the limit of a connection")

    def _check_size(self, call: Call) -> None:
        """Raise Overloaded if calls in flight leave no room for these params, InvalidParams if they are too many or too large."""
        limits, size = self.limits, len(call.params)
        if self.held and self.held + size > limits.call_bytes and call.method not in _AT_ONCE:
            raise Overloaded(f"Too large requests: {limits.call_bytes} bytes at once is the limit of a connection")
        check_values(call.params, limits.values)
        if call.method == call.era.negotiation_method:  # the connection keeps them
            if size > limits.handshake_bytes:
                raise InvalidParams(f"Too large: {limits.handshake_bytes} bytes of {call.method} is the limit here")
            check_values(call.params, limits.handshake_bytes // _VALUE_BYTES)

    def _receive_batch(self, data: bytes, origin: Origin) -> Batch | Outgoing | None:
        eras = (self.era,) if self.description is None else self.description.eras
        version = None if origin.head is None else origin.head.version
        if not any(era.allows_batch(version, self.handshake, self.one_shot) for era in eras):
            if self.description is not None or jsonrpc.is_print(data):
                raise InvalidRequest("A batch is not a message in this revision: send one message at a time")
            self.note("batch", _excerpt(data))
        replies: list[Outgoing] = []
        calls: list[Call] = []
        for item in jsonrpc.split_batch(data, self.limits.batch):
            got = self._receive_item(item, origin)
            if isinstance(got, Call):
                calls.append(got)
            elif isinstance(got, Outgoing):
                replies.append(got)
        return Batch(calls, replies) if calls or replies else None

    def _receive_item(self, item: bytes, origin: Origin) -> Call | Batch | Outgoing | None:
        """One message of a batch, which must not hold `initialize`."""
        try:
            message = jsonrpc.decode(item)
        except ProtocolError as exc:
            return self._unreadable(exc, item, origin)
        if isinstance(message, Request) and message.method == "initialize":
            return self._unreadable(Unreadable("initialize can't be part of a batch", message.id), b"", origin)
        return self.receive(item, origin)

    def _unreadable(self, exc: ProtocolError, data: bytes, origin: Origin) -> Outgoing | None:
        """Handle what is not a message: answer a malformed request; fail the request that a malformed response is for.

        What a client can't assign belongs to nothing, see `_receive_stray`.
        """
        request_id = jsonrpc.id_of(exc, data)
        meant_as, is_client = jsonrpc.meant_as(data), self.description is None
        if meant_as == "response" or (is_client and (meant_as != "request" or request_id is None)):
            why = f"{exc}: {_excerpt(data)}" if data else str(exc)
            if is_client and meant_as == "request":
                self.note("message-without-id", why)
                return None
            if self._fail_possible(request_id, data, why) or is_client:
                return None
        self._report_refusal(exc, origin, request_id=request_id)
        return Outgoing.failure(jsonrpc.encode_failure(request_id, exc.error), request_id, exc, exc.http_status)

    def _meant_request(self, request_id: RequestId | None) -> Pending | None:
        """The request that an answer was meant for: the id of the request, but perhaps as a string."""
        pending = None if request_id is None else self.outgoing.get(request_id)
        if pending is None and type(request_id) is str and request_id.isdecimal():
            pending = self.outgoing.get(int(request_id[:20]))
        return pending

    def _fail_meant(self, request_id: RequestId, why: str) -> None:
        """Fail the request that an answer was meant for."""
        pending = self._meant_request(request_id)
        if pending is not None:
            self.fail_request(pending, InvalidResponse(f"The answer to {pending.method} is not valid: {why}"))

    def _fail_printed_answer(self, line: bytes) -> None:
        """Fail the request whose answer follows a text in the same line."""
        start = _MESSAGE_START.search(line)
        try:
            message = jsonrpc.decode(line[start.start() :] if start else b"")
        except ProtocolError:
            return
        if (type(message) is Response or type(message) is Failure) and message.id is not None:
            self._fail_meant(message.id, f"there is a text before it: {_excerpt(line)}")

    def _fail_possible(self, request_id: RequestId | None, data: bytes, why: str) -> bool:
        """Fail the request that a malformed message names. If it names none: all of a server, see `_receive_stray` for a client.

        Returns:
            Whether a request may have been meant.
        """
        meant = _loose_id(data) if request_id is None else request_id
        pending = self._meant_request(meant)
        error = InvalidResponse(f"The peer sent something that is not a valid answer: {why}")
        if pending is not None:
            self.fail_request(pending, error)
            return True
        if meant is not None and (self._was_issued(meant) or request_id is not None):
            return False  # late, or no response at all
        if self.description is None:
            return self._receive_stray(error, why)
        waiting = list(self.outgoing.values())
        for pending in waiting:
            self.fail_request(pending, error)
        return bool(waiting)

    def _receive_lost(self, lost: LostAnswer) -> None:
        """Fail the request whose answer could not be taken: the one that it names, or the only one that waits."""
        pending = self._meant_request(lost.id)
        if pending is None and lost.id is None and len(self.outgoing) == 1:
            pending = next(iter(self.outgoing.values()))
        if pending is not None:
            self.fail_request(pending, InvalidResponse(f"The answer to {pending.method} can't be read: {lost.why}"))
        else:
            self._fail_possible(lost.id, b"", lost.why)

    def _receive_stray(self, error: Exception, why: str) -> bool:
        """Take a message of the server that names no request. It belongs to the only one, unless a notification was sent.

        Otherwise it belongs to nothing; requests that get no other answer within their time end with it. Returns whether any
        waits.
        """
        waiting = list(self.outgoing.values())
        if len(waiting) == 1 and not self.has_notified:
            self.fail_request(waiting[0], error)
            return True
        self.note("message-without-id", why)
        for pending in waiting:
            pending.stray = why
        return bool(waiting)

    # ---------------------------------------------------------------- calls that we serve

    def _cancelled_by_peer(self, call: Call) -> None:
        try:
            request_id = _cancelled.decode(call.params).request_id
        except msgspec.MsgspecError:
            return
        cancelled = self.incoming.get(request_id)
        if cancelled is not None and not cancelled.inline:
            self.cancel(cancelled)
        else:
            self._end_subscription(request_id)

    def _end_subscription(self, request_id: RequestId) -> None:
        """A server may end a subscription by a cancellation instead of a result."""
        pending = self.outgoing.get(request_id)
        if pending is not None and pending.method == "subscriptions/listen":
            pending.result = _ENDED
            self._end_request(pending, "answer")

    def _begin_anew(self, era: Era) -> None:
        """End what is in flight under the agreement of an earlier handshake: the client begins another one."""
        for call in list(self.incoming.values()):
            if call.revision in era.revisions:
                self.cancel(call)
        self.end_input("the client has begun another handshake")

    def cancel(self, call: Call) -> None:
        """Remove a call that the peer cancelled, and cancel its handler."""
        if self._end_call(call, "cancel"):
            self._refuse_handshake(call)
            if call.work is not None:
                call.work.cancel()

    def _end_call(self, call: Call, event: str) -> bool:
        """Remove a call from `incoming`; nothing else does. Returns False if it was removed before."""
        if call.state is not RUNNING:
            return False
        call.state = _CALL_ENDS[event]
        self.incoming.pop(call.key, None)
        return True

    def _refuse_handshake(self, call: Call) -> None:
        """The call has ended without an agreement, if it is a handshake."""
        if call.inline and self.handshake.state is HandshakeState.NEGOTIATING:
            self.handshake.move("refused")

    def answer(self, call: Call, result: object) -> Outgoing | None:
        """Finish a call with a result. A result that can't be encoded becomes an error.

        Returns:
            The encoded response; None for a notification, or when the call is over.
        """
        if not self._end_call(call, "answer") or call.id is None:
            return None
        try:
            data = jsonrpc.encode_response(call.id, result)
            if call.inline:
                self.handshake.commit(result)
        except ProtocolError as exc:
            return self._failure(call, call.id, exc)
        except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as exc:
            wire_error(exc, f"{call.method}: its result can't be written as JSON, and")
            if call.method != "tools/call" or self.description is None:
                return self._failure(call, call.id, ProtocolError("Handler returned an invalid result"))
            data = jsonrpc.encode_response(call.id, _failed_tool(call, self.description))
        return Outgoing(data, call.id, follow=call.parting)

    def refuse(self, call: Call, exc: BaseException) -> Outgoing | None:
        """Finish a call with an error.

        Returns:
            The encoded response; None for a notification, or when the call is over.
        """
        error = wire_error(exc, call.method)
        if call.id is None and error is exc:
            self._warn("%s failed: %s", shorten(call.method), exc)  # a notification has no response that could say so
        if not self._end_call(call, "answer") or call.id is None:
            return None
        return self._failure(call, call.id, error)

    def _failure(self, call: Call, request_id: RequestId, error: ProtocolError) -> Outgoing:
        """The encoded error of a call that has ended."""
        self._refuse_handshake(call)
        if type(error) is InsufficientScope:
            error = InsufficientScope(*(error.scopes | call.needed_scopes))
        error, status = call.era.finish_error(error)
        try:
            data = jsonrpc.encode_failure(request_id, error.error)
        except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as reason:
            logger.error("%s failed, and the data of its error can't be written as JSON: %s", call.method, reason)
            error = ProtocolError("Internal server error")
            data = jsonrpc.encode_failure(request_id, error.error)
        return Outgoing.failure(data, request_id, error, status)

    def give_back(self, size: int) -> None:
        """Nothing keeps params of this size any more."""
        self.held -= size

    # ---------------------------------------------------------------- our requests

    def register_request(self, method: str) -> Pending:
        """Register a request of ours. Raises NotSent if the connection is closed or too many requests wait."""
        if self.closed is not None:
            raise NotSent(f"{method} was not sent: {self.closed}")
        if len(self.outgoing) >= self.limits.pending:
            raise NotSent(f"{method} was not sent: {self.limits.pending} requests wait for an answer already")
        self._next_id += 1
        pending = Pending(f"{self.id_prefix}{self._next_id}" if self.id_prefix else self._next_id, method)
        self.outgoing[pending.id] = pending
        return pending

    def write_request(
        self, pending: Pending, params: object, meta: bytes, headers: HeaderTexts, about: Call | None
    ) -> Outgoing:
        """The message of a registered request. Raises TypeError, ValueError and the like for params that are not JSON.

        `meta` is `_meta` as JSON text, to which the progress token is added; empty if the params have theirs.
        """
        if meta:
            members = encode_value(params)[:-1]
            comma = b"," if len(members) > 1 else b""
            parts = members, comma, b'"_meta":{"progressToken":', _encode_token(pending.id), b",", meta[1:], b"}"
            params = msgspec.Raw(b"".join(parts))
        data = jsonrpc.encode_request(pending.id, pending.method, params)
        return Outgoing(data, pending.id, pending.method, about, pending, headers)

    def receive_response(self, message: Response | Failure) -> None:
        """Take the answer to a request of ours. Never raises."""
        if message.id is None:
            assert isinstance(message, Failure)
            self._receive_error_without_id(message)
            return
        pending = self.outgoing.get(message.id)
        if pending is None and type(message.id) is str:  # most of our ids are integers
            pending = self.pending_by_value(message.id)
            if pending is not None:
                self.note("string-id", message.id)
            else:
                self._fail_meant(message.id, f"its id is the string {shorten(message.id)!r}")
        if pending is None:
            return  # late, or of a request that was cancelled or never sent
        if type(message) is Failure:
            self.fail_request(pending, PeerError(message.error))
        elif jsonrpc.opening(message.result) != jsonrpc.OBJECT:
            self.fail_request(pending, InvalidResponse(f"The result of {pending.method} is not an object"))
        else:
            pending.result = message.result
            self._end_request(pending, "answer")

    def _was_issued(self, request_id: RequestId) -> bool:
        """Whether a request had this id, perhaps as a string."""
        if type(request_id) is str:
            request_id = request_id.removeprefix(self.id_prefix)
            return request_id.isdecimal() and 0 < int(request_id[:20]) <= self._next_id
        return 0 < int(request_id) <= self._next_id

    def pending_by_value(self, text: str) -> Pending | None:
        """The request of a client whose id, an integer, a server wrote as this string."""
        if self.description is not None or not text.isdecimal() or len(text) > 20:
            return None
        number = int(text)
        return self.outgoing.get(number) if str(number) == text else None

    def _receive_error_without_id(self, message: Failure) -> None:
        waiting = list(self.outgoing.values())
        if self.description is None:
            self._receive_stray(PeerError(message.error), f"an error: {shorten(message.error.message)}")
            return
        if len(waiting) == 1:
            self.fail_request(waiting[0], PeerError(message.error))
            return
        text = shorten(message.error.message)
        for pending in waiting:
            self.fail_request(pending, InvalidResponse(f"The peer reported an error that names no request: {text}"))

    def fail_request(self, pending: Pending, error: Exception) -> None:
        """End a request of ours with an error."""
        if pending.state is WAITING:
            pending.error = error
            self._end_request(pending, "answer")

    def abandon_request(self, pending: Pending) -> bool:
        """Stop waiting for a request. Returns False if it was over before."""
        return self._end_request(pending, "give up")

    def _end_request(self, pending: Pending, event: str) -> bool:
        """Remove a request from `outgoing`; nothing else does. Returns False if it was removed before."""
        if pending.state is not WAITING:
            return False
        pending.state = _PENDING_ENDS[event]
        del self.outgoing[pending.id]
        if pending.wake is not None:
            pending.wake()
        return True

    def _progress(self, call: Call) -> bool:
        """Pass progress to the request that it names. Returns False if there is none."""
        try:
            token = _token.decode(call.params).progress_token
        except msgspec.MsgspecError:
            return False
        pending = self.outgoing.get(token)
        if pending is None and type(token) is str and (pending := self.pending_by_value(token)) is not None:
            self.note("string-progress-token", token)
        if pending is None:
            receive = None if self.task_progress is None else self.task_progress.get(token)
            if receive is not None:
                receive(call.params)
            return self.description is None
        if pending.on_progress is not None:
            pending.on_progress(call.params)
        return True

    # ---------------------------------------------------------------- end

    def end_input(self, reason: str) -> None:
        """Fail all our requests: the peer will send nothing more."""
        while self.outgoing:
            pending = next(iter(self.outgoing.values()))
            pending.error = ConnectionLost(f"{pending.method} got no answer: {reason}")
            self._end_request(pending, "close")

    def stop(self, reason: str) -> list[Outgoing]:
        """Finish every running call with an error, and cancel its handler."""
        replies: list[Outgoing] = []
        while self.incoming:
            call = next(iter(self.incoming.values()))
            work = call.work
            reply = self.refuse(call, call.unfinished_error(reason))
            if reply is not None:
                replies.append(reply)
            if work is not None:
                work.cancel()
        return replies

    def close(self, reason: str) -> None:
        """Drop all calls and fail all our requests: the channel is closed. May be called twice."""
        if self.closed is None:
            self.closed = reason
            if self.handshake is not NO_HANDSHAKE:
                self.handshake.state = CLOSED
        while self.incoming:
            call = next(iter(self.incoming.values()))
            if self._end_call(call, "close") and call.work is not None:
                call.work.cancel()
        if self.outgoing:
            self.end_input(reason)

    def check(self) -> None:
        """Check the invariant: entries of the tables are running. Raises GemelError."""
        if any(call.key != key or call.state is not RUNNING for key, call in self.incoming.items()):
            raise GemelError("a call that is over is still in the table")
        if any(pending.id != key or pending.state is not WAITING for key, pending in self.outgoing.items()):
            raise GemelError("a request that is over is still in the table")
        if self.closed is not None and (self.incoming or self.outgoing):
            raise GemelError("something is in flight on a closed connection")


class _AnyId(msgspec.Struct):
    id: msgspec.Raw


_any_id = msgspec.json.Decoder(_AnyId)
_number_or_text = msgspec.json.Decoder(float | str)


def _is_noise(data: bytes, printed_on: bool) -> bool:
    """Whether a line is something that a server printed rather than a malformed response."""
    is_json = data.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r")[:1] in (b"{", b"[")
    return not is_json or jsonrpc.meant_as(data) == "notification" or (printed_on and jsonrpc.is_print(data))


def _loose_id(data: bytes) -> RequestId | None:
    """The id of a malformed answer, even if it wrote our integer with a fraction, `2.0`, or in a list, `[2]`."""
    try:
        text = bytes(_any_id.decode(data).id)
        request_id = _number_or_text.decode(text.strip(b"[] ") if len(text) < 64 else text)
        return request_id if isinstance(request_id, str) else int(request_id)
    except (msgspec.MsgspecError, RecursionError, UnicodeError, OverflowError):
        return None


def _excerpt(data: bytes) -> str:
    """The start of an unreadable message."""
    return shorten(data[:1024].decode("utf-8", "replace"))


def _failed_tool(call: Call, description: ServerDescription) -> Any:
    """The result in place of one that a middleware made, and that can't be written: the model can go on with it."""
    from gemel.schema.content import TextContent
    from gemel.schema.tools import CallToolResult

    text = "The tool failed unexpectedly. The server's log says why."
    failed: CallToolResult[Any] = CallToolResult(content=[TextContent(text=text)], is_error=True)
    return call.era.finish_result(failed, call.revision, description.result_meta)
