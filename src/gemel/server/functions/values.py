"""Reads and writes the values of one annotation as JSON, and gives its schema. Decides which library does it.

msgspec by default; pydantic, imported only when needed, for annotations that use it and for types that msgspec lacks.
Both are strict: values are never coerced. Their error texts stay in this file: a rejection says where, not why.
"""

from __future__ import annotations

import collections.abc
import decimal
import functools
import re
import sys
import types
import typing
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import msgspec.inspect as mi
from msgspec import UNSET, Raw

from gemel.server.functions.annotations import Traits, bare, is_plain, metadata_of, no_type, parts, shown, traits_of
from gemel.server.functions.json_schema import Schema, SchemaWriter, UnsupportedType
from gemel.server.functions.validation_errors import MAX_EXPLAINED, Path, Rejection, rejection_of
from gemel.values.decimals import DECIMAL_RANGE, path_out_of_range
from gemel.values.encoding import encode_by_pydantic, encode_value, explained
from gemel.values.reading import leaves_defaults, normalized, with_defaults
from gemel.version import install_command

if TYPE_CHECKING:
    from pydantic import ValidationError

    from gemel.server.functions.keys import KeyCheck

#: More errors of pydantic are only counted.
_MAX_ERRORS = 1_000


class ValueRejected(ValueError):
    """A value doesn't fit the type.

    `rejections` say where, as far as the library reports it. `value` is the whole value as plain JSON types, or UNSET
    when it contains a number that no Python float can hold.
    """

    def __init__(self, rejections: Sequence[Rejection], value: Any) -> None:
        super().__init__(rejections)
        self.rejections = rejections
        self.value = value


class ValueType(Protocol):
    """Reads and writes the values of one annotation."""

    #: The type of the field in a msgspec struct: the annotation, or Raw, which `read` reads afterwards.
    field: Any
    #: Whether the schema says everything that reading checks.
    exact: bool
    #: The JSON Schema; nested types are in the definitions of the writer that made it.
    schema: Schema

    def read(self, text: bytes | Raw) -> Any:
        """The typed value of JSON text. Raises ValueRejected."""
        ...

    def write(self, value: object) -> bytes:
        """A value as JSON text, which need not fit the schema. Raises NotSerializable, ValueRejected."""
        ...

    def write_default(self, value: object) -> bytes:
        """Like `write`, for a default: a value that a caller could have sent as well. Raises ValueRejected for others."""
        ...


def value_type(annotation: object, writer: SchemaWriter) -> ValueType:
    """The reader and writer of an annotation. Raises TypeError with the reason for one that JSON can't carry."""
    if (mistake := no_type(annotation)) is not None:
        raise TypeError(mistake)
    try:
        kind = _value_type(annotation, writer)
    except (TypeError, NameError):
        raise
    except Exception as error:  # of a library, or of the author's own hook into one
        if "regex parse error" in str(error):
            raise TypeError(_NO_PATTERN) from None
        raise TypeError(f"{type(error).__name__}: {_one_line(error)}") from None
    if not kind.exact and (word := _misapplied([kind.schema, writer.definitions])) is not None:
        raise TypeError(f"`{word}` can't limit a value of that type")
    return kind


#: pydantic compiles patterns by Rust's regex crate, msgspec and the other engine of pydantic by Python's `re`.
_NO_PATTERN = (
    "pydantic can't compile its pattern, for it may be invalid or hold a look-ahead, look-behind or back-reference; write "
    "Annotated[str, msgspec.Meta(pattern=…)], or in a model ConfigDict(regex_engine='python-re')"
)


#: Keywords that limit values of a JSON type, by the names of pydantic's Field.
_LIMITS = {
    "minLength": ("string", "min_length"),
    "maxLength": ("string", "max_length"),
    "pattern": ("string", "pattern"),
    "minItems": ("array", "min_length"),
    "maxItems": ("array", "max_length"),
    "multipleOf": ("number", "multiple_of"),
    "multiple_of": ("number", "multiple_of"),
    **{name: ("number", name) for name in ("ge", "gt", "le", "lt")},
    **{word: ("number", name) for word, name in (("minimum", "ge"), ("exclusiveMinimum", "gt"), ("maximum", "le"))},
}


