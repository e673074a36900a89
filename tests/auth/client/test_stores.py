"""Token stores: what they keep, who can read it, and what damaged or foreign files are."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from gemel import DefinitionError, NotSent
from gemel.auth import BackendTokenStore, FileTokenStore, MemoryTokenStore, Tokens, TokenStore, TokenStoreError
from gemel.auth.client.tokens import InvalidGrant, TokenSource, token_key
from gemel.backends import MemoryBackend, SqliteBackend
from gemel.encryption import KeyRing

KEY = token_key("https://login.example.com", "https://notes.example.com/mcp", "cli")
OTHER = token_key("https://other.example.com", "https://notes.example.com/mcp", "cli")
SECRET = "secret-canary"
TOKENS = Tokens(
    access_token=f"{SECRET}-1",
    refresh_token=f"{SECRET}-2",
    expires_at=1_800_000_000.5,
    issued_at=1_799_996_400.5,
    scopes=("a", "b"),
    issuer="https://login.example.com",
    token_endpoint="https://login.example.com/token",
    client={"client_id": "x", "client_secret": f"{SECRET}-3", "redirect_uris": ["http://127.0.0.1/callback"]},
)
KEYS = [b"k" * 32]

pytestmark = pytest.mark.skipif(os.name == "nt", reason="modes of files")


def stores(directory: Path) -> dict[str, TokenStore]:
    """One of each kind."""
    return {
        "memory": MemoryTokenStore(),
        "file": FileTokenStore(directory / "logins"),
        "backend": BackendTokenStore(MemoryBackend(), keys=KEYS),
    }


def login_file(directory: Path) -> Path:
    (path,) = directory.glob("*.login")
    return path


@pytest.mark.parametrize("kind", ["memory", "file", "backend"])
async def test_what_is_stored_comes_back_until_it_is_deleted(kind: str, tmp_path: Path) -> None:
    store = stores(tmp_path)[kind]
    assert await store.get(KEY) is None
    await store.delete(KEY)
    await store.set(KEY, TOKENS)
    await store.set(OTHER, Tokens(access_token="other"))
    assert await store.get(KEY) == TOKENS
    await store.set(KEY, Tokens(access_token="newer"))
    assert await store.get(KEY) == Tokens(access_token="newer")
    await store.delete(KEY)
    assert await store.get(KEY) is None
    assert await store.get(OTHER) == Tokens(access_token="other")


@pytest.mark.parametrize("kind", ["memory", "file", "backend"])
async def test_a_lock_has_one_holder_for_each_key(kind: str, tmp_path: Path) -> None:
    store = stores(tmp_path)[kind]
    holders = most = 0

    async def hold() -> None:
        nonlocal holders, most
        async with store.lock(KEY):
            holders += 1
            most = max(most, holders)
            await asyncio.sleep(0.001)
            holders -= 1

    async with store.lock(OTHER):
        await asyncio.gather(*(hold() for _ in range(5)))
    assert most == 1
    with pytest.raises(KeyError):
        async with store.lock(KEY):
            raise KeyError
    async with asyncio.timeout(20), store.lock(KEY):
        pass


async def test_files_show_no_token_and_only_their_user_can_read_them(tmp_path: Path) -> None:
    """AUTHC-29: tokens are stored securely, and neither logged nor shown."""
    os.umask(previous := os.umask(0))
    os.umask(0)
    try:
        directory = tmp_path / "deep" / "logins"
        store = FileTokenStore(directory)
        await store.set(KEY, TOKENS)
        async with store.lock(KEY):
            pass
    finally:
        os.umask(previous)
    assert directory.stat().st_mode & 0o777 == 0o700
    for path in directory.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600, path
        assert SECRET.encode() not in path.read_bytes()
        assert "example" not in path.name
    assert SECRET not in f"{TOKENS!r} {TOKENS} {store!r}"


async def test_processes_share_the_key(tmp_path: Path) -> None:
    first, second = (FileTokenStore(tmp_path / "logins") for _ in range(2))
    await asyncio.gather(first.set(KEY, TOKENS), second.set(OTHER, TOKENS))
    assert await second.get(KEY) == TOKENS
    assert await first.get(OTHER) == TOKENS
    assert await FileTokenStore(tmp_path / "logins").get(KEY) == TOKENS


@pytest.mark.parametrize("text", [b"", b"{}", b"gemel login 2\nnewer", b"\0" * 100])
async def test_a_foreign_file_is_one_clear_line(tmp_path: Path, text: bytes) -> None:
    store = FileTokenStore(tmp_path)
    await store.set(KEY, TOKENS)
    path = login_file(tmp_path)
    path.write_bytes(text)
    with pytest.raises(TokenStoreError) as caught:
        await store.get(KEY)
    assert str(caught.value) == f"{path} is not a login of this version of Gemel: delete it and log in again"


def cut(data: bytes) -> bytes:
    return data[:-1]


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def header_only(data: bytes) -> bytes:
    return data[:14]


def not_json(data: bytes) -> bytes:
    return data[:14] + KeyRing([b"x" * 32], b"", name="x").encrypt(b"{}")


@pytest.mark.parametrize("change", [cut, flipped, header_only, not_json])
async def test_a_damaged_file_is_one_clear_line(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    store = FileTokenStore(tmp_path)
    await store.set(KEY, TOKENS)
    path = login_file(tmp_path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(TokenStoreError) as caught:
        await store.get(KEY)
    text = "it was damaged, or its key was replaced; delete it and log in again"
    assert str(caught.value) == f"{path} can't be decrypted: {text}"
    await store.delete(KEY)
    assert await store.get(KEY) is None


async def test_the_file_of_another_login_is_refused(tmp_path: Path) -> None:
    """Who can write to a synchronised folder can't give a server the tokens of another one."""
    store = FileTokenStore(tmp_path)
    await store.set(KEY, TOKENS)
    path = login_file(tmp_path)
    data = path.read_bytes()
    path.unlink()
    await store.set(OTHER, Tokens(access_token="other"))
    login_file(tmp_path).write_bytes(data)
    with pytest.raises(TokenStoreError, match="can't be decrypted"):
        await store.get(OTHER)


