"""Single messages to a server in an open session: envelopes, ids, types of every member, unicode, numbers, claims."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.hostile.cases import (
    ABSENT,
    BOTH,
    CLAIM,
    HTTP,
    INVALID,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LENIENT,
    LINES,
    MALFORMED,
    META,
    METHOD_NOT_FOUND,
    NOT_FOUND,
    PARSE_ERROR,
    REFUSED,
    REVISION_2025,
    SAME,
    SILENCE,
    UNPARSED,
    UNSUPPORTED_VERSION,
    Case,
    Era,
    Expect,
    Json,
    error,
    label,
    notification,
    replaced,
    request,
    result,
    table,
    unique,
)

ERAS: tuple[Era, ...] = ("2025", "2026")

#: A valid request of each method: params, and what the target must have.
SHARED: dict[str, tuple[Json, tuple[str, ...]]] = {
    "tools/list": ({}, ("tools",)),
    "tools/call": ({"name": "add", "arguments": {"a": 1, "b": 2}}, ("add",)),
    "prompts/list": ({}, ("prompts",)),
    "prompts/get": ({"name": "greet", "arguments": {"who": "Ada"}}, ("greet",)),
    "resources/list": ({}, ("resources",)),
    "resources/templates/list": ({}, ("resources",)),
    "resources/read": ({"uri": "test://text"}, ("test://text",)),
    "completion/complete": (
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "A"}},
        ("greet", "completions"),
    ),
}
ONLY_2025: dict[str, tuple[Json, tuple[str, ...]]] = {
    "ping": ({}, ()),
    "logging/setLevel": ({"level": "debug"}, ("logging",)),
    "resources/subscribe": ({"uri": "test://text"}, ("test://text", "subscribe")),
    "resources/unsubscribe": ({"uri": "test://text"}, ("test://text", "subscribe")),
}
ONLY_2026: dict[str, tuple[Json, tuple[str, ...]]] = {"server/discover": ({}, ())}
METHODS: dict[Era, dict[str, tuple[Json, tuple[str, ...]]]] = {
    "2025": {**SHARED, **ONLY_2025},
    "2026": {**SHARED, **ONLY_2026},
}

NOT_OBJECTS: tuple[Any, ...] = (None, True, 5, "text", [], [{}])
NOT_STRINGS: tuple[Any, ...] = (ABSENT, None, 5, True, [], {"a": 1})


def methods() -> Iterator[tuple[Era, str, Json, tuple[str, ...]]]:
    """Yield era, method, valid params and needs."""
    for era in ERAS:
        for method, (params, needs) in METHODS[era].items():
            yield era, method, params, needs


# ---------------------------------------------------------------- types of members


def valid() -> Iterator[Case]:
    """Every method answers a valid request: otherwise the other cases would say nothing."""
    for era, method, params, needs in methods():
        yield Case(f"{era} {method} valid", era, request(method, params, era), result(), BOTH, needs)


def wrong_params() -> Iterator[Case]:
    """The params of every request are an object (JSON-RPC 2.0, 4.2; "Requests" of the specification)."""
    for era, method, _, needs in methods():
        for value in NOT_OBJECTS:
            name = f"{era} {method} params {label(value)}"
            yield Case(name, era, request(method, value, era), INVALID, BOTH, needs)


#: Members of params: the method, the path, wrong values.
MEMBERS: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("tools/call", "name", NOT_STRINGS),
    ("tools/call", "arguments", ("text", 5, [], True)),
    ("prompts/get", "name", NOT_STRINGS),
    ("prompts/get", "arguments", ("text", 5, [], True)),
    ("prompts/get", "arguments.who", (5, True, [], {"a": 1}, None)),
    ("resources/read", "uri", NOT_STRINGS),
    ("resources/subscribe", "uri", NOT_STRINGS),
    ("resources/unsubscribe", "uri", NOT_STRINGS),
    ("completion/complete", "ref", (ABSENT, None, "greet", 5, [], {})),
    ("completion/complete", "ref.type", (ABSENT, None, "ref/tool", "", 5)),
    ("completion/complete", "ref.name", NOT_STRINGS),
    ("completion/complete", "argument", (ABSENT, None, "who", 5, [], {})),
    ("completion/complete", "argument.name", NOT_STRINGS),
    ("completion/complete", "argument.value", NOT_STRINGS),
    ("completion/complete", "context", ("text", 5, [], True)),
    ("logging/setLevel", "level", (*NOT_STRINGS, "", "loud", "DEBUG", "debug ", "warn")),
    ("tools/list", "cursor", (5, True, [], {})),
    ("prompts/list", "cursor", (5, True, [], {})),
    ("resources/list", "cursor", (5, True, [], {})),
    ("resources/templates/list", "cursor", (5, True, [], {})),
)


def wrong_members() -> Iterator[Case]:
    """Members of params have the types of the schema."""
    for method, path, values in MEMBERS:
        for era in ERAS:
            if method in METHODS[era]:
                params, needs = METHODS[era][method]
                for value in values:
                    text = request(method, replaced(params, path, value), era)
                    yield Case(f"{era} {method} {path} {label(value)}", era, text, INVALID, BOTH, needs)


def wrong_context() -> Iterator[Case]:
    """The context of a completion has arguments that are strings (since 2025-06-18)."""
    params, needs = SHARED["completion/complete"]
    for era in ERAS:
        for value in table("text", 5, [], {"a": 5}, {"a": None}, {"a": ["x"]}):
            text = request("completion/complete", {**params, "context": {"arguments": value}}, era)
            yield Case(f"{era} completion/complete context.arguments {label(value)}", era, text, INVALID, BOTH, needs)


def wrong_meta() -> Iterator[Case]:
    """`_meta` is an object ("_meta" of the specification)."""
    for era, method, params, needs in methods():
        for value in table(5, "text", [], True):
            text = request(method, {**params, "_meta": value}, era)
            # Where it does not carry the claim, it need not be looked at; without the claim the other era does.
            expect = INVALID if era == "2026" else LENIENT
            if method in ONLY_2026:
                expect = error(INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND)
            yield Case(f"{era} {method} _meta {label(value)}", era, text, expect, BOTH, needs)


def progress_tokens() -> Iterator[Case]:
    """A progress token is a string or an integer ("Progress")."""
    params, needs = SHARED["tools/call"]
    for era in ERAS:
        for value in table(True, 1.5, [], {}, ["a"]):
            text = request("tools/call", {**params, "_meta": {"progressToken": value}}, era)
            yield Case(f"{era} progressToken {label(value)}", era, text, LENIENT, BOTH, needs)
        for value in table("", "a" * 1000, 0, -1, 2**53, "☃"):
            text = request("tools/call", {**params, "_meta": {"progressToken": value}}, era)
            yield Case(f"{era} progressToken {label(value)} is valid", era, text, result(), BOTH, needs)


def cursors() -> Iterator[Case]:
    """A cursor that the server did not give is invalid ("Pagination")."""
    for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
        for era in ERAS:
            for cursor in ("nonsense", "AAAA", "!", "a" * 5000, "\u0000", "☃", "-1", "{}"):
                text = request(method, {"cursor": cursor}, era)
                needs = METHODS[era][method][1]
                yield Case(f"{era} {method} cursor {label(cursor)}", era, text, error(INVALID_PARAMS), BOTH, needs)


def unknown_names() -> Iterator[Case]:
    """Unknown tools, prompts and resources are an error of the protocol."""
    names = ("nope", "ADD", "add ", " add", "add\u0000", "ad", "add/../add", "ａｄｄ", "*", "a" * 2000)
    for era in ERAS:
        for name in names:
            text = request("tools/call", {"name": name, "arguments": {}}, era)
            yield Case(f"{era} tools/call unknown {label(name)}", era, text, error(INVALID_PARAMS), BOTH, ("tools",))
            text = request("prompts/get", {"name": name}, era)
            yield Case(f"{era} prompts/get unknown {label(name)}", era, text, error(INVALID_PARAMS), BOTH, ("prompts",))
    missing = {"2025": error(NOT_FOUND, INVALID_PARAMS), "2026": error(INVALID_PARAMS)}
    uris = (
        *(
            "test://none",
            "TEST://text",
            "test:text",
            "test://text/",
            "test://text?x=1",
            "test://text#x",
            "test://te%78t",
        ),
        *("file:///etc/passwd", "test://item/", "test://item/1/2", "test://item/../text", "", " test://text", "no uri"),
    )
    for era in ERAS:
        for uri in uris:
            text = request("resources/read", {"uri": uri}, era)
            yield Case(f"{era} resources/read unknown {label(uri)}", era, text, missing[era], BOTH, ("test://text",))


# ---------------------------------------------------------------- the envelope


def versions_of_json_rpc() -> Iterator[Case]:
    """`jsonrpc` is exactly "2.0" (JSON-RPC 2.0, 4)."""
    for era in ERAS:
        for value in table(ABSENT, "1.0", "2", "2.00", " 2.0", "", 2.0, 2, None, True, ["2.0"], {}):
            text = request("tools/list", {}, era, jsonrpc=value)
            yield Case(f"{era} jsonrpc {label(value)}", era, text, error(INVALID_REQUEST), BOTH, ("tools",))


def wrong_ids() -> Iterator[Case]:
    """An id is a string or an integer and not null ("Requests"); other ids can't be answered."""
    for era in ERAS:
        for value in (None, True, False, 1.5, [], {}, [1], {"a": 1}):
            text = request("tools/list", {}, era, id=value)
            yield Case(f"{era} id {label(value)}", era, text, MALFORMED, BOTH, ("tools",))


