"""Records: each is itself alone, and tells nothing of what it holds."""

import gc
from typing import Any

import pytest

from hinge.protocol.eras.stateless import STATELESS
from hinge.protocol.records import Record
from tests.fuzz.ends import description_of
from tests.support import UNKNOWN_ORIGIN, Call, Origin, Outgoing, Pending


def kinds(root: type[Record] = Record) -> list[type[Record]]:
    return [one for kind in root.__subclasses__() for one in (kind, *kinds(kind))]


def made() -> list[Any]:
    secret: Any = {"canary": "canary"}
    return [
        Pending("canary", "canary"),
        Outgoing(b"canary", "canary", headers=secret),
        Call("canary", "canary", secret, None, STATELESS, "canary", Origin(principal="canary", transport=secret)),
        Origin(principal="canary", transport=secret),
    ]


@pytest.mark.parametrize("value", made(), ids=lambda value: type(value).__name__)
def test_what_is_printed_of_it_holds_no_secret(value: Any) -> None:
    """SEC-46."""
    assert "canary" not in f"{value!r} {value}"
    assert type(value).__name__ in repr(value)


def test_equal_ones_are_still_two() -> None:
    """Debts are told apart by identity: two calls of the same id are two calls."""
    one, other = Pending(1, "x"), Pending(1, "x")
    assert one != other
    assert len(dict.fromkeys([one, other])) == 2
    assert Origin() != UNKNOWN_ORIGIN


def test_no_kind_of_record_compares_or_prints_its_members() -> None:
    description_of()
    gc.collect()
    assert len(kinds()) > 4
    for kind in kinds():
        assert kind.__struct_config__.eq is False, kind
        assert kind.__repr__ is Record.__repr__, kind
