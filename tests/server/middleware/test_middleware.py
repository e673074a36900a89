"""Middleware: around every request and notification, before anything is checked; it may look, change, answer or refuse."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from gemel import CallNext, CallToolResult, Context, ErrorObject, InvalidParams, ProtocolError, Server
from gemel.server.context import served_call
from tests.wire.scenario import NEWEST
from tests.wire.talk import talking

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
HELLO = {"protocolVersion": NEWEST["2025"], "capabilities": {}, "clientInfo": {"name": "m", "version": "1"}}


class Point(msgspec.Struct):
    x: int


def a_server(*middleware: Any) -> Server[Any]:
    server: Server[Any] = Server("watched", version="1", middleware=middleware)

    @server.tool
    async def add(a: int, b: int) -> str:
        return str(a + b)

    @server.request("acme/typed", params=Point)
    async def typed(ctx: Context[Any], params: Point) -> Any:
        return {"x": params.x}

    @server.request("acme/error")
    async def error(ctx: Context[Any], params: Any) -> Any:
        return ErrorObject(1234, "returned, not raised", {"a": 1})

    @server.notification("notifications/acme", params=Point)
    async def noted(ctx: Context[Any], params: Point) -> str:
        if params.x < 0:
            raise RuntimeError("boom")
        return "nobody reads this"

    return server


class Watch:
    """A middleware that keeps what it saw: the method, the id, what came of it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any, Any]] = []

    async def __call__(self, ctx: Context[Any], call_next: CallNext) -> Any:
        try:
            result = await call_next(ctx)
        except Exception as exc:
            self.seen.append((ctx.method, ctx.request_id, exc))
            raise
        self.seen.append((ctx.method, ctx.request_id, result))
        return result

    def methods(self) -> list[str]:
        return [method for method, _, _ in self.seen]

    def outcome(self, method: str) -> Any:
        return next(outcome for seen, _, outcome in self.seen if seen == method)


@both_eras
async def test_the_first_of_the_list_is_outermost_and_added_ones_are_inside(era: str) -> None:
    order: list[str] = []

    def named(name: str) -> Any:
        async def middleware(ctx: Context[Any], call_next: CallNext) -> Any:
            order.append(f"{name} in")
            result = await call_next(ctx)
            order.append(f"{name} out")
            return result

        return middleware

    server = a_server(named("first"), named("second"))
    server.add_middleware(named("third"))
    async with talking(server, era) as talk:
        await talk.call("add", a=1, b=2)  # the end of the handshake was seen before
        order.clear()
        await talk.call("add", a=1, b=2)
        assert order == ["first in", "second in", "third in", "third out", "second out", "first out"]
        order.clear()
        await talk.say({"method": "notifications/acme", "params": {"x": 1}})
        await talk.call("add", a=1, b=2)
        assert order[:6] == ["first in", "second in", "third in", "third out", "second out", "first out"]


@both_eras
async def test_one_may_be_added_around_all_others(era: str) -> None:
    order: list[str] = []

    def named(name: str) -> Any:
        async def middleware(ctx: Context[Any], call_next: CallNext) -> Any:
            if ctx.method == "tools/call":
                order.append(name)
            return await call_next(ctx)

        return middleware

    server = a_server(named("second"))
    server.add_middleware(named("third"))
    server.add_middleware(named("first"), outermost=True)
    async with talking(server, era) as talk:
        await talk.call("add", a=1, b=2)
    assert order == ["first", "second", "third"]


async def test_it_sees_the_whole_handshake() -> None:
    watch = Watch()
    async with talking(a_server(watch), "2025") as talk:
        await talk.call("add", a=1, b=2)
    assert watch.methods() == ["initialize", "notifications/initialized", "tools/call"]
    assert [request_id for _, request_id, _ in watch.seen] == [0, None, 1]


@both_eras
async def test_it_sees_what_is_refused_as_a_raised_error(era: str) -> None:
    watch = Watch()
    async with talking(a_server(watch), era) as talk:
        for method, params in (("acme/missing", {}), ("acme/typed", {"x": "one"}), ("acme/error", {})):
            assert "error" in await talk.ask(method, **params)
    assert watch.outcome("acme/missing").error.code == -32601
    assert isinstance(watch.outcome("acme/typed"), InvalidParams)
    assert isinstance(watch.outcome("acme/error"), ProtocolError)
    assert watch.outcome("acme/error").error == ErrorObject(1234, "returned, not raised", {"a": 1})


