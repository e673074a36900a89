"""The judge of all other tests is judged itself: it must find each kind of mistake, and none where there is none."""

import json
from typing import Any

import pytest

from tests.wire_schema import Misfit, Side, WireCheck, check_message, problems
from tests.wire_table import REVISIONS, alternatives, read_table, read_window

FIRST, V2025_03, V2025_06, V2025_11, V2026_07 = REVISIONS
VERSION, CAPABILITIES = "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"
META = {VERSION: V2026_07, CAPABILITIES: {}}

TEXT = {"type": "text", "text": "hello"}
AUDIO = {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "uri": "file:///a", "name": "a"}


def message(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def result(**members: Any) -> bytes:
    return message(id=1, result=members)


def misfit(direction: Side, data: bytes, revision: str, answers: str | None = None) -> str:
    with pytest.raises(Misfit) as caught:
        check_message(direction, data, revision, answers=answers)
    return str(caught.value)


def test_the_table_reads_windows_and_unions() -> None:
    assert read_window("") == frozenset(REVISIONS)
    assert read_window("..2025-03-26") == {FIRST, V2025_03}
    assert read_window("2025-06-18..2025-11-25") == {V2025_06, V2025_11}
    assert read_window("2025-11-25") == {V2025_11}
    union = ("{[string]|string}", "'a'", "[b]..100", "number(0..1)")
    assert alternatives("|".join(union)) == union


def test_every_expression_of_the_table_can_be_judged() -> None:
    table = read_table()
    said = [member.expression for kind in table.kinds.values() for member in kind.members]
    said += [name for row in table.rows for name in (row.params, row.result) if name is not None]
    for expression in said:
        for revision in REVISIONS:
            problems(expression, None, revision, "x")


@pytest.mark.parametrize("revision", REVISIONS[:4])
def test_a_plain_conversation_passes(revision: str) -> None:
    wire = WireCheck(revision)
    hello = {"protocolVersion": revision, "capabilities": {}}
    info = {"name": "x", "version": "1"}
    wire("client", message(id=0, method="initialize", params={**hello, "clientInfo": info}))
    wire("server", message(id=0, result={**hello, "serverInfo": info}))
    wire("client", message(method="notifications/initialized"))
    wire("client", message(id="0", method="tools/call", params={"name": "x", "arguments": {"a": 1}}))
    wire("server", message(id=0, method="roots/list"))
    wire("client", message(id=0, result={"roots": [{"uri": "file:///a"}]}))
    wire("server", message(method="notifications/message", params={"level": "info", "data": None}))
    wire("server", message(id="0", result={"content": [TEXT], "isError": True, "_meta": {"a/b": 1}}))
    wire("client", message(id=1, method="tools/list"))
    wire("server", message(id=1, error={"code": -32601, "message": "no", "data": None}))


def test_a_stateless_conversation_passes() -> None:
    wire = WireCheck(V2026_07)
    wire("client", message(id=1, method="tools/call", params={"name": "x", "_meta": META}))
    form = {"type": "object", "properties": {"yes": {"type": "boolean"}}}
    ask = {"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": form}}
    wire("server", result(resultType="input_required", inputRequests={"k": ask}, requestState="s"))
    answers = {"k": {"action": "accept", "content": {"yes": True}}}
    wire("client", message(id=1, method="tools/call", params={"name": "x", "_meta": META, "inputResponses": answers}))
    wire("server", result(resultType="complete", content=[TEXT, AUDIO, LINK], structuredContent=None))


def test_a_response_is_judged_by_the_request_that_it_answers() -> None:
    wire = WireCheck(V2025_11)
    wire("server", message(id=1, method="ping"))
    wire("client", message(id=1, method="tools/call", params={"name": "x"}))
    wire("client", message(id=1, result={}))
    with pytest.raises(Misfit, match="content: missing"):
        wire("server", message(id=1, result={}))


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ({"content": "hello"}, "result.content: must be a list"),
        ({}, "result.content: missing"),
        ({"content": [{"type": "text"}]}, "result.content[0].text: missing"),
        ({"content": [{"type": "text", "text": None}]}, "result.content[0].text: must be string"),
        ({"content": [{"type": "image", "data": "no base64!", "mimeType": "x"}]}, "must be base64"),
        ({"content": [{**LINK, "uri": "a b"}]}, "result.content[0].uri: must be uri"),
        ({"content": [], "isError": 1}, "result.isError: must be boolean"),
        ({"content": [], "structuredContent": [1]}, "result.structuredContent: must be object"),
        ({"content": [], "resultType": "complete"}, "result.resultType: not of this revision"),
        ({"content": [], "iserror": True}, "result.iserror: not of this revision"),
        ({"content": [{**TEXT, "annotations": {"priority": 2}}]}, "priority: must be number(0..1)"),
        ({"content": [{**TEXT, "annotations": {"audience": ["all"]}}]}, "audience[0]: must be"),
        ({"content": [{"type": "smell"}]}, "result.content[0].type: must be"),
    ],
)
def test_a_wrong_member_is_named(members: dict[str, Any], found: str) -> None:
    assert found in misfit("server", result(**members), V2025_11, "tools/call")


