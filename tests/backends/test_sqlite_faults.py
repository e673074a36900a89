"""The SQLite backend when something fails: full disks, processes that are killed or stopped, clocks that jump, damaged files."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest

from gemel import BackendError, Changed, ChangesLost, DefinitionError, LeaseLost, LogConflict, Overloaded
from gemel.backends import SqliteBackend, sqlite, sqlite_file
from gemel.backends.base import Event
from tests.programs import require

#: Appends numbers to a log until it is killed, and prints each that was acknowledged.
WRITER = """
import asyncio, sys
from gemel.backends import SqliteBackend

async def main(path, name, synchronous, count):
    backend = SqliteBackend(path, synchronous=synchronous)
    for number in range(int(count)):
        await backend.append("log", [f"{name} {number}".encode()], ttl=600, most=1_000_000)
        await backend.set(f"last {name}", b"%d" % number)
        print(number, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""

#: Holds a lease, and appends to a log when it is told to, as if it still held it.
HOLDER = """
import asyncio, sys
from gemel import LogConflict
from gemel.backends import SqliteBackend

async def main(path):
    backend = SqliteBackend(path)
    async with backend.lease("key", ttl=1) as lease:
        newest = await backend.append("log", [b"holder"], ttl=600)
        await backend.set("state", b"holder")
        print(lease.token, flush=True)
        sys.stdin.readline()
        try:
            await backend.append("log", [b"stale"], ttl=600, after=newest)
        except LogConflict as exc:
            print("conflict", exc.newest)
        print("replaced", await backend.replace("state", b"holder", b"stale"), flush=True)

asyncio.run(main(sys.argv[1]))
"""


def start(code: str, *arguments: object, under: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*under, sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )


async def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return await asyncio.to_thread(process.stdout.readline)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


# ---------------------------------------------------------------- processes that end


@pytest.mark.timeout(120)
@pytest.mark.parametrize("synchronous", ["full", "normal"])
async def test_nothing_acknowledged_is_lost_when_writers_are_killed(
    path: Path, synchronous: Literal["full", "normal"]
) -> None:
    acknowledged: dict[str, int] = {}
    for turn in range(3):
        writers = {f"{turn}{name}": start(WRITER, path, f"{turn}{name}", synchronous, 1_000_000) for name in "ab"}
        for writer in writers.values():
            for _ in range(20):
                await read_line(writer)
        for name, writer in writers.items():
            writer.kill()
            output, _ = await asyncio.to_thread(writer.communicate)
            lines = output.split("\n")[:-1]  # what follows the last line end was not printed whole
            acknowledged[name] = int(lines[-1]) if lines else 19
    backend = SqliteBackend(path)
    entries = await backend.read("log", most=1_000_000)
    assert [position for position, _ in entries] == list(range(1, len(entries) + 1))
    for name, last in acknowledged.items():
        numbers = [int(entry.split()[1]) for _, entry in entries if entry.split()[0] == name.encode()]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > last >= 19
        assert int(await backend.get(f"last {name}") or b"-1") >= last
    await backend.close()


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize(("synchronous", "least", "most"), [("full", 40, 60), ("normal", 0, 10)])
async def test_full_waits_for_the_disk_at_each_write(path: Path, synchronous: str, least: int, most: int) -> None:
    trace = path.with_name("trace")
    calls = ("strace", "-f", "-o", str(trace), "-e", "trace=fsync,fdatasync")
    process = start(WRITER, path, "a", synchronous, 20, under=calls)
    output, _ = await asyncio.to_thread(process.communicate)
    if process.returncode:
        pytest.skip("strace can't trace here")
    assert output.count("\n") == 20
    synced = sum("sync(" in line for line in trace.read_text().splitlines())
    assert least <= synced <= most


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
@pytest.mark.timeout(60)
async def test_a_holder_that_was_stopped_can_write_nothing_after_the_next_one(path: Path) -> None:
    holder = start(HOLDER, path)
    backend = SqliteBackend(path)
    try:
        token = int(await read_line(holder))
        holder.send_signal(signal.SIGSTOP)
        async with backend.lease("key", ttl=20, wait=20) as lease:
            assert lease.token > token
            newest = await backend.append("log", [b"next"], ttl=600, after=1)
            assert await backend.replace("state", b"holder", b"next")
            holder.send_signal(signal.SIGCONT)
            assert holder.stdin is not None
            holder.stdin.write("\n")
            holder.stdin.flush()
            assert await read_line(holder) == f"conflict {newest}\n"
            assert await read_line(holder) == "replaced False\n"
        assert await backend.read("log") == [(1, b"holder"), (2, b"next")]
        assert await backend.get("state") == b"next"
    finally:
        holder.kill()
        await asyncio.to_thread(holder.communicate)
        await backend.close()


# ---------------------------------------------------------------- disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    if sys.platform != "linux" or os.geteuid():
        pytest.skip("a file system of its own needs Linux and root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounting = subprocess.run(
        [require("mount"), "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, text=True
    )
    if mounting.returncode:
        pytest.skip(f"no file system can be mounted here: {mounting.stderr.strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


async def test_a_full_disk_is_overload_and_loses_nothing(small_disk: Path) -> None:
    backend = SqliteBackend(small_disk / "state.db")
    acknowledged = 0

    async def fill() -> None:
        nonlocal acknowledged
        while acknowledged < 1000:
            acknowledged = await backend.append("log", [bytes(20_000)], ttl=600)

    with pytest.raises(Overloaded, match=r"^The store is full: the disk of .*state\.db is full$"):
        await fill()
    with pytest.raises(Overloaded):
        await backend.set("a", bytes(100_000))
    assert await backend.end_of("log") == acknowledged > 5
    assert len(await backend.read("log")) == acknowledged
    subprocess.run(["mount", "-o", "remount,size=8m", small_disk], check=True)  # noqa: ASYNC221  # takes no time
    assert await backend.append("log", [bytes(20_000)], ttl=600) == acknowledged + 1
    await backend.close()


async def test_a_disk_without_any_room_is_one_clear_line(small_disk: Path) -> None:
    with (small_disk / "other").open("wb", 0) as other, suppress(OSError):  # until the disk is full
        while True:
            other.write(bytes(4096))
    backend = SqliteBackend(small_disk / "state.db")
    with pytest.raises((Overloaded, BackendError), match=r"is full|can't be (used|opened)") as caught:
        await backend.set("a", b"1")
    assert "\n" not in str(caught.value)
    (small_disk / "other").unlink()
    await backend.set("a", b"1")
    assert await backend.get("a") == b"1"
    await backend.close()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux names the file systems")
def test_a_network_disk_is_refused_unless_it_is_allowed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The type of this directory's own file system counts as one of a network."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    device = os.stat(path.parent).st_dev
    kinds = {
        line.split(" - ")[1].split()[0]
        for line in mounts
        if line.split()[2] == f"{os.major(device)}:{os.minor(device)}"
    }
    if not kinds:
        pytest.skip("the file system of temporary files is not in the table of mounts")
    SqliteBackend(path)
    monkeypatch.setattr(sqlite_file, "_NETWORK_DISKS", kinds)
    with pytest.raises(DefinitionError, match=rf"state\.db is on a network file system \({min(kinds)}\)"):
        SqliteBackend(path)
    SqliteBackend(path, network_disk=True)
    SqliteBackend(path.parent / "missing" / "state.db")


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "9p"])
def test_network_file_systems_are_told_by_their_type(path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    device = os.stat(path.parent).st_dev
    table = path.with_name("mountinfo")
    table.write_text(
        "22 1 0:99 / /other rw - nfs4 host:/other rw\n"
        f"36 35 {os.major(device)}:{os.minor(device)} /a\\040- /mnt rw,noatime master:1 - {kind} host:/export rw\n"
    )
    monkeypatch.setattr(sqlite_file, "_MOUNTS", table)
    assert sqlite_file.network_disk_type(path) == kind


# ---------------------------------------------------------------- damage and formats


@pytest.mark.parametrize("damage", ["zeros", "noise", "short"])
async def test_a_damaged_file_is_one_clear_line_and_is_left_as_it_is(path: Path, damage: str) -> None:
    backend = SqliteBackend(path)
    for number in range(50):
        await backend.set(f"a{number}", bytes(5000))
    await backend.close()
    whole = path.read_bytes()  # noqa: ASYNC240  # a small file
    middle = {"zeros": bytes(len(whole) - 8192), "noise": os.urandom(len(whole) - 8192), "short": b""}[damage]
    path.write_bytes(whole[:8192] + middle)  # noqa: ASYNC240
    damaged = SqliteBackend(path)

    async def read_all() -> None:
        for number in range(50):
            assert await damaged.get(f"a{number}") in (None, bytes(5000))
        pytest.fail("the damage was not noticed")

    with pytest.raises(BackendError, match=r"state\.db can't be used: ") as caught:
        await read_all()
    assert "\n" not in str(caught.value)
    path.write_bytes(whole)  # noqa: ASYNC240
    assert await damaged.get("a49") == bytes(5000)
    await damaged.close()


async def test_a_file_of_the_first_format_is_brought_to_this_one(path: Path) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript(
        "CREATE TABLE entries (kind INTEGER, key BLOB, value BLOB, expires REAL, PRIMARY KEY (kind, key));"
        "CREATE INDEX entries_by_expiry ON entries (expires) WHERE expires IS NOT NULL;"
        "CREATE TABLE changes (id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL, source TEXT, kind TEXT, uri TEXT);"
        "PRAGMA application_id = 1214869095; PRAGMA user_version = 1;"
    )
    old = "INSERT INTO entries VALUES (?, ?, ?, ?)"
    later = time.time() + 600
    db.executemany(old, [(0, b"a", b"1", None), (1, b"a", b"", later), (2, b"a", b"somebody", later)])
    backends = [SqliteBackend(path) for _ in range(3)]
    assert await asyncio.gather(*(backend.get("a") for backend in backends)) == [b"1"] * 3
    assert not await backends[0].claim("a", ttl=60)
    with pytest.raises(TimeoutError):
        async with backends[1].lease("a", ttl=60, wait=0):
            pass
    assert await backends[2].append("a", [b"1"], ttl=60) == 1
    with pytest.raises(sqlite3.OperationalError, match="no such table"):  # a process of the earlier version
        db.execute(old, (1, b"b", b"", later))
    db.close()
    for backend in backends:
        await backend.close()


# ---------------------------------------------------------------- clocks


class Clock:
    """The system clock of one backend, which can be set."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.monotonic = time.monotonic

    def time(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(sqlite, "time", clock)
    return clock


async def test_a_clock_that_jumps_forward_ends_leases_but_tokens_still_tell_holders_apart(
    path: Path, clock: Clock
) -> None:
    first, second = SqliteBackend(path), SqliteBackend(path)
    await first.set("a", b"1", ttl=60)

    async def hold() -> None:
        async with first.lease("key", ttl=3) as lease:
            newest = await first.append("log", [b"first"], ttl=86_400)
            clock.ahead = 3600
            async with second.lease("key", ttl=60, wait=0) as other:
                assert other.token > lease.token
                await second.append("log", [b"second"], ttl=86_400)
                with pytest.raises(LogConflict):
                    await first.append("log", [b"stale"], ttl=86_400, after=newest)
                async with asyncio.timeout(20):
                    while not lease.lost:  # noqa: ASYNC110  # noticed when it is renewed
                        await asyncio.sleep(0.01)

    with pytest.raises(LeaseLost):
        await hold()
    assert await first.get("a") is None
    assert [entry for _, entry in await first.read("log")] == [b"first", b"second"]
    await first.close()
    await second.close()


async def test_a_clock_that_jumps_back_ends_nothing_early(path: Path, clock: Clock) -> None:
    first, second = SqliteBackend(path), SqliteBackend(path)
    heard: list[Event] = []
    await first.set("a", b"1", ttl=60)
    assert await first.claim("c", ttl=60)
    await first.append("log", [b"1"], ttl=60)
    stop = second.subscribe(heard.append)
    async with first.lease("key", ttl=60):
        clock.ahead = -3600
        assert await second.get("a") == b"1"
        assert not await second.claim("c", ttl=60)
        assert await second.append("log", [b"2"], ttl=60) == 2
        with pytest.raises(TimeoutError):
            async with second.lease("key", ttl=60, wait=0):
                pass
    first.publish(Changed("tools"))
    async with asyncio.timeout(20):
        while Changed("tools") not in heard:  # noqa: ASYNC110  # on another thread
            await asyncio.sleep(0.01)
    assert ChangesLost not in map(type, heard)
    stop()
    await first.close()
    await second.close()


# ---------------------------------------------------------------- logs


async def test_a_watched_log_costs_no_thread_afterwards_and_wakes_once_more_after_a_failure(path: Path) -> None:
    backend, other = SqliteBackend(path), SqliteBackend(path)
    woken: list[int] = []
    stop = backend.watch("log", lambda: woken.append(1))

    async def wakes(count: int) -> None:
        async with asyncio.timeout(20):
            while len(woken) < count:  # noqa: ASYNC110  # on another thread
                await asyncio.sleep(0.01)

    await wakes(1)  # the thread has begun to look: entries may have been missed before
    await other.append("log", [b"1"], ttl=60)
    await wakes(2)
    await other.append("another", [b"1"], ttl=60)
    await backend.append("log", [b"2"], ttl=60)
    assert len(woken) == 3, "immediately in the same process"
    await asyncio.sleep(0.2)
    assert len(woken) == 3, "not again for its own entries, and not for other logs"
    stop()
    assert backend._poller is None
    await backend.close()
    await other.close()


async def test_logs_are_swept_some_entries_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "SWEPT", 10)
    backend = SqliteBackend(path)
    for name in "ab":
        await backend.append(name, [b""] * 15, ttl=0.2)
    await asyncio.sleep(0.3)
    db = sqlite3.connect(path)
    left = []
    for _ in range(4):
        backend._thread.next_sweep = 0.0
        await backend.claim("c", ttl=60)
        left.append(db.execute("SELECT (SELECT count(*) FROM log_entries), (SELECT count(*) FROM logs)").fetchone())
    db.close()
    assert left == [(20, 2), (10, 1), (0, 1), (0, 0)]
    await backend.close()
