"""Tools as clients meet them: how they are listed, what calling one gives, and how they come and go, in both eras."""

from __future__ import annotations

import enum
import functools
import math
import threading
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, cast

import msgspec
import pytest

from gemel import (
    CallToolResult,
    Client,
    Context,
    DefinitionError,
    EmbeddedResource,
    ImageContent,
    PeerError,
    ResourceContents,
    Server,
    TextContent,
    ToolAnnotations,
    ToolCallError,
    ToolError,
)
from tests.server.bare_end import BareEnd, Era

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


class Unit(enum.Enum):
    CELSIUS = "C"
    KELVIN = "K"


@dataclass
class Place:
    """Somewhere."""

    lat: float
    lon: float = 0.0


class Span(TypedDict):
    first: date
    days: int


class Pair(NamedTuple):
    left: int
    right: int


class Day(msgspec.Struct):
    name: str
    high: float


def weather() -> Server[Any]:
    server: Server[Any] = Server("weather")

    @server.tool(
        title="Forecast",
        annotations={"read_only_hint": True, "open_world_hint": False},
        icons=["https://example.com/sun.png"],
        meta={"com.example/cost": 2},
    )
    async def forecast(city: str, days: Annotated[int, msgspec.Meta(ge=1, le=7)] = 3) -> Day:
        """The weather to come.

        Args:
            city: name of the city
        """
        return Day(city, days)

    @server.tool
    async def buy(item: str) -> str:
        """Buy something."""
        if item == "moon":
            raise ToolError("The moon is not for sale.")
        raise RuntimeError("the password is 1234")

    @server.tool("weather.warn-all", annotations=ToolAnnotations(destructive_hint=True), output_schema=None)
    def warn() -> list[Day]:
        return [Day("Monday", 7.5)]

    return server


# ---------------------------------------------------------------- lists


@both_eras
async def test_a_tool_is_listed_with_all_that_is_known_of_it(era: Era) -> None:
    """TOOL-03: in the order of registration, the same at each time."""
    async with BareEnd(weather(), era) as end:
        listed = (await end.ask("tools/list"))["tools"]
        assert (await end.ask("tools/list"))["tools"] == listed
    assert [tool["name"] for tool in listed] == ["forecast", "buy", "weather.warn-all"]
    assert listed[0] == {
        "name": "forecast",
        "title": "Forecast",
        "description": "The weather to come.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "name of the city"},
                "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 3},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
        "outputSchema": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "high": {"type": "number"}},
            "required": ["name", "high"],
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
        "icons": [{"src": "https://example.com/sun.png"}],
        "_meta": {"com.example/cost": 2},
    }
    assert listed[1]["inputSchema"]["required"] == ["item"]
    assert "outputSchema" not in listed[2]
    assert listed[2]["annotations"] == {"destructiveHint": True}


@both_eras
async def test_annotations_may_be_given_by_pythons_names_or_the_protocols(era: Era) -> None:
    server: Server[Any] = Server("x")
    server.tool("a", annotations={"destructive_hint": False, "idempotentHint": True, "title": "A"})(lambda: "x")
    server.resource("x://a", name="a", annotations={"last_modified": "2026-07-28T00:00:00Z"})(lambda: "x")
    async with BareEnd(server, era) as end:
        (tool,) = (await end.ask("tools/list"))["tools"]
        assert tool["annotations"] == {"destructiveHint": False, "idempotentHint": True, "title": "A"}
        (resource,) = (await end.ask("resources/list"))["resources"]
        assert resource["annotations"] == {"lastModified": "2026-07-28T00:00:00Z"}


