# lists: whoami
# call: whoami {} = "nobody"
# becomes: JWTAuth(
# becomes: audience="http://127.0.0.1:8000/mcp"
# becomes: required_scopes=["openid"]
# becomes: token = current_context().caller
# notes: the authorization server has to write it
import os

from fastmcp import FastMCP
from fastmcp.server.auth.providers.keycloak import KeycloakAuthProvider
from fastmcp.server.dependencies import get_access_token

auth = KeycloakAuthProvider(
    realm_url=os.environ.get("ISSUER", "https://login.example.com/realms/notes/"),
    base_url="http://127.0.0.1:8000",
    # The audience is the URL of the server.
)
mcp = FastMCP("notes", auth=auth)


@mcp.tool
def whoami() -> str:
    token = get_access_token()
    if token is None:
        return "nobody"
    return f"{token.subject} of {token.claims['iss']}: {', '.join(token.scopes)}, {token.expires_at}"
