"""Results of a function: the output schema that its annotation gives, and each returned value as structured content and text.

A returned value is checked against the annotation, or against an explicit output schema, before it is sent. A mistake is a
DefinitionError for the log. A schema whose root isn't an object is kept; older revisions leave it out.
"""

from __future__ import annotations

import collections.abc
import enum
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gemel.errors import DefinitionError
from gemel.jsonrpc import check_finite, may_hold_null
from gemel.protocol.validation import Validator, compile_schema, first_problem
from gemel.schema.base import Result
from gemel.schema.content import ContentBlock
from gemel.schema.tools import CallToolResult
from gemel.server.functions.annotations import Place, Predicate, bare, members, metadata_of, shown
from gemel.server.functions.json_schema import Schema, SchemaWriter, root_schema
from gemel.server.functions.validation_errors import error_lines, explain
from gemel.server.functions.values import MsgspecType, NotSerializable, ValueRejected, encode, value_type

_AWAITED = (collections.abc.Awaitable, collections.abc.Coroutine)
_CONTAINERS = (list, tuple, collections.abc.Sequence)
_CONTENT_TYPES = (*typing.get_args(ContentBlock), Result)

_to_json = msgspec.json.Encoder().encode

#: A returned value, encoded once: the structured content as JSON text, UNSET for plain text and None; and the text.
Encoded: TypeAlias = tuple[Raw | UnsetType, str]


class Output(NamedTuple):
    """How a function's values are sent. `schema` is None if its annotation gives none."""

    schema: Schema | None
    encode: Callable[[Any], Encoded]


def is_content(annotation: Any) -> bool:
    """Whether values of this type are content blocks or whole results, which go out as they are."""
    if type(annotation) is type:  # `int`: all of them are structs, whose type is another
        return False
    return isinstance(annotation, type) and issubclass(annotation, _CONTENT_TYPES)


def inspect_output(annotation: Any, place: Place, content: Predicate, description: str | None = None) -> Output:
    """The output of a function with this return annotation (already resolved; UNSET for none).

    There is no schema without annotation, for Any, None and str, and for types that `content` selects, alone, in unions
    or in lists. `Annotated[CallToolResult, Day]` has the schema of Day, for a CallToolResult that the function returns.

    Raises DefinitionError for types that JSON can't carry.
    """
    annotation = type(None) if annotation is None else _awaited(annotation)
    structured = _structured_type(annotation, content)
    if structured is not None:
        return Output(_TypedOutput(place, structured).schema, _FreeOutput(place).encode)
    kinds = members(annotation)
    if annotation is UNSET or any(kind in (Any, object) for kind in kinds) or _has_content(kinds, content):
        return Output(None, _FreeOutput(place).encode)
    never = (type(None), typing.NoReturn, typing.Never)
    if all(kind is str or kind in never for kind in kinds):
        return Output(None, _TextOutput(place, annotation).encode)
    typed = _TypedOutput(place, annotation)
    if not typed.schema:
        return Output(None, _FreeOutput(place).encode)
    if description:
        typed.schema.setdefault("description", description)
    return Output(typed.schema, typed.encode)


def _awaited(annotation: Any) -> Any:
    plain = bare(annotation)
    return typing.get_args(plain)[-1] if typing.get_origin(plain) in _AWAITED else annotation


def _structured_type(annotation: Any, content: Predicate) -> Any:
    """The type of the structured content in `Annotated[CallToolResult, Day]`; None for other annotations."""
    if not content(bare(annotation)):
        return None
    types = (item for item in metadata_of(annotation) if isinstance(item, type) or typing.get_origin(item) is not None)
    return next(types, None)


def _has_content(kinds: tuple[Any, ...], content: Predicate) -> bool:
    for kind in kinds:
        inner = typing.get_args(kind) if typing.get_origin(kind) in _CONTAINERS else ()
        if content(kind) or any(_has_content(members(item), content) for item in inner):
            return True
    return False


