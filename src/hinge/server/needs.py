"""Dependencies and questions of one function while a call runs: asked, filled in, cleaned up. Made by depends.py, once.

Knows nothing of annotations, tools or eras.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from hinge.errors import DefinitionError, MissingClientCapability, shorten
from hinge.server.asking import Declined
from hinge.server.context import Context
from hinge.server.threads import Threads

logger = logging.getLogger("hinge")

ResultT = TypeVar("ResultT")
#: What runs a registered function with its arguments.
Run = Callable[[Context[Any], dict[str, Any]], Awaitable[ResultT]]


class Question(NamedTuple):
    """One `Ask` as it is asked; `names` are the arguments that stand in its message."""

    message: str
    names: tuple[str, ...]
    form: Any
    optional: bool
    slot: int

    async def answer(self, ctx: Context[Any], arguments: dict[str, Any]) -> Any:
        """The user's answer. Raises Declined, MissingClientCapability, and whatever ends a round of questions."""
        message = self.message.format_map({name: shorten(str(arguments[name])) for name in self.names})
        try:
            return await ctx.elicit(message, self.form)
        except (Declined, MissingClientCapability):
            if not self.optional:
                raise
            return None


#: Where a value comes from: a slot of the call's values, or an argument by its name.
Source = int | str
#: The slot of the Context.
CONTEXT = 0


class Step(NamedTuple):
    """One dependency as it is run; `kind` is what calling its function gives."""

    function: Callable[..., Any]
    kind: str
    blocking: bool
    sources: tuple[tuple[str, Source], ...]
    slot: int


_NO_MORE = object()


class Opened:
    """A generator that has given its value and is to be continued after the call."""

    __slots__ = ("_generator", "_step", "_threads")

    def __init__(self, step: Step, generator: Any, threads: Threads) -> None:
        self._step = step
        self._generator = generator
        self._threads = threads

    async def first(self) -> Any:
        """The value. Raises DefinitionError for a generator that gives none."""
        value = await self._go_on(None)
        if value is _NO_MORE:
            raise DefinitionError(f"The dependency {called(self._step.function)} didn't yield: it must, once")
        return value

    async def close(self, exc: BaseException | None) -> None:
        """Go on after the `yield`, or raise there what the call raised. Raises what comes out, unless it is that same."""
        try:
            value = await self._go_on(exc)
        except BaseException as raised:
            if raised is exc:
                return
            raise
        if value is not _NO_MORE:
            raise DefinitionError(f"The dependency {called(self._step.function)} yields more than once: it must once")

    async def _go_on(self, exc: BaseException | None) -> Any:
        generator = self._generator
        if self._step.kind == "async generator":
            try:
                return await (anext(generator) if exc is None else generator.athrow(exc))
            except StopAsyncIteration:
                return _NO_MORE
        if not self._step.blocking:
            return _advance(generator, exc)
        return await self._threads.run(_advance, {"generator": generator, "exc": exc})


def _advance(generator: Any, exc: BaseException | None) -> Any:
    try:
        return next(generator) if exc is None else generator.throw(exc)
    except StopIteration:
        return _NO_MORE


def called(function: Callable[..., Any]) -> str:
    """The name of a function, for messages."""
    return f"{getattr(function, '__qualname__', type(function).__name__)}()"


class Needs:
    """What is filled in for one function: its questions, its dependencies in order, and which parameters get what."""

    __slots__ = ("_questions", "_size", "_steps", "_threads", "_wanted")

    def __init__(
        self,
        questions: Sequence[Question],
        steps: Sequence[Step],
        wanted: Sequence[tuple[str, int]],
        threads: Threads,
    ) -> None:
        self._questions = tuple(questions)
        self._steps = tuple(steps)
        self._wanted = tuple(wanted)
        self._threads = threads
        self._size = 1 + len(self._questions) + len(self._steps)

    def around(self, run: Run[ResultT]) -> Run[ResultT]:
        """Run a function with its dependencies: questions first, then values, then the function, then clean-up."""

        async def filled(ctx: Context[Any], arguments: dict[str, Any]) -> ResultT:
            opened: list[Opened] = []
            try:
                await self._fill(ctx, arguments, opened)
                result = await run(ctx, arguments)
            except BaseException as exc:
                end = await self._close(ctx, opened, exc)
                if end is None or end is exc:
                    raise
                raise end from end.__cause__
            end = await self._close(ctx, opened, None)
            if end is not None:
                raise end
            return result

        return filled

    async def _fill(self, ctx: Context[Any], arguments: dict[str, Any], opened: list[Opened]) -> None:
        values: list[Any] = [None] * self._size
        values[CONTEXT] = ctx
        given = dict(arguments)
        answers = await _together([question.answer(ctx, given) for question in self._questions])
        for question, answer in zip(self._questions, answers, strict=True):
            values[question.slot] = answer
        for step in self._steps:
            found = {name: values[at] if isinstance(at, int) else given[at] for name, at in step.sources}
            values[step.slot] = await self._value(step, found, opened)
        for name, slot in self._wanted:
            arguments[name] = values[slot]

    async def _value(self, step: Step, arguments: dict[str, Any], opened: list[Opened]) -> Any:
        if step.kind in ("generator", "async generator"):
            one = Opened(step, step.function(**arguments), self._threads)
            value = await one.first()
            opened.append(one)
            return value
        if step.kind == "plain" and step.blocking:
            value = await self._threads.run(step.function, arguments)
        else:
            value = step.function(**arguments)
        return await value if isinstance(value, Awaitable) else value

    async def _close(self, ctx: Context[Any], opened: list[Opened], exc: BaseException | None) -> BaseException | None:
        """Clean up, last opened first, in bounded time. Gives back what the call ends with, None for nothing wrong."""
        limit = ctx.session.connection.limits.teardown
        clock = asyncio.timeout(limit)
        try:
            async with clock:
                while opened:
                    exc = await _closed(opened.pop(), exc, clock)
        except TimeoutError:
            if not clock.expired():
                raise
            logger.warning(
                "%s: clean-up of dependencies took longer than %g seconds and is abandoned", ctx.method, limit
            )
        return exc


async def _closed(one: Opened, exc: BaseException | None, clock: asyncio.Timeout) -> BaseException | None:
    """What a call ends with after this clean-up: an error of it replaces another error, but no cancellation or question."""
    try:
        await one.close(exc)
    except asyncio.CancelledError as raised:
        if clock.expired():
            raise
        return raised
    except Exception as raised:
        if exc is None or isinstance(exc, Exception):
            return raised
        logger.exception("the clean-up of a dependency failed")
    return exc


async def _together(answers: Sequence[Any]) -> list[Any]:
    """All of them at once; the first failure ends the others."""
    if len(answers) < 2:
        return [await answer for answer in answers]
    tasks = [asyncio.ensure_future(answer) for answer in answers]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException) and not isinstance(end, asyncio.CancelledError):
            raise end
    return ends
