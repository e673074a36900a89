"""Which token counts, when, and for how long it is remembered, with a clock that stands still."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gemel import Principal
from gemel.auth import DPoPProofs, JWTAuth, TokenAuth, jose
from tests.auth.server.issuer import AUDIENCE
from tests.support import Headers

NOW = 2_000_000_000.0
KEY = jose.generate_key("ES256", kid="first")
ISSUER = "https://login.example.com"


class Clock:
    """Tells the time that it is set to."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "time", clock)
    return clock


def protected(**options: Any) -> JWTAuth:
    keys = jose.public_jwk(KEY)
    settings: Any = {"issuer": ISSUER, "audience": AUDIENCE, "keys": keys, "leeway": 0, **options}
    return JWTAuth(**settings)


def token_with(**claims: Any) -> str:
    return jose.sign_jwt({"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": NOW + 60, **claims}, KEY)


async def judge(auth: TokenAuth, token: str, scheme: str = "Bearer", **scope: Any) -> Any:
    """What a request with a token gets: a caller or a refusal."""
    raw = [(b"host", b"127.0.0.1"), (b"authorization", f"{scheme} {token}".encode())]
    answer: Any = auth.authenticate(
        {"type": "http", "method": "POST", "path": "/mcp", "headers": raw, "query_string": b"", **scope},
        Headers(dict(raw)),
    )
    return answer if isinstance(answer, tuple) else await answer


@pytest.mark.parametrize(
    ("claims", "accepted"),
    [
        ({}, True),
        ({"exp": NOW}, False),
        ({"exp": NOW + 0.001}, True),
        ({"exp": 0}, False),
        ({"exp": 1e15}, True),
        ({"exp": 2e15}, False),  # not a time in seconds
        ({"exp": 10**400}, False),
        ({"nbf": NOW}, True),
        ({"nbf": NOW + 0.001}, False),
        ({"nbf": 0}, True),
        ({"nbf": -1e15}, True),
        ({"nbf": -2e15}, False),
        ({"nbf": False}, False),
    ],
)
async def test_a_token_counts_from_nbf_on_and_until_exp(clock: Clock, claims: dict[str, Any], accepted: bool) -> None:
    """RFC 7519 §4.1.4 and §4.1.5."""
    assert isinstance(await judge(protected(), token_with(**claims)), Principal) is accepted


@pytest.mark.parametrize(("claims", "accepted"), [({"exp": NOW - 29}, True), ({"exp": NOW - 30}, False)])
async def test_the_leeway_is_at_the_end(clock: Clock, claims: dict[str, Any], accepted: bool) -> None:
    assert isinstance(await judge(protected(leeway=30), token_with(**claims)), Principal) is accepted


@pytest.mark.parametrize(("claims", "accepted"), [({"nbf": NOW + 30}, True), ({"nbf": NOW + 31}, False)])
async def test_the_leeway_is_at_the_beginning(clock: Clock, claims: dict[str, Any], accepted: bool) -> None:
    assert isinstance(await judge(protected(leeway=30), token_with(**claims)), Principal) is accepted


