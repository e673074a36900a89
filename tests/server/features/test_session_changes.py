"""What the HTTP transport asks of subscriptions for sessions that move between processes."""

from __future__ import annotations

import asyncio
import gc
from typing import Any
from weakref import ref

import pytest

from gemel import Changed, Context, Server
from gemel.backends import MemoryBackend
from gemel.protocol.limits import FIXED_LIMITS
from gemel.server.features.session_changes import SharedSubscriptions
from tests.server.bare_end import BareEnd
from tests.session_ends import turns
from tests.support import Origin, Outgoing

TOOLS = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
A, B = Changed("resource", "file:///a"), Changed("resource", "file:///b")


def a_server(**options: Any) -> Server[Any]:
    server: Server[Any] = Server("tells", **options)
    server.tool("nothing")(lambda: None)
    for name in "ab":
        server.resource(f"file:///{name}", name=name)(lambda: "text")
    return server


def changes_of(server: Server[Any]) -> SharedSubscriptions:
    return SharedSubscriptions(server.loops.here().subscriptions, server.loops.here().context)


def told(end: BareEnd) -> list[Any]:
    """The methods, and the URIs of resources, that a client was told of changes."""
    return [one.get("params", {}).get("uri", one["method"]) for one in end.heard]


async def test_a_session_that_has_left_is_told_nothing_until_it_joins_and_is_told_what_it_missed() -> None:
    server = a_server()
    changes = changes_of(server)
    async with BareEnd(server, "2025") as end:
        await end.ask("resources/subscribe", {"uri": "file:///a"})
        server.notify(Changed("prompts"))
        await end.wait_for("notifications/prompts/list_changed")
        position = changes.told(end.session, sending=False)
        changes.leave(end.session)
        end.heard.clear()
        missed = [Changed("tools"), A, B, Changed("vendor/thing", "file:///a")]
        for change in missed:
            server.notify(change)
        await turns(20)
        assert end.heard == []
        assert changes.told(end.session, sending=False) == position
        assert changes.changes_after(position) == missed
        assert changes.changes_after(changes.position) == []
        changes.join(end.session)
        changes.tell_again(end.session, missed)
        await turns(20)
        assert told(end) == [TOOLS, "file:///a"]
        assert changes.told(end.session, sending=False) == changes.position


async def test_a_change_that_is_not_sent_when_a_session_leaves_was_not_told() -> None:
    server = a_server()
    changes = changes_of(server)
    async with BareEnd(server, "2025") as end:
        before = changes.told(end.session, sending=False)
        server.notify(Changed("tools"))
        changes.leave(end.session)
        await turns(20)
        assert end.heard == []
        assert changes.told(end.session, sending=False) == before


class SlowEnd(BareEnd):
    """A client that takes a message when the test lets it."""

    def __init__(self, server: Server[Any]) -> None:
        super().__init__(server, "2025")
        self._taken: asyncio.Semaphore | None = None
        #: Messages that are being sent.
        self.sending = 0

    async def send(self, message: Outgoing, /) -> None:
        self.sending += 1
        if self._taken is not None:
            await self._taken.acquire()
        await super().send(message)
        self.sending -= 1

    def stop_reading(self) -> None:
        self._taken = asyncio.Semaphore(0)

    async def take(self, count: int = 1) -> None:
        """Take messages, and what follows at once."""
        assert self._taken is not None
        for _ in range(count):
            self._taken.release()
            await turns(20)


async def test_a_change_counts_as_told_when_it_is_sent() -> None:
    """With `sending`, also the one that is just being sent: its event names the place after it."""
    server = a_server()
    changes = changes_of(server)
    published = [Changed("prompts"), Changed("tools"), Changed("resources")]
    async with SlowEnd(server) as end:
        end.stop_reading()
        for change in published:
            server.notify(change)
        await turns(20)
        for sent in range(3):
            assert changes.changes_after(changes.told(end.session, sending=False)) == published[sent:]
            assert changes.changes_after(changes.told(end.session, sending=True)) == published[sent + 1 :]
            await end.take()
        server.notify(B)  # does not concern it
        for sending in (False, True):
            assert changes.told(end.session, sending=sending) == changes.position


async def test_up_to_where_a_session_was_told_is_unknown_until_what_it_missed_is_sent() -> None:
    server = a_server()
    changes = changes_of(server)
    async with SlowEnd(server) as end:
        await end.ask("resources/subscribe", {"uri": "file:///a"})
        end.stop_reading()
        changes.tell_again(end.session, [Changed("tools"), A])
        server.notify(Changed("prompts"))
        server.notify(Changed("resources"))
        for _ in range(2):
            await turns(20)
            for sending in (False, True):
                assert changes.told(end.session, sending=sending) < 0
            await end.take()
        assert told(end) == [TOOLS, "file:///a"]
        assert changes.told(end.session, sending=True) == changes.position - 1
        await end.take(2)
        assert told(end)[2:] == ["notifications/prompts/list_changed", "notifications/resources/list_changed"]
        assert changes.told(end.session, sending=False) == changes.position


