"""`connection_lifespan`: entered once per handshake connection, once per stateless request, where a function of the user runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from gemel import (
    CallNext,
    Client,
    Context,
    Extension,
    Limits,
    Method,
    ProtocolError,
    Server,
    Tasks,
    ToolError,
    current_context,
)
from tests.server.bare_end import BareEnd, Era
from tests.support import Origin

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


class Typed(msgspec.Struct):
    number: int


class Life:
    """A lifespan that keeps a diary."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.count = 0
        self.fails = False
        self.hangs = False

    @asynccontextmanager
    async def __call__(self, ctx: Context[Any]) -> AsyncIterator[int]:
        self.count += 1
        number = self.count
        if self.fails:
            raise OSError("the database is closed")
        name = ctx.client_info.name if ctx.client_info is not None else "nobody"
        self.log.append(f"{number} begins with {ctx.method} of {name}")
        await asyncio.sleep(0)
        try:
            yield number
        finally:
            if self.hangs:
                await asyncio.sleep(60)
            self.log.append(f"{number} ends")


def counted(life: Life, **options: Any) -> Server[Any]:
    server: Server[Any] = Server("counted", connection_lifespan=life, **options)

    @server.tool
    async def state(ctx: Context[Any]) -> str:
        await asyncio.sleep(0)
        return str(ctx.connection_state)

    @server.prompt
    async def brief(ctx: Context[Any]) -> str:
        return str(ctx.connection_state)

    @server.request("acme/state")
    async def own(ctx: Context[Any], params: Any) -> Any:
        return {"state": ctx.connection_state}

    return server


async def test_a_handshake_conversation_has_one_from_its_first_work_to_its_end() -> None:
    life = Life()
    server = counted(life)
    async with BareEnd(server, "2025") as one, BareEnd(server, "2025") as other:
        await one.names()
        assert life.log == []
        assert await asyncio.gather(*(one.text("state") for _ in range(3))) == ["1", "1", "1"]
        assert await other.text("state") == "2"
        assert (await one.ask("acme/state"))["state"] == 1
        brief = await one.ask("prompts/get", {"name": "brief"})
        assert brief["messages"][0]["content"]["text"] == "1"
        assert life.log == ["1 begins with tools/call of bare", "2 begins with tools/call of bare"]
    assert sorted(life.log[2:]) == ["1 ends", "2 ends"]


async def test_each_stateless_request_that_runs_a_function_has_its_own() -> None:
    """Nothing is carried from one request to the next."""
    life = Life()
    async with BareEnd(counted(life), "2026") as end:
        await end.names()
        await end.ask("server/discover")
        assert life.log == []
        assert await end.text("state") == "1"
        assert life.log[-1] == "1 ends"
        assert await end.text("state") == "2"
        assert (await end.ask("acme/state"))["state"] == 3
    assert life.log[-1] == "3 ends"


async def test_a_handshake_request_that_stands_alone_has_its_own() -> None:
    life = Life()
    server = counted(life)
    for number in ("1", "2"):
        end = BareEnd(server, "2025", kind="post")
        assert await end.text("state") == number
        assert life.log == [
            line for n in range(1, int(number) + 1) for line in (f"{n} begins with tools/call of nobody", f"{n} ends")
        ]
        end.session.close("over")


