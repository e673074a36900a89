"""The lock file: readable, the same every time, and refused when it isn't what it was."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from gemel import Contract, StartError
from gemel.contracts.lock_file import is_lock, read_lock, written

CONTRACT = Contract(
    revision="2026-07-28",
    server={"name": "weather", "version": "1"},
    instructions="Ask kindly.",
    tools={
        "now": {"inputSchema": {"type": "object"}},
        "forecast": {"description": "Sunny\u202e\U000e0041 é", "inputSchema": {"type": "object"}},
    },
    resources={},
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "gemel.lock"
    found.write_text(written(CONTRACT), encoding="utf-8")
    return found


def test_it_reads_back(path: Path) -> None:
    assert read_lock(path) == CONTRACT
    assert is_lock(str(path))


def test_the_text_is_the_same_whatever_the_order_of_the_lists() -> None:
    tools = CONTRACT.tools or {}
    turned = Contract(
        revision=CONTRACT.revision,
        server=dict(reversed(CONTRACT.server.items())),
        instructions=CONTRACT.instructions,
        tools=dict(reversed(tools.items())),
        resources={},
    )
    assert written(turned) == written(CONTRACT)


def test_the_text_is_fixed() -> None:
    """No version of Python, and none of ours, may change it unnoticed."""
    small = Contract(revision="2026-07-28", server={"name": "s", "version": "1"}, tools={"t": {"inputSchema": {}}})
    digest = hashlib.sha256(b'{"inputSchema":{}}').hexdigest()
    outer = hashlib.sha256(f'{{"instructions":null,"tools":{{"t":"sha256:{digest}"}}}}'.encode()).hexdigest()
    assert (
        written(small)
        == f"""{{
  "gemelLock": 1,
  "fingerprint": "sha256:{outer}",
  "revision": "2026-07-28",
  "server": {{
    "name": "s",
    "version": "1"
  }},
  "tools": {{
    "t": {{
      "fingerprint": "sha256:{digest}",
      "definition": {{
        "inputSchema": {{}}
      }}
    }}
  }}
}}
"""
    )


def test_what_a_reader_would_not_see_is_escaped() -> None:
    assert "Sunny\\u202e\\udb40\\udc41 é" in written(CONTRACT)


def test_sections_that_were_not_looked_at_are_not_in_it() -> None:
    found = json.loads(written(CONTRACT))
    assert ("prompts" in found, found["resources"]) == (False, {})


def changed(path: Path, change: Any) -> str:
    found = json.loads(path.read_text(encoding="utf-8"))
    change(found)
    path.write_text(json.dumps(found), encoding="utf-8")
    with pytest.raises(StartError) as caught:
        read_lock(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(str(path))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lock: lock.pop("gemelLock"), " is not a lock file"),
        (lambda lock: lock.update(gemelLock=2), " has format 2; this version of Gemel knows format 1"),
        (lambda lock: lock.pop("revision"), ": revision: must be"),
        (lambda lock: lock.update(instructions=3), ": instructions: must be a text"),
        (lambda lock: lock.update(server={"version": "1"}), ": server: "),
        (lambda lock: lock.update(tools=[]), ": tools: must be an object"),
        (lambda lock: lock["tools"].update(now={}), ": tool 'now': must have a fingerprint and a definition"),
        (lambda lock: lock["tools"]["now"]["definition"].pop("inputSchema"), ": tool 'now': is not a definition"),
        (lambda lock: lock["tools"]["now"]["definition"].update(title="T"), ": tool 'now': the fingerprint is not"),
        (lambda lock: lock["tools"].pop("now"), ": fingerprint: is not that of what the file holds"),
        (lambda lock: lock.update(instructions="Other"), ": fingerprint: is not that of what the file holds"),
    ],
)
def test_a_lock_that_was_changed_is_refused_in_one_line(path: Path, change: Any, said: str) -> None:
    assert changed(path, change).startswith(said)


@pytest.mark.parametrize(
    ("data", "said"), [(b"{", "is not JSON"), (b"\xff", "is not JSON"), (b"[]", "is not a lock file")]
)
def test_what_is_no_lock_is_refused_in_one_line(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(StartError, match=said):
        read_lock(path)
    assert not is_lock(str(path))


def test_a_file_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="can't be read: No such file"):
        read_lock(tmp_path / "gone")
    assert not is_lock(str(tmp_path / "gone"))
