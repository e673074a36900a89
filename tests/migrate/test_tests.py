"""Tests that are migrated with their server pass as before; what changes is rewritten, noted, or in the guide."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("libcst")
from gemel.migrate import migrate_paths  # needs libcst

SERVER = """\
from dataclasses import dataclass

from fastmcp import FastMCP
from fastmcp.exceptions import ToolError

mcp = FastMCP("people")


@dataclass
class Person:
    name: str


@mcp.tool
def person(name: str) -> Person:
    if not name:
        raise ToolError("nobody")
    return Person(name)


@mcp.tool
def people() -> list[Person]:
    return [Person("Ada")]


@mcp.tool
def count() -> int:
    return 3


@mcp.resource("person://{name}")
def card(name: str) -> str:
    return f"the card of {name}"


@mcp.prompt
def greet(name: str) -> str:
    return f"Greet {name}"
"""
TESTS = """\
import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from server import mcp


@pytest.fixture
async def client():
    async with Client(mcp) as client:
        yield client


async def test_values(client):
    result = await client.call_tool("count")
    assert result.data == 3
    assert result.content[0].text == "3"
    assert not result.is_error


async def test_objects(client):
    result = await client.call_tool("person", {"name": "Ada"})
    assert result.data.name == "Ada"
    assert result.structured_content["name"] == "Ada"
    listed = await client.call_tool("people")
    assert [found.name for found in listed.data] == ["Ada"]
    assert listed.data[0].name.upper() == "ADA"


async def test_failures(client):
    with pytest.raises(ToolError, match="nobody"):
        await client.call_tool("person", {"name": ""})
    result = await client.call_tool("person", {"name": ""}, raise_on_error=False)
    assert result.is_error


async def test_lists(client):
    tools = await client.list_tools()
    assert {tool.name for tool in tools} == {"person", "people", "count"}
    person = next(tool for tool in tools if tool.name == "person")
    assert list(person.inputSchema["properties"]) == ["name"]


async def test_other_features(client):
    contents = await client.read_resource("person://Ada")
    assert contents[0].text == "the card of Ada"
    prompt = await client.get_prompt("greet", {"name": "Ada"})
    assert prompt.messages[0].content.text == "Greet Ada"
"""


def test_tests_for_fastmcp_pass_with_the_server(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "test_server.py").write_text(TESTS)
    files = list(migrate_paths([tmp_path]))
    assert [note for file in files for note in file.notes] == []
    for file in files:
        file.write()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout


def test_the_field_of_wrapped_results_is_noted(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    call = 'result = await client.call_tool("count")\n    assert result.structured_content == {"result": 3}\n'
    (tmp_path / "test_server.py").write_text(f"{TESTS}\n\nasync def test_wrapped(client):\n    {call}")
    notes = [note for file in migrate_paths([tmp_path]) for note in file.notes]
    assert len(notes) == 1
    assert "use .data" in notes[0].text
