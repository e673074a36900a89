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
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Literal, TypeVar

from gemel.backends.base import (
    MAX_LOG_BYTES,
    Backend,
    Listener,
    Reopenable,
    check_entries,
    check_key,
    check_most,
    check_ttl,
    check_value,
)
from gemel.backends.lease import Lease, hold_lease
from gemel.backends.memory import MemoryBackend
from gemel.backends.sqlite_file import (
    CLAIM,
    VALUE,
    DatabaseFile,
    network_disk_type,
    transaction,
)
from gemel.backends.sqlite_poller import Poller
from gemel.backends.sqlite_thread import DatabaseThread
from gemel.errors import BackendError, DefinitionError, LogConflict
from gemel.loops import leave_to_parent, on_fork
from gemel.protocol.changes import Changed

logger = logging.getLogger("gemel")

ValueT = TypeVar("ValueT")

#: Seconds between two attempts to write changes that somebody waits for.
_FLUSH_PAUSE = 0.05
#: A change is kept for so many seconds, and only so many changes. A process that reads later gets ChangesLost.
_CHANGE_SECONDS, _MAX_CHANGES = 60.0, 10_000
#: Changes that wait to be written, and characters of their URIs. Beyond, other processes get ChangesLost.
_MAX_UNSENT, _MAX_UNSENT_CHARACTERS = 1000, 1 << 20

_SET = """
INSERT INTO items VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET value = excluded.value, expires = excluded.expires
"""
#: Nothing is replaced that has not expired.
_ADD = f"{_SET} WHERE expires <= ?"
_LIVE = "kind = 0 AND key = ? AND (expires IS NULL OR expires > ?)"


def from_url(url: str) -> SqliteBackend:
    """The backend of `sqlite:///FILE`. Raises DefinitionError for another URL."""
    path = url.partition(":///")[2]
    if not path:
        raise DefinitionError(
            f"There is no backend for {url!r}: use sqlite:///FILE for a file, memory:// for one process"
        )
    if path == ":memory:":
        raise DefinitionError("A SQLite database in memory is not shared: use memory://")
    return SqliteBackend(path)


