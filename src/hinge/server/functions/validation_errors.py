"""What is wrong with a JSON value: every difference from a schema of ours, as lines that a model can act on.

Knows the JSON Schema words that our own schemas use and nothing of the library that refused the value: it runs only
after a refusal, whichever library that was, and at most ECHO_LIMIT bytes of the value are echoed.
"""

from __future__ import annotations

import datetime
import decimal
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from hinge.errors import ECHO_LIMIT, shorten

#: No more lines than this: a model corrects a few at a time.
_MOST = 20
#: No more parts of a value than this are looked at.
_VISITS = 10_000
#: How alike two names must be for one to be taken for the other, 0 to 1.
_CLOSE = 0.7
#: No more bytes than this of one value are echoed.
_ECHO_ONE = 40

Path = tuple[str | int, ...]


class Key(str):
    """A step of a path that the caller chose, not we: its bytes count as echo."""

    __slots__ = ()


class Refusal(NamedTuple):
    """That a library refused a value, and where.

    `reason` is the text of the author's own check, if one failed; `spare` is what to say when the schema doesn't tell
    what is wrong. `tried` means that this was one of several types that might have fitted.
    """

    path: Path
    reason: str | None = None
    spare: str | None = None
    tried: bool = False


class Problem(NamedTuple):
    """One difference. `text` is complete, or, when `value` is given, is followed by what came instead."""

    path: Path
    text: str
    value: Any = msgspec.UNSET


def lines(problems: Sequence[Problem]) -> list[str]:
    """The problems as text: `days: expected integer, got string "three"`; the echo in all of them is bounded."""
    echo = _Echo()
    texts = [echo.line(problem) for problem in problems[:_MOST]]
    if len(problems) > _MOST:
        texts.append("and more")
    return texts


def explain(schema: Schema, value: Any, refusals: Sequence[Refusal], *, path: Path = (), sure: bool) -> list[Problem]:
    """Why `value` was refused: what the schema says, and the refusals that it doesn't account for.

    With `sure`, the library checks what the schema says, so each difference counts; without, it may be more lenient,
    so only differences at a place that it refused count (and patterns are left to it).
    `schema` may hold `$ref`s into its own `$defs`. Paths of refusals are relative to the value.
    """
    finder = _Finder(schema, patterns=sure)
    found = finder.problems(schema, value, ())
    if not sure:
        found = [problem for problem in found if any(_related(problem.path, refusal.path) for refusal in refusals)]
    for refusal in refusals:
        told = found if refusal.tried else [problem for problem in found if _related(problem.path, refusal.path)]
        if refusal.reason is None and told:
            continue
        found.append(_from_refusal(schema, value, refusal))
    return [problem._replace(path=path + problem.path) for problem in found]


def unknown(name: str, known: Iterable[str], path: Path = (), what: str = "field") -> Problem:
    """A member that doesn't exist: names the closest that does, or all of them when they are few."""
    names = list(known)
    if close := _closest(name, names):
        hint = f'did you mean "{close}"?'
    elif not names:
        hint = f"there are no {what}s here"
    else:
        hint = "known: " + ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
    return Problem((*path, Key(name)), f"unknown {what}; {hint}")


def _closest(name: str, names: Sequence[str]) -> str | None:
    from difflib import get_close_matches

    short = name[:_ECHO_ONE]
    folded = {other.lower().replace("_", ""): other for other in names}
    if match := folded.get(short.lower().replace("_", "").replace("-", "")):
        return match
    return next(iter(get_close_matches(short, names, 1, _CLOSE)), None)


def _related(one: Path, other: Path) -> bool:
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]


def _from_refusal(schema: Schema, value: Any, refusal: Refusal) -> Problem:
    if refusal.reason is not None:
        return Problem(refusal.path, shorten(" ".join(refusal.reason.split())))
    for step in refusal.path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return Problem(refusal.path, "missing")
    here = follow(schema, refusal.path)
    if refusal.spare is not None and not here.keys() & {"format", "pattern", "contentEncoding"}:
        return Problem(refusal.path, shorten(refusal.spare), value)
    return Problem(refusal.path, f"expected {expected(here, schema)}", value)


