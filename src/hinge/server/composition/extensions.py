"""The extensions of mounted servers, as the server that holds them announces and serves them.

Their names carry no prefix: an extension that has more than tools, prompts and resources can be in one mounted server only,
and the holding server's own goes first. Knows no extension by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from hinge.protocol.calls import EraName
from hinge.server.context import Context
from hinge.server.dispatch import Elsewhere, Served
from hinge.server.extensions import Topic

if TYPE_CHECKING:
    from hinge.server.composition.mounting import Mount
    from hinge.server.server import Server


class MountedExtensions(Elsewhere, Mapping[str, tuple[str, Topic]]):
    """All that is found in mounted servers; as a mapping, the topics of the server and of all that is mounted in it."""

    def __init__(self, host: Server[Any]) -> None:
        self._host = host

    def settings(self, era: EraName) -> dict[str, dict[str, Any]]:
        """What mounted servers announce in an era; of two with the same extension, the first."""
        found: dict[str, dict[str, Any]] = {}
        for mount in self._host._mounts:
            found = {**mount.server._announced(era), **found}
        return found

    def with_methods(self) -> set[str]:
        """The ids of all extensions, of the server and in it, that have methods or topics of their own."""
        return self._host._extensions.with_methods.union(
            *(mount.server._elsewhere.with_methods() for mount in self._host._mounts)
        )

    def request(self, method: str) -> Served | None:
        """Who serves a request of an extension."""
        for mount in self._host._mounts:
            served = mount.server._extensions.requests.get(method) or mount.server._elsewhere.request(method)
            if served is not None:
                return _Passed(served, mount)
        return None

    def notification(self, method: str) -> Served | None:
        """Who hears a notification of an extension."""
        for mount in self._host._mounts:
            served = mount.server._extensions.notifications.get(method) or mount.server._elsewhere.notification(method)
            if served is not None:
                return served
        return None

    def result_type(self, said: str) -> str | None:
        """The id of the extension that has results of this type."""
        for mount in self._host._mounts:
            found = mount.server._dispatch.result_types.get(said) or mount.server._elsewhere.result_type(said)
            if found is not None:
                return found
        return None

    # ---------------------------------------------------------------- topics, by the key of the filter

    def __getitem__(self, key: str) -> tuple[str, Topic]:
        own = self._host._extensions.topics.get(key)
        if own is not None:
            return own
        for mount in self._host._mounts:
            if key in mount.server._elsewhere:
                return mount.server._elsewhere[key]
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        found = dict.fromkeys(self._host._extensions.topics)
        for mount in self._host._mounts:
            found |= dict.fromkeys(mount.server._elsewhere)
        return iter(found)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Passed(Served):
    """A request that a mounted server serves, in its own chain of middleware."""

    def __init__(self, inner: Served, mount: Mount) -> None:
        async def serve(ctx: Context[Any], params: Raw) -> Any:
            return await mount.ask(ctx)

        super().__init__(inner.name, serve, Raw)
        self.first, self.last = inner.first, inner.last
