"""What is particular to the SQLite backend: its file, its bounds, its threads and changes of other processes."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gemel import BackendError, Changed, ChangesLost, Client, DefinitionError, LogConflict, Overloaded, Server
from gemel.backends import ServerBackend, SqliteBackend, backend_for, sqlite, sqlite_file, sqlite_poller, sqlite_thread
from gemel.backends.base import Event


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def backend(path: Path) -> AsyncIterator[SqliteBackend]:
    backend = SqliteBackend(path)
    yield backend
    await backend.close()


async def heard(events: list[Event], count: int = 1) -> None:
    """Wait for so many events."""
    async with asyncio.timeout(20):
        while len(events) < count:  # noqa: ASYNC110  # they come on another thread
            await asyncio.sleep(0.01)


def rows(path: Path, table: str) -> int:
    with sqlite3.connect(path) as db:
        count: int = db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    db.close()
    return count


def test_it_is_named_by_its_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    relative, absolute = backend_for("sqlite:///state.db"), backend_for(f"sqlite:///{tmp_path}/other.db")
    assert isinstance(relative, SqliteBackend)
    assert isinstance(absolute, SqliteBackend)
    assert relative._path == tmp_path / "state.db"
    assert absolute._path == tmp_path / "other.db"
    assert not list(tmp_path.iterdir()), "nothing is made before it is used"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:state.db", "sqlite://host/x"])
def test_a_url_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(DefinitionError, match="memory://"):
        Server("x", backend=url)


async def test_values_outlive_the_backend(path: Path) -> None:
    first = SqliteBackend(path)
    await first.set("a", b"1")
    await first.close()
    second = SqliteBackend(path)
    assert await second.get("a") == b"1"
    await second.close()


async def test_a_closed_backend_says_so(path: Path) -> None:
    backend = SqliteBackend(path)
    await backend.set("a", b"1")
    await backend.close()
    await backend.close()
    with pytest.raises(BackendError, match="was closed"):
        await backend.get("a")
    backend.publish(Changed("tools"))


async def test_the_file_is_readable_by_its_owner_only(backend: SqliteBackend, path: Path) -> None:
    await backend.set("a", b"1")
    for file in path.parent.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file


async def test_the_database_of_another_program_is_left_alone(path: Path, backend: SqliteBackend) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE theirs (a)")
    db.close()
    before = path.read_bytes()  # noqa: ASYNC240  # a small file
    with pytest.raises(BackendError, match="database of another program: choose another file"):
        await backend.set("a", b"1")
    assert path.read_bytes() == before  # noqa: ASYNC240  # a small file


async def test_a_newer_database_is_left_alone(path: Path, backend: SqliteBackend) -> None:
    await backend.set("a", b"1")
    await backend.close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    newer = SqliteBackend(path)
    with pytest.raises(BackendError, match="another version of Gemel"):
        await newer.get("a")
    await newer.close()


@pytest.mark.parametrize("text", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
async def test_a_file_that_is_no_database_is_one_clear_line(path: Path, backend: SqliteBackend, text: bytes) -> None:
    path.write_bytes(text)  # noqa: ASYNC240  # a small file
    with pytest.raises(BackendError, match=r"state\.db can't be used: ") as caught:
        await backend.get("a")
    assert "\n" not in str(caught.value)


async def test_a_directory_that_is_missing_is_one_clear_line(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "nowhere" / "state.db")
    with pytest.raises(BackendError, match=r"state\.db can't be opened: No such file or directory"):
        await backend.set("a", b"1")
    await backend.close()


async def test_it_works_again_after_a_failure(path: Path, backend: SqliteBackend) -> None:
    path.write_bytes(b"not a database at all" * 100)  # noqa: ASYNC240  # a small file
    with pytest.raises(BackendError):
        await backend.get("a")
    path.unlink()  # noqa: ASYNC240  # a small file
    await backend.set("a", b"1")
    assert await backend.get("a") == b"1"


async def test_a_database_that_others_write_to_for_too_long_is_busy(path: Path) -> None:
    backend = SqliteBackend(path, busy_timeout=0.05)
    await backend.set("a", b"1")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(BackendError, match=r"is busy: other processes have been writing for 0\.05 seconds") as caught:
        await backend.set("a", b"2")
    assert caught.value.retry_after_ms == 1000
    assert await backend.get("a") == b"1"
    other.execute("COMMIT")
    other.close()
    await backend.set("a", b"2")
    await backend.close()


async def test_all_writes_that_wait_for_a_busy_database_fail_together(path: Path) -> None:
    """And not one group after the other, each of which would wait for as long."""
    backend = SqliteBackend(path, busy_timeout=1)
    await backend.set("a", b"1")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    async with asyncio.timeout(12):
        writes = [backend.set(f"key {number}", b"2") for number in range(640)]
        results = await asyncio.gather(*writes, return_exceptions=True)
    assert {type(result) for result in results} == {BackendError}
    other.execute("COMMIT")
    other.close()
    await backend.set("a", b"2")
    await backend.close()


async def test_the_event_loop_runs_while_the_database_is_busy(path: Path) -> None:
    backend = SqliteBackend(path)
    await backend.set("a", b"1")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(backend.set("a", b"2"))
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not writing.done()
    other.execute("COMMIT")
    other.close()
    await writing
    await backend.close()


async def test_a_full_file_is_overload_and_keeps_what_it_has(path: Path) -> None:
    backend = SqliteBackend(path, max_bytes=1 << 20)
    stored = 0

    async def fill() -> None:
        nonlocal stored
        for stored in range(100):
            await backend.set(f"a{stored}", bytes(100_000))

    with pytest.raises(Overloaded, match=r"The store is full: .* may have 1048576 bytes"):
        await fill()
    assert 5 <= stored <= 12
    assert path.stat().st_size <= 1 << 20  # noqa: ASYNC240  # a small file
    assert await backend.get("a0") == bytes(100_000)
    assert await backend.delete("a0")
    await backend.set("b", bytes(50_000))
    await backend.close()


async def test_expired_entries_make_room(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SqliteBackend(path, max_bytes=1 << 20)
    for number in range(8):
        await backend.set(f"a{number}", bytes(100_000), ttl=0.01)
    await asyncio.sleep(0.02)
    for number in range(8):
        await backend.set(f"b{number}", bytes(100_000))
    assert rows(path, "items") == 8
    await backend.close()


async def test_a_sweep_does_a_bounded_amount_of_work(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "SWEPT", 10)
    monkeypatch.setattr(sqlite_thread, "SWEPT", 10)
    backend = SqliteBackend(path)
    for number in range(100):
        await backend.claim(f"a{number}", ttl=0.5 + 0.001 * number)
    backend._thread.next_sweep = float("inf")
    await asyncio.sleep(0.7)
    backend._thread.next_sweep = 0.0
    left = rows(path, "items")
    for _ in range(3):
        await backend.claim("b", ttl=60)
        now = rows(path, "items")
        assert left - now in (9, 10)
        left = now
    await backend.close()


async def test_changes_of_another_process_arrive_once_and_in_order(path: Path) -> None:
    first, second = SqliteBackend(path), SqliteBackend(path)
    mine: list[Event] = []
    theirs: list[Event] = []
    removals = [first.subscribe(mine.append), second.subscribe(theirs.append)]
    for number in range(3):
        first.publish(Changed("resource", f"a:{number}"))
    assert len(mine) == 3, "listeners of the same process are told immediately"
    await heard(theirs, 3)
    await asyncio.sleep(2.5 * sqlite_poller.POLL)
    assert theirs == mine == [Changed("resource", f"a:{number}") for number in range(3)]
    for remove in removals:
        remove()
    await first.close()
    await second.close()


async def test_a_process_that_reads_too_late_is_told_of_the_loss(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = SqliteBackend(path), SqliteBackend(path)
    theirs: list[Event] = []
    remove = second.subscribe(theirs.append)
    first.publish(Changed("tools"))
    await heard(theirs)
    # As if nobody had looked for a while: both changes are gone, or the first of them.
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    for kind in ("prompts", "resources"):
        db.execute("INSERT INTO changes (at, source, kind) VALUES (?, 'x', ?)", (time.time(), kind))
    db.execute("DELETE FROM changes WHERE kind = 'prompts'")
    db.execute("COMMIT")
    await heard(theirs, 3)
    assert theirs[1] == Changed("resources")
    assert isinstance(theirs[2], ChangesLost)
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO changes (at, source, kind) VALUES (?, 'x', 'tools')", (time.time(),))
    db.execute("DELETE FROM changes")
    db.execute("COMMIT")
    db.close()
    await heard(theirs, 4)
    assert isinstance(theirs[3], ChangesLost)
    remove()
    await first.close()
    await second.close()


async def test_changes_of_the_past_are_not_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_poller, "CLOCK_SLACK", 0.0)
    first, second = SqliteBackend(path), SqliteBackend(path)
    first.publish(Changed("tools"))
    await first.close()
    theirs: list[Event] = []
    remove = second.subscribe(theirs.append)
    third = SqliteBackend(path)
    third.publish(Changed("prompts"))
    await heard(theirs)
    assert theirs == [Changed("prompts")]
    remove()
    await second.close()
    await third.close()


async def test_more_changes_than_are_kept_are_a_loss(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded by count and by characters; the listeners of the same process get each of them."""
    monkeypatch.setattr(sqlite, "_MAX_UNSENT", 10)
    first, second = SqliteBackend(path), SqliteBackend(path)
    theirs: list[Event] = []
    mine: list[Event] = []
    removals = [first.subscribe(mine.append), second.subscribe(theirs.append)]
    await second.get("a")
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    for number in range(1000):
        first.publish(Changed("resource", f"a:{number}"))
    assert len(first._unsent) <= 10
    blocker.execute("COMMIT")
    blocker.close()
    async with asyncio.timeout(20):
        while ChangesLost not in map(type, theirs):  # noqa: ASYNC110  # on another thread
            await asyncio.sleep(0.01)
    assert len(mine) == 1000
    for remove in removals:
        remove()
    await first.close()
    await second.close()


