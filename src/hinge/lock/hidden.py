"""Characters that a reader doesn't see: which they are, and how text from elsewhere is shown without being obeyed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

#: Controls but tab and line break; formats (bidi, zero width, tags); line and paragraph separators; private use; fillers and
#: selectors without a shape. U+FE0F, which makes an emoji, is harmless. A fixed list: no Python's Unicode tables have a say.
_RANGES = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\uf8ff\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffc\ufffe\uffff"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U0010ffff"
)
_HIDDEN = re.compile(f"[{_RANGES}]")


def is_hidden(character: str) -> bool:
    """Whether a character can't be seen, or changes how others are seen."""
    return _HIDDEN.match(character) is not None


def hidden_in(text: str) -> list[str]:
    """The hidden characters of a text by their numbers, `U+202E`, each once, in order."""
    if text.isascii() and text.isprintable():
        return []
    return list(dict.fromkeys(f"U+{ord(character):04X}" for character in _HIDDEN.findall(text)))


def hidden_within(value: Any) -> list[str]:
    """The same for all texts of a JSON value, names of members among them."""
    return list(dict.fromkeys(one for text in _texts(value) for one in hidden_in(text)))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def escaped(text: str) -> str:
    """JSON text in which hidden characters stand as `\\uXXXX`."""
    return _HIDDEN.sub(lambda found: json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f", text)


def shown(value: object, limit: int = 200) -> str:
    """A JSON value on one line, for people and terminals: cut, and nothing in it hides or moves a cursor."""
    text = escaped(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def name_shown(text: str) -> str:
    """A name as it is if that is harmless, else as JSON."""
    plain = text.isascii() and text.isprintable() and " " not in text and '"' not in text and len(text) <= 200
    return text if plain and text else shown(text)
