"""Where state that outlives one process lives. `backend.py` is the contract; this file knows which backends there are."""

from __future__ import annotations

from hinge.backends.base import Backend
from hinge.backends.memory import MemoryBackend
from hinge.errors import DefinitionError


def backend_for(given: Backend | str | None) -> Backend:
    """The backend of a server: an object of the contract as it is, or one by its URL. Raises DefinitionError."""
    if given is None or given == "memory://":
        return MemoryBackend()
    if isinstance(given, str):
        raise DefinitionError(
            f"There is no backend for {given!r}: use memory://, or pass an object with publish and subscribe"
        )
    return given
