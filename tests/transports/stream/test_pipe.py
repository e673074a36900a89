"""The channel over a byte stream, on real pipes, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import os

import pytest

from gemel import ChannelClosed, ConnectionLost, Limits
from gemel.transports.stream.descriptors import DescriptorTransport
from gemel.transports.stream.line_channel import LINES_AT_ONCE, ONE_WRITE, LineChannel
from tests.support import Outgoing
from tests.transports.echo import NOT_JSON, AskConversation, EchoConversation, request
from tests.transports.loops import on_both_loops, until
from tests.transports.wire import Wire, asking, serving


async def flood(channel: LineChannel) -> None:
    """Send without end."""
    while True:
        await channel.send(Outgoing(b"x" * 5_000))


@on_both_loops
async def test_a_request_gets_its_answer_and_a_notification_gets_none() -> None:
    """STDIO-01."""
    async with serving() as (wire, conversation):
        wire.write(b'{"jsonrpc":"2.0","method":"hello"}\n' + request(1, "echo", a=1))
        assert await wire.lines(1) == [{"jsonrpc": "2.0", "id": 1, "result": {"a": 1}}]
        assert conversation.seen == ["hello", "echo"]


@on_both_loops
async def test_answers_to_pipelined_requests_leave_in_one_write() -> None:
    """Writes of one turn are coalesced."""
    async with serving() as (wire, _):
        wire.write(b"".join(request(number, "echo") for number in range(16)))
        assert [line["id"] for line in await wire.lines(16)] == list(range(16))
        assert wire.writes == 1


@on_both_loops
async def test_calls_run_side_by_side() -> None:
    """A slow call doesn't hold back a quick one."""
    async with serving() as (wire, conversation):
        wire.write(request(1, "sleep", held=True) + request(2, "echo"))
        assert [line["id"] for line in await wire.lines(1)] == [2]
        conversation.released.set()
        assert [line["id"] for line in await wire.lines(2)] == [2, 1]


@on_both_loops
async def test_what_follows_initialize_waits_until_it_is_answered() -> None:
    """In order; a second inline call parks again."""
    async with serving() as (wire, conversation):
        wire.write(request(1, "initialize", held=True) + request(2, "echo") + request(3, "initialize"))
        wire.write(request(4, "echo"))
        await until(lambda: conversation.seen)
        await asyncio.sleep(0.02)  # more would be seen by then
        assert conversation.seen == ["initialize"]
        conversation.released.set()
        assert [line["id"] for line in await wire.lines(4)] == [1, 2, 3, 4]


@on_both_loops
async def test_many_short_lines_do_not_keep_the_event_loop() -> None:
    """A chunk of thousands of lines is handled a few at a time, in order, and nothing is read meanwhile."""
    async with serving() as (wire, conversation):
        wire.write(b"".join(b'{"jsonrpc":"2.0","method":"%d"}\n' % number for number in range(1000)))
        at_once = seen = 0
        while seen < 1000:
            await asyncio.sleep(0)
            at_once, seen = max(at_once, len(conversation.seen) - seen), len(conversation.seen)
        assert conversation.seen == [str(number) for number in range(1000)]
        assert at_once <= LINES_AT_ONCE
        wire.write(request(1, "echo"))
        assert (await wire.lines(1))[0]["id"] == 1


@on_both_loops
async def test_lines_that_wait_are_handled_at_the_end_of_the_input() -> None:
    async with serving() as (wire, _):
        wire.write(b"".join(request(number, "echo") for number in range(500)))
        wire.end_input()
        assert [line["id"] for line in await wire.lines(500)] == list(range(500))


@on_both_loops
async def test_large_messages_in_the_backlog_stop_reading_by_their_size() -> None:
    """What waits for `initialize` is bounded by bytes, too."""
    async with serving(line=50_000) as (wire, conversation):
        wire.write(request(0, "initialize", held=True))
        sent = [request(number, "echo", pad="x" * 40_000) for number in range(1, 9)]
        writing = asyncio.create_task(asyncio.to_thread(lambda: [os.write(wire.into, data) for data in sent]))
        os.set_blocking(wire.into, True)
        await until(lambda: conversation.seen)
        await asyncio.sleep(0.05)
        assert sum(map(len, wire.channel._backlog)) <= 50_000 + 2 * 65536
        conversation.released.set()
        assert [line["id"] for line in await wire.lines(9)] == list(range(9))
        await writing


