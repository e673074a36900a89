"""What a client says when the server answered with an HTTP status instead of a message. Knows statuses, no sockets."""

from __future__ import annotations

from collections.abc import Mapping

from hinge.errors import CallError, ErrorObject, Outcome, shorten

#: This much of a body that is no message stands in an error.
EXCERPT_BYTES = 200
#: The headers of a refusal that tell what to do next.
_TELLING = ("www-authenticate", "retry-after", "location", "content-type", "allow")

_HINTS = {
    401: "The server wants authorization: pass `auth`",
    403: "The credentials do not allow it, or the server refuses where it comes from (Origin, Host)",
    404: "Is the path of the URL right?",
    405: "Is this the URL of an MCP endpoint over Streamable HTTP?",
    413: "The message is larger than the server takes",
    429: "The server asks to slow down",
    431: "The headers are larger than the server takes",
}


def excerpt(body: bytes) -> str:
    """The start of a body that is no message, on one line, fit for an error."""
    text = body[: EXCERPT_BYTES + 1].decode("utf-8", "replace")
    return shorten(" ".join("".join(c if c.isprintable() else " " for c in text).split()), EXCERPT_BYTES)


class HttpStatus(CallError):
    """The server answered a message with an HTTP error status, or with a redirect that isn't followed.

    `status` is the status, `headers` the ones that tell what to do next (`www-authenticate`, `retry-after`, `location`,
    `content-type`, `allow`; lower-case names), `body` the first 200 bytes as text, `error` the JSON-RPC error object in
    the body, if there was one that names no request or another one. 401 and 403 always come as this class.
    """

    outcome = Outcome.ANSWERED

    def __init__(
        self, what: str, status: int, headers: Mapping[str, str], body: bytes = b"", error: ErrorObject | None = None
    ) -> None:
        self.status = status
        self.headers = {name: headers[name] for name in _TELLING if name in headers}
        self.body = excerpt(body)
        self.error = error
        said = f"{error.message} ({error.code})" if error is not None else self.body
        parts = [f"{what}: HTTP {status}", shorten(said), _HINTS.get(status, "")]
        super().__init__(". ".join(part for part in parts if part))

    @property
    def retry_after(self) -> float | None:
        """The seconds to wait before the next attempt, if the server named a number."""
        text = self.headers.get("retry-after", "")
        return float(text) if text.isdecimal() and text.isascii() and len(text) < 8 else None


class SessionEnded(HttpStatus):
    """The server no longer knows the session (404): the message was not served. Begin with `initialize` (LHTTP-25)."""
