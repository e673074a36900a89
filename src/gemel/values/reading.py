"""JSON text as the value of a type that the user names: what a result should be, what a step returned.

msgspec reads, with the parts that only pydantic knows by pydantic.
"""

from __future__ import annotations

import collections.abc
import functools
import operator
import sys
import typing
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec


def read_as(kind: object, text: bytes) -> Any:
    """Read JSON text as a value of a type.

    Args:
        kind: A type that msgspec knows, or pydantic if it is installed.
        text: The JSON text.

    Raises:
        ValueError: The text does not fit the type. It is msgspec's or pydantic's ValidationError.
        TypeError: Neither knows the type.
    """
    try:
        kind, uses_pydantic, has_defaults = _prepared(kind)
    except TypeError:  # it has no hash
        kind, uses_pydantic, has_defaults = _prepared.__wrapped__(kind)
    if uses_pydantic:
        return _codec(kind).read(text)
    try:
        value = msgspec.json.decode(text, type=kind, dec_hook=_part)
        return with_defaults(value) if has_defaults else value
    except (TypeError, msgspec.ValidationError) as error:
        with suppress(Exception):  # pydantic is not installed, does not know the type, or refuses the value
            return _codec(kind).read(text, strict=True)
        raise error


def refusal_of(error: ValueError) -> str:
    """What is wrong with text that `read_as` refused, in one line."""
    errors = getattr(error, "errors", None)
    if errors is None:  # of msgspec
        return str(error)
    first = errors()[0]  # of pydantic
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else str(first["msg"])


@functools.lru_cache(maxsize=256)
def _prepared(kind: object) -> tuple[Any, bool, bool]:
    """The type with lists in place of iterables, whether it holds one of pydantic's, and whether `leaves_defaults`."""
    kind = normalized(kind)
    return kind, "pydantic" in sys.modules and any(map(_is_pydantics, _parts(kind, {}))), leaves_defaults(kind)


def leaves_defaults(kind: object) -> bool:
    """Whether msgspec reads values of a type without some of their members, so that `with_defaults` must follow."""
    return any(map(_has_class_defaults, _parts(kind, {})))


def with_defaults(value: object) -> Any:
    """The same value, its dataclasses with attributes of their own for the defaults that msgspec has left to the class.

    msgspec writes a dataclass by its own attributes, as `vars` does, and would leave these members out.
    """
    if isinstance(value, dict):
        parts: Iterable[Any] = value.values()
    elif isinstance(value, list | tuple | set | frozenset | collections.deque):
        parts = value
    elif isinstance(value, msgspec.Struct):
        parts = (getattr(value, name) for name in value.__struct_fields__)
    elif (fields := getattr(type(value), "__dataclass_fields__", None)) is not None:
        parts = [getattr(value, name) for name in fields if hasattr(value, name)]
        if (members := getattr(value, "__dict__", None)) is not None:
            members.update((name, getattr(value, name)) for name in fields if hasattr(value, name))
    else:
        parts = (getattr(value, field.name, None) for field in getattr(type(value), "__attrs_attrs__", ()))
    for part in parts:
        if type(part) not in _SCALARS:
            with_defaults(part)
    return value


_SCALARS = frozenset({str, int, float, bool, type(None)})


def normalized(annotation: Any, *, reading: bool = True) -> Any:
    """Replace iterables by lists, and the members of unions that no JSON text would be read as; not inside of classes.

    pydantic would check the items of an iterable only while they are read. A JSON string beside `str` is a text, not bytes in
    base64. Raises TypeError for an iterator to be read without pydantic.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in _ITERABLES or origin in _ITERABLES:
        items: Any = list[normalized(arguments[0], reading=reading)] if arguments else list  # type: ignore[misc]  # made of a value
        is_list = not reading or issubclass(list, origin or annotation)
        return items if is_list else _iterated(items)
    if not arguments or origin is Literal:
        return annotation
    if origin is Annotated:
        return Annotated[(normalized(annotation.__origin__, reading=reading), *annotation.__metadata__)]
    inner = tuple(normalized(argument, reading=reading) for argument in arguments)
    if origin in (Union, UnionType):
        inner = _distinct_texts(inner, reading=reading)
    if len(inner) == len(arguments) and all(map(operator.is_, inner, arguments)):
        return annotation
    if origin in (Union, UnionType):
        return Union[inner]  # noqa: UP007  # made of a tuple
    return type(annotation)(origin, inner)


def _distinct_texts(members: tuple[Any, ...], *, reading: bool) -> tuple[Any, ...]:
    """The members of a union with at most one type of bytes; if it is read, with none beside `str`."""
    binary = [member for member in members if member in _BINARY]
    is_text = reading and str in members
    if not is_text and (binary in ([], [bytes]) or (reading and len(binary) == 1)):
        return members
    others = tuple(member for member in members if member not in _BINARY)
    return others if is_text else (*others, bytes)


_BINARY = (bytes, bytearray, memoryview)
_ITERABLES = (
    *(collections.abc.Iterable, collections.abc.Collection),
    *(collections.abc.Iterator, collections.abc.Generator),
)


def _iterated(items: object) -> Any:
    try:
        from pydantic import AfterValidator
    except ImportError:
        raise TypeError("an iterator is read only if pydantic is installed; take a list") from None
    return Annotated[items, AfterValidator(iter)]


def _part(kind: type, value: object) -> Any:
    """A part of a value whose type msgspec does not know."""
    return _codec(kind).read(msgspec.json.encode(value))


def _codec(kind: object) -> Any:
    """The reader of a type by pydantic. Raises TypeError if pydantic is not installed, or does not know the type."""
    try:
        from pydantic import PydanticUserError

        from gemel.values.pydantic_types import PydanticCodec, codec_of
    except ImportError:
        raise TypeError(f"Type {kind!r} is not supported without pydantic") from None
    try:
        try:
            return codec_of(kind)
        except TypeError:  # it has no hash
            return PydanticCodec(kind)
    except PydanticUserError as error:
        raise TypeError(str(error).partition("\n")[0]) from None


def _is_pydantics(kind: object) -> bool:
    """Whether a type is one of pydantic's: `Model`, `Annotated[int, Field(ge=1)]`."""
    if hasattr(kind, "__pydantic_core_schema__") or hasattr(kind, "__get_pydantic_core_schema__"):
        return True
    metadata = getattr(kind, "__metadata__", ())
    return any(type(one).__module__.startswith(("pydantic", "annotated_types")) for one in metadata)


def _has_class_defaults(kind: object) -> bool:
    """Whether it is a dataclass with a field whose default is an attribute of the class."""
    fields = getattr(kind, "__dataclass_fields__", {})
    return any(name in vars(base) for base in getattr(kind, "__mro__", ()) for name in fields)


def _parts(kind: object, seen: dict[int, Any]) -> Iterator[Any]:
    """A type with its arguments and the types of its fields, each once."""
    if id(kind) in seen:
        return
    seen[id(kind)] = kind
    yield kind
    parts = [get_origin(kind), *get_args(kind)]
    if isinstance(kind, type) and not get_origin(kind):
        with suppress(Exception):
            parts += typing.get_type_hints(kind, include_extras=True).values()
    for part in parts:
        yield from _parts(part, seen)
