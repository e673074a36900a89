"""Elicitation forms: a form's JSON Schema as fields, and typed text as values that fit them. No I/O.

Understands how every revision writes choices: `enum` with `enumNames`, `oneOf` with titles, arrays of choices. Types that
the specification doesn't allow in a form, such as objects, are read as JSON.
https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#requested-schema
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from gemel.errors import shorten
from gemel.protocol.validation import compile_schema, first_problem
from gemel.visible import escape_line

#: Fields of a form; one with more is refused.
MAX_FIELDS = 100

_YES = {"y", "yes", "true", "on", "1"}
_NO = {"n", "no", "false", "off", "0"}
#: String formats: what to call them, and an example.
_FORMATS = {
    "email": ("an e-mail address", "ada@example.org"),
    "uri": ("a URI", "https://example.org/page"),
    "decimal": ("a number", "19.90"),
    "date": ("a date (year-month-day)", "2031-05-17"),
    "date-time": ("a date and time with its time zone", "2031-05-17T20:15:00+02:00"),
}
#: What a server must not ask for in a form (Elicitation, "Safe URL Handling" and "Security Considerations").
_SECRET = re.compile(
    r"pass(word|phrase|code)|secret|token(?![si])|api.?key|private.?key|credit.?card|\bcvv\b|\bpin\b", re.I
)


class Choice(msgspec.Struct, frozen=True):
    """A value that may be chosen, and its title."""

    value: Any
    title: str


def form_fields(schema: Mapping[str, Any]) -> list[FormField]:
    """Return the fields of a form in their order.

    Args:
        schema: the `requestedSchema` of an elicitation.

    Returns:
        One field for each property.

    Raises:
        ValueError: the properties are not an object, or there are more than MAX_FIELDS.
    """
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise ValueError("its fields can't be read")
    if len(properties) > MAX_FIELDS:
        raise ValueError(f"it has {len(properties)} fields, and at most {MAX_FIELDS} are allowed")
    required = schema.get("required") or ()
    definitions = {key: schema[key] for key in ("$defs", "definitions", "$schema") if key in schema}
    return [FormField(name, field, name in required, definitions) for name, field in properties.items()]


class FormField:
    """One field of a form."""

    def __init__(self, name: str, schema: object, required: bool, definitions: Mapping[str, Any]) -> None:
        self.name = name
        self.required = required
        self._full_schema = {**definitions, **schema} if isinstance(schema, dict) else {}
        self.schema = _simplify(self._full_schema, definitions)
        self.type: str = self.schema["type"] if isinstance(self.schema.get("type"), str) else ""
        items = self.schema.get("items")
        self.choices = list(_choices(self.schema)) or (list(_choices(items)) if self.type == "array" else [])
        self.multiple = self.type == "array" and bool(self.choices)
        #: Choices can be typed as numbers, unless their own names are numbers.
        self.numbered = not any(choice.title.isdecimal() or str(choice.value).isdecimal() for choice in self.choices)

    @property
    def title(self) -> str:
        """The title or name, escaped and shortened."""
        return shorten(escape_line(str(self.schema.get("title") or self.name)))

    @property
    def description(self) -> str:
        """The server's description, escaped; empty if there is none."""
        text = self.schema.get("description")
        return escape_line(text) if isinstance(text, str) else ""

    @property
    def secret(self) -> bool:
        """Whether the field seems to ask for a password, key or card number."""
        return any(_SECRET.search(text) for text in (self.name.replace("_", " "), self.title, self.description))

    @property
    def default(self) -> Any:
        """The default value; UNSET if there is none or it doesn't fit the field."""
        value = self.schema.get("default", UNSET)
        return UNSET if value is UNSET or value is None or self._error(value) else value

    @property
    def hint(self) -> str:
        """What may be typed, such as "a whole number, 0 to 5"."""
        low, high = ("minLength", "maxLength") if self.type == "string" else ("minimum", "maximum")
        if self.multiple:
            low, high = "minItems", "maxItems"
        least, most = self.schema.get(low), self.schema.get(high)
        unit = " characters" if self.type == "string" else ""
        words = [self._kind()]
        if least is not None and most is not None:
            words.append(f"{least} to {most}{unit}")
        elif least is not None:
            words.append(f"at least {least}{unit.removesuffix('s') if least == 1 else unit}")
        elif most is not None:
            words.append(f"at most {most}{unit.removesuffix('s') if most == 1 else unit}")
        if not self.required and self.default is UNSET:
            words.append("optional")
        return escape_line(", ".join(filter(None, words)))

    def format(self, value: object) -> str:
        """Return a value as the user would type or choose it, escaped."""
        if self.multiple and isinstance(value, list):
            return ", ".join(map(self._title_of, value)) or "none"
        if self.choices:
            return self._title_of(value)
        if isinstance(value, bool):
            return "yes" if value else "no"
        return escape_line(value if isinstance(value, str) else msgspec.json.encode(value).decode())

    def parse(self, text: str) -> Any:
        """Return typed text as a value of this field.

        Args:
            text: one line, without its end.

        Returns:
            A value that fits the field's schema.

        Raises:
            ValueError: it doesn't fit; the message says what to type.
        """
        value = self._value(text)
        error = self._error(value)
        if error is not None:
            raise ValueError(escape_line(error))
        return value

    def _error(self, value: object) -> str | None:
        try:
            return first_problem(compile_schema(self._full_schema), value)
        except ValueError:
            return None  # an unusable schema forbids nothing; the server checks the value itself

    def _value(self, text: str) -> Any:
        if self.multiple:
            parts = [part.strip() for part in text.split(",")]
            return [] if text.strip() in ("-", "none") else [self._choose(part) for part in parts if part]
        if self.choices:
            return self._choose(text.strip())
        if self.type == "string":
            return self._string(text)
        if self.type == "boolean":
            return parse_yes_no(text)
        if self.type in ("integer", "number"):
            return _number(text, self.type)
        try:
            return msgspec.json.decode(text.encode())
        except (msgspec.DecodeError, RecursionError) as exc:
            raise ValueError(f"this is not JSON: {exc}") from None

    def _string(self, text: str) -> str:
        name = self.schema.get("format")
        if name == "decimal":
            _number(text, "number")  # which has fewer digits than the text
        elif isinstance(name, str) and name in _FORMATS and text:
            import jsonschema_rs

            if not jsonschema_rs.is_valid({"format": name}, text, validate_formats=True):
                kind, example = _FORMATS[name]
                raise ValueError(f"{shorten(escape_line(text))!r} is not {kind}, such as {example}")
        return text

    def _choose(self, text: str) -> Any:
        for choice in self.choices:
            if text in (choice.value, choice.title, str(choice.value)):
                return choice.value
        if self.numbered and text.isdecimal() and 1 <= int(text) <= len(self.choices):
            return self.choices[int(text) - 1].value
        near = [choice for choice in self.choices if text and choice.title.lower().startswith(text.lower())]
        if len(near) == 1:
            return near[0].value
        expected = f"a number from 1 to {len(self.choices)}, or a name" if self.numbered else "one of the names"
        raise ValueError(f"{shorten(escape_line(text))!r} is not one of the choices: type {expected}")

    def _title_of(self, value: object) -> str:
        titles = (choice.title for choice in self.choices if choice.value == value)
        return escape_line(next(titles, str(value)))

    def _kind(self) -> str:
        if self.multiple:
            return "one or more of these, separated by commas"
        if self.choices:
            return "one of these"
        if self.type == "string":
            return _FORMATS.get(str(self.schema.get("format")), ("", ""))[0]
        return {"boolean": "yes or no", "integer": "a whole number", "number": "a number"}.get(self.type, "as JSON")


