"""What every fault is measured by: how each call ended, that it ended once and in time, and that nothing is left of it."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

from gemel import CallError, Client, ProgressParams
from tests.faults.table import word_of

#: Kept in caches of a fixed size.
CACHED = frozenset({"Target"})
#: Nothing takes longer, whatever goes wrong and however busy the machine is; the time limits of calls are longer.
PROMPTLY = 20.0


async def ending_of(work: Awaitable[Any]) -> str:
    """How it ended, as a word of the tables. Anything but an answer or a CallError is a mistake of ours, and shows."""
    try:
        async with asyncio.timeout(PROMPTLY):
            await work
    except CallError as exc:
        return word_of(exc)
    return "ok"


class Caller:
    """One caller of one tool: counts its outcomes, and what it is told after the end."""

    def __init__(self, client: Client, tool: str = "echo", **arguments: Any) -> None:
        self._client = client
        self._tool = tool
        self.arguments = arguments
        self.endings: list[str] = []
        self.answer = ""
        self.told = 0
        self.told_too_late = 0

    def _progress(self, params: ProgressParams) -> None:
        self.told += 1
        self.told_too_late += bool(self.endings)

    async def call(self) -> str:
        """The ending of one call."""
        self.endings.append(await ending_of(self._call()))
        return self.endings[0]

    async def _call(self) -> None:
        result = await self._client.call_tool(self._tool, self.arguments, on_progress=self._progress)
        self.answer = result.text

    def check(self) -> None:
        """Exactly one outcome; nothing after it."""
        assert len(self.endings) == 1, self.endings
        assert not self.told_too_late


@asynccontextmanager
async def quiet_loop() -> AsyncIterator[None]:
    """Fails if the event loop had to report something that nobody caught."""
    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    try:
        yield
    finally:
        loop.set_exception_handler(before)
    assert not reported, reported


def alive() -> Counter[str]:
    """The objects of our classes that the process holds, by class."""
    gc.collect()
    kinds = (type(one) for one in gc.get_objects())
    ours = Counter(kind.__qualname__ for kind in kinds if str(kind.__module__).startswith("gemel."))
    return Counter({name: count for name, count in ours.items() if name not in CACHED})
