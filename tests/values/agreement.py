"""Holds what a server accepts and sends against what it lists, for any annotation."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import fractions
import ipaddress
import json
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import jsonschema_rs
import msgspec
import pydantic

from gemel import Client, DefinitionError, Server
from gemel.values.encoding import NotSerializable, plain_value
from gemel.values.reading import read_as
from tests.values.annotations import Made, Source, annotation

#: The error for two names of members that mean the same key, which no schema can tell.
_SAME_KEY = "means the same key as"
#: Values that fit an annotation, and others, that are tried as arguments and as results.
FITTING, OTHERS = 4, 8


def _reads(kind: Any) -> Any:
    by_pydantic = pydantic.TypeAdapter(kind).validate_json

    def reads(text: str) -> bool:
        with suppress(ValueError):
            msgspec.convert(text, kind)
            return True
        with suppress(ValueError):
            by_pydantic(json.dumps(text), strict=True)
            return True
        return False

    return reads


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True


def _is(kind: Any) -> Any:
    def reads(text: str) -> bool:
        try:
            kind(text)
        except ValueError:
            return False
        return True

    return reads


#: Formats that JSON Schema does not have, or not as the documents say: durations may have fractions and a sign.
_FORMATS = {
    "base64": _is_base64,
    "base64url": _is_base64,
    "contentEncoding base64": _is_base64,
    "contentEncoding base64url": _is(base64.urlsafe_b64decode),
    "decimal": _reads(decimal.Decimal),
    "duration": _reads(dt.timedelta),
}
#: Formats of pydantic's own, which is strict when it reads them.
_READ_FORMATS = {**_FORMATS, "fraction": _is(fractions.Fraction), "ipv6network": _is(ipaddress.IPv6Network)}
#: What is read as well: dates and times without a time zone, in other notations of ISO 8601, and as numbers in a text; in
#: pydantic's encoded bytes other characters, which are left out, and the other alphabet of base64.
_LENIENT_FORMATS = {
    **_READ_FORMATS,
    "base64": lambda text: True,
    "base64url": lambda text: True,
    "contentEncoding base64": lambda text: True,
    "date": _reads(dt.date),
    "date-time": _reads(dt.datetime),
    "time": _reads(dt.time),
    "uuid": _reads(uuid.UUID),
}


def judge(schema: Any, formats: Any = _FORMATS) -> Callable[[Any], bool]:
    """A function that validates a value, with formats and encodings."""
    return _validator(_prepared(schema, lambda part: part), formats)


def _reading_judge(schema: Any) -> Callable[[Any], bool]:
    """The same for what is read.

    A model that is read by the names of its fields, too, reads no other value for a member of such a name: further members
    of it don't fit here.
    """

    def without_names(part: dict[str, Any]) -> dict[str, Any]:
        return {**part, "additionalProperties": False} if _is_by_name(part) else part

    return _validator(_prepared(schema, without_names), _READ_FORMATS)


def _validator(schema: Any, formats: Any) -> Callable[[Any], bool]:
    return jsonschema_rs.validator_for(schema, validate_formats=True, formats=formats).is_valid


def lenient_judge(schema: Any, *, flags: bool) -> Callable[[Any], bool]:
    """The same for all that is read: what the documents say is read beyond the schema, and the formats above."""

    def leniency(part: dict[str, Any]) -> dict[str, Any]:
        # Duplicates in a set, names beside aliases, a struct without its tag, and true and false for the 1 and 0 of an enum,
        # or of one of `flags`, which are equal in Python.
        properties = part.get("properties", {})
        left_out = {"uniqueItems", "maxItems"} if "uniqueItems" in part else set()
        if _is_by_name(part):
            left_out |= {"required", "additionalProperties"}
        made = {word: value for word, value in part.items() if word not in left_out}
        if "required" in made:
            tags = {name for name, inner in properties.items() if "const" in inner}
            made["required"] = [name for name in made["required"] if name not in tags]
        options = part.get(
            "enum", [part["const"]] if "const" in part else [0, 1] if flags and part.get("type") == "integer" else []
        )
        if isinstance(options, list) and (numbers := [one for one in options if one in (0, 1)]):
            made = {"anyOf": [made, {"enum": [*map(bool, numbers), *map(int, numbers)]}]}
        return made

    return _validator(_prepared(schema, leniency), _LENIENT_FORMATS)


def _is_by_name(schema: Mapping[str, Any]) -> bool:
    """Whether it is the schema of a model that is read by aliases and by names."""
    return str(schema.get("title", "")).startswith("ByName")


def _prepared(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if isinstance(schema, list):
        return [_prepared(item, change) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _prepared(value, change) for key, value in schema.items()}
    if isinstance(encoding := made.get("contentEncoding"), str):
        made["format"] = f"contentEncoding {encoding}"
    return change(made)


# ---------------------------------------------------------------- JSON values

SCALARS: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 3, -7, 2, 4, 0.5, 1.0, 2.5, 2**63),
    *("", "a", "red", "b", "1", "01", "1.5", "true", "A-1", "cat", "é", "aGk="),
    *(
        "2026-01-31",
        "2026-01-31T12:00:00Z",
        "12:30:00Z",
        "PT1H",
        "12345678-1234-5678-1234-567812345678",
        "/a",
        "1.2.3.4",
    ),
)


def value_for(schema: Any, root: Any, source: Source, depth: int = 4) -> Any:
    """A value that probably fits a schema."""
    if not isinstance(schema, dict) or not schema or depth < 0:
        return source.one(SCALARS)
    if reference := schema.get("$ref"):
        return value_for(root["$defs"][reference.rpartition("/")[2]], root, source, depth - 1)
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return value_for(source.one(schema[word]), root, source, depth)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return source.one(schema["enum"])
    kind = schema.get("type")
    match source.one(kind) if isinstance(kind, list) else kind:
        case "object":
            return _object_for(schema, root, source, depth)
        case "array":
            first = [value_for(item, root, source, depth - 1) for item in schema.get("prefixItems", ())]
            rest = schema.get("items", True)
            count = source.below(3) + schema.get("minItems", 0) if rest is not False else 0
            return first + [value_for(rest, root, source, depth - 1) for _ in range(max(0, count - len(first)))]
        case "string":
            return _text_for(schema, source)
        case "integer":
            least: Any = schema.get("minimum", schema.get("exclusiveMinimum", -2))
            return least + source.below(5)
        case "number":
            return source.one((0.5, 1, 0.25, 3.0, -1.5, schema.get("minimum", 0)))
        case "boolean":
            return source.chance(1, 2)
        case "null":
            return None
    return source.one(SCALARS)


def _object_for(schema: Any, root: Any, source: Source, depth: int) -> dict[str, Any]:
    required = schema.get("required", ())
    made = {
        name: value_for(inner, root, source, depth - 1)
        for name, inner in schema.get("properties", {}).items()
        if name in required or (depth > 0 and source.chance(1, 2))
    }
    others = schema.get("additionalProperties", True)
    names = schema.get("propertyNames")
    if others is not False and (not made or source.chance(1, 4)):
        for _ in range(source.below(3)):
            name = (
                value_for(names, root, source, depth)
                if names
                else source.one(("a", "x", "1", "-7", "0.5", "true", "01", "yes"))
            )
            made[name if isinstance(name, str) else json.dumps(name)] = value_for(others, root, source, depth - 1)
    for pattern, inner in schema.get("patternProperties", {}).items():
        made[_text_for({"pattern": pattern}, source)] = value_for(inner, root, source, depth - 1)
    return made


_EXAMPLES = {
    "base64": ("aGk=", ""),
    "date": ("2026-01-31",),
    "date-time": ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00"),
    "decimal": ("1.5", "3"),
    "duration": ("PT1H", "P1D"),
    "time": ("12:30:00Z", "12:30:00"),
    "uuid": ("12345678-1234-5678-1234-567812345678",),
    "ipv4": ("1.2.3.4",),
    "ipv6network": ("::/8",),
    "uri": ("http://a.example/",),
    "path": ("/a",),
    "fraction": ("1/2",),
}


def _text_for(schema: Any, source: Source) -> str:
    form = "base64" if schema.get("contentEncoding") == "base64" else schema.get("format")
    texts: tuple[str, ...] = _EXAMPLES.get(
        form, ("a", "ab", "abc", "A-1", "red", "1", "-7", "0.5", "true", "", "2", "3")
    )
    return source.one(texts)


def changed(value: Any, source: Source) -> Any:
    """A value with one part changed."""
    if isinstance(value, dict) and value and source.chance(3, 4):
        name = source.one(sorted(value))
        match source.below(4):
            case 0:
                return {key: one for key, one in value.items() if key != name}
            case 1:
                return {
                    **value,
                    source.one(("extra", "1", "a", "RED", "-3", "01", "1.0", "True", "nan")): source.one(SCALARS),
                }
            case _:
                return {**value, name: changed(value[name], source)}
    if isinstance(value, list) and value and source.chance(3, 4):
        place = source.below(len(value))
        match source.below(4):
            case 0:
                return value[:place] + value[place + 1 :]
            case 1:
                return [*value, value[place]]
            case _:
                return [*value[:place], changed(value[place], source), *value[place + 1 :]]
    return source.one((*SCALARS, [], {}, [value], {"a": value}))


# ---------------------------------------------------------------- what a server accepts and sends


async def disagreements(sources: Iterable[Source], *, list_null: bool = True) -> tuple[list[str], int]:
    """What a server accepts or sends against its listing, and how many annotations were registered.

    Without `list_null`, null is accepted where it is not listed, and so only what is refused is looked at.
    """
    server: Server[Any] = Server("values", list_null=list_null)
    made: list[_Tools] = []
    for number, source in enumerate(sources):
        try:
            one = annotation(source)
        except (pydantic.PydanticUserError, pydantic.ValidationError):  # no model that there can be
            continue
        with suppress(DefinitionError):  # it is refused
            made.append(_Tools(one, source, server, str(number), exact=list_null))
    logger = logging.getLogger("gemel")
    logger.disabled = True  # each result that is refused is an error
    try:
        async with Client(server) as client:
            listed = {tool.name: tool for tool in await client.list_tools()}
            for tools in made:
                await tools.check(client, listed)
    finally:
        logger.disabled = False
    return [text for tools in made for text in tools.wrong], len(made)


class _Tools:
    """A tool that takes a value of an annotation, and one that gives it."""

    def __init__(self, made: Made, source: Source, server: Server[Any], name: str, *, exact: bool) -> None:
        """Raises DefinitionError for an annotation that is refused."""
        self.wrong: list[str] = []
        self._exact = exact
        self._made = made
        self._source = source
        self._returned: Any = None

        async def take(x: Any) -> str:
            return "taken"

        async def give() -> Any:
            return self._returned

        take.__annotations__["x"] = made.annotation
        give.__annotations__["return"] = made.annotation
        self._take, self._give = f"take_{name}", f"give_{name}"
        server.tool(self._take)(take)
        server.tool(self._give)(give)

    async def check(self, client: Client, listed: Mapping[str, Any]) -> None:
        """Try arguments and results, those that fit and others."""
        written: list[Any] = []
        for value in self._values():
            with suppress(NotSerializable):
                written.append(plain_value(value))
        read = listed[self._take].input_schema
        await self._check_arguments(client, read, written)
        await self._check_results(client, listed[self._give].output_schema, read, self._values(), written)

    def _values(self) -> list[Any]:
        values: list[Any] = []
        for _ in range(FITTING):
            with suppress(pydantic.ValidationError):  # the parts of a model have its configuration, too
                values.append(self._made.value(self._source))
        return values

    async def _check_arguments(self, client: Client, schema: Any, written: Sequence[Any]) -> None:
        has_flags = any(name in self._made.text for name in ("Bits", "Rights", "Alone"))
        fits, may_fit = _reading_judge(schema), lenient_judge(schema, flags=has_flags)
        candidates = [*written, *(value_for(schema["properties"]["x"], schema, self._source) for _ in range(OTHERS))]
        candidates += [changed(self._source.one(candidates), self._source) for _ in range(OTHERS)]
        if has_flags:  # pydantic reads flags of up to 64 bits
            candidates = [candidate for candidate in candidates if str(2**63) not in json.dumps(candidate)]
        for candidate in candidates:
            arguments = {"x": candidate}
            result = await client.request("tools/call", {"name": self._take, "arguments": arguments})
            accepted, text = not result.get("isError"), result["content"][0]["text"]
            if not accepted and not text.startswith("Invalid arguments"):
                self._report("fails for", candidate, text, schema)
            elif fits(arguments) and not accepted and _SAME_KEY not in text:
                self._report("refuses", candidate, text, schema)
            elif accepted and self._exact and not may_fit(arguments):
                self._report("accepts", candidate, text, schema)

    async def _check_results(
        self, client: Client, schema: Any, read: Any, fitting: Sequence[Any], written: Sequence[Any]
    ) -> None:
        if schema is None:
            return
        fits, is_read = judge(schema), _reading_judge(read)
        others = [*SCALARS[:4], *(changed(one, self._source) for one in written)]
        for number, value in enumerate([*fitting, *others]):
            self._returned = value
            result = await client.request("tools/call", {"name": self._give, "arguments": {}})
            if result.get("isError"):
                if number < len(fitting):
                    self._report("does not send", value, result["content"][0]["text"], schema)
                continue
            sent = result["structuredContent"]
            if not fits(sent):
                self._report("sends", value, sent, schema)
            elif number < len(fitting) and is_read({"x": sent}):
                try:
                    read_as(self._made.annotation, json.dumps(sent).encode())
                except Exception as exc:
                    self._report("can't read", sent, exc, schema)

    def _report(self, what: str, value: Any, more: Any, schema: Any) -> None:
        self.wrong.append(f"{self._made.text} {what} {value!r}: {more}; listed is {json.dumps(schema)}")
