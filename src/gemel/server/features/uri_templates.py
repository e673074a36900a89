"""URI templates (RFC 6570): parsing them, expanding them to URIs, and matching URIs against them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import msgspec

from gemel.errors import DefinitionError, shorten

#: Limits of a template, which is written by hand.
MAX_TEMPLATE = 2048
MAX_VARIABLES = 32
#: Values of one variable with a `*`, and parameters of one query; a URI with more is not matched.
MAX_ITEMS = 1000

_VARIABLE = re.compile(
    r"(?P<name>(?:\w|%[0-9A-Fa-f]{2})+(?:\.(?:\w|%[0-9A-Fa-f]{2})+)*)(?:(?P<explode>\*)|:(?P<prefix>[1-9]\d{0,3}))?",
    re.ASCII,
)
_PART = re.compile(r"[^{]+|\{(?P<inner>[^}]*)\}|\{")
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
#: Not allowed in literals (RFC 6570 section 2.1; its errata allows the apostrophe).
_NOT_LITERAL = re.compile(rf"[\x00-\x20\"<>\\^`|}}\x7f\ud800-\udfff]|{_BARE_PERCENT.pattern}")
#: The characters that separate the parts of a URI (RFC 3986 section 2.2).
RESERVED = ":/?#[]@!$&'()*+,;="
#: Reserved by RFC 6570 section 2.2 for later versions.
_LATER_OPERATORS = tuple("=,!@|")

Scalar: TypeAlias = str | int | float | bool
Value: TypeAlias = Scalar | Sequence[Scalar] | Mapping[str, Scalar] | None
Matched: TypeAlias = dict[str, str | list[str]]


class Operator(NamedTuple):
    """How an expression joins its values (RFC 6570 appendix A)."""

    sign: str
    first: str = ""
    separator: str = ","
    #: Whether values are written as `name=value`, and what follows the name of an empty one.
    named: bool = False
    empty: str = ""
    #: Whether reserved characters stay as they are.
    reserved: bool = False


OPERATORS = {
    "": Operator(""),
    "+": Operator("+", reserved=True),
    "#": Operator("#", "#", reserved=True),
    ".": Operator(".", ".", "."),
    "/": Operator("/", "/", "/"),
    ";": Operator(";", ";", ";", named=True),
    "?": Operator("?", "?", "&", named=True, empty="="),
    "&": Operator("&", "&", "&", named=True, empty="="),
}


class Variable(NamedTuple):
    """One variable: `explode` is its `*`, `prefix` the length after its `:`."""

    name: str
    explode: bool
    prefix: int | None


class Expression(NamedTuple):
    """The part of a template between braces."""

    text: str
    operator: Operator
    variables: tuple[Variable, ...]

    @property
    def sign(self) -> str:
        """The operator's character; empty for plain values."""
        return self.operator.sign


Part: TypeAlias = str | Expression


def _mistake(template: str, problem: str) -> DefinitionError:
    """The error for the author of a template, in one line."""
    return DefinitionError(f"URI template {shorten(template)!r}: {problem}")


# ---------------------------------------------------------------- parsing


def parse(template: str) -> tuple[Part, ...]:
    """Parse a template into literals, encoded for a URI, and expressions; never two literals in a row.

    Raises DefinitionError, which says where and why.
    """
    from urllib.parse import quote

    if len(template) > MAX_TEMPLATE:
        raise _mistake(template, f"it has {len(template)} characters, {MAX_TEMPLATE} is the limit")
    parts: list[Part] = []
    for match in _PART.finditer(template):
        if match["inner"] is not None:
            parts.append(_expression(template, match["inner"]))
            continue
        forbidden = _NOT_LITERAL.search(match.group())
        if forbidden is not None:
            place = match.start() + forbidden.start() + 1
            character = repr(forbidden.group())
            raise _mistake(template, f"{character} at character {place} isn't allowed in a URI: percent-encode it")
        if match.group() == "{":
            raise _mistake(template, f"the brace at character {match.start() + 1} is never closed")
        parts.append(quote(match.group(), safe=RESERVED + "%"))
    count = sum(len(part.variables) for part in parts if isinstance(part, Expression))
    if count > MAX_VARIABLES:
        raise _mistake(template, f"it has {count} variables, {MAX_VARIABLES} is the limit")
    return tuple(parts)