def test_annotations_that_nobody_knows_are_told() -> None:
    """They would be lost without a word."""
    server: Server[Any] = Server("x")
    for wrong, words in (
        ({"read_only": True}, "Tool 'a': annotations: there is no 'read_only': did you mean 'read_only_hint'?"),
        (
            {"zzz": True},
            "Tool 'a': annotations: there is no 'zzz': there are title, read_only_hint, destructive_hint, idempotent_hint, "
            "open_world_hint",
        ),
        ({"read_only_hint": "yes"}, "Tool 'a': annotations: Expected `bool | null`, got `str` - at `$.readOnlyHint`"),
    ):
        with pytest.raises(DefinitionError) as caught:
            server.tool("a", annotations=wrong)(lambda: "x")
        assert str(caught.value) == words
    with pytest.raises(DefinitionError, match="The resource 'x://a': annotations: there is no 'prority'"):
        server.resource("x://a", name="a", annotations={"prority": 1})(lambda: "x")


# ---------------------------------------------------------------- calls

ARGUMENTS: dict[str, tuple[Any, Any, Any]] = {
    "str": (str, "a", "a"),
    "int": (int, 7, 7),
    "float": (float, 7, 7.0),
    "bool": (bool, True, True),
    "None": (None, None, None),
    "a literal": (Literal["a", 1], 1, 1),
    "an enum": (Unit, "K", Unit.KELVIN),
    "a date": (date, "2026-07-28", date(2026, 7, 28)),
    "bytes": (bytes, "eA==", b"x"),
    "a list": (list[int], [1, 2], [1, 2]),
    "a set": (set[str], ["a"], {"a"}),
    "a tuple": (tuple[int, str], [1, "a"], (1, "a")),
    "a dict": (dict[str, int], {"a": 1}, {"a": 1}),
    "an optional": (int | None, None, None),
    "a union": (int | str, "a", "a"),
    "a dataclass": (Place, {"lat": 1.5}, Place(1.5)),
    "a typed dict": (Span, {"first": "2026-07-28", "days": 2}, {"first": date(2026, 7, 28), "days": 2}),
    "a named tuple": (Pair, [1, 2], Pair(1, 2)),
    "a struct": (Day, {"name": "x", "high": 1}, Day("x", 1.0)),
    "anything": (Any, {"a": [None]}, {"a": [None]}),
    "an annotated one": (Annotated[int, "how many"], 3, 3),
}


@pytest.mark.parametrize("what", ARGUMENTS)
async def test_an_argument_arrives_as_the_type_that_its_annotation_names(what: str) -> None:
    """And its schema is one that the published one allows."""
    annotation, sent, wanted = ARGUMENTS[what]
    came: list[Any] = []

    def tool(value: Any) -> None:
        came.append(value)

    tool.__annotations__["value"] = annotation
    server: Server[Any] = Server("kinds")
    server.tool(tool)
    async with BareEnd(server) as end:
        await end.ask("tools/list")
        result = await end.call_tool("tool", value=sent)
    assert result == {**result, "content": []}
    assert "isError" not in result
    assert [(one, type(one)) for one in came] == [(wanted, type(wanted))]


@both_eras
async def test_what_goes_wrong_is_told_word_for_word(era: Era) -> None:
    """TOOL-18, TOOL-19, TOOL-21."""
    async with BareEnd(weather(), era) as end:
        for arguments, text in (
            ({"item": "moon"}, "The moon is not for sale."),
            ({"item": "car"}, "Tool 'buy' failed unexpectedly. The server's log says why."),
            (
                {"itm": "x"},
                "Invalid arguments for tool 'buy': item: missing (required string); itm: unknown argument; did you mean "
                '"item"?',
            ),
        ):
            result = await end.call_tool("buy", **arguments)
            assert result["isError"] is True
            assert result["content"] == [{"type": "text", "text": text}]
            assert "structuredContent" not in result
        error = await end.refusal("tools/call", {"name": "forcast", "arguments": {}})
        assert error == {"code": -32602, "message": "Unknown tool: forcast. Did you mean 'forecast'?"}
        error = await end.refusal("tools/call", {"name": "return_buy", "arguments": {}})
        assert error == {"code": -32602, "message": "Unknown tool: return_buy"}
        error = await end.refusal("tools/call", {"name": "x" * 5000, "arguments": {}})
        assert len(error["message"]) < 300
        error = await end.refusal("tools/call", {"name": "buy", "arguments": [1]})
        assert error["code"] == -32602
        error = await end.refusal("tools/call", {"arguments": {}})
        assert error["code"] == -32602


