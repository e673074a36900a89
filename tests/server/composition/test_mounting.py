"""Servers in servers: what is mounted shows up under its prefix, live, in both eras, and runs through all of its server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gemel import (
    CacheHint,
    CallNext,
    CallToolResult,
    Changed,
    Client,
    Context,
    DefinitionError,
    EmbeddedResource,
    PeerError,
    ResourceContents,
    ResourceLink,
    Server,
    TextContent,
)
from gemel.server.composition.namespace import Prefix
from tests.wire.talk import Refusal, talking

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


def weather() -> Server[Any]:
    server: Server[Any] = Server("weather", version="1")

    @server.tool
    async def forecast(city: str) -> str:
        """What comes."""
        return f"sun in {city}"

    @server.tool
    async def fail() -> str:
        raise ValueError("inside")

    @server.tool
    async def where() -> list[ResourceLink | EmbeddedResource]:
        home = ResourceContents(uri="city://oslo/now", text="mild")
        return [
            ResourceLink(uri="city://oslo/now", name="now"),
            ResourceLink(uri="https://example.com/", name="page"),
            EmbeddedResource(resource=home),
        ]

    @server.resource("city://{name}/now")
    def now(name: str) -> str:
        return f"mild in {name}"

    @now.complete("name")
    def names(value: str) -> list[str]:
        return [f"{value}slo"]

    @server.resource("city://all")
    def everything() -> str:
        return "mild"

    @server.prompt
    def brief(city: str) -> str:
        """A short one."""
        return f"the weather in {city}"

    @brief.complete("city")
    def cities(value: str) -> list[str]:
        return [f"{value}ergen"]

    return server


@pytest.fixture
def inner() -> Server[Any]:
    return weather()


@pytest.fixture
def outer(inner: Server[Any]) -> Server[Any]:
    server: Server[Any] = Server("outer", version="2")

    @server.tool
    async def own() -> str:
        return "own"

    server.mount(inner, "weather")
    return server


# ---------------------------------------------------------------- names


@both_eras
async def test_everything_shows_up_under_the_prefix(outer: Server[Any], era: str) -> None:
    async with talking(outer, era) as peer:
        tools = (await peer.result("tools/list"))["tools"]
        assert [tool["name"] for tool in tools] == ["own", "weather_forecast", "weather_fail", "weather_where"]
        assert tools[1]["description"] == "What comes."
        assert [one["name"] for one in (await peer.result("prompts/list"))["prompts"]] == ["weather_brief"]
        assert [one["uri"] for one in (await peer.result("resources/list"))["resources"]] == ["weather+city://all"]
        templates = (await peer.result("resources/templates/list"))["resourceTemplates"]
        assert [one["uriTemplate"] for one in templates] == ["weather+city://{name}/now"]


@both_eras
async def test_calls_reach_the_mounted_server_by_their_outer_names(outer: Server[Any], era: str) -> None:
    async with talking(outer, era) as peer:
        called = await peer.result("tools/call", name="weather_forecast", arguments={"city": "Oslo"})
        assert called["content"] == [{"type": "text", "text": "sun in Oslo"}]
        read = await peer.result("resources/read", uri="weather+city://oslo/now")
        assert read["contents"][0] == {
            "uri": "weather+city://oslo/now",
            "text": "mild in oslo",
            "mimeType": "text/plain",
        }
        got = await peer.result("prompts/get", name="weather_brief", arguments={"city": "Oslo"})
        assert got["messages"][0]["content"]["text"] == "the weather in Oslo"
        own = await peer.result("tools/call", name="own")
        assert own["content"][0]["text"] == "own"


@both_eras
async def test_completion_follows(outer: Server[Any], era: str) -> None:
    async with talking(outer, era) as peer:
        argument = {"name": "city", "value": "b"}
        found = await peer.result(
            "completion/complete", ref={"type": "ref/prompt", "name": "weather_brief"}, argument=argument
        )
        assert found["completion"]["values"] == ["bergen"]
        ref = {"type": "ref/resource", "uri": "weather+city://{name}/now"}
        found = await peer.result("completion/complete", ref=ref, argument={"name": "name", "value": "o"})
        assert found["completion"]["values"] == ["oslo"]


@both_eras
async def test_links_in_results_can_be_read_and_those_of_the_web_stay(outer: Server[Any], era: str) -> None:
    async with talking(outer, era) as peer:
        link, page, held = (await peer.result("tools/call", name="weather_where"))["content"]
        assert (link["uri"], page["uri"]) == ("weather+city://oslo/now", "https://example.com/")
        assert held["resource"]["uri"] == link["uri"]
        assert (await peer.result("resources/read", uri=link["uri"]))["contents"]


@both_eras
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "weather_nothing"}),
        ("tools/call", {"name": "forecast"}),
        ("prompts/get", {"name": "weather_nothing"}),
        ("resources/read", {"uri": "city://all"}),
        ("resources/read", {"uri": "weather+city://nowhere/there/x"}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "brief"}, "argument": {"name": "c", "value": ""}},
        ),
    ],
)
async def test_names_that_are_nowhere_are_errors(
    outer: Server[Any], era: str, method: str, params: dict[str, Any]
) -> None:
    async with talking(outer, era) as peer:
        with pytest.raises(Refusal) as refused:
            await peer.result(method, **params)
        missing = era == "2025" and method == "resources/read"
        assert refused.value.code == (-32002 if missing else -32602)
        if method == "resources/read":
            assert refused.value.data == {"uri": params["uri"]}


@both_eras
async def test_a_failure_inside_is_the_tools_and_an_unexpected_one_stays_inside(outer: Server[Any], era: str) -> None:
    async with talking(outer, era) as peer:
        failed = await peer.result("tools/call", name="weather_fail")
        assert failed["isError"]
        assert "inside" not in failed["content"][0]["text"]


async def test_the_outer_server_signs_the_results(outer: Server[Any]) -> None:
    """REQM-07: it is the one that the client talks to."""
    async with talking(outer, "2026") as peer:
        result = await peer.result("tools/call", name="weather_forecast", arguments={"city": "Oslo"})
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "outer"


async def test_a_resource_of_a_tools_user_interface_is_found_under_the_outer_uri() -> None:
    """APP-04: whatever the prefix, the URI of a page begins with ui://."""
    inner: Server[Any] = Server("ui")

    @inner.tool(meta={"ui": {"resourceUri": "ui://page", "x": 1}, "ui/resourceUri": "ui://page", "y": 2})
    async def show() -> str:
        return ""

    outer: Server[Any] = Server("outer")
    outer.mount(inner, "a_b")
    async with talking(outer, "2026") as peer:
        (tool,) = (await peer.result("tools/list"))["tools"]
        assert tool["_meta"] == {
            "ui": {"resourceUri": "ui://a-b+page", "x": 1},
            "ui/resourceUri": "ui://a-b+page",
            "y": 2,
        }


