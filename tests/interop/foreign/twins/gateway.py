"""The twin of examples/servers/gateway.py in FastMCP."""

import json
import os
from pathlib import Path

from fastmcp.server import create_proxy

config = json.loads(Path(os.environ.get("GATEWAY", "mcp.json")).read_text())
mcp = create_proxy(config, name="gateway")

if __name__ == "__main__":
    mcp.run()
