"""Results of a function: the output schema that its annotation gives, and each returned value as structured content and text.

One rule: what is sent fits the listed output schema, and a value that fits it after the serialisation of its own library is
sent. A mistake is a DefinitionError for the log. A schema whose root isn't an object is kept; older revisions leave it out.
"""

from __future__ import annotations

import collections.abc
import enum
import functools
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gemel.errors import DefinitionError
from gemel.protocol.validation import Validator, compile_schema, first_problem
from gemel.schema.base import Result
from gemel.schema.content import ContentBlock
from gemel.schema.tools import CallToolResult
from gemel.server.functions.annotations import Place, Predicate, bare, members, metadata_of, shown
from gemel.server.functions.foreign import explain_foreign, foreign_class, foreign_value
from gemel.server.functions.json_schema import Schema, SchemaWriter, root_schema
from gemel.server.functions.validation_errors import FORMATS, Rejection, error_lines, explain, has_format
from gemel.server.functions.values import MsgspecType, ValueRejected, value_type
from gemel.values.encoding import NotSerializable, encode_value

_AWAITED = (collections.abc.Awaitable, collections.abc.Coroutine)
_CONTENT_TYPES = (*typing.get_args(ContentBlock), Result)

#: A returned value, encoded once: the structured content as JSON text, UNSET for plain text and None; and the text.
Encoded: TypeAlias = tuple[Raw | UnsetType, str]


class Output(NamedTuple):
    """How a function's values are sent. `schema` is None if its annotation gives none.

    `lists` says that a list is sent as content blocks, one for each item, whatever is in it.
    """

    schema: Schema | None
    encode: Callable[[Any], Encoded]
    lists: bool = False


def is_content(annotation: object) -> bool:
    """Whether values of this type are content blocks or whole results, which go out as they are."""
    if type(annotation) is type:  # `int`: all of them are structs, whose type is another
        return False
    return isinstance(annotation, type) and issubclass(annotation, _CONTENT_TYPES)


def inspect_output(
    annotation: object,
    place: Place,
    content: Predicate,
    description: str | None = None,
    *,
    structured_text: bool = False,
) -> Output:
    """The output of a function with this return annotation (already resolved; UNSET for none).

    There is no schema without annotation, for Any and None, for str without `structured_text`, and for types that `content`
    selects, alone, in unions or in lists. `Annotated[CallToolResult, Day]` has the schema of Day, for a CallToolResult that
    the function returns.

    Raises DefinitionError for types that JSON can't carry.
    """
    annotation = type(None) if annotation is None else _awaited(annotation)
    structured = _structured_type(annotation, content)
    if structured is not None:
        return Output(_TypedOutput(place, structured).schema, _FreeOutput(place).encode)
    kinds = members(annotation)
    lists = any(_lists_content(kind, content) for kind in kinds)
    if annotation is UNSET or lists or any(kind in (Any, object) or content(kind) for kind in kinds):
        return Output(None, _FreeOutput(place).encode, lists)
    never = (type(None), typing.NoReturn, typing.Never)
    if all((kind is str and not structured_text) or kind in never for kind in kinds):
        return Output(None, _TextOutput(place, annotation).encode)
    typed = _TypedOutput(place, annotation)
    if not typed.schema:
        return Output(None, _FreeOutput(place).encode)
    schema = typed.schema
    if description:  # the schema is that of other functions, too
        schema = {**schema, "description": schema.get("description", description)}
    return Output(schema, typed.encode)


def _awaited(annotation: object) -> Any:
    plain = bare(annotation)
    return typing.get_args(plain)[-1] if typing.get_origin(plain) in _AWAITED else annotation


def _structured_type(annotation: object, content: Predicate) -> Any:
    """The type of the structured content in `Annotated[CallToolResult, Day]`; None for other annotations."""
    if not content(bare(annotation)):
        return None
    types = (item for item in metadata_of(annotation) if isinstance(item, type) or typing.get_origin(item) is not None)
    return next(types, None)


def _lists_content(kind: object, content: Predicate) -> bool:
    """Whether it is a list, or another iterable, whose items may be content."""
    origin = typing.get_origin(kind)
    if not isinstance(origin, type) or not issubclass(origin, collections.abc.Iterable):
        return False
    if issubclass(origin, collections.abc.Mapping):
        return False
    items = [item for argument in typing.get_args(kind) for item in members(argument)]
    return any(content(item) or _lists_content(item, content) for item in items)


