"""What a user adds to one request: keys of `_meta`, headers, limits; the same at every method, blocking or not."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
import pytest

from gemel import Client, Context, DefinitionError, Server
from gemel import sync as blocking
from gemel.client.cache import MemoryStore
from tests.client.puppet import Puppet, discovered, done, shaken
from tests.transports.http_rig import serving

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
META = {"com.example/team": {"name": "ops"}, "plain": 1}

#: Every method that asks a server for something, with a result that it can read.
ASKING: dict[str, tuple[str, Callable[[Any, dict[str, Any]], Any], dict[str, Any]]] = {
    "call_tool": ("tools/call", lambda c, o: c.call_tool("t", **o), done()),
    "list_tools": ("tools/list", lambda c, o: c.list_tools(**o), {"tools": []}),
    "list_resources": ("resources/list", lambda c, o: c.list_resources(**o), {"resources": []}),
    "list_resource_templates": (
        "resources/templates/list",
        lambda c, o: c.list_resource_templates(**o),
        {"resourceTemplates": []},
    ),
    "read_resource": ("resources/read", lambda c, o: c.read_resource("data://1", **o), {"contents": []}),
    "list_prompts": ("prompts/list", lambda c, o: c.list_prompts(**o), {"prompts": []}),
    "get_prompt": ("prompts/get", lambda c, o: c.get_prompt("p", **o), {"messages": []}),
    "complete": (
        "completion/complete",
        lambda c, o: c.complete(prompt="p", argument="a", **o),
        {"completion": {"values": []}},
    ),
    "request": ("acme/search", lambda c, o: c.request("acme/search", **o), {}),
}


def a_puppet() -> Puppet:
    answers: dict[str, Any] = {method: result for method, _, result in ASKING.values()}
    return Puppet({"server/discover": discovered(), "initialize": shaken(), **answers})


@both_eras
@pytest.mark.parametrize("name", ASKING)
async def test_every_method_takes_meta(name: str, era: Any) -> None:
    """Under keys of one's own, beside what the protocol puts there."""
    method, ask, _ = ASKING[name]
    puppet = a_puppet()
    async with Client(puppet, era=era) as client:
        await ask(client, {"meta": META, "idle": 5.0, "total": 5.0, "on_progress": None, "headers": None})
        await ask(client, {})
    first, second = puppet.asked(method)
    assert META.items() <= first["_meta"].items()
    assert first["_meta"].keys() - META.keys() == second["_meta"].keys()


@pytest.mark.parametrize("name", ASKING)
def test_the_blocking_client_takes_the_same(name: str) -> None:
    server: Server[Any] = Server("s")
    metas: list[Any] = []

    async def look(ctx: Context[Any], call_next: Any) -> Any:
        if ctx.method != ASKING[name][0]:
            return await call_next(ctx)
        metas.append(ctx.meta)
        return {key: value for key, value in ASKING[name][2].items() if key != "resultType"}

    server.add_middleware(look)
    with blocking.Client(server, era="2025", check_results=False) as client:
        ASKING[name][1](client, {"meta": META, "total": 5.0})
    assert META.items() <= metas[0].items()


@both_eras
async def test_what_a_user_can_not_put_into_meta_is_told_in_one_line(era: Any) -> None:
    """META-01, META-02, META-05."""
    puppet = a_puppet()
    async with Client(puppet, era=era) as client:
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"progressToken": 1}, "'progressToken' belongs to the protocol"),
            ({"io.modelcontextprotocol/clientInfo": {}}, "belongs to the protocol: take a prefix of your own"),
            ({"two words": 1}, "'two words' is not a key for _meta"),
        ]
        for meta, words in wrong:
            with pytest.raises(DefinitionError, match=words):
                await client.call_tool("t", meta=meta)
            with pytest.raises(DefinitionError, match=words):
                await client.notify("notifications/acme", meta=meta)
    assert "tools/call" not in puppet.methods()


@both_eras
async def test_notifications_take_meta_too(era: Any) -> None:
    puppet = a_puppet()
    async with Client(puppet, era=era) as client:
        await client.notify("notifications/acme", {"x": 1}, meta=META)
        await client.notify("notifications/acme", {"x": 2})
        await puppet.until(lambda: len(puppet.asked("notifications/acme")) == 2)
    first, second = puppet.asked("notifications/acme")
    assert META.items() <= first["_meta"].items()
    assert first["x"] == 1
    assert ("_meta" in second) == (era == "2026")