def _expression(template: str, inner: str) -> Expression:
    if inner.startswith(_LATER_OPERATORS):
        raise _mistake(template, f"{{{inner}}}: the operator {inner[0]!r} has no meaning yet")
    operator = OPERATORS.get(inner[:1], OPERATORS[""])
    variables: list[Variable] = []
    for text in inner[len(operator.sign) :].split(","):
        match = _VARIABLE.fullmatch(text)
        if match is None:
            advice = "use letters, digits and _, then * or :n"
            raise _mistake(template, f"{{{inner}}}: {text!r} is not a variable: {advice}")
        prefix = int(match["prefix"]) if match["prefix"] else None
        variables.append(Variable(match["name"], match["explode"] is not None, prefix))
    return Expression(f"{{{inner}}}", operator, tuple(variables))


# ---------------------------------------------------------------- expanding


def _expand(expression: Expression, values: Mapping[str, Value]) -> str:
    operator = expression.operator
    texts = [
        text for variable in expression.variables for text in _texts(variable, values.get(variable.name), operator)
    ]
    return operator.first + operator.separator.join(texts) if texts else ""


def _texts(variable: Variable, value: Value, operator: Operator) -> list[str]:
    """The texts of one variable, to be joined with the operator's separator; none if the variable is undefined."""

    def named(text: str) -> str:
        if not operator.named:
            return text
        return f"{variable.name}={text}" if text else variable.name + operator.empty

    if value is None:
        return []
    if isinstance(value, Mapping):
        pairs = [(_encode(key, operator), _encode(item, operator)) for key, item in value.items()]
        if variable.explode:
            return [f"{key}={item}" for key, item in pairs]
        items = [text for pair in pairs for text in pair]
    elif isinstance(value, Sequence) and not isinstance(value, str):
        items = [_encode(item, operator) for item in value]
        if variable.explode:
            return [named(item) for item in items]
    else:
        return [named(_encode(value, operator, variable.prefix))]
    if variable.prefix is not None:
        raise ValueError(f"{variable.name}:{variable.prefix}: only a text has a prefix, not a list or mapping")
    return [named(",".join(items))] if items else []


def _encode(value: Scalar, operator: Operator, prefix: int | None = None) -> str:
    from urllib.parse import quote

    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if not operator.reserved:
        return quote(text[:prefix], safe="", errors="surrogateescape")
    return quote(_BARE_PERCENT.sub("%25", text[:prefix]), safe=RESERVED + "%", errors="surrogateescape")


# ---------------------------------------------------------------- matching


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

    The path is matched by regular expressions of atomic groups, so that the work is linear in the length of the URI.

    Raises DefinitionError for a template that can't be matched in one clear way: `{x:3}` (the rest of the value is lost),
    values without text between them, a variable that occurs twice, anything but a fragment after a query.
    """

    __slots__ = ("_ampersands", "_backwards", "_fragment", "_lists", "_parameters", "_path", "_slots")

    def __init__(self, template: str, parts: Sequence[Part]) -> None:
        self._lists = _check_variables(template, parts)
        remaining = list(parts)
        self._fragment = _take_fragment(template, remaining)
        has_query, self._parameters = _take_query(template, remaining)
        optional = _take_optional(template, remaining)
        required = _required_items(template, remaining)
        #: How many `&` precede the query's first variable.
        literals = "".join(item for item in required if isinstance(item, str))
        self._ampersands = 0 if has_query else 1 + literals.count("&")
        wide = next((place for place, item in enumerate(required) if isinstance(item, _Slot) and item.wide), None)
        #: For what follows a `{+x}`, which is matched backwards, from the end of the path.
        self._backwards: re.Pattern[str] | None = None
        if wide is None:
            ends = "|".join([r"\Z", *(re.escape(slot.sign) for slot in optional)])
            pattern = _pattern(required, f"(?={ends})") + "".join(map(_optional_pattern, optional))
            ordered = [*required, *optional]
        else:
            pattern = _pattern(required[:wide]) + "(.+)"
            behind = [item[::-1] if isinstance(item, str) else item for item in reversed(required[wide:])]
            self._backwards = re.compile(_pattern(behind[:-1]) + "(.+)", re.DOTALL)
            ordered = [*required[:wide], *behind]
        self._path = re.compile(pattern, re.DOTALL)
        #: In the order of the regular expressions' groups.
        self._slots = [item for item in ordered if isinstance(item, _Slot)]

    def match(self, uri: str) -> Matched | None:
        """The decoded values by name, or None."""
        values: dict[str, list[str]] = {}
        if self._fragment is not None:
            uri, mark, fragment = uri.partition("#")
            if mark:
                values[self._fragment] = fragment.split(",", MAX_ITEMS) if self._fragment in self._lists else [fragment]
        query = self._query_start(uri)
        if query >= 0:
            pairs = uri[query + 1 :].split("&", MAX_ITEMS)
            for pair in pairs:
                name, _, value = pair.partition("=")
                if name not in self._parameters or len(pairs) > MAX_ITEMS:
                    return None
                values.setdefault(name, []).append(value)
        texts = self._path_texts(uri if query < 0 else uri[:query])
        if texts is None:
            return None
        for slot, text in zip(self._slots, texts, strict=True):
            if text:
                values[slot.name] = slot.split(text)
                if "" in values[slot.name] and slot.sign != ";":
                    return None
        return self._decoded(values)

    def _query_start(self, uri: str) -> int:
        """The position of the character before the first query parameter that belongs to a variable, or -1."""
        place = uri.find("?") if self._parameters else -2
        for _ in range(self._ampersands if self._parameters else 0):
            place = uri.find("&", place + 1)
            if place < 0:
                break
        return place

    def _path_texts(self, path: str) -> list[str | None] | None:
        """The text of each slot, None for an optional one that is missing; None if the path doesn't match."""
        match = self._path.fullmatch(path)
        if match is None or self._backwards is None:
            return None if match is None else list(match.groups())
        *texts, end = match.groups()
        match = self._backwards.fullmatch(end[::-1])
        return None if match is None else [*texts, *(text[::-1] for text in match.groups())]

    def _decoded(self, values: Mapping[str, list[str]]) -> Matched | None:
        decoded: Matched = {}
        for name, texts in values.items():
            if len(texts) > (MAX_ITEMS if name in self._lists else 1):
                return None
            try:
                items = [_decode(text) for text in texts]
            except ValueError:
                return None
            decoded[name] = items if name in self._lists else items[0]
        return decoded


