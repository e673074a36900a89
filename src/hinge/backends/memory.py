"""The backend of a server that runs in one process: listeners are called at once."""

from __future__ import annotations

import logging
from collections.abc import Callable

from hinge.backends.base import Listener
from hinge.protocol.changes import Changed

logger = logging.getLogger("hinge")


class MemoryBackend:
    """Hints within this process."""

    def __init__(self) -> None:
        self._listeners: dict[object, Listener] = {}

    def publish(self, event: Changed) -> None:
        """Call every listener; one that fails is logged and hurts nobody else."""
        for listener in list(self._listeners.values()):
            try:
                listener(event)
            except Exception:
                logger.exception("a listener for changes failed")

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; the returned function removes it, twice is fine."""
        key = object()
        self._listeners[key] = listener

        def stop() -> None:
            self._listeners.pop(key, None)

        return stop
