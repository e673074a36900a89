"""Several messages on one connection of lines: lifecycles, ids in flight, cancellation, elicitation, subscriptions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.hostile.cases import (
    ABSENT,
    CLAIM,
    INVALID_PARAMS,
    INVALID_REQUEST,
    META,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REVISION_2025,
    SILENCE,
    UNSUPPORTED_VERSION,
    Answer,
    Expect,
    Flow,
    Json,
    error,
    label,
    replaced,
    request,
    result,
    table,
    unique,
)
from tests.hostile.messages import METHODS

PARAMS: Json = {
    "protocolVersion": REVISION_2025,
    "capabilities": {},
    "clientInfo": {"name": "hostile", "version": "1"},
}
ASKING: Json = {**PARAMS, "capabilities": {"elicitation": {"form": {}}}}


def call(identity: Any, method: str, params: Any = ABSENT) -> Json:
    """Return a request."""
    message: Json = {"jsonrpc": "2.0", "id": identity, "method": method}
    return message if params is ABSENT else {**message, "params": params}


def tell(method: str, params: Any = ABSENT) -> Json:
    """Return a notification."""
    message = call(0, method, params)
    del message["id"]
    return message


def tool(identity: Any, name: str, **arguments: Any) -> Json:
    """Return a call of a tool."""
    return call(identity, "tools/call", {"name": name, "arguments": arguments})


def modern(identity: Any, method: str, params: Json, **capabilities: Any) -> Json:
    """Return a stateless request."""
    meta = {**CLAIM, f"{META}clientCapabilities": capabilities, **params.get("_meta", {})}
    return call(identity, method, {**params, "_meta": meta})


INITIALIZE = call("hello", "initialize", PARAMS)
INITIALIZED = tell("notifications/initialized")
HELLO = Answer("hello", result())
#: An open session, also one whose client answers elicitations.
OPEN: tuple[Any, ...] = (INITIALIZE, HELLO, INITIALIZED)
OPEN_ASKING: tuple[Any, ...] = (call("hello", "initialize", ASKING), HELLO, INITIALIZED)
PING = call("after", "ping")
ALIVE = Answer("after", result())


# ---------------------------------------------------------------- the lifecycle of the handshake era


def before_initialize() -> Iterator[Flow]:
    """Nothing but `initialize` and `ping` is served before the handshake ("Lifecycle")."""
    for method, (params, needs) in METHODS["2025"].items():
        expect = Expect("any") if method == "ping" else error(INVALID_REQUEST, INVALID_PARAMS)
        yield Flow(f"{method} before initialize", (call(1, method, params), Answer(1, expect), *OPEN), needs)
    for method in ("nope", "initialize/x"):
        expect = error(INVALID_REQUEST, METHOD_NOT_FOUND)
        yield Flow(f"unknown method {method} before initialize", (call(1, method, {}), Answer(1, expect), *OPEN))
    for method in ("notifications/initialized", "notifications/cancelled", "notifications/nope"):
        yield Flow(f"{method} before initialize", (tell(method, {}), *OPEN, PING, ALIVE))
    yield Flow("a response before initialize", ({"jsonrpc": "2.0", "id": 1, "result": {}}, *OPEN, PING, ALIVE))
    yield Flow("nonsense before initialize", (b"nonsense", Answer(None, error(PARSE_ERROR)), *OPEN, PING, ALIVE))
    yield Flow("an empty line before initialize", (b"", *OPEN, PING, ALIVE))


def wrong_initialize() -> Iterator[Flow]:
    """`initialize` needs revision, capabilities and client info; after a refusal another one is possible."""
    wrong: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("protocolVersion", (ABSENT, None, 5, True, [], {})),
        ("capabilities", (ABSENT, None, 5, "x", [], True)),
        ("clientInfo", (ABSENT, None, 5, "x", [], True, {})),
        ("clientInfo.name", (ABSENT, None, 5, [], {})),
        ("clientInfo.version", (ABSENT, None, 5, [], {})),
        ("capabilities.roots", (5, "x", [])),
        ("capabilities.sampling", (5, "x", [])),
        ("capabilities.elicitation", (5, "x", [])),
        ("capabilities.experimental", (5, "x", [])),
    )
    for path, values in wrong:
        for value in values:
            steps = (call(1, "initialize", replaced(PARAMS, path, value)), Answer(1, error(INVALID_PARAMS)), *OPEN)
            yield Flow(f"initialize with {path} {label(value)}", steps)
    for params in table(None, 5, "x", [], True, ABSENT):
        expect = error(INVALID_PARAMS, INVALID_REQUEST)
        yield Flow(f"initialize with params {label(params)}", (call(1, "initialize", params), Answer(1, expect), *OPEN))


def offered_revisions() -> Iterator[Flow]:
    """A revision that the server does not know is answered with one that it knows ("Version negotiation")."""
    known = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
    for revision in known:
        expect = result(partial(_chose, (revision,)))
        steps = (
            call(1, "initialize", {**PARAMS, "protocolVersion": revision}),
            Answer(1, expect),
            INITIALIZED,
            PING,
            ALIVE,
        )
        yield Flow(f"revision {revision}", steps)
    for revision in (
        *("", " ", "1", "1.0", "2.0", "latest", "DRAFT", "2025-06-18 ", " 2025-06-18", "2025-6-18", "2025/06/18"),
        *("2025-13-45", "0000-00-00", "9999-99-99", "2024-10-07", "2025-06-18\n", "2025-06-18\u0000", "☃", "x" * 5000),
        *("2026-07-28", "-1", "null", "2025-06-18T00:00:00Z"),
    ):
        expect = result(partial(_chose, known))
        steps = (
            call(1, "initialize", {**PARAMS, "protocolVersion": revision}),
            Answer(1, expect),
            INITIALIZED,
            PING,
            ALIVE,
        )
        yield Flow(f"unknown revision {label(revision)}", steps)


def _chose(revisions: tuple[str, ...], answer: Json) -> bool:
    return answer["protocolVersion"] in revisions


def second_initialize() -> Iterator[Flow]:
    """A second handshake agrees anew, or over HTTP opens another session."""
    again = call(2, "initialize", PARAMS)
    yield Flow("initialize twice", (*OPEN, again, Answer(2, result()), INITIALIZED, PING, ALIVE))
    steps: tuple[Any, ...] = (INITIALIZE, HELLO, again, Answer(2, result()), INITIALIZED, PING, ALIVE)
    yield Flow("initialize twice before initialized", steps)
    yield Flow("initialized twice", (*OPEN, INITIALIZED, INITIALIZED, PING, ALIVE))
    yield Flow("no initialized", (INITIALIZE, HELLO, PING, ALIVE))
    yield Flow(
        "a tool without initialized", (INITIALIZE, HELLO, tool(1, "add", a=1, b=2), Answer(1, Expect("any"))), ("add",)
    )
    steps = (INITIALIZE, tool(1, "add", a=1, b=2), HELLO, Answer(1, Expect("any")), INITIALIZED, PING, ALIVE)
    yield Flow("a tool without waiting for initialize", steps, ("add",))


def mixed_eras() -> Iterator[Flow]:
    """A claim decides the era of a request on a line, before and after a handshake."""
    discover = modern(1, "server/discover", {})
    yield Flow("discover, then initialize", (discover, Answer(1, result()), *OPEN, PING, ALIVE))
    lists = modern(1, "tools/list", {})
    yield Flow("a stateless request before initialize", (lists, Answer(1, result()), *OPEN, PING, ALIVE), ("tools",))
    steps = (*OPEN, lists, Answer(1, Expect("any")), PING, ALIVE)
    yield Flow("a stateless request in a session", steps, ("tools",))
    unknown = {"_meta": {f"{META}protocolVersion": "2031-01-01"}}
    steps = (modern(1, "tools/list", unknown), Answer(1, error(UNSUPPORTED_VERSION)), *OPEN, PING, ALIVE)
    yield Flow("an unknown claim before initialize", steps, ("tools",))


def batches() -> Iterator[Flow]:
    """Batches exist in 2025-03-26 alone."""
    hello = call("hello", "initialize", {**PARAMS, "protocolVersion": "2025-03-26"})
    opened: tuple[Any, ...] = (hello, HELLO, INITIALIZED)
    ping = [call(1, "ping"), call(2, "ping")]
    both = (Answer(1, result()), Answer(2, result()))
    yield Flow("a batch of two", (*opened, _bytes(ping), *both, PING, ALIVE))
    yield Flow("a batch with a notification", (*opened, _bytes([*ping, INITIALIZED]), *both, PING, ALIVE))
    yield Flow(
        "a batch with junk", (*opened, _bytes([*ping, 5]), *both, Answer(None, error(INVALID_REQUEST)), PING, ALIVE)
    )
    yield Flow("a batch of junk", (*opened, b"[1]", Answer(None, error(INVALID_REQUEST)), PING, ALIVE))
    yield Flow("an empty batch", (*opened, b"[]", Answer(None, error(INVALID_REQUEST)), PING, ALIVE))
    yield Flow("a batch of notifications", (*opened, _bytes([INITIALIZED, INITIALIZED]), PING, ALIVE))
    many = _bytes([call(number, "ping") for number in range(101)])
    yield Flow("a batch that is too long", (*opened, many, Answer(None, error(INVALID_REQUEST)), PING, ALIVE))
    steps = (*opened, _bytes([call(1, "initialize", PARAMS)]), Answer(1, error(INVALID_REQUEST)), PING, ALIVE)
    yield Flow("initialize in a batch", steps)


def _bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


# ---------------------------------------------------------------- requests in flight


def ids_in_flight() -> Iterator[Flow]:
    """Two requests of one id can't be told apart, so the second one is refused; afterwards the id is free."""
    needs = ("wait", "add")
    second = (tool(1, "wait"), tool(1, "add", a=1, b=2), Answer(1, error(INVALID_REQUEST)))
    yield Flow("a repeated id", (*OPEN, *second, PING, ALIVE), needs)
    steps = (*OPEN, tool(1, "add", a=1, b=2), Answer(1, result()), PING, ALIVE)
    yield Flow("an id", steps, needs)
    alike = (tool("1", "add", a=1, b=2), tool(1, "add", a=2, b=2), Answer("1", _says("3")), Answer(1, _says("4")))
    yield Flow("ids that look alike", (*OPEN, *alike, PING, ALIVE), needs)
    again = (
        tool(1, "add", a=1, b=2),
        Answer(1, Expect("first")),
        tool(1, "add", a=1, b=2),
        Answer(1, Expect("second")),
    )
    yield Flow("an id that is used again", (*OPEN, *again, PING, ALIVE), needs)
    many = tuple(tool(number, "add", a=number, b=1) for number in range(200))
    answers = tuple(Answer(number, _says(str(number + 1))) for number in range(200))
    yield Flow("200 calls at once", (*OPEN, *many, *answers, PING, ALIVE), needs)


