"""The client's face: the same calls in both eras, against a real server; what it hears, and how it reads results."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from typing import Any

import msgspec
import pydantic
import pytest

from gemel import (
    CallError,
    CallTimeout,
    Changed,
    Client,
    Context,
    DefinitionError,
    Implementation,
    InvalidResponse,
    Limits,
    LogParams,
    NotSent,
    PeerError,
    Server,
)
from tests.client.puppet import HANG_UP, META, SILENCE, Error, Puppet, legacy, modern

EMPTY_PAGE = {"resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private"}

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


@dataclasses.dataclass
class Day:
    name: str
    warm: bool = False


class DayModel(pydantic.BaseModel):
    name: str
    warm: bool


def a_server(**options: Any) -> Server[Any]:
    server: Server[Any] = Server("weather", version="2", instructions="Ask nicely", **options)

    @server.tool
    async def day(name: str) -> Day:
        return Day(name)

    @server.tool
    async def chat(ctx: Context[Any]) -> str:
        for level in ("debug", "warning", "error"):
            await ctx.log(level, {"level": level}, logger="w")
        await ctx.report_progress(1, 2, "half")
        return "said"

    @server.prompt
    async def brief(city: str) -> str:
        return f"Brief me on {city}"

    @brief.complete("city")
    def cities(value: str) -> list[str]:
        return [city for city in ("Oslo", "Osaka", "Rome") if city.startswith(value)]

    @server.notification("notifications/acme")
    async def noted(ctx: Context[Any], params: Any) -> None:
        heard.append((ctx.protocol_version, params["x"], ctx.client_info and ctx.client_info.name))

    heard: list[Any] = []

    @server.tool
    async def noticed() -> list[Any]:
        return heard

    return server


@both_eras
async def test_what_was_chosen_before_goes_along_with_a_completion(era: Any) -> None:
    """COMP-03."""
    server = a_server()
    asked: list[Any] = []

    @server.add_middleware
    async def look(ctx: Context[Any], call_next: Any) -> Any:
        if ctx.method == "completion/complete":
            asked.append(msgspec.json.decode(ctx.params))
        return await call_next(ctx)

    async with Client(server, era=era) as client:
        await client.complete(prompt="brief", argument="city", value="Os", given={"country": "no"})
        await client.complete(prompt="brief", argument="city")
    assert asked[0]["context"] == {"arguments": {"country": "no"}}
    assert "context" not in asked[1]


@both_eras
async def test_the_same_calls_work_in_both_eras(era: Any) -> None:
    """DISC-03, TOOL-02, PRM-04, COMP-02."""
    async with Client(a_server(), era=era, info=Implementation(name="me", version="1")) as client:
        assert client.era == era
        assert client.server_info == Implementation(name="weather", version="2")
        assert client.instructions == "Ask nicely"
        assert client.server_capabilities.tools is not None
        assert [tool.name for tool in await client.list_tools()] == ["day", "chat", "noticed"]
        result = await client.call_tool("day", {"name": "fri"})
        assert (result.data, result.text) == ({"name": "fri", "warm": False}, '{"name":"fri","warm":false}')
        (prompt,) = await client.list_prompts()
        assert prompt.name == "brief"
        brief = await client.get_prompt("brief", {"city": "Oslo"})
        assert brief.text == brief.messages[0].text == "Brief me on Oslo"
        assert (await client.complete(prompt="brief", argument="city", value="Os")).values == ["Oslo", "Osaka"]
        await client.ping()
        with pytest.raises(PeerError) as caught:
            await client.request("acme/missing")
        assert caught.value.code == -32601


@both_eras
async def test_a_server_in_this_process_is_found_out_asks_and_tells_changes(era: Any) -> None:
    """The era comes from the probe, and questions and changes in the way of the era."""
    server: Server[Any] = Server("near", eras=era)

    @server.tool
    async def ask(ctx: Context[Any]) -> str:
        return await ctx.elicit("Who?", str)

    async with (
        Client(server, on_elicit=lambda form: {"value": "me"}) as client,
        client.listen(tools=True) as changes,
    ):
        assert client.era == era
        assert (await client.call_tool("ask")).text == "me"
        server.tool("new")(lambda: "")
        assert await anext(changes) == Changed("tools")


@both_eras
@pytest.mark.parametrize("kind", [Day, DayModel])
async def test_a_result_is_read_into_the_callers_type(era: Any, kind: Any) -> None:
    async with Client(a_server(), era=era) as client:
        day: Any = (await client.call_tool("day", {"name": "fri"}, returns=kind)).data
        assert isinstance(day, kind)
        assert (day.name, day.warm) == ("fri", False)
        with pytest.raises(InvalidResponse, match="the result does not have the type int: Expected `int`"):
            await client.call_tool("day", {"name": "fri"}, returns=int)


@both_eras
@pytest.mark.parametrize(
    ("tool", "kind", "said"),
    [
        ("none", type(None), None),
        ("none", int | None, None),
        ("none", list[int], "does not have the type list[int]: Expected `array`, got `null`"),
        ("text", type(None), "does not have the type None: Expected `null`, got `str`"),
        ("text", dict[str, int], "does not have the type dict[str, int]: Expected `object`, got `str`"),
        ("number", type(None), "does not have the type None: Expected `null`, got `int`"),
    ],
)
async def test_a_result_of_another_type_is_explained_by_both_types(era: Any, tool: str, kind: Any, said: Any) -> None:
    server: Server[Any] = Server("types")
    server.tool(name="none")(returns_none)
    server.tool(name="text")(returns_text)
    server.tool(name="number")(returns_number)
    async with Client(server, era=era) as client:
        if said is None:
            assert (await client.call_tool(tool, returns=kind)).data is None
        else:
            with pytest.raises(InvalidResponse, match=re.escape(f"Tool '{tool}': the result {said}")):
                await client.call_tool(tool, returns=kind)


class Shelf(pydantic.BaseModel):
    number: int
    books: list[str]


async def test_a_result_that_a_model_refuses_is_explained_in_one_line() -> None:
    server: Server[Any] = Server("types")

    @server.tool
    def shelf() -> dict[str, Any]:
        return {"number": 1, "books": ["Emma", 2]}

    async with Client(server) as client:
        with pytest.raises(InvalidResponse) as caught:
            await client.call_tool("shelf", returns=Shelf)
    said = "Tool 'shelf': the result does not have the type Shelf: books.1: Input should be a valid string"
    assert str(caught.value) == said


def returns_none() -> None: ...


def returns_text() -> str:
    return "some text"


def returns_number() -> int:
    return 5


@both_eras
async def test_log_messages_come_from_the_wanted_level_on(era: Any) -> None:
    """LOG-03, LOG-06."""
    logs: list[LogParams] = []
    progress: list[float] = []
    async with Client(a_server(), era=era, on_log=logs.append, log_level="warning") as client:
        await client.call_tool("chat", on_progress=lambda told: progress.append(told.progress))
        assert [log.level for log in logs] == ["warning", "error"]
        assert (logs[0].data, logs[0].logger) == ({"level": "warning"}, "w")
        await client.set_log_level("debug")
        logs.clear()
        await client.call_tool("chat")
        assert [log.level for log in logs] == ["debug", "warning", "error"]
    assert progress == [1.0]


@both_eras
async def test_a_level_that_there_is_not_is_told_and_changes_nothing(era: Any) -> None:
    """Otherwise a stateless server would refuse every request from now on."""
    loud: Any = "loud"
    async with Client(a_server(), era=era) as client:
        with pytest.raises(DefinitionError, match="log_level='loud' is not possible: use"):
            await client.set_log_level(loud)
        assert await client.list_tools()


async def test_a_server_that_refuses_the_log_level_is_used_without(caplog: pytest.LogCaptureFixture) -> None:
    puppet = legacy(logging_setLevel=Error(-32603, "not now"), tools_list={"tools": []})
    async with Client(puppet, on_log=print) as client:
        assert await client.list_tools() == []
    assert "refuses the log level" in caplog.text


async def test_who_wants_no_log_asks_for_none() -> None:
    """REQM-10."""
    puppet = modern(tools_list={"tools": [], "ttlMs": 0, "cacheScope": "private"})
    async with Client(puppet) as client:
        await client.list_tools()
    assert f"{META}logLevel" not in puppet.asked("tools/list")[0]["_meta"]
    puppet = legacy()
    async with Client(puppet):
        pass
    assert "logging/setLevel" not in puppet.methods()


@both_eras
async def test_notifications_of_ones_own_reach_the_server(era: Any) -> None:
    """VER-05: also a server of both eras, which goes by the claim."""
    async with Client(a_server(), era=era, info=Implementation(name="me", version="1")) as client:
        await client.notify("notifications/acme", {"x": 1})
        await client.notify("notifications/acme", {"x": 2, "_meta": {"a": 1}})
        (one, two) = (await client.call_tool("noticed", returns=list)).data
    assert one == [client.protocol_version, 1, "me"]
    assert two[1] == 2


async def test_what_a_server_says_unasked_is_heard(caplog: pytest.LogCaptureFixture) -> None:
    said: list[Any] = []

    async def hear(method: str, params: dict[str, Any]) -> None:
        said.append((method, params))
        if params.get("x") == 2:
            raise RuntimeError("boom")

    puppet = legacy()
    async with Client(puppet, on_notification=hear, on_log=said.append) as client:
        for number in (1, 2, 3):
            puppet.say({"method": "notifications/acme", "params": {"x": number}})
        puppet.say({"method": "notifications/message", "params": {"level": "loud", "data": 1}})
        puppet.say({"method": "notifications/bare"})
        puppet.say_raw(b"printed by mistake")
        await client.ping()
        await client.ping()
    assert said == [("notifications/acme", {"x": number}) for number in (1, 2, 3)] + [("notifications/bare", {})]
    assert "boom" in caplog.text
    assert "notifications/message is dropped" in caplog.text


# ---------------------------------------------------------------- pages


def pages(*cursors: str | None) -> Any:
    """One tool a page; the cursors in order."""
    left = list(cursors)

    def page(puppet: Puppet, message: dict[str, Any]) -> Any:
        number = len(cursors) - len(left)
        tool = {"name": f"t{number}", "inputSchema": {"type": "object"}}
        cursor = left.pop(0)
        more = {} if cursor is None else {"nextCursor": cursor}
        return {"resultType": "complete", "tools": [tool], "ttlMs": 0, "cacheScope": "private", **more}

    return page


async def test_all_pages_are_read_and_an_empty_cursor_is_one() -> None:
    """PAGE-02, PAGE-03, PAGE-04."""
    puppet = modern(tools_list=pages("", "a b/ü", None))
    async with Client(puppet) as client:
        assert [tool.name for tool in await client.list_tools()] == ["t0", "t1", "t2"]
    assert [params.get("cursor") for params in puppet.asked("tools/list")] == [None, "", "a b/ü"]


async def test_a_list_in_a_new_session_begins_with_its_first_page() -> None:
    """PAGE-05."""

    def page(puppet: Puppet, message: dict[str, Any]) -> Any:
        more = {} if "cursor" in message.get("params", {}) else {"nextCursor": f"of session {puppet.connections}"}
        return {"tools": [], **more}

    puppet = legacy(tools_list=page)
    async with Client(puppet, era="2025") as client:
        await client.list_tools()
        puppet.hang_up()
        await puppet.until(lambda: not client.connected)
        await client.list_tools()
    cursors = [params.get("cursor") for params in puppet.asked("tools/list")]
    assert cursors == [None, "of session 1", None, "of session 2"]


async def test_a_list_whose_session_ends_between_two_pages_begins_anew() -> None:
    """PAGE-05."""

    def page(puppet: Puppet, message: dict[str, Any]) -> Any:
        cursor = message.get("params", {}).get("cursor")
        if cursor is None:
            return {
                "tools": [{"name": "first", "inputSchema": {"type": "object"}}],
                "nextCursor": f"of session {puppet.connections}",
            }
        return (
            HANG_UP if puppet.connections == 1 else {"tools": [{"name": "second", "inputSchema": {"type": "object"}}]}
        )

    puppet = legacy(tools_list=page)
    async with Client(puppet, era="2025") as client:
        assert [one.name for one in await client.list_tools()] == ["first", "second"]
    cursors = [params.get("cursor") for params in puppet.asked("tools/list")]
    assert cursors == [None, "of session 1", None, "of session 2"]


async def test_a_list_whose_session_ends_again_and_again_fails() -> None:
    def page(puppet: Puppet, message: dict[str, Any]) -> Any:
        return HANG_UP if "cursor" in message.get("params", {}) else {"tools": [], "nextCursor": "more"}

    async with Client(legacy(tools_list=page), era="2025", limits=Limits(backoff=0.001)) as client:
        with pytest.raises(CallError):
            await client.list_tools()


@pytest.mark.parametrize("cursors", [["a", "a"], ["a", "b", "a"]])
async def test_pages_that_go_round_in_circles_end(cursors: list[str]) -> None:
    async with Client(modern(tools_list=pages(*cursors))) as client:
        with pytest.raises(InvalidResponse, match="pages of the server don't end") as caught:
            await client.list_tools()
    assert len(caught.value.pages) == len(cursors)


async def test_pages_that_are_too_much_together_end() -> None:
    """A server can't fill our memory page by page."""

    def page(puppet: Puppet, message: dict[str, Any]) -> dict[str, Any]:
        cursor = str(len(puppet.came))
        tool = {"name": f"t{cursor}", "inputSchema": {"type": "object"}, "description": "x" * 10_000}
        return {"resultType": "complete", "tools": [tool], "nextCursor": cursor, "ttlMs": 0, "cacheScope": "private"}

    puppet = modern(tools_list=page)
    async with Client(puppet, limits=Limits(reply=100_000)) as client:
        with pytest.raises(InvalidResponse, match="the pages have more than 100000 bytes together"):
            await client.list_tools()
    assert len(puppet.asked("tools/list")) == 10


