"""The client transport for Streamable HTTP, in both eras: the channel, its HTTP session, the standing stream.

`exchange.py` makes requests and follows each one to its answer.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Unpack

from hinge.channel import Channel, ChannelKind, Serve, Transport
from hinge.errors import CallError, CallTimeout, ChannelClosed, ConnectionLost, InvalidResponse, NotSent
from hinge.http1.client.pool import SocketWire, read_url
from hinge.http1.client.wire import Wire, WireResponse
from hinge.options import accepts, resolve
from hinge.protocol.calls import Call, Outgoing
from hinge.protocol.http import headers as http
from hinge.protocol.http import media_types, mirror
from hinge.protocol.limits import DEFAULT_LIMITS, Limits
from hinge.protocol.states import PendingState
from hinge.transports.http.client.exchange import (
    Backoff,
    Cursor,
    EventReader,
    Inbox,
    RemoteEndpoint,
    refusal,
    run_exchange,
    user_headers,
)
from hinge.transports.http.client.options import Credentials, HttpClientOptions

__all__ = ["Credentials", "HttpChannel", "HttpTransport", "Wire", "WireResponse"]

logger = logging.getLogger("hinge")

#: Requests that stay open as long as a subscription lasts do not count towards `limits.connections`.
_ENDLESS = frozenset({"subscriptions/listen"})
#: Seconds after which a quiet stream counts as progress when it has to be reopened.
_LONG_LIVED = 30.0
#: Seconds that the first call waits for the head of the standing stream.
_LISTEN_SECONDS = 0.25
#: Seconds for the DELETE that ends the session.
_DELETE_SECONDS = 2.0

_POST = tuple(media_types.POST_HEADERS.items())
_GET = tuple(media_types.STREAM_HEADERS.items())


class HttpTransport(Transport):
    """A server at a URL, reached by Streamable HTTP.

    `headers` go with every request: a mapping, or a callable (may be async) that gives one each time; the headers that
    the protocol sets are left out. `auth` gives the value of the Authorization header before each request (a callable,
    may be async); with a method `refused` it also has a say when the server answers 401 or 403: see Credentials.
    `tls` and `proxy` are those of SocketWire. `wire` makes another Wire for each channel, which closes it.

    Raises DefinitionError for what can't work: a URL that isn't one, a header with a line end in it.
    """

    @accepts(HttpClientOptions)
    def __init__(self, url: str, *, limits: Limits = DEFAULT_LIMITS, **options: Unpack[HttpClientOptions]) -> None:
        read_url(url)
        settings = resolve(HttpClientOptions, options, "HttpTransport")
        headers, wire = settings["headers"], settings["wire"]
        if headers is not None and not callable(headers):
            user_headers(headers)
        self.url = url
        self.limits = limits
        self._headers = headers
        self._auth = settings["auth"]
        tls, proxy = settings["tls"], settings["proxy"]
        self._wire = wire or (lambda: SocketWire(tls=tls, proxy=proxy, connect=limits.connect))

    async def open(self, serve: Serve, /) -> Channel:
        """Start a conversation. Connects with the first message, so it doesn't fail."""
        endpoint = RemoteEndpoint(self.url, self._wire(), self._headers, self._auth)
        channel = HttpChannel(endpoint, self.limits)
        channel.start(serve)
        return channel

    def older(self) -> Transport:
        """The HTTP+SSE transport to the same URL, for a server that does not have Streamable HTTP."""
        from hinge.transports.http.client.legacy_sse import SseTransport

        return SseTransport(self.url, headers=self._headers, auth=self._auth, wire=self._wire, limits=self.limits)


