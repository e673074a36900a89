"""Our client at our server: it steps up when a scope is missing, and sends proofs with the nonces that are asked for."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from gemel import Client, Context, HttpStatus, InsufficientScope, Principal, Server
from gemel.auth import ClientCredentials, DPoP, DPoPProofs, OAuth, TokenAuth
from gemel.auth.jose import import_public_key, read_header, thumbprint
from tests.auth.double import AuthDouble, Reply
from tests.transports.http_rig import serving

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


def notes(auth: TokenAuth) -> Server[Any]:
    server: Server[Any] = Server("notes", auth=auth)

    @server.tool
    async def read(ctx: Context[Any]) -> str:
        return " ".join(sorted(ctx.scopes))

    @server.tool(scopes=["notes.write"])
    async def write(ctx: Context[Any]) -> str:
        return " ".join(sorted(ctx.scopes))

    @server.tool(scopes=["notes.write"])
    async def remove(ctx: Context[Any]) -> str:
        if "notes.admin" not in ctx.scopes:
            raise InsufficientScope("notes.admin")
        return " ".join(sorted(ctx.scopes))

    return server


@both_eras
async def test_a_client_asks_its_user_for_the_scopes_of_an_operation_and_calls_again(era: Any) -> None:
    """AUTHC-17: one login for what every request needs, one for each scope that is missing."""
    async with AuthDouble() as double:

        def verify(token: str) -> Principal | None:
            scopes = double.tokens.get(token)
            return None if scopes is None else Principal("anna", scopes, client="editor")

        auth = TokenAuth(verify, authorization_servers=[double.issuer], required_scopes=["notes.read"])
        async with serving(notes(auth)) as site:
            url = f"http://127.0.0.1:{site.port}/mcp"
            async with Client(url, era=era, auth=OAuth(authorizer=double.person())) as client:
                assert (await client.call_tool("read")).text == "notes.read"
                assert (await client.call_tool("write")).text == "notes.read notes.write"
                assert (await client.call_tool("remove")).text == "notes.admin notes.read notes.write"
                assert (await client.call_tool("read")).text == "notes.admin notes.read notes.write"
        asked = [set(each["scope"].split()) for each in double.authorizations()]
        assert asked == [
            {"notes.read"},
            {"notes.read", "notes.write"},
            {"notes.admin", "notes.read", "notes.write"},
        ]


@both_eras
async def test_a_client_whose_user_may_not_have_a_scope_gets_the_refusal(era: Any) -> None:
    async with AuthDouble() as double:
        auth = TokenAuth(
            lambda token: Principal("anna", frozenset({"notes.read"})) if token in double.tokens else None,
            authorization_servers=[double.issuer],
        )
        async with serving(notes(auth)) as site:
            url = f"http://127.0.0.1:{site.port}/mcp"
            async with Client(url, era=era, auth=OAuth(authorizer=double.person())) as client:
                with pytest.raises(HttpStatus) as refused:
                    await client.call_tool("write")
                assert refused.value.status == 403
        assert len(double.opened) <= 3


@both_eras
@pytest.mark.parametrize("nonces", [False, True])
async def test_a_client_with_a_key_proves_it_with_each_request(era: Any, nonces: bool) -> None:
    """RFC 9449: a stolen token is of no use, neither as bearer token nor with another key."""
    keys: dict[str, str] = {}
    async with AuthDouble() as double:

        def issue(asked: Any) -> Reply:
            """Bind the token to the key of the proof."""
            token = f"at-{secrets.token_hex(8)}"
            keys[token] = thumbprint(import_public_key(read_header(asked.headers["dpop"])["jwk"]))
            return Reply(200, {"access_token": token, "token_type": "DPoP", "expires_in": 3600})

        def verify(token: str) -> Principal | None:
            return Principal("robot", claims={"cnf": {"jkt": keys[token]}}) if token in keys else None

        double.metadata["grant_types_supported"] = ["client_credentials"]
        double.metadata["dpop_signing_alg_values_supported"] = ["ES256"]
        double.change("/token", issue)
        auth = TokenAuth(verify, authorization_servers=[double.issuer], dpop=DPoPProofs(required=True, nonces=nonces))
        async with serving(notes(auth)) as site:
            url = f"http://127.0.0.1:{site.port}/mcp"
            credentials = ClientCredentials("robot", "secret", proof=DPoP())
            async with Client(url, era=era, auth=credentials) as client:
                for _ in range(3):
                    assert (await client.call_tool("read")).text == ""
            assert len(keys) == 1
            (token,) = keys
            for stolen in ({"Authorization": f"Bearer {token}"}, {"Authorization": f"DPoP {token}"}):
                with pytest.raises(HttpStatus) as refused:
                    await Client(url, era=era, headers=stolen).__aenter__()
                assert refused.value.status == 401
