"""A call as its server serves it: what the parts of the server need of it, apart from what a handler may use (`Context`)."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Generic, Protocol, TypeVar

from gemel.backends.base import Backend
from gemel.jsonrpc import ABSENT
from gemel.protocol.eras.base import Era
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.limits import FIXED_LIMITS
from gemel.protocol.records import Call, Record
from gemel.protocol.states import CallState
from gemel.server.composition.namespace import Layer
from gemel.server.elicitation.elicit import ElicitationStrategy
from gemel.server.elicitation.elsewhere import elicitation_elsewhere
from gemel.server.elicitation.handshake import HandshakeElicitation
from gemel.server.elicitation.request_state import RequestStateCodec
from gemel.server.elicitation.stateless import StatelessElicitation
from gemel.server.log_queue import LogQueue
from gemel.server.threads import LoopCalls, Threads
from gemel.session import Session
from gemel.timeouts import PausableTimeout

logger = logging.getLogger("gemel")

#: `Context`, which imports this module.
ContextT = TypeVar("ContextT")
AnyContextT = TypeVar("AnyContextT", contravariant=True)

#: How each era requests input from its clients.
_ELICITATIONS: dict[Era, Callable[[Session, Call, RequestStateCodec], ElicitationStrategy]] = {
    HANDSHAKE: lambda session, call, codec: HandshakeElicitation(session, call),
    STATELESS: StatelessElicitation,
}


class CallLifespan(Protocol[AnyContextT]):
    """What is entered before a function of the user runs; see `gemel.server.lifespan`."""

    async def enter(self, ctx: AnyContextT, stack: AsyncExitStack, /) -> Any:
        """Enter it and return the state; what only this call uses is left by the stack."""


class ServedCall(Record, Generic[ContextT]):
    """A call as its server serves it. Each `Context` has one: `served_call(ctx)` in `context.py`.

    A context that a middleware or a nested call makes of another has a copy, made by `derive`. What belongs to the whole call
    is kept in the first of them, `root`.

    Attributes:
        session: The session that the call came in.
        call: The call, as the connection knows it.
        request_states: Encrypts and decrypts the request states of the server.
        serve_nested: Serves what a handler requests of its own server.
        lifespans: The `connection_lifespan` of this server, after those of servers that it is mounted in, until they are entered.
        layers: What is between the caller and this server, outermost first: see `composition/namespace.py`.
        connection_state: What the `connection_lifespan` yielded.
        task: The task that runs the handler.
        timeout: The time limit of the call, if it has one.
        in_thread: Whether the handler is a sync function that runs in a worker thread.
        loop_calls: What the handler's thread runs on the event loop, made when first needed: `ctx.sync`.
        root: That of the context which the server made for the call; None in that one.
        elicitation: The requests for input, once there was one; of the whole call.
        log_queue: Records of Python's loggers that wait to be sent to the client; of the whole call.
        published: The shared backends to which changes were published; of the whole call.
        progress: The last progress that was reported; of the whole call.
    """

    session: Session
    call: Call
    request_states: RequestStateCodec
    serve_nested: Callable[[ContextT], Awaitable[Any]]
    lifespans: tuple[CallLifespan[ContextT], ...] = ()
    layers: tuple[Layer, ...] = ()
    connection_state: Any = None
    task: asyncio.Task[Any] | None = None
    timeout: PausableTimeout | None = None
    in_thread: bool = False
    loop_calls: LoopCalls | None = None
    root: ServedCall[ContextT] | None = None
    elicitation: ElicitationStrategy | None = None
    log_queue: LogQueue | None = None
    published: tuple[Backend, ...] = ()
    progress: float | None = None

    def derive(self) -> ServedCall[ContextT]:
        """The same call for another context that is made of this one's."""
        derived = copy.copy(self)
        derived.root = self.root or self
        derived.in_thread = False
        derived.loop_calls = None
        return derived

    def without_params(self) -> ServedCall[ContextT]:
        """A copy for what runs on after the call, which is over and has no params."""
        ended = copy.copy(self)
        ended.call = call = copy.copy(self.call)
        ended.task = ended.elicitation = ended.loop_calls = None
        call.params = ABSENT
        call.typed = call.key = call.work = call.parting = call.failure = None
        if call.state is CallState.RUNNING:
            call.state = CallState.ANSWERED
        return ended

    # ---------------------------------------------------------------- input from the client

    @property
    def input_requests(self) -> ElicitationStrategy:
        """The requests for input of this call, made when first needed and shared by all its contexts."""
        root = self.root or self
        if root.elicitation is None:
            session, call, codec = self.session, self.call, self.request_states
            elsewhere = elicitation_elsewhere(session, call, codec)
            root.elicitation = elsewhere or _ELICITATIONS[call.era](session, call, codec)
        return root.elicitation

    @property
    def suspendable_task(self) -> asyncio.Task[Any] | None:
        """The task that runs the handler; None if that is a sync function in a worker thread, which can't be cancelled."""
        return None if self.in_thread else self.task

    # ---------------------------------------------------------------- functions without async

    def calls_from_thread(self) -> LoopCalls:
        """What the handler's thread runs on the event loop, until the call is over."""
        if self.loop_calls is None:
            call = self.call
            self.loop_calls = LoopCalls(self.session.loop, lambda: call.state is not CallState.RUNNING)
        return self.loop_calls

    async def run_in_thread(self, threads: Threads, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Call a sync function in a worker thread. If the call ends before it returns, its `ctx.sync` is closed."""
        self.in_thread = True
        try:
            return await threads.run(function, arguments, self.call)
        except BaseException:
            if self.loop_calls is not None:
                self.loop_calls.close()
                self.call.when_released(self._drop_loop_calls)
            raise
        finally:
            self.in_thread = False

    def _drop_loop_calls(self) -> None:
        """The function has ended: another one of this call makes its own."""
        self.loop_calls = None

    # ---------------------------------------------------------------- before the answer

    @property
    def has_to_finish(self) -> bool:
        """Whether something was logged or changed that goes before the answer: see `finish`."""
        root = self.root or self
        return root.log_queue is not None or bool(root.published)

    async def finish(self) -> None:
        """Before the answer: send the log records that wait, and make sure that no change is lost with this process."""
        if self.log_queue is not None:
            await self.log_queue.close()
        if self.published:
            await self._flush_changes()

    async def _flush_changes(self) -> None:
        """Wait, bounded, until changes that this call has published can't be lost with this process."""
        try:
            async with asyncio.timeout(FIXED_LIMITS.change_wait):
                for backend in self.published:
                    await backend.flush()
        except Exception as exc:
            reason = str(exc) or type(exc).__name__
            logger.warning("A call is answered before other processes are told what it changed: %s", reason)
