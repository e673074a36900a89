"""Backends: what the processes of a server share. `base.py` has the contract; this file finds a backend by its URL."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

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


class _OnDemand(NamedTuple):
    """A backend that is imported when it is used.

    Args:
        module: Its module.
        schemes: The schemes of its URLs, of which `from_url` of the module makes one; what follows a `+` does not count.
        example: A URL, for messages.
        extra: The extra that it needs, which has the name of its package.
    """

    module: str
    schemes: tuple[str, ...] = ()
    example: str = ""
    extra: str | None = None

    def load(self) -> Any:
        """Import the module. Raises StartError if its extra is not installed."""
        try:
            return import_module(self.module)
        except ImportError as exc:
            if self.extra is None or exc.name is None or exc.name.partition(".")[0] != self.extra:
                raise
            raise StartError(missing_extra(f"{self.extra.title()} needs", self.extra)) from None


#: By the name of the class.
_ON_DEMAND: Mapping[str, _OnDemand] = {
    "EncryptedBackend": _OnDemand("gemel.backends.encrypted"),
    "SqliteBackend": _OnDemand("gemel.backends.sqlite", ("sqlite",), "sqlite:///FILE"),
    "RedisBackend": _OnDemand(
        "gemel.backends.redis", ("redis", "rediss", "valkey", "valkeys", "unix"), "redis://HOST", "redis"
    ),
}


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND:
        return getattr(_ON_DEMAND[name].load(), name)
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
    scheme = given.partition("://")[0].lower()
    for kind in _ON_DEMAND.values():
        if scheme.split("+")[0] in kind.schemes:
            backend: Backend = kind.load().from_url(given)
            return backend
    shown = f"{scheme}://…" if "@" in given else given  # it may have a password
    examples = ", ".join(kind.example for kind in _ON_DEMAND.values() if kind.schemes)
    raise DefinitionError(
        f"There is no backend for {shown!r}: use memory://, {examples}, or pass an object with the methods of Backend"
    )
