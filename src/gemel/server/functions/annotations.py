"""Type annotations: evaluating them when they are strings, taking `Annotated` and unions apart, naming them in messages.

Knows Python's typing rules, nothing of JSON.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeGuard

import msgspec

from gemel.errors import DefinitionError, shorten

#: How many frames up the stack are searched for a name in a string annotation.
_FRAMES = 32

#: The class of `Annotated[…]`: `typing.get_origin` is slow, and servers register thousands of parameters.
_ANNOTATED = type(typing.cast(Any, typing.Annotated[int, ""]))

#: Attributes by which pydantic marks models, dataclasses, TypedDicts and types with a hook.
_PYDANTIC_MARKS = ("__get_pydantic_core_schema__", "__pydantic_core_schema__", "__pydantic_config__")


class Place(NamedTuple):
    """The location of a function, for messages to its author."""

    name: str
    file: str
    line: int

    def mistake(self, what: str, parameter: str | None = None) -> DefinitionError:
        """The error for the author: one line with function, file, line, parameter and what to change."""
        about = f"parameter `{parameter}`: " if parameter else ""
        return DefinitionError(f"{self.name}() at {self.file}:{self.line}: {about}{what}")


def place_of(function: Any, name: str) -> Place:
    """The location of a function; callables without Python code have line 0."""
    code = getattr(function, "__code__", None)
    if code is None:
        return Place(name, getattr(sys.modules.get(function.__module__ or ""), "__file__", None) or "<built-in>", 0)
    return Place(name, code.co_filename, code.co_firstlineno)


def resolve(annotation: Any, function: Any) -> Any:
    """Evaluate the strings in an annotation with the names that the function can see.

    Names come from the function's module, its closure and type parameters, then from the functions of the same module
    that are running now, so that classes defined beside a local function are found. Raises NameError, or whatever else
    evaluating raises.
    """
    if is_class(annotation) or _is_resolved(annotation):
        return annotation
    names = getattr(function, "__globals__", {})
    try:
        return _evaluate(annotation, names, _own_names(function))
    except NameError:
        return _evaluate(annotation, names, {**_running_names(names), **_own_names(function)})


def _is_resolved(annotation: Any) -> bool:
    """Whether it is a Literal, or an alias of classes alone: `list[int]`, `str | None`."""
    arguments = getattr(annotation, "__args__", ())
    is_literal = getattr(annotation, "__origin__", None) is typing.Literal
    return bool(arguments) and (is_literal or all(map(is_class, arguments)))


def _evaluate(annotation: Any, module: dict[str, Any], local: dict[str, Any]) -> Any:
    holder = types.SimpleNamespace(__annotations__={"annotation": annotation})
    return typing.get_type_hints(holder, module, local, include_extras=True)["annotation"]


def _own_names(function: Any) -> dict[str, Any]:
    names = {parameter.__name__: parameter for parameter in getattr(function, "__type_params__", ())}
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    for name, cell in zip(code.co_freevars if code else (), cells or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # assigned only after the function is defined
            continue
    return names


def _running_names(module: dict[str, Any]) -> dict[str, Any]:
    namespaces: list[Mapping[str, Any]] = []
    frame = inspect.currentframe()
    for _ in range(_FRAMES):
        if frame is None:
            break
        if frame.f_globals is module and frame.f_locals is not module:
            namespaces.append(frame.f_locals)
        frame = frame.f_back
    return {name: value for names in reversed(namespaces) for name, value in names.items()}


def is_class(annotation: Any) -> TypeGuard[type]:
    """Whether it is a class and not an alias such as `list[int]`."""
    return type(annotation) is type or (isinstance(annotation, type) and typing.get_origin(annotation) is None)


def is_annotated(annotation: Any) -> bool:
    """Whether it is `Annotated[...]`."""
    return isinstance(annotation, _ANNOTATED)


def metadata_of(annotation: Any) -> tuple[Any, ...]:
    """The metadata of `Annotated`; empty for other annotations."""
    return annotation.__metadata__ if is_annotated(annotation) else ()


def bare(annotation: Any) -> Any:
    """The type without its `Annotated`."""
    return annotation.__origin__ if is_annotated(annotation) else annotation


def described_by(annotation: Any) -> str | None:
    """The description in `Annotated`: a string, `Doc("...")`, `msgspec.Meta(description=)` or pydantic's Field."""
    for item in reversed(metadata_of(annotation)):
        text = item if isinstance(item, str) else getattr(item, "description", None)
        text = text or getattr(item, "documentation", None)
        if isinstance(text, str):
            return inspect.cleandoc(text)
    return None


