"""The lifespan of a server: entered once per process by whoever serves first, left in the task that entered it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from hinge.protocol.eras.base import Era
from hinge.protocol.eras.handshake import HANDSHAKE
from hinge.protocol.eras.stateless import STATELESS
from hinge.schema.methods import METHODS
from hinge.server.context import Context
from hinge.server.middleware.chain import CallNext, Middleware
from hinge.session import Session

logger = logging.getLogger("hinge")


class Lifespan:
    """Counts who is serving; a keeper task enters and leaves the user's context manager."""

    def __init__(
        self,
        manager: Callable[[Any], AbstractAsyncContextManager[Any]] | None,
        server: Any,
        whose: str,
        limit: float | None = None,
    ) -> None:
        self._manager = manager
        #: What the manager is given, and how it is called in the log.
        self._server = server
        self._whose = whose
        #: Leaving may take so many seconds; None where others see to that.
        self._limit = limit
        #: What the user's context manager yielded; None without one, or before it is entered.
        self.state: Any = None
        self._users = 0
        self._ready: asyncio.Future[None] | None = None
        self._leave: asyncio.Event | None = None
        self._keeper: asyncio.Task[None] | None = None

    def add(self, manager: Callable[[Any], AbstractAsyncContextManager[Any]]) -> None:
        """One more context manager, entered after the user's and left before it; what it yields is not kept."""
        first = self._manager

        @asynccontextmanager
        async def both(server: Any) -> AsyncIterator[Any]:
            async with AsyncExitStack() as stack:
                state = await stack.enter_async_context(first(server)) if first is not None else None
                await stack.enter_async_context(manager(server))
                yield state

        self._manager = both

    async def enter(self) -> None:
        """Be one of those who serve; returns when the state is there. Raises what the context manager raises."""
        if self._manager is None:
            return
        self._users += 1
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
            self._leave = asyncio.Event()
            self._keeper = asyncio.create_task(self._keep(self._manager, self._ready, self._leave))
        try:
            await asyncio.shield(self._ready)
        except BaseException:
            await self.exit()
            raise

    async def exit(self) -> None:
        """No longer serve; the last one waits until the context manager is left, if that is in time."""
        if self._manager is None:
            return
        self._users -= 1
        if self._users == 0 and self._leave is not None and self._keeper is not None:
            self._leave.set()
            keeper, self._ready, self._leave, self._keeper = self._keeper, None, None, None
            try:
                _, late = await asyncio.wait([keeper], timeout=self._limit)
            except asyncio.CancelledError:
                keeper.cancel()
                raise
            if late:
                keeper.cancel()
                said = "Leaving the lifespan of %s took longer than %g seconds and was given up"
                logger.warning(said, self._whose, self._limit)
            self.state = None

    async def _keep(self, manager: Any, ready: asyncio.Future[None], leave: asyncio.Event) -> None:
        try:
            async with manager(self._server) as state:
                self.state = state
                ready.set_result(None)
                await leave.wait()
        except BaseException as exc:
            if not ready.done():
                ready.set_exception(exc)
            elif isinstance(exc, Exception):
                logger.exception("The lifespan of %s failed when it was left", self._whose)
            else:
                raise

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """`enter` and `exit` around a block."""
        await self.enter()
        try:
            yield
        finally:
            await self.exit()


logger = logging.getLogger("hinge")

ConnectionLifespan: TypeAlias = Callable[[Context[Any]], AbstractAsyncContextManager[Any]]


class _Conversation:
    """One handshake conversation: its lifespan, and the task that enters it, for all who wait."""

    def __init__(self, manager: ConnectionLifespan, ctx: Context[Any]) -> None:
        self.lifespan = Lifespan(manager, ctx, "a connection")
        self.entering = asyncio.ensure_future(self.lifespan.enter())

    async def leave(self) -> None:
        """The client has gone."""
        self.entering.cancel()
        await asyncio.wait([self.entering])
        if not self.entering.cancelled() and self.entering.exception() is None:
            await self.lifespan.exit()


class Conversations:
    """A middleware that brings each call of user code the state of its conversation, as `ctx.connection_state`."""

    def __init__(self, manager: ConnectionLifespan) -> None:
        self._manager = manager
        self._by_era: dict[Era, Middleware] = {HANDSHAKE: self._shared, STATELESS: self._around}
        self._open: WeakKeyDictionary[Session, _Conversation] = WeakKeyDictionary()

    async def __call__(self, ctx: Context[Any], call_next: CallNext) -> Any:
        """What the protocol asks by itself, lists among it, needs no state and opens nothing."""
        row = METHODS.get(ctx.method)
        if row is not None and not row.may_ask and ctx.method != "completion/complete":
            return await call_next(ctx)
        serve = self._around if ctx._session.connection.one_shot else self._by_era[ctx._call.era]
        return await serve(ctx, call_next)

    async def _shared(self, ctx: Context[Any], call_next: CallNext) -> Any:
        """One request of several that share the lifespan of their connection."""
        ctx.connection_state = await self._state(ctx)
        return await call_next(ctx)

    async def _around(self, ctx: Context[Any], call_next: CallNext) -> Any:
        """One request with a lifespan of its own. Its answer waits for the clean-up, but not for ever."""
        result: Any = None
        failure: BaseException | None = None
        limit, bound = asyncio.timeout(None), ctx._session.connection.limits.teardown
        try:
            async with limit, self._manager(ctx) as ctx.connection_state:
                try:
                    result = await call_next(ctx)
                except BaseException as exc:
                    failure = exc
                    raise
                finally:
                    limit.reschedule(asyncio.get_running_loop().time() + bound)
        except TimeoutError:
            if not limit.expired():
                raise
            logger.warning("%s: leaving its connection_lifespan took longer than %g seconds", ctx.method, bound)
            if failure is not None:
                raise failure from None
        return result

    async def _state(self, ctx: Context[Any]) -> Any:
        session = ctx._session
        conversation = self._open.get(session)
        if conversation is None:
            conversation = self._open[session] = _Conversation(self._manager, ctx)
            session.on_close(conversation.leave)
        try:
            await asyncio.shield(conversation.entering)
        except BaseException:
            failed = conversation.entering.done()
            if failed and self._open.get(session) is conversation:
                del self._open[session]  # the next call tries again
            raise
        return conversation.lifespan.state
