"""The ASGI 3 interface as types, and a few constant headers."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias, TypeGuard

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
HeaderPairs: TypeAlias = tuple[tuple[bytes, bytes], ...]

TEXT_TYPE = b"text/plain; charset=utf-8"
CLOSE: HeaderPairs = ((b"connection", b"close"),)


def is_asgi_app(target: Any) -> TypeGuard[AsgiApp]:
    """Return whether an object is called with `(scope, receive, send)`."""
    if not callable(target):
        return False
    try:
        names = list(inspect.signature(target).parameters)
    except (TypeError, ValueError):
        return False
    return names[:3] == ["scope", "receive", "send"]
