"""What is stored of a task: one record that changes by compare-and-set, its call and result, and a journal of what is done.

The record is what every process of a server agrees on. The journal is a log with one writer, the run of the task: results of
`ctx.step` and answers of the client, so that another run goes on where the last one ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from gemel.backends.base import MAX_LOG_BYTES, Backend
from gemel.backends.keys import make_key
from gemel.backends.patience import store_patiently
from gemel.backends.server_backend import ServerBackend
from gemel.errors import BackendError, ErrorObject, GemelError, LogConflict, Overloaded, shorten
from gemel.protocol.eras.base import EraName
from gemel.protocol.http.request import Owner, Principal, frozen
from gemel.protocol.records import Origin
from gemel.values.encoding import encode_unicode

logger = logging.getLogger("gemel")

#: The version of what is stored. A record of another version is refused.
FORMAT: Final = 1

ResultT = TypeVar("ResultT")
Status: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]

TERMINAL: Final[frozenset[Status]] = frozenset({"completed", "failed", "cancelled"})

#: The moves between states. Tasks, "Task Status Lifecycle" (2025-11-25) and SEP-2663.
MOVES: Final[dict[Status, frozenset[Status]]] = {
    "working": frozenset({"working", "input_required", "completed", "failed", "cancelled"}),
    "input_required": frozenset({"working", "input_required", "completed", "failed", "cancelled"}),
    "completed": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}

#: The longest status message, in characters.
MESSAGE_LENGTH: Final = 1000
#: Bytes of one stored part of a call or result, and of one entry of a journal: less than a backend's limit for a value, since
#: encryption adds to it.
PART_BYTES: Final = 1000 * 1024
#: Bytes of all entries of a journal: of a larger log, a backend drops the oldest entries.
JOURNAL_BYTES: Final = MAX_LOG_BYTES - PART_BYTES
#: Seconds for which what a task has done is tried to be stored while the backend can't be reached or is full.
PATIENCE: Final = 30.0
#: Attempts to change a record that others change, too.
_ATTEMPTS: Final = 50

_ID = re.compile(r"[0-9a-f]{32}\Z")


class StoredInput(Struct, array_like=True):
    """A request for input that waits for its answer: the method, and the params as JSON text (empty if there are none)."""

    method: str
    params: bytes = b""


class StoredAnswer(Struct, array_like=True):
    """The answer to a request for input: the result as JSON text, or an error."""

    result: bytes = b""
    error: ErrorObject | None = None


class TaskRecord(Struct, kw_only=True, omit_defaults=True):
    """The state of one task.

    Attributes:
        id: The id, which nobody can guess.
        owner: A digest of whom it belongs to; "" if nobody was authenticated.
        era: The era of the call, and with `revision` the shape of its result.
        tool: The name of the tool.
        status: The state; see `MOVES`.
        message: What is being done, for people.
        created: When it was made, in seconds since 1970; `updated` when it changed last.
        ttl: Milliseconds from `created` for which it is kept.
        poll: Milliseconds that a client should wait between two requests.
        run: How often it was begun. A run stops when there is a later one.
        inputs: The requests for input that wait for answers, by key.
        answers: Answers that are not in the journal yet.
        input_bytes: The bytes of all requests for input and answers so far.
        call_parts: How many parts its call is stored in; `result_parts` those of its result.
        error: The error that it failed with.
        failed: Whether the result has `isError`.
    """

    format: int = FORMAT
    id: str
    owner: str = ""
    era: EraName
    revision: str
    tool: str
    status: Status = "working"
    message: str | None = None
    created: float
    updated: float
    ttl: int
    poll: int
    run: int = 0
    inputs: dict[str, StoredInput] = field(default_factory=dict)
    answers: dict[str, StoredAnswer] = field(default_factory=dict)
    input_bytes: int = 0
    call_parts: int = 1
    result_parts: int = 0
    error: ErrorObject | None = None
    failed: bool = False

    @property
    def expires(self) -> float:
        """When it may be deleted, in seconds since 1970."""
        return self.created + self.ttl / 1000

    @property
    def ended(self) -> bool:
        """Whether its state never changes again."""
        return self.status in TERMINAL

    def move(self, status: Status) -> None:
        """Change the state. Raises ValueError for a move that is not allowed."""
        if status not in MOVES[self.status]:
            raise ValueError(f"A task can't become {status} when it is {self.status}")
        self.status = status

    def end_with(self, error: ErrorObject) -> bool:
        """Let it fail, unless it has ended. Returns whether it did."""
        if self.ended:
            return False
        self.move("failed")
        self.error, self.message = error, shorten(error.message, MESSAGE_LENGTH)
        self.inputs, self.answers = {}, {}
        return True


class StoredCaller(Struct, omit_defaults=True):
    """Who called, as `Origin` has it. Tokens and headers are not stored."""

    principal: str | None = None
    scopes: frozenset[str] | None = frozenset()
    claims: dict[str, Any] | None = None
    expires: float | None = None
    client: str | None = None

    @classmethod
    def of(cls, origin: Origin) -> StoredCaller:
        """What is stored of the origin of a call."""
        caller = origin.caller
        if caller is None:
            return cls(origin.principal, origin.scopes)
        return cls(origin.principal, origin.scopes, dict(caller.claims), caller.expires, caller.client)

    @property
    def origin(self) -> Origin:
        """The origin of the call that runs as a task."""
        caller = None
        if self.claims is not None and self.principal is not None:
            scopes = self.scopes or frozenset()
            caller = Principal(self.principal, scopes, frozen(self.claims), self.expires, self.client)
        return Origin(principal=self.principal, scopes=self.scopes, caller=caller)


class StoredCall(Struct, omit_defaults=True):
    """The call that runs as a task.

    Attributes:
        params: The params of `tools/call` with their `_meta`, as JSON text.
        caller: Who called.
        capabilities: What the client declared in its handshake, as JSON text; in the stateless era it is in `_meta`.
        client_info: Who the client said it is in its handshake, as JSON text.
        answers: Answers that the client gave before the call became a task, by key, as JSON text.
        steps: Results of the steps that ran before, by key, as JSON text.
    """

    params: bytes
    caller: StoredCaller
    capabilities: bytes = b""
    client_info: bytes = b""
    answers: dict[str, bytes] = field(default_factory=dict)
    steps: dict[str, bytes] = field(default_factory=dict)


class TaskGone(GemelError):
    """A task does not exist any more, or another run of it has begun."""


def new_id() -> str:
    """An id of 128 random bits. It begins with no dash, since people write it behind commands."""
    return secrets.token_hex(16)


def owner_of(owner: Owner) -> str:
    """The digest of whom a task belongs to; "" for nobody."""
    return "" if owner is None else hashlib.sha256(msgspec.json.encode(owner)).hexdigest()


_records = msgspec.msgpack.Decoder(TaskRecord)
_formats = msgspec.msgpack.Decoder(dict[str, Any])
_calls = msgspec.msgpack.Decoder(StoredCall)


class _ListedTask(Struct, array_like=True):
    """A task in the list of an owner."""

    id: str
    expires: float


_lists = msgspec.msgpack.Decoder(list[_ListedTask])


class TaskStore:
    """The tasks in a backend.

    Args:
        backend: Keeps them.
    """

    def __init__(self, backend: ServerBackend) -> None:
        self.backend = backend

    async def create(self, record: TaskRecord, call: StoredCall) -> None:
        """Store a new task; it is durable, as far as the backend is, when this returns. Raises Overloaded."""
        ttl = _remaining(record)
        record.call_parts = await self._store(record.id, "call", msgspec.msgpack.encode(call, enc_hook=_plain), ttl)
        if not await self.backend.replace(_key(record.id), None, _encode(record), ttl=ttl):
            raise GemelError("There is a task of this id already")

    async def get(self, task_id: object) -> TaskRecord | None:
        """The record of a task; None if there is none of this id, or it has expired."""
        if not isinstance(task_id, str) or not _ID.match(task_id):
            return None
        return _decode(await self.backend.get(_key(task_id)))

    async def change(self, task_id: str, edit: Callable[[TaskRecord], bool]) -> TaskRecord:
        """Change a record: read it, call `edit`, store it unless somebody else changed it meanwhile; else once more.

        Args:
            task_id: The id.
            edit: Changes the record and returns whether it did; may be called several times, and may raise.

        Returns:
            The record as it is stored.

        Raises:
            TaskGone: There is no such task any more.
            Overloaded: Others change it all the time.
        """
        key = _key(task_id)
        for attempt in range(_ATTEMPTS):
            present = await self.backend.get(key)
            record = _decode(present)
            if record is None or present is None:
                raise TaskGone(f"There is no task {task_id} any more")
            if not edit(record):
                return record
            record.updated = max(time.time(), record.updated)
            if await self.backend.replace(key, present, _encode(record), ttl=_remaining(record)):
                return record
            await asyncio.sleep(random.uniform(0, 0.001 * attempt))
        raise Overloaded("Too many changes of one task at once")

    async def call_of(self, record: TaskRecord) -> StoredCall:
        """The call of a task. Raises TaskGone."""
        return _calls.decode(await self._load(record.id, "call", record.call_parts))

    async def store_result(self, record: TaskRecord, result: bytes) -> int:
        """Store the result of a task, before its record says that it is completed. Returns the number of parts.

        Each run stores under keys of its own, so that the result of a run that was overtaken replaces nothing.
        """
        return await self._store(record.id, _result_of(record), result, _remaining(record))

    async def result_of(self, record: TaskRecord) -> Raw:
        """The result of a completed task as JSON text. Raises TaskGone."""
        return Raw(await self._load(record.id, _result_of(record), record.result_parts))

    async def delete(self, record: TaskRecord) -> None:
        """Delete a task and all that is stored of it but its journal, which expires."""
        await self.backend.delete(_key(record.id))
        await self._delete_call(record)
        for number in range(record.result_parts):
            await self.backend.delete(_part_key(record.id, _result_of(record), number))

    async def delete_run(self, task_id: str) -> None:
        """Delete what only the runs of a task need, if it has ended: its call and its journal."""
        record = await self.get(task_id)
        if record is not None and record.ended:
            await self._delete_call(record)
            if await self.backend.end_of(log := _journal_key(task_id)):
                await self.backend.append(log, [b""], ttl=0.001, most=1)

    async def _delete_call(self, record: TaskRecord) -> None:
        for number in range(record.call_parts):
            await self.backend.delete(_part_key(record.id, "call", number))

    def journal(self, record: TaskRecord, *, most: int) -> Journal:
        """The journal of a task, not loaded yet; with at most so many entries."""
        return Journal(self.backend, _journal_key(record.id), lambda: _remaining(record), most)

    # ---------------------------------------------------------------- the tasks of an owner

    async def enlist(self, owner: str, task_id: str, expires: float, most: int) -> None:
        """Add a task to the list of its owner. Raises Overloaded if the owner has `most` tasks already."""

        def add(tasks: list[_ListedTask]) -> list[_ListedTask]:
            if len(tasks) >= most:
                wait = min(task.expires for task in tasks) - time.time()
                delay = int(1000 * min(max(wait, 1.0), 60.0))
                raise Overloaded(f"Too many tasks: {most} are the limit of a caller", retry_after_ms=delay)
            return [*tasks, _ListedTask(task_id, expires)]

        await self._change_list(owner, add)

    async def delist(self, owner: str, task_id: str) -> None:
        """Remove a task from the list of its owner."""
        await self._change_list(owner, lambda tasks: [task for task in tasks if task.id != task_id])

    async def ids_of(self, owner: str) -> list[str]:
        """The ids of the tasks of an owner, the oldest first; some may have expired."""
        present = await self.backend.get(_list_key(owner))
        return [] if present is None else [task.id for task in _decoded(_lists, present)]

    async def _change_list(self, owner: str, edit: Callable[[list[_ListedTask]], list[_ListedTask]]) -> None:
        key = _list_key(owner)
        for attempt in range(_ATTEMPTS):
            present, now = await self.backend.get(key), time.time()
            tasks = [] if present is None else [task for task in _decoded(_lists, present) if task.expires > now]
            changed = edit(tasks)
            ttl = max((task.expires - now for task in changed), default=0.0) + 60.0
            if await self.backend.replace(key, present, msgspec.msgpack.encode(changed), ttl=ttl):
                return
            await asyncio.sleep(random.uniform(0, 0.001 * attempt))
        raise Overloaded("Too many tasks of one caller are made at once")

    # ---------------------------------------------------------------- parts

    async def _store(self, task_id: str, what: str, data: bytes, ttl: float) -> int:
        parts = [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)] or [b""]
        for number, part in enumerate(parts):
            await self.backend.set(_part_key(task_id, what, number), part, ttl=ttl)
        return len(parts)

    async def _load(self, task_id: str, what: str, count: int) -> bytes:
        parts: list[bytes] = []
        for number in range(count):
            part = await self.backend.get(_part_key(task_id, what, number))
            if part is None:
                raise TaskGone(f"The {what.partition(' ')[0]} of the task {task_id} is gone")
            parts.append(part)
        return b"".join(parts)


async def keep_trying(write: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Store what a task has done; see `store_patiently`."""
    return await store_patiently(write, PATIENCE, "What a task has done")


