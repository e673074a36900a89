"""What a client keeps of results: as long as the server says, for exactly what was asked, until something changes."""

from __future__ import annotations

import time
from typing import Any

import pytest
from msgspec import Raw

from gemel import Changed, ChangesLost, Client, Limits
from gemel.client.cache import Cache, CacheEntry, MemoryStore
from tests.client.puppet import META, Error, Puppet, done, legacy, modern

REVISION = "2026-07-28"


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "time", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def listed(*names: str, ttl: Any = 60_000, scope: Any = "private", **members: Any) -> dict[str, Any]:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    hints = {key: value for key, value in (("ttlMs", ttl), ("cacheScope", scope)) if value is not None}
    return {"resultType": "complete", "tools": tools, **hints, **members}


def count(puppet: Puppet, method: str = "tools/list") -> int:
    return len(puppet.asked(method))


async def test_a_result_is_kept_for_as_long_as_the_server_says(clock: Clock) -> None:
    """CACHE-04."""
    puppet = modern(tools_list=listed("a", ttl=5000))
    async with Client(puppet) as client:
        for _ in range(3):
            assert [tool.name for tool in await client.list_tools()] == ["a"]
        assert count(puppet) == 1
        clock.now += 4.9
        await client.list_tools()
        assert count(puppet) == 1
        clock.now += 0.2
        await client.list_tools()
        assert count(puppet) == 2


@pytest.mark.parametrize("ttl", [0, -5, None])
async def test_without_a_sensible_time_nothing_is_kept(ttl: Any) -> None:
    """CACHE-04."""
    puppet = modern(tools_list=listed("a", ttl=ttl))
    async with Client(puppet) as client:
        await client.list_tools()
        await client.list_tools()
    assert count(puppet) == 2


async def test_no_server_can_make_it_last_for_ever(clock: Clock) -> None:
    puppet = modern(tools_list=listed("a", ttl=10**15))
    async with Client(puppet, limits=Limits(cache_ttl=10.0)) as client:
        await client.list_tools()
        clock.now += 11
        await client.list_tools()
    assert count(puppet) == 2


async def test_each_question_has_its_own_answer() -> None:
    """CACHE-03, CACHE-10: another method, cursor or URI is another question."""

    def page(puppet: Puppet, message: dict[str, Any]) -> Any:
        cursor = message["params"].get("cursor")
        return listed("a", nextCursor="2") if cursor is None else listed("b")

    contents = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "private"}

    def read(puppet: Puppet, message: dict[str, Any]) -> Any:
        return {**contents, "contents": [{"uri": message["params"]["uri"], "text": message["params"]["uri"]}]}

    puppet = modern(tools_list=page, resources_read=read)
    async with Client(puppet) as client:
        for _ in range(2):
            assert [tool.name for tool in await client.list_tools()] == ["a", "b"]
            for uri in ("file:///a", "file:///b"):
                assert (await client.read_resource(uri)).contents[0].text == uri
    assert count(puppet) == 2
    assert count(puppet, "resources/read") == 2


async def test_what_is_not_cacheable_is_asked_each_time() -> None:
    puppet = modern(tools_call={**done(), "ttlMs": 60_000, "cacheScope": "public"})
    async with Client(puppet) as client:
        await client.call_tool("x")
        await client.call_tool("x")
    assert count(puppet, "tools/call") == 2


async def test_an_error_is_not_kept() -> None:
    puppet = modern(tools_list=Error(-32603))
    async with Client(puppet) as client:
        for _ in range(2):
            with pytest.raises(Exception, match="no"):
                await client.list_tools()
    assert count(puppet) == 2


async def test_a_handshake_server_is_asked_each_time() -> None:
    """The hints are of the stateless era."""
    puppet = legacy(tools_list=listed("a"))
    async with Client(puppet) as client:
        await client.list_tools()
        await client.list_tools()
    assert count(puppet) == 2


async def test_the_caller_may_want_it_fresh_or_not_kept_at_all() -> None:
    """CACHE-06."""
    answers = [listed("one"), listed("two"), listed("three")]
    puppet = modern(tools_list=lambda puppet, message: answers.pop(0))

    async def names(mode: Any) -> list[str]:
        return [tool.name for tool in await client.list_tools(cache=mode)]

    async with Client(puppet) as client:
        assert await names("use") == ["one"]
        assert await names("bypass") == ["two"]
        assert await names("use") == ["one"]
        assert await names("refresh") == ["three"]
        assert await names("use") == ["three"]


