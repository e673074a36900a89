"""Which era a message belongs to: the claim decides, then the header; never the method and never what came before."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from gemel import DefinitionError, InvalidEnvelope, jsonrpc
from gemel.jsonrpc import Notification, Request, Unreadable
from gemel.protocol.eras import detect
from gemel.protocol.eras.base import Handshake
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS
from gemel.schema.base import NOTHING
from tests.client.puppet import META
from tests.fuzz.ends import description_of
from tests.support import HANDSHAKE_REVISIONS, V2025_11, V2026_07, Call, EraName

BOTH: tuple[EraName, ...] = ("2025", "2026")
CLAIM = f"{META}protocolVersion"


def text(method: str | None = "tools/list", request_id: Any = 1, meta: Any = None, **members: Any) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", **members}
    if method is not None:
        message["method"] = method
    if request_id is not None:
        message["id"] = request_id
    if meta is not None:
        message["params"] = {"_meta": meta}
    return json.dumps(message).encode()


def read(data: bytes, header: str | None = None, eras: tuple[EraName, ...] = BOTH) -> Call:
    message = jsonrpc.decode(data)
    assert isinstance(message, Request | Notification)
    return detect.classify(message, detect.parse_eras(eras), header)


def route(data: bytes, header: str | None = None, eras: tuple[EraName, ...] = BOTH) -> str:
    return read(data, header, eras).era.name


def claims(call: Call) -> bool:
    return call.meta is not None and call.meta.protocol_version is not NOTHING


@pytest.mark.parametrize("header", [None, V2025_11, V2026_07, "2031-01-01", ""])
@pytest.mark.parametrize("method", ["tools/list", "initialize", "ping", "server/discover"])
@pytest.mark.parametrize("claimed", [V2026_07, "2031-01-01", "", 7, None, {}])
def test_a_claim_decides_whatever_it_says(header: str | None, method: str, claimed: Any) -> None:
    """VER-05: table 4.A, rows 1 and 4."""
    assert route(text(method, meta={CLAIM: claimed}), header) == "2026"


def test_an_answer_belongs_to_the_handshake_era_where_both_are_served() -> None:
    """Table 4.A, row 7: only servers of that era send requests."""
    for eras, found in ((BOTH, HANDSHAKE), (("2025",), HANDSHAKE), (("2026",), STATELESS)):
        assert detect.era_of_answer(detect.parse_eras(eras)) is found


@pytest.mark.parametrize("method", ["initialize", "tools/list", "server/discover"])
@pytest.mark.parametrize(
    ("header", "found"), [(None, "2025"), (V2026_07, "2026"), ("2031-01-01", "2025"), ("", "2025")]
)
def test_without_a_claim_the_header_decides(method: str, header: str | None, found: str) -> None:
    """VER-05: table 4.A, rows 2, 3, 5 and 6."""
    assert route(text(method), header) == found
    assert route(text(method, meta={"progressToken": 1}), header) == found


@pytest.mark.parametrize("header", HANDSHAKE_REVISIONS)
def test_a_handshake_revision_in_the_header_means_a_handshake(header: str) -> None:
    assert route(text(), header) == "2025"


def test_a_notification_goes_by_the_same_rules() -> None:
    """Table 4.A, row 8."""
    assert route(text("notifications/acme", None)) == "2025"
    assert route(text("notifications/acme", None), V2026_07) == "2026"
    assert route(text("notifications/acme", None, {CLAIM: V2026_07})) == "2026"


def test_a_server_of_one_era_handles_everything_by_its_rules() -> None:
    """Table 4.A, row 10."""
    for data in (text("initialize"), text(meta={CLAIM: V2026_07}), text("x", None)):
        for header in (None, V2025_11, V2026_07):
            assert route(data, header, ("2025",)) == "2025"
            assert route(data, header, ("2026",)) == "2026"


def test_what_decides_is_read_field_by_field() -> None:
    """One malformed field doesn't spoil the others."""
    meta = {CLAIM: V2026_07, "progressToken": {"no": "token"}, f"{META}clientCapabilities": {"roots": {}}, "x": 1}
    call = read(text(meta=meta))
    assert claims(call)
    assert call.meta is not None
    assert call.meta.progress_token is None
    assert json.loads(bytes(call.meta.client_capabilities)) == {"roots": {}}


