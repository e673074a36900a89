"""MCP Apps (`io.modelcontextprotocol/ui`): pages that a host shows beside a tool, and the tools that they belong to.

Knows the shape of `_meta.ui` and the rules of the 2026-01-26 text of the extension; what happens inside a page is between
page and host.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, cast, get_args

import msgspec

from hinge.errors import DefinitionError, shorten
from hinge.schema.base import Icon, Model
from hinge.schema.content import ResourceContents
from hinge.schema.tools import Tool
from hinge.server.context import Context
from hinge.server.extensions import Extension
from hinge.server.features.options import ResourceOptions, ToolOptions, check_options, with_name
from hinge.server.features.visibility import Caller

if TYPE_CHECKING:
    from hinge.server.server import Server

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

#: The MIME type of a page, which a client lists if it can show one (APP-01, APP-03).
MIME_TYPE = "text/html;profile=mcp-app"

#: Who is to call a tool: the model, the page, or both (APP-05).
Audience = Literal["model", "app", "both"]


class Csp(Model, kw_only=True):
    """What a page may reach; what isn't named here is denied by the host (APP-07, APP-09). Origins, like `https://a.org`.

    `connect_domains`: for requests and sockets; `resource_domains`: for scripts, styles, pictures, fonts;
    `frame_domains`: for frames in the page; `base_uri_domains`: for its `<base>`.
    """

    connect_domains: Sequence[str] | None = None
    resource_domains: Sequence[str] | None = None
    frame_domains: Sequence[str] | None = None
    base_uri_domains: Sequence[str] | None = None


Permission = Literal["camera", "microphone", "geolocation", "clipboardWrite"]


class PageOptions(TypedDict, total=False):
    """What can be said of a page: of it as a resource, and of how hosts show it (APP-07)."""

    name: str | None
    title: str | None
    description: str | None
    icons: Sequence[Icon | str] | None
    meta: Mapping[str, Any] | None
    tags: Collection[str]
    visible: Callable[[Caller], bool] | None
    blocking: bool
    #: What it may reach; nothing, by default.
    csp: Csp
    #: What it may use of the user's machine.
    permissions: Collection[Permission]
    #: The origin that it wants to be shown at; hosts have rules of their own for it.
    domain: str
    #: Whether the host draws a border around it; the host decides, by default.
    prefers_border: bool


class Apps(Extension):
    """The extension MCP Apps: `apps = server.add_extension(Apps())`.

        @apps.page("ui://weather/card")
        def card() -> str:
            return "<!doctype html>…"

        @apps.tool(ui="ui://weather/card")
        async def forecast(city: str) -> Day: ...

    A client that shows no pages gets the tool without its page, since what it returns says everything also in words
    (APP-02); tools that are for pages only (`audience="app"`) it doesn't get at all.
    """

    id = "io.modelcontextprotocol/ui"

    def __init__(self) -> None:
        self._server: Server[Any] | None = None
        self._pages: set[str] = set()

    def attach(self, server: Server[Any]) -> None:
        """Remember where tools and pages go."""
        self._server = server

    @staticmethod
    def shown_by(client: Context[Any] | Caller) -> bool:
        """Whether this client shows pages: it declared the extension with our MIME type, on this request (APP-01)."""
        extension = client.extension if isinstance(client, Caller) else client.client_extension
        types = (extension(Apps.id) or {}).get("mimeTypes")
        return isinstance(types, list) and MIME_TYPE in types

    # ---------------------------------------------------------------- pages

    def page(self, uri: str, /, **options: Unpack[PageOptions]) -> Callable[[FunctionT], FunctionT]:
        """Offer a function as a page: it returns an HTML5 document. `uri` begins with `ui://`.

        The function may take what any resource may take (Context, dependencies). Raises DefinitionError.
        """

        def register(function: FunctionT) -> FunctionT:
            self._add_page(uri, function, options)
            return function

        return register

    def add_page(self, uri: str, source: str | os.PathLike[str], /, **options: Unpack[PageOptions]) -> None:
        """Offer a page from a text, the document itself, or from the path of a file, read anew for each client.

        A text with no `<html` or `<!doctype html` near its beginning is refused. Raises DefinitionError, OSError.
        """

        def document() -> str:
            return source if isinstance(source, str) else _read(source)

        _check_document(uri, document())
        self._add_page(uri, document, {"name": uri.rpartition("/")[2] or uri, **options})

    def _add_page(self, uri: str, function: Callable[..., Any], options: PageOptions) -> None:
        if not uri.startswith("ui://") or "{" in uri:
            raise DefinitionError(f"The page {shorten(uri)!r} needs a URI of its own that begins with ui:// (APP-03)")
        check_options("@apps.page", options, PageOptions)
        meta = _page_meta(uri, options)
        shared = {key: value for key, value in options.items() if key in ResourceOptions.__annotations__}
        given = cast("ResourceOptions", {**shared, "mime_type": MIME_TYPE, "meta": meta})
        self._home().resource(uri, **given)(_page(function, uri, meta))
        self._pages.add(uri)

    # ---------------------------------------------------------------- tools

    def tool(
        self,
        called: str | None = None,
        /,
        *,
        ui: str,
        audience: Audience = "both",
        fallback: bool = True,
        **options: Unpack[ToolOptions],
    ) -> Callable[[FunctionT], FunctionT]:
        """Offer a function as a tool with a page: like `server.tool`, with `ui`, the URI of the page.

        `audience` says who is to call it: "model", "app" (the page), or "both". With `fallback=False` clients that
        show no pages don't get it at all. Raises DefinitionError, also when there is no such page yet.
        """
        if audience not in get_args(Audience):
            raise DefinitionError(f'audience={audience!r} is not possible: use "model", "app" or "both"')
        if ui not in self._pages:
            raise DefinitionError(
                f"There is no page {shorten(ui)!r}: offer it first, with @apps.page({shorten(ui)!r}) (APP-04)"
            )
        shown: dict[str, Any] = {"resourceUri": ui}
        if audience != "both":
            shown["visibility"] = [audience]
        meta = {**(options.get("meta") or {}), "ui": shown}
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
            self._home().add_tool(function, {**named, "meta": meta}, view=view)
            return function

        return register

    def _home(self) -> Server[Any]:
        if self._server is None:
            raise DefinitionError("These apps belong to no server yet: write apps = server.add_extension(Apps())")
        return self._server


def _page_meta(uri: str, options: PageOptions) -> dict[str, Any] | None:
    """The `_meta` of a page: the author's own, and what hosts are to know under `ui`."""
    permissions = options.get("permissions", ())
    unknown = set(permissions).difference(get_args(Permission))
    if unknown:
        known = ", ".join(get_args(Permission))
        raise DefinitionError(f"The page {uri!r}: there is no permission {min(unknown)!r}, only {known}")
    csp = options.get("csp")
    found = {
        "csp": msgspec.to_builtins(csp) if csp is not None else None,
        "permissions": {name: dict[str, Any]() for name in permissions} or None,
        "domain": options.get("domain"),
        "prefersBorder": options.get("prefers_border"),
    }
    ui = {key: value for key, value in found.items() if value is not None}
    return {**(options.get("meta") or {}), **({"ui": ui} if ui else {})} or None