async def test_changes_that_could_not_be_written_are_a_loss_later(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = SqliteBackend(path, busy_timeout=0.05), SqliteBackend(path)
    theirs: list[Event] = []
    removals = [first.subscribe(lambda event: None), second.subscribe(theirs.append)]
    await first.get("a")
    await second.get("a")
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    first.publish(Changed("tools"))
    async with asyncio.timeout(20):
        while "not told of changes yet" not in caplog.text:  # noqa: ASYNC110  # on another thread
            await asyncio.sleep(0.01)
    blocker.execute("COMMIT")
    blocker.close()
    await heard(theirs)
    assert isinstance(theirs[0], ChangesLost)
    for remove in removals:
        remove()
    await first.close()
    await second.close()


async def test_without_listeners_no_thread_looks_for_changes(backend: SqliteBackend) -> None:
    def looking() -> int:
        return sum(thread.name == "gemel-sqlite-changes" for thread in threading.enumerate())

    before = looking()
    removals = [backend.subscribe(lambda event: None) for _ in range(3)]
    assert looking() == before + 1
    for remove in removals:
        remove()
    async with asyncio.timeout(20):
        while looking() > before:  # noqa: ASYNC110  # a thread ends
            await asyncio.sleep(0.01)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_a_forked_process_has_a_connection_of_its_own(path: Path) -> None:
    """As the workers of an HTTP server do, which are forked before anything was used."""
    backend = SqliteBackend(path)
    pid = os.fork()
    if not pid:
        status = 1
        try:
            asyncio.run(backend.set("child", b"1"))
            status = 0
        finally:
            os._exit(status)
    assert (await asyncio.to_thread(os.waitpid, pid, 0))[1] == 0
    assert await backend.get("child") == b"1"
    await backend.close()


async def test_an_error_does_not_show_values(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    backend = SqliteBackend(path, max_bytes=20_000)
    with pytest.raises(Overloaded) as caught:
        await backend.set("a", b"secret-canary" * 10_000)
    assert "secret-canary" not in f"{caught.value!r} {caught.value.__cause__!r} {caplog.text}"
    await backend.close()


async def test_several_processes_make_the_file_at_once(tmp_path: Path) -> None:
    for number in range(20):
        backends = [SqliteBackend(tmp_path / f"{number}.db") for _ in range(4)]
        await asyncio.gather(*(backend.set("key", b"value") for backend in backends))
        for backend in backends:
            await backend.close()


def threads() -> set[str]:
    """The names of the threads of backends that run."""
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("gemel-sqlite")}


async def test_a_backend_made_from_a_url_is_closed_with_its_server(path: Path) -> None:
    """It is open again when the server is served again; what the server was given is left open."""
    server = Server("notes", backend=f"sqlite:///{path}")
    server.tool("first")(lambda: "1")
    other = SqliteBackend(path)
    for turn in range(2):
        async with Client(server), Client(server) as client:
            await server.backend.set("turn", b"%d" % turn)
            async with client.listen(tools=True) as changes:
                ServerBackend(other, "notes").publish(Changed("tools"))
                assert await anext(changes) == Changed("tools")
    with pytest.raises(BackendError, match="was closed"):
        await server.backend.get("turn")
    assert await ServerBackend(other, "notes").get("turn") == b"1"
    async with Client(Server("notes", backend=other)):
        pass
    assert await ServerBackend(other, "notes").get("turn") == b"1"
    await other.close()
    async with asyncio.timeout(20):
        while threads():  # noqa: ASYNC110  # they end on their own
            await asyncio.sleep(0.01)


async def test_a_server_works_without_its_backend_and_registers_tools(tmp_path: Path) -> None:
    """The directory is missing."""
    server = Server("notes", backend=f"sqlite:///{tmp_path}/missing/state.db")
    server.tool("first")(lambda: "1")
    async with Client(server) as client:
        server.tool("second")(lambda: "2")
        assert [tool.name for tool in await client.list_tools()] == ["first", "second"]
        assert (await client.call_tool("second")).data == "2"


# ---------------------------------------------------------------- writes that are committed together


async def test_writes_that_are_in_flight_at_once_share_a_transaction(path: Path) -> None:
    backend = SqliteBackend(path)
    await backend.set("a", b"1")
    statements: list[str] = []
    backend._thread._connection[0].set_trace_callback(statements.append)
    await asyncio.gather(*(backend.set(f"a{number}", b"1") for number in range(320)))
    assert rows(path, "items") == 321
    transactions = statements.count("BEGIN IMMEDIATE")
    assert transactions <= 320 / sqlite_thread.GROUP + 2
    await backend.close()


async def test_a_write_that_fails_changes_nothing_and_the_others_of_its_transaction_are_stored(path: Path) -> None:
    backend = SqliteBackend(path)
    await backend.append("log", [b"1"], ttl=60)
    results = await asyncio.gather(
        backend.set("a", b"1"),
        backend.set("b", b"1"),
        backend.append("log", [b"never"], ttl=60, after=5),
        backend.append("log", [b"2"], ttl=60, after=1),
        backend.append("log", [b"late"], ttl=60, after=1),
        backend.replace("b", b"1", b"2"),
        backend.delete("b"),
        backend.claim("c", ttl=60),
        backend.claim("c", ttl=60),
        return_exceptions=True,
    )
    assert [type(each) if isinstance(each, Exception) else each for each in results] == [
        *(None, None, LogConflict, 2, LogConflict, True, True, True, False),
    ]
    assert await backend.read("log") == [(1, b"1"), (2, b"2")]
    assert (await backend.get("a"), await backend.get("b")) == (b"1", None)
    await backend.close()


async def test_what_has_no_room_does_not_keep_out_what_has(path: Path) -> None:
    backend = SqliteBackend(path, max_bytes=1 << 20)
    await backend.set("a", b"1")
    sizes = [500_000, 900_000, 100_000, 700_000, 100_000]
    results = await asyncio.gather(
        *(backend.set(f"a{number}", bytes(size)) for number, size in enumerate(sizes)), return_exceptions=True
    )
    assert [type(each) for each in results] == [type(None), Overloaded, type(None), Overloaded, type(None)]
    assert rows(path, "items") == 4
    await backend.close()


async def test_writes_that_nobody_waits_for_any_more_are_left_out(path: Path) -> None:
    backend = SqliteBackend(path)
    await backend.set("a", b"1")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    first = asyncio.create_task(backend.set("first", b"1"))  # waits for the other connection
    await asyncio.sleep(0.05)
    waiting = [asyncio.create_task(backend.set(f"b{number}", b"1")) for number in range(10)]
    await asyncio.sleep(0.05)
    for task in waiting[:5]:
        task.cancel()
    other.execute("COMMIT")
    other.close()
    await asyncio.wait([first, *waiting])
    assert [task.cancelled() for task in waiting] == [True] * 5 + [False] * 5
    assert rows(path, "items") == 7
    await backend.close()


async def test_the_thread_seldom_wakes_up_while_nobody_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_poller, "IDLE_AFTER", 0.0)
    monkeypatch.setattr(sqlite_poller, "IDLE_POLL", 0.2)
    backend, other = SqliteBackend(path), SqliteBackend(path)
    await other.set("a", b"1")
    woken = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wake() -> None:
        loop.call_soon_threadsafe(woken.set)

    stop = backend.watch("log", wake)
    await woken.wait()
    looks: list[int] = []
    assert backend._poller is not None
    monkeypatch.setattr(backend._poller, "_after_look", lambda: looks.append(1))
    await asyncio.sleep(1.0)
    assert len(looks) <= 6
    woken.clear()
    await other.append("log", [b"1"], ttl=60)
    await asyncio.wait_for(woken.wait(), 20)
    stop()
    await backend.close()
    await other.close()
