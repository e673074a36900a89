"""The handshake era: what is agreed on, what may run before and after it, and how its errors are written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gemel import (
    HeaderMismatch,
    Implementation,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingClientCapability,
    ProtocolError,
    ResourceNotFound,
)
from gemel.protocol.connection import Connection
from gemel.protocol.eras.base import ASSUMED_REVISION, Handshake
from gemel.protocol.eras.handshake import HANDSHAKE, initialize
from gemel.protocol.records import Outgoing
from gemel.protocol.states import HandshakeState
from gemel.schema.lifecycle import ClientCapabilities, InitializeParams, RootsCapability
from gemel.schema.methods import METHODS
from tests.fuzz.ends import ME, description_of
from tests.support import HANDSHAKE_REVISIONS, V2025_03, V2025_11, V2026_07, Call, jsonrpc

THEM = Implementation(name="them", version="2")
THEIRS = ClientCapabilities(roots=RootsCapability())


def params(revision: str = V2025_11) -> InitializeParams:
    return InitializeParams(protocol_version=revision, capabilities=THEIRS, client_info=THEM)


def receive(handshake: Handshake, method: str, request_id: Any) -> Any:
    """What a server of both eras makes of a message at this state of the handshake."""
    text = (
        jsonrpc.encode_notification(method)
        if request_id is None
        else jsonrpc.encode_request(request_id, method, params() if method == "initialize" else {})
    )
    return Connection(description_of(), handshake=handshake).receive(text)


def admitted(handshake: Handshake, method: str, request_id: Any = 1) -> Call:
    call = receive(handshake, method, request_id)
    assert isinstance(call, Call)
    return call


def refused(handshake: Handshake, method: str, request_id: Any) -> int:
    got = receive(handshake, method, request_id)
    assert isinstance(got, Outgoing)
    assert got.error is not None
    return got.error.code


def shaken(revision: str = V2025_11) -> Handshake:
    """Agreed on, and answered."""
    handshake = Handshake()
    admitted(handshake, "initialize")
    handshake.commit(initialize(params(revision), handshake, description_of()))
    return handshake


# ---------------------------------------------------------------- which revision


@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
def test_a_revision_that_we_speak_is_agreed_on(revision: str) -> None:
    """LIFE-04."""
    result = initialize(params(revision), Handshake(), description_of())
    assert result.protocol_version == revision


@pytest.mark.parametrize("asked", [V2026_07, "2031-01-01", "1999-01-01", "", "latest", "2025-11-25 "])
def test_any_other_is_answered_with_our_latest_and_never_with_a_stateless_one(asked: str) -> None:
    """LIFE-04: no error, the client decides."""
    result = initialize(params(asked), Handshake(), description_of())
    assert result.protocol_version == HANDSHAKE.latest == HANDSHAKE_REVISIONS[-1]


def test_the_answer_says_who_we_are_and_what_we_offer() -> None:
    """LIFE-06, EXT-03."""
    description = description_of()
    description.instructions = "Be kind."
    description.extensions = lambda name: {"extensions": {"com.example/x": {"era": name.name}}}
    result = initialize(params(), Handshake(), description)
    assert (result.server_info, result.instructions) == (ME, "Be kind.")
    assert result.capabilities.extensions == {"com.example/x": {"era": "2025"}}


def test_nothing_is_agreed_before_the_answer_is_out() -> None:
    handshake = Handshake()
    assert admitted(handshake, "initialize").inline
    result = initialize(params("2024-11-05"), handshake, description_of())
    assert (handshake.revision, handshake.client_info, handshake.open) == (ASSUMED_REVISION, None, False)
    handshake.commit(result)
    assert (handshake.revision, handshake.client_info, handshake.capabilities) == ("2024-11-05", THEM, THEIRS)
    assert handshake.open


def test_what_the_answer_says_counts_whoever_wrote_it() -> None:
    """A middleware may have chosen another revision; reply and state can't differ."""
    for answer in ({"protocolVersion": V2025_03}, initialize(params(V2025_03), Handshake(), description_of())):
        handshake = Handshake()
        admitted(handshake, "initialize")
        handshake.commit(answer)
        assert handshake.revision == V2025_03


