"""What a function returns: its output schema, and each returned value as structured content and text.

A returned value is checked against the annotation before it leaves (TOOL-15): the author hears of a mistake.
Knows nothing of tools or eras: a schema whose root is no object is kept, whoever can't take it drops it.
"""

from __future__ import annotations

import collections.abc
import enum
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from hinge.errors import DefinitionError
from hinge.schema.base import Result
from hinge.schema.content import ContentBlock
from hinge.server.functions.annotations import Place, Predicate, bare, members, metadata_of, shown
from hinge.server.functions.json_schema import Schema, SchemaWriter, root_schema
from hinge.server.functions.validation_errors import explain, lines
from hinge.server.functions.values import Refused, Unwritable, encode, value_type

_AWAITED = (collections.abc.Awaitable, collections.abc.Coroutine)
_CONTAINERS = (list, tuple, collections.abc.Sequence)
_BLOCKS = typing.get_args(ContentBlock)


class Encoded(msgspec.Struct, frozen=True):
    """A returned value, encoded once: `structured` is JSON text, or UNSET for plain text and None."""

    structured: Raw | UnsetType
    text: str


class Output(NamedTuple):
    """How a function's values leave. `schema` is None when nothing is promised about them."""

    schema: Schema | None
    encode: Callable[[Any], Encoded]


def is_content(annotation: Any) -> bool:
    """Whether values of this type are content blocks or whole results, which go out as they are."""
    return isinstance(annotation, type) and issubclass(annotation, (*_BLOCKS, Result))


def inspect_output(annotation: Any, place: Place, content: Predicate, description: str | None = None) -> Output:
    """The output of a function with this return annotation (already resolved; UNSET for none).

    Nothing is promised for no annotation, Any, None, str, and for types that `content` knows, alone, in unions or in
    lists; `Annotated[CallToolResult, Day]` promises a Day in a result made by hand.

    Raises DefinitionError for types that JSON can't carry.
    """
    annotation = type(None) if annotation is None else _awaited(annotation)
    promised = _promised(annotation, content)
    if promised is not None:
        return Output(_TypedOutput(place, promised).schema, _FreeOutput(place).encode)
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


def _promised(annotation: Any, content: Predicate) -> Any:
    """`Annotated[CallToolResult, Day]`: a result made by hand, with a promise about its structured content."""
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
    """Nothing is known beforehand: text stays text, everything else is JSON."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def encode(self, value: Any) -> Encoded:
        if value is None:
            return Encoded(UNSET, "")
        if isinstance(value, str) and not isinstance(value, enum.Enum):
            return Encoded(UNSET, str(value))
        try:
            text = encode(value)
        except Unwritable as error:
            raise unwritable(self.place, error) from None
        return Encoded(Raw(text), text.decode())


class _TextOutput:
    """Plain text, or nothing: there is nothing to structure."""

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
        return Encoded(UNSET, "" if value is None else str(value))


class _TypedOutput:
    """The annotation is a promise: what is sent fits its schema."""

    def __init__(self, place: Place, annotation: Any) -> None:
        self.place = place
        self.annotation = annotation
        writer = SchemaWriter(reading=False)
        try:
            self.type = value_type(annotation, writer)
        except (TypeError, NameError) as reason:
            raise place.mistake(
                f"the return annotation `{shown(annotation)}` can't become JSON: {reason}; {_SUGGESTED}, "
                "or leave the annotation away to send text"
            ) from None
        self.schema = root_schema(self.type.schema, writer.definitions)
        self._write = self.type.write

    def encode(self, value: Any) -> Encoded:
        try:
            text = self._write(value)
        except Refused as error:
            raise self._misfit(error) from None
        except Unwritable as error:
            raise unwritable(self.place, error) from None
        return Encoded(Raw(text), text.decode())

    def _misfit(self, error: Refused) -> DefinitionError:
        found = explain(self.schema, error.value, error.refusals, sure=self.type.exact)
        text = "; ".join(lines(found))
        if any(problem.value is None and "number" in problem.text for problem in found):
            text += " (NaN and infinity have no JSON form)"
        return self.place.mistake(f"returned a value that doesn't fit `-> {shown(self.annotation)}`: {text}; {_ADVICE}")


#: What becomes content by itself, where the annotation tells of it.
_CONTENT = frozenset({"Image", "Audio", "File"})
_SUGGESTED = "return a dataclass, TypedDict, msgspec.Struct, pydantic model, dict, list, number or str"
_ADVICE = "return what the annotation says, or change the annotation"


def unwritable(place: Place, error: Unwritable) -> DefinitionError:
    """The author's error for a value that can't become JSON."""
    if str(error) in _CONTENT:
        return place.mistake(
            f"returned {error} where nothing says so: annotate `-> {error}`, or `-> list[str | {error}]` for several"
        )
    return place.mistake(f"returned {error}, which can't become JSON; {_SUGGESTED}, or convert the value to one")
