"""What a schema of ours expects, in a few words for a model: `integer from 1 to 10`, `date string like "2026-01-31"`.

Knows the JSON Schema words that our own schemas use; judges no values, except whether a string has a format.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

Schema = Mapping[str, Any]

#: No more options than this are told.
_OPTIONS = 12

_EXAMPLES = {
    "date": '"2026-01-31"',
    "date-time": '"2026-01-31T12:00:00Z"',
    "time": '"12:00:00Z"',
    "duration": '"PT1H30M"',
    "uuid": '"12345678-1234-5678-1234-567812345678"',
    "decimal": '"1.50"',
    "email": '"name@example.org"',
    "uri": '"https://example.org/"',
}
_FORMATS: dict[str, type] = {
    "date": datetime.date,
    "date-time": datetime.datetime,
    "time": datetime.time,
    "duration": datetime.timedelta,
    "uuid": uuid.UUID,
    "decimal": decimal.Decimal,
}
_TYPES: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


def type_of(value: Any) -> str:
    """The JSON type of a decoded value; whole numbers are `integer`."""
    return _TYPES[type(value)]


def fits_format(schema: Schema, value: str) -> bool:
    """Whether the string has the schema's format or encoding; formats that aren't known here always fit."""
    wanted = bytes if schema.get("contentEncoding") == "base64" else _FORMATS.get(schema.get("format", ""))
    if wanted is None:
        return True
    try:
        msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        return False
    return True


def resolve_reference(root: Schema, reference: str) -> Schema:
    """The definition that a `#/$defs/...` reference names; an empty schema if there is none."""
    found: Schema = root.get("$defs", {}).get(reference.rpartition("/")[2], {})
    return found


def resolved(root: Schema, schema: Schema) -> Schema:
    """The schema, or the definition that it refers to."""
    reference = schema.get("$ref")
    return resolve_reference(root, reference) if isinstance(reference, str) else schema


def follow(root: Schema, path: Iterable[str | int]) -> Schema:
    """The schema for the place in a value that `path` names, as far as it can be told; else an empty schema."""
    schema = root
    for step in path:
        for branch in _branches(root, schema):
            inner = _step(branch, step)
            if inner is not None:
                schema = inner
                break
        else:
            return {}
    return schema


def _branches(root: Schema, schema: Schema) -> Sequence[Schema]:
    schema = resolved(root, schema)
    branches = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    return [resolved(root, branch) for branch in branches] if branches else [schema]


def _step(schema: Schema, step: str | int) -> Schema | None:
    if isinstance(step, int):
        first = schema.get("prefixItems", ())
        found = first[step] if step < len(first) else schema.get("items")
    else:
        found = schema.get("properties", {}).get(step, schema.get("additionalProperties"))
    return found if isinstance(found, Mapping) else None


def expected(schema: Schema | bool, root: Schema) -> str:
    """The words for what the schema wants; `root` holds the definitions that it refers to."""
    if not isinstance(schema, Mapping):
        return "any value" if schema else "nothing"
    schema = resolved(root, schema)
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        return " or ".join(dict.fromkeys(expected(branch, root) for branch in branches))
    if "const" in schema:
        return _json(schema["const"])
    if "enum" in schema:
        return _options(schema["enum"])
    types = schema.get("type", "any value")
    return " or ".join(_of_type(schema, kind) for kind in ([types] if isinstance(types, str) else types))


def _options(options: Sequence[Any]) -> str:
    shown = ", ".join(_json(option) for option in options[:_OPTIONS])
    more = f", … ({len(options)} in all)" if len(options) > _OPTIONS else ""
    return f"one of {shown}{more}" if len(options) > 1 else shown


def _of_type(schema: Schema, kind: str) -> str:
    if kind in ("integer", "number"):
        return kind + _number_limits(schema)
    if kind == "string":
        return _string(schema)
    if kind == "array":
        return kind + _count(schema, "Items", "item")
    if kind == "object":
        return kind + _count(schema, "Properties", "member")
    return kind


def _number_limits(schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        words = [f"from {least} to {most}"]
    else:
        words = [f">= {least}"] * (least is not None) + [f"<= {most}"] * (most is not None)
    words += [f"> {schema['exclusiveMinimum']}"] if "exclusiveMinimum" in schema else []
    words += [f"< {schema['exclusiveMaximum']}"] if "exclusiveMaximum" in schema else []
    words += [f"a multiple of {schema['multipleOf']}"] if "multipleOf" in schema else []
    return " " + " and ".join(words) if words else ""


def _string(schema: Schema) -> str:
    if schema.get("contentEncoding") == "base64":
        return "base64 string"
    text = "string"
    if form := schema.get("format"):
        text = f"{form} string"
        text += f" like {_EXAMPLES[form]}" if form in _EXAMPLES else ""
    text += _count(schema, "Length", "character")
    return text + (f" matching {schema['pattern']}" if "pattern" in schema else "")


def _count(schema: Schema, what: str, unit: str) -> str:
    least, most = schema.get(f"min{what}"), schema.get(f"max{what}")
    if least is None and most is None:
        return ""
    if least == most:
        return f" of {_plural(least, unit)}"
    if least and most is not None:
        return f" of {least} to {_plural(most, unit)}"
    return f" of at least {_plural(least, unit)}" if most is None else f" of at most {_plural(most, unit)}"


def _plural(count: int | None, unit: str) -> str:
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