def valid_ids() -> Iterator[Case]:
    """An answer has the id of its request, in its type."""
    values = ("", "0", "a b", "☃", "\u0000", "😀", '"', "a" * 1000, 0, -1, 7, 2**31, 2**53 - 1, -(2**53), 2**63 - 1)
    for era in ERAS:
        for value in values:
            text = request("tools/list", {}, era, id=value)
            expect = Expect("result", id=value)
            yield Case(f"{era} id {label(value)} is valid", era, text, expect, BOTH, ("tools",))


def wrong_methods() -> Iterator[Case]:
    """A method is a string; unknown ones don't exist."""
    for era in ERAS:
        for value in table(ABSENT, None, 5, True, [], {}):
            text = request("x", {}, era, method=value)
            over = BOTH if value is not ABSENT else LINES
            yield Case(f"{era} method {label(value)}", era, text, error(INVALID_REQUEST), over)
        for method in (
            *(
                "nope",
                "",
                " ",
                "/",
                "tools",
                "tools/",
                "/list",
                "tools/list/",
                "TOOLS/LIST",
                "tools/List",
                "tools.list",
            ),
            *(
                "tools//list",
                "tools/list?",
                "tools/call/add",
                "rpc.discover",
                "system.listMethods",
                "__init__",
                "ｔools/list",
            ),
            *("prompts/call", "resources/write", "sampling/createMessage", "elicitation/create", "roots/list"),
            *("tasks/list", "tasks/get", "constructor", "a" * 2000),
        ):
            text = request(method, {}, era)
            over = BOTH if method.isascii() and method.strip() else LINES
            yield Case(f"{era} method {label(method)} is unknown", era, text, error(METHOD_NOT_FOUND), over)
        for method in ("tools/list ", " tools/list", "tools/list\n", "tools\u0000/list", "tools/lis\u0074\u200b"):
            text = request(method, {}, era)
            yield Case(f"{era} method {label(method)} is unknown", era, text, error(METHOD_NOT_FOUND), LINES)


