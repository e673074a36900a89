"""Validation errors: every difference between a JSON value and a schema of ours, worded so that a model can correct it.

Runs only after msgspec or pydantic rejected the value, and words the errors of both alike. At most ECHO_LIMIT bytes of the
value are repeated in all errors together. Knows only the JSON Schema keywords that our own schemas use.
"""

from __future__ import annotations

import datetime
import decimal
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from gemel.errors import ECHO_LIMIT, shorten
from gemel.protocol.validation import MAX_ALTERNATIVES, explain_alternatives, name_of
from gemel.values.decimals import is_in_range
from gemel.values.schemas import PATTERNS

#: At most this many errors are listed: a model corrects a few at a time.
MAX_ERRORS = 20
#: At most this many parts of a value and options of a schema are compared.
_MAX_VISITS = 10_000
#: Of JSON text with more bytes only the first error is reported.
MAX_EXPLAINED = 64 * 1024
#: Of each alternative so many differences are told. Nested ones are described so deep.
_MAX_REASONS = 2
_MAX_DESCRIBED_DEPTH = 4
#: How similar two names must be for one to be suggested in place of the other, 0 to 1.
_SIMILARITY = 0.7
#: At most this many bytes of one value are repeated.
_MAX_ECHO = 40
#: At most this many options of an enum are listed.
_MAX_OPTIONS = 12

#: What is wrong with JSON text that has no value to compare.
NOT_JSON = "not valid JSON"
NOT_AN_OBJECT = "expected object"
TOO_DEEP = "nested too deeply"
REPEATED = "not accepted; is a name given twice?"

Schema: TypeAlias = Mapping[str, Any]
Path: TypeAlias = tuple[str | int, ...]


class Key(str):
    """A step of a path that the caller named: its bytes count as repeated."""

    __slots__ = ()


class Rejection(NamedTuple):
    """A library rejected a value at this place.

    `reason` is the text of the author's own check, if one failed; `fallback` is used when the schema doesn't explain it.
    `form` says that this is about the form of a text, which the schema's format or pattern tells better. `member` says that
    the value was tried as one of several types that might have fitted, `key` that the last step of the path is what is wrong.
    """

    path: Path
    reason: str | None = None
    fallback: str | None = None
    form: bool = False
    member: bool = False
    key: bool = False


class Violation(NamedTuple):
    """One difference. `text` is complete; when `value` is given, "got" and that value are appended.

    With `alternatives` there is no text: the value fits none of them, and each has a name and differences of its own.
    """

    path: Path
    text: str
    value: Any = UNSET
    alternatives: tuple[tuple[str, list[Violation]], ...] = ()

    def without_values(self) -> Violation:
        """The same, without what the caller sent."""
        inner = tuple((name, [one.without_values() for one in inside]) for name, inside in self.alternatives)
        return self._replace(value=UNSET, alternatives=inner)


def error_lines(violations: Sequence[Violation]) -> list[str]:
    """One line for each: `days: expected integer, got string "three"`."""
    writer = _LineWriter()
    texts = [writer.line(violation) for violation in violations[:MAX_ERRORS]]
    if len(violations) > MAX_ERRORS:
        texts.append("and more")
    return texts


def explain(
    schema: Schema, value: object, rejections: Sequence[Rejection], *, path: Path = (), exact: bool
) -> list[Violation]:
    """Why `value` was rejected: where it differs from the schema, and the rejections that this doesn't explain.

    With `exact` the library checks just what the schema says, so that each difference counts. Without, it may be more
    lenient: only differences at a place that it rejected count, and patterns are left to it.
    `schema` may hold `$ref`s into its own `$defs`. Paths of rejections are relative to the value. A value that is UNSET is
    not known: only the rejections count. At most 21 are returned.
    """
    differences: Iterator[Violation] = iter(())
    if value is not UNSET:
        differences = SchemaComparison(schema, patterns=exact).violations(schema, value, ())
    if not exact:
        places = [rejection.path for rejection in rejections]
        differences = (one for one in differences if any(_overlap(one.path, place) for place in places))
    violations = list(islice(differences, MAX_ERRORS + 1))
    for rejection in rejections[: MAX_ERRORS + 1]:
        explained = (
            violations if rejection.member else [one for one in violations if _overlap(one.path, rejection.path)]
        )
        if rejection.reason is not None or not explained:
            violations.append(from_rejection(schema, value, rejection))
    return [violation._replace(path=path + violation.path) for violation in violations]


