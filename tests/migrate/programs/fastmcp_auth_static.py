# lists: admin whoami
# becomes: StaticTokens(
# becomes: token: Annotated[Principal, Depends(lambda: Principal(*current_context().caller))]
# becomes: subject: Annotated[str, Depends(lambda: str(current_context().claims["sub"]))]
# notes: where FastMCP's providers wrote the id of the user
from fastmcp import FastMCP
from fastmcp.server.auth import AccessToken, StaticTokenVerifier
from fastmcp.server.dependencies import CurrentAccessToken, TokenClaim

TOKENS = {
    "ann-token": {"client_id": "app", "scopes": ["notes", "admin"], "sub": "ann"},
    "bob-token": {"client_id": "app", "scopes": ["admin"], "sub": "bob"},
}
mcp = FastMCP("notes", auth=StaticTokenVerifier(tokens=TOKENS, required_scopes=["notes"]))


@mcp.tool
def whoami(greeting: str = "hello", subject: str = TokenClaim("sub")) -> str:
    return f"{greeting} {subject}"


@mcp.tool
def admin(token: AccessToken = CurrentAccessToken()) -> list[str]:
    return [token.client_id, *token.scopes]