async def test_it_sees_what_comes_too_early() -> None:
    watch = Watch()
    async with talking(a_server(watch), "2025", shaken=False) as talk:
        assert (await talk.ask("tools/list"))["error"]["code"] == -32602
    assert isinstance(watch.outcome("tools/list"), InvalidParams)


@both_eras
async def test_it_gets_the_raw_values_before_anything_is_checked(era: str) -> None:
    seen: dict[str, Any] = {}

    async def look(ctx: Context[Any], call_next: CallNext) -> Any:
        seen[ctx.method] = ctx.params, ctx.meta, ctx.protocol_version, ctx.request_id
        return await call_next(ctx)

    async with talking(a_server(look), era) as talk:
        await talk.ask("acme/typed", x="one", _meta={"acme/key": 7})
        params, meta, version, request_id = seen["acme/typed"]
        assert isinstance(params, msgspec.Raw)
        assert msgspec.json.decode(params)["x"] == "one"
        assert meta["acme/key"] == 7
        assert version == NEWEST[era]
        assert request_id == 1


@both_eras
async def test_it_rewrites_method_and_params(era: str) -> None:
    """Look-up and handler read the context that they are given."""

    async def rewrite(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "acme/plus":
            changed = {"name": "add", "arguments": {"a": 20, "b": 3}}
            return await call_next(ctx.replace(method="tools/call", params=changed))
        if ctx.method == "notifications/other":
            return await call_next(ctx.replace(method="notifications/acme", params={"x": 5}))
        return await call_next(ctx)

    watch = Watch()
    server = a_server(rewrite)
    server.add_middleware(watch)
    async with talking(server, era) as talk:
        answer = await talk.ask("acme/plus")
        assert answer["result"]["content"] == [{"type": "text", "text": "23"}]
        await talk.say({"method": "notifications/other"})
        await talk.ask("acme/missing")
    assert {"tools/call", "notifications/acme"} <= set(watch.methods())
    assert "acme/plus" not in watch.methods()


@pytest.mark.foreign_words("a middleware that answers by itself owns the shape")
@both_eras
async def test_it_answers_by_itself(era: str) -> None:
    """What it returns is its own business, also for a method that nobody serves."""

    async def short(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "tools/call":
            return {"content": [{"type": "text", "text": "cached"}], "isError": False}
        if ctx.method == "acme/missing":
            return CallToolResult(content=[])
        return await call_next(ctx)

    async with talking(a_server(short), era) as talk:
        assert await talk.call("add", a=1, b=2) == "cached"
        assert (await talk.ask("acme/missing"))["result"]["content"] == []


@pytest.mark.foreign_words("a method of another revision, which a middleware answers")
@both_eras
async def test_it_answers_for_the_specification_of_another_revision(era: str, caplog: pytest.LogCaptureFixture) -> None:
    """There is nothing to hold the answer against, and nothing to say of it."""
    method = {"2025": "server/discover", "2026": "resources/subscribe"}[era]

    async def short(ctx: Context[Any], call_next: CallNext) -> Any:
        return {"anything": [1, None]} if ctx.method == method else await call_next(ctx)

    async with talking(a_server(short), era) as talk:
        assert (await talk.ask(method))["result"]["anything"] == [1, None]
    assert caplog.text == ""


@both_eras
async def test_a_result_type_that_it_answers_with_is_dressed_for_the_caller(era: str) -> None:
    """BASE-15: what it says is its own business, what each result of the era carries is ours."""

    async def short(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "tools/call":
            return CallToolResult(content=[], structured_content=[1])
        return await call_next(ctx)

    async with talking(a_server(short), era) as talk:
        result = (await talk.ask("tools/call", name="add", arguments={}))["result"]
    assert result.get("resultType") == {"2025": None, "2026": "complete"}[era]
    assert result["structuredContent"] == {"2025": {"result": [1]}, "2026": [1]}[era]


@both_eras
@pytest.mark.parametrize("wrong", [None, 7, "text", [1], True])
async def test_what_is_no_object_never_leaves(era: str, wrong: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever forgets `return` finds it in the log; a result is an object in every revision."""

    async def forgetful(ctx: Context[Any], call_next: CallNext) -> Any:
        result = await call_next(ctx)
        return wrong if ctx.method in ("tools/list", "tools/call", "acme/typed") else result

    async with talking(a_server(forgetful), era) as talk:
        error = (await talk.ask("tools/list"))["error"]
        assert (await talk.ask("tools/call", name="add", arguments={"a": 1, "b": 2}))["error"] == error
        assert (await talk.ask("acme/typed", x=1))["error"] == error
    assert error == {"code": -32603, "message": "Handler returned an invalid result"}
    said = "nothing" if wrong is None else type(wrong).__name__
    assert f"tools/list: a middleware returned {said}: return the result of call_next" in caplog.text


@both_eras
async def test_it_refuses_and_turns_errors_into_others(era: str) -> None:
    async def guard(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "acme/typed":
            raise ProtocolError("not you", code=403)
        if ctx.method == "acme/error":
            raise ValueError("the password is 1234")
        try:
            return await call_next(ctx)
        except ProtocolError as exc:
            raise ProtocolError(f"told: {exc}", code=42) from exc

    async with talking(a_server(guard), era) as talk:
        assert (await talk.ask("acme/typed", x=1))["error"] == {"code": 403, "message": "not you"}
        assert (await talk.ask("acme/error"))["error"] == {"code": -32603, "message": "Internal server error"}
        assert (await talk.ask("acme/missing"))["error"] == {"code": 42, "message": "told: Method not found"}


@both_eras
async def test_a_notification_comes_to_nothing_whatever_the_middleware_returns(era: str) -> None:
    outcomes: dict[str, Any] = {}

    async def chatty(ctx: Context[Any], call_next: CallNext) -> Any:
        found = await call_next(ctx)
        if ctx.request_id is None:
            outcomes[f"{ctx.method} {len(outcomes)}"] = found
            return {"this": "is read by nobody"}
        return found

    async with talking(a_server(chatty), era) as talk:
        await talk.call("add", a=1, b=2)  # the end of the handshake was seen before
        outcomes.clear()
        for message in (
            {"method": "notifications/acme", "params": {"x": 1}},
            {"method": "notifications/acme", "params": {"x": "one"}},
            {"method": "notifications/unknown"},
            {"method": "notifications/cancelled", "params": {"requestId": 99}},
            {"method": "notifications/subscriptions/acknowledged", "params": {}},
        ):
            await talk.say(message)
        await talk.ask("acme/missing")
        assert talk.heard() == []
    assert len(outcomes) == 5
    assert set(outcomes.values()) == {None}


@both_eras
async def test_what_fails_in_a_notification_is_seen_logged_and_no_more(
    era: str, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch()
    async with talking(a_server(watch), era) as talk:
        await talk.say({"method": "notifications/acme", "params": {"x": -1}})
        assert await talk.call("add", a=1, b=2) == "3"
        assert talk.heard() == []
    assert isinstance(watch.outcome("notifications/acme"), RuntimeError)
    assert "notifications/acme failed: boom" in caplog.text


@both_eras
async def test_a_cancellation_is_applied_first_and_then_seen(era: str) -> None:
    seen: list[bool] = []
    request_id = 1
    begun = asyncio.Event()

    async def look(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "notifications/cancelled":
            seen.append(request_id in served_call(ctx).session.connection.incoming)
        return await call_next(ctx)

    server = a_server(look)

    @server.request("acme/wait")
    async def wait(ctx: Context[Any], params: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with talking(server, era) as talk:
        assert await talk.begin("acme/wait") == request_id
        await begun.wait()
        await talk.route.cancel(request_id, era)
        await talk.ask("acme/missing")
        assert talk.heard() == []
    assert seen == [False]


async def test_a_dropped_notification_leaves_a_word_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "gemel")
    async with talking(a_server(), "2025", shaken=False) as talk:
        await talk.say({"method": "notifications/acme", "params": {"x": 1}})
        await talk.open()
        await talk.say({"method": "notifications/subscriptions/acknowledged", "params": {}})
        await talk.say({"method": "notifications/nobody"})
        await talk.say({"method": "notifications/acme", "params": {"x": "one"}})
        await talk.ask("acme/missing")
    said = [(record.levelname, record.getMessage().partition(":")[0]) for record in caplog.records]
    assert ("DEBUG", "notifications/acme is dropped") in said
    assert ("DEBUG", "notifications/subscriptions/acknowledged is dropped") in said
    assert ("DEBUG", "notifications/nobody is dropped") in said
    assert ("WARNING", "notifications/acme is dropped") in said
