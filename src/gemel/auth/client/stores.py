"""Token stores: in memory, in encrypted files, in a backend."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import TypeVar

import msgspec

from gemel.auth.client.private_files import file_errors, make_directory, read_private, try_lock, write_private
from gemel.auth.client.tokens import Tokens, TokenStore, TokenStoreError
from gemel.backends.base import Backend
from gemel.backends.encrypted import EncryptedBackend
from gemel.backends.keys import make_key
from gemel.encryption import KEY_BYTES, KeyRing
from gemel.errors import BackendError, DefinitionError, LeaseLost, Overloaded
from gemel.user_files import TEMPORARY
from gemel.version import missing_extra

logger = logging.getLogger("gemel")

ResultT = TypeVar("ResultT")

#: Seconds between two attempts to get a lock that is held elsewhere, at first and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.1
#: The first line of a file with a login; the number is that of the format.
_HEADER = b"gemel login 1\n"
#: Seconds after which a file that was not finished belongs to a process that died.
_UNFINISHED = 600.0
_PURPOSE = b"gemel token store"
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Tokens)


class MemoryTokenStore(TokenStore):
    """Keeps logins in this process: they end with it."""

    def __init__(self) -> None:
        self._tokens: dict[str, Tokens] = {}
        self._locks: dict[str, threading.Lock] = {}

    async def get(self, key: str, /) -> Tokens | None:
        return self._tokens.get(key)

    async def set(self, key: str, tokens: Tokens, /) -> None:
        self._tokens[key] = tokens

    async def delete(self, key: str, /) -> None:
        self._tokens.pop(key, None)

    @asynccontextmanager
    async def lock(self, key: str, /) -> AsyncIterator[None]:
        lock = self._locks.setdefault(key, threading.Lock())
        await _poll(lambda: lock.acquire(blocking=False) or None)
        try:
            yield
        finally:
            lock.release()


class FileTokenStore(TokenStore):
    """Keeps each login in an encrypted file that only its user can read. The command line uses it.

    The files are encrypted, so that a backup or a synchronised folder shows no tokens; who can read the key, too, can read them.
    A file is replaced as a whole, and written to the disk before the old one goes.

    Args:
        directory: Where the files are. By default `gemel/logins` in the folder for the state of applications: `$XDG_STATE_HOME` or
            `~/.local/state`, `~/Library/Application Support` on macOS, `%LOCALAPPDATA%` on Windows. It is made if it is missing.
        keyring: Whether the key is in the keyring of the system (extra `keyring`) rather than in a file beside the logins. The
            logins themselves are too large for some keyrings.

    Raises:
        DefinitionError: The package keyring is not installed.

    Example:
        >>> OAuth(store=FileTokenStore())
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None, *, keyring: bool = False) -> None:
        self._directory = _default_directory() if directory is None else Path(directory).absolute()
        self._keyring = keyring
        self._ring: KeyRing | None = None
        if keyring:
            try:
                import keyring as _  # noqa: F401
            except ImportError:
                raise DefinitionError(missing_extra("The keyring of the system needs", "keyring")) from None

    async def get(self, key: str, /) -> Tokens | None:
        return await asyncio.to_thread(self._get, key)

    async def set(self, key: str, tokens: Tokens, /) -> None:
        await asyncio.to_thread(self._set, key, tokens)

    async def delete(self, key: str, /) -> None:

        def remove() -> None:
            path = self._path(key)
            with file_errors(path), suppress(FileNotFoundError):
                path.unlink()

        await asyncio.to_thread(remove)

    @asynccontextmanager
    async def lock(self, key: str, /) -> AsyncIterator[None]:
        make_directory(self._directory)
        descriptor = await _poll(lambda: try_lock(self._path(key, "lock")))
        try:
            yield
        finally:
            os.close(descriptor)

    # ---------------------------------------------------------------- files

    def _path(self, key: str, kind: str = "login") -> Path:
        """The file of a key: its name is a digest, because keys have URLs in them."""
        return self._directory / f"{sha256(key.encode()).hexdigest()[:40]}.{kind}"

    def _get(self, key: str) -> Tokens | None:
        path = self._path(key)
        data = read_private(path)
        if data is None:
            return None
        if not data.startswith(_HEADER):
            raise TokenStoreError(f"{path} is not a login of this version of Gemel: delete it and log in again")
        try:
            return _decoder.decode(self._key_ring().decrypt(data[len(_HEADER) :], key.encode()))
        except (ValueError, msgspec.MsgspecError):
            text = "it was damaged, or its key was replaced; delete it and log in again"
            raise TokenStoreError(f"{path} can't be decrypted: {text}") from None

    def _set(self, key: str, tokens: Tokens) -> None:
        make_directory(self._directory)
        path = self._path(key)
        self._remove_unfinished()
        write_private(path, _HEADER + self._key_ring().encrypt(_encoder.encode(tokens), key.encode()))

    def _remove_unfinished(self) -> None:
        """Remove what processes left that were killed while they wrote."""
        for path in self._directory.glob(f"{TEMPORARY}*"):
            with suppress(OSError):
                if path.stat().st_mtime < time.time() - _UNFINISHED:
                    path.unlink()

    # ---------------------------------------------------------------- the key

    def _key_ring(self) -> KeyRing:
        if self._ring is None:
            make_directory(self._directory)
            lock = self._directory / "key.lock"
            while (descriptor := try_lock(lock)) is None:
                time.sleep(FIRST_PAUSE)
            try:
                key = self._key_of_system() if self._keyring else self._key_of_file()
            finally:
                os.close(descriptor)
            self._ring = KeyRing([key], _PURPOSE, name="stored logins")
        return self._ring

    def _key_of_file(self) -> bytes:
        path = self._directory / "key"
        key = read_private(path)
        if key is None:
            key = token_bytes(KEY_BYTES)
            write_private(path, key)
        if len(key) != KEY_BYTES:
            raise TokenStoreError(
                f"{path} is not a key of {KEY_BYTES} bytes: delete {self._directory} and log in again"
            )
        return key

    def _key_of_system(self) -> bytes:
        import keyring

        name = str(self._directory)
        try:
            text = keyring.get_password("gemel", name)
            if text is None:
                text = token_hex(KEY_BYTES)
                keyring.set_password("gemel", name, text)
            key = bytes.fromhex(text)
        except ValueError:
            key = b""
        except Exception as exc:  # backends of the package raise errors of their own
            raise TokenStoreError(f"The keyring of the system can't be used: {exc}") from None
        if len(key) != KEY_BYTES:
            raise TokenStoreError(
                f"The entry gemel, {name} in the keyring of the system is not a key: delete it and log in again"
            )
        return key


