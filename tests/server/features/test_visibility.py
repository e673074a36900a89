"""Who sees which tools, prompts and resources: by tags, conditions, rules and switches, in both eras."""

from __future__ import annotations

from typing import Any

import pytest

from gemel import Caller, Client, Context, DefinitionError, Item, PeerError, Principal, Refusal, Server
from tests.server.bare_end import BareEnd, Era
from tests.support import Headers, Origin
from tests.transports.http_rig import serving

ANNA, BEN = Origin(principal="anna"), Origin(principal="ben")
both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


def shop(**options: Any) -> Server[Any]:
    server: Server[Any] = Server("shop", **options)

    @server.tool
    async def buy() -> str:
        return "bought"

    @server.tool(tags={"admin"})
    async def refund() -> str:
        return "refunded"

    @server.tool(visible=lambda caller: caller.principal == "anna")
    async def audit() -> str:
        return "audited"

    @server.prompt(tags={"admin"})
    async def complaint(name: str) -> str:
        return f"Dear {name}"

    @complaint.complete("name")
    async def names(value: str) -> list[str]:
        return ["Ada"]

    @server.resource("shop://stock", tags={"admin"})
    async def stock() -> str:
        return "12"

    @server.resource("shop://orders/{number}", visible=lambda caller: caller.principal == "anna")
    async def order(number: int) -> str:
        return f"order {number}"

    return server


def anna_is_admin(item: Item, caller: Caller) -> bool:
    return "admin" not in item.tags or caller.principal == "anna"


@both_eras
async def test_a_condition_decides_who_sees_a_tool_and_who_may_call_it(era: Era) -> None:
    """STATE-05, TOOL-02, TOOL-18."""
    server = shop()
    async with BareEnd(server, era, origin=ANNA) as anna, BareEnd(server, era, origin=BEN) as ben:
        assert await anna.names() == ["buy", "refund", "audit"]
        assert await ben.names() == ["buy", "refund"]
        assert await anna.text("audit") == "audited"
        hidden = await ben.refusal("tools/call", {"name": "audit", "arguments": {}})
        unknown = await ben.refusal("tools/call", {"name": "zzzzz", "arguments": {}})
        assert hidden["code"] == unknown["code"] == -32602
        assert hidden["message"].replace("audit", "zzzzz") == unknown["message"]


async def test_what_is_hidden_is_never_suggested() -> None:
    async with BareEnd(shop(), origin=BEN) as ben:
        assert "Did you mean" not in (await ben.refusal("tools/call", {"name": "audid", "arguments": {}}))["message"]
        assert "Did you mean 'buy'" in (await ben.refusal("tools/call", {"name": "by", "arguments": {}}))["message"]
    async with BareEnd(shop(), origin=ANNA) as anna:
        assert "'audit'" in (await anna.refusal("tools/call", {"name": "audid", "arguments": {}}))["message"]


@both_eras
async def test_a_rule_for_all_decides_by_tags(era: Era) -> None:
    """STATE-05."""
    server = shop()
    assert server.visibility(anna_is_admin) is anna_is_admin
    async with BareEnd(server, era, origin=ANNA) as anna, BareEnd(server, era, origin=BEN) as ben:
        assert await anna.names() == ["buy", "refund", "audit"]
        assert await anna.names("prompts") == ["complaint"]
        assert await anna.names("resources") == ["shop://stock"]
        assert await anna.text("refund") == "refunded"
        assert await ben.names() == ["buy"]
        assert await ben.names("prompts") == []
        assert await ben.names("resources") == []
        assert await ben.text("buy") == "bought"
        assert "Unknown prompt" in (await ben.refusal("prompts/get", {"name": "complaint"}))["message"]


@both_eras
async def test_a_hidden_resource_is_not_found_listed_watched_or_completed(era: Era) -> None:
    server = shop()
    server.visibility(anna_is_admin)
    async with BareEnd(server, era, origin=ANNA) as anna, BareEnd(server, era, origin=BEN) as ben:
        assert (await anna.ask("resources/read", {"uri": "shop://stock"}))["contents"][0]["text"] == "12"
        assert (await anna.ask("resources/read", {"uri": "shop://orders/7"}))["contents"][0]["text"] == "order 7"
        assert await anna.names("resourceTemplates") == ["shop://orders/{number}"]
        assert await ben.names("resourceTemplates") == []
        for uri in ("shop://stock", "shop://orders/7", "shop://nothing"):
            assert (await ben.refusal("resources/read", {"uri": uri}))["message"] == "Resource not found"
        if era == "2025":
            assert "error" in await ben.reply("resources/subscribe", {"uri": "shop://stock"})
            assert "result" in await anna.reply("resources/subscribe", {"uri": "shop://stock"})
        argument = {"name": "name", "value": ""}
        asked = {"ref": {"type": "ref/prompt", "name": "complaint"}, "argument": argument}
        assert (await anna.ask("completion/complete", asked))["completion"]["values"] == ["Ada"]
        assert "Unknown prompt" in (await ben.refusal("completion/complete", asked))["message"]
        asked = {"ref": {"type": "ref/resource", "uri": "shop://orders/{number}"}, "argument": argument}
        assert "Unknown resource" in (await ben.refusal("completion/complete", asked))["message"]


