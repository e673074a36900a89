"""The pure state of a conversation: who owes what to whom, and how each debt ends. No event loop anywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gemel import ConnectionLost, InvalidParams, Limits, Overloaded
from gemel.protocol.connection import LIVENESS_RESERVE, Connection
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.states import CallState, HandshakeState
from gemel.schema.lifecycle import ClientCapabilities
from gemel.values.encoding import encode_value
from tests.fuzz.ends import ME, Work, description_of, hello, initialize_result, shake_hands
from tests.support import (
    V2025_03,
    V2025_11,
    V2026_07,
    Batch,
    Call,
    Origin,
    Outgoing,
    head_of,
    jsonrpc,
)

META = STATELESS.request_meta(V2026_07, ME, ClientCapabilities())


def server(
    *, shaken: bool = True, revision: str = V2025_11, eras: Any = ("2025", "2026"), **options: Any
) -> Connection:
    connection = Connection(description_of(eras), **options)
    if shaken:
        shake_hands(connection, revision)
    return connection


def client(revision: str | None = V2025_11, **options: Any) -> Connection:
    connection = Connection(None, **options)
    if revision is not None:
        connection.handshake.assume(revision)
    return connection


def request(request_id: Any = 1, method: str = "acme/do", meta: Any = None, **params: Any) -> bytes:
    return jsonrpc.encode_request(request_id, method, {**params, **({"_meta": meta} if meta is not None else {})})


def notice(method: str, **params: Any) -> bytes:
    return jsonrpc.encode_notification(method, params)


def call_of(got: Any) -> Call:
    assert isinstance(got, Call)
    return got


def error_of(got: Any) -> dict[str, Any]:
    assert isinstance(got, Outgoing)
    error: dict[str, Any] = json.loads(got.data)["error"]
    return error


def headers(**values: str) -> Origin:
    return Origin(head_of({name.replace("_", "-"): value for name, value in values.items()}))


# ---------------------------------------------------------------- what we owe


def test_a_call_is_owed_until_it_is_answered_and_then_no_more() -> None:
    """BASE-06, BASE-07."""
    connection = server()
    call = call_of(connection.receive(request("a")))
    assert connection.incoming == {"a": call}
    reply = connection.answer(call, {"x": 1})
    assert reply is not None
    assert json.loads(reply.data) == {"jsonrpc": "2.0", "id": "a", "result": {"x": 1}}
    assert call.state is CallState.ANSWERED
    assert connection.incoming == {}
    assert connection.answer(call, {}) is None
    assert connection.refuse(call, RuntimeError()) is None


def test_a_call_is_not_answered_after_its_cancellation() -> None:
    """CANC-06."""
    connection = server()
    call = call_of(connection.receive(request(1)))
    call.work = work = Work()
    got = connection.receive(notice("notifications/cancelled", requestId=1))
    assert isinstance(got, Call)  # handed on to be observed
    assert (call.state, work.cancelled) == (CallState.CANCELLED, 1)
    assert connection.answer(call, {}) is None
    connection.receive(notice("notifications/cancelled", requestId=1))
    assert work.cancelled == 1


@pytest.mark.parametrize("named", ["1", 1.0, None, True, [1], {"id": 1}, 2])
def test_a_cancellation_names_the_id_in_its_type(named: Any) -> None:
    """CANC-07."""
    connection = server()
    call = call_of(connection.receive(request(1)))
    connection.receive(notice("notifications/cancelled", requestId=named))
    assert call.state is CallState.RUNNING


def test_the_handshake_cannot_be_cancelled_by_the_peer() -> None:
    """CANC-07."""
    connection = server(shaken=False)
    call = call_of(connection.receive(jsonrpc.encode_request(1, "initialize", hello())))
    connection.receive(notice("notifications/cancelled", requestId=1))
    assert call.state is CallState.RUNNING


def test_an_id_in_use_is_refused_where_ids_alone_tell_calls_apart() -> None:
    """BASE-05."""
    connection = server()
    first = call_of(connection.receive(request(1)))
    assert error_of(connection.receive(request(1)))["code"] == -32600
    call_of(connection.receive(request("1")))
    connection.answer(first, {})
    call_of(connection.receive(request(1)))


def test_an_id_in_use_is_fine_where_each_call_has_its_own_stream() -> None:
    """Neither overwrites the other."""
    connection = server(shared=False)
    calls = [call_of(connection.receive(request(1))) for _ in range(3)]
    assert len(connection.incoming) == 3
    for call in (calls[1], calls[0], calls[2]):
        assert connection.answer(call, {}) is not None
        connection.check()
    assert connection.incoming == {}


def test_too_many_calls_at_once_are_refused() -> None:
    connection = server(limits=Limits(calls=2))
    calls = [call_of(connection.receive(request(number))) for number in range(2)]
    refused = error_of(connection.receive(request(9)))
    assert (refused["code"], refused["data"]) == (429, {"retryAfterMs": 1000})
    assert "2 at once is the limit" in refused["message"]
    call_of(connection.receive(notice("notifications/acme")))
    connection.receive(notice("notifications/cancelled", requestId=0))
    assert calls[0].state is CallState.CANCELLED, "at the limit, calls can still be cancelled"
    call_of(connection.receive(request(9)))


def test_params_of_too_many_values_are_refused() -> None:
    connection = server(limits=Limits(values=1000))
    assert error_of(connection.receive(request(1, a=[0] * 5000)))["code"] == -32602
    call_of(connection.receive(request(1, a=["0" * 5000])))


def test_large_requests_are_refused_while_others_take_the_room() -> None:
    """What fits is served; a cancellation of any size always counts, since it makes room."""
    connection = server(limits=Limits(call_bytes=50_000))
    large = request(1, text="x" * 10_000)
    connection.held = 50_000 - len('{"text":""}') - 10_000
    call = call_of(connection.receive(large))
    connection.held += 1
    assert error_of(connection.receive(request(2, text="x" * 10_000)))["code"] == Overloaded.code
    connection.receive(notice("notifications/cancelled", requestId=1, reason="x" * 10_000))
    assert call.state is CallState.CANCELLED


def test_the_handshake_has_a_limit_of_its_own_since_it_is_kept() -> None:
    limits = Limits(handshake_bytes=10_000)
    largest = json.loads(encode_value(hello())) | {"_meta": {"acme/padding": ""}}
    largest["_meta"]["acme/padding"] = "x" * (10_000 - len(encode_value(largest)))
    connection = server(shaken=False, limits=limits)
    larger = largest | {"capabilities": {"roots": {}}}
    assert error_of(connection.receive(request(1, "initialize", **larger)))["code"] == InvalidParams.code
    assert isinstance(connection.receive(request(1, "initialize", **largest)), Call)
    assert isinstance(server(limits=limits).receive(request(1, text="x" * 100_000)), Call)


def test_a_busy_server_still_says_that_it_is_alive() -> None:
    connection = server(limits=Limits(calls=1))
    call_of(connection.receive(request(1)))
    for number in range(LIVENESS_RESERVE):
        assert error_of(connection.receive(request("x")))["code"] == 429
        call_of(connection.receive(request(f"p{number}", "ping")))
    assert error_of(connection.receive(request("p", "ping")))["code"] == 429
    assert LIVENESS_RESERVE == 8


@pytest.mark.parametrize("result", [object(), {"x": object()}, {1: 2, (3,): 4}])
def test_a_result_that_json_cannot_say_is_our_fault(result: Any) -> None:
    connection = server()
    reply = connection.answer(call_of(connection.receive(request())), result)
    assert error_of(reply) == {"code": -32603, "message": "Handler returned an invalid result"}


def test_an_error_with_data_that_json_cannot_say_loses_it() -> None:
    connection = server()
    reply = connection.refuse(call_of(connection.receive(request())), InvalidParams("no", object()))
    assert error_of(reply) == {"code": -32603, "message": "Internal server error"}


def test_notifications_are_owed_nothing() -> None:
    """BASE-10."""
    connection = server()
    call = call_of(connection.receive(notice("notifications/acme")))
    assert connection.incoming == {}
    assert connection.answer(call, {"x": 1}) is None
    assert call.state is CallState.ANSWERED


def test_a_notification_that_is_refused_is_not_answered() -> None:
    """BASE-10: there is no response to a notification, not even an error."""
    connection = server(limits=Limits(values=100))
    values = list(range(5000))
    assert error_of(connection.receive(request(values=values)))["code"] == -32602
    assert connection.receive(notice("notifications/acme", values=values)) is None


def test_a_batch_has_at_most_so_many_messages() -> None:
    connection = server(revision=V2025_03, limits=Limits(batch=2))
    two = b",".join(request(number) for number in (1, 2))
    assert isinstance(connection.receive(b"[%b]" % two), Batch)
    three = b",".join(request(number) for number in (3, 4, 5))
    assert error_of(connection.receive(b"[%b]" % three))["code"] == -32600
    assert set(connection.incoming) == {1, 2}


def test_when_time_is_up_each_call_gets_one_error() -> None:
    connection = server()
    calls = [call_of(connection.receive(request(number))) for number in (1, 2)]
    assert connection.answer(calls[0], {}) is not None
    (reply,) = connection.stop("the server stops")
    assert error_of(reply) == {"code": 504, "message": "Not finished, the outcome is unknown: the server stops"}
    assert connection.answer(calls[1], {}) is None


# ---------------------------------------------------------------- the handshake


def test_a_closed_connection_is_no_longer_open() -> None:
    connection = server()
    assert connection.handshake.open
    connection.close("the client left")
    assert not connection.handshake.open


def test_a_refused_handshake_leaves_no_trace() -> None:
    connection = server(shaken=False)
    for end in ("refuse", "cancel", "unwritable", "wrong"):
        call = call_of(connection.receive(jsonrpc.encode_request(1, "initialize", hello())))
        begun = connection.handshake.state
        assert begun is HandshakeState.NEGOTIATING
        result = initialize_result(connection)
        if end == "refuse":
            connection.refuse(call, InvalidParams("vetoed"))
        elif end == "cancel":
            connection.cancel(call)
        else:
            connection.answer(call, {"protocolVersion": V2025_11, "x": object()} if end == "unwritable" else {})
        assert connection.handshake.state is HandshakeState.NEW
        assert connection.handshake.client_info is None
        assert result
    shake_hands(connection)
    assert connection.handshake.client_info == ME


def test_a_call_that_ends_during_the_handshake_changes_nothing() -> None:
    """PING-01: `ping` may come before `initialize` is answered."""
    connection = server(shaken=False)
    first = call_of(connection.receive(jsonrpc.encode_request(1, "initialize", hello())))
    connection.answer(call_of(connection.receive(request(2, "ping"))), {})
    assert connection.answer(first, initialize_result(connection)) is not None
    assert connection.handshake.state is HandshakeState.NEGOTIATED


def test_a_second_handshake_ends_what_the_first_began() -> None:
    """Stateless calls are not part of it."""
    connection = server()
    running = call_of(connection.receive(request(7)))
    stateless = call_of(connection.receive(request(8, meta=META)))
    asked = connection.register_request("roots/list")
    again = call_of(connection.receive(jsonrpc.encode_request(7, "initialize", hello())))
    assert again.inline
    assert running.state is CallState.CANCELLED
    assert stateless.state is CallState.RUNNING
    assert isinstance(asked.error, ConnectionLost)
    assert connection.handshake.state is HandshakeState.NEGOTIATING
    connection.check()


def test_a_second_handshake_waits_for_the_answer_to_the_first() -> None:
    connection = server(shaken=False)
    call_of(connection.receive(jsonrpc.encode_request(1, "initialize", hello())))
    assert error_of(connection.receive(jsonrpc.encode_request(2, "initialize", hello())))["code"] == -32600
    assert connection.handshake.state is HandshakeState.NEGOTIATING


@pytest.mark.parametrize(("header", "revision"), [(None, V2025_03), ("2025-06-18", "2025-06-18")])
def test_a_post_that_stands_alone_goes_on_without_a_handshake(header: str | None, revision: str) -> None:
    """VER-18, VER-20."""
    connection = server(shaken=False, one_shot=True)
    origin = headers(mcp_protocol_version=header) if header else headers()
    assert call_of(connection.receive(request(), origin)).revision == revision


# ---------------------------------------------------------------- the stateless era


@pytest.mark.parametrize(
    ("meta", "origin", "code", "status"),
    [
        ({}, None, -32602, 400),
        ({"io.modelcontextprotocol/protocolVersion": V2026_07}, None, -32602, 400),
        ({**META, "io.modelcontextprotocol/protocolVersion": 1}, None, -32602, 400),
        ({**META, "io.modelcontextprotocol/clientCapabilities": "x"}, None, -32602, 400),
        (META, headers(), -32020, 400),
        (META, headers(mcp_protocol_version="2031-01-01", mcp_method="acme/do"), -32020, 400),
        (META, headers(mcp_protocol_version=V2026_07), -32020, 400),
        (META, headers(mcp_protocol_version=V2026_07, mcp_method="other"), -32020, 400),
        (
            {**META, "io.modelcontextprotocol/protocolVersion": "2031-01-01"},
            headers(mcp_protocol_version="2031-01-01", mcp_method="acme/do"),
            -32022,
            400,
        ),
        (
            {**META, "io.modelcontextprotocol/protocolVersion": "2031-01-01"},
            headers(mcp_protocol_version=V2026_07, mcp_method="acme/do"),
            -32020,
            400,
        ),
        ({**META, "io.modelcontextprotocol/logLevel": "loud"}, None, -32602, 200),
    ],
)
def test_an_envelope_is_checked_in_the_order_of_the_table(meta: Any, origin: Any, code: int, status: int) -> None:
    """REQM-04, VER-01, ERR-06, ERR-08, LOG-07."""
    connection = server(shaken=False, eras=("2026",), one_shot=True)
    got = connection.receive(request(7, meta=meta), origin or Origin())
    assert isinstance(got, Outgoing)
    assert (error_of(got)["code"], got.status, got.id) == (code, status, 7)


def test_a_complete_envelope_is_a_call_with_its_revision() -> None:
    connection = server(shaken=False)
    origin = headers(mcp_protocol_version=V2026_07, mcp_method="acme/do")
    call = call_of(connection.receive(request(meta=META), origin))
    assert (call.era, call.revision, call.inline) == (STATELESS, V2026_07, False)
    assert connection.handshake.state is HandshakeState.NEW


def test_both_eras_on_one_connection_go_by_their_own_rules() -> None:
    """VER-04, STATE-01."""
    connection = server()
    assert call_of(connection.receive(request(1))).era is HANDSHAKE
    assert call_of(connection.receive(request(2, meta=META))).era is STATELESS
    assert call_of(connection.receive(request(3, "initialize", META))).inline is False


RESPONSES = [b'{"jsonrpc":"2.0","id":1,"result":{}}', b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}']


@pytest.mark.parametrize("response", RESPONSES)
def test_a_server_of_the_stateless_era_alone_takes_no_answers_by_post(response: bytes) -> None:
    """BASE-14: table 4.A, row 7."""
    connection = server(shaken=False, eras=("2026",), one_shot=True)
    got = connection.receive(response)
    assert isinstance(got, Outgoing)
    assert (error_of(got)["code"], got.status) == (-32600, 400)


@pytest.mark.parametrize(("eras", "one_shot"), [(("2026",), False), (("2025", "2026"), True), (("2025",), True)])
def test_a_response_to_no_request_is_ignored_where_responses_may_come(eras: Any, one_shot: bool) -> None:
    """Nothing is ever answered to a response on a stream that both sides share."""
    connection = server(shaken=False, eras=eras, one_shot=one_shot)
    for response in RESPONSES:
        assert connection.receive(response) is None


def test_a_client_of_a_stateless_server_is_asked_nothing() -> None:
    """BASE-14."""
    connection = client()
    connection.era = STATELESS
    assert connection.receive(request(1, "ping")) is None
    assert isinstance(connection.receive(notice("notifications/message", level="info", data=1)), Call)


@pytest.mark.parametrize(("revision", "taken"), [("2025-03-26", False), ("2025-06-18", True), (V2025_11, True)])
def test_a_client_takes_the_requests_of_its_revision_and_notifications_of_any(revision: str, taken: bool) -> None:
    """LIFE-10."""
    connection = client(revision)
    assert isinstance(connection.receive(request(1, "elicitation/create", message="?")), Call) is taken
    done = jsonrpc.encode_notification("notifications/elicitation/complete", {"elicitationId": "1"})
    assert isinstance(connection.receive(done), Call)


def test_a_request_of_a_stateless_server_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    connection = client()
    connection.era = STATELESS
    assert connection.receive(request(1, "roots/list")) is None
    [line] = [record.getMessage() for record in caplog.records]
    assert "roots/list" in line
