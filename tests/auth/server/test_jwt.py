"""JWTAuth over HTTP: which tokens are accepted, and how the keys of issuers are found, kept and renewed."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gemel import DefinitionError
from gemel.auth import JWTAuth, jose
from gemel.auth.challenge import parse_challenges
from gemel.auth.server import jwks
from tests.auth.server.issuer import AUDIENCE, Issuer, ask, issuing, protected_by, who
from tests.transports.http_rig import Reply


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with issuing() as issuer:
        yield issuer


def auth_of(issuer: Issuer, /, **options: Any) -> JWTAuth:
    settings: Any = {"issuer": issuer.url, "audience": AUDIENCE, "required_scopes": ["notes"], **options}
    return JWTAuth(**settings)


def reason(reply: Reply) -> str:
    (challenge,) = parse_challenges(reply.headers["www-authenticate"])
    return challenge.parameters["error_description"]


# ---------------------------------------------------------------- tokens


async def test_the_caller_is_who_the_token_says(issuer: Issuer) -> None:
    async with protected_by(auth_of(issuer)) as site:
        assert await who(site, issuer.token()) == {"name": "ann", "scopes": ["notes"], "client": "app", "claims": 6}
        assert (await who(site, issuer.token(aud=["https://other.example.com", AUDIENCE])))["name"] == "ann"
        assert (await who(site, issuer.token(scope=None, scp=["notes", "b"])))["scopes"] == ["b", "notes"]
        assert (await who(site, issuer.token(client_id=None, azp="other")))["client"] == "other"
        assert (await who(site, issuer.token(sub=None)))["name"] == "client app"


async def test_a_user_is_never_taken_for_a_client(issuer: Issuer) -> None:
    """RFC 9068 §5: whatever subjects and client ids the authorization server lets people choose."""
    callers: list[dict[str, Any]] = [
        {"sub": None, "client_id": "foo"},
        {"sub": "foo", "client_id": "foo"},
        {"sub": "foo", "client_id": "app"},
        {"sub": "client foo", "client_id": "app"},
        {"sub": "subject client foo", "client_id": "app"},
        {"sub": "client foo", "client_id": "foo"},
    ]
    async with protected_by(auth_of(issuer)) as site:
        names = [(await who(site, issuer.token(**caller)))["name"] for caller in callers]
    assert names == [
        "client foo",
        "client foo",
        "foo",
        "subject client foo",
        "subject subject client foo",
        "subject client foo",
    ]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"aud": "https://other.example.com"}, "audience"),
        ({"aud": None}, "audience"),
        ({"iss": "https://evil.example.com"}, "issuer"),
        ({"exp": 1}, "expired"),
        ({"exp": None}, "when it expires"),
        ({"nbf": 2_000_000_000_000}, "not valid yet"),
        ({"sub": ""}, "no subject"),
        ({"sub": None, "client_id": None}, "no subject"),
        ({"client_id": ["app"]}, "not a text"),
    ],
)
async def test_a_token_that_does_not_fit_gets_a_reason(issuer: Issuer, changes: dict[str, Any], text: str) -> None:
    """AUTHS-05, AUTHS-06."""
    async with protected_by(auth_of(issuer)) as site:
        reply = await ask(site, issuer.token(**changes))
        assert reply.status == 401
        assert text in reason(reply)


@pytest.mark.parametrize(("leeway", "late", "early"), [(0, 401, 401), (60, 200, 200)])
async def test_clocks_may_differ_by_the_leeway(issuer: Issuer, leeway: float, late: int, early: int) -> None:
    async with protected_by(auth_of(issuer, leeway=leeway)) as site:
        assert (await ask(site, issuer.token(exp=int(time.time()) - 20))).status == late
        assert (await ask(site, issuer.token(nbf=int(time.time()) + 20))).status == early


async def test_algorithms_can_be_limited(issuer: Issuer) -> None:
    async with protected_by(auth_of(issuer, algorithms=["RS256"])) as site:
        reply = await ask(site, issuer.token())
        assert (reply.status, "algorithm" in reason(reply)) == (401, True)


async def test_a_shared_secret_works_when_it_is_asked_for() -> None:
    secret = jose.generate_key("HS256")
    issuer = Issuer()
    issuer.url = "https://login.example.com"
    auth = auth_of(issuer, keys=jose.private_jwk(secret), algorithms=["HS256"])
    async with protected_by(auth) as site:
        assert (await who(site, issuer.token(secret)))["name"] == "ann"
        assert (await ask(site, issuer.token())).status == 401


async def test_a_shared_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    secret = jose.generate_key("HS256")
    (tmp_path / "secret.json").write_text(json.dumps(jose.private_jwk(secret)))
    issuer = Issuer()
    issuer.url = "https://login.example.com"
    async with protected_by(auth_of(issuer, keys=tmp_path / "secret.json", algorithms=["HS256"])) as site:
        assert (await who(site, issuer.token(secret)))["name"] == "ann"
    with pytest.raises(DefinitionError, match="HS algorithms need the secret"):
        auth_of(issuer, keys="https://login.example.com/keys", algorithms=["HS256"])
    auth_of(issuer, keys=str(tmp_path / "secret.json"), algorithms=["HS256"])


async def test_only_texts_are_scopes(issuer: Issuer) -> None:
    async with protected_by(auth_of(issuer)) as site:
        assert (await who(site, issuer.token(scope=None, scp=["notes", ["admin"], {"a": 1}, 7])))["scopes"] == ["notes"]


async def test_issuers_sign_for_themselves_only() -> None:
    async with issuing() as first, issuing() as second:
        auth = auth_of(first, issuer=[first.url, second.url])
        async with protected_by(auth) as site:
            assert (await who(site, first.token()))["name"] == f"{first.url} ann"
            assert (await who(site, second.token()))["name"] == f"{second.url} ann"
            assert (await ask(site, first.token(iss=second.url))).status == 401
            assert (await ask(site, second.token(iss=first.url))).status == 401
            assert (await ask(site, second.token(iss="https://evil.example.com"))).status == 401


# ---------------------------------------------------------------- keys


async def test_keys_are_found_by_the_metadata_of_the_issuer_and_kept(issuer: Issuer) -> None:
    async with protected_by(auth_of(issuer)) as site:
        assert issuer.asked == []
        for number in range(5):
            await who(site, issuer.token(jti=str(number)))
        assert issuer.paths() == ["/.well-known/oauth-authorization-server", "/keys"]


async def test_tokens_of_others_cause_no_request(issuer: Issuer) -> None:
    async with protected_by(auth_of(issuer)) as site:
        for token in ("opaque", "a.b.c", issuer.token(iss="https://evil.example.com"), issuer.token(iss=None)):
            assert (await ask(site, token)).status == 401
    assert issuer.asked == []


async def test_many_requests_wait_for_one_fetch(issuer: Issuer) -> None:
    issuer.delay = 0.1
    async with protected_by(auth_of(issuer, keys=f"{issuer.url}/keys")) as site:
        replies = await asyncio.gather(*[ask(site, issuer.token(jti=str(number))) for number in range(20)])
        assert {reply.status for reply in replies} == {200}
        assert issuer.paths() == ["/keys"]


async def test_a_new_key_is_fetched_when_a_token_names_it(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with protected_by(auth_of(issuer, keys=f"{issuer.url}/keys")) as site:
        await who(site, issuer.token())
        issuer.rotate("second")
        monkeypatch.setattr(jwks, "PAUSE", 0.0)
        replies = await asyncio.gather(*[ask(site, issuer.token(jti=str(number))) for number in range(5)])
        assert {reply.status for reply in replies} == {200}
        assert len(issuer.asked) == 2


async def test_unknown_key_ids_cause_few_fetches(issuer: Issuer) -> None:
    async with protected_by(auth_of(issuer, keys=f"{issuer.url}/keys")) as site:
        for number in range(10):
            reply = await ask(site, issuer.token(header={"kid": f"unknown {number}"}))
            assert (reply.status, "unknown key" in reason(reply)) == (401, True)
        assert len(issuer.asked) == 1


async def test_a_key_that_was_withdrawn_is_forgotten(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "PAUSE", 0.0)
    async with protected_by(auth_of(issuer, keys=f"{issuer.url}/keys")) as site:
        old = issuer.token(jti="later")
        await who(site, issuer.token())
        issuer.rotate("second")
        monkeypatch.setattr(jwks, "TTL", 0.0)
        assert (await ask(site, old)).status == 401
        assert (await ask(site, issuer.token())).status == 200


async def test_a_remembered_token_does_not_outlive_its_key(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that was verified before is refused as soon as the key set without its key is loaded."""
    async with protected_by(auth_of(issuer, keys=f"{issuer.url}/keys")) as site:
        old = issuer.token()
        await who(site, old)
        issuer.rotate("second")
        monkeypatch.setattr(jwks, "PAUSE", 0.0)
        await who(site, issuer.token())
        reply = await ask(site, old)
        assert (reply.status, "unknown key" in reason(reply)) == (401, True)