def parse_yes_no(text: str) -> bool:
    """Return whether a typed text means yes. Raises ValueError if it means neither yes nor no."""
    word = text.strip().lower()
    if word not in _YES | _NO:
        raise ValueError("type y for yes or n for no")
    return word in _YES


def _number(text: str, kind: str) -> int | float:
    word = text.strip()
    example = "a whole number, such as 42" if kind == "integer" else "a number, such as 3.5"
    try:
        if kind == "integer" or word.lstrip("+-").isdecimal():
            value: int | float = int(word)
        else:
            value = float(word)
    except ValueError:
        value = math.nan
    if not word or "_" in word or value != value or value in (math.inf, -math.inf):
        raise ValueError(f"{shorten(escape_line(text))!r} is not {example}")
    return value


def _simplify(schema: object, definitions: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Resolve what schema generators add: a reference to a definition, and `null` as an alternative."""
    simple = dict(schema) if isinstance(schema, Mapping) else {}
    reference = simple.pop("$ref", None)
    if isinstance(reference, str):
        name = reference.rpartition("/")[2]
        groups = (group for group in definitions.values() if isinstance(group, Mapping))
        target: Any = next((group[name] for group in groups if name in group), None)
        simple = {**(target if isinstance(target, Mapping) else {}), **simple}
    if isinstance(simple.get("type"), list):
        types = [name for name in simple["type"] if name != "null"]
        simple["type"] = types[0] if len(types) == 1 else None
    options = simple.get("anyOf")
    if isinstance(options, list) and not list(_choices(simple)):
        real = [option for option in options if isinstance(option, Mapping) and option.get("type") != "null"]
        if len(real) == 1 and depth < MAX_FIELDS:  # a definition may refer to itself
            outer = {key: value for key, value in simple.items() if key != "anyOf"}
            simple = {**_simplify(real[0], definitions, depth + 1), **outer}
        elif _is_decimal(real):
            outer = {key: value for key, value in simple.items() if key != "anyOf"}
            simple = {**outer, "type": "string", "format": "decimal"}
    return simple


def _is_decimal(options: list[Any]) -> bool:
    """Whether these are a number, and a text that is one: what has more digits than a number of JSON keeps."""
    texts = [option for option in options if option.get("type") == "string"]
    return (
        len(options) == 2
        and {option.get("type") for option in options} == {"number", "string"}
        and (texts[0].get("format") == "decimal" or "pattern" in texts[0])
    )


def _choices(schema: object) -> Iterator[Choice]:
    """Yield the choices of a schema, in each way that a revision writes them."""
    if not isinstance(schema, Mapping):
        return
    values, names = schema.get("enum"), schema.get("enumNames")
    if isinstance(values, list):
        titles = names if isinstance(names, list) and len(names) == len(values) else values
        yield from (Choice(value, str(title)) for value, title in zip(values, titles, strict=True))
        return
    for key in ("oneOf", "anyOf"):
        options = schema.get(key)
        if isinstance(options, list) and all(isinstance(one, Mapping) and "const" in one for one in options):
            yield from (Choice(one["const"], str(one.get("title", one["const"]))) for one in options)
            return
    if "const" in schema:
        yield Choice(schema["const"], str(schema.get("title", schema["const"])))
