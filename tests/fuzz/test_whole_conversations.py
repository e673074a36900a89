"""A real client and a real server over memory, doing everything at once in any order, cancelled and closed at any point.

Whatever happens: each operation ends, with the answer to its own question, an error or its cancellation; the tables of
both ends add up all the while; and at the end nothing is in flight anywhere.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from gemel import CallError, Changed, Client, Context, GemelError, Server
from tests.fuzz.ends import examples
from tests.jumping_clock import JumpingLoop

#: Steps of a plan: something begins, somebody changes his mind, something changes, or time passes.
steps: SearchStrategy[tuple[Any, ...]] = st.one_of(
    st.tuples(st.sampled_from(["add", "ask", "sample", "slow", "read", "prompt", "complete", "list", "own", "listen"])),
    st.tuples(st.just("cancel"), st.integers(0, 20)),
    st.tuples(st.just("release")),
    st.tuples(st.sampled_from(["tool", "resource", "updated"])),
    st.tuples(st.just("turns"), st.integers(1, 12)),
)
plans = st.lists(steps, min_size=3, max_size=25)


class World:
    """One server, what its handlers wait for, and what a client does with it."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.server: Server[Any] = Server("world")
        self.grown = 0
        self._offer()

    def _offer(self) -> None:
        server = self.server

        @server.tool
        async def add(a: int, b: int) -> int:
            return a + b

        @server.tool
        async def ask(ctx: Context[Any], number: int) -> str:
            first, second = await asyncio.gather(ctx.elicit(f"a{number}", str), ctx.elicit(f"b{number}", str))
            third = await ctx.elicit(f"c{number}", str)
            return f"{first} {second} {third}"

        @server.tool
        async def sample(ctx: Context[Any], number: int) -> str:
            return f"{(await ctx.sample(f'm{number}')).text} of {len(await ctx.list_roots())}"

        @server.tool
        async def slow(ctx: Context[Any], number: int) -> int:
            await ctx.report_progress(1, 2)
            await self.gate.wait()
            return number

        @server.resource("world://{number}")
        async def read(number: int) -> str:
            return f"resource {number}"

        @server.prompt
        async def prompt(number: str) -> str:
            return f"prompt {number}"

        @prompt.complete("number")
        async def numbers(value: str) -> list[str]:
            return [value + "0"]

        @server.request("acme/own")
        async def own(ctx: Context[Any], params: dict[str, Any]) -> dict[str, Any]:
            return {"back": params["number"]}

    def change(self, what: str) -> None:
        if what == "tool":
            self.grown += 1
            self.server.tool(f"grown{self.grown}")(lambda: None)
        elif what == "resource":
            self.grown += 1
            self.server.resource(f"other://{self.grown}", name="other")(lambda: "")
        else:
            self.server.notify(Changed("resource", "world://1"))

    async def do(self, client: Client, what: str, number: int) -> None:
        """One operation; the answer must be that of this very one."""
        match what:
            case "add":
                assert (await client.call_tool("add", {"a": number, "b": 1})).text == str(number + 1)
            case "ask":
                said = (await client.call_tool("ask", {"number": number})).text
                assert said == f"to a{number} to b{number} to c{number}"
            case "sample":
                assert (await client.call_tool("sample", {"number": number})).text == f"m{number} indeed of 0"
            case "slow":
                assert (await client.call_tool("slow", {"number": number})).text == str(number)
            case "read":
                assert (await client.read_resource(f"world://{number}")).contents[0].text == f"resource {number}"
            case "prompt":
                content: Any = (await client.get_prompt("prompt", {"number": str(number)})).messages[0].content
                assert content.text == f"prompt {number}"
            case "complete":
                found = await client.complete(prompt="prompt", argument="number", value=str(number))
                assert found.values == [f"{number}0"]
            case "list":
                assert {"add", "ask"} <= {tool.name for tool in await client.list_tools()}
            case "own":
                assert (await client.request("acme/own", {"number": number}))["back"] == number
            case "listen":
                async with client.listen(tools=True, resources=["world://1"]) as changes:
                    assert await anext(changes) is not None


async def live(era: Any, plan: list[tuple[Any, ...]], drained: bool) -> None:
    world = World()

    def fill(form: Any) -> dict[str, str]:
        return {"value": f"to {form.message}"}

    def think(params: Any) -> str:
        return f"{params.messages[0].text} indeed"

    doing: list[asyncio.Task[None]] = []
    client = Client(world.server, era=era, on_elicit=fill, on_sample=think, on_roots=[])
    async with client:
        session = client.session
        assert session is not None
        for number, (what, *more) in enumerate(plan):
            match what:
                case "cancel":
                    if more[0] < len(doing):
                        doing[more[0]].cancel()
                case "release":
                    world.gate.set()
                case "turns":
                    for _ in range(more[0]):
                        await asyncio.sleep(0)
                case "tool" | "resource" | "updated":
                    world.change(what)
                case _:
                    doing.append(asyncio.create_task(world.do(client, what, number)))
            session.connection.check()
        if drained:
            world.gate.set()
            for _ in range(50):
                await asyncio.sleep(0)
            world.change("tool")
            await asyncio.wait_for(asyncio.gather(*doing, return_exceptions=True), 300)
    assert session.connection.closed is not None
    session.connection.check()
    ended = await asyncio.wait_for(asyncio.gather(*doing, return_exceptions=True), 300)
    for task, how in zip(doing, ended, strict=True):
        assert task.cancelled() or how is None or isinstance(how, GemelError | StopAsyncIteration), how
        assert not (drained and isinstance(how, CallError)), how


@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.sampled_from(["2025", "2026"]), plans, st.booleans())
def test_everything_at_once_ends_and_with_its_own_answer(era: str, plan: list[tuple[Any, ...]], drained: bool) -> None:
    """SUB-07, CANC-06."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(live(era, plan, drained))
        left = asyncio.all_tasks(runner.get_loop())
        assert not left, left
