"""The subscriptions in one session with the upstream server: its lists, and the resources that callers subscribed to.

There is one subscription for each resource of a handshake server. A stateless server has one for all resources, which is replaced
when a resource is added.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from gemel.client.client import Client
from gemel.client.subscriptions import Subscription, announced_lists, listen_to
from gemel.errors import CallError, PeerError
from gemel.protocol.changes import Changed
from gemel.protocol.eras.base import EraName
from gemel.timeouts import give_up_if_cancelled

logger = logging.getLogger("gemel")

#: Seconds until a failed subscription is tried again.
_RETRY_DELAY = 30.0


#: The subscription that a resource belongs to: one for each resource in the handshake era, one for all ("") after it.
_STREAM_OF: dict[EraName, Callable[[str], str]] = {"2025": lambda uri: uri, "2026": lambda uri: ""}


class UpstreamSubscriptions:
    """Subscribes on one client, and reports each change."""

    def __init__(self, client: Client, on_change: Callable[[Changed], None]) -> None:
        self._client = client
        self._on_change = on_change
        #: The subscribed resources; the subscriptions with the tasks that read them, by URI, or "" for one that has all.
        self._uris: set[str] = set()
        self._streams: dict[str, tuple[Subscription, asyncio.Task[None]]] = {}
        self._lock = asyncio.Lock()
        self._lists: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Subscribe to changes of the lists, once."""
        if self._lists is None:
            self._lists = asyncio.get_running_loop().create_task(self._follow_lists())

    async def stop(self) -> None:
        """End all subscriptions."""
        tasks = {self._lists, *self._tasks} - {None}
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)
        for key in list(self._streams):
            await self._close(key)
        self._uris.clear()

    # ---------------------------------------------------------------- lists

    async def _follow_lists(self) -> None:
        while True:
            kinds = announced_lists(self._client.server_capabilities)
            if not kinds:
                return
            try:
                async with self._client.listen(**listen_to(kinds)) as changes:
                    await self._read(changes, kinds, ())
            except PeerError as exc:
                logger.info("The upstream server refuses a subscription to its lists: %s", exc)
                return
            except CallError as exc:
                logger.warning(
                    "The subscription to the upstream server is tried again in %g seconds: %s", _RETRY_DELAY, exc
                )
            give_up_if_cancelled()
            await asyncio.sleep(_RETRY_DELAY)
            self._assume_changed(kinds, ())

    async def _read(self, changes: Subscription, kinds: Iterable[str], uris: Iterable[str]) -> None:
        async for change in changes:
            if isinstance(change, Changed):
                self._on_change(change)
            else:
                self._assume_changed(kinds, uris)

    def _assume_changed(self, kinds: Iterable[str], uris: Iterable[str]) -> None:
        """Report everything as changed: notifications may have been lost."""
        for kind in kinds:
            self._on_change(Changed(kind))
        for uri in uris:
            self._on_change(Changed("resource", uri))

    # ---------------------------------------------------------------- single resources

    async def subscribe(self, uri: str) -> bool:
        """Subscribe to a resource; return False if the server does not allow it. Raises CallError."""
        async with self._lock:
            if uri in self._uris:
                return True
            key = _STREAM_OF[self._client.era](uri)
            uris = {uri} if key else {*self._uris, uri}
            changes = self._client.listen(resources=sorted(uris))
            await changes.__aenter__()
            if uri not in (changes.honoured.resource_subscriptions or ()):
                await changes.close()
                return False
            self._uris.add(uri)
            before = self._streams.get(key)
            task = asyncio.get_running_loop().create_task(self._follow(changes, uris))
            self._streams[key] = changes, task
            if before is not None:
                await self._end(*before)
            return True

    async def _follow(self, changes: Subscription, uris: Iterable[str]) -> None:
        try:
            await self._read(changes, (), uris)
        except CallError as exc:
            logger.warning("The subscription to resources of the upstream server ended: %s", exc)
            async with self._lock:
                self._uris.difference_update(uris)
            self._assume_changed((), uris)

    def unsubscribe(self, uri: str) -> None:
        """End the subscription to a resource."""
        if uri not in self._uris:
            return
        self._uris.discard(uri)
        key = _STREAM_OF[self._client.era](uri)
        # A subscription to several resources stays until none of them is needed.
        if key or not self._uris:
            task = asyncio.get_running_loop().create_task(self._close(key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _close(self, key: str) -> None:
        async with self._lock:
            if (key or next(iter(self._uris), "")) in self._uris:
                return  # subscribed again
            stream = self._streams.pop(key, None)
            if stream is not None:
                await self._end(*stream)

    @staticmethod
    async def _end(changes: Subscription, task: asyncio.Task[None]) -> None:
        task.cancel()
        with suppress(CallError):
            await changes.close()
        await asyncio.wait([task])
