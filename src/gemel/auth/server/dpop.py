"""DPoP on the server (RFC 9449): proofs that the sender of a request has the key that its access token is bound to."""

from __future__ import annotations

import os
import time
from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac_digest
from typing import Any, Final, TypedDict, Unpack
from urllib.parse import urlsplit

from gemel.auth.jose import (
    ALGORITHMS,
    TokenInvalid,
    WebKey,
    import_public_key,
    load_joserfc,
    read_header,
    thumbprint,
    token_hash,
    verify_jwt,
)
from gemel.auth.server.backing import Backing
from gemel.backends import Backend, ServerBackend
from gemel.backends.keys import make_key
from gemel.errors import DefinitionError
from gemel.options import check_names
from gemel.protocol.http.request import Headers

#: Characters of a proof; a longer one is refused unread.
MAX_PROOF: Final = 8 * 1024
#: Characters of the `jti` of a proof.
_MAX_ID: Final = 512
#: Seconds that the clock of a client may be ahead.
_AHEAD: Final = 5.0
#: Seconds after which there is another nonce. The one before is accepted, too.
_NONCE_SECONDS: Final = 300
#: Keys of clients that are remembered, by the header of their proofs, which is the same on each request.
_KEYS: Final = 1024
_PORTS: Final = {"http": 80, "https": 443}


class ProofInvalid(TokenInvalid):
    """A request does not prove that its sender has the key of its token.

    Args:
        reason: What is wrong.
        error: The error code: "invalid_dpop_proof", "use_dpop_nonce" or "invalid_token".
    """

    def __init__(self, reason: str, error: str = "invalid_dpop_proof") -> None:
        super().__init__(reason)
        self.error = error


class DPoPOptions(TypedDict, total=False):
    """The options of `DPoPProofs`, all optional."""

    #: Whether tokens that are not bound to a key are refused. Default: they are accepted as bearer tokens.
    required: bool
    #: Whether proofs need a nonce of this server, so that none can be made in advance. Default: False.
    nonces: bool
    #: Secret of at least 32 bytes that nonces are made with, the same in all processes. Default: a random one.
    nonce_key: bytes | None
    #: Seconds for which a proof can be used, 1 to 3600. Default: 60.
    max_age: float
    #: Where proofs that were used are noted, so that none is used twice: a backend or its URL, the same in all processes.
    #: Default: the backend of the server if other processes share it, else this process.
    backend: Backend | str | None


