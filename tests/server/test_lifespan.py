"""The lifespan of a server: entered once, whoever serves; left by the last one, in the task that entered it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gemel import Client, Context, Limits, Server
from tests.transports.http_rig import serving


class Life:
    """A lifespan that keeps a diary."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.diary: list[str] = []
        self.tasks: list[Any] = []
        self._failure = failure

    @asynccontextmanager
    async def __call__(self, server: Server[Any]) -> AsyncIterator[dict[str, str]]:
        self.diary.append(f"enter {server.name}")
        self.tasks.append(asyncio.current_task())
        if self._failure is not None:
            raise self._failure
        try:
            yield {"db": "open"}
        finally:
            await asyncio.sleep(0)
            self.tasks.append(asyncio.current_task())
            self.diary.append("leave")


def living(life: Life) -> Server[dict[str, str]]:
    server: Server[dict[str, str]] = Server("alive", lifespan=life)

    @server.tool
    async def look(ctx: Context[dict[str, str]]) -> str:
        return ctx.state["db"]

    return server


async def test_it_is_entered_once_and_left_by_the_last() -> None:
    """One for all conversations."""
    life = Life()
    server = living(life)
    async with Client(server) as one:
        async with Client(server) as two:
            assert (await one.call_tool("look")).text == (await two.call_tool("look")).text == "open"
        assert life.diary == ["enter alive"]
        assert (await one.call_tool("look")).text == "open"
    assert life.diary == ["enter alive", "leave"]
    assert life.tasks[0] is life.tasks[1]
    async with Client(server) as again:
        await again.call_tool("look")
    assert life.diary == ["enter alive", "leave"] * 2


async def test_it_spans_all_requests_of_an_http_endpoint() -> None:
    life = Life()
    async with serving(living(life)) as site:
        for era in ("2025", "2026"):
            async with Client(f"http://127.0.0.1:{site.port}/mcp", era=era) as client:
                assert (await client.call_tool("look")).text == "open"
        assert life.diary == ["enter alive"]
    assert life.diary == ["enter alive", "leave"]


async def test_many_who_come_at_once_wait_for_one_entering() -> None:
    life = Life()
    server = living(life)

    async def visit() -> None:
        async with server.running():
            await asyncio.sleep(0)

    await asyncio.gather(*(visit() for _ in range(5)))
    assert life.diary == ["enter alive", "leave"]


async def test_a_failure_to_enter_is_everybodys_and_the_next_may_try_again() -> None:
    life = Life(LookupError("no database"))
    server = living(life)
    for _ in range(2):
        with pytest.raises(LookupError, match="no database"):
            async with server.running():
                raise AssertionError("it was entered")
    results = await asyncio.gather(*(server.running().__aenter__() for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in results] == [LookupError] * 3
    assert life.diary == ["enter alive"] * 3


async def test_who_does_not_leave_in_time_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    """A process whose server has ended has to end, too."""
    ended: list[bool] = []

    @asynccontextmanager
    async def life(server: Server[Any]) -> AsyncIterator[None]:
        yield
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(True)

    server: Server[Any] = Server("alive", lifespan=life, limits=Limits(teardown=0.05))
    async with Client(server):
        pass
    assert "Leaving the lifespan of server 'alive' took longer than 0.05 seconds and was given up" in caplog.text
    await asyncio.sleep(0)
    assert ended == [True]


async def test_a_failure_to_leave_is_in_the_log_and_nobodys_else(caplog: pytest.LogCaptureFixture) -> None:
    """It comes after everybody has got what he wanted."""

    @asynccontextmanager
    async def life(server: Server[Any]) -> AsyncIterator[None]:
        yield
        raise RuntimeError("the database was gone already")

    server: Server[Any] = Server("alive", lifespan=life)
    for _ in range(2):
        async with server.running():
            pass
    assert [record.getMessage() for record in caplog.records] == [
        "The lifespan of server 'alive' failed when it was left"
    ] * 2
    assert "the database was gone already" in caplog.text


async def test_who_gives_up_while_it_is_being_entered_hurts_nobody() -> None:
    gate = asyncio.Event()
    entered: list[str] = []

    @asynccontextmanager
    async def slow(server: Server[Any]) -> AsyncIterator[str]:
        await gate.wait()
        entered.append("in")
        yield "state"
        entered.append("out")

    server: Server[Any] = Server("slow", lifespan=slow)

    async def visit() -> None:
        async with server.running():
            pass

    impatient, patient = asyncio.create_task(visit()), asyncio.create_task(visit())
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.wait([impatient])
    gate.set()
    await patient
    assert entered == ["in", "out"]


async def test_a_server_without_one_has_no_state() -> None:
    server: Server[Any] = Server("plain")

    @server.tool
    async def look(ctx: Context[Any]) -> bool:
        return ctx.state is None

    async with Client(server) as client:
        assert (await client.call_tool("look")).data is True
