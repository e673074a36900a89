"""The backend for any number of machines: Redis 7 or Valkey 8, through redis-py (extra `gemel[redis]`).

Values, claims and leases are keys of Redis, logs are streams whose ids are positions. What must be one step is one command or one
script. https://redis.io/docs/latest/develop/programmability/eval-intro/ says what scripts may do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from secrets import token_bytes
from weakref import finalize

from gemel.backends.base import (
    MAX_LOG_BYTES,
    Backend,
    Listener,
    Reopenable,
    check_entries,
    check_key,
    check_most,
    check_ttl,
    check_value,
)
from gemel.backends.lease import Lease, hold_lease
from gemel.backends.memory import MemoryBackend
from gemel.backends.redis_client import RedisClient, RedisClusterClient, Script
from gemel.backends.redis_hints import RedisHints
from gemel.backends.redis_store import RedisStore
from gemel.backends.redis_urls import RedisAddress, parse_redis_url
from gemel.errors import BackendError, DefinitionError, LogConflict
from gemel.loops import PerLoop, leave_to_parent, on_fork
from gemel.protocol.changes import Changed

#: What keys are for: values, claims, leases, their tokens, logs. `w` names the channels that announce entries of logs.
_VALUE, _CLAIM, _LEASE, _TOKEN, _LOG, _WAKE = b"v", b"c", b"l", b"t", b"s", b"w"
#: Seconds that the token of a lease is remembered at least; afterwards the clock alone makes it grow.
_TOKEN_SECONDS = 3600.0
#: 30 years in milliseconds: the longest time to live.
_LONGEST_MS = 946_080_000_000
_DEFAULT_PREFIX, _DEFAULT_TIMEOUT = "gemel", 5.0

_REPLACE = Script("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if ARGV[3] == '' then
  redis.call('SET', KEYS[1], ARGV[2])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
""")

#: Takes a lease, or renews that of the same owner. Renewing works when the memory is full, too.
_TAKE = Script("""
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
  return redis.call('GET', KEYS[2])
end
if holder then
  return false
end
local now = redis.call('TIME')
local token = now[1] * 1000000 + now[2]
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
if token <= last then
  token = last + 1
end
local text = string.format('%.0f', token)
redis.call('SET', KEYS[2], text, 'PX', ARGV[3])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return text
""")

_RELEASE = Script("""
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
""")

#: Entries get the id POSITION-BYTES, where BYTES counts those of all entries so far: so the bytes between two of them are known.
_APPEND = Script("""
local log, ttl, most, after, limit = KEYS[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local function numbers(entry)
  local position, bytes = string.match(entry[1], '(%d+)-(%d+)')
  return tonumber(position), tonumber(bytes)
end
local position, bytes = 0, 0
local newest = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
if newest then
  position, bytes = numbers(newest)
end
if after ~= '' and tonumber(after) ~= position then
  return {0, position}
end
redis.call('PUBLISH', ARGV[1], '')
for index = 6, #ARGV do
  position = position + 1
  bytes = bytes + #ARGV[index]
  redis.call('XADD', log, 'MAXLEN', most, string.format('%.0f-%.0f', position, bytes), 'e', ARGV[index])
end
local first = bytes - #ARGV[#ARGV] - limit
while first > 0 do
  local oldest = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
  local at, total = numbers(oldest)
  if at == position or total - #oldest[2][2] >= first then
    break
  end
  redis.call('XTRIM', log, 'MINID', string.format('%.0f-0', at + 1))
end
redis.call('PEXPIRE', log, ttl)
return {1, position}
""")

_END_OF = Script("""
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
return newest and newest[1]
""")


def from_url(url: str) -> RedisBackend:
    """The backend of a URL of Redis. Raises DefinitionError for one that can't be used."""
    return RedisBackend(url)