class SqliteBackend(Backend, Reopenable):
    """Shares changes and values among the processes of one machine, in a file that outlives them.

    Changes reach the listeners of the same process immediately, those of other processes within about 0.2 seconds: a thread
    looks for them while there are listeners. For watched logs it looks every 20 milliseconds, or 50 when nobody has written for
    a second. Writes that arrive while another one is on its way to the disk are committed together.

    What is stored survives the death of processes; values and logs survive power failures, too, unless `synchronous` says
    otherwise. Times are those of the system clock.

    Args:
        path: The file. It is made if it is missing, readable by its owner only; its directory must exist, on a local disk.
        max_bytes: How large the file may become. Beyond, `Overloaded` is raised.
        busy_timeout: Seconds to wait while other processes write. An operation that waits behind another one takes twice as long.
        synchronous: With "full", values and logs survive power failures: each write waits for the disk. With "normal", which is
            faster, a power failure may forget the last ones; the death of processes does not.
            https://sqlite.org/pragma.html#pragma_synchronous
        network_disk: Whether the file may be on a network file system. The processes must be on one machine even then, and the
            file system must support locks and shared memory maps, or the file is damaged.

    Raises:
        DefinitionError: The path is empty, or on a network file system; Linux tells which are.
    """

    #: Other processes that use the file see what is stored.
    shared: bool = True  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]  # a constant

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = 1 << 30,
        busy_timeout: float = 5.0,
        synchronous: Literal["full", "normal"] = "full",
        network_disk: bool = False,
    ) -> None:
        if not os.fspath(path):
            raise DefinitionError("A SQLite backend needs the path of its file: SqliteBackend('state.db')")
        if synchronous not in ("full", "normal"):
            raise DefinitionError(
                f'synchronous={synchronous!r} is unknown: write synchronous="full" or synchronous="normal"'
            )
        self._path = Path(path).absolute()
        if not network_disk and (kind := network_disk_type(self._path)):
            raise DefinitionError(
                f"{self._path} is on a network file system ({kind}), where SQLite can't share a file: choose a local disk, or "
                "SqliteBackend(…, network_disk=True) for processes of one machine"
            )
        self._full = synchronous == "full"
        self._file = DatabaseFile(self._path, max_bytes, busy_timeout)
        self._local = MemoryBackend()
        self._closed = False
        self._begin()
        on_fork(self._begin_in_child)

    def _begin_in_child(self) -> None:
        """A fork takes neither threads nor connections along."""
        leave_to_parent(self._thread, self._poller)
        self._begin()

    def _begin(self) -> None:
        """Set what belongs to one process."""
        #: Marks the changes of this process.
        self._source = token_hex(8)
        self._lock = threading.Lock()
        self._thread = DatabaseThread(self._file, full=self._full)
        self._poller: Poller | None = None
        #: Changes that other processes were not told yet, and whether more of them were dropped.
        self._unsent: dict[Changed, None] = {}
        self._unsent_characters = 0
        self._dropped = False
        self._sending = False

    # ---------------------------------------------------------------- changes

    def publish(self, event: Changed) -> None:
        self._local.publish(event)
        with self._lock:
            if event not in self._unsent:
                self._unsent[event] = None
                self._unsent_characters += len(event.uri or "")
                if len(self._unsent) > _MAX_UNSENT or self._unsent_characters > _MAX_UNSENT_CHARACTERS:
                    self._drop_unsent()
            self._send_soon()

    async def flush(self) -> None:
        is_flushed = False
        while not is_flushed:
            is_flushed = await asyncio.wrap_future(self._open_thread().submit(self._flush))
            if not is_flushed:  # another program has locked the file, or it is full
                await asyncio.sleep(_FLUSH_PAUSE)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        remove = self._local.subscribe(listener)
        self._poll()
        return self._stopping(remove)

    def _poll(self) -> None:
        """Look for what other processes write, soon."""
        with self._lock:
            if self._poller is not None:
                self._poller.nudge()
            elif not self._closed:
                self._poller = Poller(self._file, self._local, self._source, self._retry_changes)

    def _stopping(self, remove: Callable[[], None]) -> Callable[[], None]:
        """A function that removes a listener or watcher, and ends the thread after the last one."""

        def stop() -> None:
            remove()
            with self._lock:
                if self._poller is not None and not self._local.has_listeners and not self._local.has_watchers:
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
                self._thread.submit(self._send)
                self._sending = True

    def _retry_changes(self) -> None:
        """Write changes again whose writing failed."""
        with self._lock:
            self._send_soon()

    def _flush(self) -> bool:
        """Write what was not written. Returns whether that succeeded."""
        self._send()
        return not self._dropped

    def _send(self) -> None:
        with self._lock:
            changes: list[tuple[str, str | None]] = [(event.kind, event.uri) for event in self._unsent]
            if self._dropped:
                changes = [("", None)]
            self._unsent.clear()
            self._unsent_characters = 0
            self._dropped = self._sending = False
        if not changes:
            return

        def write(db: sqlite3.Connection) -> None:
            with transaction(db):
                now = time.time()
                rows = [(now, self._source, kind, uri) for kind, uri in changes]
                db.executemany("INSERT INTO changes (at, source, kind, uri) VALUES (?, ?, ?, ?)", rows)
                old = (
                    "SELECT id FROM changes WHERE at < ? OR id <= (SELECT max(id) FROM changes) - ? ORDER BY id LIMIT ?"
                )
                limits = now - _CHANGE_SECONDS, _MAX_CHANGES, 2 * _MAX_UNSENT
                db.execute(f"DELETE FROM changes WHERE id IN ({old})", limits)

        try:
            self._thread.do(write)
        except Exception as exc:
            with self._lock:
                self._dropped = True
            logger.warning("Other processes are not told of changes yet: %s", exc)

    # ---------------------------------------------------------------- values, claims, leases

    async def get(self, key: str) -> bytes | None:
        encoded = check_key(key)
        query = f"SELECT value FROM items WHERE {_LIVE}"
        row = await self._run(lambda db: db.execute(query, (encoded, time.time())).fetchone())
        return None if row is None else row[0]

    async def set(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        encoded, lasts = check_key(key), None if ttl is None else check_ttl(ttl)
        check_value(value)

        def write(db: sqlite3.Connection) -> None:
            expires = None if lasts is None else time.time() + lasts
            db.execute(_SET, (VALUE, encoded, value, expires))

        await self._write(write, durable=True)

    async def delete(self, key: str) -> bool:
        encoded = check_key(key)
        query = f"DELETE FROM items WHERE {_LIVE}"
        return await self._write(lambda db: db.execute(query, (encoded, time.time())).rowcount > 0, durable=True)

    async def replace(self, key: str, expected: bytes | None, value: bytes, *, ttl: float | None = None) -> bool:
        encoded, lasts = check_key(key), None if ttl is None else check_ttl(ttl)
        check_value(value)

        def write(db: sqlite3.Connection) -> bool:
            now = time.time()
            expires = None if lasts is None else now + lasts
            if expected is None:
                return db.execute(_ADD, (VALUE, encoded, value, expires, now)).rowcount > 0
            query = f"UPDATE items SET value = ?, expires = ? WHERE {_LIVE} AND value = ?"
            return db.execute(query, (value, expires, encoded, now, expected)).rowcount > 0

        return await self._write(write, durable=True)

    async def touch(self, key: str, *, ttl: float) -> bool:
        """Let a value expire at another time. A power failure may restore the earlier time.

        Args:
            key: Its key.
            ttl: Seconds from now until it expires.

        Returns:
            Whether there is one that had not expired.

        Raises:
            ValueError: The key or time is not allowed.
            Overloaded: The file has no room.
            BackendError: The database can't be used.
        """
        encoded = check_key(key)
        check_ttl(ttl)

        def write(db: sqlite3.Connection) -> bool:
            now = time.time()
            return db.execute(f"UPDATE items SET expires = ? WHERE {_LIVE}", (now + ttl, encoded, now)).rowcount > 0

        return await self._write(write)

    async def claim(self, key: str, *, ttl: float) -> bool:
        encoded = check_key(key)
        check_ttl(ttl)

        def write(db: sqlite3.Connection) -> bool:
            now = time.time()
            return db.execute(_ADD, (CLAIM, encoded, b"", now + ttl, now)).rowcount > 0

        return await self._write(write)

    def lease(self, key: str, *, ttl: float, wait: float | None = None) -> AbstractAsyncContextManager[Lease]:
        encoded = check_key(key)
        check_ttl(ttl)

        def renew_or_take(db: sqlite3.Connection, owner: bytes) -> int:
            with transaction(db):
                now = time.time()
                query = "SELECT token FROM leases WHERE key = ? AND owner = ?"
                if row := db.execute(query, (encoded, owner)).fetchone():
                    db.execute("UPDATE leases SET expires = ? WHERE token = ?", (now + ttl, row[0]))
                    token: int = row[0]
                    return token
                db.execute("DELETE FROM leases WHERE key = ? AND expires <= ?", (encoded, now))
                insert = "INSERT OR IGNORE INTO leases (key, owner, expires) VALUES (?, ?, ?)"
                added = db.execute(insert, (encoded, owner, now + ttl))
                return added.lastrowid or 0 if added.rowcount > 0 else 0

        async def take(owner: bytes) -> int:
            return await self._write(lambda db: renew_or_take(db, owner))

        async def release(owner: bytes) -> None:
            query = "DELETE FROM leases WHERE key = ? AND owner = ?"
            await self._write(lambda db: db.execute(query, (encoded, owner)))

        return hold_lease(take, release, key, ttl=ttl, wait=wait)

    # ---------------------------------------------------------------- logs

    async def append(
        self, log: str, entries: Sequence[bytes], *, ttl: float, most: int = 1000, after: int | None = None
    ) -> int:
        encoded = check_key(log)
        check_entries(entries)
        check_ttl(ttl)
        check_most(most)

        def write(db: sqlite3.Connection) -> int:
            with transaction(db):
                return _append(db, encoded, entries, ttl, most, after, self._source)

        last = await self._write(write, durable=True)
        self._local.wake((log,))
        return last

    async def read(self, log: str, *, after: int = 0, most: int = 1000) -> list[tuple[int, bytes]]:
        encoded = check_key(log)
        check_most(most)
        query = (
            "SELECT position, value FROM log_entries WHERE log = (SELECT id FROM logs WHERE key = ? AND expires > ?) "
            "AND position > ? ORDER BY position LIMIT ?"
        )
        return await self._run(lambda db: db.execute(query, (encoded, time.time(), after, most)).fetchall())

    async def end_of(self, log: str) -> int:
        encoded = check_key(log)
        query = "SELECT last FROM logs WHERE key = ? AND expires > ?"
        row = await self._run(lambda db: db.execute(query, (encoded, time.time())).fetchone())
        return 0 if row is None else row[0]

    def watch(self, log: str, wake: Callable[[], None]) -> Callable[[], None]:
        remove = self._local.watch(log, wake)
        self._poll()
        return self._stopping(remove)

    async def close(self) -> None:
        """End the threads and close the file; the values stay in it."""
        with self._lock:
            poller, self._poller, self._closed = self._poller, None, True
        if poller is not None:
            poller.stop()
            await asyncio.get_running_loop().run_in_executor(None, poller.join)
        with suppress(RuntimeError):  # it is closed already
            await self._thread.close()

    def reopen(self) -> None:
        if self._closed:
            self._closed = False
            self._begin()
            if self._local.has_listeners or self._local.has_watchers:
                self._poll()

    # ---------------------------------------------------------------- the thread with the connection

    async def _run(self, work: Callable[[sqlite3.Connection], ValueT]) -> ValueT:
        return await self._open_thread().read(work)

    async def _write(self, work: Callable[[sqlite3.Connection], ValueT], *, durable: bool = False) -> ValueT:
        """Do work that writes; if `durable`, it survives a power failure, too, unless `synchronous` says otherwise."""
        return await self._open_thread().write(work, durable=durable)

    def _open_thread(self) -> DatabaseThread:
        if self._closed:
            raise BackendError(f"{self._path}: this backend was closed")
        return self._thread


def _append(
    db: sqlite3.Connection,
    key: bytes,
    entries: Sequence[bytes],
    ttl: float,
    most: int,
    after: int | None,
    source: str,
) -> int:
    """Append entries to a log, inside of a transaction. Returns the position of the last one. Raises LogConflict."""
    now = time.time()
    row = db.execute("SELECT id, first, last, size, expires FROM logs WHERE key = ?", (key,)).fetchone()
    log, first, last, size, expires = row or (None, 1, 0, 0, now)
    if expires <= now:
        first, last, size = 1, 0, 0
    if after is not None and after != last:
        raise LogConflict(after, last)
    if log is None:
        log = db.execute("INSERT INTO logs (key) VALUES (?)", (key,)).lastrowid
    elif not last:
        db.execute("DELETE FROM log_entries WHERE log = ?", (log,))
    newest = 0
    for entry in entries:
        last += 1
        size += len(entry)
        insert = "INSERT INTO log_entries (log, position, value) VALUES (?, ?, ?)"
        newest = db.execute(insert, (log, last, entry)).lastrowid or 0
    if last - first >= most or size > MAX_LOG_BYTES:
        lengths = "SELECT position, length(value) FROM log_entries WHERE log = ? AND position < ? ORDER BY position"
        for position, length in db.execute(lengths, (log, last)):
            if last - position < most and size <= MAX_LOG_BYTES:
                break
            first = position + 1
            size -= length
        db.execute("DELETE FROM log_entries WHERE log = ? AND position < ?", (log, first))
    update = "UPDATE logs SET first = ?, last = ?, size = ?, expires = ?, newest = ?, source = ? WHERE id = ?"
    db.execute(update, (first, last, size, now + ttl, newest, source, log))
    return last
