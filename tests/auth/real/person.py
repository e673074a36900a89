"""A person who logs in with a real browser."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from urllib.parse import parse_qsl, urlsplit

from tests.auth.real.browser import Page
from tests.auth.real.login import Person


class PersonAtBrowser:
    """Opens the URLs that `BrowserLogin` hands to a browser, and logs in there, on a thread.

    Attributes:
        opened: The URLs, in order.
    """

    def __init__(self, page: Page, person: Person = Person()) -> None:  # noqa: B008 - frozen
        self.opened: list[str] = []
        self._page = page
        self._person = person
        self._thread = ThreadPoolExecutor(1, "person")
        self._work: list[Future[str]] = []

    def __enter__(self) -> PersonAtBrowser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.shutdown()
        for work in self._work:
            work.result()  # raises what went wrong at the browser, which is why the client failed, too

    def open(self, url: str) -> bool:
        """Open a URL; the login goes on after this has returned."""
        self.opened.append(url)
        callback = dict(parse_qsl(urlsplit(url).query))["redirect_uri"]
        self._work.append(self._thread.submit(self._person.authorize, self._page, url, callback))
        return True