def other_shapes() -> Iterator[Case]:
    """What is JSON and not a message: null, numbers, messages that are several things at once."""
    texts = ("null", "true", "5", "1.5", '"text"', "{}", '{"jsonrpc":"2.0"}', "[[]]", "[5]", "[null]", '["a"]')
    for era in ERAS:
        for text in texts:
            yield Case(f"{era} message {text}", era, text.encode(), MALFORMED)
        both = request("tools/list", {}, era, result={}, error={"code": 1, "message": "x"})
        yield Case(f"{era} request with result and error", era, both, Expect("any"), LINES, ("tools",))
    for text in ('{"jsonrpc":"2.0","id":"@ID@"}', '{"jsonrpc":"2.0","id":null}', '{"jsonrpc":"2.0","params":{}}'):
        expect = error(INVALID_REQUEST, id=SAME if "@ID@" in text else None)
        yield Case(f"2025 message {text}", "2025", text.encode(), expect)
    yield Case("2025 empty batch", "2025", b"[]", MALFORMED)
    for method in ("ping", "tools/list"):
        batch = b"[" + request(method) + b"]"
        yield Case(
            f"2025 batch of {method} in a revision without batches", "2025", batch, error(INVALID_REQUEST, id=None)
        )
    batch = b"[" + request("tools/list", {}, "2026") + b"]"
    yield Case("2026 batch of a stateless request", "2026", batch, error(INVALID_REQUEST, id=None))


#: Bytes that are not JSON (RFC 8259).
NOT_JSON: tuple[bytes, ...] = (
    *(b"{", b"}", b"[", b"]", b"nonsense", b"'text'", b'"text', b'{"a"}', b'{"a":}', b'{"a":1,}', b"[1,]", b"{,}"),
    *(b'{"a" 1}', b'{"a":1 "b":2}', b"{a:1}", b"{'a':1}", b"NaN", b"Infinity", b"-Infinity", b"undefined", b"None"),
    *(b"True", b"nul", b"01", b"+1", b".5", b"1.", b"1e", b"1e+", b"0x10", b"1_000", b"- 1", b"/* a */ {}", b"// a"),
    *(b"{} {}", b"{}{}", b"{},", b"[] []", b'"\t"', b'"\x01"', b'"\\x41"', b'"\\u12"', b'"\\uZZZZ"', b'"\\"'),
    *(b"\xef\xbb\xbf{}", b"\xff\xfe{\x00}\x00", b"\x00", b"\x7f", b"{\x00}", b"\xff", b"\x80", b'"\xc0\x80"'),
    *(b'"\xed\xa0\x80"', b'"\xf5\x80\x80\x80"', b'"\xc3"', b'"\xe2\x82"', b'"\xf0\x9f\x98"', b'"a\xffb"'),
)


