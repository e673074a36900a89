"""DPoP: a fresh proof for each request, nonces of servers, keys that are stored with their tokens."""

from __future__ import annotations

import base64
import hashlib

import pytest

from gemel import AuthorizationFailed, HttpStatus
from gemel.auth import jose
from gemel.auth.client.dpop import MAX_NONCES, DPoP, needs_nonce

URL = "https://notes.example.com/mcp?x=1#y"
REFUSAL = {"www-authenticate": 'DPoP error="use_dpop_nonce"', "dpop-nonce": "n2"}


def test_a_proof_is_for_one_request() -> None:
    dpop = DPoP()
    name, proof = dpop.header("post", URL, access_token="secret-token")
    header, claims = jose.verify_jwt(proof, dpop.key, typ="dpop+jwt")
    assert name == "DPoP"
    assert (claims["htm"], claims["htu"]) == ("POST", "https://notes.example.com/mcp")
    digest = hashlib.sha256(b"secret-token").digest()
    assert claims["ath"] == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    assert "d" not in header["jwk"]
    assert "nonce" not in claims
    other = jose.read_claims(dpop.header("POST", URL)[1])
    assert other["jti"] != claims["jti"]
    assert "ath" not in other
    assert "key" not in repr(dpop).lower()


def test_each_server_has_its_own_nonce() -> None:
    dpop = DPoP()
    assert dpop.take_nonce("https://a.example.com/token", {"dpop-nonce": "n1"})
    assert not dpop.take_nonce("https://A.example.com/other", {"dpop-nonce": "n1"})
    assert dpop.take_nonce("https://a.example.com/token", {"dpop-nonce": "n2"})
    assert jose.read_claims(dpop.header("POST", "https://a.example.com/x")[1])["nonce"] == "n2"
    assert "nonce" not in jose.read_claims(dpop.header("POST", "https://b.example.com/x")[1])


@pytest.mark.parametrize("nonce", ["", "a b", "a\nb", "\u00e9", "n" * 5000])
def test_malformed_nonces_are_ignored(nonce: str) -> None:
    dpop = DPoP()
    assert not dpop.take_nonce(URL, {"dpop-nonce": nonce})
    assert "nonce" not in jose.read_claims(dpop.header("POST", URL)[1])


def test_the_number_of_nonces_is_bounded() -> None:
    dpop = DPoP()
    for number in range(MAX_NONCES + 1):
        dpop.take_nonce(f"https://s{number}.example.com/", {"dpop-nonce": "n"})
    assert "nonce" not in jose.read_claims(dpop.header("GET", "https://s0.example.com/")[1])
    assert "nonce" in jose.read_claims(dpop.header("GET", "https://s1.example.com/")[1])


def test_a_refused_request_is_repeated_once_with_the_nonce() -> None:
    dpop = DPoP()
    first, second = [dpop.header("POST", URL)], [dpop.header("POST", URL)]
    refusal = HttpStatus("refused", 401, REFUSAL)
    assert needs_nonce(dpop, URL, refusal, first)
    assert needs_nonce(dpop, URL, refusal, second), "it was sent before the nonce was known"
    assert not needs_nonce(dpop, URL, refusal, [dpop.header("POST", URL)]), "it had this nonce"


@pytest.mark.parametrize(
    "headers",
    [{}, {"www-authenticate": 'DPoP error="invalid_token"', "dpop-nonce": "n2"}, {**REFUSAL, "dpop-nonce": ""}],
)
def test_another_refusal_is_not_about_the_nonce(headers: dict[str, str]) -> None:
    dpop = DPoP()
    assert not needs_nonce(dpop, URL, HttpStatus("refused", 401, headers), [("Authorization", "DPoP t")])
    assert not needs_nonce(None, URL, HttpStatus("refused", 401, REFUSAL), [("DPoP", "x")])


def test_the_key_of_stored_tokens_is_used_again() -> None:
    dpop = DPoP()
    stored = dpop.stored_key()
    other = DPoP().copy()
    other.use(stored)
    assert jose.thumbprint(other.key) == jose.thumbprint(dpop.key)
    other.use(None)
    assert jose.thumbprint(other.key) == jose.thumbprint(dpop.key)
    with pytest.raises(AuthorizationFailed, match="log in again") as caught:
        other.use({**stored, "x": "AAAA"})
    assert stored["d"] not in str(caught.value)


def test_a_given_key_is_used_for_all_logins() -> None:
    key = jose.generate_key("ES256")
    dpop = DPoP(jose.private_jwk(key))
    copied = dpop.copy()
    copied.use(DPoP().stored_key())
    assert jose.thumbprint(dpop.key) == jose.thumbprint(copied.key) == jose.thumbprint(key)
    dpop.take_nonce(URL, {"dpop-nonce": "n"})
    assert "nonce" not in jose.read_claims(copied.header("POST", URL)[1])
    assert jose.thumbprint(DPoP().copy().key) != jose.thumbprint(DPoP().copy().key)
