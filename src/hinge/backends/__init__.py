"""Backends: what the processes of a server share. `base.py` has the contract; this file finds a backend by its URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hinge.backends.base import Backend as Backend
from hinge.backends.base import Event as Event
from hinge.backends.base import Listener as Listener
from hinge.backends.lease import Lease as Lease
from hinge.backends.lease import hold_lease as hold_lease
from hinge.backends.memory import MemoryBackend as MemoryBackend
from hinge.errors import DefinitionError

if TYPE_CHECKING:
    from hinge.backends.encrypted import EncryptedBackend as EncryptedBackend
    from hinge.backends.sqlite import SqliteBackend as SqliteBackend

__all__ = (
    "Backend",
    "EncryptedBackend",
    "Event",
    "Lease",
    "Listener",
    "MemoryBackend",
    "SqliteBackend",
    "backend_for",
    "hold_lease",
)


def __getattr__(name: str) -> Any:
    match name:
        case "EncryptedBackend":
            from hinge.backends.encrypted import EncryptedBackend

            return EncryptedBackend
        case "SqliteBackend":
            from hinge.backends.sqlite import SqliteBackend

            return SqliteBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def backend_for(given: Backend | str | None) -> Backend:
    """Return the backend of a server.

    Args:
        given: An object with the methods of `Backend`, or a URL: `memory://` (the default), `sqlite:///state.db` for a file in
            the current directory, `sqlite:////var/lib/app/state.db` for an absolute path.

    Returns:
        The backend.

    Raises:
        DefinitionError: The URL is unknown.
    """
    if given is None or given == "memory://":
        return MemoryBackend()
    if not isinstance(given, str):
        return given
    if given.startswith("sqlite:///") and (path := given.removeprefix("sqlite:///")):
        if path == ":memory:":
            raise DefinitionError("A SQLite database in memory is not shared: use memory://")
        from hinge.backends.sqlite import SqliteBackend

        return SqliteBackend(path)
    raise DefinitionError(
        f"There is no backend for {given!r}: use memory://, sqlite:///FILE, or pass an object with the methods of Backend"
    )
