"""A budget holds until the memory is free: what is counted for a call stays counted until nothing keeps its params."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import tracemalloc
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Annotated, Any

import pytest

from gemel import Context, Depends, Extension, Limits, Method, Overloaded, Server, current_context
from gemel.protocol.limits import change_limits
from tests.server.bare_end import BareEnd, Era
from tests.support import Call

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])

#: So many calls are given up, each with so many characters.
CALLS, LARGE = 20, 200_000
LARGE_TEXT = "x" * LARGE
REQUESTS: dict[str, dict[str, Any]] = {
    "tools/call": {"name": "work", "arguments": {"text": LARGE_TEXT}},
    "prompts/get": {"name": "write", "arguments": {"text": LARGE_TEXT}},
    "resources/read": {"uri": "note://one", "_meta": {"example.com/padding": LARGE_TEXT}},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "write"},
        "argument": {"name": "text", "value": LARGE_TEXT},
    },
}


class Gate:
    """Holds functions in their threads until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.inside = 0

    def wait(self) -> str:
        self.inside += 1
        self.open.wait(10)
        self.inside -= 1
        return "done"

    async def reached(self, inside: int) -> None:
        async with asyncio.timeout(10):
            while self.inside != inside:  # noqa: ASYNC110 (threads tell nothing to a loop)
                await asyncio.sleep(0.001)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Nothing but the end of the last reference frees memory."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


def make_server(gate: Gate, **limits: int) -> Server[Any]:
    """A server of sync functions that wait at the gate."""
    server: Server[Any] = Server("keeping", limits=change_limits(Limits(), limits))

    @server.tool
    def work(text: str) -> str:
        return gate.wait()

    @server.prompt
    def write(text: str) -> str:
        return gate.wait()

    @write.complete("text")
    def texts(value: str) -> list[str]:
        return [gate.wait()]

    @server.resource("note://{name}")
    def note(name: str) -> str:
        return gate.wait()

    return server


def start(end: BareEnd, method: str, params: Mapping[str, Any]) -> tuple[Call, asyncio.Task[Any]]:
    """Send a request that is being served then."""
    call = end.begin(method, params)
    assert isinstance(call, Call)
    return call, asyncio.create_task(end.session.answer(call))


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def give_up(end: BareEnd, calls: list[tuple[Call, asyncio.Task[Any]]]) -> None:
    """Cancel calls as a client of the era does: by a notification, or by leaving."""
    for call, _ in calls:
        if end.era == "2025":
            await end.tell("notifications/cancelled", {"requestId": call.id})
        else:
            end.session.cancel(call, "the client has left")
    assert await asyncio.gather(*(task for _, task in calls)) == [None] * len(calls)


# ---------------------------------------------------------------- calls that wait for a thread


@both_eras
@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.usefixtures("no_collector")
async def test_calls_that_are_given_up_while_they_wait_for_a_thread_keep_nothing(
    era: Era, method: str, gate: Gate
) -> None:
    server = make_server(gate, threads=1)
    async with BareEnd(server, era) as end:
        running = start(end, method, REQUESTS[method])
        await gate.reached(1)
        before = tracemalloc.get_traced_memory()[0]
        waiting = [start(end, method, REQUESTS[method]) for _ in range(CALLS)]
        await settle()
        assert tracemalloc.get_traced_memory()[0] - before > CALLS * LARGE
        await give_up(end, waiting)
        del waiting
        await settle()
        assert tracemalloc.get_traced_memory()[0] - before < CALLS * LARGE / 10
        assert gate.inside == 1
        gate.open.set()
        assert (await running[1]).error is None


async def test_calls_behind_those_that_were_given_up_are_served_in_order(gate: Gate) -> None:
    server = make_server(gate, threads=1)
    order: list[int] = []

    @server.tool
    def count(number: int) -> None:
        order.append(number)

    async with BareEnd(server) as end:
        running = start(end, "tools/call", REQUESTS["tools/call"])
        await gate.reached(1)
        notes = [start(end, "tools/call", {"name": "count", "arguments": {"number": number}}) for number in range(9)]
        await settle()
        await give_up(end, notes[0:2] + notes[4:6] + notes[8:])
        gate.open.set()
        await asyncio.gather(running[1], *(task for _, task in notes))
    assert order == [2, 3, 6, 7]


