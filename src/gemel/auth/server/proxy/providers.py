"""Identity providers as data: where their endpoints are, which scopes a login needs, and in what they differ from the standard.

A provider with an issuer is asked for its endpoints (OpenID Connect Discovery 1.0); the others have theirs written here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from gemel.errors import DefinitionError

_OPENID: Final = ("openid", "profile", "email")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """An identity provider, and the application that is registered there for this server.

    Use one of the functions of this module; for a provider without OpenID Connect write its endpoints.

    Attributes:
        title: What people call it, for the consent page.
        client_id: The id of the registered application.
        client_secret: Its secret; None for a public application.
        issuer: The issuer of OpenID Connect. Its metadata names the endpoints that are not given.
        authorization_endpoint: Where browsers are sent.
        token_endpoint: Where codes are exchanged.
        userinfo_endpoint: Where the user is read if there is no ID token.
        revocation_endpoint: Where tokens are revoked (RFC 7009).
        scopes: What the login asks for.
        required_scopes: Those of them that the provider must grant; a login without them is refused.
        parameters: More parameters of the authorization request.
        subject: The member of the user's claims that identifies the user and never changes.
        secret_in: Where the secret is sent: in the header `Authorization` or in the body. If the metadata of the issuer says that
            the body is not accepted, it is the header.
        other_issuers: More values of `iss` in ID tokens. `{tid}` stands for that claim.
        pkce: Whether the provider takes `code_challenge`.
    """

    client_id: str
    client_secret: str | None = None
    title: str = "the identity provider"
    issuer: str | None = None
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    userinfo_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes: Sequence[str] = ()
    required_scopes: Sequence[str] = ()
    parameters: Mapping[str, str] = {}
    subject: str = "sub"
    secret_in: Literal["body", "header"] = "body"
    other_issuers: Sequence[str] = ()
    pkce: bool = True

    def __post_init__(self) -> None:
        if not self.client_id:
            raise DefinitionError(f"{self.title} needs the client_id of the application that you registered there")
        if self.issuer is None and not (self.authorization_endpoint and self.token_endpoint):
            raise DefinitionError(f"{self.title} needs an issuer, or authorization_endpoint and token_endpoint")
        if self.issuer is None and self.userinfo_endpoint is None:
            raise DefinitionError(f"{self.title} has no issuer: name the userinfo_endpoint that tells who the user is")

    def __repr__(self) -> str:
        """Without the secret."""
        return f"Provider(title={self.title!r}, client_id={self.client_id!r})"


def accepts_issuer(provider: Provider, issuer: object, claims: Mapping[str, Any]) -> bool:
    """Whether an ID token with this `iss` and these claims is from the provider."""
    tenant = claims.get("tid")
    patterns = [pattern for pattern in provider.other_issuers if "{tid}" not in pattern or isinstance(tenant, str)]
    return issuer in (provider.issuer, *(pattern.replace("{tid}", str(tenant)) for pattern in patterns))


def may_answer_as(provider: Provider, issuer: str | None) -> bool:
    """Whether a response of the authorization endpoint may have this `iss`: any tenant in place of `{tid}`."""
    for pattern in (provider.issuer, *provider.other_issuers):
        before, placeholder, after = (pattern or "").partition("{tid}")
        if issuer == pattern:
            return True
        if placeholder and issuer is not None and issuer.startswith(before) and issuer.endswith(after):
            return "/" not in issuer[len(before) : len(issuer) - len(after)]
    return False


def GitHub(*, client_id: str, client_secret: str, scopes: Sequence[str] = ("read:user",)) -> Provider:
    """GitHub: an OAuth app or a GitHub app. The user's id is a number as text; `login` is in the claims.

    Args:
        client_id: The id of the app.
        client_secret: A secret of the app.
        scopes: What the token of GitHub may do. A GitHub app has permissions instead.

    Returns:
        The provider.
    """
    return Provider(
        title="GitHub",
        client_id=client_id,
        client_secret=client_secret,
        authorization_endpoint="https://github.com/login/oauth/authorize",
        token_endpoint="https://github.com/login/oauth/access_token",
        userinfo_endpoint="https://api.github.com/user",
        scopes=scopes,
        subject="id",
    )


def Google(*, client_id: str, client_secret: str, scopes: Sequence[str] = _OPENID) -> Provider:
    """Google. A refresh token is requested, which Google gives only when its own consent page is shown.

    Args:
        client_id: The id of the OAuth client, of the type "Web application".
        client_secret: Its secret.
        scopes: What the login asks for.

    Returns:
        The provider.
    """
    return Provider(
        title="Google",
        client_id=client_id,
        client_secret=client_secret,
        issuer="https://accounts.google.com",
        other_issuers=("accounts.google.com",),
        revocation_endpoint="https://oauth2.googleapis.com/revoke",
        parameters={"access_type": "offline", "prompt": "consent"},
        scopes=scopes,
    )


def EntraID(
    *,
    tenant: str,
    client_id: str,
    client_secret: str,
    scopes: Sequence[str] = (*_OPENID, "offline_access"),
    api_scopes: Sequence[str] = (),
) -> Provider:
    """Microsoft Entra ID (Azure AD), version 2.0 of its endpoints. The user is identified by `oid`.

    Args:
        tenant: The id or the domain of the tenant; "organizations", "consumers" or "common" for users of several.
        client_id: The application id.
        client_secret: A secret of the application.
        scopes: What the login asks for.
        api_scopes: Scopes that the application itself exposes ("Expose an API", with the default URI api://CLIENT_ID), such as
            "read". The login asks for them, too, and is refused without them.

    Returns:
        The provider.

    Raises:
        DefinitionError: The tenant is not an id or a name.
    """
    api = [f"api://{client_id}/{scope}" for scope in api_scopes]
    return Provider(
        title="Microsoft",
        client_id=client_id,
        client_secret=client_secret,
        issuer=f"https://login.microsoftonline.com/{_name('tenant', tenant)}/v2.0",
        other_issuers=("https://login.microsoftonline.com/{tid}/v2.0",),
        scopes=(*scopes, *api),
        required_scopes=api,
        subject="oid",
    )


def Auth0(
    *,
    domain: str,
    client_id: str,
    client_secret: str,
    audience: str | None = None,
    scopes: Sequence[str] = (*_OPENID, "offline_access"),
) -> Provider:
    """Auth0.

    Args:
        domain: The domain of the tenant, such as "example.eu.auth0.com".
        client_id: The id of the application, of the type "Regular Web Application".
        client_secret: Its secret.
        audience: The API that the token of Auth0 is for; None if it is for the user's profile only.
        scopes: What the login asks for.

    Returns:
        The provider.

    Raises:
        DefinitionError: The domain is not a host name.
    """
    return Provider(
        title="Auth0",
        client_id=client_id,
        client_secret=client_secret,
        issuer=f"https://{_name('domain', domain)}/",
        parameters={} if audience is None else {"audience": audience},
        scopes=scopes,
    )


def Okta(
    *,
    domain: str,
    client_id: str,
    client_secret: str,
    authorization_server: str | None = "default",
    scopes: Sequence[str] = (*_OPENID, "offline_access"),
) -> Provider:
    """Okta.

    Args:
        domain: The domain of the organization, such as "example.okta.com".
        client_id: The id of the web application; allow it the grant "Refresh Token".
        client_secret: Its secret.
        authorization_server: The id of a custom authorization server; None for that of the organization.
        scopes: What the login asks for.

    Returns:
        The provider.

    Raises:
        DefinitionError: The domain is not a host name.
    """
    path = "" if authorization_server is None else f"/oauth2/{_name('authorization_server', authorization_server)}"
    return Provider(
        title="Okta",
        client_id=client_id,
        client_secret=client_secret,
        issuer=f"https://{_name('domain', domain)}{path}",
        scopes=scopes,
        secret_in="header",
    )


def Keycloak(*, url: str, realm: str, client_id: str, client_secret: str, scopes: Sequence[str] = _OPENID) -> Provider:
    """Keycloak.

    Args:
        url: The base URL, such as "https://login.example.com"; old versions have "/auth" at its end.
        realm: The realm.
        client_id: The id of the client, with "ProxyClient authentication" on.
        client_secret: Its secret.
        scopes: What the login asks for.

    Returns:
        The provider.

    Raises:
        DefinitionError: The realm is not a name.
    """
    return Provider(
        title="Keycloak",
        client_id=client_id,
        client_secret=client_secret,
        issuer=f"{url.rstrip('/')}/realms/{_name('realm', realm)}",
        scopes=scopes,
    )


def Cognito(*, user_pool: str, client_id: str, client_secret: str, scopes: Sequence[str] = _OPENID) -> Provider:
    """Amazon Cognito. The user pool needs a domain.

    Args:
        user_pool: The id of the user pool, such as "eu-central-1_AbCdEfGhI".
        client_id: The id of the app client.
        client_secret: Its secret.
        scopes: What the login asks for.

    Returns:
        The provider.

    Raises:
        DefinitionError: The id of the user pool has another form.
    """
    region, separator, _ = _name("user_pool", user_pool).partition("_")
    if not separator:
        raise DefinitionError(f'user_pool={user_pool!r} is not possible: write its id, "REGION_NAME"')
    return Provider(
        title="Amazon Cognito",
        client_id=client_id,
        client_secret=client_secret,
        issuer=f"https://cognito-idp.{region}.amazonaws.com/{user_pool}",
        scopes=scopes,
        secret_in="header",
    )


def OCI(*, domain: str, client_id: str, client_secret: str, scopes: Sequence[str] = _OPENID) -> Provider:
    """Oracle Cloud Infrastructure: an identity domain. Its metadata names an issuer that all domains share.

    Args:
        domain: The host of the domain, such as "idcs-0123456789abcdef.identity.oraclecloud.com".
        client_id: The id of the integrated application.
        client_secret: Its secret.
        scopes: What the login asks for.

    Returns:
        The provider.

    Raises:
        DefinitionError: The domain is not a host name.
    """
    base = f"https://{_name('domain', domain)}/oauth2/v1"
    return Provider(
        title="Oracle Cloud",
        client_id=client_id,
        client_secret=client_secret,
        authorization_endpoint=f"{base}/authorize",
        token_endpoint=f"{base}/token",
        userinfo_endpoint=f"{base}/userinfo",
        revocation_endpoint=f"{base}/revoke",
        scopes=scopes,
        secret_in="header",
    )


def WorkOS(
    *, domain: str, client_id: str, client_secret: str, scopes: Sequence[str] = (*_OPENID, "offline_access")
) -> Provider:
    """WorkOS Connect. AuthKit registers clients itself if that is switched on: then `JWTAuth` is enough.

    Args:
        domain: The domain of AuthKit, such as "example.authkit.app".
        client_id: The id of the OAuth application.
        client_secret: Its secret.
        scopes: What the login asks for.

    Returns:
        The provider.

    Raises:
        DefinitionError: The domain is not a host name.
    """
    return Provider(
        title="WorkOS",
        client_id=client_id,
        client_secret=client_secret,
        issuer=f"https://{_name('domain', domain)}",
        scopes=scopes,
    )


def Clerk(
    *, domain: str, client_id: str, client_secret: str | None = None, scopes: Sequence[str] = _OPENID
) -> Provider:
    """Clerk.

    Args:
        domain: The domain of the instance, such as "example.clerk.accounts.dev".
        client_id: The id of the OAuth application.
        client_secret: Its secret; None for a public application.
        scopes: What the login asks for.

    Returns:
        The provider.

    Raises:
        DefinitionError: The domain is not a host name.
    """
    return Provider(
        title="Clerk",
        client_id=client_id,
        client_secret=client_secret,
        issuer=f"https://{_name('domain', domain)}",
        scopes=scopes,
    )


def HuggingFace(*, client_id: str, client_secret: str | None = None, scopes: Sequence[str] = _OPENID) -> Provider:
    """Hugging Face. `preferred_username` is in the claims.

    Args:
        client_id: The id of the connected application.
        client_secret: Its secret; None for a public application.
        scopes: What the login asks for.

    Returns:
        The provider.
    """
    return Provider(
        title="Hugging Face",
        client_id=client_id,
        client_secret=client_secret,
        issuer="https://huggingface.co",
        scopes=scopes,
        secret_in="header",
    )


def Discord(*, client_id: str, client_secret: str, scopes: Sequence[str] = ("identify",)) -> Provider:
    """Discord. The user's id is a number as text; `username` is in the claims.

    Args:
        client_id: The id of the application.
        client_secret: Its secret.
        scopes: What the login asks for; "email" adds the address.

    Returns:
        The provider.
    """
    return Provider(
        title="Discord",
        client_id=client_id,
        client_secret=client_secret,
        authorization_endpoint="https://discord.com/oauth2/authorize",
        token_endpoint="https://discord.com/api/oauth2/token",
        userinfo_endpoint="https://discord.com/api/users/@me",
        revocation_endpoint="https://discord.com/api/oauth2/token/revoke",
        scopes=scopes,
        subject="id",
    )


def OpenID(
    *,
    issuer: str,
    client_id: str,
    client_secret: str | None = None,
    title: str = "the identity provider",
    scopes: Sequence[str] = _OPENID,
) -> Provider:
    """Any provider of OpenID Connect, by its issuer.

    Args:
        issuer: The issuer, exactly as its metadata spells it.
        client_id: The id of the application that is registered there.
        client_secret: Its secret; None for a public application.
        title: What people call the provider, for the consent page.
        scopes: What the login asks for. Many providers give a refresh token only for "offline_access".

    Returns:
        The provider.
    """
    return Provider(title=title, client_id=client_id, client_secret=client_secret, issuer=issuer, scopes=scopes)


def _name(option: str, value: str) -> str:
    """A name that becomes part of a URL."""
    if not _NAME.fullmatch(value):
        raise DefinitionError(f"{option}={value!r} is not possible: write the name alone, without https:// and path")
    return value
