"""Telling of changes: who asked for what, in which order, what happens to slow listeners, and how it ends."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel import Changed, ChangesLost, ChannelClosed, Client, Context, InvalidParams, Limits, Overloaded, Server
from gemel.backends.memory import MemoryBackend
from gemel.protocol import changes
from gemel.protocol.changes import ChangeBuffer, covers
from gemel.protocol.limits import FIXED_LIMITS
from tests.server.bare_end import BareEnd
from tests.session_ends import turns
from tests.support import Call, Origin
from tests.transports.http_rig import modern, serving
from tests.transports.scripted_http import until
from tests.wire import routes
from tests.wire.scenario import NEWEST
from tests.wire.talk import META, Talk, talking

ID = f"{META}subscriptionId"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
TOOLS = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"


def a_server(**options: Any) -> Server[Any]:
    server: Server[Any] = Server("tells", version="1", **options)

    @server.tool
    async def nothing() -> None: ...

    @server.resource("file:///a")
    async def one() -> str:
        return "a"

    @server.resource("file:///dir/{name}")
    async def some(name: str) -> str:
        return name

    return server


async def listen(talk: Talk, **wanted: Any) -> tuple[int, dict[str, Any]]:
    """Listen; the id and what is honoured."""
    number = await talk.begin("subscriptions/listen", notifications=wanted)
    acknowledged = await talk.hear(ACKNOWLEDGED)
    assert acknowledged["_meta"] == {ID: number}
    return number, acknowledged["notifications"]


# ---------------------------------------------------------------- the stateless era


async def test_updates_of_watched_resources_are_told_and_of_no_others() -> None:
    """SUB-02, SUB-05, SUB-13."""
    server = a_server()
    async with talking(server, "2026") as talk:
        number, honoured = await listen(talk, resourceSubscriptions=["file:///a", "file:///dir/", "file:///dir/x"])
        assert set(honoured["resourceSubscriptions"]) <= {"file:///a", "file:///dir/", "file:///dir/x"}
        for uri in ("file:///ab", "file:///b", "file:///a"):
            server.notify(Changed("resource", uri))
        assert await talk.hear(UPDATED) == {"uri": "file:///a", "_meta": {ID: number}}
        await talk.ask("tools/list")
        assert talk.heard() == []
        await talk.route.cancel(number, "2026")


@pytest.mark.parametrize("request_id", [0, "", "0", 7])
async def test_each_change_names_the_id_of_its_listen_request(request_id: int | str) -> None:
    """SUB-05: 0 and the empty string are ids, too."""
    server = a_server()
    async with talking(server, "2026") as talk:
        params = {"notifications": {"toolsListChanged": True}}
        await talk.say({"id": request_id, "method": "subscriptions/listen", "params": params})
        assert (await talk.hear(ACKNOWLEDGED))["_meta"] == {ID: request_id}
        server.notify(Changed("tools"))
        assert (await talk.hear(TOOLS))["_meta"] == {ID: request_id}
        await talk.route.cancel(request_id, "2026")


async def test_nothing_overtakes_the_acknowledgement() -> None:
    """SUB-03: whatever changes while the subscription is being set up."""

    async def authorize(ctx: Context[Any], uri: str) -> bool:
        for _ in range(3):
            await asyncio.sleep(0)
        return True

    server = a_server(authorize_subscription=authorize)
    async with talking(server, "2026") as talk:
        number = await talk.begin(
            "subscriptions/listen", notifications={"toolsListChanged": True, "resourceSubscriptions": ["file:///a"]}
        )
        first = asyncio.create_task(talk.route.next())
        while not first.done():
            server.notify(Changed("tools"))
            server.notify(Changed("resource", "file:///a"))
            await asyncio.sleep(0)
        assert json.loads(await first)["method"] == ACKNOWLEDGED
        server.notify(Changed("tools"))
        await talk.hear(TOOLS)
        await talk.route.cancel(number, "2026")


async def test_a_change_that_comes_while_the_acknowledgement_is_sent_follows_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SUB-03."""
    server = a_server()
    async with BareEnd(server) as end:
        real, room = end.send, asyncio.Event()

        async def send(message: Any) -> None:
            await room.wait()
            await real(message)

        end.send = send  # type: ignore[method-assign]  # this end records what is sent
        call = end.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        assert isinstance(call, Call)
        serving_it = asyncio.create_task(end.session.answer(call))
        await turns(20)
        server.notify(Changed("tools"))
        await turns(20)
        assert end.heard == []
        room.set()
        await end.wait_for(TOOLS)
        assert [one["method"] for one in end.heard] == [ACKNOWLEDGED, TOOLS]
        end.session.cancel(call, "the client left")
        await serving_it
    assert caplog.text == ""