@pytest.mark.parametrize("answer", [None, {}, 7, {"protocolVersion": V2026_07}, {"protocolVersion": ["x"]}])
def test_an_answer_without_a_handshake_revision_agrees_on_nothing(answer: Any) -> None:
    handshake = Handshake()
    admitted(handshake, "initialize")
    with pytest.raises(InvalidRequest):
        handshake.commit(answer)
    assert not handshake.open


# ---------------------------------------------------------------- what may run when


@pytest.mark.parametrize("method", [*METHODS, "acme/do"])
def test_only_the_handshake_and_ping_may_come_first(method: str) -> None:
    """PING-01."""
    always = method in ("initialize", "ping", "notifications/cancelled")
    assert HANDSHAKE.needs_handshake(method) is (not always)


def test_requests_may_run_before_the_client_has_said_that_it_is_ready() -> None:
    handshake = shaken()
    assert (handshake.open, handshake.state) == (True, HandshakeState.NEGOTIATED)
    handshake.finish()
    assert (handshake.open, handshake.state) == (True, HandshakeState.READY)


def test_a_second_handshake_replaces_what_the_first_agreed_on() -> None:
    """But not while the first is being answered."""
    handshake = Handshake()
    admitted(handshake, "initialize")
    assert refused(handshake, "initialize", 2) == -32600
    handshake = shaken(V2025_11)
    handshake.log_level = "error"
    admitted(handshake, "initialize")
    assert not handshake.open
    assert handshake.client_info is None
    assert handshake.declared is None
    assert handshake.log_level is None


def test_a_client_that_is_ready_too_early_or_twice_changes_nothing() -> None:
    handshake = Handshake()
    admitted(handshake, "notifications/initialized", None)
    handshake.finish()
    assert handshake.state is HandshakeState.NEW
    assert admitted(handshake, "notifications/initialized", 1).inline is False  # as a request it is no such thing
    assert handshake.state is HandshakeState.NEW


def test_a_call_is_of_the_revision_that_was_agreed_on() -> None:
    """VER-20: the assumed one before that."""
    assert admitted(Handshake(), "ping").revision == ASSUMED_REVISION == V2025_03
    for revision in HANDSHAKE_REVISIONS:
        call = admitted(shaken(revision), "tools/list", "a")
        assert (call.id, call.method, call.era, call.revision) == ("a", "tools/list", HANDSHAKE, revision)


@pytest.mark.parametrize("named", [*HANDSHAKE_REVISIONS, V2026_07, "2031-01-01", None])
def test_a_request_that_stands_alone_is_of_the_revision_of_its_header(named: str | None) -> None:
    """VER-18, VER-20."""
    handshake = Handshake()
    handshake.assume(named)
    assert handshake.revision == (named if named in HANDSHAKE_REVISIONS else ASSUMED_REVISION)
    assert handshake.open


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ResourceNotFound("x:y"), -32002),
        (MissingClientCapability({"roots": {}}), -32600),
        (InvalidParams("no"), -32602),
        (MethodNotFound("x"), -32601),
        (HeaderMismatch("no"), -32020),
        (ProtocolError("mine", code=7), 7),
    ],
)
def test_errors_have_the_codes_of_the_era_and_ride_on_success(error: ProtocolError, code: int) -> None:
    """RES-06: codes of the stateless era mean nothing to a handshake client."""
    written, status = HANDSHAKE.finish_error(error)
    assert (written.error.code, status) == (code, 200)
    assert (written.error.message, written.error.data) == (error.error.message, error.error.data)


def test_a_resource_that_is_missing_is_named() -> None:
    """RES-06."""
    written, _ = HANDSHAKE.finish_error(ResourceNotFound("x:y"))
    assert json.loads(jsonrpc.encode_failure(1, written.error))["error"]["data"] == {"uri": "x:y"}
