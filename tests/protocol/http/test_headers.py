"""The headers of a request, the mirrored ones, and statuses."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel import HeaderMismatch, InvalidRequest, NotSent, Refusal
from gemel.protocol.http.headers import (
    POST_ONLY,
    SESSION_METHODS,
    Head,
    HeadRules,
    is_session_id,
    judge_message,
    judge_name,
    read_last_event_id,
)
from gemel.protocol.http.mirror import request_headers
from gemel.protocol.http.origin import Guard
from gemel.protocol.http.request import REPEATED, Headers
from gemel.schema.revisions import HANDSHAKE_REVISIONS
from tests.protocol.http.heads import head_of, judged

VERSION = "v-modern"

# --- reading ----------------------------------------------------------------------------------------------------------


def test_headers_are_a_mapping_of_text_with_names_in_any_case() -> None:
    """HDR-05, HDR-08."""
    headers = Headers({b"host": b"a", b"x-name": b" \tcaf\xe9 "})
    assert headers["X-Name"] == "café"
    assert headers.get("HOST") == "a"
    assert headers.get("nothing") is None
    assert "x-name" in headers
    assert "\ud800" not in headers
    assert dict(headers) == {"host": "a", "x-name": "café"}
    assert len(headers) == 2


def test_the_repr_of_headers_keeps_their_values_to_itself() -> None:
    """Headers land in logs and tracebacks; tokens must not."""
    assert repr(Headers({b"authorization": b"Bearer secret", b"host": b"a"})) == "<Headers authorization, host>"
    assert "secret" not in repr(head_of({"Authorization": "Bearer secret"}))


def test_what_may_come_twice_is_joined_as_http_has_it() -> None:
    pairs = [(b"accept", b"application/json"), (b"cookie", b"a=1"), (b"mcp-method", b"ping"), (b"last-event-id", b"7")]
    headers = head_of([*pairs, (b"accept", b"text/event-stream"), (b"cookie", b"b=2")])
    joined = {b"accept": b"application/json, text/event-stream", b"cookie": b"a=1; b=2"}
    assert headers.raw == {**joined, b"mcp-method": b"ping", b"last-event-id": b"7"}
    assert headers.barred == head_of({}).barred


@pytest.mark.parametrize("name", [b"host", b"origin", b"content-type", b"content-length", b"authorization"])
def test_what_must_be_single_is_named_when_it_comes_twice(name: bytes) -> None:
    """RFC 9112 §3.2: even when both say the same."""
    refusal = head_of([(name, b"a"), (b"x", b"y"), (name, b"a")]).barred
    assert refusal == Refusal(400, f"Headers that must be sent once came more than once: {name.decode()}")


@pytest.mark.parametrize(
    "name", [b"mcp-method", b"mcp-name", b"mcp-param-x", b"mcp-protocol-version", b"mcp-session-id", b"last-event-id"]
)
def test_a_header_of_mcp_that_comes_twice_reads_as_nothing_valid(name: bytes) -> None:
    """It is for the check that needs it to refuse (a modern request may repeat what it must not have)."""
    head = head_of([(b"host", b"localhost"), (name, b"a"), (name, b"a")])
    assert head.raw == {b"host": b"localhost", name: REPEATED}
    assert head.barred is None


@given(st.lists(st.tuples(st.sampled_from([b"host", b"mcp-name", b"accept", b"cookie", b"x"]), st.binary(max_size=8))))
def test_any_headers_can_be_read(raw: list[tuple[bytes, bytes]]) -> None:
    headers = head_of(raw).headers
    assert set(headers.raw) == {name for name, _ in raw}
    assert all(isinstance(headers[name], str) for name in headers)


# --- methods and ids --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "HEAD", "OPTIONS", "TRACE", "post", ""])
def test_another_method_is_405_and_names_those_that_work(method: str) -> None:
    """LHTTP-13, MHTTP-16, ERR-16."""
    stateless = HeadRules(Guard(), POST_ONLY)
    assert judged((b"content-type", b"application/json"), rules=stateless).refusal is None
    refusal = judged(method=method, rules=stateless).refusal
    assert refusal == Refusal(405, "This endpoint takes POST", ((b"allow", b"POST"),))
    refusal = judged(method=method).refusal
    assert (refusal is None) == (method in SESSION_METHODS)
    if refusal:
        assert refusal.headers == ((b"allow", b"GET, POST, DELETE"),)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [([], None), ([b" v1\t"], "v1"), ([b""], ""), ([b"\xff"], "ÿ"), ([b"v1", b"v1"], "\n")],
)
def test_the_version_header_is_read_as_it_stands(raw: list[bytes], expected: str | None) -> None:
    """Table 4.A: whether it is a revision is for the eras to say; one sent twice is none."""
    assert head_of([(b"mcp-protocol-version", value) for value in raw]).version == expected


@pytest.mark.parametrize("text", ["a", "!", "~", "0b1c-8d", "x" * 4000, 'a"b\\c'])
def test_a_session_id_is_any_visible_ascii(text: str) -> None:
    """LHTTP-21: 0x21 to 0x7E."""
    assert is_session_id(text)
    assert head_of({"Mcp-Session-Id": f" {text} "}).session_id == text


@pytest.mark.parametrize("text", ["a b", "a\tb", "a\x7f", "é", "a\0", "\x1f", "a\nb"])
def test_a_session_id_of_other_characters_is_malformed(text: str) -> None:
    """LHTTP-21."""
    assert not is_session_id(text)
    refusal = head_of({"Mcp-Session-Id": text}).handshake_refusal
    assert refusal is not None
    assert refusal.status == 400
    assert "visible ASCII" in refusal.text


def test_an_empty_session_id_is_none_and_two_are_malformed() -> None:
    assert not is_session_id("")
    assert head_of({}).session_id is None
    assert head_of({"Mcp-Session-Id": " "}).session_id is None
    assert head_of({"Mcp-Session-Id": " "}).handshake_refusal is None
    refusal = head_of([(b"mcp-session-id", b"a"), (b"mcp-session-id", b"a")]).handshake_refusal
    assert refusal is not None
    assert "sent once" in refusal.text


@pytest.mark.parametrize(
    ("raw", "expected"), [(b"", None), (b" ", None), (b"7", "7"), (b" a b ", "a b"), ("é".encode(), "é")]
)
def test_the_last_event_id_is_text_or_none(raw: bytes, expected: str | None) -> None:
    assert read_last_event_id(head_of({b"last-event-id": raw})) == expected
    assert read_last_event_id(head_of({})) is None


@pytest.mark.parametrize("raw", [b"a\0", b"\xff", b"a\nb", b"\x7f", REPEATED])
def test_a_last_event_id_that_no_event_can_have_is_malformed(raw: bytes) -> None:
    with pytest.raises(InvalidRequest, match="Last-Event-ID"):
        read_last_event_id(head_of({b"last-event-id": raw}))


# --- the order of the checks ------------------------------------------------------------------------------------------

JSON = (b"content-type", b"application/json")


@pytest.mark.parametrize(
    ("length", "status"),
    [
        *((b"0", None), (b"4194304", None), (b"4194305", 413), (b"99999999", 413), (b"9" * 5000, 413)),
        *((b"4194305 bytes", None), (b"-4194305", None)),
    ],
)
def test_a_body_that_is_too_long_is_refused_before_it_is_read(length: bytes, status: int | None) -> None:
    """What is no number is for the HTTP server to refuse."""
    refusal = judged(JSON, (b"content-length", length)).refusal
    assert (refusal.status if refusal else None) == status


@pytest.mark.parametrize(("method", "kind", "status"), [("PUT", JSON[1], 405), ("POST", b"text/plain", 415)])
def test_method_and_content_type_are_judged_before_the_size_of_the_body(method: str, kind: bytes, status: int) -> None:
    refusal = judged((b"content-type", kind), (b"content-length", b"99999999"), method=method).refusal
    assert refusal is not None
    assert refusal.status == status


@pytest.mark.parametrize(
    ("method", "any_accept", "status"),
    [("GET", False, 406), ("GET", True, None), ("DELETE", False, None)],
)
def test_only_a_get_of_an_event_stream_must_accept_one(method: str, any_accept: bool, status: int | None) -> None:
    """LHTTP-12: transports, "Listening for Messages from the Server"."""
    rules = HeadRules(Guard(), SESSION_METHODS, any_accept=any_accept)
    refusal = judged((b"accept", b"application/json"), method=method, rules=rules).refusal
    assert (refusal.status if refusal else None) == status


def test_accept_is_judged_before_the_version_and_the_version_before_the_session_id() -> None:
    rest = [(b"mcp-protocol-version", b"x"), (b"mcp-session-id", b"a b")]
    statuses = []
    for pairs in ([(b"accept", b"text/html"), *rest], rest, rest[1:]):
        head = judged(JSON, *pairs)
        assert head.handshake_refusal is not None
        assert head.session_id is None
        statuses.append((head.handshake_refusal.status, head.handshake_refusal.error is not None))
    assert statuses == [(406, False), (400, True), (400, False)]


@pytest.mark.parametrize("session_id", [b"abc", b"a b"])
def test_without_http_sessions_the_session_id_is_ignored(session_id: bytes) -> None:
    """Clients may send what another server gave them."""
    head = judged(JSON, (b"mcp-session-id", session_id), rules=HeadRules(Guard(), POST_ONLY, sessions=False))
    assert head.session_id is None
    assert head.handshake_refusal is None


# --- mirrored headers: client -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "name", "expected"),
    [
        ("tools/list", None, {}),
        ("tools/call", "get_weather", {"Mcp-Name": "get_weather"}),
        ("resources/read", "file:///a%20b?c=d", {"Mcp-Name": "file:///a%20b?c=d"}),
        ("resources/read", "file:///é", {"Mcp-Name": "=?base64?ZmlsZTovLy/DqQ==?="}),
        ("tools/call", "", {"Mcp-Name": ""}),
        ("acme/search", None, {}),
    ],
)
def test_a_client_mirrors_version_method_and_name(method: str, name: str | None, expected: dict[str, str]) -> None:
    """HDR-01, HDR-02, HDR-03, HDR-18."""
    headers = request_headers(method, name, VERSION)
    assert dict(headers) == {"MCP-Protocol-Version": VERSION, "Mcp-Method": method} | expected
    assert len(dict(headers)) == len(headers)


@pytest.mark.parametrize("method", ["", "tools/cäll", "a\r\nX: 1", " a", "=?base64?YQ==?=", "\ud800"], ids=ascii)
def test_a_method_that_no_header_can_carry_never_leaves(method: str) -> None:
    """HDR-02: Mcp-Method has no encoded form."""
    with pytest.raises(NotSent):
        request_headers(method, None, VERSION)


# --- mirrored headers: server -----------------------------------------------------------------------------------------


def envelope(version: str | None = VERSION, method: str | None = "tools/call") -> Head:
    named = {"MCP-Protocol-Version": version, "MCP-METHOD": method}
    return head_of({name: value for name, value in named.items() if value is not None})


@pytest.mark.parametrize("headers", [envelope(), envelope(f" {VERSION}\t", "\ttools/call  ")])
def test_an_envelope_that_equals_the_body_passes(headers: Head) -> None:
    """HDR-05, HDR-08."""
    judge_message(headers, VERSION, "tools/call")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (envelope(version=None), "MCP-Protocol-Version is missing; the body says 'v-modern'"),
        (envelope(method=None), "Mcp-Method is missing; the body says 'tools/call'"),
        (envelope(version=""), "MCP-Protocol-Version says '', the body 'v-modern'"),
        (envelope(version="v-other"), "MCP-Protocol-Version says 'v-other', the body 'v-modern'"),
        (envelope(version="V-MODERN"), "MCP-Protocol-Version says 'V-MODERN'"),
        (envelope(method="TOOLS/CALL"), "Mcp-Method says 'TOOLS/CALL', the body 'tools/call'"),
        (envelope(method="prompts/get"), "Mcp-Method says 'prompts/get'"),
        (envelope(method="=?base64?dG9vbHMvY2FsbA==?="), "Mcp-Method says"),
        (envelope(method="tools/call\xe9"), "Mcp-Method holds characters"),
        (envelope(version="v\x01"), "MCP-Protocol-Version holds characters"),
        (envelope(None, None), "MCP-Protocol-Version is missing"),
    ],
)
def test_an_envelope_that_disagrees_with_the_body_is_a_mismatch(headers: Head, reason: str) -> None:
    """HDR-06, table 4.B step 7."""
    with pytest.raises(HeaderMismatch, match=f"Header mismatch: {reason}") as caught:
        judge_message(headers, VERSION, "tools/call")
    assert (caught.value.error.code, caught.value.http_status) == (-32020, 400)


@pytest.mark.parametrize("text", ["caf\xe9", "a\x01", "a\x7f"])
def test_illegal_characters_are_refused_even_when_the_body_has_them_too(text: str) -> None:
    """HDR-06."""
    for version, method in ((VERSION, text), (text, "tools/call")):
        with pytest.raises(HeaderMismatch, match="characters"):
            judge_message(envelope(version, method), version, method)
    with pytest.raises(HeaderMismatch, match="characters"):
        judge_name(head_of({"Mcp-Name": text}), text)


def test_a_mirrored_header_that_came_twice_is_a_mismatch() -> None:
    """HDR-06: even if both copies, or both together, equal the body."""
    for twice, body in (("tools/call", "tools/call"), ("a", "a, a"), ("a", "\n")):
        raw = twice.encode()
        headers = head_of([(b"mcp-protocol-version", b"v-modern"), (b"mcp-method", raw), (b"mcp-method", raw)])
        with pytest.raises(HeaderMismatch, match="Mcp-Method was sent more than once"):
            judge_message(headers, VERSION, body)
        with pytest.raises(HeaderMismatch, match="Mcp-Name was sent more than once"):
            judge_name(head_of([(b"mcp-name", raw), (b"mcp-name", raw)]), body)


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("foo", "foo"),
        (" foo ", "foo"),
        ("a b", "a b"),
        ("a\tb", "a\tb"),
        ("=?base64?Zm9v?=", "foo"),
        ("=?base64?IGZvbyA=?=", " foo "),
        ("=?base64?5pel5pys6Kqe?=", "日本語"),
        ("=?base64?PT9iYXNlNjQ/Zm9vPz0=?=", "=?base64?foo?="),
        ("=?BASE64?Zm9v?=", "=?BASE64?Zm9v?="),
        ("=?x", "=?x"),
        ("file:///a%20b?c=d", "file:///a%20b?c=d"),
        ("", ""),
        (None, ""),
    ],
)
def test_a_name_is_compared_with_what_the_header_means(header: str | None, name: str) -> None:
    """HDR-07, HDR-08, HDR-19."""
    judge_name(head_of({} if header is None else {"Mcp-Name": header}), name)


@pytest.mark.parametrize(
    ("header", "name", "reason"),
    [
        (None, "foo", "Mcp-Name is missing; the body says 'foo'"),
        ("", "foo", "Mcp-Name says '', the body 'foo'"),
        ("bar", "foo", "Mcp-Name says 'bar', the body 'foo'"),
        ("Foo", "foo", "Mcp-Name says 'Foo'"),
        ("foo ", "foo ", "Mcp-Name says 'foo', the body 'foo '"),
        ("=?base64?Zm9v?=", "=?base64?Zm9v?=", "Mcp-Name says 'foo'"),
        ("=?base64?YmFy?=", "foo", "Mcp-Name says 'bar'"),
        ("=?base64?Zm9?=", "foo", "isn't Base64"),
        ("caf\xe9", "foo", "characters"),
        ("x" * 5000, "y" * 5000, "Mcp-Name says 'xxx"),
    ],
)
def test_a_name_that_disagrees_with_the_body_is_a_mismatch(header: str | None, name: str, reason: str) -> None:
    """HDR-06, table 4.B step 10. A caller's long text is echoed only in part."""
    with pytest.raises(HeaderMismatch, match=reason) as caught:
        judge_name(head_of({} if header is None else {"Mcp-Name": header}), name)
    assert len(str(caught.value)) < 600


