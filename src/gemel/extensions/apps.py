"""MCP Apps (`io.modelcontextprotocol/ui`, revision 2026-01-26): HTML pages that a client shows for a tool.

https://github.com/modelcontextprotocol/ext-apps
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, cast, get_args

import msgspec

from gemel.errors import DefinitionError, shorten
from gemel.extensions.base import Extension
from gemel.schema.base import Model
from gemel.schema.content import ResourceContents
from gemel.schema.tools import Tool
from gemel.server.context import Context
from gemel.server.features.options import ItemOptions, ResourceOptions, ToolOptions, check_options, with_name
from gemel.server.features.visibility import Caller

if TYPE_CHECKING:
    from gemel.server.server import Server

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

#: The MIME type of a page; clients that show pages declare it.
MIME_TYPE = "text/html;profile=mcp-app"

#: Who may call a tool: the model, the page, or both.
Audience = Literal["model", "app", "both"]


class Csp(Model, kw_only=True):
    """The content security policy of a page: origins, such as `https://a.org`. The client blocks all others.

    Sent as `_meta.ui.csp` (MCP Apps, section "UI Resource Format").

    Args:
        connect_domains: For requests and WebSockets.
        resource_domains: For scripts, styles, images and fonts.
        frame_domains: For frames in the page.
        base_uri_domains: For its `<base>`.
    """

    connect_domains: Sequence[str] | None = None
    resource_domains: Sequence[str] | None = None
    frame_domains: Sequence[str] | None = None
    base_uri_domains: Sequence[str] | None = None


Permission = Literal["camera", "microphone", "geolocation", "clipboardWrite"]


class PageOptions(ItemOptions, total=False):
    """The options of a page, all optional: those of a resource, and how clients show it.

    MCP Apps, section "UI Resource Format".
    """

    #: The origins that the page may reach. Default: none.
    csp: Csp
    #: The browser features that the page asks for. Default: none.
    permissions: Collection[Permission]
    #: The origin that the page asks to be shown at; clients have rules of their own for it.
    domain: str
    #: Whether the client draws a border around the page. Default: the client decides.
    prefers_border: bool


class Apps(Extension):
    """The protocol extension MCP Apps: `apps = server.add_extension(Apps())`.

        @apps.page("ui://weather/card")
        def card() -> str:
            return "<!doctype html>…"

        @apps.tool(ui="ui://weather/card")
        async def forecast(city: str) -> Day: ...

    Pages and tools may be registered in any order, also before the server is made with `extensions=[apps]`.

    Clients that don't show pages get the tool without its page, so its result must say everything in text as well; tools
    for pages only (`audience="app"`) are hidden from them.
    """

    id = "io.modelcontextprotocol/ui"

    def __init__(self) -> None:
        self._server: Server[Any] | None = None
        #: What was registered before there was a server.
        self._waiting: list[Callable[[Server[Any]], None]] = []
        self._pages: set[str] = set()
        #: The page of each tool that has one.
        self._shown: dict[str, str] = {}

    def attach(self, server: Server[Any]) -> None:
        """Called by `server.add_extension`.

        Args:
            server: The server that tools and pages are added to.
        """
        self._server = server
        for register in self._waiting:
            register(server)
        self._waiting.clear()

    def check(self) -> None:
        """Check that the pages of all tools are registered.

        Raises:
            DefinitionError: One is not.
        """
        for tool, page in self._shown.items():
            if page not in self._pages:
                raise DefinitionError(
                    f"The tool {tool!r} has the page {shorten(page)!r}, which is not registered: "
                    f"write @apps.page({shorten(page)!r})"
                )

    def _register(self, register: Callable[[Server[Any]], None]) -> None:
        """Register something at the server, or when there is one."""
        if self._server is None:
            self._waiting.append(register)
        else:
            register(self._server)

    @staticmethod
    def shown_by(client: Context[Any] | Caller) -> bool:
        """Whether a client shows pages: it declared the extension with the MIME type of pages.

        Args:
            client: The context of a request, or the Caller in a visibility condition.

        Returns:
            Whether it does.
        """
        extension = client.extension if isinstance(client, Caller) else client.client_extension
        types = (extension(Apps.id) or {}).get("mimeTypes")
        return isinstance(types, list) and MIME_TYPE in types

    # ---------------------------------------------------------------- pages

    def page(self, uri: str, /, **options: Unpack[PageOptions]) -> Callable[[FunctionT], FunctionT]:
        """Register a function that returns a page, an HTML5 document.

        Args:
            uri: The URI of the page; it begins with `ui://`.
            **options: See PageOptions.

        Returns:
            The decorator. The function may take a Context and dependencies, like any resource.

        Raises:
            DefinitionError: The URI or an option isn't possible.
        """

        def register(function: FunctionT) -> FunctionT:
            self._add_page(uri, function, options)
            return function

        return register

    def add_page(self, uri: str, source: str | os.PathLike[str], /, **options: Unpack[PageOptions]) -> None:
        """Register a page from a string or a file.

        Args:
            uri: The URI of the page; it begins with `ui://`.
            source: The HTML document as a string, or the path of a file that is read for each request.
            **options: See PageOptions.

        Raises:
            DefinitionError: The URI or an option isn't possible, or the document isn't HTML.
            OSError: The file can't be read.
        """

        def document() -> str:
            return source if isinstance(source, str) else _read(source)

        _check_document(uri, document())
        self._add_page(uri, document, {"name": uri.rpartition("/")[2] or uri, **options})

    def _add_page(self, uri: str, function: Callable[..., Any], options: PageOptions) -> None:
        if not uri.startswith("ui://") or "{" in uri:
            raise DefinitionError(f"The page {shorten(uri)!r} needs a URI that begins with ui://")
        check_options("@apps.page", options, PageOptions)
        meta = _page_meta(uri, options)
        shared = {key: value for key, value in options.items() if key in ResourceOptions.__annotations__}
        given = cast("ResourceOptions", {**shared, "mime_type": MIME_TYPE, "meta": meta})
        page = _page(function, uri, meta)

        def register(server: Server[Any]) -> None:
            server.resource(uri, **given)(page)

        self._register(register)
        self._pages.add(uri)

    # ---------------------------------------------------------------- tools

    def tool(
        self,
        called: str | None = None,
        /,
        *,
        ui: str | None = None,
        audience: Audience = "both",
        fallback: bool = True,
        **options: Unpack[ToolOptions],
    ) -> Callable[[FunctionT], FunctionT]:
        """Register a function as a tool with a page, like `server.tool`.

        Args:
            called: The name of the tool. Default: the function's name.
            ui: The URI of the page that clients show with the result. Default: none, for tools that pages call.
            audience: Who may call the tool: "model", "app" (the page), or "both".
            fallback: Whether clients that don't show pages get the tool without its page.
            **options: See ToolOptions.

        Returns:
            The decorator.

        Raises:
            DefinitionError: An option isn't possible.
        """
        if audience not in get_args(Audience):
            raise DefinitionError(f'audience={audience!r} is not possible: use "model", "app" or "both"')
        shown: dict[str, Any] = {} if ui is None else {"resourceUri": ui}
        if audience != "both":
            shown["visibility"] = [audience]
        meta = {**(options.get("meta") or {}), **({"ui": shown} if shown else {})}
        named = with_name("@apps.tool", called, options)
        condition = options.get("visible")
        plain = fallback and audience != "app"

        def view(listing: Tool, caller: Caller) -> Tool | None:
            if condition is not None and not condition(caller):
                return None
            if self.shown_by(caller):
                return listing
            return _without_page(listing) if plain else None

        def register(function: FunctionT) -> FunctionT:
            self._register(lambda server: server.add_tool(function, {**named, "meta": meta or None}, view=view))
            if ui is not None:
                self._shown[named.get("name") or function.__name__] = ui
            return function

        return register


def tools_for_model(tools: Iterable[Tool]) -> list[Tool]:
    """Select the tools that a host may offer to its model, for clients that show pages.

    A tool may be for its page alone; see https://github.com/modelcontextprotocol/ext-apps, "Tool Visibility".

    Args:
        tools: The tools that a server lists.

    Returns:
        The same without those whose visibility doesn't include the model.
    """
    return [tool for tool in tools if _is_for_model(tool)]


def _is_for_model(tool: Tool) -> bool:
    ui = (tool.meta or {}).get("ui")
    visibility = ui.get("visibility") if isinstance(ui, dict) else None
    return not isinstance(visibility, list) or "model" in visibility


def _page_meta(uri: str, options: PageOptions) -> dict[str, Any] | None:
    """The `_meta` of a page: the author's own, and `ui` for the client."""
    permissions = options.get("permissions", ())
    unknown = set(permissions).difference(get_args(Permission))
    if unknown:
        possible = ", ".join(get_args(Permission))
        raise DefinitionError(f"The page {uri!r}: there is no permission {min(unknown)!r}, only {possible}")
    csp = options.get("csp")
    members = {
        "csp": msgspec.to_builtins(csp) if csp is not None else None,
        "permissions": {name: dict[str, Any]() for name in permissions} or None,
        "domain": options.get("domain"),
        "prefersBorder": options.get("prefers_border"),
    }
    ui = {key: value for key, value in members.items() if value is not None}
    return {**(options.get("meta") or {}), **({"ui": ui} if ui else {})} or None


