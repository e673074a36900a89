"""What callers can't do: find tasks of others, fill the server, or change what is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from gemel import Context, DefinitionError, Principal, Server, TaskLimits
from gemel.backends import MemoryBackend
from gemel.extensions.tasks import Tasks
from gemel.extensions.tasks.backend_engine import BackendEngine
from tests.extensions.tasks.serving import DECLARED, Log, conversation, serving, start, until
from tests.server.bare_end import BareEnd, Era
from tests.support import Origin
from tests.transports import loops

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
YES = {"action": "accept", "content": {"value": "yes"}}


def of(name: str) -> Origin:
    return Origin(principal=name, caller=Principal(name))


@both_eras
async def test_a_task_of_somebody_else_is_unknown(era: Era) -> None:
    """TSK-20, TEX-31: in all its methods, with the same error as an id that never was."""
    server = serving()
    async with (
        conversation(server, era, origin=of("anna")) as anna,
        conversation(server, era, origin=of("eve")) as eve,
        conversation(server, era) as nobody,
    ):
        task = await start(anna, "wait", {"name": "a"})
        assert (await until(anna, task["taskId"], "working"))["status"] == "working"
        for other in (eve, nobody):
            for method in ["tasks/get", "tasks/cancel", "tasks/result" if era == "2025" else "tasks/update"]:
                refusal = await other.refusal(method, {"taskId": task["taskId"], "inputResponses": {"x": YES}})
                unknown = await other.refusal(method, {"taskId": "a" * 32, "inputResponses": {}})
                assert (refusal["code"], refusal["message"]) == (unknown["code"], unknown["message"])
        assert (await anna.ask("tasks/get", {"taskId": task["taskId"]}))["status"] == "working"


async def test_each_caller_lists_its_own_tasks() -> None:
    """TSK-17, TSK-20: over all pages; without a caller there is no list."""
    server = serving()
    async with (
        conversation(server, "2025", origin=of("anna")) as anna,
        conversation(server, "2025", origin=of("eve")) as eve,
        conversation(server, "2025") as nobody,
    ):
        ids = {(await start(anna, "wait", {"name": "a"}))["taskId"] for _ in range(60)}
        listed: list[str] = []
        params: dict[str, Any] = {}
        while True:
            page = await anna.ask("tasks/list", params)
            listed += [task["taskId"] for task in page["tasks"]]
            if "nextCursor" not in page:
                break
            params = {"cursor": page["nextCursor"]}
        assert len(listed) == 60
        assert set(listed) == ids
        assert (await eve.ask("tasks/list"))["tasks"] == []
        assert (await nobody.refusal("tasks/list"))["code"] == -32601
        assert (await anna.refusal("tasks/list", {"cursor": "nonsense"}))["code"] == -32602


@both_eras
async def test_floods_are_refused_with_a_delay(era: Era) -> None:
    """One caller can't take the room of others; the process has a limit, too."""
    server = serving(limits=TaskLimits(tasks=5, tasks_per_caller=3))
    async with conversation(server, era, origin=of("eve")) as eve, conversation(server, era, origin=of("anna")) as anna:
        call: dict[str, Any] = {"name": "wait", "arguments": {"name": "x"}, "task": {}}
        for _ in range(3):
            await eve.ask("tools/call", call)
        for _ in range(2):
            assert (await eve.refusal("tools/call", call))["data"]["retryAfterMs"] >= 1000
        await anna.ask("tools/call", call)
        await anna.ask("tools/call", call)
        assert (await anna.refusal("tools/call", call))["data"]["retryAfterMs"] >= 1000


async def ended_task(end: BareEnd, ending: str) -> str:
    """A task that has ended in some way. The gate of `wait` is open for "x"."""
    tool, arguments = {"completed": ("wait", {"name": "x"}), "cancelled": ("wait", {"name": "y"})}.get(
        ending, ("refuse", {})
    )
    task = await start(end, tool, arguments)
    if ending == "cancelled":
        await end.ask("tasks/cancel", {"taskId": task["taskId"]})
    await until(end, task["taskId"], ending)
    for _ in range(100):  # its run is over a moment later
        await asyncio.sleep(0)
    return str(task["taskId"])


