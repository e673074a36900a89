"""Server-sent events: encode one event, decode a stream of chunks (WHATWG HTML, section "Server-sent events")."""

from __future__ import annotations

from typing import NamedTuple

from gemel.errors import InvalidResponse
from gemel.protocol.limits import over_limit

_BOM = b"\xef\xbb\xbf"
_LF, _CR, _COLON = b"\n\r:"
#: Default limit of one event; clients pass their own.
DEFAULT_EVENT_BYTES = 64 * 1024 * 1024
#: Longer `retry` values (more than 31 years in milliseconds) are nonsense, and int() of endless digits is slow.
_RETRY_DIGITS = 12


class Event(NamedTuple):
    """One event of a stream.

    Attributes:
        type: The event type, "message" by default.
        data: The data lines joined with LF; empty for an event that carries only an id or a retry time.
        id: The id, None if the event has none.
        retry: The reconnection time in milliseconds, None if the event has none.
    """

    type: str
    data: bytes
    id: str | None
    retry: int | None


def encode(data: bytes, *, event: str | None = None, id: str | None = None, retry: int | None = None) -> bytes:
    """Encode one event.

    Args:
        data: The content. Line ends in it (LF, CRLF, CR) arrive as LF.
        event: The event type, "message" by default.
        id: The event id.
        retry: The reconnection time in milliseconds.

    Raises:
        ValueError: `event` or `id` contains a line end, or `retry` is negative.
    """
    if _LF in data or _CR in data:
        data = b"\ndata: ".join(data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"))
    if event is None and id is None and retry is None:
        return b"data: %b\n\n" % data
    return b"%bdata: %b\n\n" % (_fields(event, id, retry), data)


def _fields(event: str | None, event_id: str | None, retry: int | None) -> bytes:
    lines: list[str] = []
    if event is not None:
        if "\n" in event or "\r" in event:
            raise ValueError(f"An SSE event type is one line; {event!r} isn't")
        lines.append(f"event: {event}\n")
    if event_id is not None:
        if "\n" in event_id or "\r" in event_id or "\0" in event_id:
            raise ValueError(f"An SSE event id is one line without NUL; {event_id!r} isn't")
        lines.append(f"id: {event_id}\n")
    if retry is not None:
        if retry < 0:
            raise ValueError(f"An SSE retry time is a number of milliseconds, 0 or more; {retry} isn't")
        lines.append(f"retry: {retry}\n")
    return "".join(lines).encode()


def priming(id: str, retry: int | None = None) -> bytes:
    """Encode the event that opens a resumable stream: an id and empty data.

    Args:
        id: The event id.
        retry: Milliseconds that the client should wait before it reconnects.
    """
    return encode(b"", id=id, retry=retry)


def comment(text: str = "") -> bytes:
    """Encode a comment, which readers ignore; it keeps a quiet stream open.

    Args:
        text: The comment. Line ends in it make several comments.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "".join(f": {line}\n" if line else ":\n" for line in lines).encode() + b"\n"


class Decoder:
    """Events from the chunks of one stream, however they are cut; the work is linear in the bytes, whatever the cuts.

    Lines end in LF, CRLF or CR, comments and unknown fields are skipped, a BOM at the start is dropped. An event may
    hold `max_event_bytes` bytes (its lines, without comments); memory stays in proportion to that and to one chunk.
    """

    __slots__ = (
        *("_after_cr", "_comment", "_failed", "_limit", "_partial", "_start"),
        *("_data", "_id", "_retry", "_size", "_type"),
    )

    def __init__(self, max_event_bytes: int = DEFAULT_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        #: The stream's first bytes while they may still become a BOM; None once that is settled.
        self._start: bytes | None = b""
        self._partial = bytearray()
        #: The line being received is a comment, of which nothing is kept.
        self._comment = False
        self._after_cr = False
        self._failed = False
        self._clear()

    def _clear(self) -> None:
        self._type = ""
        self._data: bytes | bytearray | None = None
        self._id: str | None = None
        self._retry: int | None = None
        self._size = 0

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes and return the events that they complete.

        Raises:
            InvalidResponse: An event exceeds the limit. Events before it are returned first; then each further call of
                `feed` or `end` raises.
        """
        self._check()
        if self._start is not None:
            chunk = self._skip_bom(self._start + chunk)
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[0] == _LF:
                chunk = chunk[1:]
        if not chunk:
            return []
        lines = chunk.splitlines()
        self._after_cr = chunk[-1] == _CR
        incomplete_line = b"" if chunk[-1] in b"\r\n" else lines.pop()
        events = self._lines(lines) if lines else []
        if incomplete_line and not self._failed:
            self._keep(incomplete_line)
        if not events:
            self._check()
        return events

    def end(self) -> list[Event]:
        """Return the last event of a stream that ended regularly, even if its blank line is missing.

        Not for a stream that broke off: half an event would look like a whole one.

        Raises:
            InvalidResponse: An event exceeds the limit.
        """
        self._check()
        head, self._start = self._start, None
        events = self._lines([head]) if head else []
        if self._partial or self._comment:
            events += self._lines([b""])
        self._check()
        self._dispatch(events)
        return events

    def _skip_bom(self, head: bytes) -> bytes:
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._start = head
            return b""
        self._start = None
        return head.removeprefix(_BOM)

    def _keep(self, start: bytes) -> None:
        """Keep the start of an incomplete line; of a comment, only that it is one."""
        if self._comment or (not self._partial and start[0] == _COLON):
            self._comment = True
        elif self._size + len(self._partial) + len(start) > self._limit:
            self._fail()
        else:
            self._partial += start

    def _lines(self, lines: list[bytes]) -> list[Event]:
        """Process complete lines; the first one completes what was kept."""
        events: list[Event] = []
        if self._comment:
            self._comment = False
            lines[0] = b":"
        elif self._partial:
            self._partial += lines[0]
            lines[0] = bytes(self._partial)
            self._partial.clear()
        for line in lines:
            if not line:
                self._dispatch(events)
            elif line[0] != _COLON:
                self._size += len(line) + 1
                if self._size > self._limit + 1:
                    self._fail()
                    break
                self._field(line)
        return events

    def _field(self, line: bytes) -> None:
        if line.startswith(b"data: "):
            name, value = b"data", line[6:]
        else:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
        if name == b"data":
            if self._data is None:
                self._data = value
            else:
                if not isinstance(self._data, bytearray):
                    self._data = bytearray(self._data)
                self._data += b"\n"
                self._data += value
        elif name == b"event":
            self._type = value.decode("utf-8", "replace")
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= _RETRY_DIGITS:
            self._retry = int(value)

    def _dispatch(self, events: list[Event]) -> None:
        """At a blank line: emit the event unless it is empty, and begin the next."""
        if self._data is not None or self._id is not None or self._retry is not None:
            events.append(Event(self._type or "message", bytes(self._data or b""), self._id, self._retry))
        if self._size:
            self._clear()

    def _fail(self) -> None:
        self._failed = True
        self._partial.clear()
        self._clear()

    def _check(self) -> None:
        if self._failed:
            raise InvalidResponse(over_limit("a server-sent event", "reply", self._limit))
