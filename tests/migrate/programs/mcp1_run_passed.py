# lists: ping
# becomes: anyio.run(mcp.run_async)
# becomes: anyio.run(lambda: mcp.run_async("http", path="/h", port=9000))
# becomes: anyio.run(lambda: mcp.run_async("http", sse_path="/s", port=9000))
# becomes: mcp.run("http", sse_path="/s", port=9000)
# becomes: mcp.http_app(path="/h")
# becomes: mcp.http_app(sse_path="/s")
import sys

import anyio
from mcp.server.fastmcp import FastMCP

mcp = FastMCP("passed", port=9000, sse_path="/s", streamable_http_path="/h")


@mcp.tool()
def ping() -> str:
    return "pong"


def apps() -> list:
    return [mcp.streamable_http_app(), mcp.sse_app()]


def main() -> None:
    if "--http" in sys.argv:
        anyio.run(mcp.run_streamable_http_async)
    elif "--sse" in sys.argv:
        anyio.run(mcp.run_sse_async)
    elif "--legacy" in sys.argv:
        mcp.run("sse")
    else:
        anyio.run(mcp.run_stdio_async)


if __name__ == "__main__":
    main()
