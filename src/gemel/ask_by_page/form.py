"""A form as HTML and back: the fields of a flat JSON Schema, and the content that a browser posts.

Fields are named by their position, choices are posted by theirs: nothing of the schema becomes a name or a value in the page.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from html import escape
from typing import Any, Final, NamedTuple, TypeGuard
from urllib.parse import urlsplit

from gemel.protocol.validation import compile_schema, first_problem
from gemel.visible import escape_text

#: What a browser posts, by the name of the field.
Posted = Mapping[str, Sequence[str]]

_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
#: Longer texts get several lines.
_ONE_LINE: Final = 200
_LEFT_OUT: Final = "Choose one, or leave it out"
_MISSING: Final = "Fill in this field."


class _Choice(NamedTuple):
    value: Any
    title: str


class _Rejected(Exception):
    """What was posted for a field is not possible; the text says why."""


class FormPage:
    """The form of a schema.

    Args:
        schema: A JSON Schema of an object, as `elicitation/create` sends it.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        properties = schema.get("properties")
        required = schema.get("required")
        names = set(required) if isinstance(required, list) else set()
        self._whole = dict(schema)
        self._fields = [
            _field(number, str(name), field if isinstance(field, dict) else {}, is_required=name in names)
            for number, (name, field) in enumerate((properties if isinstance(properties, dict) else {}).items())
        ]

    def html(self, posted: Posted | None = None, errors: Mapping[str, str] | None = None) -> str:
        """Return the fields as HTML.

        Args:
            posted: What was posted before, to be shown again; by default the fields show the defaults of the schema.
            errors: What is wrong with it, by the name of the property.
        """
        return "".join(field.html(posted, (errors or {}).get(field.name, "")) for field in self._fields)

    def approval(self) -> str:
        """Return HTML by which a button alone says yes to each field, of a form that asks for nothing else."""
        return "".join(f'<input type="hidden" name="{field.key}" value="on">' for field in self._fields)

    def read(self, posted: Posted) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the content that was posted, and what is wrong with it by the name of the property.

        An error that belongs to no property has the name "".
        """
        content: dict[str, Any] = {}
        errors: dict[str, str] = {}
        for field in self._fields:
            try:
                value = field.read(posted.get(field.key, ()))
                if value is not None:
                    content[field.name] = value[0]
                    if problem := first_problem(compile_schema(field.schema), value[0]):
                        raise _Rejected(f"Not possible: {problem}")
                elif field.is_required:
                    raise _Rejected(_MISSING)
            except _Rejected as exc:
                errors[field.name] = str(exc)
        if not errors and (problem := first_problem(compile_schema(self._whole), content)):
            errors[""] = f"Not possible: {problem}"
        return content, errors


class _Field:
    """One property. The base is what any JSON value can be written into."""

    def __init__(self, key: str, name: str, schema: dict[str, Any], *, is_required: bool) -> None:
        self.key = key
        self.name = name
        self.schema = schema
        self.is_required = is_required

    def html(self, posted: Posted | None, error: str) -> str:
        """Return the field with its label, its description and what is wrong with it."""
        mark = "" if self.is_required else " <small>(optional)</small>"
        label = escape(self.title) + mark
        about = str(self.schema.get("description") or "")
        hints = [(f"{self.key}-about", about)] if about else []
        hints += [(f"{self.key}-form", form)] if (form := self.form()) else []
        hints += [(f"{self.key}-error", error)] if error else []
        texts = "".join(
            f'<p id="{key}" class="{"error" if key.endswith("-error") else "hint"}">{escape(escape_text(text))}</p>'
            for key, text in hints
        )
        described = f' aria-describedby="{" ".join(key for key, _ in hints)}"' if hints else ""
        invalid = ' aria-invalid="true"' if error else ""
        values = self.defaults() if posted is None else posted.get(self.key, ())
        return self.frame(label, texts, f"{described}{invalid}", values)

    def frame(self, label: str, texts: str, attributes: str, values: Sequence[str]) -> str:
        return (
            f'<div class="field"><label for="{self.key}">{label}</label>{texts}{self.control(attributes, values)}</div>'
        )

    def control(self, attributes: str, values: Sequence[str]) -> str:
        return self.area(attributes, values)

    def area(self, attributes: str, values: Sequence[str]) -> str:
        return (
            f'<textarea id="{self.key}" name="{self.key}" rows="4"{self.required}{attributes}>\n'
            f"{escape(values[0] if values else '')}</textarea>"
        )

    def entry(self, kind: str, attributes: str, values: Sequence[str]) -> str:
        value = escape(values[0] if values else "")
        return (
            f'<input id="{self.key}" name="{self.key}" type="{kind}" value="{value}"'
            f'{self.required}{attributes} autocomplete="off">'
        )

    @property
    def title(self) -> str:
        """What people read: a form of one plain type has one field, whose name says nothing."""
        return escape_text(str(self.schema.get("title") or ("Your answer" if self.name == "value" else self.name)))

    @property
    def required(self) -> str:
        return " required" if self.is_required else ""

    def form(self) -> str:
        """How to write the value, for people."""
        return "Write it as JSON."

    def defaults(self) -> Sequence[str]:
        """The default of the schema, as it would be posted."""
        return [json.dumps(self.schema["default"], ensure_ascii=False)] if "default" in self.schema else ()

    def read(self, posted: Sequence[str]) -> tuple[Any] | None:
        """Return the value in a tuple; None if the field was left out. Raises _Rejected."""
        return (self.value(posted[0]),) if posted and posted[0].strip() else None

    def value(self, text: str) -> Any:
        try:
            return json.loads(text, parse_constant=_reject)
        except (ValueError, RecursionError):
            raise _Rejected("This is not JSON.") from None


class _Text(_Field):
    def control(self, attributes: str, values: Sequence[str]) -> str:
        most = self.schema.get("maxLength")
        bounds = "".join(
            f' {name.lower()}="{count}"'
            for name in ("minLength", "maxLength")
            if _is_count(count := self.schema.get(name))
        )
        if _is_count(most) and most > _ONE_LINE:
            return self.area(bounds + attributes, values)
        kind = _ENTRIES.get(self.schema.get("format", ""), "text")
        if kind == "datetime-local":
            bounds = ' step="1"'
        return self.entry(kind, bounds + attributes, values)

    def form(self) -> str:
        return _FORMS.get(self.schema.get("format", ""), "")

    def defaults(self) -> Sequence[str]:
        default = self.schema.get("default")
        if not isinstance(default, str):
            return ()
        if self.schema.get("format") == "date-time":
            try:
                moment = datetime.fromisoformat(default)
            except ValueError:
                return ()
            moment = moment if moment.tzinfo is None else moment.astimezone(UTC)
            return [moment.replace(tzinfo=None, microsecond=0).isoformat()]
        return [default]

    def value(self, text: str) -> str:
        text = text.replace("\r\n", "\n")
        written = text.strip() if self.schema.get("format") in _CHECKS else text
        check = _CHECKS.get(self.schema.get("format", ""))
        try:
            return written if check is None else check(written)
        except ValueError:
            raise _Rejected(_FORMS[self.schema["format"]]) from None


class _Number(_Field):
    def control(self, attributes: str, values: Sequence[str]) -> str:
        is_whole = self.schema["type"] == "integer"
        bounds = "".join(
            f' {name[:3]}="{bound}"'
            for name in ("minimum", "maximum")
            if isinstance(bound := self.schema.get(name), int | float) and not isinstance(bound, bool)
        )
        step = "1" if is_whole else "any"
        mode = "numeric" if is_whole and not bounds.startswith(' min="-') else "decimal"
        return self.entry("number", f' step="{step}" inputmode="{mode}"{bounds}{attributes}', values)

    def form(self) -> str:
        return ""

    def value(self, text: str) -> int | float:
        text = text.strip()
        if _INTEGER.fullmatch(text):
            return int(text)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise _Rejected("This is not a number.")
        if self.schema["type"] == "integer":
            if not number.is_integer():
                raise _Rejected("This is not a whole number.")
            return int(number)
        return number


class _Choices(_Field):
    """One of some values."""

    def __init__(
        self, key: str, name: str, schema: dict[str, Any], *, is_required: bool, choices: list[_Choice]
    ) -> None:
        super().__init__(key, name, schema, is_required=is_required)
        self.choices = choices

    def control(self, attributes: str, values: Sequence[str]) -> str:
        options = "".join(
            f'<option value="{number}"{" selected" if str(number) in values else ""}>{escape(escape_text(choice.title))}</option>'
            for number, choice in enumerate(self.choices)
        )
        empty = f'<option value="">{"Choose one" if self.is_required else _LEFT_OUT}</option>'
        return f'<select id="{self.key}" name="{self.key}"{self.required}{attributes}>{empty}{options}</select>'

    def form(self) -> str:
        return ""

    def defaults(self) -> Sequence[str]:
        return self._numbers([self.schema["default"]] if "default" in self.schema else [])

    def _numbers(self, values: Sequence[Any]) -> list[str]:
        return [
            str(number) for number, choice in enumerate(self.choices) if any(_same(choice.value, one) for one in values)
        ]

    def value(self, text: str) -> Any:
        if not (text.isascii() and text.isdigit() and len(text) < 8 and int(text) < len(self.choices)):
            raise _Rejected("This is not one of the choices.")
        return self.choices[int(text)].value


class _Several(_Choices):
    """Some of some values."""

    def frame(self, label: str, texts: str, attributes: str, values: Sequence[str]) -> str:
        boxes = "".join(
            f'<label class="choice"><input type="checkbox" name="{self.key}" value="{number}"'
            f"{' checked' if str(number) in values else ''}> {escape(escape_text(choice.title))}</label>"
            for number, choice in enumerate(self.choices)
        )
        return f'<fieldset class="field"{attributes}><legend>{label}</legend>{texts}{boxes}</fieldset>'

    def defaults(self) -> Sequence[str]:
        default = self.schema.get("default")
        return self._numbers(default) if isinstance(default, list) else ()

    def form(self) -> str:
        least, most = (self.schema.get(name) for name in ("minItems", "maxItems"))
        if _is_count(least) and _is_count(most):
            return f"Choose {least}." if least == most else f"Choose {least} to {most}."
        return f"Choose {least} or more." if _is_count(least) else f"Choose at most {most}." if _is_count(most) else ""

    def read(self, posted: Sequence[str]) -> tuple[Any] | None:
        values = [self.value(text) for text in dict.fromkeys(posted)]
        return (values,) if values or self.is_required or "default" in self.schema else None


class _Flag(_Field):
    """A boolean that has a value in any case."""

    def frame(self, label: str, texts: str, attributes: str, values: Sequence[str]) -> str:
        checked = " checked" if "on" in values else ""
        return (
            f'<div class="field"><label class="choice"><input type="checkbox" id="{self.key}" name="{self.key}" value="on"'
            f"{checked}{attributes}> {escape(self.title)}</label>{texts}</div>"
        )

    def form(self) -> str:
        return ""

    def defaults(self) -> Sequence[str]:
        return ["on"] if self.schema.get("default") is True else ()

    def read(self, posted: Sequence[str]) -> tuple[Any] | None:
        return ("on" in posted,)


def _field(number: int, name: str, schema: dict[str, Any], *, is_required: bool) -> _Field:
    key, kind = f"f{number}", schema.get("type")
    items = schema.get("items")
    if kind == "array" and isinstance(items, dict) and (several := _choices_of(items)):
        return _Several(key, name, schema, is_required=is_required, choices=several)
    if choices := _choices_of(schema):
        return _Choices(key, name, schema, is_required=is_required, choices=choices)
    if kind == "boolean":
        if is_required or "default" in schema:
            return _Flag(key, name, schema, is_required=is_required)
        yes_or_no = [_Choice(True, "Yes"), _Choice(False, "No")]
        return _Choices(key, name, schema, is_required=is_required, choices=yes_or_no)
    if kind in ("integer", "number"):
        return _Number(key, name, schema, is_required=is_required)
    return (_Text if kind == "string" else _Field)(key, name, schema, is_required=is_required)


def _choices_of(schema: Mapping[str, Any]) -> list[_Choice]:
    """The values that a schema lists, with what people read; empty if it lists none."""
    for word in ("oneOf", "anyOf"):
        titled = schema.get(word)
        if isinstance(titled, list) and titled and all(isinstance(one, dict) and "const" in one for one in titled):
            return [_Choice(one["const"], str(one.get("title", one["const"]))) for one in titled]
    values, names = schema.get("enum"), schema.get("enumNames")
    if not isinstance(values, list) or not values:
        return []
    titles = names if isinstance(names, list) and len(names) == len(values) else values
    return [
        _Choice(value, title if isinstance(title, str) else json.dumps(title, ensure_ascii=False))
        for value, title in zip(values, titles, strict=True)
    ]


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _reject(constant: str) -> Any:
    raise ValueError(constant)


def _check_date(text: str) -> str:
    return date.fromisoformat(text).isoformat()


def _check_moment(text: str) -> str:
    """A moment as RFC 3339 has it: what a browser posts has no zone, and is UTC."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=moment.tzinfo or UTC).isoformat().replace("+00:00", "Z")


def _check_email(text: str) -> str:
    if not _EMAIL.fullmatch(text):
        raise ValueError(text)
    return text


def _check_uri(text: str) -> str:
    if not urlsplit(text).scheme or any(character.isspace() for character in text):
        raise ValueError(text)
    return text


_CHECKS: Final[Mapping[str, Callable[[str], str]]] = {
    "date": _check_date,
    "date-time": _check_moment,
    "email": _check_email,
    "uri": _check_uri,
}
#: The kind of input by the format of a string, and what people are told of it.
_ENTRIES: Final = {"date": "date", "date-time": "datetime-local", "email": "email", "uri": "url"}
_FORMS: Final = {
    "date": "A date, such as 2026-11-28.",
    "date-time": "Date and time in UTC, such as 2026-11-28T14:30.",
    "email": "An e-mail address.",
    "uri": "An address, such as https://example.com/.",
}
