"""What a client keeps is for the caller that it was sent to: `auth` and `headers` may change between requests."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from gemel import Client, ClientPool, ContractDrift, fetch_contract
from gemel.http1.client.wire import HeaderPairs
from tests.client.site import URL, Site


async def names(client: Client) -> list[str]:
    return [tool.name for tool in await client.list_tools() if tool.name != "any"]


@pytest.mark.parametrize("option", ["auth", "headers"])
async def test_a_private_result_is_not_given_to_another_caller(option: str) -> None:
    """CACHE-07."""
    user, site = "alice", Site()
    by_option: Any = {"auth": lambda: user, "headers": lambda: {"X-User": user}}
    async with Client(URL, era="2026", wire=site, **{option: by_option[option]}) as client:
        assert await names(client) == await names(client) == ["tool-of-alice"]
        user = "bob"
        assert await names(client) == await names(client) == ["tool-of-bob"]
    assert site.lists == ["alice", "bob"]


async def test_callers_that_alternate_never_see_each_others_results() -> None:
    user: ContextVar[str] = ContextVar("user", default="nobody")
    site = Site()
    async with Client(URL, era="2026", wire=site, auth=user.get) as client:
        for name in ("alice", "bob") * 3:
            user.set(name)
            assert await names(client) == [f"tool-of-{name}"]


async def test_a_public_result_is_for_every_caller() -> None:
    user, site = "alice", Site(scope="public")
    async with Client(URL, era="2026", wire=site, auth=lambda: user) as client:
        await names(client)
        user = "bob"
        assert await names(client) == ["tool-of-alice"]
    assert site.lists == ["alice"]


async def test_a_result_is_not_checked_against_the_schema_of_another_caller() -> None:
    user, site = "alice", Site()
    async with Client(URL, era="2026", wire=site, auth=lambda: user) as client:
        await client.list_tools()
        user = "bob"
        assert (await client.call_tool("any")).data == {"bob": 1}
        await client.list_tools()
        user = "alice"
        assert (await client.call_tool("any")).data == {"alice": 1}
        user = "bob"
        assert (await client.call_tool("any")).data == {"bob": 1}


@pytest.mark.parametrize("option", ["auth", "headers of the call"])
async def test_a_contract_is_checked_against_what_this_caller_is_offered(option: str) -> None:
    user, site = "alice", Site()
    async with Client(URL, era="2026", wire=site, auth=lambda: user) as client:
        contract = await fetch_contract(client)
    async with Client(URL, era="2026", wire=site, auth=lambda: user, lock=contract) as client:
        await client.call_tool("any")
        calls = site.count("tools/call")
        headers = {"Authorization": "bob"} if option != "auth" else None
        user = "bob" if option == "auth" else "alice"
        with pytest.raises(ContractDrift):
            await client.call_tool("any", headers=headers)
        assert site.count("tools/call") == calls
        user = "alice"
        await client.call_tool("any")


class Switching:
    """Credentials that become another user's when the server refuses them."""

    user = "alice"

    async def headers(self, method: str, url: str, /) -> HeaderPairs:
        return (("Authorization", self.user),)

    async def refused(self, refusal: Any, sent: HeaderPairs, /) -> bool:
        self.user = "bob"
        return True


async def test_a_result_belongs_to_the_credentials_that_were_sent() -> None:
    site, credentials = Site(), Switching()
    async with Client(URL, era="2026", wire=site, auth=credentials) as client:
        site.refuse = lambda user: user == "alice"
        assert await names(client) == ["tool-of-bob"]
        credentials.user = "alice"
        site.refuse = lambda user: False
        assert await names(client) == ["tool-of-alice"]


async def test_a_result_belongs_to_the_caller_whose_request_it_answers() -> None:
    """CACHE-07: another caller may be next before the answer has come."""
    user, site = "alice", Site()
    async with Client(URL, era="2026", wire=site, auth=lambda: user) as client:
        user = "bob"
        site.begun.clear()
        site.answering.clear()
        listing = asyncio.create_task(names(client))
        await site.begun.wait()
        user = "alice"
        site.answering.set()
        assert await listing == ["tool-of-bob"]
        assert await names(client) == ["tool-of-alice"]


class Identified(Switching):
    """Credentials of one user, whose token changes."""

    identity = "alice"


async def test_a_new_token_of_the_same_user_keeps_the_cache() -> None:
    site, credentials = Site(), Identified()
    async with Client(URL, era="2026", wire=site, auth=credentials) as client:
        assert await names(client) == ["tool-of-alice"]
        credentials.user = "alice with another token"
        assert await names(client) == ["tool-of-alice"]
        credentials.identity = credentials.user = "bob"
        assert await names(client) == ["tool-of-bob"]


async def test_credentials_that_do_not_change_use_the_cache() -> None:
    site = Site()
    async with Client(URL, era="2026", wire=site, headers={"X-User": "alice"}) as client:
        for _ in range(3):
            await names(client)
    assert site.lists == ["alice"]


async def test_a_pool_does_not_lend_the_session_of_another_caller() -> None:
    user, site = "alice", Site()
    async with ClientPool(URL, 2, era="2025", wire=site, auth=lambda: user) as pool:
        async with pool.client() as first:
            await first.ping()
        async with pool.client() as again:
            assert again is first
        user = "bob"
        async with pool.client() as other:
            assert other is not first
            await other.ping()
    assert site.sessions == 2
