"""The pure state of a conversation, from the asking side: answers, errors, silence, batches, and the end of all debts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gemel import ConnectionLost, GemelError, InvalidResponse, Limits, NotSent, PeerError
from gemel.protocol.connection import Connection
from gemel.protocol.deviations import Deviations
from gemel.protocol.eras.base import ASSUMED_REVISION, Era
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.states import CallState, PendingState
from tests.fuzz.ends import Work, hello
from tests.protocol.test_connection import RESPONSES, call_of, client, error_of, headers, notice, request, server
from tests.support import V2025_03, V2025_11, Batch, Outgoing, Pending, jsonrpc

# ---------------------------------------------------------------- what the peer owes


def ask(connection: Connection, method: str = "ping") -> tuple[Pending, list[int]]:
    woken: list[int] = []
    pending = connection.register_request(method)
    pending.wake = lambda: woken.append(1)
    return pending, woken


def test_an_answer_wakes_who_waits_once() -> None:
    connection = client()
    pending, woken = ask(connection)
    for _ in range(2):
        assert connection.receive(jsonrpc.encode_response(pending.id, {"a": 1})) is None
    assert (bytes(pending.result), woken, pending.state) == (b'{"a":1}', [1], PendingState.ANSWERED)


@pytest.mark.parametrize("era", [HANDSHAKE, STATELESS])
@pytest.mark.parametrize("answer", RESPONSES)
def test_an_answer_that_a_transport_has_decoded_ends_its_request(answer: bytes, era: Era) -> None:
    connection = client()
    connection.era = era
    pending, woken = ask(connection)
    message = jsonrpc.decode(answer)
    assert isinstance(message, jsonrpc.Response | jsonrpc.Failure)
    assert connection.receive(message) is None
    assert (pending.state, woken) == (PendingState.ANSWERED, [1])
    assert type(pending.error) is (PeerError if b'"error"' in answer else type(None))


@pytest.mark.parametrize("answer", [b"null", b"[]", b"7", b'"x"'])
def test_a_result_that_is_no_object_is_no_valid_answer(answer: bytes) -> None:
    connection = client()
    pending, _ = ask(connection)
    connection.receive(b'{"jsonrpc":"2.0","id":1,"result":%s}' % answer)
    assert isinstance(pending.error, InvalidResponse)


@pytest.mark.parametrize(
    "text",
    [
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
        b'{"jsonrpc":"2.0","id":1.0,"result":{}}',
        b'{"jsonrpc":"2.0","id":1.5,"result":{}}',
        b'{"jsonrpc":"2.0","id":[1],"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":"\xff"}',
        b'{"jsonrpc":"2.0","id":"01","result":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"text":"cut \\ud83d","id":2}}',
        b'{"jsonrpc":"2.0","result":{"value":NaN},"id":1}',
        b'{"jsonrpc":"2.0","id":1,"result":{"cut',
    ],
)
def test_an_answer_that_cannot_be_read_ends_the_request_that_it_names(text: bytes) -> None:
    """BASE-06, BASE-07: nobody waits for an answer that came broken."""
    connection = client()
    first, _ = ask(connection)
    second, _ = ask(connection)
    connection.receive(text)
    assert isinstance(first.error, InvalidResponse)
    assert second.state is PendingState.WAITING


@pytest.mark.parametrize(
    "text",
    [
        b'{"jsonrpc":"2.0","result":{}}',
        b'{"jsonrpc":"2.0",',
        b' { "jsonrpc": "2.0", "id":',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}',
        b'[{"jsonrpc":"2.0","id":1',
        b"[{}]",
    ],
)
@pytest.mark.parametrize(("requests", "notified"), [(1, False), (1, True), (2, False)])
def test_an_answer_that_names_no_request_fails_the_only_one_it_may_belong_to(
    text: bytes, requests: int, notified: bool
) -> None:
    """An error without id may be about a notification: then, and among several requests, it fails none of them."""
    connection = client()
    connection.has_notified = notified
    waiting = [ask(connection)[0] for _ in range(requests)]
    connection.receive(text)
    for pending in waiting:
        if requests == 1 and not notified:
            assert isinstance(pending.error, InvalidResponse | PeerError)
        else:
            assert (pending.state, bool(pending.stray)) == (PendingState.WAITING, True)


@pytest.mark.parametrize(
    "text",
    [
        b'{"id":99,"result":{}}',
        b'{"jsonrpc":"2.0","id":99}',
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":{},"method":"ping"}',
        b'{"jsonrpc":"2.0","id":true,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":null,"method":"notifications/message","params":{"level":"info","data":1}}',
    ],
)
def test_what_is_meant_for_no_request_of_a_client_fails_none(text: bytes) -> None:
    connection = client()
    waiting = [ask(connection)[0] for _ in range(2)]
    connection.receive(text)
    assert all((one.state, one.stray) == (PendingState.WAITING, "") for one in waiting)


@pytest.mark.parametrize(
    ("text", "deviation"),
    [
        (b'{"jsonrpc":"2.0","id":"%d","result":{}}', "string-id"),
        (b'{"jsonrpc":"2.0","id":%d,"result":{},"error":null}', "null-error"),
        (b'{"jsonrpc":"2.0","id":%d,"result":null,"error":{"code":-1,"message":"x"}}', "null-result"),
        (b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32000.0,"message":"x"}}', "fractional-code"),
    ],
)
def test_an_answer_with_a_slip_is_taken_as_it_is_meant_and_noted_once(
    text: bytes, deviation: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection = client()
    connection.deviations = Deviations()
    for _ in range(2):
        pending, _ = ask(connection)
        connection.receive(text % pending.id)
        assert isinstance(pending.error, PeerError) == (b'"message"' in text)
        assert pending.state is PendingState.ANSWERED
    assert [(one.name, one.count) for one in connection.deviations] == [(deviation, 2)]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [deviation]


@pytest.mark.parametrize(
    "text",
    [
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":null,"error":null}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":null,"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":null,"error":null}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1.0,"code":2,"message":"x"}}',
        b'{"id":1,"result":{},"error":null}',
    ],
)
def test_an_answer_with_several_meanings_is_not_mended(text: bytes) -> None:
    connection = client()
    pending, _ = ask(connection)
    connection.receive(text)
    assert isinstance(pending.error, InvalidResponse)


def test_an_id_is_taken_by_value_only_where_it_is_written_as_json_would() -> None:
    for text in (b'"01"', b'" 1"', b'"1.0"', b"true", b"1.0", '"\u0661"'.encode()):  # the last one is an Arabic digit
        connection = client()
        pending, _ = ask(connection)
        connection.receive(b'{"jsonrpc":"2.0","id":%s,"result":{}}' % text)
        assert pending.state is PendingState.WAITING or isinstance(pending.error, InvalidResponse)


@pytest.mark.parametrize(
    "members",
    [
        b'"error":{"code":"1","message":"x"}',
        b'"error":{}',
        b'"error":null',
        b'"error":"no"',
        b'"result":{},"error":{"code":1,"message":"x"}',
        b'"result":{},"result":{}',
        b'"result":"\xff"',
        b'"x":1',
    ],
)
@pytest.mark.parametrize("request_id", [b"1", b'"1"'])
@pytest.mark.parametrize("form", [b"%s", b"[%s]"])
def test_a_malformed_response_fails_the_request_of_the_server(form: bytes, request_id: bytes, members: bytes) -> None:
    connection = server(revision=V2025_03)
    first, _ = ask(connection, "elicitation/create")
    second, _ = ask(connection, "elicitation/create")
    assert connection.receive(form % (b'{"jsonrpc":"2.0","id":%s,%s}' % (request_id, members))) is None
    assert isinstance(first.error, InvalidResponse)
    assert second.state is PendingState.WAITING


def test_a_malformed_response_to_no_request_of_the_server_is_answered_with_an_error() -> None:
    connection = server()
    pending, _ = ask(connection, "elicitation/create")
    for text in (b'{"jsonrpc":"2.0","id":9,"error":{}}', b'{"jsonrpc":"2.0","id":1,"method":"ping","params":5}', b"{"):
        assert error_of(connection.receive(text))["code"] in (-32600, -32700)
    assert pending.state is PendingState.WAITING


@pytest.mark.parametrize("params", [b'{"level":"info","data":NaN}', b'{"level":"info","data":"\\ud83d"}'])
def test_a_malformed_notification_of_a_server_ends_no_request(params: bytes) -> None:
    connection = client()
    pending, _ = ask(connection)
    text = b'{"jsonrpc":"2.0","method":"notifications/message","params":%s}'
    assert connection.receive(text % params) is None
    assert pending.state is PendingState.WAITING


@pytest.mark.parametrize("params", [b"5", b'"x"', b"[]", b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":"\\ud83d"}'])
def test_a_malformed_request_of_a_server_is_answered_with_an_error(params: bytes) -> None:
    connection = client()
    pending, _ = ask(connection)
    reply = connection.receive(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":%s}' % params)
    assert error_of(reply)["code"] in (-32600, -32700)
    assert pending.state is PendingState.WAITING


def test_what_is_not_even_json_is_no_answer_wherever_it_stands() -> None:
    connection = client()
    pending, _ = ask(connection)
    for text in (b"Listening on port 80", b"", b"   ", b"WARNING: x", b'"text"', b"7"):
        connection.receive(text)
    assert pending.state is PendingState.WAITING


@pytest.mark.parametrize(
    "text",
    [
        b"Listening on port 80",
        b"",
        b"   ",
        b"WARNING: x",
        b"[INFO] started",
        b"[12:00:01] ready",
        b"[1, 2]",
        b"[]",
        b"{'name': 'shown by repr'}",
        b"{started}",
        b'{"level":"info","msg":"started","id":7}',
        b'{"level":"error","error":"no cache"}',
        b'{"result":1}',
        b'"text"',
        b"7",
        b"null",
        b"\x1b[32mready\x1b[0m",
        b"\xff\xfe",
    ],
)
def test_what_a_server_prints_by_mistake_is_no_answer(text: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Lines of a log are what stands most often where a process should write messages alone; some of them are JSON."""
    connection = client()
    connection.printed_on = True
    pending, _ = ask(connection)
    connection.receive(text)
    assert pending.state is PendingState.WAITING
    assert "the server wrote a line that is not a message" in caplog.text


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        (b'ready {"jsonrpc":"2.0","id":1,"result":{}}', True),
        (b'ready {"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no"}}', True),
        (b'ready {"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"no"}}', False),
        (b'ready {"jsonrpc":"2.0","id":1,"method":"ping"}', False),
        (b'ready {"jsonrpc":"2.0","method":"notifications/message","params":{}}', False),
        (b'ready {"jsonrpc":"2.0","id":2,"result":{}}', False),
    ],
)
def test_an_answer_after_a_text_in_its_line_fails_the_request_that_it_names(text: bytes, failed: bool) -> None:
    connection = client()
    connection.printed_on = True
    pending, _ = ask(connection)
    assert connection.receive(text) is None
    assert isinstance(pending.error, InvalidResponse) is failed


