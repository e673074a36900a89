"""The first revision's transport as a client uses it, by itself or because a server knows nothing newer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gemel import Client, ConnectFailed, ConnectionLost, DefinitionError, HttpStatus, Limits, PeerError, ProgressParams
from gemel.client.callbacks import OnRoots
from gemel.transports.http.client.legacy_sse import SseTransport
from tests.support import V2025_11
from tests.transports.http_rig import Log, make_server, serving
from tests.transports.scripted_http import Answer, Asked, ScriptedServer

QUICK = Limits(probe=0.5, reconnects=1)


@asynccontextmanager
async def old_server(log: Log, **options: Any) -> AsyncIterator[str]:
    async with serving(make_server(log, **options), sse_path="/sse") as site:
        yield f"http://127.0.0.1:{site.port}/sse"


@pytest.fixture
def log() -> Log:
    return Log()


ROOTS: OnRoots = ["file:///r"]


async def test_a_client_finds_the_old_transport_by_itself(log: Log) -> None:
    """VER-14, VER-21: POST is refused with 405, GET brings the `endpoint` event."""
    async with old_server(log) as url, Client(url, on_roots=ROOTS) as client:
        assert (client.era, client.protocol_version) == ("2025", V2025_11)
        assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "5"
        assert (await client.call_tool("ask")).text == "file:///r"


async def test_it_can_be_asked_for(log: Log) -> None:
    async with old_server(log) as url, Client(SseTransport(url)) as client:
        told: list[ProgressParams] = []
        log.gate.set()
        await client.call_tool("stream", {"count": 2}, on_progress=told.append)
        assert [one.progress for one in told] == [0, 1]


async def test_a_call_that_is_no_longer_wanted_is_cancelled_by_a_message(log: Log) -> None:
    """CANC-02."""
    async with old_server(log) as url, Client(url) as client:
        call = asyncio.create_task(client.call_tool("wait"))
        await log.until("wait begins")
        call.cancel()
        await log.until("wait is cancelled")


async def test_changes_are_heard(log: Log) -> None:
    """SUB-14."""
    async with old_server(log) as url, Client(url) as client, client.listen(tools=True) as changes:
        await client.call_tool("more")
        assert (await anext(changes)).kind == "tools"  # type: ignore[union-attr]  # not a ChangesLost


async def test_a_stream_that_ends_fails_what_waits_and_the_next_call_opens_another(log: Log) -> None:
    async with serving(make_server(log), sse_path="/sse") as site:
        client = Client(f"http://127.0.0.1:{site.port}/sse")
        async with client:
            call = asyncio.create_task(client.call_tool("wait"))
            await log.until("wait begins")
            assert site.app is not None
            for request in site.app._lives.here().requests.everyone():
                request.cut()
            with pytest.raises(ConnectionLost):
                await call
            assert (await client.call_tool("add", {"a": 1, "b": 1})).text == "2"


# ---------------------------------------------------------------- what only a scripted server does


def wants_get(status: int = 405, address: str = "/messages", event: str = "endpoint") -> Any:
    """A server that refuses POST at its first path, and gives a stream whose first event is as wanted."""

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.method == "POST" and asked.path == "/mcp":
            await answer.body(b"no", "text/plain", status)
        elif asked.method == "GET":
            await answer.stream()
            await answer.chunk(f"event: {event}\ndata: {address}\n\n".encode())
            await answer.gone()
        else:
            await answer.body(b"", "", 202)

    return script


def answering(
    *, before: str = "", address: str = "/messages", kind: str = "text/event-stream", in_response: bool = False
) -> Any:
    """A server that answers on its stream, or in the response to the POST."""
    streams: list[Answer] = []
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2024-11-05",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "old", "version": "1"},
        },
        "tools/list": {"tools": []},
    }

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.method == "GET":
            streams.append(answer)
            await answer.stream(kind=kind)
            await answer.chunk(f"{before}event: endpoint\ndata: {address}\n\n".encode())
            await answer.gone()
        elif asked.path != "/messages":
            await answer.body(b"no", "text/plain", 405)
        elif "id" not in asked.message:
            await answer.body(b"", "", 202)
        else:
            message = {"jsonrpc": "2.0", "id": asked.message["id"], "result": results[asked.message["method"]]}
            text = json.dumps(message)
            if in_response:
                await answer.body(text.encode(), "application/json", 200)
                return
            await answer.body(b"", "", 202)
            await streams[-1].chunk(f"data: {text}\n\n".encode())

    return script


async def test_a_handshake_that_the_server_does_not_accept_in_time_ends_in_an_error() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        if asked.path == "/messages":
            await answer.gone()
        else:
            await wants_get()(asked, answer)

    async with ScriptedServer(script) as server:
        with pytest.raises(ConnectFailed, match="did not answer initialize"):
            await Client(SseTransport(server.url, limits=Limits(call_idle=0.2))).connect()


@pytest.mark.parametrize("status", [400, 404, 405, 406, 411, 415, 418, 422])
async def test_each_status_about_the_request_leads_to_get(status: int) -> None:
    """VER-21, HSSE-03."""
    async with ScriptedServer(wants_get(status)) as server:
        with pytest.raises(ConnectFailed):
            await Client(server.url, limits=Limits(connect=0.5)).connect()
        assert [asked.path for asked in server.by("GET")] == ["/mcp"]
        assert server.messages("initialize")[-1].path == "/messages"


@pytest.mark.parametrize("status", [401, 403, 500, 503])
async def test_other_statuses_lead_nowhere(status: int) -> None:
    """Authorization and failures say nothing about the transport."""
    async with ScriptedServer(wants_get(status)) as server:
        with pytest.raises(HttpStatus if status != 500 else ConnectFailed) as caught:
            await Client(server.url, limits=QUICK).connect()
        cause = caught.value if status != 500 else caught.value.__cause__
        assert getattr(cause, "status", None) == status
        assert not server.by("GET")


async def test_a_recognised_modern_error_leads_nowhere() -> None:
    """VER-21: such a server is modern, whatever the status."""

    async def script(asked: Asked, answer: Answer) -> None:
        error = {"code": -32022, "message": "no", "data": {"supported": [], "requested": "x"}}
        await answer.json({"jsonrpc": "2.0", "id": asked.message["id"], "error": error}, status=400)

    async with ScriptedServer(script) as server:
        with pytest.raises(ConnectFailed):
            await Client(server.url, limits=QUICK).connect()
        assert not server.by("GET")


async def test_a_refusal_that_is_no_modern_one_leads_to_get() -> None:
    """VER-14: an unrecognised error body counts as none; when GET leads nowhere, the first refusal is what is told."""

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.method == "GET":
            await answer.body(b"", "", 405)
        else:
            error = {"code": -32000, "message": "Bad Request: no session"}
            await answer.json({"jsonrpc": "2.0", "id": None, "error": error}, status=400)

    async with ScriptedServer(script) as server:
        with pytest.raises(ConnectFailed, match="no session"):
            await Client(server.url, limits=QUICK).connect()
        assert len(server.by("GET")) == 1


async def test_a_client_of_the_stateless_era_does_not_look_for_the_old_transport() -> None:
    async with ScriptedServer(wants_get()) as server:
        with pytest.raises(ConnectFailed):
            await Client(server.url, era="2026", limits=QUICK).connect()
        assert not server.by("GET")


@pytest.mark.parametrize(
    "address",
    [
        "https://127.0.0.1/messages",
        "http://127.0.0.1:1/messages",
        "//evil.example/x",
        "http://[",
        "javascript:alert(1)",
    ],
)
async def test_messages_go_to_no_other_origin(address: str) -> None:
    """They carry the caller's credentials."""
    async with ScriptedServer(wants_get(address=address)) as server:
        transport = SseTransport(server.url, headers={"Authorization": "Bearer canary"}, limits=QUICK)
        with pytest.raises(ConnectFailed, match="not its scheme, host and port"):
            await Client(transport).connect()


