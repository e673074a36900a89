"""What a client knows of listed tools: headers to mirror, results to check, calls that may be repeated."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from msgspec import UNSET

from gemel import (
    CallToolResult,
    Client,
    ClientGroup,
    Context,
    InvalidResponse,
    PeerError,
    Server,
    Tasks,
    TasksClient,
    Tool,
    ToolAnnotations,
    ToolCallError,
)
from gemel.client.tools import ToolIndex
from gemel.sync import Client as SyncClient
from tests.client.puppet import Error, done, modern
from tests.support import EraName

OBJECT: dict[str, Any] = {"type": "object"}
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def index(*tools: Tool, mirrored: bool = True) -> ToolIndex:
    found = ToolIndex()
    found.take(tools, mirrored=mirrored)
    return found


def result(structured: Any = UNSET, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[], structured_content=structured, is_error=is_error)


def check(schema: Any, answer: CallToolResult) -> None:
    known = index(Tool(name="x", input_schema=OBJECT, output_schema=schema)).by_name.get("x")
    assert known is not None
    known.check(answer)


@pytest.mark.parametrize(
    ("schema", "structured"),
    [(NUMBER, {"n": 1}), ({"type": "array"}, [1]), ({"type": "null"}, None), (True, 5), ({}, "x")],
)
def test_what_fits_the_output_schema_passes(schema: Any, structured: Any) -> None:
    """TOOL-14, TOOL-16: any JSON value, null included."""
    check(schema, result(structured))


@pytest.mark.parametrize("structured", [{"n": "1"}, {}, [], None, 7])
def test_what_does_not_fit_the_output_schema_is_no_valid_answer(structured: Any) -> None:
    """TOOL-16."""
    with pytest.raises(InvalidResponse, match="does not fit its output schema"):
        check(NUMBER, result(structured))


def test_a_schema_without_structured_content_is_no_valid_answer_but_for_failures() -> None:
    with pytest.raises(InvalidResponse, match="has no structured content"):
        check(NUMBER, result())
    check(NUMBER, result(is_error=True))
    check(None, result())


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://example.test/schema"},
        {"type": "nonsense"},
        {"$schema": "https://example.test/own-dialect", "type": "object"},
    ],
)
def test_a_schema_that_cannot_be_used_checks_nothing_and_says_so(schema: Any, caplog: pytest.LogCaptureFixture) -> None:
    """JSON-01, JSON-02."""
    with caplog.at_level(logging.WARNING, "gemel"):
        check(schema, result({"anything": 1}))
    assert "its results are not validated" in caplog.text


def test_a_huge_schema_checks_nothing_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """JSON-04."""
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(200):
        deep = {"type": "object", "properties": {"x": deep}}
    check(deep, result({"x": 1}))
    assert "not validated" in caplog.text


def test_a_tool_with_wrong_header_annotations_is_left_out_where_it_matters(caplog: pytest.LogCaptureFixture) -> None:
    """HDR-15: one tool, not the list; and only over HTTP."""
    good = Tool(
        name="good", input_schema={"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
    )
    bad = Tool(
        name="bad", input_schema={"type": "object", "properties": {"a": {"type": "object", "x-mcp-header": "A"}}}
    )
    assert [tool.name for tool in ToolIndex().take([bad, good], mirrored=True)] == ["good"]
    assert "Tool 'bad' is left out" in caplog.text
    assert [tool.name for tool in ToolIndex().take([bad, good], mirrored=False)] == ["bad", "good"]


def test_arguments_are_mirrored_as_the_listing_says() -> None:
    """HDR-13, HDR-14."""
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "x-mcp-header": "City"}, "n": {"type": "integer"}},
    }
    tools = index(Tool(name="x", input_schema=schema))
    assert tools.headers("x", {"city": "Oslo", "n": 5}) == {"Mcp-Param-City": "Oslo"}
    assert tools.headers("x", {"n": 5}) == {}
    assert tools.headers("unknown", {"city": "Oslo"}) == {}


@pytest.mark.parametrize(
    ("annotations", "safe"),
    [
        (None, False),
        (ToolAnnotations(), False),
        (ToolAnnotations(read_only_hint=True), True),
        (ToolAnnotations(idempotent_hint=True), True),
        (ToolAnnotations(destructive_hint=False), False),
        (ToolAnnotations(read_only_hint=False, idempotent_hint=False), False),
    ],
)
def test_only_what_says_so_is_safe_to_repeat(annotations: ToolAnnotations | None, safe: bool) -> None:
    """TOOL-10."""
    known = index(Tool(name="x", input_schema=OBJECT, annotations=annotations)).by_name.get("x")
    assert known is not None
    assert known.safe is safe


async def test_results_of_listed_tools_are_checked_unless_unwanted() -> None:
    """TOOL-16."""
    tool = {"name": "x", "inputSchema": OBJECT, "outputSchema": NUMBER}
    listed = {"resultType": "complete", "tools": [tool], "ttlMs": 0, "cacheScope": "private"}
    puppet = modern(tools_list=listed, tools_call=done(structuredContent={"n": "one"}))
    async with Client(puppet) as client:
        assert (await client.call_tool("x")).data == {"n": "one"}
        await client.list_tools()
        with pytest.raises(InvalidResponse):
            await client.call_tool("x")
    async with Client(puppet, check_results=False) as client:
        await client.list_tools()
        assert (await client.call_tool("x")).data == {"n": "one"}


# ---------------------------------------------------------------- data of results


class Day(pydantic.BaseModel):
    name: str
    high: float


class Place(msgspec.Struct):
    name: str


def values() -> Server[Any]:
    server: Server[Any] = Server("values")

    @server.tool
    def days() -> list[Day]:
        return [Day(name="Monday", high=20.5)]

    @server.tool
    def maybe(there: bool) -> Day | None:
        return Day(name="Monday", high=20.5) if there else None

    @server.tool
    def count() -> int:
        return 3

    @server.tool
    def text() -> str:
        return "some text"

    @server.tool
    def place() -> Place:
        return Place("Oslo")

    @server.tool
    def by_hand(there: bool) -> Annotated[CallToolResult, Place | None]:
        value = {"name": "Oslo"} if there else None
        return CallToolResult(content=[], structured_content=value)

    return server


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_data_has_the_declared_type_in_both_eras(era: EraName, listed: bool) -> None:
    monday = Day(name="Monday", high=20.5)
    async with Client(values(), era=era) as client:
        if listed:
            await client.list_tools()
        assert (await client.call_tool("days", returns=list[Day])).data == [monday]
        assert (await client.call_tool("days", returns=tuple[Day, ...])).data == (monday,)
        assert (await client.call_tool("maybe", {"there": True}, returns=Day | None)).data == monday
        assert (await client.call_tool("maybe", {"there": False}, returns=Day | None)).data is None
        assert (await client.call_tool("count", returns=int)).data == 3
        assert (await client.call_tool("text")).data == "some text"
        assert (await client.call_tool("place", returns=Place)).data == Place("Oslo")
        assert (await client.call_tool("by_hand", {"there": True}, returns=Place | None)).data == Place("Oslo")
        assert (await client.call_tool("by_hand", {"there": False}, returns=Place | None)).data is None


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_data_without_a_type_is_the_value_of_the_tool(era: EraName) -> None:
    """In both eras, if the tool was listed."""
    async with Client(values(), era=era) as client:
        await client.list_tools()
        assert (await client.call_tool("count")).data == 3
        assert (await client.call_tool("days")).data == [{"name": "Monday", "high": 20.5}]
        assert (await client.call_tool("maybe", {"there": False})).data is None
        assert (await client.call_tool("maybe", {"there": True})).data == {"name": "Monday", "high": 20.5}
        assert (await client.call_tool("place")).data == {"name": "Oslo"}


class Answer(msgspec.Struct):
    result: int


@pytest.mark.parametrize("marker", ["x-fastmcp-wrap-result", None])
async def test_only_what_is_marked_or_asked_for_is_unwrapped(marker: str | None) -> None:
    """An object whose only member is called result may be just that."""
    server: Server[Any] = Server("foreign")
    schema: dict[str, Any] = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}
    if marker is not None:
        schema[marker] = True

    @server.tool(output_schema=schema)
    def answer() -> dict[str, int]:
        return {"result": 42}

    async with Client(server) as client:
        await client.list_tools()
        result = await client.call_tool("answer")
        assert result.structured_content == {"result": 42}
        assert result.data == ({"result": 42} if marker is None else 42)
        assert (await client.call_tool("answer", returns=int)).data == 42
        if marker is None:
            assert (await client.call_tool("answer", returns=Answer)).data == Answer(42)
            assert (await client.call_tool("answer", returns=dict[str, int])).data == {"result": 42}
        with pytest.raises(InvalidResponse):
            await client.call_tool("answer", returns=list[int])


# ---------------------------------------------------------------- what models make up


def forecasts(**options: Any) -> Server[Any]:
    server: Server[Any] = Server("weather", **options)

    @server.tool
    async def forecast(city: str) -> str:
        return f"{city}: fine"

    return server


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_name_or_arguments_that_a_model_made_up_give_an_error_result_if_wanted(era: EraName) -> None:
    async with Client(forecasts(), era=era) as client:
        unknown = await client.call_tool("forcast", {"city": "Oslo"}, raise_on_error=False)
        wrong = await client.call_tool("forecast", {"town": "Oslo"}, raise_on_error=False, returns=str)
        with pytest.raises(PeerError) as refused:
            await client.call_tool("forcast", {"city": "Oslo"})
    assert unknown.is_error
    assert unknown.text == "Unknown tool: forcast. Did you mean 'forecast'?"
    assert wrong.is_error
    assert "city" in wrong.text
    assert refused.value.code == -32602


async def test_the_same_of_a_group_a_task_and_a_client_without_async() -> None:
    tasks = forecasts()
    tasks.add_extension(Tasks())
    async with ClientGroup({"a": forecasts(), "b": tasks}, prefix="always") as group:
        unknown = await group.call_tool("a_forcast", raise_on_error=False)
        of_server = await group.call_tool("forcast", server="b", raise_on_error=False)
    assert unknown.is_error
    assert unknown.text.startswith("No server has tool 'a_forcast'; did you mean 'a_forecast'")
    assert of_server.is_error
    assert of_server.text.startswith("Unknown tool: forcast.")
    async with Client(tasks, extensions=[TasksClient]) as client:
        task = await client.call_tool("forcast", task=True, raise_on_error=False)
        assert (await task.result()).is_error
    with SyncClient(forecasts()) as blocking:
        assert blocking.call_tool("forcast", raise_on_error=False).is_error


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_tool_that_asks_what_the_client_can_not_answer_gives_an_error_result_if_wanted(era: EraName) -> None:
    server = forecasts()

    @server.tool
    async def ask(ctx: Context) -> str:
        return str(await ctx.elicit("Which day?", str))

    text = "Missing required client capability: elicitation"
    async with Client(server, era=era) as client:
        result = await client.call_tool("ask", raise_on_error=False)
        assert result.is_error
        assert text in result.text
        with pytest.raises(PeerError if era == "2026" else ToolCallError, match=text):
            await client.call_tool("ask")
    async with ClientGroup({"a": Client(server, era=era)}) as group:
        assert text in (await group.call_tool("ask", raise_on_error=False)).text


async def test_what_the_server_refuses_for_another_reason_is_raised() -> None:
    async with Client(modern(tools_call=Error(-32603, "Internal server error"))) as client:
        with pytest.raises(PeerError, match="Internal"):
            await client.call_tool("forecast", raise_on_error=False)
