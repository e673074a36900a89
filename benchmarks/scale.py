"""What clients that wait cost a process and the store that processes share: `python -m benchmarks.scale`.

`idle` is 10,000 sessions in Gemel and its peers; with `--write` it goes into docs/performance.md.

For the store, which is asked for its operations, too, two processes serve. Sessions are opened at one of them, and half of them are
used at the other one, too. These figures are counts and bytes, which other work on the machine does not change. How many writes a
second a store takes depends on its disk.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import socket
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cases import Contestant, end, spawn
from benchmarks.figures import PAGE, today, two_digits
from benchmarks.installing import peer_python
from benchmarks.stores import Store, opened_store, redis_program
from benchmarks.wire import SESSION_REVISION, WrongAnswer, http_listen, http_request, message, open_session
from gemel.backends import backend_for
from tools.measured import write_measured

_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": SESSION_REVISION,
}
#: Calls of a kind over which operations are averaged, and seconds until those are done that follow a call.
TIMES, SETTLING = 20, 0.5


class Process:
    """One process of the server."""

    def __init__(self, contestant: Contestant) -> None:
        self._process = spawn(contestant)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def request(self, session: str | None, body: bytes | None, method: str = "POST") -> http.client.HTTPResponse:
        """Send a request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request(method, "/mcp", body, _HEADERS | ({} if session is None else {"Mcp-Session-Id": session}))
        response = connection.getresponse()
        if response.status not in (200, 202, 204):
            raise WrongAnswer(f"{method} was answered with {response.status} {response.read()[:200]!r}")
        return response

    def call(self, session: str, name: str) -> Any:
        """Call a tool. Returns the structured content of its result, if it has any."""
        result = _result(self.request(session, _call(name)))
        if result.get("isError"):
            raise WrongAnswer(f"{name} was answered with {result!r}")
        return result.get("structuredContent", {}).get("result")

    @property
    def memory(self) -> int:
        """Bytes that it occupies."""
        with open(f"/proc/{self._process.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))

    def close(self) -> None:
        """End it."""
        end(self._process)


def _shared(url: str, *, count: bool = False) -> Contestant:
    """Gemel with a store, whose operations may be counted."""
    arguments = (url, "count") if count else (url,)
    return Contestant("gemel", Path(sys.executable), "gemel_shared.py", arguments)


def _call(name: str) -> bytes:
    arguments = {"a": 1, "b": 2} if name == "add" else {}
    return message("tools/call", 1, {"name": name, "arguments": arguments, "_meta": {"progressToken": "p"}})


def _messages(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    if response.getheader("Content-Type", "").startswith("application/json"):
        yield json.loads(response.read())
        return
    for line in response:
        if line.startswith(b"data:") and line[5:].strip():
            yield json.loads(line[5:])


def _result(response: http.client.HTTPResponse) -> Any:
    for received in _messages(response):
        if "result" in received:
            return received["result"]
    raise WrongAnswer("a call was not answered")


@contextmanager
def two_processes(store: Store, *, count: bool = False) -> Iterator[tuple[Process, Process]]:
    """Two processes of a server that share a store."""
    with ExitStack() as stack:
        processes = []
        for _ in range(2):
            processes.append(Process(_shared(store.url, count=count)))
            stack.callback(processes[-1].close)
        yield processes[0], processes[1]


# ---------------------------------------------------------------- clients that wait


#: Clients of each kind, at which the memory of the process is looked at, and seconds until it has freed what it can.
FEW, MANY, IDLE = 1000, 3000, 5.0
#: How many sessions are idle beside those of peers: as many as each allows by default.
SESSIONS = 10_000
#: By kind: what waits, and the most KiB that it may take.
WAITING = {
    "connection": ("idle connection", None),
    "session": ("HTTP session of 2025-11-25, without a connection", 3.0),
    "stream": ("stream of `subscriptions/listen`, with its connection", 6.0),
}


def waiting(kind: str) -> list[str]:
    """Memory of our process for each client of a kind that waits."""
    words, most = WAITING[kind]
    each = _each(_shared("memory://"), kind, FEW, MANY)
    return [words, f"{each:.1f}", "" if most is None else f"at most {most:g}: {'kept' if each <= most else 'MISSED'}"]


def idle() -> Iterator[list[str]]:
    """Memory of a process for each HTTP session that waits; yields a row for Gemel and each peer, with what it is of Gemel's."""
    pythons = {"gemel": Path(sys.executable), "mcp": peer_python("peers"), "fastmcp": peer_python("fastmcp")}
    ours = 0.0
    for name, python in pythons.items():
        each = _each(Contestant(name, python, f"{name}_rows.py", ("http",)), "session", FEW, SESSIONS)
        ours = ours or each
        yield [name, f"{each:.1f}", f"{each * SESSIONS / 1024:.0f}", two_digits(each / ours)]


def _each(contestant: Contestant, kind: str, few: int, many: int) -> float:
    """What a process occupies more with many clients than with few, in KiB for each."""
    process = Process(contestant)
    with ExitStack() as stack:
        stack.callback(process.close)
        opened = 0

        def occupied(count: int) -> int:
            nonlocal opened
            while opened < count:
                if kind == "session":
                    process.call(open_session(process.port), "add")
                else:
                    client = stack.enter_context(socket.create_connection(("127.0.0.1", process.port), 20))
                    client.sendall((http_listen if kind == "stream" else http_request)(opened, process.port))
                    if not client.recv(1 << 16).startswith(b"HTTP/1.1 200 "):
                        raise WrongAnswer(f"a {kind} could not be opened")
                opened += 1
            time.sleep(IDLE)
            return process.memory

        before = occupied(few)
        return (occupied(many) - before) / (many - few) / 1024


# ---------------------------------------------------------------- keys and bytes


class Held(NamedTuple):
    """What a store and a process hold: keys, bytes of the store, bytes of the process."""

    keys: int
    stored: int
    memory: int


def held(store: Store, process: Process) -> Held:
    """Look at a store; for SQLite, after its log was written into its file."""
    if store.url.startswith("redis"):
        from redis import Redis

        with Redis(port=int(store.url.rpartition(":")[2])) as redis:
            keys = list(redis.scan_iter(count=1000))
            stored = sum(redis.memory_usage(key, samples=0) or 0 for key in keys)
            return Held(len(keys), stored, process.memory)
    db = sqlite3.connect(store.url.removeprefix("sqlite:///"))
    db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    rows, pages, free, size = db.execute(
        "SELECT (SELECT count(*) FROM items) + (SELECT count(*) FROM logs), * FROM pragma_page_count, pragma_freelist_count, "
        "pragma_page_size"
    ).fetchone()
    db.close()
    return Held(rows, (pages - free) * size, process.memory)


def sessions(kind: str, sizes: Sequence[int]) -> Iterator[list[str]]:
    """Open sessions; yields a row for each size."""
    with opened_store(kind) as store, two_processes(store) as (first, second):
        for _ in range(20):
            warm = open_session(first.port)
            first.call(warm, "add")
            second.call(warm, "add")
        before, opened = held(store, first), 0
        for size in sizes:
            while opened < size:
                session = open_session(first.port)
                first.call(session, "add")
                if opened % 2:
                    second.call(session, "add")
                opened += 1
            now = held(store, first)
            each = [(mine - former) / size for mine, former in zip(now, before, strict=True)]
            empty = f"{before.memory / (1 << 20):.0f}"
            yield [kind, f"{size:,}", f"{each[0]:.2f}", f"{each[1]:,.0f}", f"{each[2] / 1024:,.1f}", empty]


# ---------------------------------------------------------------- writes


def writes(kind: str, seconds: float = 2.0) -> Iterator[list[str]]:
    """Append to logs; yields a row for each number of writers at once."""
    for writers in (1, 64):
        with opened_store(kind) as store:
            yield [kind, str(writers), f"{asyncio.run(_appends(store.url, writers, seconds)):,.0f}"]


async def _appends(url: str, writers: int, seconds: float) -> float:
    backend = backend_for(url)
    await backend.append("log", [b""], ttl=600)
    appended, begin = 0, time.perf_counter()

    async def write(number: int) -> None:
        nonlocal appended
        while time.perf_counter() - begin < seconds:
            await backend.append(f"log{number}", [bytes(300)], ttl=600)
            appended += 1

    await asyncio.gather(*map(write, range(writers)))
    taken = time.perf_counter() - begin
    await backend.close()
    return appended / taken


# ---------------------------------------------------------------- operations


def operations() -> Iterator[list[str]]:
    """Count the operations of each kind of call; yields a row for each. They are the same on every store."""
    with opened_store("sqlite") as store, two_processes(store, count=True) as (first, second):
        watching = open_session(first.port)

        def asked() -> Counter[str]:
            time.sleep(SETTLING)
            return Counter(first.call(watching, "operations")) + Counter(second.call(watching, "operations"))

        asked()
        asked()
        opened: list[str] = []
        numbers = iter(range(10**9))

        def ask_elsewhere(session: str) -> None:
            response = first.request(session, _call("ask"))
            for received in _messages(response):
                if received.get("method") == "roots/list":
                    answer = {"jsonrpc": "2.0", "id": received["id"], "result": {"roots": []}}
                    second.request(session, json.dumps(answer).encode()).read()

        def listen(session: str) -> None:
            response = first.request(session, None, "GET")
            time.sleep(0.05)
            response.close()
            time.sleep(0.05)

        def subscribe(session: str) -> None:
            _result(first.request(session, message("resources/subscribe", 1, {"uri": f"note://{next(numbers)}"})))

        kinds: list[tuple[str, Callable[[str], Any]]] = [
            ("`initialize` and `notifications/initialized`", lambda _: opened.append(open_session(first.port))),
            ("`tools/call`, answered with JSON", lambda session: first.call(session, "add")),
            ("the first request in another process", lambda session: second.call(session, "add")),
            ("`tools/call` with one message before its result", lambda session: first.call(session, "progress")),
            ("a question whose answer reaches another process", ask_elsewhere),
            ("`resources/subscribe`, with the session in two processes", subscribe),
            ("GET, opened and closed", listen),
            ("`server.notify`", lambda session: first.call(session, "change")),
            ("DELETE", lambda session: second.request(session, None, "DELETE").read()),
        ]
        for words, act in kinds:
            for number in range(TIMES):
                act(opened[number] if opened and number < len(opened) else "")
            if words == "DELETE":
                time.sleep(3.0)  # what is stored of a session is dropped a little later
            counts = asked()
            total = sum(counts.values()) / TIMES
            parts = ", ".join(f"{count / TIMES:.1f} {name}" for name, count in sorted(counts.items()))
            yield [words, f"{total:.1f}", parts]


def print_table(heads: Sequence[str], rows: Iterator[list[str]]) -> str:
    """Print rows as they come. Returns the table."""
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    print("\n".join(lines))
    for row in rows:
        lines.append("| " + " | ".join(row) + " |")
        print(lines[-1], flush=True)
    print()
    return "\n".join(lines)


def main() -> None:
    """Read the options, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--only", choices=["waiting", "idle", "store"], help="default: all")
    parser.add_argument("--sessions", type=int, nargs="+", default=[100, 1000], help="default: 100 1000")
    parser.add_argument("--write", action="store_true", help="write what is idle into docs/performance.md")
    options = parser.parse_args()
    if options.only in (None, "waiting"):
        print_table(["what waits", "KiB each", "target"], (waiting(kind) for kind in WAITING))
    if options.only in (None, "idle"):
        heads = ["", "KiB for each session", f"MiB for {SESSIONS:,}", "× gemel"]
        text = print_table(heads, idle())
        if options.write:
            write_measured(PAGE, "idle", f"{text}\n\n{today()}.")
    if options.only in (None, "store"):
        print_store(sorted(options.sessions))


def print_store(sizes: Sequence[int]) -> None:
    """Measure and print what concerns the store."""
    heads = [
        "store",
        "sessions",
        "keys each",
        "bytes in the store each",
        "KiB in the process each",
        "MiB of it without any",
    ]
    kinds = ["sqlite", *(["redis"] if redis_program() else [])]
    print_table(heads, (row for kind in kinds for row in sessions(kind, sizes)))
    print_table(["store", "writers at once", "appends a second"], (row for kind in kinds for row in writes(kind)))
    print_table(["what happens", "operations", "of which"], operations())


if __name__ == "__main__":
    main()
