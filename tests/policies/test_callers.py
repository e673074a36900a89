"""Rules about callers, servers and hints, and for how long an approval counts."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gemel import (
    Client,
    ClientGroup,
    Context,
    Implementation,
    PeerError,
    Principal,
    Server,
    Tool,
    ToolAnnotations,
    ToolError,
)
from gemel.decisions import Decision, approving, decisions
from gemel.extensions.tasks.tasks import Tasks
from gemel.policies import Hints, Policy, PolicyRequest
from gemel.policies.request import hints_of
from gemel.protocol.eras.base import EraName
from gemel.testing import both_eras
from tests.policies.places import Person, make_server


async def names(server: Any, **options: Any) -> list[str]:
    async with Client(server, **options) as client:
        return [tool.name for tool in await client.list_tools()]


# ---------------------------------------------------------------- who calls


@both_eras
async def test_lists_and_calls_depend_on_principal_and_scopes(era: EraName) -> None:
    server, ran = make_server()
    rules = [
        {"tool": "read", "principal": ["anna", "bob"], "effect": "allow"},
        {"tool": "delete", "scopes": ["files", "admin"], "effect": "allow"},
    ]
    server.add_middleware(Policy({"rule": rules}))
    admin = Principal("anna", frozenset({"files", "admin", "other"}))
    assert await names(server, era=era) == []
    assert await names(server, era=era, principal="eve") == []
    assert await names(server, era=era, principal="ANNA") == []
    assert await names(server, era=era, principal="bob") == ["read"]
    assert await names(server, era=era, principal=Principal("bob", frozenset({"files"}))) == ["read"]
    assert await names(server, era=era, principal=admin) == ["read", "delete"]
    async with Client(server, era=era, principal="bob") as client:
        assert (await client.call_tool("delete", {"path": "a"}, raise_on_error=False)).is_error
    async with Client(server, era=era, principal=admin) as client:
        await client.call_tool("delete", {"path": "a"})
    assert ran == ["delete a"]


@both_eras
async def test_a_list_that_depends_on_the_caller_is_private(era: EraName) -> None:
    server, _ = make_server()
    server.add_middleware(Policy({"default": "allow", "rule": [{"principal": "anna", "effect": "deny"}]}))
    async with Client(server, era=era) as client:
        page = await client.request("tools/list", {})
    assert page.get("cacheScope") == ("private" if era == "2026" else None)


@both_eras
async def test_lists_do_not_depend_on_what_a_client_calls_itself_and_calls_may(era: EraName) -> None:
    server, ran = make_server()
    server.add_middleware(Policy({"rule": [{"tool": "read", "client": "good*", "effect": "allow"}]}))
    for name in ("good", "bad"):
        async with Client(server, era=era, info=Implementation(name=name, version="1")) as client:
            assert [tool.name for tool in await client.list_tools()] == ["read"]
            result = await client.call_tool("read", {"path": name}, raise_on_error=False)
            assert result.is_error is (name == "bad")
    assert ran == ["read good"]


@both_eras
async def test_the_client_of_an_authenticated_caller_is_the_one_that_was_authenticated(era: EraName) -> None:
    seen: list[PolicyRequest] = []

    def decide(request: PolicyRequest) -> Any:
        seen.append(request)
        return "allow"

    server, _ = make_server()
    server.add_middleware(Policy(decide))
    async with Client(server, era=era, principal=Principal("anna", client="app-1")) as client:
        await client.call_tool("read", {"path": "a"})
    assert (seen[-1].principal, seen[-1].client) == ("anna", "app-1")


@both_eras
async def test_a_function_sees_the_claims_of_the_token(era: EraName) -> None:
    def decide(request: PolicyRequest) -> Any:
        return "allow" if "editor" in request.claims.get("roles", ()) else "deny"

    server, _ = make_server()
    server.add_middleware(Policy(decide))
    assert await names(server, era=era, principal="fay") == []
    editor = Principal("eve", claims={"roles": ["editor"]})
    assert len(await names(server, era=era, principal=editor)) == 4
    async with Client(server, era=era, principal=editor) as client:
        assert (await client.call_tool("read", {"path": "a"})).text == "content of a"
    assert "editor" not in repr(PolicyRequest(tool="a", claims={"roles": ["editor"]}))


# ---------------------------------------------------------------- hints


def test_hints_have_the_defaults_of_the_specification() -> None:
    """TOOL-10."""
    assert hints_of(None) == Hints(read_only=False, destructive=True, idempotent=False, open_world=True)
    assert hints_of(ToolAnnotations(idempotent_hint=True)).idempotent
    assert hints_of({"destructiveHint": "no", "readOnlyHint": 1}) == Hints()
    assert not hints_of({"readOnlyHint": True}).destructive
    assert hints_of({"readOnlyHint": True, "destructiveHint": True}).destructive


READ_ONLY: dict[str, Any] = {"rule": [{"hints": {"read_only": True}, "effect": "allow"}]}


@both_eras
async def test_hints_of_own_tools_count_and_are_those_of_the_registry(era: EraName) -> None:
    server, ran = make_server()
    server.add_middleware(Policy(READ_ONLY))
    async with Client(server, era=era) as client:  # without listing first
        assert not (await client.call_tool("read", {"path": "a"})).is_error
        assert (await client.call_tool("add", {"path": "a"}, raise_on_error=False)).is_error
    assert ran == ["read a"]
    assert await names(server, era=era) == ["read", "clean"]


@both_eras
@pytest.mark.parametrize("trusted", [[], ["other"], ["b?x"]])
async def test_hints_of_other_servers_count_only_if_these_are_trusted(era: EraName, trusted: list[str]) -> None:
    server, ran = make_server()
    outer = Server("outer", middleware=[Policy({**READ_ONLY, "trust_hints": trusted})])
    outer.mount(Server.from_client(Client(server)), "box")
    async with Client(outer, era=era) as client:
        result = await client.call_tool("box_read", {"path": "a"}, raise_on_error=False)
        assert result.is_error is (trusted != ["b?x"])
        assert [tool.name for tool in await client.list_tools()] == (
            ["box_read", "box_clean"] if trusted == ["b?x"] else []
        )
    assert ran == ([] if result.is_error else ["read a"])


@both_eras
@pytest.mark.parametrize("trusted", [[], ["box"]])
async def test_a_client_trusts_no_server_unless_told(era: EraName, trusted: list[str]) -> None:
    server, _ = make_server()
    policy = Policy({**READ_ONLY, "trust_hints": trusted})
    async with ClientGroup({"box": server}, era=era, middleware=[policy]) as group:
        assert [tool.name for tool in await group.list_tools()] == (["read", "clean"] if trusted else [])
    named = Policy({**READ_ONLY, "trust_hints": trusted}, server="box")
    assert await names(server, era=era, middleware=[named]) == (["read", "clean"] if trusted else [])
    assert await names(server, era=era, middleware=[policy]) == []


async def test_a_missing_hint_counts_as_the_worse_one() -> None:
    server = Server("one")

    @server.tool
    def tool() -> str:
        return "ran"

    server.add_middleware(Policy({"default": "allow", "rule": [{"hints": {"destructive": True}, "effect": "deny"}]}))
    assert await names(server) == []


@both_eras
async def test_rules_about_servers_see_the_prefixes_of_mounts(era: EraName) -> None:
    seen: dict[str, str | None] = {}

    def decide(request: PolicyRequest) -> Any:
        seen[request.tool] = request.server
        return "allow"

    here, _ = make_server("own")
    here.add_middleware(Policy(decide))
    here.mount(make_server("local")[0], "box")
    here.mount(Server.from_client(Client(make_server("remote")[0]), name="far"), "far")
    async with Client(here, era=era) as client:
        await client.list_tools()
    assert {seen["read"], seen["clean"]} == {"own"}
    assert seen["box_read"] == "box"
    assert seen["far_read"] == "far"


async def test_a_rule_about_a_server_that_is_not_known_counts_against_the_call() -> None:
    server, _ = make_server()
    allow = Policy({"rule": [{"server": "*", "effect": "allow"}]})
    deny = Policy({"default": "allow", "rule": [{"server": "other", "effect": "deny"}]})
    assert await names(server, middleware=[allow]) == []
    assert await names(server, middleware=[deny]) == []


# ---------------------------------------------------------------- remembering


def asking(remember: str, **rule: Any) -> Policy:
    return Policy({"rule": [{"effect": "ask", "remember": remember, **rule}]})


@both_eras
@pytest.mark.parametrize("principal", [None, "anna"])
@pytest.mark.parametrize("remember", ["call", "10m", "session"])
async def test_an_approval_counts_as_long_as_the_rule_says(era: EraName, principal: str | None, remember: str) -> None:
    """Without a session, and without a name for a time: for this call only."""
    server, ran = make_server()
    server.add_middleware(asking(remember))
    person = Person()
    async with Client(server, era=era, principal=principal, on_elicit=person) as client:
        for path in ("a", "a", "b", "a"):
            await client.call_tool("read", {"path": path})
    has_session = era == "2025"
    remembered = {"call": False, "10m": has_session or principal is not None, "session": has_session}[remember]
    assert len(person.asked) == (2 if remembered else 4)
    assert len(ran) == 4
    async with Client(server, era=era, principal=principal, on_elicit=person) as client:
        await client.call_tool("read", {"path": "a"})
    later = remember == "10m" and principal is not None
    assert len(person.asked) == (2 if remembered else 4) + (0 if later else 1)


@both_eras
async def test_an_approval_is_of_one_caller_tool_and_argument(era: EraName) -> None:
    server, _ = make_server()
    server.add_middleware(asking("10m"))
    anna, bob = Person(), Person()
    async with Client(server, era=era, principal="anna", on_elicit=anna) as client:
        await client.call_tool("add", {"path": "a"})
        await client.call_tool("add", {"path": "a", "size": 1})  # the default
        await client.call_tool("add", {"path": "a", "size": 2})
        await client.call_tool("delete", {"path": "a"})
    async with Client(server, era=era, principal="bob", on_elicit=bob) as client:
        await client.call_tool("add", {"path": "a"})
    assert (len(anna.asked), len(bob.asked)) == (3, 1)


async def test_a_refusal_is_not_remembered() -> None:
    server, ran = make_server()
    server.add_middleware(asking("session"))
    person = Person(allows=False)
    async with Client(server, era="2025", on_elicit=person) as client:
        await client.call_tool("read", {"path": "a"}, raise_on_error=False)
        person.allows = True
        await client.call_tool("read", {"path": "a"})
    assert len(person.asked) == 2
    assert ran == ["read a"]


@both_eras
@pytest.mark.parametrize(("remember", "asked"), [("call", 3), ("10m", 1), ("session", 1)])
async def test_a_client_remembers_too(era: EraName, remember: str, asked: int) -> None:
    server, _ = make_server()
    person = Person()
    async with Client(server, era=era, on_elicit=person, middleware=[asking(remember)]) as client:
        for _ in range(3):
            await client.call_tool("read", {"path": "a"})
        assert len(person.asked) == asked
        await client.close()
        await client.connect()
        await client.call_tool("read", {"path": "a"})
    assert len(person.asked) == asked + (0 if remember == "10m" else 1)


async def test_a_function_has_remember_as_an_option() -> None:
    server, _ = make_server()
    server.add_middleware(Policy(lambda request: "ask", remember="session"))
    person = Person()
    async with Client(server, era="2025", on_elicit=person) as client:
        await client.call_tool("read", {"path": "a"})
        await client.call_tool("read", {"path": "a"})
    assert len(person.asked) == 1


async def test_processes_that_share_a_backend_share_approvals_for_a_time(tmp_path: Any) -> None:
    person = Person()
    for _ in range(2):
        server = Server("shared", backend=f"sqlite:///{tmp_path}/state.db")

        @server.tool
        def tool() -> str:
            return "ran"

        server.add_middleware(asking("10m"))
        async with Client(server, principal="anna", on_elicit=person) as client:
            await client.call_tool("tool", {})
    assert len(person.asked) == 1


# ---------------------------------------------------------------- what else is a call, and what is noted


@both_eras
async def test_a_server_behind_a_proxy_may_ask_after_the_policy_did(era: EraName) -> None:
    for upstream_era in ("2025", "2026"):
        server = Server("asking")

        @server.tool
        async def tool(ctx: Context, path: str) -> str:
            first = await ctx.elicit("First?", str)
            return f"{path} {first} {await ctx.elicit('Second?', str)}"

        inner = Server.from_client(Client(server, era=upstream_era), name="inner", middleware=[asking("call")])
        outer = Server("outer", middleware=[asking("call")])
        outer.mount(inner, "box")
        asked: list[str] = []

        def answer(form: Any, asked: list[str] = asked) -> Any:
            asked.append(form.message.partition("?")[0])
            return {"allow": True} if form.message.startswith("Allow") else {"value": form.message[:1]}

        async with Client(outer, era=era, on_elicit=answer) as client:
            assert (await client.call_tool("box_tool", {"path": "a"})).text == "a F S"
        assert asked == ["Allow box_tool of box", "Allow tool of inner", "First", "Second"]


@both_eras
async def test_an_approval_of_one_call_is_no_approval_of_another(era: EraName) -> None:
    """The request state of the first one is bound to it."""
    server, ran = make_server()
    server.add_middleware(asking("call"))
    if era == "2025":
        return
    person = Person()
    async with Client(server, era=era, on_elicit=person) as client:
        first = await client.request_raw(
            "tools/call", {"name": "read", "arguments": {"path": "a"}}, ("input_required",), {}
        )
        (key,) = first["inputRequests"]
        answers = {key: {"action": "accept", "content": {"allow": True}}}
        stolen = {"requestState": first["requestState"], "inputResponses": answers}
        with pytest.raises(Exception, match="another request"):
            await client.request("tools/call", {"name": "read", "arguments": {"path": "b"}, **stolen})
        result = await client.request("tools/call", {"name": "read", "arguments": {"path": "a"}, **stolen})
    assert result["content"][0]["text"] == "content of a"
    assert ran == ["read a"]


@both_eras
@pytest.mark.parametrize("principal", [None, Principal("anna", client="app-1")])
async def test_a_call_that_becomes_a_task_is_asked_for_once(era: EraName, principal: Any) -> None:
    server = Server("one")
    server.add_extension(Tasks())

    @server.tool(task=True)
    def tool() -> str:
        return "ran"

    server.add_middleware(asking("call"))
    person = Person()
    async with Client(server, era=era, on_elicit=person, principal=principal) as client:
        task = await client.call_tool("tool", {}, task=True)
        assert (await task.result()).text == "ran"
    assert len(person.asked) == 1


@both_eras
async def test_a_task_that_is_refused_does_not_run(era: EraName) -> None:
    server, ran = Server("one"), list[str]()
    server.add_extension(Tasks())

    @server.tool(task=True)
    def tool() -> None:
        ran.append("ran")

    server.add_middleware(asking("call"))
    async with Client(server, era=era, on_elicit=Person(allows=False)) as client:

        async def result() -> Any:
            return await (await client.call_tool("tool", {}, task=True)).result()

        with pytest.raises((PeerError, ToolError), match="did not allow"):
            await result()
    assert not ran


@both_eras
async def test_decisions_are_noted_for_those_who_read_them(era: EraName) -> None:
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

    rules = [
        {"name": "reads", "tool": "read", "effect": "allow"},
        {"name": "careful", "tool": "add", "effect": "ask"},
    ]
    server, _ = make_server()
    server.add_middleware(reading)
    server.add_middleware(Policy({"rule": rules}))
    async with Client(server, era=era, on_elicit=Person(), principal="anna") as client:
        await client.call_tool("read", {"path": "a"})
        await client.call_tool("add", {"path": "a"})
        await client.call_tool("delete", {"path": "a"}, raise_on_error=False)
    first, *asked, last = noted
    assert first == [Decision("allow", "reads")]
    assert asked[-1] == [Decision("ask", "careful", "anna")]
    assert asked[:-1] == ([[Decision("ask", "careful")]] if era == "2026" else [])
    assert last == [Decision("deny", None)]


@both_eras
async def test_while_a_policy_asks_others_know_that_it_is_an_approval(era: EraName) -> None:
    seen: list[bool] = []

    async def watch(ctx: Any, call_next: Any) -> Any:
        seen.append(approving.get())
        return await call_next(ctx)

    server, _ = make_server()
    server.add_middleware(asking("call"))
    server.add_middleware(watch)

    def answer(form: Any) -> Any:
        return {"allow": True}

    async with Client(server, era=era, on_elicit=answer) as client:
        await client.call_tool("read", {"path": "a"})
    assert not any(seen)


async def test_a_person_sees_every_character_of_the_arguments() -> None:
    server, _ = make_server()
    server.add_middleware(asking("call"))
    person = Person()
    async with Client(server, on_elicit=person) as client:
        await client.call_tool("read", {"path": "a\u202eb\u200b\x1b"})
        await client.call_tool("read", {"path": "x" * 10_000})
    short, long = person.asked
    assert "\\u202e" in short
    assert "\\u200b" in short
    assert "\x1b" not in short
    assert len(long) < 5000
    assert "(9000 more characters)" in long
    assert "SHA-256" in long
    assert "SHA-256" not in short


@pytest.mark.parametrize(
    "padding",
    [
        "x" * 100_000,
        "\n" * 100_000,
        "\u202e" * 3999,
        ["x"] * 5000,
        ["y" * 1000] * 100,
        [{"x": "z" * 1000}] * 9,
        {"k" * 9999: 1},
    ],
    ids=range(7),
)
async def test_a_long_argument_hides_no_other_one(padding: Any) -> None:
    server, person = Server("bank"), Person()

    @server.tool
    def pay(account: str, amount: int, note: Any, to: str) -> None: ...

    server.add_middleware(asking("call"))
    async with Client(server, on_elicit=person) as client:
        given = {"account": "x" * 900, "amount": 77, "note": padding, "to": "Eve"}
        await client.call_tool("pay", given, raise_on_error=False)
    (asked,) = person.asked
    assert '"amount": 77' in asked
    assert '"to": "Eve"' in asked
    assert "more" in asked
    assert len(asked) < 5000


@pytest.mark.parametrize(
    ("remember", "text"),
    [
        ("90s", "within 90 seconds"),
        ("10m", "within 10 minutes"),
        ("60m", "within 1 hour)"),
        ("session", "in this session"),
    ],
)
async def test_a_person_is_told_for_how_long_a_yes_counts(remember: str, text: str) -> None:
    server, person = make_server()[0], Person()
    server.add_middleware(asking(remember))
    async with Client(server, era="2025", on_elicit=person) as client:
        await client.call_tool("read", {"path": "a"})
    (asked,) = person.asked
    assert text in asked


@pytest.mark.parametrize(
    ("remember", "principal", "is_told"), [("session", "anna", False), ("10m", None, False), ("10m", "anna", True)]
)
async def test_a_person_is_not_told_of_what_can_not_be_remembered(
    remember: str, principal: str | None, is_told: bool
) -> None:
    server, person = make_server()[0], Person()
    server.add_middleware(asking(remember))
    async with Client(server, era="2026", on_elicit=person, principal=principal) as client:
        for _ in range(2):
            await client.call_tool("read", {"path": "a"})
    assert ["not again" in asked for asked in person.asked] == ([True] if is_told else [False, False])


@pytest.mark.parametrize(("back", "asked"), [(0, 1), (3600, 2), (-3600, 2)])
async def test_an_approval_counts_no_longer_if_the_clock_is_set_back(
    monkeypatch: pytest.MonkeyPatch, back: float, asked: int
) -> None:
    server, person = make_server()[0], Person()
    server.add_middleware(asking("10m"))
    real = time.time
    async with Client(server, era="2025", on_elicit=person) as client:
        await client.call_tool("read", {"path": "a"})
        monkeypatch.setattr(time, "time", lambda: real() - back)
        await client.call_tool("read", {"path": "a"})
    assert len(person.asked) == asked


async def test_a_tool_of_a_list_has_no_arguments() -> None:
    assert PolicyRequest(tool="a").is_listing
    assert not PolicyRequest(tool="a", arguments={}).is_listing
    assert Tool(name="a", input_schema={}).name == "a"
