"""JSON Web Tokens and Keys: what is verified, what is refused, and that nothing secret shows."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel.auth import jose
from gemel.auth.jose import ALGORITHMS, HMAC_ALGORITHMS, KeyUnknown, TokenInvalid, WebKey, verify_jwt


@cache
def key_for(algorithm: str = "ES256") -> WebKey:
    return jose.generate_key(algorithm)


def encode(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token_of(claims: Any = None, **header: Any) -> str:
    return jose.sign_jwt(claims or {"sub": "ann"}, key_for(), header=header)


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_a_token_is_verified_with_the_public_key(algorithm: str) -> None:
    token = jose.sign_jwt({"sub": "ann"}, key_for(algorithm))
    public = jose.import_public_key(jose.public_jwk(key_for(algorithm)))
    header, claims = verify_jwt(token, [public])
    assert header["alg"] == algorithm
    assert claims == {"sub": "ann"}
    assert not public.private


@pytest.mark.parametrize("algorithm", sorted(HMAC_ALGORITHMS))
def test_hmac_is_refused_unless_it_is_asked_for(algorithm: str) -> None:
    token = jose.sign_jwt({}, key_for(algorithm))
    with pytest.raises(TokenInvalid, match="algorithm"):
        verify_jwt(token, key_for(algorithm))
    assert verify_jwt(token, key_for(algorithm), algorithms={algorithm})[1] == {}


def signed_by_public_key() -> str:
    """A token of HMAC whose secret is the text of the public key."""
    key = key_for("RS256")
    text = f"{encode({'alg': 'HS256', 'kid': key.kid})}.{encode({'sub': 'ann'})}"
    secret = json.dumps(jose.public_jwk(key)).encode()
    return f"{text}.{encode(hmac.new(secret, text.encode(), hashlib.sha256).digest())}"


def changed(part: int, change: Callable[[str], str]) -> str:
    parts = token_of().split(".")
    parts[part] = change(parts[part])
    return ".".join(parts)


HOSTILE: dict[str, Callable[[], str]] = {
    "empty": lambda: "",
    "opaque": lambda: "abcdef",
    "two parts": lambda: "a.b",
    "four parts": lambda: token_of() + ".x",
    "encrypted form": lambda: "a.b.c.d.e",
    "beyond ASCII": lambda: token_of() + "é",
    "blank before": lambda: " " + token_of(),
    "newline after": lambda: token_of() + "\n",
    "padding": lambda: token_of() + "=",
    "too large": lambda: token_of({"x": "y" * jose.MAX_TOKEN}),
    "header too large": lambda: token_of(x="y" * jose.MAX_HEADER),
    "header not JSON": lambda: changed(0, lambda part: encode(b"{")),
    "header not an object": lambda: changed(0, lambda part: encode([])),
    "header in UTF-16": lambda: changed(0, lambda part: encode(json.dumps({"alg": "ES256"}).encode("utf-16"))),
    "header nested deep": lambda: changed(0, lambda part: encode(b'{"alg":' * 400)),
    "claims not an object": lambda: sign_raw(b'"ann"'),
    "claims nested deep": lambda: sign_raw(b"[" * 8000),
    "claims with NaN": lambda: sign_raw(b'{"exp":NaN}'),
    "no algorithm": lambda: changed(0, lambda part: encode({"typ": "JWT"})),
    "algorithm is a list": lambda: changed(0, lambda part: encode({"alg": ["ES256"]})),
    "alg none": lambda: f"{encode({'alg': 'none'})}.{encode({'sub': 'ann'})}.",
    "alg none with signature": lambda: changed(0, lambda part: encode({"alg": "none"})),
    "alg nOnE": lambda: changed(0, lambda part: encode({"alg": "nOnE"})),
    "HMAC with the public key": signed_by_public_key,
    "other algorithm of the key": lambda: changed(0, lambda part: encode({"alg": "RS256", "kid": key_for().kid})),
    "critical extension": lambda: token_of(crit=["exp"], exp=1),
    "payload not encoded": lambda: token_of(b64=False, crit=["b64"]),
    "kid is a number": lambda: token_of(kid=7),
    "kid is a path": lambda: token_of(kid="../../dev/null"),
    "kid of nobody": lambda: token_of(kid="somebody else"),
    "brings its own key": lambda: own_key(),
    "other payload": lambda: changed(1, lambda part: encode({"sub": "bob"})),
    "no signature": lambda: changed(2, lambda part: ""),
    "signature of zeros": lambda: changed(2, lambda part: encode(bytes(64))),
    "signature too short": lambda: changed(2, lambda part: encode(b"x")),
    "signature as DER": lambda: changed(2, lambda part: encode(b"\x30\x06\x02\x01\x01\x02\x01\x01")),
    "last bits of the signature changed": lambda: changed(2, spare_bits),
}


def sign_raw(payload: bytes) -> str:
    key = key_for()
    text = f"{encode({'alg': 'ES256', 'kid': key.kid})}.{encode(payload)}"
    return f"{text}.{encode(jose._algorithm('ES256').sign(text.encode(), key.material))}"


def own_key() -> str:
    other = jose.generate_key()
    return jose.sign_jwt(
        {"sub": "ann"}, other, header={"kid": None, "jwk": jose.public_jwk(other), "jku": "https://x/"}
    )


def spare_bits(part: str) -> str:
    """Another spelling of the same bytes: 64 bytes leave four bits of the last character unused."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return part[:-1] + alphabet[alphabet.index(part[-1]) + 1]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_token_is_refused_with_a_reason_that_shows_nothing_of_it(name: str) -> None:
    token = HOSTILE[name]()
    with pytest.raises(TokenInvalid) as refused:
        verify_jwt(token, [key_for(), key_for("RS256")])
    assert refused.value.reason
    assert not token or token not in str(refused.value)


