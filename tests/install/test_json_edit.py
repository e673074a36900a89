"""One member of a JSON text changes, every other byte stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel import StartError
from gemel.client.group.jsonc import read
from gemel.install import jsonc

PATH = ("mcpServers", "weather")
ENTRY = {"command": "python"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "mcpServers": {\n    "weather": {\n      "command": "python"\n    }\n  }\n}\n'),
        ("{}", '{\n  "mcpServers": {\n    "weather": {\n      "command": "python"\n    }\n  }\n}'),
        (
            '{\n\t"theme": "dark" // mine\n}\n',
            '{\n\t"theme": "dark", // mine\n\t"mcpServers": {\n\t\t"weather": {\n\t\t\t"command": "python"\n\t\t}\n\t}\n}\n',
        ),
        (
            '{\n    "mcpServers": {\n        "other": {"command": "x"},\n        // the last one\n    },\n}\n',
            '{\n    "mcpServers": {\n        "other": {"command": "x"},\n        // the last one\n'
            '        "weather": {\n            "command": "python"\n        },\n    },\n}\n',
        ),
        (
            '{"mcpServers": {"other": {}}}',
            '{"mcpServers": {"other": {},\n  "weather": {\n    "command": "python"\n  }\n}}',
        ),
        (
            '{\r\n  "mcpServers": {}\r\n}\r\n',
            '{\r\n  "mcpServers": {\r\n    "weather": {\r\n      "command": "python"\r\n    }\r\n  }\r\n}\r\n',
        ),
        (
            '{\n  "mcpServers": {\n    "weather": {"command": "old"}, // note\n    "b": {}\n  }\n}',
            '{\n  "mcpServers": {\n    "weather": {\n      "command": "python"\n    }, // note\n    "b": {}\n  }\n}',
        ),
    ],
)
def test_put(before: str, after: str) -> None:
    edited = jsonc.put(before, PATH, ENTRY)
    assert edited == after
    assert jsonc.get(edited, PATH) == ENTRY
    assert jsonc.put(edited, PATH, ENTRY) == edited


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '{\n  "mcpServers": {\n    "weather": {}\n  }\n}\n',
            '{\n  "mcpServers": {}\n}\n',
        ),
        (
            '{\n  "mcpServers": {\n    "a": {}, // first\n    "weather": {}\n  }\n}\n',
            '{\n  "mcpServers": {\n    "a": {} // first\n  }\n}\n',
        ),
        (
            '{\n  "mcpServers": {\n    // about weather\n    "weather": {},\n    "b": {},\n  }\n}\n',
            '{\n  "mcpServers": {\n    // about weather\n    "b": {},\n  }\n}\n',
        ),
        ('{"mcpServers": {"weather": {}, "b": {}}}', '{"mcpServers": { "b": {}}}'),
    ],
)
def test_cut(before: str, after: str) -> None:
    assert jsonc.cut(before, PATH) == after


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1, column 2: not JSON: expected a key"),
        ('{\n  "a": 1\n  "b": 2\n}', "line 3, column 3: not JSON: expected ','"),
        ('{"a" 1}', "expected ':'"),
        ("{} {}", "expected the end"),
        ('{"a": /* open }', "expected a value"),
        ("[" * 100_000, "nested too deeply"),
        ('{"mcpServers": []}', "not an object"),
        ('{"mcpServers": {}, "mcpServers": {}}', "'mcpServers' is there twice"),
        ("[]", "not an object"),
    ],
)
def test_what_can_not_be_changed_is_refused(text: str, message: str) -> None:
    with pytest.raises(StartError, match=message):
        jsonc.put(text, PATH, ENTRY)


_BLANKS = st.sampled_from(["", " ", "\n  ", "\n", ' // note, with { and "\n', "/* a\nb */", "\t"])
_SCALARS = st.sampled_from([None, True, 0, -1.5, "", "x // y", 'quote " and \\', "é", "/* no */"])


@st.composite
def documents(draw: st.DrawFn, depth: int = 2, *, section: bool = False) -> str:
    """An object in some layout."""
    keys = draw(st.lists(st.sampled_from(["a", "b", "ключ", "mcp", 'q"']), unique=True, max_size=3))
    pieces: list[str] = []
    for key in keys:
        value = draw(st.one_of(_SCALARS.map(json.dumps), documents(depth - 1)) if depth else _SCALARS.map(json.dumps))
        pieces.append(f"{draw(_BLANKS)}{json.dumps(key)}{draw(_BLANKS)}:{draw(_BLANKS)}{value}{draw(_BLANKS)}")
    if section:
        pieces.insert(draw(st.integers(0, len(pieces))), f'"mcpServers":{draw(_BLANKS)}{draw(documents(1))}')
    comma = draw(st.sampled_from(["", ","])) if pieces else ""
    return "{" + ",".join(pieces) + comma + draw(_BLANKS) + "}"


@given(text=documents(section=True))
def test_any_layout_is_changed_and_restored(text: str) -> None:
    before: Any = read(text).value
    edited = jsonc.put(text, PATH, ENTRY)
    after = read(edited).value
    assert after.pop("mcpServers") == {**before["mcpServers"], "weather": ENTRY}
    assert after == {key: value for key, value in before.items() if key != "mcpServers"}
    assert read(jsonc.cut(edited, PATH)).value == before
    added = jsonc.put(text, ("new", "section"), 1)
    assert read(added).value == {**before, "new": {"section": 1}}


@given(text=documents())
def test_what_stands_beside_the_change_stays(text: str) -> None:
    """Without the inserted piece, commas aside, the text is the same."""
    edited = jsonc.put(text, ("z",), 1)
    start = edited.index('"z": 1')
    remaining = edited[:start] + edited[start + len('"z": 1') :]
    assert "".join(remaining.split()).replace(",", "") == "".join(text.split()).replace(",", "")
