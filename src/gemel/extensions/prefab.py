"""MCP Apps whose pages are user interfaces written in Python with Prefab: https://pypi.org/project/prefab-ui."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, Unpack, overload

from gemel.errors import DefinitionError
from gemel.extensions.apps import Apps, Audience, Csp
from gemel.options import is_async
from gemel.schema.content import TextContent
from gemel.schema.tools import CallToolResult
from gemel.server.features.options import ToolOptions
from gemel.version import missing_extra

try:
    from prefab_ui.app import PrefabApp, ResolvedTool
    from prefab_ui.components.base import Component
    from prefab_ui.renderer import get_renderer_csp, get_renderer_html
except ModuleNotFoundError as exc:
    if exc.name != "prefab_ui":
        raise
    raise ImportError(missing_extra("Interfaces of Prefab need", "prefab"), name=exc.name) from None

__all__ = ["PAGE", "PrefabApps"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

#: The URI of the page that shows the interfaces of all tools.
PAGE = "ui://prefab/renderer.html"
#: What clients that don't show pages get as text, beside the description of the interface.
_TEXT = "[Rendered Prefab UI]"


class PrefabApps(Apps):
    """MCP Apps with the page of Prefab, which shows what tools return: `apps = server.add_extension(PrefabApps())`.

        @apps.tool(audience="app")
        def add(task: str) -> list[str]: ...

        @apps.ui
        def tasks() -> PrefabApp:
            with Form(on_submit=CallTool(add)) as view: ...
            return PrefabApp(view=view)

    An interface may call the tools of its server by name, or by the function that was registered. It needs their names as they
    are: mount the server without a prefix.
    """

    def __init__(self) -> None:
        super().__init__()
        #: The names of the registered functions.
        self._names: dict[Any, str] = {}
        domains = get_renderer_csp() or {}
        self.add_page(PAGE, get_renderer_html(), name="Prefab Renderer", csp=Csp(**domains))

    @overload
    def ui(self, function: FunctionT, /) -> FunctionT: ...
    @overload
    def ui(
        self,
        called: str | None = None,
        /,
        *,
        audience: Audience = "both",
        fallback: bool = True,
        **options: Unpack[ToolOptions],
    ) -> Callable[[FunctionT], FunctionT]: ...
    def ui(
        self,
        called: Any = None,
        /,
        *,
        audience: Audience = "both",
        fallback: bool = True,
        **options: Unpack[ToolOptions],
    ) -> Any:
        """Register a function that returns a `PrefabApp` or a component of Prefab as a tool, which clients show.

        Args:
            called: The name of the tool. Default: the function's name. Or the function itself.
            audience: Who may call the tool: "model", "app" (the page), or "both".
            fallback: Whether clients that don't show pages get the tool without its page.
            **options: See ToolOptions.

        Returns:
            The decorator, which returns the function as it is.

        Raises:
            DefinitionError: An option isn't possible.
        """
        if callable(called):
            return self.ui()(called)
        options.setdefault("output_schema", None)
        register = super().tool(called, ui=PAGE, audience=audience, fallback=fallback, **options)

        def decorate(function: FunctionT) -> FunctionT:
            self._name(function, called or options.get("name"))
            register(self._rendered(function))
            return function

        return decorate

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
        """Register a function as a tool that interfaces may call, as `Apps.tool` does.

        Args:
            called: The name of the tool. Default: the function's name.
            ui: The URI of a page that clients show with the result. Default: none.
            audience: Who may call the tool: "model", "app" (the page), or "both".
            fallback: Whether clients that don't show pages get the tool without its page.
            **options: See ToolOptions.

        Returns:
            The decorator.

        Raises:
            DefinitionError: An option isn't possible.
        """
        register = super().tool(called, ui=ui, audience=audience, fallback=fallback, **options)

        def decorate(function: FunctionT) -> FunctionT:
            self._name(function, called or options.get("name"))
            return register(function)

        return decorate

    def _name(self, function: Callable[..., Any], name: str | None) -> None:
        self._names[function] = name or function.__name__

    def _resolve(self, reference: str | Callable[..., Any]) -> ResolvedTool:
        """The tool that an interface refers to, by its name or its function."""
        name = reference if isinstance(reference, str) else self._names.get(reference, reference.__name__)
        return ResolvedTool(name=name)

    def _rendered(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, which returns the description of its interface as a result."""

        def render(value: object) -> CallToolResult:
            app = PrefabApp(view=value) if isinstance(value, Component) else value
            if isinstance(app, CallToolResult):
                return app
            if not isinstance(app, PrefabApp):
                raise DefinitionError(
                    f"{function.__name__}() returned {type(app).__name__}: return a PrefabApp or a component of Prefab"
                )
            content = app.to_json(tool_resolver=self._resolve)
            return CallToolResult(content=[TextContent(text=_TEXT)], structured_content=content)

        @functools.wraps(function)
        async def awaited(*args: object, **arguments: object) -> CallToolResult:
            return render(await function(*args, **arguments))

        @functools.wraps(function)
        def plain(*args: object, **arguments: object) -> CallToolResult:
            return render(function(*args, **arguments))

        rendered: Callable[..., Any] = awaited if is_async(function) else plain
        rendered.__dict__["__signature__"] = inspect.signature(function).replace(return_annotation=CallToolResult)
        rendered.__annotations__ = {**function.__annotations__, "return": CallToolResult}
        return rendered
