"""What a hostile server answers and sends to a client, and what the call of the client ends with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.hostile.cases import (
    ABSENT,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REVISION_2025,
    Era,
    Json,
    label,
    replaced,
    table,
    unique,
)

ERAS: tuple[Era, ...] = ("2025", "2026")


class ClientCase(NamedTuple):
    """Answers to one request of a client; all other requests are answered correctly.

    Attributes:
        name: What is wrong, unique.
        era: The era of the session.
        method: The request.
        answers: What is sent for it: `@ID@` stands for its id, written as JSON.
        ends: How the call may end: names of exceptions, or "ok".
        alive: Whether the client can be used afterwards.
        tool: The tool that the client has listed before.
        warns: The names of the deviations that the client notes, where it understands the answer all the same.
    """

    name: str
    era: Era
    method: str
    answers: tuple[bytes, ...]
    ends: tuple[str, ...]
    alive: bool = True
    tool: Json | None = None
    warns: tuple[str, ...] = ()


class AskCase(NamedTuple):
    """A request of the server to the client.

    Attributes:
        name: What is wrong, unique.
        message: The request.
        codes: The codes of the errors that may answer it; empty for any answer.
        warns: The names of the deviations that the client notes, where it understands the request all the same.
    """

    name: str
    message: Json
    codes: tuple[int, ...]
    warns: tuple[str, ...] = ()


class ResponseCase(NamedTuple):
    """Bytes that answer a POST of the client.

    Attributes:
        name: What is wrong, unique.
        response: The bytes.
        ends: How the call may end: names of exceptions, or "ok".
        warns: The names of the deviations that the client notes, where it understands the answer all the same.
    """

    name: str
    response: bytes
    ends: tuple[str, ...]
    warns: tuple[str, ...] = ()


#: Correct results of the requests.
RESULTS: dict[str, Json] = {
    "tools/list": {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "3"}]},
    "prompts/list": {"prompts": [{"name": "greet"}]},
    "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]},
    "resources/list": {"resources": [{"uri": "test://text", "name": "text"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "test://{x}", "name": "x"}]},
    "resources/read": {"contents": [{"uri": "test://text", "text": "x"}]},
    "completion/complete": {"completion": {"values": ["Ada"]}},
}
INITIALIZED: Json = {
    "protocolVersion": REVISION_2025,
    "capabilities": {"tools": {}, "prompts": {}, "resources": {}, "completions": {}, "logging": {}},
    "serverInfo": {"name": "hostile", "version": "1"},
}
DISCOVERED: Json = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": INITIALIZED["capabilities"],
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "private",
}
#: What results of the stateless era have in addition.
STATELESS: Json = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
INVALID = ("InvalidResponse",)


def correct(method: str, era: Era) -> Json:
    """Return a correct result."""
    if method == "initialize":
        return INITIALIZED
    if method == "server/discover":
        return DISCOVERED
    return {**RESULTS.get(method, {}), **(STATELESS if era == "2026" else {})}


def answer(**members: Any) -> bytes:
    """Return a response to the request."""
    message = {"jsonrpc": "2.0", "id": "@ID@", **members}
    text = json.dumps({name: value for name, value in message.items() if value is not ABSENT})
    return text.replace('"@ID@"', "@ID@").encode()


# ---------------------------------------------------------------- results


def wrong_results() -> Iterator[ClientCase]:
    """A result is an object."""
    for era in ERAS:
        for method in RESULTS:
            for value in table(None, 5, "x", [], True):
                yield ClientCase(f"{era} {method} result {label(value)}", era, method, (answer(result=value),), INVALID)


#: Members of results that have another type, or are missing: method, path, values.
MEMBERS: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("tools/list", "tools", (ABSENT, 5, "x", {}, [5], [None], [{}], [{"name": 5, "inputSchema": {}}], [[]])),
    ("tools/list", "tools", ([{"name": "x"}], [{"name": "x", "inputSchema": 5}], [{"name": "x", "inputSchema": []}])),
    ("tools/list", "nextCursor", (5, True, [], {})),
    ("prompts/list", "prompts", (ABSENT, 5, "x", {}, [5], [{}], [{"name": 5}], [{"name": "x", "arguments": 5}])),
    ("resources/list", "resources", (ABSENT, 5, "x", {}, [5], [{}], [{"uri": 5, "name": "x"}], [{"name": "x"}])),
    ("resources/templates/list", "resourceTemplates", (ABSENT, 5, [5], [{}], [{"uriTemplate": 5, "name": "x"}])),
    ("tools/call", "content", (5, {}, [5], [None], [{}], [{"type": 5}], [{"type": "text"}], [{"text": "x"}])),
    (
        "tools/call",
        "content",
        ([{"type": "text", "text": 5}], [{"type": "image"}], [{"type": "resource", "resource": 5}]),
    ),
    ("tools/call", "isError", (5, "true", [], {})),
    (
        "prompts/get",
        "messages",
        (ABSENT, 5, "x", {}, [5], [{}], [{"role": "user"}], [{"role": 5, "content": {}}]),
    ),
    ("prompts/get", "messages", ([{"role": "user", "content": 5}], [{"role": "user", "content": [5]}])),
    (
        "resources/read",
        "contents",
        (ABSENT, 5, "x", {}, [5], [{}], [{"uri": 5, "text": "x"}], [{"uri": "x", "text": 5}]),
    ),
    (
        "completion/complete",
        "completion",
        (ABSENT, 5, "x", [], {}, {"values": 5}, {"values": [5]}, {"values": "x"}),
    ),
)
#: Members of results in another form, which has one meaning: method, path, value, the name of the deviation.
FORMS: tuple[tuple[str, str, Any, str], ...] = (
    ("tools/call", "content", "x", "content-form"),
    ("tools/call", "content", {"type": "text", "text": "x"}, "content-form"),
    ("prompts/get", "messages", [{"role": "user", "content": "x"}], "content-form"),
    ("prompts/get", "messages", [{"role": "user", "content": [{"type": "text", "text": "x"}]}], "content-form"),
    ("resources/read", "contents", {"uri": "x", "text": "x"}, "content-form"),
    ("resources/read", "contents", [{"text": "x"}], "uri-missing"),
    ("completion/complete", "completion", None, "null-list"),
    ("completion/complete", "completion", {"values": [], "total": "x"}, "member-left-out"),
    ("completion/complete", "completion", {"values": [], "hasMore": 5}, "member-left-out"),
)


def null_lists() -> Iterator[ClientCase]:
    """A list that is null is empty."""
    members = {method: member for method, member, _ in MEMBERS if method != "completion/complete"}
    members |= {"tools/list": "tools", "tools/call": "content"}
    for era in ERAS:
        for method, member in members.items():
            result = replaced(correct(method, era), member, None)
            got = (answer(result=result),)
            yield ClientCase(f"{era} {method} {member} null", era, method, got, ("ok",), warns=("null-list",))


def wrong_members() -> Iterator[ClientCase]:
    """Members of results have the types of the schema."""
    for method, path, values in MEMBERS:
        for era in ERAS:
            for value in values:
                result = replaced(correct(method, era), path, value)
                name = f"{era} {method} {path} {'missing' if value is ABSENT else json.dumps(value)}"
                yield ClientCase(name, era, method, (answer(result=result),), INVALID)


def odd_forms() -> Iterator[ClientCase]:
    """Members of results in another form than that of the schema."""
    for method, path, value, noted in FORMS:
        for era in ERAS:
            got = (answer(result=replaced(correct(method, era), path, value)),)
            name = f"{era} {method} {path} {json.dumps(value)}"
            yield ClientCase(name, era, method, got, ("ok",), warns=(noted,))


def wrong_input_requests() -> Iterator[ClientCase]:
    """A result that requires input names requests that the client declared, or a state; other types are unknown."""
    ask: Json = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}
    parts: tuple[Json, ...] = (
        *({}, {"inputRequests": {}}, {"inputRequests": None}),
        *({"inputRequests": value} for value in table(5, "x", [], {"a": 5}, {"a": {}}, {"a": {"method": 5}})),
        *({"inputRequests": {"a": {**ask, "method": method}}} for method in ("", "tools/call", "ping", "nope")),
        *({"inputRequests": {"a": {**ask, "params": value}}} for value in table(None, 5, "x", [], {})),
        *({"inputRequests": {"a": {"method": name}}} for name in ("sampling/createMessage", "roots/list")),
        {"inputRequests": {"a": ask}},
        {"inputRequests": {f"{number}": ask for number in range(100)}},
        *({"inputRequests": {}, "requestState": value} for value in table(None, 5, [], {}, True)),
    )
    for part in parts:
        result = {"resultType": "input_required", **part}
        text = json.dumps(part)
        name = (
            f"2026 input is required by {text[:90]}" if len(text) < 1000 else "2026 input is required by many requests"
        )
        yield ClientCase(name, "2026", "tools/call", (answer(result=result),), INVALID)
    for value in table(None, 5, "nope", "", [], {}, True):
        result = {**correct("tools/call", "2026"), "resultType": value}
        yield ClientCase(f"2026 resultType {label(value)}", "2026", "tools/call", (answer(result=result),), INVALID)


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


_LISTS: Json = {"type": "array", "items": {"$ref": "#/$defs/lists"}}
#: Output schemas and values that do not fit, whose explanation would take seconds and gigabytes.
WRONG_VALUES: tuple[tuple[str, Json, Any], ...] = (
    ("300,000 items of the wrong type", {"items": {"type": "integer"}}, ["x"] * 300_000),
    ("100,000 unknown names", {"additionalProperties": False}, {f"name {n}": 1 for n in range(100_000)}),
    ("8,000 items outside of an enum of 8,000", {"items": {"enum": [f"word {n}" for n in range(8000)]}}, ["x"] * 8000),
    *(
        (f"lists of {levels} levels under a recursive anyOf", {"$ref": "#/$defs/lists"}, _nested(levels))
        for levels in (12, 20, 90)
    ),
    ("8,000 fractions for an enum of 8,000 numbers", {"items": {"enum": list(range(8000))}}, [7999.5] * 8000),
    ("20,000 large numbers for multiples of a tiny one", {"items": {"multipleOf": 1e-300}}, [1e308] * 20_000),
    ("1,000 numbers of 4,000 digits that must differ", {"uniqueItems": True}, [10**4000 + n for n in range(1000)]),
    ("a text of 2 MB for a pattern in 900 places", {"pattern": "(?:[ab].{0,300}[cd]){3}$"}, "abcd" * 500_000),
)


def _unevaluated(levels: int) -> Json:
    schema: Json = {"properties": {"a": {"type": "integer"}}}
    for _ in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    return schema


#: Output schemas that take seconds or gigabytes to compile or to apply: no result is validated by them.
UNUSABLE_SCHEMAS: tuple[tuple[str, Json], ...] = (
    ("200 patterns of 8 MB each", {"anyOf": [{"pattern": rf"(?:\p{{L}}.{{0,900}}){{5}}{n}"} for n in range(200)]}),
    ("30 levels of unevaluatedProperties", _unevaluated(30)),
)


def expensive_values() -> Iterator[ClientCase]:
    """A value that does not fit the output schema ends its call, whatever explaining it would take."""
    for era in ERAS:
        for name, schema, value in WRONG_VALUES:
            output = {
                "type": "object",
                "properties": {"value": schema},
                "$defs": {"lists": {"anyOf": [_LISTS, {**_LISTS, "minItems": 1}]}},
            }
            tool = {"name": "add", "inputSchema": {"type": "object"}, "outputSchema": output}
            result = {**correct("tools/call", era), "structuredContent": {"value": value}}
            yield ClientCase(f"{era} {name}", era, "tools/call", (answer(result=result),), INVALID, tool=tool)


def expensive_schemas() -> Iterator[ClientCase]:
    """A tool whose output schema can't be used is used without it."""
    for era in ERAS:
        for name, schema in UNUSABLE_SCHEMAS:
            output = {"type": "object", "properties": {"value": schema}}
            tool = {"name": "add", "inputSchema": {"type": "object"}, "outputSchema": output}
            result = {**correct("tools/call", era), "structuredContent": {"value": {"a": 1}}}
            yield ClientCase(f"{era} {name}", era, "tools/call", (answer(result=result),), ("ok",), tool=tool)


