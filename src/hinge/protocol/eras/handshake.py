"""The handshake era: `initialize` opens a conversation, whose state is a Handshake. Knows the four handshake revisions."""

from __future__ import annotations

from typing import Any

from hinge.errors import InvalidParams, InvalidRequest, MissingClientCapability, ProtocolError, ResourceNotFound
from hinge.jsonrpc import Notification, Request
from hinge.protocol.calls import Call, Inbound, Origin
from hinge.protocol.description import ServerDescription
from hinge.protocol.states import HANDSHAKE_MOVES, HandshakeState
from hinge.schema.base import Implementation
from hinge.schema.lifecycle import ClientCapabilities, InitializeParams, InitializeResult
from hinge.schema.revisions import HANDSHAKE_REVISIONS, V2025_03, V2025_11

LATEST = V2025_11
#: What a peer speaks that never said so (VER-18, VER-20).
ASSUMED = V2025_03

#: May be asked before the handshake is over (PING-01).
ALWAYS_ALLOWED = frozenset({"initialize", "ping"})


_NO_CAPABILITIES = ClientCapabilities()


class Handshake:
    """What one conversation agreed on, and the level of log messages that it asked for."""

    __slots__ = ("capabilities", "client_info", "log_level", "offered", "revision", "state")

    def __init__(self) -> None:
        self.state = HandshakeState.NEW
        self.revision = ASSUMED
        self.client_info: Implementation | None = None
        self.capabilities = _NO_CAPABILITIES
        self.log_level: str | None = None
        #: What `initialize` negotiated, until its answer is out (A-119, A-120).
        self.offered: InitializeParams | None = None

    def move(self, event: str) -> None:
        """Follow the table; a move that it doesn't list is a bug."""
        self.state = HANDSHAKE_MOVES[self.state][event]

    def assume(self, revision: str | None) -> None:
        """Go on without a handshake: a one-shot channel whose client shook hands elsewhere."""
        self.revision = revision if revision in HANDSHAKE_REVISIONS else ASSUMED
        self.move("assumed")

    @property
    def open(self) -> bool:
        """Whether requests may run."""
        return self.state in (HandshakeState.NEGOTIATED, HandshakeState.READY)


def make_call(inbound: Inbound, origin: Origin, handshake: Handshake) -> Call:
    """A call by the revision of this conversation; nothing is checked."""
    message = inbound.message
    assert type(message) is Request or type(message) is Notification
    return Call(
        message.id if type(message) is Request else None,
        message.method,
        message.params,
        meta=inbound.meta,
        era="2025",
        revision=handshake.revision,
        origin=origin,
    )


def admit(inbound: Inbound, origin: Origin, handshake: Handshake) -> Call:
    """Make the call. `initialize` starts the negotiation; a second one is refused and changes nothing."""
    call = make_call(inbound, origin, handshake)
    if call.id is not None and call.method == "initialize":
        if handshake.state is not HandshakeState.NEW:
            raise InvalidRequest("This conversation is initialized already")
        handshake.move("initialize")
        handshake.offered = None
        call.inline = True
    elif call.id is None and call.method == "notifications/initialized" and handshake.open:
        handshake.move("initialized")
    return call


def gate(method: str, handshake: Handshake) -> None:
    """Refuse what comes before the handshake; asked after the look-up, so that only served methods are early (A-109)."""
    if not handshake.open and method not in ALWAYS_ALLOWED:
        raise InvalidParams("Invalid request parameters", "")


def initialize(params: InitializeParams, handshake: Handshake, description: ServerDescription) -> InitializeResult:
    """Negotiate: the asked revision if it is one of ours, else our latest (LIFE-04, A-150). Commits nothing yet."""
    asked = params.protocol_version
    revision = asked if asked in HANDSHAKE_REVISIONS else LATEST
    handshake.offered = params
    return InitializeResult(
        protocol_version=revision,
        capabilities=description.capabilities_in("2025"),
        server_info=description.info,
        instructions=description.instructions,
    )


def commit(handshake: Handshake, result: Any) -> None:
    """The chain answered `initialize`: keep what the answer says, so that reply and state can't differ (A-119, A-120)."""
    if isinstance(result, InitializeResult):
        revision: Any = result.protocol_version
    else:
        revision = result.get("protocolVersion") if isinstance(result, dict) else None
    if revision not in HANDSHAKE_REVISIONS:
        raise InvalidRequest("initialize was answered without a handshake revision")
    handshake.revision = revision
    if handshake.offered is not None:
        handshake.client_info = handshake.offered.client_info
        handshake.capabilities = handshake.offered.capabilities
    handshake.move("answered")


def error(exc: ProtocolError) -> tuple[ProtocolError, int]:
    """What goes out for an error, and its HTTP status: errors of the protocol ride on 200 (ERR-18)."""
    if type(exc) is ResourceNotFound:
        return ProtocolError(exc.error.message, exc.error.data, code=-32002), 200  # RES-06
    if type(exc) is MissingClientCapability:  # the code is of the stateless era
        return InvalidRequest(exc.error.message, exc.error.data), 200
    return exc, 200
