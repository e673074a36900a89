"""What a client's HTTP streams bring: each message goes to the conversation, and what it asks for runs in a task here.

Knows messages and which request a stream belongs to. Must not know HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from hinge.channel import Conversation
from hinge.errors import ConnectionLost, HingeError, InvalidResponse, NotSent, PeerError, ProtocolError
from hinge.jsonrpc import Failure, Response, is_batch, is_no_answer, split_batch
from hinge.protocol.calls import Call, Inbound, Outgoing, Pending
from hinge.protocol.eras import detect
from hinge.protocol.limits import Limits
from hinge.transports.http.client.errors import excerpt

logger = logging.getLogger("hinge")

#: Seconds before an answer that got lost is sent again: the server waits for it, and takes only one.
_PAUSES = (0.2, 0.8)
#: So many answers are on their way at once, each on a connection: a server that asks much must not make us open hundreds.
_DELIVERIES = 32


class Inbox:
    """Feeds one conversation and owns the tasks that answer what the server asks.

    `deliver` carries a reply to the server.
    """

    def __init__(
        self, conversation: Conversation, deliver: Callable[[Outgoing], Awaitable[None]], limits: Limits
    ) -> None:
        self._conversation = conversation
        self._deliver_now = deliver
        self._turns = asyncio.Semaphore(_DELIVERIES)
        self._limits = limits
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(self, data: bytes, pending: Pending, *, legacy: bool, replay: bool = False) -> None:
        """One message from the stream of a request of ours.

        Raises InvalidResponse for what is no message and for an answer to another request, PeerError for an error that
        names no request: on this stream it is clear which one is meant. A resumed stream (`replay`) may repeat
        answers to others; they are skipped.
        """
        for inbound in self._read(data, pending.method):
            message = inbound.message
            if isinstance(message, Response | Failure):
                if message.id is None:
                    raise PeerError(message.error)
                if message.id != pending.id:
                    if replay:
                        continue
                    raise InvalidResponse(
                        f"The server answered {pending.method} with the id {message.id!r}, not {pending.id!r}"
                    )
            self._feed(inbound, legacy=legacy)

    def notice(self, data: bytes) -> bool:
        """One message from a stream that belongs to no request. False if it is of no use; never raises."""
        try:
            inbounds = self._read(data, "The server's own stream")
        except InvalidResponse as exc:
            logger.warning("%s", exc)
            return False
        # Answers don't belong here, but some servers send them here when a call's own stream has ended.
        useful = [inbound for inbound in inbounds if getattr(inbound.message, "id", "") is not None]
        for inbound in useful:
            self._feed(inbound, legacy=True)
        return bool(useful)

    async def room(self) -> None:
        """Wait while too many calls are being answered: a stream must not outrun them without limit."""
        while len(self._tasks) >= self._limits.calls:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def heard(self) -> None:
        """Let what came before an answer begin to be served before the answer is told: it came first."""
        if self._tasks:
            await asyncio.sleep(0)

    def end(self, reason: str) -> None:
        """Nothing more will come: the conversation is over."""
        self._conversation.close(reason)

    async def close(self) -> None:
        """Stop the tasks; waits for a bounded time."""
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._limits.teardown)

    def _read(self, data: bytes, about: str) -> Iterable[Inbound]:
        """The message in the text, or those of a batch (one revision has them)."""
        try:
            if is_batch(data):
                return [detect.read(item) for item in split_batch(data, self._limits.batch)]
            return (detect.read(data),)
        except ProtocolError as exc:
            if is_no_answer(data):
                logger.warning("%s: what came beside the answer is no message: %s: %s", about, str(exc), excerpt(data))
                return ()
            raise InvalidResponse(f"{about}: the server sent what is no message: {exc}: {excerpt(data)}") from exc

    def _feed(self, inbound: Inbound, *, legacy: bool) -> None:
        got = self._conversation.receive(inbound)
        if got is None:
            return
        if isinstance(got, Outgoing):
            if legacy:
                self._start(self._deliver(got))
        elif legacy or (isinstance(got, Call) and got.id is None):
            self._start(self._serve(got))
        else:
            # A modern stream carries no requests, and a modern client sends no responses.
            logger.warning("The server sent a request on a stream that can't carry one; it is not answered")
            self._conversation.cancel(got, "requests can't be answered on this stream")

    async def _deliver(self, reply: Outgoing) -> None:
        async with self._turns:
            await self._deliver_now(reply)

    async def _serve(self, call: Any) -> None:
        reply = await self._conversation.answer(call)
        if reply is None:
            return
        for pause in _PAUSES:
            try:
                await self._deliver(reply)
            except (NotSent, ConnectionLost) as exc:
                logger.debug("An answer is sent again: %s", exc)
                await asyncio.sleep(pause)
            else:
                return
        await self._deliver(reply)

    def _start(self, work: Awaitable[None]) -> None:
        assert isinstance(work, Coroutine)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        exc = task.exception()
        if isinstance(exc, HingeError):
            logger.warning("An answer did not reach the server: %s", exc)
        elif exc is not None:
            logger.error("Answering the server failed", exc_info=exc)
