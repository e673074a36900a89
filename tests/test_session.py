"""Sessions serve: whatever a handler or the peer does, a call ends once, with one reply or none."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gemel import InvalidParams
from gemel.protocol.connection import Connection
from gemel.protocol.states import CallState
from gemel.session import Session
from tests.fuzz.ends import description_of, shake_hands
from tests.session_ends import LIMITS, Line, Waiting, call_of, is_quiet, nothing, notice_of, serving, turns
from tests.support import Batch, Call, jsonrpc

# ---------------------------------------------------------------- every end of a handler is one reply


class Strange(BaseException):
    """What no handler should raise."""


def endings() -> dict[str, Callable[[], Any]]:
    def throw(exc: BaseException) -> Callable[[], Any]:
        def raising() -> Any:
            raise exc

        return raising

    def deep() -> Any:
        return deep()

    loop: dict[str, Any] = {}
    loop["self"] = loop
    return {
        "an object": dict,
        "nothing": lambda: None,
        "no JSON": object,
        "a circle": lambda: loop,
        "a bad key": lambda: {object(): 1},
        "bad text": lambda: {"x": "\ud800"},
        "an error of the protocol": throw(InvalidParams("no")),
        "an error with data that JSON can't say": throw(InvalidParams("no", object())),
        "an exception": throw(RuntimeError("boom")),
        "the end of a generator": throw(StopIteration()),
        "too deep": deep,
        "sys.exit": throw(SystemExit(1)),
        "an interrupt that nobody typed": throw(KeyboardInterrupt()),
        "the end of another generator": throw(GeneratorExit()),
        "a cancellation of its own": throw(asyncio.CancelledError()),
        "a timeout": throw(TimeoutError()),
        "a group": throw(ExceptionGroup("g", [ValueError()])),
        "a group of the other kind": throw(BaseExceptionGroup("g", [Strange()])),
        "something strange": throw(Strange()),
    }


@pytest.mark.foreign_words("a result that is none")
@pytest.mark.parametrize("how", endings())
async def test_however_a_handler_ends_there_is_one_reply(how: str) -> None:
    async def work(session: Session, call: Call) -> Any:
        await asyncio.sleep(0)
        return endings()[how]()

    session = serving(work)
    reply = await session.answer(call_of(session, "x"))
    assert reply is not None
    assert reply.id == "x"
    assert ("error" in json.loads(reply.data)) == (how not in ("an object", "nothing", "bad text"))
    assert is_quiet(session)


async def test_a_handler_that_fails_before_it_begins_is_answered_too() -> None:
    def work(session: Session, call: Call) -> Awaitable[Any]:
        raise RuntimeError("at once")

    session = serving(work)
    reply = await session.answer(call_of(session))
    assert reply is not None
    assert reply.error is not None
    assert reply.error.code == -32603


def test_ctrl_c_where_nobody_took_the_signal_goes_through_the_handler() -> None:
    """Somebody wants the process to end; what runs in it can't keep it, and owes nothing any more."""

    async def work(session: Session, call: Call) -> Any:
        signal.raise_signal(signal.SIGINT)

    async def main() -> None:
        opened.append(serving(work))
        await opened[0].answer(call_of(opened[0]))

    opened: list[Session] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(main())
    finally:
        signal.signal(signal.SIGINT, before)
        loop.close()
    assert is_quiet(opened[0])


async def test_a_task_that_is_thrown_away_answers_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A GeneratorExit that comes from outside is the end of the task, not the handler's doing."""
    work = Waiting()
    session = serving(work)
    call = call_of(session)
    served = session.answer(call)

    async def begin() -> None:
        served.send(None)

    await asyncio.create_task(begin())
    assert work.begun.is_set()
    served.close()
    assert is_quiet(session)
    assert call.state is CallState.CANCELLED
    assert caplog.text == ""


async def test_a_failing_notification_is_logged_and_answered_by_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """BASE-10."""
    for failure in (RuntimeError("boom"), InvalidParams("boom"), SystemExit(1), KeyboardInterrupt(), Strange("boom")):

        async def work(session: Session, call: Call, failure: BaseException = failure) -> Any:
            raise failure

        session = serving(work)
        caplog.clear()
        assert await session.answer(notice_of(session)) is None
        assert "notifications/acme failed" in caplog.text


async def test_a_call_that_is_over_is_not_begun() -> None:
    """CANC-06."""
    begun: list[Call] = []

    async def work(session: Session, call: Call) -> Any:
        begun.append(call)

    session = serving(work)
    call = call_of(session)
    session.cancel(call, "gone")
    assert await session.answer(call) is None
    assert not begun


