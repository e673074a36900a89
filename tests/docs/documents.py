"""The documents of the project as blocks: what is code in them, for whom, and in which line. Runs nothing.

Readers see fenced blocks; an HTML comment `<!-- run … -->` holds Python that only the tests see. A Python block that begins
with a comment like `# weather.py` is a file of that name, and so is configuration. For
what has no comments, `<!-- file: NAME -->` stands in the line above the fence.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.source import ROOT

_FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,})(?P<language>\w*) *$")
_HIDDEN = re.compile(r"<!-- run$")
_NAME = re.compile(r"<!-- file: (?P<name>[\w./-]+) -->$")
_FILE = re.compile(r"# (?P<name>[\w.-]+\.\w+|Dockerfile)$")


@dataclass(frozen=True)
class Block:
    """A piece of code: `line` is that of its first line, counted from 1."""

    document: Path
    line: int
    language: str
    text: str
    hidden: bool = False
    named: str | None = None

    @property
    def file(self) -> str | None:
        """The name of the file that this block is; None for what has no name."""
        found = _FILE.match(self.text.partition("\n")[0]) if self.language != "console" else None
        return found["name"] if found else self.named

    @property
    def module(self) -> str | None:
        """The name of the Python file that this block is; None if it is none."""
        return self.file if self.language == "python" else None

    @property
    def place(self) -> str:
        """`README.md:12`, which terminals make a link."""
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def documents() -> list[Path]:
    """Everything that users read."""
    beside = ("README.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md", "VERSIONING.md", "ROADMAP.md")
    return [*(ROOT / name for name in beside), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(document: Path) -> list[Block]:
    """The blocks of a document, in order."""
    return list(_blocks(document, document.read_text(encoding="utf-8").split("\n")))


def _blocks(document: Path, lines: list[str]) -> Iterator[Block]:
    number = 0
    while number < len(lines):
        fence, hidden = _FENCE.match(lines[number]), _HIDDEN.match(lines[number])
        number += 1
        if fence is None and hidden is None:
            continue
        start = number
        end = fence["indent"] + fence["fence"] if fence else "-->"
        while number < len(lines) and lines[number] != end:
            number += 1
        assert number < len(lines), f"{document}:{start}: this block has no end"
        indent = len(fence["indent"]) if fence else 0
        text = "\n".join(line[indent:] for line in lines[start:number])
        named = _NAME.match(lines[start - 2]) if fence and start > 1 else None
        language = fence["language"] if fence else "python"
        yield Block(document, start + 1, language, text, hidden is not None, named["name"] if named else None)
        number += 1


@cache
def module_of(document: Path, name: str) -> Any:
    """The module that a document writes as a file of this name, imported."""
    (block,) = (block for block in blocks(document) if block.module == name)
    module = types.ModuleType(name.removesuffix(".py"))
    exec(compile("\n" * (block.line - 1) + block.text, str(document), "exec"), vars(module))
    return module
