"""The stateless era: what each request must say of itself, how results are dressed, and what is left of malformed words."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from gemel import (
    CallToolResult,
    HeaderMismatch,
    Implementation,
    InputRequiredResult,
    InvalidEnvelope,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingClientCapability,
    ProtocolError,
    ReadResourceResult,
    ResourceNotFound,
    UnsupportedVersion,
)
from gemel.jsonrpc import Notification, Request
from gemel.protocol.eras import detect
from gemel.protocol.eras.base import Handshake
from gemel.protocol.eras.stateless import STATELESS, discover
from gemel.protocol.http.headers import Head
from gemel.schema.base import RequestMeta
from gemel.schema.lifecycle import ClientCapabilities, RootsCapability
from gemel.schema.notifications import SEVERITY
from gemel.schema.tools import ListToolsResult
from tests.fuzz.ends import ME, description_of
from tests.support import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    HANDSHAKE_REVISIONS,
    LOG_LEVEL,
    PROTOCOL_VERSION,
    SERVER_INFO,
    V2025_11,
    V2026_07,
    Call,
    EmptyResult,
    head_of,
    jsonrpc,
)

UNKNOWN = "2031-01-01"
FULL: dict[str, Any] = {PROTOCOL_VERSION: V2026_07, CLIENT_CAPABILITIES: {}}
NO_TEXTS: list[Any] = [7, None, [V2026_07], {}, True]
NO_OBJECTS: list[Any] = [7, None, [], "{}", True]
DESCRIPTION = description_of()


def admit(text: bytes, headers: Head | None = None) -> str:
    call = read(text)
    return STATELESS.admit(call.method, call.id, call.meta, headers, Handshake(), DESCRIPTION.revisions, True)


def read(text: bytes) -> Call:
    message = jsonrpc.decode(text)
    assert isinstance(message, Request | Notification)
    return detect.classify(message, (STATELESS,))


def sent(meta: Any, method: str = "tools/list", **headers: str) -> str:
    """The revision of a request with this `_meta`, on HTTP if there are headers."""
    found = head_of({name.replace("_", "-"): value for name, value in headers.items()}) if headers else None
    return admit(jsonrpc.encode_request(1, method, {} if meta is None else {"_meta": meta}), found)


def meta_of(**members: Any) -> RequestMeta | None:
    text = jsonrpc.encode_request(1, "x", {"_meta": {**FULL, **members}})
    return read(text).meta


# ---------------------------------------------------------------- the envelope


def test_a_complete_envelope_is_a_call() -> None:
    """REQM-05: the client's name is not asked for."""
    assert sent(FULL) == V2026_07


@pytest.mark.parametrize(
    ("meta", "about"),
    [
        (None, "Missing .*protocolVersion"),
        ({}, "Missing .*protocolVersion"),
        ({CLIENT_CAPABILITIES: {}}, "Missing .*protocolVersion"),
        ({PROTOCOL_VERSION: V2026_07}, "clientCapabilities"),
        *(({**FULL, PROTOCOL_VERSION: wrong}, "protocolVersion") for wrong in NO_TEXTS),
        *(({**FULL, CLIENT_CAPABILITIES: wrong}, "clientCapabilities") for wrong in NO_OBJECTS),
        ("no object", "protocolVersion"),
    ],
)
def test_what_is_missing_is_named_and_so_is_what_we_speak(meta: Any, about: str) -> None:
    """REQM-04, ERR-04."""
    with pytest.raises(InvalidEnvelope, match=about) as refused:
        sent(meta)
    assert (refused.value.code, refused.value.http_status) == (-32602, 400)
    assert refused.value.error.data == {"supported": list(DESCRIPTION.revisions)}


HEADERS = {"mcp_protocol_version": V2026_07, "mcp_method": "tools/list"}


@pytest.mark.parametrize(
    ("meta", "headers", "error"),
    [
        ({}, {**HEADERS, "mcp_protocol_version": UNKNOWN}, InvalidEnvelope),
        (FULL, {**HEADERS, "mcp_protocol_version": UNKNOWN}, HeaderMismatch),
        (FULL, {**HEADERS, "mcp_protocol_version": V2025_11}, HeaderMismatch),
        (FULL, {"mcp_method": "tools/list"}, HeaderMismatch),
        (FULL, {"mcp_protocol_version": V2026_07}, HeaderMismatch),
        (FULL, {**HEADERS, "mcp_method": "tools/call"}, HeaderMismatch),
        (FULL, {**HEADERS, "mcp_method": "Tools/List"}, HeaderMismatch),
        ({**FULL, PROTOCOL_VERSION: UNKNOWN}, HEADERS, HeaderMismatch),
        ({**FULL, PROTOCOL_VERSION: UNKNOWN}, {**HEADERS, "mcp_protocol_version": UNKNOWN}, UnsupportedVersion),
        ({**FULL, LOG_LEVEL: "loud", PROTOCOL_VERSION: UNKNOWN}, HEADERS, HeaderMismatch),
        ({**FULL, LOG_LEVEL: "loud"}, HEADERS, InvalidParams),
    ],
)
def test_the_first_of_several_faults_is_told(meta: Any, headers: dict[str, str], error: type[ProtocolError]) -> None:
    """Table 4.B, steps 6 to 8; HDR-06, VER-01."""
    with pytest.raises(error) as refused:
        sent(meta, **headers)
    assert type(refused.value) is error