class _Slot(NamedTuple):
    """A place for a value in a path, which contains none of `stops`."""

    name: str
    stops: str = ""
    #: What separates the values of a list.
    separator: str = ""
    #: Of a value that may be missing: the operator's character.
    sign: str = ""
    #: Whether it is a `{+x}`.
    wide: bool = False

    def split(self, text: str) -> list[str]:
        """The values of a text that was matched."""
        if self.sign == ";":
            return [item.partition("=")[2] for item in text.split(";", MAX_ITEMS + 1)[1:]]
        return text.split(self.separator, MAX_ITEMS) if self.separator else [text]


def _decode(text: str) -> str:
    """Percent-decode once. Raises ValueError for invalid encodings and for bytes that aren't UTF-8."""
    if "%" not in text:
        return text
    if _BARE_PERCENT.search(text) is not None:
        raise ValueError("a % without two hexadecimal digits")
    from urllib.parse import unquote_to_bytes

    return unquote_to_bytes(text).decode()


def _pattern(items: Sequence[str | _Slot], end: str = "") -> str:
    """Literals and values. Each value ends at the first occurrence of the literal after it, or at `end`."""
    texts = [re.escape(item) if isinstance(item, str) else f")(?>({_one_of(item)}+?)" for item in items]
    return f"(?>{''.join(texts)}{end})"


def _optional_pattern(slot: _Slot) -> str:
    if slot.sign != ";":
        return f"(?:{re.escape(slot.sign)}({_one_of(slot)}++))?+"
    name = rf";{re.escape(slot.name)}(?=[=;/?#]|\Z)"
    return f"((?:{name}{_one_of(slot)}*+){'*+' if slot.separator else '?+'})"


def _one_of(slot: _Slot) -> str:
    """The characters of a value."""
    return f"[^{re.escape(slot.stops)}]" if slot.stops else "."


# ---------------------------------------------------------------- from the parts of a template to a matcher


def _check_variables(template: str, parts: Sequence[Part]) -> set[str]:
    """The names of variables with a `*`. Raises DefinitionError for what can't be matched."""
    explodes: dict[str, bool] = {}
    for part in parts:
        if isinstance(part, str):
            continue
        for variable in part.variables:
            if variable.prefix is not None:
                problem = "expands but can't be matched, since the rest of the value is lost"
                raise _mistake(template, f"{part.text} {problem}")
            if variable.name in explodes:
                raise _mistake(template, f"{variable.name} occurs twice: matching needs each variable once")
            explodes[variable.name] = variable.explode
    return {name for name, explode in explodes.items() if explode}


