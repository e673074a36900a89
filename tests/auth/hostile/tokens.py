"""Hostile access tokens in `Authorization: Bearer`, each sent with every request of `ENDPOINT_REQUESTS`."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric import ec

from tests.auth.hostile.cases import ACCEPTED, INSUFFICIENT_SCOPE, MALFORMED
from tests.auth.hostile.forge import (
    ABSENT,
    der_signature,
    dump,
    encode,
    make_token,
    public_der,
    public_jwk,
    public_pem,
    sign,
)
from tests.auth.hostile.issuer import (
    AUDIENCE,
    ISSUER,
    At,
    TokenCase,
    claims_with,
    good_token,
    header_with,
    published,
    signing_key,
)

#: Where tokens tell the server to look for keys. Nobody may ask there.
ATTACKER = "http://127.0.0.1:@PORT@/keys"
#: The header may be too large for HTTP, or for a token.
TOO_LARGE = MALFORMED


def unsigned(algorithm: object) -> Callable[[], str]:
    """A token without a signature."""
    return lambda: f"{encode(dump({'alg': algorithm, 'typ': 'at+jwt'}))}.{encode(dump(claims_with()))}."


def by_secret(secret: Callable[[], bytes], algorithm: str = "HS256", **header: object) -> Callable[[], str]:
    """A token signed with HMAC, with something public as its secret."""
    kid = {"kid": "rs-1", **header}
    return lambda: make_token({"alg": algorithm, "typ": "at+jwt", **kid}, claims_with(), secret(), algorithm)


def signed_as(key: str, algorithm: str, *, kid: str | None = None) -> Callable[[], str]:
    """A token signed by the issuer's own key, with an algorithm that this key is not for."""
    used = signing_key(key)
    header = {"alg": algorithm, "typ": "at+jwt", "kid": kid or used.kid}
    return lambda: make_token(header, claims_with(), used.key, algorithm)


def damaged(damage: Callable[[list[str]], str], key: str = "rs") -> Callable[[], str]:
    """A good token whose three parts are put together differently."""
    return lambda: damage(good_token(key).split("."))


def flipped(text: str) -> str:
    """Change a character in the middle."""
    middle = len(text) // 2
    return text[:middle] + ("A" if text[middle] != "A" else "B") + text[middle + 1 :]


def with_signature(make: Callable[[bytes], bytes]) -> Callable[[], str]:
    """An ES256 token with another signature; `make` gets what is signed."""

    def token() -> str:
        content = f"{encode(dump(header_with(signing_key('es'))))}.{encode(dump(claims_with()))}"
        return f"{content}.{encode(make(content.encode()))}"

    return token


def elliptic() -> ec.EllipticCurvePrivateKey:
    key = signing_key("es").key
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def unencoded() -> str:
    """A token with an unencoded payload (RFC 7797)."""
    header = encode(dump(header_with(signing_key("rs"), {"b64": False, "crit": ["b64"]})))
    payload = dump(claims_with())
    signature = sign(signing_key("rs").key, "RS256", f"{header}.{payload}".encode())
    return f"{header}.{encode(payload)}.{encode(signature)}"


def compressed() -> str:
    """A token with a compressed payload, as JWE has it."""
    packed = encode(zlib.compress(dump(claims_with()).encode(), wbits=-15))
    content = f"{encode(dump(header_with(signing_key('rs'), {'zip': 'DEF'})))}.{packed}"
    return f"{content}.{encode(sign(signing_key('rs').key, 'RS256', content.encode()))}"


def nested() -> str:
    """A token in a token (RFC 7519 §2)."""
    key = signing_key("rs")
    return make_token(header_with(key, {"cty": "JWT"}), good_token(), key.key, key.algorithm)


