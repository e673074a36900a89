"""Answers of token endpoints as providers and frameworks send them: what is understood, and what a refusal says."""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from typing import Any
from urllib.parse import quote_plus, unquote_plus, urlencode

import pytest

from gemel import AuthorizationFailed, Client
from gemel.auth import DeviceLogin, EnterpriseAuth, MemoryTokenStore, OAuth, Tokens
from tests.auth.double import AuthDouble, Reply
from tests.transports.scripted_http import Asked

FORM = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}


async def log_in(double: AuthDouble, **options: Any) -> Tokens:
    """Log in and make a call. Returns what is stored."""
    store = MemoryTokenStore()
    options.setdefault("authorizer", double.person())
    async with Client(double.url, auth=OAuth(store=store, **options)) as client:
        await client.call_tool("read")
    return next(tokens for tokens in store._tokens.values() if tokens.access_token)


@pytest.mark.parametrize(
    ("members", "status", "expected"),
    [
        ({}, 201, {}),
        ({"expires_in": "3600"}, 200, {"lifetime": 3600}),
        ({"expires_in": ""}, 200, {"lifetime": None}),
        ({"expires_in": None}, 200, {"lifetime": None}),
        ({"token_type": "bearer"}, 200, {}),
        ({"token_type": None}, 200, {}),
        ({"token_type": ""}, 200, {}),
        ({"token_type": "bot", "ok": True}, 200, {}),
        ({"refresh_token": ""}, 200, {"refresh_token": None}),
        ({"scope": "a,b"}, 200, {"scopes": ("a", "b")}),
        ({"scope": ["a", "b"]}, 200, {"scopes": ("a", "b")}),
        ({"scope": None}, 200, {"scopes": ("a", "b")}),
        ({"error": None}, 200, {}),
        ({"error": ""}, 200, {}),
        ({"token_type": " Bearer "}, 200, {}),
        ({"expires_in": 0, "refresh_token": None}, 200, {"lifetime": None}),
        ({"expires_in": -1, "refresh_token": None}, 200, {"lifetime": None}),
        ({"refresh_token": "two words"}, 200, {"refresh_token": "two words"}),
    ],
)
async def test_an_answer_that_can_be_understood_is_used(
    members: dict[str, Any], status: int, expected: dict[str, Any]
) -> None:
    async with AuthDouble() as double:
        access, refresh = double.grant()
        answer = {"access_token": access, "token_type": "Bearer", "refresh_token": refresh, "expires_in": 60, **members}
        double.change("/token", Reply(status, answer))
        tokens = await log_in(double, scopes=["a", "b"])
    assert (tokens.access_token, tokens.token_type) == (access, "Bearer")
    found: dict[str, Any] = {"refresh_token": tokens.refresh_token, "scopes": tokens.scopes}
    found["lifetime"] = None if tokens.expires_at is None else round(tokens.expires_at - time.time(), -2)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("expires_in", "3600s"),
        ("expires_in", "2026-12-01T00:00:00Z"),
        ("expires_in", True),
        ("expires_in", {}),
        ("scope", 7),
        ("scope", [1]),
        ("refresh_token", False),
        ("refresh_token", []),
    ],
)
async def test_a_member_that_no_login_needs_is_left_out(
    member: str, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    async with AuthDouble() as double:
        access, _ = double.grant()
        double.change("/token", Reply(200, {"access_token": access, member: value}))
        tokens = await log_in(double, scopes=["a"])
    assert (tokens.refresh_token, tokens.expires_at, tokens.scopes) == (None, None, ("a",))
    assert "token-member-left-out" in caplog.text
    assert member in caplog.text


@pytest.mark.parametrize("token_type", ["mac", 1, ["Bearer"]])
async def test_a_token_of_another_type_is_not_used(token_type: object) -> None:
    async with AuthDouble() as double:
        access, _ = double.grant()
        double.change("/token", Reply(200, {"access_token": access, "token_type": token_type}))
        with pytest.raises(AuthorizationFailed):
            await log_in(double)


async def test_a_comma_may_be_part_of_a_scope() -> None:
    async with AuthDouble() as double:
        access, _ = double.grant()
        double.change("/token", Reply(200, {"access_token": access, "scope": "a,b"}))
        assert (await log_in(double, scopes=["a,b"])).scopes == ("a,b",)


async def test_a_form_encoded_answer_is_used() -> None:
    async with AuthDouble() as double:
        access, _ = double.grant()
        answer = {"access_token": access, "token_type": "bearer", "scope": "repo,gist", "expires_in": "28800"}
        double.change("/token", Reply(200, urlencode(answer).encode(), FORM))
        assert (await log_in(double)).scopes == ("repo", "gist")


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(200, {"error": "bad_code", "error_description": "The code is wrong."}), r"bad_code \(The code is wrong"),
        (Reply(200, {"ok": False, "error": "invalid_code"}), "invalid_code"),
        (Reply(200, {"ok": False}), "HTTP 200"),
        (Reply(200, b"error=bad_code&error_description=Wrong", FORM), r"bad_code \(Wrong\)"),
        (Reply(400, {"error": {"code": "bad_code", "message": "Wrong"}}), r"bad_code \(Wrong\)"),
        (Reply(400, {"detail": "Wrong"}), r"HTTP 400 \(Wrong\)"),
        (Reply(400, {"detail": {"error": "bad_code", "error_description": "Wrong"}}), r"bad_code \(Wrong\)"),
        (Reply(401, {"statusCode": 401, "message": "Wrong", "error": "Unauthorized"}), r"Unauthorized \(Wrong\)"),
        (Reply(400, {"errorCode": "E0000001", "errorSummary": "Wrong"}), r"E0000001 \(Wrong\)"),
        (Reply(400, b"<html>"), "HTTP 400"),
    ],
)
async def test_a_refusal_says_what_the_server_said(reply: Reply, words: str) -> None:
    async with AuthDouble() as double:
        double.change("/token", reply)
        with pytest.raises(AuthorizationFailed, match=words):
            await log_in(double)


