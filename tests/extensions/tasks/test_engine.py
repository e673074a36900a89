"""The engine that runs tasks on the processes of a server: engines of one store stand for processes."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gemel import BackendError, Client, Context, DefinitionError, Overloaded, Server, Tasks
from gemel.backends import Backend, MemoryBackend, ServerBackend, SqliteBackend
from gemel.backends.keys import make_key
from gemel.backends.lease import hold_lease
from gemel.extensions.tasks import BackendEngine, TaskEngine, TaskRunner
from gemel.extensions.tasks.index import BUCKETS, FORMAT, OpenTask

#: Seconds of a lease with which engines look at the whole index every 0.2 seconds.
SHORT = 0.6


class Runner:
    """Executes tasks: what `body` does, and counts."""

    def __init__(self, body: Callable[[str], Awaitable[None]] | None = None) -> None:
        self.body = body
        self.runs: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        self.failed: dict[str, str] = {}
        self.ended: Counter[str] = Counter()
        self.at_once = self.most_at_once = 0

    async def run(self, task_id: str) -> None:
        self.runs[task_id] += 1
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            if self.body is not None:
                await self.body(task_id)
        finally:
            self.at_once -= 1
        self.ended[task_id] += 1

    def woken(self, task_id: str) -> None:
        self.told[task_id] += 1

    def release(self, task_id: str) -> bool:
        return False

    async def progress(self, task_id: str) -> int:
        return 0

    async def fail(self, task_id: str, message: str) -> None:
        self.failed[task_id] = message


@pytest.fixture(params=["memory", "sqlite"])
async def make(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Callable[[], Backend]]:
    """Makes backends of one store."""
    made: list[Backend] = []
    memory = MemoryBackend()

    def backend() -> Backend:
        made.append(memory if request.param == "memory" else SqliteBackend(tmp_path / "state.db"))
        return made[-1]

    yield backend
    for other in made:
        await other.close()


@asynccontextmanager
async def running(backend: Backend, runner: Runner, **options: Any) -> AsyncIterator[BackendEngine]:
    engine = BackendEngine(backend, **options)
    await engine.start(runner)
    try:
        yield engine
    finally:
        await engine.close()


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def key_of(bucket: int) -> str:
    return make_key("task-engine", str(bucket))


async def entries_of(backend: Backend) -> dict[str, Any]:
    """The index in the store."""
    entries: dict[str, Any] = {}
    for number in range(BUCKETS):
        data = await backend.get(key_of(number))
        if data is not None:
            entries |= msgspec.msgpack.decode(data)[1]
    return entries


async def empty(backend: Backend) -> None:
    deadline = time.monotonic() + 20
    while await entries_of(backend):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


Make = Callable[[], Backend]


async def test_a_task_runs_once_and_leaves_nothing_behind(make: Make) -> None:
    backend, runner = make(), Runner()
    async with running(backend, runner) as engine:
        await asyncio.gather(*(engine.submit(f"task{number}") for number in range(50)))
        await until(lambda: len(runner.ended) == 50)
        await empty(backend)
    assert set(runner.runs.values()) == {1}


async def test_a_task_is_stored_before_submit_returns_and_runs_when_there_is_a_process(make: Make) -> None:
    backend, runner = make(), Runner()
    await BackendEngine(backend).submit("task")
    assert list(await entries_of(backend)) == ["task"]
    async with running(backend, runner):
        await until(lambda: runner.ended["task"])


async def test_concurrency_bounds_the_tasks_of_a_process_and_others_take_the_rest(make: Make) -> None:
    async def body(task_id: str) -> None:
        await asyncio.sleep(0.02)

    first, second = Runner(body), Runner(body)
    async with running(make(), first, concurrency=3) as engine, running(make(), second, concurrency=3):
        await asyncio.gather(*(engine.submit(f"task{number}") for number in range(40)))
        await until(lambda: (first.ended + second.ended).total() == 40)
    assert set((first.runs + second.runs).values()) == {1}
    assert first.most_at_once <= 3
    assert second.most_at_once <= 3
    assert first.runs
    assert second.runs


async def test_tasks_that_wait_for_input_leave_room_for_others(make: Make) -> None:
    """And go on as soon as there is room again, in the order in which their input came."""
    inputs: dict[str, asyncio.Event] = {f"asks{number}": asyncio.Event() for number in range(6)}
    order: list[str] = []
    work = asyncio.Event()

    async def body(task_id: str) -> None:
        if task_id in inputs:
            async with engine.waiting(task_id):
                await inputs[task_id].wait()
            order.append(task_id)
        else:
            await work.wait()

    runner = Runner(body)
    async with running(make(), runner, concurrency=2) as engine:
        for task_id in inputs:
            await engine.submit(task_id)
        await until(lambda: len(runner.runs) == 6)
        for task_id in ("long1", "long2"):
            await engine.submit(task_id)
        await until(lambda: len(runner.runs) == 8)
        for event in inputs.values():
            event.set()
        await engine.submit("late")
        await asyncio.sleep(0.1)
        assert (order, runner.runs["late"]) == ([], 0)
        work.set()
        await until(lambda: len(runner.ended) == 9)
    assert order == list(inputs)


async def test_a_task_that_waits_for_room_can_be_cancelled(make: Make) -> None:
    go, answered = asyncio.Event(), asyncio.Event()

    async def body(task_id: str) -> None:
        if task_id == "asks":
            try:
                async with asyncio.timeout(0.2), engine.waiting(task_id):
                    await answered.wait()
            except TimeoutError:
                return
        await go.wait()

    runner = Runner(body)
    async with running(make(), runner, concurrency=1) as engine:
        await engine.submit("asks")
        await until(lambda: runner.runs["asks"])
        await engine.submit("busy")
        await until(lambda: runner.runs["busy"])
        answered.set()
        await until(lambda: runner.ended["asks"])
        assert not runner.ended["busy"]
        go.set()
        await until(lambda: runner.ended["busy"])
        await engine.submit("last")
        await until(lambda: runner.ended["last"])


async def test_no_more_tasks_begin_while_many_wait_for_input(make: Make) -> None:
    answered = asyncio.Event()

    async def body(task_id: str) -> None:
        async with engine.waiting(task_id):
            await answered.wait()

    runner = Runner(body)
    async with running(make(), runner, concurrency=1, waiting=3) as engine:
        for number in range(10):
            await engine.submit(f"task{number}")
        await until(lambda: len(runner.runs) == 3)
        await asyncio.sleep(0.1)
        assert len(runner.runs) == 3
        answered.set()
        await until(lambda: len(runner.ended) == 10)


async def test_names_keep_the_tasks_of_servers_apart(make: Make) -> None:
    runner, other = Runner(), Runner()
    one, two = ServerBackend(make(), "a"), ServerBackend(make(), "b")
    async with running(one, runner) as engine, running(two, other):
        await engine.submit("task")
        await until(lambda: runner.ended["task"])
        await asyncio.sleep(0.5)
    assert not other.runs


async def test_a_task_that_returned_runs_again_when_it_is_woken(make: Make) -> None:
    """So it waits for input without anything that is held for it."""
    backend, runner, elsewhere = make(), Runner(), BackendEngine(make())
    async with running(backend, runner) as engine:
        await engine.submit("task")
        await until(lambda: runner.ended["task"])
        await empty(backend)
        await engine.wake("task")
        await until(lambda: runner.ended["task"] == 2)
        await empty(backend)
        await elsewhere.wake("task")
        await until(lambda: runner.ended["task"] == 3)


async def test_a_running_task_is_told_that_it_was_woken_and_runs_once_more(make: Make) -> None:
    go = asyncio.Event()

    async def body(task_id: str) -> None:
        await go.wait()

    backend, runner, other = make(), Runner(body), Runner(body)
    async with running(backend, runner) as engine:
        await engine.submit("task")
        await until(lambda: runner.runs["task"])
        await engine.wake("task")
        assert runner.told["task"] == 1
        async with running(make(), other) as elsewhere:
            await elsewhere.wake("task")
            await until(lambda: runner.told["task"] >= 2)
        go.set()
        await until(lambda: runner.ended["task"] == 2)
        await empty(backend)
    assert (runner.runs["task"], other.runs["task"]) == (2, 0)


async def test_no_wake_is_lost_at_the_end_of_a_run(make: Make) -> None:
    """An answer that is stored before `wake` is seen by a run that begins after it."""
    answers, seen = 0, 0

    async def body(task_id: str) -> None:
        nonlocal seen
        await asyncio.sleep(0)
        seen = answers
        await asyncio.sleep(0)

    backend, runner = make(), Runner(body)
    async with running(backend, runner) as engine, running(make(), runner) as other:
        for number in range(100):
            answers += 1
            await (engine, other)[number % 2].wake("task")
            if number % 10 == 9:
                await empty(backend)
                assert seen == answers


async def test_a_process_that_closes_leaves_its_tasks_to_others_at_once(make: Make) -> None:
    interrupted: list[str] = []

    async def body(task_id: str) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            interrupted.append(task_id)
            raise

    first, second = Runner(body), Runner()
    backend = make()
    async with running(make(), first, lease=30.0) as engine:
        for number in range(5):
            await engine.submit(f"task{number}")
        await until(lambda: len(first.runs) == 5)
        async with running(make(), second, lease=30.0, concurrency=2):
            await asyncio.sleep(0.1)
            await engine.close()
            assert len(interrupted) == 5
            await until(lambda: len(second.ended) == 5)  # long before the lease could end
            await empty(backend)
    assert set(second.runs.values()) == {1}


async def test_a_run_that_ends_during_the_grace_counts(make: Make) -> None:
    async def body(task_id: str) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)

    backend, runner, other = make(), Runner(body), Runner()
    async with running(backend, runner) as engine:
        await engine.submit("task")
        await until(lambda: runner.runs["task"])
    assert runner.ended["task"] == 1
    assert await entries_of(backend) == {}
    async with running(make(), other):
        await asyncio.sleep(0.5)
    assert not other.runs


async def test_a_run_that_the_store_interrupts_is_repeated(make: Make) -> None:
    async def body(task_id: str) -> None:
        if runner.runs[task_id] < 3:
            raise BackendError("gone")

    runner = Runner(body)
    async with running(make(), runner, tries=1) as engine:
        await engine.submit("task")
        await until(lambda: runner.ended["task"])
    assert runner.runs["task"] == 3
    assert not runner.failed


async def test_a_task_that_can_never_be_run_fails(make: Make) -> None:
    async def body(task_id: str) -> None:
        raise RuntimeError("broken")

    backend, runner = make(), Runner(body)
    async with running(backend, runner, tries=2) as engine:
        await engine.submit("task")
        await until(lambda: runner.failed)
        await empty(backend)
    assert runner.failed == {"task": "The task could not be run: 2 tries failed"}


async def test_a_task_does_not_inherit_the_context_of_its_request(make: Make) -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")
    seen: list[str] = []

    async def body(task_id: str) -> None:
        seen.append(request.get())

    runner = Runner(body)
    async with running(make(), runner) as engine:
        await asyncio.sleep(0.1)
        request.set("a request")
        await engine.submit("task")
        await until(lambda: seen)
    assert seen == ["none"]


async def test_too_many_tasks_are_refused() -> None:
    backend = MemoryBackend()
    engine = BackendEngine(backend, most=BUCKETS)
    outcomes = await asyncio.gather(
        *(engine.submit(f"task{number}") for number in range(2 * BUCKETS)), return_exceptions=True
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, Overloaded)]
    assert refused
    assert len(await entries_of(backend)) == 2 * BUCKETS - len(refused) <= BUCKETS


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (msgspec.msgpack.encode((FORMAT + 1, {})), f"format {FORMAT + 1}"),
        (b"\xc1", "damaged"),
    ],
)
async def test_a_store_that_can_not_be_read_is_refused(data: bytes, message: str) -> None:
    backend = MemoryBackend()
    for number in range(BUCKETS):
        await backend.set(key_of(number), data)
    with pytest.raises(BackendError, match=message):
        await BackendEngine(backend).submit("task")
    assert await backend.get(key_of(0)) == data


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"lease": 0.0}, {"tries": 0}, {"most": 0}, {"grace": -1.0}])
def test_numbers_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        BackendEngine(MemoryBackend(), **options)


async def test_an_engine_is_started_once_at_a_time_and_again_after_its_end(make: Make) -> None:
    runner, backend = Runner(), make()
    engine = BackendEngine(backend)
    await engine.start(runner)
    with pytest.raises(DefinitionError):
        await engine.start(runner)
    await engine.close()
    await engine.submit("task")
    await engine.start(runner)
    await until(lambda: runner.ended["task"])
    await engine.close()
    await engine.close()


class Gone(MemoryBackend):
    """A store that can't be reached for a while."""

    gone = False

    async def replace(self, key: str, expected: bytes | None, value: bytes, *, ttl: float | None = None) -> bool:
        if self.gone:
            raise BackendError("gone")
        return await super().replace(key, expected, value, ttl=ttl)


