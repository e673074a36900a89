"""The official SDK in `benchmarks.run`: a server (`http`, `http-json`, `many`, `token`), a client of another one (`client URL`)."""

import sys
from contextlib import asynccontextmanager

from mcp import Client
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from benchmarks.programs import peer_main
from benchmarks.programs.http_main import serve
from benchmarks.programs.peer_main import Order, Receipt, receipt_for


def make(**options) -> MCPServer:
    server = MCPServer("bench", log_level="WARNING", **options)

    @server.tool()
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    async def order(order: Order) -> Receipt:
        """Order articles."""
        return receipt_for(order)

    @server.tool(structured_output=False)
    async def report(a: int, b: int) -> str:
        """Return a long text."""
        return peer_main.REPORT

    @server.tool()
    async def steps(a: int, b: int, ctx: Context) -> int:
        """Add two numbers in many steps."""
        for step in range(peer_main.STEPS):
            await ctx.report_progress(step + 1, peer_main.STEPS, f"step {step + 1}")
        return a + b

    return server


def make_many() -> MCPServer:
    server = MCPServer("bench", log_level="WARNING")

    async def add(a: int, b: int, note: str = "") -> int:
        """Add two numbers, and note why."""
        return a + b

    for number in range(peer_main.TOOLS):
        server.add_tool(add, name=f"add_{number}" if number else "add")
    return server


def serve_with_token() -> None:
    import jwt
    from cryptography.hazmat.primitives.asymmetric import ec
    from mcp.server.auth.provider import AccessToken
    from mcp.server.auth.settings import AuthSettings

    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key()

    class Verifier:
        async def verify_token(self, token: str) -> AccessToken | None:
            try:
                claims = jwt.decode(token, public, ["ES256"], audience=peer_main.AUDIENCE, issuer=peer_main.ISSUER)
            except jwt.InvalidTokenError:
                return None
            return AccessToken(
                token=token,
                client_id=claims["client_id"],
                scopes=claims["scope"].split(),
                expires_at=claims["exp"],
                resource=claims["aud"],
                subject=claims["sub"],
                claims=claims,
            )

    auth = AuthSettings(
        issuer_url=peer_main.ISSUER,
        resource_server_url=peer_main.AUDIENCE,
        required_scopes=[peer_main.SCOPE],
        validate_token_resource=True,
    )
    tokens = peer_main.tokens(lambda claims: jwt.encode(claims, key, "ES256", {"typ": "at+jwt"}))
    serve(make(auth=auth, token_verifier=Verifier()).streamable_http_app(), *tokens)


@asynccontextmanager
async def client(url: str):
    async with Client(url) as client:
        await client.list_tools()

        async def call(number: int) -> int:
            return int((await client.call_tool("add", {"a": number, "b": 7})).structured_content["result"])

        yield call


def main(mode: str, *urls: str) -> None:
    if mode == "client":
        peer_main.call_on_command(client(*urls))
    elif mode == "many":
        serve(make_many().streamable_http_app())
    elif mode == "token":
        serve_with_token()
    else:
        serve(make().streamable_http_app(json_response=mode == "http-json"))


if __name__ == "__main__":
    main(*sys.argv[1:])
