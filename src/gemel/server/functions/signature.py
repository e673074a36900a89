"""A Python function as MCP shows it: name, description, JSON Schemas of arguments and result, read when it is registered.

Every mistake of the function's author is a DefinitionError in one line, with file, line and what to change.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET

from gemel.errors import DefinitionError
from gemel.options import similar
from gemel.server.functions.annotations import (
    Place,
    Predicate,
    bare,
    described_by,
    holds,
    is_annotated,
    is_field_info,
    metadata_of,
    place_of,
    resolve,
    shown,
)
from gemel.server.functions.arguments import Arguments, Parameter
from gemel.server.functions.docstring import parse_docstring
from gemel.server.functions.json_schema import Schema, SchemaWriter, UnsupportedType, object_schema
from gemel.server.functions.results import Encoded, Output, inspect_output, is_content
from gemel.server.functions.validation_errors import error_lines, explain
from gemel.server.functions.values import NotSerializable, ValueRejected, ValueType, value_type

logger = logging.getLogger("gemel")

EMPTY = inspect.Parameter.empty

#: What is wrong with a kind of parameter that JSON arguments can't fill.
_KINDS = {
    inspect.Parameter.VAR_POSITIONAL: "`*{name}` has no schema; name each parameter, or take a `{name}: list[str]`",
    inspect.Parameter.VAR_KEYWORD: "`**{name}` has no schema; name each parameter, or take a `{name}: dict[str, Any]`",
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only, but arguments are passed by name; remove the `/`",
}


_UNRESOLVED = "import the name at runtime (not only under TYPE_CHECKING) or define it at module level"


class Signature:
    """A function's description, schemas, argument reader and result writer. Holds no state of a call."""

    __slots__ = (
        "arguments",
        "description",
        "encode",
        "injected",
        "input_schema",
        "is_async",
        "name",
        "output_schema",
        "parameters",
        "yields",
    )

    def __init__(
        self,
        name: str,
        description: str | None,
        parameters: Sequence[Parameter],
        input_schema: Schema,
        output: Output,
        *,
        injected: Mapping[str, Any],
        is_async: bool,
        yields: bool = False,
    ) -> None:
        self.name = name
        #: The docstring without its sections on arguments, results and errors; None if there is none.
        self.description = description
        #: The parameters that a caller fills, in order.
        self.parameters = tuple(parameters)
        #: Reads the arguments of a call.
        self.arguments = Arguments(self.parameters, input_schema)
        #: JSON Schema of the arguments: an object without further members.
        self.input_schema = input_schema
        #: JSON Schema of the result, whose root may be any type; None if the annotation says nothing.
        self.output_schema = output.schema
        #: Whether calling it gives an awaitable.
        self.is_async = is_async
        #: Whether it is a generator function, sync or async: calling it runs nothing yet.
        self.yields = yields
        #: The parameters that the server fills: name to annotation.
        self.injected = dict(injected)
        #: A returned value as structured content and text. Raises DefinitionError if it doesn't fit the annotation or
        #: can't become JSON; the text is for the log.
        self.encode: Callable[[Any], Encoded] = output.encode


def inspect_function(
    function: Callable[..., Any],
    *,
    injected: Predicate = lambda annotation: False,
    content: Predicate = is_content,
    check: Callable[[inspect.Parameter, Place], object] | None = None,
    name: str | None = None,
    generators: bool = False,
) -> Signature:
    """Read a function's signature. Takes functions, bound methods, partials and objects with `__call__`.

    `injected(annotation)` selects the parameters that the server fills, which no schema shows; `content(annotation)`
    selects return types that are sent as they are, without an output schema. `check(parameter, place)` may refuse a
    parameter. `name` replaces the function's own.

    Raises DefinitionError: one line with function, file, line, parameter and what to change.
    """
    function = _callable(function, name)
    code = _code_of(function)
    yields = _yields(code)
    called = name or _name_of(function)
    place = place_of(code, called)
    if yields and not generators:
        raise place.mistake("is a generator, but a call has one result; return a list, report progress by the context")
    signature = _signature(function, place)
    if check is not None:
        for item in signature.parameters.values():
            check(item, place)
    fixed = _fixed_keywords(function)
    parameters = {name: item for name, item in signature.parameters.items() if name not in fixed}
    _check_kinds(parameters.values(), place)
    annotations = {name: _resolve(item.annotation, code, place, name) for name, item in parameters.items()}
    hidden = {key: value for key, value in annotations.items() if holds(value, injected)}
    docs = parse_docstring(_doc_of(function))
    _warn_of_slips(docs.arguments, signature.parameters, place)
    visible = {name: item for name, item in parameters.items() if name not in hidden}
    read, definitions = _read_parameters(visible, annotations, docs.arguments, place)
    properties = {item.wire_name: item.schema for item in read}
    required = [item.wire_name for item in read if item.required]
    returned = UNSET if signature.return_annotation is EMPTY else _resolve(signature.return_annotation, code, place)
    return Signature(
        called,
        docs.description,
        read,
        object_schema(properties, required, definitions),
        inspect_output(UNSET if yields else returned, place, content, docs.returns),
        injected=hidden,
        is_async=_is_async(function),
        yields=yields,
    )


def _warn_of_slips(described: Mapping[str, str], parameters: Collection[str], place: Place) -> None:
    """Warn of a docstring that describes an argument by a name that is almost one of those without a description."""
    for name in described:
        if name not in parameters and (meant := similar(name, [one for one in parameters if one not in described])):
            logger.warning("%s", place.mistake(f"the docstring describes `{name}`: did you mean `{meant}`?"))


