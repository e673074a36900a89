"""The backend of one process, and how a server names its backend."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gemel import Changed, Client, DefinitionError, Overloaded, Server
from gemel.backends import MemoryBackend, backend_for, memory
from gemel.backends.base import Event


def test_every_listener_hears_every_hint_until_it_stops() -> None:
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
    backend = MemoryBackend()
    heard: list[Event] = []

    def fail(event: Event) -> None:
        raise RuntimeError("broken")

    backend.subscribe(fail)
    backend.subscribe(heard.append)
    with caplog.at_level(logging.ERROR, logger="gemel"):
        backend.publish(Changed("tools"))
    assert heard == [Changed("tools")]
    assert "a listener for changes failed" in caplog.text


def test_the_same_listener_twice_is_told_twice() -> None:
    """Who listens is told apart by nothing that a peer can choose."""
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


async def test_a_backend_of_the_user_carries_changes_between_servers() -> None:
    wire: list[Wired] = []
    one, two = (Server("x", backend=Wired(wire)) for _ in range(2))
    async with one.running(), Client(two) as client, client.listen(tools=True) as changes:
        one.notify(Changed("tools"))
        async with asyncio.timeout(5):
            assert await anext(changes) == Changed("tools")


class Wired(MemoryBackend):
    """Tells all backends at the same wire."""

    shared = True

    def __init__(self, wire: list[Wired]) -> None:
        super().__init__()
        self._wire = wire
        wire.append(self)

    def publish(self, event: Changed) -> None:
        for backend in self._wire:
            MemoryBackend.publish(backend, event)


async def test_entries_are_bounded_by_number_and_bytes() -> None:
    backend = MemoryBackend(max_entries=3)
    for key in "abc":
        await backend.set(key, b"1")
    with pytest.raises(Overloaded, match="has 3 entries with 6 bytes, and keeps at most 3"):
        await backend.set("d", b"1")
    with pytest.raises(Overloaded):
        await backend.claim("d", ttl=60)
    await backend.set("a", b"2")
    await backend.delete("a")
    await backend.set("d", b"1")
    backend = MemoryBackend(max_bytes=10)
    await backend.set("a", b"x" * 9)
    with pytest.raises(Overloaded):
        await backend.set("a", b"x" * 10)
    await backend.set("a", b"x")
    await backend.set("b", b"x" * 7)


async def test_what_exists_can_be_changed_under_a_lease_while_there_is_no_room() -> None:
    backend = MemoryBackend(max_entries=1, max_bytes=3)
    await backend.set("a", b"12")
    async with backend.lease("a", ttl=60), backend.lease("b", ttl=60):
        await backend.set("a", b"34")
        assert await backend.replace("a", b"34", b"56")
        with pytest.raises(Overloaded):
            await backend.set("b", b"")
    await backend.delete("a")
    await backend.set("b", b"12")


async def test_expired_entries_make_room() -> None:
    backend = MemoryBackend(max_entries=1000)
    for number in range(1000):
        await backend.set(str(number), b"", ttl=0.001)
    await asyncio.sleep(0.01)
    await backend.set("more", b"")
    assert len(backend._entries) < 1000


async def test_entries_that_are_stored_again_and_again_cost_no_memory() -> None:
    backend = MemoryBackend()
    for _ in range(1000):
        await backend.set("a", b"1", ttl=60)
    assert len(backend._expiries) <= 103
    assert (len(backend._entries), backend._bytes) == (1, 2)


async def test_a_sweep_does_a_bounded_amount_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_SWEPT", 10)
    backend = MemoryBackend()
    for number in range(100):
        await backend.set(str(number), b"", ttl=0.2)
    await asyncio.sleep(0.3)
    before = len(backend._entries)
    await backend.set("more", b"")
    assert len(backend._entries) == before + 1 - 10


async def test_a_backend_is_left_alone_until_the_server_is_served() -> None:
    """Registration is no change that a client saw; a backend may start threads, beside which workers can't be forked."""

    class Counting(MemoryBackend):
        uses = 0

        def publish(self, event: Changed) -> None:
            self.uses += 1
            super().publish(event)

    backend = Counting()
    server, inner = Server("outer", backend=backend), Server("inner")
    server.mount(inner, "inner")
    for each in (server, inner):
        each.tool("add")(lambda: 1)
    assert (backend.uses, backend.has_listeners) == (0, False)
    async with Client(server):
        for name, each in (("b", server), ("c", inner)):
            each.tool(name)(lambda: 1)
    assert backend.uses == 2
    Server("other", backend=backend).notify(Changed("tools"))
    assert backend.uses == 3
