"""Lists are encoded once for callers that see the same, and stay right whatever changes."""

from __future__ import annotations

from typing import Any

from gemel import AccessLog, Client, Context, Server
from gemel.schema.tools import ListToolsResult
from tests.server.bare_end import BareEnd
from tests.support import Origin

ANNA, BEN = Origin(principal="anna"), Origin(principal="ben")


def kitchen() -> Server[Any]:
    server: Server[Any] = Server("kitchen")

    @server.tool
    async def sizes() -> list[int]:
        return [1]

    @server.tool
    async def cook(dish: str) -> str:
        return dish

    return server


async def listed(end: BareEnd) -> dict[str, Any]:
    return {tool["name"]: tool for tool in (await end.ask("tools/list"))["tools"]}


async def test_each_revision_gets_the_list_in_its_own_form() -> None:
    server = kitchen()
    async with BareEnd(server, "2025") as older, BareEnd(server, "2026") as newer:
        for _ in range(2):
            assert (await listed(older))["sizes"]["outputSchema"]["type"] == "object"
            assert (await listed(newer))["sizes"]["outputSchema"]["type"] == "array"


async def test_a_list_that_was_sent_follows_every_change() -> None:
    server = kitchen()
    async with BareEnd(server, "2026") as end:
        assert [*await listed(end)] == ["sizes", "cook"]
        server.tool("bake")(lambda: None)
        assert [*await listed(end)] == ["sizes", "cook", "bake"]
        server.disable("cook")
        assert [*await listed(end)] == ["sizes", "bake"]
        server.remove_tool("bake")
        server.enable("cook")
        assert [*await listed(end)] == ["sizes", "cook"]
        server.visibility(lambda item, caller: caller.principal == "anna")
        assert [*await listed(end)] == []


async def test_a_middleware_that_is_added_later_changes_the_list_of_each_caller() -> None:
    server = kitchen()
    server.add_middleware(AccessLog())
    async with BareEnd(server, "2026", origin=ANNA) as anna, BareEnd(server, "2026", origin=BEN) as ben:
        assert [*await listed(anna)] == [*await listed(ben)] == ["sizes", "cook"]

        @server.add_middleware
        async def adapt(ctx: Context[Any], call_next: Any) -> Any:
            result = await call_next(ctx)
            if isinstance(result, ListToolsResult):
                for tool in result.tools:
                    tool.title = f"{tool.name} for {ctx.principal}"
                if ctx.principal == "ben":
                    result.tools.pop()
            return result

        for _ in range(2):
            assert {name: tool["title"] for name, tool in (await listed(ben)).items()} == {"sizes": "sizes for ben"}
            assert (await listed(anna))["cook"]["title"] == "cook for anna"


async def test_a_server_that_mounts_one_that_was_listed_lists_its_tools() -> None:
    inner, outer = kitchen(), kitchen()
    async with Client(inner) as client, Client(outer) as outside:
        assert [tool.name for tool in await client.list_tools()] == ["sizes", "cook"]
        assert [tool.name for tool in await outside.list_tools()] == ["sizes", "cook"]
        outer.mount(inner, "k")
        names = [tool.name for tool in await outside.list_tools(cache="bypass")]
        assert names == ["sizes", "cook", "k_sizes", "k_cook"]
