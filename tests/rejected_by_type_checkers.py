"""Misspelt options of public entry points: mypy and pyright reject each line.

Nothing here is run. A checker that accepts one of the lines complains about its unused comment.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from typing import Any

from gemel import Client, ClientGroup, ClientPool, Context, Server
from gemel import sync as blocking
from gemel.openapi import server_from


def misspelt(server: Server) -> None:
    """Each line is refused by `make check`."""
    Server("x", instruction="x")  # type: ignore[call-arg]  # instructions
    Server("x", page_size="5")  # type: ignore[arg-type]  # a whole number
    server.run("http", prot=3)  # type: ignore[call-overload]  # port
    server.run("http", port="3")  # type: ignore[call-overload]  # a whole number
    server.run("stdio", port=3)  # type: ignore[call-overload]  # stdio has no port
    server.run("socket", workers=3)  # type: ignore[call-overload]  # HTTP's
    server.http_app(session=False)  # type: ignore[call-arg]  # sessions
    Server.from_client("https://host/mcp", header=["x"])  # type: ignore[call-arg]  # headers
    server_from({}, base="https://host")  # type: ignore[call-arg]  # base_url
    Client("x", on_elict=None)  # type: ignore[call-arg]  # on_elicit
    Client("x", on_drift=lambda differences: differences.text)  # type: ignore[attr-defined]  # a sequence of Difference
    Client("x", lock=3)  # type: ignore[arg-type]  # a path or a contract
    Client("x", era="2024")  # type: ignore[arg-type]  # 2025 or 2026
    Client("x", header={})  # type: ignore[call-arg]  # headers
    ClientGroup({}, concurrent=3)  # type: ignore[call-arg]  # concurrency
    ClientPool("x", waiting=3)  # type: ignore[call-arg]  # wait
    client = blocking.Client("x", on_elict=None)  # type: ignore[call-arg]  # on_elicit
    client.call_tool("x", {}, idel=3)  # type: ignore[call-overload]  # idle
    client.request("x", saef=True)  # type: ignore[call-arg]  # safe
    word: str = client.call_tool("x", returns=int).data  # type: ignore[assignment]  # an int
    client.call_tool("x").data[word]
    client.request("x", result=int) + client.request("x")  # type: ignore[operator]  # an int and a dict


def state_of_the_lifespan(server: Server[int]) -> None:
    """A middleware sees the type of the server's lifespan state."""

    @server.add_middleware
    async def middleware(ctx: Context[int], call_next: Any) -> Any:
        ctx.state.upper()  # type: ignore[attr-defined]  # an int
        return await call_next(ctx.replace())

    async def other(ctx: Context[str], call_next: Any) -> Any: ...

    server.add_middleware(other)  # type: ignore[arg-type]  # for another state
    Server[int]("x", middleware=[other])  # type: ignore[list-item]  # for another state
