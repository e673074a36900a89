"""Checks that a backend keeps its contract: values, claims, leases, logs and changes, between tasks, threads and processes."""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import NamedTuple

from gemel.backends.base import MAX_KEY_BYTES, MAX_VALUE_BYTES, Backend, Event
from gemel.errors import LeaseLost, LogConflict
from gemel.protocol.changes import Changed, ChangesLost

MakeBackend = Callable[[], Backend]

#: Seconds for something to happen that must happen.
PATIENCE = 20.0
#: Seconds that an entry of these checks lasts, where it is to expire.
SHORT = 0.5
#: What each process does: it adds to a number under a lease so many times.
ROUNDS = 5


class _Two(NamedTuple):
    """Two backends of one store, as two processes have them, and the beginning of all keys of one check."""

    first: Backend
    second: Backend
    prefix: str

    def of(self, number: int) -> Backend:
        """Either of them, in turn."""
        return self.second if number % 2 else self.first

    def key(self, name: str) -> str:
        return f"{self.prefix}:{name}"


async def check_backend(make: MakeBackend, *, processes: int = 0) -> None:
    """Check that a backend keeps the contract of `gemel.backends.Backend`. It takes about 6 seconds.

    Args:
        make: Makes a backend. All that it makes share one store; for one in memory it returns the same object each time. The
            store may have other entries: the keys of the checks are random.
        processes: How many processes use the store at once in further checks, one of which is killed while it holds a lease; 0
            for a backend of one process. Then `make` can be pickled: a function of a module, or a `functools.partial` of it.

    Raises:
        AssertionError: With a line for each failed check.

    Example:
        >>> await check_backend(partial(SqliteBackend, "state.db"), processes=8)
    """
    failures: list[str] = []
    for check in _CHECKS:
        async with _two(make) as two:
            try:
                await check(two)
            except Exception as exc:  # an error that the contract does not name fails the check, too
                failures.append(f"  {check.__name__.strip('_').replace('_', ' ')}: {str(exc) or type(exc).__name__}")
    if processes:
        async with _two(make) as two:
            try:
                await _check_processes(make, two, processes)
            except Exception as exc:
                failures.append(f"  {processes} processes: {str(exc) or type(exc).__name__}")
    if failures:
        raise AssertionError("the backend does not keep its contract:\n" + "\n".join(failures))


@asynccontextmanager
async def _two(make: MakeBackend) -> AsyncIterator[_Two]:
    first, second = make(), make()
    try:
        yield _Two(first, second, f"check-{token_hex(8)}")
    finally:
        await first.close()
        if second is not first:
            await second.close()


def _expect(condition: bool, text: str) -> None:
    if not condition:
        raise AssertionError(text)


