"""Parses docstrings in Google, NumPy, Sphinx and Epytext style, also mixed.

Sections on arguments, results and errors are taken out of the description; all others (examples, notes) stay in it.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import NamedTuple

_ARGUMENTS = "arguments"
_RETURNS = "returns"
_IGNORED = "ignored"

_SECTIONS = {
    **dict.fromkeys(("args", "arguments", "parameters", "params", "attributes"), _ARGUMENTS),
    **dict.fromkeys(("keyword args", "keyword arguments", "other parameters", "other arguments"), _ARGUMENTS),
    **dict.fromkeys(("return", "returns"), _RETURNS),
    **dict.fromkeys(("yield", "yields", "raise", "raises", "exceptions", "warns"), _IGNORED),
}
_FIELDS = {
    **dict.fromkeys(("param", "parameter", "arg", "argument", "key", "keyword", "var", "ivar", "cvar"), _ARGUMENTS),
    **dict.fromkeys(("return", "returns"), _RETURNS),
    **dict.fromkeys(("raise", "raises", "except", "exception", "yield", "yields"), _IGNORED),
    **dict.fromkeys(("type", "vartype", "rtype"), _IGNORED),
}

_FENCE = re.compile(r"\s*(```|~~~)")
_UNDERLINE = re.compile(r"\s*(-{3,}|={3,})\s*$")
_FIELD = re.compile(r"\s*[:@](\w+)(?:\s+([^:]*?))?\s*:(?:\s+(.*))?$")
_GOOGLE_ITEM = re.compile(r"(\*{0,2}\w+)\s*(?:\(.*?\))?(?:\s*:(?:\s+(.*))?|\s+[-–—]+\s+(.*))$")
_NUMPY_ITEM = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_BULLET = re.compile(r"([-*+•]|\d+[.)])\s")


class Docstring(NamedTuple):
    """A parsed docstring: `arguments` maps names (without `*`) to their text."""

    description: str | None
    arguments: dict[str, str]
    returns: str | None


def parse_docstring(text: str | None) -> Docstring:
    """Parse a docstring. What isn't understood stays in the description; nothing is an error."""
    if not text:
        return Docstring(None, {}, None)
    parser = _DocstringParser(inspect.cleandoc(text).splitlines())
    return parser.parse()