def members(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, without their `Annotated`; the type itself if it isn't a union."""
    plain = bare(annotation)
    if not is_class(plain) and typing.get_origin(plain) in (typing.Union, types.UnionType):
        return tuple(inner for member in typing.get_args(plain) for inner in members(member))
    return (plain,)


def shown(annotation: Any) -> str:
    """The annotation as an author would write it, without modules and metadata, shortened, for messages."""
    return shorten(_shown(annotation))


def _shown(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    if annotation is None or annotation is type(None):
        return "None"
    if is_class(annotation):
        return annotation.__qualname__.rpartition("<locals>.")[2]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if is_annotated(annotation):
        return _shown(bare(annotation))
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(_shown, arguments))
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if isinstance(annotation, list):
        return f"[{', '.join(map(_shown, annotation))}]"
    if origin is not None and arguments:
        return f"{_shown(origin)}[{', '.join(map(_shown, arguments))}]"
    return "..." if annotation is ... else repr(annotation).removeprefix("typing.")


def is_field_info(value: Any) -> bool:
    """Whether it is the result of pydantic's `Field(...)`, without importing pydantic."""
    return type(value).__name__ == "FieldInfo" and _is_pydantic(type(value))


def _is_pydantic(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in ("pydantic", "pydantic_core", "annotated_types")


class Traits(NamedTuple):
    """Whose types an annotation contains, at any depth."""

    pydantic: bool
    struct: bool
    msgspec_limits: bool


def traits_of(annotation: Any) -> Traits:
    """Whose types an annotation contains, in the fields of nested classes too."""
    pydantic = struct = limits = False
    for part in _parts(annotation, set()):
        if isinstance(part, msgspec.Meta):
            limits = limits or _has_limits(part)
        elif isinstance(part, type) and issubclass(part, msgspec.Struct):
            struct = True
        elif _is_pydantic(type(part)) or any(hasattr(part, mark) for mark in _PYDANTIC_MARKS):
            pydantic = True
    return Traits(pydantic, struct, limits)


def _has_limits(meta: msgspec.Meta) -> bool:
    limits = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")
    return any(getattr(meta, name) is not None for name in limits)


def _parts(annotation: Any, seen: set[int]) -> Iterator[Any]:
    """The annotation and its parts except built-in types, depth first: type arguments, metadata, the fields of classes."""
    if id(annotation) in seen:
        return
    seen.add(id(annotation))
    if type(annotation) is type and annotation.__module__ == "builtins":  # str, dict and the like have no parts
        return
    yield annotation
    yield from metadata_of(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return
    inner = list(typing.get_args(annotation)[:1] if is_annotated(annotation) else typing.get_args(annotation))
    inner += [item for item in (typing.get_origin(annotation),) if isinstance(item, type)]
    inner += [getattr(annotation, name) for name in ("__value__", "__supertype__") if hasattr(annotation, name)]
    if has_fields(annotation):
        inner += class_hints(annotation).values()
    for item in inner:
        yield from _parts(item, seen)


def has_fields(annotation: Any) -> TypeGuard[type]:
    """Whether it is a class with annotated fields: dataclass, TypedDict, NamedTuple, attrs, msgspec Struct."""
    if not isinstance(annotation, type):
        return False
    marks = ("__dataclass_fields__", "__attrs_attrs__", "__struct_fields__", "__total__", "_fields")
    return any(hasattr(annotation, mark) for mark in marks)


def class_hints(cls: type) -> dict[str, Any]:
    """The annotations of a class's fields; empty if they can't be resolved, which msgspec or pydantic reports."""
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except Exception:
        return {}
    return {name: _unqualified(hint) for name, hint in hints.items()}


def _unqualified(hint: Any) -> Any:
    """The type inside a TypedDict's `NotRequired[...]` and `Required[...]`."""
    while typing.get_origin(hint) in (typing.NotRequired, typing.Required):
        hint = typing.get_args(hint)[0]
    return hint


def literals_in(annotation: Any) -> Iterator[tuple[Any, ...]]:
    """The values of each Literal in the annotation, in the author's order; not those in the fields of classes."""
    if is_class(annotation):
        return
    if typing.get_origin(annotation) is typing.Literal:
        yield typing.get_args(annotation)
        return
    for argument in typing.get_args(bare(annotation)):
        yield from literals_in(argument)


Predicate = Callable[[Any], bool]


def holds(annotation: Any, predicate: Predicate) -> bool:
    """Whether the predicate is true of the annotation, or of a member of its union."""
    if predicate(annotation):
        return True
    if is_class(annotation):
        return False
    return any(predicate(member) for member in members(annotation) if member is not annotation)
