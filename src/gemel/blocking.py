"""What the blocking client (`gemel.sync`) is made of: the thread with its event loop, and what is open there.

One background thread runs the event loop of all blocking clients while one is open. Callbacks that are not async run in
worker threads, so they may block.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, Self, TypeVar, cast

from gemel.client.callbacks import awaited
from gemel.client.options import CALLBACKS
from gemel.client.subscriptions import Subscription as AsyncSubscription
from gemel.errors import ConnectFailed, DefinitionError, NotSent
from gemel.loops import leave_to_parent, on_fork
from gemel.protocol.changes import Changed, ChangesLost

CallbackT = TypeVar("CallbackT")
OptionsT = TypeVar("OptionsT")
ResultT = TypeVar("ResultT")


class Connectable(Protocol):
    """What `Client` and `ClientGroup` of `gemel` have in common."""

    async def connect(self) -> None:
        """Connect."""
        ...

    async def close(self) -> None:
        """Close."""
        ...


AsyncT = TypeVar("AsyncT", bound=Connectable)


class _Background:
    """The thread with the event loop, which exists while a client is open."""

    def __init__(self) -> None:
        self._begin()
        on_fork(self._begin_in_child)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def _begin_in_child(self) -> None:
        """A fork does not take the thread along."""
        leave_to_parent(self.loop)
        self._begin()

    def enter(self) -> asyncio.AbstractEventLoop:
        """Count a client, and start the thread for the first one. Returns its event loop."""
        with self._lock:
            self._users += 1
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self.loop.run_forever, name="gemel-client", daemon=True)
                self._thread.start()
            return self.loop

    def leave(self) -> None:
        """Count a client less, and stop the thread after the last one."""
        with self._lock:
            self._users -= 1
            loop, thread = self.loop, self._thread
            if self._users or loop is None or thread is None:
                return
            self.loop = self._thread = None
        asyncio.run_coroutine_threadsafe(_end_loop(loop), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine there and wait for it; Ctrl-C cancels it.

        Raises:
            DefinitionError: This is the thread itself, which would wait for itself.
            NotSent: No client is open.
            Exception: What the coroutine raises.
        """
        loop = self.loop
        try:
            if threading.current_thread() is self._thread:
                raise DefinitionError(
                    "A blocking client would wait here for its own event loop: in an async function use gemel.Client and await it"
                )
            if loop is None:
                raise NotSent("Nothing was sent: the client is not connected")
        except BaseException:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            if future.cancel():  # it was interrupted: wait until everything that it opened is closed
                with suppress(BaseException):
                    asyncio.run_coroutine_threadsafe(_others_done(), loop).result(_LEAVE)
            raise


async def _end_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Do what `asyncio.run` does before it closes its loop."""
    remaining = asyncio.all_tasks() - {asyncio.current_task()}
    for task in remaining:
        task.cancel()
    if remaining:
        await asyncio.wait(remaining, timeout=_LEAVE)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


async def _others_done() -> None:
    """Wait for the cancelled tasks of this loop."""
    cancelled = [task for task in asyncio.all_tasks() if task.cancelling()]
    if cancelled:
        await asyncio.wait(cancelled, timeout=_LEAVE)


#: Seconds for what was interrupted to clean up.
_LEAVE = 5.0

_background = _Background()
run = _background.run


class Blocking(Generic[AsyncT]):
    """A blocking client or group: opens an async one in the event loop of the background thread.

    Args:
        make: Makes the async one, in the event loop.
        what: What it is, for errors.
    """

    def __init__(self, make: Callable[[], AsyncT], what: str) -> None:
        self._make = make
        self._what = what
        self._present: AsyncT | None = None
        #: The event loop in which it is connected.
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    if not TYPE_CHECKING:  # type checkers report it themselves

        async def __aenter__(self) -> NoReturn:
            name = type(self).__name__
            raise TypeError(f"This {name} is opened by `with {name}(…)`; in async code use gemel.{name}")

        __aexit__ = __aenter__

    def connect(self) -> None:
        """Connect, as the async one does.

        Raises:
            ConnectFailed: It is connected already, or the async one can't connect.
        """

        async def connect() -> AsyncT:
            made = self._make()
            await made.connect()
            return made

        if self._present is not None and self._is_here:
            raise ConnectFailed(f"This {self._what} is connected already")
        self._loop = _background.enter()
        try:
            self._present = run(connect())
        except BaseException:
            _background.leave()
            raise

    def close(self) -> None:
        """Close it, unless it belongs to the parent of this process. Closing twice is harmless."""
        present, self._present = self._present, None
        if present is not None and self._is_here:
            try:
                run(present.close())
            finally:
                _background.leave()

    @property
    def _is_here(self) -> bool:
        return self._loop is _background.loop

    @property
    def _async(self) -> AsyncT:
        """The async one. Raises NotSent if it can't be used."""
        if self._present is None:
            raise NotSent(f"Nothing was sent: the {self._what} is not connected")
        if not self._is_here:
            text = f"this {self._what} was connected before the process was forked: make another one in this process"
            raise NotSent(f"Nothing was sent: {text}")
        return self._present


def run_async(opened: Blocking[AsyncT], use: Callable[[AsyncT], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """Run an async function with the client behind a connected blocking one, for add-ons that have async code only.

    Args:
        opened: The blocking client.
        use: The function.

    Returns:
        What it returns.

    Raises:
        NotSent: The client is not connected.
    """
    return run(use(opened._async))


def in_thread(callback: CallbackT) -> CallbackT:
    """Make a callback run in a worker thread, unless it is async.

    Args:
        callback: The callback, or None.

    Returns:
        The callback, or an async function that calls it.
    """
    function: Any = callback
    if not callable(function) or inspect.iscoroutinefunction(function):
        return callback

    @functools.wraps(function)
    async def call(*arguments: object) -> Any:
        return await awaited(await asyncio.to_thread(function, *arguments))

    return cast(CallbackT, call)


def threaded(options: OptionsT) -> OptionsT:
    """Make the callbacks among options run in worker threads.

    Args:
        options: The options.

    Returns:
        The options with other callbacks.
    """
    given = cast("dict[str, Any]", options)
    return cast(OptionsT, {name: in_thread(value) if name in CALLBACKS else value for name, value in given.items()})


class Subscription:
    """An open subscription: `with client.listen(…) as changes: for change in changes`. Made by `Client.listen`."""

    def __init__(self, _make: Callable[[], AsyncSubscription]) -> None:
        self._make = _make
        self._subscription: AsyncSubscription | None = None

    def __enter__(self) -> Self:
        async def enter() -> AsyncSubscription:
            return await self._make().__aenter__()

        self._subscription = run(enter())
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._subscription is not None:
            run(self._subscription.close())

    def __iter__(self) -> Iterator[Changed | ChangesLost]:
        return self

    def __next__(self) -> Changed | ChangesLost:
        change = self.next()
        if change is None:
            raise StopIteration
        return change

    def next(self, timeout: float | None = None) -> Changed | ChangesLost | None:
        """Wait for the next change.

        Args:
            timeout: Seconds to wait; None for no limit.

        Returns:
            The change; None when the subscription has ended.

        Raises:
            TimeoutError: There was no change in time.
            ConnectionLost: The subscription was lost and can't be opened again.
        """
        assert self._subscription is not None, "use it in a with block"
        subscription = self._subscription

        async def take() -> Changed | ChangesLost | None:
            async with asyncio.timeout(timeout):
                return await anext(subscription, None)

        return run(take())
