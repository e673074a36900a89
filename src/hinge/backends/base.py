"""The contract of a backend, which carries change notifications to all processes of a server.

A notification says that something changed, not how: after the last change, every listener gets at least one for it. Repeated ones
may be merged. The order is kept for notifications of the same thing only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from hinge.protocol.changes import Changed, ChangesLost

Event: TypeAlias = Changed | ChangesLost
#: Called with each event.
Listener: TypeAlias = Callable[[Event], None]


class Backend(Protocol):
    """Publishes change notifications."""

    def publish(self, event: Changed) -> None:
        """Notify all listeners in all processes. This must not block or raise.

        A backend without connection notifies the local listeners, and sends ChangesLost to all when it is connected again.

        Args:
            event: What changed.
        """

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener.

        Args:
            listener: Called with each event, on the thread that calls `publish` or on that of the event loop.

        Returns:
            A function that removes the listener.
        """
        ...