def _misapplied(schema: object) -> str | None:
    """The limit in a schema of pydantic's that is for another type: each call would fail; None if there is none."""
    if isinstance(schema, list):
        return next(filter(None, map(_misapplied, schema)), None)
    if not isinstance(schema, dict):
        return None
    kind = "number" if schema.get("type") == "integer" else schema.get("type")
    for word, limit in schema.items():
        if word in _LIMITS and isinstance(kind, str) and _LIMITS[word][0] != kind and isinstance(limit, int | float):
            return _LIMITS[word][1]
    return _misapplied(list(schema.values()))


def _value_type(annotation: object, writer: SchemaWriter) -> ValueType:
    if type(annotation) is not type:
        annotation = normalized(annotation, reading=writer.reading)
    if not is_plain(annotation):
        _refuse_crash(annotation)
    traits = _traits(annotation)
    if not traits.pydantic:
        try:
            return _shared_type(annotation, writer) or MsgspecType(annotation, writer)
        except UnsupportedType as reason:
            return _fallback(annotation, writer, reason)
    if traits.struct:
        raise TypeError("it mixes msgspec structs and pydantic types; use one of the two in one annotation")
    if traits.msgspec_limits:
        raise TypeError("it limits pydantic's types by msgspec.Meta; use pydantic's Field for that")
    return PydanticType(annotation, writer)


def _refuse_crash(annotation: object) -> None:
    """Refuse the unions for which msgspec 0.22 reads memory that is not its own: the garbage collector ends the process.

    They are a text with a pattern beside a list, set or dict, and a type with limits beside a tuple of fixed length:
    https://github.com/msgspec/msgspec/issues/717. Raises TypeError.
    """
    for part in parts(annotation):
        if typing.get_origin(part) not in (typing.Union, types.UnionType):
            continue
        members = typing.get_args(part)
        limits = [limit for member in members for limit in metadata_of(member) if isinstance(limit, msgspec.Meta)]
        kinds = [bare(member) for member in members]
        if (limits and any(map(_is_fixed_tuple, kinds))) or (
            any(limit.pattern is not None for limit in limits) and any(map(_is_container, kinds))
        ):
            raise TypeError(
                f"msgspec can't read `{shown(part)}` with these limits; leave them out, or use pydantic's Field"
            )


def _is_fixed_tuple(kind: object) -> bool:
    return typing.get_origin(kind) is tuple and ... not in typing.get_args(kind)


def _is_container(kind: object) -> bool:
    cls = typing.get_origin(kind) or kind
    texts = (str, bytes, bytearray, memoryview)
    return isinstance(cls, type) and issubclass(cls, collections.abc.Collection) and not issubclass(cls, texts)


def _traits(annotation: object) -> Traits:
    """What the annotation uses. As long as pydantic isn't loaded, no part of it can be pydantic's."""
    if "pydantic" in sys.modules or "annotated_types" in sys.modules:
        return traits_of(annotation)
    return Traits(pydantic=False, struct=False, msgspec_limits=False)


def _fallback(annotation: object, writer: SchemaWriter, reason: UnsupportedType) -> ValueType:
    """Types that msgspec lacks (Path, IP addresses, unions of dataclasses): pydantic may have them."""
    traits = traits_of(annotation)
    if traits.struct or traits.msgspec_limits:
        raise reason
    try:
        return PydanticType(annotation, writer)
    except ImportError:
        raise TypeError(f"{reason}, unless pydantic is installed: {install_command('pydantic')}") from None
    except TypeError:
        raise _without_json_form(annotation) or reason from None


def _without_json_form(annotation: object) -> UnsupportedType | None:
    """The reason for a class in an annotation that no library knows; None if there is none. That of a union names no class."""
    for part in parts(annotation):
        try:
            if isinstance(part, type) and isinstance(mi.type_info(part), mi.CustomType):
                PydanticType(part, SchemaWriter(reading=True))
        except (TypeError, ImportError):
            return UnsupportedType(f"{shown(part)} has no JSON form")
    return None


#: What msgspec raises for a limit of another type: `ge` of a Decimal.
_MISAPPLIED = re.compile(r"Can only set `(\w+)` on an? (.+?) type")


