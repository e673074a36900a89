"""What a user has allowed a client: how long it lasts, who may use it, and the tokens of the provider that belong to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from gemel import AuthorizationFailed, BackendError, DefinitionError, Overloaded, Server
from gemel.auth import OAuthProxy, OpenID
from gemel.auth.server.proxy import grants
from gemel.backends import MemoryBackend
from gemel.backends.keys import make_key
from tests.auth.proxy.rig import CALLBACK, Browser, query_of, read_form, rig, serve_idp, serve_proxy
from tests.cluster.keys import keys_in, without_server


class Spy(MemoryBackend):
    """Notes how long grants are stored, and runs a function whenever somebody has one to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float | None] = []
        self.on_lease: Callable[[], Any] | None = None

    async def set(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        if make_key("grant") in key:
            self.seconds.append(ttl)
        await super().set(key, value, ttl=ttl)

    async def replace(self, key: str, expected: bytes | None, value: bytes, *, ttl: float | None = None) -> bool:
        if make_key("grant") in key:
            self.seconds.append(ttl)
        return await super().replace(key, expected, value, ttl=ttl)

    def lease(self, key: str, *, ttl: float, wait: float | None = None) -> AbstractAsyncContextManager[Any]:
        taken = super().lease(key, ttl=ttl, wait=wait)

        @asynccontextmanager
        async def leased() -> AsyncIterator[Any]:
            async with taken as lease:
                if self.on_lease is not None:
                    await self.on_lease()
                yield lease

        return leased()


# ---------------------------------------------------------------- where


async def test_processes_of_a_server_share_logins_in_its_backend(tmp_path: Path) -> None:
    """Without `backend=` at the proxy, too. Everything that is stored carries the name of the server."""
    url = f"sqlite:///{tmp_path}/state.db"
    async with serve_idp() as idp, serve_proxy(idp, server_backend=url) as site:
        async with serve_proxy(idp, url=site.resource, server_backend=url) as other:
            client_id = await site.register()
            answer = await site.login(client_id)
            tokens = json.loads((await other.exchange_code(client_id, answer["code"], resource=site.resource)).body)
            assert (await site.call(tokens["access_token"])).status == 200
            assert (await other.refresh(client_id, tokens["refresh_token"])).status == 200
        keys = await keys_in(url)
        assert any("oauth-proxy" in key for key in keys)
        assert not without_server(keys, "notes")


async def test_processes_that_share_nothing_know_each_others_clients_and_say_what_they_miss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Processes that a foreign supervisor starts can't be seen, and each has a memory of its own."""
    async with serve_idp() as idp, serve_proxy(idp) as site, serve_proxy(idp, url=site.resource) as other:
        client_id = await site.register()
        resource = {"resource": site.resource}
        assert (await other.get(f"/authorize?{urlencode(other.parameters(client_id, **resource))}")).status == 200
        tokens = await site.tokens(client_id)
        assert (await site.exchange_code(client_id, "x")).status == 400
        assert (await site.refresh(client_id, tokens["access_token"])).status == 400
        assert (await site.post("/revoke", {"client_id": client_id, "token": tokens["refresh_token"]})).status == 200
        assert (await site.refresh(client_id, tokens["refresh_token"])).status == 400
        assert not caplog.text
        code = (await site.login(client_id))["code"]
        assert (await other.exchange_code(client_id, code, **resource)).status == 400
        assert "another process of this server has made" in caplog.text
        assert "backend=" in caplog.text
        caplog.clear()
        tokens = await site.tokens(client_id)
        assert (await other.refresh(client_id, tokens["refresh_token"])).status == 400
        assert "another process of this server has made" in caplog.text


async def test_processes_with_other_keys_say_so_once(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        serve_idp() as idp,
        serve_proxy(idp, keys=[b"a" * 32]) as site,
        serve_proxy(idp, url=site.resource, keys=[b"b" * 32]) as other,
    ):
        for strange in ("client_" + "A" * 54, "client_", "unknown"):
            assert (await other.get(f"/authorize?{urlencode(other.parameters(strange))}")).status == 401
        assert not caplog.text
        for name in ("One", "Two"):
            client_id = await site.register(client_name=name)
            assert (await other.get(f"/authorize?{urlencode(other.parameters(client_id))}")).status == 401
        assert caplog.text.count("signed with other keys") == 1
        assert "keys=" in caplog.text


async def test_processes_that_share_a_store_have_the_same_keys(tmp_path: Path) -> None:
    """Without a client secret there is nothing that all of them could derive keys of."""
    options: dict[str, Any] = {"url": "https://notes.example.com/mcp"}
    provider = OpenID(issuer="https://login.example.com", client_id="public")
    url = f"sqlite:///{tmp_path}/state.db"
    with pytest.raises(DefinitionError, match="keys="):
        OAuthProxy(provider, backend=url, **options)
    with pytest.raises(DefinitionError, match="keys="):
        Server("notes", auth=OAuthProxy(provider, **options), backend=url)
    Server("notes", auth=OAuthProxy(provider, **options))
    Server("notes", auth=OAuthProxy(provider, keys=[b"k" * 32], **options), backend=url)


# ---------------------------------------------------------------- how long


async def test_a_login_that_nobody_completes_is_forgotten_and_another_one_lasts() -> None:
    backend = Spy()
    async with rig(backend=backend, refresh_ttl=5000.0) as site:
        client_id = await site.register()
        answer = await site.login(client_id)
        assert backend.seconds == [600.0]
        tokens = json.loads((await site.exchange_code(client_id, answer["code"])).body)
        assert backend.seconds == [600.0, 5000.0]
        assert (await site.refresh(client_id, tokens["refresh_token"])).status == 200
        assert backend.seconds == [600.0, 5000.0, 5000.0]


async def test_a_login_that_was_not_used_for_its_time_is_over() -> None:
    async with rig(refresh_ttl=0.05) as site:
        tokens = await site.tokens()
        access = site.auth._grants.read_access(tokens["access_token"])
        assert access is not None
        for _ in range(1000):
            if await site.auth._grants.find(access.grant) is None:
                break
            await asyncio.sleep(0.01)
        assert (await site.call(tokens["access_token"])).status == 401
        reply = await site.refresh(tokens["client_id"], tokens["refresh_token"])
        assert (reply.status, json.loads(reply.body)["error"]) == (400, "invalid_grant")


async def test_renewed_tokens_of_the_provider_do_not_make_a_login_last_longer() -> None:
    backend = Spy()
    async with rig(backend=backend, refresh_ttl=5000.0) as site:
        site.idp.expires_in = 0
        token = (await site.tokens())["access_token"]
        assert (await site.call(token, "upstream")).status == 200
        assert len(backend.seconds) == 3
        left = backend.seconds[-1]
        assert left is not None
        assert 4000 < left < 5000


# ---------------------------------------------------------------- codes and refreshes


async def test_a_code_is_of_no_use_to_another_client_and_stays_good_for_its_own() -> None:
    async with rig() as site:
        client_id = await site.register()
        other = await site.register("http://127.0.0.1:33418/callback", client_name="Other")
        answer = await site.login(client_id)
        for changes in ({}, {"redirect_uri": None}):
            reply = await site.exchange_code(other, answer["code"], **changes)
            assert (reply.status, json.loads(reply.body)["error"]) == (400, "invalid_grant")
        assert (await site.exchange_code(client_id, answer["code"], redirect_uri="http://127.0.0.1/")).status == 400
        assert (await site.exchange_code(client_id, answer["code"], redirect_uri=None)).status == 200


async def test_a_code_whose_grant_is_gone_is_refused() -> None:
    async with rig() as site:
        client_id = await site.register()
        answer = await site.login(client_id)
        named = site.auth._vault.unseal(answer["code"], grants.CodeToken, "authorization code")
        assert named is not None
        await site.auth._grants._end(named.grant)
        reply = await site.exchange_code(client_id, answer["code"])
        assert (reply.status, json.loads(reply.body)["error"]) == (400, "invalid_grant")


async def test_a_refresh_that_names_no_scopes_keeps_them_all() -> None:
    async with rig(scopes=["read", "write"]) as site:
        tokens = await site.tokens(scope="read write")
        refresh_token = tokens["refresh_token"]
        for scope, expected in ((None, "read write"), ("write", "write"), ("", "read write"), (" ", "read write")):
            changes = {} if scope is None else {"scope": scope}
            reply = json.loads((await site.refresh(tokens["client_id"], refresh_token, **changes)).body)
            assert reply["scope"] == expected, scope
            refresh_token = reply["refresh_token"]


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "é", "x" * 20_000])
async def test_what_is_no_refresh_token_is_refused(token: str) -> None:
    async with rig() as site:
        client_id = (await site.tokens())["client_id"]
        reply = await site.refresh(client_id, token)
        assert (reply.status, json.loads(reply.body)["error"]) in ((400, "invalid_grant"), (400, "invalid_request"))


