"""Tools as typed functions: the text compiles, is typed and does nothing, whatever the tools say."""

from __future__ import annotations

import ast
import json
import keyword
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from gemel.schema.tools import Tool
from gemel.stubs.functions import ToolFunctions
from gemel.stubs.module import ServerLists
from tests.source import ROOT
from tests.stubs.hostile import NAMES, SERVERS
from tests.stubs.test_hostile import _AS_FOUND, SLOW

LISTS: dict[str, list[dict[str, Any]]] = json.loads((ROOT / "benchmarks" / "tool_lists.json").read_text())
#: What a module of functions consists of.
MADE_OF = (ast.AsyncFunctionDef, ast.ClassDef, ast.AnnAssign, ast.Assign)


def with_texts(value: Any) -> Any:
    """A recorded schema with a text of the recorded length in place of each length."""
    if isinstance(value, dict):
        return {
            key: "word " * (inner // 5) if key == "description" and isinstance(inner, int) else with_texts(inner)
            for key, inner in value.items()
        }
    return [with_texts(one) for one in value] if isinstance(value, list) else value


def recorded(server: str) -> list[Tool]:
    return [
        Tool(
            name=one["name"],
            description="word " * 20,
            input_schema=with_texts(one["inputSchema"]),
            output_schema=with_texts(one.get("outputSchema")),
        )
        for one in LISTS[server]
    ]


def strange(text: str) -> list[str]:
    """What is more than definitions of types and functions without a body."""
    tree = ast.parse(text)
    found = [ast.unparse(one) for one in tree.body if not isinstance(one, MADE_OF)]
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef):
            body = node.body[1:] if isinstance(node.body[0], ast.Expr) and ast.get_docstring(node) else node.body
            found += [ast.unparse(one) for one in body if not _is_dots(one)]
        elif (isinstance(node, ast.Call) and ast.unparse(node.func) != "TypedDict") or isinstance(
            node, (ast.Import, ast.ImportFrom, ast.Lambda, ast.Raise, ast.JoinedStr)
        ):
            found.append(ast.unparse(node))
    return found


def _is_dots(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and statement.value.value is ...
    )


def made(*tools: Tool, short: bool = False) -> str:
    return ToolFunctions(tools).text(short=short)


def object_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_a_tool_is_a_function_with_named_arguments() -> None:
    tool = Tool(
        name="get-weather",
        description="Weather of a day.\nWith more.",
        input_schema={
            **object_of(city={"type": "string", "description": "Where."}, days={"type": "integer"}),
            "required": ["city"],
        },
        output_schema={"type": "object", "properties": {"result": {"type": "number"}}, "x-fastmcp-wrap-result": True},
    )
    functions = ToolFunctions([tool])
    assert "async def get_weather(*, city: str, days: int = ...) -> float:" in functions.text()
    assert "With more." in functions.text()
    assert "Where." in functions.text()
    assert "With more." not in functions.text(short=True)


def test_the_format_of_an_argument_stands_for_its_description() -> None:
    when, day = {"type": "string", "format": "date-time"}, {"type": "string", "format": "date", "description": "Which."}
    tool = Tool(name="book", input_schema=object_of(when=when, day=day))
    assert "when: date-time" in made(tool)
    assert "day: Which." in made(tool)
    assert made(tool, short=True).splitlines()[1:] == ["    ..."]


@pytest.mark.parametrize(
    "name", ["class", "self", "from", "a-b", "1st", "Any", "é", "", "None", "list", "a b", "import"]
)
def test_arguments_have_names_that_python_can_have(name: str) -> None:
    tool = Tool(name=name, input_schema={**object_of(**{name: {"type": "string"}}), "required": [name]})
    functions = ToolFunctions([tool])
    ((argument, wire),) = functions.functions[0].wires.items()
    assert wire == name
    assert argument.isidentifier()
    assert not keyword.iskeyword(argument)
    assert strange(functions.text()) == []


