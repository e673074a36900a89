"""The backend of one process, and how a server names its backend."""

from __future__ import annotations

import logging

import pytest

from hinge import Changed, DefinitionError, Server
from hinge.backends import backend_for
from hinge.backends.base import Event
from hinge.backends.memory import MemoryBackend


def test_every_listener_hears_every_hint_until_it_stops() -> None:
    """C-120, C-124, C-126."""
    backend = MemoryBackend()
    one: list[Event] = []
    two: list[Event] = []
    stop = backend.subscribe(one.append)
    backend.subscribe(two.append)
    backend.publish(Changed("tools"))
    stop()
    stop()
    backend.publish(Changed("resource", "a:b"))
    assert one == [Changed("tools")]
    assert two == [Changed("tools"), Changed("resource", "a:b")]


def test_a_listener_that_fails_hurts_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    """C-130."""
    backend = MemoryBackend()
    heard: list[Event] = []

    def fail(event: Event) -> None:
        raise RuntimeError("broken")

    backend.subscribe(fail)
    backend.subscribe(heard.append)
    with caplog.at_level(logging.ERROR, logger="hinge"):
        backend.publish(Changed("tools"))
    assert heard == [Changed("tools")]
    assert "a listener for changes failed" in caplog.text


def test_the_same_listener_twice_is_told_twice() -> None:
    """C-128: who listens is told apart by nothing that a peer can choose."""
    backend = MemoryBackend()
    heard: list[Event] = []
    backend.subscribe(heard.append)
    stop = backend.subscribe(heard.append)
    backend.publish(Changed("tools"))
    stop()
    backend.publish(Changed("prompts"))
    assert heard == [Changed("tools"), Changed("tools"), Changed("prompts")]


def test_a_backend_is_given_as_an_object_or_by_its_url() -> None:
    mine = MemoryBackend()
    assert backend_for(mine) is mine
    assert isinstance(backend_for("memory://"), MemoryBackend)
    with pytest.raises(DefinitionError, match=r"no backend for 'nats://x'"):
        Server("x", backend="nats://x")
