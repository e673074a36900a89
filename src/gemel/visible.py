"""Which characters a reader doesn't see, and text from others with escapes in their place.

There is one list, for terminals, pages, logs, contracts and stubs, so that what one of them shows no other one hides. It is
fixed: every Python gives the same answer.
"""

from __future__ import annotations

import re
import unicodedata

#: Code points: controls but tab and line break; formats (direction, zero width, tags); separators of lines and paragraphs;
#: surrogates and private use; blanks, fillers and selectors without a shape.
HIDDEN_RANGES = (
    "0-8 b-1f 7f-9f ad 34f 600-605 61c 6dd 70f 890-891 8e2 115f-1160 17b4-17b5 180b-180f 200b 200e-200f 2028-202e 2060-206f "
    "2800 3164 d800-f8ff fe00-fe0e feff ffa0 fff0-fffc fffe-ffff 110bd 110cd 13430-1343f 16fe4 1bca0-1bca3 1d159 1d173-1d17a "
    "e0000-10ffff"
)
#: Joiners, which Persian and emoji need between two characters, and the selector that makes an emoji of the one before it.
#: Elsewhere they are hidden.
JOINERS, EMOJI = "\u200c\u200d", "\ufe0f"

_SET = "".join("-".join(f"\\U{int(end, 16):08x}" for end in part.split("-")) for part in HIDDEN_RANGES.split())
_SHOWN = f"[^\\x00-\\x7f{_SET}{JOINERS}{EMOJI}]"
HIDDEN = re.compile(
    f"[{_SET}]|(?<!{_SHOWN})(?<!{EMOJI})[{JOINERS}]|[{JOINERS}](?!{_SHOWN})|(?<!{_SHOWN})(?<![0-9#*]){EMOJI}"
)


def escape_line(text: str) -> str:
    """Return the text as one line in which every character is visible; others become escapes such as `\\x1b`."""
    if text.isascii() and text.isprintable():
        return text
    text = HIDDEN.sub(lambda hidden: escape(hidden[0]), text)
    return text if text.isprintable() else "".join(map(_visible, text))


def escape_text(text: str) -> str:
    """Return the text with its line breaks; everything else that would move the cursor becomes an escape."""
    return "\n".join(escape_line(line.expandtabs(4)) for line in text.replace("\r\n", "\n").split("\n"))


def escape(character: str) -> str:
    """Return the escape of a character, as in Python source."""
    code = ord(character)
    return character.encode("unicode_escape").decode() if code < 0x80 or code > 0xFFFF else f"\\u{code:04x}"


def _visible(character: str) -> str:
    if character.isprintable() or character in JOINERS:
        return character
    return " " if unicodedata.category(character) == "Zs" else escape(character)
