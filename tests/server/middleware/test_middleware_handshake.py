"""Middleware around the handshake: it may look on, refuse, or answer; what is agreed is always what was said."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gemel import CallNext, Context, GemelError, InvalidParams, Root
from gemel.protocol.states import HandshakeState
from tests.server.middleware.test_middleware import a_server, talking
from tests.wire.scenario import NEWEST

HELLO = {"protocolVersion": NEWEST["2025"], "capabilities": {}, "clientInfo": {"name": "m", "version": "1"}}


async def test_a_veto_leaves_no_trace_and_the_client_may_try_again() -> None:
    """A-034, A-119: neither version nor client is kept; nothing but the second attempt counts."""
    vetoes = ["no", "no"]
    states: list[Any] = []

    async def veto(ctx: Context[Any], call_next: CallNext) -> Any:
        handshake = ctx._session.connection.handshake
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
    """A-034."""

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
    """A-120: a middleware that answers the handshake itself can't bring reply and state apart."""

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
    """A-119, A-120, T-09."""

    async def wrong(ctx: Context[Any], call_next: CallNext) -> Any:
        return answer if ctx.method == "initialize" else await call_next(ctx)

    async with talking(a_server(wrong), "2025", shaken=False) as talk:
        assert (await talk.ask("initialize", **HELLO))["error"]["code"] == -32600
        assert (await talk.ask("tools/list"))["error"]["code"] == -32602


async def test_nothing_else_is_read_until_the_handshake_is_answered() -> None:
    """A-032, A-161."""
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
    """A-033."""
    caught: list[Exception] = []

    async def ask(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "initialize":
            try:
                await ctx._session.request("roots/list")
            except GemelError as exc:
                caught.append(exc)
            await ctx._session.notify("notifications/acme/hello")
        return await call_next(ctx)

    async with talking(a_server(ask), "2025", shaken=False) as talk:
        assert "result" in await talk.ask("initialize", **HELLO)
        assert [heard["method"] for heard in talk.heard()] == ["notifications/acme/hello"]
    assert "while initialize is being answered" in str(caught[0])


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("question", ["elicit", "elicit_url", "sample", "list_roots"])
async def test_a_question_to_a_client_that_can_answer_it_is_no_missing_capability(question: str, when: str) -> None:
    """A-033: what it declared isn't agreed on yet; the error says what is wrong, and the client may go on."""
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
    """A-033: also by a task that `initialize` began."""
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
