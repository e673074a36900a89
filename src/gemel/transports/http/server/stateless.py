"""A POST that stands alone: the stateless era on HTTP, and handshake clients of a server without HTTP sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial

from gemel.channel import ChannelKind, Serve, SessionLike
from gemel.errors import ChannelClosed
from gemel.protocol.http import sse
from gemel.protocol.http.headers import Head
from gemel.protocol.http.media_types import BOTH, TAKES_EVENTS, TAKES_JSON
from gemel.protocol.records import Batch, Call, Inbound, Origin, Outgoing, Record
from gemel.transports.http.server.exchange import EXPIRED, STOPPING_ANSWER, Exchange
from gemel.transports.http.server.open_exchanges import OpenExchanges


def serve_stateless(
    serve: Serve, requests: OpenExchanges, exchange: Exchange, head: Head, origin: Origin, inbound: Inbound | bytes
) -> Awaitable[None]:
    """Serve the message of a POST of the stateless era, unless its head bars it or the server is stopping."""
    if head.stateless_refusal is not None:
        return exchange.refuse(head.stateless_refusal, inbound)
    if requests.stopping:
        return exchange.refuse(STOPPING_ANSWER, inbound)
    if origin.caller is not None:
        exchange.origin = origin
    return PostChannel(serve, exchange, BOTH, True).answer(inbound, origin)


class PostChannel(Record):
    """The channel of one POST. The call runs in the task of the request, or waits without one; nothing is queued."""

    _serve: Serve
    _exchange: Exchange
    accepts: int
    #: Whether a disconnect cancels the call: it does in the stateless era and does not in the handshake era.
    _cancels: bool
    call: Call | Batch | None = None
    conversation: SessionLike | None = None
    kind: ChannelKind = "post"

    async def answer(self, inbound: Inbound | bytes, origin: Origin) -> None:
        """Serve and answer what was received, or go on with the call if it was detached."""
        exchange, call = self._exchange, self.call
        self.conversation = conversation = self.conversation or self._serve(self)
        received = conversation.receive(inbound, origin) if call is None else call
        try:
            if received is None:
                await exchange.empty(202)
            elif type(received) is Outgoing:
                await exchange.answer(received)
            elif type(received) is Call and received.id is None:
                call = received
                await exchange.empty(202)
                await conversation.answer(call)
            else:
                self.call = call = received
                exchange.owner = self
                try:
                    reply = await conversation.answer(call)
                except asyncio.CancelledError:  # answer first; the request ends here either way
                    reply = Outgoing.interrupted(call)
                if exchange.detached or exchange.over:  # it waits, or its client has left
                    return
                if reply is None:
                    reply = Outgoing.unfinished(call, "the server is stopping")
                if self.accepts & TAKES_JSON or reply.status == 403:
                    await exchange.answer(reply)
                else:
                    await exchange.end(sse.encode(reply.data))
        finally:
            if not exchange.detached:
                if exchange.large_body is not None and call is not None:
                    exchange.large_body.hold_for(call)
                if conversation.close("the POST is answered") is not False:
                    await conversation.wait_closed()
                # Breaks reference cycles; the garbage collector would have to find them for each request.
                self.call = self.conversation = None

    # ---------------------------------------------------------------- Channel

    def set_revision(self, revision: str, /) -> None:
        """See Channel: a server sends no revision."""

    def close_stream(self, call: Call, retry_ms: int, /) -> bool:
        """See Channel: this stream can not be resumed."""
        return False

    async def send(self, message: Outgoing, /) -> None:
        """Carry a notification. The first one turns the answer into an event stream."""
        if message.pending is not None:
            raise ChannelClosed("this client can't be sent requests: each of its POSTs stands alone")
        if self.accepts & TAKES_EVENTS:
            await self._exchange.write(sse.encode(message.data))

    def send_now(self, data: bytes, method: str, /) -> bool:
        """Carry a notification on an event stream that has begun, if that needs no waiting. Returns whether it did."""
        return self._exchange.write_now(sse.encode(data))

    @property
    def can_detach(self) -> bool:
        """Whether the call may go on without a task."""
        return self._exchange.raw.can_detach

    def detach(self) -> None:
        """Go on without a task when the current one is over."""
        self._exchange.detach()

    def resume(self) -> None:
        """Serve the detached call again, in a new task."""
        assert isinstance(self.call, Call)
        self._exchange.resume(partial(self.answer, self.call, self.call.origin))

    async def close(self) -> None:
        """End the call if it still runs."""
        self.stop("the channel was closed")

    def stop(self, reason: str) -> None:
        """Cancel the handler if it still runs."""
        if self.call is not None and self.conversation is not None:
            self.conversation.cancel(self.call, reason)

    # ---------------------------------------------------------------- ExchangeOwner

    def disconnected(self, reason: str) -> None:
        """Cancel the call, or let it run to its end."""
        if self._cancels:
            self.stop(reason)

    def expired(self) -> None:
        """End a subscription with its result; other calls were authorized when they came, and finish."""
        if self.conversation is not None:
            self.conversation.end_input(EXPIRED)

    def unfinished(self, reason: str) -> Outgoing | None:
        """The answer for a handler that does not stop."""
        return None if self.call is None else Outgoing.unfinished(self.call, reason)

    def opening(self) -> bytes:
        """A stream of the stateless era has no ids and no retry: it can't be resumed."""
        return b""
