"""How a scripted peer answers the greetings of both eras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hinge.schema.base import SERVER_INFO

#: Who a scripted peer says it is.
INFO = {"name": "scripted", "version": "1"}


def initialized(
    revision: str, capabilities: Mapping[str, Any] | None, info: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The result of `initialize`."""
    return {
        "protocolVersion": revision,
        "capabilities": {"tools": {}} if capabilities is None else dict(capabilities),
        "serverInfo": dict(info or INFO),
    }


def discovered(revision: str, capabilities: Mapping[str, Any] | None, info: Mapping[str, Any] | None) -> dict[str, Any]:
    """The result of `server/discover`."""
    return {
        "resultType": "complete",
        "supportedVersions": [revision],
        "capabilities": {"tools": {}} if capabilities is None else dict(capabilities),
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {SERVER_INFO: dict(info or INFO)},
    }
