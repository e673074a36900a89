"""What the documents print from the code is what the code says, and nothing that the code has is left out."""

from __future__ import annotations

import pytest

from gemel import Limits
from gemel.protocol import states
from tests.docs.documents import documents
from tests.source import ROOT
from tools.print_docs import PARTS, comments, figures, printed

ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"


def test_the_printed_parts_are_what_the_code_says() -> None:
    texts = {document: document.read_text(encoding="utf-8") for document in documents()}
    differing = [str(document.relative_to(ROOT)) for document, text in texts.items() if printed(text) != text]
    assert differing == [], "run `python -m tools.print_docs`"


def test_every_part_is_printed_somewhere() -> None:
    everything = "".join(document.read_text(encoding="utf-8") for document in documents())
    assert not [name for name in PARTS if f"<!-- printed: {name} -->" not in everything]


def test_the_diagrams_show_every_state_and_every_move() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    for table in (states.HANDSHAKE_MOVES, states.CALL_MOVES, states.PENDING_MOVES, states.RESPONSE_MOVES):
        for state, ways in table.items():
            assert state.value.replace(" ", "_") in text
            for event, to in ways.items():
                move = f"{state.value} --> {to.value}: {event}".replace("given up", "given_up")
                assert (move in text) is (to is not state)


def test_every_limit_is_listed_with_its_default_and_what_it_does() -> None:
    text = (ROOT / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")
    said = comments(Limits)
    for name in Limits.__struct_fields__:
        assert f"`{name}`" in text
        assert said[name], f"Limits.{name} has no `#:` comment"


def test_the_first_lines_of_the_readme_agree_with_its_figures() -> None:
    (head,) = [
        part for part in (ROOT / "README.md").read_text(encoding="utf-8").split("\n\n") if part.startswith("**Gemel is")
    ]
    assert "about [a tenth of the CPU time]" in " ".join(head.split())
    (row,) = [line for line in figures().splitlines() if line.startswith("| HTTP, each call different")]
    ours, theirs, *_ = [float(cell.removesuffix(" µs")) for cell in row.strip("| ").split(" | ")[1:]]
    assert theirs / 15 < ours < theirs / 8


def test_a_part_that_differs_is_noticed() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    assert printed(text.replace("running --> answered: answer", "running --> running: answer")) == text


def test_a_default_that_differs_is_noticed() -> None:
    text = "at most `limits.batch` (<!-- limit: batch -->%s<!-- end -->) messages"
    assert printed(text % "7") == text % Limits().batch


def test_a_part_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(KeyError):
        printed("<!-- printed: nonsense -->\n<!-- end of nonsense -->")
