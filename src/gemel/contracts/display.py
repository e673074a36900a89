"""Text from strangers, shown safely: invisible characters are found and escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import UNSET

from gemel.visible import hidden

#: How many hidden characters, or values of a list, are named.
_MOST = 8


def hidden_in(text: str) -> list[str]:
    """Return the hidden characters of a text as code points, `U+202E`, each once, in order."""
    if text.isascii() and text.isprintable():
        return []
    return list(dict.fromkeys(f"U+{ord(character):04X}" for character in hidden().findall(text)))


def hidden_within(value: object) -> list[str]:
    """Return the hidden characters in all strings of a JSON value, names of members included."""
    return list(dict.fromkeys(one for text in _texts(value) for one in hidden_in(text)))


def _texts(value: object) -> Iterator[str]:
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
    """Escape the hidden characters of JSON text as `\\uXXXX`."""
    return hidden().sub(lambda found: json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f", text)


def shown(value: object, limit: int = 200) -> str:
    """Return a JSON value as one line of at most `limit` characters that is safe to print on a terminal."""
    text = escaped(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def name_shown(text: str) -> str:
    """Return a name unchanged if it is plain ASCII without spaces, else as JSON."""
    plain = text.isascii() and text.isprintable() and " " not in text and '"' not in text and len(text) <= 200
    return text if plain and text else shown(text)


def warning(value: object) -> str:
    """Return a note on the hidden characters of a JSON value, empty without any."""
    found = hidden_within(value)
    return f" (hidden characters: {', '.join(found[:_MOST])})" if found else ""


def values_shown(values: Iterable[Any]) -> str:
    """Return the first JSON values of a list, and how many more there are."""
    texts = [shown(value, 60) for value in values]
    more = f" and {len(texts) - _MOST} more" if len(texts) > _MOST else ""
    return ", ".join(texts[:_MOST]) + more


def change_shown(before: object, after: object) -> str:
    """Return a JSON value before and after a change; long strings from shortly before the place where they differ."""
    if isinstance(before, str) and isinstance(after, str):
        same = next((place for place, (x, y) in enumerate(zip(before, after, strict=False)) if x != y), None)
        start = max(0, (min(len(before), len(after)) if same is None else same) - 20)
        if start:
            before, after = f"…{before[start:]}", f"…{after[start:]}"
    return f"{value_shown(before)} → {value_shown(after)}{warning(after)}"


def unset_if_none(value: object) -> Any:
    """Return UNSET in place of a None that stands for a missing value, and not for null."""
    return UNSET if value is None else value


def value_shown(value: object) -> str:
    """Return a JSON value on one line, "none" for UNSET."""
    return "none" if value is UNSET else shown(value, 120)
