"""Drives a headless Chromium over the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/), on a pipe.

Only what a person does at a login page: open a URL, read the page, fill in a form, click. Each page has cookies of its own.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
LIMIT = 15.0
"""Seconds that one step of a page may take."""
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # refused for root otherwise; nothing but our own loopback pages is opened
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-sync",
    "--no-proxy-server",
    # Traffic goes to loopback only.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost, EXCLUDE [::1]",
)
#: The DevTools pipe is at the descriptors 3 (read) and 4 (written); Python's subprocess cannot place descriptors.
ON_PIPES = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)

Json = dict[str, Any]


def find_chromium() -> str | None:
    """Return the path of the program, from the variable CHROMIUM or PATH, or None."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, PROGRAMS)), None)


class PageError(Exception):
    """The page does not have what a step needs, or not in time. The text holds the URL and the beginning of the page."""


class Page:
    """One tab with its own cookies."""

    def __init__(self, browser: Browser, context: str, session: str) -> None:
        self._browser = browser
        self._context = context
        self._session = session
        #: The URLs of the documents that the tab showed or could not load, in order.
        self.visited: list[str] = []
        self._loaded = 0

    def send(self, method: str, **params: Any) -> Json:
        """Call a DevTools method for this tab."""
        return self._browser.send(method, params, self._session)

    def open(self, url: str) -> None:
        """Go to a URL and wait until the page has loaded, after its redirects."""
        self._settle(lambda: self.send("Page.navigate", url=url))

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page; that of a promise when it has come."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise PageError(f"{expression}: {answer['exceptionDetails']}\n{self}")
        return answer["result"].get("value")

    def frame_url(self, url: str) -> str:
        """Show a URL in a new frame of the page, and return what the frame has loaded: an error page if it may not."""
        self.evaluate(
            "new Promise(done => { const frame = document.createElement('iframe'); frame.onload = () => done(); "
            f"frame.src = {json.dumps(url)}; document.body.append(frame); }})"
        )
        children = self.send("Page.getFrameTree")["frameTree"]["childFrames"]
        return str(children[-1]["frame"]["url"])

    def has(self, selector: str) -> bool:
        """Tell whether an element matches the CSS selector."""
        return bool(self.evaluate(f"document.querySelector({json.dumps(selector)}) !== null"))

    def fill(self, selector: str, text: str) -> None:
        """Type a text into an input."""
        self._require(selector)
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        self.evaluate(f"document.querySelector({json.dumps(selector)}).value = ''")
        self.send("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click what the CSS selector names and wait until the next page has loaded."""
        self._require(selector)
        self._settle(lambda: self.evaluate(f"void document.querySelector({json.dumps(selector)}).click()"))

    @property
    def url(self) -> str:
        """The URL of the tab: also of a page that could not be loaded."""
        return self.visited[-1] if self.visited else "about:blank"

    @property
    def text(self) -> str:
        """The text of the page."""
        return str(self.evaluate("document.body ? document.body.innerText : ''"))

    def close(self) -> None:
        """Close the tab and forget its cookies."""
        self._browser.send("Target.disposeBrowserContext", {"browserContextId": self._context})

    def __str__(self) -> str:
        answer = self.send("Runtime.evaluate", expression="document.documentElement.outerHTML", returnByValue=True)
        return f"at {self.url}:\n{str(answer['result'].get('value'))[:1500]}"

    def heard(self, event: str, params: Json) -> None:
        """Note what the browser tells about the tab. Called on the thread that reads."""
        if event == "Page.frameNavigated" and "parentId" not in params["frame"]:
            frame = params["frame"]
            self.visited.append(frame.get("unreachableUrl") or frame["url"] + frame.get("urlFragment", ""))
        elif event == "Page.loadEventFired":
            self._loaded += 1

    def _require(self, selector: str) -> None:
        if not self.has(selector):
            raise PageError(f"no element {selector} {self}")

    def _settle(self, step: Callable[[], Any]) -> None:
        loaded = self._loaded
        step()
        if not self._browser.wait_until(lambda: self._loaded > loaded):
            raise PageError(f"no page was loaded within {LIMIT} s {self}")


class Browser:
    """A headless Chromium."""

    def __init__(self, program: str, home: Path) -> None:
        from_us, to_browser = os.pipe()
        from_browser, to_us = os.pipe()
        # Above the numbers that the browser's own pipe takes.
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (from_us, to_us)]
        command = [sys.executable, "-c", ON_PIPES, *map(str, theirs), program, *FLAGS, f"--user-data-dir={home}"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=theirs,
            env={**os.environ, "HOME": str(home)},
        )
        for end in (from_us, to_us, *theirs):
            os.close(end)
        self._out = os.fdopen(to_browser, "wb", buffering=0)
        self._in = os.fdopen(from_browser, "rb")
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)
        self._answers: dict[int, Json] = {}
        self._pages: dict[str, Page] = {}
        self._ended = False
        self._reader = threading.Thread(target=self._read, name="browser", daemon=True)
        self._reader.start()

    def page(self) -> Page:
        """Open a tab with its own cookies."""
        context = self.send("Target.createBrowserContext", {})["browserContextId"]
        target = self.send("Target.createTarget", {"url": "about:blank", "browserContextId": context})["targetId"]
        session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self._pages[session] = Page(self, context, session)
        page.send("Page.enable")
        return page

    def send(self, method: str, params: Json, session: str | None = None) -> Json:
        """Call a DevTools method and return its result."""
        number = next(self._numbers)
        message: Json = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        self._out.write(json.dumps(message).encode() + b"\0")
        if not self.wait_until(lambda: number in self._answers):
            raise PageError(f"the browser does not answer {method}")
        answer = self._answers.pop(number)
        if "error" in answer:
            raise PageError(f"{method}: {answer['error']}")
        result: Json = answer["result"]
        return result

    def wait_until(self, condition: Callable[[], bool]) -> bool:
        """Wait until the condition holds. False when it takes too long or the browser has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or condition(), LIMIT)
            return condition()

    def close(self) -> None:
        """End the browser."""
        self._out.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._in.close()

    def _read(self) -> None:
        buffer = b""
        while chunk := self._in.read1():
            *messages, buffer = (buffer + chunk).split(b"\0")
            with self._changed:
                for message in map(json.loads, messages):
                    if "id" in message:
                        self._answers[message["id"]] = message
                    elif page := self._pages.get(message.get("sessionId", "")):
                        page.heard(message["method"], message["params"])
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


@contextmanager
def running_browser(program: str) -> Iterator[Browser]:
    """Run a browser with an empty profile for the length of the block."""
    with tempfile.TemporaryDirectory(prefix="gemel-browser-", ignore_cleanup_errors=True) as home:
        browser = Browser(program, Path(home))
        try:
            yield browser
        finally:
            browser.close()
