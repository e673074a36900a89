"""Backends, which carry notifications between processes. `base.py` has the contract; this file finds a backend by its URL."""

from __future__ import annotations

from hinge.backends.base import Backend
from hinge.backends.memory import MemoryBackend
from hinge.errors import DefinitionError


def backend_for(given: Backend | str | None) -> Backend:
    """Return the backend of a server.

    Args:
        given: An object with the methods of `Backend`, or a URL; `memory://` by default.

    Returns:
        The backend.

    Raises:
        DefinitionError: The URL is unknown.
    """
    if given is None or given == "memory://":
        return MemoryBackend()
    if isinstance(given, str):
        raise DefinitionError(
            f"There is no backend for {given!r}: use memory://, or pass an object with publish and subscribe"
        )
    return given
