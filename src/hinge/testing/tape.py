"""A recording as a file: one JSON object a line, the first says the format. Writes and reads it; knows no method.

{"recording": 1, "by": "hinge 1.0", "side": "client"}
{"open": 1, "kind": "stdio"}
{"from": "client", "channel": 1, "message": {…}}
{"from": "server", "channel": 1, "about": 3, "message": {…}}     `about`: the request on whose stream it came
{"from": "server", "channel": 1, "text": "no JSON at all"}       or "base64", or "unreadable": the number of bytes
{"failed": 4, "channel": 1, "error": "HttpStatus", "status": 503}
{"close": 1, "by": "server", "reason": "…"}
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw

from hinge.channel import ChannelKind
from hinge.errors import CallError, StartError
from hinge.jsonrpc import RequestId
from hinge.testing.tap import Said, Side
from hinge.transports.stream.framing import one_line

logger = logging.getLogger("hinge")

#: The format that is written, and the newest that can be read.
FORMAT = 1
#: Bytes of one recording, written or read, unless told otherwise.
MAX_BYTES = 64 * 1024 * 1024
#: The only headers that are written. Whoever is let in by a header, or found again by it, is nobody's business.
_KEPT_HEADERS = ("mcp-protocol-version", "mcp-method", "mcp-name", "last-event-id")
_KEPT_PREFIX = "mcp-param-"

#: Takes a message and gives back the one to be written, or None when it changed the message in place.
Redact: TypeAlias = Callable[[dict[str, Any]], dict[str, Any] | None]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a recording after the first; `line` counts from 1."""

    line: int
    channel: int
    kind: Literal["open", "close", "message", "text", "failed"]
    sender: Side = "client"
    message: Mapping[str, Any] = {}
    text: bytes = b""
    about: RequestId | None = None
    headers: Mapping[str, str] = {}
    #: Of "failed": the request, and the HTTP status where there was one.
    request_id: RequestId | None = None
    status: int | None = None
    #: Of "open": the kind of channel. Of "failed": of error. Of "close": the reason.
    words: str = ""


# ---------------------------------------------------------------- writing


class Tape:
    """Writes what it hears, line by line: a crash leaves what was said until then. It holds no file open.

    What keeps it from writing is logged once, and never disturbs the conversation.
    """

    def __init__(
        self, path: Path, side: Side, *, redact: Redact | None = None, max_bytes: int = MAX_BYTES, after: int = 0
    ) -> None:
        self._path = path
        self._side: Side = side
        self._redact = redact
        self._left = max_bytes
        self._channels = 0
        self._stopped = False
        if after:
            self._go_on(after)
        else:
            self._begin()

    def _begin(self) -> None:
        head = {"recording": FORMAT, "by": f"hinge {metadata.version('hinge')}", "side": self._side}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_bytes(b"")
        except OSError as exc:
            raise StartError(f"The recording {self._path} can't be written: {exc.strerror or exc}") from exc
        self._write(head)

    def _go_on(self, after: int) -> None:
        """Add to what is there: cut off a line that a crash left half, count on from the last channel."""
        with self._path.open("r+b") as file:
            file.truncate(after)
        self._left -= after
        self._channels = max((entry.channel for entry in read(self._path)), default=0)

    def opened(self, kind: ChannelKind) -> int:
        """See Listener."""
        self._channels += 1
        self._write({"open": self._channels, "kind": kind})
        return self._channels

    def said(self, said: Said) -> None:
        """See Listener."""
        line: dict[str, Any] = {"from": said.sender, "channel": said.channel}
        if said.about is not None:
            line["about"] = said.about
        content, changed = self._content(said.data)
        headers = _kept(said.headers or {}, mirrors=not changed)
        if headers:
            line["headers"] = headers
        self._write({**line, **content})

    def failed(self, channel: int, request_id: RequestId | None, error: CallError) -> None:
        """See Listener. The text of the error isn't written: it may quote anything."""
        line = {"failed": request_id, "channel": channel, "error": type(error).__name__}
        status = getattr(error, "status", None)
        self._write(line if status is None else {**line, "status": status})

    def closed(self, channel: int, by: Side, reason: str) -> None:
        """See Listener."""
        self._write({"close": channel, "by": by, "reason": reason})

    def _content(self, data: bytes) -> tuple[dict[str, Any], bool]:
        """How a message is written, and whether that is another text than was said."""
        try:
            if self._redact is None:
                msgspec.json.decode(data, type=Raw)
                data.decode()
                return {"message": Raw(one_line(data))}, False
            return self._redacted(msgspec.json.decode(data), self._redact)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            if self._redact is not None:
                return {"unreadable": len(data)}, True
        try:
            return {"text": data.decode()}, False
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(data).decode()}, False

    def _redacted(self, message: Any, redact: Redact) -> tuple[dict[str, Any], bool]:
        before = msgspec.json.encode(message)
        try:
            if isinstance(message, list):
                message = [redacted(one, redact) for one in message]
            elif isinstance(message, dict):
                message = redacted(message, redact)
            after = msgspec.json.encode(message)
        except Exception:
            logger.exception("redact= failed, so a message is not in the recording %s", self._path)
            return {"unreadable": len(before)}, True
        return {"message": Raw(after)}, after != before

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._stopped:
            return
        data = msgspec.json.encode(line) + b"\n"
        self._left -= len(data)
        try:
            if self._left < 0:
                raise OSError("it has reached max_bytes")
            with self._path.open("ab") as file:
                file.write(data)
        except OSError as exc:
            self._stopped = True
            logger.warning("Nothing more is written to the recording %s: %s", self._path, exc.strerror or exc)


