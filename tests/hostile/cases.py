"""What a hostile case is: bytes for a server, and the answer that the specification asks for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

Era: TypeAlias = Literal["2025", "2026"]
#: Where a case applies: lines on standard streams and sockets, or HTTP.
Route: TypeAlias = Literal["lines", "http"]
BOTH: frozenset[Route] = frozenset({"lines", "http"})
LINES: frozenset[Route] = frozenset({"lines"})
HTTP: frozenset[Route] = frozenset({"http"})

REVISION_2025 = "2025-11-25"
REVISION_2026 = "2026-07-28"
META = "io.modelcontextprotocol/"
#: What a stateless request declares.
CLAIM: dict[str, Any] = {
    f"{META}protocolVersion": REVISION_2026,
    f"{META}clientCapabilities": {},
    f"{META}clientInfo": {"name": "hostile", "version": "1"},
}

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022
NOT_FOUND = -32002

Json: TypeAlias = dict[str, Any]
#: Stands for the id of the case.
SAME: Any = object()
#: Stands for a member that is left out.
ABSENT: Any = object()


class Expect(NamedTuple):
    """The one terminal answer of a case.

    Attributes:
        kind: "error": an error with one of `codes`; "result": a result; "tool error": a result with `isError`;
            "refused": an error or a tool error; "silence": nothing; "any": one answer, whatever it is;
            "maybe": one answer or none; "either": a result, or an error with one of `codes`;
            "many": one answer or more, whatever they are; "first", "second": a result, and the id is used again.
        codes: The codes of an error.
        id: The id of the answer; None if it may only be null or missing.
        status: The HTTP statuses.
        check: Whether a result is the expected one.
    """

    kind: Literal[
        "error",
        "result",
        "tool error",
        "refused",
        "silence",
        "any",
        "either",
        "maybe",
        "many",
        "first",
        "second",
        "end",
    ]
    codes: tuple[int, ...] = ()
    id: Any = SAME
    status: tuple[int, ...] = ()
    check: Callable[[Any], bool] | None = None


def error(*codes: int, id: Any = SAME, status: tuple[int, ...] = ()) -> Expect:
    """Expect an error."""
    return Expect("error", codes, id, status)


def result(check: Callable[[Any], bool] | None = None) -> Expect:
    """Expect a result."""
    return Expect("result", check=check)


INVALID = error(INVALID_PARAMS, INVALID_REQUEST)
#: A member that a server need not look at.
LENIENT = Expect("either", (INVALID_PARAMS, INVALID_REQUEST))
UNPARSED = error(PARSE_ERROR, id=None)
MALFORMED = error(INVALID_REQUEST, id=None)
SILENCE = Expect("silence")
TOOL_ERROR = Expect("tool error")
#: Arguments that do not fit: a tool error in recent revisions, invalid params in older ones.
REFUSED = Expect("refused", (INVALID_PARAMS,))


class Case(NamedTuple):
    """One message, in an open session of its era.

    Attributes:
        name: What is wrong, unique.
        era: The era of the session.
        text: The message, with `@ID@` where the id of the case goes.
        expect: The answer.
        over: Where the case applies.
        needs: Tools, prompts and resources of the target that the case uses.
    """

    name: str
    era: Era
    text: bytes
    expect: Expect
    over: frozenset[Route] = BOTH
    needs: tuple[str, ...] = ()


class Flow(NamedTuple):
    """Several messages on a connection of their own, without a handshake before them.

    Each step is a message to send (dict or bytes), or an `Answer` to wait for, or None: half of the connection is closed.
    """

    name: str
    steps: tuple[Any, ...]
    needs: tuple[str, ...] = ()
    #: Whether the connection must serve a further request in the end.
    alive: bool = True


class Answer(NamedTuple):
    """A step of a flow: wait for the answer to an id."""

    id: Any
    expect: Expect


class Raw(NamedTuple):
    """One HTTP request.

    Attributes:
        name: What is wrong, unique.
        request: The bytes of the request, or method, headers and body. Headers with the value None are left out.
            `@SESSION@` stands for a session of the handshake era.
        status: The expected statuses; 0 stands for a connection that is closed without a response.
        codes: The expected codes of the JSON-RPC error in the body; empty if there need not be one.
        needs: Tools, prompts and resources of the target that the case uses.
    """

    name: str
    request: bytes | tuple[str, Mapping[str, str | None], bytes]
    status: tuple[int, ...]
    codes: tuple[int, ...] = ()
    needs: tuple[str, ...] = ()


# ---------------------------------------------------------------- building messages


def request(method: str, params: Any = ABSENT, era: Era = "2025", /, **members: Any) -> bytes:
    """Return a request as text. In the stateless era, params that are objects get the required `_meta`."""
    message: Json = {"jsonrpc": "2.0", "id": "@ID@", "method": method}
    if era == "2026":
        params = {} if params is ABSENT else params
        if isinstance(params, dict):
            meta = params.get("_meta", {})
            params = {**params, "_meta": {**CLAIM, **meta} if isinstance(meta, dict) else meta}
    if params is not ABSENT:
        message["params"] = params
    message.update(members)
    return json.dumps({name: value for name, value in message.items() if value is not ABSENT}).encode()


def notification(method: str, params: Any = ABSENT, era: Era = "2025") -> bytes:
    """Return a notification as text."""
    return request(method, params, era, id=ABSENT)


def with_id(text: bytes, identity: Any) -> bytes:
    """Return a message with another id, written as JSON."""
    return text.replace(b'"@ID@"', json.dumps(identity).encode())


def replaced(params: Mapping[str, Any], path: str, value: Any) -> Json:
    """Return params with another value at a path; ABSENT leaves the member out."""
    name, _, inner = path.partition(".")
    copy = dict(params)
    if inner:
        copy[name] = replaced(copy[name], inner, value)
    elif value is ABSENT:
        copy.pop(name, None)
    else:
        copy[name] = value
    return copy


def table(*items: Any) -> tuple[Any, ...]:
    """Return values of any types, for tables."""
    return items


def label(value: Any) -> str:
    """Return a short name for a value."""
    if value is ABSENT:
        return "missing"
    text = json.dumps(value)
    return text if len(text) <= 30 else f"{text[:24]}…{len(text)}"


def unique(cases: Iterable[Any]) -> list[Any]:
    """Return cases as a list, and check that their names and contents differ."""
    collected = list(cases)
    names = [case.name for case in collected]
    repeated = {name for name in names if names.count(name) > 1}
    assert not repeated, f"several cases have the same name: {sorted(repeated)}"
    contents = [repr(case._replace(name="")) for case in collected]
    same = [case.name for case, content in zip(collected, contents, strict=True) if contents.count(content) > 1]
    assert not same, f"several cases are the same: {same}"
    return collected
