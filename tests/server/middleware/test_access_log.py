"""One record for each request: how it ended, whose it was, never what was said unless asked."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from gemel import (
    AccessLog,
    CallNext,
    Client,
    Context,
    Implementation,
    PeerError,
    Principal,
    ProtocolError,
    RefusedMessage,
    Server,
    ToolError,
)
from tests.server.bare_end import BareEnd, Era
from tests.serving import serving_app
from tests.support import V2025_11
from tests.transports.http_rig import JSON_HEADERS, modern, serving
from tests.wire import routes
from tests.wire.talk import META, Talk

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


def logged(**options: Any) -> Server[Any]:
    server: Server[Any] = Server("logged", middleware=[AccessLog(**options)])

    @server.tool
    async def say(word: str) -> str:
        if word == "fail":
            raise ToolError("failed")
        if word == "refuse":
            raise ProtocolError("no", code=-32001)
        return word

    @server.tool
    async def ask(ctx: Context) -> str:
        return await ctx.elicit("Which?", str)

    @server.resource("word://{word}")
    def word(word: str) -> str:
        return word

    return server


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().rpartition(",")[0] for record in caplog.records if record.name == "gemel.access"]


@both_eras
async def test_each_request_is_one_line_with_its_outcome(era: Era, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gemel.access")
    async with BareEnd(logged(), era) as end:
        caplog.clear()
        await end.call_tool("say", word="hello")
        await end.call_tool("say", word="fail")
        await end.refusal("tools/call", {"name": "say", "arguments": {"word": "refuse"}})
        await end.ask("resources/read", {"uri": "word://secret"})
        await end.refusal("tools/call", {"name": "no\nsuch"})
        await end.ask("tools/list")
    assert said(caplog) == [
        "tools/call say: ok",
        "tools/call say: failed",
        "tools/call say: error -32001",
        "resources/read word://secret: ok",
        r"tools/call no\nsuch: error -32602",
        "tools/list: ok",
    ]
    assert "hello" not in caplog.text


async def test_a_round_of_questions_is_an_outcome_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gemel.access")
    async with BareEnd(logged(), capabilities={"elicitation": {}}) as end:
        assert (await end.ask("tools/call", {"name": "ask"}))["resultType"] == "input_required"
    assert said(caplog) == ["tools/call ask: asked"]


@both_eras
async def test_a_call_that_its_client_gives_up_is_cancelled(era: Era, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gemel.access")
    server, begun, written = logged(), asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "wait" in record.getMessage():
                written.set()

    heard = Heard()
    logging.getLogger("gemel.access").addHandler(heard)
    try:
        async with Client(server, era=era) as client, asyncio.timeout(10):
            call = asyncio.create_task(client.call_tool("wait"))
            await begun.wait()
            call.cancel()
            await written.wait()
    finally:
        logging.getLogger("gemel.access").removeHandler(heard)
    assert "tools/call wait: cancelled" in said(caplog)


async def test_the_record_has_attributes_for_programs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "audit")
    async with BareEnd(logged(logger="audit", level=logging.DEBUG, params=True, methods={"tools/call"})) as end:
        await end.ask("tools/list")
        await end.call_tool("say", word="hello")
    (record,) = [vars(record) for record in caplog.records if record.name == "audit"]
    assert (record["mcp_method"], record["mcp_target"], record["mcp_outcome"]) == ("tools/call", "say", "ok")
    assert (record["mcp_principal"], record["mcp_version"]) == (None, "2026-07-28")
    assert record["mcp_client_address"] is None
    assert record["mcp_ms"] > 0
    assert '"word":"hello"' in record["mcp_params"].replace(" ", "")
    assert record["levelno"] == logging.DEBUG


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_the_record_names_caller_and_client_of_known_and_of_unsupported_methods(
    caplog: pytest.LogCaptureFixture, era: Any
) -> None:
    caplog.set_level("INFO", "gemel.access")
    async with Client(logged(), era=era, principal="ada", info=Implementation(name="caller", version="7")) as client:
        await client.call_tool("say", {"word": "hello"})
        with pytest.raises(PeerError):
            await client.request("acme/missing")
    records = [vars(record) for record in caplog.records if record.name == "gemel.access"]
    names = ("mcp_principal", "mcp_client", "mcp_client_version")
    found = {record["mcp_method"]: [record[name] for name in names] for record in records}
    assert found["tools/call"] == found["acme/missing"] == ["ada", "caller", "7"]


async def test_nothing_is_written_where_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "gemel.access")
    async with BareEnd(logged()) as end:
        await end.call_tool("say", word="hello")
    assert said(caplog) == []


@pytest.mark.parametrize(
    ("caller", "logged"),
    [("ada", "ada"), (Principal("ada", frozenset({"read"})), "ada"), ("a\nb", r"a\nb"), (None, "-")],
)
async def test_the_log_of_http_requests_names_the_caller(
    caplog: pytest.LogCaptureFixture, caller: str | Principal | None, logged: str
) -> None:
    """As `authenticate` tells, on one line."""
    app = Server("logged").http_app(authenticate=lambda scope, headers: caller)
    with caplog.at_level(logging.INFO, "gemel.access"):
        async with serving_app(app, access_log=True) as url, Client(url):
            pass
    lines = [record.getMessage() for record in caplog.records if record.name == "gemel.access"]
    assert {line.partition(' "')[0] for line in lines} == {f"127.0.0.1 {logged}"}


# ---------------------------------------------------------------- what is refused before the middleware

UNKNOWN = {f"{META}protocolVersion": "2031-01-01", f"{META}clientCapabilities": {}}


def refusals(caplog: pytest.LogCaptureFixture) -> list[tuple[str | None, str, Any]]:
    return [
        (record.mcp_method, record.mcp_outcome, record.mcp_request_id)  # type: ignore[attr-defined]  # members that the log adds
        for record in caplog.records
        if record.name == "gemel.access" and "refused" in record.getMessage()
    ]


@pytest.mark.parametrize("route", [routes.memory, routes.unix])
async def test_what_no_middleware_sees_is_logged_as_refused(route: Any, caplog: pytest.LogCaptureFixture) -> None:
    """An unknown revision, an incomplete envelope, an id in use, and what is no message."""
    caplog.set_level("INFO", "gemel.access")
    server, gate = logged(), asyncio.Event()

    @server.tool
    async def wait() -> None:
        await gate.wait()

    refused: list[Any] = [
        {"id": 1, "method": "tools/list", "params": {"_meta": UNKNOWN}},
        {"id": 2, "method": "tools/list", "params": {"_meta": {f"{META}protocolVersion": "2026-07-28"}}},
        {"id": 4, "methods": "tools/list"},
        {"id": 5, "method": "tools/list"},
    ]
    async with route(server) as way:
        talk = await Talk(way, "2025").open()
        await talk.say({"id": 5, "method": "tools/call", "params": {"name": "wait"}})
        for message in refused:
            await talk.say(message)
            assert "error" in json.loads(await way.next(lambda data: b'"error"' in data))
        gate.set()
        await talk.answer_to(5)
    assert refusals(caplog) == [
        ("tools/list", "refused -32022", 1),
        ("tools/list", "refused -32602", 2),
        (None, "refused -32600", 4),
        ("tools/list", "refused -32600", 5),
    ]


async def test_what_no_middleware_sees_is_logged_over_http_too(caplog: pytest.LogCaptureFixture) -> None:
    """Whether the head of the request is refused, its body, or the message; with who sent it."""
    caplog.set_level("INFO", "gemel.access")
    headers, body = modern("tools/list")
    newer = {**headers, "MCP-Protocol-Version": "2031-01-01"}
    unknown = {**body, "params": {"_meta": UNKNOWN}}
    async with serving(logged(), authenticate=lambda scope, headers: "ann") as site:
        session = await site.session()
        for sent, message in [
            (newer, unknown),
            ({**session, "MCP-Protocol-Version": "2031-01-01"}, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
            ({**JSON_HEADERS, "Mcp-Session-Id": "gone"}, {"jsonrpc": "2.0", "id": 4, "method": "ping"}),
            (headers, {"jsonrpc": "2.0", "id": 5}),
            ({**headers, "Content-Type": "text/plain"}, body),
        ]:
            assert (await site.ask(sent, message)).status >= 400
    assert refusals(caplog) == [
        ("tools/list", "refused -32022", 1),
        ("tools/list", "refused -32022", 2),
        ("ping", "refused -32600", 4),
        (None, "refused -32600", 5),
        (None, "refused -32600", None),
    ]
    assert {vars(record)["mcp_principal"] for record in caplog.records if hasattr(record, "mcp_error")} == {"ann"}


async def test_a_middleware_of_ones_own_is_told_of_refused_messages(caplog: pytest.LogCaptureFixture) -> None:
    """What it raises is logged, and the others are told all the same."""

    class Watch:
        def __init__(self) -> None:
            self.seen: list[RefusedMessage] = []

        async def __call__(self, ctx: Context, call_next: CallNext) -> Any:
            return await call_next(ctx)

        def refused(self, message: RefusedMessage) -> None:
            self.seen.append(message)
            raise RuntimeError("the disk is full")

    watches = [Watch(), Watch()]
    server: Server[Any] = Server("watched", middleware=watches)
    async with BareEnd(server, "2025") as end:
        assert (await end.refusal("tools/list", {"_meta": UNKNOWN}))["code"] == -32022
    for watch in watches:
        (message,) = watch.seen
        assert (message.method, message.error.code, message.principal) == ("tools/list", -32022, None)
    assert "the disk is full" in caplog.text


async def test_only_the_chosen_methods_are_logged_as_refused(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gemel.access")
    async with BareEnd(logged(methods={"tools/call"}), "2025", revision=V2025_11) as end:
        await end.refusal("tools/list", {"_meta": UNKNOWN})
        end.feed({"jsonrpc": "2.0", "id": 9})
    assert refusals(caplog) == []
