"""Gemel in `benchmarks.run`: a server (`http`, `many`, `token`), a client of another one (`client URL`), one in between
(`proxy URL`, `gateway URL…`)."""

import sys
from contextlib import asynccontextmanager

from benchmarks.programs import peer_main
from benchmarks.programs.peer_main import Order, Receipt, receipt_for
from gemel import Client, Context, Server


def make(**options) -> Server:
    server = Server("bench", version="1", **options)

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def order(order: Order) -> Receipt:
        """Order articles."""
        return receipt_for(order)

    @server.tool
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


def make_many() -> Server:
    server = Server("bench", version="1")

    async def add(a: int, b: int, note: str = "") -> int:
        """Add two numbers, and note why."""
        return a + b

    for number in range(peer_main.TOOLS):
        server.tool(add, name=f"add_{number}" if number else "add")
    return server


@asynccontextmanager
async def client(url: str):
    async with Client(url) as client:
        await client.list_tools()

        async def call(number: int) -> int:
            return int((await client.call_tool("add", {"a": number, "b": 7})).structured_content["result"])

        yield call


def serve(server: Server, *tokens: str) -> None:
    server.run("http", port=0, announce=lambda url: print(url.split(":")[2].split("/")[0], *tokens, flush=True))


def main(mode: str, *urls: str) -> None:
    if mode == "client":
        peer_main.call_on_command(client(*urls))
    elif mode == "many":
        serve(make_many())
    elif mode == "token":
        from gemel.auth import JWTAuth, jose

        key = jose.generate_key("ES256")
        tokens = peer_main.tokens(lambda claims: jose.sign_jwt(claims, key, header={"typ": "at+jwt"}))
        auth = JWTAuth(
            issuer=peer_main.ISSUER,
            audience=peer_main.AUDIENCE,
            required_scopes=[peer_main.SCOPE],
            keys=jose.public_jwk(key),
        )
        serve(make(auth=auth), *tokens)
    elif mode == "proxy":
        serve(Server.from_client(*urls))
    elif mode == "gateway":
        serve(Server.from_config({"mcpServers": {f"s{number}": {"url": url} for number, url in enumerate(urls)}}))
    else:
        serve(make())


if __name__ == "__main__":
    main(*sys.argv[1:])
