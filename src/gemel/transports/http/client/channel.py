"""A client's HTTP channel: posts each message, feeds the answer to the session, keeps the HTTP session of the handshake era.

Specification: Transports, section "Streamable HTTP".
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import os
import re
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from importlib.util import find_spec
from itertools import chain
from typing import Any, Protocol, TypeVar, Unpack
from urllib.parse import urljoin

from gemel.channel import ChannelKind, Serve, Transport
from gemel.errors import (
    CallError,
    CallTimeout,
    ChannelClosed,
    ConnectionLost,
    DefinitionError,
    ErrorObject,
    GemelError,
    HttpStatus,
    InvalidResponse,
    NotFinished,
    NotSent,
    Overloaded,
    PeerError,
    ProtocolError,
    SessionEnded,
    shorten,
)
from gemel.http1.client.connection import HEAD_BYTES
from gemel.http1.client.cookies import CookieJar
from gemel.http1.client.network import DEFAULT_TLS, TlsContext
from gemel.http1.client.pool import HEADS, SocketWire, read_url
from gemel.http1.client.wire import BODY_PROGRESS, HeaderPairs, Wire, WireResponse
from gemel.jsonrpc import (
    Failure,
    Message,
    RequestId,
    Response,
    decode,
    id_of,
    is_batch,
    is_print,
    meant_as,
    split_batch,
)
from gemel.lazy_imports import load
from gemel.loops import Abandoned
from gemel.options import accepts, resolve
from gemel.protocol.deviations import Deviation, Note
from gemel.protocol.http import headers as http
from gemel.protocol.http import mirror
from gemel.protocol.http.media_types import EVENT_STREAM, JSON, POST_HEADERS, STREAM_HEADERS, media_type
from gemel.protocol.http.sse import Event
from gemel.protocol.limits import DEFAULT_LIMITS, Limits, over_limit
from gemel.protocol.mending import mend
from gemel.protocol.peer_log import warn_about_peer
from gemel.protocol.records import Call, Outgoing, Pending
from gemel.protocol.states import ANSWERED, WAITING
from gemel.schema.revisions import knows
from gemel.timeouts import PERSON_LIMITS, asking_person
from gemel.transports.http.client.headers import user_headers
from gemel.transports.http.client.options import AuthScheme, Credentials, HttpClientOptions, Network
from gemel.transports.http.client.responses import (
    ERROR_BYTES,
    EventReader,
    Reconnection,
    begins_events,
    begins_message,
    excerpt,
    in_utf8,
    is_event_stream,
    read_start,
    refusal_of,
    status_error,
)
from gemel.version import missing_extra

logger = logging.getLogger("gemel")

ResultT = TypeVar("ResultT")
ReadT = TypeVar("ReadT", covariant=True)

#: Maximum number of redirects in a row, and of refusals (401, 403) in a row that the credentials may react to.
MAX_REDIRECTS = 5
MAX_REFUSALS = 3
_SAME_METHOD = (301, 302, 307, 308)
_REDIRECTS = frozenset({*_SAME_METHOD, 303})

#: Statuses that are about access or load, not about the message, whatever error object their body holds.
_ABOUT_ACCESS = frozenset({401, 403, 407, 429, 502, 503, 504})
#: Codes that an MCP server sends, whatever the status.
_OF_THE_SERVER = (Overloaded.code, NotFinished.code)
_METHOD_NOT_FOUND = -32601

#: Requests that stay open as long as a subscription lasts do not count towards `limits.connections`.
_ENDLESS = frozenset({"subscriptions/listen"})
#: Seconds after which a quiet stream counts as progress when it has to be reopened.
_LONG_LIVED = 30.0
#: Seconds that the first call waits for the head of the standing stream.
_LISTEN_SECONDS = 0.25
#: Seconds for the DELETE that ends the session.
_DELETE_SECONDS = 2.0
#: Seconds before the end of the handshake is sent again if it got lost, and before an answer to the server is, which may be
#: what a person has typed.
_RESEND_PAUSES = (0.2, 0.8)
_ANSWER_PAUSES = (*_RESEND_PAUSES, 2.0, 5.0, 10.0)
#: Statuses of a busy server, and of a gateway that may not have delivered a message.
_UNDELIVERED = frozenset({429, 502, 503, 504})
#: Maximum number of responses to the server in delivery at once, each on a connection of its own.
_DELIVERIES = 32

#: What servers write about a session that they no longer know.
_LOST_SESSION = re.compile(
    rb"\b(?:no|invalid|unknown|expired|missing)\b[^.\n]{0,20}\bsession\b"
    rb"|\bsession\b[^.\n]{0,40}\b(?:not found|not valid|invalid|unknown|expired|terminated|closed|ended|exist)"
    rb"|\b(?:server|session|client) (?:is |was )?not initialized\b",
    re.IGNORECASE,
)

#: How the stream of an answer ends regularly.
_STREAM_ENDED = "the server closed the stream"

#: For so many callers of one client cookies are kept.
_COOKIE_JARS = 100

#: Headers that change with each token or request of one caller.
_OF_TOKENS = frozenset({"authorization", "dpop"})

#: Digests of credentials mean nothing outside of this process.
_DIGEST_KEY = secrets.token_bytes(16)

_POST = tuple(POST_HEADERS.items())
_GET = tuple(STREAM_HEADERS.items())


class UrlTransport(Transport):
    """A server at a URL.

    Args:
        url: The URL, http or https.
        limits: Limits of messages and waiting times.
        **options: See HttpClientOptions.

    Raises:
        DefinitionError: The URL or an option can't work.
    """

    @accepts(HttpClientOptions)
    def __init__(self, url: str, *, limits: Limits = DEFAULT_LIMITS, **options: Unpack[HttpClientOptions]) -> None:
        read_url(url)
        self._settings = resolve(HttpClientOptions, options, type(self).__name__)
        headers = self._settings["headers"]
        if headers is not None and not callable(headers):
            user_headers(headers)
        self.url = url
        self.limits = limits
        tls, wire, uds = self._settings["tls"], self._settings["wire"], self._settings["uds"]
        if uds is not None and wire is not None:
            raise DefinitionError("`uds` is an option of the built-in HTTP client: leave out `wire`")
        self._uds = None if uds is None else os.fspath(uds)
        self._tls = DEFAULT_TLS if tls is True and wire is None else TlsContext(tls)
        if wire == "httpx2" and find_spec("httpx2") is None:
            raise DefinitionError(missing_extra('wire="httpx2" needs', "httpx2"))
        auth = load("oauth")() if self._settings["auth"] == "oauth" else self._settings["auth"]
        self._extensions: Mapping[str, Mapping[str, Any]] = getattr(auth, "extensions", {})
        if isinstance(auth, AuthScheme):
            self._settings["auth"] = auth.bind(url, Network(self._tls, self._settings["proxy"], self._wire))
        self._latest_endpoint: RemoteEndpoint | None = None

    def _wire(self) -> Wire:
        wire, proxy = self._settings["wire"], self._settings["proxy"]
        if wire is None:
            return SocketWire(tls=self._tls, proxy=proxy, uds=self._uds, connect=self.limits.connect)
        if not isinstance(wire, str):
            made = wire()
            if not hasattr(made, "open") or not hasattr(made, "close"):
                raise DefinitionError(
                    f"wire= makes a {type(made).__name__}, which has no open() and close(): for an ASGI app write Client(app), for "
                    'httpx2 wire="httpx2"'
                )
            return made
        from gemel.transports.http.client.httpx_wire import HttpxWire

        return HttpxWire(tls=self._tls, proxy=proxy, connect=self.limits.connect)

    def _endpoint(self, url: str, wire: Wire) -> RemoteEndpoint:
        self._latest_endpoint = RemoteEndpoint(url, wire, self._settings, self.limits)
        return self._latest_endpoint

    @property
    def extensions(self) -> Mapping[str, Mapping[str, Any]]:
        return self._extensions

    @property
    def deviations(self) -> Iterable[Deviation]:
        found: Iterable[Deviation] = getattr(self._settings["auth"], "deviations", ())
        return found

    @property
    def http_version(self) -> str | None:
        """The version of HTTP that is spoken with the server, such as "1.1"; None if the wire does not tell."""
        return None if self._latest_endpoint is None else self._latest_endpoint.http_version

    async def credentials(self) -> str:
        """Return a digest of the headers that identify the caller; see Transport.

        Raises:
            NotSent: A function for `headers` or `auth` failed.
        """
        return "" if self._latest_endpoint is None else await self._latest_endpoint.credentials()


class RemoteEndpoint:
    """Makes requests to one URL over one Wire: headers of the user, authorization, redirects."""

    def __init__(self, url: str, wire: Wire, settings: HttpClientOptions, limits: Limits) -> None:
        self.url = url
        self._wire = wire
        self._limits = limits
        auth = settings["auth"]
        self._auth = auth if isinstance(auth, Credentials) else None
        #: What the credentials want to know of responses.
        self._answered: Callable[[str, Mapping[str, str]], None] | None = getattr(self._auth, "answered", None)
        self._ask_value = auth if callable(auth) else None
        headers = settings["headers"]
        self._ask_headers = headers if callable(headers) else None
        self._fixed = user_headers({} if headers is None or callable(headers) else headers)
        self._known: dict[tuple[tuple[str, str], ...], HeaderPairs] = {}
        #: Cookies by the callers that they were set for, the oldest first; None for a wire that has its own.
        self._cookies: dict[str, CookieJar] | None = {} if settings["wire"] is None else None
        #: Whether requests may have different credentials.
        self.varies = callable(headers) or auth is not None
        #: Whether requests may carry credentials.
        self.logs_in = self.varies or _authorizes(self._fixed)

    @property
    def http_version(self) -> str | None:
        """See `HttpTransport.http_version`."""
        return getattr(self._wire, "http_version", None)

    async def credentials(self) -> str:
        """Return a digest of the headers that identify the caller of a request made now; "" if they never change."""
        return self._digest((await self._ask("POST"))[0]) if self.varies else ""

    async def request(
        self, method: str, headers: HeaderPairs, body: bytes | None = None, pending: Pending | None = None
    ) -> WireResponse:
        """Make a request and follow redirects.

        Args:
            method: The HTTP method.
            headers: The headers of this request.
            body: The body, None for none.
            pending: The message that waits for the response; the credentials are noted there.

        Raises:
            NotSent: The request never left.
            ConnectionLost: The connection broke.
            InvalidResponse: The answer is not HTTP.
            HttpStatus: A redirect is not allowed, or the credentials gave up after a refusal.
        """
        refusals = 0
        while True:
            fixed: HeaderPairs = self._fixed
            authorization: HeaderPairs = ()
            if self.varies:
                limit = None if pending is None else pending.limit
                if limit is not None:
                    limit.hold_idle()  # the server can't answer before it is asked
                fixed, authorization = await self._ask(method)
                if pending is not None:
                    pending.credentials = self._digest(fixed)
                if limit is not None:
                    limit.start_idle()
            pairs = _merged(headers, fixed) if self.varies else self._with_fixed(headers)
            if self._cookies:
                pairs = self._with_cookies(pairs, fixed)
            response = await self._wire.open(method, self.url, pairs, body)
            if response.status in _REDIRECTS:
                response = await self._follow_redirects(method, pairs, body, response)
            if self._cookies is not None and "set-cookie" in response.headers:
                self._keep_cookies(self._cookies, response.headers["set-cookie"], fixed)
            # Nobody logs in to end a session.
            if response.status not in (401, 403) or self._auth is None or _authorizes(headers) or method == "DELETE":
                if self._answered is not None:
                    self._answered(self.url, response.headers)
                return response
            refusals += 1
            refusal = await refusal_of(response, f"The server refuses {method}")
            if pending is not None and pending.limit is not None:
                pending.limit.hold_idle()
            if refusals > MAX_REFUSALS or not await self._authorized(self._auth.refused(refusal, authorization)):
                raise refusal

    def _with_fixed(self, headers: HeaderPairs) -> HeaderPairs:
        """The headers of a request with those of the user, looked up: most requests to a server have the same ones."""
        key = tuple(headers)
        merged = self._known.get(key)
        if merged is None:
            merged = _merged(key, self._fixed)
            if len(self._known) >= HEADS:
                self._known.clear()
            self._known[key] = merged
        return merged

    def _keep_cookies(self, cookies: dict[str, CookieJar], field: str, fixed: HeaderPairs) -> None:
        """Keep cookies for the caller of a request: they may say who that is."""
        caller = self._digest(fixed) if self.varies else ""
        jar = cookies.pop(caller, None) or CookieJar()
        jar.take(self.url, field)
        cookies[caller] = jar
        if len(cookies) > _COOKIE_JARS:
            del cookies[next(iter(cookies))]

    def _with_cookies(self, headers: HeaderPairs, fixed: HeaderPairs) -> HeaderPairs:
        """The headers of a request with the cookies that were set for its caller."""
        jar = (self._cookies or {}).get(self._digest(fixed) if self.varies else "")
        if jar is None:
            return headers
        own = "; ".join(value for name, value in headers if name.lower() == "cookie")
        field = jar.field(self.url, own)
        return [*(pair for pair in headers if pair[0].lower() != "cookie"), ("Cookie", field)] if field else headers

    async def close(self) -> None:
        """Close the wire, and let credentials finish what they do."""
        self._known.clear()  # they may hold tokens
        try:
            await self._wire.close()
        finally:
            if (close := getattr(self._auth, "close", None)) is not None:
                await close()

    def abandon(self, why: Abandoned) -> None:
        """End the connections without their event loop, which runs no more; after a fork the parent goes on using them."""
        if why == "closed" and (abandon := getattr(self._wire, "abandon", None)) is not None:
            abandon()

    def _digest(self, headers: HeaderPairs) -> str:
        """A text that stands for the caller, without revealing the headers."""
        identity = getattr(self._auth, "identity", None)
        if isinstance(identity, str):
            headers = [*(pair for pair in headers if pair[0].lower() not in _OF_TOKENS), ("identity", identity)]
        return hashlib.blake2b(repr(headers).encode(), key=_DIGEST_KEY, digest_size=16).hexdigest()

    async def _ask(self, method: str) -> tuple[HeaderPairs, HeaderPairs]:
        """Return the headers of the user for the next request, and those among them that authorize it."""
        try:
            given = self._ask_headers() if self._ask_headers is not None else None
            if inspect.isawaitable(given):
                given = await given
            headers = self._fixed if given is None else user_headers(given)
            if self._auth is not None:
                authorization = await self._authorized(self._auth.headers(method, self.url))
            else:
                value = self._ask_value() if self._ask_value is not None else None
                if inspect.isawaitable(value):
                    value = await value
                authorization = () if value is None else (("Authorization", value),)
        except CallError:
            raise
        except Exception as exc:
            raise NotSent(f"The headers for {self.url} could not be made: {type(exc).__name__}: {exc}") from exc
        if not authorization:
            return headers, ()
        names = {name.lower() for name, _ in authorization}
        return [*(pair for pair in headers if pair[0].lower() not in names), *authorization], authorization

    async def _authorized(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Wait for credentials, which may ask a person to log in."""
        clock, auth = asyncio.get_running_loop().time, self._auth
        end = clock() + self._limits.input_wait
        return await asking_person(work, lambda: bool(getattr(auth, "asks_person", clock() < end)))

    async def _follow_redirects(
        self, method: str, headers: HeaderPairs, body: bytes | None, response: WireResponse
    ) -> WireResponse:
        """Follow redirects within the origin with the same method; remember a permanent one."""
        url, permanent = self.url, True
        for _ in range(MAX_REDIRECTS):
            url = _redirect_target(url, response)
            permanent = permanent and response.status in (301, 308)
            response.close(drain=True)
            response = await self._wire.open(method, url, headers, body)
            if response.status not in _REDIRECTS:
                if permanent:
                    self.url = url
                return response
        response.close()
        raise status_error(f"More than {MAX_REDIRECTS} redirects", response.status, response.headers)


