"""Prints what packages export, as JSON; standard library only, for the environments of the peers.

python exported.py PACKAGE… [-- MODULE:CLASS…]: for each public module its names, those of `__all__` or else the classes and
functions that it defines, and whether it has an `__all__`; null for a module that needs what isn't installed. Then the public
members of classes.
"""

import contextlib
import importlib
import io
import json
import pkgutil
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any


def modules(name: str) -> Iterator[tuple[str, Any]]:
    """The public modules of a package, each with its module object, or None if it can't be imported."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            module = importlib.import_module(name)
    except (Exception, SystemExit):
        yield name, None
        return
    yield name, module
    for info in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}."):
        last = info.name.rpartition(".")[2]
        if not last.startswith("_"):
            yield from modules(info.name)


def names(module: Any) -> list[str]:
    """The names that a module exports."""
    if hasattr(module, "__all__"):
        found = module.__all__
    else:
        found = [
            name
            for name, value in vars(module).items()
            if isinstance(value, (type, types.FunctionType)) and value.__module__ == module.__name__
        ]
    return sorted({name for name in found if name.isidentifier() and not name.startswith("_")})


def main() -> None:
    """Print the exports of the packages, and the members of the classes."""
    warnings.simplefilter("ignore")
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    found: dict[str, Any] = {}
    for package in words[:split]:
        for name, module in modules(package):
            found[name] = None if module is None else {"all": hasattr(module, "__all__"), "names": names(module)}
    members = {}
    for word in words[split + 1 :]:
        module_name, _, class_name = word.partition(":")
        kind = getattr(importlib.import_module(module_name), class_name)
        inherited = {name for base in kind.__mro__ if "pydantic" in base.__module__ for name in vars(base)}
        members[class_name] = sorted(name for name in dir(kind) if not name.startswith("_") and name not in inherited)
    print(json.dumps({"modules": found, "members": members}))


if __name__ == "__main__":
    main()