@pytest.mark.parametrize(
    ("block", "revision"),
    [
        (AUDIO, FIRST),
        (LINK, V2025_03),
        ({**LINK, "icons": [{"src": "data:,x"}]}, V2025_06),
        ({**TEXT, "_meta": {}}, V2025_03),
        ({**TEXT, "annotations": {"lastModified": "2025-01-01T00:00:00Z"}}, V2025_03),
    ],
)
def test_what_is_too_new_for_a_revision_is_found_there_and_not_in_the_next(block: Any, revision: str) -> None:
    """Table 4.C."""
    assert "content[0]" in misfit("server", result(content=[block]), revision, "tools/call")
    following = REVISIONS[REVISIONS.index(revision) + 1]
    check_message("server", result(content=[block]), following, answers="tools/call")


@pytest.mark.parametrize(
    ("data", "direction", "found"),
    [
        (b"[]", "client", "a message is an object"),
        (b'{"id":1,"method":"ping"}', "client", "jsonrpc"),
        (message(id=None, method="ping"), "client", "id: must be id"),
        (message(id=True, method="ping"), "client", "id: must be id"),
        (message(id=1.5, method="ping"), "client", "id: must be id"),
        (message(method="ping"), "client", "a request has an id"),
        (message(id=1, method="notifications/initialized"), "client", "a request has an id"),
        (message(id=1, method="tools/list"), "server", "not for the server to send"),
        (message(id=1, method="server/discover", params={"_meta": META}), "client", "not for the client to send"),
        (message(id=1, method="tools/call"), "client", "params: missing"),
        (message(id=1, method="tools/call", params={"name": "x", "arguments": []}), "client", "params.arguments"),
        (message(id=1, method="ping", extra=1), "client", "extra: unknown"),
        (message(id=1, result=[]), "server", "result: must be object"),
        (message(result={}), "server", "id: missing"),
        (message(id=1, error={"code": "1", "message": "x"}), "server", "error.code"),
        (message(id=1, error={"code": 1}), "server", "error.message"),
        (message(id=1, error="no"), "server", "error: an object"),
        (message(id=1, error={"code": 1, "message": "x", "more": 1}), "server", "more: unknown"),
    ],
)
def test_a_wrong_envelope_is_found(data: bytes, direction: Side, found: str) -> None:
    """BASE-01, BASE-03, BASE-07, BASE-08, BASE-10."""
    assert found in misfit(direction, data, V2025_11)


def test_an_error_without_an_id_passes_and_one_with_null_does_not() -> None:
    """BASE-09."""
    check_message("server", message(error={"code": -32700, "message": "Parse error"}), V2025_06)
    assert "id: must be" in misfit("server", message(id=None, error={"code": -32700, "message": "no"}), V2025_06)


def test_a_batch_is_a_message_of_one_revision_only() -> None:
    """BASE-11, BASE-13."""
    batch = b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]'
    check_message("client", batch, V2025_03)
    misfit("client", batch, V2025_06)
    misfit("client", b'[{"jsonrpc":"2.0","id":1}]', V2025_03)


def test_methods_and_results_of_ones_own_pass_with_anything() -> None:
    check_message("client", message(id=1, method="acme/search", params={"any": [None]}), V2025_06)
    check_message("server", message(id=1, result={"any": [None]}), V2025_06)


def test_a_stateless_request_needs_its_envelope() -> None:
    """REQM-01, REQM-02."""
    assert "params: missing" in misfit("client", message(id=1, method="tools/list"), V2026_07)
    incomplete = message(id=1, method="tools/list", params={"_meta": {VERSION: V2026_07}})
    assert f"{CAPABILITIES}: missing" in misfit("client", incomplete, V2026_07)


def test_a_stateless_result_says_what_it_is() -> None:
    """BASE-15, CACHE-01."""
    assert "resultType: missing" in misfit("server", result(content=[]), V2026_07, "tools/call")
    listed = misfit("server", result(resultType="complete", tools=[]), V2026_07, "tools/list")
    assert "ttlMs: missing" in listed
    assert "cacheScope: missing" in listed


def test_the_published_models_are_asked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the table lets pass must still please the models."""
    monkeypatch.setattr("tests.wire_schema._message", lambda *_: iter(()))
    assert "content" in misfit("server", result(content=None), V2025_11, "tools/call")
    assert "arguments" in misfit(
        "client", message(id=1, method="tools/call", params={"name": "x", "arguments": 1}), FIRST
    )