class _FreeOutput:
    """For annotations without a schema: text stays text, everything else becomes JSON."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def encode(self, value: object) -> Encoded:
        if value is None:
            return UNSET, ""
        if isinstance(value, str) and not isinstance(value, enum.Enum):
            return UNSET, str.__str__(value)
        if (foreign := foreign_value(value)) is not None:
            raise self.place.mistake(f"returned {explain_foreign(foreign)}")
        try:
            text = encode_value(value)
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

    def encode(self, value: object) -> Encoded:
        if not isinstance(value, self.types):
            raise self.place.mistake(
                f"returned {type(value).__name__}, but is annotated `-> {shown(self.annotation)}`; {_ADVICE}"
            )
        return UNSET, "" if value is None else str.__str__(value)


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
        self._validator = SchemaValidator(self.schema, formats=True)
        #: What msgspec reads fits the schema. It is faster, and may refuse what fits.
        self._reader = self.type if isinstance(self.type, MsgspecType) and self.type.decoder_suffices else None
        if self._reader is None:
            self._compile()

    def _compile(self) -> None:
        """Raise DefinitionError for a schema that no result could be held against."""
        try:
            self._validator.compile()
        except ValueError as reason:
            raise self.place.mistake(
                f"results can't be validated against the return annotation `{shown(self.annotation)}`: {reason}; change its "
                "pattern or limits, or remove the annotation to send text"
            ) from None

    def encode(self, value: object) -> Encoded:
        try:
            text = self.type.write(value)
        except ValueRejected as error:
            raise self._mistake(error.value, error.rejections) from None
        except NotSerializable as error:
            raise _not_serializable(self.place, error) from None
        reads = self._reader is not None
        try:
            if self._reader is not None:
                self._reader.decode(text)
        except (msgspec.ValidationError, TypeError):
            reads = False  # the schema decides
        if not reads and (problem := self._validator.problem(text)) is not None:
            raise self._mistake(msgspec.json.decode(text), (), problem)
        # Models read the JSON text of a string without quotes and escapes.
        is_text = isinstance(value, str) and not isinstance(value, enum.Enum) and text.startswith(b'"')
        return Raw(text), msgspec.json.decode(text, type=str) if is_text else text.decode()

    def _mistake(self, value: object, rejections: Sequence[Rejection], problem: str = "") -> DefinitionError:
        """The error for a value that doesn't fit, in the words for arguments if they say what is wrong."""
        lines = error_lines(explain(self.schema, value, rejections, exact=not rejections)) or [problem]
        return self.place.mistake(
            f"returned a value that doesn't fit `-> {shown(self.annotation)}`: {'; '.join(lines)}; {_ADVICE}"
        )


#: Types that become content blocks where the annotation names them.
_CONTENT = frozenset({"Image", "Audio", "File"})
_SUGGESTED = "return a dataclass, TypedDict, msgspec.Struct, pydantic model, dict, list, number or str"
_ADVICE = "return what the annotation says, or change the annotation"


def _not_serializable(place: Place, error: NotSerializable) -> DefinitionError:
    if error.kind in _CONTENT:
        return place.mistake(
            f"returned {error.part}, which its annotation doesn't say: annotate `-> {error.kind}`, or "
            f"`-> list[str | {error.kind}]` for several"
        )
    return place.mistake(f"returned {error.part}, which has no JSON form: {error.advice}")


# ---------------------------------------------------------------- results against their schema

#: What an author can do about a result without structured content.
ADVICE_ON_CONTENT = "return a CallToolResult with structured_content, or say output_schema=None"


class SchemaValidator:
    """Validates JSON text against an output schema; compiled when it is needed first.

    With `formats`, it also checks the formats of dates and the like, which JSON Schema leaves open.
    """

    __slots__ = ("_compiled", "_formats", "_schema")

    def __init__(self, schema: Schema, *, formats: bool) -> None:
        self._schema = schema
        self._formats = formats
        self._compiled: Validator | None = None

    def compile(self) -> Validator:
        """The compiled schema. Raises ValueError for one that can't be used."""
        if self._compiled is None:
            if self._formats:
                self._compiled = compile_schema(_with_known_formats(self._schema), _FORMATS)
            else:
                self._compiled = compile_schema(self._schema)
        return self._compiled

    def problem(self, text: bytes) -> str | None:
        """What is wrong with JSON text first; None if it fits."""
        return first_problem(self.compile(), msgspec.json.decode(text))


_FORMATS = {name: functools.partial(has_format, {"format": name}) for name in FORMATS}


def _with_known_formats(schema: object) -> Any:
    """The schema with base64 as a format, and without formats that are not checked: the library would check them."""
    if isinstance(schema, list):
        return [_with_known_formats(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    known = {
        word: _with_known_formats(inner)
        for word, inner in schema.items()
        if word != "format" or isinstance(inner, dict) or inner in (*_FORMATS, "ipv4", "ipv6", "uri")
    }
    encoding = schema.get("contentEncoding")
    return {**known, "format": encoding} if encoding in ("base64", "base64url") else known


class OutputSchema:
    """Validates results against an output schema: one that the author wrote (`explicit`), or that of the annotation.

    The annotation already makes values fit its schema; then only a CallToolResult that the function returns is checked.
    Raises ValueError for an explicit schema that can't be used.
    """

    __slots__ = ("_validator", "explicit")

    def __init__(self, schema: object, *, explicit: bool) -> None:
        if not isinstance(schema, Mapping):
            raise ValueError("not a usable JSON Schema: write it as a dict")
        self.explicit = explicit
        self._validator = SchemaValidator(dict(schema), formats=not explicit)
        if explicit:
            self._validator.compile()

    def check(self, result: CallToolResult) -> None:
        """Check a result that the function returned. Raises DefinitionError if its structured content doesn't fit."""
        if result.structured_content is UNSET:
            raise DefinitionError(
                f"it has an output schema, but returned a result without structured content: {ADVICE_ON_CONTENT}"
            )
        self._validate(serialized(result.structured_content))

    def structured(self, value: object, encoded: Raw | UnsetType) -> Raw:
        """The structured content of a returned value. Raises DefinitionError if it doesn't fit."""
        text = serialized(value) if encoded is UNSET else bytes(encoded)
        self._validate(text)
        return Raw(text)

    def _validate(self, text: bytes) -> None:
        problem = self._validator.problem(text)
        if problem is not None:
            raise DefinitionError(f"what it returned doesn't fit its output schema: {problem}")


def serialized(value: object) -> bytes:
    """A part of a result as JSON text. Raises DefinitionError if it has no JSON form, or is made for another library."""
    if (foreign := foreign_class(type(value))) is not None:
        raise DefinitionError(f"it returned {explain_foreign(foreign)}")
    try:
        return encode_value(value)
    except NotSerializable as error:
        raise DefinitionError(f"it returned {error.part}, which has no JSON form: {error.advice}") from None
