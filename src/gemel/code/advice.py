"""What a model is told about an error of its script: the error, and what can be done about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from gemel.errors import shorten

Advise: TypeAlias = Callable[[str], Iterable[str]]

#: The longest text of an error, in characters.
_ERROR = 4000
#: Where the interpreter says that code is, in errors of types and of programs, and what is told instead.
_PLACES = {"main.py:": "line ", "main.py": "script", "<python-input-0>": "script"}
#: A type whose keys an error is about, and a key in its definition.
_UNKNOWN_KEY = re.compile(r'Unknown key "[^"]*" for TypedDict `(\w+)`')
_FIELD = re.compile(r"^    (\w+): ", re.MULTILINE)
_GATHER = (
    "Call several tools at a time by `await asyncio.gather(one(…), other(…))`, those of a list by `gather(*calls)`"
)
_DICTIONARY = (
    "What tools return are dictionaries: write `one['key']`, and a lambda for a method that isn't called at once"
)
_FUNCTIONS = "This Python has no yield, async for, async with, del, decorators of methods, and classes with bases: write functions"
#: What a model can do about an error that has this in it.
_ADVICE = {
    "[unresolved-import]": (
        "Import tools, as search_tools names them, of {modules}, and asyncio, collections, datetime, itertools, json, math, re"
    ),
    "[unresolved-reference]": (
        "Import each tool: `from module import function`, of {modules}. A tool that fails raises RuntimeError. There are no "
        "files, and not all functions of Python"
    ),
    "[too-many-positional-arguments]": "Write the name of each argument: `await function(name=…)`",
    "symbol names after import": "A name that Python needs itself has a `_` behind it: `from module import import_`",
    "CoroutineType[": "Write `await` before each call",
    "Dict` has no attribute": _DICTIONARY,
    "'dict' object has no attribute": _DICTIONARY,
    "is not an iterator": "Write `next(iter(…))`: expressions with `for`, and functions such as `map`, give lists",
    "Dict.items()": _DICTIONARY,
    "found `date": "Dates and times are texts: write `.isoformat()`",
    "syntax parser does not yet": _FUNCTIONS,
    "[invalid-syntax] `async ": _FUNCTIONS,
    "JSON object must be str": "A text that is a JSON object or array has been read: use it without json.loads",
    "Module `asyncio` has no": _GATHER,
    "function `gather` matches": _GATHER,
    "feed time limit": "It may compute for {cpu:g} s: compute less, or in several scripts",
    "worker killed": "It may compute for {cpu:g} s: compute less, or in several scripts",
    "memory limit": "Its values may have {memory:,} bytes: keep less of the results of tools at a time",
    "suspension limit": "It may call {calls} tools: do the rest in another script",
}


def told(error: str, stubs: Mapping[str, str], limits: Mapping[str, object], advise: Advise) -> str:
    """Return an error without the names of files that only the interpreter knows, bounded, with what can be done about it.

    Args:
        error: The error, of the type checker or of the script.
        stubs: The modules that the script may import: their texts by name.
        limits: The bounds of the script by name.
        advise: Returns further lines about the error.
    """
    for place, name in _PLACES.items():
        error = error.replace(place, name)
    error = error.strip()
    modules = shorten(", ".join(stubs), _ERROR) or "no modules of tools"
    known = (one.format(modules=modules, **limits) for sign, one in _ADVICE.items() if sign in error)
    lines = dict.fromkeys([*advise(error), *_keys(error, "\n".join(stubs.values())), *known])
    error = error if len(error) <= _ERROR else f"{error[: _ERROR // 2]}\n…\n{error[-_ERROR // 2 :]}"
    return "\n".join([error, *lines])


def _keys(error: str, stubs: str) -> Iterator[str]:
    """Return the keys of the types that an error says have no such key."""
    for name in dict.fromkeys(_UNKNOWN_KEY.findall(error)):
        if defined := re.search(rf"^class {name}\(TypedDict\):\n((?:(?:    .*)?\n)*)", stubs, re.MULTILINE):
            yield f"The keys of `{name}` are {', '.join(_FIELD.findall(defined[1]))}"
