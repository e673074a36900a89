"""Access tokens that are JSON Web Tokens (RFC 9068): verified here, with the keys of their issuer."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final, Unpack

from gemel.auth.jose import HMAC_ALGORITHMS, KeyUnknown, TokenInvalid, load_joserfc, read_claims, verify_jwt
from gemel.auth.server.jwks import Keys, keys_of
from gemel.auth.server.options import (
    JWTAuthOptions,
    check_audience,
    check_issuers,
    protected_options,
    public_url,
)
from gemel.auth.server.resource import TokenAuth
from gemel.errors import DefinitionError, shorten
from gemel.options import accepts, resolve
from gemel.protocol.http.request import Principal

#: Types of tokens that may be access tokens (RFC 9068 §2.1); many authorization servers write "JWT" or nothing. Proofs,
#: assertions, logout and event tokens have others.
_TYPES: Final = ("", "jwt", "at+jwt")


class JWTAuth(TokenAuth):
    """Protects a server with access tokens that are JSON Web Tokens of an authorization server.

    A token must be signed by the issuer with a key of its key set, be meant for this server (`aud`), be valid now (`exp`, `nbf`)
    and have the required scopes (`scope` or `scp`). The principal is `sub`, with several issuers "issuer sub".

    Args:
        options: See `JWTAuthOptions`; `issuer` and `audience` are needed.

    Raises:
        DefinitionError: An option is missing, unknown or has a value that it doesn't take.
        StartError: The extra `gemel[auth]` is not installed.

    Example:
        ```python
        auth = JWTAuth(issuer="https://login.example.com", audience="https://notes.example.com/mcp")
        server = Server("notes", auth=auth)
        ```

    Specification: basic/authorization, "Token Handling"; RFC 9068, RFC 8725.
    """

    @accepts(JWTAuthOptions)
    def __init__(self, **options: Unpack[JWTAuthOptions]) -> None:
        load_joserfc()
        settings = resolve(JWTAuthOptions, options, "JWTAuth")
        issuers = check_issuers("JWTAuth", settings["issuer"])
        self._audience = frozenset(check_audience("JWTAuth", settings["audience"]))
        self._algorithms = frozenset(settings["algorithms"])
        self._leeway = settings["leeway"]
        self._keys = _keys_by_issuer(issuers, settings["keys"])
        _check_secrets(settings["keys"], self._algorithms)
        resource = settings["resource"] or public_url(check_audience("JWTAuth", settings["audience"]))
        super().__init__(
            self._verify_jwt,
            **protected_options(settings, resource),
            authorization_servers=issuers,
            remember=None,
        )
        for issuer, keys in self._keys.items():
            keys.on_withdrawal = partial(self.forget, partial(_is_of, issuer))

    def _remember_until(self, caller: Principal) -> float | None:
        """Until the token expires, or until the keys of its issuer are loaded again: one may have been withdrawn."""
        left = self._keys[caller.claims["iss"]].seconds_left()
        return caller.expires if left is None else min(time.time() + left, caller.expires or math.inf)

    async def _verify_jwt(self, token: str) -> Principal:
        issuer = read_claims(token).get("iss")  # not verified yet: it only says whose keys to take
        keys = self._keys.get(issuer) if isinstance(issuer, str) else None
        if keys is None:
            raise TokenInvalid("the token is from another issuer")
        current = await keys.current()
        try:
            _, claims = verify_jwt(token, current, algorithms=self._algorithms, typ=_TYPES)
        except KeyUnknown:
            newer = await keys.newer(current)
            if newer is None:
                raise
            _, claims = verify_jwt(token, newer, algorithms=self._algorithms, typ=_TYPES)
        if claims.get("iss") != issuer:
            raise TokenInvalid("the token is from another issuer")
        expires = check_claims(claims, self._audience, self._leeway)
        return principal_of(claims, expires, issuer=str(issuer) if len(self._keys) > 1 else None)


def _is_of(issuer: str, caller: Principal) -> bool:
    return caller.claims.get("iss") == issuer


def _keys_by_issuer(issuers: list[str], source: Any) -> dict[str, Keys]:
    if isinstance(source, Mapping) and "keys" not in source and "kty" not in source:
        unknown = set(source) - set(issuers)
        if unknown:
            raise DefinitionError(f"keys=… names {shorten(repr(sorted(map(str, unknown))[0]))}, which is not an issuer")
        return {issuer: keys_of(issuer, source.get(issuer)) for issuer in issuers}
    if source is not None and len(issuers) > 1:
        raise DefinitionError("keys=… with several issuers: write keys={issuer: …}, so that none signs for another")
    return {issuer: keys_of(issuer, source) for issuer in issuers}


def check_claims(claims: Mapping[str, Any], audience: Collection[str], leeway: float) -> float:
    """Check what a token says of its time and its audience.

    Args:
        claims: The claims of the token, or the answer of an introspection.
        audience: What names this server; one of them must be in `aud`, a text or a list of texts.
        leeway: Seconds that clocks may differ.

    Returns:
        When it expires, in seconds since 1970, with the leeway.

    Raises:
        TokenInvalid: It has expired, is not valid yet, or is for another server.
    """
    named = claims.get("aud")
    audiences = [named] if isinstance(named, str) else named
    if not isinstance(audiences, list) or not any(isinstance(each, str) and each in audience for each in audiences):
        raise TokenInvalid("the token was issued for another audience")
    now = time.time()
    expires = _seconds(claims, "exp")
    if expires is None:
        raise TokenInvalid("the token does not say when it expires")
    if now >= expires + leeway:
        raise TokenInvalid("the token has expired")
    not_before = _seconds(claims, "nbf")
    if not_before is not None and now < not_before - leeway:
        raise TokenInvalid("the token is not valid yet")
    return expires + leeway


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e15:
        raise TokenInvalid(f"the token's {name} is not a time")
    return float(value)


def principal_of(claims: Mapping[str, Any], expires: float | None, *, issuer: str | None) -> Principal:
    """Tell whom a token is for.

    Args:
        claims: Its claims.
        expires: When it expires.
        issuer: The issuer, if there are several: two may have the same subject.

    Returns:
        The caller. A token without a subject, or whose subject is its client (RFC 9068 §2.2), is that of a client: "client ID".
        A subject that looks like such a name gets "subject " in front: no client has the name of a user (RFC 9068 §5).

    Raises:
        TokenInvalid: It names neither a subject nor a client.
    """
    client = next((value for name in ("client_id", "azp", "cid", "appid") if (value := claims.get(name))), None)
    if client is not None and not isinstance(client, str):
        raise TokenInvalid("the token's client is not a text")
    subject = claims.get("sub")
    if client is not None and subject in (None, client):
        name = f"client {client}"
    elif not isinstance(subject, str) or not subject:
        raise TokenInvalid("the token names no subject")
    else:
        name = f"subject {subject}" if subject.startswith(("client ", "subject ")) else subject
    if issuer is not None:
        name = f"{issuer} {name}"
    return Principal(name, scopes_of(claims), claims, expires, client)


def scopes_of(claims: Mapping[str, Any]) -> frozenset[str]:
    """Read the scopes of a token: `scope` separated by blanks, or a list; `scp` of some authorization servers."""
    granted: set[str] = set()
    for name in ("scope", "scp"):
        value = claims.get(name)
        if isinstance(value, str):
            granted.update(value.split(" "))
        elif isinstance(value, list):
            granted.update(each for each in value if isinstance(each, str))
    return frozenset(granted - {""})


def _check_secrets(source: object, algorithms: frozenset[str]) -> None:
    """HMAC needs a secret that this program was given; a fetched one would be public."""
    fetched = source is None or (isinstance(source, str) and "://" in source)
    if algorithms & HMAC_ALGORITHMS and fetched:
        raise DefinitionError("HS algorithms need the secret: keys={'kty': 'oct', 'k': …} as a JSON Web Key")
