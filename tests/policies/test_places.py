"""Every effect at every place where a policy can stand, in both eras."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gemel import Client, Context, DefinitionError, InvalidParams, PeerError, Server
from gemel.policies import Policy, PolicyRequest
from gemel.protocol.eras.base import EraName
from gemel.testing import both_eras
from tests.policies.places import CLIENT_PLACES, PLACES, SERVER_PLACES, Person, make_server
from tests.wire.talk import talking

RULES: dict[str, Any] = {
    "trust_hints": ["box"],
    "rule": [
        {"tool": ["read", "*_read", "clean", "*_clean"], "effect": "allow"},
        {"tool": ["add", "*_add"], "arguments": {"path": "/tmp/*"}, "effect": "allow"},
        {"tool": ["add", "*_add"], "arguments": {"path": "/etc/*"}, "effect": "deny"},
        {"tool": ["add", "*_add"], "effect": "ask"},
    ],
}
everywhere = pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)


@both_eras
@everywhere
async def test_what_is_allowed_runs_and_nobody_is_asked(place: Any, era: EraName) -> None:
    person = Person()
    async with place(Policy(RULES), era, person) as caller:
        assert (await caller.call("read", path="a")).text == "content of a"
        assert not (await caller.call("add", path="/tmp/a")).is_error
        assert caller.ran == ["read a", "add /tmp/a 1"]
    assert not person.asked


@both_eras
@everywhere
async def test_what_is_never_allowed_is_not_listed(place: Any, era: EraName) -> None:
    async with place(Policy(RULES), era, Person()) as caller:
        assert await caller.names() == ["read", "add", "clean"]


@both_eras
@pytest.mark.parametrize("place", SERVER_PLACES, ids=lambda place: place.__name__)
async def test_for_a_server_it_is_unknown_like_one_that_does_not_exist(place: Any, era: EraName) -> None:
    async with place(Policy(RULES), era, Person()) as caller:
        hidden = await caller.call("delete", path="a")
        missing = await caller.call("delete_", path="a")
        assert hidden.is_error
        assert hidden.text.replace("delete", "delete_") == missing.text
        assert not caller.ran


@both_eras
@pytest.mark.parametrize("place", CLIENT_PLACES, ids=lambda place: place.__name__)
async def test_for_a_client_the_error_says_that_its_policy_denies_it(place: Any, era: EraName) -> None:
    async with place(Policy(RULES), era, Person()) as caller:
        await caller.names()
        denied = await caller.call("delete", path="a")
        assert denied.is_error
        assert re.search("policy does not allow delete|No server has tool 'delete'", denied.text)
        assert not caller.ran


@both_eras
@everywhere
async def test_what_is_denied_by_its_arguments_is_listed_and_fails(place: Any, era: EraName) -> None:
    async with place(Policy(RULES), era, Person()) as caller:
        denied = await caller.call("add", path="/etc/passwd")
        assert denied.is_error
        assert "policy does not allow" in denied.text
        assert not caller.ran


@both_eras
@everywhere
async def test_a_person_is_asked_with_the_exact_arguments_and_may_allow(place: Any, era: EraName) -> None:
    person = Person()
    async with place(Policy(RULES), era, person) as caller:
        assert (await caller.call("add", path="/home/a", size=7)).text == "added"
        assert caller.ran == ["add /home/a 7"]
    (message,) = person.asked
    assert '"path": "/home/a"' in message
    assert '"size": 7' in message


@both_eras
@everywhere
async def test_a_person_may_refuse(place: Any, era: EraName) -> None:
    person = Person(allows=False)
    async with place(Policy(RULES), era, person) as caller:
        refused = await caller.call("add", path="/home/a")
        assert refused.is_error
        assert "did not allow" in refused.text
        assert not caller.ran
    assert len(person.asked) == 1


@both_eras
@everywhere
async def test_where_nobody_can_be_asked_nothing_runs(place: Any, era: EraName) -> None:
    async with place(Policy(RULES), era, None) as caller:
        assert (await caller.call("add", path="/home/a")).is_error
        assert not caller.ran


@both_eras
@everywhere
async def test_a_function_of_the_application_may_be_asked_instead(place: Any, era: EraName) -> None:
    asked: list[PolicyRequest] = []

    async def ask(request: PolicyRequest) -> bool:
        asked.append(request)
        return request.arguments == {"path": "/home/a", "size": 1}

    async with place(Policy(RULES, ask=ask), era, None) as caller:
        assert (await caller.call("add", path="/home/a", size=1)).text == "added"
        assert (await caller.call("add", path="/home/b", size=1)).is_error
        assert caller.ran == ["add /home/a 1"]
    assert [request.tool.removeprefix(caller.prefix) for request in asked] == ["add", "add"]


@both_eras
@everywhere
async def test_a_function_decides(place: Any, era: EraName) -> None:
    seen: list[PolicyRequest] = []

    async def decide(request: PolicyRequest) -> Any:
        seen.append(request)
        if request.is_listing:
            return "deny" if request.tool.endswith("delete") else "allow"
        return "allow" if (request.arguments or {}).get("path") == "a" else "deny"

    async with place(Policy(decide), era, Person()) as caller:
        assert await caller.names() == ["read", "add", "clean"]
        assert not (await caller.call("read", path="a")).is_error
        assert (await caller.call("read", path="b")).is_error
        assert caller.ran == ["read a"]
    (call, *_) = [request for request in seen if not request.is_listing]
    assert call.tool in ("read", "box_read")
    assert call.arguments == {"path": "a"}


@both_eras
@pytest.mark.parametrize("place", SERVER_PLACES[:2], ids=lambda place: place.__name__)
async def test_a_call_by_a_handler_is_a_call(place: Any, era: EraName) -> None:
    async with place(Policy(RULES), era, Person()) as caller:
        result = await caller.call("clean", path="a")
        assert result.is_error
        assert "Unknown tool" in result.text
        assert not caller.ran


@both_eras
async def test_each_call_by_a_handler_is_asked_for(era: EraName) -> None:
    server, ran = make_server()
    server.add_middleware(Policy({"default": "allow", "rule": [{"tool": "delete", "effect": "ask"}]}))

    @server.tool
    async def twice(ctx: Context) -> str:
        return "".join([(await ctx.call_tool("delete", {"path": path})).text for path in ("a", "b", "b")])

    person = Person()
    async with Client(server, era=era, on_elicit=person) as client:
        assert (await client.call_tool("twice", {})).text == "deleted" * 3
    assert ran[-3:] == ["delete a", "delete b", "delete b"]
    assert len(person.asked) == 3


async def test_names_that_are_similar_to_an_unknown_one_are_visible_ones() -> None:
    server, _ = make_server()
    server.add_middleware(Policy({"default": "allow", "rule": [{"tool": "delete", "effect": "deny"}]}))
    async with Client(server) as client:
        with pytest.raises(PeerError) as hidden:
            await client.call_tool("deleet", {})
        assert "delete" not in str(hidden.value).replace("deleet", "")
        with pytest.raises(PeerError, match="Did you mean 'read'"):
            await client.call_tool("raed", {})


async def test_a_policy_runs_only_where_it_was_added() -> None:
    with pytest.raises(DefinitionError, match="has to be added"):
        await Policy(RULES)(None, None)  # type: ignore[arg-type]  # nobody calls it like this


@both_eras
async def test_one_policy_may_stand_in_several_places(era: EraName) -> None:
    """Each of them decides about the names that it sees."""
    policy = Policy({"rule": [{"server": ["inner", "files"], "tool": ["read", "inner_*"], "effect": "allow"}]})
    server, ran = make_server()
    server.add_middleware(policy)
    outer = Server("outer", middleware=[policy])
    outer.mount(server, "inner")
    async with Client(outer, era=era) as client:
        assert [tool.name for tool in await client.list_tools()] == ["inner_read"]
        assert (await client.call_tool("inner_read", {"path": "a"})).text == "content of a"
        with pytest.raises(PeerError):
            await client.call_tool("inner_add", {"path": "a"})
    assert ran == ["read a"]


@pytest.mark.foreign_words("arguments that are no object")
async def test_arguments_that_are_no_object_are_refused() -> None:
    server, ran = make_server()
    server.add_middleware(Policy({"default": "allow"}))
    async with Client(server) as client:
        with pytest.raises(PeerError) as refused:
            await client.request("tools/call", {"name": "read", "arguments": '{"path": "a"}'})
        assert refused.value.code == InvalidParams.code
    assert not ran


async def test_a_client_sends_no_call_that_can_not_be_judged() -> None:
    server, ran = make_server()
    async with Client(server, middleware=[Policy({"default": "allow"})]) as client:
        for params in ({}, {"name": 3}, {"name": "read", "arguments": '{"path": "a"}'}):
            assert (await client.request("tools/call", params))["isError"]
    assert not ran


@both_eras
async def test_middleware_of_a_proxy_with_a_prefix_runs_once(era: EraName) -> None:
    calls: list[str] = []

    async def note(ctx: Any, call_next: Any) -> Any:
        if ctx.method == "tools/call":
            calls.append(ctx.decoded_params["name"])
        return await call_next(ctx)

    server, _ = make_server()
    proxy = Server.from_client(Client(server), prefix="box", middleware=[note])
    async with Client(proxy, era=era) as client:
        await client.call_tool("box_read", {"path": "a"})
    assert calls == ["box_read"]


@both_eras
@pytest.mark.parametrize("effect", ["allow", "deny", "ask"])
async def test_a_notification_with_the_name_of_a_call_runs_and_logs_nothing(
    effect: str, era: EraName, caplog: pytest.LogCaptureFixture
) -> None:
    server, ran = make_server()
    server.add_middleware(Policy({"default": effect}))
    async with talking(server, era, elicitation={"form": {}}) as talk:
        await talk.say({"method": "tools/call", "params": {"name": "delete", "arguments": {"path": "x"}}})
        assert "result" in await talk.ask("tools/list")
        assert talk.heard() == []
    assert ran == caplog.messages == []