# ---------------------------------------------------------------- live


@both_eras
async def test_what_changes_inside_shows_outside_and_is_told(outer: Server[Any], inner: Server[Any], era: Any) -> None:
    """SUB-12, SUB-14."""
    async with Client(outer, era=era) as client, client.listen(tools=True, prompts=True) as changes:

        @inner.tool
        async def later() -> str:
            return "later"

        assert await anext(changes) == Changed("tools")
        assert (await client.call_tool("weather_later")).text == "later"
        inner.remove_prompt("brief")
        assert await anext(changes) == Changed("prompts")
        assert await client.list_prompts() == []
        inner.remove_tool("later")
        assert await anext(changes) == Changed("tools")
        with pytest.raises(PeerError):
            await client.call_tool("weather_later")


@both_eras
async def test_a_resource_is_watched_through_the_outer_server(outer: Server[Any], inner: Server[Any], era: Any) -> None:
    """SUB-13, SUB-15."""
    uri = "weather+city://oslo/now"
    async with Client(outer, era=era) as client, client.listen(resources=[uri]) as changes:
        inner.notify(Changed("resource", "city://oslo/now"))
        assert await anext(changes) == Changed("resource", uri)


@both_eras
async def test_what_the_mounted_server_does_not_let_watch_is_not_watched(era: Any) -> None:
    """SUB-04."""
    inner: Server[Any] = Server("inner", authorize_subscription=lambda ctx, uri: uri == "a://open")

    @inner.resource("a://{name}")
    def item(name: str) -> str:
        return name

    outer: Server[Any] = Server("outer")
    outer.mount(inner, "in")
    uris = ["in+a://open", "in+a://closed", "a://open"]
    async with talking(outer, era) as peer:
        if era == "2026":
            await peer.begin("subscriptions/listen", notifications={"resourceSubscriptions": uris})
            honoured = await peer.hear("notifications/subscriptions/acknowledged")
            assert honoured["notifications"]["resourceSubscriptions"] == uris[:1]
        else:
            assert await peer.result("resources/subscribe", uri=uris[0]) == {}
            for uri in uris[1:]:
                with pytest.raises(Refusal):
                    await peer.result("resources/subscribe", uri=uri)