@pytest.mark.parametrize("later", [False, True])
async def test_who_may_watch_what_is_asked_of_the_author(later: bool) -> None:
    """What may not be watched is left out, without a word."""
    seen: list[tuple[str, str]] = []

    def authorize(ctx: Context[Any], uri: str) -> Any:
        seen.append((ctx.protocol_version, uri))
        allowed = uri == "file:///a"

        async def answer() -> bool:
            return allowed

        return answer() if later else allowed

    server = a_server(authorize_subscription=authorize)
    uris = ["file:///a", "file:///dir/x", "file:///a"]
    async with talking(server, "2026") as talk:
        number, honoured = await listen(talk, resourceSubscriptions=uris)
        assert honoured == {"resourceSubscriptions": ["file:///a"]}
        server.notify(Changed("resource", "file:///dir/x"))
        await talk.ask("tools/list")
        assert talk.heard() == []
        await talk.route.cancel(number, "2026")
    async with talking(server, "2025") as talk:
        assert (await talk.ask("resources/subscribe", uri="file:///a"))["result"] == {}
        assert (await talk.ask("resources/subscribe", uri="file:///dir/x"))["error"]["code"] == -32602
    assert seen == [(NEWEST["2026"], uri) for uri in uris[:2]] + [(NEWEST["2025"], uri) for uri in uris[:2]]


async def test_without_a_say_of_the_author_only_what_there_is_may_be_watched() -> None:
    """Fail closed."""
    async with talking(a_server(), "2026") as talk:
        uris = ["file:///a", "file:///dir/x", "file:///etc/passwd", "nonsense"]
        number, honoured = await listen(talk, resourceSubscriptions=uris)
        assert honoured == {"resourceSubscriptions": uris[:2]}
        await talk.route.cancel(number, "2026")


async def test_repeats_are_merged_while_a_listener_is_slow() -> None:
    """A slow reader waits alone, and holds one entry for each thing that changed."""
    server = a_server(limits=Limits(stream_bytes=2000))
    async with talking(server, "2026") as slow, talking(server, "2026") as quick:
        number, _ = await listen(slow, toolsListChanged=True, resourceSubscriptions=["file:///a"])
        other, _ = await listen(quick, toolsListChanged=True)
        slow.route.channel.pause_reading()  # type: ignore[attr-defined]  # the way of a channel to say that it is full
        for _ in range(300):
            server.notify(Changed("tools"))
            server.notify(Changed("resource", "file:///a"))
            await asyncio.sleep(0)
        assert len(quick.heard()) > 100
        waiting = slow.route.channel._size  # type: ignore[attr-defined]  # what lies in its inbox
        assert waiting < 4000
        slow.route.channel.resume_reading()  # type: ignore[attr-defined]  # and that it has room again
        await slow.hear(UPDATED)
        await slow.hear(TOOLS)
        slow.heard()
        await slow.route.cancel(number, "2026")
        await quick.route.cancel(other, "2026")


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize(
    ("published", "uri"),
    [
        (FIXED_LIMITS.queued_changes + 1000, "file:///dir/{}"),
        (2000, "file:///dir/{}" + "x" * 1000),  # 2 MB
    ],
)
async def test_changes_of_distinct_things_wait_within_bounds_and_their_loss_is_told(
    era: str, thread: bool, published: int, uri: str
) -> None:
    """A reader that does not read holds no more than this, and is told to look at everything again."""

    async def allow(ctx: Context[Any], uri: str) -> bool:
        return True

    server = a_server(limits=Limits(stream_bytes=2000), authorize_subscription=allow)

    def publish() -> None:
        for number in range(published):
            server.notify(Changed("resource", uri.format(number)))

    async with talking(server, era) as talk:
        watched, listening = ["file:///dir", "file:///a"], 0
        if era == "2026":
            listening, _ = await listen(talk, toolsListChanged=True, resourceSubscriptions=watched)
        else:
            for one in watched:
                await talk.ask("resources/subscribe", uri=one)
        talk.route.channel.pause_reading()  # type: ignore[attr-defined]  # the way of a channel to say that it is full
        if thread:
            await asyncio.to_thread(publish)
        else:
            publish()
        for _ in range(100):
            await asyncio.sleep(0)
        talk.route.channel.resume_reading()  # type: ignore[attr-defined]  # and that it has room again
        heard: list[str] = []
        while "file:///a" not in heard or "file:///dir" not in heard:
            heard.append((await talk.hear(UPDATED))["uri"])
        await talk.hear(TOOLS)
        assert len(heard) < 100
        if era == "2026":
            await talk.route.cancel(listening, "2026")


