"""Connections of one event loop to Redis, on those of redis-py. Commands of one turn of the loop are sent together.

Replies come in the order of commands: https://redis.io/docs/latest/develop/reference/protocol-spec/
"""

from __future__ import annotations

import asyncio
import hashlib
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from redis.asyncio import Connection, SSLConnection, UnixDomainSocketConnection
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from gemel.backends.base import store_full
from gemel.backends.redis_urls import RedisAddress
from gemel.errors import BackendError, Overloaded, shorten

AnyConnection: TypeAlias = Connection | UnixDomainSocketConnection
#: Does what must be done with each new connection, and refuses servers that can't be used.
Check: TypeAlias = Callable[[AnyConnection], Awaitable[None]]
_HostAndPort: TypeAlias = tuple[str, int]

#: Commands without a reply, and bytes of commands that were not sent. Beyond, `Overloaded` is raised.
_MAX_PENDING, _MAX_UNSENT_BYTES = 10_000, 64 << 20
#: Seconds between two attempts to connect, at first and at most, and after the last command for which they go on.
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_ABSENCE = 0.05, 0.5, 30.0
#: How often one command is sent to other nodes of a cluster, and seconds to wait for a cluster that reorganizes itself.
_REDIRECTIONS, _REORGANIZATION_PAUSE = 8, 0.1
_RETRY_MS = 1000


class Script:
    """A script that Redis executes as one step.

    Args:
        body: Its text, in Lua.
    """

    def __init__(self, body: str) -> None:
        self.body = body.encode()
        self.digest = hashlib.sha1(self.body, usedforsecurity=False).hexdigest().encode()


class ReplyLost(Exception):
    """A connection ended before the reply came: the command may have been executed."""


class RedisLane:
    """One connection at a time, whose commands are sent without waiting for the replies of earlier ones.

    After Redis could not be connected, or did not answer in time, commands fail at once until it is connected again.

    Args:
        name: The Redis, for errors.
        connect: Opens and checks a connection. Raises BackendError.
        timeout: Seconds that a reply may take.
    """

    def __init__(self, name: str, connect: Callable[[], Awaitable[AnyConnection]], timeout: float) -> None:
        self._name = name
        self._connect = connect
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._unsent: list[tuple[asyncio.Future[Any], bytes]] = []
        self._unsent_bytes = 0
        #: Commands without a reply in the order of sending, and when they were sent.
        self._sent: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._task: asyncio.Task[None] | None = None
        #: What the task waits for while there is nothing to send.
        self._idle: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._late = False
        #: Why there is no connection, and when a command was refused for that reason.
        self._failure: BackendError | None = None
        self._refused_at = 0.0

    def send(self, args: Sequence[bytes]) -> asyncio.Future[Any]:
        """Send a command soon.

        Args:
            args: The command and its arguments.

        Returns:
            Its reply, a ResponseError of redis-py, ReplyLost, or a BackendError if it was not sent.

        Raises:
            BackendError: There is no connection.
            Overloaded: Too many commands wait.
        """
        if self._failure is not None:
            self._refused_at = self._loop.time()
            raise _copy(self._failure)
        if len(self._unsent) + len(self._sent) >= _MAX_PENDING or self._unsent_bytes > _MAX_UNSENT_BYTES:
            raise Overloaded(f"More than {_MAX_PENDING} operations, or {_MAX_UNSENT_BYTES >> 20} MiB, wait for Redis")
        data = b"*%d\r\n" % len(args) + b"".join([b"$%d\r\n%b\r\n" % (len(arg), arg) for arg in args])
        future = self._loop.create_future()
        self._unsent.append((future, data))
        self._unsent_bytes += len(data)
        if self._task is None:
            self._task = self._loop.create_task(self._run())
        elif self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
        return future

    async def close(self) -> None:
        """End the connection. Commands without a reply fail."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        """Connect as long as there are commands, and send them. After a failure, connect before the next command comes."""
        pause = _FIRST_PAUSE
        try:
            while self._unsent or self._failure is not None:
                try:
                    connection = await self._connect()
                    self._failure, pause = None, _FIRST_PAUSE
                    await self._use(connection)
                except BackendError as exc:
                    if self._failure is None:
                        self._refused_at = self._loop.time()
                    self._failure = exc
                    self._fail_unsent(exc)
                    if self._loop.time() - self._refused_at > _LONGEST_ABSENCE:
                        return
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            self._task = self._failure = None
            self._fail_unsent(BackendError("The connection to Redis was closed"))

    async def _use(self, connection: AnyConnection) -> None:
        """Send commands and receive replies until the connection ends. Raises BackendError if a reply does not come in time."""
        reader = self._loop.create_task(self._read(connection))
        reader.add_done_callback(self._wake)
        failed = True
        try:
            while not reader.done():
                if self._unsent:
                    await connection.send_packed_command(self._take_unsent(), check_health=False)
                else:
                    self._idle = self._loop.create_future()
                    await self._idle
                    self._idle = None
        except (RedisError, OSError, RuntimeError):  # uvloop raises RuntimeError for a transport that was closed
            pass
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._late or task is None:
                failed = False
                raise
            task.uncancel()
        finally:
            self._idle = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            reader.cancel()
            late, self._late = self._late, False
            error = _no_answer(self._name, self._timeout) if late else f"{self._name} closed the connection"
            for future, _ in self._sent:
                if not future.done():
                    future.set_exception(ReplyLost(error))
            self._sent.clear()
            await asyncio.wait([reader])
            with suppress(RedisError, OSError, RuntimeError):
                await connection.disconnect(nowait=failed)  # a dead server must not be waited for
        if late:
            raise BackendError(error, _RETRY_MS)

    def _take_unsent(self) -> list[bytes]:
        now = self._loop.time()
        commands = [(future, data) for future, data in self._unsent if not future.done()]
        self._unsent, self._unsent_bytes = [], 0
        self._sent.extend((future, now) for future, _ in commands)
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout, self._check_time)
        return [data for _, data in commands]

    async def _read(self, connection: AnyConnection) -> None:
        """Give replies to those who wait for them. Returns when the connection can't be used any longer."""
        try:
            while True:
                try:
                    reply = await connection.read_response(disconnect_on_error=False)
                except ResponseError as exc:
                    reply = exc
                future, _ = self._sent.popleft()
                if future.done():
                    continue
                if isinstance(reply, ResponseError):
                    future.set_exception(reply)
                    if isinstance(reply, ReadOnlyError):
                        return  # this server is no longer the primary
                else:
                    future.set_result(reply)
        except (RedisError, OSError, IndexError):
            return

    def _wake(self, _: object) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _check_time(self) -> None:
        """End the connection if the oldest command without a reply is too old."""
        self._timer = None
        if self._sent:
            left = self._sent[0][1] + self._timeout - self._loop.time()
            if left > 0:
                self._timer = self._loop.call_later(left, self._check_time)
            elif self._task is not None:
                self._late = True  # the task may be waiting for the socket, so closing that would not do
                self._task.cancel()

    def _fail_unsent(self, error: BackendError) -> None:
        for future, _ in self._unsent:
            if not future.done():
                future.set_exception(_copy(error))
        self._unsent, self._unsent_bytes = [], 0