async def _eventually(condition: Callable[[], Awaitable[bool]], text: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not await condition():
        _expect(time.monotonic() < deadline, f"{text}, not within {PATIENCE:g} seconds")
        await asyncio.sleep(0.02)


async def _refused(work: Awaitable[object], text: str) -> None:
    try:
        await work
    except ValueError:
        return
    raise AssertionError(f"{text} is accepted; a ValueError is expected")


async def _values(two: _Two) -> None:
    key = two.key("ä\0 /%")
    _expect(await two.first.get(key) is None, "get returns a value that was never stored")
    for value in (b"", b"\0\xff", b"x" * MAX_VALUE_BYTES):
        await two.first.set(key, value)
        _expect(await two.first.get(key) == value, f"a value of {len(value)} bytes comes back changed")
        _expect(await two.second.get(key) == value, "the other backend does not see a value")
    _expect(await two.second.delete(key), "delete returns False for a value")
    _expect(await two.first.get(key) is None, "a deleted value is still there")
    _expect(not await two.first.delete(key), "delete returns True without a value")


async def _expiry(two: _Two) -> None:
    short, kept = two.key("short"), two.key("kept")
    await two.first.set(kept, b"1", ttl=SHORT)
    await two.first.set(kept, b"2")
    await two.first.set(short, b"1", ttl=60)
    _expect(await two.second.get(short) == b"1", "a value with a ttl is not there")
    await two.first.set(short, b"2", ttl=SHORT)

    async def is_gone() -> bool:
        return await two.second.get(short) is None

    await _eventually(is_gone, "a value expires")
    _expect(not await two.first.delete(short), "delete returns True for a value that has expired")
    _expect(await two.first.get(kept) == b"2", "a value expires although it was stored again without a ttl")


async def _limits(two: _Two) -> None:
    longest = two.prefix + "k" * (MAX_KEY_BYTES - len(two.prefix))
    await two.first.set(longest, b"1")
    _expect(await two.first.get(longest) == b"1", f"a key of {MAX_KEY_BYTES} bytes does not work")
    for key in ("", longest + "k", "ä" * (MAX_KEY_BYTES // 2 + 1), "\ud800"):
        await _refused(two.first.get(key), f"get with a key of {len(key)} characters")
        await _refused(two.first.set(key, b""), f"set with a key of {len(key)} characters")
        await _refused(two.first.delete(key), f"delete with a key of {len(key)} characters")
        await _refused(two.first.claim(key, ttl=1), f"claim with a key of {len(key)} characters")
        await _refused(_held(two.first, key, 1), f"lease with a key of {len(key)} characters")
        await _refused(two.first.replace(key, None, b""), f"replace with a key of {len(key)} characters")
        await _refused(two.first.touch(key, ttl=1), f"touch with a key of {len(key)} characters")
        await _refused(two.first.append(key, [b""], ttl=1), f"append with a key of {len(key)} characters")
        await _refused(two.first.read(key), f"read with a key of {len(key)} characters")
        await _refused(two.first.end_of(key), f"end_of with a key of {len(key)} characters")
    key = two.key("limits")
    large = b"x" * (MAX_VALUE_BYTES + 1)
    await _refused(two.first.replace(key, None, large), f"replace with {len(large)} bytes")
    await _refused(two.first.append(key, [large], ttl=1), f"an entry of {len(large)} bytes")
    await _refused(two.first.append(key, [large[1:]] * 9, ttl=1), "an append of more than 8 MiB")
    await _refused(two.first.append(key, [], ttl=1), "an append without entries")
    await _refused(two.first.append(key, [b""], ttl=1, most=0), "append with most=0")
    await _refused(two.first.read(key, most=0), "read with most=0")
    await _refused(two.first.set(key, b"x" * (MAX_VALUE_BYTES + 1)), f"a value of {MAX_VALUE_BYTES + 1} bytes")
    for ttl in (0, -1, math.nan, math.inf):
        await _refused(two.first.set(key, b"", ttl=ttl), f"set with ttl={ttl}")
        await _refused(two.first.claim(key, ttl=ttl), f"claim with ttl={ttl}")
        await _refused(two.first.replace(key, None, b"", ttl=ttl), f"replace with ttl={ttl}")
        await _refused(two.first.touch(key, ttl=ttl), f"touch with ttl={ttl}")
        await _refused(two.first.append(key, [b""], ttl=ttl), f"append with ttl={ttl}")
        await _refused(_held(two.first, key, ttl), f"lease with ttl={ttl}")


async def _held(backend: Backend, key: str, ttl: float) -> None:
    async with backend.lease(key, ttl=ttl):
        pass


async def _replacement(two: _Two) -> None:
    key = two.key("replaced")
    _expect(not await two.first.replace(key, b"0", b"1"), "replace replaces a value that is not there")
    _expect(await two.first.replace(key, None, b"1", ttl=60), "replace does not store a value where there is none")
    _expect(not await two.second.replace(key, None, b"2"), "replace with None replaces a value")
    _expect(not await two.second.replace(key, b"", b"2"), "replace replaces another value than the expected one")
    replaced = await asyncio.gather(*(two.of(number).replace(key, b"1", b"2%d" % number) for number in range(40)))
    _expect(replaced.count(True) == 1, f"{replaced.count(True)} of 40 callers have replaced a value, 1 is expected")
    winner = replaced.index(True)
    _expect(await two.second.get(key) == b"2%d" % winner, "the value is not that of the caller who replaced it")
    _expect(await two.first.replace(key, b"2%d" % winner, b"3", ttl=SHORT), "a value can't be replaced twice")

    async def is_gone() -> bool:
        return await two.second.replace(key, None, b"4")

    await _eventually(is_gone, "a value that replaced another expires")
    await asyncio.sleep(SHORT)
    _expect(await two.first.get(key) == b"4", "a value that was stored by replace without a ttl expires")


async def _touching(two: _Two) -> None:
    longer, shorter, kept = two.key("longer"), two.key("shorter"), two.key("none")
    await two.first.set(longer, b"1", ttl=SHORT)
    await two.first.set(shorter, b"1", ttl=60)
    _expect(await two.second.touch(longer, ttl=60), "touch returns False for a value")
    _expect(await two.second.touch(shorter, ttl=SHORT), "touch returns False for a value")

    async def is_gone() -> bool:
        return await two.first.get(shorter) is None

    await _eventually(is_gone, "a value expires at the time that touch has set")
    await asyncio.sleep(SHORT / 5)
    _expect(await two.first.get(longer) == b"1", "a value expires earlier than touch has set")
    _expect(not await two.first.touch(shorter, ttl=60), "touch returns True for a value that has expired")
    _expect(await two.first.get(shorter) is None, "touch brings a value back")
    _expect(not await two.first.touch(kept, ttl=60), "touch returns True without a value")


async def _claims(two: _Two) -> None:
    key = two.key("claim")
    claims = await asyncio.gather(*(two.of(number).claim(key, ttl=60) for number in range(40)))
    _expect(claims.count(True) == 1, f"{claims.count(True)} of 40 callers have claimed a key at once, 1 is expected")
    _expect(not await two.first.claim(key, ttl=SHORT), "a key is claimed twice")
    _expect(await two.first.get(key) is None, "a claim is a value")
    _expect(not await two.first.delete(key), "delete deletes a claim")
    _expect(not await two.second.claim(key, ttl=SHORT), "a claim ends with the deletion of a value")
    brief = two.key("brief")
    _expect(await two.first.claim(brief, ttl=SHORT), "a key that nobody has claimed can't be claimed")

    async def can_be_claimed() -> bool:
        return await two.second.claim(brief, ttl=60)

    await _eventually(can_be_claimed, "a claim expires")
    _expect(not await two.first.claim(brief, ttl=60), "a key is claimed twice after its first claim expired")


async def _deletion_by_one(two: _Two) -> None:
    key = two.key("once")
    await two.first.set(key, b"x")
    deleted = await asyncio.gather(*(two.of(number).delete(key) for number in range(40)))
    _expect(deleted.count(True) == 1, f"{deleted.count(True)} of 40 callers have deleted a value, 1 is expected")


async def _leases(two: _Two) -> None:
    key = two.key("lease")
    await two.first.set(key, b"0")

    async def add(number: int) -> None:
        backend = two.of(number)
        async with backend.lease(key, ttl=PATIENCE, wait=PATIENCE):
            count = int(await backend.get(key) or b"")
            await asyncio.sleep(0)
            await backend.set(key, b"%d" % (count + 1))

    await asyncio.gather(*map(add, range(10)))
    count = int(await two.first.get(key) or b"")
    _expect(count == 10, f"10 tasks with a lease have counted to {count}")
    try:
        async with two.first.lease(key, ttl=PATIENCE):
            raise KeyError
    except KeyError:
        pass
    async with two.second.lease(key, ttl=PATIENCE, wait=0):
        pass  # it was released
    cancelled = asyncio.create_task(_hold_forever(two.first, key))
    await asyncio.sleep(0.1)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    async with two.second.lease(key, ttl=PATIENCE, wait=0):
        pass  # so was that of a cancelled task


async def _hold_forever(backend: Backend, key: str) -> None:
    async with backend.lease(key, ttl=PATIENCE):
        await asyncio.Event().wait()


async def _is_free(backend: Backend, key: str) -> bool:
    try:
        async with backend.lease(key, ttl=PATIENCE, wait=0):
            return True
    except TimeoutError:
        return False


async def _renewal(two: _Two) -> None:
    # On a busy machine a renewal may come too late for a short time.
    for ttl in (SHORT, 3 * SHORT, 9 * SHORT):
        if await _is_renewed(two, ttl):
            return
    raise AssertionError("a lease can be taken while it is held and renewed")


async def _is_renewed(two: _Two, ttl: float) -> bool:
    key = two.key("renewed")
    try:
        async with two.first.lease(key, ttl=ttl) as lease:
            end = time.monotonic() + 3 * ttl
            while time.monotonic() < end:
                if await _is_free(two.second, key):
                    return False
                await asyncio.sleep(0.05)
            lease.check()
    except LeaseLost:
        return False
    _expect(await _is_free(two.second, key), "a lease is not free after its block")
    return True


async def _loss(two: _Two) -> None:
    key = two.key("lost")
    try:
        async with two.first.lease(key, ttl=SHORT) as lease:
            time.sleep(SHORT * 1.5)  # noqa: ASYNC251  # a block that keeps the event loop busy
            _expect(lease.lost, "a lease that was not renewed in time is not lost")
            async with two.second.lease(key, ttl=PATIENCE, wait=PATIENCE):
                await asyncio.sleep(SHORT)
                _expect(lease.lost, "a lease that somebody else holds is not lost")
                try:
                    lease.check()
                except LeaseLost:
                    pass
                else:
                    raise AssertionError("check does not raise LeaseLost")
    except LeaseLost:
        return
    raise AssertionError("a block that lost its lease ends without LeaseLost")


async def _tokens(two: _Two) -> None:
    key = two.key("token")
    tokens: list[int] = []

    async def hold(number: int) -> None:
        async with two.of(number).lease(key, ttl=PATIENCE, wait=PATIENCE) as lease:
            tokens.append(lease.token)

    await asyncio.gather(*map(hold, range(10)))
    async with two.first.lease(key, ttl=SHORT) as lease:
        await asyncio.sleep(SHORT)
        tokens.append(lease.token)
    await hold(1)
    _expect(
        tokens == sorted(set(tokens)) and tokens[0] > 0,
        f"the tokens of a lease do not grow from holder to holder: {tokens}",
    )


async def _logs(two: _Two) -> None:
    log = two.key("log")
    await two.first.set(log, b"x")
    _expect(await two.first.end_of(log) == 0, "the end of a log that is not there is not 0")
    _expect(await two.first.read(log) == [], "a log that is not there has entries")
    _expect(await two.first.append(log, [b"a", b""], ttl=60) == 2, "2 entries in a new log do not end at position 2")
    _expect(await two.second.append(log, [b"\0\xff"], ttl=60) == 3, "the third entry of a log is not at position 3")
    entries = [(1, b"a"), (2, b""), (3, b"\0\xff")]
    for backend in (two.first, two.second):
        _expect(await backend.end_of(log) == 3, "the end of a log is not the position of the newest entry")
        _expect(await backend.read(log) == entries, "read does not return the entries with their positions")
        _expect(
            await backend.read(log, after=1) == entries[1:], "read returns other entries than those after a position"
        )
        _expect(
            await backend.read(log, after=1, most=1) == entries[1:2], "read does not return the first `most` entries"
        )
        _expect(await backend.read(log, after=3) == [], "read returns entries after the newest one")
        _expect(await backend.read(log, after=9) == [], "read returns entries after a position that is not there yet")
    _expect(await two.first.get(log) == b"x", "a log replaces the value of the same key")
    await two.first.delete(log)
    _expect(await two.first.end_of(log) == 3, "a log ends with the deletion of a value")


async def _long_logs(two: _Two) -> None:
    log, large = two.key("long"), two.key("large")
    for number in range(1, 11):
        await two.of(number).append(log, [b"%d" % number], ttl=60, most=3)
    _expect(await two.first.read(log) == [(8, b"8"), (9, b"9"), (10, b"10")], "a log does not keep its newest entries")
    await two.first.append(log, [b"%d" % number for number in range(11, 21)], ttl=60, most=4)
    positions = [position for position, _ in await two.second.read(log, after=9)]
    _expect(positions == [17, 18, 19, 20], "a log does not keep the newest entries of one append")
    biggest = b"x" * MAX_VALUE_BYTES
    for number in range(1, 13):
        _expect(await two.first.append(large, [biggest], ttl=60) == number, "a large entry has another position")
    read = await two.second.read(large)
    _expect(read[-1] == (12, biggest), "the newest large entry is not there")
    _expect([at for at, _ in read] == list(range(13 - len(read), 13)), "a log drops other entries than the oldest")


async def _log_expiry(two: _Two) -> None:
    log, kept = two.key("brief"), two.key("renewed")
    await two.first.append(kept, [b"1"], ttl=SHORT)
    await two.first.append(kept, [b"2"], ttl=60)
    await two.first.append(log, [b"1", b"2"], ttl=SHORT)

    async def is_gone() -> bool:
        return await two.second.end_of(log) == 0

    await _eventually(is_gone, "a log expires")
    _expect(await two.first.read(log) == [], "a log that has expired has entries")
    _expect(await two.first.append(log, [b"3"], ttl=60, after=0) == 1, "a log that has expired does not begin with 1")
    _expect(await two.second.read(log) == [(1, b"3")], "a log has entries from before it expired")
    _expect(await two.second.read(kept) == [(1, b"1"), (2, b"2")], "a log expires although more was appended")


async def _appending_by_many(two: _Two) -> None:
    log = two.key("many")
    ends = await asyncio.gather(*(two.of(number).append(log, [b"%d" % number] * 3, ttl=60) for number in range(40)))
    _expect(sorted(ends) == list(range(3, 121, 3)), "appends at once do not get positions of their own")
    entries = await two.first.read(log)
    _expect([position for position, _ in entries] == list(range(1, 121)), "appends at once leave gaps")
    for number, end in enumerate(ends):
        written = entries[end - 3 : end]
        _expect([entry for _, entry in written] == [b"%d" % number] * 3, "the entries of one append are not together")


async def _one_of_many_writers(two: _Two) -> None:
    log = two.key("fenced")

    async def goes_on(number: int, after: int) -> bool:
        try:
            last = await two.of(number).append(log, [b"%d" % number], ttl=60, after=after)
        except LogConflict as exc:
            _expect(exc.newest == after + 1, f"LogConflict names {exc.newest}, not the newest position {after + 1}")
            return False
        _expect(last == after + 1, f"an append after {after} is at position {last}")
        return True

    for after in (0, 1):
        winners = await asyncio.gather(*(goes_on(number, after) for number in range(20)))
        text = f"{winners.count(True)} of 20 writers have appended after position {after}, 1 is expected"
        _expect(winners.count(True) == 1, text)
        _expect(
            (await two.first.read(log))[after] == (after + 1, b"%d" % winners.index(True)), "another entry is there"
        )
    try:
        await two.first.append(log, [b"x"], ttl=60, after=7)
    except LogConflict as exc:
        _expect(exc.newest == 2, f"LogConflict names {exc.newest}, not the newest position 2")
    else:
        raise AssertionError("an append after a position that is not there yet does not raise LogConflict")
    _expect(await two.first.end_of(log) == 2, "an append that raised LogConflict has appended")


async def _watching(two: _Two) -> None:
    log = two.key("watched")
    first: list[int] = []
    second: list[int] = []
    stopped: list[int] = []

    def fail() -> None:
        raise RuntimeError("a function that fails")

    ends = [two.first.watch(log, lambda: first.append(1)), two.second.watch(log, lambda: second.append(1))]
    stop = two.second.watch(log, lambda: stopped.append(1))
    stop()
    stop()
    failing = two.first.watch(log, fail)

    async def are_woken() -> bool:
        return bool(first and second)

    try:
        await two.first.append(log, [b"1"], ttl=60)
        await _eventually(are_woken, "those who watch a log are woken by an append")
        failing()
        await asyncio.sleep(SHORT)  # for calls that are still on their way
        first.clear()
        second.clear()
        await two.second.append(log, [b"2"], ttl=60)
        await _eventually(are_woken, "those who watch a log are woken by a second append")
        _expect(not stopped, "a function is called that no longer watches")
    finally:
        for end in ends:
            end()
    try:
        two.first.watch("", fail)
    except ValueError:
        return
    raise AssertionError("watch with an empty key is accepted; a ValueError is expected")


async def _changes(two: _Two) -> None:
    first: list[Event] = []
    second: list[Event] = []
    stopped: list[Event] = []

    def fail(event: Event) -> None:
        raise RuntimeError("a listener that fails")

    removals = [two.first.subscribe(first.append), two.second.subscribe(second.append)]
    stop = two.second.subscribe(stopped.append)
    stop()
    stop()
    changes = [Changed("resource", f"{two.prefix}:///{number}") for number in range(100)]

    async def are_heard() -> bool:
        return all(ChangesLost in map(type, events) or set(changes) <= set(events) for events in (first, second))

    try:
        for change in changes[1:]:
            two.first.publish(change)
        remove = two.first.subscribe(fail)
        two.first.publish(changes[0])  # the failure of a listener is logged once, not a hundred times
        remove()
        async with asyncio.timeout(PATIENCE):
            await two.first.flush()
        await _eventually(are_heard, "each listener is told of each change")
        _expect(not stopped, "a listener that was removed is told of changes")
    finally:
        for remove in removals:
            remove()


_CHECKS = (
    _values,
    _expiry,
    _limits,
    _replacement,
    _touching,
    _claims,
    _deletion_by_one,
    _leases,
    _renewal,
    _loss,
    _tokens,
    _logs,
    _long_logs,
    _log_expiry,
    _appending_by_many,
    _one_of_many_writers,
    _watching,
    _changes,
)


# ---------------------------------------------------------------- processes


async def _check_processes(make: MakeBackend, two: _Two, count: int) -> None:
    """The same between processes, one of which is killed while it holds a lease."""
    counter, once, log = two.key("counter"), two.key("once"), two.key("entries")
    _expect(two.first.shared, "`shared` is False: other processes do not see what this one stores")
    await two.first.set(counter, b"0")
    await two.first.set(once, b"x")
    heard: list[Event] = []
    woken: list[int] = []
    removals = [two.first.subscribe(heard.append), two.first.watch(log, lambda: woken.append(1))]
    try:
        workers = [_start(make, "count", two.prefix, str(number)) for number in range(count)]
        outputs = [await asyncio.to_thread(_finish, worker) for worker in workers]
        total = int(await two.first.get(counter) or b"")
        _expect(total == count * ROUNDS, f"they have counted to {total} under a lease, not to {count * ROUNDS}")
        for name in ("claimed", "deleted"):
            winners = sum(name in output.split() for output in outputs)
            _expect(winners == 1, f"{winners} of them have {name} the same key, 1 is expected")
        changes = {Changed("resource", f"{two.prefix}:///{number}") for number in range(count)}

        async def are_heard() -> bool:
            return any(isinstance(event, ChangesLost) for event in heard) or changes <= set(heard)

        await _eventually(are_heard, "the changes of other processes arrive")

        async def is_woken() -> bool:
            return bool(woken)

        await _eventually(is_woken, "appends of other processes wake those who watch the log")
        await _check_log(two, count)
    finally:
        for remove in removals:
            remove()
    holder = _start(make, "hold", two.prefix, "0")
    try:
        assert holder.stdout is not None
        await asyncio.to_thread(holder.stdout.readline)
        _expect(not await _is_free(two.first, two.key("held")), "a lease of another process can be taken")
    finally:
        holder.kill()
        await asyncio.to_thread(_finish, holder)

    async def is_free() -> bool:
        return await _is_free(two.first, two.key("held"))

    await _eventually(is_free, "the lease of a process that was killed ends")


async def _check_log(two: _Two, count: int) -> None:
    """Each process has appended its entries in two ways, and the token of each of its leases."""
    entries = await two.first.read(two.key("entries"))
    expected = sorted(b"%d %d" % (number, turn) for number in range(count) for turn in range(2 * ROUNDS))
    _expect(sorted(entry for _, entry in entries) == expected, "the log does not have each entry of each process once")
    _expect([position for position, _ in entries] == list(range(1, len(entries) + 1)), "the log has gaps")
    for number in range(count):
        turns = [int(entry.split()[1]) for _, entry in entries if int(entry.split()[0]) == number]
        _expect(turns == sorted(turns), "the entries of a process are not in their order")
    tokens = [int(token) for _, token in await two.first.read(two.key("tokens"))]
    _expect(
        len(tokens) == count * ROUNDS and tokens == sorted(set(tokens)), f"the tokens of a lease do not grow: {tokens}"
    )


def _start(make: MakeBackend, work: str, prefix: str, number: str) -> subprocess.Popen[bytes]:
    code = "from gemel.testing.backends import run_process; run_process()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, work, prefix, number],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert process.stdin is not None
    process.stdin.write(pickle.dumps(make))
    process.stdin.close()
    process.stdin = None
    return process


def _finish(process: subprocess.Popen[bytes]) -> str:
    output, _ = process.communicate(timeout=6 * PATIENCE)
    _expect(process.returncode in (0, -9), f"a process ended with status {process.returncode}")
    return output.decode()


def run_process() -> None:
    """Do the part of one process in `check_backend`."""
    make: MakeBackend = pickle.load(sys.stdin.buffer)
    work, prefix, number = sys.argv[1:]
    asyncio.run((_count if work == "count" else _hold)(make(), prefix, number))


async def _count(backend: Backend, prefix: str, number: str) -> None:
    log = f"{prefix}:entries"
    for turn in range(ROUNDS):
        async with backend.lease(f"{prefix}:counter", ttl=PATIENCE) as lease:
            count = int(await backend.get(f"{prefix}:counter") or b"")
            await backend.set(f"{prefix}:counter", b"%d" % (count + 1))
            await backend.append(f"{prefix}:tokens", [b"%d" % lease.token], ttl=600)
            lease.check()
        await backend.append(log, [f"{number} {2 * turn}".encode()], ttl=600)
        newest = await backend.end_of(log)
        while True:
            try:
                await backend.append(log, [f"{number} {2 * turn + 1}".encode()], ttl=600, after=newest)
                break
            except LogConflict as exc:
                newest = exc.newest
    if await backend.claim(f"{prefix}:claim", ttl=600):
        print("claimed")
    if await backend.delete(f"{prefix}:once"):
        print("deleted")
    backend.publish(Changed("resource", f"{prefix}:///{number}"))
    if int(number) % 2:
        await backend.close()
    else:
        await backend.flush()
        sys.stdout.flush()
        os._exit(0)  # as if it was killed


async def _hold(backend: Backend, prefix: str, number: str) -> None:
    async with backend.lease(f"{prefix}:held", ttl=5.0):
        print("held", flush=True)
        await asyncio.Event().wait()
