"""A rate limit that several processes count together, in their backend."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gemel import BackendError, DefinitionError, Overloaded, RateLimit, Server
from gemel.backends import MemoryBackend, SqliteBackend
from tests.server.bare_end import BareEnd
from tests.server.middleware.clocks import Hand, by_hand


class Store(MemoryBackend):
    """Counts its operations, and may be away or full."""

    shared = True

    def __init__(self) -> None:
        super().__init__()
        self.uses = 0
        self.failure: Exception | None = None

    def _use(self) -> None:
        self.uses += 1
        if self.failure is not None:
            raise self.failure

    async def get(self, key: str) -> bytes | None:
        self._use()
        await asyncio.sleep(0)
        return await super().get(key)

    async def replace(self, key: str, expected: bytes | None, value: bytes, *, ttl: float | None = None) -> bool:
        self._use()
        await asyncio.sleep(0)
        return await super().replace(key, expected, value, ttl=ttl)


def process(limit: RateLimit) -> BareEnd:
    server: Server[Any] = Server("limited", middleware=[limit])
    server.tool("add")(lambda: "1")
    return BareEnd(server)


def limits(backends: list[Any], clocks: list[Hand], **options: Any) -> list[RateLimit]:
    """The same limit in several processes."""
    return [
        by_hand(RateLimit(2, burst=4, by=lambda ctx: "ann", backend=backend, **options), clock)
        for backend, clock in zip(backends, clocks, strict=True)
    ]


async def passed(end: BareEnd, count: int) -> int:
    """How many of so many calls at once are served; the others are told when to come back."""
    replies = await asyncio.gather(*(end.reply("tools/call", {"name": "add", "arguments": {}}) for _ in range(count)))
    for reply in replies:
        if "error" in reply:
            assert reply["error"]["message"] == "Too many requests: the limit is 2 per second"
            assert reply["error"]["data"]["retryAfterMs"] > 0
    return sum("result" in reply for reply in replies)


async def test_processes_count_together(tmp_path: Path) -> None:
    """Over a file, from both processes at once."""
    clock = Hand()
    backends = [SqliteBackend(tmp_path / "state.db", synchronous="normal") for _ in range(2)]
    first, second = limits(backends, [clock, clock])
    async with process(first) as one, process(second) as two:
        assert sum(await asyncio.gather(passed(one, 6), passed(two, 6))) == 4
        clock.now += 1
        assert (await passed(one, 3), await passed(two, 3)) == (2, 0)
        clock.now += 3600
        assert (await passed(two, 3), await passed(one, 3)) == (3, 1)
    for backend in backends:
        await backend.close()


async def test_a_clock_that_is_ahead_gives_nothing_twice() -> None:
    store, clocks = Store(), [Hand(), Hand()]
    clocks[1].now += 30
    first, second = limits([store, store], clocks)
    async with process(first) as one, process(second) as two:
        served = [await passed(end, 4) for end in (one, two, one, two, one, two)]
        assert served == [4, 4, 0, 0, 0, 0]


async def test_it_costs_an_operation_each_and_nothing_to_refuse() -> None:
    store = Store()
    (limit,) = limits([store], [Hand()])
    async with process(limit) as end:
        assert await passed(end, 4) == 4
        assert store.uses == 4
        assert await passed(end, 20) == 0
        assert store.uses == 4
        await end.ask("tools/list", {})
        assert store.uses == 4


async def test_limits_and_callers_are_counted_apart() -> None:
    store = Store()
    names = ["ann"]
    limit = by_hand(RateLimit(1, by=lambda ctx: names[0], backend=store), Hand())
    other = by_hand(RateLimit(1, burst=2, by=lambda ctx: names[0], backend=store), Hand())
    async with process(limit) as one, process(other) as two:
        served = []
        for names[0] in ("ann", "bob"):
            for end in (one, two):
                replies = [await end.reply("tools/call", {"name": "add", "arguments": {}}) for _ in range(4)]
                served.append(sum("result" in reply for reply in replies))
        assert served == [1, 2, 1, 2]


@pytest.mark.parametrize("failure", [BackendError("away"), Overloaded("full")])
async def test_while_the_backend_is_away_each_process_limits_alone(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store()
    store.failure = failure
    (limit,) = limits([store], [Hand()])
    async with process(limit) as end:
        assert await passed(end, 6) == 4
        assert store.uses == 1, "it is not asked again at once"
    assert "Requests are limited by each process on its own" in caplog.text


async def test_the_log_has_two_lines_of_an_outage(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many requests there are, and however often the backend is asked again."""
    monkeypatch.setattr("gemel.server.middleware.rate_limit._PAUSE", 0.0)
    store = Store()
    store.failure = BackendError("away")
    clock = Hand()
    (limit,) = limits([store], [clock])
    async with process(limit) as end:
        assert await passed(end, 6) == 4
        assert store.uses > 1
        store.failure = None
        clock.now += 60
        await passed(end, 2)
    logged = [record.getMessage() for record in caplog.records if "limited" in record.getMessage()]
    assert logged[0] == "Requests are limited by each process on its own: away"
    assert logged[1].startswith("Requests are limited together again, after ")
    assert len(logged) == 2


async def test_without_a_name_a_connection_is_counted_in_its_process() -> None:
    store = Store()
    async with process(by_hand(RateLimit(1, burst=2, backend=store), Hand())) as end:
        replies = [await end.reply("tools/call", {"name": "add", "arguments": {}}) for _ in range(4)]
        assert sum("result" in reply for reply in replies) == 2
    assert store.uses == 0


def test_a_backend_is_an_object() -> None:
    with pytest.raises(DefinitionError, match=r"backend=.*write backend=server\.backend"):
        RateLimit(1, backend="sqlite:///state.db")  # type: ignore[arg-type]  # the mistake
