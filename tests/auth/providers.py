"""Facts about identity providers that MCP servers are used with, as far as a login depends on them, with sources and dates.

`test_providers.py` plays each of them with the double of an authorization server. The page `docs/identity-providers.md` says
what to do about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Facts(NamedTuple):
    """One provider.

    Attributes:
        name: Its name.
        issuer: The form of its issuers.
        documents: Where its metadata is: "oauth" (RFC 8414), "openid" (OpenID Connect Discovery), or both.
        pkce: What the metadata announces; None if it says nothing. For Auth0, Clerk, GitHub, PropelAuth and Scalekit the sources
            say only that S256 is supported.
        registers: Whether clients can register themselves: "never", "setting" (somebody has to turn it on), "always".
        takes_documents: Whether a client can be a client ID metadata document; None if nothing is known.
        resource: What becomes of the parameter `resource`: "refused", "ignored", "used", "needed", "setting" or "unknown".
        needed: Parameters without which the login is of no use, or does not last.
        answers: What answers of the token endpoint look like, if it is not as RFC 6749 has it.
        issuer_in_resource: How MCP servers of the provider spell the issuer, if it is not as in the metadata.
        options: The options of `OAuth` for it, besides the client and the issuer.
        sources: Addresses, with the date of what they say; the day of reading if they have none.
    """

    name: str
    issuer: str
    documents: tuple[str, ...]
    pkce: tuple[str, ...] | None
    registers: str
    resource: str
    sources: Mapping[str, str]
    takes_documents: bool | None = None
    needed: Mapping[str, str] = {}
    answers: str = ""
    issuer_in_resource: str = ""
    options: Mapping[str, Any] = {}


_READ = "2026-11-28"
_READ_LATER = "2026-11-29"

PROVIDERS = (
    Facts(
        name="Auth0",
        issuer="https://TENANT.auth0.com/",
        documents=("oauth", "openid"),
        pkce=("S256", "plain"),
        registers="setting",
        resource="setting",
        needed={"audience": "https://notes.example.com/mcp"},
        options={"authorization_parameters": {"audience": "https://notes.example.com/mcp"}},
        sources={
            "https://auth0.com/ai/docs/mcp/guides/resource-param-compatibility-profile": _READ,
            "https://auth0.com/ai/docs/mcp/guides/registering-your-mcp-client-application": _READ,
            "https://github.com/danny-avila/LibreChat/issues/13401": _READ,
        },
    ),
    Facts(
        name="Clerk",
        issuer="https://NAME.clerk.accounts.dev",
        documents=("oauth", "openid"),
        pkce=("S256",),
        registers="setting",
        takes_documents=True,
        resource="unknown",
        sources={
            "https://clerk.com/changelog/2025-06-13-oauth-improvements": "2025-06-13",
            "https://clerk.com/docs/oauth/how-clerk-implements-oauth": _READ,
            "https://github.com/aircrushin/promptMinder/pull/63": _READ,
        },
    ),
    Facts(
        name="Cognito",
        issuer="https://cognito-idp.REGION.amazonaws.com/USER_POOL",
        documents=("openid",),
        pkce=None,
        registers="never",
        resource="ignored",
        options={"assume_pkce": True},
        sources={
            "https://github.com/anthropics/claude-code/issues/13275": "2025-12-07",
            "https://github.com/anthropics/claude-ai-mcp/issues/946": "2026-08-28",
            "https://docs.aws.amazon.com/cognito/latest/developerguide/cognito-user-pools-app-idp-settings.html": "2026-07-24",
        },
    ),
    Facts(
        name="Descope",
        issuer="https://api.descope.com/v1/apps/agentic/PROJECT/SERVER",
        documents=("openid",),
        pkce=("S256",),
        registers="setting",
        takes_documents=True,
        resource="unknown",
        sources={
            "https://docs.descope.com/agentic-identity-hub/mcp-servers/registration-methods": _READ,
            "https://docs.descope.com/agentic-identity-hub/mcp-servers/discovery-url": _READ,
        },
    ),
    Facts(
        name="Discord",
        issuer="https://discord.com",
        documents=("oauth", "openid"),
        pkce=("S256",),
        registers="never",
        resource="unknown",
        sources={
            "https://discord.com/.well-known/oauth-authorization-server": _READ_LATER,
            "https://discord.com/.well-known/openid-configuration": _READ_LATER,
            "https://docs.discord.com/developers/topics/oauth2": _READ_LATER,
        },
    ),
    Facts(
        name="Entra ID",
        issuer="https://login.microsoftonline.com/TENANT/v2.0",
        documents=("openid",),
        pkce=None,
        registers="never",
        resource="refused",
        options={"resource": False, "assume_pkce": True},
        sources={
            "https://github.com/panva/wellknown": "2024-10-26",
            "https://github.com/punkpeye/mcp-remote/issues/217": "2026-01-26",
            "https://github.com/microsoft/powerbi-modeling-mcp/issues/68": "2026-03-09",
            "https://learn.microsoft.com/en-us/entra/identity-platform/v2-protocols": "2026-07-24",
        },
    ),
    Facts(
        name="GitHub",
        issuer="https://github.com/login/oauth",
        documents=("oauth", "openid"),
        pkce=("S256",),
        registers="never",
        resource="ignored",
        answers="refusals have the status 200; scopes are separated by commas",
        options={"auth_method": "client_secret_post"},
        sources={
            "https://docs.github.com/apps/github-authentication-discovery-endpoints": _READ,
            "https://github.com/github/github-mcp-server/issues/2901": "2026-07-17",
            "https://github.com/anomalyco/opencode/issues/6067": "2025-12-23",
            "https://docs.github.com/apps/oauth-apps/building-oauth-apps/authorizing-oauth-apps": _READ,
            "https://github.blog/changelog/2025-07-14-pkce-support-for-oauth-and-github-app-authentication": "2025-07-14",
        },
    ),
    Facts(
        name="Google",
        issuer="https://accounts.google.com",
        documents=("oauth", "openid"),
        pkce=("plain", "S256"),
        registers="never",
        resource="ignored",
        needed={"access_type": "offline"},
        issuer_in_resource="/",
        options={"authorization_parameters": {"access_type": "offline", "prompt": "consent"}},
        sources={
            "https://github.com/panva/wellknown": "2024-10-21",
            "https://github.com/modelcontextprotocol/python-sdk/issues/1919": "2026-09-14",
            "https://developers.google.com/identity/protocols/oauth2/web-server": _READ,
        },
    ),
    Facts(
        name="Hugging Face",
        issuer="https://huggingface.co",
        documents=("oauth", "openid"),
        pkce=("S256",),
        registers="always",
        takes_documents=True,
        resource="unknown",
        sources={
            "https://huggingface.co/docs/hub/oauth": _READ_LATER,
            "https://github.com/api-evangelist/hugging-face-transformers": "2026-06-20",
        },
    ),
    Facts(
        name="Keycloak",
        issuer="https://HOST/realms/REALM",
        documents=("oauth", "openid"),
        pkce=("plain", "S256"),
        registers="setting",
        resource="setting",
        sources={
            "https://www.keycloak.org/securing-apps/mcp-authz-server": _READ,
            "https://github.com/spring-attic/spring-authorization-server/issues/1302": "2023-07-17",
            "https://phasetwo.io/tutorials/emerging/mcp-server-auth/": "2026-10-12",
        },
    ),
    Facts(
        name="Okta",
        issuer="https://DOMAIN/oauth2/default",
        documents=("oauth", "openid"),
        pkce=("S256",),
        registers="never",
        takes_documents=True,
        resource="ignored",
        sources={
            "https://developer.okta.com/docs/api/openapi/okta-oauth/oauth/customas": _READ,
            "https://github.com/okta/okta-auth-js": _READ,
            "https://www.apollographql.com/docs/apollo-mcp-server/guides/auth-okta": _READ,
        },
    ),
    Facts(
        name="PropelAuth",
        issuer="https://AUTH_URL/oauth/2.1",
        documents=("oauth",),
        pkce=("S256",),
        registers="setting",
        resource="needed",
        sources={
            "https://docs.propelauth.com/reference/api/mcp": _READ_LATER,
            "https://gofastmcp.com/integrations/propelauth": _READ_LATER,
            "https://github.com/PrefectHQ/fastmcp": _READ_LATER,
        },
    ),
    Facts(
        name="Scalekit",
        issuer="https://ENVIRONMENT/resources/res_ID",
        documents=("oauth",),
        pkce=("S256",),
        registers="setting",
        takes_documents=True,
        resource="used",
        sources={
            "https://docs.scalekit.com/authenticate/mcp/quickstart/": _READ_LATER,
            "https://github.com/mcp-use/mcp-use/issues/2271": "2026-08-16",
        },
    ),
    Facts(
        name="Supabase",
        issuer="https://PROJECT.supabase.co/auth/v1",
        documents=("oauth", "openid"),
        pkce=("S256", "plain"),
        registers="setting",
        resource="ignored",
        sources={
            "https://supabase.com/docs/guides/auth/oauth-server/mcp-authentication": _READ_LATER,
            "https://supabase.com/docs/guides/auth/oauth-server/getting-started": _READ_LATER,
            "https://supabase.com/docs/guides/auth/oauth-server/token-security": _READ_LATER,
            "https://github.com/supabase/auth/issues/2610": "2026-07-02",
            "https://github.com/docs-plus/docs.plus/issues/223": "2026-09-04",
        },
    ),
    Facts(
        name="WorkOS",
        issuer="https://SUBDOMAIN.authkit.app",
        documents=("oauth", "openid"),
        pkce=("S256",),
        registers="setting",
        takes_documents=True,
        resource="used",
        sources={
            "https://workos.com/docs/user-management/mcp/integrating": _READ,
            "https://workos.com/docs/reference/authkit/oauth-resource": "2026-01-15",
            "https://workos.com/changelog/client-id-metadata-support-for-mcp-auth": _READ,
        },
    ),
    Facts(
        name="ZITADEL",
        issuer="https://NAME.zitadel.cloud",
        documents=("openid",),
        pkce=("S256",),
        registers="setting",
        resource="ignored",
        sources={
            "https://zitadel.com/docs/guides/integrate/dynamic-client-registration": _READ,
            "https://zitadel.com/apis/openidoauth/scopes": _READ,
            "https://github.com/zitadel/zitadel/issues/12710": "2026-09-08",
            "https://github.com/zitadel/oidc/pull/43": _READ,
        },
    ),
)
