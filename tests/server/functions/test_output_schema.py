"""What a tool's output schema promises is kept, whoever wrote the schema and whoever made the result (TOOL-15)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from gemel import CallToolResult, Client, DefinitionError, Server, TextContent
from tests.server.bare_end import BareEnd, Era

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


@dataclass
class Point:
    x: int


def made(structured: Any = ..., **more: Any) -> CallToolResult:
    """A result made by hand."""
    given = {} if structured is ... else {"structured_content": structured}
    return CallToolResult(content=[TextContent(text="made")], **given, **more)


def annotated(annotation: Any, value: Any) -> Callable[[], Any]:
    def tool() -> Any:
        return value

    tool.__annotations__["return"] = annotation
    return tool


@both_eras
@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (dict[str, Any], {"x": 1}),
        (Any, {"x": 1}),
        (Any, Point(1)),
        (Point, Point(1)),
        (CallToolResult, made({"x": 1})),
        (CallToolResult, made(Point(1))),
    ],
)
async def test_what_fits_a_schema_of_the_authors_own_goes_out(era: Era, annotation: Any, value: Any) -> None:
    server: Server[Any] = Server("x")
    server.tool("point", output_schema=POINT)(annotated(annotation, value))
    async with BareEnd(server, era) as end:
        assert (await end.ask("tools/list"))["tools"][0]["outputSchema"] == POINT
        assert (await end.call_tool("point"))["structuredContent"] == {"x": 1}


@both_eras
@pytest.mark.parametrize(
    ("annotation", "value", "said"),
    [
        (dict[str, Any], {"y": 1}, "what it returned doesn't fit its output schema: "),
        (dict[str, Any], {"x": "one"}, "what it returned doesn't fit its output schema: x: "),
        (Any, None, "what it returned doesn't fit its output schema: "),
        (str, "x", "what it returned doesn't fit its output schema: "),
        (None, None, "what it returned doesn't fit its output schema: "),
        (list[TextContent], [TextContent(text="x")], "it has an output schema, but returned content: "),
        (TextContent, TextContent(text="x"), "it has an output schema, but returned content: "),
        (CallToolResult, made(), "it has an output schema, but returned a result without structured content: "),
        (CallToolResult, made({"y": 1}), "what it returned doesn't fit its output schema: "),
        (CallToolResult, made(object()), "it returned object, which has no JSON form"),
        (Any, object(), "returned object, which has no JSON form"),
    ],
)
async def test_what_does_not_fit_never_leaves(
    era: Era, annotation: Any, value: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log tells the author, the client learns that the tool failed."""
    server: Server[Any] = Server("x")
    server.tool("point", output_schema=POINT)(annotated(annotation, value))
    async with BareEnd(server, era) as end:
        result = await end.call_tool("point")
    assert result["isError"]
    assert "structuredContent" not in result
    (record,) = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert said in record.getMessage()


@both_eras
async def test_a_promise_by_annotation_holds_for_a_result_made_by_hand(era: Era) -> None:
    server: Server[Any] = Server("x")

    def point(structured: dict[str, Any]) -> Annotated[CallToolResult, Point]:
        return made(structured) if structured else made()

    server.tool(point)
    async with BareEnd(server, era) as end:
        assert (await end.call_tool("point", structured={"x": 1}))["structuredContent"] == {"x": 1}
        assert (await end.call_tool("point", structured={"x": "one"}))["isError"]
        assert (await end.call_tool("point", structured={}))["isError"]


async def test_a_failure_keeps_no_promise() -> None:
    """It goes out as it was made."""
    server: Server[Any] = Server("x")
    server.tool("point", output_schema=POINT)(annotated(CallToolResult, made(is_error=True)))
    async with BareEnd(server) as end:
        assert (await end.call_tool("point"))["content"] == [{"type": "text", "text": "made"}]


@pytest.mark.parametrize(
    ("schema", "annotation", "value"),
    [({"type": "string"}, str, "hello"), ({"type": "null"}, None, None), ({}, str | None, "hello")],
)
async def test_text_and_nothing_are_structured_where_a_schema_says_so(schema: Any, annotation: Any, value: Any) -> None:
    """TOOL-14: any value may be."""
    server: Server[Any] = Server("x")
    server.tool("say", output_schema=schema)(annotated(annotation, value))
    async with Client(server) as client:
        await client.list_tools()
        result = await client.call_tool("say")
        assert (result.structured_content, result.text) == (value, value or "")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "nope"}, "Tool 'x': its output_schema is not a usable JSON Schema: type: "),
        ({"$ref": "https://a.example/b.json"}, "Tool 'x': its output_schema is not a usable JSON Schema: "),
        (True, "Tool 'x': its output_schema is not a usable JSON Schema: write it as a dict"),
        (5, "Tool 'x': Expected `bool | object | null`, got `int` - at `$.outputSchema`"),
    ],
)
def test_a_schema_that_can_not_be_used_is_told_at_registration(schema: Any, said: str) -> None:
    server: Server[Any] = Server("x")
    with pytest.raises(DefinitionError) as caught:
        server.tool("x", output_schema=schema)(annotated(Any, 1))
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