class RedisClient:
    """What one event loop uses of a Redis: a server, or the primary that Sentinels name.

    Args:
        address: The Redis.
        timeout: Seconds that an operation may take.
        check: Done with each new connection.
    """

    def __init__(self, address: RedisAddress, timeout: float, check: Check) -> None:
        self.address = address
        self._timeout = timeout
        self._check = check
        self._lane = RedisLane(address.name, lambda: self.connect(b""), timeout)

    async def call(self, key: bytes, *args: bytes, repeatable: bool = False) -> Any:
        """Execute a command.

        Args:
            key: The key that it is about; all keys of a command have one slot.
            *args: The command and its arguments.
            repeatable: Whether doing it twice is the same as doing it once: it is sent again if the connection is lost.

        Returns:
            Its reply.

        Raises:
            BackendError: It failed, or its outcome is unknown.
            Overloaded: Redis has no room, or too many operations wait.
        """
        return await self._limit(self._call(key, *args, repeatable=repeatable))

    async def run(self, script: Script, keys: Sequence[bytes], *args: bytes, repeatable: bool = False) -> Any:
        """Execute a script.

        Args:
            script: The script.
            keys: Its keys, all of one slot.
            *args: Its arguments.
            repeatable: As of `call`.

        Returns:
            Its reply.

        Raises:
            BackendError: It failed, or its outcome is unknown.
            Overloaded: Redis has no room, or too many operations wait.
        """
        return await self._limit(self._run(script, (b"%d" % len(keys), *keys, *args), repeatable=repeatable))

    async def _limit(self, operation: Coroutine[Any, Any, Any]) -> Any:
        """Wait for an operation as long as it may take, with all of its commands."""
        try:
            async with asyncio.timeout(self._timeout):
                return await operation
        except TimeoutError:
            raise BackendError(_no_answer(self.address.name, self._timeout), _RETRY_MS) from None

    async def _run(self, script: Script, passed: Sequence[bytes], *, repeatable: bool) -> Any:
        key = passed[1]
        try:
            return await self._call(key, b"EVALSHA", script.digest, *passed, repeatable=repeatable)
        except NoScriptError:  # this server does not have it yet, or any longer
            return await self._call(key, b"EVAL", script.body, *passed, repeatable=repeatable)

    async def _call(self, key: bytes, *args: bytes, repeatable: bool) -> Any:
        try:
            return await self._exchange(self._lane, args, repeatable)
        except NoScriptError:
            raise
        except ResponseError as exc:
            raise self.error(exc) from None

    async def _exchange(self, lane: RedisLane, args: Sequence[bytes], repeatable: bool) -> Any:
        try:
            try:
                return await lane.send(args)
            except ReplyLost:
                if not repeatable:
                    raise
                return await lane.send(args)
        except ReplyLost as exc:
            raise BackendError(str(exc), _RETRY_MS) from None

    async def connect(self, key: bytes) -> AnyConnection:
        """Open a connection to where a key is, for commands or for messages. Raises BackendError."""
        return await self._open(self._locate)

    async def _open(self, locate: Callable[[], Awaitable[_HostAndPort | None]]) -> AnyConnection:
        """Open and check a connection."""
        connection: AnyConnection | None = None
        try:
            async with asyncio.timeout(self._timeout):
                connection = self._connection(await locate(), self.address.connection)
                await connection.connect()  # type: ignore[no-untyped-call]  # redis-py has no types there
                await self._check(connection)
                return connection
        except BaseException as exc:
            if connection is not None:
                with suppress(RedisError, OSError):
                    await connection.disconnect(nowait=True)
            if isinstance(exc, (RedisError, OSError)):
                raise BackendError(str(self.error(exc)), _RETRY_MS) from None
            raise

    async def _locate(self) -> _HostAndPort | None:
        """Find the server; None for a socket. Raises BackendError."""
        if self.address.kind != "sentinel":
            return self.address.hosts[0] if self.address.hosts else None
        reasons: list[str] = []
        for host in self.address.hosts:
            try:
                async with asyncio.timeout(self._timeout / (len(self.address.hosts) + 1)):
                    reply = await self._ask(
                        host, b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", self.address.service.encode()
                    )
            except (RedisError, OSError) as exc:
                reasons.append(f"{host[0]}:{host[1]}: {_text_of(exc)}")
                continue
            if reply is not None:
                return reply[0].decode(), int(reply[1])
            reasons.append(f"{host[0]}:{host[1]} does not know it")
        text = self.address.censor("; ".join(reasons))
        raise BackendError(f"{self.address.name}: no Sentinel names a primary: {text}", _RETRY_MS)

    async def _ask(self, host: _HostAndPort, *args: bytes) -> Any:
        """Send one command over a connection of its own, to a Sentinel or a node of a cluster."""
        options = self.address.connection
        if self.address.kind == "sentinel":
            options = {name: value for name, value in options.items() if name.startswith("ssl_")} | dict(
                self.address.sentinel
            )
        connection = self._connection(host, options)
        try:
            await connection.connect()  # type: ignore[no-untyped-call]  # redis-py has no types there
            await connection.send_command(*args)
            return await connection.read_response()
        finally:
            with suppress(RedisError, OSError):
                await connection.disconnect(nowait=True)

    def _connection(self, host: _HostAndPort | None, options: Any) -> AnyConnection:
        # Lanes limit the time of commands themselves, for all that were sent at once.
        common = {"protocol": 2, "socket_timeout": None, "socket_connect_timeout": self._timeout, **options}
        if host is None:
            return UnixDomainSocketConnection(**common)
        kind = SSLConnection if self.address.tls else Connection
        return kind(host=host[0], port=host[1], socket_keepalive=True, **common)

    def error(self, exc: Exception) -> BackendError | Overloaded:
        """Return our error for one of redis-py, without passwords."""
        name, text = self.address.name, self.address.censor(_text_of(exc))
        match exc:
            case OutOfMemoryError():
                return store_full(f"{name} has reached its maxmemory")
            case ReadOnlyError():
                return BackendError(
                    f"{name} is a read-only replica: use the URL of the primary, or redis+sentinel://", _RETRY_MS
                )
            case AuthenticationError():
                return BackendError(f"{name} refuses the login: {text}")
            case NoPermissionError():
                return BackendError(f"{name} refuses a command to this user: {text}")
            case RedisConnectionError() | RedisTimeoutError() | OSError():
                return BackendError(f"{name} can't be reached: {text}", _RETRY_MS)
        return BackendError(f"{name}: {text}", _RETRY_MS)

    async def close(self) -> None:
        """End all connections."""
        await self._lane.close()


