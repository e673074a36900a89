"""The messages of the journal as a recording, which `gemel replay` and `gemel.testing` read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gemel.channel import ChannelKind
from gemel.dev.journal import EventJournal
from gemel.protocol.eras.base import EraName
from gemel.testing.recording_file import FORMAT
from gemel.testing.wire_log import Side
from gemel.transports.stream.line_channel import one_line


class _Event(msgspec.Struct):
    """The members of an event that a recording has."""

    kind: str
    era: EraName
    channel: int = 0
    sender: Side = "client"
    about: int | str | UnsetType = UNSET
    data: Raw | UnsetType = UNSET


_decoder = msgspec.json.Decoder(_Event)
_KINDS = (b'"kind":"message"', b'"kind":"bytes"')


def recording(journal: EventJournal, kinds: Mapping[tuple[EraName, int], ChannelKind]) -> Iterator[bytes]:
    """Yield the lines of a recording of one era: an answer of the other one would be wrong for its clients.

    Args:
        journal: The journal.
        kinds: The kinds of the channels of that era, by era and number.
    """
    yield _line({"recording": FORMAT, "by": "gemel", "side": "client"})
    channels: dict[int, int] = {}
    for event in journal.after(0):
        if not any(kind in event.data[:80] for kind in _KINDS):
            continue
        read = _decoder.decode(event.data)
        kind = kinds.get((read.era, read.channel))
        if kind is None:
            continue
        if read.channel not in channels:
            channels[read.channel] = len(channels) + 1
            yield _line({"open": channels[read.channel], "kind": kind})
        line: dict[str, Any] = {"from": read.sender, "channel": channels[read.channel]}
        if read.about is not UNSET:
            line["about"] = read.about
        if read.kind == "bytes":
            line["text"] = (event.message or b"").decode("utf-8", "replace")
        else:
            line["message"] = Raw(one_line(event.message)) if event.message is not None else read.data
        yield _line(line)


def _line(content: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(content) + b"\n"
