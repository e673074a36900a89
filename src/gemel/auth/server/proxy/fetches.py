"""Work at other servers that anybody can cause: once at a time, bounded, with shares for addresses, and ended with its callers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from gemel.auth.server.proxy.web import OAuthError
from gemel.errors import AuthorizationFailed
from gemel.loops import PerLoop
from gemel.shares import Shares, address_share

ResultT = TypeVar("ResultT")

#: Documents that are remembered, and the seconds for which one is used, for which a failure is, and for which a document is
#: used although it can't be fetched again.
_DOCUMENTS: Final = 256
_DOCUMENT_SECONDS: Final = 600.0
_FAILURE_SECONDS: Final = 10.0
_STALE_SECONDS: Final = 24 * 3600.0


class TooBusy(OAuthError):
    """Work gave way to that of others, or has no room."""

    def __init__(self) -> None:
        text = "too many requests wait for other servers: try again later"
        super().__init__("temporarily_unavailable", text, 503, headers=((b"retry-after", b"5"),))


class _Run:
    """Work that is under way."""

    def __init__(self, share: str, task: asyncio.Task[Any]) -> None:
        self.share = share
        self.task = task
        self.waiting = 0
        self.gave_way = False


class _Runs:
    """The work that is under way in one event loop."""

    def __init__(self) -> None:
        self.by_key: dict[Hashable, _Run] = {}
        self.shares: Shares[Hashable] = Shares()

    def start(self, key: Hashable, share: str, task: asyncio.Task[Any]) -> _Run:
        run = self.by_key[key] = _Run(share, task)
        self.shares.add(share, key)
        task.add_done_callback(partial(self._done, key, run))
        return run

    def _done(self, key: Hashable, run: _Run, task: asyncio.Task[Any]) -> None:
        self._forget(key, run)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: those who waited may have left

    def _forget(self, key: Hashable, run: _Run) -> None:
        if self.by_key.get(key) is run:
            del self.by_key[key]
            self.shares.discard(run.share, key)

    def end(self, key: Hashable, run: _Run) -> None:
        self._forget(key, run)
        run.task.cancel()

    def make_room(self, share: str) -> None:
        """End the oldest work of the share that has most under way."""
        key = next(iter(self.shares.giving_way(share)))
        run = self.by_key[key]
        run.gave_way = True
        self.end(key, run)


class Fetches:
    """Does work that anybody can cause.

    Whoever wants what is under way waits for it. When too much is under way, the oldest of the address that has most is
    cancelled, and so is what nobody waits for any more.

    Args:
        most: How much may be under way at once, in one event loop.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._runs: PerLoop[_Runs] = PerLoop(_Runs)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._runs.here().by_key

    async def run(self, key: Hashable, address: str, work: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """Do some work, or wait for it if it is under way.

        Args:
            key: Which work it is.
            address: Who wants it.
            work: Begins it.

        Returns:
            Its result.

        Raises:
            TooBusy: It gave way to that of others.
        """
        here, share = self._runs.here(), address_share(address)
        while True:
            run = here.by_key.get(key)
            if run is None:
                if len(here.by_key) >= self._most:
                    here.make_room(share)
                run = here.start(key, share, asyncio.get_running_loop().create_task(work()))
            run.waiting += 1
            try:
                await asyncio.wait([run.task])
            finally:
                run.waiting -= 1
                if not run.waiting:
                    here.end(key, run)
            if not run.gave_way:
                result: ResultT = run.task.result()
                return result
            if run.share == share:
                raise TooBusy


class _Known(NamedTuple, Generic[ResultT]):
    """A document, or why there is none. Times are of the monotonic clock."""

    share: str
    #: Until when it is not fetched again.
    until: float
    #: When it was fetched.
    fetched: float
    document: ResultT | None
    error: OAuthError | None = None


class _Shelf(Generic[ResultT]):
    """What is remembered in one event loop. The documents count for the address that used them last."""

    def __init__(self) -> None:
        self._known: dict[str, _Known[ResultT]] = {}
        self._shares: Shares[str] = Shares()

    def use(self, url: str, share: str) -> _Known[ResultT] | None:
        known = self._known.get(url)
        return None if known is None else self.keep(url, known._replace(share=share))

    def keep(self, url: str, known: _Known[ResultT]) -> _Known[ResultT]:
        former = self._known.get(url)
        if former is not None:
            if former.share != known.share:
                self._shares.discard(former.share, url)
        elif len(self._known) >= _DOCUMENTS:
            oldest = next(iter(self._shares.giving_way(known.share)))
            self._shares.discard(self._known.pop(oldest).share, oldest)
        self._known[url] = known
        self._shares.add(known.share, url)
        return known


class Documents(Generic[ResultT]):
    """Documents that anybody can name: fetched with a bound, and remembered, failures for a short time.

    Each address has a share of what is remembered. A document that was good is used for up to a day while it can't be fetched
    again.

    Args:
        fetches: Fetches them.
        load: Returns the document at a URL, for the share of an address. Raises OAuthError if it is not acceptable,
            AuthorizationFailed if there is no answer, TooBusy.
    """

    def __init__(self, fetches: Fetches, load: Callable[[str, str], Awaitable[ResultT]]) -> None:
        self._fetches = fetches
        self._load = load
        self._shelf: PerLoop[_Shelf[ResultT]] = PerLoop(_Shelf)

    async def find(self, url: str, address: str) -> ResultT:
        """Return the document at a URL.

        Args:
            url: The URL.
            address: Who names it.

        Returns:
            The document.

        Raises:
            OAuthError: It is not acceptable, or can't be fetched.
            TooBusy: Too much is being fetched.
        """
        share = address_share(address)
        known = self._shelf.here().use(url, share)
        if known is None or time.monotonic() >= known.until:
            try:
                known = await self._fetches.run((self, url), address, lambda: self._fetch(url, share))
            except TooBusy:
                if known is None or not _may_be_used(known):
                    raise
        if known.document is not None:
            return known.document
        assert known.error is not None
        raise OAuthError(known.error.error, known.error.description, known.error.status)

    async def _fetch(self, url: str, share: str) -> _Known[ResultT]:
        shelf = self._shelf.here()
        try:
            document = await self._load(url, share)
        except TooBusy:
            raise
        except OAuthError as exc:
            now = time.monotonic()
            known = _Known[ResultT](share, now + _FAILURE_SECONDS, now, None, exc)
        except AuthorizationFailed:
            now, former = time.monotonic(), shelf.use(url, share)
            if former is not None and _may_be_used(former):
                known = former._replace(until=now + _FAILURE_SECONDS)
            else:
                error = OAuthError("invalid_client", "the client's document can not be fetched", 401)
                known = _Known[ResultT](share, now + _FAILURE_SECONDS, now, None, error)
        else:
            now = time.monotonic()
            known = _Known[ResultT](share, now + _DOCUMENT_SECONDS, now, document)
        return shelf.keep(url, known)


def _may_be_used(known: _Known[Any]) -> bool:
    return known.document is not None and time.monotonic() - known.fetched < _STALE_SECONDS
