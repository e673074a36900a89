"""Characters that a reader doesn't see, and text of others shown without being obeyed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel.contracts.display import escaped, hidden_in, name_shown, shown


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Plain, with é, 日本語, 🙂\ufe0f and\na line.", []),
        ("a\u202eb", ["U+202E"]),
        ("a\u200bb\u200b", ["U+200B"]),
        ("\U000e0049\U000e0047", ["U+E0049", "U+E0047"]),
        ("\x1b[31m", ["U+001B"]),
        ("\x7f\ufeff\xad\u2800\ue000\ufe01", ["U+007F", "U+FEFF", "U+00AD", "U+2800", "U+E000", "U+FE01"]),
    ],
)
def test_hidden_characters_are_named(text: str, found: list[str]) -> None:
    """Controls, bidi, zero width, tags."""
    assert hidden_in(text) == found


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_escaped_json_says_the_same_and_hides_nothing(text: str) -> None:
    found = escaped(json.dumps(text, ensure_ascii=False))
    assert json.loads(found) == text
    assert hidden_in(found) == []


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_shown_stays_on_its_line(text: str) -> None:
    for line in (shown(text), name_shown(text)):
        assert len(line) <= 200
        assert "\n" not in line
        assert hidden_in(line) == []
