"""The keys of objects: which texts stand for keys that aren't strings, how they are listed, and which mean the same key.

msgspec and pydantic read keys in more notations than values: `"01"` for 1, `"yes"` for true, `"nan"`. Of two keys that are equal
in Python they keep the last one. So what they have read is checked once more.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
import sys
import uuid
from collections.abc import Callable, Hashable, Mapping, Sequence
from importlib import import_module
from math import ceil, floor
from typing import Any, TypeAlias

import msgspec

from gemel.server.functions.validation_errors import Path, Rejection, SchemaComparison, describe, has_type, resolved
from gemel.values.schemas import (
    INTEGER_KEY,
    NATURAL_KEY,
    NEGATIVE_KEY,
    NUMBER_KEY,
    POSITIVE_KEY,
    READ_KEYS,
    UNSIGNED_KEY,
    naive_form,
)

Schema: TypeAlias = Mapping[str, Any]
#: Reads a text as a key. Raises ValueError or msgspec.ValidationError for a text that is none.
Reader: TypeAlias = Callable[[str], Hashable]

_DECIMAL = {"format": "decimal", "pattern": NUMBER_KEY}
_BOOLEANS = {"true": True, "false": False}
#: Integers within bounds are listed one by one, up to so many.
_MOST_LISTED = 64


# ---------------------------------------------------------------- how keys are listed


def key_schema(schema: Schema, definitions: Mapping[str, Schema]) -> dict[str, Any] | None:
    """The schema of the keys of an object, which are strings; None if no value of the schema can be a key."""
    if "$ref" in schema:
        return key_schema(resolved({"$defs": definitions}, schema), definitions)
    if options := schema.get("anyOf") or schema.get("oneOf"):
        names: list[dict[str, Any]] = []
        for option in options:
            if (name := key_schema(option, definitions)) is not None:
                names += [one for one in name.get("anyOf", [name]) if one not in names]
        if _DECIMAL in names:  # its numbers and its strings are the same keys; limits are those of the numbers
            limited = next((name for name in names if name.get("pattern") in (UNSIGNED_KEY, NUMBER_KEY)), _DECIMAL)
            others = [name for name in names if name not in (_DECIMAL, limited)]
            names = [*others, {**_DECIMAL, "pattern": limited["pattern"]}]
        return None if not names else {} if {} in names else names[0] if len(names) == 1 else {"anyOf": names}
    if READ_KEYS in schema:
        return {"enum": schema[READ_KEYS]} if schema[READ_KEYS] else None
    if "const" in schema or "enum" in schema:
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        return {"enum": [value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in values]}
    match schema.get("type"):
        case "string" if schema.get("format") == "decimal":
            return dict(_DECIMAL)
        case "string":
            return {word: value for word, value in schema.items() if word not in ("type", "title", "description")}
        case "integer":
            return _integer_keys(schema)
        case "number":
            is_unsigned = max(schema.get("minimum", -1), schema.get("exclusiveMinimum", -1)) >= 0
            return {"pattern": UNSIGNED_KEY if is_unsigned else NUMBER_KEY}
        case "boolean":
            return {"enum": list(_BOOLEANS)}
    return {} if "type" not in schema else None


def _integer_keys(schema: Schema) -> dict[str, Any]:
    """Each integer of a few; of many only the sign."""
    infinity = float("inf")
    least = max(schema.get("minimum", -infinity), schema.get("exclusiveMinimum", -infinity) + 1)
    most = min(schema.get("maximum", infinity), schema.get("exclusiveMaximum", infinity) - 1)
    if least <= most < least + _MOST_LISTED:
        options = range(ceil(least), floor(most) + 1)
        listed = [str(option) for option in options if option % schema.get("multipleOf", 1) == 0]
        if listed:
            return {"enum": listed}
    if least >= 0:
        return {"pattern": POSITIVE_KEY if least > 0 else NATURAL_KEY}
    return {"pattern": NEGATIVE_KEY if most < 0 else INTEGER_KEY}


# ---------------------------------------------------------------- which texts mean the same key


def _as(kind: object) -> Reader:
    return lambda text: msgspec.convert(text, kind)


def _by(module: str, name: str) -> Reader:
    """A reader of a module that is imported when it is needed."""
    return lambda text: getattr(import_module(module), name)(text)


#: How the texts of each format are read. Of formats that are not here, each text is a key of its own.
_FORMATS: Mapping[str, Reader] = {
    "date": _as(dt.date),
    "date-time": _as(dt.datetime),
    "time": _as(dt.time),
    "duration": _as(dt.timedelta),
    "uuid": _as(uuid.UUID),
    "path": _by("pathlib", "PurePath"),
    "uri": _by("pydantic_core", "Url"),
    "fraction": _by("fractions", "Fraction"),
    **dict.fromkeys(("ipv4", "ipv6", "ipvanyaddress"), _by("ipaddress", "ip_address")),
    **dict.fromkeys(("ipv4network", "ipv6network", "ipvanynetwork"), _by("ipaddress", "ip_network")),
    **dict.fromkeys(("ipv4interface", "ipv6interface", "ipvanyinterface"), _by("ipaddress", "ip_interface")),
}
#: The same of each pattern that `key_schema` lists, other than those of `naive_form`.
_NUMBERS: Mapping[str, Reader] = {
    **dict.fromkeys((INTEGER_KEY, NATURAL_KEY, POSITIVE_KEY, NEGATIVE_KEY), int),
    **dict.fromkeys((NUMBER_KEY, UNSIGNED_KEY), float),
}


def _readers(names: object) -> Sequence[Reader]:
    """How the keys that a schema of names allows are read: as the first that can. Empty if they are plain strings."""
    alternatives = names.get("anyOf", [names]) if isinstance(names, Mapping) else []
    if all(_is_plain(one) for one in alternatives):
        return ()
    return [_reader(one) for one in sorted(alternatives, key=_precedence)]


def _precedence(names: Schema) -> int:
    """A fraction may be written as a number; a number may have the digits of a UUID."""
    return 0 if names.get("format") == "fraction" else 1 if names.get("pattern") in _NUMBERS else 2


def _is_plain(names: Schema) -> bool:
    if "enum" in names:
        return not _has_boolean(names) and not _is_integer(names)
    return (
        names.get("format") not in (*_FORMATS, "decimal")
        and names.get("contentEncoding") != "base64"
        and names.get("pattern") not in _NUMBERS
        and naive_form(names.get("pattern")) is None
    )


def _has_boolean(names: Schema) -> bool:
    return not _BOOLEANS.keys().isdisjoint(names["enum"])


def _is_integer(names: Schema) -> bool:
    return bool(names["enum"]) and all(re.search(INTEGER_KEY, option) for option in names["enum"])


def _reader(names: Schema) -> Reader:
    if "enum" in names:
        if _is_integer(names):  # the `_missing_` of an enum may take others
            return _canonical_integer
        return _one_of({option: _BOOLEANS.get(option, option) for option in names["enum"]})
    pattern, form = names.get("pattern"), names.get("format")
    if isinstance(pattern, str) and pattern in _NUMBERS:
        return _matching(pattern, decimal.Decimal if form == "decimal" else _NUMBERS[pattern])
    if names.get("contentEncoding") == "base64":
        return _as(bytes)
    return _FORMATS.get(naive_form(pattern) or form or "", str)


def _canonical_integer(text: str) -> int:
    number = int(text)
    if str(number) != text:
        raise ValueError(text)
    return number


def _one_of(options: Mapping[str, Hashable]) -> Reader:
    def read(text: str) -> Hashable:
        if text not in options:
            raise ValueError(text)
        return options[text]

    return read


def _matching(pattern: str, kind: Reader) -> Reader:
    fits = re.compile(pattern.removesuffix("$") + r"\Z").search

    def read(text: str) -> Hashable:
        if fits(text) is None:
            raise ValueError(text)
        return kind(text)

    return read


class KeyCheck:
    """Checks the keys of objects in JSON values that msgspec or pydantic has read: they are listed, and no two are equal.

    Args:
        schema: The schema of the values.
        definitions: What it refers to.
    """

    def __init__(self, schema: Schema, definitions: Mapping[str, Schema]) -> None:
        self._schema = schema
        self._root = {"$defs": definitions}
        self._comparison = SchemaComparison(self._root, patterns=False, keys=False, visits=sys.maxsize)
        #: By the `id` of a schema: whether a value of it may hold objects whose keys aren't strings.
        self._leads: dict[int, bool] = {}
        #: By the `id` of a schema of names.
        self._readers: dict[int, Sequence[Reader]] = {}

    @property
    def needed(self) -> bool:
        """Whether values may hold objects whose keys aren't strings."""
        return self._leads_to_keys(self._schema)

    def rejection(self, value: object) -> Rejection | None:
        """The first key of a JSON value that is wrong."""
        return self._wrong(self._schema, value, ())

    def _leads_to_keys(self, schema: object) -> bool:
        known = self._leads.get(id(schema))
        if known is None:
            known = self._leads[id(schema)] = self._reaches(schema, set())
        return known

    def _reaches(self, schema: object, seen: set[int]) -> bool:
        if isinstance(schema, list):
            return any(self._reaches(item, seen) for item in schema)
        if not isinstance(schema, Mapping) or id(schema) in seen:
            return False
        seen.add(id(schema))
        if "$ref" in schema and self._reaches(resolved(self._root, schema), seen):
            return True
        return bool(_readers(schema.get("propertyNames"))) or self._reaches(list(schema.values()), seen)

    def _wrong(self, schema: object, value: object, path: Path) -> Rejection | None:
        if not isinstance(value, dict | list) or not isinstance(schema, Mapping) or not self._leads_to_keys(schema):
            return None
        schema = resolved(self._root, schema)
        if branches := schema.get("anyOf") or schema.get("oneOf"):
            return self._wrong_in_all(branches, value, path)
        for part in schema.get("allOf", ()):
            if wrong := self._wrong(part, value, path):
                return wrong
        return self._object(schema, value, path) if isinstance(value, dict) else self._array(schema, value, path)

    def _wrong_in_all(self, branches: Sequence[Schema], value: object, path: Path) -> Rejection | None:
        """What is wrong in the first branch that was read, if something is wrong in each that may have been."""
        read = [branch for branch in branches if has_type(resolved(self._root, branch), value)]
        if len(read) > 1:
            read = [branch for branch in read if self._comparison.fits(branch, value)]
        wrong = [self._wrong(branch, value, path) for branch in read]
        return wrong[0] if wrong and None not in wrong else None

    def _object(self, schema: Schema, value: dict[str, Any], path: Path) -> Rejection | None:
        names = schema.get("propertyNames")
        readers = self._readers.get(id(names))
        if readers is None:
            readers = self._readers[id(names)] = _readers(names)
        if readers and (wrong := self._keys(names, readers, value, path)):
            return wrong
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        if not properties and not self._leads_to_keys(others):
            return None
        for name, item in value.items():
            if wrong := self._wrong(properties.get(name, others), item, (*path, name)):
                return wrong
        return None

    def _keys(self, names: Any, readers: Sequence[Reader], value: dict[str, Any], path: Path) -> Rejection | None:
        texts: dict[Hashable, str] = {}
        for text in value:
            try:
                key = _read(readers, text)
            except ValueError:
                expected = describe({"type": "string", **names}, self._root)
                return Rejection((*path, text), fallback=f"the key must be {expected}", key=True)
            other = texts.setdefault(key, text)
            if other is not text:
                same = msgspec.json.encode(other).decode()
                return Rejection((*path, text), fallback=f"means the same key as {same}; send one of the two", key=True)
        return None

    def _array(self, schema: Schema, value: list[Any], path: Path) -> Rejection | None:
        first, others = schema.get("prefixItems", ()), schema.get("items")
        if not first and not self._leads_to_keys(others):
            return None
        for index, item in enumerate(value):
            if wrong := self._wrong(first[index] if index < len(first) else others, item, (*path, index)):
                return wrong
        return None


def _read(readers: Sequence[Reader], text: str) -> Hashable:
    for read in readers:
        try:
            return read(text)
        except (ValueError, ArithmeticError, msgspec.ValidationError):
            pass
    raise ValueError(text)
