"""Hinge's server, by its own means: `http` or `stdio`."""

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
    else:
        from benchmarks.programs.http_main import serve

        serve(server.http_app())
