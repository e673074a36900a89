"""Pages of a list: each item once, however the list changes meanwhile, and no cursor but those given out."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel import InvalidParams
from gemel.server.features.pagination import paginate


class Item:
    """Something with a name."""

    def __init__(self, name: str) -> None:
        self.name = name


class Place:
    """Something with a URI."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.name = "all have this name"


def names(items: list[Any]) -> list[str]:
    return [item.name for item in items]


def pages(items: list[Any], size: int) -> list[list[str]]:
    found: list[list[str]] = []
    cursor = None
    for _ in range(len(items) + 1):
        page, cursor = paginate(items, cursor, size)
        assert len(page) <= size
        found.append(names(page))
        if cursor is None:
            break
    return found


@given(st.lists(st.text(max_size=3), unique=True, max_size=12), st.integers(1, 5))
def test_all_pages_together_are_the_list(keys: list[str], size: int) -> None:
    """PAGE-01: a list of one page in its own order, a longer one in that of the names."""
    together = [name for page in pages([Item(key) for key in keys], size) for name in page]
    assert together == (keys if len(keys) <= size else sorted(keys))


@given(
    st.lists(st.text("abcdef", min_size=1, max_size=3), unique=True, min_size=2, max_size=12),
    st.integers(1, 5),
    st.data(),
)
def test_items_that_stay_are_sent_once_whatever_comes_and_goes(keys: list[str], size: int, data: st.DataObject) -> None:
    """PAGE-06: even if the very item that a cursor names is removed."""
    staying = set(data.draw(st.lists(st.sampled_from(keys), unique=True)))
    items = [Item(key) for key in keys]
    sent: list[str] = []
    cursor = None
    for _ in range(100):
        page, cursor = paginate(items, cursor, size)
        sent += names(page)
        if cursor is None:
            break
        passing = data.draw(st.lists(st.text("abcdef", min_size=1, max_size=3), unique=True, max_size=3))
        items = [Item(key) for key in {*staying, *passing}]
    assert cursor is None
    assert len(sent) == len(set(sent))
    assert staying <= set(sent)


def test_without_a_size_there_is_one_page() -> None:
    assert paginate([Item("a"), Item("b")], None, None)[1] is None
    assert paginate([], None, 3) == ([], None)


def test_a_page_that_ends_with_the_list_is_the_last() -> None:
    items = [Item(str(number)) for number in range(4)]
    _, cursor = paginate(items, None, 2)
    page, cursor = paginate(items, cursor, 2)
    assert (names(page), cursor) == (["2", "3"], None)


def test_what_comes_or_goes_before_the_cursor_moves_nothing() -> None:
    """PAGE-06: the cursor names the last item given out, not a number."""
    items = [Item(name) for name in "abcdef"]
    _, cursor = paginate(items, None, 3)
    assert names(paginate(items[1:], cursor, 3)[0]) == ["d", "e", "f"]
    assert names(paginate([Item("aa"), *items], cursor, 3)[0]) == ["d", "e", "f"]


def test_a_cursor_whose_item_was_removed_loses_nothing() -> None:
    """PAGE-06."""
    items = [Item(name) for name in "abcdef"]
    _, cursor = paginate(items, None, 3)
    assert names(paginate([*items[:2], *items[3:]], cursor, 3)[0]) == ["d", "e", "f"]
    assert names(paginate(items[3:], cursor, 3)[0]) == ["d", "e", "f"]
    assert paginate([], cursor, 3) == ([], None)


def test_uris_tell_apart_what_names_do_not() -> None:
    items = [Place(f"file:///{number}") for number in range(4)]
    page, cursor = paginate(items, None, 3)
    assert [item.uri for item in paginate(items, cursor, 3)[0]] == ["file:///3"]
    assert len(page) == 3


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode()


@pytest.mark.parametrize(
    "cursor",
    ["", "2", "no base64!", _text(b""), _text(b"x:y"), _text(b"-1:y"), _text(b"\xff:y"), _text("²:y".encode()), "ü"],
)
def test_a_cursor_that_was_never_given_out_is_refused(cursor: str) -> None:
    """PAGE-06, ERR-04."""
    with pytest.raises(InvalidParams, match="Invalid cursor"):
        paginate([Item("a")], cursor, 1)


@given(st.text() | st.binary().map(_text))
def test_any_cursor_is_a_page_or_a_refusal(cursor: str) -> None:
    try:
        page, following = paginate([Item("a"), Item("b")], cursor, 1)
    except InvalidParams:
        return
    assert len(page) <= 1
    assert following is None or page
