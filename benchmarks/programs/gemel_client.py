"""Gemel's client over HTTP without sockets, or a raw POST on its connections, which is decoded: `client` or `post`."""

import asyncio
import sys

from benchmarks.paths import PATHS
from benchmarks.programs.memory_main import on_command


async def main(path: str) -> None:
    async with PATHS[path]() as one:

        async def call(number: int) -> int:
            await one()  # it looks at the answer itself
            return number + 7

        await on_command(call)


asyncio.run(main(sys.argv[1]))
