"""Hints that something changed: whom they concern."""

import pytest

from gemel import Changed, ChangesLost
from gemel.protocol.changes import ChangeBuffer, covers


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


def test_who_read_before_changes_were_lost_is_told_so_however_many_follow() -> None:
    buffer = ChangeBuffer(10, 1000)

    def publish(first: int, count: int) -> None:
        for number in range(first, first + count):
            buffer.add(Changed("resource", f"a://{number}"))

    publish(0, 10)
    before = buffer.position
    buffer.add(ChangesLost("the backend was away"))
    for count in (1, 9):
        after = buffer.position
        publish(after, count)
        for position in (before - 5, before):
            found = buffer.after(position)
            assert found is not None
            assert isinstance(found[1], ChangesLost)
        found = buffer.after(after)
        assert found is not None
        assert not isinstance(found[1], ChangesLost), "those that follow are kept"
