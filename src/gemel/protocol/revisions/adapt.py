"""Adapt a value of the newest shape to the revision of the peer.

`schema.revisions` lists which types and members each revision knows. A member that changes for an older peer, rather than
stays or goes, has a rule below; content blocks that the peer doesn't know are replaced by a text. All become one
plan per type and revision, made when it is first needed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias, cast, get_args

from msgspec import NODEFAULT, UNSET, Raw, Struct, structs

from gemel.errors import GemelError
from gemel.protocol.revisions.wrapped_results import ToolValueResult, wrap_schema
from gemel.schema.base import Model
from gemel.schema.content import Content, TextContent, stand_in
from gemel.schema.lifecycle import Elicitation
from gemel.schema.revisions import (
    ALWAYS,
    FORM_WORDS,
    MEMBERS,
    META_KEYS,
    REVISIONS,
    SCHEMA_WORDS,
    TYPES,
    knows,
    within,
)
from gemel.schema.sampling import SamplingMessage
from gemel.schema.tools import CallToolResult, is_object_schema

_Change: TypeAlias = Callable[[Any], Any]

#: Types that negotiate are adapted to the revision that they name, not to the one in force.
_NAMES_ITS_REVISION = frozenset({"InitializeParams", "InitializeResult"})


class TooNew(GemelError):
    """The peer's revision can't express this value; the message names what is in the way, and what to do instead."""


def shape(value: object, revision: str) -> Any:
    """The value as a peer of this revision knows it, ready for encoding. The given one is never changed: it is shared.

    A struct of ours becomes a struct of ours, the same object where nothing changes; anything else passes untouched.
    Raises TooNew for what the revision can't express.
    """
    kind: Any = type(value)
    plan = plan_for(kind, revision)
    return value if plan is None else plan(value)


@cache
def plan_for(kind: type, revision: str) -> _Change | None:
    """The function that adapts values of a type to a revision; None where they stay as they are.

    A user's subclass of one of our types is adapted like the type: its own members are left alone.
    """
    if not issubclass(kind, Model):
        return None
    ours = (base for base in kind.__mro__ if base is ToolValueResult or base.__module__.startswith("gemel.schema."))
    return _compiled(next(ours), revision)


@cache
def _compiled(kind: type[Model], revision: str) -> _Change | None:
    if kind.__name__ in _NAMES_ITS_REVISION:
        return lambda value: _negotiated(kind, value, revision)
    if kind is ToolValueResult and not knows(revision, "any structured content"):
        return lambda value: shape(_wrapped(value), revision)
    if not within(revision, TYPES.get(kind.__name__, ALWAYS)):
        return _replacing(kind, revision)
    return _by_members(kind, revision)


def _negotiated(kind: type[Model], value: Any, revision: str) -> Any:
    named = value.protocol_version
    adapt = _by_members(kind, named if named in REVISIONS else revision)
    return value if adapt is None else adapt(value)


def _replacing(kind: type[Model], revision: str) -> _Change:
    if issubclass(kind, Content):
        return lambda value: shape(stand_in(value, revision), revision)

    def refuse(value: object) -> Any:
        raise TooNew(f"Revision {revision} of the protocol has no {kind.__name__}: it can't be sent to this peer")

    return refuse


@cache
def _by_members(kind: type[Model], revision: str) -> _Change | None:
    changes = []
    for field in structs.fields(kind):
        if known_in(kind, field.name, revision):
            change = _change(kind, field, revision)
        else:
            assert field.default is not NODEFAULT, f"{kind.__name__}.{field.name} can't be left out"
            change = _constant(field.default)
        if change is not None:
            changes.append((field.name, field.default, change))
    return _by_change(tuple(changes)) if changes else None


def _constant(default: object) -> _Change:
    """A member that must be absent gets its default, which is never written."""
    return lambda value: default


def _by_change(changes: tuple[tuple[str, Any, _Change], ...]) -> _Change:
    """Change the members that are set, in a copy that is made only when one of them comes out different."""

    def adapt(value: object) -> Any:
        adapted = value
        for name, default, change in changes:
            old = getattr(value, name)
            if old is default:
                continue
            new = change(old)
            if new is not old:
                if adapted is value:
                    adapted = copy.copy(value)
                setattr(adapted, name, new)
        return adapted

    return adapt


def _names(kind: type) -> Iterator[str]:
    return (base.__name__ for base in kind.__mro__)


def known_in(kind: type, member: str, revision: str) -> bool:
    """Whether a revision that has the type knows this member of it (by its Python name)."""
    rows = (MEMBERS[name][member] for name in _names(kind) if member in MEMBERS.get(name, ()))
    return within(revision, next(rows, ALWAYS))


def _change(kind: type[Model], field: structs.FieldInfo, revision: str) -> _Change | None:
    """How a member changes: first by its own rule, then by the plans of the values in it."""
    make = next((RULES[name, field.name] for name in _names(kind) if (name, field.name) in RULES), None)
    rule = make(revision) if make is not None else None
    inner = _inside(revision) if _may_change(field.type, revision) else None
    if rule is None or inner is None:
        return rule or inner
    first, then = rule, inner
    return lambda value: then(first(value))


def _may_change(annotation: object, revision: str) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return _compiled(annotation, revision) is not None
    return any(_may_change(part, revision) for part in get_args(annotation))


def _inside(revision: str) -> _Change:
    """Adapt a struct, or each struct in a list or dict; the same object comes back where nothing changed."""

    def adapt(value: object) -> Any:
        if isinstance(value, list | tuple):
            return _each(value, enumerate(value), list, revision)
        if isinstance(value, dict):
            return _each(value, value.items(), dict, revision)
        return shape(value, revision)

    return adapt


def _each(value: Any, items: Iterable[tuple[Any, Any]], copied: Callable[[Any], Any], revision: str) -> Any:
    adapted = value
    for place, old in items:
        new = shape(old, revision)
        if new is not old:
            if adapted is value:
                adapted = copied(value)
            adapted[place] = new
    return adapted


# ---------------------------------------------------------------- rules: structured content and schemas

_BRACE = ord("{")


def _structured_content(revision: str) -> _Change | None:
    """Wrap what is not an object."""
    return (
        None
        if knows(revision, "any structured content")
        else lambda value: value if _is_object(value) else {"result": value}
    )


def _wrapped(result: ToolValueResult) -> CallToolResult[Any]:
    """The result of a tool whose output schema is wrapped as a plain result that fits it."""
    value = result.structured_content
    return CallToolResult(
        content=result.content,
        structured_content=value if value is UNSET else {"result": value},
        is_error=result.is_error,
        meta=result.meta,
        result_type=result.result_type,
    )


def _structured_object(revision: str) -> _Change | None:
    """Leave out what is not an object; the text block has it."""
    return None if knows(revision, "any structured content") else lambda value: value if _is_object(value) else UNSET


def _is_object(value: object) -> bool:
    """Whether the value is an object once it is JSON."""
    if isinstance(value, Raw):
        return memoryview(value)[0] == _BRACE or bytes(value).lstrip().startswith(b"{")
    if isinstance(value, Struct):
        return not value.__struct_config__.array_like
    return isinstance(value, Mapping) or hasattr(value, "__dataclass_fields__") or hasattr(value, "__attrs_attrs__")


def _output_schema(revision: str) -> _Change | None:
    """Wrap a schema of anything but objects; name the type of a schema that is a reference to one of objects."""
    if knows(revision, "any structured content"):
        return None
    older = _older(revision)

    def adapt(schema: Any) -> dict[str, Any]:
        if not is_object_schema(schema):
            return cast("dict[str, Any]", older(wrap_schema(schema)))
        return cast("dict[str, Any]", older(schema if "type" in schema else {"type": "object", **schema}))

    return adapt


def _input_schema(revision: str) -> _Change | None:
    """Composition keywords stay, although only the newest revision requires peers to understand them."""
    return None if knows(revision, "any structured content") else _older(revision)


def _older(revision: str) -> _Change:
    """Leave out newer keywords of the root; write `true` and `false` as a property's schema as objects."""
    drop_unknown = _known_words(revision)

    def adapt(schema: dict[str, Any]) -> dict[str, Any]:
        schema = drop_unknown(schema)
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return schema
        if not any(isinstance(field, bool) for field in properties.values()):
            return schema
        return {**schema, "properties": {name: _object(field) for name, field in properties.items()}}

    return adapt


