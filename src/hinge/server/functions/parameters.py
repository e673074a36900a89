"""The parameters of a function: which of them a caller fills, with what, and which mistakes their author made.

Knows Python's parameter rules; how values are read and written is values.py's business.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from hinge.server.functions.annotations import Place, bare, described_by, is_field_info, metadata_of, shown
from hinge.server.functions.json_schema import Schema, SchemaWriter, UnsupportedType
from hinge.server.functions.validation_errors import explain, lines
from hinge.server.functions.values import Refused, Unwritable, ValueType, value_type

EMPTY = inspect.Parameter.empty

#: What to write in place of a kind of parameter that JSON arguments can't fill.
_KINDS = {
    inspect.Parameter.VAR_POSITIONAL: "`*{name}` has no schema; name each parameter, or take a `{name}: list[str]`",
    inspect.Parameter.VAR_KEYWORD: "`**{name}` has no schema; name each parameter, or take a `{name}: dict[str, Any]`",
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only, but arguments are passed by name; remove the `/`",
}


class Parameter(NamedTuple):
    """A parameter that the caller fills: `wire_name` is its name in JSON, `default` makes its default, if any."""

    name: str
    wire_name: str
    type: ValueType
    schema: Schema
    default: Callable[[], Any] | None

    @property
    def required(self) -> bool:
        """Whether a call without it is refused."""
        return self.default is None

    @property
    def description(self) -> str | None:
        """What its author says of it."""
        return self.schema.get("description")


def check_kinds(parameters: Iterable[inspect.Parameter], place: Place) -> None:
    """Raises DefinitionError for parameters that can't be filled by name from JSON."""
    for parameter in parameters:
        if parameter.kind in _KINDS:
            raise place.mistake(_KINDS[parameter.kind].format(name=parameter.name), parameter.name)
        if parameter.annotation is EMPTY:
            raise place.mistake(_unannotated(parameter), parameter.name)


def _unannotated(parameter: inspect.Parameter) -> str:
    name, default = parameter.name, parameter.default
    if name in ("self", "cls"):
        return "belongs to a method; register the bound method, `instance.method`, not the function in its class"
    if name in ("ctx", "context"):
        return f"has no annotation; write `{name}: Context`"
    if default is EMPTY or default is None or is_field_info(default):
        return f"has no annotation, so there is no schema for it; write e.g. `{name}: str`"
    kind = type(default).__name__
    return f"has no annotation, so there is no schema for it; write e.g. `{name}: {kind} = {default!r}`"


def read_parameters(
    parameters: Iterable[inspect.Parameter], annotations: Mapping[str, Any], docs: Mapping[str, str], place: Place
) -> tuple[list[Parameter], dict[str, Schema]]:
    """The parameters in order, and the definitions that their schemas refer to. Raises DefinitionError."""
    writer = SchemaWriter(reading=True)
    found = [
        _read(parameter, annotations[parameter.name], docs.get(parameter.name), writer, place)
        for parameter in parameters
    ]
    taken: set[str] = set()
    for parameter in found:
        if parameter.wire_name in taken:
            raise place.mistake(f"the name `{parameter.wire_name}` is taken by another parameter", parameter.name)
        taken.add(parameter.wire_name)
    return found, writer.definitions


def _read(
    parameter: inspect.Parameter, annotation: Any, doc: str | None, writer: SchemaWriter, place: Place
) -> Parameter:
    default = parameter.default
    field = default if is_field_info(default) else next(filter(is_field_info, metadata_of(annotation)), None)
    if is_field_info(default):
        annotation, default = _with_metadata(annotation, field), EMPTY
    if field is not None and default is EMPTY and not field.is_required():
        default = _Made(field.default_factory) if field.default_factory is not None else field.default
    try:
        kind = value_type(annotation, writer)
    except (TypeError, NameError) as reason:
        raise place.mistake(_unusable(annotation, reason), parameter.name) from None
    schema = dict(kind.schema)
    if text := described_by(annotation) or schema.get("description") or doc:
        schema["description"] = text
    if default is not EMPTY and not isinstance(default, _Made) and default is not msgspec.UNSET:
        schema["default"] = _default(default, kind, annotation, writer, place, parameter.name)
    wire_name = getattr(field, "alias", None) or parameter.name
    return Parameter(parameter.name, wire_name, kind, schema, _maker(default))


def _with_metadata(annotation: Any, item: Any) -> Any:
    from typing import Annotated

    return Annotated[annotation, item]


class _Made(NamedTuple):
    """A default that is made anew for each call."""

    factory: Callable[[], Any]


def _maker(default: Any) -> Callable[[], Any] | None:
    if default is EMPTY:
        return None
    return default.factory if isinstance(default, _Made) else lambda: default


def _unusable(annotation: Any, reason: Exception) -> str:
    if not isinstance(reason, UnsupportedType):
        return f"annotation `{shown(bare(annotation))}` can't be read from JSON: {reason}"
    return (
        f"annotation `{shown(bare(annotation))}` can't be read from JSON: {reason}; use str, int, float, bool, list, "
        "dict, Literal, Enum, date, a dataclass, TypedDict, msgspec.Struct or pydantic model"
    )


def _default(default: Any, kind: ValueType, annotation: Any, writer: SchemaWriter, place: Place, name: str) -> Any:
    """The default as JSON, checked like a caller's value."""
    try:
        return msgspec.json.decode(kind.write_default(default))
    except Unwritable as error:
        raise place.mistake(
            f"its default, of type {error}, can't be shown in the schema; use None or a JSON value", name
        ) from None
    except Refused as error:
        if default is None:
            plain = shown(bare(annotation))
            what = f"its default None doesn't fit `{plain}`; write `{name}: {plain} | None = None`"
            raise place.mistake(what, name) from None
        found = explain({**kind.schema, "$defs": writer.definitions}, error.value, error.refusals, sure=kind.exact)
        raise place.mistake(f"its default doesn't fit its annotation: {'; '.join(lines(found))}", name) from None
