"""The end of a session: nothing runs on, nothing waits on, and nothing can hold it up for longer than its limit."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gemel import ChannelClosed, ConnectionLost, NotSent
from gemel.session import Session
from tests.jumping_clock import in_no_time
from tests.session_ends import Line, Waiting, call_of, is_quiet, nothing, notice_of, serving, turns
from tests.support import Call, Origin, jsonrpc

# ---------------------------------------------------------------- the end of the conversation


async def test_closing_stops_what_runs_and_fails_what_waits_and_twice_is_fine() -> None:
    work, line = Waiting(), Line()
    session = serving(work, line)
    serving_task = asyncio.create_task(session.answer(call_of(session)))
    asking_task = asyncio.create_task(session.request("roots/list"))
    await work.begun.wait()
    await turns()
    session.close("the pipe broke")
    session.close("again")
    assert await serving_task is None
    with pytest.raises(ConnectionLost, match="the pipe broke"):
        await asking_task
    assert is_quiet(session)
    with pytest.raises(NotSent, match="the pipe broke"):
        await session.request("roots/list")
    with pytest.raises(ChannelClosed, match="the pipe broke"):
        await session.notify("notifications/acme")
    assert session.receive(jsonrpc.encode_request(2, "acme/do")) is None
    assert await session.ended() == "the pipe broke"


async def test_a_session_that_has_ended_is_not_kept_until_its_time_limits_are_over() -> None:
    """Clients that come and go would fill the memory for minutes otherwise."""

    async def use_and_close() -> weakref.ref[Session]:
        session = serving(nothing)
        waiting = asyncio.create_task(session.request("roots/list", total=600.0))
        await turns()
        session.close("over")
        await asyncio.wait([waiting])
        assert isinstance(waiting.exception(), ConnectionLost)
        return weakref.ref(session)

    ended = await use_and_close()
    await turns()
    gc.collect()
    assert ended() is None


async def test_closing_stops_the_handlers_of_notifications_too() -> None:
    """Nothing runs on for a conversation that is over."""
    work = Waiting()
    session = serving(work)
    task = asyncio.create_task(session.answer(notice_of(session)))
    await work.begun.wait()
    session.close("over")
    assert await task is None
    assert work.cancelled == 1


async def test_the_end_of_input_fails_what_waits_and_lets_calls_finish() -> None:
    work = Waiting()
    session = serving(work)
    serving_task = asyncio.create_task(session.answer(call_of(session)))
    asking_task = asyncio.create_task(session.request("roots/list"))
    await work.begun.wait()
    await turns()
    serving(nothing).end_input("nobody waits for it")
    told: list[str] = []
    session.on_end_of_input(lambda: told.append("one"))

    def forgotten() -> None:
        told.append("two")

    session.on_end_of_input(forgotten)
    session.forget_end_of_input(forgotten)
    session.end_input("the peer has said all")
    with pytest.raises(ConnectionLost, match="has said all"):
        await asking_task
    assert told == ["one"]
    work.gate.set()
    assert await serving_task is not None


async def test_what_outlasts_its_time_is_answered_with_an_error_and_stopped() -> None:
    """ERR-17."""
    work = Waiting()
    session = serving(work)
    task = asyncio.create_task(session.answer(call_of(session, 7)))
    await work.begun.wait()
    (reply,) = session.stop("the server stops")
    assert reply.id == 7
    assert reply.error is not None
    assert await task is None
    assert work.cancelled == 1
    assert session.stop("again") == []


async def test_the_next_authority_is_told_once_to_whoever_waits_for_it() -> None:
    """It is the token of the latest request that decides what an HTTP session is told."""
    session = serving(nothing)
    first, second, third = (Origin(principal=name) for name in ("first", "second", "third"))
    told: list[Any] = []
    session.authorize(first)
    session.on_authority = lambda: told.append(session.authority)
    session.authorize(second)
    session.authorize(third)
    assert told == [second]
    assert session.authority is third


async def test_whoever_waits_for_the_end_is_told_why() -> None:
    session = serving(nothing)
    waiting = [asyncio.create_task(session.ended()) for _ in range(3)]
    await turns()
    waiting[0].cancel()
    session.close("enough")
    session.close("again")
    assert await asyncio.gather(*waiting[1:]) == ["enough", "enough"]


async def test_clean_up_runs_last_first_and_a_failing_one_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    session = serving(nothing)
    done: list[str] = []

    def step(name: str, failure: BaseException | None = None) -> Callable[[], Awaitable[None]]:
        async def clean() -> None:
            await asyncio.sleep(0)
            done.append(name)
            if failure is not None:
                raise failure

        return clean

    session.on_close(step("first"))
    session.on_close(step("second", RuntimeError("boom")))
    session.on_close(step("third", asyncio.CancelledError()))
    session.on_close(step("fourth", SystemExit(1)))
    session.on_close(step("last"))
    assert session.close("over") is True
    await session.wait_closed()
    assert done == ["last", "fourth", "third", "second", "first"]
    assert "a clean-up callback failed" in caplog.text
    await session.wait_closed()
    assert len(done) == 5


async def test_clean_up_runs_while_the_driver_is_being_cancelled() -> None:
    session = serving(nothing)
    done = asyncio.Event()

    async def clean() -> None:
        await turns()
        done.set()

    async def drive() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            session.close("cancelled")
            await session.wait_closed()

    session.on_close(clean)
    driver = asyncio.create_task(drive())
    await turns()
    driver.cancel()
    await turns(2)
    driver.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driver
    assert done.is_set()


async def test_who_waits_for_the_clean_up_can_be_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    """Once it has run."""
    session, gate = serving(nothing), asyncio.Event()

    async def clean() -> None:
        await gate.wait()

    session.on_close(clean)
    session.close("over")
    finishing = asyncio.create_task(session.wait_closed())
    await turns()
    finishing.cancel()
    await turns()
    assert not finishing.done()
    gate.set()
    await asyncio.wait([finishing])
    assert finishing.cancelled()
    gc.collect()
    assert caplog.text == ""


@pytest.mark.parametrize("stubborn", [False, True])
@in_no_time
async def test_a_hung_clean_up_is_abandoned_with_a_warning(stubborn: bool, caplog: pytest.LogCaptureFixture) -> None:
    session = serving(nothing)
    gate = asyncio.Event()

    async def hang() -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                if not stubborn:
                    raise

    abandoned: list[str] = []

    async def never() -> None:
        abandoned.append("ran")

    session.on_close(never)
    session.on_close(hang)
    session.close("over")
    start = session.loop.time()
    with caplog.at_level(logging.WARNING, "gemel"):
        await session.wait_closed()
    assert session.loop.time() - start == pytest.approx(5)
    assert "5 seconds" in caplog.text
    gate.set()
    await turns()
    assert abandoned == []
    assert "failed" not in caplog.text


@in_no_time
async def test_a_handler_that_will_not_stop_is_abandoned_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    work = Waiting(stubborn=True)
    session = serving(work)
    task = asyncio.create_task(session.answer(call_of(session)))
    await work.begun.wait()
    assert session.close("over") is True
    start = session.loop.time()
    with caplog.at_level(logging.WARNING, "gemel"):
        await session.wait_closed()
    assert session.loop.time() - start == pytest.approx(5)
    assert "1 handlers did not stop within 5 seconds" in caplog.text
    await session.wait_closed()
    assert session.loop.time() - start == pytest.approx(5)
    work.gate.set()
    assert await task is None


async def test_a_handler_that_ends_its_own_conversation_does_not_wait_for_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cleaned, went_on = asyncio.Event(), asyncio.Event()

    async def clean() -> None:
        cleaned.set()

    async def work(session: Session, call: Call) -> Any:
        session.on_close(clean)
        session.close("by the handler")
        await session.wait_closed()
        went_on.set()
        return {}

    session = serving(work)
    with caplog.at_level(logging.WARNING, "gemel"):
        assert await session.answer(call_of(session)) is None
    assert cleaned.is_set()
    assert went_on.is_set()
    assert "abandoned" not in caplog.text


def test_a_loop_that_ends_before_something_is_sent_is_quiet() -> None:
    """Python warns of a coroutine that was made and never awaited."""

    async def begin() -> None:
        session = serving(nothing)
        session.start_sending(session.notify, "notifications/acme")

    asyncio.run(begin())
    gc.collect()
