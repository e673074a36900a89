"""The thread of the SQLite backend that has the connection. It commits together what waits to be written."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias, TypeVar
from weakref import finalize

from gemel.backends.sqlite_file import SWEPT, DatabaseFile, close_all, sweep, transaction
from gemel.errors import BackendError

ResultT = TypeVar("ResultT")
Work: TypeAlias = Callable[[sqlite3.Connection], Any]

#: Seconds between two sweeps, and how many make room in a full file.
SWEEP_SECONDS, SWEEPS = 1.0, 20
#: Writes of one transaction at most: meanwhile other processes can't write.
GROUP = 32


class _Write(NamedTuple):
    """Work that changes the database. It may be done again after it was rolled back."""

    work: Work
    durable: bool
    result: asyncio.Future[Any]


class _Outcome(NamedTuple):
    result: Any
    error: Exception | None


class DatabaseThread:
    """Does work with one connection, in a thread of its own.

    Writes that arrive while the thread is busy become one transaction, so that the disk is waited for once. Each has a savepoint:
    one that fails changes nothing, and the others are committed.

    Args:
        file: The database.
        full: Whether durable writes survive power failures.
    """

    def __init__(self, file: DatabaseFile, *, full: bool) -> None:
        self._file = file
        self._full = full
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="gemel-sqlite")
        #: The connection of the thread, while there is one.
        self._connection: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._waiting: list[_Write] = []
        self.next_sweep = 0.0
        # Not the executor: this may run while the same thread submits something to another one.
        finalize(self, close_all, self._connection)

    def submit(self, function: Callable[[], ResultT]) -> Future[ResultT]:
        """Call a function in the thread. Raises RuntimeError after `close`."""
        return self._executor.submit(function)

    async def read(self, work: Callable[[sqlite3.Connection], ResultT]) -> ResultT:
        """Do work that changes nothing.

        Raises:
            BackendError: The database can't be used.
        """
        return await asyncio.get_running_loop().run_in_executor(self._executor, self.do, work)

    async def write(self, work: Callable[[sqlite3.Connection], ResultT], *, durable: bool) -> ResultT:
        """Do work that changes the database, and commit it.

        Args:
            work: Its errors, other than those of SQLite, are raised here; then it has changed nothing.
            durable: Whether it survives a power failure, too.

        Raises:
            Overloaded: The file has no room.
            BackendError: The database can't be used.
        """
        result: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiting.append(_Write(work, durable, result))
            is_first = len(self._waiting) == 1
        if is_first:
            self._executor.submit(self._write_waiting)
        return await result

    async def close(self) -> None:
        """Close the connection after the work in hand."""
        await asyncio.get_running_loop().run_in_executor(self._executor, close_all, self._connection)
        self._executor.shutdown(wait=False)

    # ---------------------------------------------------------------- in the thread

    def do(self, work: Callable[[sqlite3.Connection], ResultT]) -> ResultT:
        """Do work in this thread, which must be that of the connection. Raises BackendError and Overloaded."""
        try:
            if not self._connection:
                self._connection.append(self._file.open())
            return work(self._connection[0])
        except sqlite3.Error as exc:
            if getattr(exc, "sqlite_errorcode", 0) & 0xFF not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY):
                close_all(self._connection)
            raise self._file.error(exc) from exc

    def _write_waiting(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        writes = [write for write in waiting if not write.result.cancelled()]
        for start in range(0, len(writes), GROUP):
            try:
                self._commit(writes[start : start + GROUP])
            except BackendError as exc:  # the database is busy: the others have waited as long
                _finish(writes[start:], [_Outcome(None, exc)] * (len(writes) - start))
                return

    def _commit(self, group: list[_Write]) -> None:
        """Commit writes together, or one by one if that fails. Raises BackendError if others write all the time."""
        try:
            outcomes = self.do(lambda db: self._write(db, group))
        except Exception as exc:
            if isinstance(exc, BackendError) and exc.retry_after_ms is not None:
                raise
            if len(group) > 1:
                for write in group:
                    self._commit([write])
                return
            outcomes = [_Outcome(None, exc)]
        _finish(group, outcomes)

    def _write(self, db: sqlite3.Connection, group: list[_Write]) -> list[_Outcome]:
        durable = self._full and any(write.durable for write in group)
        db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        now = time.monotonic()
        if now >= self.next_sweep:
            self.next_sweep = now + (SWEEP_SECONDS if sweep(db) < SWEPT else 0.0)
        if len(group) == 1:
            return [self._write_alone(db, group[0].work)]
        with transaction(db):
            return [_write_in_savepoint(db, write.work) for write in group]

    def _write_alone(self, db: sqlite3.Connection, work: Work) -> _Outcome:
        """Do work that makes its own transaction. What has expired makes room."""
        for _ in range(SWEEPS):
            try:
                return _outcome(db, work)
            except sqlite3.OperationalError as exc:
                if exc.sqlite_errorcode != sqlite3.SQLITE_FULL or not sweep(db):
                    raise
        return _outcome(db, work)


def _write_in_savepoint(db: sqlite3.Connection, work: Work) -> _Outcome:
    db.execute("SAVEPOINT one")
    outcome = _outcome(db, work)
    if outcome.error is not None:
        db.execute("ROLLBACK TO one")
    db.execute("RELEASE one")
    return outcome


def _outcome(db: sqlite3.Connection, work: Work) -> _Outcome:
    """Do work. Raises errors of SQLite only."""
    try:
        return _Outcome(work(db), None)
    except sqlite3.Error:
        raise
    except Exception as exc:
        return _Outcome(None, exc)


def _finish(group: list[_Write], outcomes: list[_Outcome]) -> None:
    """Give all who wait for writes their outcomes."""
    for loop in {write.result.get_loop() for write in group}:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_settle, loop, group, outcomes)


def _settle(loop: asyncio.AbstractEventLoop, group: list[_Write], outcomes: list[_Outcome]) -> None:
    """Give those who wait in this event loop their outcomes."""
    for write, outcome in zip(group, outcomes, strict=True):
        if write.result.get_loop() is not loop or write.result.done():
            continue
        if outcome.error is None:
            write.result.set_result(outcome.result)
        else:
            write.result.set_exception(outcome.error)