@both_eras
async def test_structure_comes_with_the_same_as_text(era: Era) -> None:
    """TOOL-15, TOOL-17."""
    async with BareEnd(weather(), era) as end:
        result = await end.call_tool("forecast", city="Oslo", days=2)
        assert result["structuredContent"] == {"name": "Oslo", "high": 2.0}
        assert [msgspec.json.decode(one["text"]) for one in result["content"]] == [{"name": "Oslo", "high": 2.0}]
        result = await end.call_tool("weather.warn-all")
        assert "structuredContent" not in result
        assert msgspec.json.decode(result["content"][0]["text"]) == [{"name": "Monday", "high": 7.5}]


class Counter:
    """Methods and objects can be tools, too."""

    def __init__(self) -> None:
        self.count = 0

    def more(self, by: int = 1) -> int:
        """Count on."""
        self.count += by
        return self.count

    async def __call__(self, by: int) -> int:
        """Count on, as an object."""
        return self.more(by)

    @staticmethod
    def zero() -> int:
        return 0

    @classmethod
    def name(cls) -> str:
        return cls.__name__


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def later(value: int) -> Awaitable[int]:
    """A plain function that gives an awaitable."""

    async def wait() -> int:
        return value

    return wait()


@both_eras
async def test_whatever_can_be_called_can_be_a_tool(era: Era) -> None:
    counter = Counter()
    server: Server[Any] = Server("all")
    server.tool(counter.more)
    server.tool("object")(counter)
    server.tool(Counter.zero)
    server.tool("class")(counter.name)
    server.tool("add_five")(functools.partial(add, b=5))
    server.tool(later)
    server.tool("lambda")(lambda: "λ")
    server.tool("inline", blocking=False)(lambda: str(threading.current_thread() is threading.main_thread()))
    server.tool("threaded")(lambda: str(threading.current_thread() is threading.main_thread()))
    async with BareEnd(server, era) as end:
        assert await end.text("more") == "1"
        assert await end.text("object", by=2) == "3"
        assert await end.text("zero") == "0"
        assert await end.text("class") == "Counter"
        assert await end.text("add_five", a=2) == "7"
        assert "unknown argument" in await end.text("add_five", a=2, b=3)
        assert await end.text("later", value=4) == "4"
        assert await end.text("lambda") == "λ"
        assert await end.text("inline") == "True"
        assert await end.text("threaded") == "False"
        descriptions = {tool["name"]: tool.get("description") for tool in (await end.ask("tools/list"))["tools"]}
        assert (descriptions["more"], descriptions["object"]) == ("Count on.", "Count on, as an object.")


@both_eras
async def test_arguments_come_by_name_where_a_function_or_its_decorator_wants_them_so(era: Era) -> None:
    server: Server[Any] = Server("s")

    async def in_order(first: str, second: str = "-", third: str = "-") -> str:
        return f"{first} {second} {third}"

    @functools.wraps(in_order)
    async def by_name(**named: str) -> str:
        return f"{sorted(named)}: {await in_order(**named)}"

    @server.tool
    async def apart(first: str, *, third: str = "-", second: str = "-") -> str:
        return await in_order(first, second, third)

    @server.tool
    async def with_context(first: str, ctx: Context[Any], second: str = "-") -> str:
        return f"{ctx.method}: {await in_order(first, second)}"

    async def method(ctx: Context[Any]) -> str:
        return ctx.method

    @functools.wraps(method)
    async def around(*args: Any, **named: Any) -> str:
        return await method(*args, **named)

    server.tool("around")(around)
    server.tool("in_order")(in_order)
    server.tool("limited", timeout=30)(in_order)
    server.tool("by_name")(by_name)
    arguments = {"third": "c", "first": "a"}
    async with Client(server, era=era) as client:
        for name in ("in_order", "limited", "apart"):
            assert (await client.call_tool(name, arguments)).text == "a - c"
            assert (await client.call_tool(name, {"first": 2.0}, raise_on_error=False)).is_error
        assert (await client.call_tool("by_name", arguments)).text == "['first', 'second', 'third']: a - c"
        assert (await client.call_tool("around")).text == "tools/call"
        assert (await client.call_tool("with_context", {"second": "b", "first": "a"})).text == "tools/call: a b -"


