"""Check the HTTP headers that a user gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemel.errors import DefinitionError, NotSent
from gemel.http1.client.pool import check_header
from gemel.options import are_texts

#: Headers that the protocol or the connection sets; those of the user are ignored.
RESERVED = frozenset(
    {"accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "host", "te"}
    | {"last-event-id", "mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id", "trailer", "upgrade"}
    | {"transfer-encoding"}
)


def user_headers(headers: Any) -> list[tuple[str, str]]:
    """Check headers for every request.

    Args:
        headers: Names and values.

    Returns:
        The headers without those that the protocol sets itself, and with a User-Agent.

    Raises:
        DefinitionError: A header can't be sent.
    """
    pairs = _check(headers)
    if all(name.lower() != "user-agent" for name, _ in pairs):
        pairs.append(("User-Agent", "gemel"))
    return pairs


def call_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Check headers for one request.

    Args:
        headers: Names and values.

    Returns:
        The headers without those that the protocol sets itself.

    Raises:
        DefinitionError: A header can't be sent.
    """
    pairs = _check(headers)
    if any(name.lower() == "user-agent" for name, _ in pairs):
        raise DefinitionError(
            "`headers` of one request: the User-Agent is a header of the client, Client(…, headers=…)"
        )
    return pairs


def _check(headers: Any) -> list[tuple[str, str]]:
    if not (isinstance(headers, Mapping) and are_texts(headers) and are_texts(list(headers.values()))):
        raise DefinitionError('`headers` must map header names to text: {"X-Name": "value"}')
    pairs = [(name, value) for name, value in headers.items() if name.lower() not in RESERVED]
    try:
        for name, value in pairs:
            check_header(name, value)
    except NotSent as exc:
        raise DefinitionError(f"`headers` must map header names to text: {exc}") from None
    return pairs
