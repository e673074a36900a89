"""The proxy as a client of the identity provider: flows that exchange a code, refresh and revoke tokens, and read the user.

The ID token comes straight from the token endpoint over TLS, which authenticates it (OpenID Connect Core 1.0 §3.1.3.7).
"""

from __future__ import annotations

import base64
import logging
import re
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

import msgspec

from gemel.auth.client.token_request import is_success, read_answer, read_error
from gemel.auth.flow import Flow, HttpRequest, HttpResponse
from gemel.auth.jose import TokenInvalid, read_claims
from gemel.auth.metadata import AuthorizationServer, read_metadata
from gemel.auth.server.proxy.providers import Provider, accepts_issuer
from gemel.errors import AuthorizationFailed, shorten
from gemel.protocol.records import Record

logger = logging.getLogger("gemel")

#: Characters of a token of the provider.
_MAX_TOKEN: Final = 16 * 1024
#: Bytes of what is remembered of a user.
_MAX_CLAIMS: Final = 32 * 1024
#: Seconds by which the clocks of the provider and of this server may differ.
_LEEWAY: Final = 60
_JSON: Final = (("accept", "application/json"), ("user-agent", "gemel"))
#: Claims that are about the ID token, not about the user.
_TOKEN_CLAIMS: Final = frozenset({"aud", "azp", "nonce", "at_hash", "c_hash", "exp", "iat", "nbf", "jti", "auth_time"})


class UpstreamRefused(AuthorizationFailed):
    """The provider refuses the grant: the user has to log in again."""


class Endpoints(msgspec.Struct, frozen=True):
    """Where the provider is reached.

    Attributes:
        authorization: Where browsers are sent.
        token: The token endpoint.
        userinfo: Where the user is read; None if only the ID token tells.
        revocation: Where tokens are revoked; None if they can't be.
        sends_issuer: Whether each response of the authorization endpoint has `iss` (RFC 9207).
        secret_in_header: Whether the token endpoint takes secrets in the header `Authorization` only.
    """

    authorization: str
    token: str
    userinfo: str | None = None
    revocation: str | None = None
    sends_issuer: bool = False
    secret_in_header: bool = False


class UpstreamTokens(Record):
    """Tokens of the provider for one user. `expires` is in Unix seconds, None if it is unknown."""

    access: str
    refresh: str | None = None
    expires: float | None = None
    id_token: str | None = None


class _TokenResponse(msgspec.Struct):
    access_token: str | None = None
    token_type: str | None = None
    expires_in: float | str | None = None
    refresh_token: str | None = None
    id_token: str | None = None
    scope: str | None = None


def discover(provider: Provider) -> Flow[Endpoints]:
    """Find the endpoints: those that are written in the provider, the others in the metadata of its issuer.

    Args:
        provider: The provider.

    Returns:
        The endpoints.

    Raises:
        AuthorizationFailed: The metadata can't be read, is of another issuer, or lacks an endpoint.
    """
    document = AuthorizationServer(issuer=provider.issuer or "")
    if provider.issuer is not None:
        url = f"{provider.issuer.rstrip('/')}/.well-known/openid-configuration"
        response = yield HttpRequest("GET", url, _JSON)
        if response.status != 200:
            raise AuthorizationFailed(f"{provider.title} has no metadata: {url} answers {response.status}")
        try:
            document = read_metadata(response.body, AuthorizationServer)
        except ValueError as exc:
            raise AuthorizationFailed(f"{provider.title}: {exc}") from None
        issuer = document.issuer.replace("{tenantid}", "{tid}")
        if issuer not in (provider.issuer, *provider.other_issuers):
            raise AuthorizationFailed(f"{provider.title}: the metadata is of the issuer {shorten(document.issuer)!r}")
    authorization = provider.authorization_endpoint or document.authorization_endpoint
    token = provider.token_endpoint or document.token_endpoint
    if authorization is None or token is None:
        raise AuthorizationFailed(f"{provider.title}: the metadata names no authorization or token endpoint")
    methods = document.token_endpoint_auth_methods_supported or ["client_secret_post"]
    return Endpoints(
        authorization,
        token,
        provider.userinfo_endpoint or document.userinfo_endpoint,
        provider.revocation_endpoint or document.revocation_endpoint,
        bool(document.authorization_response_iss_parameter_supported),
        provider.secret_in == "header" or "client_secret_post" not in methods,
    )


