"""Shared sessions when processes are killed, and when their store is gone."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gemel.backends import MemoryBackend
from gemel.backends.keys import make_key
from gemel.backends.redis import RedisBackend
from gemel.errors import GemelError
from gemel.transports.http.server.sharing.mailbox import Mail, Mailbox
from tests.backends.redis_server import RedisServer, needs_redis
from tests.transports.http_rig import Site, handshake_call, process, text_of
from tests.transports.sharing_rig import App, apps, call, redis_store, request, store_url, until

__all__ = ("redis_store", "store_url")  # fixtures

PROGRAM = """
import gemel.transports.http.server.sharing.mailbox as mailbox
mailbox.BEAT, mailbox.ALIVE = 0.2, 1.5
from tests.transports.http_rig import Log
from tests.transports.sharing_rig import make_shared_server

make_shared_server(Log(), "sqlite:///shared.db").run("http", port=0, workers={workers})
"""


@asynccontextmanager
async def processes(
    directory: Path, count: int, workers: int = 1, *, program: str = PROGRAM
) -> AsyncIterator[list[tuple[Site, int]]]:
    """Real processes on one store: where they serve, and their ids."""
    async with AsyncExitStack() as stack:
        served: list[tuple[Site, int]] = []
        for _ in range(count):
            running = await stack.enter_async_context(process(directory, program.replace("{workers}", str(workers))))
            assert running.stderr is not None
            async with asyncio.timeout(30):
                while "http://" not in (line := (await running.stderr.readline()).decode()):
                    assert line
            site = Site(int(line.rsplit(":", 1)[1].split("/")[0]))
            stack.callback(site.close)
            served.append((site, running.pid))
        yield served


async def test_the_call_of_a_process_that_was_killed_ends_once_with_an_unknown_outcome(tmp_path: Path) -> None:
    async with processes(tmp_path, 2) as ((a, pid), (b, _)):
        session = await a.session()
        wire = await a.call(session, handshake_call("stream", 9, count=20))
        await wire.head()
        events = [await wire.event() for _ in range(21)]
        first = next(event.id for event in events if event is not None and event.data)
        assert first is not None
        await asyncio.sleep(0.3)  # events are written behind
        os.kill(pid, signal.SIGKILL)
        streams = [await b.listen(session, first) for _ in range(3)]
        for stream in streams:
            assert (await stream.head()).status == 200
        for stream in [*streams, await b.listen(session, first)]:
            if stream not in streams:
                await stream.head()
            messages = []
            while (message := await stream.message()) is not None:
                messages.append(message)
            *told, answer = messages
            assert [each["params"]["message"] for each in told] == [f"stream {number}" for number in range(1, 20)]
            assert (answer["id"], answer["error"]["code"]) == (9, 504)
            assert "unknown" in answer["error"]["message"]


@pytest.mark.parametrize("written", [0, 1, 3])
async def test_a_call_ends_though_its_process_was_killed_before_its_events_were_written(
    tmp_path: Path, written: int
) -> None:
    """They are written behind, and a store may be slow: whatever its client has seen of the stream, the call ends once."""
    program = f"""
import asyncio
from gemel.transports.http.server.sharing.events import LogWriter
append = LogWriter._append

async def append_some(self, batch, most):
    await append(self, batch[:{written}], most)
    await asyncio.sleep(3600)

