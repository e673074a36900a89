"""Load on a server over HTTP, with bounds on what it holds: `python -m tests.load.run --help`.

Bounds are bytes and counts, never seconds. Each scenario runs against a server process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from tests.hostile.cases import REVISION_2025, Json, notification, request, with_id
from tests.hostile.client_cases import expensive_values
from tests.hostile.clients import run_client_case
from tests.hostile.drivers import Posts, Response, read_reply
from tests.hostile.run import started
from tests.load.server import Constant, constants, measured

MIB = 1024 * 1024
#: How often it is looked, ten times a second, whether a server has given back what it held.
LOOKS = 100
#: Blocks that a server may keep after the load: caches, and what is made on first use.
BLOCKS = 5000
#: `Limits.replay_total` of the server.
REPLAY_TOTAL = 8 * MIB
#: All resources of the server lie below it.
PREFIX = "load://item"
#: Seconds to wait for a condition.
PATIENCE = 60.0


class Figures(NamedTuple):
    """What the server holds: bytes of memory, now and at most since the last time, open files, tasks, blocks of Python's.

    Memory that is free again may stay with the process, in parts; blocks show exactly whether something was kept.
    """

    memory: int
    peak: int
    files: int
    tasks: int
    blocks: int


class Load:
    """A server under load, and the connections to it."""

    def __init__(self, port: int) -> None:
        self.posts = Posts(f"http://127.0.0.1:{port}/mcp")
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection that `close` closes."""
        reader, writer = await asyncio.open_connection(*self.posts.address, limit=MIB)
        self._writers.append(writer)
        return reader, writer

    async def close(self) -> None:
        """Close all connections."""
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0.1)

    async def data(self, name: str, **arguments: Any) -> bytes:
        """Return the bytes of a stateless call."""
        return await self.message("tools/call", {"name": name, "arguments": arguments})

    async def message(self, method: str, params: Json) -> bytes:
        """Return the bytes of a stateless request."""
        text = request(method, params, "2026")
        headers = {**await self.posts.headers_for(text, "2026"), "Connection": None}
        return self.posts.head("POST", headers, len(text)) + text

    async def call(self, name: str, **arguments: Any) -> str:
        """Call a tool as a caller with another address than those who load the server; return its text."""
        reader, writer = await asyncio.open_connection(*self.posts.address, limit=64 * MIB, local_addr=("127.0.0.2", 0))
        try:
            async with asyncio.timeout(PATIENCE):
                writer.write(await self.data(name, **arguments))
                reply = await read_reply(reader)
        finally:
            writer.close()
        assert reply.status == 200, reply
        text: str = reply.messages[-1]["result"]["content"][0]["text"]
        return text

    async def refused(self, name: str, arguments: bytes) -> bytes:
        """Call a tool with arguments that do not fit, as JSON; return the body of the response."""
        text = request("tools/call", {"name": name, "arguments": "@ARGUMENTS@"}, "2026")
        text = text.replace(b'"@ARGUMENTS@"', arguments)
        reply = await self.posts.post(text, await self.posts.headers_for(text, "2026"))
        answer = reply.messages[-1]
        assert "error" in answer or answer["result"]["isError"], reply.body[:500]
        return reply.body

    async def session(self) -> dict[str, str | None]:
        """Open a session of the handshake era; return the headers of its requests."""
        return {"Mcp-Session-Id": await self.posts.new_session(), "MCP-Protocol-Version": REVISION_2025}

    async def figures(self) -> Figures:
        """Return what the server holds."""
        return Figures(**json.loads(await self.call("figures")))

    async def settled(self, before: Figures, *, memory: int, blocks: int = BLOCKS) -> Figures:
        """Wait until the server holds no more files and tasks than before, and not much more blocks and memory."""
        now = before
        for _ in range(LOOKS):
            now = await self.figures()
            few = now.files <= before.files + 2 and now.tasks <= before.tasks + 2
            if few and now.blocks <= before.blocks + blocks and now.memory <= before.memory + memory:
                return now
            await asyncio.sleep(0.1)
        raise AssertionError(f"the server holds {now}, after {before} before the load")


@contextlib.asynccontextmanager
async def loaded(**settings: Constant) -> AsyncIterator[Load]:
    """Start a server. `settings` are those of `tests.load.server`."""
    async with started("--http", "--set", json.dumps(settings), module="tests.load.server") as port:
        load = Load(port)
        for _ in range(20):  # what is made on first use
            await load.call("count", upto=1)
        try:
            yield load
        finally:
            await load.close()


