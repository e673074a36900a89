"""The events of the calls that one process runs for a session, in a log that other processes can read.

They are written behind, in order. A process that was taken for dead finds that another one has ended its log, and stops.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from heapq import heappop, heappush
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from gemel import jsonrpc
from gemel.backends.base import Backend
from gemel.backends.log_reader import LogReader
from gemel.backends.patience import Outage
from gemel.errors import BackendError, GemelError, InvalidRequest, LogConflict, NotFinished, shorten
from gemel.jsonrpc import RequestId
from gemel.protocol.http import sse
from gemel.protocol.limits import Limits
from gemel.transports.http.server.session import StreamResponse
from gemel.transports.http.server.sharing.mailbox import BEAT
from gemel.transports.http.server.sharing.stored_sessions import Joiner, SessionKeys, split

logger = logging.getLogger("gemel")

#: Entries and bytes that are written at once.
_BATCH, _BATCH_BYTES = 100, 4 << 20
#: Seconds between two attempts to write, at first and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
#: The numbers that a writer gives its own events are below this one. What others write after its death has greater ones:
#: clients may have events that it could not write.
_OWN = 1 << 40
#: Characters that ids of requests may take in the id of an event.
_LONGEST_IDS = 200
#: What a call gets whose process has died.
LOST = "the process that ran it has ended"

EventKind: TypeAlias = Literal["message", "mark", "end"]


class StoredEvent(msgspec.Struct, array_like=True):
    """One event of a stream."""

    kind: EventKind
    stream: int
    #: Its number among all events of its writer, and that of the event before it on the same stream; from 1.
    number: int
    previous: int
    #: The requests that the stream answers.
    ids: list[RequestId]
    data: bytes = b""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StoredEvent).decode
_encode_ids = msgspec.json.Encoder().encode
_decode_ids = msgspec.json.Decoder(list[RequestId]).decode


class Budget:
    """The bytes of events that one process keeps for all sessions, those included that it has no longer in memory."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.bytes = 0
        #: Of the backend, for the log: all sessions of the process write to it.
        self.outage = Outage("Events of sessions can't be written yet", "Events of sessions are written again")
        #: When the logs of such sessions expire, and their bytes.
        self._left: list[tuple[float, int]] = []

    def leave(self, size: int, ttl: float) -> None:
        """Count bytes until they expire."""
        if size:
            heappush(self._left, (time.monotonic() + ttl, size))

    @property
    def exceeded(self) -> bool:
        """Whether too much is kept."""
        while self._left and self._left[0][0] <= time.monotonic():
            self.bytes -= heappop(self._left)[1]
        return self.bytes > self.most