def test_a_name_that_may_be_missing_is_compared_when_it_is_there() -> None:
    """A method of an extension whose params have a name, too."""
    judge_name(head_of({}), "foo", required=False)
    judge_name(head_of({"Mcp-Name": "foo"}), "foo", required=False)
    with pytest.raises(HeaderMismatch):
        judge_name(head_of({"Mcp-Name": "bar"}), "foo", required=False)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_name_that_a_client_sends_is_accepted(name: str) -> None:
    """HDR-18 and HDR-07 are one encoding."""
    headers = head_of(dict(request_headers("tools/call", name, VERSION)))
    judge_message(headers, VERSION, "tools/call")
    judge_name(headers, name)


@given(st.binary(max_size=40), st.binary(max_size=40), st.text(max_size=10), st.text(max_size=10))
def test_any_headers_pass_or_are_a_mismatch(first: bytes, second: bytes, version: str, method: str) -> None:
    headers = head_of({b"mcp-protocol-version": first, b"mcp-method": second, b"mcp-name": first})
    with suppress(HeaderMismatch):
        judge_name(headers, version)
    with suppress(HeaderMismatch):
        judge_message(headers, version, method)
        assert (headers.headers["mcp-protocol-version"], headers.headers["mcp-method"]) == (version, method)


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "status"),
    [
        ([(b"x-%d" % number, b"") for number in range(9)], None),
        ([(b"x-%d" % number, b"") for number in range(10)], 431),
        ([(b"x", b"1" * 45), (b"y", b"2" * 40)], None),
        ([(b"x", b"1" * 45), (b"y", b"2" * 41)], 431),
    ],
)
def test_the_number_and_the_size_of_headers_are_limited(pairs: list[tuple[bytes, bytes]], status: int | None) -> None:
    rules = HeadRules(Guard(), SESSION_METHODS, headers=10, header_bytes=100)
    barred = judged((b"host", b"localhost"), *pairs, rules=rules).barred
    assert (barred.status if barred else None) == status


