"""The engine that needs nothing but a backend: an index of the tasks that have to run, which all processes share.

Each process holds a lease, and an entry of the index names the process that runs a task. Every few seconds, the others look for
entries of processes whose lease has ended, and release them.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import random
import secrets
import time
import zlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Final

from gemel.backends.base import Backend
from gemel.backends.keys import make_key
from gemel.backends.lease import Lease
from gemel.backends.patience import Outage
from gemel.backends.server_backend import ServerBackend
from gemel.errors import BackendError, DefinitionError, GemelError, Overloaded
from gemel.extensions.tasks.engine import TaskRunner
from gemel.extensions.tasks.index import BUCKETS, Index, OpenTask, TaskBucket
from gemel.loops import Abandoned, PerLoop

logger = logging.getLogger("gemel")

#: A hint names a task to look at. Who misses it looks at the index.
_HINT_SECONDS: Final = 600.0
#: Seconds of a lease that nobody else waits for.
_NO_OTHERS: Final = 1e6
#: Hints that are sent at once.
_HINTS: Final = 500
#: Deaths of processes after which a task is suspected. A process runs one suspected task at a time.
_SUSPECTED: Final = 2
#: Seconds until what failed is tried again, at first and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class BackendEngine:
    """Runs tasks on the processes of a server, and keeps track of them in its backend.

    A task whose process has died goes on in another one after at most 1.5 times the seconds of `lease`.

    Args:
        backend: What the processes share.
        concurrency: How many tasks a process runs at once; further ones wait, or run in another process. Those that wait for
            input don't count.
        waiting: How many tasks of a process may wait for input before it begins no others.
        lease: Seconds after which a process that does not answer counts as dead.
        tries: How many processes may die in a row while they run a task, without a new step in its journal, before it fails.
        grace: Seconds that running tasks have to stop when the process does.
        most: How many tasks may run or wait in all processes.

    Raises:
        DefinitionError: A number is too small.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        concurrency: int = 1000,
        waiting: int = 10_000,
        lease: float = 15.0,
        tries: int = 5,
        grace: float = 10.0,
        most: int = 50_000,
    ) -> None:
        if min(concurrency, waiting, tries, most) < 1 or lease <= 0 or grace < 0:
            raise DefinitionError(
                "concurrency, waiting, tries, most and lease must be positive, and grace must not be negative"
            )
        #: The names of event loops of this process that were closed while they ran tasks: each counts as a process.
        self._dead: set[str] = set()
        self._backend = backend
        self._make = partial(
            _LoopEngine,
            concurrency=concurrency,
            waiting=waiting,
            lease=lease if backend.shared else _NO_OTHERS,
            tries=tries,
            grace=grace,
            most=-(-most // BUCKETS),
            dead=self._dead,
        )
        self._loops = PerLoop(lambda: self._make(self._backend), abandon=self._abandon)

    def use_backend(self, backend: ServerBackend, /) -> None:
        """Keep tasks under the name of a server. Called by its `Tasks`.

        Args:
            backend: That of the server.
        """
        if not isinstance(self._backend, ServerBackend):
            self._backend = backend.part_of(self._backend)

    # ---------------------------------------------------------------- the interface

    async def start(self, runner: TaskRunner) -> None:
        """Begin to run tasks in the running event loop, as soon as the backend can be reached.

        Args:
            runner: Executes the tasks.

        Raises:
            DefinitionError: The engine runs already.
        """
        await self._loops.here().start(runner)

    async def submit(self, task_id: str) -> None:
        """Accept a task; it is in the backend before this returns.

        Args:
            task_id: The id.

        Raises:
            Overloaded: Too many tasks wait.
            BackendError: The backend can't be reached.
        """
        await self._loops.here().submit(task_id)

    async def wake(self, task_id: str) -> None:
        """Run a task again; this is in the backend before it returns.

        Args:
            task_id: The id.

        Raises:
            Overloaded: Too many tasks wait.
            BackendError: The backend can't be reached.
        """
        await self._loops.here().submit(task_id)

    async def restore(self, task_id: str) -> None:
        """Accept a task again if it is not in the index, which a backend that failed over may have lost.

        Args:
            task_id: The id.

        Raises:
            Overloaded: Too many tasks wait.
            BackendError: The backend can't be reached.
        """
        await self._loops.here().restore(task_id)

    def waiting(self, task_id: str) -> AbstractAsyncContextManager[None]:
        """Return what is entered while a run waits for input, which needs no room meanwhile; leaving it waits for room.

        Args:
            task_id: The id. It may be entered several times at once.

        Returns:
            An async context manager.
        """
        return self._loops.here().waiting(task_id)

    async def close(self) -> None:
        """Stop running tasks in the running event loop, and leave them to others at once."""
        await self._loops.here().close()

    def _abandon(self, engine: _LoopEngine, why: Abandoned) -> None:
        """An event loop was closed while it ran tasks: the others go on with them."""
        if why == "closed" and engine.name_held:
            self._dead.add(engine.name_held)
            for other in self._loops.all():
                other.sweep_soon()


class _LoopEngine:
    """The engine in one event loop, which holds a lease and runs tasks as a process of its own.

    Args:
        backend: What the processes share.
        concurrency: How many tasks run at once.
        waiting: How many tasks may wait for input before others begin.
        lease: Seconds of the lease.
        tries: How many processes may die in a row while they run a task.
        grace: Seconds that running tasks have to stop.
        most: How many tasks a bucket has.
        dead: The names of those that can't renew their lease.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        concurrency: int,
        waiting: int,
        lease: float,
        tries: int,
        grace: float,
        most: int,
        dead: set[str],
    ) -> None:
        self._backend = backend
        self._concurrency = concurrency
        self._most_idle = waiting
        self._lease = lease
        self._tries = tries
        self._grace = grace
        self._most = most
        self._dead = dead
        self._loop = asyncio.get_running_loop()
        self._next_sweep = 0.0
        self._runner: TaskRunner | None = None
        self._attending: asyncio.Task[None] | None = None
        #: The lease of this process and its name in the index.
        self._held: Lease | None = None
        self.name_held = ""
        #: Tasks that this process owns or is about to, and their runs.
        self._owned: set[str] = set()
        self._runs: dict[asyncio.Task[None], str] = {}
        #: Those that wait for input, with the number of requests; and who has its input and waits for room to go on.
        self._idle: Counter[str] = Counter()
        self._turns: deque[asyncio.Future[None]] = deque()
        #: Those that were given room and did not go on yet.
        self._granted = 0
        #: Tasks for which `run` is being called, and those of them that were woken meanwhile.
        self._running: set[str] = set()
        self._woken: set[str] = set()
        #: Tasks to look at when this process can run more, the oldest first.
        self._waiting: dict[str, None] = {}
        #: The suspected task that this process runs.
        self._suspected = ""
        #: Set when there are hints, or tasks that wait and may run.
        self._look = asyncio.Event()
        #: Tasks that other processes should look at.
        self._hinted: list[str] = []
        #: The newest hint that was read.
        self._position = 0
        self._buckets = [TaskBucket(backend, make_key("task-engine", str(number))) for number in range(BUCKETS)]

    async def start(self, runner: TaskRunner) -> None:
        """Begin to run tasks, as soon as the backend can be reached. Raises DefinitionError if it runs already."""
        if self._attending is not None:
            raise DefinitionError("This engine runs the tasks of a server already")
        self._runner = runner
        self._context = contextvars.copy_context()  # a task outlives the request that submits it
        self._attending = self._loop.create_task(self._attend(runner))

    async def submit(self, task_id: str) -> None:
        """Accept or wake a task; it is in the backend before this returns. Raises Overloaded and BackendError."""
        process = self._process
        if process and task_id in self._running:  # the index has it until its run ends
            self._tell(task_id)
            return
        reserved = process if self._reserve(task_id) else ""
        owner, entered = "", False
        try:
            owner, entered = await self._bucket(task_id).edit(lambda index: self._enter(index, task_id, reserved))
        finally:
            if reserved and not entered:
                self._owned.discard(task_id)
        if reserved and entered:
            self._begin(task_id, reserved)
        elif not owner or owner != process:
            self._hint([task_id])
            if self._attending is None:
                with suppress(GemelError):
                    await self._send_hints()
        elif task_id in self._running:  # its run has begun meanwhile
            self._tell(task_id)

    async def restore(self, task_id: str) -> None:
        """See `TaskEngine.restore`."""
        if task_id not in self._owned and task_id not in await self._bucket(task_id).read():
            logger.warning("The task %s was lost by the backend, and is run again", task_id)
            await self.submit(task_id)

    @asynccontextmanager
    async def waiting(self, task_id: str) -> AsyncIterator[None]:
        """See `TaskEngine.waiting`."""
        self._idle[task_id] += 1
        self._freed()
        try:
            yield
            if self._idle[task_id] == 1 and self._busy >= self._concurrency:
                await self._turn()
        finally:
            self._idle[task_id] -= 1
            if not self._idle[task_id]:
                del self._idle[task_id]

    def sweep_soon(self) -> None:
        """Look at all tasks, from any thread: some may have lost their process."""
        self._next_sweep = 0.0
        _set(self._loop, self._look)

    async def close(self) -> None:
        """Stop running tasks, and leave them to others at once."""
        attending, self._attending = self._attending, None
        if attending is not None:
            attending.cancel()
            await asyncio.wait([attending])
        self._runner = None

    # ---------------------------------------------------------------- changes of the index

    def _enter(self, index: Index, task_id: str, process: str) -> tuple[str, bool]:
        """Add a task for a process ("" for any), or wake it. Returns who has it now, and whether that is new."""
        entry = index.get(task_id)
        if entry is not None:
            entry.woken = bool(entry.owner)
            return entry.owner, False
        if len(index) >= self._most:
            raise Overloaded("Too many tasks wait")
        index[task_id] = OpenTask(process)
        return process, True

    def _claim(self, index: Index, task_id: str, process: str) -> bool:
        """Take a task that nobody runs. Returns whether this process has it."""
        entry = index.get(task_id)
        if entry is None or entry.owner not in ("", process) or entry.after > time.time():
            return False
        if entry.deaths >= _SUSPECTED:
            if self._suspected not in ("", task_id):
                return False
            self._suspected = task_id
        entry.owner, entry.woken = process, False
        return True

    def _finish(self, index: Index, task_id: str, process: str) -> bool:
        """Remove a task whose run has ended. Returns whether it has to run again, because it was woken meanwhile."""
        entry = index.get(task_id)
        if entry is None or entry.owner != process:
            return False
        if entry.woken or task_id in self._woken:
            entry.woken = False
            return True
        del index[task_id]
        return False

    # ---------------------------------------------------------------- running

    @property
    def _process(self) -> str:
        """The name of this process in the index; "" without a lease."""
        return self.name_held if self._held is not None and not self._held.lost else ""

    def _bucket(self, task_id: str) -> TaskBucket:
        return self._buckets[zlib.crc32(task_id.encode()) % BUCKETS]

    def _reserve(self, task_id: str) -> bool:
        """Whether this process can run the task: then there is room for it until it is removed from `_owned`."""
        if not self._process or task_id in self._owned or self._room <= 0:
            return False
        self._owned.add(task_id)
        return True

    @property
    def _busy(self) -> int:
        """How many tasks take room."""
        return len(self._owned) - len(self._idle) + self._granted

    @property
    def _room(self) -> int:
        """How many more tasks can begin here. Those that have their input come before others."""
        return 0 if len(self._idle) >= self._most_idle else self._concurrency - self._busy - len(self._turns)

    def _freed(self) -> None:
        """Let tasks go on, or look for others, since there may be room."""
        while self._turns and self._busy < self._concurrency:
            turn = self._turns.popleft()
            if not turn.done():
                self._granted += 1
                turn.set_result(None)
        if self._waiting:
            self._look.set()

    async def _turn(self) -> None:
        """Wait for room, behind the tasks that have waited for longer."""
        turn = self._loop.create_future()
        self._turns.append(turn)
        try:
            await turn
        finally:
            if turn.done() and not turn.cancelled():
                self._granted -= 1
            elif turn in self._turns:
                self._turns.remove(turn)

    def _begin(self, task_id: str, process: str) -> None:
        run = self._loop.create_task(self._execute(task_id, process), context=self._context.copy())
        self._runs[run] = task_id
        run.add_done_callback(self._runs.pop)

    async def _execute(self, task_id: str, process: str) -> None:
        assert self._runner is not None
        runner, pause, failures = self._runner, _FIRST_PAUSE, 0
        try:
            while True:
                self._woken.discard(task_id)
                self._running.add(task_id)
                try:
                    if failures < self._tries:
                        await runner.run(task_id)
                    else:
                        await runner.fail(task_id, f"The task could not be run: {failures} tries failed")
                    self._running.discard(task_id)  # who wakes it from now on does so in the index
                    if not await self._bucket(task_id).edit(lambda index: self._finish(index, task_id, process)):
                        return
                except Exception as exc:
                    self._running.discard(task_id)
                    lasting = not isinstance(exc, BackendError | Overloaded)
                    failures += lasting
                    logger.warning("A task could not be run yet: %s", exc, exc_info=lasting)
                    await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                    pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            self._running.discard(task_id)
            self._owned.discard(task_id)
            if self._suspected == task_id:
                self._suspected = ""
            self._freed()

    def _tell(self, task_id: str) -> None:
        """Say that a task was woken which runs here, and run it again after that."""
        self._woken.add(task_id)
        self._say(task_id)

    def _say(self, task_id: str) -> None:
        """Say that a task was woken which runs here."""
        try:
            if self._runner is not None:
                self._runner.woken(task_id)
        except Exception:
            logger.exception("A task could not be woken")

    # ---------------------------------------------------------------- the processes

    async def _attend(self, runner: TaskRunner) -> None:
        """Hold a lease and look for tasks; with another lease, as another process, when one was lost."""
        pause = _FIRST_PAUSE
        outage = Outage("Tasks are not begun by this process until it reaches the backend", "Tasks are begun again")
        stop = self._backend.watch(self._hints, partial(_set, self._loop, self._look))
        try:
            while True:
                name = secrets.token_hex(8)
                try:
                    async with self._backend.lease(self._process_key(name), ttl=self._lease, wait=self._lease) as lease:
                        self._held, self.name_held, pause = lease, name, _FIRST_PAUSE
                        await self._serve_until_lost(runner, lease, outage)
                except (GemelError, TimeoutError) as exc:
                    outage.failed(exc)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, _LONGEST_PAUSE, self._lease / 3)
        finally:
            stop()

    async def _serve_until_lost(self, runner: TaskRunner, lease: Lease, outage: Outage) -> None:
        """Serve with a lease. When it ends, all runs stop at once, whatever is waited for: another process may begin them."""
        serving = self._loop.create_task(self._serve(runner, outage))
        losing = self._loop.create_task(lease.wait_lost())
        try:
            await asyncio.wait([serving, losing], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            serving.cancel()
            losing.cancel()
            await self._leave(runner, self.name_held)
            await asyncio.wait([serving, losing])

    async def _serve(self, runner: TaskRunner, outage: Outage) -> None:
        if outage.reason is not None:
            self._next_sweep = self._time_of_sweep()
        while True:
            self._look.clear()
            try:
                if time.monotonic() >= self._next_sweep:
                    self._next_sweep = self._time_of_sweep()
                    await self._sweep(runner)
                    outage.ended()
                await self._send_hints()
                await self._read_hints()
                await self._take_waiting()
            except GemelError as exc:
                outage.failed(exc)
                self._next_sweep = self._time_of_sweep()
                await asyncio.sleep(min(_FIRST_PAUSE, self._lease / 15))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._lease / 15):  # wait_for of Python 3.11 can swallow a cancellation
                    await self._look.wait()

    def _time_of_sweep(self) -> float:
        """When all tasks are looked at again, by `time.monotonic`.

        After an outage, too: first all processes record what they have done meanwhile, then others may have their tasks.
        """
        return time.monotonic() + self._lease / 3 * random.uniform(0.8, 1.2)

    async def _sweep(self, runner: TaskRunner) -> None:
        """Look at all tasks: some wait, some were woken, some belong to processes that have died."""
        self._position = await self._backend.end_of(self._hints)  # earlier hints say nothing more than the index
        others: set[str] = set()
        for bucket in self._buckets:
            for task_id, entry in (await bucket.read()).items():
                if entry.owner not in ("", self._process):
                    others.add(entry.owner)
                elif task_id not in self._owned:  # even if it was entered for this process by an edit that failed later
                    self._waiting[task_id] = None
                elif entry.woken and task_id in self._running:
                    self._say(task_id)
        for process in others:
            await self._release_dead(runner, process)

    async def _release_dead(self, runner: TaskRunner, process: str) -> None:
        """Let others run the tasks of a process whose lease has ended."""
        lease = self._backend.lease(self._process_key(process), ttl=self._lease, wait=0)
        try:
            async with nullcontext() if process in self._dead else lease:
                for bucket in self._buckets:
                    index = await bucket.read()
                    dead = {task_id: entry for task_id, entry in index.items() if entry.owner == process}
                    for task_id, entry in list(dead.items()):
                        progress = await runner.progress(task_id)
                        deaths = 1 if progress > entry.progress else entry.deaths + 1
                        pause = min(2.0 ** (deaths - _SUSPECTED), _LONGEST_PAUSE) if deaths >= _SUSPECTED else 0.0
                        dead[task_id] = OpenTask("", False, deaths, progress, time.time() + pause if pause else 0.0)
                        if deaths >= self._tries:
                            message = f"The processes that ran this task have died {deaths} times in a row"
                            await runner.fail(task_id, message)
                    await self._replace(bucket, process, dead)
        except TimeoutError:
            pass  # it lives, or another process does this

    async def _replace(self, bucket: TaskBucket, process: str, entries: Index) -> None:
        """Replace entries of a process, or remove those that have failed, and have all processes look at them."""

        def change(index: Index) -> None:
            for task_id, entry in entries.items():
                if (present := index.get(task_id)) is not None and present.owner == process:
                    if entry.deaths >= self._tries:
                        del index[task_id]
                    else:
                        index[task_id] = entry

        if entries:
            await bucket.edit(change)
            self._hint(entries)

    async def _leave(self, runner: TaskRunner, process: str) -> None:
        """Stop all runs, and let other processes have the tasks; without the lease, those find out by themselves."""
        kept, self._held = bool(self._process), None
        tasks, runs = set(self._owned), list(self._runs)
        for run, task_id in list(self._runs.items()):
            if not kept:  # another process may have the task already
                run.cancel()
            is_released = task_id in self._running and runner.release(task_id)
            if kept and not is_released:
                run.cancel()
        if runs and kept:  # else they end by themselves, when they have recorded the results that they have
            _, late = await asyncio.wait(runs, timeout=self._grace)
            for _ in range(2):  # the second time, what can't be stored is given up
                for run in late:
                    run.cancel()
                late = (await asyncio.wait(late, timeout=0.1))[1] if late else late
            if late:
                logger.warning(
                    "Tasks did not stop within %g seconds: %s", self._grace, ", ".join(self._runs[run] for run in late)
                )
        try:
            for bucket in {self._bucket(task_id) for task_id in tasks}:
                index = await bucket.read()
                mine = {task_id: entry for task_id, entry in index.items() if entry.owner == process}
                for entry in mine.values():
                    entry.owner = ""
                await self._replace(bucket, process, mine)
            await self._send_hints()
        except GemelError as exc:
            logger.warning("Tasks of this process go on when its lease has ended: %s", exc)

    # ---------------------------------------------------------------- hints and waiting tasks

    @property
    def _hints(self) -> str:
        return make_key("task-engine", "hints")

    def _process_key(self, process: str) -> str:
        return make_key("task-engine", "process", process)

    def _hint(self, tasks: Iterable[str]) -> None:
        """Have all processes look at tasks soon. What goes wrong with it, their next sweep makes good."""
        self._hinted.extend(tasks)
        self._look.set()

    async def _send_hints(self) -> None:
        tasks, self._hinted = self._hinted[:_HINTS], self._hinted[_HINTS:]
        if self._hinted:
            self._look.set()
        if tasks:
            await self._backend.append(self._hints, [task_id.encode() for task_id in tasks], ttl=_HINT_SECONDS)

    async def _read_hints(self) -> None:
        while hints := await self._backend.read(self._hints, after=self._position):
            for self._position, data in hints:
                task_id = data.decode()
                if task_id in self._running:  # the index says whether it was woken, or is only new
                    self._say(task_id)
                elif task_id not in self._owned:
                    self._waiting[task_id] = None

    async def _take_waiting(self) -> None:
        """Run tasks that wait, as far as there is room."""
        process = self._process
        while self._waiting and process and (room := self._room) > 0:
            tasks = list(itertools.islice(self._waiting, room))
            for task_id in tasks:
                del self._waiting[task_id]
            await asyncio.gather(*(self._take(task_id, process) for task_id in tasks if self._reserve(task_id)))

    async def _take(self, task_id: str, process: str) -> None:
        claimed = False
        try:
            claimed = await self._bucket(task_id).edit(lambda index: self._claim(index, task_id, process))
        finally:
            if not claimed:
                self._owned.discard(task_id)
                if self._suspected == task_id:  # another process was faster
                    self._suspected = ""
        if claimed:
            self._begin(task_id, process)


def _set(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Set an event from any thread."""
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(event.set)
