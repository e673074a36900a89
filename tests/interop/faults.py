"""Deaths of real processes while a call runs, a subscription is open and a question waits for its answer.

What must hold: nobody hangs, a server outlives its clients and lets go of what was theirs, and what needs no memory of
the dead goes on with who takes their place.
"""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.cells import Matrix, last_report, target
from tests.interop.judge import Cell
from tests.interop.peers import ROOT
from tests.interop.plans import Plan, step
from tests.interop.processes import await_silence, environment, is_alive, stop, tail, wait_for_entry
from tests.ports import free_port

STARTED_LIMIT = 30.0
"""Seconds until everything that is held must be under way."""

NOTICED_LIMIT = 8.0
"""Seconds until the other side must have noticed a death."""

AGAIN_LIMIT = 25.0
"""Seconds until a client that takes a subscription up again has done so: it waits longer and longer between attempts."""

UNDER_WAY = 0.3
"""Seconds between a death and the answer to the question."""

HUNG = "the client still waited"

KNOWN: dict[tuple[str, str, str, str], str] = {
    ("typescript", "http", "2025", "server killed"): "it only reconnects; its call waits for its own limit",
    ("typescript", "sse", "2025", "server killed"): "it only reconnects; its call waits for its own limit",
}
"""Where a foreign client hangs with every server: (client, transport, era, fault) -> what."""

DEAF = ("python", "http", "2026")
"""The client, transport and era whose subscription is never told that the connection was lost, whatever the server."""


@dataclass
class Held:
    """A client in the middle of things, and the server that it talks to."""

    matrix: Matrix
    cell: Cell
    place: Path
    where: str
    port: int
    hold: list[str]
    process: subprocess.Popen[bytes]
    server_pid: int

    @property
    def journal(self) -> Path:
        return self.place / "journal"

    def answer(self) -> None:
        """Let the client answer the question."""
        (self.place / "go").touch()

    def report(self, how: str, limit: float = NOTICED_LIMIT) -> dict[str, Any]:
        """The client's report: it must end by itself. Raises Fault, with `how` it came that it should."""
        try:
            output, _ = self.process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            raise Fault(f"{HUNG} {limit} s after {how}") from None
        steps = last_report(output.decode("utf-8", "replace"), self.place / "client.log")
        (self.place / "report.json").write_text(json.dumps(steps, indent=1))
        hung = [name for name, entry in steps.items() if entry.get("error", {}).get("type") == "Hang"]
        if hung:
            raise Fault(f"{HUNG} for {hung} after {how}")
        return steps

    def noticed(self, entry: str, otherwise: str) -> None:
        """The journal must have this entry in time."""
        if wait_for_entry(self.journal, entry, NOTICED_LIMIT) is None:
            raise Fault(f"{otherwise} within {NOTICED_LIMIT} s")


class Fault(Exception):
    """What did not hold."""


# ---------------------------------------------------------------- the deaths


def client_killed(held: Held) -> None:
    """SIGKILL to the client in the middle.

    A server that only it talked to ends by itself. Any other lives, has let go of what ended with the connection, and
    answers the next client.
    """
    cell = held.cell
    held.process.kill()
    held.process.wait()
    if cell.transport == "stdio":
        _await_end(held.server_pid, "the server did not end after its client's death")
        return
    if cell.era == "2026" or (cell.transport == "sse" and cell.server == "gemel"):
        held.noticed("cancelled cancel", "the handler was not cancelled")
    if cell.era == "2026" and cell.server == "gemel":
        held.noticed("ended subscriptions/listen", "the subscription was not ended")
    if not is_alive(held.server_pid):
        raise Fault("the server died with its client")
    _another(held, {"text": held.matrix.plan(cell)["text"]})


def server_killed(held: Held) -> None:
    """SIGKILL to the server: whatever was held ends, with an error or as lost, in time."""
    # A stateless question goes on with the next process, where the client starts one.
    restarts = held.cell.client == "gemel" and held.cell.transport == "stdio"
    os.kill(held.server_pid, signal.SIGKILL)
    killed_at = time.time()
    time.sleep(UNDER_WAY)
    held.answer()
    steps = held.report("the server's death", STARTED_LIMIT if restarts else NOTICED_LIMIT)
    if "error" not in steps["call"]:
        raise Fault(f"the call of a dead server ended without an error: {steps['call']}")
    if steps["call"]["ended_at"] - killed_at > NOTICED_LIMIT:
        raise Fault(f"the call of a dead server ended late: {steps['call']}")
    if "value" in steps.get("ask", {}) and not restarts:
        raise Fault(f"the question of a dead server ended without an error: {steps['ask']}")
    if "listen" in steps and steps["listen"].get("value", "lost") not in ("lost", "remote"):
        raise Fault(f"the subscription ended as if the server had wished so: {steps['listen']}")


def server_stopped(held: Held) -> None:
    """SIGTERM to the server: it ends its subscriptions with their result, and itself in time (SUB-09)."""
    os.kill(held.server_pid, signal.SIGTERM)
    _await_end(held.server_pid, "the server did not stop")
    steps = held.report("the server's end")
    if steps["listen"].get("value") != "graceful":
        raise Fault(f"the subscription was not ended by the server's own will: {steps['listen']}")


