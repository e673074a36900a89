"""Instances of the wire's types, made from their annotations: with every member, with as few as can be, or drawn."""

import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar, Union, cast, get_args, get_origin

import msgspec
from hypothesis import strategies as st
from msgspec import NODEFAULT, Raw, UnsetType, structs

from gemel import ResourceContents
from gemel.schema import (
    base,
    completion,
    content,
    elicitation,
    input_required,
    lifecycle,
    notifications,
    prompts,
    resources,
    roots,
    sampling,
    subscriptions,
    tools,
)
from tests.support import Model

T = TypeVar("T")

_MODULES = (
    *(base, completion, content, elicitation, input_required, lifecycle, notifications),
    *(prompts, resources, roots, sampling, subscriptions, tools),
)

#: Every type of the wire, by name; what only others build upon has no public name.
MODELS: Mapping[str, type[Model]] = {
    name: found
    for module in _MODULES
    for name, found in vars(module).items()
    if isinstance(found, type) and issubclass(found, Model) and found is not Model and not name.startswith("_")
}

FORM: dict[str, Any] = {
    "type": "object",
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "properties": {
        "name": {"type": "string", "title": "Name", "minLength": 1, "maxLength": 9, "default": "Ada"},
        "mail": {"type": "string", "format": "email"},
        "age": {"type": "integer", "description": "Years", "minimum": 0, "maximum": 150, "default": 7},
        "size": {"type": "number", "default": 0.5},
        "sure": {"type": "boolean", "default": True},
        "tone": {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"], "default": "a"},
        "colour": {
            "type": "string",
            "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}],
            "default": "r",
        },
    },
    "required": ["name"],
}
#: What the older of the revisions that have forms can't ask for.
CHOICES: dict[str, Any] = {
    "some": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1, "default": ["a"]},
    "titled": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}, "maxItems": 1},
}
_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": True, "c": False},
    "required": ["a"],
    "anyOf": [{"required": ["b"]}],
}
#: Values for members whose annotation says less than the protocol does.
_KNOWN: Mapping[str, list[Any]] = {
    "uri": ["file:///a/b"],
    "ElicitUrlParams.url": ["https://example.org/x?y=1"],
    "src": ["data:image/png;base64,aGk="],
    "website_url": ["https://example.org"],
    "ImageContent.data": ["aGk="],
    "AudioContent.data": ["aGk="],
    "blob": ["AAECAw=="],
    "mime_type": ["text/plain"],
    "protocol_version": ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"],
    "priority": [0.5, 0, 1],
    "cost_priority": [0.25],
    "speed_priority": [0],
    "intelligence_priority": [1],
    "input_schema": [_SCHEMA, {"type": "object"}],
    "output_schema": [_SCHEMA, {"type": "array"}, {"anyOf": [{"type": "object"}]}, {}],
    "structured_content": [{"a": 1}, [1], 1, "one", False, None, Raw(b' {"a":1}'), Raw(b"[1]"), Raw(b"null")],
    "requested_schema": [FORM],
    "input_responses": [Raw(b'{"k":{"action":"decline"}}')],
    "execution": [{"taskSupport": "optional"}],
    "ttl_ms": [60_000, 0],
    "result_type": ["complete"],
    "InputRequiredResult.result_type": ["input_required"],
    "experimental": [{"x": {"y": 1}}],
    "extensions": [{"com.example/x": {"y": 1}}],
    "input_requests": [{"k": input_required.InputRequest(method="roots/list")}],
    "elicitation_id": ["e-1"],
    "ElicitResult.content": [{"a": "x"}, {"a": 0.5, "b": True, "c": 1}, {}],
    "tasks": [{"list": {}}],
}
_METAS: list[Any] = [
    {base.SERVER_INFO: {"name": "s", "version": "1"}, base.SUBSCRIPTION_ID: 1, "com.example/x": 1},
    {base.SUBSCRIPTION_ID: "s"},
]


class Full:
    """Everything is set; of several values the first is taken, of several types in a list all."""

    def keeps(self) -> bool:
        return True

    def one(self, options: list[T]) -> T:
        return options[0]

    def several(self, options: list[T]) -> list[T]:
        return options


class Least:
    """Nothing is set that may be left out; a list that must be there has one item."""

    def keeps(self) -> bool:
        return False

    def one(self, options: list[T]) -> T:
        return options[0]

    def several(self, options: list[T]) -> list[T]:
        return options[:1]


class Drawn:
    """Hypothesis decides."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self._draw = draw

    def keeps(self) -> bool:
        return cast(bool, self._draw(st.booleans()))

    def one(self, options: list[T]) -> T:
        return cast(T, self._draw(st.sampled_from(options)))

    def several(self, options: list[T]) -> list[T]:
        return cast("list[T]", self._draw(st.lists(st.sampled_from(options), max_size=3)))


Choice: TypeAlias = Full | Least | Drawn


def full(kind: type[T]) -> T:
    """An instance with every member set."""
    return _build(kind, Full())


def least(kind: type[T]) -> T:
    """An instance with what it can't do without."""
    return _build(kind, Least())


@st.composite
def drawn(draw: Callable[[Any], Any], kind: type[T]) -> T:
    """Any instance."""
    return _build(kind, Drawn(draw))


def _build(kind: type[T], choice: Choice) -> T:
    members: dict[str, Any] = {}
    for field in structs.fields(cast(Any, kind)):
        required = field.default is NODEFAULT and field.default_factory is NODEFAULT
        if required or choice.keeps():
            members[field.name] = _member(kind, field, choice)
    if kind is ResourceContents:
        chosen, other = choice.one([("text", "blob"), ("blob", "text")])
        members.pop(other, None)
        members.setdefault(chosen, "aGk=")
    return kind(**members)


def _member(kind: type, field: structs.FieldInfo, choice: Choice) -> Any:
    if field.name == "meta" and issubclass(kind, base.Result | base.NotificationParams):
        return choice.one(_METAS)
    known = _KNOWN.get(f"{kind.__name__}.{field.name}", _KNOWN.get(field.name))
    return _value(field.type, choice) if known is None else choice.one(known)


def _value(annotation: Any, choice: Choice) -> Any:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        real = [part for part in parts if part not in (types.NoneType, UnsetType)]
        lists = [part for part in real if get_origin(part) is list]
        return _value(choice.one([*lists, *(part for part in real if part not in lists)]), choice)
    if origin is Literal:
        return choice.one(list(parts))
    if origin is list:
        return _list(parts[0], choice)
    if origin is dict:
        return {"k": _value(parts[1], choice)}
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return _build(annotation, choice)
    return _PLAIN[annotation](choice)


def _list(inner: Any, choice: Choice) -> list[Any]:
    options = list(get_args(inner)) if get_origin(inner) in (Union, types.UnionType, Literal) else [inner]
    if get_origin(inner) is Literal:
        return choice.several(options)
    return [_value(option, choice) for option in choice.several(options)]


_PLAIN: Mapping[Any, Callable[[Choice], Any]] = {
    str: lambda choice: choice.one(["text", "", "ü\n"]),
    int: lambda choice: choice.one([7, 0]),
    float: lambda choice: choice.one([0.5, 1, 0]),
    bool: lambda choice: choice.one([True, False]),
    typing.Any: lambda choice: choice.one([1, "x", {"y": [None]}, None]),
    Raw: lambda choice: Raw(b"{}"),
}
