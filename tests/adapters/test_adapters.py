"""What the adapters share, without a framework: lists, choices, errors for the model, missing packages."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from gemel import Client, ClientGroup, DefinitionError, Overloaded, PeerError, Server, Tool
from gemel.adapters.tools import AsyncTools, SyncTools, text_for_model
from gemel.sync import Client as SyncClient
from tests.adapters.server import server
from tests.client.puppet import Puppet


class Counted:
    """Counts the conversions."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, tool: Tool) -> str:
        self.names.append(tool.name)
        return f"<{tool.name}: {tool.description}>"


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_tool_is_converted_once_and_again_when_it_changed(era: Any) -> None:
    changing = Server("changing")

    @changing.tool(name="one")
    def first() -> str:
        """The first."""
        return "1"

    @changing.tool
    def two() -> str:
        """The second."""
        return "2"

    counted = Counted()
    async with Client(changing, era=era) as client:
        tools = AsyncTools(client, counted, include=None, resources=False)
        for _ in range(20):
            assert await tools.list() == ["<one: The first.>", "<two: The second.>"]
        assert counted.names == ["one", "two"]

        changing.remove_tool("one")

        @changing.tool(name="one")
        def again() -> str:
            """Another one."""
            return "3"

        assert await tools.list() == ["<two: The second.>", "<one: Another one.>"]
        assert counted.names == ["one", "two", "one"]


async def test_a_group_converts_each_tool_once() -> None:
    counted = Counted()
    async with ClientGroup({"a": server, "b": server}) as group:
        tools = AsyncTools(group, counted, include=lambda tool: tool.name.endswith("add"), resources=True)
        for _ in range(3):
            assert len(await tools.list()) == 3
    assert counted.names == ["a_add", "b_add", "read_resource"]


ODD = ("files/read", "files read", "get_" + "very_" * 20 + "long_name")


