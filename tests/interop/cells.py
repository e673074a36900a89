"""Runs one cell of the matrix: its own server process, journal and logs, and the client's report.

Knows processes and reports; judges through judge.py, prints nothing.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.judge import Cell, Evidence, complaints
from tests.interop.matrix import Client, Server, clients, servers
from tests.interop.peers import ROOT, Peers
from tests.interop.processes import environment, free_port, http_server, tail

CELL_LIMIT = 180
"""Seconds after which a whole client run is given up."""


@dataclass
class Outcome:
    """How one cell ended: the steps that went wrong, each with what was wrong, and all steps."""

    cell: Cell
    seconds: float
    wrong: dict[str, str]
    steps: dict[str, Any]


class Matrix:
    """The clients and servers that there are, and the directory that keeps what they leave behind."""

    def __init__(self, peers: Peers, keep: Path, fixture: Path) -> None:
        self.clients: dict[str, Client] = clients(peers)
        self.servers: dict[str, Server] = servers(peers, fixture)
        self.keep = keep

    def cells(self) -> list[Cell]:
        """Every pairing that exists."""
        return [
            Cell(client, server.name, transport, era)
            for server in self.servers.values()
            for client in self.clients
            for transport in server.commands
            for era in server.eras
        ]

    def place(self, cell: Cell, purpose: str = "") -> Path:
        """A directory for what the cell leaves behind."""
        place = self.keep / (purpose + str(cell).replace(" -> ", "-").replace(" ", "-"))
        place.mkdir(parents=True, exist_ok=True)
        return place

    def run(self, cell: Cell) -> Outcome:
        """Run one cell; a server or client that does not even start is a complaint too."""
        begin = time.monotonic()
        place = self.place(cell)
        journal = place / "journal"
        server = self.servers[cell.server]
        steps: dict[str, Any] = {}
        try:
            with target(server, cell.transport, place, journal) as where:
                steps = self._walk(cell, server, where, place)
                wrong = complaints(Evidence(cell, server.plan, steps, journal))
        except RuntimeError as error:
            wrong = {"start": str(error)}
        (place / "report.json").write_text(json.dumps(steps, indent=1))
        return Outcome(cell, time.monotonic() - begin, wrong, steps)

    def _walk(self, cell: Cell, server: Server, where: str, place: Path) -> dict[str, Any]:
        """Run the client to its end and return the steps of its report."""
        command = self.clients[cell.client].argv(cell.transport, cell.era, server.plan, where)
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
def target(server: Server, transport: str, place: Path, journal: Path) -> Iterator[str]:
    """What a client is to connect to: the URL of a server that runs meanwhile, or a command line as JSON."""
    extra = {"INTEROP_JOURNAL": str(journal), "PYTHONPATH": str(ROOT)}
    if transport == "stdio":
        pairs = [f"{name}={value}" for name, value in extra.items()]
        yield json.dumps(["/usr/bin/env", *pairs, *server.command("stdio", 0)])
        return
    port = free_port()
    with http_server(server.command("http", port), port, place / "server.log", {**extra, "PORT": str(port)}):
        yield f"http://127.0.0.1:{port}/mcp"


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