ALGORITHMS = [
    TokenCase("alg none", shape=unsigned("none")),
    TokenCase("alg None", shape=unsigned("None")),
    TokenCase("alg nOnE", shape=unsigned("nOnE")),
    TokenCase("alg none with the signature of a good token", header={"alg": "none"}),
    TokenCase("alg null", header={"alg": None}),
    TokenCase("alg missing", header={"alg": ABSENT}),
    TokenCase("alg empty", header={"alg": ""}),
    TokenCase("alg as a list", header={"alg": ["RS256"]}),
    TokenCase("alg as a number", header={"alg": 256}),
    TokenCase("alg in lower case", header={"alg": "rs256"}),
    TokenCase("alg with a blank", header={"alg": "RS256 "}),
    TokenCase("alg unknown", header={"alg": "RS999"}),
    TokenCase("alg of an encryption", header={"alg": "RSA-OAEP", "enc": "A256GCM"}),
    TokenCase("alg twice, the second none", header='{"alg":"RS256","kid":"rs-1","typ":"at+jwt","alg":"none"}'),
    TokenCase("alg RS1", shape=signed_as("rs", "RS1")),
    TokenCase("HS256 by the public key as PEM", shape=by_secret(lambda: public_pem(signing_key("rs").key))),
    TokenCase("HS512 by the public key as PEM", shape=by_secret(lambda: public_pem(signing_key("rs").key), "HS512")),
    TokenCase("HS256 by the public key as DER", shape=by_secret(lambda: public_der(signing_key("rs").key))),
    TokenCase("HS256 by the public key as JSON", shape=by_secret(lambda: json.dumps(published("rs")).encode())),
    TokenCase(
        "HS256 by the elliptic key as PEM", shape=by_secret(lambda: public_pem(signing_key("es").key), kid="es-1")
    ),
    TokenCase("HS256 by an empty secret", shape=by_secret(lambda: b"")),
    TokenCase("HS256 by the issuer's name", shape=by_secret(lambda: ISSUER.encode())),
    TokenCase("HS256 by a guessed secret", shape=by_secret(lambda: b"secret")),
    TokenCase("PS256 by a key for RS256", shape=signed_as("rs", "PS256")),
    TokenCase("RS256 by a key for PS256", shape=signed_as("ps", "RS256")),
    TokenCase("RS512 by a key for RS256", shape=signed_as("rs", "RS512")),
    TokenCase("ES256 by an RSA key", header={"alg": "ES256"}),
    TokenCase("RS256 by an elliptic key", header={"alg": "RS256"}, key="es"),
    TokenCase("PS256 by an elliptic key", header={"alg": "PS256"}, key="es"),
    TokenCase("ES384 by a P-256 key", shape=signed_as("es", "ES384")),
    TokenCase("EdDSA by an elliptic key", header={"alg": "EdDSA"}, key="es"),
    TokenCase("ES256 by an Ed25519 key", header={"alg": "ES256"}, key="ed"),
]

SIGNATURES = [
    TokenCase("signature changed", shape=damaged(lambda parts: ".".join((*parts[:2], flipped(parts[2]))))),
    TokenCase("signature empty", shape=damaged(lambda parts: f"{parts[0]}.{parts[1]}.")),
    TokenCase("signature missing", shape=damaged(lambda parts: f"{parts[0]}.{parts[1]}")),
    TokenCase("signature shortened", shape=damaged(lambda parts: ".".join((*parts[:2], parts[2][:-8])))),
    TokenCase("signature doubled", shape=damaged(lambda parts: ".".join((*parts[:2], parts[2] * 2)))),
    TokenCase(
        "claims of another token",
        shape=damaged(lambda parts: f"{parts[0]}.{encode(dump(claims_with({'sub': 'root'})))}.{parts[2]}"),
    ),
    TokenCase(
        "header of another token",
        shape=damaged(lambda parts: f"{encode(dump({'alg': 'RS256', 'kid': 'rs-1'}))}.{parts[1]}.{parts[2]}"),
    ),
    TokenCase("signed by another RSA key with the same kid", key="other-rs"),
    TokenCase("signed by another elliptic key with the same kid", key="other-es"),
    TokenCase("signed by another Ed25519 key with the same kid", key="other-ed"),
    TokenCase("signed by another key without kid", key="other-rs", header={"kid": ABSENT}),
    TokenCase("ECDSA signature of zeros", shape=with_signature(lambda data: bytes(64))),
    TokenCase("ECDSA signature of the order", shape=with_signature(lambda data: b"\xff" * 64)),
    TokenCase("ECDSA signature as DER", shape=with_signature(lambda data: der_signature(elliptic(), data))),
    TokenCase("ECDSA signature one byte short", shape=with_signature(lambda data: sign(elliptic(), "ES256", data)[1:])),
    TokenCase(
        "ECDSA signature with a zero more", shape=with_signature(lambda data: sign(elliptic(), "ES256", data) + b"\0")
    ),
]

