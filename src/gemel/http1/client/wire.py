"""The interface of an HTTP client: open a request, read its response. Knows nothing of MCP.

The default is `SocketWire` in pool.py; anything with these two methods may take its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Protocol, TypeAlias

#: Headers of a request: names in any case, values as text; sent as UTF-8.
HeaderPairs: TypeAlias = Sequence[tuple[str, str]]

#: Called while a long body is being sent, whenever the server has taken more of it. For the caller of `Wire.open` to set.
BODY_PROGRESS: ContextVar[Callable[[], None] | None] = ContextVar("BODY_PROGRESS", default=None)


class WireResponse(Protocol):
    """The response to one request, whose head has arrived.

    It may have an attribute `finished`: whether all content was read, so that the next `read` would return b"" at once.
    """

    @property
    def status(self) -> int:
        """The HTTP status, 200 to 599."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Lower-case names to values; one that came several times is joined with a comma and a blank."""
        ...

    async def read(self) -> bytes:
        """Return the next piece of the content as soon as it arrives, decompressed; b"" at the end.

        A piece is at most about 256 KiB, however well it was compressed. Raises ConnectionLost if the content broke
        off, InvalidResponse if it can't be decompressed.
        """
        ...

    def close(self, *, drain: bool = False) -> None:
        """Discard the rest. Never waits; may be called at any time, and twice.

        The stream is closed at once unless everything has arrived, so that the server sees it. With `drain` the rest,
        which is about to end, may be read in the background for a bounded time, and the connection kept. A `read` that
        waits in another task raises ConnectionLost.
        """


class Wire(Protocol):
    """Makes HTTP requests and keeps connections open between them. Used from one event loop.

    Spans name the HTTP version of a wire that has an attribute `http_version`, such as "1.1".
    """

    async def open(self, method: str, url: str, headers: HeaderPairs, body: bytes | None, /) -> WireResponse:
        """Send a request and wait for the head of its response, whatever its status. Follows no redirects.

        Raises NotSent if the request never left (no address, refused, TLS), ConnectionLost if it left and no head came,
        InvalidResponse if what came is not HTTP. When the waiting task is cancelled the stream is closed at once.
        """
        ...

    async def close(self) -> None:
        """Close every connection; requests that wait raise ConnectionLost. May be called twice and from any task."""
