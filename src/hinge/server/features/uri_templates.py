"""URI templates (RFC 6570): parsing them, expanding them to URIs, and matching URIs against them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, TypeAlias
from urllib.parse import quote, unquote_to_bytes

import msgspec

from hinge.errors import DefinitionError, shorten

#: Limits of a template, which is written by hand.
MAX_TEMPLATE = 2048
MAX_VARIABLES = 32

_VARIABLE = re.compile(
    r"(?P<name>(?:\w|%[0-9A-Fa-f]{2})+(?:\.(?:\w|%[0-9A-Fa-f]{2})+)*)(?:(?P<explode>\*)|:(?P<prefix>[1-9]\d{0,3}))?",
    re.ASCII,
)
#: Not allowed in literals (RFC 6570 section 2.1; its errata allows the apostrophe).
_NO_LITERAL = re.compile(r"[\x00-\x20\"<>\\^`|}\x7f]|%(?![0-9A-Fa-f]{2})")
#: The characters that separate the parts of a URI (RFC 3986 section 2.2).
RESERVED = ":/?#[]@!$&'()*+,;="
#: Reserved by RFC 6570 section 2.2 for later versions.
_LATER_OPERATORS = "=,!@|"


class Operator(NamedTuple):
    """How an expression joins its values (RFC 6570 appendix A)."""

    sign: str
    first: str
    separator: str
    #: Whether values are written as `name=value`, and what follows the name of an empty one.
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
    """The part of a template between braces."""

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
    """Parse a template into literals, encoded for a URI, and expressions; never two literals in a row.

    Raises DefinitionError, which says where and why.
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
        raise mistake(template, f"{bad.group()!r} at character {place} isn't allowed in a URI: percent-encode it")
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
            raise mistake(template, f"{{{inner}}}: {text!r} is not a variable: use letters, digits and _, then * or :n")
        prefix = found["prefix"]
        variables.append(Variable(found["name"], found["explode"] is not None, int(prefix) if prefix else None))
    return Expression(operator, tuple(variables))


Matched: TypeAlias = dict[str, str | list[str]]

#: Values of one variable with a `*`, and parameters of one query; a URI with more is not matched.
MAX_ITEMS = 1000

_BROKEN = re.compile(r"%(?![0-9A-Fa-f]{2})")


class _Slot(NamedTuple):
    """A place for a value, which contains none of `stops`; `separator` splits it into a list."""

    name: str
    separator: str | None
    stops: str
    wide: bool = False


class _Option(NamedTuple):
    """A value at the end of the path that may be missing; it ends at the first of `stops`."""

    sign: str
    variable: Variable
    stops: str


