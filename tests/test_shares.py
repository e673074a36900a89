"""What is bounded is shared: whoever holds most gives way."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel.shares import Shares, address_share


def filled(*holders: str) -> Shares[int]:
    """Items 0, 1, … of these holders, in this order."""
    shares: Shares[int] = Shares()
    for item, holder in enumerate(holders):
        shares.add(holder, item)
    return shares


def test_the_largest_holder_gives_way_with_its_oldest_item_first() -> None:
    shares = filled("few", "many", "many", "many", "few")
    assert tuple(shares.giving_way("new")) == (1, 2, 3)


def test_a_newcomer_that_holds_as_much_as_anybody_displaces_itself_only() -> None:
    shares = filled("a", "b", "a", "b")
    assert tuple(shares.giving_way("b")) == (1, 3)
    assert tuple(shares.giving_way("a")) == (0, 2)


def test_an_item_that_is_used_again_is_the_last_to_give_way() -> None:
    shares = filled("a", "a", "a")
    shares.add("a", 0)
    assert tuple(shares.giving_way("a")) == (1, 2, 0)
    assert len(shares) == shares.held("a") == 3


def test_nobody_gives_way_while_nobody_holds_anything() -> None:
    shares = filled("a")
    shares.discard("a", 0)
    shares.discard("a", 0)
    shares.discard("unknown", 0)
    assert tuple(shares.giving_way("a")) == ()
    assert len(shares) == 0


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 6), st.booleans()), max_size=80))
def test_shares_agree_with_a_list(steps: list[tuple[str, int, bool]]) -> None:
    """Whatever is added, used and removed: the holder that gives way has most, and its items are in order."""
    shares: Shares[int] = Shares()
    model: list[tuple[str, int]] = []
    for holder, item, adds in steps:
        if (holder, item) in model:
            model.remove((holder, item))
        if adds:
            shares.add(holder, item)
            model.append((holder, item))
        else:
            shares.discard(holder, item)
    counts = Counter(holder for holder, _ in model)
    assert len(shares) == len(model)
    assert all(shares.held(holder) == counts[holder] for holder in "abcd")
    for newcomer in "abcd":
        items = tuple(shares.giving_way(newcomer))
        largest = {holder for holder, count in counts.items() if count == max(counts.values())}
        possible = {newcomer} if newcomer in largest else largest
        assert items in {tuple(item for owner, item in model if owner == holder) for holder in possible} or not model


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("2001:db8::1", "2001:db8::ffff:1:2:3", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::1%eth1", True),
        (None, "not an address", True),
        (None, "192.0.2.1", False),
    ],
)
def test_addresses_of_one_customer_have_one_share(one: str | None, other: str | None, same: bool) -> None:
    assert (address_share(one) == address_share(other)) is same
