"""The client side of HTTP+SSE, the deprecated transport of 2024-11-05: an event stream in, a POST for each message out.

Knows the `endpoint` event and that messages stay within one origin. Must not know what messages say. Maintained, but
gets no new features.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, NamedTuple
from urllib.parse import urljoin

from gemel.channel import Channel, ChannelKind, Serve
from gemel.errors import CallError, CallTimeout, ChannelClosed, ConnectFailed, DefinitionError, shorten
from gemel.http1.client.pool import read_url
from gemel.http1.client.wire import WireResponse
from gemel.jsonrpc import meant_as
from gemel.loops import Abandoned
from gemel.protocol.deviations import log_deviation
from gemel.protocol.eras.base import EraOption
from gemel.protocol.http import media_types
from gemel.protocol.http.sse import Event
from gemel.protocol.limits import Limits
from gemel.protocol.records import Outgoing
from gemel.transports.duplex import DuplexChannel
from gemel.transports.http.client.channel import RemoteEndpoint, UrlTransport, note_event, stray_event
from gemel.transports.http.client.responses import EventReader, begins_events, is_event_stream, read_start, refusal_of

logger = logging.getLogger("gemel")

#: Events that may come before the `endpoint` event.
_EARLY_EVENTS = 100
_GET = tuple(media_types.STREAM_HEADERS.items())
_POST = tuple(media_types.POST_HEADERS.items())


class SseTransport(UrlTransport):
    """A server at a URL, reached by HTTP+SSE, the deprecated transport of 2024-11-05.

    HttpTransport falls back to it for servers that have nothing newer.

    Args:
        url: The URL of the event stream.
        limits: Limits of messages and waiting times.
        **options: See HttpClientOptions.

    Raises:
        DefinitionError: An option can't work.
    """

    @property
    def era(self) -> EraOption:
        """See Transport: only the handshake era used it."""
        return "2025"

    async def open(self, serve: Serve, /) -> Channel:
        """Open the event stream and wait for the URL for messages.

        Args:
            serve: Starts a conversation over a channel.

        Raises:
            ConnectFailed: There is no such stream.
            HttpStatus: The server refuses the request.
            NotSent: The server can't be reached.
        """
        wire = self._wire()
        try:
            stream = await self._open_stream(self._endpoint(self.url, wire))
        except BaseException:
            await wire.close()
            raise
        channel = SseChannel(self._endpoint(stream.address, wire), stream, self.limits)
        try:
            channel.start(serve)
        except BaseException:
            await channel.close()
            raise
        return channel

    async def _open_stream(self, endpoint: RemoteEndpoint) -> _Stream:
        response = await endpoint.request("GET", _GET)
        wait = self.limits.probe
        try:
            async with asyncio.timeout(wait):
                return await _read_address(endpoint.url, response, self.limits.reply)
        except BaseException as exc:
            response.close()
            if isinstance(exc, TimeoutError) and not isinstance(exc, CallError):
                raise ConnectFailed(
                    f"{self.url} named no address for messages, by an `endpoint` event, within {wait:g} seconds"
                ) from None
            raise


class _Stream(NamedTuple):
    """An open stream: the URL for messages, events that arrived before it or with it, and the rest."""

    address: str
    early: list[Event]
    reader: EventReader
    response: WireResponse


async def _read_address(url: str, response: WireResponse, limit: int) -> _Stream:
    """Read up to the `endpoint` event. Raises a CallError if this is not an HTTP+SSE stream.

    Messages never go to another origin than the stream's, since they carry credentials.
    """
    if response.status != 200:
        raise await refusal_of(response, "The server refuses GET")
    kind, start = response.headers.get("content-type"), b""
    if not is_event_stream(response):
        start = await response.read()
        if not begins_events(start):
            raise ConnectFailed(f"{url} answers GET with no event stream: it is not an endpoint of HTTP+SSE")
        log_deviation("content-type", f"GET: {kind or 'none'}")
    reader = EventReader(response, limit, start)
    early: list[Event] = []
    found: Event | None = None
    while found is None:
        events = await reader.read()
        if events is None or len(early) > _EARLY_EVENTS:
            raise ConnectFailed(f"The stream of {url} has no `endpoint` event: it is not HTTP+SSE")
        found = next((event for event in events if event.type == "endpoint"), None)
        early += [event for event in events if event is not found]
    address = found.data.decode("utf-8", "replace").strip()
    address = address[1:-1] if len(address) > 1 and address[0] == address[-1] == '"' else address
    try:
        address = urljoin(url, address)
        same_origin = read_url(address).origin == read_url(url).origin
    except (DefinitionError, ValueError):
        same_origin = False
    if not same_origin:
        raise ConnectFailed(
            f"{url} wants messages sent to {shorten(address)!r}, which is not its scheme, host and port"
        )
    return _Stream(address, early, reader, response)


def _is_json(response: WireResponse) -> bool:
    return media_types.media_type(response.headers.get("content-type")) == media_types.JSON


class SseChannel(DuplexChannel):
    """One conversation: a pipe made of the server's stream and our POSTs."""

    def __init__(self, endpoint: RemoteEndpoint, stream: _Stream, limits: Limits) -> None:
        super().__init__(limits, server=False)
        self._endpoint = endpoint
        self._stream = stream
        self._room = asyncio.Event()
        self._room.set()
        self._posts: set[asyncio.Task[Any]] = set()
        self._listener: asyncio.Task[None] | None = None

    @property
    def kind(self) -> ChannelKind:
        """As on a socket, answers come on one stream and a message cancels a request."""
        return "socket"

    def start(self, serve: Serve) -> None:
        """Begin the conversation. Called once."""
        self.begin(serve(self))
        self._listener = self._loop.create_task(self._listen())

    async def send(self, message: Outgoing, /) -> None:
        """POST a message and wait for any 2xx, or for the answer to the request on the stream.

        Raises:
            ChannelClosed: The channel has ended.
            NotSent: The server can't be reached.
            ConnectionLost: The connection broke.
            HttpStatus: The server refuses the message.
        """
        if self.reason is not None:
            raise ChannelClosed(self.reason)
        pending = message.pending
        post = self._start(self._post(message))
        answered: asyncio.Future[None] = self._loop.create_future()
        if pending is not None:
            pending.wake = lambda: None if answered.done() else answered.set_result(None)
        try:
            await asyncio.wait((post, answered), return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            post.cancel()
            raise
        finally:
            answered.cancel()
            if pending is not None:
                pending.wake = None
        if post.done():
            post.result()

    def _start(self, post: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = self._loop.create_task(post)
        self._posts.add(task)
        task.add_done_callback(self._posted)
        return task

    def _posted(self, task: asyncio.Task[Any]) -> None:
        self._posts.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.debug("A message was not accepted: %s", task.exception())

    async def _post(self, message: Outgoing) -> None:
        what = message.method or "the answer to a request"
        try:
            async with asyncio.timeout(self.limits.call_idle):
                response = await self._endpoint.request("POST", _POST, message.data)
                if response.status >= 300:
                    raise await refusal_of(response, f"The server refuses {what}")
                if message.pending is not None and _is_json(response):
                    self._take_answer(await read_start(response, self.limits.reply), what)
                response.close(drain=True)
        except TimeoutError:
            raise CallTimeout(f"{what}: the server did not accept it within {self.limits.call_idle:g} s") from None

    def _take_answer(self, body: bytes, what: str) -> None:
        """Take the answer to a request that came as the response to its POST, in place of the stream."""
        if b'"jsonrpc"' in body and meant_as(body) == "response":
            if self._session is not None:
                self._session.note("answer-to-post", what)
            self.feed(body)

    async def _listen(self) -> None:
        """Feed the messages of the stream until it ends."""
        why = "the server closed its event stream"
        events: list[Event] | None = self._stream.early
        try:
            while events is not None:
                for event in events:
                    if event.data:
                        self._take(event)
                await self._room.wait()
                events = await self._stream.reader.read()
        except CallError as exc:
            why = str(exc)
        finally:
            self._stream.response.close()
            self.end_session(why)

    def _take(self, event: Event) -> None:
        stray = stray_event(event)
        if self._session is not None:
            note_event(event, stray, self._session.note)
        if not stray:
            self.feed(event.data)

    def abandon(self, why: Abandoned, /) -> None:
        """See `AbandonableChannel`."""
        self._endpoint.abandon(why)

    async def close(self) -> None:
        """End the stream and all connections. May be called twice."""
        self.end_session("the channel was closed on this side")
        self._stream.response.close()
        here = asyncio.current_task()
        tasks = {task for task in (*self._posts, *self._running.values(), self._listener) if task not in (here, None)}
        for task in tasks:
            task.cancel()
        try:
            await self._endpoint.close()
        finally:
            if tasks:
                await asyncio.wait(tasks, timeout=self.limits.teardown)

    # ---------------------------------------------------------------- DuplexChannel

    def reply(self, message: Outgoing, *, last: bool) -> None:
        self._start(self._post(message))

    def pause_reading(self) -> None:
        self._room.clear()

    def resume_reading(self) -> None:
        self._room.set()

    def end_output(self) -> None:
        self._stream.response.close()