def not_json() -> Iterator[Case]:
    """What is not JSON is a parse error, and the connection goes on."""
    for text in NOT_JSON:
        # What begins as a list or a number is no message, whatever follows.
        expect = UNPARSED if text[:1] not in b"[0123456789" else error(PARSE_ERROR, INVALID_REQUEST, id=None)
        yield Case(f"2025 not JSON {text!r}", "2025", text, expect)
    for place, text in enumerate(
        (
            b'{"jsonrpc":"2.0","id":"@ID@","method":"ping"',
            b'{"jsonrpc":"2.0","id":"@ID@","method":"ping",}',
            b'{"jsonrpc":"2.0","id":"@ID@","method":"ping"}}',
            b'{"jsonrpc":"2.0","id":"@ID@","method":"ping"} x',
            b'{"jsonrpc":"2.0","id":"@ID@","method":"pi\x02ng"}',
            b'{"jsonrpc":"2.0","id":"@ID@","method":"ping","params":{"a":NaN}}',
            b'{"jsonrpc":"2.0","id":"@ID@","method":"ping","params":{"a":"\xff"}}',
            b'{"jsonrpc":"2.0","id":"@ID@","method":"ping","params":{"a":[1,2}}',
        )
    ):
        yield Case(f"2025 broken request {place}", "2025", text, error(PARSE_ERROR))
    for depth in (1_000, 100_000):
        for opening in (b"[", b'{"a":'):
            yield Case(
                f"2025 {depth} × {opening!r}", "2025", opening * depth, error(PARSE_ERROR, INVALID_REQUEST, id=None)
            )


def whitespace() -> Iterator[Case]:
    """Whitespace around and in a message means nothing (RFC 8259, 2)."""
    text = request("tools/list", {}, "2025")
    for name, changed in (
        ("spaces around", b"   " + text + b"   "),
        ("tabs around", b"\t" + text + b"\t"),
        ("a carriage return after", text + b"\r"),
        ("spaces within", text.replace(b'"method":', b'"method"  \t :  ')),
    ):
        yield Case(f"2025 {name}", "2025", changed, result(), BOTH, ("tools",))
    for name, escaped in (("method", b"tools\\/list"), ("method in \\u", b"\\u0074ools/list")):
        changed = text.replace(b"tools/list", escaped)
        yield Case(f"2025 an escaped {name}", "2025", changed, result(), BOTH, ("tools",))


def repeated_members() -> Iterator[Case]:
    """Readers disagree about repeated members, so a message with one is refused."""
    for era in ERAS:
        text = request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": {"x": 1}}, era)
        needs = ("add",)
        for member, again in (
            ("jsonrpc", b'"jsonrpc": "2.0", '),
            ("method", b'"method": "ping", '),
            ("params", b'"params": {}, '),
        ):
            changed = text.replace(b"{", b"{" + again, 1)
            yield Case(f"{era} {member} twice", era, changed, error(INVALID_REQUEST), BOTH, needs)
        changed = text.replace(b"{", b'{"id": 99, ', 1)
        yield Case(f"{era} id twice", era, changed, error(INVALID_REQUEST, id=None), BOTH, needs)
        for member, again in (
            ("name", b'"name": "echo", '),
            ("arguments", b'"arguments": {}, '),
            ("_meta", b'"_meta": {}, '),
        ):
            changed = text.replace(b'"params": {', b'"params": {' + again)
            yield Case(f"{era} params.{member} twice", era, changed, error(INVALID_REQUEST), BOTH, needs)
        changed = text.replace(b'"_meta": {', b'"_meta": {"x": 0, ')
        yield Case(f"{era} _meta.x twice", era, changed, error(INVALID_REQUEST), BOTH, needs)
        changed = text.replace(b'"arguments": {', b'"arguments": {"a": 5, ')
        yield Case(f"{era} arguments.a twice", era, changed, Expect("any"), BOTH, needs)
        uri = request("resources/read", {"uri": "test://text"}, era)
        changed = uri.replace(b'"params": {', b'"params": {"uri": "test://none", ')
        yield Case(f"{era} params.uri twice", era, changed, error(INVALID_REQUEST), BOTH, ("test://text",))
    text = request("tools/list", {}, "2026")
    key = json.dumps(f"{META}protocolVersion").encode()
    changed = text.replace(b'"_meta": {', b'"_meta": {' + key + b': "2025-11-25", ')
    yield Case("2026 the claimed revision twice", "2026", changed, error(INVALID_REQUEST), BOTH, ("tools",))