LogWriter._append = append_some if {written} else lambda *_: asyncio.sleep(3600)
"""
    async with processes(tmp_path, 2, program=program + PROGRAM) as ((a, pid), (b, _)):
        session = await a.session()
        wire = await a.call(session, handshake_call("stream", "nine", count=20))
        await wire.head()
        ids = [event.id for event in [await wire.event() for _ in range(21)] if event is not None and event.id]
        os.kill(pid, signal.SIGKILL)
        for _ in range(2):  # the first to come back ends the stream; the answer may be lost on the way
            for last in (ids[0], ids[-1]):
                resumed = await b.listen(session, last)
                assert (await resumed.head()).status == 200
                messages = []
                while (message := await resumed.message()) is not None:
                    messages.append(message)
                assert (messages[-1]["id"], messages[-1]["error"]["code"]) == ("nine", 504)
                assert len(messages) <= max(1, written)


async def test_another_process_takes_the_stream_of_one_that_was_killed(tmp_path: Path) -> None:
    async with processes(tmp_path, 2) as ((a, pid), (b, _)):
        session = await a.session()
        stream = await a.listen(session)
        assert (await stream.head()).status == 200
        os.kill(pid, signal.SIGKILL)
        reopened = await b.listen(session)
        async with asyncio.timeout(20):
            assert (await reopened.head()).status == 200
        done = await b.ask(session, handshake_call("announce", text="after"))
        assert text_of(done.json()) == "announced"
        texts: list[str] = []
        while "after" not in texts:
            texts.append((await reopened.message()).get("params", {}).get("data", ""))


@pytest.mark.parametrize("reads", [True, False])
async def test_a_change_is_told_though_its_process_and_that_of_the_stream_were_killed(
    tmp_path: Path, reads: bool
) -> None:
    """Whether the first stream had told it or not, the one that resumes it does: the client may not have received it."""
    async with processes(tmp_path, 2) as ((a, pid), (b, _)):
        session = await a.session()
        await a.ask(session, request("resources/subscribe", uri="note://x"))
        stream = await a.listen(session)
        assert (await stream.head()).status == 200
        first = await stream.event()
        assert first is not None
        assert text_of((await a.ask(session, handshake_call("touch", uri="note://x"))).json()) == "touched"
        if reads:
            assert (await stream.message())["method"] == "notifications/resources/updated"
        os.kill(pid, signal.SIGKILL)
        resumed = await b.listen(session, first.id)
        assert (await resumed.head()).status == 200
        while (await resumed.message())["method"] != "notifications/resources/updated":
            pass


async def test_an_answer_to_a_process_that_was_killed_is_accepted(tmp_path: Path) -> None:
    async with processes(tmp_path, 2) as ((a, pid), (b, _)):
        session = await a.session()
        wire = await a.call(session, handshake_call("ask"))
        await wire.head()
        question = await wire.message()
        os.kill(pid, signal.SIGKILL)
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}}
        async with asyncio.timeout(20):
            while (status := (await b.ask(session, answer)).status) != 202:
                assert status == 503  # as long as it may only have been silent
        assert (await b.ask(session, request("ping"))).json()["result"] == {}


async def test_workers_of_one_server_share_its_sessions(tmp_path: Path) -> None:
    async with processes(tmp_path, 1, workers=3) as ((site, _),):
        sessions = [await site.session() for _ in range(3)]
        for number in range(30):
            answer = await site.ask(sessions[number % 3], handshake_call("add", number, a=number, b=0))
            assert text_of(answer.json()) == str(number)


@needs_redis
@pytest.mark.parametrize(("leave", "come_back"), [("kill", "start"), ("pause", "resume")])
async def test_calls_go_on_while_the_store_is_away_and_listeners_get_what_they_missed(
    redis_store: RedisServer, leave: str, come_back: str
) -> None:
    """It refuses connections, or it hangs."""
    async with apps(redis_store.url) as (a, b):
        session = await a.site.session()
        stream = await b.site.listen(session)
        await stream.head()
        await until(lambda: b.session(session).standing._since is None)
        asking = await a.site.call(session, handshake_call("ask"))
        await asking.head()
        question = await asking.message()
        await asyncio.to_thread(getattr(redis_store, leave))
        for app in (a, b):
            assert text_of(await call(app, session, "add", a=1, b=1)) == "2"
        await call(a, session, "announce", text="meanwhile")
        await call(a, session, "more")
        await refused(a, session, question)
        await asyncio.to_thread(getattr(redis_store, come_back))
        methods: set[str] = set()
        while not {"notifications/message", "notifications/tools/list_changed"} <= methods:
            methods.add((await stream.message())["method"])
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "file:///x"}]}}
        async with asyncio.timeout(20):
            while (await b.site.ask(session, answer)).status != 202:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.1)
        assert text_of(await asking.message()) == "file:///x"


async def refused(a: App, session: dict[str, str], question: dict[str, str]) -> None:
    """What needs the store says when to try again."""
    from tests.transports.http_rig import JSON_HEADERS, initialize

    answer = {"jsonrpc": "2.0", "id": "0123456789abcdef-1.1", "result": {}}
    for headers, body in (
        (JSON_HEADERS, initialize()),
        ({**session, "Mcp-Session-Id": "x" * 43}, request("ping")),
        (session, request("logging/setLevel", level="error")),
        (session, answer),
    ):
        reply = await a.site.ask({**headers, "Accept": "application/json"}, body)
        assert reply.status == 503, body
        assert int(reply.headers["retry-after"]) >= 1


async def test_a_process_that_stops_before_it_replies_is_quiet() -> None:
    """Python warns of a coroutine that was made and never awaited."""
    backend, stopping = MemoryBackend(), asyncio.Event()
    closing: list[asyncio.Task[None]] = []
    replies: list[Mail] = []

    async def reply(mail: Mail) -> bytes:
        replies.append(mail)
        return b""

    def handle(mail: Mail) -> Callable[[], Awaitable[bytes]]:
        closing.append(asyncio.create_task(mailbox.close()))  # which takes its turn before the reply
        stopping.set()
        return partial(reply, mail)

    mailbox = Mailbox(backend, handle, lambda: None, lambda: None)
    await mailbox.start()
    await mailbox.post(mailbox.name, "changed", "")
    await stopping.wait()
    await asyncio.gather(*closing)
    gc.collect()
    assert replies == []
    await backend.close()


@pytest.mark.parametrize("lost", ["record", "mail"])
async def test_an_answer_reaches_its_call_though_the_store_has_lost_its_newest_writes(
    store_url: str, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either which process has the session, or the answer on its way: then its client is told to send it again."""
    monkeypatch.setattr("gemel.transports.http.server.sharing.mailbox.REPLY_SECONDS", 0.3)
    async with apps(store_url) as (a, b):
        session = await b.site.session()
        backend, record = b.server.backend, b.session(session).keys.record
        before = await backend.get(record)
        assert before is not None
        asking = await a.site.call(session, handshake_call("ask"))
        await asking.head()
        question = await asking.message()
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "file:///x"}]}}
        if lost == "record":
            await backend.set(record, before, ttl=600)
        else:
            append = backend.append

            async def lose(log: str, *args: Any, **options: Any) -> int:
                return 1 if "inbox" in log else await append(log, *args, **options)

            with monkeypatch.context() as patch:
                patch.setattr(backend, "append", lose)
                refused = await b.site.ask(session, answer)
            assert refused.status == 503
            assert int(refused.headers["retry-after"]) >= 1
        assert (await b.site.ask(session, answer)).status == 202
        assert text_of(await asking.message()) == "file:///x"


