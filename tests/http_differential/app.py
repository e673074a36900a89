"""An app that says which request it got, and the servers that run it: `python -m tests.http_differential.app SERVER PORT`."""

from __future__ import annotations

import asyncio
import importlib
import json
import socket
import sys
from typing import Any

SERVERS = ("gemel", "uvicorn-h11", "uvicorn-httptools", "granian")


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer with what arrived: method, path and body."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    body = b""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        more = message.get("more_body", False)
    path = scope["path"] + ("?" + scope["query_string"].decode("latin-1") if scope["query_string"] else "")
    text = json.dumps({"method": scope["method"], "path": path, "body": body.decode("latin-1")}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})


async def serve_gemel(port: int) -> None:
    """Serve with the HTTP server of this project."""
    from gemel.http1.server.listener import Listener

    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    listening.setblocking(False)
    listener = Listener(lambda request: app(request.scope, request.receive, request.send), 64 * 1024)
    await listener.open([listening], None)
    await asyncio.Event().wait()


def main(server: str, port: int) -> None:
    """Run a server."""
    if server == "gemel":
        asyncio.run(serve_gemel(port))
    elif server.startswith("uvicorn-"):
        import uvicorn

        http: Any = server.removeprefix("uvicorn-")
        uvicorn.run(app, port=port, http=http, log_level="critical")
    else:
        granian: Any = importlib.import_module("granian")  # which need not be installed
        granian.Granian("tests.http_differential.app:app", port=port, interface="asgi", log_enabled=False).serve()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
