"""Ports that tests reserve: nobody else gets them, and the server that they are meant for can listen there."""

from __future__ import annotations

import socket
import sys

import pytest

from gemel.transports.http.server.run import bind, unbind
from tests.ports import free_port
from tests.transports.loops import on_both_loops


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port can't be kept")
def test_a_reserved_port_is_given_to_nobody_else() -> None:
    ports = [free_port() for _ in range(5)]
    assert len(set(ports)) == 5
    with socket.socket() as greedy, pytest.raises(OSError, match="in use"):
        greedy.bind(("127.0.0.1", ports[0]))
    with socket.socket() as client, pytest.raises(ConnectionRefusedError):
        client.connect(("127.0.0.1", ports[0]))


@on_both_loops
async def test_a_server_listens_at_a_reserved_port_again_and_again() -> None:
    port = free_port()
    for _ in range(2):
        listening = bind("127.0.0.1", port, None)
        assert listening[0].getsockname()[1] == port
        unbind(listening, None)