SHAPES = [
    TokenCase("one part", shape=lambda: "abcdef"),
    TokenCase("two dots", shape=lambda: ".."),
    TokenCase("parts of a JWE", shape=damaged(lambda parts: ".".join((*parts, "AAAA", "AAAA")))),
    TokenCase("four parts", shape=damaged(lambda parts: ".".join((*parts, parts[2])))),
    TokenCase("a dot before", shape=lambda: f".{good_token()}"),
    TokenCase("a dot after", shape=lambda: f"{good_token()}."),
    TokenCase("header empty", shape=damaged(lambda parts: f".{parts[1]}.{parts[2]}")),
    TokenCase("claims empty", shape=damaged(lambda parts: f"{parts[0]}..{parts[2]}")),
    TokenCase("not base64", shape=damaged(lambda parts: f"{parts[0]}.~~~~.{parts[2]}"), expect=MALFORMED),
    TokenCase("base64 of a wrong length", shape=damaged(lambda parts: f"{parts[0]}A.{parts[1]}.{parts[2]}")),
    TokenCase(
        "base64 with padding inside",
        shape=damaged(lambda parts: f"{parts[0]}==.{parts[1]}.{parts[2]}"),
        expect=MALFORMED,
    ),
    TokenCase(
        "base64 of the other alphabet",
        shape=lambda: ".".join(
            base64.b64encode(part).decode().rstrip("=")
            for part in (b'{"alg":"RS256","x":"\xff\xfe\xfb\xef\xbe"}', b"{}", b"\xff\xef\xbe" * 9)
        ),
        expect=MALFORMED,
    ),
    TokenCase("header is not JSON", header="alg=RS256"),
    TokenCase("header is a list", header='["RS256"]'),
    TokenCase("header is null", header="null"),
    TokenCase("header nested deeply", header="[" * 2000 + "]" * 2000),
    TokenCase("header of 20 KB", header={"x": "y" * 20_000}, expect=TOO_LARGE),
    TokenCase("token of 200 KB", claims={"x": "y" * 200_000}, expect=TOO_LARGE),
    TokenCase("claims are not JSON", claims="sub=ada"),
    TokenCase("claims are a list", claims="[]"),
    TokenCase("claims are a number", claims="1"),
    TokenCase("claims nested deeply", claims='{"a":' * 2000 + "1" + "}" * 2000, expect=MALFORMED),
    TokenCase("claims are another token", shape=nested),
    TokenCase("claims compressed", shape=compressed),
    TokenCase("payload unencoded", shape=unencoded),
]

HEADERS = [
    TokenCase("crit of an unknown extension", header={"crit": ["exp"], "exp": 1}),
    TokenCase("crit of a vendor", header={"crit": ["https://login.test/x"], "https://login.test/x": True}),
    TokenCase("crit empty", header={"crit": []}),
    TokenCase("crit as a text", header={"crit": "b64"}),
    TokenCase("b64 false", header={"b64": False, "crit": ["b64"]}),
    TokenCase("typ of a DPoP proof", header={"typ": "dpop+jwt"}),
    TokenCase("typ of a logout token", header={"typ": "logout+jwt"}),
    TokenCase("typ of an identity assertion", header={"typ": "oauth-id-jag+jwt"}),
    TokenCase("typ of a refresh token", header={"typ": "rt+jwt"}),
    TokenCase("typ of an introspection response", header={"typ": "token-introspection+jwt"}),
    TokenCase("typ as a number", header={"typ": 1}),
    TokenCase("kid of another key", header={"kid": "es-1"}),
    TokenCase("kid is a path", header={"kid": "../../../../etc/passwd"}, key="other-rs"),
    TokenCase("kid is a path, signed with what is there", shape=by_secret(lambda: b"", kid="/dev/null")),
    TokenCase("kid is SQL", header={"kid": "x' UNION SELECT 'key' --"}, key="other-rs"),
    TokenCase("kid is a URL", header={"kid": ATTACKER}, key="other-rs"),
    TokenCase("kid is a command", header={"kid": "|touch /tmp/gemel-kid"}, key="other-rs"),
    TokenCase("kid with a line break", header={"kid": "rs-1\r\nX-Injected: yes"}, key="other-rs"),
    TokenCase("kid with quotes", header={"kid": '"\\", error="none'}, key="other-rs"),
    TokenCase("kid of 3 KB", header={"kid": "k" * 3000}, key="other-rs"),
    TokenCase("kid of 64 KB", header={"kid": "k" * 64_000}, key="other-rs", expect=TOO_LARGE),
    TokenCase("kid empty", header={"kid": ""}, key="other-rs"),
    TokenCase("kid null", header={"kid": None}, key="other-rs"),
    TokenCase("kid as a number", header={"kid": 1}, key="other-rs"),
    TokenCase("kid as a list", header={"kid": ["rs-1"]}),
    TokenCase("jku", header={"jku": ATTACKER}, key="other-rs"),
    TokenCase("jku with a new kid", header={"jku": ATTACKER, "kid": "evil"}, key="other-rs"),
    TokenCase("x5u", header={"x5u": ATTACKER, "kid": "evil"}, key="other-rs"),
    TokenCase("x5c", header={"x5c": ["MIIB"], "kid": "evil"}, key="other-rs"),
]

