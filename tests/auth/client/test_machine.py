"""Programs that authorize without a person, against servers on loopback."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from base64 import b64decode
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import pytest

from gemel import AuthorizationFailed, CallError, Client, DefinitionError, HttpStatus
from gemel.auth import jose
from gemel.auth.client import machine
from gemel.auth.client.dpop import DPoP
from gemel.auth.client.machine import ClientCredentials, EnterpriseAuth, MachineAuth, WorkloadIdentity
from gemel.auth.client.workload import FileToken, GcpToken
from tests.auth.double import AuthDouble, Reply
from tests.transports.scripted_http import Asked

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def issuing(double: AuthDouble, **answer: Any) -> Callable[[Asked], Reply]:
    """A token endpoint that gives a token to everybody."""

    def reply(asked: Asked) -> Reply:
        form = dict(parse_qsl(asked.body.decode()))
        token, _ = double.grant(*form.get("scope", "").split())
        return Reply(200, {"access_token": token, "token_type": "Bearer", "expires_in": 3600, **answer})

    return reply


async def listed(double: AuthDouble, auth: MachineAuth) -> list[str]:
    async with Client(double.url, auth=auth) as client:
        return [tool.name for tool in await client.list_tools()]


# ---------------------------------------------------------------- client credentials


async def test_client_credentials_with_a_secret() -> None:
    """AUTHX-02: discovery as in core, no redirect, no registration."""
    async with AuthDouble() as double:
        double.change("/token", issuing(double))
        double.resource_metadata["scopes_supported"] = ["notes"]
        assert await listed(double, ClientCredentials("job 1", "s:cr+t")) == ["read", "write"]
        assert double.paths(double.authority) == ["/.well-known/oauth-authorization-server", "/token"]
        (form,) = double.forms("/token")
        expected = {"grant_type": "client_credentials", "resource": double.url, "scope": "notes"}
        assert {name: form[name] for name in expected} == expected
        pair = b64decode(double.authority.asked[-1].headers["authorization"].removeprefix("Basic "))
        assert pair in (b"job%201:s%3Acr%2Bt", b"job+1:s%3Acr%2Bt")


async def test_the_secret_goes_into_the_form_where_that_is_the_only_way() -> None:
    async with AuthDouble() as double:
        double.change("/token", issuing(double))
        double.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
        await listed(double, ClientCredentials("job", "secret"))
        assert double.forms("/token")[0]["client_secret"] == "secret"
        double.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_basic", "client_secret_post"]
        await listed(double, ClientCredentials("job", "secret", auth_method="client_secret_post"))
        assert double.forms("/token")[1]["client_secret"] == "secret"


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "EdDSA", None])
async def test_private_key_jwt(algorithm: str | None) -> None:
    """AUTHX-03: iss and sub are the client, aud is the authorization server, and each assertion is new."""
    key = jose.generate_key(algorithm or "ES256")
    async with AuthDouble() as double:
        double.change("/token", issuing(double, expires_in=0))
        auth = ClientCredentials("job", private_key=jose.private_jwk(key), algorithm=algorithm)
        await listed(double, auth)
        forms = double.forms("/token")
        assert len(forms) > 1
        ids = set()
        for form in forms:
            assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
            _, claims = jose.verify_jwt(form["client_assertion"], key)
            assert (claims["iss"], claims["sub"], claims["aud"]) == ("job", "job", double.issuer)
            assert claims["iat"] < claims["exp"] <= claims["iat"] + 300
            ids.add(claims["jti"])
            assert "authorization" not in double.authority.asked[-1].headers
        assert len(ids) == len(forms)


async def test_a_token_is_shared_and_replaced_before_it_expires() -> None:
    async with AuthDouble() as double:
        double.change("/token", issuing(double))
        async with Client(double.url, auth=ClientCredentials("job", "secret")) as client:
            await asyncio.gather(*(client.call_tool("read") for _ in range(20)))
            assert len(double.forms("/token")) == 1
            double.tokens.clear()
            await asyncio.gather(*(client.call_tool("read") for _ in range(20)))
            assert len(double.forms("/token")) == 2
        double.change("/token", issuing(double, expires_in=0))
        async with Client(double.url, auth=ClientCredentials("job", "secret")) as client:
            double.server.asked.clear()
            await client.call_tool("read")
            assert all("authorization" in asked.headers for asked in double.server.asked)


async def test_missing_scopes_are_requested_once() -> None:
    async with AuthDouble() as double:
        double.change("/token", issuing(double))
        double.needed_to_write = frozenset({"edit"})
        async with Client(double.url, auth=ClientCredentials("job", "secret", scopes=["base"])) as client:
            assert (await client.call_tool("write")).text == "base edit"
            assert [form.get("scope") for form in double.forms("/token")] == ["base", "base edit"]


async def test_a_token_that_will_soon_expire_is_replaced_by_a_fresh_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """AUTHX-04: before it is refused."""
    async with AuthDouble() as double:
        double.change("/token", issuing(double, expires_in=600))
        async with Client(double.url, auth=ClientCredentials("job", "secret")) as client:
            await client.call_tool("read")
            assert len(double.tokens) == 1
            now = time.time
            monkeypatch.setattr(time, "time", lambda: now() + 599)
            double.server.asked.clear()
            await client.call_tool("read")
            _, fresh = double.tokens
            assert [asked.headers["authorization"] for asked in double.server.asked] == [f"Bearer {fresh}"]


async def test_scopes_that_are_not_granted_end_the_call() -> None:
    """AUTHC-16: no endless step-up."""
    async with AuthDouble() as double:
        double.needed_to_write = frozenset({"edit"})
        token, _ = double.grant("base")
        double.change("/token", Reply(200, {"access_token": token, "token_type": "Bearer", "scope": "base"}))
        async with Client(double.url, auth=ClientCredentials("job", "secret")) as client:
            for _ in range(3):
                with pytest.raises(HttpStatus, match="403"):
                    await client.call_tool("write")
        assert len(double.forms("/token")) <= 3


async def test_a_token_that_the_server_does_not_accept_is_not_requested_endlessly() -> None:
    async with AuthDouble() as double:
        double.change("/token", Reply(200, {"access_token": "unknown", "token_type": "Bearer"}))
        with pytest.raises(CallError):
            await listed(double, ClientCredentials("job", "secret"))
        assert len(double.forms("/token")) == 2


@pytest.mark.parametrize(
    "error", ["invalid_client", "unauthorized_client", "invalid_scope", "invalid_grant", "server_error"]
)
async def test_a_refusal_is_final_for_a_while(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with AuthDouble() as double:
        double.change("/token", Reply(400, {"error": error, "error_description": "no"}))
        auth = ClientCredentials("job", "canary-secret")
        credentials = auth.bind(double.url)
        for _ in range(3):
            with pytest.raises(AuthorizationFailed, match=error) as caught:
                await credentials.tokens()
            assert "canary" not in str(caught.value)
        assert len(double.forms("/token")) == 1
        monkeypatch.setattr(machine, "PAUSE", 0.0)
        double.change("/token", issuing(double))
        assert (await credentials.tokens()).access_token


async def test_another_authorization_server_does_not_get_the_secret() -> None:
    """AUTHC-26: pre-registered credentials belong to an issuer."""
    async with AuthDouble() as double, AuthDouble() as other:
        double.change("/token", issuing(double))
        async with Client(double.url, auth=ClientCredentials("job", "secret")) as client:
            await client.list_tools()
            double.tokens.clear()
            double.resource_metadata["authorization_servers"] = [other.issuer]
            with pytest.raises(AuthorizationFailed, match=r"issuer=") as caught:
                await client.call_tool("read")
            assert other.issuer in str(caught.value)
        with pytest.raises(AuthorizationFailed, match="not authorized by the issuer"):
            await listed(double, ClientCredentials("job", "secret", issuer=double.issuer))
        assert other.forms("/token") == []


async def taken_to(other: AuthDouble, first: AuthDouble, auth: MachineAuth) -> None:
    """Use credentials for one server, and then for another one, which names an authorization server of its own."""
    for double in (first, other):
        double.change("/token", issuing(double))
    assert await listed(first, auth) == ["read", "write"]
    await listed(other, auth)


@pytest.mark.parametrize("kind", ["secret", "workload", "enterprise"])
async def test_what_was_used_at_one_authorization_server_is_not_sent_to_that_of_another_server(
    kind: str, tmp_path: Any
) -> None:
    """One object for several servers, none of which chooses who gets its secrets."""
    (tmp_path / "token").write_text("of-the-platform")
    async with AuthDouble() as double, AuthDouble() as other, AuthDouble() as idp:
        idp.change("/token", Reply(200, {"access_token": "jag", "issued_token_type": ID_JAG, "token_type": "N_A"}))
        ways: dict[str, MachineAuth] = {
            "secret": ClientCredentials("job", "secret"),
            "workload": WorkloadIdentity(FileToken(tmp_path / "token")),
            "enterprise": enterprise(double, idp),
        }
        auth = ways[kind]
        with pytest.raises(AuthorizationFailed, match=f"used at '{double.issuer}' for .*issuer=") as caught:
            await taken_to(other, double, auth)
        assert other.issuer in str(caught.value)
        assert other.forms("/token") == []


@pytest.mark.parametrize("kind", ["key", "enterprise"])
async def test_what_names_its_authorization_server_may_be_used_at_several(kind: str) -> None:
    async with AuthDouble() as double, AuthDouble() as other, AuthDouble() as idp:
        idp.change("/token", Reply(200, {"access_token": "jag", "issued_token_type": ID_JAG, "token_type": "N_A"}))
        auth = (
            ClientCredentials("job", private_key=jose.private_jwk(jose.generate_key()))
            if kind == "key"
            else EnterpriseAuth("id", idp_token_endpoint=f"{idp.issuer}/token", idp_client_id="a", client_id="b")
        )
        await taken_to(other, double, auth)
        assert len(other.forms("/token")) == 1


# ---------------------------------------------------------------- workload identity


async def test_workload_identity() -> None:
    audiences: list[str] = []

    async def token(audience: str) -> str:
        audiences.append(audience)
        return "platform-jwt"

    async with AuthDouble() as double:
        double.change("/token", issuing(double))
        await listed(double, WorkloadIdentity(token, client_id="ci", scopes=["notes"]))
        expected = {
            "grant_type": JWT_BEARER,
            "assertion": "platform-jwt",
            "client_id": "ci",
            "resource": double.url,
            "scope": "notes",
        }
        assert double.forms("/token") == [expected]
        await listed(double, WorkloadIdentity(token, audience="api://notes"))
        assert "client_id" not in double.forms("/token")[1]
        assert audiences == [double.issuer, "api://notes"]


async def test_a_workload_token_from_a_file(tmp_path: Any) -> None:
    (tmp_path / "token").write_text("from-file\n")
    async with AuthDouble() as double:
        double.change("/token", issuing(double))
        await listed(double, WorkloadIdentity(FileToken(tmp_path / "token")))
        assert double.forms("/token")[0]["assertion"] == "from-file"


async def test_metadata_services_are_asked_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    """They know who asks by the connection: a proxy would get the token of the proxy's machine."""
    async with AuthDouble() as double:
        place = "/computeMetadata/v1/instance/service-accounts/default/identity"
        double.change(place, Reply(200, b"gcp-jwt", {"metadata-flavor": "Google"}))
        double.change("/token", issuing(double))
        monkeypatch.setenv("GCE_METADATA_HOST", double.issuer.removeprefix("http://"))
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        await listed(double, WorkloadIdentity(GcpToken()))
        assert double.forms("/token")[0]["assertion"] == "gcp-jwt"


