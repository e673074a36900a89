"""Conditions of rules, each true, false or in doubt (None): see `rules.py` for what follows.

A value is in doubt where what the tool makes of it can't be known: it is missing, has another type than the condition is about, or
is a text that fits only before or only after Unicode forms, invisible characters, letter case, percent escapes, separators and `..`
are resolved. Of a list each item is judged; one that fits in part is in doubt.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Any, TypeAlias
from urllib.parse import unquote

from gemel.protocol.validation import compile_schema
from gemel.visible import EMOJI, HIDDEN_RANGES, JOINERS

#: True or False; None for doubt.
Verdict: TypeAlias = bool | None
Condition: TypeAlias = Callable[[Any], Verdict]

#: In place of an argument that is not there.
MISSING: Any = object()

_SEPARATORS = re.compile(r"[/\\]+")
_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
#: What is not itself in a pattern, and what a pattern without any other character is made of: it is about how a text is written.
_WILD, _BARE = re.compile(r"[*?\[]"), re.compile(r"[\s*?\[\]!/\\.%-]*")
#: What nobody sees, and tabs and line breaks.
_UNSEEN = re.compile(
    "["
    + "".join("-".join(f"\\U{int(end, 16):08x}" for end in part.split("-")) for part in HIDDEN_RANGES.split())
    + f"{JOINERS}{EMOJI}\\t\\n]"
)
#: Characters of a text that is folded: a longer one is in doubt.
MAX_TEXT = 100_000
#: How often percent escapes are resolved: each may hide another one.
_ESCAPED = 3


def agreed(verdicts: Iterable[Verdict]) -> Verdict:
    """All true or all false; doubt for anything else, also for nothing at all."""
    seen = set(verdicts)
    return seen.pop() if len(seen) == 1 else None


def every(verdicts: Iterable[Verdict]) -> Verdict:
    """False if one is, otherwise in doubt if one is."""
    result: Verdict = True
    for verdict in verdicts:
        if verdict is False:
            return False
        if verdict is None:
            result = None
    return result


def folded(text: str) -> str:
    """A text as a program may understand it that is more lenient: see the top of this file."""
    if text.isascii() and text.isalnum():
        return text.lower()
    return _without_dots(_resolved(text, unquote))


def _readings(text: str) -> Collection[str]:
    """A text as programs may understand it that are lenient in one or the other way."""
    if text.isascii() and text.isalnum():
        return (text.lower(),)
    readings: dict[str, None] = {}
    for form in _forms(text, unquote):
        readings[form] = readings[form.replace("\\", "/")] = readings[_without_dots(form)] = None
    return readings


def _forms(text: str, unescape: Callable[[str], str]) -> Collection[str]:
    """A text with and without percent escapes, other forms of characters and invisible ones, and up to a null character."""
    unescaped = _unescaped(text, unescape) if "%" in text else text
    forms = [text.casefold(), unescaped.casefold(), _plain_characters(text), _resolved(text, unescape)]
    if "\0" in unescaped:
        forms += _forms(unescaped.partition("\0")[0], unescape)
    return dict.fromkeys(form.strip() for form in forms)


def _unescaped(text: str, unescape: Callable[[str], str]) -> str:
    for _ in range(_ESCAPED):
        text = unescape(text)
    return text


def _resolved(text: str, unescape: Callable[[str], str]) -> str:
    """A text without percent escapes, invisible characters, other forms of characters and space around it."""
    text = _plain_characters(text)
    for _ in range(_ESCAPED):
        unescaped = unescape(text) if "%" in text else text
        if unescaped == text:
            break
        text = _plain_characters(unescaped)
    return text.strip()


def _plain_characters(text: str) -> str:
    text = _UNSEEN.sub("", text)
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKC", text).casefold()
    # Once more: what is left out may have kept two characters from being combined.
    return unicodedata.normalize("NFKC", _UNSEEN.sub("", text))


def _patterns_for_readings(pattern: str) -> Iterator[str]:
    """A pattern as texts are read, so that `./data/*` and `C:\\data\\*` fit what begins like that."""

    def unescape(text: str) -> str:
        return _ESCAPES.sub(lambda run: _WILD.sub(r"[\g<0>]", unquote(run[0])), text)

    for form in _forms(pattern, unescape):
        yield form
        yield form.replace("\\", "/")
        pieces = _SEPARATORS.split(form)
        wild = next((place for place, piece in enumerate(pieces) if _WILD.search(piece)), len(pieces))
        if ".." not in pieces[wild:]:  # of `..` after a wildcard nobody knows where it leads
            yield _without_dots(form)


def _without_dots(text: str) -> str:
    """A path or URL without `.`, `..` and repeated separators, all written `/`."""
    if "/" not in text and "\\" not in text:
        return text
    scheme, colon, path = text.partition("://")
    if not colon:
        scheme, path = "", text
    parts: list[str] = []
    pieces = _SEPARATORS.split(path)
    for place, part in enumerate(pieces):
        if part == ".." and parts and parts[-1] not in ("", ".."):
            parts.pop()
        elif part == ".." and parts == [""]:
            continue  # above the root is the root
        elif part != "." and (part or place in (0, len(pieces) - 1)):
            parts.append(part)
    return scheme + colon + "/".join(parts)


class Glob:
    """One or several patterns as of file names: `*` is any text, also with `/` in it, `?` one character, `[ab]` one of some."""

    def __init__(self, patterns: str | Sequence[str]) -> None:
        patterns = [patterns] if isinstance(patterns, str) else list(patterns)
        self._exact = _compiled(patterns)
        written = [unicodedata.normalize("NFKC", pattern).casefold() for pattern in patterns]
        read = [reading for pattern in patterns for reading in _patterns_for_readings(pattern)]
        self._lenient = _compiled([*written, *read])
        #: For a text that doesn't fit exactly: `*\\*` is about backslashes, and not about slashes.
        self._similar = _compiled([*written, *(pattern for pattern in read if not _BARE.fullmatch(pattern))])

    def matches(self, text: str) -> bool:
        """Whether a text fits exactly."""
        return self._exact.match(text) is not None

    def __call__(self, text: Any) -> Verdict:
        """Whether a text fits as it is and in each reading; in doubt if it fits in some."""
        if not isinstance(text, str) or len(text) > MAX_TEXT:
            return None
        if self._exact.match(text) is not None:
            return True if all(map(self._lenient.match, _readings(text))) else None
        return None if any(map(self._similar.match, _readings(text))) else False


def _compiled(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, dict.fromkeys(patterns))) or r"(?!)")


def argument_condition(given: Any) -> Condition:
    """What a rule says about one argument.

    Args:
        given: A text is a glob, a number or boolean is that value; a list is a set of them, one of which must fit; a table has
            `min` and `max`, or a JSON Schema as `schema`.

    Raises:
        ValueError: It is something else.
    """
    if isinstance(given, Mapping):
        if given.keys() == {"schema"}:
            return _schema(given["schema"])
        if given and given.keys() <= {"min", "max"}:
            return _each(_range(given.get("min"), given.get("max")))
        raise ValueError(
            "use a text, a number, a list of them, or a table with min and max, or with schema; a member of an argument has a "
            'JSON Pointer: arguments."/options/path"'
        )
    if isinstance(given, list):
        if not given:
            raise ValueError("an empty list fits nothing")
        return _each(_one_of(given))
    return _each(_one_of([given]))


def _each(condition: Condition) -> Condition:
    """The same for each item of a list."""

    def judge(value: Any) -> Verdict:
        if value is MISSING:
            return None
        return agreed(map(judge, value)) if isinstance(value, list) else condition(value)

    return judge


def _one_of(given: Sequence[Any]) -> Condition:
    texts = [one for one in given if isinstance(one, str)]
    others = [one for one in given if not isinstance(one, str)]
    if wrong := [one for one in others if not isinstance(one, int | float) or one != one]:
        raise ValueError(f"{wrong[0]!r} is not a text, number or boolean")
    glob = Glob(texts)
    kinds = {_kind(one) for one in given}

    def judge(value: Any) -> Verdict:
        kind = _kind(value)
        if kind not in kinds:
            return None
        if kind == "text":
            return glob(value)
        return any(_kind(one) == kind and one == value for one in others)

    return judge


def _range(least: Any, most: Any) -> Condition:
    for bound in (least, most):
        if bound is not None and (_kind(bound) != "number" or bound != bound):
            raise ValueError("min and max are numbers")
    if least is not None and most is not None and least > most:
        raise ValueError(f"no number is between min = {least} and max = {most}")

    def judge(value: Any) -> Verdict:
        if _kind(value) != "number":
            return None
        return bool((least is None or value >= least) and (most is None or value <= most))

    return judge


def _schema(schema: Any) -> Condition:
    if not isinstance(schema, Mapping | bool):
        raise ValueError("schema is a table, a JSON Schema")
    validator = compile_schema(schema)

    def judge(value: Any) -> Verdict:
        if value is MISSING or validator.is_too_large(value):
            return None
        return validator.is_valid(value)

    return judge


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "other"


def values_at(arguments: Mapping[str, Any], name: str) -> Any:
    """The argument of a name; of one that begins with `/` what that JSON Pointer leads to, in each item of lists on the way."""
    return _at(arguments, _steps(name))


def takes(parameters: frozenset[str], name: str) -> Verdict:
    """Whether a tool with these parameters takes an argument; in doubt if it has one of nearly that name.

    Args:
        parameters: All names of arguments that the tool takes.
        name: The name of an argument, or a JSON Pointer into one.
    """
    argument = _steps(name)[0]
    return True if argument in parameters else (None if folded(argument) in _all_folded(parameters) else False)


@lru_cache(maxsize=1024)
def _all_folded(names: frozenset[str]) -> frozenset[str]:
    return frozenset(map(folded, names))


def _steps(name: str) -> list[str]:
    if not name.startswith("/"):
        return [name]
    return [step.replace("~1", "/").replace("~0", "~") for step in name[1:].split("/")]


def _at(value: Any, steps: Sequence[str]) -> Any:
    if not steps:
        return value
    if isinstance(value, list):
        found = [_at(item, steps) for item in value]
        return MISSING if not found or MISSING in found else found
    if not isinstance(value, Mapping) or steps[0] not in value:
        return MISSING
    if len(value) > 1 and _has_similar(value, steps[0]):  # a lenient program may take either
        return MISSING
    return _at(value[steps[0]], steps[1:])


def _has_similar(value: Mapping[str, Any], name: str) -> bool:
    """Whether another member has nearly the same name."""
    same = folded(name)
    return any(other != name and (len(other) > MAX_TEXT or folded(other) == same) for other in value)
