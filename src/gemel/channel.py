"""What a transport and the kernel know of each other.

A transport makes a Channel and calls `serve(channel)`, which returns a session. It feeds the session with what arrives:

    received = session.receive(data, origin)   # decides synchronously; never raises
    if isinstance(received, Outgoing):
        ...                                    # an error response that needs no handler: send it
    elif received is not None:                 # a Call, or a Batch of them
        reply = await session.answer(received)  # in a task of its own, or in that of the HTTP request
        if reply is not None:
            ...                                # send it; None for a notification or a cancelled call

When the peer sends nothing more, it calls `session.end_input(reason)`; when the peer is gone, `session.close(reason)`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from gemel.loops import Abandoned
from gemel.protocol.eras.base import EraOption
from gemel.protocol.records import Batch, Call, Cancellable, Inbound, Origin, Outgoing

#: The kinds of channels. On HTTP, "post" carries one message and ends, "session" lives across requests. "background" is that of
#: a call that was answered and goes on: nobody reads it.
ChannelKind: TypeAlias = Literal["memory", "stdio", "socket", "post", "session", "background"]


class Channel(Protocol):
    """Carries messages, as its session sees it."""

    @property
    def kind(self) -> ChannelKind:
        """The kind of channel. "post" carries one request, so there is no handshake and no other id."""
        ...

    def send(self, message: Outgoing, /) -> Awaitable[None]:
        """Send a message; wait while the reader is slow.

        On a byte stream it returns when the message is in the stream's buffer. On a client's HTTP channel, a request
        returns when its exchange is over: all messages of the response were passed to `session.receive` by then.

        Raises:
            ChannelClosed: The message was not sent.
            ConnectionLost: It was sent, and its response is lost.
        """
        ...

    async def close(self) -> None:
        """End the channel and free what it holds. May be called twice and from any task."""

    def close_stream(self, call: Call, retry_ms: int, /) -> bool:
        """Close the response stream of a call that goes on, so that its client resumes it after `retry_ms` milliseconds.

        Returns False where there is no stream that can be resumed (Streamable HTTP, "Resumability and Redelivery").
        """
        ...

    def set_revision(self, revision: str, /) -> None:
        """A client's handshake negotiated this revision; HTTP names it in a header from now on."""


@runtime_checkable
class StreamChannel(Channel, Protocol):
    """A channel over a byte stream: it can be open although the peer is gone."""

    #: Set when bytes arrive; liveness checks reset it.
    has_received: bool

    def abort(self, reason: str, /) -> None:
        """End the channel at once."""


@runtime_checkable
class ImmediateChannel(Channel, Protocol):
    """A channel that can send without waiting."""

    def send_now(self, data: bytes, method: str, /) -> bool:
        """Send an encoded notification. Returns False if that would have to wait, or fail: `send` waits, or says why not."""
        ...


@runtime_checkable
class DetachableChannel(ImmediateChannel, Protocol):
    """A channel of one call that can wait without a task: for calls that last. What it sends belongs to the call."""

    @property
    def can_detach(self) -> bool:
        """Whether the handler of the call may raise `Detached`."""
        ...

    def detach(self) -> None:
        """Let the call go on without a task when the present one is over, until `resume`."""

    def resume(self) -> None:
        """Serve the detached call again, in a new task."""


@runtime_checkable
class AbandonableChannel(Protocol):
    """A client's channel that holds more than memory, such as a child process or sockets."""

    def abandon(self, why: Abandoned, /) -> None:
        """Free it without the event loop, which runs no more. Never waits. After a fork the parent goes on using it."""


class Detached(Exception):
    """Raised by a handler that has nothing to do for now. Its call goes on without a task, until `DetachableChannel.resume`.

    Then the handler is called again, unless the call is over.

    Args:
        work: Cancelled if the call is cancelled meanwhile; resumes it after its own clean-up.
        on_detached: Called when nothing else but the channel has to be told.
    """

    def __init__(self, work: Cancellable, on_detached: Callable[[], object]) -> None:
        self.work = work
        self.on_detached = on_detached


class SessionLike(Protocol):
    """A session, as a transport sees it."""

    def receive(self, data: bytes | Inbound, origin: Origin = ..., /) -> Call | Batch | Outgoing | None:
        """Take one message and decide what it means. Never raises, never waits."""
        ...

    async def answer(self, call: Call | Batch, /) -> Outgoing | None:
        """Serve a call. Returns its response, or None for a notification or a cancelled call."""
        ...

    def cancel(self, call: Call | Batch, reason: str, /) -> None:
        """Cancel a call whose caller is gone. It gets no response."""

    def end_input(self, reason: str, /) -> None:
        """The peer sends nothing more, but still reads: fail our requests, end open streams, let calls finish."""

    def expire(self, reason: str, /) -> list[Outgoing]:
        """Stop the calls that still run; returns an error response for each."""
        ...

    def close(self, reason: str, /) -> bool | None:
        """The channel is gone: fail our requests, cancel calls. May be called twice. False: `finish` is not needed."""
        ...

    async def finish(self) -> None:
        """After `close`: wait, for a bounded time, until handlers have stopped and clean-up has run."""


#: Starts a session over a channel; the kernel passes it to a transport.
Serve: TypeAlias = Callable[[Channel], SessionLike]


class Transport(Protocol):
    """Connects a client to one server: opens a channel and feeds the session that `serve` returns.

    Derive your own from it: methods that only some transports need have defaults.
    """

    @property
    def era(self) -> EraOption:
        """The era that the transport is limited to, or "auto"."""
        return "auto"

    def running(self) -> AbstractAsyncContextManager[None]:
        """Entered around each connection; runs the lifespan of a server in this process."""
        return nullcontext()

    def older(self) -> Transport | None:
        """A transport to the same server for one that refuses this one; None if there is none."""
        return None

    @property
    def extensions(self) -> Mapping[str, Mapping[str, Any]]:
        """The extensions that the client declares because of how the transport authorizes, with their settings."""
        return {}

    async def credentials(self) -> str:
        """What identifies the caller of a request that is sent now, as an opaque text; "" if it never changes.

        A transport that returns another text sets `Pending.credentials` of each request to what it was sent with.
        """
        return ""

    async def open(self, serve: Serve, /) -> Channel:
        """Open the channel, start feeding, return it. Raises ConnectFailed with the reason and what to do."""
        ...