def server_replaced(held: Held) -> None:
    """SIGKILL to the server, and another process in its place.

    A stateless question goes on there, one of a session ends with an error; a client that keeps listening hears again.
    """
    os.kill(held.server_pid, signal.SIGKILL)
    _await_end(held.server_pid, "the server did not die")
    await_silence(held.port, NOTICED_LIMIT)
    server = held.matrix.servers[held.cell.server]
    with target(server, held.cell.transport, held.place, held.journal, held.port):
        held.answer()
        if "relisten" in held.hold:
            method = "subscriptions/listen" if held.cell.era == "2026" else "resources/subscribe"
            if wait_for_entry(held.journal, f"began {method}", AGAIN_LIMIT, 2) is None:
                raise Fault("the client did not listen again")
            _another(held, {"touch": step("call", "touch", {"uri": held.matrix.plan(held.cell)["watch"].arguments[0]})})
        steps = held.report("the server was replaced")
    if ("2 seats" in str(steps["ask"].get("value"))) != (held.cell.era == "2026"):
        raise Fault(f"the question did not end as it should: {steps['ask']}")
    if "relisten" in held.hold and steps["relisten"].get("value") != ["lost", "changed interop://watched"]:
        raise Fault(f"listening did not go on: {steps['relisten']}")


# ---------------------------------------------------------------- which deaths for which cell


Death = Callable[[Held], None]


def deaths(matrix: Matrix, cell: Cell) -> Iterator[tuple[str, Death, list[str]]]:
    """The deaths that a cell can show, and what is held meanwhile."""
    plan = matrix.plan(cell)
    listens = "watch" in plan
    is_ours = cell.client == "gemel"
    # Ours waits a minute for a session to come back, before it gives up what hangs on it.
    waits = is_ours and cell.transport == "http" and cell.era == "2025"
    is_deaf = (cell.client, cell.transport, cell.era) == DEAF
    tells = listens and (cell.era == "2026" or is_ours) and not waits and not is_deaf
    yield "client killed", client_killed, ["call", *(["listen"] if listens else []), "ask"]
    yield "server killed", server_killed, ["call", *(["listen"] if tells else []), *([] if waits else ["ask"])]
    if cell.server == "gemel" and cell.era == "2026":
        yield "server stopped", server_stopped, ["listen"]
    if cell.server == "gemel" and cell.transport == "http" and (is_ours or cell.era == "2026"):
        yield "server replaced", server_replaced, [*(["relisten"] if is_ours else []), "ask"]


def run_all(matrix: Matrix, cells: list[Cell], pool: Executor) -> list[str]:
    """All deaths of all cells; prints a line each and returns those that went wrong."""
    begin = time.monotonic()
    able = [
        cell
        for cell in cells
        if cell.client != "inspector" and not matrix.clients[cell.client].revision
        if matrix.servers[cell.server].has_journal
    ]
    wanted = [(cell, *death) for cell in able for death in deaths(matrix, cell)]
    bad: list[str] = []
    for (cell, name, _, _), problem in zip(wanted, pool.map(lambda one: _attempt(matrix, *one), wanted), strict=True):
        known = KNOWN.get((cell.client, cell.transport, cell.era, name)) if problem and HUNG in problem else None
        if problem is not None and known is None:
            bad.append(f"{cell} {name}")
        verdict = f"known: {known}" if problem and known else problem or "ok"
        print(f"{cell.client:<11}{cell.server:<23}{cell.transport:<6}{cell.era:<6}{name}: {verdict}", flush=True)
    print(f"faults: {len(wanted) - len(bad)} of {len(wanted)} held, {time.monotonic() - begin:.0f} s", flush=True)
    return bad


def _attempt(matrix: Matrix, cell: Cell, name: str, death: Death, hold: list[str]) -> str | None:
    try:
        with _held(matrix, cell, matrix.place(cell, name.replace(" ", "-") + "-"), hold) as held:
            death(held)
    except (Fault, RuntimeError, TimeoutError) as error:
        return f"WRONG: {error}"
    return None


# ---------------------------------------------------------------- the client in the middle


@contextmanager
def _held(matrix: Matrix, cell: Cell, place: Path, hold: list[str]) -> Iterator[Held]:
    """Start a server and a client, and wait until all that is to be held is under way."""
    port, journal = free_port(), place / "journal"
    with target(matrix.servers[cell.server], cell.transport, place, journal, port) as where:
        client = matrix.clients[cell.client]
        command = client.holding(cell.transport, cell.era, matrix.plan(cell), where, hold, place / "go")
        process = _start(command, place / "client.log")
        try:
            line = _first_line(process)
            if not line.startswith(b'{"server_pid"'):
                raise Fault(f"the client did not get as far: {line[:400]!r} {tail(place / 'client.log', 300)}")
            if "call" in hold and wait_for_entry(journal, "started cancel", STARTED_LIMIT) is None:
                raise Fault("the slow call did not reach the handler")
            pid = json.loads(line)["server_pid"]
            yield Held(matrix, cell, place, where, port, hold, process, pid)
        finally:
            stop(process, 0)


def _start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            start_new_session=True,
        )


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


def _another(held: Held, plan: Plan) -> None:
    """Another client of the same kind must be served."""
    cell = held.cell
    command = held.matrix.clients[cell.client].argv(cell.transport, cell.era, plan, held.where)
    log = held.place / "another.log"
    with log.open("wb") as file:
        done = subprocess.run(
            command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=file, timeout=60, check=False
        )
    steps = last_report(done.stdout.decode("utf-8", "replace"), log)
    for name in plan:
        if steps.get(name, {}).get("value", {}).get("is_error") is not False:
            raise Fault(f"the next client was not served: {json.dumps(steps)[:400]}")
