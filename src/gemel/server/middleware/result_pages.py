"""Pages of results that are too long: how a result is cut, and where its pages are kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from hashlib import sha256
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from gemel.backends.base import Backend
from gemel.backends.keys import make_key
from gemel.backends.server_backend import ServerBackend
from gemel.options import Check, SettingsMeta, check_values, is_number, whole
from gemel.schema.content import ContentBlock, ResourceContents, TextContent, contents_of
from gemel.shares import Shares

ItemT = TypeVar("ItemT")

#: Bytes of one value of a backend, and what values begin with: the version of this format.
_PART_BYTES = 1 << 19
_MORE, _LAST = b"1", b"0"
#: Where a text may be cut, best first: after a line, an item of JSON, a word. Else between two characters.
_MARKS = (b"\n", b"},", b"],", b",", b" ")
_OPTIONS = {
    "expires": Check(lambda value: is_number(value) and 0 < value < float("inf"), "use seconds, more than 0"),
    "results": whole(1),
    "bytes": whole(1),
}


class Spill(msgspec.Struct, frozen=True, kw_only=True, metaclass=SettingsMeta):
    """How long `ResultLimit` keeps results that are too long, and how much of them.

    Where there is no room for another, the caller who has most of it loses the oldest one: a principal, else an address or an
    IPv6 network of 64 bits. Results of one caller never push out those of another who has less. A result that would displace
    itself is not kept: the tool call fails with a text that tells the model to ask for less.

    Args:
        expires: Seconds for which the pages of a result can be read, more than 0.
        results: How many results of this process are kept.
        bytes: How many bytes all of them have together. A larger result is not kept.

    Raises:
        DefinitionError: An unknown name, or a value out of range.
    """

    expires: float = 900.0
    results: int = 1000
    bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        check_values(msgspec.structs.asdict(self), _OPTIONS)


# ---------------------------------------------------------------- where pages are kept


class KeptPage(msgspec.Struct, array_like=True):
    """One page: text or base64, and who may read it."""

    owner: str
    mime_type: str | None
    text: str | None = None
    blob: str | None = None


class PageStore(Protocol):
    """Keeps the pages of results for a while."""

    async def put(self, key: str, pages: Sequence[bytes], holder: Hashable) -> bool:
        """Keep the pages of a result in the share of a caller. False if there is no room."""
        ...

    async def get(self, key: str, number: int) -> bytes | None:
        """A page, counted from 1; None for one that isn't there, or no longer."""
        ...


class _Kept(NamedTuple, Generic[ItemT]):
    items: Sequence[ItemT]
    ends: float
    holder: Hashable


class _Ledger(Generic[ItemT]):
    """What this process keeps, within the bounds of a `Spill`."""

    def __init__(self, spill: Spill, clock: Callable[[], float]) -> None:
        self._spill = spill
        self._clock = clock
        #: In the order in which they expire.
        self._results: OrderedDict[str, _Kept[ItemT]] = OrderedDict()
        #: The same by caller, in number and in bytes.
        self._numbers: Shares[str] = Shares()
        self._sizes: Shares[str] = Shares()

    def add(self, key: str, items: Sequence[ItemT], size: int, holder: Hashable) -> tuple[bool, list[ItemT]]:
        """Add a result. Returns whether there is room for it, and what was dropped and had not expired."""
        self.drop_expired()
        if size > self._spill.bytes:
            return False, []
        self._results[key] = _Kept(items, self._clock() + self._spill.expires, holder)
        self._numbers.add(holder, key)
        self._sizes.add(holder, key, max(size, 1))
        dropped: list[ItemT] = []
        while len(self._numbers) > self._spill.results:
            dropped += self._drop(self._numbers.giving_way(holder)[0])
        while self._sizes.size > self._spill.bytes:
            dropped += self._drop(self._sizes.giving_way(holder)[0])
        return key in self._results, dropped

    def get(self, key: str) -> Sequence[ItemT]:
        """The items of a result; none if it is not kept."""
        self.drop_expired()
        kept = self._results.get(key)
        return () if kept is None else kept.items

    def drop_expired(self) -> None:
        now = self._clock()
        while self._results and next(iter(self._results.values())).ends <= now:
            self._drop(next(iter(self._results)))

    def _drop(self, key: str) -> Sequence[ItemT]:
        kept = self._results.pop(key)
        self._numbers.discard(kept.holder, key)
        self._sizes.discard(kept.holder, key)
        return kept.items


class MemoryPages:
    """Keeps pages in this process."""

    def __init__(self, spill: Spill, clock: Callable[[], float]) -> None:
        self._ledger: _Ledger[bytes] = _Ledger(spill, clock)

    async def put(self, key: str, pages: Sequence[bytes], holder: Hashable) -> bool:
        return self._ledger.add(key, pages, sum(map(len, pages)), holder)[0]

    async def get(self, key: str, number: int) -> bytes | None:
        pages = self._ledger.get(key)
        return pages[number - 1] if 1 <= number <= len(pages) else None


