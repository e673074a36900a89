"""What is stored of tasks: on each backend that is here, and by several writers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gemel import BackendError, GemelError, Overloaded, Principal
from gemel.backends import MemoryBackend, SqliteBackend
from gemel.backends.keys import make_key
from gemel.extensions.tasks.stored_tasks import (
    PART_BYTES,
    StoredAnswer,
    StoredCall,
    StoredCaller,
    TaskGone,
    TaskRecord,
    TaskStore,
    new_id,
    owner_of,
)
from tests.support import Origin


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[TaskStore]:
    backend: Any = MemoryBackend() if request.param == "memory" else SqliteBackend(str(tmp_path / "tasks.db"))
    yield TaskStore(backend)
    await backend.close()


def record(**members: Any) -> TaskRecord:
    now = time.time()
    given: dict[str, Any] = {"era": "2026", "revision": "x", "tool": "t", "ttl": 60_000, "poll": 1, **members}
    return TaskRecord(id=new_id(), created=now, updated=now, **given)


def call(size: int = 1) -> StoredCall:
    return StoredCall(params=b"x" * size, caller=StoredCaller.of(Origin()))


async def test_a_task_is_there_when_create_has_returned(store: TaskStore) -> None:
    """TEX-09: with calls and results of several parts."""
    made = record()
    large = call(2 * PART_BYTES + 7)
    await store.create(made, large)
    found = await store.get(made.id)
    assert found == made
    assert await store.call_of(made) == large

    parts = await store.store_result(made, b'"' + b"y" * PART_BYTES + b'"')
    assert parts == 2

    def end(record: TaskRecord) -> bool:
        record.move("completed")
        record.result_parts = parts
        return True

    ended = await store.change(made.id, end)
    assert len(await store.result_of(ended)) == PART_BYTES + 2
    await store.delete(ended)
    assert await store.get(made.id) is None
    with pytest.raises(TaskGone):
        await store.result_of(ended)


async def test_changes_of_several_writers_are_all_kept(store: TaskStore) -> None:
    made = record()
    await store.create(made, call())

    async def add(key: str) -> None:
        def edit(record: TaskRecord) -> bool:
            record.answers[key] = StoredAnswer(b"1")
            return True

        await store.change(made.id, edit)

    await asyncio.gather(*(add(str(number)) for number in range(20)))
    found = await store.get(made.id)
    assert found is not None
    assert len(found.answers) == 20


async def test_a_clock_that_is_set_back_changes_no_order(store: TaskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """`lastUpdatedAt` of a task never decreases."""
    made = record()
    await store.create(made, call())
    monkeypatch.setattr(time, "time", lambda: made.updated - 10)
    changed = await store.change(made.id, lambda record: True)
    assert changed.updated == made.updated
    monkeypatch.setattr(time, "time", lambda: made.updated + 10)
    assert (await store.change(made.id, lambda record: True)).updated == made.updated + 10


async def test_a_state_that_is_final_never_changes() -> None:
    """TSK-10."""
    for final in ("completed", "failed", "cancelled"):
        made = record(status=final)
        for state in ("working", "input_required", "completed", "failed", "cancelled"):
            with pytest.raises(ValueError, match="can't become"):
                made.move(state)


async def test_a_journal_has_one_writer(store: TaskStore) -> None:
    made = record()
    await store.create(made, call())
    first, second = store.journal(made, most=10), store.journal(made, most=10)
    await first.load()
    await second.load()
    await first.append("done", "a", b"1")
    with pytest.raises(TaskGone):
        await second.append("done", "a", b"2")
    third = store.journal(made, most=10)
    await third.load()
    assert third.steps == {"a": b"1"}
    await third.append("begun", "b")
    await third.append("answer", "c", b"3")
    with pytest.raises(TaskGone):
        await first.append("done", "d", b"1")


async def test_a_journal_is_bounded(store: TaskStore) -> None:
    made = record()
    await store.create(made, call())
    journal = store.journal(made, most=3)
    with pytest.raises(GemelError, match="bytes"):
        await journal.append("done", "a", b"x" * PART_BYTES)
    for key in "abc":
        await journal.append("done", key, b"1")
    with pytest.raises(GemelError, match="at most 3"):
        await journal.append("done", "d", b"1")
    large = store.journal(record(), most=100)
    half = b"x" * (PART_BYTES // 2)

    async def fill() -> None:
        for number in range(20):
            await large.append("done", str(number), half)

    with pytest.raises(GemelError, match="all together"):
        await fill()


async def test_an_owner_has_a_bounded_list(store: TaskStore) -> None:
    owner, expires = owner_of("anna"), time.time() + 60
    for number in range(3):
        await store.enlist(owner, str(number), expires, 3)
    with pytest.raises(Overloaded) as caught:
        await store.enlist(owner, "3", expires, 3)
    assert caught.value.error.data["retryAfterMs"] > 1000
    await store.delist(owner, "1")
    await store.enlist(owner, "4", time.time() + 1, 3)
    assert await store.ids_of(owner) == ["0", "2", "4"]
    await asyncio.sleep(1.01)
    await store.enlist(owner, "5", expires, 3)
    assert await store.ids_of(owner) == ["0", "2", "5"]
    assert await store.ids_of(owner_of("eve")) == []
    assert owner_of(("anna", "app")) != owner_of("anna") != owner_of(None) == ""


async def test_expired_and_foreign_ids_are_unknown(store: TaskStore) -> None:
    """TEX-21."""
    made = record(ttl=1000)
    await store.create(made, call())
    assert await store.get(made.id) is not None
    await asyncio.sleep(1.01)
    for task_id in (made.id, new_id(), "", "x" * 1000, "\x00", None, 7):
        assert await store.get(task_id) is None
    with pytest.raises(TaskGone):
        await store.change(made.id, lambda record: True)


async def test_another_format_is_refused(store: TaskStore) -> None:
    made = record(format=2)
    await store.create(made, call())
    with pytest.raises(BackendError, match="format 2"):
        await store.get(made.id)
    await store.backend.set(make_key("task", made.id), msgspec.msgpack.encode([1, 2]))
    with pytest.raises(BackendError, match="can't be read"):
        await store.get(made.id)


def test_a_caller_is_the_same_afterwards() -> None:
    principal = Principal("anna", frozenset({"a"}), {"mail": "x"}, 5.0, "app")
    origin = Origin(principal="anna", scopes=frozenset({"a"}), caller=principal)
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(StoredCaller.of(origin)), type=StoredCaller)
    again = stored.origin
    assert (again.principal, again.owner, again.caller) == ("anna", origin.owner, principal)
    assert again.scopes == frozenset({"a"})
    nobody = msgspec.msgpack.decode(msgspec.msgpack.encode(StoredCaller.of(Origin(scopes=None))), type=StoredCaller)
    assert (nobody.origin.principal, nobody.origin.scopes, nobody.origin.owner) == (None, None, None)
