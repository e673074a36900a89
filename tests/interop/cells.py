"""Runs one cell of the matrix: its own server process, journal and logs, and the client's report.

Knows processes and reports; judges through judge.py, prints nothing.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop import plans
from tests.interop.excuses import Excuse, excused
from tests.interop.judge import Cell, Evidence, complaints
from tests.interop.matrix import ERAS, Client, Server, agents, clients, servers
from tests.interop.peers import IMPORTS, REVISIONS, ROOT, Peers
from tests.interop.plans import Plan
from tests.interop.processes import environment, http_server, tail
from tests.ports import free_port

CELL_LIMIT = 180
"""Seconds after which a whole client run is given up."""


@dataclass
class Outcome:
    """How one cell ended: the steps that went wrong, each with what was wrong, those that a peer spoiled, and all."""

    cell: Cell
    seconds: float
    wrong: dict[str, str]
    excused: dict[str, Excuse]
    steps: dict[str, Any]


class Matrix:
    """The clients and servers that there are, and the directory that keeps what they leave behind."""

    def __init__(self, peers: Peers, keep: Path, fixture: Path, *, with_agents: bool = False) -> None:
        self.clients: dict[str, Client] = clients(peers)
        if with_agents:
            self.clients = {client.name: client for client in agents(peers)}
        self.servers: dict[str, Server] = servers(peers, fixture)
        self.keep = keep

    def cells(self) -> list[Cell]:
        """Every pairing that exists."""
        return [
            Cell(client.name, server.name, transport, era)
            for server in self.servers.values()
            for client in self.clients.values()
            for transport in server.commands
            for era in ERAS[transport]
            if era in server.plans
            if transport in client.transports
            if era in client.eras
            if not server.clients or client.name in server.clients
            if not client.servers or server.name in client.servers
        ]

    def plan(self, cell: Cell) -> Plan:
        """What is to be done in a cell."""
        plan = self.clients[cell.client].plan or self.servers[cell.server].plans[cell.era]
        is_old = cell.server == "gemel" and self.revision(cell) < REVISIONS["2025"]
        return {**plan, **plans.BEFORE_2025_11} if is_old else plan

    def revision(self, cell: Cell) -> str:
        """The newest revision of the era that both sides know."""
        sides = self.clients[cell.client].revision, self.servers[cell.server].revision
        return min(side or REVISIONS[cell.era] for side in sides)

    def place(self, cell: Cell, purpose: str = "") -> Path:
        """A directory for what the cell leaves behind, empty."""
        place = self.keep / (purpose + str(cell).replace(" -> ", "-").replace(" ", "-"))
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        return place

    def run(self, cell: Cell) -> Outcome:
        """Run one cell; a server or client that does not even start is a complaint too."""
        begin = time.monotonic()
        place = self.place(cell)
        journal = place / "journal"
        steps: dict[str, Any] = {}
        try:
            with target(self.servers[cell.server], cell.transport, place, journal) as where:
                steps = self._walk(cell, where, place)
                wrong = complaints(Evidence(cell, self.plan(cell), steps, journal, self.revision(cell)))
        except RuntimeError as error:
            wrong = {"start": str(error)}
        (place / "report.json").write_text(json.dumps(steps, indent=1))
        known = {step: excuse for step in wrong if (excuse := excused(cell, step)) is not None}
        left = {step: problem for step, problem in wrong.items() if step not in known}
        return Outcome(cell, time.monotonic() - begin, left, known, steps)

    def _walk(self, cell: Cell, where: str, place: Path) -> dict[str, Any]:
        """Run the client to its end and return the steps of its report."""
        command = self.clients[cell.client].argv(cell.transport, cell.era, self.plan(cell), where)
        log = place / "client.log"
        with log.open("wb") as file:
            try:
                done = subprocess.run(
                    command,
                    cwd=ROOT,
                    env=environment(),
                    stdout=subprocess.PIPE,
                    stderr=file,
                    timeout=CELL_LIMIT,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"the client did not end within {CELL_LIMIT} s:\n{tail(log)}") from None
        return last_report(done.stdout.decode("utf-8", "replace"), log)


@contextmanager
def target(server: Server, transport: str, place: Path, journal: Path, port: int = 0) -> Iterator[str]:
    """What a client is to connect to: the URL of a server that runs meanwhile, or a command line as JSON."""
    extra = {"INTEROP_JOURNAL": str(journal), "PYTHONPATH": IMPORTS}
    if transport == "stdio":
        pairs = [f"{name}={value}" for name, value in {**extra, **server.variables(0, place)}.items()]
        yield json.dumps(["/usr/bin/env", *pairs, *server.command("stdio", 0, place)])
        return
    port = port or free_port()
    command = server.command(transport, port, place)
    with http_server(command, port, place / "server.log", {**extra, **server.variables(port, place)}):
        yield f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else server.path}"


def last_report(output: str, log: Path) -> dict[str, Any]:
    """The steps of the report on the last line. Raises `RuntimeError` when there is none.

    Only LF ends a line: JSON may hold U+2028 as it is, where `str.splitlines` would split.
    """
    try:
        report: dict[str, Any] = json.loads(output.strip().split("\n")[-1])
        steps: dict[str, Any] = report["steps"]
    except (IndexError, KeyError, json.JSONDecodeError):
        raise RuntimeError(f"the client printed no report:\n{tail(log)}") from None
    return steps