CLAIMS = [
    TokenCase("iss of somebody else", claims={"iss": "https://evil.test"}),
    TokenCase("iss missing", claims={"iss": ABSENT}),
    TokenCase("iss empty", claims={"iss": ""}),
    TokenCase("iss with a slash", claims={"iss": f"{ISSUER}/"}),
    TokenCase("iss in upper case", claims={"iss": ISSUER.upper()}),
    TokenCase("iss that begins alike", claims={"iss": f"{ISSUER}.evil.test"}),
    TokenCase("iss as a list", claims={"iss": [ISSUER]}),
    TokenCase("iss with a zero byte", claims={"iss": f"{ISSUER}\0"}),
    TokenCase("aud of another server", claims={"aud": "https://other.test/mcp"}),
    TokenCase("aud missing", claims={"aud": ABSENT}),
    TokenCase("aud empty", claims={"aud": ""}),
    TokenCase("aud an empty list", claims={"aud": []}),
    TokenCase("aud a list of others", claims={"aud": ["https://other.test/mcp", "https://third.test"]}),
    TokenCase("aud a list in a list", claims={"aud": [[AUDIENCE]]}),
    TokenCase("aud an object", claims={"aud": {AUDIENCE: True}}),
    TokenCase("aud a number", claims={"aud": 1}),
    TokenCase("aud that begins alike", claims={"aud": f"{AUDIENCE}.evil.test"}),
    TokenCase("aud that is the beginning", claims={"aud": "https://notes.test/m"}),
    TokenCase("aud of another path", claims={"aud": "https://notes.test/admin"}),
    TokenCase("aud with a text before", claims={"aud": f"evil {AUDIENCE}"}),
    TokenCase("aud is the client: an ID token", claims={"aud": "editor", "nonce": "n", "at_hash": "x"}),
    TokenCase("aud is the issuer: a refresh token", claims={"aud": ISSUER, "typ": "Refresh"}),
    TokenCase("exp in the past", claims={"exp": At(-3600)}),
    TokenCase("exp missing", claims={"exp": ABSENT}),
    TokenCase("exp null", claims={"exp": None}),
    TokenCase("exp as a text", claims={"exp": "9999999999"}),
    TokenCase("exp true", claims={"exp": True}),
    TokenCase("exp negative", claims={"exp": -1}),
    TokenCase("exp zero", claims={"exp": 0}),
    TokenCase(
        "exp infinite", claims=f'{{"iss":"{ISSUER}","aud":"{AUDIENCE}","sub":"ada","scope":"notes","exp":Infinity}}'
    ),
    TokenCase(
        "exp not a number", claims=f'{{"iss":"{ISSUER}","aud":"{AUDIENCE}","sub":"ada","scope":"notes","exp":NaN}}'
    ),
    TokenCase("exp 1e400", claims=f'{{"iss":"{ISSUER}","aud":"{AUDIENCE}","sub":"ada","scope":"notes","exp":1e400}}'),
    TokenCase("nbf in the future", claims={"nbf": At(3600)}),
    TokenCase("nbf as a text", claims={"nbf": "0"}),
    TokenCase("sub a list", claims={"sub": ["ada"]}),
    TokenCase("sub an object", claims={"sub": {"name": "ada"}}),
    TokenCase("scope missing", claims={"scope": ABSENT}, expect=INSUFFICIENT_SCOPE),
    TokenCase("scope empty", claims={"scope": ""}, expect=INSUFFICIENT_SCOPE),
    TokenCase("scope that begins alike", claims={"scope": "notes.write notesx"}, expect=INSUFFICIENT_SCOPE),
    TokenCase("scope in upper case", claims={"scope": "NOTES"}, expect=INSUFFICIENT_SCOPE),
    TokenCase("scope with a comma", claims={"scope": "notes,admin"}, expect=INSUFFICIENT_SCOPE),
    TokenCase("scope a star", claims={"scope": "*"}, expect=INSUFFICIENT_SCOPE),
    TokenCase(
        "scope as an object",
        claims={"scope": {"notes": True}},
        expect=INSUFFICIENT_SCOPE._replace(status=(401, 403), parameters={}),
    ),
]

#: What must still be accepted: without these, a server that refuses everything would pass.
GOOD = [
    TokenCase("good: RS256", expect=ACCEPTED),
    TokenCase("good: PS256", key="ps", expect=ACCEPTED),
    TokenCase("good: ES256", key="es", expect=ACCEPTED),
    TokenCase("good: EdDSA", key="ed", expect=ACCEPTED),
    TokenCase("good: aud a list with ours", claims={"aud": ["https://other.test", AUDIENCE]}, expect=ACCEPTED),
    TokenCase("good: more scopes", claims={"scope": "admin notes notes.write"}, expect=ACCEPTED),
    TokenCase("good: unknown header and claims", header={"x": 1}, claims={"y": {"z": [1]}}, expect=ACCEPTED),
]


def embedded_key() -> TokenCase:
    """A token that brings its own key along."""
    key = signing_key("other-rs")
    return TokenCase("jwk in the header", header={"jwk": public_jwk(key.key, kid="rs-1", alg="RS256")}, key="other-rs")


def cases() -> list[TokenCase]:
    """Return all cases."""
    return [*ALGORITHMS, *SIGNATURES, *SHAPES, *HEADERS, embedded_key(), *CLAIMS, *GOOD]
