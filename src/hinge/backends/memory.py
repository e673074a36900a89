"""The backend for one process: listeners are called immediately."""

from __future__ import annotations

import logging
from collections.abc import Callable

from hinge.backends.base import Listener
from hinge.protocol.changes import Changed

logger = logging.getLogger("hinge")


class MemoryBackend:
    """Publishes changes within this process."""

    def __init__(self) -> None:
        self._listeners: dict[object, Listener] = {}

    def publish(self, event: Changed) -> None:
        """Call all listeners; an error of one is logged.

        Args:
            event: What changed.
        """
        for listener in list(self._listeners.values()):
            try:
                listener(event)
            except Exception:
                logger.exception("a listener for changes failed")

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener.

        Args:
            listener: Called with each event, on the thread that calls `publish`.

        Returns:
            A function that removes the listener; calling it twice is harmless.
        """
        key = object()
        self._listeners[key] = listener

        def stop() -> None:
            self._listeners.pop(key, None)

        return stop
