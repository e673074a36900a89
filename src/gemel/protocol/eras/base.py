"""What the two generations of the protocol (eras) decide differently: one abstract class, and the state of a handshake.

`handshake.py` and `stateless.py` implement `Era`; each exists once. Decisions that need I/O are strategies, chosen by the
Era object, in the packages that carry them out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw

from gemel.errors import InvalidRequest, MissingClientCapability, ProtocolError
from gemel.jsonrpc import RequestId
from gemel.protocol.http.headers import Head
from gemel.protocol.states import HANDSHAKE_MOVES, HandshakeState
from gemel.schema.base import Implementation, RequestMeta
from gemel.schema.lifecycle import ClientCapabilities, InitializeParams, InitializeResult
from gemel.schema.revisions import HANDSHAKE_REVISIONS, V2025_03

#: How users name the eras: "2025" is the handshake era, "2026" the stateless era.
EraName: TypeAlias = Literal["2025", "2026"]
#: The era that a user or a transport requires, or "auto" for any.
EraOption: TypeAlias = EraName | Literal["auto"]

#: The revision of a peer that never named one (Streamable HTTP, "Protocol Version Header").
ASSUMED_REVISION = V2025_03


#: The states of a handshake in which requests may run.
OPEN_STATES = frozenset({HandshakeState.NEGOTIATED, HandshakeState.READY})


class Handshake(msgspec.Struct, eq=False):
    """The state of `initialize` on one connection: what was negotiated, and the log level that was set since."""

    state: HandshakeState = HandshakeState.NEW
    revision: str = ASSUMED_REVISION
    client_info: Implementation | None = None
    declared: ClientCapabilities | None = None
    log_level: str | None = None
    #: The params of the `initialize` that is being answered.
    offered: InitializeParams | None = None
    #: Whether what is agreed on outlives the message: not where each POST stands alone.
    lasting: bool = True
    #: Called when the client has finished the handshake; requests of the server wait for that.
    on_ready: list[Callable[[], None]] | None = None

    def move(self, event: str) -> None:
        """Follow the table `HANDSHAKE_MOVES`. Raises KeyError for a move that is not listed, which is a bug."""
        self.state = HANDSHAKE_MOVES[self.state][event]
        if self.on_ready is not None:
            hooks, self.on_ready = self.on_ready, None
            for hook in hooks:
                hook()

    def begin(self) -> None:
        """Follow `initialize`. What an earlier one has agreed on counts no more."""
        self.move("initialize")
        self.revision = ASSUMED_REVISION
        self.client_info = self.declared = self.log_level = self.offered = None

    def assume(self, revision: str | None) -> None:
        """Continue without a handshake on this connection, because the peers did it elsewhere."""
        self.revision = revision if revision in HANDSHAKE_REVISIONS else ASSUMED_REVISION
        self.move("assumed")

    def commit(self, result: object) -> None:
        """Apply the result of `initialize` as it is sent, which a middleware may have changed. Raises InvalidRequest."""
        if isinstance(result, InitializeResult):
            revision: Any = result.protocol_version
        else:
            revision = result.get("protocolVersion") if isinstance(result, dict) else None
        if revision not in HANDSHAKE_REVISIONS:
            raise InvalidRequest("initialize was answered without a handshake revision")
        self.revision = revision
        if self.offered is not None:
            self.client_info = self.offered.client_info
            self.declared = self.offered.capabilities
        self.move("answered")

    def finish(self) -> None:
        """Follow `notifications/initialized`, where it is served: inside of all middleware, before its handler."""
        if self.open:
            self.move("initialized")

    @property
    def capabilities(self) -> ClientCapabilities:
        """The capabilities that the client declared."""
        return self.declared or ClientCapabilities()

    @property
    def open(self) -> bool:
        """Whether requests may run."""
        return self.state in OPEN_STATES


class _NoHandshake(Handshake, frozen=True, eq=False):  # type: ignore[misc]  # connections share it
    """Of a connection that carries one request: nobody has shaken hands there, and most requests need nothing of it."""


NO_HANDSHAKE: Handshake = _NoHandshake()


class _ResultType(msgspec.Struct):
    resultType: str = "complete"


#: Decodes the `resultType` of a result.
decode_result_type = msgspec.json.Decoder(_ResultType).decode


class Era(ABC):
    """One generation of the protocol: every decision without I/O that the generations make differently."""

    __slots__ = (
        "has_sessions",
        "http_methods",
        "latest",
        "liveness_method",
        "name",
        "negotiation_method",
        "revisions",
    )

    def __init__(
        self,
        name: EraName,
        revisions: tuple[str, ...],
        *,
        negotiation_method: str,
        liveness_method: str,
        http_methods: tuple[str, ...],
        has_sessions: bool,
    ) -> None:
        #: The name in public options.
        self.name: EraName = name
        #: The published revisions, oldest first.
        self.revisions = revisions
        self.latest = revisions[-1]
        #: The request that negotiates and must be answered before the next message is read; "" if there is none.
        self.negotiation_method = negotiation_method
        #: The request that a client sends to find out whether the server still answers.
        self.liveness_method = liveness_method
        #: The HTTP methods of an endpoint.
        self.http_methods = http_methods
        #: Whether requests of one client belong together.
        self.has_sessions = has_sessions

    def __repr__(self) -> str:
        return f"<Era {self.name}>"

    def knows(self, revision: str) -> bool:
        """Whether a revision belongs to the era."""
        return revision in self.revisions

    # ---------------------------------------------------------------- messages that arrive

    @abstractmethod
    def admit(
        self,
        method: str,
        request_id: RequestId | None,
        meta: RequestMeta | None,
        head: Head | None,
        handshake: Handshake,
        supported: tuple[str, ...],
        one_shot: bool,
    ) -> str:
        """Check a message from a client and return the revision that governs it.

        Args:
            method: The method of the message.
            request_id: Its id; None for a notification.
            meta: Its `_meta`, if it has one.
            head: The head of its HTTP request; None on other transports.
            handshake: The handshake of the connection.
            supported: The revisions that the server supports, for the error that lists them.
            one_shot: Whether the channel carries this one request and ends.

        Raises:
            ProtocolError: The message is not acceptable; the subclass says why.
        """

    @abstractmethod
    def admit_from_server(self, method: str, request_id: RequestId | None, handshake: Handshake) -> str | None:
        """The revision that governs a message from a server; None for one that the era does not have."""

    @abstractmethod
    def check_response(self) -> None:
        """Raise InvalidRequest where servers send no requests, so that a response from a client is an error."""

    @abstractmethod
    def needs_handshake(self, method: str) -> bool:
        """Whether messages of this method are handled only after the handshake."""

    @abstractmethod
    def allows_batch(self, version: str | None, handshake: Handshake, one_shot: bool) -> bool:
        """Whether several messages may be sent as a JSON array; `version` is that of the HTTP header."""

    @abstractmethod
    def client_info(self, meta: RequestMeta | None, handshake: Handshake) -> Implementation | None:
        """Who the client says it is."""

    @abstractmethod
    def client_capabilities(self, meta: RequestMeta | None, handshake: Handshake) -> ClientCapabilities:
        """What the client declared."""

    @abstractmethod
    def raw_client_capabilities(self, meta: RequestMeta | None) -> Raw | None:
        """The capabilities as the request declares them, undecoded; None if it does not."""

    @abstractmethod
    def log_level(self, meta: RequestMeta | None, handshake: Handshake, default: str | None) -> str | None:
        """The least severe level of the log messages that the client wants; None for none. `default` is the server's."""

    @abstractmethod
    def may_request_input(self, method: str) -> bool:
        """Whether the client may be asked for input while a request of this method is served."""

    # ---------------------------------------------------------------- messages that leave

    @abstractmethod
    def check_server_request(self, method: str) -> None:
        """Raise GemelError where servers send no requests to their clients."""

    @abstractmethod
    def text_for_model(self, error: MissingClientCapability) -> str | None:
        """The text of the result of a tool that needs what the client doesn't have; None if the error is sent."""

    @abstractmethod
    def may_notify(self, method: str, request_method: str) -> bool:
        """Whether a server may send a notification of the protocol while it serves a request of that method."""

    @abstractmethod
    def finish_result(self, result: object, revision: str, server_meta: dict[str, Any]) -> Any:
        """The result as it is encoded: adapted to the revision, with the members that the era requires.

        The given result is not changed. Finishing a result twice changes nothing.
        """

    @abstractmethod
    def finish_error(self, error: ProtocolError) -> tuple[ProtocolError, int]:
        """The error as it is sent, with the codes of the era, and the status of its HTTP response."""

    @abstractmethod
    def elicitation_id(self) -> str | None:
        """A new id for an elicitation in URL mode; None where elicitations have none."""

    @abstractmethod
    def request_meta(
        self, revision: str, info: Implementation, capabilities: ClientCapabilities, log_level: str | None = None
    ) -> dict[str, Any]:
        """The `_meta` members that a client puts into each request."""

    @abstractmethod
    def cancels_by_message(self, over_http: bool, handshake: Handshake) -> bool:
        """Whether a request that is given up is followed by `notifications/cancelled`; over HTTP, closing may suffice."""

    # ---------------------------------------------------------------- results, as a client sees them

    @abstractmethod
    def mirrors_requests(self, over_http: bool) -> bool:
        """Whether HTTP headers repeat members of a request, so that intermediaries need not read the body."""

    @abstractmethod
    def deviation_of_cursor(self, cursor: str, *, is_repeated: bool) -> str:
        """The deviation by which a `nextCursor` ends a list; "" for one that leads to another page, or is an error."""

    @abstractmethod
    def may_cache(self, params: Mapping[str, Any]) -> bool:
        """Whether the result of a request with these params may be cached, as far as its hints allow it."""

    @abstractmethod
    def read_result_type(self, result: Raw, method: str) -> str:
        """The `resultType` of a result; "complete" if it has none. Raises InvalidResponse."""

    @abstractmethod
    def requires_input(self, result_type: str) -> bool:
        """Whether a result asks the client for input before the request can be completed."""

    @abstractmethod
    def check_unknown_result_type(self, result_type: str, method: str) -> None:
        """Raise InvalidResponse where a result of a type that nobody knows must not reach the caller."""
