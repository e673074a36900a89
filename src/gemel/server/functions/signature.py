"""A Python function as MCP shows it: name, description, JSON Schemas of arguments and result, read when it is registered.

Every mistake of the function's author is a DefinitionError in one line, with file, line and what to change.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import logging
import re
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from types import FunctionType
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET

from gemel.errors import DefinitionError, shorten
from gemel.options import similar
from gemel.server.functions.annotations import (
    Place,
    Predicate,
    bare,
    behind_partials,
    described_by,
    is_annotated,
    is_field_info,
    metadata_of,
    name_of,
    no_type,
    place_of,
    resolve,
    shown,
    unresolved,
    unwrapped,
)
from gemel.server.functions.arguments import Arguments, Parameter
from gemel.server.functions.docstring import parse_docstring
from gemel.server.functions.json_schema import Schema, SchemaWriter, UnsupportedType, object_schema
from gemel.server.functions.results import Encoded, Output, inspect_output, is_content
from gemel.server.functions.validation_errors import error_lines, explain
from gemel.server.functions.values import ValueRejected, ValueType, value_type
from gemel.values.encoding import NotSerializable, is_finite

logger = logging.getLogger("gemel")

EMPTY = inspect.Parameter.empty
_VARIADIC = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_KINDS = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR

#: Whether msgspec takes it for a member of an object.
_NAMEABLE = re.compile(r'[^"\\\x00-\x1f]+').fullmatch


class Signature:
    """A function's description, schemas, argument reader and result writer. Holds no state of a call."""

    __slots__ = (
        "arguments",
        "description",
        "encode",
        "injected",
        "input_schema",
        "is_async",
        "lists_content",
        "name",
        "output_schema",
        "parameters",
        "place",
        "yields",
    )

    def __init__(
        self,
        place: Place,
        description: str | None,
        parameters: Sequence[Parameter],
        input_schema: Schema,
        output: Output,
        *,
        injected: Mapping[str, Any],
        is_async: bool,
        yields: bool = False,
    ) -> None:
        self.name = place.name
        #: Where the function is, for messages to its author.
        self.place = place
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
        #: The parameters that the server fills, and how.
        self.injected = dict(injected)
        #: A returned value as structured content and text. Raises DefinitionError if it doesn't fit the annotation or
        #: can't become JSON; the text is for the log.
        self.encode: Callable[[Any], Encoded] = output.encode
        #: Whether a returned list is sent as content blocks, whatever is in it.
        self.lists_content = output.lists


def inspect_function(
    function: Callable[..., Any],
    *,
    injected: Callable[[inspect.Parameter, Any, Place], Any] = lambda parameter, annotation, place: None,
    returned: Callable[[Any, Place], None] = lambda annotation, place: None,
    content: Predicate = is_content,
    name: str | None = None,
    generators: bool = False,
    structured_text: bool = False,
) -> Signature:
    """Read a function's signature. Takes functions, bound methods, partials and objects with `__call__`.

    `injected(parameter, annotation, place)` says how the server fills a parameter, which no schema shows then; None for one
    that the caller fills. `returned(annotation, place)` raises for a return annotation that the server does not read.
    `content(annotation)` selects return types that are sent as they are, without an output schema.
    `name` replaces the function's own. `structured_text` gives a function that returns text an output schema.

    Raises DefinitionError: one line with function, file, line, parameter and what to change.
    """
    function = _callable(function, name)
    place = place_of(function, name)
    code, kind = unwrapped(function), kind_of(function)
    yields = kind in ("generator", "async generator")
    if yields and not generators:
        raise place.mistake("is a generator, but a call has one result; return a list, report progress by the context")
    if makes_context_manager(function) and not generators:
        raise place.mistake("makes a context manager, but a call has one result; return what it yields")
    signature = read_signature(function, place)
    fixed = fixed_keywords(function)
    parameters = {name: item for name, item in signature.parameters.items() if name not in fixed}
    _check_kinds(parameters.values(), code, place)
    annotations = {name: _resolve(item.annotation, code, place, name) for name, item in parameters.items()}
    hidden = _injected(parameters, annotations, injected, place)
    visible = {name: item for name, item in parameters.items() if name not in hidden}
    docs = parse_docstring(_doc_of(function))
    _warn_of_slips(docs.arguments, signature.parameters, place)
    read, definitions = _read_parameters(visible, annotations, docs.arguments, place)
    properties = {item.wire_name: item.schema for item in read}
    required = [item.wire_name for item in read if item.required]
    result: Any = UNSET
    if signature.return_annotation is not EMPTY:
        result = _resolve(signature.return_annotation, code, place)
        returned(result, place)
    return Signature(
        place,
        docs.description,
        read,
        object_schema(properties, required, definitions),
        inspect_output(UNSET if yields else result, place, content, docs.returns, structured_text=structured_text),
        injected=hidden,
        is_async=kind == "awaitable",
        yields=yields,
    )