class LogWriter:
    """Writes entries to one log behind its callers, in order, again after failures of the backend.

    Args:
        backend: Has the log.
        log: Its key.
        ttl: Seconds that it is kept.
        limits: How much of it is kept.
        budget: How much is kept of all logs; beyond, a log that grows loses its oldest entries.
        alone: Whether nobody else writes to it, except to end it.
    """

    def __init__(self, backend: Backend, log: str, ttl: float, limits: Limits, budget: Budget, *, alone: bool) -> None:
        self._backend = backend
        self._log = log
        self._ttl = ttl
        self._limits = limits
        self._budget = budget
        self._alone = alone
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        #: The sizes of the entries that are kept.
        self._sizes: deque[int] = deque()
        self._kept_bytes = 0
        #: The newest position, if nobody else writes.
        self._position = 0
        self._writing: asyncio.Task[None] | None = None
        #: Whether another process has ended the log.
        self.ended = False

    def add(self, entry: bytes) -> None:
        """Write an entry soon."""
        if self.ended:
            return
        self._queue.append(entry)
        self._queued_bytes += len(entry)
        while len(self._queue) > self._limits.replay_events or self._queued_bytes > 2 * self._limits.replay_bytes:
            self._queued_bytes -= len(self._queue.popleft())
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def flush(self, seconds: float) -> None:
        """Wait until all is written. Raises BackendError if that takes too long."""
        if self._writing is not None and not self._writing.done():
            await asyncio.wait([self._writing], timeout=seconds)
            if not self._writing.done():
                raise BackendError("The events of a session can't be written")

    def stop(self, *, kept: bool = True) -> None:
        """Give up what is not written. What was written is kept until it expires, or dropped soon."""
        if kept:
            self._budget.leave(self._kept_bytes, self._ttl)
        else:
            self._budget.bytes -= self._kept_bytes
        self._kept_bytes = 0
        if self._writing is not None:
            self._writing.cancel()

    async def _write(self) -> None:
        pause = _FIRST_PAUSE
        while self._queue and not self.ended:
            batch, size = list[bytes](), 0
            while self._queue and len(batch) < _BATCH and (not batch or size + len(self._queue[0]) <= _BATCH_BYTES):
                batch.append(self._queue.popleft())
                size += len(batch[-1])
            self._queued_bytes -= size
            most = self._count(batch) if self._alone else self._limits.replay_events
            while True:
                try:
                    await self._append(batch, max(1, most))
                    self._budget.outage.ended()
                    break
                except GemelError as exc:
                    self._budget.outage.failed(exc)
                except ValueError:
                    logger.exception("Events of a session can't be written")
                    break
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            pause = _FIRST_PAUSE

    def _count(self, batch: list[bytes]) -> int:
        """Count entries that are about to be written. Returns how many entries may be kept with them."""
        limits, budget = self._limits, self._budget
        self._sizes.extend(map(len, batch))
        added = sum(map(len, batch))
        self._kept_bytes += added
        budget.bytes += added
        while len(self._sizes) > 1 and (
            len(self._sizes) > limits.replay_events or self._kept_bytes > limits.replay_bytes or budget.exceeded
        ):
            size = self._sizes.popleft()
            self._kept_bytes -= size
            budget.bytes -= size
        return len(self._sizes)

    async def _append(self, batch: list[bytes], most: int) -> None:
        append, after = self._backend.append, self._position if self._alone else None
        try:
            self._position = await append(self._log, batch, ttl=self._ttl, most=most, after=after)
        except LogConflict as exc:
            if exc.newest < self._position:  # the log has expired
                self._position = await append(self._log, batch, ttl=self._ttl, most=most)
            elif not await self._was_written(batch, exc.newest):
                logger.warning("A session goes on in another process: its events here are dropped")
                self.ended = True
                self._queue.clear()

    async def _was_written(self, batch: list[bytes], newest: int) -> bool:
        """Whether an append that seemed to fail had worked."""
        entries = await self._backend.read(self._log, after=newest - 1, most=1)
        if newest == self._position + len(batch) and entries and entries[-1][1] == batch[-1]:
            self._position = newest
            return True
        return False


class EventPlace(NamedTuple):
    """The place in the stream of a call that an event id names."""

    writer: str
    stream: int
    number: int
    #: The requests that the stream answers; none if they take too much room in an id.
    ids: list[RequestId]


class SharedReplayLog:
    """The replay log of the calls that one process runs for a session.

    Ids of events have the form `tag.writer.stream.number.ids`: whoever reads one of a process that died before it could
    write anything knows which requests will never be answered.

    Args:
        keys: Those of the session.
        writer: The name under which this process writes.
        log: Writes the entries.
        backend: Has the log.
        ids_of: The requests that a stream answers.
    """

    def __init__(
        self,
        keys: SessionKeys,
        writer: str,
        log: LogWriter,
        backend: Backend,
        ids_of: Callable[[int], list[RequestId]],
    ) -> None:
        self._keys = keys
        self._writer = writer
        self._name = keys.events(writer)
        self._log = log
        self._backend = backend
        self._ids_of = ids_of
        self._number = 0
        #: The newest event of each stream that has not ended.
        self._newest: dict[int, tuple[int, list[RequestId]]] = {}

    @property
    def position(self) -> int:
        """The number of the newest event."""
        return self._number

    def append(self, stream: int, data: bytes) -> bytes:
        """Keep one message of a stream. Returns its encoded event."""
        return sse.encode(data, id=self._add("message", stream, data))

    def mark(self, stream: int, retry: int | None) -> bytes:
        """Encode an event without a message, which gives the client an id to resume from."""
        return sse.priming(self._add("mark", stream), retry)

    def end(self, stream: int) -> None:
        """No more events follow on this stream; those that are kept can still be read."""
        if stream in self._newest:
            self._add("end", stream)
            del self._newest[stream]

    def _add(self, kind: EventKind, stream: int, data: bytes = b"") -> str:
        self._number += 1
        previous, ids = self._newest.get(stream, (0, None))
        if ids is None:
            ids = self._ids_of(stream)
        self._newest[stream] = self._number, ids
        for entry in seal_event(self._keys, self._name, StoredEvent(kind, stream, self._number, previous, ids, data)):
            self._log.add(entry)
        return event_id(self._keys, self._writer, stream, self._number, ids)

    async def find(self, event_id: str) -> tuple[int, int]:
        """Return the stream and the position of an event id of this writer. Raises InvalidRequest."""
        place = parse_event_id(self._keys, event_id)
        if place is None or place.writer != self._writer or not 0 < place.number <= self._number:
            raise unknown_event(event_id)
        return place.stream, place.number

    async def after(self, stream: int, position: int) -> list[bytes]:
        """Return the events of one stream after a position. Raises InvalidRequest if some of them were dropped."""
        await self._log.flush(BEAT)
        events = await read_events(self._backend, self._keys, self._writer)
        return [
            encode_event(self._keys, self._writer, event)
            for event in events_after(events, stream, position)
            if event.kind == "message"
        ]

    def close(self) -> None:
        """The session ends in this process: what was written is kept for others."""

    async def flush(self, seconds: float) -> None:
        """Wait until all is written. Raises BackendError if that takes too long."""
        await self._log.flush(seconds)

    def stop(self, *, kept: bool = True) -> None:
        """Give up what is not written; see LogWriter."""
        self._log.stop(kept=kept)