@pytest.mark.parametrize("claim", ["7", "null", "{}", "1e999", "-" + "9" * 400, "[" * 600 + "]" * 600])
@pytest.mark.parametrize("rest", ['"x":1', '"x":1e999', '"progressToken":{}', '"progressToken":1e999'])
def test_a_claim_is_one_whatever_it_says(claim: str, rest: str) -> None:
    """A client that names its revision by what is no string is told so, in the era that it meant."""
    data = f'{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"_meta":{{"{CLAIM}":{claim},{rest}}}}}}}'
    call = read(data.encode())
    assert claims(call)
    assert call.meta is not None
    with pytest.raises(InvalidEnvelope):
        STATELESS.admit("x", 1, call.meta, None, Handshake(), description_of().revisions, False)


@pytest.mark.parametrize("meta", [[], "x", 7, True])
def test_a_malformed_meta_counts_as_absent(meta: Any) -> None:
    call = read(text(meta=meta))
    assert not claims(call)
    assert call.meta is None or call.meta.protocol_version is NOTHING


def test_only_the_known_stateless_revisions_are_stateless() -> None:
    assert detect.era_of_revision(V2026_07) is STATELESS
    assert not any(detect.era_of_revision(one) is STATELESS for one in (*HANDSHAKE_REVISIONS, "2031-01-01", ""))


@pytest.mark.parametrize(
    ("header", "eras", "found"),
    [
        (None, BOTH, HANDSHAKE),
        (V2025_11, BOTH, HANDSHAKE),
        (V2026_07, BOTH, STATELESS),
        (None, ("2026",), STATELESS),
        (V2026_07, ("2025",), HANDSHAKE),
    ],
)
def test_the_header_decides_for_a_batch_where_both_eras_are_served(header: Any, eras: Any, found: Any) -> None:
    assert detect.era_of_batch(header, detect.parse_eras(eras)) is found


@pytest.mark.parametrize(
    "member",
    [
        "progressToken",
        *(f"{META}{name}" for name in ("clientInfo", "clientCapabilities", "logLevel", "subscriptionId")),
    ],
)
@pytest.mark.parametrize("value", [5, {}])
def test_a_malformed_member_of_meta_is_no_claim(member: str, value: Any) -> None:
    """META-04: nothing is read into what stands there."""
    assert route(text(meta={member: value})) == "2025"
    call = read(text(meta={member: value, CLAIM: V2026_07}))
    assert call.meta is not None
    assert call.meta.protocol_version == V2026_07


def test_many_members_are_accepted_in_small_params_and_in_those_of_extensions() -> None:
    small = ",".join(['{"":{"":0}}'] * 5200)
    many = ",".join(f'"{number}":1' for number in range(20_000))
    for method, params in (("tools/list", f'{{"other":[{small}]}}'), ("acme/method", f"{{{many}}}")):
        data = f'{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{params}}}'.encode()
        assert read(data).era is HANDSHAKE


def test_only_a_short_meta_is_remembered() -> None:
    """A client that sends long ones, each a new one, must not fill the memory."""
    for size, remembered in ((100, 1), (3000, 0)):
        detect._remembered_meta.cache_clear()
        read(text(meta={"acme/x": "x" * size}))
        assert detect._remembered_meta.cache_info().currsize == remembered


# ---------------------------------------------------------------- repeated members


REPEATED = [
    '{"name":"a","name":"b"}',
    '{"name":"a","arguments":{},"name":"a"}',
    '{"name":"a","arguments":{},"arguments":{"b":1}}',
    '{"arguments":{"b":1},"name":"a","\\u0061rguments":{}}',
    '{"uri":"x:1","uri":"x:2"}',
    # No longer than params with a `_meta`.
    '{"name":1,"name":2,"arguments":{}}',
    '{"_meta":{},"name":"a","arguments":{},"_meta":{}}',
    '{"other":1,"other":1,"arguments":{}}',
    '{"_meta":{"progressToken":1,"progressToken":2},"name":"a","arguments":{}}',
    '{"_meta":{"progressToken":1,"\\u0070rogressToken":2},"name":"a","arguments":{}}',
    '{"_meta":{"progressToken":1,"progressToken":{}},"name":"a","arguments":{}}',
    '{"_meta":{"progressToken":1,"acme/x":1,"acme/x":1}}',
    '{"_meta":{"acme/x":1,"acme/x":1}}',
    f'{{"_meta":{{"{CLAIM}":"2026-07-28","{CLAIM}":"2025-11-25"}},"name":"a","arguments":{{}}}}',
    '{"_meta":{},"name":"","name":""}',
    '{"name":"","arguments":{},"name":""}',
    f'{{"_meta":{{"{CLAIM}":5,"{CLAIM}":6}}}}',
    # Written in full, the last numbers take as many bytes as both members.
    f'{{"_meta":{{"":0,"":0,"{CLAIM}":1e15}}}}',
    f'{{"_meta":{{"":0,"":0,"{CLAIM}":[1e9]}}}}',
    f'{{"_meta":{{"{META}clientInfo":{{}},"{META}clientInfo":{{}}}}}}',
    '{"_meta":{"progressToken":"a","":0,"":0}}',
    '{"_meta":{"progressToken":null,"progressToken":1}}',
]


