"""Open a page in the user's browser, without a shell and without waiting for it longer than a few seconds."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

logger = logging.getLogger("gemel")

T = TypeVar("T")

#: Seconds that a browser may take to report whether it opened a page.
BROWSER_TIMEOUT = 10.0


async def open_page(url: str, open_url: Callable[[str], bool] | None = None) -> bool:
    """Open a page.

    Args:
        url: The address, which the caller has checked.
        open_url: Opens it and returns whether that worked; the default browser by default.

    Returns:
        Whether it was opened; True if the browser has not said so in 10 seconds.
    """

    def browse() -> bool:
        try:
            return _open_in_browser(url) if open_url is None else open_url(url)
        except Exception:
            logger.exception("The browser failed")
            return False

    try:
        async with asyncio.timeout(BROWSER_TIMEOUT):
            return await in_daemon_thread(browse)
    except TimeoutError:
        return True  # it is still running


def has_browser() -> bool:
    """Return whether a browser with a window can be opened: text browsers would take the terminal."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _open_in_browser(url: str) -> bool:
    import webbrowser

    return webbrowser.open(url)


async def in_daemon_thread(function: Callable[[], T]) -> T:
    """Run a function in a thread that neither cancellation nor the end of the program waits for."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from here on it can't be cancelled

    def run() -> None:
        try:
            future.set_result(function())
        except Exception as exc:
            future.set_exception(exc)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(future)
