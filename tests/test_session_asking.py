"""Sessions ask: an answer, an error, silence, a broken channel, a change of mind; each ends the request, once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gemel import CallTimeout, ChannelClosed, ConnectionLost, GemelError, InvalidParams, NotSent, PeerError
from gemel.protocol.connection import Connection
from gemel.session import Session
from tests.fuzz.ends import hello
from tests.jumping_clock import in_no_time
from tests.session_ends import LIMITS, Line, Waiting, asking, call_of, is_quiet, nothing, notice_of, serving, turns
from tests.support import Call, Outgoing, jsonrpc

pytestmark = pytest.mark.foreign_words("sessions alone: what they ask, and with which params, is the tests' own")


async def begun(session: Session, method: str = "roots/list", **options: Any) -> asyncio.Task[Any]:
    """A request on its way."""
    task = asyncio.create_task(session.request(method, {"a": 1}, **options))
    await turns()
    return task


def answers(session: Session, request_id: Any = 1, **result: Any) -> None:
    assert session.receive(jsonrpc.encode_response(request_id, result)) is None


async def test_a_request_gets_its_result() -> None:
    line = Line()
    session = asking(line)
    task = await begun(session)
    assert line.sent == [{"jsonrpc": "2.0", "id": 1, "method": "roots/list", "params": {"a": 1}}]
    answers(session, roots=[])
    assert bytes(await task) == b'{"roots":[]}'
    assert is_quiet(session)


async def test_answers_in_any_order_find_their_requests() -> None:
    session = asking(Line())
    tasks = [await begun(session) for _ in range(3)]
    for request_id in (2, 3, 1):
        answers(session, request_id, number=request_id)
    assert [json.loads(bytes(await task))["number"] for task in tasks] == [1, 2, 3]


@pytest.mark.parametrize("failure", [ChannelClosed("too late"), ConnectionLost("too late")])
async def test_an_answer_before_the_request_has_left_is_an_answer(failure: Exception) -> None:
    """A channel may feed the answer before `send` returns."""
    line = Line()
    session = asking(line)
    line.open.clear()
    task = await begun(session)
    answers(session, early=True)
    line.failure = failure
    line.open.set()
    assert bytes(await task) == b'{"early":true}'


async def test_an_error_of_the_peer_is_raised_with_its_code() -> None:
    """BASE-08."""
    session = asking(Line())
    task = await begun(session)
    session.receive(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no","data":[1]}}')
    with pytest.raises(PeerError) as caught:
        await task
    assert (caught.value.code, caught.value.message, caught.value.data) == (-32601, "no", [1])


async def test_a_request_that_waits_outlives_the_freeing_of_room() -> None:
    session = asking(Line())
    task = await begun(session)
    session.trim()
    answers(session, kept=True)
    assert bytes(await task) == b'{"kept":true}'


async def test_a_late_or_second_answer_is_ignored() -> None:
    session = asking(Line())
    task = await begun(session)
    answers(session, first=True)
    answers(session, second=True)
    answers(session, "1", other=True)
    assert bytes(await task) == b'{"first":true}'
    assert is_quiet(session)


async def test_a_request_that_never_left_says_so() -> None:
    line = Line()
    session = asking(line)
    line.failure = ChannelClosed("the pipe is broken")
    with pytest.raises(NotSent, match="the pipe is broken"):
        await session.request("roots/list")
    assert is_quiet(session)


@pytest.mark.parametrize("failure", [ConnectionLost("half of it left"), OSError("no route")])
async def test_a_channel_that_fails_in_any_way_ends_the_request(failure: Exception) -> None:
    """No hang."""
    line = Line()
    session = asking(line)
    line.failure = failure
    with pytest.raises(type(failure)):
        await session.request("roots/list")
    assert is_quiet(session)


async def test_params_that_json_cannot_say_are_an_error_here_and_nothing_is_sent() -> None:
    line = Line()
    session = asking(line)
    with pytest.raises(GemelError, match="roots/list can't be written as JSON"):
        await session.request("roots/list", {"x": object()})
    with pytest.raises(GemelError, match="notifications/acme can't be written as JSON"):
        await session.notify("notifications/acme", {"x": object()})
    assert line.sent == []
    assert is_quiet(session)


async def test_too_many_open_requests_are_refused_here() -> None:
    session = asking(Line())
    tasks = [await begun(session) for _ in range(LIMITS.pending)]
    with pytest.raises(NotSent, match="3 requests wait"):
        await session.request("roots/list")
    session.close("over")
    for task in tasks:
        with pytest.raises(ConnectionLost):
            await task


async def test_a_close_before_the_request_has_left_ends_it() -> None:
    line = Line()
    session = asking(line)
    line.open.clear()
    task = await begun(session)
    session.close("gone")
    line.failure = ChannelClosed("gone")
    line.open.set()
    with pytest.raises(ConnectionLost, match="gone"):
        await task


# ---------------------------------------------------------------- losing patience


async def test_giving_up_tells_the_peer_once() -> None:
    """CANC-01, CANC-03, CANC-08."""
    line = Line()
    session = asking(line)
    task = await begun(session)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await turns()
    assert line.notices() == [{"requestId": 1, "reason": "no longer wanted"}]
    answers(session, late=True)
    assert is_quiet(session)


async def test_giving_up_what_is_answered_already_tells_nobody() -> None:
    """CANC-02."""
    line = Line()
    session = asking(line)
    task = await begun(session)
    answers(session)
    task.cancel()
    await asyncio.wait([task])
    await turns()
    assert line.notices() == []


async def test_where_the_channel_tells_by_itself_there_is_no_notice() -> None:
    """CANC-03: a stateless request over HTTP is cancelled by closing its stream."""
    line = Line("post")
    session = Session(Connection(None, limits=LIMITS), line, nothing)
    task = await begun(session)
    task.cancel()
    await asyncio.wait([task])
    await turns()
    assert line.notices() == []


async def test_initialize_is_never_cancelled() -> None:
    """LIFE-13."""
    line = Line()
    session = Session(Connection(None, limits=LIMITS), line, nothing)
    task = await begun(session, "initialize")
    task.cancel()
    await asyncio.wait([task])
    await turns()
    assert line.notices() == []


async def test_a_notice_that_cannot_leave_hurts_nobody() -> None:
    line = Line()
    session = asking(line)
    task = await begun(session)
    line.failure = ChannelClosed("broken")
    task.cancel()
    await asyncio.wait([task])
    await turns()
    assert is_quiet(session)


@in_no_time
async def test_a_notice_that_is_never_taken_is_given_up() -> None:
    line = Line()
    session = asking(line)
    task = await begun(session)
    line.open.clear()
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(5.1)
    assert session.close("over") is False, "something is left to be done"


@in_no_time
async def test_the_end_waits_for_notices_that_are_being_sent() -> None:
    line = Line()
    session = asking(line)
    task = await begun(session)
    line.open.clear()
    task.cancel()
    await asyncio.wait([task])
    assert session.close("over") is True
    finishing = asyncio.create_task(session.wait_closed())
    await turns()
    assert not finishing.done()
    line.open.set()
    await finishing
    assert line.notices() == [{"requestId": 1, "reason": "no longer wanted"}]


async def test_the_end_waits_for_everything_that_is_being_sent(caplog: pytest.LogCaptureFixture) -> None:
    session, gate = serving(nothing), asyncio.Event()

    async def slow() -> None:
        await gate.wait()

    async def fast() -> None: ...

    session.start_sending(slow)
    session.start_sending(fast)
    await turns()
    assert session.close("over") is True
    finishing = asyncio.create_task(session.wait_closed())
    await turns()
    assert not finishing.done()
    gate.set()
    await finishing
    assert caplog.text == ""


@in_no_time
async def test_leaving_waits_a_moment_for_the_peer_to_be_told() -> None:
    line = Line()
    session = asking(line)
    tasks = [await begun(session) for _ in range(2)]
    await session.cancel_requests("bye")
    assert session.loop.time() == 0
    assert line.notices() == [{"requestId": 1, "reason": "bye"}, {"requestId": 2, "reason": "bye"}]
    line.open.clear()
    tasks.append(asyncio.create_task(session.request("roots/list")))
    await turns()
    await session.cancel_requests("bye")
    assert 0 < session.loop.time() < 1
    line.open.set()
    await turns()
    for task in tasks:
        with pytest.raises(ConnectionLost, match="bye"):
            await task


@pytest.mark.parametrize(("idle", "total"), [(60.0, None), (None, 60.0), (600.0, 60.0)])
@in_no_time
async def test_silence_ends_a_request_and_the_peer_is_told(idle: float | None, total: float | None) -> None:
    """LIFE-14, CANC-10."""
    line = Line()
    session = asking(line)
    with pytest.raises(CallTimeout, match=r"roots/list got no answer within 60 seconds"):
        await session.request("roots/list", idle=idle, total=total)
    await turns()
    assert line.notices() == [{"requestId": 1, "reason": "timeout"}]
    assert is_quiet(session)


@in_no_time
async def test_progress_renews_the_patience_but_not_the_hard_limit() -> None:
    """CANC-10."""
    session = asking(Line())
    told: list[Any] = []
    task = await begun(session, idle=10.0, total=35.0, on_progress=told.append)
    while not task.done():
        await asyncio.wait([task], timeout=6)
        session.receive(jsonrpc.encode_notification("notifications/progress", {"progressToken": 1, "progress": 1}))
    with pytest.raises(CallTimeout, match=r"35 seconds"):
        await task
    assert len(told) == 5


async def test_progress_goes_to_its_own_request() -> None:
    session = asking(Line())
    told: dict[int, list[Any]] = {1: [], 2: []}
    tasks = [await begun(session, on_progress=told[number].append) for number in told]
    for token in (2, "x", 7, 2):
        session.receive(jsonrpc.encode_notification("notifications/progress", {"progressToken": token, "progress": 1}))
    assert (len(told[1]), len(told[2])) == (0, 2)
    for number in told:
        answers(session, number)
    await asyncio.gather(*tasks)
    session.receive(jsonrpc.encode_notification("notifications/progress", {"progressToken": 2, "progress": 2}))
    assert len(told[2]) == 2


@in_no_time
async def test_a_timeout_around_a_request_stays_the_callers() -> None:
    """The limit of the caller's own is no CallTimeout."""
    session = asking(Line())
    with pytest.raises(TimeoutError) as caught:
        await asyncio.wait_for(session.request("roots/list", idle=60.0), 5)
    assert not isinstance(caught.value, CallTimeout)
    await turns()


