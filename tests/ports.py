"""Ports for servers that are started with a number. Where a server can say which port it took, 0 is better."""

from __future__ import annotations

import socket
import sys

#: Bound until this process ends, by their descriptors.
RESERVED: dict[int, socket.socket] = {}


def free_port() -> int:
    """A loopback port that stays ours until this process ends.

    Between the choice of a port and the start of its server, another test could get it: it would be given to the next
    socket that asks for any port, also as the port of an outgoing connection. On Linux a socket that is bound and does not
    listen keeps it: a server that sets SO_REUSEADDR, as nearly all do, can still listen there.
    """
    reserved = socket.socket()
    if sys.platform == "linux":
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        RESERVED[reserved.fileno()] = reserved
    reserved.bind(("127.0.0.1", 0))
    port: int = reserved.getsockname()[1]
    if sys.platform != "linux":
        reserved.close()
    return port