async def test_a_change_drops_what_it_concerns_at_once() -> None:
    """CACHE-08."""
    puppet = modern(tools_list=listed("a"), prompts_list={**listed(), "prompts": []})
    async with Client(puppet) as client:
        await client.list_tools()
        await client.list_prompts()
        puppet.say({"method": "notifications/tools/list_changed", "params": {"_meta": {f"{META}subscriptionId": 9}}})
        await client.ping()
        await client.list_tools()
        await client.list_prompts()
    assert count(puppet) == 2
    assert count(puppet, "prompts/list") == 1


async def test_two_clients_share_nothing_even_in_one_store() -> None:
    """CACHE-07."""
    store = MemoryStore(100)
    puppets = [modern(tools_list=listed("mine")), modern(tools_list=listed("yours"))]
    for puppet, name in zip(puppets, ("mine", "yours"), strict=True):
        async with Client(puppet, cache=store) as client:
            assert [tool.name for tool in await client.list_tools()] == [name]


# ---------------------------------------------------------------- the parts


def keeping(text: bytes = b'{"ttlMs":60000}') -> tuple[Cache, MemoryStore]:
    store = MemoryStore(10)
    return Cache(store, partition="p", longest=3600), store


def test_ids_and_tokens_make_no_difference_and_revisions_do() -> None:
    cache, _ = keeping()
    plain = cache.key("tools/list", {"cursor": "x"}, REVISION)
    assert cache.key("tools/list", {"cursor": "x", "_meta": {"progressToken": 5}}, REVISION) == plain
    assert cache.key("tools/list", {"cursor": "y"}, REVISION) != plain
    assert cache.key("tools/list", {"cursor": "x"}, "2027-01-01") != plain
    assert cache.key("prompts/list", {"cursor": "x"}, REVISION) != plain


@pytest.mark.parametrize(
    ("changed", "left"),
    [
        (Changed("tools"), {"prompts/list", "read a", "read ab", "read b"}),
        (Changed("prompts"), {"tools/list", "read a", "read ab", "read b"}),
        (Changed("resource", "file:///b"), {"tools/list", "prompts/list", "read a", "read ab"}),
        (Changed("moon"), {"tools/list", "prompts/list", "read a", "read ab", "read b"}),
        (ChangesLost("gone"), set()),
    ],
)
def test_a_change_concerns_what_it_names(changed: Changed | ChangesLost, left: set[str]) -> None:
    """CACHE-08."""
    cache, _ = keeping()
    keys = {method: cache.key(method, {}, REVISION) for method in ("tools/list", "prompts/list")}
    for name in ("a", "ab", "b"):
        keys[f"read {name}"] = cache.key("resources/read", {"uri": f"file:///{name}"}, REVISION)
    for key in keys.values():
        cache.put(key, Raw(b'{"ttlMs":60000}'))
    cache.changed(changed)
    assert {name for name, key in keys.items() if cache.get(key) is not None} == left


async def test_what_is_kept_is_bounded_by_its_bytes() -> None:
    """A server that lets a client keep everything could fill its memory."""

    def read(puppet: Puppet, message: dict[str, Any]) -> dict[str, Any]:
        uri = message["params"]["uri"]
        text = "x" * (5000 if uri.endswith("large") else 900)
        hints = {"resultType": "complete", "ttlMs": 10**12, "cacheScope": "public"}
        return {**hints, "contents": [{"uri": uri, "text": text}]}

    puppet = modern(resources_read=read)
    async with Client(puppet, limits=Limits(cache_bytes=4000)) as client:
        for name in ("1", "2", "large", "1", "2", "3", "4", "1", "4", "large"):
            await client.read_resource(f"file:///{name}")
    asked = [params["uri"][8:] for params in puppet.asked("resources/read")]
    assert asked == ["1", "2", "large", "3", "4", "1", "large"]


def test_what_takes_the_place_of_an_entry_counts_once() -> None:
    store = MemoryStore(10, 1000)
    for _ in range(5):
        store.put("a", CacheEntry(b"x" * 600, 0, "private"))
    store.put("b", CacheEntry(b"x" * 300, 0, "private"))
    assert store.get("a")
    store.drop(lambda key: key == "a")
    store.put("c", CacheEntry(b"x" * 600, 0, "private"))
    assert [key for key in "abc" if store.get(key)] == ["b", "c"]


def test_the_least_recently_used_give_way() -> None:
    store = MemoryStore(2)
    for key in "abc":
        store.put(key, CacheEntry(b"", 0, "private"))
        store.get("a")
    assert [key for key in "abc" if store.get(key)] == ["a", "c"]
