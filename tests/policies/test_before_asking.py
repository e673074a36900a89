"""Before a policy asks a person: the tool exists for this caller, its scopes suffice, and its arguments are valid."""

from __future__ import annotations

from typing import Any

import pytest

from gemel import Client, Context, PeerError, Principal, Server, ToolChange, ToolChanges
from gemel.code import CodeMode
from gemel.decisions import Decision, decisions
from gemel.errors import HttpStatus
from gemel.policies import Policy
from gemel.protocol.eras.base import EraName
from gemel.testing import both_eras
from tests.policies.places import PLACES, Person, around_group, make_server
from tests.serving import over_http

everywhere = pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
ASK: dict[str, Any] = {"default": "ask"}


def make_shop(**options: Any) -> tuple[Server, list[str]]:
    """A server with a tool for everybody, one that is hidden, two that need a scope, and the calls that its functions saw."""
    server, ran = Server("shop", **options), list[str]()

    @server.tool
    def sell(item: str) -> str:
        ran.append("sell")
        return "sold"

    @server.tool(visible=lambda caller: caller.principal == "boss")
    def purge(item: str) -> str:
        ran.append("purge")
        return "purged"

    @server.tool(scopes=["shop.write"])
    def wipe(item: str) -> str:
        ran.append("wipe")
        return "wiped"

    @server.tool(scopes=["shop.write"], without_scopes="hide")
    def clear(item: str) -> str:
        ran.append("clear")
        return "cleared"

    return server, ran


async def answer(client: Client, name: str, /, **arguments: Any) -> str:
    """What a caller reads, as a result or as an error."""
    try:
        return (await client.call_tool(name, arguments, raise_on_error=False)).text
    except PeerError as exc:
        return str(exc)


@both_eras
@everywhere
async def test_nobody_is_asked_about_a_tool_that_does_not_exist(place: Any, era: EraName) -> None:
    person = Person()
    async with place(Policy(ASK), era, person) as caller:
        missing = await caller.call("raed", path="a")
        assert missing.is_error
        assert not missing.text.startswith("The user")
        if place is not around_group:  # which knows itself whose tools there are
            assert missing.text.startswith(f"Unknown tool: {caller.prefix}raed. Did you mean '{caller.prefix}read'?")
        assert not person.asked
        assert (await caller.call("read", path="a")).text == "content of a"
        assert person.asked


@both_eras
@everywhere
async def test_a_typo_is_told_to_clients_without_forms_too(place: Any, era: EraName) -> None:
    async with place(Policy(ASK), era, None) as caller:
        missing = await caller.call("raed", path="a")
        assert "elicitation" not in missing.text
        assert "raed" in missing.text


@both_eras
@pytest.mark.parametrize("prefix", [None, "box"])
async def test_a_hidden_tool_answers_like_one_that_does_not_exist(prefix: str | None, era: EraName) -> None:
    server, ran = make_shop()
    outer = Server("outer", middleware=[Policy(ASK)])
    outer.mount(server, prefix)
    head = "" if prefix is None else f"{prefix}_"
    person = Person()
    async with Client(outer, era=era, on_elicit=person, principal=Principal("ann")) as client:
        for name in ("purge", "clear"):
            hidden = await answer(client, head + name, item="a")
            missing = await answer(client, f"{head}{name}x", item="a")
            assert missing.startswith("Unknown tool: ")
            assert hidden == missing.replace(f"{name}x", name)
    assert not person.asked
    assert not ran
    boss = Principal("boss", frozenset({"shop.write"}))
    async with Client(outer, era=era, on_elicit=person, principal=boss) as client:
        assert await answer(client, f"{head}purge", item="a") == "purged"
        assert await answer(client, f"{head}clear", item="a") == "cleared"
    assert ran == ["purge", "clear"]


@both_eras
async def test_a_tool_that_a_policy_behind_hides_is_unknown(era: EraName) -> None:
    server, ran = make_server()
    server.add_middleware(Policy({"default": "allow", "rule": [{"tool": "delete", "effect": "deny"}]}))
    outer = Server("outer", middleware=[Policy(ASK)])
    outer.mount(server, "box")
    person = Person()
    async with Client(outer, era=era, on_elicit=person) as client:
        hidden = await answer(client, "box_delete", path="a")
        assert hidden == (await answer(client, "box_deletex", path="a")).replace("deletex", "delete")
    assert not person.asked
    assert not ran


@both_eras
async def test_a_denial_does_not_tell_that_a_tool_exists(era: EraName) -> None:
    """Also one by arguments, which is an error of a tool that is listed."""
    rules = [{"arguments": {"item": "secret*"}, "effect": "deny"}]
    server, _ = make_shop(middleware=[Policy({"default": "allow", "rule": rules})])
    async with Client(server, era=era, principal=Principal("ann")) as client:
        assert "policy does not allow sell" in await answer(client, "sell", item="secret")
        hidden = await answer(client, "purge", item="secret")
        missing = await answer(client, "purgex", item="secret")
        assert missing.startswith("Unknown tool: ")
        assert hidden == missing.replace("purgex", "purge")


