"""Servers that deviate from the specification, as data: one row for each deviation.

A row says what the server sends instead of the plain answers of `PLAIN`, over which transports, what a client gets all the
same, and with which names it warns. `@ID@` in a text stands for the id of the request, `@TOKEN@` for its progress token, `@RESULT@`
for the plain result. Rows of logins are in `logins.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

Over = Literal["stdio", "http", "sse"]
EraName = Literal["2025", "2026", "auto"]
Do = Literal["call", "list", "era", "progress", "both", "prompts", "prompt", "read", "complete"]
Frame = Literal["length", "chunks", "close"]

#: The transports where each message stands for itself, and all.
LINES: tuple[Over, ...] = ("stdio", "sse")
ALL: tuple[Over, ...] = ("stdio", "http", "sse")

TOOL: Any = {"name": "t", "inputSchema": {"type": "object"}}
#: The results of a plain server, by method: of revision 2025-06-18, or with `STATELESS` of 2026-07-28.
PLAIN: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}, "prompts": {}, "resources": {}, "completions": {}},
        "serverInfo": {"name": "plain", "version": "1"},
    },
    "tools/list": {"tools": [TOOL]},
    "tools/call": {"content": [{"type": "text", "text": "hi"}]},
    "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
}
_CACHEABLE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
STATELESS: dict[str, Any] = {
    "server/discover": _CACHEABLE,
    "tools/list": _CACHEABLE,
    "tools/call": {"resultType": "complete"},
}
#: Sent in place of a message: the server ends.
END = b""


class Http(NamedTuple):
    """A response of a server over HTTP, where a row is about HTTP itself.

    Attributes:
        status: The status. 0 for no response at all: the connection ends.
        body: The body.
        kind: Its content type; "" for none.
        headers: Further headers.
        frame: How the end of the body is told: by `Content-Length`, by chunks, or by the end of the connection.
        before: What is sent before the response.
        line_end: What ends the lines of the head.
        encoding: The encoding of the body.
    """

    status: int
    body: str = ""
    kind: str = "application/json"
    headers: Mapping[str, str] = {}
    frame: Frame = "length"
    before: str = ""
    line_end: str = "\r\n"
    encoding: str = "utf-8"


class Row(NamedTuple):
    """One deviation.

    Attributes:
        name: What the server does.
        sends: What it sends for the first message of a method (or the first GET or DELETE): lines, bytes that are sent without
            a line end, `END`, or one HTTP response.
        over: The transports that the row is played over.
        expected: What a client gets: the text of the tool, the names of the tools, or the class of an error.
        warns: The names of the deviations that the client notes.
        do: What the client does: call the tool, count its progress, list the tools, tell the era and call, or call and list;
            list the prompts with what they require, get the texts of a prompt, read a resource, or complete an argument.
        era: The era that the client is told to use.
        always: Whether it sends this for each message of the method, not only for the first.
        of_client: Whether only a client shows it: a proxy has its own list or messages.
        limits: Limits of the client that the row needs.
    """

    name: str
    sends: Mapping[str, Sequence[str | bytes] | Http]
    over: tuple[Over, ...] = ALL
    expected: Any = "hi"
    warns: tuple[str, ...] = ()
    do: Do = "call"
    era: EraName = "2025"
    of_client: bool = False
    always: bool = False
    limits: Mapping[str, Any] = {}


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
        "fractional-code": '{"code":-32000.0,"message":"x"}',
        "string-code": '{"code":"-32000","message":"x"}',
        "error-without-message": '{"code":-32000}',
        "null-result": '{"code":-32000,"message":"x"},"result":null',
        "empty-method": '{"code":-32000,"message":"x"},"method":null,"params":null',
    }.items():
        yield Row(
            f"an error with the slip {name}",
            {"tools/call": [message(f'"id":@ID@,"error":{error}')]},
            expected="PeerError",
            warns=(name,),
        )
    yield Row(
        "an error with null as its message",
        {"tools/call": [message('"id":@ID@,"error":{"code":-32000,"message":null}')]},
        expected="PeerError",
        warns=("error-without-message",),
    )
    yield Row(
        "an error with a word as its code: the call fails",
        {"tools/call": [message('"id":@ID@,"error":{"code":"E1","message":"x"}')]},
        expected="InvalidResponse",
    )
    for name, members, slips in (
        ("null as its method", '"method":null', ("empty-method",)),
        ("an empty method", '"method":""', ("empty-method",)),
        (
            "null for all of its other members",
            '"method":null,"params":null,"error":null',
            ("empty-method", "null-error"),
        ),
    ):
        yield Row(
            f"an answer has {name}", {"tools/call": [message('"id":@ID@,"result":@RESULT@,' + members)]}, warns=slips
        )
    yield Row(
        "an answer has a method: the call fails",
        {"tools/call": [message('"id":@ID@,"result":@RESULT@,"method":"tools/call"')]},
        ("http",),
        expected="InvalidResponse",
    )
    for name, stray, warns in (
        (
            "a notification with id null",
            '"id":null,"method":"notifications/message","params":{"level":"info","data":1}',
            "null-id",
        ),
        ("a request with id null", '"id":null,"method":"ping"', "message-without-id"),
        ("a request whose id is true", '"id":true,"method":"ping"', "message-without-id"),
        ("a notification with a null error", '"method":"notifications/tools/list_changed","error":null', "null-error"),
        (
            "a notification with a null result",
            '"method":"notifications/tools/list_changed","result":null',
            "null-result",
        ),
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


def printing() -> Iterator[Row]:
    """What programs write to standard output besides messages, and how they break messages into lines."""
    for name, noise in {
        "a banner": b"Plain server listening on stdio\n",
        "text that is not UTF-8": "服务器\n".encode("gbk"),
        "blank lines": b"\n\r\n  \n",
        "colours": b"\x1b[32mready\x1b[0m\n",
        "a stack trace": b'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: x\n',
        "a log line in JSON": b'{"level":"info","msg":"started"}\n',
        "a log line in JSON with an id": b'{"level":"info","msg":"started","id":7}\n',
        "a number": b"7\n",
        "true": b"true\n",
        "a text in quotes": b'"ready"\n',
        "a list of texts": b'["ready"]\n',
        "NUL": b"\x00\x00\n",
        "a log line over several lines": b'{\n  "level": "info",\n  "msg": "started"\n}\n',
        "half a line that ends later": b"Loading\n",
    }.items():
        for method in ("initialize", "tools/call"):
            yield Row(f"{method}: {name} before the answer", {method: [noise, GOOD]}, ("stdio",))
    good = GOOD.encode()
    for name, sent in {
        "ends with CRLF": (good + b"\r\n",),
        "comes in three pieces": (good[:9], good[9:30], good[30:] + b"\n"),
        "is between blanks": (b"  " + good + b" \t\n",),
        "has its members in another order": (b'{"result":@RESULT@,"id":@ID@,"jsonrpc":"2.0"}\n',),
        "has further members": (good[:-1] + b',"trace":"x"}\n',),
        "comes twice": (good + b"\n" + good + b"\n",),
        "is followed by an error": (good + b"\n" + b'{"jsonrpc":"2.0","id":@ID@,"error":{"code":1,"message":"x"}}\n',),
        "is followed by text": (good + b"\nbye\n",),
    }.items():
        yield Row(f"the answer {name}", {"tools/call": list(sent)}, ("stdio",))
    for method in ("initialize", "tools/call"):
        yield Row(f"{method}: the answer is alone in a batch", {method: [f"[{GOOD}]"]}, warns=("batch",))
        yield Row(
            f"{method}: the answer has a byte order mark",
            {method: ["\ufeff" + GOOD]},
            ("stdio", "http"),
            warns=("byte-order-mark",),
        )
    for name, sent in {
        "text in front of it": (b"Loading " + good + b"\n",),
        "text behind it": (good + b" done\n",),
        "a line end within it": (good[:30] + b"\n" + good[30:] + b"\n",),
        "half a surrogate pair": (
            good.replace(b"@RESULT@", b'{"content":[{"type":"text","text":"\\ud83d"}]}') + b"\n",
        ),
        "no jsonrpc": (b'{"id":@ID@,"result":@RESULT@}\n',),
        "another jsonrpc": (good.replace(b'"2.0"', b'"1.0"') + b"\n",),
    }.items():
        yield Row(f"the answer has {name}: the call fails", {"tools/call": list(sent)}, ("stdio",), "InvalidResponse")
    yield Row(
        "two answers in one line: the call fails when its time is over",
        {"tools/call": [GOOD + GOOD]},
        ("stdio",),
        "InvalidResponse",
        ("message-without-id",),
        of_client=True,
        limits={"call_idle": 0.2},
    )


def ending() -> Iterator[Row]:
    """Servers on stdio that end, or say nothing."""
    yield Row("the server ends after an answer", {"tools/call": [GOOD, END]}, ("stdio",), ("hi", ["t"]), do="both")
    yield Row("the server ends at the probe", {"server/discover": [END]}, ("stdio",), ("2025", "hi"), (), "era", "auto")
    yield Row(
        "the server prints a usage text and ends at the probe",
        {"server/discover": [b"usage: plain [--stdio]\n", END]},
        ("stdio",),
        ("2025", "hi"),
        (),
        "era",
        "auto",
    )
    yield Row("the server ends at a list", {"tools/list": [END]}, ("stdio",), ["t"], do="list")
    yield Row(
        "the server ends within an answer to a list",
        {"tools/list": [b'{"jsonrpc":"2', END]},
        ("stdio",),
        ["t"],
        do="list",
    )
    yield Row("the server ends at a call: the call fails", {"tools/call": [END]}, ("stdio",), "ConnectionLost")
    yield Row(
        "the server ends within an answer: the call fails",
        {"tools/call": [b'{"jsonrpc":"2', END]},
        ("stdio",),
        "ConnectionLost",
    )
    yield Row(
        "the server ends at initialize: it can't be used",
        {"initialize": [END]},
        ("stdio",),
        "ConnectFailed",
        always=True,
    )
    yield Row(
        "the probe gets no answer",
        {"server/discover": []},
        ("stdio",),
        ("2025", "hi"),
        (),
        "era",
        "auto",
        limits={"probe": 0.05},
    )
    yield Row(
        "the probe gets a line of text and no answer",
        {"server/discover": ["unknown method: server/discover"]},
        ("stdio",),
        ("2025", "hi"),
        (),
        "era",
        "auto",
        limits={"probe": 0.05},
    )
    yield Row(
        "a call gets no answer: the call fails",
        {"tools/call": []},
        ("stdio",),
        "CallTimeout",
        of_client=True,
        limits={"call_idle": 0.2},
    )
    yield Row(
        "a call gets an error with id null: it fails when its time is over",
        {"tools/call": [message('"id":null,"error":{"code":-32700,"message":"x"}')]},
        ("stdio",),
        "InvalidResponse",
        ("message-without-id",),
        of_client=True,
        limits={"call_idle": 0.2},
    )


def openings() -> Iterator[Row]:
    """Answers to `initialize`."""

    def opening(**changes: Any) -> list[str]:
        result = {**PLAIN["initialize"], **changes}
        left = {name: value for name, value in result.items() if value is not ...}
        return [GOOD.replace("@RESULT@", json.dumps(left))]

    understood: dict[str, dict[str, Any]] = {
        "an older revision": {"protocolVersion": "2024-11-05"},
        "instructions that are null": {"instructions": None},
        "unknown capabilities": {"capabilities": {"tools": {}, "experimental": {"x": {}}, "magic": True}},
        "further members": {"sessionId": "x"},
    }
    for name, changes in understood.items():
        yield Row(f"initialize is answered with {name}", {"initialize": opening(**changes)})
    yield Row(
        "initialize is answered without the capability of its tools",
        {"initialize": opening(capabilities={})},
        of_client=True,
    )
    left_out: dict[str, dict[str, Any]] = {
        "instructions that are a list": {"instructions": ["x"]},
        "a text as _meta": {"_meta": "x"},
        "a title that is a number": {"serverInfo": {"name": "plain", "version": "1", "title": 5}},
        "icons that are no list": {"serverInfo": {"name": "plain", "version": "1", "icons": "x"}},
        "true as its tools": {"capabilities": {"tools": True}},
        "true as another capability": {"capabilities": {"tools": {}, "logging": True}},
        "a text as listChanged": {"capabilities": {"tools": {"listChanged": "yes"}}},
        "a list as experimental capabilities": {"capabilities": {"tools": {}, "experimental": []}},
        "no name": {"serverInfo": {"version": "1"}},
        "no version": {"serverInfo": {"name": "plain"}},
        "a name that is a number": {"serverInfo": {"name": 5, "version": "1"}},
        "a text as serverInfo": {"serverInfo": "plain 1.0"},
        "no serverInfo": {"serverInfo": ...},
    }
    for name, changes in left_out.items():
        yield Row(f"initialize is answered with {name}", {"initialize": opening(**changes)}, warns=("member-left-out",))
    unusable: dict[str, dict[str, Any]] = {
        "an unknown revision": {"protocolVersion": "2031-01-01"},
        "the stateless revision": {"protocolVersion": "2026-07-28"},
        "no revision": {"protocolVersion": ...},
        "no capabilities": {"capabilities": ...},
        "capabilities that are a list": {"capabilities": []},
    }
    for name, changes in unusable.items():
        yield Row(
            f"initialize is answered with {name}: it can't be used",
            {"initialize": opening(**changes)},
            expected="ConnectFailed",
            always=True,
        )


def stateless() -> Iterator[Row]:
    """Servers of the stateless era."""

    def result(method: str, **changes: Any) -> list[str]:
        members = {**PLAIN[method], **STATELESS[method], **changes}
        left = {name: value for name, value in members.items() if value is not ...}
        return [GOOD.replace("@RESULT@", json.dumps(left))]

    yield Row(
        "stateless: the id comes back as a string",
        {"tools/call": [GOOD.replace("@ID@", '"@ID@"')]},
        warns=("string-id",),
        era="2026",
    )
    left_out = ("member-left-out",)
    lists: tuple[tuple[str, dict[str, Any], tuple[str, ...]], ...] = (
        ("no ttlMs", {"ttlMs": ...}, ()),
        ("no cacheScope", {"cacheScope": ...}, ()),
        ("no resultType", {"resultType": ...}, ()),
        ("a negative ttlMs", {"ttlMs": -1}, ()),
        ("a ttlMs with a fraction", {"ttlMs": 0.5}, left_out),
        ("an unknown cacheScope", {"cacheScope": "tenant"}, left_out),
    )
    for name, changes, noted in lists:
        yield Row(
            f"stateless: a list has {name}",
            {"tools/list": result("tools/list", **changes)},
            expected=["t"],
            warns=noted,
            do="list",
            era="2026",
            of_client=True,
        )
    results: dict[str, dict[str, Any]] = {
        "an unknown resultType": {"resultType": "partial"},
        "a resultType that is null": {"resultType": None},
        "requests for input that are a list": {"resultType": "input_required", "inputRequests": []},
    }
    for name, changes in results.items():
        yield Row(
            f"stateless: a result has {name}: the call fails",
            {"tools/call": result("tools/call", **changes)},
            expected="InvalidResponse",
            era="2026",
        )
    discoveries: dict[str, dict[str, Any]] = {
        "no revision in common": {"supportedVersions": ["2031-01-01"]},
        "no list of revisions": {"supportedVersions": ...},
        "no capabilities": {"capabilities": ...},
    }
    for name, changes in discoveries.items():
        yield Row(
            f"stateless: the discovery has {name}: it can't be used",
            {"server/discover": result("server/discover", **changes)},
            expected="ConnectFailed",
            era="2026",
            always=True,
        )
    yield Row(
        "stateless: the discovery has members that are not valid",
        {"server/discover": result("server/discover", instructions=5, capabilities={"tools": {"listChanged": 1}})},
        warns=("member-left-out",),
        era="2026",
    )
    yield Row(
        "stateless: a request of the server comes before the answer",
        {"tools/call": [message('"id":"p","method":"roots/list"'), GOOD]},
        LINES,
        era="2026",
    )
    yield Row(
        "stateless: a notification with params null comes before the answer",
        {"tools/call": [message('"method":"notifications/message","params":null'), GOOD]},
        LINES,
        warns=("null-params",),
        era="2026",
    )


def asking() -> Iterator[Row]:
    """Requests and notifications of a server during a call."""
    for name, stray, noted in (
        ("a ping with a text as its id", '"id":"p-1","method":"ping"', ()),
        ("a ping with a large id", '"id":9007199254740993,"method":"ping"', ()),
        ("a ping with the id of the call", '"id":@ID@,"method":"ping"', ()),
        ("a ping with params that are a list", '"id":"p","method":"ping","params":[]', ()),
        ("an unknown request", '"id":"p","method":"server/nothing"', ()),
        (
            "a request of a capability that was not declared",
            '"id":"p","method":"sampling/createMessage","params":{}',
            (),
        ),
        ("an unknown notification", '"method":"notifications/nothing","params":{}', ()),
        ("a notification without a prefix", '"method":"log","params":{"text":"x"}', ()),
        (
            "params of a notification that are a list",
            '"method":"notifications/message","params":["x"]',
            ("invalid-notification",),
        ),
        (
            "a log message of an unknown level",
            '"method":"notifications/message","params":{"level":"trace","data":"x"}',
            (),
        ),
        ("a log message without data", '"method":"notifications/message","params":{"level":"info"}', ()),
        ("progress without a token", '"method":"notifications/progress","params":{"progress":1}', ()),
        (
            "progress that is a text",
            '"method":"notifications/progress","params":{"progressToken":1,"progress":"half"}',
            (),
        ),
        ("a cancellation of nothing", '"method":"notifications/cancelled","params":{"requestId":"none"}', ()),
        ("a change that was not declared", '"method":"notifications/tools/list_changed"', ()),
        ("an empty method", '"method":"","params":{}', ()),
        ("a method that is a number", '"method":5', ("invalid-notification",)),
    ):
        yield Row(f"during a call comes {name}", {"tools/call": [message(stray), GOOD]}, LINES, warns=noted)


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
        "nothing, and the connection ends": Http(0),
        "half a body": Http(200, "{", headers={"Transfer-Encoding": "chunked"}, frame="close"),
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
        ("an error without message", '"id":@ID@,"error":{"code":-32601}', ("error-without-message",)),
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


def http() -> Iterator[Row]:
    """Responses of HTTP servers."""
    for kind in ("application/json; charset=utf-8", "Application/JSON", "application/json;charset=UTF-8;profile=x"):
        yield Row(f"the content type of an answer is {kind}", {"tools/call": Http(200, GOOD, kind)}, ("http",))
    for kind in (
        "text/json",
        "application/vnd.api+json",
        "application/json-rpc",
        "text/plain",
        "application/octet-stream",
        "text/html",
        "",
    ):
        yield Row(
            f"the content type of an answer is {kind or 'missing'}",
            {"tools/call": Http(200, GOOD, kind)},
            ("http",),
            warns=("content-type",),
        )
    yield Row(
        "the content type of an error is text/plain",
        {"tools/call": Http(400, message('"id":@ID@,"error":{"code":-32602,"message":"x"}'), "text/plain")},
        ("http",),
        "PeerError",
        ("content-type",),
    )
    for name, response in {
        "the status 201": Http(201, GOOD),
        "the status 206": Http(206, GOOD),
        "chunks": Http(200, GOOD, frame="chunks"),
        "the end of the connection": Http(200, GOOD, frame="close"),
        "an interim response before it": Http(200, GOOD, before="HTTP/1.1 100 Continue\r\n\r\n"),
        "early hints before it": Http(200, GOOD, before="HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"),
        "blank lines before it": Http(200, GOOD, before="\r\n\r\n"),
        "a header twice": Http(200, GOOD, headers={"X-A": "1", "x-a": "2"}),
        "an unusual header": Http(200, GOOD, headers={"X-Text": "gr\u00fc\u00dfe"}),
        "an end of the connection behind it": Http(200, GOOD, headers={"Connection": "close"}),
    }.items():
        yield Row(f"an answer has {name}", {"tools/call": response}, ("http",))
    yield Row(
        "the id of a session is empty", {"initialize": Http(200, GOOD, headers={"Mcp-Session-Id": ""})}, ("http",)
    )
    for coding in ("utf-8", "UTF-8", "utf8"):
        coded = Http(200, GOOD, headers={"Content-Encoding": coding})
        yield Row(f"an answer has the coding {coding}", {"tools/call": coded}, ("http",))
    accents = message('"id":@ID@,"result":{"content":[{"type":"text","text":"caf\u00e9"}]}')
    for charset, encoding, noted in (
        ("iso-8859-1", "latin-1", ("charset",)),
        ("windows-1252", "cp1252", ("charset",)),
        ("UTF-16", "utf-16", ("charset",)),
        ("iso-8859-1", "utf-8", ()),
        ("unknown", "utf-8", ()),
    ):
        yield Row(
            f"the charset of an answer is {charset}, and its encoding {encoding}",
            {"tools/call": Http(200, accents, f"application/json;charset={charset}", encoding=encoding)},
            ("http",),
            "caf\u00e9",
            noted,
        )
    yield Row(
        "an answer is in another encoding than its charset: the call fails",
        {"tools/call": Http(200, accents, "application/json; charset=utf-8", encoding="latin-1")},
        ("http",),
        "InvalidResponse",
    )
    for name, members in (("no id", '"result":@RESULT@'), ("null as its id", '"id":null,"result":@RESULT@')):
        for over in ("http", "sse"):
            answer = message(members)
            yield Row(
                f"{over}: an answer has {name}",
                {"tools/call": [answer], "tools/list": [answer]},
                (over,),
                expected=("hi", ["t"]),
                warns=("result-without-id",),
                do="both",
            )
    for name, response in {
        "lines that end with LF": Http(200, GOOD, line_end="\n"),
        "a contradictory length": Http(200, GOOD, headers={"content-length": "5"}),
        "a length and chunks": Http(200, GOOD, headers={"Transfer-Encoding": "chunked"}),
        "a length that is a text": Http(200, GOOD, headers={"content-length": "x"}, frame="close"),
        "an unknown coding": Http(200, GOOD, headers={"Content-Encoding": "x"}),
        "202": Http(202),
        "204": Http(204),
        "200 without a body": Http(200),
        "200 with null": Http(200, "null"),
        "200 with a web page": Http(200, "<html>", "text/html"),
        "an answer to another request": Http(200, message('"id":777,"result":{}')),
        "200 with text that begins like JSON": Http(200, "{loading}", "text/plain"),
    }.items():
        yield Row(
            f"a call is answered by {name}: the call fails", {"tools/call": response}, ("http",), "InvalidResponse"
        )
    yield Row("a call gets no response: the call fails", {"tools/call": Http(0)}, ("http",), "ConnectionLost")
    for name, response in {
        "a result with the status 500": Http(500, GOOD),
        "an unknown status": Http(999, GOOD),
        "500": Http(500, "boom", "text/plain"),
        "400 with an error of another request": Http(400, message('"id":777,"error":{"code":1,"message":"x"}')),
        "a redirect to another host": Http(307, headers={"Location": "http://other.example/mcp"}),
        "a redirect to another scheme": Http(308, headers={"Location": "https://127.0.0.1/mcp"}),
        "a redirect to nowhere": Http(307),
        "a redirect that asks for GET": Http(303, headers={"Location": "/mcp"}),
    }.items():
        yield Row(f"a call is answered by {name}: the call fails", {"tools/call": response}, ("http",), "HttpStatus")
    for name, response in {
        "400 with an error": Http(400, message('"id":@ID@,"error":{"code":-32602,"message":"x"}')),
        "400 with an error with id null": Http(400, message('"id":null,"error":{"code":-32602,"message":"x"}')),
        "200 with an error with id null": Http(200, message('"id":null,"error":{"code":-32602,"message":"x"}')),
        "200 with an error without id": Http(200, message('"error":{"code":-32602,"message":"x"}')),
        "500 with an error": Http(500, message('"id":@ID@,"error":{"code":-32603,"message":"x"}')),
        "404 with an unknown method": Http(404, message('"id":@ID@,"error":{"code":-32601,"message":"x"}')),
    }.items():
        yield Row(
            f"a call is answered by {name}: it is the error of the call",
            {"tools/call": response},
            ("http",),
            "PeerError",
        )
    for status in (301, 302, 307, 308):
        yield Row(
            f"initialize is redirected by {status} within the server",
            {"initialize": Http(status, headers={"Location": "/mcp/"})},
            ("http",),
        )
    for name, response in {
        "200 with null": Http(200, "null"),
        "200 with an object": Http(200, "{}"),
        "200 with text": Http(200, "ok", "text/plain"),
        "200 without a body": Http(200),
        "204": Http(204),
        "200 with a result": Http(200, message('"id":null,"result":{}')),
        "an event stream": Http(200, ": ok\n\n", "text/event-stream"),
    }.items():
        yield Row(
            f"notifications/initialized is answered by HTTP {name}", {"notifications/initialized": response}, ("http",)
        )
    begin = Http(200, GOOD, headers={"mcp-session-id": "s1"})
    for name, response in {
        "200 with a web page": Http(200, "<html>", "text/html"),
        "200 with JSON": Http(200, "{}"),
        "an event stream that ends at once": Http(200, ": bye\n\n", "text/event-stream"),
        "204": Http(204),
        "400": Http(400, "no", "text/plain"),
        "401": Http(401, "no", "text/plain"),
        "404": Http(404, "no", "text/plain"),
        "500": Http(500, "no", "text/plain"),
    }.items():
        yield Row(
            f"the GET of a session is answered by {name}",
            {"initialize": begin, "GET": response},
            ("http",),
            always=True,
        )
    for status in (200, 400, 404, 405, 500):
        yield Row(
            f"the end of a session is answered by {status}", {"initialize": begin, "DELETE": Http(status)}, ("http",)
        )
    for name, value in {
        "a date in the past": "Wed, 21 Oct 2015 07:28:00 GMT",
        "a fraction": "0.01",
        "a negative number": "-1",
        "a text": "soon",
    }.items():
        yield Row(
            f"a call is answered by 429 with Retry-After as {name}",
            {"tools/call": Http(429, headers={"Retry-After": value})},
            ("http",),
        )


def streams() -> Iterator[Row]:
    """Event streams of HTTP servers."""
    event = f"data: {GOOD}\n\n"
    half = GOOD.index('"result')
    for name, text in {
        "line ends CRLF": event.replace("\n", "\r\n"),
        "line ends CR": event.replace("\n", "\r"),
        "a byte order mark": "\ufeff" + event,
        "no blank behind the colon": event.replace(": ", ":", 1),
        "the name of the event": "event: message\n" + event,
        "comments": ": a\n\n: b\n" + event,
        "an id and a time": "id: 1\nretry: 10\n" + event,
        "a time that is a text": "retry: soon\n" + event,
        "an unknown field": "x: y\n" + event,
        "the answer in two lines of data": f"data: {GOOD[:half]}\ndata: {GOOD[half:]}\n\n",
        "no blank line at its end": event[:-1],
        "an event without data first": "id: 1\ndata:\n\n" + event,
        "further answers behind": event + event,
        "text behind the answer": event + "data: bye\n\n",
    }.items():
        yield Row(f"an event stream has {name}", {"tools/call": Http(200, text, "text/event-stream")}, ("http",))
    for kind in ("text/event-stream; charset=utf-8", "Text/Event-Stream", "text/event-stream;charset=UTF-8"):
        yield Row(f"the content type of an event stream is {kind}", {"tools/call": Http(200, event, kind)}, ("http",))
    for kind in ("application/json", "text/plain", "", "text/event-stream, application/json"):
        for name, text in (("", event), (", which begins with a comment", ": a\n\nid: 1\nevent: message\n" + event)):
            yield Row(
                f"the content type of an event stream is {kind or 'missing'}{name}",
                {"initialize": Http(200, text, kind), "tools/call": Http(200, text, kind)},
                ("http",),
                warns=("content-type",),
            )
    frames: dict[str, Frame] = {"a length": "length", "chunks": "chunks", "the end of the connection": "close"}
    for name, frame in frames.items():
        yield Row(
            f"the content type of an answer with {name} is text/event-stream",
            {"tools/call": Http(200, GOOD, "text/event-stream", frame=frame)},
            ("http",),
            warns=("content-type",),
        )
    for name in ("response", "Message", "tools/call"):
        yield Row(
            f"an event stream has the answer in an event {name}",
            {"tools/call": Http(200, f"event: {name}\n{event}", "text/event-stream")},
            ("http",),
            warns=("event-name",),
        )
    for name, text, error in (
        ("comments only", ": a\n\n", "ConnectionLost"),
        ("half of the answer", event[:-20], "InvalidResponse"),
        ("an answer to another request", "data: " + message('"id":777,"result":{}') + "\n\n", "InvalidResponse"),
    ):
        yield Row(
            f"an event stream ends with {name}: the call fails",
            {"tools/call": Http(200, text, "text/event-stream")},
            ("http",),
            error,
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
    yield Row(
        "a list that is null",
        {"tools/list": [message('"id":@ID@,"result":{"tools":null}')]},
        expected=[],
        warns=("null-list",),
        do="list",
        of_client=True,
    )
    for name, result, noted in (
        ("whose isError is null", '{"content":[{"type":"text","text":"hi"}],"isError":null}', "member-left-out"),
        ("whose content is null", '{"content":null}', "null-list"),
        (
            "whose content is null beside structured content",
            '{"content":null,"structuredContent":{"a":1}}',
            "null-list",
        ),
    ):
        yield Row(
            f"a result {name}",
            {"tools/call": [message(f'"id":@ID@,"result":{result}')]},
            expected="hi" if "hi" in result else "",
            warns=(noted,),
            of_client=True,
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
        "whose content is a number": '{"content":1}',
        "whose content is an object without a type": '{"content":{"text":"x"}}',
    }.items():
        yield Row(
            f"a result {name}: the call fails",
            {"tools/call": [message(f'"id":@ID@,"result":{result}')]},
            expected="InvalidResponse",
            of_client=True,
        )


def forms() -> Iterator[Row]:
    """Results in another form than the specification's, which has one meaning."""
    text = {"type": "text", "text": "hi"}

    def sends(result: object) -> str:
        return message(f'"id":@ID@,"result":{json.dumps(result)}')

    content: Any
    for name, content in (("a text", "hi"), ("one block", text)):
        yield Row(
            f"a result has {name} in place of a list",
            {"tools/call": [sends({"content": content})]},
            warns=("content-form",),
            of_client=True,
        )
    contents: Any
    for name, contents, warns in (
        ("no list", {"uri": "x:1", "text": "hi"}, ("content-form",)),
        ("no URI", [{"text": "hi"}], ("uri-missing",)),
        ("null as their URI", [{"uri": None, "text": "hi"}], ("uri-missing",)),
    ):
        yield Row(
            f"the contents of a resource have {name}",
            {"resources/read": [sends({"contents": contents})]},
            expected=[("x:1", "hi")],
            warns=warns,
            do="read",
            of_client=True,
        )
    yield Row(
        "several contents of a resource have no URI: the call fails",
        {"resources/read": [sends({"contents": [{"text": "a"}, {"text": "b"}]})]},
        expected="InvalidResponse",
        do="read",
        of_client=True,
    )
    for name, content, texts in (
        ("a text", "hi", ["hi"]),
        ("a list of one block", [text], ["hi"]),
        ("a list of two blocks", [text, text], ["hi", "hi"]),
    ):
        yield Row(
            f"a message of a prompt has {name} in place of a block",
            {"prompts/get": [sends({"messages": [{"role": "user", "content": content}]})]},
            expected=texts,
            warns=("content-form",),
            do="prompt",
            of_client=True,
        )
    yield Row(
        "a prompt has an argument that is required by a text",
        {"prompts/list": [sends({"prompts": [{"name": "p", "arguments": [{"name": "a", "required": "yes"}]}]})]},
        expected=[("p", ["a"])],
        warns=("member-left-out",),
        do="prompts",
        of_client=True,
    )
    for name, completion, values, warns in (
        ("null", None, [], ("null-list",)),
        ("null as its values", {"values": None}, [], ("null-list",)),
        ("a total that is a text", {"values": ["a"], "total": "1"}, ["a"], ("member-left-out",)),
    ):
        yield Row(
            f"a completion is or has {name}",
            {"completion/complete": [sends({"completion": completion})]},
            expected=values,
            warns=warns,
            do="complete",
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


def events() -> Iterator[Row]:
    """Event streams with events that are not messages."""
    answer = f"data: {GOOD}\n\n"
    for name, stray in {
        "'keepalive'": "data: keepalive\n\n",
        "'ping'": "data: ping\n\n",
        "null": "data: null\n\n",
        "'[DONE]'": "data: [DONE]\n\n",
        "an object that is no message": 'data: {"type":"ping"}\n\n',
        "an unknown name": "event: heartbeat\ndata: {}\n\n",
        "two of them": "data: ping\n\nevent: ping\ndata: 1\n\n",
    }.items():
        for method in ("initialize", "tools/call"):
            yield Row(
                f"{method}: before the answer an event has {name}",
                {method: Http(200, stray + answer, "text/event-stream")},
                ("http",),
                warns=("stray-event",),
            )
    for name, nothing in {"empty data": "data:\n\n", "a comment": ": ping\n\n", "only an id": "id: 1\n\n"}.items():
        yield Row(
            f"before the answer an event has {name}",
            {"tools/call": Http(200, nothing + answer, "text/event-stream")},
            ("http",),
        )
    for name, wrong in {
        "half of a message": 'data: {"jsonrpc":"2.0","id":@ID@,"res\n\n',
        "an error that is a text": 'data: {"error":"boom"}\n\n',
    }.items():
        yield Row(
            f"before the answer an event has {name}: the call fails",
            {"tools/call": Http(200, wrong + answer, "text/event-stream")},
            ("http",),
            "InvalidResponse",
        )


ROWS: tuple[Row, ...] = (
    *correlation(),
    *printing(),
    *ending(),
    *openings(),
    *stateless(),
    *asking(),
    *connecting(),
    *http(),
    *streams(),
    *lists(),
    *forms(),
    *sessions(),
    *events(),
)
