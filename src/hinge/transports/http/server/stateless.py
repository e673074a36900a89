"""A POST that stands alone: a channel that carries one message and ends. All of the stateless era on HTTP, and
handshake clients of a server without sessions. Must not know what messages mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from hinge import jsonrpc
from hinge.channel import ChannelKind, Conversation, Serve
from hinge.errors import ChannelClosed, InternalError
from hinge.protocol.calls import Batch, Call, Inbound, Origin, Outgoing, Record
from hinge.protocol.http import sse
from hinge.protocol.http.media_types import TAKES_EVENTS, TAKES_JSON
from hinge.transports.http.server.exchange import STOPPING, Exchange


def refusal_of(call: Call | Batch) -> Outgoing:
    """What a caller is told whose call the server itself ended: nobody else will ever answer it (ERR-17)."""
    request_id = call.id if isinstance(call, Call) else None
    error = InternalError(STOPPING.text)
    return Outgoing.failure(jsonrpc.encode_failure(request_id, error.error), request_id, error, 503)


class Post(Record):
    """The channel of one POST. The call runs in the request's own task; nothing is queued."""

    _exchange: Exchange
    _takes: int
    #: Whether a client that leaves cancels its call: the opposite in the two eras (T-13).
    _cancels: bool
    call: Call | Batch | None = None
    gone_because: str = ""
    conversation: Conversation | None = None
    kind: ChannelKind = "post"

    async def run(self, serve: Serve, inbound: Inbound | bytes, origin: Origin) -> None:
        """Feed the message, serve it, answer it."""
        exchange = self._exchange
        conversation = self.conversation = serve(self)
        call = conversation.receive(inbound, origin)
        try:
            if type(call) is Outgoing:
                await exchange.reply(call.status, call.data)
            elif call is None:
                await exchange.empty(202)
            elif type(call) is Call and call.id is None:
                await exchange.empty(202)
                await conversation.answer(call)
            else:
                self.call = call
                exchange.owner = self
                exchange.may_stream = self._takes & TAKES_EVENTS != 0
                try:
                    reply = await conversation.answer(call)
                except asyncio.CancelledError:  # the answer goes out first, and the request ends here either way
                    reply = Outgoing.interrupted(call)
                if reply is not None or not exchange.over:
                    await self._answer(reply or refusal_of(call))
        finally:
            if conversation.close("the POST is answered") is not False:
                await conversation.finish()
            # Each knows the other: a cycle that the garbage collector would have to find, once per request.
            self.conversation = None

    def _answer(self, reply: Outgoing) -> Awaitable[None]:
        exchange = self._exchange
        if self._takes & TAKES_JSON and not exchange.streaming:
            return exchange.reply(reply.status, reply.data)
        return exchange.end(sse.encode(reply.data))

    # ---------------------------------------------------------------- the channel

    async def send(self, message: Outgoing, /) -> None:
        """Carry a notification; the answer becomes an event stream with the first one."""
        if message.pending is not None:
            raise ChannelClosed("a client that calls by single POSTs can't be asked: no answer would find its way")
        if self.call is None:
            raise ChannelClosed(self.gone_because or "there is no call that it could belong to")
        if self._takes & TAKES_EVENTS:
            await self._exchange.write(sse.encode(message.data))

    async def close(self) -> None:
        """End the call, if it still runs."""
        self.stop("the channel was closed")

    def stop(self, reason: str) -> None:
        """Stop the handler, if it still runs."""
        if self.call is not None and self.conversation is not None:
            self.conversation.cancel(self.call, reason)

    # ---------------------------------------------------------------- the exchange

    def gone(self, reason: str) -> None:
        """The client left: cancelled, or run to the end for nobody."""
        self.gone_because = reason
        if self._cancels:
            self.stop(reason)

    def opening(self) -> bytes:
        """No ids, no retry: this stream can't be resumed (MHTTP-11, T-14)."""
        return b""
