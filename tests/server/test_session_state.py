"""`ctx.session_state`: what functions keep for the session of a client, on every kind of connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
import pytest

from gemel import (
    CallNext,
    Client,
    Context,
    DefinitionError,
    GemelError,
    Limits,
    NoSession,
    Server,
    Tasks,
)
from tests.server.bare_end import BareEnd


@dataclass
class Item:
    name: str
    count: int = 1


class Model(pydantic.BaseModel):
    name: str


def server_of(function: Callable[[Context[Any]], Any], **options: Any) -> Server[Any]:
    """A server with one tool, which calls a function with its context."""
    server: Server[Any] = Server("keeping", **options)

    @server.tool
    async def run(ctx: Context[Any]) -> str:
        return str(await function(ctx))

    return server


async def returned(function: Callable[[Context[Any]], Any], **options: Any) -> str:
    """What a function returns in a session of its own."""
    async with Client(server_of(function, **options), era="2025") as client:
        return (await client.call_tool("run")).text


async def test_values_last_from_call_to_call() -> None:
    async def visit(ctx: Context[Any]) -> Any:
        state = ctx.session_state
        visits = await state.update("visits", lambda count: count + 1, default=0)
        return visits, await state.get("visits"), await state.keys()

    server = server_of(visit)
    async with Client(server, era="2025") as one, Client(server, era="2025") as other:
        assert (await one.call_tool("run")).text == "(1, 1, ['visits'])"
        assert (await one.call_tool("run")).text == "(2, 2, ['visits'])"
        assert (await other.call_tool("run")).text == "(1, 1, ['visits'])"
    async with Client(server, era="2025") as again:
        assert (await again.call_tool("run")).text == "(1, 1, ['visits'])"


async def test_get_set_delete_and_clear() -> None:
    async def use(ctx: Context[Any]) -> Any:
        state = ctx.session_state
        seen: list[Any] = [await state.get("a"), await state.get("a", default=7), await state.delete("a")]
        await state.set("a", {"b": [1, None]})
        await state.set("c", None)
        seen += [await state.get("a"), await state.get("c", default=7), await state.keys()]
        seen += [await state.delete("a"), await state.delete("a"), await state.keys()]
        await state.clear()
        return [*seen, await state.keys()]

    assert await returned(use) == str([None, 7, False, {"b": [1, None]}, None, ["a", "c"], True, False, ["c"], []])


async def test_values_have_types() -> None:
    async def use(ctx: Context[Any]) -> Any:
        state = ctx.session_state
        await state.set("item", Item("pen"))
        await state.set("model", Model(name="ink"))
        items = await state.update("items", lambda items: [*items, Item("nib", 2)], list[Item], [])
        models = await state.update("models", lambda models: [*(models or []), Model(name="ink")], list[Model])
        return [
            await state.get("item", Item),
            await state.get("model", Model),
            await state.get("items", list[Item], []) == items,
            await state.get("models", list[Model]) == models,
            await state.get("nothing", Item),
        ]

    assert await returned(use) == str([Item("pen"), Model(name="ink"), True, True, None])


async def test_what_is_got_is_a_copy() -> None:
    async def use(ctx: Context[Any]) -> Any:
        given: list[int] = []
        await ctx.session_state.set("list", given)
        given.append(1)
        (await ctx.session_state.get("list")).append(2)
        return await ctx.session_state.get("list")

    assert await returned(use) == "[]"


@pytest.mark.parametrize(
    ("use", "error", "text"),
    [
        (lambda state: state.get("number", str), GemelError, "what is stored as 'number' is not str"),
        (lambda state: state.set("x", object()), GemelError, "JSON can't represent what was given for 'x'"),
        (lambda state: state.set("x", float("nan")), GemelError, "JSON can't represent what was given for 'x'"),
        (lambda state: state.get(""), DefinitionError, "a key is a text that is not empty, not ''"),
        (lambda state: state.set(5, 5), DefinitionError, "a key is a text that is not empty, not 5"),
        (lambda state: state.get("number", 5), DefinitionError, "can't be kept"),
        (lambda state: state.update("number", asyncio.sleep), DefinitionError, "is async"),
        (lambda state: state.update("number", lambda number: 1 / 0), ZeroDivisionError, "division"),
        (lambda state: state.update("number", str, int), GemelError, "the new value of 'number' is not int"),
    ],
)
async def test_mistakes_change_nothing(use: Any, error: type[Exception], text: str) -> None:
    async def run(ctx: Context[Any]) -> Any:
        await ctx.session_state.set("number", 5)
        with pytest.raises(error, match=text):
            await use(ctx.session_state)
        return await ctx.session_state.get("number"), await ctx.session_state.keys()

    assert await returned(run) == "(5, ['number'])"


async def test_a_session_keeps_a_limited_number_of_keys() -> None:
    async def fill(ctx: Context[Any]) -> Any:
        state = ctx.session_state
        for key in ("a", "b"):
            await state.set(key, 1)
        with pytest.raises(GemelError, match=r"at most 2 keys, see Limits\.session_state_keys"):
            await state.set("c", 1)
        await state.set("b", 2)
        await state.delete("a")
        await state.set("c", 3)
        return await state.keys()

    assert await returned(fill, limits=Limits(session_state_keys=2)) == "['b', 'c']"


async def test_a_session_keeps_a_limited_number_of_bytes() -> None:
    """Those of names count, as JSON."""

    async def fill(ctx: Context[Any]) -> Any:
        state = ctx.session_state
        await state.set("a", "x" * 95)  # with the quotes of both 100 bytes
        for key, value in (("b", 1), ("a", "x" * 96), ("b" * 200, 1)):
            with pytest.raises(GemelError, match=r"at most 100, see Limits\.session_state_bytes"):
                await state.set(key, value)
        with pytest.raises(GemelError, match="at most 100"):
            await state.update("a", lambda text: text + "\0")
        return await state.keys()

    assert await returned(fill, limits=Limits(session_state_bytes=100)) == "['a']"


async def test_calls_at_once_lose_nothing() -> None:
    server: Server[Any] = Server("counting")

    @server.tool
    async def add(ctx: Context[Any]) -> int:
        return await ctx.session_state.update("count", lambda count: count + 1, int, 0)

    @server.tool
    def add_in_thread(ctx: Context[Any]) -> int:
        return ctx.sync.session_state.update("count", lambda count: count + 1, int, 0)

    async with Client(server, era="2025") as client:
        calls = [client.call_tool(name) for name in ("add", "add_in_thread") for _ in range(50)]
        counts = [int(result.text) for result in await asyncio.gather(*calls)]
    assert sorted(counts) == list(range(1, 101))


async def test_sync_functions_have_the_same() -> None:
    server: Server[Any] = Server("sync")

    @server.tool
    def use(ctx: Context[Any]) -> str:
        state = ctx.sync.session_state
        state.set("a", Item("pen"))
        seen: list[Any] = [state.get("a", Item), state.get("b", default=3), state.keys(), state.delete("a")]
        state.update("c", lambda value: [*value, "d"], list[str], [])
        seen.append(state.get("c", list[str]))
        state.clear()
        return str([*seen, state.keys()])

    async with Client(server, era="2025") as client:
        assert (await client.call_tool("use")).text == str([Item("pen"), 3, ["a"], True, ["d"], []])


async def test_middleware_prompts_resources_and_mounted_servers_see_the_same() -> None:
    async def note(ctx: Context[Any], call_next: CallNext) -> Any:
        await ctx.session_state.update("methods", lambda methods: [*methods, ctx.method], list[str], [])
        return await call_next(ctx)

    inner: Server[Any] = Server("inner")

    @inner.tool
    async def methods(ctx: Context[Any]) -> list[str]:
        return await ctx.session_state.get("methods", list[str], [])

    server: Server[Any] = Server("outer", middleware=[note])
    server.mount(inner, "in")

    @server.prompt
    async def brief(ctx: Context[Any]) -> str:
        return str(len(await ctx.session_state.get("methods")))

    @server.resource("page://1")
    async def page(ctx: Context[Any]) -> str:
        return str(len(await ctx.session_state.get("methods")))

    async with Client(server, era="2025") as client:
        assert (await client.get_prompt("brief")).messages[0].content.text == "3"  # type: ignore[union-attr]  # it is text
        assert (await client.read_resource("page://1")).text == "4"
        assert (await client.call_tool("in_methods", returns=list[str])).data == [
            "initialize",
            "notifications/initialized",
            "prompts/get",
            "resources/read",
            "tools/call",
        ]


ALTERNATIVES = r"ctx\.principal, or return a handle"


async def test_a_stateless_call_has_none_and_the_error_names_the_alternatives() -> None:
    async def use(ctx: Context[Any]) -> str:
        try:
            await ctx.session_state.get("a")
        except NoSession as error:
            return str(error)
        return "no error"

    async with Client(server_of(use), era="2026") as client:
        text = (await client.call_tool("run")).text
    assert text == (
        "ctx.session_state: clients of 2026-07-28 have no session: keep it for the user, in a database or server.backend by "
        "ctx.principal, or return a handle that the model passes to the next call"
    )


async def test_the_error_is_in_the_log_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def use(ctx: Context[Any]) -> Any:
        return await ctx.session_state.get("a")

    async with Client(server_of(use), era="2026") as client:
        result = await client.call_tool("run", raise_on_error=False)
    assert result.is_error
    assert "Tool 'run': ctx.session_state: clients of 2026-07-28 have no session" in caplog.text
    assert "Traceback" not in caplog.text


async def test_an_http_request_without_a_session_has_none() -> None:
    async def use(ctx: Context[Any]) -> Any:
        with pytest.raises(NoSession, match=rf"no HTTP sessions \(sessions=False\): .*{ALTERNATIVES}"):
            ctx.session_state  # noqa: B018 - it raises
        return "refused"

    end = BareEnd(server_of(use), "2025", kind="post")
    assert await end.text("run") == "refused"


async def test_a_task_has_none() -> None:
    server: Server[Any] = Server("tasks", extensions=[Tasks])

    @server.tool(task=True)
    async def job(ctx: Context[Any]) -> str:
        with pytest.raises(NoSession, match=f"a task does not belong to a session.*{ALTERNATIVES}"):
            ctx.session_state  # noqa: B018 - it raises
        return "refused"

    async with Client(server, era="2025") as client:
        task = await client.call_tool("job", task=True)
        assert (await task.result()).text == "refused"


async def test_it_ends_with_the_connection() -> None:
    """What goes on afterwards learns that nothing is kept any more."""
    states: list[Any] = []

    async def keep(ctx: Context[Any]) -> str:
        await ctx.session_state.set("a", 1)
        states.append(ctx.session_state)
        return ""

    async with Client(server_of(keep), era="2025") as client:
        await client.call_tool("run")
        assert await states[0].get("a") == 1
    for use in (states[0].get, states[0].delete):
        with pytest.raises(NoSession, match="the session has ended"):
            await use("a")


def test_the_sync_form_is_refused_on_the_event_loop() -> None:
    async def use(ctx: Context[Any]) -> Any:
        with pytest.raises(GemelError, match="would block the event loop"):
            ctx.sync.session_state.get("a")
        return "refused"

    assert asyncio.run(returned(use)) == "refused"


def test_each_event_loop_has_sessions_of_its_own(tmp_path: Path) -> None:
    async def add(ctx: Context[Any]) -> Any:
        return await ctx.session_state.update("count", lambda count: count + 1, int, 0)

    server = server_of(add)

    async def count() -> str:
        async with Client(server, era="2025") as client:
            await client.call_tool("run")
            return (await client.call_tool("run")).text

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(lambda _: asyncio.run(count()), range(3))) == ["2"] * 3