async def test_pages_that_come_slowly_end_with_the_limit_of_the_whole() -> None:
    """`total` is the limit of the list, not of each page."""
    number = 0

    async def late(puppet: Puppet, message: dict[str, Any]) -> None:
        nonlocal number
        number += 1
        await asyncio.sleep(0.02)
        puppet.answer(message, {**EMPTY_PAGE, "nextCursor": str(number)})

    waiting: set[asyncio.Task[None]] = set()

    def begin(puppet: Puppet, message: dict[str, Any]) -> Any:
        waiting.add(asyncio.create_task(late(puppet, message)))
        return SILENCE

    async with Client(modern(tools_list=begin)) as client:
        with pytest.raises(CallTimeout):
            await client.list_tools(total=0.2)
        await asyncio.wait(waiting)
    assert number < 12


async def test_pages_without_end_end() -> None:
    puppet = modern(tools_list=pages(*map(str, range(2000))))
    async with Client(puppet) as client:
        with pytest.raises(InvalidResponse, match="pages of the server don't end"):
            await client.list_tools()
    assert len(puppet.asked("tools/list")) == client.limits.pages + 1


# ---------------------------------------------------------------- small things


async def test_a_missing_resource_is_told_by_either_code() -> None:
    """RES-07."""
    from gemel import is_not_found

    for error, missing in (
        (Error(-32002, "gone", {"uri": "x"}), True),
        (Error(-32602, "gone", {"uri": "x"}), True),
        (Error(-32602, "no"), False),
        (Error(-32603, "no", {"uri": "x"}), False),
    ):
        async with Client(modern(resources_read=error)) as client:
            with pytest.raises(PeerError) as caught:
                await client.read_resource("x:y")
            assert is_not_found(caught.value) is missing


