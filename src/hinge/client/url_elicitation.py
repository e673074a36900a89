"""Pages that a handshake server wants opened before it serves a request (-32042): which, and when to ask for it again.

Knows errors and clocks; must not know how a client asks, nor how a page is opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from hinge.errors import PeerError, shorten
from hinge.schema.elicitation import ElicitUrlParams

REQUIRED = -32042
FINISHED = "notifications/elicitation/complete"

#: Servers needn't say that a page is finished: the request is made again after so many seconds, then after twice as many …
FIRST_WAIT = 5.0

ResultT = TypeVar("ResultT")


class UrlElicitationRequired(PeerError):
    """The server serves this request only after the user has opened these pages; it did not run (ELIC-14).

    `elicitations` are the pages: `message`, `url`, `elicitation_id`.
    """

    def __init__(self, error: PeerError, elicitations: Sequence[ElicitUrlParams]) -> None:
        super().__init__(error.error)
        self.elicitations = tuple(elicitations)

    def __str__(self) -> str:
        where = ", ".join(shorten(page.url) for page in self.elicitations)
        return f"{self.message}: open {where}, then ask again ({self.code})"


def required_by(error: PeerError) -> UrlElicitationRequired | None:
    """The pages that an error wants opened; None for any other error, and for one that doesn't say which."""
    data = error.data if error.code == REQUIRED else None
    found = data.get("elicitations") if isinstance(data, dict) else None
    try:
        pages = msgspec.convert(found, list[ElicitUrlParams])
    except msgspec.ValidationError:
        return None
    return UrlElicitationRequired(error, pages) if pages else None


class _Wait:
    """Until some pages are finished."""

    def __init__(self, pages: Sequence[ElicitUrlParams]) -> None:
        self.left = {page.elicitation_id for page in pages}
        self.over = asyncio.Event()

    async def moments(self, patience: float) -> AsyncIterator[None]:
        """The moments at which to ask again: now and then, and when all are finished, which is the last."""
        pause, last = FIRST_WAIT, False
        while not last:
            try:
                async with asyncio.timeout(min(pause, patience)):
                    await self.over.wait()
            except TimeoutError:
                patience, pause = patience - pause, pause * 2
            last = patience <= 0 or self.over.is_set()
            yield


class RequiredPages:
    """What one client waits for. `patience` is in seconds, for the user; `rounds` is how often there may be more pages."""

    def __init__(self, patience: float, rounds: int) -> None:
        self._patience = patience
        self._rounds = rounds
        self._waits: set[_Wait] = set()

    def finished(self, identity: object) -> None:
        """The server says that a page is finished; names that nobody waits for mean nothing (ELIC-13)."""
        for wait in self._waits:
            if isinstance(identity, str) and identity in wait.left:
                wait.left.discard(identity)
                if not wait.left:
                    wait.over.set()

    @contextmanager
    def _waiting(self, pages: Sequence[ElicitUrlParams]) -> Iterator[_Wait]:
        wait = _Wait(pages)
        self._waits.add(wait)
        try:
            yield wait
        finally:
            self._waits.discard(wait)

    async def serve(
        self,
        required: UrlElicitationRequired,
        agreed: Callable[[Sequence[ElicitUrlParams]], Awaitable[bool]],
        again: Callable[[], Awaitable[ResultT]],
    ) -> ResultT:
        """Ask for consent, wait for the user, ask again: what comes of the request in the end.

        Raises what `again` raises, and UrlElicitationRequired when the user doesn't agree or isn't done in time. While
        pages are open, an error that names others is the same one in a server's new words: only when all are finished
        does it mean more pages.
        """
        for _ in range(self._rounds):
            with self._waiting(required.elicitations) as wait:
                if not await agreed(required.elicitations):
                    break
                async for _ in wait.moments(self._patience):
                    found = await _tried(again)
                    if not isinstance(found, UrlElicitationRequired):
                        return found
                    required = found
                if not wait.over.is_set():
                    break
        raise required


async def _tried(again: Callable[[], Awaitable[ResultT]]) -> ResultT | UrlElicitationRequired:
    try:
        return await again()
    except PeerError as exc:
        found = required_by(exc)
        if found is None:
            raise
        return found