_PLACE = re.compile(r" - at (?P<key>`key` in )?`\$(?P<path>.*?)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")
_GOT = re.compile(r", got `(\w+)`$")
_EXPECTED = re.compile(r"Expected `(.+?)`(.*?)(?:, got `\w+`)?$")
_INVALID = re.compile(r"Invalid ([^']*\w)")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`$")
_NAMES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}


def rejection_of(error: msgspec.ValidationError) -> Rejection:
    """Where msgspec rejected a value, with the text of the author's own check (`__post_init__`) if that raised."""
    path, text, key = _place_of(error)
    certain = path[: path.index(_SOME_KEY)] if _SOME_KEY in path else path
    if error.__cause__ is not None:
        return Rejection(certain, text)
    return Rejection(certain, fallback=_reworded(text, key=key), form=text.startswith("Invalid") and not key)


def _reworded(text: str, *, key: bool) -> str:
    """What msgspec expects: "must be integer >= 2", "must be datetime with no timezone component"."""
    subject = "each key must be" if key else "must be"
    if expected := _EXPECTED.match(text):
        return f"{subject} {_NAMES.get(expected[1], expected[1])}{expected[2]}"
    if invalid := _INVALID.match(text):
        return f"{subject} a valid {invalid[1]}"
    return text[:1].lower() + text[1:]


def first_violation(error: msgspec.ValidationError, schema: Schema, what: str) -> Violation:
    """What msgspec says about a value that is too large to look at. `what` are the members of its root."""
    path, text, key = _place_of(error)
    if error.__cause__ is not None:
        return Violation(path, shorten(" ".join(text.split())))
    if key:
        return Violation(path, _reworded(text, key=key))
    here = schema_at(schema, path)
    if unknown := _UNKNOWN.match(text):
        return unknown_member(unknown[1], here.get("properties", ()), path, "field" if path else what)
    if absent := _MISSING.match(text):
        return missing((*path, absent[1]), here.get("properties", {}).get(absent[1], {}), schema)
    got = _GOT.search(text)
    return Violation(
        path, f"expected {describe(here, schema)}" + (f", got {_NAMES.get(got[1], got[1])}" if got else "")
    )


#: A key of a mapping, which msgspec doesn't name.
_SOME_KEY = "…"


def _place_of(error: msgspec.ValidationError) -> tuple[Path, str, bool]:
    """The path, the text without it, and whether a key of the value there is wrong."""
    text = str(error)
    place = _PLACE.search(text)
    if place is None:
        return (), text, False
    path: Path = ()
    for step in _STEP.finditer(place["path"]):
        path += (step[1] or (int(step[2]) if step[2] else _SOME_KEY),)
    return path, text[: place.start()], place["key"] is not None


def unknown_member(name: str, known: Iterable[str], path: Path = (), what: str = "field") -> Violation:
    """A member that doesn't exist: suggests the most similar one that does, or lists them."""
    names = list(known)
    if similar := _most_similar(name, names):
        hint = f'did you mean "{similar}"?'
    elif not names:
        hint = f"there are no {what}s here"
    else:
        hint = "known: " + ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
    return Violation((*path, Key(name)), f"unknown {what}; {hint}")


def missing(path: Path, schema: Schema, root: Schema) -> Violation:
    """A required member that isn't there."""
    return Violation(path, f"missing (required {describe(schema, root)})")


def out_of_range(path: Path, schema: Schema, root: Schema) -> Violation:
    """A number that is too large for a Python float."""
    return Violation(path, f"expected {describe(schema, root)}, got a number out of range")


def _most_similar(name: str, names: Sequence[str]) -> str | None:
    from difflib import get_close_matches

    short = name[:_MAX_ECHO]
    folded = {other.lower().replace("_", ""): other for other in names}
    if match := folded.get(short.lower().replace("_", "").replace("-", "")):
        return match
    return next(iter(get_close_matches(short, names, 1, _SIMILARITY)), None)


def _overlap(one: Path, other: Path) -> bool:
    """Whether one path leads to the other's place or a place within it."""
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]


def from_rejection(schema: Schema, value: object, rejection: Rejection, path: Path = ()) -> Violation:
    """A rejection in our words. `path` is the place of the value, which may be UNSET."""
    place = path + rejection.path
    if rejection.reason is not None:
        return Violation(place, shorten(" ".join(rejection.reason.split())))
    part: Any = value
    for step in rejection.path if value is not UNSET else ():
        try:
            part = part[step]
        except (KeyError, IndexError, TypeError):
            return Violation(place, "missing")
    here = schema_at(schema, rejection.path)
    if rejection.key and rejection.fallback is not None:
        return Violation((*place[:-1], Key(place[-1])), shorten(rejection.fallback))
    if rejection.fallback is not None and not (
        rejection.form and here.keys() & {"format", "pattern", "contentEncoding"}
    ):
        return Violation(place, shorten(rejection.fallback), part)
    return Violation(place, f"expected {describe(here, schema)}", part)


class SchemaComparison:
    """Compares values with a schema, until so many parts of them were visited: the others count as fitting.

    Patterns of texts and names of members are compared only if `patterns` and `keys` say so.
    """

    def __init__(self, root: Schema, *, patterns: bool, keys: bool = True, visits: int = _MAX_VISITS) -> None:
        self.root = root
        self.patterns = patterns
        self.keys = keys
        self._left = visits

    def visit(self, parts: int = 1) -> bool:
        """Count visited parts. Whether they may be visited."""
        self._left -= parts
        return self._left >= 0

    @property
    def exhausted(self) -> bool:
        """Whether no more parts may be visited."""
        return self._left < 0

    def fits(self, schema: Schema | bool, value: object) -> bool:
        """Whether no difference is seen."""
        return next(self.violations(schema, value, ()), None) is None

    def violations(self, schema: Schema | bool, value: object, path: Path) -> Iterator[Violation]:
        """The differences, at `path`."""
        if not self.visit() or not isinstance(schema, Mapping):
            return
        if isinstance(reference := schema.get("$ref"), str):
            yield from self.violations(definition(self.root, reference), value, path)
        elif "anyOf" in schema or "oneOf" in schema:
            yield from self._union(schema, value, path)
        elif not has_type(schema, value) or not self._is_listed(schema, value):
            yield Violation(path, f"expected {describe(schema, self.root)}", value)
        else:
            yield from self._inside(schema, value, path)

    def _inside(self, schema: Schema, value: object, path: Path) -> Iterator[Violation]:
        for part in schema.get("allOf", ()):
            yield from self.violations(part, value, path)
        if isinstance(value, dict):
            yield from self._object(schema, value, path)
        elif isinstance(value, list):
            yield from self._array(schema, value, path)
        elif not self._within_limits(schema, value):
            yield Violation(path, f"expected {describe(schema, self.root)}", value)

    def _is_listed(self, schema: Schema, value: object) -> bool:
        self.visit(len(schema.get("enum", ())) // 10)
        return is_listed(schema, value)

    def _within_limits(self, schema: Schema, value: object) -> bool:
        if schema.get("contentEncoding") in _ENCODINGS:  # the library counts the bytes
            return not isinstance(value, str) or has_format(schema, value)
        for word, holds in _LIMITS.items():
            applies = word in schema and isinstance(value, _LIMITED[word]) and not isinstance(value, bool)
            if applies and not holds(value, schema[word]):
                return False
        if isinstance(value, str):
            if self.patterns and "pattern" in schema and not re.search(schema["pattern"], value):
                return False
            return has_format(schema, value)
        return True

    def _object(self, schema: Schema, value: dict[str, Any], path: Path) -> Iterator[Violation]:
        properties: Schema = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        for name in schema.get("required", ()):
            if name not in value:
                yield missing((*path, name), properties.get(name, {}), self.root)
        for name, item in value.items():
            if self.exhausted:
                return
            if name in properties:
                yield from self.violations(properties[name], item, (*path, name))
            elif others is False:
                yield unknown_member(name, properties, path)
            else:
                yield from self.violations(others, item, (*path, Key(name)))
                names: Any = schema.get("propertyNames", True) if self.keys else True
                if not self.fits(names, name):
                    yield Violation(
                        (*path, Key(name)), f"the key must be {describe({'type': 'string', **names}, self.root)}"
                    )
        if not _counts(schema, len(value), "minProperties", "maxProperties"):
            yield Violation(path, f"expected {describe(schema, self.root)}", value)

    def _array(self, schema: Schema, value: list[Any], path: Path) -> Iterator[Violation]:
        first: Sequence[Schema] = schema.get("prefixItems", ())
        rest = schema.get("items", True)
        if not _counts(schema, len(value), "minItems", "maxItems"):
            yield Violation(path, f"expected {describe(schema, self.root)}", value)
        for index, item in enumerate(value):
            if self.exhausted:
                return
            yield from self.violations(first[index] if index < len(first) else rest, item, (*path, index))

    def _union(self, schema: Schema, value: object, path: Path) -> Iterator[Violation]:
        """Nothing if a branch fits, else the violations of the branch that was meant, or of each that may be meant."""
        branches = [(branch, resolved(self.root, branch)) for branch in schema.get("anyOf") or schema["oneOf"]]
        tagged = [pair for pair in branches if _has_tag_of(pair[1], value)]
        meant: list[tuple[Schema, list[Violation]]] = []
        for branch, plain in tagged or branches:
            violations = list(islice(self.violations(branch, value, path), MAX_ERRORS + 1))
            if not violations:
                return
            if has_type(plain, value):
                meant.append((branch, violations))
        if isinstance(value, dict) and not tagged and (tags := _tags([plain for _, plain in branches])):
            name, options = tags
            if name not in value:
                yield missing((*path, name), {"enum": options}, self.root)
            else:
                yield Violation((*path, name), f"expected {describe({'enum': options}, self.root)}", value[name])
        elif len(meant) == 1:
            yield from meant[0][1]
        elif any(violation.path != path for _, violations in meant for violation in violations):
            inside = [[one._replace(path=one.path[len(path) :]) for one in violations] for _, violations in meant]
            names = [self._name(branch) for branch, _ in meant]
            yield Violation(path, "", alternatives=tuple(zip(names, inside, strict=True)))
        else:
            yield Violation(path, f"expected {describe(schema, self.root)}", value)

    def _name(self, branch: Schema) -> str:
        """The name of the type in a branch, or what it expects."""
        items = f" of {describe(branch['items'], self.root)}" if branch.get("items") else ""
        return name_of(branch) or describe(branch, self.root) + items


def has_type(schema: Schema, value: object) -> bool:
    """Whether the type of a value is one that the schema names."""
    expected = schema.get("type")
    types = expected if isinstance(expected, list) else [expected]
    actual = json_type(value)
    return expected is None or actual in types or (actual == "integer" and "number" in types)


def is_listed(schema: Schema, value: object) -> bool:
    """Whether a value is one of those that the schema lists, if it lists any."""
    if "const" in schema:
        return _same(schema["const"], value)
    return any(_same(option, value) for option in schema.get("enum", (value,)))


def _has_tag_of(branch: Schema, value: Any) -> bool:
    """Whether a member that has only one possible value in this branch has that value."""
    properties = branch.get("properties", {}).items() if isinstance(value, dict) else ()
    return any(
        "const" in schema and name in value and _same(schema["const"], value[name]) for name, schema in properties
    )


def _tags(branches: Sequence[Schema]) -> tuple[str, list[Any]] | None:
    """The member that distinguishes the object branches of a union, and its values."""
    objects: list[Schema] = [branch["properties"] for branch in branches if "properties" in branch]
    for name in objects[0] if len(objects) > 1 else ():
        if all("const" in properties.get(name, ()) for properties in objects):
            return name, [properties[name]["const"] for properties in objects]
    return None


def _same(one: object, other: object) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _counts(schema: Schema, count: int, least: str, most: str) -> bool:
    return bool(schema.get(least, 0) <= count <= schema.get(most, count))


_LIMITS: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": lambda value, limit: value >= limit,
    "exclusiveMinimum": lambda value, limit: value > limit,
    "maximum": lambda value, limit: value <= limit,
    "exclusiveMaximum": lambda value, limit: value < limit,
    "multipleOf": lambda value, limit: value % limit == 0,
    "minLength": lambda value, limit: len(value) >= limit,
    "maxLength": lambda value, limit: len(value) <= limit,
}
_LIMITED: dict[str, type | tuple[type, ...]] = {
    word: str if word.endswith("Length") else (int, float) for word in _LIMITS
}


class _LineWriter:
    """Writes lines and counts the caller's bytes in them."""

    def __init__(self) -> None:
        self.remaining = ECHO_LIMIT

    def line(self, violation: Violation, *, nested: bool = False) -> str:
        path = self.path(violation.path)
        text = violation.text
        if alternatives := violation.alternatives:
            reasons = [self._reason(inner) for _, inner in alternatives[:MAX_ALTERNATIVES]] if not nested else []
            text = explain_alternatives([name for name, _ in alternatives], reasons)
        if violation.value is not UNSET:
            text += f", got {self.value(violation.value)}{_json_in_a_string(violation)}"
        return f"{path}: {text}" if path else text

    def _reason(self, violations: Sequence[Violation]) -> str:
        """The first differences from one alternative."""
        first = violations[:_MAX_REASONS]
        more = [f"{len(violations) - len(first)} more"] if len(violations) > len(first) else []
        return "; ".join([*(self.line(one, nested=True) for one in first), *more])

    def path(self, path: Path) -> str:
        text = ""
        for step in path:
            if isinstance(step, int):
                text += f"[{step}]"
                continue
            name = self._cut(str(step)) if isinstance(step, Key) else step
            plain = name.isidentifier() or (name.replace("-", "_").isidentifier())
            text += (f".{name}" if text else name) if plain else f"[{_json(name)}]"
        return text

    def value(self, value: Any) -> str:
        kind = json_type(value)
        if value is None:
            return kind
        shown = _json(self._cut(value)) if isinstance(value, str) else self._cut(_json(value))
        return f"{kind} {shown}" if self.remaining > 0 or shown.strip('"…') else kind

    def _cut(self, text: str) -> str:
        room = max(0, min(_MAX_ECHO, self.remaining))
        data = text.encode("utf-8", "replace")
        self.remaining -= min(len(data), room)
        if len(data) <= room:
            return text
        return data[:room].decode("utf-8", "ignore") + "…"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _json_in_a_string(violation: Violation) -> str:
    """A hint for models that put JSON into a string."""
    value = violation.value
    nested = violation.text.startswith((NOT_AN_OBJECT, "expected array"))
    return " (pass the JSON itself, not a string that holds JSON)" if nested and _is_json_text(value) else ""


def _is_json_text(value: object) -> bool:
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return False
    try:
        msgspec.json.decode(value, type=Raw)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return False
    return True


_EXAMPLES = {
    "date": '"2026-01-31"',
    "date-time": '"2026-01-31T12:00:00Z"',
    "time": '"12:00:00Z"',
    "duration": '"PT1H30M"',
    "uuid": '"12345678-1234-5678-1234-567812345678"',
    "decimal": '"1.50"',
    "email": '"name@example.org"',
    "uri": '"https://example.org/"',
}
#: Formats that are checked, by the type that reads them.
FORMATS: dict[str, type] = {
    "base64": bytes,
    "base64url": bytes,
    "date": datetime.date,
    "date-time": datetime.datetime,
    "time": datetime.time,
    "duration": datetime.timedelta,
    "uuid": uuid.UUID,
    "decimal": decimal.Decimal,
}
_ENCODINGS = ("base64", "base64url")
_URL_ALPHABET = str.maketrans("-_", "+/")
_TYPES: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


def json_type(value: object) -> str:
    """The JSON type of a decoded value; whole numbers are `integer`."""
    return _TYPES[type(value)]


def has_format(schema: Schema, value: str) -> bool:
    """Whether the string has the schema's format or encoding; formats that aren't known here always fit."""
    encoding = schema.get("contentEncoding")
    form = encoding if encoding in _ENCODINGS else schema.get("format", "")
    kind = FORMATS.get(form)
    if kind is None:
        return True
    if form == "base64url":
        value = value.translate(_URL_ALPHABET)
    try:
        read: object = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return not isinstance(read, decimal.Decimal) or is_in_range(read)


def definition(root: Schema, reference: str) -> Schema:
    """The definition that a `#/$defs/...` reference names; an empty schema if there is none."""
    definitions = root.get("$defs") or root.get("definitions") or {}
    schema: Schema = definitions.get(reference.rpartition("/")[2], {})
    return schema


