"""Middleware of a client: around all that it asks and says, and all that it is asked and told."""

from __future__ import annotations

from typing import Any

import pytest

from gemel import (
    CallToolResult,
    Client,
    ClientContext,
    Context,
    DefinitionError,
    ElicitFormParams,
    ElicitResult,
    InvalidResponse,
    PeerError,
    Server,
)
from gemel.client.methods import CallNext
from tests.client.puppet import Puppet, done, legacy, modern

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


def a_server() -> Server[Any]:
    server: Server[Any] = Server("watched", version="1")

    @server.tool(annotations={"read_only_hint": True})
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def who(ctx: Context[Any]) -> str:
        return await ctx.elicit("Who are you?", str)

    @server.tool
    async def told(ctx: Context[Any]) -> str:
        await ctx.info("something")
        return "told"

    @server.notification("notifications/acme")
    async def noted(ctx: Context[Any], params: Any) -> None:
        heard.append(params["x"])

    @server.tool
    async def noticed() -> list[int]:
        return heard

    heard: list[int] = []
    return server


class Watch:
    """What passed, in words: direction, method, and what came of it."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.seen: list[str] = []

    async def __call__(self, ctx: ClientContext, call_next: CallNext) -> Any:
        way = "<" if ctx.inbound else ">"
        self.seen.append(f"{self.name}{way} {ctx.method}{' .' if ctx.notification else ''}")
        result = await call_next(ctx)
        if not ctx.notification:
            self.seen.append(f"{self.name}{way} {type(result).__name__}")
        return result


@both_eras
async def test_it_sees_what_is_asked_with_its_typed_result(era: Any) -> None:
    watch = Watch()
    async with Client(a_server(), era=era, middleware=[watch]) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2}, returns=int)).data == 3
        await client.list_tools()
        await client.request("tools/list")
        await client.notify("notifications/acme", {"x": 1})
        with pytest.raises(PeerError):
            await client.request("acme/missing")
    said = [one for one in watch.seen if not one.startswith("<")]
    assert said == [
        *("> tools/call", "> CallToolResult"),
        *("> tools/list", "> ListToolsResult"),
        *("> tools/list", "> dict"),
        "> notifications/acme .",
        "> acme/missing",
    ]


@both_eras
async def test_it_sees_what_the_server_asks_and_says_the_same_way_in_both_eras(era: Any) -> None:
    """A question within a result goes through the same middleware as a request of the server."""
    watch = Watch()
    logs: list[Any] = []
    options: dict[str, Any] = {"on_elicit": lambda form: {"value": "me"}, "on_log": logs.append}
    async with Client(a_server(), era=era, middleware=[watch], **options) as client:
        assert (await client.call_tool("who", returns=str)).data == "me"
        await client.call_tool("told")
    inbound = [one for one in watch.seen if one.startswith("<")]
    assert inbound == ["< elicitation/create", "< ElicitResult", "< notifications/message ."]
    assert len(logs) == 1


async def test_the_first_one_is_outermost_and_later_ones_join_in() -> None:
    seen: list[str] = []

    def named(name: str) -> Any:
        async def middleware(ctx: ClientContext, call_next: CallNext) -> Any:
            seen.append(f"{name}(")
            try:
                return await call_next(ctx)
            finally:
                seen.append(f"){name}")

        return middleware

    async with Client(a_server(), middleware=[named("a"), named("b")]) as client:
        client.add_middleware(named("c"))
        await client.ping()
    assert seen == ["a(", "b(", "c(", ")c", ")b", ")a"]


@both_eras
async def test_it_changes_what_is_asked(era: Any) -> None:
    async def middleware(ctx: ClientContext, call_next: CallNext) -> Any:
        if ctx.method == "acme/add":
            params = {"name": "add", "arguments": ctx.params}
            return await call_next(ctx.replace(method="tools/call", params=params, meta={"com.example/a": 1}))
        if ctx.notification and not ctx.inbound:
            return await call_next(ctx.replace(params={"x": ctx.params["x"] + 1}))
        return await call_next(ctx)

    async with Client(a_server(), era=era, middleware=[middleware]) as client:
        found = await client.request("acme/add", {"a": 1, "b": 2}, result=CallToolResult)
        assert found.structured_content == {"result": 3} or found.text == "3"
        await client.notify("notifications/acme", {"x": 1})
        assert (await client.call_tool("noticed", returns=list)).data == [2]


async def test_it_answers_in_the_servers_place_or_refuses() -> None:
    async def middleware(ctx: ClientContext, call_next: CallNext) -> Any:
        if ctx.method == "tools/call" and ctx.params["name"] == "dear":
            raise InvalidResponse("too dear")
        if ctx.method == "tools/call":
            return CallToolResult(content=[], structured_content={"kept": True})
        return await call_next(ctx)

    puppet = modern()
    async with Client(puppet, middleware=[middleware]) as client:
        assert (await client.call_tool("cheap")).data == {"kept": True}
        with pytest.raises(InvalidResponse, match="too dear"):
            await client.call_tool("dear")
    assert "tools/call" not in puppet.methods()


@both_eras
async def test_it_answers_in_the_users_place_changes_questions_and_drops_what_is_said(era: Any) -> None:
    asked: list[str] = []
    logs: list[Any] = []

    async def middleware(ctx: ClientContext, call_next: CallNext) -> Any:
        if not ctx.inbound:
            return await call_next(ctx)
        if ctx.notification:
            return None
        if len(asked) == 0:
            return await call_next(ctx.replace(params={**ctx.params, "message": "Changed?"}))
        return ElicitResult(action="accept", content={"value": "the middleware"})

    def fill_in(form: ElicitFormParams) -> dict[str, Any]:
        asked.append(form.message)
        return {"value": "the user"}

    options: dict[str, Any] = {"on_elicit": fill_in, "on_log": logs.append}
    async with Client(a_server(), era=era, middleware=[middleware], **options) as client:
        assert (await client.call_tool("who", returns=str)).data == "the user"
        assert (await client.call_tool("who", returns=str)).data == "the middleware"
        await client.call_tool("told")
    assert asked == ["Changed?"]
    assert not logs


async def test_repeats_rounds_and_the_cache_are_inside() -> None:
    """One pass for each call of a user's, however often it leaves."""
    watch = Watch()
    listed = {"resultType": "complete", "tools": [], "ttlMs": 60_000, "cacheScope": "private"}
    left: list[Any] = [{"resultType": "input_required", "requestState": "again"}, done()]
    puppet = modern(tools_list=listed, tools_call=lambda puppet, message: left.pop(0))
    async with Client(puppet, middleware=[watch]) as client:
        await client.call_tool("t")
        await client.list_tools()
        await client.list_tools()
    assert watch.seen == ["> tools/call", "> CallToolResult", *(["> tools/list", "> ListToolsResult"] * 2)]
    assert len(puppet.asked("tools/call")) == 2
    assert len(puppet.asked("tools/list")) == 1


