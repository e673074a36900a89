"""The replay log of one session: bounded, per stream, strict about ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel import InvalidRequest, Limits
from gemel.protocol.http.sse import Decoder, Event
from gemel.transports.http.server.replay import EVENT_OVERHEAD, MemoryReplayLog, MemoryReplayStore


def new_log(events: int, size: int) -> MemoryReplayLog:
    return MemoryReplayStore(Limits(replay_events=events, replay_bytes=size)).open("session", "ann")


def event(data: bytes) -> Event:
    (found,) = Decoder().feed(data)
    return found


def texts(events: list[bytes]) -> list[bytes]:
    return [event(data).data for data in events]


def id_of(data: bytes) -> str:
    found = event(data).id
    assert found is not None
    return found


async def test_only_the_events_after_an_id_of_the_same_stream_are_replayed() -> None:
    """LHTTP-19."""
    log = new_log(100, 10_000)
    first = id_of(log.append(1, b"a"))
    log.append(2, b"other")
    log.append(1, b"b")
    assert (await log.find(first))[0] == 1
    assert texts(await log.after(*await log.find(first))) == [b"b"]


async def test_ids_are_unique_over_all_streams_and_name_their_stream() -> None:
    """LHTTP-17."""
    log = new_log(100, 10_000)
    ids = [id_of(log.append(stream, b"x")) for stream in (0, 1, 0, 2)] + [id_of(log.mark(1, 10))]
    assert len(set(ids)) == 5
    assert [(await log.find(one))[0] for one in ids] == [0, 1, 0, 2, 1]


async def test_an_opening_event_has_an_id_a_retry_time_and_no_data() -> None:
    """LHTTP-08."""
    log = new_log(100, 10_000)
    opening = event(log.mark(3, 250))
    assert (opening.data, opening.retry) == (b"", 250)
    log.append(3, b"x")
    assert texts(await log.after(*await log.find(str(opening.id)))) == [b"x"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "a.b.c",
        "..",
        "0.0.0",
        "t.1.99999999999999999999",
        "t.-1.1",
        "t.1.1.1",
        "t.1.²",
        "t.1.\uff11",
        f"t.1.{'9' * 5000}",
    ],
)
async def test_an_id_that_was_never_given_is_refused(text: str) -> None:
    """An unknown id must not look like "nothing missed"."""
    log = new_log(100, 10_000)
    given_id = id_of(log.append(1, b"x"))
    tag = given_id.split(".")[0]
    for candidate in (text, text.replace("t.", f"{tag}.")):
        with pytest.raises(InvalidRequest, match="not an event of this session"):
            await log.find(candidate)


async def test_an_id_of_another_session_is_refused_though_it_looks_alike() -> None:
    ours, theirs = new_log(100, 10_000), new_log(100, 10_000)
    ours.append(1, b"x")
    with pytest.raises(InvalidRequest):
        await ours.find(id_of(theirs.append(1, b"x")))


async def test_events_that_were_dropped_are_missed_loudly() -> None:
    log = new_log(2, 10_000)
    ids = [id_of(log.append(1, b"%d" % n)) for n in range(4)]
    assert texts(await log.after(*await log.find(ids[1]))) == [b"2", b"3"]
    with pytest.raises(InvalidRequest, match="no longer kept"):
        await log.after(*await log.find(ids[0]))


@pytest.mark.parametrize(("size", "kept"), [(199, 1), (200, 2), (250, 2), (300, 3), (99, 0)])
async def test_a_session_keeps_so_many_bytes_and_the_newest_events(size: int, kept: int) -> None:
    log = new_log(1000, size)
    ids = [id_of(log.append(1, b"%d" % number * 100)) for number in range(6)]
    assert texts(await log.after(1, 6 - kept)) == [b"%d" % number * 100 for number in range(6 - kept, 6)]
    with pytest.raises(InvalidRequest, match="no longer kept"):
        await log.after(*await log.find(ids[4 - kept]))


@pytest.mark.parametrize("events", [1, 3])
async def test_a_session_keeps_so_many_events(events: int) -> None:
    log = new_log(events, 10_000)
    for number in range(6):
        log.append(1, b"%d" % number)
    assert texts(await log.after(1, 6 - events)) == [b"%d" % number for number in range(6 - events, 6)]
    with pytest.raises(InvalidRequest, match="no longer kept"):
        await log.after(1, 5 - events)


async def test_a_chatty_stream_does_not_make_a_quiet_one_look_incomplete() -> None:
    log = new_log(3, 10_000)
    quiet = id_of(log.append(1, b"quiet"))
    for _ in range(10):
        log.append(2, b"chatty")
    log.append(1, b"late")
    assert texts(await log.after(*await log.find(quiet))) == [b"late"]


async def test_a_stream_that_ended_is_forgotten_with_its_last_event() -> None:
    log = new_log(1, 10_000)
    first = id_of(log.append(1, b"result"))
    log.end(1)
    assert (await log.find(first))[0] == 1
    log.append(2, b"pushes it out")
    with pytest.raises(InvalidRequest, match="call again"):
        await log.find(first)


async def test_a_stream_that_ends_without_events_is_forgotten_at_once() -> None:
    log = new_log(1, 10_000)
    dropped, opening = id_of(log.append(1, b"x")), id_of(log.mark(2, 10))
    log.append(3, b"pushes it out")
    for stream, event_id in ((1, dropped), (2, opening)):
        assert (await log.find(event_id))[0] == stream
        log.end(stream)
        with pytest.raises(InvalidRequest, match="call again"):
            await log.find(event_id)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=30).map(lambda data: data.hex().encode())), max_size=60),
    st.integers(1, 20),
    st.integers(1, 600),
)
async def test_whatever_is_replayed_is_the_exact_tail_of_its_stream(
    sent: list[tuple[int, bytes]], events: int, size: int
) -> None:
    """After any id, either everything that followed on that stream comes back, in order, or an error."""
    log = new_log(events, size)
    given_ids = [(stream, data, id_of(log.append(stream, data))) for stream, data in sent]
    for index, (stream, _, event_id) in enumerate(given_ids):
        expected = [data for number, data, _ in given_ids[index + 1 :] if number == stream]
        try:
            replayed = texts(await log.after(*await log.find(event_id)))
        except InvalidRequest:
            continue
        assert replayed == expected


async def test_all_logs_of_a_store_share_one_budget_and_the_oldest_event_goes_first() -> None:
    store = MemoryReplayStore(Limits(replay_total=3 * (100 + EVENT_OVERHEAD)))
    logs = [store.open("session", "ann") for _ in range(4)]
    ids = [id_of(log.append(1, b"x" * 100)) for log in logs]
    assert store.bytes == 3 * (100 + EVENT_OVERHEAD)
    assert await logs[0].find(ids[0]) == (1, 1)
    with pytest.raises(InvalidRequest, match="no longer kept"):
        await logs[0].after(1, 0)
    assert [len(await log.after(1, 0)) for log in logs[1:]] == [1, 1, 1]
    logs[2].close()
    assert store.bytes == 2 * (100 + EVENT_OVERHEAD)
    logs[0].append(1, b"y" * 100)
    assert [len(await log.after(1, 0)) for log in (logs[1], logs[3])] == [1, 1]


async def test_events_of_one_caller_push_out_none_of_callers_with_less_than_half_as_many() -> None:
    size = 100 + EVENT_OVERHEAD
    store = MemoryReplayStore(Limits(replay_total=100 * size, replay_events=1000))
    small = [store.open("session", f"caller {number}") for number in range(20)]
    for log in small:
        log.append(1, b"x" * 100)
    flood = [store.open("session", "mallory") for _ in range(20)]
    for _ in range(20):
        for log in flood:
            log.append(1, b"x" * 100)
    for log in small:
        log.append(1, b"y" * 100)
    assert store.bytes == 100 * size
    assert [len(await log.after(1, 0)) for log in small] == [2] * 20
    for log in (*small, *flood):
        log.close()
    assert store.bytes == 0


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 300)), max_size=80), st.integers(0, 5000)
)
def test_a_store_counts_what_its_logs_keep(appended: list[tuple[int, int, int]], budget: int) -> None:
    store = MemoryReplayStore(Limits(replay_total=budget, replay_events=6, replay_bytes=900))
    logs = [store.open("session", holder) for holder in ("ann", "ann", "bob", "eve", None)]
    for number, stream, size in appended:
        logs[number].append(stream, b"x" * size)
        assert store.bytes <= budget
    for log in logs:
        log.close()
    assert store.bytes == 0
