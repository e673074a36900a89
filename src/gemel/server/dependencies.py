"""Dependencies: `Depends` and `Ask` parameters of a function are resolved, passed and cleaned up around each call."""

from __future__ import annotations

import asyncio
import inspect
import logging
import string
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from gemel.errors import DefinitionError, MissingClientCapability, shorten
from gemel.protocol.records import Call
from gemel.server.context import Context, served_call
from gemel.server.elicitation.elicit import Declined
from gemel.server.elicitation.forms import form_of
from gemel.server.functions.annotations import Place, Predicate, place_of, resolve, shown, unresolved, unwrapped
from gemel.server.functions.signature import (
    Signature,
    fixed_keywords,
    inspect_function,
    kind_of,
    makes_context_manager,
    read_signature,
)
from gemel.server.injection import Ask, Depends, Injected, check_returned, injected
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
    """One dependency as it is run. `threaded`: calling it may block. `yields`: its function, or one behind decorators, does."""

    function: Callable[..., Any]
    threaded: bool
    yields: bool
    blocking: bool
    sources: tuple[tuple[str, Source], ...]
    slot: int


_EXHAUSTED = object()


class OpenGenerator:
    """A generator of a dependency, which is continued after the call."""

    __slots__ = ("_call", "_generator", "_step", "_threads")

    def __init__(self, step: Step, generator: object, threads: Threads, call: Call) -> None:
        self._call = call
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
        finally:
            del exc  # its traceback leads here; the reference cycle would keep the arguments
        if value is not _EXHAUSTED:
            raise DefinitionError(f"The dependency {called(self._step.function)} yields more than once: it must once")

    async def _resume(self, exc: BaseException | None) -> Any:
        generator, raised = self._generator, [] if exc is None else [exc]
        del exc  # see `close`
        if inspect.isasyncgen(generator):
            try:
                return await (generator.athrow(raised.pop()) if raised else anext(generator))
            except StopAsyncIteration:
                return _EXHAUSTED
        if not self._step.blocking:
            return _advance(generator, raised)
        return await self._threads.run(_advance, {"generator": generator, "raised": raised}, self._call)


def _advance(generator: Any, raised: list[BaseException]) -> Any:
    try:
        return generator.throw(raised.pop()) if raised else next(generator)
    except StopIteration:
        return _EXHAUSTED


def called(function: Callable[..., Any]) -> str:
    """The name of a function, for messages."""
    return f"{getattr(function, '__qualname__', type(function).__name__)}()"


