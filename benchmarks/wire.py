"""The call that everybody answers: its bytes on every transport, and what a right answer is.

Only the standard library: the load generators import it, and so may a program of any peer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

REVISION = "2026-07-28"
#: Different arguments per call, so that nobody gets away with a remembered answer.
VARIANTS = 64

_META = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
_HEADERS = (
    "POST /mcp HTTP/1.1",
    "Host: 127.0.0.1:{port}",
    "Content-Type: application/json",
    "Accept: application/json, text/event-stream",
    f"MCP-Protocol-Version: {REVISION}",
    "Mcp-Method: tools/call",
    "Mcp-Name: add",
    "Content-Length: {length}",
)


def call(number: int) -> bytes:
    """The JSON-RPC request that asks for `number` + 7, with `number` as its id."""
    params = {"_meta": _META, "name": "add", "arguments": {"a": number, "b": 7}}
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return json.dumps(message, separators=(",", ":")).encode()


def http_request(number: int, port: int, token: str | None = None) -> bytes:
    """The same as a POST over a kept connection, with an access token if there is one."""
    body = call(number)
    head = "\r\n".join(_HEADERS).format(port=port, length=len(body))
    if token is not None:
        head += f"\r\nAuthorization: Bearer {token}"
    return head.encode() + b"\r\n\r\n" + body


class WrongAnswer(Exception):
    """Somebody is being measured while it answers nonsense: the figures would be worth nothing."""


def check(answer: bytes, number: int) -> None:
    """Raise WrongAnswer unless this JSON-RPC message is the successful result of call(number)."""
    try:
        message = json.loads(answer)
        result = message["result"]
        right = message["id"] == number and not result.get("isError") and _value(result) == number + 7
    except (ValueError, KeyError, TypeError, AttributeError):
        right = False
    if not right:
        raise WrongAnswer(f"call {number} was answered with {answer[:400]!r}")


def check_http(head: bytes, body: bytes, number: int) -> None:
    """The same for an HTTP response, JSON or server-sent events."""
    if not head.startswith(b"HTTP/1.1 200 "):
        raise WrongAnswer(f"call {number} was answered with {head[:200]!r} {body[:200]!r}")
    if b"text/event-stream" in head.lower():
        data = [line[5:].strip() for line in body.splitlines() if line.startswith(b"data:")]
        body = data[-1] if data else b""
    check(body, number)


def _value(result: Mapping[str, Any]) -> Any:
    """The tool's value; this revision allows any JSON value there, older ones want an object around it."""
    value = result["structuredContent"]
    return value["result"] if isinstance(value, dict) else value