def event_id(keys: SessionKeys, writer: str, stream: int, number: int, ids: list[RequestId]) -> str:
    """The id of an event of a call."""
    text = _encode_ids(ids).hex()
    return f"{keys.tag}.{writer}.{stream}.{number}.{text if len(text) <= _LONGEST_IDS else ''}"


def parse_event_id(keys: SessionKeys, text: str) -> EventPlace | None:
    """The place that an event id of a call names; None if it is none of this session."""
    tag, *parts = text.split(".")
    if tag != keys.tag or len(parts) != 4 or not all(map(_is_number, parts[1:3])) or not _is_writer(parts[0]):
        return None
    try:
        ids = _decode_ids(bytes.fromhex(parts[3])) if parts[3] else []
    except ValueError:  # msgspec's errors are such
        return None
    return EventPlace(parts[0], int(parts[1]), int(parts[2]), ids)


def _is_writer(text: str) -> bool:
    return 0 < len(text) < 40 and text.isascii() and text.replace("-", "").isalnum()


def _is_number(text: str) -> bool:
    return len(text) < 16 and text.isascii() and text.isdigit()


def unknown_event(text: str) -> InvalidRequest:
    """The error for an event id that is none of the session."""
    return InvalidRequest(f"Last-Event-ID {shorten(ascii(text))} is not an event of this session")


def seal_event(keys: SessionKeys, name: str, event: StoredEvent) -> list[bytes]:
    """Make the entries of an event."""
    return [keys.seal(part, name) for part in split(_encode(event))]


def encode_event(keys: SessionKeys, writer: str, event: StoredEvent) -> bytes:
    """Encode an event as it is sent."""
    return sse.encode(event.data, id=event_id(keys, writer, event.stream, event.number, event.ids))


async def read_events(backend: Backend, keys: SessionKeys, writer: str) -> list[StoredEvent]:
    """Read all events of a writer that are kept. Raises BackendError."""
    reader = EventLogReader(backend, keys, writer)
    events: list[StoredEvent] = []
    while more := await reader.read():
        events += more
    return events


def events_after(events: list[StoredEvent], stream: int, number: int) -> list[StoredEvent]:
    """The events of one stream after a number.

    Raises:
        InvalidRequest: Some of them are no longer kept.
    """
    of_stream = [event for event in events if event.stream == stream]
    if not of_stream:
        raise InvalidRequest("The stream of this Last-Event-ID is no longer kept: call again")
    following: list[StoredEvent] = []
    for event in of_stream:
        if event.number > number:
            check_follows(event, number)
            following.append(event)
            number = event.number
    return following


def check_follows(event: StoredEvent, number: int) -> None:
    """Raise InvalidRequest if there were events of its stream between a number and this event."""
    if event.previous > number:
        raise InvalidRequest("Events after this Last-Event-ID are no longer kept: open the stream without it")


class EventLogReader:
    """Reads the events of one writer, in order."""

    def __init__(self, backend: Backend, keys: SessionKeys, writer: str) -> None:
        self._keys = keys
        self._name = keys.events(writer)
        self._joiner = Joiner()
        self._log = LogReader(backend, self._name)

    @property
    def position(self) -> int:
        """The position up to which was read."""
        return self._log.place.position

    async def read(self) -> list[StoredEvent]:
        """Read the next events; none at the end. A store that loses writes may have some read again. Raises BackendError."""
        events: list[StoredEvent] = []
        while not events:
            entries = await self._log.read()
            for _, box in entries:
                data = self._joiner.feed(self._keys.open(box, self._name))
                if data is not None:
                    try:
                        events.append(_decode(data))
                    except msgspec.MsgspecError as exc:
                        raise BackendError(f"An event of a session can't be read: {exc}") from None
            if not entries:
                break
        return events


