"""The fuzz invariant: any bytes become a message or a ProtocolError, nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemel import InvalidRequest, ParseError, ProtocolError
from gemel.protocol.connection import Connection
from gemel.protocol.eras import detect
from gemel.protocol.http.headers import Head
from tests.fuzz import messages
from tests.fuzz.ends import description_of, examples, shake_hands
from tests.support import (
    Batch,
    Call,
    Failure,
    Notification,
    Origin,
    Outgoing,
    Request,
    Response,
    head_of,
    jsonrpc,
)

_headers = st.fixed_dictionaries(
    {}, optional={"mcp-protocol-version": messages.revisions, "mcp-method": messages.methods}
).map(lambda found: head_of({name: str(value) for name, value in found.items()}))
origins = st.none() | _headers


def parsed(data: bytes) -> Any:
    """Python's own reading, which stops at numbers that are too long for it."""
    return json.loads(data, parse_int=lambda digits: int(digits) if len(digits) < 4000 else digits)


@settings(max_examples=examples(300), deadline=None)
@given(messages.texts)
def test_any_bytes_decode_to_a_message_or_a_protocol_error(data: bytes) -> None:
    """BASE-01, BASE-02."""
    try:
        message = jsonrpc.decode(data)
    except (ParseError, InvalidRequest):
        return
    assert isinstance(message, Request | Notification | Response | Failure)
    found = parsed(data)
    assert found["jsonrpc"] == "2.0"
    if isinstance(message, Request | Notification):
        assert message.method == found["method"]
        assert not {"result", "error"} & found.keys()
    if isinstance(message, Request | Response):
        assert message.id == found["id"]
        assert type(message.id) is type(found["id"])


@settings(max_examples=examples(300), deadline=None)
@given(messages.texts)
def test_any_bytes_become_a_message_or_a_protocol_error(data: bytes) -> None:
    try:
        message = jsonrpc.decode(data)
    except ProtocolError:
        return
    if isinstance(message, Request | Notification):
        eras = detect.parse_eras(("2025", "2026"))
        for header in (None, "2031-01-01", ""):
            assert detect.classify(message, eras, header).era in eras


@pytest.mark.long
@pytest.mark.parametrize("eras", [("2025",), ("2026",), ("2025", "2026"), ()])
@settings(max_examples=examples(75), deadline=None)
@given(
    texts=st.lists(messages.texts, min_size=1, max_size=6),
    headers=origins,
    one_shot=st.booleans(),
    opened=st.booleans(),
)
def test_a_connection_takes_any_bytes_and_never_raises(
    texts: list[bytes], headers: Head | None, eras: Any, one_shot: bool, opened: bool
) -> None:
    """BASE-06: out comes a call, a batch, an error reply or nothing, and the tables stay right."""
    connection = Connection(description_of(eras) if eras else None, one_shot=one_shot and bool(eras))
    if opened and eras and "2025" in eras and not one_shot:
        shake_hands(connection)
    pending = [connection.register_request("ping") for _ in range(2)] if not eras else []
    for data in texts:
        got = connection.receive(data, Origin(headers))
        assert got is None or isinstance(got, Call | Batch | Outgoing)
        if isinstance(got, Outgoing):
            _is_an_error_reply(got, data)
        connection.check()
    connection.close("the end")
    connection.check()
    assert all(one.error is not None or one.result for one in pending)


def _is_an_error_reply(reply: Outgoing, data: bytes) -> None:
    sent = json.loads(reply.data)
    assert sent["error"]["code"] < 0
    assert sent.get("id") == reply.id
    if reply.id is None:
        return
    try:
        asked = parsed(data)["id"]
    except (ValueError, RecursionError):  # the id could be read all the same
        assert isinstance(reply.id, str) or str(reply.id).encode() in data
        return
    assert asked == reply.id
    assert type(asked) is type(reply.id)
