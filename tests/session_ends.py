"""What the tests of sessions share: a channel in the test's hands, sessions at either end, handlers that wait."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from gemel import Limits
from gemel.protocol.connection import Connection
from gemel.session import Session
from tests.fuzz.ends import description_of, shake_hands
from tests.support import Call, Channel, ChannelKind, Outgoing, jsonrpc

LIMITS = Limits(pending=3)


class Line:
    """A channel in the test's hands: what is sent lies here; sending can fail or take its time."""

    def __init__(self, kind: ChannelKind = "memory") -> None:
        self.kind: ChannelKind = kind
        self.sent: list[Any] = []
        self.failure: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()

    async def send(self, message: Outgoing, /) -> None:
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        self.sent.append(json.loads(message.data))

    async def close(self) -> None:
        """Nothing to end."""

    def close_stream(self, call: Call, retry_ms: int, /) -> bool:
        return False

    def set_revision(self, revision: str, /) -> None:
        pass

    def notices(self) -> list[Any]:
        """The cancellations that were sent."""
        return [sent["params"] for sent in self.sent if sent.get("method") == "notifications/cancelled"]


Work = Callable[[Session, Call], Awaitable[Any]]


async def nothing(session: Session, call: Call) -> Any:
    return {}


def serving(work: Work, line: Line | None = None, *, shaken: bool = True) -> Session:
    """A server's end whose handler is `work`."""
    session = Session(Connection(description_of(), limits=LIMITS), line or Line(), work)
    if shaken:
        shake_hands(session.connection)
    return session


def asking(channel: Channel) -> Session:
    """A client's end after its handshake."""
    session = Session(Connection(None, limits=LIMITS), channel, nothing)
    session.connection.handshake.assume(None)
    return session


def call_of(session: Session, request_id: Any = 1, method: str = "acme/do") -> Call:
    got = session.receive(jsonrpc.encode_request(request_id, method))
    assert isinstance(got, Call)
    return got


def notice_of(session: Session, method: str = "notifications/acme") -> Call:
    got = session.receive(jsonrpc.encode_notification(method))
    assert isinstance(got, Call)
    return got


def is_quiet(session: Session) -> bool:
    """Nothing is owed in either direction."""
    session.connection.check()
    return not session.connection.incoming and not session.connection.outgoing


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Waiting:
    """A handler that waits, and can be stubborn about it."""

    def __init__(self, *, stubborn: bool = False) -> None:
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.cancelled = 0
        self._stubborn = stubborn

    async def __call__(self, session: Session, call: Call) -> Any:
        self.begun.set()
        while not self.gate.is_set():
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                if not self._stubborn:
                    raise
        return {"done": True}