def test_a_subscription_that_the_server_cancels_has_a_result_and_no_other_request_has() -> None:
    """A server ends a subscription so on stdio."""
    connection = client()
    subscription, other = ask(connection, "subscriptions/listen")[0], ask(connection)[0]
    for pending in (subscription, other):
        connection.receive(notice("notifications/cancelled", requestId=pending.id))
    assert json.loads(bytes(subscription.result)) == {"resultType": "complete"}
    assert other.state is PendingState.WAITING


def test_progress_is_told_by_its_own_notification_only() -> None:
    connection = client()
    pending, _ = ask(connection, "tools/call")
    told: list[Any] = []
    pending.on_progress = told.append
    call_of(connection.receive(notice("notifications/acme", progressToken=pending.id, progress=1)))
    assert told == []
    assert connection.receive(notice("notifications/progress", progressToken=pending.id, progress=1)) is None
    assert len(told) == 1
    call_of(connection.receive(notice("notifications/progress", progress=1)))
    pending.on_progress = None
    assert connection.receive(notice("notifications/progress", progressToken=pending.id, progress=1)) is None
    assert pending.state is PendingState.WAITING


@pytest.mark.parametrize("prefix", ["", "w."])
@pytest.mark.parametrize(
    ("request_id", "is_late"),
    [
        *((b'"%s1"', True), (b'"%s2"', False), (b'"%s0"', True), (b'"%s99"', True), (b'"%sx"', True)),
        *((b"1", True), (b"0", True), (b"99", True), (b"99.0", False)),
    ],
)
def test_a_malformed_answer_that_is_late_concerns_no_other_request(
    request_id: bytes, is_late: bool, prefix: str
) -> None:
    """One whose request can't be told may be the answer to the only one."""
    connection = client()
    connection.id_prefix = prefix
    first, _ = ask(connection)
    assert first.id == (f"{prefix}1" if prefix else 1)
    connection.receive(jsonrpc.encode_response(first.id, {}))
    second, _ = ask(connection)
    named = request_id.replace(b"%s", prefix.encode())
    assert connection.receive(b'{"jsonrpc":"2.0","id":%b,"error":"no"}' % named) is None
    assert (second.state is PendingState.WAITING) is is_late


