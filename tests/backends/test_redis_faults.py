"""A Redis that dies, hangs, is full or loses messages: what was acknowledged is kept, and no gap is silent."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gemel import BackendError, Changed, Overloaded
from gemel.backends import RedisBackend
from gemel.backends.redis_client import RedisLane
from gemel.protocol.changes import ChangesLost
from tests.backends.redis_server import RedisServer, needs_redis, redis_server, until

pytestmark = [needs_redis, pytest.mark.timeout(120)]

#: Seconds that Redis is away.
OUTAGE = 10.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis") as running:
        yield running


async def works(backend: RedisBackend) -> None:
    """Wait until operations succeed again."""
    async with asyncio.timeout(20):
        while True:
            with suppress(BackendError):
                await backend.set("works", b"1")
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("fsync", ["always", "everysec"])
async def test_what_was_acknowledged_survives_kill_9(fast_disk: Path, fsync: str) -> None:
    """Both settings write before the reply, as long as the disk keeps up; `everysec` does not wait for the disk."""
    with redis_server(fast_disk / "redis", {"appendfsync": fsync}) as server:
        backend = RedisBackend(server.url, timeout=2)
        entries: dict[str, dict[int, bytes]] = {}
        values: set[str] = set()
        claims: set[str] = set()
        failures: list[BackendError] = []

        async def write(log: str) -> None:
            for number in range(100_000):
                text = f"{log}-{number}"
                try:
                    position = await backend.append(log, [text.encode()], ttl=600, most=100_000)
                    entries[log][position] = text.encode()
                    await backend.set(text, b"1", ttl=600)
                    values.add(text)
                    assert await backend.claim(text, ttl=600)
                    claims.add(text)
                except BackendError as exc:
                    failures.append(exc)
                    return

        for turn in range(3):
            failures.clear()
            entries = {f"log{turn}-{number}": {} for number in range(8)}
            enough = len(values) + 100

            def are_enough(enough: int = enough) -> bool:
                return len(values) > enough

            writers = [asyncio.create_task(write(log)) for log in entries]
            await until(are_enough)
            await asyncio.to_thread(server.kill)
            await asyncio.gather(*writers)
            assert len(failures) == len(entries)
            assert all(failure.retry_after_ms for failure in failures)
            await asyncio.to_thread(server.start)
            await works(backend)
            for log, acknowledged in entries.items():
                stored = dict(await backend.read(log, most=100_000))
                assert acknowledged.items() <= stored.items()
                assert list(stored) == list(range(1, len(stored) + 1))
            assert all(await asyncio.gather(*map(backend.get, values)))
            assert not any(await asyncio.gather(*(backend.claim(text, ttl=5) for text in claims)))
        await backend.close()


@contextmanager
def slow_disk(pid: int, seconds: float) -> Iterator[None]:
    """Delay each flush of a process to the disk."""
    calls = "fsync,fdatasync"
    delay = f"inject={calls}:delay_enter={int(seconds * 1e6)}"
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-p", str(pid), "-e", f"trace={calls}", "-e", delay]
    tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    statuses = list(Path(f"/proc/{pid}/task").glob("*/status"))
    try:
        while any("TracerPid:\t0\n" in status.read_text() for status in statuses):
            if tracer.poll() is not None:
                pytest.skip("strace can't trace here")
            time.sleep(0.01)
        yield
    finally:
        tracer.terminate()
        tracer.wait()


@pytest.mark.long
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("fsync", ["always", "everysec"])
async def test_what_a_slow_disk_may_cost(tmp_path: Path, fsync: str) -> None:
    """While a flush of `everysec` is late, Redis replies before it writes: kill -9 may cost the newest entries, no earlier ones."""
    with redis_server(tmp_path / "redis", {"appendfsync": fsync}) as server:
        backend = RedisBackend(server.url, timeout=20)
        written = True
        entries: list[bytes] = []
        with slow_disk(server.pid, 1.5):
            async with asyncio.timeout(60):
                while written and (fsync == "everysec" or len(entries) < 3):
                    entries.append(b"entry %d of the log" % len(entries))
                    await backend.append("log", entries[-1:], ttl=600, most=100_000)
                    files = await asyncio.to_thread(lambda: [file.read_bytes() for file in tmp_path.rglob("*.aof")])
                    written = any(entries[-1] in data for data in files)
            assert written is (fsync == "always")
            await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        await works(backend)
        stored = [entry for _, entry in await backend.read("log", most=100_000)]
        assert stored == entries[: len(stored)]
        assert len(stored) == len(entries) or fsync == "everysec"
        await backend.close()


async def during_an_outage(server: RedisServer, begin: Any, end: Any, *, cut: bool) -> None:
    """What holds while Redis is away, and after that; `cut` if connections break."""
    backend, other = RedisBackend(server.url, timeout=1), RedisBackend(server.url, timeout=1)
    heard: list[Any] = []
    own: list[Any] = []
    woken: list[int] = []
    backend.subscribe(own.append)
    other.subscribe(heard.append)
    other.watch("log", lambda: woken.append(1))
    await backend.append("log", [b"1"], ttl=600)
    await until(lambda: heard and own and woken)

    await asyncio.to_thread(begin)
    finished = time.monotonic() + OUTAGE
    failures: list[BackendError] = []

    async def try_all() -> None:
        for operation in (
            backend.get("key"),
            backend.set("key", b"1"),
            backend.claim("key", ttl=5),
            backend.append("log", [b"2"], ttl=600),
            backend.read("log"),
        ):
            async with asyncio.timeout(5):  # more than the backend allows, on a busy machine
                with pytest.raises(BackendError) as caught:
                    await operation
                failures.append(caught.value)

    published = 0
    while time.monotonic() < finished:
        await try_all()
        backend.publish(Changed("resource", f"a:{published}"))
        published += 1
        await asyncio.sleep(0.1)
    assert all(failure.retry_after_ms for failure in failures)
    # Subscribers of the same process were told all the time.
    assert [event.uri for event in own if isinstance(event, Changed)] == [f"a:{number}" for number in range(published)]
    heard.clear()
    own.clear()
    woken.clear()

    await asyncio.to_thread(end)
    await works(backend)
    await backend.append("log", [b"3"], ttl=600)
    await until(lambda: woken)
    assert b"3" in [entry for _, entry in await other.read("log")]
    await until(lambda: any(isinstance(event, ChangesLost) for event in heard))
    if cut:  # otherwise a connection that was silent for less than SILENCE has lost nothing
        await until(lambda: any(isinstance(event, ChangesLost) for event in own))
    heard.clear()
    own.clear()
    backend.publish(Changed("tools"))
    other.publish(Changed("prompts"))
    # A connection that is being replaced since it was silent misses them, and says so.
    await until(lambda: Changed("tools") in heard or any(isinstance(event, ChangesLost) for event in heard))
    await until(lambda: Changed("prompts") in own or any(isinstance(event, ChangesLost) for event in own))
    await backend.close()
    await other.close()


@pytest.mark.long
async def test_redis_is_gone_for_ten_seconds(server: RedisServer) -> None:
    await during_an_outage(server, server.kill, server.start, cut=True)


@pytest.mark.long
async def test_redis_hangs_for_ten_seconds(server: RedisServer) -> None:
    await during_an_outage(server, server.pause, server.resume, cut=False)


async def test_only_the_first_operations_wait_for_a_redis_that_hangs(server: RedisServer) -> None:
    """All others fail at once until it answers, so that a request with many operations does not wait for each of them."""
    backend = RedisBackend(server.url, timeout=2)
    await backend.set("key", b"1")
    server.pause()
    try:
        async with asyncio.timeout(15):
            for _ in range(40):
                await asyncio.sleep(0.1)
                for operation in (backend.get("key"), backend.append("log", [b"1"], ttl=600), backend.end_of("log")):
                    with pytest.raises(BackendError) as caught:
                        await operation
                    assert caught.value.retry_after_ms
                with pytest.raises(BackendError):
                    async with backend.lease("lease", ttl=60):
                        pass
    finally:
        server.resume()
    await works(backend)
    assert await backend.get("key") == b"1"
    await backend.close()


async def test_publishing_and_closing_work_without_a_redis(server: RedisServer) -> None:
    backend = RedisBackend(server.url, timeout=1)
    server.kill()
    own: list[Any] = []
    stop = backend.subscribe(own.append)
    unwatch = backend.watch("log", lambda: None)
    for number in range(5000):
        backend.publish(Changed("resource", f"a:{number}"))
    assert len(own) == 5000
    stop()
    unwatch()
    async with asyncio.timeout(10):
        await backend.close()
    assert "gemel-redis-changes" not in [thread.name for thread in threading.enumerate()]


async def test_changes_made_during_an_outage_are_announced_as_lost(server: RedisServer) -> None:
    """Also if the connection of the listener was never lost: only the publisher's was."""
    proxy = Proxy(server.port)
    async with proxy.running():
        publisher, listener = RedisBackend(proxy.url, timeout=1), RedisBackend(server.url)
        heard: list[Any] = []
        listener.subscribe(heard.append)
        await until(lambda: heard)
        publisher.publish(Changed("tools"))
        await until(lambda: Changed("tools") in heard)
        heard.clear()
        await proxy.cut()
        publisher.publish(Changed("prompts"))
        await asyncio.sleep(0.3)
        await proxy.listen()
        await until(lambda: any(isinstance(event, ChangesLost) for event in heard) or Changed("prompts") in heard)
        await publisher.close()
        await listener.close()


