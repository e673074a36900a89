"""The process of one script: runs it in the interpreter, and asks the process at the other end for what tools do.

It is started by path and imports nothing of Gemel; `sandbox.py` is at the other end. Whatever the interpreter's client does with
a script's values, which it may take any time for, it does here, where it can be ended.

A message is JSON behind its length in four bytes. The first one that comes is the script with its modules and limits; those that
follow are results of calls. What goes out: calls, whether the script only waits for them, and how it ended.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from itertools import chain
from typing import Any, BinaryIO, NoReturn

import msgspec
import pydantic_monty as monty

LENGTH = struct.Struct(">I")
#: Each call needs up to so many turns between this process and the interpreter, names and modules besides.
_TURNS_OF_CALL, _TURNS = 4, 200
#: What a call may raise in a script.
_ERRORS = {"MemoryError": MemoryError, "RuntimeError": RuntimeError, "TypeError": TypeError}


class Pipe:
    """The two pipes to the other process."""

    def __init__(self, source: BinaryIO, target: BinaryIO) -> None:
        self._source = source
        self._target = target

    def receive(self) -> Any:
        """Return the next message. Ends the process when there is nobody any more."""
        head = self._source.read(LENGTH.size)
        if len(head) < LENGTH.size:
            os._exit(0)
        return msgspec.json.decode(self._source.read(LENGTH.unpack(head)[0]))

    def send(self, **message: object) -> None:
        """Send a message."""
        data = msgspec.json.encode(message)
        self._target.write(LENGTH.pack(len(data)) + data)
        self._target.flush()


class ScriptInProcess:
    """The script that is running, with its calls."""

    def __init__(self, pipe: Pipe, job: dict[str, Any]) -> None:
        self._pipe = pipe
        self._job = job
        self._begun = self._answered = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        #: Whether the script waits for the call that goes out next.
        self._waits_for_next = False

    def answer(self, message: dict[str, Any]) -> None:
        """Take the result of a call."""
        self._answered += 1
        self._answers.pop(message["id"]).set_result(message)

    def function(self, module: str, name: str) -> Callable[..., Awaitable[object]]:
        """Return a tool as a function."""

        async def call(*arguments: object, **named: object) -> object:
            if arguments:
                raise TypeError("Tools take keyword arguments only")
            if self._begun >= self._job["calls"]:
                raise RuntimeError(f"A script may call {self._job['calls']} tools")
            if extent(named, {}) > self._job["memory"]:
                raise MemoryError(f"What the tool is given {self.too_large()}")
            try:
                given = msgspec.Raw(msgspec.json.encode(named, enc_hook=plain))
            except (TypeError, ValueError, RecursionError) as exc:
                raise TypeError(f"{module}.{name} can't be given these arguments: {exc}") from None
            self._begun += 1
            number = self._begun
            self._answers[number] = asyncio.get_running_loop().create_future()
            self._pipe.send(call=number, module=module, function=name, arguments=given)
            if self._waits_for_next:
                self._waits_for_next = False
                self._pipe.send(waits=self._answered)
            answer = await self._answers[number]
            if "error" in answer:
                raise _ERRORS[answer["kind"]](answer["error"])
            return answer["value"]

        return call

    def too_large(self) -> str:
        """Say what is wrong with a value."""
        return f"has more than {self._job['memory']} bytes, with each part counted as often as it occurs"

    async def run(self) -> dict[str, object]:
        """Run it, and return how it ended, as the last message."""
        job = self._job
        printed = monty.CollectString(max_bytes=job["printed"])
        modules = {
            name: monty.ExternalModule({one: self.function(name, one) for one in functions}, stubs=stubs)
            for name, (functions, stubs) in job["modules"].items()
        }
        limits: monty.ResourceLimits = {
            "max_feed_duration_secs": float(job["cpu"]),
            "max_memory": job["memory"],
            "max_recursion_depth": job["recursion"],
            "max_suspensions": _TURNS + _TURNS_OF_CALL * job["calls"],
            "max_total_sleep_secs": 0.0,
        }
        policy: monty.OSPolicy = {"datetime": "call_host", "sleep": "call_host", "random_start": "call_host"}
        try:
            async with (
                monty.AsyncMonty(max_processes=1) as pool,
                pool.checkout(
                    external_modules=modules,
                    limits=limits,
                    type_check=True,
                    type_check_format="concise",
                    os_policy=policy,
                ) as session,
            ):
                self._pipe.send(started=True)
                at = await session.feed_start(job["code"], print_callback=printed, os=refuse)
                while not isinstance(at, monty.MontyComplete):
                    if isinstance(at, monty.AsyncFutureSnapshot):
                        self._pipe.send(waits=self._answered)
                    elif isinstance(at, monty.AsyncFunctionSnapshot) and not at.is_os_function:
                        self._waits_for_next = at.allow_eager_await
                    at = await at.resume_auto()
                value = at.output
        except monty.MontyTypingError as exc:
            return {"refused": exc.display()}
        except (monty.MontySyntaxError, monty.MontyRuntimeError) as exc:
            return {"failed": exc.display()}
        except (monty.MontyError, OSError) as exc:
            return {"failed": str(exc)}
        if extent(value, {}) > job["memory"]:
            return {"unsent": self.too_large()}
        try:
            text = msgspec.Raw(msgspec.json.encode(value, enc_hook=plain))
        except (TypeError, ValueError, RecursionError) as exc:
            return {"unsent": "is nested too deep" if isinstance(exc, RecursionError) else f"is not JSON: {exc}"}
        return {"value": text, "printed": printed.output}


def refuse(*, name: str, args: object, kwargs: object, is_async: bool, **_more: object) -> NoReturn:
    """Answer what a script asks of its system."""
    raise RuntimeError(f"{name}: scripts have no clock, no randomness, no sleep, no files and no environment")


def plain(value: object) -> object:
    """Return what JSON has no form for: an object of a class of the script as its attributes, all else as text."""
    attributes = getattr(value, "attributes", None)
    return attributes if isinstance(attributes, Mapping) else str(value)


def extent(value: object, known: dict[int, tuple[object, int]]) -> int:
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
        known[id(value)] = value, 2 + sum(1 + extent(part, known) for part in parts)
    return known[id(value)][1]


async def main(pipe: Pipe) -> None:
    """Run the script that comes, and answer its calls as the results come."""
    script = ScriptInProcess(pipe, pipe.receive())
    loop = asyncio.get_running_loop()

    def listen() -> None:
        while True:
            loop.call_soon_threadsafe(script.answer, pipe.receive())

    threading.Thread(target=listen, daemon=True).start()
    pipe.send(**await script.run())


if __name__ == "__main__":
    #: What is printed by accident goes nowhere: the pipes are for messages.
    own = Pipe(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    asyncio.run(main(own))
    sys.stdout.flush()
    os._exit(0)
