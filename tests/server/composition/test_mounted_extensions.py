"""Extensions of mounted servers: announced and served by the server that holds them, in both eras, also over a proxy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gemel import Changed, Client, DefinitionError, Server
from tests.extensions.test_apps import PAGE, SHOWS, metas, weather
from tests.server.bare_end import BareEnd, Era
from tests.server.test_extensions import DECLARED, JOBS, Jobs, listening, served

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
UI = "io.modelcontextprotocol/ui"


def holding(*servers: Server[Any]) -> Server[Any]:
    """Each under a prefix: a, b, …"""
    outer: Server[Any] = Server("outer")
    for letter, server in zip("abc", servers, strict=False):
        outer.mount(server, letter)
    return outer


async def announced(end: BareEnd) -> dict[str, Any]:
    found = end.welcome if end.era == "2025" else await end.ask("server/discover")
    extensions: dict[str, Any] = found["capabilities"].get("extensions", {})
    return extensions


# ---------------------------------------------------------------- apps


@both_eras
async def test_pages_of_a_mounted_server_are_shown_through_the_outer_one(era: Era) -> None:
    """APP-01, APP-03, APP-04, EXT-01."""
    async with BareEnd(holding(weather()), era, capabilities=SHOWS) as end:
        assert await announced(end) == {UI: {}}
        uri = (await metas(end))["a_forecast"]["ui"]["resourceUri"]
        assert uri == "ui://a+weather/card"
        (contents,) = (await end.ask("resources/read", {"uri": uri}))["contents"]
        assert (contents["uri"], contents["text"]) == (uri, PAGE)
        assert contents["_meta"]["ui"]["csp"] == {"connectDomains": ["https://api.example.org"]}
        assert uri in [one["uri"] for one in (await end.ask("resources/list"))["resources"]]
        assert await end.text("a_refresh") == "fresh"


@both_eras
async def test_pages_of_a_stateless_server_pass_a_proxy_with_its_prefix(era: Era) -> None:
    """APP-01, APP-03, APP-04: the server behind is told with each request what its caller shows."""
    proxy = Server.from_client(Client(weather(), era="2026"), prefix="far")
    async with proxy.running(), BareEnd(proxy, era, capabilities=SHOWS) as end:
        assert await announced(end) == {UI: {}}
        uri = (await metas(end))["far_forecast"]["ui"]["resourceUri"]
        assert uri == "ui://far+weather/card"
        (contents,) = (await end.ask("resources/read", {"uri": uri}))["contents"]
        assert (contents["uri"], contents["text"]) == (uri, PAGE)
        assert await end.text("far_refresh") == "fresh"
    again = Server.from_client(Client(weather(), era="2026"), prefix="far")
    async with again.running(), BareEnd(again, era) as end:
        assert await metas(end) == {"far_forecast": {"com.example/cost": 1}, "far_plain": None}


@both_eras
async def test_other_extensions_stay_behind_a_proxy(era: Era) -> None:
    """What has methods and results of its own would be half there."""
    server = weather()
    server.add_extension(Jobs())
    proxy = Server.from_client(Client(server, era="2026"))
    async with proxy.running(), BareEnd(proxy, era, capabilities=DECLARED) as end:
        assert await announced(end) == {UI: {}}


# ---------------------------------------------------------------- extensions with methods


@both_eras
async def test_an_extension_of_a_mounted_server_is_announced_and_served(era: Era) -> None:
    """EXT-01."""
    jobs = Jobs()
    outer = holding(holding(served(jobs)), weather())
    async with BareEnd(outer, era, capabilities=DECLARED) as end:
        assert await announced(end) == {JOBS: {"most": 5}, UI: {}}
        assert (await end.ask("jobs/get", {"jobId": "1"}))["state"] == "working"
        assert (await end.refusal("jobs/get", {"jobId": 1}))["code"] == -32602
        await end.tell("notifications/jobs/seen", {"jobId": "7"})
        await end.ask("jobs/about")
        assert jobs.heard == ["7"]
    async with BareEnd(outer, era) as end:
        assert (await end.refusal("jobs/get", {"jobId": "1"}))["code"] == (-32021 if era == "2026" else -32600)


@pytest.mark.foreign_words("a result of the extension's own type")
async def test_results_of_its_own_type_pass_through_the_outer_server() -> None:
    outer = holding(served())
    async with BareEnd(outer, capabilities=DECLARED) as end:
        assert (await end.ask("tools/call", {"name": "a_slow", "arguments": {}}))["jobId"] == "1"
    async with BareEnd(outer) as end:
        assert (await end.refusal("tools/call", {"name": "a_slow", "arguments": {}}))["code"] == -32021


@pytest.mark.foreign_words("a filter of the extension's own")
async def test_its_topics_are_listened_to_through_the_outer_server() -> None:
    jobs = Jobs()
    inner = served(jobs)
    outer = holding(inner)
    async with BareEnd(outer, capabilities=DECLARED) as end:
        task, said = await listening(end, {"jobIds": ["1"]})
        assert said["notifications"] == {"jobIds": ["1"]}
        inner.notify(Changed("jobs", "1"))
        assert (await end.wait_for("notifications/jobs"))["state"] == "working"
        await outer._drain()
        await asyncio.wait_for(task, 5)


async def test_the_middleware_and_the_state_of_a_mounted_server_are_around_its_extensions() -> None:
    inner = served()
    seen: list[str] = []

    async def note(ctx: Any, call_next: Any) -> Any:
        seen.append(ctx.method)
        return await call_next(ctx)

    inner.add_middleware(note)
    async with BareEnd(holding(inner), capabilities=DECLARED) as end:
        await end.ask("jobs/get", {"jobId": "1"})
    assert seen == ["jobs/get"]


async def test_what_is_unmounted_takes_its_extensions_along() -> None:
    inner = served()
    outer = holding(inner, weather())
    outer.unmount(inner)
    async with BareEnd(outer, capabilities=DECLARED) as end:
        assert await announced(end) == {UI: {}}
        assert (await end.refusal("jobs/get", {"jobId": "1"}))["code"] == -32601


async def test_the_outer_servers_own_extension_goes_first() -> None:
    own = Jobs()
    own.jobs["1"] = "mine"
    outer: Server[Any] = Server("outer")
    outer.add_extension(own)
    outer.mount(served(), "a")
    outer.mount(served(), "b")
    async with BareEnd(outer, capabilities=DECLARED) as end:
        assert (await end.ask("jobs/get", {"jobId": "1"}))["state"] == "mine"


def test_an_extension_with_methods_is_in_one_mounted_server_only() -> None:
    """Nothing in a request would tell which one it is for; extensions without methods may be in many."""
    outer = holding(served())
    with pytest.raises(DefinitionError) as caught:
        outer.mount(served(), "b")
    assert str(caught.value) == (
        "'extended' and 'extended' both have the extension 'com.example/jobs', whose requests carry no prefix: add it to "
        "'outer', or mount one of them"
    )
    outer.mount(weather(), "c")
    outer.mount(holding(weather()), "d")