# ---------------------------------------------------------------- headers


@asynccontextmanager
async def site() -> AsyncIterator[tuple[str, list[dict[str, str]]]]:
    """A server over HTTP, and the headers of each tools/call and resources/list that came."""
    server: Server[Any] = Server("s")
    seen: list[dict[str, str]] = []

    @server.tool
    async def t(city: str = "Oslo") -> str:
        return "done"

    @server.resource("data://one")
    async def one() -> str:
        return "one"

    async def look(ctx: Context[Any], call_next: Any) -> Any:
        if ctx.method in ("tools/call", "resources/list"):
            seen.append({name: ctx.headers[name] for name in ctx.headers})
        return await call_next(ctx)

    server.add_middleware(look)
    async with serving(server) as where:
        yield f"http://127.0.0.1:{where.port}/mcp", seen


@both_eras
async def test_headers_of_one_call_go_before_those_of_the_client(era: Any) -> None:
    """In both eras, whatever their letters' case; the next call has the client's again."""
    async with site() as (url, seen), Client(url, era=era, headers={"X-Team": "ops", "X-Fixed": "1"}) as client:
        await client.call_tool("t", headers={"x-team": "sales", "X-Once": "yes"})
        await client.list_resources(headers={"X-Once": "also"})
        await client.call_tool("t")
    once, listed, plain = seen
    assert (once["x-team"], once["x-once"], once["x-fixed"]) == ("sales", "yes", "1")
    assert (listed["x-once"], listed["x-team"]) == ("also", "ops")
    assert plain["x-team"] == "ops"
    assert "x-once" not in plain


@both_eras
async def test_they_go_before_headers_that_are_asked_for_and_authorization(era: Any) -> None:
    options: dict[str, Any] = {"headers": lambda: {"X-Team": "ops"}, "auth": lambda: "Bearer client"}
    async with site() as (url, seen), Client(url, era=era, **options) as client:
        await client.call_tool("t", headers={"X-Team": "sales", "Authorization": "Bearer call"})
        await client.call_tool("t")
    once, plain = seen
    assert (once["x-team"], once["authorization"]) == ("sales", "Bearer call")
    assert (plain["x-team"], plain["authorization"]) == ("ops", "Bearer client")


@both_eras
async def test_what_the_protocol_says_in_headers_is_not_a_users_to_say(era: Any) -> None:
    """HDR-02, HDR-03."""
    async with site() as (url, seen), Client(url, era=era) as client:
        await client.call_tool("t", headers={"MCP-METHOD": "x", "mcp-name": "x", "Mcp-Session-Id": "x", "host": "x"})
    (found,) = seen
    assert found.get("mcp-method", "tools/call") == "tools/call"
    assert found.get("mcp-name", "t") == "t"
    assert found["host"].startswith("127.0.0.1")


@both_eras
@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"X-A": "1\r\nX-B: 2"}, "holds a line end"),
        ({"X A": "1"}, "must map header names to text"),
        ({"X-A": 1}, "must map header names to text"),
        ({"User-Agent": "me"}, "the User-Agent is a header of the client"),
    ],
)
async def test_headers_that_can_not_be_are_told_before_anything_leaves(era: Any, headers: Any, words: str) -> None:
    async with site() as (url, seen), Client(url, era=era) as client:
        with pytest.raises(DefinitionError, match=words):
            await client.call_tool("t", headers=headers)
        assert client.session is not None
        assert not client.session.connection.outgoing
    assert not seen


async def test_elsewhere_than_on_http_there_are_no_headers() -> None:
    puppet = a_puppet()
    async with Client(puppet) as client:
        assert (await client.call_tool("t", headers={"X-A": "1"})).text == "done"


async def test_a_raw_call_of_a_tool_mirrors_its_arguments_like_any_other() -> None:
    """HDR-13."""
    server: Server[Any] = Server("s")
    seen: list[str | None] = []

    @server.tool
    async def t(
        ctx: Context[Any], city: Annotated[str, msgspec.Meta(extra_json_schema={"x-mcp-header": "City"})]
    ) -> str:
        seen.append(ctx.headers.get("mcp-param-city"))
        return city

    async with serving(server) as where, Client(f"http://127.0.0.1:{where.port}/mcp", era="2026") as client:
        await client.list_tools()
        await client.request("tools/call", {"name": "t", "arguments": {"city": "Oslo"}})
    assert seen == ["Oslo"]