@on_both_loops
async def test_notifications_that_pile_up_are_dropped() -> None:
    """Requests are counted, so what has no id is bounded, too."""
    async with serving(calls=5) as (wire, conversation):
        wire.write(b'{"jsonrpc":"2.0","method":"listen"}\n' * 50 + request(1, "echo"))
        assert (await wire.lines(1))[0]["id"] == 1
        assert len(conversation.running) <= 10


@on_both_loops
async def test_a_full_backlog_stops_reading_and_loses_nothing() -> None:
    """The parked messages are bounded by `limits.backlog`, and by one chunk."""
    async with serving(backlog=4) as (wire, conversation):
        wire.write(request(0, "initialize", held=True))
        await until(lambda: conversation.seen)
        wire.write(b"".join(request(number, "echo") for number in range(1, 11)))
        await until(wire.is_full)
        wire.write(b"".join(request(number, "echo") for number in range(11, 21)))
        conversation.released.set()
        assert [line["id"] for line in await wire.lines(21)] == list(range(21))
        assert not wire.is_full()


@on_both_loops
async def test_at_the_end_of_the_input_what_was_asked_is_answered_first() -> None:
    """STDIO-07: `echo REQUEST | server` always prints the answer; parked requests and an unfinished line too."""
    async with serving() as (wire, conversation):
        wire.write(request(1, "initialize", seconds=0.03) + request(2, "sleep", seconds=0.03) + request(3, "echo")[:-1])
        wire.end_input()
        assert sorted(line["id"] for line in await wire.lines(3)) == [1, 2, 3]
        await wire.channel.wait_closed()
        assert conversation.closed == ["the peer closed its end"]


@on_both_loops
async def test_a_call_that_does_not_end_is_cut_off_after_the_drain_time() -> None:
    """STDIO-07."""
    async with serving(drain=0.05) as (wire, conversation):
        wire.write(request(1, "sleep", seconds=100))
        wire.end_input()
        await wire.channel.wait_closed()
        await conversation.wait_closed()
        assert conversation.cancelled == ["sleep"]


@on_both_loops
async def test_requests_that_are_held_back_at_the_end_are_refused() -> None:
    async with serving(drain=0.05) as (wire, conversation):
        wire.write(request(1, "initialize", seconds=100) + request(2, "echo") + b'{"jsonrpc":"2.0","method":"x"}\n')
        wire.end_input()
        (reply,) = await wire.lines(1)
        assert (reply["id"], reply["error"]["code"]) == (2, 429)
        await wire.channel.wait_closed()
        assert conversation.seen == ["initialize"]


@on_both_loops
async def test_a_client_that_is_gone_altogether_is_not_worked_for() -> None:
    """The end of the input with nobody at the output: no reason to drain."""
    async with serving(drain=100) as (wire, conversation):
        wire.write(request(1, "sleep", seconds=100))
        await until(lambda: conversation.seen)
        wire.end_input()
        wire.stop_reading()
        await wire.channel.wait_closed()
        await conversation.wait_closed()
        assert conversation.cancelled == ["sleep"]


@on_both_loops
async def test_stop_lets_running_calls_finish_and_takes_no_new_ones() -> None:
    """What a signal does."""
    async with serving() as (wire, conversation):
        wire.write(request(1, "sleep", seconds=0.05))
        await until(lambda: conversation.seen)
        wire.channel.stop("the test says so", 5)
        wire.write(request(2, "echo"))
        await wire.channel.wait_closed()
        assert [line["id"] for line in await wire.lines(1)] == [1]
        assert conversation.closed == ["the test says so"]


@on_both_loops
async def test_stop_cuts_off_what_is_left_after_its_time() -> None:
    """A call that hangs and a peer that doesn't read hold nobody up."""
    async with serving(stream_bytes=1000) as (wire, conversation):
        wire.write(request(1, "big", size=200_000) + request(2, "sleep", seconds=100))
        await until(lambda: wire.transport.get_write_buffer_size() > 0)
        wire.channel.stop("the test says so", 0.05)
        await wire.channel.wait_closed()
        await conversation.wait_closed()
        assert conversation.cancelled == ["sleep"]