class MsgspecType:
    """msgspec reads and writes."""

    exact = True

    def __init__(self, annotation: object, writer: SchemaWriter) -> None:
        self._annotation = annotation
        try:
            info = mi.type_info(annotation)
        except TypeError as reason:
            if limit := _MISAPPLIED.match(str(reason)):
                advice = "; for a Decimal use pydantic's Field" if limit[2] == "numeric" else ""
                raise TypeError(f"msgspec.Meta sets `{limit[1]}` only on a {limit[2]} type{advice}") from None
            raise UnsupportedType(_one_line(reason)) from None
        self.schema = writer.write(info, annotation)
        #: Whether text that is read fits the schema.
        self.decoder_suffices = writer.decoder_suffices
        self._leaves_defaults = bool(writer.definitions) and leaves_defaults(annotation)
        self._keys = _key_check(self.schema, writer)
        self._has_decimals = writer.has_decimals
        self.field = Raw if self._leaves_defaults or self._keys or self._has_decimals else annotation

    @functools.cached_property
    def decode(self) -> Callable[[bytes | Raw], Any]:
        """What msgspec reads of JSON text. Made at the first call: of many functions, few are called soon."""
        return msgspec.json.Decoder(self._annotation).decode

    def read(self, text: bytes | Raw) -> Any:
        try:
            value = self.decode(text)
            if self._keys is not None:
                _check_keys(self._keys, text)
            if self._has_decimals:
                _check_decimals(value, text)
            return with_defaults(value) if self._leaves_defaults else value
        except msgspec.ValidationError as error:
            raise ValueRejected([rejection_of(error)], _decoded(text)) from None
        except TypeError:  # an item of a set has no hash
            raise ValueRejected([Rejection(())], _decoded(text)) from None

    write = staticmethod(encode_value)

    def write_default(self, value: object) -> bytes:
        text = encode_value(value)
        self.read(text)
        return text


def _key_check(schema: Schema, writer: SchemaWriter) -> KeyCheck | None:
    """The check of the keys that are read; None if all are strings."""
    if not (writer.reading and writer.limits_names):
        return None
    from gemel.server.functions.keys import KeyCheck

    check = KeyCheck(schema, writer.definitions)
    return check if check.needed else None


def _check_keys(check: KeyCheck, text: bytes | Raw) -> None:
    """Raise ValueRejected for keys in JSON text that aren't listed, or of which one would replace another."""
    value = msgspec.json.decode(text)
    if wrong := check.rejection(value):
        raise ValueRejected([wrong], value if len(bytes(text)) <= MAX_EXPLAINED else UNSET)


def _check_decimals(value: object, text: bytes | Raw) -> None:
    """Raise ValueRejected for a Decimal in a value that is NaN, infinite or out of range."""
    plain = msgspec.to_builtins(value, builtin_types=(decimal.Decimal,))
    if (path := path_out_of_range(plain)) is not None:
        raise ValueRejected([Rejection(path, fallback=f"expected {DECIMAL_RANGE}")], _decoded(text))


def _shared_type(annotation: object, writer: SchemaWriter) -> MsgspecType | None:
    """The type of an annotation that many functions have, such as `str` and `list[float]`; None if it needs definitions.

    Annotations are equal whatever the order of their literals and members of unions, which schemas keep. So they are
    told apart by their texts, too.
    """
    try:
        return _without_definitions(annotation, repr(annotation), writer.reading)
    except TypeError:  # it has no hash, or msgspec does not know it
        return None


@functools.lru_cache(maxsize=256)
def _without_definitions(annotation: object, _text: str, reading: bool) -> MsgspecType | None:
    writer = SchemaWriter(reading=reading)
    shared = MsgspecType(annotation, writer)
    return None if writer.definitions else shared


#: What pydantic raises for a limit that can't be compared with the value: `min_length` of a number.
_UNLIMITED = re.compile(r"Unable to apply constraint '(\w+)'")


class PydanticType:
    """pydantic reads and writes; strict, as JSON."""

    exact = False
    field = Raw

    def __init__(self, annotation: object, writer: SchemaWriter) -> None:
        from pydantic import PydanticUndefinedAnnotation, PydanticUserError

        from gemel.values.pydantic_types import PydanticCodec

        try:
            self._codec = PydanticCodec(annotation)
            schema = self._codec.schema(reading=writer.reading)
        except PydanticUndefinedAnnotation as error:
            raise TypeError(f"name '{error.name}' is not defined") from None
        except PydanticUserError as error:
            raise TypeError(_of_pydantic(error)) from None
        self.schema = writer.adopt(schema, bare(annotation))
        self._keys = _key_check(self.schema, writer)
        self._hides_values = self._codec.hides_values

    def revealed(self, value: object) -> Any:
        """The value, with the contents of secrets in their place where it would be written without them."""
        return self._codec.revealed(value) if self._hides_values else value

    def read(self, text: bytes | Raw) -> Any:
        try:
            value = self._codec.read_strictly(bytes(text))
            if self._keys is not None:
                _check_keys(self._keys, text)
            return value
        except _validation_error() as error:
            raise _rejected(error, _decoded(text)) from None
        except TypeError as error:
            limit = _UNLIMITED.match(str(error))
            if limit is None:
                raise  # of the author's own validator
            rejection = Rejection((), fallback=f"expected a value that {limit[1]} can limit")
            raise ValueRejected([rejection], _decoded(text)) from None

    def write(self, value: object) -> bytes:
        if self._codec.reads_attributes:
            with suppress(ValueRejected):
                value = self._validated(value)
        try:
            return encode_by_pydantic(self._codec, value, warnings="error")
        except (TypeError, ValueError):  # pydantic expects another type there
            fitting = self._validated(value)
        try:
            return encode_by_pydantic(self._codec, fitting)
        except Exception as error:
            raise explained(value, error) from None

    def write_default(self, value: object) -> bytes:
        self._validated(value)
        return self.write(value)

    def _validated(self, value: object) -> Any:
        try:
            return self._codec.adapter.validate_python(value)
        except _validation_error() as error:
            raise _rejected(error, _named(value)) from None