async def test_a_store_that_is_gone_refuses_new_tasks_and_loses_none() -> None:
    backend, runner = Gone(), Runner()
    async with running(backend, runner) as engine:
        await engine.submit("before")
        await until(lambda: runner.runs["before"])
        backend.gone = True
        with pytest.raises(BackendError):
            await engine.submit("refused")
        backend.gone = False
        await engine.submit("after")
        await until(lambda: runner.ended["after"])
        await empty(backend)
    assert runner.runs == {"before": 1, "after": 1}
    assert not engine._loops.here()._owned


class Uncertain(MemoryBackend):
    """Its connection breaks after the store has done what it was asked for."""

    shared = True
    breaks = False

    async def replace(self, key: str, expected: bytes | None, value: bytes, *, ttl: float | None = None) -> bool:
        done = await super().replace(key, expected, value, ttl=ttl)
        if self.breaks:
            self.breaks = False
            raise BackendError("the reply was lost")
        return done


async def test_a_task_whose_submission_is_uncertain_is_not_forgotten() -> None:
    backend, runner = Uncertain(), Runner()
    async with running(backend, runner, lease=SHORT) as engine:
        await engine.submit("first")
        await until(lambda: runner.ended["first"])
        backend.breaks = True
        with pytest.raises(BackendError):
            await engine.submit("task")
        assert "task" in await entries_of(backend)
        await until(lambda: runner.ended["task"])
        await empty(backend)
    assert runner.runs["task"] == 1


