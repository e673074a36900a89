"""The records that pass between transports, connection and session: what came in, what is served, what goes out.

They hold values only: `protocol/connection.py` decides what happens to them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias, final

import msgspec
from msgspec import Raw

from gemel.errors import ErrorObject, NotFinished, Overloaded, ProtocolError
from gemel.jsonrpc import ABSENT, Failure, RequestId, Response, encode_failure
from gemel.protocol.eras.base import Era
from gemel.protocol.http.headers import Head
from gemel.protocol.http.request import Headers, Owner, Principal
from gemel.protocol.states import RUNNING, WAITING, CallState, PendingState
from gemel.schema.base import RequestMeta
from gemel.shares import address_share


class Record(msgspec.Struct, eq=False):
    """Base of values that are made for every message. A Struct is made three times as fast as a class with `__init__`."""

    def __repr__(self) -> str:
        """The type only: the members may be secret."""
        return f"<{type(self).__name__}>"


@final
class Origin(msgspec.Struct, frozen=True, eq=False):
    """What a transport knows about the sender of a message."""

    #: The checked head of the HTTP request; None on other transports.
    head: Head | None = None
    #: The name of the authenticated caller; None without authentication.
    principal: str | None = None
    #: An object of the transport: an ASGI scope, or the peer's address.
    transport: Any = None
    #: What the request was authorized for; None for the application itself, which may do everything.
    scopes: frozenset[str] | None = frozenset()
    #: The authenticated caller with its claims; None without authentication.
    caller: Principal | None = None

    @property
    def owner(self) -> Owner:
        """Whom that belongs to which outlives the message: the principal, with the client that acts for it if that is known."""
        return self.principal if self.caller is None else self.caller.owner

    @property
    def holder(self) -> Hashable:
        """Whose share of a bound over all callers it is that something takes: the principal's, else that of the address."""
        if self.principal is not None:
            return "principal", self.principal
        address = self.client_address
        return "address", address_share(None if address is None else address[0])

    @property
    def expires(self) -> float | None:
        """When the authorization ends, in seconds since 1970; None if it doesn't."""
        return None if self.caller is None else self.caller.expires

    def has_expired(self, now: float) -> bool:
        """Whether the authorization has ended.

        Args:
            now: The time, in seconds since 1970.

        Returns:
            True if it had an end, and that is over.
        """
        return self.caller is not None and self.caller.expires is not None and self.caller.expires <= now

    @property
    def headers(self) -> Headers | None:
        """The HTTP headers; None on other transports."""
        return None if self.head is None else self.head.headers

    @property
    def http_scope(self) -> Mapping[str, Any] | None:
        """The ASGI scope of the HTTP request; None on other transports."""
        return MappingProxyType(self.transport) if isinstance(self.transport, dict) else None

    @property
    def client_address(self) -> tuple[str, int] | None:
        """Host and port of the peer; None where it has none, as on stdio and on Unix sockets."""
        address = self.transport.get("client") if isinstance(self.transport, dict) else self.transport
        return (str(address[0]), address[1]) if isinstance(address, list | tuple) and len(address) >= 2 else None

    def __repr__(self) -> str:
        """The type only: the members may be secret."""
        return "<Origin>"


#: The origin of a message on a channel without information about its peer.
UNKNOWN_ORIGIN = Origin()
#: The origin of a message of whoever started this process or holds the server object.
LOCAL_ORIGIN = Origin(scopes=None)


def origin_of(principal: Principal | str | None) -> Origin:
    """The origin of all messages of a connection: whom the application named, else the application itself."""
    if principal is None:
        return LOCAL_ORIGIN
    named = Principal(principal) if isinstance(principal, str) else principal
    return Origin(principal=named.name, scopes=frozenset(named.scopes), caller=named)


class Cancellable(Protocol):
    """What serves a call, such as its task."""

    def cancel(self) -> object:
        """Stop it soon."""
        ...


@final
class Call(Record):
    """One inbound request or notification.

    `revision` and `origin` are set when the connection admits it, `work` by the session that runs it.
    """

    #: The id of the request; None for a notification.
    id: RequestId | None
    #: The method.
    method: str
    #: The params, as JSON text.
    params: Raw
    #: The `_meta` of the params that the protocol defines.
    meta: RequestMeta | None
    #: The era of the message.
    era: Era
    #: The revision of the message.
    revision: str = ""
    #: Who sent it.
    origin: Origin = UNKNOWN_ORIGIN
    #: The params in the type of the method, if they are decoded already.
    typed: Any = None
    #: Its key in `Connection.incoming`: its id, or the call itself if ids are not unique on the channel.
    key: object = None
    state: CallState = RUNNING
    #: No further message may be read until this call is answered.
    inline: bool = False
    #: It waits in a queue, and nothing was done for it yet.
    queued: bool = False
    #: What is cancelled with it: the task that serves it.
    work: Cancellable | None = None
    #: The scopes of the tools, prompts and resources that were used for it so far.
    needed_scopes: frozenset[str] = frozenset()
    #: A notification that follows the response, if the channel stays open.
    parting: Outgoing | None = None
    #: What a handler raised, although the peer gets a result.
    failure: BaseException | None = None
    #: How many keep its params whether or not its task is over: functions that still run for it in threads.
    holders: int = 0
    #: What the last of them gives back.
    _held: list[Callable[[], object]] | None = None

    def hold(self) -> None:
        """Keep the params until `release`."""
        self.holders += 1

    def release(self) -> None:
        """Keep the params no longer."""
        self.holders -= 1
        if not self.holders and self._held is not None:
            held, self._held = self._held, None
            for give_back in held:
                give_back()

    def when_released(self, give_back: Callable[[], object]) -> None:
        """Give back what was counted for the params when nothing keeps them: now, if only the task did, which ends.

        Args:
            give_back: Called once.
        """
        if not self.holders:
            give_back()
        elif self._held is None:
            self._held = [give_back]
        else:
            self._held.append(give_back)

    def unfinished_error(self, reason: str) -> ProtocolError:
        """The error for a call that the server itself ended.

        Args:
            reason: Why it ended.

        Returns:
            The error; that of a call that did not start says that it may be repeated.
        """
        return Overloaded(f"Not started: {reason}") if self.queued else NotFinished(reason)