class DPoPProofs:
    """Accepts access tokens that are bound to a key of the client: `JWTAuth(…, dpop=DPoPProofs())`.

    Each request with such a token (`cnf.jkt`) needs a proof for its method and URL, signed with that key, which is used once.
    A token that was stolen is of no use without the key.

    Args:
        **options: See `DPoPOptions`.

    Raises:
        DefinitionError: An option is unknown or has a value that it doesn't take.
        StartError: The extra `gemel[auth]` is not installed.

    Specification: RFC 9449.
    """

    def __init__(self, **options: Unpack[DPoPOptions]) -> None:
        load_joserfc()
        given: Any = options
        check_names(given, DPoPOptions.__annotations__, "DPoPProofs")
        key, max_age = given.get("nonce_key"), given.get("max_age", 60.0)
        if key is not None and (not isinstance(key, bytes) or len(key) < 32):
            raise DefinitionError("nonce_key is a secret of at least 32 bytes: use secrets.token_bytes(32)")
        if isinstance(max_age, bool) or not isinstance(max_age, int | float) or not 1 <= max_age <= 3600:
            raise DefinitionError(f"max_age={max_age!r} is not possible: use seconds, 1 to 3600")
        #: Whether tokens that are not bound are refused.
        self.required: bool = given.get("required", False)
        self._nonce_key = key or os.urandom(32)
        self._wants_nonces: bool = given.get("nonces", False)
        self._max_age = max_age
        self._backing = Backing(given.get("backend"))
        self._keys: dict[str, tuple[WebKey, str]] = {}

    def __repr__(self) -> str:
        """The type only: an option is secret."""
        return "<DPoPProofs>"

    def use_backend(self, backend: ServerBackend, /) -> None:
        """Note proofs under the name of the server, which calls this. The first server counts.

        Args:
            backend: That of the server.
        """
        self._backing.use_backend(backend)

    @property
    def not_shared(self) -> str:
        """The proofs that were used, without a backend."""
        return self._backing.missed_by_others("the used proofs of DPoPProofs")

    async def close(self) -> None:
        """Close the backend that was named by its URL; it is opened again when it is needed."""
        await self._backing.close()

    @property
    def algorithms(self) -> str:
        """The `algs` of a challenge: signature algorithms of proofs, separated by blanks."""
        return " ".join(sorted(ALGORITHMS))

    def nonce(self) -> str | None:
        """Return the nonce that proofs need now; None if they need none."""
        return self._nonce_of(_slot()) if self._wants_nonces else None

    async def check(
        self, headers: Headers, token: str, claims: Mapping[str, Any], method: str, urls: Collection[str]
    ) -> None:
        """Check the proof of a request whose token is valid, and note that it was used.

        Args:
            headers: The headers of the request.
            token: Its access token.
            claims: What the token says; `cnf.jkt` names its key.
            method: The HTTP method.
            urls: The URLs that the endpoint is known by.

        Raises:
            ProofInvalid: The token is not bound, there is no proof, or it is not one for this request.
            Overloaded: Too many proofs are noted already.
        """
        bound_to = bound_key(claims)
        if bound_to is None:
            raise ProofInvalid("the token is not bound to a key", "invalid_token")
        proof = headers.raw.get(b"dpop", b"").strip(b" \t").decode("latin-1")
        if not proof:
            raise ProofInvalid("the request has no proof")
        if len(proof) > MAX_PROOF:
            raise ProofInvalid("the proof is too large")
        key, print_of_key = self._key_of(proof)
        try:
            said = verify_jwt(proof, key, algorithms=ALGORITHMS, typ="dpop+jwt")[1]
        except TokenInvalid as exc:
            raise ProofInvalid(exc.reason.replace("the token", "the proof")) from None
        self._check_claims(said, token, method, urls)
        if not compare_digest(print_of_key.encode(), bound_to.encode()):
            raise ProofInvalid("the proof is signed with another key than that of the token", "invalid_token")
        used = sha256(f"{print_of_key} {said['jti']}".encode()).hexdigest()
        if not await self._backing.backend.claim(make_key("dpop", used), ttl=self._max_age + _AHEAD + 1):
            raise ProofInvalid("the proof was used already")

    def _key_of(self, proof: str) -> tuple[WebKey, str]:
        """The key that a proof brings along, with its thumbprint."""
        head = proof.partition(".")[0]
        remembered = self._keys.get(head)
        if remembered is not None:
            return remembered
        try:
            key = import_public_key(read_header(proof).get("jwk"))
        except TokenInvalid as exc:
            raise ProofInvalid(exc.reason.replace("the token", "the proof")) from None
        except ValueError:
            raise ProofInvalid("the proof has no usable public key") from None
        if len(self._keys) >= _KEYS:
            del self._keys[next(iter(self._keys))]
        self._keys[head] = key, thumbprint(key)
        return self._keys[head]

    def _check_claims(self, said: Mapping[str, Any], token: str, method: str, urls: Collection[str]) -> None:
        """Check what a proof says (RFC 9449 §4.3)."""
        issued, identity = said.get("iat"), said.get("jti")
        if not isinstance(identity, str) or not 0 < len(identity) <= _MAX_ID:
            raise ProofInvalid("the proof has no usable jti")
        if said.get("htm") != method:
            raise ProofInvalid("the proof is for another method")
        if _comparable(said.get("htu")) not in {_comparable(url) for url in urls} - {None}:
            raise ProofInvalid("the proof is for another URL")
        if said.get("ath") != token_hash(token):
            raise ProofInvalid("the proof is for another token")
        if isinstance(issued, bool) or not isinstance(issued, int | float):
            raise ProofInvalid("the proof does not say when it was made")
        if not -self._max_age <= issued - time.time() <= _AHEAD:
            raise ProofInvalid("the proof is too old, or from the future")
        if self._wants_nonces and not self._made(said.get("nonce")):
            raise ProofInvalid("the proof needs the nonce of this response", "use_dpop_nonce")

    # ---------------------------------------------------------------- nonces

    def _made(self, nonce: object) -> bool:
        """Whether a nonce is one of the last two."""
        if not isinstance(nonce, str):
            return False
        sent, now = nonce.encode(errors="replace"), _slot()
        return any(compare_digest(sent, self._nonce_of(slot).encode()) for slot in (now, now - 1))

    def _nonce_of(self, slot: int) -> str:
        mac = hmac_digest(self._nonce_key, b"gemel dpop nonce %d" % slot, "sha256")
        return urlsafe_b64encode(mac[:18]).decode()


def bound_key(claims: Mapping[str, Any]) -> str | None:
    """Return the thumbprint of the key that a token is bound to (`cnf.jkt`); None if there is none."""
    confirmation = claims.get("cnf")
    bound_to = confirmation.get("jkt") if isinstance(confirmation, Mapping) else None
    return bound_to if isinstance(bound_to, str) and bound_to else None


def _slot() -> int:
    return int(time.time()) // _NONCE_SECONDS


def _comparable(url: object) -> tuple[str, str, int | None, str] | None:
    """A URL without query and fragment, in a form to compare (RFC 9449 §4.3, RFC 3986 §6.2); None for what isn't one."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        scheme, host = parts.scheme.lower(), parts.hostname
        if not host or parts.username is not None or parts.password is not None:
            return None
        return scheme, host, parts.port or _PORTS.get(scheme), parts.path or "/"
    except ValueError:
        return None
