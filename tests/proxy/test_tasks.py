"""Tools that become tasks, behind a proxy: tasks are not forwarded, so that each call is a plain one."""

from __future__ import annotations

import pytest

from gemel import Client, PeerError, Server, Tasks, ToolCallError
from tests.extensions.tasks.serving import Log, serving
from tests.proxy.rig import all_eras
from tests.server.bare_end import Era


@all_eras
@pytest.mark.parametrize("own_tasks", [False, True])
async def test_a_call_through_a_proxy_is_plain(
    behind: Era, front: Era, own_tasks: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if the server that it is mounted in has tasks of its own tools; nothing is announced that it can't do."""
    log = Log()
    log.gate("a").set()
    gateway = proxy = Server.from_client(Client(serving(log), era=behind), name="proxy")
    if own_tasks:
        gateway = Server("gateway")
        gateway.mount(proxy)
        gateway.add_extension(Tasks(poll_interval=0.01))
        gateway.tool("own", task=True)(lambda: "mine")
    async with Client(gateway, era=front) as client:
        capabilities = client.server_capabilities
        announced = capabilities.tasks if front == "2025" else capabilities.extensions
        assert bool(announced) is own_tasks
        task = await client.call_tool("wait", {"name": "a"}, task=True)
        assert task.id is None
        assert (await task.result()).text == "a is done"
        assert (await client.call_tool("wait", {"name": "a"})).text == "a is done"
        assert ("has no tasks" in caplog.text) is not own_tasks
        with pytest.raises((PeerError, ToolCallError)):  # it must be a task
            await client.call_tool("fail")
        if own_tasks:
            own = await client.call_tool("own", task=True)
            assert own.id is not None
            assert (await own.result(total=10)).text == "mine"
