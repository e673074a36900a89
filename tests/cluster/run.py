"""`make cluster`: foreign clients of both eras use four processes behind haproxy, which are killed and restarted meanwhile.

Gemel's client and those foreign ones that have tasks start them and fetch their results; clients/tasks.py names them.

`python -m tests.cluster.run [--seconds 120] [--short] [--only sqlite-workers] [--clients official,typescript]`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from gemel.backends import ServerBackend, backend_for
from tests.cluster.keys import keys_in, without_server
from tests.cluster.processes import Cluster
from tests.cluster.steps import RAN_AGAIN, read_journal
from tests.interop import peers

CLIENTS = Path(__file__).with_name("clients")
LAYOUTS = ("sqlite-servers", "sqlite-workers", "redis-servers", "redis-workers")
ERAS = ("2025", "2026")
#: The kinds of clients, each with its eras.
KINDS = {
    **dict.fromkeys(("official", "fastmcp", "typescript", "tasks", "tasks-typescript"), ERAS),
    "tasks-python": ("2025",),
    "tasks-fastmcp": ("2026",),
}
#: What is installed for them.
PEERS = frozenset({"node", "peers", "fastmcp", "fastmcp-tasks", "mcp-1.26"})
#: Seconds between two kills, and those that everything has to settle before the last calls.
PAUSE = (1.0, 4.0)
SETTLE = 8.0


def command_of(kind: str, installed: peers.Peers) -> list[str]:
    """The command of a client, without its arguments."""
    if kind == "typescript":
        return [str(installed.node), str(peers.copy_script(CLIENTS / "typescript.mjs"))]
    if kind.startswith("tasks"):
        pythons = {"tasks-python": installed.python("mcp-1.26"), "tasks-fastmcp": installed.python("fastmcp-tasks")}
        node = [str(installed.node), str(peers.copy_script(CLIENTS / "typescript_tasks.mjs"))]
        command = node if kind == "tasks-typescript" else []
        return [str(pythons.get(kind, sys.executable)), str(CLIENTS / "tasks.py"), *command, kind]
    python = installed.peers_python if kind == "official" else installed.python("fastmcp")
    return [str(python), str(CLIENTS / "python.py"), kind]


class Client:
    """One foreign client: it connects, makes calls from a signal until a time, and tells what it counted."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self._name = name
        self._process = process

    @classmethod
    async def start(cls, command: list[str], directory: Path, name: str) -> Client:
        """Start it, and wait until it is connected."""
        with (directory / f"{name}.log").open("wb") as log:
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=log, limit=1 << 24)
        assert process.stdout is not None
        await process.stdout.readline()
        return cls(name, process)

    async def work(self, end: float, settle: float = SETTLE) -> dict[str, Any]:
        """Let it work until a time, and check everything after some more seconds. Returns what it counted."""
        output, _ = await self._process.communicate(f"{end} {end + settle}\n".encode())
        try:
            return dict(json.loads(output.decode().strip().splitlines()[-1]))
        except (IndexError, ValueError):
            text = f"the client ended with {self._process.returncode}"
            return {"client": self._name, "violations": [text], "usable": False}

    def kill(self) -> None:
        """End it, if it still runs."""
        if self._process.returncode is None:
            self._process.kill()


async def disturb(cluster: Cluster, seconds: float) -> list[str]:
    """Kill processes for a time; in the middle restart all of them, and Redis. Returns what could not be done."""
    begin = time.monotonic()
    pending = [(0.2, cluster.restart_redis), (0.5, cluster.roll)]
    troubles = []
    while (passed := time.monotonic() - begin) < seconds:
        step = pending.pop(0)[1] if pending and passed > pending[0][0] * seconds else cluster.kill
        try:
            await step()
        except (RuntimeError, OSError) as exc:
            troubles.append(f"{step.__name__}: {exc}")
        await asyncio.sleep(random.uniform(*PAUSE))
    return troubles


async def run_layout(layout: str, seconds: float, kinds: list[str], installed: peers.Peers, directory: Path) -> bool:
    """Run one layout, and print what came of it. Returns whether all holds."""
    store, _, processes = layout.partition("-")
    cluster = Cluster(directory, store, workers=processes == "workers")
    clients: list[Client] = []
    try:
        await cluster.start()
        for kind in kinds:
            for era in KINDS[kind]:
                name = f"{kind}-{era}"
                command = [*command_of(kind, installed), era, cluster.url, name]
                clients.append(await Client.start(command, directory, name))
        end = time.time() + seconds
        work = asyncio.gather(*(client.work(end) for client in clients))
        troubles = await disturb(cluster, seconds)
        reports = await work
        acknowledged = [key for report in reports for key in report.get("notes", ())]
        return await judge(layout, cluster, reports, acknowledged, troubles)
    finally:
        for client in clients:
            client.kill()
        await cluster.end()


