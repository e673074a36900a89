"""The thread of the SQLite backend that looks for what other processes wrote."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable

from gemel.backends.memory import MemoryBackend
from gemel.backends.sqlite_file import DatabaseFile, number
from gemel.errors import BackendError
from gemel.protocol.changes import Changed, ChangesLost

logger = logging.getLogger("gemel")

#: Seconds between two looks: without watched logs, with some, and with some after nobody has written for `IDLE_AFTER`. A look
#: costs little, but each time the thread wakes up costs a tenth of a millisecond of CPU.
POLL, WATCH_POLL, IDLE_POLL = 0.2, 0.02, 0.05
IDLE_AFTER = 1.0
#: The first look begins so many seconds in the past: a change may be committed later than it says.
CLOCK_SLACK = 1.0
_ROWS = 1000


class Poller:
    """A thread that tells the listeners and watchers of this process what others wrote.

    Args:
        file: The database.
        local: The listeners and watchers.
        source: The mark of what this process writes.
        after_look: Called after each look.
    """

    def __init__(self, file: DatabaseFile, local: MemoryBackend, source: str, after_look: Callable[[], None]) -> None:
        self._file = file
        self._local = local
        self._source = source
        self._after_look = after_look
        self._awake = threading.Event()
        self._ended = False
        #: The last change that was read, and the last entry of a log; None before the first look.
        self._change: int | None = None
        self._entry: int | None = None
        self._since = time.time() - CLOCK_SLACK
        self._version = -1
        #: When it was last seen that somebody had written.
        self._written = 0.0
        self._thread = threading.Thread(target=self._run, name="gemel-sqlite-changes", daemon=True)
        self._thread.start()

    def nudge(self) -> None:
        """Look now: a log is watched."""
        self._awake.set()

    def stop(self) -> None:
        """Have the thread end soon."""
        self._ended = True
        self._awake.set()

    def join(self) -> None:
        """Wait for the end of the thread."""
        self._thread.join()

    def _run(self) -> None:
        db: sqlite3.Connection | None = None
        failed = False
        while not self._ended:
            self._awake.clear()
            try:
                if db is None:
                    db = self._file.open()
                    self._version = -1
                    self._entry = None
                self._look(db)
                failed = False
            except (sqlite3.Error, BackendError) as exc:
                if not failed:
                    logger.warning("Changes of other processes are not reported yet: %s", exc)
                failed = True
                if db is not None:
                    db.close()
                    db = None
            self._after_look()
            self._awake.wait(POLL if failed or not self._local.has_watchers else self._watch_pause())
        if db is not None:
            db.close()

    def _watch_pause(self) -> float:
        return WATCH_POLL if time.monotonic() - self._written < IDLE_AFTER else IDLE_POLL

    def _look(self, db: sqlite3.Connection) -> None:
        """Read what is new; costs next to nothing if nobody wrote."""
        version = number(db, "PRAGMA data_version")
        if version == self._version:
            return
        self._version = version
        self._written = time.monotonic()
        self._read_changes(db)
        self._read_logs(db)

    def _read_changes(self, db: sqlite3.Connection) -> None:
        newest = _last_id(db, "changes")
        position = self._change
        if position is None:
            first: int | None = db.execute("SELECT min(id) FROM changes WHERE at >= ?", (self._since,)).fetchone()[0]
            position = newest if first is None else first - 1
        if newest < position:  # another file is there now
            position = newest
            self._local.tell(ChangesLost("the database was replaced"))
        while position < newest and not self._ended:
            query = "SELECT id, source, kind, uri FROM changes WHERE id > ? ORDER BY id LIMIT ?"
            rows = db.execute(query, (position, _ROWS)).fetchall()
            lost = not rows or rows[0][0] != position + 1
            position = rows[-1][0] if rows else newest
            for _, source, kind, uri in rows:
                if source == self._source:
                    continue
                lost = lost or not kind
                if kind:
                    self._local.tell(Changed(kind, uri))
            if lost:
                self._local.tell(ChangesLost("changes of other processes were not read in time"))
        self._change = position

    def _read_logs(self, db: sqlite3.Connection) -> None:
        newest = _last_id(db, "log_entries")
        position = self._entry
        if position is None or newest < position:  # the first look, or another file
            position = newest
            self._local.wake(self._local.watched)
        while position < newest and not self._ended:
            # Entries of a process that appended later than others are read by those whom its own append has woken.
            query = "SELECT newest, key, source FROM logs WHERE newest > ? ORDER BY newest LIMIT ?"
            rows = db.execute(query, (position, _ROWS)).fetchall()
            position = rows[-1][0] if len(rows) == _ROWS else newest
            self._local.wake(key.decode() for _, key, source in rows if source != self._source)
        self._entry = position


def _last_id(db: sqlite3.Connection, table: str) -> int:
    return number(db, f"SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{table}'), 0)")
