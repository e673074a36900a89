"""Injection: which parameters of a function the server fills. All layers ask `injected`, and nothing else decides it.

A parameter is filled if its type is `Context`, or if its annotation is marked with `Depends` or `Ask`. A mark at another
place is refused: a parameter that was meant to be filled never becomes an argument of the caller.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar, get_origin

from gemel.errors import DefinitionError
from gemel.server.context import Context, SyncContext
from gemel.server.elicitation.forms import Titled
from gemel.server.functions.annotations import (
    Place,
    is_class,
    is_plain,
    members,
    parts,
    peel,
    place_of,
    resolve,
    shown,
    unresolved,
    unwrapped,
)
from gemel.server.functions.foreign import explain_foreign, foreign_class


class Depends:
    """Mark a parameter that a function of yours fills: `db: Annotated[Db, Depends(get_db)]`. Callers don't see it.

    The parameters of that function are filled in the same way: the Context, further dependencies, `Ask`, and by their
    names the arguments of the call. It runs once per call, however often it is used. What a call raises is raised at the
    `yield` of a generator, too; what the generator raises in turn takes its place. Clean-up has `Limits.teardown` seconds.

    Args:
        function: A sync or async function, a class, or a generator (sync or async) that yields the value once and cleans
            up after the call.
        blocking: Whether a sync function runs in a worker thread (the default), or at once on the event loop.

    Raises:
        DefinitionError: `function` can't be called.

    Example:
        ```python
        async def get_db() -> AsyncIterator[Db]:
            async with connect() as db:
                yield db


        @server.tool
        async def count(db: Annotated[Db, Depends(get_db)]) -> int: ...
        ```
    """

    __slots__ = ("blocking", "function")

    def __init__(self, function: Callable[..., Any], *, blocking: bool = True) -> None:
        if not callable(function):
            raise DefinitionError(f"Depends({function!r}): give the function itself, without calling it")
        self.function = function
        self.blocking = blocking

    def __repr__(self) -> str:
        return f"Depends({getattr(self.function, '__name__', type(self.function).__name__)})"


class Ask:
    """Mark a parameter that the user fills before the function runs: `day: Annotated[Day, Ask("Which day?")]`.

    The annotation is the form, as in `Context.elicit`; callers don't see the parameter. All forms of a function go to the
    user together. With `| None` in the annotation the parameter is None if the user does not answer or the client has no
    forms; without, the call ends with Declined or MissingClientCapability.

    Args:
        message: What the user is asked; `{name}` is replaced by the argument of that name.

    Specification: client/elicitation.
    """

    __slots__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message

    def __repr__(self) -> str:
        return f"Ask({self.message!r})"


class Injected(NamedTuple):
    """How the server fills a parameter: by a marker, or with the Context if there is none.

    `type` is the annotation without the marker and without None; `optional` says that it allows None.
    """

    marker: Depends | Ask | None
    type: Any = None
    optional: bool = False


_MARKERS = (Depends, Ask)
_BUILT_IN = frozenset({bool, int, float, str, bytes, list, dict, tuple, set, type(None)})
#: Names of the classes by which FastAPI, FastMCP and the official SDK mark parameters that a server fills.
_FOREIGN_MARKERS = frozenset({"Depends", "Dependency", "Resolve"})


def injected(parameter: inspect.Parameter, annotation: object, place: Place) -> Injected | None:
    """How the server fills a parameter; None for one that the caller fills. `annotation` is the resolved one.

    Raises DefinitionError, which shows the right spelling, for a marker that nothing would read.
    """
    try:
        return _injected(parameter, annotation, place)
    except DefinitionError:
        raise
    except Exception as error:  # in a `type X = …`, which Python evaluates here
        raise place.mistake(f"annotation `{shown(annotation)}` {unresolved(error)}", parameter.name) from None


def _injected(parameter: inspect.Parameter, annotation: object, place: Place) -> Injected | None:
    name, default = parameter.name, parameter.default
    if is_plain(annotation) and (default is inspect.Parameter.empty or type(default) in _BUILT_IN):
        return None
    for one in (default, getattr(default, "default", None)):  # the second one is of pydantic's Field
        if _is_marker(one) or _is_foreign(one):
            _refuse(one, "can't be a default", name, annotation, place)
    kind, metadata, optional = peel(annotation)
    markers = [item for item in metadata if _is_marker(item) or _is_foreign(item)]
    if len(markers) > 1:
        raise place.mistake(f"{markers[0]!r} and {markers[1]!r} would both fill it; keep one of them", name)
    for marker in markers:
        if not isinstance(marker, _MARKERS):
            _refuse(marker, "fills nothing", name, annotation, place)
    if not markers and any(map(_is_context, members(kind))):
        return Injected(None)
    is_value = not markers or isinstance(markers[0], Ask)  # what somebody sends; a dependency may give anything
    for part in parts(kind, fields=is_value):
        if _is_marker(part) or _is_foreign(part):
            _refuse(part, "stands inside of the annotation, where nothing reads it", name, annotation, place)
        if is_value and is_class(part):
            _check_class(part, name, annotation, place)
    if not markers:
        if any(isinstance(part, Titled) for part in (*metadata, *parts(kind, fields=False))):
            raise place.mistake(
                "`Titled` is read in forms, by `Ask` and `ctx.elicit`; describe the choices in the docstring", name
            )
        return None
    others = tuple(item for item in metadata if item is not markers[0])
    return Injected(markers[0], Annotated[(kind, *others)] if others else kind, optional)


def check_returned(annotation: object, place: Place) -> None:
    """Raise DefinitionError for a marker in a return annotation, where nothing reads it."""
    if is_plain(annotation):
        return
    try:
        titled = [
            part for part in parts(annotation, fields=False) if isinstance(part, Titled)
        ]  # a form may be returned
        markers = [part for part in parts(annotation) if _is_marker(part) or _is_foreign(part)]
        foreign = next(filter(None, (foreign_class(part) for part in parts(annotation) if is_class(part))), None)
    except Exception as error:  # in a `type X = …`, which Python evaluates here
        raise place.mistake(f"the return annotation `{shown(annotation)}` {unresolved(error)}") from None
    if foreign is not None:
        raise place.mistake(f"the return annotation `{shown(annotation)}`: {explain_foreign(foreign)}")
    for marker in (*markers, *titled):
        name = marker.__name__ if is_class(marker) else type(marker).__name__
        raise place.mistake(
            f"`{name}` stands in the return annotation `{shown(annotation)}`, where nothing reads it; mark a parameter"
        )


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any] | None)


def without_markers(function: FunctionT) -> FunctionT:
    """The same function, one that gets its arguments by position. Raises DefinitionError if it has a marked parameter."""
    code, place = unwrapped(function), place_of(function)
    inspected: Any = function
    try:
        parameters = list(inspect.signature(inspected).parameters.values()) if callable(function) else []
    except (ValueError, TypeError, NameError):
        return function
    for parameter in parameters:
        try:
            metadata = peel(resolve(parameter.annotation, code)).metadata
        except Exception:  # names that only a type checker knows: annotations of these functions need not be evaluated
            metadata = ()
        for item in (parameter.default, *metadata):
            if _is_marker(item):
                raise place.mistake(
                    f"`{item!r}` fills nothing, because this function gets its arguments by position; get the value in it",
                    parameter.name,
                )
    return function


def _is_context(annotation: object) -> bool:
    kind = peel(annotation).type
    return kind is Context or get_origin(kind) is Context


def _is_marker(part: object) -> bool:
    """Whether it is a marker, or the class of one."""
    return isinstance(part, _MARKERS) or (is_class(part) and issubclass(part, _MARKERS))


def _is_foreign(part: object) -> bool:
    """Whether it is the marker of another library."""
    cls = type(part)
    if cls is type or cls.__module__ in ("builtins", "typing", "types", "msgspec") or _is_marker(part):
        return False
    return foreign_class(cls) is not None or any(base.__name__.lstrip("_") in _FOREIGN_MARKERS for base in cls.__mro__)


def _refuse(marker: Any, why: str, name: str, annotation: object, place: Place) -> NoReturn:
    """Raise DefinitionError for a marker that nothing reads, with the spelling that works."""
    if _is_foreign(marker):
        cls, spelling = type(marker), f"Annotated[{_type_of(annotation)}, Depends(function)]"
        is_context = cls.__name__.lstrip("_") == "CurrentContext" or any(map(_is_context, members(annotation)))
        spelling = "Context" if is_context else spelling
        raise place.mistake(
            f"`{cls.__name__.lstrip('_')}` of {cls.__module__.partition('.')[0]} {why}; write `{name}: {spelling}` with the "
            "names of gemel",
            name,
        )
    spelling = {Depends: "Depends(function)", Ask: "Ask('Which one?')"}.get(marker, repr(marker))
    written = marker.__name__ if is_class(marker) else spelling
    raise place.mistake(
        f"`{written}` {why}; write `{name}: Annotated[{_type_of(annotation)}, {spelling}]`",
        name,
    )


def _type_of(annotation: object) -> str:
    missing = annotation is inspect.Parameter.empty or _is_marker(annotation)
    return "…" if missing else shown(annotation)


def _check_class(part: Any, name: str, annotation: object, place: Place) -> None:
    """Refuse classes whose instances only the server makes: no caller may."""
    if issubclass(part, SyncContext):
        raise place.mistake(
            f"`{shown(part)}` is made from a Context; write `{name}: Context` and use `{name}.sync`", name
        )
    if part is Context:
        raise place.mistake(
            f"`{shown(annotation)}` holds a Context, which only a parameter of its own gets; write `ctx: Context`", name
        )
    if issubclass(part, Context):
        raise place.mistake(
            f"the server passes a Context, not its subclass `{shown(part)}`; write `{name}: Context`, and functions in place of "
            "its methods",
            name,
        )
    if (foreign := foreign_class(part)) is not None:
        raise place.mistake(explain_foreign(foreign), name)
    package = part.__module__.partition(".")[0]
    if package == "gemel" and not part.__module__.startswith("gemel.schema."):
        raise place.mistake(
            f"a caller can't pass `{shown(part)}`; write `{name}: Annotated[{shown(annotation)}, Depends(function)]`, or take "
            "what you need from a `ctx: Context`",
            name,
        )