class RedisClusterClient(RedisClient):
    """What one event loop uses of a cluster: a lane for each node, and which node has which slots.

    https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/, "Redirection and resharding"

    Args:
        address: The cluster.
        timeout: Seconds that an operation may take.
        check: Done with each new connection.
        first_key: A key whose node is connected to, and so checked, before anything else is done.
    """

    def __init__(self, address: RedisAddress, timeout: float, check: Check, first_key: bytes) -> None:
        super().__init__(address, timeout, check)
        self._first_key = first_key
        self._is_checked = False
        self._lanes: dict[_HostAndPort, RedisLane] = {}
        #: The first slots of ranges, and the nodes that have them; empty before they are read.
        self._starts: list[int] = []
        self._nodes: list[_HostAndPort] = []
        #: Slots that were moved since.
        self._moved: dict[int, _HostAndPort] = {}
        self._reading: asyncio.Task[None] | None = None

    async def _call(self, key: bytes, *args: bytes, repeatable: bool) -> Any:
        """Execute a command on the node that has its key."""
        if not self._is_checked and key != self._first_key:
            await self._call(self._first_key, b"EXISTS", self._first_key, repeatable=True)
            self._is_checked = True
        slot = key_slot(key)
        asked: _HostAndPort | None = None
        error: Exception = BackendError("")
        for _ in range(_REDIRECTIONS):
            node = asked or await self._node_of(slot)
            lane = self._lane_of(node)
            try:
                if asked:
                    lane.send((b"ASKING",)).add_done_callback(_retrieve)
                    asked = None
                return await self._exchange(lane, args, repeatable)
            except MovedError as exc:
                self._moved[slot] = (exc.host or node[0], exc.port)
                error = exc
            except AskError as exc:
                asked = (exc.host or node[0], exc.port)
                error = exc
            except (TryAgainError, ClusterDownError) as exc:
                self._starts.clear()
                await asyncio.sleep(_REORGANIZATION_PAUSE)
                error = exc
            except NoScriptError:
                raise
            except ResponseError as exc:
                raise self.error(exc) from None
            except BackendError:
                self._starts.clear()  # another node may have its slots soon
                raise
        raise self.error(error) from None

    def _lane_of(self, node: _HostAndPort) -> RedisLane:
        lane = self._lanes.get(node)
        if lane is None:
            name = f"{self.address.name}, node {node[0]}:{node[1]}"
            lane = self._lanes[node] = RedisLane(name, lambda: self._open(lambda: _immediately(node)), self._timeout)
        return lane

    async def connect(self, key: bytes) -> AnyConnection:
        """Open a connection to the node that has a key. Raises BackendError."""
        try:
            node = await self._node_of(key_slot(key))
            return await self._open(lambda: _immediately(node))
        except BackendError:
            self._starts.clear()
            raise

    async def _node_of(self, slot: int) -> _HostAndPort:
        while not self._starts:
            if self._reading is None:
                self._reading = asyncio.create_task(self._read_slots())
                self._reading.add_done_callback(_retrieve)
            reading = self._reading
            await asyncio.wait([reading])
            if self._reading is reading:
                self._reading = None
            reading.result()
        moved = self._moved.get(slot)
        return moved or self._nodes[max(0, bisect_right(self._starts, slot) - 1)]

    async def _read_slots(self) -> None:
        reasons: list[str] = []
        for host in dict.fromkeys((*self._nodes, *self.address.hosts)):
            try:
                async with asyncio.timeout(self._timeout / (len(self.address.hosts) + 1)):
                    ranges = await self._ask(host, b"CLUSTER", b"SLOTS")
            except (RedisError, OSError) as exc:
                reasons.append(f"{host[0]}:{host[1]}: {_text_of(exc)}")
                continue
            if not ranges:
                reasons.append(f"{host[0]}:{host[1]} knows no slots")
                continue
            ranges.sort(key=lambda each: each[0])
            self._starts = [each[0] for each in ranges]
            self._nodes = [((each[2][0] or b"").decode() or host[0], each[2][1]) for each in ranges]
            self._moved.clear()
            return
        text = self.address.censor("; ".join(reasons))
        raise BackendError(f"{self.address.name}: no node can be asked: {text}", _RETRY_MS)

    async def close(self) -> None:
        for lane in self._lanes.values():
            await lane.close()


def _no_answer(name: str, seconds: float) -> str:
    """The error of a Redis that hangs."""
    return f"{name} did not answer within {seconds:g} seconds"


def _copy(error: BackendError) -> BackendError:
    """Return an error for one more caller: what is raised twice would keep the frames of both."""
    return BackendError(str(error), error.retry_after_ms)


async def _immediately(node: _HostAndPort) -> _HostAndPort:
    return node


def _retrieve(reply: asyncio.Future[Any]) -> None:
    """Take the error of a reply that nobody waits for."""
    if not reply.cancelled():
        reply.exception()


def _text_of(exc: Exception) -> str:
    if isinstance(exc, TimeoutError) and not str(exc):
        return "no answer in time"
    return shorten(str(exc) or type(exc).__name__)
