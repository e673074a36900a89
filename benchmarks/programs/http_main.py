"""Serves an ASGI app for the benchmark: the same uvicorn with the same options for everybody, a port of its own choice.

Only the standard library and uvicorn: it runs in the peers' environment too.
"""

import socket
from typing import Any


def serve(app: Any, *tokens: str) -> None:
    """Print the port, and access tokens if there are any, then serve until a signal comes."""
    import uvicorn

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        log_level="warning",
        access_log=False,
        timeout_keep_alive=60,
        proxy_headers=False,
    )
    print(listener.getsockname()[1], *tokens, flush=True)
    uvicorn.Server(config).run(sockets=[listener])
