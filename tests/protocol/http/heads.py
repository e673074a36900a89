"""Heads of requests for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gemel.protocol.http.headers import SESSION_METHODS, Head, HeadRules, judge_head
from gemel.protocol.http.origin import Guard

RULES = HeadRules(Guard(), SESSION_METHODS)


def judged(*pairs: tuple[bytes, bytes], method: str = "POST", rules: HeadRules = RULES) -> Head:
    return judge_head(method, pairs, rules)


def head_of(values: Mapping[str, str] | Mapping[bytes, bytes] | Sequence[tuple[bytes, bytes]]) -> Head:
    """The head of a POST with these headers: names in any case, text in latin-1."""
    pairs = values.items() if isinstance(values, Mapping) else values
    return judged(*((_bytes(name).lower(), _bytes(value)) for name, value in pairs))


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1")
