"""Dependency injection: `Depends` and `Ask` parameters of a function are resolved, passed and cleaned up around each call."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import string
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args

from gemel.errors import DefinitionError, MissingClientCapability, shorten
from gemel.server.context import Context, is_context
from gemel.server.elicitation.elicit import Declined
from gemel.server.elicitation.forms import form_of
from gemel.server.functions.annotations import (
    Place,
    Predicate,
    bare,
    holds,
    members,
    metadata_of,
    place_of,
    resolve,
    shown,
)
from gemel.server.functions.signature import Signature, inspect_function
from gemel.server.threads import Threads

logger = logging.getLogger("gemel")

ResultT = TypeVar("ResultT")
#: What runs a registered function with its arguments.
Run = Callable[[Context[Any], dict[str, Any]], Awaitable[ResultT]]


class FormParameter(NamedTuple):
    """One `Ask` parameter; `names` are the arguments in its message."""

    message: str
    names: tuple[str, ...]
    form: Any
    optional: bool
    slot: int

    async def answer(self, ctx: Context[Any], arguments: dict[str, Any]) -> Any:
        """The user's answer. Raises Declined and MissingClientCapability."""
        message = self.message.format_map({name: shorten(str(arguments[name])) for name in self.names})
        try:
            return await ctx.elicit(message, self.form)
        except (Declined, MissingClientCapability):
            if not self.optional:
                raise
            return None


#: Where a value comes from: a slot of the call's values, or an argument by its name.
Source = int | str
#: The slot of the Context.
CONTEXT = 0


class Step(NamedTuple):
    """One dependency as it is run; `kind` is what calling its function gives."""

    function: Callable[..., Any]
    kind: str
    blocking: bool
    sources: tuple[tuple[str, Source], ...]
    slot: int


_EXHAUSTED = object()


class OpenGenerator:
    """A generator of a dependency, which is continued after the call."""

    __slots__ = ("_generator", "_step", "_threads")

    def __init__(self, step: Step, generator: Any, threads: Threads) -> None:
        self._step = step
        self._generator = generator
        self._threads = threads

    async def first(self) -> Any:
        """The value that it yields. Raises DefinitionError if it yields none."""
        value = await self._resume(None)
        if value is _EXHAUSTED:
            raise DefinitionError(f"The dependency {called(self._step.function)} didn't yield: it must, once")
        return value

    async def close(self, exc: BaseException | None) -> None:
        """Continue after the `yield`, or raise the error of the call there. Raises any other error of the generator."""
        try:
            value = await self._resume(exc)
        except BaseException as raised:
            if raised is exc:
                return
            raise
        if value is not _EXHAUSTED:
            raise DefinitionError(f"The dependency {called(self._step.function)} yields more than once: it must once")

    async def _resume(self, exc: BaseException | None) -> Any:
        generator = self._generator
        if self._step.kind == "async generator":
            try:
                return await (anext(generator) if exc is None else generator.athrow(exc))
            except StopAsyncIteration:
                return _EXHAUSTED
        if not self._step.blocking:
            return _advance(generator, exc)
        return await self._threads.run(_advance, {"generator": generator, "exc": exc})


def _advance(generator: Any, exc: BaseException | None) -> Any:
    try:
        return next(generator) if exc is None else generator.throw(exc)
    except StopIteration:
        return _EXHAUSTED


def called(function: Callable[..., Any]) -> str:
    """The name of a function, for messages."""
    return f"{getattr(function, '__qualname__', type(function).__name__)}()"


