"""Change one table of a TOML text and keep every other byte. Each edit is read again and compared with what it should be."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from gemel.errors import StartError

_HEADER = re.compile(r"[ \t]*\[")


def get(text: str, path: Sequence[str]) -> Any:
    """Return the value at a path of keys, or None.

    Raises:
        StartError: The text is not TOML, or something on the path is not a table.
    """
    value: Any = _read(text)
    for key in path:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise StartError(f"{key!r} can't be read: what should contain it is not a table")
        value = value.get(key)
    return value


def put(text: str, path: Sequence[str], value: Mapping[str, Any]) -> str:
    """Return the text with a table at a path, behind everything else.

    Raises:
        StartError: The text is not TOML, or the table can't be written there.
    """
    expected = _read(text)
    if get(text, path) is not None:
        text = cut(text, path)
    table = expected
    for key in path[:-1]:
        table = table.setdefault(key, {})
    table[path[-1]] = dict(value)
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [f"[{'.'.join(path)}]", *(f"{key} = {_render(item)}" for key, item in value.items())]
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    return _checked(text + gap + newline.join(lines) + newline, expected)


def cut(text: str, path: Sequence[str]) -> str:
    """Return the text without the table at a path and the tables in it.

    Raises:
        StartError: The text is not TOML, or the table is written in another form than `[a.b]`.
    """
    expected = _read(text)
    table = expected
    for key in path[:-1]:
        table = table.get(key, {})
    table.pop(path[-1], None)
    for depth in range(len(path) - 1, 0, -1):  # tables that only this one made are gone with it
        outer = expected
        for key in path[: depth - 1]:
            outer = outer.get(key, {})
        if not outer.get(path[depth - 1], True) and not _is_written(text, path[:depth]):
            del outer[path[depth - 1]]
    return _checked(_without_tables(text, path), expected)


def _header(path: Sequence[str]) -> re.Pattern[str]:
    keys = r"\s*\.\s*".join(rf"(?:{re.escape(key)}|\"{re.escape(key)}\"|'{re.escape(key)}')" for key in path)
    return re.compile(rf"[ \t]*\[\s*{keys}\s*(?P<inner>\..*)?\]")


def _is_written(text: str, path: Sequence[str]) -> bool:
    header = _header(path)
    return any((match := header.match(line)) and not match["inner"] for line in text.splitlines())


def _without_tables(text: str, path: Sequence[str]) -> str:
    header = _header(path)
    lines = text.splitlines(keepends=True)
    kept: list[str] = []
    place = 0
    while place < len(lines):
        if not header.match(lines[place]):
            kept.append(lines[place])
            place += 1
            continue
        end = place + 1
        while end < len(lines) and not _HEADER.match(lines[end]):
            end += 1
        while lines[end - 1].lstrip().startswith("#") or not lines[end - 1].strip():  # belong to what follows
            end -= 1
        if end >= len(lines) or not lines[end].strip():  # the empty line that set it apart
            while kept and not kept[-1].strip():
                kept.pop()
        place = end
    return "".join(kept)


def _read(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise StartError(f"not TOML: {exc}") from None


def _checked(edited: str, expected: Mapping[str, Any]) -> str:
    try:
        if tomllib.loads(edited) == expected:
            return edited
    except tomllib.TOMLDecodeError:
        pass
    raise StartError("the file can't be changed safely: the servers are not written as tables of their own, [a.b]")


def _render(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_render(item)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_render, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _render(key)
