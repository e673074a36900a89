"""The journal of `gemel dev`: bounded, numbered, and readable from any number on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gemel import Context, Server
from gemel.dev.journal import EventJournal
from tests.dev.program import Program, inspecting, target_of


def events_of(journal: EventJournal, after: int = 0) -> list[dict[str, Any]]:
    return [json.loads(event.data) for event in journal.after(after)]


def test_events_are_numbered_from_one() -> None:
    journal = EventJournal()
    assert [journal.add("note", {"text": str(index)}) for index in range(3)] == [1, 2, 3]
    assert [(event["n"], event["kind"], event["text"]) for event in events_of(journal, 1)] == [
        (2, "note", "1"),
        (3, "note", "2"),
    ]
    assert journal.next == 4


def test_the_oldest_are_dropped_and_readers_told_how_many() -> None:
    journal = EventJournal(max_events=10)
    for index in range(10_000):
        journal.add("note", {"text": index})
    assert journal.first == 9991
    assert len(journal) == 10
    events = events_of(journal, 100)
    assert events[0] == {"kind": "lost", "count": 9890}
    assert [event["n"] for event in events[1:]] == list(range(9991, 10_001))
    assert journal.get(9990) is None
    assert journal.get(9991) is not None
    assert journal.get(10_001) is None


def test_bytes_are_bounded_too() -> None:
    journal = EventJournal(max_bytes=10_000)
    for _ in range(100):
        journal.add("message", {"text": "x" * 1000}, message=b"y" * 1000)
    assert 1 <= len(journal) <= 5
    journal.add("message", {}, message=b"z" * 20_000)
    assert len(journal) == 1


def test_the_present_state_outlives_what_is_dropped() -> None:
    journal = EventJournal(max_events=3)
    journal.add("connection", {"state": "connecting"}, key="a")
    journal.add("connection", {"state": "ready"}, key="a")
    journal.add("offers", {}, key="b")
    for _ in range(5):
        journal.add("note", {})
    events = events_of(journal)
    assert events[0] == {"kind": "lost", "count": 3}
    assert [(event["n"], event["kind"]) for event in events[1:3]] == [(2, "connection"), (3, "offers")]
    assert [event["n"] for event in events[3:]] == [6, 7, 8]
    journal.clear()
    assert [event["kind"] for event in events_of(journal)] == ["lost", "connection", "offers"]
    journal.forget("b")
    assert [event["kind"] for event in events_of(journal)] == ["lost", "connection"]


@pytest.fixture
async def program() -> AsyncIterator[Program]:
    server = Server("shop")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def wait(ctx: Context) -> str:
        await ctx.report_progress(1, 2)
        await asyncio.Event().wait()
        return ""

    async with inspecting(target_of(server)) as program:
        await program.ready()
        yield program


async def test_a_stream_goes_on_where_the_last_one_ended(program: Program) -> None:
    numbers = [event["n"] for event in program.seen]
    assert numbers == list(range(1, len(numbers) + 1))
    stream = program.stream(after=1, headers={"Last-Event-ID": "4"})
    assert (await anext(stream))["n"] == 5
    await stream.aclose()
    stream = program.stream(after=2)
    assert (await anext(stream))["n"] == 3
    await stream.aclose()


async def test_events_without_waiting_are_one_array(program: Program) -> None:
    reply = await program.get("/api/events?after=2&wait=0")
    assert reply.headers["content-type"] == "application/json"
    assert reply.json[0]["n"] == 3
    assert all(event["at"] > 1_600_000_000_000 for event in reply.json)
    last = reply.json[-1]["n"]
    assert (await program.get(f"/api/events?after={last}&wait=0")).json == []


async def test_clearing_keeps_the_present_state(program: Program) -> None:
    await program.result("2025", "tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}})
    await program.do("clear")
    events = (await program.get("/api/events?wait=0")).json
    assert events[0]["kind"] == "lost"
    assert {event["kind"] for event in events[1:]} >= {"connection", "offers"}
    assert not {"message", "call"} & {event["kind"] for event in events}


async def test_an_open_call_outlives_what_is_dropped(program: Program) -> None:
    call = await program.call("2025", "tools/call", {"name": "wait"}, id="mine")
    await program.event("call", call=call, progress={"progress": 1, "total": 2})
    await program.do("clear")
    (shown,) = [event for event in (await program.get("/api/events?wait=0")).json if event["kind"] == "call"]
    assert shown["method"] == "tools/call"
    assert shown["params"] == {"name": "wait"}
    assert shown["id"] == "mine"
    assert shown["state"] == "running"
    await program.do("cancel", call=call)
    await program.ended(call)
    await program.do("clear")
    assert not [event for event in (await program.get("/api/events?wait=0")).json if event["kind"] == "call"]


async def test_messages_that_are_dropped_are_not_found(program: Program) -> None:
    message = await program.event("message")
    assert (await program.get(f"/api/messages/{message['n']}")).json == message["data"]
    await program.do("clear")
    assert (await program.get(f"/api/messages/{message['n']}")).status == 404
    for path in ("/api/messages/0", "/api/messages/999999", "/api/messages/x", "/api/messages/"):
        assert (await program.get(path)).status == 404


async def test_only_messages_are_fetched_as_messages(program: Program) -> None:
    other = await program.event("connection", state="ready")
    assert (await program.get(f"/api/messages/{other['n']}")).status == 404
    assert (await program.get(f"/api/messages/{'9' * 5000}")).status == 404
    assert (await program.get(f"/api/events?wait=0&after={'9' * 5000}")).json[0]["n"] == 1
