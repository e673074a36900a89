"""A handler uses what its own server offers: the same as its caller would see, as a part of the same call, in both eras."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest

from gemel import CallNext, Client, Context, Depends, Image, Router, Server, ToolCallError, ToolError
from gemel.schema.input_required import InputRequiredResult

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])

PNG = b"\x89PNG\r\n\x1a\n"


def library() -> Server[Any]:
    server: Server[Any] = Server("library")

    @server.resource("book://{name}")
    def book(name: str) -> str | None:
        return f"the text of {name}" if name != "none" else None

    @server.tool
    async def add(a: int, b: int) -> dict[str, int]:
        return {"sum": a + b}

    @server.tool
    def picture() -> Image:
        return Image(data=PNG)

    @server.tool
    async def fail() -> str:
        raise ToolError("out of ink")

    @server.tool(visible=lambda caller: False)
    async def hidden() -> str:
        return "secret"

    @server.prompt
    def brief(name: str, days: int = 1) -> str:
        return f"{name} for {days}"

    return server


async def answers(server: Server[Any], era: str, tool: Any, **options: Any) -> str:
    """What a tool of this server says to a client of this era."""
    server.tool("tool")(tool)
    async with Client(server, era=era, **options) as client:  # type: ignore[arg-type]  # one of the two
        return (await client.call_tool("tool")).text


@both_eras
async def test_its_resources_tools_and_prompts(era: str) -> None:
    async def tool(ctx: Context) -> list[Any]:
        text = (await ctx.read_resource("book://emma")).text
        total = (await ctx.call_tool("add", {"a": 1, "b": 2})).data["sum"]
        message = (await ctx.get_prompt("brief", {"name": "emma", "days": "3"})).messages[0]
        picture = (await ctx.call_tool("picture")).content[0]
        return [text, total, message.role, type(picture).__name__]

    assert await answers(library(), era, tool) == '["the text of emma",3,"user","ImageContent"]'


@both_eras
async def test_the_same_without_async(era: str) -> None:
    def tool(ctx: Context) -> str:
        total = ctx.sync.call_tool("add", {"a": 1, "b": 2}).data["sum"]
        message = ctx.sync.get_prompt("brief", {"name": "emma"}).messages[0]
        return f"{ctx.sync.read_resource('book://emma').text}, {total}, {message.role}"

    assert await answers(library(), era, tool) == "the text of emma, 3, user"


@both_eras
@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("fail", {}, "out of ink"),
        ("nothing", {}, "Unknown tool: nothing"),
        ("hidden", {}, "Unknown tool: hidden"),
        ("add", {"a": 1}, "b: missing (required integer)"),
    ],
)
async def test_what_fails_there_fails_here_in_the_same_words(
    era: str, name: str, arguments: dict[str, Any], words: str
) -> None:
    """What the caller doesn't see, no tool of his sees for him. And what a tool asks for is no fault of the caller."""

    async def tool(ctx: Context) -> str:
        await ctx.call_tool(name, arguments)
        return "unreachable"

    with pytest.raises(ToolCallError) as failed:
        await answers(library(), era, tool)
    assert words in str(failed.value)


@both_eras
async def test_a_question_of_the_inner_tool_reaches_the_user_and_steps_run_once(era: str) -> None:
    """One conversation with the user, however deep it is asked for."""
    server, charged = library(), list[str]()

    async def charge(what: str) -> str:
        charged.append(what)
        return f"paid {what}"

    @server.tool
    async def pay(ctx: Context, what: str) -> str:
        paid = await ctx.step(charge, what)
        return f"{paid}, {await ctx.elicit(f'Which card for {what}?', str)}"

    async def tool(ctx: Context) -> str:
        name = await ctx.elicit("Who?", str)
        tea, milk = await asyncio.gather(ctx.call_tool("pay", {"what": "tea"}), ctx.call_tool("pay", {"what": "milk"}))
        return f"{name}: {tea.text}; {milk.text}; {await ctx.elicit('Sure?', bool)}"

    said = {"Who?": "Ada", "Which card for tea?": "red", "Which card for milk?": "blue", "Sure?": True}
    text = await answers(server, era, tool, on_elicit=lambda form: {"value": said[form.message]})
    assert text == "Ada: paid tea, red; paid milk, blue; True"
    assert sorted(charged) == ["milk", "tea"]


