"""A client of 2025-11-25 whose server sends requests for input as tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gemel import CallTimeout, Client, SamplingRejected, TasksClient
from gemel.extensions.tasks import receiver
from tests.client.puppet import Puppet, discovered, legacy, modern, shaken
from tests.extensions.tasks.serving import RELATED

FORM: dict[str, Any] = {
    "message": "Name?",
    "requestedSchema": {"type": "object", "properties": {"value": {"type": "string"}}},
}
PROMPT: dict[str, Any] = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hm?"}}], "maxTokens": 9}


class Requests:
    """The end of a server that sends requests to the client."""

    def __init__(self, puppet: Puppet) -> None:
        self.puppet = puppet
        self._last = 0

    async def reply(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        number = f"of-server-{self._last}"
        self.puppet.say({"id": number, "method": method, "params": params})
        replies: list[dict[str, Any]] = []

        def came() -> bool:
            replies[:] = [message for message in self.puppet.came if message.get("id") == number]
            return bool(replies)

        await self.puppet.until(came)
        return replies[0]

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        result: dict[str, Any] = (await self.reply(method, **params))["result"]
        return result

    async def refusal(self, method: str, **params: Any) -> dict[str, Any]:
        error: dict[str, Any] = (await self.reply(method, **params))["error"]
        return error

    async def until(self, task_id: str, status: str) -> dict[str, Any]:
        task: dict[str, Any] = {}
        for _ in range(500):
            task = await self.ask("tasks/get", taskId=task_id)
            if task["status"] == status:
                return task
            await asyncio.sleep(0.01)
        raise AssertionError(task)


@asynccontextmanager
async def connected(revision: str = "2025-11-25", **options: Any) -> AsyncIterator[Requests]:
    puppet = legacy(initialize=shaken(revision))
    settings: Any = {"extensions": [TasksClient], **options}
    async with Client(puppet, era="2025", **settings):
        yield Requests(puppet)


def capabilities_of(requests: Requests) -> dict[str, Any]:
    declared: dict[str, Any] = requests.puppet.asked("initialize")[0]["capabilities"]
    return declared


async def test_a_client_declares_what_it_has_callbacks_for() -> None:
    """TSK-01: exactly that, without the extension of the other era; and nothing unless tasks are switched on."""
    form: dict[str, Any] = {"elicitation": {"create": {}}}
    sampling: dict[str, Any] = {"sampling": {"createMessage": {}}}
    async with connected(on_elicit=lambda form: None) as requests:
        assert capabilities_of(requests)["tasks"] == {"cancel": {}, "requests": form}
        assert "extensions" not in capabilities_of(requests)
    async with connected(on_elicit=lambda form: None, on_sample=lambda params: "Ah") as requests:
        assert capabilities_of(requests)["tasks"] == {"cancel": {}, "requests": {**form, **sampling}}
    async with connected() as requests:
        assert "tasks" not in capabilities_of(requests)
    async with connected(on_elicit=lambda form: None, extensions=[]) as requests:
        assert "tasks" not in capabilities_of(requests)


async def test_an_answer_is_fetched_later() -> None:
    """TSK-07, TSK-08, TSK-09, TSK-12, TSK-14: of forms and of models."""
    go = asyncio.Event()

    async def on_elicit(form: Any) -> dict[str, str]:
        await go.wait()
        return {"value": "Ada"}

    async with connected(on_elicit=on_elicit, on_sample=lambda params: "Ah") as requests:
        created = await requests.ask("elicitation/create", **FORM, task={"ttl": 5000})
        assert set(created) == {"task"}
        task = created["task"]
        assert (task["status"], task["ttl"], len(task["taskId"])) == ("working", 5000, 32)
        assert {"createdAt", "lastUpdatedAt", "pollInterval"} <= set(task)
        assert await requests.ask("tasks/get", taskId=task["taskId"]) == task
        waiting = asyncio.ensure_future(requests.ask("tasks/result", taskId=task["taskId"]))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        go.set()
        result = await waiting
        assert result["content"] == {"value": "Ada"}
        assert result["_meta"] == {RELATED: {"taskId": task["taskId"]}}
        assert (await requests.ask("tasks/get", taskId=task["taskId"]))["status"] == "completed"
        sampled = (await requests.ask("sampling/createMessage", **PROMPT, task={}))["task"]
        assert sampled["ttl"] == 600_000
        result = await requests.ask("tasks/result", taskId=sampled["taskId"])
        assert result["content"] == {"type": "text", "text": "Ah"}


async def test_a_callback_that_fails_fails_the_task() -> None:
    """TSK-12, TSK-19: with the error that the request would have been answered with."""

    def on_sample(params: Any) -> str:
        raise SamplingRejected

    async with connected(on_sample=on_sample) as requests:
        plain = await requests.refusal("sampling/createMessage", **PROMPT)
        task = (await requests.ask("sampling/createMessage", **PROMPT, task={}))["task"]
        await requests.until(task["taskId"], "failed")
        assert await requests.refusal("tasks/result", taskId=task["taskId"]) == plain


async def test_a_task_is_cancelled() -> None:
    """TSK-10, TSK-18: before the answer is sent, with what the callback does; and only once."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def on_elicit(form: Any) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async with connected(on_elicit=on_elicit) as requests:
        task = (await requests.ask("elicitation/create", **FORM, task={}))["task"]
        await begun.wait()
        cancelled = await requests.ask("tasks/cancel", taskId=task["taskId"])
        assert (cancelled["taskId"], cancelled["status"]) == (task["taskId"], "cancelled")
        await asyncio.wait_for(ended.wait(), 5)
        assert (await requests.refusal("tasks/cancel", taskId=task["taskId"]))["code"] == -32602
        assert "cancelled" in (await requests.refusal("tasks/result", taskId=task["taskId"]))["message"]
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            assert (await requests.refusal(method, taskId="x"))["code"] == -32602
        ended.clear()
        await requests.ask("elicitation/create", **FORM, task={})
    await asyncio.wait_for(ended.wait(), 5)  # the client was closed


