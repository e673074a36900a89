"""HTTP sessions of the handshake era that any process serves: facts, questions, cancellation and the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gemel import Limits, Principal
from gemel.backends.keys import make_key
from gemel.transports.http.server.sharing.stored_sessions import SessionKeys
from tests.support import V2025_03
from tests.transports.http_rig import Log, handshake_call, text_of
from tests.transports.sharing_rig import App, apps, call, count_operations, redis_store, request, store_url, until

__all__ = ("redis_store", "store_url")  # fixtures


@pytest.fixture
async def pair(store_url: str) -> AsyncIterator[list[App]]:
    async with apps(store_url) as served:
        yield served


async def test_calls_of_one_session_are_served_in_turn(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    for number in range(6):
        answer = await call(pair[number % 2], session, "add", number, a=number, b=1)
        assert text_of(answer) == str(number + 1)
    assert (await b.site.ask(session, request("ping"))).json()["result"] == {}


async def test_a_session_is_restored_once_for_many_requests(pair: list[App], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair
    session = await a.site.session()
    restored: list[Any] = []
    restore = type(b.store)._restore

    def counted(*args: Any) -> Any:
        restored.append(args[0])
        return restore(*args)

    monkeypatch.setattr(type(b.store), "_restore", counted)
    answers = await asyncio.gather(*(call(b, session, "add", number, a=number, b=0) for number in range(10)))
    assert [text_of(answer) for answer in answers] == [str(number) for number in range(10)]
    assert len(restored) == 1
    assert len(b.store) == 1


async def test_a_call_with_a_json_answer_does_not_touch_the_store(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    await call(b, session, "add", a=1, b=1)
    counted = [count_operations(app) for app in pair]
    for number in range(20):
        await call(pair[number % 2], session, "add", number, a=1, b=number)
    operations = [each for operations in counted for each in operations]
    assert [each for each in operations if make_key("process") not in each and make_key("inbox") not in each] == []


async def test_a_foreign_principal_gets_404_from_every_process(store_url: str) -> None:
    def authenticate(scope: Any, headers: Any) -> Any:
        return Principal(headers["x-user"])

    async with apps(store_url, authenticate=authenticate) as (a, b):
        session = await a.site.session(**{"X-User": "anna"})
        foreign = {**session, "X-User": "bob"}
        for app in (a, b):
            assert text_of(await call(app, session, "add", a=1, b=1)) == "2"
            assert (await app.site.ask(foreign, request("ping"))).status == 404
            assert (await app.site.ask(foreign, b"", "DELETE")).status == 404
            assert (await (await app.site.listen(foreign)).reply()).status == 404
        assert (await b.site.ask({**session, "Mcp-Session-Id": "x" * 43}, request("ping"))).status == 404
        assert (await b.site.ask({**session, "Mcp-Session-Id": "x"}, request("ping"))).status == 404


async def test_the_log_level_holds_in_every_process_when_it_is_answered(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    await call(b, session, "add", a=1, b=1)
    for setter, other in ((a, b), (b, a)):
        for level, expected in (("error", 0), ("debug", 1)):
            assert (await setter.site.ask(session, request("logging/setLevel", level=level))).json()["result"] == {}
            wire = await other.site.call(session, handshake_call("tell", text="hello"))
            head = await wire.head()
            logged = 0
            while head.streams and (message := await wire.message()) is not None:
                logged += message.get("method") == "notifications/message"
            assert logged == expected


async def test_a_question_is_answered_through_another_process(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    wire = await a.site.call(session, handshake_call("ask"))
    await wire.head()
    question = await wire.message()
    assert question["method"] == "roots/list"
    progress = {"progressToken": question["id"], "progress": 1}
    note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}
    assert (await b.site.ask(session, note)).status == 202
    answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "file:///x"}]}}
    assert (await b.site.ask(session, answer)).status == 202
    assert text_of(await wire.message()) == "file:///x"


async def test_a_question_waits_for_no_handshake_that_ended_in_another_process(
    pair: list[App], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gemel.session.INITIALIZED_SECONDS", 3600.0)
    a, b = pair
    session = await a.site.begin_session()
    done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await b.site.ask(session, done)).status == 202
    wire = await a.site.call(session, handshake_call("ask"))
    await wire.head()
    assert (await wire.message())["method"] == "roots/list"


async def test_a_question_is_refused_through_another_process(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    wire = await a.site.call(session, handshake_call("ask"))
    await wire.head()
    question = await wire.message()
    refusal = {"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}}
    assert (await b.site.ask(session, refusal)).status == 202
    assert "no" in json.dumps(await wire.message())


async def test_a_malformed_answer_fails_the_question_in_its_process(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    wire = await a.site.call(session, handshake_call("ask"))
    await wire.head()
    question = await wire.message()
    assert (await b.site.ask(session, {"jsonrpc": "2.0", "id": question["id"], "result": 1, "error": 2})).status == 400
    assert (await wire.message())["result"]["isError"]


async def test_answers_to_nobody_are_accepted_and_nothing_happens(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    for request_id in ("nobody-1.1", "x", 7, f"{a.store._mailbox.name}-9.1", "." * 70):
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "result": {}}
        assert (await b.site.ask(session, answer)).status == 202
        assert (await a.site.ask(session, answer)).status == 202
    assert text_of(await call(a, session, "add", a=1, b=1)) == "2"


async def test_a_batch_with_answers_for_another_process_is_taken_apart(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session(V2025_03)
    wire = await a.site.call(session, handshake_call("ask"))
    await wire.head()
    question = await wire.message()
    answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "file:///x"}]}}
    reply = await b.site.ask({**session, "Accept": "application/json"}, [answer, request("ping", 5)])
    assert [each["id"] for each in reply.json()] == [5]
    assert text_of(await wire.message()) == "file:///x"


async def test_a_cancellation_reaches_the_process_that_runs_the_call(
    pair: list[App], caplog: pytest.LogCaptureFixture
) -> None:
    a, b = pair
    session = await a.site.session()
    wire = await a.site.call(session, handshake_call("wait", 17))
    await a.log.until("wait begins")
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 17}}
    assert (await b.site.ask(session, note)).status == 202
    await a.log.until("wait is cancelled")
    assert "could not be handled" not in caplog.text
    wire.close()


async def test_delete_ends_the_session_everywhere(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    stream = await a.site.listen(session)
    await stream.head()
    wire = await a.site.call(session, handshake_call("wait", 17))
    await a.log.until("wait begins")
    assert (await b.site.ask(session, b"", "DELETE")).status == 204
    answer = (await wire.reply()).json()
    assert answer["id"] == 17
    assert answer["error"]["code"] == 504
    await a.log.until("wait is cancelled")
    while await stream.event() is not None:
        pass
    for app in (a, b):
        assert (await app.site.ask(session, request("ping"))).status == 404
        assert len(app.store) == 0


async def test_idle_sessions_expire_in_the_store(store_url: str) -> None:
    async with apps(store_url, limits=Limits(session_idle=2.0)) as (a, b):
        session = await a.site.session()
        await call(b, session, "add", a=1, b=1)
        for _ in range(12):  # its use here keeps it alive there
            await asyncio.sleep(0.3)
            assert (await b.site.ask(session, request("ping"))).status == 200
        assert (await a.site.ask(session, request("ping"))).status == 200
        await asyncio.sleep(3.5)
        assert (await a.site.ask(session, request("ping"))).status == 404
        assert (await b.site.ask(session, request("ping"))).status == 404


async def test_a_session_lives_on_in_the_store_while_a_call_of_it_runs(store_url: str) -> None:
    async with apps(store_url, limits=Limits(session_idle=1.2)) as (a, b):
        busy = await a.site.session()
        wire = await a.site.call(busy, handshake_call("wait", 7))
        await a.log.until("wait begins")
        for _ in range(2):  # as long as two sessions, one after the other, that nobody uses
            unused = await a.site.session()
            record = SessionKeys("rig", unused["Mcp-Session-Id"], None).record
            while await b.server.backend.get(record) is not None:  # noqa: ASYNC110 - not signalled
                await asyncio.sleep(0.05)
        assert (await b.site.ask(busy, request("ping"))).status == 200
        a.log.gate.set()
        assert text_of((await wire.reply()).json()) == "wait"


async def test_there_are_no_more_sessions_than_the_limit(store_url: str) -> None:
    async with apps(store_url, limits=Limits(sessions=2)) as (a, b):
        sessions = [await (a, a, a, b)[at].site.session() for at in range(4)]
        assert len(a.store) == 2
        for app in (a, b):
            for session in sessions:  # each makes room for the next one
                assert text_of(await call(app, session, "add", a=1, b=1)) == "2"
            assert len(app.store) == 2


async def test_a_changed_record_is_refused(pair: list[App]) -> None:
    a, b = pair
    session, other = await a.site.session(), await a.site.session()
    keys = [SessionKeys("rig", each["Mcp-Session-Id"], None) for each in (session, other)]
    backend = a.server.backend
    box = await backend.get(keys[0].record)
    assert box is not None
    assert session["Mcp-Session-Id"].encode() not in box
    assert b"rig" not in box
    await backend.set(keys[0].record, box[:-1] + bytes((box[-1] ^ 1,)))
    assert (await b.site.ask(session, request("ping"))).status == 404
    await backend.set(keys[1].record, box)
    assert (await b.site.ask(other, request("ping"))).status == 404


async def test_a_record_of_another_version_waits_for_a_process_of_that_version(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    keys = SessionKeys("rig", session["Mcp-Session-Id"], None)
    box = await a.server.backend.get(keys.record)
    assert box is not None
    await a.server.backend.set(keys.record, b"\x63" + box[1:])
    reply = await b.site.ask(session, request("ping"))
    assert reply.status == 503
    assert int(reply.headers["retry-after"]) >= 1


async def test_a_stopping_process_hands_its_sessions_over(store_url: str) -> None:
    log = Log()
    async with apps(store_url, log=log) as (a, b):
        session = await a.site.session()
        stream = await a.site.listen(session)
        await stream.head()
        running = await a.site.call(session, handshake_call("wait", 5))
        await log.until("wait begins")
        assert a.site.app is not None
        stopping = asyncio.ensure_future(a.site.app.stop())
        while await stream.event() is not None:
            pass
        reopened = await b.site.listen(session)
        assert (await reopened.head()).status == 200
        log.gate.set()
        assert text_of((await running.reply()).json()) == "wait"
        await stopping
        assert text_of(await call(b, session, "add", a=1, b=1)) == "2"
        await call(b, session, "more")
        methods = set()
        while "notifications/tools/list_changed" not in methods:
            methods.add((await reopened.message())["method"])


async def test_what_was_lost_between_processes_is_looked_up_again(pair: list[App]) -> None:
    a, b = pair
    session = await a.site.session()
    await call(b, session, "add", a=1, b=1)
    b.store._distrust()
    keys = SessionKeys("rig", session["Mcp-Session-Id"], None)
    await a.server.backend.delete(keys.record)
    assert (await b.site.ask(session, request("ping"))).status == 404
    await until(lambda: len(b.store) == 0)
