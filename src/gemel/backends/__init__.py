"""Backends: what the processes of a server share. `base.py` has the contract; this file finds a backend by its URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel.backends.base import Backend as Backend
from gemel.backends.base import Event as Event
from gemel.backends.base import Listener as Listener
from gemel.backends.base import missing_members
from gemel.backends.lease import Lease as Lease
from gemel.backends.lease import hold_lease as hold_lease
from gemel.backends.memory import MemoryBackend as MemoryBackend
from gemel.backends.server_backend import ServerBackend as ServerBackend
from gemel.errors import DefinitionError, StartError
from gemel.version import missing_extra

if TYPE_CHECKING:
    from gemel.backends.encrypted import EncryptedBackend as EncryptedBackend
    from gemel.backends.redis import RedisBackend as RedisBackend
    from gemel.backends.sqlite import SqliteBackend as SqliteBackend

__all__ = (
    "Backend",
    "EncryptedBackend",
    "Event",
    "Lease",
    "Listener",
    "MemoryBackend",
    "RedisBackend",
    "ServerBackend",
    "SqliteBackend",
    "backend_for",
    "hold_lease",
)


def __getattr__(name: str) -> Any:
    match name:
        case "EncryptedBackend":
            from gemel.backends.encrypted import EncryptedBackend

            return EncryptedBackend
        case "RedisBackend":
            try:
                from gemel.backends.redis import RedisBackend
            except ImportError as exc:
                if exc.name is None or exc.name.partition(".")[0] != "redis":
                    raise
                raise StartError(missing_extra("Redis needs", "redis")) from None
            return RedisBackend
        case "SqliteBackend":
            from gemel.backends.sqlite import SqliteBackend

            return SqliteBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def backend_for(given: Backend | str | None) -> Backend:
    """Return the backend of a server.

    Args:
        given: An object with the methods of `Backend`, or a URL: `memory://` (the default), `sqlite:///state.db` for a file in
            the current directory, `sqlite:////var/lib/app/state.db` for an absolute path, `redis://host:6379/0` and the other URLs
            of `RedisBackend`.

    Returns:
        The backend.

    Raises:
        DefinitionError: The URL is unknown, or the object lacks something of `Backend`.
        StartError: The extra `gemel[redis]` is not installed, which Redis needs.
    """
    if given is None or given == "memory://":
        return MemoryBackend()
    if not isinstance(given, str):
        if missing := missing_members(given):
            raise DefinitionError(
                f"backend={type(given).__name__} lacks {', '.join(missing)}: write what gemel.backends.Backend describes, or "
                "derive it from MemoryBackend"
            )
        return given
    if given.startswith("sqlite:///") and (path := given.removeprefix("sqlite:///")):
        if path == ":memory:":
            raise DefinitionError("A SQLite database in memory is not shared: use memory://")
        from gemel.backends.sqlite import SqliteBackend

        return SqliteBackend(path)
    scheme = given.partition("://")[0].lower()
    if scheme.split("+")[0] in ("redis", "rediss", "valkey", "valkeys", "unix"):
        RedisBackend = __getattr__("RedisBackend")
        backend: Backend = RedisBackend(given)
        return backend
    shown = f"{scheme}://…" if "@" in given else given  # it may have a password
    raise DefinitionError(
        f"There is no backend for {shown!r}: use memory://, sqlite:///FILE, redis://HOST, "
        "or pass an object with the methods of Backend"
    )
