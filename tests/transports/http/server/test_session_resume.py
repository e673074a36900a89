"""Streams that break off and go on: Last-Event-ID, polling, and results that outlive their client's connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gemel import Context, Limits
from gemel.transports.http.server.replay import MemoryReplayLog
from tests.support import V2025_06, V2025_11
from tests.transports.http_rig import Log, Site, exchange, handshake_call, make_server, serving, text_of


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
async def site(log: Log) -> AsyncIterator[Site]:
    async with serving(make_server(log)) as site:
        yield site


async def started(site: Site, session: dict[str, str], log: Log, name: str = "stream") -> tuple[str, str]:
    """A call whose stream broke off after its first message: the ids of its first two events."""
    wire = await site.call(session, handshake_call("stream", count=1, name=name))
    await wire.head()
    ids = [event.id for event in (await wire.event(), await wire.event()) if event is not None and event.id]
    wire.close()
    await asyncio.sleep(0.05)
    return ids[0], ids[1]


async def test_a_call_goes_on_when_its_client_leaves_and_its_result_can_be_fetched(site: Site, log: Log) -> None:
    """LHTTP-11, LHTTP-19."""
    session = await site.session()
    _, last = await started(site, session, log)
    log.gate.set()
    await log.until("stream ends")
    resumed = await site.listen(session, last)
    assert (await resumed.head()).streams
    assert text_of(await resumed.message()) == "stream"
    assert await resumed.event() is None


async def test_a_resumed_stream_goes_on_live(site: Site, log: Log) -> None:
    session = await site.session()
    _, last = await started(site, session, log)
    resumed = await site.listen(session, last)
    await resumed.head()
    log.gate.set()
    assert text_of(await resumed.message()) == "stream"
    assert await resumed.event() is None


async def test_what_was_missed_is_replayed_from_the_opening_event_on(site: Site, log: Log) -> None:
    """LHTTP-19."""
    session = await site.session()
    opening, _ = await started(site, session, log)
    log.gate.set()
    await log.until("stream ends")
    resumed = await site.listen(session, opening)
    await resumed.head()
    assert (await resumed.message())["params"]["message"] == "stream 0"
    assert text_of(await resumed.message()) == "stream"


async def test_a_resumption_gets_its_own_stream_and_no_other(site: Site, log: Log) -> None:
    """LHTTP-15, LHTTP-19: two calls, one of them with everything."""
    session = await site.session()
    first, _ = await started(site, session, log, "a")
    await started(site, session, log, "b")
    await site.ask(session, handshake_call("more"))
    log.gate.set()
    await log.until("a ends")
    await log.until("b ends")
    resumed = await site.listen(session, first)
    await resumed.head()
    messages = [await resumed.message(), await resumed.message()]
    assert messages[0]["params"]["message"] == "a 0"
    assert text_of(messages[1]) == "a"
    assert await resumed.event() is None


async def test_the_standing_stream_can_be_resumed_too(site: Site) -> None:
    session = await site.session()
    stream = await site.listen(session)
    await stream.head()
    opening = await stream.event()
    assert opening is not None
    assert opening.id
    stream.close()
    await asyncio.sleep(0.05)
    await site.ask(session, handshake_call("more"))
    resumed = await site.listen(session, opening.id)
    await resumed.head()
    assert (await resumed.message())["method"] == "notifications/tools/list_changed"


async def test_what_comes_while_a_slow_log_is_read_is_neither_lost_nor_doubled(
    site: Site, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is kept elsewhere takes time to read; the call goes on meanwhile."""
    reads = 0

    async def slowly(self: MemoryReplayLog, stream: int, position: int) -> list[bytes]:
        nonlocal reads
        events = await after(self, stream, position)
        reads += 1
        if reads == 1:
            log.gate.set()
            await log.until("stream ends")
            await asyncio.sleep(0.05)
        return events

    session = await site.session()
    opening, _ = await started(site, session, log)
    after = MemoryReplayLog.after
    monkeypatch.setattr(MemoryReplayLog, "after", slowly)
    resumed = await site.listen(session, opening)
    await resumed.head()
    assert (await resumed.message())["params"]["message"] == "stream 0"
    assert text_of(await resumed.message()) == "stream"
    assert await resumed.event() is None
    assert reads == 2


