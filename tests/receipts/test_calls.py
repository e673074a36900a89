"""What receipts say of calls: everywhere a middleware can stand, in both eras, however the call ends."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import SpanKind

from gemel import (
    CallError,
    CallToolResult,
    Client,
    ClientGroup,
    ConnectionLost,
    Context,
    DefinitionError,
    Implementation,
    NotSent,
    PeerError,
    Principal,
    ProtocolError,
    Server,
    ToolError,
)
from gemel.decisions import Decision, decisions
from gemel.extensions.tasks import Tasks
from gemel.policies import Policy
from gemel.receipts import Receipts, verify
from gemel.schema.content import TextContent
from tests.observed import Observed, observing
from tests.receipts.written import KEY, all_lines, ended, raw_lines, receipts
from tests.server.bare_end import BareEnd
from tests.serving import over_http
from tests.transports.loops import until

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


def hashed(task_id: str | None) -> str:
    """How receipts name a task."""
    assert task_id is not None
    return hashlib.sha256(task_id.encode()).hexdigest()[:32]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "receipts.jsonl"


def shop(name: str = "shop", **options: Any) -> Server[Any]:
    server: Server[Any] = Server(name, **options)

    @server.tool
    async def buy(item: str, count: int = 1) -> str:
        return f"{count} {item}"

    @server.tool
    async def fail() -> str:
        raise ToolError("sold out")

    @server.tool
    async def refuse() -> str:
        raise ProtocolError("no", code=-32001)

    @server.tool
    async def ask(ctx: Context[Any]) -> str:
        return await ctx.elicit("Which?", str)

    @server.tool
    async def order(ctx: Context[Any]) -> str:
        return (await ctx.call_tool("buy", {"item": "tea"})).text

    return server


def noted(path: Path, **options: Any) -> Receipts:
    """Receipts that are in the file when a call is answered."""
    return Receipts(path, sync="written", **options)


def yes(*asked: Any) -> dict[str, Any]:
    return {"value": "blue"}


@both_eras
async def test_a_receipt_says_who_called_what_and_how_it_ended(path: Path, era: Any) -> None:
    server = shop(middleware=[noted(path, key=KEY)])
    async with Client(server, era=era, principal="ada", info=Implementation(name="app", version="7")) as client:
        await client.call_tool("buy", {"item": "tea", "count": 2})
    (line,) = receipts(path)
    digest = hmac.digest(KEY.encode(), b'{"count":2,"item":"tea"}', "sha256").hex()
    assert line["arguments"] == f"hmac-sha256:{digest}"
    assert line["ms"] > 0
    for name in ("n", "at", "ms", "before", "hash", "arguments"):
        del line[name]
    assert line == {
        "kind": "call",
        "side": "server",
        "server": "shop",
        "tool": "buy",
        "principal": "ada",
        "client": "app 7",
        "effect": None,
        "rule": None,
        "approved_by": None,
        "outcome": "ok",
    }
    assert "tea" not in json.dumps(all_lines(path))


@both_eras
async def test_a_receipt_names_the_client_that_was_authenticated(path: Path, era: Any) -> None:
    server = shop(middleware=[noted(path)])
    ada = Principal("ada", client="app-7")
    async with Client(server, era=era, principal=ada, info=Implementation(name="claims", version="1")) as client:
        await client.call_tool("buy", {"item": "tea"})
    (line,) = receipts(path)
    assert (line["principal"], line["client_id"], line["client"]) == ("ada", "app-7", "claims 1")


@both_eras
async def test_each_end_has_its_outcome(path: Path, era: Any) -> None:
    async with Client(shop(middleware=[noted(path)]), era=era, on_elicit=yes) as client:
        for name in ("buy", "fail", "refuse", "nothing"):
            with suppress(ToolError, CallError):
                await client.call_tool(name, {"item": "tea"} if name == "buy" else {})
    assert [(line["tool"], line["outcome"], line.get("error")) for line in receipts(path)] == [
        ("buy", "ok", None),
        ("fail", "tool error", None),
        ("refuse", "error", "-32001"),
        ("nothing", "error", "-32602"),
    ]


@both_eras
async def test_a_call_that_asks_its_user_has_one_receipt(path: Path, era: Any) -> None:
    async with Client(shop(middleware=[noted(path)]), era=era, on_elicit=yes) as client:
        assert (await client.call_tool("ask")).text == "blue"
    assert ended(path) == [("ask", "ok")]
    asked = [line for line in all_lines(path) if line["kind"] == "asked"]
    assert len(asked) == (1 if era == "2026" else 0)
    if asked:
        assert receipts(path)[0]["after"] == asked[0]["state"]


@both_eras
async def test_a_cancelled_call_says_so(path: Path, era: Any) -> None:
    server, begun = shop(middleware=[noted(path)]), asyncio.Event()

    @server.tool
    async def wait() -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async with Client(server, era=era) as client, asyncio.timeout(10):
        call = asyncio.create_task(client.call_tool("wait"))
        await begun.wait()
        call.cancel()
        await until(lambda: bool(ended(path)))
    assert ended(path) == [("wait", "cancelled")]


@both_eras
async def test_calls_of_handlers_have_receipts_of_their_own(path: Path, era: Any) -> None:
    async with Client(shop(middleware=[noted(path)]), era=era) as client:
        await client.call_tool("order")
    assert [(line["tool"], line.get("depth")) for line in receipts(path)] == [("buy", 1), ("order", None)]


@both_eras
async def test_other_requests_have_none(path: Path, era: Any) -> None:
    async with Client(shop(middleware=[noted(path)]), era=era) as client:
        await client.list_tools()
        await client.list_resources()
    assert not all_lines(path)


# ---------------------------------------------------------------- places


@both_eras
async def test_mounted_servers_have_receipts_with_their_own_names(path: Path, era: Any) -> None:
    inner = shop(middleware=[noted(path)])
    outer: Server[Any] = Server("mall")
    outer.mount(inner, "shop")
    async with Client(outer, era=era) as client:
        await client.call_tool("shop_buy", {"item": "tea"})
    assert [(line["server"], line["tool"]) for line in receipts(path)] == [("mall/shop", "buy")]


@both_eras
async def test_proxies_and_gateways_have_receipts(path: Path, tmp_path: Path, era: Any) -> None:
    async with over_http(shop()) as url:
        gateway = Server.from_config({"mcpServers": {"shop": {"url": url}}}, middleware=[noted(path)])
        async with Client(gateway, era=era, on_elicit=yes) as client:
            assert (await client.call_tool("shop_ask")).text == "blue"
            assert (await client.call_tool("shop_fail", raise_on_error=False)).is_error
        proxy = Server.from_client(url, middleware=[noted(tmp_path / "proxy.jsonl")])
        async with Client(proxy, era=era, on_elicit=yes) as client:
            await client.call_tool("buy", {"item": "tea"})
    assert ended(path) == [("shop_ask", "ok"), ("shop_fail", "tool error")]
    assert ended(tmp_path / "proxy.jsonl") == [("buy", "ok")]


@both_eras
async def test_clients_have_one_receipt_for_all_rounds(path: Path, era: Any) -> None:
    async with Client(shop(), era=era, on_elicit=yes, middleware=[noted(path)]) as client:
        await client.call_tool("ask")
        await client.list_tools()
        with pytest.raises(ToolError):
            await client.call_tool("fail")
    assert [(line["side"], line["server"], line["tool"], line["outcome"]) for line in receipts(path)] == [
        ("client", "shop 0", "ask", "ok"),
        ("client", "shop 0", "fail", "tool error"),
    ]


@both_eras
async def test_a_group_writes_for_all_its_servers(path: Path, era: Any) -> None:
    async with ClientGroup({"first": shop(), "Second one": shop()}, era=era, middleware=[noted(path)]) as group:
        await group.ready()
        for name in ("first_buy", "Second_one_buy"):
            await group.call_tool(name, {"item": "tea"})
    assert [(line["server"], line["tool"]) for line in receipts(path)] == [("first", "buy"), ("Second one", "buy")]


@both_eras
async def test_groups_tell_their_servers_apart(path: Path, era: Any) -> None:
    async with ClientGroup(
        {
            name: Client(shop(), era=era, middleware=[noted(path, server=name)])  # each server calls itself "shop"
            for name in ("first", "second")
        }
    ) as group:
        await group.ready()
        for tool in await group.list_tools():
            if tool.name.endswith("buy"):
                await group.call_tool(tool.name, {"item": "tea"})
    assert sorted(line["server"] for line in receipts(path)) == ["first", "second"]


@both_eras
async def test_a_client_and_its_server_hash_arguments_alike(path: Path, tmp_path: Path, era: Any) -> None:
    server = shop(middleware=[noted(path)])
    async with Client(server, era=era, middleware=[noted(tmp_path / "client.jsonl")]) as client:
        await client.call_tool("buy", {"item": "tè\U0001f375", "count": 2})
    (one,), (other,) = receipts(path), receipts(tmp_path / "client.jsonl")
    assert one["arguments"] == other["arguments"]
    canonical = '{"count":2,"item":"tè\U0001f375"}'.encode()
    assert one["arguments"] == f"sha256:{hashlib.sha256(canonical).hexdigest()}"


@both_eras
async def test_a_server_behind_a_gateway_can_not_pass_off_a_result_as_a_task(path: Path, era: Any) -> None:
    upstream: Server[Any] = Server("upstream")

    @upstream.request("tools/call")
    async def call(ctx: Context[Any], params: Any) -> dict[str, Any]:
        return {"content": [], "task": {"taskId": "1"}}

    gateway = Server.from_client(Client(upstream, era=era), middleware=[noted(path)])
    async with Client(gateway, era=era) as client:
        await client.call_tool("anything")
    assert ended(path) == [("anything", "ok")]


# ---------------------------------------------------------------- what may have run


class Lost:
    """Middleware in place of a server that is lost."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def __call__(self, ctx: Any, call_next: Any) -> Any:
        if ctx.method == "tools/call":
            raise self.error
        return await call_next(ctx)


