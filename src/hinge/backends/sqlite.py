"""The backend for the processes of one machine: a SQLite database in a file.

https://sqlite.org/wal.html says how several processes use one; it must be on a local disk. All work runs in threads of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import TypeVar
from weakref import finalize

from hinge.backends.base import Listener, check_key, check_ttl, check_value
from hinge.backends.lease import Lease, hold_lease
from hinge.backends.memory import MemoryBackend
from hinge.errors import BackendError, DefinitionError, Overloaded
from hinge.protocol.changes import Changed, ChangesLost

logger = logging.getLogger("hinge")

ValueT = TypeVar("ValueT")

#: Marks a database as ours: https://sqlite.org/pragma.html#pragma_application_id
_APPLICATION_ID = 0x48696E67
_VERSION = 1
#: Bytes of the write-ahead log that are kept for reuse.
_LOG_BYTES = 16 << 20
#: Seconds between two sweeps, rows that one deletes at most, and how many make room in a full file.
_SWEEP_SECONDS, _SWEPT, _SWEEPS = 1.0, 500, 20
#: Seconds between two looks for changes of other processes.
POLL = 0.2
#: The first look begins so many seconds in the past: a change may be committed later than it says.
_CLOCK_SLACK = 1.0
#: A change is kept for so many seconds, and only so many changes. A process that reads later gets ChangesLost.
_CHANGE_SECONDS, _MAX_CHANGES = 60.0, 10_000
#: Changes that wait to be written, and characters of their URIs. Beyond, other processes get ChangesLost.
_MAX_UNSENT, _MAX_UNSENT_CHARACTERS = 1000, 1 << 20
_VALUE, _CLAIM, _LEASE = 0, 1, 2
_MAKING_FILES = threading.Lock()

_TABLES = (
    "CREATE TABLE entries (kind INTEGER, key BLOB, value BLOB, expires REAL, PRIMARY KEY (kind, key))",
    "CREATE INDEX entries_by_expiry ON entries (expires) WHERE expires IS NOT NULL",
    "CREATE TABLE changes (id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL, source TEXT, kind TEXT, uri TEXT)",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_VERSION}",
)
_SET = """
INSERT INTO entries VALUES (?1, ?2, ?3, ?4)
ON CONFLICT DO UPDATE SET value = excluded.value, expires = excluded.expires
"""
#: Nothing is replaced that has not expired, except for the lease of the same owner.
_TAKE = f"{_SET} WHERE expires <= ?5 OR (kind = {_LEASE} AND value = excluded.value)"


class SqliteBackend:
    """Shares changes and values among the processes of one machine, in a file that outlives them.

    Changes reach the listeners of the same process immediately, those of other processes within about 0.2 seconds: a thread
    looks for them while there are listeners. Values survive the death of processes and power failures, claims and leases
    the death of processes. Times are those of the system clock.

    Args:
        path: The file. It is made if it is missing, readable by its owner only; its directory must exist, on a local disk.
        max_bytes: How large the file may become. Beyond, `Overloaded` is raised.
        busy_timeout: Seconds to wait while other processes write.

    Raises:
        DefinitionError: The path is empty.
    """

    def __init__(self, path: str | os.PathLike[str], *, max_bytes: int = 1 << 30, busy_timeout: float = 5.0) -> None:
        if not os.fspath(path):
            raise DefinitionError("A SQLite backend needs the path of its file: SqliteBackend('state.db')")
        self._path = Path(path).absolute()
        self._max_bytes = max_bytes
        self._busy_timeout = busy_timeout
        self._local = MemoryBackend()
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        """Set what belongs to one process: a fork takes neither threads nor connections along."""
        self._pid = os.getpid()
        #: Marks the changes of this process.
        self._source = token_hex(8)
        self._lock = threading.Lock()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="hinge-sqlite")
        #: The connection of that thread, while there is one.
        self._connection: list[sqlite3.Connection] = []
        self._next_sweep = 0.0
        self._poller: _Poller | None = None
        #: Changes that other processes were not told yet, and whether more of them were dropped.
        self._unsent: dict[Changed, None] = {}
        self._unsent_characters = 0
        self._dropped = False
        self._sending = False
        # Not the executor: this may run while the same thread submits something to another one.
        finalize(self, _close_all, self._connection)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            self._begin()

    # ---------------------------------------------------------------- changes

    def publish(self, event: Changed) -> None:
        """Tell the listeners of this process now, those of other processes soon.

        Args:
            event: What changed.
        """
        self._local.publish(event)
        self._check_process()
        with self._lock:
            if event not in self._unsent:
                self._unsent[event] = None
                self._unsent_characters += len(event.uri or "")
                if len(self._unsent) > _MAX_UNSENT or self._unsent_characters > _MAX_UNSENT_CHARACTERS:
                    self._drop_unsent()
            self._send_soon()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener.

        Args:
            listener: Called with each event: on the thread that calls `publish`, for those of other processes on another.

        Returns:
            A function that removes the listener; calling it twice is harmless.
        """
        self._check_process()
        remove = self._local.subscribe(listener)
        with self._lock:
            if self._poller is None and not self._closed:
                self._poller = _Poller(self)

        def stop() -> None:
            remove()
            with self._lock:
                if self._poller is not None and not self._local.has_listeners:
                    self._poller.stop()
                    self._poller = None

        return stop

    def _drop_unsent(self) -> None:
        self._unsent.clear()
        self._unsent_characters = 0
        self._dropped = True

    def _send_soon(self) -> None:
        """Have the thread write changes that were not sent. The lock is held."""
        if not self._sending and (self._unsent or self._dropped):
            with suppress(RuntimeError):  # closed, or the interpreter ends
                self._executor.submit(self._send)
                self._sending = True

    def _retry_changes(self) -> None:
        """Write changes again whose writing failed."""
        with self._lock:
            self._send_soon()

    def _send(self) -> None:
        with self._lock:
            changes: list[tuple[str, str | None]] = [(event.kind, event.uri) for event in self._unsent]
            if self._dropped:
                changes = [("", None)]
            self._unsent.clear()
            self._unsent_characters = 0
            self._dropped = self._sending = False

        def write(db: sqlite3.Connection) -> None:
            with _transaction(db):
                now = time.time()
                rows = [(now, self._source, kind, uri) for kind, uri in changes]
                db.executemany("INSERT INTO changes (at, source, kind, uri) VALUES (?, ?, ?, ?)", rows)
                old = (
                    "SELECT id FROM changes WHERE at < ? OR id <= (SELECT max(id) FROM changes) - ? ORDER BY id LIMIT ?"
                )
                limits = now - _CHANGE_SECONDS, _MAX_CHANGES, 2 * _MAX_UNSENT
                db.execute(f"DELETE FROM changes WHERE id IN ({old})", limits)

        try:
            self._work(write)
        except Exception as exc:
            with self._lock:
                self._dropped = True
            logger.warning("Other processes are not told of changes yet: %s", exc)

    # ---------------------------------------------------------------- values, claims, leases

    async def get(self, key: str) -> bytes | None:
        """Return a value.

        Args:
            key: Its key.

        Returns:
            The value; None if there is none, or it has expired.

        Raises:
            ValueError: The key is not allowed.
            BackendError: The database can't be used.
        """
        encoded = check_key(key)
        query = "SELECT value FROM entries WHERE kind = ? AND key = ? AND (expires IS NULL OR expires > ?)"
        row = await self._run(lambda db: db.execute(query, (_VALUE, encoded, time.time())).fetchone())
        return None if row is None else row[0]

    async def set(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Store a value, in place of an earlier one and its expiry.

        Args:
            key: Its key.
            value: The value.
            ttl: Seconds until it expires; None keeps it.

        Raises:
            ValueError: The key, value or time is not allowed.
            Overloaded: The file has no room.
            BackendError: The database can't be used.
        """
        encoded, lasts = check_key(key), None if ttl is None else check_ttl(ttl)
        check_value(value)

        def write(db: sqlite3.Connection) -> None:
            expires = None if lasts is None else time.time() + lasts
            db.execute(_SET, (_VALUE, encoded, value, expires))

        await self._write(write, durable=True)

    async def delete(self, key: str) -> bool:
        """Delete a value.

        Args:
            key: Its key.

        Returns:
            Whether there was one that had not expired: of several callers one gets True.

        Raises:
            ValueError: The key is not allowed.
            BackendError: The database can't be used.
        """
        encoded = check_key(key)
        query = "DELETE FROM entries WHERE kind = ? AND key = ? AND (expires IS NULL OR expires > ?)"
        return await self._write(
            lambda db: db.execute(query, (_VALUE, encoded, time.time())).rowcount > 0, durable=True
        )

    async def claim(self, key: str, *, ttl: float) -> bool:
        """Claim a key, which nobody else can until the claim expires.

        Args:
            key: The key.
            ttl: Seconds until it can be claimed again.

        Returns:
            True for one caller among all processes, False for the others.

        Raises:
            ValueError: The key or time is not allowed.
            Overloaded: The file has no room.
            BackendError: The database can't be used.
        """
        return await self._take(_CLAIM, check_key(key), b"", check_ttl(ttl))

    def lease(self, key: str, *, ttl: float, wait: float | None = None) -> AbstractAsyncContextManager[Lease]:
        """Hold a key inside of `async with`, as the only one among all tasks, threads and processes.

        Args:
            key: The key.
            ttl: Seconds after which the lease of a dead process ends.
            wait: Seconds to wait until the lease is free, 0 to try once; None waits without limit.

        Returns:
            A context manager, which raises TimeoutError or LeaseLost; see `Backend.lease`.

        Raises:
            ValueError: The key or time is not allowed.
        """
        encoded = check_key(key)
        check_ttl(ttl)

        async def take(owner: bytes) -> bool:
            return await self._take(_LEASE, encoded, owner, ttl)

        async def release(owner: bytes) -> None:
            query = "DELETE FROM entries WHERE kind = ? AND key = ? AND value = ?"
            await self._write(lambda db: db.execute(query, (_LEASE, encoded, owner)))

        return hold_lease(take, release, key, ttl=ttl, wait=wait)

    async def _take(self, kind: int, key: bytes, value: bytes, ttl: float) -> bool:
        def write(db: sqlite3.Connection) -> bool:
            now = time.time()
            return db.execute(_TAKE, (kind, key, value, now + ttl, now)).rowcount > 0

        return await self._write(write)

    async def close(self) -> None:
        """End the threads and close the file; the values stay in it."""
        self._check_process()
        with self._lock:
            poller, self._poller, self._closed = self._poller, None, True
        if poller is not None:
            poller.stop()
            await asyncio.get_running_loop().run_in_executor(None, poller.join)
        with suppress(RuntimeError):  # it is closed already
            await asyncio.get_running_loop().run_in_executor(self._executor, _close_all, self._connection)
        self._executor.shutdown(wait=False)

    # ---------------------------------------------------------------- the thread with the connection

    async def _run(self, work: Callable[[sqlite3.Connection], ValueT]) -> ValueT:
        self._check_process()
        if self._closed:
            raise BackendError(f"{self._path}: this backend was closed")
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._work, work)

    async def _write(self, work: Callable[[sqlite3.Connection], ValueT], *, durable: bool = False) -> ValueT:
        """Do work that writes; if `durable`, it survives a power failure, too, which takes some milliseconds."""

        def write(db: sqlite3.Connection) -> ValueT:
            db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            now = time.monotonic()
            if now >= self._next_sweep:
                self._next_sweep = now + (_SWEEP_SECONDS if _sweep(db) < _SWEPT else 0.0)
            for _ in range(_SWEEPS):
                try:
                    return work(db)
                except sqlite3.OperationalError as exc:
                    if exc.sqlite_errorcode != sqlite3.SQLITE_FULL or not _sweep(db):
                        raise
            return work(db)

        return await self._run(write)

    def _work(self, work: Callable[[sqlite3.Connection], ValueT]) -> ValueT:
        try:
            if not self._connection:
                self._connection.append(self._open())
            return work(self._connection[0])
        except sqlite3.Error as exc:
            code = getattr(exc, "sqlite_errorcode", 0) & 0xFF
            if code == sqlite3.SQLITE_FULL:
                raise Overloaded(f"{self._path} is full: it may have {self._max_bytes} bytes") from exc
            if code == sqlite3.SQLITE_BUSY:
                text = f"other processes have been writing for {self._busy_timeout:g} seconds"
                raise BackendError(f"{self._path} is busy: {text}") from exc
            _close_all(self._connection)
            raise BackendError(f"{self._path} can't be used: {exc}") from exc

    def _open(self) -> sqlite3.Connection:
        """Connect to the database. Raises BackendError and sqlite3.Error."""
        self._make_file()
        # Autocommit; the connection is made in one thread and may be closed in another.
        db = sqlite3.connect(self._path, timeout=self._busy_timeout, isolation_level=None, check_same_thread=False)
        try:
            self._check_owner(db)
            self._enter_wal_mode(db)
            with _transaction(db):
                if self._check_owner(db):
                    for statement in _TABLES:
                        db.execute(statement)
            db.execute(f"PRAGMA max_page_count = {max(1, self._max_bytes // _number(db, 'PRAGMA page_size'))}")
            db.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        except BaseException:
            db.close()
            raise
        return db

    def _make_file(self) -> None:
        """Make a file that is missing, for its owner only.

        Never opens one that exists: closing it would end the locks that other connections of this process have on it.
        https://sqlite.org/howtocorrupt.html, "POSIX advisory locks canceled by a separate thread doing close()"
        """
        with _MAKING_FILES:
            try:
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            except FileExistsError:
                pass
            except OSError as exc:
                raise BackendError(f"{self._path} can't be opened: {exc.strerror}") from exc

    def _check_owner(self, db: sqlite3.Connection) -> bool:
        """Whether the database is new. Raises BackendError if it is neither new nor ours."""
        mark = _number(db, "PRAGMA application_id"), _number(db, "PRAGMA user_version")
        if mark == (0, 0) and not _number(db, "SELECT count(*) FROM sqlite_master"):
            return True
        if mark != (_APPLICATION_ID, _VERSION):
            owner = "another version of Hinge" if mark[0] == _APPLICATION_ID else "another program"
            raise BackendError(f"{self._path} is the database of {owner}: choose another file")
        return False

    def _enter_wal_mode(self, db: sqlite3.Connection) -> None:
        deadline = time.monotonic() + self._busy_timeout
        while True:
            try:
                db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as exc:  # the busy timeout does not apply to the switch
                if exc.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                    raise
                time.sleep(0.01)


class _Poller:
    """A thread that tells the listeners of this process about changes of others."""

    def __init__(self, backend: SqliteBackend) -> None:
        self._backend = backend
        self._end = threading.Event()
        #: The last change that was read; None before the first look.
        self._position: int | None = None
        self._since = time.time() - _CLOCK_SLACK
        self._version = -1
        self._thread = threading.Thread(target=self._run, name="hinge-sqlite-changes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Have the thread end soon."""
        self._end.set()

    def join(self) -> None:
        """Wait for the end of the thread."""
        self._thread.join()

    def _run(self) -> None:
        db: sqlite3.Connection | None = None
        failed = False
        while True:
            try:
                if db is None:
                    db = self._backend._open()
                    self._version = -1
                self._look(db)
                failed = False
            except (sqlite3.Error, BackendError) as exc:
                if not failed:
                    logger.warning("Changes of other processes are not reported yet: %s", exc)
                failed = True
                if db is not None:
                    db.close()
                    db = None
            self._backend._retry_changes()
            if self._end.wait(POLL):
                break
        if db is not None:
            db.close()

    def _look(self, db: sqlite3.Connection) -> None:
        """Read the changes that are new; costs next to nothing if nobody wrote."""
        version = _number(db, "PRAGMA data_version")
        if version == self._version:
            return
        self._version = version
        newest = _number(db, "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'changes'), 0)")
        position = self._position
        if position is None:
            first: int | None = db.execute("SELECT min(id) FROM changes WHERE at >= ?", (self._since,)).fetchone()[0]
            position = newest if first is None else first - 1
        if newest < position:  # another file is there now
            position = newest
            self._backend._local.tell(ChangesLost("the database was replaced"))
        while position < newest and not self._end.is_set():
            query = "SELECT id, source, kind, uri FROM changes WHERE id > ? ORDER BY id LIMIT 1000"
            rows = db.execute(query, (position,)).fetchall()
            lost = not rows or rows[0][0] != position + 1
            position = rows[-1][0] if rows else newest
            for _, source, kind, uri in rows:
                if source == self._backend._source:
                    continue
                lost = lost or not kind
                if kind:
                    self._backend._local.tell(Changed(kind, uri))
            if lost:
                self._backend._local.tell(ChangesLost("changes of other processes were not read in time"))
        self._position = position


def _number(db: sqlite3.Connection, query: str) -> int:
    number: int = db.execute(query).fetchone()[0]
    return number


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """A transaction that writes."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # some errors have rolled it back
            db.execute("ROLLBACK")
        raise


def _sweep(db: sqlite3.Connection) -> int:
    """Delete some of the entries that have expired. Returns how many."""
    expired = "SELECT rowid FROM entries WHERE expires <= ? ORDER BY expires LIMIT ?"
    return db.execute(f"DELETE FROM entries WHERE rowid IN ({expired})", (time.time(), _SWEPT)).rowcount


def _close_all(connections: list[sqlite3.Connection]) -> None:
    while connections:
        connections.pop().close()