def test_a_request_that_differs_from_the_last_one_with_its_head_is_judged_anew() -> None:
    head = head_of({"mcp-protocol-version": V2026_07, "mcp-method": "tools/list"})

    def text(method: str, **more: str) -> bytes:
        return jsonrpc.encode_request(1, method, {"_meta": {**FULL, **more}})

    for _ in range(2):
        for _ in range(2):
            assert admit(text("tools/list"), head) == V2026_07
        with pytest.raises(HeaderMismatch):
            admit(text("tools/call"), head)
        with pytest.raises(InvalidParams):
            admit(text("tools/list", **{LOG_LEVEL: "loud"}), head)
        with pytest.raises(InvalidEnvelope):
            admit(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', head)


@pytest.mark.parametrize("revision", [*HANDSHAKE_REVISIONS, UNKNOWN, "", "2026-07-28 "])
def test_any_other_revision_is_refused_with_the_list_of_ours(revision: str) -> None:
    """VER-01, ERR-08: a handshake revision, too, though it is in the list."""
    with pytest.raises(UnsupportedVersion) as refused:
        sent({**FULL, PROTOCOL_VERSION: revision})
    assert (refused.value.code, refused.value.http_status) == (-32022, 400)
    assert refused.value.error.data == {"supported": list(DESCRIPTION.revisions), "requested": revision}


def test_a_notification_needs_no_envelope() -> None:
    """MHTTP-05: nobody could be told what is wrong with it, and no rule demands headers."""
    for params in ({}, {"_meta": {PROTOCOL_VERSION: UNKNOWN}}):
        text = jsonrpc.encode_notification("notifications/cancelled", params)
        assert admit(text, head_of({})) == V2026_07


def test_an_answer_is_nothing_that_a_stateless_server_takes() -> None:
    """BASE-14."""
    with pytest.raises(InvalidRequest):
        STATELESS.check_response()


# ---------------------------------------------------------------- who asks


def test_the_client_is_who_it_says_on_this_request() -> None:
    """REQM-05."""
    found = STATELESS.client_info(meta_of(**{CLIENT_INFO: {"name": "a", "version": "1", "title": "A"}}), Handshake())
    assert found == Implementation(name="a", version="1", title="A")
    assert STATELESS.client_info(meta_of(), Handshake()) is None
    assert STATELESS.client_info(None, Handshake()) is None


@pytest.mark.parametrize("info", [7, "a", {}, {"name": "a"}, {"name": 1, "version": "1"}, None])
def test_a_malformed_name_counts_as_none_and_the_request_is_served(info: Any) -> None:
    """REQM-05, REQM-08: it is for display alone."""
    assert STATELESS.client_info(meta_of(**{CLIENT_INFO: info}), Handshake()) is None
    assert sent({**FULL, CLIENT_INFO: info}) == V2026_07


def test_capabilities_are_those_of_this_request() -> None:
    """REQM-02."""
    found = STATELESS.client_capabilities(meta_of(**{CLIENT_CAPABILITIES: {"roots": {}}}), Handshake())
    assert found == ClientCapabilities(roots=RootsCapability())
    assert (
        STATELESS.client_capabilities(meta_of(), Handshake())
        == STATELESS.client_capabilities(None, Handshake())
        == ClientCapabilities()
    )


def test_one_malformed_capability_does_not_take_the_others_along() -> None:
    declared = {"roots": {}, "sampling": 7, "elicitation": [], "experimental": {"x": {}}}
    found = STATELESS.client_capabilities(meta_of(**{CLIENT_CAPABILITIES: declared}), Handshake())
    assert (found.roots, found.sampling, found.elicitation) == (RootsCapability(), None, None)
    assert found.experimental == {"x": {}}
    assert (
        STATELESS.client_capabilities(meta_of(**{CLIENT_CAPABILITIES: ["roots"]}), Handshake()) == ClientCapabilities()
    )


@pytest.mark.parametrize("level", SEVERITY)
def test_a_level_is_wanted_by_this_request_alone(level: str) -> None:
    """LOG-05."""
    assert STATELESS.log_level(meta_of(**{LOG_LEVEL: level}), Handshake(), "info") == level
    assert STATELESS.log_level(meta_of(), Handshake(), "info") is None


@pytest.mark.parametrize("level", ["loud", "", 7, None, "Info", ["info"]])
def test_an_unknown_level_is_refused_with_those_that_there_are(level: Any) -> None:
    """LOG-07."""
    with pytest.raises(InvalidParams, match="debug, info"):
        sent({**FULL, LOG_LEVEL: level})
    assert STATELESS.log_level(meta_of(**{LOG_LEVEL: level}), Handshake(), "info") is None


def test_a_client_says_all_that_is_needed_on_each_request() -> None:
    """REQM-01, REQM-02, REQM-03, ROOT-01: in the words of the revision."""
    capabilities = ClientCapabilities(roots=RootsCapability(list_changed=True))
    meta = STATELESS.request_meta(V2026_07, ME, capabilities, "info")
    assert json.loads(msgspec.json.encode(meta)) == {
        PROTOCOL_VERSION: V2026_07,
        CLIENT_CAPABILITIES: {"roots": {}},
        CLIENT_INFO: {"name": ME.name, "version": ME.version},
        LOG_LEVEL: "info",
    }
    assert LOG_LEVEL not in STATELESS.request_meta(V2026_07, ME, capabilities)
    assert sent(msgspec.to_builtins(msgspec.json.decode(msgspec.json.encode(meta)))) == V2026_07


# ---------------------------------------------------------------- results


def dressed(result: Any) -> Any:
    return json.loads(msgspec.json.encode(STATELESS.finish_result(result, V2026_07, DESCRIPTION.result_meta)))


SIGNED = {SERVER_INFO: {"name": ME.name, "version": ME.version}}


@pytest.mark.parametrize(
    ("result", "written"),
    [
        (EmptyResult(), {"resultType": "complete"}),
        (CallToolResult(content=[]), {"resultType": "complete", "content": []}),
        (ListToolsResult(tools=[]), {"resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private"}),
        (
            ReadResourceResult(contents=[], ttl_ms=5, cache_scope="public"),
            {"resultType": "complete", "contents": [], "ttlMs": 5, "cacheScope": "public"},
        ),
        (InputRequiredResult(request_state="s"), {"resultType": "input_required", "requestState": "s"}),
        (ListToolsResult(tools=[], result_type="com.example/job"), {"resultType": "com.example/job", "tools": []}),
        ({"own": 1}, {"resultType": "complete", "own": 1}),
        ({"resultType": "com.example/job"}, {"resultType": "com.example/job"}),
    ],
)
def test_a_result_says_what_it_is_who_wrote_it_and_how_long_it_may_be_kept(result: Any, written: Any) -> None:
    """BASE-15, REQM-07, CACHE-01: interim results and what isn't cacheable carry no hints."""
    assert dressed(result) == {**written, "_meta": SIGNED}


def test_what_a_result_says_already_stays() -> None:
    """REQM-07: an identity of its own, and keys that we don't know."""
    own = {SERVER_INFO: {"name": "other", "version": "0"}, "com.example/x": 1}
    assert dressed(CallToolResult(content=[], meta=own))["_meta"] == own
    assert dressed({"_meta": {"com.example/x": 1}})["_meta"] == {**SIGNED, "com.example/x": 1}


def test_the_handlers_own_object_is_not_changed() -> None:
    """It may be a constant that goes to clients of both eras."""
    result = ListToolsResult(tools=[])
    STATELESS.finish_result(result, V2026_07, DESCRIPTION.result_meta)
    assert (result.result_type, result.ttl_ms, result.cache_scope, result.meta) == (UNSET, UNSET, UNSET, None)


def test_discovery_lists_every_revision_and_what_the_era_offers() -> None:
    """DISC-02, EXT-01."""
    description = description_of()
    description.instructions = "Be kind."
    description.extensions = lambda name: {"extensions": {"com.example/x": {"era": name.name}}}
    found = discover(description)
    assert found.supported_versions == [V2026_07, *HANDSHAKE_REVISIONS[::-1]]
    assert (found.capabilities.extensions, found.instructions) == ({"com.example/x": {"era": "2026"}}, "Be kind.")
    assert discover(description_of(("2026",))).supported_versions == [V2026_07]


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (ResourceNotFound("x:y"), -32602, 200),
        (InvalidParams("no"), -32602, 200),
        (InvalidEnvelope("no"), -32602, 400),
        (MethodNotFound("x"), -32601, 404),
        (HeaderMismatch("no"), -32020, 400),
        (MissingClientCapability({"roots": {}}), -32021, 400),
        (UnsupportedVersion(UNKNOWN, [V2026_07]), -32022, 400),
        (ProtocolError("mine", code=7), 7, 200),
    ],
)
def test_errors_have_the_codes_and_statuses_of_the_era(error: ProtocolError, code: int, status: int) -> None:
    """RES-05, ERR-06, ERR-07, ERR-08, ERR-18, MHTTP-14, MHTTP-15: the released codes, not those of the drafts."""
    written, found = STATELESS.finish_error(error)
    assert (written.error.code, found) == (code, status)