def _take_last(parts: list[Part], signs: tuple[str, ...]) -> Expression | None:
    """Remove and return the last part, if it is an expression with one of these operators."""
    last = parts[-1] if parts else ""
    if isinstance(last, str) or last.sign not in signs:
        return None
    del parts[-1]
    return last


def _take_fragment(template: str, parts: list[Part]) -> str | None:
    """The variable of `{#x}` at the end."""
    expression = _take_last(parts, ("#",))
    if expression is None:
        return None
    variable, *others = expression.variables
    if others:
        problem = "can't be matched: a fragment may contain commas, so write one variable"
        raise _mistake(template, f"{expression.text} {problem}")
    return variable.name


def _take_query(template: str, parts: list[Part]) -> tuple[bool, set[str]]:
    """Whether the expressions at the end start a query, and the names of its parameters."""
    query: list[Expression] = []
    while (expression := _take_last(parts, ("?", "&"))) is not None:
        query.insert(0, expression)
    inner: list[Part] = [*parts, *query[1:]]
    for part in inner:
        if isinstance(part, Expression) and (part.sign in ("?", "#") or (part.sign == "&" and part in parts)):
            raise _mistake(template, f"{part.text} must be at the end; only {{&x}} and {{#x}} can follow a query")
    has_query = bool(query) and query[0].sign == "?"
    if has_query and any(isinstance(part, str) and "?" in part for part in parts):
        raise _mistake(template, f"it has a ? already: write {{&{query[0].text[2:]} in place of {query[0].text}")
    return has_query, {variable.name for expression in query for variable in expression.variables}


def _take_optional(template: str, parts: list[Part]) -> list[_Slot]:
    """The values at the end of the path that may be missing."""
    slots: list[_Slot] = []
    if any(isinstance(part, Expression) and part.sign == "+" for part in parts):
        return slots
    later = ""
    while (expression := _take_last(parts, (".", "/", ";"))) is not None:
        sign = expression.sign
        for variable in reversed(expression.variables):
            if variable.explode and sign in later:
                problem = f"matches every {sign!r}, so that nothing is left for what follows it"
                raise _mistake(template, f"{expression.text} {problem}")
            stops = later + ("?#" if sign == "/" and variable.explode else "/?#") + (sign if sign == ";" else "")
            slots.insert(0, _Slot(variable.name, stops, sign if variable.explode else "", sign))
            later += sign
    return slots


def _required_items(template: str, parts: Sequence[Part]) -> list[str | _Slot]:
    """Literals and the values between them, never two values in a row."""
    expressions = [part for part in parts if isinstance(part, Expression)]
    commas = any(not part.sign and len(part.variables) > 1 for part in expressions)
    items: list[str | _Slot] = []
    stops = "/?#," if commas else "/?#"
    for part in parts:
        if isinstance(part, str):
            stops += "&" if "?" in part else ""
            items.append(part)
            continue
        wide, lists = part.sign == "+", any(variable.explode for variable in part.variables)
        if part.sign == ";":
            raise _mistake(template, f"{part.text} can be matched at the end of the path only")
        if lists and (part.sign in ("/", ".") or commas):
            raise _mistake(template, f"{part.text} can't be matched here: it is not clear where the list ends")
        if wide and len(part.variables) > 1:
            raise _mistake(template, f"{part.text} can't be matched: each of these matches everything; write one")
        for place, variable in enumerate(part.variables):
            items.append(part.sign if part.sign in ("/", ".") else "," if place else "")
            separator = "," if lists else ""
            items.append(_Slot(variable.name, "" if wide else stops, separator, wide=wide))
    items = [item for item in items if item]
    for item, following in pairwise(items):
        if isinstance(item, _Slot) and isinstance(following, _Slot):
            names = f"{{{item.name}}} and {{{following.name}}}"
            raise _mistake(template, f"{names} have no text between them: add some to show where one ends")
    if sum(isinstance(item, _Slot) and item.wide for item in items) > 1:
        raise _mistake(template, "more than one {+x} matches everything: keep one of them")
    return items


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

    def __str__(self) -> str:
        return self.text

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
            part.sign == "+" or (part.sign == "/" and part.variables[-1].explode)
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
        return "".join(part if isinstance(part, str) else _expand(part, values) for part in self._parts)

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