def unknown_members() -> Iterator[ClientCase]:
    """Unknown members are ignored."""
    for era in ERAS:
        for method in RESULTS:
            result = {**correct(method, era), "unknown": {"a": [1]}}
            yield ClientCase(f"{era} {method} unknown members", era, method, (answer(result=result, more=5),), ("ok",))


def wrong_openings() -> Iterator[ClientCase]:
    """A session can't be opened with a server that answers the first request wrongly."""
    failed = ("ConnectFailed", "InvalidResponse")
    for path, values in (
        ("protocolVersion", table(ABSENT, None, 5, "", "1", "2031-01-01", [])),
        ("capabilities", table(ABSENT, None, 5, "x", [])),
    ):
        for value in values:
            result = replaced(INITIALIZED, path, value)
            text = answer(result=result)
            yield ClientCase(
                f"2025 initialize {path} {label(value)}", "2025", "initialize", (text,), failed, alive=False
            )
    for value in table(ABSENT, 5, "x", [], {"name": 5, "version": "1"}):  # it is for display only
        text = answer(result=replaced(INITIALIZED, "serverInfo", value))
        yield ClientCase(f"2025 initialize serverInfo {label(value)}", "2025", "initialize", (text,), ("ok",))
    for path, values in (
        ("supportedVersions", table(ABSENT, None, 5, "x", [], ["2031-01-01"], [5])),
        ("capabilities", table(ABSENT, None, 5, "x", [])),
    ):
        for value in values:
            result = replaced(DISCOVERED, path, value)
            text = answer(result=result)
            name = f"2026 server/discover {path} {label(value)}"
            yield ClientCase(name, "2026", "server/discover", (text,), failed, alive=False)
    openings: tuple[tuple[str, Era], ...] = (("initialize", "2025"), ("server/discover", "2026"))
    for method, era in openings:
        for value in table(None, 5, "x", [], {}, True):
            text = answer(result=value)
            yield ClientCase(f"{era} {method} result {label(value)}", era, method, (text,), failed, alive=False)
        text = answer(error={"code": -32603, "message": "no"})
        yield ClientCase(f"{era} {method} fails", era, method, (text,), (*failed, "PeerError"), alive=False)