@both_eras
async def test_mounting_and_unmounting_are_told(outer: Server[Any], inner: Server[Any], era: Any) -> None:
    async with Client(outer, era=era) as client, client.listen(tools=True) as changes:
        outer.unmount(inner)
        assert await anext(changes) == Changed("tools")
        assert [tool.name for tool in await client.list_tools()] == ["own"]
        outer.mount(inner, "w")
        assert await anext(changes) == Changed("tools")
        assert (await client.call_tool("w_forecast", {"city": "Oslo"})).text == "sun in Oslo"
    with pytest.raises(KeyError):
        outer.unmount(outer)


async def test_capabilities_are_those_of_all_together(outer: Server[Any]) -> None:
    """DISC-04."""
    async with Client(outer) as client:
        found = client.server_capabilities
        assert found.tools is not None
        assert found.prompts is not None
        assert found.resources is not None
        assert found.resources.subscribe
        assert found.completions is not None


@both_eras
async def test_lists_that_nobody_adds_to_are_empty(era: str) -> None:
    inner: Server[Any] = Server("inner")
    inner.tool("hello")(lambda: "hello")
    outer: Server[Any] = Server("outer")
    outer.mount(inner, "in")
    async with talking(outer, era) as peer:
        assert (await peer.result("prompts/list"))["prompts"] == []
        assert (await peer.result("resources/list"))["resources"] == []
        for method, params in (("prompts/get", {"name": "x"}), ("resources/read", {"uri": "a:b"})):
            with pytest.raises(Refusal) as refused:
                await peer.result(method, **params)
            assert refused.value.code in (-32602, -32002)


# ---------------------------------------------------------------- the mounted server's own life


@both_eras
async def test_the_mounted_servers_middleware_and_state_are_its_own(era: Any) -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def life(server: Server[str]) -> AsyncIterator[str]:
        seen.append(f"{server.name} begins")
        yield f"state of {server.name}"
        seen.append(f"{server.name} ends")

    async def outside(ctx: Context[Any], call_next: CallNext) -> Any:
        seen.append(f"outside {ctx.method}")
        return await call_next(ctx)

    async def inside(ctx: Context[Any], call_next: CallNext) -> Any:
        seen.append(f"inside {ctx.method}")
        result = await call_next(ctx)
        return CallToolResult(content=[TextContent(text=f"<{result.text}>")]) if ctx.method == "tools/call" else result

    inner: Server[str] = Server("inner", lifespan=life, middleware=[inside])
    outer: Server[str] = Server("outer", lifespan=life, middleware=[outside])

    @inner.tool
    async def state(ctx: Context[str]) -> str:
        return ctx.state

    outer.tool("own")(state)
    outer.mount(inner, "in")
    async with Client(outer, era=era) as client:
        assert seen[:2] == ["outer begins", "inner begins"]
        assert (await client.call_tool("in_state")).text == "<state of inner>"
        assert (await client.call_tool("own")).text == "state of outer"
        assert seen.count("inside tools/call") == 1
        assert seen.count("outside tools/call") == 2
    assert seen[-2:] == ["inner ends", "outer ends"]


async def test_what_is_mounted_later_begins_with_its_first_call_and_ends_with_the_host() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def life(server: Server[None]) -> AsyncIterator[None]:
        seen.append("begins")
        yield
        seen.append("ends")

    inner: Server[None] = Server("inner", lifespan=life)
    inner.tool("hello")(lambda: "hello")
    outer: Server[Any] = Server("outer")
    async with Client(outer) as client:
        outer.mount(inner, "in")
        assert seen == []
        texts = await asyncio.gather(*(client.call_tool("in_hello") for _ in range(5)))
        assert [one.text for one in texts] == ["hello"] * 5
        assert seen == ["begins"]
    assert seen == ["begins", "ends"]


async def test_a_mounted_server_that_can_not_start_keeps_the_host_from_starting() -> None:
    left: list[str] = []

    @asynccontextmanager
    async def fails(server: Server[None]) -> AsyncIterator[None]:
        if server.name == "bad":
            raise RuntimeError("no database")
        yield

    @asynccontextmanager
    async def works(server: Server[None]) -> AsyncIterator[None]:
        yield
        left.append(server.name)

    outer: Server[Any] = Server("outer", lifespan=works)
    outer.mount(Server("good", lifespan=works), "good")
    outer.mount(Server("bad", lifespan=fails), "bad")
    with pytest.raises(RuntimeError, match="no database"):
        async with outer.running():
            pass
    assert left == ["good", "outer"]