@both_eras
async def test_a_lost_connection_is_unknown_on_the_client_and_on_a_gateway(
    path: Path, tmp_path: Path, era: Any
) -> None:
    lost = Lost(ConnectionLost("the connection was lost"))
    async with Client(shop(), era=era, middleware=[noted(tmp_path / "client.jsonl"), lost]) as client:
        with pytest.raises(ConnectionLost):
            await client.call_tool("buy", {"item": "tea"})
    gateway = Server.from_client(Client(shop(), middleware=[lost]), middleware=[noted(path)])
    async with Client(gateway, era=era) as client:
        with pytest.raises(PeerError):
            await client.call_tool("buy", {"item": "tea"})
    assert [(line["outcome"], line["error"]) for line in receipts(tmp_path / "client.jsonl")] == [
        ("unknown", "ConnectionLost")
    ]
    assert ended(path) == [("buy", "unknown")]


@both_eras
async def test_what_was_not_sent_is_an_error(path: Path, era: Any) -> None:
    async with Client(shop(), era=era, middleware=[noted(path)]) as client:
        pass
    with pytest.raises(NotSent):
        await client.call_tool("buy", {"item": "tea"})
    with pytest.raises(NotSent):
        await Client(shop(), era=era, middleware=[noted(path)]).call_tool("buy", {"item": "tea"})
    assert [(line["outcome"], line["error"]) for line in receipts(path)] == [("error", "NotSent")] * 2


