"""The file of the SQLite backend: how it is made, opened, marked with a format version, brought to the current one and swept."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gemel.backends.base import store_full
from gemel.errors import BackendError, GemelError

logger = logging.getLogger("gemel")

#: Marks a database as ours: https://sqlite.org/pragma.html#pragma_application_id
_APPLICATION_ID = 0x48696E67
_VERSION = 2
#: Bytes of the write-ahead log that are kept for reuse.
_LOG_BYTES = 16 << 20
VALUE, CLAIM = 0, 1
#: Rows of each kind that a sweep deletes at most.
SWEPT = 500
_MAKING_FILES = threading.Lock()
#: Types of network file systems in Linux. https://sqlite.org/wal.html: "WAL does not work over a network filesystem".
# fmt: off
_NETWORK_DISKS = frozenset((
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gcsfuse", "gfs2", "glusterfs", "goofys", "gpfs", "juicefs",
    "lustre", "mountpoint-s3", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "rclone", "s3fs", "smb3", "smbfs", "sshfs",
))
# fmt: on
_MOUNTS = Path("/proc/self/mountinfo")

#: In one statement: another process may be making the tables.
_MARK = """
SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version),
    (SELECT count(*) FROM sqlite_master)
"""
#: Tokens of leases and ids of entries are never used twice (AUTOINCREMENT), also after the last row was deleted.
_TABLES = (
    "CREATE TABLE items (kind INTEGER, key BLOB, value BLOB, expires REAL, PRIMARY KEY (kind, key))",
    "CREATE INDEX items_by_expiry ON items (expires) WHERE expires IS NOT NULL",
    "CREATE TABLE leases (token INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB UNIQUE, owner BLOB, expires REAL)",
    # `first` and `last` are positions, `newest` is the id of the last entry, `source` the process that appended it.
    "CREATE TABLE logs (id INTEGER PRIMARY KEY, key BLOB UNIQUE, first INTEGER, last INTEGER, size INTEGER, expires REAL, "
    "newest INTEGER, source TEXT)",
    "CREATE INDEX logs_by_expiry ON logs (expires)",
    "CREATE INDEX logs_by_newest ON logs (newest)",
    "CREATE TABLE log_entries (id INTEGER PRIMARY KEY AUTOINCREMENT, log INTEGER, position INTEGER, value BLOB)",
    "CREATE UNIQUE INDEX log_entries_by_position ON log_entries (log, position)",
)
_CHANGES = "CREATE TABLE changes (id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL, source TEXT, kind TEXT, uri TEXT)"
#: Format 1 had values, claims and leases (kind 2) in one table, and no logs. Without that table, processes of a version that
#: knows no other format fail instead of taking leases that nobody else sees.
_FROM_1 = (
    "INSERT INTO items SELECT kind, key, value, expires FROM entries WHERE kind < 2",
    "INSERT INTO leases (key, owner, expires) SELECT key, value, expires FROM entries WHERE kind = 2",
    "DROP TABLE entries",
)


class DatabaseFile:
    """Opens connections to the file.

    Args:
        path: Its absolute path.
        max_bytes: How large it may become.
        busy_timeout: Seconds to wait while other processes write.
    """

    def __init__(self, path: Path, max_bytes: int, busy_timeout: float) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._busy_timeout = busy_timeout

    def open(self) -> sqlite3.Connection:
        """Connect to the database. Raises BackendError and sqlite3.Error."""
        self._make()
        # Autocommit; the connection is made in one thread and may be closed in another.
        db = sqlite3.connect(self.path, timeout=self._busy_timeout, isolation_level=None, check_same_thread=False)
        try:
            self._version(db)
            self._enter_wal_mode(db)
            if self._version(db) != _VERSION:
                with transaction(db):
                    self._make_tables(db)
            db.execute(f"PRAGMA max_page_count = {max(1, self._max_bytes // number(db, 'PRAGMA page_size'))}")
            db.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        except BaseException:
            db.close()
            raise
        return db

    def error(self, exc: sqlite3.Error) -> GemelError:
        """What an error of SQLite means to a caller."""
        code = getattr(exc, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            with suppress(OSError):
                if shutil.disk_usage(self.path.parent).free < _LOG_BYTES and self.path.stat().st_size < self._max_bytes:
                    return store_full(f"the disk of {self.path} is full")
            return store_full(f"{self.path} may have {self._max_bytes} bytes")
        if code == sqlite3.SQLITE_BUSY:
            return BackendError(
                f"{self.path} is busy: other processes have been writing for {self._busy_timeout:g} seconds",
                retry_after_ms=1000,
            )
        return BackendError(f"{self.path} can't be used: {exc}")

    def _make(self) -> None:
        """Make a file that is missing, for its owner only.

        Never opens one that exists: closing it would end the locks that other connections of this process have on it.
        https://sqlite.org/howtocorrupt.html, "POSIX advisory locks canceled by a separate thread doing close()"
        """
        with _MAKING_FILES:
            try:
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            except FileExistsError:
                pass
            except OSError as exc:
                raise BackendError(f"{self.path} can't be opened: {exc.strerror}") from exc

    def _version(self, db: sqlite3.Connection) -> int:
        """The version of the format, 0 for a new database. Raises BackendError if this version of Gemel does not know it."""
        *mark, tables = db.execute(_MARK).fetchone()
        if mark == [0, 0] and not tables:
            return 0
        if mark[0] != _APPLICATION_ID:
            raise BackendError(f"{self.path} is the database of another program: choose another file")
        if not 0 < mark[1] <= _VERSION:
            raise BackendError(
                f"{self.path} is the database of another version of Gemel: it has format {mark[1]}, this version knows "
                f"1 to {_VERSION}. Choose another file"
            )
        version: int = mark[1]
        return version

    def _make_tables(self, db: sqlite3.Connection) -> None:
        version = self._version(db)
        if version == _VERSION:
            return  # another process was faster
        for statement in _TABLES:
            db.execute(statement)
        for statement in _FROM_1 if version else (_CHANGES, f"PRAGMA application_id = {_APPLICATION_ID}"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {_VERSION}")
        if version:
            logger.info(
                "%s was brought from format %d to %d: older versions can't use it", self.path, version, _VERSION
            )

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


def network_disk_type(path: Path) -> str | None:
    """The type of the network file system that a file is on, or is going to be on; None for a local disk.

    Systems other than Linux don't tell: None, too.
    """
    try:
        device = os.stat(path if path.exists() else path.parent).st_dev
        mounts = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return None
    number = f"{os.major(device)}:{os.minor(device)}"
    # proc_pid_mountinfo(5): the third field is the device, the type follows a lone hyphen.
    types = {line.partition(" - ")[2].split(" ")[0] for line in mounts if line.split(" ")[2:3] == [number]}
    return next((name for name in sorted(types) if name.removeprefix("fuse.") in _NETWORK_DISKS), None)


def number(db: sqlite3.Connection, query: str) -> int:
    """The number that a query returns."""
    result: int = db.execute(query).fetchone()[0]
    return result


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """A transaction that writes; inside of another one, part of that."""
    if db.in_transaction:
        yield
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # some errors have rolled it back
            db.execute("ROLLBACK")
        raise


def sweep(db: sqlite3.Connection) -> int:
    """Delete some of the entries that have expired. Returns how many."""
    now = time.time()
    deleted = 0
    with transaction(db):
        for table in ("items", "leases"):
            expired = f"SELECT rowid FROM {table} WHERE expires <= ? ORDER BY expires LIMIT ?"
            deleted += db.execute(f"DELETE FROM {table} WHERE rowid IN ({expired})", (now, SWEPT)).rowcount
        # Entries first: a log is deleted when it has none.
        left = SWEPT
        for (log,) in db.execute(
            "SELECT id FROM logs WHERE expires <= ? ORDER BY expires LIMIT ?", (now, SWEPT)
        ).fetchall():
            some = "SELECT id FROM log_entries WHERE log = ? LIMIT ?"
            removed = db.execute(f"DELETE FROM log_entries WHERE id IN ({some})", (log, left)).rowcount
            left -= removed
            if left <= 0:
                break
            db.execute("DELETE FROM logs WHERE id = ?", (log,))
            deleted += 1
        deleted += SWEPT - left
    return deleted


def close_all(connections: list[sqlite3.Connection]) -> None:
    """Close connections, and empty the list."""
    while connections:
        connections.pop().close()
