"""The decision tables of the specification, row by row, as a server over HTTP and a client with an open mind follow them.

Table 4.A: which era's rules a request goes by. Table 4.B: in which order a stateless request is checked, and with which
outcome. Table 4.D: what an answer to the first request says about the server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from msgspec import Raw

from gemel import ConnectFailed, ConnectionLost, Discovery, ErrorObject, HttpStatus, Limits, PeerError, Server
from gemel.client.negotiation import Initialize, Probe, StepAnswer, negotiate
from tests.support import V2025_03, V2025_06, V2025_11, V2026_07
from tests.transports.http_rig import ABSENT, JSON_HEADERS, Log, Site, initialize, make_server, modern, serving

META = "io.modelcontextprotocol/"
VERSION, CAPABILITIES = f"{META}protocolVersion", f"{META}clientCapabilities"
UNKNOWN = "2031-01-01"
FULL = {VERSION: V2026_07, CAPABILITIES: {}}


def body(method: str = "tools/list", meta: Any = None, **members: Any) -> dict[str, Any]:
    """A request, or with `id=None` a notification."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, **members}
    if meta is not None:
        message["params"] = {"_meta": meta, **members.get("params", {})}
    return {name: value for name, value in message.items() if value is not None}


class Row(NamedTuple):
    """One row: what is sent to a server of which eras, and what comes back: a status, an error code or None."""

    name: str
    sent: Any
    headers: Mapping[str, str]
    status: int
    code: int | None = None
    eras: tuple[str, ...] = ("2025", "2026")
    method: str = "POST"


def rows(*found: Row) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in found])


def version(revision: str, method: str = "tools/list") -> dict[str, str]:
    return {"MCP-Protocol-Version": revision, "Mcp-Method": method}


async def outcome(site: Site, row: Row) -> tuple[int, int | None, Any]:
    """The status, the error code and the id that came back."""
    reply = await site.ask({**JSON_HEADERS, **row.headers}, row.sent, row.method)
    if not reply.body or "json" not in reply.headers.get("content-type", ""):
        return reply.status, None, None
    message = reply.json()
    return reply.status, message.get("error", {}).get("code"), message.get("id")


# ---------------------------------------------------------------- table 4.A

CLAIM = body(meta=FULL)
RESPONSE = {"jsonrpc": "2.0", "id": 1, "result": {}}


@rows(
    Row("1 claim", CLAIM, version(V2026_07), 200),
    Row("1 claim, initialize", body("initialize", FULL), version(V2026_07, "initialize"), 404, -32601),
    Row("2 initialize, no header", initialize(), {}, 200),
    Row("2 initialize, header of a handshake revision", initialize(), {"MCP-Protocol-Version": V2025_06}, 200),
    Row("3 no claim, header of the stateless revision", body(), version(V2026_07), 400, -32602),
    Row("4 claim, no header", CLAIM, {}, 400, -32020),
    Row("4 claim, header of a handshake revision", CLAIM, version(V2025_11), 400, -32020),
    Row("5 no claim, no header, no session", body(), {}, 400, -32600),
    Row("5 no claim, header of a handshake revision", body(), version(V2025_11), 400, -32600),
    Row("6 no claim, header that nobody knows", body(), version(UNKNOWN), 400, -32022),
    Row("7 response, stateless alone", RESPONSE, {}, 400, -32600, ("2026",)),
    Row("7 batch, stateless alone", [CLAIM], version(V2026_07), 400, -32600, ("2026",)),
    Row("8 notification, stateless header", body("notifications/x", id=None), version(V2026_07), 202),
    Row("8 notification, no header", body("notifications/x", id=None), {}, 400, -32600),
    Row("9 GET without a session", None, {"Accept": "text/event-stream"}, 400, -32600, method="GET"),
    Row("9 DELETE without a session", None, {}, 400, -32600, method="DELETE"),
    Row("9 GET, stateless alone", None, {"Accept": "text/event-stream"}, 405, -32600, ("2026",), "GET"),
    Row("9 DELETE, stateless alone", None, {}, 405, -32600, ("2026",), "DELETE"),
    Row("10 initialize, stateless alone", initialize(), {}, 400, -32602, ("2026",)),
    Row(
        "10 initialize with a claim", body("initialize", FULL), version(V2026_07, "initialize"), 404, -32601, ("2026",)
    ),
)
async def test_a_request_goes_by_the_rules_of_its_era(row: Row) -> None:
    """Table 4.A, VER-05, VER-17."""
    async with serving(make_server(Log(), eras=row.eras)) as site:
        assert (await outcome(site, row))[:2] == (row.status, row.code)


