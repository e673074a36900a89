"""JSON Schema 2020-12 of Python types, written for models: descriptions, no titles, nested types in `$defs`.

Written from msgspec's description of a type; schemas that pydantic writes are brought into the same form.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import msgspec.inspect as mi

from gemel.server.functions.annotations import class_hints, described_by, has_fields, literals_in, shown
from gemel.server.functions.docstring import parse_docstring
from gemel.values.encoding import is_finite, plain_value
from gemel.values.schemas import (
    HASHABLE,
    READ_KEYS,
    duration_schema,
    flag_schema,
    moment_schema,
    with_encoded_lengths,
)

Schema = dict[str, Any]

_REFERENCE = "#/$defs/"


class UnsupportedType(TypeError):
    """A type that msgspec can't turn into JSON or back; the text names it."""


class SchemaWriter:
    """Writes the schemas of one function's types; `definitions` collects what they refer to.

    With `reading`, schemas describe what is accepted; without, what is sent (a time zone is required only if the type does).
    """

    def __init__(self, *, reading: bool) -> None:
        self.reading = reading
        #: Whether JSON text that msgspec reads as the types fits their schemas.
        self.decoder_suffices = True
        #: Whether one of the types is a Decimal, which msgspec reads whatever its range.
        self.has_decimals = False
        #: Whether the names of members are limited in one of the schemas.
        self.limits_names = False
        self.definitions: dict[str, Schema] = {}
        self._names: dict[Any, str] = {}
        self._adopted: dict[bytes, str] = {}
        self._literals: dict[frozenset[Any], tuple[Any, ...]] = {}

    def write(self, info: mi.Type, annotation: object) -> Schema:
        """The schema of a type that msgspec understands. Raises UnsupportedType for a part without a JSON form."""
        self._remember_literals([annotation])
        definitions, names = dict(self.definitions), dict(self._names)
        try:
            return self.of(info)
        except UnsupportedType:
            self.definitions, self._names = definitions, names
            raise

    def adopt(self, schema: Schema, annotation: object) -> Schema:
        """Take over a schema that pydantic wrote; its definitions are renamed where a name is taken."""
        adopted = dict(schema)
        definitions: dict[str, Schema] = adopted.pop("$defs", {})
        if has_fields(annotation) or hasattr(annotation, "__pydantic_core_schema__"):
            name = _plain_name(annotation)
            if "$ref" not in adopted and name not in definitions:
                definitions[name], adopted = adopted, {"$ref": _REFERENCE + name}
        for name, definition in definitions.items():
            if _plain_name(definition.get("title", "")) in (name, name.rpartition("__")[2]):
                del definition["title"]
            _add_documentation(definition, definition.pop("description", None))
        renamed = {name: self._adopted_name(name, definitions) for name in definitions}
        for part in [adopted, *definitions.values()]:
            self._name_keys(part, definitions)
        self.definitions.update({renamed[name]: _rename(definitions[name], renamed) for name in definitions})
        renamed_root: Schema = _rename(adopted, renamed)
        return renamed_root

    def _name_keys(self, schema: object, definitions: Mapping[str, Schema]) -> None:
        """Replace the schemas of keys by those of their names. Raises UnsupportedType for keys that have none."""
        for item in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
            self._name_keys(item, definitions)
        if isinstance(schema, dict) and isinstance(keys := schema.get("propertyNames"), dict):
            schema["propertyNames"] = self.names(keys, definitions)

    def names(self, keys: Schema, definitions: Mapping[str, Schema]) -> Schema:
        """The schema of the names of members, from that of keys. Raises UnsupportedType for keys that have none."""
        from gemel.server.functions.keys import key_schema

        names = key_schema(keys, definitions)
        if names is None:
            raise UnsupportedType("a dict with keys that aren't read from strings has no JSON form")
        self.limits_names = self.limits_names or bool(names)
        return names

    def _adopted_name(self, name: str, definitions: Mapping[str, Schema]) -> str:
        """The name under which a definition, with all that it refers to, was taken over before; else a free one."""
        whole = msgspec.json.encode(
            [name, *(definitions[other] for other in sorted(_reached(definitions, name, {name})))]
        )
        return self._adopted.setdefault(whole, self._free_name(name))

    def _free_name(self, name: str) -> str:
        taken = {*self._names.values(), *self._adopted.values()}
        free, number = name, 1
        while free in taken:
            number += 1
            free = f"{name}_{number}"
        return free

    def of(self, info: mi.Type) -> Schema:
        """The schema of one type; classes become references."""
        if isinstance(info, mi.Metadata):
            if info.extra_json_schema:
                self.decoder_suffices = False
            return {**self.of(info.type), **(info.extra_json_schema or {})}
        if isinstance(info, mi.StructType | mi.DataclassType | mi.TypedDictType | mi.NamedTupleType | mi.EnumType):
            return {"$ref": _REFERENCE + self._definition(info)}
        write = _WRITERS.get(type(info))
        if write is None:
            raise UnsupportedType(f"{shown(getattr(info, 'cls', type(info)))} has no JSON form")
        return write(self, info)

    def _definition(
        self, info: mi.StructType | mi.DataclassType | mi.TypedDictType | mi.NamedTupleType | mi.EnumType
    ) -> str:
        if info.cls in self._names:
            return self._names[info.cls]
        name = self._names[info.cls] = self._free_name(_plain_name(info.cls))
        schema = self.definitions[name] = {}
        cls = getattr(info.cls, "__origin__", info.cls)
        if isinstance(info, mi.EnumType):
            schema.update(_enum(info.cls))
            _add_documentation(schema, own_doc(cls))
            return name
        if self.reading and (made := _made_by_itself(cls)):
            raise UnsupportedType(f"{shown(cls)} sets `{made}` itself (init=False)")
        hints = class_hints(cls)
        self._remember_literals(hints.values())
        fields = {field.encode_name: self._field(field, hints) for field in info.fields}
        required = [field.encode_name for field in info.fields if field.required]
        if isinstance(info, mi.NamedTupleType) or (isinstance(info, mi.StructType) and info.array_like):
            schema.update(_row(info, fields, len(required)))
        else:
            schema.update(_record(self, info, fields, required))
        _add_documentation(schema, own_doc(cls))
        return name

    def _field(self, field: mi.Field, hints: Mapping[str, Any]) -> Schema:
        schema = self.of(field.type)
        if text := described_by(hints.get(field.name)):
            schema["description"] = text
        default = field.default
        if field.default_factory in (list, dict, set, frozenset, tuple):
            default = field.default_factory()
        if default is not msgspec.NODEFAULT and default is not msgspec.UNSET and is_finite(default):
            schema["default"] = plain_value(default)
        return schema

    def _remember_literals(self, annotations: Iterable[Any]) -> None:
        """msgspec sorts the values of a Literal; the schema keeps the author's order."""
        for annotation in annotations:
            for values in literals_in(annotation):
                self._literals[frozenset(values)] = values

    def ordered(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The values of a Literal as the author ordered them."""
        return self._literals.get(frozenset(values), values)


def object_schema(properties: Mapping[str, Schema], required: list[str], definitions: Mapping[str, Schema]) -> Schema:
    """The schema of a function's arguments: an object with these members and no others."""
    schema: Schema = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    return _with_definitions(schema, definitions)


def root_schema(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """A schema with its definitions. A reference at its root is resolved: older revisions need a `type` there."""
    if isinstance(reference := schema.get("$ref"), str):
        others = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**definitions[reference.removeprefix(_REFERENCE)], **others}
    return _with_definitions(schema, definitions)


def _with_definitions(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """A schema with those definitions that it refers to."""
    if not definitions:
        return schema
    used = _references(schema)
    for name in [*used]:
        _reached(definitions, name, used)
    return {**schema, "$defs": {name: definitions[name] for name in definitions if name in used}} if used else schema


def _references(schema: object) -> set[str]:
    """The names of the definitions that a schema refers to directly."""
    if isinstance(schema, list):
        return {name for item in schema for name in _references(item)}
    if not isinstance(schema, dict):
        return set()
    names = {name for value in schema.values() for name in _references(value)}
    reference = schema.get("$ref")
    return names | {reference.removeprefix(_REFERENCE)} if isinstance(reference, str) else names


def _reached(definitions: Mapping[str, Schema], name: str, seen: set[str]) -> set[str]:
    """Adds to `seen` all definitions that `name` refers to, directly or not."""
    for other in _references(definitions.get(name)) - seen:
        seen.add(other)
        _reached(definitions, other, seen)
    return seen


def _rename(schema: object, renamed: Mapping[str, str]) -> Any:
    if isinstance(schema, list):
        return [_rename(item, renamed) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: _rename(value, renamed) for key, value in schema.items() if key != READ_KEYS}
    if copy.get("propertyNames") == {}:
        del copy["propertyNames"]
    reference = copy.get("$ref")
    if isinstance(reference, str) and reference.startswith(_REFERENCE):
        name = reference.removeprefix(_REFERENCE)
        copy["$ref"] = _REFERENCE + renamed.get(name, name)
    return copy


def _made_by_itself(cls: object) -> str | None:
    """The first field of a dataclass or an attrs class that is not an argument of its `__init__`."""
    fields = getattr(cls, "__attrs_attrs__", None) or getattr(cls, "__dataclass_fields__", {}).values()
    return next((field.name for field in fields if not field.init), None)


def own_doc(cls: type) -> str | None:
    """The docstring that a class's author wrote: not inherited, not generated by dataclass, NamedTuple or Enum."""
    doc = cls.__dict__.get("__doc__")
    if not isinstance(doc, str) or doc.startswith(f"{cls.__name__}(") or doc == "An enumeration.":
        return None
    return doc


def _add_documentation(schema: Schema, doc: str | None) -> None:
    """A class's docstring describes the class and, in its sections, the fields."""
    if not doc:
        return
    parsed = parse_docstring(doc)
    if parsed.description:
        schema["description"] = parsed.description
    for name, field in schema.get("properties", {}).items():
        if name in parsed.arguments:
            field.setdefault("description", parsed.arguments[name])


def _plain_name(cls: object) -> str:
    """The name of a class as a key of `$defs`: `Box[int]` becomes `Box_int`."""
    name = cls if isinstance(cls, str) else (cls.__name__ if isinstance(cls, type) else repr(cls))
    name = re.sub(r"[\w.<>]+\.", "", name)
    return re.sub(r"\W+", "_", name).strip("_") or "type"


def _enum(cls: type[enum.Enum]) -> Schema:
    return flag_schema(cls) if issubclass(cls, enum.Flag) else _options([member.value for member in cls])


def _options(values: list[Any]) -> Schema:
    kinds = {type(value.value if isinstance(value, enum.Enum) else value) for value in values}
    kind = _KINDS.get(kinds.pop()) if len(kinds) == 1 else None
    options = {"const": values[0]} if len(values) == 1 else {"enum": values}
    return {"type": kind, **options} if kind else options


_KINDS: dict[type, str] = {str: "string", int: "integer", bool: "boolean"}


def _record(
    writer: SchemaWriter,
    info: mi.StructType | mi.DataclassType | mi.TypedDictType,
    fields: dict[str, Schema],
    required: list[str],
) -> Schema:
    if isinstance(info, mi.StructType) and info.tag_field is not None:
        writer.decoder_suffices = False  # without a union it reads an object without the tag
        fields = {info.tag_field: _options([info.tag]), **fields}
        required = [info.tag_field, *required]
    schema: Schema = {"type": "object", "properties": fields}
    if required:
        schema["required"] = required
    if isinstance(info, mi.StructType) and info.forbid_unknown_fields:
        schema["additionalProperties"] = False
    return schema


def _row(info: mi.StructType | mi.NamedTupleType, fields: dict[str, Schema], required: int) -> Schema:
    """A class that is an array in JSON: the names of its fields become descriptions."""
    for name, field in fields.items():
        field.setdefault("description", name)
    items = list(fields.values())
    if isinstance(info, mi.StructType) and info.tag_field is not None:
        items = [_options([info.tag]), *items]
        required += 1
    schema: Schema = {"type": "array", "prefixItems": items, "minItems": required}
    if isinstance(info, mi.NamedTupleType) or info.forbid_unknown_fields:
        schema["maxItems"] = len(items)
    return schema


def _limits(info: object, **words: str) -> Schema:
    return {word: limit for word, name in words.items() if (limit := getattr(info, name)) is not None}


def _number(kind: str, _writer: SchemaWriter, info: object) -> Schema:
    words = {"minimum": "ge", "exclusiveMinimum": "gt", "maximum": "le", "exclusiveMaximum": "lt"}
    return {"type": kind, **_limits(info, **words, multipleOf="multiple_of")}


def _string(writer: SchemaWriter, info: Any) -> Schema:
    if info.pattern is not None:
        writer.decoder_suffices = False  # its `$` allows a newline after it
    return {"type": "string", **_limits(info, minLength="min_length", maxLength="max_length", pattern="pattern")}


def _binary(_writer: SchemaWriter, info: object) -> Schema:
    limits = _limits(info, minLength="min_length", maxLength="max_length")
    return with_encoded_lengths({"type": "string", "contentEncoding": "base64", **limits})


def _literal(writer: SchemaWriter, info: Any) -> Schema:
    values = writer.ordered(info.values)
    options = [value for value in values if value is not None]
    if len(options) == len(values):
        return _options(options)
    return {"anyOf": [_options(options), {"type": "null"}]} if options else {"type": "null"}


def _union(writer: SchemaWriter, info: Any) -> Schema:
    if writer.reading:
        _check_limits(info)
    options: list[Schema] = []
    for member in sorted(info.types, key=lambda member: isinstance(member, mi.NoneType)):
        option = writer.of(member)
        options += option["anyOf"] if option.keys() == {"anyOf"} else [option]
    return {"anyOf": options} if len(options) > 1 else options[0]


def _check_limits(union: Any) -> None:
    """Refuse unions that msgspec reads by one member only: by the limits of a type, or an integer never as a float."""
    kinds = [member.type if isinstance(member, mi.Metadata) else member for member in union.types]
    texts = [kind for kind in kinds if isinstance(kind, mi.StrType) or _lists(kind, str)]
    integers = [kind for kind in kinds if isinstance(kind, mi.IntType) or _lists(kind, int)]
    floats = [kind for kind in kinds if isinstance(kind, mi.FloatType)]
    only_certain = integers and mi.IntType() not in integers
    if any(map(_has_limited_member, (texts, integers))) or len(floats) > 1 or (floats and only_certain):
        raise UnsupportedType("a union in which a type has limits beside others of its kind can't be read")


def _has_limited_member(kinds: list[mi.Type]) -> bool:
    limited = [kind for kind in kinds if isinstance(kind, mi.StrType | mi.IntType)]
    return len(kinds) > 1 and any(kind not in (mi.StrType(), mi.IntType()) for kind in limited)


def _lists(kind: object, of: type) -> bool:
    """Whether it is an enum or a Literal with values of this type."""
    values = kind.values if isinstance(kind, mi.LiteralType) else kind.cls if isinstance(kind, mi.EnumType) else ()
    return any(isinstance(getattr(value, "value", value), of) for value in values)


def _list(writer: SchemaWriter, info: Any) -> Schema:
    items = writer.of(info.item_type)
    schema: Schema = {"type": "array", "items": items} if items else {"type": "array"}
    return {**schema, **_limits(info, minItems="min_length", maxItems="max_length")}


def _set(writer: SchemaWriter, info: Any) -> Schema:
    """Duplicates are read, unless items are counted, and never sent."""
    if not writer.reading:
        writer.decoder_suffices = False
    schema = _list(writer, info)
    if "items" not in schema:
        schema["items"] = HASHABLE
    counts = info.min_length is not None or info.max_length is not None
    return {**schema, "uniqueItems": True} if counts or not writer.reading else schema


def _tuple(writer: SchemaWriter, info: Any) -> Schema:
    items = [writer.of(item) for item in info.item_types]
    schema: Schema = {"type": "array", "prefixItems": items} if items else {"type": "array"}
    return {**schema, "minItems": len(items), "maxItems": len(items)}


def _dict(writer: SchemaWriter, info: Any) -> Schema:
    schema: Schema = {"type": "object"}
    if values := writer.of(info.value_type):
        schema["additionalProperties"] = values
    kinds = _kinds(info.key_type)
    if bool in kinds or kinds == {type(None)}:  # it reads no key as one
        raise UnsupportedType("dict with keys of bool or None has no JSON form")
    if names := writer.names(writer.of(info.key_type), writer.definitions):
        schema["propertyNames"] = names
    if not kinds.isdisjoint((mi.FloatType, mi.DecimalType)):
        writer.decoder_suffices = False  # it reads NaN and infinity, which it writes as keys, too
    return {**schema, **_limits(info, minProperties="min_length", maxProperties="max_length")}


def _kinds(key: mi.Type) -> set[Any]:
    """The types of keys: classes for the values of a Literal, and for bool and None, classes of `mi` for others."""
    if isinstance(key, mi.UnionType):
        return {kind for member in key.types for kind in _kinds(member)}
    if isinstance(key, mi.LiteralType):
        return set(map(type, key.values))
    return {{mi.BoolType: bool, mi.NoneType: type(None)}.get(type(key), type(key))}


def _moment(form: str, writer: SchemaWriter, info: Any) -> Schema:
    return moment_schema(form, zone=info.tz, reading=writer.reading)


def _decimal(writer: SchemaWriter, _info: object) -> Schema:
    writer.has_decimals = True
    text: Schema = {"type": "string", "format": "decimal"}
    if writer.reading:
        return {"anyOf": [{"type": "number"}, text]}
    writer.decoder_suffices = False  # it reads numbers
    return text


def _fixed(**schema: str) -> Callable[[SchemaWriter, Any], Schema]:
    return lambda _writer, _info: dict(schema)


_WRITERS: dict[type[mi.Type], Callable[[SchemaWriter, Any], Schema]] = {
    mi.AnyType: _fixed(),
    mi.RawType: _fixed(),
    mi.NoneType: _fixed(type="null"),
    mi.BoolType: _fixed(type="boolean"),
    mi.IntType: functools.partial(_number, "integer"),
    mi.FloatType: functools.partial(_number, "number"),
    mi.StrType: _string,
    mi.BytesType: _binary,
    mi.ByteArrayType: _binary,
    mi.MemoryViewType: _binary,
    mi.DateType: _fixed(type="string", format="date"),
    mi.DateTimeType: functools.partial(_moment, "date-time"),
    mi.TimeType: functools.partial(_moment, "time"),
    mi.TimeDeltaType: lambda writer, _: duration_schema(reading=writer.reading),
    mi.UUIDType: _fixed(type="string", format="uuid"),
    mi.DecimalType: _decimal,
    mi.LiteralType: _literal,
    mi.UnionType: _union,
    mi.ListType: _list,
    mi.VarTupleType: _list,
    mi.SetType: _set,
    mi.FrozenSetType: _set,
    mi.TupleType: _tuple,
    mi.DictType: _dict,
    getattr(mi, "FrozenDictType", mi.DictType): _dict,
}
