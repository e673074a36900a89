"""Validators for JSON Schemas that somebody else wrote: bounded, local, in linear time (JSON-01…JSON-04).

The library is loaded when the first schema is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from hinge.errors import shorten
from hinge.protocol.schema_ways import Ways

if TYPE_CHECKING:
    import jsonschema_rs

#: A larger or deeper schema is refused rather than compiled.
MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
#: In how many ways a schema may look at one place of a value: some 50 ms of work.
MAX_WAYS = 1_000_000


def compile_schema(schema: Any) -> jsonschema_rs.Validator:
    """A validator by the dialect that `$schema` names, 2020-12 by default.

    References leave the schema only within itself: nothing is ever fetched. Raises ValueError, in words for people, for a
    schema that is too large, too deep, repeats itself too often, refers elsewhere, or is no valid schema.
    """
    import jsonschema_rs

    if len(msgspec.json.encode(schema)) > MAX_BYTES:
        raise ValueError(f"the schema is larger than {MAX_BYTES} bytes")
    if _depth(schema) > MAX_DEPTH:
        raise ValueError(f"the schema is nested deeper than {MAX_DEPTH} levels")
    if Ways(schema).count() > MAX_WAYS:
        raise ValueError(f"the schema looks at one place of a value in more than {MAX_WAYS:,} ways")
    try:
        return jsonschema_rs.validator_for(
            schema, retriever=_refuse, pattern_options=jsonschema_rs.RegexOptions(), mask="the value"
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as exc:
        raise ValueError(f"no usable JSON Schema: {shorten(_in_a_line(exc))}") from exc


def _in_a_line(exc: Exception) -> str:
    """What is wrong and where, without the picture that the library draws of it."""
    words = str(exc).partition("\n")[0]
    place = ".".join(map(str, getattr(exc, "instance_path", ())))
    return f"{place}: {words}" if place else words


def first_problem(validator: jsonschema_rs.Validator, value: Any) -> str | None:
    """Where the value doesn't fit and why, without the value itself; None when it fits."""
    error = next(iter(validator.iter_errors(value)), None)
    if error is None:
        return None
    place = ".".join(map(str, error.instance_path))
    return shorten(f"{place}: {error.message}" if place else error.message)


def _refuse(uri: str) -> Any:
    raise ValueError(f"it refers to {shorten(uri)}, and only references inside a schema are followed")


def _depth(schema: Any) -> int:
    deepest, left = 0, [(schema, 1)]
    while left and deepest <= MAX_DEPTH:
        item, depth = left.pop()
        deepest = max(deepest, depth)
        inner: Iterable[Any] = ()
        if isinstance(item, dict):
            inner = item.values()
        elif isinstance(item, list):
            inner = item
        left.extend((one, depth + 1) for one in inner)
    return deepest
