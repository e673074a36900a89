"""Whether every value of one JSON Schema fits another, and where one may not.

`jsonschema_rs` decides containment. This module splits two schemas along the places of a value, asks it place by place and
keyword by keyword, and so says which property and which keyword is in the way. An empty answer is a proof.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from hinge.contracts.canonical import canonical
from hinge.contracts.display import name_shown
from hinge.contracts.json_schema import KEYWORDS, Node, Root, Texts, listed, newest, pairs_of, with_inner

if TYPE_CHECKING:
    import jsonschema_rs

Schema: TypeAlias = Any
#: - kinds: types in `left` that the right refuses; fractions: numbers that are not whole
#: - values: values in `left` that the right refuses; only: the right takes only the values in `right`
#: - keyword: a keyword of the right that is not met; `left` and `right` are its values
#: - required: a property that the left may lack; refused: one that the left declares and the right forbids
#: - unlisted: one that the left declares and the right does not, but accepts; open: the left accepts undeclared ones
#: - nothing: the right takes nothing here; alternatives: none of the right's takes all that the left's do
#: - undecided: for the reason in `right`
Code: TypeAlias = Literal[
    "kinds",
    "fractions",
    "values",
    "only",
    "keyword",
    "required",
    "refused",
    "unlisted",
    "open",
    "nothing",
    "alternatives",
    "undecided",
]


class Problem(NamedTuple):
    """A value of the left may not fit the right. `at` is its place; `certain` says that there is such a value."""

    at: str
    code: Code
    left: Any = None
    right: Any = None
    keyword: str = ""
    certain: bool = True

    @property
    def narrows(self) -> bool:
        """Whether fewer values may be valid. A property that is not declared any more and a format say less than that."""
        return self.code != "unlisted" and self.keyword != "format"


#: How many pairs of schemas one comparison looks at.
MAX_STEPS = 4_000
#: Limits of what jsonschema_rs is given. It works in the time of all cases of `anyOf`, `if`, … multiplied, and cannot be
#: interrupted; measurements are in docs/decisions/023-schema-containment.md.
MAX_CASES = 32
MAX_SIZE = 300
#: jsonschema_rs needs cubic time for the properties of one object.
MAX_PROPERTIES = 32
MAX_PATTERN = 200
#: How many alternatives are compared one by one.
_MAX_ALTERNATIVES = 50
_MAX_NESTED = 60
_MAX_SPLITS = 4
#: A pair counts as one step, and as one more for each of so many characters.
_STEP_TEXT = 1_000
#: Schemas with more characters for each step are not compared at all.
_TEXT_PER_STEP = 200

_KINDS = frozenset({"null", "boolean", "integer", "fraction", "string", "array", "object"})
#: Keywords that mean something only together. The ones that are not a key here belong to a key.
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "additionalProperties": ("properties", "patternProperties", "additionalProperties"),
    "items": ("prefixItems", "items"),
    "contains": ("contains", "minContains", "maxContains"),
    "if": ("if", "then", "else"),
}
_BELONGS = frozenset({"minContains", "maxContains", "then", "else", "$ref", "allOf", "$defs", "$comment", "format"})
#: Marks a schema whose value has declared properties only.
_CLOSED = "closed"
#: A reference of a document, in its text.
_REFERENCE = re.compile(r'"\$ref":"#/\$defs/([\w-]+)"')
#: A reference that can't be followed.
_LOST = {"$ref": "urn:hinge:unresolved"}


def compare(left: Schema, right: Schema, at: str, *, steps: int = MAX_STEPS) -> list[Problem]:
    """Why a value of `left` that has declared properties only may not fit `right`.

    Args:
        left: A schema in normal form.
        right: The schema that has to take its values, in normal form.
        at: The name of the place of the whole value.
        steps: How many pairs of schemas are looked at; the rest is undecided.

    Returns:
        Problems by place; none means that it is proved.
    """
    texts = canonical(left), canonical(right)
    if texts[0] == texts[1]:
        return []
    if sum(map(len, texts)) > steps * _TEXT_PER_STEP:
        return [undecided(at, "it is too large")]
    one, other = newest(left), newest(right)
    if one is None or other is None:
        return [undecided(at, "its dialect of JSON Schema is not known here")]
    if not _is_schema(one) or not _is_schema(other):
        return [undecided(at, "it is not a valid JSON Schema")]
    try:
        known, wanted = _Document(one, closed=True), _Document(other, closed=False)
        if _Document(one, closed=False).text_of_all() == wanted.text_of_all():
            return []
        comparison = _Comparison(known, wanted, steps)
        found = comparison.place(known.schema, wanted.schema, at)
    except RecursionError:
        return [undecided(at, "it is nested too deep")]
    if comparison.exhausted:
        found.append(undecided(at, "it is too complex"))
    return list({(one.at, one.code, one.keyword, repr(one.left)): one for one in found}.values())


def undecided(at: str, why: str) -> Problem:
    return Problem(at, "undecided", right=why, certain=False)


def member(at: str, name: str) -> str:
    return f"{at}.{name_shown(name)}"


# ---------------------------------------------------------------- documents


class _Document:
    """A schema without annotations, whose references all lead to `defs`. Parts of it can stand alone.

    With `closed`, objects that declare properties have no others, unless the schema says that there are some.
    """

    def __init__(self, schema: Schema, *, closed: bool) -> None:
        self._root = Root(schema)
        self.defs: dict[str, Schema] = {}
        self._canonical: dict[str, tuple[jsonschema_rs.CanonicalSchema | None, int]] = {}
        self._texts = Texts()
        self.schema = self._own(schema, closed, whole=True)

    def _own(self, schema: Schema, closed: bool, *, whole: bool = False) -> Schema:
        """A schema of a value of its own: the root, a property, an item."""
        found = self._part(schema, closed)
        if not closed or not isinstance(found, dict):
            return found
        around = [node.schema for node in _in_place(Node(self._root, schema))]
        opens = any(one.get(word, False) is not False for one in around for word in _OTHER_PROPERTIES)
        if opens or any("$dynamicRef" in one for one in around):
            return found
        if not whole and not any("properties" in one for one in around):
            return found
        names = sorted({name for one in around for name, _ in pairs_of(one.get("properties"))})
        patterns = sorted({text for one in around for text, _ in pairs_of(one.get("patternProperties"))})
        allowed = [*([{"enum": names}] if names else []), *({"pattern": text} for text in patterns)]
        closing = {"propertyNames": {"anyOf": allowed} if allowed else False, "$comment": _CLOSED}
        return self._known(_both([found, closing]))

    def _known(self, schema: Schema) -> Schema:
        """The schema, after its text was computed from the texts of its parts."""
        self._texts.of(schema)
        return schema

    def _part(self, schema: Schema, closed: bool) -> Schema:
        """A schema of a value of which others speak as well."""
        if not isinstance(schema, dict):
            return schema
        if "$dynamicRef" in schema or "$recursiveRef" in schema:
            return dict(_LOST)
        found = with_inner(
            {
                word: value
                for word, value in schema.items()
                if word in KEYWORDS and word not in ("$defs", "definitions")
            },
            lambda word, inner: (
                self._own(inner, closed) if word in _OWN else self._part(inner, closed and word in _SAME_PLACE)
            ),
        )
        if "$ref" in schema:
            found["$ref"] = self._reference(schema["$ref"], closed)
        return self._known(found)

    def _reference(self, reference: Any, closed: bool) -> str:
        target = self._root.find(reference)
        if target is None:
            return _LOST["$ref"]
        name = ("closed" if closed else "open") + re.sub(r"\W", lambda found: f"-{ord(found[0]):x}-", reference)
        if name not in self.defs:
            self.defs[name] = True
            self.defs[name] = self._part(target.schema, closed)
        return f"#/$defs/{name}"

    def follow(self, schema: Schema) -> Schema:
        """What a reference names."""
        return self.defs.get(schema["$ref"].rpartition("/")[2])

    def parts(self, schema: Schema) -> list[dict[str, Any]]:
        """The schemas that hold together, through `$ref` and `allOf`."""
        found: dict[int, dict[str, Any]] = {}
        left = [schema]
        while left:
            one = left.pop()
            if one is False:
                one = {"not": True}
            if isinstance(one, dict) and id(one) not in found:
                found[id(one)] = one
                left += listed(one.get("allOf"))
                if "$ref" in one and (target := self.follow(one)) is not None:
                    left.append(target)
        return list(found.values())

    def around(self, schema: Schema) -> Iterator[dict[str, Any]]:
        """All schemas that speak of the same value, whichever alternative holds."""
        return (node.schema for node in _in_place(Node(Root({"$defs": self.defs}), schema)))

    def text(self, schema: Schema) -> str:
        """The schema and all that it refers to, as canonical JSON."""
        text, defs = self._texts.of(schema), self._needed(schema)
        return f"{text} {[(name, self._texts.of(one)) for name, one in sorted(defs.items())]}" if defs else text

    def text_of_all(self) -> str:
        return self.text(self.schema)

    def alone(self, schema: Schema) -> Schema:
        """The schema with the definitions that it needs."""
        defs = self._needed(schema)
        return {**schema, "$defs": defs} if defs else schema

    def _needed(self, schema: Schema) -> dict[str, Schema]:
        found: dict[str, Schema] = {}
        left = _REFERENCE.findall(self._texts.of(schema))
        while left:
            name = left.pop()
            if name in self.defs and name not in found:
                found[name] = self.defs[name]
                left += _REFERENCE.findall(self._texts.of(found[name]))
        return found

    def canonical(self, schema: Schema) -> tuple[jsonschema_rs.CanonicalSchema | None, int]:
        """The schema as jsonschema_rs sees it, None if it is too complex or not supported; and how many steps that took."""
        text = self.text(schema)
        if text not in self._canonical:
            alone = self.alone(schema)
            size = _Size(alone)
            small = size.cases(alone) <= MAX_CASES and size.parts <= MAX_SIZE
            self._canonical[text] = (
                (_canonicalize(alone), 1 + size.cases(alone) + size.parts // 8) if small else (None, 1)
            )
            return self._canonical[text]
        return self._canonical[text][0], 0


_OTHER_PROPERTIES = ("additionalProperties", "unevaluatedProperties")
#: Keywords whose schemas are of a value of their own.
_OWN = ("properties", "patternProperties", "additionalProperties", "items", "prefixItems")
_SAME_VALUE = ("allOf", "anyOf", "oneOf")
_SAME_PLACE = (*_SAME_VALUE, "then", "else", "dependentSchemas")


def _in_place(node: Node) -> Iterator[Node]:
    left, seen = [node], set[int]()
    while left:
        node = left.pop()
        if not isinstance(node.schema, dict) or id(node.schema) in seen:
            continue
        seen.add(id(node.schema))
        yield node
        referred = node.root.find(node.get("$ref"))
        left += [referred] if referred is not None else []
        left += [node.inner(one) for word in _SAME_VALUE for one in listed(node.get(word))]
        left += [node.inner(node.get(word)) for word in ("if", "then", "else")]
        left += [node.inner(one) for _, one in pairs_of(node.get("dependentSchemas"))]


def _both(schemas: list[Schema]) -> Schema:
    """A schema of the values that fit all of these."""
    found = [one for one in schemas if one is not True]
    if any(one is False for one in found):
        return False
    return (found[0] if len(found) == 1 else {"allOf": found}) if found else True


# ---------------------------------------------------------------- what jsonschema_rs is asked


def _canonicalize(schema: Schema) -> jsonschema_rs.CanonicalSchema | None:
    import jsonschema_rs

    try:
        return jsonschema_rs.canonicalize(schema, validate_formats=False, pattern_options=jsonschema_rs.RegexOptions())
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError):
        return None


class _Size:
    """How much work a schema is: its parts, and the cases that its alternatives multiply to."""

    def __init__(self, schema: Schema) -> None:
        self._defs = schema.get("$defs", {}) if isinstance(schema, dict) else {}
        self._known: dict[int, int] = {}
        self.parts = 0

    def cases(self, schema: Schema) -> int:
        """An upper estimate; a schema that refers to itself counts once."""
        if not isinstance(schema, dict):
            return 1
        if id(schema) not in self._known:
            self._known[id(schema)] = 1
            self._known[id(schema)] = min(self._count(schema), MAX_CASES + 1)
        return self._known[id(schema)]

    def _count(self, schema: dict[str, Any]) -> int:
        found, more = 1, 0
        self.parts += 1
        for word, value in schema.items():
            if word == "$ref":
                found *= self.cases(self._defs.get(str(value).rpartition("/")[2]))
            elif word in ("anyOf", "oneOf"):
                found *= max(1, sum(map(self.cases, listed(value))))
            elif word == "allOf":
                for one in listed(value):
                    found *= self.cases(one)
            elif word in ("not", "if", "then", "else", "contains"):
                before = self.parts
                found *= self.cases(value) + (self.parts - before if word == "not" else 1)
            elif word in ("dependentSchemas", "patternProperties"):
                for _, one in pairs_of(value):
                    found *= 1 + self.cases(one)
            elif word == "dependentRequired":
                found *= 2 ** len(pairs_of(value))
            elif word in ("enum", "const", "required"):
                self.parts += _values_in(value) // 10
            elif word == "pattern":
                repeats = math.prod(int(one) for one in re.findall(r"\d{1,9}", str(value)) if one != "0")
                found += MAX_CASES if len(str(value)) > MAX_PATTERN or repeats > MAX_PATTERN else 0
            elif word == "properties" and len(value) > MAX_PROPERTIES:
                return MAX_CASES + 1
            else:
                inner = listed(value) or [one for _, one in pairs_of(value)] if word in _MANY else [value]
                more += sum(self.cases(one) - 1 for one in inner)
            if found > MAX_CASES or self.parts > MAX_SIZE:
                return MAX_CASES + 1
        return found + more


_MANY = ("properties", "prefixItems")


def _values_in(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_values_in, inner))


def _kinds(document: _Document, schema: Schema, seen: frozenset[int] = frozenset()) -> frozenset[str]:
    """The types that the values of a schema can have, as far as its keywords say so directly."""
    found = _KINDS
    for part in document.parts(schema):
        if part.get("not") is True:
            return frozenset()
        if "type" in part:
            said = [part["type"]] if isinstance(part["type"], str) else listed(part["type"])
            found &= frozenset(kind for name in said for kind in _kinds_named(name))
        if "const" in part or "enum" in part:
            found &= frozenset(map(_kind_of, [part["const"]] if "const" in part else listed(part["enum"])))
        for word in ("anyOf", "oneOf"):
            if listed(part.get(word)) and id(part) not in seen:
                several = (_kinds(document, one, seen | {id(part)}) for one in part[word])
                found &= frozenset[str]().union(*several)
    return found


def _kinds_named(name: Any) -> tuple[str, ...]:
    return ("integer", "fraction") if name == "number" else (str(name),)


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == int(value) else "fraction"
    names: Mapping[type, str] = {str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


# ---------------------------------------------------------------- the comparison


class _Comparison:
    """One comparison of two documents."""

    def __init__(self, left: _Document, right: _Document, steps: int) -> None:
        self._left = left
        self._right = right
        self._steps = steps
        self.exhausted = False
        #: Pairs that are being compared, with how many steps into the value they were reached. A recursion through a part
        #: of the value may take itself for granted, since values end.
        self._open: dict[tuple[str, str], int] = {}
        self._inside = 0
        self._splits = 0

    def place(self, left: Schema, right: Schema, at: str, *, proved: bool = False) -> list[Problem]:
        """The problems at one place. With `proved`, only those that do not narrow are looked for."""
        if right is True or left is False:
            return []
        if right is False:
            return [] if proved or self._is_empty(left) else [Problem(at, "nothing")]
        if self._steps < 0 or len(self._open) > _MAX_NESTED:
            self.exhausted = True
            return []
        key = (self._left.text(left), self._right.text(right))
        self._steps -= 1 + len(key[0]) // _STEP_TEXT
        if key[0] == key[1]:
            return []
        if key in self._open:
            return [] if proved or self._inside > self._open[key] else [undecided(at, "it refers to itself")]
        self._open[key] = self._inside
        try:
            proved = proved or self._covers(right, left) == "yes"
            lost = None if proved else self._refused(self._values(left), right)
            if lost is not None:
                return [Problem(at, "values", lost)] if lost else []
            found = self._keywords(left, right, at, proved)
            if any(one.narrows for one in found):
                found = self._by_cases(left, right, at, found)
            return found
        finally:
            del self._open[key]

    def _within(self, left: Schema, right: Schema, at: str, proved: bool) -> list[Problem]:
        """The problems of a part of the value."""
        self._inside += 1
        try:
            return self.place(left, right, at, proved=proved)
        finally:
            self._inside -= 1

    def _covers(self, right: Schema, left: Schema) -> str:
        """Whether `right` takes all values of `left`: "yes", "no" or "unknown"."""
        wide, narrow = self._form(self._right, right), self._form(self._left, left)
        try:
            return "unknown" if wide is None or narrow is None else wide.covers(narrow).value
        except ValueError:
            return "unknown"

    def _form(self, document: _Document, schema: Schema) -> jsonschema_rs.CanonicalSchema | None:
        """The schema as jsonschema_rs sees it; None if it is too complex or not supported."""
        form, work = document.canonical(schema)
        self._steps -= work
        return form

    def _is_empty(self, left: Schema) -> bool:
        found = self._form(self._left, left)
        return found is not None and found.satisfiability().value == "no"

    def _values(self, left: Schema) -> list[Any] | None:
        """All values of the left, if they can be counted."""
        from jsonschema_rs import canonical as forms

        found = self._form(self._left, left)
        match None if found is None else found.view():
            case forms.ConstView(value=value):
                return [value]
            case forms.EnumView(values=values):
                return list(values)
        return None

    def _refused(self, values: list[Any] | None, right: Schema) -> list[Any] | None:
        """Those of the values that the right refuses; None where that is not known."""
        from hinge.protocol.validation import compile_schema

        if values is None:
            return None
        try:
            validator = compile_schema(self._right.alone(right))
        except ValueError:
            return None
        return [value for value in values if not validator.is_valid(value)]

    def _by_cases(self, left: Schema, right: Schema, at: str, found: list[Problem]) -> list[Problem]:
        """The problems that stay when the alternatives of the left are looked at one by one."""
        if self._splits >= _MAX_SPLITS:
            return found
        parts = self._left.parts(left)
        for part in parts:
            for word in ("anyOf", "oneOf"):
                if 0 < len(listed(part.get(word))) <= _MAX_ALTERNATIVES:
                    rest = [_without(one, word if one is part else "") for one in parts]
                    cases = [_both([*rest, one]) for one in part[word]]
                    self._splits += 1
                    problems = [problem for case in cases for problem in self.place(case, right, at)]
                    self._splits -= 1
                    return list({(*one[:2], one.keyword, repr(one.left)): one for one in problems}.values())
        return found

    # ------------------------------------------------------------ keywords

    def _keywords(self, left: Schema, right: Schema, at: str, proved: bool) -> list[Problem]:
        known = self._left.parts(left)
        found: list[Problem] = []
        for part in self._right.parts(right):
            for word in part:
                rule = _RULES.get(word)
                if word in _BELONGS or (proved and rule is None):
                    continue
                alone = {one: part[one] for one in _GROUPS.get(word, (word,)) if one in part}
                if word.startswith("unevaluated"):
                    alone = part
                problems = [] if rule is None else rule(self, known, part, at, proved)
                if rule is None or any(one.narrows for one in problems):
                    verdict = "yes" if proved else self._covers(alone, left)
                    if verdict == "yes":
                        problems = [one for one in problems if not one.narrows]
                    elif rule is None:
                        problems = self._unmet(left, word, part[word], at, verdict)
                found += problems
            if "format" in part and all(one.get("format") != part["format"] for one in known):
                before = next((one["format"] for one in known if "format" in one), None)
                found.append(Problem(at, "keyword", before, part["format"], "format"))
        if any(part.get("$ref") == _LOST["$ref"] for part in self._right.parts(right)):
            found.append(undecided(at, "a reference leads elsewhere"))
        return [*found, *self._undeclared(left, right, at)]

    def _unmet(self, left: Schema, word: str, value: Any, at: str, verdict: str) -> list[Problem]:
        if word in ("enum", "const"):
            return [Problem(at, "only", right=value if word == "enum" else [value])]
        if word in ("anyOf", "oneOf"):
            return self._alternatives(left, word, listed(value), at)
        known = next((one[word] for one in self._left.parts(left) if word in one), None)
        return [Problem(at, "keyword", known, value, word, certain=verdict == "no")]

    def _alternatives(self, left: Schema, word: str, wanted: list[Schema], at: str) -> list[Problem]:
        """Why no alternative of the right takes all values of the left, type by type."""
        kinds = _kinds(self._left, left)
        lost = frozenset(kind for kind in kinds if all(kind not in _kinds(self._right, one) for one in wanted))
        found = [_kinds_lost(at, kinds, lost)] if lost else []
        if lost == kinds:
            return found
        objects = [one for one in wanted if kinds - lost & _kinds(self._right, one)]
        rest: Schema = (
            _both([left, {"type": sorted({_TYPES.get(kind, kind) for kind in kinds - lost})}]) if lost else left
        )
        near = [one for one in objects if self._meet(rest, one)] if len(objects) <= _MAX_ALTERNATIVES else objects
        if rest is not left and self._covers({word: wanted}, rest) == "yes":
            return found
        if len(near) != 1:
            return [*found, Problem(at, "alternatives", certain=False)]
        problems = self.place(rest, near[0], at)
        proved = word == "anyOf" and not any(one.narrows for one in problems)
        return [*found, *(problems if problems or proved else [Problem(at, "alternatives", certain=False)])]

    def _meet(self, left: Schema, right: Schema) -> bool:
        one, other = self._form(self._left, left), self._form(self._right, right)
        if one is None or other is None:
            return True
        try:
            return one.intersect(other).satisfiability().value != "no"
        except ValueError:
            return True

    def _undeclared(self, left: Schema, right: Schema, at: str) -> list[Problem]:
        """Properties that the left declares and the right does not, though it may accept them."""
        names = {name for one in self._left.around(left) for name, _ in pairs_of(one.get("properties"))}
        others = list(self._right.around(right))
        names -= {name for one in others for name, _ in pairs_of(one.get("properties"))}
        patterns = [text for one in others for text, _ in pairs_of(one.get("patternProperties"))]
        known = self._left.parts(left)
        return [
            Problem(member(at, name), "unlisted", certain=False)
            for name in sorted(names)
            if not any(_matches(text, name) for text in patterns) and _property(known, name) is not False
        ]

    # ------------------------------------------------------------ keywords that lead to parts of the value

    def _type(self, known: list[dict[str, Any]], part: dict[str, Any], at: str, proved: bool) -> list[Problem]:
        kinds = _kinds(self._left, {"allOf": known})
        lost = kinds - _kinds(self._right, {"type": part["type"]})
        return [_kinds_lost(at, kinds, lost)] if lost and not proved else []

    def _required(self, known: list[dict[str, Any]], part: dict[str, Any], at: str, proved: bool) -> list[Problem]:
        if proved or "object" not in _kinds(self._left, {"allOf": known}):
            return []
        there = {name for one in known for name in listed(one.get("required"))}
        return [Problem(member(at, name), "required") for name in listed(part["required"]) if name not in there]

    def _properties(self, known: list[dict[str, Any]], part: dict[str, Any], at: str, proved: bool) -> list[Problem]:
        if "object" not in _kinds(self._left, {"allOf": known}):
            return []
        found: list[Problem] = []
        for name, schema in pairs_of(part["properties"]):
            if self._may_have(known, name):
                found += self._within(_property(known, name), schema, member(at, name), proved)
        return found

    def _additional(self, known: list[dict[str, Any]], part: dict[str, Any], at: str, proved: bool) -> list[Problem]:
        """Properties that the left may have and this part of the right does not list."""
        if "object" not in _kinds(self._left, {"allOf": known}):
            return []
        schema, patterns = part["additionalProperties"], [text for text, _ in pairs_of(part.get("patternProperties"))]
        around = list(self._left.around({"allOf": known}))
        names = {name for one in around for name, _ in pairs_of(one.get("properties"))}
        found: list[Problem] = []
        for name in sorted(names - dict(pairs_of(part.get("properties"))).keys()):
            value = _property(known, name)
            if any(_matches(text, name) for text in patterns) or value is False:
                continue
            if schema is not False:
                found += self._within(value, schema, member(at, name), proved)
            elif not proved:
                found.append(Problem(member(at, name), "refused"))
        others = {text for one in around for text, _ in pairs_of(one.get("patternProperties"))} - set(patterns)
        closed = any(one.get("$comment") == _CLOSED for one in known)
        if proved or (closed and not others):
            return found
        rest = (
            True if others else _both([one["additionalProperties"] for one in known if "additionalProperties" in one])
        )
        problems = self._within(rest, schema, f"{at}.*", proved)
        return [*found, *([Problem(at, "open")] if schema is False and problems else problems)]

    def _may_have(self, known: list[dict[str, Any]], name: str) -> bool:
        if not any(one.get("$comment") == _CLOSED for one in known):
            return True
        return any(
            name in dict(pairs_of(one.get("properties")))
            or any(_matches(text, name) for text, _ in pairs_of(one.get("patternProperties")))
            for one in self._left.around({"allOf": known})
        )

    def _items(self, known: list[dict[str, Any]], part: dict[str, Any], at: str, proved: bool) -> list[Problem]:
        """Items behind those that have a schema of their own."""
        if "array" not in _kinds(self._left, {"allOf": known}):
            return []
        first = len(listed(part.get("prefixItems")))
        last = max([first, *(len(listed(one.get("prefixItems"))) for one in known)])
        found: list[Problem] = []
        for place in range(first, last):
            found += self._within(_item(known, place), part["items"], f"{at}[{place}]", proved)
        return found + self._within(_item(known, last), part["items"], f"{at}[]", proved)

    def _prefix(self, known: list[dict[str, Any]], part: dict[str, Any], at: str, proved: bool) -> list[Problem]:
        if "array" not in _kinds(self._left, {"allOf": known}):
            return []
        found: list[Problem] = []
        for place, schema in enumerate(listed(part["prefixItems"])):
            found += self._within(_item(known, place), schema, f"{at}[{place}]", proved)
        return found


def _kinds_lost(at: str, kinds: frozenset[str], lost: frozenset[str]) -> Problem:
    only_fractions = lost == {"fraction"} and "integer" in kinds
    return Problem(at, "fractions") if only_fractions else Problem(at, "kinds", lost)


def _without(schema: dict[str, Any], word: str) -> dict[str, Any]:
    """A part without what the other parts say."""
    return {key: value for key, value in schema.items() if key not in (word, "$ref", "allOf")}


def _property(known: list[dict[str, Any]], name: str) -> Schema:
    """What is known of the value of a property."""
    found: list[Schema] = []
    for part in known:
        here = [schema for one, schema in pairs_of(part.get("properties")) if one == name]
        patterns = [(text, schema) for text, schema in pairs_of(part.get("patternProperties")) if _matches(text, name)]
        here += [schema if _is_readable(text) else True for text, schema in patterns]
        if not here and "additionalProperties" in part:
            here = [part["additionalProperties"]]
        found += here
    return _both(found)


def _item(known: list[dict[str, Any]], place: int) -> Schema:
    """What is known of the item at a place."""
    found: list[Schema] = []
    for part in known:
        first = listed(part.get("prefixItems"))
        found.append(first[place] if place < len(first) else part.get("items", True))
    return _both(found)


def _matches(pattern: str, name: str) -> bool:
    """Whether a name matches a pattern of JSON Schema, or may match one that can't be read."""
    found = _compiled(pattern)
    return found is None or found.is_valid(name)


def _is_readable(pattern: str) -> bool:
    return _compiled(pattern) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> jsonschema_rs.Validator | None:
    from hinge.protocol.validation import compile_schema

    try:
        return compile_schema({"pattern": pattern})
    except ValueError:
        return None


def _is_schema(schema: Schema) -> bool:
    import jsonschema_rs

    try:
        return jsonschema_rs.meta.is_valid(schema)
    except (ValueError, jsonschema_rs.ReferencingError):
        return False


_TYPES = {"fraction": "number"}
_Rule: TypeAlias = Callable[[_Comparison, list[dict[str, Any]], dict[str, Any], str, bool], list[Problem]]
#: A keyword of the right is met if its rule finds nothing that narrows, or if jsonschema_rs says so.
_RULES: Mapping[str, _Rule] = {
    "type": _Comparison._type,
    "required": _Comparison._required,
    "properties": _Comparison._properties,
    "additionalProperties": _Comparison._additional,
    "items": _Comparison._items,
    "prefixItems": _Comparison._prefix,
}
