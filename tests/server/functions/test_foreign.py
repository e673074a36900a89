"""Classes of FastMCP and the official SDK are refused by name: as annotation, result, marker or middleware."""

from __future__ import annotations

from typing import Annotated, Any

import mcp_types
import pytest

from gemel import CallNext, Client, Context, DefinitionError, Server, TextContent

FastMCPMiddleware: Any = type("Middleware", (), {"__module__": "fastmcp.server.middleware.middleware"})
Resolve: Any = type("Resolve", (), {"__module__": "mcp.server.mcpserver.resolve"})
CurrentHeaders: Any = type("_CurrentHeaders", (), {"__module__": "fastmcp.server.dependencies"})
ToolResult: Any = type("ToolResult", (), {"__module__": "fastmcp.tools.base"})


class MyResult(ToolResult):  # type: ignore[misc]  # made by type()
    pass


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (
            mcp_types.TextContent,
            "`TextContent`, a class of the official SDK, .*; write `from gemel import TextContent`",
        ),
        (list[mcp_types.ImageContent], "write `from gemel import ImageContent`"),
        (dict[str, mcp_types.CallToolResult] | None, "write `from gemel import CallToolResult`"),
        (mcp_types.TextResourceContents, "write `from gemel import ResourceContents`"),
        (ToolResult, "a class of FastMCP, .*; write `from gemel import CallToolResult`"),
        (MyResult, "write `from gemel import CallToolResult`"),
        (mcp_types.CompleteRequest, "`CompleteRequest`, .*; `gemel migrate` and its guide have the counterpart"),
    ],
)
@pytest.mark.parametrize("place", ["return", "given"])
def test_an_annotation_is_refused_with_its_counterpart(annotation: Any, words: str, place: str) -> None:
    def function(given: Any) -> Any:
        return given

    function.__annotations__ = {"given": str, "return": str, place: annotation}
    server: Server[Any] = Server("foreign")
    for register in (server.tool, server.prompt, server.resource("x://{given}")):
        with pytest.raises(DefinitionError, match=words):
            register(function)


@pytest.mark.parametrize(
    "annotation", [Annotated[int, Resolve()], Annotated[int | None, Resolve()], list[Annotated[int, Resolve()]]]
)
def test_a_value_that_the_server_computed_is_no_argument_of_the_caller(annotation: Any) -> None:
    def pay(to: str, cents: Any) -> str:
        return f"{cents} to {to}"

    pay.__annotations__["cents"] = annotation
    with pytest.raises(DefinitionError, match="`Resolve` of mcp"):
        Server("bank").tool(pay)
    pay.__defaults__ = (None,)
    with pytest.raises(DefinitionError, match="`Resolve` of mcp"):
        Server("bank").tool(pay)


def test_a_default_that_the_server_computed_is_no_argument_of_the_caller() -> None:
    def who(headers: dict[str, str]) -> str:
        return str(headers)

    who.__defaults__ = (CurrentHeaders(),)
    with pytest.raises(DefinitionError, match="`CurrentHeaders` of fastmcp can't be a default"):
        Server("bank").tool(who)


@pytest.mark.parametrize("annotated", [True, False])
async def test_a_returned_value_is_an_error_that_names_the_counterpart(
    annotated: bool, caplog: pytest.LogCaptureFixture
) -> None:
    text = mcp_types.TextContent(type="text", text="x")
    values: list[Any] = [text, [text], [TextContent(text="mine"), text], ToolResult()]
    server: Server[Any] = Server("foreign")
    for number, value in enumerate(values):
        server.tool(f"tool{number}")(_returning(value, annotated=annotated))
    async with Client(server) as client:
        for number in range(len(values)):
            caplog.clear()
            assert (await client.call_tool(f"tool{number}", raise_on_error=False)).is_error
            assert "which means nothing here; write `from gemel import" in caplog.text


def _returning(value: Any, *, annotated: bool) -> Any:
    def function():  # type: ignore[no-untyped-def]  # without annotation
        return value

    if annotated:
        function.__annotations__["return"] = Any
    return function


class OfFastMCP(FastMCPMiddleware):  # type: ignore[misc]  # made by type()
    async def __call__(self, context: Any, call_next: Any) -> Any:
        return await call_next(context)


class LikeFastMCP:
    async def __call__(self, context: Any, call_next: Any) -> Any:
        return await call_next(context) if context.message else None


async def like_fastmcp(context: Any, call_next: Any) -> Any:
    return await call_next(context) if context.fastmcp_context else None


@pytest.mark.parametrize(
    ("middleware", "words"),
    [
        (OfFastMCP(), r"OfFastMCP\(\) is middleware of FastMCP: write `async def middleware\(ctx, call_next\)`"),
        (LikeFastMCP(), "reads `message`, which a Context does not have"),
        (LikeFastMCP().__call__, "reads `message`"),
        (like_fastmcp, r"like_fastmcp\(\) reads `fastmcp_context`"),
    ],
)
def test_a_middleware_is_refused_when_it_is_given(middleware: Any, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        Server("foreign", middleware=[middleware])
    with pytest.raises(DefinitionError, match=words):
        Server("foreign").add_middleware(middleware)


class Own:
    """It has members of the same names, and reads them of other objects."""

    type = message = "mine"

    async def __call__(self, context: Context, call_next: CallNext) -> Any:
        result: Any = await call_next(context)
        return result if self.type and self.message else getattr(result, "type", None)


async def test_a_middleware_of_ones_own_may_have_such_names() -> None:
    async with Client(Server("own", middleware=[Own()])) as client:
        assert await client.list_tools() == []