def _says(text: str) -> Expect:
    return result(lambda found: found["content"][0]["text"] == text)


def cancellation() -> Iterator[Flow]:
    """A cancelled request is not answered, and nothing else is cancelled with it ("Cancellation")."""
    needs = ("wait", "add")

    def cancel(identity: Any, **more: Any) -> Json:
        return tell("notifications/cancelled", {"requestId": identity, **more})

    none = Answer("call", SILENCE)
    yield Flow("cancelled", (*OPEN, tool("call", "wait"), cancel("call"), PING, ALIVE, none), needs)
    steps = (*OPEN, tool("call", "wait"), cancel("call", reason="x" * 10_000), PING, ALIVE, none)
    yield Flow("cancelled with a long reason", steps, needs)
    steps = (*OPEN, tool("call", "wait"), cancel("call"), cancel("call"), PING, ALIVE, none)
    yield Flow("cancelled twice", steps, needs)
    steps = (*OPEN, cancel("call"), tool("call", "add", a=1, b=2), Answer("call", result()), PING, ALIVE)
    yield Flow("cancelled too early", steps, needs)
    steps = (*OPEN, tool("call", "add", a=1, b=2), Answer("call", result()), cancel("call"), PING, ALIVE)
    yield Flow("cancelled too late", steps, needs)
    for identity in table(1, "1", 1.0, True, None, [], {}):
        wrong = "1" if identity == 1 and type(identity) is int else 1
        steps = (*OPEN, tool(wrong, "wait"), cancel(identity), PING, ALIVE, cancel(wrong), Answer(wrong, SILENCE))
        if key(identity) != key(wrong):
            yield Flow(f"cancelled {key(wrong)} as {key(identity)}", steps, needs)
    yield Flow("initialize is not cancelled", (INITIALIZE, cancel("hello"), HELLO, INITIALIZED, PING, ALIVE), needs)
    calls = tuple(tool(number, "wait") for number in range(100))
    ends = tuple(cancel(number) for number in range(100))
    yield Flow("100 calls that are cancelled", (*OPEN, *calls, *ends, PING, ALIVE, Answer(50, SILENCE)), needs)
    steps = (*OPEN, tool("call", "add", a=1, b=2), None, Answer("call", result()))
    yield Flow("the input ends during a call", steps, needs, alive=False)


