"""The diagrams are as `tools/pictures.py` draws them, readable on a phone, and have texts for people who can't see them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from tests.docs.documents import documents
from tools.pictures import FOLDER, PICTURES, SMALL, WIDTH, Box, Plan, drawn, text_width, written

#: What a page has for its text on a phone of 390 pixels, and the size below which text can't be read there.
PHONE, READABLE = 358, 10
_SVG = "{http://www.w3.org/2000/svg}"


def test_the_files_are_as_they_are_drawn() -> None:
    differing = [path.name for path, text in written().items() if path.read_text(encoding="utf-8") != text]
    assert differing == [], "run `python -m tools.pictures`"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_in_a_page_with_an_alternative_text(name: str) -> None:
    found = [
        re.findall(rf"!\[([^\]]*)\]\([^)]*/?{name}\.svg\)", page.read_text(encoding="utf-8")) for page in documents()
    ]
    texts = [text for page in found for text in page]
    assert texts
    assert all(len(text) > 40 for text in texts)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_a_title_a_description_and_colours_for_the_dark(name: str) -> None:
    root = ElementTree.fromstring(drawn(PICTURES[name]))
    assert root.findtext(f"{_SVG}title")
    assert root.findtext(f"{_SVG}desc")
    assert "prefers-color-scheme: dark" in (root.findtext(f"{_SVG}style") or "")


@pytest.mark.parametrize("name", PICTURES)
def test_text_is_readable_on_a_phone_and_inside_of_the_picture(name: str) -> None:
    root = ElementTree.fromstring(drawn(PICTURES[name]))
    for text in root.iter(f"{_SVG}text"):
        size, middle = float(text.attrib["font-size"]), float(text.attrib["x"])
        half = text_width(text.text or "", int(size)) / 2
        assert size * PHONE / WIDTH >= READABLE
        assert half <= middle <= WIDTH - half, text.text


def test_text_fits_its_box() -> None:
    boxes = [(name, box) for name, one in PICTURES.items() if isinstance(one, Plan) for box in one.boxes]
    assert [name for name, box in boxes if not _fits(box)] == []


def test_every_file_belongs_to_a_picture() -> None:
    assert {path.stem for path in FOLDER.glob("*.svg")} == set(PICTURES)


def _fits(box: Box) -> bool:
    return all(text_width(line, SMALL) <= box.width for line in box.text.split("\n"))
