"""The table of costs in README.md names cases that exist, and validators are made where their work is bounded."""

from __future__ import annotations

import re
from pathlib import Path

from tests.load.run import SCENARIOS, UNLIMITED

ROOT = Path(__file__).resolve().parents[2]
README = Path(__file__).with_name("README.md")


def test_each_cost_has_a_case() -> None:
    rows = re.findall(r"^\|.+\| `(load:|tests/\S+::)(\w+)` \|$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) > 25
    for place, name in rows:
        if place == "load:":
            assert name in SCENARIOS
        else:
            text = (ROOT / place.removesuffix("::")).read_text(encoding="utf-8")
            assert f"def {name}(" in text, f"{place}{name}"
    named = {name for place, name in rows if place == "load:"}
    assert named == set(SCENARIOS)
    assert set(UNLIMITED) == set(SCENARIOS)


def test_validators_are_made_in_one_place() -> None:
    """All users of the validator share its bounds."""
    unbounded = re.compile(r"\bvalidator_for\b|\biter_errors\b|jsonschema_rs\.(evaluate|validate)\b")
    users = {
        path.relative_to(ROOT / "src/gemel").as_posix()
        for path in (ROOT / "src/gemel").rglob("*.py")
        if unbounded.search(path.read_text(encoding="utf-8"))
    }
    assert users == {"protocol/validation.py"}
