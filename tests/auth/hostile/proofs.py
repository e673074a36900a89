"""Hostile DPoP proofs (RFC 9449), with tokens that are bound to a key and tokens that are not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec

from tests.auth.hostile.cases import ACCEPTED, Expect, Headers
from tests.auth.hostile.forge import (
    ABSENT,
    PrivateKey,
    changed,
    encode,
    make_token,
    private_jwk,
    public_jwk,
    thumbprint,
)
from tests.auth.hostile.issuer import AUDIENCE, At, claims_with, good_token

#: A proof that is not accepted (RFC 9449 §7.1).
INVALID_PROOF = Expect((401,), "dpop", {"error": "invalid_dpop_proof"})
#: A token that needs a proof, or a proof that the token is not bound to.
INVALID_BINDING = Expect((401,), "dpop")
NEEDS_NONCE = Expect((401,), "dpop", {"error": "use_dpop_nonce"}, {"dpop-nonce": ""})


@cache
def client_key(name: str = "client") -> ec.EllipticCurvePrivateKey:
    """Return a key of a client by name."""
    return ec.generate_private_key(ec.SECP256R1())


def bound_token(name: str = "client", **claims: Any) -> str:
    """Return a token that is bound to a client's key."""
    return good_token(cnf={"jkt": thumbprint(public_jwk(client_key(name)))}, **claims)


class ProofCase(NamedTuple):
    """A proof that differs from a good one.

    Attributes:
        name: What is wrong, unique.
        header: What differs in the header; a callable makes the value from the client's key.
        claims: What differs in the claims, or their whole text.
        token: Makes the access token.
        scheme: The scheme of Authorization.
        key: The name of the key that signs.
        signed_by: Another key or secret that signs, with its algorithm.
        headers: Makes the headers from the proof; by default one `DPoP`.
        expect: The answer.
        nonce: Whether the server asks for its nonces.
    """

    name: str
    header: Mapping[str, Any] = {}
    claims: Mapping[str, Any] | str = {}
    token: Callable[[], str] = bound_token
    scheme: str = "DPoP"
    key: str = "client"
    signed_by: Callable[[], tuple[PrivateKey | bytes, str]] | None = None
    headers: Callable[[str], Headers] = lambda proof: (("DPoP", proof),)
    expect: Expect = INVALID_PROOF
    nonce: bool = False

    def request_headers(self, method: str, identity: str, nonce: str | None = None) -> Headers:
        """Make the headers of a request.

        Args:
            method: The method of the request.
            identity: The `jti`, which must differ from request to request.
            nonce: A nonce of the server.
        """
        token = self.token()
        key: PrivateKey | bytes = client_key(self.key)
        algorithm = "ES256"
        if self.signed_by is not None:
            key, algorithm = self.signed_by()
        header = changed({"typ": "dpop+jwt", "alg": algorithm, "jwk": public_jwk(client_key(self.key))}, self.header)
        base = {"jti": identity, "htm": method, "htu": AUDIENCE, "iat": At(0), "ath": hash_of(token)}
        if nonce is not None:
            base["nonce"] = nonce
        claims: object = self.claims
        if not isinstance(self.claims, str):
            without = dict.fromkeys(("iss", "aud", "sub", "client_id", "scope", "exp"), ABSENT)
            claims = claims_with({**without, **base, **self.claims})
        proof = make_token(header, claims, key, algorithm)
        return (("Authorization", f"{self.scheme} {token}"), *self.headers(proof))


def hash_of(token: str) -> str:
    """Return the `ath` of a token."""
    return encode(hashlib.sha256(token.encode()).digest())


TOKENS = [
    ProofCase("bound token as Bearer", scheme="Bearer", headers=lambda proof: (), expect=Expect((401,))),
    ProofCase("bound token as Bearer with a proof", scheme="Bearer", expect=Expect((401,))),
    ProofCase("bound token without a proof", headers=lambda proof: (), expect=INVALID_BINDING),
    ProofCase("proof of another key", key="other", expect=INVALID_BINDING),
    ProofCase("token that is not bound", token=good_token, expect=INVALID_BINDING),
    ProofCase("cnf without jkt", token=lambda: good_token(cnf={}), expect=INVALID_BINDING),
    ProofCase("cnf of a certificate", token=lambda: good_token(cnf={"x5t#S256": "x"}), expect=INVALID_BINDING),
    ProofCase("cnf is a text", token=lambda: good_token(cnf="jkt"), expect=Expect((401,))),
    ProofCase("jkt is a number", token=lambda: good_token(cnf={"jkt": 1}), expect=Expect((401,))),
    ProofCase(
        "jkt with padding",
        token=lambda: good_token(cnf={"jkt": thumbprint(public_jwk(client_key())) + "="}),
        expect=INVALID_BINDING,
    ),
    ProofCase(
        "expired token",
        token=lambda: bound_token(exp=At(-3600)),
        expect=INVALID_BINDING._replace(parameters={"error": "invalid_token"}),
    ),
]

