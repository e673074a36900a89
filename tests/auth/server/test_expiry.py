"""The end of a token ends the streams that it opened, and no call that was authorized when it came; one timer for all."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from gemel import Changed, Client, Principal, Server
from gemel.auth import TokenAuth
from gemel.transports.http.server import open_exchanges
from tests.transports.http_rig import JSON_HEADERS, Log, Site, Wire, make_server, modern, serving, text_of

#: Seconds that a token is valid in these tests.
SOON = 0.4


async def verify(token: str) -> Principal | None:
    """Tokens are a name, scopes and when they end, in seconds since 1970."""
    name, *scopes, expires = token.split("~")
    return Principal(name, frozenset(scopes), expires=float(expires)) if name else None


def protected(log: Log, **options: Any) -> Server[Any]:
    return make_server(log, auth=TokenAuth(verify, remember=None, **options))


def token(seconds: float = SOON, name: str = "anna", *scopes: str) -> dict[str, str]:
    return {"Authorization": "Bearer " + "~".join([name, *scopes, str(time.time() + seconds)])}


async def open_listen(site: Site, headers: dict[str, str]) -> Wire:
    """A subscription to changes of the list of tools, acknowledged."""
    fields, body = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, 7)
    wire = await site.call({**fields, **headers}, body)
    assert (await wire.head()).status == 200
    assert (await wire.message())["method"] == "notifications/subscriptions/acknowledged"
    return wire


async def test_a_subscription_ends_with_its_result_when_the_token_ends() -> None:
    """SUB-09: the server ends it in order, so that the client subscribes again with another token."""
    async with serving(protected(Log())) as site:
        wire = await open_listen(site, token())
        late = await open_listen(site, token(3600))
        message = await wire.message()
        assert message["id"] == 7
        assert message["result"]["resultType"] == "complete"
        assert await wire.event() is None
        with pytest.raises(TimeoutError):
            await late.event(0.2)


async def test_the_stream_of_a_session_ends_and_the_session_goes_on_with_another_token() -> None:
    log = Log()
    async with serving(protected(log)) as site:
        first = token(0.8)
        session = await site.session(**first)
        wire = await site.listen(session)
        assert (await wire.head()).status == 200
        while await wire.event() is not None:
            pass
        assert (await site.ask(session, {"jsonrpc": "2.0", "id": 2, "method": "ping"})).status == 401
        renewed = {**session, **token(3600)}
        assert (await site.ask(renewed, {"jsonrpc": "2.0", "id": 2, "method": "ping"})).status == 200
        again = await site.listen(renewed)
        assert (await again.head()).status == 200


def with_drafts(backend: str | None = None) -> Server[Any]:
    server = make_server(Log(), backend=backend, auth=TokenAuth(verify, remember=None))
    server.resource("notes://drafts", name="drafts", scopes=["notes"])(lambda: "a draft")
    return server


DRAFTS = {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": "notes://drafts"}}
PING = {"jsonrpc": "2.0", "id": 3, "method": "ping"}


async def told(stream: Wire, server: Server[Any]) -> bool:
    """Change the drafts, then the tools. Whether the stream tells of the drafts before the tools."""
    server.notify(Changed("resource", "notes://drafts"))
    server.notify(Changed("tools"))
    methods = [(await stream.message())["method"]]
    if methods[0] == "notifications/resources/updated":
        methods.append((await stream.message())["method"])
    assert methods[-1] == "notifications/tools/list_changed"
    return len(methods) == 2


@pytest.mark.parametrize("shared", [False, True])
async def test_a_session_is_told_of_resources_as_its_latest_token_permits(shared: bool, tmp_path: Path) -> None:
    """Not as the token did that subscribed: the user may have lost the scope meanwhile."""
    server = with_drafts(backend=f"sqlite:///{tmp_path / 'sessions.db'}" if shared else None)
    async with serving(server) as site:
        wide, narrow = token(3600, "anna", "notes"), token(3600)
        session = await site.session(**wide)
        assert (await site.ask(session, DRAFTS)).status == 200
        stream = await site.listen(session)
        assert (await stream.head()).status == 200
        assert await told(stream, server)
        assert (await site.ask({**session, **narrow}, PING)).status == 200
        assert not await told(stream, server)
        assert (await site.ask(session, PING)).status == 200
        assert await told(stream, server)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("scopes", [("notes",), ()])
async def test_what_changes_after_the_token_has_ended_is_told_with_the_next_one(
    scopes: tuple[str, ...], shared: bool, tmp_path: Path
) -> None:
    server = with_drafts(backend=f"sqlite:///{tmp_path / 'sessions.db'}" if shared else None)
    async with serving(server) as site:
        session = await site.session(**token(0.8, "anna", "notes"))
        assert (await site.ask(session, DRAFTS)).status == 200
        stream = await site.listen(session)
        assert (await stream.head()).status == 200
        while await stream.event() is not None:
            pass
        server.notify(Changed("resource", "notes://drafts"))
        await asyncio.sleep(0.1)
        stream = await site.listen({**session, **token(3600, "anna", *scopes)})
        assert (await stream.head()).status == 200
        if scopes:
            assert (await stream.message())["method"] == "notifications/resources/updated"
        assert await told(stream, server) is bool(scopes)


async def test_a_list_that_changes_after_the_token_has_ended_is_told_with_the_next_one() -> None:
    server = with_drafts()
    async with serving(server) as site:
        session = await site.session(**token(0.8, "anna", "notes"))
        stream = await site.listen(session)
        assert (await stream.head()).status == 200
        while await stream.event() is not None:
            pass
        server.notify(Changed("tools"))
        await asyncio.sleep(0.1)
        stream = await site.listen({**session, **token(3600, "anna", "notes")})
        assert (await stream.head()).status == 200
        assert (await stream.message())["method"] == "notifications/tools/list_changed"


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_call_that_was_authorized_finishes_after_the_token_has_ended(era: str) -> None:
    """Tokens are validated when a request comes ("Token Handling"); a call has an end of its own."""
    log = Log()
    async with serving(protected(log)) as site:
        mine = token(0.8)
        arguments = {"count": 1}
        if era == "2026":
            headers, body = modern("tools/call", {"name": "stream", "arguments": arguments})
            wire = await site.call({**headers, "Mcp-Name": "stream", **mine}, body)
        else:
            session = await site.session(**mine)
            params = {"name": "stream", "arguments": arguments, "_meta": {"progressToken": "p"}}
            wire = await site.call(session, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        await wire.head()
        assert (await wire.message())["method"] == "notifications/progress"
        await asyncio.sleep(1.2)
        log.gate.set()
        assert text_of(await wire.message()) == "stream"


async def test_the_stream_of_http_sse_ends_when_its_calls_have_finished() -> None:
    log = Log()
    async with serving(protected(log), sse_path="/sse") as site:
        mine = token(0.8)
        stream = await site.call({"Accept": "text/event-stream", **mine}, b"", "GET", "/sse")
        assert (await stream.head()).status == 200
        first = await stream.event()
        assert first is not None
        path = first.data.decode()
        post = {**JSON_HEADERS, **mine}
        info = {"name": "x", "version": "1"}
        params = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": info}
        for body in (
            {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wait", "arguments": {}}},
        ):
            reply = await site.ask(post, body, path=path)
            assert reply.status == 202, reply.body
        await stream.message()
        await log.until("wait begins")
        await asyncio.sleep(1.2)
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        renewed = {**post, **token(3600)}
        assert (await site.ask(renewed, ping, path=path)).status == 404
        log.gate.set()
        assert text_of(await stream.message()) == "wait"
        assert await stream.event() is None


async def test_one_timer_looks_after_all_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of looks follows the time, not the number of streams that end one after the other."""
    looks: list[int] = []
    original = open_exchanges.OpenExchanges._beat

    def counted(self: open_exchanges.OpenExchanges) -> None:
        looks.append(len(self._watched))
        original(self)

    monkeypatch.setattr(open_exchanges.OpenExchanges, "_beat", counted)
    async with serving(protected(Log())) as site:
        wires = [await open_listen(site, token(3 + number / 200)) for number in range(40)]
        begun = time.monotonic()
        for wire in wires:
            assert (await wire.message())["result"]["resultType"] == "complete"
        seconds = time.monotonic() - begun
        assert len(looks) <= (seconds + 2) / open_exchanges.EXPIRY_INTERVAL + 5


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_client_goes_on_with_another_token(era: Any) -> None:
    """Our own client opens the stream again with the token that it has then."""
    server = protected(Log())
    async with serving(server) as site:
        url = f"http://127.0.0.1:{site.port}/mcp"
        calls = 0

        def bearer() -> str:
            nonlocal calls
            calls += 1
            return f"Bearer anna~{time.time() + (0.5 if calls <= 3 else 3600)}"

        async with Client(url, era=era, auth=bearer) as client, client.listen(tools=True) as changes:
            await asyncio.sleep(1.0)
            async with asyncio.timeout(20):
                while True:
                    server.notify(Changed("tools"))
                    change = await anext(changes)
                    if change == Changed("tools") and calls > 3:
                        break
                    await asyncio.sleep(0.1)
