"""The pairs of programs in docs/migration: `gemel migrate` makes the second one of the first."""

from __future__ import annotations

import pytest

pytest.importorskip("libcst")
import itertools

from gemel.migrate import migrate_source  # needs libcst
from tests.docs.documents import Block, blocks  # libcst first
from tests.migrate.tables import FOLDER  # libcst first


def pairs() -> list[tuple[Block, Block]]:
    """Each program for another library with the block behind it; those below `<!-- by hand -->` are left out."""
    found = []
    for page in sorted(FOLDER.glob("*.md")):
        lines, listed = page.read_text(encoding="utf-8").split("\n"), blocks(page)
        for old, new in itertools.pairwise(listed):
            if old.language == "py" and lines[old.line - 3] != "<!-- by hand -->":
                found.append((old, new))
    return found


@pytest.mark.parametrize("pair", pairs(), ids=lambda pair: pair[0].place)
def test_the_second_program_is_what_the_command_makes_of_the_first(pair: tuple[Block, Block]) -> None:
    old, new = pair
    assert new.language == "python"
    assert migrate_source(old.text).source == new.text


def test_both_guides_have_pairs() -> None:
    assert len({old.document for old, _ in pairs()}) == 2
