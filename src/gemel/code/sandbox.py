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
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, nullcontext, suppress
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from gemel.errors import DefinitionError, Overloaded, ToolError, shorten
from gemel.options import Check, SettingsMeta, check_values, is_number, whole
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
#: A line of Markdown around a script.
_FENCE = re.compile(r"^\s*```\w*[^\S\n]*$", re.MULTILINE)
#: What the interpreter's `asyncio.gather` has not, and its type checker doesn't know.
_NOT_IN_GATHER = re.compile(r"\breturn_exceptions\s*=")
#: What a model can do about an error that has this in it.
_ADVICE = {
    "[unresolved-import]": "Import tools, as search_tools names them, of {modules}, and asyncio, datetime, json, math, re",
    "[unresolved-reference]": "Import each tool: `from module import function`, of {modules}",
    "[too-many-positional-arguments]": "Write the name of each argument: `await function(name=…)`",
    "Module `asyncio` has no": "Call several tools at a time by `await asyncio.gather(one(…), other(…))`",
    "feed time limit": "It may compute for {cpu:g} s: compute less, or in several scripts",
    "worker killed": "It may compute for {cpu:g} s: compute less, or in several scripts",
    "memory limit": "Its values may have {memory:,} bytes: keep less of the results of tools at a time",
    "suspension limit": "It may call {calls} tools: do the rest in another script",
}
#: A function or a module that there isn't.
_MISSING = re.compile(
    r"Module `(?P<module>\w+)` has no member `(?P<member>\w+)`|Cannot resolve imported module `(?P<other>\w+)`"
    r"|Name `(?P<name>\w+)` used when not defined"
)
#: Functions that are proposed in its place; only the start of its name is compared.
_MEANT, _COMPARED = 3, 100


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
    """What the process says: that it has started, a call, that it waits after so many results, or how the script ended."""

    started: bool = False
    call: int | None = None
    path: str = ""
    arguments: Raw = Raw(b"{}")
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
        self._resting: dict[RunningScript, None] = {}

    def check(self) -> None:
        """Raise Overloaded if too many scripts wait for a process."""
        if self._free.locked() and not self._resting and self._waiting >= self.limits.waiting:
            raise Overloaded(f"Too many scripts: {self.limits.scripts} run and {self._waiting} wait; try again later")

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for a process, and have it inside the block."""
        if self._free.locked() and self._resting:
            next(iter(self._resting)).leave()
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._free.release()

    def rest(self, script: RunningScript) -> None:
        """Note that a script only waits for its calls."""
        self._resting[script] = None
        if self._waiting:
            script.leave()

    def work(self, script: RunningScript) -> None:
        """Note that a script goes on."""
        self._resting.pop(script, None)


async def run_script(
    code: str,
    modules: Mapping[str, ScriptModule],
    places: ScriptPlaces,
    *,
    missing: Mapping[str, str] = MappingProxyType({}),
    begun: Callable[[asyncio.Timeout], None] = lambda limit: None,
    at_work: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> ScriptResult:
    """Check the types of a script, and run it. Nothing runs if a type is wrong.

    Args:
        code: The script. The value of its last expression is its result.
        modules: What it may import, by name. TypeError and RuntimeError of their functions are raised in the script; anything
            else ends it, and is raised here.
        places: The processes that there are, with the bounds.
        missing: The modules that it can't import now, with the reason.
        begun: Called with the limit of `seconds`, for whoever stops the clock.
        at_work: What is entered while the script does not only wait for its calls.

    Raises:
        ToolError: The script is wrong, failed or went beyond a limit; the text is for who wrote it.
        Overloaded: Too many scripts wait; nothing has run.
    """
    limits = places.limits
    code = _FENCE.sub("", code) if code.lstrip().startswith("```") else code
    if len(code) > limits.code:
        raise ToolError(
            f"The script was not run: it has {len(code)} characters, at most {limits.code} are possible: make several of it"
        )
    if _NOT_IN_GATHER.search(code):
        raise ToolError(
            "The script was not run: asyncio.gather has no return_exceptions here: catch RuntimeError in a function "
            "`async def` around each call, and gather these"
        )
    places.check()
    script = RunningScript(code, modules, places, at_work)
    try:
        async with asyncio.timeout(limits.seconds) as limit:
            begun(limit)
            ended = await script.run()
    except TimeoutError:
        if not script.has_started:
            raise Overloaded(f"The script was not run: it waited for others for {limits.seconds:g} s") from None
        raise ToolError(
            f"The script was ended{script.said()}: it took more than {limits.seconds:g} s: do less in one"
        ) from None
    except OSError as exc:
        raise ToolError(f"The sandbox can't be started: {shorten(str(exc))}") from exc
    if ended.refused is not None:
        raise ToolError(f"The script was not run:\n{_told(ended.refused, modules, missing, limits)}")
    if ended.failed is not None:
        raise ToolError(f"The script failed{script.said()}:\n{_told(ended.failed, modules, missing, limits)}")
    if ended.unsent is not None:
        raise ToolError(f"The script ended{script.said()}, but {ended.unsent}")
    return ScriptResult(msgspec.json.decode(ended.value), ended.printed)


class RunningScript:
    """One script with its calls, which end with it. It has one process after another: see `ScriptPlaces`.

    Args:
        code: The script.
        modules: What it may import.
        places: The processes that there are.
        at_work: What is entered while it does not only wait for its calls.

    Attributes:
        has_started: Whether it had a process.
    """

    def __init__(
        self,
        code: str,
        modules: Mapping[str, ScriptModule],
        places: ScriptPlaces,
        at_work: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.has_started = False
        self._code = code
        self._modules = modules
        self._places = places
        self._limits = places.limits
        self._at_work = at_work
        #: Entered while it works.
        self._work = ExitStack()
        #: The process that it has, and the timer that ends it if it says nothing while it works.
        self._process: subprocess.Process | None = None
        self._silence: asyncio.TimerHandle | None = None
        #: How it ended in this process; if it left it, the calls that it waits for.
        self._end: asyncio.Future[_FromChild | list[asyncio.Task[Raw]]]
        #: Its calls, by what is called and how often that was called before; and the bytes of their results.
        self._calls: dict[tuple[str, bytes, int], asyncio.Task[Raw]] = {}
        self._kept = 0
        #: The calls of this process, and how often it has called what.
        self._own: list[asyncio.Task[Raw]] = []
        self._begun: Counter[tuple[str, bytes]] = Counter()

    def said(self) -> str:
        """Return how much was called, for an error: it may have changed something."""
        count = len(self._calls)
        return f" after it had called {count} tool{'s' if count != 1 else ''}" if count else ""

    def leave(self) -> None:
        """Leave the process to another script; go on in a new one when a call has ended."""
        self._places.work(self)
        if not self._end.done():
            self._end.set_result([task for task in self._own if not task.done()])

    async def run(self) -> _FromChild:
        """Run it, and return how it ended. Raises OSError if a process can't be started."""
        self._works()
        try:
            while True:
                async with self._places.taken():
                    ended = await self._run_in_process()
                if isinstance(ended, _FromChild):
                    return ended
                await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waits()
            for task in self._calls.values():
                task.cancel()
            await asyncio.gather(*self._calls.values(), return_exceptions=True)

    async def _run_in_process(self) -> _FromChild | list[asyncio.Task[Raw]]:
        """Run it from its start, and return how it ended, or the calls that it waits for if it left its process."""
        self._begun.clear()
        self._own.clear()
        self._end = asyncio.get_running_loop().create_future()
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            str(_CHILD),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _VARIABLES if name in os.environ},
            start_new_session=os.name == "posix",
        )
        self.has_started = True
        self._works(_START)
        following = asyncio.ensure_future(self._follow(process))
        try:
            modules = {name: (list(each.functions), each.stubs) for name, each in self._modules.items()}
            _send(process, {**msgspec.structs.asdict(self._limits), "code": self._code, "modules": modules})
            return await self._end
        finally:
            _kill(process)  # first: a cancellation may end what is awaited here
            self._end.cancel()
            self._process = None
            self._places.work(self)
            following.cancel()
            await asyncio.wait([following])
            await process.communicate()

    # ---------------------------------------------------------------- whether it works or waits

    def _works(self, grace: float = _GRACE) -> None:
        """Note that it goes on: now, or since a result is there."""
        self._waits()
        self._places.work(self)
        self._work.enter_context(self._at_work())
        if self._process is not None:
            self._silence = asyncio.get_running_loop().call_later(self._limits.cpu + grace, _kill, self._process)

    def _waits(self) -> None:
        """Note that it can't go on without a result."""
        self._work.close()
        if self._silence is not None:
            self._silence.cancel()

    # ---------------------------------------------------------------- messages

    async def _follow(self, process: subprocess.Process) -> None:
        """Do what the process says, until it says how the script ended."""
        while True:
            message = await self._receive(process)
            if self._end.done():
                return
            if message.started:
                self._works()
            elif message.waits is not None:
                if message.waits == sum(task.done() for task in self._own):
                    self._waits()
                    self._places.rest(self)
            elif message.call is not None:
                self._call(process, message)
            else:
                self._end.set_result(message)

    async def _receive(self, process: subprocess.Process) -> _FromChild:
        """Return the next message; if there is none, or one that is too long, that the script has failed."""
        assert process.stdout is not None
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            size = int.from_bytes(await process.stdout.readexactly(_LENGTH))
            if size <= 2 * self._limits.memory:
                return _message.decode(await process.stdout.readexactly(size))
        return _FromChild(
            failed="MemoryError or TimeoutError: the sandbox was ended: compute less, with smaller values"
        )

    def _call(self, process: subprocess.Process, message: _FromChild) -> None:
        """Begin a call, unless an earlier process did; send its result as soon as it is there."""
        what, end = (message.path, bytes(message.arguments)), self._end
        key = *what, self._begun[what]
        self._begun[what] += 1
        if key not in self._calls:
            self._calls[key] = asyncio.ensure_future(self._answer(*what))

        def send(task: asyncio.Task[Raw]) -> None:
            if end.done() or task.cancelled():
                return
            if (error := task.exception()) is not None:
                end.set_exception(error)
            else:
                _send(process, {"id": message.call, "result": task.result()})

        self._own.append(self._calls[key])
        self._calls[key].add_done_callback(send)

    async def _answer(self, path: str, arguments: bytes) -> Raw:
        """Call a function for the script, and return the result as the interpreter takes it."""
        module, _, function = path.rpartition(".")
        try:
            value = await self._modules[module].functions[function](**msgspec.json.decode(arguments))
            result = Raw(msgspec.json.encode({"return_value": value}))
            self._kept += len(bytes(result))
            if self._kept > self._limits.memory:
                raise RuntimeError(f"All results together have more than {self._limits.memory:,} bytes: read less")
        except (RuntimeError, TypeError) as exc:
            kind = "TypeError" if isinstance(exc, TypeError) else "RuntimeError"
            result = Raw(msgspec.json.encode({"exc_type": kind, "message": str(exc)}))
        self._works()
        return result


