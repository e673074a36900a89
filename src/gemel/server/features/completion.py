"""Completion of prompt arguments and template variables.

https://modelcontextprotocol.io/specification/2025-11-25/server/utilities/completion
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

import msgspec

from gemel.errors import DefinitionError, InvalidParams, shorten
from gemel.options import similar
from gemel.schema.completion import MAX_VALUES, CompleteParams, CompleteResult, Completion, PromptReference
from gemel.server.composition.namespace import suggest
from gemel.server.context import Context, served_call
from gemel.server.dependencies import contexts_of, plan_dependencies
from gemel.server.features.content import checked
from gemel.server.features.visibility import Registered, require_scopes
from gemel.server.functions.annotations import Place, place_of, resolve, shown, unresolved, unwrapped
from gemel.server.functions.signature import Signature, kind_of, read_signature
from gemel.server.injection import Ask, injected
from gemel.server.lifespan import in_connection
from gemel.server.threads import Threads
from gemel.values.encoding import NotSerializable, encode_value

P = ParamSpec("P")
R = TypeVar("R")

Values: TypeAlias = Completion | Iterable[str]
#: `(value)` or `(value, arguments)`: the text typed so far, and the values of other arguments. A parameter annotated with
#: Context gets the context of the request.
Completer: TypeAlias = Callable[..., Values | Awaitable[Values]]


class RegisteredCompleter:
    """A completer and its parameters. Raises DefinitionError for one with parameters that nothing fills."""

    __slots__ = ("_contexts", "_dependencies", "_function", "_given", "_is_async")

    def __init__(self, function: Completer) -> None:
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function)
        place = place_of(function)
        parameters = _parameters(function, place)
        hidden = {item.name: how for item, annotation in parameters if (how := injected(item, annotation, place))}
        given = [item for item, _ in parameters if item.name not in hidden]
        self._contexts = contexts_of(hidden)
        self._given = [item.name for item in given[:2]]
        needed = [item for item in given[2:] if item.default is item.empty]
        if kind_of(function) == "async generator":
            raise place.mistake("is an async generator; return a list")
        if not given or needed or any(item.kind is not item.POSITIONAL_OR_KEYWORD for item in given[:2]):
            raise place.mistake(
                "completes an argument: write `(value: str)`, or `(value: str, arguments: dict[str, str])`, "
                "and `ctx: Context` besides if you need it"
            )
        for name, how in hidden.items():
            if isinstance(how.marker, Ask):
                raise place.mistake("completion can't request input from the user; remove `Ask`", name)
        self._dependencies = plan_dependencies(hidden, self._given, place)

    async def values(self, ctx: Context[Any], threads: Threads, value: str, chosen: Mapping[str, str]) -> Values:
        """Its suggestions; a sync function runs in a worker thread."""

        async def run(ctx: Context[Any], arguments: dict[str, Any]) -> Values:
            arguments.update(dict.fromkeys(self._contexts, ctx))
            suggestions = (
                self._function(**arguments)
                if self._is_async
                else await served_call(ctx).run_in_thread(threads, self._function, arguments)
            )
            return await suggestions if isinstance(suggestions, Awaitable) else suggestions

        filled = run if self._dependencies is None else self._dependencies.around(run, threads)
        given: dict[str, Any] = dict(zip(self._given, (value, chosen), strict=False))
        return await in_connection(ctx, filled, given)


def _parameters(function: Completer, place: Place) -> list[tuple[inspect.Parameter, Any]]:
    """The parameters and their annotations, which may be missing. Raises DefinitionError."""
    if not callable(function):
        raise DefinitionError(f"{shown(function)} can't complete an argument: it is not a function")
    code, read = unwrapped(function), list[tuple[inspect.Parameter, Any]]()
    for item in read_signature(function, place).parameters.values():
        try:
            read.append((item, resolve(item.annotation, code)))
        except Exception as exc:
            raise place.mistake(f"annotation `{shown(item.annotation)}` {unresolved(exc)}", item.name) from None
    return read


def of_choices(signature: Signature) -> dict[str, RegisteredCompleter]:
    """Completers for parameters whose values are known: enums, Literals and bools."""
    definitions = signature.input_schema.get("$defs", {})
    choices_by_name = {item.wire_name: _choices(item.schema, definitions) for item in signature.parameters}
    return {name: RegisteredCompleter(_of_choice(choices)) for name, choices in choices_by_name.items() if choices}


def _choices(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> list[str]:
    if "$ref" in schema:
        schema = definitions.get(schema["$ref"].rpartition("/")[2], {})
    options = schema.get("anyOf")
    if options is not None:
        return [choice for option in options for choice in _choices(option, definitions)]
    if schema.get("type") == "boolean":
        return ["true", "false"]
    choices = schema.get("enum", ())
    return [choice for choice in choices if isinstance(choice, str)]


def _of_choice(choices: list[str]) -> Completer:
    async def complete(value: str) -> list[str]:
        return [choice for choice in choices if choice.lower().startswith(value.lower())]

    return complete


class Completable(Generic[P, R]):
    """A registered prompt or resource function. Calling it calls the function; `complete` adds a completer."""

    def __init__(
        self, function: Callable[P, R], names: Iterable[str], completers: dict[str, RegisteredCompleter]
    ) -> None:
        self.__wrapped__ = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__doc__ = function.__doc__
        self._names = list(names)
        self._completers = completers

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.__wrapped__(*args, **kwargs)

    def complete(self, argument: str) -> Callable[[Completer], Completer]:
        """Register a completer for one argument.

        https://modelcontextprotocol.io/specification/2025-11-25/server/utilities/completion

        Args:
            argument: The name of the argument, or of the variable of a template.

        Returns:
            The decorator for `completer(value)` or `completer(value, arguments)`, sync or async, which returns strings, best
            first; clients get the first 100. `value` is the text typed so far, `arguments` the values of other arguments. A
            parameter annotated with Context gets the context of the request.

        Raises:
            DefinitionError: The function has no such argument, or the completer has parameters that nothing fills.
        """
        if argument not in self._names:
            near = similar(argument, self._names)
            hint = f"; did you mean {near!r}?" if near else f"; it has {', '.join(self._names) or 'none'}"
            raise DefinitionError(f"{self.__name__} has no argument {argument!r} to complete{hint}")

        def register(completer: Completer) -> Completer:
            self._completers[argument] = RegisteredCompleter(completer)
            return completer

        return register


class Completions:
    """The completers of one server, by prompt name and by resource URI or template."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        #: A prompt, resource or template that a caller sees; hidden ones have no completion.
        self.find_prompt: Callable[[Context[Any], str], Registered | None] = lambda ctx, name: None
        self.find_resource: Callable[[Context[Any], str], Registered | None] = lambda ctx, uri: None
        self.prompts: dict[str, dict[str, RegisteredCompleter]] = {}
        self.resources: dict[str, dict[str, RegisteredCompleter]] = {}

    def __len__(self) -> int:
        return sum(map(len, (*self.prompts.values(), *self.resources.values())))

    async def complete(self, ctx: Context[Any], params: CompleteParams) -> CompleteResult:
        """`completion/complete`. An argument without a completer has no suggestions."""
        reference = params.ref
        if isinstance(reference, PromptReference):
            completers, entry = self.prompts.get(reference.name), self.find_prompt(ctx, reference.name)
            if completers is None or entry is None:
                raise InvalidParams(f"Unknown prompt: {suggest(served_call(ctx).layers, 'prompts', reference.name)}")
        else:
            completers, entry = self.resources.get(reference.uri), self.find_resource(ctx, reference.uri)
            if completers is None or entry is None:
                raise InvalidParams(
                    f"Unknown resource template: {suggest(served_call(ctx).layers, 'resources', reference.uri)}"
                )
        require_scopes(ctx, entry.item.scopes)
        completer = completers.get(params.argument.name)
        if completer is None:
            return CompleteResult(completion=Completion(values=[], total=0, has_more=False))
        chosen = (params.context.arguments if params.context is not None else None) or {}
        suggestions = await completer.values(ctx, self._threads, params.argument.value, chosen)
        return CompleteResult(completion=_limited(suggestions))


def _limited(values: Values | None) -> Completion:
    """At most 100 values, and whether there are more."""
    if isinstance(values, Completion):
        values = checked(values)
        total = values.total if values.total is not None else len(values.values)
        more = values.has_more or len(values.values) > MAX_VALUES
        return Completion(values=values.values[:MAX_VALUES], total=total, has_more=more)
    if isinstance(values, str):
        raise DefinitionError(f"A completer returned the text {shorten(repr(values))}: return a list of strings")
    given: Iterable[Any] = () if values is None else values
    texts = list(map(_text, given))
    return Completion(values=texts[:MAX_VALUES], total=len(texts), has_more=len(texts) > MAX_VALUES)


def _text(value: object) -> str:
    """A suggestion as text: that of its JSON form, which is what the argument takes."""
    try:
        text = encode_value(value)
    except NotSerializable:
        return str(value)
    return msgspec.json.decode(text) if text.startswith(b'"') else text.decode()