async def judge(
    layout: str, cluster: Cluster, reports: list[dict[str, Any]], acknowledged: list[str], troubles: list[str]
) -> bool:
    """Compare what clients were told with what is stored, and print the figures."""
    store = ServerBackend(backend_for(cluster.backend), "cluster")
    lost = [key for key in acknowledged if await store.get(f"note:{key}") != f"text of {key}".encode()]
    await store.close()
    runs = Counter(cluster.journal.read_text().split())
    # A client whose connection broke may repeat a call: that is its own decision. Keys that were answered ran once.
    twice = [key for key in acknowledged if runs[key] > 1]
    print(f"\n{layout}: {len(cluster.kills)} processes killed, {cluster.restarts} rolling restarts", flush=True)
    violations = [f"acknowledged and not stored: {key}" for key in lost]
    keys = await keys_in(cluster.backend)
    violations += [f"a key without its server: {key[:60]!r}" for key in without_server(keys, "cluster")]
    violations += [f"ran {runs[key]} times: {key}" for key in twice] + troubles
    for report in reports:
        for pid, answered, why in report.get("missed", ()):
            after = min((killed - answered for other, killed in cluster.kills if other == pid), default=None)
            end = "lived on" if after is None else f"was killed {after:.2f} s after its answer"
            when = time.strftime("%H:%M:%S", time.localtime(answered))
            violations.append(
                f"{report['client']}: a change was not told, {when}; process {pid}, which announced it, {end}; {why}"
            )
        calls, errors = report.get("calls", {}), report.get("errors", {})
        done = ", ".join(f"{kind} {count}" for kind, count in sorted(calls.items()))
        print(
            f"  {report['client']:18} {done}; failed visibly {sum(errors.values())}; "
            f"subscriptions ended and said so {report.get('announced', 0)}; "
            f"told to a new stream {report.get('told_anew', 0)}; "
            f"its own breaks {report.get('broken', 0)}, HTTP sessions {report.get('sessions', 0)}; "
            f"{'usable' if report['usable'] else 'NOT USABLE'} at the end"
        )
        for text, count in sorted(errors.items(), key=lambda item: -item[1])[:4]:
            print(f"      {count:4} {text}")
        violations += [f"{report['client']}: {text}" for text in report["violations"]]
    answers = cluster.answers()
    of_servers = {
        status: count for (status, by_proxy), count in sorted(answers.items()) if not by_proxy and status >= 400
    }
    of_proxy = {status: count for (status, by_proxy), count in sorted(answers.items()) if by_proxy and status >= 400}
    print(f"  HTTP errors by status: of servers {of_servers}, of haproxy {of_proxy}")
    violations += [f"a server answered {status}" for status in of_servers if status >= 500 and status != 503]
    steps = read_journal(cluster.steps.read_text().splitlines())
    violations += steps.violations
    missed = sum(len(report.get("missed", ())) for report in reports)
    print(
        f"  keys in the store {len(keys)}, acknowledged {len(acknowledged)}, lost {len(lost)}, ran twice {len(twice)}; "
        f"changes not told {missed}"
    )
    tasks: Counter[str] = Counter()
    for report in reports:
        tasks.update(report.get("calls", {}))
    print(
        f"  tasks started {tasks['started']}, completed {tasks['completed']}, ended as outcome unknown {tasks['outcome unknown']}"
    )
    print(
        f"  steps of tasks recorded {steps.recorded}, ran again after that {steps.violations.count(RAN_AGAIN)}; "
        f"interrupted and repeated with the same key {steps.again}"
    )
    for text, count in Counter(violations).most_common(20):
        print(f"  VIOLATION ({count}) {text}")
    print(f"  {'all holds' if not violations else f'{len(violations)} violations'}", flush=True)
    return not violations


def main() -> int:
    """Run the layouts one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="for each layout")
    parser.add_argument("--short", action="store_true", help="two layouts for 20 seconds each")
    parser.add_argument("--only", choices=LAYOUTS)
    parser.add_argument("--clients", default=",".join(KINDS))
    parser.add_argument("--keep", action="store_true", help="keep the logs")
    options = parser.parse_args()
    missing = [program for program in ("haproxy", "redis-server") if shutil.which(program) is None]
    if missing:
        print(f"make cluster needs {' and '.join(missing)}: apt install haproxy redis-server", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # end everything that was started
    installed = peers.install(PEERS)
    layouts = [options.only] if options.only else list(LAYOUTS[1:3] if options.short else LAYOUTS)
    seconds = 20.0 if options.short else options.seconds
    good = True
    for layout in layouts:
        directory = Path(tempfile.mkdtemp(prefix=f"gemel-cluster-{layout}-"))
        good = asyncio.run(run_layout(layout, seconds, options.clients.split(","), installed, directory)) and good
        if options.keep:
            print(f"  the logs are in {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
