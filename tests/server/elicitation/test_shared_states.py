"""Request state that any process continues: its keys in the backend, their rotation, and states that are used once."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gemel import BackendError, Context, InvalidParams, Overloaded, Server
from gemel.backends import MemoryBackend, SqliteBackend
from gemel.server.elicitation import shared_keys
from gemel.server.elicitation.request_state import RequestStateCodec
from tests.server.bare_end import BareEnd

CAN_BE_ASKED: dict[str, Any] = {"elicitation": {}}
ANSWER = {"action": "accept", "content": {"value": "Ann"}}
CALL = {"name": "greet", "arguments": {}}


class Store(MemoryBackend):
    """What several processes share, as far as they can tell. It counts its uses, and may be away."""

    shared = True

    def __init__(self) -> None:
        super().__init__()
        self.uses: list[str] = []
        self.claimed_for = 0.0
        self.away = False

    def _use(self, key: str) -> None:
        self.uses.append(key)
        if self.away:
            raise BackendError("the store is away")

    async def get(self, key: str) -> bytes | None:
        self._use(key)
        await asyncio.sleep(0)
        return await super().get(key)

    async def replace(self, key: str, expected: bytes | None, value: bytes, *, ttl: float | None = None) -> bool:
        self._use(key)
        await asyncio.sleep(0)
        return await super().replace(key, expected, value, ttl=ttl)

    async def claim(self, key: str, *, ttl: float) -> bool:
        self._use(key)
        self.claimed_for = ttl
        await asyncio.sleep(0)
        return await super().claim(key, ttl=ttl)


@pytest.fixture
def store() -> Store:
    return Store()


def process(backend: Any, name: str = "greeter", **options: Any) -> Server[Any]:
    server: Server[Any] = Server(name, backend=backend, **options)

    @server.tool
    async def greet(ctx: Context) -> str:
        first = ctx.elicit("name", str)
        return f"hello {await first}"

    @server.tool
    async def greet_two(ctx: Context) -> str:
        return " and ".join(await asyncio.gather(ctx.elicit("first", str), ctx.elicit("second", str)))

    @server.tool
    async def plain() -> str:
        return "plain"

    return server


def answered(asked: dict[str, Any]) -> dict[str, Any]:
    answers = dict.fromkeys(asked["inputRequests"], ANSWER)
    return {"requestState": asked["requestState"], "inputResponses": answers}


def codec(store: Store, *, once: bool = False, server: str = "states", ttl: float = 60.0) -> RequestStateCodec:
    return RequestStateCodec((), ttl=ttl, once=once, backend=store, server=server)


async def test_a_call_goes_on_in_another_process(tmp_path: Path) -> None:
    """SCALE-06, over a real file: nobody was given keys."""
    url = f"sqlite:///{tmp_path}/state.db"
    servers = [process(url), process(url), process(url, "another")]
    async with (
        servers[0].running(),
        servers[1].running(),
        servers[2].running(),
        BareEnd(servers[0], capabilities=CAN_BE_ASKED) as first,
        BareEnd(servers[1], capabilities=CAN_BE_ASKED) as second,
        BareEnd(servers[2], capabilities=CAN_BE_ASKED) as other,
    ):
        for here, there in ((first, second), (second, first)):
            retry = {**CALL, **answered(await here.ask("tools/call", CALL))}
            assert (await there.ask("tools/call", retry))["content"][0]["text"] == "hello Ann"
            error = await other.refusal("tools/call", retry)
            assert error["message"] == "Invalid requestState: it was not made here, or was changed"
        two = {"name": "greet_two", "arguments": {}}
        asked = await first.ask("tools/call", two)
        assert len(asked["inputRequests"]) == 2
        assert (await second.ask("tools/call", {**two, **answered(asked)}))["content"][0]["text"] == "Ann and Ann"


@pytest.mark.parametrize("keys", [(), [b"k" * 32]])
async def test_a_state_that_is_accepted_once_is_so_in_all_processes(tmp_path: Path, keys: list[bytes]) -> None:
    """MRTR-13: of two processes that get it at once, one goes on."""
    options: dict[str, Any] = {"state_once": True, "state_keys": keys}
    backends = [SqliteBackend(tmp_path / "state.db") for _ in range(2)]
    async with (
        BareEnd(process(backends[0], **options), capabilities=CAN_BE_ASKED) as first,
        BareEnd(process(backends[1], **options), capabilities=CAN_BE_ASKED) as second,
    ):
        retry = {**CALL, **answered(await first.ask("tools/call", CALL))}

        async def outcome(end: BareEnd) -> str:
            response = await end.reply("tools/call", retry)
            return str(response["result"]["content"][0]["text"] if "result" in response else "refused")

        outcomes = await asyncio.gather(outcome(first), outcome(second))
        assert sorted(outcomes) == ["hello Ann", "refused"]
        for end in (first, second):
            error = await end.refusal("tools/call", retry)
            assert error["message"] == "Invalid requestState: it was used already"
    for backend in backends:
        await backend.close()


async def test_a_state_is_used_once_by_all_that_was_requested_together(store: Store) -> None:
    async with BareEnd(process(store, state_once=True), capabilities=CAN_BE_ASKED) as end:
        two = {"name": "greet_two", "arguments": {}}
        retry = {**two, **answered(await end.ask("tools/call", two))}
        assert (await end.ask("tools/call", retry))["content"][0]["text"] == "Ann and Ann"


async def test_a_call_that_needs_no_state_touches_no_backend(store: Store) -> None:
    async with BareEnd(process(store, state_once=True), capabilities=CAN_BE_ASKED) as end:
        for _ in range(3):
            await end.call_tool("plain")
        await end.ask("tools/list", {})
        assert store.uses == []
        asked = await end.ask("tools/call", CALL)
        assert len(store.uses) == 2, "the keys were looked for and made"
        await end.ask("tools/call", {**CALL, **answered(asked)})
        assert len(store.uses) == 3, "the state was claimed"
        await end.ask("tools/call", CALL)
        assert len(store.uses) == 3, "the keys are in memory"


async def test_a_call_that_needs_the_backend_is_told_when_to_come_back(store: Store) -> None:
    async with BareEnd(process(store, state_once=True), capabilities=CAN_BE_ASKED) as end:
        store.away = True
        error = await end.refusal("tools/call", CALL)
        assert (error["code"], error["data"]) == (429, {"retryAfterMs": 1000})
        assert (await end.call_tool("plain"))["content"][0]["text"] == "plain"
        store.away = False
        asked = await end.ask("tools/call", CALL)
        store.away = True
        retry = {**CALL, **answered(asked)}
        assert (await end.refusal("tools/call", retry))["code"] == 429
        store.away = False
        assert (await end.ask("tools/call", retry))["content"][0]["text"] == "hello Ann", "it was not used up"


@pytest.mark.parametrize(("shared", "keys"), [(False, ()), (True, [b"k" * 32])])
async def test_keys_that_are_given_and_those_of_one_process_are_not_in_the_backend(
    store: Store, monkeypatch: pytest.MonkeyPatch, shared: bool, keys: list[bytes]
) -> None:
    monkeypatch.setattr(Store, "shared", shared)
    each = RequestStateCodec(keys, ttl=60.0, once=False, backend=store, server="states")
    state = await each.encode(b"payload", b"bound")
    assert store.uses == []
    elsewhere = RequestStateCodec(keys, ttl=60.0, once=False, backend=MemoryBackend(), server="states")
    if keys:
        assert await elsewhere.decode(state, b"bound") == b"payload"


async def test_that_a_state_was_used_is_stored_little_longer_than_it_is_valid_by_any_clock(store: Store) -> None:
    each = codec(store, once=True, ttl=3600.0)
    await each.decode(await each.encode(b"payload", b"bound"), b"bound")
    assert 3600 + 30 < store.claimed_for < 3600 + 300


async def test_processes_that_begin_at_once_have_the_same_keys(store: Store) -> None:
    codecs = [codec(store) for _ in range(10)]
    states = await asyncio.gather(*(each.encode(b"payload", b"bound") for each in codecs))
    for state in states:
        assert await codecs[0].decode(state, b"bound") == b"payload"


class Clock:
    """The time of all processes."""

    now = 1_000_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(shared_keys, "time", clock)
    monkeypatch.setattr("gemel.server.elicitation.request_state.time", clock)
    return clock


def mark(state: str) -> str:
    """What is the same in all states that one key has encrypted."""
    return state[:5]


async def test_keys_are_rotated_while_states_are_under_way(store: Store, clock: Clock) -> None:
    """Each day a key is added, used when all can read it, and forgotten when what it encrypted has expired."""
    first, second = codec(store, ttl=3600.0), codec(store, ttl=3600.0)
    marks: list[str] = []
    previous = ""
    for _ in range(5 * 24 * 2):
        clock.now += 1800
        state = await first.encode(b"payload", b"bound")
        marks.append(mark(state))
        assert await second.decode(state, b"bound") == b"payload"
        if previous:
            assert await codec(store).decode(previous, b"bound") == b"payload"
        previous = state
    assert 5 <= len(set(marks)) <= 6, "a key a day"
    stored = await store.get(store.uses[0])
    assert stored is not None
    assert len(stored) < 2 * 50, "keys that nobody needs are removed"


async def test_a_new_key_is_used_when_all_processes_can_read_it(store: Store, clock: Clock) -> None:
    first, second = codec(store, ttl=3600.0), codec(store, ttl=3600.0)
    foreign = RequestStateCodec((), ttl=60.0, once=False, backend=MemoryBackend(), server="states")
    old = mark(await first.encode(b"payload", b"bound"))
    clock.now += shared_keys.ROTATION + 1
    with pytest.raises(InvalidParams):
        await second.decode(await foreign.encode(b"payload", b"bound"), b"bound")
    clock.now += 0.5  # the second one has just read the keys, and does not so again at once
    state = await first.encode(b"payload", b"bound")
    assert mark(state) == old
    assert await second.decode(state, b"bound") == b"payload"
    clock.now += 60
    state = await codec(store).encode(b"payload", b"bound")
    assert mark(state) != old
    assert await second.decode(state, b"bound") == b"payload"
    uses = len(store.uses)
    clock.now += 60
    assert await second.decode(state, b"bound") == b"payload"
    assert len(store.uses) == uses, "its key is in memory"


async def test_a_state_is_accepted_until_it_expires_however_often_keys_are_rotated(store: Store, clock: Clock) -> None:
    day = shared_keys.ROTATION
    ttl = 2 * day - 300
    first, late = codec(store, ttl=ttl), codec(store, ttl=ttl)
    await first.encode(b"payload", b"bound")
    clock.now += day - 50
    await late.encode(b"payload", b"bound")
    clock.now += 51
    await first.encode(b"payload", b"bound")  # adds a key
    clock.now += 500
    state = await late.encode(b"payload", b"bound")  # with the old one: it has not read the new one yet
    clock.now += day - 499
    await codec(store, ttl=ttl).encode(b"payload", b"bound")
    assert await codec(store, ttl=ttl).decode(state, b"bound") == b"payload"
    clock.now += day + 1
    await codec(store, ttl=ttl).encode(b"payload", b"bound")
    assert await codec(store, ttl=ttl).decode(state, b"bound") == b"payload"


async def test_a_process_goes_on_with_the_keys_that_it_has_while_the_backend_is_away(
    store: Store, clock: Clock
) -> None:
    """What another process may have encrypted is not refused for good meanwhile."""
    mine, foreign = codec(store), RequestStateCodec((), ttl=60.0, once=False, backend=MemoryBackend(), server="states")
    await mine.encode(b"payload", b"bound")
    store.away = True
    clock.now += 3600
    assert await mine.decode(await mine.encode(b"payload", b"bound"), b"bound") == b"payload"
    clock.now += 2
    with pytest.raises(Overloaded):
        await mine.decode(await foreign.encode(b"payload", b"bound"), b"bound")


async def test_states_of_strangers_do_not_reach_the_backend_each_time(store: Store) -> None:
    mine, foreign = codec(store), RequestStateCodec((), ttl=60.0, once=True, backend=MemoryBackend(), server="states")
    await mine.encode(b"payload", b"bound")
    uses = len(store.uses)
    for _ in range(100):
        with pytest.raises(InvalidParams, match="not made here"):
            await mine.decode(await foreign.encode(b"payload", b"bound"), b"bound")
    assert len(store.uses) - uses <= 2


@pytest.mark.parametrize("stored", [b"\x92\x09\x90", b"\xc1"])
async def test_keys_of_another_version_are_one_clear_line(
    store: Store, stored: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await codec(store).encode(b"payload", b"bound")
    await store.set(store.uses[0], stored)
    with pytest.raises(Overloaded, match="The keys of request state can't be read: try again later"):
        await codec(store).encode(b"payload", b"bound")
    assert "those of another version of Gemel: give state_keys=[…]" in caplog.text


async def test_keys_that_an_earlier_release_has_stored_are_used(store: Store) -> None:
    """Processes of two releases share them during an update. This is their first format."""
    await codec(store).encode(b"payload", b"bound")
    stored = msgspec.msgpack.encode([1, [[time.time(), b"k" * 32]]])
    await store.set(store.uses[0], stored)
    state = await codec(store).encode(b"payload", b"bound")
    assert await codec(store).decode(state, b"bound") == b"payload"
    assert await store.get(store.uses[0]) == stored
