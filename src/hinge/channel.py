"""The two faces between a transport and the kernel, and nothing else.

A transport makes a Channel, calls `serve(channel)` and gets a Conversation. Then it only feeds:

    got = conversation.receive(data, origin)      # decides, synchronously; never raises
    if isinstance(got, Outgoing): send it         # a refusal that needs no handler
    elif got is not None:                         # a Call (or a Batch of them)
        reply = await conversation.answer(got)    # in a task of its own on a pipe, in the request's own task on HTTP
        if reply is not None: send it             # None: a notification, or cancelled meanwhile

When the other side sends nothing more it calls `conversation.end_input(reason)`; when it is gone,
`conversation.close(reason)`; no answers leave after that.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Literal, Protocol, TypeAlias

from hinge.protocol.calls import Batch, Call, Inbound, Origin, Outgoing
from hinge.protocol.eras.base import EraOption

#: Where a channel stands on HTTP: "post" carries one message and ends, "session" lives across requests.
ChannelKind: TypeAlias = Literal["memory", "stdio", "socket", "post", "session"]


class Channel(Protocol):
    """What carries messages, seen by the session that speaks over it."""

    @property
    def kind(self) -> ChannelKind:
        """Which sort of channel; sessions treat "post" as one-shot (no handshake, no duplicate ids to fear)."""
        ...

    async def send(self, message: Outgoing, /) -> None:
        """Carry the message away; wait while the reader is slow.

        On a pipe it returns when the message is in the pipe's buffer. On a client's HTTP channel, a request returns when
        its exchange is over: every message of the answer has been given to `conversation.receive` by then.

        Raises ChannelClosed if the message never left, ConnectionLost if it left and the rest is unknown.
        """

    async def close(self) -> None:
        """End the channel and free what it holds. May be called twice and from any task."""

    def close_stream(self, call: Call, retry_ms: int, /) -> bool:
        """Close the response stream of a call that goes on, so that its client resumes it after `retry_ms` milliseconds.

        Returns False where there is no stream that can be resumed (Streamable HTTP, "Resumability and Redelivery").
        """
        ...

    def set_revision(self, revision: str, /) -> None:
        """A client's handshake negotiated this revision; HTTP names it in a header from now on."""


class Conversation(Protocol):
    """What a session is to a transport."""

    def receive(self, data: bytes | Inbound, origin: Origin = ..., /) -> Call | Batch | Outgoing | None:
        """Take one message and decide what it means. Never raises, never waits."""
        ...

    async def answer(self, call: Call | Batch, /) -> Outgoing | None:
        """Serve it to its end; exactly one reply, or None for a notification or when it was cancelled meanwhile."""
        ...

    def cancel(self, call: Call | Batch, reason: str, /) -> None:
        """The caller is gone: stop the handler, answer nothing."""

    def end_input(self, reason: str, /) -> None:
        """The other side will send nothing more, but still reads: fail what we wait for, end what never ends by itself.

        Calls that run may still be answered.
        """

    def expire(self, reason: str, /) -> list[Outgoing]:
        """Stop the calls that still run; returns an error response for each."""
        ...

    def close(self, reason: str, /) -> bool | None:
        """The channel is gone: fail what we wait for, stop what we serve. Twice is fine. False: `finish` may be left out."""
        ...

    async def finish(self) -> None:
        """After close: wait (bounded) until handlers have stopped and clean-up has run."""


#: Given by the kernel to a transport: start a conversation over this channel.
Serve: TypeAlias = Callable[[Channel], Conversation]


class Transport(Protocol):
    """A client's way to one server: it opens a channel and feeds the conversation that `serve` returns.

    Derive your own from it: methods that only some transports need have defaults.
    """

    @property
    def era(self) -> EraOption:
        """The only era that the transport can carry, or "auto"."""
        return "auto"

    def running(self) -> AbstractAsyncContextManager[None]:
        """Entered around each connection: the life of a server in this process."""
        return nullcontext()

    def older(self) -> Transport | None:
        """A transport to the same server for one that refuses this one; None if there is none."""
        return None

    async def open(self, serve: Serve, /) -> Channel:
        """Open the channel, start feeding, return it. Raises ConnectFailed with the reason and what to do."""
        ...
