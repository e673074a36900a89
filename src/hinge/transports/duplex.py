"""What every channel that lives longer than one message does with a conversation: feed it, serve each call in a task,
park what follows an inline call, let calls finish at the end. Knows neither bytes on a wire nor sockets.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from hinge.channel import Conversation
from hinge.protocol.calls import UNKNOWN_ORIGIN, Batch, Call, Origin, Outgoing
from hinge.protocol.limits import Limits

logger = logging.getLogger("hinge")


def _deaf(_data: object, _origin: object, /) -> None:
    """What receives when the conversation is over: nobody."""


class Pump:
    """One end of a long-lived channel at work. A channel inherits it, says how a reply leaves and input is held back.

    `server` tells what the end of the input means: a server still answers what it was asked (for at most
    `limits.drain` seconds), a client has nothing more to hear.
    """

    def __init__(self, limits: Limits, *, server: bool, origin: Origin = UNKNOWN_ORIGIN) -> None:
        self.limits = limits
        #: Why the channel ended; None while it hasn't. It is what waiting calls are told.
        self.reason: str | None = None
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._origin = origin
        self._conversation: Conversation | None = None
        self._receive: Callable[[bytes, Origin], Call | Batch | Outgoing | None] = _deaf
        self._running: dict[Call | Batch, asyncio.Task[None]] = {}
        self._parked = False
        self._backlog: deque[bytes] = deque()
        self._input_over: str | None = None
        self._drain: asyncio.TimerHandle | None = None

    # What a channel supplies.

    def _reply(self, message: Outgoing, *, last: bool) -> None:
        """Send an answer without waiting; `last`: no other call is being served, so no other answer will come soon."""
        raise NotImplementedError

    def _hold(self) -> None:
        """Take in no more messages: the backlog is full."""
        raise NotImplementedError

    def _release(self) -> None:
        """Go on taking messages."""
        raise NotImplementedError

    def _end_output(self) -> None:
        """The conversation is over: let out what was written, then end the channel."""
        raise NotImplementedError

    # What a channel uses.

    @property
    def ending(self) -> bool:
        """Whether no more messages are taken: the input is over, or everything is."""
        return self._input_over is not None or self.reason is not None

    def begin(self, conversation: Conversation) -> None:
        """Feed this conversation from now on."""
        self._conversation = conversation
        if self.reason is not None:
            conversation.close(self.reason)
        else:
            self._receive = conversation.receive

    def feed(self, data: bytes) -> None:
        """Hand over one message, or park it while an inline call is being answered (A-032)."""
        if self._parked:
            self._backlog.append(data)
            if len(self._backlog) == self.limits.backlog:
                self._hold()
            return
        try:
            got = self._receive(data, self._origin)
        except Exception:
            logger.exception("A message could not be handed over; it gets no answer")
            return
        if got is None:
            return
        if type(got) is Outgoing:
            self._reply(got, last=False)
            return
        name = got.method if type(got) is Call else "a batch"
        self._running[got] = self._loop.create_task(self._serve(got), name=name)
        self._parked = got.inline

    def end_input(self, why: str) -> None:
        """No more messages will come. A server finishes what it is doing; `why` is the reason given at the end."""
        if self.ending:
            return
        self._input_over = why
        if not (self._server and self._running):
            self._shut(why)
            return
        self._drain = self._loop.call_later(self.limits.drain, self._expire, why)
        assert self._conversation is not None
        self._conversation.end_input(why)

    def _expire(self, why: str) -> None:
        """The drain time is over: what still runs gets its one answer, an error."""
        if self._conversation is not None and self.reason is None:
            for reply in self._conversation.expire(why):
                self._reply(reply, last=True)
        self._shut(why)

    def end_conversation(self, reason: str) -> bool:
        """Close the conversation; True the first time. Nothing is fed and nothing answered after this."""
        if self.reason is not None:
            return False
        self.reason = reason
        self._receive = _deaf
        self._backlog.clear()
        if self._drain is not None:
            self._drain.cancel()
            self._drain = None
        if self._conversation is not None:
            self._conversation.close(reason)
        return True

    def _shut(self, reason: str) -> None:
        if self.end_conversation(reason):
            self._end_output()

    async def _serve(self, call: Call | Batch) -> None:
        assert self._conversation is not None
        reply = None
        try:
            reply = await self._conversation.answer(call)
        except GeneratorExit:
            raise  # nothing can be said any more: the task is being thrown away
        except BaseException as exc:
            reply = Outgoing.interrupted(call)
            if not isinstance(exc, Exception):
                raise
            logger.exception("A call ended without an answer of its own")
        finally:
            del self._running[call]
            if reply is not None and self.reason is None:
                last = not self._running
                self._reply(reply, last=last and reply.follow is None)
                if reply.follow is not None:
                    self._reply(reply.follow, last=last)
            if call.inline:
                self._unpark()
            if self._input_over is not None and not self._running:
                self._shut(self._input_over)

    def _unpark(self) -> None:
        self._parked = False
        held = len(self._backlog) >= self.limits.backlog
        while self._backlog and not self._parked:
            self.feed(self._backlog.popleft())
        if held and len(self._backlog) < self.limits.backlog:
            self._release()
