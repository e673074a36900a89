"""The authorization code flow with PKCE: the URL to open, the check of the redirect, the exchange of the code.

Specification: Authorization, sections "Authorization Code Protection" and "Authorization Response Validation"; RFC 9207.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64encode
from hashlib import sha256
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from gemel.auth.client.discovery import Discovered
from gemel.auth.client.token_request import (
    IssuerOptions,
    Proof,
    RegisteredClient,
    TokenRequestFailed,
    authenticate,
    describe_error,
    read_error,
    request_tokens,
    secrets_in,
)
from gemel.auth.client.tokens import Tokens
from gemel.auth.flow import Flow, HttpRequest
from gemel.auth.url_rules import describe
from gemel.errors import AuthorizationFailed
from gemel.protocol.deviations import Note, log_deviation

#: Parameters of a redirect that are read.
_MAX_FIELDS = 50
_SINGLE = ("state", "code", "error", "error_description", "iss")


class Authorization(msgspec.Struct, frozen=True, kw_only=True):
    """An authorization request on its way, with what its response is checked against.

    Attributes:
        url: The URL that a person opens.
        state: Binds the response to the request.
        verifier: The secret of PKCE.
        issuer: The issuer whose metadata named the endpoint.
        expects_iss: Whether that metadata says that responses name the issuer.
        redirect_uri: Where the browser comes back to.
        scopes: The scopes that are requested.
        resource: The value of `resource`; None without.
    """

    url: str
    state: str
    verifier: str
    issuer: str
    expects_iss: bool
    redirect_uri: str
    scopes: tuple[str, ...]
    resource: str | None

    def __repr__(self) -> str:
        """The issuer only."""
        return f"<Authorization at {self.issuer}>"


def begin(
    found: Discovered,
    client: RegisteredClient,
    redirect_uri: str,
    scopes: tuple[str, ...],
    options: IssuerOptions = IssuerOptions(),  # noqa: B008 - it is frozen
) -> Authorization:
    """Make an authorization request.

    Args:
        found: The authorization server.
        client: The client.
        redirect_uri: Where the browser comes back to.
        scopes: The scopes to request; none to leave it to the server.
        options: What the user chose for this authorization server.

    Returns:
        The request.

    Raises:
        AuthorizationFailed: The server has no endpoint for it, or no PKCE with S256.
    """
    server = found.server
    if server.authorization_endpoint is None or server.token_endpoint is None:
        raise AuthorizationFailed(
            f"{describe(found.issuer)} has no authorization and token endpoint: people can't log in there"
        )
    methods = server.code_challenge_methods_supported
    is_assumed = methods is None and (options.assume_pkce or not found.has_metadata)
    if "S256" not in (methods or ()) and not is_assumed:
        advice = (
            ""
            if methods is not None
            else ". If it does, say so: OAuth(issuer=…, assume_pkce=True), or --issuer … --assume-pkce"
        )
        raise AuthorizationFailed(
            f"{describe(found.issuer)} does not say that it supports PKCE with S256 (code_challenge_methods_supported), "
            f"without which a login is not safe{advice}"
        )
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    resource = options.resource_of(found.resource)
    fields = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "resource": resource,
        "scope": options.scope_of(scopes),
        "prompt": "consent" if "offline_access" in scopes else None,  # OpenID Connect Core 1.0, section 11
        **options.parameters,
    }
    query = urlencode({name: value for name, value in fields.items() if value is not None})
    endpoint = server.authorization_endpoint.partition("#")[0]
    url = f"{endpoint}{'&' if '?' in endpoint else '?'}{query}"
    return Authorization(
        url=url,
        state=state,
        verifier=verifier,
        issuer=found.issuer,
        expects_iss=bool(server.authorization_response_iss_parameter_supported),
        redirect_uri=redirect_uri,
        scopes=scopes,
        resource=resource,
    )


def read_redirect(authorization: Authorization, redirect: str) -> str:
    """Check the redirect that ends an authorization request.

    Args:
        authorization: The request.
        redirect: The URL that the browser was sent to.

    Returns:
        The authorization code.

    Raises:
        AuthorizationFailed: The response belongs to another request or issuer; nothing of it is repeated.
        TokenRequestFailed: The server refuses; `error` has its code.
    """
    try:
        pairs = parse_qsl(urlsplit(redirect).query, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise AuthorizationFailed("The redirect of the login can't be read") from None
    names = [name for name, _ in pairs]
    if any(names.count(name) > 1 for name in _SINGLE):
        raise AuthorizationFailed("The redirect of the login repeats a parameter")
    fields = dict(pairs)
    if not hmac.compare_digest(fields.get("state", "").encode(), authorization.state.encode()):
        raise AuthorizationFailed("The redirect belongs to another login: its state differs")
    issuer = fields.get("iss")
    if issuer is None and authorization.expects_iss:
        raise AuthorizationFailed(
            f"The redirect does not name its issuer, though {describe(authorization.issuer)} says that it does"
        )
    if issuer is not None and issuer != authorization.issuer:
        raise AuthorizationFailed(
            f"The redirect comes from another authorization server than {describe(authorization.issuer)}"
        )
    where = describe(authorization.issuer)
    if "error" in fields:
        reason = describe_error(fields["error"], fields.get("error_description"))
        raise TokenRequestFailed(f"{where} refuses the login: {reason}", fields["error"])
    if not fields.get("code"):
        raise AuthorizationFailed(f"The redirect of {where} has no authorization code")
    return fields["code"]


def redeem(
    authorization: Authorization,
    code: str,
    found: Discovered,
    client: RegisteredClient,
    proof: Proof | None = None,
    note: Note = log_deviation,
) -> Flow[Tokens]:
    """Exchange an authorization code for tokens.

    Args:
        authorization: The request that the code answers.
        code: The code.
        found: The authorization server.
        client: The client.
        proof: Binds the tokens to a key.
        note: Notes what is left out of the response.

    Returns:
        The flow; its result is the tokens.

    Raises:
        TokenRequestFailed: The server refuses.
    """
    assert found.server.token_endpoint is not None
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": authorization.redirect_uri,
        "code_verifier": authorization.verifier,
        "resource": authorization.resource,
    }
    return (
        yield from request_tokens(
            found.server.token_endpoint,
            form,
            client,
            methods=found.server.token_endpoint_auth_methods_supported,
            scopes=authorization.scopes,
            proof=proof,
            issuer=found.issuer,
            note=note,
        )
    )


def refresh(
    tokens: Tokens,
    client: RegisteredClient,
    resource: str | None,
    proof: Proof | None = None,
    note: Note = log_deviation,
) -> Flow[Tokens]:
    """Refresh tokens.

    Args:
        tokens: The tokens, with their refresh token and token endpoint.
        client: The client that they were issued to.
        resource: The value of `resource`; None without.
        proof: Binds the tokens to a key.
        note: Notes what is left out of the response.

    Returns:
        The flow; its result is the new tokens.

    Raises:
        TokenRequestFailed: The server refuses.
    """
    form = {
        "grant_type": "refresh_token",
        "refresh_token": tokens.refresh_token,
        "resource": resource,
    }
    return request_tokens(tokens.token_endpoint, form, client, proof=proof, issuer=tokens.issuer, note=note)


def revoke(tokens: Tokens, client: RegisteredClient) -> Flow[None]:
    """Tell the authorization server that tokens are not needed any more (RFC 7009).

    Args:
        tokens: The tokens, with their revocation endpoint. The refresh token comes first: without it no other ones follow.
        client: The client that they were issued to.

    Returns:
        The flow.

    Raises:
        TokenRequestFailed: The server refuses.
    """
    assert tokens.revocation_endpoint is not None
    for kind in ("refresh_token", "access_token"):
        token = getattr(tokens, kind)
        if token:
            fields, extra = authenticate(client, None, {"token": token, "token_type_hint": kind})
            headers = [("Content-Type", "application/x-www-form-urlencoded"), ("Accept", "application/json"), *extra]
            response = yield HttpRequest("POST", tokens.revocation_endpoint, headers, urlencode(fields).encode())
            # RFC 7009 §2.2.1: servers need not be able to revoke access tokens.
            what = f"{describe(tokens.revocation_endpoint)} refuses to revoke a token"
            error = read_error(response, what, secrets_in(fields, extra))
            if response.status != 200 and error.error != "unsupported_token_type":
                raise error
