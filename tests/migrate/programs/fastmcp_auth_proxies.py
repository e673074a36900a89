# lists: echo
# differs: nothing is registered
# becomes: api_scopes=["read"]
# becomes: required_scopes=["read"]
# becomes: scopes=["openid", "notes"]
# becomes: provider_scopes=["notes"]
# becomes: domain="notes.authkit.app"
# becomes: domain=DOMAIN.removeprefix('https://').rstrip('/')
# becomes: scopes=["openid", "https://www.googleapis.com/auth/userinfo.email"]
# becomes: issuer="https://example.com/notes"
# becomes: HuggingFace(client_id="0123")
# notes: redirect_path was left out
# notes: jwt_signing_key was left out
from fastmcp import FastMCP
from fastmcp.server.auth.providers.azure import AzureProvider
from fastmcp.server.auth.providers.clerk import ClerkProvider
from fastmcp.server.auth.providers.google import GoogleProvider
from fastmcp.server.auth.providers.huggingface import HuggingFaceProvider
from fastmcp.server.auth.providers.workos import WorkOSProvider

BASE = "http://127.0.0.1:8000"
DOMAIN = "notes.clerk.accounts.dev"

mcp = FastMCP(
    "entra",
    auth=AzureProvider(
        client_id="0123",
        client_secret="a-secret",
        tenant_id="contoso.com",
        required_scopes=["read", "openid"],
        base_url=BASE,
        redirect_path="/auth/callback",
    ),
)
workos = FastMCP(
    "workos",
    auth=WorkOSProvider(
        client_id="0123",
        client_secret="a-secret",
        authkit_domain="https://notes.authkit.app",
        base_url="https://example.com/notes",
        redirect_path="/notes/callback",
        required_scopes=["notes"],
    ),
)
clerk = FastMCP("clerk", auth=ClerkProvider(domain=DOMAIN, client_id="0123", client_secret="a-secret", base_url=BASE))
google = FastMCP(
    "google",
    auth=GoogleProvider(client_id="0123.apps.googleusercontent.com", client_secret="GOCSPX-a", base_url=BASE, required_scopes="openid email"),
)
hugging_face = FastMCP("hf", auth=HuggingFaceProvider(client_id="0123", base_url=BASE, jwt_signing_key="a-key"))


@mcp.tool
def echo(text: str) -> str:
    return text
