"""A browser, and `gemel dev` with a page of it. Skipped where the browser or Playwright is missing; with REQUIRE_BROWSER they fail.

`make browser` installs what is needed. Each module has a browser of its own: Playwright's event loop runs as long as it is open.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pytest

from tests.ports import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
SERVERS = Path(__file__).parent / "servers"
WEATHER = SERVERS / "weather.py"
AXE = ROOT / ".cache" / "browser" / "node_modules" / "axe-core" / "axe.min.js"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--headless",
    "--no-sandbox",  # refused for root otherwise; nothing but our own loopback pages is opened
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]
#: Milliseconds in which a page must show what a test waits for.
PATIENCE = 20_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They take long: only `make browser` runs them."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.timeout(120))  # a browser on a machine that does other things too


def missing(what: str) -> NoReturn:
    if "REQUIRE_BROWSER" in os.environ:
        pytest.fail(what)
    pytest.skip(what)


def chromium() -> str | None:
    """The program of the browser, if there is one."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, PROGRAMS)), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A running Chromium."""
    program = chromium()
    if program is None:
        missing("no browser: Chromium is not in PATH, and CHROMIUM is not set (apt install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("Playwright is not installed: make browser")
    _be_patient()
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield running
        running.close()


def load_axe(page: Page) -> None:
    """Load axe-core into a page that was opened with `bypass_csp=True`."""
    if not AXE.exists():
        missing("axe-core is not installed: make browser")
    page.add_script_tag(content=AXE.read_text(encoding="utf-8"))


def _be_patient() -> None:
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE)


@dataclass
class Inspected:
    """`gemel dev` on one server, and what opens its page."""

    address: str
    process: subprocess.Popen[str]
    browser: Browser
    contexts: list[BrowserContext] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def base(self) -> str:
        """The address without the token."""
        return self.address.partition("?")[0]

    def open(self, place: str = "", *, eras: int = 2, **options: Any) -> Page:
        """Open a page of its own, as a person does: by the printed address. Waits until it is connected."""
        from playwright.sync_api import expect

        context = self.browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        self.contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("console", lambda line: self.problems.append(line.text) if line.type == "error" else None)
        if place:
            context.request.get(self.address)  # for the cookie
            page.goto(self.base + place)
        else:
            page.goto(self.address)
        if eras:
            expect(page.locator("#states .chip.good").nth(eras - 1)).to_be_attached()
        return page


@contextmanager
def serving(file: Path) -> Iterator[str]:
    """Run a server over HTTP; its URL."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "gemel", "run", str(file), "--http", "--port", str(port)], cwd=ROOT
    )
    try:
        wait_for_port(port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(10)


@contextmanager
def in_thread(server: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Run a server in a thread with an event loop of its own."""
    opened: Future[tuple[T, Callable[[], object]]] = Future()

    async def serve() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        async with server as running:
            opened.set_result((running, lambda: loop.call_soon_threadsafe(stop.set)))
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    running, stop = opened.result(10)
    try:
        yield running
    finally:
        stop()
        thread.join(10)


def wait_for_port(port: int) -> None:
    """Wait until something listens there."""
    end = time.monotonic() + 20
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < end
        time.sleep(0.05)


@contextmanager
def inspecting(browser: Browser, target: str | Path, *options: str, **variables: str) -> Iterator[Inspected]:
    """Run `gemel dev` on a target."""
    command = [sys.executable, "-m", "gemel", "dev", str(target), "--no-open", "--port", "0", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env={**os.environ, **variables}
    )
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not (found := re.search(r"http://\S+token=\S+", lines[-1] if lines else "")):
            line = process.stdout.readline()
            assert line, "".join(lines)
            lines.append(line)
        inspected = Inspected(found[0], process, browser)
        yield inspected
        for context in inspected.contexts:
            context.close()
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(scope="module")
def weather(browser: Browser) -> Iterator[Inspected]:
    """`gemel dev` on the weather station, shared by the tests of a module."""
    with inspecting(browser, WEATHER, "--no-reload") as inspected:
        yield inspected


@pytest.fixture
def open_page(weather: Inspected) -> Iterator[Callable[..., Page]]:
    """Opens a page of the weather station at a view. Errors of scripts and of the Content-Security-Policy fail the test."""
    before = len(weather.contexts)
    yield weather.open
    for context in weather.contexts[before:]:
        context.close()
    del weather.contexts[before:]
    problems, weather.problems[:] = weather.problems[:], []
    assert not problems
