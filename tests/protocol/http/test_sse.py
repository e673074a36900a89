"""Server-sent events: what is written, and what is read however the bytes are cut."""

from __future__ import annotations

import re
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gemel import InvalidResponse
from gemel.protocol.http.sse import Decoder, Event, comment, encode, priming


def decode(stream: bytes, *cuts: int, limit: int = 1 << 20) -> list[Event]:
    """Read a whole stream, cut at these places."""
    decoder = Decoder(limit)
    events: list[Event] = []
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, end in pairwise(places):
        events += decoder.feed(stream[start:end])
    return events + decoder.end()


def message(data: bytes, event_id: str | None = None, retry: int | None = None) -> Event:
    return Event("message", data, event_id, retry)


# --- writing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (encode(b'{"a":1}'), b'data: {"a":1}\n\n'),
        (encode(b"x", event="message"), b"event: message\ndata: x\n\n"),
        (encode(b"x", event="endpoint", id="7", retry=0), b"event: endpoint\nid: 7\nretry: 0\ndata: x\n\n"),
        (encode(b"a\nb\r\nc\rd"), b"data: a\ndata: b\ndata: c\ndata: d\n\n"),
        (encode(b"\n"), b"data: \ndata: \n\n"),
        (encode(b""), b"data: \n\n"),
        (encode(b"x", id="é"), b"id: \xc3\xa9\ndata: x\n\n"),
        (priming("s/1"), b"id: s/1\ndata: \n\n"),
        (priming("s/1", retry=500), b"id: s/1\nretry: 500\ndata: \n\n"),
        (comment(), b":\n\n"),
        (comment("still here"), b": still here\n\n"),
        (comment("a\r\nb\rdata: c"), b": a\n: b\n: data: c\n\n"),
    ],
    ids=map(str, range(12)),
)
def test_an_event_is_written_as_the_format_has_it(made: bytes, expected: bytes) -> None:
    """LHTTP-08: an id and empty data."""
    assert made == expected


@pytest.mark.parametrize("bad", ["a\nb", "a\rb"])
def test_a_type_or_id_of_two_lines_is_refused(bad: str) -> None:
    """A line end in an id or type would let its author write fields, or whole events."""
    with pytest.raises(ValueError, match="one line"):
        encode(b"x", event=bad)
    with pytest.raises(ValueError, match="one line"):
        encode(b"x", id=bad)


def test_an_id_with_nul_is_refused_since_readers_ignore_it() -> None:
    with pytest.raises(ValueError, match="NUL"):
        priming("a\0b")


def test_a_negative_retry_is_refused() -> None:
    with pytest.raises(ValueError, match="milliseconds"):
        encode(b"x", retry=-1)


# --- reading ----------------------------------------------------------------------------------------------------------

