"""What a hostile case is: an HTTP request, and the answer that the specifications ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

Headers: TypeAlias = tuple[tuple[str, str], ...]


class Request(NamedTuple):
    """An HTTP request. Header values are sent as they are, in latin-1.

    Attributes:
        method: The method.
        path: The path, with the query.
        headers: Further headers, in order; names may repeat. `Host` replaces the right one.
        body: The body.
    """

    method: str = "GET"
    path: str = "/mcp"
    headers: Headers = ()
    body: bytes = b""


class Response(NamedTuple):
    """An HTTP response. The status is 0 if the connection ended without one.

    Attributes:
        status: The status.
        headers: The headers, names in lower case.
        body: The body; nothing of a stream.
    """

    status: int
    headers: Headers = ()
    body: bytes = b""

    def all(self, name: str) -> list[str]:
        """Return the values of a header."""
        return [value for key, value in self.headers if key == name]


class Expect(NamedTuple):
    """An answer.

    Attributes:
        status: The statuses that are right.
        scheme: The scheme of a challenge (`WWW-Authenticate`) that the answer must have.
        parameters: Parameters of that challenge by name; None for one that it may not have.
        headers: Texts that headers must hold, by name; None for a header that may not be there.
        holds: Texts that the body must hold.
        hides: Texts that neither the headers nor the body may hold.
    """

    status: tuple[int, ...]
    scheme: str | None = None
    parameters: Mapping[str, str | None] = {}
    headers: Mapping[str, str | None] = {}
    holds: tuple[str, ...] = ()
    hides: tuple[str, ...] = ()


#: A token that is not accepted (RFC 6750 §3.1).
INVALID_TOKEN = Expect((401,), "bearer", {"error": "invalid_token"})
#: Nobody tried to authenticate: no error may be named (RFC 6750 §3).
NO_TOKEN = Expect((401,), "bearer", {"error": None})
#: A good token that permits too little.
INSUFFICIENT_SCOPE = Expect((403,), "bearer", {"error": "insufficient_scope"})
#: A request that can't be understood, by whichever of the statuses for it.
MALFORMED = Expect((400, 401, 431))
ACCEPTED = Expect((200, 202, 204, 404, 405))
"""Authenticated, whatever the endpoint answers then: a GET or DELETE without a session is refused by other rules."""


def problem(expect: Expect, response: Response) -> str | None:
    """Say what is wrong with a response, None if nothing is."""
    if response.status not in expect.status:
        return f"status {response.status}, expected {expect.status}: {response.body[:200]!r}"
    if expect.scheme is not None and (wrong := _challenge_problem(expect, response)) is not None:
        return wrong
    for name, value in expect.headers.items():
        values = response.all(name)
        if value is None and values:
            return f"the header {name} is there: {values}"
        if value is not None and not any(value in text for text in values):
            return f"the header {name} is {values}, expected {value!r}"
    everything = "\n".join(f"{name}: {value}" for name, value in response.headers) + response.body.decode("latin-1")
    for text in expect.holds:
        if text not in response.body.decode("utf-8", "replace"):
            return f"the body lacks {text!r}: {response.body[:200]!r}"
    for text in expect.hides:
        if text in everything:
            return f"the answer holds {text!r}"
    return None


def _challenge_problem(expect: Expect, response: Response) -> str | None:
    parameters = challenges(response).get(expect.scheme or "")
    if parameters is None:
        return f"no challenge with the scheme {expect.scheme}: {response.all('www-authenticate')}"
    for name, value in expect.parameters.items():
        if parameters.get(name) != value:
            return f"the challenge has {name}={parameters.get(name)!r}, expected {value!r}"
    if "resource_metadata" not in parameters:
        return f"the challenge has no resource_metadata: {parameters}"
    return None


def challenges(response: Response) -> dict[str, dict[str, str]]:
    """Return the parameters of the challenges by scheme, in lower case. A value that is not in quotes makes a scheme."""
    by_scheme: dict[str, dict[str, str]] = {}
    for header in response.all("www-authenticate"):
        parameters: dict[str, str] = {}
        for name, quoted in _WORD.findall(header):
            if quoted:
                parameters[name] = quoted[1:-1]
            else:
                parameters = by_scheme.setdefault(name.lower(), {})
    return by_scheme


#: A scheme, or a parameter with its value in quotes.
_WORD = re.compile(r"""([A-Za-z0-9_-]+)(?:=("(?:[^"\\]|\\.)*"))?""")

# ---------------------------------------------------------------- requests of both eras

REVISION_2025 = "2025-11-25"
REVISION_2026 = "2026-07-28"
_META = "io.modelcontextprotocol/"
_CLIENT = {"name": "hostile", "version": "1"}
_JSON: Headers = (("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream"))


def _message(method: str, params: Mapping[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


_INITIALIZE = _message("initialize", {"protocolVersion": REVISION_2025, "capabilities": {}, "clientInfo": _CLIENT})
_STATELESS = {f"{_META}protocolVersion": REVISION_2026, f"{_META}clientCapabilities": {}, f"{_META}clientInfo": _CLIENT}
_DISCOVER = _message("server/discover", {"_meta": _STATELESS})
_STATELESS_HEADERS: Headers = (("MCP-Protocol-Version", REVISION_2026), ("Mcp-Method", "server/discover"))
_SESSION: Headers = (("Mcp-Session-Id", "none"), ("MCP-Protocol-Version", REVISION_2025))

PING = _message("ping", {})

#: Every request that an endpoint authenticates, by name: both eras, and GET and DELETE of sessions.
ENDPOINT_REQUESTS: dict[str, Request] = {
    "POST 2025": Request("POST", headers=_JSON, body=_INITIALIZE),
    "POST 2026": Request("POST", headers=_JSON + _STATELESS_HEADERS, body=_DISCOVER),
    "GET": Request("GET", headers=(("Accept", "text/event-stream"), *_SESSION)),
    "DELETE": Request("DELETE", headers=_SESSION),
}


def authorized(request: Request, *values: str, more: Headers = ()) -> Request:
    """Return a request with `Authorization` headers, one for each value."""
    headers = tuple(("Authorization", value) for value in values)
    return request._replace(headers=request.headers + headers + more)
