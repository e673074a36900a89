"""A call that waits for input: what ends with its handler, what goes out in one round, what is told of mistakes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest

from gemel import (
    AccessLog,
    Client,
    Context,
    DefinitionError,
    InputRequiredResult,
    InvalidParams,
    Limits,
    PeerError,
    Server,
    ToolCallError,
    ToolError,
)
from tests.jumping_clock import in_no_time
from tests.server.bare_end import BareEnd

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
Era = Literal["2025", "2026"]


class User:
    """Answers every form with its message, and counts the rounds."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    def __call__(self, request: Any) -> dict[str, Any]:
        self.requests.append(request.message)
        kind = request.requested_schema["properties"]["value"]["type"]
        return {"value": True if kind == "boolean" else request.message}


class Slow:
    """Work that takes a while and must not be done twice."""

    def __init__(self) -> None:
        self.begun = 0
        self.done = 0

    async def __call__(self) -> str:
        self.begun += 1
        await asyncio.sleep(0.05)
        self.done += 1
        return "charged"


def serves(function: Callable[..., Any], **options: Any) -> Server[Any]:
    server: Server[Any] = Server("asks", **options)
    server.tool("it")(function)
    return server


async def with_gather(*awaitables: Awaitable[Any]) -> list[Any]:
    return await asyncio.gather(*awaitables)


async def with_task_group(*awaitables: Any) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in awaitables]
    return [task.result() for task in tasks]


together = pytest.mark.parametrize("at_once", [with_gather, with_task_group])


@both_eras
@together
async def test_what_a_suspended_handler_awaits_ends_before_its_answer(era: Era, at_once: Any) -> None:
    """The charge beside a form is cancelled with its handler; only the last round completes it."""
    charge, user = Slow(), User()

    async def tool(ctx: Context[Any]) -> list[str]:
        found: list[str] = await at_once(ctx.elicit("Sure?"), charge())
        return found

    async with Client(serves(tool), era=era, on_elicit=user) as client:
        assert json.loads((await client.call_tool("it")).text) == ["Sure?", "charged"]
        await asyncio.sleep(0.1)
    assert charge.done == 1
    assert charge.begun == (2 if era == "2026" else 1)


@both_eras
@together
async def test_clean_up_of_a_suspended_handler_ends_before_its_answer(era: Era, at_once: Any) -> None:
    events: list[str] = []

    async def guarded() -> str:
        try:
            await asyncio.sleep(0.02)
            return "worked"
        except asyncio.CancelledError:
            await asyncio.sleep(0.2)
            events.append("cleaned up")
            raise

    async def tool(ctx: Context[Any]) -> list[str]:
        events.append("begins")
        found: list[str] = await at_once(ctx.elicit("a"), guarded())
        return found

    async with Client(serves(tool), era=era, on_elicit=User()) as client:
        assert json.loads((await client.call_tool("it")).text) == ["a", "worked"]
    assert events == (["begins", "cleaned up", "begins"] if era == "2026" else ["begins"])


@both_eras
async def test_a_task_that_is_not_awaited_is_not_ended(era: Era) -> None:
    charge = Slow()
    tasks: list[asyncio.Task[str]] = []

    async def tool(ctx: Context[Any]) -> str:
        if not tasks:
            tasks.append(asyncio.create_task(charge()))
        return await ctx.elicit("a")

    async with Client(serves(tool), era=era, on_elicit=User()) as client:
        assert (await client.call_tool("it")).data == "a"
        assert await tasks[0] == "charged"


@together
async def test_input_that_is_requested_together_is_one_round(at_once: Any) -> None:
    rounds: list[int] = []

    async def tool(ctx: Context[Any]) -> list[str]:
        rounds.append(1)
        found: list[str] = await at_once(ctx.elicit("a"), ctx.elicit("b"), ctx.elicit("c"))
        return found

    async with Client(serves(tool), era="2026", on_elicit=User()) as client:
        assert json.loads((await client.call_tool("it")).text) == ["a", "b", "c"]
    assert len(rounds) == 2