# ---------------------------------------------------------------- policies


class Decides:
    """Middleware that decides as a policy does."""

    def __init__(self, *made: Decision, result: str | None = None) -> None:
        self.made = made
        self.result = result

    async def __call__(self, ctx: Any, call_next: Any) -> Any:
        if ctx.method == "tools/call":
            read = decisions.get()
            assert read is not None
            read.extend(self.made)
            if self.result is not None:
                return CallToolResult(content=[TextContent(text=self.result)], is_error=True)
        return await call_next(ctx)


@both_eras
@pytest.mark.parametrize(
    ("made", "denied", "expected"),
    [
        ([Decision("allow", "reads")], None, ("allow", "reads", None, "ok")),
        ([Decision("ask", "pays", "ada")], None, ("ask", "pays", "ada", "ok")),
        ([Decision("ask", "pays")], "declined", ("ask", "pays", None, "declined")),
        ([Decision("deny", "never")], "denied", ("deny", "never", None, "tool error")),
        ([Decision("ask", "pays", "ada"), Decision("allow", None)], None, ("ask", "pays", "ada", "ok")),
        ([], None, (None, None, None, "ok")),
    ],
)
async def test_a_receipt_has_the_strictest_decision(
    path: Path, era: Any, made: list[Decision], denied: str | None, expected: tuple[Any, ...]
) -> None:
    server = shop(middleware=[noted(path), Decides(*made, result=denied)])
    async with Client(server, era=era) as client:
        try:
            await client.call_tool("buy", {"item": "tea"})
        except ToolError:
            assert denied is not None
    (line,) = receipts(path)
    assert (line["effect"], line["rule"], line["approved_by"], line["outcome"]) == expected


