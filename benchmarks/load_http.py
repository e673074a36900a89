"""The HTTP load: a program that keeps N connections busy with one prebuilt call each and counts right answers.

The calls are those of four clients, see `traffic.py`: each connection belongs to one of them. In repeated traffic a client sends
the same bytes again and again.

It parses no more of a response than its framing; about 10 µs per call, so that the server is what is measured.
Prints one JSON object. Run it through `cases.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from functools import partial

from benchmarks.clocks import cpu_seconds
from benchmarks.traffic import CLIENTS, Call, calls
from benchmarks.wire import TOOLS, WrongAnswer, check_http, open_session

#: Every so many answers of a connection one is decoded and compared.
SAMPLE = 251
#: Different calls that are prepared, of all connections together.
DIFFERENT = 4000


class Load:
    """What all connections share: the requests, the time, the counters."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.tool = TOOLS[options.tool]
        self.mark = b"structuredContent" if self.tool.structured else b'"content"'
        #: The calls of each kind of connection.
        self.calls: list[list[Call]]
        if options.sessions:
            sessions = [open_session(options.port) for _ in range(options.sessions)]
            self.calls = [self._calls(options, number, session) for number, session in enumerate(sessions)]
        else:
            self.calls = [self._calls(options, number) for number in range(len(CLIENTS))]
        self.running = True
        self.answered = 0
        self.checked = 0
        self.times: list[float] = []
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _calls(self, options: argparse.Namespace, number: int, session: str | None = None) -> list[Call]:
        """The calls of one kind of connection."""
        count = 1 if options.repeated else DIFFERENT // (options.sessions or len(CLIENTS))
        client = list(CLIENTS)[number % len(CLIENTS)]
        return calls(
            client,
            count,
            options.port,
            seed=number,
            tokens=options.token,
            session=session,
            events=options.events,
            tool=options.tool,
            prefix=options.prefix,
        )

    def fail(self, error: Exception) -> None:
        if not self.failed.done() and self.running:
            self.failed.set_exception(error)


class Connection(asyncio.Protocol):
    """One kept connection with one call in flight."""

    transport: asyncio.Transport

    def __init__(self, load: Load, first: int) -> None:
        self.load = load
        self.calls = load.calls[first % len(load.calls)]
        self.next = first * len(self.calls) // 32 % len(self.calls)
        self.answers = 0
        self.buffer = b""
        self.sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # a stream transport, whatever the loop calls its class
        self.ask()

    def ask(self) -> None:
        self.sent = time.perf_counter()
        self.transport.write(self.calls[self.next].request)

    def data_received(self, data: bytes) -> None:
        self.buffer = buffer = self.buffer + data if self.buffer else data
        end = buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        body = content(buffer, end)
        if body is None:
            return
        load = self.load
        load.times.append(time.perf_counter() - self.sent)
        load.answered += 1
        if self.answers % SAMPLE == 0 or b'"result"' not in body or load.mark not in body:
            self.compare(buffer[:end], body)
        self.answers += 1
        self.buffer = b""
        self.next = (self.next + 1) % len(self.calls)
        if load.running:
            self.ask()

    def compare(self, head: bytes, body: bytes) -> None:
        try:
            check_http(head, body, self.calls[self.next].number, self.load.tool)
            self.load.checked += 1
        except WrongAnswer as wrong:
            self.load.fail(wrong)

    def connection_lost(self, exc: Exception | None) -> None:
        self.load.fail(ConnectionError(f"the server closed a connection under load ({exc})"))


def content(buffer: bytes, end: int) -> bytes | None:
    """The content of the response, or None while some of it is missing. `end` is where its head ends."""
    head = buffer[:end].lower()
    at = head.find(b"content-length:")
    start = end + 4
    if at >= 0:
        stop = start + int(head[at + 15 :].split(b"\r\n", 1)[0])
        return buffer[start:stop] if len(buffer) >= stop else None
    pieces: list[bytes] = []
    while (line := buffer.find(b"\r\n", start)) >= 0:
        size = int(buffer[start:line], 16)
        stop = line + 2 + size
        if len(buffer) < stop + 2:
            return None
        if size == 0:
            return b"".join(pieces)
        pieces.append(buffer[line + 2 : stop])
        start = stop + 2
    return None


async def measure(options: argparse.Namespace) -> dict[str, float]:
    """Connect, warm up, count for the given time; the servers' CPU time is read at the same two moments."""
    load = Load(options)
    loop = asyncio.get_running_loop()
    for number in range(options.connections):
        await loop.create_connection(partial(Connection, load, number), "127.0.0.1", options.port)
    gc.disable()
    await asyncio.wait([load.failed], timeout=options.warm)
    answered, cpu, own, begin = load.answered, cpu_seconds(options.pid), time.process_time(), time.perf_counter()
    load.times.clear()
    await asyncio.wait([load.failed], timeout=options.seconds)
    while load.answered == answered and not load.failed.done():  # a slow server on a busy machine
        await asyncio.wait([load.failed], timeout=options.seconds)
    seconds = time.perf_counter() - begin
    result = {
        "calls": load.answered - answered,
        "seconds": seconds,
        "cpu": cpu_seconds(options.pid) - cpu,
        "driver_cpu": time.process_time() - own,
        "checked": load.checked,
    }
    times = sorted(load.times)
    load.running = False
    if load.failed.done():
        load.failed.result()
    if times:
        result |= {"p50": times[len(times) // 2], "p99": times[int(len(times) * 0.99)]}
    return result


def main() -> None:
    """Read the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, action="append", required=True, help="a process of the server (repeatable)")
    parser.add_argument("--token", action="append", default=[], help="an access token of a caller (repeatable)")
    parser.add_argument("--repeated", action="store_true", help="each client sends the same call again and again")
    parser.add_argument("--sessions", type=int, default=0, help="sessions of revision 2025-11-25 that make the calls")
    parser.add_argument("--events", action="store_true", help="take event streams only, in sessions")
    parser.add_argument("--tool", choices=TOOLS, default="add", help="the tool that is called")
    parser.add_argument("--prefix", default="", help="what a gateway has put before its name")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--warm", type=float, default=0.3)
    options = parser.parse_args()
    import uvloop

    print(json.dumps(uvloop.run(measure(options))))


if __name__ == "__main__":
    main()
