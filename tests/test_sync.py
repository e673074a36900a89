"""The blocking client: no async anywhere in the caller's code."""

from __future__ import annotations

import ast
import sys
import time
from pathlib import Path
from typing import Any, Literal, assert_type

import pytest

from gemel import Changed, Context, NotSent, PeerError, Server, TaskInfo, Tasks, ToolCallError
from gemel.client.group.group import Listing
from gemel.client.group.member import Member
from gemel.schema.tools import ListToolsResult, Tool
from gemel.sync import BlockingTask, Client, ClientGroup
from tools.blocking_client import FILE, blocking_client

SERVER = """
from gemel import Server
server = Server("far")
@server.tool
def add(a: int, b: int) -> int:
    return a + b
if __name__ == "__main__":
    server.run()
"""


def definitions(text: str) -> tuple[list[str], list[str]]:
    """What a module defines, and the names that it imports, however both are laid out."""
    body = ast.parse(text).body
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [f"{getattr(node, 'module', '')} {ast.unparse(name)}" for node in imports for name in node.names]
    return [ast.dump(node) for node in body if node not in imports], sorted(names)


def test_the_blocking_client_is_written_from_the_async_one() -> None:
    assert definitions(FILE.read_text(encoding="utf-8")) == definitions(blocking_client()), (
        "run python -m tools.blocking_client"
    )


def test_results_have_the_types_of_the_async_client() -> None:
    with Client(made()) as client:
        assert_type(client.request("tools/list"), dict[str, Any])
        assert_type(client.request("tools/list", result=ListToolsResult, cache="bypass"), ListToolsResult)
        assert_type(client.list_tools(cache="refresh", total=10), list[Tool])
        assert_type(client.call_tool("add", {"a": 1, "b": 2}, returns=int).data, int)
        assert_type(client.discovery.era, Literal["2025", "2026"])
    with ClientGroup({"near": made()}) as group:
        assert_type(group.list_tools(), Listing[Tool])
        assert_type(group.servers, dict[str, Member])


def made() -> Server:
    server = Server("near")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def name(ctx: Context) -> str:
        return await ctx.elicit("What is your name?", str)

    @server.tool
    def fail() -> str:
        raise ValueError("inner words")

    @server.tool
    def touch() -> str:
        server.notify(Changed("tools"))
        return "touched"

    return server


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_a_script_calls_tools_without_async(era: Any) -> None:
    with Client(made(), era=era) as client:
        assert client.call_tool("add", {"a": 1, "b": 2}).text == "3"
        assert client.call_tool("add", {"a": 1, "b": 2}, returns=int).data == 3
        assert [tool.name for tool in client.list_tools()] == ["add", "name", "fail", "touch"]
        client.ping()
        with pytest.raises(ToolCallError):
            client.call_tool("fail")
        with pytest.raises(PeerError, match="Unknown tool"):
            client.call_tool("nothing")


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_a_callback_may_block(era: Any) -> None:
    def on_elicit(form: object) -> dict[str, str]:
        time.sleep(0.05)
        return {"value": "Ada"}

    with Client(made(), era=era, on_elicit=on_elicit) as client:
        assert client.call_tool("name").text == "Ada"


async def test_it_works_under_a_running_loop() -> None:
    with Client(made()) as client:
        assert client.call_tool("add", {"a": 1, "b": 2}).data == 3


def test_changes_are_heard() -> None:
    with Client(made()) as client, client.listen(tools=True) as changes:
        client.call_tool("touch")
        assert changes.next(timeout=5) == Changed("tools")
        with pytest.raises(TimeoutError):
            changes.next(timeout=0.01)


def test_a_child_process_is_reached_and_ended(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    with Client([sys.executable, str(file)]) as client:
        assert client.call_tool("add", {"a": 20, "b": 22}).data == 42
    client.close()
    with pytest.raises(NotSent):
        client.ping()


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_a_task_is_found_again_by_another_client(era: Any, tmp_path: Path) -> None:
    """By its id, after this client and the server were restarted: the server has a backend on disk."""

    def restarted() -> Server:
        server = Server("jobs", backend=f"sqlite:///{tmp_path / 'state.db'}")
        server.add_extension(Tasks(poll_interval=0.05))

        @server.tool(task=True)
        async def report(ctx: Context) -> str:
            return await ctx.elicit("For whom?", str)

        return server

    states: list[TaskInfo] = []
    with Client(restarted(), era=era, on_elicit=lambda form: None) as client:
        assert_type(client.call_tool("report", task=True, returns=str), BlockingTask[str])
        task = client.call_tool("report", task=True, task_ttl=60)
        assert task.id is not None
        assert task.refresh().status in ("working", "input_required")
    with Client(restarted(), era=era, on_elicit=lambda form: {"value": "Ada"}) as client:
        again = client.tasks.resume(task.id, tool="report", returns=str)
        assert again.result(total=20, on_status=states.append).data == "Ada"
        assert (again.status, again.info.ended, states[-1].status) == ("completed", True, "completed")
        assert client.tasks.get(task.id).status == "completed"
        other = client.call_tool("report", task=True)
        other.cancel()
        assert other.wait(total=20).status == "cancelled"
        with pytest.raises(NotSent, match="does not declare it; ask for a task by its id"):
            client.tasks.list()
        with pytest.raises(PeerError):
            client.tasks.cancel("a" * 32)
