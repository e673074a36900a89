"""What belongs to one event loop: it is made there, ends with its loop, and is left to the parent process by a fork.

Whatever keeps futures, tasks, timers or connections keeps them here, by loop: as a value of a `PerLoop`, or by `bind`. A loop
that ends regularly (`asyncio.run`, `asyncio.Runner`) closes its asynchronous generators; one of them is ours, and ends what is
bound. What belongs to a loop that was only closed is abandoned as soon as the next loop binds something.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from asyncio import AbstractEventLoop, BaseTransport, get_running_loop
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from socket import SHUT_RDWR
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, WeakMethod

from gemel.errors import DefinitionError, NotSent

logger = logging.getLogger("gemel")

ValueT = TypeVar("ValueT")

#: Why what belongs to a loop can't be ended in it: the loop is closed, or it belongs to the parent of this process.
Abandoned: TypeAlias = Literal["closed", "forked"]


class LoopBound(Protocol):
    """What has something that belongs to an event loop."""

    async def end_with_loop(self) -> None:
        """End what belongs to the running loop, which is about to be closed. Its tasks have ended."""

    def abandon(self, loop: AbstractEventLoop, why: Abandoned) -> None:
        """Forget what belongs to a loop that runs no more, from any thread. After a fork the parent goes on using it."""


class _Residents:
    """What is bound to one loop, the first one first: that may use what was bound later."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self.bound: WeakKeyDictionary[LoopBound, None] = WeakKeyDictionary()
        self._end = _at_end_of_loop(self._end_all)
        with suppress(StopIteration):
            self._end.__anext__().send(None)  # the loop closes the generators that it has seen

    async def _end_all(self) -> None:
        for each in list(self.bound):
            self.bound.pop(each, None)
            try:
                await each.end_with_loop()
            except Exception:
                logger.exception("Clean-up at the end of an event loop failed")

    def abandon(self, why: Abandoned) -> None:
        for each in list(self.bound):
            each.abandon(self.loop, why)


