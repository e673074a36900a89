"""Streams of sessions that any process serves: what breaks off in one goes on in another, and GET hears all of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gemel import Changed, Limits
from gemel.server.context import Context
from gemel.transports.http.server.sharing.stored_sessions import SessionRecord
from tests.support import V2025_06, V2025_11
from tests.transports.http_rig import JSON_HEADERS, Log, Wire, handshake_call, initialize, text_of
from tests.transports.sharing_rig import App, apps, call, redis_store, request, store_url, until

__all__ = ("redis_store", "store_url")  # fixtures


@pytest.fixture
async def pair(store_url: str) -> AsyncIterator[list[App]]:
    async with apps(store_url) as served:
        yield served


async def broken_off(app: App, session: dict[str, str], count: int, name: str = "stream", read: int = 2) -> list[str]:
    """A call whose client left after some events: their ids."""
    wire = await app.site.call(session, handshake_call("stream", name, count=count, name=name))
    await wire.head()
    events = [await wire.event() for _ in range(read)]
    wire.close()
    await app.log.until(f"{name} has told")
    return [event.id for event in events if event is not None and event.id]


async def rest_of(app: App, session: dict[str, str], last: str) -> list[Any]:
    """The messages of a stream after an event, to its end."""
    wire = await app.site.listen(session, last)
    assert (await wire.head()).status == 200
    messages = []
    while (message := await wire.message()) is not None:
        messages.append(message)
    return messages


@pytest.mark.parametrize("revision", [V2025_06, V2025_11])
async def test_the_standing_stream_begins_at_once(pair: list[App], revision: str) -> None:
    """Also where nothing but `initialize` has arrived: in the newer revision with the event that tells where to resume."""
    a, b = pair
    welcome = await a.site.ask(JSON_HEADERS, initialize(revision))
    session = {**JSON_HEADERS, "Mcp-Session-Id": welcome.headers["mcp-session-id"], "MCP-Protocol-Version": revision}
    assert (await b.site.ask(session, {"jsonrpc": "2.0", "method": "notifications/initialized"})).status == 202
    wire = await a.site.listen(session)
    assert (await wire.head()).status == 200
    if revision == V2025_11:
        event = await wire.event()
        assert event is not None
        assert event.id


async def test_a_stream_goes_on_in_another_process_while_its_call_runs(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    *_, last = await broken_off(a, session, 50)
    resumed = await b.site.listen(session, last)
    await resumed.head()
    told = [(await resumed.message())["params"]["message"] for _ in range(49)]
    assert told == [f"stream {number}" for number in range(1, 50)]
    a.log.gate.set()
    assert text_of(await resumed.message()) == "stream"
    assert await resumed.event() is None


async def test_a_stream_goes_on_in_another_process_before_its_events_are_stored(pair: list[App]) -> None:
    """They are written behind: a client that comes back meanwhile waits for them."""
    a, b = pair
    session = await a.site.session()
    stored, append = asyncio.Event(), a.server.backend.append

    async def append_later(*arguments: Any, **options: Any) -> int:
        await stored.wait()
        return await append(*arguments, **options)

    a.server.backend.append = append_later  # type: ignore[method-assign]  # this store is slow
    first, last = await broken_off(a, session, 5)
    streams = [await b.site.listen(session, event_id) for event_id in (first, last)]
    for stream in streams:
        assert (await stream.head()).status == 200
    stored.set()
    a.log.gate.set()
    for stream, begin in zip(streams, (0, 1), strict=True):
        told = [(await stream.message())["params"]["message"] for _ in range(begin, 5)]
        assert told == [f"stream {number}" for number in range(begin, 5)]
        assert text_of(await stream.message()) == "stream"
        assert await stream.event() is None


async def test_a_stream_is_complete_in_another_process_after_its_call_has_ended(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    ids = await broken_off(a, session, 300, "first", read=5)
    other = await broken_off(a, session, 300, "second")
    a.log.gate.set()
    await a.log.until("first ends")
    await a.log.until("second ends")
    for app in (b, a):
        for position, event_id in enumerate(ids):  # the first is the opening event
            *told, answer = await rest_of(app, session, event_id)
            assert [each["params"]["message"] for each in told] == [f"first {n}" for n in range(position, 300)]
            assert (text_of(answer), answer["id"]) == ("first", "first")
    *_, answer = await rest_of(b, session, other[-1])
    assert text_of(answer) == "second"


async def test_a_stream_of_an_older_revision_is_resumed_too(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session(V2025_06)
    (first,) = await broken_off(a, session, 3, read=1)
    a.log.gate.set()
    *told, answer = await rest_of(b, session, first)
    assert [each["params"]["message"] for each in told] == ["stream 1", "stream 2"]
    assert text_of(answer) == "stream"


async def test_an_event_of_more_than_a_mebibyte_is_kept(store_url: str) -> None:
    async with apps(store_url) as (a, b):

        @a.server.tool
        async def large(ctx: Context[Any]) -> str:
            await ctx.report_progress(1)
            await a.log.gate.wait()
            return "x" * 3_000_000

        session = await a.site.session()
        wire = await a.site.call(session, handshake_call("large"))
        await wire.head()
        await wire.event()
        event = await wire.event()
        assert event is not None
        assert event.id is not None
        wire.close()
        a.log.gate.set()
        (answer,) = await rest_of(b, session, event.id)
        assert len(text_of(answer)) == 3_000_000


async def test_foreign_and_dropped_events_are_refused(store_url: str) -> None:
    async with apps(store_url, limits=Limits(replay_events=10)) as (a, b):
        session, other = await a.site.session(), await a.site.session()
        first, *_ = await broken_off(a, session, 50)
        a.log.gate.set()
        await a.log.until("stream ends")
        tag, writer, stream, number, ids = first.split(".")
        async with asyncio.timeout(10):  # events are stored behind; then the successors of this one are dropped
            while (await (await b.site.listen(session, first)).reply()).status != 400:
                pass
        for headers, event_id in (
            (other, first),
            (session, first),
            (session, f"{tag}.{writer}.99.{number}.{ids}"),
            (session, f"{tag}.{writer}.99.{number}."),
            (session, f"{tag}.nobody-1.{stream}.{number}."),
            (session, f"{tag}.{writer}.{stream}.{number}"),
            (session, f"{tag}.{writer}.{stream}"),
            (session, f"{tag}.s.1"),
            (session, f"{tag}.s.x.y.z"),
            (session, "x" * 200),
        ):
            reply = await (await b.site.listen(headers, event_id)).reply()
            assert reply.status == 400, event_id


async def test_a_polled_stream_is_continued_in_another_process(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    wire = await a.site.call(session, handshake_call("poll"))
    await wire.head()
    last = ""
    while (event := await wire.event()) is not None:
        last = event.id or last
    assert "closed: True" in a.log.events
    resumed = await b.site.listen(session, last)
    await resumed.head()
    a.log.gate.set()
    assert (await resumed.message())["params"]["message"] == "after"
    assert text_of(await resumed.message()) == "polled"


# ---------------------------------------------------------------- the stream that GET opens


def has_left(app: App, session: dict[str, str]) -> bool:
    """Whether no GET is open in an app, and others know."""
    here = app.session(session)
    return here.standing.response is None and (here._leaving is None or here._leaving.done())


async def methods_of(wire: Wire, count: int) -> list[str]:
    return [(await wire.message())["method"] for _ in range(count)]


async def test_get_hears_of_changes_and_messages_of_every_process(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    stream = await b.site.listen(session)
    await stream.head()
    await until(lambda: b.session(session).standing._since is None)
    await call(a, session, "more")
    assert await methods_of(stream, 1) == ["notifications/tools/list_changed"]
    await call(a, session, "announce", text="from a")
    await call(b, session, "announce", text="from b")
    texts = [(await stream.message())["params"]["data"] for _ in range(2)]
    assert sorted(texts) == ["from a", "from b"]


async def test_a_subscription_is_effective_when_it_is_answered_whoever_has_the_stream(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    stream = await b.site.listen(session)
    await stream.head()
    await until(lambda: b.session(session).standing._since is None)
    assert (await a.site.ask(session, request("resources/subscribe", uri="note://x"))).json()["result"] == {}
    await call(a, session, "touch", uri="note://y")
    await call(a, session, "touch", uri="note://x")
    message = await stream.message()
    assert (message["method"], message["params"]["uri"]) == ("notifications/resources/updated", "note://x")
    assert (await a.site.ask(session, request("resources/unsubscribe", uri="note://x"))).json()["result"] == {}
    await call(a, session, "touch", uri="note://x")
    await call(a, session, "more")
    assert await methods_of(stream, 1) == ["notifications/tools/list_changed"]


async def test_a_subscription_holds_though_the_stream_is_opened_while_it_is_stored(
    pair: list[App], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opens the stream adopts the record, which does not have the subscription yet."""
    a, b = pair
    session = await a.site.session()
    record, replace = a.session(session).keys.record, a.server.backend.replace
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def late(key: str, *args: Any, **options: Any) -> bool:
        if key == record and not begun.is_set():
            begun.set()
            await go_on.wait()
        return await replace(key, *args, **options)

    monkeypatch.setattr(a.server.backend, "replace", late)
    subscribing = asyncio.create_task(a.site.ask(session, request("resources/subscribe", uri="note://x")))
    await begun.wait()
    stream = await a.site.listen(session)
    await stream.head()
    await until(lambda: a.session(session).standing._since is None)
    go_on.set()
    assert (await subscribing).json()["result"] == {}
    await call(b, session, "touch", uri="note://x")
    await call(b, session, "more")
    assert await methods_of(stream, 1) == ["notifications/resources/updated"]


