"""Runs one leg of the official suite in its own process and gathers what it leaves behind.

Knows the suite's command line; what the results mean stands in verdict.py.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conformance import verdict
from tests.conformance.authorization import judge_proxy
from tests.interop.peers import ROOT
from tests.interop.processes import environment, http_server
from tests.ports import free_port

CLIENT_LIMIT_MS = 300_000
"""For each client, with the time that it waits for its turn."""
SERVER_LIMIT_MS = 30_000
LEG_LIMIT = 600
"""Seconds after which a whole leg is given up."""


@dataclass(frozen=True)
class Suite:
    """The suite and what it is to judge: the server's command line (`PORT` stands for the port), the client's."""

    command: list[str]
    server: list[str]
    client: list[str]
    free_exits: frozenset[str]

    def run(self, name: str, options: list[str], scenario: str | None, expected: Path, place: Path) -> verdict.Leg:
        """Run a leg, or one scenario of it at the leg's revision. Raises `RuntimeError` when nothing can be judged."""
        side = name.partition("-")[0]
        if side == "authorization":
            return self._run(side, [*options, *(["--scenario", scenario] if scenario else [])], scenario, place)
        if scenario:
            options = ["--scenario", scenario, "--spec-version", options[-1], "--force"]
        elif expected.exists():
            options = [*options, "--expected-failures", str(expected)]
        if side == "server":
            with serving(self.server, place) as url:
                return self._run(side, [*options, "--url", url, "--timeout", str(SERVER_LIMIT_MS)], scenario, place)
        client = " ".join(self.client)
        return self._run(side, [*options, "--command", client, "--timeout", str(CLIENT_LIMIT_MS)], scenario, place)

    def _run(self, side: str, options: list[str], scenario: str | None, place: Path) -> verdict.Leg:
        exits = place / "exits"
        results = place / "results"
        exits.mkdir(parents=True, exist_ok=True)
        options = [*options, "-o", str(results)]
        if side == "authorization":
            status, said = judge_proxy(self.command, options, place / "suite.log", LEG_LIMIT)
        else:
            status, said = _to_the_end([*self.command, side, *options], exits, place / "suite.log")
        scenarios = verdict.read_scenarios(results)
        if not scenarios:
            raise RuntimeError(f"the suite judged nothing (exit {status}): {said[-400:]}")
        if scenario:
            # Results of a single scenario carry other directory names than those of a leg.
            checks = [check for one in scenarios.values() for check in one.checks]
            scenarios = {scenario: verdict.Scenario(scenario, checks)}
        unscored = self._unscored(options)
        return verdict.Leg(side, scenarios, unscored, verdict.read_exits(exits), self.free_exits, status)

    def _unscored(self, options: list[str]) -> frozenset[str]:
        """Which scenarios of a frozen set run without being scored; none in the other legs."""
        if "--requirements" not in options:
            return frozenset()
        command = [*self.command, "list", *options[:2]]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True)
        return verdict.read_unscored(done.stdout.decode("utf-8", "replace"))


@contextmanager
def serving(command: list[str], place: Path) -> Iterator[str]:
    """The server under test runs meanwhile; gives the URL of its endpoint."""
    port = free_port()
    line = [str(port) if part == "PORT" else part for part in command]
    with http_server(line, port, place / "server.log", {}):
        yield f"http://127.0.0.1:{port}/mcp"


def _to_the_end(command: list[str], exits: Path, log: Path) -> tuple[int, str]:
    """Run the suite, and end it with all its clients when it takes too long. Returns its status and what it said."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment({"CONFORMANCE_EXITS": str(exits)}),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        status = process.wait(LEG_LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
    return status, log.read_text("utf-8", "replace")