@pytest.mark.parametrize("request_id", [b"99.0", b'["x"]', b"1e999", b"[1e999]"])
def test_a_malformed_answer_with_an_id_that_can_not_be_read_fails_what_waits_on_either_side(request_id: bytes) -> None:
    for connection in (client(), server()):
        pending, _ = ask(connection)
        assert connection.receive(b'{"jsonrpc":"2.0","id":%b,"error":{}}' % request_id) is None
        assert isinstance(pending.error, InvalidResponse)


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        (b'{"jsonrpc":"2.0","method":"notifications/message","params":5}', False),
        (b'{"level":"info","msg":"started","id":7}', False),
        (b"[1, 2]", True),
    ],
)
def test_a_server_that_may_not_print_may_send_what_is_no_answer(text: bytes, failed: bool) -> None:
    """Only what can't be the answer is passed over where nothing but messages is expected."""
    connection = client()
    pending, _ = ask(connection)
    assert connection.receive(text) is None
    assert (pending.state is not PendingState.WAITING) is failed


@pytest.mark.parametrize(("method", "over"), [("subscriptions/listen", True), ("tools/call", False)])
def test_a_server_may_end_a_subscription_by_a_cancellation_and_nothing_else(method: str, over: bool) -> None:
    """A result that follows is late, and changes nothing."""
    connection = client()
    connection.era = STATELESS
    pending = connection.register_request(method)
    for named in (str(pending.id), 99, pending.id):
        assert pending.state is PendingState.WAITING
        connection.receive(notice("notifications/cancelled", requestId=named))
        connection.check()
    assert (pending.state is PendingState.ANSWERED) == over
    assert pending.error is None
    connection.receive(jsonrpc.encode_response(pending.id, {"resultType": "complete"}))
    assert pending.state is PendingState.ANSWERED
    connection.check()


