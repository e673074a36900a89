"""JSON Web Tokens and Keys: verify, sign, DPoP proofs. The only file that uses joserfc (extra `gemel[auth]`).

Tokens are split and bounded here; joserfc reads keys and computes signatures. Whether the claims of a token permit something
is for the caller to judge.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from gemel.errors import GemelError, StartError
from gemel.version import missing_extra

#: Bytes of a token; a longer one is refused before it is parsed.
MAX_TOKEN: Final = 16 * 1024
#: Bytes of the header of a token, decoded.
MAX_HEADER: Final = 4 * 1024
#: Keys in one set; those after it are ignored.
MAX_KEYS: Final = 64
#: Keys that are tried for a token that doesn't name its key.
_TRIES: Final = 4
#: Bytes of one JSON Web Key: a private RSA key of 8192 bits has some 6,500.
_MAX_KEY: Final = 16 * 1024
#: Bits of an RSA modulus. Smaller ones are broken, larger ones slow.
_RSA_BITS: Final = range(2048, 8193)
_MAX_RSA_EXPONENT: Final = 2**32
#: Characters of the longest text in a key: an RSA modulus of 8192 bits as base64url, or a certificate.
_MAX_MEMBER: Final = 4096
#: Bytes of a secret (RFC 7518 §3.2: at least as long as the hash).
_MIN_SECRET: Final = 32

#: Signature algorithms with public keys. Those of HMAC have to be asked for by name.
ALGORITHMS: Final = frozenset(
    "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA Ed25519 Ed448".split()  # noqa: SIM905
)
HMAC_ALGORITHMS: Final = frozenset({"HS256", "HS384", "HS512"})
#: What `generate_key` and `sign_jwt` do without a word about the algorithm.
_BY_TYPE: Final = {"RSA": "RS256", "OKP": "EdDSA", "oct": "HS256"}
_BY_CURVE: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}

#: Members of a JSON Web Key that are private (RFC 7518 §6), except of secrets.
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth"})
_COMPACT = re.compile(rb"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")


class TokenInvalid(GemelError):
    """A token is not accepted; the text says why and holds nothing of the token.

    Args:
        reason: Why, for `error_description` and the log.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class KeyUnknown(TokenInvalid):
    """A token names a key, or needs a kind of key, that is not in the set: it may have been added since."""


class WebKey:
    """A key, public, private or secret. Neither `repr` nor an error shows more of it than its id.

    Attributes:
        kid: The key's id, None if it has none.
        private: Whether it can sign.
        algorithms: The algorithms that it can be used with.
    """

    __slots__ = ("algorithms", "kid", "material", "private")

    def __init__(self, material: Any) -> None:  # a key of joserfc
        self.material = material
        self.kid = material.kid
        self.private = bool(material.is_private)
        self.algorithms = frozenset(name for name in ALGORITHMS | HMAC_ALGORITHMS if _fits(material, name))

    def __repr__(self) -> str:
        """The id and the type only."""
        return f"<WebKey {self.material.key_type} {self.kid!r}>"


# ---------------------------------------------------------------- keys


def import_key(data: Mapping[str, Any] | str | bytes) -> WebKey:
    """Read a key.

    Args:
        data: A JSON Web Key as a mapping, or an RSA, EC or Ed25519 key as PEM text.

    Returns:
        The key.

    Raises:
        ValueError: The key is malformed, too small, too large, or of an unknown type.
        StartError: joserfc is not installed.
    """
    jwk = load_joserfc()
    try:
        # joserfc warns of small keys, which are refused below.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _check_size(data)
            material = jwk.JWKRegistry.import_key(dict(data)) if isinstance(data, Mapping) else jwk.import_key(data)
        if material.key_type == "oct" and not isinstance(data, Mapping):
            raise _KeyRefused("it is not PEM text")  # joserfc takes what it can't read for a secret
        _check_strength(material)
        return WebKey(material)
    except _KeyRefused as exc:
        raise ValueError(f"not a usable key: {exc}") from None
    except Exception as exc:  # of many kinds, whose texts may show parts of the key
        raise ValueError(f"not a usable key: {type(exc).__name__}") from None


