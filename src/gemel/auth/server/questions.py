"""What is asked of an authorization server for callers who are not known yet: over few connections that are used again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Final, Generic, TypeVar

from gemel.auth.flow import Fetcher, Flow
from gemel.auth.server.shared_work import GaveWay, SharedWork
from gemel.auth.url_rules import UrlRules
from gemel.errors import Overloaded
from gemel.loops import PerLoop

ResultT = TypeVar("ResultT")

#: Questions at once, each of which has a connection.
AT_ONCE: Final = 32
#: Further ones that wait for their turn.
WAITING: Final = 1000
#: Seconds for a question, and for each who waits for the answer.
FETCH_SECONDS: Final = 15.0

#: Whose share it is that the verification of a token takes.
ASKED_FOR: ContextVar[Hashable] = ContextVar("ASKED_FOR", default="")


class IssuerQuestions(Generic[ResultT]):
    """Asks an authorization server; see `SharedWork`.

    Args:
        rules: Which URLs may be requested.
    """

    def __init__(self, rules: UrlRules) -> None:
        self._work: SharedWork[ResultT] = SharedWork(AT_ONCE, WAITING)
        self._fetchers: PerLoop[Fetcher] = PerLoop(lambda: Fetcher(rules), end=Fetcher.close)

    async def ask(self, key: Hashable, holder: Hashable, flow: Callable[[], Flow[ResultT]]) -> ResultT:
        """Return the answer to a question.

        Args:
            key: The question: for one that is being asked the answer is waited for.
            holder: Whose share it takes.
            flow: Makes the flow that asks it.

        Raises:
            Overloaded: Too much is asked for this caller.
            TimeoutError: There was no answer in time.
            AuthorizationFailed: The flow failed.
        """

        async def ask() -> ResultT:
            async with asyncio.timeout(FETCH_SECONDS):
                return await self._fetchers.here().run(flow())

        try:
            async with asyncio.timeout(FETCH_SECONDS):
                return await self._work.run(key, holder, ask)
        except GaveWay as exc:
            raise Overloaded(str(exc)) from None

    async def close(self) -> None:
        """Close the connections of this event loop; they are opened again when they are needed."""
        fetcher = self._fetchers.find()
        if fetcher is not None:
            self._fetchers.forget()
            await fetcher.close()