def _object(schema: object) -> Any:
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema


def _known_words(revision: str) -> _Change:
    unknown = frozenset(word for word, window in SCHEMA_WORDS.items() if not within(revision, window))

    def adapt(schema: dict[str, Any]) -> dict[str, Any]:
        if unknown.isdisjoint(schema):
            return schema
        return {word: value for word, value in schema.items() if word not in unknown}

    return adapt


# ---------------------------------------------------------------- `_meta`


def _meta(revision: str) -> _Change | None:
    """Leave out reserved keys of newer revisions."""
    unknown = frozenset(key for key, window in META_KEYS.items() if not within(revision, window))

    def adapt(meta: dict[str, Any]) -> dict[str, Any] | None:
        if unknown.isdisjoint(meta):
            return meta
        return {key: value for key, value in meta.items() if key not in unknown} or None

    return adapt if unknown else None


# ---------------------------------------------------------------- sampling


def _messages(revision: str) -> _Change | None:
    """Split a message of several blocks into one message per block, of the same role."""
    if knows(revision, "several blocks"):
        return None

    def adapt(messages: list[SamplingMessage]) -> list[SamplingMessage]:
        if not any(isinstance(message.content, list) for message in messages):
            return messages
        return [single for message in messages for single in _singles(message)]

    return adapt