def test_the_buffer_is_bounded_and_merges_and_keeps_the_order() -> None:
    buffer = ChangeBuffer(10, 200)

    def read(position: int) -> list[Changed | ChangesLost]:
        """All that a reader at this position is told."""
        told: list[Changed | ChangesLost] = []
        while (found := buffer.after(position)) is not None:
            position, message = found
            told.append(message if isinstance(message, ChangesLost) else message.change)
        return told

    def change(number: int) -> Changed:
        return Changed("resource", f"x:/{number}")

    for number in range(10):
        assert buffer.add(change(number)) == number + 1
    assert read(0) == [change(number) for number in range(10)]
    assert read(7) == [change(7), change(8), change(9)]
    buffer.add(change(8))
    assert read(7) == [change(7), change(9), change(8)]
    assert read(11) == []
    for _ in range(100_000):
        buffer.add(change(3))
    assert len(buffer._entries) < 50
    for number in range(100_000):
        buffer.add(change(number))
        assert len(buffer._entries) <= 2 * 10 + 16
        assert len(buffer._newest) <= 10
    assert isinstance(read(buffer.position - 11)[0], ChangesLost)
    assert len(read(buffer.position - 10)) == 10
    buffer.add(Changed("resource", "x:/" + "x" * 1000))
    assert isinstance(read(buffer.position - 1)[0], ChangesLost)
    assert read(buffer.position) == []


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_change_is_encoded_once_for_all_readers_and_is_kept_once_for_slow_ones(
    era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory does not grow with the readers: each has a position in the buffer that all share."""
    encoded: list[Changed] = []
    real = changes.encode_change

    def encode(change: Changed) -> changes.ChangeMessage:
        if change.kind == "resource":
            encoded.append(change)
        return real(change)

    monkeypatch.setattr(changes, "encode_change", encode)
    server = a_server(authorize_subscription=lambda ctx, uri: True)
    published = [Changed("resource", f"file:///dir/{number}") for number in range(200)]
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(talking(server, era)) for _ in range(8)]
        for talk in readers:
            await watch(talk, "file:///dir")
            talk.route.channel.pause_reading()  # type: ignore[attr-defined]  # the way of a channel to say that it is full
        for change in published:
            server.notify(change)
        for _ in range(100):
            await asyncio.sleep(0)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for round_number in range(6):
                for change in published[:: 1 if round_number % 2 else -1]:
                    server.notify(change)
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert grown < 200_000
        for talk in readers:
            talk.route.channel.resume_reading()  # type: ignore[attr-defined]  # and that it has room again
            heard = set[str]()
            while len(heard) < len(published):
                heard.add((await talk.hear(UPDATED))["uri"])
        assert sorted(map(str, encoded)) == sorted(map(str, published))


async def test_a_reader_that_lost_changes_is_told_again_all_that_it_watches_and_no_other_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who has read everything loses nothing, however much changes that does not concern it."""
    server = a_server(authorize_subscription=lambda ctx, uri: True)
    too_many = FIXED_LIMITS.queued_changes + 1
    async with talking(server, "2026") as talk, talking(server, "2025") as old:
        await watch(talk, "file:///a", "file:///b")
        await watch(old, "file:///a", "file:///b")
        for number in range(too_many):
            server.notify(Changed("resource", f"file:///dir/{number}"))
        server.notify(Changed("resource", "file:///a"))
        for reader in (talk, old):
            assert (await reader.hear(UPDATED))["uri"] == "file:///a"
            await reader.ask("tools/list")
            assert reader.heard() == []
        server.notify(Changed("resource", "file:///a"))
        for number in range(too_many):
            server.notify(Changed("resource", f"file:///dir/{number}"))
        for reader in (talk, old):
            assert [(await reader.hear(UPDATED))["uri"] for _ in range(2)] == ["file:///a", "file:///b"]


@pytest.mark.parametrize("channel", ["memory", "http"])
async def test_the_end_of_the_server_ends_every_subscription_with_its_result(channel: str) -> None:
    """SUB-09, CANC-04, CANC-05: on a pipe a cancellation follows, on HTTP the result is all."""
    server = a_server()
    async with getattr(routes, channel)(server) as route:
        talk = await Talk(route, "2026").open()
        number, _ = await listen(talk, toolsListChanged=True)
        await server._drain()
        answer = await talk.answer_to(number)
        if channel == "memory":
            told = await talk.hear("notifications/cancelled")
            assert (told["requestId"], told["_meta"][ID]) == (number, number)
        assert talk.heard() == []
        assert answer["result"]["resultType"] == "complete"
        assert answer["result"]["_meta"][ID] == number
        assert type(answer["result"]["_meta"][ID]) is int


async def test_the_end_of_input_ends_subscriptions_on_a_pipe() -> None:
    """SUB-09: a listener doesn't hold up the end."""
    async with routes.unix(a_server()) as route:
        talk = await Talk(route, "2026").open()
        number, _ = await listen(talk, toolsListChanged=True)
        await route.finish()
        assert (await talk.answer_to(number))["result"]["_meta"][ID] == number


async def test_large_subscriptions_share_a_bounded_memory() -> None:
    """The server keeps the request of each, whatever else is in it; the room is given back."""
    server = a_server(limits=Limits(subscription_bytes=10_000))
    padding = "x" * 2000
    async with talking(server, "2026") as talk:
        filter = {"notifications": {"toolsListChanged": True}, "padding": padding}
        for _ in range(3):
            number = await talk.begin("subscriptions/listen", **filter)
            await talk.hear(ACKNOWLEDGED)
            other = await talk.begin("subscriptions/listen", **filter)
            await talk.hear(ACKNOWLEDGED)
            answer = await talk.ask("subscriptions/listen", **filter)
            assert answer["error"]["code"] == Overloaded.code
            assert (
                answer["error"]["message"] == "Too large subscriptions: 10000 bytes of all requests is the limit here"
            )
            await talk.route.cancel(number, "2026")
            await talk.route.cancel(other, "2026")
    server = a_server(limits=Limits(subscription_bytes=20_000))
    for _ in range(3):
        async with talking(server, "2025") as talk:
            for name in (1, 1, 2):  # the same one again takes no more room
                answer = await talk.ask("resources/subscribe", uri=f"file:///dir/{name}", padding=padding)
                assert "result" in answer
            answer = await talk.ask("resources/subscribe", uri="file:///dir/3", padding=padding)
            assert answer["error"]["code"] == Overloaded.code
            await talk.ask("resources/unsubscribe", uri="file:///dir/1")
            assert "result" in await talk.ask("resources/subscribe", uri="file:///dir/3", padding=padding)


async def test_streams_that_have_ended_leave_nothing_behind() -> None:
    """Whether others with the same filter go on or not."""
    server = a_server()
    async with talking(server, "2026") as talk:
        staying, _ = await listen(talk, toolsListChanged=True)
        for wanted in (
            {"toolsListChanged": True},
            {"resourceSubscriptions": ["file:///a"]},
            {"promptsListChanged": True},
        ):
            number, _ = await listen(talk, **wanted)
            await talk.route.cancel(number, "2026")
            await until(lambda: len(server.loops.here().subscriptions._streams) == 1)
        assert [len(audience.streams) for audience in server.loops.here().subscriptions._audiences.values()] == [1]
        await talk.route.cancel(staying, "2026")
        await until(lambda: not server.loops.here().subscriptions._audiences)


async def test_what_a_caller_watches_in_sessions_takes_half_of_the_bytes() -> None:
    """Each takes those of its request, and 2 KiB."""
    size = len('{"uri":"file:///a"}') + 2048
    server = a_server(limits=Limits(subscription_bytes=4 * size), authorize_subscription=lambda ctx, uri: True)
    async with BareEnd(server, "2025") as end:
        for uri in ("file:///a", "file:///b"):
            await end.ask("resources/subscribe", {"uri": uri})
        assert (await end.refusal("resources/subscribe", {"uri": "file:///c"}))["code"] == Overloaded.code
        await end.ask("resources/subscribe", {"uri": "file:///a"})


async def test_too_many_streams_or_resources_are_refused() -> None:
    """Each with the code of its reason, and at once."""
    server = a_server(limits=Limits(streams=1, watched=2))
    async with talking(server, "2026") as talk:
        number, _ = await listen(talk, toolsListChanged=True)
        answer = await talk.ask("subscriptions/listen", notifications={"toolsListChanged": True})
        assert answer["error"]["message"] == "Too many subscriptions: 1 at once is the limit here"
        assert answer["error"]["code"] == Overloaded.code
        await talk.route.cancel(number, "2026")
        uris = [f"file:///dir/{number}" for number in range(3)]
        answer = await talk.ask("subscriptions/listen", notifications={"resourceSubscriptions": uris})
        assert answer["error"]["message"] == "Too many resources in one subscription: 2 is the limit here"
        assert answer["error"]["code"] == InvalidParams.code
        number, _ = await listen(talk, resourceSubscriptions=[*uris[:2], *uris[:2]])
        await talk.route.cancel(number, "2026")
    async with talking(server, "2025") as talk:
        for uri in uris[:2]:
            assert "result" in await talk.ask("resources/subscribe", uri=uri)
        assert "result" in await talk.ask("resources/subscribe", uri=uris[0])
        assert "error" in await talk.ask("resources/subscribe", uri=uris[2])
        assert "result" in await talk.ask("resources/unsubscribe", uri=uris[0])
        assert "result" in await talk.ask("resources/subscribe", uri=uris[2])


async def test_changes_are_sent_until_the_listener_leaves() -> None:
    server = a_server()
    async with talking(server, "2026") as talk:
        number, _ = await listen(talk, toolsListChanged=True)
        for _ in range(20):
            server.notify(Changed("tools"))
            await talk.hear(TOOLS)
        await talk.route.cancel(number, "2026")
        server.notify(Changed("tools"))
        await talk.ask("tools/list")
        assert talk.heard() == []


async def test_streams_with_the_same_filter_are_told_of_what_each_has_until_it_ends() -> None:
    """SUB-05: whatever else has the same filter, or had it before."""
    server = a_server()
    async with talking(server, "2026") as talk:
        first, second, other = [
            (await listen(talk, toolsListChanged=True, resourceSubscriptions=[uri]))[0]
            for uri in ("file:///a", "file:///a", "file:///dir/x")
        ]

        async def told(method: str, count: int) -> set[int]:
            return {(await talk.hear(method))["_meta"][ID] for _ in range(count)}

        server.notify(Changed("tools"))
        assert await told(TOOLS, 3) == {first, second, other}
        server.notify(Changed("resource", "file:///a"))
        assert await told(UPDATED, 2) == {first, second}
        await talk.route.cancel(first, "2026")
        server.notify(Changed("resource", "file:///a"))
        assert await told(UPDATED, 1) == {second}
        await talk.route.cancel(second, "2026")
        server.notify(Changed("resource", "file:///a"))
        third, _ = await listen(talk, toolsListChanged=True, resourceSubscriptions=["file:///a"])
        server.notify(Changed("tools"))
        assert await told(TOOLS, 2) == {other, third}
        assert talk.heard() == []
        for number in (other, third):
            await talk.route.cancel(number, "2026")


async def test_who_was_authenticated_is_known_where_a_subscription_is_decided() -> None:
    """And in the handlers of other requests."""
    principals: list[str | None] = []

    async def authorize(ctx: Context[Any], uri: str) -> bool:
        principals.append(ctx.principal)
        return True

    async def authenticate(*request: Any) -> str:
        return "ada"

    server = a_server(authorize_subscription=authorize)

    @server.tool
    async def who(ctx: Context[Any]) -> str:
        return str(ctx.principal)

    async with serving(server, authenticate=authenticate) as site:
        address = f"http://127.0.0.1:{site.port}/mcp"
        async with Client(address) as client, client.listen(resources=["file:///a"]):
            assert (await client.call_tool("who")).text == "ada"
    assert principals == ["ada"]


async def test_a_listener_that_left_is_forgotten() -> None:
    server = a_server()
    async with talking(server, "2026") as talk:
        number, _ = await listen(talk, toolsListChanged=True)
        assert len(server.loops.here().subscriptions._streams) == 1
        await talk.route.cancel(number, "2026")
        await talk.ask("tools/list")
        assert not server.loops.here().subscriptions._streams
    async with serving(server) as site:
        wire = await site.call(*modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
        assert (await wire.head()).streams
        await wire.event()
        assert len(server.loops.here().subscriptions._streams) == 1
        wire.abort()
        async with asyncio.timeout(5):
            while server.loops.here().subscriptions._streams:  # noqa: ASYNC110 (the server tells nobody)
                await asyncio.sleep(0.001)


# ---------------------------------------------------------------- the handshake era


async def test_a_watcher_hears_of_its_resources_until_it_stops() -> None:
    """SUB-15."""
    server = a_server()
    async with talking(server, "2025") as talk, talking(server, "2025") as other:
        assert (await talk.ask("resources/subscribe", uri="file:///a"))["result"] == {}
        server.notify(Changed("resource", "file:///a"))
        assert await talk.hear(UPDATED) == {"uri": "file:///a"}
        for _ in range(2):
            assert (await talk.ask("resources/unsubscribe", uri="file:///a"))["result"] == {}
        server.notify(Changed("resource", "file:///a"))
        await talk.ask("tools/list")
        await other.ask("tools/list")
        assert talk.heard() == other.heard() == []


async def test_before_the_handshake_nobody_is_told() -> None:
    """LIFE-09."""
    server = a_server()
    async with routes.memory(server) as route:
        server.notify(Changed("tools"))
        await asyncio.sleep(0.01)
        assert route.inbox == []


async def test_a_loss_means_look_at_everything_again() -> None:
    """No silent gap, in either era."""
    backend = MemoryBackend()
    server = a_server(backend=backend)
    async with talking(server, "2025") as old, talking(server, "2026") as new:
        await old.ask("resources/subscribe", uri="file:///a")
        number, _ = await listen(new, toolsListChanged=True, resourceSubscriptions=["file:///a"])
        for listener in list(backend._listeners.values()):
            listener(ChangesLost("the backend was away"))
        for talk in (old, new):
            assert (await talk.hear(UPDATED))["uri"] == "file:///a"
            await talk.hear(TOOLS)
        await old.hear("notifications/resources/list_changed")
        old.heard()
        await new.route.cancel(number, "2026")


# ---------------------------------------------------------------- both


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_changes_may_be_told_from_any_thread(era: str) -> None:
    server = a_server()
    async with talking(server, era) as talk:
        number = None
        if era == "2026":
            number, _ = await listen(talk, toolsListChanged=True)
        thread = threading.Thread(target=server.notify, args=(Changed("tools"),))
        thread.start()
        await talk.hear(TOOLS)
        thread.join()
        if number is not None:
            await talk.route.cancel(number, era)


async def test_a_registry_that_changes_tells_by_itself() -> None:
    """SUB-14."""
    server = a_server()
    changes: list[tuple[str, Callable[[], Any]]] = [
        ("tools", lambda: server.tool("more")(lambda: None)),
        ("tools", lambda: server.remove_tool("more")),
        ("prompts", lambda: server.prompt("ask")(lambda: "x")),
        ("prompts", lambda: server.remove_prompt("ask")),
    ]
    async with talking(server, "2025") as talk:
        for kind, change in changes:
            change()
            await talk.hear(f"notifications/{kind}/list_changed")
        assert talk.heard() == []


async def test_a_backend_that_fails_stops_no_change_and_no_listener(caplog: pytest.LogCaptureFixture) -> None:
    backend = MemoryBackend()

    def broken(event: Any) -> None:
        raise RuntimeError("boom")

    backend.subscribe(broken)
    server = a_server(backend=backend)
    async with talking(server, "2025") as talk:
        server.notify(Changed("tools"))
        await talk.hear(TOOLS)
    assert "a listener for changes failed" in caplog.text


async def test_a_conversation_whose_loop_is_gone_keeps_nobody_from_hearing() -> None:
    server = a_server()

    def leave_one_behind() -> None:
        async def open_and_leave() -> Any:
            way = routes.memory(server)
            route = await way.__aenter__()
            await Talk(route, "2025").open()
            return way, route

        left.append(asyncio.run(open_and_leave()))

    left: list[Any] = []
    thread = threading.Thread(target=leave_one_behind)
    thread.start()
    await asyncio.to_thread(thread.join)
    async with talking(server, "2025") as talk:
        server.notify(Changed("tools"))
        await talk.hear(TOOLS)
    await asyncio.get_running_loop().shutdown_default_executor()


@pytest.mark.parametrize(
    ("watched", "changed", "concerned"),
    [
        ("file:///a", "file:///a", True),
        ("file:///a", "file:///a/b", True),
        ("file:///a", "file:///a?q", True),
        ("file:///a", "file:///a#f", True),
        ("file:///a", "file:///ab", False),
        ("file:///a/", "file:///a/b", True),
        ("file:///a/b", "file:///a", False),
        ("", "file:///a", False),
    ],
)
def test_a_change_concerns_the_same_and_what_it_lies_below(watched: str, changed: str, concerned: bool) -> None:
    """SUB-13."""
    assert covers(watched, changed) is concerned


@given(st.text(alphabet="ab/?#", max_size=5), st.text(alphabet="ab/?#", max_size=5))
def test_any_two_uris_can_be_compared(watched: str, changed: str) -> None:
    assert covers(watched, watched)
    if covers(watched, changed):
        assert changed.startswith(watched)


# ---------------------------------------------------------------- who may see a change


async def watch(talk: Talk, *uris: str) -> None:
    if talk.era == "2026":
        _, honoured = await listen(talk, resourceSubscriptions=list(uris))
        assert honoured == {"resourceSubscriptions": list(uris)}
    else:
        for uri in uris:
            assert (await talk.ask("resources/subscribe", uri=uri))["result"] == {}


async def reported(talk: Talk, server: Server[Any], *uris: str) -> list[str]:
    """Which of these resources a client that watches `y://end` besides hears of when all have changed."""
    heard: list[str] = []
    for uri in (*uris, "y://end"):
        server.notify(Changed("resource", uri))
    while not heard or heard[-1] != "y://end":
        heard.append((await talk.hear(UPDATED))["uri"])
    return heard[:-1]


def guarded(**options: Any) -> Server[Any]:
    """`y://a/hidden` is hidden; `y://a/off` is switched off; `y://a/new` is not registered."""
    server: Server[Any] = Server("guarded", **options)
    for name in ("a", "a/open", "a/secret", "end"):
        server.resource(f"y://{name}", name=name.replace("/", "-"))(lambda: "text")
    server.resource("y://a/hidden", name="hidden", visible=lambda caller: False)(lambda: "text")
    server.resource("y://a/off", name="off")(lambda: "text")
    server.disable("y://a/off")
    return server


BELOW = ("y://a/open", "y://a/secret", "y://a/hidden", "y://a/off", "y://a/new", "y://a")


@pytest.mark.parametrize("route", ["memory", "unix", "http"])
@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_change_of_what_is_hidden_is_not_reported_through_a_watch_above_it(era: str, route: str) -> None:
    server = guarded()
    async with getattr(routes, route)(server) as way:
        talk = await Talk(way, era).open()
        await watch(talk, "y://a", "y://end")
        assert await reported(talk, server, *BELOW) == ["y://a/open", "y://a/secret", "y://a/new", "y://a"]
        server.disable("y://a")
        assert await reported(talk, server, "y://a", "y://a/open") == ["y://a/open"]


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("mounted", [None, "prefix", "plain"])
@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_the_author_is_asked_about_each_change(era: str, mounted: str | None, later: bool) -> None:
    """A refused resource is not reported through a watch on the one above it; a hook that fails refuses."""

    def authorize(ctx: Context[Any], uri: str) -> Any:
        assert uri.startswith("y://")
        if uri.endswith("new"):
            raise ValueError("broken hook")
        allowed = not uri.endswith("secret")

        async def answer() -> bool:
            return allowed

        return answer() if later else allowed

    server = inner = guarded(authorize_subscription=authorize)
    prefix = "m+" if mounted == "prefix" else ""
    if mounted is not None:
        server = Server("outer")
        server.resource("y://end", name="end")(lambda: "text")
        server.mount(inner, "m" if prefix else None)
    async with talking(server, era) as talk:
        await watch(talk, f"{prefix}y://a", "y://end")
        heard = await reported(talk, server, *(prefix + uri for uri in BELOW))
        expected = ["y://a/open", "y://a"] if mounted != "plain" else ["y://a/open", "y://a/new", "y://a"]
        assert heard == [prefix + uri for uri in expected]


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_changes_of_lists_are_told_without_asking_the_author(era: str) -> None:
    server = a_server(authorize_subscription=lambda ctx, uri: False)
    async with talking(server, era) as talk:
        if era == "2026":
            await listen(talk, toolsListChanged=True)
        server.notify(Changed("tools"))
        await talk.hear(TOOLS)


async def test_a_hook_that_goes_on_when_it_is_cancelled_does_not_keep_a_subscription() -> None:
    """Nothing follows the cancellation, and the stream is forgotten."""
    asked: list[str] = []

    async def authorize(ctx: Context[Any], uri: str) -> bool:
        asked.append(uri)
        if len(asked) > 1:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        return True

    server = a_server(authorize_subscription=authorize)
    async with talking(server, "2026") as talk:
        number, _ = await listen(talk, resourceSubscriptions=["file:///dir/"])
        for name in "ab":
            server.notify(Changed("resource", f"file:///dir/{name}"))
        await turns(20)
        await talk.route.cancel(number, "2026")
        await talk.ask("tools/list")
        await turns(20)
        assert not server.loops.here().subscriptions._streams
        assert talk.heard() == []
    assert asked == ["file:///dir/", "file:///dir/a"]


async def test_a_subscription_ends_with_the_session_that_ends_while_it_sends() -> None:
    """A channel that finds its peer gone may close the session in `send`, which does not cancel the sender."""
    server = a_server()
    async with BareEnd(server) as end:
        await end.listen("toolsListChanged")
        sent = 0

        async def send(message: Any) -> None:
            nonlocal sent
            sent += 1
            end.session.close("the peer is gone")
            raise ChannelClosed("the peer is gone")

        end.send = send  # type: ignore[method-assign]  # this end has no peer that could leave
        for _ in range(3):
            server.notify(Changed("tools"))
            await turns(20)
        assert not server.loops.here().subscriptions._streams
    assert sent == 1


class BrokenBackend(MemoryBackend):
    """Fails as told."""

    def __init__(self, *broken: str) -> None:
        super().__init__()
        self.broken = broken

    def publish(self, event: Changed) -> None:
        if "publish" in self.broken:
            raise OSError("no backend")
        super().publish(event)

    def subscribe(self, listener: Any) -> Callable[[], None]:
        if "subscribe" in self.broken:
            raise OSError("no backend")
        return super().subscribe(listener)


@pytest.mark.parametrize("broken", [("publish",), ("subscribe",), ("publish", "subscribe")])
@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_backend_that_raises_breaks_neither_registration_nor_local_listeners(
    era: str, broken: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    backend = BrokenBackend(*broken)
    server = a_server(backend=backend)
    async with talking(server, era) as talk:
        if era == "2026":
            await listen(talk, toolsListChanged=True)
        server.tool("more")(lambda: "more")
        await talk.hear(TOOLS)
        assert "The backend could not" in caplog.text
        backend.broken = ()
        server.remove_tool("more")
        await talk.hear(TOOLS)
        assert talk.heard() == []
        a_server(backend=backend).notify(Changed("tools"))  # another server on a backend that works again
        await talk.hear(TOOLS)


async def test_a_change_is_told_once_though_the_backend_tells_its_publisher_too(tmp_path: Path) -> None:
    """Such as a backend that several processes share, which is later than the publisher itself."""
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    server, other = a_server(backend=url), a_server(backend=url)
    try:
        async with talking(server, "2025") as talk:
            server.notify(Changed("tools"))
            await talk.hear(TOOLS)
            other.notify(Changed("prompts"))
            await talk.hear("notifications/prompts/list_changed")
            assert talk.heard() == []
    finally:
        await server.backend.close()
        await other.backend.close()


async def test_a_stream_is_told_of_changes_in_another_process_from_its_first_request_on() -> None:
    """A server that was asked nothing else before: each request of the stateless era is a session of its own on HTTP."""
    backend = MemoryBackend()
    server, other = a_server(backend=backend), a_server(backend=backend)
    async with routes.http(server) as route:
        talk = await Talk(route, "2026").open()
        number, _ = await listen(talk, toolsListChanged=True)
        other.notify(Changed("tools"))
        await talk.hear(TOOLS)
        await talk.route.cancel(number, "2026")


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
async def test_a_list_that_is_not_offered_is_not_acknowledged(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SUB-04: such as a list that the server behind a proxy does not have."""
    server = a_server()
    capabilities = server.catalog.capabilities()
    setattr(capabilities, kind, None)
    monkeypatch.setattr(server.catalog, "capabilities", lambda: capabilities)
    wanted = {f"{name}ListChanged": True for name in ("tools", "prompts", "resources")}
    async with talking(server, "2026") as talk:
        _, acknowledged = await listen(talk, **wanted, resourceSubscriptions=["file:///a"])
    missing = {f"{kind}ListChanged"} | ({"resourceSubscriptions"} if kind == "resources" else set())
    assert acknowledged.keys() == {*wanted, "resourceSubscriptions"} - missing


async def test_a_stream_that_has_ended_leaves_no_hook_in_its_session() -> None:
    async with BareEnd(a_server()) as end:
        for acknowledged in range(1, 4):
            got = end.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            assert isinstance(got, Call)
            serving_it = asyncio.create_task(end.session.answer(got))
            await turns(50)
            assert len(end.heard) == acknowledged
            end.session.cancel(got, "the client left")
            await serving_it
        assert not end.session._end_of_input_hooks


async def test_a_session_that_stops_watching_is_not_told_of_it_after_a_loss() -> None:
    """Also if the changes that were lost are just being told."""
    backend, room = MemoryBackend(), asyncio.Event()
    async with BareEnd(a_server(backend=backend), "2025") as end:
        for uri in ("file:///a", "file:///dir/b"):
            await end.ask("resources/subscribe", {"uri": uri})
        real = end.send

        async def send(message: Any) -> None:
            await room.wait()
            await real(message)

        end.send = send  # type: ignore[method-assign]  # this end records what is sent
        for listener in list(backend._listeners.values()):
            listener(ChangesLost("the backend was away"))
        await turns(20)
        await end.ask("resources/unsubscribe", {"uri": "file:///dir/b"})
        room.set()
        await turns(50)
        assert [one["params"] for one in end.heard if one["method"] == UPDATED] == [{"uri": "file:///a"}]


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
async def test_a_stream_tells_of_the_lists_that_were_asked_for_only(kind: str) -> None:
    server = a_server()
    kinds = ("tools", "prompts", "resources")
    async with talking(server, "2026") as talk:
        number, honoured = await listen(talk, **{f"{kind}ListChanged": True})
        assert honoured == {f"{kind}ListChanged": True}
        for one in kinds:
            server.notify(Changed(one))
        await talk.hear(f"notifications/{kind}/list_changed")
        await talk.ask("tools/list")
        assert talk.heard() == []
        await talk.route.cancel(number, "2026")


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_the_event_loop_rests_when_everybody_was_told(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server, loop, scheduled = a_server(), asyncio.get_running_loop(), list[Any]()
    real = loop.call_soon

    def call_soon(callback: Any, *arguments: Any, context: Any = None) -> Any:
        scheduled.append(callback)
        return real(callback, *arguments, context=context)

    async with talking(server, era) as talk:
        if era == "2026":
            await listen(talk, toolsListChanged=True)
        server.notify(Changed("tools"))
        await talk.hear(TOOLS)
        await turns(20)
        monkeypatch.setattr(loop, "call_soon", call_soon)
        await turns(100)
        assert len(scheduled) < 150  # this test takes one for each turn


async def test_a_change_just_before_the_end_is_sent_first() -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
    server = a_server()
    async with talking(server, "2026") as talk:
        number, _ = await listen(talk, toolsListChanged=True)
        await turns(20)
        server.notify(Changed("tools"))
        server.loops.here().subscriptions.end()
        answer = await talk.answer_to(number)
        assert answer["result"]["_meta"] | {ID: number} == answer["result"]["_meta"]
        assert [one["method"] for one in talk.heard()] == [TOOLS, "notifications/cancelled"]
    assert failures == []


async def test_a_resource_that_is_subscribed_to_again_stays_watched_while_it_is_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a proxy would end its own subscription, and open another."""
    server = a_server()
    ended: list[str] = []
    monkeypatch.setattr(server.catalog, "unwatched", lambda caller, uri: ended.append(uri) if uri else None)
    async with talking(server, "2025") as talk:
        for _ in range(2):
            await watch(talk, "file:///a")
        assert ended == []
        assert "error" in await talk.ask("resources/subscribe", uri="file:///unknown")
        await talk.ask("resources/unsubscribe", uri="file:///a")
        assert ended == ["file:///unknown", "file:///a"]
        await watch(talk, "file:///dir/x")
    await turns(50)
    assert ended[2:] == ["file:///dir/x"]


async def test_a_resource_stays_watched_until_the_last_subscription_of_its_caller_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then a proxy ends its own. What was refused is not watched meanwhile."""
    server = a_server()
    ended: list[str] = []
    monkeypatch.setattr(server.catalog, "unwatched", lambda caller, uri: ended.append(uri) if uri else None)
    async with talking(server, "2025") as old, talking(server, "2026") as new:
        first, _ = await listen(new, resourceSubscriptions=["file:///a", "file:///dir/x", "file:///unknown"])
        assert ended == ["file:///unknown"]
        await watch(old, "file:///a")
        await new.route.cancel(first, "2026")
        await new.ask("tools/list")
        assert sorted(ended) == ["file:///a", "file:///dir/x", "file:///unknown"]
        del ended[2:]
        second, _ = await listen(new, resourceSubscriptions=["file:///a"])
        third, _ = await listen(new, resourceSubscriptions=["file:///a"])
        await old.ask("resources/unsubscribe", uri="file:///a")
        assert ended[2:] == ["file:///a"], "of the other caller"
        await new.route.cancel(second, "2026")
        await new.ask("tools/list")
        assert len(ended) == 3
        await new.route.cancel(third, "2026")
        await new.ask("tools/list")
        assert ended[3:] == ["file:///a"]
        assert not server.loops.here().subscriptions._watchers


async def test_a_resource_that_lacks_a_scope_of_the_caller_is_left_out_of_a_stream() -> None:
    server = a_server()
    server.resource("file:///drafts", name="drafts", scopes=["notes"])(lambda: "a draft")
    uris = ["file:///a", "file:///drafts"]
    for scopes, honoured in ((set[str](), uris[:1]), ({"notes"}, uris)):
        async with BareEnd(server, origin=Origin(principal="anna", scopes=frozenset(scopes))) as end:
            await end.listen("resourceSubscriptions", uris)
            acknowledged = await end.wait_for(ACKNOWLEDGED)
            assert acknowledged["notifications"] == {"resourceSubscriptions": honoured}


async def test_who_subscribed_is_known_where_it_is_decided_who_sees_a_change() -> None:
    server = a_server(authorize_subscription=lambda ctx, uri: ctx.principal == "anna")
    async with BareEnd(server, "2025", origin=Origin(principal="anna")) as end:
        await end.ask("resources/subscribe", {"uri": "file:///a"})
        server.notify(Changed("resource", "file:///a"))
        assert await end.wait_for(UPDATED) == {"uri": "file:///a"}


async def test_a_session_that_could_not_be_told_of_one_change_is_told_of_later_ones() -> None:
    """Such as an HTTP session without a stream."""
    server = a_server()
    async with BareEnd(server, "2025") as end:
        real, failures = end.send, 0

        async def send(message: Any) -> None:
            nonlocal failures
            failures += 1
            if failures == 1:
                raise ChannelClosed("no stream")
            await real(message)

        end.send = send  # type: ignore[method-assign]  # this end records what is sent
        for change in ("prompts", "tools"):
            server.notify(Changed(change))
            await turns(20)
        assert [one["method"] for one in end.heard] == [TOOLS]
        subscriptions = server.loops.here().subscriptions
        missed = subscriptions.changes_after(
            subscriptions.told(end.session, sending=False)
        )  # where another stream has to go on
        assert missed is not None
        assert Changed("prompts") in missed
