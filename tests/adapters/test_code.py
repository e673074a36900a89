"""Code mode over a client group, in agents of each framework: few tools, of which one runs scripts that call the others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gemel import ClientGroup, Server
from gemel.code import CodeMode
from tests.adapters.conversation import Call
from tests.adapters.server import server
from tests.adapters.test_agents import Run, framework, run

__all__ = ["framework", "run"]

pytest.importorskip("pydantic_monty")

pytestmark = pytest.mark.timeout(120)  # the import of a framework takes seconds

CODE = (
    "import asyncio\nfrom one import add\nfrom two import add as other\n"
    "sum(await asyncio.gather(*[add(a=i, b=1) for i in range(3)])) + await other(a=100, b=0)"
)


@pytest.mark.parametrize("mode", ["code", "search"])
async def test_an_agent_has_few_tools_and_calls_all(run: Run, framework: str, mode: Any) -> None:
    second: Server[Any] = Server("second")

    @second.tool
    def add(a: int, b: int) -> int:
        return a + b

    calls: dict[str, list[Call]] = {
        "code": [("search_tools", {"query": "add"}), ("run_code", {"code": CODE}), ("run_code", {"code": "1 +"})],
        "search": [
            ("search_tools", {"query": "add"}),
            ("call_tool", {"name": "two.add", "arguments": {"a": 6, "b": 100}}),
            ("call_tool", {"name": "nothing"}),
        ],
    }
    if framework == "smolagents":  # its tools are sync, and take a blocking client
        gateway: Server[Any] = Server("gateway", middleware=[CodeMode(mode)])
        gateway.mount(server, "one")
        gateway.mount(second, "two")
        conversation = await run(gateway, calls[mode])
    else:
        async with ClientGroup({"one": server, "two": second}) as group, CodeMode(mode).client(group) as client:
            conversation = await run(client, calls[mode])
    found, value, refused = conversation.told
    assert "async def add(*, a: int, b: int) -> int" in found
    assert "106" in value
    assert ("was not run" if mode == "code" else "There is no tool") in refused
    own = {"code": {"search_tools", "query_code", "run_code"}, "search": {"search_tools", "call_tool"}}
    assert conversation.tools.keys() - {"final_answer"} == own[mode]


async def test_smolagents_that_write_programs_write_one_for_the_sandbox() -> None:
    """smolagents' CodeAgent runs its own program in this process, which calls `run_code` with another one."""
    pytest.importorskip("smolagents")
    from smolagents import CodeAgent, LogLevel

    from gemel.adapters import smolagents
    from gemel.sync import Client
    from tests.adapters.drivers.smolagents import Writes

    gateway: Server[Any] = Server("gateway", middleware=[CodeMode()])
    gateway.mount(server, "one")
    program = "final_answer(run_code(code='from one import add\\nawait add(a=40, b=2)'))"

    def work() -> object:
        with Client(gateway) as client:
            return CodeAgent(smolagents.tools(client), Writes(program), verbosity_level=LogLevel.OFF).run("go")

    assert str(await asyncio.to_thread(work)) == "42"
