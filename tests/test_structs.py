"""Structs that set members like slots: the garbage collector must know each object from the beginning."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gemel.client.methods import ClientContext
from gemel.http1.server.request import ServedRequest
from gemel.protocol.connection import Connection
from gemel.protocol.eras.base import Handshake
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.records import Call, Pending
from gemel.protocol.revisions.wrapping import ToolValueResult
from gemel.schema.tools import CallToolResult
from gemel.server.context import Context
from gemel.session import Session
from gemel.structs import sets_like_slots
from gemel.timeouts import Deadline
from gemel.transports.http.server.exchange import Exchange
from gemel.transports.http.server.stateless import PostChannel

PARAMS = msgspec.Raw(b"{}")
#: Stands for an object of ours that such a Struct always refers to.
OTHER: Any = Connection(None)
CALL = Call(1, "ping", PARAMS, None, STATELESS, STATELESS.latest)
MAKERS: dict[type[msgspec.Struct], Callable[[], object]] = {
    Call: lambda: Call(1, "ping", PARAMS, None, STATELESS, STATELESS.latest),
    CallToolResult: lambda: CallToolResult(content=[]),
    ClientContext: lambda: ClientContext(client=OTHER, method="ping", params={}),
    Connection: lambda: Connection(None),
    Context: lambda: Context(OTHER, CALL, None, OTHER, "ping", PARAMS, OTHER),
    Deadline: lambda: Deadline(OTHER, OTHER, 0, 0.0, 0.0, 0.0, None, None, None, 0),
    Exchange: lambda: Exchange(OTHER, OTHER, OTHER),
    Handshake: Handshake,
    Pending: lambda: Pending(1, "ping"),
    PostChannel: lambda: PostChannel(OTHER, 0, True),
    ServedRequest: lambda: ServedRequest({"type": "http"}, OTHER, True),
    Session: lambda: Session(OTHER, OTHER, OTHER, OTHER),
    ToolValueResult: lambda: ToolValueResult(content=[]),
}


def found(base: type) -> set[type]:
    below: list[type] = base.__subclasses__()
    own = {each for each in below if vars(each).get("__setattr__") is object.__setattr__}
    return own.union(*map(found, below))


def test_every_struct_that_sets_like_slots_is_in_the_table() -> None:
    ours = {each for each in found(msgspec.Struct) if each.__module__.startswith("gemel.")}
    assert ours == set(MAKERS)


@pytest.mark.parametrize("kind", MAKERS, ids=lambda kind: kind.__name__)
def test_the_garbage_collector_knows_it_from_the_beginning(kind: type[msgspec.Struct]) -> None:
    assert gc.is_tracked(MAKERS[kind]())


def test_a_cycle_through_a_member_that_was_set_is_collected() -> None:
    class Failed(Exception):
        """One that can be watched."""

    pending, error = Pending(1, "ping"), Failed()
    pending.error, error.args = error, (pending,)
    gone = weakref.ref(error)
    del pending, error
    gc.collect()
    assert gone() is None


def test_a_member_that_does_not_exist_cannot_be_set_or_removed() -> None:
    @sets_like_slots
    class Pair(msgspec.Struct):
        left: dict[str, int]
        right: int = 0

    pair = Pair({})
    pair.right = 2
    del pair.left
    assert pair.right == 2
    assert not hasattr(pair, "left")
    with pytest.raises(AttributeError):
        pair.middle = 1  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