@both_eras
@pytest.mark.parametrize("ending", ["completed", "cancelled", "failed"])
async def test_tasks_that_have_ended_make_room_for_those_of_others(era: Era, ending: str) -> None:
    """The caller who has most of them loses the first; nobody is refused because of others."""
    log = Log()
    log.gate("x").set()
    server = serving(log, limits=TaskLimits(tasks=6, tasks_per_caller=4))

    async with (
        conversation(server, era, origin=of("eve")) as eve,
        conversation(server, era, origin=of("mallory")) as mallory,
        conversation(server, era, origin=of("anna")) as anna,
    ):
        kept = await ended_task(anna, "completed")
        ids = [(end, await ended_task(end, ending)) for end in (eve, eve, eve, mallory, mallory)]
        last = await ended_task(anna, "completed")
        assert await known(anna, [kept, last]) == [True, True]
        present = [(await known(end, [task_id]))[0] for end, task_id in ids]
        assert present == [False, True, True, True, True]


@both_eras
async def test_tasks_that_wait_for_input_that_never_comes_stop_nobody_else(era: Era) -> None:
    """One caller has so many tasks that have not ended; those that wait take no room from others."""
    log, backend = Log(), MemoryBackend()
    log.gate("a").set()
    server = serving(
        log,
        server={"backend": backend},
        engine=BackendEngine(backend, concurrency=1),
        limits=TaskLimits(unfinished_per_caller=3, tasks_per_caller=5),
    )
    async with conversation(server, era, origin=of("eve")) as eve, conversation(server, era, origin=of("anna")) as anna:
        call: dict[str, Any] = {"name": "ask", "arguments": {}, "task": {}}
        tasks = [await start(eve, "ask") for _ in range(3)]
        for task in tasks:
            await until(eve, task["taskId"], "input_required")
        refusal = await eve.refusal("tools/call", call)
        assert refusal["data"]["retryAfterMs"] >= 1000
        assert "3 are the limit of a caller" in refusal["message"]
        task = await start(anna, "wait", {"name": "a"})
        await until(anna, task["taskId"], "completed")
        await eve.ask("tasks/cancel", {"taskId": tasks[0]["taskId"]})
        for _ in range(500):
            with suppress(AssertionError):
                tasks.append(await start(eve, "ask"))
                break
            await asyncio.sleep(0.01)
        assert len(tasks) == 4


@pytest.mark.parametrize("limit", ["tasks_per_caller", "unfinished_per_caller"])
async def test_callers_without_a_name_are_told_apart_by_their_address(limit: str) -> None:
    server = serving(limits=TaskLimits(**{limit: 3}))
    origins = [Origin(transport={"client": (address, 1)}) for address in ("192.0.2.1", "192.0.2.2")]
    async with (
        conversation(server, "2026", origin=origins[0]) as eve,
        conversation(server, "2026", origin=origins[1]) as anna,
    ):
        for _ in range(3):
            await start(eve, "wait", {"name": "x"})
        assert (
            "are the limit of a caller"
            in (await eve.refusal("tools/call", {"name": "wait", "arguments": {"name": "x"}}))["message"]
        )
        await start(anna, "wait", {"name": "x"})