def check(name: str, value: float, most: float) -> None:
    """Print a figure, and require that it is within its bound."""
    print(f"  {name}: {value:,.1f}, at most {most:,.1f}")
    assert value <= most, f"{name} is {value:,.1f}; at most {most:,.1f} are allowed"


async def event_of(reader: asyncio.StreamReader) -> Json:
    """Return the next message of an event stream in chunks."""
    async with asyncio.timeout(PATIENCE):
        while True:
            line = await reader.readline()
            assert line, "the stream ended"
            if line.startswith(b"data: {"):
                message: Json = json.loads(line[6:])
                return message


# ---------------------------------------------------------------- scenarios


async def streams(scale: float, **settings: Constant) -> None:
    """Many open subscriptions: no task, memory for each, the second time as well, one event for each change, nothing afterwards."""
    count = int(5000 * scale)
    async with loaded(**settings) as load:
        before = await load.figures()
        filters = {"notifications": {"resourceSubscriptions": ["load://item/1"]}}
        listen = await load.message("subscriptions/listen", filters)
        for attempt in (1, 2):
            readers = []
            for _ in range(count):
                reader, writer = await load.connect()
                writer.write(listen)
                readers.append(reader)
            acknowledged = [await event_of(reader) for reader in readers]
            assert {message["method"] for message in acknowledged} == {"notifications/subscriptions/acknowledged"}
            held = await load.figures()
            check(f"tasks of {count} streams, time {attempt}", held.tasks - before.tasks, 10)
            check(f"KiB for each of {count} streams, time {attempt}", (held.memory - before.memory) / count / 1024, 40)
            await load.call("change", first=1, number=1)
            events = [await event_of(reader) for reader in readers]
            assert {message["method"] for message in events} == {"notifications/resources/updated"}
            await load.close()
            await load.settled(before, memory=int(16 * MIB + count * 16 * 1024))


async def calls(scale: float, **settings: Constant) -> None:
    """Many calls in flight: memory for each, and for all of their bodies; each is answered, and nothing is left afterwards."""
    count, large = int(5000 * scale), 40
    async with loaded(**{"bodies": 12 * MIB, **settings}) as load:
        before = await load.figures()
        replies = await _start_waiting(load, count, b"")
        small = await load.figures()
        check(f"KiB for each of {count} calls", (small.memory - before.memory) / count / 1024, 60)
        more = await _start_waiting(load, large, b"x" * MIB)
        held = await load.figures()
        check(f"MiB for {large} calls of 1 MiB", (held.memory - small.memory) / MIB, 12)
        await load.call("release", gate="one")
        async with asyncio.timeout(PATIENCE):
            assert [(await reply).status for reply in replies] == [200] * count
            statuses = [(await reply).status for reply in more]
        assert {*statuses} <= {200, 503, 0}, statuses  # a client that still sends may see a reset
        assert statuses.count(200) >= 3
        await load.close()
        await load.settled(before, memory=int(16 * MIB + count * 8192))


async def _start_waiting(load: Load, count: int, padding: bytes) -> list[asyncio.Task[Response]]:
    """Send calls that wait at a gate, until they do or were refused. Returns what will be their responses."""
    earlier = int(await load.call("waiting", gate="one"))
    data = await load.data("wait", gate="one", padding=padding.decode())
    replies = []
    for _ in range(count):
        reader, writer = await load.connect()
        writer.write(data)
        replies.append(asyncio.create_task(read_reply(reader)))
    async with asyncio.timeout(PATIENCE):
        inside = refused = 0
        while inside + refused < count:
            inside = int(await load.call("waiting", gate="one")) - earlier
            refused = sum(reply.done() for reply in replies)
    return replies


async def slow_readers(scale: float, **settings: Constant) -> None:
    """Clients that read nothing of large answers are disconnected, and their memory is given back."""
    count = max(int(40 * scale), 4)
    async with loaded(**settings) as load:
        before = await load.figures()
        for _ in range(count):
            _, writer = await load.connect()
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket is read, too
            writer.write(await load.data("big", size=16 * MIB))  # more than the buffers of a socket
        for _ in range(20):
            assert await load.call("big", size=10) == "x" * 10
        await load.settled(before, memory=24 * MIB)