@both_eras
async def test_a_decision_in_a_mounted_server_is_in_both_receipts_and_one_about_a_call_of_a_handler_in_its_own(
    path: Path, tmp_path: Path, era: Any
) -> None:
    inner = shop(middleware=[noted(tmp_path / "inner.jsonl"), Decides(Decision("allow", "inner"))])
    outer: Server[Any] = Server("mall", middleware=[noted(path)])
    outer.mount(inner, "shop")
    async with Client(outer, era=era) as client:
        await client.call_tool("shop_buy", {"item": "tea"})
    assert [line["rule"] for line in receipts(path)] == ["inner"]
    assert [line["rule"] for line in receipts(tmp_path / "inner.jsonl")] == ["inner"]

    class OfNested(Decides):
        async def __call__(self, ctx: Any, call_next: Any) -> Any:
            return await (super().__call__(ctx, call_next) if ctx.depth else call_next(ctx))

    server = shop("nested", middleware=[noted(tmp_path / "nested.jsonl"), OfNested(Decision("allow", "deep"))])
    async with Client(server, era=era) as client:
        await client.call_tool("order")
    assert [line["rule"] for line in receipts(tmp_path / "nested.jsonl")] == ["deep", None]


@both_eras
@pytest.mark.parametrize("side", ["server", "client"])
@pytest.mark.parametrize("approved", [True, False])
async def test_receipts_of_a_policy(path: Path, era: Any, side: str, approved: bool) -> None:
    rules = path.with_name("policy.toml")
    rules.write_text(
        'default = "allow"\n[[rule]]\nname = "never"\ntool = "fail"\neffect = "deny"\n'
        '[[rule]]\nname = "pays"\ntool = "buy"\narguments = { item = "tea" }\neffect = "ask"\n'
    )
    middleware: list[Any] = [noted(path), Policy(rules)]

    def answer(asked: Any) -> dict[str, Any]:
        return dict.fromkeys(asked.requested_schema["required"], approved)

    server = shop(middleware=middleware if side == "server" else [])
    async with Client(server, era=era, on_elicit=answer, middleware=middleware if side == "client" else []) as client:
        for name, arguments in (("fail", {}), ("buy", {"item": "tea"}), ("buy", {"item": "ink"})):
            with suppress(ToolError, CallError):
                await client.call_tool(name, arguments)
    denied, asked, allowed = receipts(path)
    assert (denied["effect"], denied["rule"]) == ("deny", "never")
    assert denied["outcome"] in ("tool error", "error")
    assert (asked["effect"], asked["rule"]) == ("ask", "pays")
    assert (asked["approved_by"] is not None, asked["outcome"]) == (approved, "ok" if approved else "declined")
    assert (allowed["effect"], allowed["rule"], allowed["outcome"]) == ("allow", None, "ok")


# ---------------------------------------------------------------- tasks


@both_eras
async def test_a_task_has_its_receipt_when_it_ends(path: Path, era: Any) -> None:
    server: Server[Any] = Server("tasks", middleware=[noted(path)])
    server.add_extension(Tasks(poll_interval=0.01))
    gate = asyncio.Event()

    @server.tool(task=True)
    async def long(name: str) -> str:
        await gate.wait()
        return name

    async with Client(server, era=era, principal="ada") as client, asyncio.timeout(10):
        task = await client.call_tool("long", {"name": "x"}, task=True)
        assert [line["kind"] for line in all_lines(path)] == ["open", "task"]
        assert not receipts(path)
        gate.set()
        await task.result()
    assert [(line["tool"], line["outcome"], line["principal"]) for line in receipts(path)] == [("long", "ok", "ada")]
    lines = [line for line in all_lines(path) if line["kind"] in ("task", "call")]
    assert {line["task"] for line in lines} == {hashed(task.id)}


@both_eras
async def test_a_task_that_moves_has_one_receipt(path: Path, tmp_path: Path, era: Any) -> None:
    """The process that stops notes that it moved, the other one how it ended."""
    gates = [asyncio.Event(), asyncio.Event()]
    begun = [asyncio.Event(), asyncio.Event()]

    def make(number: int) -> Server[Any]:
        backend = f"sqlite:///{tmp_path / 'state.db'}"
        server: Server[Any] = Server("tasks", middleware=[noted(path, server=str(number))], backend=backend)
        server.add_extension(Tasks(poll_interval=0.01))

        @server.tool(task=True)
        async def long() -> str:
            begun[number].set()
            await gates[number].wait()
            return str(number)

        return server

    async with asyncio.timeout(30):
        async with Client(make(0), era=era, principal="ada") as client:
            task = await client.call_tool("long", task=True)
            await begun[0].wait()
        gates[1].set()
        async with Client(make(1), era=era, principal="ada") as client:
            assert task.id is not None
            assert (await (await client.tasks.resume(task.id)).result()).text == "1"
    lines = [line for line in all_lines(path) if "tool" in line]
    assert [(line["kind"], line["server"], line.get("outcome")) for line in lines] == [
        ("task", "0", None),
        ("moved", "0", None),
        ("call", "1", "ok"),
    ]
    assert {line["task"] for line in lines} == {hashed(task.id)}


