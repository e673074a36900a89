"""The hostile DPoP proofs against protected servers on loopback, one of which asks for its nonces."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest

from gemel import Server
from gemel.auth import DPoPProofs, JWTAuth
from tests.auth.hostile.cases import ACCEPTED, ENDPOINT_REQUESTS, Request, problem
from tests.auth.hostile.issuer import AUDIENCE, ISSUER, key_set
from tests.auth.hostile.proofs import GOOD, INVALID_PROOF, ProofCase, cases
from tests.auth.hostile.wire import exchange, problems
from tests.transports.http_rig import serving

IDENTITIES = itertools.count()


def make_server(*, nonces: bool) -> Server[object]:
    auth = JWTAuth(issuer=ISSUER, audience=AUDIENCE, keys=key_set(), dpop=DPoPProofs(nonces=nonces))
    return Server("notes", version="1", auth=auth)


@pytest.fixture
async def ports() -> AsyncIterator[dict[bool, int]]:
    """The ports of a server without nonces, and with them."""
    async with serving(make_server(nonces=False)) as plain, serving(make_server(nonces=True)) as careful:
        yield {False: plain.port, True: careful.port}


def with_proof(case: ProofCase, over: str, nonce: str | None = None) -> Request:
    request = ENDPOINT_REQUESTS[over]
    headers = case.request_headers(request.method, f"id {next(IDENTITIES)}", nonce)
    return request._replace(headers=request.headers + headers)


@pytest.mark.parametrize("over", ENDPOINT_REQUESTS)
async def test_hostile_proofs_are_answered_as_specified(ports: dict[bool, int], over: str) -> None:
    asked = await exchange(ports[True], with_proof(GOOD[0], over))
    (nonce,) = asked.all("dpop-nonce")

    async def run(case: ProofCase) -> str | None:
        request = with_proof(case, over, nonce if case.nonce else None)
        wrong = problem(case.expect, await exchange(ports[case.nonce], request))
        return wrong and f"{case.name}: {wrong}"

    assert await problems(cases(), run) == []


async def test_a_proof_is_accepted_once(ports: dict[bool, int]) -> None:
    request = with_proof(GOOD[0], "POST 2026")
    assert problem(ACCEPTED, await exchange(ports[False], request)) is None
    for _ in range(3):
        assert problem(INVALID_PROOF, await exchange(ports[False], request)) is None


async def test_a_proof_of_one_method_is_of_no_use_for_another(ports: dict[bool, int]) -> None:
    proof = GOOD[0].request_headers("POST", "one method")
    for over in ("GET", "DELETE"):
        request = ENDPOINT_REQUESTS[over]
        response = await exchange(ports[False], request._replace(headers=request.headers + proof))
        assert problem(INVALID_PROOF, response) is None
