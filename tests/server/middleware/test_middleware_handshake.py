"""Middleware around the handshake: it may look on, refuse, or answer; what is agreed is always what was said."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gemel import CallNext, Client, Context, GemelError, InvalidParams, Limits, Root, Server
from gemel.protocol.states import HandshakeState
from gemel.server.context import served_call
from tests.jumping_clock import in_no_time
from tests.server.middleware.test_middleware import a_server
from tests.transports.http_rig import serving
from tests.wire.scenario import NEWEST
from tests.wire.talk import talking

HELLO = {"protocolVersion": NEWEST["2025"], "capabilities": {}, "clientInfo": {"name": "m", "version": "1"}}


async def test_a_veto_leaves_no_trace_and_the_client_may_try_again() -> None:
    """Neither version nor client is kept; nothing but the second attempt counts."""
    vetoes = ["no", "no"]
    states: list[Any] = []

    async def veto(ctx: Context[Any], call_next: CallNext) -> Any:
        handshake = served_call(ctx).session.connection.handshake
        if ctx.method == "initialize":
            states.append((handshake.state, handshake.client_info))
        if ctx.method == "initialize" and vetoes:
            if len(vetoes) == 1:
                await call_next(ctx)
            raise InvalidParams(vetoes.pop())
        return await call_next(ctx)

    async with talking(a_server(veto), "2025", shaken=False) as talk:
        for _ in range(2):
            assert (await talk.ask("initialize", **HELLO))["error"]["message"] == "no"
            assert (await talk.ask("tools/list"))["error"]["code"] == -32602
        assert "result" in await talk.ask("initialize", **HELLO)
        assert "result" in await talk.ask("tools/list")
    assert states == [(HandshakeState.NEGOTIATING, None)] * 3


async def test_the_handshake_reads_the_wire_whatever_the_middleware_rewrites() -> None:
    async def rewrite(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "initialize":
            other = {**HELLO, "protocolVersion": "2024-11-05", "clientInfo": {"name": "forged", "version": "1"}}
            return await call_next(ctx.replace(params=other))
        return await call_next(ctx)

    server = a_server(rewrite)
    found: list[Any] = []

    @server.request("acme/who")
    async def who(ctx: Context[Any], params: Any) -> None:
        found.append((ctx.client_info and ctx.client_info.name, ctx.protocol_version))

    async with talking(server, "2025", shaken=False) as talk:
        answer = await talk.ask("initialize", **HELLO)
        assert answer["result"]["protocolVersion"] == NEWEST["2025"]
        await talk.ask("acme/who")
    assert found == [("m", NEWEST["2025"])]


@pytest.mark.parametrize("calls_on", [False, True])
async def test_what_was_answered_is_what_was_agreed(calls_on: bool) -> None:
    """A middleware that answers the handshake itself can't bring reply and state apart."""

    async def older(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method != "initialize":
            return await call_next(ctx)
        if calls_on:
            await call_next(ctx)
        return {"protocolVersion": "2025-03-26", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}

    server = a_server(older)
    found: list[str] = []

    @server.request("acme/who")
    async def who(ctx: Context[Any], params: Any) -> None:
        found.append(ctx.protocol_version)

    async with talking(server, "2025", shaken=False) as talk:
        answer = await talk.ask("initialize", **HELLO)
        assert answer["result"]["protocolVersion"] == "2025-03-26"
        await talk.ask("acme/who")
    assert found == ["2025-03-26"]


@pytest.mark.parametrize("answer", [{}, {"protocolVersion": "2026-07-28"}, {"protocolVersion": 7}])
async def test_an_answer_to_the_handshake_without_a_revision_is_refused(answer: Any) -> None:
    async def wrong(ctx: Context[Any], call_next: CallNext) -> Any:
        return answer if ctx.method == "initialize" else await call_next(ctx)

    async with talking(a_server(wrong), "2025", shaken=False) as talk:
        assert (await talk.ask("initialize", **HELLO))["error"]["code"] == -32600
        assert (await talk.ask("tools/list"))["error"]["code"] == -32602


async def test_no_other_request_can_be_turned_into_a_handshake() -> None:
    """Its result would say what nobody has agreed on."""

    async def turn(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "acme/hello":
            return await call_next(ctx.replace(method="initialize", params=HELLO))
        return await call_next(ctx)

    for shaken in (False, True):
        async with talking(a_server(turn), "2025", shaken=shaken) as talk:
            answer = await talk.ask("acme/hello")
            assert answer["error"]["code"] == -32600
            assert "can't be turned into initialize" in answer["error"]["message"]
            assert ("result" in await talk.ask("tools/list")) is shaken


async def test_nothing_else_is_read_until_the_handshake_is_answered() -> None:
    order: list[str] = []
    gate = asyncio.Event()

    async def slow(ctx: Context[Any], call_next: CallNext) -> Any:
        order.append(ctx.method)
        if ctx.method == "initialize":
            await gate.wait()
        return await call_next(ctx)

    async with talking(a_server(slow), "2025", shaken=False) as talk:
        await talk.begin("initialize", **HELLO)
        await talk.begin("tools/list")
        await talk.begin("acme/missing")
        for _ in range(20):
            await asyncio.sleep(0)
        assert order == ["initialize"]
        gate.set()
        assert "result" in await talk.answer_to(1)
        assert "result" in await talk.answer_to(2)
        assert "error" in await talk.answer_to(3)


async def test_asking_the_client_during_the_handshake_is_an_error_at_once_and_telling_it_is_fine() -> None:
    caught: list[Exception] = []

    async def ask(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "initialize":
            try:
                await served_call(ctx).session.request("roots/list")
            except GemelError as exc:
                caught.append(exc)
            await ctx.notify("notifications/acme/hello")
        return await call_next(ctx)

    async with talking(a_server(ask), "2025", shaken=False) as talk:
        assert "result" in await talk.ask("initialize", **HELLO)
        assert [heard["method"] for heard in talk.heard()] == ["notifications/acme/hello"]
    assert "while initialize is being answered" in str(caught[0])


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("question", ["elicit", "elicit_url", "sample", "list_roots"])
async def test_a_question_to_a_client_that_can_answer_it_is_no_missing_capability(question: str, when: str) -> None:
    """What it declared isn't agreed on yet; the error says what is wrong, and the client may go on."""
    caught: list[str] = []
    ways: dict[str, Any] = {
        "elicit": lambda ctx: ctx.elicit("Who?", str),
        "elicit_url": lambda ctx: ctx.elicit_url("Look", "https://a.example"),
        "sample": lambda ctx: ctx.sample("Hello", max_tokens=1),
        "list_roots": lambda ctx: ctx.list_roots(),
    }

    async def curious(ctx: Context[Any], call_next: CallNext) -> Any:
        result = await call_next(ctx) if when == "after" else None
        if ctx.method == "initialize":
            with pytest.raises(GemelError) as error:
                await ways[question](ctx)
            caught.append(str(error.value))
        return result if when == "after" else await call_next(ctx)

    can: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
    async with talking(a_server(curious), "2025", shaken=False) as talk:
        assert "result" in await talk.ask("initialize", **{**HELLO, "capabilities": can})
    assert caught == ["The client can't be asked while initialize is being answered: it would never reply"]


async def test_the_client_can_be_asked_once_the_handshake_is_over() -> None:
    """Also by a task that `initialize` began."""
    ready = asyncio.Event()
    tasks: list[asyncio.Task[list[Root]]] = []

    async def curious(ctx: Context[Any], call_next: CallNext) -> Any:
        async def ask() -> list[Root]:
            await ready.wait()
            return await ctx.list_roots()

        if ctx.method == "initialize":
            tasks.append(asyncio.create_task(ask()))
        return await call_next(ctx)

    async with talking(a_server(curious), "2025", shaken=False) as talk:
        assert "result" in await talk.ask("initialize", **{**HELLO, "capabilities": {"roots": {}}})
        await talk.say({"method": "notifications/initialized"})
        ready.set()
        question = json.loads(await talk.route.next(lambda data: b"roots/list" in data))
        await talk.say({"id": question["id"], "result": {"roots": [{"uri": "file:///home"}]}})
        assert [root.uri for root in await tasks[0]] == ["file:///home"]


async def test_a_client_gets_what_was_sent_during_the_handshake_over_http_too() -> None:
    """With the result of `initialize`, in the order in which it was sent."""

    async def greet(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "initialize":
            for number in range(3):
                await ctx.notify("notifications/acme/hello", {"number": number})
        return await call_next(ctx)

    heard: list[Any] = []
    server = a_server(greet)
    async with (
        serving(server) as site,
        Client(
            f"http://127.0.0.1:{site.port}/mcp", era="2025", on_notification=lambda method, params: heard.append(params)
        ) as client,
    ):
        await client.ping()
        assert heard == [{"number": number} for number in range(3)]


async def test_what_is_sent_during_the_handshake_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """What comes first is sent; the log says that something is missing."""

    async def flood(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "initialize":
            for number in range(10):
                await ctx.notify("notifications/acme/hello", {"number": number})
        return await call_next(ctx)

    server: Server[Any] = Server("flooding", middleware=[flood], limits=Limits(backlog=4))
    async with talking(server, "2025", shaken=False) as talk:
        assert "result" in await talk.ask("initialize", **HELLO)
        assert [heard["params"]["number"] for heard in talk.heard()] == [0, 1, 2, 3]
    assert "notifications/acme/hello is not sent: too many notifications during initialize" in caplog.text


@in_no_time
@pytest.mark.parametrize("how", ["passes", "drops", "fails", "hangs"])
async def test_the_client_is_ready_when_the_middleware_has_let_it_say_so(how: str) -> None:
    """Else questions wait as if it had not said so, and nothing else does."""
    loop = asyncio.get_running_loop()

    async def gate(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "notifications/initialized":
            if how == "drops":
                return None
            if how == "fails":
                raise ValueError("no")
            if how == "hangs":
                await loop.create_future()
        return await call_next(ctx)

    server = a_server(gate)

    @server.tool
    async def ask(ctx: Context[Any]) -> str:
        return await ctx.elicit("Who?", str)

    async with Client(server, era="2025", on_elicit=lambda form: {"value": "Ada"}) as client:
        begin = loop.time()
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
        assert loop.time() == begin
        assert (await client.call_tool("ask")).text == "Ada"
        assert loop.time() - begin == (0 if how == "passes" else 5)
        assert (await client.call_tool("ask")).text == "Ada"
        assert loop.time() - begin == (0 if how == "passes" else 5)


async def test_the_handler_of_initialized_finds_a_client_that_is_ready() -> None:
    states: list[HandshakeState] = []

    async def watch(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "notifications/initialized":
            states.append(served_call(ctx).session.connection.handshake.state)
        return await call_next(ctx)

    server = a_server(watch)

    @server.notification("notifications/initialized")
    async def ready(ctx: Context[Any], params: Any) -> None:
        states.append(served_call(ctx).session.connection.handshake.state)

    async with talking(server, "2025", shaken=False) as talk:
        await talk.say({"method": "notifications/initialized"})
        assert "result" in await talk.ask("ping")
        assert "result" in await talk.ask("initialize", **HELLO)
        for _ in range(2):
            await talk.say({"method": "notifications/initialized"})
        assert "result" in await talk.ask("ping")
    ready_now, agreed = HandshakeState.READY, HandshakeState.NEGOTIATED
    assert states == [HandshakeState.NEW, agreed, ready_now, ready_now, ready_now]
