"""Completion of prompt arguments and template variables: one function for each, found by what is being completed."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

from hinge.errors import DefinitionError, InvalidParams, shorten
from hinge.schema.completion import MAX_VALUES, CompleteParams, CompleteResult, Completion, PromptReference
from hinge.server.context import Context
from hinge.server.threads import Threads

P = ParamSpec("P")
R = TypeVar("R")

Values: TypeAlias = Completion | Iterable[str]
#: `(value)` or `(value, arguments)`: what stands there so far, and what was chosen for other arguments.
Completer: TypeAlias = Callable[..., Values | Awaitable[Values]]


class Completable(Generic[P, R]):
    """A registered function; calls go through to it, and `complete` adds completion for one of its arguments."""

    def __init__(self, function: Callable[P, R], names: Iterable[str], completers: dict[str, Completer]) -> None:
        self.__wrapped__ = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__doc__ = function.__doc__
        self._names = list(names)
        self._completers = completers

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.__wrapped__(*args, **kwargs)

    def complete(self, argument: str) -> Callable[[Completer], Completer]:
        """Complete one argument: `(value)` or `(value, arguments)` gives strings, best first, sync or async (COMP-04).

        Raises DefinitionError for an argument that the function doesn't have.
        """
        if argument not in self._names:
            near = difflib.get_close_matches(argument, self._names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(self._names) or 'none'}"
            raise DefinitionError(f"{self.__name__} has no argument {argument!r} to complete{hint}")

        def register(completer: Completer) -> Completer:
            self._completers[argument] = completer
            return completer

        return register


class Completions:
    """Every completer of one server: by prompt name and by resource URI or template."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        #: Whether a caller sees a prompt, a resource or a template: what is hidden from him completes nothing.
        self.sees_prompt: Callable[[Context[Any], str], bool] = lambda ctx, name: True
        self.sees_resource: Callable[[Context[Any], str], bool] = lambda ctx, uri: True
        self.prompts: dict[str, dict[str, Completer]] = {}
        self.resources: dict[str, dict[str, Completer]] = {}

    def __len__(self) -> int:
        return sum(map(len, (*self.prompts.values(), *self.resources.values())))

    async def complete(self, ctx: Context[Any], params: CompleteParams) -> CompleteResult:
        """`completion/complete`; an argument without a completer has no suggestions (COMP-05)."""
        reference = params.ref
        if isinstance(reference, PromptReference):
            known = self.prompts.get(reference.name)
            if known is None or not self.sees_prompt(ctx, reference.name):
                raise InvalidParams(f"Unknown prompt: {shorten(reference.name)}")
        else:
            known = self.resources.get(reference.uri)
            if known is None or not self.sees_resource(ctx, reference.uri):
                raise InvalidParams(f"Unknown resource template: {shorten(reference.uri)}")
        completer = known.get(params.argument.name)
        if completer is None:
            return CompleteResult(completion=Completion(values=[], total=0, has_more=False))
        chosen = (params.context.arguments if params.context is not None else None) or {}
        return CompleteResult(completion=_limited(await self._ask(completer, params.argument.value, chosen)))

    async def _ask(self, completer: Completer, value: str, chosen: Mapping[str, str]) -> Values:
        arguments: dict[str, Any] = {}
        names = list(inspect.signature(completer).parameters)
        for name, given in zip(names, (value, chosen), strict=False):
            arguments[name] = given
        if inspect.iscoroutinefunction(completer):
            found: Values = await completer(**arguments)
            return found
        result: Values = await self._threads.run(completer, arguments)
        return result


def _limited(values: Values) -> Completion:
    """At most 100 values, saying whether there were more."""
    if isinstance(values, Completion):
        total = values.total if values.total is not None else len(values.values)
        more = values.has_more or len(values.values) > MAX_VALUES
        return Completion(values=values.values[:MAX_VALUES], total=total, has_more=more)
    found = [str(value) for value in values]
    return Completion(values=found[:MAX_VALUES], total=len(found), has_more=len(found) > MAX_VALUES)
