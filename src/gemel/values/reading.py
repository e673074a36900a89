"""JSON text as the value of a type that the user names: what a result should be, what a step returned.

msgspec reads, with the parts that only pydantic knows by pydantic.
"""

from __future__ import annotations

import collections.abc
import functools
import operator
import sys
import typing
from contextlib import suppress
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec


def read_as(kind: Any, text: bytes) -> Any:
    """Read JSON text as a value of a type.

    Args:
        kind: A type that msgspec knows, or pydantic if it is installed.
        text: The JSON text.

    Raises:
        ValueError: The text does not fit the type. It is msgspec's or pydantic's ValidationError.
        TypeError: Neither knows the type.
    """
    try:
        kind, uses_pydantic = _prepared(kind)
    except TypeError:  # it has no hash
        kind, uses_pydantic = _prepared.__wrapped__(kind)
    if uses_pydantic:
        return _codec(kind).read(text)
    try:
        return msgspec.json.decode(text, type=kind, dec_hook=_part)
    except (TypeError, msgspec.ValidationError) as error:
        with suppress(Exception):  # pydantic is not installed, does not know the type, or refuses the value
            return _codec(kind).read(text, strict=True)
        raise error


@functools.lru_cache(maxsize=256)
def _prepared(kind: Any) -> tuple[Any, bool]:
    """The type with lists in place of iterables, and whether it is one of pydantic's or contains one."""
    kind = with_lists(kind)
    return kind, "pydantic" in sys.modules and _uses_pydantic(kind)


def with_lists(annotation: Any, *, reading: bool = True) -> Any:
    """Replace iterables by lists, except inside of classes: pydantic would check their items only while they are read.

    Raises TypeError for an iterator to be read without pydantic.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in _ITERABLES or origin in _ITERABLES:
        items: Any = list[with_lists(arguments[0], reading=reading)] if arguments else list  # type: ignore[misc]  # made of a value
        is_list = not reading or issubclass(list, origin or annotation)
        return items if is_list else _iterated(items)
    if not arguments or origin is Literal:
        return annotation
    if origin is Annotated:
        return Annotated[(with_lists(annotation.__origin__, reading=reading), *annotation.__metadata__)]
    inner = tuple(with_lists(argument, reading=reading) for argument in arguments)
    if all(map(operator.is_, inner, arguments)):
        return annotation
    if origin in (Union, UnionType):
        return Union[inner]  # noqa: UP007  # made of a tuple
    return type(annotation)(origin, inner)


_ITERABLES = (
    *(collections.abc.Iterable, collections.abc.Collection),
    *(collections.abc.Iterator, collections.abc.Generator),
)


def _iterated(items: Any) -> Any:
    try:
        from pydantic import AfterValidator
    except ImportError:
        raise TypeError("an iterator is read only if pydantic is installed; take a list") from None
    return Annotated[items, AfterValidator(iter)]


def _part(kind: type, value: Any) -> Any:
    """A part of a value whose type msgspec does not know."""
    return _codec(kind).read(msgspec.json.encode(value))


def _codec(kind: Any) -> Any:
    from gemel.values.pydantic_types import PydanticCodec, codec_of

    try:
        return codec_of(kind)
    except TypeError:  # it has no hash
        return PydanticCodec(kind)


def _uses_pydantic(kind: Any, *outer: Any) -> bool:
    """Whether a type is one of pydantic's, or contains one: `list[Model]`, `Annotated[int, Field(ge=1)]`."""
    if kind in outer:
        return False
    if hasattr(kind, "__pydantic_core_schema__") or hasattr(kind, "__get_pydantic_core_schema__"):
        return True
    if any(
        type(one).__module__.startswith(("pydantic", "annotated_types")) for one in getattr(kind, "__metadata__", ())
    ):
        return True
    parts = list(get_args(kind))
    if isinstance(kind, type) and not get_origin(kind):
        with suppress(Exception):
            parts += typing.get_type_hints(kind, include_extras=True).values()
    return any(_uses_pydantic(part, kind, *outer) for part in parts)
