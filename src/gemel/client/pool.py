"""Several clients of one server, lent to one caller at a time: for gateways, where each caller needs a connection."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import UnionType
from typing import Any, Self, Unpack

import msgspec

from gemel.client.call_options import CallOptions
from gemel.client.client import Client
from gemel.client.options import ClientOptions, ClientPoolOptions
from gemel.errors import CallError, GemelError, NotSent
from gemel.loops import Home
from gemel.options import accepts, check_option, options_of, resolve, whole
from gemel.schema.tools import CallToolResult, DataT
from gemel.timeouts import TimeLeft

logger = logging.getLogger("gemel")


class PoolHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of a pool.

    Attributes:
        lent: How many clients are lent.
        free: How many clients are open and free.
        waiting: How many callers wait.
        opened: How many clients were opened since the start.
        discarded: How many clients were given up since the start.
    """

    lent: int
    free: int
    waiting: int
    opened: int
    discarded: int


class _Free(msgspec.Struct):
    """A free client, and since when, in seconds of the monotonic clock."""

    client: Client
    since: float


class ClientPool:
    """Clients of one target: `async with ClientPool(target, 10) as pool: async with pool.client() as client`.

    Args:
        target: What a Client takes.
        size: How many clients there may be.
        **options: See `ClientPoolOptions`.

    Raises:
        DefinitionError: An option is unknown, or its value is not allowed.
    """

    @accepts(ClientPoolOptions)
    def __init__(self, target: object, size: int = 10, **options: Unpack[ClientPoolOptions]) -> None:
        check_option("size", size, whole(1))
        settings = resolve(ClientPoolOptions, options, "ClientPool")
        self._target = target
        self._options: Any = {name: value for name, value in options.items() if name in options_of(ClientOptions)}
        self._size = size
        self._idle = settings["idle"]
        self._check_after = settings["check_after"]
        self._wait = settings["wait"]
        self._queue = settings["queue"]
        self._opened = self._discarded = 0
        self._home = Home("pool", self.close, lambda why: self._begin())
        self._begin()

    def _begin(self) -> None:
        """Set what belongs to one event loop."""
        self._places = asyncio.Semaphore(self._size)
        self._waiting = 0
        #: The last one is lent first, so that the others can be closed.
        self._free: list[_Free] = []
        self._lent: set[Client] = set()
        self._sweeping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._home.check()
        if self._home.loop is None:
            self._begin()
            self._home.enter()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all clients, lent ones too: their requests fail with ConnectionLost. Closing twice is harmless."""
        self._home.check()
        self._home.leave()
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
            self._sweeping = None
        free, self._free = self._free, []
        await asyncio.gather(*(client.close() for client in [*(one.client for one in free), *self._lent]))

    @property
    def health(self) -> PoolHealth:
        """The health of the pool now."""
        return PoolHealth(
            lent=len(self._lent),
            free=len(self._free),
            waiting=self._waiting,
            opened=self._opened,
            discarded=self._discarded,
        )

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Lend a client until the end of the block.

        Yields:
            The client.

        Raises:
            NotSent: The pool is closed, or there was no free client in time.
            CallError: No client could be connected.
        """
        await self._take_place()
        client: Client | None = None
        try:
            client = await self._lend()
            yield client
        finally:
            if client is not None:
                await self._give_back(client)
            self._places.release()

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: type[DataT] | UnionType | None = None,
        raise_on_error: bool = True,
        **options: Unpack[CallOptions],
    ) -> CallToolResult[DataT]:
        """Call a tool with any of the clients; see `Client.call_tool`.

        Args:
            name: The name of the tool.
            arguments: The arguments, by name.
            returns: The type of `data` of the result.
            raise_on_error: Whether a result that is marked as an error raises ToolCallError.
            **options: See `CallOptions`.

        Returns:
            The result.

        Raises:
            NotSent: There was no free client in time.
            ToolCallError: The tool reported an error.
            CallError: There is no result for another reason.
        """
        clock = TimeLeft(options.get("total"))
        async with AsyncExitStack() as lent:
            client = await clock.spend(lent.enter_async_context(self.client()), "there was no free client")
            limited = clock.limited(options)
            return await client.call_tool(name, arguments, returns=returns, raise_on_error=raise_on_error, **limited)

    # ---------------------------------------------------------------- lending

    async def _take_place(self) -> None:
        self._check_open()
        if self._places.locked() and self._waiting >= self._queue:
            raise NotSent(f"All {self._size} clients are lent, and {self._waiting} callers wait already")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait):
                await self._places.acquire()
        except TimeoutError:
            raise NotSent(f"None of {self._size} clients came back within {self._wait:g} seconds") from None
        finally:
            self._waiting -= 1

    async def _lend(self) -> Client:
        while self._free:
            free = self._free.pop()
            self._lent.add(free.client)
            well = False
            try:
                well = await self._is_well(free)
            finally:
                if not well:
                    await self._discard(free.client)
            if well:
                return free.client
        client = Client(self._target, **self._options)
        self._lent.add(client)
        try:
            await client.connect()
            self._opened += 1
            self._check_open()
        except BaseException:
            await self._discard(client)
            raise
        return client

    def _check_open(self) -> None:
        self._home.check()
        if self._home.loop is None:
            raise NotSent("The pool is closed: use it in `async with ClientPool(…) as pool`")

    async def _is_well(self, free: _Free) -> bool:
        if not free.client.connected or not await free.client.same_credentials():
            return False
        if time.monotonic() - free.since < self._check_after:
            return True
        try:
            async with asyncio.timeout(free.client.limits.probe):
                await free.client.ping()
        except (CallError, TimeoutError) as exc:
            logger.info("A client of the pool does not answer and is replaced: %s", exc)
            return False
        return True

    async def _give_back(self, client: Client) -> None:
        if self._home.loop is None or not client.connected:
            await self._discard(client)
            return
        self._lent.discard(client)
        self._free.append(_Free(client, time.monotonic()))
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().create_task(self._sweep())

    async def _discard(self, client: Client) -> None:
        self._lent.discard(client)
        self._discarded += 1
        try:
            await client.close()
        except GemelError as exc:
            logger.debug("A client of the pool could not be closed properly: %s", exc)

    async def _sweep(self) -> None:
        """Close clients that were unused for too long; ends when none is left."""
        while self._free:
            oldest = self._free[0]
            seconds = oldest.since + self._idle - time.monotonic()
            if seconds > 0:
                await asyncio.sleep(seconds)
            elif self._free and self._free[0] is oldest:
                del self._free[0]
                await oldest.client.close()
        self._sweeping = None
