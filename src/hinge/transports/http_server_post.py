"""A POST that stands alone: a channel that carries one message and ends. All of the stateless era on HTTP, and
handshake clients of a server without sessions. Must not know what messages mean.
"""

from __future__ import annotations

from hinge import jsonrpc
from hinge.errors import ChannelClosed, InternalError
from hinge.protocol import sse
from hinge.protocol.events import Batch, Call, Inbound, Origin, Outgoing
from hinge.protocol.media_types import TAKES_EVENTS, TAKES_JSON
from hinge.transports.channel import ChannelKind, Conversation, Serve
from hinge.transports.http_server_exchange import STOPPING, Exchange


def refusal_of(call: Call | Batch) -> Outgoing:
    """What a caller is told whose call the server itself ended: nobody else will ever answer it (ERR-17)."""
    request_id = call.id if isinstance(call, Call) else None
    error = InternalError(STOPPING.text)
    return Outgoing.failure(jsonrpc.encode_failure(request_id, error.error), request_id, error, 503)


class Post:
    """The channel of one POST. The call runs in the request's own task; nothing is queued."""

    __slots__ = ("_cancels", "_exchange", "_takes", "call", "conversation", "gone_because")

    kind: ChannelKind = "post"

    def __init__(self, exchange: Exchange, serve: Serve, *, takes: int, cancels: bool) -> None:
        self._exchange = exchange
        self._takes = takes
        #: Whether a client that leaves cancels its call: the opposite in the two eras (T-13).
        self._cancels = cancels
        self.call: Call | Batch | None = None
        self.gone_because = ""
        self.conversation: Conversation = serve(self)

    async def run(self, inbound: Inbound | bytes, origin: Origin) -> None:
        """Feed the message, serve it, answer it."""
        conversation = self.conversation
        exchange = self._exchange
        call = conversation.receive(inbound, origin)
        try:
            if isinstance(call, Outgoing):
                await self._refuse(call)
            elif call is None:
                await exchange.empty(202)
            elif isinstance(call, Call) and call.id is None:
                await exchange.empty(202)
                await conversation.answer(call)
            else:
                self.call = call
                exchange.owner = self
                exchange.may_stream = self._takes & TAKES_EVENTS != 0
                reply = await conversation.answer(call)
                await self._answer(call, reply)
        finally:
            conversation.close("the POST is answered")
            await conversation.finish()
            # Each knows the other: a cycle that the garbage collector would have to find, once per request.
            del self.conversation

    async def _refuse(self, reply: Outgoing) -> None:
        await self._exchange.reply(reply.status, reply.data)

    async def _answer(self, call: Call | Batch, reply: Outgoing | None) -> None:
        exchange = self._exchange
        self.call = None
        if reply is None:
            if exchange.over:
                return
            reply = refusal_of(call)
        if self._takes & TAKES_JSON and not exchange.streaming:
            await exchange.reply(reply.status, reply.data)
        else:
            await exchange.end(sse.encode(reply.data))

    # ---------------------------------------------------------------- the channel

    async def send(self, message: Outgoing, /) -> None:
        """Carry a notification; the answer becomes an event stream with the first one."""
        if message.pending is not None:
            raise ChannelClosed("a client that calls by single POSTs can't be asked: no answer would find its way")
        if self.call is None:
            raise ChannelClosed(self.gone_because or "the call is answered already")
        if self._takes & TAKES_EVENTS:
            await self._exchange.write(sse.encode(message.data))

    async def close(self) -> None:
        """End the call, if it still runs."""
        self.stop("the channel was closed")

    def stop(self, reason: str) -> None:
        """Stop the handler, if it still runs."""
        if self.call is not None:
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