async def test_a_client_that_leaves_while_a_slow_log_is_read_changes_nothing(
    site: Site, log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def slowly(self: MemoryReplayLog, stream: int, position: int) -> list[bytes]:
        await left.wait()
        await asyncio.sleep(0.3)
        read.set()
        return await after(self, stream, position)

    session, left, read = await site.session(), asyncio.Event(), asyncio.Event()
    opening, _ = await started(site, session, log)
    after = MemoryReplayLog.after
    with monkeypatch.context() as slow:
        slow.setattr(MemoryReplayLog, "after", slowly)
        (await site.listen(session, opening)).close()
        left.set()
        await read.wait()
    resumed = await site.listen(session, opening)
    await resumed.head()
    assert (await resumed.message())["params"]["message"] == "stream 0"
    log.gate.set()
    assert text_of(await resumed.message()) == "stream"
    assert caplog.text == ""


async def test_a_session_that_ends_while_a_slow_log_is_read_ends_the_stream(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slowly(self: MemoryReplayLog, stream: int, position: int) -> list[bytes]:
        assert (await site.ask(session, b"", "DELETE")).status == 204
        return []

    session = await site.session()
    monkeypatch.setattr(MemoryReplayLog, "after", slowly)
    stream = await site.listen(session)
    await stream.head()
    async with asyncio.timeout(5):
        while await stream.event() is not None:
            pass


async def test_who_resumes_takes_over_from_a_connection_that_is_still_there(site: Site, log: Log) -> None:
    """A dead connection may look alive for long: the one that comes back is the one that reads."""
    session = await site.session()
    old = await site.call(session, handshake_call("stream", count=1))
    await old.head()
    await old.event()
    seen = await old.event()
    assert seen is not None
    new = await site.listen(session, seen.id)
    await new.head()
    assert await old.event() is None
    log.gate.set()
    assert text_of(await new.message()) == "stream"


async def test_what_waits_for_a_slow_client_goes_out_on_the_stream_that_goes_on_alone(site: Site, log: Log) -> None:
    """Never on two streams."""
    session, sent, reads = await site.session(), list[bytes](), asyncio.Event()

    async def send(message: Any) -> None:
        if body := message.get("body"):
            sent.append(body)
            await reads.wait()

    first = exchange(site, session, handshake_call("stream", count=3), send)
    await log.until("stream has told")
    resumed = await site.listen(session, sent[0].decode().split("id: ")[1].split()[0])
    await resumed.head()
    assert [(await resumed.message())["params"]["progress"] for _ in range(3)] == [0, 1, 2]
    reads.set()
    await first
    assert b"stream 2" not in b"".join(sent)
    log.gate.set()
    assert text_of(await resumed.message()) == "stream"


async def test_an_answer_that_overtakes_what_waits_to_be_written_is_an_event_too(log: Log) -> None:
    """So that the client can come back for it."""
    server = make_server(log)

    @server.tool
    async def hurry(ctx: Context[Any]) -> str:
        tasks.append(asyncio.create_task(ctx.report_progress(1, 2, "begun")))
        await asyncio.sleep(0)
        return "done"

    tasks: list[asyncio.Task[None]] = []
    async with serving(server) as site:
        wire = await site.call(await site.session(V2025_06), handshake_call("hurry"))
        await wire.head()
        told, answer = await wire.event(), await wire.event()
        assert told is not None
        assert answer is not None
        assert b"begun" in told.data
        assert b"done" in answer.data
        assert answer.id


async def test_unknown_and_foreign_event_ids_are_refused_in_words(site: Site, log: Log) -> None:
    """Never an empty stream: that would look like nothing was missed."""
    session, other = await site.session(), await site.session()
    _, last = await started(site, session, log)
    for headers, event_id in ((session, "unknown"), (other, last), (session, last + "9999")):
        reply = await (await site.listen(headers, event_id)).reply()
        assert reply.status == 400
        assert "Last-Event-ID" in reply.json()["error"]["message"]
    log.gate.set()


async def test_events_that_are_no_longer_kept_are_refused_in_words(log: Log) -> None:
    async with serving(make_server(log, limits=Limits(replay_events=2))) as site:
        session = await site.session()
        opening, _ = await started(site, session, log)
        log.gate.set()
        other = await site.ask(session, handshake_call("stream", count=5))
        assert other.streams
        reply = await (await site.listen(session, opening)).reply()
        assert reply.status == 400
        assert "no longer kept" in reply.json()["error"]["message"]


async def test_a_handler_may_close_its_stream_and_the_client_polls_for_the_rest(site: Site, log: Log) -> None:
    """LHTTP-09: the response ends in good order after an id and a waiting time."""
    session = await site.session()
    wire = await site.call(session, handshake_call("poll"))
    assert (await wire.head()).streams
    event = await wire.event()
    assert event is not None
    assert (event.data, event.retry) == (b"", 50)
    assert await wire.event() is None
    resumed = await site.listen(session, event.id)
    await resumed.head()
    log.gate.set()
    assert (await resumed.message())["params"]["message"] == "after"
    assert text_of(await resumed.message()) == "polled"
    assert "closed: True" in log.events


async def test_where_the_revision_knows_no_polling_the_stream_stays_open(site: Site, log: Log) -> None:
    """LHTTP-07."""
    log.gate.set()
    reply = await site.call(await site.session(V2025_06), handshake_call("poll"))
    await reply.head()
    assert (await reply.message())["params"]["message"] == "after"
    assert text_of(await reply.message()) == "polled"
    assert "closed: False" in log.events


async def test_a_client_that_left_before_it_got_an_id_delays_nothing(site: Site, log: Log) -> None:
    """The call runs to its end; what it says reaches nobody."""
    session = await site.session(V2025_11)
    wire = await site.call(session, handshake_call("wait"))
    await log.until("wait begins")
    wire.close()
    await asyncio.sleep(0.05)
    log.gate.set()
    await log.until("wait ends")
    assert (await site.ask(session, handshake_call("add", a=1, b=2))).status == 200


async def test_a_keep_alive_opens_the_stream_of_a_slow_call_with_an_id_to_resume_from(log: Log) -> None:
    """LHTTP-08."""
    async with serving(make_server(log, limits=Limits(keep_alive=0.1))) as site:
        session = await site.session()
        wire = await site.call(session, handshake_call("wait"))
        assert (await wire.head()).streams
        opening = await wire.event()
        assert opening is not None
        assert wire.comments == 1
        wire.close()
        await asyncio.sleep(0.05)
        log.gate.set()
        await log.until("wait ends")
        resumed = await site.listen(session, opening.id)
        await resumed.head()
        assert text_of(await resumed.message()) == "wait"