class Dependencies:
    """What one function is passed: its forms, its dependencies in order, and the slot of each parameter."""

    __slots__ = ("_forms", "_parameters", "_size", "_steps", "_threads")

    def __init__(
        self,
        forms: Sequence[FormParameter],
        steps: Sequence[Step],
        parameters: Sequence[tuple[str, int]],
        threads: Threads,
    ) -> None:
        self._forms = tuple(forms)
        self._steps = tuple(steps)
        self._parameters = tuple(parameters)
        self._threads = threads
        self._size = 1 + len(self._forms) + len(self._steps)

    def around(self, run: Run[ResultT]) -> Run[ResultT]:
        """Run a function with its dependencies: forms first, then values, then the function, then clean-up."""

        async def filled(ctx: Context[Any], arguments: dict[str, Any]) -> ResultT:
            opened: list[OpenGenerator] = []
            try:
                await self._fill(ctx, arguments, opened)
                result = await run(ctx, arguments)
            except BaseException as exc:
                end = await self._close(ctx, opened, exc)
                if end is None or end is exc:
                    raise
                raise end from end.__cause__
            end = await self._close(ctx, opened, None)
            if end is not None:
                raise end
            return result

        return filled

    async def _fill(self, ctx: Context[Any], arguments: dict[str, Any], opened: list[OpenGenerator]) -> None:
        values: list[Any] = [None] * self._size
        values[CONTEXT] = ctx
        given = dict(arguments)
        answers = await _await_all([form.answer(ctx, given) for form in self._forms])
        for form, answer in zip(self._forms, answers, strict=True):
            values[form.slot] = answer
        for step in self._steps:
            passed = {name: values[at] if isinstance(at, int) else given[at] for name, at in step.sources}
            values[step.slot] = await self._value(step, passed, opened)
        for name, slot in self._parameters:
            arguments[name] = values[slot]

    async def _value(self, step: Step, arguments: dict[str, Any], opened: list[OpenGenerator]) -> Any:
        if step.kind in ("generator", "async generator"):
            generator = OpenGenerator(step, step.function(**arguments), self._threads)
            value = await generator.first()
            opened.append(generator)
            return value
        if step.kind == "plain" and step.blocking:
            value = await self._threads.run(step.function, arguments)
        else:
            value = step.function(**arguments)
        return await value if isinstance(value, Awaitable) else value

    async def _close(
        self, ctx: Context[Any], opened: list[OpenGenerator], exc: BaseException | None
    ) -> BaseException | None:
        """Clean up, last opened first, in bounded time. Returns the error that the call ends with, or None."""
        limit = ctx._session.connection.limits.teardown
        clock = asyncio.timeout(limit)
        try:
            async with clock:
                while opened:
                    exc = await _closed(opened.pop(), exc, clock)
        except TimeoutError:
            if not clock.expired():
                raise
            logger.warning(
                "%s: clean-up of dependencies took longer than %g seconds and is abandoned", ctx.method, limit
            )
        return exc


async def _closed(generator: OpenGenerator, exc: BaseException | None, clock: asyncio.Timeout) -> BaseException | None:
    """The error of a call after this clean-up, whose own error replaces another one, but not a cancellation."""
    try:
        await generator.close(exc)
    except asyncio.CancelledError as raised:
        if clock.expired():
            raise
        return raised
    except Exception as raised:
        if exc is None or isinstance(exc, Exception):
            return raised
        logger.exception("the clean-up of a dependency failed")
    return exc


async def _await_all(answers: Sequence[Any]) -> list[Any]:
    """Await all concurrently; the first failure ends the others."""
    if len(answers) < 2:
        return [await answer for answer in answers]
    tasks = [asyncio.ensure_future(answer) for answer in answers]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException) and not isinstance(end, asyncio.CancelledError):
            raise end
    return ends


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


_MARKERS = (Depends, Ask)


def marker_of(annotation: Any) -> Depends | Ask | None:
    """The `Depends` or `Ask` of an annotation."""
    for item in metadata_of(annotation):
        if isinstance(item, _MARKERS):
            return item
    return None


def is_injected(annotation: Any) -> bool:
    """Whether the server fills a parameter so annotated."""
    return is_context(annotation) or marker_of(annotation) is not None


def inspect_handler(
    function: Any, content: Predicate, name: str | None = None, *, generators: bool = False
) -> Signature:
    """The signature of a function whose Context, dependencies and forms the server passes; see inspect_function."""
    return inspect_function(
        function, injected=is_injected, content=content, check=_check_default, name=name, generators=generators
    )


def _check_default(parameter: inspect.Parameter, place: Place) -> None:
    if isinstance(parameter.default, _MARKERS):
        kind = type(parameter.default).__name__
        raise place.mistake(
            f"{kind}(…) is no default; write `{parameter.name}: Annotated[{shown(parameter.annotation)}, {kind}(…)]`",
            parameter.name,
        )


def _place(function: Any, name: str) -> Place:
    return place_of(inspect.unwrap(getattr(function, "__func__", function)), name)


def dependencies_of(function: Any, signature: Signature, threads: Threads) -> Dependencies | None:
    """What a function is passed besides the Context; None for nothing. Raises DefinitionError."""
    marked = {name: annotation for name, annotation in signature.injected.items() if not is_context(annotation)}
    if not marked:
        return None
    compiler = _Compiler(_place(function, signature.name), [item.name for item in signature.parameters])
    parameters = [(name, compiler.slot(annotation, name)) for name, annotation in marked.items()]
    return Dependencies(compiler.forms, compiler.steps, parameters, threads)


