"""One browser for all tests with real parts. They are skipped where a part is missing; with REQUIRE_PEERS they fail."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.auth.real.browser import PROGRAMS, Browser, Page, find_chromium, running_browser
from tests.auth.real.provider import is_installed


def missing(what: str) -> None:
    """Skip the test, or fail it with REQUIRE_PEERS: something is not installed."""
    if "REQUIRE_PEERS" in os.environ:
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A running Chromium."""
    program = find_chromium()
    if program is None:
        missing(f"no browser: none of {', '.join(PROGRAMS)} is in PATH, and CHROMIUM is not set (apt install chromium)")
    else:
        with running_browser(program) as running:
            yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A tab with cookies of its own."""
    page = browser.page()
    yield page
    page.close()


@pytest.fixture(scope="session", autouse=True)
def installed_provider() -> None:
    """The authorization server is there."""
    if not is_installed():
        missing("oidc-provider is not installed: python -m tests.interop.peers node")
