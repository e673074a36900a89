"""The ASGI 3 interface as types, and the response heads that never change. Knows nothing of MCP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
HeaderPairs: TypeAlias = tuple[tuple[bytes, bytes], ...]

JSON_TYPE = b"application/json"
EVENTS_TYPE = b"text/event-stream"
TEXT_TYPE = b"text/plain; charset=utf-8"
#: MHTTP-09: without the second and third a proxy may hold events back.
STREAM_HEADERS: HeaderPairs = (
    (b"content-type", EVENTS_TYPE),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
RETRY_LATER: HeaderPairs = ((b"retry-after", b"1"),)
CLOSE: HeaderPairs = ((b"connection", b"close"),)
