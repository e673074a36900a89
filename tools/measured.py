"""Writes the parts of the documents that a measurement makes.

A part stands between `<!-- measured: NAME -->` and `<!-- end of NAME -->`.
"""

from __future__ import annotations

import re
from pathlib import Path


def write_measured(page: Path, name: str, text: str) -> None:
    """Replace a part of a page.

    Args:
        page: The page.
        name: The name of the part.
        text: The new text.
    """
    part = re.compile(rf"(<!-- measured: {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    written = part.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page.read_text(encoding="utf-8"))
    page.write_text(written, encoding="utf-8")
