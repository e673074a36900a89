"""Makes JSON Web Keys and tokens, also such as no library would make. Uses cryptography only, nothing of gemel."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

Json: TypeAlias = dict[str, Any]
PrivateKey: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

#: Stands for a member that is left out.
ABSENT: Final[Any] = object()

_HASHES: Final[dict[str, hashes.HashAlgorithm]] = {
    "1": hashes.SHA1(),  # of no algorithm that may be accepted
    "256": hashes.SHA256(),
    "384": hashes.SHA384(),
    "512": hashes.SHA512(),
}


def encode(data: bytes | str) -> str:
    """Return base64url without padding."""
    return base64.urlsafe_b64encode(data.encode() if isinstance(data, str) else data).decode().rstrip("=")


def dump(value: object) -> str:
    """Return a JSON text; a text stays as it is."""
    return value if isinstance(value, str) else json.dumps(value)


def changed(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Json:
    """Return a copy with members changed, or left out where they are ABSENT."""
    return {name: value for name, value in {**base, **changes}.items() if value is not ABSENT}


def public_jwk(key: PrivateKey, **members: Any) -> Json:
    """Return the public key as a JSON Web Key with further members."""
    numbers: Json
    if isinstance(key, rsa.RSAPrivateKey):
        public = key.public_key().public_numbers()
        numbers = {"kty": "RSA", "n": _number(public.n), "e": _number(public.e)}
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        point = key.public_key().public_numbers()
        size = (key.key_size + 7) // 8
        curve = {256: "P-256", 384: "P-384", 521: "P-521"}[key.key_size]
        numbers = {"kty": "EC", "crv": curve, "x": _number(point.x, size), "y": _number(point.y, size)}
    else:
        raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        numbers = {"kty": "OKP", "crv": "Ed25519", "x": encode(raw)}
    return {**numbers, **members}


def private_jwk(key: ec.EllipticCurvePrivateKey, **members: Any) -> Json:
    """Return the private key as a JSON Web Key."""
    value = key.private_numbers().private_value
    return {**public_jwk(key, **members), "d": _number(value, (key.key_size + 7) // 8)}


def thumbprint(jwk: Mapping[str, Any]) -> str:
    """Return the thumbprint of a public key (RFC 7638)."""
    members = {"RSA": ("e", "kty", "n"), "EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x")}[jwk["kty"]]
    text = json.dumps({name: jwk[name] for name in sorted(members)}, separators=(",", ":"))
    return encode(hashlib.sha256(text.encode()).digest())


def public_pem(key: PrivateKey) -> bytes:
    """Return the public key as PEM: the text that servers confuse with a secret."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def public_der(key: PrivateKey) -> bytes:
    """Return the public key as DER."""
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def sign(key: PrivateKey | bytes, algorithm: str, data: bytes) -> bytes:
    """Return the signature of the data by a JOSE algorithm."""
    bits = algorithm[2:]
    if isinstance(key, bytes):
        return hmac.new(key, data, f"sha{bits}").digest()
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(data)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        size = (key.key_size + 7) // 8
        return b"".join(number.to_bytes(size, "big") for number in decode_dss_signature(der_signature(key, data, bits)))
    method = padding.PSS(padding.MGF1(_HASHES[bits]), padding.PSS.DIGEST_LENGTH)
    return key.sign(data, method if algorithm.startswith("PS") else padding.PKCS1v15(), _HASHES[bits])


def der_signature(key: ec.EllipticCurvePrivateKey, data: bytes, bits: str = "256") -> bytes:
    """Return an ECDSA signature in the form of X.509, which JOSE does not use."""
    return key.sign(data, ec.ECDSA(_HASHES[bits]))


def make_token(header: object, claims: object, key: PrivateKey | bytes, algorithm: str) -> str:
    """Return a signed token: header and claims are objects, or the texts themselves."""
    content = f"{encode(dump(header))}.{encode(dump(claims))}"
    return f"{content}.{encode(sign(key, algorithm, content.encode()))}"


def _number(value: int, size: int | None = None) -> str:
    return encode(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))
