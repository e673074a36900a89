"""The connection of a client over its life: opens it, keeps what was agreed, and opens it again when it was lost."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
from msgspec import UNSET, Raw

from hinge.channel import Channel, Transport
from hinge.client import telemetry
from hinge.client.liveness import Liveness
from hinge.client.negotiation import Discovery, Introduction, Opening, may_be_older
from hinge.client.targets import words_of
from hinge.errors import CallError, ChannelClosed, ConnectFailed, HingeError, HttpStatus, NotSent, PeerError
from hinge.protocol.connection import Connection
from hinge.protocol.eras.base import EraName
from hinge.protocol.eras.detect import ERAS
from hinge.protocol.eras.stateless import STATELESS
from hinge.protocol.limits import Limits
from hinge.session import Handle, Session

if TYPE_CHECKING:
    from hinge.client.extensions import ClientExtensions

logger = logging.getLogger("hinge")


class Link:
    """One client's way to its server. `reconnect` opens it again for the next request after it was lost."""

    def __init__(
        self,
        target: Any,
        transport: Transport,
        handle: Handle,
        *,
        introduction: Introduction,
        extensions: ClientExtensions,
        limits: Limits,
        reconnect: bool,
    ) -> None:
        self._target = target
        self._transport = transport
        self._handle = handle
        self._introduction = introduction
        #: What was found out in an earlier life, unless it contradicts what is wanted now.
        saved = introduction.saved
        self._saved = saved if saved is not None and introduction.era in ("auto", saved.era) else None
        #: The session that relies on it, and whether it shouldn't have, once somebody asked.
        self._relying: tuple[Session, asyncio.Future[bool] | None] | None = None
        #: What is declared besides, and what that knows of messages.
        self.extensions = extensions
        self._limits = limits
        self._reconnect = reconnect
        #: What requests go over: only a session that has agreed with its server.
        self._session: Session | None = None
        #: The session that is being opened, or was last.
        self._begun: Session | None = None
        self._resources: AsyncExitStack | None = None
        self._opening = asyncio.Lock()
        self._reopening: asyncio.Task[Session] | None = None
        #: Sessions that the server has ended, where something may still be in flight.
        self._leaving: set[asyncio.Task[None]] = set()
        self._liveness: Liveness | None = None
        self._over = "the client is not connected"
        self._wanted = False
        #: What was agreed; kept after the end.
        self.found: Discovery | None = None
        #: The `_meta` of every stateless request, encoded once, and the level of log messages it asks for.
        self.meta = b""
        self.log_level: str | None = None
        #: Called with each new session, after the first.
        self.on_reopened: list[Callable[[Session], Awaitable[None]]] = []

    @property
    def current(self) -> Session | None:
        """The session that works, if there is one."""
        session = self._session
        return session if session is not None and session.connection.closed is None else None

    @property
    def alive(self) -> bool:
        """Whether there is a session that works."""
        return self.current is not None

    @property
    def wanted(self) -> bool:
        """Whether the connection is to be kept: from the first opening until it is closed from here."""
        return self._wanted

    @property
    def reconnects(self) -> bool:
        """Whether a lost connection is opened again."""
        return self._reconnect

    async def request(self, session: Session, method: str, params: dict[str, Any], *, total: float) -> Raw:
        """A request that is no user's, for at most `total` seconds: once, without repeats and rounds. Raises a CallError."""
        pending = session.ask(method)
        with self.span(method, params, pending.id) as trace:
            return await session.exchange(pending, {**params, "_meta": trace} if trace else params, total=total)

    async def tell_log_level(self, session: Session, level: str) -> None:
        """A handshake server that has a logger is told; one that then refuses is no reason to do without all the rest."""
        try:
            await self.request(session, "logging/setLevel", {"level": level}, total=self._limits.call_idle)
        except PeerError as exc:
            logger.warning("The server refuses the log level %r: %s", level, exc)

    @contextmanager
    def span(self, method: str, params: Mapping[str, Any], request_id: object = None) -> Iterator[dict[str, str]]:
        """The span of one message that leaves, if somebody traces; comes with what its `_meta` must say then."""
        tracer = telemetry.tracer()
        if tracer is None:
            yield {}
            return
        revision = self.found.revision if self.found is not None else None
        traced = telemetry.span(
            tracer, method, params, request_id=request_id, revision=revision, place=telemetry.place_of(self._transport)
        )
        with traced as (_, trace):
            yield trace

    @property
    def place(self) -> dict[str, str | int]:
        """Where the server is, for traces."""
        return telemetry.place_of(self._transport)

    @property
    def on_http(self) -> bool:
        """Whether messages travel over HTTP, with headers that mirror them."""
        return self._session is not None and self._session.channel.kind == "post"

    async def open(self) -> None:
        """Open for the first time, or after `close`. Raises ConnectFailed or another CallError, never a group."""
        async with self._opening:
            if self._wanted:
                raise ConnectFailed("This client is connected already")
            await self._open()
            self._wanted = True

    async def session(self) -> Session:
        """A session that works: the one there is, or a new one. Raises NotSent when closed, or the reason it can't open."""
        session = self.current
        if session is not None:
            return session
        if self._wanted and self._reconnect:
            return await self._reopened()
        why = self._session.connection.closed if self._session is not None else self._over
        raise NotSent(f"Nothing was sent: {why}")

    async def _reopened(self) -> Session:
        """One opening for all who wait: it goes on when one of them gives up, and fails for all of them at once."""
        if self._reopening is None or self._reopening.done():
            self._reopening = asyncio.get_running_loop().create_task(self._another())
            self._reopening.add_done_callback(lambda task: task.cancelled() or task.exception())
        reopening, here = self._reopening, asyncio.current_task()
        try:
            return await asyncio.shield(reopening)
        except asyncio.CancelledError:
            if reopening.cancelled() and here is not None and not here.cancelling():
                raise NotSent("Nothing was sent: the client was closed") from None
            raise

    async def _another(self) -> Session:
        async with self._opening:
            if not self.alive:
                await self._shut("the connection was lost")
                await self._open_patiently()
                for hook in self.on_reopened:
                    if self._session is not None:
                        await hook(self._session)
            if self._session is None or not self._wanted:
                await self._shut("the client was closed")
                raise NotSent("Nothing was sent: the client was closed")
            return self._session

    async def _open_patiently(self) -> None:
        """A server that died needs a moment: a few attempts, further and further apart, with jitter."""
        wait = self._limits.backoff
        for attempt in range(self._limits.reconnects):
            try:
                await self._open()
                return
            except CallError:
                if attempt + 1 == self._limits.reconnects:
                    raise
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))
            wait = min(wait * 2, 30.0)

    async def _open(self) -> None:
        resources = AsyncExitStack()
        try:
            async with asyncio.timeout(self._limits.connect):
                await self._reach(resources)
        except BaseException as exc:
            noise = "" if self._begun is None else self._begun.connection.noise
            self._resources = resources
            await self._shut("the connection could not be opened")
            if isinstance(exc, TimeoutError) and not isinstance(exc, CallError):
                seconds = f"{self._limits.connect:g} seconds"
                raise ConnectFailed(f"No conversation with {words_of(self._target)} within {seconds}{noise}") from exc
            if isinstance(exc, CallError | ChannelClosed) and not isinstance(exc, ConnectFailed | HttpStatus):
                raise ConnectFailed(str(exc)) from exc  # nothing of the user's was sent yet
            raise
        self._resources = resources

    async def _reach(self, resources: AsyncExitStack) -> None:
        """Agree over the transport, or over its older form where the server knows no newer one (VER-14, VER-21)."""
        try:
            await self._agree(resources)
        except CallError as exc:
            older = getattr(self._transport, "older", None)
            if older is None or self._introduction.era == "2026" or not may_be_older(exc):
                raise
            await resources.aclose()
            newer, self._transport = self._transport, older()
            try:
                await self._agree(resources)
            except CallError as also:
                self._transport = newer
                logger.debug("The older transport doesn't work either: %s", also)
                raise exc from None

    async def _agree(self, resources: AsyncExitStack) -> None:
        if hasattr(self._target, "running"):
            await resources.enter_async_context(self._target.running())
        channel = await self._transport.open(self._serve)
        session = self._begun
        assert session is not None
        resources.push_async_callback(_end, session, channel)
        found = self._saved if self._saved is not None and self._saved.era == "2026" else None
        self._relying = (session, None) if found is not None else None
        if found is None:
            found = await self._find_out(session)
        self.found = found
        session.connection.era = ERAS[found.era]
        if found.era == "2026":
            self._write_meta(found.revision)
        else:
            await _shaken(session, channel, found.revision)
        self._liveness = Liveness(session, self._limits, self._ask_for_a_sign)
        resources.push_async_callback(self._liveness.stop)
        self._liveness.start()
        if self._begun is not session:
            raise ConnectFailed("The client was closed while it was being connected")
        self._session = session

    async def _find_out(self, session: Session) -> Discovery:
        """Agree with the server; what was saved of it says where to begin, and no more than that."""
        opening = Opening(session, self._introduction, self.span)
        era = self._introduction.era
        if era == "auto":
            era = cast("EraName | Literal['auto']", getattr(self._transport, "era", era))
        if era == "auto" and self._saved is not None:
            try:
                return await opening.agree(self._saved.era)
            except ConnectFailed as exc:
                logger.debug("The server isn't what was saved of it: %s", exc)
                self._saved = None
        return await opening.agree(era)

    async def is_outdated(self, session: Session) -> bool:
        """Whether the server refused a request because it isn't what was saved of it: then the next session finds out anew.

        It is asked once; if it still is what it was, it has refused the request for a reason of its own.
        """
        if self._relying is None or self._relying[0] is not session or not self._reconnect:
            return False
        if self._relying[1] is None:
            self._relying = session, asyncio.ensure_future(self._is_gone(session))
        _, asking = self._relying
        assert asking is not None
        return await asyncio.shield(asking)

    async def _is_gone(self, session: Session) -> bool:
        try:
            await Opening(session, self._introduction, self.span).agree("2026")
        except ConnectFailed as exc:
            self._saved = None
            self.retire(session, f"the server isn't what was saved of it: {exc}")
            return True
        except CallError:
            logger.debug("whether the server still is what was saved of it is not known")
        return False

    async def _ask_for_a_sign(self, session: Session, within: float) -> None:
        era = session.connection.era
        params = {"_meta": Raw(self.meta)} if era is STATELESS else {}
        await session.request(era.liveness_method, params, total=within)

    def doubt(self, session: Session) -> None:
        """A request got no answer in time here: perhaps nobody is there any more."""
        if session is self._session and self._liveness is not None:
            self._liveness.doubt()

    def _write_meta(self, revision: str) -> None:
        mine = self._introduction
        meta = STATELESS.request_meta(revision, mine.info, mine.capabilities_for(STATELESS), self.log_level)
        self.meta = msgspec.json.encode(meta)

    def dressed(self, params: Mapping[str, Any] | None, meta: Mapping[str, Any] | None) -> Any:
        """The params of a notification as they leave.

        In the stateless era with the claim: without it a server of both eras takes it for the other one's (VER-05).
        """
        claim = msgspec.json.decode(self.meta) if self.found is not None and self.found.era == "2026" else {}
        if not claim and not meta:
            return UNSET if params is None else params
        given = dict(params or {})
        return {**given, "_meta": {**claim, **(meta or {}), **given.get("_meta", {})}}

    def set_log_level(self, level: str) -> None:
        """Later stateless requests ask for this level."""
        self.log_level = level
        if self.found is not None and self.found.era == "2026":
            self._write_meta(self.found.revision)

    def _serve(self, channel: Channel) -> Session:
        connection = Connection(None, limits=self._limits, printed_on=channel.kind == "stdio")
        self._begun = Session(connection, channel, self._handle)
        return self._begun

    def retire(self, session: Session, reason: str) -> None:
        """The server no longer knows this session: requests begin another one; what is in flight there gets its own end."""
        if self._session is not session:
            return
        self._over = reason
        self._session = self._begun = None
        resources, self._resources = self._resources, None
        leaving = asyncio.get_running_loop().create_task(_leave(session, resources, reason, self._limits.teardown))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """End it for good, from any task; twice is fine."""
        self._wanted = False
        ending = {task for task in (self._reopening, *self._leaving) if task is not None} - {asyncio.current_task()}
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)
        await self._shut("the client was closed")

    async def _shut(self, reason: str) -> None:
        session, self._session, self._begun = self._begun, None, None
        resources, self._resources = self._resources, None
        if session is not None:
            await session.withdraw(reason)
            session.close(reason)
        if resources is not None:
            await resources.aclose()


async def _shaken(session: Session, channel: Channel, revision: str) -> None:
    """The handshake is agreed: keep the revision and say so (LIFE-07). Raises ConnectFailed if the server has gone since."""
    if session.connection.closed is not None:
        raise ConnectFailed(f"The server ended with the handshake: {session.connection.closed}")
    session.connection.handshake.assume(revision)
    adopt = getattr(channel, "adopt", None)
    if adopt is not None:
        adopt(revision)
    try:
        await session.notify("notifications/initialized")
    except ChannelClosed as exc:
        raise ConnectFailed(f"The server ended with the handshake: {exc}") from exc


async def _leave(session: Session, resources: AsyncExitStack | None, reason: str, within: float) -> None:
    """Close a session when nothing is in flight there any more, but soon in any case."""
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
        with suppress(HingeError):
            await channel.close()
    finally:
        session.close("the client was closed")
        await session.finish()