@pytest.mark.parametrize("name", ["*.login", "key"])
async def test_a_file_that_others_can_read_is_refused(tmp_path: Path, name: str) -> None:
    await FileTokenStore(tmp_path).set(KEY, TOKENS)
    (path,) = tmp_path.glob(name)  # noqa: ASYNC240  # a small file
    path.chmod(0o644)
    with pytest.raises(TokenStoreError) as caught:
        await FileTokenStore(tmp_path).get(KEY)
    assert str(caught.value) == f"{path}: other users can read or write it; delete it and log in again"


async def test_a_directory_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)  # noqa: ASYNC240  # a small file
    with pytest.raises(TokenStoreError, match="other users can write to it; run chmod 700 on it"):
        await FileTokenStore(tmp_path).set(KEY, TOKENS)


async def test_a_link_in_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    store = FileTokenStore(tmp_path / "logins")
    await store.set(KEY, TOKENS)
    path = login_file(tmp_path / "logins")
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    with pytest.raises(TokenStoreError, match="can't be used: "):
        await store.get(KEY)
    before = elsewhere.read_bytes()
    await store.set(KEY, Tokens(access_token="newer"))
    assert elsewhere.read_bytes() == before
    assert not path.is_symlink()


@pytest.mark.parametrize("kind", ["directory", "pipe", "large"])
async def test_what_is_no_plain_file_is_refused_without_reading_it(tmp_path: Path, kind: str) -> None:
    store = FileTokenStore(tmp_path)
    await store.set(KEY, TOKENS)
    path = login_file(tmp_path)
    path.unlink()
    match kind:
        case "directory":
            path.mkdir(0o700)
        case "pipe":
            os.mkfifo(path, 0o600)
        case _:
            path.touch(0o600)
            os.truncate(path, 1 << 30)
    with pytest.raises(TokenStoreError) as caught:
        await store.get(KEY)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


async def test_a_key_of_the_wrong_length_is_one_clear_line(tmp_path: Path) -> None:
    await FileTokenStore(tmp_path).set(KEY, TOKENS)
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(TokenStoreError, match=r"key is not a key of 32 bytes: delete .* and log in again"):
        await FileTokenStore(tmp_path).get(KEY)


async def test_a_directory_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = FileTokenStore(tmp_path / "file" / "logins")
    with pytest.raises(TokenStoreError, match="can't be used: Not a directory"):
        await store.set(KEY, TOKENS)
    with pytest.raises(TokenStoreError, match="can't be used: Not a directory"):
        async with store.lock(KEY):
            pass


async def test_a_write_that_fails_leaves_the_old_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileTokenStore(tmp_path)
    await store.set(KEY, TOKENS)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TokenStoreError, match="can't be used: No space left on device"):
        await store.set(KEY, Tokens(access_token="newer"))
    assert await store.get(KEY) == TOKENS
    assert not list(tmp_path.glob("*.new"))  # noqa: ASYNC240  # a small file


async def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    store = FileTokenStore(tmp_path)
    await store.set(KEY, TOKENS)
    old, new = tmp_path / ".gemel-1", tmp_path / ".gemel-2"
    old.touch()
    new.touch()
    os.utime(old, (1, 1))
    await store.set(KEY, TOKENS)
    assert not old.exists()
    assert new.exists(), "its process may be writing it"


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", "XDG_STATE_HOME", "{}/gemel/logins"),
        ("linux", "HOME", "{}/.local/state/gemel/logins"),
        ("darwin", "HOME", "{}/Library/Application Support/gemel/logins"),
        ("win32", "LOCALAPPDATA", "{}/gemel/logins"),
    ],
)
async def test_the_default_directory(
    platform: str, variable: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_STATE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv(variable, str(tmp_path))
    store = FileTokenStore()
    monkeypatch.undo()
    assert str(store._directory) == expected.format(tmp_path)
    assert not list(tmp_path.iterdir()), "nothing is made before it is used"  # noqa: ASYNC240  # a small file


# ---------------------------------------------------------------- the keyring of the system


class Keyring(types.ModuleType):
    """The package keyring, with entries in memory."""

    def __init__(self) -> None:
        super().__init__("keyring")
        self.entries: dict[tuple[str, str], str] = {}
        self.failure: Exception | None = None

    def get_password(self, service: str, name: str) -> str | None:
        if self.failure is not None:
            raise self.failure
        return self.entries.get((service, name))

    def set_password(self, service: str, name: str, text: str) -> None:
        self.entries[service, name] = text


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch) -> Keyring:
    keyring = Keyring()
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    return keyring


