"""`scopes=`: who may call a tool, read a resource, get a prompt, and what others are told, in both eras on every transport."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

from gemel import (
    Apps,
    CacheHint,
    Changed,
    Client,
    Context,
    DefinitionError,
    HttpStatus,
    InsufficientScope,
    PeerError,
    Principal,
    Refusal,
    Router,
    Server,
    ToolChange,
)
from gemel.auth import TokenAuth
from gemel.protocol.scopes import ScopeHierarchy
from tests.server.bare_end import BareEnd, Era
from tests.serving import running
from tests.support import Origin
from tests.transports.http_rig import (
    JSON_HEADERS,
    Site,
    handshake_call,
    initialize,
    modern,
    modern_call,
    serving,
    text_of,
)

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])

READER = Principal("ben", frozenset({"notes.read"}))
WRITER = Principal("anna", frozenset({"notes.read", "notes.write"}))
TOKENS = {"Bearer anna": WRITER, "Bearer ben": READER, "Bearer root": Principal("root", frozenset({"notes"}))}
HIERARCHY = {"notes": ["notes.write"], "notes.write": ["notes.read"]}


def authenticate(scope: Any, headers: Any) -> Principal | Refusal | None:
    found = TOKENS.get(headers.get("authorization", ""))
    return found if found is not None or "authorization" not in headers else Refusal(401, "Who are you?")


def add_notes(server: Router, ran: list[str], without_scopes: Literal["refuse", "hide"] = "refuse") -> None:
    """One of each kind, all of which need `notes.write`."""

    @server.tool(scopes=["notes.write"], without_scopes=without_scopes)
    async def add(text: str) -> str:
        ran.append("add")
        return f"added {text}"

    @server.prompt(scopes=["notes.write"], without_scopes=without_scopes)
    async def rewrite(text: str) -> str:
        ran.append("rewrite")
        return f"Rewrite {text}"

    @rewrite.complete("text")
    async def texts(value: str) -> list[str]:
        ran.append("texts")
        return ["secret"]

    @server.resource("notes://drafts", scopes=["notes.write"], without_scopes=without_scopes)
    async def drafts() -> str:
        ran.append("drafts")
        return "a draft"

    @server.resource("notes://draft/{name}", scopes=["notes.write"], without_scopes=without_scopes)
    async def draft(name: str) -> str:
        ran.append("draft")
        return f"draft {name}"


#: The requests that need `notes.write`.
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("tools/call", {"name": "add", "arguments": {"text": "x"}}),
    ("prompts/get", {"name": "rewrite", "arguments": {"text": "x"}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "rewrite"}, "argument": {"name": "text", "value": ""}},
    ),
    ("resources/read", {"uri": "notes://drafts"}),
    ("resources/read", {"uri": "notes://draft/1"}),
]


def notes(without_scopes: Literal["refuse", "hide"] = "refuse", **options: Any) -> tuple[Server[Any], list[str]]:
    server: Server[Any] = Server("notes", **options)
    ran: list[str] = []
    add_notes(server, ran, without_scopes)

    @server.tool
    async def count(ctx: Context[Any]) -> str:
        return f"{ctx.principal} {' '.join(sorted(ctx.scopes))}"

    return server, ran


def origin(principal: Principal) -> Origin:
    return Origin(principal=principal.name, scopes=principal.scopes)


async def ask(site: Site, era: Era, method: str, params: dict[str, Any], token: str | None, accept: str = "") -> Any:
    """One request over HTTP as whoever has this token."""
    extra = {"Authorization": f"Bearer {token}"} if token is not None else {}
    accepts = {"Accept": accept} if accept else {}
    if era == "2026":
        headers, body = modern(method, params)
        name = params.get("name") or params.get("uri")
        named = {"Mcp-Name": name} if name is not None else {}
        return await site.ask({**headers, **named, **extra, **accepts}, body)
    session = await site.session(**extra)
    return await site.ask({**session, **accepts}, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


# ---------------------------------------------------------------- refuse


@both_eras
@pytest.mark.parametrize("token", ["ben", None])
async def test_a_call_without_the_scopes_is_a_403_with_a_challenge(era: Era, token: str | None) -> None:
    """AUTHS-09: in both eras, before the handler runs."""
    server, ran = notes()
    async with serving(server, authenticate=authenticate) as site:
        for method, params in REQUESTS:
            reply = await ask(site, era, method, params, token)
            assert reply.status == 403, method
            assert reply.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="notes.write"'
            error = reply.json()["error"]
            assert error["code"] == 403
            assert error["data"] == {"requiredScopes": ["notes.write"]}
            assert reply.json()["id"] == 1
        assert ran == []
        for method, params in REQUESTS:
            assert (await ask(site, era, method, params, "anna")).status == 200
        assert ran == ["add", "rewrite", "texts", "drafts", "draft"]


@both_eras
async def test_arguments_are_not_looked_at_before_the_scopes(era: Era) -> None:
    server, _ = notes()
    async with BareEnd(server, era, origin=origin(READER)) as end:
        error = await end.refusal("tools/call", {"name": "add", "arguments": {"text": 7}})
        assert error["code"] == 403


@both_eras
async def test_what_is_refused_is_listed_for_all_and_lists_stay_public(era: Era) -> None:
    server, _ = notes(cache={"tools/list": CacheHint(60, "public")})
    async with BareEnd(server, era, origin=origin(READER)) as end:
        assert await end.names() == ["add", "count"]
        assert await end.names("prompts") == ["rewrite"]
        assert await end.names("resources") == ["notes://drafts"]
        assert await end.names("resourceTemplates") == ["notes://draft/{name}"]
        if era == "2026":
            assert (await end.ask("tools/list"))["cacheScope"] == "public"


async def test_what_needs_scopes_is_not_cached_for_others() -> None:
    server, _ = notes(cache={"resources/read": CacheHint(60, "public")})
    server.resource("notes://open")(_folder)
    async with BareEnd(server, origin=origin(WRITER)) as end:
        assert (await end.ask("resources/read", {"uri": "notes://open"}))["cacheScope"] == "public"
        for uri in ("notes://drafts", "notes://draft/1"):
            assert (await end.ask("resources/read", {"uri": uri}))["cacheScope"] == "private"
    with pytest.raises(DefinitionError, match="must not share"):
        server.resource("notes://x", scopes=["a"], scope="public")(_folder)


async def test_a_client_that_takes_event_streams_only_gets_the_status_as_well() -> None:
    server, _ = notes()
    async with serving(server, authenticate=authenticate) as site:
        reply = await ask(site, "2025", *REQUESTS[0], "ben", accept="text/event-stream")
        assert reply.status == 403
        assert "insufficient_scope" in reply.headers["www-authenticate"]


async def test_without_sessions_it_is_a_403_as_well() -> None:
    server, _ = notes()
    headers = {**JSON_HEADERS, "Authorization": "Bearer ben", "MCP-Protocol-Version": "2025-11-25"}
    async with serving(server, authenticate=authenticate, sessions=False) as site:
        for accept in ("application/json, text/event-stream", "text/event-stream"):
            reply = await site.ask({**headers, "Accept": accept}, handshake_call("add", text="x"))
            assert (reply.status, reply.json()["error"]["code"]) == (403, 403)


async def test_over_http_sse_it_is_a_json_rpc_error() -> None:
    """Its POSTs are answered before their messages are served."""
    server, ran = notes()
    async with serving(server, authenticate=authenticate, sse_path="/sse") as site:
        who = {"Authorization": "Bearer ben"}
        stream = await site.call({"Accept": "text/event-stream", **who}, b"", "GET", "/sse")
        assert (await stream.head()).status == 200
        event = await stream.event()
        assert event is not None
        for body in (
            initialize("2024-11-05"),
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            handshake_call("add", text="x"),
        ):
            assert (await site.ask({**JSON_HEADERS, **who}, body, path=event.data.decode())).status == 202
        assert "result" in await stream.message()
        assert (await stream.message())["error"]["data"] == {"requiredScopes": ["notes.write"]}
    assert ran == []


async def test_in_a_batch_it_is_one_error_among_the_answers() -> None:
    server, ran = notes()
    async with serving(server, authenticate=authenticate) as site:
        session = await site.session("2025-03-26", Authorization="Bearer ben")
        batch = [handshake_call("add", 1, text="x"), handshake_call("count", 2)]
        reply = await site.ask(session, batch)
        assert reply.status == 200
        answers = {answer["id"]: answer for answer in reply.json()}
        assert answers[1]["error"]["code"] == 403
        assert text_of(answers[2]) == "ben notes.read"
    assert ran == []


@both_eras
async def test_clients_see_the_challenge(era: Era) -> None:
    server, _ = notes()
    async with serving(server, authenticate=authenticate) as site:
        url = f"http://127.0.0.1:{site.port}/mcp"
        async with Client(url, era=era, auth=lambda: "Bearer ben") as ben:
            assert (await ben.call_tool("count")).text == "ben notes.read"
            with pytest.raises(HttpStatus) as refused:
                await ben.call_tool("add", {"text": "x"})
        assert refused.value.status == 403
        assert str(refused.value).endswith("Insufficient scope: this needs notes.write (403)")
        assert 'scope="notes.write"' in refused.value.headers["www-authenticate"]


# ---------------------------------------------------------------- raised by handlers


def strict() -> Server[Any]:
    server: Server[Any] = Server("strict")

    @server.tool(scopes=["notes.read"])
    async def remove(ctx: Context[Any], name: str, late: bool = False) -> str:
        if late:
            await ctx.report_progress(1, 2)
        if "notes.admin" not in ctx.scopes:
            raise InsufficientScope("notes.admin")
        return f"removed {name}"

    @server.tool
    async def tidy(ctx: Context[Any]) -> str:
        return (await ctx.call_tool("remove", {"name": "old"})).text

    return server


@both_eras
async def test_a_handler_raises_it_and_the_challenge_names_all_scopes_of_the_operation(era: Era) -> None:
    """AUTHS-09, AUTHS-10: those of `scopes=` too, and those of the tools that it calls."""
    async with serving(strict(), authenticate=authenticate) as site:
        for name, arguments in (("remove", {"name": "x"}), ("tidy", {})):
            reply = await ask(site, era, "tools/call", {"name": name, "arguments": arguments}, "ben")
            assert reply.status == 403
            challenge = reply.headers["www-authenticate"]
            assert challenge == 'Bearer error="insufficient_scope", scope="notes.admin notes.read"'


@both_eras
async def test_after_the_response_has_begun_it_is_a_json_rpc_error(era: Era) -> None:
    async with serving(strict(), authenticate=authenticate) as site:
        arguments = {"name": "x", "late": True}
        if era == "2026":
            headers, body = modern_call("remove", **arguments)
            wire = await site.call({**headers, "Authorization": "Bearer ben"}, body)
        else:
            session = await site.session(Authorization="Bearer ben")
            wire = await site.call(session, handshake_call("remove", **arguments))
        assert (await wire.head()).status == 200
        messages = [await wire.message(), await wire.message()]
        assert messages[0]["method"] == "notifications/progress"
        assert messages[1]["error"]["data"] == {"requiredScopes": ["notes.admin", "notes.read"]}


async def test_a_hostile_scope_does_not_get_into_the_header() -> None:
    server: Server[Any] = Server("hostile")

    @server.tool
    async def echo(scope: str) -> str:
        raise InsufficientScope(scope, "ok")

    async with serving(server) as site:
        for scope in ('x" y="z', "a\r\nX-Evil: 1", "b c", "é", "\\"):
            reply = await site.ask(*modern_call("echo", scope=scope))
            assert reply.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="ok"'
            assert "x-evil" not in reply.headers


# ---------------------------------------------------------------- hide


@both_eras
async def test_what_is_hidden_does_not_exist_without_the_scopes(era: Era) -> None:
    server, ran = notes("hide", cache={"tools/list": CacheHint(60, "public")})
    async with (
        BareEnd(server, era, origin=origin(READER)) as ben,
        BareEnd(server, era, origin=origin(WRITER)) as anna,
    ):
        for kind in ("prompts", "resources", "resourceTemplates"):
            assert await ben.names(kind) == []
            assert len(await anna.names(kind)) == 1
        assert await ben.names() == ["count"]
        for method, params in REQUESTS:
            refused = await ben.refusal(method, params)
            text = json.dumps(params).replace("add", "zzzzz").replace("rewrite", "zzzzz").replace("draft", "zzzzz")
            unknown = await ben.refusal(method, json.loads(text))
            assert refused["code"] == unknown["code"] != 403
            await anna.ask(method, params)
        if era == "2026":
            assert (await ben.ask("tools/list"))["cacheScope"] == "private"
    assert len(ran) == len(REQUESTS)


# ---------------------------------------------------------------- hierarchies


@both_eras
async def test_a_scope_may_include_others(era: Era) -> None:
    """AUTHS-11."""
    server, _ = notes(scope_hierarchy=HIERARCHY)
    async with serving(server, authenticate=authenticate) as site:
        for method, params in REQUESTS:
            assert (await ask(site, era, method, params, "root")).status == 200
            assert (await ask(site, era, method, params, "ben")).status == 403
        reply = await ask(site, era, "tools/call", {"name": "count", "arguments": {}}, "root")
        assert text_of(reply.json()) == "root notes notes.read notes.write"


@both_eras
async def test_the_hierarchy_of_the_outer_server_counts(era: Era) -> None:
    inner, _ = notes()
    outer: Server[Any] = Server("outer", scope_hierarchy=HIERARCHY)
    outer.mount(inner, "my")
    async with BareEnd(outer, era, origin=Origin(principal="r", scopes=frozenset({"notes"}))) as end:
        assert await end.text("my_add", text="x") == "added x"


def test_scopes_that_include_each_other_end() -> None:
    server: Server[Any] = Server("circle", scope_hierarchy={"a": ["b"], "b": ["a", "c"]})
    expand = server._description.scope_hierarchy.expand
    assert expand(frozenset({"a"})) == {"a", "b", "c"}
    assert expand(frozenset({"c"})) == {"c"}


# ---------------------------------------------------------------- with Server(auth=…)


def guarded(**options: Any) -> tuple[Server[Any], list[str]]:
    """The same server, with tokens that a function judges."""
    settings: Any = {"authorization_servers": ["https://login.test"], "resource": "https://notes.test/mcp", **options}
    hierarchy = settings.pop("scope_hierarchy", {})
    auth = TokenAuth(lambda token: TOKENS.get(f"Bearer {token}"), **settings)
    return notes(auth=auth, scope_hierarchy=hierarchy)


@both_eras
async def test_the_challenge_names_the_metadata_and_all_scopes_that_the_operation_needs(era: Era) -> None:
    """AUTHS-09, AUTHS-10: those of the server and those of the item, on every request alike."""
    server, ran = guarded(required_scopes=["notes.read"])
    async with serving(server, allowed_origins=["https://app.test"]) as site:
        for method, params in REQUESTS:
            reply = await ask(site, era, method, params, "ben")
            assert reply.status == 403
            assert reply.headers["www-authenticate"] == (
                'Bearer error="insufficient_scope", scope="notes.read notes.write", '
                'resource_metadata="https://notes.test/.well-known/oauth-protected-resource/mcp"'
            )
        headers, body = modern_call("add", text="x")
        page = {"Authorization": "Bearer ben", "Origin": "https://app.test"}
        from_page = await site.ask({**headers, **page}, body)
        assert from_page.headers["access-control-allow-origin"] == "https://app.test"
        assert "WWW-Authenticate" in from_page.headers["access-control-expose-headers"]
    assert ran == []


@both_eras
async def test_the_hierarchy_counts_for_the_scopes_that_every_request_needs(era: Era) -> None:
    """AUTHS-11."""
    server, _ = guarded(required_scopes=["notes.read"], scope_hierarchy=HIERARCHY)
    async with serving(server) as site:
        assert (await ask(site, era, *REQUESTS[0], "root")).status == 200
    server, _ = guarded(required_scopes=["notes.read"])
    async with serving(server) as site:
        assert (await site.ask({**JSON_HEADERS, "Authorization": "Bearer root"}, initialize())).status == 403


# ---------------------------------------------------------------- routers, mounted servers, proxies


@both_eras
@pytest.mark.parametrize("without_scopes", ["refuse", "hide"])
@pytest.mark.parametrize("way", ["include", "include under a prefix", "mount", "mount under a prefix", "proxy"])
async def test_scopes_hold_wherever_an_item_is_offered(
    era: Era, way: str, without_scopes: Literal["refuse", "hide"]
) -> None:
    router, ran = Router(), list[str]()
    add_notes(router, ran, without_scopes)
    inner: Server[Any] = Server("inner")
    inner.include(router)
    prefix = "my" if "prefix" in way else None
    if way == "proxy":
        outer = Server.from_client(inner)
    else:
        outer = Server("outer")
        if "include" in way:
            outer.include(router, prefix)
        else:
            outer.mount(inner, prefix)
    uri = "my+notes://" if prefix else "notes://"
    expected = -32602 if without_scopes == "hide" else 403
    async with outer.running(), BareEnd(outer, era, origin=origin(READER)) as end:
        for method, params in REQUESTS[:2] + REQUESTS[3:]:
            name = params.get("name")
            renamed = {"name": f"my_{name}" if prefix else name} if name else {}
            moved = {"uri": params["uri"].replace("notes://", uri)} if "uri" in params else {}
            code = (await end.refusal(method, {**params, **renamed, **moved}))["code"]
            assert code == expected or (era == "2025" and method == "resources/read" and code == -32002)
    assert ran == []
    if way != "proxy":
        async with outer.running(), BareEnd(outer, era, origin=origin(WRITER)) as end:
            assert await end.text("my_add" if prefix else "add", text="x") == "added x"


@both_eras
async def test_tools_of_another_server_get_scopes_by_a_change(era: Era) -> None:
    plain: Server[Any] = Server("plain")
    plain.tool("wipe")(lambda: "wiped")
    outer: Server[Any] = Server("outer")
    outer.mount(plain, "my", tools={"wipe": ToolChange(name="clean", scopes=["notes.write"])})
    async with BareEnd(outer, era, origin=origin(READER)) as end:
        assert (await end.refusal("tools/call", {"name": "my_clean", "arguments": {}}))["code"] == 403
    async with BareEnd(outer, era, origin=origin(WRITER)) as end:
        assert await end.text("my_clean") == "wiped"
    with pytest.raises(DefinitionError, match="one string"):
        outer.mount(Server("x"), "x", tools={"wipe": ToolChange(scopes="notes.write")})


async def test_pages_have_scopes() -> None:
    server: Server[Any] = Server("paged")
    apps = server.add_extension(Apps())
    apps.add_page("ui://card", "<!doctype html><title>Card</title>", scopes=["notes.write"])
    async with BareEnd(server, origin=origin(READER)) as end:
        assert (await end.refusal("resources/read", {"uri": "ui://card"}))["code"] == 403


async def test_files_have_scopes(tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text("secret")
    server: Server[Any] = Server("files")
    server.add_files(tmp_path, "files:///", scopes=["notes.write"])
    async with BareEnd(server, origin=origin(READER)) as end:
        for uri in ("files:///", "files:///plan.txt"):
            assert (await end.refusal("resources/read", {"uri": uri}))["code"] == 403
        reference = {"type": "ref/resource", "uri": "files:///{+path}"}
        params = {"ref": reference, "argument": {"name": "path", "value": ""}}
        assert (await end.refusal("completion/complete", params))["code"] == 403


# ---------------------------------------------------------------- subscriptions


async def test_watching_a_resource_needs_its_scopes() -> None:
    server, _ = notes()
    async with BareEnd(server, "2025", origin=origin(READER)) as ben:
        for uri in ("notes://drafts", "notes://draft/1"):
            assert (await ben.refusal("resources/subscribe", {"uri": uri}))["code"] == 403
    async with BareEnd(server, "2025", origin=origin(WRITER)) as anna:
        await anna.ask("resources/subscribe", {"uri": "notes://drafts"})
    async with BareEnd(server, "2026", origin=origin(READER)) as ben:
        await ben.listen("resourceSubscriptions", ["notes://drafts"])
        agreed = await ben.wait_for("notifications/subscriptions/acknowledged")
        assert agreed["notifications"].get("resourceSubscriptions", []) == []


@both_eras
async def test_who_watches_a_folder_learns_nothing_of_what_needs_a_scope(era: Era) -> None:
    server, _ = notes(authorize_subscription=lambda ctx, uri: True)
    server.resource("notes://draft/")(_folder)
    async with BareEnd(server, era, origin=origin(READER)) as end:
        if era == "2025":
            await end.ask("resources/subscribe", {"uri": "notes://draft/"})
        else:
            await end.listen("resourceSubscriptions", ["notes://draft/"])
        server.notify(Changed("resource", "notes://draft/secret"))
        server.notify(Changed("resource", "notes://draft/"))
        told = await end.wait_for("notifications/resources/updated")
        assert told["uri"] == "notes://draft/"


def _folder() -> str:
    return "entries"


# ---------------------------------------------------------------- connections without HTTP


@both_eras
async def test_in_memory_the_application_has_all_scopes_unless_it_says_who_connects(era: Era) -> None:
    server, _ = notes()
    async with Client(server, era=era) as client:
        assert (await client.call_tool("add", {"text": "x"})).text == "added x"
        assert (await client.call_tool("count")).text == "None "
    async with Client(server, era=era, principal=WRITER) as client:
        assert (await client.call_tool("add", {"text": "x"})).text == "added x"
        assert (await client.call_tool("count")).text == "anna notes.read notes.write"
    for principal in (READER, "ben"):
        async with Client(server, era=era, principal=principal) as client:
            with pytest.raises(PeerError) as refused:
                await client.call_tool("add", {"text": "x"})
            assert refused.value.code == 403
            assert refused.value.data == {"requiredScopes": ["notes.write"]}


async def test_an_unknown_kind_of_principal_is_one_error() -> None:
    server, _ = notes()
    with pytest.raises(DefinitionError, match="write principal=Principal"):
        Client(server, principal=7)  # type: ignore[arg-type]  # a mistake
    with pytest.raises(DefinitionError, match="principal"):
        Client("http://127.0.0.1:1/mcp", principal="anna")


PROGRAM = """
from gemel import Principal, Server