@both_eras
async def test_sizes_are_limited(era: Era) -> None:
    server = serving(limits=TaskLimits(argument_bytes=1000, result_bytes=1000, input_bytes=2000))

    @server.tool(task=True)
    async def echo(text: str) -> str:
        return text * 100

    async with conversation(server, era, answer=lambda *_: YES) as end:
        large = {"name": "echo", "arguments": {"text": "x" * 2000}, "task": {}}
        assert "at most 1000 bytes" in (await end.refusal("tools/call", large))["message"]
        task = await start(end, "echo", {"text": "x" * 100})
        ended = await until(end, task["taskId"], "failed")
        assert "too large" in ended["statusMessage"]
        if era == "2026":
            asking = await start(end, "ask")
            (key, *_) = (await until(end, asking["taskId"], "input_required"))["inputRequests"]
            huge = {"action": "accept", "content": {"value": "x" * 5000}}
            params = {"taskId": asking["taskId"], "inputResponses": {key: huge}}
            assert (await end.refusal("tasks/update", params))["code"] == -32602
            params = {"taskId": asking["taskId"], "inputResponses": {key: {"action": 7}}}
            assert (await end.refusal("tasks/update", params))["code"] == -32602
            many = {str(number): YES for number in range(1000)}
            await end.ask("tasks/update", {"taskId": asking["taskId"], "inputResponses": many})
            now = await end.ask("tasks/get", {"taskId": asking["taskId"]})
            assert (now["status"], len(now["inputRequests"])) == ("input_required", 2)


def echoing(**options: Any) -> Server[Any]:
    """A server with a task that returns a text of some bytes, and one that waits for input."""
    server = serving(**options)

    @server.tool(task=True)
    async def echo(text: str, count: int) -> str:
        return text * count

    @server.tool(task=True)
    async def keep(text: str, ctx: Context[Any]) -> str:
        return await ctx.elicit("Well?", str)

    @server.tool(task=True)
    async def remember(text: str, ctx: Context[Any]) -> int:
        return len(await ctx.step(str.upper, text))

    return server


async def completed(end: BareEnd, name: str, **arguments: Any) -> str:
    task = await start(end, name, arguments)
    await until(end, task["taskId"], "completed")
    return str(task["taskId"])


async def known(end: BareEnd, ids: list[str]) -> list[bool]:
    """Whether there are such tasks. Those that are not are unknown, as if they had expired."""
    replies = [await end.reply("tasks/get", {"taskId": task_id}) for task_id in ids]
    assert {reply["error"]["code"] for reply in replies if "error" in reply} <= {-32602}
    return ["error" not in reply for reply in replies]


@both_eras
async def test_the_results_of_a_caller_are_bounded_by_their_bytes(era: Era) -> None:
    """Those that ended first go first, and those of others stay."""
    server = echoing(limits=TaskLimits(bytes_per_caller=10_000))
    async with conversation(server, era, origin=of("eve")) as eve, conversation(server, era, origin=of("anna")) as anna:
        kept = await completed(anna, "echo", text="x", count=4000)
        ids = [await completed(eve, "echo", text="x", count=4000) for _ in range(4)]
        assert await known(eve, ids) == [False, False, True, True]
        assert await known(anna, [kept]) == [True]
        if era == "2025":
            assert {task["taskId"] for task in (await eve.ask("tasks/list"))["tasks"]} == set(ids[2:])
        ids.append(await completed(eve, "echo", text="x", count=20_000))
        assert await known(eve, ids) == [False, False, False, False, True]


@both_eras
async def test_the_results_of_a_process_are_bounded_by_their_bytes(era: Era) -> None:
    backend = MemoryBackend()
    server = echoing(limits=TaskLimits(bytes=100_000), server={"backend": backend})
    async with AsyncExitStack() as stack:
        ends = [await stack.enter_async_context(conversation(server, era, origin=of(str(n)))) for n in range(10)]
        ids = [(end, await completed(end, "echo", text="x", count=20_000)) for _ in range(3) for end in ends]
        present = [(await known(end, [task_id]))[0] for end, task_id in ids]
        assert present == [False] * 26 + [True] * 4
        assert backend._bytes < 120_000