def _merged(headers: HeaderPairs, fixed: HeaderPairs) -> HeaderPairs:
    """Headers of a request, and those of the client that it does not replace."""
    own = {name.lower() for name, _ in headers}
    return (*headers, *(pair for pair in fixed if pair[0].lower() not in own))


def _authorizes(headers: HeaderPairs) -> bool:
    return any(name.lower() == "authorization" for name, _ in headers)


def _redirect_target(url: str, response: WireResponse) -> str:
    """Return the target of a redirect, if it may be followed: messages go only to the origin that the user named."""
    location = response.headers.get("location", "")
    try:
        target = urljoin(url, location).partition("#")[0]
        same_origin = bool(location) and read_url(target).origin == read_url(url).origin
    except (DefinitionError, ValueError):
        target, same_origin = shorten(location), False
    if same_origin and response.status in _SAME_METHOD:
        return target
    reason = f"The server redirects to {target!r}" if location else "The server redirects to nowhere"
    if not same_origin:
        reason += ", which is not the same scheme, host and port. Use that URL if you trust it"
    response.close()
    raise status_error(reason, response.status, response.headers)


class HttpChannel:
    """One conversation with one endpoint. Each request is an exchange of its own; any number may run at once.

    In the handshake era it keeps the session: its id from the answer to `initialize`, the revision that `set_revision`
    is told, and the server's own stream, opened after `notifications/initialized`.
    """

    def __init__(self, endpoint: RemoteEndpoint, limits: Limits, serve: Serve) -> None:
        self.limits = limits
        #: The id of the handshake session, if the server gave one. A secret.
        self.session_id: str | None = None
        self._endpoint = endpoint
        self._revision: str | None = None
        self._session_headers: tuple[tuple[str, str], ...] = ()
        #: How many more requests may be open at once, and those that wait until one is over.
        self._free = limits.connections
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._deliveries = asyncio.Semaphore(_DELIVERIES)
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Task[None] | None = None
        self._closed = False
        self._warnings = 0
        self._conversation = serve(self)

    def _warn(self, text: str, *arguments: object) -> None:
        self._warnings = warn_about_peer(self._warnings, text, *arguments)

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
        pending = message.pending
        if self._closed:
            raise ChannelClosed(f"The channel to {self._endpoint.url} is closed")
        if pending is None:
            await (self._deliver_again if message.method == "notifications/initialized" else self._deliver)(message)
            return
        takes_slot = message.method not in _ENDLESS
        if takes_slot:
            if self._free:
                self._free -= 1
            elif not await self._wait_for_slot(pending):
                return
        limit, outer = pending.limit, PERSON_LIMITS.get() if self._endpoint.varies else None
        if outer is not None and limit is not None:
            PERSON_LIMITS.set((*outer, limit.add_time))
        is_long = len(message.data) > HEAD_BYTES
        if is_long and limit is not None:
            BODY_PROGRESS.set(limit.restart_idle)  # each piece that is sent counts as progress
        initializes = message.method == "initialize"
        session = None if initializes else self.session_id
        is_handshake = initializes or self._revision is not None
        try:
            response = await self._post(message)
            try:
                if response.status >= 300:
                    raise await self._refusal(message, response, session)
                content_type = response.headers.get("content-type")
                kind = content_type if content_type == JSON else media_type(content_type)
                if kind == EVENT_STREAM:
                    await _ResponseStream(self, pending, is_handshake).follow(response)
                else:
                    body = await response.read()
                    if body[:1] != b"{" and begins_events(body):
                        self._conversation.note("content-type", f"{pending.method}: {content_type or 'none'}")
                        await _ResponseStream(self, pending, is_handshake).follow(response, body)
                    else:
                        body = await self.read_message(body, response, pending.method, kind)
                        self.feed(body, pending, is_handshake)
            finally:
                response.close(drain=pending.state is ANSWERED)
        except CallError:
            if pending.state is WAITING:
                raise
        finally:
            if outer is not None:
                PERSON_LIMITS.set(outer)
            if is_long:
                BODY_PROGRESS.set(None)
            if takes_slot:
                self._leave_slot()
        if pending.state is WAITING:
            raise InvalidResponse(f"The server answered {pending.method} with a message that is not an answer")

    async def _wait_for_slot(self, pending: Pending) -> bool:
        """Wait until a request may be opened. Returns False if it is over meanwhile. Raises ChannelClosed.

        `asyncio.Semaphore` enters six functions even where there is room.
        """
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._leave_slot()  # it was given one meanwhile
            raise
        if self._closed or pending.state is not WAITING:
            self._leave_slot()
        if self._closed:
            raise ChannelClosed(f"The channel to {self._endpoint.url} is closed")
        return pending.state is WAITING

    def _leave_slot(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1

    def abandon(self, why: Abandoned, /) -> None:
        """See `AbandonableChannel`."""
        self._endpoint.abandon(why)

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
            tasks = {*self._tasks, *([listener] if listener is not None else [])} - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=self.limits.teardown)

    # ---------------------------------------------------------------- one request and its answer

    def _post(self, message: Outgoing) -> Awaitable[WireResponse]:
        headers = _POST + message.headers
        if message.method == "initialize":
            return self._initialize(headers, message)
        return self._endpoint.request("POST", headers + self._session_headers, message.data, message.pending)

    async def _initialize(self, headers: HeaderPairs, message: Outgoing) -> WireResponse:
        self._forget_session()
        response = await self._endpoint.request("POST", headers, message.data)
        self._begin_session(response)
        return response

    async def get(self, last_event_id: str) -> WireResponse:
        """Open a stream of the session, from its start or after an event."""
        headers = [*_GET, *self._session_headers]
        if last_event_id:
            headers.append((http.LAST_EVENT_ID, last_event_id))
        return await self._endpoint.request("GET", headers)

    async def read_message(self, start: bytes, response: WireResponse, about: str, kind: str) -> bytes:
        """Read the content of a response that is one message, of some media type, after its start. Raises InvalidResponse."""
        content_type = response.headers.get("content-type")
        if kind != JSON and not begins_message(start):
            raise await _unusable(start, response, about)
        body = start
        if len(body) > self.limits.reply or not getattr(response, "finished", False):
            body = await self._read_rest(body, response, about)
        if kind != JSON and (is_batch(body) or meant_as(body) == "response"):
            self._conversation.note("content-type", f"{about}: {content_type or 'none'}")
        if content_type is not None and content_type != kind and (text := in_utf8(body, content_type)) is not None:
            self._conversation.note("charset", f"{about}: {content_type}")
            return text
        return body

    async def _read_rest(self, start: bytes, response: WireResponse, about: str) -> bytes:
        """Read the content after its start. Returns all of it. Raises InvalidResponse if it is too long."""
        limit, size, parts = self.limits.reply, len(start), [start]
        while size <= limit:
            piece = await response.read()
            if not piece:
                return b"".join(parts)
            parts.append(piece)
            size += len(piece)
        raise InvalidResponse(over_limit(f"The answer to {about}", "reply", limit))

    async def _refusal(self, message: Outgoing, response: WireResponse, session: str | None) -> CallError:
        """Make the error for a message that was answered with an HTTP error status.

        A JSON-RPC error without id, or with the id of the message, becomes a PeerError, unless the status is about access
        or the load of a gateway; `Overloaded` and `NotFinished` are PeerErrors as on every other transport. A session that
        the server no longer knows is forgotten; if nobody waits for an answer, the conversation ends.
        """
        status = response.status
        is_json = media_type(response.headers.get("content-type")) == JSON
        body = await read_start(response, self.limits.reply if is_json else ERROR_BYTES)
        failure = _decode_failure(body)
        if failure is not None and not is_json:
            kind = response.headers.get("content-type", "none")
            self._conversation.note("content-type", f"{message.method or 'an answer'}: {kind}")
        error = failure.error if failure is not None else None
        what = f"The server refuses {message.method or 'an answer'}"
        if session is not None and self._lost_session(response, body, error):
            if status != 404:
                self._conversation.note("lost-session-status", f"HTTP {status}: {excerpt(body)}")
            if message.pending is None:
                self._end_session(session, "the server ended the session")
            elif session == self.session_id:  # a new one may have begun meanwhile
                self._forget_session()
            return status_error(what, status, response.headers, body, error, SessionEnded)
        about_access = status in _ABOUT_ACCESS and (error is None or error.code not in _OF_THE_SERVER)
        if failure is not None and not about_access and failure.id in (None, message.id):
            return PeerError(failure.error, status)
        return status_error(what, status, response.headers, body, error)

    def _lost_session(self, response: WireResponse, body: bytes, error: ErrorObject | None) -> bool:
        """Whether a refusal says that the server no longer knows the session.

        404 does, unless the method is not found; 410, and 400 in words that say so; 401 likewise where no login is in use.
        """
        status = response.status
        if status == 404:
            return error is None or error.code != _METHOD_NOT_FOUND
        if status == 401 and (self._endpoint.logs_in or "www-authenticate" in response.headers):
            return False
        return status == 410 or (status in (400, 401) and _LOST_SESSION.search(body[:ERROR_BYTES]) is not None)

    # ---------------------------------------------------------------- messages of the server

    def feed(self, data: bytes, pending: Pending, is_handshake: bool, *, resumed: bool = False) -> None:
        """Take one message from the response to a request.

        Args:
            data: The message.
            pending: The request.
            is_handshake: Whether the request belongs to the handshake era, so that the server may send requests.
            resumed: Whether the stream was resumed, so that it may repeat answers to other requests.

        Raises:
            InvalidResponse: The data is not a message, or an answer to another request.
            PeerError: The answer is an error without id, which on this stream means the request.
        """
        try:
            messages: list[tuple[bytes, Message | None]] = [(data, decode(data))]
        except ProtocolError:  # it may be a batch, or have a slip
            messages = self._decode(data, pending, pending.method, is_handshake, resumed=resumed)
        for item, message in messages:
            if type(message) is Response or type(message) is Failure:
                if message.id is None:
                    raise PeerError(message.error)
                if message.id != pending.id and message.id != str(pending.id):
                    if resumed:
                        continue
                    raise InvalidResponse(
                        f"The server answered {pending.method} with the id {message.id!r}, not {pending.id!r}"
                    )
                self._conversation.receive(message)
            else:
                self._serve_message(item, is_handshake, pending)

    def is_stray(self, event: Event) -> bool:
        """Whether an event with data holds no message. That is noted, and so is a message in an event of another name."""
        stray = stray_event(event)
        note_event(event, stray, self._conversation.note)
        return bool(stray)

    def feed_unasked(self, data: bytes) -> bool:
        """Take one message from the standing stream. Returns False if it is useless; never raises."""
        useful = False
        try:
            for item, message in self._decode(data, None, "The server's own stream", True):
                # Answers do not belong here, but some servers send them here when the stream of the call has ended.
                if not isinstance(message, Failure) or message.id is not None:
                    self._serve_message(item, True)
                    useful = True
        except InvalidResponse as exc:
            self._warn("%s", exc)
        return useful

    async def wait_for_room(self) -> None:
        """Wait while too many requests of the server are being answered."""
        while len(self._tasks) >= self.limits.calls:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    def _decode(
        self, data: bytes, pending: Pending | None, about: str, is_handshake: bool, *, resumed: bool = False
    ) -> list[tuple[bytes, Message | None]]:
        """Decode a message that may have a slip, or those of a batch. A result without an id is that of `pending`.

        None stands for a malformed request, which is answered with an error. Other messages that are neither valid nor
        meant as the answer are left out.
        """
        messages: list[tuple[bytes, Message | None]] = []
        try:
            items = [data]
            if is_batch(data):
                items = split_batch(data, self.limits.batch)
                if self._revision is None or not knows(self._revision, "batches"):
                    self._conversation.note("batch", f"{about}: {excerpt(data)}")
        except ProtocolError as exc:
            raise InvalidResponse(
                f"{about}: the server sent data that is not a message: {exc}: {excerpt(data)}"
            ) from exc
        answers = None if pending is None or resumed else pending.id
        for item in items:
            try:
                messages.append(self._decode_item(item, answers))
            except ProtocolError as exc:
                meant, identity = meant_as(item), id_of(exc, item)
                if meant == "request" and identity is not None and is_handshake:
                    messages.append((item, None))
                elif meant in ("request", "notification"):
                    # the text, not the error: a handler that keeps records would keep what its traceback holds
                    name = "message-without-id" if meant == "request" else "invalid-notification"
                    self._conversation.note(name, f"{about}: {exc}: {excerpt(item)}")
                elif pending is not None and identity not in (None, pending.id, str(pending.id)):
                    self._conversation.note("answer-to-another", f"{about}: {exc}: {excerpt(item)}")
                else:
                    raise InvalidResponse(
                        f"{about}: the server sent data that is not a message: {exc}: {excerpt(item)}"
                    ) from exc
        return messages

    def _decode_item(self, data: bytes, answers: RequestId | None) -> tuple[bytes, Message]:
        """Decode one message; one with a slip as it was meant. Raises ProtocolError."""
        try:
            return data, decode(data)
        except ProtocolError:
            mended = mend(data, answers)
            if mended is None:
                raise
            message = decode(mended[0])
            for name in mended[1]:
                self._conversation.note(name, excerpt(data))
            return mended[0], message

    def _serve_message(self, data: bytes, is_handshake: bool, pending: Pending | None = None) -> None:
        received = self._conversation.receive(data)
        if received is None:
            return
        if isinstance(received, Outgoing):
            if is_handshake:
                self._start(self._deliver(received))
        elif is_handshake or (isinstance(received, Call) and received.id is None):
            self._start(self._answer(received, pending))
        else:
            # In the stateless era a stream carries no requests and a client sends no responses.
            self._warn("The server sent a request on a stream that can't carry one; it is not answered")
            self._conversation.cancel(received, "requests can't be answered on this stream")

    async def _answer(self, call: Any, pending: Pending | None) -> None:
        reply = await self._conversation.answer(call)
        if reply is not None:
            await self._deliver_again(reply, pending)

    async def _deliver_again(self, message: Outgoing, pending: Pending | None = None) -> None:
        """POST what a server may take twice, an answer or the end of the handshake: again if it may not have arrived.

        Args:
            message: The message.
            pending: The request that can't be answered without it: then it is sent again as long as that waits.
        """
        pauses = chain(_RESEND_PAUSES if message.method else _ANSWER_PAUSES, self._pauses_of(pending))
        for pause in pauses:
            try:
                return await self._deliver(message)
            except (NotSent, ConnectionLost, HttpStatus, PeerError) as exc:
                wait = _resend_delay(exc)
                if wait is None or wait > self.limits.call_idle:
                    raise
                logger.debug("%s is sent again: %s", message.method or "An answer", exc)
            await asyncio.sleep(max(pause, wait))
        await self._deliver(message)

    @staticmethod
    def _pauses_of(pending: Pending | None) -> Iterator[float]:
        while pending is not None and pending.state is WAITING:
            yield _ANSWER_PAUSES[-1]

    async def _deliver(self, message: Outgoing) -> None:
        """POST a notification or a reply; any 2xx is success."""
        session = self.session_id
        try:
            async with self._deliveries, asyncio.timeout(self.limits.call_idle):
                response = await self._post(message)
                if response.status >= 300:
                    refusal = await self._refusal(message, response, session)
                    if message.method != "notifications/initialized" or self._is_final(refusal, response.status):
                        raise refusal
                    self._conversation.note("initialized-refused", str(refusal))
        except TimeoutError:
            what = message.method or "The answer to a request"
            raise CallTimeout(f"{what}: the server did not accept it within {self.limits.call_idle:g} s") from None
        response.close(drain=True)
        if message.method == "notifications/initialized" and not self._closed:
            await self._start_listening()

    @staticmethod
    def _is_final(refusal: CallError, status: int) -> bool:
        """Whether a refusal is about access or load, or ends the session, rather than about the message."""
        return status < 400 or status in _ABOUT_ACCESS or isinstance(refusal, SessionEnded)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        exc = None if task.cancelled() else task.exception()
        if isinstance(exc, GemelError):
            self._warn("An answer did not reach the server: %s", exc)
        elif exc is not None:
            logger.error("Answering the server failed", exc_info=exc)

    # ---------------------------------------------------------------- the session

    def _begin_session(self, response: WireResponse) -> None:
        session_id = response.headers.get(http.SESSION_ID.lower())
        if not session_id or response.status >= 300:
            return
        if not http.is_session_id(session_id):
            response.close()
            raise InvalidResponse("The server gave a session id with invalid characters")
        self.session_id = session_id
        self._prepare_headers()

    def _forget_session(self) -> None:
        """Reset: the session is over, or a new one is about to begin."""
        self.session_id = self._revision = None
        self._session_headers = ()
        self._stop_listening()

    def _end_session(self, session: str, reason: str) -> None:
        """Fail what waits in the session, unless a new session has begun."""
        if session == self.session_id:
            self._forget_session()
            self._conversation.close(reason)

    def _prepare_headers(self) -> None:
        pairs = ((http.SESSION_ID, self.session_id), (mirror.PROTOCOL_VERSION, self._revision))
        self._session_headers = tuple((name, value) for name, value in pairs if value is not None)

    async def _delete(self) -> None:
        """Tell the server that the session is over; it may refuse."""
        try:
            async with asyncio.timeout(min(_DELETE_SECONDS, self.limits.teardown)):
                response = await self._endpoint.request("DELETE", self._session_headers)
                response.close()
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
        reconnection, session = Reconnection(), self.session_id
        loop = asyncio.get_running_loop()
        was_open = is_unreachable = False
        while True:
            began = loop.time()
            try:
                response = await self.get(reconnection.last_id)
                was_open, is_unreachable = was_open or response.status == 200, False
                answered.set()
                if not await self._read_standing_stream(response, reconnection):
                    # Before the first stream, 404 may mean that there is none to be had.
                    if was_open and response.status in (404, 410) and session is not None:
                        self._end_session(session, "the server ended the session")
                    return
            except (NotSent, ConnectionLost, InvalidResponse) as exc:
                is_unreachable = isinstance(exc, NotSent)
                logger.debug("The server's own stream: %s", exc)
            except Exception as exc:
                logger.warning("The server's own stream can't be opened: %s", exc)
                return
            finally:
                answered.set()
            if loop.time() - began >= _LONG_LIVED:
                reconnection.progress()
            delay = reconnection.next_delay()
            if delay is None:
                if is_unreachable and session is not None:
                    self._end_session(session, "the server can't be reached any more")
                else:
                    logger.warning("The server's own stream ends as soon as it is opened; it stays closed")
                return
            await asyncio.sleep(delay)

    async def _read_standing_stream(self, response: WireResponse, reconnection: Reconnection) -> bool:
        """Feed the stream to its end. Returns False if the server offers none."""
        try:
            if not is_event_stream(response):
                return response.status >= 500 or response.status == 429
            reader = EventReader(response, self.limits.reply)
            while (events := await reader.read()) is not None:
                for event in events:
                    reconnection.note(event)
                    if event.data and not self.is_stray(event) and self.feed_unasked(event.data):
                        reconnection.progress()
                await self.wait_for_room()
            return True
        finally:
            response.close()