@pytest.mark.parametrize("error", ["invalid_grant", "invalid_scope", "unauthorized_client"])
async def test_no_other_grant_is_tried_after_an_error(error: str) -> None:
    async with AuthDouble() as double:
        double.change("/token", Reply(400, {"error": error}))
        with pytest.raises(AuthorizationFailed, match=error):
            await listed(double, WorkloadIdentity(lambda audience: "canary-jwt"))
        assert [form["grant_type"] for form in double.forms("/token")] == [JWT_BEARER]
        assert "/register" not in double.paths(double.authority)
        assert "/authorize" not in double.paths(double.authority)


# ---------------------------------------------------------------- enterprise-managed authorization

ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


def enterprise(double: AuthDouble, idp: AuthDouble, **options: Any) -> EnterpriseAuth:
    return EnterpriseAuth(
        options.pop("id_token", "id-token"),
        idp_token_endpoint=f"{idp.issuer}/token",
        idp_client_id="idp-client",
        client_id="mcp-client",
        client_secret="mcp-secret",
        **options,
    )


async def test_enterprise_managed_authorization() -> None:
    """AUTHX-05, AUTHX-06."""
    async with AuthDouble() as double, AuthDouble() as idp:
        idp.change("/token", Reply(200, {"access_token": "jag", "issued_token_type": ID_JAG, "token_type": "N_A"}))
        double.change("/token", issuing(double))
        await listed(double, enterprise(double, idp, scopes=["notes"]))
        assert idp.forms("/token") == [
            {
                "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
                "requested_token_type": ID_JAG,
                "audience": double.issuer,
                "resource": double.url,
                "scope": "notes",
                "subject_token": "id-token",
                "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
                "client_id": "idp-client",
            }
        ]
        (form,) = double.forms("/token")
        assert (form["grant_type"], form["assertion"], form["resource"]) == (JWT_BEARER, "jag", double.url)
        assert double.authority.asked[-1].headers["authorization"].startswith("Basic ")
        assert "/authorize" not in double.paths(double.authority)
        assert "id-token" not in repr(double.authority.asked)