async def hints(scale: float, **settings: Constant) -> None:
    """Changes below one watched prefix do not pile up for subscribers of either era that read nothing."""
    count = int(20_000 * max(scale, 0.5))
    async with loaded(stream_wait=PATIENCE, **settings) as load:  # so that the streams are not ended meanwhile
        before = await load.figures()
        listen = await load.message("subscriptions/listen", {"notifications": {"resourceSubscriptions": [PREFIX]}})
        opened = []
        for _ in range(5):
            reader, writer = await load.connect()
            writer.write(listen)
            await event_of(reader)
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # as above
            session = await load.session()
            opened.append(session)
            watch = request("resources/subscribe", {"uri": PREFIX}).replace(b"@ID@", b"watch")
            assert "result" in (await load.posts.post(watch, session)).messages[-1]
            reader, writer = await load.connect()
            writer.write(load.posts.head("GET", {**session, "Content-Type": None, "Connection": None}, None))
            assert b" 200 " in await reader.readline()
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # as above
        for first in range(0, count, 1000):
            await load.call("change", first=first, number=1000, size=2000)
        held = await load.figures()
        check("MiB more at the height", (held.peak - before.memory) / MIB, 24)
        check("tasks for each of 10 readers", (held.tasks - before.tasks) / 10, 4)
        await load.close()
        for session in opened:
            await load.posts.end_session(session)
        # The buffer keeps the last changes, 500 of this size and as many that were dropped, for those who may come.
        await load.settled(before, memory=24 * MIB, blocks=BLOCKS + 10_000)


