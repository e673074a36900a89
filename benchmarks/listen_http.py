"""Listens to the changes of servers that share a backend, and has one of them announce changes, one after the other.

Reads a number of seconds per line, and prints for how many notifications of how many changes they were enough, as JSON. Run it
through `cases.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import time
from functools import partial

from benchmarks.wire import http_change, http_listen

_ACKNOWLEDGED, _CHANGED = b"notifications/subscriptions/acknowledged", b"notifications/tools/list_changed"
#: Seconds in which all are told.
PATIENCE = 20.0


class Listeners:
    """What the connections have in common: how many were told since the last change."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.told = 0
        self.all_told = asyncio.Event()

    def tell(self, number: int) -> None:
        self.told += number
        if self.told >= self.count:
            self.all_told.set()

    async def wait(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.all_told.wait()
        self.told -= self.count
        self.all_told.clear()
        assert self.told == 0, "a listener was told twice"


class Listener(asyncio.Protocol):
    """One stream of changes."""

    def __init__(self, listeners: Listeners, number: int, port: int) -> None:
        self.listeners = listeners
        self.request = http_listen(number, port)
        self.text = _ACKNOWLEDGED

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self.request)  # type: ignore[attr-defined]  # a stream transport, whatever the loop calls its class

    def data_received(self, data: bytes) -> None:
        # An event of this size arrives whole on the loopback interface, and the head with the first one.
        number = data.count(self.text)
        self.text = _CHANGED
        self.listeners.tell(number)

    def connection_lost(self, exc: Exception | None) -> None:
        sys.exit(f"the server closed a stream ({exc})")


async def measure(ports: list[int], count: int) -> None:
    """Connect, then work on command."""
    loop = asyncio.get_running_loop()
    listeners = Listeners(count)
    for number in range(count):
        port = ports[number % len(ports)]
        await loop.create_connection(partial(Listener, listeners, number, port), "127.0.0.1", port)
    await listeners.wait()
    reader, writer = await asyncio.open_connection("127.0.0.1", ports[0])

    async def change(number: int) -> None:
        writer.write(http_change(number, ports[0]))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
        await listeners.wait()

    await asyncio.sleep(1.0)  # what a backend tells when it is connected
    listeners.told = 0
    listeners.all_told.clear()
    for number in range(3):
        await change(number)
    print("ready", flush=True)
    gc.disable()
    while line := await asyncio.to_thread(sys.stdin.readline):
        times: list[float] = []
        begin = time.perf_counter()
        while time.perf_counter() - begin < float(line):
            before = time.perf_counter()
            await change(len(times))
            times.append(time.perf_counter() - before)
        seconds = time.perf_counter() - begin
        figures = {"told": count * len(times), "seconds": seconds, "p50": sorted(times)[len(times) // 2]}
        print(json.dumps(figures), flush=True)


def main() -> None:
    """Read the options, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, nargs="+", required=True, help="the ports of the servers")
    parser.add_argument("--listeners", type=int, required=True, help="how many streams, in turn at each server")
    options = parser.parse_args()
    import uvloop

    uvloop.run(measure(options.port, options.listeners))


if __name__ == "__main__":
    main()
