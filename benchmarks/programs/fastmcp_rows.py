"""FastMCP in `benchmarks.run`: a server (`http`, `http-json`, `many`, `token`), a client of another one (`client URL`), one in
between (`proxy URL`, `gateway URL…`)."""

import sys
from contextlib import asynccontextmanager

from fastmcp import Client, Context, FastMCP
from fastmcp.server import create_proxy
from fastmcp.utilities.logging import configure_logging

from benchmarks.programs import peer_main
from benchmarks.programs.http_main import serve
from benchmarks.programs.peer_main import Order, Receipt, receipt_for


def make(**options) -> FastMCP:
    server = FastMCP("bench", **options)

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def order(order: Order) -> Receipt:
        """Order articles."""
        return receipt_for(order)

    @server.tool(output_schema=None)
    async def report(a: int, b: int) -> str:
        """Return a long text."""
        return peer_main.REPORT

    @server.tool
    async def steps(a: int, b: int, ctx: Context) -> int:
        """Add two numbers in many steps."""
        for step in range(peer_main.STEPS):
            await ctx.report_progress(step + 1, peer_main.STEPS, f"step {step + 1}")
        return a + b

    return server


def make_many() -> FastMCP:
    server = FastMCP("bench")

    async def add(a: int, b: int, note: str = "") -> int:
        """Add two numbers, and note why."""
        return a + b

    for number in range(peer_main.TOOLS):
        server.tool(add, name=f"add_{number}" if number else "add")
    return server


def serve_with_token() -> None:
    import jwt
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from fastmcp.server.auth.providers.jwt import JWTVerifier

    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    auth = JWTVerifier(
        public_key=public.decode(),
        algorithm="ES256",
        issuer=peer_main.ISSUER,
        audience=peer_main.AUDIENCE,
        required_scopes=[peer_main.SCOPE],
    )
    tokens = peer_main.tokens(lambda claims: jwt.encode(claims, key, "ES256", {"typ": "at+jwt"}))
    serve(make(auth=auth).http_app(), *tokens)


@asynccontextmanager
async def client(url: str):
    async with Client(url) as client:
        await client.list_tools()

        async def call(number: int) -> int:
            return int((await client.call_tool("add", {"a": number, "b": 7})).structured_content["result"])

        yield call


def main(mode: str, *urls: str) -> None:
    configure_logging("WARNING")
    if mode == "client":
        peer_main.call_on_command(client(*urls))
    elif mode == "many":
        serve(make_many().http_app())
    elif mode == "token":
        serve_with_token()
    elif mode == "proxy":
        serve(create_proxy(*urls).http_app())
    elif mode == "gateway":
        server = FastMCP("gateway")
        for number, url in enumerate(urls):
            server.mount(create_proxy(url), f"s{number}")
        serve(server.http_app())
    else:
        serve(make().http_app(json_response=mode == "http-json"))


if __name__ == "__main__":
    main(*sys.argv[1:])
