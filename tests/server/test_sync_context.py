"""What sync functions, in worker threads, tell and ask: `ctx.sync`, in both eras."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Any

import pytest

from gemel import Context, Declined, Server
from tests.server.bare_end import BareEnd, Era
from tests.support import LOG_LEVEL

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
ALL: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


def answer(method: str, params: Any) -> Any:
    if method == "elicitation/create":
        return (
            {"action": "accept", "content": {"value": "Ada"}} if "requestedSchema" in params else {"action": "accept"}
        )
    if method == "sampling/createMessage":
        return {"role": "assistant", "content": {"type": "text", "text": "thought"}, "model": "m"}
    return {"roots": [{"uri": "file:///home"}]}


async def finished(end: BareEnd, name: str, **meta: Any) -> dict[str, Any]:
    """The result of a tool after all rounds of questions."""
    params: dict[str, Any] = {"name": name, "arguments": {}, "_meta": meta}
    for _ in range(5):
        result = await end.ask("tools/call", params)
        if result.get("resultType") != "input_required":
            return result
        asked = result["inputRequests"]
        params["inputResponses"] = {key: answer(one["method"], one.get("params")) for key, one in asked.items()}
        params["requestState"] = result["requestState"]
    raise AssertionError("it never ends")


@both_eras
async def test_a_sync_function_tells_the_client_as_plain_calls(era: Era) -> None:
    """PROG-01, LOG-02."""
    server: Server[Any] = Server("telling")

    @server.tool
    def work(ctx: Context[Any]) -> str:
        ctx.sync.report_progress(1, 2, "half")
        ctx.sync.log("notice", {"n": 1}, logger="app")
        ctx.sync.debug("d")
        ctx.sync.info("i")
        ctx.sync.warning("w")
        ctx.sync.error("e")
        ctx.sync.notify("notifications/acme/done", {"n": 2})
        return threading.current_thread().name

    async with BareEnd(server, era) as end:
        if era == "2025":
            await end.ask("logging/setLevel", {"level": "debug"})
        meta = {"progressToken": "t", LOG_LEVEL: "debug"}
        result = await finished(end, "work", **meta)
        assert result["content"][0]["text"] == "gemel-tool"
        heard = [one for one in end.heard if "method" in one]
        methods = [one["method"].removeprefix("notifications/") for one in heard]
        assert methods == ["progress", *["message"] * 5, "acme/done"]
        assert [one["params"]["level"] for one in heard[1:6]] == ["notice", "debug", "info", "warning", "error"]
        assert heard[0]["params"] == {"progressToken": "t", "progress": 1, "total": 2, "message": "half"}


@both_eras
async def test_a_sync_function_asks_as_plain_calls(era: Era) -> None:
    """MRTR-01, MRTR-03."""
    server: Server[Any] = Server("asking")

    @server.tool
    def work(ctx: Context[Any]) -> list[str]:
        name = ctx.sync.elicit("Your name?", str)
        ctx.sync.elicit_url("Look", "https://example.org/")
        thought: Any = ctx.sync.sample("Think").content
        roots = ctx.sync.list_roots()
        return [name, thought.text, roots[0].uri]

    async with BareEnd(server, era, capabilities=ALL, answer=answer) as end:
        result = await finished(end, "work")
        assert result["content"][0]["text"] == '["Ada","thought","file:///home"]'


@both_eras
async def test_a_step_of_a_sync_function_runs_once_and_in_its_own_thread(era: Era) -> None:
    server: Server[Any] = Server("charging")
    charged: list[tuple[str, str]] = []

    def charge(amount: int) -> dict[str, int]:
        charged.append((str(amount), threading.current_thread().name))
        return {"ticket": amount}

    def refuse() -> None:
        raise OSError("the bank is closed")

    @server.tool
    def work(ctx: Context[Any]) -> str:
        ticket = ctx.sync.step(charge, 5)
        name = ctx.sync.elicit("Your name?", str)
        with pytest.raises(OSError, match="the bank is closed"):
            ctx.sync.step(refuse)
        return f"{name} {ticket['ticket']}"

    async with BareEnd(server, era, capabilities=ALL, answer=answer) as end:
        result = await finished(end, "work")
        assert result["content"][0]["text"] == "Ada 5"
    assert charged == [("5", "gemel-tool")]


@both_eras
async def test_a_declined_question_raises_in_the_thread(era: Era) -> None:
    server: Server[Any] = Server("asking")

    @server.tool
    def work(ctx: Context[Any]) -> str:
        try:
            return ctx.sync.elicit("Your name?", str)
        except Declined as exc:
            return exc.action

    async with BareEnd(server, era, capabilities=ALL, answer=lambda method, params: {"action": "decline"}) as end:
        params: dict[str, Any] = {"name": "work", "arguments": {}}
        if era == "2026":
            first = await end.ask("tools/call", params)
            params["requestState"] = first["requestState"]
            params["inputResponses"] = {key: {"action": "decline"} for key in first["inputRequests"]}
        assert (await end.ask("tools/call", params))["content"][0]["text"] == "decline"


async def test_a_thread_that_waits_for_an_answer_ends_with_its_call() -> None:
    """CANC-06: no thread waits for a client that has gone."""
    server: Server[Any] = Server("asking")
    ended: list[BaseException] = []
    over = threading.Event()

    @server.tool
    def work(ctx: Context[Any]) -> str:
        try:
            return ctx.sync.elicit("Your name?", str)
        except concurrent.futures.CancelledError as exc:
            ended.append(exc)
            with pytest.raises(concurrent.futures.CancelledError):
                ctx.sync.report_progress(1)
            raise
        finally:
            over.set()

    async with BareEnd(server, "2025", capabilities=ALL) as end:
        call: Any = end.begin("tools/call", {"name": "work", "arguments": {}})
        task = asyncio.create_task(end.session.answer(call))
        await end.wait_for("elicitation/create")
        end.session.cancel(call, "the test wants it")
        assert await task is None
        assert await asyncio.to_thread(over.wait, 5)
    assert len(ended) == 1


async def test_any_other_thread_of_the_call_may_use_it() -> None:
    server: Server[Any] = Server("telling")

    @server.tool
    async def work(ctx: Context[Any]) -> str:
        await asyncio.to_thread(ctx.sync.report_progress, 1)
        return "done"

    async with BareEnd(server) as end:
        await finished(end, "work", progressToken=1)
        assert end.heard[0]["params"]["progress"] == 1


async def test_on_the_event_loop_it_says_what_to_write_instead(caplog: pytest.LogCaptureFixture) -> None:
    server: Server[Any] = Server("mistaken")

    @server.tool
    async def work(ctx: Context[Any]) -> str:
        ctx.sync.report_progress(1)
        return "never"

    @server.tool(blocking=False)
    def inline(ctx: Context[Any]) -> str:
        ctx.sync.info("x")
        return "never"

    async with BareEnd(server) as end:
        assert (await end.call_tool("work"))["isError"]
        assert (await end.call_tool("inline"))["isError"]
    text = "ctx.sync would block the event loop here: await the method of ctx itself"
    assert caplog.text.count(text) >= 2
