"""Tasks survive their processes: real processes over SQLite and Redis, which are killed, stopped and restarted."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.backends.redis_server import PROGRAM, RedisServer, needs_redis, redis_server
from tests.extensions.tasks.serving import DECLARED
from tests.extensions.tasks.worker import LEASE
from tests.ports import free_port
from tests.source import PACKAGE
from tests.transports.http_rig import modern

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform == "win32", reason="needs SIGSTOP and SIGTERM"),
    pytest.mark.timeout(240),
]
ROOT = PACKAGE.parents[1]
META = "io.modelcontextprotocol/clientCapabilities"


class Begun(NamedTuple):
    """A step that began or ended, in the order of the notes."""

    event: str
    number: int
    key: str
    pid: int


class Cluster:
    """Some processes of one server."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.directory = directory
        self.notes_file = directory / "notes"
        self.workers: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, port: int | None = None) -> int:
        """Start a process; it has a port that it keeps over restarts."""
        port = port or free_port()
        command = [sys.executable, "-m", "tests.extensions.tasks.worker", self.url, str(port), str(self.notes_file)]
        with (self.directory / f"log-{port}").open("ab") as log:
            self.workers[port] = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return port

    def end(self, port: int, number: signal.Signals = signal.SIGKILL) -> None:
        """End a process, and wait for its end."""
        worker = self.workers.pop(port)
        worker.send_signal(number)
        worker.wait(20)

    async def request(self, method: str, params: dict[str, Any], ports: list[int] | None = None) -> Any:
        """Ask any process; another one if it does not answer."""
        deadline = time.monotonic() + 60
        while True:
            port = random.choice(ports or list(self.workers) or [0])
            try:
                answer = await asyncio.to_thread(_post, port, method, params)
            except (OSError, http.client.HTTPException):
                answer = None
            if answer is not None:
                return answer
            assert time.monotonic() < deadline, f"{method} was not answered"
            await asyncio.sleep(0.05)

    async def submit(self, tool: str, **arguments: Any) -> str:
        """Start a task; its id."""
        result = await self.request("tools/call", {"name": tool, "arguments": arguments})
        task_id: str = result["result"]["taskId"]
        return task_id

    async def task(self, task_id: str) -> dict[str, Any]:
        """The state of a task."""
        result: dict[str, Any] = (await self.request("tasks/get", {"taskId": task_id}))["result"]
        return result

    async def until(self, task_id: str, *states: str, seconds: float = 90) -> dict[str, Any]:
        """The task, when it has one of these states."""
        deadline = time.monotonic() + seconds
        while (task := await self.task(task_id))["status"] not in states:
            assert time.monotonic() < deadline, task
            await asyncio.sleep(0.05)
        return task

    def notes(self) -> dict[str, list[Begun]]:
        """What the tasks did, by their names."""
        notes: dict[str, list[Begun]] = defaultdict(list)
        if self.notes_file.exists():
            for line in self.notes_file.read_text().splitlines():
                event, name, number, *key, pid = line.split()
                notes[name].append(Begun(event, int(number), "".join(key), int(pid)))
        return notes

    async def wait_for(self, condition: Callable[[dict[str, list[Begun]]], object]) -> None:
        """Until the notes say so."""
        deadline = time.monotonic() + 60
        while not condition(self.notes()):
            assert time.monotonic() < deadline, self.notes()
            await asyncio.sleep(0.01)

    def check_steps(self) -> int:
        """Check that no recorded step ran again. Returns how many that were not recorded did."""
        repeated = 0
        for name, notes in self.notes().items():
            numbers = [note.number for note in notes if note.event == "begin"]
            # Step n + 1 begins when n is recorded: from then on, nobody may begin n.
            assert numbers == sorted(numbers), (name, notes)
            for number in set(numbers):
                assert len({note.key for note in notes if note.number == number}) == 1, (name, number)
            repeated += len(numbers) - len(set(numbers))
        return repeated


