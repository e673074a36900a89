"""Type annotations: evaluating them when they are strings, taking `Annotated` and unions apart, naming them in messages.

Knows Python's typing rules, nothing of JSON.
"""

from __future__ import annotations

import collections.abc
import contextlib
import functools
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


def behind_partials(function: object) -> Any:
    """What a partial calls in the end; the function itself if it is none."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def unwrapped(function: object) -> Any:
    """The Python function whose code, names and place count: behind partials, methods, objects, classes and decorators."""
    if type(function) is types.FunctionType and not hasattr(function, "__wrapped__"):
        return function  # for speed, as nearly all are
    function = behind_partials(function)
    if isinstance(function, type):
        return next((vars(base)["__init__"] for base in function.__mro__ if "__init__" in vars(base)), function)
    inner = inspect.unwrap(function if inspect.isroutine(function) else type(function).__call__)
    return getattr(inner, "__func__", inner)


def name_of(function: object) -> str:
    """The name of a function, behind partials; of an object the name of its class."""
    function = behind_partials(function)
    return getattr(function, "__name__", None) or type(function).__name__


def place_of(function: object, name: str | None = None) -> Place:
    """The location of a function or class under its own name or another; callables without Python code have line 0."""
    called = name or name_of(function)
    inner = unwrapped(function)
    code = getattr(inner, "__code__", None)
    if code is not None:
        return Place(called, code.co_filename, code.co_firstlineno)
    if isinstance(inner := behind_partials(function), type):
        with contextlib.suppress(OSError, TypeError):  # it is not written in Python
            return Place(called, inspect.getfile(inner), inspect.getsourcelines(inner)[1])
    module = sys.modules.get(getattr(inner, "__module__", None) or "")
    return Place(called, getattr(module, "__file__", None) or "<built-in>", 0)


def resolve(annotation: object, function: object) -> Any:
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


def unresolved(error: Exception) -> str:
    """What is wrong with an annotation whose text, or whose part, Python can't evaluate; for messages."""
    text = f"can't be resolved: {' '.join(str(error).split())}"
    advice = "; import the name at runtime (not only under TYPE_CHECKING) or define it at module level"
    return text + (advice if isinstance(error, NameError) else "")


def _is_resolved(annotation: object) -> bool:
    """Whether it is a Literal, or an alias of classes alone: `list[int]`, `str | None`."""
    arguments = getattr(annotation, "__args__", ())
    is_literal = getattr(annotation, "__origin__", None) is typing.Literal
    return bool(arguments) and (is_literal or all(map(is_class, arguments)))


def _evaluate(annotation: object, module: dict[str, Any], local: dict[str, Any]) -> Any:
    holder = types.SimpleNamespace(__annotations__={"annotation": annotation})
    return typing.get_type_hints(holder, module, local, include_extras=True)["annotation"]


def _own_names(function: object) -> dict[str, Any]:
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


def is_class(annotation: object) -> TypeGuard[type]:
    """Whether it is a class and not an alias such as `list[int]`."""
    return type(annotation) is type or (isinstance(annotation, type) and typing.get_origin(annotation) is None)


def is_plain(annotation: object) -> bool:
    """Whether it is made of built-in classes alone, or a Literal. Most are: nothing has to be looked for in these."""
    if type(annotation) is type:
        return annotation.__module__ == "builtins"
    if isinstance(annotation, _ANNOTATED):
        return False
    origin, arguments = getattr(annotation, "__origin__", None), getattr(annotation, "__args__", ())
    if origin is typing.Literal:
        return True
    built_in = {type(part) is type and part.__module__ for part in arguments} == {"builtins"}
    return built_in and (origin in (list, dict, set, tuple, typing.Union) or type(annotation) is types.UnionType)


def is_annotated(annotation: object) -> bool:
    """Whether it is `Annotated[...]`."""
    return isinstance(annotation, _ANNOTATED)


def metadata_of(annotation: Any) -> tuple[Any, ...]:
    """The metadata of `Annotated`; empty for other annotations."""
    return annotation.__metadata__ if is_annotated(annotation) else ()