class _DocstringParser:
    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.description: list[str] = []
        self.arguments: dict[str, str] = {}
        self.returns: str | None = None

    def parse(self) -> Docstring:
        position, fenced = 0, False
        while position < len(self.lines):
            line = self.lines[position]
            if _FENCE.match(line):
                fenced = not fenced
            after = position if fenced else self._section(position)
            if after == position:
                self.description.append(line)
                after += 1
            position = after
        description = re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in self.description)).strip()
        return Docstring(description or None, self.arguments, self.returns)

    def _section(self, position: int) -> int:
        """Reads the section that starts at this line, if one does; the position after it."""
        line = self.lines[position]
        if _indent(line):
            return position
        if self._is_numpy_header(position):
            kind = _SECTIONS.get(line.strip().lower())
            return position if kind is None else self._numpy(kind, position)
        if field := _FIELD.match(line):
            kind = _FIELDS.get(field[1].lower())
            return position if kind is None else self._field(kind, field, position)
        head, colon, rest = line.strip().partition(":")
        kind = _SECTIONS.get(head.lower()) if colon else None
        if kind is None or (rest and (kind == _ARGUMENTS or not rest.startswith(" "))):
            return position
        return self._google(kind, rest.strip(), position)

    def _is_numpy_header(self, position: int) -> bool:
        if position + 1 >= len(self.lines) or not self.lines[position].strip():
            return False
        return bool(_UNDERLINE.match(self.lines[position + 1]))

    def _deeper(self, position: int) -> int:
        """The end of the block that is indented deeper than the line at `position`; blank lines belong to it."""
        indent = _indent(self.lines[position])
        end = position + 1
        for index in range(position + 1, len(self.lines)):
            if not self.lines[index].strip():
                continue
            if _indent(self.lines[index]) <= indent:
                break
            end = index + 1
        return end

    def _google(self, kind: str, first: str, position: int) -> int:
        end = self._deeper(position)
        if end == position + 1 and not first:
            end = self._unindented(position)
        block = self.lines[position + 1 : end]
        if kind == _RETURNS:
            self.returns = _without_type(_flow([first, *block]))
        elif kind == _ARGUMENTS:
            self._google_items(block)
        return end

    def _unindented(self, position: int) -> int:
        """The end of the items that follow a header without being indented; the header itself if there are none."""
        end = position + 1
        while end < len(self.lines) and _GOOGLE_ITEM.match(self.lines[end].strip()):
            end += 1
        return end if end > position + 1 else position

    def _google_items(self, block: list[str]) -> None:
        base = min((_indent(line) for line in block if line.strip()), default=0)
        name, texts = "", list[str]()
        for line in block:
            item = _GOOGLE_ITEM.match(line.strip()) if _indent(line) == base else None
            if item is None:
                texts.append(line)
                continue
            self._argument(name, texts)
            name, texts = item[1], [item[2] or item[3] or ""]
        self._argument(name, texts)

    def _field(self, kind: str, field: re.Match[str], position: int) -> int:
        end = self._deeper(position)
        texts = [field[3] or "", *self.lines[position + 1 : end]]
        if kind == _ARGUMENTS and field[2]:
            self._argument(field[2].split()[-1], texts)
        elif kind == _RETURNS:
            self.returns = _flow(texts) or None
        return end

    def _numpy(self, kind: str, position: int) -> int:
        base = _indent(self.lines[position])
        end = position + 2
        while end < len(self.lines) and not self._is_numpy_header(end):
            if self._leaves_numpy(kind, base, end):
                break
            end += 1
        block = self.lines[position + 2 : end]
        if kind == _ARGUMENTS:
            self._numpy_items(base, block)
        elif kind == _RETURNS:
            deeper = [line for line in block if not line.strip() or _indent(line) > base]
            self.returns = _flow(deeper) or _flow(block) or None
        return end

    def _leaves_numpy(self, kind: str, base: int, position: int) -> bool:
        """After a blank line, unindented prose that can't name a parameter ends a NumPy section."""
        line = self.lines[position]
        if not line.strip() or _indent(line) > base or self.lines[position - 1].strip():
            return False
        return kind != _ARGUMENTS or _NUMPY_ITEM.match(line.strip()) is None

    def _numpy_items(self, base: int, block: list[str]) -> None:
        names, texts = list[str](), list[str]()
        for line in block:
            item = _NUMPY_ITEM.match(line.strip()) if _indent(line) == base else None
            if item is None:
                texts.append(line)
                continue
            for name in names:
                self._argument(name, texts)
            names, texts = item[1].split(","), []
        for name in names:
            self._argument(name, texts)

    def _argument(self, name: str, texts: list[str]) -> None:
        text = _flow(texts)
        if name and text:
            self.arguments[name.strip().lstrip("*")] = text


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _flow(lines: list[str]) -> str:
    """Join wrapped lines; paragraphs, list items and fenced code keep their own lines."""
    if len(lines) == 1:
        return lines[0].strip()
    text, fenced = "", False
    for line in [*lines[:1], *textwrap.dedent("\n".join(lines[1:])).split("\n")]:
        fence = _FENCE.match(line) is not None
        if not line.strip():
            text = text and text.rstrip("\n") + "\n\n"
        elif not text or text.endswith("\n"):
            text += line.strip()
        elif fenced or fence:
            text += "\n" + line.rstrip()
        else:
            text += ("\n" if _BULLET.match(line.strip()) else " ") + line.strip()
        fenced = fenced != fence
    return text.rstrip()


def _without_type(text: str) -> str | None:
    """`list[int]: the sizes` → `the sizes`: Google style may put the type before the text."""
    head, colon, rest = text.partition(": ")
    if colon and rest and (len(head.split()) == 1 or "[" in head or " | " in head):
        return rest
    return text or None
