# lists: whoami
# call: whoami {} = "nobody"
# becomes: class Tokens:
# becomes: TokenAuth(Tokens().verify_token, resource="http://127.0.0.1:8000/mcp", required_scopes=["notes"], remember=0)
# becomes: Principal(
from fastmcp import FastMCP
from fastmcp.server.auth import AccessToken, TokenVerifier
from fastmcp.server.dependencies import get_access_token


class Tokens(TokenVerifier):
    """It needs nothing of its base."""

    async def verify_token(self, token: str) -> AccessToken | None:
        known = {"good": "ann", "weak": "bob"}
        if token not in known:
            return None
        scopes = ["notes"] if token == "good" else []
        return AccessToken(token=token, client_id="app", scopes=scopes, subject=known[token], claims={"team": "a"})


mcp = FastMCP("notes", auth=Tokens(required_scopes=["notes"], base_url="http://127.0.0.1:8000"))


@mcp.tool
def whoami() -> str:
    token = get_access_token()
    return f"{token.subject} {token.claims['team']}" if token is not None else "nobody"
