"""The options of single requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypedDict

from msgspec import UnsetType

from gemel.client.cache import CacheMode
from gemel.schema.notifications import ProgressParams

#: Called with the progress of a request; sync or async.
OnProgress: TypeAlias = Callable[[ProgressParams], Any]
#: Seconds, None for no limit; unset for the default of the client.
Limit: TypeAlias = float | UnsetType | None


class CallOptions(TypedDict, total=False):
    """Options of every request.

    Attributes:
        idle: Seconds without a message from the server until the request fails, None for no limit; `limits.call_idle` by
            default.
        total: Seconds until the request fails, None for no limit; `limits.call_total` by default.
        on_progress: Called with the progress of the request, instead of the client's `on_progress`; sync or async.
        meta: Keys for the `_meta` of the params, with a prefix of your own.
        headers: HTTP headers of this request, which replace those of the client.
    """

    idle: Limit
    total: Limit
    on_progress: OnProgress | None
    meta: Mapping[str, Any] | None
    headers: Mapping[str, str] | None


class RequestOptions(CallOptions, total=False):
    """Further options of `Client.request`.

    Attributes:
        safe: Whether the request may be repeated when it is unknown whether it ran; by default that follows from the
            method.
        cache: "use" the cache, "refresh" its entry, or "bypass" it.
    """

    safe: bool | None
    cache: CacheMode
