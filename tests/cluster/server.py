"""The server of the cluster: what its clients are told must still be there at the end."""

import asyncio
import os
from typing import Any

from hinge import Changed, Context, Limits, Server
from hinge.backends import backend_for

BACKEND = os.environ["CLUSTER_BACKEND"]
#: Each run of `note` adds a line, so that one that ran twice is seen.
JOURNAL = os.environ["CLUSTER_JOURNAL"]

server = Server(
    "cluster",
    backend=BACKEND,
    state_keys=[b"a key of the whole cluster, 32 by"],
    limits=Limits(drain=3.0, keep_alive=2.0),
)
store = backend_for(BACKEND)


@server.tool
async def note(key: str, text: str) -> str:
    """Store a text. What is answered is stored."""
    journal = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, f"{key}\n".encode())
    os.close(journal)
    await store.set(f"note:{key}", text.encode(), ttl=7200)
    return key


@server.tool
async def ask(ctx: Context[Any], key: str) -> str:
    """Ask the user."""
    answer = await ctx.elicit(f"What of {key}?", str)
    return f"{key}={answer}"


@server.tool
async def count(ctx: Context[Any], to: int) -> int:
    """Count in steps of progress, each an event of the stream."""
    for number in range(1, to + 1):
        await ctx.report_progress(number, to)
        await asyncio.sleep(0.05)
    return to


@server.tool
async def change(name: str) -> str:
    """Tell all subscribers that a resource has changed. Returns the process that does."""
    server.notify(Changed("resource", f"cluster://{name}"))
    return str(os.getpid())


@server.resource("cluster://{name}")
async def resource(name: str) -> str:
    """Something to subscribe to."""
    return name
