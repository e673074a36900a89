"""A lifespan that several users of one event loop share: entered once, and left in the task that entered it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from gemel.timeouts import wait_shared

logger = logging.getLogger("gemel")


class Lifespan:
    """Counts who uses something in one event loop; one task enters and leaves its context manager.

    Args:
        manager: Makes the context manager; None for nothing to enter.
        owner: Its argument.
        name: The name of the owner in the log.
        limit: Leaving may take so many seconds; None where a caller limits it.

    Attributes:
        state: What the context manager yielded; None without one, or before it is entered.
    """

    def __init__(
        self,
        manager: Callable[[Any], AbstractAsyncContextManager[Any]] | None,
        owner: object,
        name: str,
        limit: float | None = None,
    ) -> None:
        self._manager = manager
        self._owner = owner
        self._name = name
        self._limit = limit
        self.state: Any = None
        self._users = 0
        self._ready: asyncio.Future[None] | None = None
        self._leave: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, manager: Callable[[Any], AbstractAsyncContextManager[Any]]) -> None:
        """Add a context manager, entered after the first one and left before it; what it yields is not kept."""
        first = self._manager

        @asynccontextmanager
        async def both(server: object) -> AsyncIterator[Any]:
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
            task, ready, self._ready, self._leave, self._task = self._task, self._ready, None, None, None
            if ready is not None and not ready.done():
                task.cancel()  # nobody waits until it is entered
            try:
                _, late = await asyncio.wait([task], timeout=self._limit)
            except asyncio.CancelledError:
                task.cancel()
                raise
            if late:
                task.cancel()
                text = "Leaving the lifespan of %s took longer than %g seconds and was given up"
                logger.warning(text, self._name, self._limit)
            if self._task is None:  # nobody has entered again meanwhile
                self.state = None

    def abandon(self) -> None:
        """Say that it can't be left, since its event loop is closed."""
        if self._task is not None and not self._task.done():
            logger.warning(
                "The lifespan of %s was not left, since its event loop was closed before: leave `server.running()`, or end the "
                "loop as asyncio.run() does",
                self._name,
            )

    async def _run(self, manager: Any, ready: asyncio.Future[None], leave: asyncio.Event) -> None:
        try:
            async with manager(self._owner) as state:
                self.state = state
                ready.set_result(None)
                await _until_set_or_cancelled(leave)
        except BaseException as exc:
            if not ready.done():
                exc.add_note(f"The lifespan of {self._name} failed")
                ready.set_exception(exc)
                ready.exception()  # whoever waited may be gone
            elif isinstance(exc, SystemExit | KeyboardInterrupt | GeneratorExit) or _is_cancelled(exc):
                raise
            else:
                logger.exception("The lifespan of %s failed when it was left", self._name)

    async def __aenter__(self) -> None:
        await self.enter()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.exit()


def _is_cancelled(exc: BaseException) -> bool:
    """Whether it is the cancellation of this task, and not of something that it waits for."""
    task = asyncio.current_task()
    return isinstance(exc, asyncio.CancelledError) and task is not None and task.cancelling() > 0


async def _until_set_or_cancelled(leave: asyncio.Event) -> None:
    """Wait for the last user, or for the end of the event loop, which cancels this task: then it is left regularly, too."""
    try:
        await leave.wait()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
