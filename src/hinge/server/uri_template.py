"""URI templates (RFC 6570, all four levels): values to a URI, and a URI back to values. Knows nothing of resources."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TypeAlias
from urllib.parse import quote

import msgspec

from hinge.server.uri_expressions import RESERVED, Expression, Operator, Part, Variable, parse
from hinge.server.uri_matching import Matched, Matcher

Scalar: TypeAlias = str | int | float | bool
Value: TypeAlias = Scalar | Sequence[Scalar] | Mapping[str, Scalar] | None

_TRIPLET = re.compile(r"(%[0-9A-Fa-f]{2})")


class UriTemplate:
    """A template, checked when it is made. `expand` and `match` go both ways.

    Raises DefinitionError for text that is no template: in one line, with the place and what to do.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts: tuple[Part, ...] = parse(text)

    def __repr__(self) -> str:
        return f"UriTemplate({self.text!r})"

    @property
    def variables(self) -> tuple[Variable, ...]:
        """All variables, in order."""
        return tuple(variable for part in self._parts if isinstance(part, Expression) for variable in part.variables)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the variables, in order."""
        return tuple(variable.name for variable in self.variables)

    @property
    def ending(self) -> str:
        """The literal that every expansion ends with; empty when there is none."""
        last = self._parts[-1] if self._parts else ""
        return last if isinstance(last, str) else ""

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Sorts the most specific template first.

        Before those that take any number of path segments (`{+x}`, `{/x*}`), then with more literal text, then with
        fewer variables.
        """
        wide = any(
            part.operator.sign == "+" or (part.operator.sign == "/" and part.variables[-1].explode)
            for part in self._parts
            if isinstance(part, Expression)
        )
        return wide, -sum(len(part) for part in self._parts if isinstance(part, str)), len(self.variables)

    def expand(self, values: Mapping[str, Value]) -> str:
        """The URI for these values (RFC 6570 section 3).

        A value is text, a number, a bool, a list or a mapping of these; None, an empty list and an empty mapping count
        as undefined, like names that are missing. Raises ValueError for a prefix (`:3`) of a list or mapping.
        """
        return "".join(part if isinstance(part, str) else _expanded(part, values) for part in self._parts)

    @cached_property
    def matcher(self) -> Matcher:
        """The way back, with its rules. Raises DefinitionError for a template that matches in no one clear way."""
        return Matcher(self.text, self._parts)

    def match(self, uri: str) -> Matched | None:
        """The variables of a URI, percent-decoded, or None for a URI that isn't of this kind.

        Text for a variable, a list of texts for one with `*`; what the URI leaves out is not among them. Raises
        DefinitionError as `matcher` does.
        """
        return self.matcher.match(uri)


def _expanded(expression: Expression, values: Mapping[str, Value]) -> str:
    operator = expression.operator
    pieces = [
        piece
        for variable in expression.variables
        for piece in [_piece(variable, values.get(variable.name), operator)]
        if piece is not None
    ]
    return operator.first + operator.separator.join(pieces) if pieces else ""


def _piece(variable: Variable, value: Value, operator: Operator) -> str | None:
    """What a variable adds; None when it is undefined."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        pairs = [(_encoded(key, operator.reserved), _scalar(item, operator)) for key, item in value.items()]
        mark = "=" if variable.explode else ","
        items = [f"{key}{mark}{item}" for key, item in pairs]
        return _joined(variable, items, operator, named=operator.named and not variable.explode)
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = [_scalar(item, operator) for item in value]
        if operator.named and variable.explode:
            items = [_named(variable.name, item, operator) for item in items]
        return _joined(variable, items, operator, named=operator.named and not variable.explode)
    text = _scalar(value, operator, variable.prefix)
    return _named(variable.name, text, operator) if operator.named else text


def _joined(variable: Variable, items: Sequence[str], operator: Operator, *, named: bool) -> str | None:
    if variable.prefix is not None:
        raise ValueError(f"{variable.name}:{variable.prefix}: only a text has a prefix, not a list or mapping")
    if not items:
        return None
    text = (operator.separator if variable.explode else ",").join(items)
    return _named(variable.name, text, operator) if named else text


def _named(name: str, text: str, operator: Operator) -> str:
    return f"{name}={text}" if text else name + operator.empty


def _scalar(value: Scalar, operator: Operator, prefix: int | None = None) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return _encoded(text[:prefix], operator.reserved)


def _encoded(text: str, reserved: bool) -> str:
    if not reserved:
        return quote(text, safe="")
    pieces = _TRIPLET.split(text)
    return "".join(piece if place % 2 else quote(piece, safe=RESERVED) for place, piece in enumerate(pieces))