async def test_a_subscription_made_here_is_ended_through_another_process(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    await a.site.ask(session, request("resources/subscribe", uri="note://x"))
    await b.site.ask(session, request("resources/unsubscribe", uri="note://x"))
    stream = await a.site.listen(session)
    await stream.head()
    await call(b, session, "touch", uri="note://x")
    await call(b, session, "more")
    assert await methods_of(stream, 1) == ["notifications/tools/list_changed"]


async def test_who_may_learn_of_a_change_is_decided_where_the_stream_is(store_url: str) -> None:
    seen: set[str] = {"note://x", "note://y"}

    async def may_watch(ctx: Context[Any], uri: str) -> bool:
        return uri in seen

    async with apps(store_url, authorize_subscription=may_watch) as (a, b):
        session = await a.site.session()
        for uri in ("note://x", "note://y"):
            await a.site.ask(session, request("resources/subscribe", uri=uri))
        assert "error" in (await b.site.ask(session, request("resources/subscribe", uri="note://z"))).json()
        stream = await b.site.listen(session)
        await stream.head()
        await until(lambda: b.session(session).standing._since is None)
        seen.remove("note://x")
        await call(a, session, "touch", uri="note://x")
        await call(a, session, "touch", uri="note://y")
        assert (await stream.message())["params"]["uri"] == "note://y"


async def test_nothing_is_lost_between_two_gets(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    await a.site.ask(session, request("resources/subscribe", uri="note://x"))
    first = await a.site.listen(session)
    await first.head()
    await call(a, session, "announce", text="one")
    assert (await first.message())["params"]["data"] == "one"
    first.close()
    await until(lambda: a.session(session).standing.response is None)
    await call(b, session, "touch", uri="note://x")
    await call(a, session, "announce", text="two")
    await until(lambda: has_left(a, session))
    second = await b.site.listen(session)
    assert (await second.head()).status == 200
    messages = [await second.message(), await second.message()]
    assert sorted(each["method"] for each in messages) == ["notifications/message", "notifications/resources/updated"]
    assert [each["params"]["data"] for each in messages if "data" in each["params"]] == ["two"]
    await call(a, session, "announce", text="three")
    assert (await second.message())["params"]["data"] == "three"


async def test_a_first_get_is_told_nothing_that_was_so_before_the_session(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    stream = await b.site.listen(session)
    await stream.head()
    await until(lambda: b.session(session).standing._since is None)
    await call(a, session, "announce", text="first")
    assert (await stream.message())["params"]["data"] == "first"


async def test_the_standing_stream_is_resumed_in_another_process(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    stream = await a.site.listen(session)
    await stream.head()
    await call(a, session, "announce", text="one")
    event = None
    while event is None or not event.data:
        event = await stream.event()
    assert event is not None
    await call(b, session, "announce", text="two")
    await call(b, session, "more")
    resumed = await b.site.listen(session, event.id)  # the first stream is still open
    assert (await resumed.head()).status == 200
    told = await methods_of(resumed, 2)
    assert sorted(told) == ["notifications/message", "notifications/tools/list_changed"]
    while await stream.event() is not None:  # and ends
        pass


async def test_of_two_gets_in_two_processes_the_later_one_has_the_stream(pair: list[App]) -> None:
    """LHTTP-13: even if they come at once. The other one ends, without messages."""
    a, b = pair
    session = await a.site.session()
    for number in range(3):
        wires = await asyncio.gather(a.site.listen(session), b.site.listen(session))
        heads = await asyncio.gather(*(wire.head() for wire in wires))
        assert [head.status for head in heads] == [200, 200]
        await until(lambda: sum(app.session(session).reads for app in pair) == 1)
        await call(a, session, "announce", text=str(number))
        other, reading = wires if b.session(session).reads else wires[::-1]
        assert (await reading.message())["params"]["data"] == str(number)
        assert await other.message() is None
        for wire in wires:
            wire.close()
        for app in pair:
            await until(lambda app=app: has_left(app, session))


async def test_a_get_takes_the_stream_over_from_another_process(pair: list[App]) -> None:
    """Each message is on one of the streams: a client that comes back without an event id gets none twice."""
    session = await pair[0].site.session()
    streams, texts = [], []
    for number in range(6):
        app = pair[number // 2 % 2]
        streams.append(await app.site.listen(session))
        assert (await streams[-1].head()).status == 200
        await until(lambda app=app: app.session(session).reads)
        await call(pair[number % 2], session, "announce", text=str(number))
        texts.append((await streams[-1].message())["params"]["data"])
    assert texts == [str(number) for number in range(6)]
    for stream in streams[:-1]:
        assert await stream.message() is None


async def test_a_message_that_belongs_to_no_call_waits_for_a_get(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    await call(a, session, "announce", text="early")
    stream = await b.site.listen(session)
    await stream.head()
    assert (await stream.message())["params"]["data"] == "early"


async def test_a_question_without_a_call_goes_on_the_stream_of_whatever_process(pair: list[App]) -> None:
    """The answer may come to any process, too."""
    a, b = pair
    session = await a.site.session()
    changed = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
    assert (await a.site.ask(session, changed)).status == 202
    await a.log.until("roots/list was not sent: the client has no stream open (GET) on which it could be asked")
    stream = await b.site.listen(session)
    await stream.head()
    await stream.event()
    assert (await a.site.ask(session, changed)).status == 202
    question = await stream.message()
    answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "file:///a"}]}}
    assert (await b.site.ask(session, answer)).status == 202
    await a.log.until("roots: ['file:///a']")


async def test_a_server_that_announces_a_change_reaches_sessions_without_a_call(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    stream = await a.site.listen(session)
    await stream.head()
    await until(lambda: a.session(session).standing._since is None)
    b.server.notify(Changed("prompts"))
    assert await methods_of(stream, 1) == ["notifications/prompts/list_changed"]


async def test_a_change_is_told_that_another_process_makes_while_that_of_the_stream_stops(store_url: str) -> None:
    log = Log()
    async with apps(store_url, 3, log=log) as (a, b, c):
        session = await a.site.session()
        await a.site.ask(session, request("resources/subscribe", uri="note://x"))
        stream = await a.site.listen(session)
        await stream.head()
        await a.site.call(session, handshake_call("wait", 5))
        await log.until("wait begins")
        assert a.site.app is not None
        stopping = asyncio.ensure_future(a.site.app.stop())
        while await stream.event() is not None:
            pass
        await until(lambda: has_left(a, session))
        await call(c, session, "touch", uri="note://x")
        reopened = await b.site.listen(session)
        await reopened.head()
        assert await methods_of(reopened, 1) == ["notifications/resources/updated"]
        log.gate.set()
        await stopping


async def test_a_change_is_told_of_which_the_former_process_has_not_heard_yet(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    await b.site.ask(session, request("resources/subscribe", uri="note://x"))
    stream = await a.site.listen(session)
    await stream.head()
    await until(lambda: a.session(session).standing._since is None)
    stream.close()
    await until(lambda: has_left(a, session))
    stop = a.server.loops.here().subscriptions._stop
    assert stop is not None
    stop()  # in place of a thread that is late
    await call(b, session, "touch", uri="note://x")
    reopened = await b.site.listen(session)
    await reopened.head()
    assert await methods_of(reopened, 1) == ["notifications/resources/updated"]


async def test_a_stream_that_can_not_be_fed_ends_so_that_its_client_comes_back(store_url: str) -> None:
    broken = False

    async def may_watch(ctx: Context[Any], uri: str) -> bool:
        if broken:
            raise OSError("the database of rights is gone")
        return True

    async with apps(store_url, authorize_subscription=may_watch) as (a, b):
        session = await a.site.session()
        await a.site.ask(session, request("resources/subscribe", uri="note://x"))
        broken = True
        stream = await b.site.listen(session)
        await stream.head()
        event, last = await stream.event(), ""
        while event is not None:
            last, event = event.id or last, await stream.event()
        broken = False
        await call(a, session, "touch", uri="note://x")
        resumed = await b.site.listen(session, last)
        await resumed.head()
        while (await resumed.message())["method"] != "notifications/resources/updated":
            pass


async def test_a_process_that_was_taken_for_dead_hears_of_subscriptions_again(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    stream = await b.site.listen(session)
    await stream.head()
    await until(lambda: b.session(session).standing._since is None)
    writer = b.session(session).writer

    def leave_out(record: SessionRecord) -> bool:
        record.writers.remove(writer)
        return True

    await a.store.update(a.session(session), leave_out)
    b.store._distrust()  # it finds that its sign of life has expired
    await until(lambda: not b.session(session).stale)
    await a.site.ask(session, request("resources/subscribe", uri="note://x"))
    await call(a, session, "touch", uri="note://x")
    assert await methods_of(stream, 1) == ["notifications/resources/updated"]


async def test_the_keep_of_events_is_bounded_for_all_sessions_together(store_url: str) -> None:
    async with apps(store_url, limits=Limits(replay_total=20_000)) as (a, _):
        for number in range(5):
            session = await a.site.session()
            await broken_off(a, session, 40, f"call{number}")
        await asyncio.sleep(0.3)
        assert a.store._sharing.budget.bytes < 30_000
        assert json.dumps(a.log.events)
