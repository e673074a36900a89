"""A client: list tools, call them with typed results, receive progress, handle errors. Run this file."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from gemel import CallTimeout, Client, ProgressParams, ToolCallError

HERE = Path(__file__).parent


@dataclass
class Day:
    """One day of the result. Fields of the server that are not declared here are ignored."""

    name: str
    high: float


@dataclass
class Forecast:
    """The result of the tool `forecast`."""

    city: str
    days: list[Day]


def show(progress: ProgressParams) -> None:
    """Print a progress notification."""
    print(f"  {progress.progress:g} of {progress.total or 0:g}: {progress.message}")


async def main(target: str | Path) -> None:
    """Call a server with the tools of `demo_server.py`: a file, a command line, a URL or a Server object."""
    async with Client(target) as client:
        about = client.server_info
        print(f"{about.name if about else 'a server'}, protocol {client.protocol_version}")
        for tool in await client.list_tools():
            print(f"  {tool.name}: {(tool.description or '').splitlines()[0]}")

        found = (await client.call_tool("forecast", {"city": "Oslo"}, returns=Forecast)).data
        print(f"{found.city}: " + ", ".join(f"{day.name} {day.high}°" for day in found.days))

        print((await client.call_tool("tour", on_progress=show)).text)

        try:
            await client.call_tool("wait", {"name": "client"}, total=0.2)
        except CallTimeout as late:
            print(f"{late}; the outcome is {late.outcome.value}")
        try:
            await client.call_tool("forecast", {"city": "Oslo", "days": 30})
        except ToolCallError as failed:
            print(f"the tool says: {failed}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else HERE / "demo_server.py"))
