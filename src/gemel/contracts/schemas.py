"""Compare two JSON Schemas: is every value of one valid for the other, and if not, at which place?

`jsonschema_rs` decides containment. This module asks it for one place (property, item) and one keyword at a time, which
tells where the difference is. An empty answer is a proof.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec

from gemel.contracts.display import name_shown
from gemel.contracts.json_schema import Root, inner_schemas, list_of, newest, pairs_of
from gemel.protocol.schema_keywords import KEYWORDS, with_inner
from gemel.protocol.validation import Validator, compile_schema

if TYPE_CHECKING:
    import jsonschema_rs

Schema: TypeAlias = Any
#: - types, values: those in `source` that the target rejects
#: - keyword: a keyword of the target that the source does not satisfy; `source` and `target` are its values
#: - required: a property that the source may lack
#: - refused: a property that the source declares and the target forbids
#: - undeclared: a property that the source declares and the target does not, though it accepts it
#: - undecided: nothing is known, for the reason in `target`
Code: TypeAlias = Literal["types", "values", "keyword", "required", "refused", "undeclared", "undecided"]


class Problem(NamedTuple):
    """A value of the source may be invalid for the target. `certain` says that such a value exists."""

    place: str
    code: Code
    source: Any = None
    target: Any = None
    keyword: str = ""
    certain: bool = True

    @property
    def narrows(self) -> bool:
        """Whether fewer values may be valid. An undeclared property and a format alone do not prove that."""
        return self.code != "undeclared" and self.keyword != "format"


#: How many steps one comparison may take: one for each pair of schemas, and more for large and complex ones.
MAX_STEPS = 4_000
#: Limits of what jsonschema_rs is given. It multiplies the cases of `anyOf`, `if`, … and cannot be interrupted; the
#: measurements are in docs/decisions/023-schema-containment.md.
MAX_CASES = 32
MAX_PARTS = 300
MAX_PROPERTIES = 32
MAX_PATTERN = 200
_MAX_ALTERNATIVES = 50
_MAX_NESTED = 60
_CHARACTERS_PER_STEP = 1_000
#: Schemas with more characters for each step are not compared at all.
_MAX_CHARACTERS_PER_STEP = 200

_TYPES: Mapping[str, Schema] = {
    **{name: {"type": name} for name in ("null", "boolean", "integer", "string", "array", "object")},
    "non-integer number": {"type": "number", "not": {"type": "integer"}},
}
#: Keywords that are compared place by place.
_NESTED = frozenset({"properties", "required", "additionalProperties", "items", "prefixItems"})
#: Keywords that have a meaning only together with others of the same schema.
_COMPANIONS: Mapping[str, tuple[str, ...]] = {
    "additionalProperties": ("properties", "patternProperties", "additionalProperties"),
    "items": ("prefixItems", "items"),
    "contains": ("contains", "minContains", "maxContains"),
    "if": ("if", "then", "else"),
    "unevaluatedItems": tuple(KEYWORDS),
    "unevaluatedProperties": tuple(KEYWORDS),
}
#: Keywords that are followed or that belong to another one; `format` is an annotation.
_SKIPPED = frozenset({"minContains", "maxContains", "then", "else", "$comment", "format"})
#: Marks a schema of objects that have no undeclared properties.
_CLOSED = "closed"
_DEFINITION = "#/$defs/"
_REFERENCE = re.compile(rf'"{re.escape(_DEFINITION)}(\w+)"')
_to_json = msgspec.json.Encoder(order="sorted").encode


class _Unsupported(ValueError):
    """Why schemas cannot be compared."""


def compare(source: Schema, target: Schema, place: str, *, steps: int = MAX_STEPS) -> list[Problem]:
    """Find why a value of `source` with declared properties only may be invalid for `target`.

    Args:
        source: A schema in normal form.
        target: The schema that has to accept its values, in normal form.
        place: The name of the place of the whole value.
        steps: How much work is done; what is left then is undecided.

    Returns:
        The problems by place; none is a proof.
    """
    texts = _to_json(source), _to_json(target)
    if texts[0] == texts[1]:
        return []
    if len(texts[0]) + len(texts[1]) > steps * _MAX_CHARACTERS_PER_STEP:
        return [_undecided(place, "it is too large")]
    try:
        documents = _Document(source), _Document(target)
        comparison = _Comparison(*documents, steps)
        problems = comparison.place(documents[0].schema, documents[1].schema, place)
    except _Unsupported as exc:
        return [_undecided(place, str(exc))]
    except RecursionError:
        return [_undecided(place, "it is nested too deep")]
    if comparison.exhausted:
        problems.append(_undecided(place, "it is too complex"))
    return _distinct(problems)


def property_place(place: str, name: str) -> str:
    """Return the name of the place of a property."""
    return f"{place}.{name_shown(name)}"


def _undecided(place: str, reason: str) -> Problem:
    return Problem(place, "undecided", target=reason, certain=False)


def _distinct(problems: Iterable[Problem]) -> list[Problem]:
    return list({(problem[:2], problem.keyword, repr(problem.source)): problem for problem in problems}.values())


def _all_of(schemas: Iterable[Schema]) -> Schema:
    parts = [schema for schema in schemas if schema is not True]
    if False in parts:
        return False
    return (parts[0] if len(parts) == 1 else {"allOf": parts}) if parts else True


class _Document:
    """A schema without annotations, whose references all lead to `definitions`, so that parts of it can stand alone."""

    def __init__(self, schema: Schema) -> None:
        import jsonschema_rs

        translated = newest(schema)
        if translated is None:
            raise _Unsupported("its dialect of JSON Schema is not known here")
        if not jsonschema_rs.meta.is_valid(translated):
            raise _Unsupported("it is not a valid JSON Schema")
        self._root = Root(translated)
        self._definitions: dict[str, Schema] = {}
        self._canonical: dict[bytes, jsonschema_rs.CanonicalSchema | None] = {}
        self.schema = self._plain(translated)

    def _plain(self, schema: Schema) -> Schema:
        if not isinstance(schema, dict):
            return schema
        if (
            "$dynamicRef" in schema
            or "$recursiveRef" in schema
            or ("$id" in schema and schema is not self._root.schema)
        ):
            raise _Unsupported("it uses $id or dynamic references")
        keywords = {
            word: value
            for word, value in schema.items()
            if word in KEYWORDS and word not in ("$defs", "definitions", "$schema", "$id")
        }
        plain = with_inner(keywords, lambda _, inner: self._plain(inner))
        if "$ref" in plain:
            plain["$ref"] = self._reference(plain["$ref"])
        for pattern, _ in pairs_of(plain.get("patternProperties")):
            _pattern(pattern)
        return plain

    def _reference(self, reference: str) -> str:
        target = self._root.find(reference)
        if target is None and reference.startswith("#"):
            raise _Unsupported(f"its reference {name_shown(reference)} leads nowhere")
        if target is None:
            return reference
        name = "x" + reference.encode().hex()
        if name not in self._definitions:
            self._definitions[name] = True
            self._definitions[name] = self._plain(target.schema)
        return _DEFINITION + name

    def resolved(self, schema: Schema) -> dict[str, Any]:
        """The schema behind references, as an object."""
        seen: list[Schema] = []
        while isinstance(schema, dict) and schema.keys() == {"$ref"} and schema not in seen:
            seen.append(schema)
            schema = self._definitions.get(schema["$ref"].removeprefix(_DEFINITION), schema)
        resolved: dict[str, Any] = schema if isinstance(schema, dict) else {} if schema else {"not": True}
        return resolved

    def around(self, schema: Schema) -> Iterator[dict[str, Any]]:
        """All schemas that may apply to the same value, in any of its alternatives."""
        pending, seen = [schema], set[int]()
        while pending:
            part = pending.pop()
            if isinstance(part, dict) and id(part) not in seen:
                seen.add(id(part))
                yield part
                pending += [inner for word, inner in inner_schemas(part) if word in _SAME_VALUE]
                pending.append(self._target(part))

    def _target(self, schema: dict[str, Any]) -> Schema:
        reference = str(schema.get("$ref"))
        return self._definitions.get(reference.removeprefix(_DEFINITION), True)

    def standalone(self, schema: Schema) -> Schema:
        """The schema with the definitions that it refers to."""
        needed: dict[str, Schema] = {}
        pending = _REFERENCE.findall(_to_json(schema).decode())
        while pending:
            name = pending.pop()
            if name not in needed:
                needed[name] = self._definitions[name]
                pending += _REFERENCE.findall(_to_json(needed[name]).decode())
        return {**schema, "$defs": needed} if needed else schema

    def canonical(self, schema: Schema) -> tuple[jsonschema_rs.CanonicalSchema | None, int]:
        """The schema as jsonschema_rs sees it, None if it is too complex or not supported; and how many steps that took."""
        alone = self.standalone(schema)
        text = _to_json(alone)
        if text in self._canonical:
            return self._canonical[text], 0
        size = _Size(alone)
        self._canonical[text] = _canonicalize(alone) if size.is_small else None
        return self._canonical[text], size.steps


#: Keywords whose schemas apply to the same value.
_SAME_VALUE = ("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas")


def _canonicalize(schema: Schema) -> jsonschema_rs.CanonicalSchema | None:
    import jsonschema_rs

    try:
        return jsonschema_rs.canonicalize(schema, validate_formats=False, pattern_options=jsonschema_rs.RegexOptions())
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError):
        return None


class _Size:
    """An upper estimate of the work that a schema is for jsonschema_rs."""

    def __init__(self, schema: Schema) -> None:
        self._definitions = schema.get("$defs", {}) if isinstance(schema, dict) else {}
        self._cases: dict[int, int] = {}
        self._parts = 0
        cases = self._count(schema)
        self.is_small = cases <= MAX_CASES and self._parts <= MAX_PARTS
        self.steps = 1 + cases + self._parts // 8 if self.is_small else 1

    def _count(self, schema: Schema) -> int:
        """In how many cases a value is looked at; a schema that refers to itself counts once."""
        if not isinstance(schema, dict) or self._parts > MAX_PARTS:
            return 1
        if id(schema) not in self._cases:
            self._cases[id(schema)] = 1
            self._cases[id(schema)] = min(self._multiplied(schema), MAX_CASES + 1)
        return self._cases[id(schema)]

    def _multiplied(self, schema: dict[str, Any]) -> int:
        self._parts += 1 + sum(_values_in(schema.get(word)) // 10 for word in ("enum", "const", "required"))
        cases, nested, alternatives = 1, 0, {"anyOf": 0, "oneOf": 0}
        for word, inner in inner_schemas(schema):
            before = self._parts
            count = self._count(inner)
            if word in alternatives:
                alternatives[word] += count
            elif word == "allOf":
                cases *= count
            elif word in ("if", "then", "else", "contains", "dependentSchemas", "patternProperties"):
                cases *= count + 1
            elif word == "not":
                cases *= count + self._parts - before
            elif word not in ("$defs", "definitions"):
                nested += count - 1
        cases *= math.prod(max(1, count) for count in alternatives.values())
        cases *= self._count(self._definitions.get(str(schema.get("$ref")).removeprefix(_DEFINITION)))
        cases <<= min(len(pairs_of(schema.get("dependentRequired"))), MAX_CASES)
        pattern = str(schema.get("pattern", ""))
        repeats = math.prod(int(number) for number in re.findall(r"\d{1,9}", pattern) if int(number))
        if len(pattern) > MAX_PATTERN or repeats > MAX_PATTERN or len(schema.get("properties", ())) > MAX_PROPERTIES:
            return MAX_CASES + 1
        return cases + nested


def _values_in(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_values_in, inner))


class _Comparison:
    """One comparison of two documents."""

    def __init__(self, source: _Document, target: _Document, steps: int) -> None:
        self._source = source
        self._target = target
        self._steps = steps
        self.exhausted = False
        #: Pairs that are being compared, with how many steps into the value they were reached. A recursion through a part
        #: of the value may take itself for granted, since values end.
        self._open: dict[tuple[bytes, bytes], int] = {}
        self._depth = 0

    def place(self, source: Schema, target: Schema, place: str, *, proved: bool = False) -> list[Problem]:
        """The problems at a place and within. If it is proved, only undeclared properties and formats are looked for."""
        source, target = self._source.resolved(source), self._target.resolved(target)
        if not target or source == {"not": True}:
            return []
        if self._steps < 0 or len(self._open) > _MAX_NESTED:
            self.exhausted = True
            return []
        pair = _to_json(self._source.standalone(source)), _to_json(self._target.standalone(target))
        self._steps -= 1 + len(pair[0]) // _CHARACTERS_PER_STEP
        if pair[0] == pair[1]:
            return []
        if pair in self._open:
            return [] if proved or self._depth > self._open[pair] else [_undecided(place, "it refers to itself")]
        self._open[pair] = self._depth
        try:
            source = self._closed(source)
            return self._compared(source, target, place, proved or self._covers(target, source) == "yes")
        finally:
            del self._open[pair]

    def _inside(self, source: Schema, target: Schema, place: str, proved: bool) -> list[Problem]:
        self._depth += 1
        try:
            return self.place(source, target, place, proved=proved)
        finally:
            self._depth -= 1

    def _compared(self, source: dict[str, Any], target: dict[str, Any], place: str, proved: bool) -> list[Problem]:
        problems: list[Problem] = []
        if not proved:
            values = self._rejected_values(source, target)
            if values is not None:
                return [Problem(place, "values", values)] if values else []
            if (cases := self._cases(source)) is not None:
                return _distinct(problem for case in cases for problem in self.place(case, target, place))
            lost = [
                name for name in _TYPES if self._can_be(source, name) and not self._can_be(target, name, target=True)
            ]
            if lost:
                return [Problem(place, "types", lost)]
            problems = self._keywords(source, target, place)
        if not source.keys() & _COMBINATORS:
            if self._can_be(source, "object"):
                problems += self._properties(source, target, place, proved)
            if self._can_be(source, "array"):
                problems += self._items(source, target, place, proved)
        before = source.get("format")
        if target.get("format", before) != before:
            problems.append(Problem(place, "keyword", before, target["format"], "format"))
        return [*problems, *self._undeclared(source, target, place)]

    # ------------------------------------------------------------ what jsonschema_rs is asked

    def _canonical(self, document: _Document, schema: Schema) -> jsonschema_rs.CanonicalSchema | None:
        form, steps = document.canonical(schema)
        self._steps -= steps
        return form

    def _covers(self, target: Schema, source: Schema) -> str:
        """Whether all values of the source are valid for the target: "yes", "no" or "unknown"."""
        wide = self._canonical(self._target, target)
        narrow = self._canonical(self._source, source) or self._canonical(self._source, _outline(source))
        try:
            return "unknown" if wide is None or narrow is None else wide.covers(narrow).value
        except ValueError:
            return "unknown"

    def _can_be(self, schema: dict[str, Any], name: str, *, target: bool = False) -> bool:
        """Whether a value of this type may be valid."""
        document = self._target if target else self._source
        for candidate in (schema, _outline(schema)):
            form = self._canonical(document, {"allOf": [candidate, _TYPES[name]]})
            if form is not None:
                return form.satisfiability().value != "no"
        return True

    def _rejected_values(self, source: Schema, target: Schema) -> list[Any] | None:
        """The values of the source that are invalid for the target; None if they cannot be listed."""
        from jsonschema_rs import canonical as views

        form = self._canonical(self._source, source)
        match None if form is None else form.view():
            case views.ConstView(value=value):
                values = [value]
            case views.EnumView(values=listed):
                values = list(listed)
            case _:
                return None
        try:
            validator = compile_schema(self._target.standalone(target))
        except ValueError:
            return None
        return [value for value in values if not validator.is_valid(value)]

    # ------------------------------------------------------------ keywords and alternatives

    def _keywords(self, source: dict[str, Any], target: dict[str, Any], place: str) -> list[Problem]:
        """The keywords of the target that the source does not satisfy."""
        problems: list[Problem] = []
        followed = frozenset[str]() if source.keys() & _COMBINATORS else _NESTED
        for word, value in target.items():
            if word in followed or word in _SKIPPED:
                continue
            alone = {other: target[other] for other in _COMPANIONS.get(word, (word,)) if other in target}
            verdict = self._covers(alone, source)
            if verdict == "yes":
                continue
            if word == "$ref":
                problems.append(_undecided(place, "a reference leads elsewhere"))
            elif word in ("anyOf", "oneOf") and (alternative := self._only_alternative(source, value)) is not None:
                problems += self.place(source, alternative, place)
            else:
                problems.append(Problem(place, "keyword", source.get(word), value, word, certain=verdict == "no"))
        return problems

    def _only_alternative(self, source: Schema, alternatives: list[Schema]) -> Schema | None:
        """The alternative that values of the source may fit, if it is the only one."""
        if len(alternatives) > _MAX_ALTERNATIVES:
            return None
        possible = [alternative for alternative in alternatives if not self._are_disjoint(source, alternative)]
        return possible[0] if len(possible) == 1 else None

    def _are_disjoint(self, source: Schema, target: Schema) -> bool:
        one, other = self._canonical(self._source, source), self._canonical(self._target, target)
        try:
            return one is not None and other is not None and one.intersect(other).satisfiability().value == "no"
        except ValueError:
            return False

    def _cases(self, source: dict[str, Any]) -> list[Schema] | None:
        """The alternatives of a source that consists of nothing else."""
        closing = {word: value for word, value in source.items() if _is_closed(source) and word in _CLOSING}
        for word in ("anyOf", "oneOf"):
            if source.keys() - closing.keys() == {word} and len(source[word]) <= _MAX_ALTERNATIVES:
                cases = [self._source.resolved(case) for case in source[word]]
                return [case if "propertyNames" in case else {**case, **closing} for case in cases]
        return None

    # ------------------------------------------------------------ properties

    def _closed(self, source: dict[str, Any]) -> dict[str, Any]:
        """The source without undeclared properties, unless it says that there are some or restricts their names."""
        around = list(self._source.around(source))
        opens = any(part.get(word, False) is not False for part in around for word in _OTHER_PROPERTIES)
        declares = self._depth == 0 or any("properties" in part for part in around)
        if opens or not declares or source.keys() & {"propertyNames", "$ref"}:
            return source
        patterns = [{"pattern": text} for text in sorted(_declared(around, "patternProperties"))]
        names = {"enum": sorted(_declared(around, "properties"))}
        return {**source, "propertyNames": {"anyOf": [names, *patterns]}, "$comment": _CLOSED}

    def _properties(self, source: dict[str, Any], target: dict[str, Any], place: str, proved: bool) -> list[Problem]:
        problems: list[Problem] = []
        if not proved:
            missing = [name for name in list_of(target.get("required")) if name not in list_of(source.get("required"))]
            problems += [Problem(property_place(place, name), "required") for name in missing]
        for name, schema in pairs_of(target.get("properties")):
            value = _property(source, name)
            problems += self._inside(value, schema, property_place(place, name), proved)
        if "additionalProperties" in target:
            problems += self._additional(source, target, place, proved)
        return problems

    def _additional(self, source: dict[str, Any], target: dict[str, Any], place: str, proved: bool) -> list[Problem]:
        """Properties that the source may have and the target does not declare."""
        schema = target["additionalProperties"]
        problems: list[Problem] = []
        names = {*_closed_names(source), *_declared([source], "properties")} - _declared([target], "properties")
        for name in sorted(names):
            value, here = _property(source, name), property_place(place, name)
            if value is False or any(
                _pattern(text).is_valid(name) for text in _declared([target], "patternProperties")
            ):
                continue
            if schema is False:
                problems += [] if proved else [Problem(here, "refused")]
            else:
                problems += self._inside(value, schema, here, proved)
        patterns = _declared([source], "patternProperties") - _declared([target], "patternProperties")
        if proved or (_is_closed(source) and not patterns):
            return problems
        value = True if patterns else source.get("additionalProperties", True)
        others = self._inside(value, schema, f"{place}.*", proved)
        if others and schema is False:
            others = [Problem(place, "keyword", value, False, "additionalProperties")]
        return [*problems, *others]

    def _undeclared(self, source: dict[str, Any], target: dict[str, Any], place: str) -> list[Problem]:
        """Properties that the source declares and the target does not, though it may accept them."""
        around = list(self._target.around(target))
        names = _declared(self._source.around(source), "properties") - _declared(around, "properties")
        patterns = [_pattern(text) for text in _declared(around, "patternProperties")]
        return [
            Problem(property_place(place, name), "undeclared", certain=False)
            for name in sorted(names)
            if not any(pattern.is_valid(name) for pattern in patterns) and _property(source, name) is not False
        ]

    # ------------------------------------------------------------ items

    def _items(self, source: dict[str, Any], target: dict[str, Any], place: str, proved: bool) -> list[Problem]:
        count = max(len(list_of(schema.get("prefixItems"))) for schema in (source, target))
        problems: list[Problem] = []
        for index in range(count):
            problems += self._inside(_item(source, index), _item(target, index), f"{place}[{index}]", proved)
        return problems + self._inside(_item(source, count), _item(target, count), f"{place}[]", proved)


#: Keywords that say more about properties and items than their own keywords.
_COMBINATORS = frozenset({*_SAME_VALUE, "not", "$ref"})
#: Keywords about the value as a whole.
_OUTLINE = (
    KEYWORDS - _COMBINATORS - _SKIPPED - {"contains", "properties", "additionalProperties", "items", "prefixItems"}
)
_OTHER_PROPERTIES = ("additionalProperties", "unevaluatedProperties")
_CLOSING = ("propertyNames", "$comment")


def _outline(schema: dict[str, Any]) -> dict[str, Any]:
    """What a schema says about the value as a whole: fewer restrictions than it has."""
    return {word: value for word, value in schema.items() if word in _OUTLINE and not word.startswith("unevaluated")}


def _declared(parts: Iterable[Schema], keyword: str) -> set[str]:
    return {name for part in parts if isinstance(part, dict) for name, _ in pairs_of(part.get(keyword))}


def _is_closed(schema: dict[str, Any]) -> bool:
    return schema.get("$comment") == _CLOSED


def _closed_names(schema: dict[str, Any]) -> list[str]:
    names: list[str] = schema["propertyNames"]["anyOf"][0]["enum"] if _is_closed(schema) else []
    return names


def _property(schema: dict[str, Any], name: str) -> Schema:
    """What a schema says of the value of a property: False if there cannot be one."""
    own = [value for declared, value in pairs_of(schema.get("properties")) if declared == name]
    own += [value for text, value in pairs_of(schema.get("patternProperties")) if _pattern(text).is_valid(name)]
    if not own and _is_closed(schema) and name not in _closed_names(schema):
        return False
    return _all_of(own or [schema.get("additionalProperties", True)])


def _item(schema: dict[str, Any], index: int) -> Schema:
    """What a schema says of the item at an index."""
    first = list_of(schema.get("prefixItems"))
    return first[index] if index < len(first) else schema.get("items", True)


@lru_cache(maxsize=256)
def _pattern(text: str) -> Validator:
    """A validator of names."""
    try:
        return compile_schema({"pattern": text})
    except ValueError as exc:
        raise _Unsupported(f"its pattern {name_shown(text)} cannot be read") from exc