def exchange_code(
    provider: Provider,
    endpoints: Endpoints,
    code: str,
    verifier: str,
    redirect_uri: str,
    *,
    granted: Collection[str] = (),
) -> Flow[UpstreamTokens]:
    """Exchange a code of the provider for its tokens.

    Args:
        provider: The provider.
        endpoints: Its endpoints.
        code: The code.
        verifier: The PKCE verifier of the authorization request.
        redirect_uri: The redirect URI of the authorization request.
        granted: Scopes that the tokens must have.

    Returns:
        The tokens.

    Raises:
        UpstreamRefused: The provider does not accept the code, or the tokens lack one of the scopes.
        AuthorizationFailed: The provider can't be reached, or its answer can't be used.
    """
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
    if provider.pkce:
        form["code_verifier"] = verifier
    response = yield _token_request(provider, endpoints, endpoints.token, form)
    return _read_tokens(provider, response, [code, verifier, provider.client_secret or ""], granted)


def refresh_tokens(
    provider: Provider, endpoints: Endpoints, tokens: UpstreamTokens, *, granted: Collection[str] = ()
) -> Flow[UpstreamTokens]:
    """Get new tokens of the provider.

    Args:
        provider: The provider.
        endpoints: Its endpoints.
        tokens: Tokens with a refresh token.
        granted: Scopes that the new tokens must have.

    Returns:
        The new tokens, with the old refresh token if the provider sends no other.

    Raises:
        UpstreamRefused: The provider does not accept the refresh token, or the new tokens lack one of the scopes.
        AuthorizationFailed: The provider can't be reached, or its answer can't be used.
    """
    if tokens.refresh is None:
        raise UpstreamRefused(f"{provider.title} gave no refresh token")
    form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh}
    response = yield _token_request(provider, endpoints, endpoints.token, form)
    renewed = _read_tokens(provider, response, [tokens.refresh, provider.client_secret or ""], granted)
    if renewed.refresh is None:
        renewed.refresh = tokens.refresh
    return renewed


def revoke_tokens(provider: Provider, endpoints: Endpoints, tokens: UpstreamTokens) -> Flow[None]:
    """Tell the provider that its tokens are not needed any more (RFC 7009). Does nothing if it has no such endpoint.

    Args:
        provider: The provider.
        endpoints: Its endpoints.
        tokens: The tokens.

    Raises:
        AuthorizationFailed: The provider can't be reached.
    """
    if endpoints.revocation is not None:
        hint = "access_token" if tokens.refresh is None else "refresh_token"
        form = {"token": tokens.refresh or tokens.access, "token_type_hint": hint}
        yield _token_request(provider, endpoints, endpoints.revocation, form)


def read_user(provider: Provider, endpoints: Endpoints, tokens: UpstreamTokens, nonce: str) -> Flow[dict[str, Any]]:
    """Read who has logged in: from the ID token, or from the userinfo endpoint of a provider without ID tokens.

    Args:
        provider: The provider.
        endpoints: Its endpoints.
        tokens: The tokens of the login.
        nonce: The `nonce` of the authorization request.

    Returns:
        Claims about the user; the one that identifies the user is at `sub` as text.

    Raises:
        AuthorizationFailed: The provider does not say who it is, or the ID token is for another client or login.
    """
    if provider.issuer is not None and tokens.id_token is not None:
        claims = _read_id_token(provider, tokens.id_token, nonce)
    elif endpoints.userinfo is not None:
        headers = (*_JSON, ("authorization", f"Bearer {tokens.access}"))
        response = yield HttpRequest("GET", endpoints.userinfo, headers)
        claims = _read_userinfo(provider, response)
    else:
        raise AuthorizationFailed(f"{provider.title} sent no ID token: the scope openid is needed")
    return _about_user(provider, claims)


def renew_claims(provider: Provider, claims: dict[str, Any], id_token: str) -> dict[str, Any]:
    """Take newer claims from an ID token that came with renewed tokens (OpenID Connect Core 1.0 §12.2).

    Args:
        provider: The provider.
        claims: What is known of the user. It stays where the ID token says nothing, or can't be used.
        id_token: The ID token.

    Returns:
        The claims.

    Raises:
        UpstreamRefused: It is about another user.
    """
    try:
        newer = _about_user(provider, _read_id_token(provider, id_token, None))
    except AuthorizationFailed as exc:
        logger.warning("what is known of a user stays as it is: %s", exc)
        return claims
    if newer["sub"] != claims["sub"]:
        raise UpstreamRefused(f"{provider.title} renewed the login of another user")
    return claims | newer


