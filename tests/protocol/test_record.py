"""Records: each is itself alone, and tells nothing of what it holds."""

import gc
from typing import Any

import pytest

from gemel import Principal
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.records import Record
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
    assert "canary" not in f"{value!r} {value}"
    assert type(value).__name__ in repr(value)


def test_equal_ones_are_still_two() -> None:
    """Two calls of the same id are two calls."""
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


def test_what_outlives_a_request_belongs_to_a_caller_with_the_client_that_acts_for_it() -> None:
    assert Origin().owner is None
    assert Origin(principal="anna").owner == "anna"
    assert Origin(principal="anna", caller=Principal("anna", client="app")).owner == ("anna", "app")


def test_an_authorization_has_ended_on_and_after_its_expiry() -> None:
    """RFC 7519 §4.1.4."""
    origin = Origin(principal="anna", caller=Principal("anna", expires=100.0))
    assert [origin.has_expired(now) for now in (99.5, 100.0, 100.5)] == [False, True, True]
    assert not Origin(principal="anna", caller=Principal("anna")).has_expired(100.0)
    assert not Origin().has_expired(100.0)
    assert (origin.expires, Origin().expires) == (100.0, None)
