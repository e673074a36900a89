"""The time limits of a request: silence, the whole, progress, and questions that are answered meanwhile."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from gemel import CallTimeout, Client, Context, DefinitionError, ElicitFormParams, Limits, Outcome, Server, timeouts
from gemel.timeouts import wait_shared
from gemel.transports.memory import MemoryChannel
from tests.client.puppet import SILENCE, legacy
from tests.jumping_clock import JumpingLoop, in_no_time
from tests.support import EraName

FORM = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {"yes": {"type": "boolean"}}}}


def made() -> Server:
    server = Server("slow")

    @server.tool
    async def steps(ctx: Context, count: int, pause: float) -> str:
        for number in range(count):
            await asyncio.sleep(pause)
            await ctx.report_progress(number + 1, count)
        return "done"

    @server.tool
    async def name(ctx: Context, pause: float = 0) -> str:
        found = await ctx.elicit("What is your name?", str)
        await asyncio.sleep(pause)
        return found

    return server


@pytest.mark.parametrize("era", ["2025", "2026"])
@in_no_time
async def test_silence_ends_a_call_and_its_outcome_is_unknown(era: EraName) -> None:
    """LIFE-14."""
    async with Client(made(), era=era) as client:
        with pytest.raises(CallTimeout, match="tools/call got no answer within 0") as caught:
            await client.call_tool("steps", {"count": 1, "pause": 30}, idle=0.05)
        assert caught.value.outcome is Outcome.UNKNOWN
        assert (await client.call_tool("steps", {"count": 1, "pause": 0})).text == "done"


@pytest.mark.parametrize("era", ["2025", "2026"])
@in_no_time
async def test_progress_is_no_silence(era: EraName) -> None:
    async with Client(made(), era=era) as client:
        result = await client.call_tool("steps", {"count": 8, "pause": 0.05}, idle=0.25)
    assert result.text == "done"


@pytest.mark.parametrize("era", ["2025", "2026"])
@in_no_time
async def test_the_whole_ends_a_call_whatever_its_progress(era: EraName) -> None:
    async with Client(made(), era=era) as client:
        with pytest.raises(CallTimeout):
            await client.call_tool("steps", {"count": 100, "pause": 0.02}, idle=10, total=0.2)


@pytest.mark.parametrize("era", ["2025", "2026"])
@in_no_time
async def test_no_time_passes_while_a_question_is_being_answered(era: EraName) -> None:
    """A user who thinks for longer than the limit breaks no call: it is the server who waits."""

    async def think(form: ElicitFormParams) -> dict[str, str]:
        await asyncio.sleep(0.4)
        return {"value": "Ada"}

    async with Client(made(), era=era, on_elicit=think) as client:
        assert (await client.call_tool("name", idle=0.1, total=0.2)).text == "Ada"


@in_no_time
async def test_a_caller_who_is_cancelled_is_not_told_of_a_time_limit() -> None:
    async with Client(made()) as client:
        calling = asyncio.create_task(client.call_tool("steps", {"count": 1, "pause": 30}, idle=30))
        await asyncio.sleep(0.05)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling


@in_no_time
async def test_a_time_limit_of_the_callers_own_is_told_as_such() -> None:
    async with Client(made()) as client:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.05):
                await client.call_tool("steps", {"count": 1, "pause": 30}, idle=30)
        assert not isinstance(caught.value, CallTimeout)


@pytest.mark.parametrize("era", ["2025", "2026"])
@in_no_time
async def test_after_a_question_the_server_has_the_usual_time_anew(era: EraName) -> None:
    """Even if the answer came shortly before the limit."""

    async def think(form: ElicitFormParams) -> dict[str, str]:
        await asyncio.sleep(0.9)
        return {"value": "Ada"}

    async with Client(made(), era=era, on_elicit=think) as client:
        assert (await client.call_tool("name", {"pause": 0.5}, idle=1)).text == "Ada"
        with pytest.raises(CallTimeout):
            await client.call_tool("name", {"pause": 1.5}, idle=1)


@in_no_time
async def test_calls_with_limits_of_their_own_end_each_at_its_own() -> None:
    """A shorter limit than those that run already, a longer one, and one that is moved by progress."""
    clock = asyncio.get_running_loop().time
    ends: dict[str, float] = {}

    async def call(client: Client, name: str, pause: float, idle: float) -> None:
        begin = clock()
        with pytest.raises(CallTimeout):
            await client.call_tool("steps", {"count": 9, "pause": pause}, idle=idle, total=60)
        ends[name] = clock() - begin

    async with Client(made()) as client:
        calls = {"long": (100, 50), "short": (100, 1), "moved": (9, 10), "quick": (100, 0.5)}
        async with asyncio.TaskGroup() as group:
            for name, (pause, idle) in calls.items():
                group.create_task(call(client, name, pause, idle))
                await asyncio.sleep(0.1)
            await client.call_tool("steps", {"count": 0, "pause": 0})
    assert ends == pytest.approx({"long": 50, "short": 1, "quick": 0.5, "moved": 60}, abs=0.02)


@in_no_time
async def test_thousands_of_calls_are_late_at_once() -> None:
    """Each is told so, none before its time."""
    clock = asyncio.get_running_loop().time

    async def call(client: Client, idle: float) -> float:
        begin = clock()
        with pytest.raises(CallTimeout):
            await client.call_tool("steps", {"count": 1, "pause": 100}, idle=idle)
        return clock() - begin - idle

    async with Client(made()) as client:
        late = await asyncio.gather(*(call(client, 10 + number / 100_000) for number in range(1000)))
    assert min(late) >= 0
    assert max(late) <= 0.02


@pytest.mark.parametrize(("method", "params"), [("ping", {}), ("roots/list", {}), ("no/such", {})])
@in_no_time
async def test_a_server_that_keeps_asking_keeps_no_call_open_for_ever(method: str, params: dict[str, str]) -> None:
    """Only the time that answers take doesn't count, and these take none."""
    puppet = legacy(tools_call=SILENCE)
    clock = asyncio.get_running_loop().time

    async def keep_asking() -> None:
        for number in range(1000):
            puppet.say({"id": f"{number}", "method": method, "params": params})
            await asyncio.sleep(0.1)

    async with Client(puppet, on_roots=list) as client:
        asking = asyncio.create_task(keep_asking())
        begin = clock()
        with pytest.raises(CallTimeout, match="within 5 seconds"):
            await client.call_tool("x", idle=2, total=5)
        assert clock() - begin == pytest.approx(5, abs=0.2)
        asking.cancel()


