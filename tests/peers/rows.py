"""Servers that deviate from the specification, as data: one row for each deviation.

A row says what the server sends instead of the plain answers of `PLAIN`, over which transports, what a client gets all the
same, and with which names it warns. `@ID@` in a text stands for the id of the request, `@TOKEN@` for its progress token, `@RESULT@`
for the plain result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

Over = Literal["stdio", "http", "sse"]
EraName = Literal["2025", "auto"]
Do = Literal["call", "list", "era", "progress", "twice"]

#: The transports where each message stands for itself, and all.
LINES: tuple[Over, ...] = ("stdio", "sse")
ALL: tuple[Over, ...] = ("stdio", "http", "sse")

TOOL: Any = {"name": "t", "inputSchema": {"type": "object"}}
#: The results of a server of revision 2025-06-18, by method.
PLAIN: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "plain", "version": "1"},
    },
    "tools/list": {"tools": [TOOL]},
    "tools/call": {"content": [{"type": "text", "text": "hi"}]},
}


class Http(NamedTuple):
    """A response of a server over HTTP, where a row is about HTTP itself."""

    status: int
    body: str = ""
    kind: str = "application/json"
    headers: Mapping[str, str] = {}


class Row(NamedTuple):
    """One deviation.

    Attributes:
        name: What the server does.
        sends: What it sends for the first message of a method: messages, or one HTTP response.
        over: The transports that the row is played over.
        expected: What a client gets: the text of the tool, the names of the tools, or the class of an error.
        warns: The names of the deviations that the client notes.
        do: What the client does: call the tool, list the tools, or tell the era.
        era: The era that the client is told to use.
        always: Whether it sends this for each message of the method, not only for the first.
        of_client: Whether only a client shows it: a proxy has its own list or messages.
    """

    name: str
    sends: Mapping[str, Sequence[str] | Http]
    over: tuple[Over, ...] = ALL
    expected: Any = "hi"
    warns: tuple[str, ...] = ()
    do: Do = "call"
    era: EraName = "2025"
    of_client: bool = False
    always: bool = False


GOOD = '{"jsonrpc":"2.0","id":@ID@,"result":@RESULT@}'


def message(members: str) -> str:
    """Return a message with these members."""
    return '{"jsonrpc":"2.0",' + members + "}"


def correlation() -> Iterator[Row]:
    """What belongs to which request."""
    for method in ("initialize", "tools/list", "tools/call"):
        lists = method == "tools/list"
        for name, answer, warns in (
            ("the id comes back as a string", GOOD.replace("@ID@", '"@ID@"'), "string-id"),
            ("error null beside the result", GOOD[:-1] + ',"error":null}', "null-error"),
        ):
            yield Row(
                f"{method}: {name}",
                {method: [answer]},
                expected=["t"] if lists else "hi",
                warns=(warns,),
                do="list" if lists else "call",
            )
    for name, error in {
        "the code of an error has a fraction": '{"code":-32000.0,"message":"x"}',
        "the result is null beside an error": '{"code":-32000,"message":"x"},"result":null',
    }.items():
        yield Row(
            name,
            {"tools/call": [message(f'"id":@ID@,"error":{error}')]},
            expected="PeerError",
            warns=("fractional-code" if "fraction" in name else "null-result",),
        )
    for name, stray, warns in (
        (
            "a notification with id null",
            '"id":null,"method":"notifications/message","params":{"level":"info","data":1}',
            "null-id",
        ),
        ("a request with id null", '"id":null,"method":"ping"', "message-without-id"),
        ("a request whose id is true", '"id":true,"method":"ping"', "message-without-id"),
        ("a ping with params null", '"id":"p","method":"ping","params":null', "null-params"),
        ("a notification with params null", '"method":"notifications/tools/list_changed","params":null', "null-params"),
    ):
        yield Row(name, {"tools/call": [message(stray), GOOD]}, LINES, warns=(warns,))
    for name, stray, noted in (
        ("an answer to an unknown id without result", '"id":777', ()),
        ("an answer to an unknown id with a text as its error", '"id":777,"error":"no"', ()),
        ("a result with a random id", '"id":"9b1d","result":{}', ()),
        ("an error with id null", '"id":null,"error":{"code":-32601,"message":"x"}', ("message-without-id",)),
        ("an error without id", '"error":{"code":-32601,"message":"x"}', ("message-without-id",)),
        ("a result with id null", '"id":null,"result":{}', ("message-without-id",)),
    ):
        yield Row(f"{name} before the answer", {"tools/call": [message(stray), GOOD]}, ("stdio",), warns=noted)
        if "error" in stray:
            yield Row(
                f"notifications/initialized is answered by {name}",
                {"notifications/initialized": [message(stray)]},
                ("stdio",),
                warns=noted,
            )
    progress = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}'
    yield Row(
        "the progress token comes back as a string",
        {"tools/call": [progress % '"@TOKEN@"', GOOD]},
        LINES,
        expected=1,
        warns=("string-progress-token",),
        do="progress",
        of_client=True,
    )
    yield Row(
        "progress for an unknown token",
        {"tools/call": [progress % '"x"', GOOD]},
        LINES,
        expected=0,
        do="progress",
        of_client=True,
    )
    for name, members in {
        "an id in a list": '"id":[@ID@],"result":@RESULT@',
        "an id with a fraction": '"id":@ID@.0,"result":@RESULT@',
        "an id with a leading zero": '"id":"0@ID@","result":@RESULT@',
        "a member twice": '"id":@ID@,"result":@RESULT@,"error":null,"error":null',
        "a text as the error": '"id":@ID@,"error":"no"',
        "a result that is no object": '"id":@ID@,"result":"hi"',
        "NaN in the result": '"id":@ID@,"result":{"content":[],"structuredContent":{"a":NaN}}',
    }.items():
        yield Row(f"{name}: the call fails", {"tools/call": [message(members)]}, expected="InvalidResponse")


def connecting() -> Iterator[Row]:
    """Answers to `server/discover` that say nothing about the era, and what else meets a client that connects."""
    odd = ("odd-probe-answer",)
    for name, http in {
        "500 with text": Http(500, "boom", "text/plain"),
        "500 with a web page": Http(500, "<html>boom</html>", "text/html"),
        "500 with -32603": Http(500, message('"id":@ID@,"error":{"code":-32603,"message":"x"}')),
        "501": Http(501),
        "202": Http(202),
        "200 without a body": Http(200),
        "204": Http(204),
        "200 with text": Http(200, "unknown method", "text/plain"),
        "200 with text that claims to be JSON": Http(200, "unknown method"),
        "200 with JSON that is no message": Http(200, '{"error":"unknown method"}'),
        "200 with null": Http(200, "null"),
        "200 with an event stream without an answer": Http(200, ": bye\n\n", "text/event-stream"),
        "418": Http(418),
        "413": Http(413, "too large", "text/plain"),
    }.items():
        yield Row(
            f"the probe is answered by HTTP {name}",
            {"server/discover": http},
            ("http",),
            ("2025", "hi"),
            odd,
            "era",
            "auto",
        )
    for status in (400, 404, 405, 406, 415, 422):
        for body in ("", "Bad Request: Mcp-Session-Id header is required"):
            yield Row(
                f"the probe is answered by HTTP {status} with {'text' if body else 'nothing'}",
                {"server/discover": Http(status, body, "text/plain")},
                ("http",),
                ("2025", "hi"),
                (),
                "era",
                "auto",
            )
    for name, members, warns in (
        ("an error with id null", '"id":null,"error":{"code":-32000,"message":"Server not initialized"}', ()),
        ("an error without id", '"error":{"code":-32000,"message":"Server not initialized"}', ()),
        ("a null result", '"id":@ID@,"result":null', odd),
        ("an empty result", '"id":@ID@,"result":{}', odd),
        ("a text as the result", '"id":@ID@,"result":"ok"', odd),
        ("a text as the error", '"id":@ID@,"error":"unknown"', odd),
        ("an error without message", '"id":@ID@,"error":{"code":-32601}', odd),
        (
            "a null result beside an error",
            '"id":@ID@,"result":null,"error":{"code":-32601,"message":"x"}',
            ("null-result",),
        ),
        ("two nulls", '"id":@ID@,"result":null,"error":null', ("null-error", *odd)),
        ("a list of an unknown revision", '"id":@ID@,"result":{"supportedVersions":"all"}', odd),
    ):
        yield Row(
            f"the probe is answered by {name}",
            {"server/discover": [message(members)]},
            expected=("2025", "hi"),
            warns=warns,
            do="era",
            era="auto",
        )
    for status in (429, 502, 503, 504):
        eras: dict[str, EraName] = {"server/discover": "auto", "initialize": "2025"}
        for method, era in eras.items():
            yield Row(
                f"{method} is answered by HTTP {status} once",
                {method: Http(status, "busy", "text/plain")},
                ("http",),
                ("2025", "hi"),
                (),
                "era",
                era,
            )
    for status in (400, 404, 405, 500):
        yield Row(
            f"notifications/initialized is answered by HTTP {status}",
            {"notifications/initialized": Http(status, "no", "text/plain")},
            ("http",),
            warns=("initialized-refused",),
        )


def listing(members: str) -> str:
    """Return a list of tools with these members before the good tool's, as an answer."""
    return message('"id":@ID@,"result":{"tools":[' + members + "," + json.dumps(TOOL) + "]}")


