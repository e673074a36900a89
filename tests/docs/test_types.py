"""The Python of the documents and the examples is typed as strictly as the code: mypy finds nothing in it."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.docs.documents import blocks, documents
from tests.source import ROOT

#: A program for another library, which need not be installed.
_FOREIGN = re.compile(r"^from (?:fastmcp|mcp)\b", re.MULTILINE)
_HEAD = """\
from __future__ import annotations
from contextlib import AsyncExitStack
from pathlib import Path

replaced: dict[str, str]
opened: AsyncExitStack
directory: Path

"""


def written(document: Path) -> dict[str, str]:
    """The Python of a document as files by name: its own ones, and the rest as the body of one function, since it awaits."""
    files: dict[str, str] = {}
    body: list[str] = []
    for block in blocks(document):
        if block.module is not None and _FOREIGN.search(block.text):
            continue
        if block.module is not None:
            files[block.module] = f"{block.text}\n"
        elif block.language == "python":
            body.append(textwrap.indent(block.text, "    "))
    if body:
        name = f"document_{document.stem.replace('-', '_')}.py"
        files[name] = f"{_HEAD}async def document() -> None:\n" + "\n".join(body) + "\n"
    return files


def together(documents: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """As few directories as will do, since mypy takes long to start: no two documents in one that name a file alike."""
    directories: list[dict[str, str]] = []
    for files in documents:
        for directory in directories:
            if not directory.keys() & files.keys():
                directory.update(files)
                break
        else:
            directories.append(dict(files))
    return directories


def mypy(files: list[Path], directory: Path) -> str:
    """What mypy says, with the project's own settings; empty if it is content."""
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary", "--hide-error-context"]
    # An expression on a line of its own is what a document shows.
    settings += ["--disable-error-code", "truthy-bool", "--cache-dir", str(ROOT / ".mypy_cache" / "documents")]
    command = [sys.executable, "-m", "mypy", *settings, *map(str, files)]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, check=False).stdout


@pytest.mark.long
@pytest.mark.timeout(120)  # without its cache mypy reads all of Gemel and its dependencies first
def test_the_documents_and_examples_are_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    found = []
    for number, files in enumerate(together(map(written, documents()))):
        directory = tmp_path / str(number)
        directory.mkdir()
        for name, text in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        found.append(mypy([directory / name for name in files], directory))
    assert not "".join(found)