def _page(function: Callable[..., Any], uri: str, meta: dict[str, Any] | None) -> Callable[..., Any]:
    """The function of a resource whose contents carry the page's `_meta` (APP-08)."""

    def contents(document: Any) -> ResourceContents:
        if not isinstance(document, str):
            raise DefinitionError(
                f"The page {uri!r} returned {type(document).__name__}: return the HTML document, a str"
            )
        _check_document(uri, document)
        return ResourceContents(uri=uri, text=document, mime_type=MIME_TYPE, meta=meta)

    @functools.wraps(function)
    async def awaited(**arguments: Any) -> ResourceContents:
        return contents(await function(**arguments))

    @functools.wraps(function)
    def plain(**arguments: Any) -> ResourceContents:
        return contents(function(**arguments))

    return awaited if inspect.iscoroutinefunction(function) else plain


def _check_document(uri: str, document: str) -> None:
    beginning = document[:1000].lower()
    if "<!doctype html" not in beginning and "<html" not in beginning:
        raise DefinitionError(f"The page {uri!r} is no HTML document: it must begin with <!doctype html> (APP-03)")


def _read(path: str | os.PathLike[str]) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _without_page(listing: Tool) -> Tool:
    """The tool for a client that shows no pages."""
    meta = {key: value for key, value in (listing.meta or {}).items() if key != "ui"}
    return msgspec.structs.replace(listing, meta=meta or None)
