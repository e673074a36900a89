"""The lifespan of a conversation: once per handshake conversation, once per stateless request that runs a function."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gemel import Context, Limits, Server, ToolError
from tests.server.bare_end import BareEnd, Era

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


class Life:
    """A lifespan that keeps a diary."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.count = 0
        self.fails = False
        self.hangs = False

    @asynccontextmanager
    async def __call__(self, ctx: Context[Any]) -> AsyncIterator[int]:
        self.count += 1
        number = self.count
        if self.fails:
            raise OSError("the database is closed")
        name = ctx.client_info.name if ctx.client_info is not None else "nobody"
        self.log.append(f"{number} begins with {ctx.method} of {name}")
        await asyncio.sleep(0)
        try:
            yield number
        finally:
            if self.hangs:
                await asyncio.sleep(60)
            self.log.append(f"{number} ends")


def counted(life: Life, **options: Any) -> Server[Any]:
    server: Server[Any] = Server("counted", connection_lifespan=life, **options)

    @server.tool
    async def state(ctx: Context[Any]) -> str:
        await asyncio.sleep(0)
        return str(ctx.connection_state)

    @server.prompt
    async def brief(ctx: Context[Any]) -> str:
        return str(ctx.connection_state)

    @server.request("acme/state")
    async def own(ctx: Context[Any], params: Any) -> Any:
        return {"state": ctx.connection_state}

    return server


async def test_a_handshake_conversation_has_one_from_its_first_work_to_its_end() -> None:
    life = Life()
    server = counted(life)
    async with BareEnd(server, "2025") as one, BareEnd(server, "2025") as other:
        await one.names()
        assert life.log == []
        assert await asyncio.gather(*(one.text("state") for _ in range(3))) == ["1", "1", "1"]
        assert await other.text("state") == "2"
        assert (await one.ask("acme/state"))["state"] == 1
        brief = await one.ask("prompts/get", {"name": "brief"})
        assert brief["messages"][0]["content"]["text"] == "1"
        assert life.log == ["1 begins with tools/call of bare", "2 begins with tools/call of bare"]
    assert sorted(life.log[2:]) == ["1 ends", "2 ends"]


async def test_each_stateless_request_that_runs_a_function_has_its_own() -> None:
    """Nothing is carried from one request to the next."""
    life = Life()
    async with BareEnd(counted(life), "2026") as end:
        await end.names()
        await end.ask("server/discover")
        assert life.log == []
        assert await end.text("state") == "1"
        assert life.log[-1] == "1 ends"
        assert await end.text("state") == "2"
        assert (await end.ask("acme/state"))["state"] == 3
    assert life.log[-1] == "3 ends"


async def test_a_handshake_request_that_stands_alone_has_its_own() -> None:
    life = Life()
    server = counted(life)
    for number in ("1", "2"):
        end = BareEnd(server, "2025", kind="post")
        assert await end.text("state") == number
        assert life.log == [
            line for n in range(1, int(number) + 1) for line in (f"{n} begins with tools/call of nobody", f"{n} ends")
        ]
        end.session.close("over")


@both_eras
async def test_one_that_cannot_begin_fails_the_call_and_the_next_call_tries_again(
    era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life()
    life.fails = True
    async with BareEnd(counted(life), era) as end:
        error = await end.refusal("tools/call", {"name": "state", "arguments": {}})
        assert (error["code"], error["message"]) == (-32603, "Internal server error")
        life.fails = False
        assert await end.text("state") == "2"
    assert "the database is closed" in caplog.text


async def test_one_that_does_not_end_is_abandoned_in_time(caplog: pytest.LogCaptureFixture) -> None:
    """A-081, A-083."""
    life = Life()
    life.hangs = True
    async with BareEnd(counted(life, limits=Limits(teardown=0.05)), "2025") as end:
        assert await end.text("state") == "1"
    assert "clean-up took longer than 0.05 seconds" in caplog.text


async def test_one_of_a_stateless_request_that_does_not_end_holds_its_answer_for_a_limited_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A-081, A-084: what the function did and said counts; the clean-up is given up with a word in the log."""
    life = Life()
    server = counted(life, limits=Limits(teardown=0.05))

    @server.tool
    async def fail() -> str:
        raise ToolError("no luck")

    async with BareEnd(server) as end:
        life.hangs = True
        assert await end.text("state") == "1"
        assert (await end.call_tool("fail"))["content"][0]["text"] == "no luck"
        assert (await end.refusal("prompts/get", {"name": "nope"}))["code"] == -32602
    assert caplog.text.count("leaving its connection_lifespan took longer than 0.05 seconds") == 3
    assert [line for line in life.log if line.endswith("ends")] == []


async def test_one_that_fails_at_its_end_is_in_the_log_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    """A-082."""

    @asynccontextmanager
    async def life(ctx: Context[Any]) -> AsyncIterator[None]:
        yield
        raise OSError("the database was gone already")

    server: Server[Any] = Server("failing", connection_lifespan=life)
    server.tool("state")(lambda: "fine")
    async with BareEnd(server, "2025") as end:
        assert await end.text("state") == "fine"
    assert "The lifespan of a connection failed when it was left" in caplog.text
    assert "the database was gone already" in caplog.text


async def test_a_client_that_leaves_while_it_begins_leaves_nothing_open() -> None:
    life = Life()
    end = BareEnd(counted(life), "2025")
    async with end:
        call: Any = end.begin("tools/call", {"name": "state", "arguments": {}})
        task = asyncio.create_task(end.session.answer(call))
        await asyncio.sleep(0)
    assert await task is None
    assert len([line for line in life.log if "begins" in line]) == len([line for line in life.log if "ends" in line])


@both_eras
async def test_without_one_the_state_is_none(era: Era) -> None:
    server: Server[Any] = Server("plain")

    @server.tool
    async def state(ctx: Context[Any]) -> str:
        return str(ctx.connection_state)

    async with BareEnd(server, era) as end:
        assert await end.text("state") == "None"


async def test_middleware_sees_the_state() -> None:
    life = Life()
    server = counted(life)
    seen: list[Any] = []

    async def watching(ctx: Context[Any], call_next: Any) -> Any:
        seen.append(ctx.connection_state)
        return await call_next(ctx)

    server.add_middleware(watching)
    async with BareEnd(server) as end:
        await end.text("state")
    assert seen == [1]
