"""One server of a client group: its state, kept connected in the background, and its limit of concurrent requests."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Literal, TypeAlias

import msgspec

from gemel.client.client import Client
from gemel.client.subscriptions import announced_lists, listen_to
from gemel.errors import (
    AuthorizationFailed,
    CallError,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    GemelError,
    HttpStatus,
    NotSent,
    PeerError,
    shorten,
)
from gemel.loops import Abandoned, Home
from gemel.protocol.changes import Changed, ChangesLost
from gemel.protocol.deviations import Deviation
from gemel.protocol.eras.base import EraName
from gemel.protocol.eras.detect import ERAS
from gemel.schema.methods import LIST_CHANGED
from gemel.timeouts import PERSON_LIMITS, TimeLeft, add_time, give_up_if_cancelled, person_extends

logger = logging.getLogger("gemel")

#: `lost` was ready before and is connected again by the next call; `failed` was never reached.
State: TypeAlias = Literal["disabled", "connecting", "ready", "lost", "failed", "closed"]

#: Called with a change and the name of the server; sync or async.
OnChange: TypeAlias = Callable[[Changed | ChangesLost, str], Any]

#: Seconds before the next attempt to reach a server: the first and the longest pause, with jitter.
FIRST_WAIT = 0.5
LONGEST_WAIT = 60.0


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The health of a server.

    Attributes:
        state: Its state.
        reason: Why it is not ready.
        latency: The time of a ping in seconds; None if it was not answered.
        running: How many requests are in flight.
        era: The era of the connection.
        revision: The protocol revision of the connection.
    """

    state: State
    reason: str = ""
    latency: float | None = None
    running: int = 0
    era: EraName | None = None
    revision: str = ""


