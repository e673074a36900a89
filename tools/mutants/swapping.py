"""Replaces the code of functions that are defined already, wherever they are referred to."""

from __future__ import annotations

import gc
import inspect
from types import CodeType, FunctionType


def functions_of(file: str) -> list[FunctionType]:
    """All functions of a file that is imported, with those in classes and closures."""
    gc.unfreeze()  # what is frozen is not listed
    functions = [
        each for each in gc.get_objects() if isinstance(each, FunctionType) and each.__code__.co_filename == file
    ]
    gc.freeze()
    return functions


def changed_functions(original: str, mutated: str, file: str) -> dict[CodeType, CodeType]:
    """The new code of each function in which two texts of a file differ; empty if they differ outside of functions, too."""
    changes: dict[CodeType, CodeType] = {}
    # dont_inherit: else they were compiled as if they had this file's imports from __future__.
    old, new = (compile(text, file, "exec", dont_inherit=True) for text in (original, mutated))
    return changes if _compare(old, new, changes) else {}


def _compare(old: CodeType, new: CodeType, changes: dict[CodeType, CodeType]) -> bool:
    """Note the functions that differ. Returns False if other code differs, or a function uses other variables around it."""
    inner = [[each for each in code.co_consts if isinstance(each, CodeType)] for code in (old, new)]
    if old.co_flags & inspect.CO_OPTIMIZED:  # a function
        if old.co_freevars != new.co_freevars:
            return False
        if old != new:
            changes[old] = new
        if len(inner[0]) != len(inner[1]):
            return True
    elif old.co_code != new.co_code or old.co_names != new.co_names or _values(old) != _values(new):
        return False
    return all(_compare(before, after, changes) for before, after in zip(*inner, strict=True))


def _values(code: CodeType) -> list[str]:
    return [repr(each) for each in code.co_consts if not isinstance(each, CodeType)]


def swap(functions: list[FunctionType], changes: dict[CodeType, CodeType]) -> None:
    """Replace the code of functions."""
    for function in functions:
        function.__code__ = changes.get(function.__code__, function.__code__)
