"""What tests read of files of receipts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

KEY = "a key of more than sixteen bytes"


def all_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; none if there is no file."""
    return list(map(json.loads, raw_lines(path)))


def raw_lines(path: Path) -> list[bytes]:
    """The lines of a file as they are."""
    return path.read_bytes().splitlines() if path.exists() else []


def receipts(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that are receipts."""
    return [line for line in all_lines(path) if line["kind"] == "call"]


def ended(path: Path) -> list[tuple[str | None, str]]:
    """The tool and the outcome of each receipt."""
    return [(line["tool"], line["outcome"]) for line in receipts(path)]