def test_a_decorated_function_comes_back_unchanged() -> None:
    server: Server[Any] = Server("x")
    assert server.tool(add) is add
    assert server.tool("other", title="x")(add) is add
    assert add(1, 2) == 3


@both_eras
async def test_a_result_made_by_hand_goes_out_as_it_is(era: Era) -> None:
    server: Server[Any] = Server("x")

    @server.tool
    async def own() -> Annotated[CallToolResult, Day]:
        return CallToolResult(
            content=[TextContent(text="short")], structured_content={"name": "x", "high": 1}, meta={"a": 1}
        )

    async with BareEnd(server, era) as end:
        assert (await end.ask("tools/list"))["tools"][0]["outputSchema"]["required"] == ["name", "high"]
        result = await end.call_tool("own")
        assert result["content"] == [{"type": "text", "text": "short"}]
        assert result["structuredContent"] == {"name": "x", "high": 1}
        assert result["_meta"]["a"] == 1


@both_eras
async def test_a_schema_of_ones_own_is_kept_word_for_word_and_checked(era: Era) -> None:
    """TOOL-21."""
    server: Server[Any] = Server("x")
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }

    @server.tool(input_schema=schema)
    async def own(arguments: dict[str, Any], ctx: Context) -> str:
        return str(sorted(arguments))

    async with BareEnd(server, era) as end:
        assert (await end.ask("tools/list"))["tools"][0]["inputSchema"] == schema
        assert await end.text("own", b=1) == "['b']"
        assert (await end.call_tool("own", c=1))["isError"] is True
        assert (await end.call_tool("own", a="x"))["isError"] is True


# ---------------------------------------------------------------- coming and going


@both_eras
async def test_tools_come_and_go_while_clients_are_connected(era: Era) -> None:
    """TOOL-02, SUB-14: told by themselves, in every era; the others keep their order."""
    server = weather()
    async with BareEnd(server, era) as end:
        await end.listen("toolsListChanged")
        server.tool("late")(lambda: "late")
        await end.wait_for("notifications/tools/list_changed")
        assert await end.names() == ["forecast", "buy", "weather.warn-all", "late"]
        assert await end.text("late") == "late"
        end.heard.clear()
        server.remove_tool("buy")
        await end.wait_for("notifications/tools/list_changed")
        assert await end.names() == ["forecast", "weather.warn-all", "late"]
        assert (await end.refusal("tools/call", {"name": "buy", "arguments": {}}))["code"] == -32602
        with pytest.raises(KeyError):
            server.remove_tool("buy")
        server.tool("buy")(lambda: "bought")
        assert await end.names() == ["forecast", "weather.warn-all", "late", "buy"]


@both_eras
async def test_a_server_that_loses_its_last_tool_still_has_a_list(era: Era) -> None:
    server: Server[Any] = Server("x")
    server.tool("only")(lambda: "x")
    async with BareEnd(server, era) as end:
        server.remove_tool("only")
        assert await end.names() == []


@pytest.mark.parametrize("name", ["a b", "a/b", "é", "x" * 129, "a\n", "a,b"])
def test_a_name_that_clients_would_refuse_is_told(name: str) -> None:
    """TOOL-09."""
    with pytest.raises(DefinitionError, match=r"is not allowed: use 1 to 128 of A-Z a-z 0-9 _ - \. \(no blanks\)"):
        Server("x").tool(name)(lambda: "x")


@pytest.mark.parametrize("name", ["a", "A.b-c_d", "x" * 128, "7"])
def test_a_name_that_is_allowed_is_taken(name: str) -> None:
    """TOOL-09."""
    Server("x").tool(name)(lambda: "x")