def bare(annotation: Any) -> Any:
    """The type without its `Annotated`."""
    return annotation.__origin__ if is_annotated(annotation) else annotation


class Peeled(NamedTuple):
    """An annotation taken apart: the type, the metadata around it, and whether None is allowed beside it."""

    type: Any
    metadata: tuple[Any, ...]
    optional: bool


def peel(annotation: Any) -> Peeled:
    """Take `Annotated`, `| None`, names of types and type variables off an annotation."""
    metadata: tuple[Any, ...] = ()
    optional = False
    names: list[Any] = []
    while not is_class(annotation):
        if is_annotated(annotation):
            annotation, metadata = annotation.__origin__, annotation.__metadata__ + metadata
        elif _is_union(annotation) and type(None) in (kinds := typing.get_args(annotation)):
            annotation = typing.Union[tuple(kind for kind in kinds if kind is not type(None))]  # noqa: UP007  # made of a list
            optional = True
        elif (named := _named_type(annotation)) is not None and (
            name := typing.get_origin(annotation) or annotation
        ) not in names:
            names.append(name)
            arguments = typing.get_args(annotation)
            annotation = named[arguments] if arguments else named
        else:
            break
    return Peeled(annotation, metadata, optional)


def _named_type(annotation: Any) -> Any:
    """The type behind `type X = …`, NewType, or the bound or the constraints of a TypeVar; None for other annotations."""
    alias = typing.get_origin(annotation) or annotation
    if type(alias).__name__ == "TypeAliasType":
        return alias.__value__
    if isinstance(annotation, typing.NewType):
        return annotation.__supertype__
    if not isinstance(annotation, typing.TypeVar):
        return None
    kinds = annotation.__constraints__
    return typing.Union[kinds] if kinds else annotation.__bound__  # noqa: UP007  # made of a tuple


def _is_union(annotation: object) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def described_by(annotation: object) -> str | None:
    """The description in `Annotated`: a string, `Doc("...")`, `msgspec.Meta(description=)` or pydantic's Field.

    That of `Annotated[...] | None` counts, too.
    """
    for item in reversed(metadata_of(annotation)):
        text = item if isinstance(item, str) else getattr(item, "description", None)
        text = text or getattr(item, "documentation", None)
        if isinstance(text, str):
            return inspect.cleandoc(text)
    if _is_union(plain := bare(annotation)):
        others = [member for member in typing.get_args(plain) if member is not type(None)]
        return described_by(others[0]) if len(others) == 1 else None
    return None


