# lists: whoami
# becomes: JWTAuth(
# becomes: issuer=ISSUER
# becomes: audience="notes"
# becomes: keys=f"{ISSUER}/keys"
# becomes: algorithms=["ES256"]
# becomes: resource="http://127.0.0.1:8000/mcp"
# becomes: required_scopes=["notes"]
# becomes: def make_auth() -> TokenAuth:
import os

from pydantic import AnyHttpUrl

from fastmcp import FastMCP
from fastmcp.server.auth import RemoteAuthProvider
from fastmcp.server.auth.providers.jwt import JWTVerifier
from fastmcp.server.dependencies import get_access_token

ISSUER = os.environ.get("ISSUER", "https://login.example.com")


def make_auth() -> RemoteAuthProvider:
    verifier = JWTVerifier(
        jwks_uri=f"{ISSUER}/keys", issuer=ISSUER, audience="notes", algorithm="ES256", required_scopes=["notes"]
    )
    return RemoteAuthProvider(
        token_verifier=verifier, authorization_servers=[AnyHttpUrl(ISSUER)], base_url="http://127.0.0.1:8000"
    )


mcp = FastMCP("notes", auth=make_auth())


@mcp.tool
async def whoami() -> str:
    token = get_access_token()
    return token.claims["sub"] if token else "nobody"