async def test_pages_and_cursors_count_only_what_the_caller_sees() -> None:
    """PAGE-01, STATE-05."""
    server: Server[Any] = Server("many", page_size=2)
    for number in range(7):
        visible = None if number % 2 else (lambda caller: caller.principal == "anna")
        server.tool(f"t{number}", visible=visible)(lambda: "x")
    async with BareEnd(server, origin=ANNA) as anna, BareEnd(server, origin=BEN) as ben:
        assert await anna.names() == [f"t{number}" for number in range(7)]
        assert await ben.names() == ["t1", "t3", "t5"]
        page = await ben.ask("tools/list")
        assert [tool["name"] for tool in page["tools"]] == ["t1", "t3"]


async def test_a_list_that_varies_is_private_whatever_the_cache_hint_says() -> None:
    """CACHE-11: what one caller sees must not be kept for another."""
    from gemel import CacheHint

    public = {method: CacheHint(ttl=60, scope="public") for method in ("tools/list", "prompts/list", "resources/list")}
    server = shop(cache=public)
    async with BareEnd(server, origin=ANNA) as anna:
        assert (await anna.ask("tools/list"))["cacheScope"] == "private"
        assert (await anna.ask("prompts/list"))["cacheScope"] == "public"
        server.visibility(anna_is_admin)
        assert (await anna.ask("prompts/list"))["cacheScope"] == "private"
        assert (await anna.ask("resources/list"))["cacheScope"] == "private"
        assert (await anna.ask("tools/list"))["ttlMs"] == 60_000


async def test_lists_do_not_depend_on_earlier_calls_or_connections() -> None:
    """STATE-05: two connections of one principal see the same, whatever one of them did."""
    server = shop()
    server.visibility(anna_is_admin)
    async with BareEnd(server, origin=ANNA) as one, BareEnd(server, origin=ANNA) as other:
        before = await other.ask("tools/list")
        await one.text("refund")
        assert await other.ask("tools/list") == before == await one.ask("tools/list")


async def test_a_condition_knows_what_the_client_can_do_on_this_request() -> None:
    """REQM-02, EXT-06: capabilities stand on the request itself."""
    server: Server[Any] = Server("able")

    @server.tool(visible=lambda caller: caller.capabilities.sampling is not None)
    async def think() -> str:
        return "thought"

    @server.tool(visible=lambda caller: caller.extension("com.example/maps") is not None)
    async def show() -> str:
        return "shown"

    async with BareEnd(server) as end:
        assert await end.names() == []
        end.capabilities = {"sampling": {}, "extensions": {"com.example/maps": {}}}
        assert await end.names() == ["think", "show"]
        end.capabilities = {"extensions": {"com.example/other": {}}}
        assert await end.names() == []


def test_a_caller_has_nothing_that_belongs_to_the_conversation() -> None:
    """STATE-05: what can't be seen can't be decided by."""
    assert {name for name in dir(Caller) if not name.startswith("_")} == {
        "capabilities",
        "claims",
        "extension",
        "principal",
        "scopes",
    }


@both_eras
async def test_scopes_come_with_the_authorization_of_the_request(era: Era) -> None:
    """STATE-05: over HTTP from `authenticate`, and each request has its own."""
    server: Server[Any] = Server("scoped")
    granted = {"anna": {"read", "write"}, "ben": {"read"}}

    @server.tool(visible=lambda caller: "write" in caller.scopes)
    async def write(ctx: Context) -> str:
        return f"{ctx.principal} {sorted(ctx.scopes)}"

    async def authenticate(scope: Any, headers: Headers) -> str | Principal | Refusal | None:
        name = headers.get("authorization", "").removeprefix("Bearer ")
        if name == "plain":
            return name
        return Principal(name, frozenset(granted[name])) if name in granted else Refusal(401, "Who are you?")

    async with serving(server, authenticate=authenticate) as site:
        url = f"http://127.0.0.1:{site.port}/mcp"

        def client(name: str) -> Client:
            return Client(url, era=era, auth=lambda: f"Bearer {name}")

        async with client("anna") as anna:
            assert [tool.name for tool in await anna.list_tools()] == ["write"]
            assert (await anna.call_tool("write")).text == "anna ['read', 'write']"
            granted["anna"] = {"read"}
            assert await anna.list_tools(cache="refresh") == []
            with pytest.raises(PeerError, match="Unknown tool"):
                await anna.call_tool("write")
        for name in ("ben", "plain"):
            async with client(name) as other:
                assert await other.list_tools() == []