def _post(port: int, method: str, params: dict[str, Any]) -> Any:
    headers, body = modern(method, params)
    body["params"]["_meta"][META] = DECLARED
    headers["Mcp-Name"] = params.get("name") or params["taskId"]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("POST", "/mcp", json.dumps(body), headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
    finally:
        connection.close()
    if "error" in answer and answer["error"]["code"] != -32602:  # the store is gone, or the server stops: ask again
        return None
    return answer


def squares(count: int) -> list[int]:
    return [number * number for number in range(count)]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis") as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=needs_redis)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    url = f"sqlite:///{tmp_path / 'state.db'}" if request.param == "sqlite" else request.getfixturevalue("redis").url
    running = Cluster(url, tmp_path)
    yield running
    for worker in running.workers.values():
        worker.kill()
        worker.wait()


async def test_tasks_go_on_elsewhere_whenever_their_process_is_killed(cluster: Cluster) -> None:
    chance = random.Random(5)
    for _ in range(3):
        cluster.start()
    tasks = {f"t{number}": await cluster.submit("work", name=f"t{number}", steps=6, pause=0.15) for number in range(9)}
    finished = asyncio.gather(*(cluster.until(task_id, "completed", "failed") for task_id in tasks.values()))
    kills = 0
    while not finished.done() and kills < 6:
        await asyncio.wait([finished], timeout=chance.uniform(0.3, 1.2))
        if not finished.done():
            port = chance.choice(list(cluster.workers))
            cluster.end(port)
            kills += 1
            cluster.start(port)
    for task in await finished:
        assert task["status"] == "completed", task
        assert task["result"]["structuredContent"] == squares(6)
    assert kills
    assert cluster.check_steps() <= 9 * kills  # each kill interrupts at most the step of each task


async def test_a_step_that_must_not_be_repeated_ends_its_task_with_an_unknown_outcome(cluster: Cluster) -> None:
    cluster.start()
    cluster.start()
    tasks = [await cluster.submit("work", name=f"t{number}", steps=8, pause=0.2, retry=False) for number in range(6)]
    # Steps follow each other at once: a process whose task has more of them ahead is killed in the middle of one.
    await cluster.wait_for(lambda notes: any(2 <= of_task[-1].number < 5 for of_task in notes.values()))
    busy = next(of_task[-1].pid for of_task in cluster.notes().values() if 2 <= of_task[-1].number < 6)
    cluster.end(next(port for port, worker in cluster.workers.items() if worker.pid == busy))
    ended = [await cluster.until(task_id, "completed", "failed") for task_id in tasks]
    notes = cluster.notes()
    unknown = 0
    for number, task in enumerate(ended):
        begun = [note.number for note in notes[f"t{number}"] if note.event == "begin"]
        assert len(begun) == len(set(begun))  # never again
        if task["status"] == "failed":
            unknown += 1
            assert "the outcome is unknown" in task["error"]["message"]
        else:
            assert task["result"]["structuredContent"] == squares(8)
    assert unknown  # some ran in the process that was killed


async def test_a_rolling_restart_interrupts_no_step(cluster: Cluster) -> None:
    ports = [cluster.start() for _ in range(2)]
    tasks = [await cluster.submit("work", name=f"t{number}", steps=25, pause=0.2, retry=False) for number in range(6)]
    await cluster.wait_for(lambda notes: len(notes) == 6)
    before = {worker.pid for worker in cluster.workers.values()}
    for port in ports:
        cluster.end(port, signal.SIGTERM)
        cluster.start(port)
        await cluster.request("tasks/get", {"taskId": tasks[0]}, [port])  # it serves
    for task_id in tasks:
        task = await cluster.until(task_id, "completed", "failed")
        assert task["status"] == "completed", task
        assert task["result"]["structuredContent"] == squares(25)
    assert cluster.check_steps() == 0
    assert {note.pid for of_task in cluster.notes().values() for note in of_task} - before


async def test_a_process_that_was_stopped_for_longer_than_its_lease_writes_nothing(cluster: Cluster) -> None:
    port = cluster.start()
    task_id = await cluster.submit("work", name="t", steps=12, pause=0.2)
    await cluster.wait_for(lambda notes: len(notes["t"]) > 2)
    stopped = cluster.workers.pop(port)
    stopped.send_signal(signal.SIGSTOP)
    try:
        cluster.start()
        await cluster.wait_for(lambda notes: any(note.pid != stopped.pid for note in notes["t"]))
        stopped.send_signal(signal.SIGCONT)
        resumed = len(cluster.notes()["t"])
        task = await cluster.until(task_id, "completed", "failed")
        assert task["result"]["structuredContent"] == squares(12)
        await asyncio.sleep(LEASE)
    finally:
        stopped.kill()
        stopped.wait()
    cluster.check_steps()
    late = [note for note in cluster.notes()["t"][resumed:] if note.pid == stopped.pid]
    assert all(note.event == "end" for note in late), late  # of the step that was running


async def test_a_task_that_waits_for_input_survives_its_process(cluster: Cluster) -> None:
    port = cluster.start()
    task_id = await cluster.submit("ask", name="t")
    await cluster.until(task_id, "input_required")
    cluster.end(port)
    other = cluster.start()
    task = await cluster.task(task_id)
    ((key, _),) = task["inputRequests"].items()
    await cluster.request("tasks/update", {"taskId": task_id, "inputResponses": {key: _accepted("yes")}})
    task = await cluster.until(task_id, "completed", "failed")
    assert task["result"]["content"][0]["text"] == "1 yes 2"
    assert cluster.check_steps() == 0
    cluster.end(other)
    cluster.start()
    assert (await cluster.task(task_id))["result"] == task["result"]  # results are kept


def _accepted(answer: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": answer}}


async def test_an_answer_or_a_cancellation_reaches_the_process_that_runs_the_task(cluster: Cluster) -> None:
    first, second = cluster.start(), cluster.start()
    asked = (await cluster.request("tools/call", {"name": "ask", "arguments": {"name": "a"}}, [first]))["result"][
        "taskId"
    ]
    working = await cluster.request(
        "tools/call", {"name": "work", "arguments": {"name": "w", "steps": 500, "pause": 0.1}}, [first]
    )
    task = await cluster.until(asked, "input_required")
    ((key, _),) = task["inputRequests"].items()
    answers = {"taskId": asked, "inputResponses": {key: _accepted("yes")}}
    await cluster.request("tasks/update", answers, [second])
    task = await cluster.until(asked, "completed", "failed", seconds=4)
    assert task["result"]["content"][0]["text"] == "1 yes 2"
    await cluster.wait_for(lambda notes: notes["w"])
    await cluster.request("tasks/cancel", {"taskId": working["result"]["taskId"]}, [second])
    assert (await cluster.task(working["result"]["taskId"]))["status"] == "cancelled"
    await asyncio.sleep(2.0)
    steps = len(cluster.notes()["w"])
    await asyncio.sleep(1.0)
    assert len(cluster.notes()["w"]) == steps  # it has stopped


async def test_a_task_that_kills_its_process_each_time_fails(cluster: Cluster) -> None:
    port = cluster.start()
    innocent = await cluster.submit("work", name="i", steps=10, pause=0.1)
    victim = await cluster.submit("die", name="d")
    ended = asyncio.ensure_future(cluster.until(victim, "failed"))
    while not ended.done():
        await asyncio.wait([ended], timeout=0.2)
        if cluster.workers[port].poll() is not None:
            cluster.start(port)
    assert (await ended)["error"]["message"] == "The processes that ran this task have died 3 times in a row"
    assert len(cluster.notes()["d"]) == 3
    task = await cluster.until(innocent, "completed", "failed")
    assert task["result"]["structuredContent"] == squares(10)
    cluster.check_steps()


@needs_redis
@pytest.mark.parametrize("fsync", ["always", "everysec"])
async def test_tasks_survive_that_redis_is_killed(tmp_path: Path, fast_disk: Path, fsync: str) -> None:
    """`everysec` loses nothing when only the process of Redis dies: what it has written is in the kernel."""
    assert PROGRAM is not None
    with redis_server(fast_disk / "redis", {"appendfsync": fsync}) as redis:
        cluster = Cluster(redis.url, tmp_path)
        try:
            for _ in range(2):
                cluster.start()
            tasks: list[str] = []

            async def keep_submitting() -> None:
                while True:
                    name = f"t{len(tasks)}"
                    tasks.append(await cluster.submit("work", name=name, steps=5, pause=0.2))
                    await asyncio.sleep(0.05)

            submitting = asyncio.ensure_future(keep_submitting())
            for gone in (0.0, 1.0):  # less than the lease; it starts with some delay, too
                before = len(tasks)
                while len(tasks) < before + 8:
                    await asyncio.wait([submitting], timeout=0.05)
                redis.kill()
                await asyncio.sleep(gone)
                redis.start()
            while len(tasks) < 25:
                await asyncio.wait([submitting], timeout=0.05)
            submitting.cancel()
            await asyncio.wait([submitting])
            for task_id in tasks:
                task = await cluster.until(task_id, "completed", "failed")
                assert task["status"] == "completed", task
            cluster.check_steps()
        finally:
            for worker in cluster.workers.values():
                worker.kill()
                worker.wait()