PROOFS = [
    ProofCase("two proofs", headers=lambda proof: (("DPoP", proof), ("DPoP", proof))),
    ProofCase("two proofs with a comma", headers=lambda proof: (("DPoP", f"{proof}, {proof}"),)),
    ProofCase("proof empty", headers=lambda proof: (("DPoP", ""),)),
    ProofCase("proof is not a token", headers=lambda proof: (("DPoP", "x.y.z"),)),
    ProofCase("proof of 20 KB", claims={"x": "y" * 20_000}, expect=Expect((400, 401, 431))),
    ProofCase("typ missing", header={"typ": ABSENT}),
    ProofCase("typ JWT", header={"typ": "JWT"}),
    ProofCase("typ at+jwt", header={"typ": "at+jwt"}),
    ProofCase("alg none", header={"alg": "none"}),
    ProofCase(
        "alg HS256 with a secret of its own",
        header={"jwk": {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}},
        signed_by=lambda: (b"secretsecretsecretsecretsecret", "HS256"),
    ),
    ProofCase("alg of another key type", header={"alg": "RS256"}),
    ProofCase("jwk missing", header={"jwk": ABSENT}),
    ProofCase("jwk a text", header={"jwk": "key"}),
    ProofCase("jwk empty", header={"jwk": {}}),
    ProofCase("jwk with the private part", header={"jwk": private_jwk(client_key())}),
    ProofCase("jwk not on the curve", header={"jwk": {**public_jwk(client_key()), "x": encode(bytes(32))}}),
    ProofCase("jwk of somebody else, signed by oneself", header={"jwk": public_jwk(client_key())}, key="other"),
    ProofCase("crit unknown", header={"crit": ["x"], "x": 1}),
    ProofCase("claims are a list", claims="[]"),
    ProofCase("htm of another method", claims={"htm": "PATCH"}),
    ProofCase("htm missing", claims={"htm": ABSENT}),
    ProofCase("htm a list", claims={"htm": ["GET", "POST", "DELETE"]}),
    ProofCase("htu of another host", claims={"htu": "https://evil.test/mcp"}),
    ProofCase("htu of another path", claims={"htu": "https://notes.test/admin"}),
    ProofCase("htu without TLS", claims={"htu": "http://notes.test/mcp"}),
    ProofCase("htu of another port", claims={"htu": "https://notes.test:8443/mcp"}),
    ProofCase("htu that begins alike", claims={"htu": f"{AUDIENCE}.evil.test"}),
    ProofCase("htu with a user", claims={"htu": "https://notes.test@evil.test/mcp"}),
    ProofCase("htu missing", claims={"htu": ABSENT}),
    ProofCase("htu is not a URL", claims={"htu": "mcp"}),
    ProofCase("iat missing", claims={"iat": ABSENT}),
    ProofCase("iat long ago", claims={"iat": At(-3600)}),
    ProofCase("iat in the future", claims={"iat": At(3600)}),
    ProofCase("iat a text", claims={"iat": "now"}),
    ProofCase("jti missing", claims={"jti": ABSENT}),
    ProofCase("jti empty", claims={"jti": ""}),
    ProofCase("jti a number", claims={"jti": 1}),
    ProofCase("jti of 8 KB", claims={"jti": "j" * 8000}),
    ProofCase("ath missing", claims={"ath": ABSENT}),
    ProofCase("ath of another token", claims={"ath": hash_of("another")}),
    ProofCase("ath empty", claims={"ath": ""}),
]

NONCES = [
    ProofCase("no nonce", nonce=True, claims={"nonce": ABSENT}, expect=NEEDS_NONCE),
    ProofCase("nonce of nobody", nonce=True, claims={"nonce": "x"}, expect=NEEDS_NONCE),
    ProofCase("nonce a number", nonce=True, claims={"nonce": 1}, expect=Expect((401,), "dpop")),
    ProofCase("good: a nonce", nonce=True, expect=ACCEPTED),
]

GOOD = [
    ProofCase("good: a proof", expect=ACCEPTED),
    ProofCase("good: the scheme in lower case", scheme="dpop", expect=ACCEPTED),
    ProofCase("good: htu with a query", claims={"htu": f"{AUDIENCE}?a=1#b"}, expect=ACCEPTED),
    ProofCase("good: htu with the port of its scheme", claims={"htu": "https://NOTES.test:443/mcp"}, expect=ACCEPTED),
    ProofCase(
        "good: a token that is not bound, as Bearer",
        token=good_token,
        scheme="Bearer",
        headers=lambda proof: (),
        expect=ACCEPTED,
    ),
]


def cases() -> list[ProofCase]:
    """Return all cases but that of a proof sent twice, which is two requests."""
    return [*TOKENS, *PROOFS, *NONCES, *GOOD]
