"""Routers included in servers: copied once, under a prefix or not, and never half."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gemel import Client, Context, DefinitionError, PeerError, ResourceLink, Router, Server

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


def notes() -> Router:
    router = Router()

    @router.tool(title="Add a note", tags={"writes"})
    async def add(text: str) -> str:
        """Add one."""
        return f"added {text}"

    @router.tool
    async def latest() -> ResourceLink:
        return ResourceLink(uri="note://latest", name="latest")

    @router.resource("note://{name}")
    def note(name: str) -> str:
        return f"the note {name}"

    @note.complete("name")
    def names(value: str) -> list[str]:
        return [f"{value}test"]

    @router.resource("note://latest")
    def newest() -> str:
        return "the newest"

    @router.prompt
    def write(topic: str) -> str:
        """Write one."""
        return f"Write about {topic}"

    @write.complete("topic")
    def topics(value: str) -> list[str]:
        return [f"{value}ea"]

    return router


@both_eras
async def test_what_a_router_holds_becomes_the_servers_own(era: Any) -> None:
    server: Server[Any] = Server("server")
    server.include(notes())
    async with Client(server, era=era) as client:
        tools = await client.list_tools()
        assert [(tool.name, tool.description) for tool in tools] == [("add", "Add one."), ("latest", None)]
        assert (await client.call_tool("add", {"text": "x"})).text == "added x"
        assert (await client.read_resource("note://a")).contents[0].text == "the note a"
        assert (await client.get_prompt("write", {"topic": "tea"})).messages
        assert (await client.complete(prompt="write", argument="topic", value="t")).values == ["tea"]


@both_eras
async def test_a_prefix_is_on_names_uris_links_and_completions(era: Any) -> None:
    server: Server[Any] = Server("server")
    server.include(notes(), prefix="n")
    server.include(notes(), prefix="again")
    async with Client(server, era=era) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert names == ["n_add", "n_latest", "again_add", "again_latest"]
        assert (await client.call_tool("n_add", {"text": "x"})).text == "added x"
        (link,) = (await client.call_tool("n_latest")).content
        assert isinstance(link, ResourceLink)
        assert link.uri == "n+note://latest"
        read = (await client.read_resource(link.uri)).contents[0]
        assert (read.uri, read.text) == (link.uri, "the newest")
        assert (await client.read_resource("n+note://a")).contents[0].text == "the note a"
        templates = [one.uri_template for one in await client.list_resource_templates()]
        assert templates == ["n+note://{name}", "again+note://{name}"]
        assert (await client.complete(resource=templates[0], argument="name", value="la")).values == ["latest"]
        assert (await client.complete(prompt="n_write", argument="topic", value="t")).values == ["tea"]
        with pytest.raises(PeerError):
            await client.read_resource("note://a")


async def test_it_is_a_copy(tmp_path: Path) -> None:
    router, server = notes(), Server[Any]("server")
    server.include(router)
    router.tool("later")(lambda: "")
    router.remove_tool("add")
    async with Client(server) as client:
        assert [tool.name for tool in await client.list_tools()] == ["add", "latest"]
        server.remove_tool("add")
        assert [tool.name for tool in await client.list_tools()] == ["latest"]


@both_eras
async def test_files_are_found_under_the_prefix(era: Any, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.txt").write_text("hello")
    router = Router()
    router.add_files(tmp_path, "files:///")
    server: Server[Any] = Server("server")
    server.include(router, prefix="my")
    async with Client(server, era=era) as client:
        assert (await client.read_resource("my+files:///a/b.txt")).contents[0].text == "hello"
        async with client.listen(resources=["my+files:///a/b.txt"]) as changes:
            assert changes.honoured.resource_subscriptions == ["my+files:///a/b.txt"]
        server.remove_resource("my+files:///")
        with pytest.raises(PeerError):
            await client.read_resource("my+files:///a/b.txt")


@pytest.mark.parametrize("kind", ["tool", "prompt", "resource"])
def test_a_name_that_is_taken_is_refused_with_both_and_nothing_is_copied(kind: str) -> None:
    server: Server[Any] = Server("server")

    def mine() -> str:
        return "mine"

    if kind == "resource":
        server.resource("note://latest")(mine)
    else:
        getattr(server, kind)({"tool": "add", "prompt": "write"}[kind])(mine)
    with pytest.raises(DefinitionError) as refused:
        server.include(notes())
    theirs = {"tool": "add", "prompt": "write", "resource": "newest"}[kind]
    assert f"{__name__}.{mine.__qualname__}" in str(refused.value)
    assert f"{__name__}.notes.<locals>.{theirs}" in str(refused.value)
    assert len(server._tools) == (kind == "tool")
    server.include(notes(), prefix="n")


@both_eras
async def test_switches_and_rules_are_those_of_who_includes(era: Any) -> None:
    server: Server[Any] = Server("server")
    server.include(notes(), prefix="n")
    server.disable(tags={"writes"})
    async with Client(server, era=era) as client:
        assert [tool.name for tool in await client.list_tools()] == ["n_latest"]
        server.enable(tags={"writes"})
        server.disable("n_latest")
        assert [tool.name for tool in await client.list_tools()] == ["n_add"]


@both_eras
async def test_an_included_tool_has_the_context_of_who_includes(era: Any) -> None:
    router = Router()

    @router.tool
    async def ask(ctx: Context[Any]) -> str:
        return await ctx.elicit("Who?", str)

    server: Server[Any] = Server("server")
    server.include(router, prefix="r")
    async with Client(server, era=era, on_elicit=lambda form: {"value": "me"}) as client:
        assert (await client.call_tool("r_ask")).text == "me"
