"""Gemel's server over HTTP with a backend: `gemel_shared.py URL`. Besides the tool that everybody has, some that need the backend.

Its tool `operations` returns what the server has asked of the backend since the last time: names, with what they were about.
"""

import sys
from typing import Any

from benchmarks.programs.gemel_server import make
from gemel import Changed, Context
from gemel.backends import Backend

server = make(backend=sys.argv[1])


def counted(backend: Backend, operations: list[str]) -> None:
    """Add each operation of a backend to a list, except signs of life."""
    names = "get set delete replace touch claim lease append read end_of publish"
    for name in names.split():
        method = getattr(backend, name)

        def call(*args: Any, method: Any = method, name: str = name, **options: Any) -> Any:
            about = "change" if name == "publish" else args[0].partition(":")[0]
            if about != "process":
                operations.append(f"{name} {about}")
            return method(*args, **options)

        setattr(backend, name, call)


@server.tool
def change() -> str:
    """Say that the list of tools has changed."""
    server.notify(Changed("tools"))
    return "changed"


@server.tool
async def progress(ctx: Context[Any]) -> str:
    """Report progress once."""
    await ctx.report_progress(1, 2)
    return "done"


@server.tool
async def ask(ctx: Context[Any]) -> str:
    """Ask the client for its roots."""
    return f"{len(await ctx.list_roots())} roots"


@server.resource("note://{name}")
def note(name: str) -> str:
    """A note."""
    return name


if "count" in sys.argv:
    asked: list[str] = []
    counted(server.backend, asked)

    @server.tool
    def operations() -> list[str]:
        """What the server has asked of the backend since the last time."""
        counted, asked[:] = list(asked), []
        return counted


server.run("http", port=0, announce=lambda url: print(url.split(":")[2].split("/")[0], flush=True))
