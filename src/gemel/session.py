"""Runs a Connection over a Channel: tasks, cancellation and time limits.

It decides nothing about the protocol. Whatever a handler, the peer or the channel does, `answer` yields exactly one
reply or none, and `exchange` ends with a result or one plain error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVarTuple, Unpack

import msgspec
from msgspec import UNSET, Raw, field

from gemel import jsonrpc
from gemel.channel import Channel, Detached
from gemel.errors import (
    CallError,
    CallTimeout,
    ChannelClosed,
    ConnectionLost,
    GemelError,
    InvalidResponse,
    NotSent,
    Outcome,
    as_failure,
)
from gemel.protocol.connection import Connection
from gemel.protocol.decoding import SMALL
from gemel.protocol.http.mirror import HeaderTexts
from gemel.protocol.records import UNKNOWN_ORIGIN, Batch, Call, Inbound, Origin, Outgoing, Pending, Record
from gemel.protocol.states import NEGOTIATED, RUNNING, WAITING, HandshakeState
from gemel.signals import is_ctrl_c
from gemel.timeouts import Deadline, Deadlines

logger = logging.getLogger("gemel")

Ts = TypeVarTuple("Ts")

#: How long a session that closes waits until its cancellations are sent.
CANCEL_SECONDS = 0.25
#: How long a request of a server waits for the client to finish the handshake.
INITIALIZED_SECONDS = 5.0

#: Serves a call: returns the result as it is encoded, or raises.
Handle = Callable[["Session", Call], Awaitable[Any]]


class Session(Record, weakref=True):
    """Runs one connection: serves calls in tasks, sends requests and waits for their results. Fed by a transport."""

    connection: Connection
    channel: Channel
    handle: Handle
    #: The event loop of the session.
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    #: The calls that are being served, by their tasks. That of a POST is not in it: it is served in the task of the POST.
    _tasks: dict[asyncio.Task[Any], Call] = field(default_factory=dict)
    # Made when first needed: most sessions are one POST.
    _sending: set[asyncio.Task[None]] | None = None
    _cleanups: list[Callable[[], Awaitable[None]]] | None = None
    _end_of_input_hooks: list[Callable[[], None]] | None = None
    _deadlines: Deadlines | None = None
    #: On a client: since when requests of the server are being served; None while there are none.
    _serving_since: float | None = None
    _finished: bool = False
    _closed: asyncio.Future[None] | None = None
    #: The origin of the latest request of an HTTP session: what the session is told now is judged by its token.
    authority: Origin | None = None
    #: What functions keep in `ctx.session_state`, as JSON by its keys, unless several processes serve the session.
    kept: dict[str, Raw] | None = None
    #: Called once with the next authority.
    on_authority: Callable[[], None] | None = None
    #: Notifications about `initialize` while it is served, and their bytes: they are sent if it succeeds, before its result.
    _held: list[Outgoing] | None = None
    _held_bytes: int = 0

    def receive(self, data: bytes | Inbound, origin: Origin = UNKNOWN_ORIGIN) -> Call | Batch | Outgoing | None:
        """Take one message; see `Connection.receive`. Never raises, never waits."""
        return self.connection.receive(data, origin)

    def authorize(self, origin: Origin) -> None:
        """Take the origin of the latest request as the authority of the session."""
        self.authority = origin
        if self.on_authority is not None:
            notify, self.on_authority = self.on_authority, None
            notify()

    async def answer(self, call: Call | Batch) -> Outgoing | None:
        """Serve a call in the current task. Returns its response, or None for a notification, a cancelled or detached call."""
        if type(call) is Batch:
            return await self._answer_batch(call)
        connection = self.connection
        if call.state is not RUNNING:
            return None
        task = asyncio.current_task(self.loop)
        assert task is not None
        call.work = task
        if not connection.one_shot:
            self._tasks[task] = call
        if call.inline:
            self._held, self._held_bytes = None, 0
        size, handle = len(call.params), self.handle
        if size > SMALL:
            connection.held += size
        if connection.description is None and call.id is not None:
            if self._serving_since is None:
                self._serving_since = self.loop.time()
            if self._deadlines is not None:
                self._deadlines.count_pause()
        try:
            reply = connection.answer(call, await handle(self, call))
        except asyncio.CancelledError as exc:
            reply = self._cancelled(call, task, exc)
        except Detached as detached:
            call.work = detached.work
            detached.on_detached()
            self._tasks.pop(task, None)
            self.trim()
            return None
        except BaseException as exc:
            if is_ctrl_c(exc) or asyncio.current_task(self.loop) is not task:
                call.work = None  # the process ends, or the task is being destroyed: there is no answer
                connection.cancel(call)
                raise
            reply = connection.refuse(call, as_failure(exc))
        finally:
            if size > SMALL:
                call.when_released(partial(connection.give_back, size))
            call.failure = None  # its traceback leads to the call
            if self._tasks:
                self._tasks.pop(task, None)
            if self._serving_since is not None and call.id is not None:
                self._call_served(self._serving_since)
        if self._held is not None and call.inline:
            await self._send_held(reply)
        if reply is None and task.cancelling():
            await _absorb_cancellation(task)
        return reply

    def _cancelled(self, call: Call, task: asyncio.Task[Any], exc: asyncio.CancelledError) -> Outgoing | None:
        """Decide by whom a call was cancelled.

        By the peer or the end of the session: no response. With the task: the cancellation goes on. By its own handler: an
        error response.
        """
        if call.state is not RUNNING:
            return None
        if task.cancelling():
            logger.error("%s was cancelled by its handler, or with the task that it ran in", call.method)
            call.work = None  # the task is being cancelled already
            self.connection.cancel(call)
            raise exc
        return self.connection.refuse(call, RuntimeError("the handler cancelled itself"))

    async def _answer_batch(self, batch: Batch) -> Outgoing | None:
        replies = list(batch.replies)
        tasks = {self.loop.create_task(self.answer(call)): call for call in batch.calls}
        self._tasks.update(tasks)
        for task in tasks:  # one that is cancelled before it begins does not do it
            task.add_done_callback(lambda done: self._tasks.pop(done, None))
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        for call, answer in zip(batch.calls, answers, strict=True):
            reply = Outgoing.interrupted(call) if isinstance(answer, asyncio.CancelledError) else answer
            if isinstance(reply, BaseException):
                raise reply
            if reply is not None:
                replies.append(reply)
        if not replies:
            return None
        return Outgoing(b"[" + b",".join(reply.data for reply in replies) + b"]")

    def note(self, deviation: str, detail: str = "") -> None:
        """Note a deviation of the peer; see `SessionLike.note`."""
        self.connection.note(deviation, detail)

    def cancel(self, call: Call | Batch, reason: str) -> None:
        """Cancel the handlers of a call or batch whose caller is gone. It gets no response."""
        for cancelled in call.calls if isinstance(call, Batch) else (call,):
            logger.debug("%s is cancelled: %s", cancelled.method, reason)
            self.connection.cancel(cancelled)

    async def request(self, method: str, params: Any = UNSET, *, about: Call | None = None, **options: Any) -> Raw:
        """Send a request and wait for its result; see `send_request`. Raises GemelError for the client of a stateless call."""
        if about is not None:
            about.era.check_server_request(method)
        return await self.send_request(self.register_request(method), params, about=about, **options)

    def register_request(self, method: str) -> Pending:
        """Register a request before it is sent.

        Raises:
            NotSent: The session has ended, or too many requests are waiting.
            GemelError: `initialize` is being answered: the client waits for that and would not answer.
        """
        if self.connection.description is not None:
            state = self.connection.handshake.state
            if state is HandshakeState.NEGOTIATING:
                raise GemelError(
                    f"{method} can't be sent while initialize is being answered: the client would not reply"
                )
            if state is HandshakeState.NEW:
                raise GemelError(f"{method} can't be sent: the client did not shake hands")
        return self.connection.register_request(method)

    async def send_request(
        self,
        pending: Pending,
        params: object = UNSET,
        *,
        about: Call | None = None,
        headers: HeaderTexts = (),
        idle: float | None = None,
        total: float | None = None,
        on_progress: Callable[[Raw], None] | None = None,
        meta: bytes = b"",
    ) -> Raw:
        """Send a registered request and wait for its result, as JSON text. Cancelling the task cancels the request.

        Args:
            pending: The request, from `register_request`.
            params: Its params.
            about: The inbound call that it belongs to.
            headers: HTTP headers that repeat parts of the request.
            idle: Seconds without a message about this request (progress counts) until it fails.
            total: Seconds until it fails in any case.
            on_progress: Called with the params of each progress notification.
            meta: The `_meta` of the params as JSON text, to which the progress token is added; empty if they have one.

        Raises:
            CallTimeout: A time limit passed.
            NotSent, PeerError, InvalidResponse, ConnectionLost: See their `outcome`.
        """
        message = self._write_request(pending, params, meta, headers, about)
        deadline: Deadline | None = None
        sent = False
        try:
            if (task := asyncio.current_task(self.loop)) is not None and task.cancelling():
                await asyncio.sleep(0)  # a task that was cancelled before sends nothing
            if on_progress is not None:
                pending.on_progress = on_progress
            if idle is not None or total is not None:
                deadline = self._start_deadline(pending, idle, total)
            if self.connection.handshake.state is NEGOTIATED:
                await self._wait_until_ready(pending)
            if pending.state is WAITING:
                sent = True
                await self._send_message(pending, message)
            if pending.state is WAITING:
                await self._end_of(pending)
        except asyncio.CancelledError as exc:
            if deadline is None or not deadline.uncancel():
                self._cancel_request(pending, "no longer wanted", sent)
                raise
            self._cancel_request(pending, "timeout", sent)
            raise self._too_late(pending, deadline) from exc
        except BaseException:
            self.connection.abandon_request(pending)
            raise
        finally:
            if deadline is not None and self._deadlines is not None:
                self._deadlines.end(deadline)
        if pending.error is not None:
            raise pending.error
        return pending.result

    def _write_request(
        self, pending: Pending, params: object, meta: bytes, headers: HeaderTexts, about: Call | None
    ) -> Outgoing:
        """The message of a request. Raises GemelError, and forgets the request, if its params are not JSON."""
        try:
            return self.connection.write_request(pending, params, meta, headers, about)
        except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as exc:
            self.connection.abandon_request(pending)
            raise _not_json(pending.method, exc) from exc

    def _start_deadline(self, pending: Pending, idle: float | None, total: float | None) -> Deadline:
        """Begin to watch the time limits of a request. Raises DefinitionError for what are none."""
        if self._deadlines is None:
            self._deadlines = Deadlines(self.loop, self.is_serving)
        idle, total = self._deadlines.checked(idle, total)
        return self._deadlines.start(pending, idle, total, self.loop.time())

    async def _send_message(self, pending: Pending, message: Outgoing) -> None:
        """Send a request. Whether it could be sent does not matter any more if it was answered before."""
        try:
            await self.channel.send(message)
        except ConnectionLost:
            if pending.state is WAITING:
                raise
        except ChannelClosed as exc:
            if pending.state is WAITING:
                raise NotSent(f"{pending.method} was not sent: {exc}") from exc

    def _end_of(self, pending: Pending) -> asyncio.Future[None]:
        """A future that is done when a request is over."""
        ended: asyncio.Future[None] = self.loop.create_future()
        pending.wake = lambda: None if ended.done() else ended.set_result(None)
        return ended

    def _too_late(self, pending: Pending, deadline: Deadline) -> CallError:
        """The error of a request whose time is up: with what the peer sent meanwhile, if that may be the answer."""
        late = f"{pending.method} got no answer {deadline.description}"
        if not pending.stray:
            return CallTimeout(f"{late}{self.connection.noise}")
        error = InvalidResponse(
            f"{late}, but the peer sent something that names no request, perhaps the answer: {pending.stray}"
        )
        error.outcome = Outcome.UNKNOWN
        return error

    async def _wait_until_ready(self, pending: Pending) -> None:
        """Hold a request of a server back until the client has sent `notifications/initialized`; some clients never do.

        See the specification, Lifecycle, section "Initialization": before, a server should send nothing but pings.
        """
        if pending.method == "ping":
            return
        handshake, ready = self.connection.handshake, self._end_of(pending)  # it may be over before
        assert pending.wake is not None
        if handshake.on_ready is None:
            handshake.on_ready = []
        handshake.on_ready.append(pending.wake)
        try:
            async with asyncio.timeout(INITIALIZED_SECONDS):
                await ready
        except TimeoutError:
            logger.debug("The client has not sent notifications/initialized; %s is sent all the same", pending.method)
            handshake.move("initialized")

    def is_serving(self) -> bool:
        """Whether a client is serving a request of the server, which then can't go on with the client's own request."""
        return self._serving_since is not None

    def _call_served(self, since: float) -> None:
        """Resume the time limits of our requests when the last request of the server is served."""
        if not any(call.id is not None for call in self._tasks.values()):
            self._serving_since = None
            if self._deadlines is not None:
                self._deadlines.extend(since)

    def _cancel_request(self, pending: Pending, reason: str, sent: bool) -> None:
        """Stop waiting for a request, and tell the peer if it was sent, where closing the HTTP exchange is not enough."""
        if self.connection.abandon_request(pending) and sent:
            self._send_cancelled(pending, reason)

    def _send_cancelled(self, pending: Pending, reason: str) -> None:
        connection = self.connection
        if pending.method == "initialize":
            return
        if connection.era.cancels_by_message(self.channel.kind == "post", connection.handshake):
            params = {"requestId": pending.id, "reason": reason}
            self.start_sending(self._notify_within, connection.limits.teardown, "notifications/cancelled", params)

    def start_sending(self, send: Callable[[Unpack[Ts]], Awaitable[None]], *arguments: *Ts) -> None:
        """Call something that sends, in a task of its own which ends with the session. Failures are logged."""
        if self._sending is None:
            self._sending = set()
        task = self.loop.create_task(self._send_quietly(send, *arguments))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send_quietly(self, send: Callable[[Unpack[Ts]], Awaitable[None]], *arguments: *Ts) -> None:
        try:
            await send(*arguments)
        except (GemelError, TimeoutError) as exc:
            logger.debug("a notification could not be sent: %s", exc)

    async def _notify_within(self, seconds: float, method: str, params: object) -> None:
        async with asyncio.timeout(seconds):
            await self.notify(method, params)

    async def notify(self, method: str, params: object = UNSET, *, about: Call | None = None) -> None:
        """Send a notification. Raises ChannelClosed when it can't be sent, GemelError for params that are not JSON."""
        if (task := asyncio.current_task(self.loop)) is not None and task.cancelling():
            await asyncio.sleep(0)  # a task that was cancelled before sends nothing
        if self.connection.closed is not None:
            raise ChannelClosed(self.connection.closed)
        try:
            data = jsonrpc.encode_notification(method, params)
        except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as exc:
            raise _not_json(method, exc) from exc
        await self.send_notification(data, method, about)

    async def send_notification(self, data: bytes, method: str, about: Call | None = None) -> None:
        """Send an encoded notification, which several sessions may share. Raises ChannelClosed when it can't be sent."""
        message = Outgoing(data, None, method, about=about)
        self.connection.has_notified = True
        if about is not None and about.inline and about.state is RUNNING:
            self._hold(message)
        else:
            await self.channel.send(message)

    def _hold(self, message: Outgoing) -> None:
        """Hold a notification back until it is decided whether `initialize` succeeds. Raises ChannelClosed beyond the limits."""
        limits = self.connection.limits
        if self._held is None:
            self._held = []
        held = self._held
        if len(held) >= limits.backlog or (held and self._held_bytes + len(message.data) > limits.line):
            logger.warning("%s is not sent: too many notifications during initialize", message.method)
            raise ChannelClosed("too many notifications during initialize")
        held.append(message)
        self._held_bytes += len(message.data)

    async def _send_held(self, reply: Outgoing | None) -> None:
        """Send what was held back, unless `initialize` was refused."""
        held, self._held, self._held_bytes = self._held, None, 0
        assert held is not None
        if reply is None or reply.error is not None:
            return
        try:
            for message in held:
                await self.channel.send(message)
        except (ChannelClosed, ConnectionLost) as exc:
            logger.debug("a notification could not be sent: %s", exc)

    async def cancel_requests(self, reason: str) -> None:
        """Before closing: fail the requests that are waiting, and cancel them at the peer."""
        for pending in list(self.connection.outgoing.values()):
            self.connection.fail_request(pending, ConnectionLost(f"{pending.method} got no answer: {reason}"))
            self._send_cancelled(pending, reason)
        if self._sending:
            await asyncio.wait(self._sending, timeout=CANCEL_SECONDS)

    def on_close(self, cleanup: Callable[[], Awaitable[None]]) -> None:
        """Register a clean-up for the end of the session. The last one runs first; time is limited, failures are logged."""
        if self._cleanups is None:
            self._cleanups = []
        self._cleanups.append(cleanup)

    def on_end_of_input(self, hook: Callable[[], None]) -> None:
        """Register a hook for the end of input, to end what has no end of its own."""
        if self._end_of_input_hooks is None:
            self._end_of_input_hooks = []
        self._end_of_input_hooks.append(hook)

    def forget_end_of_input(self, hook: Callable[[], None]) -> None:
        """Unregister a hook."""
        assert self._end_of_input_hooks is not None
        self._end_of_input_hooks.remove(hook)

    def end_input(self, reason: str) -> None:
        """The peer will send nothing more, but still reads: fail our requests, let calls finish, call the hooks."""
        self.connection.end_input(reason)
        for hook in list(self._end_of_input_hooks or ()):
            hook()

    def stop(self, reason: str) -> list[Outgoing]:
        """Stop the calls that still run; returns an error response for each."""
        return self.connection.stop(reason)

    def close(self, reason: str) -> bool:
        """End the session: waiting requests fail with `reason`, running handlers are cancelled. May be called twice.

        Returns:
            Whether `wait_closed` has something to wait for.
        """
        if self._tasks:
            task = asyncio.current_task(self.loop)
            if task in self._tasks:
                self._tasks[task].work = None  # a handler that ends its own session is not cancelled
        self.connection.close(reason)
        if self._tasks:
            for call in list(self._tasks.values()):
                self.connection.cancel(call)  # handlers of notifications, too
        if self._deadlines is not None:
            self._deadlines.stop()
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)
        return bool(self._tasks or self._sending or self._cleanups)

    def trim(self) -> None:
        """Free the room of tables that are empty: nothing may happen for long."""
        for table in (self._tasks, self.connection.incoming, self.connection.outgoing):
            if not table:
                table.clear()

    async def ended(self) -> str:
        """Wait until the session has ended, and return why."""
        if self.connection.closed is None:
            if self._closed is None:
                self._closed = self.loop.create_future()
            await asyncio.shield(self._closed)
        return self.connection.closed or "the session has ended"

    async def wait_closed(self) -> None:
        """After `close`: wait for handlers and clean-ups, at most `limits.teardown` each; goes on while being cancelled."""
        finished, self._finished = self._finished, True
        if finished or not (self._tasks or self._sending or self._cleanups):
            return
        finishing = asyncio.get_running_loop().create_task(self._wait_closed(asyncio.current_task()))
        try:
            await asyncio.shield(finishing)
        except asyncio.CancelledError:
            await asyncio.wait([finishing])
            raise

    async def _wait_closed(self, waiting_task: asyncio.Task[Any] | None) -> None:
        """Wait for all tasks but the one that waits for this."""
        limit = self.connection.limits.teardown
        running = {task for task in (*self._tasks, *(self._sending or ())) if task is not waiting_task}
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
            remaining = len(self._cleanups)
            logger.warning("clean-up took longer than %g seconds; %d more callbacks are abandoned", limit, remaining)

    async def _clean_up(self, cleanups: list[Callable[[], Awaitable[None]]]) -> None:
        task = asyncio.current_task()
        while cleanups and task is not None and not task.cancelling():
            cleanup = cleanups.pop()
            try:
                await cleanup()
            except (Exception, asyncio.CancelledError, SystemExit):
                if not task.cancelling():
                    logger.exception("a clean-up callback failed")


def _not_json(method: str, exc: Exception) -> GemelError:
    return GemelError(f"The params of {method} can't be written as JSON: {exc}")


async def _absorb_cancellation(task: asyncio.Task[Any]) -> None:
    """Clear a cancellation that was meant for the handler, so that its task can go on."""
    while task.cancelling():
        task.uncancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            continue
