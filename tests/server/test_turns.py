"""Limits of tools and of the whole server: time, how many at once, and what is told to who comes on top."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Annotated, Any

import pytest

from gemel import CallNext, Context, DefinitionError, Depends, Limits, Overloaded, Server
from tests.server.bare_end import BareEnd, Era
from tests.support import UNKNOWN_ORIGIN, Call

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


class Gate:
    """Holds functions until the test lets them go on; knows how many were inside at once."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.inside = 0
        self.most = 0

    async def __aenter__(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await self.open.wait()

    async def __aexit__(self, *exc_info: object) -> None:
        self.inside -= 1


def start(end: BareEnd, name: str, count: int = 1) -> list[asyncio.Task[dict[str, Any]]]:
    params = {"name": name, "arguments": {}}
    return [asyncio.create_task(end.reply("tools/call", params)) for _ in range(count)]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


# ---------------------------------------------------------------- time


@both_eras
async def test_a_call_that_takes_too_long_is_cancelled_and_fails_in_words(era: Era) -> None:
    """TOOL-19."""
    server: Server[Any] = Server("slow")
    ends: list[str] = []

    @server.tool(timeout=0.02)
    async def sleep() -> str:
        try:
            await asyncio.sleep(60)
        finally:
            ends.append("cancelled")
        return "never"

    async with BareEnd(server, era) as end:
        result = await end.call_tool("sleep")
        assert result["isError"]
        assert result["content"][0]["text"] == "Tool 'sleep' did not finish within 0.02 seconds and was stopped"
    assert ends == ["cancelled"]


async def test_a_timeout_of_the_functions_own_is_not_taken_for_the_limit() -> None:
    server: Server[Any] = Server("slow")

    @server.tool(timeout=60)
    async def own() -> str:
        raise TimeoutError("the database did not answer")

    async with BareEnd(server) as end:
        assert "failed unexpectedly" in await end.text("own")


async def test_the_limit_covers_dependencies_and_lets_them_clean_up() -> None:
    server: Server[Any] = Server("slow")
    log: list[str] = []

    async def opened() -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.sleep(0)
            log.append("closed")

    async def never() -> None:
        await asyncio.sleep(60)

    @server.tool(timeout=0.02)
    async def work(one: Annotated[None, Depends(opened)], two: Annotated[None, Depends(never)]) -> str:
        return "never"

    async with BareEnd(server) as end:
        assert "did not finish" in await end.text("work")
    assert log == ["closed"]


async def test_a_sync_function_out_of_time_fails_at_once_and_ends_at_its_next_word() -> None:
    server: Server[Any] = Server("slow")
    go_on, raised = threading.Event(), threading.Event()

    @server.tool(timeout=0.05)
    def work(ctx: Context[Any]) -> str:
        go_on.wait(5)
        try:
            ctx.sync.report_progress(1)
        except concurrent.futures.CancelledError:
            raised.set()
        return "never"

    async with BareEnd(server) as end:
        result = await end.call_tool("work")
        assert result["isError"]
        go_on.set()
        assert await asyncio.to_thread(raised.wait, 5)


async def test_the_time_in_which_a_person_is_asked_does_not_count() -> None:
    """Nobody answers a form in 50 ms."""
    server: Server[Any] = Server("asking")

    @server.tool(timeout=0.05)
    async def ask(ctx: Context[Any]) -> str:
        name = await ctx.elicit("Your name?", str)
        await asyncio.sleep(0)
        return name

    @server.tool(timeout=0.05)
    async def dawdle(ctx: Context[Any]) -> str:
        await ctx.elicit("Your name?", str)
        await asyncio.sleep(60)
        return "never"

    async with BareEnd(server, "2025", capabilities={"elicitation": {}}) as end:
        for tool, expected in (("ask", "Ada"), ("dawdle", "did not finish within 0.05 seconds")):
            end.heard.clear()
            (task,) = start(end, tool)
            await end.wait_for("elicitation/create")
            await asyncio.sleep(0.15)
            content = {"action": "accept", "content": {"value": "Ada"}}
            end.feed({"jsonrpc": "2.0", "id": end.heard[-1]["id"], "result": content})
            assert expected in (await task)["result"]["content"][0]["text"]


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_time_limit_is_more_than_nothing(seconds: float) -> None:
    with pytest.raises(DefinitionError, match=r"Tool 'x': timeout=.* is not possible: use seconds, more than 0"):
        Server("mistaken").tool("x", timeout=seconds)(lambda: "x")


# ---------------------------------------------------------------- how many at once


async def test_so_many_run_at_once_and_the_rest_in_turn() -> None:
    server: Server[Any] = Server("busy")
    gate, order = Gate(), list[int]()

    @server.tool(concurrency=2)
    async def work(ctx: Context[Any]) -> str:
        order.append(int(ctx.request_id or 0))
        async with gate:
            return "done"

    @server.tool
    async def free() -> str:
        return "free"

    async with BareEnd(server) as end:
        tasks = start(end, "work", 6)
        await settle()
        assert gate.inside == 2
        assert await end.text("free") == "free"
        gate.open.set()
        replies = await asyncio.gather(*tasks)
        assert [reply["result"]["content"][0]["text"] for reply in replies] == ["done"] * 6
    assert gate.most == 2
    assert order == sorted(order)


@both_eras
async def test_who_comes_when_too_many_wait_is_told_when_to_come_back(era: Era) -> None:
    """ERR-14: a code of our own, outside the reserved ranges."""
    server: Server[Any] = Server("busy")
    gate = Gate()

    @server.tool(concurrency=1, waiting=1)
    async def work() -> str:
        async with gate:
            return "done"

    async with BareEnd(server, era) as end:
        tasks = start(end, "work", 2)
        await settle()
        error = await end.refusal("tools/call", {"name": "work", "arguments": {}})
        assert error["code"] == 429
        assert not -32768 <= error["code"] <= -32000
        assert error["message"] == "Tool 'work' is busy: 1 at once is its limit"
        assert 100 <= error["data"]["retryAfterMs"] <= 60_000
        gate.open.set()
        assert all("result" in reply for reply in await asyncio.gather(*tasks))
        assert await end.text("work") == "done"


@both_eras
async def test_a_call_that_waits_for_its_turn_when_the_server_ends_may_be_repeated(era: Era) -> None:
    server: Server[Any] = Server("busy")
    gate = Gate()

    @server.tool(concurrency=1)
    async def work() -> str:
        async with gate:
            return "done"

    async with BareEnd(server, era) as end:
        tasks = start(end, "work", 2)
        await settle()
        replies = end.session.stop("the server is stopping")
        assert [reply.error.code for reply in replies if reply.error is not None] == [504, 429]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_nobody_waits_for_ever() -> None:
    server: Server[Any] = Server("busy", limits=Limits(concurrency_wait=0.02))
    gate = Gate()

    @server.tool(concurrency=1)
    async def work() -> str:
        async with gate:
            return "done"

    async with BareEnd(server) as end:
        first, second = start(end, "work", 2)
        assert (await second)["error"]["code"] == 429
        gate.open.set()
        assert "result" in await first


async def test_who_leaves_the_queue_leaves_his_place_to_the_next() -> None:
    """CANC-06."""
    server: Server[Any] = Server("busy")
    gate = Gate()

    @server.tool(concurrency=1)
    async def work() -> str:
        async with gate:
            return "done"

    async with BareEnd(server) as end:
        (first,) = start(end, "work")
        await settle()
        call = end.begin("tools/call", {"name": "work", "arguments": {}})
        assert isinstance(call, Call)
        leaving = asyncio.create_task(end.session.answer(call))
        (third,) = start(end, "work")
        await settle()
        end.session.cancel(call, "the test wants it")
        assert await leaving is None
        gate.open.set()
        assert "result" in await first
        assert "result" in await third
        assert await end.text("work") == "done"


async def test_a_turn_that_comes_in_the_moment_of_leaving_is_passed_on() -> None:
    from gemel.server.concurrency import ConcurrencyLimit

    ctx: Any = SimpleNamespace(_served=SimpleNamespace(call=SimpleNamespace(origin=UNKNOWN_ORIGIN)))
    limit = ConcurrencyLimit("work", 1, 10, 5.0)._queues.here()
    await limit.acquire(ctx)
    waiting = asyncio.create_task(limit.acquire(ctx))
    after = asyncio.create_task(limit.acquire(ctx))
    await settle()
    limit.release(0.1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(5):
        await after


async def test_failures_give_their_turn_back() -> None:
    server: Server[Any] = Server("busy")

    @server.tool(concurrency=1, waiting=0)
    async def fail() -> str:
        raise OSError("no")

    async with BareEnd(server) as end:
        for _ in range(3):
            assert "failed unexpectedly" in await end.text("fail")


def test_limits_that_cannot_be_are_mistakes() -> None:
    server: Server[Any] = Server("mistaken")
    with pytest.raises(DefinitionError, match="Tool 'x': concurrency must be 1 or more, waiting 0 or more"):
        server.tool("x", concurrency=0)(lambda: "x")
    with pytest.raises(DefinitionError, match="Tool 'x': waiting= needs concurrency=, the number that run at once"):
        server.tool("x", waiting=3)(lambda: "x")


# ---------------------------------------------------------------- the whole server


@both_eras
async def test_the_server_refuses_what_is_too_much_over_all_connections(era: Era) -> None:
    """ERR-14."""
    server: Server[Any] = Server("small", limits=Limits(all_calls=2))
    gate = Gate()

    @server.tool
    async def work() -> str:
        async with gate:
            return "done"

    async with BareEnd(server, era) as one, BareEnd(server, era) as other:
        tasks = start(one, "work") + start(other, "work")
        await settle()
        error = await other.refusal("tools/list")
        assert error["code"] == 429
        assert error["message"] == "The server is busy: 2 requests at once is its limit"
        assert error["data"]["retryAfterMs"] > 0
        gate.open.set()
        assert all("result" in reply for reply in await asyncio.gather(*tasks))
        assert await other.names() == ["work"]


@both_eras
@pytest.mark.parametrize("limits", [Limits(all_calls=2), Limits(calls=2)])
async def test_a_busy_server_still_says_that_it_is_alive(era: Era, limits: Limits) -> None:
    """PING-01: even while all places for calls are taken; but a flood of such requests is refused like any other."""
    server: Server[Any] = Server("small", limits=limits)
    gate = Gate()

    @server.tool
    async def work() -> str:
        async with gate:
            return "done"

    @server.add_middleware
    async def slowly(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.meta.get("slow"):
            await gate.open.wait()
        return await call_next(ctx)

    method = "ping" if era == "2025" else "server/discover"
    async with BareEnd(server, era) as end:
        tasks = start(end, "work") + start(end, "work")
        await settle()
        assert (await end.refusal("tools/list"))["code"] == 429
        assert "result" in await end.reply(method)
        if limits.calls == 2:
            flood = [asyncio.create_task(end.reply(method, {"_meta": {"slow": True}})) for _ in range(100)]
            await settle()
            refused = [task for task in flood if task.done()]
            assert len(refused) == 100 - 8
            tasks += [task for task in flood if task not in refused]
        gate.open.set()
        assert all("result" in reply for reply in await asyncio.gather(*tasks))


@both_eras
async def test_the_bytes_of_running_calls_of_all_connections_are_bounded(era: Era) -> None:
    server: Server[Any] = Server("kept", limits=Limits(all_call_bytes=50_000))
    gate = Gate()

    @server.tool
    async def keep(text: str) -> int:
        async with gate:
            return len(text)

    large: dict[str, Any] = {"name": "keep", "arguments": {"text": "x" * 30_000}}
    async with BareEnd(server, era) as one, BareEnd(server, era) as two:
        running = asyncio.create_task(one.reply("tools/call", large))
        await settle()
        for _ in range(2):
            error = await two.refusal("tools/call", large)
            assert error["code"] == Overloaded.code
            assert error["message"] == "The server is busy: 50000 bytes of requests at once is its limit"
            assert "tools" in await two.ask("tools/list")
        gate.open.set()
        assert (await running)["result"]["content"][0]["text"] == "30000"
        large["arguments"] = {"text": "x" * 60_000}
        assert (await two.ask("tools/call", large))["content"][0]["text"] == "60000"


@both_eras
async def test_the_bytes_of_running_calls_of_a_connection_are_bounded(era: Era) -> None:
    """Also those of a call that was cancelled and goes on; small requests pass, and one large call always does."""
    server: Server[Any] = Server("kept", limits=Limits(call_bytes=50_000))
    gate, heard = asyncio.Event(), 0

    @server.tool
    async def keep(text: str) -> int:
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()
        return len(text)

    @server.notification("notifications/count")
    async def count(ctx: Context[Any], params: Any) -> None:
        nonlocal heard
        heard += 1

    async with BareEnd(server, era) as end:
        large = {"name": "keep", "arguments": {"text": "x" * 60_000}}
        call = end.begin("tools/call", large)
        assert isinstance(call, Call)
        running = asyncio.create_task(end.session.answer(call))
        await settle()
        try:
            for _ in range(2):
                refused = asyncio.create_task(end.refusal("tools/call", large))
                await settle()
                assert refused.done()
                error = refused.result()
                assert error["code"] == Overloaded.code
                assert error["message"] == "Too large requests: 50000 bytes at once is the limit of a connection"
                assert "tools" in await end.ask("tools/list")
                await end.tell("notifications/count", {"text": "x" * 60_000})
                assert heard == 0
                await end.tell("notifications/cancelled", {"requestId": call.id, "reason": "x" * 60_000})
                await settle()
        finally:
            gate.set()
        await running
        assert (await end.call_tool("keep", text="x" * 60_000))["content"][0]["text"] == "60000"
        await end.tell("notifications/count", {"text": "x" * 60_000})
        assert heard == 1


async def test_open_subscriptions_do_not_count_as_running_calls() -> None:
    server: Server[Any] = Server("small", limits=Limits(all_calls=1))
    server.tool("work")(lambda: "done")
    async with BareEnd(server) as end:
        listening = asyncio.create_task(
            end.reply("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        )
        await end.wait_for("notifications/subscriptions/acknowledged")
        assert await end.text("work") == "done"
        await server._drain()
        assert "result" in await listening
        assert await end.text("work") == "done"