def _resend_delay(error: CallError) -> float | None:
    """The seconds after which a message may be sent again that may have arrived; None if it was refused for good."""
    if isinstance(error, PeerError):
        return error.retry_after
    if isinstance(error, HttpStatus):
        return (error.retry_after or 0.0) if error.status in _UNDELIVERED else None
    return 0.0


def stray_event(event: Event) -> str:
    """What an event with data holds if it is not a message, such as one that only keeps a stream open; "" for a message.

    An object that is cut off or has members of a message is a malformed message.
    """
    data = event.data
    if event.type != "message" and (b'"jsonrpc"' not in data or meant_as(data) is None):
        return f"event {shorten(event.type)!r}: {excerpt(data)}"
    if b'"jsonrpc"' in data or not is_print(data) or meant_as(data) is not None:
        return ""
    is_cut_off = data.lstrip().startswith(b"{") and not data.rstrip().endswith(b"}")
    return "" if is_cut_off else excerpt(data) or "blanks"


def note_event(event: Event, stray: str, note: Note) -> None:
    """Note an event that is not a message, `stray` being what it holds, and a message in an event of another name."""
    if stray:
        note("stray-event", stray)
    elif event.type != "message":
        note("event-name", f"{shorten(event.type)!r}: {excerpt(event.data)}")