async def test_a_process_that_loses_a_suspected_task_to_another_runs_the_next_one() -> None:
    """A task whose processes have died is run one at a time; one that another process runs does not count."""
    suspected = OpenTask(deaths=2)
    keys = {task_id: key_of(zlib.crc32(task_id.encode()) % BUCKETS) for task_id in ("first", "second")}
    assert len(set(keys.values())) == 2

    def index(task_id: str, entry: OpenTask) -> bytes:
        return msgspec.msgpack.encode((FORMAT, {task_id: entry}))

    class Overtaken(MemoryBackend):
        shared = True
        faster: bytes | None = index("first", OpenTask("other", deaths=2))

        async def replace(self, key: str, expected: bytes | None, value: bytes, *, ttl: float | None = None) -> bool:
            if key == keys["first"] and self.faster is not None:
                faster, self.faster = self.faster, None
                await self.set(key, faster)
            return await super().replace(key, expected, value, ttl=ttl)

    backend, runner = Overtaken(), Runner()
    await backend.set(keys["first"], index("first", suspected))
    async with (
        backend.lease(f"{key_of(0).rpartition(':')[0]}:process:other", ttl=60),
        running(backend, runner, lease=SHORT),
    ):
        await until(lambda: backend.faster is None)
        await backend.set(keys["second"], index("second", suspected))
        await until(lambda: runner.ended["second"])
    assert runner.runs == {"second": 1}


