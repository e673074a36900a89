"""The typed module of a server: what stands in it, and that it is used as it reads."""

from __future__ import annotations

import sys
import types
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import pytest

import gemel.sync
from gemel import Client, Implementation, InvalidResponse, PeerError, Prompt, ResourceTemplate, Server, Tool, ToolError
from gemel.stubs.module import ServerLists, module_text

server = Server("weather", version="1.0")


@dataclass
class Day:
    name: str
    high: float
    low: float | None = None


@server.tool
async def forecast(city: str, days: int = 3, unit: Literal["C", "F"] = "C") -> list[Day]:
    """The weather of the coming days.

    Args:
        city: name of the city
    """
    if city == "Atlantis":
        raise ToolError("Atlantis has no weather")
    return [Day(f"{city} {day} {unit}", 20.0) for day in range(1, days + 1)]


@server.tool
def best(days: list[Day]) -> Day | None:
    """The warmest day."""
    return max(days, key=lambda day: day.high, default=None)


@server.tool(name="get-class")
def get_class(class_: str = "") -> str:
    """A name that Python has no place for."""
    return f"class {class_}"


@server.prompt
def brief(city: str, tone: str = "kind") -> str:
    """A brief."""
    return f"{city} {tone}"


@server.resource("weather://{city}/now{?unit}")
def now(city: str, unit: str = "C") -> str:
    """Now."""
    return f"{city} {unit}"


async def text_of(blocking: bool = False) -> str:
    async with Client(server) as client:
        return module_text(
            ServerLists(
                server=client.server_info,
                instructions=client.instructions,
                tools=await client.list_tools(),
                prompts=await client.list_prompts(),
                templates=await client.list_resource_templates(),
            ),
            blocking=blocking,
        )


@contextmanager
def imported(text: str) -> Iterator[Any]:
    """The module of a text."""
    found = types.ModuleType("weather_of_the_test")
    sys.modules[found.__name__] = found
    try:
        exec(compile(text, "weather_of_the_test.py", "exec"), found.__dict__)
        yield found
    finally:
        del sys.modules[found.__name__]


@pytest.fixture
async def module() -> AsyncIterator[Any]:
    with imported(await text_of()) as found:
        yield found


async def test_a_typed_module_is_used_as_it_reads(module: Any) -> None:
    for era in ("2025", "2026"):
        async with Client(server, era=era) as client:
            weather = module.Weather(client)
            days = await weather.forecast("Oslo", days=1)
            assert [(day.name, day.high) for day in days] == [("Oslo 1 C", 20.0)]
            assert isinstance(days[0], module.Day)
            assert (await weather.best(days)).name == "Oslo 1 C"
            assert await weather.best([]) is None
            assert (await weather.get_class(class_="x")).text == "class x"
            assert (await weather.get_class()).text == "class "
            assert (await weather.prompt_brief("Oslo", tone="dry")).messages[0].content.text == "Oslo dry"
            assert (await weather.prompt_brief("Oslo")).messages[0].content.text == "Oslo kind"
            assert (await weather.read_now("Ål i Hallingdal", unit="F")).contents[0].text == "Ål i Hallingdal F"
            with pytest.raises(Exception, match="Atlantis has no weather"):
                await weather.forecast("Atlantis")


async def test_options_of_the_face_go_with_every_call(module: Any) -> None:
    heard: list[Any] = []

    async def watch(ctx: Any, call_next: Any) -> Any:
        heard.append((ctx.method, ctx.total))
        return await call_next(ctx)

    async with Client(server, middleware=[watch]) as client:
        weather = module.Weather(client, total=7.0)
        await weather.forecast("Oslo")
        await weather.prompt_brief("Oslo")
        await weather.read_now("Oslo", unit="C")
    assert heard == [("tools/call", 7.0), ("prompts/get", 7.0), ("resources/read", 7.0)]


async def test_a_module_for_blocking_clients_waits_for_nothing() -> None:
    text = await text_of(blocking=True)
    assert "async" not in text
    assert "await" not in text
    with imported(text) as found, gemel.sync.Client(server) as client:
        assert found.Weather(client).forecast("Oslo")[0].name == "Oslo 1 C"


def of(tool: Tool) -> str:
    """What stands in a module for one tool, without the head."""
    return module_text(ServerLists(Implementation(name="s", version="1"), None, tools=[tool]))


def schema(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


STRING: Any = {"type": "string"}


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (STRING, "a: str | UnsetType = UNSET"),
        ({**STRING, "default": "x"}, 'a: str = "x"'),
        ({**STRING, "default": None}, "a: str | UnsetType = UNSET"),
        ({**STRING, "default": 3}, "a: str | UnsetType = UNSET"),
        ({"type": ["string", "null"], "default": None}, "a: str | None = None"),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}], "default": 3.0}, "a: int | None = 3"),
        ({"type": "number", "default": 1}, "a: float = 1"),
        ({"type": "boolean", "default": False}, "a: bool = False"),
        ({"enum": ["x", "y"], "default": "y"}, 'a: Literal["x", "y"] = "y"'),
        ({"enum": ["x", "y"], "default": "z"}, 'a: Literal["x", "y"] | UnsetType = UNSET'),
        ({"enum": ["x", 1, None]}, 'a: Literal["x", 1] | None | UnsetType = UNSET'),
        ({"const": "x"}, 'a: Literal["x"] | UnsetType = UNSET'),
        ({"type": "array", "items": STRING, "default": []}, "a: list[str] | UnsetType = UNSET"),
        ({"type": "array"}, "a: list[Any] | UnsetType = UNSET"),
        (
            {"type": "array", "prefixItems": [STRING, {"type": "null"}], "items": False, "minItems": 2},
            "a: tuple[str, None] | UnsetType = UNSET",
        ),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "a: dict[str, int] | UnsetType = UNSET"),
        ({"type": "object"}, "a: dict[str, Any] | UnsetType = UNSET"),
        ({}, "a: Any = UNSET"),
        ({"$ref": "https://elsewhere.example/x"}, "a: Any = UNSET"),
        (schema("b", b=STRING, c=STRING), "a: TADict | UnsetType = UNSET"),
    ],
)
def test_an_argument_has_the_type_that_its_schema_means(found: Any, text: str) -> None:
    assert f"        {text}," in of(Tool(name="t", input_schema=schema(a=found, z_long_enough_to_open_the_line=STRING)))