async def test_nothing_can_be_asked_while_initialize_is_being_answered() -> None:
    """The client couldn't answer; a notification is fine."""
    line = Line()
    asked: list[str] = []

    async def work(session: Session, call: Call) -> Any:
        with pytest.raises(GemelError, match="while initialize is being answered"):
            await session.request("roots/list")
        await session.notify("notifications/message", {"level": "info", "data": 1})
        asked.append(call.method)
        raise InvalidParams("vetoed")

    session = serving(work, line, shaken=False)
    got = session.receive(jsonrpc.encode_request(1, "initialize", hello()))
    assert isinstance(got, Call)
    assert await session.answer(got) is not None
    assert asked == ["initialize"]
    assert [sent["method"] for sent in line.sent] == ["notifications/message"]


async def test_nothing_can_be_asked_before_the_handshake() -> None:
    """LIFE-09."""
    session = serving(nothing, shaken=False)
    with pytest.raises(GemelError, match="did not shake hands"):
        await session.request("roots/list")


async def negotiated(line: Line) -> Session:
    """A server's session whose client has not sent `notifications/initialized` yet."""
    session = serving(nothing, line, shaken=False)
    got = session.receive(jsonrpc.encode_request(1, "initialize", hello()))
    assert isinstance(got, Call)
    session.connection.handshake.move("answered")
    return session


