"""Hostile requests against HTTP sessions that several processes serve: forged ids, foreign events, races, answers to nobody.

After each of them the session of an honest client is served by every process, and no other one exists.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gemel import Changed, Limits, Principal
from gemel.backends.base import Backend
from gemel.backends.keys import make_key
from tests.transports.http_rig import JSON_HEADERS, handshake_call, initialize, text_of
from tests.transports.sharing_rig import App, apps, call, redis_store, request, store_url, until

__all__ = ("redis_store", "store_url")  # fixtures

HUGE = "9" * 15


def who(scope: Any, headers: Any) -> Principal:
    return Principal(headers.get("x-user", "anna"))


@pytest.fixture
async def pair(store_url: str) -> AsyncIterator[list[App]]:
    async with apps(store_url, authenticate=who) as served:
        yield served


async def is_served(pair: list[App], session: dict[str, str]) -> None:
    """Every process serves a session."""
    for app in pair:
        assert text_of(await call(app, session, "add", a=1, b=1)) == "2"


def record_operations(backend: Backend) -> Counter[str]:
    """Count what a backend is asked to do, signs of life and inboxes left out."""
    operations: Counter[str] = Counter()
    for name in ("get", "set", "replace", "touch", "append", "read", "end_of", "delete", "claim"):
        method = getattr(backend, name)

        def counted(key: str, *args: Any, method: Any = method, name: str = name, **options: Any) -> Any:
            if not key.startswith((make_key("process"), make_key("inbox"))):
                operations[name] += 1
            return method(key, *args, **options)

        setattr(backend, name, counted)
    return operations


# ---------------------------------------------------------------- ids of sessions

#: What stands in place of the id of a session, made of a real one; nothing of it is one.
FORGED = {
    "unknown": lambda real: "x" * 43,
    "short": lambda real: "x",
    "empty": lambda real: "",
    "one character more": lambda real: real + "A",
    "one character less": lambda real: real[:-1],
    "another case": lambda real: real.swapcase(),
    "the name of its record": lambda real: make_key("session", real),
    "a path": lambda real: "../" * 20 + real,
    "a wildcard": lambda real: "*" * 43,
    "two ids": lambda real: f"{real}, {real}",
    "not ASCII": lambda real: "é" * 43,
    "long": lambda real: real * 200,
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
async def test_a_forged_id_finds_no_session(pair: list[App], forge: Any) -> None:
    """It is answered alike for every method and process, and stores nothing."""
    session = await pair[0].site.session()
    forged = {**session, "Mcp-Session-Id": forge(session["Mcp-Session-Id"])}
    for app in pair:
        operations = record_operations(app.server.backend)
        statuses = {
            (await app.site.ask(forged, request("ping"))).status,
            (await app.site.ask(forged, {"jsonrpc": "2.0", "id": 1, "result": {}})).status,
            (await app.site.ask(forged, b"", "DELETE")).status,
            (await (await app.site.listen(forged)).reply()).status,
            (await (await app.site.listen(forged, "a.s.1.b.1")).reply()).status,
        }
        assert statuses <= {400, 404}
        assert len(statuses) == 1
        assert set(operations) <= {"get"}
        assert operations["get"] <= 5
    assert len(pair[0].store) + len(pair[1].store) == 1
    await is_served(pair, session)


async def test_an_id_can_not_be_chosen(pair: list[App]) -> None:
    """A handshake that names a session opens another one."""
    for named in ("x" * 43, (await pair[0].site.session())["Mcp-Session-Id"]):
        reply = await pair[1].site.ask({**JSON_HEADERS, "Mcp-Session-Id": named}, initialize())
        assert reply.status in (200, 400, 404)
        assert reply.headers.get("mcp-session-id") != named


async def test_a_second_handshake_opens_another_session_and_leaves_the_first(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    for app in (b, a):
        reply = await app.site.ask(session, initialize("2024-11-05"))
        assert reply.json()["result"]["protocolVersion"] == "2024-11-05"
        assert reply.headers["mcp-session-id"] != session["Mcp-Session-Id"]
    await is_served(pair, session)


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_a_foreign_principal_learns_nothing_from_another_process(pair: list[App], method: str) -> None:
    """Not even that the session exists: the answer is that to an unknown id."""
    a, b = pair
    session = await a.site.session()
    await is_served(pair, session)
    foreign = {**session, "X-User": "mallory", **({"Accept": "text/event-stream"} if method == "GET" else {})}
    unknown = {**foreign, "Mcp-Session-Id": "x" * 43}
    for app in pair:
        replies = [await app.site.ask(headers, request("ping"), method) for headers in (foreign, unknown)]
        assert [reply.status for reply in replies] == [404, 404]
        assert replies[0].body == replies[1].body
    question = await a.site.call(session, handshake_call("ask"))
    await question.head()
    asked = await question.message()
    stolen = {"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": [{"uri": "file:///stolen"}]}}
    assert (await b.site.ask(foreign, stolen)).status == 404
    other = await b.site.session(
        **{"X-User": "mallory"}
    )  # who has a session of their own names the foreign question there
    assert (await b.site.ask(other, stolen)).status == 202
    own = {"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": [{"uri": "file:///mine"}]}}
    assert (await b.site.ask(session, own)).status == 202
    assert text_of(await question.message()) == "file:///mine"


# ---------------------------------------------------------------- ids of events

#: Made of the tag of the session, its writer and the name of its process.
EVENTS = {
    "empty parts": lambda tag, writer, process: "...",
    "no such writer": lambda tag, writer, process: f"{tag}.{'a' * 16}-1.1.1",
    "a huge number": lambda tag, writer, process: f"{tag}.{writer}.0.{HUGE}",
    "a huge stream": lambda tag, writer, process: f"{tag}.{writer}.{HUGE}.1",
    "beyond 64 bits": lambda tag, writer, process: f"{tag}.{writer}.{HUGE * 4}.1",
    "a negative number": lambda tag, writer, process: f"{tag}.{writer}.-1.-1",
    "another key": lambda tag, writer, process: f"{tag}.../inbox:{process}.1.1",
    "a wildcard": lambda tag, writer, process: f"{tag}.*.1.1",
    "digits of another script": lambda tag, writer, process: f"{tag}.{writer}.².¹",
    "long": lambda tag, writer, process: f"{tag}.{writer}.1." + "1" * 20_000,
    "the tag of another session": lambda tag, writer, process: f"{tag[::-1]}x.{writer}.1.1",
    "standing, the tag of another session": lambda tag, writer, process: f"{tag}x.s.0.{process}.0",
    "standing, a negative position": lambda tag, writer, process: f"{tag}.s.-5.{process}.0",
    "standing, no numbers": lambda tag, writer, process: f"{tag}.s.x.{process}.y",
    "standing, too few parts": lambda tag, writer, process: f"{tag}.s",
}
#: Those that are a place in the stream, though none that the client was given: it is told at least what is new.
PLACES = {
    "a position that is not there": lambda tag, writer, process: f"{tag}.s.{HUGE}.{process}.0",
    "changes that are not there": lambda tag, writer, process: f"{tag}.s.0.{process}.{HUGE}",
    "a process that is not there": lambda tag, writer, process: f"{tag}.s.0.{'f' * 16}.0",
    "a process with a strange name": lambda tag, writer, process: f"{tag}.s.0.*/~:{'x' * 300}.0",
    "no process": lambda tag, writer, process: f"{tag}.s.0..0",
    "changes before all": lambda tag, writer, process: f"{tag}.s.0.{process}.-999",
}


@pytest.mark.parametrize("forge", EVENTS.values(), ids=EVENTS)
async def test_a_forged_event_is_refused_by_every_process(pair: list[App], forge: Any) -> None:
    session = await pair[0].site.session()
    await is_served(pair, session)
    own = pair[0].session(session)
    for app in pair:
        event_id = forge(own.keys.tag, own.writer, pair[0].store._mailbox.name)
        async with asyncio.timeout(10):
            assert (await (await app.site.listen(session, event_id)).head()).status in (400, 431)
    await is_served(pair, session)


@pytest.mark.parametrize("forge", PLACES.values(), ids=PLACES)
async def test_a_stream_from_a_place_that_never_was_tells_what_is_new(pair: list[App], forge: Any) -> None:
    session = await pair[0].site.session()
    await is_served(pair, session)
    own = pair[0].session(session)
    event_id = forge(own.keys.tag, own.writer, pair[0].store._mailbox.name)
    for app in pair:
        stream = await app.site.listen(session, event_id)
        assert (await stream.head()).status == 200
        await until(lambda app=app: app.session(session).reads and app.session(session).standing._since is None)
        for other in pair:
            other.server.notify(Changed("tools"))
            while (await stream.message())["method"] != "notifications/tools/list_changed":
                pass
        stream.close()
    await is_served(pair, session)


async def test_an_event_of_another_session_is_refused(pair: list[App]) -> None:
    """Also if both sessions belong to one principal."""
    a, b = pair
    session, other = await a.site.session(), await a.site.session()
    wire = await a.site.call(session, handshake_call("stream", 9, count=2))
    await wire.head()
    events = [await wire.event() for _ in range(3)]
    ids = [event.id for event in events if event is not None and event.id]
    stream = await a.site.listen(session)
    await stream.head()
    first = await stream.event()
    assert first is not None
    for event_id in filter(None, (*ids, first.id)):
        for app in pair:
            assert (await (await app.site.listen(other, event_id)).head()).status == 400
    a.log.gate.set()
    b.log.gate.set()


# ---------------------------------------------------------------- races


async def test_of_many_deletes_in_all_processes_none_leaves_a_session(pair: list[App]) -> None:
    """While calls and streams of it arrive everywhere: each gets its answer, or that the session is gone."""
    for _ in range(3):
        session = await pair[0].site.session()
        await is_served(pair, session)
        async with asyncio.timeout(60):
            replies = await asyncio.gather(
                *(app.site.ask(session, b"", "DELETE") for app in pair * 5),
                *(
                    app.site.ask(session, handshake_call("add", number, a=1, b=1))
                    for number in range(10)
                    for app in pair
                ),
                *(app.site.ask(session, request("logging/setLevel", level="error")) for app in pair * 5),
            )
        assert {reply.status for reply in replies[:10]} <= {204, 404}
        assert {reply.status for reply in replies[10:]} <= {200, 404, 503}
        for app in pair:
            assert (await app.site.ask(session, request("ping"))).status == 404
            assert len(app.store) == 0


async def test_of_many_gets_in_all_processes_one_carries_the_stream(pair: list[App]) -> None:
    session = await pair[0].site.session()
    await is_served(pair, session)
    async with asyncio.timeout(60):
        streams = await asyncio.gather(*(app.site.listen(session) for app in pair * 8))
        statuses = Counter([(await stream.head()).status for stream in streams])
    assert statuses[200] >= 1
    assert set(statuses) <= {200, 409}
    assert sum(app.session(session).reads for app in pair) == 1
    await is_served(pair, session)


async def test_of_many_resumed_gets_the_last_one_carries_the_stream(pair: list[App]) -> None:
    session = await pair[0].site.session()
    await is_served(pair, session)
    own = pair[0].session(session)
    place = f"{own.keys.tag}.s.0.{pair[0].store._mailbox.name}.0"
    async with asyncio.timeout(60):
        streams = await asyncio.gather(*(app.site.listen(session, place) for app in pair * 8))
        assert {(await stream.head()).status for stream in streams} == {200}
    await until(lambda: sum(app.session(session).reads for app in pair) == 1)
    record = await pair[0].store.update(own, lambda record: False)
    assert record.opened == len(streams)  # each was the carrier once, none took the turn of another
    await is_served(pair, session)


async def test_subscriptions_through_all_processes_have_one_limit(store_url: str) -> None:
    async with apps(store_url, limits=Limits(watched=10)) as pair:
        session = await pair[0].site.session()
        await is_served(pair, session)
        async with asyncio.timeout(60):
            replies = await asyncio.gather(
                *(
                    pair[number % 2].site.ask(session, request("resources/subscribe", number, uri=f"note://{number}"))
                    for number in range(30)
                )
            )
        accepted = sum("result" in reply.json() for reply in replies)
        record = pair[0].session(session)
        stored = await pair[0].store.update(record, lambda record: False)
        assert len(stored.uris) == accepted == 10
        await is_served(pair, session)


async def test_what_is_remembered_of_a_session_has_a_limit(pair: list[App]) -> None:
    session = await pair[0].site.session()
    replies = [
        await pair[number % 2].site.ask(session, request("resources/subscribe", uri=f"note://{number}/{'x' * 100_000}"))
        for number in range(12)
    ]
    assert "error" in replies[-1].json()
    await is_served(pair, session)


# ---------------------------------------------------------------- answers to nobody


async def test_answers_to_nobody_reach_no_other_process(pair: list[App]) -> None:
    """Whoever knows the name of a process can't fill its inbox: it takes each answer before the next one is accepted."""
    a, b = pair
    session, other = await a.site.session(), await b.site.session()
    process, writer = a.store._mailbox.name, a.session(session).writer
    posted: list[str] = []
    post = b.store._mailbox._post

    async def counted(process: str, mail: Any) -> None:
        posted.append(process)
        await post(process, mail)

    b.store._mailbox._post = counted  # type: ignore[method-assign]  # counts
    for request_id in (f"{writer}.1", f"{process}-99.1", f"{process}.1", "inbox:x.1", "../x.1", f"{'f' * 16}-1.1"):
        for body in (
            {"jsonrpc": "2.0", "id": request_id, "result": {}},
            {"jsonrpc": "2.0", "id": request_id, "error": {"code": 1, "message": "x"}},
            {
                "jsonrpc": "2.0",
                "method": "notifications/progress",
                "params": {"progressToken": request_id, "progress": 1},
            },
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}},
        ):
            unknown = request_id.startswith("ffff") and "cancelled" not in body.get("method", "")
            assert (await b.site.ask(other, body)).status == (503 if unknown else 202), body
    assert set(posted) <= {process}
    await is_served(pair, session)


@pytest.mark.long
async def test_ten_thousand_answers_to_a_process_that_died_are_bounded(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    await is_served(pair, session)
    writer, dead = a.session(session).writer, a.store._mailbox.name
    await a.store._mailbox.close()  # it reads nothing more and gives no sign of life
    await a.server.backend.delete(make_key("process", dead))
    answer = {"jsonrpc": "2.0", "id": f"{writer}.1", "result": {"roots": [], "_meta": {"x": "y" * 2000}}}
    statuses: Counter[int] = Counter()

    async def send(wire: Any, count: int) -> None:
        for _ in range(count):
            await wire.send("POST", {**session, "Connection": "keep-alive"}, encoded)
            statuses[(await wire.reply()).status] += 1

    encoded = json.dumps(answer).encode()
    wires = [await b.site.open() for _ in range(10)]
    await asyncio.gather(*(send(wire, 1000) for wire in wires))
    assert set(statuses) <= {202, 503}
    entries = await b.server.backend.read(make_key("inbox", dead), most=20_000)
    assert len(entries) <= 10_000
    assert sum(len(entry) for _, entry in entries) <= 9 << 20
    assert text_of(await call(b, session, "add", a=1, b=1)) == "2"
