"""The registry of handlers: what a server offers, by decorators. A Router holds some of it, to be included in a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from hinge.schema.base import Icon
from hinge.schema.tools import ToolAnnotations
from hinge.server.completion import Completable, Completions
from hinge.server.prompts import Prompts
from hinge.server.threads import Threads
from hinge.server.tools import Tools

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")


class Router:
    """Tools, prompts and resources, registered by decorators; a Server is one, and can include others."""

    def __init__(self, *, threads: int = 40, page_size: int | None = None) -> None:
        self._threads = Threads(threads)
        self._completions = Completions(self._threads)
        self._tools = Tools(self._threads, lambda: self._changed("tools"), page_size)
        self._prompts = Prompts(self._threads, lambda: self._changed("prompts"), self._completions.prompts, page_size)

    def _changed(self, kind: str) -> None:
        """A list changed; a server tells its clients."""

    # ---------------------------------------------------------------- tools

    @overload
    def tool(self, function: FunctionT, /) -> FunctionT: ...

    @overload
    def tool(
        self,
        name: str | None = None,
        /,
        *,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | Mapping[str, Any] | None = None,
        icons: Sequence[Icon | str] | None = None,
        meta: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = ...,
        blocking: bool = True,
    ) -> Callable[[FunctionT], FunctionT]: ...

    def tool(self, function: Any = None, /, **options: Any) -> Any:
        """Offer a function as a tool: `@server.tool`, `@server.tool("name", title=…)`, or `server.tool(obj.method)`.

        Name, description, schemas and argument texts come from the function: its name, its docstring (Google, NumPy or
        Sphinx style), its annotations. Sync functions run in worker threads unless `blocking=False`. The function itself
        comes back unchanged. Raises DefinitionError, at once, for what can't work.
        """
        if function is None or isinstance(function, str):
            return lambda found: self._add_tool(found, name=function, **options)
        return self._add_tool(function, **options)

    def _add_tool(self, function: FunctionT, *, name: str | None = None, **options: Any) -> FunctionT:
        blocking, description = options.pop("blocking", True), options.pop("description", None)
        self._tools.add(function, name=name, description=description, blocking=blocking, listing=options)
        return function

    def remove_tool(self, name: str) -> None:
        """Take a tool away; connected clients are told. Raises KeyError when there is none of that name."""
        self._tools.remove(name)

    # ---------------------------------------------------------------- prompts

    @overload
    def prompt(self, function: Callable[P, R], /) -> Completable[P, R]: ...

    @overload
    def prompt(
        self,
        name: str | None = None,
        /,
        *,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon | str] | None = None,
        meta: Mapping[str, Any] | None = None,
        blocking: bool = True,
    ) -> Callable[[Callable[P, R]], Completable[P, R]]: ...

    def prompt(self, function: Any = None, /, **options: Any) -> Any:
        """Offer a function as a prompt: `@server.prompt`, `@server.prompt("name", title=…)`.

        It returns a text, a content block, a `PromptMessage`, or a list of these. Its arguments come as strings and are
        read by their annotations. `@function.complete("argument")` completes an argument. Raises DefinitionError.
        """
        if function is None or isinstance(function, str):
            return lambda found: self._add_prompt(found, name=function, **options)
        return self._add_prompt(function, **options)

    def _add_prompt(
        self, function: Callable[P, R], *, name: str | None = None, blocking: bool = True, **listing: Any
    ) -> Completable[P, R]:
        entry = self._prompts.add(function, name=name, blocking=blocking, listing=listing)
        names = [item.wire_name for item in entry.signature.parameters]
        return Completable(function, names, self._completions.prompts[entry.prompt.name])

    def remove_prompt(self, name: str) -> None:
        """Take a prompt away; connected clients are told. Raises KeyError when there is none of that name."""
        self._prompts.remove(name)