async def test_a_ping_does_not_wait_for_the_end_of_the_handshake() -> None:
    """LIFE-09."""
    line = Line()
    session = await negotiated(line)
    task = await begun(session, "ping")
    assert [sent["method"] for sent in line.sent] == ["ping"]
    answers(session)
    await task


@in_no_time
async def test_all_requests_that_wait_for_the_handshake_are_sent_at_its_end() -> None:
    """LIFE-09."""
    line = Line()
    session = await negotiated(line)
    tasks = [await begun(session) for _ in range(2)]
    assert line.sent == []
    begin = session.loop.time()
    session.connection.handshake.move("initialized")
    await turns()
    assert [sent["id"] for sent in line.sent] == [1, 2]
    assert session.loop.time() == begin
    for number, task in enumerate(tasks, 1):
        answers(session, number)
        await task


@in_no_time
async def test_a_session_that_ends_sends_no_request_that_waits_for_the_handshake() -> None:
    line = Line()
    session = await negotiated(line)
    task = await begun(session)
    begin = session.loop.time()
    session.close("the client left")
    with pytest.raises((ConnectionLost, NotSent)):
        await task
    assert session.loop.time() == begin
    assert line.sent == []


@in_no_time
async def test_what_a_server_serves_does_not_stop_the_clock_of_its_requests() -> None:
    async def work(session: Session, call: Call) -> Any:
        await asyncio.sleep(50)

    session = serving(work)
    task = await begun(session, "ping", total=60)
    assert await session.answer(call_of(session)) is not None
    await asyncio.sleep(11)
    with pytest.raises(CallTimeout):
        await task