def _injected(
    parameters: Mapping[str, inspect.Parameter],
    annotations: Mapping[str, Any],
    injected: Callable[[inspect.Parameter, Any, Place], Any],
    place: Place,
) -> dict[str, Any]:
    """How the server fills the parameters that it does fill."""
    hidden: dict[str, Any] = {}
    for name, item in parameters.items():
        how = injected(item, annotations[name], place)
        if how is not None:
            hidden[name] = how
        elif item.annotation is EMPTY:
            raise place.mistake(_unannotated(item), name)
    return hidden


def _warn_of_slips(described: Mapping[str, str], parameters: Collection[str], place: Place) -> None:
    """Warn of a docstring that describes an argument by a name that is almost one of those without a description."""
    for name in described:
        if name not in parameters and (meant := similar(name, [one for one in parameters if one not in described])):
            logger.warning("%s", place.mistake(f"the docstring describes `{name}`: did you mean `{meant}`?"))


def _callable(function: object, name: str | None) -> Callable[..., Any]:
    """What will be called. Raises DefinitionError for what can't be a handler."""
    if isinstance(function, staticmethod):
        function = function.__func__
    if isinstance(function, classmethod):
        raise place_of(function.__func__, name).mistake(
            "is a classmethod that isn't bound to its class yet; register it after the class, as "
            f"`Class.{name_of(function.__func__)}`"
        )
    if isinstance(function, type):
        raise place_of(function, name).mistake(
            "is a class; register a function, a bound method, or an object with `__call__`"
        )
    if not callable(function):
        raise DefinitionError(f"{shown(function)} is not callable; register a function")
    checked: Callable[..., Any] = function
    return checked


def kind_of(function: object) -> str:
    """What calling it gives: "generator", "async generator", "awaitable" or "plain"."""
    if type(function) is FunctionType and (flags := function.__code__.co_flags & _KINDS):
        return (
            "awaitable"
            if flags & inspect.CO_COROUTINE
            else f"{'async ' * bool(flags & inspect.CO_ASYNC_GENERATOR)}generator"
        )
    inner = behind_partials(function)
    if not inspect.isroutine(inner) and not isinstance(inner, type):
        inner = type(inner).__call__
    if inspect.isasyncgenfunction(inner):
        return "async generator"
    if inspect.isgeneratorfunction(inner):
        return "generator"
    return "awaitable" if inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(function) else "plain"


def makes_context_manager(function: object) -> bool:
    """Whether it is decorated with @contextmanager or @asynccontextmanager."""
    code = getattr(function, "__code__", None)
    return getattr(code, "co_filename", None) == contextlib.__file__ and "generator" in kind_of(unwrapped(function))


def _chooses_by_position(function: object) -> bool:
    """Whether it comes from functools.singledispatch or singledispatchmethod."""
    code = getattr(function, "__code__", None)
    is_of_functools = (
        type(function).__module__ == "functools" or getattr(code, "co_filename", None) == functools.__file__
    )
    return is_of_functools and hasattr(function, "register")


def _doc_of(function: object) -> str | None:
    """The docstring; of an object its `__call__`'s, or its class's."""
    function = behind_partials(function)
    if inspect.isroutine(function):
        return function.__doc__ or inspect.getdoc(function)
    return type(function).__call__.__doc__ or inspect.getdoc(type(function))


def fixed_keywords(function: object) -> set[str]:
    """The keywords that partials fill: a caller must neither see nor set them."""
    fixed: set[str] = set()
    while isinstance(function, functools.partial):
        fixed |= function.keywords.keys()
        function = function.func
    return fixed


