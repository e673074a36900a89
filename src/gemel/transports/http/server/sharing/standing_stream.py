"""The stream that GET opens, for a session that several processes serve.

What belongs to no call goes into a log, from which the process that has the GET reads it. Changes are hints, which every process
hears: they are not stored; each event says up to which change its client was told, so that any process can go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from gemel.backends.base import Backend
from gemel.backends.log_reader import BEGINNING, LogPlace, LogReader
from gemel.errors import BackendError, ChannelClosed, GemelError, InvalidRequest
from gemel.protocol.http import sse
from gemel.protocol.records import Outgoing
from gemel.schema.methods import LIST_CHANGED
from gemel.transports.http.server.session import STANDING, SessionStream, StreamResponse
from gemel.transports.http.server.sharing.events import LogWriter, unknown_event
from gemel.transports.http.server.sharing.mailbox import BEAT
from gemel.transports.http.server.sharing.stored_sessions import Joiner, SessionKeys, split

logger = logging.getLogger("gemel")

_CHANGES = frozenset({*LIST_CHANGED.values(), "notifications/resources/updated"})


class Cursor(NamedTuple):
    """Up to where a client has the standing stream: the place in its log, and who told it of which changes."""

    given: LogPlace
    process: str
    told: int


class StandingStream(SessionStream):
    """The standing stream, as one process sees it.

    Args:
        keys: Those of the session.
        backend: Has the log.
        writer: Writes to the log.
        told: The present position of changes; with True, as it is when the change in hand is sent.
    """

    __slots__ = ("_arrived", "_backend", "_keys", "_place", "_since", "_told", "_writer")

    def __init__(
        self,
        keys: SessionKeys,
        backend: Backend,
        writer: LogWriter,
        told: Callable[[bool], tuple[str, int]],
    ) -> None:
        self.number = STANDING
        self.retry: int | None = None
        self.response = None
        self.ended = False
        self._keys = keys
        self._backend = backend
        self._writer = writer
        self._told = told
        #: Who told its client of changes before this process, until it has gone on from there.
        self._since: tuple[str, int] | None = None
        #: Up to where the log was given to the response.
        self._place = BEGINNING
        self._arrived = asyncio.Event()

    def add(self, message: Outgoing) -> None:
        """Send a message without waiting: a change if its client reads here, anything else through the log.

        Raises:
            ChannelClosed: The stream has ended, or it is a change and nobody reads.
        """
        response = self.response
        if self.ended:
            raise ChannelClosed("the session has ended")
        if message.method not in _CHANGES or message.pending is not None:
            name = self._keys.standing
            for part in split(message.data):
                self._writer.add(self._keys.seal(part, name))
        elif response is None:
            raise ChannelClosed("the client reads elsewhere, or not now")
        else:
            response.feed(sse.encode(message.data, id=self._id(sending=True)))

    def _id(self, *, sending: bool = False) -> str:
        process, told = self._since or self._told(sending)
        return f"{self._keys.tag}.s.{self._place.position}-{self._place.mark}.{process}.{told}"

    def opening(self) -> bytes:
        """The stream begins when a GET is carried."""
        return b""

    def answer(self, reply: Outgoing | None) -> None:
        """It carries no answers."""
        self.end()

    def end(self) -> None:
        """The session ends in this process."""
        self.ended = True
        if self.response is not None:
            self.response.end()

    def end_response(self, retry: int) -> bool:
        """It is not a stream of a call."""
        return False

    # ---------------------------------------------------------------- reading

    def begin(self, response: StreamResponse, cursor: Cursor) -> None:
        """Carry the stream with this response, from where its client has it."""
        self.response = response
        response.stream = self
        self._place = cursor.given
        self._since = (cursor.process, cursor.told)
        # Without an event, too: the client waits for the head of the response.
        response.feed(b"" if self.retry is None else sse.priming(self._id(), self.retry))

    def caught_up(self) -> None:
        """The changes that its client missed are on their way."""
        self._since = None

    def leave(self) -> Cursor:
        """Carry it no longer. Returns up to where its client has it."""
        process, told = self._since or self._told(False)
        self.response = None
        return Cursor(self._place, process, told)

    async def read(self, response: StreamResponse) -> None:
        """Give the messages of the log to a response, until it ends or the task is cancelled."""
        loop, name = asyncio.get_running_loop(), self._keys.standing

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._arrived.set)

        stop = self._backend.watch(name, wake)
        joiner, reader = Joiner(), LogReader(self._backend, name, self._place)
        try:
            while not response.done:
                self._arrived.clear()
                try:
                    entries = await reader.read()
                except GemelError as exc:
                    logger.debug("the messages of a session can't be read yet: %s", exc)
                    await asyncio.sleep(BEAT / 5)
                    continue
                if reader.missing == "dropped":
                    logger.warning("messages of a session were dropped before its client read them")
                for place, box in entries:
                    if self.response is not response:  # another one goes on from where this one ended
                        return
                    if (data := self._joined(joiner, box)) is not None:
                        self._place = place
                        response.feed(sse.encode(data, id=self._id()))
                        await response.room()
                if not entries:
                    await self._arrived.wait()
        finally:
            stop()

    def _joined(self, joiner: Joiner, box: bytes) -> bytes | None:
        try:
            return joiner.feed(self._keys.open(box, self._keys.standing))
        except BackendError as exc:
            logger.error("a message of a session is left out: %s", exc)
            return None


def parse_cursor(keys: SessionKeys, text: str) -> Cursor | None:
    """The place in the standing stream that an event id names; None for the id of a call's event.

    Raises:
        InvalidRequest: It is not an event of this session.
    """
    parts = text.split(".")
    if len(parts) < 2 or parts[1] != "s":
        return None
    try:
        tag, _, given, process, told = parts
        position, _, mark = given[:40].partition("-")
        cursor = Cursor(LogPlace(int(position[:16]), mark), process[:40], int(told[:16]))
    except ValueError:
        raise unknown_event(text) from None
    if tag != keys.tag or cursor.given.position < 0:
        raise unknown_event(text)
    return cursor


async def check_kept(backend: Backend, keys: SessionKeys, cursor: Cursor) -> None:
    """Raise InvalidRequest if messages after the place of a client were dropped, BackendError if that can't be told."""
    reader = LogReader(backend, keys.standing, cursor.given)
    await reader.read(most=1)
    if reader.missing == "dropped":
        raise InvalidRequest("Events after this Last-Event-ID are no longer kept: open the stream without it")
