"""How a client asks: rounds of questions, limits, progress, and which requests are sent again after a loss."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gemel import (
    CallNext,
    CallTimeout,
    Client,
    Context,
    ElicitFormParams,
    InvalidResponse,
    Limits,
    Outcome,
    PeerError,
    ProgressParams,
    Server,
    ToolCallError,
    ToolError,
)
from tests.client.puppet import META, SILENCE, Error, Puppet, done, legacy, modern
from tests.jumping_clock import in_no_time
from tests.server.bare_end import BareEnd
from tests.transports.http_rig import serving

FORM = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {"yes": {"type": "boolean"}}}}


def asks(
    *keys: str, state: str | None = None, method: str = "elicitation/create", params: Any = FORM
) -> dict[str, Any]:
    """An interim result."""
    found: dict[str, Any] = {"resultType": "input_required"}
    if keys:
        found["inputRequests"] = {key: {"method": method, "params": params} for key in keys}
    if state is not None:
        found["requestState"] = state
    return found


def one_after_the_other(*answers: Any) -> Any:
    left = list(answers)
    return lambda puppet, message: left.pop(0)


def yes(request: ElicitFormParams) -> dict[str, Any]:
    return {"yes": True}


# ---------------------------------------------------------------- rounds


@in_no_time
async def test_waiting_for_a_server_that_needs_time_counts() -> None:
    puppet = modern(tools_call=asks(state="later"))
    clock = asyncio.get_running_loop().time
    begin = clock()
    async with Client(puppet) as client:
        with pytest.raises(CallTimeout, match="within 3 seconds"):
            await client.call_tool("x", total=3)
    assert clock() - begin == pytest.approx(3, abs=0.1)


async def test_a_question_is_answered_and_the_whole_request_sent_again() -> None:
    """MRTR-06, MRTR-07, MRTR-08, MRTR-09, REQM-02."""
    puppet = modern(tools_call=one_after_the_other(asks("k", state="s1"), done()))
    async with Client(puppet, on_elicit=yes) as client:
        assert (await client.call_tool("book", {"day": "fri"})).text == "done"
    first, second = puppet.asked("tools/call")
    assert "inputResponses" not in first
    assert "requestState" not in first
    assert second["inputResponses"] == {"k": {"action": "accept", "content": {"yes": True}}}
    assert second["requestState"] == "s1"
    for params in (first, second):
        assert (params["name"], params["arguments"]) == ("book", {"day": "fri"})
        assert params["_meta"][f"{META}clientCapabilities"] == {"elicitation": {"form": {}}}
    ids = [message["id"] for message in puppet.came if message.get("method") == "tools/call"]
    assert len(set(ids)) == 2


async def test_each_round_carries_its_own_state_or_none() -> None:
    """MRTR-08: an empty state is echoed, an absent one is not replaced by an older one."""
    puppet = modern(tools_call=one_after_the_other(asks("a", state="s1"), asks("b", state=""), asks("c"), done()))
    async with Client(puppet, on_elicit=yes) as client:
        await client.call_tool("book")
    rounds = puppet.asked("tools/call")
    assert [params.get("requestState") for params in rounds] == [None, "s1", "", None]
    assert [list(params.get("inputResponses", {})) for params in rounds] == [[], ["a"], ["b"], ["c"]]


@in_no_time
async def test_a_state_without_questions_is_sent_back_without_answers() -> None:
    """MRTR-06."""
    puppet = modern(tools_call=one_after_the_other(asks(state="wait"), done()))
    async with Client(puppet) as client:
        await client.call_tool("book")
    assert puppet.asked("tools/call")[1].keys() == {"name", "arguments", "requestState", "_meta"}


async def test_parallel_calls_share_no_state() -> None:
    """MRTR-10."""

    def answer(puppet: Puppet, message: dict[str, Any]) -> Any:
        params = message["params"]
        if "requestState" not in params:
            return asks("k", state=params["arguments"]["n"])
        return done(params["requestState"] + params["arguments"]["n"])

    async with Client(modern(tools_call=answer), on_elicit=yes) as client:
        results = await asyncio.gather(*(client.call_tool("book", {"n": str(n)}) for n in range(5)))
    assert [result.text for result in results] == ["00", "11", "22", "33", "44"]


@in_no_time
async def test_a_server_that_never_stops_asking_is_given_up() -> None:
    """The error names the method and the limit."""
    puppet = modern(tools_call=lambda puppet, message: asks("k", state="s"))
    async with Client(puppet, on_elicit=yes) as client:
        with pytest.raises(InvalidResponse, match="tools/call: the server still requires input after 16 rounds"):
            await client.call_tool("book")
    assert len(puppet.asked("tools/call")) == 17


async def test_too_many_questions_at_once_are_refused() -> None:
    puppet = modern(tools_call=asks(*map(str, range(17)), state="s"))
    async with Client(puppet, on_elicit=yes) as client:
        with pytest.raises(InvalidResponse, match="17 input requests in one round"):
            await client.call_tool("book")


@pytest.mark.parametrize("method", ["tools/call", "ping", "acme/ask", ""])
async def test_only_three_things_can_be_asked_for(method: str) -> None:
    """MRTR-04."""
    puppet = modern(tools_call=asks("k", method=method, params={}))
    async with Client(puppet, on_elicit=yes) as client:
        with pytest.raises(InvalidResponse, match="which is not allowed"):
            await client.call_tool("book")


async def test_what_was_not_declared_is_not_answered() -> None:
    puppet = modern(tools_call=asks("k", method="roots/list", params={}))
    async with Client(puppet, on_elicit=yes) as client:
        with pytest.raises(InvalidResponse, match="which this client did not declare"):
            await client.call_tool("book")


@pytest.mark.parametrize("questions", [[], "x", {"k": 1}, {"k": {"params": {}}}])
async def test_questions_that_cannot_be_read_are_no_valid_answer(questions: Any) -> None:
    """MRTR-03."""
    puppet = modern(tools_call={"resultType": "input_required", "inputRequests": questions})
    async with Client(puppet, on_elicit=yes) as client:
        with pytest.raises(InvalidResponse):
            await client.call_tool("book")


async def test_a_handler_that_fails_stops_the_call_and_nothing_is_sent() -> None:
    """MRTR-18."""

    def broken(request: ElicitFormParams) -> dict[str, Any]:
        raise LookupError("no screen")

    puppet = modern(tools_call=asks("a", "b", state="s"))
    async with Client(puppet, on_elicit=broken) as client:
        with pytest.raises(LookupError, match="no screen"):
            await client.call_tool("book")
    assert len(puppet.asked("tools/call")) == 1


async def test_a_request_cannot_be_made_from_within_an_answer() -> None:
    clients: list[Client] = []
    caught: list[str] = []

    async def nosy(request: ElicitFormParams) -> dict[str, Any]:
        try:
            await clients[0].list_tools()
        except Exception as exc:
            caught.append(str(exc))
        return {"yes": True}

    puppet = modern(tools_call=one_after_the_other(asks("k", state="s"), done()))
    async with Client(puppet, on_elicit=nosy) as client:
        clients.append(client)
        await client.call_tool("book")
        assert caught == ["tools/list can't be sent while a request of the server is being served"]
        puppet.by_method["tools/list"] = {"resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private"}
        await client.list_tools()


# ---------------------------------------------------------------- results


async def test_requests_that_fail_before_they_are_sent_take_no_room() -> None:
    puppet = modern(tools_call=done())
    async with Client(puppet, limits=Limits(pending=2)) as client:
        for _ in range(3):
            with pytest.raises(TypeError, match="mapping"):
                await client.request("tools/call", {"name": "x", "_meta": 5})
        assert await client.request("tools/call", {"name": "x"})


async def test_a_result_without_a_type_is_complete() -> None:
    """BASE-16."""
    async with Client(modern(tools_call={"content": []})) as client:
        assert (await client.call_tool("x")).content == []


@pytest.mark.parametrize("kind", ["task", "", "input_required"])
async def test_a_result_of_an_unknown_or_unfitting_type_is_no_valid_answer(kind: str) -> None:
    """BASE-17."""
    puppet = modern(tools_list={"resultType": kind, "tools": []}, tools_call={"resultType": kind or "x", "content": []})
    async with Client(puppet) as client:
        with pytest.raises(InvalidResponse):
            await client.list_tools()
        if kind != "input_required":
            with pytest.raises(InvalidResponse, match="unknown to this client"):
                await client.call_tool("x")


@pytest.mark.parametrize("result", [{"resultType": 7}, {"resultType": "complete", "content": 5}, {"content": [{}]}])
async def test_a_result_that_cannot_be_read_is_no_valid_answer(result: Any) -> None:
    async with Client(modern(tools_call=result)) as client:
        with pytest.raises(InvalidResponse):
            await client.call_tool("x")


async def test_an_error_keeps_its_code_message_and_data() -> None:
    """BASE-08."""
    data: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
    async with Client(modern(tools_call=Error(-32021, "sampling needed", data))) as client:
        with pytest.raises(PeerError) as caught:
            await client.call_tool("x")
    assert (caught.value.code, caught.value.message, caught.value.data) == (-32021, "sampling needed", data)
    assert caught.value.outcome is Outcome.ANSWERED


async def test_a_failed_tool_is_an_exception_with_its_words_unless_wanted_otherwise() -> None:
    """TOOL-22."""
    async with Client(modern(tools_call=done("no tea", isError=True))) as client:
        with pytest.raises(ToolCallError, match="no tea") as caught:
            await client.call_tool("x")
        assert caught.value.result.is_error
        assert isinstance(caught.value, ToolError)
        assert caught.value.outcome is Outcome.ANSWERED
        assert (await client.call_tool("x", raise_on_error=False)).text == "no tea"


# ---------------------------------------------------------------- limits and progress


@in_no_time
async def test_a_call_ends_after_silence_and_the_server_is_told() -> None:
    """CANC-03, CANC-10, LIFE-14."""
    puppet = modern(tools_call=SILENCE)
    async with Client(puppet) as client:
        with pytest.raises(CallTimeout, match=r"60 seconds"):
            await client.call_tool("x")
        with pytest.raises(CallTimeout, match=r"5 seconds"):
            await client.call_tool("x", idle=5)
        await asyncio.sleep(0.1)
    ids = [message["id"] for message in puppet.came if message.get("method") == "tools/call"]
    assert [params["requestId"] for params in puppet.asked("notifications/cancelled")] == ids


@in_no_time
async def test_progress_is_reported_and_renews_the_patience_up_to_the_hard_limit() -> None:
    """PROG-01, REQM-10."""
    told: list[ProgressParams] = []

    def answer(puppet: Puppet, message: dict[str, Any]) -> Any:
        token = message["params"]["_meta"]["progressToken"]

        async def report() -> None:
            for number in range(1, 20):
                await asyncio.sleep(40)
                progress = {"progressToken": token, "progress": number, "total": 19, "message": "on the way"}
                puppet.say({"method": "notifications/progress", "params": progress})

        puppet._start(report())
        return SILENCE

    puppet = modern(tools_call=answer)
    async with Client(puppet) as client:
        with pytest.raises(CallTimeout, match=r"600 seconds"):
            await client.call_tool("x", on_progress=told.append)
        assert [one.progress for one in told] == list(range(1, 15))
        assert (told[0].total, told[0].message) == (19, "on the way")
        await asyncio.sleep(1000)


async def test_calls_that_run_at_once_have_tokens_of_their_own() -> None:
    """PROG-02."""
    puppet = modern(tools_call=SILENCE)
    async with Client(puppet) as client:
        calls = [asyncio.create_task(client.call_tool("x", on_progress=print)) for _ in range(5)]
        await puppet.until(lambda: len(puppet.asked("tools/call")) == len(calls))
    await asyncio.wait(calls)
    assert len({params["_meta"]["progressToken"] for params in puppet.asked("tools/call")}) == len(calls)


async def test_what_progress_callbacks_do_wrong_hurts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def answer(puppet: Puppet, message: dict[str, Any]) -> Any:
        token = message["params"]["_meta"]["progressToken"]
        for progress in (1, "half", None):
            puppet.say({"method": "notifications/progress", "params": {"progressToken": token, "progress": progress}})
        puppet.answer(message, done())
        return SILENCE

    def broken(params: ProgressParams) -> None:
        raise RuntimeError("boom")

    async with Client(modern(tools_call=answer)) as client:
        assert (await client.call_tool("x", on_progress=broken)).text == "done"
    assert "on_progress failed" in caplog.text
    assert "notifications/progress is dropped" in caplog.text


@in_no_time
async def test_the_time_that_answers_take_is_nobodys_fault() -> None:
    """The limits of a call stand still while its questions are answered here."""

    async def slowly(request: ElicitFormParams) -> dict[str, Any]:
        await asyncio.sleep(5000)
        return {"yes": True}

    puppet = modern(tools_call=one_after_the_other(asks("k", state="s"), done()))
    async with Client(puppet, on_elicit=slowly) as client:
        assert (await client.call_tool("x", total=10, idle=10)).text == "done"


async def test_a_cancelled_call_is_cancelled_at_the_server() -> None:
    """CANC-01, CANC-03."""
    puppet = modern(tools_call=SILENCE, tools_list=SILENCE)
    async with Client(puppet) as client:
        task = asyncio.create_task(client.call_tool("x"))
        await puppet.until(lambda: "tools/call" in puppet.methods())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await puppet.until(lambda: "notifications/cancelled" in puppet.methods())
    (cancelled,) = puppet.asked("notifications/cancelled")
    assert cancelled["requestId"] == puppet.came[1]["id"]
    assert len(puppet.asked("notifications/cancelled")) == 1


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_a_task_that_was_cancelled_before_sends_nothing(era: Any, transport: str) -> None:
    """Its clean-up may, once it has been told."""
    server: Server[Any] = Server("s")
    came: list[str] = []

    @server.tool
    async def note(text: str) -> None:
        came.append(text)

    @server.notification("notifications/acme")
    async def noted(ctx: Any, params: Any) -> None:
        came.append("notified")

    async with AsyncExitStack() as stack:
        target: Any = server
        if transport == "http":
            site = await stack.enter_async_context(serving(server))
            target = f"http://127.0.0.1:{site.port}/mcp"
        client = await stack.enter_async_context(Client(target, era=era))

        async def cancelled(send: Callable[[], Awaitable[Any]]) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            try:
                await send()
            except asyncio.CancelledError:
                await client.call_tool("note", {"text": "clean-up"})
                raise

        for send in (lambda: client.call_tool("note", {"text": "call"}), lambda: client.notify("notifications/acme")):
            with pytest.raises(asyncio.CancelledError):
                await asyncio.create_task(cancelled(send))
        await client.call_tool("note", {"text": "last"})
    assert came == ["clean-up", "clean-up", "last"]


@in_no_time
async def test_a_request_that_was_never_sent_is_not_cancelled_at_the_peer() -> None:
    """A question that waits for `notifications/initialized`, and whose handler ends before."""

    async def gate(ctx: Context[Any], call_next: CallNext) -> Any:
        return None if ctx.method == "notifications/initialized" else await call_next(ctx)

    server: Server[Any] = Server("s", middleware=[gate])

    @server.tool
    async def ask(ctx: Context[Any]) -> str:
        async with asyncio.timeout(1):
            return await ctx.elicit("Who?", str)

    async with BareEnd(server, "2025", capabilities={"elicitation": {}}) as end:
        assert (await end.call_tool("ask"))["isError"]
        await asyncio.sleep(100)
        assert end.heard == []


@pytest.mark.parametrize("said", ["banana", "input_required", 5, None])
async def test_in_the_handshake_era_a_result_type_is_a_member_like_any_other(said: Any) -> None:
    """BASE-20: results are open, and no revision of that era gives the name a meaning."""
    puppet = legacy()
    puppet.by_method["acme/table"] = {"resultType": said, "rows": [1]}
    async with Client(puppet) as client:
        assert await client.request("acme/table") == {"resultType": said, "rows": [1]}


async def test_an_async_on_progress_is_called_in_order_before_the_result() -> None:
    def working(puppet: Puppet, message: dict[str, Any]) -> Any:
        for step in range(1, 4):
            token = message["params"]["_meta"]["progressToken"]
            puppet.say({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
        return done()

    seen: list[float] = []

    async def slow(progress: ProgressParams) -> None:
        await asyncio.sleep(0.01)
        seen.append(progress.progress)
        if progress.progress == 2:
            raise ValueError("only logged")

    async with Client(modern(tools_call=working)) as client:
        await client.call_tool("x", on_progress=slow)
    assert seen == [1, 2, 3]


async def test_progress_that_waits_is_bounded_by_its_bytes_and_the_newest_stays() -> None:
    released = asyncio.Event()

    async def working(puppet: Puppet, message: dict[str, Any]) -> None:
        token = message["params"]["_meta"]["progressToken"]
        for step in range(100):
            params = {"progressToken": token, "progress": step, "message": "x" * 100_000}
            puppet.say({"method": "notifications/progress", "params": params})
            await asyncio.sleep(0)
        puppet.say({"id": message["id"], "result": done()})
        released.set()

    working_tasks: list[asyncio.Task[None]] = []

    def begin(puppet: Puppet, message: dict[str, Any]) -> Any:
        working_tasks.append(asyncio.create_task(working(puppet, message)))
        return SILENCE

    seen: list[float] = []

    async def slow(progress: ProgressParams) -> None:
        await released.wait()
        seen.append(progress.progress)

    async with Client(modern(tools_call=begin)) as client:
        await client.call_tool("x", on_progress=slow)
    assert seen[0] == 0
    assert seen[1:] == list(range(90, 100))


async def test_an_async_on_progress_that_cancels_its_call_is_quiet() -> None:
    """Python warns of a coroutine that was made and never awaited."""

    def working(puppet: Puppet, message: dict[str, Any]) -> Any:
        token = message["params"]["_meta"]["progressToken"]
        puppet.say({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
        return SILENCE

    begun: list[ProgressParams] = []

    async def later(progress: ProgressParams) -> None:
        begun.append(progress)

    def give_up(progress: ProgressParams) -> Awaitable[None]:
        calling.cancel()
        return later(progress)

    async with Client(modern(tools_call=working)) as client:
        calling = asyncio.create_task(client.call_tool("x", on_progress=give_up))
        await asyncio.wait([calling])
    assert calling.cancelled()
    gc.collect()
    assert begun == []