def redacted(message: Any, redact: Redact | None) -> Any:
    """A message as it is written. `redact` may change it in place, so give it one of its own."""
    if redact is None or not isinstance(message, dict):
        return message
    changed = redact(message)
    return message if changed is None else changed


def _kept(headers: Mapping[str, str], *, mirrors: bool) -> dict[str, str]:
    """The headers that are written. Those that repeat the message only if the message stands there as it was said."""
    found = {}
    for name, value in headers.items():
        lower = name.lower()
        mirror = lower.startswith(_KEPT_PREFIX) or lower == "mcp-name"
        if (lower in _KEPT_HEADERS or mirror) and (mirrors or not mirror):
            found[lower] = value
    return found


# ---------------------------------------------------------------- reading


def read(path: Path, max_bytes: int = MAX_BYTES) -> list[Entry]:
    """All lines but the first; a last one that was cut off is left out.

    Raises StartError, with the line, for what is no recording, is of a newer format or too long.
    """
    return list(_entries(path, _text(path, max_bytes)))


def whole(path: Path, max_bytes: int = MAX_BYTES) -> int:
    """How many bytes of the file are whole lines."""
    return _text(path, max_bytes).rfind(b"\n") + 1


def _text(path: Path, max_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(max_bytes + 1)
    except OSError as exc:
        raise StartError(f"The recording {path} can't be read: {exc.strerror or exc}") from exc
    if len(text) > max_bytes:
        raise StartError(f"The recording {path} has more than {max_bytes} bytes: raise max_bytes= to read it")
    return text


def _entries(path: Path, text: bytes) -> Iterator[Entry]:
    lines = text.split(b"\n")
    lines.pop()  # empty, or what a crash left of a line
    for number, line in enumerate(lines, 1):
        try:
            found = msgspec.json.decode(line, type=dict[str, Any])
            if number == 1:
                _check_head(path, found)
            elif isinstance(found.get("message"), list):  # a batch
                yield from (_entry(number, {**found, "message": one}) for one in found["message"])
            else:
                yield _entry(number, found)
        except (msgspec.MsgspecError, KeyError, ValueError, TypeError) as exc:
            raise StartError(f"{path}, line {number}, is no line of a recording: {exc}") from exc
    if not lines:
        raise StartError(f"{path} is no recording: it is empty")


def _check_head(path: Path, head: dict[str, Any]) -> None:
    written = head.get("recording")
    if not isinstance(written, int):
        raise StartError(f'{path} is no recording: its first line has to hold {{"recording": {FORMAT}}}')
    if written > FORMAT:
        raise StartError(f"{path} is a recording of format {written}; this version of Hinge reads {FORMAT}: upgrade it")


def _entry(line: int, found: dict[str, Any]) -> Entry:
    if "open" in found:
        return Entry(line=line, channel=int(found["open"]), kind="open", words=str(found.get("kind", "")))
    if "close" in found:
        by, reason = _side(found["by"]), str(found.get("reason", ""))
        return Entry(line=line, channel=int(found["close"]), kind="close", sender=by, words=reason)
    channel = int(found["channel"])
    if "failed" in found:
        request_id, status, words = _id(found["failed"]), found.get("status"), str(found.get("error", ""))
        return Entry(line=line, channel=channel, kind="failed", request_id=request_id, status=status, words=words)
    sender, about = _side(found["from"]), found.get("about")
    if "message" in found:
        headers = msgspec.convert(found.get("headers", {}), dict[str, str])
        if not _is_message(found["message"]):  # JSON, but nothing that could be understood
            text = msgspec.json.encode(found["message"])
            return Entry(line=line, channel=channel, kind="text", sender=sender, text=text, about=about)
        message: dict[str, Any] = found["message"]
        return Entry(
            line=line, channel=channel, kind="message", sender=sender, message=message, about=about, headers=headers
        )
    text = base64.b64decode(found["base64"]) if "base64" in found else str(found.get("text", "")).encode()
    return Entry(line=line, channel=channel, kind="text", sender=sender, text=text, about=about)


def _is_message(found: Any) -> bool:
    if not isinstance(found, dict) or not isinstance(found.get("method", ""), str):
        return False
    request_id, params = found.get("id"), found.get("params", {})
    return (
        isinstance(params, dict) and isinstance(request_id, str | int | None) and ("id" in found or "method" in found)
    )


def _id(found: Any) -> RequestId:
    if not isinstance(found, str | int):
        raise ValueError(f"{found!r} is no id of a request")
    return found


def _side(name: Any) -> Side:
    if name not in ("client", "server"):
        raise ValueError(f"{name!r} is neither client nor server")
    side: Side = name
    return side