@both_eras
async def test_scopes_and_arguments_come_before_the_question(era: EraName) -> None:
    server, ran = make_shop(middleware=[Policy(ASK)])
    person = Person()
    async with Client(server, era=era, on_elicit=person, principal=Principal("ann")) as client:
        assert "Insufficient scope: this needs shop.write" in await answer(client, "wipe", item="a")
        assert "item" in await answer(client, "sell", amount=1)
        assert not person.asked
        assert await answer(client, "sell", item="a") == "sold"
    assert len(person.asked) == len(ran) == 1


@both_eras
async def test_over_http_the_challenge_comes_before_the_question(era: EraName) -> None:
    server, ran = make_shop(middleware=[Policy(ASK)])
    person = Person()
    async with (
        over_http(server, authenticate=lambda scope, headers: Principal("ann")) as url,
        Client(url, era=era, on_elicit=person) as client,
    ):
        with pytest.raises(HttpStatus) as refused:
            await client.call_tool("wipe", {"item": "a"})
    assert refused.value.status == 403
    assert 'scope="shop.write"' in refused.value.headers["www-authenticate"]
    assert not person.asked
    assert not ran


@both_eras
@pytest.mark.parametrize("mounted", [True, False])
async def test_scopes_of_changed_tools_come_before_the_question(mounted: bool, era: EraName) -> None:
    server, ran = make_shop()
    changes = {"sell": ToolChange(name="vend", scopes=["shop.sell"])}
    outer = Server("outer", middleware=[Policy(ASK)])
    if mounted:
        outer.mount(server, "box", tools=changes)
    else:
        outer.add_middleware(ToolChanges({"box_sell": ToolChange(name="box_vend", scopes=["shop.sell"])}))
        outer.mount(server, "box")
    person = Person()
    async with Client(outer, era=era, on_elicit=person, principal=Principal("ann")) as client:
        assert "Insufficient scope: this needs shop.sell" in await answer(client, "box_vend", item="a")
        assert not person.asked
    seller = Principal("ann", frozenset({"shop.sell"}))
    async with Client(outer, era=era, on_elicit=person, principal=seller) as client:
        assert await answer(client, "box_vend", item="a") == "sold"
    assert len(person.asked) == len(ran) == 1


@both_eras
async def test_code_mode_behind_a_policy_is_no_way_around_it(era: EraName) -> None:
    """It lists few tools; those that it does not list can be called, and are asked for."""
    server, ran = make_server()
    server.add_middleware(Policy(ASK))
    server.add_middleware(CodeMode("search"))
    person = Person()
    async with Client(server, era=era, on_elicit=person) as client:
        assert await answer(client, "read", path="a") == "content of a"
        assert len(person.asked) == 1
        found = await answer(client, "call_tool", name="files.read", arguments={"path": "b"})
        assert found == "content of b"
        assert [text.partition("?")[0] for text in person.asked[1:]] == ["Allow call_tool", "Allow read of files"]
        assert "Unknown tool" in await answer(client, "nosuch")
    assert len(person.asked) == 3
    assert ran == ["read a", "read b"]


@both_eras
async def test_calls_within_calls_ask_about_tools_of_their_caller_only(era: EraName) -> None:
    server, ran = make_shop(middleware=[Policy({"default": "ask", "rule": [{"tool": "try_*", "effect": "allow"}]})])

    @server.tool
    async def try_one(ctx: Context, name: str) -> str:
        return (await ctx.call_tool(name, {"item": "a"})).text

    person = Person()
    async with Client(server, era=era, on_elicit=person, principal=Principal("ann")) as client:
        for name in ("purge", "clear", "nosuch"):
            assert f"Unknown tool: {name}" in await answer(client, "try_one", name=name)
        assert "shop.write" in await answer(client, "try_one", name="wipe")
        assert not person.asked
        assert await answer(client, "try_one", name="sell") == "sold"
    assert ran == ["sell"]


async def test_no_decision_is_noted_about_a_tool_that_does_not_exist() -> None:
    noted: list[list[Decision]] = []

    async def reading(ctx: Any, call_next: Any) -> Any:
        log: list[Decision] = []
        token = decisions.set(log)
        try:
            return await call_next(ctx)
        finally:
            decisions.reset(token)
            if ctx.method == "tools/call":
                noted.append(log)

    server, _ = make_shop(middleware=[reading, Policy(ASK)])
    async with Client(server, on_elicit=Person()) as client:
        await answer(client, "nosuch")
    assert noted == [[]]


@both_eras
async def test_a_question_that_can_not_be_asked_names_its_rule_and_the_log_helps_once(
    era: EraName, caplog: pytest.LogCaptureFixture
) -> None:
    rules = [{"name": "destructive tools", "tool": "sell", "effect": "ask"}]
    server, ran = make_shop(middleware=[Policy({"default": "allow", "rule": rules})])
    async with Client(server, era=era) as client:
        for _ in range(2):
            said = await answer(client, "sell", item="a")
            assert "elicitation, by which the policy asks before sell is called (destructive tools)" in said
    assert not ran
    assert [
        record.message.count("AskByPage") for record in caplog.records if "destructive tools" in record.message
    ] == [1]
