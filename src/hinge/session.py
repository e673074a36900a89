"""Runs a Connection over a Channel: tasks, cancellation and time limits.

It decides nothing about the protocol. Whatever a handler, the peer or the channel does, `answer` yields exactly one
reply or none, and `exchange` ends with a result or one plain error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import UNSET, Raw, field

from hinge import jsonrpc
from hinge.channel import Channel
from hinge.errors import CallTimeout, ChannelClosed, ConnectionLost, HingeError, NotSent, as_failure
from hinge.protocol.calls import UNKNOWN_ORIGIN, Batch, Call, Inbound, Origin, Outgoing, Pending, Record
from hinge.protocol.connection import Connection
from hinge.protocol.states import RUNNING, WAITING, HandshakeState
from hinge.signals import is_ctrl_c
from hinge.timeouts import Deadline, Deadlines

logger = logging.getLogger("hinge")

#: A peer that doesn't take our last words for so long goes without them.
WITHDRAW_SECONDS = 0.25

#: What a session does with a call: give back the result as it goes on the wire, or raise.
Handle = Callable[["Session", Call], Awaitable[Any]]


class Session(Record, weakref=True):
    """A connection that is running. Made by `Server.serve` or a client; fed by a transport."""

    connection: Connection
    channel: Channel
    handle: Handle
    #: The event loop of the session.
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _tasks: dict[asyncio.Task[Any], Call] = field(default_factory=dict)
    # Made when first needed: most sessions are one POST.
    _notices: set[asyncio.Task[None]] | None = None
    #: Hints on their way: None before one is being sent, then whether it was told again meanwhile.
    _telling: dict[bytes, bool | None] | None = None
    _cleanups: list[Callable[[], Awaitable[None]]] | None = None
    _endings: dict[object, Callable[[], None]] | None = None
    _limits: Deadlines | None = None
    #: A client: since when it answers what the peer asked, while it does.
    _asked_since: float | None = None
    _finished: bool = False
    _ended: asyncio.Future[None] | None = None

    def receive(self, data: bytes | Inbound, origin: Origin = UNKNOWN_ORIGIN) -> Call | Batch | Outgoing | None:
        """Take one message; the decision is the connection's alone. Never raises, never waits."""
        return self.connection.receive(data, origin)

    async def answer(self, call: Call | Batch) -> Outgoing | None:
        """Serve a call to its end in the caller's task: exactly one reply, or None if there is nothing to answer."""
        if type(call) is Batch:
            return await self._answer_batch(call)
        connection = self.connection
        if call.state is not RUNNING:
            return None
        task = asyncio.current_task(self.loop)
        assert task is not None
        call.on_cancel = task.cancel
        self._tasks[task] = call
        if connection.description is None and self._asked_since is None and call.id is not None:
            self._asked_since = self.loop.time()
        try:
            reply = connection.answer(call, await self.handle(self, call))
        except asyncio.CancelledError as exc:
            reply = self._cancelled(call, task, exc)
        except BaseException as exc:
            if is_ctrl_c(exc) or (isinstance(exc, GeneratorExit) and asyncio.current_task(self.loop) is not task):
                call.on_cancel = None  # no answer from here: the process is to end, or the task is being thrown away
                connection.cancel(call)
                raise
            reply = connection.refuse(call, as_failure(exc))
        finally:
            del self._tasks[task]
            if self._asked_since is not None and call.id is not None:
                self._answered(self._asked_since)
        if reply is None and task.cancelling():
            await _absorb_cancellation(task)
        return reply

    def _cancelled(self, call: Call, task: asyncio.Task[Any], exc: asyncio.CancelledError) -> Outgoing | None:
        """Whose cancellation was it? The peer's or the end's: no answer. Our task's: go on. The handler's own: a failure."""
        if call.state is not RUNNING:
            return None
        if task.cancelling():
            logger.error("%s was cancelled in the middle: by its handler, or with the task that it ran in", call.method)
            call.on_cancel = None  # it is being cancelled
            self.connection.cancel(call)
            raise exc
        return self.connection.refuse(call, RuntimeError("the handler cancelled itself"))

    async def _answer_batch(self, batch: Batch) -> Outgoing | None:
        replies = list(batch.replies)
        answers = await asyncio.gather(*map(self.answer, batch.calls), return_exceptions=True)
        for call, answer in zip(batch.calls, answers, strict=True):
            reply = Outgoing.interrupted(call) if isinstance(answer, asyncio.CancelledError) else answer
            if isinstance(reply, BaseException):
                raise reply
            if reply is not None:
                replies.append(reply)
        if not replies:
            return None
        return Outgoing(b"[" + b",".join(reply.data for reply in replies) + b"]")

    def cancel(self, call: Call | Batch, reason: str) -> None:
        """The caller is gone: stop what serves it, answer nothing."""
        for one in call.calls if isinstance(call, Batch) else (call,):
            logger.debug("%s is cancelled: %s", one.method, reason)
            self.connection.cancel(one)

    async def request(self, method: str, params: Any = UNSET, *, about: Call | None = None, **options: Any) -> Raw:
        """Ask the peer and wait for the result; see `exchange`."""
        return await self.exchange(self.ask(method), params, about=about, **options)

    def ask(self, method: str) -> Pending:
        """Register a request. Raises NotSent when the session has ended, HingeError while `initialize` is being answered.

        The peer is then waiting for us and can't answer.
        """
        if self.connection.description is not None and self.connection.handshake.state is HandshakeState.NEGOTIATING:
            raise HingeError(
                f"{method} can't be asked while initialize is being answered: the client would never reply"
            )
        return self.connection.ask(method)

    async def exchange(
        self,
        pending: Pending,
        params: Any = UNSET,
        *,
        about: Call | None = None,
        headers: Mapping[str, str] | None = None,
        idle: float | None = None,
        total: float | None = None,
        on_progress: Callable[[Raw], None] | None = None,
    ) -> Raw:
        """Send an entered request and wait for its result, as JSON text.

        `idle` seconds of silence (progress is no silence) or `total` seconds end it with CallTimeout. Raises NotSent,
        PeerError, InvalidResponse, ConnectionLost; `outcome` tells them apart. Cancelling the task cancels the request.
        """
        try:
            data = jsonrpc.encode_request(pending.id, pending.method, params)
        except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as exc:
            self.connection.give_up(pending)
            raise HingeError(f"The params of {pending.method} can't be written as JSON: {exc}") from exc
        message = Outgoing(data, pending.id, pending.method, about=about, pending=pending, headers=headers)
        limit: Deadline | None = None
        try:
            if idle is None and total is None:
                pending.on_progress = on_progress
            else:
                limit = self._limited(idle, total, on_progress)
                pending.on_progress = limit.progress
            await self._carry(message, pending)
        except asyncio.CancelledError as exc:
            if limit is None or not limit.taken_back():
                self._abandon(pending, "no longer wanted")
                raise
            self._abandon(pending, "timeout")
            raise CallTimeout(f"{pending.method} got no answer {limit.words}{self.connection.noise}") from exc
        except BaseException:
            self.connection.give_up(pending)
            raise
        finally:
            if limit is not None:
                limit.end()
        if pending.error is not None:
            raise pending.error
        return pending.result

    def _limited(self, idle: float | None, total: float | None, on_progress: Callable[[Raw], None] | None) -> Deadline:
        task = asyncio.current_task(self.loop)
        assert task is not None
        if self._limits is None:
            self._limits = Deadlines(self.loop, self.is_asked)
        return self._limits.begin(task, idle, total, on_progress)

    async def _carry(self, message: Outgoing, pending: Pending) -> None:
        """Send and wait until the request is over."""
        try:
            await self.channel.send(message)
        except ChannelClosed as exc:
            if pending.state is not WAITING:
                return
            raise NotSent(f"{pending.method} was not sent: {exc}") from exc
        except ConnectionLost:
            if pending.state is not WAITING:
                return
            raise
        if pending.state is WAITING:
            over: asyncio.Future[None] = self.loop.create_future()
            pending.wake = lambda: None if over.done() else over.set_result(None)
            await over

    def is_asked(self) -> bool:
        """Whether a request of the peer is being answered on a client's side: then it is the peer who waits."""
        return self._asked_since is not None

    def _answered(self, since: float) -> None:
        """One request of the peer is answered; with the last one, time counts again."""
        if not any(call.id is not None for call in self._tasks.values()):
            self._asked_since = None
            if self._limits is not None:
                self._limits.renew(since)

    def _abandon(self, pending: Pending, reason: str) -> None:
        """Stop waiting for a request, and send `notifications/cancelled` where closing the exchange is not enough."""
        if not self.connection.give_up(pending):
            return
        connection = self.connection
        told = connection.era.cancels_by_message(self.channel.kind == "post", connection.handshake)
        if not told or pending.method == "initialize" or connection.closed is not None:
            return
        self._spawn(self.notify("notifications/cancelled", {"requestId": pending.id, "reason": reason}))

    def _spawn(self, sending: Awaitable[None]) -> None:
        self._keep(self.loop.create_task(self._bounded(sending)))

    def _keep(self, task: asyncio.Task[None]) -> None:
        if self._notices is None:
            self._notices = set()
        self._notices.add(task)
        task.add_done_callback(self._notices.discard)

    async def _bounded(self, sending: Awaitable[None]) -> None:
        try:
            await asyncio.wait_for(sending, self.connection.limits.teardown)
        except (HingeError, TimeoutError) as exc:
            logger.debug("a notification could not be sent: %s", exc)

    async def notify(self, method: str, params: Any = UNSET, *, about: Call | None = None) -> None:
        """Send a notification. Raises ChannelClosed when it can't leave."""
        if self.connection.closed is not None:
            raise ChannelClosed(self.connection.closed)
        data = jsonrpc.encode_notification(method, params)
        await self.channel.send(Outgoing(data, None, method, about=about))

    def tell(self, method: str, params: Any = UNSET) -> None:
        """Send a notification soon, from any thread; while a peer is slow, what is said again is said once more, not often."""
        data = jsonrpc.encode_notification(method, params)
        if self.connection.closed is None:
            with suppress(RuntimeError):  # the loop is closed: nobody is there to be told
                self.loop.call_soon_threadsafe(self._tell, data, method)

    def _tell(self, data: bytes, method: str) -> None:
        if self._telling is None:
            self._telling = {}
        if data not in self._telling:
            self._telling[data] = None
            self._keep(self.loop.create_task(self._say(self._telling, data, method)))
        elif self._telling[data] is False:
            self._telling[data] = True

    async def _say(self, telling: dict[bytes, bool | None], data: bytes, method: str) -> None:
        try:
            while telling[data] is not False and self.connection.closed is None:
                telling[data] = False
                await self.channel.send(Outgoing(data, None, method))
        except HingeError as exc:
            logger.debug("%s could not be sent: %s", method, exc)
        finally:
            del telling[data]

    def fail(self, pending: Pending, error: Exception) -> None:
        """End one of our requests with an error: a transport that knows which one failed says so here."""
        self.connection.fail(pending, error)

    async def withdraw(self, reason: str) -> None:
        """Before closing: fail the requests that are waiting, and cancel them at the peer."""
        tell = self.connection.era.cancels_by_message(self.channel.kind == "post", self.connection.handshake)
        for pending in list(self.connection.outgoing.values()):
            self.connection.fail(pending, ConnectionLost(f"{pending.method} got no answer: {reason}"))
            if tell and pending.method != "initialize" and self.connection.closed is None:
                self._spawn(self.notify("notifications/cancelled", {"requestId": pending.id, "reason": reason}))
        if self._notices:
            await asyncio.wait(self._notices, timeout=WITHDRAW_SECONDS)

    def on_close(self, cleanup: Callable[[], Awaitable[None]]) -> None:
        """Register a clean-up for the end of the session. The last one runs first; time is limited, failures are logged."""
        if self._cleanups is None:
            self._cleanups = []
        self._cleanups.append(cleanup)

    def on_ending(self, hook: Callable[[], None]) -> Callable[[], None]:
        """Call this when the peer will send nothing more, to end what never ends by itself; gives back the way to forget it."""
        if self._endings is None:
            self._endings = {}
        key = object()
        self._endings[key] = hook
        endings = self._endings

        def forget() -> None:
            endings.pop(key, None)

        return forget

    def end_input(self, reason: str) -> None:
        """The peer will send nothing more, but still reads: calls may finish, open-ended ones are told to."""
        self.connection.end_input(reason)
        for hook in list((self._endings or {}).values()):
            hook()

    def expire(self, reason: str) -> list[Outgoing]:
        """Stop the calls that still run; returns an error response for each."""
        return self.connection.expire(reason)

    def close(self, reason: str) -> bool:
        """End the session: waiting requests fail with `reason`, running handlers are cancelled. May be called twice.

        False if `finish` will have nothing to wait for.
        """
        if self._tasks:
            self._close_amid_calls(reason)
        else:
            self.connection.close(reason)
        if self._limits is not None:
            self._limits.stop()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
        return bool(self._tasks or self._notices or self._cleanups)

    def _close_amid_calls(self, reason: str) -> None:
        here = asyncio.current_task(self.loop)
        if here is not None and here in self._tasks:
            self._tasks[here].on_cancel = None  # a handler that ends its own session is not cancelled
        self.connection.close(reason)
        for call in list(self._tasks.values()):
            self.connection.cancel(call)  # those of notifications, too

    async def ended(self) -> str:
        """Wait until the session has ended, and return why."""
        if self.connection.closed is None:
            if self._ended is None:
                self._ended = self.loop.create_future()
            await asyncio.shield(self._ended)
        return self.connection.closed or "the conversation is over"

    async def finish(self) -> None:
        """After `close`: wait for handlers and clean-ups, never longer than the limit; runs even while being cancelled."""
        if self._finished or not (self._tasks or self._notices or self._cleanups):
            self._finished = True
            return
        self._finished = True
        ending = asyncio.get_running_loop().create_task(self._finish(asyncio.current_task()))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await asyncio.wait([ending])
            raise

    async def _finish(self, here: asyncio.Task[Any] | None) -> None:
        """`here` is who waits for this: never waited for in turn."""
        limit = self.connection.limits.teardown
        running = {task for task in (*self._tasks, *(self._notices or ())) if task is not here}
        if running:
            _, late = await asyncio.wait(running, timeout=limit)
            if late:
                logger.warning("%d handlers did not stop within %g seconds and are abandoned", len(late), limit)
        if not self._cleanups:
            return
        cleaning = asyncio.get_running_loop().create_task(self._clean_up(self._cleanups))
        _, late = await asyncio.wait([cleaning], timeout=limit)
        if late:
            cleaning.cancel()
            left = len(self._cleanups)
            logger.warning("clean-up took longer than %g seconds; %d more callbacks are abandoned", limit, left)

    async def _clean_up(self, cleanups: list[Callable[[], Awaitable[None]]]) -> None:
        task = asyncio.current_task()
        while cleanups and task is not None and not task.cancelling():
            cleanup = cleanups.pop()
            try:
                await cleanup()
            except (Exception, asyncio.CancelledError, SystemExit):
                if not task.cancelling():
                    logger.exception("a clean-up callback failed")


async def _absorb_cancellation(task: asyncio.Task[Any]) -> None:
    """The cancellation was for the handler, not for the task that goes on: take it off the task."""
    while task.cancelling():
        task.uncancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            continue
