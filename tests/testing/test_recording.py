"""Recordings: what was recorded with the real server plays either side of the conversation."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from hinge import Client, Context, PeerError, Server, StartError
from hinge.testing import Recording
from tests.docs.serving import over_http
from tests.testing.tour import ANSWERS, ERAS, ROUTES, everything, reachable, take_tour

each_route = pytest.mark.parametrize("route", ROUTES)
each_era = pytest.mark.parametrize("era", ERAS)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def messages(path: Path, sender: str) -> list[dict[str, Any]]:
    return [line["message"] for line in lines(path) if line.get("from") == sender]


@each_era
@each_route
async def test_an_application_sees_the_same_of_the_recording_as_of_the_server(
    route: str, era: Any, tmp_path: Path
) -> None:
    path = tmp_path / "tour.jsonl"
    async with reachable(route) as target:
        first = await take_tour(Recording(path, target), era)
    played = Recording(path)
    assert await take_tour(played, era) == first
    played.check(all_played=True)


@each_era
@each_route
async def test_a_server_that_says_the_same_as_then_differs_nowhere(route: str, era: Any, tmp_path: Path) -> None:
    path = tmp_path / "tour.jsonl"
    await take_tour(Recording(path, everything()), era)
    async with reachable(route) as target:
        assert await Recording(path).compare(target) == []