Event: TypeAlias = Literal["run", "begun", "done", "failed", "answer"]


class JournalEntry(Struct, array_like=True):
    """One entry: a run or a step that must not be repeated begins, a step has failed or has a result, or an answer came."""

    event: Event
    key: str
    result: bytes = b""
    error: ErrorObject | None = None


_entries = msgspec.msgpack.Decoder(JournalEntry)


class Journal:
    """What a task has done, as a log with one writer: an append fails if another run has written meanwhile.

    Args:
        backend: Keeps the log.
        log: Its key.
        ttl: Gives the seconds until it expires.
        most: How many entries it may have.
    """

    def __init__(self, backend: Backend, log: str, ttl: Callable[[], float], most: int) -> None:
        self._backend = backend
        self._log = log
        self._ttl = ttl
        self._most = most
        self._end = 0
        self._bytes = 0
        self._lock = asyncio.Lock()
        #: Results of steps by key, as JSON text.
        self.steps: dict[str, bytes] = {}
        #: The steps that have begun and must not be repeated.
        self.begun: set[str] = set()
        #: Why steps failed that must not be repeated.
        self.failed: dict[str, str] = {}
        self.answers: dict[str, StoredAnswer] = {}

    async def load(self) -> None:
        """Read the log. Raises BackendError if entries are missing."""
        while entries := await self._backend.read(self._log, after=self._end):
            for position, data in entries:
                if position != self._end + 1:
                    raise BackendError(f"The journal of a task has lost the entries {self._end + 1} to {position - 1}")
                self._take(_decoded(_entries, data), len(data))

    @property
    def progress(self) -> int:
        """How many steps and answers it has: it grows, while runs that got no further add nothing."""
        return len(self.steps) + len(self.begun) + len(self.failed) + len(self.answers)

    async def take_over(self, run: int) -> None:
        """Load it, and become its only writer: an entry for this run makes the appends of earlier ones fail.

        Args:
            run: The number of this run; the first one has nobody to take over from.
        """
        await self.load()
        while run > 1:
            try:
                return await self.append("run", str(run))
            except TaskGone:  # the earlier run has written meanwhile
                await self.load()

    async def append(self, event: Event, key: str, result: bytes = b"", error: ErrorObject | None = None) -> None:
        """Append an entry; it is durable, as far as the backend is, when this returns.

        If the backend can't be reached or is full, this tries again for some time.

        Raises:
            TaskGone: Another run of the task has begun.
            BackendError: The backend could not be reached, or was full: the entry may or may not be there.
            GemelError: The entry or the journal is too large.
        """
        entry = JournalEntry(event, key, result, error)
        data = msgspec.msgpack.encode(entry)
        async with self._lock:
            if len(data) > PART_BYTES or self._bytes + len(data) > JOURNAL_BYTES:
                raise GemelError(
                    f"The result of {key} has {len(result)} bytes: one step of a task keeps at most {PART_BYTES} bytes, all "
                    f"together {JOURNAL_BYTES}"
                )
            if self._end >= self._most:
                raise GemelError(f"A task remembers at most {self._most} steps and answers")
            await self._write(data)
            self._take(entry, len(data))

    async def _write(self, data: bytes) -> None:
        uncertain = went_back = False

        async def write() -> None:
            nonlocal uncertain, went_back
            try:
                await self._backend.append(self._log, [data], ttl=self._ttl(), most=self._most, after=self._end)
            except LogConflict as exc:
                entries = await self._backend.read(self._log, after=self._end, most=1) if uncertain else []
                went_back = await self._backend.end_of(self._log) < self._end
                if not went_back and entries != [(self._end + 1, data)]:  # else it was appended, and the reply was lost
                    raise TaskGone("Another run of this task has begun") from exc
            except BackendError:
                uncertain = True
                raise

        try:
            await keep_trying(write)
        except Overloaded as exc:
            raise BackendError(f"A step of a task can't be recorded: {exc}") from exc
        if went_back:  # as after a failover to a replica that had not got the last writes: the run is repeated
            raise BackendError("The store has lost what a task has recorded")

    def _take(self, entry: JournalEntry, size: int) -> None:
        self._end += 1
        self._bytes += size
        if entry.event == "begun":
            self.begun.add(entry.key)
        elif entry.event == "done":
            self.steps[entry.key] = entry.result
        elif entry.event == "failed":
            self.failed[entry.key] = entry.result.decode()
        elif entry.event == "answer":
            self.answers[entry.key] = StoredAnswer(entry.result, entry.error)