def test_required_arguments_come_first_and_all_others_by_name() -> None:
    text = of(Tool(name="t", input_schema=schema("b", a=STRING, b=STRING)))
    assert "    async def t(self, b: str, *, a: str | UnsetType = UNSET) -> CallToolResult:" in text


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (STRING, "str"),
        ({"type": "array", "items": {"type": "integer"}}, "list[int]"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"type": "null"}, "None"),
        ({"enum": ["x", "y"]}, 'Literal["x", "y"]'),
        (True, "Any"),
        (False, "Any"),
        ({"anyOf": [schema(a=STRING), schema(b=STRING)]}, "Any"),  # msgspec couldn't tell them apart
        (schema("a", a=STRING), "TResult"),
    ],
)
def test_a_result_has_the_type_that_its_schema_promises(found: Any, kind: str) -> None:
    text = of(Tool(name="t", input_schema=schema(), output_schema=found))
    assert f"    async def t(self) -> {kind}:" in text
    assert ("        return " in text) is (kind != "None")


def test_a_wrapped_result_has_the_type_of_its_value() -> None:
    """Clients unwrap it, as in a listing of revision 2025-11-25."""
    definitions = {"Day": schema("name", name=STRING)}
    inner = {"type": "array", "items": {"$ref": "#/properties/result/$defs/Day"}, "$defs": definitions}
    wrapped = {**schema("result", result=inner), "x-gemel-wrap-result": True}
    text = of(Tool(name="t", input_schema=schema(), output_schema=wrapped))
    assert "    async def t(self) -> list[Day]:" in text


def test_a_class_can_hold_itself() -> None:
    node = schema("value", value={"type": "integer"}, next={"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]})
    tree: Any = {"$ref": "#/$defs/Node", "$defs": {"Node": node}}
    text = of(
        Tool(name="t", input_schema={**schema(a={"$ref": "#/$defs/Node"}), "$defs": {"Node": node}}, output_schema=tree)
    )
    assert "    next: Node | None | UnsetType = UNSET" in text
    assert "    next: NotRequired[NodeDict | None]" in text
    assert "class Node(msgspec.Struct, kw_only=True):" in text


def test_names_that_python_or_the_module_needs_are_changed_and_sent_as_they_are() -> None:
    found = schema("self", "class", "a-b", "list", **{"self": STRING, "class": STRING, "a-b": STRING, "list": STRING})
    text = of(Tool(name="dict", input_schema=found, output_schema=found))
    assert "given: dict[str, Any] = {" in text
    for entry in ('"self": self_,', '"class": class_,', '"a-b": a_b,', '"list": list_,'):
        assert entry in text
    assert "async def dict_(" in text
    assert 'rename={"class_": "class", "a_b": "a-b"},' in text


def test_equal_names_are_told_apart() -> None:
    tools = [Tool(name=name, input_schema=schema()) for name in ("a-b", "a_b", "a.b")]
    prompts = [Prompt(name="a"), Prompt(name="A"), Prompt(name="prompt_a")]
    templates = [ResourceTemplate(uri_template="x://{a}", name="a"), ResourceTemplate(uri_template="{", name="broken")]
    text = module_text(ServerLists(None, None, tools, prompts, templates))
    names = [line.partition("(")[0].split()[-1] for line in text.splitlines() if line.startswith("    async def")]
    assert names == ["a_b_", "a_b", "a_b_2", "prompt_a", "prompt_A", "prompt_prompt_a", "read_a"]


def test_the_same_class_stands_there_once() -> None:
    day = schema("name", name=STRING)
    tools = [
        Tool(name=name, input_schema=schema(), output_schema={"$ref": "#/$defs/Day", "$defs": {"Day": day}})
        for name in ("one", "two")
    ]
    text = module_text(ServerLists(None, None, tools))
    assert text.count("class Day") == 1


def test_an_older_dialect_is_understood() -> None:
    found = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **schema("a", a={"items": [STRING, STRING], "additionalItems": False, "minItems": 2, "type": "array"}),
    }
    assert "async def t(self, a: tuple[str, str])" in of(Tool(name="t", input_schema=found))


async def test_a_result_that_is_not_what_was_promised_is_an_error(module: Any) -> None:
    """The server changed; the module didn't."""
    other = Server("weather")

    @other.tool(name="forecast")
    def changed(city: str, days: int, unit: str) -> list[int]:
        """Numbers."""
        return [days]

    async with Client(other) as client:
        with pytest.raises(InvalidResponse):
            await module.Weather(client).forecast("Oslo")
        with pytest.raises(PeerError):
            await module.Weather(client).best([])
