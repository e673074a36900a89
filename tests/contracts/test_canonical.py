"""One text for one JSON value."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel.contracts.canonical import canonical, fingerprint

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(TEXTS, inner, max_size=5)),
    max_leaves=25,
)


@given(JSON)
def test_it_reads_back_as_the_same_value(value: Any) -> None:
    assert json.loads(canonical(value)) == value


@given(st.dictionaries(TEXTS, JSON, min_size=2, max_size=5))
def test_the_order_of_members_has_no_say(value: dict[str, Any]) -> None:
    turned = dict(reversed(value.items()))
    assert fingerprint(turned) == fingerprint(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
        ({"😀": 1, "ﬁ": 2, "z": 3}, '{"z":3,"😀":1,"ﬁ":2}'),  # RFC 8785 section 3.2.3: by UTF-16 code units
        ("\x1f\n/é\u2028", '"\\u001f\\n/é\u2028"'),
        (1.0, "1"),
        (-0.0, "0"),
        (1e21, "1000000000000000000000"),
        (0.1, "0.1"),
        (1e-6, "0.000001"),
        (1.5e-5, "0.000015"),
        (1e-7, "1e-7"),
        (-2.5e-9, "-2.5e-9"),
        (5e-324, "5e-324"),
        (12345678901234567890, "12345678901234567890"),
    ],
)
def test_it_is_written_as_documented(value: Any, text: str) -> None:
    assert canonical(value) == text


def test_a_fingerprint_is_the_digest_of_the_text() -> None:
    """The same on every Python and machine: the value is written down here."""
    assert fingerprint({"a": 1}) == "sha256:" + hashlib.sha256(b'{"a":1}').hexdigest()
    assert fingerprint({"a": 1.0}) == "sha256:015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"


@pytest.mark.parametrize("value", [math.nan, math.inf, {1, 2}, "\ud800"])
def test_what_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="is n"):
        canonical(value)