# ---------------------------------------------------------------- errors, envelopes, ids


def errors() -> Iterator[ClientCase]:
    """An error has an integer as code and a text as message; the call always ends."""
    for era in ERAS:
        for error in table(
            *({"code": 1, "message": "x"}, {"code": -32603, "message": ""}, {"code": 0, "message": "x", "data": [1]}),
            *(
                {"code": -32602, "message": "x", "data": None},
                {"code": 2**40, "message": "☃"},
                {"code": -1, "message": "\u0000"},
            ),
        ):
            text = answer(error=error)
            yield ClientCase(f"{era} error {json.dumps(error)}", era, "tools/list", (text,), ("PeerError",))
        for error in table(
            *(
                None,
                5,
                "x",
                [],
                {},
                True,
                {"message": "x"},
                {"code": "x", "message": "x"},
                {"code": 1.5, "message": "x"},
            ),
            *(
                {"code": True, "message": "x"},
                {"code": None, "message": "x"},
                {"code": 1, "message": 5},
            ),
        ):
            text = answer(error=error)
            yield ClientCase(f"{era} malformed error {json.dumps(error)}", era, "tools/list", (text,), INVALID)
        for error, noted in (
            ({"code": 1}, "error-without-message"),
            ({"code": 1, "message": None}, "error-without-message"),
            ({"code": "1", "message": "x"}, "string-code"),
        ):
            name = f"{era} odd error {json.dumps(error)}"
            yield ClientCase(name, era, "tools/list", (answer(error=error),), ("PeerError",), warns=(noted,))