@both_eras
async def test_a_question_in_a_mounted_server_is_asked_once_and_its_steps_run_once(era: Any) -> None:
    """MRTR-07: the state is bound to what the mounted server was asked."""
    runs: list[str] = []
    inner: Server[Any] = Server("inner")

    def charge(city: str) -> int:
        runs.append(city)
        return len(runs)

    @inner.tool
    async def book(ctx: Context[Any], city: str) -> str:
        ticket = await ctx.step(charge, city)
        day = await ctx.elicit("Which day?", str)
        seat = await ctx.elicit("Which seat?", str)
        return f"{ticket} {city} {day} {seat}"

    middle: Server[Any] = Server("middle")
    middle.mount(inner, "in")
    outer: Server[Any] = Server("outer")
    outer.mount(middle, "mid")
    asked: list[str] = []

    def answer(form: Any) -> dict[str, str]:
        asked.append(form.message)
        return {"value": form.message[6:-1]}

    async with Client(outer, era=era, on_elicit=answer) as client:
        assert (await client.call_tool("mid_in_book", {"city": "Oslo"})).text == "1 Oslo day seat"
    assert (runs, asked) == (["Oslo"], ["Which day?", "Which seat?"])


@both_eras
async def test_who_sees_what_inside_is_the_mounted_servers_business(era: str) -> None:
    inner: Server[Any] = Server("inner")

    @inner.tool(visible=lambda caller: caller.capabilities.roots is not None)
    async def secret() -> str:
        return "secret"

    inner.tool("plain")(lambda: "plain")
    inner.tool("off")(lambda: "off")
    inner.disable("off")
    outer: Server[Any] = Server("outer")
    outer.mount(inner, "in")
    cases: list[tuple[dict[str, Any], list[str]]]
    cases = [({}, ["in_plain"]), ({"roots": {}}, ["in_secret", "in_plain"])]
    for capabilities, names in cases:
        async with talking(outer, era, **capabilities) as peer:
            assert [tool["name"] for tool in (await peer.result("tools/list"))["tools"]] == names
            if not capabilities:
                with pytest.raises(Refusal):
                    await peer.result("tools/call", name="in_secret")


@pytest.mark.parametrize("varies", [False, True])
async def test_a_list_that_varies_inside_is_private_outside(varies: bool) -> None:
    hints = {"tools/list": CacheHint(60, scope="public")}
    inner: Server[Any] = Server("inner", cache=hints)
    if varies:
        inner.tool("some", visible=lambda caller: True)(lambda: "")
    inner.tool("all")(lambda: "")
    outer: Server[Any] = Server("outer", cache=hints)
    outer.tool("own")(lambda: "")
    outer.mount(inner, "in")
    async with talking(outer, "2026") as peer:
        assert (await peer.result("tools/list"))["cacheScope"] == ("private" if varies else "public")


@both_eras
async def test_one_that_fails_to_list_is_left_out_and_the_others_stay(outer: Server[Any], era: str) -> None:
    broken: Server[Any] = Server("broken")

    @broken.request("tools/list")
    async def lists(ctx: Context[Any], params: Any) -> Any:
        raise RuntimeError("away")

    broken.tool("there")(lambda: "there")
    outer.mount(broken, "broken")
    async with talking(outer, era) as peer:
        names = [tool["name"] for tool in (await peer.result("tools/list"))["tools"]]
        assert "own" in names
        assert not [name for name in names if name.startswith("broken")]
        assert (await peer.result("tools/call", name="broken_there"))["content"][0]["text"] == "there"


@both_eras
async def test_a_handler_of_the_mounted_servers_own_is_asked_and_its_extra_members_stay(era: str) -> None:
    inner: Server[Any] = Server("inner")
    inner.tool("known")(lambda: "")

    @inner.request("tools/call")
    async def call(ctx: Context[Any], params: Any) -> Any:
        return {"content": [{"type": "text", "text": params.name}]}

    outer: Server[Any] = Server("outer")
    outer.mount(inner, "in")
    async with talking(outer, era) as peer:
        assert (await peer.result("tools/call", name="in_any thing"))["content"][0]["text"] == "any thing"


# ---------------------------------------------------------------- pages and clashes


