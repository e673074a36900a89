"""What a client says when the server answered with an HTTP status instead of a message. Knows statuses, no sockets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from hinge.errors import ErrorObject, HttpStatus, SessionEnded, shorten

#: This much of a body that is no message stands in an error.
EXCERPT_BYTES = 200
#: The headers of a refusal that tell what to do next.
_TELLING = ("www-authenticate", "retry-after", "location", "content-type", "allow")

_HINTS = {
    401: 'The server wants authorization (auth=… in code, "headers" in a configuration, --header on the command line)',
    403: "The credentials do not allow it, or the server refuses where it comes from (Origin, Host)",
    404: "Is the path of the URL right?",
    405: "Is this the URL of an MCP endpoint over Streamable HTTP?",
    413: "The message is larger than the server takes",
    429: "The server asks to slow down",
    431: "The headers are larger than the server takes",
}


ErrorT = TypeVar("ErrorT", bound=HttpStatus)


def excerpt(body: bytes) -> str:
    """The start of a body that is no message, on one line, fit for an error."""
    text = body[: EXCERPT_BYTES + 1].decode("utf-8", "replace")
    return shorten(" ".join("".join(c if c.isprintable() else " " for c in text).split()), EXCERPT_BYTES)


def status_error(
    what: str, status: int, headers: Mapping[str, str], body: bytes = b"", error: ErrorObject | None = None
) -> HttpStatus:
    """The error for an HTTP status: what was asked, what came, what to do."""
    return _told(HttpStatus, what, status, headers, body, error)


def session_ended(
    what: str, status: int, headers: Mapping[str, str], body: bytes = b"", error: ErrorObject | None = None
) -> SessionEnded:
    """The error for a session that the server no longer knows."""
    return _told(SessionEnded, what, status, headers, body, error)


def _told(
    kind: type[ErrorT], what: str, status: int, headers: Mapping[str, str], body: bytes, error: ErrorObject | None
) -> ErrorT:
    text = excerpt(body)
    said = f"{error.message} ({error.code})" if error is not None else text
    parts = [f"{what}: HTTP {status}", shorten(said), _HINTS.get(status, "")]
    message = ". ".join(part for part in parts if part)
    telling = {name: headers[name] for name in _TELLING if name in headers}
    return kind(message, status, telling, text, error)