async def test_the_assertion_is_asked_for_each_time() -> None:
    count = 0

    async def current() -> str:
        nonlocal count
        count += 1
        return f"id-token-{count}"

    async with AuthDouble() as double, AuthDouble() as idp:
        idp.change("/token", Reply(200, {"access_token": "jag", "issued_token_type": ID_JAG, "token_type": "N_A"}))
        double.change("/token", issuing(double))
        auth = enterprise(double, idp, id_token=current)
        await listed(double, auth)
        await listed(double, enterprise(double, idp, id_token=current))
        assert [form["subject_token"] for form in idp.forms("/token")] == ["id-token-1", "id-token-2"]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(400, {"error": "invalid_grant", "error_description": "the assertion expired"}),
        Reply(200, {"access_token": "at", "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}),
        Reply(200, {"access_token": "at"}),
        Reply(200, {"access_token": "", "issued_token_type": ID_JAG}),
        Reply(200, b"<html>"),
        Reply(302, headers={"location": "http://127.0.0.1:1/"}),
        Reply(200, b" " * (2 << 20)),
    ],
)
async def test_without_a_grant_nothing_is_sent_to_the_authorization_server(reply: Reply) -> None:
    async with AuthDouble() as double, AuthDouble() as idp:
        idp.change("/token", reply)
        with pytest.raises(AuthorizationFailed):
            await listed(double, enterprise(double, idp))
        assert double.forms("/token") == []
        assert len(idp.forms("/token")) == 1


