"""The contract of backends, as third parties check theirs, and that the checks notice what breaks it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gemel import BackendError, Changed, DefinitionError, Server
from gemel.backends import Backend, EncryptedBackend, MemoryBackend, SqliteBackend
from gemel.testing import check_backend

KEYS = [b"k" * 32]


async def test_memory_keeps_the_contract() -> None:
    backend = MemoryBackend()
    await check_backend(lambda: backend)


@pytest.mark.timeout(120)  # nine processes, two at a time
@pytest.mark.long
async def test_sqlite_keeps_the_contract_between_processes(tmp_path: Path) -> None:
    await check_backend(partial(SqliteBackend, tmp_path / "state.db"), processes=8)
    assert os.stat(tmp_path / "state.db").st_mode & 0o777 == 0o600


async def test_an_encrypted_backend_keeps_the_contract() -> None:
    """Its values and entries are 32 bytes shorter; the checks store the largest ones."""
    backend = MemoryBackend()
    with pytest.raises(AssertionError) as caught:
        await check_backend(lambda: EncryptedBackend(backend, KEYS))
    _, *failures = str(caught.value).splitlines()
    line = ": A value has at most 1048544 bytes, this one 1048576"
    assert failures == [f"  values{line}", f"  long logs{line}"]


class Broken(MemoryBackend):
    """Accepts all claims, says that each deletion was the first, and tells nobody of changes."""

    async def claim(self, key: str, *, ttl: float) -> bool:
        await super().claim(key, ttl=ttl)
        return True

    async def delete(self, key: str) -> bool:
        await super().delete(key)
        return True

    def publish(self, event: Changed) -> None:
        pass


async def test_the_checks_notice_what_breaks_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemel.testing.backends.PATIENCE", 0.5)
    backend = Broken()
    with pytest.raises(AssertionError) as caught:
        await check_backend(lambda: backend)
    for failure in ("values: ", "claims: ", "deletion by one: ", "changes: "):
        assert f"\n  {failure}" in str(caught.value)


async def test_what_is_stored_shows_nothing_of_the_values() -> None:
    store = MemoryBackend()
    await EncryptedBackend(store, KEYS).set("a", b"secret-canary")
    stored = await store.get("a")
    assert stored is not None
    assert b"canary" not in stored
    assert len(stored) == len(b"secret-canary") + 32


async def test_keys_can_be_changed_while_values_live() -> None:
    store = MemoryBackend()
    old, new = b"o" * 32, b"n" * 32
    await EncryptedBackend(store, [old]).set("a", b"1")
    assert await EncryptedBackend(store, [new, old]).get("a") == b"1"
    with pytest.raises(BackendError, match="not encrypted with these keys"):
        await EncryptedBackend(store, [new]).get("a")


@pytest.mark.parametrize("change", [lambda box: box[:-1], lambda box: box[:3], lambda box: b"", lambda box: b"{}" * 40])
async def test_a_value_that_was_changed_or_moved_is_refused(change: Callable[[bytes], bytes]) -> None:
    store = MemoryBackend()
    backend = EncryptedBackend(store, KEYS)
    await backend.set("a", b"1")
    box = await store.get("a")
    assert box is not None
    for position in range(len(box)):
        await store.set("a", box[:position] + bytes([box[position] ^ 1]) + box[position + 1 :])
        with pytest.raises(BackendError):
            await backend.get("a")
    for key, value in (("b", box), ("a", change(box))):
        await store.set(key, value)
        with pytest.raises(BackendError):
            await backend.get(key)


@pytest.mark.parametrize("keys", [[], [b"short"], [b"k" * 32, b""]])
def test_a_key_that_is_too_short_is_refused(keys: list[bytes]) -> None:
    with pytest.raises(DefinitionError, match="at least 32 bytes"):
        EncryptedBackend(MemoryBackend(), keys)


@pytest.mark.parametrize("name", [name for name in vars(Backend) if not name.startswith("_")])
@pytest.mark.parametrize("lack", ["missing", "other parameters"])
def test_a_backend_that_lacks_anything_is_refused_when_the_server_is_made(name: str, lack: str) -> None:
    """Not in the first call that needs it."""

    class Whole:
        """Everything of a MemoryBackend."""

        def __init__(self) -> None:
            self._backend = MemoryBackend()

        def __getattr__(self, member: str) -> Any:
            return getattr(self._backend, member)

    class Lacking(Whole):
        def __getattr__(self, member: str) -> Any:
            if member != name:
                return super().__getattr__(member)
            if lack == "missing" or name == "shared":
                raise AttributeError(member)
            return lambda *, other: None

    whole: Any = Whole()
    lacking: Any = Lacking()
    Server("whole", backend=whole)
    with pytest.raises(DefinitionError, match=rf"backend=.*`(async )?(def )?{name}\b"):
        Server("lacking", backend=lacking)


async def test_changes_that_must_not_wait_are_refused_as_coroutines() -> None:
    class Waiting(MemoryBackend):
        async def publish(self, event: Changed) -> None:  # type: ignore[override]  # a wrong signature
            super().publish(event)

    with pytest.raises(DefinitionError, match=r"backend=Waiting lacks `def publish\(self, event\)`: write"):
        Server("waiting", backend=Waiting())
