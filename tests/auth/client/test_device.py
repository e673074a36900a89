"""Log in on another device (RFC 8628)."""

from __future__ import annotations

import json
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import pytest

from gemel import AuthorizationFailed
from gemel.auth.client.device import DEVICE_GRANT, DeviceLogin
from gemel.auth.client.token_request import RegisteredClient
from gemel.auth.client.tokens import Tokens
from gemel.auth.flow import FetchFailed, Flow, HttpRequest, HttpResponse
from gemel.auth.metadata import AuthorizationServer
from tests.auth.hostile.login_urls import REFUSED_LOGIN_URLS

T = TypeVar("T")

SERVER = AuthorizationServer(
    issuer="https://as.example.com",
    token_endpoint="https://as.example.com/token",
    device_authorization_endpoint="https://as.example.com/device",
)
CLIENT = RegisteredClient(client_id="cli")
CODE: dict[str, Any] = {
    "device_code": "secret-device-code",
    "user_code": "WDJB-MJHT",
    "verification_uri": "https://as.example.com/activate",
    "verification_uri_complete": "https://as.example.com/activate?user_code=WDJB-MJHT",
    "expires_in": 60,
    "interval": 5,
}
TOKENS = {"access_token": "at", "token_type": "Bearer", "expires_in": 3600, "refresh_token": "rt"}


def error(code: str) -> HttpResponse:
    return HttpResponse(400, {}, json.dumps({"error": code}).encode())


def answer(content: Any) -> HttpResponse:
    return HttpResponse(200, {}, json.dumps(content).encode())


class Rig:
    """Answers the requests of a login in order, and notes the pauses."""

    def __init__(self, *answers: HttpResponse | Exception) -> None:
        self._answers = list(answers)
        self.requests: list[HttpRequest] = []
        self.pauses: list[float] = []
        self.shown: list[str] = []

    async def run(self, flow: Flow[T], /) -> T:
        try:
            request = next(flow)
            while True:
                self.requests.append(request)
                reply = self._answers.pop(0)
                request = flow.throw(reply) if isinstance(reply, Exception) else flow.send(reply)
        except StopIteration as done:
            result: T = done.value
            return result

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def login(self, server: AuthorizationServer = SERVER, **options: Any) -> Tokens:
        login = DeviceLogin(show=self.shown.append, sleep=self.sleep, **options)
        return await login.login(self.run, server, CLIENT, resource="https://mcp.example.com", scopes=["notes"])

    def forms(self) -> list[dict[str, str]]:
        return [dict(parse_qsl((request.body or b"").decode())) for request in self.requests]


async def test_the_person_types_the_code_on_another_device() -> None:
    rig = Rig(answer(CODE), error("authorization_pending"), error("authorization_pending"), answer(TOKENS))
    tokens = await rig.login()
    assert (tokens.access_token, tokens.refresh_token, tokens.scopes) == ("at", "rt", ("notes",))
    assert rig.pauses == [5, 5, 5]
    first, *polls = rig.forms()
    assert first == {"client_id": "cli", "scope": "notes", "resource": "https://mcp.example.com"}
    assert polls[0]["grant_type"] == DEVICE_GRANT
    assert {poll["device_code"] for poll in polls} == {"secret-device-code"}
    assert {poll["client_id"] for poll in polls} == {"cli"}
    (text,) = rig.shown
    assert "https://as.example.com/activate" in text
    assert "WDJB-MJHT" in text
    assert "secret-device-code" not in text


async def test_slow_down_adds_five_seconds_each_time() -> None:
    rig = Rig(answer(CODE), error("slow_down"), error("authorization_pending"), error("slow_down"), answer(TOKENS))
    await rig.login()
    assert rig.pauses == [5, 10, 10, 15]


async def test_a_lost_connection_doubles_the_pause() -> None:
    rig = Rig(answer(CODE), FetchFailed("POST", "lost"), answer(TOKENS))
    await rig.login()
    assert rig.pauses == [5, 10]


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_busy_authorization_server_doubles_the_pause(status: int) -> None:
    rig = Rig(answer(CODE), HttpResponse(status, {}, b""), answer(TOKENS))
    await rig.login()
    assert rig.pauses == [5, 10]


async def test_nobody_is_asked_for_longer_than_the_code_lives() -> None:
    for lifetime, count in ((60, 12), (3, 0), (1e300, 720)):
        rig = Rig(answer({**CODE, "expires_in": lifetime}), *[error("authorization_pending")] * 1000)
        with pytest.raises(AuthorizationFailed, match="start the login again"):
            await rig.login()
        assert len(rig.requests) == 1 + count
    rig = Rig(answer(CODE), *[error("authorization_pending")] * 100)
    with pytest.raises(AuthorizationFailed):
        await rig.login(timeout=11)
    assert rig.pauses == [5, 5]


async def test_the_interval_is_five_seconds_unless_the_server_says_otherwise() -> None:
    for interval, pause in ((None, 5), (0, 1), (7.5, 7.5), ("3", 3)):
        rig = Rig(answer({**CODE, "interval": interval}), answer(TOKENS))
        await rig.login()
        assert rig.pauses == [pause]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("access_denied", "refused on the other device"),
        ("expired_token", "start the login again"),
        ("invalid_client", "invalid_client"),
        ("invalid_grant", "invalid_grant"),
    ],
)
async def test_other_errors_end_the_login(code: str, text: str) -> None:
    rig = Rig(answer(CODE), error(code))
    with pytest.raises(AuthorizationFailed, match=text) as caught:
        await rig.login()
    assert len(rig.requests) == 2
    assert "secret-device-code" not in str(caught.value)


async def test_a_server_without_device_codes() -> None:
    server = AuthorizationServer(issuer="https://as.example.com", token_endpoint="https://as.example.com/token")
    with pytest.raises(AuthorizationFailed, match="no login with a code"):
        await Rig().login(server)
    with pytest.raises(AuthorizationFailed, match="unauthorized_client"):
        await Rig(error("unauthorized_client")).login()


async def test_the_draft_name_of_the_address_is_known() -> None:
    old = {name: value for name, value in CODE.items() if not name.startswith("verification")}
    rig = Rig(answer({**old, "verification_url": "https://as.example.com/old"}), answer(TOKENS))
    await rig.login()
    assert "https://as.example.com/old" in rig.shown[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"user_code": "\x1b]0;x\x07"},
        {"user_code": "A\nB"},
        {"user_code": "A" * 100},
        {"user_code": ""},
        {"user_code": 7},
        {"user_code": "\u202eABC"},
        {"device_code": ""},
        {"device_code": None},
        {"verification_uri": None},
        {"expires_in": -1},
        {"expires_in": 0},
        {"expires_in": "soon"},
        {"interval": -5},
    ],
)
async def test_answers_that_are_not_valid(changes: dict[str, Any]) -> None:
    rig = Rig(answer({**CODE, **changes}))
    with pytest.raises(AuthorizationFailed):
        await rig.login()
    assert not rig.shown
    assert len(rig.requests) == 1


@pytest.mark.parametrize("name", ["verification_uri", "verification_uri_complete"])
async def test_only_plain_web_addresses_are_shown(name: str) -> None:
    for url in REFUSED_LOGIN_URLS:
        rig = Rig(answer({**CODE, name: url}))
        with pytest.raises(AuthorizationFailed):
            await rig.login()
        assert not rig.shown, url