@pytest.mark.parametrize("options", [{"extensions": []}, {"revision": "2025-06-18"}])
@pytest.mark.foreign_words("the server asks for a task where there are none")
async def test_a_client_that_declared_nothing_answers_at_once(options: dict[str, Any]) -> None:
    """TSK-03: it ignores `task`."""
    async with connected(on_elicit=lambda form: {"value": "Ada"}, **options) as requests:
        result = await requests.ask("elicitation/create", **FORM, task={"ttl": 5000})
        assert result["content"] == {"value": "Ada"}


async def test_a_server_can_t_fill_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "MOST", 3)
    async with connected(on_elicit=lambda form: None) as requests:
        for _ in range(3):
            await requests.ask("elicitation/create", **FORM, task={"ttl": 1})
        assert "3 are the limit" in (await requests.refusal("elicitation/create", **FORM, task={}))["message"]
        async with asyncio.timeout(20):
            while "error" in await requests.reply("elicitation/create", **FORM, task={}):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)
        assert (await requests.refusal("elicitation/create", **FORM, task={"ttl": "soon"}))["code"] == -32602


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_task_is_cancelled_by_its_own_request(era: Any) -> None:
    """CANC-09, TEX-19: not with the notification that cancels requests, even when a call that must be a task takes too long."""
    times = {"createdAt": "2025-11-25T10:30:00Z", "lastUpdatedAt": "2025-11-25T10:30:00Z"}
    task = {"taskId": "t1", "status": "working", **times, **({"ttl": 9000} if era == "2025" else {"ttlMs": 9000})}
    tool = {"name": "work", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}
    if era == "2025":
        capabilities: dict[str, Any] = {"tools": {}, "tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}
        puppet = legacy(
            initialize=shaken(capabilities=capabilities),
            tools_list={"tools": [tool]},
            tools_call={"task": task},
            tasks_get=task,
            tasks_cancel={**task, "status": "cancelled"},
        )
    else:
        capabilities = {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
        puppet = modern(
            server_discover=discovered(capabilities=capabilities),
            tools_call={"resultType": "task", **task},
            tasks_get={"resultType": "complete", **task},
            tasks_cancel={"resultType": "complete"},
        )
    async with Client(puppet, era=era) as client:
        await (await client.call_tool("work", task=True)).cancel()
        assert puppet.methods().count("tasks/cancel") == 1
        if era == "2025":
            with pytest.raises(CallTimeout):
                await client.call_tool("work", total=0.1)
            assert puppet.methods().count("tasks/cancel") == 2
        assert "notifications/cancelled" not in puppet.methods()