async def _at_end_of_loop(end: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await end()


_loops: dict[AbstractEventLoop, _Residents] = {}
_lock = threading.Lock()


def running_loop() -> AbstractEventLoop:
    """The running event loop. Raises DefinitionError outside of asyncio."""
    try:
        return get_running_loop()
    except RuntimeError:
        trio = sys.modules.get("trio")
        if trio is not None and trio.lowlevel.in_trio_run():
            raise DefinitionError(
                "Gemel runs on asyncio, and trio runs here: start with asyncio.run(main()) or "
                'anyio.run(main, backend="asyncio"), or use gemel.sync in trio.to_thread.run_sync(…)'
            ) from None
        raise DefinitionError(
            "Gemel runs on asyncio, and no event loop runs here: start with asyncio.run(main())"
        ) from None


def end_connection(transport: BaseTransport) -> None:
    """End the connection of a transport whose event loop is closed. Its socket is closed when it is destroyed."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        with suppress(OSError, TypeError):  # uvloop closes sockets with the loop, and its own do not offer this
            sock.shutdown(SHUT_RDWR)


def bind(each: LoopBound) -> AbstractEventLoop:
    """Have an object end with the running event loop, as long as it lives. Returns the loop."""
    loop = running_loop()
    residents = _loops.get(loop)
    if residents is None:
        abandon_closed()
        residents = _loops[loop] = _Residents(loop)
    residents.bound[each] = None
    return loop


def unbind(each: LoopBound, loop: AbstractEventLoop) -> None:
    """What an object had in a loop has ended."""
    residents = _loops.get(loop)
    if residents is not None:
        residents.bound.pop(each, None)


def abandon_closed() -> None:
    """Abandon what belongs to loops that were closed without ending it."""
    with _lock:
        closed = [_loops.pop(loop) for loop in list(_loops) if loop.is_closed()]
    for residents in closed:
        residents.abandon("closed")


class PerLoop(Generic[ValueT]):
    """One value for each event loop that uses an object.

    Args:
        make: Makes the value of the running loop, when it is first asked for. It must not be None.
        end: Ends a value in its loop, at the end of the loop.
        abandon: Called with a value whose loop runs no more, and the reason.
    """

    def __init__(
        self,
        make: Callable[[], ValueT],
        *,
        end: Callable[[ValueT], Awaitable[None]] | None = None,
        abandon: Callable[[ValueT, Abandoned], None] | None = None,
    ) -> None:
        self._make = make
        self._end = end
        self._abandon = abandon
        self._values: dict[AbstractEventLoop, ValueT] = {}
        #: The value of a loop, or None.
        self.of = self._values.get

    def here(self) -> ValueT:
        """The value of the running loop. Raises DefinitionError outside of asyncio."""
        value = self._values.get(running_loop())
        if value is None:
            loop = bind(self)
            value = self._values[loop] = self._make()
        return value

    def find(self) -> ValueT | None:
        """The value of the running loop, if there is one."""
        return self._values.get(running_loop())

    def forget(self) -> None:
        """Forget the value of the running loop: it has ended."""
        loop = running_loop()
        self._values.pop(loop, None)
        unbind(self, loop)

    def take_all(self) -> dict[AbstractEventLoop, ValueT]:
        """Forget the values of all loops, from any thread, and return them."""
        values = dict(self._values)
        self._values.clear()
        return values

    def all(self) -> list[ValueT]:
        """The values of all loops that are not closed, from any thread."""
        if any(loop.is_closed() for loop in list(self._values)):
            abandon_closed()
        return list(self._values.values())

    async def end_with_loop(self) -> None:
        """See `LoopBound`."""
        loop = running_loop()
        value = self._values.get(loop)
        try:
            if value is not None and self._end is not None:
                await self._end(value)
        finally:
            self._values.pop(loop, None)

    def abandon(self, loop: AbstractEventLoop, why: Abandoned) -> None:
        """See `LoopBound`."""
        value = self._values.pop(loop, None)
        if value is None:
            return
        if why == "forked":
            leave_to_parent(value)
        if self._abandon is not None:
            self._abandon(value, why)


class Home:
    """The event loop that something is connected in, such as a client: it can be used in no other one.

    Args:
        what: What it is, for errors: "client".
        end: Closes it at the end of the loop.
        abandon: Called when the loop runs no more, to forget what belonged to it; with the reason.
    """

    def __init__(self, what: str, end: Callable[[], Awaitable[None]], abandon: Callable[[Abandoned], None]) -> None:
        self._what = what
        self._end = end
        self._abandon = abandon
        #: The loop; None while it is connected in none.
        self.loop: AbstractEventLoop | None = None
        #: Why it is not connected any more, and what to do, if its loop ended before it was closed; else "".
        self.ended = ""

    def enter(self) -> None:
        """Belong to the running loop from now on. Raises NotSent if it belongs to another one."""
        self.check()
        self.loop, self.ended = bind(self), ""

    def check(self) -> None:
        """Raise NotSent if it belongs to another loop than the running one, unless that has ended."""
        if self.loop is not None and self.loop is not running_loop():
            if self.loop.is_closed():
                self.abandon(self.loop, "closed")
            else:
                raise NotSent(
                    f"Nothing was sent: this {self._what} is connected in another event loop: use it there, or make one for "
                    "each event loop"
                )

    def leave(self) -> None:
        """Belong to no loop: it is closed."""
        if self.loop is not None:
            unbind(self, self.loop)
            self.loop = None

    async def end_with_loop(self) -> None:
        """See `LoopBound`."""
        try:
            await self._end()
        finally:
            self.loop, self.ended = None, self._why("closed")

    def abandon(self, loop: AbstractEventLoop, why: Abandoned) -> None:
        """See `LoopBound`."""
        if self.loop is loop:
            self.loop, self.ended = None, self._why(why)
            self._abandon(why)

    def _why(self, why: Abandoned) -> str:
        if why == "forked":
            return f"this {self._what} was connected before the process was forked: make another one in this process"
        return f"the event loop in which this {self._what} was connected has ended: connect it again in this one"


# ---------------------------------------------------------------- forks

#: What the parent process goes on using. Here it must not even be destroyed: an event loop has the epoll instance of the parent.
_of_parent: list[object] = []
_resets: dict[WeakMethod[Callable[[], None]], None] = {}


def on_fork(reset: Callable[[], None]) -> None:
    """Call a bound method in each process that is forked from this one, as long as its object lives.

    It must only forget what the child doesn't have, such as threads and held locks.
    """
    _resets[WeakMethod(reset, lambda gone: _resets.pop(gone, None))] = None


def leave_to_parent(*values: object) -> None:
    """Keep what the parent of this process goes on using: its destructors would end it there, or fail."""
    _of_parent.append(values)


def _begin_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    residents = list(_loops.values())
    leave_to_parent(residents)
    _loops.clear()
    for each in residents:
        each.abandon("forked")
    for method in list(_resets):
        if (reset := method()) is not None:
            reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)
