"""Documents that anybody can name, such as the metadata of clients: fetched with a bound, and remembered."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from gemel.auth.server.proxy.web import OAuthError
from gemel.auth.server.shared_work import GaveWay, SharedWork
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
        fetches: Bounds the fetches.
        load: Returns the document at a URL, for the share of an address. Raises OAuthError if it is not acceptable,
            AuthorizationFailed if there is no answer, TooBusy.
    """

    def __init__(self, fetches: SharedWork[Any], load: Callable[[str, str], Awaitable[ResultT]]) -> None:
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
                known = await self._fetches.run((self, url), share, lambda: self._fetch(url, share))
            except (GaveWay, TooBusy):
                if known is None or not _may_be_used(known):
                    raise TooBusy from None
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
