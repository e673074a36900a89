"""What fuzzing found before is tried again: every stored input, on every target."""

from __future__ import annotations

import pytest

from tests.fuzz.targets import CORPUS, TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_stored_inputs_are_taken(name: str) -> None:
    stored = sorted((CORPUS / name).iterdir())
    assert len(stored) >= 10
    for file in stored:
        TARGETS[name](file.read_bytes())
