"""The server of the cluster: what its clients are told must still be there at the end."""

import asyncio
import os
from typing import Any

from gemel import Changed, Context, Limits, Server, Tasks
from gemel.backends import SqliteBackend

BACKEND = os.environ["CLUSTER_BACKEND"]
#: How large a SQLite file may become.
MAX_BYTES = int(os.environ.get("CLUSTER_MAX_BYTES", 1 << 30))
#: Each run of `note` that stores something adds a line, so that one that ran twice is seen.
JOURNAL = os.environ["CLUSTER_JOURNAL"]

server = Server(
    os.environ.get("CLUSTER_NAME", "cluster"),
    backend=SqliteBackend(BACKEND[10:], max_bytes=MAX_BYTES) if BACKEND.startswith("sqlite:///") else BACKEND,
    state_keys=[b"a key of the whole cluster, 32 by"],
    limits=Limits(drain=3.0, keep_alive=2.0),
)
server.add_extension(Tasks(poll_interval=0.5))


def log(line: str, suffix: str = "") -> None:
    """Add a line to the journal, or another file beside it."""
    journal = os.open(JOURNAL + suffix, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, f"{line}\n".encode())
    os.close(journal)


@server.tool
async def note(key: str, text: str) -> str:
    """Store a text. What is answered is stored."""
    await server.backend.set(f"note:{key}", text.encode(), ttl=7200)
    log(key)
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


async def take_steps(ctx: Context[Any], key: str, steps: int, *, retry: bool) -> str:
    """Take steps that each take a while. The journal tells when one runs, and that it was recorded."""

    async def step(number: int) -> int:
        log(f"ran {key} {number} {ctx.step.key} {'again' if retry else 'once'}", ".steps")
        await asyncio.sleep(0.4)
        return number

    numbers: list[int] = []
    for number in range(steps):
        numbers.append(await ctx.step.options(retry=retry)(step, number))
        log(f"recorded {key} {number}", ".steps")
    return f"{key}: {' '.join(map(str, numbers))}"


@server.tool(task=True)
async def job(ctx: Context[Any], key: str, steps: int) -> str:
    """Take steps, of which those that were interrupted may be repeated."""
    return await take_steps(ctx, key, steps, retry=True)


@server.tool(task=True)
async def job_with_a_question(ctx: Context[Any], key: str, steps: int) -> str:
    """Take steps, then ask."""
    return f"{await take_steps(ctx, key, steps, retry=True)} {await ctx.elicit('Well?', str)}"


@server.tool(task=True)
async def job_that_is_not_repeated(ctx: Context[Any], key: str, steps: int) -> str:
    """Take steps, of which none may be repeated."""
    return await take_steps(ctx, key, steps, retry=False)


@server.resource("cluster://{name}")
async def resource(name: str) -> str:
    """Something to subscribe to."""
    return name