async def test_a_nested_result_that_needs_input_is_an_error_in_the_handshake_era(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Clients of that era can't go on with it."""

    async def ask(ctx: Context, call_next: CallNext) -> Any:
        return InputRequiredResult(request_state="s") if ctx.depth else await call_next(ctx)

    async def tool(ctx: Context) -> str:
        return (await ctx.call_tool("add", {"a": 1, "b": 2})).text

    server = library()
    server.add_middleware(ask)
    with pytest.raises(ToolCallError):
        await answers(server, "2025", tool)
    assert "tools/call: a result with resultType input_required exists in the stateless era only" in caplog.text


@both_eras
async def test_middleware_stands_around_it_and_knows_that_it_is_nested(era: str) -> None:
    server, seen = library(), list[tuple[str, int]]()

    async def watch(ctx: Context, call_next: CallNext) -> Any:
        seen.append((ctx.method, ctx.depth))
        return await call_next(ctx)

    server.add_middleware(watch)

    async def tool(ctx: Context) -> str:
        return (await ctx.read_resource("book://emma")).text

    assert await answers(server, era, tool) == "the text of emma"
    assert seen[-2:] == [("tools/call", 0), ("resources/read", 1)]


@both_eras
async def test_dependencies_and_states_are_those_of_the_server_it_stands_in(era: str) -> None:
    """Mounted, a tool reads its own server's resources, by their own names, with that server's state."""

    @asynccontextmanager
    async def lifespan(server: Server[str]) -> AsyncIterator[str]:
        yield "inner state"

    inner: Server[str] = Server("inner", lifespan=lifespan)
    outer: Server[Any] = Server("outer")

    def state(ctx: Context[str]) -> str:
        return ctx.state

    @inner.resource("state://now")
    async def now(state: Annotated[str, Depends(state)]) -> str:
        return state

    @inner.tool
    async def look(ctx: Context) -> str:
        return (await ctx.read_resource("state://now")).text

    outer.mount(inner, "in")

    async def tool(ctx: Context) -> str:
        mounted = (await ctx.read_resource("in+state://now")).text
        return f"{mounted}, {(await ctx.call_tool('in_look')).text}"

    assert await answers(outer, era, tool) == "inner state, inner state"


@both_eras
async def test_progress_of_the_inner_tool_does_not_mix_with_that_of_the_call(era: str) -> None:
    """PROG-04: what the client hears grows."""
    server, heard = Server[Any]("steps"), list[float]()

    @server.tool
    async def inner(ctx: Context) -> str:
        await ctx.report_progress(50)
        return "done"

    @server.tool
    async def outer(ctx: Context) -> str:
        await ctx.report_progress(1)
        await ctx.call_tool("inner")
        await ctx.report_progress(2)
        return "done"

    async with Client(server, era=era) as client:  # type: ignore[arg-type]  # one of the two
        await client.call_tool("outer", on_progress=lambda progress: heard.append(progress.progress))
    assert heard == [1, 2]


@both_eras
async def test_a_tool_that_calls_itself_for_ever_comes_to_an_end(era: str, caplog: pytest.LogCaptureFixture) -> None:
    server, runs = Server[Any]("loop"), list[int]()

    @server.tool
    async def again(ctx: Context) -> str:
        runs.append(ctx.depth)
        return (await ctx.call_tool("again")).text

    async with Client(server, era=era) as client:  # type: ignore[arg-type]  # one of the two
        assert (await client.call_tool("again", raise_on_error=False)).is_error
    assert runs == list(range(17))
    assert "does it call itself?" in "".join(record.exc_text or "" for record in caplog.records)


async def test_a_server_in_another_process_is_used_through_the_proxy_that_is_mounted_here() -> None:
    outer: Server[Any] = Server("outer")
    outer.mount(Server.from_client(library()), "far")

    async def tool(ctx: Context) -> str:
        total = (await ctx.call_tool("far_add", {"a": 1, "b": 2})).data["sum"]
        return f"{(await ctx.read_resource('far+book://emma')).text}, {total}"

    assert await answers(outer, "2026", tool) == "the text of emma, 3"


async def test_items_of_a_server_in_another_process_are_listed_as_those_of_this_one() -> None:
    outer: Server[Any] = Server("outer")
    outer.mount(Server.from_client(library()), "far")

    async def tool(ctx: Context) -> str:
        lists = (ctx.list_tools(), ctx.list_prompts(), ctx.list_resources(), ctx.list_resource_templates())
        kinds = {type(item).__name__ for listed in lists for item in await listed}
        return ", ".join(sorted(kinds))

    assert await answers(outer, "2026", tool) == "Prompt, ResourceTemplate, Tool"


async def test_what_a_router_brought_is_the_servers_own() -> None:
    router = Router()

    @router.tool
    async def look(ctx: Context) -> str:
        return (await ctx.read_resource("book://emma")).text

    server = library()
    server.include(router, prefix="r")
    async with Client(server) as client:
        assert (await client.call_tool("r_look")).text == "the text of emma"
