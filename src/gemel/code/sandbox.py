"""The sandbox that scripts of a model run in: an interpreter in a process of its own, which ends with the script.

`pydantic-monty` is that interpreter. It has no files, no network and no other modules than those that are given here; no
clock, no randomness and no sleep either, so that a script that runs again with the same results does the same again.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeAlias

from gemel.errors import DefinitionError, ToolError, shorten
from gemel.options import Check, check_values, is_number, whole
from gemel.version import missing_extra

if TYPE_CHECKING:
    from pydantic_monty import OsFunction

#: What a script can be given, and gives.
Value: TypeAlias = object
HostFunction: TypeAlias = Callable[..., Awaitable[Value]]

_OPTIONS = {
    "calls": whole(1),
    "seconds": Check(lambda value: is_number(value) and value > 0, "use seconds, more than 0"),
    "cpu": Check(lambda value: is_number(value) and value > 0, "use seconds, more than 0"),
    "memory": whole(1_000_000),
    "recursion": whole(1),
    "printed": whole(0),
    "code": whole(1),
    "scripts": whole(1),
}
#: Each call needs up to so many turns between the host and the sandbox, names and modules besides.
_TURNS_OF_CALL, _TURNS = 4, 200
#: Seconds beyond its own limit after which a process that doesn't answer is killed.
_GRACE = 2.0
#: Seconds that the end of this process may wait for threads, and between two looks.
_EXIT, _TURN = 2.0, 0.005
#: The longest text of an error, in characters.
_ERROR = 4000
#: Where the interpreter says that code is, in errors of types and of programs.
_PLACES = ("main.py:", "<python-input-0>")


class ScriptLimits:
    """Bounds of one script.

    Args:
        calls: Calls of tools, 1 or more.
        seconds: The time it may take in all, without the time in which a person is asked.
        cpu: Seconds that it may compute.
        memory: Bytes of its values, 1,000,000 or more.
        recursion: Calls of functions within calls.
        printed: Characters that it may print.
        code: Characters of the script.
        scripts: Scripts that run at a time, each in a process of its own; others wait.

    Raises:
        DefinitionError: A value is out of range.
    """

    __slots__ = ("calls", "code", "cpu", "memory", "printed", "recursion", "scripts", "seconds")

    def __init__(
        self,
        *,
        calls: int = 50,
        seconds: float = 60.0,
        cpu: float = 5.0,
        memory: int = 100_000_000,
        recursion: int = 200,
        printed: int = 20_000,
        code: int = 100_000,
        scripts: int = 20,
    ) -> None:
        check_values(locals(), _OPTIONS)
        self.calls = calls
        self.seconds = seconds
        self.cpu = cpu
        self.memory = memory
        self.recursion = recursion
        self.printed = printed
        self.code = code
        self.scripts = scripts


class ScriptModule(NamedTuple):
    """A module that scripts may import: its functions by name, and the text of its `.pyi` file."""

    functions: Mapping[str, HostFunction]
    stubs: str


class ScriptResult(NamedTuple):
    """What a script gave: the value of its last expression, and what it printed."""

    value: Value
    printed: str


def check_sandbox() -> None:
    """Check that scripts can run here.

    Raises:
        DefinitionError: The extra is missing, or has no build for this system.
    """
    try:
        import pydantic_monty  # noqa: F401
    except ImportError:
        raise DefinitionError(missing_extra("Scripts need", "code")) from None


async def run_script(
    code: str,
    modules: Mapping[str, ScriptModule],
    limits: ScriptLimits,
    *,
    begun: Callable[[asyncio.Timeout], None] = lambda limit: None,
    at_work: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> ScriptResult:
    """Check the types of a script, and run it. Nothing runs if a type is wrong.

    Args:
        code: The script. The value of its last expression is its result.
        modules: What it may import, by name.
        limits: Its bounds.
        begun: Called with the limit of `seconds`, for whoever stops the clock.
        at_work: What is entered while the script does not only wait for its calls.

    Raises:
        ToolError: The script is wrong, failed or went beyond a limit; the text is for who wrote it.
    """
    import pydantic_monty as monty

    _wait_at_exit()
    if len(code) > limits.code:
        raise ToolError(f"The script was not run: it has {len(code)} characters, at most {limits.code} are possible")
    calls = _RunningCalls(limits)
    given = {
        name: monty.ExternalModule(
            {one: calls.counted(call) for one, call in module.functions.items()}, stubs=module.stubs
        )
        for name, module in modules.items()
    }
    printed = monty.CollectString(max_bytes=limits.printed)
    pool = monty.AsyncMonty(max_processes=1, request_timeout=limits.cpu + _GRACE)
    try:
        async with (
            asyncio.timeout(limits.seconds) as limit,
            pool,
            pool.checkout(
                external_modules=given,
                limits={
                    "max_feed_duration_secs": float(limits.cpu),
                    "max_memory": limits.memory,
                    "max_recursion_depth": limits.recursion,
                    "max_suspensions": _TURNS + _TURNS_OF_CALL * limits.calls,
                    "max_total_sleep_secs": 0.0,
                },
                type_check=True,
                type_check_format="concise",
                os_policy={"datetime": "call_host", "sleep": "call_host", "random_start": "call_host"},
            ) as session,
        ):
            begun(limit)
            try:
                with at_work():
                    at = await session.feed_start(code, print_callback=printed, os=_refuse)
                while not isinstance(at, monty.MontyComplete):
                    waits = isinstance(at, monty.AsyncFutureSnapshot)
                    if isinstance(at, monty.AsyncFunctionSnapshot):
                        waits = at.allow_eager_await and not at.is_os_function
                    with nullcontext() if waits else at_work():
                        at = await at.resume_auto()
            finally:
                await calls.end()
    except TimeoutError:
        raise ToolError(f"The script was ended{calls.said()}: it took more than {limits.seconds:g} s") from None
    except OSError as exc:
        raise ToolError(f"The sandbox can't be started: {shorten(str(exc))}") from exc
    except monty.MontyTypingError as exc:
        raise ToolError(f"The script was not run:\n{_placed(exc.display())}") from None
    except (monty.MontySyntaxError, monty.MontyRuntimeError) as exc:
        raise ToolError(f"The script failed{calls.said()}:\n{_placed(exc.display())}") from None
    except monty.MontyCrashedError as exc:
        raise ToolError(f"The script was ended{calls.said()}: {shorten(str(exc))}") from None
    except monty.MontyError as exc:
        raise ToolError(f"The script failed{calls.said()}: {shorten(str(exc))}") from None
    if _extent(at.output, {}) > limits.memory:
        raise ToolError(f"The script ended{calls.said()}, but its value {_too_large(limits)}")
    return ScriptResult(at.output, printed.output)


@functools.cache
def _wait_at_exit() -> None:
    """Let the threads of the interpreter's client leave Python before it is finalized.

    The thread that reports the end of a script gives up the GIL in between. CPython before 3.14 ends threads that want it
    back at finalization, and ends the process with SIGABRT if these are threads of Rust.
    """

    def wait() -> None:
        end = time.monotonic() + _EXIT
        time.sleep(_TURN)
        while (
            sys._current_frames().keys() - {thread.ident for thread in threading.enumerate()} and time.monotonic() < end
        ):
            time.sleep(_TURN)

    atexit.register(wait)


def _refuse(
    *,
    name: OsFunction,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    is_async: bool,
    **_future: object,
) -> NoReturn:
    """Answer what a script asks of its system."""
    raise RuntimeError(f"{name}: scripts have no clock, no randomness, no sleep, no files and no environment")


def _placed(text: str) -> str:
    """Return an error without the names of files that only the interpreter knows, bounded."""
    for place in _PLACES:
        text = text.replace(place, "line " if place.endswith(":") else "script")
    text = text.strip()
    return text if len(text) <= _ERROR else f"{text[: _ERROR // 2]}\n…\n{text[-_ERROR // 2 :]}"


def _too_large(limits: ScriptLimits) -> str:
    return f"has more than {limits.memory} bytes, with each part counted as often as it occurs"


def _extent(value: object, known: dict[int, tuple[object, int]]) -> int:
    """Return about how many bytes a value has as text, in time that grows with what it holds in memory.

    A list that holds another one twice is small, and its text is not: forty of them one in another have a text of terabytes.

    Args:
        value: A value that a script gave. It has no cycles, and not many levels: the interpreter's client sees to that.
        known: The objects that were counted, by their ids.
    """
    if isinstance(value, str | bytes):
        return len(value) + 2
    if isinstance(value, int):
        return value.bit_length() // 3 + 1
    if not isinstance(value, Mapping | list | tuple | set | frozenset):
        value = getattr(value, "attributes", None)  # of an object of a class of the script
        if not isinstance(value, Mapping):
            return 8
    if id(value) not in known:
        parts = chain(value, value.values()) if isinstance(value, Mapping) else value
        known[id(value)] = value, 2 + sum(1 + _extent(part, known) for part in parts)
    return known[id(value)][1]


class _RunningCalls:
    """The calls of one script, which end with it."""

    def __init__(self, limits: ScriptLimits) -> None:
        self._limits = limits
        self._begun = 0
        self._is_over = False
        self._running: set[asyncio.Task[object]] = set()

    def counted(self, function: HostFunction) -> HostFunction:
        """Return a function that counts as a call and ends with the script."""

        async def call(*arguments: object, **named: object) -> Value:
            if arguments:
                raise TypeError("Tools take keyword arguments only")
            if self._begun >= self._limits.calls:
                raise RuntimeError(f"A script may call {self._limits.calls} tools")
            if _extent(named, {}) > self._limits.memory:
                raise MemoryError(f"What the tool is given {_too_large(self._limits)}")
            self._begun += 1
            task = asyncio.current_task()
            if self._is_over or task is None:
                raise asyncio.CancelledError
            self._running.add(task)
            try:
                return await function(**named)
            finally:
                self._running.discard(task)

        return call

    def said(self) -> str:
        """Return how much was called, for an error: it may have changed something."""
        return f" after it had called {self._begun} tool{'s' if self._begun != 1 else ''}" if self._begun else ""

    async def end(self) -> None:
        """Cancel what is running, and wait for it."""
        self._is_over = True
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
