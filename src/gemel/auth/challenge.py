"""Challenges of `WWW-Authenticate` (RFC 9110 §11.6.1): several in one header, several headers, quoted or bare values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

#: Characters that are read; the rest of longer headers is ignored.
MAX_CHARACTERS: Final = 16 * 1024
#: Challenges and parameters of one challenge; those after them are ignored.
MAX_CHALLENGES: Final = 32
MAX_PARAMETERS: Final = 64

_SEPARATORS = re.compile(r"[ \t,]*")
_SCHEME = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+)(?:[ \t]+|(?=,)|$)")
_TOKEN68 = re.compile(r"([A-Za-z0-9\-._~+/]+=*)[ \t]*(?=,|$)")
_QUOTED_PARAMETER = re.compile(r"""([!#$%&'*+\-.^_`|~0-9A-Za-z]+)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"?""", re.DOTALL)
#: A bare value should be a token; some servers write URLs without quotes.
_BARE_PARAMETER = re.compile(r"""([!#$%&'*+\-.^_`|~0-9A-Za-z]+)[ \t]*=[ \t]*([^\s",]*)""")
_UNREADABLE = re.compile(r'(?:"(?:[^"\\]|\\.)*"?|[^",])+', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
#: What the values of Bearer challenges may hold (RFC 6750 §3).
_FORBIDDEN = re.compile(r"""[^\x20-\x21\x23-\x5b\x5d-\x7e]""")


class Challenge(NamedTuple):
    """One challenge.

    Attributes:
        scheme: The scheme in lower case, such as "bearer" or "dpop".
        parameters: Its parameters by name in lower case. The first of two with one name counts. A `token68` is at "".
    """

    scheme: str
    parameters: Mapping[str, str]


def parse_challenges(values: str | Iterable[str]) -> list[Challenge]:
    """Read the challenges of a response, in any order.

    What can't be read is skipped: this never raises.

    Args:
        values: The value of `WWW-Authenticate`, or the values of several.

    Returns:
        The challenges, in order.
    """
    text = (values if isinstance(values, str) else ", ".join(values))[:MAX_CHARACTERS]
    challenges: list[Challenge] = []
    parameters: dict[str, str] | None = None
    position = _skip(text, 0)
    while position < len(text):
        parameter = _QUOTED_PARAMETER.match(text, position) or _BARE_PARAMETER.match(text, position)
        if parameter is not None and parameters is not None:
            if len(parameters) < MAX_PARAMETERS:
                parameters.setdefault(parameter[1].lower(), _ESCAPED.sub(r"\1", parameter[2]))
            position = parameter.end()
        elif parameter is None and (scheme := _SCHEME.match(text, position)) is not None:
            if len(challenges) >= MAX_CHALLENGES:
                break
            parameters = {}
            challenges.append(Challenge(scheme[1].lower(), parameters))
            position = scheme.end()
            if scheme[0][-1] in " \t" and (token := _TOKEN68.match(text, position)) is not None:
                parameters[""] = token[1]
                position = token.end()
        else:
            unreadable = _UNREADABLE.match(text, position)
            position = len(text) if unreadable is None else unreadable.end()
        position = _skip(text, position)
    return challenges


def find_challenge(challenges: Iterable[Challenge], scheme: str) -> Challenge | None:
    """Return the first challenge of a scheme, None if there is none."""
    return next((each for each in challenges if each.scheme == scheme.lower()), None)


def write_challenge(scheme: str, parameters: Mapping[str, str | None]) -> str:
    """Write one challenge: `Bearer error="invalid_token", scope="a b"`.

    Args:
        scheme: The scheme as it is written.
        parameters: The parameters in order. None leaves one out. Characters that a value must not hold (RFC 6750 §3: quotes,
            backslashes, controls and all beyond ASCII) become "?", so that no value can end its quotes or the header.

    Returns:
        The value of `WWW-Authenticate`.
    """
    written = [f'{name}="{_FORBIDDEN.sub("?", value)}"' for name, value in parameters.items() if value is not None]
    return f"{scheme} {', '.join(written)}" if written else scheme


def _skip(text: str, position: int) -> int:
    match = _SEPARATORS.match(text, position)
    assert match is not None
    return match.end()