@both_eras
async def test_pages_run_over_everything_that_is_mounted(era: str) -> None:
    """PAGE-01."""
    inner: Server[Any] = Server("inner", page_size=2)
    outer: Server[Any] = Server("outer", page_size=3)
    for number in range(5):
        inner.tool(f"t{number}")(lambda: "")
        outer.tool(f"o{number}")(lambda: "")
    outer.mount(inner, "in")
    names: list[str] = []
    cursor: dict[str, str] = {}
    async with talking(outer, era) as peer:
        for _ in range(4):
            page = await peer.result("tools/list", **cursor)
            names += [tool["name"] for tool in page["tools"]]
            if "nextCursor" in page:
                assert len(page["tools"]) == 3
                cursor = {"cursor": page["nextCursor"]}
    assert names == [*(f"in_t{n}" for n in range(5)), *(f"o{n}" for n in range(5))]


@both_eras
async def test_without_a_prefix_names_stay_and_the_first_one_counts(outer: Server[Any], era: str) -> None:
    plain: Server[Any] = Server("plain")
    plain.tool("own")(lambda: "not this one")
    plain.tool("more")(lambda: "more")

    @plain.resource("p://{x}")
    def p(x: str) -> str:
        return x

    outer.mount(plain)
    async with talking(outer, era) as peer:
        names = [tool["name"] for tool in (await peer.result("tools/list"))["tools"]]
        assert names.count("own") == 1
        assert (await peer.result("tools/call", name="own"))["content"][0]["text"] == "own"
        assert (await peer.result("tools/call", name="more"))["content"][0]["text"] == "more"
        assert (await peer.result("resources/read", uri="p://1"))["contents"][0]["text"] == "1"


@both_eras
async def test_an_own_name_that_looks_mounted_stays_the_hosts(outer: Server[Any], era: str) -> None:
    outer.tool("weather_forecast")(lambda: "mine")
    async with talking(outer, era) as peer:
        assert (await peer.result("tools/call", name="weather_forecast"))["content"][0]["text"] == "mine"
        names = [tool["name"] for tool in (await peer.result("tools/list"))["tools"]]
        assert names.count("weather_forecast") == 1


@pytest.mark.parametrize("prefix", ["weather", "weather_x", "WEATHER", "", "1a", "a b", "ü", "a" * 65, "_a"])
def test_a_prefix_that_can_not_be_told_from_others_is_refused(outer: Server[Any], prefix: str) -> None:
    with pytest.raises(DefinitionError, match=r"prefix|mounted"):
        outer.mount(Server("another"), prefix)


def test_a_server_is_mounted_once_and_never_in_itself(outer: Server[Any], inner: Server[Any]) -> None:
    with pytest.raises(DefinitionError, match="contain itself"):
        outer.mount(outer, "self")
    with pytest.raises(DefinitionError, match="contain itself"):
        inner.mount(outer, "around")
    with pytest.raises(DefinitionError):
        outer.mount(inner, "again")


@pytest.mark.parametrize("uri", ["city://oslo", "urn:isbn:1", "file:///a/b?c#d", "weather+x:y", "mailto:a@b"])
def test_a_prefix_on_a_uri_can_be_undone(uri: str) -> None:
    prefix = Prefix("We_1.x")
    outer = prefix.uri(uri)
    assert outer.startswith("we-1.x+")
    assert prefix.inner_uri(outer) == uri
    assert prefix.inner_uri(outer.upper()) == uri.upper()
    assert prefix.inner_uri(uri) is None


def test_the_prefix_of_a_page_stands_behind_its_scheme() -> None:
    prefix, outermost = Prefix("weather"), Prefix("town")
    assert prefix.uri("ui://card/1") == "ui://weather+card/1"
    assert outermost.uri(prefix.uri("ui://card/1")) == "ui://town+weather+card/1"
    assert outermost.inner_uri("ui://town+weather+card/1") == "ui://weather+card/1"
    assert prefix.inner_uri("ui://weather+card/1") == "ui://card/1"
    assert prefix.inner_uri("ui://card/1") is None


# ---------------------------------------------------------------- cancelling, progress


@both_eras
async def test_progress_and_cancellation_reach_and_leave_a_mounted_tool(era: Any) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()
    inner: Server[Any] = Server("inner")

    @inner.tool
    async def work(ctx: Context[Any]) -> str:
        await ctx.report_progress(1, 2, "half")
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    outer: Server[Any] = Server("outer")
    outer.mount(inner, "in")
    told: list[str | None] = []
    async with Client(outer, era=era) as client:
        call = asyncio.create_task(client.call_tool("in_work", on_progress=lambda one: told.append(one.message)))
        await started.wait()
        call.cancel()
        async with asyncio.timeout(5):
            await stopped.wait()
    assert told == ["half"]