def unknown_members() -> Iterator[Case]:
    """Members that the specification does not know are ignored ("Requests": open objects)."""
    for era, method, params, needs in methods():
        text = request(method, {**params, "x-unknown": {"a": [1]}}, era, extra=[1])
        yield Case(f"{era} {method} unknown members", era, text, result(), BOTH, needs)


# ---------------------------------------------------------------- arguments


def arguments_of_a_tool() -> Iterator[Case]:
    """Arguments are checked against the input schema and are not coerced."""
    wrong: tuple[Json, ...] = (
        *({}, {"a": 1}, {"b": 1}, {"a": "1", "b": 2}, {"a": 1.5, "b": 2}, {"a": True, "b": 2}, {"a": None, "b": 2}),
        *({"a": [], "b": 2}, {"a": {}, "b": 2}, {"a": "", "b": 2}, {"A": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}),
        *({"a": 1, "b": 2, "__class__": 1}, {"a": 1, "b": 2, "self": 1}, {"a": 1, "b": 2, "": 1}, {"a ": 1, "b": 2}),
    )
    for era in ERAS:
        for value in wrong:
            text = request("tools/call", {"name": "add", "arguments": value}, era)
            yield Case(f"{era} add {label(value)}", era, text, REFUSED, BOTH, ("add",))
        for value, total in (
            ({"a": 0, "b": 0}, "0"),
            ({"a": -1, "b": -2}, "-3"),
            ({"a": 2**53, "b": 1}, str(2**53 + 1)),
            ({"a": 2**63 - 1, "b": 0}, str(2**63 - 1)),
            ({"b": 2, "a": 1}, "3"),
        ):
            text = request("tools/call", {"name": "add", "arguments": value}, era)
            yield Case(f"{era} add {label(value)} is valid", era, text, result(_says(total)), BOTH, ("add",))
        for number in (b"1e400", b"-1e400", b"1e-400", b"9" * 400, b"1" + b"0" * 5000, b"1.0000000000000000000001"):
            text = request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 12345}}, era)
            text = text.replace(b"12345", number)
            short = number.decode() if len(number) < 30 else f"of {len(number)} digits"
            expect = Expect("refused", (INVALID_PARAMS, PARSE_ERROR)) if b"e400" in number else Expect("any")
            yield Case(f"{era} add number {short}", era, text, expect, BOTH, ("add",))


def _says(text: str) -> Any:
    return lambda result: bool(result.get("content")) and result["content"][0].get("text") == text


TEXTS: tuple[str, ...] = (
    *("", " ", "a", "ü€😀", "\u0000", "\u0001\u001f", "\u007f", "\u0085", "\u2028\u2029", "\ufeff", "\ufffe\uffff"),
    *("e\u0301", "\u202eabc", "👨‍👩‍👧", "﷽", "\U0010ffff", '"\\/\b\f\n\r\t', "</script>", "${x}", "%s%n", "{{a}}"),
    *("\r\nContent-Length: 0\r\n\r\n", "null", "\ud7ff\ue000", "a" * 100_000, "☃" * 30_000),
)


def texts() -> Iterator[Case]:
    """Texts arrive unchanged, whatever their characters."""
    for era in ERAS:
        for text in TEXTS:
            sent = request("tools/call", {"name": "echo", "arguments": {"text": text}}, era)
            yield Case(f"{era} echo {label(text)}", era, sent, result(_says(text)), BOTH, ("echo",))
            raw = json.loads(sent)
            unescaped = json.dumps(raw, ensure_ascii=False).encode()
            if unescaped != sent:
                name = f"{era} echo {label(text)} not escaped"
                yield Case(name, era, unescaped, result(_says(text)), BOTH, ("echo",))
        for escape in (b"\\ud800", b"\\udc00", b"\\ud800a", b"\\udc00\\ud800", b"\\ud83d\\u0041"):
            sent = request("tools/call", {"name": "echo", "arguments": {"text": "TEXT"}}, era)
            sent = sent.replace(b"TEXT", escape)
            name = f"{era} echo lone surrogate {escape.decode()}"
            expect = Expect("refused", (PARSE_ERROR, INVALID_PARAMS, INVALID_REQUEST))
            yield Case(name, era, sent, expect, BOTH, ("echo",))


