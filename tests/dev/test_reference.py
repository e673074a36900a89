"""The documentation of the HTTP interface says what is served."""

from __future__ import annotations

import re
from typing import Any, get_args

import msgspec

from gemel.dev import app, connection, inspector, journal, questions, wire
from gemel.dev.commands import Command
from tests.dev.program import REFERENCE

TEXT = REFERENCE.read_text()


def section(name: str) -> str:
    return TEXT.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def test_every_command_is_documented_with_its_members() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?)\| .* \|$", section("Commands"), re.MULTILINE)[1:]
    documented = {name: set(re.findall(r"`(\w+)`", members)) for name, members in rows}
    kinds: tuple[Any, ...] = get_args(Command)
    real = {
        str(kind.__struct_config__.tag): {field.encode_name for field in msgspec.structs.fields(kind)} for kind in kinds
    }
    assert documented == real


def test_the_bounds_are_those_of_the_code() -> None:
    assert f"more than {app.MAX_BODY // 2**20} MiB" in section("Access")
    assert f"within {app.BODY_WAIT:g} seconds" in section("Access")
    assert f"{app.MAX_STREAMS} event streams" in section("Access")
    events = section("Events")
    assert f"{journal.MAX_EVENTS:,} events with {journal.MAX_BYTES // 2**20} MiB" in events
    assert f"{inspector.MAX_CALLS} calls and {questions.MAX_OPEN} questions" in events
    assert f"a result of more than {inspector.MAX_RESULT // 1024} KiB" in events
    assert f"up to {wire.MAX_INLINE // 1024} KiB, or `preview`, its first {wire.PREVIEW} characters" in events
    assert f"more than {connection.PART} items" in events
