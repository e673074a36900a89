"""What the documents show works: every Python and console block runs, in order, and says what the document says."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.docs.console import Console
from tests.docs.documents import Block, blocks, documents
from tests.docs.running import Notebook
from tests.source import ROOT

#: What is shown and not run: commands that install or that stand for themselves, drawings, plain text.
SHOWN = {"sh", "text", "mermaid", "yaml", "toml", "nginx"}


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
async def test_what_a_document_shows_works(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    monkeypatch.syspath_prepend(tmp_path)
    notebook = Notebook(document, tmp_path)
    console = Console(tmp_path, notebook.replaced)
    try:
        for block in blocks(document):
            await run(block, notebook, console, tmp_path)
    finally:
        await notebook.close()
        console.close()


async def run(block: Block, notebook: Notebook, console: Console, directory: Path) -> None:
    """One block, by its language."""
    if block.file is not None:
        (directory / block.file).write_text(block.text, encoding="utf-8")
    elif block.language == "python":
        await notebook.run(block)
    elif block.language == "console":
        console.run(block)
    elif block.language == "json":
        json.loads(block.text)
    else:
        assert block.language in SHOWN, f"{block.place}: a block of {block.language!r} is neither run nor plain text"


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_document_shows_is_used_there(document: Path) -> None:
    found = blocks(document)
    for number, block in enumerate(found):
        if block.file is not None:
            later = "\n".join(other.text for other in found[number + 1 :])
            assert block.file in later or block.file.removesuffix(".py") in later, f"{block.place} is never used"