async def pipelines(scale: float, **settings: Constant) -> None:
    """A connection that sends requests and reads no answer is slowed down; others are served."""
    size = int(16 * MIB * max(scale, 0.5))
    async with loaded(**settings) as load:
        before = await load.figures()
        _, writer = await load.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # as above
        single = await load.data("big", size=10)

        async def flood() -> None:
            with contextlib.suppress(OSError):
                for _ in range(size // len(single) // 100):
                    writer.write(single * 100)
                    await writer.drain()

        flooding = asyncio.create_task(flood())
        for _ in range(50):
            assert await load.call("big", size=10) == "x" * 10
        most = (await load.figures()).peak
        flooding.cancel()
        await asyncio.wait([flooding])
        check("MiB more at the height", (most - before.memory) / MIB, 32)
        await load.close()
        await load.settled(before, memory=16 * MIB)


async def sessions(scale: float, **settings: Constant) -> None:
    """Sessions that keep large answers for replay share one budget, which is given back with them."""
    count = max(int(150 * scale), 12)
    async with loaded(**settings) as load:
        before = await load.figures()
        call = request("tools/call", {"name": "big", "arguments": {"size": 3 * MIB}, "_meta": {"progressToken": 1}})
        opened = []
        for _ in range(count):
            session = await load.session()
            opened.append(session)
            answered = await load.posts.post(call.replace(b"@ID@", b"big"), session)
            assert len(answered.messages[-1]["result"]["content"][0]["text"]) == 3 * MIB
        held = await load.figures()
        check("MiB that are not kept for replay", (before.memory + REPLAY_TOTAL - held.memory) / MIB, 5)
        check(f"MiB for {count} sessions", (held.memory - before.memory) / MIB, 24)
        for session in opened:
            await load.posts.end_session(session)
        await load.settled(before, memory=16 * MIB)


#: Arguments of 4 MB that do not fit, and how many times their size they may take. Those of a typed tool are decoded once.
WRONG_BODIES: dict[str, tuple[Callable[[int], Json], int]] = {
    "each item": (lambda size: {"values": ["x"] * (size // 5)}, 10),
    "the last item": (lambda size: {"values": [*[1] * (size // 3), "x"]}, 40),
    "items of a list of objects": (
        lambda size: {"values": [], "rows": [{"number": 1}] * (size // 16) + [{}]},
        12,
    ),
    "members": (lambda size: {"values": [], "numbers": {f"name {n}": "x" for n in range(size // 20)}}, 40),
    "a missing argument": (lambda size: {"anything": [[1]] * (size // 6)}, 40),
    "unknown arguments": (lambda size: {"values": [], **{f"n{n}": 1 for n in range(size * 3 // 40)}}, 40),
    "one long name": (lambda size: {"values": [], "x" * size: 1}, 40),
}
#: The same for a tool with a schema of its own.
WRONG_BY_SCHEMA = {name: (WRONG_BODIES[name][0], 40) for name in ("each item", "the last item")}


async def wrong_bodies(scale: float, **settings: Constant) -> None:
    """Large arguments that do not fit cost memory in proportion to the body, and a short answer; then it is given back."""
    await _send_wrong("typed", WRONG_BODIES, scale, **settings)


async def wrong_bodies_by_schema(scale: float, **settings: Constant) -> None:
    """The same for a tool with an input schema of its own."""
    await _send_wrong("by_schema", WRONG_BY_SCHEMA, scale, **settings)


async def _send_wrong(
    tool: str, bodies: dict[str, tuple[Callable[[int], Json], int]], scale: float, **settings: Constant
) -> None:
    size = int(4 * MIB * max(scale, 0.1))
    async with loaded(**settings) as load:
        before = await load.figures()
        for name, (make, times) in bodies.items():
            text = json.dumps(make(size)).encode()
            answer = await load.refused(tool, text)
            most = (await load.figures()).peak
            check(f"bytes of the answer to {name}", len(answer), 4096)
            check(f"times the body of {len(text):,} bytes for {name}", (most - before.memory) / len(text), times)
        await load.settled(before, memory=16 * MIB)


async def wrong_results(scale: float, **settings: Constant) -> None:
    """Structured results that do not fit the schema of their tool cost a client of this project little memory."""
    with constants(settings):
        for case in list(expensive_values())[:: 1 if scale >= 1 else 3]:
            before = measured()["memory"]
            assert await run_client_case(case) is None
            check(f"MiB more at the height for {case.name}", (measured()["peak"] - before) / MIB, 48)


#: Requests whose functions wait in threads, by their methods. Tools, prompts and completion share some, resources have others.
HOLDING: dict[str, Callable[[str], Json]] = {
    "tools/call": lambda text: {"name": "hold", "arguments": {"text": text}},
    "prompts/get": lambda text: {"name": "hold_prompt", "arguments": {"text": text}},
    "completion/complete": lambda text: {
        "ref": {"type": "ref/prompt", "name": "hold_prompt"},
        "argument": {"name": "text", "value": text},
    },
    "resources/read": lambda text: {"uri": "hold://one", "_meta": {"example.com/padding": text}},
}
#: Threads of the server in these scenarios, for each of the two.
THREADS = 2


async def given_up(scale: float, **settings: Constant) -> None:
    """Calls that are given up while they wait for a thread are gone: of both eras, by hang-up and by notifications."""
    count = max(int(40 * scale), 15)
    async with loaded(**{"threads": THREADS, **settings}) as load:
        for method in ("tools/call", "resources/read"):  # they hold all threads
            for _ in range(THREADS):
                _, writer = await load.connect()
                writer.write(await load.message(method, HOLDING[method]("")))
        await _arrived(load, 2 * THREADS)
        before = await load.figures()
        session = await load.session()
        for method, params in HOLDING.items():
            text = request(method, params("x" * MIB))
            stateless = await load.message(method, params("x" * MIB))
            for number in range(count):
                await _give_up(load, stateless)
                message = with_id(text, number)
                cancelled = notification("notifications/cancelled", {"requestId": number})
                head = load.posts.head("POST", {**session, "Connection": None}, len(message))
                await _give_up(load, head + message, load.posts.post(cancelled, session))
            held = await load.figures()
            check(f"MiB after {2 * count} requests {method} of 1 MiB", (held.memory - before.memory) / MIB, 16)
        await load.posts.end_session(session)
        await load.settled(before, memory=16 * MIB)
        assert int(await load.call("arrivals")) == 2 * THREADS + 2 * count * len(HOLDING)


async def _arrived(load: Load, count: int) -> None:
    """Wait until so many functions were about to run in threads, or do."""
    async with asyncio.timeout(PATIENCE):
        while int(await load.call("arrivals")) < count:  # noqa: ASYNC110 - in another process
            await asyncio.sleep(0.001)


async def _give_up(load: Load, data: bytes, cancel: Coroutine[Any, Any, Response] | None = None) -> None:
    """Send a call, and when it waits, cancel it or hang up."""
    earlier = int(await load.call("arrivals"))
    _, writer = await asyncio.open_connection(*load.posts.address)
    try:
        writer.write(data)
        await _arrived(load, earlier + 1)
        if cancel is not None:
            assert (await cancel).status == 202
    finally:
        writer.transport.abort()


async def given_up_stdio(scale: float, **settings: Constant) -> None:
    """The same over stdio, by notifications."""
    count = max(int(80 * scale), 30)
    async with Pipe.opened(**{"threads": THREADS, **settings}) as pipe:
        for method in ("tools/call", "resources/read"):
            for number in range(THREADS):
                await pipe.write(request(method, HOLDING[method](""), "2026"), f"{method} {number}")
        await pipe.arrived(2 * THREADS)
        before = await pipe.figures()
        sent = 2 * THREADS
        for method, params in HOLDING.items():
            text = request(method, params("x" * MIB), "2026")
            for number in range(count):
                sent += 1
                await pipe.write(text, number)
                await pipe.arrived(sent)
                await pipe.write(notification("notifications/cancelled", {"requestId": number}, "2026"))
            held = await pipe.figures()
            check(f"MiB after {count} requests {method} of 1 MiB", (held.memory - before.memory) / MIB, 16)


class Pipe:
    """A server under load over stdio."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._writer, self._reader = process.stdin, process.stdout
        self._calls = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, **settings: Constant) -> AsyncIterator[Pipe]:
        """Start a server."""
        words = ["-m", "tests.load.server", "--stdio", "--set", json.dumps(settings)]
        pipe = asyncio.subprocess.PIPE
        null = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, stdin=pipe, stdout=pipe, stderr=null, limit=MIB
        )
        try:
            yield cls(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def write(self, text: bytes, identity: Any = None) -> None:
        """Send a message."""
        self._writer.write(with_id(text, identity) + b"\n")
        await self._writer.drain()

    async def call(self, name: str) -> str:
        """Call a tool; return its text."""
        self._calls += 1
        identity = f"call {self._calls}"
        await self.write(request("tools/call", {"name": name, "arguments": {}}, "2026"), identity)
        async with asyncio.timeout(PATIENCE):
            while True:
                line = await self._reader.readline()
                assert line, "the server ended"
                message = json.loads(line)
                if message.get("id") == identity:
                    text: str = message["result"]["content"][0]["text"]
                    return text

    async def arrived(self, count: int) -> None:
        """Wait until so many functions were about to run in threads, or do."""
        async with asyncio.timeout(PATIENCE):
            while int(await self.call("arrivals")) < count:  # noqa: ASYNC110 - in another process
                await asyncio.sleep(0.001)

    async def figures(self) -> Figures:
        """Return what the server holds."""
        return Figures(**json.loads(await self.call("figures")))


async def given_up_inside(scale: float, **settings: Constant) -> None:
    """Calls that are given up while their functions run in threads count until these return."""
    count = max(int(80 * scale), 40)
    own = {"threads": 100, "bodies": 16 * MIB, "gemel.server.threads:IDLE_SECONDS": 0.1}
    async with loaded(**{**own, **settings}) as load:
        before = await load.figures()
        data, inside = await load.data("hold", text="x" * MIB), 0
        for _ in range(count):
            reader, writer = await asyncio.open_connection(*load.posts.address)
            writer.write(data)
            reply = asyncio.create_task(read_reply(reader))
            async with asyncio.timeout(PATIENCE):
                while not reply.done() and int(await load.call("arrivals")) == inside:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.001)
            inside += not reply.done()
            reply.cancel()
            writer.transport.abort()
            await asyncio.wait([reply])
        held = await load.figures()
        check(f"MiB for {inside} functions with 1 MiB each", (held.memory - before.memory) / MIB, 32)
        assert inside >= 3
        await load.call("release_threads")
        assert await load.call("hold", text="x" * MIB) == str(MIB)
        await load.settled(before, memory=16 * MIB)


async def left_behind(scale: float, **settings: Constant) -> None:
    """Timers that calls leave behind keep no arguments, nor do errors."""
    count = max(int(80 * scale), 40)
    async with loaded(**settings) as load:
        before = await load.figures()
        data = await load.data("sleep", text="x" * MIB)
        for _ in range(count):
            await _give_up(load, data)
        held = await load.figures()
        check(f"MiB after {count} calls that slept", (held.memory - before.memory) / MIB, 16)
        failing = await load.data("fail", text="x" * MIB)
        for _ in range(count):
            reader, writer = await asyncio.open_connection(*load.posts.address)
            writer.write(failing)
            assert (await read_reply(reader)).messages[-1]["result"]["isError"]
            writer.transport.abort()
        held = await load.figures()
        check(f"MiB at the height of {count} calls that failed", (held.peak - before.memory) / MIB, 24)
        await load.settled(before, memory=16 * MIB, blocks=BLOCKS + 200 * count)  # the timers


async def soak(scale: float, **settings: Constant) -> None:
    """Rounds of sessions, calls, cancelled calls, subscriptions: what the server holds does not grow."""
    rounds = int(1000 * scale)
    async with loaded(**settings) as load:
        middle = before = await load.figures()
        for number in range(rounds):
            if number == rounds // 4:
                middle = await load.settled(before, memory=64 * MIB)
            await asyncio.gather(*(_round(load, number * 10 + place) for place in range(10)))
        after = await load.settled(middle, memory=8 * MIB)
        check(f"KiB more after {rounds} rounds", (after.memory - middle.memory) / 1024, 8 * 1024)


async def _round(load: Load, number: int) -> None:
    kind = number % 5
    if kind == 0:
        session = await load.session()
        text = request(
            "tools/call", {"name": "count", "arguments": {"upto": 5}, "_meta": {"progressToken": number % 50}}
        )
        answered = await load.posts.post(text, session)
        assert answered.messages[-1]["result"]["content"][0]["text"] == "5"
        await load.posts.end_session(session)
    elif kind == 1:  # a call that its client abandons
        _, writer = await asyncio.open_connection(*load.posts.address)
        writer.write(await load.data("wait", gate=f"gate {number}"))
        await writer.drain()
        writer.transport.abort()
    elif kind == 2:  # a subscription that its client abandons
        filters = {"notifications": {"resourceSubscriptions": [f"load://item/{number}"]}}
        reader, writer = await asyncio.open_connection(*load.posts.address)
        writer.write(await load.message("subscriptions/listen", filters))
        await event_of(reader)
        writer.transport.abort()
    elif kind == 3:
        refused = await load.posts.post(b"{nonsense", {"MCP-Protocol-Version": "2026-07-28"})
        assert refused.status == 400
    else:
        assert await load.call("big", size=100_000) == "x" * 100_000


SCENARIOS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    scenario.__name__: scenario
    for scenario in (
        streams,
        calls,
        slow_readers,
        hints,
        pipelines,
        sessions,
        wrong_bodies,
        wrong_bodies_by_schema,
        wrong_results,
        given_up,
        given_up_stdio,
        given_up_inside,
        left_behind,
        soak,
    )
}
EXPLAINED_AT_ANY_COST: dict[str, Constant] = {
    "gemel.protocol.validation:MAX_STEPS_FIRST": 10**12,
    "gemel.protocol.validation:MAX_STEPS_ALL": 10**12,
}
#: Settings with which a scenario must fail: without its limit or mechanism the server holds more. So the scenario proves it.
UNLIMITED: dict[str, dict[str, Constant]] = {
    "streams": {"gemel.http1.server.request:ServedRequest.can_detach": False},
    "calls": {"bodies": 10**12},
    "slow_readers": {"stream_wait": 10**6},
    "hints": {"gemel.server.features.subscriptions:FIXED_LIMITS": "tests.load.server:ENDLESS"},
    "pipelines": {
        "gemel.http1.server.connection:PIPELINED": 10**9,
        "gemel.http1.server.connection:READ_AHEAD": 10**12,
    },
    "sessions": {"replay_total": 10**12},
    "wrong_bodies": {"gemel.server.functions.arguments:MAX_EXPLAINED": 10**9},
    "wrong_bodies_by_schema": EXPLAINED_AT_ANY_COST,
    "wrong_results": EXPLAINED_AT_ANY_COST,
    "given_up": {"gemel.server.threads:Threads._forget": "tests.load.server:nothing"},
    "given_up_stdio": {"gemel.server.threads:Threads._forget": "tests.load.server:nothing", "call_bytes": 10**12},
    "given_up_inside": {"gemel.protocol.records:Call.when_released": "tests.load.server:at_once"},
    "left_behind": {"gemel.server.context:ContextOfLarge.drop_params": "tests.load.server:nothing"},
    "soak": {"leak": MIB},
}
#: Scenarios that are known to fail, and why.
KNOWN: dict[str, str] = {}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.load.run", description="Load with bounds on memory and counts."
    )
    parser.add_argument("scenarios", nargs="*", help=f"some of {', '.join(SCENARIOS)}; all of them by default")
    parser.add_argument("--scale", type=float, default=1.0, help="how much load, 1 by default")
    options = parser.parse_args(arguments)
    failed = []
    for name in options.scenarios or SCENARIOS:
        print(f"{name}: {(SCENARIOS[name].__doc__ or '').splitlines()[0]}", flush=True)
        try:
            asyncio.run(SCENARIOS[name](options.scale))
        except AssertionError as exc:
            print(f"  {'known' if name in KNOWN else 'WRONG'}: {KNOWN.get(name, exc)}")
            if name not in KNOWN:
                failed.append(name)
    print(f"FAILED: {', '.join(failed)}" if failed else "passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
