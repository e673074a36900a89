"""Runs an in-memory case on command: reads a number of seconds per line, or of calls, prints the figures of that run.

Only the standard library: it runs in the peers' environment too.
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable


async def on_command(call: Callable[[int], Awaitable[int]]) -> None:
    """`call(n)` goes through client and server and comes back with the tool's value."""
    for number in range(200):
        assert await call(number) == number + 7, "wrong answer"
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        amount, _, calls_wanted = line.partition(" ")
        gc.collect()
        calls, cpu, begin = 0, time.process_time(), time.perf_counter()
        while (calls if calls_wanted else time.perf_counter() - begin) < float(amount):
            for number in range(50):
                assert await call(number) == number + 7, "wrong answer"
            calls += 50
        taken = time.perf_counter() - begin
        figures = {"calls": calls, "seconds": taken, "cpu": time.process_time() - cpu, "checked": calls}
        print(json.dumps(figures), flush=True)
