"""The values that pass between transports, the connection and the session: what came in, what is served, what goes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Raw

from hinge.errors import ErrorObject, ProtocolError
from hinge.jsonrpc import ABSENT, Message, RequestId
from hinge.protocol.http import Headers
from hinge.protocol.states import CallState, PendingState
from hinge.schema.base import RequestMeta

#: `2025`, the handshake revisions, or `2026`, the stateless ones: a value, chosen per message in one place.
EraName = Literal["2025", "2026"]


class Origin:
    """What a transport knows about where a message came from.

    `headers` maps lower-case names to values on HTTP and is None elsewhere. `principal` is who was authenticated, or
    None. `transport` is the transport's own (an ASGI scope, a peer address), handed to users as it is.
    """

    __slots__ = ("headers", "principal", "transport")

    def __init__(self, headers: Headers | None = None, principal: str | None = None, transport: Any = None) -> None:
        self.headers = headers
        self.principal = principal
        self.transport = transport


#: The origin of a message on a channel that knows nothing about it.
UNKNOWN_ORIGIN = Origin()


class Inbound:
    """A decoded message with what decides its era: its `_meta`, and whether that claims a stateless revision."""

    __slots__ = ("claims", "message", "meta")

    def __init__(self, message: Message, meta: RequestMeta | None, claims: bool) -> None:
        self.message = message
        self.meta = meta
        self.claims = claims


class Call:
    """One inbound request or notification being served; `id` is None for a notification.

    `revision` is the protocol revision that governs it. `on_cancel` is set by whoever runs it.
    """

    __slots__ = ("era", "id", "inline", "key", "meta", "method", "on_cancel", "origin", "params", "revision", "state")

    def __init__(
        self,
        request_id: RequestId | None,
        method: str,
        params: Raw,
        *,
        meta: RequestMeta | None,
        era: EraName,
        revision: str,
        origin: Origin = UNKNOWN_ORIGIN,
    ) -> None:
        self.id = request_id
        self.method = method
        self.params = params
        self.meta = meta
        self.era = era
        self.revision = revision
        self.origin = origin
        self.state = CallState.RUNNING
        self.key: object = request_id
        #: The reader must take no further message until this call is answered (A-032).
        self.inline = False
        self.on_cancel: Callable[[], object] | None = None


class Batch:
    """The calls of one batch and what could be answered at once; answered together (BASE-11)."""

    __slots__ = ("calls", "inline", "replies")

    def __init__(self, calls: Sequence[Call], replies: Sequence[Outgoing]) -> None:
        self.calls = calls
        self.replies = replies
        self.inline = False


class Pending:
    """One of our requests that the peer owes an answer. `wake` is called once when it is over, whatever the reason."""

    __slots__ = ("error", "id", "method", "on_progress", "result", "state", "wake")

    def __init__(self, request_id: RequestId, method: str) -> None:
        self.id = request_id
        self.method = method
        self.state = PendingState.WAITING
        self.result: Raw = ABSENT
        self.error: Exception | None = None
        self.on_progress: Callable[[Raw], None] | None = None
        self.wake: Callable[[], None] | None = None


class Outgoing:
    """One encoded message on its way out, with what a transport may need to route it.

    - a request of ours: `method`, `id` and `pending` are set; on HTTP `headers` mirror it
    - a notification: `method` is set
    - an answer: `id` is set (None if the request's could not be read), `error` says whether it is one

    `about` is the inbound call that it belongs to: on HTTP it leaves on that call's own stream.
    `status` is the HTTP status of an answer that is sent as a body of its own.
    """

    __slots__ = ("about", "data", "error", "headers", "id", "method", "pending", "status")

    def __init__(
        self,
        data: bytes,
        request_id: RequestId | None = None,
        method: str | None = None,
        *,
        about: Call | None = None,
        pending: Pending | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.data = data
        self.id = request_id
        self.method = method
        self.about = about
        self.pending = pending
        self.headers = headers
        self.error: ErrorObject | None = None
        self.status = 200

    @classmethod
    def failure(cls, data: bytes, request_id: RequestId | None, error: ProtocolError, status: int) -> Outgoing:
        """An error answer."""
        made = cls(data, request_id)
        made.error = error.error
        made.status = status
        return made
