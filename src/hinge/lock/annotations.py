"""Words of a schema that demand nothing of a value but that a model reads: descriptions, titles, defaults, examples, …"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from hinge.lock.canonical import canonical
from hinge.lock.normal import LISTED, NAMED, ONE
from hinge.lock.problems import member
from hinge.lock.wording import text_changed

#: Words that proofs know, and words that only say how a schema is written.
_DEMANDS = frozenset(
    {
        *ONE,
        *LISTED,
        *NAMED,
        "$anchor",
        "$defs",
        "$dynamicAnchor",
        "$dynamicRef",
        "$id",
        "$recursiveRef",
        "$ref",
        "$schema",
        "$vocabulary",
        "const",
        "dependencies",
        "dependentRequired",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "maxContains",
        "maximum",
        "maxItems",
        "maxLength",
        "maxProperties",
        "minContains",
        "minimum",
        "minItems",
        "minLength",
        "minProperties",
        "multipleOf",
        "pattern",
        "required",
        "type",
        "uniqueItems",
    }
)
#: Mirrors an argument in a header: transport, which clients follow by themselves (HDR-13).
_HEADER = "x-mcp-header"


def notes(schema: Any, at: str) -> dict[str, Any]:
    """What a schema says beside its demands, by place and word: `input.city.description`."""
    found: dict[str, list[Any]] = {}
    for place, value in _notes(schema, at):
        found.setdefault(place, []).append(value)
    return {place: values[0] if len(values) == 1 else sorted(values, key=canonical) for place, values in found.items()}


def word_changed(
    before: Any, after: Any, at: str
) -> Iterator[tuple[str, Literal["harmless", "text", "may break"], str]]:
    """Place, severity and words of each note that changed. A default that changed is what happens to who leaves it out."""
    was, now = notes(before, at), notes(after, at)
    for place in sorted(was.keys() | now.keys()):
        old, new = was.get(place), now.get(place)
        if place in was and place in now and canonical(old) == canonical(new):
            continue
        word = place.rpartition(".")[2]
        severity: Literal["harmless", "text", "may break"] = "text"
        if word == _HEADER:
            severity = "harmless"
        elif word == "default" and at == "input" and place in was:
            severity = "may break"
        elif word == "default" and not has_text(new):
            severity = "harmless"
        yield place, severity, text_changed(old, new)


def has_text(value: Any) -> bool:
    """Whether there are words in a JSON value."""
    if isinstance(value, dict):
        return bool(value)
    return any(map(has_text, value)) if isinstance(value, list) else isinstance(value, str) and value != ""


def _notes(schema: Any, at: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(schema, dict):
        return
    for word, value in schema.items():
        if word not in _DEMANDS:
            yield member(at, word), value
        elif word in ("properties", "patternProperties", "dependentSchemas") and isinstance(value, dict):
            for name, inner in value.items():
                yield from _notes(inner, member(at, name))
        elif word in ("$defs", "definitions") and isinstance(value, dict):
            for name, inner in value.items():
                yield from _notes(inner, member(f"{at}.{word}", name))
        elif word in LISTED and isinstance(value, list):
            for place, inner in enumerate(value):
                yield from _notes(inner, f"{at}[{place}]" if word == "prefixItems" else at)
        elif word in ONE and isinstance(value, dict):
            yield from _notes(value, f"{at}[]" if word == "items" else at)
