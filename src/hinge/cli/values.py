"""Convert `KEY=VALUE` on the command line to the arguments of a tool, by the types in its schema."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hinge.errors import StartError, shorten

_FORMS = "write KEY=VALUE, KEY:=JSON, or KEY=@FILE"


def parse_arguments(words: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the arguments of a tool.

    `key=value` is converted to the type of `key` in the schema, `key:=json` is JSON. `@file` in place of the value reads it
    from a file, `@-` from standard input; `@@` stands for an `@`. `a.b=1` sets a member of an object; a repeated key makes a
    list.

    Args:
        words: The arguments as they were typed.
        schema: The input schema of the tool.

    Returns:
        The arguments by name.

    Raises:
        StartError: An argument has no `=`, is given twice, isn't JSON, or names a file that can't be read.
    """
    found: dict[str, Any] = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not sign or not name.rstrip(":"):
            raise StartError(f"{shorten(word)!r} is not an argument: {_FORMS}")
        as_json = name.endswith(":")
        path, kind = _path(name.removesuffix(":"), schema)
        text = _from_file(path, text)
        _put(found, path, _json(path, text) if as_json else _convert(text, kind), kind)
    return found


def parse_strings(words: Sequence[str]) -> dict[str, str]:
    """Parse the arguments of a prompt, which are strings. Raises StartError."""
    return parse_arguments(words, {"additionalProperties": {"type": "string"}})


# ---------------------------------------------------------------- schemas


class _ArgumentSchema:
    """A schema, and the root schema that its references point into."""

    def __init__(self, schema: Any, root: Mapping[str, Any]) -> None:
        self.root = root
        self.schema: Mapping[str, Any] = self._resolved(schema)

    def _resolved(self, schema: Any) -> Mapping[str, Any]:
        for _ in range(8):
            reference = schema.get("$ref") if isinstance(schema, Mapping) else None
            if not isinstance(reference, str) or not reference.startswith("#/"):
                break
            target: Any = self.root
            for part in reference[2:].split("/"):
                target = target.get(part) if isinstance(target, Mapping) else None
            schema = target
        return schema if isinstance(schema, Mapping) else {}

    @property
    def options(self) -> list[_ArgumentSchema]:
        """The alternatives of the schema, or the schema itself."""
        several = [one for key in ("anyOf", "oneOf") for one in self.schema.get(key, ())]
        return [option for one in several for option in _ArgumentSchema(one, self.root).options] or [self]

    @property
    def kinds(self) -> set[str]:
        """The names of the types that it accepts; empty if it does not say."""
        types = [option.schema.get("type", ()) for option in self.options]
        return {kind for one in types for kind in ([one] if isinstance(one, str) else one)}

    @property
    def choices(self) -> list[Any]:
        """The values of its `enum`."""
        return [value for option in self.options for value in option.schema.get("enum", ())]

    def member(self, name: str) -> _ArgumentSchema | None:
        """Return the schema of a member; None if it is unknown."""
        for option in self.options:
            properties, rest = option.schema.get("properties"), option.schema.get("additionalProperties")
            if isinstance(properties, Mapping) and name in properties:
                return _ArgumentSchema(properties[name], self.root)
            if isinstance(rest, Mapping):
                return _ArgumentSchema(rest, self.root)
        return None

    @property
    def items(self) -> _ArgumentSchema:
        """The schema of the items of an array."""
        return next(
            (_ArgumentSchema(one.schema["items"], self.root) for one in self.options if "items" in one.schema), _ANY
        )


_ANY = _ArgumentSchema({}, {})


def _path(name: str, schema: Mapping[str, Any]) -> tuple[list[str], _ArgumentSchema]:
    """Split a key into member names, and find the schema. The longest declared name is preferred: names may contain dots."""
    here, path, left = _ArgumentSchema(schema, schema), list[str](), name
    while True:
        parts = left.split(".")
        heads = [".".join(parts[:size]) for size in range(len(parts), 0, -1)]
        known = next((head for head in heads if here.member(head) is not None), None)
        head = known if known is not None else (parts[0] if path or here.member(parts[0]) else left)
        path.append(head)
        here = here.member(head) or _ANY
        if head == left:
            return path, here
        left = left[len(head) + 1 :]


def _put(found: dict[str, Any], path: list[str], value: Any, kind: _ArgumentSchema) -> None:
    place: Any = found
    for part in path[:-1]:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise StartError(f"{'.'.join(path)}: {part} already has a value")
    name = path[-1]
    if "array" in kind.kinds:
        value = value if isinstance(value, list) else [value]
        value = [*place[name], *value] if isinstance(place.get(name), list) else value
    elif name in place:
        raise StartError(f"{'.'.join(path)} is given twice")
    place[name] = value


# ---------------------------------------------------------------- values


def _convert(text: str, schema: _ArgumentSchema) -> Any:
    """Convert a string to a type that the schema accepts. Otherwise return the string: the server reports the error."""
    if text in schema.choices:
        return text
    kinds = schema.kinds
    if "array" in kinds and not text.startswith("["):
        if "string" in kinds:
            return text
        items = schema.items
        parts = [text] if items.kinds <= {"string"} and not items.choices else text.split(",")
        return [_convert(part.strip() if len(parts) > 1 else part, items) for part in parts]
    if kinds == {"string"}:
        return text
    if "boolean" in kinds and text.lower() in _WORDS and "string" not in kinds:
        return _WORDS[text.lower()]
    try:
        found = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError):
        return text
    return found if "string" not in kinds or _kinds_of(found) & kinds else text


_WORDS = {"yes": True, "on": True, "no": False, "off": False, "true": True, "false": False}


def _kinds_of(value: Any) -> set[str]:
    if value is None:
        return {"null"}
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    return {{float: "number", str: "string", list: "array", dict: "object"}[type(value)]}


def _json(path: list[str], text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError) as exc:
        raise StartError(f"{'.'.join(path)}: {shorten(text)!r} is not JSON: {exc}") from exc


def _from_file(path: list[str], text: str) -> str:
    if text.startswith("@@"):
        return text[1:]
    if not text.startswith("@"):
        return text
    name = text[1:]
    read: Callable[[], bytes] = sys.stdin.buffer.read if name == "-" else Path(name).read_bytes
    try:
        return read().decode()
    except OSError as exc:
        hint = f"; for a value that begins with @, write @{shorten(text)}"
        raise StartError(f"{'.'.join(path)}: {shorten(name)} can't be read: {exc.strerror or exc}{hint}") from exc
    except UnicodeDecodeError as exc:
        raise StartError(f"{'.'.join(path)}: {shorten(name)} is not UTF-8 at byte {exc.start}") from exc