def test_who_gave_up_is_not_woken_by_a_late_answer() -> None:
    """CANC-08."""
    connection = client()
    pending, woken = ask(connection)
    assert connection.abandon_request(pending)
    assert not connection.abandon_request(pending)
    connection.receive(jsonrpc.encode_response(pending.id, {}))
    connection.fail_request(pending, GemelError("too late"))
    assert (woken, pending.state, pending.error) == ([1], PendingState.GIVEN_UP, None)


@pytest.mark.parametrize("wrong", [b"99", b"0", b"-1", b'"x"', b'"99"'])
@pytest.mark.parametrize(
    "answer", [b'{"jsonrpc":"2.0","id":%s,"result":{}}', b'{"jsonrpc":"2.0","id":%s,"error":{"code":1,"message":"x"}}']
)
def test_a_response_with_an_id_that_was_never_sent_is_ignored(wrong: bytes, answer: bytes) -> None:
    for connection in (client(), server()):
        pending, _ = ask(connection)
        connection.receive(answer % wrong)
        assert (pending.error, pending.state) == (None, PendingState.WAITING)


@pytest.mark.parametrize("late", [b"1", b'"1"', b"1.0", b"[1]"])
@pytest.mark.parametrize("members", [b'"result":{}', b'"result":{},"error":{}', b'"result":7'])
def test_a_late_answer_fails_no_other_request_however_malformed(late: bytes, members: bytes) -> None:
    connection = client()
    first, _ = ask(connection)
    second, _ = ask(connection)
    connection.abandon_request(first)
    connection.receive(b'{"jsonrpc":"2.0","id":%s,%s}' % (late, members))
    assert (second.error, second.state) == (None, PendingState.WAITING)


def test_progress_finds_its_request_by_the_value_of_its_token() -> None:
    """On a server by its type, too."""
    for connection, count in ((client(), 2), (server(), 1)):
        pending, _ = ask(connection, "roots/list")
        told: list[bytes] = []
        pending.on_progress = lambda params, told=told: told.append(bytes(params))
        for token in (str(pending.id), f"0{pending.id}", 99, None, pending.id):
            connection.receive(notice("notifications/progress", progressToken=token, progress=1))
        assert len(told) == count


def test_progress_of_nothing_is_for_handlers_of_a_server_only() -> None:
    progress = notice("notifications/progress", progressToken=99, progress=1)
    assert client().receive(progress) is None
    assert call_of(server().receive(progress)).method == "notifications/progress"


