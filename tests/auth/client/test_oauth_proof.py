"""Logins of people whose tokens are bound to a key, and logins on another device, in later processes."""

from __future__ import annotations

from typing import Any

import pytest

from gemel import AuthorizationFailed, Client
from gemel.auth import DeviceLogin, DPoP, MemoryTokenStore, OAuth, jose
from tests.auth.double import AuthDouble, Reply
from tests.transports.scripted_http import Asked


def binding(double: AuthDouble, keys: list[Any], lifetime: int = 3600) -> None:
    """Issue tokens that are bound to the key of the proof."""

    def token(asked: Asked) -> Reply:
        keys.append(jose.read_header(asked.headers["dpop"])["jwk"])
        access, refresh = double.grant()
        return Reply(
            200, {"access_token": access, "token_type": "DPoP", "refresh_token": refresh, "expires_in": lifetime}
        )

    double.change("/token", token)


async def test_the_key_is_kept_with_the_tokens() -> None:
    """Without it, neither the token nor the refresh token would be of use to a later process."""
    keys: list[Any] = []
    store = MemoryTokenStore()
    async with AuthDouble() as double:
        binding(double, keys)
        for _ in range(2):
            auth = OAuth(authorizer=double.person(), store=store, proof=DPoP())
            async with Client(double.url, auth=auth) as client:
                await client.call_tool("read")
        assert len(double.opened) == 1
        double.tokens.clear()
        async with Client(double.url, auth=OAuth(authorizer=double.person(), store=store, proof=DPoP())) as client:
            await client.call_tool("read")
        assert len(double.opened) == 1
        assert len(keys) == 2
        assert keys[0] == keys[1], "the refresh token is bound to the key, too"
        sent = [asked.headers["dpop"] for asked in double.server.asked if "dpop" in asked.headers]
        assert all(jose.read_header(proof)["jwk"] == keys[0] for proof in sent)
        assert len({jose.read_claims(proof)["jti"] for proof in sent}) == len(sent)


async def test_the_key_is_read_before_an_expired_token_is_refreshed() -> None:
    keys: list[Any] = []
    store = MemoryTokenStore()
    async with AuthDouble() as double:
        binding(double, keys, lifetime=0)
        for _ in range(2):
            async with Client(double.url, auth=OAuth(authorizer=double.person(), store=store, proof=DPoP())) as client:
                await client.call_tool("read")
        assert len(double.opened) == 1
        assert len(keys) > 2
        assert all(key == keys[0] for key in keys)


async def test_the_nonce_of_an_answer_is_in_the_next_proof() -> None:
    """RFC 9449, section 8.2: a server may name the next nonce in any answer. No request is refused for it."""
    keys: list[Any] = []
    nonces = iter("abcdefgh")
    async with AuthDouble() as double:
        binding(double, keys)
        sent: list[tuple[str, object]] = []

        def answer(asked: Asked) -> Reply:
            reply = double.answer_mcp(asked)
            if "dpop" in asked.headers:
                sent.append((asked.message["method"], jose.read_claims(asked.headers["dpop"]).get("nonce")))
            if reply.status == 200:
                reply.headers["dpop-nonce"] = next(nonces)
            return reply

        double.change("/mcp", answer)
        async with Client(double.url, auth=OAuth(authorizer=double.person(), proof=DPoP())) as client:
            await client.call_tool("read")
            await client.call_tool("read")
        assert [nonce for _, nonce in sent] == [None, *"abcdefgh"[: len(sent) - 1]]
        assert len(sent) > 2


async def test_the_nonce_of_the_token_endpoint_is_in_the_next_proof() -> None:
    """RFC 9449, section 8.2, at the authorization server."""
    nonces: list[object] = []
    async with AuthDouble() as double:

        def token(asked: Asked) -> Reply:
            nonces.append(jose.read_claims(asked.headers["dpop"]).get("nonce"))
            access, refresh = double.grant()
            tokens = {"access_token": access, "token_type": "DPoP", "refresh_token": refresh, "expires_in": 0}
            return Reply(200, tokens, {"dpop-nonce": f"nonce-{len(nonces)}"})

        double.change("/token", token)
        async with Client(double.url, auth=OAuth(authorizer=double.person(), proof=DPoP())) as client:
            await client.call_tool("read")
        assert nonces[:2] == [None, "nonce-1"]


async def test_two_servers_see_two_keys() -> None:
    keys: list[Any] = []
    async with AuthDouble() as first, AuthDouble() as second:
        for double in (first, second):
            binding(double, keys)
        auth = OAuth(authorizer=first.person(), proof=DPoP())
        for double in (first, second):
            auth.authorizer = double.person()
            async with Client(double.url, auth=auth) as client:
                await client.call_tool("read")
    assert keys[0] != keys[1]


async def test_bearer_tokens_are_not_taken_where_bound_ones_were_asked_for() -> None:
    async with AuthDouble() as double:
        with pytest.raises(AuthorizationFailed, match="Bearer"):
            async with Client(double.url, auth=OAuth(authorizer=double.person(), proof=DPoP())):
                pass


async def test_a_device_login_registers_a_client_of_its_own() -> None:
    async with AuthDouble() as double:
        double.metadata["device_authorization_endpoint"] = f"{double.issuer}/device"
        code = {"device_code": "d", "user_code": "ABCD", "verification_uri": f"{double.issuer}/a", "expires_in": 60}
        double.change("/device", Reply(200, {**code, "interval": 0}))
        access, _ = double.grant("notes")
        double.change("/token", Reply(200, {"access_token": access, "token_type": "Bearer", "scope": "notes"}))
        texts: list[str] = []
        async with Client(double.url, auth=OAuth(authorizer=DeviceLogin(show=texts.append))) as client:
            assert (await client.call_tool("read")).text == "notes"
        assert "ABCD" in texts[0]
        (registration,) = [asked.message for asked in double.authority.asked if asked.path == "/register"]
        assert registration["application_type"] == "native"
        assert "redirect_uris" not in registration
        assert double.opened == []
