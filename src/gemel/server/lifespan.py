"""The lifespans of connections: what they yield is there for the functions of users, and entered for nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from gemel.errors import ProtocolError, ToolError, as_failure, internal_error
from gemel.lifespan import Lifespan
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS
from gemel.server.context import Context, served_call
from gemel.server.dispatch import RequestHandler
from gemel.server.served_call import CallLifespan
from gemel.session import Session
from gemel.signals import is_ctrl_c
from gemel.timeouts import wait_shared

logger = logging.getLogger("gemel")

ArgumentT = TypeVar("ArgumentT")
ResultT = TypeVar("ResultT")

ConnectionLifespan: TypeAlias = Callable[[Context[Any]], AbstractAsyncContextManager[Any]]

#: The name of a lifespan in the log.
_NAME = "a connection"


def _contained(manager: ConnectionLifespan) -> ConnectionLifespan:
    """The same lifespan, whose `sys.exit()` fails like any other error: it must not end the process."""

    @asynccontextmanager
    async def contained(ctx: Context[Any]) -> AsyncIterator[Any]:
        try:
            async with manager(ctx) as state:
                yield state
        except (SystemExit, KeyboardInterrupt) as exc:
            raise (exc if is_ctrl_c(exc) else as_failure(exc)) from None

    return contained


class _Connection:
    """The lifespan of one handshake connection, and the task that enters it."""

    def __init__(self, manager: ConnectionLifespan, ctx: Context[Any]) -> None:
        self.lifespan = Lifespan(manager, ctx, _NAME)
        self.entering = asyncio.ensure_future(self.lifespan.enter())

    async def leave(self) -> None:
        """Leave it: the client is gone."""
        self.entering.cancel()
        await asyncio.wait([self.entering])
        if not self.entering.cancelled() and self.entering.exception() is None:
            await self.lifespan.exit()


class ConnectionLifespans:
    """The lifespans of a server's connections: one for each handshake connection, one for each call that stands alone."""

    def __init__(self, manager: ConnectionLifespan) -> None:
        self._manager = _contained(manager)
        self._by_era = {HANDSHAKE: self._shared, STATELESS: self._own}
        self._open: WeakKeyDictionary[Session, _Connection] = WeakKeyDictionary()

    async def enter(self, ctx: Context[Any], stack: AsyncExitStack) -> Any:
        """Enter the lifespan for a call and return what it yielded. What only this call uses is left by the stack."""
        served = served_call(ctx)
        enter = self._own if served.session.connection.one_shot else self._by_era[served.call.era]
        return await enter(ctx, stack)

    async def _own(self, ctx: Context[Any], stack: AsyncExitStack) -> Any:
        """That of this call. The answer waits until it is left, for a limited time."""
        lifespan = Lifespan(self._manager, ctx, _NAME, served_call(ctx).session.connection.limits.teardown)
        await stack.enter_async_context(lifespan)
        return lifespan.state

    async def _shared(self, ctx: Context[Any], stack: AsyncExitStack) -> Any:
        """That of the connection, entered by its first call and left when the connection ends."""
        session = served_call(ctx).session
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


async def in_connection(
    ctx: Context[Any], function: Callable[[Context[Any], ArgumentT], Awaitable[ResultT]], argument: ArgumentT
) -> ResultT:
    """Call a function of the user, with `ctx.connection_state` if the server has a `connection_lifespan`.

    Whatever happens when a lifespan is left is logged, and changes neither the result nor the error of the function.

    Args:
        ctx: The context of the call. Its lifespans are entered: that of this server, after those of servers that it is mounted in.
        function: The function.
        argument: Its second argument.

    Raises:
        InternalError: A lifespan can't be entered. ToolError and ProtocolError are raised as they are.
    """
    outer = served_call(ctx)
    if not outer.lifespans:
        return await function(ctx, argument)
    inner = ctx.replace()
    inside = served_call(inner)
    inside.lifespans = ()  # what the function calls in turn is inside of them
    async with AsyncExitStack() as stack:
        for each in outer.lifespans:
            inside.connection_state = await _entered(each, inner, stack)
        outer.connection_state = inside.connection_state
        if outer.root is not None and not ctx.depth:
            outer.root.connection_state = inside.connection_state
        return await function(inner, argument)


def for_connection(handler: RequestHandler) -> RequestHandler:
    """A handler of the user as one that has the state of the connection."""

    async def serve(ctx: Context[Any], params: object) -> Any:
        return await in_connection(ctx, handler, params)

    return serve


async def _entered(lifespan: CallLifespan[Context[Any]], ctx: Context[Any], stack: AsyncExitStack) -> Any:
    try:
        return await lifespan.enter(ctx, stack)
    except (ProtocolError, ToolError):
        raise
    except Exception as exc:
        served_call(ctx).call.failure = exc
        logger.error("%s: the lifespan of a connection can't be entered: %s", ctx.method, exc, exc_info=exc)
        raise internal_error(exc) from exc
