"""JSON Schema validation within counted bounds, for schemas and values that a peer or a user wrote.

jsonschema_rs validates. It cannot be interrupted, so the work is estimated before it starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gemel.errors import shorten
from gemel.protocol.patterns import count_positions

if TYPE_CHECKING:
    import jsonschema_rs

#: A larger or deeper schema is refused.
MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
#: How often a schema may look at one place of a value.
MAX_LOOKS = 1_000_000
#: References may follow each other this often.
MAX_REFERENCES = 300
#: A step is one look of a schema at one part of a value, some 25 ns. A validation that may take more fails.
MAX_STEPS = 10_000_000
#: Up to so many steps the first problem is named, and up to so many all of them, but at most MAX_PROBLEMS. Both build
#: messages, which is slower than deciding, and follow each alternative of a recursive schema to the bottom.
MAX_STEPS_FIRST = 100_000
MAX_STEPS_ALL = 10_000
MAX_PROBLEMS = 20
#: So many alternatives of an `anyOf` or `oneOf` are explained, each in so many characters.
MAX_ALTERNATIVES = 12
_MAX_REASON = 160
#: All patterns of a schema together may take so much memory, compiled, and so much again while they are used.
MAX_PATTERN_BYTES = 32 * 1024 * 1024
#: A number with more digits is not validated: comparing takes the square of their number.
MAX_DIGITS = 400
#: A pattern looks at each character: so many of them count as one more part.
_CHARACTERS_PER_PART = 16
#: A pattern that can be in so few places at once is run by a table. Another one visits each of them for each character.
_FREE_POSITIONS = 12
_LOOKS_PER_POSITION = 4
#: Comparing one part of a listed array or object is slower than a look.
_LOOKS_PER_LISTED_PART = 10
#: Numbers with a fraction or more than 64 bits are compared as fractions of any size.
_LOOKS_PER_NUMBER = 50
#: The same for an ordinary number and one bound.
_LOOKS_PER_FRACTIONAL_BOUND = 10
#: A number with an exponent or of 19 digits is so much slower again.
_LOOKS_OF_LONG_NUMBER = 20

#: Keywords that look at the same value again.
_SAME_VALUE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies", "extends")
#: Keywords that look at the items of an array, and at the properties of an object.
_ITEMS = ("items", "additionalItems", "unevaluatedItems", "contains")
_PROPERTIES = ("patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames", "contentSchema")
_NAMED = ("dependentSchemas", "dependencies", "patternProperties")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
#: Keywords that ask again what the keywords of _SAME_VALUE and _REFERENCES beside them have looked at: twice.
_UNEVALUATED = ("unevaluatedItems", "unevaluatedProperties")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')


class _Looks(NamedTuple):
    """How often a part of a schema looks at a value and at the worst place inside it; `loops` for a recursive schema.

    `loops` says how often one step into an array or an object leads back to a part that is being counted: 1 for a tree.
    """

    here: int = 1
    inside: int = 0
    items_loops: int = 0
    properties_loops: int = 0

    @property
    def worst(self) -> int:
        return max(self.here, self.inside)

    @property
    def loops(self) -> int:
        return max(self.items_loops, self.properties_loops)


class _Counter:
    """Counts the looks of one schema, once for each of its parts. Raises ValueError for too long chains of references.

    `own` says how many looks the keywords of a part take that hold no schemas.
    """

    def __init__(self, schema: object, own: Callable[[dict[str, Any]], int]) -> None:
        self._root = schema
        self._own = own
        self._counted: dict[int, _Looks] = {}
        self._open: set[int] = set()
        self._bases: dict[int, str] = {}
        #: Parts that have a name: by their own address, with or without an anchor.
        self._named: dict[str, Any] = {"": schema}
        self._name(schema)

    def count(self) -> _Looks:
        """The looks of the whole schema; a part that refers to itself counts once."""
        return self._count(self._root, 0)

    def _name(self, schema: object) -> None:
        from urllib.parse import urldefrag, urljoin

        pending: list[tuple[Any, str]] = [(schema, "")]
        while pending:
            part, base = pending.pop()
            if isinstance(part, dict):
                identity = part.get("$id", part.get("id"))
                if isinstance(identity, str):
                    base = urljoin(base, urldefrag(identity).url)
                    self._named.setdefault(base, part)
                for word in ("$anchor", "$dynamicAnchor"):
                    if isinstance(part.get(word), str):
                        self._named.setdefault(f"{base}#{part[word]}", part)
                self._bases[id(part)] = base
                pending.extend((inner, base) for inner in part.values())
            elif isinstance(part, list):
                pending.extend((inner, base) for inner in part)

    def _count(self, part: object, depth: int) -> _Looks:
        if not isinstance(part, dict):
            return _Looks(here=self._own({}))
        if id(part) in self._open:
            return _Looks(here=self._own({}), items_loops=1, properties_loops=1)
        if id(part) not in self._counted:
            if depth > MAX_REFERENCES:
                raise ValueError(f"its references follow each other for more than {MAX_REFERENCES} steps")
            self._open.add(id(part))
            self._counted[id(part)] = self._sum(part, depth + 1)
            self._open.discard(id(part))
        return self._counted[id(part)]

    def _sum(self, part: dict[str, Any], depth: int) -> _Looks:
        same = [self._count(inner, depth) for word in _SAME_VALUE for inner in _schemas(part, word)]
        for word in _REFERENCES:
            if isinstance(part.get(word), str):
                same.append(self._count(self._target(part[word], self._bases.get(id(part), "")), depth))
        items = [self._count(inner, depth) for word in _ITEMS for inner in _schemas(part, word)]
        items.append(_worst([self._count(inner, depth) for inner in _schemas(part, "prefixItems")]))
        properties = [self._count(inner, depth) for word in _PROPERTIES for inner in _schemas(part, word)]
        named = part.get("properties")
        each = named.values() if isinstance(named, dict) else ()
        properties.append(_worst([self._count(inner, depth) for inner in each]))
        properties += [_Looks(here=self._own({"pattern": pattern})) for pattern in part.get("patternProperties") or ()]
        times = 3 if any(word in part for word in _UNEVALUATED) else 1
        return _Looks(
            here=self._own(part) + times * sum(looks.here for looks in same),
            inside=times * sum(looks.inside for looks in same)
            + max(sum(looks.worst for looks in items), sum(looks.worst for looks in properties)),
            items_loops=sum(looks.items_loops for looks in same) + sum(looks.loops for looks in items),
            properties_loops=sum(looks.properties_loops for looks in same) + sum(looks.loops for looks in properties),
        )

    def _target(self, reference: str, base: str) -> Any:
        """The part that a reference names; None if there is none, which the library refuses."""
        from urllib.parse import urldefrag, urljoin

        url, fragment = urldefrag(urljoin(base, reference) if not reference.startswith("#") else base + reference)
        if fragment and not fragment.startswith("/"):
            return self._named.get(f"{url}#{fragment}")
        return follow_pointer(self._named.get(url), fragment)


def follow_pointer(value: object, pointer: str) -> Any:
    """Return the part of a JSON value that a JSON Pointer names as the fragment of a URI (RFC 6901); None without one."""
    from urllib.parse import unquote

    for token in pointer.split("/")[1:]:
        name = unquote(token).replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value


def _schemas(part: dict[str, Any], word: str) -> Iterable[Any]:
    value = part.get(word)
    if isinstance(value, list):
        return value
    if word in _NAMED and isinstance(value, dict):
        return value.values()
    return () if value is None else (value,)


def _worst(looks: list[_Looks]) -> _Looks:
    return _Looks(*map(max, zip(*looks, strict=True))) if looks else _Looks(here=0)


def _looks(part: dict[str, Any]) -> int:
    """The looks that keywords without schemas take at any value."""
    listed = _listed(part)
    names = sum(len(part.get(word) or ()) for word in ("dependentRequired", "dependentSchemas"))
    looks = 1 + names
    if any(isinstance(one, dict | list) for one in listed):
        looks += _LOOKS_PER_LISTED_PART * _parts(listed)  # compared one by one
    if any(map(_is_slow_number, listed)):
        looks += _LOOKS_PER_NUMBER * len(listed)
    if len(set(map(type, listed))) > 1:
        looks += len(listed) // 4  # not looked up
    return looks + sum(_LOOKS_PER_FRACTIONAL_BOUND for word in _BOUNDS if _is_slow_number(part.get(word)))


def _looks_at_number(part: dict[str, Any]) -> int:
    """The further looks that keywords take at a number with a fraction or with more than 64 bits."""
    numbers = sum(isinstance(one, int | float) for one in _listed(part))
    return _LOOKS_PER_NUMBER * (numbers + sum(word in part for word in (*_BOUNDS, "uniqueItems")))


def _looks_at_text(part: dict[str, Any]) -> int:
    """The further looks that a pattern takes at a part of a text."""
    pattern = part.get("pattern")
    positions = count_positions(pattern) if isinstance(pattern, str) else 0
    return _LOOKS_PER_POSITION * positions if positions > _FREE_POSITIONS else 0


def _listed(part: dict[str, Any]) -> list[Any]:
    """The values that `enum` and `const` list."""
    options = part.get("enum")
    return [*(options if isinstance(options, list) else ()), *([part["const"]] if "const" in part else ())]


def _is_slow_number(value: object) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) >= 2**63)


def _parts(value: object) -> int:
    """An upper bound of the number of parts of a JSON value."""
    return _parts_of(msgspec.json.encode(value))


def _parts_of(text: bytes) -> int:
    return 1 + sum(map(text.count, (b",", b"{", b"["))) + len(text) // _CHARACTERS_PER_PART


def _slow_numbers(numbers: bytes, *, pairs: bool) -> int:
    """How many numbers in JSON without its strings have a fraction or many digits; `pairs` if they are compared in pairs."""
    if re.search(rb"\d{%d}" % (MAX_DIGITS + 1), numbers):
        return MAX_STEPS + 1
    long = len(re.findall(rb"\d{19}", numbers))
    exponents = len(re.findall(rb"\de", numbers))
    return numbers.count(b".") + _LOOKS_OF_LONG_NUMBER * (exponents + long) + (long * long if pairs else 0)


class Validator:
    """A compiled schema. It decides first and explains afterwards, both within counted steps; see `compile_schema`."""

    __slots__ = (
        "_at_numbers",
        "_at_texts",
        "_compares_items",
        "_compiled",
        "_looks",
        "_schema",
        "_schema_parts",
        "_small",
    )

    def __init__(self, compiled: jsonschema_rs.Validator, looks: _Looks, schema: object) -> None:
        self._compiled = compiled
        self._looks = looks
        self._schema = schema
        #: Further looks of the slowest place.
        self._at_numbers = _Counter(schema, _looks_at_number).count().worst
        self._at_texts = _Counter(schema, _looks_at_text).count().worst
        text = msgspec.json.encode(schema)
        self._schema_parts = _parts_of(text)
        self._compares_items = b'"uniqueItems"' in text
        self._small = MAX_STEPS // (looks.worst + _LOOKS_OF_LONG_NUMBER * self._at_numbers + self._at_texts) // 2

    def is_valid(self, value: object) -> bool:
        """Return whether a JSON value fits, False for one that would take too many steps."""
        return (self._is_small(value) or self._steps(value) <= MAX_STEPS) and self._compiled.is_valid(value)

    def is_too_large(self, value: object) -> bool:
        """Return whether validating a JSON value would take too many steps, so that nothing is known about it."""
        return not self._is_small(value) and self._steps(value) > MAX_STEPS

    def problems(self, value: object) -> list[str]:
        """Return where a JSON value does not fit and why: at most 20 lines, without the value itself; none if it fits.

        A value that would take too many steps is one problem, and so is one that is too large to explain.
        """
        if self.is_too_large(value):
            return [f"validating it takes more than {MAX_STEPS:,} steps: it is too large for its schema"]
        if self._compiled.is_valid(value):
            return []
        steps = self._steps_to_explain(value)
        if steps > MAX_STEPS_FIRST:
            return ["it does not fit the schema, and is too large to say where"]
        if steps > MAX_STEPS_ALL:
            return [_line(_first_error(self._compiled, value), self._schema)]
        return [_line(error, self._schema) for error in islice(self._compiled.iter_errors(value), MAX_PROBLEMS)]

    def _is_small(self, value: object) -> bool:
        """Whether a value is within MAX_STEPS even if each byte of its text were a part: nothing has to be counted then."""
        try:
            return len(msgspec.json.encode(value)) <= self._small
        except (TypeError, ValueError, RecursionError):
            return False

    def _steps(self, value: object) -> int:
        try:
            text = msgspec.json.encode(value)
            steps = _parts_of(text) * self._looks.worst
            if steps <= MAX_STEPS and (self._at_numbers or self._at_texts):
                numbers = _STRINGS.sub(b"", text)
                steps += _slow_numbers(numbers, pairs=self._compares_items) * self._at_numbers
                steps += (len(text) - len(numbers)) * self._at_texts // _CHARACTERS_PER_PART
            return steps
        except (TypeError, ValueError, RecursionError):
            return MAX_STEPS + 1  # not JSON, or nested too deeply to be written

    def _steps_to_explain(self, value: object) -> int:
        """An error repeats the options of an enum, and that of a recursive schema has one inside for each alternative."""
        steps = _parts(value) * self._looks.worst
        if self._looks.loops > 1:
            steps *= self._looks.loops ** min(depth(value), 50)
        return steps * (1 + self._schema_parts // 100)


def _first_error(validator: jsonschema_rs.Validator, value: object) -> jsonschema_rs.ValidationError:
    import jsonschema_rs

    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as exc:
        return exc
    raise AssertionError("an invalid value has an error")


def compile_schema(schema: Any, formats: Mapping[str, Callable[[str], bool]] | None = None) -> Validator:
    """A validator by the dialect that `$schema` names, 2020-12 by default. `formats` are checked; by default none is.

    References leave the schema only within itself: nothing is ever fetched. Raises ValueError, in words for people, for a
    schema that is too large, too deep, repeats itself too often, refers elsewhere, or is not a valid schema.
    """
    import jsonschema_rs

    size = len(msgspec.json.encode(schema))
    if size > MAX_BYTES:
        raise ValueError(f"the schema is larger than {MAX_BYTES} bytes")
    if depth(schema, MAX_DEPTH) > MAX_DEPTH:
        raise ValueError(f"the schema is nested deeper than {MAX_DEPTH} levels")
    looks = _Counter(schema, _looks).count()
    if looks.worst > MAX_LOOKS:
        raise ValueError(f"the schema looks at one place of a value in more than {MAX_LOOKS:,} ways")
    share = MAX_PATTERN_BYTES // (len(set(_patterns(schema))) or 1)
    options = jsonschema_rs.RegexOptions(size_limit=share, dfa_size_limit=share)
    try:
        compiled = jsonschema_rs.validator_for(
            schema,
            retriever=_refuse,
            pattern_options=options,
            mask="the value",
            validate_formats=formats is not None,
            formats=None if formats is None else dict(formats),
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as exc:
        hint = " that can be used here (without lookaround, small when compiled)" if '"regex"' in str(exc) else ""
        raise ValueError(f"not a usable JSON Schema: {shorten(_line(exc))}{hint}") from exc
    return Validator(compiled, looks, schema)


def _patterns(schema: object) -> Iterator[str]:
    """All patterns in a schema, those that no value reaches included."""
    pending = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            named = part.get("patternProperties")
            yield from named if isinstance(named, dict) else ()
            if isinstance(part.get("pattern"), str):
                yield part["pattern"]
        pending += _inner(part)


def _line(exc: Exception, schema: object = None, outer: int = 0) -> str:
    """What is wrong and where, without the picture that the library draws of it; `outer` steps of the path are left out."""
    path = list(getattr(exc, "instance_path", ()))
    text = shorten(getattr(exc, "message", None) or str(exc).partition("\n")[0])
    alternatives = getattr(getattr(exc, "kind", None), "context", None)
    if schema is not None and alternatives and all(alternatives):  # an alternative that fits has no error
        names = _names(exc, schema, len(alternatives))
        text = explain_alternatives(names, [_line(errors[0], None, len(path)) for errors in alternatives])
    place = shorten(".".join(map(str, path[outer:])))
    return f"{place}: {text}" if place else text


def _names(exc: Any, schema: Any, count: int) -> list[str]:
    """Names for the alternatives of an `anyOf` or `oneOf` that a value does not fit; empty ones if they are not found."""
    for step in exc.schema_path:
        known = step in schema if isinstance(schema, dict) else isinstance(schema, list) and isinstance(step, int)
        schema = schema[step] if known else None
    branches = schema if isinstance(schema, list) else ()
    names = [name_of(branch) or str(branch.get("type", "")) for branch in branches if isinstance(branch, dict)]
    return names if len(names) == count else [""] * count


def name_of(schema: Mapping[str, Any]) -> str:
    """The title of a schema, or the last word of its reference; empty for neither."""
    return str(schema.get("title") or str(schema.get("$ref", "")).rpartition("/")[2])


def explain_alternatives(names: Sequence[str], reasons: Sequence[str]) -> str:
    """Say which alternatives a value does not fit, and of the first ones why."""
    if len(set(names)) < len(names) or not all(names):
        names = [f"alternative {number}" for number in range(1, len(names) + 1)]
    named = [shorten(name, _MAX_REASON) for name in names[:MAX_ALTERNATIVES]]
    told = [f"{name} ({shorten(reason, _MAX_REASON)})" for name, reason in zip(named, reasons, strict=False)]
    more = f" and {len(names) - len(named)} more" if len(names) > len(named) else ""
    return f"fits none of {len(names)} alternatives: {', '.join(told or named)}{more}"


def first_problem(validator: Validator, value: object) -> str | None:
    """The first of `Validator.problems`; None when the value fits."""
    return next(iter(validator.problems(value)), None)


def _refuse(uri: str) -> Any:
    raise ValueError(f"it refers to {shorten(uri)}, and only references inside a schema are followed")


def depth(value: object, limit: int = 1_000) -> int:
    """How deep a JSON value is nested; not counted further than one level over the limit."""
    level, items = 0, [value]
    while items and level <= limit:
        level += 1
        items = [inner for item in items for inner in _inner(item)]
    return level


def _inner(item: object) -> Iterable[Any]:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list) else ()