@both_eras
async def test_a_name_may_be_given_as_an_option_too(era: Era) -> None:
    server = Server("x")
    server.tool(name="first")(lambda: "1")
    server.tool(lambda: "2", name="second")
    server.prompt(name="opening")(lambda: "e4")
    async with BareEnd(server, era) as end:
        assert [tool["name"] for tool in (await end.ask("tools/list"))["tools"]] == ["first", "second"]
        assert [prompt["name"] for prompt in (await end.ask("prompts/list"))["prompts"]] == ["opening"]


def test_two_names_for_one_tool_are_told() -> None:
    with pytest.raises(DefinitionError, match=r"@server.tool has two names, 'one' and 'two': give one"):
        Server("x").tool("one", name="two")


@both_eras
async def test_the_error_of_another_server_is_not_passed_on(era: Era, caplog: pytest.LogCaptureFixture) -> None:
    """A CallError that leaves a handler is an internal failure, even when it is a ToolError."""
    inner, outer = Server("inner"), Server("outer")

    @inner.tool
    def fail() -> str:
        raise ToolError("the secret of the inner server")

    async def call() -> str:
        async with Client(inner) as client:
            return (await client.call_tool("fail")).text

    outer.tool(call)
    outer.prompt(call, name="ask")
    async with Client(outer, era=era) as client:
        with pytest.raises(ToolCallError) as failed:
            await client.call_tool("call")
        with pytest.raises(PeerError) as refused:
            await client.get_prompt("ask")
    assert "secret" not in str(failed.value)
    assert "secret" not in str(refused.value)
    assert refused.value.code == -32603
    assert "the secret of the inner server" in caplog.text


WRONG: Any = 5


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda: TextContent(text=WRONG), "TextContent.text"),
        (lambda: [TextContent(text="fine"), TextContent(text=WRONG)], "TextContent.text"),
        (lambda: ImageContent(data=WRONG, mime_type="image/png"), "ImageContent.data"),
        (lambda: CallToolResult(content=cast("Any", "hi")), "CallToolResult.content"),
        (lambda: CallToolResult(content=[cast("Any", "hi")]), "CallToolResult.content"),
        (lambda: CallToolResult(content=[TextContent(text=WRONG)]), "CallToolResult.content[0].text"),
        (lambda: CallToolResult(content=[], is_error=WRONG), "CallToolResult.is_error"),
        (lambda: CallToolResult(content=[], meta=WRONG), "CallToolResult.meta"),
        (
            lambda: EmbeddedResource(resource=ResourceContents(uri=WRONG, text="")),
            "EmbeddedResource.resource.uri",
        ),
    ],
)
async def test_a_result_of_wrong_types_is_the_authors_mistake(
    make: Any, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    server: Server[Any] = Server("x")

    @server.tool
    def wrong() -> Any:
        return make()

    async with Client(server) as client:
        result = await client.call_tool("wrong", raise_on_error=False)
    assert result.is_error
    assert "'wrong' failed unexpectedly" in result.text
    assert f"it returned a value that can't be sent: {place}: Expected " in caplog.text


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("annotation", "make"),
    [
        (None, lambda number: number),
        (None, lambda number: {"a": [None, number]}),
        (Any, lambda number: [number]),
        (float, lambda number: number),
        (float | None, lambda number: number),
        (dict[str, Any], lambda number: {"a": number}),
        (list[float | None], lambda number: [None, number]),
        (CallToolResult, lambda number: CallToolResult(content=[], structured_content={"a": number})),
    ],
)
async def test_a_number_that_json_can_not_hold_is_an_error(
    annotation: Any, make: Any, number: float, caplog: pytest.LogCaptureFixture
) -> None:
    """It must not arrive as null."""
    server: Server[Any] = Server("x")

    def measure():  # type: ignore[no-untyped-def]  # one case has no annotation
        return make(number)

    if annotation is not None:
        measure.__annotations__["return"] = annotation
    server.tool(measure)
    async with Client(server) as client:
        result = await client.call_tool("measure", raise_on_error=False)
    assert result.is_error
    assert "which has no JSON form" in caplog.text


