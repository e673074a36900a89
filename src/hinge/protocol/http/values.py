"""How a value stands in a header of MCP (HDR-07, HDR-08, HDR-16…HDR-19, T-21): plain where HTTP can carry it, else
behind a Base64 sentinel. Must not know which headers there are.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from typing import Final

from hinge.errors import HeaderMismatch, NotSent, shorten

#: Optional whitespace around a value: servers differ in whether they strip it, so we do (HDR-08).
OWS: Final = b" \t"
#: Stands for the value of a header that came more than once though it must not: whoever took the first copy would
#: disagree with whoever took the last. No server lets LF into a value, so this equals nothing that a client can mean.
REPEATED: Final = b"\n"

_PREFIX: Final = "=?base64?"
_SUFFIX: Final = "?="
_MARKERS: Final = len(_PREFIX) + len(_SUFFIX)


def encode_value(value: str | int | bool) -> str:
    """The header text of a value: itself where HTTP can carry it, else `=?base64?…?=` around its UTF-8 (HDR-16…HDR-18).

    Raises NotSent for a string with lone surrogates, which has no UTF-8.
    """
    if value is True or value is False:
        return "true" if value else "false"
    text = value if isinstance(value, str) else str(value)
    plain = text.isascii() and text.isprintable() and text.strip(" ") == text
    if plain and not (text.startswith(_PREFIX) and text.endswith(_SUFFIX)):
        return text
    try:
        return f"{_PREFIX}{b2a_base64(text.encode(), newline=False).decode()}{_SUFFIX}"
    except UnicodeEncodeError as exc:
        raise NotSent(f"{shorten(text)!a} holds half of a surrogate pair and can't be sent in a header") from exc


def read_value(text: str, header: str) -> str:
    """A header's text (bytes as latin-1) without outer blanks, not decoded.

    Raises HeaderMismatch, naming `header`, if it came more than once or holds what no header may: control characters
    other than tabs, anything beyond ASCII (HDR-06).
    """
    text = text.strip(" \t")
    if text.isascii() and (text.isprintable() or text.replace("\t", " ").isprintable()):
        return text
    if text == REPEATED.decode():
        raise HeaderMismatch(f"Header mismatch: {header} was sent more than once")
    raise HeaderMismatch(f"Header mismatch: {header} holds characters that a header can't carry as they are")


def decode_value(text: str, header: str = "the header") -> str:
    """What a header's text means: the content of a sentinel, or the text itself (HDR-07, HDR-19).

    A text that lacks one of the two markers, or has them in another case, is a literal. Raises HeaderMismatch, naming
    `header`, for characters that no header may hold, and for a sentinel whose content isn't Base64 of UTF-8.
    """
    text = read_value(text, header)
    if len(text) < _MARKERS or not text.startswith(_PREFIX) or not text.endswith(_SUFFIX):
        return text
    try:
        return a2b_base64(text[len(_PREFIX) : -len(_SUFFIX)], strict_mode=True).decode()
    except (Base64Error, UnicodeDecodeError):
        raise HeaderMismatch(
            f"Header mismatch: what {header} holds as =?base64?…?= isn't Base64 of UTF-8 text"
        ) from None
