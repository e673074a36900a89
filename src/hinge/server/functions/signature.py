"""A user's function as the protocol sees it: description, schemas, typed arguments in, encoded values out.

Everything is worked out once, when the function is registered; each mistake of its author is told there, in one line.
Knows nothing of tools, prompts or eras, nor which library reads a value (values.py).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from hinge.errors import DefinitionError, InvalidArguments
from hinge.server.composition.namespace import Rename
from hinge.server.functions.annotations import Place, Predicate, holds, place_of, resolve, shown
from hinge.server.functions.arguments import read_text, refusal_of_arguments, whole_numbers
from hinge.server.functions.docstring import parse_docstring
from hinge.server.functions.json_schema import Schema, object_schema
from hinge.server.functions.parameters import EMPTY, Parameter, check_kinds, read_parameters
from hinge.server.functions.results import Encoded, Output, inspect_output, is_content
from hinge.server.functions.values import Refused

_asdict = msgspec.structs.asdict


class Signature:
    """What is known of a function. Made by `inspect_function`; holds no state of a call."""

    __slots__ = (
        "_decode",
        "_late",
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
        #: What a caller fills, in order.
        self.parameters = tuple(parameters)
        #: JSON Schema of the arguments: an object that takes these and no others.
        self.input_schema = input_schema
        #: JSON Schema of the result; None when nothing is promised. Its root may be any type.
        self.output_schema = output.schema
        #: Whether calling gives an awaitable.
        self.is_async = is_async
        #: Whether it is a generator function, sync or async: calling it runs nothing yet.
        self.yields = yields
        #: The parameters that the server fills: name to annotation.
        self.injected = dict(injected)
        #: A returned value as structured content and text. Raises DefinitionError, meant for the log, when it doesn't fit
        #: the annotation or can't become JSON.
        self.encode: Callable[[Any], Encoded] = output.encode
        self._decode = msgspec.json.Decoder(_struct(parameters)).decode
        self._late = tuple((item.name, item.type.read) for item in parameters if item.type.field is Raw)

    def arguments(self, text: bytes | Raw) -> dict[str, Any]:
        """Keyword arguments from the JSON text of an object, typed, with defaults; empty text and null count as `{}`.

        Raises InvalidArguments with every problem, and InvalidParams if the text is no JSON object.
        """
        try:
            values = _asdict(self._decode(text))
            for name, read in self._late:
                value = values[name]
                if type(value) is Raw:
                    values[name] = read(value)
            return values
        except (msgspec.MsgspecError, Refused, UnicodeDecodeError, RecursionError):
            again = b"{}" if bytes(text).strip() in (b"", b"null") else whole_numbers(text)
            if again is not None:
                return self.arguments(again)
            raise refusal_of_arguments(text, self.parameters, self.input_schema) from None

    def refusal(self, text: bytes | Raw, rename: Rename) -> InvalidArguments:
        """The error for arguments that break the schema, in the names of a caller who has others for them.

        Raises DefinitionError when only what isn't the caller's is wrong.
        """
        found = refusal_of_arguments(text, self.parameters, self.input_schema, rename)
        assert isinstance(found, InvalidArguments)
        return found

    def arguments_from_text(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Keyword arguments from plain texts, as prompts and URI templates have them: `"3"` is an int if one is wanted.

        Raises InvalidArguments with every problem.
        """
        return read_text(values, self.parameters, self.input_schema)


def inspect_function(
    function: Callable[..., Any],
    *,
    injected: Predicate = lambda annotation: False,
    content: Predicate = is_content,
    name: str | None = None,
    generators: bool = False,
) -> Signature:
    """Works out a function's signature. Takes functions, bound methods, partials and objects with `__call__`.

    `injected(annotation)` tells the parameters that the server fills and no schema shows; `content(annotation)`
    tells return types that go out as they are, without output schema. `name` is for messages; else the function's.

    Raises DefinitionError: one line with function, file, line, parameter and what to do.
    """
    function = _callable(function, name)
    yields = _yields(function)
    code = _code_of(function)
    called = name or _name_of(function)
    place = place_of(code, called)
    if yields and not generators:
        raise place.mistake("is a generator, but a call has one result; return a list, report progress by the context")
    signature = _signature(function, place)
    fixed = _fixed_keywords(function)
    parameters = [item for item in signature.parameters.values() if item.name not in fixed]
    check_kinds(parameters, place)
    annotations = {item.name: _resolve(item.annotation, code, place, item.name) for item in parameters}
    hidden = {key: value for key, value in annotations.items() if holds(value, injected)}
    docs = parse_docstring(_doc_of(function))
    visible = [item for item in parameters if item.name not in hidden]
    found, definitions = read_parameters(visible, annotations, docs.arguments, place)
    properties = {item.wire_name: item.schema for item in found}
    required = [item.wire_name for item in found if item.required]
    returned = UNSET if signature.return_annotation is EMPTY else _resolve(signature.return_annotation, code, place)
    return Signature(
        called,
        docs.description,
        found,
        object_schema(properties, required, definitions),
        inspect_output(UNSET if yields else returned, place, content, docs.returns),
        injected=hidden,
        is_async=_is_async(function),
        yields=yields,
    )


def _struct(parameters: Sequence[Parameter]) -> type[msgspec.Struct]:
    fields: list[Any] = [
        (item.name, item.type.field)
        if item.default is None
        else (item.name, item.type.field, msgspec.field(default_factory=item.default))
        for item in parameters
    ]
    names = {item.name: item.wire_name for item in parameters}
    return msgspec.defstruct("Arguments", fields, rename=names, kw_only=True, forbid_unknown_fields=True)


def _callable(function: Any, name: str | None) -> Callable[..., Any]:
    """The thing that will be called; refuses what can't be a handler."""
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
    found: Callable[..., Any] = function
    return found


def _yields(function: Any) -> bool:
    called = inspect.unwrap(_inner(function))
    return inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called)


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
        return inspect.getdoc(function)
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
        raise place.mistake(f"has no signature that Python can tell ({error}); wrap it in a function") from None


def _resolve(annotation: Any, code: Any, place: Place, parameter: str | None = None) -> Any:
    try:
        return resolve(annotation, code)
    except Exception as error:
        what = f"annotation `{shown(annotation)}`" if parameter else f"the return annotation `{shown(annotation)}`"
        raise place.mistake(f"{what} can't be resolved: {error}; {_UNRESOLVED}", parameter) from None


_UNRESOLVED = "import the name at runtime (not only under TYPE_CHECKING) or define it at module level"
