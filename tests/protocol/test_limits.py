"""Every limit has a safe default, can be set, and is kept by some code."""

from __future__ import annotations

import re

import msgspec
import pytest

from hinge.protocol.limits import DEFAULT_LIMITS, Limits
from tests.source import ROOT

#: Not a limit but a habit, which is off unless it is asked for.
OPTIONAL = {"alive"}
FIELDS = msgspec.structs.fields(Limits)


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_a_limit_limits_unless_somebody_says_otherwise(field: msgspec.structs.FieldInfo) -> None:
    """No bound is left out by default."""
    default = getattr(DEFAULT_LIMITS, field.name)
    assert 0 < default < float("inf") or (default == 0 and field.name in OPTIONAL)
    assert type(default) is field.type


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_a_limit_is_kept_by_some_code(field: msgspec.structs.FieldInfo) -> None:
    """A setting that nobody reads would be a promise that nobody keeps."""
    sources = "".join(
        path.read_text() for path in (ROOT / "src").rglob("*.py") if path.name not in ("limits.py", "__init__.py")
    )
    assert re.search(rf"limits\.{field.name}\b", sources)


def test_a_limit_is_set_by_its_name_alone() -> None:
    assert Limits(body=1).body == 1
    assert Limits(body=1).line == DEFAULT_LIMITS.line
    with pytest.raises(TypeError):
        Limits(1)  # type: ignore[call-arg]  # that is the point
    with pytest.raises(AttributeError):
        Limits().body = 1  # type: ignore[misc]  # that is the point