def _page(function: Callable[..., Any], uri: str, meta: dict[str, Any] | None) -> Callable[..., Any]:
    """The function of a resource whose contents carry the page's `_meta`, which takes precedence over that of the listing."""

    def contents(document: object) -> ResourceContents:
        if not isinstance(document, str):
            raise DefinitionError(
                f"The page {uri!r} returned {type(document).__name__}: return the HTML document, a str"
            )
        _check_document(uri, document)
        return ResourceContents(uri=uri, text=document, mime_type=MIME_TYPE, meta=meta)

    @functools.wraps(function)
    async def awaited(**arguments: object) -> ResourceContents:
        return contents(await function(**arguments))

    @functools.wraps(function)
    def plain(**arguments: object) -> ResourceContents:
        return contents(function(**arguments))

    return awaited if inspect.iscoroutinefunction(function) else plain


def _check_document(uri: str, document: str) -> None:
    beginning = document[:1000].lower()
    if "<!doctype html" not in beginning and "<html" not in beginning:
        raise DefinitionError(f"The page {uri!r} is not an HTML document: it must begin with <!doctype html>")


def _read(path: str | os.PathLike[str]) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _without_page(listing: Tool) -> Tool:
    """The tool for a client that doesn't show pages."""
    meta = {key: value for key, value in (listing.meta or {}).items() if key != "ui"}
    return msgspec.structs.replace(listing, meta=meta or None)
