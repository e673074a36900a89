"""The file of a recording: its format, writing and reading it, and which message belongs to which request.

There is one JSON object on each line; the first gives the version of the format:

    {"recording": 1, "by": "gemel", "side": "client"}
    {"open": 1, "kind": "stdio"}
    {"from": "client", "channel": 1, "message": {…}}
    {"from": "server", "channel": 1, "about": 3, "message": {…}}     `about`: the request on whose stream it came
    {"from": "server", "channel": 1, "text": "not JSON"}             or "unreadable": the number of bytes
    {"failed": 4, "channel": 1, "error": "HttpStatus", "status": 503}
    {"close": 1, "by": "server", "reason": "…"}
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from gemel.channel import ChannelKind
from gemel.errors import CallError, StartError
from gemel.jsonrpc import RequestId
from gemel.schema.base import SUBSCRIPTION_ID
from gemel.testing.wire_log import SeenMessage, Side
from gemel.transports.stream.line_channel import one_line
from gemel.user_files import append_to_file, replace_file, truncate_file, writing

logger = logging.getLogger("gemel")

#: The version of the format that is written, and the newest that can be read.
FORMAT = 1
#: The default limit for the size of a recording in bytes.
MAX_BYTES = 64 * 1024 * 1024

#: Takes a message and returns the one to write, or None if it changed the message in place.
Redact: TypeAlias = Callable[[dict[str, Any]], dict[str, Any] | None]


class RecordedLine(msgspec.Struct, kw_only=True, rename={"sender": "from"}):
    """One line of a recording after the first. The members are those of the file, except `line`, its number."""

    line: int = 0
    channel: int = 0
    open: int | None = None
    kind: str = ""
    close: int | None = None
    by: Side = "client"
    reason: str = ""
    failed: RequestId | None = None
    error: str = ""
    status: int | None = None
    sender: Side = "client"
    about: RequestId | None = None
    message: Any = UNSET
    text: str | None = None

    def __post_init__(self) -> None:
        for number in (self.open, self.close):
            if number is not None:
                self.channel = number
        if self.message is not UNSET and not _is_message(self.message):  # JSON, but not a message
            self.text = msgspec.json.encode(self.message).decode()
            self.message = UNSET

    @property
    def params(self) -> Mapping[str, Any]:
        """The params of the message; empty if they are missing."""
        params: Mapping[str, Any] = self.message.get("params", {})
        return params


# ---------------------------------------------------------------- writing


class RecordingWriter:
    """Writes what it observes line by line, so that a crash loses nothing. It keeps no file open.

    An error when writing is logged once; it does not disturb the session.
    """

    def __init__(
        self, path: Path, side: Side, *, redact: Redact | None = None, max_bytes: int = MAX_BYTES, after: int = 0
    ) -> None:
        self._path = path
        self._redact = redact
        self._bytes_left = max_bytes
        self._channels = 0
        self._stopped = False
        if after:
            self._continue(after)
        else:
            self._begin(side)

    def _begin(self, side: Side) -> None:
        _refuse_to_overwrite(self._path)
        with writing(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, b"")
        self._write({"recording": FORMAT, "by": "gemel", "side": side})

    def _continue(self, after: int) -> None:
        """Append to the file: remove an incomplete last line, continue to count channels."""
        with writing(self._path):
            truncate_file(self._path, after)
        self._bytes_left -= after
        self._channels = max((entry.channel for entry in read_recording(self._path)), default=0)

    def on_open(self, kind: ChannelKind) -> int:
        """See MessageObserver."""
        self._channels += 1
        self._write({"open": self._channels, "kind": kind})
        return self._channels

    def on_message(self, message: SeenMessage) -> None:
        """See MessageObserver."""
        line: dict[str, Any] = {"from": message.sender, "channel": message.channel}
        if message.about is not None:
            line["about"] = message.about
        self._write({**line, **self._content(message.data)})

    def on_failure(self, channel: int, request_id: RequestId | None, error: CallError) -> None:
        """See MessageObserver. The text of the error isn't written: it may contain secrets."""
        line = {"failed": request_id, "channel": channel, "error": type(error).__name__}
        status = getattr(error, "status", None)
        self._write(line if status is None else {**line, "status": status})

    def on_close(self, channel: int, by: Side, reason: str) -> None:
        """See MessageObserver."""
        self._write({"close": channel, "by": by, "reason": reason})

    def _content(self, data: bytes) -> dict[str, Any]:
        """Return the members of a line for a message."""
        try:
            message = msgspec.json.decode(data)
            data.decode()
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {"text": data.decode("utf-8", "replace")} if self._redact is None else {"unreadable": len(data)}
        if self._redact is None:
            return {"message": Raw(one_line(data))}
        try:
            if isinstance(message, list):
                return {"message": [redact_message(item, self._redact) for item in message]}
            return {"message": redact_message(message, self._redact)}
        except Exception:
            logger.exception("redact failed, so a message is missing in the recording %s", self._path)
            return {"unreadable": len(data)}

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._stopped:
            return
        data = msgspec.json.encode(line) + b"\n"
        self._bytes_left -= len(data)
        try:
            if self._bytes_left < 0:
                raise OSError("it reached max_bytes")
            append_to_file(self._path, data)
        except OSError as exc:
            self._stopped = True
            logger.warning("The recording %s ends here: %s", self._path, exc.strerror or exc)