def read_signature(function: Callable[..., Any], place: Place) -> inspect.Signature:
    """The signature of what is called by name. Raises DefinitionError if that isn't possible."""
    if _chooses_by_position(function):
        raise place.mistake(
            "chooses by the type of its first positional argument (singledispatch), but arguments are passed by name; "
            "write a function that calls it"
        )
    try:
        signature = inspect.signature(function)
    except NameError as error:  # Python 3.14 evaluates annotations here
        raise place.mistake(f"an annotation {unresolved(error)}") from None
    except (ValueError, TypeError) as error:
        raise place.mistake(f"has no signature that Python can read ({error}); wrap it in a function") from None
    if type(function) is FunctionType and ~function.__code__.co_flags & _VARIADIC:
        return signature  # it does not have both, as nearly all functions
    kinds = {parameter.kind: parameter.name for parameter in signature.parameters.values()}
    rest, options = kinds.get(inspect.Parameter.VAR_POSITIONAL), kinds.get(inspect.Parameter.VAR_KEYWORD)
    if rest and options and not isinstance(function, type):
        raise place.mistake(
            f"`*{rest}, **{options}` have no schema; if a decorator made it, write `@functools.wraps(function)` above the "
            "function that the decorator returns",
            rest,
        )
    return signature


def _resolve(annotation: object, code: object, place: Place, parameter: str | None = None) -> Any:
    try:
        return resolve(annotation, code)
    except Exception as error:
        what = f"annotation `{shown(annotation)}`" if parameter else f"the return annotation `{shown(annotation)}`"
        raise place.mistake(f"{what} {unresolved(error)}", parameter) from None


# ---------------------------------------------------------------- parameters


def _check_kinds(parameters: Iterable[inspect.Parameter], code: object, place: Place) -> None:
    """Raises DefinitionError for parameters that can't be filled by name from JSON."""
    kinds = {parameter.kind: parameter for parameter in parameters}
    rest, options = kinds.get(inspect.Parameter.VAR_POSITIONAL), kinds.get(inspect.Parameter.VAR_KEYWORD)
    positional = kinds.get(inspect.Parameter.POSITIONAL_ONLY)
    if rest is not None:
        raise place.mistake(
            f"`*{rest.name}` has no schema; name each parameter, or take a `{rest.name}: list[str]`", rest.name
        )
    if options is not None:
        instead = _unpacked(options.annotation, code) or "dict[str, Any]"
        raise place.mistake(
            f"`**{options.name}` has no schema; name each parameter, or take a `{options.name}: {instead}`",
            options.name,
        )
    if positional is not None:
        advice = "remove the `/`" if hasattr(code, "__code__") else "wrap it in a function"
        raise place.mistake(f"is positional-only, but arguments are passed by name; {advice}", positional.name)


def _unpacked(annotation: object, code: object) -> str | None:
    """The TypedDict of `**options: Unpack[…]`; None for another annotation."""
    try:
        annotation = resolve(annotation, code)
    except Exception:  # the author is told another mistake already
        return None
    return shown(typing.get_args(annotation)[0]) if typing.get_origin(annotation) is typing.Unpack else None


def _unannotated(parameter: inspect.Parameter) -> str:
    name, default = parameter.name, parameter.default
    if name in ("self", "cls"):
        return "belongs to a method; register the bound method, `instance.method`, not the function in its class"
    if name in ("ctx", "context"):
        return f"has no annotation; write `{name}: Context`"
    if default is EMPTY or default is None or is_field_info(default):
        return f"has no annotation, so there is no schema for it; write e.g. `{name}: str`"
    kind = type(default).__name__
    try:
        written = shorten(repr(default))
    except Exception:  # the author's own
        written = "…"
    return f"has no annotation, so there is no schema for it; write e.g. `{name}: {kind} = {written}`"


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
        if parameter.name.startswith("__") or not _NAMEABLE(parameter.wire_name):
            raise place.mistake(
                f"a caller can't pass an argument named `{parameter.wire_name}`; rename it", parameter.name
            )
        if parameter.wire_name in taken:
            raise place.mistake(f"the name `{parameter.wire_name}` is taken by another parameter", parameter.name)
        taken.add(parameter.wire_name)
    return read, writer.definitions


