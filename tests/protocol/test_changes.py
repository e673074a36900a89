"""Hints that something changed: whom they concern."""

import pytest

from hinge import Changed
from hinge.protocol.changes import covers


@pytest.mark.parametrize(
    ("watched", "changed", "concerned"),
    [
        ("a://b", "a://b", True),
        ("a://b", "a://b/c", True),
        ("a://b", "a://b?c", True),
        ("a://b", "a://b#c", True),
        ("a://b/", "a://b/c/d", True),
        ("a://b/", "a://b", False),
        ("a://b", "a://bc", False),
        ("a://b/c", "a://b", False),
        ("a://b", "A://b", False),
        ("a://b", "a://b.c", False),
        ("a://b", "", False),
    ],
)
def test_who_watches_hears_of_the_same_and_of_what_lies_below(watched: str, changed: str, concerned: bool) -> None:
    """SUB-13."""
    assert covers(watched, changed) is concerned


def test_equal_hints_can_be_merged() -> None:
    assert len({Changed("tools"), Changed("tools"), Changed("resource", "a:b"), Changed("resource", "a:b")}) == 2
