"""Tasks over HTTP belong to who is authenticated, and expire: for others, and afterwards, they are unknown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from gemel import Client, PeerError, Server
from gemel.auth import StaticTokens
from tests.extensions.tasks.serving import Log, serving
from tests.server.bare_end import Era
from tests.transports import http_rig

pytestmark = [
    pytest.mark.parametrize("era", ["2025", "2026"]),
    pytest.mark.parametrize("mounts_a_proxy", [False, True]),
]
TOKENS = {"token-of-anna": "anna", "token-of-eve": "eve"}
NOBODY = "a" * 32
YES = {"action": "accept", "content": {"value": "yes"}}


@asynccontextmanager
async def clients(era: Era, log: Log, *, mounts_a_proxy: bool, **options: Any) -> AsyncIterator[list[Client]]:
    """A client of each caller, of a server on HTTP that has tasks of its own, perhaps beside the tools of another server."""
    async with AsyncExitStack() as stack:
        server = serving(log, server={"auth": StaticTokens(TOKENS)}, **options)
        if mounts_a_proxy:
            server.mount(Server.from_client(serving()), "behind")
        site = await stack.enter_async_context(http_rig.serving(server))
        url = f"http://127.0.0.1:{site.port}/mcp"
        yield [
            await stack.enter_async_context(Client(url, era=era, headers={"Authorization": f"Bearer {token}"}))
            for token in TOKENS
        ]


async def refusals(client: Client, task_id: str) -> dict[str, Any]:
    """How a client is refused in each request that names a task."""
    tasks: Any = client.tasks
    methods = ["tasks/get", "tasks/cancel", "tasks/result" if client.era == "2025" else "tasks/update"]
    refused: dict[str, Any] = {}
    for method in methods:
        answers = {"inputResponses": {"x": YES}} if method == "tasks/update" else {}
        with pytest.raises(PeerError) as caught:
            await tasks.request(method, {"taskId": task_id, **answers})
        refused[method] = caught.value.code, caught.value.message, sorted(caught.value.data)
    return refused


async def test_for_another_caller_a_task_is_unknown(era: Era, mounts_a_proxy: bool) -> None:
    """TSK-20, TEX-31: in all requests the answer is that for an id which never was."""
    log = Log()
    async with clients(era, log, mounts_a_proxy=mounts_a_proxy) as (anna, eve):
        task = await anna.call_tool("wait", {"name": "a"}, task=True)
        assert task.id is not None
        assert await refusals(eve, task.id) == await refusals(eve, NOBODY)
        if era == "2025":
            assert [each.id for each in await anna.tasks.list()] == [task.id]
            assert await eve.tasks.list() == []
        log.gate("a").set()
        assert (await task.result(total=10)).text == "a is done"
        assert await refusals(eve, task.id) == await refusals(eve, NOBODY)


async def test_a_task_that_has_expired_is_unknown_to_its_caller(era: Era, mounts_a_proxy: bool) -> None:
    """TSK-09, TEX-14, TEX-21: whether it had ended or not."""
    log = Log()
    log.gate("done").set()
    async with clients(era, log, mounts_a_proxy=mounts_a_proxy, ttl=1.0, max_ttl=1.0) as (anna, _):
        ids = []
        for name in ("done", "runs"):
            task = await anna.call_tool("wait", {"name": name}, task=True)
            assert task.id is not None
            ids.append(task.id)
        for task_id in ids:
            async with asyncio.timeout(10):
                while await is_known(anna, task_id):  # noqa: ASYNC110 - not signalled
                    await asyncio.sleep(0.05)
            assert await refusals(anna, task_id) == await refusals(anna, NOBODY)
        if era == "2025":
            assert await anna.tasks.list() == []


async def is_known(client: Client, task_id: str) -> bool:
    try:
        await client.tasks.get(task_id)
    except PeerError:
        return False
    return True


async def test_tasks_of_a_server_behind_a_proxy_are_out_of_reach(era: Era, mounts_a_proxy: bool) -> None:
    """Its ids are no ids here, whoever knows them."""
    upstream = serving()
    async with Client(upstream, era=era) as direct:
        task = await direct.call_tool("wait", {"name": "a"}, task=True)
        assert task.id is not None
        front: Server[Any] = Server.from_client(upstream)
        if mounts_a_proxy:
            mounted, front = front, serving()
            front.mount(mounted, "behind")
        async with Client(front, era=era) as client:
            assert {code for code, *_ in (await refusals(client, task.id)).values()} == {
                -32602 if mounts_a_proxy else -32601
            }
        assert (await task.refresh()).status == "working"