def _about_user(provider: Provider, claims: dict[str, Any]) -> dict[str, Any]:
    """The claims about a user, without those about the token, with the subject at `sub`."""
    subject = claims.get(provider.subject)
    if isinstance(subject, bool) or not isinstance(subject, int | str) or not 0 < len(str(subject)) <= 255:
        raise AuthorizationFailed(f"{provider.title} sent no usable {provider.subject!r} for the user")
    claims = {name: value for name, value in claims.items() if name not in _TOKEN_CLAIMS}
    claims["sub"] = str(subject)
    if len(msgspec.json.encode(claims)) > _MAX_CLAIMS:
        raise AuthorizationFailed(f"{provider.title} sent more than {_MAX_CLAIMS} bytes about the user")
    return claims


def _read_id_token(provider: Provider, token: str, nonce: str | None) -> dict[str, Any]:
    """Read an ID token; one of a login has its `nonce`."""
    try:
        claims = read_claims(token)
    except TokenInvalid as exc:
        raise AuthorizationFailed(f"{provider.title}: {exc}") from None
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    expires = claims.get("exp")
    if not accepts_issuer(provider, claims.get("iss"), claims):
        problem = "it is of another issuer"
    elif provider.client_id not in audiences or claims.get("azp", provider.client_id) != provider.client_id:
        problem = "it is for another application"
    elif not isinstance(expires, int | float) or expires < time.time() - _LEEWAY:
        problem = "it has expired"
    elif nonce is not None and claims.get("nonce") != nonce:
        problem = "it is of another login"
    else:
        return claims
    raise AuthorizationFailed(f"The ID token of {provider.title} is refused: {problem}")


def _read_userinfo(provider: Provider, response: HttpResponse) -> dict[str, Any]:
    if response.status != 200:
        raise AuthorizationFailed(f"{provider.title} does not say who the user is: status {response.status}")
    try:
        return msgspec.json.decode(response.body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise AuthorizationFailed(f"{provider.title}: what it says of the user can't be read") from None


def _token_request(provider: Provider, endpoints: Endpoints, url: str, form: Mapping[str, str]) -> HttpRequest:
    headers = [*_JSON, ("content-type", "application/x-www-form-urlencoded")]
    fields = dict(form)
    if provider.client_secret is not None and endpoints.secret_in_header:
        pair = f"{quote_plus(provider.client_id)}:{quote_plus(provider.client_secret)}"
        headers.append(("authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"))
    else:
        fields["client_id"] = provider.client_id
        if provider.client_secret is not None:
            fields["client_secret"] = provider.client_secret
    return HttpRequest("POST", url, headers, urlencode(fields).encode())


def _read_tokens(
    provider: Provider, response: HttpResponse, secrets: Sequence[str], granted: Collection[str]
) -> UpstreamTokens:
    """Read a token response. Raises UpstreamRefused if the same request can't succeed later."""
    if not is_success(response):
        error = read_error(response, f"{provider.title} gives no tokens", secrets)
        raise (UpstreamRefused if error.is_final else AuthorizationFailed)(str(error))
    try:
        answer = msgspec.convert(read_answer(response), _TokenResponse)
    except msgspec.MsgspecError:
        raise AuthorizationFailed(f"{provider.title}: its answer, status {response.status}, can't be read") from None
    texts = (answer.access_token, answer.refresh_token, answer.id_token)
    if not answer.access_token or any(len(text or "") > _MAX_TOKEN for text in texts):
        raise AuthorizationFailed(f"{provider.title} sent no access token, or one that is too long")
    # Without `scope` all that was asked for is granted (RFC 6749 §5.1). GitHub separates scopes with commas.
    missing = set() if answer.scope is None else set(granted) - set(re.split("[ ,]+", answer.scope))
    if missing:
        raise UpstreamRefused(f"{provider.title} did not grant the scopes {shorten(' '.join(sorted(missing)))}")
    try:
        seconds = None if answer.expires_in is None else float(answer.expires_in)
    except ValueError:
        seconds = None
    expires = None if seconds is None else time.time() + min(max(seconds, 0.0), 10 * 365 * 86400.0)
    return UpstreamTokens(answer.access_token, answer.refresh_token or None, expires, answer.id_token)
