# only: rewrite
# notes: OAuthProxy(EntraID(tenant=…
# notes: OAuthProxy(GitHub(client_id=…
# becomes: base_url="https://example.com/notes"
# becomes: required_scopes=["repo"]
# notes: Server(auth=…)
from fastmcp import FastMCP
from fastmcp.server.auth.providers.azure import AzureProvider
from fastmcp.server.auth.providers.github import GitHubProvider

mcp = FastMCP(
    "notes",
    auth=GitHubProvider(client_id="0123", client_secret="x", base_url="https://example.com", required_scopes=["repo"]),
)
behind = FastMCP(
    "behind", auth=GitHubProvider(client_id="0123", client_secret="x", base_url="https://example.com/notes")
)
other = FastMCP(
    "other",
    auth=AzureProvider(
        client_id="0123", client_secret="x", tenant_id="t", required_scopes=["read"], base_url="https://example.com"
    ),
)
