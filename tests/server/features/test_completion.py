"""Completion: suggestions for prompt arguments and template variables, from functions and from choices, in both eras."""

from __future__ import annotations

import enum
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest

from gemel import Client, Completion, Context, DefinitionError, Server
from gemel.schema.completion import CompleteParams, CompleteResult
from tests.server.bare_end import BareEnd, Era

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


def town(**options: Any) -> Server[Any]:
    server: Server[Any] = Server("town", **options)

    @server.prompt
    def brief(city: str, style: Literal["short", "long"], color: Color = Color.RED, loud: bool | None = None) -> str:
        return city

    @brief.complete("city")
    async def cities(value: str, arguments: dict[str, str]) -> list[str]:
        found = [name for name in ("Oslo", "Osaka", "Bergen") if name.startswith(value)]
        return [f"{name} ({arguments['style']})" for name in found] if "style" in arguments else found

    @server.resource("town://{street}/{number}")
    def house(street: str, number: int) -> str:
        return street

    @house.complete("number")
    def numbers(value: str) -> Any:
        """Not even strings; in a thread."""
        assert threading.current_thread() is not threading.main_thread()
        return (number for number in range(250) if str(number).startswith(value))

    return server


async def values(end: BareEnd, argument: str, value: str = "", **chosen: str) -> list[str]:
    return list((await completion(end, {"type": "ref/prompt", "name": "brief"}, argument, value, **chosen))["values"])


async def completion(end: BareEnd, ref: Any, argument: str, value: str = "", **chosen: str) -> dict[str, Any]:
    params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
    if chosen:
        params["context"] = {"arguments": chosen}
    found: dict[str, Any] = (await end.ask("completion/complete", params))["completion"]
    return found


HOUSE = {"type": "ref/resource", "uri": "town://{street}/{number}"}


@both_eras
async def test_a_function_suggests_by_what_stands_there_and_by_what_was_chosen(era: Era) -> None:
    """COMP-01."""
    async with BareEnd(town(), era) as end:
        found = end.welcome if era == "2025" else await end.ask("server/discover")
        assert found["capabilities"]["completions"] == {}
        assert await values(end, "city", "Os") == ["Oslo", "Osaka"]
        assert await values(end, "city", "B", style="long") == ["Bergen (long)"]


@both_eras
async def test_at_most_a_hundred_go_out_and_it_is_said_that_there_are_more(era: Era) -> None:
    """COMP-04."""
    async with BareEnd(town(), era) as end:
        found = await completion(end, HOUSE, "number")
        assert (len(found["values"]), found["values"][99], found["total"], found["hasMore"]) == (100, "99", 250, True)
        found = await completion(end, HOUSE, "number", "24")
        assert found == {"values": ["24", *map(str, range(240, 250))], "total": 11, "hasMore": False}


@both_eras
async def test_choices_complete_by_themselves(era: Era) -> None:
    async with BareEnd(town(), era) as end:
        assert await values(end, "style") == ["short", "long"]
        assert await values(end, "style", "S") == ["short"]
        assert await values(end, "color", "g") == ["green"]
        assert await values(end, "loud", "t") == ["true"]


async def test_a_function_of_the_authors_goes_before_the_choices() -> None:
    server: Server[Any] = Server("town")

    @server.prompt
    def brief(style: Literal["short", "long"]) -> str:
        return style

    brief.complete("style")(lambda value: ["own"])
    async with BareEnd(server) as end:
        assert await values(end, "style") == ["own"]


@both_eras
async def test_what_has_no_suggestions_has_none_and_what_is_not_there_is_an_error(era: Era) -> None:
    """COMP-05."""
    async with BareEnd(town(), era) as end:
        nothing = {"values": [], "total": 0, "hasMore": False}
        assert await completion(end, HOUSE, "street", "x") == nothing
        assert await completion(end, HOUSE, "roof") == nothing
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"type": "ref/prompt", "name": "brie"}, "Unknown prompt: brie"),
            ({"type": "ref/resource", "uri": "town://x"}, "Unknown resource template: town://x"),
        ]
        for ref, words in wrong:
            params = {"ref": ref, "argument": {"name": "city", "value": ""}}
            error = await end.refusal("completion/complete", params)
            assert (error["code"], error["message"]) == (-32602, words)


@both_eras
async def test_where_nothing_completes_there_is_no_such_method(era: Era) -> None:
    """COMP-05: what isn't announced isn't served, until there is something."""
    server: Server[Any] = Server("plain")

    @server.prompt
    def brief(city: str) -> str:
        return city

    params = {"ref": {"type": "ref/prompt", "name": "brief"}, "argument": {"name": "city", "value": ""}}
    async with BareEnd(server, era) as end:
        assert (await end.refusal("completion/complete", params))["code"] == -32601
        brief.complete("city")(lambda value: ["Oslo"])
        assert (await end.ask("completion/complete", params))["completion"]["values"] == ["Oslo"]


