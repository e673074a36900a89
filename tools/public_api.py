"""The public API as text, one line per name: `python -m tools.public_api` prints it, `--write` stores it.

The lines are made from the objects that users import, so they contain inherited methods and resolved aliases. Annotations
are written in the same way on every supported Python version.
"""

from __future__ import annotations

import enum
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

#: The modules that users import from.
PUBLIC_MODULES = (
    "gemel",
    "gemel.ask_by_page",
    "gemel.auth",
    "gemel.backends",
    "gemel.code",
    "gemel.policies",
    "gemel.receipts",
    "gemel.sync",
    "gemel.testing",
    "gemel.transports",
)
SNAPSHOT = Path(__file__).resolve().parents[1] / "tests" / "public_api.txt"
PACKAGE = "gemel"


class PublicName(NamedTuple):
    """A name in a public module, or a public member of a class there."""

    path: str
    value: Any
    #: The class it was looked up in; None for names of modules.
    owner: type | None = None


def public_names() -> Iterator[PublicName]:
    """Every public name of every public module, and the public members of classes."""
    exported: set[int] = set()
    tops: list[PublicName] = []
    for module_name in PUBLIC_MODULES:
        module = import_module(module_name)
        own = (name for name, value in vars(module).items() if getattr(value, "__module__", None) == module_name)
        for name in sorted(getattr(module, "__all__", own)):
            value = getattr(module, name)
            if not name.startswith("_") and not isinstance(value, typing.TypeVar | typing.ParamSpec):
                tops.append(PublicName(f"{module_name}.{name}", value))
                exported.add(id(value))
    listed: set[int] = set()
    for top in tops:
        yield top
        if isinstance(top.value, type) and is_ours(top.value) and id(top.value) not in listed:
            listed.add(id(top.value))
            yield from _members(top.path, top.value, exported)


def is_ours(value: Any) -> bool:
    """Whether the package defines it."""
    return (getattr(value, "__module__", None) or "").partition(".")[0] == PACKAGE


