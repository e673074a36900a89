"""The registry of handlers: what a server offers, by decorators. A Router holds some of it, to be included in a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from hinge.errors import DefinitionError
from hinge.server.composition.include import Registries, include
from hinge.server.features.completion import Completable, Completions, RegisteredCompleter
from hinge.server.features.files import FOLDER, Files, default_uri
from hinge.server.features.options import PromptOptions, ResourceOptions, ToolOptions, check_text, with_name
from hinge.server.features.prompts import Prompts
from hinge.server.features.resources import Resources
from hinge.server.features.tools import Tools
from hinge.server.features.visibility import Rule, View, Visibility
from hinge.server.threads import Threads

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
RuleT = TypeVar("RuleT", bound=Rule)
P = ParamSpec("P")
R = TypeVar("R")


class Router:
    """Tools, prompts and resources, registered by decorators; a Server is one, and can include others.

    `threads` sync functions run at once, of tools and prompts, and as many of resources. Lists come in pages of
    `page_size`. A resource that is a file, or comes in chunks, has `resource_bytes` at most. A call waits `turn` seconds
    at most for its turn at a tool with a `concurrency` of its own.
    """

    def __init__(
        self,
        *,
        threads: int = 40,
        page_size: int | None = None,
        resource_bytes: int = 16 * 1024 * 1024,
        turn: float = 30.0,
    ) -> None:
        self._threads = Threads(threads)
        self._visibility = Visibility()
        self._completions = Completions(self._threads)
        self._tools = Tools(self._threads, self._visibility, lambda: self._changed("tools"), page_size, turn)
        self._prompts = Prompts(
            self._threads,
            self._visibility,
            lambda: self._changed("prompts"),
            self._completions.prompts,
            page_size,
        )
        self._resource_bytes = resource_bytes
        self._folders: set[str] = set()
        self._resources = Resources(
            Threads(threads),  # of their own, so that slow tools don't hold up reading
            self._visibility,
            lambda: self._changed("resources"),
            self._completions.resources,
            page_size,
            resource_bytes,
        )
        self._completions.sees_prompt = self._prompts.sees
        self._completions.sees_resource = self._resources.sees

    def _changed(self, kind: str) -> None:
        """A list changed; a server tells its clients."""

    def include(self, router: Router, prefix: str | None = None) -> None:
        """Copy the tools, prompts and resources of a router into this one, as they are now.

        Under the prefix "weather" its tool `forecast` is `weather_forecast` here, prompts likewise; its resource
        `city://oslo` is `weather+city://oslo`. What is registered or removed there later stays there; to follow another
        server live, with its middleware and lifespan, mount it. Raises DefinitionError, and copies nothing, when a name
        is taken.
        """
        if not isinstance(router, Router):
            raise DefinitionError(f"A {type(router).__name__} can't be included: give a Router, or a Server")
        include(self._registries(), router._registries(), prefix)

    def _registries(self) -> Registries:
        return Registries(self._tools, self._prompts, self._resources, self._completions, self._folders)

    # ---------------------------------------------------------------- who sees what

    def visibility(self, rule: RuleT) -> RuleT:
        """Decide for all tools, prompts and resources who sees them: `rule(item, caller) -> bool`, as a decorator.

            @server.visibility
            def admins_only(item: Item, caller: Caller) -> bool:
                return "admin" not in item.tags or "admin" in caller.scopes

        What a caller doesn't see doesn't exist for him, in lists and in calls; where there are several rules, all must
        agree, and so must the item's own `visible=`. A rule is a plain function, asked once per item and list: it must
        be quick. One that raises hides the item. It gets what a list may depend on (see Caller). Lists that
        it varies are marked as private to their caller.
        """
        self._visibility.add_rule(rule)
        return rule

    def disable(self, *names: str, tags: Collection[str] = ()) -> None:
        """Switch off, for everybody: what has one of the names (of resources the URI or template) or one of the tags.

        It doesn't exist until it is enabled again, and neither does what is registered later under the name or with the
        tag; connected clients are told. Not for "unlocking" tools for one caller: that is what `visibility` is for.
        Raises KeyError for a name that nothing has.
        """
        self._visibility.switch(names, tags, on=False)

    def enable(self, *names: str, tags: Collection[str] = ()) -> None:
        """Undo `disable` for these names and tags. What was disabled by both is on when neither is disabled any more."""
        self._visibility.switch(names, tags, on=True)

    # ---------------------------------------------------------------- tools

    @overload
    def tool(self, function: FunctionT, /, **options: Unpack[ToolOptions]) -> FunctionT: ...

    @overload
    def tool(
        self, called: str | None = None, /, **options: Unpack[ToolOptions]
    ) -> Callable[[FunctionT], FunctionT]: ...

    def tool(self, function: Any = None, /, **options: Any) -> Any:
        """Offer a function as a tool: `@server.tool`, `@server.tool("name", title=…)`, or `server.tool(obj.method)`.

        Name, description, schemas and argument texts come from the function: its name, its docstring (Google, NumPy or
        Sphinx style), its annotations. Sync functions run in worker threads unless `blocking=False`. The function itself
        comes back unchanged. Raises DefinitionError, at once, for what can't work.
        """
        if function is None or isinstance(function, str):
            named = with_name("@server.tool", function, options)
            return lambda found: self._add_tool(found, named)
        return self._add_tool(function, options)

    def _add_tool(self, function: FunctionT, options: Mapping[str, Any]) -> FunctionT:
        self.add_tool(function, options)
        return function

    def add_tool(self, function: Callable[..., Any], options: Mapping[str, Any], *, view: View | None = None) -> None:
        """`tool` for extensions: `view(listing, caller)` says what a caller sees of the tool, None for nothing."""
        self._tools.add(function, options, view=view)

    def remove_tool(self, name: str) -> None:
        """Take a tool away; connected clients are told. Raises KeyError when there is none of that name."""
        self._tools.remove(name)

    # ---------------------------------------------------------------- prompts

    @overload
    def prompt(self, function: Callable[P, R], /, **options: Unpack[PromptOptions]) -> Completable[P, R]: ...

    @overload
    def prompt(
        self, called: str | None = None, /, **options: Unpack[PromptOptions]
    ) -> Callable[[Callable[P, R]], Completable[P, R]]: ...

    def prompt(self, function: Any = None, /, **options: Any) -> Any:
        """Offer a function as a prompt: `@server.prompt`, `@server.prompt("name", title=…)`.

        It returns a text, a content block, a `Message`, or a list of these. Its arguments come as strings and are
        read by their annotations. `@function.complete("argument")` completes an argument. Raises DefinitionError.
        """
        if function is None or isinstance(function, str):
            named = with_name("@server.prompt", function, options)
            return lambda found: self._add_prompt(found, named)
        return self._add_prompt(function, options)

    def _add_prompt(self, function: Callable[P, R], options: Mapping[str, Any]) -> Completable[P, R]:
        entry = self._prompts.add(function, options)
        names = [item.wire_name for item in entry.signature.parameters]
        return Completable(function, names, self._completions.prompts[entry.prompt.name])

    def remove_prompt(self, name: str) -> None:
        """Take a prompt away; connected clients are told. Raises KeyError when there is none of that name."""
        self._prompts.remove(name)

    # ---------------------------------------------------------------- resources

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[Callable[P, R]], Completable[P, R]]:
        """Offer a function as a resource: `@server.resource("weather://{city}/now")`; see ResourceOptions for the rest.

        With variables (RFC 6570; `Matcher` has the rules) the URI stands for many resources, and each variable is a
        parameter of the function, read by its annotation; `@function.complete("city")` completes one.

        The function returns text, bytes, a `ResourceContents`, a list of these, any JSON value, or an async iterator,
        iterator or open file of chunks; or it is a generator of chunks itself. None says that there is no such resource,
        as raising ResourceNotFound does.
        Raises DefinitionError, at once, for what can't work.
        """
        check_text(uri, 'A resource needs a URI: write @server.resource("scheme://path")')

        def register(function: Callable[P, R]) -> Completable[P, R]:
            entry = self._resources.add(uri, function, options)
            names = [item.wire_name for item in entry.signature.parameters]
            return Completable(function, names, self._completions.resources[uri])

        return register

    def remove_resource(self, uri: str) -> None:
        """Take a URI, a template, or what `add_files` added under a URI away; connected clients are told.

        Raises KeyError when there is none such.
        """
        self._resources.remove(uri)
        if uri in self._folders:
            self._folders.discard(uri)
            self._resources.remove(uri + "{+path}")

    def add_files(
        self,
        root: str | os.PathLike[str],
        uri: str | None = None,
        *,
        hidden: bool = False,
        **options: Unpack[ResourceOptions],
    ) -> None:
        """Offer a file, or all files of a folder, to be read: under `uri`, or else under `file:///` and its own name.

        A folder shows as a resource that lists its entries, and as a template for what is below it. Symlinks count
        where they lead to; nothing outside the root is ever read, and names that begin with a dot only if `hidden`.
        Raises DefinitionError.
        """
        prefix = default_uri(root) if uri is None else uri
        files = Files(root, prefix, hidden=hidden, limit=self._resource_bytes, mime_type=options.get("mime_type"))
        said: ResourceOptions = {"name": os.path.basename(os.path.realpath(root)), "description": "", **options}
        if files.single:
            self._resources.add(prefix, files.read_root, {"size": os.path.getsize(root), **said})
            return
        self._resources.add(prefix, files.read_root, {**said, "mime_type": FOLDER})
        self._resources.add(prefix + "{+path}", files.read, said, exists=files.exists)
        self._completions.resources[prefix + "{+path}"]["path"] = RegisteredCompleter(files.complete)
        self._folders.add(prefix)