class Follower:
    """Reads the events of a stream that another process writes, until its end.

    If the process has died, its calls end with an error, which is written to the log by one reader.

    Args:
        backend: Has the events.
        keys: Those of the session.
        place: The last event that the client has, which may not be written yet.
        is_alive: Whether the writer still lives.
        ttl: Seconds that the error is kept.
    """

    def __init__(
        self,
        backend: Backend,
        keys: SessionKeys,
        place: EventPlace,
        is_alive: Callable[[], Awaitable[bool]],
        ttl: float,
    ) -> None:
        self._backend = backend
        self._keys = keys
        self._writer = place.writer
        self._stream = place.stream
        #: The number of the newest event that the client has.
        self._given = place.number
        self._ids = place.ids
        self._is_alive = is_alive
        self._ttl = ttl
        self._reader = EventLogReader(backend, keys, place.writer)
        #: The newest event of the stream, the number of the newest event of its writer, and of that which it wrote itself.
        self._last: StoredEvent | None = None
        self._newest = self._own = 0
        #: Whether the stream has ended.
        self.ended = False

    async def begin(self) -> list[bytes]:
        """Read what is there.

        Raises:
            InvalidRequest: Events after the last one of the client are no longer kept.
            BackendError: The backend can't be reached.
        """
        events: list[bytes] = []
        while more := await self._reader.read():
            events += self._encoded(more)
        if self._last is None and (self._own >= self._given or not self._ids):
            raise InvalidRequest("The stream of this Last-Event-ID is no longer kept: call again")
        return events

    async def run(self, response: StreamResponse) -> None:
        """Give a response what follows, until the end or until the task is cancelled."""
        arrived, loop = asyncio.Event(), asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(arrived.set)

        stop = self._backend.watch(self._keys.events(self._writer), wake)
        try:
            while not self.ended:
                arrived.clear()
                try:
                    events = await self._reader.read()
                    dead = not events and not arrived.is_set() and not await self._is_alive()
                    if dead and not (events := await self._reader.read()):
                        if self._last is None:  # it died before it could write anything of the stream
                            answer = StoredEvent("message", self._stream, _OWN, 0, self._ids, _lost(self._ids))
                            response.feed(encode_event(self._keys, self._writer, answer))
                            break
                        await self._end()
                        continue
                except GemelError as exc:
                    logger.debug("the events of a session can't be read yet: %s", exc)
                    await asyncio.sleep(_LONGEST_PAUSE)
                    continue
                for event in self._encoded(events):
                    response.feed(event)
                    await response.room()
                if not events:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(BEAT / 2):
                            await arrived.wait()
            response.end()
        finally:
            stop()

    def _encoded(self, events: list[StoredEvent]) -> list[bytes]:
        """Note what was read. Returns what the client does not have. Raises InvalidRequest if something was dropped."""
        encoded: list[bytes] = []
        for event in events:
            self._newest = event.number
            if event.number < _OWN:
                self._own = event.number
            if event.stream != self._stream:
                continue
            if event.number > self._given:
                check_follows(event, self._given)
                self._given = event.number
                if event.kind == "message":
                    encoded.append(encode_event(self._keys, self._writer, event))
            self._last = event
            self.ended = self.ended or event.kind == "end"
        return encoded

    async def _end(self) -> None:
        """End the stream of a writer that has died, unless somebody has written meanwhile."""
        last, name, entries = self._last, self._keys.events(self._writer), list[bytes]()
        assert last is not None
        answered = last.kind == "message" and (jsonrpc.is_batch(last.data) or jsonrpc.meant_as(last.data) == "response")
        previous, newest = last.number, max(self._newest, _OWN)
        kinds: list[tuple[EventKind, bytes]] = [("end", b"")]
        if last.ids and not answered:
            kinds.insert(0, ("message", _lost(last.ids)))
        for kind, content in kinds:
            newest += 1
            event = StoredEvent(kind, self._stream, newest, previous, last.ids, content)
            entries += seal_event(self._keys, name, event)
            previous = newest
        with suppress(LogConflict):
            await self._backend.append(name, entries, ttl=self._ttl, after=self._reader.position)


def _lost(ids: list[RequestId]) -> bytes:
    """The answer to requests whose process has died."""
    error = NotFinished(LOST).error
    answers = [jsonrpc.encode_failure(request_id, error) for request_id in ids]
    return answers[0] if len(answers) == 1 else b"[" + b",".join(answers) + b"]"