async def test_without_authorization_there_are_no_scopes() -> None:
    server: Server[Any] = Server("scoped")
    server.tool("write", visible=lambda caller: "write" in caller.scopes)(lambda: "written")
    server.tool("all", visible=lambda caller: caller.scopes == frozenset())(lambda: "all")
    async with BareEnd(server, origin=ANNA) as end:
        assert await end.names() == ["all"]
    async with BareEnd(server, origin=Origin(principal="anna", scopes=frozenset({"write"}))) as end:
        assert await end.names() == ["write"]


@both_eras
async def test_disabling_hides_for_all_until_it_is_enabled_again(era: Era) -> None:
    server = shop()
    async with BareEnd(server, era) as end:
        server.disable("buy", "shop://stock", tags={"admin"})
        assert await end.names() == []
        assert await end.names("prompts") == []
        assert "Unknown tool" in (await end.refusal("tools/call", {"name": "buy", "arguments": {}}))["message"]
        server.enable(tags=["admin"])
        assert await end.names() == ["refund"]
        assert await end.names("prompts") == ["complaint"]
        assert await end.names("resources") == []
        server.enable("buy", "shop://stock")
        assert await end.names() == ["buy", "refund"]
        assert await end.names("resources") == ["shop://stock"]


async def test_what_is_registered_under_a_disabled_tag_or_name_stays_off() -> None:
    server = shop()
    server.disable("buy", tags={"beta"})
    server.remove_tool("buy")
    server.tool("buy")(lambda: "x")
    server.tool("sell", tags={"beta"})(lambda: "x")
    async with BareEnd(server) as end:
        assert await end.names() == ["refund"]


async def test_clients_are_told_only_of_lists_that_changed() -> None:
    """SUB-14: a switch is a change of the list."""
    server = shop()
    async with BareEnd(server, "2025") as end:
        server.disable("buy")
        await end.wait_for("notifications/tools/list_changed")
        server.disable("buy")
        server.enable("refund")
        await end.names()
        methods = [message["method"] for message in end.heard]
        assert methods == ["notifications/tools/list_changed"]


def test_disabling_what_is_not_there_is_a_mistake() -> None:
    with pytest.raises(KeyError, match="There is no tool, prompt or resource 'bye' to disable"):
        shop().disable("bye")


async def test_a_condition_that_fails_hides(caplog: pytest.LogCaptureFixture) -> None:
    """Closed when in doubt."""
    server: Server[Any] = Server("broken")
    server.tool("secret", visible=lambda caller: 1 / 0 > 0)(lambda: "x")
    async with BareEnd(server) as end:
        assert await end.names() == []
        assert "error" in await end.reply("tools/call", {"name": "secret", "arguments": {}})
    assert "'secret' is hidden: its visibility condition raised" in caplog.text


def test_an_async_condition_is_refused_since_it_would_always_be_true() -> None:
    async def seen(caller: Caller) -> bool:
        return False

    class Rule:
        async def __call__(self, item: Item, caller: Caller) -> bool:
            return False

    server: Server[Any] = Server("mistaken")
    condition: Any = seen
    with pytest.raises(DefinitionError, match=r"visible= of 'x' must be a plain function, not `async def`"):
        server.tool("x", visible=condition)(lambda: "x")
    rule: Any = Rule()
    with pytest.raises(DefinitionError, match=r"server.visibility\(…\) must be a plain function"):
        server.visibility(rule)
    condition = True
    with pytest.raises(DefinitionError, match=r"visible= of 'x' must be a function of the caller"):
        server.tool("x", visible=condition)(lambda: "x")


def test_one_text_is_no_set_of_tags() -> None:
    with pytest.raises(DefinitionError, match=r"tags='admin' of 'x' is one string: write tags=\{'admin'\}"):
        Server("mistaken").tool("x", tags="admin")(lambda: "x")