@both_eras
async def test_one_that_cannot_begin_fails_the_call_and_the_next_call_tries_again(
    era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life()
    life.fails = True
    async with BareEnd(counted(life), era) as end:
        error = await end.refusal("tools/call", {"name": "state", "arguments": {}})
        assert (error["code"], error["message"]) == (-32603, "Internal server error")
        life.fails = False
        assert await end.text("state") == "2"
    assert "the database is closed" in caplog.text


async def test_one_that_does_not_end_is_abandoned_in_time(caplog: pytest.LogCaptureFixture) -> None:
    life = Life()
    life.hangs = True
    async with BareEnd(counted(life, limits=Limits(teardown=0.05)), "2025") as end:
        assert await end.text("state") == "1"
    assert "clean-up took longer than 0.05 seconds" in caplog.text


async def test_one_of_a_stateless_request_that_does_not_end_holds_its_answer_for_a_limited_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What the function did and said counts; the clean-up is given up with a word in the log."""
    life = Life()
    server = counted(life, limits=Limits(teardown=0.05))

    @server.tool
    async def fail() -> str:
        raise ToolError("no luck")

    @server.request("acme/fail")
    async def refuse(ctx: Context[Any], params: Any) -> Any:
        raise ProtocolError("no luck", code=1234)

    async with BareEnd(server) as end:
        life.hangs = True
        assert await end.text("state") == "1"
        assert (await end.call_tool("fail"))["content"][0]["text"] == "no luck"
        assert (await end.refusal("acme/fail"))["code"] == 1234
    assert caplog.text.count("Leaving the lifespan of a connection took longer than 0.05 seconds") == 3
    assert [line for line in life.log if line.endswith("ends")] == []


MISHAPS: dict[str, Callable[[], BaseException]] = {
    "error": lambda: OSError("the database was gone already"),
    "the error of a tool": lambda: ToolError("the database was gone already"),
    "exit": lambda: SystemExit(3),
    "cancelled": asyncio.CancelledError,
    "group": lambda: BaseExceptionGroup("several", [OSError("gone"), asyncio.CancelledError()]),
}


@both_eras
@pytest.mark.parametrize("mishap", MISHAPS)
async def test_one_that_fails_at_its_end_changes_no_answer(
    mishap: str, era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a result nor the error of a function."""

    @asynccontextmanager
    async def life(ctx: Context[Any]) -> AsyncIterator[None]:
        try:
            yield
        finally:
            raise MISHAPS[mishap]()

    server: Server[Any] = Server("failing", connection_lifespan=life)
    server.tool("state")(lambda: "fine")

    @server.tool
    async def fail() -> str:
        raise ToolError("no luck")

    @server.tool
    async def refuse() -> str:
        raise ProtocolError("refused", code=1234)

    async with BareEnd(server, era) as end:
        assert await end.text("state") == "fine"
        assert await end.text("fail") == "no luck"
        assert (await end.refusal("tools/call", {"name": "refuse", "arguments": {}}))["code"] == 1234
    assert "The lifespan of a connection failed when it was left" in caplog.text


@both_eras
async def test_one_that_swallows_the_failure_of_a_call_changes_no_answer(era: Era) -> None:
    @asynccontextmanager
    async def life(ctx: Context[Any]) -> AsyncIterator[None]:
        with suppress(Exception):
            yield

    server: Server[Any] = Server("quiet", connection_lifespan=life)

    @server.tool
    async def refuse() -> str:
        raise ProtocolError("refused", code=1234)

    async with BareEnd(server, era) as end:
        assert (await end.refusal("tools/call", {"name": "refuse", "arguments": {}}))["code"] == 1234


@both_eras
async def test_requests_that_reach_no_function_enter_nothing(era: Era) -> None:
    """And they get the answers that they get without a lifespan, even if it could not be entered."""
    life = Life()
    life.fails = True
    server = counted(life, middleware=[pass_on])

    @server.tool(scopes=["admin"])
    async def secret() -> str:
        return ""

    @server.tool
    async def add(a: int) -> int:
        return a

    @server.resource("page://{number}")
    async def page(number: int) -> str:
        return str(number)

    @server.request("acme/typed", params=Typed)
    async def typed(ctx: Context[Any], params: Typed) -> Any:
        return {}

    async with BareEnd(server, era, origin=Origin(scopes=frozenset())) as end:
        await end.names()
        for method, params, code in (
            ("acme/nothing", {}, -32601),
            ("acme/typed", {"number": "one"}, -32602),
            ("tools/call", {"name": "nothing", "arguments": {}}, -32602),
            ("tools/call", {"name": 5}, -32602),
            ("tools/call", {"name": "secret", "arguments": {}}, 403),
            ("prompts/get", {"name": "nothing"}, -32602),
            ("prompts/get", {"name": "brief", "arguments": {"more": 5}}, -32602),
            ("resources/read", {"uri": "page://x"}, -32602),
            ("completion/complete", {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {}}, -32602),
        ):
            assert (await end.refusal(method, params))["code"] == code, (method, params)
        assert (await end.call_tool("add", a="one"))["isError"]
        await end.tell("notifications/acme/nothing")
        assert life.count == 0
        assert (await end.refusal("tools/call", {"name": "state", "arguments": {}}))["code"] == -32603
        life.fails = False
        assert await end.text("add", a=1) == "1"


@both_eras
async def test_a_handler_of_a_notification_has_it(era: Era) -> None:
    life = Life()
    server = counted(life)
    seen = asyncio.Queue[Any]()

    @server.notification("notifications/acme")
    async def noted(ctx: Context[Any], params: Any) -> None:
        seen.put_nowait(ctx.connection_state)

    async with Client(server, era=era) as client:
        await client.notify("notifications/acme", {})
        assert await seen.get() == 1


async def test_a_call_that_asks_leaves_it_in_each_round() -> None:
    life = Life()
    server = counted(life)

    @server.tool
    async def ask(ctx: Context[Any]) -> str:
        return f"{await ctx.elicit('Who?')} {await ctx.elicit('Where?')}"

    answers = iter(["Ann", "Oslo"])
    async with Client(server, era="2026", on_elicit=lambda form: {"value": next(answers)}) as client:
        assert (await client.call_tool("ask")).text == "Ann Oslo"
    assert [line.split(" with")[0] for line in life.log] == [
        f"{number} {word}" for number in (1, 2, 3) for word in ("begins", "ends")
    ]


@both_eras
async def test_functions_of_a_mounted_server_are_inside_of_both(era: Era) -> None:
    outer, inner = Life(), Life()
    server = counted(outer)
    server.mount(counted(inner), "inner")
    async with BareEnd(server, era) as end:
        assert (await end.refusal("tools/call", {"name": "inner_nothing", "arguments": {}}))["code"] == -32602
        assert (outer.count, inner.count) == (0, 0)
        assert await end.text("inner_state") == "1"
        assert (outer.count, inner.count) == (1, 1)


@both_eras
async def test_nested_calls_are_inside_of_that_of_their_call(era: Era) -> None:
    life = Life()
    server = counted(life)

    @server.tool
    async def outer(ctx: Context[Any]) -> str:
        return f"{ctx.connection_state} {(await ctx.call_tool('state')).text} {current_context().connection_state}"

    async with BareEnd(server, era) as end:
        assert await end.text("outer") == "1 1 1"
    assert life.count == 1


async def pass_on(ctx: Context[Any], call_next: CallNext) -> Any:
    return await call_next(ctx.replace(params=ctx.params))


async def test_a_client_that_leaves_while_it_begins_leaves_nothing_open() -> None:
    life = Life()
    end = BareEnd(counted(life), "2025")
    async with end:
        call: Any = end.begin("tools/call", {"name": "state", "arguments": {}})
        task = asyncio.create_task(end.session.answer(call))
        await asyncio.sleep(0)
    assert await task is None
    assert len([line for line in life.log if "begins" in line]) == len([line for line in life.log if "ends" in line])


@both_eras
async def test_without_one_the_state_is_none(era: Era) -> None:
    server: Server[Any] = Server("plain")

    @server.tool
    async def state(ctx: Context[Any]) -> str:
        return str(ctx.connection_state)

    async with BareEnd(server, era) as end:
        assert await end.text("state") == "None"


async def test_middleware_sees_the_state_once_a_function_has_run() -> None:
    life = Life()
    server = counted(life)
    seen: list[Any] = []

    async def watching(ctx: Context[Any], call_next: Any) -> Any:
        seen.append(ctx.connection_state)
        result = await call_next(ctx)
        seen.append(ctx.connection_state)
        return result

    server.add_middleware(watching)
    async with BareEnd(server) as end:
        await end.text("state")
    assert seen == [None, 1]


async def test_a_client_that_gives_up_while_it_is_entered_does_not_wait_for_it() -> None:
    entering, cancelled = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def life(ctx: Context[Any]) -> AsyncIterator[None]:
        entering.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        yield

    server: Server[Any] = Server("slow", connection_lifespan=life)
    server.tool("state")(lambda: "fine")
    async with Client(server, era="2026") as client:
        calling = asyncio.create_task(client.call_tool("state"))
        await entering.wait()
        calling.cancel()
        await cancelled.wait()


@both_eras
async def test_methods_of_extensions_have_it_unless_they_need_none(era: Era) -> None:
    class Both(Extension):
        id = "com.example/both"

        def requests(self) -> list[Method]:
            return [
                Method(name="both/with", serve=self.serve, open=True),
                Method(name="both/without", serve=self.serve, open=True, connection=False),
            ]

        async def serve(self, ctx: Context[Any], params: Any) -> Any:
            return {"state": ctx.connection_state}

    life = Life()
    async with Client(counted(life, extensions=[Both]), era=era) as client:
        without = await client.request("both/without")
        assert (without["state"], life.count) == (None, 0)
        assert (await client.request("both/with"))["state"] == 1


async def test_a_task_enters_it_when_it_runs() -> None:
    life = Life()
    server = counted(life, extensions=[Tasks])

    @server.tool(task=True)
    async def job(ctx: Context[Any]) -> str:
        return str(ctx.connection_state)

    async with Client(server, era="2025") as client:
        task = await client.call_tool("job", task=True)
        assert (await task.result()).text == "1"
    assert life.log == ["1 begins with tools/call of gemel", "1 ends"]


async def test_a_middleware_may_call_a_function_twice_at_once() -> None:
    states: list[str] = []

    async def twice(ctx: Context[Any], call_next: CallNext) -> Any:
        first, second = await asyncio.gather(call_next(ctx), call_next(ctx))
        if ctx.method == "tools/call":
            states.extend((first.text, second.text))
        return first

    life = Life()
    async with BareEnd(counted(life, middleware=[twice])) as end:
        await end.text("state")
    assert sorted(states) == ["1", "2"]
    assert sorted(line for line in life.log if line.endswith("ends")) == ["1 ends", "2 ends"]
