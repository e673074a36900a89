"""Each place where a policy can stand, around the same tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from gemel import Client, ClientGroup, Context, ElicitFormParams, Server
from gemel.policies import Policy
from gemel.protocol.eras.base import EraName
from gemel.schema.tools import CallToolResult, Tool


def make_server(name: str = "files") -> tuple[Server, list[str]]:
    """A server, and the calls that its functions saw."""
    server = Server(name)
    ran: list[str] = []

    @server.tool(annotations={"readOnlyHint": True})
    def read(path: str) -> str:
        """Read a file."""
        ran.append(f"read {path}")
        return f"content of {path}"

    @server.tool(annotations={"readOnlyHint": False, "destructiveHint": False})
    def add(path: str, size: int = 1) -> str:
        """Add a file."""
        ran.append(f"add {path} {size}")
        return "added"

    @server.tool
    def delete(path: str) -> str:
        """Delete a file."""
        ran.append(f"delete {path}")
        return "deleted"

    @server.tool(annotations={"readOnlyHint": True})
    async def clean(ctx: Context, path: str) -> str:
        """Delete a file by another tool."""
        return (await ctx.call_tool("delete", {"path": path})).text

    return server, ran


@dataclass
class Person:
    """Who is asked, and says yes or no."""

    allows: bool = True
    asked: list[str] = field(default_factory=list)

    def __call__(self, form: ElicitFormParams, *server: str) -> dict[str, Any]:
        self.asked.append(form.message)
        return {"allow": self.allows}


@dataclass
class Caller:
    """A client, or a client group, in front of the policy, and what ran behind it."""

    list_tools: Callable[..., Any]
    _call: Callable[..., Any]
    ran: list[str]
    prefix: str = ""

    async def names(self) -> list[str]:
        """The tools that are listed, without the prefix of their server."""
        listed: list[Tool] = await self.list_tools()
        return [tool.name.removeprefix(self.prefix) for tool in listed]

    async def call(self, name: str, **arguments: Any) -> CallToolResult:
        """The result of a call, also of one that failed."""
        result: CallToolResult = await self._call(self.prefix + name, arguments, raise_on_error=False)
        return result


@asynccontextmanager
async def around_server(policy: Policy, era: EraName, person: Person | None) -> AsyncIterator[Caller]:
    server, ran = make_server()
    server.add_middleware(policy)
    async with Client(server, era=era, on_elicit=person) as client:
        yield Caller(client.list_tools, client.call_tool, ran)


@asynccontextmanager
async def around_mounted(policy: Policy, era: EraName, person: Person | None) -> AsyncIterator[Caller]:
    server, ran = make_server()
    server.add_middleware(policy)
    outer = Server("outer")
    outer.mount(server, "box")
    async with Client(outer, era=era, on_elicit=person) as client:
        yield Caller(client.list_tools, client.call_tool, ran, "box_")


@asynccontextmanager
async def around_mount(policy: Policy, era: EraName, person: Person | None) -> AsyncIterator[Caller]:
    server, ran = make_server()
    outer = Server("outer", middleware=[policy])
    outer.mount(server, "box")
    async with Client(outer, era=era, on_elicit=person) as client:
        yield Caller(client.list_tools, client.call_tool, ran, "box_")


@asynccontextmanager
async def around_proxy(policy: Policy, era: EraName, person: Person | None) -> AsyncIterator[Caller]:
    server, ran = make_server()
    proxy = Server.from_client(Client(server), name="box", middleware=[policy])
    async with Client(proxy, era=era, on_elicit=person) as client:
        yield Caller(client.list_tools, client.call_tool, ran)


@asynccontextmanager
async def around_proxy_with_prefix(policy: Policy, era: EraName, person: Person | None) -> AsyncIterator[Caller]:
    server, ran = make_server()
    proxy = Server.from_client(Client(server), prefix="box", middleware=[policy])
    async with Client(proxy, era=era, on_elicit=person) as client:
        yield Caller(client.list_tools, client.call_tool, ran, "box_")


@asynccontextmanager
async def around_gateway(policy: Policy, era: EraName, person: Person | None) -> AsyncIterator[Caller]:
    server, ran = make_server()
    gateway = Server("gateway", middleware=[policy])
    gateway.mount(Server.from_client(Client(server), name="box"), "box")
    gateway.mount(make_server()[0], "other")
    async with Client(gateway, era=era, on_elicit=person) as client:

        async def listed() -> list[Tool]:
            return [tool for tool in await client.list_tools() if tool.name.startswith("box_")]

        yield Caller(listed, client.call_tool, ran, "box_")


@asynccontextmanager
async def around_client(policy: Policy, era: EraName, person: Person | None) -> AsyncIterator[Caller]:
    server, ran = make_server()
    async with Client(server, era=era, on_elicit=person, middleware=[policy]) as client:
        yield Caller(client.list_tools, client.call_tool, ran)


@asynccontextmanager
async def around_group(policy: Policy, era: EraName, person: Person | None) -> AsyncIterator[Caller]:
    server, ran = make_server()
    async with ClientGroup({"box": server}, era=era, on_elicit=person, middleware=[policy]) as group:
        yield Caller(group.list_tools, group.call_tool, ran)


SERVER_PLACES = (around_server, around_mounted, around_mount, around_proxy, around_proxy_with_prefix, around_gateway)
CLIENT_PLACES = (around_client, around_group)
PLACES = (*SERVER_PLACES, *CLIENT_PLACES)
