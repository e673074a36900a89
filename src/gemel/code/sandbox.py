"""The sandbox that scripts of a model run in: a process with an interpreter, which ends with the script.

`pydantic-monty` is that interpreter. It has no files, no network and no other modules than those that are given here; no
clock, no randomness and no sleep either, so that a script that runs again with the same results does the same again.
`child.py` is what runs in the process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio import subprocess
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from gemel.errors import DefinitionError, ToolError, shorten
from gemel.options import Check, check_values, is_number, whole
from gemel.version import missing_extra

#: What a script can be given, and gives: JSON.
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
_CHILD = Path(__file__).with_name("child.py")
#: The variables that the process gets: what it needs to start, and nothing that a server is told in secret.
_VARIABLES = (
    "HOME",
    "LD_LIBRARY_PATH",
    "MONTY_BIN",
    "PATH",
    "PYTHONHOME",
    "PYTHONPATH",
    "SYSTEMROOT",
    "TEMP",
    "TMPDIR",
)
#: Seconds beyond those that it may compute after which a process that says nothing is ended; before that it has to start.
_GRACE, _START = 2.0, 20.0
#: The bytes of the length of a message.
_LENGTH = 4
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


class _FromChild(msgspec.Struct):
    """What the process says: that it has started, a call, that it waits after so many results, or how the script ended."""

    started: bool = False
    call: int = 0
    module: str = ""
    function: str = ""
    arguments: dict[str, Any] = {}
    waits: int | None = None
    refused: str | None = None
    failed: str | None = None
    unsent: str | None = None
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
        modules: What it may import, by name. TypeError and RuntimeError of their functions are raised in the script; anything
            else ends it, and is raised here.
        limits: Its bounds.
        begun: Called with the limit of `seconds`, for whoever stops the clock.
        at_work: What is entered while the script does not only wait for its calls.

    Raises:
        ToolError: The script is wrong, failed or went beyond a limit; the text is for who wrote it.
    """
    if len(code) > limits.code:
        raise ToolError(f"The script was not run: it has {len(code)} characters, at most {limits.code} are possible")
    script = _RunningScript(modules, limits, at_work)
    try:
        async with asyncio.timeout(limits.seconds) as limit:
            begun(limit)
            ended = await script.run(code)
    except TimeoutError:
        raise ToolError(f"The script was ended{script.said()}: it took more than {limits.seconds:g} s") from None
    except OSError as exc:
        raise ToolError(f"The sandbox can't be started: {shorten(str(exc))}") from exc
    if ended.refused is not None:
        raise ToolError(f"The script was not run:\n{_placed(ended.refused)}")
    if ended.failed is not None:
        raise ToolError(f"The script failed{script.said()}:\n{_placed(ended.failed)}")
    if ended.unsent is not None:
        raise ToolError(f"The script ended{script.said()}, but its value {ended.unsent}")
    return ScriptResult(msgspec.json.decode(ended.value), ended.printed)


class _RunningScript:
    """One script, with its process and its calls, which end with it."""

    def __init__(
        self,
        modules: Mapping[str, ScriptModule],
        limits: ScriptLimits,
        at_work: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._modules = modules
        self._limits = limits
        self._at_work = at_work
        #: Entered while the script works; the timer ends a process that says nothing meanwhile.
        self._work = ExitStack()
        self._silence: asyncio.TimerHandle | None = None
        self._begun = self._answered = 0
        self._calls: set[asyncio.Task[None]] = set()
        #: What a call raised that ends the script.
        self._failure: asyncio.Future[_FromChild] = asyncio.get_running_loop().create_future()

    def said(self) -> str:
        """Return how much was called, for an error: it may have changed something."""
        return f" after it had called {self._begun} tool{'s' if self._begun != 1 else ''}" if self._begun else ""

    async def run(self, code: str) -> _FromChild:
        """Run it, and return how it ended. Raises OSError if the process can't be started."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            str(_CHILD),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _VARIABLES if name in os.environ},
            start_new_session=os.name == "posix",
        )
        following = asyncio.ensure_future(self._follow(process))
        try:
            self._works(process, _START)
            await _send(process, self._job(code))
            await asyncio.wait([following, self._failure], return_when=asyncio.FIRST_COMPLETED)
            return (self._failure if self._failure.done() else following).result()
        finally:
            self._waits()
            self._failure.cancel()
            running = [following, *self._calls]
            for task in running:
                task.cancel()
            await asyncio.wait(running)
            _kill(process)
            await process.communicate()

    def _job(self, code: str) -> dict[str, object]:
        modules = {name: (list(each.functions), each.stubs) for name, each in self._modules.items()}
        limits = {name: getattr(self._limits, name) for name in ("calls", "cpu", "memory", "recursion", "printed")}
        return {"code": code, "modules": modules, **limits}

    # ---------------------------------------------------------------- whether it works or waits

    def _works(self, process: subprocess.Process, grace: float = _GRACE) -> None:
        """Note that the script goes on: now, or since a result was sent."""
        self._waits()
        self._work.enter_context(self._at_work())
        self._silence = asyncio.get_running_loop().call_later(self._limits.cpu + grace, _kill, process)

    def _waits(self) -> None:
        """Note that the script can't go on without a result."""
        self._work.close()
        if self._silence is not None:
            self._silence.cancel()

    # ---------------------------------------------------------------- messages

    async def _follow(self, process: subprocess.Process) -> _FromChild:
        """Do what the process says, until it says how the script ended."""
        while True:
            message = await self._receive(process)
            if message is None:
                return _FromChild(failed="MemoryError or TimeoutError: the sandbox was ended")
            if message.started:
                self._works(process)
            elif message.waits is not None:
                if message.waits == self._answered:
                    self._waits()
            elif message.call:
                self._begun += 1
                task = asyncio.ensure_future(self._answer(process, message))
                self._calls.add(task)
                task.add_done_callback(self._calls.discard)
            else:
                return message

    async def _receive(self, process: subprocess.Process) -> _FromChild | None:
        """Return the next message; None if there is none, or one that is too long."""
        assert process.stdout is not None
        try:
            size = int.from_bytes(await process.stdout.readexactly(_LENGTH))
            if size > 2 * self._limits.memory:
                return None
            return _message.decode(await process.stdout.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def _answer(self, process: subprocess.Process, message: _FromChild) -> None:
        """Call a function for the script."""
        answer: dict[str, object] = {"id": message.call}
        try:
            function = self._modules[message.module].functions[message.function]
            answer["value"] = await function(**message.arguments)
        except (RuntimeError, TypeError) as exc:
            answer |= {"error": str(exc), "kind": "TypeError" if isinstance(exc, TypeError) else "RuntimeError"}
        except Exception as exc:
            if not self._failure.done():
                self._failure.set_exception(exc)
            return
        self._answered += 1
        self._works(process)
        await _send(process, answer)


async def _send(process: subprocess.Process, message: dict[str, object]) -> None:
    """Send a message to a process, which may have ended."""
    assert process.stdin is not None
    data = msgspec.json.encode(message)
    with suppress(ConnectionError):
        process.stdin.write(len(data).to_bytes(_LENGTH) + data)
        await process.stdin.drain()


def _kill(process: subprocess.Process) -> None:
    """End a process and those that it has started, if it runs."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()


def _placed(text: str) -> str:
    """Return an error without the names of files that only the interpreter knows, bounded."""
    for place in _PLACES:
        text = text.replace(place, "line " if place.endswith(":") else "script")
    text = text.strip()
    return text if len(text) <= _ERROR else f"{text[: _ERROR // 2]}\n…\n{text[-_ERROR // 2 :]}"