async def test_a_full_redis_refuses_more_and_goes_on(server: RedisServer) -> None:
    backend = RedisBackend(server.url)
    await backend.set("key", b"1", ttl=600)
    await backend.append("log", [b"1"], ttl=600)
    async with backend.lease("held", ttl=0.6) as lease:
        server.ask("CONFIG", "SET", "maxmemory", "1")
        for operation in (
            backend.set("other", b"2"),
            backend.replace("key", b"1", b"2"),
            backend.claim("other", ttl=5),
            backend.append("log", [b"2"], ttl=600),
        ):
            with pytest.raises(Overloaded, match=r"The store is full: .* has reached its maxmemory"):
                await operation
        with pytest.raises(Overloaded):
            async with backend.lease("other", ttl=5):
                pass
        await asyncio.sleep(1)
        lease.check()  # it is renewed
        assert await backend.get("key") == b"1"
        assert await backend.read("log") == [(1, b"1")]
        assert await backend.touch("key", ttl=60)
        assert await backend.delete("key")
        server.ask("CLIENT", "KILL", "TYPE", "normal")
        assert await backend.get("key") is None  # also over a new connection
    server.ask("CONFIG", "SET", "maxmemory", "0")
    assert await backend.append("log", [b"2"], ttl=600) == 2
    await backend.close()