class HttpChannel:
    """One conversation with one endpoint. Each request is an exchange of its own; any number may run at once.

    In the handshake era it keeps the session: its id from the answer to `initialize`, the revision that `set_revision`
    is told, and the server's own stream, opened after `notifications/initialized`.
    """

    inbox: Inbox

    def __init__(self, endpoint: RemoteEndpoint, limits: Limits) -> None:
        self.limits = limits
        #: The id of the handshake session, if the server gave one. A secret.
        self.session_id: str | None = None
        self._endpoint = endpoint
        self._revision: str | None = None
        self._session: tuple[tuple[str, str], ...] = ()
        self._slots = asyncio.Semaphore(limits.connections)
        self._listener: asyncio.Task[None] | None = None
        self._closed = False

    def start(self, serve: Serve) -> None:
        """Start the conversation. Called once."""
        self.inbox = Inbox(serve(self), self._deliver, self.limits)

    @property
    def kind(self) -> ChannelKind:
        """See Channel.kind."""
        return "post"

    def set_revision(self, revision: str, /) -> None:
        """See Channel: later messages name it in a header and follow the rules of its era."""
        self._revision = revision
        self._prepare_headers()

    def close_stream(self, call: Call, retry_ms: int, /) -> bool:
        """See Channel: only servers have response streams."""
        return False

    async def send(self, message: Outgoing, /) -> None:
        """Carry a message and, for a request, feed all of its answer; see Channel.send.

        Returns when the request is settled. Raises ChannelClosed, or a CallError that says how far it got: NotSent,
        ConnectionLost, InvalidResponse, PeerError, HttpStatus (401 and 403 among them), SessionEnded.
        """
        if self._closed:
            raise ChannelClosed(f"The channel to {self._endpoint.url} is closed")
        pending = message.pending
        if pending is None:
            await self._deliver(message)
        elif message.method in _ENDLESS:
            await run_exchange(self, message, pending)
        else:
            async with self._slots:
                if self._closed:
                    raise ChannelClosed(f"The channel to {self._endpoint.url} is closed")
                if pending.state is PendingState.WAITING:
                    await run_exchange(self, message, pending)

    async def close(self) -> None:
        """End the HTTP session with DELETE, and every stream and connection. Waits for a bounded time."""
        if self._closed:
            return
        self._closed = True
        listener = self._listener
        try:
            self._stop_listening()
            if self.session_id is not None:
                await self._delete()
        finally:
            await self._endpoint.close()
            await self.inbox.close()
            if listener is not None and listener is not asyncio.current_task():
                await asyncio.wait({listener}, timeout=self.limits.teardown)

    # ---------------------------------------------------------------- ExchangeChannel

    async def post(self, message: Outgoing, /) -> WireResponse:
        """POST a message; see ExchangeChannel."""
        headers = [*_POST]
        if message.headers is not None:
            headers += message.headers.items()
        if message.method == "initialize":
            self._forget()
            response = await self._endpoint.request("POST", headers, message.data)
            self._begin_session(response)
            return response
        if self._session:
            own = {name.lower() for name, _ in headers}
            headers += [pair for pair in self._session if pair[0].lower() not in own]
        return await self._endpoint.request("POST", headers, message.data)

    async def get(self, last_event_id: str, /) -> WireResponse:
        """Open a stream of the session, from its start or after an event."""
        headers = [*_GET, *self._session]
        if last_event_id:
            headers.append((http.LAST_EVENT_ID, last_event_id))
        return await self._endpoint.request("GET", headers)

    def is_legacy(self, message: Outgoing, /) -> bool:
        """See ExchangeChannel."""
        return self._revision is not None or message.method == "initialize"

    def session_of(self, message: Outgoing, /) -> str | None:
        """See ExchangeChannel."""
        return None if message.method == "initialize" else self.session_id

    def session_ended(self, session: str, message: Outgoing, /) -> None:
        """See ExchangeChannel. A new session may have begun meanwhile; that one stays."""
        if message.pending is None:
            self._end_session(session, "the server ended the session")
        elif session == self.session_id:
            self._forget()

    # ---------------------------------------------------------------- messages without an answer

    async def _deliver(self, message: Outgoing) -> None:
        """POST a notification or a reply; any 2xx is success."""
        what = message.method or "The answer to a request"
        session = self.session_of(message)
        try:
            async with asyncio.timeout(self.limits.call_idle):
                response = await self.post(message)
                if response.status >= 300:
                    raise await refusal(self, message, response, session)
        except TimeoutError:
            raise CallTimeout(f"{what}: the server did not accept it within {self.limits.call_idle:g} s") from None
        response.release(finish=True)
        if message.method == "notifications/initialized" and not self._closed:
            await self._start_listening()

    # ---------------------------------------------------------------- the session

    def _begin_session(self, response: WireResponse) -> None:
        given = response.headers.get(http.SESSION_ID.lower())
        if given is None or response.status >= 300:
            return
        if not http.is_session_id(given):
            response.release()
            raise InvalidResponse("The server gave a session id with invalid characters")
        self.session_id = given
        self._prepare_headers()

    def _forget(self) -> None:
        """Reset: the session is over, or a new one is about to begin."""
        self.session_id = self._revision = None
        self._session = ()
        self._stop_listening()

    def _prepare_headers(self) -> None:
        """Prepare the headers of every message of the session."""
        pairs = ((http.SESSION_ID, self.session_id), (mirror.PROTOCOL_VERSION, self._revision))
        self._session = tuple((name, value) for name, value in pairs if value is not None)

    async def _delete(self) -> None:
        """Tell the server that the session is over; it need not like it."""
        try:
            async with asyncio.timeout(min(_DELETE_SECONDS, self.limits.teardown)):
                response = await self._endpoint.request("DELETE", self._session)
                response.release()
        except (CallError, TimeoutError) as exc:
            logger.debug("The session was not ended at the server: %s", exc)

    # ---------------------------------------------------------------- the standing stream

    def _stop_listening(self) -> None:
        if self._listener is not None and self._listener is not asyncio.current_task():
            self._listener.cancel()
        self._listener = None

    async def _start_listening(self) -> None:
        """Open the standing stream and wait briefly for it, so that changes made by the first calls are not missed."""
        self._stop_listening()
        answered = asyncio.Event()
        self._listener = asyncio.get_running_loop().create_task(self._listen(answered))
        try:
            async with asyncio.timeout(_LISTEN_SECONDS):
                await answered.wait()
        except TimeoutError:
            logger.debug("The server has not answered the request for its own stream yet")

    async def _listen(self, answered: asyncio.Event) -> None:
        """Keep the standing stream of the session open, if the server offers one.

        For a client that makes no calls, this detects the end of the session or of the server.
        """
        cursor, backoff, session = Cursor(), Backoff(), self.session_id
        loop = asyncio.get_running_loop()
        was_open = is_away = False
        while True:
            began = loop.time()
            try:
                response = await self.get(cursor.last_id)
                was_open, is_away = was_open or response.status == 200, False
                answered.set()
                if not await self._hear(response, cursor, backoff):
                    # Before the first stream, 404 may mean that there is none to be had.
                    if was_open and response.status == 404 and session is not None:
                        self._end_session(session, "the server ended the session")
                    return
            except (NotSent, ConnectionLost, InvalidResponse) as exc:
                is_away = isinstance(exc, NotSent)
                logger.debug("The server's own stream: %s", exc)
            except Exception as exc:
                logger.warning("The server's own stream can't be opened: %s", exc)
                return
            finally:
                answered.set()
            if loop.time() - began >= _LONG_LIVED:
                backoff.progress()
            delay = backoff.wait(cursor.retry)
            if delay is None:
                if is_away and session is not None:
                    self._end_session(session, "the server can't be reached any more")
                else:
                    logger.warning("The server's own stream ends as soon as it is opened; it stays closed")
                return
            await asyncio.sleep(delay)

    def _end_session(self, session: str, reason: str) -> None:
        """Fail what waits in the session, unless a new session has begun."""
        if session == self.session_id:
            self._forget()
            self.inbox.end(reason)

    async def _hear(self, response: WireResponse, cursor: Cursor, backoff: Backoff) -> bool:
        """Feed the stream to its end. Returns False if the server offers none."""
        try:
            kind = media_types.media_type(response.headers.get("content-type"))
            if response.status != 200 or kind != media_types.EVENT_STREAM:
                return response.status >= 500 or response.status == 429
            reader = EventReader(response, self.limits.reply)
            while (events := await reader.read()) is not None:
                for event in events:
                    cursor.note(event)
                    if event.data and event.type == "message" and self.inbox.notice(event.data):
                        backoff.progress()
                await self.inbox.room()
            return True
        finally:
            response.release()
