"""Check models that Python code made: msgspec checks types when it reads JSON, not when an object is made."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar

import msgspec

from gemel.schema.base import Model
from gemel.values.encoding import NotSerializable, encode_value, simplified

ModelT = TypeVar("ModelT", bound=Model)


def checked_model(model: ModelT) -> ModelT:
    """Check the types of all members, also of the models inside.

    Args:
        model: A model of the protocol.

    Returns:
        The same model, or a copy where members were of a subclass, as `markupsafe.Markup` for a text.

    Raises:
        ValueError: A member has the wrong type, or no JSON form; the message names it.
    """
    try:
        _check(model)
    except ValueError:
        try:
            return msgspec.convert(simplified(model), type(model))
        except (TypeError, ValueError):
            pass
        raise
    return model


def _check(model: Model) -> None:
    pending: list[tuple[str, Any]] = [(type(model).__name__, model)]
    while pending:
        place, value = pending.pop()
        for name, kind in _members(value.__class__):
            member = getattr(value, name)
            if member is msgspec.UNSET:
                continue
            try:
                msgspec.convert(member, kind)
                if isinstance(member, dict):  # `_meta` and the like hold any values
                    encode_value(member)
            except (msgspec.ValidationError, NotSerializable) as exc:
                raise ValueError(f"{place}.{name}: {exc}") from exc
            pending += _models(f"{place}.{name}", member)


@cache
def _members(kind: Any) -> list[tuple[str, Any]]:
    return [(field.name, field.type) for field in msgspec.structs.fields(kind) if field.type is not Any]


def _models(place: str, value: object) -> Iterator[tuple[str, Model]]:
    if isinstance(value, Model):
        yield place, value
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _models(f"{place}[{index}]", item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _models(f"{place}[{name!r}]", item)
