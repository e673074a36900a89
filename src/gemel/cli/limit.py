"""The time limit of a whole command, `--timeout`: with starting and connecting, without the time in which a person is asked."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Coroutine
from typing import Any

from gemel.errors import CallTimeout
from gemel.timeouts import asking_person, time_limit


async def within(work: Coroutine[Any, Any, int], options: argparse.Namespace) -> int:
    """Run a command within its `--timeout`. Returns its exit code.

    A login extends the limit, as does a prompt of the command's terminal. Both have limits of their own.

    Raises:
        CallTimeout: The time is over.
    """

    def is_prompting() -> bool:
        terminal = getattr(options, "terminal", None)
        return terminal is not None and terminal.prompting

    limit: asyncio.Timeout | None = None
    try:
        async with time_limit(options.timeout) as limit:
            return await asking_person(work, is_prompting)
    except TimeoutError as exc:
        if limit is None or not limit.expired():
            raise
        text = f"The command did not end within {options.timeout:g} seconds, which include starting the server and connecting"
        raise CallTimeout(text) from exc
