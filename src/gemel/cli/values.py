"""Convert `KEY=VALUE` on the command line to the arguments of a tool, by the types in its schema."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from math import isinf
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from gemel.errors import StartError, shorten

_FORMS = "write KEY=VALUE, KEY:=JSON, or KEY=@FILE"


def parse_arguments(words: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the arguments of a tool.

    `key=value` is converted to the type of `key` in the schema, `key:=json` is JSON. `@file` in place of the value reads it
    from a file, `@-` from standard input; `@@` stands for an `@`. `a.b=1` sets a member of an object; a repeated key makes a
    list. Numbers keep their digits: one that no float has is `msgspec.Raw`, or text if the schema accepts a decimal as text.

    Args:
        words: The arguments as they were typed.
        schema: The input schema of the tool.

    Returns:
        The arguments by name.

    Raises:
        StartError: An argument has no `=`, is given twice, isn't JSON, or names a file that can't be read.
    """
    arguments: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.rstrip(":"):
            raise StartError(f"{shorten(word)!r} is not an argument: {_FORMS}")
        path, member = _find_member(name.removesuffix(":"), schema)
        text = _read_file(path, text)
        _set(arguments, path, _parse_json(path, text) if name.endswith(":") else _convert(text, member), member)
    return arguments


def parse_strings(words: Sequence[str]) -> dict[str, str]:
    """Parse the arguments of a prompt, which are strings. Raises StartError."""
    return parse_arguments(words, {"additionalProperties": {"type": "string"}})


# ---------------------------------------------------------------- schemas


class _ArgumentSchema:
    """A schema, and the root schema that its references point into."""

    def __init__(self, schema: object, root: Mapping[str, Any]) -> None:
        for _ in range(8):
            reference = schema.get("$ref") if isinstance(schema, Mapping) else None
            if not isinstance(reference, str) or not reference.startswith("#/"):
                break
            schema = root
            for part in reference[2:].split("/"):
                schema = schema.get(part) if isinstance(schema, Mapping) else None
        self.root = root
        self.schema: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}

    @property
    def alternatives(self) -> list[_ArgumentSchema]:
        """The alternatives of the schema, or the schema itself."""
        schemas = [*self.schema.get("anyOf", ()), *self.schema.get("oneOf", ())]
        return [inner for schema in schemas for inner in _ArgumentSchema(schema, self.root).alternatives] or [self]

    @property
    def types(self) -> set[str]:
        """The names of the types that it accepts; empty if it does not say."""
        declared = [alternative.schema.get("type", []) for alternative in self.alternatives]
        return {name for names in declared for name in ([names] if isinstance(names, str) else names)}

    @property
    def choices(self) -> list[Any]:
        """The values of its `enum`."""
        return [value for alternative in self.alternatives for value in alternative.schema.get("enum", ())]

    @property
    def items(self) -> _ArgumentSchema:
        """The schema of the items of an array."""
        declared = (each.schema["items"] for each in self.alternatives if "items" in each.schema)
        return _ArgumentSchema(next(declared, None), self.root)

    @property
    def takes_decimal_text(self) -> bool:
        """Whether it accepts a number as a string, as Gemel and pydantic list a Decimal."""
        texts = (each.schema for each in self.alternatives if each.schema.get("type") == "string")
        return any(text.get("format") == "decimal" or "pattern" in text for text in texts)

    def member(self, name: str) -> _ArgumentSchema | None:
        """Return the schema of a member; None if it is unknown."""
        for alternative in self.alternatives:
            properties = alternative.schema.get("properties")
            additional = alternative.schema.get("additionalProperties")
            if isinstance(properties, Mapping) and name in properties:
                return _ArgumentSchema(properties[name], self.root)
            if isinstance(additional, Mapping):
                return _ArgumentSchema(additional, self.root)
        return None


def _find_member(key: str, schema: Mapping[str, Any]) -> tuple[list[str], _ArgumentSchema]:
    """Split a key into member names, and find the schema. The longest declared name is preferred: names may contain dots."""
    parent, path = _ArgumentSchema(schema, schema), list[str]()
    while True:
        parts = key.split(".")
        prefixes = [".".join(parts[:size]) for size in range(len(parts), 0, -1)]
        undeclared = parts[0] if path else key
        name = next((prefix for prefix in prefixes if parent.member(prefix) is not None), undeclared)
        path.append(name)
        parent = parent.member(name) or _ArgumentSchema(None, schema)
        if name == key:
            return path, parent
        key = key[len(name) + 1 :]


def _set(arguments: dict[str, Any], path: list[str], value: object, schema: _ArgumentSchema) -> None:
    for part in path[:-1]:
        arguments = arguments.setdefault(part, {})
        if not isinstance(arguments, dict):
            raise StartError(f"{'.'.join(path)}: {part} already has a value")
    name = path[-1]
    if "array" in schema.types:
        value = value if isinstance(value, list) else [value]
        value = [*arguments[name], *value] if isinstance(arguments.get(name), list) else value
    elif name in arguments:
        raise StartError(f"{'.'.join(path)} is given twice")
    arguments[name] = value


# ---------------------------------------------------------------- values


def _convert(text: str, schema: _ArgumentSchema) -> Any:
    """Convert a string to a type that the schema accepts. Otherwise return the string: the server reports the error."""
    types = schema.types
    if text in schema.choices:
        return text
    if "array" in types and not text.startswith("["):
        if "string" in types:
            return text
        items = schema.items
        if items.types <= {"string"} and not items.choices:
            return [_convert(text, items)]
        return [_convert(part.strip(), items) for part in text.split(",")]
    if types == {"string"}:
        return text
    if "boolean" in types and text.lower() in _WORDS and "string" not in types:
        return _WORDS[text.lower()]
    try:
        value = _decode(text.encode())
    except (msgspec.DecodeError, RecursionError):
        return text
    if type(value) is Raw and schema.takes_decimal_text:
        return text
    return value if "string" not in types or _TYPES[type(value)] & types else text


def _exact(text: str) -> float | Raw:
    """A number that isn't an integer: a float if that has the same digits, otherwise as it was typed, for a Decimal."""
    value = float(text)
    if isinf(value):
        raise msgspec.DecodeError("a number is out of range")
    return value if repr(value) == text else Raw(text.encode())


_decode = msgspec.json.Decoder(float_hook=_exact).decode


_WORDS = {"yes": True, "on": True, "no": False, "off": False, "true": True, "false": False}
#: Of a parsed value: the names of its type in JSON Schema.
_TYPES: dict[type, set[str]] = {
    type(None): {"null"},
    bool: {"boolean"},
    int: {"integer", "number"},
    float: {"number"},
    Raw: {"number"},
    str: {"string"},
    list: {"array"},
    dict: {"object"},
}


def _parse_json(path: list[str], text: str) -> Any:
    try:
        return _decode(text.encode())
    except (msgspec.DecodeError, RecursionError) as exc:
        raise StartError(f"{'.'.join(path)}: {shorten(text)!r} is not JSON: {exc}") from exc


def _read_file(path: list[str], text: str) -> str:
    """Replace `@FILE` by its content."""
    if text.startswith("@@"):
        return text[1:]
    if not text.startswith("@"):
        return text
    name = text[1:]
    try:
        return (sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()).decode()
    except OSError as exc:
        hint = f"; for a value that begins with @, write @{shorten(text)}"
        raise StartError(f"{'.'.join(path)}: {shorten(name)} can't be read: {exc.strerror or exc}{hint}") from exc
    except UnicodeDecodeError as exc:
        raise StartError(f"{'.'.join(path)}: {shorten(name)} is not UTF-8 at byte {exc.start}") from exc
