"""Readers type what a page shows: its Python uses names that the page shows, too, or says something about."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.documents import Block, blocks, documents
from tests.source import ROOT

_HIDDEN = re.compile(r"<!--.*?-->", re.DOTALL)


def _undefined(pages: dict[str, str], directory: Path) -> set[tuple[str, str]]:
    """The names that code uses and doesn't define: the page, the name."""
    files = {directory / f"page_{number}.py": page for number, page in enumerate(pages)}
    for file, page in files.items():
        file.write_text(pages[page], encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "--output-format", "json", "."]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False)
    return {
        (files[Path(problem["filename"])], match[1])
        for problem in json.loads(done.stdout)
        if problem["code"] == "F821" and (match := re.search(r"`(\w+)`", problem["message"]))
    }


def _shown(document: Path) -> list[Block]:
    return [block for block in blocks(document) if block.language == "python" and not block.hidden]


def _is_explained(name: str, document: Path) -> bool:
    """Whether the page has the name in backticks, or in a comment of its code."""
    text = _HIDDEN.sub("", document.read_text(encoding="utf-8"))
    return re.search(rf"`{name}`|^ *#.*\b{name}\b", text, re.MULTILINE) is not None


def test_examples_use_no_names_that_only_tests_know(tmp_path: Path) -> None:
    pytest.importorskip("ruff")
    pages = {str(page.relative_to(ROOT)): "\n".join(block.text for block in _shown(page)) for page in documents()}
    undefined = _undefined({page: code for page, code in pages.items() if code}, tmp_path)
    assert sorted((page, name) for page, name in undefined if not _is_explained(name, ROOT / page)) == []


def test_a_name_that_is_not_shown_is_found(tmp_path: Path) -> None:
    pytest.importorskip("ruff")
    assert _undefined({"page": "import os\nprint(os.sep, opened)"}, tmp_path) == {("page", "opened")}
