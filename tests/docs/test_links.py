"""Links in the documents lead somewhere, and the files and names that they speak of are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.docs.documents import blocks, documents
from tests.source import PACKAGE, ROOT

_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)
#: `server/features/tools.py` and `docs/…`: a path below the package or the project; `http_session*.py` is a pattern.
_PATH = re.compile(r"`(?P<path>(?:[\w*]+/)*[\w*]+\.(?:py|md|toml))`|`(?P<folder>(?:[\w]+/)+)`")


@cache
def prose(document: Path) -> str:
    """The document without its blocks of code."""
    text = document.read_text(encoding="utf-8")
    for block in blocks(document):
        text = text.replace(block.text, "")
    return text


@cache
def anchors(document: Path) -> set[str]:
    """The headings of a document as anchors."""
    return anchors_of(prose(document))


def anchors_of(text: str) -> set[str]:
    """The headings of a text as GitHub makes anchors of them."""
    headings = (found["text"] for found in _HEADING.finditer(text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(document: Path) -> Iterator[str]:
    for found in _LINK.finditer(prose(document)):
        path, _, anchor = found["target"].partition("#")
        if "://" in path:
            continue
        target = (document.parent / path).resolve() if path else document
        if not target.exists():
            yield f"{found['target']}: there is no such file"
        elif anchor and anchor not in anchors(target):
            yield f"{found['target']}: {target.name} has no such heading"


def test_links_lead_somewhere() -> None:
    assert [f"{document.name}: {link}" for document in documents() for link in broken_links(document)] == []


def missing_files(document: Path) -> Iterator[str]:
    """What the document speaks of and nobody has."""
    own = {block.file for block in blocks(document)}
    places = (ROOT, PACKAGE, PACKAGE.parent, *(folder for folder in PACKAGE.iterdir() if folder.is_dir()))
    for found in _PATH.finditer(prose(document)):
        name = found["path"] or found["folder"]
        if name in own or name in ("weather.py", "file.py", "site/", "skills/", "SKILL.md"):
            continue
        if not any(list(place.glob(name)) for place in places):
            yield f"{document.name} speaks of {name}"


def test_files_that_are_spoken_of_are_there() -> None:
    assert [missing for document in documents() for missing in missing_files(document)] == []


def test_every_document_can_be_reached_from_the_readme() -> None:
    reached, left = set[Path](), [ROOT / "README.md"]
    while left:
        one = left.pop()
        if one in reached or one.suffix not in (".md", ""):
            continue
        reached.add(one)
        if one.is_dir():
            left += one.glob("*.md")
            continue
        targets = (found["target"].partition("#")[0] for found in _LINK.finditer(prose(one)))
        left += [(one.parent / target).resolve() for target in targets if target and "://" not in target]
    assert [document for document in documents() if document not in reached] == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title, and more\n[here](page.md#a-title-and-more) [gone](gone.md) [not](#not)\n")
    assert [line.partition(":")[0] for line in broken_links(page)] == ["gone.md", "#not"]