class Matcher:
    """Matches the URIs that a template expands to, with these rules:

    - `{x}` matches one or more characters other than `/ ? #` (and `&` after a `?` in the template); other reserved
      characters may be unencoded. `{x,y}` needs both values, and then plain values contain no comma.
    - `{+x}` matches any characters, slashes too, except a query and a fragment that the template itself has. At most one
      per template.
    - `{.x}`, `{/x}` and `{;x}` may be missing at the end of the path, unless a `{+x}` comes before them; elsewhere they
      may not. `{?x}`, `{&x}` and `{#x}` may be missing. Query parameters may be in any order; a URI with a parameter that
      the template doesn't name, or with one twice, doesn't match.
    - Where a URI could be divided in several ways, each value is as short as possible, from the left (after a `{+x}`,
      from the right); no other way is tried.
    - Literals are compared as they are in an expanded URI. Values are percent-decoded once, after matching; a value that
      doesn't decode to UTF-8 doesn't match.

    Raises DefinitionError for a template that can't be matched in one clear way: `{x:3}` (the rest of the value is lost),
    values without text between them, a variable that occurs twice, anything but a fragment after a query.
    """

    __slots__ = (
        "_after",
        "_ampersands",
        "_asks",
        "_before",
        "_final",
        "_fragment",
        "_last",
        "_lead",
        "_options",
        "_query",
        "_signs",
        "_wide",
    )

    def __init__(self, text: str, parts: Sequence[Part]) -> None:
        _check_variables(text, parts)
        rest = list(parts)
        self._fragment = _fragment(text, rest)
        #: Whether the query starts with a variable, and the names of its parameters, with their `*`.
        self._asks, self._query = _query(text, rest)
        self._options = _options(text, rest)
        self._signs = {option.sign for option in self._options}
        items = _items(text, rest)
        #: How many `&` precede the first variable in the query.
        self._ampersands = 0 if self._asks else 1 + sum(item.count("&") for item in items if isinstance(item, str))
        self._lead = next((item for item in items[:1] if isinstance(item, str)), "")
        pairs = _pairs(text, items)
        wide = next((place for place, (slot, _) in enumerate(pairs) if slot.wide), None)
        #: Values with the literal after them, from the left; `_final` ends the path.
        self._before = pairs[:wide] if wide is not None else pairs[:-1]
        self._final = pairs[-1] if pairs and wide is None else None
        self._wide = pairs[wide][0] if wide is not None else None
        #: After a `{+x}`: literals with the value after them, and the literal at the end.
        behind = pairs[wide:] if wide is not None else []
        self._after = [(one[1], other[0]) for one, other in pairwise(behind)]
        self._last = behind[-1][1] if behind else ""

    def match(self, uri: str) -> Matched | None:
        """The decoded values by name, or None."""
        if not uri.startswith(self._lead):
            return None
        body, query, fragment = self._cut(uri)
        raw: Matched = {}
        place = self._from_left(body, raw)
        if place < 0 or not (self._middle(body, place, raw) if self._wide else self._take_options(body, place, raw)):
            return None
        if query is not None and not self._parameters(query, raw):
            return None
        if fragment is not None and self._fragment is not None:
            values = fragment.split(",", MAX_ITEMS) if self._fragment.explode else fragment
            raw[self._fragment.name] = values
            if isinstance(values, list) and len(values) > MAX_ITEMS:
                return None
        return _decoded(raw)

    def _cut(self, uri: str) -> tuple[str, str | None, str | None]:
        """The path, the query parameters that belong to variables, and the fragment that belongs to one."""
        fragment: str | None = None
        if self._fragment is not None:
            uri, mark, text = uri.partition("#")
            fragment = text if mark else None
        if not self._query:
            return uri, None, fragment
        place = uri.find("?")
        for _ in range(self._ampersands):
            place = uri.find("&", place + 1)
            if place < 0:
                break
        return (uri, None, fragment) if place < 0 else (uri[:place], uri[place + 1 :], fragment)

    # ---------------------------------------------------------------- the path

    def _from_left(self, body: str, raw: Matched) -> int:
        """Match up to the `{+x}` or the options. Returns the position reached, or -1."""
        place = len(self._lead)
        for slot, literal in self._before:
            stop = body.find(literal, place + 1)
            if stop < 0 or not _take(slot, body[place:stop], raw):
                return -1
            place = stop + len(literal)
        if self._final is None:
            return place
        slot, literal = self._final
        found = [body.find(literal + sign, place + 1) for sign in self._signs]
        found.append(len(body) - len(literal) if body.endswith(literal, place + 1) else -1)
        stop = min((stop for stop in found if stop >= 0), default=-1)
        return stop + len(literal) if stop > place and _take(slot, body[place:stop], raw) else -1

    def _middle(self, body: str, start: int, raw: Matched) -> bool:
        """Match from the end of the path back to the `{+x}`, whose value is the rest."""
        if self._wide is None or not body.endswith(self._last, start):
            return False
        end = len(body) - len(self._last)
        for literal, slot in reversed(self._after):
            place = body.rfind(literal, start, max(end - 1, 0))
            if place < 0 or not _take(slot, body[place + len(literal) : end], raw):
                return False
            end = place
        return _take(self._wide, body[start:end], raw)

    def _take_options(self, body: str, place: int, raw: Matched) -> bool:
        for option in self._options:
            name = option.variable.name
            label = option.sign + name if option.sign == ";" else option.sign
            values: list[str] = []
            while body.startswith(label, place):
                stop = _next(body, option.stops, place + len(label))
                value = body[place + len(label) : stop]
                if option.sign == ";":
                    if value and value[0] != "=":  # another name that begins like this one
                        break
                    values.append(value[1:])
                else:
                    values += value.split(option.sign, MAX_ITEMS) if option.variable.explode else [value]
                    if "" in values:
                        return False
                place = stop
                if not option.variable.explode or len(values) > MAX_ITEMS:
                    break
            if len(values) > MAX_ITEMS:
                return False
            if values:
                raw[name] = values if option.variable.explode else values[0]
        return place == len(body)

    # ---------------------------------------------------------------- the query

    def _parameters(self, query: str, raw: Matched) -> bool:
        pairs = query.split("&", MAX_ITEMS)
        if len(pairs) > MAX_ITEMS:
            return False
        for pair in pairs:
            name, _, value = pair.partition("=")
            if name not in self._query:
                return False
            if not self._query[name]:
                if name in raw:
                    return False
                raw[name] = value
                continue
            values = raw.setdefault(name, [])
            assert isinstance(values, list)
            values.append(value)
        return True