@both_eras
async def test_the_arguments_of_tasks_that_have_not_ended_are_bounded_by_their_bytes(era: Era) -> None:
    server = echoing(limits=TaskLimits(bytes=25_000, bytes_per_caller=10_000))
    async with AsyncExitStack() as stack:
        ends = [await stack.enter_async_context(conversation(server, era, origin=of(str(n)))) for n in range(3)]
        call: dict[str, Any] = {"name": "keep", "arguments": {"text": "x" * 4500}, "task": {}}
        ids: list[str] = []
        for end in ends[:2]:
            ids += [(await start(end, "keep", call["arguments"]))["taskId"] for _ in range(2)]
            refusal = await end.refusal("tools/call", call)
            assert "10000 bytes are the limit of a caller" in refusal["message"]
            assert refusal["data"]["retryAfterMs"] >= 1000
        await start(ends[2], "keep", call["arguments"])
        assert "25000 bytes are the limit of this process" in (await ends[2].refusal("tools/call", call))["message"]
        await ends[0].ask("tasks/cancel", {"taskId": ids[0]})
        for _ in range(500):
            with suppress(AssertionError):
                await start(ends[2], "keep", call["arguments"])
                break
            await asyncio.sleep(0.01)
        else:
            pytest.fail("a task that was cancelled made no room")


@both_eras
async def test_in_memory_a_task_that_has_ended_keeps_its_result_alone(era: Era) -> None:
    backend = MemoryBackend()
    async with conversation(echoing(server={"backend": backend}), era, origin=of("eve")) as end:
        ids = [await completed(end, "remember", text="x" * 50_000) for _ in range(10)]
        async with asyncio.timeout(5):
            while backend._bytes > 20_000:  # noqa: ASYNC110 - not signalled
                await asyncio.sleep(0.01)
        assert all(await known(end, ids))


@both_eras
async def test_a_task_expires(era: Era) -> None:
    """TSK-09, TEX-14, TEX-21: with its handler, and is unknown then."""
    log = Log()
    async with conversation(serving(log, ttl=0.5, max_ttl=0.5), era) as end:
        task = await start(end, "wait", {"name": "a"}, **({"ttl": 10**9} if era == "2025" else {}))
        assert task["ttl" if era == "2025" else "ttlMs"] == 500
        await loops.until(lambda: log.ended == ["a"])
        assert (await end.refusal("tasks/get", {"taskId": task["taskId"]}))["code"] == -32602


@both_eras
async def test_cancelling_and_ending_race_for_one_final_state(era: Era) -> None:
    """TSK-10, TSK-18: whoever is first; nothing changes afterwards."""
    log = Log()
    async with conversation(serving(log), era) as end:
        for number in range(20):
            name = str(number)
            task = await start(end, "wait", {"name": name})
            if number % 2:
                await until(end, task["taskId"], "working")
            log.gate(name).set()
            await asyncio.gather(*(end.reply("tasks/cancel", {"taskId": task["taskId"]}) for _ in range(3)))
            first = (await end.ask("tasks/get", {"taskId": task["taskId"]}))["status"]
            assert first in ("completed", "cancelled")
            await asyncio.sleep(0.01)
            assert (await end.ask("tasks/get", {"taskId": task["taskId"]}))["status"] == first


async def test_the_state_is_told_to_subscribers() -> None:
    """TEX-24, TEX-25, TEX-26, TEX-27: complete, to those who may know, and nothing else."""
    log = Log()
    server = serving(log)
    async with conversation(server, "2026", origin=of("anna")) as end, conversation(server, "2026") as other:
        task = await start(end, "wait", {"name": "a"})
        await end.listen("taskIds", [task["taskId"], "unknown"])
        await other.listen("taskIds", [task["taskId"]])
        acknowledged = await end.wait_for("notifications/subscriptions/acknowledged")
        assert acknowledged["notifications"] == {"taskIds": [task["taskId"]]}
        assert (await other.wait_for("notifications/subscriptions/acknowledged"))["notifications"] == {"taskIds": []}
        log.gate("a").set()
        ended = await until(end, task["taskId"], "completed")
        told: list[dict[str, Any]] = []
        for _ in range(200):
            told = [message["params"] for message in end.heard if message.get("method") == "notifications/tasks"]
            if told and told[-1]["status"] == "completed":
                break
            await asyncio.sleep(0.01)
        meta = told[-1].pop("_meta")
        assert "io.modelcontextprotocol/subscriptionId" in meta
        assert told[-1] == {key: value for key, value in ended.items() if key not in ("_meta", "resultType")}
        methods = {message.get("method") for message in end.heard + other.heard if "method" in message}
        assert methods == {"notifications/subscriptions/acknowledged", "notifications/tasks"}
        assert not [message for message in other.heard if message.get("method") == "notifications/tasks"]
        undeclared = BareEnd(server, "2026", capabilities={})
        refusal = await undeclared.refusal("subscriptions/listen", {"notifications": {"taskIds": []}})
        assert refusal["code"] == -32021
        undeclared.session.close("over")