def lists() -> Iterator[Row]:
    """Lists and results of which a part is not valid."""
    for name, cursor, noted in (
        ("an empty cursor", "", "empty-cursor"),
        ("a cursor that does not advance", "x", "repeated-cursor"),
    ):
        page = message('"id":@ID@,"result":{"tools":[' + json.dumps(TOOL) + '],"nextCursor":"' + cursor + '"}')
        yield Row(
            f"a list with {name}",
            {"tools/list": [page]},
            expected=["t"],
            warns=(noted,),
            do="list",
            always=True,
            of_client=bool(cursor),
        )
    schema = '"inputSchema":{"type":"object"}'
    for name, tool in {
        "no inputSchema": '{"name":"bad"}',
        "an inputSchema that is a text": '{"name":"bad","inputSchema":"object"}',
        "no name": "{" + schema + "}",
        "a number as its name": '{"name":5,' + schema + "}",
        "an output schema that is a text": '{"name":"bad","outputSchema":"x",' + schema + "}",
        "nothing, since it is null": "null",
        "the form of a text": '"bad"',
    }.items():
        yield Row(
            f"a list with a tool that has {name}",
            {"tools/list": [listing(tool)]},
            expected=["t"],
            warns=("item-left-out",),
            do="list",
            of_client=True,
        )
    for name, member in {
        "a hint as a text": '"annotations":{"readOnlyHint":"true"}',
        "annotations that are a list": '"annotations":[]',
        "icons that are no list": '"icons":{"src":"x"}',
        "an icon without src": '"icons":[{}]',
        "a description that is a list": '"description":["x"]',
        "a title that is a number": '"title":5',
        "a text as _meta": '"_meta":"x"',
        "a text as execution": '"execution":"required"',
    }.items():
        yield Row(
            f"a list with a tool that has {name}",
            {"tools/list": [listing('{"name":"other",' + schema + "," + member + "}")]},
            expected=["other", "t"],
            warns=("member-left-out",),
            do="list",
            of_client=True,
        )
    text = '{"type":"text","text":"hi"}'
    for name, content, noted in (
        ("a block of an unknown type", '{"type":"widget","x":1}', "block-left-out"),
        ("a block without a type", '{"text":"x"}', "block-left-out"),
        ("a block that is a text", '"x"', "block-left-out"),
        ("an image without data", '{"type":"image","mimeType":"image/png"}', "block-left-out"),
        ("an unknown audience", '{"type":"text","text":"","annotations":{"audience":["system"]}}', "member-left-out"),
        ("a priority that is a text", '{"type":"text","text":"","annotations":{"priority":"high"}}', "member-left-out"),
    ):
        yield Row(
            f"a result with {name} beside text",
            {"tools/call": [message('"id":@ID@,"result":{"content":[' + text + "," + content + "]}")]},
            expected="hi" if noted == "block-left-out" else "hi\n",
            warns=(noted,),
            of_client=True,
        )
    yield Row(
        "a result with structured content and no content",
        {"tools/call": [message('"id":@ID@,"result":{"structuredContent":{"a":1}}')]},
        expected="",
        warns=("content-missing",),
        of_client=True,
    )
    for name, result in {
        "of one block of an unknown type": '{"content":[{"type":"widget"}]}',
        "without content": "{}",
        "whose isError is a text": '{"content":[],"isError":"no"}',
        "whose content is no list": '{"content":{"type":"text","text":"x"}}',
    }.items():
        yield Row(
            f"a result {name}: the call fails",
            {"tools/call": [message(f'"id":@ID@,"result":{result}')]},
            expected="InvalidResponse",
            of_client=True,
        )