async def test_the_key_can_be_in_the_keyring_of_the_system(tmp_path: Path, keyring: Keyring) -> None:
    await FileTokenStore(tmp_path, keyring=True).set(KEY, TOKENS)
    assert not (tmp_path / "key").exists()
    assert list(keyring.entries) == [("gemel", str(tmp_path))]
    assert await FileTokenStore(tmp_path, keyring=True).get(KEY) == TOKENS
    keyring.entries.clear()
    with pytest.raises(TokenStoreError, match="its key was replaced"):
        await FileTokenStore(tmp_path, keyring=True).get(KEY)


async def test_a_keyring_that_fails_is_one_clear_line(tmp_path: Path, keyring: Keyring) -> None:
    keyring.failure = RuntimeError("it is locked")
    with pytest.raises(TokenStoreError, match=r"^The keyring of the system can't be used: it is locked$"):
        await FileTokenStore(tmp_path, keyring=True).set(KEY, TOKENS)
    keyring.failure = None
    keyring.entries["gemel", str(tmp_path)] = "not a key"
    with pytest.raises(TokenStoreError, match="is not a key: delete it and log in again"):
        await FileTokenStore(tmp_path, keyring=True).set(KEY, TOKENS)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(DefinitionError, match=r"pip install 'gemel\[keyring\]'"):
        FileTokenStore(tmp_path, keyring=True)


# ---------------------------------------------------------------- backends


async def test_each_user_has_a_store_of_their_own() -> None:
    backend = MemoryBackend()
    ada, bob = (BackendTokenStore(backend, keys=KEYS, user=user) for user in ("ada", "bob"))
    await ada.set(KEY, TOKENS)
    assert await bob.get(KEY) is None
    async with ada.lock(KEY), bob.lock(KEY):
        pass


async def test_a_backend_shows_no_token(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "state.db")
    store = BackendTokenStore(backend, keys=KEYS)
    await store.set(KEY, TOKENS)
    await backend.close()
    assert SECRET.encode() not in (tmp_path / "state.db").read_bytes()
    with pytest.raises(TokenStoreError, match=r"^Stored logins can't be used: .* was closed$"):
        await store.get(KEY)


async def test_logins_of_other_keys_are_one_clear_line() -> None:
    backend = MemoryBackend()
    await BackendTokenStore(backend, keys=KEYS).set(KEY, TOKENS)
    with pytest.raises(TokenStoreError, match="not encrypted with these keys"):
        await BackendTokenStore(backend, keys=[b"x" * 32]).get(KEY)
    assert await BackendTokenStore(backend, keys=[b"x" * 32, *KEYS]).get(KEY) == TOKENS


async def test_a_full_backend_is_one_clear_line() -> None:
    store = BackendTokenStore(MemoryBackend(max_bytes=100), keys=KEYS)
    with pytest.raises(TokenStoreError, match="Stored logins can't be used: The store is full: the backend in memory"):
        await store.set(KEY, TOKENS)


async def test_the_answer_to_a_refresh_is_stored_although_the_lock_was_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The old refresh token is used up: without the new one the login would be lost."""
    store = BackendTokenStore(MemoryBackend(), keys=KEYS, lease=0.05)

    async def refresh(old: Tokens) -> Tokens:
        time_of_a_busy_process()
        return Tokens(access_token="new", refresh_token="next")

    await store.set(KEY, Tokens(access_token="old", refresh_token="x", expires_at=1.0))
    got = await TokenSource(store, KEY, refresh).get()
    assert got is not None
    assert (got.access_token, await store.get(KEY)) == ("new", got)
    assert "lock of a stored login ended early" in caplog.text


def time_of_a_busy_process() -> None:
    import time

    time.sleep(0.1)


@pytest.mark.parametrize("failure", [InvalidGrant("revoked"), NotSent("away")])
async def test_an_error_within_a_lock_frees_it(tmp_path: Path, failure: Exception) -> None:
    for store in stores(tmp_path).values():
        await store.set(KEY, Tokens(access_token="old", refresh_token="x", expires_at=1.0))

        async def refresh(old: Tokens) -> Tokens:
            raise failure

        source = TokenSource(store, KEY, refresh)
        if isinstance(failure, NotSent):
            with pytest.raises(NotSent):
                await source.get()
        else:
            assert await source.get() is None
        async with asyncio.timeout(20), store.lock(KEY):
            pass


async def test_nothing_secret_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for store in stores(tmp_path).values():
        await store.set(KEY, TOKENS)
        await store.get(KEY)
        async with store.lock(KEY):
            pass
        assert SECRET not in repr(store)
    assert SECRET not in caplog.text