async def test_remembered_tokens_are_verified_anew_when_keys_are_loaded_again(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if only tokens come that are remembered already."""
    monkeypatch.setattr(jwks, "PAUSE", 0.0)
    monkeypatch.setattr(jwks, "TTL", 0.3)
    async with protected_by(auth_of(issuer, keys=f"{issuer.url}/keys")) as site:
        old = issuer.token()
        for _ in range(3):
            await who(site, old)
        assert issuer.paths() == ["/keys"]
        issuer.rotate("second")
        await asyncio.sleep(0.3)
        assert (await ask(site, old)).status == 401
        assert issuer.paths() == ["/keys"] * 3  # again for the key that the token names


async def test_a_key_that_is_added_makes_nobody_verify_anew(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with protected_by(auth := auth_of(issuer, keys=f"{issuer.url}/keys")) as site:
        await who(site, issuer.token())
        remembered = dict(auth._remembered)
        old = issuer.keys["keys"]
        issuer.rotate("second")
        issuer.keys["keys"] += old
        monkeypatch.setattr(jwks, "PAUSE", 0.0)
        await who(site, issuer.token())
        assert remembered.items() <= auth._remembered.items()


async def test_keys_are_used_while_the_issuer_is_down(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with protected_by(auth_of(issuer, keys=f"{issuer.url}/keys")) as site:
        await who(site, issuer.token())
        issuer.status = 500
        monkeypatch.setattr(jwks, "TTL", 0.0)
        monkeypatch.setattr(jwks, "PAUSE", 0.0)
        caplog.set_level(logging.WARNING, "gemel")
        await who(site, issuer.token(jti="2"))
        assert "answered 500" in caplog.text
        monkeypatch.setattr(jwks, "STALE", 0.0)
        assert (await ask(site, issuer.token(jti="3"))).status == 503


async def test_without_keys_a_token_can_not_be_judged(issuer: Issuer) -> None:
    issuer.status = 500
    async with protected_by(auth_of(issuer, keys=f"{issuer.url}/keys")) as site:
        for _ in range(5):
            reply = await ask(site, issuer.token())
            assert (reply.status, reply.headers["retry-after"]) == (503, "5")
            assert "www-authenticate" not in reply.headers
        assert len(issuer.asked) == 1


async def test_metadata_of_another_issuer_is_not_used(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    issuer.metadata["issuer"] = f"{issuer.url}/"
    caplog.set_level(logging.WARNING, "gemel")
    async with protected_by(auth_of(issuer)) as site:
        assert (await ask(site, issuer.token())).status == 503
    assert f"spells it '{issuer.url}/'" in caplog.text


def pem_of(key: jose.WebKey) -> str:
    return str(key.material.as_pem(private=False), "ascii")


SOURCES: dict[str, Callable[[Issuer, Path], Any]] = {
    "a key set": lambda issuer, path: issuer.keys,
    "a key": lambda issuer, path: issuer.keys["keys"][0],
    "PEM text": lambda issuer, path: pem_of(issuer.key),
    "a file with a key set": lambda issuer, path: written(path, json.dumps(issuer.keys)),
    "a file with a key": lambda issuer, path: written(path, json.dumps(issuer.keys["keys"][0])),
    "a file with PEM text": lambda issuer, path: str(written(path, pem_of(issuer.key))),
    "a function": lambda issuer, path: lambda: issuer.keys,
    "an async function": lambda issuer, path: later(issuer),
    "by issuer": lambda issuer, path: {issuer.url: issuer.keys},
}


def written(path: Path, text: str) -> Path:
    (path / "keys").write_text(text)
    return path / "keys"


def later(issuer: Issuer) -> Any:
    async def keys() -> Any:
        await asyncio.sleep(0)
        return issuer.keys

    return keys


@pytest.mark.parametrize("name", SOURCES)
async def test_keys_can_come_from_elsewhere(issuer: Issuer, tmp_path: Path, name: str) -> None:
    async with protected_by(auth_of(issuer, keys=SOURCES[name](issuer, tmp_path))) as site:
        assert (await who(site, issuer.token()))["name"] == "ann"
        assert (await ask(site, issuer.token(jose.generate_key()))).status == 401
    assert issuer.asked == []


async def test_a_file_is_read_again_for_a_new_key(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, json.dumps(issuer.keys))
    async with protected_by(auth_of(issuer, keys=path)) as site:
        await who(site, issuer.token())
        issuer.rotate("second")
        written(tmp_path, json.dumps(issuer.keys))
        monkeypatch.setattr(jwks, "PAUSE", 0.0)
        await who(site, issuer.token())


# ---------------------------------------------------------------- mistakes

MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no audience": ({"audience": None}, "JWTAuth needs audience=…"),
    "empty audience": ({"audience": ""}, "audience='' is not possible"),
    "no audiences": ({"audience": []}, "audience=[] is not possible"),
    "no issuer": ({"issuer": None}, "JWTAuth needs issuer=…"),
    "http issuer": ({"issuer": "http://login.example.com"}, "write an https URL"),
    "issuer without scheme": ({"issuer": "login.example.com"}, "write an https URL"),
    "http keys": ({"keys": "http://login.example.com/keys"}, "write an https URL"),
    "no such file": ({"keys": "/nowhere/keys.json"}, "there is no such file"),
    "empty key set": ({"keys": {"keys": []}}, "no key that verifies"),
    "not a key": ({"keys": {"kty": "RSA"}}, "not a usable key"),
    "malformed PEM": ({"keys": "-----BEGIN PUBLIC KEY-----"}, "not a usable key"),
    "keys of nobody": ({"keys": {"https://other.example.com": "https://x.example.com"}}, "which is not an issuer"),
    "one source for two": (
        {"issuer": ["https://a.example", "https://b.example"], "keys": "https://a.example/k"},
        "keys={issuer",
    ),
    "alg none": ({"algorithms": ["none"]}, "write a list of algorithms"),
    "HS with fetched keys": ({"algorithms": ["HS256"]}, "HS algorithms need the secret"),
    "HS with a URL": ({"algorithms": ["HS256"], "keys": "https://a.example/k"}, "HS algorithms need the secret"),
    "endless leeway": ({"leeway": 86400}, "at most 600"),
    "misspelled option": ({"required_scope": ["a"]}, "did you mean 'required_scopes'?"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_clear_line(mistake: str) -> None:
    changes, text = MISTAKES[mistake]
    settings: Any = {"issuer": "https://login.example.com", "audience": AUDIENCE, **changes}
    with pytest.raises(DefinitionError) as raised:
        JWTAuth(**settings)
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_audience_that_is_a_url_is_the_public_url() -> None:
    auth = JWTAuth(issuer="https://login.example.com", audience=["api://notes", AUDIENCE])
    assert auth.document("http://127.0.0.1/mcp").resource == AUDIENCE
    named = JWTAuth(issuer="https://login.example.com", audience="api://notes")
    assert named.document("http://127.0.0.1/mcp").resource == "http://127.0.0.1/mcp"
    public = "https://example.com/notes/mcp"
    behind = JWTAuth(issuer="https://login.example.com", audience=AUDIENCE, resource=public)
    assert behind.document("http://127.0.0.1/mcp").resource == public