@both_eras
async def test_the_context_comes_to_whoever_asks_for_it(era: Era) -> None:
    @asynccontextmanager
    async def lifespan(server: Any) -> AsyncIterator[list[str]]:
        yield ["Ada", "Alan"]

    server: Server[list[str]] = Server("people", lifespan=lifespan)

    @server.prompt
    def brief(name: str, friend: str, enemy: str) -> str:
        return name

    @brief.complete("name")
    async def names(ctx: Context[list[str]], value: str) -> list[str]:
        return [name for name in ctx.state if name.startswith(value)]

    @brief.complete("friend")
    def friends(value: str, arguments: dict[str, str], ctx: Context[list[str]]) -> list[str]:
        ctx.sync.debug("asked")
        return [name for name in ctx.state if name != arguments.get("name")]

    class Enemies:
        async def of(self, value: str) -> Completion:
            return Completion(values=["Bob"], total=7, has_more=True)

    brief.complete("enemy")(Enemies().of)
    async with server.running(), BareEnd(server, era) as end:
        assert await values(end, "name", "Ad") == ["Ada"]
        assert await values(end, "friend", "", name="Ada") == ["Alan"]
        found = await completion(end, {"type": "ref/prompt", "name": "brief"}, "enemy")
        assert found == {"values": ["Bob"], "total": 7, "hasMore": True}


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@pytest.mark.parametrize(
    ("suggestions", "seen"),
    [(list(Size), ["s", "l"]), ([1, True], ["1", "true"]), ({"a"}, ["a"]), (iter(["a"]), ["a"]), ([], []), (None, [])],
)
async def test_suggestions_are_texts_that_the_argument_takes(suggestions: Any, seen: list[str]) -> None:
    server: Server[Any] = Server("town")

    @server.prompt
    def brief(size: str) -> str:
        return size

    brief.complete("size")(lambda value: suggestions)
    async with BareEnd(server) as end:
        assert (await completion(end, {"type": "ref/prompt", "name": "brief"}, "size"))["values"] == seen


async def test_a_completer_that_returns_a_text_is_told_to_return_a_list(caplog: pytest.LogCaptureFixture) -> None:
    server: Server[Any] = Server("town")

    @server.prompt
    def brief(size: str) -> str:
        return size

    brief.complete("size")(lambda value: "small")
    async with BareEnd(server) as end:
        params = {"ref": {"type": "ref/prompt", "name": "brief"}, "argument": {"name": "size", "value": ""}}
        assert (await end.refusal("completion/complete", params))["code"] == -32603
    assert "A completer returned the text 'small': return a list of strings" in caplog.text


async def test_a_failing_completer_is_no_crash(caplog: pytest.LogCaptureFixture) -> None:
    """ERR-05: the author reads why, the client doesn't."""
    server: Server[Any] = Server("town")

    @server.prompt
    def brief(city: str) -> str:
        return city

    @brief.complete("city")
    def cities(value: str) -> list[str]:
        raise RuntimeError("the password is 1234")

    async with BareEnd(server) as end:
        params = {"ref": {"type": "ref/prompt", "name": "brief"}, "argument": {"name": "city", "value": ""}}
        assert await end.refusal("completion/complete", params) == {"code": -32603, "message": "Internal server error"}
    assert "the password is 1234" in caplog.text


def test_mistakes_are_told_at_registration() -> None:
    server: Server[Any] = Server("town")

    @server.prompt
    def brief(city: str) -> str:
        return city

    def nothing() -> list[str]:
        return []

    def too_much(value: str, arguments: dict[str, str], more: int) -> list[str]:
        return []

    def fine(value, arguments, more=1):  # type: ignore[no-untyped-def]  # annotations are not needed
        return []

    for wrong in (nothing, too_much):
        with pytest.raises(DefinitionError) as caught:
            brief.complete("city")(wrong)
        assert str(caught.value).partition(": ")[2] == (
            "completes an argument: write `(value: str)`, or `(value: str, arguments: dict[str, str])`, and `ctx: Context` "
            "besides if you need it"
        )
    assert brief.complete("city")(fine) is fine
    with pytest.raises(DefinitionError) as caught:
        brief.complete("cty")
    assert str(caught.value) == "brief has no argument 'cty' to complete; did you mean 'city'?"


async def test_a_decorated_function_can_still_be_called() -> None:
    server: Server[Any] = Server("town")

    @server.prompt
    def brief(city: str) -> str:
        """Tell of a city."""
        return f"Tell of {city}"

    assert (brief("Oslo"), brief.__name__, brief.__doc__) == ("Tell of Oslo", "brief", "Tell of a city.")


@both_eras
async def test_a_server_with_a_handler_of_its_own_announces_it(era: Era) -> None:
    """COMP-01: a server that completes declares the capability, whatever does the completing."""
    server: Server[Any] = Server("own")

    @server.request("completion/complete")
    async def complete(ctx: Context[Any], params: CompleteParams) -> CompleteResult:
        return CompleteResult(completion=Completion(values=[f"{params.argument.value}slo"]))

    async with Client(server, era=era) as client:
        assert client.server_capabilities is not None
        assert client.server_capabilities.completions == {}
        assert (await client.complete(prompt="brief", argument="city", value="O")).values == ["Oslo"]
