"""What is asked of an authorization server for callers who are not known yet: few questions at once, each once, with shares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Final, Generic, TypeVar

from gemel.auth.flow import Fetcher, Flow
from gemel.auth.url_rules import UrlRules
from gemel.errors import Overloaded
from gemel.loops import PerLoop
from gemel.shares import Shares
from gemel.timeouts import wait_shared

ResultT = TypeVar("ResultT")

#: IssuerQuestions at once, each of which has a connection.
AT_ONCE: Final = 32
#: Further ones that wait for their turn.
WAITING: Final = 1000
#: Seconds for a question, and for each who waits for the answer.
FETCH_SECONDS: Final = 15.0

#: Whose share it is that the verification of a token takes.
ASKED_FOR: ContextVar[Hashable] = ContextVar("ASKED_FOR", default="")


class _GaveWay(Exception):
    """A question gave way to those of others."""

    def __init__(self, holder: Hashable) -> None:
        super().__init__()
        self.holder = holder


class _Question(Generic[ResultT]):
    """One question, and how many wait for its answer."""

    __slots__ = ("answer", "flow", "holder", "key", "task", "waiters")

    def __init__(self, key: Hashable, holder: Hashable, flow: Callable[[], Flow[ResultT]]) -> None:
        self.key = key
        self.holder = holder
        self.flow = flow
        self.answer: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        #: None while it waits for its turn.
        self.task: asyncio.Task[None] | None = None
        self.waiters = 0


class _Asking(Generic[ResultT]):
    """The questions of one event loop, and its connections."""

    def __init__(self, rules: UrlRules) -> None:
        self._rules = rules
        self._fetcher: Fetcher | None = None
        self.questions: dict[Hashable, _Question[ResultT]] = {}
        self._running: Shares[_Question[ResultT]] = Shares()
        self._waiting: Shares[_Question[ResultT]] = Shares()

    def begin(self, question: _Question[ResultT]) -> None:
        """Ask, now or later. Whoever asks most gives way to others."""
        self.questions[question.key] = question
        question.answer.add_done_callback(lambda _: self._end(question))
        holder = question.holder
        if len(self._running) < AT_ONCE:
            self._start(question)
            return
        oldest = self._running.giving_way(holder)[0]
        if self._running.held(oldest.holder) > self._running.held(holder) + 1:
            self._start(question)
            self._give_way(oldest)
            return
        self._waiting.add(holder, question)
        if len(self._waiting) > WAITING:
            self._give_way(self._waiting.giving_way(holder)[0])

    def _give_way(self, question: _Question[ResultT]) -> None:
        question.answer.set_exception(_GaveWay(question.holder))
        self._end(question)

    def _start(self, question: _Question[ResultT]) -> None:
        self._running.add(question.holder, question)
        question.task = asyncio.get_running_loop().create_task(self._ask(question))

    async def _ask(self, question: _Question[ResultT]) -> None:
        if self._fetcher is None:
            self._fetcher = Fetcher(self._rules)
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                answer = await self._fetcher.run(question.flow())
        except Exception as exc:
            if not question.answer.done():
                question.answer.set_exception(exc)
        else:
            if not question.answer.done():
                question.answer.set_result(answer)

    def _end(self, question: _Question[ResultT]) -> None:
        """A question was answered, gave way, or nobody waits for it. May be called twice."""
        if self.questions.get(question.key) is question:
            del self.questions[question.key]
        if question.answer.done() and not question.answer.cancelled():
            question.answer.exception()  # marks it as retrieved: those who waited may have left
        self._waiting.discard(question.holder, question)
        self._running.discard(question.holder, question)
        if question.task is not None:
            question.task.cancel()
        while len(self._running) < AT_ONCE and len(self._waiting):
            self._start(self._next())

    def _next(self) -> _Question[ResultT]:
        """The next one to be asked: the oldest of the caller for whom least is asked now."""
        holder = min(self._waiting.holders(), key=self._running.held)
        question = self._waiting.oldest_of(holder)
        self._waiting.discard(holder, question)
        return question

    async def close(self) -> None:
        """Close the connections."""
        if self._fetcher is not None:
            fetcher, self._fetcher = self._fetcher, None
            await fetcher.close()


class IssuerQuestions(Generic[ResultT]):
    """Asks an authorization server for callers who may be strangers, over few connections that are used again.

    A question is asked once at a time, and no longer when all who waited for its answer have left. When there are too many,
    the oldest of the caller for whom most are asked gives way.

    Args:
        rules: Which URLs may be requested.
    """

    def __init__(self, rules: UrlRules) -> None:
        self._by_loop: PerLoop[_Asking[ResultT]] = PerLoop(lambda: _Asking(rules), end=_Asking.close)

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
        async with asyncio.timeout(FETCH_SECONDS):
            while True:
                try:
                    return await self._wait_for(key, holder, flow)
                except _GaveWay as gave_way:
                    if gave_way.holder == holder:
                        raise Overloaded(
                            "Too much is being asked of the authorization server for you: try again later"
                        ) from None

    async def _wait_for(self, key: Hashable, holder: Hashable, flow: Callable[[], Flow[ResultT]]) -> ResultT:
        asking = self._by_loop.here()
        question = asking.questions.get(key)
        is_new = question is None
        if question is None:
            question = _Question(key, holder, flow)
        question.waiters += 1
        if is_new:
            asking.begin(question)
        try:
            return await wait_shared(question.answer)
        finally:
            question.waiters -= 1
            if not question.waiters:
                question.answer.cancel()

    async def close(self) -> None:
        """Close the connections of this event loop; they are opened again when they are needed."""
        asking = self._by_loop.find()
        if asking is not None:
            await asking.close()
