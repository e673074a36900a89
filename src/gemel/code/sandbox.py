"""The sandbox that scripts of a model run in: a process with an interpreter, which ends with the script.

`pydantic-monty` is that interpreter. It has no files, no network and no other modules than those that are given here; no
clock, no randomness and no sleep either, so that a script that runs again with the same results does the same again.
`child.py` is what runs in the process.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from gemel.code.advice import Advise, told
from gemel.errors import DefinitionError, Overloaded, ToolError, shorten
from gemel.options import Check, SettingsMeta, check_values, is_number, whole
from gemel.timeouts import time_limit
from gemel.version import missing_extra

#: What a script can be given, and gives: JSON.
Value: TypeAlias = object
HostFunction: TypeAlias = Callable[..., Awaitable[Value]]

_SECONDS = Check(lambda value: is_number(value) and value > 0, "use seconds, more than 0")
_OPTIONS = {
    "calls": whole(1),
    "seconds": _SECONDS,
    "cpu": _SECONDS,
    "memory": whole(1_000_000),
    "recursion": whole(1),
    "printed": whole(0),
    "code": whole(1),
    "scripts": whole(1),
    "waiting": whole(0),
}
_CHILD = Path(__file__).with_name("child.py")
#: The variables that the process gets: what it needs to start, and nothing that a server is told in secret.
_VARIABLES = frozenset(
    ("HOME", "LD_LIBRARY_PATH", "MONTY_BIN", "PATH", "PYTHONHOME", "PYTHONPATH", "SYSTEMROOT", "TEMP", "TMPDIR")
)
#: Seconds beyond those that it may compute after which a process that says nothing is ended; before that it has to start.
_GRACE, _START = 2.0, 20.0
#: A line of Markdown around a script.
_FENCE = re.compile(r"^\s*```\w*[^\S\n]*$", re.MULTILINE)


class ScriptLimits(msgspec.Struct, frozen=True, kw_only=True, metaclass=SettingsMeta):
    """Bounds of one script.

    Args:
        calls: Calls of tools, 1 or more.
        seconds: The time it may take in all, without the time in which a person is asked.
        cpu: Seconds that it may compute.
        memory: Bytes of its values, and of the results of its calls, 1,000,000 or more.
        recursion: Calls of functions within calls.
        printed: Bytes that it may print.
        code: Characters of the script.
        scripts: Processes of scripts at a time. A script that waits for tools or for a person leaves its process to another
            one that needs it, and runs again from its start later; calls aren't repeated.
        waiting: Scripts that wait for a process. More fail with `Overloaded`.

    Raises:
        DefinitionError: A value is out of range.
    """

    calls: int = 50
    seconds: float = 60.0
    cpu: float = 5.0
    memory: int = 100_000_000
    recursion: int = 200
    printed: int = 20_000
    code: int = 100_000
    scripts: int = 20
    waiting: int = 100

    def __post_init__(self) -> None:
        check_values(msgspec.structs.asdict(self), _OPTIONS)


class ScriptModule(NamedTuple):
    """A module that scripts may import: its functions by name, and the text of its `.pyi` file."""

    functions: Mapping[str, HostFunction]
    stubs: str


class ScriptResult(NamedTuple):
    """What a script gave: the value of its last expression, and what it printed."""

    value: Value
    printed: str


class _FromChild(msgspec.Struct):
    """What the process says: that it has started, a call, the calls that the script waits for, or how it ended."""

    started: bool = False
    call: int | None = None
    path: str = ""
    arguments: Raw = Raw(b"{}")
    waits: list[int] = []
    refused: str = ""
    failed: str = ""
    value: Raw = Raw(b"null")
    printed: str = ""


_message = msgspec.json.Decoder(_FromChild)


def check_sandbox() -> None:
    """Check that scripts can run here.

    Raises:
        DefinitionError: The extra is missing, or has no build for this system.
    """
    if find_spec("pydantic_monty") is None:
        raise DefinitionError(missing_extra("Scripts need", "code"))


class ScriptPlaces:
    """The processes that the scripts of one event loop may have.

    Where all are taken, a script that only waits for its calls leaves its own to one that needs it.

    Args:
        limits: The bounds of a script, with those of all.
    """

    def __init__(self, limits: ScriptLimits) -> None:
        self.limits = limits
        self._free = asyncio.Semaphore(limits.scripts)
        self._waiting = 0
        #: Done to have a script that waits for its calls leave its process.
        self._resting: list[asyncio.Future[None]] = []

    def check(self) -> None:
        """Raise Overloaded if too many scripts wait for a process."""
        if self._free.locked() and not self._resting and self._waiting >= self.limits.waiting:
            raise Overloaded(f"Too many scripts: {self.limits.scripts} run and {self._waiting} wait; try again later")

    @asynccontextmanager
    async def taken(self, script: RunningScript) -> AsyncIterator[None]:
        """Wait for a process, and have it inside the block."""
        time = asyncio.get_running_loop().time
        begin = time()
        self._waiting += 1
        self._hand_over()
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
            script.waited += time() - begin
        try:
            yield
        finally:
            self._free.release()

    @contextmanager
    def resting(self) -> Iterator[asyncio.Future[None]]:
        """Note that a script only waits for its calls inside the block. It must end when what is returned is done."""
        leave = asyncio.get_running_loop().create_future()
        self._resting.append(leave)
        self._hand_over()
        try:
            yield leave
        finally:
            if not leave.done():
                self._resting.remove(leave)

    def _hand_over(self) -> None:
        if self._waiting and self._resting and self._free.locked():
            self._resting.pop(0).set_result(None)


async def run_script(
    code: str,
    modules: Mapping[str, ScriptModule],
    places: ScriptPlaces,
    *,
    advise: Advise = lambda error: (),
    begun: Callable[[asyncio.Timeout], None] = lambda limit: None,
    at_work: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> ScriptResult:
    """Check the types of a script, and run it. Nothing runs if a type is wrong.

    Args:
        code: The script. The value of its last expression is its result.
        modules: What it may import, by name. TypeError and RuntimeError of their functions are raised in the script; anything
            else ends it, and is raised here.
        places: The processes that there are, with the bounds.
        advise: Returns what can be done about an error of the script, as lines.
        begun: Called with the limit of `seconds`, for whoever stops the clock.
        at_work: What is entered while the script does not only wait for its calls.

    Raises:
        ToolError: The script is wrong, failed or went beyond a limit; the text is for who wrote it.
        Overloaded: Too many scripts wait, or it waited too long; no function was called.
    """
    limits = places.limits
    code = _FENCE.sub("", code) if code.lstrip().startswith("```") else code
    if len(code) > limits.code:
        raise ToolError(
            f"The script was not run: it has {len(code)} characters, at most {limits.code} are possible: make several of it"
        )
    places.check()
    script = RunningScript(code, modules, places, at_work)
    try:
        async with time_limit(limits.seconds) as limit:
            begun(limit)
            ended = await script.run()
    except TimeoutError:
        reason = f"it took more than {limits.seconds:g} s: do less in one"
        if script.waited > limits.seconds / 2:
            reason = (
                f"of its {limits.seconds:g} s it waited {script.waited:.0f} s for a process, which other scripts had"
            )
            if not script.calls:
                raise Overloaded(f"The script was not served: {reason}") from None
        raise ToolError(f"The script was ended{script.said()}: {reason}") from None
    except OSError as exc:
        raise ToolError(f"The sandbox can't be started: {shorten(str(exc))}") from exc
    if error := ended.refused or ended.failed:
        what = "was not run" if ended.refused else f"failed{script.said()}"
        stubs = {name: module.stubs for name, module in modules.items()}
        raise ToolError(f"The script {what}:\n{told(error, stubs, msgspec.structs.asdict(limits), advise)}")
    return ScriptResult(msgspec.json.decode(ended.value), ended.printed)


@dataclass(eq=False)
class RunningScript:
    """One script with its calls, which end with it. It has one process after another: see `ScriptPlaces`.

    Args:
        code: The script.
        modules: What it may import.
        places: The processes that there are.
        at_work: What is entered while it does not only wait for its calls.

    Attributes:
        calls: Its calls, by what is called and how often that was called before.
        kept: The bytes of their results.
        waited: The seconds in which it waited for a process.
        work: Entered while it works.
    """

    code: str
    modules: Mapping[str, ScriptModule]
    places: ScriptPlaces
    at_work: Callable[[], AbstractContextManager[None]]
    calls: dict[tuple[str, bytes, int], asyncio.Task[Raw]] = field(default_factory=dict)
    kept: int = 0
    waited: float = 0.0
    work: ExitStack = field(default_factory=ExitStack)

    def said(self) -> str:
        """Return how much was called, for an error: it may have changed something."""
        count = len(self.calls)
        return f" after it had called {count} tool{'s' if count != 1 else ''}" if count else ""

    async def run(self) -> _FromChild:
        """Run it, and return how it ended. Raises OSError if a process can't be started."""
        self._works()
        try:
            while True:
                async with self.places.taken(self):
                    ended = await self._run_in_process()
                if isinstance(ended, _FromChild):
                    return ended
                await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in self.calls.values():
                task.cancel()
            await asyncio.gather(*self.calls.values(), return_exceptions=True)
            self.work.close()

    def _works(self) -> None:
        """Note that it doesn't only wait for its calls, or does no longer."""
        self.work.close()
        self.work.enter_context(self.at_work())

    async def _run_in_process(self) -> _FromChild | list[asyncio.Task[Raw]]:
        """Run it from its start, and return how it ended, or the calls that it waits for if it left its process."""
        #: The calls of this process by their numbers there, and how often it has called what.
        own: dict[int, asyncio.Task[Raw]] = {}
        begun: Counter[tuple[str, bytes]] = Counter()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            str(_CHILD),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name in _VARIABLES},
            start_new_session=os.name == "posix",
            limit=self.places.limits.memory * 2,
        )
        try:
            modules = {name: (list(each.functions), each.stubs) for name, each in self.modules.items()}
            _send(process, {**msgspec.structs.asdict(self.places.limits), "code": self.code, "modules": modules})
            message = await self._receive(process, _START)
            while message.started or message.call is not None or message.waits:
                if message.call is not None:
                    what = message.path, bytes(message.arguments)
                    key = *what, begun[what]
                    begun[what] += 1
                    if key not in self.calls:  # unless an earlier process began it
                        self.calls[key] = asyncio.ensure_future(self._answer(*what))
                    own[message.call] = self.calls[key]
                elif message.waits:
                    results = await self._results(own, message.waits)
                    if results is None:
                        return [own[number] for number in message.waits]
                    _send(process, results)
                message = await self._receive(process, _GRACE)
            return message
        finally:
            _kill(process)
            await process.communicate()

    async def _receive(self, process: subprocess.Process, grace: float) -> _FromChild:
        """Return the next message; if there is none in time, or one that is too long, that the script has failed."""
        assert process.stdout is not None
        with suppress(TimeoutError, ValueError, ConnectionError, msgspec.DecodeError):
            async with asyncio.timeout(self.places.limits.cpu + grace):
                return _message.decode(await process.stdout.readline())
        return _FromChild(
            failed="MemoryError or TimeoutError: the sandbox was ended: compute less, with smaller values"
        )

    async def _results(self, calls: Mapping[int, asyncio.Task[Raw]], waits: Sequence[int]) -> dict[int, Raw] | None:
        """Return the results of some calls, one at least; None if it has to leave its process before there is one."""
        with self.places.resting() as leave:
            while not (results := {number: calls[number].result() for number in waits if calls[number].done()}):
                self.work.close()
                if leave.done():
                    return None
                pending: list[asyncio.Future[Any]] = [leave, *(task for task in calls.values() if not task.done())]
                await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        self._works()
        return results

    async def _answer(self, path: str, arguments: bytes) -> Raw:
        """Call a function for the script, and return the result as the interpreter takes it."""
        module, _, function = path.rpartition(".")
        try:
            value = await self.modules[module].functions[function](**msgspec.json.decode(arguments))
            result = Raw(msgspec.json.encode({"return_value": value}))
            self.kept += len(bytes(result))
            if self.kept > self.places.limits.memory:
                raise RuntimeError(
                    f"All results together have more than {self.places.limits.memory:,} bytes: read less"
                )
        except (RuntimeError, TypeError) as exc:
            kind = "TypeError" if isinstance(exc, TypeError) else "RuntimeError"
            result = Raw(msgspec.json.encode({"exc_type": kind, "message": str(exc)}))
        self._works()
        return result


def _send(process: subprocess.Process, message: Mapping[Any, object]) -> None:
    """Send a message to a process, unless it has ended."""
    assert process.stdin is not None
    if not process.stdin.is_closing():
        process.stdin.write(msgspec.json.encode(message) + b"\n")


def _kill(process: subprocess.Process) -> None:
    """End a process and those that it has started, if it runs."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