class Dependencies:
    """What one function is passed: its forms, its dependencies in order, and the slot of each parameter."""

    __slots__ = ("_forms", "_parameters", "_size", "_steps")

    def __init__(
        self, forms: Sequence[FormParameter], steps: Sequence[Step], parameters: Sequence[tuple[str, int]]
    ) -> None:
        self._forms = tuple(forms)
        self._steps = tuple(steps)
        self._parameters = tuple(parameters)
        self._size = 1 + len(self._forms) + len(self._steps)

    def around(self, run: Run[ResultT], threads: Threads) -> Run[ResultT]:
        """Run a function with its dependencies: forms first, then values, then the function, then clean-up.

        Sync dependencies run in `threads`.
        """

        async def filled(ctx: Context[Any], arguments: dict[str, Any]) -> ResultT:
            opened: list[OpenGenerator] = []
            try:
                await self._fill(ctx, arguments, opened, threads)
                result = await run(ctx, arguments)
            except BaseException as exc:
                end = await self._close(ctx, opened, exc)
                if end is None or end is exc:
                    del end  # see `OpenGenerator.close`
                    raise
                try:
                    raise end from end.__cause__
                finally:
                    del end
            end = await self._close(ctx, opened, None)
            if end is not None:
                raise end
            return result

        return filled

    async def _fill(
        self, ctx: Context[Any], arguments: dict[str, Any], opened: list[OpenGenerator], threads: Threads
    ) -> None:
        values: list[Any] = [None] * self._size
        values[CONTEXT] = ctx
        given = dict(arguments)
        answers = await _await_all([form.answer(ctx, given) for form in self._forms])
        for form, answer in zip(self._forms, answers, strict=True):
            values[form.slot] = answer
        for step in self._steps:
            passed = {name: values[at] if isinstance(at, int) else given[at] for name, at in step.sources}
            values[step.slot] = await self._value(step, passed, opened, threads, served_call(ctx).call)
        for name, slot in self._parameters:
            arguments[name] = values[slot]

    async def _value(
        self, step: Step, arguments: dict[str, Any], opened: list[OpenGenerator], threads: Threads, call: Call
    ) -> Any:
        value = await threads.run(step.function, arguments, call) if step.threaded else step.function(**arguments)
        if isinstance(value, Awaitable):
            value = await value
        if not step.yields or not (inspect.isgenerator(value) or inspect.isasyncgen(value)):
            return value
        generator = OpenGenerator(step, value, threads, call)
        first = await generator.first()
        opened.append(generator)
        return first

    async def _close(
        self, ctx: Context[Any], opened: list[OpenGenerator], exc: BaseException | None
    ) -> BaseException | None:
        """Clean up, last opened first, in bounded time. Returns the error that the call ends with, or None."""
        limit = served_call(ctx).session.connection.limits.teardown
        clock = asyncio.timeout(limit)
        try:
            async with clock:
                while opened:
                    exc = await _closed(opened.pop(), exc, clock)
            return exc
        except TimeoutError:
            if not clock.expired():
                raise
            logger.warning(
                "%s: clean-up of dependencies took longer than %g seconds and is abandoned", ctx.method, limit
            )
            return exc
        finally:
            del exc  # see `OpenGenerator.close`


async def _closed(generator: OpenGenerator, exc: BaseException | None, clock: asyncio.Timeout) -> BaseException | None:
    """The error of a call after this clean-up, whose own error replaces another one, but not a cancellation."""
    try:
        await generator.close(exc)
        return exc
    except asyncio.CancelledError as raised:
        if clock.expired():
            raise
        return raised
    except Exception as raised:
        if exc is None or isinstance(exc, Exception):
            return raised
        logger.exception("the clean-up of a dependency failed")
        return exc
    finally:
        del exc  # see `OpenGenerator.close`


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


def inspect_handler(
    function: Any,
    content: Predicate,
    name: str | None = None,
    *,
    generators: bool = False,
    structured_text: bool = False,
) -> Signature:
    """The signature of a function whose Context, dependencies and forms the server passes; see inspect_function."""
    return inspect_function(
        function,
        injected=injected,
        returned=check_returned,
        content=content,
        name=name,
        generators=generators,
        structured_text=structured_text,
    )


def contexts_of(injected: Mapping[str, Injected]) -> tuple[str, ...]:
    """The parameters that get the Context."""
    return tuple(name for name, how in injected.items() if how.marker is None)


def dependencies_of(signature: Signature) -> Dependencies | None:
    """What a function is passed besides the Context; None for nothing. Raises DefinitionError."""
    return plan_dependencies(signature.injected, [item.name for item in signature.parameters], signature.place)


def plan_dependencies(injected: Mapping[str, Injected], arguments: Sequence[str], place: Place) -> Dependencies | None:
    """The same for a function without a Signature. `arguments` are those that it is passed besides."""
    if not injected:
        return None
    compiler = _Compiler(place, arguments)
    parameters = [(name, compiler.slot(how, name)) for name, how in injected.items() if how.marker is not None]
    return Dependencies(compiler.forms, compiler.steps, parameters) if parameters else None


