"""The connection of a client over its life: opened, kept, opened again after it was lost, closed."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw

from gemel.channel import AbandonableChannel, Channel, ProcessChannel, StreamChannel, Transport
from gemel.client.negotiation import (
    NAME_THE_ERA,
    DeclaredCapabilities,
    Discovery,
    Negotiation,
    ProbeEndedServer,
    combine_eras,
    may_be_older,
)
from gemel.client.targets import words_of
from gemel.errors import (
    AuthorizationFailed,
    CallError,
    CallTimeout,
    ChannelClosed,
    ConnectFailed,
    ConnectionLost,
    GemelError,
    HttpStatus,
    NotSent,
    PeerError,
)
from gemel.jsonrpc import RequestId
from gemel.loops import Abandoned, Home, PerLoop, leave_to_parent
from gemel.protocol.connection import Connection
from gemel.protocol.deviations import Deviation, Deviations
from gemel.protocol.eras.base import Era, EraOption
from gemel.protocol.eras.detect import ERAS
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.limits import Limits
from gemel.protocol.records import Call
from gemel.schema.base import PROTOCOL_VERSION, Implementation
from gemel.schema.methods import METHODS
from gemel.session import Handle, Session
from gemel.telemetry import current_telemetry
from gemel.timeouts import time_limit, wait_shared

if TYPE_CHECKING:
    from gemel.spans import ObservedMessage

logger = logging.getLogger("gemel")

_CLOSED = "the client was closed"
_NOT_CONNECTED = "the client is not connected"
#: Errors that say by themselves that the connection could not be opened.
_CLEAR = (ConnectFailed, AuthorizationFailed, HttpStatus)


class ClientConnection:
    """The connection of one client to its server.

    Args:
        target: What the user connects to, for messages.
        transport: Opens a channel to it.
        handle: Serves the requests and notifications of the server.
        info: The name and version of the client.
        capabilities: What the client declares in an era.
        era: The era to use, or "auto" to find it out.
        saved: What an earlier connection found out; ignored if it contradicts `era`.
        limits: Time limits and attempts.
        reconnect: Whether a lost connection is opened again for the next request.
        on_reopened: Called with each new session after the first.

    Attributes:
        home: The event loop that the connection belongs to, from its opening until it is closed.
    """

    def __init__(
        self,
        target: object,
        transport: Transport,
        handle: Handle,
        *,
        info: Implementation,
        capabilities: DeclaredCapabilities,
        era: EraOption,
        saved: Discovery | None,
        limits: Limits,
        reconnect: bool,
        on_reopened: Callable[[Session], Awaitable[None]],
    ) -> None:
        self._target = target
        self._transport = transport
        self._handle = handle
        self._info = info
        self._capabilities = capabilities
        self._era: EraOption = era
        usable = saved is not None and saved.certain and combine_eras(era, saved.era) is not None
        self._saved = saved if usable else None
        #: The session that relies on `_saved`, and the check whether that was wrong, once it has begun.
        self._unverified: tuple[Session, asyncio.Future[bool] | None] | None = None
        #: False for a server that ended when it was probed.
        self._probes = True
        self._limits = limits
        #: Whether a lost connection is opened again.
        self.reconnects = reconnect
        self._on_reopened = on_reopened
        #: The session that requests go over: negotiated, perhaps lost meanwhile.
        self.session: Session | None = None
        #: The session that is being opened, or was opened last.
        self._latest: Session | None = None
        self._resources: AsyncExitStack | None = None
        self.home = Home("client", self.close, self._abandon)
        self._openings = PerLoop(asyncio.Lock)
        #: When connecting has to be over, by the clock of the loop.
        self._connect_by: float | None = None
        #: What the requests of the latest negotiation were answered.
        self._answers: Mapping[str, str] = {}
        self._reopening: asyncio.Task[Session] | None = None
        #: Closes sessions that the server has ended, where requests may still be in flight.
        self._leaving: set[asyncio.Task[None]] = set()
        self._liveness: Liveness | None = None
        self._closed_because = _NOT_CONNECTED
        #: Whether the connection is to be kept: from the first opening until it is closed here.
        self.keep_open = False
        #: How the server deviates from the specification.
        self.deviations = Deviations()
        #: What was negotiated; kept after the end.
        self.discovery: Discovery | None = None
        #: The negotiated era.
        self.era: Era = HANDSHAKE
        #: What a handshake was sent with.
        self._credentials = ""
        #: Whether HTTP headers repeat members of the request and tool arguments.
        self.mirrors = False
        #: Whether the process had telemetry when the connection was opened.
        self.observed = False
        #: The `_meta` of every request, encoded once; empty if the era has none. It names the level of log messages.
        self.meta = b""
        self.log_level: str | None = None
        #: Called with the progress of calls that run as tasks, by token.
        self.task_progress: dict[RequestId, Callable[[Raw], None]] = {}

    async def credentials(self) -> str:
        """What identifies the caller of a request that is sent now; see `Transport.credentials`."""
        return await self._transport.credentials()

    @property
    def warnings(self) -> list[Deviation]:
        """How the server, and those of its login, deviate from the specification."""
        return [*self.deviations, *self._transport.deviations]

    async def same_credentials(self) -> bool:
        """Whether the handshake, if there was one, was sent with the credentials of now."""
        return not self.era.negotiation_method or self._credentials == await self.credentials()

    @property
    def alive(self) -> bool:
        """Whether there is a session that works."""
        return self.session is not None and self.session.connection.closed is None and not self.session.loop.is_closed()

    async def request(self, session: Session, method: str, params: dict[str, Any], *, total: float | None) -> Raw:
        """A request of the client itself, for at most `total` seconds, without retries and rounds. Raises a CallError."""
        pending = session.register_request(method)
        with self.observe(method, params, pending.id) as (_, trace):
            return await session.send_request(pending, {**params, "_meta": trace} if trace else params, total=total)

    async def tell_log_level(self, session: Session, level: str) -> None:
        """Send `logging/setLevel`; a server that refuses it is only logged."""
        try:
            await self.request(session, "logging/setLevel", {"level": level}, total=self._limits.call_idle)
        except PeerError as exc:
            logger.warning("The server refuses the log level %r: %s", level, exc)

    @contextmanager
    def observe(
        self, method: str, params: Mapping[str, Any], request_id: RequestId | None = None
    ) -> Iterator[tuple[ObservedMessage | None, dict[str, str]]]:
        """Observe one outgoing message. Yields the operation, and what the `_meta` of the message must contain.

        These are None and empty in a process without telemetry.
        """
        telemetry = current_telemetry()
        if telemetry is None:
            yield None, {}
            return
        network = self._network_attributes()
        named = (params.get("_meta") or {}).get(PROTOCOL_VERSION)
        if isinstance(named, str):
            network["mcp.protocol.version"] = named
        with telemetry.sending(method, params, network, {}) as (operation, trace):
            operation.set("jsonrpc.request.id", None if request_id is None else str(request_id))
            try:
                yield operation, trace
            finally:  # the first answer tells more
                channel = None if self._latest is None else self._latest.channel
                operation.set("mcp.session.id", getattr(channel, "session_id", None))
                version = getattr(self._transport, "http_version", None)
                operation.set("network.protocol.version", version, metric=True)

    async def _handle_observed(self, session: Session, call: Call) -> Any:
        telemetry = current_telemetry()
        if telemetry is None:
            return await self._handle(session, call)
        names = {"jsonrpc.request.id": call.id, "mcp.session.id": getattr(session.channel, "session_id", None)}
        details = {name: str(value) for name, value in names.items() if value is not None}
        network = {**self._network_attributes(), "mcp.protocol.version": call.revision}
        with telemetry.receiving(call, network, details, served=call.method in METHODS):
            return await self._handle(session, call)

    def _network_attributes(self) -> dict[str, str | int]:
        from gemel.client.targets import network_attributes

        attributes = dict(network_attributes(self._transport))
        if self.discovery is not None:
            attributes["mcp.protocol.version"] = self.discovery.revision
        return attributes

    async def open(self) -> None:
        """Open for the first time, or after `close`. Raises ConnectFailed or another CallError, never a group."""
        async with self._openings.here():
            self.home.enter()
            if self.keep_open:
                raise ConnectFailed("This client is connected already")
            try:
                await self._open()
            except BaseException:
                self.home.leave()
                raise
            self.keep_open = True

    def _abandon(self, why: Abandoned) -> None:
        """The event loop runs no more: end what the connection holds, such as a child process."""
        session, self.keep_open, self._unverified, self._leaving = self._latest, False, None, set()
        self.session = self._latest = self._resources = self._reopening = self._liveness = None
        if session is not None:
            if why == "forked":
                leave_to_parent(session)
            if isinstance(session.channel, AbandonableChannel):
                session.channel.abandon(why)

    async def ready_session(self) -> Session:
        """A session that works, opened again if necessary. Raises NotSent when closed, or why it can't be opened."""
        self.home.check()
        if self.session is not None and self.session.connection.closed is None:
            return self.session
        if self.keep_open and self.reconnects:
            return await self._reopened()
        why = self.session.connection.closed if self.session is not None else self.home.ended or self._closed_because
        raise NotSent(f"Nothing was sent: {why}")

    async def _reopened(self) -> Session:
        """One opening for all who wait: it continues when one of them gives up, and fails for all of them at once."""
        if self._reopening is None or self._reopening.done():
            self._reopening = asyncio.get_running_loop().create_task(self._reopen())
            self._reopening.add_done_callback(lambda task: task.cancelled() or task.exception())
        reopening, here = self._reopening, asyncio.current_task()
        try:
            return await wait_shared(reopening)
        except asyncio.CancelledError:
            if reopening.cancelled() and here is not None and not here.cancelling():
                raise NotSent("Nothing was sent: the client was closed") from None
            raise

    async def _reopen(self) -> Session:
        async with self._openings.here():
            if not self.alive:
                await self._shut("the connection was lost")
                await self._open_patiently()
                if self.session is not None:
                    await self._on_reopened(self.session)
            if self.session is None or not self.keep_open:
                await self._shut(_CLOSED)
                raise NotSent("Nothing was sent: the client was closed")
            return self.session

    async def _open_patiently(self) -> None:
        """A server that died needs a moment: a few attempts, with exponential backoff and jitter."""
        wait = self._limits.backoff
        for attempt in range(self._limits.reconnects):
            try:
                await self._open()
                return
            except CallError as exc:
                if attempt + 1 == self._limits.reconnects or isinstance(exc, AuthorizationFailed):
                    raise
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))
            wait = min(wait * 2, 30.0)

    async def _open(self) -> None:
        resources = AsyncExitStack()
        self.observed = current_telemetry() is not None
        try:
            async with time_limit(self._limits.connect) as limit:
                self._connect_by = limit.when()
                self._answers = {}
                await self._reach(resources)
                self._connect_by = limit.when()
        except BaseException as exc:
            noise = "" if self._latest is None else self._latest.connection.noise
            self._resources = resources
            await self._shut("the connection could not be opened")
            if isinstance(exc, TimeoutError) and not isinstance(exc, CallError):
                raise self._too_late(noise) from exc
            if isinstance(exc, CallError | ChannelClosed) and not isinstance(exc, _CLEAR):
                raise ConnectFailed(str(exc)) from exc  # nothing of the user's was sent yet
            raise
        self._resources = resources

    def _too_late(self, noise: str = "") -> ConnectFailed:
        text = f"No connection to {words_of(self._target)} within {self._limits.connect:g} seconds"
        answers = ", ".join(f"{method} ({answer})" for method, answer in self._answers.items())
        was_probed = self._era == "auto" and "server/discover" in self._answers
        advice = "If it needs longer, raise the limit: limits=Limits(connect=…)"
        advice += f". {NAME_THE_ERA}" if was_probed else ""
        return ConnectFailed(f"{text}{f': {answers}' if answers else ''}{noise}. {advice}")

    @asynccontextmanager
    async def connecting(self) -> AsyncIterator[None]:
        """What belongs to connecting after `open`, within what is left of its limit. Raises ConnectFailed when that is over."""
        limit = asyncio.timeout_at(self._connect_by)
        try:
            async with limit:
                yield
        except TimeoutError as exc:
            if not limit.expired():
                raise
            raise self._too_late() from exc

    async def _reach(self, resources: AsyncExitStack) -> None:
        """Negotiate over the transport, or over its older form if the server only knows that."""
        try:
            await self._negotiate(resources)
        except ProbeEndedServer as exc:
            is_first = self.discovery is None
            if self._latest is not None and isinstance(self._latest.channel, ProcessChannel):
                # A server that is started again writes again why it can't start.
                self._latest.channel.release_stderr(without="" if is_first else None)
            if not is_first:
                raise
            logger.debug("The server is started again, without a probe: %s", exc)
            await resources.aclose()
            self._probes = False
            await self._negotiate(resources)
        except CallError as exc:
            older = self._transport.older()
            if older is None or combine_eras(self._era, older.era) is None or not may_be_older(exc):
                raise
            await resources.aclose()
            newer, self._transport = self._transport, older
            try:
                await self._negotiate(resources)
            except CallError as also:
                self._transport = newer
                logger.debug("The older transport doesn't work either: %s", also)
                raise exc from None

    async def _negotiate(self, resources: AsyncExitStack) -> None:
        await resources.enter_async_context(self._transport.running())
        channel = await self._transport.open(self._serve)
        session = self._latest
        assert session is not None
        resources.push_async_callback(_end, session, channel)
        discovery = self._saved
        if discovery is None or ERAS[discovery.era].negotiation_method:
            discovery = await self._discover(session)
            self._unverified = None
        else:  # an era without negotiation: the saved discovery is enough
            self._unverified = (session, None)
        self._credentials = await self.credentials() if ERAS[discovery.era].negotiation_method else ""
        self.discovery = discovery
        self.era = session.connection.era = era = ERAS[discovery.era]
        self.mirrors = era.mirrors_requests(channel.kind == "post")
        self._write_meta(discovery.revision)
        if era.negotiation_method:
            await _initialized(session, channel, discovery.revision)
        self._liveness = Liveness(session, self._limits, self._probe_liveness)
        resources.push_async_callback(self._liveness.stop)
        self._liveness.start()
        if self._latest is not session:
            raise ConnectFailed("The client was closed while it was being connected")
        self.session = session
        if self.observed:
            resources.callback(self._measure_session, session, time.perf_counter())

    def _measure_session(self, session: Session, start: float) -> None:
        telemetry = current_telemetry()
        if telemetry is not None:
            attributes = self._network_attributes()
            if session.connection.closed != _CLOSED:
                attributes["error.type"] = ConnectionLost.__name__
            telemetry.session_ended("client", start, attributes)

    async def _discover(self, session: Session) -> Discovery:
        """Negotiate with the server, first in the era that was saved of it."""
        negotiation = self._negotiation(session)
        self._answers = negotiation.answers
        era: EraOption = self._era if self._era != "auto" else self._transport.era
        if era == "auto" and not self._probes:
            return await negotiation.run(HANDSHAKE.name)
        if era == "auto" and self._saved is not None:
            try:
                return await negotiation.run(self._saved.era)
            except ConnectFailed as exc:
                logger.debug("The saved discovery of the server is outdated: %s", exc)
                self._saved = None
        return await negotiation.run(era)

    def _negotiation(self, session: Session) -> Negotiation:
        return Negotiation(session, self._info, self._capabilities, self.observe, self._connect_by)

    async def is_outdated(self, session: Session) -> bool:
        """Whether the server refused a request because the saved discovery is outdated: then the next session negotiates.

        The server is asked once. If the discovery is still right, the request was refused for another reason.
        """
        if self._unverified is None or self._unverified[0] is not session or not self.reconnects:
            return False
        if self._unverified[1] is None:
            self._unverified = session, asyncio.ensure_future(self._check_saved(session))
        _, check = self._unverified
        assert check is not None
        return await wait_shared(check)

    async def _check_saved(self, session: Session) -> bool:
        try:
            await self._negotiation(session).run("2026")
        except ConnectFailed as exc:
            self._saved = None
            self.retire(session, f"the saved discovery is outdated: {exc}")
            return True
        except CallError:
            logger.debug("it is not known whether the saved discovery is outdated")
        return False

    async def _probe_liveness(self, session: Session, within: float) -> None:
        params = {"_meta": Raw(self.meta)} if self.meta else {}
        await session.request(self.era.liveness_method, params, total=within)

    def check_liveness(self, session: Session) -> None:
        """Check soon whether the server is alive: a request got no answer in time."""
        if session is self.session and self._liveness is not None:
            self._liveness.check_now()

    def _write_meta(self, revision: str) -> None:
        meta = self.era.request_meta(revision, self._info, self._capabilities(self.era), self.log_level)
        self.meta = msgspec.json.encode(meta) if meta else b""

    def notification_params(self, params: Mapping[str, Any] | None, meta: Mapping[str, Any] | None) -> Any:
        """The params of a notification with its `_meta`, which names the revision in the stateless era."""
        claim = msgspec.json.decode(self.meta) if self.meta else {}
        if not claim and not meta:
            return UNSET if params is None else params
        given = dict(params or {})
        return {**given, "_meta": {**claim, **(meta or {}), **given.get("_meta", {})}}

    def set_log_level(self, level: str) -> None:
        """Ask for this level in later stateless requests."""
        self.log_level = level
        if self.discovery is not None:
            self._write_meta(self.discovery.revision)

    def _serve(self, channel: Channel) -> Session:
        connection = Connection(
            None,
            limits=self._limits,
            printed_on=channel.kind == "stdio",
            task_progress=self.task_progress,
            deviations=self.deviations,
        )
        self._latest = Session(connection, channel, self._handle_observed if self.observed else self._handle)
        return self._latest

    def retire(self, session: Session, reason: str) -> None:
        """Leave a session that the server has ended: the next request opens another one; requests in flight end by themselves."""
        if self.session is not session:
            return
        self._closed_because = reason
        self.session = self._latest = None
        resources, self._resources = self._resources, None
        leaving = asyncio.get_running_loop().create_task(_leave(session, resources, reason, self._limits.teardown))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """Close it, from any task; closing twice is harmless. Raises NotSent in another event loop, unless that of it has ended."""
        self.home.check()
        self.keep_open = False
        ending = {task for task in (self._reopening, *self._leaving) if task is not None} - {asyncio.current_task()}
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)
        await self._shut(_CLOSED)
        self._closed_because = _NOT_CONNECTED
        if not self.keep_open and not self._openings.here().locked():  # nobody has opened it again meanwhile
            self.home.leave()

    async def _shut(self, reason: str) -> None:
        session, self.session, self._latest = self._latest, None, None
        resources, self._resources = self._resources, None
        if session is not None:
            await session.cancel_requests(reason)
            session.close(reason)
        if resources is not None:
            await resources.aclose()