def redact_message(message: object, redact: Redact | None) -> Any:
    """Return a message as it is written. `redact` may change the given one in place."""
    if redact is None or not isinstance(message, dict):
        return message
    changed = redact(message)
    return message if changed is None else changed


# ---------------------------------------------------------------- reading


def read_recording(path: Path, max_bytes: int = MAX_BYTES) -> list[RecordedLine]:
    """Read all lines except the first; an incomplete last line is ignored.

    Raises StartError, with the line, if it is not a recording, too long, or in a newer format.
    """
    return list(_entries(path, _read_text(path, max_bytes)))


def complete_size(path: Path, max_bytes: int = MAX_BYTES) -> int:
    """Return how many bytes of the file are complete lines."""
    return _read_text(path, max_bytes).rfind(b"\n") + 1


def _read_text(path: Path, max_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(max_bytes + 1)
    except OSError as exc:
        raise StartError(f"The recording {path} can't be read: {exc.strerror or exc}") from exc
    if len(text) > max_bytes:
        raise StartError(f"The recording {path} has more than {max_bytes} bytes: raise max_bytes= to read it")
    return text


def _entries(path: Path, text: bytes) -> Iterator[RecordedLine]:
    lines = text.split(b"\n")
    lines.pop()  # empty, or incomplete after a crash
    if not lines:
        raise StartError(f"{path} is not a recording: it is empty")
    for number, line in enumerate(lines, 1):
        try:
            content = msgspec.json.decode(line, type=dict[str, Any])
            if number == 1:
                _check_head(path, content)
                continue
            content["line"] = number
            message = content.get("message")
            for item in message if isinstance(message, list) else (message,):  # a list is a batch
                members = content if message is None else {**content, "message": item}
                yield msgspec.convert(members, RecordedLine)
        except (msgspec.MsgspecError, ValueError) as exc:
            raise StartError(f"{path}, line {number}, is not a line of a recording: {exc}") from exc


def _refuse_to_overwrite(path: Path) -> None:
    """Raises StartError if there is a file that isn't a recording, which a mistyped command would destroy."""
    if path.exists() and not path.is_file():  # a pipe would wait for its other end
        raise StartError(f"{path} exists and is not a recording: it is not overwritten")
    try:
        with path.open("rb") as file:
            head = file.read(200)
    except OSError:  # missing, or told by the attempt to write it
        return
    if head.strip() and not head.startswith(b'{"recording"'):
        raise StartError(f"{path} exists and is not a recording: it is not overwritten")


def _check_head(path: Path, head: dict[str, Any]) -> None:
    version = head.get("recording")
    if not isinstance(version, int):
        raise StartError(f'{path} is not a recording: the first line must contain {{"recording": {FORMAT}}}')
    if version > FORMAT:
        raise StartError(f"{path} has format {version}; this version of Gemel reads {FORMAT}: upgrade Gemel")


def _is_message(content: object) -> bool:
    if not isinstance(content, dict) or not isinstance(content.get("method", ""), str):
        return False
    return (
        isinstance(content.get("params", {}), dict)
        and isinstance(content.get("id"), str | int | None)
        and ("id" in content or "method" in content)
    )


LISTEN = "subscriptions/listen"

#: How a request ended: with a response, cancelled by the client, because the server closed the channel, because the
#: transport failed; "open": not before the end of the recording.
Ending: TypeAlias = Literal["answered", "cancelled", "cut", "failed", "open"]


class ServerMessage(msgspec.Struct, frozen=True):
    """A notification of the server, or a line that is not a message. It was sent after the client's message number `after`."""

    entry: RecordedLine
    after: int = 0


class ServerRequest(msgspec.Struct, eq=False):
    """A request of the server, with the response of the client if it came."""

    entry: RecordedLine
    answer: RecordedLine | None = None


class ClientAnswer(msgspec.Struct, frozen=True):
    """The client responds to a request of the server before the server sends more."""

    request: ServerRequest


RecordedStep: TypeAlias = ServerMessage | ServerRequest | ClientAnswer


class RecordedCall(msgspec.Struct, eq=False):
    """A request or notification of the client, and what belongs to it. `number` counts them from 1."""

    number: int
    entry: RecordedLine
    steps: list[RecordedStep] = []
    answer: RecordedLine | None = None
    ending: Ending = "open"
    #: What the server sent after the end of the call, while no other was being served.
    followers: list[RecordedStep] = []

    @property
    def method(self) -> str:
        """The method."""
        return str(self.entry.message["method"])

    @property
    def params(self) -> Mapping[str, Any]:
        """The recorded params."""
        return self.entry.params

    @property
    def id(self) -> RequestId | None:
        """The recorded id; None for a notification."""
        request_id: RequestId | None = self.entry.message.get("id")
        return request_id


class RecordedSession(msgspec.Struct, eq=False):
    """A whole recording; `calls` in the order in which the client sent them."""

    entries: Sequence[RecordedLine]
    calls: list[RecordedCall] = []
    #: What the server sent before the first message of the client.
    opening: list[RecordedStep] = []
    #: The calls that begin and end at a line, by its number.
    begins: dict[int, list[RecordedCall]] = {}
    ends: dict[int, list[RecordedCall]] = {}


class _ChannelState:
    """The state of one channel while a recording is parsed."""

    def __init__(self) -> None:
        self.running: dict[RequestId, RecordedCall] = {}
        self.tokens: dict[Any, RecordedCall] = {}
        self.requests: dict[RequestId, tuple[ServerRequest, list[RecordedStep]]] = {}
        self.last: RecordedCall | None = None
        self.kind = ""


class _SessionParser:
    def __init__(self, entries: Sequence[RecordedLine]) -> None:
        self.session = RecordedSession(entries)
        self._channels: dict[int, _ChannelState] = {}

    def read(self) -> RecordedSession:
        for entry in self.session.entries:
            channel = self._channels.setdefault(entry.channel, _ChannelState())
            if entry.open is not None:
                channel.kind = entry.kind
            elif entry.close is not None:
                self._close(channel, entry)
            elif entry.failed is not None:
                self._end(channel, entry.failed, entry, "failed")
            elif entry.message is not UNSET:
                self._message(channel, entry)
            elif entry.text is not None and entry.sender == "server":
                self._steps_for(channel, entry).append(ServerMessage(entry, self._sent_count()))
        return self.session

    def _sent_count(self) -> int:
        """How many messages of the client there were so far."""
        return len(self.session.calls)

    def _message(self, channel: _ChannelState, entry: RecordedLine) -> None:
        message = entry.message
        if "method" not in message:
            if entry.sender == "server":
                self._end(channel, message.get("id"), entry, "answered")
            else:
                self._answered(channel, message.get("id"), entry)
        elif entry.sender == "client":
            self._asked(channel, entry)
        elif "id" in message:
            request, steps = ServerRequest(entry), self._steps_for(channel, entry)
            steps.append(request)
            channel.requests[message["id"]] = request, steps
        else:
            self._steps_for(channel, entry).append(ServerMessage(entry, self._sent_count()))

    def _asked(self, channel: _ChannelState, entry: RecordedLine) -> None:
        call = RecordedCall(self._sent_count() + 1, entry)
        self.session.calls.append(call)
        self.session.begins.setdefault(entry.line, []).append(call)
        request_id = call.id
        if request_id is None:
            call.ending = "answered"
            if call.method == "notifications/cancelled":
                self._end(channel, call.params.get("requestId"), entry, "cancelled")
            channel.last = call
            return
        channel.running[request_id] = call
        token = _meta(call.params).get("progressToken")
        if isinstance(token, str | int):
            channel.tokens[token] = call

    def _answered(self, channel: _ChannelState, request_id: Any, entry: RecordedLine) -> None:
        request, steps = channel.requests.pop(request_id, (None, []))
        if request is not None:
            request.answer = entry
            steps.append(ClientAnswer(request))

    def _end(self, channel: _ChannelState, request_id: object, entry: RecordedLine, ending: Ending) -> None:
        call = channel.running.pop(request_id, None) if isinstance(request_id, str | int) else None
        if call is None and request_id is None and len(channel.running) == 1:
            call = channel.running.popitem()[1]  # an error without an id, with one request in flight
        if call is None:
            return
        call.ending = ending
        call.answer = entry if ending in ("answered", "failed") else None
        channel.last = call
        self.session.ends.setdefault(entry.line, []).append(call)

    def _close(self, channel: _ChannelState, entry: RecordedLine) -> None:
        for request_id in list(channel.running):
            cancelled = entry.by == "client" or channel.kind == "post"
            self._end(channel, request_id, entry, "cancelled" if cancelled else "cut")

    def _steps_for(self, channel: _ChannelState, entry: RecordedLine) -> list[RecordedStep]:
        """Return the list that a message of the server belongs to.

        That is the call of its stream, progress token or subscription, otherwise the latest call in flight, otherwise the
        call that ended last.
        """
        call = self._named(channel, entry)
        if call is not None:
            return call.steps
        running = [call for call in channel.running.values() if call.method != LISTEN]
        if running:
            return running[-1].steps
        return channel.last.followers if channel.last is not None else self.session.opening

    def _named(self, channel: _ChannelState, entry: RecordedLine) -> RecordedCall | None:
        params: Mapping[str, Any] = entry.params if entry.message is not UNSET else {}
        subscription, token = _meta(params).get(SUBSCRIPTION_ID), params.get("progressToken")
        for name in (entry.about, subscription):
            if isinstance(name, str | int) and name in channel.running:
                return channel.running[name]
        named = channel.tokens.get(token) if isinstance(token, str | int) else None
        return named if named is not None and named.ending == "open" else None


def _meta(params: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = params.get("_meta")
    return meta if isinstance(meta, Mapping) else {}


def parse_session(entries: Sequence[RecordedLine]) -> RecordedSession:
    """Assign the messages of a recording to the calls of the client."""
    return _SessionParser(entries).read()