def _send(process: subprocess.Process, message: dict[str, object]) -> None:
    """Send a message to a process, unless it has ended."""
    assert process.stdin is not None
    data = msgspec.json.encode(message)
    if not process.stdin.is_closing():
        process.stdin.write(len(data).to_bytes(_LENGTH) + data)


def _kill(process: subprocess.Process) -> None:
    """End a process and those that it has started, if it runs."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()


def _told(text: str, modules: Mapping[str, ScriptModule], missing: Mapping[str, str], limits: ScriptLimits) -> str:
    """Return an error without the names of files that only the interpreter knows, bounded, with what can be done about it."""
    for place in _PLACES:
        text = text.replace(place, "line " if place.endswith(":") else "script")
    text = text.strip()
    text = text if len(text) <= _ERROR else f"{text[: _ERROR // 2]}\n…\n{text[-_ERROR // 2 :]}"
    names = shorten(", ".join(modules), _ERROR) or "no modules of tools"
    advice = [said for sign, said in _ADVICE.items() if sign in text]
    told = [one.format(modules=names, **msgspec.structs.asdict(limits)) for one in advice]
    return "\n".join([text, *_meant(text, modules, missing), *told])


def _meant(error: str, modules: Mapping[str, ScriptModule], missing: Mapping[str, str]) -> list[str]:
    """Return which imports may be meant by the first name of an error that there isn't, as a line; none if none is like it.

    Modules whose servers failed are named instead, each with the reason.
    """
    unknown = list(_MISSING.finditer(error))
    imported = [each["other"] for each in unknown if each["other"] in missing]
    if imported:
        return [f"The server of `{each}` can't be used: {missing[each]}" for each in dict.fromkeys(imported)]
    if not unknown:
        return []
    lines = {
        (name, function): f"from {name} import {function}" for name in modules for function in modules[name].functions
    }
    module, member, other, name = (each and each[:_COMPARED] for each in unknown[0].groups())
    if other is not None:
        near = [f"from {each} import …" for each in get_close_matches(other, modules, _MEANT)]
    else:
        wanted = f"from {module} import {member}" if member else f"import {name}"
        same = [line for (_, function), line in lines.items() if function == (member or name)]
        near = same[:_MEANT] or get_close_matches(wanted, lines.values(), _MEANT)
    return [f"Did you mean {' or '.join(f'`{line}`' for line in near)}?"] if near else []