class Member:
    """One server of a group.

    Attributes:
        name: The name in the group.
        state: "ready", or why it is not; see `State`.
        reason: More about a state that is not "ready".
    """

    def __init__(
        self,
        name: str,
        client: Client | None,
        *,
        concurrency: int,
        on_change: OnChange | None = None,
        problem: str = "",
    ) -> None:
        self.name = name
        self.state: State = "connecting"
        self.reason = problem
        if client is None:
            self.state = "failed" if problem else "disabled"
            self.reason = problem or "it is disabled in the configuration"
        if problem:
            logger.warning("Server %r is failed: %s", name, problem)
        self._client = client
        self._concurrency = concurrency
        self._on_change = on_change
        self._home = Home("group", self.close, self._abandon)
        self._begin()

    def _begin(self) -> None:
        """Set what belongs to one event loop."""
        self._places = asyncio.Semaphore(self._concurrency)
        self._running = 0
        self._connected_before = False
        self._settled = asyncio.Event()
        self._supervising: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[str] | None = None
        self._failed_request = asyncio.Event()
        self._may_be_back = asyncio.Event()
        #: Extend the limits of those who wait until it is connected, by the seconds in which a person logs in.
        self._waiting: set[Callable[[float], None]] = set()
        #: Whether a listing was made without it, so that its arrival is a change.
        self.is_late = False

    def __repr__(self) -> str:
        return f"<Member {self.name!r}: {self.state}{f', {shorten(self.reason)}' if self.reason else ''}>"

    @property
    def client(self) -> Client:
        """The client of the server.

        Raises:
            NotSent: The server is disabled, or its entry in the configuration has a problem.
        """
        if self._client is None:
            raise NotSent(f"Server {self.name!r} is not available: {self.reason}")
        return self._client

    @property
    def available(self) -> bool:
        """Whether requests can be sent: it was reached and is not closed."""
        return self.state in ("ready", "lost")

    @property
    def is_connecting(self) -> bool:
        """Whether the first attempt to connect is under way."""
        return self._supervising is not None and not self._settled.is_set()

    @property
    def unsettled(self) -> str:
        """Why the first attempt to connect is not over."""
        return self.reason or "it is still connecting"

    @property
    def warnings(self) -> list[Deviation]:
        """How the server deviated from the specification and was understood all the same; see `Client.warnings`."""
        return [] if self._client is None else self._client.warnings

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Connect, and keep connected, in the background. Raises NotSent if it is connected in another event loop."""
        self._home.check()
        if self._client is not None and self._supervising is None:
            self._home.enter()
            self._begin()
            self.state, self.reason = "connecting", ""
            self._supervising = asyncio.get_running_loop().create_task(self._supervise(self._client))

    def _abandon(self, why: Abandoned) -> None:
        self._set_state("closed", self._home.ended)
        self._begin()

    async def settled(self) -> None:
        """Wait until the first attempt to connect is over, successful or not."""
        if self._client is not None:
            await self._settled.wait()

    async def close(self) -> None:
        """Close the connection. Closing twice is harmless. Raises NotSent in another event loop, unless that of it has ended."""
        self._home.check()
        self._home.leave()
        tasks = [task for task in (self._supervising, self._watching) if task is not None]
        self._supervising = self._watching = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._client is not None:
            self._set_state("closed", "it was closed here")
            self._connected_before = False
            await self._client.close()

    async def _supervise(self, client: Client) -> None:
        wait = FIRST_WAIT
        while True:
            try:
                self._may_be_back.clear()
                with person_extends(self._person_asked):
                    await self._reach(client)
                wait = FIRST_WAIT
                self._set_state("ready")
                self._set_state("lost", await self._ended(client))
            except GemelError as exc:
                self._set_state("lost" if self._connected_before else "failed", str(exc))
            except Exception as exc:
                logger.exception("Server %r: connecting failed unexpectedly", self.name)
                self._set_state("lost" if self._connected_before else "failed", repr(exc))
            give_up_if_cancelled()
            await self._pause(wait * random.uniform(0.5, 1.5))
            wait = min(wait * 2, LONGEST_WAIT)

    async def _pause(self, seconds: float) -> None:
        """Wait before the next attempt, until a request succeeds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._may_be_back.wait()

    def _person_asked(self, seconds: float) -> None:
        """Don't count the seconds in which a person logs in for those who wait."""
        if self.is_connecting:
            self.reason = "it waits for a login"
        for extend in self._waiting:
            extend(seconds)

    async def _ended(self, client: Client) -> str:
        """Wait until the server is lost, and return why: its session ends, its subscription ends, or a request and a ping fail.

        Over stateless HTTP there is no session that could end.
        """
        session = client.session
        if session is None:
            return "the connection was lost"
        ended = asyncio.ensure_future(session.ended())
        unresponsive = asyncio.ensure_future(self._unresponsive(client))
        endings: set[asyncio.Future[str]] = {ended, unresponsive}
        if self._watching is not None:
            endings.add(self._watching)
        try:
            while True:
                done, endings = await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if task is not self._watching or task.result():  # "" if nothing was subscribed to
                        return task.result()
        finally:
            ended.cancel()
            unresponsive.cancel()

    async def _unresponsive(self, client: Client) -> str:
        """Wait until a request and then a ping have failed, and return why."""
        while True:
            await self._failed_request.wait()
            self._failed_request.clear()
            try:
                await client.ping()
            except PeerError as exc:
                logger.debug("Server %r answers, if only: %s", self.name, exc)
            except CallError as exc:
                return str(exc)

    async def _reach(self, client: Client) -> None:
        if self._connected_before:
            await client.ping()
        else:
            await client.connect()
            self._connected_before = True
        if self._on_change is not None and (self._watching is None or self._watching.done()):
            late = self._settled.is_set() or self.is_late
            self._watching = asyncio.get_running_loop().create_task(self._watch(client, self._on_change, late))

    def _set_state(self, state: State, reason: str = "") -> None:
        if state != self.state and state in ("lost", "failed"):
            logger.warning("Server %r is %s: %s", self.name, state, shorten(reason))
        self.state, self.reason = state, reason
        self._settled.set()

    async def _watch(self, client: Client, on_change: OnChange, late: bool) -> str:
        """Subscribe to changes of all lists that the server supports. Returns why it ended; "" if there are none.

        `late` reports a change first: the server was reached late or again, and its lists may be new.
        """
        if late:
            await self._report_change(on_change, ChangesLost("the server is connected"))
        capabilities = client.server_capabilities
        # In the handshake era changes come without a subscription, also from servers that don't declare them.
        unasked = bool(ERAS[client.era].negotiation_method)
        offered = [feature for feature in LIST_CHANGED if getattr(capabilities, feature) is not None]
        features = offered if unasked else announced_lists(capabilities)
        if not features:
            return ""
        try:
            async with client.listen(**listen_to(features)) as changes:
                async for change in changes:
                    await self._report_change(on_change, change)
        except GemelError as exc:
            return str(exc)
        return ""

    async def _report_change(self, on_change: OnChange, change: Changed | ChangesLost) -> None:
        """Call `on_change`; its errors are only logged."""
        try:
            returned = on_change(change, self.name)
            if isinstance(returned, Awaitable):
                await returned
        except Exception:
            logger.exception("Server %r: on_change failed", self.name)

    # ---------------------------------------------------------------- requests

    @asynccontextmanager
    async def turn(self, time: TimeLeft | None = None) -> AsyncIterator[Client]:
        """Wait for a free place, and lend the client.

        Args:
            time: What is left of the time of the request, `limits.call_total` by default. A login of a person does not count.

        Raises:
            NotSent: There is no place in time, or the server is not available.
        """
        self._home.check()
        client = self.client
        client.callbacks.refuse_nested("A request")  # it would wait for the one that is being served
        left = None if time is None else time.left
        seconds = round(client.limits.call_total if left is None else left, 2)
        try:
            async with asyncio.timeout(seconds) as limit:
                if not self._settled.is_set():
                    await self._first_attempt(limit, time)
                if not self.available:
                    raise NotSent(f"Server {self.name!r} is not available: {self._home.ended or self.reason}")
                await self._places.acquire()
        except TimeoutError:
            why = f"busy for {seconds:g} seconds with {self._concurrency} requests at once"
            late = f"not connected after {seconds:g} seconds: {self.unsettled}"
            raise NotSent(f"Server {self.name!r} was {late if self.is_connecting else why}") from None
        self._running += 1
        try:
            yield client
            if self.state == "lost":
                self._may_be_back.set()
        except (NotSent, ConnectFailed, AuthorizationFailed, ConnectionLost, CallTimeout, HttpStatus):
            self._failed_request.set()
            raise
        finally:
            self._running -= 1
            self._places.release()

    async def _first_attempt(self, limit: asyncio.Timeout, time: TimeLeft | None) -> None:
        """Wait until the first attempt to connect is over."""
        extends: list[Callable[[float], None]] = [partial(add_time, limit), *PERSON_LIMITS.get()]
        if time is not None:
            extends.append(time.extend)

        def extend(seconds: float) -> None:
            for add in extends:
                add(seconds)

        self._waiting.add(extend)
        try:
            await self._settled.wait()
        finally:
            self._waiting.discard(extend)

    async def health(self, timeout: float) -> Health:
        """Ping the server.

        Args:
            timeout: Seconds to wait for the answer.

        Returns:
            The health.
        """
        if not self.available:
            return Health(state=self.state, reason=self.reason, running=self._running)
        client = self.client
        began = time.monotonic()
        latency: float | None = None
        reason = self.reason
        try:
            async with asyncio.timeout(timeout):
                await client.ping()
            latency, reason = time.monotonic() - began, ""
        except (CallError, TimeoutError) as exc:
            reason = str(exc) or f"no answer within {timeout:g} seconds"
        return Health(
            state=self.state,
            reason=reason,
            latency=latency,
            running=self._running,
            era=client.era,
            revision=client.protocol_version,
        )