@given(st.text(alphabet="ab.-_{}=é\n ", max_size=40) | st.binary(max_size=60))
def test_no_text_is_more_than_refused(text: str | bytes) -> None:
    with pytest.raises(TokenInvalid):
        verify_jwt(text, key_for())


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_byte_of_a_token_can_be_changed(place: int, change: int) -> None:
    token = bytearray(TOKEN.encode())
    token[place % len(token)] ^= change
    with pytest.raises(TokenInvalid):
        verify_jwt(bytes(token), key_for())


TOKEN = token_of()


@pytest.mark.parametrize(
    ("typ", "accepted", "fits"),
    [
        ("at+jwt", ("at+jwt",), True),
        ("application/AT+JWT", ("at+jwt",), True),
        ("dpop+jwt", ("at+jwt", "jwt"), False),
        ("JWT", "jwt", True),
        (None, ("", "jwt"), True),
        (None, ("jwt",), False),
        (7, ("", "jwt"), False),
        ("anything", None, True),
    ],
)
def test_the_type_of_a_token_is_compared_as_a_media_type(typ: Any, accepted: Any, fits: bool) -> None:
    token = token_of(typ=typ)
    if fits:
        assert verify_jwt(token, key_for(), typ=accepted)[1] == {"sub": "ann"}
    else:
        with pytest.raises(TokenInvalid, match="type"):
            verify_jwt(token, key_for(), typ=accepted)


def test_a_token_that_names_a_key_is_verified_with_that_key_alone() -> None:
    first, second = jose.generate_key(kid="one"), jose.generate_key(kid="two")
    with pytest.raises(TokenInvalid, match="signature"):
        verify_jwt(jose.sign_jwt({}, first, header={"kid": "two"}), [first, second])
    with pytest.raises(KeyUnknown):
        verify_jwt(jose.sign_jwt({}, first), [second])
    assert verify_jwt(jose.sign_jwt({}, first, header={"kid": None}), [second, first])[1] == {}


def test_few_keys_are_tried_for_a_token_that_names_none() -> None:
    key = jose.generate_key()
    others = [jose.generate_key() for _ in range(8)]
    with pytest.raises(TokenInvalid, match="signature"):
        verify_jwt(jose.sign_jwt({}, key, header={"kid": None}), [*others, key])


# ---------------------------------------------------------------- keys


