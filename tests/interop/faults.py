"""Deaths of real processes: a client killed in the middle of its call, a server killed under a call.

What must hold: nobody hangs, a server outlives its clients, and a stateless call dies with its connection.
"""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.interop.cells import Matrix, last_report, target
from tests.interop.judge import Cell
from tests.interop.peers import ROOT
from tests.interop.processes import environment, is_alive, stop, tail, wait_for_entry

STARTED_LIMIT = 30.0
"""Seconds until the slow call must have reached the handler."""

NOTICED_LIMIT = 8.0
"""Seconds until the other side must have noticed a death."""

WITHOUT_HOLD = ("inspector",)
"""Clients that cannot hold a call."""

WITHOUT_JOURNAL = ("time", "everything")
"""Servers that write no journal and have no `pid` tool."""


HUNG = "the client still waited"

KNOWN: dict[tuple[str, str, str, str], str] = {
    (
        "typescript",
        "http",
        "2025",
        "server killed",
    ): "it only reconnects; its call waits for its own limit",
}
"""Where a foreign client hangs with every server: (client, transport, era, fault) -> what."""


@dataclass
class Held:
    """A client that has announced the server's pid and waits in the slow call."""

    process: subprocess.Popen[bytes]
    server_pid: int
    log: Path


class Fault(Exception):
    """What did not hold."""


def run_all(matrix: Matrix, cells: list[Cell]) -> int:
    """Both deaths for every cell that can show them; prints a line each and returns how many went wrong."""
    bad = 0
    able = [cell for cell in cells if cell.client not in WITHOUT_HOLD and cell.server not in WITHOUT_JOURNAL]
    for cell in able:
        for name, fault in (("client killed", client_killed), ("server killed", server_killed)):
            problem = _attempt(fault, matrix, cell)
            known = KNOWN.get((cell.client, cell.transport, cell.era, name)) if problem and HUNG in problem else None
            bad += problem is not None and known is None
            verdict = f"known: {known}" if problem and known else problem or "ok"
            print(f"{cell.client:<11}{cell.server:<12}{cell.transport:<6}{cell.era:<6}{name}: {verdict}", flush=True)
    print(f"faults: {2 * len(able) - bad} of {2 * len(able)} held")
    return bad


def _attempt(fault: Callable[[Matrix, Cell], None], matrix: Matrix, cell: Cell) -> str | None:
    try:
        fault(matrix, cell)
    except (Fault, RuntimeError) as error:
        return f"WRONG: {error}"
    return None


def client_killed(matrix: Matrix, cell: Cell) -> None:
    """SIGKILL to the client while its call runs.

    Over HTTP the server lives and answers the next client; in the 2026 era the lost connection cancels the handler.
    Over stdio the server ends by itself: its input has ended.
    """
    place = matrix.place(cell, "client-killed-")
    server = matrix.servers[cell.server]
    journal = place / "journal"
    with target(server, cell.transport, place, journal) as where:
        held = _hold(matrix, cell, where, place, journal)
        held.process.kill()
        held.process.wait()
        if cell.transport == "stdio":
            _await_end(held.server_pid, "the server did not end after its client's death")
            return
        if cell.era == "2026" and wait_for_entry(journal, "cancelled cancel", NOTICED_LIMIT) is None:
            raise Fault(f"the handler was not cancelled within {NOTICED_LIMIT} s")
        if not is_alive(held.server_pid):
            raise Fault("the server died with its client")
        _ask_again(matrix, cell, where, place)


def server_killed(matrix: Matrix, cell: Cell) -> None:
    """SIGKILL to the server while a call runs: the client's call must end, with an error, in time."""
    place = matrix.place(cell, "server-killed-")
    server = matrix.servers[cell.server]
    journal = place / "journal"
    with target(server, cell.transport, place, journal) as where:
        held = _hold(matrix, cell, where, place, journal)
        begin = time.monotonic()
        os.kill(held.server_pid, signal.SIGKILL)
        try:
            output, _ = held.process.communicate(timeout=NOTICED_LIMIT)
        except subprocess.TimeoutExpired:
            stop(held.process, 0)
            raise Fault(f"{HUNG} {NOTICED_LIMIT} s after the server's death") from None
    steps = last_report(output.decode("utf-8", "replace"), held.log)
    if "error" not in steps.get("held", {}):
        raise Fault(f"the call of a dead server ended without an error: {json.dumps(steps)[:400]}")
    (place / "report.json").write_text(json.dumps({"seconds": time.monotonic() - begin, **steps}, indent=1))


def _hold(matrix: Matrix, cell: Cell, where: str, place: Path, journal: Path) -> Held:
    """Start a client and wait until its slow call runs in the server's handler."""
    plan = matrix.servers[cell.server].plan
    command = matrix.clients[cell.client].argv(cell.transport, cell.era, plan, where, hold=True)
    log = place / "client.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            start_new_session=True,
        )
    line = _first_line(process)
    if not line.startswith(b'{"server_pid"'):
        stop(process)
        raise Fault(f"the client did not get as far as the call: {line[:200]!r} {tail(log, 300)}")
    if wait_for_entry(journal, "started cancel", STARTED_LIMIT) is None:
        stop(process)
        raise Fault("the slow call did not reach the handler")
    return Held(process, json.loads(line)["server_pid"], log)


def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    """What the client says first; nothing when it says nothing in time."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], STARTED_LIMIT)
    return process.stdout.readline() if ready else b""


def _await_end(pid: int, otherwise: str) -> None:
    deadline = time.monotonic() + NOTICED_LIMIT
    while is_alive(pid):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            raise Fault(f"{otherwise} within {NOTICED_LIMIT} s")
        time.sleep(0.05)


def _ask_again(matrix: Matrix, cell: Cell, where: str, place: Path) -> None:
    """A fresh client of the same kind must be served."""
    plan = {"text": matrix.servers[cell.server].plan["text"]}
    command = matrix.clients[cell.client].argv(cell.transport, cell.era, plan, where)
    log = place / "again.log"
    with log.open("wb") as file:
        done = subprocess.run(
            command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=file, timeout=60, check=False
        )
    steps = last_report(done.stdout.decode("utf-8", "replace"), log)
    if steps.get("text", {}).get("value", {}).get("is_error") is not False:
        raise Fault(f"the next client was not served: {json.dumps(steps)[:400]}")