async def test_a_cancelled_submission_takes_no_other_with_it() -> None:
    class Slow(MemoryBackend):
        shared = True

        async def replace(self, key: str, expected: bytes | None, value: bytes, *, ttl: float | None = None) -> bool:
            await asyncio.sleep(0.02)
            return await super().replace(key, expected, value, ttl=ttl)

    backend, runner = Slow(), Runner()
    async with running(backend, runner, lease=SHORT) as engine:
        await asyncio.sleep(0.1)
        submissions = [asyncio.create_task(engine.submit(f"task{number}")) for number in range(100)]
        await asyncio.sleep(0.01)
        for submission in submissions[::2]:
            submission.cancel()
        outcomes = await asyncio.gather(*submissions, return_exceptions=True)
        assert all(outcome is None for outcome in outcomes[1::2])
        await until(lambda: all(runner.ended[f"task{number}"] for number in range(1, 100, 2)))
        await empty(backend)
    assert set(runner.runs.values()) == {1}


async def test_an_engine_closes_when_there_is_something_to_look_at() -> None:
    engine = BackendEngine(MemoryBackend())
    await engine.start(Runner())
    await asyncio.sleep(0.01)
    engine._loops.here()._look.set()  # the wait of the engine ends, and is cancelled, in the same turn of the loop
    async with asyncio.timeout(20):
        await engine.close()


