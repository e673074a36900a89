"""The web app: the page, the state, the stream of events, commands. See docs/reference/dev.md."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePath
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Raw

from gemel.dev.access import Access, Denied, response_headers
from gemel.dev.commands import read_command
from gemel.dev.inspector import ERAS, Inspector
from gemel.dev.journal import JournalEvent
from gemel.dev.spans import JSON, PROTOBUF, SPANS_PATH, read_spans
from gemel.http1.asgi import Receive, Scope, Send
from gemel.protocol.eras.base import EraName

#: The folder with the files of the page; in a zip file as well.
PAGE = files("gemel.dev") / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
_ERA_NAMES: dict[str, EraName] = {era: era for era in ERAS}
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"

MAX_BODY = 8 * 1024 * 1024
#: Seconds for a body to arrive.
BODY_WAIT = 30.0
MAX_STREAMS = 8
#: Seconds between two comments on a stream that is idle.
BEAT = 15.0
#: Events and bytes that are written to a stream at once.
BATCH = 1000
BATCH_BYTES = 256 * 1024


class _Answer(Exception):
    """Ends a request with a response."""

    def __init__(self, status: int, kind: str, data: bytes, headers: Sequence[tuple[str, str]] = ()) -> None:
        self.status = status
        self.kind = kind
        self.data = data
        self.headers = headers


class _Shown(msgspec.Struct):
    """The members of an event that contain its message."""

    kind: str
    data: Raw = Raw(b"")


_shown = msgspec.json.Decoder(_Shown)


class DevApp:
    """An ASGI app.

    Args:
        inspector: What it shows.
        access: Who may use it.
        page: The folder with the files of the page.
    """

    def __init__(self, inspector: Inspector, access: Access, page: Traversable = PAGE) -> None:
        self._inspector = inspector
        self._access = access
        self._files = read_page(page)
        self._packed = {path: gzip.compress(data, mtime=0) for path, (_, data) in self._files.items()}
        self._streams = 0
        self._headers = response_headers(None if inspector.frames is None else inspector.frames.origin)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        try:
            answer = await self._serve(scope, receive, send)
        except _Answer as exc:
            answer = exc
        if answer is not None:
            await self._send(send, answer)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> _Answer | None:
        method, path = scope["method"], scope["path"]
        query = _query(scope)
        refused = self._access.refuse_site(scope)
        if refused is None and path == "/" and "token" in query and method == "GET":
            cookie = self._access.exchange(query["token"])
            if cookie is not None:
                return _Answer(303, _TEXT, b"", [("location", "/"), ("set-cookie", cookie)])
        if refused is None and path == SPANS_PATH and method == "POST":
            return await self._spans(scope, receive)
        refused = refused or self._access.refuse_caller(scope)
        if refused is not None:
            return _refusal(refused)
        if method == "POST":
            if path != "/api/commands":
                return _Answer(404, _TEXT, b"Not found")
            return await self._command(receive)
        if method != "GET":
            return _Answer(405, _TEXT, b"Use GET or POST", [("allow", "GET, POST")])
        if path in self._files:
            return self._file(path, scope)
        if path == "/api/state":
            return _Answer(200, _JSON, msgspec.json.encode(self._inspector.state()))
        if path == "/api/export":
            await self._export(query.get("era", ""), send)
            return None
        if path.startswith("/api/messages/"):
            return self._message(path.removeprefix("/api/messages/"))
        if path == "/api/events":
            after = _after(scope, query)
            if query.get("wait") == "0":
                events = self._inspector.journal.after(after)
                return _Answer(200, _JSON, b"[" + b",".join(event.data for event in events) + b"]")
            await self._stream(after, receive, send)
            return None
        return _Answer(404, _TEXT, b"Not found")

    # ---------------------------------------------------------------- answers

    def _file(self, path: str, scope: Scope) -> _Answer:
        kind, data = self._files[path]
        if any(name == b"accept-encoding" and b"gzip" in value for name, value in scope["headers"]):
            return _Answer(200, kind, self._packed[path], [("content-encoding", "gzip")])
        return _Answer(200, kind, data)

    def _message(self, text: str) -> _Answer:
        event = self._inspector.journal.get(_number(text) or 0)
        if event is None:
            return _error(404, "There is no such message, or not any more")
        shown = _shown.decode(event.data)
        if shown.kind not in ("message", "bytes"):
            return _error(404, "This event is not a message")
        data = bytes(shown.data) if event.message is None else event.message
        try:
            msgspec.json.decode(data)
            data.decode()
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return _Answer(200, _TEXT, data)
        return _Answer(200, _JSON, data)

    async def _command(self, receive: Receive) -> _Answer:
        try:
            command = read_command(await _body(receive))
        except ValueError as exc:
            return _error(400, str(exc))
        try:
            more = await self._inspector.run(command)
        except ValueError as exc:
            return _error(409, str(exc))
        return _Answer(200, _JSON, msgspec.json.encode({"ok": True, **more}))

    async def _spans(self, scope: Scope, receive: Receive) -> _Answer:
        """Take spans of the inspected program, as an OTLP receiver does."""
        refused = self._access.refuse_exporter(scope)
        if refused is not None:
            return _refusal(refused)
        headers = dict(scope["headers"])
        kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        if kind not in (JSON, PROTOBUF) or headers.get(b"content-encoding", b"identity") != b"identity":
            return _error(415, f"Send {PROTOBUF} or {JSON} without a Content-Encoding")
        try:
            self._inspector.add_spans(read_spans(await _body(receive), kind))
        except ValueError as exc:
            return _error(400, str(exc))
        return _Answer(200, kind, b"{}" if kind == JSON else b"")

    async def _export(self, text: str, send: Send) -> None:
        """Send a recording, piece by piece."""
        if text and text not in _ERA_NAMES:
            raise _error(400, f"The era is one of {', '.join(ERAS)}")
        era, lines = self._inspector.recording(_ERA_NAMES.get(text))
        name = re.sub(r"[^0-9A-Za-z._-]+", "-", self._inspector.target.name).strip("-.") or "server"
        disposition = f'attachment; filename="{name}-{era}.jsonl"'
        await send(self._start(200, "application/jsonl", [("content-disposition", disposition)]))
        piece = b""
        for line in lines:
            piece += line
            if len(piece) > BATCH_BYTES:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                piece = b""
        await send({"type": "http.response.body", "body": piece, "more_body": False})

    async def _stream(self, after: int, receive: Receive, send: Send) -> None:
        if self._streams >= MAX_STREAMS:
            raise _error(429, f"{MAX_STREAMS} event streams are open already: close one")
        journal = self._inspector.journal
        self._streams += 1
        reader = journal.join()
        left = asyncio.ensure_future(_disconnected(receive))
        left.add_done_callback(lambda _: reader.set())
        try:
            await send(self._start(200, "text/event-stream", []))
            while not left.done() and not journal.closed:
                reader.clear()
                events = journal.after(after, BATCH)
                if not events:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(BEAT):
                            await reader.wait()
                            continue
                    await send({"type": "http.response.body", "body": b": \n\n", "more_body": True})
                    continue
                data, after = _encode(events, after)
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._streams -= 1
            journal.leave(reader)
            left.cancel()

    def _start(self, status: int, kind: str, headers: Sequence[tuple[str, str]]) -> dict[str, Any]:
        pairs = [(name.encode(), value.encode()) for name, value in (("content-type", kind), *headers)]
        return {"type": "http.response.start", "status": status, "headers": [*pairs, *self._headers]}

    async def _send(self, send: Send, answer: _Answer) -> None:
        headers = [("content-length", str(len(answer.data))), *answer.headers]
        await send(self._start(answer.status, answer.kind, headers))
        await send({"type": "http.response.body", "body": answer.data, "more_body": False})


def read_page(folder: Traversable) -> dict[str, tuple[str, bytes]]:
    """Return the files of the page by their paths, with their types. Nothing else in the folder is served."""
    served: dict[str, tuple[str, bytes]] = {}
    for file in folder.iterdir() if folder.is_dir() else ():
        kind = _TYPES.get(PurePath(file.name).suffix)
        if kind is not None and file.is_file():
            served["/" if file.name == "index.html" else f"/page/{file.name}"] = kind, file.read_bytes()
    return served


def _query(scope: Scope) -> dict[str, str]:
    try:
        return dict(parse_qsl(scope["query_string"].decode("latin-1"), max_num_fields=10))
    except ValueError:
        return {}


def _after(scope: Scope, query: dict[str, str]) -> int:
    """The number after which a reader wants events; Last-Event-ID wins."""
    header = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"last-event-id"), "")
    for text in (header, query.get("after", "")):
        if (number := _number(text)) is not None:
            return number
    return 0


def _number(text: str) -> int | None:
    """Read the number of an event."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


async def _body(receive: Receive) -> bytes:
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_WAIT):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise _error(400, "The body broke off")
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if size > MAX_BODY:
                    raise _error(413, f"The body has more than {MAX_BODY} bytes")
                if not message.get("more_body", False):
                    return b"".join(pieces)
    except TimeoutError:
        raise _error(408, "The body did not arrive in time") from None


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _encode(events: Sequence[JournalEvent], after: int) -> tuple[bytes, int]:
    """Return events for a stream, and the number of the last one."""
    pieces: list[bytes] = []
    size = 0
    for event in events:
        if event.n:
            pieces.append(b"id: %d\n" % event.n)
            after = max(after, event.n)
        pieces.append(b"data: " + event.data + b"\n\n")
        size += len(event.data)
        if size > BATCH_BYTES:
            break
    return b"".join(pieces), after


def _refusal(refused: Denied) -> _Answer:
    return _Answer(refused.status, _TEXT, f"{refused.text}\n".encode())


def _error(status: int, text: str) -> _Answer:
    return _Answer(status, _JSON, msgspec.json.encode({"error": text}))