async def test_revoking_what_is_no_token_is_no_error() -> None:
    """RFC 7009 §2.2."""
    async with rig() as site:
        tokens = await site.tokens()
        for token in ("x", "a.b.c"):
            reply = await site.post("/revoke", {"client_id": tokens["client_id"], "token": token})
            assert (reply.status, reply.body) == (200, b"{}")
        assert (await site.call(tokens["access_token"])).status == 200
        assert site.idp.count("/revoke") == 0


async def test_a_login_may_be_revoked_twice() -> None:
    async with rig() as site:
        tokens = await site.tokens()
        for token in (tokens["access_token"], tokens["access_token"], tokens["refresh_token"]):
            reply = await site.post("/revoke", {"client_id": tokens["client_id"], "token": token})
            assert (reply.status, reply.body) == (200, b"{}")
        assert site.idp.count("/revoke") > 0
        assert (await site.call(tokens["access_token"])).status == 401


# ---------------------------------------------------------------- tokens of the provider


@pytest.mark.parametrize("expires_in", [None, 3600])
async def test_tokens_of_the_provider_that_are_good_are_not_renewed(expires_in: int | None) -> None:
    """GitHub and others say nothing of an end."""
    async with rig() as site:
        site.idp.expires_in = expires_in
        tokens = await site.tokens()
        assert (await site.refresh(tokens["client_id"], tokens["refresh_token"])).status == 200
        reply = await site.call(tokens["access_token"], "upstream")
        assert site.idp.tokens[0] in reply.body.decode()
        assert site.idp.count("/token") == 1


