"""Holds every message that Gemel sends in any test against the published schema of its revision.

A test in which Gemel sends what no schema allows fails, in this process or in one that it started, unless it is marked
`foreign_words(reason)`: then what went out was put into its mouth, by the test or by a peer that the test made up.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from tests.tap.taps import Sent, likeness, listen
from tests.wire_schema import Misfit, Side, check_message
from tests.wire_table import REVISIONS, read_table

LATEST_HANDSHAKE, STATELESS = REVISIONS[-2], REVISIONS[-1]
CLAIM = "io.modelcontextprotocol/protocolVersion"
METHODS = frozenset(row.method for row in read_table().rows)
TAP = Path(__file__).with_name("tap")
#: What makes a process that a test starts write down what it sends.
VARIABLES = ("GEMEL_TEST_TAP", "PYTHONPATH")


class Watch:
    """What was overheard since the last look, what was found fitting before, and how much that was."""

    def __init__(self) -> None:
        self.overheard: list[Sent] = []
        #: The messages that fitted, by revision, and "errors", which are written in all of them alike.
        self.counts: Counter[str] = Counter()
        #: Where the processes that tests start write, a file each.
        self.folder: Path | None = None
        self._read: dict[str, int] = {}
        self._fitting: dict[int, str] = {}

    def misfits(self) -> list[str]:
        """Check what was overheard, and forget it. One text for each message that its revision doesn't allow."""
        heard, self.overheard[:] = [*self.overheard, *self._elsewhere()], []
        return list(dict.fromkeys(text for sent in heard if (text := self._problem(sent)) is not None))

    def _problem(self, sent: Sent) -> str | None:
        alike = likeness(sent)
        if alike not in self._fitting:
            try:
                self._fitting[alike] = judge(sent)
            except Misfit as misfit:
                return str(misfit)
        self.counts[self._fitting[alike] or "errors"] += 1
        return None

    def _elsewhere(self) -> Iterator[Sent]:
        """What other processes wrote down since the last look. What those wrote that are over is not looked at again."""
        for file in os.scandir(self.folder) if self.folder is not None else ():
            over, start = _is_over(int(file.name)), self._read.get(file.name, 0)
            if file.stat().st_size > start:
                with open(file.path, "rb") as lines:
                    lines.seek(start)
                    text = lines.read()
                whole = text[: text.rfind(b"\n") + 1]
                self._read[file.name] = start + len(whole)
                for side, revision, data, answers in map(json.loads, whole.splitlines()):
                    yield Sent(side, revision, data.encode(), answers)
            if over:
                os.unlink(file.path)
                self._read.pop(file.name, None)


def _is_over(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as exc:
        return isinstance(exc, ProcessLookupError)
    return False


def judge(sent: Sent) -> str:
    """Check one message in the revision in which it was meant, and name that; "" for an error of no revision. Raises Misfit."""
    message: dict[str, Any] = json.loads(sent.data)
    answers = sent.answers if sent.answers in METHODS and "result" in message else None
    revision = _claimed(message) or sent.revision
    check_message(cast(Side, sent.side), sent.data, revision or LATEST_HANDSHAKE, answers=answers)
    return revision


def _claimed(message: dict[str, Any]) -> str | None:
    """The revision that a request names itself: in `_meta`, or as the one it would like to speak."""
    params = message.get("params")
    if not isinstance(params, dict):
        return None
    if message["method"] == "initialize":
        asked = params.get("protocolVersion")
        return asked if asked in REVISIONS[:-1] else LATEST_HANDSHAKE
    meta = params.get("_meta")
    return STATELESS if isinstance(meta, dict) and CLAIM in meta else None


WATCH = Watch()


def environment(plain: Callable[..., dict[str, str]]) -> Callable[..., dict[str, str]]:
    """Servers that Gemel starts get a short environment: with what the tap needs in it."""

    def child_environment(extra: Mapping[str, str] | None) -> dict[str, str]:
        return {name: os.environ[name] for name in VARIABLES if name in os.environ} | plain(extra)

    return child_environment


@pytest.fixture(scope="session", autouse=True)
def tap() -> Iterator[None]:
    """Listen in this process and in those that tests start."""
    from gemel.transports.stream import subprocess as process

    listen(WATCH.overheard.append)
    process.child_environment = environment(process.child_environment)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        WATCH.folder = Path(folder)
        patch.setenv("GEMEL_TEST_TAP", folder)
        patch.setenv("PYTHONPATH", str(TAP), prepend=os.pathsep)
        yield
        WATCH.folder = None


@pytest.fixture(autouse=True)
def says_what_its_revision_allows(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test in which Gemel sent a message that its revision doesn't allow."""
    yield
    misfits = WATCH.misfits()
    if misfits and request.node.get_closest_marker("foreign_words") is None:
        pytest.fail("Gemel sent what no schema allows:\n" + "\n\n".join(misfits[:5]), pytrace=False)


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker of tests that make Gemel send nonsense."""
    config.addinivalue_line("markers", "foreign_words(reason): Gemel is made to send what no schema allows")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist reports its counts to the process that prints the summary."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["checked_messages"] = dict(WATCH.counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add the counts of a worker of pytest-xdist, which has none if it crashed."""
    WATCH.counts.update(getattr(node, "workeroutput", {}).get("checked_messages", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many messages were held against which schema."""
    counts = ", ".join(f"{revision} {count}" for revision, count in sorted(WATCH.counts.items()))
    terminalreporter.write_line(f"messages held against the schema of their revision: {counts or 'none'}")
