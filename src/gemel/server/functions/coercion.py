"""Coercion: a string that holds JSON of the expected type becomes that value. Hosts send `"3"` for 3 and `"[1]"` for [1].

Arguments are read strictly first, and again after coercion, so that this decides nothing but what is tried. What fits the
schema stays as it is: in `str | int` the string "3" stays a string. Only strings are coerced, never numbers or booleans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from gemel.errors import InvalidParams
from gemel.protocol.decoding import SMALL, check_values
from gemel.protocol.limits import DEFAULT_LIMITS
from gemel.server.functions.arguments import Arguments, Rename, SchemaArguments
from gemel.server.functions.json_schema import Schema
from gemel.server.functions.validation_errors import SchemaComparison, has_type, is_listed, resolved

#: Longer arguments are not coerced, in bytes of JSON; nor are longer strings in all.
MAX_BYTES = 1024 * 1024
#: At most this many parts of a value and of schemas are looked at; what is left then stays as it is.
MAX_VISITS = 10_000
#: A longer string is not a number, in characters.
_MAX_NUMBER = 64
#: Larger whole numbers in a float have lost digits.
_EXACT = 2**53
_PYTHON = {"True": True, "False": False}


class CoercedArguments:
    """Reads the arguments of a tool with `coerce=True`, by another reader and its JSON Schema."""

    __slots__ = ("_schema", "_strict")

    def __init__(self, strict: Arguments | SchemaArguments, schema: Schema) -> None:
        self._strict = strict
        self._schema = schema

    def from_json(self, text: bytes | Raw) -> dict[str, Any]:
        """See `Arguments.from_json`. The errors are those of the coerced arguments."""
        return self._read(self._strict.from_json, text)

    def plain_from_json(self, text: bytes | Raw) -> dict[str, Any]:
        """See `Arguments.plain_from_json`: the coerced arguments."""
        return self._read(self._strict.plain_from_json, text)

    def _read(self, read: Callable[[bytes | Raw], dict[str, Any]], text: bytes | Raw) -> dict[str, Any]:
        try:
            return read(text)
        except InvalidParams:
            coerced = coerce(self._schema, text)
            if coerced is None:
                raise
        return read(coerced)

    def errors(self, text: bytes | Raw, rename: Rename) -> InvalidParams:
        """See `Arguments.errors`."""
        return self._strict.errors(coerce(self._schema, text) or text, rename)


def coerce(schema: Schema, text: bytes | Raw) -> bytes | None:
    """Coerce the members of a JSON object to a schema.

    Args:
        schema: A JSON Schema, with its definitions.
        text: The JSON text. A string in place of the object is not coerced: tool changes have not seen what it holds.

    Returns:
        The text with other values. None if nothing is coerced: it fits as far as strings are concerned, isn't an object,
        or has more than MAX_BYTES bytes.
    """
    if len(text) > MAX_BYTES:
        return None
    try:
        value = msgspec.json.decode(text, type=dict[str, Any])
        coerced = _Coercion(schema).value(schema, value)
        return None if coerced is value else msgspec.json.encode(coerced)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


class _Coercion:
    """Coerces one value. The same object comes back where nothing changes."""

    def __init__(self, root: Schema) -> None:
        self._comparison = SchemaComparison(root, patterns=False, visits=MAX_VISITS)
        self._bytes = MAX_BYTES

    def value(self, schema: Any, value: Any) -> Any:
        if not self._comparison.visit() or not isinstance(schema, Mapping):
            return value
        schema = resolved(self._comparison.root, schema)
        branches = schema.get("anyOf") or schema.get("oneOf")
        if branches:
            value = self._member(branches, value)
        for part in schema.get("allOf", ()):
            value = self.value(part, value)
        if isinstance(value, str):
            value = self._from_text(schema, value)
        if isinstance(value, dict):
            return self._object(schema, value)
        return self._array(schema, value) if isinstance(value, list) else value

    def _member(self, branches: Sequence[Any], value: object) -> Any:
        """As the first branch that then fits. If none does, as the only one of that type, so that its errors are fewer."""
        if any(self._comparison.fits(branch, value) for branch in branches):
            return value
        tried = [(branch, self.value(branch, value)) for branch in branches]
        for branch, coerced in tried:
            if coerced is not value and self._comparison.fits(branch, coerced):
                return coerced
        likely = [coerced for branch, coerced in tried if self._has_type(branch, coerced)]
        return likely[0] if len(likely) == 1 else value

    def _has_type(self, branch: object, value: object) -> bool:
        return isinstance(branch, Mapping) and has_type(resolved(self._comparison.root, branch), value)

    def _from_text(self, schema: Schema, text: str) -> Any:
        if has_type(schema, text) and is_listed(schema, text):
            return text
        value = self._decoded(text)
        if value is UNSET:
            return text
        if type(value) is float and value.is_integer() and abs(value) <= _EXACT and not has_type(schema, value):
            value = int(value)
        return value if has_type(schema, value) and is_listed(schema, value) else text

    def _decoded(self, text: str) -> Any:
        """The JSON value that a string holds; UNSET if it holds none, or too much."""
        if text in _PYTHON:
            return _PYTHON[text]
        data = text.strip().encode()
        self._bytes -= len(data)
        if self._bytes < 0 or (data[:1] not in (b"[", b"{", b'"') and len(data) > _MAX_NUMBER):
            return UNSET
        with suppress(msgspec.MsgspecError, ValueError, InvalidParams):
            if len(data) > SMALL:
                check_values(data, DEFAULT_LIMITS.values)
            return msgspec.json.decode(data)
        return UNSET

    def _object(self, schema: Schema, value: dict[str, Any]) -> dict[str, Any]:
        properties = schema.get("properties", {})
        others = None if "patternProperties" in schema else schema.get("additionalProperties")
        changed = {}
        for name, old in value.items():
            if self._comparison.exhausted:
                break
            new = self.value(properties.get(name, others), old)
            if new is not old:
                changed[name] = new
        return {**value, **changed} if changed else value

    def _array(self, schema: Schema, value: list[Any]) -> list[Any]:
        items = schema.get("items")
        first = items if isinstance(items, list) else schema.get("prefixItems", ())
        others = schema.get("additionalItems") if isinstance(items, list) else items
        changed = {}
        for index, old in enumerate(value):
            if self._comparison.exhausted:
                break
            new = self.value(first[index] if index < len(first) else others, old)
            if new is not old:
                changed[index] = new
        return [changed.get(index, old) for index, old in enumerate(value)] if changed else value
