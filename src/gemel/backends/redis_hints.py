"""Changes and wake-ups of all processes, through the channels of Redis: https://redis.io/docs/latest/develop/pubsub/

A thread with an event loop of its own sends and receives them, so that any thread can publish without waiting. What a channel
loses without telling is found by numbers: each process numbers its messages and repeats the last number every few seconds. A
process that does not receive its own repetitions connects again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from random import uniform
from secrets import token_hex
from typing import Any

import msgspec
from redis.exceptions import RedisError

from gemel.backends.base import Listener
from gemel.backends.memory import MemoryBackend
from gemel.backends.redis_client import AnyConnection, RedisClient
from gemel.errors import BackendError, GemelError
from gemel.protocol.changes import Changed, ChangesLost

logger = logging.getLogger("gemel")

#: Seconds between two repetitions of the last number, and without one of our own until the connection counts as dead.
BEAT, SILENCE = 3.0, 7.0
#: Seconds after which a process counts as gone, and processes whose numbers are remembered.
_GONE, _MAX_SOURCES = 60.0, 10_000
#: Seconds before the next attempt to connect or to send: at first and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
#: Changes that wait to be sent, and characters of their URIs. Beyond, other processes get ChangesLost.
_MAX_UNSENT, _MAX_UNSENT_CHARACTERS = 1000, 1 << 20
#: Channels in one command.
_CHANNELS = 500


class _Message(msgspec.Struct, array_like=True):
    """Changes of one process.

    Args:
        source: The process.
        number: The number of this message; without changes, that of its last one.
        changes: Kinds and URIs.
        lost: Whether there were more.
    """

    source: str
    number: int
    changes: list[tuple[str, str | None]] = []
    lost: bool = False

    @property
    def is_repetition(self) -> bool:
        return not self.changes and not self.lost


_decoder = msgspec.msgpack.Decoder(_Message)


class RedisHints:
    """Sends and receives changes and wake-ups, in a thread that begins with the first of them.

    Args:
        make_client: Makes what the event loop of the thread uses.
        channel: The channel for changes.
        local: The listeners of this process.
    """

    def __init__(self, make_client: Callable[[], RedisClient], channel: bytes, local: MemoryBackend) -> None:
        self._make_client = make_client
        self._channel = channel
        self._local = local
        self._source = token_hex(8)
        self._lock = threading.Lock()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        #: What wakes up those who watch, by channel.
        self._watchers: dict[bytes, dict[object, Callable[[], None]]] = {}
        #: Changes that were not sent yet, and whether more of them were dropped.
        self._unsent: dict[Changed, None] = {}
        self._unsent_characters = 0
        self._dropped = False
        #: Who waits until they are sent.
        self._flushes: list[Future[None]] = []
        # What follows belongs to the thread.
        self._stop = asyncio.Event()
        self._has_unsent = asyncio.Event()
        self._has_channels = asyncio.Event()
        self._subscribed: set[bytes] = set()
        self._number = 0
        #: Last numbers of other processes, and when they were received.
        self._numbers: dict[str, tuple[int, float]] = {}
        #: When the channel was connected, and when our own repetition was last received; 0 while it is not.
        self._connected_at = 0.0
        self._repeated_at = 0.0
        self._receiving: asyncio.Task[None] | None = None
        #: Processes that were there when the connection was lost, and were not heard since it is back.
        self._expected: set[str] = set()

    # ---------------------------------------------------------------- any thread

    def publish(self, event: Changed) -> None:
        """Send a change to other processes soon. Never blocks or raises.

        Args:
            event: What changed.
        """
        with self._lock:
            if event not in self._unsent:
                self._unsent[event] = None
                self._unsent_characters += len(event.uri or "")
                if len(self._unsent) > _MAX_UNSENT or self._unsent_characters > _MAX_UNSENT_CHARACTERS:
                    self._drop_unsent()
            if len(self._unsent) <= 1:
                self._call(self._has_unsent.set)

    async def flush(self) -> None:
        """Wait until the changes that were published before are sent. Raises BackendError if this has ended."""
        sent: Future[None] = Future()
        with self._lock:
            if self._closed:
                raise BackendError("This backend was closed")
            self._flushes.append(sent)
            self._call(self._has_unsent.set)
        await asyncio.wrap_future(sent)

    def begin(self) -> None:
        """Receive the changes of other processes from now on."""
        with self._lock:
            if self._loop is None:
                self._call(lambda: None)

    def watch(self, channel: bytes, wake: Callable[[], None]) -> Callable[[], None]:
        """Call a function with each message of a channel, and when some may have been missed.

        Args:
            channel: The channel.
            wake: Called on the thread.

        Returns:
            A function that ends it.
        """
        key = object()
        with self._lock:
            self._watchers.setdefault(channel, {})[key] = wake
            self._call(self._has_channels.set)

        def stop() -> None:
            with self._lock:
                wakes = self._watchers.get(channel, {})
                if wakes.pop(key, None) is not None and not wakes:
                    del self._watchers[channel]
                    self._call(self._has_channels.set)

        return stop

    def take_over(self, former: RedisHints) -> None:
        """Go on for those who listen and watch, after `former` has ended.

        Args:
            former: What they subscribed to.
        """
        with self._lock:
            self._watchers = former._watchers
            if self._watchers or self._local.has_listeners:
                self._call(self._has_channels.set)

    def stop(self) -> threading.Thread | None:
        """End the thread soon. Returns it."""
        with self._lock:
            self._closed = True
            if self._loop is not None:
                with suppress(RuntimeError):  # it has ended
                    self._loop.call_soon_threadsafe(self._stop.set)
            return self._thread

    def _drop_unsent(self) -> None:
        self._unsent.clear()
        self._unsent_characters = 0
        self._dropped = True

    def _call(self, function: Callable[[], None]) -> None:
        """Call a function in the thread. The lock is held."""
        if self._closed:
            return
        with suppress(RuntimeError):  # the interpreter ends
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._run, args=(self._loop,), name="gemel-redis-changes", daemon=True
                )
                self._thread.start()
            self._loop.call_soon_threadsafe(function)

    # ---------------------------------------------------------------- the thread

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._work())

    async def _work(self) -> None:
        client = self._make_client()
        tasks = [asyncio.create_task(each) for each in (self._listen(client), self._send(client), self._repeat(client))]
        try:
            stop = asyncio.create_task(self._stop.wait())
            await asyncio.wait([stop, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await client.close()

    async def _send(self, client: RedisClient) -> None:
        """Send changes while there are some."""
        while True:
            await self._has_unsent.wait()
            self._has_unsent.clear()
            with self._lock:
                changes = [(event.kind, event.uri) for event in self._unsent]
                lost = self._dropped
                flushes = self._flushes
                self._flushes = []
                self._unsent.clear()
                self._unsent_characters = 0
                self._dropped = False
            try:
                if changes or lost:
                    self._number += 1
                    await self._send_message(client, _Message(self._source, self._number, changes, lost))
            except GemelError as exc:
                logger.warning("Other processes are not told of changes yet: %s", exc)
                with self._lock:
                    self._dropped = True
                    self._flushes += flushes
                await asyncio.sleep(_LONGEST_PAUSE * uniform(0.5, 1.0))
                self._has_unsent.set()
            else:
                for sent in flushes:
                    if sent.set_running_or_notify_cancel():
                        sent.set_result(None)

    async def _send_message(self, client: RedisClient, message: _Message) -> None:
        await client.call(self._channel, b"PUBLISH", self._channel, msgspec.msgpack.encode(message))

    async def _repeat(self, client: RedisClient) -> None:
        """Repeat the last number, and end a connection that does not bring it back."""
        while True:
            await asyncio.sleep(BEAT)
            with suppress(GemelError):
                await self._send_message(client, _Message(self._source, self._number))
            now = time.monotonic()
            if self._connected_at and now - max(self._connected_at, self._repeated_at) > SILENCE and self._receiving:
                self._receiving.cancel()
            for source in [source for source, (_, at) in self._numbers.items() if now - at > _GONE]:
                del self._numbers[source]
            if self._expected and self._connected_at and now - self._connected_at > 3 * BEAT:
                self._expected.clear()
                self._lose("a process ended before it could send its changes")

    async def _listen(self, client: RedisClient) -> None:
        """Keep a connection that receives."""
        pause, failed = _FIRST_PAUSE, False
        while True:
            self._connected_at = 0.0
            try:
                await self._use(await client.connect(self._channel))
                error: Exception = BackendError(f"{client.address.name} is silent")
            except GemelError as exc:
                error = exc
            except (RedisError, OSError) as exc:
                error = client.error(exc)
            except Exception as exc:  # uvloop, for one, raises RuntimeError for a transport that was closed
                error = exc
            if self._connected_at:
                pause, failed = _FIRST_PAUSE, False
            if not failed:
                logger.warning("Changes of other processes are not received: %s", error)
            failed = True
            await asyncio.sleep(pause * uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _use(self, connection: AnyConnection) -> None:
        """Receive until the connection fails; returns if it was silent."""
        self._subscribed.clear()
        self._receiving = asyncio.create_task(self._receive(connection))
        tasks = [self._receiving, asyncio.create_task(self._subscribe(connection))]
        failed = False
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            failed = True
        finally:
            silent = self._receiving.cancelled()
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            with suppress(RedisError, OSError, RuntimeError):
                await connection.disconnect(nowait=failed)
        for result in results:
            if isinstance(result, Exception) and not silent:
                raise result

    async def _subscribe(self, connection: AnyConnection) -> None:
        """Subscribe to the channels that somebody watches, and to no others."""
        while True:
            self._has_channels.clear()
            with self._lock:
                channels = {self._channel, *self._watchers}
            for command, names in (
                (b"SUBSCRIBE", sorted(channels - self._subscribed)),
                (b"UNSUBSCRIBE", sorted(self._subscribed - channels)),
            ):
                for start in range(0, len(names), _CHANNELS):
                    await connection.send_command(command, *names[start : start + _CHANNELS], check_health=False)
            self._subscribed = channels
            await self._has_channels.wait()

    async def _receive(self, connection: AnyConnection) -> None:
        while True:
            reply: Any = await connection.read_response(disconnect_on_error=False)
            kind, channel, data = reply
            if kind == b"message" and channel == self._channel:
                self._take(data)
            elif kind == b"message" or (kind == b"subscribe" and channel != self._channel):
                self._wake(channel)
            elif kind == b"subscribe":
                self._connected_at = time.monotonic()
                latest = max((at for _, at in self._numbers.values()), default=0.0)
                self._expected |= {source for source, (_, at) in self._numbers.items() if at > latest - SILENCE}
                self._numbers.clear()
                self._local.tell(ChangesLost("changes of other processes were not received until now"))

    def _wake(self, channel: bytes) -> None:
        with self._lock:
            wakes = list(self._watchers.get(channel, {}).values())
        for wake in wakes:
            try:
                wake()
            except Exception:
                logger.exception("a function that watches a log failed")

    def _take(self, data: bytes) -> None:
        """Tell listeners of the changes of a message, and of missing ones."""
        try:
            message = _decoder.decode(data)
        except msgspec.DecodeError:
            self._lose("a message could not be read")
            return
        now = time.monotonic()
        self._expected.discard(message.source)
        if message.source == self._source:
            if message.is_repetition:
                self._repeated_at = now
            return
        number, _ = self._numbers.get(message.source, (None, 0.0))
        if number is None:
            # Those who were there before us repeat their numbers soon. Later ones begin with 1.
            number = 0 if now - self._connected_at > 2 * BEAT else message.number - (not message.is_repetition)
        missed = message.number != number + (not message.is_repetition)
        if len(self._numbers) < _MAX_SOURCES or message.source in self._numbers:
            self._numbers[message.source] = message.number, now
        for kind, uri in message.changes:
            self._local.tell(Changed(kind, uri))
        if message.lost or missed:
            self._lose("not all changes of another process were received")

    def _lose(self, reason: str) -> None:
        """Tell listeners and watchers that something was missed."""
        self._local.tell(ChangesLost(reason))
        with self._lock:
            channels = list(self._watchers)
        for channel in channels:
            self._wake(channel)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener for the changes of all processes.

        Args:
            listener: Called with each event.

        Returns:
            A function that removes it.
        """
        remove = self._local.subscribe(listener)
        self.begin()
        return remove
