"""What clients send: calls of four clients over HTTP, in which everything varies that varies between real calls.

Names and order of the headers, members of the body and their order are those that each client was seen to send: the official SDK
for Python, FastMCP, Gemel's client, and the official SDK for TypeScript. From call to call the id, an argument, and with them
the length of the body vary, and so do trace context, request id, and progress token; from caller to caller the access token.
Only the standard library, as in `wire.py`.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from benchmarks.wire import BOTH, EVENTS, REVISION, SESSION_REVISION, TOOLS, Tool

#: Callers, each with a token of its own.
CALLERS = 300
#: Bytes in the three parts of a token, which is then as long as that of a common identity provider.
_TOKEN = (60, 420, 64)

#: The clients, each with the beginning of its head, in the order in which it sends the headers. Instrumentation and gateways
#: add trace context and request id behind them.
CLIENTS: dict[str, tuple[str, ...]] = {
    "mcp": (
        "Host: {host}",
        "Accept-Encoding: gzip, deflate",
        "Connection: keep-alive",
        "User-Agent: python-httpx2/2.16.2",
        "accept: {accept}",
        "content-type: application/json",
        "{authorization}",
        "{session}",
        "mcp-protocol-version: {revision}",
        "{method}",
        "{name}",
        "traceparent: {trace}",
        "x-request-id: {request}",
        "Content-Length: {length}",
    ),
    "typescript": (
        "host: {host}",
        "connection: keep-alive",
        "{authorization}",
        "{session}",
        "mcp-protocol-version: {revision}",
        "{method}",
        "{name}",
        "content-type: application/json",
        "accept: {accept}",
        "traceparent: {trace}",
        "accept-language: *",
        "sec-fetch-mode: cors",
        "user-agent: node",
        "accept-encoding: gzip, deflate",
        "x-request-id: {request}",
        "content-length: {length}",
    ),
    "gemel": (
        "Host: {host}",
        "Accept-Encoding: gzip",
        "Content-Type: application/json",
        "Accept: {accept}",
        "{session}",
        "MCP-Protocol-Version: {revision}",
        "{method}",
        "{name}",
        "{authorization}",
        "traceparent: {trace}",
        "X-Request-Id: {request}",
        "User-Agent: gemel",
        "Content-Length: {length}",
    ),
}
CLIENTS["fastmcp"] = CLIENTS["mcp"]
#: The same headers with the names of the MCP headers in the case in which the client writes them.
_CAPITAL = "gemel"

#: What `clientInfo` says.
_INFO = {
    "mcp": ("mcp", "0.1.0"),
    "typescript": ("app", "1.0.0"),
    "gemel": ("gemel", "0.1.0"),
    "fastmcp": ("fastmcp", "4.2.3"),
}
_PREFIX = "io.modelcontextprotocol/"


class Call:
    """One POST, and its number, which is its id and decides about the result."""

    __slots__ = ("number", "request")

    def __init__(self, number: int, request: bytes) -> None:
        self.number = number
        self.request = request


def calls(
    client: str,
    count: int,
    port: int,
    *,
    seed: int = 1,
    tokens: Sequence[str] = (),
    session: str | None = None,
    events: bool = False,
    tool: str = "add",
    prefix: str = "",
) -> list[Call]:
    """Calls of one client, in each of which something else varies.

    Args:
        client: A key of `CLIENTS`.
        count: How many calls.
        port: The port of the server.
        seed: Of the random numbers.
        tokens: The access tokens of the callers; made up by default, for a server that looks at none.
        session: The HTTP session of the handshake era that they belong to; stateless calls by default.
        events: Whether the answer must be an event stream.
        tool: A key of `TOOLS`.
        prefix: What a gateway has put before its name.
    """
    numbers = random.Random(f"{client} {seed}")
    each_token = tokens or made_up_tokens()
    called = (prefix + tool, TOOLS[tool])
    return [
        _call(client, port, numbers, numbers.choice(each_token), session, called, events=events) for _ in range(count)
    ]


def _call(
    client: str,
    port: int,
    numbers: random.Random,
    token: str,
    session: str | None,
    called: tuple[str, Tool],
    *,
    events: bool,
) -> Call:
    number = numbers.randrange(10 ** numbers.randint(1, 12))
    trace = f"00-{numbers.getrandbits(128):032x}-{numbers.getrandbits(64):016x}-01"
    body = json.dumps(_message(client, number, trace, session is None, called), separators=(",", ":")).encode()
    lines = [line for line in CLIENTS[client] if session is not None or line != "{session}"]
    lines = [line for line in lines if session is None or line not in ("{method}", "{name}")]
    text = "\r\n".join(("POST /mcp HTTP/1.1", *lines, "", "")).format(
        host=f"127.0.0.1:{port}",
        accept=EVENTS if events else BOTH,
        authorization=f"{_cased(client, 'authorization')}: Bearer {token}",
        session=f"{_cased(client, 'mcp-session-id')}: {session}",
        revision=REVISION if session is None else SESSION_REVISION,
        method=f"{_cased(client, 'mcp-method')}: tools/call",
        name=f"{_cased(client, 'mcp-name')}: {called[0]}",
        trace=trace,
        request=f"{numbers.getrandbits(128):032x}",
        length=len(body),
    )
    return Call(number, text.encode() + body)


def _message(client: str, number: int, trace: str, stateless: bool, called: tuple[str, Tool]) -> dict[str, Any]:
    """The call, with its members in the order of the client."""
    meta: dict[str, Any] = {}
    if stateless:
        info = dict(zip(("name", "version"), _INFO[client], strict=True))
        meta = {
            f"{_PREFIX}protocolVersion": REVISION,
            f"{_PREFIX}clientInfo": info,
            f"{_PREFIX}clientCapabilities": {},
        }
    if client == "fastmcp":
        meta |= {f"{_PREFIX}logLevel": "debug"} if stateless else {}
        meta["progressToken"] = number
    elif client == "gemel":
        meta = {"progressToken": number, **meta}
    elif client == "mcp":
        meta["traceparent"] = trace
    name, tool = called
    if tool.steps:
        meta["progressToken"] = number
    params: dict[str, Any] = {"name": name, "arguments": tool.arguments(number)}
    if meta:
        params["_meta"] = meta
    if client == "typescript":
        return {"method": "tools/call", "params": params, "jsonrpc": "2.0", "id": number}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def _cased(client: str, name: str) -> str:
    return name.title() if client == _CAPITAL else name


@cache
def made_up_tokens() -> list[str]:
    """Tokens of the usual length that no server knows."""
    numbers = random.Random(1)
    parts = [[base64.urlsafe_b64encode(numbers.randbytes(size)).decode() for size in _TOKEN] for _ in range(CALLERS)]
    return [".".join(part.rstrip("=") for part in token) for token in parts]