class _FreeOutput:
    """For annotations without a schema: text stays text, everything else becomes JSON."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def encode(self, value: Any) -> Encoded:
        if value is None:
            return UNSET, ""
        if isinstance(value, str) and not isinstance(value, enum.Enum):
            return UNSET, str(value)
        try:
            text = encode(value)
        except NotSerializable as error:
            raise _not_serializable(self.place, error) from None
        return Raw(text), text.decode()


class _TextOutput:
    """For `str` and `None`: text without structured content."""

    def __init__(self, place: Place, annotation: Any) -> None:
        self.place = place
        self.annotation = annotation
        kinds = members(annotation)
        self.types = (str,) if type(None) not in kinds else (str, type(None)) if str in kinds else (type(None),)

    def encode(self, value: Any) -> Encoded:
        if not isinstance(value, self.types):
            raise self.place.mistake(
                f"returned {type(value).__name__}, but is annotated `-> {shown(self.annotation)}`; {_ADVICE}"
            )
        return UNSET, "" if value is None else str(value)


class _TypedOutput:
    """For annotations with a schema: what is sent fits it."""

    def __init__(self, place: Place, annotation: Any) -> None:
        self.place = place
        self.annotation = annotation
        writer = SchemaWriter(reading=False)
        try:
            self.type = value_type(annotation, writer)
        except (TypeError, NameError) as reason:
            raise place.mistake(
                f"the return annotation `{shown(annotation)}` can't become JSON: {reason}; {_SUGGESTED}, "
                "or remove the annotation to send text"
            ) from None
        self.schema = root_schema(self.type.schema, writer.definitions)
        self._checked = self.type if isinstance(self.type, MsgspecType) else None
        self._may_hold_nan = _may_hold_nan(self.schema)

    def encode(self, value: Any) -> Encoded:
        if self._checked is not None:
            try:
                text = _to_json(value)
                self._checked.decode(text)
                if self._may_hold_nan and may_hold_null(text):
                    check_finite(value)
                return Raw(text), text.decode()
            except (TypeError, ValueError, RecursionError, OverflowError):
                pass  # `write` raises the error that explains it
        try:
            text = self.type.write(value)
        except ValueRejected as error:
            raise self._wrong_value(error) from None
        except NotSerializable as error:
            raise _not_serializable(self.place, error) from None
        return Raw(text), text.decode()

    def _wrong_value(self, rejected: ValueRejected) -> DefinitionError:
        violations = explain(self.schema, rejected.value, rejected.rejections, exact=self.type.exact)
        text = "; ".join(error_lines(violations))
        if any(error.value is None and "number" in error.text for error in violations):
            text += " (NaN and infinity have no JSON form)"
        return self.place.mistake(f"returned a value that doesn't fit `-> {shown(self.annotation)}`: {text}; {_ADVICE}")


def _may_hold_nan(schema: Any) -> bool:
    """Whether a part of a schema accepts any number, or any value: NaN would be written as null."""
    if not isinstance(schema, dict):
        return schema is True
    inner = [*schema.get("$defs", {}).values(), *schema.get("anyOf", ()), *schema.get("oneOf", ())]
    match schema.get("type"):
        case "number":
            return True
        case "object":
            inner += schema.get("properties", {}).values()
            inner.append(schema.get("additionalProperties", "properties" not in schema))
        case "array":
            inner += schema.get("prefixItems", ())
            inner.append(schema.get("items", "prefixItems" not in schema))
        case None:
            inner.append(not schema.keys() & {"anyOf", "oneOf", "enum", "const", "$ref"})
    return any(map(_may_hold_nan, inner))


#: Types that become content blocks where the annotation names them.
_CONTENT = frozenset({"Image", "Audio", "File"})
_SUGGESTED = "return a dataclass, TypedDict, msgspec.Struct, pydantic model, dict, list, number or str"
_ADVICE = "return what the annotation says, or change the annotation"


def _not_serializable(place: Place, error: NotSerializable) -> DefinitionError:
    if str(error) in _CONTENT:
        return place.mistake(
            f"returned {error}, which its annotation doesn't say: annotate `-> {error}`, or `-> list[str | {error}]` for several"
        )
    return place.mistake(f"returned {error}, which can't become JSON; {_SUGGESTED}, or convert the value to one")


# ---------------------------------------------------------------- an explicit output schema

#: What an author can do about a result without structured content.
ADVICE_ON_CONTENT = "return a CallToolResult with structured_content, or say output_schema=None"


class OutputSchema:
    """Validates results against an output schema: one that the author wrote (`explicit`), or that of the annotation.

    The annotation already makes values fit its schema; then only a CallToolResult that the function returns is checked.
    Raises ValueError for an explicit schema that can't be used.
    """

    __slots__ = ("_schema", "_validator", "explicit")

    def __init__(self, schema: Any, *, explicit: bool) -> None:
        if not isinstance(schema, Mapping):
            raise ValueError("no usable JSON Schema: write it as a dict")
        self.explicit = explicit
        self._schema = schema
        self._validator: Validator | None = compile_schema(schema) if explicit else None

    def check(self, result: Result) -> Result:
        """Check a result that the function returned. Raises DefinitionError if its structured content doesn't fit."""
        if isinstance(result, CallToolResult) and not result.is_error:
            if result.structured_content is UNSET:
                raise DefinitionError(
                    f"it has an output schema, but returned a result without structured content: {ADVICE_ON_CONTENT}"
                )
            self._validate(_serialized(result.structured_content))
        return result

    def structured(self, value: Any, encoded: Raw | UnsetType) -> Raw:
        """The structured content of a returned value. Raises DefinitionError if it doesn't fit."""
        text = _serialized(value) if encoded is UNSET else bytes(encoded)
        self._validate(text)
        return Raw(text)

    def _validate(self, text: bytes) -> None:
        if self._validator is None:
            self._validator = compile_schema(self._schema)
        error = first_problem(self._validator, msgspec.json.decode(text))
        if error is not None:
            raise DefinitionError(f"what it returned doesn't fit its output schema: {error}")


def check_json(value: Any) -> None:
    """Check that a value has a JSON form. Raises DefinitionError."""
    _serialized(value)


def _serialized(value: Any) -> bytes:
    try:
        return encode(value)
    except NotSerializable as error:
        raise DefinitionError(f"it returned {error}, which can't become JSON") from None
