"""Which characters a reader doesn't see, and text from others with escapes in their place.

There is one list, for terminals, pages, logs, contracts and stubs, so that what one of them shows no other one hides. It is
fixed: every Python gives the same answer.
"""

from __future__ import annotations

import re
from functools import cache

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

#: Codes and tokens in queries, forms and JSON (RFC 6749, RFC 8693), in headers, passwords in URLs, and JSON Web Tokens.
_SECRET_NAMES = (
    "access_token|actor_token|api_key|client_assertion|client_secret|code_verifier|id_token|refresh_token|subject_token"
)
_CREDENTIALS = re.compile(
    rf"(\b(?:{_SECRET_NAMES})(?:=|['\"]\s*:\s*['\"])|[?&](?:assertion|code|apikey|auth|key|password|sig|signature|state|token)=)[^&\s\"'<>]+"
    r"|\b((?:Basic|Bearer|DPoP)\s+)(?=\S*[0-9=])[A-Za-z0-9._~+/-]{8,}=*"
    r"|(://[^\s/@:'\"]*:)[^\s/@'\"]+(?=@)"
    # It begins where no character of the same kind is before it: so the time for a text is proportional to its length.
    r"|(?<![\w-])eyJ[\w-]{8,}\.[\w-]+\.[\w-]*"
)
#: Characters of a text, or of a line of a traceback, in a log: whoever chooses the text chooses how long it takes to escape it.
MAX_LOG_TEXT = 50_000
_LINE_BREAK = re.compile(r"\n(?!    )")


@cache
def hidden() -> re.Pattern[str]:
    """Return the pattern of one hidden character. It is compiled when it is needed, which takes milliseconds."""
    listed = "".join("-".join(f"\\U{int(end, 16):08x}" for end in part.split("-")) for part in HIDDEN_RANGES.split())
    shown = f"[^\\x00-\\x7f{listed}{JOINERS}{EMOJI}]"
    joiner = f"(?<!{shown})(?<!{EMOJI})[{JOINERS}]|[{JOINERS}](?!{shown})"
    return re.compile(f"[{listed}]|{joiner}|(?<!{shown})(?<![0-9#*]){EMOJI}")


def escape_line(text: str) -> str:
    """Return the text as one line in which every character is visible; others become escapes such as `\\x1b`."""
    if text.isascii() and text.isprintable():
        return text
    text = hidden().sub(lambda found: escape(found[0]), text)
    return text if text.isprintable() else "".join(map(_visible, text))


def escape_text(text: str) -> str:
    """Return the text with its line breaks; everything else that would move the cursor becomes an escape."""
    return "\n".join(escape_line(line.expandtabs(4)) for line in text.replace("\r\n", "\n").split("\n"))


def escape_log(text: str) -> str:
    """Return a text for a log: without credentials and hidden characters, and with each line after the first indented.

    So no text of others looks like a line of its own. Of a text that is longer than `MAX_LOG_TEXT`, the rest is left out.
    """
    if len(text) > MAX_LOG_TEXT:
        return f"{_escape_log(text[:MAX_LOG_TEXT])}… ({len(text) - MAX_LOG_TEXT} more characters)"
    return _escape_log(text)


def _escape_log(text: str) -> str:
    text = _CREDENTIALS.sub(lambda found: f"{found[1] or found[2] or found[3] or ''}…", text)
    if text.isascii() and text.isprintable():
        return text
    return _LINE_BREAK.sub("\n    ", hidden().sub(lambda found: escape(found[0]), text))


def escape(character: str) -> str:
    """Return the escape of a character, as in Python source."""
    code = ord(character)
    return character.encode("unicode_escape").decode() if code < 0x80 or code > 0xFFFF else f"\\u{code:04x}"


def _visible(character: str) -> str:
    if character.isprintable() or character in JOINERS:
        return character
    import unicodedata

    return " " if unicodedata.category(character) == "Zs" else escape(character)
