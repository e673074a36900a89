"""Python text as a formatter leaves it: lines that fit stay whole, others are opened at their brackets. And safe literals.

Whatever a server says gets into a module through `literal` and `docstring` only.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from hinge.contracts.display import is_hidden

WIDTH = 88
#: A text of a server that is longer is cut.
LONGEST_TEXT = 10_000

#: A quotation mark that nothing escapes, which would run into the closing ones.
_QUOTE_AT_END = re.compile(r'(?<!\\)(?:\\\\)*"$')

Piece: TypeAlias = "str | Bracket"


class Bracket(NamedTuple):
    """`head`, an opening bracket with items, a closing one, `tail`. `comma` stands behind the last item when it is opened."""

    head: str
    items: Sequence[Piece]
    tail: str
    comma: bool = True


def columns(text: str) -> int:
    """Return the columns that a line takes: two for wide characters, none for combining marks."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def flat(piece: Piece) -> str:
    """The text on one line."""
    if isinstance(piece, str):
        return piece
    return f"{piece.head}{', '.join(map(flat, piece.items))}{piece.tail}"


def lay(piece: Piece, indent: int, end: str = "") -> list[str]:
    """The lines of a piece, indented by so many blanks; `end` follows it, like a comma."""
    line = f"{' ' * indent}{flat(piece)}{end}"
    if isinstance(piece, str) or not piece.items or columns(line) <= WIDTH:
        return [line]
    lines = [f"{' ' * indent}{piece.head}"]
    for place, item in enumerate(piece.items):
        last = place == len(piece.items) - 1
        lines += lay(item, indent + 4, "" if last and not piece.comma else ",")
    return [*lines, f"{' ' * indent}{piece.tail}{end}"]


def literal(text: str) -> str:
    """A text as a Python literal in ASCII and what can be read, in the quotes that a formatter would choose."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    return quote + "".join(f"\\{one}" if one in ("\\", quote) else _escaped(one) for one in text) + quote


def docstring(text: str, indent: int) -> list[str]:
    """The lines of a docstring; none for a text that says nothing."""
    cut = text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"
    lines = [_readable(line) for line in cut.expandtabs(4).splitlines()]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        return []
    lines[0] = lines[0].lstrip()
    common = min((len(line) - len(line.lstrip()) for line in lines[1:] if line), default=0)
    blanks = " " * indent
    lines = [lines[0], *(line[common:] for line in lines[1:])]
    if lines[0].startswith('"'):
        lines[0] = " " + lines[0]
    if len(lines) == 1:
        closing = " " if _QUOTE_AT_END.search(lines[0]) else ""
        return [f'{blanks}"""{lines[0]}{closing}"""']
    return [f'{blanks}"""{lines[0]}', *(f"{blanks}{line}".rstrip() for line in lines[1:]), f'{blanks}"""']


def _readable(line: str) -> str:
    """A line for a docstring: nothing in it ends the string, escapes, or hides."""
    escaped = "".join("\\\\" if one == "\\" else _escaped(one) for one in line)
    return escaped.replace('"""', '\\"\\"\\"').rstrip()


def _escaped(character: str) -> str:
    code = ord(character)
    if code == 0x0A:
        return "\\n"
    if code >= 0x20 and not is_hidden(character) and (character.isprintable() or character == " "):
        return character
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
