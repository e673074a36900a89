"""What a stranger's text may do to a terminal: be read, and nothing else. Knows characters, columns and styles, no protocol.

Everything that a server sends goes through `plain` before it is shown: no control character, no escape sequence and no
character that turns the direction of writing reaches the terminal.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from typing import TextIO

#: Lines are no longer than this, however wide the terminal is: text is read in columns.
WIDEST = 100
_JOINERS = "\u200c\u200d"  # Persian and emoji need them


def plain(text: str) -> str:
    """The text as one line in which each character is visible: what isn't stands there as its escape, `\\x1b`."""
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isprintable() or character in _JOINERS:
        return character
    if unicodedata.category(character) == "Zs":
        return " "
    code = ord(character)
    return character.encode("unicode_escape").decode() if code < 0x80 or code > 0xFFFF else f"\\u{code:04x}"


def plain_lines(text: str) -> list[str]:
    """The text line by line, each of them plain; tabs are spaces."""
    return [plain(line.expandtabs(4)) for line in text.replace("\r\n", "\n").split("\n")]


def plain_text(text: str) -> str:
    """The text with its line breaks, and nothing else that moves a cursor."""
    return "\n".join(plain_lines(text))


def columns(text: str) -> int:
    """How many columns a line takes: two for wide characters, none for marks on the one before."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrapped(line: str, width: int) -> Iterator[str]:
    """One plain line as lines of at most `width` columns, broken at blanks where that is possible."""
    width = max(width, 2)
    rest = line
    while columns(rest) > width:
        end = _fitting(rest, width)
        blank = end if rest[end] == " " else rest.rfind(" ", 1, end)
        cut = blank if blank > 0 and rest[:blank].strip() else end
        yield rest[:cut].rstrip()
        rest = rest[cut:].lstrip()
    yield rest


def _fitting(line: str, width: int) -> int:
    """How many characters fit; at least one, so that there is an end."""
    taken = 0
    for place, character in enumerate(line):
        taken += _columns(character)
        if taken > width:
            return max(place, 1)
    return len(line)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody sits behind it."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False


def width_of(stream: TextIO) -> int:
    """The columns to write to: COLUMNS, the terminal's own, or 80; WIDEST at most."""
    asked = os.environ.get("COLUMNS", "")
    try:
        found = int(asked) if asked.isdecimal() else os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        found = 0
    return min(max(found, 20), WIDEST) if found > 0 else 80


class Style:
    """Bold and dim where a terminal shows them, and NO_COLOR doesn't forbid it; else the bare text."""

    def __init__(self, stream: TextIO) -> None:
        self.on = is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def bold(self, text: str) -> str:
        """What matters."""
        return f"\x1b[1m{text}\x1b[0m" if self.on else text

    def dim(self, text: str) -> str:
        """What is only around it."""
        return f"\x1b[2m{text}\x1b[0m" if self.on else text


def write(stream: TextIO, text: str) -> None:
    """Write at once; what the stream's encoding lacks stands there as an escape, so that nothing fails."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()
