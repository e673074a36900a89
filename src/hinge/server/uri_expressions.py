"""URI templates as their author wrote them: RFC 6570 text to literals and expressions. Knows no values."""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias
from urllib.parse import quote

from hinge.errors import DefinitionError, shorten

#: A template is written by hand: more than this is a mistake.
MAX_TEMPLATE = 2048
MAX_VARIABLES = 32

_VARIABLE = re.compile(
    r"(?P<name>(?:\w|%[0-9A-Fa-f]{2})+(?:\.(?:\w|%[0-9A-Fa-f]{2})+)*)(?:(?P<explode>\*)|:(?P<prefix>[1-9]\d{0,3}))?",
    re.ASCII,
)
#: What no literal holds (RFC 6570 section 2.1, with the apostrophe that its errata gives back).
_NO_LITERAL = re.compile(r"[\x00-\x20\"<>\\^`|}\x7f]|%(?![0-9A-Fa-f]{2})")
#: The characters that separate the parts of a URI (RFC 3986 section 2.2).
RESERVED = ":/?#[]@!$&'()*+,;="
#: Kept by RFC 6570 section 2.2 for later versions.
_LATER_OPERATORS = "=,!@|"


class Operator(NamedTuple):
    """How the values of an expression are put together (RFC 6570 appendix A)."""

    sign: str
    first: str
    separator: str
    #: Whether values come as `name=value`, and what stands behind the name of an empty one.
    named: bool
    empty: str
    #: Whether reserved characters stay as they are.
    reserved: bool


OPERATORS = {
    "": Operator("", "", ",", False, "", False),
    "+": Operator("+", "", ",", False, "", True),
    "#": Operator("#", "#", ",", False, "", True),
    ".": Operator(".", ".", ".", False, "", False),
    "/": Operator("/", "/", "/", False, "", False),
    ";": Operator(";", ";", ";", True, "", False),
    "?": Operator("?", "?", "&", True, "=", False),
    "&": Operator("&", "&", "&", True, "=", False),
}


class Variable(NamedTuple):
    """One variable: `explode` is its `*`, `prefix` the length after its `:`."""

    name: str
    explode: bool
    prefix: int | None


class Expression(NamedTuple):
    """What stands between braces."""

    operator: Operator
    variables: tuple[Variable, ...]

    def __str__(self) -> str:
        inner = ",".join(
            item.name + ("*" if item.explode else f":{item.prefix}" if item.prefix else "") for item in self.variables
        )
        return f"{{{self.operator.sign}{inner}}}"


Part: TypeAlias = str | Expression


def mistake(template: str, what: str) -> DefinitionError:
    """The error for the author of a template, in one line."""
    return DefinitionError(f"URI template {shorten(template)!r}: {what}")


def parse(template: str) -> tuple[Part, ...]:
    """Literals (as they stand in a URI) and expressions in order, never two literals in a row.

    Raises DefinitionError, saying where and why.
    """
    if len(template) > MAX_TEMPLATE:
        raise mistake(template, f"it has {len(template)} characters, {MAX_TEMPLATE} is the limit")
    parts: list[Part] = []
    place = 0
    while place < len(template):
        start = template.find("{", place)
        if start != place:
            start = len(template) if start < 0 else start
            parts.append(_literal(template, place, start))
            place = start
            continue
        end = template.find("}", start)
        if end < 0:
            raise mistake(template, f"the brace at character {start + 1} is never closed")
        parts.append(_expression(template, template[start + 1 : end]))
        place = end + 1
    count = sum(len(part.variables) for part in parts if isinstance(part, Expression))
    if count > MAX_VARIABLES:
        raise mistake(template, f"it has {count} variables, {MAX_VARIABLES} is the limit")
    return tuple(parts)


def _literal(template: str, start: int, end: int) -> str:
    text = template[start:end]
    bad = _NO_LITERAL.search(text)
    if bad is not None:
        place = start + bad.start() + 1
        raise mistake(template, f"{bad.group()!r} at character {place} can't stand in a URI: percent-encode it")
    return quote(text, safe=RESERVED + "%")


def _expression(template: str, inner: str) -> Expression:
    sign = inner[:1]
    if sign and sign in _LATER_OPERATORS:
        raise mistake(template, f"{{{inner}}}: the operator {sign!r} has no meaning yet")
    operator = OPERATORS.get(sign, OPERATORS[""])
    variables: list[Variable] = []
    for text in inner[len(operator.sign) :].split(","):
        found = _VARIABLE.fullmatch(text)
        if found is None:
            raise mistake(template, f"{{{inner}}}: {text!r} is no variable: use letters, digits and _, then * or :n")
        prefix = found["prefix"]
        variables.append(Variable(found["name"], found["explode"] is not None, int(prefix) if prefix else None))
    return Expression(operator, tuple(variables))