def sessions() -> Iterator[Row]:
    """HTTP sessions that a server has lost, and servers that are busy."""
    begin = Http(200, GOOD, headers={"Mcp-Session-Id": "s1"})
    error = '"id":null,"error":{"code":-32000,"message":"%s"}'
    for name, lost in {
        "400 'No valid session ID provided'": Http(400, message(error % "Bad Request: No valid session ID provided")),
        "400 'Server not initialized'": Http(400, message(error % "Bad Request: Server not initialized")),
        "400 'Invalid session ID' as text": Http(400, "Invalid session ID", "text/plain"),
        "400 'Session expired' with the id of the request": Http(
            400, message('"id":@ID@,"error":{"code":-32600,"message":"Session expired"}')
        ),
        "401 'Session not found'": Http(401, "Unauthorized: Session not found", "text/plain"),
        "410": Http(410),
        "410 with text": Http(410, "Gone", "text/plain"),
        "404": Http(404),
        "404 'Session not found'": Http(404, message(error % "Session not found")),
    }.items():
        warns = () if lost.status == 404 else ("lost-session-status",)
        yield Row(
            f"a lost session is told by {name}", {"initialize": begin, "tools/call": lost}, ("http",), warns=warns
        )
    for name, refusal in {
        "400 with other words": Http(400, "Unknown argument", "text/plain"),
        "401 that wants a login": Http(401, "Session expired", "text/plain", {"WWW-Authenticate": "Bearer"}),
        "401 with other words": Http(401, "Unauthorized", "text/plain"),
        "403 'Invalid session'": Http(403, "Invalid session", "text/plain"),
    }.items():
        yield Row(
            f"a call in a session is refused by {name}: the call fails",
            {"initialize": begin, "tools/call": refusal},
            ("http",),
            "HttpStatus",
        )
    yield Row(
        "a call without a session is refused by 400 'Invalid session ID': the call fails",
        {"tools/call": Http(400, "Invalid session ID", "text/plain")},
        ("http",),
        "HttpStatus",
    )
    overloaded = message('"id":@ID@,"error":{"code":429,"message":"busy","data":{"retryAfterMs":1}}')
    later = {"Retry-After": "0"}
    for name, busy, expected in (
        ("429", Http(429), "hi"),
        ("429 with Retry-After", Http(429, headers=later), "hi"),
        ("503 with an error that says that nothing ran", Http(503, overloaded, headers=later), "hi"),
        ("503 with Retry-After, for a call that is not known to be safe", Http(503, headers=later), "HttpStatus"),
        ("429 with a Retry-After of a day", Http(429, headers={"Retry-After": "86400"}), "HttpStatus"),
    ):
        yield Row(f"a call is answered by {name}", {"tools/call": busy}, ("http",), expected)
    yield Row(
        "a list is answered by 503 with Retry-After",
        {"tools/list": Http(503, headers=later)},
        ("http",),
        ["t"],
        do="list",
    )


ROWS: tuple[Row, ...] = (*correlation(), *connecting(), *lists(), *sessions())
