"""The in-memory transport: client and server in one process exchange messages as JSON text."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeAlias

from gemel.channel import Channel, ChannelKind, Serve, SessionLike, Transport
from gemel.errors import ChannelClosed, ProtocolError
from gemel.protocol.http.request import Principal
from gemel.protocol.limits import DEFAULT_LIMITS, Limits
from gemel.protocol.records import UNKNOWN_ORIGIN, Call, Origin, Outgoing, origin_of
from gemel.session import Session
from gemel.transports.duplex import DuplexChannel

#: Makes the context manager that is entered around each connection.
Running: TypeAlias = Callable[[], AbstractAsyncContextManager[None]]


class MemoryChannel(DuplexChannel):
    """One end of the pair. What is sent is delivered at once: the other end decides, and serves in tasks of its own.

    What comes before that end has begun, while it is full, or in the middle of a delivery to it, waits in its inbox.
    While more than `limits.stream_bytes` wait there, `send` waits too, for at most `limits.stream_wait` seconds.
    """

    def __init__(self, limits: Limits, *, server: bool, origin: Origin = UNKNOWN_ORIGIN) -> None:
        super().__init__(limits, server=server, origin=origin)
        self._peer = self
        self._inbox: deque[bytes] = deque()
        self._size = 0
        self._begun = self._scheduled = self._full = self._delivering = False
        self._room = asyncio.Event()
        self._room.set()
        # The task that serves a message must not inherit the context variables of the sender.
        self._context = contextvars.copy_context()
        self._finishing: asyncio.Task[None] | None = None
        #: Of a server's end that shows them to the client: what handlers raised, by the id of the request.
        self._failures: dict[Any, BaseException] = {}

    @property
    def kind(self) -> ChannelKind:
        """Always "memory"."""
        return "memory"

    def join(self, peer: MemoryChannel) -> None:
        """Connect the two ends."""
        self._peer, peer._peer = peer, self

    def begin(self, session: SessionLike) -> None:
        """Start the session; deliver the messages that are waiting."""
        super().begin(session)
        self._begun = True
        self._schedule()

    async def send(self, message: Outgoing, /) -> None:
        """Deliver a message to the other end. Raises ChannelClosed if the channel has ended."""
        if not self._peer._room.is_set() and self.reason is None:
            await self._wait_for_room()
        if self.reason is not None:
            raise ChannelClosed(self.reason)
        self._peer._take(message.data)

    async def close(self) -> None:
        """End both ends: deliver what was sent, then close both sessions.

        Waits for the clean-up of the server's end, unless it is called from a call that this end serves.
        """
        self._end_both("the channel was closed on this side", "the peer closed the connection")
        for end in (self, self._peer):
            tasks = end._running.values()
            if end._finishing is not None and None not in tasks and asyncio.current_task() not in tasks:
                await asyncio.shield(end._finishing)

    def _end_both(self, here: str, there: str) -> None:
        if self.reason is None:
            peer = self._peer
            peer._deliver_rest()
            self._finish_as(here)
            peer._finish_as(there)

    def _finish_as(self, reason: str) -> None:
        if self.end_session(reason):
            self._inbox.clear()
            self._room.set()
            self._peer._room.set()
            if self._server and self._session is not None:
                self._finishing = self._loop.create_task(self._session.wait_closed())

    # ---------------------------------------------------------------- the inbox

    def _take(self, data: bytes) -> None:
        """Take a message of the other end."""
        if self._begun and not (self._inbox or self._full or self._delivering or self._held_back):
            self._context.run(self._feed, data)
        else:
            self._inbox.append(data)
            self._size += len(data)
            if self._size > self.limits.stream_bytes:
                self._room.clear()
        self._schedule()

    def _feed(self, data: bytes) -> None:
        self._delivering = True
        try:
            self.feed(data)
        finally:
            self._delivering = False

    def _schedule(self) -> None:
        if self._inbox and self._begun and not (self._full or self._scheduled or self._delivering):
            self._scheduled = True
            self._loop.call_soon(self._deliver, context=self._context)

    def _deliver(self) -> None:
        self._scheduled = False
        inbox = self._inbox
        while inbox and not self._full:
            data = inbox.popleft()
            self._size -= len(data)
            self._feed(data)
        if self._size <= self.limits.stream_bytes:
            self._room.set()

    def _deliver_rest(self) -> None:
        if self._begun:
            self._context.copy().run(self._deliver)

    async def _wait_for_room(self) -> None:
        try:
            async with asyncio.timeout(self.limits.stream_wait):
                while not self._peer._room.is_set() and self.reason is None:
                    await self._peer._room.wait()
        except TimeoutError:
            wait, size = self.limits.stream_wait, self._peer._size
            why = f"the peer has read nothing for {wait:g} seconds, {size} bytes are waiting"
            self._end_both(why, "the other end gave up waiting")

    # ---------------------------------------------------------------- DuplexChannel

    def reply(self, message: Outgoing, *, last: bool) -> None:
        failure = self._failures.pop(message.id, None) if self._failures else None
        if failure is None or not self._peer._fail(message.id, failure):
            self._peer._take(message.data)

    def _fail(self, request_id: Any, failure: BaseException) -> bool:
        """Let a request fail with an exception of its handler. Returns False if it is over."""
        session = self._session
        if not isinstance(session, Session) or not isinstance(failure, Exception):
            return False
        pending = session.connection.outgoing.get(request_id)
        if pending is None:
            return False
        session.connection.fail_request(pending, failure)
        return True

    def show_failures(self) -> None:
        """Let the client's requests fail with what handlers of this end's session raise unexpectedly."""
        session, failures = self._session, self._failures
        assert isinstance(session, Session)
        handle = session.handle

        async def handle_and_remember(session: Session, call: Call) -> Any:
            try:
                return await handle(session, call)
            except ProtocolError:
                raise
            except Exception as exc:
                call.failure = exc
                raise
            finally:
                if call.failure is not None and call.id is not None:
                    failures[call.id] = call.failure

        session.handle = handle_and_remember

    def pause_reading(self) -> None:
        self._full = True

    def resume_reading(self) -> None:
        self._full = False
        self._schedule()

    def end_output(self) -> None:
        """Nothing to do: in memory, input never ends by itself."""


class Memory(Transport):
    """A Transport to a server in this process.

    Args:
        serve_server: Starts the server's session over a channel.
        limits: Limits of messages and calls.
        running: The lifespan of the server.
        raise_exceptions: Whether an unexpected exception of a handler is raised in the caller, for tests.
        principal: As whom it connects, with which scopes; by default as the application itself, which has all scopes.
    """

    def __init__(
        self,
        serve_server: Serve,
        *,
        limits: Limits = DEFAULT_LIMITS,
        running: Running = nullcontext,
        raise_exceptions: bool = False,
        principal: Principal | str | None = None,
    ) -> None:
        self._origin = origin_of(principal)
        self._raise_exceptions = raise_exceptions
        self._running = running
        self._serve_server = serve_server
        self._limits = limits

    def running(self) -> AbstractAsyncContextManager[None]:
        """See Transport: the lifespan of the server."""
        return self._running()

    async def open(self, serve: Serve, /) -> Channel:
        """Make a pair of channels with a session at each end; the server's begins first."""
        ours = MemoryChannel(self._limits, server=False)
        theirs = MemoryChannel(self._limits, server=True, origin=self._origin)
        ours.join(theirs)
        theirs.begin(self._serve_server(theirs))
        if self._raise_exceptions:
            theirs.show_failures()
        try:
            ours.begin(serve(ours))
        except BaseException:
            await ours.close()
            raise
        return ours


def connect(serve_server: Serve, *, limits: Limits = DEFAULT_LIMITS, running: Running = nullcontext) -> Memory:
    """Make a transport to a server in this process; see `Memory`."""
    return Memory(serve_server, limits=limits, running=running)
