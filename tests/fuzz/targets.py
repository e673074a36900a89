"""What coverage-guided fuzzing feeds with bytes: functions without I/O, each with what must hold for any input."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gemel import GemelError, ProtocolError, StartError
from gemel.protocol.connection import Connection
from gemel.protocol.http.media_types import parse_accept, parse_media_type
from gemel.protocol.http.mirror import decode_value, encode_value
from gemel.protocol.http.origin import parse_authority
from gemel.protocol.http.sse import Decoder
from gemel.testing.recording_file import parse_session, read_recording
from tests.fuzz.ends import description_of, shake_hands
from tests.protocol.http.heads import judged
from tests.support import Batch, Call, Outgoing, jsonrpc
from tests.values.agreement import disagreements
from tests.values.annotations import Source

#: Inputs are stored here, a folder for each target.
CORPUS = Path(__file__).parent / "corpus"


def message(data: bytes) -> None:
    """Bytes become a message or a ProtocolError; a message says the same as Python's reader."""
    try:
        decoded = jsonrpc.decode(data)
    except ProtocolError:
        return
    content = json.loads(data, parse_int=lambda digits: int(digits) if len(digits) < 4000 else digits)
    method = getattr(decoded, "method", None)
    assert method is None or method == content["method"]
    assert content["jsonrpc"] == "2.0"


def server(data: bytes) -> None:
    """A server's connection takes any lines, and answers a ping afterwards."""
    connection = Connection(description_of())
    shake_hands(connection)
    for line in data.split(b"\n"):
        got = connection.receive(line)
        assert got is None or isinstance(got, Call | Batch | Outgoing)
        if isinstance(got, Call):
            connection.answer(got, {})
        connection.check()
    ping = connection.receive(jsonrpc.encode_request("the last one", "ping"))
    assert isinstance(ping, Call | Outgoing)
    connection.close("the end")
    connection.check()


def client(data: bytes) -> None:
    """A client's connection takes any lines, and each request ends once."""
    connection = Connection(None)
    pending = [connection.register_request("ping") for _ in range(2)]
    for line in data.split(b"\n"):
        connection.receive(line)
        connection.check()
    connection.close("the end")
    connection.check()
    assert all(one.error is not None or one.result for one in pending)


def head(data: bytes) -> None:
    """The head of a request is judged without an exception, in the same way twice."""
    method, *lines = data.split(b"\n")
    pairs = [(name.lower(), value) for name, _, value in (line.partition(b":") for line in lines[:30])]
    first = judged(*pairs, method=method.decode("latin-1"))
    second = judged(*pairs, method=method.decode("latin-1"))
    assert (first.refusal is None) == (second.refusal is None)


def events(data: bytes) -> None:
    """An event stream has the same events, however it is cut."""
    whole = _events([data])
    assert _events([data[place : place + 1] for place in range(len(data))]) == whole
    middle = len(data) // 2
    assert _events([data[:middle], data[middle:]]) == whole


def _events(pieces: list[bytes]) -> list[Any]:
    decoder = Decoder(1000)
    found: list[Any] = []
    try:
        for piece in pieces:
            found += decoder.feed(piece)
    except GemelError:
        found.append("failed")
    return found


def values(data: bytes) -> None:
    """Values of headers are read or refused; what is encoded is read back."""
    text = data.decode("latin-1")
    for parse in (parse_authority, parse_media_type):
        parse(text)
    parse_accept(data)
    with suppress(ProtocolError):
        decode_value(text)
    unicode = data.decode("utf-8", "ignore")
    assert decode_value(encode_value(unicode)) == unicode


def recording(data: bytes) -> None:
    """A file is a recording, or it is refused."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "recording.jsonl")
        path.write_bytes(b'{"recording":1}\n' + data)
        with suppress(StartError):
            parse_session(read_recording(path))


def agreement(data: bytes) -> None:
    """An annotation that the bytes choose is listed as it is read and written, or refused."""
    rest = iter(data)

    def below(count: int) -> int:
        return next(rest, 0) % count

    wrong, _ = asyncio.run(disagreements([Source(below)]))
    assert not wrong, wrong[0]


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (message, server, client, head, events, values, recording, agreement)
}