@on_both_loops
async def test_bad_lines_are_answered_and_the_next_one_works() -> None:
    """Nothing is left unanswered."""
    async with serving() as (wire, _):
        wire.write(b'nonsense\n{"id":1}\n{} {}\n' + request(2, "echo"))
        first, second, third, last = await wire.lines(4)
        assert first["error"]["code"] == third["error"]["code"] == NOT_JSON
        assert second["id"] == 1
        assert last["result"] == {}


@on_both_loops
async def test_a_line_over_the_limit_is_answered_with_its_id_and_the_next_one_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(line=10_000) as (wire, conversation):
        wire.write(request("long", "echo", text="x" * 20_000) + request(2, "echo"))
        first, second = sorted(await wire.lines(2), key=lambda line: str(line["id"]), reverse=True)
        assert (first["id"], first["error"]["code"], second["id"]) == ("long", NOT_JSON, 2)
        assert "10000 bytes" in first["error"]["message"]
        assert conversation.seen == ["echo"]
        assert "limits.line" in caplog.text


@on_both_loops
async def test_an_answer_over_the_limit_fails_its_call_and_is_not_answered() -> None:
    """An error for it would look like an answer to a request of the server's with the same id."""
    async with asking(line=1000) as (wire, conversation):
        wire.write(b'{"jsonrpc":"2.0","id":7,"result":"' + b"x" * 2000 + b'"}\n')
        await until(lambda: conversation.broken)
        assert conversation.broken[0].id == 7
        assert "1000 bytes, the limit `limits.line`" in conversation.broken[0].why
        assert wire.read() == b""


@on_both_loops
async def test_a_conversation_that_breaks_its_contract_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Exceptions end in the log, never in the reader; what was taken for a call is answered."""
    async with serving() as (wire, _):
        wire.write(request(1, "explode") + request(2, "fail") + request(3, "echo"))
        answers = {line["id"]: "error" in line for line in await wire.lines(2)}
        assert answers == {2: True, 3: False}
        assert "a bug in the conversation" in caplog.text
        assert "answer must not raise" in caplog.text


@on_both_loops
async def test_line_breaks_inside_a_message_do_not_reach_the_wire() -> None:
    """STDIO-01."""
    async with serving() as (wire, _):
        await wire.channel.send(Outgoing(b'{\n"jsonrpc": "2.0",\r\n"method": "x"}'))
        assert await wire.lines(1) == [{"jsonrpc": "2.0", "method": "x"}]


@on_both_loops
async def test_a_sender_waits_while_the_peer_does_not_read_and_loses_nothing() -> None:
    """`send` resolves when there is room again; memory stays bounded."""
    async with serving(stream_bytes=20_000) as (wire, _):
        wire.write(request(1, "notify", times=20_000))
        await until(lambda: wire.transport.get_write_buffer_size() > 20_000)
        await asyncio.sleep(0.05)
        assert wire.transport.get_write_buffer_size() < 20_000 + ONE_WRITE + 1000
        lines = await wire.lines(20_001)
        assert [line["params"]["number"] for line in lines[:-1]] == list(range(20_000))
        assert lines[-1]["id"] == 1


@on_both_loops
async def test_a_peer_that_never_reads_ends_the_channel_with_a_reason() -> None:
    """`limits.stream_wait`; the sender learns that its message never left."""
    async with serving(stream_bytes=10_000, stream_wait=0.05) as (wire, conversation):
        with pytest.raises(ChannelClosed, match=r"has not read for 0\.05 seconds"):
            await flood(wire.channel)
        await wire.channel.wait_closed()
        assert "has not read" in conversation.closed[0]
        with pytest.raises(ChannelClosed):
            await wire.channel.send(Outgoing(b"x"))


@on_both_loops
async def test_a_slow_reader_that_goes_on_reading_is_not_ended() -> None:
    """Only silence ends a channel, not slowness."""
    async with serving(stream_bytes=100_000, stream_wait=0.3) as (wire, conversation):
        wire.write(request(1, "big", size=1_000_000))
        await until(lambda: wire.transport.get_write_buffer_size())
        size = 0
        while size < 1_000_000:
            await asyncio.sleep(0.01)
            with contextlib.suppress(BlockingIOError):
                size += len(os.read(wire.out, 20_000))
        assert conversation.closed == []


@on_both_loops
async def test_while_answers_pile_up_nothing_more_is_read() -> None:
    """A peer that asks and never reads can't make us hold more than a bounded amount."""
    async with serving(stream_bytes=100_000) as (wire, conversation):
        for number in range(60):
            with contextlib.suppress(BlockingIOError):
                wire.write(request(number, "big", size=20_000))
            await asyncio.sleep(0.001)
        await until(wire.is_full)
        assert wire.transport.get_write_buffer_size() < 300_000
        seen = len(conversation.seen)
        assert seen < 60
        await wire.lines(seen)
        await until(lambda: len(conversation.seen) == 60)


