"""Hearing of a stop although somebody else owns the signals."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from gemel.transports.http.server.lifecycle import StopSignals


@pytest.fixture
def caught() -> Iterator[list[str]]:
    """A server's handler for SIGTERM, as uvicorn installs it."""
    events: list[str] = []

    def take(number: int, frame: FrameType | None) -> None:
        events.append("server")

    before = signal.signal(signal.SIGTERM, take)
    yield events
    signal.signal(signal.SIGTERM, before)


async def test_the_app_and_the_server_both_hear_the_signal(caught: list[str]) -> None:
    signals = StopSignals(lambda: caught.append("app"))
    signals.arm(asyncio.get_running_loop())
    signal.raise_signal(signal.SIGTERM)
    await asyncio.sleep(0.01)
    assert caught == ["server", "app"]
    signals.disarm()


async def test_arming_twice_is_arming_once_and_disarming_leaves_no_trace(caught: list[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    signals = StopSignals(lambda: caught.append("app"))
    signals.arm(asyncio.get_running_loop())
    signals.arm(asyncio.get_running_loop())
    signal.raise_signal(signal.SIGTERM)
    await asyncio.sleep(0.01)
    assert caught == ["server", "app"]
    signals.disarm()
    assert signal.getsignal(signal.SIGTERM) is before


async def test_a_handler_that_came_later_is_not_taken_away(caught: list[str]) -> None:
    signals = StopSignals(lambda: caught.append("app"))
    signals.arm(asyncio.get_running_loop())

    def later(number: int, frame: FrameType | None) -> None:
        caught.append("later")

    signal.signal(signal.SIGTERM, later)
    signals.disarm()
    assert signal.getsignal(signal.SIGTERM) is later


async def test_where_nobody_handles_the_signal_its_default_effect_stays() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        StopSignals(lambda: None).arm(asyncio.get_running_loop())
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_in_another_thread_nothing_happens(caught: list[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    signals = StopSignals(lambda: caught.append("app"))
    await asyncio.to_thread(signals.arm, asyncio.get_running_loop())
    assert signal.getsignal(signal.SIGTERM) is before
