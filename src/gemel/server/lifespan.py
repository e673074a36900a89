"""The lifespans of connections: their state for the calls of user code."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from gemel.lifespan import Lifespan
from gemel.protocol.eras.base import Era
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS
from gemel.schema.methods import METHODS
from gemel.server.context import Context
from gemel.server.middleware.chain import CallNext, Middleware
from gemel.session import Session
from gemel.timeouts import wait_shared

logger = logging.getLogger("gemel")


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
