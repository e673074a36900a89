"""The contract of a backend: carrying hints that something changed to every process that has listeners.

A hint says "look again", not what changed: after the last change every listener hears at least one hint for it.
Repeats may be merged, and only hints for the same thing keep their order. Knows no servers and no channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from hinge.protocol.changes import Changed, ChangesLost

Event: TypeAlias = Changed | ChangesLost
Listener: TypeAlias = Callable[[Event], None]


class Backend(Protocol):
    """What a server needs of a backend."""

    def publish(self, event: Changed) -> None:
        """Tell all listeners, in every process. Never waits and never raises: a backend that is down tells the local
        ones, and sends a ChangesLost to all when it is back."""

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` for each event, on the thread that `publish` was called on or on the loop's; gives back the
        way to stop."""
        ...
