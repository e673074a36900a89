"""Snapshots: what a call returned, or what a server offers, in files beside the tests."""

from __future__ import annotations

import difflib
import json
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path
from typing import overload

from gemel.blocking import run_async
from gemel.client.client import Client
from gemel.contracts.compare import SEVERITIES, differences, gravest
from gemel.contracts.contract import Contract
from gemel.contracts.display import escaped
from gemel.contracts.fetch import fetch_contract
from gemel.contracts.lock_file import read_lock, written
from gemel.errors import Severity, shorten
from gemel.sync import Client as SyncClient
from gemel.testing import comparison
from gemel.testing.eras import result_values
from gemel.user_files import replace_file

UPDATE = "--update-mcp-snapshots"
#: How many differences of a result are shown.
_SHOWN = 12


class Snapshots:
    """The snapshots of one test: the pytest fixture `mcp_snapshot`.

    A test without names has the files `TEST.json`, `TEST-2.json`, …; contracts are lock files, `TEST.lock`.

    Args:
        folder: The folder of the files.
        test: The name of the test, which the names of files begin with.
        update: Whether to write the files instead of comparing with them.
    """

    def __init__(self, folder: Path, test: str, *, update: bool = False) -> None:
        self._folder = folder
        self._test = test
        self._update = update
        self._counts: dict[str, int] = {}

    def __call__(self, value: object, name: str | None = None, *, ignore: Sequence[str] = ()) -> None:
        """Compare a result with its snapshot. Members that only one era has, and `_meta`, are left out.

        Args:
            value: A result of a client, or another value that JSON can express.
            name: The name of the file without suffix; made from the name of the test by default.
            ignore: Paths to leave out, for example `structuredContent.created` or `content.*.text`.

        Raises:
            AssertionError: It differs, or there is no snapshot; the message shows where.
        """
        __tracebackhide__ = True
        path = self._path(name, ".json")
        now = comparison.comparable(result_values(value), ignore)
        text = escaped(json.dumps(now, indent=2, ensure_ascii=False)) + "\n"
        if not self._update:
            self._require(path)
            lines = list(_changed_lines(json.loads(path.read_text(encoding="utf-8")), json.loads(text)))
            if lines:
                self._fail(path, "The result", lines)
        else:
            self._write(path, text)

    @overload
    def contract(self, client: SyncClient, name: str | None = None, *, fail_on: Severity = "harmless") -> None: ...

    @overload
    def contract(
        self, client: Client, name: str | None = None, *, fail_on: Severity = "harmless"
    ) -> Awaitable[None]: ...

    def contract(
        self, client: Client | SyncClient, name: str | None = None, *, fail_on: Severity = "harmless"
    ) -> Awaitable[None] | None:
        """Compare what a server offers with its lock file, as `gemel diff` does. Await it with an async client.

        Args:
            client: A connected client.
            name: The name of the file without suffix; made from the name of the test by default.
            fail_on: The least severe change that fails: "harmless", "text", "may break" or "breaking".

        Returns:
            None with a blocking client, otherwise what to await.

        Raises:
            AssertionError: The contract changed, or there is no lock file; the message lists each change with its severity.
            StartError: The lock file was changed by hand.
        """
        __tracebackhide__ = True
        path = self._path(name, ".lock")
        if isinstance(client, SyncClient):
            self._check_contract(path, run_async(client, fetch_contract), fail_on)
            return None
        return self._fetch_and_check(path, client, fail_on)

    async def _fetch_and_check(self, path: Path, client: Client, fail_on: Severity) -> None:
        __tracebackhide__ = True
        self._check_contract(path, await fetch_contract(client), fail_on)

    def _check_contract(self, path: Path, contract: Contract, fail_on: Severity) -> None:
        __tracebackhide__ = True
        if self._update:
            self._write(path, written(contract))
            return
        self._require(path)
        changes = differences(read_lock(path), contract)
        worst = gravest(changes)
        if worst is not None and SEVERITIES.index(worst) >= SEVERITIES.index(fail_on):
            width = max(map(len, SEVERITIES))
            self._fail(path, "The contract", [f"  {one.severity:<{width}}  {one}" for one in changes])

    def _path(self, name: str | None, suffix: str) -> Path:
        if name is None:
            count = self._counts[suffix] = self._counts.get(suffix, 0) + 1
            name = self._test if count == 1 else f"{self._test}-{count}"
        return self._folder / f"{name}{suffix}"

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode())

    def _require(self, path: Path) -> None:
        __tracebackhide__ = True
        if not path.exists():
            raise AssertionError(f"There is no snapshot {path}: pytest {UPDATE} writes it")

    def _fail(self, path: Path, what: str, lines: Sequence[str]) -> None:
        __tracebackhide__ = True
        text = "\n".join(lines)
        raise AssertionError(f"{what} differs from {path}:\n{text}\nIf that is right, run pytest {UPDATE}.")


def _changed_lines(recorded: object, now: object) -> Iterator[str]:
    changes = list(comparison.differences(recorded, now, path="", opaque=False))
    for path, before, after in changes[:_SHOWN]:
        yield f"  {path.removeprefix('.') or 'the value'}"
        if isinstance(before, str) and isinstance(after, str) and "\n" in before + after:
            compared = difflib.unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm="")
            yield from (f"    {line}" for line in list(compared)[2:] or [repr(before), repr(after)])
        else:
            yield f"    snapshot: {shorten(repr(before), 500)}"
            yield f"    now:      {shorten(repr(after), 500)}"
    if len(changes) > _SHOWN:
        yield f"  … and {len(changes) - _SHOWN} more"
