"""Connections for the fuzz tests: what a server offers, and a handshake done by hand. No event loop anywhere.

`GEMEL_FUZZ=50 python -m pytest tests/fuzz` tries fifty times as much, and something new each time; so does
`make test GEMEL_FUZZ=3`.
"""

from __future__ import annotations

import os
from typing import Any

from gemel import Implementation
from gemel.protocol.connection import Connection
from gemel.protocol.description import ServerDescription
from gemel.protocol.eras.detect import parse_eras
from gemel.protocol.eras.handshake import HANDSHAKE, initialize
from gemel.schema.lifecycle import ClientCapabilities, InitializeParams, ServerCapabilities
from tests.support import Call, jsonrpc

ME = Implementation(name="fuzz", version="1")

_TIMES = int(os.environ.get("GEMEL_FUZZ", "1"))


class Work:
    """Stands for the task that serves a call, and counts how often it is cancelled."""

    def __init__(self) -> None:
        self.cancelled = 0

    def cancel(self) -> None:
        self.cancelled += 1


def examples(number: int) -> int:
    """How many examples a test tries: so many that the whole suite takes seconds, unless more is asked for."""
    return number * _TIMES


def description_of(eras: Any = ("2025", "2026")) -> ServerDescription:
    """What a server of these eras says of itself."""
    return ServerDescription(ME, ServerCapabilities, eras=parse_eras(eras))


def hello(revision: str = HANDSHAKE.latest) -> InitializeParams:
    """What a client says first."""
    return InitializeParams(protocol_version=revision, capabilities=ClientCapabilities(), client_info=ME)


def initialize_result(connection: Connection, revision: str = HANDSHAKE.latest) -> Any:
    """What the handler of `initialize` returns."""
    assert connection.description is not None
    return initialize(hello(revision), connection.handshake, connection.description)


def shake_hands(server: Connection, revision: str = HANDSHAKE.latest) -> None:
    """Bring a server's end to where requests may run."""
    call = server.receive(jsonrpc.encode_request("hello", "initialize", hello(revision)))
    assert isinstance(call, Call)
    assert call.inline
    assert server.answer(call, initialize_result(server, revision)) is not None
    done = server.receive(jsonrpc.encode_notification("notifications/initialized"))
    assert isinstance(done, Call)
    server.answer(done, None)
    assert server.handshake.open
