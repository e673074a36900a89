"""What the HTTP transport needs of a server's subscriptions, for sessions that several processes serve."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from gemel.protocol.changes import Changed
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.records import Call, Origin
from gemel.server.context import Context
from gemel.server.features.subscriptions import Subscriptions
from gemel.session import Session
from gemel.values.encoding import encode_value


class SharedSubscriptions:
    """The subscriptions of one server for the sessions that other processes serve, too; see `SessionChanges`.

    Args:
        subscriptions: The subscriptions.
        context: Makes the context of a call.
    """

    def __init__(self, subscriptions: Subscriptions, context: Callable[[Session, Call], Context[Any]]) -> None:
        self._subscriptions = subscriptions
        self._context = context

    def connect(self) -> None:
        """Be told of changes from now on."""
        self._subscriptions.connect()

    @property
    def position(self) -> int:
        """The position of the newest change that this process was told of."""
        return self._subscriptions.position

    def join(self, session: Session) -> None:
        """Tell a session of changes from now on.

        Args:
            session: The session.
        """
        self._subscriptions.join(session)

    def leave(self, session: Session) -> None:
        """Tell a session nothing more until it joins again.

        Args:
            session: The session.
        """
        self._subscriptions.leave(session)

    def told(self, session: Session, *, sending: bool) -> int:
        """Return the position up to which a session was told.

        Args:
            session: The session, which has joined.
            sending: Whether the change in hand counts as told.
        """
        return self._subscriptions.told(session, sending=sending)

    def changes_after(self, position: int) -> list[Changed] | None:
        """Return the changes after a position, each thing once.

        Args:
            position: The position.

        Returns:
            The changes; None if some of them are no longer kept.
        """
        return self._subscriptions.changes_after(position)

    def tell_again(self, session: Session, changes: Iterable[Changed] | None) -> None:
        """Tell a session what it missed elsewhere.

        Args:
            session: The session.
            changes: What has changed; None stands for everything that it subscribed to.
        """
        self._subscriptions.tell_again(session, changes)

    def watched(self, session: Session) -> list[str]:
        """Return the resources that a session subscribed to.

        Args:
            session: The session.
        """
        return self._subscriptions.watched(session)

    def unwatch(self, session: Session, uri: str) -> None:
        """End the subscription of a session to a resource.

        Args:
            session: The session.
            uri: The resource.
        """
        self._subscriptions.unwatch(session, uri)

    async def watch_again(self, session: Session, origin: Origin, uri: str) -> None:
        """Subscribe a session to a resource as it is in another process, unless its caller may not any more.

        Args:
            session: The session.
            origin: Who reads its stream here.
            uri: The resource.
        """
        params = msgspec.Raw(encode_value({"uri": uri}))
        revision = session.connection.handshake.revision
        call = Call(None, "resources/subscribe", params, None, HANDSHAKE, revision, origin)
        await self._subscriptions.watch_again(self._context(session, call), uri)