# ---------------------------------------------------------------- functions that go on in their threads


@both_eras
@pytest.mark.parametrize("limit", ["all_call_bytes", "call_bytes"])
@pytest.mark.parametrize("method", REQUESTS)
async def test_arguments_count_while_a_function_that_nobody_waits_for_uses_them(
    era: Era, method: str, limit: str, gate: Gate
) -> None:
    server = make_server(gate, **{limit: LARGE * 3 // 2})
    async with BareEnd(server, era) as end, BareEnd(server, era) as other:
        await give_up_inside(end, method, gate)
        asked = other if limit == "all_call_bytes" else end
        assert (await asked.refusal(method, REQUESTS[method]))["code"] == Overloaded.code
        assert "tools" in await asked.ask("tools/list")
        gate.open.set()
        await accepted(asked, method, REQUESTS[method])


async def accepted(end: BareEnd, method: str, params: Mapping[str, Any]) -> None:
    """Repeat a request until it is served."""
    async with asyncio.timeout(10):
        while "error" in await end.reply(method, params):  # noqa: ASYNC110 (threads tell nothing to a loop)
            await asyncio.sleep(0.001)


async def give_up_inside(end: BareEnd, method: str, gate: Gate) -> None:
    running = start(end, method, REQUESTS[method])
    await gate.reached(1)
    await give_up(end, [running])


def test_a_function_that_outlives_its_event_loop_counts_until_it_returns(gate: Gate) -> None:
    """A server may serve in another loop then."""
    server, method = make_server(gate, all_call_bytes=LARGE * 3 // 2), "tools/call"

    async def leave() -> None:
        async with BareEnd(server) as end:
            await give_up_inside(end, method, gate)

    async def come_back() -> None:
        async with BareEnd(server) as end:
            assert (await end.refusal(method, REQUESTS[method]))["code"] == Overloaded.code
            gate.open.set()
            await accepted(end, method, REQUESTS[method])

    asyncio.run(leave())
    asyncio.run(come_back())


@both_eras
@pytest.mark.parametrize("end_of_call", ["timeout", "cancelled"])
async def test_a_function_that_nobody_waits_for_counts_as_running(era: Era, end_of_call: str, gate: Gate) -> None:
    """`concurrency=1` means that no two run at once, which the function may rely on."""
    server: Server[Any] = Server("busy")

    @server.tool(concurrency=1, waiting=0, timeout=0.05 if end_of_call == "timeout" else 60)
    def work() -> str:
        return gate.wait()

    params: dict[str, Any] = {"name": "work", "arguments": {}}
    async with BareEnd(server, era) as end:
        if end_of_call == "timeout":
            assert (await end.call_tool("work"))["isError"]
        else:
            running = start(end, "tools/call", params)
            await gate.reached(1)
            await give_up(end, [running])
        assert (await end.refusal("tools/call", params))["code"] == Overloaded.code
        assert gate.inside == 1
        gate.open.set()
        await accepted(end, "tools/call", params)


async def test_a_dependency_that_goes_on_in_its_thread_counts_too(gate: Gate) -> None:
    server: Server[Any] = Server("keeping", limits=Limits(call_bytes=LARGE))

    def opened() -> str:
        return gate.wait()

    @server.tool
    async def work(text: str, one: Annotated[str, Depends(opened)]) -> str:
        return one

    async with BareEnd(server) as end:
        await give_up_inside(end, "tools/call", gate)
        assert (await end.refusal("tools/call", REQUESTS["tools/call"]))["code"] == Overloaded.code
        gate.open.set()
        await accepted(end, "tools/call", REQUESTS["tools/call"])


class Waiting(Extension):
    """An extension with a method that may take hours."""

    id = "com.example/waiting"

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    def requests(self) -> Iterable[Method]:
        return (Method(name="example/wait", serve=self.wait, waits=True, open=True),)

    async def wait(self, ctx: Context[Any], params: Any) -> dict[str, Any]:
        await self.gate.wait()
        return {}


@both_eras
async def test_requests_that_may_wait_for_hours_are_not_counted_but_their_bytes_are(era: Era) -> None:
    waiting = Waiting()
    server: Server[Any] = Server(
        "patient", extensions=[waiting], limits=Limits(all_calls=1, all_call_bytes=LARGE * 3 // 2)
    )
    async with BareEnd(server, era) as one, BareEnd(server, era) as other:
        calls = [start(one, "example/wait", {"padding": text}) for text in (LARGE_TEXT, "", "")]
        await settle()
        assert "tools" in await other.ask("tools/list")
        refused = asyncio.create_task(other.refusal("example/wait", {"padding": LARGE_TEXT}))
        await settle()
        waiting.gate.set()
        assert (await refused)["code"] == Overloaded.code
        assert [reply.error for reply in await asyncio.gather(*(task for _, task in calls))] == [None] * 3


# ---------------------------------------------------------------- calls that are over


def make_ending() -> Server[Any]:
    """A server whose tools end in different ways."""
    server: Server[Any] = Server("ending", log_level=None)

    @server.tool
    async def fail(text: str) -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    @server.tool
    def fail_in_thread(text: str, ctx: Context[Any]) -> None:
        ctx.sync.report_progress(1, 2)
        raise ValueError("no")

    @server.tool(timeout=0.01)
    async def late(text: str) -> None:
        await asyncio.sleep(60)

    @server.tool
    async def ask(text: str, ctx: Context[Any]) -> str:
        return await ctx.elicit("Your name?", str)

    @server.tool
    def ask_in_thread(text: str, ctx: Context[Any]) -> str:
        return ctx.sync.elicit("Your name?", str)

    async def opened(text: str) -> AsyncIterator[str]:
        yield text

    def opened_in_thread(text: str) -> Iterator[str]:
        yield text

    @server.tool
    async def fail_with_dependencies(
        text: str, one: Annotated[str, Depends(opened)], two: Annotated[str, Depends(opened_in_thread)]
    ) -> None:
        raise ValueError("no")

    @server.tool
    async def leave_behind(text: str) -> None:
        _background.add(asyncio.create_task(asyncio.sleep(60)))

    return server


_background: set[asyncio.Task[None]] = set()


@pytest.mark.parametrize(
    "tool",
    ["fail", "fail_in_thread", "late", "ask", "ask_in_thread", "fail_with_dependencies", "leave_behind"],
)
@pytest.mark.usefixtures("no_collector")
async def test_a_call_that_is_over_leaves_none_of_its_arguments(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in tracebacks, and not in the context variables of timers and tasks that are left."""
    monkeypatch.setattr(logging.getLogger("gemel"), "disabled", True)  # pytest keeps the records with their tracebacks
    try:
        async with BareEnd(make_ending(), capabilities={"elicitation": {}}) as end:
            await kept_after(end, tool, 2)
            assert await kept_after(end, tool, CALLS) < CALLS * LARGE / 10
    finally:
        for task in _background:
            task.cancel()
        await asyncio.gather(*_background, return_exceptions=True)
        _background.clear()


async def kept_after(end: BareEnd, tool: str, count: int) -> int:
    """Bytes that are kept after so many calls."""
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(count):
        assert "result" in await end.reply("tools/call", {"name": tool, "arguments": {"text": LARGE_TEXT}})
    await settle()
    return tracemalloc.get_traced_memory()[0] - before


async def test_what_a_call_leaves_behind_knows_its_context_without_the_params() -> None:
    server: Server[Any] = Server("ending")
    go_on, found = asyncio.Event(), list[Context[Any]]()

    async def work() -> None:
        await go_on.wait()
        found.append(current_context())

    @server.tool
    async def begin(text: str) -> None:
        _background.add(asyncio.create_task(work()))

    async with BareEnd(server) as end:
        for text in ("short", LARGE_TEXT):
            await end.call_tool("begin", text=text)
        go_on.set()
        await asyncio.gather(*_background)
        _background.clear()
    short, large = found
    assert (short.request_id, large.request_id) == (1, 2)
    assert short.cancelled
    assert large.cancelled
    assert short.decoded_params["arguments"] == {"text": "short"}
    assert large.decoded_params == {}