def _read_parameter(
    name: str, default: Any, annotation: object, doc: str | None, writer: SchemaWriter, place: Place
) -> Parameter:
    field = None
    if is_field_info(default):
        if (mistake := no_type(annotation)) is not None:
            raise place.mistake(_unusable(annotation, TypeError(mistake)), name)
        field, annotation, default = default, Annotated[annotation, default], EMPTY
    elif is_annotated(annotation):
        field = next(filter(is_field_info, metadata_of(annotation)), None)
    if field is not None and default is EMPTY and not field.is_required():
        default = _default_of(field, name, place)
    try:
        kind = value_type(annotation, writer)
        if default is None and not _takes_none(kind):  # `x: str = None` means `str | None`
            kind = value_type(_or_none(annotation), writer)
    except (TypeError, NameError) as reason:
        raise place.mistake(_unusable(annotation, reason), name) from None
    schema = dict(kind.schema)
    if text := described_by(annotation) or schema.get("description") or doc:
        schema["description"] = text
    if default is not EMPTY and not isinstance(default, _Factory) and default is not msgspec.UNSET:
        listed = _listed_default(default, kind, annotation, writer, place, name)
        schema.update({} if listed is UNSET else {"default": listed})
    return Parameter(name, _wire_name(field, name, place) if field is not None else name, kind, schema, _maker(default))


def _takes_none(kind: ValueType) -> bool:
    """Whether a caller may pass null."""
    try:
        kind.write_default(None)
    except (ValueRejected, NotSerializable):
        return False
    return True


def _or_none(annotation: object) -> Any:
    """The annotation with None beside its type. pydantic reads its Field only outside of a union."""
    outside = metadata_of(annotation) if any(map(is_field_info, metadata_of(annotation))) else ()
    members = (bare(annotation) if outside else annotation, None)
    kind: Any = typing.Union[members]  # noqa: UP007  # of what has no `|`, too
    return Annotated[(kind, *outside)] if outside else kind


class _Factory(NamedTuple):
    """Makes a new default for each call."""

    factory: Callable[[], Any]


def _default_of(field: Any, name: str, place: Place) -> Any:
    """The default of pydantic's Field."""
    if field.default_factory is None:
        return field.default
    if getattr(field, "default_factory_takes_validated_data", False):
        raise place.mistake("its default_factory takes the other arguments, which is possible only in a model", name)
    return _Factory(field.default_factory)


def _wire_name(field: object, name: str, place: Place) -> str:
    """The name that callers use: an alias in pydantic's Field, or else the parameter's."""
    alias = getattr(field, "validation_alias", None)
    if alias is not None and not isinstance(alias, str):
        raise place.mistake('an argument has one name; write Field(alias="…") with a string', name)
    return alias or name


def _maker(default: object) -> Callable[[], Any] | None:
    """What makes the default of one call. One that can change is copied, so that callers share nothing."""
    if default is EMPTY:
        return None
    if isinstance(default, _Factory):
        return default.factory
    return functools.partial(copy.deepcopy, default) if _can_change(default) else lambda: default


def _can_change(value: object) -> bool:
    """Whether a value is mutable, as Python tells it: what has no hash."""
    try:
        hash(value)
    except TypeError:
        return True
    return False


def _unusable(annotation: object, reason: Exception) -> str:
    if not isinstance(reason, UnsupportedType):
        return f"annotation `{shown(bare(annotation))}` can't be read from JSON: {reason}"
    return (
        f"annotation `{shown(bare(annotation))}` can't be read from JSON: {reason}; use str, int, float, bool, list, "
        "dict, Literal, Enum, date, a dataclass, TypedDict, msgspec.Struct or pydantic model"
    )


def _listed_default(
    default: object, kind: ValueType, annotation: object, writer: SchemaWriter, place: Place, name: str
) -> Any:
    """The default as JSON, checked like a caller's value; UNSET if that would be another value, such as a hidden secret,
    or if it holds NaN or infinity: no caller could pass it."""
    try:
        if not is_finite(default):
            return UNSET
        text = kind.write_default(default)
        return msgspec.json.decode(text) if _reads_back(default, kind, text) else UNSET
    except NotSerializable as error:
        raise place.mistake(
            f"its default, of type {error.part}, can't be shown in the schema; use None or a JSON value", name
        ) from None
    except ValueRejected as error:
        violations = explain(
            {**kind.schema, "$defs": writer.definitions}, error.value, error.rejections, exact=kind.exact
        )
        raise place.mistake(
            f"its default doesn't fit its annotation: {'; '.join(error_lines(violations))}", name
        ) from None


def _reads_back(default: object, kind: ValueType, text: bytes) -> bool:
    """Whether a caller who passes the text passes the default."""
    if kind.exact and (default is None or isinstance(default, str | int | float)):
        return True
    try:
        value = kind.read(text)
        same = value == default
        return bool(same) or (
            isinstance(default, Sequence | Set) and sorted(value, key=repr) == sorted(default, key=repr)
        )
    except Exception:  # a class of the author's compares or reads it
        return False