def _callable(function: Any, name: str | None) -> Callable[..., Any]:
    """What will be called. Raises DefinitionError for what can't be a handler."""
    if isinstance(function, staticmethod):
        function = function.__func__
    if isinstance(function, classmethod):
        raise DefinitionError(
            f"{_name_of(function.__func__)} is a classmethod that isn't bound to its class yet; register it after the "
            f"class, as `Class.{_name_of(function.__func__)}`"
        )
    if isinstance(function, type):
        raise DefinitionError(
            f"{name or function.__name__} is a class; register a function, a bound method, or an object with `__call__`"
        )
    if not callable(function):
        raise DefinitionError(f"{shown(function)} is not callable; register a function")
    unwrapped: Callable[..., Any] = function
    return unwrapped


def _yields(code: Any) -> bool:
    """Whether it is a generator function, sync or async."""
    flags: int = getattr(getattr(code, "__code__", None), "co_flags", 0)
    return bool(flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR))


def _inner(function: Any) -> Any:
    """What runs in the end: the function behind partials, or the `__call__` of an object."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type):
        return function
    return type(function).__call__


def _code_of(function: Any) -> Any:
    """The Python function whose code, names and place count: behind partials, methods and decorators."""
    inner = inspect.unwrap(_inner(function))
    return getattr(inner, "__func__", inner)


def _name_of(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", None) or type(function).__name__


def _doc_of(function: Any) -> str | None:
    """The docstring; of an object its `__call__`'s, or its class's."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function):
        return function.__doc__ or inspect.getdoc(function)
    return type(function).__call__.__doc__ or inspect.getdoc(type(function))


def _is_async(function: Any) -> bool:
    inner = _inner(function)
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(function)


def _fixed_keywords(function: Any) -> set[str]:
    """The keywords that partials fill: a caller must neither see nor set them."""
    fixed: set[str] = set()
    while isinstance(function, functools.partial):
        fixed |= function.keywords.keys()
        function = function.func
    return fixed


def _signature(function: Callable[..., Any], place: Place) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except NameError as error:  # Python 3.14 evaluates annotations here
        raise place.mistake(f"an annotation can't be resolved: {error}; {_UNRESOLVED}") from None
    except (ValueError, TypeError) as error:
        raise place.mistake(f"has no signature that Python can read ({error}); wrap it in a function") from None


def _resolve(annotation: Any, code: Any, place: Place, parameter: str | None = None) -> Any:
    try:
        return resolve(annotation, code)
    except Exception as error:
        what = f"annotation `{shown(annotation)}`" if parameter else f"the return annotation `{shown(annotation)}`"
        raise place.mistake(f"{what} can't be resolved: {error}; {_UNRESOLVED}", parameter) from None


# ---------------------------------------------------------------- parameters


def _check_kinds(parameters: Iterable[inspect.Parameter], place: Place) -> None:
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


def _read_parameters(
    parameters: Mapping[str, inspect.Parameter], annotations: Mapping[str, Any], docs: Mapping[str, str], place: Place
) -> tuple[list[Parameter], dict[str, Schema]]:
    """The parameters in order, and the definitions that their schemas refer to. Raises DefinitionError."""
    writer = SchemaWriter(reading=True)
    read = [
        _read_parameter(name, parameter.default, annotations[name], docs.get(name), writer, place)
        for name, parameter in parameters.items()
    ]
    taken: set[str] = set()
    for parameter in read:
        if parameter.wire_name in taken:
            raise place.mistake(f"the name `{parameter.wire_name}` is taken by another parameter", parameter.name)
        taken.add(parameter.wire_name)
    return read, writer.definitions


def _read_parameter(
    name: str, default: Any, annotation: Any, doc: str | None, writer: SchemaWriter, place: Place
) -> Parameter:
    field = None
    if is_field_info(default):
        field, annotation, default = default, Annotated[annotation, default], EMPTY
    elif is_annotated(annotation):
        field = next(filter(is_field_info, metadata_of(annotation)), None)
    if field is not None and default is EMPTY and not field.is_required():
        default = _Factory(field.default_factory) if field.default_factory is not None else field.default
    try:
        kind = value_type(annotation, writer)
    except (TypeError, NameError) as reason:
        raise place.mistake(_unusable(annotation, reason), name) from None
    schema = dict(kind.schema)
    if text := described_by(annotation) or schema.get("description") or doc:
        schema["description"] = text
    if default is not EMPTY and not isinstance(default, _Factory) and default is not msgspec.UNSET:
        schema["default"] = _default(default, kind, annotation, writer, place, name)
    wire_name = getattr(field, "alias", None) or name
    return Parameter(name, wire_name, kind, schema, _maker(default))


class _Factory(NamedTuple):
    """Makes a new default for each call."""

    factory: Callable[[], Any]


def _maker(default: Any) -> Callable[[], Any] | None:
    if default is EMPTY:
        return None
    return default.factory if isinstance(default, _Factory) else lambda: default


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
    except NotSerializable as error:
        raise place.mistake(
            f"its default, of type {error}, can't be shown in the schema; use None or a JSON value", name
        ) from None
    except ValueRejected as error:
        if default is None:
            plain = shown(bare(annotation))
            what = f"its default None doesn't fit `{plain}`; write `{name}: {plain} | None = None`"
            raise place.mistake(what, name) from None
        violations = explain(
            {**kind.schema, "$defs": writer.definitions}, error.value, error.rejections, exact=kind.exact
        )
        raise place.mistake(
            f"its default doesn't fit its annotation: {'; '.join(error_lines(violations))}", name
        ) from None