def test_what_is_remembered_of_headers_is_limited() -> None:
    """Other headers with each request cost a server no memory."""
    rules = HeadRules(Guard(), SESSION_METHODS)
    for number in range(2000):
        text = f"text-{number}"
        judged((b"origin", text.encode()), rules=rules)
        judged((b"origin", text.encode() * 1000), rules=rules)
        judged((b"mcp-method", text.encode()), rules=rules)
    assert len(rules.judged) <= 512
    assert len(repr(rules.judged)) < 1024 * 1024


@pytest.mark.parametrize(
    ("version", "status"),
    [(None, None), *((revision, None) for revision in HANDSHAKE_REVISIONS), (VERSION, 400), ("x", 400)],
)
def test_a_session_takes_the_revisions_that_have_sessions(version: str | None, status: int | None) -> None:
    """LHTTP-28: MCP-Protocol-Version of a request of the handshake era."""
    rules = HeadRules(Guard(), SESSION_METHODS, (VERSION,))
    pairs = [(b"content-type", b"application/json")]
    pairs += [(b"mcp-protocol-version", version.encode())] if version is not None else []
    refusal = judged(*pairs, rules=rules).handshake_refusal
    assert (refusal.status if refusal else None) == status
    if refusal:
        assert ("has no sessions" in refusal.text) is (version == VERSION)
