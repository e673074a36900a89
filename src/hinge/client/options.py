"""Options of a client, a client pool, a client group and of single requests: their types, and the values that are allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from msgspec import UnsetType

from hinge.client.cache import CacheMode
from hinge.client.negotiation import Discovery
from hinge.options import (
    FLAG,
    PATH,
    SECONDS,
    Check,
    function,
    instance,
    one_of,
    or_none,
    several,
    whole,
)
from hinge.protocol.limits import Limits
from hinge.schema.base import Implementation
from hinge.schema.notifications import SEVERITY, ProgressParams
from hinge.schema.roots import Root

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


_ROOTS = several(
    lambda one: isinstance(one, Root | str | Path), 'on_roots=["/home/me/project"], or a function that gives it'
)

CLIENT: dict[str, Check] = {
    "era": one_of("auto", "2025", "2026"),
    "info": or_none(instance(Implementation, 'info=Implementation(name="mine", version="1")')),
    "discovery": or_none(instance(Discovery, "discovery=client.discovery, of an earlier connection")),
    "limits": instance(Limits, "limits=Limits(…)"),
    "on_elicit": or_none(function("`async def fill_in(form)`")),
    "on_elicit_url": or_none(function("`async def open_page(page)`")),
    "on_sample": or_none(function("`async def ask_model(request)`")),
    "on_roots": or_none(_ROOTS._replace(test=lambda value: callable(value) or _ROOTS.test(value))),
    "sampling_tools": FLAG,
    "on_log": or_none(function("`def log(params)`")),
    "log_level": or_none(one_of(*SEVERITY)),
    "on_change": or_none(function("`def changed(change)`")),
    "on_notification": or_none(function("`def heard(method, params)`")),
    "on_progress": or_none(function("`def report(progress)`")),
    "middleware": several(lambda one: True, "middleware=[…]"),
    "extensions": several(lambda one: True, "extensions=[…]"),
    "cache": Check(
        lambda value: value is None or (hasattr(value, "get") and hasattr(value, "put") and hasattr(value, "drop")),
        "use an object with get, put and drop, or None",
    ),
    "reconnect": FLAG,
    "check_results": FLAG,
    "lock": or_none(
        Check(lambda value: PATH.test(value) or hasattr(value, "seen_in"), 'write the path of a lock, "hinge.lock"')
    ),
    "drift": one_of("refuse", "warn"),
    "on_drift": or_none(function("`def differs(differences)`")),
}

CLIENT_GROUP: dict[str, Check] = {
    "targets": instance(Mapping, 'ClientGroup({"name": target, …})'),
    "concurrency": whole(1)._replace(advice="so many requests at once go to each server, 1 or more"),
    "prefix": one_of("collision", "always"),
    "on_change": or_none(function("`def changed(change, server)`")),
}

POOL: dict[str, Check] = {
    "size": whole(1),
    "queue": whole(0),
    **dict.fromkeys(("idle", "check_after", "check_within", "wait"), SECONDS),
}
