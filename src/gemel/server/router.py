"""The registry of handlers: what a server offers, by decorators. A Router holds some of it, to be included in a server."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from gemel.errors import DefinitionError, shorten
from gemel.options import check_option
from gemel.server.composition.include import Registries, include
from gemel.server.features.completion import Completable, Completions, RegisteredCompleter
from gemel.server.features.error_details import ERROR_DETAILS, ErrorDetails
from gemel.server.features.files import FOLDER, Files, default_uri
from gemel.server.features.options import PromptOptions, ResourceOptions, ToolOptions, check_text, with_name
from gemel.server.features.prompts import Prompts
from gemel.server.features.resources import Resources, with_scheme
from gemel.server.features.tools import Tools
from gemel.server.features.visibility import ON_DUPLICATE, OnDuplicate, Rule, View, Visibility
from gemel.server.threads import Threads

logger = logging.getLogger("gemel")

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
RuleT = TypeVar("RuleT", bound=Rule)
P = ParamSpec("P")
R = TypeVar("R")


class Router:
    """Tools, prompts and resources, registered by decorators. A `Server` is one, and can include others.

    Args:
        threads: How many sync functions of tools and prompts run at once; as many of resources.
        page_size: How many items a page of a list has; None for whole lists.
        resource_bytes: The size limit of a resource that is a file or comes in chunks.
        turn: Seconds that a call waits at most for a tool with a `concurrency` limit.
        coerce: The default of the option `coerce` of its tools.
        list_null: The default of the option `list_null` of its tools.
        on_duplicate: What happens to a tool, prompt or resource whose name or URI is taken: "error" (DefinitionError),
            "replace" (the second one counts) or "keep" (the first one does).
        error_details: Whether the text of an unexpected exception of a tool reaches the model: True, False, a list of
            exception types, or a function that gets the exception and returns the text, or None for none.
        structured_text: Whether tools that return text list an output schema, and send it as structured content, too.
    """

    def __init__(
        self,
        *,
        threads: int = 40,
        page_size: int | None = None,
        resource_bytes: int = 16 * 1024 * 1024,
        turn: float = 30.0,
        coerce: bool = False,
        list_null: bool = False,
        on_duplicate: OnDuplicate = "error",
        error_details: ErrorDetails = False,
        structured_text: bool = False,
    ) -> None:
        self._threads = Threads(threads)
        self._visibility = Visibility()
        self._completions = Completions(self._threads)
        self._tools = Tools(
            self._threads,
            self._visibility,
            lambda: self._changed("tools"),
            page_size,
            turn,
            coerce=coerce,
            list_null=list_null,
        )
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
        check_option("on_duplicate", on_duplicate, ON_DUPLICATE)
        self._tools.on_duplicate = self._prompts.on_duplicate = self._resources.on_duplicate = on_duplicate
        check_option("error_details", error_details, ERROR_DETAILS)
        self._tools.error_details = error_details
        self._tools.structured_text = structured_text
        self._completions.find_prompt = self._prompts.find
        self._completions.find_resource = self._resources.find

    def _changed(self, kind: str) -> None:
        """A list changed; a server tells its clients."""

    def include(self, router: Router, prefix: str | None = None) -> None:
        """Copy the tools, prompts and resources of a router into this one, as they are now.

        Under the prefix "weather" its tool `forecast` is `weather_forecast` here, prompts likewise; its resource
        `city://oslo` is `weather+city://oslo`. Later changes there don't show here; `Server.mount` follows them.

        Args:
            router: A Router or a Server.
            prefix: What the names begin with here; None to keep them.

        Raises:
            DefinitionError: A name is taken; nothing was copied.
        """
        if not isinstance(router, Router):
            raise DefinitionError(f"include() expects a Router or a Server, got {type(router).__name__}")
        include(self._registries(), router._registries(), prefix)

    def _registries(self) -> Registries:
        return Registries(self._tools, self._prompts, self._resources, self._completions, self._folders)

    # ---------------------------------------------------------------- who sees what

    def visibility(self, rule: RuleT) -> RuleT:
        """Decide for all tools, prompts and resources which callers see them, as a decorator.

        What a caller doesn't see doesn't exist for that caller, in lists and in calls. With several rules all must agree,
        and so must the item's own `visible=`. Lists that vary are marked `cacheScope: private`.

        Args:
            rule: `def rule(item, caller) -> bool`, a quick sync function, called once per item and list. If it raises,
                the item is hidden.

        Returns:
            The rule.

        Example:
            ```python
            @server.visibility
            def admins_only(item: Item, caller: Caller) -> bool:
                return "admin" not in item.tags or "admin" in caller.scopes
            ```
        """
        self._visibility.add_rule(rule)
        return rule

    def disable(self, *names: str, tags: Collection[str] = ()) -> None:
        """Hide items from all callers until they are enabled again; connected clients are told.

        Items that are registered later under a disabled name or tag are hidden, too. To show items to some callers only,
        use `visibility`.

        Args:
            *names: Names of tools and prompts, URIs or templates of resources.
            tags: Tags of items.

        Raises:
            KeyError: Nothing has one of the names.
        """
        self._visibility.switch(names, tags, on=False)

    def enable(self, *names: str, tags: Collection[str] = ()) -> None:
        """Undo `disable`. An item that was disabled by name and by tag shows when neither is disabled any more.

        Args:
            *names: As in `disable`.
            tags: As in `disable`.

        Raises:
            KeyError: Nothing has one of the names.
        """
        self._visibility.switch(names, tags, on=True)

    # ---------------------------------------------------------------- tools

    @overload
    def tool(self, function: FunctionT, /, **options: Unpack[ToolOptions]) -> FunctionT: ...

    @overload
    def tool(
        self, called: str | None = None, /, **options: Unpack[ToolOptions]
    ) -> Callable[[FunctionT], FunctionT]: ...

    def tool(
        self, function: FunctionT | str | None = None, /, **options: Unpack[ToolOptions]
    ) -> FunctionT | Callable[[FunctionT], FunctionT]:
        """Offer a function as a tool: `@server.tool`, `@server.tool("name", title=…)`, or `server.tool(obj.method)`.

        Name, description, schemas and descriptions of arguments come from the function: its name, its docstring (Google,
        NumPy or Sphinx style), its annotations. Sync functions run in worker threads unless `blocking=False`.

        Args:
            function: The function, or the name of the tool if this is called with options.
            **options: See `ToolOptions`.

        Returns:
            The function unchanged, or a decorator.

        Raises:
            DefinitionError: The function or an option can't be used; the message says what to change.

        Specification: server/tools.
        """
        if function is None or isinstance(function, str):
            named = with_name("@server.tool", function, options)
            return lambda decorated: self._add_tool(decorated, named)
        return self._add_tool(function, options)

    def _add_tool(self, function: FunctionT, options: Mapping[str, Any]) -> FunctionT:
        self.add_tool(function, options)
        return function

    def add_tool(self, function: Callable[..., Any], options: Mapping[str, Any], *, view: View | None = None) -> None:
        """Register a tool as `tool` does; for extensions.

        Args:
            function: The function.
            options: The options of `tool`.
            view: `def view(listing, caller)`, which returns the listing that a caller sees, or None to hide the tool.

        Raises:
            DefinitionError: The function or an option can't be used.
        """
        self._tools.add(function, options, view=view)

    def remove_tool(self, name: str) -> None:
        """Remove a tool; connected clients are told.

        Args:
            name: The name of the tool.

        Raises:
            KeyError: There is no such tool.
        """
        self._tools.remove(name)

    # ---------------------------------------------------------------- prompts

    @overload
    def prompt(self, function: Callable[P, R], /, **options: Unpack[PromptOptions]) -> Completable[P, R]: ...

    @overload
    def prompt(
        self, called: str | None = None, /, **options: Unpack[PromptOptions]
    ) -> Callable[[Callable[P, R]], Completable[P, R]]: ...

    def prompt(
        self, function: Callable[P, R] | str | None = None, /, **options: Unpack[PromptOptions]
    ) -> Completable[P, R] | Callable[[Callable[P, R]], Completable[P, R]]:
        """Offer a function as a prompt: `@server.prompt`, `@server.prompt("name", title=…)`.

        It returns a string, a content block, a `Message`, or a list of these. Its arguments arrive as strings and are
        parsed by their annotations. `@function.complete("argument")` registers a completer for an argument.

        Args:
            function: The function, or the name of the prompt if this is called with options.
            **options: See `PromptOptions`.

        Returns:
            The function, which has got the attribute `complete`, or a decorator.

        Raises:
            DefinitionError: The function or an option can't be used; the message says what to change.

        Specification: server/prompts.
        """
        if function is None or isinstance(function, str):
            named = with_name("@server.prompt", function, options)
            return lambda decorated: self._add_prompt(decorated, named)
        return self._add_prompt(function, options)

    def _add_prompt(self, function: Callable[P, R], options: Mapping[str, Any]) -> Completable[P, R]:
        entry = self._prompts.add(function, options)
        names = [item.wire_name for item in entry.signature.parameters]
        counts = self._prompts.all[entry.prompt.name] is entry
        return Completable(function, names, self._completions.prompts[entry.prompt.name] if counts else {})

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt; connected clients are told.

        Args:
            name: The name of the prompt.

        Raises:
            KeyError: There is no such prompt.
        """
        self._prompts.remove(name)

    # ---------------------------------------------------------------- resources

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[Callable[P, R]], Completable[P, R]]:
        """Offer a function as a resource: `@server.resource("weather://{city}/now")`.

        With variables (RFC 6570) the URI is a template of many resources, and each variable is a parameter of the function,
        parsed by its annotation; `@function.complete("city")` registers a completer for one.

        The function returns text, bytes, a `ResourceContents`, a list of these, any JSON value, or chunks of text or bytes:
        an iterator, an async iterator or an open file; it may be a generator. If it returns None, or raises
        ResourceNotFound, there is no such resource.

        Args:
            uri: The URI, or a URI template. One without a scheme is offered with `resource://` before it, with a warning.
            **options: See `ResourceOptions`.

        Returns:
            A decorator. It returns the function, which has got the attribute `complete`.

        Raises:
            DefinitionError: The URI, the function or an option can't be used; the message says what to change.

        Specification: server/resources.
        """
        check_text(uri, 'A resource needs a URI: write @server.resource("scheme://path")')
        offered = with_scheme(uri)

        def register(function: Callable[P, R]) -> Completable[P, R]:
            entry = self._resources.add(offered, function, options)
            if offered != uri:
                logger.warning(
                    "%s", entry.signature.place.mistake(f"{shorten(uri)!r} has no scheme: offered as {offered!r}")
                )
            names = [item.wire_name for item in entry.signature.parameters]
            counts = self._resources.all[offered] is entry
            return Completable(function, names, self._completions.resources[offered] if counts else {})

        return register

    def remove_resource(self, uri: str) -> None:
        """Remove a resource, a template, or what `add_files` added; connected clients are told.

        Args:
            uri: The URI or template.

        Raises:
            KeyError: There is no such resource.
        """
        uri = with_scheme(uri)
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
        """Offer a file, or all files of a folder, as resources.

        A folder is a resource that lists its entries, and a template for what is below it. Symlinks are resolved first;
        nothing outside of the root is ever read.

        Args:
            root: The file or folder.
            uri: Its URI; `file:///` and its name by default.
            hidden: Whether names that begin with a dot can be read.
            **options: See `ResourceOptions`.

        Raises:
            DefinitionError: There is no such file, or an option can't be used.
        """
        prefix = default_uri(root) if uri is None else uri
        files = Files(root, prefix, hidden=hidden, limit=self._resource_bytes, mime_type=options.get("mime_type"))
        texts: ResourceOptions = {"name": os.path.basename(os.path.realpath(root)), "description": "", **options}
        if files.single:
            self._resources.add(prefix, files.read_root, {"size": os.path.getsize(root), **texts})
            return
        self._resources.add(prefix, files.read_root, {**texts, "mime_type": FOLDER})
        self._resources.add(prefix + "{+path}", files.read, texts, exists=files.exists)
        self._completions.resources[prefix + "{+path}"]["path"] = RegisteredCompleter(files.complete)
        self._folders.add(prefix)
