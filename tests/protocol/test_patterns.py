"""In how many places of a pattern a match may be at once: an upper bound, from the text of the pattern."""

from __future__ import annotations

import pytest

from gemel.protocol.patterns import MAX_POSITIONS, count_positions


@pytest.mark.parametrize(
    ("pattern", "positions"),
    [
        ("", 0),
        ("abc", 3),
        ("a{50}", 50),
        ("a{2,5}", 5),
        ("a{3,}", 4),
        ("a{0}", 1),
        ("a{0,0}b", 1),
        ("a{1}b", 2),
        ("{5}a", 1),
        ("a({5}b)", 2),
        ("(?:ab){3}c", 7),
        ("((a{3}b){4}c){5}", 85),
        ("(?<name>a|b)*", 2),
        ("(?P<name>ab)", 2),
        (r"\p{Letter}\x{41}\d\.", 4),
        ("[a-z{3}(]", 1),
        (r"[^]\]a]{9}", 9),
        ("(a){2}{3}", 6),
        (")a", 2),
        ("((a", 1),
        ("[ab", 1),
        ("a{x}", 4),
        ("((((a{1000}){1000}){1000}){1000}){1000}", MAX_POSITIONS),
    ],
)
def test_repetitions_multiply_and_alternatives_add(pattern: str, positions: int) -> None:
    assert count_positions(pattern) == positions


@pytest.mark.parametrize(
    ("pattern", "positions"),
    [
        ("^[0-9a-f]{64}$", 0),
        (r"^\d{4}-\d\d$", 0),
        ("^ab+c", 2),
        ("^ab{2,3}c", 4),
        ("^a{20}b?c{5}", 6),
        ("^a|bc", 2),
        ("^ab(c)", 1),
        ("a^b", 3),
    ],
)
def test_what_can_match_in_one_way_only_counts_as_one_place(pattern: str, positions: int) -> None:
    """At the start of the text, up to the first repetition or alternative that leaves a choice."""
    assert count_positions(pattern) == positions


@pytest.mark.parametrize("piece", ["(", "[", "\\", "{", "{1", "(?<", "(?<a", "\\p{", "^[", "a{9}", "{9}", "^a", "a|"])
def test_no_text_takes_more_than_one_look_at_each_character(piece: str) -> None:
    """A search that began anew at each character would take hours."""
    assert 0 <= count_positions(piece * 200_000) <= MAX_POSITIONS