def import_public_key(data: object) -> WebKey:
    """Read a public key that a peer has sent as a JSON Web Key, such as the `jwk` of a DPoP proof.

    Args:
        data: What the peer sent.

    Returns:
        The key.

    Raises:
        ValueError: It is malformed, a secret, or holds private parts.
    """
    if not isinstance(data, Mapping) or data.get("kty") == "oct" or not _PRIVATE.isdisjoint(data):
        raise ValueError("not a usable key: it isn't a public key")
    return import_key(data)


def import_keys(document: object) -> list[WebKey]:
    """Read a JSON Web Key Set.

    Keys of unknown types, malformed keys and those that don't verify signatures are skipped (RFC 7517 §5), so that one new
    kind of key does not lock everybody out. Private parts are not read.

    Args:
        document: The set: `{"keys": […]}`.

    Returns:
        The usable keys, at most 64.

    Raises:
        ValueError: It isn't a key set.
    """
    entries: Any = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(entries, list):
        raise ValueError('a key set is an object with a list "keys"')
    keys = []
    for entry in entries[:MAX_KEYS]:
        if not isinstance(entry, Mapping):
            continue
        public = {name: value for name, value in entry.items() if name not in _PRIVATE and value is not None}
        try:
            key = import_key(public)
        except ValueError:
            continue
        if key.algorithms:
            keys.append(key)
    return keys


def generate_key(algorithm: str = "ES256", *, kid: str | None = None) -> WebKey:
    """Make a private key.

    Args:
        algorithm: The signature algorithm, such as "ES256", "EdDSA" or "RS256".
        kid: Its id; by default its thumbprint.

    Returns:
        The key.

    Raises:
        ValueError: The algorithm is unknown.
    """
    jwk = load_joserfc()
    curves = {name: curve for curve, name in _BY_CURVE.items()} | {"EdDSA": "Ed25519"}
    if algorithm in ("EdDSA", "Ed25519", "Ed448"):
        material = jwk.OKPKey.generate_key(curves.get(algorithm, algorithm))
    elif algorithm in curves:
        material = jwk.ECKey.generate_key(curves[algorithm])
    elif algorithm in ALGORITHMS:
        material = jwk.RSAKey.generate_key(2048)
    elif algorithm in HMAC_ALGORITHMS:
        material = jwk.OctKey.generate_key(512)
    else:
        raise ValueError(f"unknown algorithm {algorithm[:20]!r}")
    parameters = {"alg": algorithm, "use": "sig", "kid": kid or material.thumbprint()}
    return import_key({**material.as_dict(private=True), **parameters})


def public_jwk(key: WebKey) -> dict[str, Any]:
    """Return the public part as a JSON Web Key, with its id, for a key set or a DPoP proof.

    Raises:
        ValueError: The key is a secret, which has no public part.
    """
    if key.material.key_type == "oct":
        raise ValueError("a secret has no public part")
    return dict(key.material.as_dict(private=False))


def private_jwk(key: WebKey) -> dict[str, Any]:
    """Return the whole key as a JSON Web Key, to be stored encrypted.

    Raises:
        ValueError: It is a public key.
    """
    return dict(key.material.as_dict(private=True))


def thumbprint(key: WebKey) -> str:
    """Return the SHA-256 thumbprint of a key (RFC 7638), which DPoP binds tokens to as `jkt`."""
    return str(key.material.thumbprint())


# ---------------------------------------------------------------- tokens


def read_header(token: str | bytes) -> dict[str, Any]:
    """Read the header of a token, before anything is verified: which key and algorithm it claims.

    Raises:
        TokenInvalid: It is not a signed token, or too large.
    """
    return _split(token)[0]


def read_claims(token: str | bytes) -> dict[str, Any]:
    """Read the claims of a token *without verifying it*: to see which issuer's keys to verify it with.

    Raises:
        TokenInvalid: It is not a signed token, or too large.
    """
    return _json_object(_split(token)[2], "claims")