@pytest.mark.parametrize("expires", ["0", 0, None, "4102444800"])
async def test_a_registration_is_read_as_frameworks_send_it(expires: Any) -> None:
    async with AuthDouble() as double:
        double.clients["mine"] = {"redirect_uris": ["*"]}
        answer = {"client_id": "mine", "client_secret": None, "client_secret_expires_at": expires}
        double.change("/register", Reply(200, {**answer, "token_endpoint_auth_method": None}))
        assert (await log_in(double)).client["client_id"] == "mine"


@pytest.mark.parametrize(
    "reply", [Reply(200, {"error": "not_allowed", "message": "Ask us"}), Reply(403, {"detail": "Ask us"})]
)
async def test_a_refused_registration_says_what_the_server_said(reply: Reply) -> None:
    async with AuthDouble() as double:
        double.change("/register", reply)
        with pytest.raises(AuthorizationFailed, match=r"does not register this client: .*Ask us"):
            await log_in(double)


async def test_a_refusal_that_repeats_a_secret_is_shown_without_it() -> None:
    async with AuthDouble() as double:

        def answer(asked: Asked) -> Reply:
            code = double.forms("/token")[-1]["code"]
            return Reply(400, {"detail": f"The code {code} is unknown"})

        double.change("/token", answer)
        with pytest.raises(AuthorizationFailed, match="The code … is unknown"):
            await log_in(double)


SECRET = "a long/secret+value"


def repeat(asked: Asked) -> Reply:
    """Refuse a request, and repeat it."""
    credentials = asked.headers.get("authorization", "")
    secret = b64decode(credentials.partition(" ")[2]).decode()
    repeated = f"{credentials} {secret} {unquote_plus(secret)} {asked.body.decode()}"
    return Reply(400, {"error": "invalid_client", "error_description": repeated})


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
@pytest.mark.parametrize("authorizer", [None, DeviceLogin(show=lambda text: None)])
async def test_a_secret_of_a_client_is_shown_in_no_encoding(method: str, authorizer: Any) -> None:
    async with AuthDouble() as double:
        double.metadata["device_authorization_endpoint"] = f"{double.issuer}/device"
        double.clients["mine"] = {"redirect_uris": ["*"]}
        double.change("/token", repeat)
        double.change("/device", repeat)
        client: dict[str, Any] = {"client_id": "mine", "client_secret": SECRET, "auth_method": method}
        with pytest.raises(AuthorizationFailed, match="invalid_client") as refused:
            await log_in(double, authorizer=authorizer or double.person(), **client)
    text = str(refused.value)
    assert not any(part in text for part in (SECRET, quote_plus(SECRET), b64encode(b"mine:").decode()[:6]))


