"""What channels that carry many messages have in common: memory, byte streams, HTTP+SSE, transports of one's own."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gemel import jsonrpc
from gemel.channel import SessionLike
from gemel.errors import Overloaded, ProtocolError, shorten
from gemel.protocol.limits import Limits
from gemel.protocol.peer_log import warn_about_peer
from gemel.protocol.records import UNKNOWN_ORIGIN, Batch, Call, LostAnswer, Origin, Outgoing

logger = logging.getLogger("gemel")


def _ignore(_data: object, _origin: object, /) -> None:
    """Receives messages before the session begins and after it is over."""


class ByteBudget:
    """Bytes that several channels keep: of incomplete lines, and of messages that are held back.

    Args:
        total: Bytes.
        channels: Maximum number of channels: an equal part is free for each.
    """

    __slots__ = ("_part", "_total", "used")

    def __init__(self, total: int, channels: int) -> None:
        self._total = total
        self._part = total // max(channels, 1)
        #: Bytes that are in use.
        self.used = 0

    def has_room(self, now: int, more: int) -> bool:
        """Whether a channel may keep more bytes. What one channel keeps alone is never too much."""
        return self.used + more <= max(self._total, now + more) or now + more <= self._part

    def change(self, before: int, now: int) -> bool:
        """A channel keeps more or less than before. Returns False if that is too much."""
        self.used += now - before
        return self.has_room(now, 0)


class DuplexChannel:
    """One end of a channel that carries many messages both ways, for clients and servers.

    It feeds its session, serves each call in a task of its own, sends the replies, holds messages back while `initialize` is being
    answered, and lets calls finish at the end of the input. A subclass adds what it knows of its transport: `kind`, `send` and
    `close` of a `Channel`, and `reply`, `pause_reading`, `resume_reading` and `end_output`. It calls `begin` once, `feed` for each
    message, `end_input` or `end_session` at the end; then `session.wait_closed()` is awaited.

    Args:
        limits: Limits of messages and calls.
        server: Whether this is the server's end: at the end of its input a server still answers what it was asked, for at
            most `limits.drain` seconds; a client closes.
        origin: What is known about the sender of every message.

    Attributes:
        limits: Limits of messages and calls.
        reason: Why the channel ended, as waiting calls are told; None while it is open.
        failure: What broke the channel, for telemetry; None if it is open or ended regularly.
    """

    limits: Limits
    reason: str | None
    failure: BaseException | None

    def __init__(self, limits: Limits, *, server: bool, origin: Origin = UNKNOWN_ORIGIN) -> None:
        self.limits = limits
        self.reason = None
        self.failure = None
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._origin = origin
        self._session: SessionLike | None = None
        self._receive: Callable[[Any, Origin], Call | Batch | Outgoing | None] = _ignore
        #: What is being served, by which task; None while its task is made.
        self._running: dict[Call | Batch, asyncio.Task[None] | None] = {}
        self._held_back = False
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        #: Whether reading is stopped until the backlog is shorter.
        self._holding = False
        self._input_over: str | None = None
        self._warnings = 0
        self._drain: asyncio.TimerHandle | None = None

    def set_revision(self, revision: str, /) -> None:
        """See Channel: these channels send no headers.

        Args:
            revision: The revision.
        """

    def close_stream(self, call: Call, retry_ms: int, /) -> bool:
        """See Channel: responses have no streams of their own here.

        Args:
            call: The call.
            retry_ms: Milliseconds.

        Returns:
            False.
        """
        return False

    # ---------------------------------------------------------------- what a subclass implements

    def reply(self, message: Outgoing, *, last: bool) -> None:
        """Send the response to a call, without waiting. Not called after the end of the channel.

        Replies that the peer doesn't take must not pile up: stop reading while there are many.

        Args:
            message: The response.
            last: Whether no other call is being served, so that a buffer may be flushed.
        """
        raise NotImplementedError

    def pause_reading(self) -> None:
        """Stop reading: too many messages are held back. What was read already may still be fed."""
        raise NotImplementedError

    def resume_reading(self) -> None:
        """Read again, after `pause_reading`."""
        raise NotImplementedError

    def end_output(self) -> None:
        """The session is over: send what was written, then close the connection. Must not wait."""
        raise NotImplementedError

    # ---------------------------------------------------------------- what a subclass uses

    @property
    def ending(self) -> bool:
        """Whether no more messages are accepted: the input has ended, or the channel."""
        return self._input_over is not None or self.reason is not None

    def begin(self, session: SessionLike) -> None:
        """Feed a session from now on.

        Args:
            session: What `serve(channel)` returned.
        """
        self._session = session
        if self.reason is not None:
            session.close(self.reason)
        else:
            self._receive = session.receive

    def feed(self, data: bytes | LostAnswer) -> Call | Batch | None:
        """Hand over one message, or hold it back while an inline call is being answered.

        Args:
            data: The message, as JSON text. An unreadable one is answered with an error.

        Returns:
            What is being served, if anything.
        """
        if self._held_back and self.reason is None and type(data) is not LostAnswer:
            self._backlog.append(data)
            self._count_backlog(len(data))
            if not self._holding and self._backlog_full:
                self._holding = True
                self.pause_reading()
            return None
        try:
            got = self._receive(data, self._origin)
        except Exception:
            logger.exception("A message could not be processed; it gets no answer")
            return None
        if got is None:
            return None
        if type(got) is Outgoing:
            self.reply(got, last=False)
            return None
        name = got.method if type(got) is Call else "a batch"
        if type(got) is Call and got.id is None and len(self._running) >= 2 * self.limits.calls:
            text = "%s is dropped: too many calls and notifications are being handled"
            self._warnings = warn_about_peer(self._warnings, text, shorten(name))
            return None
        self._held_back = got.inline
        self._running[got] = None
        task = self._loop.create_task(self._serve(got), name=name)
        if not task.done():  # the task factory of the loop may let tasks begin at once
            self._running[got] = task
        return got

    @property
    def is_busy(self) -> bool:
        """Whether a call runs."""
        return bool(self._running)

    def end_input(self, why: str, *, still_reads: bool = False) -> None:
        """The peer sends no more, or the server stops. A server finishes its calls first, then `end_output` is called.

        Args:
            why: The reason of the end.
            still_reads: Whether the peer waits for its responses, however long they take.
        """
        if self.ending:
            return
        self._input_over = why
        if not (self._server and self._running):
            self._shut(why)
            return
        if not still_reads:
            self._drain = self._loop.call_later(self.limits.drain, self._stop_calls, why)
        assert self._session is not None
        self._session.end_input(why)

    def _stop_calls(self, why: str) -> None:
        """The drain time is over: answer each call that still runs with an error."""
        if self._session is not None and self.reason is None:
            for reply in self._session.stop(why):
                self.reply(reply, last=True)
            for data in self._backlog:
                with suppress(ProtocolError):
                    message = jsonrpc.decode(data)
                    if isinstance(message, jsonrpc.Request):
                        error = Overloaded(f"Not started: {why}").error
                        self.reply(Outgoing(jsonrpc.encode_failure(message.id, error), message.id), last=True)
        self._shut(why)

    def end_session(self, reason: str) -> bool:
        """Close the session, because the connection is gone or this end leaves. Nothing is fed or answered afterwards.

        Args:
            reason: Why, for whoever waits for an answer of the peer.

        Returns:
            False if it was closed before.
        """
        if self.reason is not None:
            return False
        self.reason = reason
        self._receive = _ignore
        self._backlog.clear()
        self._count_backlog(-self._backlog_bytes)
        if self._drain is not None:
            self._drain.cancel()
            self._drain = None
        if self._session is not None:
            self._session.close(reason)
        return True

    def _shut(self, reason: str) -> None:
        if self.end_session(reason):
            self.end_output()

    async def _serve(self, call: Call | Batch) -> None:
        assert self._session is not None
        reply = None
        try:
            reply = await self._session.answer(call)
        except GeneratorExit:
            raise  # the task is being destroyed: it can't answer
        except BaseException as exc:
            reply = Outgoing.interrupted(call)
            if not isinstance(exc, Exception):
                raise
            logger.exception("A call failed outside of its handler")
        finally:
            del self._running[call]
            if reply is not None and self.reason is None:
                last = not self._running
                self.reply(reply, last=last and reply.follow is None)
                if reply.follow is not None:
                    self.reply(reply.follow, last=last)
            if call.inline:
                self._feed_held_back()
            if self._input_over is not None and not self._running:
                self._shut(self._input_over)

    def _feed_held_back(self) -> None:
        self._held_back = False
        while self._backlog and not self._held_back:
            data = self._backlog.popleft()
            self._count_backlog(-len(data))
            self.feed(data)
        if self._holding and not self._backlog_full:
            self._holding = False
            self.resume_reading()

    def _count_backlog(self, change: int) -> None:
        """Count bytes of messages that are held back."""
        self._backlog_bytes += change

    @property
    def _backlog_full(self) -> bool:
        return len(self._backlog) >= self.limits.backlog or self._backlog_bytes > self.limits.line