def test_a_key_set_is_read_without_what_can_not_verify() -> None:
    good = jose.public_jwk(key_for())
    rsa = jose.public_jwk(key_for("RS256"))
    keys = jose.import_keys(
        {
            "keys": [
                {"kty": "AKP", "alg": "ML-DSA-65", "pub": "x"},
                {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
                {**good, "use": "enc", "kid": "encrypts"},
                {**good, "alg": "ECDH-ES", "kid": "agrees"},
                {**good, "key_ops": ["encrypt"], "use": None, "kid": "no verify"},
                {**rsa, "n": "AQAB", "kid": "tiny"},
                {**rsa, "n": "_" * 20_000, "kid": "huge"},
                {**rsa, "e": "_" * 300, "kid": "slow"},
                7,
                {},
                {**good, "kid": 7},
                good,
            ]
        }
    )
    assert [key.kid for key in keys] == [good["kid"]]


def test_private_parts_of_a_key_set_are_not_read() -> None:
    (key,) = jose.import_keys({"keys": [jose.private_jwk(key_for("RS256"))]})
    assert not key.private


def test_only_so_many_keys_of_a_set_are_read() -> None:
    assert len(jose.import_keys({"keys": [jose.public_jwk(key_for())] * 1000})) == jose.MAX_KEYS


@pytest.mark.parametrize("document", [{}, {"keys": {}}, {"keys": None}, [], None])
def test_what_is_not_a_key_set_is_refused(document: Any) -> None:
    with pytest.raises(ValueError, match="key set"):
        jose.import_keys(document)


@pytest.mark.parametrize(
    "data",
    [None, "text", {"kty": "oct", "k": "A" * 60}, {}, jose.private_jwk(key_for()), jose.private_jwk(key_for("RS256"))],
)
def test_a_peer_may_send_public_keys_only(data: Any) -> None:
    with pytest.raises(ValueError, match="not a usable key"):
        jose.import_public_key(data)


def test_a_key_is_read_from_pem() -> None:
    material = key_for("RS256").material
    private = jose.import_key(material.as_pem(private=True))
    public = jose.import_key(material.as_pem(private=False).decode())
    assert verify_jwt(jose.sign_jwt({"a": 1}, private), public)[1] == {"a": 1}
    for text in ("", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "x" * 20_000):
        with pytest.raises(ValueError, match="not a usable key"):
            jose.import_key(text)


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        jose.import_key({"kty": "oct", "k": encode(b"x" * 31)})


def test_keys_and_errors_show_no_secrets() -> None:
    key = key_for()
    secret = jose.private_jwk(key)["d"]
    assert secret not in repr(key)
    assert secret not in repr(jose.public_jwk(key))
    with pytest.raises(ValueError, match="not a usable key") as refused:
        jose.import_key({**jose.private_jwk(key), "x": "AA"})
    assert secret not in str(refused.value)
    with pytest.raises(ValueError, match="can't sign"):
        jose.sign_jwt({}, jose.import_public_key(jose.public_jwk(key)))


def test_a_thumbprint_is_that_of_the_rfc() -> None:
    """The example of RFC 7638 §3.1."""
    modulus = (
        "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknj"
        "hMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQ"
        "vRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzK"
        "nqDKgw"
    )
    key = jose.import_key({"kty": "RSA", "n": modulus, "e": "AQAB", "alg": "RS256", "kid": "2011-04-29"})
    assert jose.thumbprint(key) == "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"


def test_a_dpop_proof_says_what_it_is_for() -> None:
    key = jose.generate_key()
    proof = jose.dpop_proof(key, "post", "https://x.example/mcp?a=b#c", nonce="n", access_token="t")
    header = jose.read_header(proof)
    public = jose.import_public_key(header["jwk"])
    assert jose.thumbprint(public) == jose.thumbprint(key)
    _, claims = verify_jwt(proof, public, typ="dpop+jwt")
    assert {name: claims[name] for name in ("htm", "htu", "nonce")} == {
        "htm": "POST",
        "htu": "https://x.example/mcp",
        "nonce": "n",
    }
    assert claims["ath"] == encode(hashlib.sha256(b"t").digest())
    assert claims["jti"] != jose.read_claims(jose.dpop_proof(key, "POST", "https://x.example/mcp"))["jti"]
