"""`ctx.step`: pieces of a handler whose results are remembered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, overload

from gemel.errors import GemelError
from gemel.server.elicitation.elicit import ElicitationStrategy, StepCall, running_step

StepT = TypeVar("StepT")
StepP = ParamSpec("StepP")


def _running_key() -> str:
    step = running_step.get()
    if step is None:
        raise GemelError("No step is running here: ctx.step.key works in the function that ctx.step calls")
    return step.key


class Steps:
    """`ctx.step`: calls a function once over all rounds of a call, or all runs of a task; see `Context.step`."""

    __slots__ = ("_requests", "_retry")

    def __init__(self, requests: Callable[[], ElicitationStrategy], *, retry: bool = True) -> None:
        self._requests = requests
        self._retry = retry

    @property
    def key(self) -> str:
        """The key of the step that is running: the same whenever this step of this call runs, and no other has it.

        Send it to services that recognize repeated requests by a key, such as an `Idempotency-Key` header.

        Raises:
            GemelError: No step is running here.
        """
        return _running_key()

    def options(self, *, retry: bool = True) -> Steps:
        """Return `ctx.step` with options: `await ctx.step.options(retry=False)(charge, card)`.

        Args:
            retry: Whether the function may be called again when the process died while it ran, so that nobody knows how far
                it got. Without, such a task fails, and says that the outcome is unknown.

        Returns:
            What calls a function with these options.
        """
        return Steps(self._requests, retry=retry)

    @overload
    async def __call__(
        self, function: Callable[StepP, Awaitable[StepT]], /, *arguments: StepP.args, **named: StepP.kwargs
    ) -> StepT: ...

    @overload
    async def __call__(
        self, function: Callable[StepP, StepT], /, *arguments: StepP.args, **named: StepP.kwargs
    ) -> StepT: ...

    async def __call__(self, function: Callable[..., Any], /, *arguments: object, **named: object) -> Any:
        """Call a function once: `paid = await ctx.step(charge, card)`.

        Args:
            function: A sync or async function. Its result must be a JSON value.
            *arguments: Its positional arguments.
            **named: Its keyword arguments.

        Returns:
            Its result, as the type that the function is annotated with.

        Raises:
            GemelError: JSON can't represent the result.
            NotFinished: It is unknown whether the step ran, with `retry=False`.
        """
        return await self._requests().step(StepCall(function, arguments, named, retry=self._retry))


class SyncSteps:
    """`ctx.sync.step`: the same for sync functions; see `Context.step`."""

    __slots__ = ("_run", "_step")

    def __init__(self, step: Steps, run: Callable[..., Any]) -> None:
        self._step = step
        self._run = run

    @property
    def key(self) -> str:
        """The key of the step that is running; see `Steps.key`.

        Raises:
            GemelError: No step is running here.
        """
        return _running_key()

    def options(self, *, retry: bool = True) -> SyncSteps:
        """Return `ctx.sync.step` with options; see `Steps.options`.

        Args:
            retry: Whether the function may be called again when the process died while it ran.

        Returns:
            What calls a function with these options.
        """
        return SyncSteps(self._step.options(retry=retry), self._run)

    def __call__(self, function: Callable[StepP, StepT], /, *arguments: StepP.args, **named: StepP.kwargs) -> StepT:
        """Call a function once, in this thread.

        Args:
            function: A sync function. Its result must be a JSON value.
            *arguments: Its positional arguments.
            **named: Its keyword arguments.

        Returns:
            Its result.

        Raises:
            GemelError: JSON can't represent the result.
            NotFinished: It is unknown whether the step ran, with `retry=False`.
        """
        result: StepT = self._run(lambda here: self._step(here, *arguments, **named), function)
        return result