class _Compiler:
    """Puts forms and dependencies in order, each once; errors name the place of the function."""

    def __init__(self, place: Place, arguments: Sequence[str]) -> None:
        self._place = place
        self._arguments = arguments
        self._slots: dict[object, int] = {}
        self._next = 1
        self.forms: list[FormParameter] = []
        self.steps: list[Step] = []

    def slot(self, annotation: Any, parameter: str, trail: tuple[Callable[..., Any], ...] = ()) -> int:
        """Where the value for a marked parameter will be."""
        marker = marker_of(annotation)
        if isinstance(marker, Ask):
            return self._form_parameter(marker, annotation, parameter)
        assert marker is not None
        return self._step(marker, parameter, trail)

    def _new_slot(self) -> int:
        self._next += 1
        return self._next - 1

    def _form_parameter(self, ask: Ask, annotation: Any, parameter: str) -> int:
        form, optional = _form(annotation)
        try:
            form_of(form)
        except DefinitionError as exc:
            raise self._place.mistake(str(exc), parameter) from None
        names = self._names(ask.message, parameter)
        parameter_form = FormParameter(ask.message, names, form, optional, self._new_slot())
        self.forms.append(parameter_form)
        return parameter_form.slot

    def _names(self, message: str, parameter: str) -> tuple[str, ...]:
        """The arguments that a message mentions."""
        try:
            parts = [part[1:] for part in string.Formatter().parse(message) if part[1] is not None]
        except ValueError as exc:
            raise self._place.mistake(
                f"the message of Ask can't be read: {exc}; write a brace as {{{{", parameter
            ) from None
        for name, spec, conversion in parts:
            if name not in self._arguments or spec or conversion:
                arguments = ", ".join(f"{{{argument}}}" for argument in self._arguments) or "none"
                raise self._place.mistake(
                    f"the message of Ask holds {{{name}}}, which is no argument of this function; there are: {arguments}",
                    parameter,
                )
        return tuple(str(name) for name, _, _ in parts)

    def _step(self, depends: Depends, parameter: str, trail: tuple[Callable[..., Any], ...]) -> int:
        function = depends.function
        if function in trail:
            circle = " → ".join(map(called, (*trail[trail.index(function) :], function)))
            raise self._place.mistake(f"dependencies need each other in a circle: {circle}", parameter)
        slot = self._slots.get(_identity(function))
        if slot is not None:
            return slot
        sources = tuple(self._sources(function, parameter, (*trail, function)))
        step = Step(function, kind_of(function), depends.blocking, sources, self._new_slot())
        self.steps.append(step)
        self._slots[_identity(function)] = step.slot
        return step.slot

    def _sources(
        self, function: Callable[..., Any], parameter: str, trail: tuple[Callable[..., Any], ...]
    ) -> Iterator[tuple[str, Source]]:
        """Where each parameter of a dependency gets its value from; one with a default may go without."""
        code = _code_of(function)
        for item in inspect.signature(function).parameters.values():
            if item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD):
                continue
            try:
                annotation = resolve(item.annotation, code)
            except Exception as exc:
                raise self._place.mistake(f"{called(function)}, parameter `{item.name}`: {exc}", parameter) from None
            if holds(annotation, is_context):
                yield item.name, CONTEXT
            elif marker_of(annotation) is not None:
                yield item.name, self.slot(annotation, parameter, trail)
            elif item.name in self._arguments:
                yield item.name, item.name
            elif item.default is item.empty:
                raise self._place.mistake(
                    f"the dependency {called(function)} takes `{item.name}`: annotate it with Context, Depends or Ask, name it "
                    "like an argument, or give it a default",
                    parameter,
                )


def _identity(function: Callable[..., Any]) -> object:
    """A key of a function. Two objects of the same bound method are different, but equal."""
    try:
        hash(function)
    except TypeError:
        return id(function)
    return function


def _code_of(function: Any) -> Any:
    """The Python function whose names annotations are read with: behind partials, classes, objects, decorators."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return next((vars(base)["__init__"] for base in function.__mro__ if "__init__" in vars(base)), function)
    return inspect.unwrap(function if inspect.isroutine(function) else type(function).__call__)


def _form(annotation: Any) -> tuple[Any, bool]:
    """The type of the form, and whether the answer is optional."""
    metadata = [item for item in metadata_of(annotation) if not isinstance(item, Ask)]
    form = bare(annotation)
    optional = type(None) in members(form)
    if optional:
        form = Union[tuple(kind for kind in get_args(form) if kind is not type(None))]  # noqa: UP007  # made of a list
    for item in metadata:
        form = Annotated[form, item]
    return form, optional


def kind_of(function: Any) -> str:
    """What calling it gives: "generator", "async generator", "awaitable" or "plain"."""
    inner = function if isinstance(function, type) else _code_of(function)
    if inspect.isasyncgenfunction(inner):
        return "async generator"
    if inspect.isgeneratorfunction(inner):
        return "generator"
    return "awaitable" if inspect.iscoroutinefunction(inner) else "plain"
