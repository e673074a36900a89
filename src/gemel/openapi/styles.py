"""Values of parameters as text, by the styles of OpenAPI.

https://spec.openapis.org/oas/v3.1.1.html#style-values. Values that RFC 6570 calls undefined (null, empty arrays and objects)
are left out. What the specification leaves undefined: arrays and objects within arrays and objects are written as JSON, in
the style deepObject with further brackets, as PHP, Rails and qs read them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

import msgspec

Encode: TypeAlias = Callable[[str], str]

#: The styles of each place of a parameter. The first one is the default.
STYLES: Mapping[str, tuple[str, ...]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form", "cookie"),
}
_DELIMITERS = {"spaceDelimited": " ", "pipeDelimited": "|"}
#: Reserved characters that have no meaning of their own in a query string of pairs.
_RESERVED = ":/?@!$'()*,;"
_TRIPLET = re.compile(r"(%[0-9A-Fa-f]{2})")


def explodes(style: str, explode: object) -> bool:
    """Return whether each item has a pair of its own: what the document says, or the default of the style."""
    return style in ("form", "cookie", "deepObject") if explode is None else explode is True


def plain(value: object) -> str:
    """Return a value as text: strings as they are, all others as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def percent(text: str) -> str:
    """Percent-encode everything but the unreserved characters of RFC 3986."""
    return quote(text, safe="")


def percent_unless_reserved(text: str) -> str:
    """Percent-encode by `allowReserved`: reserved characters and triplets stay, except those that delimit pairs."""
    parts = _TRIPLET.split(text)
    return "".join(part if place % 2 else quote(part, safe=_RESERVED) for place, part in enumerate(parts))


def verbatim(text: str) -> str:
    """Return the text unchanged."""
    return text


def is_undefined(value: object) -> bool:
    """Return whether RFC 6570 leaves a value out."""
    return value is None or (isinstance(value, list | dict) and not any(True for _ in _defined(value)))


def _defined(value: list[Any] | dict[str, Any]) -> Iterator[tuple[str, Any]]:
    pairs = value.items() if isinstance(value, dict) else (("", one) for one in value)
    return ((name, one) for name, one in pairs if one is not None)


def _items(value: object, explode: bool, encode: Encode) -> list[str]:
    """The encoded items of an array; of an object its names and values, joined by `=` if it explodes."""
    if isinstance(value, dict):
        pairs = [(encode(name), encode(plain(one))) for name, one in _defined(value)]
        return [f"{name}={one}" for name, one in pairs] if explode else [text for pair in pairs for text in pair]
    return [encode(plain(one)) for _, one in _defined(value if isinstance(value, list) else [value])]


def write_simple(value: object, explode: bool, encode: Encode) -> str:
    """Write the style simple: `blue,black`, `R,100,G,200`, `R=100,G=200`."""
    return ",".join(_items(value, explode, encode))


def write_label(value: object, explode: bool, encode: Encode) -> str:
    """Write the style label: `.blue,black`; `.blue.black` if it explodes."""
    return "." + ("." if explode else ",").join(_items(value, explode, encode))


def write_matrix(name: str, value: object, explode: bool, encode: Encode) -> str:
    """Write the style matrix: `;color=blue,black`; `;color=blue;color=black` if it explodes."""
    pairs = write_pairs("form", name, value, explode, encode)
    return "".join(f";{name}={text}" if text else f";{name}" for name, text in pairs)


def write_pairs(style: str, name: str, value: object, explode: bool, encode: Encode) -> list[tuple[str, str]]:
    """Write the styles of query strings and cookies as pairs of encoded names and values."""
    encode_name = verbatim if encode is verbatim else percent
    if style == "deepObject":
        return [(encode_name(path), encode(text)) for path, text in _deep(name, value)]
    if explode and isinstance(value, dict):
        return [(encode_name(key), encode(plain(one))) for key, one in _defined(value)]
    if explode and isinstance(value, list):
        return [(encode_name(name), text) for text in _items(value, False, encode)]
    delimiter = encode_name(_DELIMITERS[style]) if style in _DELIMITERS else ","
    return [(encode_name(name), delimiter.join(_items(value, False, encode)))]


def _deep(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict | list):
        for name, one in _defined(value):
            yield from _deep(f"{path}[{name}]", one)
    else:
        yield path, plain(value)
