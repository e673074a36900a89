"""The process of one script: runs it in the interpreter, and asks the process at the other end for what tools do.

It is started by path and imports nothing of Gemel; `sandbox.py` is at the other end. Whatever the interpreter's client does with
a script's values, which it may take any time for, it does here, where it can be ended.

A message is a line of JSON. The first one that comes is the script with its modules and limits. What goes out: that the
interpreter has started, calls, the calls for whose results the script waits, which are answered by those that there are, and
how it ended.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, BinaryIO, NoReturn

import msgspec
import pydantic_monty as monty

#: Each call needs up to so many turns between this process and the interpreter, names and modules besides.
_TURNS_OF_CALL, _TURNS = 4, 200
_PLACE = re.compile(r"main\.py:(\d+):(\d+): ")
#: Names that the interpreter has, and its type checker doesn't know.
_KNOWN = "map|filter|format|getattr|hasattr|setattr|ImportError|ModuleNotFoundError|FileNotFoundError|PermissionError"
#: What the type checker says of what may be right nevertheless. Types of results of tools have names that end in "Dict".
_UNCERTAIN = re.compile(
    "|".join(
        (
            # a dictionary, or a text, of a variable, for a parameter whose type is narrower
            r"(?:Expected|declared type) `[^`]*(?:Dict|Literal\[)[^`]*`.* `(?:[^`]*\bdict\[[^`]*|(?:list\[)*(?:str|int)\]*)`$",
            # a list or a dictionary of a variable, whose items are of one of the types that are expected
            r"xpected `(list|dict)\[[^`]*\b(?:(\w+)\b[^`]*`, found `\1\[(?:\w+, )?\2|float\b[^`]*`, found `\1\[(?:\w+, )?int)\]`",
            # a result of a tool that the script treats as any dictionary
            r"xpected `[^`]*\bdict\[[^`]*`, found `[^`]*Dict\b|of type `[^`]*Dict\b[^`]*` is not assignable to `[^`]*\bdict\[",
            r"Invalid assignment to key|Cannot (?:pop|delete) required|only be subscripted with a string literal key",
            r"\[unsupported-operator\].*(?:\bdict\[|Dict\b|\bUnknown\b)",
            # a value whose type it takes from all values of a dictionary or list
            r"in union `|subscripted object has type `[^`]* \| ",
            # a value that may be None
            r"(?<!xpected )(?<!to )(?<!type )`[^`]*(?:\| None|None \|)[^`]*`|of type `(?:[^`]*\| )?None(?:\]*`|\s)",
            # functions of Python with several signatures, for which it gives no reason
            r"\[no-matching-overload\](?!.* `gather`)",
            rf"Name `(?:{_KNOWN})` used when not defined",
            r"`return` statement outside of a function",
        )
    )
)
#: A key that the type of a dictionary has not.
_KEY = re.compile(r'Unknown key "([^"]*)"')
#: A type of a module, as its stubs define it.
_TYPE = re.compile(r"^(?:class )?(\w+)(?:\(TypedDict|: TypeAlias)", re.MULTILINE)
#: Calls that read the clock or wait, and what is told about them.
_CLOCK = re.compile(r"(?:\w+\.)*(?:(?:datetime|date)\.(?:now|utcnow|today)|time\.(?:time|sleep)|asyncio\.sleep)")
_NO_SYSTEM = "scripts have no clock, no randomness, no sleep, no files and no environment: write what it needs into it"
#: Methods that can only be called.
_METHODS = frozenset((*dir(dict), *dir(list), *dir(str)))
_results = msgspec.json.Decoder(dict[int, Any])


class ScriptInProcess:
    """The script that is running, with its calls.

    Args:
        source: Where messages come from.
        target: Where they go.
    """

    def __init__(self, source: BinaryIO, target: BinaryIO) -> None:
        self._source = source
        self._target = target
        self._job: dict[str, Any] = msgspec.json.decode(self._receive())
        self._paths: set[str] = set()
        self._begun = self._received = self._failed = 0

    def _receive(self) -> bytes:
        """Return the next message. Ends the process when there is nobody any more."""
        return self._source.readline() or os._exit(0)

    def send(self, **message: object) -> None:
        """Send a message."""
        self._target.write(msgspec.json.encode(message) + b"\n")
        self._target.flush()

    def run(self) -> dict[str, object]:
        """Run it, and return how it ended, as the last message."""
        job = self._job
        if missing := unsupported(job["code"]):
            return {"refused": missing}
        modules: dict[str, monty.ExternalModule] = {}
        for name, (functions, stubs) in job["modules"].items():
            members: dict[str, object] = dict.fromkeys(_TYPE.findall(stubs), dict)
            members |= {one: placeholder(f"{name}.{one}") for one in functions}
            self._paths.update(f"{name}.{one}" for one in functions)
            modules[name] = monty.ExternalModule(members, stubs=stubs)
        limits: monty.ResourceLimits = {
            "max_feed_duration_secs": float(job["cpu"]),
            "max_memory": job["memory"],
            "max_recursion_depth": job["recursion"],
            "max_suspensions": _TURNS + _TURNS_OF_CALL * job["calls"],
            "max_total_sleep_secs": 0.0,
        }
        policy: monty.OSPolicy = {"datetime": "call_host", "sleep": "call_host", "random_start": "call_host"}
        try:
            with (
                monty.Monty(max_processes=1) as pool,
                pool.checkout(
                    external_modules=modules,
                    limits=limits,
                    type_check=True,
                    type_check_format="concise",
                    os_policy=policy,
                ) as session,
            ):
                self.send(started=True)
                try:
                    return self._feed(session, check=True)
                except monty.MontyTypingError as exc:
                    if errors := certain(exc.display(), job["code"]):
                        return {"refused": errors}
                    return self._feed(session, check=False)
        except (monty.MontySyntaxError, monty.MontyRuntimeError) as exc:
            text = exc.display()
            if not self._begun and (isinstance(exc, monty.MontySyntaxError) or "The monty syntax parser" in text):
                return {"refused": text}
            printed = f"It printed more than {job['printed']} bytes: print or return only what is needed"
            return {"failed": printed if text.endswith(f"> {job['printed']} bytes") else text}
        except (monty.MontyError, OSError, TypeError) as exc:
            return {"failed": str(exc)}

    def _feed(self, session: monty.MontySession, *, check: bool) -> dict[str, object]:
        """Run it, and return how it ended. Raises MontyTypingError, before anything has run, if types are checked."""
        printed = monty.CollectString(max_bytes=self._job["printed"])
        at = session.feed_start(self._job["code"], print_callback=printed, os=refuse, skip_type_check=not check)
        while not isinstance(at, monty.MontyComplete):
            if isinstance(at, monty.FutureSnapshot):
                at = at.resume(self._wait(at.pending_call_ids))
            elif isinstance(at, monty.FunctionSnapshot) and at.function_name in self._paths and not at.is_os_function:
                at = at.resume(self._call(at))
            else:
                at = at.resume_auto()
        if self._begun > self._received and not self._failed:  # a failure ends asyncio.gather, which leaves the others
            return {"failed": "Not all calls were awaited: write `await` before each call"}
        return {"value": self._as_json("Its value", at.output), "printed": printed.output}

    def _call(self, at: monty.FunctionSnapshot) -> monty.ExternalResult:
        """Begin a call of a tool."""
        name, most = at.function_name, self._job["calls"]
        try:
            if at.args:
                raise TypeError(f"{name} takes keyword arguments only: write the name of each")
            if self._begun >= most:
                raise RuntimeError(f"A script may call {most} tools: do the rest in another one")
            self.send(call=at.call_id, path=name, arguments=self._as_json(f"What {name} is given", at.kwargs))
        except (RuntimeError, TypeError) as exc:
            return {"exc_type": "TypeError" if isinstance(exc, TypeError) else "RuntimeError", "message": str(exc)}
        self._begun += 1
        return {"future": ...}

    def _wait(self, pending: Sequence[int]) -> dict[int, monty.ExternalSettledResult]:
        """Return the results of some of the calls that the script waits for, one at least."""
        self.send(waits=pending)
        results = _results.decode(self._receive())
        self._received += len(results)
        self._failed += sum("return_value" not in result for result in results.values())
        return results

    def _as_json(self, what: str, value: object) -> msgspec.Raw:
        """Return a value of the script as JSON. Raises TypeError with what is wrong with it."""
        most = self._job["memory"]
        if extent(value, {}) > most:
            raise TypeError(
                f"{what} has more than {most} bytes, with each part counted as often as it occurs: use less of it"
            )
        try:
            return msgspec.Raw(msgspec.json.encode(value, enc_hook=plain))
        except RecursionError:
            raise TypeError(f"{what} is nested too deep: use a list without levels") from None
        except (TypeError, ValueError) as exc:
            advice = "use texts, numbers, lists, and dictionaries whose keys are texts"
            raise TypeError(f"{what} is not JSON: {exc}: {advice}") from None


def placeholder(name: str) -> Callable[[], None]:
    """Return a function that only has a name, by which the interpreter tells that it is called."""

    def function() -> None: ...

    function.__name__ = function.__qualname__ = name
    return function


def unsupported(code: str) -> str:
    """Return the calls that the interpreter refuses and its type checker doesn't, with what to write instead, as lines.

    A script that gets to one may have called tools by then.
    """
    try:
        calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""  # which the type checker tells
    told = [f"line {call.lineno}:{call.col_offset + 1}: {text}" for call in calls if (text := instead(call))]
    return "\n".join(told)


def instead(call: ast.Call) -> str:
    """Return what to write instead of a call; empty if nothing is known to be wrong with it."""
    parts, called = list[str](), call.func
    while isinstance(called, ast.Attribute):
        parts.append(called.attr)
        called = called.value
    name = ".".join([called.id if isinstance(called, ast.Name) else "", *reversed(parts)])
    options = {one.arg: one.value for one in call.keywords}
    first = call.args[0] if call.args else None
    last = name.rpartition(".")[2]
    method = (
        options.get("key") if last in ("sorted", "sort", "max", "min") else first if last in ("map", "filter") else None
    )
    if "return_exceptions" in options:
        return "asyncio.gather has no return_exceptions: catch RuntimeError in an `async def` around each call"
    if name == "json.dumps" and "default" in options:
        return "json.dumps has no default: write texts in place of other values"
    if name == "re.sub" and any(isinstance(one, ast.Lambda) for one in call.args):
        return "re.sub takes no function: use re.finditer"
    if name == "next" and isinstance(first, ast.GeneratorExp):
        return "An expression with `for` is a list: write `next(iter(one for one in …), None)`"
    if isinstance(method, ast.Attribute) and method.attr in _METHODS:
        return f"A method is no value: write `lambda one: ….{method.attr}(one)`"
    return f"{name}: {_NO_SYSTEM}" if _CLOCK.fullmatch(name) else ""


def certain(diagnostics: str, code: str) -> str:
    """Return what the type checker says, without what may be right nevertheless, and each line once.

    A dictionary in a variable has no TypedDict as its type, whatever it holds, and `**arguments` may be any of the parameters:
    what they hold is left to the server. In a dictionary that is written in place the checker tells the wrong member as well.
    """
    lines, found = code.splitlines(), list[str]()
    for one in dict.fromkeys(diagnostics.strip().splitlines()):
        place, key = _PLACE.match(one), _KEY.search(one)
        line, column = (int(place[1]), int(place[2])) if place else (0, 0)
        is_unpacked = 0 < line <= len(lines) and lines[line - 1].startswith("**", column - 1)
        is_added = key is not None and re.search(rf"\[(['\"]){re.escape(key[1])}\1\] *=(?!=)", code)
        if not (is_added or _UNCERTAIN.search(one) or (is_unpacked and "[invalid-argument-type]" in one)):
            found.append(one)
    return "\n".join([one for one in found if "[invalid-syntax]" in one] or found)


def refuse(*, name: str, args: object, kwargs: object, is_async: bool, **_more: object) -> NoReturn:
    """Answer what a script asks of its system."""
    raise RuntimeError(f"{name}: {_NO_SYSTEM}")


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


if __name__ == "__main__":
    #: What is printed by accident goes nowhere: the pipes are for messages.
    script = ScriptInProcess(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    script.send(**script.run())
    os._exit(0)
