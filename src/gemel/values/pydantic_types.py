"""Types that pydantic reads and writes, in JSON mode. Importing this module imports pydantic."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from enum import Enum, Flag
from math import isfinite
from typing import Any, Literal, cast

from pydantic import ConfigDict, EncodedBytes, PydanticUserError, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from gemel.values.decimals import DecimalPlaces
from gemel.values.schemas import HASHABLE, READ_KEYS, duration_schema, flag_schema, moment_schema, with_encoded_lengths


class PydanticCodec:
    """Reads and writes the values of one type, and gives its JSON Schema. Raises pydantic's errors for an unknown type.

    Bytes are base64, except in a model, which has a configuration of its own, and beside pydantic's encoded bytes. Members
    have the names of their aliases. If a model sets `serialize_by_alias`, it is pydantic's rule: names, except where that is
    true.
    """

    def __init__(self, annotation: Any) -> None:
        with warnings.catch_warnings():
            # Field(alias=...) on a parameter: pydantic can't know that the function's struct renames it.
            warnings.filterwarnings("ignore", message=".*alias' attribute")
            config = ConfigDict(val_json_bytes="base64", ser_json_bytes="base64")
            try:
                self.adapter: TypeAdapter[Any] = TypeAdapter(annotation, config=config)
                has_configuration = not _has(self.adapter.core_schema, _is_encoded)
            except PydanticUserError as error:
                if error.code != "type-adapter-config-unused":
                    raise
                has_configuration = False
            if not has_configuration:
                self.adapter = TypeAdapter(annotation)
        self._config = config if has_configuration else None
        #: Whether objects of other classes are read by a model; pydantic would write only what their `__dict__` holds.
        self.reads_attributes = _has(self.adapter.core_schema, _reads_attributes)
        self._decimals = DecimalPlaces(self.adapter.core_schema)
        self._by_alias = None if _has(self.adapter.core_schema, _sets_by_alias) else True

    def read(self, text: bytes, *, strict: bool | None = None) -> Any:
        """A value of JSON text, with aliases or names of members. Raises pydantic's ValidationError."""
        return self.adapter.validate_json(self._decimals.exact(text), strict=strict, by_alias=True, by_name=True)

    def read_strictly(self, text: bytes) -> Any:
        """A value of JSON text, with the names that the schema lists. Raises pydantic's ValidationError."""
        return self.adapter.validate_json(self._decimals.exact(text), strict=True)

    def dump(
        self, value: object, fallback: Callable[[Any], Any], *, warnings: Literal["none", "error"] = "none"
    ) -> Any:
        """A value as plain JSON types, except that NaN and infinity stay, or become None.

        Args:
            value: The value.
            fallback: Converts a part that pydantic does not know.
            warnings: "error" for an error, PydanticSerializationError, if pydantic does not expect a part at its place.
        """
        return self.adapter.dump_python(
            value, mode="json", by_alias=self._by_alias, warnings=warnings, fallback=fallback
        )

    def parts(self, value: object) -> Any:
        """The same value with parts of Python's types, as `dump` has them: what may have become None there."""
        return self.adapter.dump_python(value, by_alias=self._by_alias, warnings="none")

    @property
    def hides_values(self) -> bool:
        """Whether it writes stars in place of secrets, such as those of `SecretStr`."""
        return _has(self.adapter.core_schema, _is_secret)

    def revealed(self, value: object) -> Any:
        """The value as `parts` has it, with the contents of secrets in their place."""
        return _reveal(self.parts(value))

    def schema(self, *, reading: bool) -> dict[str, Any]:
        """The JSON Schema of what is read, or of what is written."""
        kind = _Schemas if self._by_alias else _SchemasByName
        generator = cast("type[_Schemas]", type(kind.__name__, (kind,), {"outer_config": self._config}))
        mode: Literal["validation", "serialization"] = "validation" if reading else "serialization"
        schema = self.adapter.json_schema(mode=mode, schema_generator=generator)
        schema.pop("default", None)
        return schema


@functools.lru_cache(maxsize=256)
def codec_of(kind: object) -> PydanticCodec:
    """The codec of a type, made once."""
    return PydanticCodec(kind)


def _has(schema: object, condition: Callable[[dict[str, Any]], bool]) -> bool:
    """Whether the condition holds for a part of a core schema."""
    if isinstance(schema, dict):
        return condition(schema) or any(_has(part, condition) for part in schema.values())
    return isinstance(schema, list | tuple) and any(_has(part, condition) for part in schema)


def _is_secret(part: dict[str, Any]) -> bool:
    kind = part.get("cls") if part.get("type") == "is-instance" else None
    return (
        hasattr(kind, "get_secret_value") or getattr(part.get("function"), "__name__", "") == "_serialize_secret_field"
    )


def _reveal(value: Any) -> Any:
    if hasattr(value, "get_secret_value"):
        return _reveal(value.get_secret_value())
    if isinstance(value, dict):
        return {key: _reveal(one) for key, one in value.items()}
    return [_reveal(one) for one in value] if isinstance(value, list | tuple | set | frozenset) else value


def _is_infinite(value: object) -> bool:
    """Whether a value of Python's types holds NaN or infinity."""
    if isinstance(value, dict):
        return any(map(_is_infinite, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_is_infinite, value))
    return isinstance(value, float) and not isfinite(value)


_any: TypeAdapter[Any] = TypeAdapter(Any)


def _reads_attributes(part: dict[str, Any]) -> bool:
    return bool((part.get("config") or {}).get("from_attributes"))


def _sets_by_alias(part: dict[str, Any]) -> bool:
    return "serialize_by_alias" in (part.get("config") or ())


