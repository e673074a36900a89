"""What a user chooses for one authorization server that differs from the specification; nothing of it is tried by itself."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from gemel import AuthorizationFailed, Client, DefinitionError
from gemel.auth import ClientCredentials, DeviceLogin, MemoryTokenStore, OAuth
from tests.auth.double import AuthDouble, Reply
from tests.transports.scripted_http import Asked


async def log_in(double: AuthDouble, **options: Any) -> None:
    """Log in to the authorization server of the double as a client that is registered there."""
    double.clients["mine"] = {"redirect_uris": ["*"]}
    options = {"client_id": "mine", "issuer": double.issuer, "authorizer": double.person(), **options}
    async with Client(double.url, auth=OAuth(**options)) as client:
        await client.call_tool("read")


def refuse_resource(double: AuthDouble) -> None:
    """Refuse the parameter at all endpoints, as Entra ID does."""
    refusal = Reply(400, {"error": "invalid_target", "error_description": "AADSTS9010010"})
    double.change("/token", lambda asked: refusal if b"resource=" in asked.body else granted(double, asked))


def granted(double: AuthDouble, asked: Asked) -> Reply:
    """Grant tokens without a look at the request."""
    access, refresh = double.grant()
    return Reply(200, {"access_token": access, "refresh_token": refresh, "expires_in": 3600})


async def test_the_resource_parameter_is_left_out_of_every_request() -> None:
    """Of refreshes by other processes, too, which don't know the option."""
    store = MemoryTokenStore()
    async with AuthDouble() as double:
        refuse_resource(double)
        with pytest.raises(AuthorizationFailed, match="AADSTS9010010"):
            await log_in(double)
        await log_in(double, resource=False, store=store)
        assert "resource" not in double.authorizations()[-1]
        ((key, tokens),) = [item for item in store._tokens.items() if item[1].access_token]
        await store.set(key, msgspec.structs.replace(tokens, expires_at=time.time() - 1))
        await log_in(double, store=store)
        assert double.forms("/token")[-1]["grant_type"] == "refresh_token"
        assert len(double.opened) == 2


async def test_the_resource_parameter_is_what_the_user_says() -> None:
    async with AuthDouble() as double:
        await log_in(double, resource="api://notes")
        assert double.authorizations()[0]["resource"] == double.forms("/token")[0]["resource"] == "api://notes"


async def test_further_parameters_are_sent_with_the_authorization_request() -> None:
    more = {"access_type": "offline", "prompt": "select_account"}
    async with AuthDouble() as double:
        double.metadata["scopes_supported"] = ["offline_access"]
        await log_in(double, authorization_parameters=more, scopes=["a"])
        sent = double.authorizations()[0]
        assert {name: sent[name] for name in more} == more
        assert not set(more) & set(double.forms("/token")[0])


async def test_scopes_are_separated_by_commas() -> None:
    async with AuthDouble() as double:
        await log_in(double, scope_separator=",", scopes=["a", "b"])
        assert double.authorizations()[0]["scope"] == "a,b"


async def test_a_login_without_announced_pkce_still_sends_it() -> None:
    async with AuthDouble() as double:
        del double.metadata["code_challenge_methods_supported"]
        with pytest.raises(AuthorizationFailed, match="assume_pkce=True"):
            await log_in(double)
        await log_in(double, assume_pkce=True)
        assert double.authorizations()[0]["code_challenge_method"] == "S256"
        assert "code_verifier" in double.forms("/token")[0]


async def test_a_login_on_another_device_takes_the_same_options() -> None:
    async with AuthDouble() as double:
        refuse_resource(double)
        code = {"device_code": "d", "user_code": "AB", "verification_uri": f"{double.issuer}/device", "expires_in": 60}
        double.metadata["device_authorization_endpoint"] = f"{double.issuer}/device"
        double.change("/device", Reply(200, {**code, "interval": 0}))
        options = {"resource": False, "authorization_parameters": {"audience": "notes"}, "scope_separator": ","}
        await log_in(double, authorizer=DeviceLogin(show=lambda text: None), scopes=["a", "b"], **options)
        assert double.forms("/device") == [{"scope": "a,b", "audience": "notes", "client_id": "mine"}]


@pytest.mark.parametrize("method", [None, "client_secret_basic", "client_secret_post"])
async def test_the_secret_is_sent_as_the_user_says(method: str | None) -> None:
    """GitHub takes it in the body only, which its metadata need not say."""
    async with AuthDouble() as double:
        double.metadata["token_endpoint_auth_methods_supported"] = None
        double.change("/token", lambda asked: granted(double, asked))
        double.clients["mine"] = {"redirect_uris": ["*"]}
        await log_in(double, client_secret="secret-1", auth_method=method)
        asked = next(asked for asked in double.authority.asked if asked.path == "/token")
        assert ("client_secret" in double.forms("/token")[0]) == (method == "client_secret_post")
        assert ("authorization" in asked.headers) == (method != "client_secret_post")


async def test_a_program_without_a_person_has_them_too() -> None:
    async with AuthDouble() as double:
        double.change("/token", lambda asked: granted(double, asked))
        auth = ClientCredentials(
            "job", "secret", issuer=double.issuer, resource=False, token_parameters={"audience": "https://notes"}
        )
        async with Client(double.url, auth=auth) as client:
            await client.call_tool("read")
        (form,) = double.forms("/token")
        assert form["audience"] == "https://notes"
        assert "resource" not in form


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"resource": False}, "name it with issuer="),
        ({"assume_pkce": True}, "name it with issuer="),
        ({"authorization_parameters": {"a": "b"}}, "name it with issuer="),
        ({"scope_separator": ","}, "name it with issuer="),
        ({"client_id": "a", "client_secret": "b", "auth_method": "none"}, "auth_method is one of"),
        ({"client_id": "a", "auth_method": "client_secret_post"}, "needs client_secret"),
        ({"issuer": "https://a.example", "resource": ""}, "resource is a URI"),
        ({"issuer": "https://a.example", "scope_separator": ";"}, 'scope_separator is " " or ","'),
        ({"issuer": "https://a.example", "authorization_parameters": {"state": "x"}}, "'state' is set by the client"),
        ({"issuer": "https://a.example", "authorization_parameters": {"max_age": 1}}, "'max_age' is not a text"),
    ],
)
def test_an_option_that_can_not_work_is_an_error_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        OAuth(**options)
