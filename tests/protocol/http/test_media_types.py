"""Content-Type and Accept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel.protocol.http.media_types import (
    BOTH,
    EITHER,
    POST_HEADERS,
    STREAM_HEADERS,
    TAKES_EVENTS,
    TAKES_JSON,
    check_accept,
    check_content_type,
    media_type,
    parse_accept,
    parse_media_type,
)
from gemel.protocol.http.request import Refusal
from tests.protocol.http.heads import head_of


def content_type(value: str | None) -> Refusal | None:
    return check_content_type(None if value is None else value.encode("latin-1"))


# --- Content-Type -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "application/json",
        "Application/JSON",
        " application/json\t",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        'application/json ; charset="Utf-8"',
        "application/json; charset=utf8",
        "application/json;",
        "application/json; ; charset=utf-8 ;",
        'application/json; profile="https://example.com/a;b,c"; version=1',
        'application/json; a="\\"text/plain\\""',
        "application/json; " + "a=" + "b" * 500,
    ],
)
def test_json_in_utf8_passes_in_any_spelling(value: str) -> None:
    """Any case, any parameters."""
    assert content_type(value) is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "text/plain",
        "text/plain; a=application/json",
        "text/plain; application/json",
        "application/jsonp",
        "application/json-patch+json",
        "application/vnd.api+json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/json",
        "json",
        "application/json, text/plain",
        "text/plain, application/json",
        "application /json",
        "application/ json",
        "application/json charset=utf-8",
        "application/json; charset",
        "application/json; charset=utf-16",
        "application/json; charset=iso-8859-1",
        "application/json; charset=utf-8; charset=utf-16",
        "application/json; charset = utf-8",
        'application/json; charset="utf-8',
        "application/json; charset=",
        "application/json\0",
        "application/jsön",
        "*/*",
        "application/*",
        "application/json" * 40,
    ],
)
def test_anything_else_is_415(value: str | None) -> None:
    """CVE-2026-33252: an exact match, since a page of another site may send a few types without asking."""
    refusal = content_type(value)
    assert refusal is not None
    assert refusal.status == 415
    assert "Send 'Content-Type: application/json'" in refusal.text
    assert refusal.headers == ((b"accept", b"application/json"),)
    assert refusal.text.isascii()
    assert len(refusal.text) < 400


def test_a_415_says_what_came() -> None:
    refusal = content_type("text/plain\x1b[31m")
    assert refusal is not None
    assert refusal.text.startswith("Content-Type must be application/json (UTF-8), not 'text/plain\\x1b[31m'. Send")


def test_a_media_type_is_read_with_its_parameters() -> None:
    """RFC 9110 §8.3.1."""
    assert parse_media_type('Text/Event-Stream; Charset=UTF-8; a="b\\\\\\"c"') == (
        "text/event-stream",
        {"charset": "UTF-8", "a": 'b\\"c'},
    )
    assert parse_media_type("a/b; c=1; C=1") == ("a/b", {"c": "1"})
    assert parse_media_type("a/b; c=1; C=2") is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("application/json", "application/json"),
        ("text/event-stream", "text/event-stream"),
        ("text/event-stream;charset=utf-8", "text/event-stream"),
        ("Application/JSON ; charset=utf-8", "application/json"),
        ("text/html", "text/html"),
        ("nonsense", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_a_client_sees_the_bare_media_type_of_an_answer(value: str | None, expected: str) -> None:
    assert media_type(value) == expected


@pytest.mark.parametrize(
    ("coding", "status"), [(None, None), (b"identity", None), (b" Identity", None), (b"gzip", 415), (b"", 415)]
)
def test_a_coded_body_is_refused(coding: bytes | None, status: int | None) -> None:
    """RFC 9110 §15.5.16."""
    refusal = check_content_type(b"application/json", coding)
    assert (refusal.status if refusal else None) == status


# --- Accept -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "flags"),
    [
        ("application/json, text/event-stream", BOTH),
        ("text/event-stream,application/json", BOTH),
        ("Application/JSON ,\ttext/EVENT-stream", BOTH),
        ("application/json;q=0.9, text/event-stream;q=0.1", BOTH),
        ("application/json; charset=utf-8, text/event-stream; a=b", BOTH),
        ("*/*", BOTH),
        ("text/html, */*;q=0.1", BOTH),
        ("application/*, text/*", BOTH),
        ("application/json", TAKES_JSON),
        ("application/*", TAKES_JSON),
        ("text/event-stream", TAKES_EVENTS),
        ("text/*", TAKES_EVENTS),
        ("application/json, text/event-stream;q=0", TAKES_JSON),
        ("*/*, text/event-stream;q=0", TAKES_JSON),
        ("*/*;q=0, application/json", TAKES_JSON),
        ("application/*;q=0, application/json, text/*;Q=0.000", TAKES_JSON),
        ("text/event-stream;q=0, text/*", 0),
        ("application/json;q=0.001", TAKES_JSON),
        ("application/json;v=0", TAKES_JSON),
        ("application/json;q=nonsense", TAKES_JSON),
        ("application/json;q=0, application/json", TAKES_JSON),
        ("*/*;q=0", 0),
        ("text/html", 0),
        ("application/jsonp, text/event-stream-2", 0),
        ("", 0),
        (",,;;,", 0),
        (None, BOTH),
        ("text/html, " * 60 + "application/json", TAKES_JSON),
    ],
)
def test_accept_says_which_answers_a_client_takes(value: str | None, flags: int) -> None:
    """RFC 9110 §12.5.1: wildcards, q, the most exact range first; no header takes anything."""
    assert parse_accept(None if value is None else value.encode("latin-1")) == flags


@pytest.mark.parametrize(
    ("need", "taken", "text"),
    [
        (
            BOTH,
            {BOTH},
            "Accept must list application/json and text/event-stream. "
            "Send 'Accept: application/json, text/event-stream'",
        ),
        (TAKES_EVENTS, {BOTH, TAKES_EVENTS}, "Accept must list text/event-stream. Send 'Accept: text/event-stream'"),
        (TAKES_JSON, {BOTH, TAKES_JSON}, "Accept must list application/json. Send 'Accept: application/json'"),
        (
            EITHER,
            {BOTH, TAKES_JSON, TAKES_EVENTS},
            "Accept must list application/json or text/event-stream. "
            "Send 'Accept: application/json, text/event-stream'",
        ),
    ],
)
def test_a_client_that_takes_too_little_gets_406_and_the_header_to_send(need: int, taken: set[int], text: str) -> None:
    """Table 4.B step 3."""
    spelled = {BOTH: "*/*", TAKES_JSON: "application/json", TAKES_EVENTS: "text/event-stream", 0: "image/png"}
    for flags, value in spelled.items():
        refusal = check_accept(parse_accept(value.encode()), need)
        assert refusal == (None if flags in taken else Refusal(406, text))


def test_our_own_requests_pass_our_own_checks() -> None:
    """MHTTP-03, LHTTP-02, LHTTP-12."""
    head = head_of(POST_HEADERS)
    assert (head.refusal, head.stateless_refusal, head.handshake_refusal) == (None, None, None)
    assert check_accept(parse_accept(STREAM_HEADERS["Accept"].encode()), TAKES_EVENTS) is None


# --- properties -------------------------------------------------------------------------------------------------------

values = st.binary(max_size=300) | st.text('aplictonj/s;q=0.1,*"\\ \t', max_size=300).map(str.encode)


@given(values)
def test_any_bytes_are_a_verdict(value: bytes) -> None:
    refusal = check_content_type(value)
    assert refusal is None or refusal.status == 415
    assert parse_accept(value) in (0, TAKES_JSON, TAKES_EVENTS, BOTH)


@pytest.mark.parametrize("unit", ['a="\\', ";", '"', '; a="\\"', ",", " "])
def test_a_long_hostile_value_takes_no_time_to_speak_of(unit: str) -> None:
    """Each unit would take minutes if the work grew with the square of the length."""
    value = unit.encode() * 200_000
    assert parse_accept(value) == 0
    check_content_type(b"application/json;" + value)


def test_a_kind_that_is_named_twice_is_accepted_if_it_once_is() -> None:
    assert parse_accept(b"application/json, application/json;q=0") == TAKES_JSON
    assert parse_accept(b"application/json;q=0, application/json") == TAKES_JSON
