"""Texts to use elsewhere, made of whatever a person typed and a server answered."""

from __future__ import annotations

import ast
import shlex
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel.dev.copy_as import as_curl, as_gemel, as_pytest
from gemel.dev.target import DevTarget

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
PARAMS = st.dictionaries(st.sampled_from(["name", "arguments", "uri", "_meta"]) | TEXTS, VALUES, max_size=4)
RESULTS = st.none() | st.dictionaries(
    st.sampled_from(["content", "contents", "structuredContent", "isError", "messages"]), VALUES, max_size=4
)
METHODS = st.sampled_from(["tools/call", "prompts/get", "resources/read", "ping", "tools/list"]) | TEXTS
TARGET = DevTarget(name="it's", open=lambda show: (None, {}), words=["it's $(touch x).py"], is_own=True)


@given(METHODS, PARAMS, RESULTS)
def test_a_test_is_always_python_of_one_function(
    method: str, params: dict[str, Any], result: dict[str, Any] | None
) -> None:
    tree = ast.parse(as_pytest('it\'s "here"\\', "2026", method, params, result))
    first, second = tree.body
    assert isinstance(first, ast.ImportFrom)
    assert isinstance(second, ast.FunctionDef)
    assert second.name.startswith("test_")
    inner = {type(node) for statement in second.body for node in ast.walk(statement)}
    assert not inner & {ast.Import, ast.ImportFrom, ast.Lambda, ast.FunctionDef}


@given(METHODS, PARAMS, VALUES)
def test_a_command_has_the_words_that_were_meant(method: str, params: dict[str, Any], schema: Any) -> None:
    try:
        text = as_gemel(TARGET, "2025", method, params, schema if isinstance(schema, dict) else {})
    except ValueError:
        return
    words = shlex.split(text)
    assert words[0] == "gemel"
    assert words[2:5] == [TARGET.words[0], "--era", "2025"]


@pytest.mark.parametrize("hostile", ["$(id)", "`id`", "'; id; '", '"; id; "', "\n id", "a\\", "é\u202e"])
def test_a_shell_runs_nothing_of_a_message(hostile: str) -> None:
    body = f'{{"text": {ascii(hostile)!r}}}'.encode()
    text = as_curl("http://127.0.0.1:9/mcp", {"X-Any": hostile, "Authorization": "…", "Host": "x"}, body, TARGET)
    script = "curl() { printf '%s\\0' \"$@\"; }\nTOKEN=secret\n" + text
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=True)
    words = done.stdout.decode().split("\0")[:-1]
    expected = ["-H", f"X-Any: {hostile}", "-H", "Authorization: secret", "--data-binary", body.decode()]
    assert words == ["-N", "http://127.0.0.1:9/mcp", *expected]


def test_curl_needs_a_url() -> None:
    foreign = DevTarget(name="x", open=lambda show: (None, {}), words=["npx x"])
    with pytest.raises(ValueError, match="without a URL"):
        as_curl(None, {}, b"{}", foreign)
    comment = as_curl(None, {}, b"{}", TARGET).splitlines()[0]
    assert shlex.split(comment.removeprefix("# ")) == ["gemel", "run", TARGET.words[0], "--http"]