def _key(task_id: str) -> str:
    return make_key("task", task_id)


def _part_key(task_id: str, what: str, number: int) -> str:
    return make_key("task", task_id, what, str(number))


def _journal_key(task_id: str) -> str:
    return make_key("task", task_id, "journal")


def _result_of(record: TaskRecord) -> str:
    """What the parts of the result of a run are called."""
    return f"result {record.run}"


def _list_key(owner: str) -> str:
    return make_key("tasks-of", owner)


def _remaining(record: TaskRecord) -> float:
    """Seconds until a task expires; a moment, if it has."""
    return max(record.expires - time.time(), 0.001)


def _plain(value: object) -> dict[Any, Any]:
    """A read-only object in claims as one that can be encoded."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"The call of a task can't be stored: it has a {type(value).__name__} in the claims of its caller")


def _encode(record: TaskRecord) -> bytes:
    return encode_unicode(msgspec.msgpack.encode, record)


def _decode(data: bytes | None) -> TaskRecord | None:
    """A stored record; None if there is none or it has expired. Raises BackendError for one of another format."""
    if data is None:
        return None
    record = _decoded(_records, data)
    if record.format != FORMAT:
        raise BackendError(
            f"A task is stored in format {record.format}, and this version of Gemel reads format {FORMAT}"
        )
    return record if record.expires > time.time() else None


def _decoded(decoder: msgspec.msgpack.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as exc:
        raise BackendError(f"A stored task can't be read, another version of Gemel may have written it: {exc}") from exc


__all__: Sequence[str] = (
    "Journal",
    "StoredAnswer",
    "StoredCall",
    "StoredCaller",
    "StoredInput",
    "TaskGone",
    "TaskRecord",
    "TaskStore",
    "keep_trying",
)
