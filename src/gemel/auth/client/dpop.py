"""DPoP (RFC 9449): tokens bound to a key of the client, a fresh proof for each request, and the nonces of servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from gemel.auth.challenge import parse_challenges
from gemel.auth.client.token_request import Proof
from gemel.auth.client.tokens import Tokens
from gemel.auth.jose import WebKey, dpop_proof, generate_key, import_key, load_joserfc, private_jwk, read_claims
from gemel.errors import AuthorizationFailed, HttpStatus
from gemel.http1.client.wire import HeaderPairs

#: Servers whose nonces are remembered, and the longest nonce.
MAX_NONCES = 32
MAX_NONCE = 1024


class DPoP:
    """A key, and the newest nonce of each server.

    Args:
        key: The private key; by default a new one is made when it is needed.
        algorithm: The algorithm of a new key, "ES256" by default: one that the authorization server supports.

    Raises:
        StartError: The extra `gemel[auth]` is not installed.
        ValueError: The key is malformed.
    """

    def __init__(self, key: WebKey | Mapping[str, Any] | str | None = None, *, algorithm: str = "ES256") -> None:
        load_joserfc()
        if isinstance(key, Mapping | str):
            key = import_key(key)
        self._key: WebKey | None = key
        self._is_fixed = key is not None
        #: The stored form of the key, if it was read.
        self._stored: Any = None
        self._algorithm = algorithm
        self._nonces: dict[str, str] = {}

    def __repr__(self) -> str:
        """Nothing of the key."""
        return "<DPoP>"

    @property
    def key(self) -> WebKey:
        """The private key."""
        if self._key is None:
            self._key = generate_key(self._algorithm)
        return self._key

    def copy(self) -> DPoP:
        """Return an object for another login: with the same key only if it was given."""
        copied = DPoP(algorithm=self._algorithm)
        copied._key = self._key if self._is_fixed else None
        copied._is_fixed = self._is_fixed
        return copied

    def stored_key(self) -> dict[str, Any]:
        """Return the private key as a JSON Web Key, to be stored with the tokens that are bound to it."""
        return private_jwk(self.key)

    def use(self, stored: Any) -> None:
        """Use the key that stored tokens are bound to.

        Args:
            stored: What `stored_key` returned; None for tokens that came without a key.

        Raises:
            AuthorizationFailed: It is not a key.
        """
        if stored is None or stored is self._stored or self._is_fixed:
            return
        try:
            self._key, self._stored = import_key(stored), stored
        except (TypeError, ValueError):
            raise AuthorizationFailed("The key of the stored login can't be read: log in again") from None

    def header(self, method: str, url: str, *, access_token: str | None = None) -> tuple[str, str]:
        """Return the header that proves the possession of the key for one request.

        Args:
            method: The HTTP method.
            url: The URL of the request.
            access_token: The token that the request carries; None at the token endpoint.

        Returns:
            The header `DPoP`.
        """
        nonce = self._nonces.get(_origin(url))
        return "DPoP", dpop_proof(self.key, method, url, nonce=nonce, access_token=access_token)

    def take_nonce(self, url: str, headers: Mapping[str, str]) -> bool:
        """Remember the nonce of a response, for the next request to its server.

        Args:
            url: The URL of the request.
            headers: The headers of the response, with lower-case names.

        Returns:
            Whether there is a nonce that the last request did not have, so that a refused request may be repeated.
        """
        nonce = headers.get("dpop-nonce", "")
        if not 0 < len(nonce) <= MAX_NONCE or not nonce.isascii() or not nonce.isprintable() or " " in nonce:
            return False
        origin = _origin(url)
        is_new = self._nonces.pop(origin, None) != nonce
        self._nonces[origin] = nonce
        if len(self._nonces) > MAX_NONCES:
            del self._nonces[next(iter(self._nonces))]
        return is_new


def authorization(tokens: Tokens, proof: DPoP | None, method: str, url: str) -> HeaderPairs:
    """Return the headers that authorize a request.

    Args:
        tokens: The tokens.
        proof: The key that they may be bound to.
        method: The HTTP method.
        url: The URL.
    """
    pairs = [("Authorization", f"{tokens.token_type} {tokens.access_token}")]
    if proof is not None and tokens.token_type == "DPoP":
        proof.use(tokens.client.get("dpop_key"))
        pairs.append(proof.header(method, url, access_token=tokens.access_token))
    return pairs


def needs_nonce(proof: Proof | None, url: str, refusal: HttpStatus, sent: HeaderPairs) -> bool:
    """Return whether a refused request is to be repeated with the nonce of the refusal (RFC 9449 §9).

    Args:
        proof: What binds tokens to a key, which remembers the nonce.
        url: The URL of the request.
        refusal: The refusal.
        sent: The headers that authorized the request, with its proof: others may have got the same nonce meanwhile.
    """
    if proof is None or "dpop-nonce" not in refusal.headers:
        return False
    proof.take_nonce(url, refusal.headers)
    challenges = parse_challenges(refusal.headers.get("www-authenticate", ""))
    if not any(challenge.parameters.get("error") == "use_dpop_nonce" for challenge in challenges):
        return False
    proofs = [value for name, value in sent if name.lower() == "dpop"]
    return bool(proofs) and read_claims(proofs[0]).get("nonce") != refusal.headers["dpop-nonce"]


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()
