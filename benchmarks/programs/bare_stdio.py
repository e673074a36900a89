"""A bare asyncio loop over the two pipes: the floor over stdio."""

import asyncio
import sys

from benchmarks.programs.bare_wire import answer


async def main() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, _ = await loop.connect_write_pipe(asyncio.Protocol, sys.stdout)
    while line := await reader.readline():
        transport.write(await answer(line) + b"\n")


asyncio.run(main())