@in_no_time
async def test_the_time_in_which_a_client_serves_requests_does_not_count() -> None:
    """The user may take long to answer a form that a call needs."""
    work = Waiting()
    session = Session(Connection(None, limits=LIMITS), Line(), work)
    session.connection.handshake.assume(None)
    tasks = [await begun(session, idle=60) for _ in range(2)]
    for request_id in "ab":
        asyncio.get_running_loop().call_later(300, work.gate.set)
        assert await session.answer(call_of(session, request_id, "roots/list")) is not None
        work.gate.clear()
        await asyncio.sleep(50)
    assert not any(task.done() for task in tasks)
    work.gate.set()
    await session.answer(notice_of(session))  # nothing that the user could be busy with
    await asyncio.sleep(11)
    for task in tasks:
        with pytest.raises(CallTimeout):
            await task


@in_no_time
async def test_requests_that_a_client_serves_at_the_same_time_stop_the_clock_from_the_first_to_the_last() -> None:
    async def work(session: Session, call: Call) -> Any:
        await asyncio.sleep({"a": 0, "b": 200, "c": 300}[str(call.id)])
        return {}

    session = Session(Connection(None, limits=LIMITS), Line(), work)
    session.connection.handshake.assume(None)
    assert await session.answer(call_of(session, "a", "roots/list")) is not None
    task = await begun(session, total=60)
    served = [asyncio.create_task(session.answer(call_of(session, "b", "roots/list")))]
    await asyncio.sleep(100)
    served.append(asyncio.create_task(session.answer(call_of(session, "c", "roots/list"))))
    await asyncio.gather(*served)
    await asyncio.sleep(50)
    assert session.loop.time() == 450
    assert not task.done()
    await asyncio.sleep(11)
    with pytest.raises(CallTimeout):
        await task


@in_no_time
async def test_a_request_that_the_peer_takes_slowly_is_not_late() -> None:
    class Slow(Line):
        async def send(self, message: Outgoing, /) -> None:
            for _ in range(3 if message.pending else 0):
                await asyncio.sleep(50)
                assert message.pending is not None
                assert message.pending.limit is not None
                message.pending.limit.restart_idle()

    session = asking(Slow())
    task = await begun(session, idle=60)
    await asyncio.sleep(200)
    assert not task.done()
    await asyncio.sleep(11)
    with pytest.raises(CallTimeout):
        await task


@in_no_time
async def test_a_server_that_asks_within_a_time_goes_on_serving() -> None:
    async def work(session: Session, call: Call) -> Any:
        await session.request("roots/list", about=call, idle=60)

    session = serving(work)
    for request_id in "ab":
        reply = await session.answer(call_of(session, request_id))
        assert reply is not None
        assert reply.error is not None
    assert session.loop.time() == 120
