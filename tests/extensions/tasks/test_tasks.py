"""Tasks of a server, as clients of both forms see them."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from gemel import CallNext, Context, Principal, Server, ToolError
from gemel.backends import MemoryBackend
from gemel.extensions.tasks import Tasks
from gemel.extensions.tasks.handshake import Asker
from tests.extensions.tasks.serving import ASKED, DECLARED, RELATED, TASKS, Log, conversation, serving, start, until
from tests.server.bare_end import BareEnd, Era
from tests.support import Call, Origin

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\Z")


async def test_the_forms_are_announced_each_in_its_era() -> None:
    """TSK-01, TEX-01, TEX-02: and lists are not offered where nobody is authenticated (TSK-20)."""
    server = serving()
    async with conversation(server, "2025") as old:
        assert old.welcome["capabilities"]["tasks"] == {"cancel": {}, "requests": {"tools": {"call": {}}}}
        assert "extensions" not in old.welcome["capabilities"]
    async with conversation(server, "2026") as new:
        capabilities = (await new.ask("server/discover"))["capabilities"]
        assert capabilities["extensions"] == {TASKS: {}}
        assert "tasks" not in capabilities


async def test_older_revisions_know_no_tasks() -> None:
    """TSK-03: `params.task` is ignored, and the methods are unknown."""
    server = serving()
    async with server.running():
        end = BareEnd(server, "2026")
        end.era = "2025"
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bare", "version": "1"}}
        welcome = await end.ask("initialize", client)
        assert "tasks" not in welcome["capabilities"]
        await end.tell("notifications/initialized")
        result = await end.ask("tools/call", {"name": "plain", "arguments": {"name": "Ada"}, "task": {"ttl": 5}})
        assert result["content"][0]["text"] == "Hello, Ada!"
        result = await end.ask("tools/call", {"name": "fail", "arguments": {}})
        assert result["isError"]
        for method in ("tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update"):
            assert (await end.refusal(method, {"taskId": "x"}))["code"] == -32601
        listed = {tool["name"]: tool for tool in (await end.ask("tools/list"))["tools"]}
        assert "execution" not in listed["fail"]
        end.session.close("over")


async def test_tools_say_how_they_may_be_called() -> None:
    """TSK-04, TSK-05, TSK-06."""
    async with conversation(serving(), "2025") as end:
        listed = {tool["name"]: tool.get("execution") for tool in (await end.ask("tools/list"))["tools"]}
        assert listed["plain"] is None
        assert listed["wait"] == {"taskSupport": "optional"}
        assert listed["fail"] == {"taskSupport": "required"}
        assert (await end.refusal("tools/call", {"name": "fail", "arguments": {}}))["code"] == -32601
        as_task = {"name": "plain", "arguments": {"name": "x"}, "task": {}}
        assert (await end.refusal("tools/call", as_task))["code"] == -32601
        malformed: Any
        for malformed in (7, {"ttl": "long"}, {"ttl": -1}, []):
            refusal = await end.refusal("tools/call", {"name": "wait", "arguments": {"name": "x"}, "task": malformed})
            assert refusal["code"] == -32602


@both_eras
async def test_middleware_refuses_a_request_for_a_task_with_an_error(era: Era) -> None:
    """In the handshake era its result is a task, which can't say that there is none."""

    async def refuse(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "tools/call":
            raise ToolError("not today")
        return await call_next(ctx)

    server, outer, without = serving(), Server("outer", middleware=[refuse]), Server("without", middleware=[refuse])
    outer.mount(serving(), "in")
    server.add_middleware(refuse)
    params = {"name": "wait", "arguments": {"name": "a"}}
    for one in (server, outer):
        async with conversation(one, era) as end:
            assert (await end.ask("tools/call", params))["isError"]
            if era == "2025":
                refusal = await end.refusal("tools/call", {**params, "task": {}})
                assert (refusal["code"], refusal["message"]) == (-32602, "not today")
    async with conversation(without, era) as end:
        assert (await end.ask("tools/call", {**params, "task": {}}))["isError"]


@both_eras
async def test_a_task_from_its_handle_to_its_result(era: Era) -> None:
    """TSK-07, TSK-08, TSK-09, TSK-10, TSK-12, TEX-07, TEX-08, TEX-09, TEX-12."""
    log = Log()
    async with conversation(serving(log), era) as end:
        params: dict[str, Any] = {"name": "wait", "arguments": {"name": "a"}}
        created = await end.ask("tools/call", params | ({"task": {"ttl": 60_000}} if era == "2025" else {}))
        if era == "2025":
            assert set(created) == {"task"}
            task = created["task"]
            assert task["ttl"] == 60_000
            assert task["pollInterval"] == 10
        else:
            task = created
            assert task["resultType"] == "task"
            assert task["ttlMs"] == 86_400_000
            assert task["pollIntervalMs"] == 10
            assert not {"task", "result", "error", "inputRequests", "requestState"} & set(task)
        assert len(task["taskId"]) >= 32
        assert task["status"] == "working"
        assert ISO.match(task["createdAt"])
        assert ISO.match(task["lastUpdatedAt"])

        now = await end.ask("tasks/get", {"taskId": task["taskId"]})
        assert now["status"] == "working"
        assert now.get("resultType") == (None if era == "2025" else "complete")
        await log.started.wait()
        for _ in range(500):
            now = await end.ask("tasks/get", {"taskId": task["taskId"]})
            if "statusMessage" in now:
                break
            await asyncio.sleep(0.01)
        assert now["statusMessage"] == "1/2: half"

        log.gate("a").set()
        ended = await until(end, task["taskId"], "completed")
        assert ended["createdAt"] == task["createdAt"]
        if era == "2025":
            assert "result" not in ended
            result = await end.ask("tasks/result", {"taskId": task["taskId"]})
            assert result["_meta"][RELATED] == {"taskId": task["taskId"]}
        else:
            result = ended["result"]
            assert RELATED not in ended.get("_meta", {})
        assert result["content"] == [{"type": "text", "text": "a is done"}]
        again = await end.ask("tasks/get", {"taskId": task["taskId"]})
        assert again["status"] == "completed"


async def test_a_result_is_waited_for() -> None:
    """TSK-12: `tasks/result` blocks."""
    log = Log()
    async with conversation(serving(log), "2025") as end:
        task = await start(end, "wait", {"name": "a"})
        waiting = asyncio.ensure_future(end.ask("tasks/result", {"taskId": task["taskId"]}))
        await log.started.wait()
        await asyncio.sleep(0.05)
        assert not waiting.done()
        log.gate("a").set()
        assert (await waiting)["content"][0]["text"] == "a is done"


@both_eras
async def test_failures_are_told_apart(era: Era) -> None:
    """TSK-12, TSK-19, TEX-12, TEX-23."""
    async with conversation(serving(), era) as end:
        broken, refused = await start(end, "fail"), await start(end, "refuse")
        if era == "2025":
            task = await until(end, broken["taskId"], "completed", "failed")
            assert task["status"] == "failed"
            assert (await end.ask("tasks/result", {"taskId": broken["taskId"]}))["isError"]
            assert (await until(end, refused["taskId"], "completed", "failed"))["status"] == "failed"
            error = await end.refusal("tasks/result", {"taskId": refused["taskId"]})
        else:
            task = await until(end, broken["taskId"], "completed", "failed")
            assert task["status"] == "completed"
            assert task["result"]["isError"]
            task = await until(end, refused["taskId"], "completed", "failed")
            assert task["status"] == "failed"
            assert "result" not in task
            assert task["statusMessage"] == "not like this"
            error = task["error"]
        assert error == {"code": -32602, "message": "not like this", "data": {"why": "because"}}


async def test_who_did_not_declare_the_extension_gets_plain_calls() -> None:
    """TEX-04, TEX-05, TEX-22, TEX-28, TEX-29: decided by each request alone."""
    async with conversation(serving(), "2026") as end:
        capabilities: dict[str, Any]
        for capabilities in ({}, {"tasks": {"requests": {}}}):
            end.capabilities = capabilities
            plain = {"name": "plain", "arguments": {"name": "Ada"}, "task": {"ttl": 1}}
            assert (await end.ask("tools/call", plain))["content"][0]["text"] == "Hello, Ada!"
            refusal = await end.refusal("tools/call", {"name": "fail", "arguments": {}})
            assert refusal["code"] == -32021
            assert refusal["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                assert (await end.refusal(method, {"taskId": "x"}))["code"] == -32021
            for method in ("tasks/result", "tasks/list"):
                assert (await end.refusal(method, {"taskId": "x"}))["code"] == -32601
        end.capabilities = DECLARED
        assert (await end.ask("tools/call", plain))["resultType"] == "complete"
        for method in ("tasks/result", "tasks/list"):
            assert (await end.refusal(method, {"taskId": "x"}))["code"] == -32601


async def test_input_in_the_middle_of_a_stateless_task() -> None:
    """TEX-12, TEX-17, TEX-18: several at once, answered one after the other."""
    async with conversation(serving(), "2026") as end:
        task = await start(end, "ask")
        asked = (await until(end, task["taskId"], "input_required"))["inputRequests"]
        assert {item["method"] for item in asked.values()} == {"elicitation/create"}
        first, second = sorted(asked, key=lambda key: asked[key]["params"]["message"])
        yes = {"action": "accept", "content": {"value": "yes"}}
        ack = await end.ask("tasks/update", {"taskId": task["taskId"], "inputResponses": {first: yes, "other": yes}})
        assert ack["resultType"] == "complete"
        assert set(ack) <= {"resultType", "_meta"}
        now = await end.ask("tasks/get", {"taskId": task["taskId"]})
        assert now["status"] == "input_required"
        assert set(now["inputRequests"]) == {second}
        no = {"action": "accept", "content": {"value": "no"}}
        await end.ask("tasks/update", {"taskId": task["taskId"], "inputResponses": {first: no}})  # answered already
        await end.ask("tasks/update", {"taskId": task["taskId"], "inputResponses": {second: no}})
        ended = await until(end, task["taskId"], "completed")
        assert ended["result"]["content"][0]["text"] == "yes no"
        assert "inputRequests" not in ended


async def test_a_key_is_used_once_in_the_life_of_a_task() -> None:
    """TEX-16: the same question has another key each time."""
    server = serving()

    @server.tool(task=True)
    async def insist(ctx: Context[Any]) -> str:
        return " ".join([await ctx.elicit("Well?", str) for _ in range(3)])

    async with conversation(server, "2026") as end:
        task = await start(end, "insist")
        keys: list[str] = []
        for answer in ("no", "no", "yes"):
            (key,) = (await until(end, task["taskId"], "input_required"))["inputRequests"]
            keys.append(key)
            responses = {key: {"action": "accept", "content": {"value": answer}}}
            await end.ask("tasks/update", {"taskId": task["taskId"], "inputResponses": responses})
        ended = await until(end, task["taskId"], "completed")
        assert ended["result"]["content"][0]["text"] == "no no yes"
        assert len(set(keys)) == 3


async def test_input_in_the_middle_of_a_handshake_task() -> None:
    """TSK-10, TSK-13, TSK-14: the client is asked while `tasks/result` waits, with the id of the task."""
    asked: list[Any] = []

    def answer(method: str, params: Any) -> Any:
        asked.append(params)
        return {"action": "accept", "content": {"value": params["message"].lower()}}

    async with conversation(serving(), "2025", answer=answer) as end:
        task = await start(end, "ask")
        await until(end, task["taskId"], "input_required")
        assert not asked
        result = await end.ask("tasks/result", {"taskId": task["taskId"]})
        assert result["content"][0]["text"] == "first? second?"
        assert [params["_meta"][RELATED] for params in asked] == 2 * [{"taskId": task["taskId"]}]
        assert (await end.ask("tasks/get", {"taskId": task["taskId"]}))["status"] == "completed"


@pytest.mark.parametrize("processes", [1, 2])
async def test_of_clients_that_wait_for_a_result_the_latest_is_asked(processes: int, tmp_path: Path) -> None:
    """Those before it may be gone without notice. When it leaves, the one before it is asked again."""
    options: dict[str, Any] = {} if processes == 1 else {"server": {"backend": f"sqlite:///{tmp_path / 'tasks.db'}"}}
    servers = [serving(**options) for _ in range(processes)]
    yes = {"action": "accept", "content": {"value": "yes"}}
    async with AsyncExitStack() as stack:
        for server in servers:
            await stack.enter_async_context(server.running())
        first, second, third = [
            await stack.enter_async_context(BareEnd(server, "2025", capabilities=ASKED, answer=answer))
            for server, answer in ((servers[0], None), (servers[-1], None), (servers[0], lambda *_: yes))
        ]
        task = {"taskId": (await start(first, "ask"))["taskId"]}
        await until(first, task["taskId"], "input_required")
        waiting = asyncio.create_task(first.ask("tasks/result", task))
        await first.wait_for("elicitation/create")
        call = second.begin("tasks/result", task)
        assert isinstance(call, Call)
        leaving = asyncio.create_task(second.session.answer(call))
        await second.wait_for("elicitation/create")
        await first.wait_for("notifications/cancelled")
        first.heard.clear()
        await second.tell("notifications/cancelled", {"requestId": call.id})
        assert await leaving is None
        await first.wait_for("elicitation/create")
        assert (await third.ask("tasks/result", task))["content"][0]["text"] == "yes yes"
        assert (await waiting)["content"][0]["text"] == "yes yes"


async def test_of_requests_that_come_at_once_the_latest_asks() -> None:
    """Whichever is stored last, and whoever leaves while another takes over."""

    class Crossing(MemoryBackend):
        async def get(self, key: str) -> bytes | None:
            value = await super().get(key)
            await asyncio.sleep(0.001)
            return value

    backend = Crossing()
    first, second, third = [Asker(backend, "task", lambda task_id: None) for _ in range(3)]
    await asyncio.gather(second.is_latest(), first.is_latest())
    assert [await first.is_latest(), await second.is_latest()] == [False, True]
    await asyncio.gather(second.leave(), third.is_latest())
    assert [await first.is_latest(), await second.is_latest(), await third.is_latest()] == [False, False, True]
    await third.leave()
    assert await first.is_latest()


async def test_a_call_becomes_a_task_when_its_handler_says_so() -> None:
    """TEX-03, TEX-10: the rounds of the call come first, and what a step did is not done again."""
    log = Log()
    async with conversation(serving(log), "2026") as end:
        call: dict[str, Any] = {"name": "late", "arguments": {}}
        first = await end.ask("tools/call", call)
        assert first["resultType"] == "input_required"
        assert "taskId" not in first
        (key,) = first["inputRequests"]
        answers = {key: {"action": "accept", "content": {"value": "Alice"}}}
        state = first["requestState"]
        task = await end.ask("tools/call", {**call, "inputResponses": answers, "requestState": state})
        assert task["resultType"] == "task"
        assert "requestState" not in task
        ended = await until(end, task["taskId"], "completed")
        assert ended["result"]["content"][0]["text"] == "Alice 1"
        assert log.begun == ["stamped"]
    async with conversation(serving(log), "2025", answer=lambda *_: answers[key]) as end:
        task = await start(end, "late")
        assert "Alice" in (await end.ask("tasks/result", {"taskId": task["taskId"]}))["content"][0]["text"]


async def test_answers_of_earlier_rounds_count_in_the_task_that_a_call_becomes() -> None:
    """TEX-10: the client declared the extension in a later round only."""
    server = serving()
    call: dict[str, Any] = {"name": "ask", "arguments": {}}
    async with conversation(server, "2026", capabilities={"elicitation": {}}) as end:
        first = await end.ask("tools/call", call)
        assert first["resultType"] == "input_required"
    answers = {key: {"action": "accept", "content": {"value": key}} for key in first["inputRequests"]}
    more = {"inputResponses": answers, "requestState": first["requestState"]}
    async with conversation(server, "2026") as end:
        task = await end.ask("tools/call", {**call, **more})
        ended = await until(end, task["taskId"], "completed", "input_required")
    assert ended["result"]["content"][0]["text"] == " ".join(answers)


async def test_a_question_that_was_not_awaited_yet_is_asked_by_the_task() -> None:
    server, tasks = Server("late"), Tasks()
    server.add_extension(tasks)

    @server.tool(task="required", task_start="handler")
    async def late(ctx: Context[Any]) -> str:
        question = ctx.elicit("Your name?", str)
        tasks.begin(ctx)
        return await question

    async with conversation(server, "2026") as end:
        task = await end.ask("tools/call", {"name": "late", "arguments": {}})
        assert task["resultType"] == "task"
        (key,) = (await until(end, task["taskId"], "input_required"))["inputRequests"]
        answer = {"action": "accept", "content": {"value": "Alice"}}
        await end.ask("tasks/update", {"taskId": task["taskId"], "inputResponses": {key: answer}})
        ended = await until(end, task["taskId"], "completed", "failed")
    assert ended["result"]["content"][0]["text"] == "Alice"


@both_eras
async def test_a_cancelled_task_ends(era: Era) -> None:
    """TSK-18, TEX-20: its handler, too; and a task that has ended stays as it is."""
    log = Log()
    async with conversation(serving(log), era) as end:
        task = await start(end, "wait", {"name": "a"})
        await log.started.wait()
        cancelled = await end.ask("tasks/cancel", {"taskId": task["taskId"]})
        if era == "2025":
            assert cancelled["status"] == "cancelled"
            assert cancelled["taskId"] == task["taskId"]
        else:
            assert cancelled["resultType"] == "complete"
            assert set(cancelled) <= {"resultType", "_meta"}
        assert (await end.ask("tasks/get", {"taskId": task["taskId"]}))["status"] == "cancelled"
        for _ in range(100):
            if log.ended:
                break
            await asyncio.sleep(0.01)
        assert log.ended == ["a"]
        log.gate("a").set()
        if era == "2025":
            assert (await end.refusal("tasks/cancel", {"taskId": task["taskId"]}))["code"] == -32602
            assert "cancelled" in (await end.refusal("tasks/result", {"taskId": task["taskId"]}))["message"]
        else:
            await end.ask("tasks/cancel", {"taskId": task["taskId"]})
        assert (await end.ask("tasks/get", {"taskId": task["taskId"]}))["status"] == "cancelled"


@both_eras
async def test_unknown_tasks(era: Era) -> None:
    """TEX-21: whatever the id looks like."""
    async with conversation(serving(), era) as end:
        methods = ["tasks/get", "tasks/cancel", "tasks/result" if era == "2025" else "tasks/update"]
        for task_id in ("", "x", "a" * 32, "a" * 10_000, "../../etc/passwd", "task:" + "a" * 27, "é" * 32):
            for method in methods:
                assert (await end.refusal(method, {"taskId": task_id}))["code"] == -32602, (method, task_id)


async def test_an_old_capability_reaches_old_tasks() -> None:
    """TEX-29, TEX-30."""
    log, server = Log(), serving()
    async with conversation(server, "2025") as old, conversation(server, "2026") as new:
        of_old, of_new = await start(old, "wait", {"name": "a"}), await start(new, "wait", {"name": "b"})
        new.capabilities = {"tasks": {}}
        assert (await new.ask("tasks/get", {"taskId": of_old["taskId"]}))["status"] == "working"
        assert (await new.refusal("tasks/get", {"taskId": of_new["taskId"]}))["code"] == -32021
        assert (await new.refusal("tasks/update", {"taskId": of_old["taskId"]}))["code"] == -32021
        await new.ask("tasks/cancel", {"taskId": of_old["taskId"]})
        assert (await old.ask("tasks/get", {"taskId": of_old["taskId"]}))["status"] == "cancelled"
        assert (await old.refusal("tasks/get", {"taskId": of_new["taskId"]}))["code"] == -32602
    assert not log.begun


async def test_a_client_of_the_other_era_is_told_which_revision_a_task_has() -> None:
    """A client that fell back to 2025-11-25 must not believe that its task is lost. For other callers it is unknown."""
    server = serving()
    anna, eve = Origin(principal="anna"), Origin(principal="eve")
    async with conversation(server, "2026", origin=anna) as new, conversation(server, "2025", origin=anna) as old:
        task_id = (await start(new, "wait", {"name": "a"}))["taskId"]
        for method in ("tasks/get", "tasks/cancel", "tasks/result"):
            refusal = await old.refusal(method, {"taskId": task_id})
            assert refusal["code"] == -32602
            assert refusal["message"] == "The task was made in revision 2026-07-28: ask for it in that revision"
            assert refusal["data"] == {"taskId": task_id, "revision": "2026-07-28"}
        async with conversation(server, "2025", origin=eve) as other:
            assert (await other.refusal("tasks/get", {"taskId": task_id}))["message"] == "Unknown task"
        assert (await new.ask("tasks/get", {"taskId": task_id}))["status"] == "working"


async def test_sampling_and_roots_in_a_task() -> None:
    """The same code asks in both forms."""
    answers: dict[str, Any] = {
        "roots/list": {"roots": [{"uri": "file:///tmp"}]},
        "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "Ah"}, "model": "m"},
    }
    async with conversation(serving(), "2025", answer=lambda method, _: answers[method]) as end:
        task = await start(end, "think")
        result = await end.ask("tasks/result", {"taskId": task["taskId"]})
        assert result["content"][0]["text"] == "Ah in file:///tmp"
    async with conversation(serving(), "2026") as end:
        task = await start(end, "think")
        for method in answers:
            asked = (await until(end, task["taskId"], "input_required"))["inputRequests"]
            ((key, item),) = asked.items()
            assert item["method"] == method
            await end.ask("tasks/update", {"taskId": task["taskId"], "inputResponses": {key: answers[method]}})
        ended = await until(end, task["taskId"], "completed")
        assert ended["result"]["content"][0]["text"] == "Ah in file:///tmp"


async def test_a_client_is_not_asked_for_what_it_did_not_declare() -> None:
    async with conversation(serving(), "2026", capabilities={"extensions": {TASKS: {}}}) as end:
        task = await start(end, "ask")
        ended = await until(end, task["taskId"], "failed")
        assert ended["error"]["code"] == -32021


async def test_the_state_is_pushed_to_an_open_session() -> None:
    """TSK-16."""
    log = Log()
    async with conversation(serving(log), "2025", capabilities=ASKED) as end:
        task = await start(end, "wait", {"name": "a"})
        log.gate("a").set()
        await until(end, task["taskId"], "completed")
        told: list[dict[str, Any]] = []
        for _ in range(100):
            told = [message["params"] for message in end.heard if message["method"] == "notifications/tasks/status"]
            if told and told[-1]["status"] == "completed":
                break
            await asyncio.sleep(0.01)
        assert told[-1] == await end.ask("tasks/get", {"taskId": task["taskId"]})


async def test_what_names_a_task_by_its_params_needs_no_other_word_of_it() -> None:
    """TSK-15: answers and notifications have no `related-task`, and `taskId` counts where a request has both."""
    anna = Origin(principal="anna", caller=Principal("anna"))
    async with conversation(serving(), "2025", origin=anna) as end:
        task, other = await start(end, "wait", {"name": "a"}), await start(end, "wait", {"name": "b"})
        both = {"taskId": task["taskId"], "_meta": {RELATED: {"taskId": other["taskId"]}}}
        found, listed = await end.ask("tasks/get", both), await end.ask("tasks/list")
        cancelled = await end.ask("tasks/cancel", both)
        told = await end.wait_for("notifications/tasks/status")
        assert found["taskId"] == cancelled["taskId"] == task["taskId"]
        assert (await end.ask("tasks/get", {"taskId": other["taskId"]}))["status"] == "working"
        assert len(listed["tasks"]) == 2
        for each in (found, listed, *listed["tasks"], cancelled, told):
            assert RELATED not in each.get("_meta", {})


async def test_progress_goes_on_with_its_token() -> None:
    """TSK-14: after the handle was sent, with the id of the task."""
    log = Log()
    async with conversation(serving(log), "2025") as end:
        params = {"name": "wait", "arguments": {"name": "a"}, "task": {}, "_meta": {"progressToken": "p"}}
        task = (await end.ask("tools/call", params))["task"]
        await log.started.wait()
        log.gate("a").set()
        await until(end, task["taskId"], "completed")
        (told,) = [message["params"] for message in end.heard if message["method"] == "notifications/progress"]
        assert told["progressToken"] == "p"
        assert told["_meta"][RELATED] == {"taskId": task["taskId"]}


async def test_tasks_are_off_without_the_extension(caplog: pytest.LogCaptureFixture) -> None:
    """EXT-05: a tool may say `task=`, and is called plainly; the log says so when the server starts."""
    server: Server[Any] = Server("plain")
    server.tool("job", task="required")(lambda: "done")
    async with server.running(), BareEnd(server, "2026", capabilities=DECLARED) as end:
        assert (await end.ask("tools/call", {"name": "job", "arguments": {}}))["content"][0]["text"] == "done"
        assert (await end.refusal("tasks/get", {"taskId": "x"}))["code"] == -32601
    (record,) = caplog.records
    assert record.getMessage() == "task= has no effect on 'job': add the extension with server.add_extension(Tasks())"


@pytest.mark.parametrize(("outer", "inner"), [(True, False), (False, True), (False, False)])
async def test_a_tool_of_a_mounted_server_needs_the_extension_of_either(
    outer: bool, inner: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server, mounted = Server[Any]("outer"), Server[Any]("inner")
    mounted.tool("job", task=True)(lambda: "done")
    server.mount(mounted, "in")
    for has_tasks, one in ((outer, server), (inner, mounted)):
        if has_tasks:
            one.add_extension(Tasks(poll_interval=0.01))
    async with conversation(server, "2026") as end:
        result = await end.ask("tools/call", {"name": "in_job", "arguments": {}})
    assert result["resultType"] == ("task" if outer or inner else "complete")
    assert [record.getMessage()[:26] for record in caplog.records] == (
        [] if outer or inner else ["task= has no effect on 'jo"]
    )
