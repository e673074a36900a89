"""What outlives a request belongs to the caller and its client: to everybody else it looks like something that never was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gemel import Context, Principal, ResultLimit, Server
from gemel.auth import TokenAuth
from gemel.server.middleware.rate_limit import RateLimit
from tests.transports.http_rig import (
    JSON_HEADERS,
    Log,
    Reply,
    Site,
    initialize,
    make_server,
    modern,
    modern_call,
    serving,
    text_of,
)

#: Tokens of callers, by what differs from the one that begins.
CALLERS = {
    "same": Principal("https://login.test|anna", client="editor"),
    "same with another token": Principal("https://login.test|anna", frozenset({"other"}), client="editor"),
    "other subject": Principal("https://login.test|ben", client="editor"),
    "other issuer": Principal("https://evil.test|anna", client="editor"),
    "other client": Principal("https://login.test|anna", client="terminal"),
    "no client": Principal("https://login.test|anna"),
    "spelled alike": Principal('["https://login.test|anna","editor"]'),
}
OTHERS = ("other subject", "other issuer", "other client", "no client", "spelled alike")


def auth() -> TokenAuth:
    return TokenAuth(lambda token: CALLERS.get(token.replace("-", " ")))


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name.replace(' ', '-')}"}


def same_as_unknown(refused: Reply, unknown: Reply) -> None:
    """Identical but for what every response has of its own."""
    assert refused.status == unknown.status == 404
    assert refused.body == unknown.body
    without = {"date", "mcp-session-id"}
    assert {name: value for name, value in refused.headers.items() if name not in without} == {
        name: value for name, value in unknown.headers.items() if name not in without
    }


PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize("caller", [*OTHERS, "same", "same with another token", "none"])
async def test_a_session_belongs_to_one_caller_with_one_client(method: str, caller: str) -> None:
    """The id of somebody else's session is like one that never was."""
    async with serving(make_server(Log(), auth=auth())) as site:
        session = await site.session(**bearer("same"))
        headers = {**session, **bearer(caller)}
        if method == "GET":
            headers["Accept"] = "text/event-stream"
        if caller == "none":
            del headers["Authorization"]
            assert (await site.ask(headers, PING, method)).status == 401
        elif caller in OTHERS:
            refused = await site.ask(headers, PING, method)
            unknown = await site.ask({**headers, "Mcp-Session-Id": "x" * len(session["Mcp-Session-Id"])}, PING, method)
            same_as_unknown(refused, unknown)
        else:
            wire = await site.call(headers, PING, method)
            assert (await wire.head()).status == (204 if method == "DELETE" else 200)
        if method != "DELETE" or caller in (*OTHERS, "none"):
            assert (await site.ask(session, PING)).status == 200, "its owner still has it"


async def _open_sse(site: Site, caller: str) -> str:
    stream = await site.call({"Accept": "text/event-stream", **bearer(caller)}, b"", "GET", "/sse")
    assert (await stream.head()).status == 200
    event = await stream.event()
    assert event is not None
    return event.data.decode()


@pytest.mark.parametrize("caller", [*OTHERS, "same", "none"])
async def test_a_stream_of_http_sse_belongs_to_one_caller_with_one_client(caller: str) -> None:
    async with serving(make_server(Log(), auth=auth()), sse_path="/sse") as site:
        path = await _open_sse(site, "same")
        headers = {**JSON_HEADERS, **(bearer(caller) if caller != "none" else {})}
        reply = await site.ask(headers, initialize("2024-11-05"), path=path)
        if caller in OTHERS:
            identity = path.partition("session_id=")[2]
            unknown = await site.ask(
                headers, initialize("2024-11-05"), path=path.replace(identity, "x" * len(identity))
            )
            same_as_unknown(reply, unknown)
        else:
            assert reply.status == (401 if caller == "none" else 202)