def key(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(value)


# ---------------------------------------------------------------- questions of the server


class Reply:
    """A step: answer the next request of the server with these members."""

    def __init__(self, times: int = 1, /, **members: Any) -> None:
        self.members = members
        self.times = times

    def __repr__(self) -> str:
        return f"Reply({self.times}, {self.members})"


def elicitations() -> Iterator[Flow]:
    """What a client answers to an elicitation is checked like all input."""
    needs = ("ask",)
    asked = tool("call", "ask")
    good = {"action": "accept", "content": {"value": 7}}
    yield Flow(
        "an answer", (*OPEN_ASKING, asked, Reply(result=good), Answer("call", _says("row 7")), PING, ALIVE), needs
    )
    failed = Expect("refused", (INVALID_PARAMS, INVALID_REQUEST, -32603))
    for answer in table(
        *(None, 5, "x", [], {}, {"action": "accept"}, {"action": "accept", "content": None}),
        *({"action": "accept", "content": {"value": wrong}} for wrong in table("7", 1.5, None, [], {}, True)),
        *({"action": "accept", "content": wrong} for wrong in table(5, "x", [], {}, {"other": 7})),
        *({"action": wrong, "content": {"value": 7}} for wrong in ("", "ACCEPT", None, 5, "maybe")),
        {"action": "decline"},
        {"action": "cancel"},
        {"action": "decline", "content": {"value": 7}},
    ):
        steps = (*OPEN_ASKING, asked, Reply(result=answer), Answer("call", failed), PING, ALIVE)
        yield Flow(f"an elicitation answered with {json.dumps(answer)}", steps, needs)
    for wrong in (
        {"code": -32603, "message": "no"},
        {"code": 1, "message": ""},
        {"code": "1", "message": "x"},
        {"message": "x"},
        {},
        None,
        "no",
    ):
        steps = (*OPEN_ASKING, asked, Reply(error=wrong), Answer("call", failed), PING, ALIVE)
        yield Flow(f"an elicitation answered with the error {json.dumps(wrong)}", steps, needs)
    steps = (
        *OPEN_ASKING,
        asked,
        Reply(result=good, error={"code": 1, "message": "x"}),
        Answer("call", failed),
        PING,
        ALIVE,
    )
    yield Flow("an elicitation answered with result and error", steps, needs)
    yield Flow(
        "an elicitation answered with nothing",
        (*OPEN_ASKING, asked, Reply(), Answer("call", failed), PING, ALIVE),
        needs,
    )
    steps = (*OPEN_ASKING, asked, Reply(2, result=good), Answer("call", _says("row 7")), PING, ALIVE)
    yield Flow("an elicitation answered twice", steps, needs)
    yield Flow("an elicitation that was not declared", (*OPEN, asked, Answer("call", failed), PING, ALIVE), needs)
    steps = (
        *OPEN_ASKING,
        asked,
        tell("notifications/cancelled", {"requestId": "call"}),
        PING,
        ALIVE,
        Answer("call", SILENCE),
    )
    yield Flow("a call that is cancelled while it asks", steps, needs)


# ---------------------------------------------------------------- subscriptions of the stateless era


def listens() -> Iterator[Flow]:
    """The filter of `subscriptions/listen` has booleans and a list of URIs ("Subscriptions")."""
    acknowledged = Answer("listen", SILENCE)
    for name, value in (
        *(("toolsListChanged", value) for value in table(5, "x", [], {})),
        *(("promptsListChanged", value) for value in (5, "x")),
        *(("resourcesListChanged", value) for value in (5, "x")),
        *(("resourceSubscriptions", value) for value in table(5, "x", {}, True, [5], [None], [[]])),
    ):
        listen = modern("listen", "subscriptions/listen", {"notifications": {name: value}})
        yield Flow(f"listen with {name} {key(value)}", (listen, Answer("listen", error(INVALID_PARAMS))), ("listen",))
    for value in table(ABSENT, None, 5, "x", [], True):
        params = replaced({"notifications": {}}, "notifications", value)
        listen = modern("listen", "subscriptions/listen", params)
        expect = error(INVALID_PARAMS)
        yield Flow(f"listen with notifications {label(value)}", (listen, Answer("listen", expect)), ("listen",))
    for value in (
        {"toolsListChanged": True},
        {"toolsListChanged": False},
        {"unknown": 5},
        {"resourceSubscriptions": []},
    ):
        listen = modern("listen", "subscriptions/listen", {"notifications": value})
        end = tell("notifications/cancelled", {"requestId": "listen"})
        alive = modern("after", "server/discover", {})
        steps = (listen, alive, ALIVE, acknowledged, end)
        yield Flow(f"listen with {key(value)}", steps, ("listen",))


# ---------------------------------------------------------------- lines


def lines() -> Iterator[Flow]:
    """Lines that are empty, blank, cut or very long."""
    for name, text in (("empty", b""), ("blank", b"   "), ("a carriage return", b"\r"), ("a tab", b"\t")):
        yield Flow(f"a line that is {name}", (*OPEN, text, PING, ALIVE))
    for text in (
        b"x" * 100,
        b"\x00" * 1000,
        b"\xff" * 1000,
        b"GET / HTTP/1.1",
        b"Content-Length: 5",
        b"\x1b[2J",
        b"PRI * HTTP/2.0",
    ):
        yield Flow(f"a line {text[:20]!r} of {len(text)}", (*OPEN, text, Answer(None, error(PARSE_ERROR)), PING, ALIVE))
    ping = json.dumps(PING).encode()
    yield Flow("two messages without a line end between them", (*OPEN, ping + ping, Answer(None, error(PARSE_ERROR))))
    yield Flow(
        "a message over two lines", (*OPEN, ping.replace(b", ", b",\n", 1), Answer(None, Expect("many")), PING, ALIVE)
    )
    long = request("tools/list", {"x": "a" * (3 * 1024 * 1024)}).replace(b"@ID@", b"long")
    yield Flow("a line over the limit", (*OPEN, long, Answer("long", error(PARSE_ERROR, INVALID_REQUEST)), PING, ALIVE))
    flood = tuple(b"nonsense" for _ in range(500))
    yield Flow("500 lines of nonsense", (*OPEN, *flood, Answer(None, Expect("many")), PING, ALIVE))


def flows() -> list[Flow]:
    """Return all flows."""
    tables = (
        *(before_initialize, wrong_initialize, offered_revisions, second_initialize, mixed_eras, batches),
        *(ids_in_flight, cancellation, elicitations, listens, lines),
    )
    return unique(flow for make in tables for flow in make())