def test_too_many_requests_or_a_closed_connection_send_nothing() -> None:
    connection = client(limits=Limits(pending=1))
    ask(connection)
    with pytest.raises(NotSent, match="1 requests wait"):
        connection.register_request("ping")
    connection.close("gone")
    with pytest.raises(NotSent, match="gone"):
        connection.register_request("ping")


def test_what_a_server_printed_last_is_kept_for_errors() -> None:
    connection = client()
    assert connection.noise == ""
    for line in (b"Starting up", b"Traceback: no port"):
        assert connection.receive(line) is None
    assert "Traceback: no port" in connection.noise


# ---------------------------------------------------------------- batches


def test_a_batch_of_answers_settles_them_all() -> None:
    """BASE-11: a client takes them, too, where they were negotiated."""
    connection = client(V2025_03)
    waiting = [ask(connection)[0] for _ in range(3)]
    answers = [jsonrpc.encode_response(one.id, {"id": one.id}) for one in waiting]
    assert connection.receive(b"[" + b",".join(answers) + b"]") is None
    assert [json.loads(bytes(one.result))["id"] for one in waiting] == [one.id for one in waiting]


def test_a_batch_of_requests_is_served_together() -> None:
    """BASE-11."""
    for connection in (client(V2025_03), server(revision=V2025_03)):
        got = connection.receive(b"[" + request(1, "ping") + b"," + notice("notifications/acme") + b",7]")
        assert isinstance(got, Batch)
        assert [call.method for call in got.calls] == ["ping", "notifications/acme"]
        assert len(got.replies) == (0 if connection.description is None else 1)


def test_a_batch_does_not_hold_the_handshake() -> None:
    """2025-03-26, basic/lifecycle, "Initialization": `initialize` must not be part of a batch."""
    connection = server(shaken=False, one_shot=True)
    got = connection.receive(b"[" + jsonrpc.encode_request("a", "initialize", hello()) + b"]")
    assert isinstance(got, Batch)
    assert not got.calls
    assert "initialize can't be part of a batch" in str(error_of(got.replies[0])["message"])


@pytest.mark.parametrize(
    ("eras", "version", "taken"),
    [
        (("2025", "2026"), V2025_03, True),
        (("2025", "2026"), V2025_11, False),
        (("2025",), V2025_03, True),
        (("2026",), V2025_03, False),
    ],
)
def test_batches_are_of_one_revision(eras: Any, version: str, taken: bool) -> None:
    """BASE-11."""
    connection = server(shaken=False, eras=eras, one_shot=True)
    got = connection.receive(b"[" + request(1, "ping") + b"]", headers(mcp_protocol_version=version))
    assert isinstance(got, Batch if taken else Outgoing)


# ---------------------------------------------------------------- the end


def test_the_end_settles_everything_once() -> None:
    connection = server()
    call = call_of(connection.receive(request()))
    call.work = work = Work()
    pending, woken = ask(connection, "roots/list")
    for _ in range(2):
        connection.close("gone")
    assert (call.state, work.cancelled) == (CallState.DROPPED, 1)
    assert (pending.state, woken) == (PendingState.LOST, [1])
    assert isinstance(pending.error, ConnectionLost)
    assert connection.receive(request(2)) is None
    assert connection.receive(notice("notifications/acme")) is None
    connection.check()


def test_the_end_of_input_fails_only_what_we_wait_for() -> None:
    connection = server()
    call = call_of(connection.receive(request()))
    pending, _ = ask(connection, "roots/list")
    connection.end_input("all is said")
    assert isinstance(pending.error, ConnectionLost)
    assert connection.answer(call, {}) is not None


def test_the_invariant_finds_what_does_not_add_up() -> None:
    connection = server()
    call = call_of(connection.receive(request()))
    call.state = CallState.ANSWERED
    with pytest.raises(GemelError, match="is over is still"):
        connection.check()
    connection = client()
    pending, _ = ask(connection)
    pending.state = PendingState.LOST
    with pytest.raises(GemelError, match="is over is still"):
        connection.check()
    connection = client()
    ask(connection)
    serving = server()
    call_of(serving.receive(request()))
    for closed in (connection, serving):
        closed.closed = "gone"
        with pytest.raises(GemelError, match="in flight"):
            closed.check()


def test_what_a_revision_is_assumed_to_be_is_a_handshake_one() -> None:
    assert ASSUMED_REVISION == V2025_03
    assert HANDSHAKE.latest == V2025_11
