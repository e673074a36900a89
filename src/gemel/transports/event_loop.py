"""Run a server in an event loop of its own: on uvloop where it is installed, and without waiting for tasks that never end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger("gemel")

#: Seconds that a remaining task has to react to its cancellation.
CANCELLATION_SECONDS = 0.5


def run_in_own_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end in a new event loop, then cancel what remains and close the loop.

    A task in which `sys.exit()` is called or a KeyboardInterrupt is raised ends the loop.

    Raises:
        SystemExit: A task ended the process.
        KeyboardInterrupt: The user pressed Ctrl-C.
    """
    runner = asyncio.Runner(loop_factory=_new_loop)  # not closed by itself: that would wait for every task
    loop = runner.get_loop()
    main = loop.create_task(work)
    try:
        runner.run(_joined(main))
    except (KeyboardInterrupt, SystemExit) as exc:
        if main.done() or main.cancelling():
            raise
        logger.error("%s was raised in a task, which ends the process", type(exc).__name__, exc_info=exc)
        raise SystemExit(exc.code if isinstance(exc, SystemExit) else 1) from exc
    finally:
        _close(loop)


async def _joined(task: asyncio.Task[None]) -> None:
    await task


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _close(loop: asyncio.AbstractEventLoop) -> None:
    try:
        _cancel_tasks(loop)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def _cancel_tasks(loop: asyncio.AbstractEventLoop) -> None:
    remaining = asyncio.all_tasks(loop)
    for task in remaining:
        task.cancel()
    if not remaining:
        return
    _, late = loop.run_until_complete(asyncio.wait(remaining, timeout=CANCELLATION_SECONDS))
    for task in late:
        logger.warning("%s did not stop when it was cancelled; the process ends without it", task.get_name())
        if hasattr(task, "_log_destroy_pending"):  # private: without it asyncio warns about the task a second time
            setattr(task, "_log_destroy_pending", False)  # noqa: B010 (unknown to type checkers)