async def test_the_rows_of_a_session_need_one() -> None:
    """Table 4.A, rows 5, 7 and 9: the header may be absent, then the session's revision counts."""
    async with serving(make_server(Log())) as site:
        session = await site.session(V2025_03)
        for headers in (session, {**session, "MCP-Protocol-Version": ABSENT}):
            assert (await site.ask(headers, body())).status == 200
            assert (await site.ask(headers, RESPONSE)).status == 202
            batch = await site.ask(headers, [body("ping"), body("ping", id=2)])
            assert len(batch.json()) == 2
        newer = await site.session(V2025_11)
        assert (await site.ask(newer, [body("ping")])).json()["error"]["code"] == -32600
        assert (await site.ask(newer, b"", "DELETE")).status == 204


async def test_the_refusal_of_an_unknown_revision_names_what_is_offered() -> None:
    """Table 4.A, rows 6 and 10; VER-16: the same list everywhere."""
    async with serving(make_server(Log())) as site:
        refused = (await site.ask({**JSON_HEADERS, **version(UNKNOWN)}, body())).json()["error"]["data"]
        assert refused["requested"] == UNKNOWN
        discovered = (await site.ask(*modern("server/discover"))).json()["result"]
        assert refused["supported"] == discovered["supportedVersions"]
    async with serving(make_server(Log(), eras=("2026",))) as site:
        refused = (await site.ask(JSON_HEADERS, initialize())).json()["error"]["data"]
        assert refused["supported"] == [V2026_07]


# ---------------------------------------------------------------- table 4.B

CALL = {"name": "add", "arguments": {"a": 1, "b": 2}}
CALL_HEADERS = {**version(V2026_07, "tools/call"), "Mcp-Name": "add"}


def call(meta: Any = FULL, **params: Any) -> dict[str, Any]:
    return body("tools/call", meta, params={**CALL, **params})


#: Each row is wrong in its own step and in those after it that can be wrong, too: the first one wins.
@rows(
    Row("1 origin", b"{", {"Origin": "http://evil.example", "Content-Type": "text/plain"}, 403, -32600),
    Row("1 host", b"{", {"Host": "evil.example", "Content-Type": "text/plain"}, 403, -32600),
    Row("3 content type", b"{", {"Content-Type": "text/plain"}, 415, -32600),
    Row("3 accept", call({}), {**CALL_HEADERS, "Accept": "text/html"}, 406, -32600),
    Row("3 size", b"[" + b" " * 5000, {}, 413, -32600),
    Row("4 no JSON", b'{"jsonrpc":"2.0","id":1', version(UNKNOWN), 400, -32700),
    Row("5 no request", {"jsonrpc": "2.0", "id": 1}, version(UNKNOWN), 400, -32600),
    Row("5 a response", RESPONSE, version(UNKNOWN), 400, -32600),
    Row("5 an array", [call({})], version(UNKNOWN), 400, -32600),
    Row("6 no _meta", body("tools/call"), version(UNKNOWN, "x"), 400, -32602),
    Row("6 no version", call({CAPABILITIES: {}}), version(UNKNOWN, "x"), 400, -32602),
    Row("6 no capabilities", call({VERSION: UNKNOWN}), version(V2026_07, "x"), 400, -32602),
    Row("6 a version that is no text", call({**FULL, VERSION: 7}), version(UNKNOWN, "x"), 400, -32602),
    Row("6 capabilities that are no object", call({**FULL, CAPABILITIES: []}), version(UNKNOWN, "x"), 400, -32602),
    Row("7 no version header", call({**FULL, VERSION: UNKNOWN}), {"Mcp-Method": "tools/call"}, 400, -32020),
    Row("7 another version header", call({**FULL, VERSION: UNKNOWN}), CALL_HEADERS, 400, -32020),
    Row("7 no method header", call({**FULL, VERSION: UNKNOWN}), {"MCP-Protocol-Version": UNKNOWN}, 400, -32020),
    Row("7 another method header", call({**FULL, VERSION: UNKNOWN}), version(UNKNOWN, "tools/list"), 400, -32020),
    Row("8 version", body("acme/x", {**FULL, VERSION: UNKNOWN}), version(UNKNOWN, "acme/x"), 400, -32022),
    Row("8 a handshake revision", body(meta={**FULL, VERSION: V2025_11}), version(V2025_11), 400, -32022),
    Row("9 unknown method", body("acme/x", FULL, params={"name": 7}), version(V2026_07, "acme/x"), 404, -32601),
    Row("9 capability not offered", body("tasks/get", FULL), version(V2026_07, "tasks/get"), 404, -32601),
    Row("9 of the handshake era", body("ping", FULL), version(V2026_07, "ping"), 404, -32601),
    Row("10 no name header", call(name="nobody"), version(V2026_07, "tools/call"), 400, -32020),
    Row("10 another name header", call(name="nobody"), CALL_HEADERS, 400, -32020),
    Row("11 params", call(arguments=[1]), CALL_HEADERS, 200, -32602),
    Row("13 unknown tool", call(name="x"), {**CALL_HEADERS, "Mcp-Name": "x"}, 200, -32602),
    Row("13 result", call(), CALL_HEADERS, 200),
)
async def test_a_stateless_request_is_checked_in_this_order(row: Row) -> None:
    """Table 4.B, REQM-04, HDR-06, VER-01, VER-19, MHTTP-14, MHTTP-15."""
    async with serving(make_server(Log(), limits=Limits(body=4000), eras=("2026",))) as site:
        status, code, answered = await outcome(site, row)
        assert (status, code) == (row.status, row.code)
        if row.name[0] in "6789" or row.name[:2] in ("10", "11", "13"):
            assert answered == 1


