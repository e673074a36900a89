"""What a bridge hears of the next server's changes: its lists, and those resources that callers watch.

A handshake server is subscribed to each resource; a stateless one is listened to by one stream for all of them, which is
replaced when it has to name more. Must not know who watches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from hinge.client.client import Client
from hinge.client.subscriptions import Subscription
from hinge.errors import CallError, PeerError
from hinge.protocol.changes import Changed
from hinge.timeouts import give_up_if_cancelled

logger = logging.getLogger("hinge")

#: Seconds until listening is tried again after it ended for good.
_AGAIN = 30.0


class Watching:
    """Listens on one client and hands over each change."""

    def __init__(self, client: Client, heard: Callable[[Changed], None]) -> None:
        self._client = client
        self._heard = heard
        #: The resources that are watched, and the streams that bring their changes, each with the task that reads it.
        self._watched: set[str] = set()
        self._streams: dict[str, tuple[Subscription, asyncio.Task[None]]] = {}
        self._changing = asyncio.Lock()
        self._lists: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Listen to changes of the lists from now on."""
        self._lists = asyncio.get_running_loop().create_task(self._hear_lists())

    async def stop(self) -> None:
        """Listen no more."""
        tasks = {self._lists, *self._tasks} - {None}
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)
        for key in list(self._streams):
            await self._close(key)
        self._watched.clear()

    # ---------------------------------------------------------------- lists

    async def _hear_lists(self) -> None:
        while True:
            offered = self._client.server_capabilities
            tools = bool(offered.tools and offered.tools.list_changed)
            prompts = bool(offered.prompts and offered.prompts.list_changed)
            resources = bool(offered.resources and offered.resources.list_changed)
            kinds = [kind for kind, on in (("tools", tools), ("prompts", prompts), ("resources", resources)) if on]
            if not kinds:
                return
            try:
                async with self._client.listen(tools=tools, prompts=prompts, resource_list=resources) as changes:
                    await self._read(changes, kinds, ())
            except PeerError as exc:
                logger.info("The server behind this one doesn't tell of its changes: %s", exc)
                return
            except CallError as exc:
                logger.warning("Changes of the server behind this one are not heard for %g seconds: %s", _AGAIN, exc)
            give_up_if_cancelled()
            await asyncio.sleep(_AGAIN)
            self._lost(kinds, ())

    async def _read(self, changes: Subscription, kinds: Iterable[str], uris: Iterable[str]) -> None:
        async for change in changes:
            if isinstance(change, Changed):
                self._heard(change)
            else:
                self._lost(kinds, uris)

    def _lost(self, kinds: Iterable[str], uris: Iterable[str]) -> None:
        """Hints may have been lost: everything may have changed."""
        for kind in kinds:
            self._heard(Changed(kind))
        for uri in uris:
            self._heard(Changed("resource", uri))

    # ---------------------------------------------------------------- single resources

    async def watch(self, uri: str) -> bool:
        """Hear of changes of a resource; False when the server doesn't let it be watched. Raises CallError."""
        async with self._changing:
            if uri in self._watched:
                return True
            wanted = {uri} if self._client.era == "2025" else {*self._watched, uri}
            changes = self._client.listen(resources=sorted(wanted))
            await changes.__aenter__()
            if uri not in (changes.honoured.resource_subscriptions or ()):
                await changes.close()
                return False
            self._watched.add(uri)
            key = uri if self._client.era == "2025" else ""
            before = self._streams.get(key)
            task = asyncio.get_running_loop().create_task(self._follow(changes, wanted))
            self._streams[key] = changes, task
            if before is not None:
                await self._end(*before)
            return True

    async def _follow(self, changes: Subscription, uris: Iterable[str]) -> None:
        try:
            await self._read(changes, (), uris)
        except CallError as exc:
            logger.warning("Watched resources of the server behind this one are no longer heard of: %s", exc)
            async with self._changing:
                self._watched.difference_update(uris)
            self._lost((), uris)

    def unwatch(self, uri: str) -> None:
        """Nobody wants to hear of a resource any more; may be called at any time."""
        if uri not in self._watched:
            return
        self._watched.discard(uri)
        key = uri if self._client.era == "2025" else ""
        # A stream for several goes on until none of them is wanted; what it says of others interests nobody.
        if key or not self._watched:
            task = asyncio.get_running_loop().create_task(self._close(key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _close(self, key: str) -> None:
        async with self._changing:
            if (key or next(iter(self._watched), "")) in self._watched:
                return  # watched again meanwhile
            found = self._streams.pop(key, None)
            if found is not None:
                await self._end(*found)

    @staticmethod
    async def _end(changes: Subscription, task: asyncio.Task[None]) -> None:
        task.cancel()
        with suppress(CallError):
            await changes.close()
        await asyncio.wait([task])