# ---------------------------------------------------------------- DPoP


async def test_machine_tokens_may_be_bound_to_a_key() -> None:
    def token(asked: Asked) -> Reply:
        header, claims = jose.read_header(asked.headers["dpop"]), jose.read_claims(asked.headers["dpop"])
        assert (claims["htm"], claims["htu"]) == ("POST", f"{double.issuer}/token")
        if claims.get("nonce") != "as-nonce":
            return Reply(400, {"error": "use_dpop_nonce"}, {"dpop-nonce": "as-nonce"})
        keys.append(header["jwk"])
        access, _ = double.grant()
        return Reply(200, {"access_token": access, "token_type": "DPoP"})

    keys: list[Any] = []
    async with AuthDouble() as double:
        double.change("/token", token)
        async with Client(double.url, auth=ClientCredentials("job", "secret", proof=DPoP())) as client:
            for _ in range(3):
                await client.call_tool("read")
        sent = [asked.headers for asked in double.server.asked if asked.headers.get("authorization")]
        proofs = [jose.read_claims(headers["dpop"]) for headers in sent]
        assert {headers["authorization"].partition(" ")[0] for headers in sent} == {"DPoP"}
        assert {claims["htu"] for claims in proofs} == {double.url}
        assert all(
            claims["ath"] == jose.token_hash(headers["authorization"][5:])
            for claims, headers in zip(proofs, sent, strict=True)
        )
        assert len({claims["jti"] for claims in proofs}) == len(sent)
        assert all(jose.read_header(headers["dpop"])["jwk"] == keys[0] for headers in sent)


