"""Changes that servers publish and clients receive. They say that something changed, not how."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec

from gemel import jsonrpc
from gemel.schema.base import SUBSCRIPTION_ID
from gemel.schema.methods import LIST_CHANGED
from gemel.schema.subscriptions import SubscriptionFilter
from gemel.values.encoding import encode_value


class Changed(msgspec.Struct, frozen=True):
    """Something changed.

    Args:
        kind: `"tools"`, `"prompts"` or `"resources"` (the lists), `"resource"` (the one named by `uri`), or a kind of an
            extension, with `uri` as its key.
        uri: The resource, or the key.
    """

    kind: str
    uri: str | None = None


class ChangedFor(Changed, frozen=True):
    """Something changed for one caller only, who alone is told, in the event loop that serves it.

    Args:
        caller: The caller, as `gemel.server.context.caller_key` names it.
    """

    caller: Hashable = None


def resource_of(change: Changed) -> str | None:
    """The URI of the resource that changed; None for a list, and for a kind of an extension."""
    return change.uri if change.kind == "resource" else None


def filter_of_lists(features: Iterable[str]) -> SubscriptionFilter:
    """The filter for changes of the lists of these features."""
    members: dict[str, Any] = {f"{feature}_list_changed": True for feature in features}
    return SubscriptionFilter(**members)


def lists_of_filter(wanted: SubscriptionFilter) -> tuple[str, ...]:
    """The features whose lists a filter has. Equal ones are the same object: many streams share it."""
    return _lists_of(*(getattr(wanted, f"{feature}_list_changed") for feature in LIST_CHANGED))


@cache
def _lists_of(*on: bool | None) -> tuple[str, ...]:
    return tuple(feature for feature, chosen in zip(LIST_CHANGED, on, strict=True) if chosen)


def covers(watched: str, changed: str) -> bool:
    """Whether a subscription to one URI covers a change of another: the same one, or one below it."""
    return changed == watched or (
        changed.startswith(watched) and (watched.endswith("/") or changed[len(watched)] in "/?#")
    )


class ChangesLost(msgspec.Struct, frozen=True):
    """Changes may have been lost: read everything again that is subscribed to.

    Args:
        reason: Why.
    """

    reason: str = ""


class ChangeMessage(msgspec.Struct, frozen=True):
    """A change as it is sent. All readers share its bytes, also what keeps messages to resume streams.

    Args:
        change: The change.
        method: The method of its notification; "" for a kind of an extension, which describes each change for each reader.
        data: The notification of the handshake era.
        opening: The notification of the stateless era up to the id of the subscription; see `subscription_end`.
    """

    change: Changed
    method: str = ""
    data: bytes = b""
    opening: bytes = b""


def encode_change(change: Changed) -> ChangeMessage:
    """Encode the notification of a change."""
    if (uri := resource_of(change)) is not None:
        method, members = "notifications/resources/updated", {"uri": uri}
    elif change.kind in LIST_CHANGED:
        method, members = LIST_CHANGED[change.kind], {}
    else:
        return ChangeMessage(change)
    opening = jsonrpc.encode_notification(method, {**members, "_meta": {}}).removesuffix(b"}}}")
    return ChangeMessage(change, method, jsonrpc.encode_notification(method, members or msgspec.UNSET), opening)


def subscription_end(request_id: jsonrpc.RequestId) -> bytes:
    """What completes `ChangeMessage.opening` for the reader of one subscription."""
    return encode_value({SUBSCRIPTION_ID: request_id})[1:] + b"}}"


class _BufferedChange(msgspec.Struct, frozen=True, eq=False):
    position: int
    message: ChangeMessage


class ChangeBuffer:
    """The last changes of one server, each thing once, for any number of readers. A reader is a position in it.

    What readers take has no part in its size. One that stays behind further than the buffer reaches has lost changes.

    Args:
        max_count: Changes to keep.
        max_bytes: Bytes of their URIs to keep.

    Attributes:
        position: The position of the newest change; 0 before the first one.
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self.position = 0
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._bytes = 0
        #: The position of the newest change that is no longer kept.
        self._dropped = 0
        #: The newest entry of each thing, the oldest entry first.
        self._newest: OrderedDict[Changed, _BufferedChange] = OrderedDict()
        #: The same by position, and some that newer ones have replaced.
        self._entries: list[_BufferedChange] = []

    def add(self, change: Changed | ChangesLost) -> int:
        """Add a change; it replaces an earlier one of the same thing. Returns its position."""
        self.position += 1
        if isinstance(change, ChangesLost):
            self._newest.clear()
            self._entries.clear()
            self._bytes, self._dropped = 0, self.position
            return self.position
        entry = _BufferedChange(self.position, self.message(change))
        if self._newest.pop(change, None) is None:
            self._bytes += _size(change)
        self._newest[change] = entry
        self._entries.append(entry)
        while len(self._newest) > self._max_count or self._bytes > self._max_bytes:
            oldest, dropped = self._newest.popitem(last=False)
            self._dropped = dropped.position
            self._bytes -= _size(oldest)
        if len(self._entries) > 2 * len(self._newest) + 16:
            self._entries = list(self._newest.values())
        return self.position

    @property
    def newest(self) -> ChangeMessage | None:
        """The message of the newest change; None if there is none, or it is not kept."""
        return self._entries[-1].message if self.position > self._dropped else None

    def after(self, position: int) -> tuple[int, ChangeMessage | ChangesLost] | None:
        """Find the next change and its position, or that changes after this position are no longer kept; None at the end."""
        if position == self.position:
            return None
        if position < self._dropped:
            return self.position, ChangesLost("too many changes were not read")
        for index in range(bisect_right(self._entries, position, key=_position_of), len(self._entries)):
            entry = self._entries[index]
            if self._newest.get(entry.message.change) is entry:
                return entry.position, entry.message
        return None

    def message(self, change: Changed) -> ChangeMessage:
        """The message of a change, shared if the buffer has it."""
        entry = self._newest.get(change)
        return encode_change(change) if entry is None else entry.message


_position_of = attrgetter("position")


def _size(change: Changed) -> int:
    return len(change.uri or "")