@in_no_time
async def test_a_server_with_always_one_more_question_keeps_no_call_open_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next question comes while the one before is being answered."""
    monkeypatch.setattr(timeouts, "MOST_PAUSES", 100)
    puppet = legacy(tools_call=SILENCE)
    asked = 0

    async def keep_asking() -> None:
        nonlocal asked
        while True:
            asked += 1
            puppet.say({"id": f"{asked}", "method": "elicitation/create", "params": FORM})
            await asyncio.sleep(0.1)

    async def answer(form: ElicitFormParams) -> None:
        await asyncio.sleep(0.25)

    async with Client(puppet, on_elicit=answer) as client:
        asking = asyncio.create_task(keep_asking())
        async with asyncio.timeout(60):
            with pytest.raises(CallTimeout):
                await client.call_tool("x", idle=2, total=5)
        assert asked > 100
        asking.cancel()


@pytest.mark.parametrize("limit", [0.001, 0.25])
@in_no_time
async def test_a_limit_that_was_passed_is_told_as_it_was_set(limit: float) -> None:
    async with Client(made()) as client:
        with pytest.raises(CallTimeout, match=f"within {limit:g} seconds"):
            await client.call_tool("steps", {"count": 1, "pause": 30}, total=limit)


@pytest.mark.parametrize("limit", ["idle", "total"])
@pytest.mark.parametrize("wrong", ["5", True, -1, float("nan"), [1]])
async def test_what_are_no_seconds_is_told_and_nothing_is_sent(limit: str, wrong: Any) -> None:
    """Nor is a request left over that nobody waits for."""
    puppet = legacy(tools_call=SILENCE)
    async with Client(puppet) as client:
        with pytest.raises(DefinitionError, match=rf"{limit}=.* is not possible: use seconds, 0 or more, or None"):
            await client.call_tool("x", **{limit: wrong})
        session = client.session
        assert session is not None
        assert session.connection.outgoing == {}
    assert "tools/call" not in puppet.methods()


@in_no_time
async def test_time_in_which_a_handler_keeps_the_loop_busy_counts() -> None:
    """Here it is that before the first wait, in the turn in which the call was sent."""
    server, loop = made(), asyncio.get_running_loop()
    assert isinstance(loop, JumpingLoop)

    @server.tool
    async def busy() -> None:
        loop.skip(4)
        await asyncio.sleep(30)

    async with Client(server) as client:
        begin = loop.time()
        with pytest.raises(CallTimeout, match="within 5 seconds"):
            await client.call_tool("busy", total=5)
        assert loop.time() - begin == pytest.approx(5, abs=0.02)


@in_no_time
async def test_a_call_that_waits_to_be_sent_is_late_at_its_limit() -> None:
    """The server in the same process takes nothing, and what waits for it is too much already."""
    clock = asyncio.get_running_loop().time
    async with Client(made(), limits=Limits(stream_bytes=10, stream_wait=60)) as client:
        session = client.session
        assert session is not None
        assert isinstance(session.channel, MemoryChannel)
        session.channel._peer.pause_reading()
        first = asyncio.create_task(client.call_tool("steps", {"count": 0, "pause": 0}))
        await asyncio.sleep(0)
        begin = clock()
        with pytest.raises(CallTimeout, match="within 5 seconds"):
            await client.call_tool("steps", {"count": 0, "pause": 0}, total=5)
        assert clock() - begin == pytest.approx(5, abs=0.02)
        session.channel._peer.resume_reading()
        assert (await first).text == "done"


@pytest.mark.parametrize("many", [float("inf"), 1e300])
async def test_more_seconds_than_a_clock_can_count_are_no_end(many: Any) -> None:
    async with Client(made()) as client:
        assert (await client.call_tool("steps", {"count": 1, "pause": 0}, idle=many, total=many)).text == "done"


async def test_who_gives_up_waiting_with_others_ends_nothing_and_leaves_nothing_in_the_log() -> None:
    """What fails afterwards is told to those who still wait, and to nobody else."""
    errors: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: errors.append(context))
    for others in (0, 1):
        future: asyncio.Future[None] = loop.create_future()
        impatient, *patient = [asyncio.create_task(wait_shared(future)) for _ in range(1 + others)]
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.wait([impatient])
        future.set_exception(ValueError("it failed"))
        assert [repr(one) for one in await asyncio.gather(*patient, return_exceptions=True)] == others * [
            "ValueError('it failed')"
        ]
        assert impatient.cancelled()
        del future, impatient, patient
        gc.collect()
    assert errors == []
