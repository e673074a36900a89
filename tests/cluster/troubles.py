"""Two tenants on one store while everything goes wrong: `python -m tests.cluster.troubles [--seconds 20] [--only redis]`.

Two servers with names and users of their own share a SQLite file or a Redis. Meanwhile processes are killed, a proxy refuses
requests with 429 and 503, the store is full for two seconds, and Redis loses its last writes, as in a failover to a replica.
What was acknowledged is not lost, nothing runs twice, every call ends, and no tenant sees anything of the other. Tasks that ran
when Redis lost writes are counted: what they had recorded is gone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal

from gemel import CallTimeout, ChangesLost, Client, GemelError, ToolCallError
from gemel.backends import ServerBackend, SqliteBackend, backend_for
from tests.backends.redis_server import RedisServer
from tests.cluster.keys import keys_in, without_server
from tests.cluster.processes import ROOT, SERVER, Program, until_ready
from tests.cluster.round_robin import RoundRobin
from tests.cluster.steps import read_journal
from tests.ports import free_port

ERAS: tuple[Literal["2025", "2026"], ...] = ("2025", "2026")
STORES = ("sqlite", "redis")
TENANTS = ("alpha", "beta")
#: Processes of each tenant.
COUNT = 2
#: One of so many requests is refused by the proxy, and of answers to questions.
REFUSED = 8
REFUSED_ANSWERS = 3
#: Seconds for which a store is full; of writes that a Redis loses; between two kills.
FULL = 2.0
LOST = 0.3
PAUSE = (0.5, 2.0)
#: Seconds in which a call has to end, a change to be told, a task to end, and a request for its result, which is repeated.
CALL_SECONDS = 45.0
FETCH_SECONDS = 15.0
HINT_SECONDS = 20.0
TASK_SECONDS = 60.0
#: A session that has lost changes is told of all that it watches: so often at most.
LOSSES = 8
#: How large the SQLite file may become.
MAX_BYTES = 8 << 20


class Store:
    """A store that can be full, and lose its last writes."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.redis = None if kind == "sqlite" else RedisServer(directory / "redis", {"appendonly": "no"})
        self._path = directory / "cluster.db"
        self.url = f"sqlite:///{self._path}" if self.redis is None else f"{self.redis.url}/0"
        #: When it lost writes: since when, and until when, in seconds since 1970.
        self.gap = (float("inf"), float("-inf"))

    async def be_full(self) -> None:
        """Refuse writes for a while."""
        if self.redis is not None:
            await asyncio.to_thread(self.redis.ask, "CONFIG", "SET", "maxmemory", 1)
            await asyncio.sleep(FULL)
            await asyncio.to_thread(self.redis.ask, "CONFIG", "SET", "maxmemory", 0)
            return
        others = ServerBackend(SqliteBackend(self._path), "filler")
        fillers = [f"filler {number}" for number in range(MAX_BYTES >> 20)]
        for name in fillers:
            await others.set(name, bytes(1 << 20), ttl=3600)
        await asyncio.sleep(FULL)
        for name in fillers:
            await others.delete(name)
        await others.close()

    async def lose_writes(self) -> None:
        """Lose what was written in the last moment."""
        assert self.redis is not None
        since = time.time()
        await asyncio.to_thread(self.redis.ask, "SAVE")
        await asyncio.sleep(LOST)
        self.redis.kill()
        await asyncio.to_thread(self.redis.start)
        self.gap = (since, time.time())