def odd_server() -> Puppet:
    """A server whose tools have names that models don't take, and answer with them."""
    cached = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    listed = [{"name": name, "inputSchema": {"type": "object"}} for name in (*ODD, "plain")]

    def say(puppet: Puppet, message: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": message["params"]["name"]}], "resultType": "complete"}

    return Puppet(
        {
            "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **cached},
            "tools/list": {"tools": listed, **cached},
            "tools/call": say,
        }
    )


async def test_a_tool_has_a_name_that_models_take_and_calls_reach_it() -> None:
    async with Client(odd_server()) as client:
        tools = AsyncTools(client, lambda tool: tool.name, include=None, resources=False)
        names = await tools.list()
        assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", name) for name in names)
        assert names[-1] == "plain"
        assert [text_for_model(await tools.call(name, {})) for name in names] == [*ODD, "plain"]
        # Of a list that another process has read.
        fresh = AsyncTools(client, lambda tool: tool.name, include=None, resources=False)
        assert text_for_model(await fresh.call(names[0], {})) == ODD[0]
        same = AsyncTools(client, lambda tool: tool.name, include=None, resources=False, model_names=False)
        assert await same.list() == [*ODD, "plain"]
    async with ClientGroup({"a": odd_server()}) as group:
        grouped = AsyncTools(group, lambda tool: tool.name, include=None, resources=False)
        assert await grouped.list() == names
        assert [text_for_model(await grouped.call(name, {})) for name in names] == [*ODD, "plain"]


async def test_tools_are_chosen_by_the_name_of_the_server_or_the_short_one() -> None:
    async with Client(odd_server()) as client, ClientGroup({"a": odd_server()}) as group:
        for source in (client, group):
            tools = AsyncTools(source, lambda tool: tool.name, include=[ODD[0]], resources=False)
            (short,) = await tools.list()
            again = AsyncTools(source, lambda tool: tool.name, include=[short], resources=False)
            assert await again.list() == [short]
            missing = AsyncTools(source, lambda tool: tool.name, include=["files/write"], resources=False)
            with pytest.raises(DefinitionError, match="include has 'files/write'"):
                await missing.list()


def test_a_blocking_client_reaches_tools_by_their_short_names() -> None:
    with SyncClient(odd_server()) as client:
        tools = SyncTools(client, lambda tool: tool.name, include=None, resources=False)
        assert [text_for_model(tools.call(name, {})) for name in tools.list()] == [*ODD, "plain"]


async def test_a_name_that_vanishes_later_is_no_mistake() -> None:
    changing = Server("changing")
    changing.tool(lambda: "1", name="one")
    async with Client(changing) as client:
        tools = AsyncTools(client, Counted(), include={"one"}, resources=False)
        assert len(await tools.list()) == 1
        changing.remove_tool("one")
        assert await tools.list() == []


@pytest.mark.parametrize(
    ("include", "message"),
    [
        ("add", "include must be a list of names or a function of a Tool, got 'add'"),
        (3, "include must be a list of names or a function of a Tool, got 3"),
        (["adds"], "include has 'adds', but the tools are 'add', 'weather', "),
    ],
)
async def test_a_wrong_choice_is_one_clear_error(include: Any, message: str) -> None:
    async with Client(server) as client:
        with pytest.raises(DefinitionError) as caught:
            await AsyncTools(client, Counted(), include=include, resources=False).list()
    assert str(caught.value).startswith(message)


async def test_a_server_may_have_a_tool_of_the_name_for_resources() -> None:
    reading = Server("reading")
    reading.tool(lambda: "its own", name="read_resource")
    async with Client(reading) as client:
        with pytest.raises(DefinitionError, match="the server has one of this name"):
            await AsyncTools(client, Counted(), include=None, resources=True).list()
        assert (
            await AsyncTools(client, Counted(), include=None, resources=False).call("read_resource", {})
        ).text == "its own"


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_what_the_model_did_wrong_is_a_result_and_what_the_server_did_is_raised(era: Any) -> None:
    strict = Server("strict")

    @strict.tool
    def add(a: int) -> int:
        """Add."""
        return a

    @strict.tool
    def busy() -> str:
        """Too much to do."""
        raise Overloaded("too many calls")

    async with Client(strict, era=era) as client:
        tools = AsyncTools(client, Counted(), include=None, resources=True)
        await tools.list()
        for name, arguments in (("add", {"a": "x"}), ("nothing", {}), ("read_resource", {"uri": "x://y"})):
            result = await tools.call(name, arguments)
            assert result.is_error, name
            assert text_for_model(result)
        with pytest.raises(PeerError):
            await tools.call("busy", {})


def test_a_client_without_async_has_the_same_tools() -> None:
    with SyncClient(server) as client:
        tools = SyncTools(client, Counted(), include=["add"], resources=True)
        assert tools.list() == ["<add: Add two integers.>", tools.list()[1]]
        assert tools.call("add", {"a": 1, "b": 2}).data == 3
        assert tools.call("read_resource", {"uri": "pantry://tea"}).content[0].type == "resource"
        assert tools.call("add", {"a": "x"}).is_error


ADAPTERS = {
    "langchain": ("langchain_core", "langchain-core", "langchain"),
    "pydantic_ai": ("pydantic_ai", "pydantic-ai-slim", "pydantic-ai"),
    "openai_agents": ("agents", "openai-agents", "openai-agents"),
    "llama_index": ("llama_index", "llama-index-core", "llama-index"),
    "google_adk": ("google.adk", "google-adk", "google-adk"),
    "smolagents": ("smolagents", "smolagents", "smolagents"),
}
BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r} or name.startswith({module!r} + "."):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
import gemel.adapters.{adapter}
"""


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_missing_package_is_one_line_with_the_command(adapter: str) -> None:
    module, package, extra = ADAPTERS[adapter]
    code = BLOCKED.format(module=module, adapter=adapter)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last == f"ImportError: gemel.adapters.{adapter} needs {package}: pip install 'gemel[{extra}]'"
    assert "During handling" not in done.stderr


def test_an_adapter_is_loaded_when_it_is_imported_only() -> None:
    code = "import gemel, gemel.adapters, sys; from gemel import Client, Server; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {name for name in loaded if name.startswith("gemel.adapters.")}
