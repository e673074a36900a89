"""The Context for functions without async, in a worker thread: each method waits there until it is done on the event loop.

Knows threads and the loop, and passes everything on; what the methods mean is said in Context.
"""

from __future__ import annotations

import asyncio
import functools
import queue
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar, overload

from msgspec import UNSET

from hinge.errors import HingeError
from hinge.schema.notifications import LoggingLevel
from hinge.schema.prompts import GetPromptResult
from hinge.schema.resources import ReadResourceResult
from hinge.schema.roots import Root
from hinge.schema.sampling import CreateMessageResult, SamplingMessage
from hinge.schema.tools import CallToolResult

FormT = TypeVar("FormT")
ResultT = TypeVar("ResultT")


class SyncContext:
    """`ctx.sync`: what a sync function says and asks, as plain calls: `ctx.sync.progress(1, 3)`, `ctx.sync.elicit(…)`.

    Works in the worker thread that runs the function and in any other thread, not on the event loop: there each method
    raises HingeError. When the call is over (cancelled, out of time, answered), each raises
    concurrent.futures.CancelledError, so that a function that nobody waits for any more comes to its end.
    """

    def __init__(self, ctx: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._ctx = ctx
        self._loop = loop
        self._waiting: set[Future[Any]] = set()
        self._over = False

    def end(self) -> None:
        """The call is over: nobody waits any more."""
        self._over = True
        for future in list(self._waiting):
            future.cancel()

    def _do(self, made: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Let the loop run it, and wait here."""
        return self._begin(made).result()

    def _begin(self, made: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        if _on_a_loop():
            made.close()
            raise HingeError("ctx.sync waits, which would hold up the event loop here: await the method of ctx itself")
        if self._over or self._ctx.cancelled:
            made.close()
            raise CancelledError
        future = asyncio.run_coroutine_threadsafe(made, self._loop)
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        self._end_if_over(future)
        return future

    def _end_if_over(self, future: Future[Any]) -> None:
        """The call may have ended while the loop was being asked."""
        if self._over:
            future.cancel()

    # ---------------------------------------------------------------- telling the client

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """`Context.progress`."""
        self._do(self._ctx.progress(progress, total, message))

    def log(self, level: LoggingLevel, data: Any, *, logger: str | None = None) -> None:
        """`Context.log`."""
        self._do(self._ctx.log(level, data, logger=logger))

    def debug(self, data: Any) -> None:
        """`log("debug", …)`."""
        self.log("debug", data)

    def info(self, data: Any) -> None:
        """`log("info", …)`."""
        self.log("info", data)

    def warning(self, data: Any) -> None:
        """`log("warning", …)`."""
        self.log("warning", data)

    def error(self, data: Any) -> None:
        """`log("error", …)`."""
        self.log("error", data)

    def notify(self, method: str, params: Any = UNSET) -> None:
        """`Context.notify`."""
        self._do(self._ctx.notify(method, params))

    # ---------------------------------------------------------------- its own server

    def read_resource(self, uri: str) -> ReadResourceResult:
        """`Context.read_resource`."""
        found: ReadResourceResult = self._do(self._ctx.read_resource(uri))
        return found

    def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> CallToolResult:
        """`Context.call_tool`."""
        result: CallToolResult = self._do(self._ctx.call_tool(name, arguments))
        return result

    def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """`Context.get_prompt`."""
        prompt: GetPromptResult = self._do(self._ctx.get_prompt(name, arguments))
        return prompt

    # ---------------------------------------------------------------- asking the client

    @overload
    def elicit(self, message: str, form: type[FormT], *, key: str | None = None) -> FormT: ...

    @overload
    def elicit(self, message: str, form: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any]: ...

    def elicit(self, message: str, form: Any = str, *, key: str | None = None) -> Any:
        """`Context.elicit`."""
        return self._do(self._ctx.elicit(message, form, key=key))

    def elicit_url(self, message: str, url: str, *, key: str | None = None) -> None:
        """`Context.elicit_url`."""
        self._do(self._ctx.elicit_url(message, url, key=key))

    def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        max_tokens: int = 1000,
        key: str | None = None,
        **options: Any,
    ) -> CreateMessageResult:
        """`Context.sample`."""
        answer: CreateMessageResult = self._do(self._ctx.sample(messages, max_tokens=max_tokens, key=key, **options))
        return answer

    def list_roots(self, *, key: str | None = None) -> list[Root]:
        """`Context.list_roots`."""
        roots: list[Root] = self._do(self._ctx.list_roots(key=key))
        return roots

    def step(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """`Context.step`; the function runs in this thread."""
        jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

        @functools.wraps(function)
        async def here(*arguments: Any, **named: Any) -> Any:
            done: asyncio.Future[Any] = self._loop.create_future()
            jobs.put(functools.partial(_hand_over, functools.partial(function, *arguments, **named), done))
            return await done

        future = self._begin(self._ctx.step(here, *arguments, **named))
        future.add_done_callback(lambda _: jobs.put(None))
        while (job := jobs.get()) is not None:
            job()
        return future.result()


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _hand_over(job: Callable[[], Any], done: asyncio.Future[Any]) -> None:
    """Run it here, give the result to the loop."""
    try:
        value, error = job(), None
    except Exception as exc:
        value, error = None, exc
    done.get_loop().call_soon_threadsafe(_settle, done, value, error)


def _settle(done: asyncio.Future[Any], value: Any, error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(value)
    else:
        done.set_exception(error)