class Tenant:
    """The processes of one server behind a proxy, its clients, and what became of their calls."""

    def __init__(self, name: str, store: Store, directory: Path) -> None:
        self.name = name
        self._store = store
        self._directory = directory / name
        self._directory.mkdir()
        self.journal = self._directory / "journal"
        self._ports = [free_port() for _ in range(COUNT)]
        environment = {
            "CLUSTER_NAME": name,
            "CLUSTER_BACKEND": store.url,
            "CLUSTER_JOURNAL": str(self.journal),
            "CLUSTER_MAX_BYTES": str(MAX_BYTES),
            "PYTHONPATH": str(ROOT / "src"),
        }
        command = (sys.executable, "-m", "gemel", "run", str(SERVER), "--http", "--port")
        self._processes = [
            Program([*command, str(port)], self._directory, str(port), environment) for port in self._ports
        ]
        self._proxy = RoundRobin(self._ports, refuses=self._refuses)
        #: Which processes were killed, and when, in seconds since 1970.
        self._kills: list[tuple[int, float]] = []
        self.refused = 0
        self.told_of_other = 0
        self._clients: list[Client] = []
        self._told = {era: asyncio.Event() for era in ERAS}
        self._number = 0
        #: Keys of notes, and ids of tasks with their keys, and when they were acknowledged.
        self.notes: dict[str, float] = {}
        self.tasks: dict[str, tuple[str, float]] = {}
        #: Keys of tasks, and when they ended.
        self.ended: dict[str, float] = {}
        self.calls: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.violations: list[str] = []

    def _refuses(self, request: bytes) -> int:
        """Refuse some messages, most of all answers to the questions of a server."""
        if not request.startswith(b"POST") or b'"initialize"' in request or b"server/discover" in request:
            return 0
        is_answer = b'"method"' not in request
        if random.random() * (REFUSED_ANSWERS if is_answer else REFUSED) >= 1:
            return 0
        self.refused += 1
        return random.choice((429, 503))

    async def start(self, stack: AsyncExitStack) -> None:
        """Start the processes, and connect clients of both eras."""
        for process in self._processes:
            process.start()
        for port in self._ports:
            await until_ready(port)
        await stack.enter_async_context(self._proxy.running())
        for era in ERAS:
            client = Client(
                f"http://127.0.0.1:{self._proxy.port}/mcp", era=era, on_elicit=lambda form: {"value": "yes"}
            )
            self._clients.append(await stack.enter_async_context(client))

    async def end(self) -> None:
        """End the processes."""
        for process in self._processes:
            await process.end()

    async def kill(self) -> None:
        """Kill one of the processes, which comes back."""
        number = random.randrange(COUNT)
        self._kills.append((self._processes[number].pid, time.time()))
        await self._processes[number].end(signal.SIGKILL)
        self._processes[number].start()
        await until_ready(self._ports[number])

    # ---------------------------------------------------------------- calls

    async def work(self, end: float, other: Tenant) -> None:
        """Make calls until a time, and wait for what they began."""
        listening = [asyncio.ensure_future(self._listen(client, other)) for client in self._clients]
        await asyncio.gather(
            *(
                self._repeat(kind, client, end, other)
                for client in self._clients
                for kind in (self._note, self._ask, self._change, self._job, self._job)
            )
        )
        for client in self._clients:  # it is usable at the end
            for kind in (self._note, self._ask, self._change, self._job):
                if not await self._repeat(kind, client, 0.0, other):
                    self.violations.append(f"{kind.__name__[1:]} does not work at the end")
        for one in listening:
            one.cancel()
        if self.told_of_other > LOSSES:
            self.violations.append(f"changes of another tenant were told: {self.told_of_other}")

    async def _repeat(self, kind: Any, client: Client, end: float, other: Tenant) -> bool:
        """Make calls of a kind until a time, and until one succeeds. Returns whether one has."""
        tries, good = 10, False
        while time.time() < end or (tries and not good):
            tries -= 1
            name = kind.__name__[1:]
            self._number += 1
            try:
                async with asyncio.timeout(TASK_SECONDS + 2 * CALL_SECONDS):
                    await kind(client, f"{self.name}-{name}-{self._number}", other)
                good = True
                self.calls[name] += 1
            except (TimeoutError, CallTimeout) as exc:
                self.violations.append(f"{name} of {client.era} does not end: {str(exc)[:100]}")
            except GemelError as exc:  # visible to whoever calls: that is allowed meanwhile
                self.errors[f"{name}: {type(exc).__name__} {str(exc)[:80]}"] += 1
            await asyncio.sleep(random.uniform(0.02, 0.2))
        return good

    async def _note(self, client: Client, key: str, _other: Tenant) -> None:
        await client.call_tool("note", {"key": key, "text": f"text of {key}"}, total=CALL_SECONDS)
        self.notes[key] = time.time()

    async def _ask(self, client: Client, key: str, _other: Tenant) -> None:
        text = (await client.call_tool("ask", {"key": key}, total=CALL_SECONDS)).text
        if text != f"{key}=yes":
            self.violations.append(f"a wrong answer to a question: {text[:80]}")

    async def _change(self, client: Client, _key: str, _other: Tenant) -> None:
        told = self._told[client.era]
        told.clear()
        pid = int((await client.call_tool("change", {"name": self.name}, total=CALL_SECONDS)).text)
        answered = time.time()
        try:
            async with asyncio.timeout(HINT_SECONDS):
                await told.wait()
        except TimeoutError:
            if any(killed == pid and moment - answered < FULL + 1 for killed, moment in self._kills):
                self.calls["changes of a killed process that were not told"] += 1  # the store was full, perhaps
            else:
                self.violations.append(f"a change was not told to a client of {client.era}")

    async def _job(self, client: Client, key: str, other: Tenant) -> None:
        tool = random.choice(("job", "job_with_a_question"))
        started = await client.call_tool(tool, {"key": key, "steps": 2}, task=True, total=CALL_SECONDS)
        identity = str(started.id)
        self.tasks[identity] = key, time.time()
        await other.may_not_have(identity)
        status = "unknown"
        end, expected = time.monotonic() + TASK_SECONDS, f"{key}: 0 1{' yes' if tool != 'job' else ''}"
        while time.monotonic() < end:
            try:
                async with asyncio.timeout(FETCH_SECONDS):
                    task = await client.tasks.resume(identity)
                    status = task.status
                    text = (await task.result()).text
                if text != expected:
                    self.violations.append(f"a wrong result of a task: {text[:80]}")
                self.ended[key] = time.time()
                return
            except TimeoutError:
                if self._may_have_lost(identity) and time.monotonic() > end - TASK_SECONDS / 2:
                    break
            except GemelError as exc:
                if isinstance(exc, ToolCallError) or "Unknown task" in str(exc):
                    if not self._may_have_lost(identity):
                        self.violations.append(f"an acknowledged task has no result: {key}: {exc}")
                    self.calls["tasks that failed since writes were lost"] += self._may_have_lost(identity)
                    return
                self.errors[f"result: {type(exc).__name__} {str(exc)[:80]}"] += 1
            await asyncio.sleep(0.3)
        if self._may_have_lost(identity):
            self.calls["tasks without an end since writes were lost"] += 1
        else:
            self.violations.append(f"a task did not end: {key}, {tool} in {client.era}: {status}")

    def _may_have_lost(self, identity: str) -> bool:
        """Whether the store may have lost what it was told of a task, which ran at that moment."""
        return self.tasks[identity][1] <= self._store.gap[1]

    async def may_not_have(self, identity: str) -> None:
        """The task of another tenant is unknown here."""
        for client in self._clients:
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    await client.tasks.resume(identity)
                self.violations.append("a task of another tenant is known")
            except GemelError as exc:
                self.calls["unknown task of another"] += "Unknown task" in str(exc)

    async def _listen(self, client: Client, other: Tenant) -> None:
        told = self._told[client.era]
        while True:
            with contextlib.suppress(GemelError):
                async with client.listen(resources=[f"cluster://{self.name}", f"cluster://{other.name}"]) as changes:
                    told.set()  # what changed before it was open, nobody is told
                    async for change in changes:
                        if not isinstance(change, ChangesLost):
                            self.told_of_other += change.uri != f"cluster://{self.name}"
                        told.set()
            told.set()  # it has ended, and said so
            await asyncio.sleep(0.2)

    # ---------------------------------------------------------------- the end

    async def judge(self) -> None:
        """Compare what clients were told with what is stored."""
        since, until = self._store.gap
        backend = ServerBackend(backend_for(self._store.url), self.name)
        for key, acknowledged in self.notes.items():
            lost = await backend.get(f"note:{key}") != f"text of {key}".encode()
            if lost and not since - 1 <= acknowledged <= until:
                self.violations.append(f"acknowledged and not stored: {key}")
        await backend.close()
        runs = Counter(self.journal.read_text().split())
        self.violations += [f"ran {count} times: {key}" for key, count in runs.items() if count > 1]
        # Nobody can know of a step that it has run if the store has forgotten it.
        unsure = {key for key, begun in self.tasks.values() if begun <= until and self.ended.get(key, until) >= since}
        lines = self.journal.with_suffix(".steps").read_text().splitlines()
        self.violations += read_journal(line for line in lines if line.split()[1] not in unsure).violations


