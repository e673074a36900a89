"""MCP Apps whose pages are written with Prefab: what clients list, read, and get from calls."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from gemel import Context, Server
from tests.server.bare_end import BareEnd, Era

pytest.importorskip("prefab_ui")
from prefab_ui.actions.mcp import CallTool  # an extra that need not be installed
from prefab_ui.app import PrefabApp
from prefab_ui.components import Button, Column, Heading

from gemel.extensions.prefab import PAGE, PrefabApps  # needs prefab_ui

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
SHOWS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}


def tasks() -> Server[Any]:
    apps = PrefabApps()

    @apps.tool("add_task", audience="app")
    def add(task: str) -> list[str]:
        return [task]

    @apps.tool()
    def count() -> int:
        return 1

    def elsewhere() -> None: ...

    @apps.ui(title="Tasks", audience="model")
    def show(kind: Literal["open", "done"] = "open") -> PrefabApp:
        """Show the tasks."""
        with Column() as view:
            Heading(kind)
            for tool in (add, "count", elsewhere):
                Button("Call", on_click=CallTool(tool))
        return PrefabApp(view=view, state={"kind": kind})

    @apps.ui
    async def later(ctx: Context[Any]) -> Column:
        with Column() as view:
            Heading(ctx.method)
        return view

    @apps.ui("wrong")
    def text() -> Any:
        return "text"

    return Server("tasks", extensions=[apps])


@both_eras
async def test_tools_with_interfaces_have_the_page_of_prefab(era: Era) -> None:
    """APP-04, APP-05."""
    async with BareEnd(tasks(), era, capabilities=SHOWS) as end:
        tools = {tool["name"]: tool for tool in (await end.ask("tools/list"))["tools"]}
        assert {name: (tool.get("_meta") or {}).get("ui") for name, tool in tools.items()} == {
            "add_task": {"visibility": ["app"]},
            "count": None,
            "show": {"resourceUri": PAGE, "visibility": ["model"]},
            "later": {"resourceUri": PAGE},
            "wrong": {"resourceUri": PAGE},
        }
        assert tools["show"]["title"] == "Tasks"
        assert tools["show"]["description"] == "Show the tasks."
        assert tools["show"]["inputSchema"]["properties"]["kind"]["enum"] == ["open", "done"]
        assert not any("outputSchema" in tools[name] for name in ("show", "later", "wrong"))


@both_eras
async def test_the_page_is_that_of_the_installed_prefab(era: Era) -> None:
    """APP-03, APP-07."""
    async with BareEnd(tasks(), era) as end:
        (listed,) = (await end.ask("resources/list"))["resources"]
        (contents,) = (await end.ask("resources/read", {"uri": PAGE}))["contents"]
        assert listed["mimeType"] == contents["mimeType"] == "text/html;profile=mcp-app"
        assert contents["text"].lstrip().lower().startswith("<!doctype html")
        origins = listed["_meta"]["ui"]["csp"]["resourceDomains"]
        assert all(origin.startswith("https://") for origin in origins)


@both_eras
async def test_a_call_returns_the_interface_which_names_the_tools_of_the_server(era: Era) -> None:
    async with BareEnd(tasks(), era, capabilities=SHOWS) as end:
        result = await end.call_tool("show", kind="done")
        content = result["structuredContent"]
        assert content["state"] == {"kind": "done"}
        assert "done" in str(content["view"])
        assert [name for name in ("add_task", "count", "elsewhere") if f"'{name}'" in str(content["view"])] == [
            "add_task",
            "count",
            "elsewhere",
        ]
        assert "tools/call" in str((await end.call_tool("later"))["structuredContent"]["view"])


async def test_a_function_that_returns_no_interface_is_the_authors_mistake(caplog: pytest.LogCaptureFixture) -> None:
    async with BareEnd(tasks(), capabilities=SHOWS) as end:
        assert (await end.call_tool("wrong"))["isError"]
    assert "text() returned str: return a PrefabApp or a component of Prefab" in caplog.text


@both_eras
async def test_clients_that_show_no_pages_get_the_interface_as_data(era: Era) -> None:
    """EXT-04."""
    async with BareEnd(tasks(), era) as end:
        assert await end.names() == ["count", "show", "later", "wrong"]
        assert (await end.call_tool("show"))["structuredContent"]["state"] == {"kind": "open"}
