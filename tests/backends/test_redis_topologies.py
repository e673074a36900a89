"""Sentinels that move to another primary, and a cluster that moves its slots."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gemel import BackendError, Changed
from gemel.backends import RedisBackend
from gemel.protocol.changes import ChangesLost
from gemel.testing import check_backend
from tests.backends.redis_server import RedisServer, needs_redis, redis_server, until
from tests.ports import free_port

pytestmark = [needs_redis, pytest.mark.long, pytest.mark.timeout(240)]


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# ---------------------------------------------------------------- Sentinels


async def test_a_backend_follows_the_sentinels_to_another_primary(tmp_path: Path) -> None:
    with ExitStack() as stack:
        password = {"requirepass": "secret-canary", "masterauth": "secret-canary"}
        primary = stack.enter_context(redis_server(tmp_path / "primary", password))
        settings = {**password, "replicaof": f"127.0.0.1 {primary.port}"}
        replica = stack.enter_context(redis_server(tmp_path / "replica", settings))
        wait_for(lambda: replica.ask("INFO", "replication")["master_link_status"] == "up")
        watching = {
            "sentinel monitor main": f"127.0.0.1 {primary.port} 1",
            "sentinel auth-pass main": "secret-canary",
            "sentinel down-after-milliseconds main": "500",
            "sentinel failover-timeout main": "3000",
        }
        sentinel = stack.enter_context(redis_server(tmp_path / "sentinel", watching, sentinel=True))
        wait_for(
            lambda: b"num-slaves" in (state := sentinel.ask("SENTINEL", "MASTER", "main")) or state.get("num-slaves")
        )
        nobody = free_port()
        backend = RedisBackend(
            f"redis+sentinel://:secret-canary@127.0.0.1:{nobody},127.0.0.1:{sentinel.port}/main/0", timeout=2
        )
        heard: list[Any] = []
        woken: list[int] = []
        backend.subscribe(heard.append)
        backend.watch("log", lambda: woken.append(1))
        for number in range(1, 101):
            assert await backend.append("log", [b"%d" % number], ttl=600) == number
        primary.ask("WAIT", "1", "5000")
        await until(lambda: heard and woken)
        heard.clear()

        primary.kill()
        failures: list[BackendError] = []
        async with asyncio.timeout(60):
            while True:
                try:
                    position = await backend.append("log", [b"after"], ttl=600)
                    break
                except BackendError as exc:
                    failures.append(exc)
                    await asyncio.sleep(0.1)
        assert failures
        assert all(failure.retry_after_ms for failure in failures)
        assert "canary" not in repr(failures)
        assert position == 101
        assert await backend.read("log", after=99) == [(100, b"100"), (101, b"after")]
        await until(lambda: any(isinstance(event, ChangesLost) for event in heard))
        other = RedisBackend(f"redis://:secret-canary@127.0.0.1:{replica.port}")
        other.publish(Changed("tools"))
        await until(lambda: Changed("tools") in heard)
        await backend.close()
        await other.close()


async def test_an_unknown_service_is_named(tmp_path: Path) -> None:
    with redis_server(tmp_path / "sentinel", sentinel=True) as sentinel:
        backend = RedisBackend(f"redis+sentinel://127.0.0.1:{sentinel.port}/nothing")
        with pytest.raises(BackendError, match=r"no Sentinel names a primary: 127.0.0.1:\d+ does not know it"):
            await backend.get("key")
        await backend.close()


# ---------------------------------------------------------------- a cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[RedisServer]]:
    """Three nodes, each with a third of the slots."""
    with ExitStack() as stack:
        nodes = []
        for number in range(3):
            settings = {"cluster-enabled": "yes", "cluster-port": str(free_port()), "cluster-node-timeout": "2000"}
            nodes.append(stack.enter_context(redis_server(tmp_path / f"node{number}", settings)))
        for number, node in enumerate(nodes):
            node.ask("CLUSTER", "ADDSLOTSRANGE", number * 5500, min(16383, number * 5500 + 5499))
            node.ask("CONFIG", "SET", "cluster-require-full-coverage", "no")
        for node in nodes[1:]:
            nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, node.settings["cluster-port"])

        def is_whole(node: RedisServer) -> bool:
            info = bytes(node.ask("CLUSTER", "INFO"))
            known = b"cluster_state:ok" in info and b"cluster_known_nodes:3" in info
            return known and len(node.ask("CLUSTER", "SLOTS")) == 3

        wait_for(lambda: all(map(is_whole, nodes)))
        yield nodes


def url_of(cluster: list[RedisServer]) -> str:
    return f"redis+cluster://127.0.0.1:{cluster[0].port},127.0.0.1:{cluster[1].port}"


async def test_a_cluster_keeps_the_contract(cluster: list[RedisServer]) -> None:
    await check_backend(partial(RedisBackend, url_of(cluster)), processes=2)
    sizes = [int(node.ask("DBSIZE")) for node in cluster]
    assert all(sizes)


async def test_a_node_of_a_cluster_wants_the_url_of_a_cluster(cluster: list[RedisServer]) -> None:
    backend = RedisBackend(cluster[0].url)
    with pytest.raises(BackendError, match=r"is a node of a cluster: use redis\+cluster://"):
        await backend.get("key")
    await backend.close()


async def test_another_format_on_one_node_is_refused_for_all(cluster: list[RedisServer]) -> None:
    for node in cluster:
        with suppress(Exception):  # the others say who has it
            node.ask("SET", "gemel:format", "2")
    backend = RedisBackend(url_of(cluster))
    for number in range(10):
        with pytest.raises(BackendError, match="another version of Gemel"):
            await backend.get(f"key{number}")
    await backend.close()


async def test_slots_that_move_are_followed(cluster: list[RedisServer]) -> None:
    """First the new node is asked for what the old one does not have any longer, then the slot is the new one's."""
    backend = RedisBackend(url_of(cluster))
    await backend.set("key", b"1")
    name = "gemel:v:{.key}"
    slot = cluster[0].ask("CLUSTER", "KEYSLOT", name)
    old = next(node for node in cluster if node.ask("CLUSTER", "COUNTKEYSINSLOT", slot))
    new = next(node for node in cluster if node is not old)
    ids = {node.port: node.ask("CLUSTER", "MYID").decode() for node in cluster}
    new.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[old.port])
    old.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[new.port])
    old.ask("MIGRATE", "127.0.0.1", new.port, name, 0, 5000)
    assert await backend.get("key") == b"1"
    assert await backend.append("key", [b"1"], ttl=60) == 1
    for node in cluster:
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", ids[new.port])
    assert await backend.get("key") == b"1"
    assert await backend.append("key", [b"2"], ttl=60) == 2
    assert int(new.ask("CLUSTER", "COUNTKEYSINSLOT", slot)) == 2
    await backend.close()


async def test_a_node_that_dies_takes_its_slots_only(cluster: list[RedisServer]) -> None:
    backend = RedisBackend(url_of(cluster), timeout=2)
    heard: list[Any] = []
    backend.subscribe(heard.append)
    keys = [f"key{number}" for number in range(60)]
    for key in keys:
        await backend.set(key, b"1")
    await until(lambda: heard)
    cluster[2].kill()
    results = await asyncio.gather(*map(backend.get, keys), return_exceptions=True)
    assert results.count(b"1") > 20
    assert all(result == b"1" or isinstance(result, BackendError) for result in results)
    cluster[2].start()
    async with asyncio.timeout(60):
        while True:
            with suppress(BackendError):
                assert await asyncio.gather(*map(backend.get, keys)) == [b"1"] * 60
                break
            await asyncio.sleep(0.1)
    await backend.close()