async def disturb(tenants: list[Tenant], store: Store, seconds: float) -> None:
    """Kill processes for a time; meanwhile the store is full, and has lost its last writes."""
    begin = time.monotonic()

    async def kill() -> None:
        while time.monotonic() < begin + seconds:
            await asyncio.gather(*(tenant.kill() for tenant in tenants))
            await asyncio.sleep(random.uniform(*PAUSE))

    killing = asyncio.ensure_future(kill())
    await asyncio.sleep(seconds * 0.3)
    await store.be_full()
    await asyncio.sleep(seconds * 0.3)
    if store.redis is not None:
        await store.lose_writes()
    await killing


async def run(kind: str, seconds: float, directory: Path) -> list[str]:
    """Run with one kind of store, and print what came of it. Returns what must not happen."""
    store = Store(kind, directory)
    if store.redis is not None:
        await asyncio.to_thread(store.redis.start)
    tenants = [Tenant(name, store, directory) for name in TENANTS]
    alpha, beta = tenants
    try:
        async with AsyncExitStack() as stack:
            for tenant in tenants:
                await tenant.start(stack)
            working = asyncio.gather(
                *(one.work(time.time() + seconds, other) for one, other in ((alpha, beta), (beta, alpha)))
            )
            await disturb(tenants, store, seconds * 0.8)
            await working
            for tenant in tenants:
                await tenant.judge()
        keys = await keys_in(store.url)
    finally:
        for tenant in tenants:
            await tenant.end()
        if store.redis is not None:
            store.redis.kill()
    for name in (*TENANTS, "filler"):
        keys = without_server(keys, name)
    violations = [f"a key without its server: {key[:60]!r}" for key in keys]
    print(f"\ntroubles on {kind}", flush=True)
    for tenant in tenants:
        done = ", ".join(f"{name} {count}" for name, count in sorted(tenant.calls.items()))
        print(f"  {tenant.name}: {done}; refused by the proxy {tenant.refused}")
        for text, count in tenant.errors.most_common(6):
            print(f"      {count:4} {text}")
        violations += [f"{tenant.name}: {text}" for text in tenant.violations]
    for text, count in Counter(violations).most_common(20):
        print(f"  VIOLATION ({count}) {text}")
    print(f"  {'all holds' if not violations else f'{len(violations)} violations'}", flush=True)
    return violations


def main() -> int:
    """Run with each kind of store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of calls, for each store")
    parser.add_argument("--only", choices=STORES)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # end everything that was started
    violations = []
    for kind in [options.only] if options.only else STORES:
        directory = Path(tempfile.mkdtemp(prefix=f"gemel-troubles-{kind}-"))
        violations += asyncio.run(run(kind, options.seconds, directory))
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
