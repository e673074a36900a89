"""The client's side: handles, waiting, answering, resuming."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from gemel import CallTimeout, Client, Context, InvalidResponse, PeerError, Server, TaskInfo, TasksClient, ToolCallError
from gemel.server.context import served_call
from tests.client.puppet import Puppet, discovered, done, legacy, modern, shaken
from tests.extensions.tasks.serving import Log, serving
from tests.jumping_clock import in_no_time
from tests.server.bare_end import Era
from tests.transports import http_rig

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


def answers(form: Any) -> dict[str, str]:
    return {"value": form.message.lower()}


@both_eras
async def test_a_call_as_a_task(era: Era) -> None:
    """TEX-06: the handle comes at once, and the result has the type that was asked for."""
    log, states = Log(), list[TaskInfo]()
    server: Server[Any] = serving(log)

    @server.tool(task=True)
    async def number(value: int) -> int:
        return value + 1

    async with Client(server, era=era) as client:
        await client.list_tools()
        counted = await client.call_tool("number", {"value": 1}, task=True, returns=int)
        assert (await counted.result(total=10)).data + 1 == 3
        assert counted.status == "completed"

        task = await client.call_tool("wait", {"name": "a"}, task=True)
        assert task.status == "working"
        await log.started.wait()
        asyncio.get_running_loop().call_later(0.1, log.gate("a").set)
        result = await task.result(total=10, on_status=states.append)
        assert result.text == "a is done"
        assert [state.status for state in states][-1] == "completed"
        assert "1/2: half" in {state.message for state in states}


@both_eras
@in_no_time
@pytest.mark.parametrize("seconds", [0.05, 7, 300])
async def test_a_task_is_asked_for_each_time_that_it_says_until_its_end(era: Era, seconds: float) -> None:
    """TSK-11, TEX-13: no earlier and no later."""
    log, loop = Log(), asyncio.get_running_loop()
    async with Client(serving(log, poll_interval=seconds), era=era) as client:
        task = await client.call_tool("wait", {"name": "a"}, task=True)
        begun, told = loop.time(), list[float]()
        loop.call_later(1.4 * seconds, log.gate("a").set)
        await task.result(on_status=lambda info: told.append(loop.time() - begun))
        assert loop.time() - begun == pytest.approx(2 * seconds)
        assert told == pytest.approx([0, seconds, 2 * seconds])


@both_eras
async def test_what_a_task_asks_goes_to_the_callbacks(era: Era) -> None:
    """TSK-13, TEX-15, TEX-32: each request once."""
    asked: list[str] = []

    def on_elicit(form: Any) -> dict[str, str]:
        asked.append(form.message)
        return answers(form)

    async with Client(serving(), era=era, on_elicit=on_elicit) as client:
        task = await client.call_tool("ask", task=True)
        assert (await task.result(total=10)).text == "first? second?"
        assert sorted(asked) == ["First?", "Second?"]


BEGUN: dict[str, Any] = {"resultType": "task", "taskId": "t", "createdAt": "2026-01-01T00:00:00Z", "ttlMs": None}
BEGUN |= {"lastUpdatedAt": BEGUN["createdAt"], "status": "working"}


def with_tasks(**answers: Any) -> Puppet:
    """A server that answers each call with the same task."""
    puppet = modern(tools_call=BEGUN, **answers)
    capabilities: dict[str, Any] = {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
    puppet.by_method["server/discover"] = discovered(capabilities=capabilities)
    return puppet


async def test_an_answer_about_another_task_is_no_answer() -> None:
    done = {**BEGUN, "resultType": "complete", "status": "completed", "taskId": "other", "result": {"content": []}}
    async with Client(with_tasks(tasks_get=done)) as client:
        handle = await client.call_tool("x", task=True)
        with pytest.raises(InvalidResponse, match="'other'"):
            await handle.result()


@in_no_time
async def test_a_task_that_always_requests_something_new_is_given_up() -> None:
    """Else a hostile server could fill the memory of its client, and use its model without an end."""
    form = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}
    asked: list[Any] = []

    def get(puppet: Puppet, message: dict[str, Any]) -> dict[str, Any]:
        more = {f"{len(asked)}": form}
        return {**BEGUN, "resultType": "complete", "status": "input_required", "inputRequests": more}

    puppet = with_tasks(tasks_get=get, tasks_update={"resultType": "complete"})
    async with Client(puppet, on_elicit=asked.append) as client:
        handle = await client.call_tool("x", task=True)
        with pytest.raises(InvalidResponse, match="more input than 1000 times"):
            await handle.result()
    assert len(asked) == 1000


async def test_the_progress_of_a_task_is_told_until_it_has_ended() -> None:
    """PROG-08: with the token of the call, which was answered before. Later, and without a handle, it has no effect."""
    log, told = Log(), list[float]()
    server: Server[Any] = serving(log)

    @server.tool(task=True)
    async def count(name: str, ctx: Context[Any]) -> str:
        for number in range(1, 4):
            await log.gate(f"{name}{number}").wait()
            await ctx.report_progress(number, 3)
        await log.gate(name).wait()
        return name

    @server.tool
    async def stray(token: str, ctx: Context[Any]) -> str:
        """Send progress that no request waits for."""
        await served_call(ctx).session.notify("notifications/progress", {"progressToken": token, "progress": 9})
        return "sent"

    async with Client(server, era="2025", on_progress=lambda progress: told.append(progress.progress)) as client:
        task = await client.call_tool("count", {"name": "a"}, task=True)
        for number in range(1, 4):
            log.gate(f"a{number}").set()
            await until(told, number)
        log.gate("a").set()
        assert (await task.result(total=10)).text == "a"
        own: list[float] = []
        dropped = await client.call_tool(
            "count", {"name": "b"}, task=True, on_progress=lambda progress: own.append(progress.progress)
        )
        log.gate("b1").set()
        await until(own, 1)
        task_id = dropped.id
        del dropped
        gc.collect()
        log.gate("b2").set()
        log.gate("b3").set()
        for token in ("task-1", "task-2", "task-3"):
            assert (await client.call_tool("stray", {"token": token})).text == "sent"
        log.gate("b").set()
        assert task_id is not None
        assert (await (await client.tasks.resume(task_id)).result(total=10)).text == "b"
        assert (told, own) == ([1, 2, 3], [1])


async def until(told: list[float], number: int) -> None:
    async with asyncio.timeout(10):
        while told != list(range(1, number + 1)):  # noqa: ASYNC110 - not signalled
            await asyncio.sleep(0.01)


@both_eras
async def test_failures_of_a_task(era: Era) -> None:
    async with Client(serving(), era=era) as client:
        with pytest.raises(ToolCallError, match="no luck"):
            await (await client.call_tool("fail", task=True)).result(total=10)
        result = await (await client.call_tool("fail", task=True, raise_on_error=False)).result(total=10)
        assert result.is_error
        with pytest.raises(PeerError) as caught:
            await (await client.call_tool("refuse", task=True)).result(total=10)
        assert (caught.value.code, caught.value.message) == (-32602, "not like this")


@both_eras
async def test_a_task_is_found_again_by_another_client(era: Era) -> None:
    """TEX-13: by its id, also after it has ended."""
    log = Log()
    server = serving(log)
    async with server.running():
        async with Client(server, era=era) as client:
            task = await client.call_tool("wait", {"name": "a"}, task=True)
            assert task.id is not None
            with pytest.raises(CallTimeout):
                await task.wait(total=0.05)
        async with Client(server, era=era) as client:
            again = await client.tasks.resume(task.id)
            assert again.status == "working"
            log.gate("a").set()
            assert (await again.result(total=10)).text == "a is done"
            assert (await client.tasks.get(task.id)).status == "completed"
            with pytest.raises(PeerError) as caught:
                await client.tasks.resume("a" * 32)
            assert caught.value.code == -32602


@both_eras
async def test_a_task_is_cancelled(era: Era) -> None:
    log = Log()
    async with Client(serving(log), era=era) as client:
        task = await client.call_tool("wait", {"name": "a"}, task=True)
        await log.started.wait()
        await task.cancel()
        with pytest.raises(PeerError, match="cancelled"):
            await task.result(total=10)
        assert task.status == "cancelled"
        await task.cancel()


async def test_the_name_header_repeats_the_id_of_the_task() -> None:
    """HDR-04, TEX-11."""
    log, seen = Log(), dict[str, set[str | None]]()
    server = serving(log)

    @server.add_middleware
    async def look(ctx: Context[Any], call_next: Any) -> Any:
        seen.setdefault(ctx.method, set()).add(ctx.headers.get("mcp-name"))
        return await call_next(ctx)

    async with (
        http_rig.serving(server) as where,
        Client(f"http://127.0.0.1:{where.port}/mcp", era="2026", on_elicit=answers) as client,
    ):
        asking = await client.call_tool("ask", task=True)
        assert (await asking.result(total=10)).text == "first? second?"
        waiting = await client.call_tool("wait", {"name": "a"}, task=True)
        await waiting.cancel()
    assert asking.id in seen["tasks/get"] <= {asking.id, waiting.id}
    assert (seen["tasks/update"], seen["tasks/cancel"]) == ({asking.id}, {waiting.id})


async def test_a_plain_call_that_becomes_a_task_is_waited_for() -> None:
    """TEX-06: with the extension; without it the server sends no task, and refuses what needs one."""
    async with Client(serving(), era="2026", extensions=[TasksClient], on_elicit=answers) as client:
        assert (await client.call_tool("ask")).text == "first? second?"
        assert "your name?" in (await client.call_tool("late")).text
        with pytest.raises(ToolCallError, match="no luck"):
            await client.call_tool("fail")
    async with Client(serving(), era="2026", on_elicit=answers) as client:
        assert (await client.call_tool("ask")).text == "first? second?"
        with pytest.raises(PeerError) as caught:
            await client.call_tool("fail")
        assert caught.value.code == -32021


@both_eras
async def test_a_server_without_tasks_is_called_plainly(era: Era, caplog: pytest.LogCaptureFixture) -> None:
    """TSK-05: nor is a tool that is not for tasks. The log says once that the server has none."""
    plain: Server[Any] = Server("plain")
    plain.tool("job")(lambda: "done")
    async with Client(plain, era=era) as client:
        task = await client.call_tool("job", task=True)
        assert (task.id, task.status) == (None, "completed")
        assert (await task.result()).text == "done"
        await client.call_tool("job", task=True)
    (record,) = caplog.records
    assert record.getMessage().endswith("has no tasks: its tools are called plainly")
    caplog.clear()
    async with Client(serving(), era=era) as client:
        task = await client.call_tool("plain", {"name": "Ada"}, task=True)
        assert (await task.result()).text == "Hello, Ada!"
        assert task.id is None
    assert not caplog.records


@pytest.mark.parametrize("declared", [{}, {"tasks": {"list": {}, "cancel": {}}}])
async def test_no_call_asks_for_a_task_where_the_server_declared_none_for_calls(declared: dict[str, Any]) -> None:
    """TSK-02, TSK-05: whatever the tool says of itself."""
    tool = {"name": "work", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
    welcome = shaken(capabilities={"tools": {}, **declared})
    puppet = legacy(initialize=welcome, tools_list={"tools": [tool]}, tools_call=done())
    async with Client(puppet, era="2025") as client:
        await client.list_tools()
        assert (await (await client.call_tool("work", task=True)).result()).text == "done"
    (params,) = puppet.asked("tools/call")
    assert "task" not in params


@pytest.mark.parametrize("listed", [True, False])
async def test_a_tool_that_must_be_a_task_is_called_as_one(listed: bool) -> None:
    """TSK-06: also by a plain call, which waits for the result; a list that was not read yet is read after the refusal."""
    log = Log()
    server = serving(log)

    @server.tool(task="required")
    async def slow() -> int:
        log.started.set()
        await log.gate("slow").wait()
        return 7

    async with Client(server, era="2025", on_elicit=answers) as client:
        if listed:
            await client.list_tools()
        assert "your name?" in (await client.call_tool("late")).text
        with pytest.raises(ToolCallError, match="no luck"):
            await client.call_tool("fail")
        with pytest.raises(CallTimeout):
            await client.call_tool("slow", total=0.2)
        log.gate("slow").set()
        assert (await client.call_tool("slow", returns=int)).data == 7
