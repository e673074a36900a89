"""The authorization server that the hostile tokens claim to come from: its keys, and the tokens that it would issue."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tests.auth.hostile.cases import INVALID_TOKEN, Expect
from tests.auth.hostile.forge import Json, PrivateKey, changed, make_token, public_jwk

ISSUER = "https://login.test"
AUDIENCE = "https://notes.test/mcp"
SCOPE = "notes"


class At(NamedTuple):
    """A time as a claim, relative to now.

    Attributes:
        seconds: Seconds from now; negative ones lie in the past.
    """

    seconds: int


class SigningKey(NamedTuple):
    """A private key, with what a token's header says of it."""

    key: PrivateKey
    algorithm: str
    kid: str


@cache
def signing_key(name: str) -> SigningKey:
    """Return a key by its name: "rs", "ps", "es", "ed" are published by the issuer, "other-…" are an attacker's."""
    kind = name.removeprefix("other-")
    makers: dict[str, Callable[[], tuple[PrivateKey, str]]] = {
        "rs": lambda: (rsa.generate_private_key(65537, 2048), "RS256"),
        "ps": lambda: (rsa.generate_private_key(65537, 2048), "PS256"),
        "es": lambda: (ec.generate_private_key(ec.SECP256R1()), "ES256"),
        "ed": lambda: (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    }
    key, algorithm = makers[kind]()
    return SigningKey(key, algorithm, f"{kind}-1")


def published(name: str, **members: Any) -> Json:
    """Return the public JSON Web Key of a name, as the issuer publishes it, with further members."""
    key = signing_key(name)
    return public_jwk(key.key, **{"kid": key.kid, "alg": key.algorithm, "use": "sig", **members})


def key_set(*names: str) -> Json:
    """Return the issuer's key set."""
    return {"keys": [published(name) for name in names or ("rs", "ps", "es", "ed")]}


def claims_with(changes: Mapping[str, Any] = {}) -> Json:
    """Return the claims of an access token (RFC 9068) for the server, with changes."""
    base = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ada",
        "client_id": "editor",
        "scope": SCOPE,
        "iat": At(-10),
        "exp": At(300),
        "jti": "token-1",
    }
    now = int(time.time())
    return {
        name: now + value.seconds if isinstance(value, At) else value for name, value in changed(base, changes).items()
    }


def header_with(key: SigningKey, changes: Mapping[str, Any] = {}) -> Json:
    """Return the header of an access token, with changes."""
    return changed({"alg": key.algorithm, "typ": "at+jwt", "kid": key.kid}, changes)


class TokenCase(NamedTuple):
    """A token that differs from a good one.

    Attributes:
        name: What is wrong, unique.
        header: What differs in the header, or its whole text.
        claims: What differs in the claims, or their whole text.
        key: The key that signs, see `signing_key`.
        shape: Makes the token where no difference of header and claims can say it.
        expect: The answer.
    """

    name: str
    header: Mapping[str, Any] | str = {}
    claims: Mapping[str, Any] | str = {}
    key: str = "rs"
    shape: Callable[[], str] | None = None
    expect: Expect = INVALID_TOKEN

    def token(self) -> str:
        """Make the token."""
        if self.shape is not None:
            return self.shape()
        key = signing_key(self.key)
        header = self.header if isinstance(self.header, str) else header_with(key, self.header)
        claims = self.claims if isinstance(self.claims, str) else claims_with(self.claims)
        return make_token(header, claims, key.key, key.algorithm)


def good_token(key: str = "rs", **claims: Any) -> str:
    """Return a token that is accepted."""
    return TokenCase("good", claims=claims, key=key).token()