async def test_tokens_of_the_provider_that_end_soon_are_renewed_at_a_refresh() -> None:
    async with rig() as site:
        site.idp.expires_in = 30
        tokens = await site.tokens()
        assert (await site.refresh(tokens["client_id"], tokens["refresh_token"])).status == 200
        assert site.idp.count("/token") == 2


async def test_a_login_that_has_ended_has_no_tokens_of_the_provider() -> None:
    backend = Spy()
    async with rig(backend=backend) as site:
        with pytest.raises(AuthorizationFailed, match="The login has ended"):
            await site.auth.upstream_token("unknown")
        site.idp.expires_in = 0
        tokens = await site.tokens()
        access = site.auth._grants.read_access(tokens["access_token"])
        assert access is not None

        async def end() -> None:
            await site.auth._grants._end(access.grant)

        backend.on_lease = end  # somebody logs out while this waits for its turn
        with pytest.raises(AuthorizationFailed, match="The login has ended"):
            await site.auth.upstream_token(access.grant)
        assert site.idp.count("/token") == 1


@pytest.mark.parametrize("expires_in", [3600, None])
async def test_another_process_may_have_renewed_the_tokens_meanwhile(expires_in: int | None) -> None:
    backend = Spy()
    async with rig(backend=backend) as site:
        site.idp.expires_in = 0
        tokens = await site.tokens()
        access = site.auth._grants.read_access(tokens["access_token"])
        assert access is not None
        site.idp.expires_in = expires_in

        async def renew() -> None:
            backend.on_lease = None
            grant = await site.auth._grants.find(access.grant)
            assert grant is not None
            await site.auth._grants._renew_stored(grant)

        backend.on_lease = renew
        assert await site.auth.upstream_token(access.grant) == site.idp.tokens[2]
        assert site.idp.count("/token") == 2


# ---------------------------------------------------------------- what has happened is stored first, and once


async def test_a_renewed_token_of_the_provider_is_stored_before_anything_else_can_fail() -> None:
    """The provider takes each refresh token once, and the database that `allow=` asks is away for a moment."""
    failing = 0

    async def allow(claims: Any) -> bool:
        nonlocal failing
        if failing:
            failing -= 1
            raise RuntimeError("the database is away")
        return True

    async with rig(allow=allow) as site:
        site.idp.rotates, site.idp.expires_in = True, 0
        tokens = await site.tokens()
        failing = 2
        for expected in (500, 500, 200):
            assert (await site.refresh(tokens["client_id"], tokens["refresh_token"])).status == expected