def _members(path: str, cls: type, exported: set[int]) -> Iterator[PublicName]:
    """The public members of a class, without those that it inherits from another public class or from outside."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if not is_ours(base) or (base is not cls and id(base) in exported):
            continue
        for name in inspect.get_annotations(base):
            found.setdefault(name, vars(base).get(name))
        found.update(vars(base))
    for name in sorted(found):
        if not name.startswith("_") and name not in ("model_config",):
            yield PublicName(f"{path}.{name}", found[name], cls)


def lines() -> list[str]:
    """One line per public name."""
    return [f"{found.path}: {describe(found)}" for found in public_names()]


def describe(found: PublicName) -> str:
    """What a public name is, with its signature or type."""
    value = found.value
    if isinstance(value, staticmethod | classmethod):
        return f"{type(value).__name__} {_async(value.__func__)}{_signature(value.__func__, bound=isinstance(value, classmethod))}"
    if isinstance(value, property):
        returns = inspect.signature(value.fget).return_annotation if value.fget is not None else inspect.Signature.empty
        return f"property{_annotated(returns)}" + (" (can be set)" if value.fset is not None else "")
    if isinstance(value, cached_property):
        return f"property{_annotated(inspect.signature(value.func).return_annotation)}"
    if isinstance(value, type) and found.owner is None:
        return f"class{_bases(value)}{'' if _has_foreign_constructor(value) else _signature(value)}"
    if inspect.isfunction(value):
        return f"{_async(value)}{'function' if found.owner is None else 'method'}" + _signature(
            value, bound=found.owner is not None
        )
    if found.owner is not None:
        annotations = {
            name: annotation
            for base in reversed(found.owner.__mro__)
            if is_ours(base)
            for name, annotation in inspect.get_annotations(base).items()
        }
        name = found.path.rpartition(".")[2]
        if isinstance(value, enum.Enum):
            return f"member = {value.value!r}"
        return "attribute" + (_annotated(annotations[name]) if name in annotations else "")
    if callable(value) and is_ours(type(value)):
        return f"callable {type(value).__name__}{_signature(value)}"
    return f"alias {annotation_text(value)}" if typing.get_args(value) else "value"


def _has_foreign_constructor(cls: type) -> bool:
    """Exceptions, enums and TypedDicts without a constructor of their own: what `inspect` says of them depends on the version."""
    return issubclass(cls, BaseException | dict | enum.Enum) and not any(
        "__init__" in vars(base) for base in cls.__mro__ if is_ours(base)
    )


def _async(function: Any) -> str:
    if inspect.isasyncgenfunction(function):
        return "async generator "
    return "async " if inspect.iscoroutinefunction(function) else ""


def _bases(cls: type) -> str:
    """The next ancestors that a user can name: public ones of ours, and foreign ones."""
    names = []
    for base in cls.__mro__[1:]:
        modules = [import_module(name) for name in PUBLIC_MODULES]
        exporting = [module for module in modules if base.__name__ in getattr(module, "__all__", ())]
        is_public = any(getattr(module, base.__name__) is base for module in exporting)
        if is_public or (not is_ours(base) and base not in (object, typing.Generic)):
            names.append(base.__name__)
            break
    return f"({', '.join(names)})" if names else ""


def _signature(value: Any, *, bound: bool = False) -> str:
    try:
        signature = inspect.signature(value)
    except (ValueError, TypeError, NameError):  # msgspec raises NameError where an annotation cannot be resolved
        return " (no signature)"
    parameters = list(signature.parameters.values())[bound:]
    parts: list[str] = []
    star = False
    for i, one in enumerate(parameters):
        if one.kind is one.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        star = star or one.kind is one.VAR_POSITIONAL
        prefix = "*" * (one.kind is one.VAR_POSITIONAL) + "**" * (one.kind is one.VAR_KEYWORD)
        default = "" if one.default is one.empty else f" = {_default(one.default)}"
        parts.append(f"{prefix}{one.name}{_annotated(one.annotation)}{default}")
        if one.kind is one.POSITIONAL_ONLY and (i + 1 == len(parameters) or parameters[i + 1].kind is not one.kind):
            parts.append("/")
    returns = "" if isinstance(value, type) else _annotated(signature.return_annotation, " -> ")
    return f"({', '.join(parts)}){returns}"


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    if isinstance(value, tuple | frozenset | list | dict) and not value:
        return f"{type(value).__name__}()"
    return "..."


def _annotated(annotation: Any, before: str = ": ") -> str:
    return "" if annotation is inspect.Signature.empty else before + annotation_text(annotation)


def annotation_text(annotation: Any) -> str:
    """An annotation as it is written in source, without module names."""
    if annotation is None or annotation is type(None):
        return "None"
    if annotation is ...:
        return "..."
    if isinstance(annotation, str):
        return re.sub(r"\b(?:typing|collections\.abc|\w+(?:\.\w+)*)\.(?=\w)", "", annotation.strip("'\""))
    if isinstance(annotation, typing.ForwardRef):
        return annotation_text(annotation.__forward_arg__)
    if isinstance(annotation, list):  # the parameters of a Callable
        return f"[{', '.join(map(annotation_text, annotation))}]"
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Union or origin is types.UnionType:
        return " | ".join(sorted(map(annotation_text, arguments), key=lambda text: (text == "None", text)))
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin is typing.Annotated:
        return annotation_text(arguments[0])
    if origin is not None and arguments:
        return f"{annotation_text(origin)}[{', '.join(map(annotation_text, arguments))}]"
    name = getattr(annotation, "__name__", None) or getattr(annotation, "_name", None)
    return str(name) if name else re.sub(r"[\w.]+\.(?=\w)", "", repr(annotation))


def main(words: list[str]) -> int:
    """Print the lines, or write them with `--write`."""
    text = "".join(f"{line}\n" for line in lines())
    if words == ["--write"]:
        SNAPSHOT.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