def resolved(root: Schema, schema: Schema) -> Schema:
    """The schema, or the definition that it refers to."""
    reference = schema.get("$ref")
    return definition(root, reference) if isinstance(reference, str) else schema


def schema_at(root: Schema, path: Iterable[str | int]) -> Schema:
    """The schema for the place in a value that `path` names, as far as it is known; else an empty schema."""
    schema = root
    for step in path:
        for branch in _branches(root, schema):
            inner = _step(branch, step)
            if inner is not None:
                schema = inner
                break
        else:
            return {}
    return schema


def _branches(root: Schema, schema: Schema) -> Sequence[Schema]:
    schema = resolved(root, schema)
    branches = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    return [resolved(root, branch) for branch in branches] if branches else [schema]


def _step(schema: Schema, step: str | int) -> Schema | None:
    if isinstance(step, int):
        first = schema.get("prefixItems", ())
        inner = first[step] if step < len(first) else schema.get("items")
    else:
        inner = schema.get("properties", {}).get(step, schema.get("additionalProperties"))
    return inner if isinstance(inner, Mapping) else None


def describe(schema: Schema | bool, root: Schema, depth: int = 0) -> str:
    """What the schema expects, in a few words; `root` holds the definitions that it refers to."""
    if depth > _MAX_DESCRIBED_DEPTH:
        return "…"
    if not isinstance(schema, Mapping):
        return "any value" if schema else "nothing"
    schema = resolved(root, schema)
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        texts = [describe(branch, root, depth + 1) for branch in branches[:MAX_ALTERNATIVES]]
        return " or ".join(dict.fromkeys([*texts, *["…"] * (len(branches) > MAX_ALTERNATIVES)]))
    if "const" in schema:
        return _json(schema["const"])
    if "enum" in schema:
        return _options(schema["enum"])
    types = schema.get("type", "any value")
    return " or ".join(_of_type(schema, kind) for kind in ([types] if isinstance(types, str) else types))


