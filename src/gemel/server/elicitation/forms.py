"""Forms: from a type to the flat schema that a client shows to its user, and from what it sends back to a value."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, get_args

import msgspec
from msgspec import Raw

from gemel.errors import DefinitionError
from gemel.server.functions.annotations import bare, class_hints, has_fields, metadata_of, shown
from gemel.server.functions.json_schema import Schema, SchemaWriter, root_schema
from gemel.server.functions.validation_errors import error_lines, explain, missing
from gemel.server.functions.values import ValueRejected, value_type

#: The keywords of a form field, by its type (client/elicitation, "Requested Schema"); others, such as `pattern`, are
#: checked here and not sent.
_WORDS = {
    "string": {"minLength", "maxLength", "format", "enum", "enumNames", "oneOf"},
    "integer": {"minimum", "maximum"},
    "number": {"minimum", "maximum"},
    "boolean": set[str](),
    "array": {"minItems", "maxItems", "items"},
}
_ALWAYS = {"type", "title", "description", "default"}
_FORMATS = {"email", "uri", "date", "date-time"}


class Titled:
    """Titles for the values of a choice: `Annotated[Literal["a", "b"], Titled(a="First", b="Second")]`.

    Args:
        titles: Titles by value, for values that are not identifiers.
        old_form: Whether to write `enumNames`, for clients that don't know the newer form.
        **more: Titles by value.
    """

    def __init__(self, titles: Mapping[str, str] | None = None, /, *, old_form: bool = False, **more: str) -> None:
        self.titles = {**(titles or {}), **more}
        self.old_form = old_form


class Form:
    """One type as a form. `read` turns the user's content into a value of it."""

    def __init__(self, annotation: object) -> None:
        writer = SchemaWriter(reading=True)
        try:
            self._type = value_type(annotation, writer)
        except TypeError as exc:
            raise DefinitionError(f"{shown(annotation)} can't be a form: {exc}") from exc
        self._name = shown(annotation)
        self._whole = root_schema(self._type.schema, writer.definitions)
        schema = _resolved(self._type.schema, writer.definitions)
        self._wrapped = "properties" not in schema
        if self._wrapped:
            schema = {
                "type": "object",
                "properties": {"value": {**schema, **_titles(annotation)}},
                "required": ["value"],
            }
        #: The fields that may be None and have no default: None is what they are if the user leaves them out.
        self._none_if_missing: list[str] = []
        self.schema = self._flat(schema, writer.definitions, _hints(bare(annotation)))

    def _flat(self, schema: Schema, definitions: Mapping[str, Schema], hints: Mapping[str, Any]) -> Schema:
        fields: Schema = {}
        required = list(schema.get("required", []))
        for name, property_schema in schema["properties"].items():
            field, optional = _present(_resolved(property_schema, definitions), definitions)
            fields[name] = self._field(name, {**field, **_titles(hints.get(name))}, definitions)
            if optional and name in required:
                required.remove(name)
                self._none_if_missing.append(name)
        flat: Schema = {"type": "object", "properties": fields}
        if required:
            flat["required"] = required
        return flat

    def _field(self, name: str, field: Schema, definitions: Mapping[str, Schema]) -> Schema:
        kind = field.get("type")
        if kind is None and isinstance(field.get("enum"), list):
            kind = "string" if all(isinstance(value, str) for value in field["enum"]) else None
            field = {**field, "type": kind}
        if isinstance(field.get("const"), str):
            field, kind = {**field, "type": "string", "enum": [field["const"]]}, "string"
        if kind == "array":
            field = {**field, "items": self._choices(name, field, definitions)}
        if kind not in _WORDS or (kind in ("integer", "number") and "enum" in field):
            raise DefinitionError(
                f"{self._name}.{name} can't stand in a form: use str, int, float, bool, a choice of strings, or a list of one"
            )
        allowed = {key: value for key, value in field.items() if key in _WORDS[kind] | _ALWAYS}
        if "oneOf" in allowed:
            allowed.pop("enum", None)
        if allowed.get("format") not in _FORMATS:
            allowed.pop("format", None)
        return allowed

    def _choices(self, name: str, field: Schema, definitions: Mapping[str, Schema]) -> Schema:
        if isinstance(field.get("oneOf"), list):
            return {"anyOf": field.pop("oneOf")}
        items = _resolved(field.get("items", {}), definitions)
        if isinstance(items.get("const"), str):
            items = {"enum": [items["const"]]}
        if not isinstance(items.get("enum"), list):
            raise DefinitionError(
                f"{self._name}.{name}: a list in a form must be a list of choices, such as list[Literal[…]]"
            )
        return {"type": "string", "enum": items["enum"]}

    def read(self, content: Mapping[str, Any] | None) -> Any:
        """The user's answer as a value. Raises ValueError that says which fields are wrong, never what a person wrote."""
        values: Any = {**dict.fromkeys(self._none_if_missing), **(content or {})}
        if self._wrapped:
            if "value" not in values:
                raise ValueError(error_lines([missing(("value",), self._whole, self._whole)])[0])
            values = values["value"]
        try:
            return self._type.read(Raw(msgspec.json.encode(values)))
        except ValueRejected as exc:
            path = ("value",) if self._wrapped else ()
            violations = explain(self._whole, exc.value, exc.rejections, path=path, exact=self._type.exact)
            silent = error_lines([violation.without_values() for violation in violations])
            raise ValueError("; ".join(silent) or "not what the form asked for") from None


def form_of(annotation: object) -> Form:
    """The form of a type, made once. Raises DefinitionError for a type that no form can carry."""
    try:
        return _remembered(annotation)
    except TypeError:  # its metadata has no hash
        return Form(annotation)


_remembered = functools.lru_cache(maxsize=512)(Form)


def _resolved(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    return {**_resolved(definitions[reference.rpartition("/")[2]], definitions), **schema}


def _present(schema: Schema, definitions: Mapping[str, Schema]) -> tuple[Schema, bool]:
    """A field without its `null` alternative, and whether it had one: an optional field is one that may be left out."""
    options = schema.get("anyOf")
    if not isinstance(options, list):
        return schema, False
    real = [_resolved(option, definitions) for option in options if option.get("type") != "null"]
    if len(real) == len(options) or len(real) != 1:
        return schema, False
    rest = {key: value for key, value in schema.items() if value is not None}
    return {**real[0], **rest}, True


def _titles(annotation: object) -> Schema:
    """The titled choice that an annotation asks for, also inside `… | None` and lists."""
    for item in metadata_of(annotation):
        if isinstance(item, Titled) and item.old_form:
            return {"enum": list(item.titles), "enumNames": list(item.titles.values())}
        if isinstance(item, Titled):
            return {"oneOf": [{"const": value, "title": title} for value, title in item.titles.items()]}
    return next((found for part in get_args(annotation) if (found := _titles(part))), {})


def _hints(annotation: Any) -> Mapping[str, Any]:
    """The annotations of a type's fields, by their names on the wire."""
    models = getattr(annotation, "model_fields", None)  # pydantic
    if isinstance(models, dict):
        hints = class_hints(annotation)
        return {str(field.validation_alias or name): hints.get(name) for name, field in models.items()}
    if not has_fields(annotation):
        return {}
    hints = class_hints(annotation)
    if issubclass(annotation, msgspec.Struct):
        return {field.encode_name: hints[field.name] for field in msgspec.structs.fields(annotation)}
    return hints