def test_tools_of_like_names_are_functions_of_their_own() -> None:
    tools = [Tool(name=name, input_schema=object_of()) for name in ("a-b", "a_b", "a.b", "a b", "A-B")]
    names = [one.name for one in ToolFunctions(tools).functions]
    assert names == ["a_b_", "a_b", "a_b_2", "a_b_3", "A_B"]


@pytest.mark.parametrize("name", ["a_b", "a__b", "a_", "camelCase", "A", "x" * 64])
def test_a_name_that_python_can_have_is_kept_whatever_comes_before_it(name: str) -> None:
    before = [Tool(name=other, input_schema=object_of()) for other in ("a-b", "a b", "a-", "camel Case", "A-", "a--b")]
    like = Tool(name=f"{name}-", input_schema=object_of())
    called = ToolFunctions([*before, like, Tool(name=name, input_schema=object_of())]).functions
    assert called[-1].name == name
    assert len({one.name for one in called}) == len(called)


def test_a_parameter_that_python_can_have_is_kept() -> None:
    tool = Tool(name="find", input_schema=object_of(**{"a-b": True, "a_b": True, "list": True, "list_": True}))
    wires = ToolFunctions([tool]).functions[0].wires
    assert {wire: name for name, wire in wires.items()} == {
        "a-b": "a_b_", "a_b": "a_b", "list": "list_2", "list_": "list_",
    }  # fmt: skip


@pytest.mark.parametrize("short", [True, False])
def test_the_name_of_a_tool_stands_above_a_function_that_is_called_otherwise(short: bool) -> None:
    long = "x" * 64
    text = made(
        *(Tool(name=name, input_schema={}) for name in ("get-page", f"{long}-one", f"{long}-two", "print")), short=short
    )
    assert "async def get_page(" in text
    assert '# the tool "get-page"' not in text
    for name, called in {f"{long}-one": long, f"{long}-two": f"{long}_", "print": "print_"}.items():
        assert f'# the tool "{name}"\nasync def {called}(' in text


def test_a_function_has_only_the_types_that_it_needs() -> None:
    inner = object_of(inner=object_of(number={"type": "integer"}))
    functions = ToolFunctions(
        [
            Tool(name="first", input_schema=object_of(first=inner)),
            Tool(name="second", input_schema=object_of(other=inner)),
        ]
    )
    for one in functions.functions:
        assert strange(functions.text([one])) == []
    assert "first" not in functions.text([functions.functions[1]])


@settings(max_examples=100, deadline=None, suppress_health_check=SLOW, phases=_AS_FOUND)
@given(SERVERS)
@pytest.mark.timeout(120)
def test_hostile_tools_put_no_code_into_it(offered: ServerLists) -> None:
    tools = offered.tools or []
    functions = ToolFunctions(tools)
    for short in (False, True):
        assert strange(functions.text(short=short)) == []
    for one in functions.functions:
        assert strange(functions.text([one])) == []
        assert set(one.wires.values()) == set((one.tool.input_schema.get("properties") or {}).keys())


def test_names_that_a_module_needs_are_left_to_it() -> None:
    text = made(*(Tool(name=name, input_schema=object_of(**dict.fromkeys(NAMES, True))) for name in NAMES))
    assert strange(text) == []


@pytest.mark.parametrize("server", LISTS)
def test_tools_of_published_servers_are_typed_functions(server: str) -> None:
    tools = recorded(server)
    functions = ToolFunctions(tools)
    assert len({one.name for one in functions.functions}) == len(tools)
    assert strange(functions.text()) == []
    for one in functions.functions:
        assert strange(functions.text([one], short=True)) == []


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_type_checker_accepts_them(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    for server in LISTS:
        text = ToolFunctions(recorded(server)).text()
        name = server.replace("-", "_")
        (tmp_path / f"{name}.pyi").write_text(ToolFunctions.imports(text) + text)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir", str(tmp_path / "cache")]
    files = [str(path) for path in tmp_path.glob("*.pyi")]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout[:4000]