def failing_tools() -> Iterator[Case]:
    """An error of a tool is a result with `isError`, and tells nothing of an exception."""
    for era in ERAS:
        for name in ("fail", "crash"):
            text = request("tools/call", {"name": name, "arguments": {}}, era)
            yield Case(f"{era} the tool {name}", era, text, Expect("tool error", check=_no_secret), BOTH, (name,))


def _no_secret(result: Any) -> bool:
    return "1234" not in json.dumps(result)


def templates() -> Iterator[Case]:
    """Variables of a resource template are converted and checked."""
    missing = {"2025": error(NOT_FOUND, INVALID_PARAMS), "2026": error(INVALID_PARAMS)}
    for era in ERAS:
        for number in ("7", "0", "-1"):
            text = request("resources/read", {"uri": f"test://item/{number}"}, era)
            yield Case(f"{era} item {number}", era, text, result(), BOTH, ("test://item/{number}",))
        for number in ("x", "1.5", "1e3", "١", "%31x", "", "1 ", "true", "null", "9" * 5000):
            text = request("resources/read", {"uri": f"test://item/{number}"}, era)
            yield Case(f"{era} item {label(number)}", era, text, missing[era], BOTH, ("test://item/{number}",))


def completions() -> Iterator[Case]:
    """Unknown references are invalid; unknown arguments have no suggestions or are invalid."""
    for era in ERAS:
        for ref in ({"type": "ref/prompt", "name": "nope"}, {"type": "ref/resource", "uri": "test://none/{x}"}):
            params = {"ref": ref, "argument": {"name": "who", "value": "A"}}
            text = request("completion/complete", params, era)
            expect = error(INVALID_PARAMS, NOT_FOUND)
            yield Case(f"{era} complete {ref['type']} unknown", era, text, expect, BOTH, ("greet", "completions"))
        for value in ("", "zzz", "a" * 10_000, "☃", "\u0000", ".*", "A\n"):
            params = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": value}}
            text = request("completion/complete", params, era)
            yield Case(f"{era} complete {label(value)}", era, text, result(_few), BOTH, ("greet", "completions"))


def _few(result: Any) -> bool:
    return len(result["completion"]["values"]) <= 100


# ---------------------------------------------------------------- notifications and responses


def notifications() -> Iterator[Case]:
    """A notification is never answered, whatever is in it (JSON-RPC 2.0, 4.1)."""
    sent: tuple[tuple[str, Any], ...] = (
        *(("notifications/nope", ABSENT), ("notifications/nope", {"a": 1}), ("nope", {}), ("tools/list", {}), ("", {})),
        *(("notifications/cancelled", value) for value in (ABSENT, {}, {"requestId": "none"}, {"requestId": None})),
        *(("notifications/cancelled", {"requestId": value}) for value in table(5, 1.5, True, [], {}, "", 2**70)),
        ("notifications/cancelled", {"requestId": "none", "reason": 5}),
        *(("notifications/progress", value) for value in (ABSENT, {}, {"progressToken": "none", "progress": 1})),
        *(("notifications/progress", {"progressToken": value, "progress": "x"}) for value in table(None, True, [], 5)),
        *(("notifications/roots/list_changed", value) for value in (ABSENT, {"a": 1})),
        *(("notifications/message", {"level": value, "data": 1}) for value in ("info", 5)),
        ("notifications/tools/list_changed", {}),
        ("notifications/resources/updated", {"uri": "test://text"}),
        ("notifications/elicitation/complete", {"elicitationId": "none"}),
    )
    for era in ERAS:
        for method, params in sent:
            if era == "2026" and params is ABSENT and (method, {}) in sent:
                continue  # the same message: the required `_meta` is added
            over = BOTH if era == "2025" and params is ABSENT else LINES
            text = notification(method, params, era)
            shown = "" if params is ABSENT else json.dumps(params)
            yield Case(f"{era} notification {method!r} {shown}", era, text, SILENCE, over)
        for value in table(None, 5, "text", [], True):
            text = notification("notifications/cancelled", value, era)
            yield Case(f"{era} notification with params {label(value)}", era, text, Expect("maybe", id=None), LINES)


