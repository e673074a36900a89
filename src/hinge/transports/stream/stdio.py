"""A server's own standard input and output as a channel. While it serves, they belong to the protocol alone."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator

from hinge.channel import Serve
from hinge.errors import StartError
from hinge.protocol.limits import DEFAULT_LIMITS, Limits
from hinge.signals import stop_on_signals
from hinge.standard_streams import fill_standard_descriptors
from hinge.transports.stream.blocking import open_descriptors
from hinge.transports.stream.descriptors import DescriptorTransport
from hinge.transports.stream.line_channel import LineChannel

#: Seconds that running calls still have when a signal comes after the end of the input: the client is losing patience.
LAST_MOMENT = 0.5

_taken = False


def require_standard_streams() -> None:
    """Raise StartError if standard input or output is closed; where standard error is, /dev/null takes its place.

    To be called before an event loop is made, like `fill_standard_descriptors`.
    """
    for name, stream in (("input", sys.__stdin__), ("output", sys.__stdout__)):
        if stream is None:
            raise StartError(
                f"Standard {name} is closed, so there is nothing to serve on: start the server from an MCP client, "
                "or serve another transport."
            )
    fill_standard_descriptors()


async def serve_stdio(serve: Serve, *, limits: Limits = DEFAULT_LIMITS) -> None:
    """Serve one conversation over standard input and output until it ends.

    Standard input may be a pipe, a socket, a terminal, a file or /dev/null. At its end, the calls that run are answered
    (for at most `limits.drain` seconds), then this returns. SIGINT or SIGTERM do the same, with half a second left if
    the input had ended before; a second signal kills the process. While it serves, file descriptor 1 is standard error
    and descriptor 0 is empty, so that neither prints nor child processes can write or read a message; both are put back
    at the end.

    Raises StartError if standard input or output is closed or already being served.
    """
    with _own_streams() as (read_fd, write_fd):
        channel = LineChannel("stdio", limits, server=True)
        conversation = serve(channel)
        channel.begin(conversation)
        transport = open_descriptors(channel, read_fd, write_fd)

        def stop(signal_name: str) -> None:
            channel.stop(f"the server got {signal_name}", LAST_MOMENT if channel.ending else limits.drain)

        def put_back() -> None:
            if isinstance(transport, DescriptorTransport):
                transport.restore_blocking()

        with stop_on_signals(stop, put_back):
            try:
                await channel.wait_closed()
            finally:
                channel.abort("the server was stopped")
                await channel.wait_closed()
                await conversation.finish()


@contextlib.contextmanager
def _own_streams() -> Iterator[tuple[int, int]]:
    """Descriptors for the protocol, while 0 is /dev/null and 1 is standard error. The caller closes what it gets."""
    global _taken
    if _taken:
        raise StartError("Standard input and output are already being served by this process; serve them once.")
    require_standard_streams()
    read_fd, write_fd = _save(0), _save(1)
    _taken = True
    line_buffered = isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.line_buffering
    null = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(null, 0)
        os.dup2(null if sys.__stderr__ is None else 2, 1)
        _flush_stdout(line_buffering=True)
        yield os.dup(read_fd), os.dup(write_fd)
    finally:
        _flush_stdout(line_buffering=line_buffered)
        os.dup2(read_fd, 0)
        os.dup2(write_fd, 1)
        for fd in (read_fd, write_fd, null):
            os.close(fd)
        _taken = False


def _save(fd: int) -> int:
    """A copy of a standard descriptor that is itself none of the standard ones."""
    copies = [os.dup(fd)]
    while copies[-1] < 3:
        copies.append(os.dup(fd))
    for copy in copies[:-1]:
        os.close(copy)
    return copies[-1]


def _flush_stdout(*, line_buffering: bool) -> None:
    """Let out what was printed, to where descriptor 1 points now; from now on line by line, or as before."""
    with contextlib.suppress(OSError, ValueError):
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=line_buffering)
        elif sys.stdout is not None:
            sys.stdout.flush()
