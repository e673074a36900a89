"""What a client, a pool of them and a host for several servers can be made with: values, and one line about wrong ones.

Knows options. Must not know what they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

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
from hinge.schema.notifications import SEVERITY
from hinge.schema.roots import Root

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
