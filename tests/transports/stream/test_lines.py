"""Lines out of a byte stream."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel.transports.stream.line_channel import HEAD, LineSplitter, Overlong, one_line


def split(data: bytes, at: list[int], limit: int = 1000) -> tuple[list[bytes], list[Overlong]]:
    """Feed the data cut at these places; all lines, the unfinished one too, and what was thrown away."""
    splitter = LineSplitter(limit)
    lines: list[bytes] = []
    edges = [0, *sorted(min(place, len(data)) for place in at), len(data)]
    for start, end in itertools.pairwise(edges):
        lines += splitter.feed(data[start:end])
    last = splitter.end()
    return lines + ([] if last is None else [last]), splitter.discarded


def test_a_line_ends_at_a_line_feed_and_one_carriage_return_before_it_is_dropped() -> None:
    """STDIO-01; a raw carriage return between tokens is no line end."""
    assert split(b"a\nb\r\nc\rd\n\r\r\n", [])[0] == [b"a", b"b", b"c\rd", b"\r"]


def test_empty_lines_are_no_messages() -> None:
    assert split(b"\n\r\n\na\n\n", [])[0] == [b"a"]


def test_a_last_line_without_an_end_is_given_at_the_end_unless_it_is_blank() -> None:
    """A partial line at the end of the input."""
    assert split(b"a\nlast", [])[0] == [b"a", b"last"]
    assert split(b"a\n \t", [])[0] == [b"a"]


@given(
    st.lists(st.binary(max_size=60).filter(lambda line: b"\n" not in line), max_size=8),
    st.lists(st.integers(0, 400), max_size=12),
)
def test_where_the_stream_is_cut_makes_no_difference(lines: list[bytes], cuts: list[int]) -> None:
    """The limit is one that some of the lines exceed."""
    data = b"\n".join([*lines, b""])
    whole, whole_discarded = split(data, [], limit=40)
    pieces, pieces_discarded = split(data, cuts, limit=40)
    assert pieces == whole
    assert len(pieces_discarded) == len(whole_discarded)
    assert all(len(line) <= 41 for line in whole)


@pytest.mark.parametrize("step", [1, 7, 50, 4096, 10**6])
def test_a_line_over_the_limit_is_discarded_and_the_next_one_works(step: int) -> None:
    """Whatever the size of the chunks."""
    data = b"x" * 101 + b"\n" + b"y" * 100 + b"\r\nz\n"
    lines, discarded = split(data, list(range(0, len(data), step)), limit=100)
    assert lines == [b"y" * 100, b"z"]
    assert len(discarded) == 1


def test_what_is_held_of_a_discarded_line_does_not_grow() -> None:
    """Constant memory."""
    splitter = LineSplitter(100_000)
    for _ in range(100):
        splitter.feed(b"x" * 50_000)
    assert len(splitter._held) == HEAD
    assert splitter.feed(b"\nnext\n") == [b"next"]
    assert len(splitter._held) == 0


def test_a_discarded_line_at_the_end_of_the_input_is_known_too() -> None:
    lines, discarded = split(b"x" * 500, [100, 200], limit=50)
    assert (lines, len(discarded)) == ([], 1)


@pytest.mark.parametrize(
    ("line", "expected_id", "answers"),
    [
        ({"jsonrpc": "2.0", "id": 7, "method": "m", "params": {"id": 9, "pad": "x" * 9000}}, 7, False),
        ({"id": 'a"b}', "method": "m", "params": {"pad": "x" * 9000}}, 'a"b}', False),
        ({"method": "m", "params": {"id": 9, "deep": [{"id": 8}], "pad": "x" * 9000}}, None, False),
        ({"method": "m", "params": {"pad": 'x",\\"id":5,' * 900}}, None, False),
        ({"method": "m", "params": {"pad": "x" * 9000}, "jsonrpc": "2.0", "id": 12}, 12, False),
        ({"result": {"pad": "x" * 9000, "id": 3}}, None, True),
        ({"result": {"pad": "x" * 9000}, "jsonrpc": "2.0", "id": "last"}, "last", True),
        ({"jsonrpc": "2.0", "id": -1, "error": {"code": 1, "message": "x" * 9000}}, -1, True),
        ({"id": True, "method": "x" * 9000}, None, False),
        ({"id": 1.5, "method": "x" * 9000}, None, False),
        ([{"id": 1, "method": "x" * 9000}], None, False),
    ],
)
def test_the_id_of_a_discarded_line_is_read_at_the_top_level_only(
    line: Any, expected_id: object, answers: bool
) -> None:
    """An error for the wrong id would fail somebody else's call."""
    text = msgspec.json.encode(line)
    found = Overlong(text[:HEAD], text[-256:])
    assert (found.id, found.is_response) == (expected_id, answers)


def test_of_two_ids_none_is_read() -> None:
    """At the beginning and at the end of a discarded line, or both at its beginning."""
    assert Overlong(b'{"id":1,"method":"m","params":{"pad":"xxx', b'xxx"},"id":2}').id is None
    assert Overlong(b'{"id":1,"id":2,"method":"m","params":{"pad":"xxx', b'xxx"}}').id is None


def test_an_id_that_is_cut_off_is_not_read() -> None:
    """12 of 1234 would be another call's id."""
    assert Overlong(b'{"method":"m","id":12', b"").id is None
    assert Overlong(b'{"method":"m","id":"12', b"").id is None


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_any_bytes_can_be_the_head_and_tail_of_a_discarded_line(head: bytes, tail: bytes) -> None:
    """The fuzz invariant, for the reading of ids."""
    assert isinstance(Overlong(head, tail).id, int | str | None)


def test_line_breaks_between_the_tokens_of_a_message_are_taken_out() -> None:
    """STDIO-01: no newline inside a message, even in JSON that was passed through from elsewhere."""
    text = b'{\r\n  "id": 1,\n  "text": "a\\nb"\n}'
    line = one_line(text)
    assert b"\n" not in line
    assert b"\r" not in line
    assert msgspec.json.decode(line) == {"id": 1, "text": "a\nb"}