@pytest.mark.parametrize("params", REPEATED)
@pytest.mark.parametrize("method", ["tools/call", "acme/method"])
def test_repeated_members_of_params_and_meta_are_refused(params: str, method: str) -> None:
    """A filter in front may have read the other one."""
    for text in (params, params.replace(",", " , ")):
        data = f'{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{text}}}'.encode()
        for _ in range(2):
            with pytest.raises(Unreadable) as caught:
                read(data)
            assert caught.value.request_id == 7
            with pytest.raises(Unreadable) as caught:
                read(data.replace(b'"id":7,', b""))
            assert caught.value.request_id is None


def test_a_new_progress_token_costs_as_little_as_a_known_meta() -> None:
    """Clients number their progress tokens, so that each `_meta` is a new one. Each function that is called counts."""
    calls, eras = 0, detect.parse_eras(BOTH)

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    rest = (
        f'"{CLAIM}":"{V2026_07}","{META}clientCapabilities":{{"elicitation": {{}}}},"{META}clientInfo":{{"name":"a"}}'
    )
    for number in range(1, 101):
        meta = f'{{"progressToken":{number},{rest}}}'
        params = f'{{"_meta":{meta},"name":"a","arguments":{{}}}}'
        message = jsonrpc.decode(f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}'.encode())
        assert isinstance(message, Request)
        sys.setprofile(count)
        try:
            call = detect.classify(message, eras)
        finally:
            sys.setprofile(None)
        assert call.meta is not None
        assert call.meta.progress_token == number
    assert calls < 20 * 100


@pytest.mark.parametrize(
    ("first", "token"),
    [
        ('"progressToken":7', 7),
        ('"progressToken":999999999999999999999', 999999999999999999999),
        # More digits than Python is set to make a number of.
        (f'"progressToken":{"9" * 1000}', None),
        # Another member of the same length.
        ('"acme/progress":7', None),
    ],
)
def test_a_progress_token_is_read_where_meta_begins_with_it(first: str, token: int | None) -> None:
    meta = f'{{{first},"{CLAIM}":"{V2026_07}"}}'
    data = f'{{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{{"_meta":{meta}}}}}'.encode()
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        meta_read = read(data).meta
    finally:
        sys.set_int_max_str_digits(limit)
    assert meta_read is not None
    assert meta_read.progress_token == token


def test_arguments_may_repeat_members_and_look_like_params() -> None:
    """What is below arguments is left to the tool's schema."""
    params = '{"name":"a","arguments":{"name":1,"name":2,"_meta":{},"text":",\\"arguments\\":"}}'
    data = f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}'.encode()
    assert read(data).meta is None


def test_params_with_very_many_members_are_refused_unread() -> None:
    """Looking for repeated members takes bounded work."""
    many = ",".join(f'"{number}":1' for number in range(20_000))
    data = f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{{many}}}}}'.encode()
    with pytest.raises(Unreadable, match="too many members"):
        read(data)
    in_meta = data.replace(b'"params":{', b'"params":{"_meta":{') + b"}"
    with pytest.raises(Unreadable, match="_meta has too many members"):
        read(in_meta)
    arguments = f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"a", "arguments":{{{many}}}}}}}'
    assert read(arguments.encode()).typed is not None


@pytest.mark.parametrize("names", [5, None, [], "2024", ["2025", "2027"], [5]])
def test_names_of_other_eras_are_refused(names: Any) -> None:
    with pytest.raises(DefinitionError, match='use "2025", "2026", or both'):
        detect.parse_eras(names)


def test_eras_are_named_by_one_text_or_several_in_any_order() -> None:
    assert detect.parse_eras("2026") == (STATELESS,)
    assert detect.parse_eras({"2026", "2025"}) == (HANDSHAKE, STATELESS)