async def _initialized(session: Session, channel: Channel, revision: str) -> None:
    """Finish the handshake with `notifications/initialized`. Raises ConnectFailed if the server ended meanwhile."""
    if session.connection.closed is not None:
        raise ConnectFailed(f"The server ended during the handshake: {session.connection.closed}")
    session.connection.handshake.assume(revision)
    channel.set_revision(revision)
    try:
        await session.notify("notifications/initialized")
    except ChannelClosed as exc:
        raise ConnectFailed(f"The server ended during the handshake: {exc}") from exc


async def _leave(session: Session, resources: AsyncExitStack | None, reason: str, within: float) -> None:
    """Close a session when nothing is in flight any more, or after `within` seconds."""
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while session.connection.outgoing:  # noqa: ASYNC110 # seldom, and no request should pay for an event
                    await asyncio.sleep(0.02)
    finally:
        session.close(reason)
        if resources is not None:
            await resources.aclose()


async def _end(session: Session, channel: Channel) -> None:
    try:
        with suppress(GemelError):
            await channel.close()
    finally:
        session.close(_CLOSED)
        await session.wait_closed()


class Liveness:
    """Watches one session. `probe(session, within)` is a request that every server answers at once."""

    def __init__(self, session: Session, limits: Limits, probe: Callable[[Session, float], Awaitable[object]]) -> None:
        self._session = session
        self._limits = limits
        self._probe = probe
        self._looking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        #: Only byte streams can be open without a server.
        self._channel = session.channel if isinstance(session.channel, StreamChannel) else None

    def start(self) -> None:
        """Probe after each `limits.alive` seconds of silence, if that is set."""
        if self._channel is not None and self._limits.alive > 0:
            self._watching = asyncio.get_running_loop().create_task(self._watch(self._channel))

    def check_now(self) -> None:
        """A request got no answer in time: probe a socket, which is dead after `limits.silence` more seconds of silence."""
        if self._channel is None or self._channel.kind != "socket" or self._limits.silence <= 0:
            return
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look(self._channel))

    async def stop(self) -> None:
        """Stop watching."""
        tasks = [task for task in (self._looking, self._watching) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _watch(self, channel: StreamChannel) -> None:
        while self._session.connection.closed is None:
            channel.has_received = False
            await asyncio.sleep(self._limits.alive)
            if not channel.has_received:
                await self._look(channel)

    async def _look(self, channel: StreamChannel) -> None:
        within = self._limits.silence or self._limits.alive
        channel.has_received = False
        try:
            await self._probe(self._session, within)
        except CallTimeout:
            if not channel.has_received:
                logger.warning("The server did not respond for %g seconds; the connection is closed", within)
                channel.abort(f"the server did not respond for {within:g} seconds")
        except CallError as exc:  # an answer, or the end of the session
            logger.debug("the probe was answered by an error: %s", exc)