def verify_jwt(
    token: str | bytes,
    keys: WebKey | Sequence[WebKey],
    *,
    algorithms: Collection[str] = ALGORITHMS,
    typ: str | Collection[str] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Verify the signature of a token (RFC 7515, RFC 8725). The claims are the caller's to check.

    A token that names a key (`kid`) is verified with that key alone. The header never brings a key of its own (`jwk`, `jku`,
    `x5c`), and a header with critical extensions is refused.

    Args:
        token: The token in its compact form.
        keys: The keys that may have signed it.
        algorithms: The algorithms that are accepted; by default all with public keys.
        typ: The types that are accepted, in any case and with or without "application/"; "" for a token without one. None
            accepts any type.

    Returns:
        The header and the claims.

    Raises:
        KeyUnknown: No key of the set has the id that the token names, or fits its algorithm.
        TokenInvalid: The token is malformed, of another type, uses another algorithm, or its signature is wrong.
    """
    header, signed, payload, signature = _split(token)
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise TokenInvalid("the token's signature algorithm is not accepted")
    if "crit" in header or "b64" in header:
        raise TokenInvalid("the token needs extensions that are not supported")
    if typ is not None:
        _check_type(header.get("typ", ""), (typ,) if isinstance(typ, str) else typ)
    kid = header.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise TokenInvalid("the token's key id is not a text")
    candidates = [
        key
        for key in ((keys,) if isinstance(keys, WebKey) else keys)
        if algorithm in key.algorithms and (kid is None or key.kid is None or key.kid == kid)
    ]
    if kid is not None and any(key.kid == kid for key in candidates):
        candidates = [key for key in candidates if key.kid == kid]
    if not candidates:
        raise KeyUnknown("the token is signed with an unknown key")
    model = _algorithm(algorithm)
    for key in candidates[:_TRIES]:
        if _verifies(model, signed, signature, key.material):
            return header, _json_object(payload, "claims")
    raise TokenInvalid("the token's signature is wrong")


def sign_jwt(claims: Mapping[str, Any], key: WebKey, *, header: Mapping[str, Any] | None = None) -> str:
    """Sign a token.

    Args:
        claims: Its claims.
        key: A private key or a secret.
        header: Members of the header, over `typ` "JWT", the `kid` of the key and its `alg`.

    Returns:
        The token in its compact form.

    Raises:
        ValueError: The key can't sign, or not with this algorithm.
    """
    material = key.material
    algorithm = material.alg or _BY_CURVE.get(str(material.get("crv"))) or _BY_TYPE[material.key_type]
    members = {"alg": algorithm, "typ": "JWT", "kid": key.kid, **(header or {})}
    algorithm = str(members["alg"])
    if not key.private or algorithm not in key.algorithms:
        raise ValueError(f"{key!r} can't sign with {algorithm}")
    encoded = {name: value for name, value in members.items() if value is not None}
    signed = _encode(msgspec.json.encode(encoded)) + b"." + _encode(msgspec.json.encode(dict(claims)))
    return (signed + b"." + _encode(_algorithm(algorithm).sign(signed, material))).decode()


def dpop_proof(key: WebKey, method: str, url: str, *, nonce: str | None = None, access_token: str | None = None) -> str:
    """Make a DPoP proof for one request (RFC 9449 §4.2).

    Args:
        key: The private key that the access token is bound to.
        method: The HTTP method.
        url: The URL of the request; its query and fragment are left out.
        nonce: What the server asked for with `DPoP-Nonce`.
        access_token: The token that the request carries; None at the token endpoint.

    Returns:
        The value of the header `DPoP`.

    Raises:
        ValueError: The key can't sign.
    """
    claims: dict[str, Any] = {
        "jti": secrets.token_urlsafe(16),
        "htm": method.upper(),
        "htu": urlsplit(url)._replace(query="", fragment="").geturl(),
        "iat": int(time.time()),
    }
    if nonce is not None:
        claims["nonce"] = nonce
    if access_token is not None:
        claims["ath"] = token_hash(access_token)
    public = {name: value for name, value in public_jwk(key).items() if name in ("kty", "crv", "x", "y", "n", "e")}
    return sign_jwt(claims, key, header={"typ": "dpop+jwt", "jwk": public, "kid": None})


def token_hash(token: str) -> str:
    """Return the hash of a token as base64url, the `ath` of DPoP (RFC 9449 §4.2)."""
    return _encode(sha256(token.encode()).digest()).decode()


# ---------------------------------------------------------------- parts


def _split(token: str | bytes) -> tuple[dict[str, Any], bytes, bytes, bytes]:
    """Split a token: header, what is signed, payload, signature. Refuses what is too large before it looks at it."""
    if len(token) > MAX_TOKEN:
        raise TokenInvalid("the token is too large")
    try:
        text = token.encode("ascii") if isinstance(token, str) else token
    except UnicodeEncodeError:
        raise TokenInvalid("the token is malformed") from None
    match = _COMPACT.fullmatch(text)
    if match is None:
        raise TokenInvalid("the token is malformed")
    head, payload, signature = match.groups()
    if len(head) > MAX_HEADER * 4 // 3:
        raise TokenInvalid("the token's header is too large")
    header = _json_object(_decode(head), "header")
    return header, text[: match.end(2)], _decode(payload), _decode(signature)


def _json_object(data: bytes, part: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise TokenInvalid(f"the token's {part} can't be read") from None


def _decode(part: bytes) -> bytes:
    """Decode base64url in its one canonical form: other spellings of a token would be other tokens."""
    try:
        data = base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))
    except binascii.Error:
        raise TokenInvalid("the token is malformed") from None
    if _encode(data) != part:
        raise TokenInvalid("the token is malformed")
    return data


def _encode(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _check_type(value: object, accepted: Collection[str]) -> None:
    name = value.lower().removeprefix("application/") if isinstance(value, str) else None
    if name not in {each.lower().removeprefix("application/") for each in accepted}:
        raise TokenInvalid("the token is of another type")


# ---------------------------------------------------------------- joserfc


def load_joserfc() -> Any:
    """Import joserfc. What needs it later calls this when it is made, so that a server without it does not start.

    Returns:
        `joserfc.jwk`.

    Raises:
        StartError: It is not installed.
    """
    try:
        from joserfc import jwk
    except ImportError:
        raise StartError(missing_extra("JSON Web Tokens need", "auth")) from None
    return jwk


def _algorithm(name: str) -> Any:
    load_joserfc()
    from joserfc.jws import JWSRegistry

    return JWSRegistry.algorithms[name]


def _fits(material: Any, name: str) -> bool:
    """Whether a key can be used with an algorithm: by type, curve, `use`, `alg`, `key_ops`."""
    try:
        _algorithm(name).check_key(material)
        material.check_key_op("sign" if material.is_private else "verify")
    except Exception:
        return False
    return True


def _verifies(model: Any, signed: bytes, signature: bytes, material: Any) -> bool:
    try:
        return bool(model.verify(signed, signature, material))
    except Exception:  # a signature or a key that cryptography can't read
        return False


class _KeyRefused(Exception):
    """A key is refused; the text shows nothing of it."""


def _check_size(data: Mapping[str, Any] | str | bytes) -> None:
    """Refuse what would be slow to read. Arithmetic with an RSA modulus of 100,000 bits takes seconds."""
    if isinstance(data, Mapping):
        modulus = data.get("n")
        if isinstance(modulus, str) and len(modulus) > _RSA_BITS.stop // 6 + 4:
            raise _KeyRefused("it is too large")
        texts = [item for item in data.values() if isinstance(item, str)]
        if len(data) > 32 or any(len(text) > _MAX_MEMBER for text in texts):
            raise _KeyRefused("it is too large")
    elif len(data) > _MAX_KEY:
        raise _KeyRefused("it is too large")


def _check_strength(material: Any) -> None:
    if material.key_type == "RSA":
        numbers = material.public_key.public_numbers()
        if numbers.n.bit_length() not in _RSA_BITS or numbers.e >= _MAX_RSA_EXPONENT:
            raise _KeyRefused("an RSA key has 2048 to 8192 bits and a small exponent")
    elif material.key_type == "oct" and len(material.raw_value) < _MIN_SECRET:
        raise _KeyRefused(f"a secret has at least {_MIN_SECRET} bytes")