READING: dict[str, tuple[bytes, list[Event]]] = {
    "one event": (b"data: x\n\n", [message(b"x")]),
    "no blank after the colon": (b"data:x\n\n", [message(b"x")]),
    "only one blank is dropped": (b"data:  x\n\n", [message(b" x")]),
    "a tab is not a blank": (b"data:\tx\n\n", [message(b"\tx")]),
    "crlf": (b"event: e\r\ndata: x\r\n\r\n", [Event("e", b"x", None, None)]),
    "cr": (b"event: e\rdata: x\r\r", [Event("e", b"x", None, None)]),
    "all line ends mixed": (b"data: a\rdata: b\r\ndata: c\n\r\n", [message(b"a\nb\nc")]),
    "several data lines": (b"data: a\ndata:\ndata: b\n\n", [message(b"a\n\nb")]),
    "empty data line first": (b"data\ndata: b\n\n", [message(b"\nb")]),
    "empty data": (b"data:\n\n", [message(b"")]),
    "data without a colon": (b"data\n\n", [message(b"")]),
    "the opening event": (b"id: 1\ndata:\n\n", [message(b"", "1")]),
    "an id alone": (b"id: 1\n\n", [message(b"", "1")]),
    "a retry alone": (b"retry: 250\n\n", [message(b"", None, 250)]),
    "an empty id resets": (b"id\ndata: x\n\n", [message(b"x", "")]),
    "an id belongs to one event": (b"id: 1\ndata: x\n\ndata: y\n\n", [message(b"x", "1"), message(b"y")]),
    "the last id counts": (b"id: 1\nid: 2\ndata: x\n\n", [message(b"x", "2")]),
    "nul in an id": (b"id: 1\0\ndata: x\n\n", [message(b"x")]),
    "nul in an id keeps the earlier one": (b"id: 1\nid: \0\ndata: x\n\n", [message(b"x", "1")]),
    "retry with a sign": (b"retry: -1\ndata: x\n\n", [message(b"x")]),
    "retry with a fraction": (b"retry: 1.5\ndata: x\n\n", [message(b"x")]),
    "retry with other digits": ("retry: ١\ndata: x\n\n".encode(), [message(b"x")]),
    "retry without a number": (b"retry:\ndata: x\n\n", [message(b"x")]),
    "retry beyond reason": (b"retry: " + b"9" * 5000 + b"\ndata: x\n\n", [message(b"x")]),
    "retry of twelve digits": (b"retry: 999999999999\n\n", [message(b"", None, 999_999_999_999)]),
    "retry of thirteen digits": (b"retry: 1000000000000\n\n", []),
    "retry with zeros in front": (b"retry: 0010\n\n", [message(b"", None, 10)]),
    "a comment": (b": ping\n\n", []),
    "a comment inside": (b"data: a\n: ping\ndata: b\n\n", [message(b"a\nb")]),
    "an unknown field": (b"foo: 1\nDATA: 2\ndata : 3\n\n", []),
    "a type without data": (b"event: ping\n\n", []),
    "a type doesn't outlive its event": (b"event: ping\n\ndata: x\n\n", [message(b"x")]),
    "an empty type": (b"event:\ndata: x\n\n", [message(b"x")]),
    "blank lines": (b"\n\n\n\r\n\r\r", []),
    "a bom at the start": (b"\xef\xbb\xbfdata: x\n\n", [message(b"x")]),
    "a bom later": (b"data: x\n\n\xef\xbb\xbfdata: y\n\n", [message(b"x")]),
    "two boms": (b"\xef\xbb\xbf\xef\xbb\xbfdata: x\n\n", []),
    "half a bom": (b"\xef\xbb", []),
    "bad utf-8 in a type": (b"event: \xff\ndata: x\n\n", [Event("�", b"x", None, None)]),
    "bad utf-8 in an id": (b"id: \xff\ndata: x\n\n", [message(b"x", "�")]),
    "bad utf-8 in data is the reader's": (b"data: \xff\n\n", [message(b"\xff")]),
    "other line ends of unicode are data": (
        "data: a\u2028\x0b\x0c\x85b\n\n".encode(),
        [message("a\u2028\x0b\x0c\x85b".encode())],
    ),
    "no blank line at the end": (b"data: x\n", [message(b"x")]),
    "no line end at the end": (b"data: x", [message(b"x")]),
    "an empty field without a line end": (b"data", [message(b"")]),
    "a comment without a line end": (b"data: x\n: bye", [message(b"x")]),
    "nothing": (b"", []),
}


@pytest.mark.parametrize(("stream", "expected"), READING.values(), ids=READING.keys())
def test_a_stream_reads_the_same_whole_and_byte_by_byte(stream: bytes, expected: list[Event]) -> None:
    """MHTTP-10: every line end, comments, tolerance at the end; at each cut and at all."""
    assert decode(stream) == expected
    assert decode(stream, *range(len(stream))) == expected
    if len(stream) < 200:
        for cut in range(len(stream)):
            assert decode(stream, cut) == expected, f"cut at {cut}"


def test_an_event_comes_out_as_soon_as_its_blank_line_is_there() -> None:
    decoder = Decoder()
    assert decoder.feed(b"data: x\n") == []
    assert decoder.feed(b"\n") == [message(b"x")]


def test_a_crlf_split_between_chunks_is_one_line_end() -> None:
    """A CR ends the line at once, and the LF that follows it later isn't a blank line."""
    decoder = Decoder()
    assert decoder.feed(b"data: x\r") == []
    assert decoder.feed(b"\ndata: y\r") == []
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"\r") == [message(b"x\ny")]
    assert decoder.feed(b"\n") == []
    assert decoder.end() == []


def test_a_blank_line_may_follow_a_crlf_in_pieces() -> None:
    decoder = Decoder()
    assert decoder.feed(b"data: x\r") == []
    assert decoder.feed(b"") == []
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"\n") == [message(b"x")]


def test_a_stream_that_has_ended_hands_out_nothing_twice() -> None:
    decoder = Decoder()
    decoder.feed(b"data: x")
    assert decoder.end() == [message(b"x")]
    assert decoder.end() == []


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_an_event_of_exactly_the_limit_passes_and_one_more_byte_fails(step: int) -> None:
    """One line, and the same bytes in several lines, at every way of arriving."""
    line = b"data: " + b"x" * 94
    lines = b"data: " + b"x" * 43 + b"\n" + b"data: " + b"x" * 44
    for body in (line, lines):
        stream = body + b"\n\n"
        cuts = range(0, len(stream), step)
        assert len(decode(stream, *cuts, limit=100)) == 1
        with pytest.raises(InvalidResponse, match="more than 99 bytes"):
            decode(stream, *cuts, limit=99)


