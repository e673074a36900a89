"""The call that everybody answers: its bytes on every transport, and what a right answer is.

Only the standard library: the load generators import it, and so may a program of any peer.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

REVISION = "2026-07-28"
#: The revision of HTTP sessions.
SESSION_REVISION = "2025-11-25"
#: Different arguments per call, so that nobody gets away with a remembered answer.
VARIANTS = 64


class Tool(NamedTuple):
    """A tool that is called in a benchmark, by the number of the call."""

    arguments: Callable[[int], dict[str, Any]]
    #: Whether this is the right result: its structured content, or its text if it has none.
    right: Callable[[int, Any], bool]
    #: Whether the result has structured content.
    structured: bool = True
    #: How many notifications of progress come before the result.
    steps: int = 0


#: What a model in and out looks like: an order with five lines, and the receipt.
LINES = [{"article": f"article {number}", "price": 2.5 * number, "count": number} for number in range(1, 6)]


def _order(number: int) -> dict[str, Any]:
    return {"order": {"id": number, "customer": "Ada Lovelace", "express": True, "lines": LINES}}


def _receipt(number: int) -> dict[str, Any]:
    return {"id": number, "customer": "Ada Lovelace", "lines": LINES, "total": 137.5}


def _numbers(number: int) -> dict[str, Any]:
    return {"a": number, "b": 7}


def _is_sum(number: int, value: Any) -> bool:
    """Whether it is the sum; this revision allows any JSON value there, older ones want an object around it."""
    return bool((value["result"] if isinstance(value, dict) else value) == number + 7)


TOOLS = {
    "add": Tool(_numbers, _is_sum),
    "steps": Tool(_numbers, _is_sum, steps=20),
    "order": Tool(_order, lambda number, value: bool(value == _receipt(number))),
    "text": Tool(_numbers, lambda _, value: len(value) == 1_000_000, structured=False),
    "report": Tool(_numbers, lambda _, value: len(value) == 100_000, structured=False),
}

_META = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
EVENTS = "text/event-stream"
BOTH = f"application/json, {EVENTS}"
_HEADERS = (
    "POST /mcp HTTP/1.1",
    "Host: 127.0.0.1:{port}",
    "Content-Type: application/json",
    "Accept: {accept}",
    "MCP-Protocol-Version: {revision}",
    "Content-Length: {length}",
)


def call(number: int) -> bytes:
    """The JSON-RPC request that asks for `number` + 7, with `number` as its id."""
    return message("tools/call", number, {"_meta": _META, **_add(number)})


def _add(number: int) -> dict[str, Any]:
    return {"name": "add", "arguments": _numbers(number)}


def message(method: str, number: int, params: Mapping[str, Any]) -> bytes:
    """A JSON-RPC request."""
    content = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return json.dumps(content, separators=(",", ":")).encode()


#: The handshake of the handshake era.
INITIALIZE = message(
    "initialize",
    0,
    {
        "protocolVersion": SESSION_REVISION,
        "capabilities": {"roots": {}},
        "clientInfo": {"name": "bench", "version": "1"},
    },
)
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


def http_request(
    number: int, port: int, token: str | None = None, session: str | None = None, *, events: bool = False
) -> bytes:
    """The same as a POST over a kept connection, with an access token if there is one; in a session of the handshake era.

    With `events` the answer must be an event stream.
    """
    if session is not None:
        body = message("tools/call", number, _add(number))
        return http_post(port, SESSION_REVISION, body, f"Mcp-Session-Id: {session}", accept=EVENTS if events else BOTH)
    names = ["Mcp-Method: tools/call", "Mcp-Name: add"]
    return http_post(
        port, REVISION, call(number), *names, *([] if token is None else [f"Authorization: Bearer {token}"])
    )


def http_listen(number: int, port: int) -> bytes:
    """A POST whose response is a stream of changes."""
    params = {"_meta": _META, "notifications": {"toolsListChanged": True}}
    return http_post(
        port, REVISION, message("subscriptions/listen", number, params), "Mcp-Method: subscriptions/listen"
    )


def http_standing(session: str, port: int) -> bytes:
    """A GET whose response is the standing stream of a session of the handshake era."""
    lines = ("GET /mcp HTTP/1.1", f"Host: 127.0.0.1:{port}", "Accept: text/event-stream", f"Mcp-Session-Id: {session}")
    return "\r\n".join((*lines, f"MCP-Protocol-Version: {SESSION_REVISION}", "", "")).encode()


def http_change(number: int, port: int) -> bytes:
    """A POST that calls the tool which announces a change."""
    body = message("tools/call", number, {"_meta": _META, "name": "change", "arguments": {}})
    return http_post(port, REVISION, body, "Mcp-Method: tools/call", "Mcp-Name: change")


def http_post(port: int, revision: str, body: bytes, *lines: str, accept: str = BOTH) -> bytes:
    """A POST with these further lines in its head."""
    head = "\r\n".join((*_HEADERS, *lines)).format(port=port, revision=revision, length=len(body), accept=accept)
    return head.encode() + b"\r\n\r\n" + body


def open_session(port: int) -> str:
    """Open a session of the handshake era. Returns its id."""
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/mcp", INITIALIZE, headers)
    response = connection.getresponse()
    body = response.read()
    session = response.getheader("Mcp-Session-Id")
    if response.status != 200 or session is None:
        raise WrongAnswer(f"the handshake was answered with {response.status} {body[:200]!r}")
    connection.request("POST", "/mcp", INITIALIZED, {**headers, "Mcp-Session-Id": session})
    connection.getresponse().read()
    connection.close()
    return session


class WrongAnswer(Exception):
    """Somebody is being measured while it answers nonsense: the figures would be worth nothing."""


def check(answer: bytes, number: int, tool: Tool = TOOLS["add"]) -> None:
    """Raise WrongAnswer unless this JSON-RPC message is the successful result of call(number)."""
    try:
        message = json.loads(answer)
        result = message["result"]
        value = result["structuredContent"] if tool.structured else result["content"][0]["text"]
        right = message["id"] == number and not result.get("isError") and tool.right(number, value)
    except (ValueError, KeyError, TypeError, AttributeError):
        right = False
    if not right:
        raise WrongAnswer(f"call {number} was answered with {answer[:400]!r}")


def check_http(head: bytes, body: bytes, number: int, tool: Tool = TOOLS["add"]) -> None:
    """The same for an HTTP response, JSON or server-sent events."""
    if not head.startswith(b"HTTP/1.1 200 "):
        raise WrongAnswer(f"call {number} was answered with {head[:200]!r} {body[:200]!r}")
    before = 0
    if b"text/event-stream" in head.lower():
        data = [line[5:].strip() for line in body.splitlines() if line.startswith(b"data:")]
        before = sum(b"notifications/progress" in each for each in data)
        body = data[-1] if data else b""
    if before != tool.steps:
        raise WrongAnswer(f"call {number} was answered after {before} of {tool.steps} notifications of progress")
    check(body, number, tool)