@pytest.mark.parametrize("caller", [*OTHERS, "same"])
async def test_events_are_replayed_to_their_caller_only(caller: str) -> None:
    """Neither in the session that they belong to, nor in one's own."""
    log = Log()
    async with serving(make_server(log, auth=auth())) as site:
        session = await site.session(**bearer("same"))
        params = {"name": "stream", "arguments": {"count": 2}, "_meta": {"progressToken": "p"}}
        wire = await site.call(session, {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params})
        await wire.head()
        event = await wire.event()
        assert event is not None
        assert event.id is not None
        wire.abort()
        log.gate.set()
        if caller == "same":
            again = await site.listen(session, event.id)
            assert (await again.head()).status == 200
            assert (await again.message())["method"] == "notifications/progress"
            return
        theirs = await site.listen({**session, **bearer(caller)}, event.id)
        assert (await theirs.reply()).status == 404
        own = await site.session(**bearer(caller))
        refused = await (await site.listen(own, event.id)).reply()
        unknown = await (await site.listen(own, "x" * len(event.id))).reply()
        assert refused.status == unknown.status == 400
        assert b"progress" not in refused.body


def asking() -> Server[Any]:
    server: Server[Any] = Server("asking", auth=auth())

    @server.tool
    async def remove(ctx: Context[Any], name: str) -> str:
        return f"removed {name}" if await ctx.elicit(f"Remove {name}?", bool) else "kept"

    return server


@pytest.mark.parametrize("caller", [*OTHERS, "same", "same with another token"])
async def test_a_request_state_continues_the_call_of_its_caller_only(caller: str) -> None:
    """SEC-02."""
    meta: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}

    def remove(who: str, **members: Any) -> tuple[dict[str, str], Any]:
        headers, body = modern_call("remove", name="x")
        body["params"]["_meta"].update(meta)
        body["params"].update(members)
        return {**headers, **bearer(who)}, body

    async with serving(asking()) as site:
        first = (await site.ask(*remove("same"))).json()["result"]
        assert first["resultType"] == "input_required"
        (key,) = first["inputRequests"]
        responses = {key: {"action": "accept", "content": {"value": True}}}
        answer = await site.ask(*remove(caller, inputResponses=responses, requestState=first["requestState"]))
        if caller in OTHERS:
            assert answer.json()["error"]["code"] == -32602
        else:
            assert text_of(answer.json()) == "removed x"


@pytest.mark.parametrize("caller", [*OTHERS, "same"])
async def test_pages_of_a_long_result_belong_to_their_caller(caller: str) -> None:
    server: Server[Any] = Server("long", auth=auth(), middleware=[ResultLimit(2000, spill=True)])
    server.tool("long")(lambda: "line of text\n" * 1000)
    async with serving(server) as site:
        headers, body = modern_call("long")
        result = (await site.ask({**headers, **bearer("same")}, body)).json()["result"]
        uri = next(block["uri"] for block in result["content"] if block["type"] == "resource_link")
        headers, body = modern("resources/read", {"uri": uri})
        reply = await site.ask({**headers, "Mcp-Name": uri, **bearer(caller)}, body)
        headers, body = modern("resources/read", {"uri": f"{uri[:-4]}xxxx"})
        unknown = await site.ask({**headers, "Mcp-Name": f"{uri[:-4]}xxxx", **bearer(caller)}, body)
        if caller == "same":
            assert "result" in reply.json()
        else:
            texts = [
                json.dumps(each.json()["error"]).replace(uri, "").replace(f"{uri[:-4]}xxxx", "")
                for each in (reply, unknown)
            ]
            assert texts[0] == texts[1]


@pytest.mark.parametrize("caller", [*OTHERS, "same"])
async def test_a_rate_limit_counts_each_caller_with_its_client_apart(caller: str) -> None:
    """Nobody can use up the requests of somebody else."""
    server = make_server(Log(), auth=auth(), middleware=[RateLimit(1, burst=1)])
    async with serving(server) as site:
        headers, body = modern_call("add", a=1, b=2)
        assert (await site.ask({**headers, **bearer("same")}, body)).status == 200
        assert (await site.ask({**headers, **bearer(caller)}, body)).status == (503 if caller == "same" else 200)
