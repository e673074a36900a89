"""An ASGI app in this process: its lifespan, and a Wire that calls it for each request, streamed in both directions."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from gemel.errors import ConnectFailed, ConnectionLost, NotSent
from gemel.http1.asgi import AsgiApp, Message
from gemel.http1.client.pool import check_header, read_url
from gemel.http1.client.wire import HeaderPairs, WireResponse

logger = logging.getLogger("gemel")

#: Bytes of a response that wait to be read; then the app waits.
MOST_WAITING = 1 << 20
#: Seconds for requests that are being served when the wire is closed: they are told that the client has left.
LEAVE_SECONDS = 1.0

_ASGI = {"version": "3.0", "spec_version": "2.4"}


# ---------------------------------------------------------------- the lifespan


@asynccontextmanager
async def app_lifespan(app: AsgiApp) -> AsyncIterator[dict[str, Any]]:
    """Start an app by the lifespan protocol of ASGI, and stop it. Yields its state; an app without the protocol has none.

    Raises:
        ConnectFailed: The app says that it can't start.
    """
    state: dict[str, Any] = {}
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    outbox: asyncio.Queue[Message] = asyncio.Queue()
    inbox.put_nowait({"type": "lifespan.startup"})
    running = asyncio.ensure_future(app({"type": "lifespan", "asgi": _ASGI, "state": state}, inbox.get, outbox.put))
    try:
        started = await _next(outbox, running)
        if started is not None and started["type"] == "lifespan.startup.failed":
            raise _failed_start(app, started.get("message", ""))
        yield state
        if started is not None and not running.done():
            inbox.put_nowait({"type": "lifespan.shutdown"})
            stopped = await _next(outbox, running)
            if stopped is not None and stopped["type"] == "lifespan.shutdown.failed":
                logger.error("The app %s could not stop: %s", _name(app), stopped.get("message", ""))
    finally:
        running.cancel()
        await asyncio.wait([running])
        if not running.cancelled() and (error := running.exception()) is not None:
            logger.debug("the lifespan of the app %s ended: %r", _name(app), error)


async def _next(outbox: asyncio.Queue[Message], running: asyncio.Future[None]) -> Message | None:
    """The next message of the app; None if it has ended before, such as one without a lifespan."""
    message = asyncio.ensure_future(outbox.get())
    try:
        either: list[asyncio.Future[Any]] = [message, running]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return message.result() if message.done() else None
    finally:
        message.cancel()


def _failed_start(app: AsgiApp, message: str) -> ConnectFailed:
    """The error for an app that can't start. Frameworks send a traceback, whose last line says why."""
    *more, reason = message.strip().splitlines() or ["it gave no reason"]
    if more:
        logger.error("The app %s could not start:\n%s", _name(app), message.strip())
    return ConnectFailed(f"The app {_name(app)} could not start: {reason}")


def _name(app: AsgiApp) -> str:
    return getattr(app, "__name__", None) or type(app).__name__


# ---------------------------------------------------------------- requests


