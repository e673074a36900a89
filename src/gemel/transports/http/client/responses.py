"""Read the responses of a server: event streams, when to reopen one, and the errors for refused requests."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping

from gemel.errors import ConnectionLost, ErrorObject, HttpStatus, InvalidResponse, shorten
from gemel.http1.client.wire import WireResponse
from gemel.jsonrpc import is_batch
from gemel.protocol.http.media_types import EVENT_STREAM, media_type, parse_media_type
from gemel.protocol.http.sse import Decoder, Event
from gemel.visible import escape_log

# --- What a body holds ------------------------------------------------------------------------------------------------

_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")


def begins_message(body: bytes) -> bool:
    """Whether content may be a message or a batch."""
    return _beginning(body)[:1] in (b"{", b"[")


def begins_events(body: bytes) -> bool:
    """Whether content may be an event stream."""
    return _beginning(body).startswith(_FIELDS)


def _beginning(body: bytes) -> bytes:
    return body[:1024].removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")


def in_utf8(body: bytes, content_type: str) -> bytes | None:
    """Content in UTF-8 that is in another encoding, which its content type names; None if it names none, or a wrong one."""
    parsed = parse_media_type(content_type)
    charset = parsed[1].get("charset", "utf-8") if parsed is not None else "utf-8"
    if charset.lower() in ("utf-8", "utf8"):
        return None
    try:
        body.decode()
    except UnicodeDecodeError:
        pass
    else:
        return None
    try:
        return body.decode(charset).encode()
    except (LookupError, UnicodeError):
        return None


# --- Event streams ----------------------------------------------------------------------------------------------------

#: Event ids that are longer can't go back in a header.
_ID_LENGTH = 4096
#: Events that are handed out, or one batch, and bytes that are decoded, before other tasks run.
EVENTS_AT_ONCE = 100
DECODED_AT_ONCE = 32 * 1024


def is_event_stream(response: WireResponse) -> bool:
    """Whether the response is 200 with an event stream."""
    return response.status == 200 and media_type(response.headers.get("content-type")) == EVENT_STREAM


class EventReader:
    """Reads the events of one response.

    What arrived at once is handed out in parts, between which other tasks run: it may be some ten thousand events.

    Args:
        response: The response.
        limit: Bytes of an event.
        start: The start of the content, if it was read before.
    """

    __slots__ = ("_decoder", "_ended", "_events", "_position", "_response", "_unread")

    def __init__(self, response: WireResponse, limit: int, start: bytes = b"") -> None:
        self._response = response
        self._decoder = Decoder(limit)
        self._ended = False
        #: Bytes that are not decoded yet, from a position on, and decoded events that are not handed out.
        self._unread = start
        self._position = 0
        self._events: list[Event] = []

    async def read(self) -> list[Event] | None:
        """Read the next events; None at a regular end of the stream.

        Raises:
            ConnectionLost: The stream broke off.
            InvalidResponse: An event exceeds the limit.
        """
        if self._events:
            await asyncio.sleep(0)
        while not self._events:
            if self._position < len(self._unread):
                if self._position:
                    await asyncio.sleep(0)
            elif self._ended:
                return None
            else:
                self._unread, self._position = await self._response.read(), 0
                self._ended = not self._unread
            self._events = self._decode()
        events = self._events
        if len(events) == 1:
            self._events = []
            return events
        count = next((n for n, event in enumerate(events[:EVENTS_AT_ONCE], 1) if is_batch(event.data)), EVENTS_AT_ONCE)
        self._events = events[count:]
        return events[:count]

    def _decode(self) -> list[Event]:
        """Decode a part of what was read."""
        if self._ended:
            return self._decoder.end()
        begin, self._position = self._position, self._position + DECODED_AT_ONCE
        if self._position < len(self._unread):
            return self._decoder.feed(self._unread[begin : self._position])
        last, self._unread = self._unread[begin:], b""
        return self._decoder.feed(last)


class Reconnection:
    """Where to resume a stream, and when: after 0.5 s to 30 s, doubling, with jitter; after 8 tries without progress, never.

    The server's `retry` makes a wait longer, not shorter. The minimum is 0.2 s. Tries that follow each other in less than
    5 s are limited to 100 whatever the progress: a server that ends each stream after one message is given up.
    """

    FIRST = 0.5
    MOST = 30.0
    FLOOR = 0.2
    TRIES = 8
    QUICK = 5.0
    QUICK_TRIES = 100

    __slots__ = ("last_id", "last_try", "quick_tries", "retry", "tries")

    def __init__(self) -> None:
        #: The id of the last event, "" if the stream can't be resumed.
        self.last_id = ""
        #: The wait in seconds that the server asks for.
        self.retry = 0.0
        self.tries = self.quick_tries = 0
        self.last_try = 0.0

    def note(self, event: Event) -> None:
        """Remember the id and `retry` of an event."""
        if event.id is not None:
            usable = event.id.isprintable() and len(event.id) <= _ID_LENGTH
            self.last_id = event.id if usable else ""
        if event.retry is not None:
            self.retry = event.retry / 1000

    def progress(self) -> None:
        """Reset the tries: a message came."""
        self.tries = 0

    def next_delay(self) -> float | None:
        """Return the seconds until the next try, None after the last one."""
        now = time.monotonic()
        self.quick_tries += now - self.last_try < self.QUICK
        self.last_try = now
        if self.tries >= self.TRIES or self.quick_tries >= self.QUICK_TRIES:
            return None
        longest = min(self.FIRST * float(2**self.tries), self.MOST)
        self.tries += 1
        return max(self.retry, self.FLOOR, longest * random.uniform(0.5, 1.0))


# --- Errors -----------------------------------------------------------------------------------------------------------

#: Bytes that are read of a body of which only an excerpt is needed, and of it in an error text.
ERROR_BYTES = 4096
_EXCERPT_BYTES = 200
#: The headers of an error response that an HttpStatus keeps.
_KEPT_HEADERS = ("www-authenticate", "dpop-nonce", "retry-after", "location", "content-type", "allow")

_HINTS = {
    401: 'The server wants authorization (auth="oauth" or auth=… in code, "headers" in a configuration, --header on the '
    "command line)",
    403: "The credentials do not allow it, or the server refuses where it comes from (Origin, Host)",
    404: "Is the path of the URL right?",
    405: "Is this the URL of an MCP endpoint over Streamable HTTP?",
    413: "The message is larger than the server takes",
    429: "The server asks to slow down",
    431: "The headers are larger than the server takes",
}
#: What it means if no MCP server sent the status.
_GATEWAY_HINTS = {
    502: "A proxy answered, because it lost the server behind it: the request may have run",
    503: "A proxy answered, because the server behind it is away or has too much to do",
    504: "A proxy answered, because the server behind it did not answer in time: the request may have run",
}

#: What is said in place of a body that is a web page.
_PAGE = "It answers with a web page, not as an MCP endpoint does"


def excerpt(body: bytes) -> str:
    """The start of a body in one line, fit for an error: without credentials, which some servers repeat."""
    text = escape_log(body[: 2 * _EXCERPT_BYTES].decode("utf-8", "replace"))
    return shorten(" ".join("".join(c if c.isprintable() else " " for c in text).split()), _EXCERPT_BYTES)


def status_error(
    what: str,
    status: int,
    headers: Mapping[str, str],
    body: bytes = b"",
    error: ErrorObject | None = None,
    kind: type[HttpStatus] = HttpStatus,
) -> HttpStatus:
    """Make the error for an HTTP status: what was requested, what came, what to do."""
    text = excerpt(body)
    is_page = headers.get("content-type", "").startswith("text/html")
    details = f"{error.message} ({error.code})" if error is not None else _PAGE if is_page else text
    hint = "" if status == 403 and error is not None else _HINTS.get(status, "")  # an MCP server gives the exact reason
    if error is None and status in _GATEWAY_HINTS:
        details, hint = "" if is_page else text, _GATEWAY_HINTS[status]
    parts = [f"{what}: HTTP {status}", shorten(details), hint]
    kept = {name: headers[name] for name in _KEPT_HEADERS if name in headers}
    return kind(". ".join(part for part in parts if part), status, kept, text, error)


async def read_start(response: WireResponse, limit: int = ERROR_BYTES) -> bytes:
    """Read about `limit` bytes of a body and discard the rest. A broken connection counts as the end."""
    parts: list[bytes] = []
    size = 0
    try:
        while size < limit and (piece := await response.read()):
            parts.append(piece)
            size += len(piece)
    except (ConnectionLost, InvalidResponse):
        pass
    response.close()
    return b"".join(parts)


async def refusal_of(response: WireResponse, what: str) -> HttpStatus:
    """Make the error for a response with an excerpt of its body."""
    return status_error(what, response.status, response.headers, await read_start(response))