class _Compiler:
    """Puts forms and dependencies in order, each once; errors name the place of the function."""

    def __init__(self, place: Place, arguments: Sequence[str]) -> None:
        self._place = place
        self._arguments = arguments
        self._slots: dict[object, int] = {}
        self._next = 1
        self.forms: list[FormParameter] = []
        self.steps: list[Step] = []

    def slot(
        self,
        how: Injected,
        parameter: str,
        trail: tuple[Callable[..., Any], ...] = (),
        at: tuple[Place, str] | None = None,
    ) -> int:
        """Where the value of a parameter will be; `at` is the place and the name of one of a dependency."""
        match how.marker:
            case Ask() as ask:
                return self._form_parameter(ask, how, *(at or (self._place, parameter)))
            case Depends() as depends:
                return self._step(depends, parameter, trail)
        return CONTEXT

    def _new_slot(self) -> int:
        self._next += 1
        return self._next - 1

    def _form_parameter(self, ask: Ask, how: Injected, place: Place, parameter: str) -> int:
        try:
            form_of(how.type)
        except DefinitionError as exc:
            raise place.mistake(str(exc), parameter) from None
        names = self._names(ask.message, place, parameter)
        parameter_form = FormParameter(ask.message, names, how.type, how.optional, self._new_slot())
        self.forms.append(parameter_form)
        return parameter_form.slot

    def _names(self, message: str, place: Place, parameter: str) -> tuple[str, ...]:
        """The arguments that a message mentions."""
        try:
            parts = [part[1:] for part in string.Formatter().parse(message) if part[1] is not None]
        except ValueError as exc:
            raise place.mistake(f"the message of Ask can't be read: {exc}; write a brace as {{{{", parameter) from None
        for name, spec, conversion in parts:
            if name not in self._arguments or spec or conversion:
                arguments = ", ".join(f"{{{argument}}}" for argument in self._arguments) or "none"
                raise place.mistake(
                    f"the message of Ask holds {{{name}}}, which is not an argument of this function; there are: {arguments}",
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
        yields = "generator" in kind_of(unwrapped(function))
        threaded = depends.blocking and kind_of(function) == "plain"
        step = Step(function, threaded, yields, depends.blocking, sources, self._new_slot())
        self.steps.append(step)
        self._slots[_identity(function)] = step.slot
        return step.slot

    def _sources(
        self, function: Callable[..., Any], parameter: str, trail: tuple[Callable[..., Any], ...]
    ) -> Iterator[tuple[str, Source]]:
        """Where each parameter of a dependency gets its value from; one with a default may go without."""
        code, place, fixed = unwrapped(function), place_of(function), fixed_keywords(function)
        for item in self._parameters(function, parameter):
            if item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD) or item.name in fixed:
                continue
            try:
                annotation = resolve(item.annotation, code)
            except Exception as exc:
                raise place.mistake(f"annotation `{shown(item.annotation)}` {unresolved(exc)}", item.name) from None
            how = injected(item, annotation, place)
            if how is not None:
                yield item.name, self.slot(how, parameter, trail, (place, item.name))
            elif item.name in self._arguments:
                yield item.name, item.name
            elif item.default is item.empty:
                raise self._place.mistake(
                    f"the dependency {called(function)} takes `{item.name}`: annotate it with Context, Depends or Ask, name it "
                    "like an argument, or give it a default",
                    parameter,
                )
            else:
                continue
            if item.kind is item.POSITIONAL_ONLY:
                raise place.mistake(
                    "is positional-only, but dependencies are called by name; remove the `/`", item.name
                )

    def _parameters(self, function: Callable[..., Any], parameter: str) -> list[inspect.Parameter]:
        """The parameters of a dependency. Raises DefinitionError for a function that can't be one."""
        if makes_context_manager(function):
            raise self._place.mistake(
                f"the dependency {called(function)} gives a context manager; remove its decorator: Depends takes the generator",
                parameter,
            )
        try:
            return list(read_signature(function, place_of(function)).parameters.values())
        except DefinitionError as exc:
            raise self._place.mistake(f"the dependency {exc}", parameter) from None


def _identity(function: Callable[..., Any]) -> object:
    """A key of a function. Two objects of the same bound method are different, but equal."""
    try:
        hash(function)
    except TypeError:
        return id(function)
    return function