async def test_what_is_to_be_completed_must_be_said() -> None:
    async with Client(modern()) as client:
        with pytest.raises(ValueError, match="prompt=… or resource=…"):
            await client.complete(argument="x")


async def test_a_request_of_ones_own_is_typed_if_wanted() -> None:
    class Found(msgspec.Struct):
        hits: int

    puppet = modern(acme_search={"resultType": "complete", "hits": 3})
    async with Client(puppet) as client:
        assert (await client.request("acme/search", {"q": "x"}))["hits"] == 3
        assert await client.request("acme/search", {"q": "x"}, result=Found) == Found(3)
        with pytest.raises(InvalidResponse):
            await client.request("acme/search", result=list[int])
    assert puppet.asked("acme/search")[0]["q"] == "x"


async def test_own_meta_goes_along_with_the_clients() -> None:
    for puppet in (modern(acme_x={}), legacy(acme_x={})):
        async with Client(puppet) as client:
            await client.request("acme/x", {"_meta": {"com.example/trace": 1}})
        (params,) = puppet.asked("acme/x")
        assert params["_meta"]["com.example/trace"] == 1
        assert "progressToken" in params["_meta"]


def test_what_cannot_be_connected_to_is_named() -> None:
    for target in (
        7,
        None,
        "",
        [],
        ["a", 1],
        "tcp://nowhere",
        "tcp://h:",
        "tcp://h:²",
        "tcp://h:99999",
        "tcp://:5",
        "unix:",
        "unix://",
    ):
        with pytest.raises(DefinitionError):
            Client(target)
    for address in ("ftp://h/x", "HTTP://h/mcp", "ws://h", "stdio://server.py"):
        with pytest.raises(DefinitionError, match=f"'{address}' is not an address that a client knows: write http://"):
            Client(address)
    with pytest.raises(DefinitionError, match="has no option env"):
        Client(a_server(), env={})


async def test_nothing_is_agreed_before_it_is() -> None:
    client = Client(modern())
    for name in ("discovery", "era", "protocol_version", "server_info", "server_capabilities", "instructions"):
        with pytest.raises(NotSent):
            getattr(client, name)
    assert client.mirrors_arguments is False
