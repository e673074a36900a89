"""What the documents show works: every Python and console block runs, in order, and says what the document says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.docs.configuration import CHECKS, check
from tests.docs.console import Console
from tests.docs.documents import Block, blocks, documents
from tests.docs.running import Notebook, replace
from tests.source import ROOT

#: What is shown and not run: drawings, plain text, and programs for other libraries (`py`), which tests/migrate rewrites.
#: Commands that install, `sh`, are only parsed.
SHOWN = {"text", "mermaid", "py"}


#: Documents that start some ten processes each.
LONG = {
    "tutorial.md",
    "how-to/testing.md",
    "how-to/testing-frameworks.md",
    "how-to/files.md",
    "clients/shell.md",
    "clients/contracts.md",
}


@pytest.mark.timeout(300)  # a page starts up to thirty processes; each of its commands has a limit of its own
@pytest.mark.parametrize(
    "document",
    [
        pytest.param(path, marks=[pytest.mark.long] if path in {ROOT / "docs" / name for name in LONG} else [])
        for path in documents()
    ],
    ids=lambda path: str(path.relative_to(ROOT)),
)
async def test_what_a_document_shows_works(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    _forget_modules_of_other_tests(tmp_path.parent)
    notebook = Notebook(document, tmp_path)
    console = Console(tmp_path, notebook.replaced)
    unchecked = []
    try:
        for block in blocks(document):
            try:
                await run(block, notebook, console, tmp_path)
            except pytest.skip.Exception as skipped:
                if block.language not in CHECKS:
                    raise
                unchecked.append(f"{block.place}: {skipped}")
    finally:
        await notebook.close()
        console.close()
    if unchecked:
        pytest.skip("; ".join(unchecked))


def _forget_modules_of_other_tests(directory: Path) -> None:
    """Many write a `weather.py` in their folder and load it in this process."""
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "").is_relative_to(directory):
            del sys.modules[name]


async def run(block: Block, notebook: Notebook, console: Console, directory: Path) -> None:
    """One block, by its language."""
    if block.file is not None:
        (directory / block.file).parent.mkdir(parents=True, exist_ok=True)
        (directory / block.file).write_text(f"{block.text}\n", encoding="utf-8")
    if block.module is not None:
        return
    if block.language == "python":
        await notebook.run(block)
    elif block.language == "console":
        console.run(block)
    elif block.language in CHECKS:
        check(block.language, replace(block.text, notebook.replaced), directory)
    else:
        assert block.language in SHOWN, f"{block.place}: a block of {block.language!r} is neither run nor plain text"


def test_every_file_that_a_document_shows_is_used_there() -> None:
    for document in documents():
        found = blocks(document)
        for number, block in enumerate(found):
            if block.module not in (None, "conftest.py"):  # which pytest finds by its name
                later = "\n".join(other.text for other in found[number + 1 :])
                assert block.module in later or block.module.removesuffix(".py") in later, (
                    f"{block.place} is never used"
                )