class _Finder:
    """Walks a value and a schema side by side."""

    def __init__(self, root: Schema, *, patterns: bool) -> None:
        self.root = root
        self.patterns = patterns
        self.visits = 0

    def problems(self, schema: Schema | bool, value: Any, path: Path) -> list[Problem]:
        self.visits += 1
        if self.visits > _VISITS or not isinstance(schema, Mapping):
            return []
        if isinstance(reference := schema.get("$ref"), str):
            return self.problems(resolve_reference(self.root, reference), value, path)
        if "anyOf" in schema or "oneOf" in schema:
            return self._union(schema, value, path)
        if not self._has_type(schema, value) or not self._is_listed(schema, value):
            return [Problem(path, f"expected {expected(schema, self.root)}", value)]
        return list(self._inside(schema, value, path))

    def _inside(self, schema: Schema, value: Any, path: Path) -> Iterator[Problem]:
        for part in schema.get("allOf", ()):
            yield from self.problems(part, value, path)
        if isinstance(value, dict):
            yield from self._object(schema, value, path)
        elif isinstance(value, list):
            yield from self._array(schema, value, path)
        elif not self._within_limits(schema, value):
            yield Problem(path, f"expected {expected(schema, self.root)}", value)

    def _has_type(self, schema: Schema, value: Any) -> bool:
        wanted = schema.get("type")
        if wanted is None:
            return True
        types = wanted if isinstance(wanted, list) else [wanted]
        actual = type_of(value)
        return actual in types or (actual == "integer" and "number" in types)

    def _is_listed(self, schema: Schema, value: Any) -> bool:
        if "const" in schema:
            return _same(schema["const"], value)
        return "enum" not in schema or any(_same(option, value) for option in schema["enum"])

    def _within_limits(self, schema: Schema, value: Any) -> bool:
        for word, holds in _LIMITS.items():
            applies = word in schema and isinstance(value, _LIMITED[word]) and not isinstance(value, bool)
            if applies and not holds(value, schema[word]):
                return False
        if isinstance(value, str):
            if self.patterns and "pattern" in schema and not re.search(schema["pattern"], value):
                return False
            return fits_format(schema, value)
        return True

    def _object(self, schema: Schema, value: dict[str, Any], path: Path) -> Iterator[Problem]:
        properties: Schema = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        for name in schema.get("required", ()):
            if name not in value:
                yield Problem((*path, name), f"missing (required {expected(properties.get(name, {}), self.root)})")
        for name, item in value.items():
            if name in properties:
                yield from self.problems(properties[name], item, (*path, name))
            elif others is False:
                yield unknown(name, properties, path)
            else:
                yield from self.problems(others, item, (*path, Key(name)))
                if "propertyNames" in schema and self.problems(schema["propertyNames"], name, path):
                    yield Problem((*path, Key(name)), "the name is not allowed here")
        if not _counts(schema, len(value), "minProperties", "maxProperties"):
            yield Problem(path, f"expected {expected(schema, self.root)}", value)

    def _array(self, schema: Schema, value: list[Any], path: Path) -> Iterator[Problem]:
        first: Sequence[Schema] = schema.get("prefixItems", ())
        rest = schema.get("items", True)
        if not _counts(schema, len(value), "minItems", "maxItems"):
            yield Problem(path, f"expected {expected(schema, self.root)}", value)
        for index, item in enumerate(value):
            yield from self.problems(first[index] if index < len(first) else rest, item, (*path, index))

    def _union(self, schema: Schema, value: Any, path: Path) -> list[Problem]:
        """No branch may fit: then the problems of the branch that was meant, if that can be told."""
        branches = [resolved(self.root, branch) for branch in schema.get("anyOf") or schema["oneOf"]]
        tagged = [branch for branch in branches if self._has_tag_of(branch, value)]
        meant: list[list[Problem]] = []
        for branch in tagged or branches:
            found = self.problems(branch, value, path)
            if not found:
                return []
            if self._has_type(branch, value):
                meant.append(found)
        if isinstance(value, dict) and not tagged and (tags := _tags(branches)):
            name, options = tags
            wanted = expected({"enum": options}, self.root)
            if name not in value:
                return [Problem((*path, name), f"missing (required {wanted})")]
            return [Problem((*path, name), f"expected {wanted}", value[name])]
        closest = min(meant, key=len, default=[])
        if len(meant) == 1 or any(problem.path != path for problem in closest):
            return closest
        return [Problem(path, f"expected {expected(schema, self.root)}", value)]

    def _has_tag_of(self, branch: Schema, value: Any) -> bool:
        """Whether a member that can have only one value in this branch has that value."""
        if not isinstance(value, dict):
            return False
        return any(
            "const" in schema and name in value and _same(schema["const"], value[name])
            for name, schema in branch.get("properties", {}).items()
        )