@pytest.mark.parametrize(
    ("method", "params"),
    [("tools/call", CALL), ("prompts/get", {"name": "hello"}), ("resources/read", {"uri": "memo://one"})],
)
async def test_a_server_that_mounts_another_one_requires_the_name_header_too(method: str, params: Any) -> None:
    """HDR-06: whoever serves the method."""
    server = make_server(Log(), eras=("2026",))
    server.mount(Server("other"), "other")
    async with serving(server) as site:
        refused = await site.ask({**JSON_HEADERS, **version(V2026_07, method)}, body(method, FULL, params=params))
        assert (refused.status, refused.json()["error"]["code"]) == (400, -32020)


async def test_a_missing_capability_comes_last_before_the_handler() -> None:
    """Table 4.B, step 12; ERR-07, MRTR-05: no event was written yet, so the status still says it."""
    async with serving(make_server(Log(), eras=("2026",))) as site:
        headers, asked = modern("tools/call", {"name": "ask", "arguments": {}})
        reply = await site.ask({**headers, "Mcp-Name": "ask"}, asked)
    assert (reply.status, reply.json()["error"]["code"]) == (400, -32021)
    assert reply.json()["error"]["data"] == {"requiredCapabilities": {"roots": {}}}


# ---------------------------------------------------------------- table 4.D


def result(**members: Any) -> StepAnswer:
    return StepAnswer("discover", result=Raw(json.dumps(members).encode()))


def discovered(*versions: str) -> StepAnswer:
    return result(supportedVersions=versions, capabilities={}, resultType="complete", ttlMs=0, cacheScope="private")


def refused(code: int, **data: Any) -> StepAnswer:
    return StepAnswer("discover", error=PeerError(ErrorObject(code, "no", data)))


def status(number: int) -> StepAnswer:
    return StepAnswer("discover", error=HttpStatus("no", number, {}))


TABLE_D: dict[str, tuple[StepAnswer, Any]] = {
    "a stateless revision in common": (discovered(UNKNOWN, V2026_07, V2025_11), Discovery),
    "handshake revisions only": (discovered(V2025_11), Initialize),
    "nothing in common": (discovered(UNKNOWN), ConnectFailed),
    "-32022, a stateless revision in common": (refused(-32022, supported=[V2026_07]), Probe),
    "-32022, handshake revisions only": (refused(-32022, supported=[V2025_06]), Initialize),
    "-32022, nothing in common": (refused(-32022, supported=[UNKNOWN]), ConnectFailed),
    "-32020": (refused(-32020), ConnectFailed),
    "-32021": (refused(-32021), ConnectFailed),
    **{f"{code}": (refused(code), Initialize) for code in (-32601, -32602, -32600, -32000, -32700, 7)},
    **{f"HTTP {number}": (status(number), Initialize) for number in (400, 404, 405, 500)},
    **{f"HTTP {number}": (status(number), HttpStatus) for number in (401, 403, 429, 502, 503, 504)},
    "silence": (StepAnswer("discover"), Initialize),
    "the connection breaks": (StepAnswer("discover", error=ConnectionLost("gone")), ConnectionLost),
}


@pytest.mark.parametrize("name", TABLE_D)
def test_an_answer_to_the_first_request_is_read_by_the_table(name: str) -> None:
    """Table 4.D, VER-06, VER-07, VER-08, VER-09, VER-10, VER-12, VER-13, VER-14:
    a stateless request first, and the era from what comes back.
    """
    answer, verdict = TABLE_D[name]
    steps = negotiate("auto")
    assert next(steps) == Probe(V2026_07)
    found: Any
    try:
        found = steps.send(answer)
    except StopIteration as done:
        found = done.value
    except (ConnectFailed, ConnectionLost, HttpStatus) as exc:
        found = exc
    assert type(found) is verdict
    if verdict is Initialize:
        assert found.revision == V2025_11
