# lists: whoami
# call: whoami {} = "nobody"
# becomes: class Tokens:
# becomes: Tokens().verify_token,
# becomes: authorization_servers=["https://login.example.com"]
# becomes: resource="http://127.0.0.1:8000/mcp"
# becomes: required_scopes=["notes"]
# becomes: remember=0
from pydantic import AnyHttpUrl

from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings

KNOWN = {
    "good": AccessToken(token="good", client_id="app", scopes=["notes", "admin"], subject="ann"),
    "weak": AccessToken(token="weak", client_id="app", scopes=[]),
    "old": AccessToken(token="old", client_id="app", scopes=["notes"], expires_at=1),
}


class Tokens(TokenVerifier):
    async def verify_token(self, token: str) -> AccessToken | None:
        return KNOWN.get(token)


settings = AuthSettings(
    issuer_url=AnyHttpUrl("https://login.example.com"),
    resource_server_url=AnyHttpUrl("http://127.0.0.1:8000/mcp"),
    required_scopes=["notes"],
    validate_token_resource=False,
)
mcp = MCPServer("notes", token_verifier=Tokens(), auth=settings)


@mcp.tool()
def whoami() -> str:
    token = get_access_token()
    if token is None:
        return "nobody"
    return f"{token.subject} by {token.client_id}: {' '.join(sorted(token.scopes))}"