async def test_a_batch_is_answered_in_one_piece() -> None:
    """BASE-11."""

    async def work(session: Session, call: Call) -> Any:
        if call.id == 2:
            raise InvalidParams("no")
        if call.id == 3 or call.method == "notifications/leave":
            asyncio.current_task().cancel()  # type: ignore[union-attr]  # this test runs in a task
            await asyncio.sleep(0)
        return {"served": call.id}

    session = Session(Connection(description_of(), limits=LIMITS), Line(), work)
    shake_hands(session.connection, "2025-03-26")
    items = [jsonrpc.encode_request(number, "acme/do") for number in (1, 2, 3)]
    told = [jsonrpc.encode_notification(f"notifications/{name}") for name in ("acme", "leave")]
    got = session.receive(b"[" + b",".join([*items, *told]) + b"]")
    assert isinstance(got, Batch)
    reply = await session.answer(got)
    assert reply is not None
    first, second, third = json.loads(reply.data)
    assert (first["id"], first["result"]) == (1, {"served": 1})
    assert (second["id"], second["error"]["code"]) == (2, -32602)
    assert third["id"] == 3
    assert "the task that served it was cancelled" in third["error"]["message"]
    only = session.receive(b"[" + jsonrpc.encode_notification("notifications/acme") + b"]")
    assert isinstance(only, Batch)
    assert await session.answer(only) is None


# ---------------------------------------------------------------- cancelling what is served


async def test_a_batch_is_cancelled_as_a_whole() -> None:
    work = Waiting()
    session = Session(Connection(description_of(), limits=LIMITS), Line(), work)
    shake_hands(session.connection, "2025-03-26")
    items = [jsonrpc.encode_request(number, "acme/do") for number in (1, 2)]
    batch = session.receive(b"[" + b",".join(items) + b"]")
    assert isinstance(batch, Batch)
    serving = asyncio.create_task(session.answer(batch))
    await work.begun.wait()
    await turns()
    session.cancel(batch, "the client left")
    assert await serving is None
    assert work.cancelled == 2


@pytest.mark.parametrize("one_shot", [False, True])
async def test_a_batch_that_is_interrupted_before_its_calls_begin_leaves_nothing_to_wait_for(one_shot: bool) -> None:
    work = Waiting()
    session = Session(Connection(description_of(), limits=LIMITS), Line(), work)
    shake_hands(session.connection, "2025-03-26")
    session.connection.one_shot = one_shot
    batch = session.receive(b"[" + jsonrpc.encode_request(1, "acme/do") + b"]")
    assert isinstance(batch, Batch)
    serving = asyncio.create_task(session.answer(batch))
    await asyncio.sleep(0)
    serving.cancel()
    await asyncio.wait([serving])
    assert not work.begun.is_set()
    await turns()
    assert session.close("over") is False


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_cancelled_call_has_no_reply_and_its_task_goes_on(stubborn: bool) -> None:
    """CANC-06: even if it is cancelled twice, and if the handler answers all the same."""
    work = Waiting(stubborn=stubborn)
    session = serving(work)
    call = call_of(session)
    after: list[Any] = []

    async def serve() -> None:
        after.append(await session.answer(call))
        await asyncio.sleep(0)
        current = asyncio.current_task()
        assert current is not None
        after.append(current.cancelling())

    task = asyncio.create_task(serve())
    await work.begun.wait()
    session.cancel(call, "gone")
    session.cancel(call, "gone")
    await turns()
    work.gate.set()
    await task
    assert after == [None, 0]
    assert work.cancelled == 1
    assert is_quiet(session)


async def test_a_call_can_be_cancelled_from_inside_its_own_handler() -> None:
    """CANC-06."""

    async def work(session: Session, call: Call) -> Any:
        session.cancel(call, "from within")
        await asyncio.sleep(0)
        raise AssertionError("it went on")

    session = serving(work)
    assert await session.answer(call_of(session)) is None


async def test_a_handler_that_cancels_its_own_call_and_ends_at_once_leaves_its_task_alone() -> None:
    async def work(session: Session, call: Call) -> Any:
        session.cancel(call, "from within")
        return {}

    session = serving(work)
    assert await session.answer(call_of(session)) is None
    await asyncio.sleep(0)


async def test_a_cancellation_of_the_serving_task_is_not_swallowed() -> None:
    """Nor repeated, so that the task can clean up."""
    work, cleaned = Waiting(), asyncio.Event()
    session = serving(work)
    call = call_of(session)

    async def serve() -> None:
        try:
            await session.answer(call)
        except asyncio.CancelledError:
            await turns()
            cleaned.set()
            raise

    task = asyncio.create_task(serve())
    await work.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned.is_set()
    assert call.state is CallState.CANCELLED
    assert is_quiet(session)


async def test_a_cancellation_of_the_serving_task_that_a_handler_survives_stays_the_tasks() -> None:
    """Whoever has cancelled it, such as a timeout, counts on that."""
    work = Waiting(stubborn=True)
    session = serving(work)

    async def serve() -> tuple[Any, int]:
        reply, task = await session.answer(call_of(session)), asyncio.current_task()
        assert task is not None
        return reply, task.cancelling()

    task = asyncio.create_task(serve())
    await work.begun.wait()
    task.cancel()
    await turns()
    work.gate.set()
    reply, cancelling = await task
    assert reply is not None
    assert cancelling == 1


async def test_a_cancellation_that_comes_with_the_answer_changes_nothing() -> None:
    """CANC-07, CANC-08."""
    session = serving(nothing)
    call = call_of(session)
    assert await session.answer(call) is not None
    session.cancel(call, "too late")
    assert call.state is CallState.ANSWERED
