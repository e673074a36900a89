"""A form as its fields: what each wants in words, and from what somebody typed to a value (ELIC-05…ELIC-09). No I/O.

Reads every revision's way to say it: `enumNames`, `oneOf` with titles, lists of choices. What no form should hold, such as
an object, is asked for as JSON.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET

from hinge.client.screen import plain
from hinge.errors import shorten
from hinge.protocol.validation import compile_schema, first_problem

#: A form with more is refused; of longer lists of choices only the beginning is shown.
MAX_FIELDS = 100
SHOWN_CHOICES = 40

_YES = {"y", "yes", "true", "on", "1"}
_NO = {"n", "no", "false", "off", "0"}
_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_EMAIL = re.compile(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)*")
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
#: What a form must not ask for (ELIC-18).
_SECRET = re.compile(
    r"pass(word|phrase|code)|secret|token(?![si])|api.?key|private.?key|credit.?card|\bcvv\b|\bpin\b", re.I
)


class Choice(msgspec.Struct, frozen=True):
    """One value to choose, and what it is called."""

    value: Any
    title: str


def fields_of(schema: Mapping[str, Any]) -> list[Field]:
    """The fields of a form in their order. Raises ValueError for a schema that is no form or too long."""
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise ValueError("its fields can't be read")
    if len(properties) > MAX_FIELDS:
        raise ValueError(f"it has {len(properties)} fields, and {MAX_FIELDS} are the most")
    required = schema.get("required") or ()
    definitions = {key: schema[key] for key in ("$defs", "definitions", "$schema") if key in schema}
    return [Field(name, found, name in required, definitions) for name, found in properties.items()]


class Field:
    """One field of a form."""

    def __init__(self, name: str, schema: Any, required: bool, definitions: Mapping[str, Any]) -> None:
        self.name = name
        self.required = required
        self._whole = {**definitions, **schema} if isinstance(schema, dict) else {}
        self.schema = _simple(self._whole, definitions)
        self.kind: str = self.schema.get("type", "") if isinstance(self.schema.get("type"), str) else ""
        items = self.schema.get("items")
        self.choices = list(_choices(self.schema)) or (list(_choices(items)) if self.kind == "array" else [])
        self.several = self.kind == "array" and bool(self.choices)
        #: Choices are numbered, unless their own names are numbers.
        self.numbered = not any(choice.title.isdecimal() or str(choice.value).isdecimal() for choice in self.choices)

    @property
    def title(self) -> str:
        """What to call it on a screen."""
        return shorten(plain(str(self.schema.get("title") or self.name)))

    @property
    def description(self) -> str:
        """What the server says of it."""
        said = self.schema.get("description")
        return plain(said) if isinstance(said, str) else ""

    @property
    def secret(self) -> bool:
        """Whether it looks like something that no server may ask for in a form."""
        return any(_SECRET.search(text) for text in (self.name.replace("_", " "), self.title, self.description))

    @property
    def default(self) -> Any:
        """The value that it has already, or UNSET; one that doesn't fit is none."""
        found = self.schema.get("default", UNSET)
        return UNSET if found is UNSET or found is None or self.problem(found) else found

    @property
    def hint(self) -> str:
        """What may be typed."""
        words = [_article(self)]
        low, high = ("minLength", "maxLength") if self.kind == "string" else ("minimum", "maximum")
        if self.several:
            low, high = "minItems", "maxItems"
        bounds = [self.schema.get(key) for key in (low, high)]
        unit = " characters" if self.kind == "string" else ""
        if bounds[0] is not None and bounds[1] is not None:
            words.append(f"{bounds[0]} to {bounds[1]}{unit}")
        elif bounds[0] is not None:
            words.append(f"at least {bounds[0]}{unit}")
        elif bounds[1] is not None:
            words.append(f"at most {bounds[1]}{unit}")
        if not self.required and self.default is UNSET:
            words.append("may be left out")
        return plain(", ".join(filter(None, words)))

    def shown(self, value: Any) -> str:
        """A value as it is typed or chosen."""
        if self.several and isinstance(value, list):
            return ", ".join(map(self._called, value)) or "none"
        if self.choices:
            return self._called(value)
        if isinstance(value, bool):
            return "yes" if value else "no"
        return plain(value) if isinstance(value, str) else plain(msgspec.json.encode(value).decode())

    def _called(self, value: Any) -> str:
        return next((plain(choice.title) for choice in self.choices if choice.value == value), plain(str(value)))

    # ---------------------------------------------------------------- from text to a value

    def read(self, text: str) -> Any:
        """What was typed as a value that fits. Raises ValueError that says what to type."""
        value = self._value(text)
        problem = self.problem(value)
        if problem is not None:
            raise ValueError(plain(problem))
        return value

    def problem(self, value: Any) -> str | None:
        """Why a value doesn't fit, in words."""
        try:
            return first_problem(compile_schema(self._whole), value)
        except ValueError:
            return None  # a schema that says nothing usable forbids nothing; the server looks at the value itself

    def _value(self, text: str) -> Any:
        if self.several:
            parts = [part.strip() for part in text.split(",")]
            return [] if text.strip() in ("-", "none") else [self._chosen(part) for part in parts if part]
        if self.choices:
            return self._chosen(text.strip())
        reader = {"boolean": _boolean, "integer": _integer, "number": _number, "string": self._string}.get(self.kind)
        return _json(text) if reader is None else reader(text)

    def _string(self, text: str) -> str:
        check = _FORMATS.get(str(self.schema.get("format")))
        if check is not None and text:
            check(text)
        return text

    def _chosen(self, text: str) -> Any:
        for choice in self.choices:
            if text == choice.value or text == choice.title or text == str(choice.value):
                return choice.value
        if self.numbered and text.isdecimal() and 1 <= int(text) <= len(self.choices):
            return self.choices[int(text) - 1].value
        low = text.lower()
        near = [choice for choice in self.choices if low and choice.title.lower().startswith(low)]
        if len(near) == 1:
            return near[0].value
        wanted = f"a number from 1 to {len(self.choices)}, or a name" if self.numbered else "one of the names"
        raise ValueError(f"{shorten(plain(text))!r} is none of them: type {wanted}")


