# only: rewrite
# notes: AuthSettings(validate_token_resource=…)
# notes: Gemel keeps no accounts itself
# notes: TokenAuth takes a function
from elsewhere import Provider, Verifier

from mcp.server import MCPServer
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings


class Tokens(TokenVerifier):
    async def verify_token(self, token: str) -> AccessToken | None:
        return None


bound = MCPServer(
    "bound",
    token_verifier=Tokens(),
    auth=AuthSettings(
        issuer_url="https://login.example.com", resource_server_url="https://example.com", validate_token_resource=True
    ),
)
foreign = MCPServer(
    "foreign",
    token_verifier=Verifier(),
    auth=AuthSettings(issuer_url="https://login.example.com", resource_server_url="https://example.com"),
)
accounts = MCPServer(
    "accounts",
    auth_server_provider=Provider(),
    auth=AuthSettings(issuer_url="https://login.example.com", resource_server_url="https://example.com"),
)
