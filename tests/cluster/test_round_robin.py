"""Foreign clients in both eras, each of whose requests reaches another process: sessions, questions, streams, changes, tasks."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.backends.redis_server import needs_redis, redis_server
from tests.cluster.processes import ROOT, SERVER, Program, until_ready
from tests.cluster.round_robin import RoundRobin
from tests.cluster.run import KINDS, PEERS, Client, command_of
from tests.interop import peers
from tests.ports import free_port

pytestmark = pytest.mark.long
CLIENTS = [(kind, era) for kind, eras in KINDS.items() for era in eras if kind != "tasks"]
COUNT = 3
#: Seconds in which a client makes calls.
SECONDS = 5.0


def installed() -> peers.Peers:
    found = peers.locate()
    present = (found.node, *(found.python(group) for group in PEERS - {"node"}))
    if "REQUIRE_PEERS" not in os.environ and not all(place.exists() for place in present):
        pytest.skip("needs foreign clients: make interop installs them")
    return peers.install(PEERS)


class FailedProbes:
    """Lets probes of clients that look for tasks fail, until one has fallen back to the other era and asked there."""

    def __init__(self) -> None:
        self.fell_back = False
        self._started = 0

    def __call__(self, request: bytes) -> bool:
        self._started += b'"tools/call"' in request
        self.fell_back |= b'"tasks/get"' in request and b"2025-11-25" in request
        return b'"server/discover"' in request and self._started >= 3 and not self.fell_back


async def use(
    url: str, directory: Path, kind: str, era: str, fails: Callable[[bytes], bool] = lambda request: False
) -> tuple[dict[str, Any], Counter[int]]:
    """Let a client use servers on a store. Returns its report, and the requests of each server."""
    environment = {
        "CLUSTER_BACKEND": url,
        "CLUSTER_JOURNAL": str(directory / "journal"),
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT))),
    }
    ports = [free_port() for _ in range(COUNT)]
    servers = [
        Program(
            [sys.executable, "-m", "gemel", "run", str(SERVER), "--http", "--port", str(port)],
            directory,
            str(port),
            environment,
        )
        for port in ports
    ]
    client = None
    try:
        for server in servers:
            server.start()
        for port in ports:
            await until_ready(port)
        async with RoundRobin(ports, fails).running() as proxy:
            address = f"http://127.0.0.1:{proxy.port}/mcp"
            client = await Client.start([*command_of(kind, installed()), era, address, "guest"], directory, "guest")
            report = await client.work(time.time() + SECONDS, 0.0)
    finally:
        if client is not None:
            client.kill()
        for server in servers:
            await server.end()
    return report, proxy.requests


def judge(kind: str, report: dict[str, Any], requests: Counter[int]) -> None:
    """Nothing failed, and no client stayed with one server."""
    assert report["violations"] == []
    assert report["errors"] == {}
    assert report["usable"]
    if kind.startswith("tasks"):
        assert report["calls"].keys() == {"started", "completed"}
        assert report["calls"]["started"] == report["calls"]["completed"]
    else:
        assert report["missed"] == []
        assert report["calls"].keys() == {"note", "ask", "count", "change"}
    assert len(requests) == COUNT
    assert max(requests.values()) - min(requests.values()) <= 1


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("kind", "era"), CLIENTS)
async def test_over_sqlite(tmp_path: Path, kind: str, era: str) -> None:
    judge(kind, *await use(f"sqlite:///{tmp_path}/cluster.db", tmp_path, kind, era))


@needs_redis
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("kind", "era"), CLIENTS)
async def test_over_redis(tmp_path: Path, kind: str, era: str) -> None:
    with redis_server(tmp_path / "redis") as running:
        judge(kind, *await use(running.url, tmp_path, kind, era))


@needs_redis
@pytest.mark.timeout(240)
async def test_a_task_is_not_reported_lost_to_a_client_that_fell_back(tmp_path: Path) -> None:
    """FastMCP takes any refused `server/discover` for that of an old server, also a 502 since a process was killed."""
    probes = FailedProbes()
    with redis_server(tmp_path / "redis") as running:
        report, _ = await use(running.url, tmp_path, "tasks-fastmcp", "2026", probes)
    assert probes.fell_back
    assert report["violations"] == []
    assert any("was made in revision 2026-07-28" in text for text in report["errors"])
    assert report["calls"]["started"] == report["calls"]["completed"]
