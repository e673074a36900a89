"""The backend on Redis: its contract, what it refuses, what it costs Redis, and its connections."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gemel import BackendError, Changed, Overloaded, StartError
from gemel.backends import EncryptedBackend, RedisBackend, backend_for
from gemel.backends.base import MAX_LOG_BYTES, Event
from gemel.protocol.changes import ChangesLost
from gemel.testing import check_backend
from tests.backends.redis_server import RedisServer, needs_redis, redis_server, until
from tests.transports.certificates import make_certificate

pytestmark = needs_redis


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis") as running:
        yield running


@pytest.mark.timeout(240)  # nine processes, two at a time
@pytest.mark.long
async def test_redis_keeps_the_contract_between_processes(server: RedisServer) -> None:
    await check_backend(partial(RedisBackend, server.url), processes=8)


async def test_the_bytes_of_a_log_are_bounded(server: RedisServer) -> None:
    backend = RedisBackend(server.url)
    size = 1 << 20
    for number in range(12):
        await backend.append("log", [bytes([number]) * size], ttl=60)
    entries = await backend.read("log")
    assert [position for position, _ in entries] == list(range(4, 13))
    assert sum(len(entry) for _, entry in entries[:-1]) == MAX_LOG_BYTES
    assert all(entry == bytes([position - 1]) * size for position, entry in entries)
    await backend.close()


async def test_commands_of_one_turn_are_sent_together(server: RedisServer) -> None:
    backend = RedisBackend(server.url)
    await backend.set("key", b"1")

    def reads() -> int:
        return int(server.ask("INFO", "stats")["total_reads_processed"])

    before = reads()
    assert await asyncio.gather(*(backend.get("key") for _ in range(500))) == [b"1"] * 500
    assert reads() - before < 20
    await backend.close()


async def test_too_many_waiting_operations_are_refused(server: RedisServer) -> None:
    backend = RedisBackend(server.url)
    await backend.get("key")
    server.pause()
    waiting = [asyncio.ensure_future(backend.get("key")) for _ in range(10_500)]
    await until(lambda: sum(task.done() for task in waiting) == 500)
    server.resume()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert sum(isinstance(result, Overloaded) for result in results) == 500
    assert results.count(None) == 10_000
    await backend.close()


async def test_a_cancelled_operation_leaves_the_replies_of_others_in_order(server: RedisServer) -> None:
    backend = RedisBackend(server.url)
    for number in range(20):
        await backend.set(f"key{number}", b"%d" % number)
    server.pause()
    tasks = [asyncio.ensure_future(backend.get(f"key{number}")) for number in range(20)]
    await asyncio.sleep(0.05)
    for task in tasks[::2]:
        task.cancel()
    server.resume()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[1::2] == [b"%d" % number for number in range(1, 20, 2)]
    await backend.close()


def test_each_event_loop_has_a_connection_of_its_own(server: RedisServer) -> None:
    backend = RedisBackend(server.url)

    async def count(number: int) -> None:
        for _ in range(50):
            assert await backend.append("log", [b"x"], ttl=60) > 0
        if number == 0:
            await backend.close()

    threads = [threading.Thread(target=asyncio.run, args=(count(number),)) for number in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(count(0))
    assert server.ask("XLEN", "gemel:s:{.log}") == 200


async def test_publishing_never_waits_from_any_thread(server: RedisServer) -> None:
    backend, other = RedisBackend(server.url), RedisBackend(server.url)
    heard: list[Any] = []
    other.subscribe(heard.append)
    await until(lambda: heard)  # the first one says that the connection is ready
    assert isinstance(heard[0], ChangesLost)

    def publish(thread: int) -> None:
        for number in range(50):
            backend.publish(Changed("resource", f"a://{thread}/{number}"))

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    await until(lambda: len(heard) == 201)
    assert set(heard[1:]) == {
        Changed("resource", f"a://{thread}/{number}") for thread in range(4) for number in range(50)
    }
    await backend.close()
    await other.close()
    backend.publish(Changed("tools"))  # also after the end


async def test_prefixes_separate_servers(server: RedisServer) -> None:
    first, second = RedisBackend(server.url, prefix="one"), RedisBackend(f"{server.url}?prefix=two")
    await first.set("key", b"1")
    assert await second.get("key") is None
    assert await second.claim("key", ttl=5)
    assert await first.claim("key", ttl=5)
    assert {key.split(b":")[0] for key in server.ask("KEYS", "*")} == {b"one", b"two"}
    await first.close()
    await second.close()


async def test_everything_expires_but_the_mark_of_the_format(server: RedisServer) -> None:
    backend = RedisBackend(server.url)
    await backend.set("key", b"1", ttl=60)
    await backend.replace("key", b"1", b"2", ttl=60)
    await backend.replace("other", None, b"2", ttl=60)
    await backend.claim("key", ttl=60)
    await backend.append("key", [b"1"], ttl=60)
    async with backend.lease("key", ttl=60):
        keys = server.ask("KEYS", "*")
    assert len(keys) == 7
    assert [key for key in server.ask("KEYS", "*") if server.ask("TTL", key) < 0] == [b"gemel:format"]
    await backend.close()


# ---------------------------------------------------------------- what is refused


async def refusal(url: str, **options: Any) -> str:
    backend = RedisBackend(url, **options)
    try:
        with pytest.raises(BackendError) as caught:
            await backend.get("key")
        return str(caught.value)
    finally:
        await backend.close()


async def test_another_version_of_the_format_is_refused(server: RedisServer) -> None:
    server.ask("SET", "gemel:format", "2")
    assert "has keys of another version of Gemel under the prefix 'gemel': run the same version" in await refusal(
        server.url
    )
    backend = RedisBackend(server.url, prefix="other")
    assert await backend.get("key") is None
    await backend.close()


@pytest.mark.parametrize("forbidden", ["", "-config"])
async def test_a_server_that_drops_keys_is_refused(server: RedisServer, forbidden: str) -> None:
    server.ask("CONFIG", "SET", "maxmemory", "100mb")
    backend = RedisBackend(server.url)
    assert await backend.get("key") is None  # noeviction
    await backend.close()
    server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    server.ask("ACL", "SETUSER", "app", "on", ">pw", "~gemel:*", "&gemel:*", "+@all", *filter(None, [forbidden]))
    text = await refusal(server.url.replace("//", "//app:pw@"))
    assert text.endswith("(maxmemory-policy allkeys-lru): set maxmemory-policy to noeviction")


async def test_a_server_without_a_file_is_named_once(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    server.ask("CONFIG", "SET", "appendonly", "no")
    backend = RedisBackend(server.url)
    await backend.get("key")
    server.ask("CLIENT", "KILL", "TYPE", "normal")
    await backend.get("key")
    await backend.close()
    assert [
        record.getMessage().partition(" ")[2] for record in caplog.records if record.levelno == logging.WARNING
    ] == ["loses the latest changes when it dies (appendonly is no): set appendonly to yes"]


async def test_a_replica_is_refused(server: RedisServer, tmp_path: Path) -> None:
    with redis_server(tmp_path / "replica", {"replicaof": f"127.0.0.1 {server.port}"}) as replica:
        assert "is a read-only replica: use the URL of the primary" in await refusal(replica.url)


async def test_a_server_that_becomes_a_replica_is_noticed(server: RedisServer) -> None:
    backend = RedisBackend(server.url)
    await backend.set("key", b"1")
    server.ask("REPLICAOF", "127.0.0.1", str(server.port + 1))
    with pytest.raises(BackendError, match="read-only replica"):
        await backend.set("key", b"2")
    server.ask("REPLICAOF", "NO", "ONE")

    async def works() -> bool:
        try:
            await backend.set("key", b"3")
        except BackendError:
            await asyncio.sleep(0.05)
            return False
        return True

    async with asyncio.timeout(20):
        while not await works():
            pass
    await backend.close()


async def test_a_login_is_refused_without_its_password(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with redis_server(tmp_path / "redis", {"requirepass": "right-canary"}) as server:
        good = RedisBackend(server.url.replace("//", "//:right-canary@"))
        await good.set("key", b"1")
        assert await good.get("key") == b"1"
        await good.close()
        for url in (server.url, server.url.replace("//", "//:wrong-canary@")):
            backend = RedisBackend(url)
            backend.subscribe(lambda event: None)
            with pytest.raises(BackendError, match="refuses the login") as caught:
                await backend.get("key")
            await until(lambda: "are not received" in caplog.text)
            await backend.close()
            assert "canary" not in str(caught.value) + caplog.text + repr(backend)
            caplog.clear()


async def test_a_user_with_the_documented_rights_is_enough(server: RedisServer) -> None:
    rights = [
        "~gemel:*",
        "&gemel:*",
        "-@all",
        "+@read",
        "+@write",
        "+@scripting",
        "+@pubsub",
        "+@connection",
        "+info",
        "+time",
    ]
    server.ask("ACL", "SETUSER", "app", "on", ">pw", *rights)
    url = server.url.replace("//", "//app:pw@")
    backend = RedisBackend(url)
    heard: list[Any] = []
    backend.subscribe(heard.append)
    async with backend.lease("key", ttl=5):
        await backend.append("log", [b"1"], ttl=5)
    await until(lambda: heard)
    await backend.close()
    assert "refuses a command to this user" in await refusal(url, prefix="other")


async def test_tls(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    with redis_server(tmp_path / "redis", tls=certificate) as server:
        backend = RedisBackend(f"{server.url}?ssl_ca_certs={certificate}")
        heard: list[Any] = []
        backend.subscribe(heard.append)
        await backend.set("key", b"1")
        assert await backend.get("key") == b"1"
        await until(lambda: heard)
        await backend.close()
        assert "certificate verify failed" in await refusal(server.url)
        wrong = f"{server.url}?ssl_ca_certs={certificate}".replace("127.0.0.1", "localhost")
        assert "is not valid for 'localhost'" in await refusal(wrong)


async def test_unix_sockets(tmp_path: Path) -> None:
    path = tmp_path / "r.sock"
    with redis_server(tmp_path / "redis", {"unixsocket": str(path)}):
        backend = backend_for(f"redis+unix://{path}?db=1")
        await backend.set("key", b"1")
        assert await backend.get("key") == b"1"
        await backend.close()


async def test_values_can_be_encrypted(server: RedisServer) -> None:
    backend = EncryptedBackend(RedisBackend(server.url), [b"k" * 32])
    await backend.set("key", b"canary")
    await backend.append("key", [b"canary"], ttl=60)
    assert await backend.get("key") == b"canary"
    assert await backend.read("key") == [(1, b"canary")]
    assert (
        b"canary"
        not in server.ask("GET", "gemel:v:{.key}") + repr(server.ask("XRANGE", "gemel:s:{.key}", "-", "+")).encode()
    )
    await backend.close()


def test_a_missing_client_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("redis", "gemel.backends.redis"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(StartError, match=r"needs the extra redis: pip install 'gemel\[redis\]'"):
        backend_for("redis://host")


async def test_a_closed_backend_can_be_opened_again_and_listeners_go_on(server: RedisServer) -> None:
    """As a server does that is served again."""
    backend, other = RedisBackend(server.url), RedisBackend(server.url)
    heard: list[Event] = []
    woken: list[int] = []
    removals = [backend.subscribe(heard.append), backend.watch("log", lambda: woken.append(1))]
    await backend.set("a", b"1")
    await backend.close()
    with pytest.raises(BackendError, match="was closed"):
        await backend.get("a")
    backend.reopen()
    assert await backend.get("a") == b"1"
    await until(lambda: heard and woken)  # connected again
    heard.clear()
    other.publish(Changed("tools"))
    await until(lambda: Changed("tools") in heard)
    woken.clear()
    await other.append("log", [b"1"], ttl=60)
    await until(lambda: woken)
    for remove in removals:
        remove()
    await backend.close()
    await other.close()


async def test_listeners_alone_go_on_after_a_reopening(server: RedisServer) -> None:
    """Nobody watches a log, which would open the connection for the listeners, too."""
    backend, other = RedisBackend(server.url), RedisBackend(server.url)
    heard: list[Event] = []
    remove = backend.subscribe(heard.append)
    await until(lambda: heard)
    await backend.close()
    backend.reopen()
    heard.clear()
    await until(lambda: heard)  # connected again
    other.publish(Changed("tools"))
    await until(lambda: Changed("tools") in heard)
    remove()
    await backend.close()
    await other.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_connects_again(server: RedisServer) -> None:
    backend = RedisBackend(server.url)

    async def use(name: str) -> None:
        heard: list[Any] = []
        stop = backend.subscribe(heard.append)
        await backend.append("log", [name.encode()], ttl=60)
        await until(lambda: heard)
        stop()

    asyncio.run(use("parent"))
    pid = os.fork()
    if not pid:
        status = 1
        try:
            asyncio.run(use("child"))
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0

    async def finish() -> None:
        await backend.append("log", [b"parent"], ttl=60)
        assert [entry for _, entry in await backend.read("log")] == [b"parent", b"child", b"parent"]
        await backend.close()

    asyncio.run(finish())