class AsgiWire:
    """A Wire whose requests are calls of an ASGI app, each in a task of its own.

    Args:
        app: The app.
        state: What its lifespan yielded.
    """

    http_version = "1.1"

    def __init__(self, app: AsgiApp, state: Mapping[str, Any] | None = None) -> None:
        self._app = app
        self._state = dict(state or {})
        # Requests must not inherit the context variables of who sends them.
        self._context = contextvars.copy_context()
        self._running: dict[asyncio.Task[None], AsgiResponse] = {}
        self._closed = False

    async def open(self, method: str, url: str, headers: HeaderPairs, body: bytes | None, /) -> WireResponse:
        """See Wire.open."""
        scope = self._scope(method, url, headers, body)
        if self._closed:
            raise NotSent("The wire is closed")
        response = AsgiResponse(body or b"")
        work = response.serve(self._app, scope)
        task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        self._running[task] = response
        task.add_done_callback(self._running.pop)
        try:
            await response.wait_for_head()
        except BaseException:
            response.close()
            raise
        return response

    async def close(self) -> None:
        """See Wire.close."""
        self._closed = True
        running = {task: one for task, one in self._running.items() if task is not asyncio.current_task()}
        for response in running.values():
            response.close()
        if running:
            _, late = await asyncio.wait(running, timeout=LEAVE_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=LEAVE_SECONDS)

    def _scope(self, method: str, url: str, headers: HeaderPairs, body: bytes | None) -> dict[str, Any]:
        target, parts = read_url(url), urlsplit(url)
        pairs = [(b"host", target.authority.encode())]
        if body is not None:
            pairs.append((b"content-length", b"%d" % len(body)))
        checked = [check_header(name, value) for name, value in headers]
        pairs += [(name.lower(), value) for name, value in checked]
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": "1.1",
            "method": method,
            "scheme": target.scheme,
            "path": unquote(parts.path) or "/",
            "raw_path": parts.path.encode() or b"/",
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": pairs,
            "client": ("127.0.0.1", 0),
            "server": (target.host, target.port),
            "state": dict(self._state),
        }


class AsgiResponse:
    """One request to an app, and its response; see WireResponse."""

    def __init__(self, body: bytes) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._body: bytes | None = body
        self._pieces: deque[bytes] = deque()
        self._waiting = 0
        self._complete = False
        self._left = False
        self._error: ConnectionLost | None = None
        #: Set whenever something has changed for the client, or for the app.
        self._for_client, self._for_app = asyncio.Event(), asyncio.Event()

    async def serve(self, app: AsgiApp, scope: dict[str, Any]) -> None:
        """Call the app."""
        try:
            await app(scope, self._receive, self._send)
        except Exception as exc:
            self._error = ConnectionLost(f"The app failed: {type(exc).__name__}: {exc}")
            self._error.__cause__ = exc
            if not self._left:
                logger.error("An ASGI app failed: %s %s", scope["method"], scope["path"], exc_info=exc)
        finally:
            if self._error is None:
                self._error = ConnectionLost("The app ended without a complete response")
            self._for_client.set()

    # ---------------------------------------------------------------- what the app calls

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        while not (self._left or self._complete):
            self._for_app.clear()
            await self._for_app.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._left:
            raise OSError("The client has left")
        if self._complete:
            return
        if message["type"] == "http.response.start":
            self._begin(message)
        elif message["type"] == "http.response.body":
            if piece := bytes(message.get("body", b"")):
                self._pieces.append(piece)
                self._waiting += len(piece)
            self._complete = not message.get("more_body", False)
        self._for_client.set()
        self._for_app.set()
        while self._waiting > MOST_WAITING and not self._left:
            self._for_app.clear()
            await self._for_app.wait()

    def _begin(self, message: Message) -> None:
        self.status = message["status"]
        for raw_name, raw_value in message.get("headers", ()):
            name, value = bytes(raw_name).decode("latin-1").lower(), bytes(raw_value).decode("latin-1")
            self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value

    # ---------------------------------------------------------------- what the client calls

    @property
    def finished(self) -> bool:
        """Whether all content was read."""
        return self._complete and not self._pieces

    async def wait_for_head(self) -> None:
        """Wait for the status and the headers. Raises ConnectionLost if the app failed before."""
        while not self.status:
            await self._change()

    async def _change(self) -> None:
        if self._error is not None:
            raise self._error
        if self._left:
            raise ConnectionLost("The stream was closed on this side")
        self._for_client.clear()
        await self._for_client.wait()

    async def read(self) -> bytes:
        """See WireResponse.read."""
        while not self._pieces:
            if self._complete and not self._left:
                return b""
            await self._change()
        piece = self._pieces.popleft()
        self._waiting -= len(piece)
        self._for_app.set()
        return piece

    def close(self, *, drain: bool = False) -> None:
        """See WireResponse.close."""
        self._left = True
        self._pieces.clear()
        self._waiting = 0
        with suppress(RuntimeError):  # the event loop is closed
            self._for_app.set()
            self._for_client.set()
