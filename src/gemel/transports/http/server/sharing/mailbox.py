"""Messages between the processes of a server: each has an inbox, a log of the backend, and a sign of life that expires."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from secrets import token_hex
from typing import Literal, TypeAlias

import msgspec

from gemel.backends.base import Backend
from gemel.backends.keys import make_key
from gemel.backends.log_reader import LogReader
from gemel.errors import GemelError
from gemel.timeouts import wait_shared
from gemel.transports.http.server.sharing.stored_sessions import FORMAT, Joiner, split

logger = logging.getLogger("gemel")

#: Seconds between two signs of life, and after which a process without one counts as dead.
BEAT, ALIVE = 2.5, 10.0
#: Seconds and entries that an inbox keeps.
INBOX_SECONDS, INBOX_ENTRIES = 3600.0, 10_000
#: Seconds that an answer of another process may take.
REPLY_SECONDS = 5.0

Kind: TypeAlias = Literal["message", "end", "changed", "read elsewhere", "reading", "changes", "reply"]

#: Makes the reply to a mail. It is not called if the mailbox is closed first.
Work: TypeAlias = Callable[[], Awaitable[bytes]]


class Mail(msgspec.Struct, array_like=True):
    """One message to another process."""

    version: int
    kind: Kind
    #: The digest of the session.
    session: str
    body: bytes
    #: Who waits for a reply, and the number of the mail there.
    sender: str
    number: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Mail).decode


class Mailbox:
    """The inbox of this process, and those of others.

    Args:
        backend: Has the logs.
        handle: Called for each mail, in order; what it returns is called in a task, and its result is the reply.
        on_gap: Called when mail may have been lost.
        on_beat: Called every few seconds.
    """

    def __init__(
        self,
        backend: Backend,
        handle: Callable[[Mail], Work | None],
        on_gap: Callable[[], None],
        on_beat: Callable[[], None],
    ) -> None:
        self._backend = backend
        self._handle = handle
        self._on_gap = on_gap
        self._on_beat = on_beat
        self._loop = asyncio.get_running_loop()
        #: The name of this process, for as long as the app runs.
        self.name = token_hex(8)
        self._number = 0
        self._replies: dict[int, asyncio.Future[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()
        self._stop_watching: Callable[[], None] = lambda: None
        #: Until when every process counts as alive: the backend was gone, and signs of life have expired meanwhile.
        self._lenient_until = 0.0
        #: When processes were last seen alive.
        self._seen: dict[str, float] = {}
        #: Since when those are silent that a message was for.
        self._silent: dict[str, float] = {}

    async def start(self) -> None:
        """Give the first sign of life; concurrent callers wait for the first. Raises BackendError and Overloaded."""
        if self._starting is None or (self._starting.done() and self._starting.exception() is not None):
            self._starting = self._loop.create_task(self._start())
        await wait_shared(self._starting)

    async def _start(self) -> None:
        await self._backend.set(_process_key(self.name), bytes((FORMAT,)), ttl=ALIVE)
        self._stop_watching = self._backend.watch(self._inbox(self.name), self._wake)
        self.run(self._live())
        self.run(self._read())

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._arrived.set)

    def run(self, work: asyncio._CoroutineLike[None]) -> asyncio.Task[None]:
        """Run a task until it ends, or this mailbox is closed."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """End the tasks and the sign of life."""
        self._stop_watching()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._starting is not None:
            with suppress(GemelError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._backend.delete(_process_key(self.name))

    # ---------------------------------------------------------------- signs of life

    async def _live(self) -> None:
        key, failed = _process_key(self.name), False
        while True:
            self._on_beat()
            await asyncio.sleep(BEAT)
            try:
                if not await self._backend.touch(key, ttl=ALIVE):
                    await self._backend.set(key, bytes((FORMAT,)), ttl=ALIVE)
                    self._on_gap()  # others have taken this process for dead
            except GemelError as exc:
                if not failed:
                    logger.warning("The backend can't be reached, sessions of other processes wait: %s", exc)
                failed = True
                self._arrived.set()
                continue
            if failed:
                self._lenient_until, failed = time.monotonic() + ALIVE, False
                self._arrived.set()

    async def is_alive(self, process: str) -> bool:
        """Whether a process gives signs of life. Raises BackendError.

        After a failure of the backend every process counts as alive until it had the time for a sign.
        """
        now = time.monotonic()
        if process == self.name or now - self._seen.get(process, -BEAT) < BEAT / 2:
            return True
        if process and await self._backend.get(_process_key(process)) is not None:
            self._seen[process] = now
            if len(self._seen) > 1000:
                self._seen.clear()
            return True
        return bool(process) and now < self._lenient_until

    async def is_gone(self, process: str) -> bool:
        """Whether a process gives no sign of life any more: the store may have lost one, and the next one comes soon.

        Raises BackendError.
        """
        if await self.is_alive(process):
            self._silent.pop(process, None)
            return False
        now = time.monotonic()
        if len(self._silent) > 1000:
            self._silent.clear()
        return now - self._silent.setdefault(process, now) > 1.2 * BEAT

    # ---------------------------------------------------------------- mail

    def _inbox(self, process: str) -> str:
        return make_key("inbox", process)

    async def post(self, process: str, kind: Kind, session: str, body: bytes = b"") -> None:
        """Put a mail into the inbox of a process. Raises BackendError and Overloaded."""
        await self._post(process, Mail(FORMAT, kind, session, body, "", 0))

    async def _post(self, process: str, mail: Mail) -> None:
        await self._backend.append(self._inbox(process), split(_encode(mail)), ttl=INBOX_SECONDS, most=INBOX_ENTRIES)

    async def ask(self, process: str, kind: Kind, session: str, body: bytes = b"") -> bytes | None:
        """Send a mail and wait for the reply. Returns None if the process is dead or doesn't reply in time.

        Raises:
            BackendError: The mail could not be sent.
        """
        if not await self.is_alive(process):
            return None
        self._number += 1
        number = self._number
        reply: asyncio.Future[bytes] = self._loop.create_future()
        self._replies[number] = reply
        try:
            await self._post(process, Mail(FORMAT, kind, session, body, self.name, number))
            async with asyncio.timeout(REPLY_SECONDS):
                while not reply.done():
                    await asyncio.wait([reply], timeout=BEAT / 2)
                    if not reply.done() and not await self.is_alive(process):
                        return None
            return reply.result()
        except TimeoutError:
            return None
        finally:
            del self._replies[number]

    async def _read(self) -> None:
        """Handle what arrives. After a failure of the backend it is read when that is back."""
        joiner, reader = Joiner(), LogReader(self._backend, self._inbox(self.name))
        while True:
            self._arrived.clear()
            try:
                entries = await reader.read()
            except GemelError:
                await asyncio.sleep(BEAT / 10)
                self._arrived.set()
                continue
            if reader.missing:
                self._on_gap()
            for _, entry in entries:
                data = joiner.feed(entry)
                if data is not None:
                    self._take(data)
            if not entries:
                await self._arrived.wait()

    def _take(self, data: bytes) -> None:
        try:
            mail = _decode(data)
            if mail.version != FORMAT:
                raise ValueError(f"format {mail.version}")
        except (msgspec.MsgspecError, ValueError) as exc:
            logger.warning("A message of another process can't be read: %s", exc)
            return
        if mail.kind == "reply":
            reply = self._replies.get(mail.number)
            if reply is not None and not reply.done():
                reply.set_result(mail.body)
            return
        try:
            work = self._handle(mail)
        except Exception:
            logger.exception("A message of another process could not be handled")
            return
        if work is not None:
            self.run(self._answer(mail, work))

    async def _answer(self, mail: Mail, work: Work) -> None:
        try:
            body = await work()
            if mail.sender:
                await self._post(mail.sender, Mail(FORMAT, "reply", mail.session, body, "", mail.number))
        except GemelError as exc:
            logger.warning("A message of another process could not be answered: %s", exc)
        except Exception:
            logger.exception("A message of another process could not be handled")


def _process_key(process: str) -> str:
    """What is there as long as a process gives signs of life."""
    return make_key("process", process)