server = Server("notes")


@server.tool(scopes=["notes.write"])
async def add(text: str) -> str:
    return f"added {text}"


if __name__ == "__main__":
    server.run(OPTIONS)
"""


@both_eras
@pytest.mark.parametrize(
    ("options", "code"),
    [
        ('"stdio"', None),
        ('"stdio", principal=Principal("anna", {"notes.write"})', None),
        ('"stdio", principal="ben"', 403),
    ],
)
async def test_over_stdio_who_starts_the_process_has_all_scopes(
    tmp_path: Path, era: Era, options: str, code: int | None
) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.replace("OPTIONS", options))
    async with Client([sys.executable, str(file)], era=era) as client:
        if code is None:
            assert (await client.call_tool("add", {"text": "x"})).text == "added x"
        else:
            with pytest.raises(PeerError) as refused:
                await client.call_tool("add", {"text": "x"})
            assert refused.value.code == code


@both_eras
@pytest.mark.skipif(sys.platform == "win32", reason="Unix sockets")
async def test_on_a_socket_nobody_has_scopes_unless_the_server_says_so(tmp_path: Path, era: Era) -> None:
    server, _ = notes()
    async with running(server, "socket", path=tmp_path / "a.sock") as address, Client(address, era=era) as client:
        with pytest.raises(PeerError) as refused:
            await client.call_tool("add", {"text": "x"})
        assert refused.value.code == 403
    async with (
        running(server, "socket", path=tmp_path / "b.sock", principal=WRITER) as address,
        Client(address, era=era) as client,
    ):
        assert (await client.call_tool("add", {"text": "x"})).text == "added x"


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"scopes": "notes.write"}, "scopes=\\['notes.write'\\]"),
        ({"scopes": 7}, "is not a list"),
        ({"scopes": ["a b"]}, "is not a scope"),
        ({"scopes": ['a"']}, "is not a scope"),
        ({"scopes": [""]}, "is not a scope"),
        ({"scopes": [7]}, "is not a scope"),
        ({"scopes": ["a"], "without_scopes": "show"}, 'use "refuse" or "hide"'),
    ],
)
def test_a_mistake_in_the_options_is_one_line(options: Any, text: str) -> None:
    server: Server[Any] = Server("wrong")
    for register in (server.tool, server.prompt, lambda **given: server.resource("notes://x", **given)):
        with pytest.raises(DefinitionError, match=text):
            register(**options)(_folder)


def test_a_mistake_in_the_hierarchy_is_one_line() -> None:
    with pytest.raises(DefinitionError, match="one string"):
        Server("wrong", scope_hierarchy={"a": "b"})
    with pytest.raises(DefinitionError, match="is not a scope"):
        Server("wrong", scope_hierarchy={"a b": ["b"]})
    with pytest.raises(DefinitionError, match="scope_hierarchy"):
        Server("wrong", scope_hierarchy=["a"])  # type: ignore[arg-type]  # a mistake


def test_any_number_of_grants_is_expanded_within_bounded_memory() -> None:
    hierarchy = ScopeHierarchy({"notes.write": ["notes.read"]})
    for number in range(1000):
        granted = frozenset({"notes.write", f"tenant:{number}"})
        assert hierarchy.expand(granted) == granted | {"notes.read"}
    assert len(hierarchy._expanded) <= 257