@pytest.mark.parametrize("has_own", [False, True])
async def test_tools_of_mounted_servers(has_own: bool) -> None:
    """A task of a mounted server's tool, whether the outer server, the inner one or both have the extension."""
    inner: Server[Any] = Server("inner")

    @inner.tool(task=True)
    async def job(ctx: Context[Any]) -> str:
        return await ctx.elicit("Name?", str)

    inner.add_extension(Tasks(poll_interval=0.01))
    outer: Server[Any] = Server("outer")
    if has_own:
        outer.add_extension(Tasks(poll_interval=0.01))
    outer.mount(inner, "in")
    async with conversation(outer, "2026", capabilities=DECLARED) as end:
        task = await start(end, "in_job")
        asked = (await until(end, task["taskId"], "input_required"))["inputRequests"]
        await end.ask("tasks/update", {"taskId": task["taskId"], "inputResponses": dict.fromkeys(asked, YES)})
        assert (await until(end, task["taskId"], "completed"))["result"]["content"][0]["text"] == "yes"
    async with conversation(outer, "2025", answer=lambda *_: YES) as end:
        task = await start(end, "in_job")
        result = await end.ask("tasks/result", {"taskId": task["taskId"]})
        assert result["content"][0]["text"] == "yes"


async def test_each_mistake_has_its_code() -> None:
    """ERR-15: in both forms."""
    server = serving()
    async with conversation(server, "2025", origin=of("anna")) as old, conversation(server, "2026") as new:
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            assert (await old.refusal(method, {"taskId": "x"}))["code"] == -32602
        assert (await old.refusal("tasks/list", {"cursor": "x"}))["code"] == -32602
        task = await start(old, "fail")
        await until(old, task["taskId"], "failed")
        assert (await old.refusal("tasks/cancel", {"taskId": task["taskId"]}))["code"] == -32602
        plain, required = {"name": "plain", "arguments": {"name": "Ada"}}, {"name": "fail", "arguments": {}}
        assert (await old.refusal("tools/call", {**plain, "task": {}}))["code"] == -32601
        assert (await old.refusal("tools/call", required))["code"] == -32601
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            assert (await new.refusal(method, {"taskId": "x"}))["code"] == -32602
        for method in ("tasks/result", "tasks/list"):
            assert (await new.refusal(method, {"taskId": "x"}))["code"] == -32601
        new.capabilities = {}
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            assert (await new.refusal(method, {"taskId": "x"}))["code"] == -32021


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: TaskLimits(steps=0), "steps=0 is not possible: use a whole number, 1 or more"),
        (lambda: TaskLimits(bytes=-1), "bytes=-1 is not possible: use a whole number, 1 or more"),
        (
            lambda: TaskLimits(input_bytes=1 << 20),
            "input_bytes=1048576 is not possible: use a whole number from 1 to 524288 (512 KiB)",
        ),
        (lambda: TaskLimits(task=1), "TaskLimits has no option 'task': did you mean 'tasks'?"),  # type: ignore[call-arg]  # the mistake
        (lambda: Tasks(ttl=0), "ttl=0 is not possible: use seconds, more than 0"),
        (lambda: Tasks(limits={}), "limits={} is not possible: write limits=TaskLimits(…)"),  # type: ignore[arg-type]  # the mistake
    ],
)
def test_a_limit_that_is_not_possible_is_refused(make: Callable[[], object], error: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        make()
    assert str(caught.value).startswith(error)
