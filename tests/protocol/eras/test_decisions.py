"""What the eras decide differently: one table with a column for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from gemel import GemelError, Implementation, InvalidRequest, InvalidResponse, Tool
from gemel.jsonrpc import Notification, Request
from gemel.protocol.eras.base import ASSUMED_REVISION, Era, Handshake
from gemel.protocol.eras.handshake import HANDSHAKE, initialize
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.states import HandshakeState
from gemel.schema.base import RequestMeta
from gemel.schema.lifecycle import ClientCapabilities, InitializeParams, RootsCapability
from gemel.schema.tools import ListToolsResult
from tests.fuzz.ends import ME, description_of
from tests.support import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    PROTOCOL_VERSION,
    V2025_03,
    V2025_06,
    V2025_11,
    V2026_07,
    EmptyResult,
    head_of,
)

THEM = Implementation(name="them", version="2")
THEIRS = ClientCapabilities(roots=RootsCapability())
NEW = Handshake
REQUEST = Request(1, "acme/do")
NOTIFICATION = Notification("notifications/acme")
META = RequestMeta(client_capabilities=Raw(b'{"roots":{}}'))
PROGRESS = "notifications/progress"
MESSAGE = "notifications/message"
TOOLS = "notifications/tools/list_changed"
CANCELLED = "notifications/cancelled"
LISTEN = "subscriptions/listen"


def agreed(revision: str = V2025_11, log_level: str | None = None) -> Handshake:
    """After the handshake."""
    return Handshake(HandshakeState.READY, revision, THEM, THEIRS, log_level)


Decide = Callable[[Era], Any]


@pytest.mark.parametrize(
    ("decide", "handshake", "stateless"),
    [
        # Which messages are handled.
        (lambda era: era.needs_handshake("tools/list"), True, False),
        (lambda era: era.needs_handshake("ping"), False, False),
        (lambda era: era.admit_from_server("x", 1, agreed(V2025_03)), V2025_03, None),
        (lambda era: era.admit_from_server("x", None, agreed(V2025_03)), V2025_03, V2026_07),
        (lambda era: era.check_response(), None, InvalidRequest),
        # JSON arrays: only in 2025-03-26. On a connection the handshake decides, else the header does.
        (lambda era: era.allows_batch(None, agreed("2024-11-05"), False), False, False),
        (lambda era: era.allows_batch(None, agreed(V2025_03), False), True, False),
        (lambda era: era.allows_batch(V2025_03, agreed(V2025_11), True), False, False),
        (lambda era: era.allows_batch(None, NEW(), True), True, False),
        (lambda era: era.allows_batch(V2025_03, NEW(), True), True, False),
        (lambda era: era.allows_batch(V2025_06, NEW(), True), False, False),
        (lambda era: era.allows_batch(None, NEW(), False), False, False),
        (lambda era: era.allows_batch(V2025_03, NEW(), False), False, False),
        # Who the client is, and what it wants.
        (lambda era: era.client_info(None, agreed()), THEM, None),
        (lambda era: era.client_capabilities(None, agreed()), THEIRS, ClientCapabilities()),
        (lambda era: era.client_capabilities(RequestMeta(), agreed()), THEIRS, ClientCapabilities()),
        (lambda era: era.raw_client_capabilities(META), None, Raw(b'{"roots":{}}')),
        (lambda era: era.raw_client_capabilities(None), None, None),
        (lambda era: era.log_level(None, agreed(), "info"), "info", None),
        (lambda era: era.log_level(None, agreed(), None), None, None),
        (lambda era: era.log_level(None, agreed(log_level="error"), "info"), "error", None),
        # What a server may send.
        (lambda era: era.may_request_input("tools/call"), True, True),
        (lambda era: era.may_request_input("tools/list"), True, False),
        (lambda era: era.may_request_input("acme/do"), True, False),
        (lambda era: era.check_server_request("roots/list"), None, GemelError),
        (lambda era: era.may_notify(PROGRESS, "tools/call"), True, True),
        (lambda era: era.may_notify(MESSAGE, "tools/call"), True, True),
        (lambda era: era.may_notify(TOOLS, "tools/call"), True, False),
        (lambda era: era.may_notify(CANCELLED, "tools/call"), True, False),
        (lambda era: era.may_notify(PROGRESS, LISTEN), True, False),
        (lambda era: era.may_notify(MESSAGE, LISTEN), True, False),
        (lambda era: era.may_notify(TOOLS, LISTEN), True, True),
        (lambda era: era.may_notify(CANCELLED, LISTEN), True, False),
        # What a client sends. Over HTTP, closing the response cancels a request, unless a session goes on.
        (lambda era: era.request_meta(V2025_11, ME, ClientCapabilities()).keys() - {PROTOCOL_VERSION}, set(), {
            CLIENT_CAPABILITIES, CLIENT_INFO,
        }),
        (lambda era: era.cancels_by_message(False, NEW()), True, True),
        (lambda era: era.cancels_by_message(False, agreed()), True, True),
        (lambda era: era.cancels_by_message(True, NEW()), False, False),
        (lambda era: era.cancels_by_message(True, agreed()), True, False),
        (lambda era: era.mirrors_requests(True), False, True),
        (lambda era: era.mirrors_requests(False), False, False),
        # Results, as a client sees them.
        (lambda era: era.may_cache({}), False, True),
        (lambda era: era.may_cache({"_meta": {}}), False, False),
        (lambda era: era.read_result_type(Raw(b'{"resultType":"job"}'), "x"), "job", "job"),
        (lambda era: era.read_result_type(Raw(b"{}"), "x"), "complete", "complete"),
        (lambda era: era.read_result_type(Raw(b'{"resultType":7}'), "x"), "complete", InvalidResponse),
        (lambda era: era.read_result_type(Raw(b"[]"), "x"), "complete", InvalidResponse),
        (lambda era: era.requires_input("input_required"), False, True),
        (lambda era: era.requires_input("complete"), False, False),
        (lambda era: era.check_unknown_result_type("job", "x"), None, InvalidResponse),
        # Names.
        (lambda era: era.name, "2025", "2026"),
        (lambda era: era.negotiation_method, "initialize", ""),
        (lambda era: era.liveness_method, "ping", "server/discover"),
        (lambda era: era.http_methods, ("GET", "POST", "DELETE"), ("POST",)),
        (lambda era: era.latest, V2025_11, V2026_07),
    ],
)  # fmt: skip
def test_each_era_decides(decide: Decide, handshake: Any, stateless: Any) -> None:
    for era, expected in ((HANDSHAKE, handshake), (STATELESS, stateless)):
        if isinstance(expected, type):
            with pytest.raises(expected):
                decide(era)
        else:
            got = decide(era)
            assert (type(got), got) == (type(expected), expected)


def test_elicitations_have_ids_that_nobody_can_guess_in_the_handshake_era_only() -> None:
    ids = {HANDSHAKE.elicitation_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(one is not None and len(one) >= 22 for one in ids)
    assert STATELESS.elicitation_id() is None


@pytest.mark.parametrize(
    ("message", "one_shot", "version", "before", "state", "revision"),
    [
        (Request(1, "initialize"), False, None, NEW(), HandshakeState.NEGOTIATING, ASSUMED_REVISION),
        (Request(1, "initialize"), True, V2025_11, NEW(), HandshakeState.NEGOTIATING, ASSUMED_REVISION),
        # A notification of that name negotiates nothing, as it is not answered.
        (Notification("initialize"), False, None, NEW(), HandshakeState.NEW, ASSUMED_REVISION),
        # A POST that stands alone continues a handshake that took place elsewhere.
        (REQUEST, True, V2025_06, NEW(), HandshakeState.READY, V2025_06),
        (REQUEST, True, None, NEW(), HandshakeState.READY, ASSUMED_REVISION),
        (NOTIFICATION, True, V2025_06, NEW(), HandshakeState.READY, V2025_06),
        (REQUEST, True, V2025_06, agreed(V2025_03), HandshakeState.READY, V2025_03),
        (REQUEST, False, V2025_06, NEW(), HandshakeState.NEW, ASSUMED_REVISION),
        # It counts where it is served, inside of the middleware.
        (
            Notification("notifications/initialized"), False, None,
            Handshake(HandshakeState.NEGOTIATED, V2025_11), HandshakeState.NEGOTIATED, V2025_11,
        ),
        (
            Request(1, "notifications/initialized"), False, None,
            Handshake(HandshakeState.NEGOTIATED, V2025_11), HandshakeState.NEGOTIATED, V2025_11,
        ),
        (
            Notification(CANCELLED), False, None,
            Handshake(HandshakeState.NEGOTIATED, V2025_11), HandshakeState.NEGOTIATED, V2025_11,
        ),
        (Notification("notifications/initialized"), False, None, NEW(), HandshakeState.NEW, ASSUMED_REVISION),
    ],
)  # fmt: skip
def test_what_a_message_does_to_a_handshake(
    message: Request | Notification,
    one_shot: bool,
    version: str | None,
    before: Handshake,
    state: HandshakeState,
    revision: str,
) -> None:
    handshake = Handshake(before.state, before.revision)
    head = None if version is None else head_of({"mcp-protocol-version": version})
    request_id = message.id if isinstance(message, Request) else None
    assert HANDSHAKE.admit(message.method, request_id, None, head, handshake, (), one_shot) == revision
    assert (handshake.state, handshake.revision) == (state, revision)


def test_a_refused_handshake_leaves_nothing_to_the_next_one() -> None:
    """Such as the client's name, if a middleware answers in place of the server."""
    handshake = Handshake()
    HANDSHAKE.admit("initialize", 1, None, None, handshake, (), False)
    initialize(
        InitializeParams(protocol_version=V2025_11, capabilities=THEIRS, client_info=THEM), handshake, description_of()
    )
    handshake.move("refused")
    HANDSHAKE.admit("initialize", 2, None, None, handshake, (), False)
    handshake.commit({"protocolVersion": V2025_11})
    assert (handshake.client_info, handshake.capabilities) == (None, ClientCapabilities())


def test_a_result_has_the_members_of_its_revision() -> None:
    tools = ListToolsResult(tools=[Tool(name="a", title="A", input_schema={"type": "object"})])
    for revision, keeps in ((V2025_03, False), (V2025_11, True)):
        assert (b"title" in msgspec.json.encode(HANDSHAKE.finish_result(tools, revision, {}))) is keeps
    empty = EmptyResult()
    assert HANDSHAKE.finish_result(empty, V2025_11, {}) == empty
    assert HANDSHAKE.finish_result({"own": 1}, V2025_11, {}) == {"own": 1}
    assert STATELESS.finish_result([1], V2026_07, {}) == [1]
    tools = ListToolsResult(
        tools=[Tool(name="a", input_schema={"type": "object"}, execution={"taskSupport": "optional"})]
    )
    for era, revision, keeps in ((HANDSHAKE, V2025_11, True), (STATELESS, V2026_07, False)):
        assert (b"taskSupport" in msgspec.json.encode(era.finish_result(tools, revision, {}))) is keeps
