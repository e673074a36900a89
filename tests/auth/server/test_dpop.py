"""DPoP on the server: tokens that are bound to a key need a proof of it, which is used once."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, Context, DefinitionError, Principal, Server
from gemel.auth import DPoPProofs, JWTAuth, TokenAuth
from gemel.auth.jose import WebKey, dpop_proof, generate_key, thumbprint
from gemel.auth.server import dpop
from gemel.backends import MemoryBackend
from gemel.errors import BackendError, Overloaded
from tests.auth.hostile.cases import ENDPOINT_REQUESTS, Response, authorized, challenges, problem
from tests.auth.hostile.issuer import AUDIENCE, ISSUER, key_set
from tests.auth.hostile.proofs import NONCES, ProofCase, bound_token, cases
from tests.auth.hostile.wire import exchange, problems
from tests.cluster.keys import keys_in, without_server
from tests.transports.http_rig import Log, Site, make_server, modern_call, serving, text_of

CASES = cases()


def protected(nonces: bool = False, **options: Any) -> Server[Any]:
    auth = JWTAuth(issuer=ISSUER, audience=AUDIENCE, keys=key_set(), dpop=DPoPProofs(nonces=nonces, **options))
    return make_server(Log(), auth=auth)


async def nonce_of(port: int) -> str:
    """The nonce that the server asks for."""
    case = next(case for case in NONCES if case.name == "no nonce")
    request = ENDPOINT_REQUESTS["POST 2026"]
    headers = case.request_headers(request.method, "asking")
    response = await exchange(port, request._replace(headers=request.headers + headers))
    (nonce,) = response.all("dpop-nonce")
    return nonce


@pytest.mark.parametrize("name", ENDPOINT_REQUESTS)
async def test_a_proof_that_is_not_good_lets_nobody_in(name: str) -> None:
    """RFC 9449 §4.3: every case of `hostile/proofs.py`, on every kind of request."""
    request, numbers = ENDPOINT_REQUESTS[name], count()
    async with serving(protected()) as plain, serving(protected(nonces=True)) as asking:
        nonce = await nonce_of(asking.port)

        async def run(case: ProofCase) -> str | None:
            port = asking.port if case.nonce else plain.port
            headers = case.request_headers(request.method, f"{name}-{next(numbers)}", nonce if case.nonce else None)
            wrong = problem(case.expect, await exchange(port, request._replace(headers=request.headers + headers)))
            return wrong and f"{case.name}: {wrong}"

        assert await problems(CASES, run) == []


def test_there_are_many_cases() -> None:
    assert len(CASES) >= 50


async def replay(port: int, *, other_port: int | None = None) -> list[int]:
    """Send one proof twice."""
    case = next(case for case in CASES if case.name == "good: a proof")
    request = ENDPOINT_REQUESTS["POST 2026"]
    headers = case.request_headers(request.method, f"once-{time.monotonic()}")
    sent = request._replace(headers=request.headers + headers)
    return [(await exchange(at, sent)).status for at in (port, other_port or port)]


async def test_a_proof_is_used_once() -> None:
    async with serving(protected()) as site:
        assert await replay(site.port) == [200, 401]


async def test_processes_that_share_a_backend_accept_a_proof_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'proofs.db'}"
    async with serving(protected(backend=url)) as one, serving(protected(backend=url)) as two:
        assert await replay(one.port, other_port=two.port) == [200, 401]
    async with serving(protected()) as one, serving(protected()) as two:
        assert await replay(one.port, other_port=two.port) == [200, 200]


async def test_processes_of_a_server_note_proofs_in_its_backend(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"

    def process(**options: Any) -> Server[Any]:
        auth = JWTAuth(issuer=ISSUER, audience=AUDIENCE, keys=key_set(), dpop=DPoPProofs())
        return make_server(Log(), auth=auth, backend=url, **options)

    async with serving(process()) as one, serving(process()) as two:
        assert await replay(one.port, other_port=two.port) == [200, 401]
    keys = await keys_in(url)
    assert any("4:dpop/" in key for key in keys)
    assert not without_server(keys, "rig")


async def test_of_many_at_the_same_time_one_is_accepted() -> None:
    case = next(case for case in CASES if case.name == "good: a proof")
    request = ENDPOINT_REQUESTS["POST 2026"]
    async with serving(protected()) as site:
        sent = request._replace(headers=request.headers + case.request_headers("POST", "race"))
        statuses = [each.status for each in await asyncio.gather(*(exchange(site.port, sent) for _ in range(20)))]
    assert sorted(statuses) == [200] + [401] * 19


@pytest.mark.parametrize("failure", [Overloaded("full"), BackendError("away")])
async def test_a_proof_that_can_not_be_noted_is_not_accepted(failure: Exception) -> None:
    class Failing(MemoryBackend):
        async def claim(self, key: str, *, ttl: float) -> bool:
            raise failure

    async with serving(protected(backend=Failing())) as site:
        assert await replay(site.port) == [503, 503]


async def test_invalid_proofs_take_no_room() -> None:
    """Only proofs that are good are noted, so that nobody fills the backend without a token and its key."""
    claimed: list[str] = []

    class Counting(MemoryBackend):
        async def claim(self, key: str, *, ttl: float) -> bool:
            claimed.append(key)
            assert len(key.encode()) < 100
            assert ttl < 120
            return await super().claim(key, ttl=ttl)

    async with serving(protected(backend=Counting())) as site:
        tried = [case for case in CASES if not case.nonce]
        for number, case in enumerate(tried):
            request = ENDPOINT_REQUESTS["POST 2026"]
            headers = case.request_headers("POST", f"room-{number}")
            await exchange(site.port, request._replace(headers=request.headers + headers))
    good = [case for case in tried if case.name.startswith("good:") and case.scheme.lower() == "dpop"]
    assert len(claimed) == len(good)


# ---------------------------------------------------------------- challenges


async def ask(site: Site, *values: str) -> Response:
    return await exchange(site.port, authorized(ENDPOINT_REQUESTS["POST 2026"], *values))


async def test_who_has_no_token_learns_of_both_schemes() -> None:
    async with serving(protected()) as site:
        schemes = challenges(await ask(site))
        assert set(schemes) == {"bearer", "dpop"}
        assert schemes["bearer"]["resource_metadata"].startswith("https://notes.test/")
        assert "error" not in schemes["bearer"]
        assert "ES256" in schemes["dpop"]["algs"].split()
        assert not {"none", "HS256"} & set(schemes["dpop"]["algs"].split())


async def test_a_server_that_requires_proofs_refuses_other_tokens() -> None:
    good = next(case for case in CASES if case.name == "good: a token that is not bound, as Bearer").token()
    async with serving(protected(required=True)) as site:
        nobody = challenges(await ask(site))
        assert set(nobody) == {"dpop"}
        assert "resource_metadata" in nobody["dpop"]
        refused = await ask(site, f"Bearer {good}")
        assert refused.status == 401
        assert challenges(refused)["dpop"]["error"] == "invalid_token"


async def test_a_server_without_dpop_refuses_tokens_that_are_bound() -> None:
    auth = JWTAuth(issuer=ISSUER, audience=AUDIENCE, keys=key_set())
    async with serving(make_server(Log(), auth=auth)) as site:
        for scheme in ("Bearer", "DPoP"):
            refused = await ask(site, f"{scheme} {bound_token()}")
            assert refused.status == 401
            assert set(challenges(refused)) == {"bearer"}
        refused = await ask(site, f"Bearer {bound_token()}")
        assert "not accepted here" in challenges(refused)["bearer"]["error_description"]


async def test_a_bound_token_without_a_proof_is_told_that_one_is_needed() -> None:
    async with serving(protected()) as site:
        refused = challenges(await ask(site, f"Bearer {bound_token()}"))
        assert refused["bearer"]["error_description"].endswith("needs a proof")


async def test_a_malformed_header_with_the_scheme_of_proofs_is_a_bad_request() -> None:
    async with serving(protected()) as site:
        assert (await ask(site, f"DPoP {bound_token()} x")).status == 400


async def test_who_has_proven_a_token_is_known_to_the_handler() -> None:
    key = generate_key()
    server: Server[Any] = Server("notes", auth=own_tokens(key))
    server.tool("add")(named)
    async with serving(server) as site:
        for _ in range(2):  # even when the token is remembered
            headers, body = modern_call("add")
            reply = await site.ask({**headers, **proven(site, key, "bound")}, body)
            assert text_of(reply.json()) == "anna"


def named(ctx: Context[Any]) -> str:
    return ctx.principal or "nobody"


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
async def test_the_store_of_proofs_is_closed_with_its_server(tmp_path: Path) -> None:
    store = tmp_path / "proofs.db"

    def is_open() -> bool:
        files = Path("/proc/self/fd").iterdir()
        return any(os.readlink(file) == str(store) for file in files if file.is_symlink())

    async with serving(protected(backend=f"sqlite:///{store}")) as site:
        assert await replay(site.port) == [200, 401]
        assert is_open()
    assert not is_open()


async def test_insufficient_scope_is_a_challenge_of_the_scheme_that_was_used() -> None:
    """RFC 9449 §7.1."""
    key = generate_key()
    server: Server[Any] = Server("notes", auth=own_tokens(key))
    server.tool("add", scopes=["notes.write"])(lambda: "added")
    async with serving(server) as site:
        headers, body = modern_call("add")
        reply = await site.ask({**headers, **proven(site, key, "bound")}, body)
        assert reply.status == 403
        assert reply.headers["www-authenticate"].startswith('DPoP error="insufficient_scope", scope="notes.write"')


# ---------------------------------------------------------------- over a whole call


def own_tokens(key: WebKey, **options: Any) -> TokenAuth:
    """The token "bound" is bound to a key, "free" is not."""
    claims = {"bound": {"cnf": {"jkt": thumbprint(key)}}, "free": {}}

    def verify(token: str) -> Principal | None:
        return Principal("anna", claims=claims[token]) if token in claims else None

    return TokenAuth(verify, dpop=DPoPProofs(**options))


def proven(site: Site, key: WebKey, token: str, nonce: str | None = None) -> dict[str, str]:
    proof = dpop_proof(key, "POST", "http://127.0.0.1/mcp", nonce=nonce, access_token=token)
    return {"Authorization": f"DPoP {token}", "DPoP": proof}


@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "EdDSA", "RS256", "PS256"])
async def test_a_client_calls_with_a_proof_for_each_request(algorithm: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key = generate_key(algorithm)
    async with serving(make_server(Log(), auth=own_tokens(key))) as site:
        for _ in range(3):
            headers, body = modern_call("add", a=1, b=2)
            sent = {**headers, **proven(site, key, "bound")}
            reply = await site.ask(sent, body)
            assert (reply.status, text_of(reply.json())) == (200, "3")
            assert sent["DPoP"] not in caplog.text
        async with Client(f"http://127.0.0.1:{site.port}/mcp", auth=lambda: "Bearer free") as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"


async def test_another_nonce_is_asked_for_and_the_one_before_still_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    key = generate_key()
    slot = 1000
    monkeypatch.setattr(dpop, "_slot", lambda: slot)
    async with serving(make_server(Log(), auth=own_tokens(key, nonces=True))) as site:

        async def status(nonce: str | None) -> tuple[int, str]:
            headers, body = modern_call("add", a=1, b=2)
            reply = await site.ask({**headers, **proven(site, key, "bound", nonce)}, body)
            return reply.status, reply.headers.get("dpop-nonce", "")

        asked, first = await status(None)
        assert asked == 401
        assert first
        assert (await status(first))[0] == 200
        slot += 1
        assert (await status(first))[0] == 200
        slot += 1
        asked, later = await status(first)
        assert asked == 401
        assert later != first
        assert (await status(later))[0] == 200


async def test_processes_with_one_nonce_key_accept_each_others_nonces() -> None:
    secret = b"s" * 32
    one, two, other = DPoPProofs(nonces=True, nonce_key=secret), DPoPProofs(nonces=True, nonce_key=secret), None
    assert one.nonce() == two.nonce() != DPoPProofs(nonces=True).nonce()
    assert other is DPoPProofs().nonce()


async def test_the_keys_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpop, "_KEYS", 3)
    keys = [generate_key() for _ in range(6)]
    by_print = {thumbprint(key): key for key in keys}
    proofs = DPoPProofs()

    auth = TokenAuth(
        lambda token: Principal("anna", claims={"cnf": {"jkt": token}}) if token in by_print else None, dpop=proofs
    )
    async with serving(make_server(Log(), auth=auth)) as site:
        for name, key in by_print.items():
            headers, body = modern_call("add", a=1, b=2)
            assert (await site.ask({**headers, **proven(site, key, name)}, body)).status == 200
    assert len(proofs._keys) <= 3


def test_nothing_secret_is_shown() -> None:
    secret = b"canary" * 6
    assert "canary" not in repr(DPoPProofs(nonces=True, nonce_key=secret))
    with pytest.raises(DefinitionError) as refused:
        DPoPProofs(nonce_key=b"canary")
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"nonce": True}, "no option 'nonce'"),
        ({"nonce_key": "text"}, "32 bytes"),
        ({"max_age": 0}, "1 to 3600"),
        ({"max_age": True}, "1 to 3600"),
        ({"backend": "other://x"}, "other"),
    ],
)
def test_a_mistake_in_the_options_is_one_line(options: Any, text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        DPoPProofs(**options)
    with pytest.raises(DefinitionError, match="DPoPProofs"):
        TokenAuth(lambda token: None, dpop=True)  # type: ignore[arg-type]  # a mistake