def _singles(message: SamplingMessage) -> list[SamplingMessage]:
    if not isinstance(message.content, list):
        return [message]
    return [structs.replace(message, content=block) for block in message.content]


def _answer(revision: str) -> _Change | None:
    """Join text blocks; several other blocks can't be sent."""
    if knows(revision, "several blocks"):
        return None

    def adapt(content: object) -> Any:
        if not isinstance(content, list):
            return content
        if len(content) == 1:
            return content[0]
        if not all(isinstance(block, TextContent) for block in content):
            kinds = ", ".join(type(block).__name__ for block in content)
            raise TooNew(f"Revision {revision} of the protocol takes one block as a model's answer, not {kinds}")
        return TextContent(text="\n".join(block.text for block in content))

    return adapt


# ---------------------------------------------------------------- elicitation


def _elicitation(revision: str) -> _Change | None:
    """Older revisions know forms only: a client with URL elicitation alone declares nothing."""
    if within(revision, MEMBERS["Elicitation"]["url"]):
        return None

    def adapt(declared: Elicitation) -> Elicitation | None:
        return None if declared.url is not None and declared.form is None else declared

    return adapt


def _requested_schema(revision: str) -> _Change | None:
    """Leave out keywords that the revision doesn't know. What they limit is checked when the answer arrives."""
    drop_unknown = _known_words(revision)

    def adapt(form: dict[str, Any]) -> dict[str, Any]:
        schema: dict[str, Any] = drop_unknown(form)
        fields = form.get("properties")
        if not isinstance(fields, dict):
            return schema
        return {**schema, "properties": {name: _field(name, field, revision) for name, field in fields.items()}}

    return adapt


def _field(name: str, field: Any, revision: str) -> Any:
    kind = field.get("type") if isinstance(field, Mapping) else None
    words = FORM_WORDS.get(kind) if isinstance(kind, str) else None
    if words is None:
        return field
    if not within(revision, words["type"]):
        raise TooNew(
            f"Form field {name!r}: revision {revision} of the protocol has no choice of several: ask for one, or text"
        )
    if not within(revision, words.get("oneOf", words["type"])):
        field = _named_choices(field)
    return {word: value for word, value in field.items() if word in words and within(revision, words[word])}


def _named_choices(field: Mapping[str, Any]) -> Mapping[str, Any]:
    """Titled choices as older revisions write them: `enum` with `enumNames`."""
    options = field.get("oneOf")
    if not isinstance(options, list):
        return field
    values = [option["const"] for option in options]
    return {**field, "enum": values, "enumNames": [option.get("title", option["const"]) for option in options]}


#: By the name of struct and member. A rule is made once per revision: a function from the member's value to the value that
#: the revision knows, or None where there is nothing to do. It never changes what it is given.
RULES: Mapping[tuple[str, str], Callable[[str], _Change | None]] = {
    ("Result", "meta"): _meta,
    ("NotificationParams", "meta"): _meta,
    ("Tool", "input_schema"): _input_schema,
    ("Tool", "output_schema"): _output_schema,
    ("CallToolResult", "structured_content"): _structured_content,
    ("ToolResultContent", "structured_content"): _structured_object,
    ("CreateMessageParams", "messages"): _messages,
    ("CreateMessageResult", "content"): _answer,
    ("ClientCapabilities", "elicitation"): _elicitation,
    ("ElicitFormParams", "requested_schema"): _requested_schema,
}