# An except clause evaluates its class only when something was raised, so that calls pay for no import statement.
def _validation_error() -> type[ValidationError]:
    from pydantic import ValidationError

    return ValidationError


def _decoded(text: bytes | Raw) -> Any:
    """JSON text as plain types, UNSET if it is too large to look at. Raises DecodeError for text that isn't JSON."""
    if len(bytes(text)) > MAX_EXPLAINED:
        return UNSET
    try:
        return msgspec.json.decode(text)
    except msgspec.ValidationError:  # a number beyond Python's float
        return UNSET


def _named(value: object) -> Any:
    """Any value as plain JSON types, with a name in place of what has no JSON form; for messages."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=lambda item: f"<{type(item).__name__}>"))


def _rejected(error: ValidationError, value: object) -> ValueRejected:
    if error.error_count() > _MAX_ERRORS:  # each of them becomes a dict
        return ValueRejected([Rejection((), fallback=f"has {error.error_count()} errors")], value)
    rejections: list[Rejection] = []
    for problem in error.errors(include_url=False, include_input=False):
        location, kind = problem["loc"], problem["type"]
        key = bool(location) and location[-1] == "[key]"
        location = location[:-1] if key else location
        path = _path_of(location, value, missing=kind == "missing")
        reason, fallback = _words(kind, problem["msg"])
        if key and fallback is not None:
            fallback = "the key " + re.sub(r"^\w+ should ", "must ", problem["msg"].partition(", ")[0])
        form = _FORM.fullmatch(kind) is not None
        rejections.append(Rejection(path, reason, fallback, form, member=len(path) < len(location), key=key))
    return ValueRejected(rejections, value)


#: Kinds of errors about the form of a value. All others are about what it means.
_FORM = re.compile(
    r".*(_type|_parsing|_inexact)|.*_invalid|url_syntax_violation|bytes_invalid_encoding|string_pattern_mismatch|string_unicode"
    r"|int_from_float|enum|literal_error|none_required"
)


def _path_of(location: Sequence[str | int], value: object, *, missing: bool) -> Path:
    """pydantic's location without the names of union members and validators that it puts between the steps."""
    path: Path = ()
    for index, step in enumerate(location):
        last = missing and index == len(location) - 1
        if isinstance(value, dict) and (step in value or last):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and (step < len(value) or last):
            value = value[step] if step < len(value) else None
        else:
            continue
        path += (step,)
    return path


def _words(kind: str, message: str) -> tuple[str | None, str | None]:
    """The text of a check that the author wrote, or else the library's own, reworded."""
    if kind in ("value_error", "assertion_error"):
        return message.removeprefix("Value error, ").removeprefix("Assertion failed, "), None
    if _FORM.fullmatch(kind):
        return None, message.partition(", ")[0].replace("Input should be", "expected")
    text = re.sub(r"^(Input|Value|Date|Datetime) must ", "must ", message.replace(" should ", " must ", 1))
    return None, text[:1].lower() + text[1:] if text[1:2].islower() else text


def _of_pydantic(error: Any) -> str:
    if error.code == "class-not-fully-defined":
        return "a model in it is not fully defined yet"
    if (member := re.search(r"IsInstanceSchema \(<class '(?:.*\.)?(\w+)'>\)", str(error))) is not None:
        return f"{member[1]}, the type of a member, has no JSON form"
    return _one_line(error)


def _one_line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(" - ")[0].partition(". Set `")[0].replace("pydantic-core ", "")