def envelopes() -> Iterator[ClientCase]:
    """A response has exactly one of result and error."""
    for era in ERAS:
        result = correct("tools/list", era)
        for name, text in (
            ("result and error", answer(result=result, error={"code": 1, "message": "x"})),
            ("neither result nor error", answer()),
            ("a method and a result", answer(result=result, method="tools/list")),
        ):
            yield ClientCase(f"{era} {name}", era, "tools/list", (text,), (*INVALID, "ok"))
        for version in table(ABSENT, "1.0", 2.0, None, ""):
            text = answer(result=result, jsonrpc=version)
            yield ClientCase(f"{era} jsonrpc {label(version)}", era, "tools/list", (text,), INVALID)


def ids() -> Iterator[ClientCase]:
    """A response belongs to the request of its id; others are ignored."""
    for era in ERAS:
        good = answer(result=correct("tools/list", era))
        for wrong in (b"9999", b'"none"', b"-1", b"[]", b"{}", b"true", b"1.5", b"null"):
            stray = good.replace(b"@ID@", wrong)
            yield ClientCase(
                f"{era} a response with the id {wrong.decode()} before",
                era,
                "tools/list",
                (stray, good),
                ("ok", *INVALID),
            )
        text = good.replace(b"@ID@", b'"@ID@"')
        yield ClientCase(f"{era} the id as text", era, "tools/list", (text,), ("ok",), warns=("string-id",))
        yield ClientCase(
            f"{era} the id with a fraction", era, "tools/list", (good.replace(b"@ID@", b"@ID@.0"),), ("ok", *INVALID)
        )
        yield ClientCase(f"{era} the answer twice", era, "tools/list", (good, good), ("ok",))
        failure = answer(error={"code": 1, "message": "x"})
        yield ClientCase(f"{era} the answer, then an error", era, "tools/list", (good, failure), ("ok",))
        yield ClientCase(f"{era} an error, then the answer", era, "tools/list", (failure, good), ("PeerError",))
        null = failure.replace(b"@ID@", b"null")
        yield ClientCase(f"{era} an error without id", era, "tools/list", (null,), ("PeerError", *INVALID))


