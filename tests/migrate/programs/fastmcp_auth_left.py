# only: rewrite
# notes: JWTAuth needs issuer=
# notes: JWTAuth needs audience=
# notes: keys={'kty': 'oct', 'k': …}
# notes: allowed_client_redirect_uris= has no counterpart
# notes: MultiAuth(…)
# notes: the secret in the header Authorization
from fastmcp import FastMCP
from fastmcp.server.auth import JWTVerifier, MultiAuth, RemoteAuthProvider
from fastmcp.server.auth.providers.github import GitHubProvider
from fastmcp.server.auth.providers.introspection import IntrospectionTokenVerifier

KEYS = "https://login.example.com/keys"
anyone = FastMCP("anyone", auth=JWTVerifier(jwks_uri=KEYS, audience="notes"))
anywhere = FastMCP("anywhere", auth=JWTVerifier(jwks_uri=KEYS, issuer="https://login.example.com"))
shared = FastMCP("shared", auth=JWTVerifier(public_key="secret", issuer="https://a.test", audience="notes", algorithm="HS256"))
several = FastMCP("several", auth=MultiAuth(verifiers=[JWTVerifier(jwks_uri=KEYS, issuer="https://a.test", audience="notes")]))
listed = FastMCP(
    "listed",
    auth=GitHubProvider(
        client_id="0123", client_secret="x", base_url="https://example.com", allowed_client_redirect_uris=["https://a.test/*"]
    ),
)
posted = FastMCP(
    "posted",
    auth=RemoteAuthProvider(
        token_verifier=IntrospectionTokenVerifier(
            introspection_url="https://a.test/introspect", client_id="notes", client_secret="x", client_auth_method="client_secret_post"
        ),
        authorization_servers=["https://a.test"],
        base_url="https://example.com",
    ),
)
