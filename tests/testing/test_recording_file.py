"""The file of a recording: any bytes are read as lines of a recording, or refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from gemel import StartError
from gemel.testing.recording_file import parse_session, read_recording

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.sampled_from(["a", "client", "tools/call", "notifications/cancelled"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["requestId", "_meta", "name"]), inner, max_size=3)
    ),
    max_leaves=6,
)
messages = st.fixed_dictionaries(
    {}, optional={"id": values, "method": values, "params": values, "result": values, "error": values}
)
lines = st.fixed_dictionaries(
    {},
    optional={
        "from": st.sampled_from(["client", "server", "nobody"]),
        "channel": st.integers(1, 2) | values,
        "message": messages | st.lists(messages, max_size=2) | values,
        "text": values,
        "base64": values,
        "about": values,
        "headers": values,
        "open": values,
        "close": values,
        "by": st.sampled_from(["client", "server", 1]),
        "failed": values,
        "status": values,
    },
)
CANCELLED = "notifications/cancelled"
ASKED = {"from": "client", "channel": 1, "message": {"id": 1, "method": "x"}}
good = st.fixed_dictionaries(
    {"from": st.sampled_from(["client", "server"]), "channel": st.integers(1, 2), "message": messages},
    optional={"about": st.integers(1, 3)},
)


@given(st.lists(lines | good, max_size=8))
@example([{"from": "client", "channel": 1, "message": {"id": {}, "method": "x"}}])
@example([ASKED, {"failed": [], "channel": 1}])
@example([ASKED, {**ASKED, "headers": []}])
@example([ASKED, {"from": "server", "channel": 1, "about": {}, "message": {"method": "x"}}])
@example([ASKED, {"from": "client", "channel": 1, "message": {"method": CANCELLED, "params": {"requestId": {}}}}])
def test_any_lines_are_understood_or_refused(found: list[Any]) -> None:
    understood_or_refused("".join(json.dumps(line) + "\n" for line in [{"recording": 1}, *found]).encode())


@given(st.binary(max_size=200))
def test_any_bytes_are_understood_or_refused(text: bytes) -> None:
    understood_or_refused(b'{"recording":1}\n' + text)
    understood_or_refused(text)


def understood_or_refused(text: bytes) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory, "any.jsonl")
        path.write_bytes(text)
        try:
            script = parse_session(read_recording(path))
        except StartError:
            return
    for exchange in script.calls:
        assert exchange.ending in ("answered", "cancelled", "cut", "failed", "open")
