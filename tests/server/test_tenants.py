"""Two tenants of one server over HTTP: what belongs to one is neither seen, read, watched nor continued by the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from gemel import (
    Caller,
    Changed,
    Client,
    Context,
    HttpStatus,
    InvalidParams,
    Item,
    PeerError,
    Principal,
    Refusal,
    ResourceNotFound,
    Server,
    ToolError,
    current_context,
)
from tests.serving import over_http
from tests.transports.http_rig import modern, serving, text_of

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])

TOKENS = {"Bearer a": Principal("acme"), "Bearer b": Principal("globex")}
NOTES = {"acme": {"plan": "acme's plan"}, "globex": {"plan": "globex' plan", "deal": "globex' deal"}}


async def authenticate(scope: Any, headers: Any) -> Principal | Refusal:
    """The tenant is who was authenticated, never what a caller says."""
    found = TOKENS.get(headers.get("authorization", ""))
    return Refusal(401, "A token, please") if found is None else found


async def may_watch(ctx: Context, uri: str) -> bool:
    return uri.startswith(f"notes://{ctx.principal}/")


def office() -> Server[Any]:
    server: Server[Any] = Server("office", authorize_subscription=may_watch)

    @server.visibility
    def own(item: Item, caller: Caller) -> bool:
        return not item.tags or caller.principal in item.tags

    for tenant in NOTES:

        @server.tool(f"{tenant}_report", tags={tenant})
        async def report() -> str:
            return str(current_context().principal)

    @server.resource("notes://{tenant}/{name}")
    async def note(ctx: Context, tenant: str, name: str) -> str:
        if tenant != ctx.principal or name not in NOTES[tenant]:
            raise ResourceNotFound(f"notes://{tenant}/{name}")
        return NOTES[tenant][name]

    @server.tool
    async def read(ctx: Context, uri: str) -> str:
        return (await ctx.read_resource(uri)).contents[0].text or ""

    @server.tool
    async def remove(ctx: Context, name: str) -> str:
        if not await ctx.elicit(f"Remove {name}?", bool):
            raise ToolError("kept")
        return f"{ctx.principal} removed {name}"

    return server


@asynccontextmanager
async def tenants(era: Any, **options: Any) -> AsyncIterator[tuple[Server[Any], Client, Client]]:
    server = office()
    async with (
        over_http(server, authenticate=authenticate) as url,
        Client(url, era=era, headers={"Authorization": "Bearer a"}, **options) as acme,
        Client(url, era=era, headers={"Authorization": "Bearer b"}, **options) as globex,
    ):
        yield server, acme, globex


@both_eras
async def test_each_tenant_sees_and_uses_its_own(era: Any) -> None:
    """Lists, calls, resources, and what a tool reads for its caller."""
    async with tenants(era) as (_, acme, globex):
        for client, own, other in ((acme, "acme", "globex"), (globex, "globex", "acme")):
            assert [tool.name for tool in await client.list_tools()] == [f"{own}_report", "read", "remove"]
            assert (await client.call_tool(f"{own}_report")).text == own
            assert (await client.read_resource(f"notes://{own}/plan")).contents[0].text == NOTES[own]["plan"]
            assert (await client.call_tool("read", {"uri": f"notes://{own}/plan"})).text == NOTES[own]["plan"]
            with pytest.raises(PeerError, match="Unknown tool"):
                await client.call_tool(f"{other}_report")
            with pytest.raises(PeerError, match="not found"):
                await client.read_resource(f"notes://{other}/plan")
            with pytest.raises(PeerError, match="not found"):
                await client.call_tool("read", {"uri": f"notes://{other}/plan"})
    async with over_http(office(), authenticate=authenticate) as url:
        with pytest.raises(HttpStatus) as refused:
            await Client(url, era=era).__aenter__()
        assert refused.value.status == 401


@both_eras
async def test_changes_reach_the_tenant_that_they_belong_to(era: Any) -> None:
    heard: dict[str, list[str | None]] = {"acme": [], "globex": []}
    async with tenants(era) as (server, acme, globex), AsyncExitStack() as stack:
        changes: dict[str, Any] = {}
        for client, own, other in ((acme, "acme", "globex"), (globex, "globex", "acme")):
            uris = [f"notes://{own}/", f"notes://{other}/"]
            if era == "2025":
                with pytest.raises(PeerError, match="can't be subscribed to"):
                    await client.request("resources/subscribe", {"uri": uris.pop()})
            changes[own] = await stack.enter_async_context(client.listen(resources=uris))
        for name in ("globex/deal", "acme/plan", "globex/last", "acme/last"):
            server.notify(Changed("resource", f"notes://{name}"))
        for tenant, stream in changes.items():
            while not heard[tenant] or heard[tenant][-1] != f"notes://{tenant}/last":
                heard[tenant].append((await anext(stream)).uri)
    assert heard == {
        "acme": ["notes://acme/plan", "notes://acme/last"],
        "globex": ["notes://globex/deal", "notes://globex/last"],
    }


async def test_neither_sessions_nor_request_states_pass_to_another_tenant() -> None:
    """Whoever holds the id of a session or the state of a call is refused without the tenant's token."""
    async with serving(office(), authenticate=authenticate) as site:
        acme, globex = {"Authorization": "Bearer a"}, {"Authorization": "Bearer b"}
        session = await site.session(**acme)
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert (await site.ask({**session, **globex}, listing)).status == 404
        assert (await site.ask({**session, **acme}, listing)).status == 200
        form: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
        params = {"name": "remove", "arguments": {"name": "plan"}}
        headers, body = modern("tools/call", params)
        body["params"]["_meta"] |= form
        question = (await site.ask({**headers, "mcp-name": "remove", **acme}, body)).json()["result"]
        (key,) = question["inputRequests"]
        answer = {key: {"action": "accept", "content": {"value": True}}}
        body["params"] |= {"requestState": question["requestState"], "inputResponses": answer}
        stolen = (await site.ask({**headers, "mcp-name": "remove", **globex}, body)).json()
        assert stolen["error"]["code"] == InvalidParams.code
        assert text_of((await site.ask({**headers, "mcp-name": "remove", **acme}, body)).json()) == "acme removed plan"