def responses() -> Iterator[Case]:
    """A response to a request that was never sent is ignored."""
    bodies: tuple[tuple[str, Json], ...] = (
        ("result", {"result": {}}),
        ("null result", {"result": None}),
        ("text as result", {"result": "x"}),
        ("error", {"error": {"code": -32603, "message": "x"}}),
    )
    for name, members in bodies:
        for identity in (1, "none", -5, 2**40):
            text = json.dumps({"jsonrpc": "2.0", "id": identity, **members}).encode()
            yield Case(f"2025 {name} for {label(identity)}", "2025", text, SILENCE, LINES)
    for name, members in (
        ("an error without code", {"error": {"message": "x"}}),
        ("an error that is text", {"error": "x"}),
        ("an error with a text as code", {"error": {"code": "x", "message": "x"}}),
        ("an error without message", {"error": {"code": 1}}),
        ("result and error", {"result": {}, "error": {"code": 1, "message": "x"}}),
    ):
        text = json.dumps({"jsonrpc": "2.0", "id": "none", **members}).encode()
        yield Case(f"2025 response with {name}", "2025", text, Expect("maybe", id="none"), LINES)


# ---------------------------------------------------------------- the claim of a stateless request


def claims() -> Iterator[Case]:
    """A stateless request declares revision and capabilities ("Base protocol", `_meta`)."""
    version, capabilities, info, level = (
        f"{META}{name}" for name in ("protocolVersion", "clientCapabilities", "clientInfo", "logLevel")
    )
    needs = ("tools",)
    for name, value, codes in (
        *((version, value, (INVALID_PARAMS, INVALID_REQUEST)) for value in table(None, 5, True, [], {})),
        *((version, value, (UNSUPPORTED_VERSION,)) for value in ("", "2031-01-01", "2026-07-28 ", "1", "latest")),
        *((capabilities, value, (INVALID_PARAMS,)) for value in table(None, 5, "x", [], True)),
        *((info, value, ()) for value in table(5, "x", [], True, {"name": 5, "version": "1"})),
        *((level, value, (INVALID_PARAMS,)) for value in table(5, "loud", [], True, "DEBUG")),
    ):
        text = request("tools/list", {"_meta": {name: value}}, "2026")
        short = name.removeprefix(META)
        # Over HTTP a claim that differs from the header is a mismatch, which is a case of HTTP.
        over = LINES if name == version else BOTH
        expect = error(*codes) if codes else LENIENT  # for display only
        yield Case(f"2026 {short} {label(value)}", "2026", text, expect, over, needs)
    for member in (capabilities,):
        meta = {key: value for key, value in CLAIM.items() if key != member}
        text = json.dumps({"jsonrpc": "2.0", "id": "@ID@", "method": "tools/list", "params": {"_meta": meta}}).encode()
        yield Case(f"2026 {member.removeprefix(META)} missing", "2026", text, error(INVALID_PARAMS), BOTH, needs)
    for meta in (
        {"progressToken": None},
        {f"{META}unknown": 5},
        {"com.example/x": {"a": [1]}},
        {"traceparent": "nonsense"},
        {"traceparent": 5},
        {"tracestate": "x" * 5000, "baggage": "=,;="},
        {level: "debug"},
    ):
        text = request("tools/list", {"_meta": meta}, "2026")
        expect = Expect("any") if meta == {"progressToken": None} or meta == {"traceparent": 5} else result()
        yield Case(f"2026 _meta {json.dumps(meta)[:60]}", "2026", text, expect, BOTH, needs)


