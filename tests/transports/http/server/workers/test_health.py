"""`/health` describes all workers from any of them; `/livez` and `/readyz` the one that answers."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse

from tests.transports.http.server.workers.rig import exists, kill, several, until
from tests.transports.http_rig import Log, make_server, serving

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


async def test_health_describes_all_workers(tmp_path: Path) -> None:
    async with several(tmp_path, "--worker-timeout", "3") as server:
        pids = await server.settled(3)
        health = await server.health()
        assert (health["status"], health["ready"]) == ("ok", 3)
        assert [worker["worker"] for worker in health["workers"]] == [0, 1, 2]
        assert set(health["workers"][0]) == {
            "worker",
            "pid",
            "state",
            "restarts",
            "started",
            "heartbeat_seconds",
            "calls",
        }
        os.kill(pids[1], signal.SIGSTOP)

        async def degraded() -> bool:
            report = await server.health()
            return bool(report["status"] == "degraded" and report["workers"][1]["state"] == "hung")

        await until(degraded, 10)
        for path in ("/livez", "/readyz"):
            assert (await server.site.ask({}, None, "GET", path)).status == 200


async def test_a_process_alone_has_the_same_health() -> None:
    async with serving(make_server(Log())) as site:
        health = (await site.ask({}, None, "GET", "/health")).json()
        assert (health["status"], health["ready"], len(health["workers"])) == ("ok", 1, 1)
        assert health["workers"][0]["pid"] == os.getpid()
        assert health["workers"][0]["calls"] == 1


async def test_health_of_an_application_of_the_user_comes_first() -> None:
    async with serving(make_server(Log()), routes={"/health": PlainTextResponse("mine")}) as site:
        assert (await site.ask({}, None, "GET", "/health")).body == b"mine"


async def test_one_scrape_has_the_metrics_of_all_workers(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    pytest.importorskip("opentelemetry.exporter.prometheus")
    async with several(tmp_path, "--metrics", "--worker-timeout", "0") as server:
        pids = await server.settled(3)
        answered: set[str] = set()
        calls = 0
        while answered != set(map(str, pids)):
            answered.add(await server.call("pid"))
            calls += 1
        text = (await server.site.ask({}, None, "GET", "/metrics")).body.decode()
        durations = [
            line for line in text.splitlines() if line.startswith("mcp_server_operation_duration_seconds_count")
        ]
        assert len(durations) == 3
        assert sum(float(line.rpartition(" ")[2]) for line in durations) == calls
        assert text.count("# TYPE mcp_server_operation_duration_seconds histogram") == 1
        kill(pids[0])
        await until(lambda: not exists(pids[0]), 10)
        assert (await server.settled(3))[0] != pids[0]
        os.kill(pids[1], signal.SIGSTOP)
        text = (await server.site.ask({}, None, "GET", "/metrics")).body.decode()
        os.kill(pids[1], signal.SIGCONT)
        for line in ('restarts_total{worker="0"} 1.0', 'up{worker="0"} 1.0', 'up{worker="1"} 0.0'):
            assert f"gemel_worker_{line}" in text
        assert [name for name in os.listdir(tmp_path) if name.startswith("gemel-")]  # the sockets of the workers
        server.signal(signal.SIGTERM)
        await server.running.wait()
        assert not [name for name in os.listdir(tmp_path) if name.startswith("gemel-")]
