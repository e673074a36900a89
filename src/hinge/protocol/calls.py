"""The root of what is made anew for every message. Knows nothing of what its children hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import msgspec
from msgspec import Raw

from hinge.errors import ErrorObject, InternalError, ProtocolError
from hinge.jsonrpc import ABSENT, Message, RequestId, encode_failure
from hinge.protocol.eras.base import Era
from hinge.protocol.http.headers import Head
from hinge.protocol.http.request import Headers
from hinge.protocol.states import RUNNING, WAITING, CallState, PendingState
from hinge.schema.base import RequestMeta


class Record(msgspec.Struct, eq=False):
    """A Struct, since C code makes it in a third of the time of a class with `__init__`; each equals only itself."""

    def __repr__(self) -> str:
        """Its kind only: what it holds may be secret."""
        return f"<{type(self).__name__}>"


@final
class Origin(msgspec.Struct, frozen=True, eq=False):
    """What a transport knows about where a message came from.

    `head` is the judged head of the HTTP request and None on other transports. `principal` is who was authenticated, or
    None; `scopes` is what the request was authorized for. `transport` is the transport's own (an ASGI scope, a peer
    address), handed to users as it is.
    """

    head: Head | None = None
    principal: str | None = None
    transport: Any = None
    scopes: frozenset[str] = frozenset()

    @property
    def headers(self) -> Headers | None:
        """The HTTP headers; None on other transports."""
        return None if self.head is None else self.head.headers

    def __repr__(self) -> str:
        """Not what it holds, which may be secret."""
        return "<Origin>"


#: The origin of a message on a channel that knows nothing about it.
UNKNOWN_ORIGIN = Origin()


@final
class Inbound(Record):
    """A decoded message with its `_meta`, and whether that names a revision. `era` is set by `detect`."""

    message: Message
    meta: RequestMeta | None
    claims: bool
    era: Era | None = None


@final
class Call(Record):
    """One inbound request or notification being served; `id` is None for a notification.

    `revision` is the protocol revision that governs it. `on_cancel` is set by whoever runs it.
    """

    id: RequestId | None
    method: str
    params: Raw
    meta: RequestMeta | None
    era: Era
    revision: str
    origin: Origin = UNKNOWN_ORIGIN
    state: CallState = RUNNING
    #: Under which it is owed, once it is: its id, where that tells it apart.
    key: object = None
    #: The reader must take no further message until this call is answered.
    inline: bool = False
    on_cancel: Callable[[], object] | None = None
    #: A notification that follows the answer, where the channel stays open.
    parting: Outgoing | None = None


@final
class Batch(Record):
    """The calls of one batch and what could be answered at once; answered together."""

    calls: Sequence[Call]
    replies: Sequence[Outgoing]
    inline: bool = False


@final
class Pending(Record):
    """One of our requests that the peer owes an answer. `wake` is called once when it is over, whatever the reason."""

    id: RequestId
    method: str
    state: PendingState = WAITING
    result: Raw = ABSENT
    error: Exception | None = None
    on_progress: Callable[[Raw], None] | None = None
    wake: Callable[[], None] | None = None


@final
class Outgoing(Record):
    """One encoded message on its way out, with what a transport may need to route it.

    - a request of ours: `method`, `id` and `pending` are set; on HTTP `headers` mirror it
    - a notification: `method` is set
    - an answer: `id` is set (None if the request's could not be read), `error` says whether it is one

    `about` is the inbound call that it belongs to: on HTTP it leaves on that call's own stream.
    `status` is the HTTP status of an answer that is sent as a body of its own. `follow` leaves right after it, where the
    channel stays open.
    """

    data: bytes
    id: RequestId | None = None
    method: str | None = None
    about: Call | None = None
    pending: Pending | None = None
    headers: Mapping[str, str] | None = None
    error: ErrorObject | None = None
    status: int = 200
    follow: Outgoing | None = None

    @classmethod
    def failure(cls, data: bytes, request_id: RequestId | None, error: ProtocolError, status: int) -> Outgoing:
        """An error answer."""
        return cls(data, request_id, error=error.error, status=status)

    @classmethod
    def interrupted(cls, call: Call | Batch) -> Outgoing | None:
        """What a peer is told whose call neither it nor the end has stopped: what served it was cancelled, or cancelled
        itself. None for a notification.
        """
        if isinstance(call, Call) and call.id is None:
            return None
        request_id = call.id if isinstance(call, Call) else None
        error = InternalError()
        return cls.failure(encode_failure(request_id, error.error), request_id, error, error.http_status)