# ---------------------------------------------------------------- between request and answer


def junk() -> Iterator[ClientCase]:
    """What is no message is dropped; the answer after it counts."""
    for era in ERAS:
        good = answer(result=correct("tools/list", era))
        for text in (
            *(
                b"Starting\xe2\x80\xa6",
                b"\xff\xfe",
                b"\x00",
                b"null",
                b"5",
                b'"x"',
                b"true",
                b"[]",
                b"{}",
                b"{",
                b"]",
                b"   ",
            ),
            *(b'{"jsonrpc":"2.0"}', b"[" * 10_000, b'{"a":' * 10_000, b"x" * 100_000, b"\x1b[31mred\x1b[0m", b"[5]"),
        ):
            name = f"{era} {text[:20]!r} of {len(text)} before the answer"
            # What begins as a message may be a broken answer: then the call fails at once.
            ends = ("ok", *INVALID) if text[:1] in b"{[" else ("ok",)
            yield ClientCase(name, era, "tools/list", (text, good), ends)
        glued = b"Loading " + good
        yield ClientCase(f"{era} text before the JSON of the answer", era, "tools/list", (glued,), INVALID)
        yield ClientCase(f"{era} text after the JSON of the answer", era, "tools/list", (good + b" done",), INVALID)
        yield ClientCase(f"{era} half of the answer", era, "tools/list", (good[: len(good) // 2],), INVALID)


def notifications() -> Iterator[ClientCase]:
    """Notifications with wrong params are dropped; the call goes on."""
    sent: tuple[tuple[str, Any], ...] = (
        *(
            ("notifications/progress", value)
            for value in table(ABSENT, None, 5, [], {}, {"progressToken": "none", "progress": 1})
        ),
        *(("notifications/progress", {"progressToken": 1, "progress": value}) for value in table("x", None, [], True)),
        *(
            ("notifications/message", value)
            for value in table(ABSENT, 5, {}, {"level": "loud", "data": 1}, {"level": 5})
        ),
        *(("notifications/cancelled", value) for value in table(ABSENT, {}, {"requestId": "none"}, {"requestId": []})),
        *(
            ("notifications/resources/updated", value)
            for value in table(ABSENT, {}, {"uri": 5}, {"uri": "test://none"})
        ),
        *(
            (f"notifications/{kind}/list_changed", value)
            for kind in ("tools", "prompts", "resources")
            for value in table(5, {})
        ),
        *(("notifications/nope", {}), ("", {}), ("tools/list", {}), ("notifications/initialized", {})),
        ("notifications/elicitation/complete", {"elicitationId": 5}),
        ("notifications/subscriptions/acknowledged", {"notifications": 5}),
    )
    for era in ERAS:
        good = answer(result=correct("tools/list", era))
        for method, params in sent:
            message = {"jsonrpc": "2.0", "method": method, **({} if params is ABSENT else {"params": params})}
            shown = "" if params is ABSENT else json.dumps(params)
            name = f"{era} {method!r} {shown} before the answer"
            yield ClientCase(name, era, "tools/list", (json.dumps(message).encode(), good), ("ok",))


def asks() -> Iterator[AskCase]:
    """Requests of the server: unknown ones, undeclared ones, and such with wrong params."""
    for method in (
        "nope",
        "",
        "tools/list",
        "initialize",
        "server/discover",
        "roots/none",
        "elicitation/nope",
        "tasks/list",
    ):
        yield AskCase(f"the request {method!r}", {"method": method, "params": {}}, (METHOD_NOT_FOUND,))
    for params in table(5, "x", [], True):
        yield AskCase(
            f"ping with params {label(params)}", {"method": "ping", "params": params}, (INVALID_PARAMS, INVALID_REQUEST)
        )
    yield AskCase("ping", {"method": "ping"}, ())
    yield AskCase("ping with params null", {"method": "ping", "params": None}, (), ("null-params",))
    wrong = (INVALID_PARAMS, INVALID_REQUEST)
    form: Json = {
        "message": "Which?",
        "requestedSchema": {"type": "object", "properties": {"value": {"type": "integer"}}},
    }
    for path, values in (
        ("message", table(ABSENT, None, 5, [], {})),
        ("requestedSchema", table(ABSENT, None, 5, "x", [], {"type": "array"}, {"type": "object"})),
        ("mode", table(5, "nope", [])),
        ("requestedSchema.properties", table(5, "x", [], {"a": 5}, {"a": {"type": "object"}}, {"a": {"type": "nope"}})),
    ):
        for value in values:
            params = replaced(form, path, value)
            loose = value in ({"type": "object"}, {"a": {"type": "object"}})  # more than the specification allows
            message = {"method": "elicitation/create", "params": params}
            yield AskCase(f"elicitation {path} {label(value)}", message, () if loose else wrong)
    for params in table(None, 5, "x", [], {}):
        yield AskCase(
            f"elicitation with params {label(params)}", {"method": "elicitation/create", "params": params}, wrong
        )
    url = {"mode": "url", "message": "x", "url": "https://example.com", "elicitationId": "1"}
    yield AskCase(
        "an elicitation in a mode that was not declared", {"method": "elicitation/create", "params": url}, wrong
    )
    for params in table(
        {}, {"messages": 5, "maxTokens": 1}, {"messages": [], "maxTokens": "x"}, {"messages": [5], "maxTokens": 1}
    ):
        sampling = {"method": "sampling/createMessage", "params": params}
        yield AskCase(f"sampling with {json.dumps(params)}", sampling, (METHOD_NOT_FOUND, *wrong))
    yield AskCase("roots that were not declared", {"method": "roots/list"}, (METHOD_NOT_FOUND,))


# ---------------------------------------------------------------- HTTP


def http_response(body: bytes, kind: str = "application/json", extra: str = "") -> bytes:
    """Return an HTTP response with a body of a content type; `extra` is lines of further headers."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{extra}\r\n"
    return head.encode() + body


def responses() -> Iterator[ResponseCase]:
    """What a server may answer to a POST instead of a response."""
    good = answer(result=correct("tools/list", "2026"))
    for status in (*range(400, 410), 413, 415, 418, 421, 426, 429, 431, 451, 500, 501, 502, 503, 504, 507, 599):
        head = b"HTTP/1.1 %d No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno" % status
        yield ResponseCase(f"status {status}", head, ("HttpStatus", "Overloaded", "ConnectFailed"))
    for status in (202, 204, 205, 304):
        head = b"HTTP/1.1 %d Empty\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status
        yield ResponseCase(f"status {status} without an answer", head, ("HttpStatus", *INVALID))
    for place in ("/elsewhere", "http://evil.example/", "//evil.example", "file:///etc/passwd", "", "@ID@"):
        head = f"HTTP/1.1 307 Moved\r\nLocation: {place}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
        yield ResponseCase(f"a redirect to {place!r}", head, ("HttpStatus", "ConnectFailed", "InvalidResponse"))

    for kind in ("text/html", "text/plain", "application/xml", "", "application/octet-stream", "image/png"):
        yield ResponseCase(f"content type {kind!r}", http_response(b"<html>", kind), INVALID)
    for body in (b"", b" ", b"{", b"nonsense", b"null", b"5", b"[]", b"{}", b"\xff", b"<html>", b"[" * 10_000):
        yield ResponseCase(f"the body {body[:20]!r} of {len(body)}", http_response(body), INVALID)
    for identity in (b"9999", b'"9999"', b'"0@ID@"', b"@ID@.0", b"[]"):
        body = good.replace(b"@ID@", identity)
        yield ResponseCase(f"the id {identity.decode()}", http_response(body), INVALID)
    body = good.replace(b"@ID@", b'"@ID@"')
    yield ResponseCase('the id "@ID@"', http_response(body), ("ok",), ("string-id",))
    body = good.replace(b"@ID@", b"null")
    yield ResponseCase("the id null", http_response(body), ("ok",), ("result-without-id",))
    yield ResponseCase("a batch", http_response(b"[" + good + b"]"), (*INVALID, "ok"))
    lost = ("ConnectionLost", "InvalidResponse")
    yield ResponseCase("nothing", b"", lost)
    for data in (
        b"nonsense\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 999 X\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"\x00" * 100,
        b"HTTP/1.1 abc OK\r\n\r\n",
    ):
        yield ResponseCase(f"the bytes {data[:20]!r}", data, (*lost, "HttpStatus"))
    short = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    yield ResponseCase("a body that is cut", short, lost)
    chunked = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    for name, body in (
        ("a text", b"xyz\r\n{}\r\n"),
        ("a negative number", b"-5\r\n{}\r\n"),
        ("too much", b"ffff\r\n{}\r\n0\r\n\r\n"),
    ):
        yield ResponseCase(f"a chunk size that is {name}", chunked + body, lost)
    both = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    yield ResponseCase("length and chunks", both, lost)
    yield ResponseCase("a header without colon", b"HTTP/1.1 200 OK\r\nX\r\nContent-Length: 0\r\n\r\n", lost)
    yield ResponseCase("a header of 1 MB", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000 + b"\r\n\r\n", lost)
    yield ResponseCase("headers without end", b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 50_000, lost)
    events = "text/event-stream"
    data = b"data: " + good + b"\n\n"
    yield ResponseCase("an event stream", http_response(data, events), ("ok",))
    for name, text in (
        ("comments", b": hello\n\n" * 100),
        ("an unknown field", b"x: y\n\n"),
        ("an empty event", b"data:\n\n"),
        ("another event type", b"event: nope\ndata: {}\n\n"),
        ("nonsense", b"data: nonsense\n\n"),
        ("a byte order mark", b"\xef\xbb\xbf"),
        ("CRLF", b": x\r\n\r\n"),
        ("an id with NUL", b"id: a\x00b\n\n"),
        ("a wrong retry", b"retry: x\n\n"),
    ):
        yield ResponseCase(f"an event stream with {name}", http_response(text + data, events), ("ok", *INVALID))
    for name, text in (
        ("nothing", b""),
        ("no answer", b": hello\n\n"),
        ("half an event", data[:20]),
        ("no end of event", data[:-2]),
    ):
        ends = (*lost, "CallTimeout") if name != "no end of event" else (*lost, "ok")
        yield ResponseCase(f"an event stream with {name}", http_response(text, events), ends)
    yield ResponseCase("a body in gzip that is not", http_response(good, extra="Content-Encoding: gzip\r\n"), INVALID)
    yield ResponseCase("an unknown encoding", http_response(good, extra="Content-Encoding: x\r\n"), (*INVALID, "ok"))
    yield ResponseCase("an interim response first", b"HTTP/1.1 100 Continue\r\n\r\n" + http_response(good), ("ok",))
    yield ResponseCase(
        "early hints first", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + http_response(good), ("ok",)
    )
    yield ResponseCase(
        "a switch of protocols", b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n" + http_response(good), lost
    )


def client_cases() -> list[ClientCase]:
    """Return all answers to clients."""
    tables = (
        *(
            wrong_results,
            null_lists,
            odd_forms,
            wrong_members,
            wrong_input_requests,
            expensive_values,
            expensive_schemas,
            unknown_members,
            wrong_openings,
        ),
        *(errors, envelopes, ids, junk, notifications),
    )
    return unique(case for make in tables for case in make())


def ask_cases() -> list[AskCase]:
    """Return all requests to clients."""
    return unique(asks())


def response_cases() -> list[ResponseCase]:
    """Return all responses of HTTP."""
    return unique(responses())
