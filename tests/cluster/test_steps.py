"""The judge of the steps of tasks notices what must not happen."""

from __future__ import annotations

import pytest

from tests.cluster.steps import RAN_AGAIN, Steps, read_journal


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["ran a 0 k again", "recorded a 0", "recorded a 0", "ran a 1 l again"], Steps(1, 0, [])),
        (["ran a 0 k again", "ran a 0 k again", "recorded a 0"], Steps(1, 1, [])),
        (["ran a 0 k again", "recorded a 0", "ran a 0 k again"], Steps(1, 1, [RAN_AGAIN])),
        (["ran a 0 k again", "ran a 0 x again"], Steps(0, 1, ["a step ran again with another key"])),
        (["ran a 0 k once", "ran a 0 k once"], Steps(0, 1, ["a step with retry=False ran again"])),
    ],
)
def test_a_journal(lines: list[str], expected: Steps) -> None:
    assert read_journal(lines) == expected