class BackendPages:
    """Keeps pages in a backend, where other processes find them. The bounds are those of one process.

    Each page is one value or several, of which all but the last one begin with `_MORE`. Their names show no URI.
    """

    def __init__(self, backend: Backend, spill: Spill, clock: Callable[[], float]) -> None:
        self._backend = backend
        self._spill = spill
        #: The names of values.
        self._ledger: _Ledger[str] = _Ledger(spill, clock)

    def use_backend(self, backend: ServerBackend) -> None:
        """Keep pages under the name of a server."""
        if not isinstance(self._backend, ServerBackend):
            self._backend = backend.part_of(self._backend)

    async def put(self, key: str, pages: Sequence[bytes], holder: Hashable) -> bool:
        values: dict[str, bytes] = {}
        for number, page in enumerate(pages, 1):
            starts = range(0, max(len(page), 1), _PART_BYTES)
            for part, start in enumerate(starts):
                mark = _LAST if start == starts[-1] else _MORE
                values[_name(key, number, part)] = mark + page[start : start + _PART_BYTES]
        has_room, dropped = self._ledger.add(key, list(values), sum(map(len, pages)), holder)
        for name in dropped:
            if name not in values:
                await self._backend.delete(name)
        if not has_room:
            return False
        for name, value in values.items():
            await self._backend.set(name, value, ttl=self._spill.expires)
        return True

    async def get(self, key: str, number: int) -> bytes | None:
        parts: list[bytes] = []
        while not parts or parts[-1][:1] == _MORE:
            value = await self._backend.get(_name(key, number, len(parts)))
            if value is None or value[:1] not in (_MORE, _LAST):
                return None
            parts.append(value)
        return b"".join(part[1:] for part in parts)


def _name(key: str, number: int, part: int) -> str:
    return make_key("result-page", sha256(key.encode()).hexdigest(), str(number), str(part))


# ---------------------------------------------------------------- how a result is cut


class Parts(NamedTuple):
    """The content of a result in two parts: blocks that are sent, and pages that are kept."""

    sent: list[ContentBlock]
    pages: list[ResourceContents]
    #: How many of the pages are text; they come first.
    texts: int
    #: The bytes of text that are kept.
    size: int


def divide(content: Sequence[ContentBlock], room: int, page: int) -> Parts:
    """Divide content blocks into what fits into `room` and pages, both in bytes of JSON.

    Texts are kept from the first one that doesn't fit, whose beginning is sent, so that what is sent and the pages
    give the whole text. Images, audio and files that don't fit are a page each, of any size. Further blocks become text.
    """
    sent: list[ContentBlock] = []
    rest: list[str] = []
    blobs: list[ResourceContents] = []
    for block in content:
        contents = contents_of(block)
        text = None if contents is None else contents.text
        needed = len(msgspec.json.encode(block)) + 1
        if needed <= room and (text is None or not rest):
            sent.append(block)
            room -= needed
        elif text is not None and not rest:
            data = text.encode()
            end = _end_of_page(data, 0, room - 100) if room > 200 else 0
            if end:
                sent.append(TextContent(text=data[:end].decode()))
            rest.append(data[end:].decode())
            room = 0
        elif text is not None:
            rest.append(text)
        elif contents is not None:
            blobs.append(contents)
        else:
            rest.append(msgspec.json.encode(block).decode())
    data = "\n".join(rest).encode()
    texts = [ResourceContents(uri="", text=text, mime_type="text/plain") for text in cut(data, page)]
    return Parts(sent, [*texts, *blobs], len(texts), len(data))


def cut(data: bytes, most: int) -> list[str]:
    """Cut UTF-8 text into pages of at most so many bytes, as JSON strings. Joined they are the text."""
    pages = []
    start = 0
    while start < len(data):
        end = _end_of_page(data, start, most)
        pages.append(data[start:end].decode())
        start = end
    return pages


def _end_of_page(data: bytes, start: int, most: int) -> int:
    """Where the page ends that begins at `start`."""
    window = most
    while True:
        end = _end_of_window(data, start, window)
        written = len(msgspec.json.encode(data[start:end].decode())) - 2
        if written <= most or window <= 8:
            return end
        window = max(8, min(window * most // written, window * 7 // 8))


def _end_of_window(data: bytes, start: int, window: int) -> int:
    end = start + window
    if end >= len(data):
        return len(data)
    for mark in _MARKS:
        place = data.rfind(mark, start + window // 2, end)
        if place >= 0:
            return place + len(mark)
    while data[end] & 0xC0 == 0x80:  # inside of a character
        end -= 1
    return end
