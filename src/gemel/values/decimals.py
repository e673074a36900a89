"""Decimals in JSON text: the range of those that msgspec reads, and all digits of those that pydantic reads.

pydantic makes floats of numbers first, which have fewer digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, DecimalException
from typing import Any

import msgspec

#: What a number that no float equals has: many digits, or a large exponent.
_INEXACT = re.compile(rb"[0-9][0-9.]{15}|[eE][+-]?[0-9]{3}")

_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode

#: The largest exponent of a Decimal, that of IEEE 754 decimal128: `int()` of a larger one fills the memory.
_MAX_EXPONENT = 6144
#: What is read for a Decimal, for messages.
DECIMAL_RANGE = f"a finite decimal with an exponent from -{_MAX_EXPONENT} to {_MAX_EXPONENT}"


def is_in_range(number: Decimal) -> bool:
    """Whether a decimal is neither NaN nor infinite, and its exponent not too large."""
    return number.is_finite() and abs(number.adjusted()) <= _MAX_EXPONENT


def path_out_of_range(value: object) -> tuple[str | int, ...] | None:
    """The way to the first Decimal that is not in range, in a value of plain JSON types and Decimals; None without one."""
    if isinstance(value, Decimal):
        return None if is_in_range(value) else ()
    if isinstance(value, dict):
        parts: Iterable[tuple[str | int, Any]] = ((str(key), part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    else:
        return None
    ways = ((step, *way) for step, part in parts if (way := path_out_of_range(part)) is not None)
    return next(ways, None)


class DecimalPlaces:
    """The places of a type where pydantic reads a Decimal.

    Args:
        schema: The core schema of the type.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._definitions = {one["ref"]: one for one in _schemas(schema) if "ref" in one}
        self._schema = schema
        self._any = any(one.get("type") == "decimal" for one in _schemas(schema))

    def exact(self, text: bytes) -> bytes:
        """The same JSON text, with strings in place of numbers that a Decimal takes and no float equals.

        Text that isn't JSON is returned as it is.
        """
        if not self._any or _INEXACT.search(text) is None:
            return text
        try:
            value = _decode(text)
            exact = self._exact(value, [self._schema])
            return text if exact is value else _encode(exact)
        except (msgspec.MsgspecError, DecimalException, ValueError, RecursionError):
            return text

    def _exact(self, value: Any, schemas: Iterable[Any]) -> Any:
        """The value with strings in these places; the same object where there is nothing to change."""
        if isinstance(value, Decimal):
            kinds = {one["type"] for one in self._leaves(schemas)}
            is_text = "decimal" in kinds and not kinds & {"str", "any"} and Decimal(repr(float(value))) != value
            return str(value) if is_text else value
        if not isinstance(value, dict | list):
            return value
        leaves = list(self._leaves(schemas))
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        changed = {
            step: new
            for step, part in parts
            if isinstance(part, Decimal | dict | list)
            and (new := self._exact(part, [inner for leaf in leaves for inner in _inner(leaf, step)])) is not part
        }
        if not changed:
            return value
        if isinstance(value, dict):
            return {**value, **changed}
        return [changed.get(index, part) for index, part in enumerate(value)]

    def _leaves(self, schemas: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
        """The schemas that a value at a place may have, without those that only wrap others."""
        waiting, seen = list(schemas), set[int]()
        while waiting:
            schema = waiting.pop()
            if id(schema) in seen or not isinstance(schema, Mapping):
                continue
            seen.add(id(schema))
            kind = schema["type"]
            if kind == "definition-ref":
                waiting.append(self._definitions.get(schema["schema_ref"], {"type": "any"}))
            elif kind == "tagged-union":
                waiting += schema["choices"].values()
            elif kind == "union":
                waiting += [one[0] if isinstance(one, tuple) else one for one in schema["choices"]]
            elif kind == "call":  # of a NamedTuple, by an older pydantic
                waiting.append(schema["arguments_schema"])
            elif wrapped := [schema[name] for name in _WRAPPED if name in schema]:
                waiting += wrapped
            elif kind == "chain":
                waiting += schema["steps"][:1]
            else:
                yield schema


#: Members of core schemas that hold the schema of the same value.
_WRAPPED = ("schema", "json_schema", "lax_schema", "strict_schema")


def _inner(schema: Mapping[str, Any], step: str | int) -> Iterator[Any]:
    """The schemas of a member or an item."""
    fields = schema.get("fields", schema.get("arguments_schema", ()))
    if isinstance(step, int):
        items = schema.get("items_schema", ())
        if isinstance(items, Mapping):
            yield items
        elif items:
            rest = schema.get("variadic_item_index")
            yield items[rest if rest is not None and step >= rest else min(step, len(items) - 1)]
        elif isinstance(fields, list):  # of a NamedTuple
            yield from (field["schema"] for field in fields[step : step + 1])
        return
    named = fields.items() if isinstance(fields, Mapping) else ((field["name"], field) for field in fields)
    found = [field["schema"] for name, field in named if step == name or step in _aliases(field)]
    yield from found
    outer = schema.get("values_schema") if schema["type"] == "dict" else schema.get("extras_schema")
    if outer is not None and not found:
        yield outer


def _aliases(field: Mapping[str, Any]) -> list[Any]:
    """The names of a member in JSON, other than that of its field: one, or several that are paths of one step."""
    alias = field.get("validation_alias")
    if isinstance(alias, list):
        return [one[0] if isinstance(one, list) and len(one) == 1 else one for one in alias]
    return [alias]


def _schemas(schema: object) -> Iterator[Mapping[str, Any]]:
    """All parts of a core schema that are schemas."""
    if isinstance(schema, dict):
        if isinstance(schema.get("type"), str):
            yield schema
        for part in schema.values():
            yield from _schemas(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            yield from _schemas(part)