async def test_an_absolute_address_within_the_origin_is_fine() -> None:
    async with ScriptedServer(wants_get()) as server:
        address = f"http://127.0.0.1:{server.port}/elsewhere?x=1"
        server._script = wants_get(address=address)
        with pytest.raises(ConnectFailed):
            await Client(SseTransport(server.url), limits=Limits(connect=0.5)).connect()
        assert server.messages("initialize")[0].path == "/elsewhere?x=1"


async def test_a_stream_that_begins_otherwise_is_not_the_old_transport() -> None:
    async with ScriptedServer(wants_get(event="message")) as server:
        with pytest.raises(ConnectFailed, match="endpoint"):
            await Client(SseTransport(server.url, limits=QUICK)).connect()


@pytest.mark.parametrize(
    "before",
    [
        ": hello\n\n",
        "retry: 100\n\n",
        "event: ping\ndata: 1\n\n",
        'data: {"jsonrpc":"2.0","method":"notifications/x"}\n\n',
    ],
)
async def test_the_address_may_come_after_other_events(before: str) -> None:
    async with ScriptedServer(answering(before=before)) as server, Client(server.url) as client:
        assert await client.list_tools() == []


@pytest.mark.parametrize("address", ["/messages", "messages", "  /messages ", '"/messages"'])
async def test_the_address_may_be_relative_in_quotes_or_between_blanks(address: str) -> None:
    async with ScriptedServer(answering(address=address)) as server, Client(server.url) as client:
        assert await client.list_tools() == []


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "text/event-stream, text/plain"])
async def test_the_stream_may_have_another_content_type(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedServer(answering(kind=kind)) as server, Client(server.url) as client:
        assert await client.list_tools() == []
    assert any(record.getMessage().startswith("content-type:") for record in caplog.records)


async def test_an_answer_may_come_as_the_response_to_its_post() -> None:
    async with ScriptedServer(answering(in_response=True)) as server, Client(server.url) as client:
        assert await client.list_tools() == []
        assert [one.name for one in client.warnings] == ["answer-to-post"]


async def test_a_stream_that_says_nothing_is_given_up() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        await answer.stream()
        await answer.gone()

    async with ScriptedServer(script) as server:
        with pytest.raises(ConnectFailed, match=r"within 0\.5 seconds"):
            await Client(SseTransport(server.url, limits=QUICK)).connect()


async def test_what_is_no_event_stream_is_named() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        await answer.body(b"<html>", "text/html")

    async with ScriptedServer(script) as server:
        with pytest.raises(ConnectFailed, match="no event stream"):
            await Client(SseTransport(server.url, limits=QUICK)).connect()


class Scripted:
    """An old server that answers a POST on the stream, as the test wants."""

    def __init__(self) -> None:
        self.stream: Answer | None = None
        self.first: list[Any] = []

    async def __call__(self, asked: Asked, answer: Answer) -> None:
        if asked.method == "GET":
            await answer.stream()
            self.stream = answer
            early = "".join(f"data: {json.dumps(one)}\n\n" for one in self.first)
            await answer.chunk(f": hello\n\nevent: endpoint\ndata: /messages\n\n{early}".encode())
            await answer.gone()
        elif (method := asked.message.get("method")) == "initialize":
            found = {"protocolVersion": V2025_11, "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
            await self.say({"jsonrpc": "2.0", "id": asked.message["id"], "result": found})
            await answer.body(b"Accepted", "text/plain", 202)
        elif method == "refused":
            await answer.json({"detail": "no"}, status=409)
        elif method == "answered":
            await self.say({"jsonrpc": "2.0", "id": asked.message["id"], "result": {"ok": True}})
            await asyncio.sleep(3600)
        elif method == "failed":
            error = {"code": 7, "message": "failed", "data": {"why": 1}}
            await self.say({"jsonrpc": "2.0", "id": asked.message["id"], "error": error})
            await answer.body(b"", "", 202)
        else:
            await answer.body(b"", "", 202)

    async def say(self, message: Any) -> None:
        assert self.stream is not None
        await self.stream.chunk(b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n")


async def test_a_refused_post_fails_its_call_and_no_other() -> None:
    async with ScriptedServer(Scripted()) as server, Client(SseTransport(server.url)) as client:
        with pytest.raises(HttpStatus) as caught:
            await client.request("refused")
        assert caught.value.status == 409
        with pytest.raises(PeerError) as failed:
            await client.request("failed")
        assert (failed.value.code, failed.value.data) == (7, {"why": 1})


async def test_an_answer_counts_though_its_post_was_never_accepted() -> None:
    async with ScriptedServer(Scripted()) as server, Client(SseTransport(server.url)) as client:
        assert await client.request("answered") == {"ok": True}


async def test_what_comes_together_with_the_address_is_not_lost() -> None:
    script = Scripted()
    script.first = [{"jsonrpc": "2.0", "method": "notifications/early", "params": {"n": 1}}]
    heard: list[str] = []
    async with ScriptedServer(script) as server:
        client = Client(SseTransport(server.url), on_notification=lambda method, _: heard.append(method))
        async with client:
            await client.request("answered")
    assert heard == ["notifications/early"]


async def test_headers_and_credentials_go_with_both_halves() -> None:
    async with ScriptedServer(Scripted()) as server:
        transport = SseTransport(server.url, headers={"X-Tenant": "t"}, auth=lambda: "Bearer b")
        async with Client(transport):
            pass
        asked = [*server.by("GET"), *server.by("POST")]
        assert {(one.headers["x-tenant"], one.headers["authorization"]) for one in asked} == {("t", "Bearer b")}


async def test_closing_twice_and_while_calling_is_fine(log: Log) -> None:
    async with old_server(log) as url:
        client = Client(url)
        await client.connect()
        call = asyncio.create_task(client.call_tool("wait"))
        await log.until("wait begins")
        await asyncio.gather(client.close(), client.close())
        with contextlib.suppress(ConnectionLost):
            await call
        await log.until("wait is cancelled")


@pytest.mark.parametrize("options", [{"url": "ftp://x"}, {"url": "http://x", "headers": {"a b": "c"}}])
def test_what_can_not_work_is_told_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        SseTransport(**options)
