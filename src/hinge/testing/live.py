"""The real server behind a recording that lacks something: requests go on to it as they are, and what it says comes back.

Nothing is translated: it is spoken to in the era of the client. Whoever records listens to what passes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import UNSET, Raw

from hinge.channel import Transport
from hinge.errors import CallError, InternalError, PeerError, ProtocolError
from hinge.protocol.calls import Call
from hinge.protocol.limits import Limits
from hinge.schema.base import SUBSCRIPTION_ID
from hinge.session import Session
from hinge.testing.caller import Caller

logger = logging.getLogger("hinge")


class Live:
    """The way to the real server: one conversation for each of a client's, one for all stateless POSTs together."""

    def __init__(
        self, target: Any, transport: Callable[[], Transport], limits: Limits, *, lists: Sequence[Any] = ()
    ) -> None:
        self._target = target
        self._transport = transport
        self._limits = limits
        #: The lists of tools that clients have seen: they say what goes into headers.
        self._lists = lists
        self._callers: WeakKeyDictionary[Session, asyncio.Task[_Behind]] = WeakKeyDictionary()
        self._shared: asyncio.Task[_Behind] | None = None
        #: The params of `initialize`, as each client in front said it.
        self._hellos: WeakKeyDictionary[Session, Any] = WeakKeyDictionary()

    async def ask(self, front: Session, call: Call) -> Any:
        """The real server's answer to a call of the client in front. Raises ProtocolError with what the server said."""
        try:
            behind = await asyncio.shield(self._behind(front, call))
            return await behind.ask(front, call)
        except PeerError as exc:
            raise ProtocolError(exc.message, exc.error.data, code=exc.code) from exc
        except CallError as exc:
            raise InternalError(f"The recorded server can't be asked: {exc}") from exc

    async def tell(self, front: Session, call: Call) -> None:
        """A notification of the client in front, for a real server that is in a conversation with it already."""
        behind = self._callers.get(front)
        if behind is not None and behind.done() and not behind.cancelled() and behind.exception() is None:
            await behind.result().tell(call)

    def hello(self, front: Session, params: Any) -> None:
        """The client in front has said `initialize` to the recording; the real server will hear it when it is needed."""
        self._hellos[front] = params

    def _behind(self, front: Session, call: Call) -> asyncio.Task[_Behind]:
        lone = front.channel.kind == "post"
        found = self._shared if lone else self._callers.get(front)
        if found is None or (found.done() and (found.cancelled() or found.exception() or found.result().over)):
            found = front.loop.create_task(self._open(front, call))
            if lone:
                self._shared = found
            else:
                self._callers[front] = found
        return found

    async def _open(self, front: Session, call: Call) -> _Behind:
        own = None if front.channel.kind == "post" else front
        behind = _Behind(self._target, self._transport(), self._limits, own)
        await behind.open(self._lists)
        if own is not None:
            own.on_close(behind.close)
        hello = self._hellos.get(front)
        if hello is not None and call.method != "initialize":
            await behind.shake_hands(hello)
        return behind

    async def close(self) -> None:
        """End the conversation that stateless POSTs share; the others end with their clients."""
        shared, self._shared = self._shared, None
        if shared is not None and shared.done() and not shared.cancelled() and shared.exception() is None:
            await shared.result().close()


class _Behind:
    """One conversation with the real server. `front` is the client's it belongs to, if it belongs to one."""

    def __init__(self, target: Any, transport: Transport, limits: Limits, front: Session | None) -> None:
        self._front = front
        #: Notifications on their way to clients: an answer waits for those that came before it.
        self._passing: set[asyncio.Task[None]] = set()
        self._caller = Caller(target, transport, self._heard, limits)

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._caller.session.connection.closed is not None

    async def open(self, lists: Sequence[Any]) -> None:
        """See Caller."""
        await self._caller.open()
        for one in lists:
            self._caller.learn(one)

    async def close(self) -> None:
        """See Caller."""
        await self._caller.close()

    async def shake_hands(self, params: Any) -> Raw:
        """The handshake, with what the client in front says of itself."""
        result = await self._caller.ask("initialize", params)
        await self._caller.tell("notifications/initialized")
        return result

    async def ask(self, front: Session, call: Call) -> Any:
        """One request; its progress has gone to the client before this returns."""
        params = msgspec.json.decode(call.params) if call.params else UNSET
        if call.method == "initialize":
            return msgspec.json.decode(await self.shake_hands(params))

        def progress(said: Raw) -> None:
            found = {**msgspec.json.decode(said), "progressToken": call.meta and call.meta.progress_token}
            self._pass_on(front, "notifications/progress", found, call)

        try:
            result = await self._caller.ask(call.method, params, (front, call), on_progress=progress)
        finally:
            await asyncio.gather(*self._passing, return_exceptions=True)
        return _remapped(result, call)

    def _pass_on(self, front: Session, method: str, params: Any, about: Call | None) -> None:
        task = front.loop.create_task(front.notify(method, params, about=about))
        self._passing.add(task)
        task.add_done_callback(self._passed)

    def _passed(self, task: asyncio.Task[None]) -> None:
        self._passing.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.debug("A notification did not reach the client: %s", task.exception())

    async def tell(self, call: Call) -> None:
        """One notification, but for those that this conversation says itself."""
        if call.method not in ("notifications/initialized", "notifications/cancelled"):
            await self._caller.tell(call.method, msgspec.json.decode(call.params) if call.params else UNSET)

    async def _heard(self, session: Session, call: Call) -> Any:
        """The server says something unasked, or asks: that goes to the client whose call it is about."""
        params = msgspec.json.decode(call.params) if call.params else UNSET
        meta = params.get("_meta") if isinstance(params, Mapping) else None
        named = meta.get(SUBSCRIPTION_ID) if isinstance(meta, Mapping) else None
        running = self._caller.running
        about = running.get(named) if isinstance(named, str | int) else None
        about = about or next((tag for tag in reversed(running.values()) if tag is not None), None)
        front, cause = about if about is not None else (self._front, None)
        if front is None:
            return {}
        if cause is not None and named is not None and isinstance(params, Mapping) and isinstance(meta, Mapping):
            params = {**params, "_meta": {**meta, SUBSCRIPTION_ID: cause.id}}
        if call.id is None:
            self._pass_on(front, call.method, params, cause)
            return None
        try:
            return await front.request(call.method, params, about=cause)
        except PeerError as exc:
            raise ProtocolError(exc.message, exc.error.data, code=exc.code) from exc


def _remapped(result: Raw, call: Call) -> Any:
    """The id of a subscription is that of the client's own request."""
    if call.method != "subscriptions/listen":
        return result
    found = msgspec.json.decode(result)
    return {**found, "_meta": {**(found.get("_meta") or {}), SUBSCRIPTION_ID: call.id}}
