"""Arguments as the input schema of their tool describes them: which are secret, and which texts are decimal numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from gemel.policies.listing import member

#: What is shown in place of a secret.
_STARS = "**********"
#: How deep arguments and their schema are looked into, and at how many parts.
_DEEPEST, _VISITS = 50, 10_000
_NUMBER = re.compile(r"[+-]?[0-9]{1,100}(\.[0-9]{1,100})?([eE][+-]?[0-9]{1,3})?")


def without_secrets(tool: Any, arguments: Mapping[str, Any] | None) -> Any:
    """The arguments of a listed tool, with stars in place of those that its input schema marks as secret (`writeOnly`)."""
    return _changed(tool, arguments, _hidden, lambda value: _STARS)


def with_numbers(tool: Any, arguments: Mapping[str, Any] | None) -> Any:
    """The same with numbers in place of texts, where the input schema says that a text is one (`"format": "decimal"`).

    A number that no int or float is equal to remains a text.
    """
    return _changed(tool, arguments, _number, lambda value: value)


def _changed(
    tool: Any,
    arguments: Mapping[str, Any] | None,
    change: Callable[[Any, Mapping[str, Any]], Any],
    beyond: Callable[[Any], Any],
) -> Any:
    schema = None if tool is None or not arguments else member(tool, "input_schema", "inputSchema")
    return _Visit(schema, change, beyond).visit(arguments, schema) if isinstance(schema, Mapping) else arguments


def _hidden(value: Any, schema: Mapping[str, Any]) -> Any:
    return _STARS if schema.get("writeOnly") is True or schema.get("format") == "password" else value


def _number(value: Any, schema: Mapping[str, Any]) -> Any:
    if schema.get("format") != "decimal" or not isinstance(value, str) or _NUMBER.fullmatch(value) is None:
        return value
    exact, near = Decimal(value), float(value)
    if near.is_integer() and int(near) == exact:
        return int(near)
    return near if Decimal(repr(near)) == exact else value


class _Visit:
    """Changes the parts of a value by one schema.

    Args:
        root: The schema, with its definitions.
        change: Returns what a part becomes by its own schema.
        beyond: The same for a part that is not looked into: there are too many, or it is too deep.
    """

    def __init__(
        self,
        root: Mapping[str, Any],
        change: Callable[[Any, Mapping[str, Any]], Any],
        beyond: Callable[[Any], Any],
    ) -> None:
        definitions = root.get("$defs") or root.get("definitions")
        self._definitions = definitions if isinstance(definitions, Mapping) else {}
        self._change = change
        self._beyond = beyond
        self._visits = 0

    def visit(self, value: Any, schema: Any, levels: int = _DEEPEST) -> Any:
        """Return what a part becomes."""
        if not isinstance(schema, Mapping):
            return value
        self._visits += 1
        if not levels or self._visits > _VISITS:
            return self._beyond(value)
        value = self._change(value, schema)
        reference = schema.get("$ref")
        if isinstance(reference, str):
            value = self.visit(value, self._definitions.get(reference.rpartition("/")[2]), levels - 1)
        for keyword in ("anyOf", "oneOf", "allOf"):
            options = schema.get(keyword)
            for option in options if isinstance(options, list) else ():
                value = self.visit(value, option, levels - 1)
        if isinstance(value, Mapping):
            named, others = schema.get("properties"), schema.get("additionalProperties")
            known = named if isinstance(named, Mapping) else {}
            return {name: self.visit(one, known.get(name, others), levels - 1) for name, one in value.items()}
        if isinstance(value, list):
            return [self.visit(one, schema.get("items"), levels - 1) for one in value]
        return value
