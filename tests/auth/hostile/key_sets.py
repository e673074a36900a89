"""Hostile JSON Web Key Sets: what the issuer's URL answers, and what becomes of a token then."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.auth.hostile.cases import ACCEPTED, INVALID_TOKEN, Expect
from tests.auth.hostile.forge import encode, make_token, private_jwk, public_jwk
from tests.auth.hostile.issuer import claims_with, good_token, key_set, published, signing_key

#: The issuer's keys can't be had: nobody is let in, and the client is not told that its token is bad for certain.
UNAVAILABLE = Expect((401, 503))
SECRET = b"a secret of more than 32 bytes, which everybody can read"
NOT_PUBLISHED = INVALID_TOKEN._replace(status=(401, 503), scheme=None)


class KeySetCase(NamedTuple):
    """An answer of the issuer's URL for keys.

    Attributes:
        name: What is wrong, unique.
        body: Makes the body.
        token: Makes the token that is sent.
        expect: What the server answers.
        status: The status of the issuer's answer.
        headers: Its headers, beside length and type.
        requests: How often the issuer may be asked, for ten requests with the token.
    """

    name: str
    body: Callable[[], bytes]
    token: Callable[[], str] = good_token
    expect: Expect = UNAVAILABLE
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    requests: int = 3


def as_json(make: Callable[[], object]) -> Callable[[], bytes]:
    return lambda: json.dumps(make()).encode()


def keys(*entries: Callable[[], object]) -> Callable[[], bytes]:
    """A key set of entries."""
    return as_json(lambda: {"keys": [entry() for entry in entries]})


def by_secret() -> str:
    return make_token({"alg": "HS256", "kid": "secret", "typ": "at+jwt"}, claims_with(), SECRET, "HS256")


def by_small_key() -> str:
    return make_token({"alg": "RS256", "kid": "small", "typ": "at+jwt"}, claims_with(), small_key(), "RS256")


_SMALL: list[rsa.RSAPrivateKey] = []


def small_key() -> rsa.RSAPrivateKey:
    if not _SMALL:
        _SMALL.append(rsa.generate_private_key(65537, 1024))
    return _SMALL[0]


def without(member: str, name: str = "rs") -> Callable[[], object]:
    return lambda: {key: value for key, value in published(name).items() if key != member}


def good() -> object:
    return published("rs")


def other() -> object:
    """A key of somebody else under the same kid."""
    return published("other-rs")


def exposed() -> object:
    key = signing_key("es").key
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return private_jwk(key, kid="es-1", alg="ES256")


CASES = [
    KeySetCase("good", as_json(key_set), expect=ACCEPTED, requests=1),
    KeySetCase("not JSON", lambda: b"<html>"),
    KeySetCase("empty", lambda: b""),
    KeySetCase("a list", lambda: b"[]"),
    KeySetCase("null", lambda: b"null"),
    KeySetCase("keys missing", lambda: b"{}"),
    KeySetCase("keys an object", lambda: b'{"keys":{}}'),
    KeySetCase("no keys", lambda: b'{"keys":[]}', expect=NOT_PUBLISHED),
    KeySetCase("nested deeply", lambda: b'{"keys":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    KeySetCase("2 MB of blanks", lambda: json.dumps(key_set()).encode() + b" " * 2_000_000),
    KeySetCase(
        "a key of 1 MB",
        keys(good, lambda: {"kty": "RSA", "kid": "big", "n": "A" * 500_000, "e": "AQAB"}),
        expect=Expect((200, 202, 204, 401, 404, 405, 503)),
    ),
    KeySetCase(
        "5,000 keys before the good one",
        keys(*[lambda: {"kty": "oct", "k": "AAAA"}] * 5000, good),
        expect=Expect((200, 401, 404, 405, 503)),
    ),
    KeySetCase("status 500", as_json(key_set), status=500),
    KeySetCase("status 404", as_json(key_set), status=404),
    KeySetCase(
        "a redirect to a metadata service",
        as_json(key_set),
        status=302,
        headers=(("Location", "http://169.254.169.254/keys"),),
    ),
    KeySetCase("a redirect to a file", as_json(key_set), status=302, headers=(("Location", "file:///etc/passwd"),)),
    KeySetCase("a redirect to itself", as_json(key_set), status=302, headers=(("Location", "/keys"),), requests=20),
    KeySetCase("a compressed body that is none", as_json(key_set), headers=(("Content-Encoding", "gzip"),)),
    KeySetCase(
        "unknown key type beside the good one",
        keys(lambda: {"kty": "PQC", "kid": "new", "x": "y"}, good),
        expect=ACCEPTED,
        requests=1,
    ),
    KeySetCase(
        "malformed keys beside the good one",
        keys(
            lambda: None,
            lambda: 1,
            list,
            dict,
            lambda: {"kty": "RSA"},
            lambda: {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
            lambda: {"kty": 1},
            good,
        ),
        expect=ACCEPTED,
        requests=1,
    ),
    KeySetCase("kid twice, the good key first", keys(good, other), expect=ACCEPTED, requests=1),
    KeySetCase("kid twice, the good key second", keys(other, good), expect=Expect((200, 202, 204, 401, 404, 405))),
    KeySetCase("a hundred keys of one kid", keys(*[other] * 100), expect=NOT_PUBLISHED),
    KeySetCase("key without kid", keys(without("kid")), expect=Expect((200, 202, 204, 401, 404, 405))),
    KeySetCase("key without alg", keys(without("alg")), expect=ACCEPTED, requests=1),
    KeySetCase("key for encryption", keys(lambda: published("rs", use="enc")), expect=NOT_PUBLISHED),
    KeySetCase(
        "key that may only encrypt",
        keys(lambda: {**published("rs"), "use": None, "key_ops": ["encrypt"]}),
        expect=NOT_PUBLISHED,
    ),
    KeySetCase("key for another algorithm", keys(lambda: published("rs", alg="RS512")), expect=NOT_PUBLISHED),
    KeySetCase(
        "key of another type under the same kid", keys(lambda: published("es", kid="rs-1")), expect=NOT_PUBLISHED
    ),
    KeySetCase(
        "secret in the key set",
        keys(lambda: {"kty": "oct", "kid": "secret", "alg": "HS256", "k": encode(SECRET)}),
        token=by_secret,
        expect=NOT_PUBLISHED,
    ),
    KeySetCase(
        "private key in the key set",
        keys(exposed),
        token=lambda: good_token("es"),
        expect=Expect((200, 202, 204, 401, 404, 405), hides=('"d"',)),
    ),
    KeySetCase(
        "RSA of 1024 bits",
        keys(lambda: public_jwk(small_key(), kid="small", alg="RS256")),
        token=by_small_key,
        expect=NOT_PUBLISHED,
    ),
    KeySetCase("RSA with the exponent 1", keys(lambda: published("rs", e="AQ")), expect=NOT_PUBLISHED),
    KeySetCase("RSA with a huge exponent", keys(lambda: published("rs", e="_" * 300)), expect=NOT_PUBLISHED),
]