@both_eras
async def test_a_task_that_is_cancelled_has_a_receipt(path: Path, tmp_path: Path, era: Any) -> None:
    backend = f"sqlite:///{tmp_path / 'state.db'}"
    server: Server[Any] = Server("tasks", middleware=[noted(path)], backend=backend)
    server.add_extension(Tasks(poll_interval=0.01))
    begun = asyncio.Event()

    @server.tool(task=True)
    async def long() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with Client(server, era=era, principal="ada") as client, asyncio.timeout(30):
        task = await client.call_tool("long", task=True)
        await begun.wait()
        await task.cancel()
        await until(lambda: bool(receipts(path)))
    assert ended(path) == [("long", "cancelled")]


# ---------------------------------------------------------------- hostile values


@both_eras
async def test_names_and_arguments_can_not_break_a_line(path: Path, era: Any) -> None:
    server = shop(middleware=[noted(path, values=50)])
    info = Implementation(name='a\nb\u2028"}', version="\x1b[31m")
    async with Client(server, era=era, info=info, principal="e\nve") as client:
        for name in ('x\n{"n":1}', "y" * 10_000, "\u2028\x85"):
            with pytest.raises(CallError):
                await client.call_tool(name, {"a": "\n\u2028"})
        await client.call_tool("buy", {"item": "t" * 1_000_000})
    assert all(line.isascii() and len(line) < 3000 for line in raw_lines(path))
    found = receipts(path)
    assert [line["outcome"] for line in found] == ["error"] * 3 + ["ok"]
    assert found[0]["tool"] == 'x\n{"n":1}'
    assert len(found[1]["tool"]) == 200
    assert found[3]["values"] == '{"item":"' + "t" * 40 + "…"
    verify(path)


async def test_arguments_that_are_no_json_objects_have_a_hash_all_the_same(path: Path) -> None:
    async with BareEnd(shop(middleware=[noted(path)])) as end:
        sent: list[dict[str, Any]] = [
            {"name": "buy", "arguments": [1]},
            {"name": 5},
            {"arguments": {}},
            {"name": "buy", "arguments": None},
        ]
        for params in sent:
            await end.reply("tools/call", params)
    assert [line["tool"] for line in receipts(path)] == ["buy", None, None, "buy"]
    assert all(line["arguments"].startswith("sha256:") for line in receipts(path))
    verify(path)


async def test_deep_arguments_are_hashed_as_they_are(path: Path) -> None:
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    async with Client(shop(middleware=[noted(path)])) as client:
        with suppress(ToolError, CallError):
            await client.call_tool("buy", {"item": deep})
    verify(path)


# ---------------------------------------------------------------- telemetry and options


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Observed]:
    yield from observing(monkeypatch)


@both_eras
async def test_the_span_of_a_call_has_the_same_as_an_event(path: Path, observed: Observed, era: Any) -> None:
    async with Client(
        shop(middleware=[noted(path, key=KEY), Decides(Decision("ask", "pays", "ada"))]), era=era
    ) as client:
        await client.call_tool("buy", {"item": "tea"})
    (event,) = observed.span(SpanKind.SERVER, "tools/call buy").events
    assert event.name == "gemel.receipt"
    (line,) = receipts(path)
    names = ("kind", "side", "server", "tool", "client", "effect", "rule", "approved_by", "outcome", "ms", "arguments")
    assert dict(event.attributes or {}) == {f"gemel.receipt.{name}": line[name] for name in names}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"key": "short"}, "key has 5 bytes"),
        ({"sync": "now"}, "sync"),
        ({"unwritable": "ignore"}, "unwritable"),
        ({"values": -1}, "values"),
        ({"max_bytes": 10}, "max_bytes"),
        ({"keep": -1}, "keep"),
        ({"queue": 0}, "queue"),
    ],
)
def test_wrong_options_are_refused(path: Path, options: Any, text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        Receipts(path, **options)


def test_one_file_has_one_way_to_be_written(path: Path, tmp_path: Path) -> None:
    first = noted(path, key=KEY)
    assert noted(path, key=KEY, server="other") is not first
    with pytest.raises(DefinitionError, match="other options"):
        noted(path)
    with pytest.raises(DefinitionError, match="does not exist"):
        noted(tmp_path / "missing" / "receipts.jsonl")


async def test_values_are_there_when_asked_for(path: Path) -> None:
    async with Client(shop(middleware=[noted(path, values=True)])) as client:
        await client.call_tool("buy", {"item": "tea", "count": 1})
    assert json.loads(receipts(path)[0]["values"]) == {"count": 1, "item": "tea"}
