"""`gemel record` and `gemel replay`, as real processes that a client starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, PeerError
from gemel.testing import Recording
from tests.testing.tour import ERAS, EVERYTHING, take_tour

GEMEL = (sys.executable, "-m", "gemel")


@pytest.mark.parametrize("era", ERAS)
async def test_a_host_that_starts_a_recording_sees_the_server(era: Any, tmp_path: Path) -> None:
    path = tmp_path / "tour.jsonl"
    first = await take_tour([*GEMEL, "record", str(path), str(EVERYTHING)], era)
    assert await take_tour([*GEMEL, "replay", str(path)], era) == first
    assert await take_tour(Recording(path), era) == first


async def test_what_is_added_is_asked_of_the_server(tmp_path: Path) -> None:
    path = tmp_path / "sums.jsonl"
    async with Client(Recording(path, EVERYTHING)) as client:
        await client.call_tool("add", {"a": 1, "b": 1})
    async with Client([*GEMEL, "record", "--add", str(path), str(EVERYTHING)]) as client:
        assert "4" in (await client.call_tool("add", {"a": 2, "b": 2})).text
    async with Client([*GEMEL, "replay", str(path), "--repeat"]) as client:
        for _ in range(2):
            assert "4" in (await client.call_tool("add", {"a": 2, "b": 2})).text
        with pytest.raises(PeerError, match=r"is not in the recording sums\.jsonl"):
            await client.call_tool("add", {"a": 3, "b": 3})


def test_a_recording_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    words = [*GEMEL, "replay", str(tmp_path / "none.jsonl")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("gemel: The recording ")
    assert done.stderr.count("\n") == 1
