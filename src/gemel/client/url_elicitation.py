"""URLElicitationRequiredError (-32042): pages that the user must open before the server serves a request, and the retries.

See https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#url-elicitation-required-error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from gemel.errors import PeerError, shorten
from gemel.schema.elicitation import ElicitUrlParams

REQUIRED = -32042
FINISHED = "notifications/elicitation/complete"

#: Seconds until the request is repeated, doubled each time: servers need not announce that a page is finished.
FIRST_WAIT = 5.0

ResultT = TypeVar("ResultT")


class UrlElicitationRequired(PeerError):
    """The server serves this request only after the user has opened pages; it did not run.

    Args:
        error: The error of the server.
        elicitations: The pages, each with `message`, `url` and `elicitation_id`.
    """

    def __init__(self, error: PeerError, elicitations: Sequence[ElicitUrlParams]) -> None:
        super().__init__(error.error)
        self.elicitations = tuple(elicitations)

    def __str__(self) -> str:
        where = ", ".join(shorten(page.url) for page in self.elicitations)
        return f"{self.message}: open {where}, then send the request again ({self.code})"


def required_by(error: PeerError) -> UrlElicitationRequired | None:
    """The error with its pages; None for any other error, and for one without pages."""
    data = error.data if error.code == REQUIRED else None
    elicitations = data.get("elicitations") if isinstance(data, dict) else None
    try:
        pages = msgspec.convert(elicitations, list[ElicitUrlParams])
    except msgspec.ValidationError:
        return None
    return UrlElicitationRequired(error, pages) if pages else None


class _Wait:
    """Waits until some pages are finished."""

    def __init__(self, pages: Sequence[ElicitUrlParams]) -> None:
        self.open_ids = {page.elicitation_id for page in pages}
        self.over = asyncio.Event()

    async def moments(self, patience: float) -> AsyncIterator[None]:
        """Yield when the request is to be repeated: with growing pauses, and when all pages are finished, which is the last."""
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
    """The pages that one client waits for. `patience` is in seconds; `rounds` is how often there may be more pages."""

    def __init__(self, patience: float, rounds: int) -> None:
        self._patience = patience
        self._rounds = rounds
        self._waits: set[_Wait] = set()

    def finished(self, identity: object) -> None:
        """Take the id of a finished page; unknown ids are ignored."""
        for wait in self._waits:
            if isinstance(identity, str) and identity in wait.open_ids:
                wait.open_ids.discard(identity)
                if not wait.open_ids:
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
        """Let the user open the pages, repeat the request until it is served, and return its result.

        Raises what `again` raises, and UrlElicitationRequired if the user does not agree or is not done in time. While pages
        are open, an error with other pages replaces them; only after all are finished it means more pages.
        """
        for _ in range(self._rounds):
            with self._waiting(required.elicitations) as wait:
                if not await agreed(required.elicitations):
                    break
                async for _ in wait.moments(self._patience):
                    result = await _tried(again)
                    if not isinstance(result, UrlElicitationRequired):
                        return result
                    required = result
                if not wait.over.is_set():
                    break
        raise required


async def _tried(again: Callable[[], Awaitable[ResultT]]) -> ResultT | UrlElicitationRequired:
    try:
        return await again()
    except PeerError as exc:
        required = required_by(exc)
        if required is None:
            raise
        return required
