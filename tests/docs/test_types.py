"""The Python of the documents and the examples is typed as strictly as the code: mypy finds nothing in it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.docs.documents import blocks, documents
from tests.source import ROOT

_HEAD = """\
from __future__ import annotations
from contextlib import AsyncExitStack
from pathlib import Path

replaced: dict[str, str]
opened: AsyncExitStack
directory: Path

"""


def written(document: Path, directory: Path) -> list[Path]:
    """The Python of a document as files: its own ones, and the rest as the body of one function, since it awaits."""
    directory.mkdir()
    files: list[Path] = []
    body: list[str] = []
    for block in blocks(document):
        if block.file is not None:
            files.append(directory / block.file)
            files[-1].write_text(block.text + "\n", encoding="utf-8")
        elif block.language == "python":
            body.append(textwrap.indent(block.text, "    "))
    if body:
        files.append(directory / f"document_{document.stem.replace('-', '_')}.py")
        files[-1].write_text(f"{_HEAD}async def document() -> None:\n" + "\n".join(body) + "\n", encoding="utf-8")
    return files


def mypy(files: list[Path], directory: Path) -> str:
    """What mypy says, with the project's own settings; empty if it is content."""
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary", "--hide-error-context"]
    # An expression on a line of its own is what a document shows.
    settings += ["--disable-error-code", "truthy-bool", "--cache-dir", str(ROOT / ".mypy_cache")]
    command = [sys.executable, "-m", "mypy", *settings, *map(str, files)]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, check=False).stdout


def test_the_documents_and_examples_are_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    found = []
    for document in documents():
        directory = tmp_path / document.stem
        files = written(document, directory)
        found.append(mypy(files, directory) if files else "")
    assert not "".join(found)