async def test_limits_and_headers_are_in_its_hands() -> None:
    seen: list[Any] = []

    async def middleware(ctx: ClientContext, call_next: CallNext) -> Any:
        seen.append((ctx.era, ctx.protocol_version, ctx.idle, ctx.total, ctx.headers, ctx.meta, ctx.request_id))
        return await call_next(ctx.replace(total=30.0, headers=None, meta=None))

    puppet = modern(tools_call=done())
    async with Client(puppet, middleware=[middleware]) as client:
        await client.call_tool("t", idle=5.0, total=None, headers={"X-A": "1"}, meta={"team": "ops"})
    assert seen == [("2026", "2026-07-28", 5.0, None, {"X-A": "1"}, {"team": "ops"}, None)]
    assert "team" not in puppet.asked("tools/call")[0]["_meta"]


async def test_what_it_puts_into_meta_is_checked_like_a_users() -> None:
    async def middleware(ctx: ClientContext, call_next: CallNext) -> Any:
        return await call_next(ctx.replace(meta={"progressToken": 1}))

    async with Client(modern(), middleware=[middleware]) as client:
        with pytest.raises(DefinitionError, match="belongs to the protocol"):
            await client.ping()


async def test_a_failure_on_an_inbound_message_is_the_messages_own(caplog: pytest.LogCaptureFixture) -> None:
    async def middleware(ctx: ClientContext, call_next: CallNext) -> Any:
        if ctx.inbound:
            raise RuntimeError("boom")
        return await call_next(ctx)

    def ask(puppet: Puppet, message: dict[str, Any]) -> Any:
        puppet.say({"id": "q", "method": "ping"}, {"method": "notifications/acme"})
        return {}

    puppet = legacy(acme_ask=ask)
    async with Client(puppet, era="2025", middleware=[middleware]) as client:
        await client.request("acme/ask")
        await puppet.until(lambda: any(message.get("id") == "q" for message in puppet.came))
        await client.ping()
    (answer,) = [message for message in puppet.came if message.get("id") == "q"]
    assert answer["error"]["code"] == -32603
    assert "boom" in caplog.text


def test_without_middleware_nothing_stands_in_the_way() -> None:
    client = Client(modern())
    assert client._chain == client._requests.send
    assert client._inbound.chain is None
