"""Canonical JSON: RFC 8785, with integers of any size."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from gemel.receipts import canonical_json

values = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False, allow_infinity=False) | some.text(),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(), inner, max_size=4),
    max_leaves=15,
)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        # The example of RFC 8785, section 3.2.3 and 3.2.4.
        (
            '{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],'
            '"string":"\\u20ac$\\u000F\\u000aA\'\\u0042\\u0022\\u005c\\\\\\"\\/","literals":[null,true,false]}',
            '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
            '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}',
        ),
        # Section 3.2.3: by UTF-16 code units, in which U+1F600 comes before U+FB33.
        ('{"\\ufb33":1,"\\ud83d\\ude00":2,"1":3}', '{"1":3,"\U0001f600":2,"\ufb33":1}'),
        ('{"a":1.0,"b":-0.0,"c":1e0}', '{"a":1,"b":0,"c":1}'),
        (' { "a" : [ 1 , 2 ] } ', '{"a":[1,2]}'),
        ('{"a":1,"a":2}', '{"a":2}'),
        ("9007199254740993", "9007199254740993"),
        ("\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16").join('""'), '"\U0001f600"'),
    ],
)
def test_examples(text: str, canonical: str) -> None:
    assert canonical_json(text).decode() == canonical


@pytest.mark.parametrize(
    ("bits", "canonical"),
    [
        # RFC 8785, appendix B.
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555554", "333333333.33333325"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
    ],
)
def test_doubles_are_written_as_ecmascript_does(bits: str, canonical: str) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    text = f"{value!r}" if "e" in f"{value!r}" or "." in f"{value!r}" else f"{value!r}.0"
    assert canonical_json(text).decode() == canonical


@given(values)
def test_the_canonical_form_of_a_canonical_form_is_itself_and_has_the_same_value(value: Any) -> None:
    once = canonical_json(json.dumps(value))
    assert canonical_json(once) == once
    assert equal(json.loads(once), value)


@given(values, some.booleans(), some.sampled_from([None, 1, "\t"]))
def test_how_a_value_is_written_does_not_matter(value: Any, ascii_only: bool, indent: Any) -> None:
    written = json.dumps(reversed_members(value), ensure_ascii=ascii_only, indent=indent)
    assert canonical_json(written) == canonical_json(json.dumps(value))


@given(values, values)
def test_different_values_have_different_forms(one: Any, other: Any) -> None:
    if canonical_json(json.dumps(one)) == canonical_json(json.dumps(other)):
        assert equal(one, other)


def test_a_surrogate_alone_has_a_form_of_its_own() -> None:
    forms = {canonical_json(text) for text in ('"\\ud800"', '"\\ud801"', '"\\udc00"', '"?"', '"\\ufffd"')}
    assert len(forms) == 5


@pytest.mark.parametrize("text", ["", "{", "NaN", "[1,]", "1e400", "Infinity", b"\xff", "1" * 10_000])
def test_what_has_no_canonical_form_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the text is that of Python's own parser
        canonical_json(text)


def reversed_members(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: reversed_members(each) for name, each in reversed(value.items())}
    return [reversed_members(each) for each in value] if isinstance(value, list) else value


def as_double(number: float) -> float:
    """The double that is nearest to a number."""
    try:
        return float(number)
    except OverflowError:
        return math.inf


def equal(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON value to who reads numbers as doubles: 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other or as_double(one) == as_double(other)
    return type(one) is type(other) and one == other