def wrong_eras() -> Iterator[Case]:
    """Methods of one era do not exist in the other one."""
    for method, params in (
        (
            "initialize",
            {"protocolVersion": REVISION_2025, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
        ),
        ("ping", {}),
        ("logging/setLevel", {"level": "debug"}),
        ("resources/subscribe", {"uri": "test://text"}),
        ("resources/unsubscribe", {"uri": "test://text"}),
    ):
        yield Case(f"2026 {method} is gone", "2026", request(method, params, "2026"), error(METHOD_NOT_FOUND))
    for method in ("server/discover", "subscriptions/listen"):
        yield Case(f"2025 {method} is of the other era", "2025", request(method, {}), error(METHOD_NOT_FOUND), HTTP)


def rounds() -> Iterator[Case]:
    """`inputResponses` and `requestState` that the server did not ask for ("Multi round-trip requests")."""
    call = {"name": "ask", "arguments": {}}
    needs = ("ask",)
    capabilities: Json = {f"{META}clientCapabilities": {"elicitation": {"form": {}}}}
    for value in ("", "nonsense", "a" * 5000, "AAAA", "☃", "{}"):
        text = request("tools/call", {**call, "requestState": value, "_meta": capabilities}, "2026")
        yield Case(f"2026 requestState {label(value)}", "2026", text, error(INVALID_PARAMS), BOTH, needs)
    for value in table(5, True, [], {}):
        text = request("tools/call", {**call, "requestState": value, "_meta": capabilities}, "2026")
        yield Case(f"2026 requestState {label(value)}", "2026", text, INVALID, BOTH, needs)
    for value in table(5, "x", [], True):
        text = request("tools/call", {**call, "inputResponses": value, "_meta": capabilities}, "2026")
        # Without a state that asked for them they are ignored.
        yield Case(f"2026 inputResponses {label(value)}", "2026", text, LENIENT, BOTH, needs)
    for value in table(
        {},
        {"a": {"action": "accept", "content": {"value": 7}}},
        {"elicitation": {"action": "accept", "content": {"value": 7}}},
        {"": {}},
    ):
        text = request("tools/call", {**call, "inputResponses": value, "_meta": capabilities}, "2026")
        expect = result(lambda found: found.get("resultType") == "input_required")
        yield Case(f"2026 inputResponses {json.dumps(value)[:50]} unasked", "2026", text, expect, BOTH, needs)
    text = request("tools/call", call, "2026")
    yield Case("2026 elicitation that the client did not declare", "2026", text, error(-32021), BOTH, needs)
    for method in ("tools/list", "prompts/list", "server/discover"):
        text = request(method, {"inputResponses": {"a": {}}, "requestState": "x"}, "2026")
        yield Case(f"2026 {method} ignores responses", "2026", text, Expect("any"), BOTH)


def sizes() -> Iterator[Case]:
    """Big and deep values that are not looked at do no harm."""
    for era in ERAS:
        for name, value in (
            ("100,000 items", b"[" + b"0," * 99_999 + b"0]"),
            ("10,000 members", json.dumps({str(number): 0 for number in range(10_000)}).encode()),
            ("500 levels", b"[" * 500 + b"]" * 500),
            ("50,000 levels", b"[" * 50_000 + b"]" * 50_000),
            ("a long text", json.dumps("x" * 500_000).encode()),
        ):
            text = request("tools/list", {"unknown": "VALUE"}, era).replace(b'"VALUE"', value)
            expect = Expect("any", (PARSE_ERROR,))
            yield Case(f"{era} {name} in an unknown member", era, text, expect, BOTH, ("tools",))
            text = request("tools/call", {"name": "add", "arguments": {"a": 1, "b": "VALUE"}}, era)
            text = text.replace(b'"VALUE"', value)
            expect = Expect("refused", (INVALID_PARAMS, PARSE_ERROR, INVALID_REQUEST))
            yield Case(f"{era} {name} as an argument", era, text, expect, BOTH, ("add",))


def expensive_arguments() -> Iterator[Case]:
    """Arguments of a megabyte that do not fit, whose explanation would take seconds: one refusal."""
    wrong: tuple[tuple[str, str, Json], ...] = (
        ("add", "60,000 unknown names", {"a": 1, "b": 2, **{f"name {number}": 1 for number in range(60_000)}}),
        ("add", "a name of 900,000 characters", {"a": 1, "b": 2, "x" * 900_000: 1}),
        ("add", "100,000 lists for a number", {"a": 1, "b": [[1]] * 100_000}),
        ("add", "100,000 lists in an unknown member", {"a": 1, "b": 2, "c": [[1]] * 100_000}),
        ("add", "100,000 numbers near the largest", {"a": 1, "b": 2, "c": [1e308] * 100_000}),
        ("by_schema", "100,000 numbers near the largest", {"values": [1e308] * 100_000}),
        ("by_schema", "150,000 items of the wrong type", {"values": ["x"] * 150_000}),
        ("by_schema", "150,000 items, the last one of the wrong type", {"values": [*[1] * 150_000, "x"]}),
        ("by_schema", "50,000 items outside of an enum", {"words": ["other"] * 50_000}),
        ("by_schema", "90 levels of lists", {"lists": _nested(90)}),
        ("by_schema", "60,000 names that are not allowed", {f"name {number}": 1 for number in range(60_000)}),
    )
    for era in ERAS:
        for tool, name, value in wrong:
            text = request("tools/call", {"name": tool, "arguments": value}, era)
            yield Case(f"{era} {tool} with {name}", era, text, REFUSED, BOTH, (tool,))


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def cases() -> list[Case]:
    """Return all cases."""
    tables = (
        *(valid, wrong_params, wrong_members, wrong_context, wrong_meta, progress_tokens, cursors, unknown_names),
        *(versions_of_json_rpc, wrong_ids, valid_ids, wrong_methods, other_shapes, not_json, whitespace),
        *(repeated_members, unknown_members, arguments_of_a_tool, texts, failing_tools, templates, completions),
        *(notifications, responses, claims, wrong_eras, rounds, sizes, expensive_arguments),
    )
    return unique(case for make in tables for case in make())
