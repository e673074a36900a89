"""The states of a handshake, of calls, requests and HTTP responses, and the moves between them, as tables.

`docs/ARCHITECTURE.md` shows these tables; a test compares them. A move that isn't listed is a bug.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class _State(Enum):
    """Members are hashed by identity, which is fast."""

    __hash__ = object.__hash__


class HandshakeState(_State):
    """How far the handshake of a connection got. Stateless requests don't depend on it."""

    NEW = "new"
    NEGOTIATING = "negotiating"
    NEGOTIATED = "negotiated"
    READY = "ready"
    CLOSED = "closed"


class CallState(_State):
    """A request of the peer that we serve."""

    RUNNING = "running"
    ANSWERED = "answered"
    CANCELLED = "cancelled"
    DROPPED = "dropped"


class PendingState(_State):
    """A request of ours that waits for a response."""

    WAITING = "waiting"
    ANSWERED = "answered"
    GIVEN_UP = "given up"
    LOST = "lost"


class ResponseState(_State):
    """The response of one HTTP request. What each verb that ends something means stands in `docs/ARCHITECTURE.md`."""

    OPEN = "open"
    STREAMING = "streaming"
    ENDED = "ended"
    LOST = "lost"


#: The states that are looked at for each message, as plain names: an enum looks its members up at each access.
RUNNING: Final = CallState.RUNNING
WAITING: Final = PendingState.WAITING
ANSWERED: Final = PendingState.ANSWERED
NEGOTIATED: Final = HandshakeState.NEGOTIATED
CLOSED: Final = HandshakeState.CLOSED

HANDSHAKE_MOVES: dict[HandshakeState, dict[str, HandshakeState]] = {
    HandshakeState.NEW: {
        "initialize": HandshakeState.NEGOTIATING,
        "assumed": HandshakeState.READY,
        "close": HandshakeState.CLOSED,
    },
    HandshakeState.NEGOTIATING: {
        "answered": HandshakeState.NEGOTIATED,
        "refused": HandshakeState.NEW,
        "close": HandshakeState.CLOSED,
    },
    HandshakeState.NEGOTIATED: {
        "initialized": HandshakeState.READY,
        "initialize": HandshakeState.NEGOTIATING,
        "close": HandshakeState.CLOSED,
    },
    HandshakeState.READY: {
        "initialized": HandshakeState.READY,
        "initialize": HandshakeState.NEGOTIATING,
        "close": HandshakeState.CLOSED,
    },
    HandshakeState.CLOSED: {"close": HandshakeState.CLOSED},
}

CALL_MOVES: dict[CallState, dict[str, CallState]] = {
    CallState.RUNNING: {
        "answer": CallState.ANSWERED,
        "cancel": CallState.CANCELLED,
        "close": CallState.DROPPED,
    },
    CallState.ANSWERED: {},
    CallState.CANCELLED: {},
    CallState.DROPPED: {},
}

PENDING_MOVES: dict[PendingState, dict[str, PendingState]] = {
    PendingState.WAITING: {
        "answer": PendingState.ANSWERED,
        "give up": PendingState.GIVEN_UP,
        "close": PendingState.LOST,
    },
    PendingState.ANSWERED: {},
    PendingState.GIVEN_UP: {},
    PendingState.LOST: {},
}

RESPONSE_MOVES: dict[ResponseState, dict[str, ResponseState]] = {
    ResponseState.OPEN: {
        "answer": ResponseState.ENDED,
        "event": ResponseState.STREAMING,
        "disconnect": ResponseState.LOST,
        "close": ResponseState.ENDED,
    },
    ResponseState.STREAMING: {
        "event": ResponseState.STREAMING,
        "end": ResponseState.ENDED,
        "disconnect": ResponseState.LOST,
        "close": ResponseState.ENDED,
    },
    ResponseState.ENDED: {
        "disconnect": ResponseState.ENDED,
        "close": ResponseState.ENDED,
    },
    ResponseState.LOST: {
        "answer": ResponseState.LOST,
        "disconnect": ResponseState.LOST,
        "close": ResponseState.LOST,
    },
}