async def test_the_nonce_of_an_answer_is_in_the_next_proof_of_a_program() -> None:
    """RFC 9449, section 8.2."""
    async with AuthDouble() as double:
        double.change("/token", issuing(double, token_type="DPoP"))

        def answer(asked: Asked) -> Reply:
            reply = double.answer_mcp(asked)
            reply.headers["dpop-nonce"] = "next"
            return reply

        double.change("/mcp", answer)
        async with Client(double.url, auth=ClientCredentials("job", "secret", proof=DPoP())) as client:
            await client.call_tool("read")
        proofs = [jose.read_claims(asked.headers["dpop"]) for asked in double.server.asked if "dpop" in asked.headers]
        assert proofs[-1]["nonce"] == "next"
        assert len(proofs) == 2, "nothing was refused and repeated"


async def test_a_token_that_is_not_bound_is_not_taken_for_one_that_is() -> None:
    async with AuthDouble() as double:
        double.change("/token", issuing(double))
        with pytest.raises(AuthorizationFailed, match="type Bearer"):
            await listed(double, ClientCredentials("job", "secret", proof=DPoP()))
        double.change("/token", issuing(double, token_type="DPoP"))
        with pytest.raises(AuthorizationFailed, match="type DPoP"):
            await listed(double, ClientCredentials("job", "secret"))


# ---------------------------------------------------------------- options, secrets, extensions


@pytest.mark.parametrize(
    ("auth", "name"),
    [
        (ClientCredentials("job", "secret"), "io.modelcontextprotocol/oauth-client-credentials"),
        (
            EnterpriseAuth(
                "x", idp_token_endpoint="https://idp.example/t", idp_client_id="i", client_id="c", client_secret="s"
            ),
            "io.modelcontextprotocol/enterprise-managed-authorization",
        ),
        (WorkloadIdentity(lambda audience: "x"), None),
    ],
)
@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_the_extension_is_declared(auth: MachineAuth, name: str | None, era: Any) -> None:
    """AUTHX-01: in `extensions` of the client's capabilities, with each request in the stateless era."""
    async with AuthDouble() as double:
        bodies: list[Any] = []

        def note(asked: Asked) -> Reply:
            if asked.body:
                bodies.append(json.loads(asked.body))
            return Reply(404)

        double.change("/mcp", note)
        with pytest.raises(CallError):
            async with Client(double.url, auth=auth, era=era):
                pass
        params = bodies[0]["params"]
        declared = (
            params["capabilities"] if era == "2025" else params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        )
        assert declared.get("extensions", {}) == ({} if name is None else {name: {}})


def test_options_that_can_not_work() -> None:
    public = jose.public_jwk(jose.generate_key())
    key = jose.private_jwk(jose.generate_key("ES256"))
    wrong: list[Callable[[], object]] = [
        lambda: ClientCredentials("job"),
        lambda: ClientCredentials("job", "secret", private_key=key),
        lambda: ClientCredentials("job", private_key="not a key"),
        lambda: ClientCredentials("job", private_key=public),
        lambda: ClientCredentials("job", private_key=key, algorithm="RS256"),
        lambda: ClientCredentials("job", "secret", scopes="notes"),
        lambda: ClientCredentials("job", "secret", scope=["notes"]),  # type: ignore[call-arg]  # a misspelt option
        lambda: EnterpriseAuth("x", idp_token_endpoint="http://idp.example/t", idp_client_id="i", client_id="c"),
    ]
    for make in wrong:
        with pytest.raises(DefinitionError) as caught:
            make()
        assert key["d"] not in str(caught.value)


async def test_secrets_are_in_no_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with AuthDouble() as double, AuthDouble() as idp:
        texts = []
        for auth in (
            ClientCredentials("job", "canary-secret"),
            WorkloadIdentity(lambda audience: "canary-jwt"),
            enterprise(double, idp, id_token="canary-id-token"),
        ):
            double.change("/token", Reply(400, {"error": "invalid_client"}))
            idp.change("/token", Reply(400, {"error": "invalid_client"}))
            credentials = auth.bind(double.url)
            with pytest.raises(AuthorizationFailed) as caught:
                await credentials.tokens()
            texts += [repr(auth), repr(credentials), str(caught.value), repr(caught.value)]
        assert not any("canary" in text for text in [*texts, caplog.text])
