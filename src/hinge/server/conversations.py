"""The lifespan of a conversation: entered when a client first asks for work, left when it has gone.

In the handshake era that is the connection or session. The stateless revision has no conversations (STATE-01): there each
request is one, and enters and leaves it by itself. Knows nothing of what the lifespan yields.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from hinge.schema.methods import METHODS
from hinge.server.context import Context
from hinge.server.lifespan import Lifespan
from hinge.server.middleware import CallNext
from hinge.session import Session

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
        self._open: WeakKeyDictionary[Session, _Conversation] = WeakKeyDictionary()

    async def __call__(self, ctx: Context[Any], call_next: CallNext) -> Any:
        """What the protocol asks by itself, lists among it, needs no state and opens nothing."""
        row = METHODS.get(ctx.method)
        if row is not None and not row.may_ask and ctx.method != "completion/complete":
            return await call_next(ctx)
        if ctx.call.era == "2026" or ctx.session.connection.one_shot:
            return await self._around(ctx, call_next)
        ctx.conversation_state = await self._state(ctx)
        return await call_next(ctx)

    async def _around(self, ctx: Context[Any], call_next: CallNext) -> Any:
        """One request with a lifespan of its own. Its answer waits for the clean-up, but not for ever (A-081)."""
        result: Any = None
        failure: BaseException | None = None
        limit, bound = asyncio.timeout(None), ctx.session.connection.limits.teardown
        try:
            async with limit, self._manager(ctx) as ctx.conversation_state:
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
        session = ctx.session
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