class RedisBackend(Backend, Reopenable):
    """Shares changes, values and logs among any number of machines, in a Redis 7 or Valkey 8.

    Commands of one turn of an event loop are sent together, over one connection. Changes and wake-ups arrive on another one, in a
    thread that begins with the first use of them. After a lost connection, and when the channel was silent for some seconds,
    listeners get `ChangesLost` and all who watch a log are called.

    What is stored survives the end of Redis as far as it writes to disk: with `appendonly yes` and `appendfsync always` all that
    was acknowledged; with `everysec` the last second or two may be lost if the machine fails, or if Redis is killed while its disk
    is slow. A replica that takes over may miss the last writes, too.

    Redis must not drop keys: a server with `maxmemory` and another `maxmemory-policy` than `noeviction` is refused.

    Args:
        url: `redis://user:password@host:6379/0`, `rediss://` with TLS (options `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`:
            files), `redis+unix:///run/redis.sock`, `redis+sentinel://host1,host2/service` (the Sentinels), `redis+cluster://host1,
            host2` (some nodes); also with `rediss+` for TLS, and `valkey` for `redis`. Options `prefix`, `timeout`, `username`,
            `password`, `sentinel_username`, `sentinel_password`, `client_name`, and those of redis-py that begin with `ssl_`.
        prefix: What all keys and channels begin with: several servers can share a Redis. None takes that of the URL, else "gemel".
        timeout: Seconds that an operation may take; None takes those of the URL, else 5. After one without a reply in time,
            others fail at once until Redis answers again.

    Raises:
        DefinitionError: The URL, the prefix or the time can't be used.
    """

    #: Whether other processes see the same values.
    shared: bool = True  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]  # a constant

    def __init__(self, url: str, *, prefix: str | None = None, timeout: float | None = None) -> None:
        self._address = parse_redis_url(url)
        self._prefix = prefix or self._address.prefix or _DEFAULT_PREFIX
        if len(self._prefix.encode()) > 64 or not self._prefix.isprintable() or set("{} ") & set(self._prefix):
            raise DefinitionError("The prefix of keys has at most 64 bytes, and no braces or blanks")
        self._timeout = timeout or self._address.timeout or _DEFAULT_TIMEOUT
        if not 0 < self._timeout < float("inf"):
            raise DefinitionError(f"The timeout of a backend is a positive number of seconds, not {timeout}")
        self._store = RedisStore(self._address, self._prefix.encode())
        self._local = MemoryBackend()
        self._closed = False
        self._begin()
        on_fork(self._begin_in_child)

    def __repr__(self) -> str:
        return f"RedisBackend({self._address.name!r}, prefix={self._prefix!r})"

    def _begin_in_child(self) -> None:
        """A fork takes neither threads nor connections along."""
        leave_to_parent(self._hints)
        self._begin()

    def _begin(self) -> None:
        """Set what belongs to one process."""
        make = _maker(self._address, self._timeout, self._store)
        self._clients = PerLoop(make, end=RedisClient.close)
        self._hints = RedisHints(make, self._store.channel, self._local)
        finalize(self, self._hints.stop)

    @property
    def _client(self) -> RedisClient:
        """What the running event loop uses."""
        client = self._clients.find()
        if client is None:
            if self._closed:
                raise BackendError(f"{self._address.name}: this backend was closed")
            client = self._clients.here()
        return client

    # ---------------------------------------------------------------- changes

    def publish(self, event: Changed) -> None:
        self._local.publish(event)
        self._hints.publish(event)

    async def flush(self) -> None:
        await self._hints.flush()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener. The first one gets `ChangesLost` when the connection for changes is ready.

        Args:
            listener: Called with each event: on the thread that calls `publish`, for those of other processes on another.

        Returns:
            A function that removes the listener; calling it twice is harmless.
        """
        return self._hints.subscribe(listener)

    # ---------------------------------------------------------------- values, claims, leases

    async def get(self, key: str) -> bytes | None:
        name = self._store.key(_VALUE, check_key(key))
        value: bytes | None = await self._client.call(name, b"GET", name, repeatable=True)
        return value

    async def set(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        name = self._store.key(_VALUE, check_key(key))
        await self._client.call(name, b"SET", name, check_value(value), *_expiry(ttl))

    async def delete(self, key: str) -> bool:
        name = self._store.key(_VALUE, check_key(key))
        return bool(await self._client.call(name, b"DEL", name))

    async def replace(self, key: str, expected: bytes | None, value: bytes, *, ttl: float | None = None) -> bool:
        name = self._store.key(_VALUE, check_key(key))
        expiry = _expiry(ttl)
        check_value(value)
        if expected is None:
            return await self._client.call(name, b"SET", name, value, b"NX", *expiry) is not None
        return bool(await self._client.run(_REPLACE, [name], expected, value, expiry[-1] if expiry else b""))

    async def touch(self, key: str, *, ttl: float) -> bool:
        name = self._store.key(_VALUE, check_key(key))
        return bool(await self._client.call(name, b"PEXPIRE", name, _milliseconds(ttl), repeatable=True))

    async def claim(self, key: str, *, ttl: float) -> bool:
        name = self._store.key(_CLAIM, check_key(key))
        mark = token_bytes(8)  # tells a claim of our own, whose reply was lost, from that of others
        present = await self._client.call(name, b"SET", name, mark, b"NX", b"GET", *_expiry(ttl), repeatable=True)
        return present is None or present == mark

    def lease(self, key: str, *, ttl: float, wait: float | None = None) -> AbstractAsyncContextManager[Lease]:
        encoded = check_key(key)
        lasts, remembered = _milliseconds(ttl), _milliseconds(max(ttl, _TOKEN_SECONDS))
        names = self._store.key(_LEASE, encoded), self._store.key(_TOKEN, encoded)

        async def take(owner: bytes) -> int:
            return int(await self._client.run(_TAKE, names, owner, lasts, remembered, repeatable=True) or 0)

        async def release(owner: bytes) -> None:
            await self._client.run(_RELEASE, names[:1], owner, repeatable=True)

        return hold_lease(take, release, key, ttl=ttl, wait=wait)

    # ---------------------------------------------------------------- logs

    async def append(
        self, log: str, entries: Sequence[bytes], *, ttl: float, most: int = 1000, after: int | None = None
    ) -> int:
        encoded = check_key(log)
        check_entries(entries)
        channel = self._store.key(_WAKE, encoded)
        fence = b"" if after is None else b"%d" % after
        options = _milliseconds(ttl), b"%d" % check_most(most), fence, b"%d" % MAX_LOG_BYTES
        done, position = await self._client.run(_APPEND, [self._store.key(_LOG, encoded)], channel, *options, *entries)
        if not done:
            raise LogConflict(after or 0, position)
        return int(position)

    async def read(self, log: str, *, after: int = 0, most: int = 1000) -> list[tuple[int, bytes]]:
        name = self._store.key(_LOG, check_key(log))
        limits = b"%d-0" % (max(after, 0) + 1), b"+", b"COUNT", b"%d" % check_most(most)
        reply = await self._client.call(name, b"XRANGE", name, *limits, repeatable=True)
        return [(_position(identifier), fields[1]) for identifier, fields in reply]

    async def end_of(self, log: str) -> int:
        identifier = await self._client.run(_END_OF, [self._store.key(_LOG, check_key(log))], repeatable=True)
        return 0 if identifier is None else _position(identifier)

    def watch(self, log: str, wake: Callable[[], None]) -> Callable[[], None]:
        channel = self._store.key(_WAKE, check_key(log))
        return self._hints.watch(channel, wake)

    async def close(self) -> None:
        """End the thread and the connections; what is stored stays in Redis."""
        self._closed = True
        thread = self._hints.stop()
        running = asyncio.get_running_loop()
        if thread is not None:
            await running.run_in_executor(None, thread.join)
        for loop, client in self._clients.take_all().items():
            if loop is running:
                await client.close()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(client.close(), loop)

    def reopen(self) -> None:
        if self._closed:
            self._closed = False
            former = self._hints
            self._begin()
            self._hints.take_over(former)


def _maker(address: RedisAddress, timeout: float, store: RedisStore) -> Callable[[], RedisClient]:
    """A function that makes the client of the running event loop. It does not hold the backend."""
    if address.kind == "cluster":
        return lambda: RedisClusterClient(address, timeout, store.check, store.format_key)
    return lambda: RedisClient(address, timeout, store.check)


def _milliseconds(ttl: float) -> bytes:
    return b"%d" % max(1, min(_LONGEST_MS, round(check_ttl(ttl) * 1000)))


def _expiry(ttl: float | None) -> tuple[bytes, ...]:
    return () if ttl is None else (b"PX", _milliseconds(ttl))


def _position(identifier: bytes) -> int:
    return int(identifier.partition(b"-")[0])
