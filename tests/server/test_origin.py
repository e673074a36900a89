"""Where a request came from: `ctx.client_address` and `ctx.http_scope`, on every transport and in both eras."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from gemel import Client, Context, DefinitionError, Server, StartError
from tests.serving import running
from tests.transports.http_rig import serving

Era = Literal["2025", "2026"]
ERAS: tuple[Era, ...] = ("2025", "2026")

PROGRAM = """
from gemel import Context, Server
server = Server("x")
@server.tool
async def where(ctx: Context) -> list[bool]:
    return [ctx.client_address is None, ctx.http_scope is None]
server.run()
"""


def a_server(found: list[Any]) -> Server[Any]:
    server: Server[Any] = Server("x")

    @server.tool
    async def where(ctx: Context[Any]) -> None:
        found.append((ctx.client_address, ctx.http_scope))

    return server


@pytest.mark.parametrize("era", ERAS)
async def test_over_tcp_the_address_is_that_of_the_client(era: Era) -> None:
    """Port 0 takes a free one, which `announce` learns."""
    found: list[Any] = []
    async with running(a_server(found), "socket", port=0) as address, Client(address, era=era) as client:
        await client.call_tool("where")
    assert address.startswith("tcp://127.0.0.1:")
    ((peer, scope),) = found
    assert peer[0] == "127.0.0.1"
    assert 0 < peer[1] != int(address.rpartition(":")[2])
    assert scope is None


async def test_a_server_on_ipv6_announces_what_a_client_takes() -> None:
    found: list[Any] = []
    try:
        async with running(a_server(found), "socket", host="::1", port=0) as address, Client(address) as client:
            await client.call_tool("where")
    except StartError as reason:
        pytest.skip(f"no IPv6 here: {reason}")
    assert address.startswith("tcp://[::1]:")
    assert found[0][0][0] == "::1"


@pytest.mark.parametrize("era", ERAS)
async def test_there_is_no_address_in_memory_and_on_unix_sockets(era: Era, tmp_path: Path) -> None:
    found: list[Any] = []
    server = a_server(found)
    async with Client(server, era=era) as client:
        await client.call_tool("where")
    async with running(server, "socket", path=tmp_path / "s") as address, Client(address, era=era) as client:
        await client.call_tool("where")
    assert address == f"unix:{tmp_path / 's'}"
    assert found == [(None, None)] * 2


@pytest.mark.parametrize("era", ERAS)
async def test_there_is_no_address_on_stdio(era: Era, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    async with Client([sys.executable, str(tmp_path / "program.py")], era=era) as client:
        assert (await client.call_tool("where", returns=list[bool])).data == [True, True]


@pytest.mark.parametrize("engine", ["gemel", "uvicorn"])
@pytest.mark.parametrize("sessions", [True, False])
@pytest.mark.parametrize("era", ERAS)
async def test_over_http_the_scope_is_that_of_the_request(era: Era, sessions: bool, engine: Any) -> None:
    found: list[Any] = []
    async with serving(a_server(found), sessions=sessions, engine=engine) as site:
        url = f"http://127.0.0.1:{site.port}/mcp?tenant=acme"
        async with Client(url, era=era, headers={"X-Number": "7"}) as client:
            await client.call_tool("where")
    ((peer, scope),) = found
    assert peer[0] == "127.0.0.1"
    assert peer == tuple(scope["client"])
    assert (scope["type"], scope["method"], scope["path"]) == ("http", "POST", "/mcp")
    assert scope["query_string"] == b"tenant=acme"
    request = Request(dict(scope))
    assert request.headers["x-number"] == "7"
    with pytest.raises(TypeError):
        scope["path"] = "/other"


@pytest.mark.parametrize("era", ERAS)
async def test_the_scope_has_what_the_application_around_it_added(era: Era) -> None:
    found: list[Any] = []
    app = Starlette(routes=[Mount("/", a_server(found).http_app())])

    def tagged(app: ASGIApp) -> ASGIApp:
        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "tenant": "acme"}, receive, send)

        return serve

    app.add_middleware(tagged)
    async with Client(app, era=era) as client:
        await client.call_tool("where")
    assert found[0][1]["tenant"] == "acme"


async def test_behind_a_trusted_proxy_the_address_is_that_which_the_proxy_names() -> None:
    found: list[Any] = []
    named = {"X-Forwarded-For": "192.0.2.7"}
    for trusted in ([], ["127.0.0.1"]):
        async with (
            running(a_server(found), "http", port=0, trusted_proxies=trusted) as url,
            Client(url, headers=named) as client,
        ):
            await client.call_tool("where")
    assert [peer[0] for peer, _ in found] == ["127.0.0.1", "192.0.2.7"]


async def test_announce_is_a_function() -> None:
    with pytest.raises((DefinitionError, StartError), match=r"announce=.* is not possible"):
        await a_server([]).run_async("socket", port=0, announce="here")  # type: ignore[call-overload]  # the mistake itself