@final
class LostAnswer(Record):
    """The answer to a request of ours that a transport could not take, such as one that is too long.

    Attributes:
        id: The id of the request; None if it is not known, so that any request may be meant.
        why: What is wrong with the answer.
    """

    id: RequestId | None
    why: str


#: A message as it was read: a call that is to be admitted, or the answer to a request of ours.
Inbound: TypeAlias = Call | Response | Failure | LostAnswer


@final
class RefusedMessage(msgspec.Struct, frozen=True, eq=False):
    """A message that was refused before any middleware saw it.

    Attributes:
        error: The JSON-RPC error of the answer.
        method: The method; None if it could not be read.
        request_id: The id of the request; None for a notification, and if it could not be read.
        principal: Who was authenticated; None for nobody.
    """

    error: ErrorObject
    method: str | None = None
    request_id: RequestId | None = None
    principal: str | None = None


@final
class Batch(Record):
    """The calls of one JSON-RPC batch and the responses that are ready; sent together."""

    #: The requests and notifications that are to be served.
    calls: Sequence[Call]
    #: The responses that are ready: errors of messages that can't be served.
    replies: Sequence[Outgoing]
    #: No further message may be read until the batch is answered.
    inline: bool = False


class RequestLimit(Protocol):
    """The time limits of a request, as a transport sees them. `gemel.timeouts`, a layer above, implements them.

    Attributes:
        extended: Seconds in which a person was asked, which don't count.
    """

    extended: float

    def hold_idle(self) -> None:
        """Stop the idle time until `start_idle`: the peer has nothing to answer yet."""

    def start_idle(self) -> None:
        """Count the idle time from now on."""

    def restart_idle(self) -> None:
        """Restart the idle time: the peer has taken more of a long request."""

    def add_time(self, seconds: float) -> None:
        """Do not count seconds in which a person was asked to log in."""


@final
class Pending(Record):
    """A request of ours that waits for its response. `wake` is called once, when it is over for any reason.

    `credentials` is what the transport sent it with; see `Transport.credentials`. `limit` is set while its time is limited.
    `stray` is what the peer sent meanwhile without naming a request: perhaps the answer.
    """

    id: RequestId
    method: str
    state: PendingState = WAITING
    result: Raw = ABSENT
    error: Exception | None = None
    on_progress: Callable[[Raw], None] | None = None
    limit: RequestLimit | None = None
    credentials: str = ""
    stray: str = ""
    wake: Callable[[], None] | None = None


@final
class Outgoing(Record):
    """One encoded message to be sent, with what a transport needs to route it.

    - a request: `method`, `id` and `pending` are set; on HTTP `headers` repeat parts of it
    - a notification: `method` is set
    - a response: `id` is set (None if the request's could not be read), `error` if it is an error
    """

    #: The message, as JSON text.
    data: bytes
    #: The id of a request or of a response.
    id: RequestId | None = None
    #: The method of a request or a notification.
    method: str | None = None
    #: The inbound call that it belongs to: on HTTP it is sent on the stream of that call.
    about: Call | None = None
    #: The state of a request that waits for its response.
    pending: Pending | None = None
    #: HTTP headers that repeat parts of a request.
    headers: tuple[tuple[str, str], ...] = ()
    #: The error of a response.
    error: ErrorObject | None = None
    #: The HTTP status of a response that is sent as a body.
    status: int = 200
    #: A message that is sent after it, if the channel stays open.
    follow: Outgoing | None = None

    @classmethod
    def failure(cls, data: bytes, request_id: RequestId | None, error: ProtocolError, status: int) -> Outgoing:
        """Make an error response.

        Args:
            data: The encoded message.
            request_id: The id of the request; None if it could not be read.
            error: The error.
            status: The HTTP status, where it is the body of a response.

        Returns:
            The message.
        """
        return cls(data, request_id, error=error.error, status=status)

    @classmethod
    def interrupted(cls, call: Call | Batch) -> Outgoing | None:
        """Make the response to a call whose task was cancelled by something else than its peer or the end of the channel.

        Args:
            call: The call.

        Returns:
            The message; None for a notification.
        """
        is_notification = isinstance(call, Call) and call.id is None
        return None if is_notification else cls.unfinished(call, "the task that served it was cancelled")

    @classmethod
    def unfinished(cls, call: Call | Batch, reason: str) -> Outgoing:
        """Make the response to a call that the server itself ended: nothing else answers it.

        Args:
            call: The call.
            reason: Why it ended.

        Returns:
            The message.
        """
        if isinstance(call, Batch):
            errors = [cls.unfinished(each, reason) for each in call.calls if each.id is not None]
            return cls(b"[" + b",".join(reply.data for reply in (*call.replies, *errors)) + b"]")
        error = call.unfinished_error(reason)
        return cls.failure(encode_failure(call.id, error.error), call.id, error, error.http_status)