@pytest.mark.parametrize("failure", [Overloaded("the store is full"), BackendError("the store is away")])
async def test_a_renewed_token_waits_for_a_store_that_is_full_or_away(failure: Exception) -> None:
    class Troubled(Spy):
        fails = 0

        async def set(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
            if self.fails:
                self.fails -= 1
                raise failure
            await super().set(key, value, ttl=ttl)

    backend = Troubled()
    async with rig(backend=backend) as site:
        site.idp.rotates, site.idp.expires_in = True, 0
        tokens = await site.tokens()
        backend.fails = 2
        first = await site.refresh(tokens["client_id"], tokens["refresh_token"])
        assert first.status == 200
        backend.fails = 2
        assert (await site.call(json.loads(first.body)["access_token"], "upstream")).status == 200
        assert not backend.fails
        assert (await site.refresh(tokens["client_id"], json.loads(first.body)["refresh_token"])).status == 200


@pytest.mark.parametrize("how", ["used twice", "revoked"])
async def test_a_grant_that_has_ended_stays_dead_when_its_login_is_continued_again(how: str) -> None:
    """With "back" a browser opens the page of the provider again, which comes with the same `state`."""
    async with rig() as site:
        browser, client_id = Browser(), await site.register()
        _, page = await browser.open(site.authorize_url(client_id), CALLBACK)
        code = query_of((await browser.submit(page))[0])["code"]
        tokens = json.loads((await site.exchange_code(client_id, code)).body)
        if how == "revoked":
            await site.post("/revoke", {"client_id": client_id, "token": tokens["refresh_token"]})
        else:
            assert (await site.exchange_code(client_id, code)).status == 400
        (provider,) = (url for url in browser.visited if url.startswith(site.idp.issuer))
        again = query_of((await browser.open(provider))[0])["code"]
        assert (await site.exchange_code(client_id, code)).status == 400
        assert (await site.call(tokens["access_token"])).status == 401
        assert (await site.refresh(client_id, tokens["refresh_token"])).status == 400
        await site.post("/revoke", {"client_id": client_id, "token": tokens["refresh_token"]})
        assert (await site.exchange_code(client_id, again)).status == 200


async def test_a_code_that_was_used_twice_at_once_stays_dead() -> None:
    """RFC 6749 §4.1.2: the answer to the first use may have come before the second one was noticed."""
    async with rig(backend=Slow()) as site:
        for _ in range(3):
            client_id = await site.register()
            code = (await site.login(client_id))["code"]
            replies = await asyncio.gather(*(site.exchange_code(client_id, code) for _ in range(2)))
            assert sorted(reply.status for reply in replies) in ([200, 400], [400, 400])
            for reply in replies:
                if reply.status == 200:
                    tokens = json.loads(reply.body)
                    assert (await site.call(tokens["access_token"])).status == 401
                    assert (await site.refresh(client_id, tokens["refresh_token"])).status == 400


class Slow(MemoryBackend):
    """A store that takes a moment: who comes second goes on while the first one still writes."""

    async def get(self, key: str) -> bytes | None:
        await asyncio.sleep(0)
        return await super().get(key)

    async def set(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        await asyncio.sleep(0.05)
        await super().set(key, value, ttl=ttl)

    async def claim(self, key: str, *, ttl: float) -> bool:
        claimed = await super().claim(key, ttl=ttl)
        await asyncio.sleep(0 if claimed else 0.02)
        return claimed


async def test_a_code_that_could_not_be_exchanged_because_the_store_was_full_is_still_good() -> None:
    class Full(Spy):
        full = False

        async def set(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
            if self.full:
                raise Overloaded("full")
            await super().set(key, value, ttl=ttl)

    backend = Full()
    async with rig(backend=backend) as site:
        client_id = await site.register()
        code = (await site.login(client_id))["code"]
        backend.full = True
        assert (await site.exchange_code(client_id, code)).status == 503
        backend.full = False
        assert (await site.exchange_code(client_id, code)).status == 200


async def test_a_consent_that_is_sent_twice_at_once_continues_one_login() -> None:
    """The provider gets one code challenge, whichever of the two redirects the browser follows."""
    async with rig(backend=Slow()) as site:
        browser, client_id = Browser(), await site.register()
        _, page = await browser.open(site.authorize_url(client_id), CALLBACK)
        action, fields = read_form(page)
        headers = (("Origin", site.issuer), ("Sec-Fetch-Site", "same-origin"))
        answers = await asyncio.gather(
            *(browser.request("POST", action, {**fields, "decision": "allow"}, headers) for _ in range(2))
        )
        assert len({str(reply.all("location")) for reply in answers}) == 1