async def test_null_is_sent_where_it_is_meant() -> None:
    server: Server[Any] = Server("x")

    @server.tool
    def measure() -> dict[str, Any]:
        return {"a": None, "b": "null", "c": 1.5}

    async with Client(server) as client:
        assert (await client.call_tool("measure")).structured_content == {"a": None, "b": "null", "c": 1.5}


class Degrees(enum.Enum):
    C = "C"
    F = "F"


@dataclass
class Spot:
    name: str
    unit: Degrees = Degrees.C


async def test_schemas_of_tools_have_no_references() -> None:
    """Many hosts drop `$defs`, and can't resolve `$ref`. Arguments and results are validated as before."""
    server = Server("s")

    @server.tool
    def move(start: Spot, end: Spot) -> list[Spot]:
        return [start, end]

    async with Client(server) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert "$" not in msgspec.json.encode(tools).decode()
        place = tools["move"].input_schema["properties"]["start"]
        assert place["title"] == "Spot"
        assert place["properties"]["unit"] == {"type": "string", "enum": ["C", "F"], "default": "C"}
        given = {"name": "Oslo", "unit": "F"}
        result = await client.call_tool("move", {"start": given, "end": {"name": "Bergen"}})
        assert result.structured_content[0] == given
        with pytest.raises(ToolError, match=r'start\.unit: expected one of "C", "F", got string "K"'):
            await client.call_tool("move", {"start": {"name": "Oslo", "unit": "K"}, "end": given})


@both_eras
async def test_a_text_is_sent_as_it_is_whatever_else_the_annotation_allows(era: Era) -> None:
    text = 'line one\nsays "hi"'
    server = Server("texts")

    def return_text() -> Any:
        return text

    kinds: list[Any] = [str, str | dict[str, Any], str | list[str], str | bytes, str | bytearray, str | None, Any]
    kinds += [Literal['line one\nsays "hi"', "other"]]
    for number, kind in enumerate(kinds):
        return_text.__annotations__["return"] = kind
        server.tool(f"text{number}")(return_text)
    async with Client(server, era=era) as client:
        for number in range(len(kinds)):
            result = await client.call_tool(f"text{number}")
            assert result.text == text
            assert result.structured_content in (msgspec.UNSET, text, {"result": text})


@both_eras
async def test_a_tool_without_arguments_lists_an_object_without_properties(era: Era) -> None:
    """Clients read `inputSchema["properties"]`."""
    server = Server("clock")

    @server.tool
    def now() -> str:
        return "noon"

    async with Client(server, era=era) as client:
        (tool,) = await client.list_tools()
    assert tool.input_schema == {"type": "object", "properties": {}, "additionalProperties": False}


@both_eras
async def test_a_text_is_structured_content_too_where_the_server_says_so(era: Era) -> None:
    text = 'line one\nsays "hi"'

    async def results(server: Server[Any]) -> list[Any]:
        @server.tool
        def plain() -> str:
            return text

        @server.tool
        def maybe() -> str | None:
            return text

        @server.tool
        def nothing() -> None: ...

        async with Client(server, era=era) as client:
            schemas = [one.output_schema for one in await client.list_tools()]
            called = [await client.call_tool(name) for name in ("plain", "maybe", "nothing")]
        assert [one.text for one in called] == [text, text, ""]
        return [*schemas, *(one.structured_content for one in called)]

    wrapped = {"result": text} if era == "2025" else text
    found = await results(Server("texts", structured_text=True))
    assert found[2:] == [None, wrapped, wrapped, msgspec.UNSET]
    if era == "2025":
        assert found[0]["properties"] == {"result": {"type": "string"}}
        assert found[0]["x-fastmcp-wrap-result"] is True
    else:
        assert found[0] == {"type": "string"}
    assert await results(Server("texts")) == [None, None, None, *[msgspec.UNSET] * 3]