async def test_the_secrets_of_an_exchange_at_an_identity_provider_are_not_shown() -> None:
    async with AuthDouble() as double:
        double.change("/idp", Reply(400, {"error": "no", "error_description": f"assertion-value {SECRET}"}))
        auth = EnterpriseAuth(
            "assertion-value",
            idp_token_endpoint=f"{double.issuer}/idp",
            idp_client_id="i",
            idp_client_secret=SECRET,
            client_id="c",
        )
        with pytest.raises(AuthorizationFailed, match=r"no \(… …\)"):
            async with Client(double.url, auth=auth) as client:
                await client.call_tool("read")


async def test_a_token_that_is_not_revoked_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with AuthDouble() as double:
        credentials = OAuth(authorizer=double.person()).bind(double.url)
        await credentials.login()
        double.change("/revoke", lambda asked: Reply(400, {"detail": double.forms("/revoke")[-1]["token"]}))
        assert await credentials.logout()
        (form,) = double.forms("/revoke")
    assert "login-not-revoked" in caplog.text
    assert form["token"] not in caplog.text


async def test_a_token_in_the_challenge_of_a_server_is_not_shown() -> None:
    async with AuthDouble() as double:
        right = double.answer_mcp

        def answer(asked: Asked) -> Reply:
            if "authorization" not in asked.headers:
                return right(asked)
            challenge = f'Bearer error="invalid_token", error_description="not {asked.headers["authorization"]}"'
            return Reply(401, headers={"www-authenticate": challenge})

        double.change("/mcp", answer)
        with pytest.raises(AuthorizationFailed, match=r"invalid_token \(not Bearer …\)"):
            await log_in(double)


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("is_nested", [False, True])
async def test_a_device_login_waits_however_the_server_says_so(status: int, is_nested: bool) -> None:
    async with AuthDouble() as double:
        code = {"device_code": "d", "user_code": "AB", "verification_uri": f"{double.issuer}/device", "expires_in": 60}
        double.metadata["device_authorization_endpoint"] = f"{double.issuer}/device"
        double.change("/device", Reply(201, {**code, "interval": 0}))
        access, _ = double.grant()
        pending: dict[str, Any] = {"error": "authorization_pending"}

        def answer(asked: Asked) -> Reply:
            if len(double.forms("/token")) < 2:
                return Reply(status, {"detail": pending} if is_nested and status == 400 else pending)
            return Reply(200, {"access_token": access})

        async def soon(seconds: float) -> None: ...

        double.change("/token", answer)
        await log_in(double, authorizer=DeviceLogin(show=lambda text: None, sleep=soon))


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_device_login_outlasts_a_server_that_is_down_for_a_while(status: int) -> None:
    async with AuthDouble() as double:
        code = {"device_code": "d", "user_code": "AB", "verification_uri": f"{double.issuer}/device", "expires_in": 60}
        double.metadata["device_authorization_endpoint"] = f"{double.issuer}/device"
        double.change("/device", Reply(200, {**code, "interval": 1}))
        access, _ = double.grant()
        waited: list[float] = []

        def answer(asked: Asked) -> Reply:
            return Reply(status) if len(double.forms("/token")) < 3 else Reply(200, {"access_token": access})

        async def note(seconds: float) -> None:
            waited.append(seconds)

        double.change("/token", answer)
        await log_in(double, authorizer=DeviceLogin(show=lambda text: None, sleep=note))
        assert waited == [1, 2, 4]


async def test_the_text_of_a_refused_device_login_is_shown() -> None:
    async with AuthDouble() as double:
        double.metadata["device_authorization_endpoint"] = f"{double.issuer}/device"
        double.change("/device", Reply(200, {"error": "device_flow_disabled", "error_description": "Turn it on"}))
        with pytest.raises(AuthorizationFailed, match=r"device_flow_disabled \(Turn it on\)"):
            await log_in(double, authorizer=DeviceLogin(show=lambda text: None))