def test_an_event_that_is_too_large_fails_at_once_and_the_stream_with_it() -> None:
    for chunk in (b"x" * 101, b"data: x\n" * 20):
        decoder = Decoder(100)
        with pytest.raises(InvalidResponse):
            decoder.feed(chunk)
        with pytest.raises(InvalidResponse):
            decoder.feed(b"\n\ndata: y\n\n")


def test_the_limit_counts_one_event_not_the_stream() -> None:
    assert len(decode(b"data: xxxx\n\n" * 1000, limit=10)) == 1000


def test_comments_count_for_nothing() -> None:
    """MHTTP-10: keep-alives may come for ever, also in the middle of an event."""
    decoder = Decoder(20)
    assert decoder.feed(b"data: x\n") == []
    for _ in range(100):
        assert decoder.feed(b": ping ping ping ping ping\n") == []
    assert decoder.feed(b"\n") == [message(b"x")]


def test_events_before_a_too_large_one_are_handed_out_first() -> None:
    decoder = Decoder(20)
    assert decoder.feed(b"data: answer\n\ndata: " + b"x" * 100) == [message(b"answer")]
    with pytest.raises(InvalidResponse):
        decoder.feed(b"\n\n")
    with pytest.raises(InvalidResponse):
        decoder.end()


@pytest.mark.parametrize(
    "endless",
    [b"x" * 4096, b"data: " + b"x" * 4090, b"data:\n" * 500, b"id: 1\n" * 500, b"unknown\n" * 500, b"data: ab\n" * 500],
    ids=["one line", "one data line", "empty lines", "ids", "unknown fields", "short lines"],
)
def test_an_endless_event_ends_in_an_error_and_little_memory(endless: bytes) -> None:
    """Constant memory: what is kept stays in proportion to the limit, whatever the lines are made of."""
    limit = 64 * 1024
    decoder = Decoder(limit)

    def feed_for_ever() -> None:
        for _ in range(100 * limit // len(endless)):
            decoder.feed(endless)

    tracemalloc.start()
    try:
        with pytest.raises(InvalidResponse):
            feed_for_ever()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * limit


def test_an_endless_comment_is_read_in_little_memory() -> None:
    decoder = Decoder(1024)
    chunk = b"x" * 4096
    decoder.feed(b": ")
    tracemalloc.start()
    try:
        for _ in range(1000):
            assert decoder.feed(chunk) == []
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024
    assert decoder.feed(b"\ndata: x\n\n") == [message(b"x")]


# --- properties -------------------------------------------------------------------------------------------------------

one_line = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=20)
ids = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=20)
events = st.tuples(
    st.binary(max_size=60) | st.text("ab\r\n: ", max_size=20).map(str.encode),
    st.none() | one_line,
    st.none() | ids,
    st.none() | st.integers(0, 10**12 - 1),
)
cutting = st.lists(st.integers(0, 400), max_size=12)


@given(st.lists(events, max_size=4), cutting)
@example([(b"a\r", None, None, None)], [])
def test_what_is_written_is_read_again_under_any_cuts(
    written: list[tuple[bytes, str | None, str | None, int | None]], cuts: list[int]
) -> None:
    """Line ends inside the data come back as LF; all else is unchanged."""
    stream = b"".join(
        encode(data, event=kind, id=event_id, retry=retry) + comment("quiet") for data, kind, event_id, retry in written
    )
    expected = [
        Event(kind or "message", re.sub(b"\r\n|\r", b"\n", data), event_id, retry)
        for data, kind, event_id, retry in written
    ]
    assert decode(stream, *cuts) == expected


@given(
    st.binary(max_size=200) | st.text("datievnr: 1\r\n\0\ufeff", max_size=120).map(str.encode),
    cutting,
    st.integers(1, 60),
)
def test_any_bytes_become_events_or_the_documented_error_and_cuts_change_nothing(
    stream: bytes, cuts: list[int], limit: int
) -> None:
    def outcome(*places: int) -> list[Event] | str:
        try:
            return decode(stream, *places, limit=limit)
        except InvalidResponse as exc:
            return str(exc)

    assert outcome() == outcome(*cuts) == outcome(*range(len(stream)))