async def test_the_caller_has_the_end_of_the_token(clock: Clock) -> None:
    """Streams end with it."""
    caller = await judge(protected(leeway=30), token_with(exp=NOW + 60))
    assert caller.expires == NOW + 90


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tokens whose signatures were verified."""
    tokens: list[str] = []

    def counting(token: str, *arguments: Any, **options: Any) -> Any:
        tokens.append(token)
        return jose.verify_jwt(token, *arguments, **options)

    monkeypatch.setattr("gemel.auth.server.jwt.verify_jwt", counting)
    return tokens


async def test_a_token_is_verified_once_until_it_ends(clock: Clock, verified: list[str]) -> None:
    auth, token = protected(), token_with()
    for seconds in (0, 1, 59):
        clock.now = NOW + seconds
        assert isinstance(await judge(auth, token), Principal)
    assert len(verified) == 1
    clock.now = NOW + 60
    assert (await judge(auth, token)).status == 401


async def test_a_token_is_verified_anew_when_keys_are_loaded_again(clock: Clock, verified: list[str]) -> None:
    """After ten minutes, with the clock of the keys, which stands still here."""
    auth, token = protected(keys=lambda: {"keys": [jose.public_jwk(KEY)]}), token_with(exp=NOW + 10_000)
    for seconds, times in ((0, 1), (590, 1), (601, 2), (1190, 2)):
        clock.now = NOW + seconds
        assert isinstance(await judge(auth, token), Principal)
        assert len(verified) == times
    token, ends = token_with(exp=NOW + 1250, jti="2"), NOW + 1250
    assert isinstance(await judge(auth, token), Principal)
    clock.now = ends
    assert (await judge(auth, token)).status == 401


async def test_a_token_without_an_end_is_remembered_only_for_the_time_that_was_set(clock: Clock) -> None:
    asked: list[str] = []

    async def verify(token: str) -> Principal:
        asked.append(token)
        return Principal("ann")

    for remember, expected in ((60.0, 2), (None, 4)):
        auth = TokenAuth(verify, remember=remember)
        asked.clear()
        for seconds in (0, 59, 60, 61):
            clock.now = NOW + seconds
            assert (await judge(auth, "opaque")).name == "ann"
        assert len(asked) == expected, remember


@pytest.mark.parametrize("verdict", ["ann", 1, False, ("ann",), Principal(None)])  # type: ignore[arg-type]  # mistakes
async def test_what_is_no_principal_is_a_mistake_of_the_author(verdict: Any) -> None:
    with pytest.raises(TypeError, match="use a Principal with a name"):
        await judge(TokenAuth(lambda token: verdict), "opaque")


async def test_many_callers_at_the_same_time_are_all_remembered(clock: Clock) -> None:
    asked: list[str] = []

    async def verify(token: str) -> Principal:
        asked.append(token)
        return Principal(token)

    auth = TokenAuth(verify, remember=60.0)
    for _ in range(3):
        for number in range(200):
            assert (await judge(auth, f"token-{number}")).name == f"token-{number}"
    assert len(asked) == 200
    assert len(auth._digests) <= 64
    auth.forget(lambda caller: caller.name == "token-7")
    for number in range(10):
        await judge(auth, f"token-{number}")
    assert asked[200:] == ["token-7"]


async def test_headers_that_are_too_long_are_not_kept(clock: Clock) -> None:
    auth = protected()
    for number in range(20):
        assert (await judge(auth, f"{number}" + "x" * 60_000)).status == 400
    assert sum(map(len, auth._digests)) < 60_000


@pytest.mark.parametrize(("expires", "accepted"), [(NOW, False), (NOW + 0.001, True), (None, True)])
async def test_what_a_verifier_says_of_the_end_counts(clock: Clock, expires: float | None, accepted: bool) -> None:
    auth = TokenAuth(lambda token: Principal("ann", expires=expires), remember=None)
    for _ in range(2):
        assert isinstance(await judge(auth, "opaque"), Principal) is accepted
    clock.now = NOW + 1
    assert isinstance(await judge(auth, "opaque"), Principal) is (expires is None)


async def test_a_query_without_a_token_is_of_no_concern(clock: Clock) -> None:
    for query in (b"x=1", b"token=1", b"access_tokens=1", b"%61=1"):
        assert isinstance(await judge(protected(), token_with(), query_string=query), Principal)
    for query in (b"access_token=1", b"x=1&access_token=", b"%61ccess_token=1"):
        assert (await judge(protected(), token_with(), query_string=query)).status == 400


@pytest.mark.parametrize("dpop", [None, DPoPProofs()])
async def test_another_scheme_is_no_token(clock: Clock, dpop: DPoPProofs | None) -> None:
    refusal = await judge(protected(dpop=dpop), "x", scheme="Basic")
    assert (refusal.status, b"invalid_request" in dict(refusal.headers)[b"www-authenticate"]) == (401, False)
    assert (await judge(protected(dpop=dpop), "x y", scheme="Bearer")).status == 400


async def test_a_refusal_says_why_to_people_too(clock: Clock) -> None:
    """And names no scopes where none are needed."""
    refusal = await judge(protected(), token_with(exp=NOW - 1))
    assert refusal.text == "The token has expired"
    assert b"scope=" not in dict(refusal.headers)[b"www-authenticate"]
    refusal = await judge(protected(required_scopes=["notes"]), token_with())
    assert (refusal.status, "notes" in refusal.text) == (403, True)
    assert b'scope="notes"' in dict(refusal.headers)[b"www-authenticate"]