async def test_what_a_session_missed_is_told_besides_what_is_on_its_way() -> None:
    server = a_server()
    changes = changes_of(server)
    async with SlowEnd(server) as end:
        await end.ask("resources/subscribe", {"uri": "file:///a"})
        end.stop_reading()
        server.notify(Changed("prompts"))
        server.notify(Changed("resources"))
        await turns(20)
        changes.tell_again(end.session, [Changed("tools")])
        changes.tell_again(end.session, [A])
        await turns(20)
        assert end.sending == 1
        await end.take(4)
        lists = [f"notifications/{kind}/list_changed" for kind in ("prompts", "resources", "tools")]
        assert sorted(told(end)) == sorted([*lists, "file:///a"])


async def test_a_session_that_leaves_is_told_nothing_more_of_what_it_missed() -> None:
    server = a_server()
    changes = changes_of(server)
    async with SlowEnd(server) as end:
        end.stop_reading()
        changes.tell_again(end.session, [Changed("tools"), Changed("prompts")])
        await turns(20)
        changes.leave(end.session)
        await end.take(2)
        assert told(end) == [TOOLS]
        assert changes.told(end.session, sending=False) < 0


async def test_a_session_that_ends_while_a_change_is_sent_is_told_nothing_more() -> None:
    server = a_server()
    async with SlowEnd(server) as end:
        end.stop_reading()
        server.notify(Changed("tools"))
        server.notify(Changed("prompts"))
        await turns(20)
        end.session.close("its client has left")
        await end.take(2)
        assert told(end) == [TOOLS]


async def test_a_session_may_be_gone_when_it_is_its_turn_to_be_told(caplog: pytest.LogCaptureFixture) -> None:
    server = a_server()
    async with BareEnd(server, "2025") as end:
        server.notify(Changed("tools"))
    session = ref(end.session)
    del end
    gc.collect()
    assert session() is None
    await turns(20)
    assert not caplog.records


async def test_a_session_is_told_everything_that_it_subscribed_to_if_it_is_unknown_what_it_missed() -> None:
    server = a_server()
    changes = changes_of(server)
    async with BareEnd(server, "2025") as end:
        await end.ask("resources/subscribe", {"uri": "file:///a"})
        changes.tell_again(end.session, None)
        await turns(20)
        lists = [f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")]
        assert told(end) == [*lists, "file:///a"]


async def test_a_session_that_missed_nothing_counts_as_told() -> None:
    server = a_server()
    changes = changes_of(server)
    async with BareEnd(server, "2025") as end:
        server.notify(B)
        for missed in ([], [B]):
            changes.tell_again(end.session, missed)
            assert changes.told(end.session, sending=False) == changes.position
        await turns(20)
        assert end.heard == []


async def test_changes_that_are_no_longer_kept_are_unknown() -> None:
    server = a_server()
    changes = changes_of(server)
    changes.connect()
    start = changes.position
    most = [Changed("resource", f"file:///{number}") for number in range(FIXED_LIMITS.queued_changes)]
    for change in (Changed("tools"), *most):
        server.notify(change)
    assert changes.changes_after(start) is None
    assert changes.changes_after(start + 1) == most


async def test_a_process_that_is_told_of_no_changes_does_not_know_what_has_changed() -> None:
    class BrokenBackend(MemoryBackend):
        def subscribe(self, listener: Any) -> Any:
            raise OSError("no backend")

    server = a_server(backend=BrokenBackend())
    changes = changes_of(server)
    changes.connect()
    assert changes.changes_after(changes.position) is None


async def test_a_process_that_has_stopped_does_not_know_what_has_changed_since() -> None:
    """Nor when it serves again: meanwhile it was not told."""
    backend = MemoryBackend()
    server = a_server(backend=backend)
    changes = changes_of(server)
    async with server.running():
        changes.connect()
        position = changes.position
        assert changes.changes_after(position) == []
    assert not backend._listeners
    async with server.running():
        changes.connect()
        assert changes.changes_after(position) is None
        assert changes.changes_after(changes.position) == []


async def test_a_session_subscribes_again_to_what_its_caller_may_still_see() -> None:
    server = a_server(authorize_subscription=lambda ctx, uri: ctx.principal == "anna" and uri == "file:///a")
    changes = changes_of(server)
    async with BareEnd(server, "2025") as end:
        for principal, watched in (("ben", []), ("anna", ["file:///a"])):
            for uri in ("file:///a", "file:///b"):
                await changes.watch_again(end.session, Origin(principal=principal), uri)
            assert changes.watched(end.session) == watched
        changes.unwatch(end.session, "file:///a")
        assert changes.watched(end.session) == []


async def test_a_session_that_has_ended_is_subscribed_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it ends while it is decided what it may subscribe to. Then a proxy ends its own subscription."""
    asked, decided, ended = asyncio.Event(), asyncio.Event(), list[str]()

    async def authorize(ctx: Context[Any], uri: str) -> bool:
        asked.set()
        await decided.wait()
        return True

    server = a_server(authorize_subscription=authorize)
    monkeypatch.setattr(server.catalog, "unwatched", lambda caller, uri: ended.append(uri) if uri else None)
    changes = changes_of(server)
    async with BareEnd(server, "2025") as end:
        again = asyncio.create_task(changes.watch_again(end.session, Origin(), "file:///a"))
        await asked.wait()
        end.session.close("its client has left")
        await end.session.wait_closed()
        decided.set()
        await again
        await changes.watch_again(end.session, Origin(), "file:///b")
        assert changes.watched(end.session) == []
    assert ended == ["file:///a"]
