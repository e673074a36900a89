"""Every limit has a safe default, can be set, and is kept by some code."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from gemel import DefinitionError, Limits
from tests.source import PACKAGE
from tests.support import DEFAULT_LIMITS

#: Not a limit but a habit, which is off unless it is asked for.
OPTIONAL = {"alive"}
FIELDS = msgspec.structs.fields(Limits)


def test_each_limit_limits_by_default() -> None:
    for field in FIELDS:
        default = getattr(DEFAULT_LIMITS, field.name)
        assert 0 < default < float("inf") or (default == 0 and field.name in OPTIONAL), field.name
        assert type(default) is field.type, field.name


def test_each_limit_is_read_by_some_code() -> None:
    sources = "".join(
        path.read_text() for path in PACKAGE.rglob("*.py") if path.name not in ("limits.py", "__init__.py")
    )
    read = set(re.findall(r"limits\.(\w+)", sources))
    assert [field.name for field in FIELDS if field.name not in read] == []


@pytest.mark.parametrize("wrong", ["1", None, True, -1, float("nan"), 1.5])
def test_what_is_no_limit_is_told_when_it_is_written(wrong: Any) -> None:
    limits: Any = Limits
    for field in FIELDS:
        if field.type is int or wrong != 1.5:
            with pytest.raises(DefinitionError, match=rf"Limits\({field.name}=.* is not possible: use "):
                limits(**{field.name: wrong})


@pytest.mark.parametrize("name", ["calls", "all_calls", "pending", "threads", "connections"])
def test_what_would_let_nothing_through_is_no_limit(name: str) -> None:
    limits: Any = Limits
    with pytest.raises(DefinitionError, match=rf"Limits\({name}=0\) is not possible: use a whole number, 1 or more"):
        limits(**{name: 0})


def test_what_may_be_nothing_or_little_is_taken() -> None:
    assert (Limits(stall=0).stall, Limits(reconnects=0).reconnects, Limits(calls=1).calls) == (0, 0, 1)


def test_seconds_may_be_whole_or_not() -> None:
    assert (Limits(drain=30).drain, Limits(drain=0.5).drain) == (30, 0.5)
    with pytest.raises(DefinitionError, match="use seconds, 0 or more"):
        Limits(drain=-1)


def test_a_limit_is_set_by_its_name_alone() -> None:
    assert Limits(body=1).body == 1
    assert Limits(body=1).line == DEFAULT_LIMITS.line
    with pytest.raises(TypeError):
        Limits(1)  # type: ignore[call-arg]  # that is the point
    with pytest.raises(AttributeError):
        Limits().body = 1  # type: ignore[misc]  # that is the point
