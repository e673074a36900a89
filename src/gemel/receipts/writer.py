"""Writes the files of receipts: a thread appends lines, rotates files, and repairs what a killed process left.

All Receipts of one file share a writer in a process; each process writes a file of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias
from weakref import WeakSet, WeakValueDictionary, ref

from gemel.errors import DefinitionError
from gemel.loops import PerLoop, on_fork
from gemel.receipts.entries import HashKey, Position, read_line, timestamp, write_line
from gemel.receipts.files import WriterSlot, file_of, rotate, rotated
from gemel.version import __version__

logger = logging.getLogger("gemel")

#: What the answer of a call waits for: nothing, that the line is handed to the operating system, or that it is on the disk.
Sync: TypeAlias = Literal["later", "written", "disk"]

#: Seconds between attempts to write.
_PAUSE = 1.0
#: Seconds in which lines are gathered, to be written at once, where no call waits for them: it takes the event loop less time.
_GATHER = 0.01
#: Seconds in which a process that ends goes on writing.
_END = 5.0
#: Lines that are written at once.
_BATCH = 500
#: The longest line that is looked for at the end of a file.
LONGEST_LINE = 1 << 20
#: Characters of a torn line that are kept.
_TORN = 200
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)

_writers: WeakValueDictionary[str, ReceiptWriter] = WeakValueDictionary()
_open: WeakSet[ReceiptWriter] = WeakSet()


class PendingLine:
    """What is to be written: `make` gives the members of the line, in the thread that writes.

    Args:
        make: Makes the members.
        size: The bytes that it keeps.
    """

    __slots__ = ("_made", "_make", "size", "waiter")

    def __init__(self, make: Callable[[], dict[str, Any]], size: int) -> None:
        self._make = make
        self._made: dict[str, Any] | None = None
        self.size = size
        #: The call that waits until it is written.
        self.waiter: asyncio.Future[bool] | None = None

    @property
    def members(self) -> dict[str, Any]:
        """The members of the line, made once."""
        if self._made is None:
            try:
                self._made = self._make()
            except Exception:
                logger.exception("A receipt can't be made")
                self._made = {"kind": "lost", "receipts": 1}
        return self._made


def writer_of(path: Path, secret: str | bytes | None, settings: Settings) -> ReceiptWriter:
    """The writer of a file in this process. Raises DefinitionError for one that has other options."""
    name = os.path.realpath(path)
    writer = _writers.get(name)
    if writer is None:
        writer = _writers[name] = ReceiptWriter(Path(name), HashKey(secret), settings)
    elif writer.settings != settings or writer.key.id != HashKey(secret).id:
        raise DefinitionError(f"{path} is written with other options in this process: use one Receipts for both")
    return writer


class Settings(NamedTuple):
    """How a file is written; see `Receipts`."""

    sync: Sync
    max_bytes: int
    keep: int | None
    queue: int
    queue_bytes: int


class ReceiptWriter:
    """The file of receipts that this process writes.

    Args:
        path: The file of the first process.
        key: What hashes are made with.
        settings: How it is written.
    """

    def __init__(self, path: Path, key: HashKey, settings: Settings) -> None:
        self.path = path
        self.key = key
        self.settings = settings
        #: Why the file can't be written now; None if it can.
        self.failure: str | None = None
        self._tried = 0.0
        #: Receipts that were not written because too many waited.
        self._lost = 0
        self._slot: WriterSlot | None = None
        self._descriptor: int | None = None
        self._begin()
        self._loops = PerLoop(asyncio.get_running_loop, end=_closing(ref(self)))
        on_fork(self._begin)

    def _begin(self) -> None:
        """Begin without a file: also after a fork, in the new process, which takes a file of its own."""
        self._close_file()
        self._free_slot()
        self._entries: deque[PendingLine] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        #: Held while files are opened and written.
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._file = self.path
        self._size = 0
        #: Whether the file holds more than the line that begins it.
        self._holds_more = False

    # ---------------------------------------------------------------- for calls, in their event loops

    def obstacle(self) -> str | None:
        """Why no call may begin now: the file can't be written, or too many receipts wait. None if nothing is in the way."""
        self._loops.here()
        may_try = self.failure is None or time.monotonic() - self._tried > _PAUSE
        if self._descriptor is None and not self._entries and may_try:
            with self._writing:
                if self._descriptor is None:
                    self._attempt(self._open)
        if self.failure is not None:
            return self.failure
        return f"{self._file} is written too slowly: {len(self._entries)} receipts wait" if self.is_full else None

    @property
    def is_full(self) -> bool:
        """Whether as many receipts wait as may."""
        return len(self._entries) >= self.settings.queue or self._bytes >= self.settings.queue_bytes

    def add(self, entry: PendingLine) -> None:
        """Have an entry written."""
        with self._changed:
            self._entries.append(entry)
            self._bytes += entry.size
            if self._thread is None:
                self._ending.clear()
                self._thread = threading.Thread(target=self._run, name="gemel-receipts", daemon=True)
                self._thread.start()
                _open.add(self)
            self._changed.notify()

    def drop(self) -> None:
        """Count an entry that is not written, because too many wait."""
        with self._changed:
            self._lost += 1

    def end_loop(self) -> None:
        """Close the file with the last event loop that uses it."""
        if len(self._loops.all()) <= 1:
            self.close()

    def close(self) -> None:
        """Write what waits, for a few seconds, and close the file. The next entry opens it again."""
        with self._changed:
            thread = self._thread
            self._ending.set()
            self._changed.notify()
        if thread is not None:
            thread.join(_END)
            if thread.is_alive():
                logger.error("%s: %d receipts are not written, and are lost", self._file, len(self._entries))
        with self._writing:
            if self._descriptor is not None:
                self._attempt(self._write_close)
            self._close_file()
            self._free_slot()

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._entries and not self._ending.is_set():
                    self._changed.wait()
                if not self._entries:
                    self._thread = None
                    return
            if self.settings.sync == "later":
                self._ending.wait(_GATHER)
            with self._changed:
                batch = list(islice(self._entries, _BATCH))
            with self._writing:
                done = self._attempt(lambda: self._write(batch))  # noqa: B023 - it runs at once
            if not done:
                self._answer(batch, False)
                if self._ending.is_set():
                    self._give_up()
                    return
                self._ending.wait(_PAUSE)

    def _give_up(self) -> None:
        with self._changed:
            logger.error("%s: %d receipts can't be written, and are lost", self._file, len(self._entries))
            self._entries.clear()
            self._bytes = 0
            self._thread = None

    def _attempt(self, action: Callable[[], None]) -> bool:
        """Do something with the file. If that fails, the file is closed, and read and repaired before it is written again."""
        self._tried = time.monotonic()
        try:
            action()
        except Exception as exc:
            reason = f"{self._file} can't be written: {getattr(exc, 'strerror', None) or exc}"
            if self.failure is None:
                logger.error("Receipts: %s", reason)
            self.failure = reason
            self._close_file()
            return False
        if self.failure is not None:
            logger.warning("Receipts: %s can be written again", self._file)
            self.failure = None
        return True

    def _write(self, batch: list[PendingLine]) -> None:
        """Write entries, and take those that are written out of the queue."""
        self._take_slot()
        if self._descriptor is not None and not self._is_in_place():
            logger.warning("Receipts: %s was moved or deleted while it was written: it is made anew", self._file)
            self._close_file()
        if self._descriptor is None:
            self._open()
        if self._lost:
            lost, self._lost = self._lost, 0
            try:
                self._append([{"kind": "lost", "receipts": lost}])
            except OSError:
                self._lost += lost
                raise
        self._append([entry.members for entry in batch], lambda count: self._take(batch, count))

    def _take(self, batch: list[PendingLine], count: int) -> None:
        written, batch[:] = batch[:count], batch[count:]
        with self._changed:
            for entry in written:
                self._entries.popleft()
                self._bytes -= entry.size
        self._answer(written, True)

    @staticmethod
    def _answer(entries: list[PendingLine], written: bool) -> None:
        for entry in entries:
            waiter, entry.waiter = entry.waiter, None
            if waiter is not None:
                try:
                    waiter.get_loop().call_soon_threadsafe(_set, waiter, written)
                except RuntimeError:  # the loop is closed
                    continue

    def _append(self, entries: list[dict[str, Any]], taken: Callable[[int], None] = lambda count: None) -> None:
        """Append lines; a full file is rotated before the line that does not fit. `taken` is told how many are written."""
        chunk, position, count = b"", self._position, 0
        for members in entries:
            line, after = write_line({"at": timestamp(time.time()), **members}, position, self.key)
            full = self._size + len(chunk) + len(line) > self.settings.max_bytes
            if full and (chunk or self._holds_more):
                self._put(chunk, position)
                taken(count)
                count = 0
                self._rotate()
                line, after = write_line({"at": timestamp(time.time()), **members}, self._position, self.key)
                chunk = b""
            chunk += line
            position = after
            count += 1
        self._put(chunk, position)
        taken(count)

    def _put(self, chunk: bytes, position: Position) -> None:
        """Write whole lines, or none of them. Raises OSError."""
        assert self._descriptor is not None
        rest = memoryview(chunk)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            if chunk and self.settings.sync == "disk":
                os.fsync(self._descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(chunk)
        self._position = position
        self._holds_more = True

    # ---------------------------------------------------------------- files

    def _is_in_place(self) -> bool:
        """Whether the open file is still the one of its name."""
        assert self._descriptor is not None
        try:
            named, opened = os.stat(self._file), os.fstat(self._descriptor)
        except OSError:
            return False
        self._size = opened.st_size
        return os.path.samestat(named, opened)

    def _take_slot(self) -> None:
        """Take a file that no other process writes, and again if the file of the locks was moved or deleted."""
        if self._slot is not None:
            if self._slot.is_in_place:
                return
            logger.warning("Receipts: %s was moved or deleted: it is made anew", self._slot.path)
            self._slot.release()
            self._slot = None
        self._slot = WriterSlot(self.path)
        file = file_of(self.path, self._slot.number)
        if file != self._file:  # somebody else has taken the former one meanwhile, and goes on with its chain
            self._close_file()
            self._file, self._position, self._goes_on = file, Position(), False

    def _write_close(self) -> None:
        self._take_slot()
        if self._descriptor is not None:
            self._append([{"kind": "close", "pid": os.getpid()}])
            self._goes_on = False

    def _open(self) -> None:
        """Open the file of this process, repair its end, and go on with its chain."""
        self._take_slot()
        self._descriptor = os.open(self._file, _APPEND | _PLAIN, 0o600)
        torn = _cut_torn_line(self._descriptor, self._file)
        last = _last_line(self._descriptor)
        if last is None:
            older = rotated(self._file)
            if older:
                descriptor = os.open(older[-1], os.O_RDONLY | _PLAIN)
                try:
                    last = _last_line(descriptor)
                finally:
                    os.close(descriptor)
        # What this process has written counts, even where it was deleted: the gap shows.
        self._position = max(self._position, last or Position(), key=lambda position: position.n)
        self._size = os.fstat(self._descriptor).st_size
        is_new = self._size == 0
        self._begin_file([] if torn is None else [torn])
        self._holds_more = not is_new

    def _begin_file(self, more: list[dict[str, Any]]) -> None:
        """The line that says who writes from here on, and with which key."""
        way = "sha256" if self.key.id is None else "hmac-sha256"
        opening = {"kind": "open", "hash_with": way, "key": self.key.id, "pid": os.getpid(), "gemel": __version__}
        if self._goes_on:
            opening["again"] = True
        chunk, position = b"", self._position
        for members in (opening, *more):
            line, position = write_line({"at": timestamp(time.time()), **members}, position, self.key)
            chunk += line
        self._put(chunk, position)
        self._holds_more = False
        self._goes_on = True

    def _rotate(self) -> None:
        self._close_file()
        rotate(self._file, self.settings.keep)
        self._descriptor = os.open(self._file, _APPEND | _PLAIN, 0o600)
        self._size = 0
        self._begin_file([])

    def _free_slot(self) -> None:
        """Let another process take the file, and go on with its chain."""
        self._position = Position()
        #: Whether this process has begun the chain or gone on with it, and not ended with a line that says so.
        self._goes_on = False
        if self._slot is not None:
            self._slot.release()
            self._slot = None

    def _close_file(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _closing(writer: ref[ReceiptWriter]) -> Callable[[object], Awaitable[None]]:
    """What ends a writer with an event loop, and does not keep it."""

    async def end(loop: object) -> None:
        if (open_writer := writer()) is not None:
            open_writer.end_loop()

    return end


def _set(waiter: asyncio.Future[bool], written: bool) -> None:
    if not waiter.done():
        waiter.set_result(written)


def _tail(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    os.lseek(descriptor, max(size - LONGEST_LINE, 0), os.SEEK_SET)
    data = b""
    while more := os.read(descriptor, LONGEST_LINE):
        data += more
    return data


def _cut_torn_line(descriptor: int, file: Path) -> dict[str, Any] | None:
    """Cut off a last line without its end, or end it if only that is missing. Returns the entry that tells of it."""
    data = _tail(descriptor)
    torn = data[data.rfind(b"\n") + 1 :]
    if not torn:
        return None
    if read_line(torn) is not None:
        os.write(descriptor, b"\n")
        return None
    logger.warning("Receipts: the last line of %s was not written to its end: %d bytes are cut off", file, len(torn))
    os.ftruncate(descriptor, os.fstat(descriptor).st_size - len(torn))
    text = torn[:_TORN].decode("ascii", "backslashreplace")
    return {"kind": "repaired", "bytes": len(torn), "sha256": sha256(torn).hexdigest(), "text": text}


def _last_line(descriptor: int) -> Position | None:
    """The position behind the last line that has the form of one; None if there is none."""
    for text in reversed(_tail(descriptor).splitlines()):
        line = read_line(text)
        if line is not None:
            return line.position
    return None


@atexit.register
def _close_all() -> None:
    for writer in list(_open):
        writer.close()
