"""The same in both eras: compared, and told where it isn't."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from gemel import Client, Context, DefinitionError, Server, ToolCallError, ToolError
from gemel.testing import both_eras, in_both_eras


async def book(ctx: Context[Any], city: str) -> str:
    """Book a seat."""
    row, meal = await asyncio.gather(ctx.elicit("Which row?", int), ctx.elicit("Which meal?", str))
    return f"{city}, row {row}, {meal}"


def filled(form: Any) -> dict[str, Any]:
    return {"value": 7 if "row" in form.message else "soup"}


async def test_a_handler_that_does_the_same_gives_its_result() -> None:
    result = await in_both_eras(book, {"city": "Oslo"}, on_elicit=filled)
    assert result.text == "Oslo, row 7, soup"


async def test_a_number_is_the_same_although_one_era_wraps_it_in_an_object() -> None:
    async def count() -> int:
        return 3

    assert (await in_both_eras(count)).text == "3"


async def test_a_handler_that_answers_by_era_is_found_out() -> None:
    async def which(ctx: Context[Any]) -> str:
        return f"revision {ctx.protocol_version}"

    with pytest.raises(AssertionError) as caught:
        await in_both_eras(which)
    assert str(caught.value).splitlines() == [
        "The two eras differ:",
        "the outcome",
        "  result.content.0.text",
        "    era 2025: 'revision 2025-11-25'",
        "    era 2026: 'revision 2026-07-28'",
    ]


async def test_a_handler_that_asks_differently_is_found_out() -> None:
    async def ask(ctx: Context[Any]) -> str:
        await ctx.elicit(f"In {ctx.protocol_version[:4]}?", str)
        return "asked"

    with pytest.raises(AssertionError, match=r"the requests to the client(.|\n)*era 2025: 'In 2025\?'"):
        await in_both_eras(ask, on_elicit=lambda form: {"value": "x"})


async def test_work_that_a_replay_does_twice_is_found_out() -> None:
    runs: list[str] = []

    async def careless(ctx: Context[Any]) -> str:
        runs.append("work")
        await ctx.elicit("Sure?", str)
        return f"{len(runs)} runs"

    with pytest.raises(AssertionError, match="'1 runs'"):
        await in_both_eras(careless, on_elicit=lambda form: {"value": "x"})


async def test_what_both_eras_raise_is_raised() -> None:
    async def fail() -> str:
        raise ToolError("Atlantis has no weather")

    with pytest.raises(ToolCallError, match="Atlantis has no weather"):
        await in_both_eras(fail)


async def test_what_one_era_alone_raises_is_a_difference() -> None:
    async def fail(ctx: Context[Any]) -> str:
        if ctx.protocol_version.startswith("2026"):
            raise ToolError("not here")
        return "here"

    with pytest.raises(AssertionError, match=r"raised\n    era 2025: missing\n    era 2026: 'ToolCallError'"):
        await in_both_eras(fail)


async def test_whatever_a_test_does_with_a_client_is_compared() -> None:
    made: list[Server[Any]] = []

    def make() -> Server[Any]:
        server: Server[Any] = Server("counting")
        calls: list[int] = []

        @server.tool
        def count() -> int:
            calls.append(1)
            return len(calls)

        made.append(server)
        return server

    async def use(client: Client) -> list[int]:
        return [(await client.call_tool("count", returns=int)).data for _ in range(3)]

    assert await in_both_eras(make, use) == [1, 2, 3]
    assert len(made) == 2
    with pytest.raises(AssertionError, match=r"result\.0\n    era 2025: 4\n    era 2026: 7"):
        await in_both_eras(made[0], use)


@both_eras
def test_a_marked_test_runs_in_each_era(era: Any) -> None:
    assert era in ("2025", "2026")


def test_without_pytest_the_module_loads_and_the_mark_says_what_to_do() -> None:
    code = (
        "from gemel.testing import both_eras\n"
        "try: both_eras(print)\n"
        "except Exception as exc: print(type(exc).__name__, exc)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(DefinitionError.__name__)
    assert "use in_both_eras" in done.stdout


def test_importing_it_loads_no_test_framework_and_gemel_does_not_load_it() -> None:
    code = (
        "import sys, gemel; print('gemel.testing' in sys.modules); import gemel.testing; print('pytest' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
