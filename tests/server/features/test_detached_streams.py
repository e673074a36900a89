"""Streams that go on without a task while there is nothing to send, as on HTTP: when one is needed, and how they end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from gemel import Changed, Context, LogToClient, Server
from gemel.backends.memory import MemoryBackend
from tests.server.bare_end import BareEnd
from tests.session_ends import turns
from tests.support import Call, Outgoing
from tests.transports.loops import until
from tests.wire.talk import META

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
LISTS = [f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")]
TOOLS = LISTS[0]
UPDATED = "notifications/resources/updated"
ALL = {f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources")}


class DetachableEnd(BareEnd):
    """Carries one call, which can go on without a task. What is sent at once is refused while it is `full`."""

    can_detach = True
    call: Call

    def __init__(self, server: Server[Any]) -> None:
        super().__init__(server)
        self.full = self.detached = False
        #: How often the call was served, and what came of it at last.
        self.served = 0
        self.outcome: Outgoing | None = None

    def send_now(self, data: bytes, method: str, /) -> bool:
        if not self.full:
            self.heard.append(msgspec.json.decode(data))
        return not self.full

    def detach(self) -> None:
        self.detached = True

    def resume(self) -> None:
        self.detached = False
        self.serve()

    def serve(self) -> None:
        self.served += 1
        self._listening = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        self.outcome = await self.session.answer(self.call)

    @property
    def methods(self) -> list[str]:
        """What was heard, in order."""
        return [one["method"] for one in self.heard]

    async def over(self) -> None:
        """The call is served no more."""
        assert self._listening is not None
        await self._listening


@asynccontextmanager
async def listening(server: Server[Any], **wanted: Any) -> AsyncIterator[DetachableEnd]:
    async with DetachableEnd(server) as end:
        call = end.begin("subscriptions/listen", {"notifications": wanted, "_meta": {f"{META}logLevel": "debug"}})
        assert isinstance(call, Call)
        end.call = call
        end.serve()
        await end.wait_for(ACKNOWLEDGED)
        await turns(20)
        end.heard.clear()
        yield end


def a_server(**options: Any) -> Server[Any]:
    server: Server[Any] = Server("tells", **options)
    server.resource("file:///a", name="a")(lambda: "a")
    return server


async def test_changes_of_lists_are_sent_without_a_task() -> None:
    """A change of a resource needs one, which decides who may see it."""
    server = a_server()
    async with listening(server, **ALL, resourceSubscriptions=["file:///a"]) as end:
        for kind in ("tools", "prompts", "resources"):
            server.notify(Changed(kind))
        await turns(20)
        assert (end.methods, end.served) == (LISTS, 1)
        server.notify(Changed("resource", "file:///a"))
        await until(lambda: len(end.heard) == 4)
        assert (end.methods, end.served) == ([*LISTS, UPDATED], 2)


async def test_a_change_that_finds_no_room_waits_and_keeps_its_place() -> None:
    server = a_server()
    async with listening(server, **ALL) as end:
        end.full = True
        for kind in ("tools", "prompts", "resources"):
            server.notify(Changed(kind))
        await turns(20)
        assert end.methods == LISTS
        assert end.detached


async def test_a_channel_that_can_not_go_on_without_a_task_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DetachableEnd, "can_detach", False)
    server = a_server()
    async with listening(server, **ALL) as end:
        server.notify(Changed("tools"))
        await turns(20)
        assert (end.methods, end.served, end.detached) == ([TOOLS], 1, False)
        end.session.cancel(end.call, "the client left")
        await end.over()


@pytest.mark.parametrize("waits", ["log messages", "changes for other processes"])
async def test_a_change_that_comes_while_a_call_waits_to_be_detached_is_told(waits: str) -> None:
    """What a hook logs, or publishes for other processes, is sent before the task ends."""
    server: Server[Any]

    class SharedBackend(MemoryBackend):
        shared = True

        async def flush(self) -> None:
            server.notify(Changed("tools"))
            await turns(20)

    async def authorize(ctx: Context[Any], uri: str) -> bool:
        if end is None:
            pass
        elif waits == "log messages":
            log.warning("asked")
        else:
            server.notify(Changed("prompts"))
        return True

    end: DetachableEnd | None = None
    log, handler = logging.getLogger("tests.detached"), LogToClient()
    log.addHandler(handler)
    server = a_server(authorize_subscription=authorize, backend=SharedBackend())
    try:
        async with listening(server, toolsListChanged=True, resourceSubscriptions=["file:///a"]) as end:
            send = end.send

            async def tell(message: Outgoing, /) -> None:
                await send(message)
                if message.method == "notifications/message":
                    server.notify(Changed("tools"))
                    await turns(20)

            end.send = tell  # type: ignore[method-assign]  # a slow client
            for _ in range(3):
                server.notify(Changed("resource", "file:///a"))
                await until(lambda: UPDATED in end.methods)
                await turns(50)
                server.notify(Changed("tools"))
                await until(lambda: TOOLS in end.methods)
                end.heard.clear()
            end.session.cancel(end.call, "the client left")
            await end.over()
    finally:
        log.removeHandler(handler)


async def test_a_call_is_served_once_when_its_stream_ends_while_a_change_is_sent() -> None:
    """A hook that takes its time decides about the change, which comes before the result."""
    allowed = asyncio.Event()
    asked = 0

    async def authorize(ctx: Context[Any], uri: str) -> bool:
        nonlocal asked
        asked += 1
        if asked > 1:
            await allowed.wait()
        return True

    server = a_server(authorize_subscription=authorize)
    async with listening(server, resourceSubscriptions=["file:///a"]) as end:
        server.notify(Changed("resource", "file:///a"))
        await until(lambda: asked == 2)
        await server._drain()
        await turns(20)
        assert (end.methods, end.served) == ([], 2)
        allowed.set()
        await end.over()
        assert end.methods == [UPDATED]
        assert end.outcome is not None
        assert not server.loops.here().subscriptions._streams


async def test_a_call_that_is_cancelled_before_it_is_served_again_is_over() -> None:
    server = a_server()
    async with listening(server, resourceSubscriptions=["file:///a"]) as end:
        server.notify(Changed("resource", "file:///a"))
        asyncio.get_running_loop().call_soon(end.session.cancel, end.call, "the client left")
        await until(lambda: end.served == 2)
        await end.over()
        assert (end.methods, end.outcome, end.served) == ([], None, 2)
        assert not server.loops.here().subscriptions._streams


async def test_a_call_that_is_cancelled_without_a_task_is_over() -> None:
    server = a_server()
    async with listening(server, toolsListChanged=True) as end:
        end.session.cancel(end.call, "the client left")
        server.notify(Changed("tools"))
        assert not server.loops.here().subscriptions._streams
        await end.over()
        assert (end.methods, end.outcome, end.served) == ([], None, 2)