def _is_encoded(part: dict[str, Any]) -> bool:
    return isinstance(getattr(part.get("function"), "__self__", None), EncodedBytes)


class _Schemas(GenerateJsonSchema):
    """Lists what pydantic reads and writes where its own generator lists something else.

    Keys of objects are listed like other values, even where they aren't strings. An enum or a Literal has a keyword with those
    values that are read from keys.
    """

    #: The configuration outside of models, which pydantic before 2.14 does not tell its generator.
    outer_config: ConfigDict | None = None

    def generate(self, schema: Any, mode: Literal["validation", "serialization"] = "validation") -> dict[str, Any]:
        with self._config_wrapper_stack.push(self.outer_config):
            return super().generate(schema, mode)

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    def sort(self, value: object, parent_key: str | None = None) -> Any:
        return value

    def dict_schema(self, schema: Any) -> dict[str, Any]:
        made: dict[str, Any] = {"type": "object", "additionalProperties": True}
        if "values_schema" in schema:
            made["additionalProperties"] = self.generate_inner(schema["values_schema"])
        if "keys_schema" in schema:
            made["propertyNames"] = self.generate_inner(schema["keys_schema"])
        self.update_with_validations(made, schema, self.ValidationsMapping.object)
        return made

    frozendict_schema = ordered_dict_schema = counter_schema = dict_schema

    def set_schema(self, schema: Any) -> dict[str, Any]:
        made = super().set_schema(schema)
        if made["items"] == {}:
            made["items"] = HASHABLE
        if self.mode == "validation" and not made.keys() & {"minItems", "maxItems"}:
            del made["uniqueItems"]  # duplicates are read
        return made

    frozenset_schema = set_schema

    def bytes_schema(self, schema: Any) -> dict[str, Any]:
        reading, options = self.mode == "validation", self._config
        made = super().bytes_schema(schema)
        if (options.val_json_bytes if reading else options.ser_json_bytes) != "base64":
            return {**made, "format": "binary"}
        del made["format"]
        return {**with_encoded_lengths(made), "contentEncoding": "base64" if reading else "base64url"}

    def dataclass_args_schema(self, schema: Any) -> dict[str, Any]:
        if self.mode == "validation":  # `field(init=False)`
            given = [field for field in schema["fields"] if field.get("init", True)]
            schema = {**schema, "fields": given}
        return super().dataclass_args_schema(schema)

    def tagged_union_schema(self, schema: Any) -> dict[str, Any]:
        made = super().tagged_union_schema(schema)
        if tag := made.pop("discriminator", {}).get("propertyName"):
            made["required"] = [tag]  # even if it has a default
        return made

    def default_schema(self, schema: Any) -> dict[str, Any]:
        made = super().default_schema(schema)
        if "default" in made and _is_infinite(_any.dump_python(self.get_default_value(schema), warnings="none")):
            del made["default"]  # pydantic would list null
        return made

    def timedelta_schema(self, schema: Any) -> dict[str, Any]:
        made = super().timedelta_schema(schema)
        return duration_schema(reading=self.mode == "validation") if "format" in made else made

    def datetime_schema(self, schema: Any) -> dict[str, Any]:
        return self._moment(super().datetime_schema(schema), schema)

    def time_schema(self, schema: Any) -> dict[str, Any]:
        return self._moment(super().time_schema(schema), schema)

    def _moment(self, made: dict[str, Any], schema: Any) -> dict[str, Any]:
        if "format" not in made:  # it is written as a number
            return made
        zone = {"aware": True, "naive": False}.get(schema.get("tz_constraint"))
        return moment_schema(made["format"], zone=zone, reading=self.mode == "validation")

    def decimal_schema(self, schema: Any) -> dict[str, Any]:
        made = super().decimal_schema(schema)
        for text in made.get("anyOf", [made]):
            if text["type"] == "string":
                text["format"] = "decimal"
        return made

    def enum_schema(self, schema: Any) -> dict[str, Any]:
        made = super().enum_schema(schema)
        if issubclass(schema["cls"], Flag):
            del made["enum"]
            made = {**made, **flag_schema(schema["cls"])}
            members = schema["members"] if schema.get("sub_type") == "int" else []
            return self._with_read_keys(made, [str(member.value) for member in members])
        tuples = [member for member in schema["members"] if isinstance(member.value, tuple)]
        if tuples and self.mode == "validation" and not schema.get("missing"):
            raise TypeError(f"{tuples[0]} has a tuple as its value, which is never read: use strings or numbers")
        return made if schema.get("sub_type") == "int" else self._with_read_keys(made, _keys_of(made))

    def literal_schema(self, schema: Any) -> dict[str, Any]:
        made = super().literal_schema(schema)
        members = [one for one in schema["expected"] if isinstance(one, Enum) and not isinstance(one, str | int)]
        if members and self.mode == "validation":
            raise TypeError(f"{members[0]} in a Literal is never read: write its value, or the whole enum")
        return self._with_read_keys(made, _keys_of(made))

    def _with_read_keys(self, made: dict[str, Any], keys: list[str]) -> dict[str, Any]:
        return made if self.mode == "serialization" else {**made, READ_KEYS: keys}


def _keys_of(schema: dict[str, Any]) -> list[str]:
    """The values of an enum or a Literal that pydantic reads from keys: strings and booleans."""
    values = schema.get("enum", [schema.get("const")])
    return [
        str(value).lower() if isinstance(value, bool) else value for value in values if isinstance(value, bool | str)
    ]


class _SchemasByName(_Schemas):
    """Follows `serialize_by_alias`, which pydantic's own generator doesn't."""

    def _get_alias_name(self, field: Any, name: str) -> str:
        if self.mode == "serialization" and not self._config.serialize_by_alias:
            return name
        return super()._get_alias_name(field, name)