# ---------------------------------------------------------------- types


async def test_a_request_of_ones_own_is_read_into_a_type() -> None:
    puppet = Puppet({"server/discover": discovered(), "acme/sum": {"resultType": "complete", "sum": 3}})

    class Sum(msgspec.Struct):
        sum: int

    async with Client(puppet) as client:
        typed: Sum = await client.request("acme/sum", {"a": [1, 2]}, result=Sum)
        plain: dict[str, Any] = await client.request("acme/sum")
        text = await client.request("acme/sum", result=msgspec.Raw)
    assert (typed.sum, plain["sum"]) == (3, 3)
    assert b'"sum":3' in bytes(text)


# ---------------------------------------------------------------- what is kept, and for whom


@pytest.mark.parametrize("options", [{"headers": {"Authorization": "Bearer b"}}, {"meta": {"tenant": "b"}}])
async def test_what_one_call_adds_may_change_who_asks_so_nothing_is_kept_or_taken_from_there(options: Any) -> None:
    """CACHE-07: a private entry of one authorization never answers another one."""
    listed = {"resultType": "complete", "tools": [], "ttlMs": 60_000, "cacheScope": "private"}
    puppet = Puppet({"server/discover": discovered(), "tools/list": listed})
    async with Client(puppet) as client:
        await client.list_tools()
        await client.list_tools()
        assert len(puppet.asked("tools/list")) == 1
        await client.list_tools(**options)
        await client.list_tools(**options)
        assert len(puppet.asked("tools/list")) == 3
        await client.list_tools()
    assert len(puppet.asked("tools/list")) == 3


async def test_clients_that_share_a_store_share_no_entries_even_one_after_the_other() -> None:
    """CACHE-07: what tells clients apart is not used again."""
    store = MemoryStore(100)
    listed = {"resultType": "complete", "tools": [], "ttlMs": 60_000, "cacheScope": "private"}
    puppet = Puppet({"server/discover": discovered(), "tools/list": listed})
    gc.freeze()  # looking only at what is new takes no time
    try:
        for _ in range(20):
            async with Client(puppet, cache=store) as client:
                await client.list_tools()
            del client
            gc.collect()
    finally:
        gc.unfreeze()
    assert len(puppet.asked("tools/list")) == 20


# ---------------------------------------------------------------- mistakes, and words


async def test_mistakes_of_a_caller_are_told_before_anything_leaves() -> None:
    """PRM-03."""
    puppet = a_puppet()
    listed: Any = ["Oslo"]
    counted: Any = {"days": 5}
    async with Client(puppet) as client:
        with pytest.raises(DefinitionError, match="arguments for 't' must be a mapping, not list"):
            await client.call_tool("t", listed)
        with pytest.raises(DefinitionError, match="Prompt 'p': 'days' is 5; the arguments of prompts are strings"):
            await client.get_prompt("p", counted)
    assert puppet.methods() == ["server/discover"]


@pytest.mark.parametrize("options", [{"middleware": [5]}, {"extensions": [5]}])
def test_what_is_no_middleware_and_no_extension_is_told_at_once(options: Any) -> None:
    with pytest.raises(DefinitionError, match=r"5 is not (middleware|an extension)"):
        Client(a_puppet(), **options)


async def test_a_client_says_what_it_talks_to() -> None:
    puppet = a_puppet()
    client = Client(puppet)
    assert repr(client) == "<Client of a server (Puppet in this process): not connected>"
    async with client:
        assert repr(client) == "<Client of puppet (Puppet in this process): 2026-07-28>"
    assert repr(client).endswith(": lost>")


@both_eras
async def test_progress_comes_to_the_client_where_a_call_has_no_callback(era: Any) -> None:
    server: Server[Any] = Server("s")

    @server.tool
    async def tour(ctx: Context[Any]) -> str:
        await ctx.report_progress(1, 2, "half")
        return "done"

    everywhere: list[Any] = []
    here: list[Any] = []
    async with Client(server, era=era, on_progress=everywhere.append) as client:
        await client.call_tool("tour")
        await client.call_tool("tour", on_progress=here.append)
    assert [told.message for told in everywhere] == [told.message for told in here] == ["half"]