def _options(options: Sequence[Any]) -> str:
    shown = ", ".join(_json(option) for option in options[:_MAX_OPTIONS])
    more = f", … ({len(options)} in all)" if len(options) > _MAX_OPTIONS else ""
    return f"one of {shown}{more}" if len(options) > 1 else shown


def _of_type(schema: Schema, kind: str) -> str:
    if kind in ("integer", "number"):
        return kind + _number_limits(schema)
    if kind == "string":
        return _string(schema)
    if kind == "array":
        return kind + _count(schema, "Items", "item")
    if kind == "object":
        return kind + _count(schema, "Properties", "member")
    return kind


def _number_limits(schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        words = [f"from {least} to {most}"]
    else:
        words = [f">= {least}"] * (least is not None) + [f"<= {most}"] * (most is not None)
    words += [f"> {schema['exclusiveMinimum']}"] if "exclusiveMinimum" in schema else []
    words += [f"< {schema['exclusiveMaximum']}"] if "exclusiveMaximum" in schema else []
    words += [f"a multiple of {schema['multipleOf']}"] if "multipleOf" in schema else []
    return " " + " and ".join(words) if words else ""


def _string(schema: Schema) -> str:
    if schema.get("contentEncoding") in _ENCODINGS:
        return f"{schema['contentEncoding']} string"
    if schema.get("pattern") in PATTERNS:
        return PATTERNS[schema["pattern"]]
    text = "string"
    if form := schema.get("format"):
        text = f"{form} string"
        text += f" like {_EXAMPLES[form]}" if form in _EXAMPLES else ""
    text += _count(schema, "Length", "character")
    return text + (f" matching {schema['pattern']}" if "pattern" in schema else "")


def _count(schema: Schema, what: str, unit: str) -> str:
    least, most = schema.get(f"min{what}"), schema.get(f"max{what}")
    if least is None and most is None:
        return ""
    if least == most:
        return f" of {_plural(least, unit)}"
    if least and most is not None:
        return f" of {least} to {_plural(most, unit)}"
    return f" of at least {_plural(least, unit)}" if most is None else f" of at most {_plural(most, unit)}"


def _plural(count: int | None, unit: str) -> str:
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