class BackendTokenStore(TokenStore):
    """Keeps logins in a backend, encrypted, for servers and other programs that run as several processes.

    Args:
        backend: The backend, which all processes share.
        keys: Secrets of at least 32 bytes, the same in all processes: the first encrypts, all decrypt.
        user: Whose logins these are, if the program acts for several people: each has a store of its own.
        ttl: Seconds after which a login ends that was neither made nor refreshed; None keeps it.
        lease: Seconds after which the lock of a process that died is free.

    Raises:
        DefinitionError: A key is too short, or there is none.

    Example:
        >>> store = BackendTokenStore(SqliteBackend("state.db"), keys=[key], user="ada")
    """

    def __init__(
        self,
        backend: Backend,
        *,
        keys: Sequence[bytes],
        user: str = "",
        ttl: float | None = None,
        lease: float = 15.0,
    ) -> None:
        self._backend = EncryptedBackend(backend, keys)
        self._user = user
        self._ttl = ttl
        self._lease = lease

    def _name(self, key: str) -> str:
        """The key in the backend: a digest of bounded length, unique for user and key."""
        return make_key("login", sha256(_encoder.encode([self._user, key])).hexdigest())

    async def get(self, key: str, /) -> Tokens | None:
        with _backend_errors():
            data = await self._backend.get(self._name(key))
            return None if data is None else _decoder.decode(data)

    async def set(self, key: str, tokens: Tokens, /) -> None:
        with _backend_errors():
            await self._backend.set(self._name(key), _encoder.encode(tokens), ttl=self._ttl)

    async def delete(self, key: str, /) -> None:
        with _backend_errors():
            await self._backend.delete(self._name(key))

    @asynccontextmanager
    async def lock(self, key: str, /) -> AsyncIterator[None]:
        with _backend_errors():
            try:
                async with self._backend.lease(self._name(key), ttl=self._lease):
                    yield
            except LeaseLost:
                # What was stored counts all the same: without the answer to a refresh the login would be lost.
                logger.warning("The lock of a stored login ended early: this process was stopped for too long")


@contextmanager
def _backend_errors() -> Iterator[None]:
    try:
        yield
    except (BackendError, Overloaded, ValueError) as exc:
        raise TokenStoreError(f"Stored logins can't be used: {exc}") from None


async def _poll(attempt: Callable[[], ResultT | None]) -> ResultT:
    """Repeat an attempt, after pauses that grow, until it gives something."""
    pause = FIRST_PAUSE
    while (result := attempt()) is None:
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    return result


def _default_directory() -> Path:
    """Where logins are kept unless somebody says otherwise: the folder for the state of applications."""
    match sys.platform:
        case "win32":
            base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
        case "darwin":
            base = "~/Library/Application Support"
        case _:
            base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser().absolute() / "gemel" / "logins"
