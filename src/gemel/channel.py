"""What a transport and the kernel know of each other; docs/reference/transports.md explains it for transports of one's own.

A transport makes a Channel and calls `serve(channel)`, which returns a session. It feeds the session with what arrives:

    received = session.receive(data, origin)   # decides synchronously; never raises
    if isinstance(received, Outgoing):
        ...                                    # an error response that needs no handler: send it
    elif received is not None:                 # a Call, or a Batch of them
        # If `received.inline`, no further message is passed to `receive` before the reply was sent.
        reply = await session.answer(received)  # in a task of its own, or in that of the HTTP request
        if reply is not None:
            ...                                # send it, then `reply.follow`; None for a notification or a cancelled call

When the peer sends nothing more, it calls `session.end_input(reason)`; when the peer is gone, `session.close(reason)`, and then
`await session.wait_closed()`. `DuplexChannel` does all of this except for `wait_closed`, for transports that carry many messages
both ways.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Protocol, TypeAlias, runtime_checkable

from gemel.loops import Abandoned
from gemel.protocol.deviations import Deviation
from gemel.protocol.eras.base import EraOption
from gemel.protocol.records import Batch, Call, Cancellable, Inbound, Origin, Outgoing

#: The kind of a channel: "memory", "stdio", "socket", or a name of your own for another transport, such as "websocket". On HTTP,
#: "post" carries one message and ends, "session" lives across requests. "background" is that of a call that was answered and
#: goes on: nobody reads it.
ChannelKind: TypeAlias = str


class Channel(Protocol):
    """Carries messages, as its session sees it. Its methods are called in the event loop of the session."""

    @property
    def kind(self) -> ChannelKind:
        """The kind of channel, as telemetry records it.

        "post" carries one request, so there is no handshake and no other id. "session" is a session of Streamable HTTP. All
        other kinds, those of your own too, carry many messages both ways.
        """
        ...

    def send(self, message: Outgoing, /) -> Awaitable[None]:
        """Send a message; wait while the reader is slow, for a limited time.

        Replies to calls don't pass through here: `session.answer` returns them to the transport. On a byte stream it returns
        when the message is in the stream's buffer. On a client's HTTP channel, a request returns when its exchange is over:
        all messages of the response were passed to `session.receive` by then.

        Args:
            message: What is to be sent; `message.data` is its JSON text.

        Raises:
            ChannelClosed: The message was not sent.
            ConnectionLost: It was sent, and its response is lost.
        """
        ...

    async def close(self) -> None:
        """End the channel and free what it holds. May be called twice and from any task."""

    def close_stream(self, call: Call, retry_ms: int, /) -> bool:
        """Close the response stream of a call that goes on, so that its client resumes it.

        Args:
            call: The call.
            retry_ms: Milliseconds after which the client is asked to resume.

        Returns:
            Whether it was closed: False where there is no stream that can be resumed (Streamable HTTP, "Resumability and
            Redelivery").
        """
        ...

    def set_revision(self, revision: str, /) -> None:
        """A client's handshake negotiated a revision; HTTP names it in a header from now on.

        Args:
            revision: The revision, such as "2025-11-25".
        """


@runtime_checkable
class StreamChannel(Channel, Protocol):
    """A channel over a byte stream: it can be open although the peer is gone."""

    #: Set when bytes arrive; liveness checks reset it.
    has_received: bool

    def abort(self, reason: str, /) -> None:
        """End the channel at once."""


@runtime_checkable
class ProcessChannel(Channel, Protocol):
    """A client's channel to a child process, whose standard error people see.

    A client asks for this interface, so that it loads nothing of child processes to reach a server over HTTP.
    """

    def hold_stderr(self) -> None:
        """Hold back what the process writes to standard error from now on."""

    def release_stderr(self, *, without: str | None = None) -> None:
        """Show what was held back, and what comes from now on.

        Args:
            without: What was written from the first mention of this text on is only logged, at level DEBUG; None shows all.
        """


@runtime_checkable
class ImmediateChannel(Channel, Protocol):
    """A channel that can send without waiting."""

    def send_now(self, data: bytes, method: str, /) -> bool:
        """Send an encoded notification. Returns False if that would have to wait, or fail: `send` waits, or says why not."""
        ...


@runtime_checkable
class DetachableChannel(ImmediateChannel, Protocol):
    """A channel of one call that can wait without a task: for calls that last. What it sends belongs to the call.

    A server asks for this interface, so that it loads nothing of HTTP to serve another transport.
    """

    @property
    def can_detach(self) -> bool:
        """Whether the handler of the call may raise `Detached`."""
        ...

    def detach(self) -> None:
        """Let the call go on without a task when the current one is over, until `resume`."""

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
    """A session, as a transport sees it: `Server.serve` returns one for a server, a client passes `serve` to its transport."""

    def receive(self, data: bytes | Inbound, origin: Origin = ..., /) -> Call | Batch | Outgoing | None:
        """Take one message and decide what it means. Never raises, never waits.

        Args:
            data: The message, as JSON text.
            origin: Who sent it; nobody who is known, by default.

        Returns:
            What is to be passed to `answer`, an error response that is to be sent, or None if nothing is left to do. While a
            call with `inline` is being answered, no further message may be passed to `receive`: hold it back.
        """
        ...

    async def answer(self, call: Call | Batch, /) -> Outgoing | None:
        """Serve a call, in the task that serves nothing else meanwhile.

        Args:
            call: What `receive` returned.

        Returns:
            The response, which is to be sent, and then its `follow` if it has one; None for a notification or a cancelled
            call.
        """
        ...

    def note(self, deviation: str, detail: str = "", /) -> None:
        """Note that the peer deviated from the specification and was understood all the same.

        Args:
            deviation: One of `gemel.protocol.deviations.DEVIATIONS`.
            detail: What it sent.
        """

    def cancel(self, call: Call | Batch, reason: str, /) -> None:
        """Cancel a call whose caller is gone. It gets no response.

        Args:
            call: What `receive` returned.
            reason: Why, for the log.
        """

    def end_input(self, reason: str, /) -> None:
        """The peer sends nothing more, but still reads: fail our requests, end open streams, let calls finish.

        Args:
            reason: Why, for whoever waits for an answer of the peer.
        """

    def stop(self, reason: str, /) -> list[Outgoing]:
        """Stop the calls that still run.

        Args:
            reason: Why, for their errors.

        Returns:
            An error response for each, which is to be sent.
        """
        ...

    def close(self, reason: str, /) -> bool | None:
        """The channel is gone: fail our requests, cancel calls. May be called twice.

        Args:
            reason: Why, for whoever waits for an answer of the peer.

        Returns:
            Whether `wait_closed` has something to wait for; None if that is not known.
        """
        ...

    async def wait_closed(self) -> None:
        """After `close`: wait until handlers have stopped and clean-up has run, `limits.teardown` seconds each at most."""


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

    @property
    def deviations(self) -> Iterable[Deviation]:
        """How servers that are asked for a login deviate from the specification, for `client.warnings`."""
        return ()

    async def credentials(self) -> str:
        """What identifies the caller of a request that is sent now, as an opaque text; "" if it never changes.

        A transport that returns another text sets `Pending.credentials` of each request to what it was sent with.
        """
        return ""

    async def open(self, serve: Serve, /) -> Channel:
        """Open the channel, start feeding the session, return the channel.

        Args:
            serve: Starts the session over the channel.

        Returns:
            The channel.

        Raises:
            ConnectFailed: With the reason and what to do.
        """
        ...
