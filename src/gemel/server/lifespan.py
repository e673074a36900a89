"""The lifespan of a server: entered once per event loop, before serving, and left in the task that entered it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from gemel.protocol.eras.base import Era
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS
from gemel.schema.methods import METHODS
from gemel.server.context import Context
from gemel.server.middleware.chain import CallNext, Middleware
from gemel.session import Session
from gemel.timeouts import wait_shared

logger = logging.getLogger("gemel")


class Lifespan:
    """Counts the users of a server; one task enters and leaves the context manager of the server's author."""

    def __init__(
        self,
        manager: Callable[[Any], AbstractAsyncContextManager[Any]] | None,
        server: Any,
        owner: str,
        limit: float | None = None,
    ) -> None:
        self._manager = manager
        #: The argument of the manager, and the name of its owner in the log.
        self._server = server
        self._owner = owner
        #: Leaving may take so many seconds; None where a caller limits it.
        self._limit = limit
        #: What the context manager yielded; None without one, or before it is entered.
        self.state: Any = None
        self._users = 0
        self._ready: asyncio.Future[None] | None = None
        self._leave: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, manager: Callable[[Any], AbstractAsyncContextManager[Any]]) -> None:
        """Add a context manager, entered after the first one and left before it; what it yields is not kept."""
        first = self._manager

        @asynccontextmanager
        async def both(server: Any) -> AsyncIterator[Any]:
            async with AsyncExitStack() as stack:
                state = await stack.enter_async_context(first(server)) if first is not None else None
                await stack.enter_async_context(manager(server))
                yield state

        self._manager = both

    async def enter(self) -> None:
        """Add a user; returns when the context manager is entered. Raises what the context manager raises."""
        if self._manager is None:
            return
        self._users += 1
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
            self._leave = asyncio.Event()
            self._task = asyncio.create_task(self._run(self._manager, self._ready, self._leave))
        try:
            await wait_shared(self._ready)
        except BaseException:
            await self.exit()
            raise

    async def exit(self) -> None:
        """Remove a user; the last one waits until the context manager is left, within the limit."""
        if self._manager is None:
            return
        self._users -= 1
        if self._users == 0 and self._leave is not None and self._task is not None:
            self._leave.set()
            task, self._ready, self._leave, self._task = self._task, None, None, None
            try:
                _, late = await asyncio.wait([task], timeout=self._limit)
            except asyncio.CancelledError:
                task.cancel()
                raise
            if late:
                task.cancel()
                text = "Leaving the lifespan of %s took longer than %g seconds and was given up"
                logger.warning(text, self._owner, self._limit)
            if self._task is None:  # nobody has entered again meanwhile
                self.state = None

    def abandon(self) -> None:
        """Say that it can't be left, since its event loop is closed."""
        if self._task is not None and not self._task.done():
            logger.warning(
                "The lifespan of %s was not left, since its event loop was closed before: leave `server.running()`, or end the "
                "loop as asyncio.run() does",
                self._owner,
            )

    async def _run(self, manager: Any, ready: asyncio.Future[None], leave: asyncio.Event) -> None:
        try:
            async with manager(self._server) as state:
                self.state = state
                ready.set_result(None)
                await leave.wait()
        except BaseException as exc:
            if not ready.done():
                exc.add_note(f"The lifespan of {self._owner} failed")
                ready.set_exception(exc)
            elif isinstance(exc, Exception):
                logger.exception("The lifespan of %s failed when it was left", self._owner)
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


ConnectionLifespan: TypeAlias = Callable[[Context[Any]], AbstractAsyncContextManager[Any]]


class _Connection:
    """The lifespan of one handshake connection, and the task that enters it."""

    def __init__(self, manager: ConnectionLifespan, ctx: Context[Any]) -> None:
        self.lifespan = Lifespan(manager, ctx, "a connection")
        self.entering = asyncio.ensure_future(self.lifespan.enter())

    async def leave(self) -> None:
        """Leave it: the client is gone."""
        self.entering.cancel()
        await asyncio.wait([self.entering])
        if not self.entering.cancelled() and self.entering.exception() is None:
            await self.lifespan.exit()


class ConnectionLifespans:
    """Middleware that gives calls of user code the state of their connection, as `ctx.connection_state`."""

    def __init__(self, manager: ConnectionLifespan) -> None:
        self._manager = manager
        self._by_era: dict[Era, Middleware] = {HANDSHAKE: self._shared, STATELESS: self._around}
        self._open: WeakKeyDictionary[Session, _Connection] = WeakKeyDictionary()

    async def __call__(self, ctx: Context[Any], call_next: CallNext) -> Any:
        """Requests of the protocol itself, lists among them, get no state and enter nothing."""
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
        """One request with a lifespan of its own. Its answer waits for the clean-up, for a limited time."""
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
        except Exception as exc:
            if exc is not failure:
                exc.add_note("The lifespan of a connection failed")
            raise
        return result

    async def _state(self, ctx: Context[Any]) -> Any:
        session = ctx._session
        connection = self._open.get(session)
        if connection is None:
            connection = self._open[session] = _Connection(self._manager, ctx)
            session.on_close(connection.leave)
        try:
            await wait_shared(connection.entering)
        except BaseException:
            failed = connection.entering.done()
            if failed and self._open.get(session) is connection:
                del self._open[session]  # the next call tries again
            raise
        return connection.lifespan.state
