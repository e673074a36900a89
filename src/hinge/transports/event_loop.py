"""An event loop of the process's own, for as long as one server runs: fast where it can be, and over when the server is.

Must not know what is served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger("hinge")

#: A task that is left over has this long to react to its cancellation.
LAST_MOMENT = 0.5


def run_in_own_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run it to its end, on uvloop where there is one. What doesn't stop when cancelled holds nothing up (B-034).

    A task in which `sys.exit()` or a KeyboardInterrupt comes up ends the loop, as asyncio has it, whoever waits for that
    task: then this raises SystemExit. After a Ctrl-C it raises KeyboardInterrupt.
    """
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        main = runner.get_loop().create_task(work)
        try:
            runner.run(_joined(main))
        except (KeyboardInterrupt, SystemExit) as exc:
            if main.done() or main.cancelling():
                raise
            logger.error("%s came up in a task, which ends the process", type(exc).__name__, exc_info=exc)
            raise SystemExit(exc.code if isinstance(exc, SystemExit) else 1) from exc
        finally:
            _let_go(runner.get_loop())


async def _joined(task: asyncio.Task[None]) -> None:
    await task


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _let_go(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what still runs; the loop's end would wait for ever for a task that goes on all the same."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        _, late = loop.run_until_complete(asyncio.wait(left, timeout=LAST_MOMENT))
        for task in late:
            logger.warning("%s goes on although it was cancelled; the process ends without it", task.get_name())
            asyncio._unregister_task(task)
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # known to every loop, but not to the types
