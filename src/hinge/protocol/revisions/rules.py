"""The members that change for an older peer, rather than stay or go: one rule each, by the name of struct and member.

A rule is made once per revision: a function from the member's value to the value that the revision knows, or None where
there is nothing to do. No rule changes what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import UNSET, Raw, Struct, structs

from hinge.errors import HingeError
from hinge.schema.content import TextContent
from hinge.schema.lifecycle import Elicitation
from hinge.schema.revisions import FORM_WORDS, MEMBERS, META_KEYS, SCHEMA_WORDS, knows, within
from hinge.schema.sampling import SamplingMessage

Change: TypeAlias = Callable[[Any], Any]
Rule: TypeAlias = Callable[[str], Change | None]


class TooNew(HingeError):
    """The peer's revision has no words for this value; the message names what is in the way, and what to do instead."""


# ---------------------------------------------------------------- structured content and schemas


_BRACE = ord("{")


def _structured_content(revision: str) -> Change | None:
    """An object, or nothing: the text block says the rest."""
    if knows(revision, "any structured content"):
        return None

    def dress(value: Any) -> Any:
        kind = type(value)
        if kind is dict or (kind is Raw and memoryview(value)[0] == _BRACE):
            return value
        return value if _is_object(value) else UNSET

    return dress


def _is_object(value: Any) -> bool:
    """Whether the value is an object once it is JSON."""
    if isinstance(value, Raw):
        return bytes(value).lstrip().startswith(b"{")
    if isinstance(value, Struct):
        return not value.__struct_config__.array_like
    return isinstance(value, Mapping) or hasattr(value, "__dataclass_fields__") or hasattr(value, "__attrs_attrs__")


def _output_schema(revision: str) -> Change | None:
    """A schema of objects, or none."""
    if knows(revision, "any structured content"):
        return None
    older = _older(revision)
    return lambda schema: older(schema) if isinstance(schema, dict) and schema.get("type") == "object" else None


def _input_schema(revision: str) -> Change | None:
    """Composition keywords stay, though only the newest revision promises that they are understood."""
    return None if knows(revision, "any structured content") else _older(revision)


def _older(revision: str) -> Change:
    """Without the root's newer words; `true` and `false` as a property's schema are written as objects."""
    rooted = _rooted(revision)

    def dress(schema: dict[str, Any]) -> dict[str, Any]:
        schema = rooted(schema)
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return schema
        for found in properties.values():
            if found is True or found is False:
                return {**schema, "properties": {name: _object(field) for name, field in properties.items()}}
        return schema

    return dress


def _object(schema: Any) -> Any:
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema


def _rooted(revision: str) -> Change:
    unknown = frozenset(word for word, window in SCHEMA_WORDS.items() if not within(revision, window))

    def dress(schema: dict[str, Any]) -> dict[str, Any]:
        if unknown.isdisjoint(schema):
            return schema
        return {word: found for word, found in schema.items() if word not in unknown}

    return dress


# ---------------------------------------------------------------- `_meta`


def _meta(revision: str) -> Change | None:
    """Reserved keys of a newer revision say things that the peer has no place for."""
    unknown = frozenset(key for key, window in META_KEYS.items() if not within(revision, window))

    def dress(meta: dict[str, Any]) -> dict[str, Any] | None:
        if unknown.isdisjoint(meta):
            return meta
        return {key: value for key, value in meta.items() if key not in unknown} or None

    return dress if unknown else None


# ---------------------------------------------------------------- sampling


def _messages(revision: str) -> Change | None:
    """One block per message: a message of several becomes several of the same role."""
    if knows(revision, "several blocks"):
        return None

    def dress(messages: list[SamplingMessage]) -> list[SamplingMessage]:
        if not any(isinstance(message.content, list) for message in messages):
            return messages
        return [single for message in messages for single in _singles(message)]

    return dress


def _singles(message: SamplingMessage) -> list[SamplingMessage]:
    if not isinstance(message.content, list):
        return [message]
    return [structs.replace(message, content=block) for block in message.content]


def _answer(revision: str) -> Change | None:
    """One block: texts are joined, other blocks can't be."""
    if knows(revision, "several blocks"):
        return None

    def dress(content: Any) -> Any:
        if not isinstance(content, list):
            return content
        if len(content) == 1:
            return content[0]
        if not all(isinstance(block, TextContent) for block in content):
            kinds = ", ".join(type(block).__name__ for block in content)
            raise TooNew(f"Revision {revision} of the protocol takes one block as a model's answer, not {kinds}")
        return TextContent(text="\n".join(block.text for block in content))

    return dress


# ---------------------------------------------------------------- elicitation


def _elicitation(revision: str) -> Change | None:
    """Before there was a choice of ways, declaring the capability meant forms: who has only URLs declares nothing."""
    if within(revision, MEMBERS["Elicitation"]["url"]):
        return None

    def dress(found: Elicitation) -> Elicitation | None:
        return None if found.url is not None and found.form is None else found

    return dress


def _requested_schema(revision: str) -> Change | None:
    """A form in the words of the revision. What a word would have limited is checked when the answer comes."""

    rooted = _rooted(revision)

    def dress(form: dict[str, Any]) -> dict[str, Any]:
        known: dict[str, Any] = rooted(form)
        fields = form.get("properties")
        if not isinstance(fields, dict):
            return known
        return {**known, "properties": {name: _field(name, field, revision) for name, field in fields.items()}}

    return dress


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
    return {word: found for word, found in field.items() if word in words and within(revision, words[word])}


def _named_choices(field: Mapping[str, Any]) -> Mapping[str, Any]:
    """Titled choices in the older way: the values, and beside them their names."""
    options = field.get("oneOf")
    if not isinstance(options, list):
        return field
    values = [option["const"] for option in options]
    return {**field, "enum": values, "enumNames": [option.get("title", option["const"]) for option in options]}


RULES: Mapping[tuple[str, str], Rule] = {
    ("Result", "meta"): _meta,
    ("NotificationParams", "meta"): _meta,
    ("Tool", "input_schema"): _input_schema,
    ("Tool", "output_schema"): _output_schema,
    ("CallToolResult", "structured_content"): _structured_content,
    ("ToolResultContent", "structured_content"): _structured_content,
    ("CreateMessageParams", "messages"): _messages,
    ("CreateMessageResult", "content"): _answer,
    ("ClientCapabilities", "elicitation"): _elicitation,
    ("ElicitFormParams", "requested_schema"): _requested_schema,
}