@together
async def test_functions_that_request_input_together_share_a_round(at_once: Any) -> None:
    rounds: list[int] = []

    async def deep(ctx: Context[Any], message: str) -> str:
        return await ctx.elicit(message)

    async def tool(ctx: Context[Any]) -> list[str]:
        rounds.append(1)
        found: list[str] = await at_once(deep(ctx, "a"), deep(ctx, "b"))
        return found

    async with Client(serves(tool), era="2026", on_elicit=User()) as client:
        assert json.loads((await client.call_tool("it")).text) == ["a", "b"]
    assert len(rounds) == 2


async def test_input_that_was_created_before_the_first_wait_shares_its_round() -> None:
    rounds: list[int] = []

    async def tool(ctx: Context[Any]) -> str:
        rounds.append(1)
        first, second = ctx.elicit("a"), ctx.elicit("b")
        return await first + await second

    async with Client(serves(tool), era="2026", on_elicit=User()) as client:
        assert (await client.call_tool("it")).data == "ab"
    assert len(rounds) == 2


async def test_a_handler_that_does_not_end_is_cancelled_again() -> None:
    """Clean-up has a limited time; the answer leaves all the same."""
    limits = Limits(teardown=0.05)

    async def tool(ctx: Context[Any]) -> str:
        try:
            return await ctx.elicit("a")
        except asyncio.CancelledError:
            await asyncio.sleep(60)
            raise

    async with Client(serves(tool, limits=limits), era="2026", on_elicit=User()) as client:
        async with asyncio.timeout(5):
            assert (await client.call_tool("it")).data == "a"


async def test_a_handler_that_catches_the_cancellation_is_suspended_all_the_same() -> None:
    async def tool(ctx: Context[Any]) -> str:
        try:
            return await ctx.elicit("a")
        except BaseException:
            return await ctx.elicit("b")

    user = User()
    async with Client(serves(tool, limits=Limits(teardown=60)), era="2026", on_elicit=user) as client:
        assert (await client.call_tool("it")).data == "a"
    assert user.requests == ["a", "b"]


@both_eras
async def test_a_tool_that_uses_another_tool_waits_with_it(era: Era) -> None:
    server: Server[Any] = Server("nested")
    charge = Slow()

    @server.tool
    async def inner(ctx: Context[Any]) -> str:
        return await ctx.elicit("inner")

    @server.tool
    async def outer(ctx: Context[Any]) -> list[str]:
        result, text, paid = await asyncio.gather(ctx.call_tool("inner"), ctx.elicit("outer"), charge())
        return [result.text, text, paid]

    @server.tool
    def blocking(ctx: Context[Any]) -> list[str]:
        return [ctx.sync.call_tool("inner").text, ctx.sync.elicit("outer")]

    user = User()
    async with Client(server, era=era, on_elicit=user) as client:
        assert json.loads((await client.call_tool("outer")).text) == ["inner", "outer", "charged"]
        assert json.loads((await client.call_tool("blocking")).text) == ["inner", "outer"]
    assert charge.done == 1
    assert sorted(user.requests) == ["inner", "inner", "outer", "outer"]


# ---------------------------------------------------------------- in middleware


