"""The tables of states: every state is reachable, every end is an end, and a move that isn't listed is a bug."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import pytest

from gemel.protocol.eras.base import Handshake
from gemel.protocol.states import (
    CALL_MOVES,
    HANDSHAKE_MOVES,
    PENDING_MOVES,
    RESPONSE_MOVES,
    CallState,
    HandshakeState,
    PendingState,
    ResponseState,
)

TABLES: list[tuple[Mapping[Any, Mapping[str, Any]], type[Enum], Enum]] = [
    (HANDSHAKE_MOVES, HandshakeState, HandshakeState.NEW),
    (CALL_MOVES, CallState, CallState.RUNNING),
    (PENDING_MOVES, PendingState, PendingState.WAITING),
    (RESPONSE_MOVES, ResponseState, ResponseState.OPEN),
]


@pytest.mark.parametrize(("moves", "states", "first"), TABLES)
def test_every_state_has_a_row_and_a_way_to_it(
    moves: Mapping[Any, Mapping[str, Any]], states: type[Enum], first: Enum
) -> None:
    assert set(moves) == set(states)
    reached, left = {first}, [first]
    while left:
        following = set(moves[left.pop()].values()) - reached
        reached |= following
        left.extend(following)
    assert reached == set(states)


@pytest.mark.parametrize(("moves", "states", "first"), TABLES[1:3])
def test_a_debt_is_over_once(moves: Mapping[Any, Mapping[str, Any]], states: type[Enum], first: Enum) -> None:
    """Answered, cancelled, given up, closed: from none of them leads a way anywhere."""
    for state in states:
        assert bool(moves[state]) is (state is first)


def test_a_response_that_is_over_stays_as_it_is() -> None:
    for state in (ResponseState.ENDED, ResponseState.LOST):
        assert set(RESPONSE_MOVES[state].values()) == {state}


def test_a_response_can_be_closed_and_its_client_gone_in_every_state() -> None:
    for moves in RESPONSE_MOVES.values():
        assert {"close", "disconnect"} <= moves.keys()


def test_a_conversation_can_close_in_every_state_and_then_stays_closed() -> None:
    for moves in HANDSHAKE_MOVES.values():
        assert moves["close"] is HandshakeState.CLOSED
    assert set(HANDSHAKE_MOVES[HandshakeState.CLOSED]) == {"close"}


def test_a_move_that_is_not_listed_is_a_bug() -> None:
    for state, moves in HANDSHAKE_MOVES.items():
        for event in {"initialize", "answered", "refused", "initialized", "assumed"} - moves.keys():
            handshake = Handshake()
            handshake.state = state
            with pytest.raises(KeyError):
                handshake.move(event)


def test_requests_run_once_the_handshake_is_answered() -> None:
    """Before the client has said that it is ready, its requests are served all the same."""
    for state in HandshakeState:
        handshake = Handshake()
        handshake.state = state
        assert handshake.open is (state in (HandshakeState.NEGOTIATED, HandshakeState.READY))
