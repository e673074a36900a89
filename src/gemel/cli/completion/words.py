"""Words that complete a command line, and how bash splits lines into words."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import NamedTuple


class Candidate(NamedTuple):
    """A word that may stand at the end, and what it means. A value goes on behind a word that ends with `=`."""

    word: str
    meaning: str = ""


def split_line(line: str) -> tuple[list[str], bool]:
    """Split the beginning of a command line as a shell does.

    Args:
        line: The line up to the cursor, with the name of the program.

    Returns:
        The words without the program, the last one incomplete; and whether it has an open quote.
    """
    if (len(line) - len(line.rstrip("\\"))) % 2:  # a backslash that escapes what is not typed yet
        line = line[:-1]
    for closing in ("", '"', "'"):
        try:
            words = shlex.split(f"{line}x{closing}")
        except ValueError:
            continue
        # The x makes a word of nothing behind a blank.
        return [*words[1:-1], words[-1].removesuffix("x")], bool(closing)
    return [""], False


def for_bash(words: Iterable[Candidate], current: str, breaks: str, *, is_quoted: bool) -> list[str]:
    """Return candidates as bash takes them: it replaces only what follows the last character that breaks words.

    Args:
        words: The candidates.
        current: The last word of the line.
        breaks: The characters that break words, COMP_WORDBREAKS.
        is_quoted: Whether the last word has an open quote, which bash keeps in one piece.
    """
    if is_quoted:
        return [candidate.word for candidate in words]
    start = max((current.rfind(character) + 1 for character in ":=" if character in breaks), default=0)
    return [shlex.quote(candidate.word[start:]) for candidate in words]