@both_eras
@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_middleware_requests_input_too(
    era: Era, method: str, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gemel.access")
    server: Server[Any] = Server("asks")
    server.add_middleware(AccessLog())

    @server.add_middleware
    async def confirm(ctx: Context[Any], call_next: Any) -> Any:
        if ctx.method != method:
            return await call_next(ctx)
        result = await call_next(ctx) if when == "after" else None
        assert await ctx.elicit("Really?", bool) is True
        return await call_next(ctx.replace()) if result is None else result

    @server.tool
    @server.prompt
    async def it(ctx: Context[Any]) -> str:
        return await ctx.elicit("Which?")

    @server.resource("a://b")
    async def resource(ctx: Context[Any]) -> str:
        return await ctx.elicit("Which?")

    user = User()
    async with Client(server, era=era, on_elicit=user) as client:
        if method == "tools/call":
            assert (await client.call_tool("it")).text == "Which?"
        elif method == "prompts/get":
            assert "Which?" in repr(await client.get_prompt("it"))
        else:
            assert (await client.read_resource("a://b")).text == "Which?"
    assert sorted(user.requests) == ["Really?", "Which?"]
    assert "cancelled" not in caplog.text
    assert "crashed" not in caplog.text
    assert (": asked" in caplog.text) == (era == "2026")


@pytest.mark.parametrize("where", ["middleware", "handler"])
async def test_elsewhere_the_error_names_the_method(where: str, caplog: pytest.LogCaptureFixture) -> None:
    server: Server[Any] = Server("asks")

    @server.request("acme/search")
    async def search(ctx: Context[Any], params: Any) -> dict[str, str]:
        return {"found": await ctx.elicit("a")}

    @server.tool
    async def it() -> str:
        return "x"

    if where == "middleware":

        @server.add_middleware
        async def confirm(ctx: Context[Any], call_next: Any) -> Any:
            if ctx.method == "tools/list":
                await ctx.elicit("a")
            return await call_next(ctx)

    async with Client(server, era="2026", on_elicit=User()) as client:
        with pytest.raises(PeerError) as raised:
            await (client.list_tools() if where == "middleware" else client.request("acme/search", {}))
        assert raised.value.code == -32603
    method = "tools/list" if where == "middleware" else "acme/search"
    assert f"{method} can't request input from a stateless client" in caplog.text


# ---------------------------------------------------------------- forgotten `await`


@both_eras
@pytest.mark.parametrize("kind", ["async", "sync", "inline"])
async def test_a_form_in_place_of_its_answer_is_an_error(era: Era, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """`if not ctx.elicit(…)` without `await` wipes nothing."""
    wiped: list[str] = []
    server: Server[Any] = Server("asks")

    def wipe(ctx: Context[Any]) -> str:
        requested: Any = ctx.elicit("Really wipe?", bool)
        if not requested:
            return "kept"
        wiped.append("all")
        return "wiped"

    async def wipe_async(ctx: Context[Any]) -> str:
        return wipe(ctx)

    server.tool("wipe", blocking=kind != "inline")(wipe_async if kind == "async" else wipe)
    user = User()
    async with Client(server, era=era, on_elicit=user) as client:
        with pytest.raises(ToolCallError):
            await client.call_tool("wipe")
    assert not wiped
    assert not user.requests
    assert "write `await ctx.elicit('Really wipe?')`" in caplog.text


@both_eras
@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize(
    ("request_input", "written"),
    [
        (lambda ctx: ctx.elicit("What is ctx.elicit?"), "elicit('What is ctx.elicit?')"),
        (lambda ctx: ctx.list_roots(), "list_roots()"),
    ],
    ids=["elicit", "list_roots"],
)
async def test_input_that_is_never_awaited_fails_the_call(
    era: Era, blocking: bool, request_input: Any, written: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def tool(ctx: Context[Any]) -> str:
        request_input(ctx)
        return "done"

    def sync_tool(ctx: Context[Any]) -> str:
        request_input(ctx)
        return "done"

    async with Client(serves(sync_tool if blocking else tool), era=era, on_elicit=User(), on_roots=[]) as client:
        with pytest.raises(PeerError) as raised:
            await client.call_tool("it")
    assert raised.value.code == -32603
    assert "ctx." not in str(raised.value)
    assert f"was not awaited: write `{'ctx.sync.' if blocking else 'await ctx.'}{written}`" in caplog.text


async def test_truth_of_a_request_for_input_names_what_to_write() -> None:
    seen: list[BaseException] = []

    async def tool(ctx: Context[Any]) -> str:
        for requested in (ctx.elicit("a"), ctx.list_roots()):
            try:
                bool(requested)
            except DefinitionError as exc:
                seen.append(exc)
        return "done"

    async with Client(serves(tool), on_elicit=User(), on_roots=[]) as client:
        assert (await client.call_tool("it")).data == "done"
    assert "`await ctx.elicit('a')`" in str(seen[0])
    assert "`await ctx.list_roots()`" in str(seen[1])


async def test_a_request_for_input_shows_how_it_was_written() -> None:
    async def tool(ctx: Context[Any]) -> str:
        question = ctx.elicit("Who?")
        return f"{question!r} {await question}"

    async with Client(serves(tool), on_elicit=User()) as client:
        assert (await client.call_tool("it")).text == "<ctx.elicit('Who?')> Who?"


@both_eras
async def test_a_question_that_is_cancelled_before_it_goes_out_is_not_asked(era: Era) -> None:
    async def tool(ctx: Context[Any]) -> str:
        task = asyncio.create_task(ctx.elicit("a"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return "done"

    user = User()
    async with Client(serves(tool), era=era, on_elicit=user) as client:
        assert (await client.call_tool("it")).text == "done"
    assert not user.requests


@both_eras
async def test_a_question_that_was_closed_is_not_asked(era: Era) -> None:
    """As with any coroutine: it need not be awaited any more, and can't be."""

    async def tool(ctx: Context[Any], later: bool) -> str:
        question = ctx.elicit("a")
        question.close()
        if later:
            with pytest.raises(RuntimeError, match="cannot reuse"):
                await question
        return "done"

    user = User()
    async with Client(serves(tool), era=era, on_elicit=user) as client:
        for later in (False, True):
            assert (await client.call_tool("it", {"later": later})).text == "done"
    assert not user.requests


@both_eras
async def test_an_error_of_a_handler_hides_what_it_did_not_await(era: Era) -> None:
    async def tool(ctx: Context[Any]) -> InputRequiredResult:
        ctx.elicit("a")
        raise ToolError("no")

    async with Client(serves(tool), era=era, on_elicit=User()) as client:
        with pytest.raises((ToolCallError, PeerError)):
            await client.call_tool("it")


# ---------------------------------------------------------------- beside other tasks


async def test_a_handler_that_ends_before_it_is_suspended_has_its_result() -> None:
    """A form that nobody waits for any more is neither sent, nor does its task remain."""

    async def deep(ctx: Context[Any]) -> str:
        return await ctx.elicit("a")

    tasks: list[asyncio.Task[str]] = []

    async def tool(ctx: Context[Any]) -> str:
        tasks.append(asyncio.create_task(deep(ctx)))
        await asyncio.sleep(0)
        return "done"

    user = User()
    async with Client(serves(tool), era="2026", on_elicit=user) as client:
        assert (await client.call_tool("it")).data == "done"
        await asyncio.wait(tasks)
    assert not user.requests
    assert tasks[0].cancelled()


async def test_a_suspended_handler_does_not_wait_for_other_cancelled_tasks() -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await release.wait()

    async def tool(ctx: Context[Any]) -> list[str]:
        return list(await asyncio.gather(ctx.elicit("a"), ctx.elicit("b")))

    other = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    other.cancel()
    async with Client(serves(tool, limits=Limits(teardown=60)), era="2026", on_elicit=User()) as client:
        calling = asyncio.create_task(client.call_tool("it"))
        await asyncio.wait([calling], timeout=10)
        release.set()
        assert calling.done()
        assert json.loads((await calling).text) == ["a", "b"]
    await other


@in_no_time
@pytest.mark.parametrize("persistent", [False, True])
async def test_the_task_that_served_a_suspended_handler_goes_on(persistent: bool) -> None:
    """Its answer may take longer to be sent than a handler has to end."""

    async def tool(ctx: Context[Any]) -> str:
        try:
            return await ctx.elicit("a")
        except asyncio.CancelledError:
            if persistent:
                return await ctx.elicit("b")
            raise

    async with BareEnd(serves(tool), capabilities={"elicitation": {}}) as end:
        answer = await end.reply("tools/call", {"name": "it", "arguments": {}})
        assert answer["result"]["resultType"] == "input_required"
        await asyncio.sleep(60)


async def test_a_suspended_handler_that_is_cancelled_from_elsewhere_remains_cancelled() -> None:
    suspended = asyncio.Event()

    async def tool(ctx: Context[Any]) -> str:
        try:
            return await ctx.elicit("a")
        finally:
            suspended.set()
            await asyncio.Event().wait()

    async with BareEnd(serves(tool), capabilities={"elicitation": {}}) as end:
        serving = asyncio.create_task(end.reply("tools/call", {"name": "it", "arguments": {}}))
        await suspended.wait()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving


async def test_an_answer_that_comes_before_its_question_is_not_taken() -> None:
    """MRTR-16: a client can't agree to what the user was not asked."""

    async def tool(ctx: Context[Any]) -> str:
        return await ctx.elicit("a") + await ctx.elicit("b")

    params = {"name": "it", "arguments": {}}
    answer = {"action": "accept", "content": {"value": "yes"}}
    async with BareEnd(serves(tool), capabilities={"elicitation": {}}) as end:
        first = await end.ask("tools/call", params)
        retry = {**params, "requestState": first["requestState"]}
        one = dict.fromkeys(first["inputRequests"], answer)
        second = await end.ask("tools/call", {**retry, "inputResponses": one})
        both = {**one, **dict.fromkeys(second["inputRequests"], answer)}
        assert len(both) == 2
        again = await end.ask("tools/call", {**retry, "inputResponses": both})
        assert again["inputRequests"] == second["inputRequests"]


async def test_a_retry_that_cannot_be_read_is_refused_and_one_without_answers_is_asked_again() -> None:
    """`inputResponses` may be missing; null is the same."""

    async def tool(ctx: Context[Any]) -> str:
        return f"hello {await ctx.elicit('name', str)}"

    async with BareEnd(serves(tool), capabilities={"elicitation": {}}) as end:
        params = {"name": "it", "arguments": {}}
        first = await end.ask("tools/call", params)
        retry = {**params, "requestState": first["requestState"]}
        for wrong in ({**params, "requestState": 5}, {**retry, "inputResponses": [1]}):
            assert (await end.refusal("tools/call", wrong))["code"] == -32602
        for again in (retry, {**retry, "inputResponses": None}):
            assert (await end.ask("tools/call", again))["inputRequests"] == first["inputRequests"]


async def test_a_state_of_another_type_is_refused_where_the_server_defines_the_method() -> None:
    server: Server[Any] = Server("steps")

    @server.request("acme/search")
    async def search(ctx: Context[Any], params: Any) -> dict[str, str]:
        return {"found": await ctx.step(str, "a")}

    async with BareEnd(server) as end:
        assert (await end.ask("acme/search", {}))["found"] == "a"
        assert (await end.refusal("acme/search", {"requestState": 5}))["code"] == -32602


@in_no_time
async def test_input_that_another_task_requests_does_not_interrupt_the_clean_up_of_the_handler() -> None:
    cleaned: list[str] = []

    async def tool(ctx: Context[Any]) -> str:
        async def later() -> str:
            await asyncio.sleep(0.5)
            return await ctx.elicit("b")

        other = asyncio.create_task(later())
        try:
            return await ctx.elicit("a")
        finally:
            await asyncio.sleep(1)
            cleaned.append("all")
            other.cancel()

    async with BareEnd(serves(tool), capabilities={"elicitation": {}}) as end:
        answer = await end.reply("tools/call", {"name": "it", "arguments": {}})
        assert answer["result"]["resultType"] == "input_required"
        assert cleaned == ["all"]


async def test_a_handler_that_swallows_its_suspension_is_repeated_all_the_same() -> None:
    async def tool(ctx: Context[Any]) -> str:
        try:
            return await ctx.elicit("a")
        except asyncio.CancelledError:
            return "swallowed"

    async with BareEnd(serves(tool), capabilities={"elicitation": {}}) as end:
        answer = await end.reply("tools/call", {"name": "it", "arguments": {}})
        assert answer["result"]["resultType"] == "input_required"


async def test_a_handler_that_fails_while_it_is_suspended_has_failed() -> None:
    server: Server[Any] = Server("asks")

    @server.prompt
    async def it(ctx: Context[Any]) -> str:
        try:
            return await ctx.elicit("a")
        except asyncio.CancelledError:
            raise InvalidParams("not today") from None

    async with BareEnd(server, capabilities={"elicitation": {}}) as end:
        assert (await end.refusal("prompts/get", {"name": "it"}))["message"] == "not today"
