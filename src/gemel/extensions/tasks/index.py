"""The index of the tasks that have to run: some values in the backend, which all processes change by compare-and-set."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from gemel.backends.base import Backend
from gemel.errors import BackendError, GemelError

#: The version of what is stored. An index of another version is refused.
FORMAT: Final = 1
#: Values that the index consists of, so that two processes seldom change the same one.
BUCKETS: Final = 16

ResultT = TypeVar("ResultT")


class OpenTask(Struct, array_like=True):
    """A task that has to run.

    Attributes:
        owner: The process that runs it; "" if any may.
        woken: Whether it was woken since its run began.
        deaths: Processes that have died while they ran it, since its journal has grown.
        progress: The length of its journal at the last death.
        after: When it may run again, in seconds since 1970.
    """

    owner: str = ""
    woken: bool = False
    deaths: int = 0
    progress: int = 0
    after: float = 0.0


Index: TypeAlias = dict[str, OpenTask]
_decoder = msgspec.msgpack.Decoder(tuple[int, Index])
_format = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])


class _Edit(Generic[ResultT]):
    """A change that waits to be written, and what came of it."""

    def __init__(self, change: Callable[[Index], ResultT]) -> None:
        self.change = change
        self.done = False
        self.result: ResultT
        self.error: Exception | None = None

    def apply(self, index: Index) -> None:
        """Change the entries."""
        self.error = None
        try:
            self.result = self.change(index)
        except Exception as exc:
            self.error = exc


class TaskBucket:
    """One value of the index.

    Args:
        backend: Keeps it.
        key: Its key.
    """

    def __init__(self, backend: Backend, key: str) -> None:
        self._backend = backend
        self._key = key
        self._lock = asyncio.Lock()
        #: Changes that are written together, as soon as the last write has ended.
        self._edits: list[_Edit[Any]] = []
        #: The value that was read or written last.
        self._present: bytes | None = None

    async def read(self) -> Index:
        """All entries."""
        self._present = await self._backend.get(self._key)
        return decode_index(self._present)

    async def edit(self, change: Callable[[Index], ResultT]) -> ResultT:
        """Change entries, atomically among all processes.

        Args:
            change: Changes entries in place. It may be called several times, and the last one counts. An error that it raises,
                before it changes anything, is raised here.

        Returns:
            What `change` returned.

        Raises:
            BackendError: The backend can't be reached; the change may have been made.
        """
        edit = _Edit(change)
        self._edits.append(edit)
        async with self._lock:
            if not edit.done:
                edits, self._edits = self._edits, []
                try:
                    await self._write(edits)
                except BaseException:  # this caller was cancelled: another one writes the changes of the others
                    self._edits[:0] = [other for other in edits if other is not edit]
                    raise
        if edit.error is not None:
            raise edit.error
        return edit.result

    async def _write(self, edits: list[_Edit[Any]]) -> None:
        present, fresh, pause = self._present, False, 0.0
        try:
            while True:
                index = decode_index(present)
                for edit in edits:
                    edit.apply(index)
                data = msgspec.msgpack.encode((FORMAT, index))
                if data == present and fresh:
                    break
                if data != present and await self._backend.replace(self._key, present, data):
                    self._present = data
                    break
                await asyncio.sleep(random.uniform(0, pause))
                present, fresh, pause = await self._backend.get(self._key), True, min(0.1, pause * 2 + 0.001)
        except GemelError as exc:
            for edit in edits:
                edit.error = exc
        for edit in edits:
            edit.done = True


def decode_index(data: bytes | None) -> Index:
    """The entries of a value. Raises BackendError if it can't be read."""
    if data is None:
        return {}
    try:
        version, _ = _format.decode(data)
        if version == FORMAT:
            return _decoder.decode(data)[1]
    except msgspec.MsgspecError as exc:
        raise BackendError(f"The index of tasks in the backend is damaged: {exc}") from exc
    raise BackendError(f"The tasks in the backend have format {version}, which this version of Gemel can't read")