def _take(slot: _Slot, value: str, raw: Matched) -> bool:
    """Store a value, if it is allowed in its place."""
    if not value or any(stop in value for stop in slot.stops):
        return False
    if slot.separator is None:
        raw[slot.name] = value
        return True
    values = value.split(slot.separator, MAX_ITEMS)
    raw[slot.name] = values
    return len(values) <= MAX_ITEMS and "" not in values


def _next(text: str, stops: Iterable[str], start: int) -> int:
    """The position of the first stop, or the end."""
    end = len(text)
    for stop in stops:
        place = text.find(stop, start, end)
        end = place if place >= 0 else end
    return end


def _decoded(raw: Matched) -> Matched | None:
    found: Matched = {}
    try:
        for name, value in raw.items():
            found[name] = _decode(value) if isinstance(value, str) else [_decode(item) for item in value]
    except ValueError:
        return None
    return found


def _decode(text: str) -> str:
    """Percent-decode once. Raises ValueError for invalid encodings and for bytes that aren't UTF-8."""
    if "%" not in text:
        return text
    if _BROKEN.search(text) is not None:
        raise ValueError("a % without two hexadecimal digits")
    return unquote_to_bytes(text).decode()


# ---------------------------------------------------------------- from the parts of a template


def _check_variables(text: str, parts: Sequence[Part]) -> None:
    seen: set[str] = set()
    for part in parts:
        for variable in () if isinstance(part, str) else part.variables:
            if variable.prefix is not None:
                raise mistake(text, f"{part} expands but can't be matched, since the rest of the value is lost")
            if variable.name in seen:
                raise mistake(text, f"{variable.name} occurs twice: matching needs each variable once")
            seen.add(variable.name)


def _fragment(text: str, rest: list[Part]) -> Variable | None:
    """Takes `{#x}` off the end."""
    last = rest[-1] if rest else ""
    if isinstance(last, str) or last.operator.sign != "#":
        return None
    variable, *more = last.variables
    if more:
        raise mistake(text, f"{last} can't be matched: a fragment may contain commas, so write one variable")
    del rest[-1]
    return variable


def _query(text: str, rest: list[Part]) -> tuple[bool, dict[str, bool]]:
    """Takes `{?x}` and `{&x}` off the end."""
    found: list[Expression] = []
    while rest and isinstance(last := rest[-1], Expression) and last.operator.sign in "?&" and last.operator.sign:
        found.insert(0, last)
        del rest[-1]
    for part in (*rest, *found[1:]):
        if isinstance(part, Expression) and part.operator.sign in ("?", "#"):
            raise mistake(text, f"{part} must be at the end; only {{&x}} and {{#x}} can follow a query")
        if isinstance(part, Expression) and part in rest and part.operator.sign == "&":
            raise mistake(text, f"{part} must be at the end; only {{&x}} and {{#x}} can follow it")
    first = found[0] if found else None
    asks = first is not None and first.operator.sign == "?"
    if asks and any(isinstance(part, str) and "?" in part for part in rest):
        raise mistake(text, f"it has a ? already: write {{&{str(first)[2:]} in place of {first}")
    return asks, {variable.name: variable.explode for part in found for variable in part.variables}


def _options(text: str, rest: list[Part]) -> list[_Option]:
    """Takes the expressions that may be missing off the end of the path."""
    if any(isinstance(part, Expression) and part.operator.sign == "+" for part in rest):
        return []
    found: list[_Option] = []
    later = ""
    while rest and isinstance(last := rest[-1], Expression) and last.operator.sign in (".", "/", ";"):
        sign = last.operator.sign
        for variable in reversed(last.variables):
            if variable.explode and sign in later:
                raise mistake(text, f"{last} matches every {sign!r}, so that nothing is left for what follows it")
            own = "" if sign == "." or (variable.explode and sign == "/") else sign
            # Its own sign comes first: it is the nearest in a long list, and bounds the search for the others.
            stops = dict.fromkeys(own + later + ("/?#" if own or sign == "." else "?#"))
            found.insert(0, _Option(sign, variable, "".join(stops)))
            later += sign
        del rest[-1]
    return found


