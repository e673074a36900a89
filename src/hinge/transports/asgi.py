"""The ASGI 3 interface as types, and the response heads that never change. Knows nothing of MCP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
HeaderPairs: TypeAlias = tuple[tuple[bytes, bytes], ...]

JSON_TYPE = (b"content-type", b"application/json")
EVENTS_TYPE = (b"content-type", b"text/event-stream")
#: MHTTP-09: without the second and third a proxy may hold events back.
STREAM_HEADERS: HeaderPairs = (
    EVENTS_TYPE,
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
NO_BODY: HeaderPairs = ((b"content-length", b"0"),)
RETRY_LATER: HeaderPairs = ((b"retry-after", b"1"),)


def cut(send: Send) -> None:
    """Cut the connection at once, where the HTTP server lets an application do so.

    ASGI knows no such message, and servers that close in good order first wait until a reader that doesn't read has
    read everything. uvicorn's `send` is a method of an object that holds the transport; elsewhere nothing happens.
    """
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    abort = getattr(transport, "abort", None)
    if abort is not None:
        abort()