def _simple(schema: Any, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """A schema without the detours that generators make: a reference to a definition, and `null` as an alternative."""
    found = dict(schema) if isinstance(schema, Mapping) else {}
    reference = found.pop("$ref", None)
    if isinstance(reference, str):
        _, _, name = reference.rpartition("/")
        held = (held[name] for held in definitions.values() if isinstance(held, Mapping) and name in held)
        target: Any = next(held, None)
        found = {**(target if isinstance(target, Mapping) else {}), **found}
    if isinstance(found.get("type"), list):
        kinds = [kind for kind in found["type"] if kind != "null"]
        found["type"] = kinds[0] if len(kinds) == 1 else None
    options = found.get("anyOf")
    if isinstance(options, list) and not list(_choices(found)):
        real = [one for one in options if isinstance(one, Mapping) and one.get("type") != "null"]
        if len(real) == 1:
            found = {**_simple(real[0], definitions), **{key: found[key] for key in found if key != "anyOf"}}
    return found


def _choices(schema: Any) -> Iterator[Choice]:
    """What may be chosen, in each way that a revision has to say it (ELIC-07, ELIC-08)."""
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


def _article(field: Field) -> str:
    if field.several:
        return "several of these, with commas between them"
    if field.choices:
        return "one of these"
    form = _FORMAT_WORDS.get(str(field.schema.get("format")))
    words = {"boolean": "yes or no", "integer": "a whole number", "number": "a number", "string": form or ""}
    return words.get(field.kind, "as JSON")


def _boolean(text: str) -> bool:
    said = text.strip().lower()
    if said not in _YES | _NO:
        raise ValueError("type y for yes or n for no")
    return said in _YES


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text.strip()) or len(text) > 300:
        raise ValueError(f"{shorten(plain(text))!r} is no whole number, such as 42")
    return int(text)


def _number(text: str) -> int | float:
    said = text.strip()
    if not _NUMBER.fullmatch(said) or len(said) > 300:
        raise ValueError(f"{shorten(plain(text))!r} is no number, such as 3.5")
    found = int(said) if _INTEGER.fullmatch(said) else float(said)
    if not math.isfinite(found):
        raise ValueError(f"{shorten(said)} is too large for a number")
    return found


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError) as exc:
        raise ValueError(f"that is not JSON: {exc}") from None


def _email(text: str) -> None:
    if not _EMAIL.fullmatch(text):
        raise ValueError(f"{shorten(plain(text))!r} is no e-mail address, such as ada@example.org")


def _uri(text: str) -> None:
    try:
        fine = bool(urlsplit(text).scheme) and not re.search(r"\s", text)
    except ValueError:
        fine = False
    if not fine:
        raise ValueError(f"{shorten(plain(text))!r} is no address, such as https://example.org/page")


def _date(text: str) -> None:
    try:
        date.fromisoformat(text if len(text) == 10 else "")
    except ValueError:
        raise ValueError(f"{shorten(plain(text))!r} is no date: type year-month-day, such as 2031-05-17") from None


def _date_time(text: str) -> None:
    try:
        datetime.fromisoformat(text if _DATE_TIME.fullmatch(text) else "")
    except ValueError:
        example = "2031-05-17T20:15:00+02:00"
        raise ValueError(f"{shorten(plain(text))!r} is no time with seconds and zone, such as {example}") from None


_FORMATS = {"email": _email, "uri": _uri, "date": _date, "date-time": _date_time}
_FORMAT_WORDS = {
    "email": "an e-mail address",
    "uri": "an address with its scheme",
    "date": "a date, year-month-day",
    "date-time": "a date and time with its zone",
}