def _decode_failure(body: bytes) -> Failure | None:
    try:
        message = decode(body)
    except ProtocolError:
        return None
    return message if isinstance(message, Failure) else None


async def _unusable(start: bytes, response: WireResponse, about: str) -> InvalidResponse:
    """Make the error for a 2xx that holds neither a message nor events, from the start of its content."""
    kind = response.headers.get("content-type")
    body = start + await read_start(response)
    if not body:
        return InvalidResponse(f"The server accepted {about} (HTTP {response.status}) and gave no answer")
    what = f"content of the type {kind!r}" if kind else "content without a type"
    return InvalidResponse(f"The server answered {about} with {what}: {excerpt(body)}. Is the URL an MCP endpoint's?")


class _Source(Protocol[ReadT]):
    async def read(self) -> ReadT: ...


class _ResponseStream:
    """Follows the event stream of one request to its answer; in the handshake era it reconnects."""

    def __init__(self, channel: HttpChannel, pending: Pending, is_handshake: bool) -> None:
        self._channel = channel
        self._pending = pending
        self._is_handshake = is_handshake
        self._reconnection = Reconnection()
        self._resumed = False
        self._response: WireResponse | None = None
        self._feeding = False
        #: For errors: the last event that was ignored.
        self._stray = ""
        self._settled = asyncio.Event()

    async def follow(self, response: WireResponse | None, start: bytes = b"") -> None:
        """Feed events until the request is settled, `start` being what was read. Raises ConnectionLost if no answer will come."""
        pending = self._pending
        pending.wake = self._settle
        try:
            while response is not None:
                self._response = response
                reason = await self._feed(response, start)
                start = b""
                response.close(drain=pending.state is ANSWERED)
                self._response = None
                if pending.state is not WAITING:
                    await asyncio.sleep(0)  # requests that came before the answer start before the caller gets it
                    return
                if not self._is_handshake or not self._reconnection.last_id:
                    lost = ConnectionLost(
                        f"The answer to {pending.method} ended without a result: {reason}{self._stray}"
                    )
                    lost.without_answer = reason == _STREAM_ENDED
                    raise lost
                response = await self._resume(reason)
                self._resumed = True
        finally:
            pending.wake = None
            if self._response is not None:
                self._response.close()

    def _settle(self) -> None:
        """The request is over. If another stream settled it, stop waiting on this one."""
        if not self._feeding:
            self._settled.set()
            if self._response is not None:
                self._response.close()

    async def _feed(self, response: WireResponse, start: bytes) -> str:
        """Feed events until the request is settled or the stream is over; returns how it ended."""
        try:
            start = start or await self._read(response)
            if start.startswith((b"{", b"[")):
                return await self._feed_message(response, start)
            reader = EventReader(response, self._channel.limits.reply, start)
            while (events := await self._read(reader)) is not None:
                for event in events:
                    self._reconnection.note(event)
                    if not event.data:  # an opening event
                        pass
                    elif self._channel.is_stray(event):
                        self._stray = f" (and sent {excerpt(event.data)!r}, which is not a message)"
                    else:
                        self._reconnection.progress()
                        self._feeding = True
                        self._channel.feed(event.data, self._pending, self._is_handshake, resumed=self._resumed)
                        self._feeding = False
                    if self._pending.state is not WAITING:
                        return ""
                await self._channel.wait_for_room()
        except ConnectionLost as exc:
            return str(exc)
        return _STREAM_ENDED

    async def _feed_message(self, response: WireResponse, start: bytes) -> str:
        """Feed the message that came in place of an event stream."""
        body = await self._channel.read_message(start, response, self._pending.method, EVENT_STREAM)
        self._feeding = True
        self._channel.feed(body, self._pending, self._is_handshake, resumed=self._resumed)
        self._feeding = False
        return _STREAM_ENDED

    async def _read(self, source: _Source[ReadT]) -> ReadT:
        """Read the next bytes or events. Raises ConnectionLost, InvalidResponse."""
        try:
            return await source.read()
        except InvalidResponse as exc:
            raise InvalidResponse(f"The answer to {self._pending.method} can't be read: {exc}") from exc

    async def _resume(self, reason: str) -> WireResponse | None:
        """Reopen the stream after its last event, when it is due. Returns None if the request is over."""
        failed = f"The answer to {self._pending.method} broke off and could not be resumed"
        while (delay := self._reconnection.next_delay()) is not None:
            try:
                async with asyncio.timeout(delay):
                    await self._settled.wait()
                return None
            except TimeoutError:
                pass
            try:
                response = await self._channel.get(self._reconnection.last_id)
            except (NotSent, ConnectionLost) as exc:
                reason = str(exc)
                continue
            except CallError as exc:
                raise ConnectionLost(f"{failed}: {exc}") from exc
            if is_event_stream(response):
                return response
            response.close(drain=True)
            reason = f"HTTP {response.status}"
            if response.status < 500 and response.status not in (408, 429):
                break
        raise ConnectionLost(f"{failed}: {reason}")
