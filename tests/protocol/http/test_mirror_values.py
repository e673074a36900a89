"""How values stand in headers."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gemel.errors import HeaderMismatch, NotSent
from gemel.protocol.http.mirror import decode_value, encode_value, read_value

text = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        # as it is
        ("us-west1", "us-west1"),
        ("us west 1", "us west 1"),
        ("", ""),
        ("true", "true"),
        ("my-tool_name.2", "my-tool_name.2"),
        ("file:///path/to/file%20name.txt", "file:///path/to/file%20name.txt"),
        ("https://example.com/resource?id=123", "https://example.com/resource?id=123"),
        ("~!@#$%^&*()[]{}\\|;:'\",<>/?`", "~!@#$%^&*()[]{}\\|;:'\",<>/?`"),
        # numbers and truth
        (42, "42"),
        (-7, "-7"),
        (0, "0"),
        (1, "1"),
        (True, "true"),
        (False, "false"),
        # what HTTP can't carry
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        ("日本語", "=?base64?5pel5pys6Kqe?="),
        ("é", "=?base64?w6k=?="),
        (" us-west1", "=?base64?IHVzLXdlc3Qx?="),
        ("us-west1 ", "=?base64?dXMtd2VzdDEg?="),
        (" us-west1 ", "=?base64?IHVzLXdlc3QxIA==?="),
        (" ", "=?base64?IA==?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("line1\r\nline2", "=?base64?bGluZTENCmxpbmUy?="),
        ("\tindented", "=?base64?CWluZGVudGVk?="),
        ("a\tb", "=?base64?YQli?="),
        ("a\0b", "=?base64?YQBi?="),
        ("a\x7fb", "=?base64?YX9i?="),
        ("\u00a0", "=?base64?wqA=?="),
        # what looks like a sentinel
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("=?base64??=", "=?base64?PT9iYXNlNjQ/Pz0=?="),
        ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
        # and what doesn't
        ("=?base64?x", "=?base64?x"),
        ("x?=", "x?="),
        ("=?BASE64?eA==?=", "=?BASE64?eA==?="),
        ("x=?base64?eA==?=", "x=?base64?eA==?="),
    ],
)
def test_a_value_is_sent_as_it_is_or_behind_the_sentinel(value: str | int | bool, expected: str) -> None:
    """HDR-16, HDR-17."""
    assert encode_value(value) == expected


def test_half_a_surrogate_pair_is_never_sent() -> None:
    """It has no UTF-8; the error is ours, and says that nothing left (ERR-14)."""
    with pytest.raises(NotSent, match="surrogate"):
        encode_value("a\ud800")


@pytest.mark.parametrize(
    ("header", "meaning"),
    [
        ("Hello", "Hello"),
        ("  foo \t", "foo"),
        ("", ""),
        ("a\tb", "a\tb"),
        ("=?base64?SGVsbG8=?=", "Hello"),
        (" =?base64?SGVsbG8=?= ", "Hello"),
        ("=?base64??=", ""),
        ("=?base64?IHBhZGRlZCA=?=", " padded "),
        ("=?base64?5pel5pys6Kqe?=", "日本語"),
        ("=?base64?bGluZTEKbGluZTI=?=", "line1\nline2"),
        ("=?base64?YQBi?=", "a\0b"),
        # a sentinel inside a sentinel is decoded once
        ("=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", "=?base64?literal?="),
        # literals: a marker is missing or in another case
        ("SGVsbG8=", "SGVsbG8="),
        ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
        ("SGVsbG8=?=", "SGVsbG8=?="),
        ("=?BASE64?SGVsbG8=?=", "=?BASE64?SGVsbG8=?="),
        ("=?Base64?SGVsbG8=?=", "=?Base64?SGVsbG8=?="),
        ("=?base64?=", "=?base64?="),
        ("x=?base64?SGVsbG8=?=", "x=?base64?SGVsbG8=?="),
    ],
)
def test_a_header_means_its_text_or_what_the_sentinel_holds(header: str, meaning: str) -> None:
    """HDR-07, HDR-08, HDR-19."""
    assert decode_value(header) == meaning


@pytest.mark.parametrize(
    "header",
    [
        "=?base64?SGVsbG8?=",
        "=?base64?SGVs!!!bG8=?=",
        "=?base64?SGVs bG8=?=",
        "=?base64?SGVsbG8==?=",
        "=?base64?SGVsbG8=SGVsbG8=?=",
        "=?base64?=?=",
        "=?base64?A?=",
        "=?base64?_-8=?=",
        "=?base64?/w==?=",
        "=?base64?7aCA?=",
        "caf\xe9",
        "a\nb",
        "a\rb",
        "a\0b",
        "a\x7fb",
        "\n",
        "日本語",
    ],
    ids=ascii,
)
def test_a_header_that_cant_be_read_is_a_mismatch_that_names_it(header: str) -> None:
    """HDR-06, HDR-19: bad padding or characters, no UTF-8, surrogates; anything beyond ASCII without a sentinel."""
    with pytest.raises(HeaderMismatch, match="Mcp-Param-Region") as caught:
        decode_value(header, "Mcp-Param-Region")
    assert (caught.value.error.code, caught.value.http_status) == (-32020, 400)


def test_a_text_that_isnt_decoded_is_only_stripped() -> None:
    assert read_value(" =?base64?SGVsbG8=?=\t", "X") == "=?base64?SGVsbG8=?="


@given(text)
@example("=?base64?")
@example("=?base64?a?=")
@example("\t")
def test_every_text_survives_the_way_through_a_header(value: str) -> None:
    """HDR-17: and on the way it is visible ASCII, single blanks between, nothing that a server would strip."""
    header = encode_value(value)
    assert header.isascii()
    assert header.isprintable()
    assert header.strip() == header
    assert decode_value(header) == value


@given(st.text() | st.text("=?base64SGVsbG8/+ \t\n"))
@example("=?base64?SGVsbG8=?=")
def test_any_header_is_text_or_a_mismatch(header: str) -> None:
    try:
        meaning = decode_value(header)
    except HeaderMismatch:
        return
    assert meaning == header.strip(" \t") or header.strip(" \t").startswith("=?base64?")