def members(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, without their `Annotated`; the type itself if it isn't a union."""
    plain = bare(annotation)
    if not is_class(plain) and _is_union(plain):
        return tuple(inner for member in typing.get_args(plain) for inner in members(member))
    return (plain,)


def shown(annotation: object) -> str:
    """The annotation as an author would write it, without modules and metadata, shortened, for messages."""
    try:
        return shorten(" ".join(_shown(annotation).split()))
    except Exception:  # the author's own __repr__
        return f"<{type(annotation).__name__}>"


def _shown(annotation: object) -> str:
    if isinstance(annotation, str):
        return annotation
    if annotation is None or annotation is type(None):
        return "None"
    if is_class(annotation):
        return annotation.__qualname__.rpartition("<locals>.")[2]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if is_annotated(annotation):
        return _shown(bare(annotation))
    if _is_union(annotation):
        return " | ".join(map(_shown, arguments))
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if isinstance(annotation, list | tuple):
        left, right = "[]" if isinstance(annotation, list) else "()"
        return f"{left}{', '.join(map(_shown, annotation))}{right}"
    if origin is not None and arguments:
        return f"{_shown(origin)}[{', '.join(map(_shown, arguments))}]"
    name = getattr(annotation, "__name__", None)  # of a name for a type, a type variable, a function, a module
    return name if isinstance(name, str) else "..." if annotation is ... else repr(annotation).removeprefix("typing.")


def no_type(annotation: object) -> str | None:
    """What is wrong with an annotation, or a part of one, that is a value and no type; None if nothing is."""
    if is_plain(annotation):
        return None
    kind = peel(annotation).type
    if kind is None or kind is ... or isinstance(kind, str):  # text is the name of a type, inside of an alias
        return None
    if inspect.isroutine(kind):
        return f"`{kind.__name__}` is a function, not a type" + ("; write `Any`, of typing" if kind is any else "")
    if inspect.ismodule(kind):
        name = kind.__name__.rpartition(".")[2]
        return f"`{name}` is a module, not a type" + (f"; write `{name}.{name}`" if hasattr(kind, name) else "")
    if isinstance(kind, list | tuple | dict):
        return f"it is a value, not a type; write `{type(kind).__name__}[…]`"
    if isinstance(kind, bool | int | float | bytes):
        return f"it is a value, not a type; write `Literal[{kind!r}]`"
    if not hasattr(kind, "__module__"):
        return "it is a value, not a type"
    origin = typing.get_origin(kind)
    if origin is type:
        return "a class can't be written in JSON"
    if origin in (None, typing.Literal, collections.abc.Callable):
        return None
    return next(filter(None, map(no_type, typing.get_args(kind))), None)


def is_field_info(value: object) -> bool:
    """Whether it is the result of pydantic's `Field(...)`, without importing pydantic."""
    return type(value).__name__ == "FieldInfo" and _is_pydantic(type(value))


def _is_pydantic(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in ("pydantic", "pydantic_core", "annotated_types")


class Traits(NamedTuple):
    """Whose types an annotation contains, at any depth."""

    pydantic: bool
    struct: bool
    msgspec_limits: bool


def traits_of(annotation: object) -> Traits:
    """Whose types an annotation contains, in the fields of nested classes too."""
    pydantic = struct = limits = False
    for part in parts(annotation):
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


def parts(annotation: object, *, fields: bool = True) -> Iterator[Any]:
    """The annotation and its parts except built-in types, depth first: type arguments, metadata, and fields of classes."""
    return _parts(annotation, fields, set())


def _parts(annotation: object, fields: bool, seen: set[int]) -> Iterator[Any]:
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
    inner += annotation if isinstance(annotation, list) else ()  # the parameters of a Callable
    inner += [named for named in (_named_type(annotation),) if named is not None]
    if fields and has_fields(annotation):
        inner += class_hints(annotation).values()
    for item in inner:
        yield from _parts(item, fields, seen)


def has_fields(annotation: object) -> TypeGuard[type]:
    """Whether it is a class with annotated fields: dataclass, TypedDict, NamedTuple, attrs, Struct, pydantic model."""
    if not isinstance(annotation, type):
        return False
    marks = (
        "__dataclass_fields__",
        "__attrs_attrs__",
        "__struct_fields__",
        "__pydantic_fields__",
        "__total__",
        "_fields",
    )
    return any(hasattr(annotation, mark) for mark in marks)


def class_hints(cls: type) -> dict[str, Any]:
    """The annotations of a class's fields; empty if they can't be resolved, which msgspec or pydantic reports."""
    try:
        return _class_hints(cls)
    except Exception:
        return {}


@functools.lru_cache(maxsize=512)
def _class_hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return {name: _unqualified(hint) for name, hint in hints.items()}


def _unqualified(hint: object) -> Any:
    """The type inside a TypedDict's `NotRequired[...]` and `Required[...]`."""
    while typing.get_origin(hint) in (typing.NotRequired, typing.Required):
        hint = typing.get_args(hint)[0]
    return hint


def literals_in(annotation: object) -> Iterator[tuple[Any, ...]]:
    """The values of each Literal in the annotation, in the author's order; not those in the fields of classes."""
    if is_class(annotation):
        return
    if typing.get_origin(annotation) is typing.Literal:
        yield typing.get_args(annotation)
        return
    for argument in typing.get_args(bare(annotation)):
        yield from literals_in(argument)


Predicate = Callable[[Any], bool]