@needs_redis
async def test_mail_arrives_though_the_store_has_lost_its_newest_writes(tmp_path: Path) -> None:
    """After a failover the positions of what was lost belong to what is written next."""
    redis = RedisServer(tmp_path / "redis", {"appendonly": "no"})
    redis.start()
    backends = [RedisBackend(redis.url) for _ in range(2)]
    got: list[str] = []
    gaps: list[bool] = []

    def handle(mail: Mail) -> None:
        got.append(mail.session)

    reader = Mailbox(backends[0], handle, lambda: gaps.append(True), lambda: None)
    writer = Mailbox(backends[1], lambda mail: None, lambda: None, lambda: None)
    try:
        for mailbox in (reader, writer):
            await mailbox.start()
        await writer.post(reader.name, "changed", "kept")
        await until(lambda: got == ["kept"])
        redis.ask("SAVE")
        for name in ("lost", "lost too"):
            await writer.post(reader.name, "changed", name)
        await until(lambda: got[-1] == "lost too")
        redis.kill()
        redis.start()
        posted = 0
        async with asyncio.timeout(20):
            while posted < 2:
                with suppress(GemelError):
                    await writer.post(reader.name, "changed", f"new {posted}")
                    posted += 1
            await until(lambda: got[-1] == "new 1")
        assert "new 0" in got
        assert gaps
    finally:
        for mailbox in (reader, writer):
            await mailbox.close()
        for backend in backends:
            await backend.close()
        redis.kill()


async def test_mail_arrives_though_the_inbox_has_expired_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its positions begin with 1 again."""
    monkeypatch.setattr("gemel.transports.http.server.sharing.mailbox.INBOX_SECONDS", 0.2)
    backend, got = MemoryBackend(), list[str]()

    def handle(mail: Mail) -> None:
        got.append(mail.session)

    reader = Mailbox(backend, handle, lambda: None, lambda: None)
    await reader.start()
    for name in ("first", "second"):
        await reader.post(reader.name, "changed", name)
        await until(lambda name=name: got[-1:] == [name])
        async with asyncio.timeout(10):
            while await backend.end_of(make_key("inbox", reader.name)):  # noqa: ASYNC110 - not signalled
                await asyncio.sleep(0.02)
    assert got == ["first", "second"]
    await reader.close()
    await backend.close()
