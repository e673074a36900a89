# lists: echo
# becomes: GitHub(
# becomes: , url="https://notes.example.com/mcp")
# becomes: Discord(
# becomes: url=BASE.rstrip('/') + '/mcp'
# becomes: from gemel.auth import Discord, GitHub, OAuthProxy
# notes: allow=
import os

from fastmcp import FastMCP
from fastmcp.server.auth.providers.discord import DiscordProvider
from fastmcp.server.auth.providers.github import GitHubProvider

BASE = "http://127.0.0.1:8000/"

auth = GitHubProvider(
    client_id=os.environ.get("CLIENT_ID", "0123"),
    client_secret="a-secret",
    base_url="https://notes.example.com",
    # The redirect URI is the default one.
)
mcp = FastMCP("notes", auth=auth)


@mcp.tool
def echo(text: str) -> str:
    return text


def pool() -> FastMCP:
    """Another server, with another provider."""
    provider = DiscordProvider(client_id="0123", client_secret="a-secret", base_url=BASE)
    server = FastMCP("pool", auth=provider)
    server.tool(echo)
    return server
