"""The twin of examples/servers/tracker.py in FastMCP."""

import json
import os
from pathlib import Path

import httpx2
from fastmcp import FastMCP
from fastmcp.server.providers.openapi import MCPType, RouteMap

document = json.loads(Path(os.environ["TRACKER_JSON"]).read_text())
client = httpx2.AsyncClient(
    base_url=os.environ.get("TRACKER_URL", document["servers"][0]["url"]),
    headers={"Authorization": f"Bearer {os.environ['TRACKER_TOKEN']}"},
)
mcp = FastMCP.from_openapi(
    document,
    client,
    name="Tracker",
    route_maps=[RouteMap(methods=["DELETE"], mcp_type=MCPType.EXCLUDE)],
)

if __name__ == "__main__":
    mcp.run()
