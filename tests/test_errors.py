"""The error tree and the one map to the wire."""

from __future__ import annotations

import logging

import pytest

from gemel import (
    AuthorizationFailed,
    CallError,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    HeaderMismatch,
    HttpStatus,
    InternalError,
    InvalidArguments,
    InvalidEnvelope,
    InvalidParams,
    InvalidRequest,
    InvalidResponse,
    MethodNotFound,
    MissingClientCapability,
    NotFinished,
    NotSent,
    Outcome,
    ParseError,
    PeerError,
    ProtocolError,
    ResourceNotFound,
    ToolCallError,
    UnsupportedVersion,
    WrongUrl,
    errors,
)
from gemel.errors import wire_error
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS


@pytest.mark.parametrize(
    ("error", "code", "modern", "handshake"),
    [
        (ParseError("x"), -32700, 400, 200),
        (InvalidRequest("x"), -32600, 400, 200),
        (MethodNotFound("x"), -32601, 404, 200),
        (InvalidParams("x"), -32602, 200, 200),
        (InvalidEnvelope("x"), -32602, 400, 200),
        (InvalidArguments(["x"]), -32602, 200, 200),
        (ResourceNotFound("x"), -32602, 200, 200),
        (InternalError(), -32603, 200, 200),
        (HeaderMismatch("x"), -32020, 400, 200),
        (MissingClientCapability({"sampling": {}}), -32021, 400, 200),
        (UnsupportedVersion("x", []), -32022, 400, 200),
        (WrongUrl("x"), -32600, 400, 400),
        (NotFinished("x"), 504, 200, 200),
        (ProtocolError("x", code=-32601), -32601, 404, 200),
        (ProtocolError("x", code=-32021), -32021, 400, 200),
        (ProtocolError("x", code=1234), 1234, 200, 200),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ProtocolError) else None,
)
def test_the_status_follows_from_the_error(error: ProtocolError, code: int, modern: int, handshake: int) -> None:
    """MHTTP-14, MHTTP-15, ERR-01, ERR-02, ERR-03, ERR-04, ERR-05, ERR-06, ERR-07, ERR-08, ERR-18, REQM-04:
    a handler's error in the handshake era rides on 200.
    """
    assert error.error.code == code
    assert STATELESS.finish_error(error)[1] == modern
    assert HANDSHAKE.finish_error(error)[1] == handshake


def test_a_missing_resource_has_its_own_code_before_the_stateless_era() -> None:
    """RES-05, RES-06, ERR-09."""
    error = ResourceNotFound("file:///x")
    assert STATELESS.finish_error(error)[0].error.code == -32602
    assert HANDSHAKE.finish_error(error)[0].error.code == -32002
    assert HANDSHAKE.finish_error(error)[0].error.data == {"uri": "file:///x"}


def test_codes_of_the_stateless_era_never_reach_a_handshake_client() -> None:
    error = HANDSHAKE.finish_error(MissingClientCapability({"sampling": {}}))[0].error
    assert error.code == -32600
    assert error.data == {"requiredCapabilities": {"sampling": {}}}


def test_a_protocol_error_goes_out_as_it_is() -> None:
    error = MissingClientCapability({"elicitation": {"url": {}}})
    assert wire_error(error) is error


def test_anything_else_is_an_internal_error_and_its_text_stays_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="gemel"):
        error = wire_error(RuntimeError("the password is 1234"), "tools/call")
    assert error.error.code == -32603
    assert error.error.message == "Internal server error"
    assert "tools/call failed: the password is 1234" in caplog.text
    assert caplog.records[0].exc_info is not None


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NotSent("x"), Outcome.NOT_SENT),
        (ConnectFailed("x"), Outcome.NOT_SENT),
        (AuthorizationFailed("x"), Outcome.NOT_SENT),
        (PeerError(errors.ErrorObject(-1, "no")), Outcome.ANSWERED),
        (PeerError(NotFinished("x").error), Outcome.UNKNOWN),
        (InvalidResponse("x"), Outcome.ANSWERED),
        (ToolCallError("x", None), Outcome.ANSWERED),
        (ConnectionLost("x"), Outcome.UNKNOWN),
        (CallTimeout("x"), Outcome.UNKNOWN),
        (HttpStatus("x", 500, {}), Outcome.ANSWERED),
        (HttpStatus("x", 502, {}), Outcome.UNKNOWN),
        (HttpStatus("x", 504, {}), Outcome.UNKNOWN),
    ],
)
def test_every_failed_call_says_how_far_it_got(error: CallError, outcome: Outcome) -> None:
    assert error.outcome is outcome


def test_an_error_made_here_has_no_code_that_a_peer_could_have_sent() -> None:
    """ERR-14."""
    for local in (NotSent("x"), ConnectionLost("x"), CallTimeout("x"), InvalidResponse("x")):
        assert not hasattr(local, "code")


def test_callers_own_text_is_echoed_only_in_part() -> None:
    long = "x" * 10_000
    assert len(str(UnsupportedVersion(long, []).error.data)) < 300
    assert len(str(MethodNotFound(long).error.data)) <= 200
    assert len(errors.shorten(long)) == 200
