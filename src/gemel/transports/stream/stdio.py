"""Serving over standard input and output, which belong to the protocol while the server runs.

Specification: Transports, section "stdio".
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
from collections.abc import Iterator

from gemel.channel import Serve
from gemel.protocol.http.request import Principal
from gemel.protocol.limits import DEFAULT_LIMITS, Limits
from gemel.protocol.records import origin_of
from gemel.signals import announce_stop, stop_on_signals
from gemel.standard_streams import own_streams
from gemel.transports.stream.blocking import open_descriptors
from gemel.transports.stream.descriptors import DescriptorTransport
from gemel.transports.stream.line_channel import LineChannel

#: Seconds for running calls if a signal arrives after the end of the input.
LAST_MOMENT = 0.5
#: Milliseconds after which the thread that waits for a hang-up notices that serving has ended.
_HANGUP_INTERVAL = 1_000


async def serve_stdio(
    serve: Serve,
    *,
    limits: Limits = DEFAULT_LIMITS,
    principal: Principal | str | None = None,
    streams: tuple[int, int] | None = None,
) -> None:
    """Serve one session over standard input and output until it ends.

    Standard input may be a pipe, a socket, a terminal, a file or /dev/null. At its end, running calls are answered (for at
    most `limits.drain` seconds), then this returns. SIGINT and SIGTERM do the same, with half a second left if the input
    had ended before; a second signal kills the process. Meanwhile file descriptor 1 is standard error and descriptor 0 is
    empty, so that neither `print` nor child processes interfere; both are restored at the end.

    Args:
        serve: Starts a session over a channel.
        limits: Limits of messages and calls.
        principal: Who the client is, with which scopes; by default whoever started the process, who has all scopes.
        streams: What `own_streams` yielded, if the streams are taken already.

    Raises:
        StartError: Standard input or output is closed or already being served.
    """
    with contextlib.nullcontext(streams) if streams is not None else own_streams() as descriptors:
        read_fd, write_fd = map(os.dup, descriptors)  # closed with the channel
        channel = LineChannel("stdio", limits, server=True, origin=origin_of(principal))
        session = serve(channel)
        channel.begin(session)
        transport = open_descriptors(channel, read_fd, write_fd)

        def stop(signal_name: str) -> None:
            channel.stop(f"the server got {signal_name}", LAST_MOMENT if channel.ending else limits.drain)

        def put_back() -> None:
            if isinstance(transport, DescriptorTransport):
                transport.restore_blocking()

        with _announced_hangup(read_fd), stop_on_signals(stop, put_back):
            try:
                await channel.wait_closed()
            finally:
                channel.abort("the server was stopped")
                await channel.wait_closed()
                await session.wait_closed()


@contextlib.contextmanager
def _announced_hangup(fd: int) -> Iterator[None]:
    """Inside the context, announce a stop when the other end of `fd` is closed, even while the event loop is blocked."""
    if not hasattr(select, "poll"):  # Windows
        yield
        return
    loop, served = asyncio.get_running_loop(), threading.Event()

    def wait() -> None:
        poll = select.poll()
        poll.register(fd, 0)  # reports the hang-up only, whatever is left to read
        while not served.is_set():
            if poll.poll(_HANGUP_INTERVAL) and not served.is_set():
                announce_stop(loop)
                return

    threading.Thread(target=wait, name="gemel-hangup", daemon=True).start()
    try:
        yield
    finally:
        served.set()