def _items(text: str, rest: Sequence[Part]) -> list[str | _Slot]:
    """The required part, as literals and slots, never two literals in a row."""
    expressions = [part for part in rest if isinstance(part, Expression)]
    commas = any(not part.operator.sign and len(part.variables) > 1 for part in expressions)
    items: list[str | _Slot] = []
    stops = "/?#," if commas else "/?#"
    for part in rest:
        if isinstance(part, str):
            stops += "&" if "?" in part else ""
            _append(items, part)
            continue
        sign = part.operator.sign
        if sign == ";":
            raise mistake(text, f"{part} can be matched at the end of the path only")
        wide = sign == "+"
        listed = any(variable.explode for variable in part.variables)
        if listed and (sign in ("/", ".") or commas):
            raise mistake(text, f"{part} can't be matched here: it is not clear where the list ends")
        if wide and len(part.variables) > 1:
            raise mistake(text, f"{part} can't be matched: each of these matches everything; write one")
        for place, variable in enumerate(part.variables):
            _append(items, sign if sign in ("/", ".") else "," if place else "")
            items.append(_Slot(variable.name, "," if listed else None, "" if wide else stops, wide))
    return items


def _append(items: list[str | _Slot], literal: str) -> None:
    last = items[-1] if items else None
    if isinstance(last, str):
        items[-1] = last + literal
    elif literal:
        items.append(literal)


def _pairs(text: str, items: Sequence[str | _Slot]) -> list[tuple[_Slot, str]]:
    """Each slot with the literal after it; only the last may have none."""
    pairs: list[tuple[_Slot, str]] = []
    for item in items:
        if isinstance(item, _Slot):
            if pairs and not pairs[-1][1]:
                names = f"{{{pairs[-1][0].name}}} and {{{item.name}}}"
                raise mistake(text, f"{names} have no text between them: add some to show where one ends")
            pairs.append((item, ""))
        elif pairs:
            pairs[-1] = (pairs[-1][0], item)
    if sum(slot.wide for slot, _ in pairs) > 1:
        raise mistake(text, "more than one {+x} matches everything: keep one of them")
    return pairs


Scalar: TypeAlias = str | int | float | bool
Value: TypeAlias = Scalar | Sequence[Scalar] | Mapping[str, Scalar] | None

_TRIPLET = re.compile(r"(%[0-9A-Fa-f]{2})")


class UriTemplate:
    """A URI template (RFC 6570), parsed when it is made: `UriTemplate("city://{name}")`.

    Args:
        text: The template.

    Raises:
        DefinitionError: The text isn't a template; the message says where and what to change.
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
        """The literal at the end of every expansion; empty if there is none."""
        last = self._parts[-1] if self._parts else ""
        return last if isinstance(last, str) else ""

    @property
    def rank(self) -> tuple[bool, int, int]:
        """A sort key that puts the most specific template first.

        Templates without `{+x}` and `{/x*}` come before those with them, then those with more literal text, then those with
        fewer variables.
        """
        wide = any(
            part.operator.sign == "+" or (part.operator.sign == "/" and part.variables[-1].explode)
            for part in self._parts
            if isinstance(part, Expression)
        )
        return wide, -sum(len(part) for part in self._parts if isinstance(part, str)), len(self.variables)

    def expand(self, values: Mapping[str, Value]) -> str:
        """Expand the template (RFC 6570 section 3).

        Args:
            values: By name: a string, number or bool, or a list or mapping of these. None, an empty list and an empty mapping
                count as undefined, like names that are missing.

        Returns:
            The URI.

        Raises:
            ValueError: A variable with a prefix (`:3`) has a list or mapping as its value.
        """
        return "".join(part if isinstance(part, str) else _expanded(part, values) for part in self._parts)

    @cached_property
    def matcher(self) -> Matcher:
        """The matcher, whose docstring has the rules. Raises DefinitionError for a template that can't be matched."""
        return Matcher(self.text, self._parts)

    def match(self, uri: str) -> Matched | None:
        """Match a URI; the rules are in the docstring of `Matcher`.

        Args:
            uri: The URI.

        Returns:
            The percent-decoded values by name, without variables that the URI leaves out: a string, or a list of strings for
            a variable with `*`. None if the URI doesn't match.

        Raises:
            DefinitionError: The template can't be matched in one clear way.
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
    """The text of one variable; None if it is undefined."""
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