# ---------------------------------------------------------------- gaps that nobody reports


class Proxy:
    """Forwards connections to a server on this machine, until it is cut or keeps the answers of a server to itself."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.muted: set[asyncio.StreamWriter] = set()
        self.subscribers: set[asyncio.StreamWriter] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.listen()
        try:
            yield
        finally:
            await self.cut()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.close()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, back}
        try:
            await asyncio.gather(self._forward(reader, back, writer), self._forward(there, writer, None))
        finally:
            for each in (writer, back):
                each.close()
                self._writers.discard(each)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: asyncio.StreamWriter | None
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if client is not None and b"SUBSCRIBE" in data:
                    self.subscribers.add(client)
                if writer not in self.muted:
                    writer.write(data)
                    await writer.drain()
        writer.close()


async def test_a_connection_that_is_silent_is_replaced(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemel.backends.redis_hints.BEAT", 0.2)
    monkeypatch.setattr("gemel.backends.redis_hints.SILENCE", 0.7)
    proxy = Proxy(server.port)
    async with proxy.running():
        backend, other = RedisBackend(proxy.url), RedisBackend(server.url)
        heard: list[Any] = []
        woken: list[int] = []
        backend.subscribe(heard.append)
        backend.watch("log", lambda: woken.append(1))
        await until(lambda: heard and woken)
        heard.clear()
        woken.clear()
        proxy.muted |= proxy.subscribers
        other.publish(Changed("tools"))
        await other.append("log", [b"1"], ttl=60)
        await until(lambda: heard and woken)
        assert isinstance(heard[0], ChangesLost)
        await backend.close()
        await other.close()


@pytest.mark.parametrize(
    ("messages", "lost"),
    [
        ([["p", 7], ["p", 8, [["tools", None]]], ["p", 8], ["p", 9, [["tools", None]]]], 0),
        ([["p", 7], ["p", 9, [["tools", None]]]], 1),  # 8 is missing
        ([["p", 7], ["p", 8]], 1),  # 8 is missing, as its repetition shows
        ([["p", 7], ["p", 8, [], True]], 1),  # the process says so itself
        ([["p", 7], ["q", 3, [["tools", None]]], ["q", 5]], 1),
        (["garbage"], 1),
    ],
)
async def test_missing_numbers_show_that_changes_were_lost(server: RedisServer, messages: list[Any], lost: int) -> None:
    backend = RedisBackend(server.url)
    heard: list[Any] = []
    woken: list[int] = []
    backend.subscribe(heard.append)
    backend.watch("log", lambda: woken.append(1))
    await until(lambda: heard and woken)
    heard.clear()
    woken.clear()
    for message in messages:
        server.ask("PUBLISH", "gemel:changes", msgspec.msgpack.encode(message))
    end = Changed("resource", "a:end")
    server.ask("PUBLISH", "gemel:changes", msgspec.msgpack.encode(["z", 1, [["resource", "a:end"]]]))
    await until(lambda: end in heard)
    assert sum(isinstance(event, ChangesLost) for event in heard) == lost
    assert len(woken) == lost
    await backend.close()


@pytest.mark.parametrize("comes_back", [True, False])
async def test_the_changes_of_a_process_that_ends_during_an_outage_count_as_lost(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    """It may have had some that it could not send any more."""
    monkeypatch.setattr("gemel.backends.redis_hints.BEAT", 0.1)

    def say(*message: Any) -> None:
        server.ask("PUBLISH", "gemel:changes", msgspec.msgpack.encode(message))

    def losses() -> int:
        return sum(isinstance(event, ChangesLost) for event in heard)

    backend = RedisBackend(server.url)
    heard: list[Any] = []
    backend.subscribe(heard.append)
    await until(lambda: losses() == 1)
    say("p", 1, [["tools", None]])
    await until(lambda: Changed("tools") in heard)
    server.ask("CLIENT", "KILL", "TYPE", "pubsub")
    await until(lambda: losses() == 2)
    if comes_back:
        say("p", 1)
        await until(lambda: not backend._hints._expected)
        assert losses() == 2
    else:
        await until(lambda: losses() == 3)
    await backend.close()


def test_a_connection_that_was_closed_is_replaced_on_uvloop(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There a write to it raises a RuntimeError; what may be repeated is."""
    uvloop = pytest.importorskip("uvloop")
    used: list[Any] = []
    use = RedisLane._use

    async def remember(lane: RedisLane, connection: Any) -> None:
        used.append(connection)
        await use(lane, connection)

    monkeypatch.setattr(RedisLane, "_use", remember)

    async def main() -> None:
        backend = RedisBackend(server.url)
        await backend.set("key", b"1")
        for _ in range(3):
            used[-1]._writer.transport.abort()
            assert await backend.get("key") == b"1"
        assert len(used) == 4
        await backend.close()

    uvloop.run(main())
