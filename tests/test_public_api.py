"""The public API changes only on purpose: every name, signature and member is compared with `tests/public_api.txt`."""

from __future__ import annotations

import difflib
import subprocess
import sys

from tests.source import ROOT
from tools.public_api import SNAPSHOT, annotation_text

WRITE = "python -m tools.public_api --write"


def test_the_public_api_is_the_recorded_one() -> None:
    # In a process of its own, where no other test imported anything before.
    command = [sys.executable, "-m", "tools.public_api"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    recorded, found = SNAPSHOT.read_text(encoding="utf-8").splitlines(), printed.splitlines()
    changes = [
        line for line in difflib.unified_diff(recorded, found, "recorded", "found", "", "", 0) if line[:2] != "@@"
    ]
    assert not changes, f"the public API changed; if it should, run `{WRITE}`\n" + "\n".join(changes)


def test_an_annotation_reads_alike_as_an_object_and_as_text() -> None:
    assert annotation_text(int | None) == annotation_text("int | None") == "int | None"
    assert annotation_text(dict[str, list[int]]) == annotation_text("dict[str, list[int]]")
    assert annotation_text("collections.abc.Sequence[str]") == "Sequence[str]"
