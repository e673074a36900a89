# lists: whoami
# becomes: issuer=ISSUER.rstrip('/') + "/oauth/2.1"
# becomes: endpoint=ISSUER.rstrip('/') + "/oauth/2.1/introspect"
# becomes: audience="http://127.0.0.1:8000/mcp"
# becomes: remember=0
# notes: the authorization server has to write it
import os

from fastmcp import FastMCP
from fastmcp.server.auth.providers.propelauth import PropelAuthProvider
from fastmcp.server.dependencies import get_access_token

ISSUER = os.environ.get("ISSUER", "https://login.example.com")
mcp = FastMCP(
    "notes",
    auth=PropelAuthProvider(
        auth_url=ISSUER,
        introspection_client_id="notes",
        introspection_client_secret="a-secret",
        base_url="http://127.0.0.1:8000",
    ),
)


@mcp.tool
def whoami() -> str:
    token = get_access_token()
    return token.claims["sub"] if token else "nobody"