@on_both_loops
async def test_two_ends_that_both_have_much_to_say_do_not_block_each_other() -> None:
    """Not reading while our own requests wait for the peer would be a deadlock."""
    limits = Limits(stream_bytes=50_000, stream_wait=5)
    (server_in, client_out), (client_in, server_out) = os.pipe(), os.pipe()
    loop = asyncio.get_running_loop()
    server, client = LineChannel("stdio", limits, server=True), LineChannel("stdio", limits, server=False)
    DescriptorTransport(loop, server, server_in, server_out)
    DescriptorTransport(loop, client, client_in, client_out)
    serving_one, asking_one = EchoConversation(server), AskConversation(client)
    server.begin(serving_one)
    client.begin(asking_one)
    asked = [asking_one.ask("echo", pad="x" * 10_000) for _ in range(200)]
    answers = await asyncio.gather(*asked)
    assert len(answers) == 200
    await client.close()
    await server.wait_closed()


@on_both_loops
async def test_a_client_learns_of_the_end_at_once() -> None:
    """Every waiting call fails when the peer closes its end."""
    async with asking() as (wire, conversation):
        asked = asyncio.ensure_future(conversation.ask("echo"))
        await wire.lines(1)
        wire.write(b'{"jsonrpc":"2.0","id":1,"resu')
        wire.end_input()
        with pytest.raises(ConnectionLost, match="closed its end"):
            await asked
        assert conversation.broken == []


@on_both_loops
async def test_a_client_still_gets_a_whole_last_answer_without_line_end() -> None:
    """A partial last line that is complete JSON counts."""
    async with asking() as (wire, conversation):
        asked = asyncio.ensure_future(conversation.ask("echo"))
        await wire.lines(1)
        wire.write(b'{"jsonrpc":"2.0","id":1,"result":{}}')
        wire.end_input()
        assert await asked == {}


@on_both_loops
async def test_closing_sends_what_was_written_and_may_be_done_twice_from_any_task() -> None:
    """Channel.close."""
    async with serving() as (wire, conversation):
        await wire.channel.send(Outgoing(b"last"))
        await asyncio.gather(wire.channel.close(), wire.channel.close())
        await wire.channel.close()
        assert wire.read() == b"last\n"
        assert len(conversation.closed) == 1


@on_both_loops
async def test_closing_does_not_wait_for_ever_for_a_peer_that_does_not_read() -> None:
    """`limits.teardown`."""
    async with serving(teardown=0.05) as (wire, _):
        wire.write(request(1, "big", size=1_000_000))
        await until(lambda: wire.transport.get_write_buffer_size())
        await wire.channel.close()
        while os.read(wire.out, 1 << 20):  # it raises BlockingIOError unless the other end is closed
            pass


@on_both_loops
async def test_nothing_is_read_before_the_conversation_begins() -> None:
    wire = Wire(Limits())
    wire.write(request(1, "echo"))
    await asyncio.sleep(0.01)
    assert wire.is_full()
    conversation = EchoConversation(wire.channel)
    wire.channel.begin(conversation)
    assert await wire.lines(1)
    wire.end_input()
    await wire.channel.wait_closed()
    wire.stop_reading()


@on_both_loops
async def test_a_cancelled_sender_leaves_the_others_waiting() -> None:
    """One task's cancellation is its own affair."""
    async with serving(stream_bytes=1000) as (wire, _):
        wire.write(request(1, "big", size=200_000))
        await until(lambda: wire.transport.get_write_buffer_size())
        first = asyncio.ensure_future(wire.channel.send(Outgoing(b'"first"')))
        second = asyncio.ensure_future(wire.channel.send(Outgoing(b'"second"')))
        await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.sleep(0.01)
        assert not second.done()
        assert (await wire.lines(2))[1] == "second"
        await second
        assert first.cancelled()
