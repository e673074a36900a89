"""A program with many processes that share one stored login: `python login_processes.py COUNT URL CALLS STORE`.

All of them begin when the program reads a line. Each prints one line: what its calls returned, or its error. STORE is a directory,
or the URL of a SQLite backend.
"""

from __future__ import annotations

import asyncio
import os
import sys

from gemel import AuthorizationFailed, Client
from gemel.auth import BackendTokenStore, FileTokenStore, OAuth, TokenStore
from gemel.backends import backend_for

KEYS = [b"k" * 32]


class Nobody:
    """There is nobody who could log in."""

    redirect_uri = "http://localhost:8765/callback"

    async def authorize(self, url: str) -> str:
        """See `Authorizer`."""
        raise AuthorizationFailed("logged out")


def store_at(place: str) -> TokenStore:
    """The store of a process."""
    if place.startswith("sqlite:"):
        return BackendTokenStore(backend_for(place), keys=KEYS)
    return FileTokenStore(place)


async def call(url: str, calls: int, place: str) -> str:
    """Call a tool several times at once."""
    async with Client(url, auth=OAuth(authorizer=Nobody(), store=store_at(place))) as client:
        results = await asyncio.gather(*(client.call_tool("read") for _ in range(calls)))
        return f"{len(results)} calls"


def main() -> None:
    """Fork the processes, and let them begin."""
    count, url, calls, place = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    begin = os.pipe()
    children = []
    for _ in range(count):
        pid = os.fork()
        if not pid:
            os.close(begin[1])
            os.read(begin[0], 1)  # ends when the parent closes its end
            try:
                line = asyncio.run(call(url, calls, place))
            except BaseException as exc:
                line = f"{type(exc).__name__}: {exc}"
            os.write(1, f"{line}\n".encode())
            os._exit(0)
        children.append(pid)
    print("ready", *children, flush=True)
    sys.stdin.readline()
    os.close(begin[1])
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
