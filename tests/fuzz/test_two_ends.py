"""Two connections and an unreliable wire between them, driven in any order; after each step all debts must add up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gemel import GemelError, InvalidParams, Limits, NotSent
from gemel.protocol.connection import Connection
from gemel.protocol.eras.stateless import STATELESS as STATELESS_ERA
from gemel.protocol.states import CallState, HandshakeState, PendingState
from gemel.schema.lifecycle import ClientCapabilities
from tests.fuzz import messages
from tests.fuzz.ends import ME, Work, description_of, examples, hello, initialize_result
from tests.support import Batch, Call, Outgoing, Pending, jsonrpc

STATELESS = STATELESS_ERA.request_meta(STATELESS_ERA.latest, ME, ClientCapabilities())
ERAS: list[Any] = [("2025",), ("2026",), ("2025", "2026")]
#: Small, so that they are met.
LIMITS = Limits(calls=4, pending=5, batch=3)


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """What the handlers here do wrong is logged, as it should be, many thousand times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class End:
    """One connection, and the ledger that the test keeps of it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        #: What is on its way to this end.
        self.wire: list[bytes] = []
        #: Calls that were handed out and may be answered, with the number of replies that each got.
        self.calls: dict[Call, int] = {}
        self.works: dict[Call, Work] = {}
        #: Calls that were answered because their time was up.
        self.expired: set[Call] = set()
        #: Requests of ours, with the number of times that we were woken.
        self.asked: dict[Pending, int] = {}
        self.seen: list[bytes] = []

    def take(self, data: bytes) -> list[bytes]:
        """Receive one message; gives back what goes out at once."""
        self.seen.append(data)
        before = set(self.connection.incoming.values())
        got = self.connection.receive(data)
        if isinstance(got, Outgoing):
            return [got.data]
        if isinstance(got, Call):
            self._begin(got)
        if isinstance(got, Batch):
            for call in got.calls:
                self._begin(call)
            return [reply.data for reply in got.replies]
        if got is None:
            assert set(self.connection.incoming.values()) <= before
        return []

    def _begin(self, call: Call) -> None:
        assert call not in self.calls
        self.calls[call] = 0
        call.work = self.works[call] = Work()

    def ask(self, method: str) -> Pending | None:
        """Enter a request; None where that is refused."""
        room = len(self.connection.outgoing) < LIMITS.pending and self.connection.closed is None
        try:
            pending = self.connection.register_request(method)
        except NotSent:
            assert not room
            return None
        assert room
        self.asked[pending] = 0

        def wake() -> None:
            self.asked[pending] += 1

        pending.wake = wake
        return pending

    def reply(self, call: Call, make: Callable[[], Outgoing | None]) -> Outgoing | None:
        """Answer a call in some way; only the first answer of a running request may be one."""
        owed = call.id is not None and call.state is CallState.RUNNING
        out = make()
        assert (out is not None) == owed, (call.method, call.id, call.state)
        if out is not None:
            self.calls[call] += 1
            assert out.id == call.id
            assert type(out.id) is type(call.id)
        return out

    def check(self) -> None:
        """Every debt is open in one place or over for one reason."""
        connection = self.connection
        connection.check()
        owed = list(connection.incoming.values())
        for call, replies in self.calls.items():
            assert replies <= 1
            if call.id is None:
                continue
            assert (call in owed) == (call.state is CallState.RUNNING)
            assert replies == (call.state is CallState.ANSWERED)
            taken_away = call.state in (CallState.CANCELLED, CallState.DROPPED) or call in self.expired
            assert self.works[call].cancelled == taken_away
        waiting = list(connection.outgoing.values())
        for pending, woken in self.asked.items():
            assert (pending in waiting) == (pending.state is PendingState.WAITING)
            assert woken == (pending.state is not PendingState.WAITING)
            if pending.state in (PendingState.ANSWERED, PendingState.LOST):
                assert (pending.error is not None) != bool(pending.result)
        negotiating = connection.handshake.state is HandshakeState.NEGOTIATING
        assert negotiating == any(call.inline for call in owed)
        assert len(owed) <= LIMITS.calls
        assert len(waiting) <= LIMITS.pending


class Conversation(RuleBasedStateMachine):
    """A client and a server; each rule is something that an end, its user or the wire may do at any time."""

    @initialize(
        one_shot=st.booleans(), shared=st.booleans(), eras=st.sampled_from([("2025",), ("2026",), ("2025", "2026")])
    )
    def open(self, one_shot: bool, shared: bool, eras: Any) -> None:
        self.client = End(Connection(None, limits=LIMITS))
        self.server = End(Connection(description_of(eras), limits=LIMITS, one_shot=one_shot, shared=shared))
        self.ends = (self.client, self.server)

    def other(self, end: End) -> End:
        return self.server if end is self.client else self.client

    # ---------------------------------------------------------------- the client and the server speak

    @rule(revision=messages.revisions)
    def the_client_shakes_hands(self, revision: str) -> None:
        pending = self.client.ask("initialize")
        if pending is not None:
            self.server.wire.append(jsonrpc.encode_request(pending.id, "initialize", hello(revision)))
        self.server.wire.append(jsonrpc.encode_notification("notifications/initialized"))

    @rule(
        stateless=st.booleans(),
        method=st.sampled_from(
            ["tools/call", "resources/read", "prompts/get", "subscriptions/listen", "ping", "acme/do"]
        ),
    )
    def the_client_asks(self, stateless: bool, method: str) -> None:
        pending = self.client.ask(method)
        if pending is not None:
            params = {"_meta": {**STATELESS, "progressToken": pending.id}} if stateless else {"name": "x"}
            self.server.wire.append(jsonrpc.encode_request(pending.id, method, params))

    @rule(method=st.sampled_from(["roots/list", "elicitation/create", "sampling/createMessage"]))
    def the_server_asks(self, method: str) -> None:
        pending = self.server.ask(method)
        if pending is not None:
            self.client.wire.append(jsonrpc.encode_request(pending.id, method))

    @precondition(lambda self: self.client.asked)
    @rule(data=st.data())
    def the_server_cancels_what_it_was_asked(self, data: st.DataObject) -> None:
        """That ends a subscription and nothing else; a request of its own with that id comes first."""
        pending = data.draw(st.sampled_from(list(self.client.asked)))
        before = pending.state
        notice = jsonrpc.encode_notification("notifications/cancelled", {"requestId": pending.id})
        open_still = before is PendingState.WAITING and self.client.connection.closed is None
        open_still &= pending.id not in self.client.connection.incoming
        self.server.wire.extend(self.client.take(notice))
        ends = open_still and pending.method == "subscriptions/listen"
        assert pending.state is (PendingState.ANSWERED if ends else before)

    @rule(text=st.one_of(messages.encoded(messages.requests), messages.texts), at=st.sampled_from([0, 1]))
    def somebody_says_anything(self, text: bytes, at: int) -> None:
        self.ends[at].wire.append(text)

    # ---------------------------------------------------------------- the wire carries, loses, doubles and reorders

    @precondition(lambda self: self.client.wire or self.server.wire)
    @rule(data=st.data())
    def a_message_arrives(self, data: st.DataObject) -> None:
        end = data.draw(st.sampled_from([end for end in self.ends if end.wire]))
        place = data.draw(st.integers(0, len(end.wire) - 1))
        self.other(end).wire.extend(end.take(end.wire.pop(place)))

    @precondition(lambda self: self.client.seen or self.server.seen)
    @rule(data=st.data())
    def a_message_arrives_again(self, data: st.DataObject) -> None:
        end = data.draw(st.sampled_from([end for end in self.ends if end.seen]))
        end.wire.append(data.draw(st.sampled_from(end.seen)))

    @precondition(lambda self: self.client.wire or self.server.wire)
    @rule(data=st.data())
    def a_message_is_lost(self, data: st.DataObject) -> None:
        end = data.draw(st.sampled_from([end for end in self.ends if end.wire]))
        end.wire.pop(data.draw(st.integers(0, len(end.wire) - 1)))

    # ---------------------------------------------------------------- handlers end in every way, twice, and too late

    @precondition(lambda self: self.client.calls or self.server.calls)
    @rule(data=st.data(), how=st.sampled_from(["result", "nothing", "unwritable", "refused", "crashed"]))
    def a_handler_ends(self, data: st.DataObject, how: str) -> None:
        end = data.draw(st.sampled_from([end for end in self.ends if end.calls]))
        call = data.draw(st.sampled_from(list(end.calls)))
        connection = end.connection
        result: Any = {} if how == "result" else None
        if how == "unwritable":
            result = {"x": object()}
        elif call.inline and how == "result":
            result = initialize_result(connection)
        ways: dict[str, Callable[[], Outgoing | None]] = {
            "refused": lambda: connection.refuse(call, InvalidParams("no", {"why": object()})),
            "crashed": lambda: connection.refuse(call, RuntimeError("boom")),
        }
        out = end.reply(call, ways.get(how, lambda: connection.answer(call, result)))
        if out is not None:
            self.other(end).wire.append(out.data)

    @precondition(lambda self: self.client.calls or self.server.calls)
    @rule(data=st.data())
    def a_call_is_stopped(self, data: st.DataObject) -> None:
        end = data.draw(st.sampled_from([end for end in self.ends if end.calls]))
        end.connection.cancel(data.draw(st.sampled_from(list(end.calls))))

    # ---------------------------------------------------------------- who waits loses patience

    @precondition(lambda self: self.client.asked or self.server.asked)
    @rule(data=st.data(), how=st.sampled_from(["give up", "fail", "cancel", "look-alike"]))
    def somebody_stops_waiting(self, data: st.DataObject, how: str) -> None:
        end = data.draw(st.sampled_from([end for end in self.ends if end.asked]))
        pending = data.draw(st.sampled_from(list(end.asked)))
        waiting = pending.state is PendingState.WAITING
        request_id = str(pending.id) if how == "look-alike" else pending.id
        if how == "fail":
            end.connection.fail_request(pending, GemelError("the transport says so"))
        elif how in ("give up", "cancel"):
            assert end.connection.abandon_request(pending) == waiting
        if how in ("cancel", "look-alike"):
            notice = jsonrpc.encode_notification("notifications/cancelled", {"requestId": request_id})
            self.other(end).wire.append(notice)

    @rule(at=st.sampled_from([0, 1]))
    def the_input_of_an_end_is_over(self, at: int) -> None:
        end = self.ends[at]
        end.connection.end_input("the test ends it")
        assert not end.connection.outgoing

    @rule(at=st.sampled_from([0, 1]))
    def time_is_up_at_an_end(self, at: int) -> None:
        end = self.ends[at]
        running = list(end.connection.incoming.values())
        replies = end.connection.stop("the test waits no longer")
        assert [reply.id for reply in replies] == [call.id for call in running]
        for call in running:
            end.calls[call] += 1
            end.expired.add(call)
        self.other(end).wire.extend(reply.data for reply in replies)

    @rule(at=st.sampled_from([0, 1]))
    def an_end_closes(self, at: int) -> None:
        end = self.ends[at]
        end.connection.close("the test closes it")
        assert not end.connection.incoming
        assert not end.connection.outgoing

    # ---------------------------------------------------------------- always

    @invariant()
    def all_debts_add_up(self) -> None:
        """The end of a request is one answer, one cancellation, or the close; none of them twice."""
        for end in self.ends if hasattr(self, "ends") else ():
            end.check()

    def teardown(self) -> None:
        for end in self.ends if hasattr(self, "ends") else ():
            end.connection.close("the end")
            end.check()
            assert all(call.state is not CallState.RUNNING for call in end.calls if call.id is not None)
            assert all(pending.state is not PendingState.WAITING for pending in end.asked)
            for call in end.calls:
                assert end.connection.answer(call, {}) is None
            assert end.take(b'{"jsonrpc":"2.0","id":"late","method":"ping"}') == []


# A hundred conversations, whatever the machine does.
TestConversation = pytest.mark.long(pytest.mark.timeout(120)(Conversation.TestCase))
TestConversation.settings = settings(max_examples=examples(100), stateful_step_count=30, deadline=None)
