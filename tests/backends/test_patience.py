"""What is stored again while a backend is away: the log has two lines of it, however many wait."""

from __future__ import annotations

import asyncio

import pytest

from gemel import BackendError
from gemel.backends.patience import store_patiently


async def test_an_outage_is_in_the_log_once_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    tries = 0

    async def write() -> str:
        nonlocal tries
        tries += 1
        if tries < 12:
            raise BackendError("away")
        return "stored"

    stored = await asyncio.gather(*(store_patiently(write, 30.0, "The end of a test") for _ in range(4)))
    assert stored == ["stored"] * 4
    first, last = [record.getMessage() for record in caplog.records]
    assert first == "The end of a test can't be stored yet: away"
    assert last.startswith("The end of a test is stored again, after ")
