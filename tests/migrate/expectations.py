"""What the comments at the top of a program say that it does; standard library only, for the environments of the peers.

# lists: add sub                    the names of its tools, sorted
# call: add {"a": 1} = 2            a call, and the result: JSON, text, or the MIME type of an image or sound
# fails: add {"a": "x"} = message   a call that fails, with a part of the message
# read: uri = text
# prompt: name {…} = text           the text of the last message
# answers: {…} or decline           what the user answers
# sampled: text                     what the client's model answers
# prints: line                      what the program prints as a script
# era: 2025                         the era in which the original works
# packages: fastmcp-2               the environment of the original, if not that of its name
# only: rewrite                     the result doesn't run; or an era, in which alone it works
# extends: text                     what it sends that is not in the protocol
# differs: text                     a difference of the lists that is meant
# becomes: text, # notes: text      parts of the rewritten source, and of the notes
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

PROGRAMS = Path(__file__).with_name("programs")


class Expected(NamedTuple):
    """The comments of one program: each key with its values."""

    lines: list[tuple[str, str]]

    def all(self, key: str) -> list[str]:
        """The values of a key."""
        return [value for found, value in self.lines if found == key]

    def first(self, key: str) -> str | None:
        """The first value of a key."""
        return next(iter(self.all(key)), None)

    def calls(self, key: str) -> list[tuple[str, dict[str, Any], str]]:
        """`name {…} = result` as name, arguments, result."""
        found = []
        for value in self.all(key):
            name, _, rest = value.partition(" ")
            arguments, end = json.JSONDecoder().raw_decode(rest)
            found.append((name, arguments, rest[end:].strip().removeprefix("= ")))
        return found


def expected_of(path: Path) -> Expected:
    """Read the comments of a program."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("# "):
            break
        key, _, value = line[2:].partition(": ")
        lines.append((key, value))
    return Expected(lines)


def parsed(text: str) -> Any:
    """JSON as its value, anything else as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def value_of(structured: Any, content: Any) -> Any:
    """What a result says, the same for all packages: its value, its text, or the MIME type of its first block."""
    if isinstance(structured, dict):
        return structured["result"] if list(structured) == ["result"] else structured
    if structured is not None:
        return structured
    if not content:
        return None
    first = content[0]
    if first.type != "text":
        return getattr(first, "mime_type", None) or first.mimeType
    return parsed(first.text)


def load(path: Path, source: str) -> dict[str, Any]:
    """Run a program that is not the main one; returns its names."""
    import types

    module = types.ModuleType("migrated_" + path.stem)
    sys.modules[module.__name__] = module
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module.__dict__