class TaskGroupEngine:
    """The smallest engine: tasks run at once, in the process that made them."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[None]] = {}
        self._runner: TaskRunner | None = None

    async def start(self, runner: TaskRunner) -> None:
        self._runner = runner

    async def submit(self, task_id: str) -> None:
        assert self._runner is not None
        self._running[task_id] = asyncio.create_task(self._runner.run(task_id))

    async def wake(self, task_id: str) -> None:
        assert self._runner is not None
        self._runner.woken(task_id)

    async def restore(self, task_id: str) -> None:
        """Nothing is lost in memory."""

    def waiting(self, task_id: str) -> contextlib.AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()

    async def close(self) -> None:
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_tasks_run_on_an_engine_of_the_user(era: Any) -> None:
    engine: TaskEngine = TaskGroupEngine()
    server: Server[Any] = Server("jobs")
    server.add_extension(Tasks(engine=engine, poll_interval=0.01))

    @server.tool(task=True)
    async def double(number: int, ctx: Context[Any]) -> int:
        if not await ctx.elicit("Double it?", bool):
            return number
        return 2 * number

    @server.tool(task=True)
    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    async with Client(server, era=era, on_elicit=lambda form: {"value": True}) as client:
        task = await client.call_tool("double", {"number": 21}, task=True)
        assert task.id is not None
        assert (await task.result()).data == 42
        endless = await client.call_tool("wait", task=True)
        await endless.cancel()
        assert (await endless.refresh()).status == "cancelled"


class Unreachable(MemoryBackend):
    """A store that is down from time to time."""

    shared = True

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.tries = 0

    async def get(self, key: str) -> bytes | None:
        if self.down:
            self.tries += 1
            raise BackendError("away")
        return await super().get(key)

    async def end_of(self, log: str) -> int:
        if self.down:
            self.tries += 1
            raise BackendError("away")
        return await super().end_of(log)

    def lease(self, key: str, *, ttl: float, wait: float | None = None) -> Any:
        async def take(owner: bytes) -> int:
            if self.down:
                self.tries += 1
                raise BackendError("away")
            return 1

        async def release(owner: bytes) -> None:
            if self.down:
                raise BackendError("away")

        return hold_lease(take, release, key, ttl=ttl, wait=wait)


async def test_a_store_that_is_down_is_one_line_in_the_log_and_its_return_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend = Unreachable()

    def lines() -> list[str]:
        return [record.message for record in caplog.records if record.message.startswith("Tasks are")]

    runner = Runner()
    async with running(backend, runner, lease=SHORT) as engine:
        await engine.submit("first")
        await until(lambda: runner.ended)
        backend.down = True
        await until(lambda: backend.tries > 5)
        (line,) = lines()
        assert "Tasks are not begun by this process until it reaches the backend: away" in line
        backend.down = False
        await until(lambda: len(lines()) == 2)
        assert "Tasks are begun again" in lines()[-1]


class Hanging(MemoryBackend):
    """Answers nothing while it hangs."""

    shared = True
    hangs = False

    async def _answer(self) -> None:
        if self.hangs:
            await asyncio.get_running_loop().create_future()

    async def get(self, key: str) -> bytes | None:
        await self._answer()
        return await super().get(key)

    async def replace(self, key: str, expected: bytes | None, value: bytes, *, ttl: float | None = None) -> bool:
        await self._answer()
        return await super().replace(key, expected, value, ttl=ttl)

    async def end_of(self, log: str) -> int:
        await self._answer()
        return await super().end_of(log)

    async def read(self, log: str, *, after: int = 0, most: int = 1000) -> list[tuple[int, bytes]]:
        await self._answer()
        return await super().read(log, after=after, most=most)

    def lease(self, key: str, *, ttl: float, wait: float | None = None) -> Any:
        async def take(owner: bytes) -> int:
            await self._answer()
            return 1

        async def release(owner: bytes) -> None:
            pass

        return hold_lease(take, release, key, ttl=ttl, wait=wait)


async def test_runs_stop_when_the_lease_ends_though_the_store_hangs() -> None:
    """Another process, which reaches the store, may begin them from then on."""
    backend, ends = Hanging(), list[str]()

    async def body(task_id: str) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            ends.append(task_id)
            raise

    runner = Runner(body)
    async with running(backend, runner, lease=SHORT) as engine:
        await engine.submit("task")
        await until(lambda: runner.runs["task"])
        backend.hangs = True
        await until(lambda: ends == ["task"])
        backend.hangs = False
