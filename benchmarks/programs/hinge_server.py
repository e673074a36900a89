"""Hinge's server, as users start it (`http`, `stdio`), and its ASGI app in the HTTP server of all others (`asgi`)."""

import sys

from hinge import Server

server = Server("bench", version="1")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
    elif sys.argv[1] == "http":
        server.run("http", port=0, announce=lambda url: print(url.split(":")[2].split("/")[0], flush=True))
    else:
        from benchmarks.programs.http_main import serve

        serve(server.http_app())
