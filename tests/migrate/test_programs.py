"""Programs for FastMCP and the official SDK, rewritten: they do under Gemel what their comments say of the originals."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gemel import Apps, Client, Server, declared_extension
from tests.migrate.expectations import PROGRAMS, Expected, expected_of, load, parsed, value_of

libcst = pytest.importorskip("libcst")
from gemel.migrate import migrate_source  # noqa: E402  # needs libcst

FILES = sorted(PROGRAMS.glob("fastmcp_*.py")) + sorted(PROGRAMS.glob("mcp[12]_*.py"))


def test_there_are_enough_programs_of_each_kind() -> None:
    assert sum(path.name.startswith("fastmcp") for path in FILES) >= 40
    assert sum(path.name.startswith("mcp") for path in FILES) >= 20


def program(path: Path) -> Any:
    """A program as a parameter."""
    reason = expected_of(path).first("extends")
    return pytest.param(path, id=path.stem, marks=[] if reason is None else [pytest.mark.foreign_words(reason)])


@pytest.mark.parametrize("path", [program(path) for path in FILES])
def test_a_rewritten_program_does_the_same(path: Path, tmp_path: Path) -> None:
    """Rewriting it again changes nothing; what is left of the other library is noted, at a line of the program."""
    original = path.read_text(encoding="utf-8")
    result, expected = migrate_source(original), expected_of(path)
    assert migrate_source(result.source).source == result.source
    foreign = ("from fastmcp", "import fastmcp", "from mcp")
    assert any(line.startswith(foreign) for line in result.source.splitlines()) <= bool(result.notes)
    assert all(1 <= note.line <= original.count("\n") for note in result.notes)
    for text in expected.all("becomes"):
        assert text in result.source
    for text in expected.all("notes"):
        assert any(text in note.text for note in result.notes), result.notes
    if expected.first("only") == "rewrite":
        return
    if expected.all("prints"):
        _check_script(path, result.source, expected.all("prints"), tmp_path)
        return
    names = load(path, result.source)
    asyncio.run(_check(names["mcp"], expected))


async def test_a_handler_of_a_custom_method_is_kept() -> None:
    path = PROGRAMS / "mcp2_custom_method.py"
    names = load(path, migrate_source(path.read_text(encoding="utf-8")).source)
    for era in ("2025", "2026"):
        async with Client(names["mcp"], era=era) as client:
            assert (await client.request("bookshop/reindex", {"full": True}))["indexed"] == 3


async def _check(server: Server[Any], expected: Expected) -> None:
    answer, sampled = expected.first("answers"), expected.first("sampled")
    eras: Any = expected.all("only") or ("2025", "2026")
    for era in eras:
        async with Client(
            server,
            era=era,
            on_elicit=(lambda form: None if answer == "decline" else parsed(answer)) if answer else None,
            on_elicit_url=(lambda page: answer != "decline") if answer else None,
            on_sample=(lambda request: sampled) if sampled else None,
            extensions=[declared_extension(Apps.id, {"mimeTypes": ["text/html;profile=mcp-app"]})],
        ) as client:
            names = expected.first("lists")
            if names is not None:
                assert sorted(tool.name for tool in await client.list_tools()) == names.split()
            for name, arguments, wanted in expected.calls("call"):
                result = await client.call_tool(name, arguments)
                structured = result.structured_content or None
                assert value_of(structured, result.content) == parsed(wanted)
            for name, arguments, wanted in expected.calls("fails"):
                failed = await client.call_tool(name, arguments, raise_on_error=False)
                assert failed.is_error
                assert wanted in failed.text
            for value in expected.all("read"):
                uri, _, text = value.partition(" = ")
                assert parsed((await client.read_resource(uri)).text) == parsed(text)
            for name, arguments, wanted in expected.calls("prompt"):
                assert (await client.get_prompt(name, arguments)).messages[-1].text == wanted


def _check_script(path: Path, source: str, lines: list[str], folder: Path) -> None:
    (folder / path.name).write_text(source, encoding="utf-8")
    (folder / "served_sums.py").write_bytes((PROGRAMS / "served_sums.py").read_bytes())
    done = subprocess.run(
        [sys.executable, path.name],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=25,
        env={**os.environ, "PYTHONWARNINGS": ""},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == lines
