"""Python source text: names, literals, docstrings, and lines as a formatter writes them.

Text of a server gets into a module only through `literal` and `docstring`.
"""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from gemel.visible import JOINERS, escape, hidden

_OTHER = re.compile(r"[^A-Za-z0-9]+")
#: The accents of letters in their decomposed form.
_MARKS = re.compile(r"[\u0300-\u036f]+")
#: A name that is kept as it is. One that begins with an underscore is private in a class.
_KEPT = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
#: Maximum length of a name that a line may have besides others: of a class, argument or member.
_LONGEST = 28
#: Maximum length of the name of a function: that of the names of tools which models accept.
LONGEST_FUNCTION = 64


def snake(text: str, fallback: str, longest: int = _LONGEST) -> str:
    """Return a name for an argument or member, for a function with `LONGEST_FUNCTION`: the text itself if it can be one."""
    name = text if _KEPT.fullmatch(text) else plain(text)
    name = name if len(name) <= longest else name[:longest].rstrip("_")
    if not name:
        name = fallback
    if name[0].isdigit():
        name = f"{fallback}_{name}"
    return f"{name}_" if keyword.iskeyword(name) else name


def plain(text: str) -> str:
    """Return the text with `_` for everything that is not a letter or digit, letters without accents, and no `_` at its ends."""
    text = text if text.isascii() else _MARKS.sub("", unicodedata.normalize("NFKD", text))
    return _OTHER.sub("_", text).strip("_")


def pascal(text: str, fallback: str) -> str:
    """Return a name for a class."""
    name = "".join(part[:1].upper() + part[1:] for part in _OTHER.split(text))[:_LONGEST]
    if not name:
        return fallback
    return f"{fallback}{name}" if name[0].isdigit() else name


def unique(name: str, taken: Collection[str]) -> str:
    """Return the name, with an underscore or a number appended if it is taken."""
    if name not in taken:
        return name
    candidate, number = f"{name}_" if not name.endswith("_") else f"{name}2", 2
    while candidate in taken:
        candidate, number = f"{name}_{number}", number + 1
    return candidate


def distinct(
    texts: Sequence[str], fallback: str, taken: Collection[str], *, longest: int = _LONGEST, prefix: str = ""
) -> list[str]:
    """Return a name for each text, no two alike. A text that can be a name keeps itself, and others give way to it.

    Args:
        texts: What the names are made of.
        fallback: The name for a text without letters and digits.
        taken: Names that none may have.
        longest: See `snake`.
        prefix: What each name begins with.
    """
    names = [prefix + snake(text, fallback, longest) for text in texts]
    is_changed = [name != prefix + text or name in taken for name, text in zip(names, texts, strict=True)]
    used = set(taken)
    for place in sorted(range(len(names)), key=is_changed.__getitem__):
        names[place] = unique(names[place], used)
        used.add(names[place])
    return names


class ModuleNames:
    """The names at the top level of one module."""

    def __init__(self, reserved: Iterable[str]) -> None:
        self._taken = {*dir(builtins), *keyword.kwlist, *reserved}

    @property
    def taken(self) -> frozenset[str]:
        """All names that are used."""
        return frozenset(self._taken)

    def take(self, name: str) -> str:
        """Reserve a name, or a similar one if it is taken."""
        taken = unique(name, self._taken)
        self._taken.add(taken)
        return taken

    def take_functions(self, texts: Sequence[str], fallback: str, prefix: str = "") -> list[str]:
        """Reserve a name for a function of each text; see `distinct`."""
        names = distinct(texts, fallback, self._taken, longest=LONGEST_FUNCTION, prefix=prefix)
        self._taken.update(names)
        return names


WIDTH = 88
#: Maximum length of a docstring.
LONGEST_TEXT = 10_000

#: A quotation mark at the end that is not escaped.
_QUOTE_AT_END = re.compile(r'(?<!\\)(?:\\\\)*"$')

Piece: TypeAlias = "str | Bracket"


class Bracket(NamedTuple):
    """`head` with an opening bracket, items, and `tail` with the closing one; `comma` adds a trailing comma on several lines."""

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
    """Return the text on one line."""
    if isinstance(piece, str):
        return piece
    return f"{piece.head}{', '.join(map(flat, piece.items))}{piece.tail}"


def lay(piece: Piece, indent: int, end: str = "") -> list[str]:
    """Return the lines of a piece, indented by `indent` blanks and followed by `end`."""
    line = f"{' ' * indent}{flat(piece)}{end}"
    if isinstance(piece, str) or not piece.items or columns(line) <= WIDTH:
        return [line]
    lines = [f"{' ' * indent}{piece.head}"]
    for place, item in enumerate(piece.items):
        last = place == len(piece.items) - 1
        lines += lay(item, indent + 4, "" if last and not piece.comma else ",")
    return [*lines, f"{' ' * indent}{piece.tail}{end}"]


def literal(text: str) -> str:
    """Return a string literal; characters that are not printable are escaped."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    return quote + _escaped(text.replace("\\", "\\\\").replace(quote, f"\\{quote}")) + quote


def docstring(text: str, indent: int) -> list[str]:
    """Return the lines of a docstring; none if the text is empty."""
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
    """Escape a line for a docstring, hidden characters included."""
    return _escaped(line.replace("\\", "\\\\")).replace('"""', '\\"\\"\\"').rstrip()


def _escaped(text: str) -> str:
    """Escape what isn't visible."""
    text = hidden().sub(lambda found: escape(found[0]), text)
    return "".join(one if one.isprintable() or one in JOINERS else escape(one) for one in text)