def _tags(branches: Sequence[Schema]) -> tuple[str, list[Any]] | None:
    """The member that tells the object branches of a union apart, and its values."""
    objects: list[Schema] = [branch["properties"] for branch in branches if "properties" in branch]
    for name in objects[0] if len(objects) > 1 else ():
        if all("const" in properties.get(name, ()) for properties in objects):
            return name, [properties[name]["const"] for properties in objects]
    return None


def _same(one: Any, other: Any) -> bool:
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


class _Echo:
    """Writes lines and keeps count of the caller's bytes in them."""

    def __init__(self) -> None:
        self.left = ECHO_LIMIT

    def line(self, problem: Problem) -> str:
        path = self.path(problem.path)
        text = problem.text
        if problem.value is not msgspec.UNSET:
            text += f", got {self.value(problem.value)}{_json_in_a_string(problem)}"
        return f"{path}: {text}" if path else text

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
        kind = type_of(value)
        if value is None:
            return kind
        shown = _json(self._cut(value)) if isinstance(value, str) else self._cut(_json(value))
        return f"{kind} {shown}" if self.left > 0 or shown.strip('"…') else kind

    def _cut(self, text: str) -> str:
        room = max(0, min(_ECHO_ONE, self.left))
        data = text.encode("utf-8", "replace")
        self.left -= min(len(data), room)
        if len(data) <= room:
            return text
        return data[:room].decode("utf-8", "ignore") + "…"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _json_in_a_string(problem: Problem) -> str:
    """Models sometimes write JSON into a string where JSON itself is wanted."""
    value = problem.value
    wants = problem.text.startswith(("expected object", "expected array"))
    return " (pass the JSON itself, not a string that holds JSON)" if wants and _is_json_text(value) else ""


def _is_json_text(value: Any) -> bool:
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return False
    try:
        msgspec.json.decode(value, type=Raw)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return False
    return True


Schema = Mapping[str, Any]

#: No more options than this are told.
_OPTIONS = 12

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
_FORMATS: dict[str, type] = {
    "date": datetime.date,
    "date-time": datetime.datetime,
    "time": datetime.time,
    "duration": datetime.timedelta,
    "uuid": uuid.UUID,
    "decimal": decimal.Decimal,
}
_TYPES: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


def type_of(value: Any) -> str:
    """The JSON type of a decoded value; whole numbers are `integer`."""
    return _TYPES[type(value)]


def fits_format(schema: Schema, value: str) -> bool:
    """Whether the string has the schema's format or encoding; formats that aren't known here always fit."""
    wanted = bytes if schema.get("contentEncoding") == "base64" else _FORMATS.get(schema.get("format", ""))
    if wanted is None:
        return True
    try:
        msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        return False
    return True


def resolve_reference(root: Schema, reference: str) -> Schema:
    """The definition that a `#/$defs/...` reference names; an empty schema if there is none."""
    found: Schema = root.get("$defs", {}).get(reference.rpartition("/")[2], {})
    return found


def resolved(root: Schema, schema: Schema) -> Schema:
    """The schema, or the definition that it refers to."""
    reference = schema.get("$ref")
    return resolve_reference(root, reference) if isinstance(reference, str) else schema


def follow(root: Schema, path: Iterable[str | int]) -> Schema:
    """The schema for the place in a value that `path` names, as far as it can be told; else an empty schema."""
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
        found = first[step] if step < len(first) else schema.get("items")
    else:
        found = schema.get("properties", {}).get(step, schema.get("additionalProperties"))
    return found if isinstance(found, Mapping) else None


def expected(schema: Schema | bool, root: Schema) -> str:
    """The words for what the schema wants; `root` holds the definitions that it refers to."""
    if not isinstance(schema, Mapping):
        return "any value" if schema else "nothing"
    schema = resolved(root, schema)
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        return " or ".join(dict.fromkeys(expected(branch, root) for branch in branches))
    if "const" in schema:
        return _json(schema["const"])
    if "enum" in schema:
        return _options(schema["enum"])
    types = schema.get("type", "any value")
    return " or ".join(_of_type(schema, kind) for kind in ([types] if isinstance(types, str) else types))


def _options(options: Sequence[Any]) -> str:
    shown = ", ".join(_json(option) for option in options[:_OPTIONS])
    more = f", … ({len(options)} in all)" if len(options) > _OPTIONS else ""
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
    if schema.get("contentEncoding") == "base64":
        return "base64 string"
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
