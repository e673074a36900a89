"""Search for tools by words: BM25 over what a tool says about itself, its name counting most."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gemel.schema.tools import Tool

#: How much a word counts in each place.
_NAME, _TITLE, _DESCRIPTION, _PARAMETER, _ABOUT_PARAMETER = 4.0, 2.0, 1.0, 0.7, 0.2
#: The usual constants of BM25: how soon repetition stops to count, and how much long texts lose.
_SATURATION, _LENGTH = 1.2, 0.6
#: The first characters of a description that are read, and of a query.
_READ = 4000
_RUNS = re.compile(r"[^\W\d_]+|[0-9]+")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+")
_UNSAID = frozenset(
    words
    for line in (
        "a all an and are as at be by can do for from get give how i in into is it its me my of on or our please so",
        "that the their them then this to use via want what when which with you your",
    )
    for words in line.split()
)


def words(text: str) -> list[str]:
    """Return the words of a text or of a name, in lower case, with plurals and forms of verbs cut to one stem.

    Names with capitals within, such as GitHub, are words as a whole and by parts.
    """
    found: list[str] = []
    for run in _RUNS.findall(text[:_READ]):
        parts = _parts(run)
        found += parts if len(parts) == 1 else [*parts, run.lower()]
    return [_stem(word) for word in found if word not in _UNSAID]


def _parts(text: str) -> list[str]:
    return [part.lower() for part in _PARTS.findall(text[:_READ])]


def _stem(word: str) -> str:
    for ending, rest in (("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word[: -len(ending)] + rest
    return word


class WordIndex:
    """The words of some tools.

    Args:
        tools: The tools; a server that they are of counts as a part of the name.
    """

    def __init__(self, tools: Iterable[tuple[str, Tool]]) -> None:
        of = list(tools)
        self._names = [(_parts(tool.name), _parts(f"{server} {tool.name}")) for server, tool in of]
        self._weights = [_weights(server, tool) for server, tool in of]
        self._lengths = [sum(each.values()) for each in self._weights]
        self._mean = sum(self._lengths) / len(self._lengths) if any(self._lengths) else 1.0
        self._in_tools = Counter(word for each in self._weights for word in each)

    def find(self, query: str, most: int) -> list[int]:
        """Return the places of the tools that fit a query, best first; of equal ones the earlier first.

        A tool whose name is the query, with or without its server, comes before all others.

        Args:
            query: Words in any order.
            most: How many.
        """
        wanted, name = words(query), _parts(query)
        scores = {place: self._score(place, wanted) for place in range(len(self._weights))}
        named = {place for place in scores if name and name in self._names[place]}
        fitting = [place for place, score in scores.items() if score or place in named]
        return sorted(fitting, key=lambda place: (place not in named, -scores[place], place))[:most]

    def _score(self, place: int, query: Sequence[str]) -> float:
        weights = self._weights[place]
        long = _SATURATION * (1 - _LENGTH + _LENGTH * self._lengths[place] / self._mean)
        return sum(
            self._rarity(word) * weights[word] * (_SATURATION + 1) / (weights[word] + long)
            for word in query
            if word in weights
        )

    def _rarity(self, word: str) -> float:
        having = self._in_tools[word]
        return math.log(1 + (len(self._weights) - having + 0.5) / (having + 0.5))


def _weights(server: str, tool: Tool) -> dict[str, float]:
    """Return how much each word counts in a tool."""
    weights: dict[str, float] = {}
    for weight, text in _texts(server, tool):
        for word in words(text):
            weights[word] = weights.get(word, 0.0) + weight
    return weights


def _texts(server: str, tool: Tool) -> Iterable[tuple[float, str]]:
    yield _NAME, tool.name
    yield _TITLE, f"{server} {tool.title or ''}"
    yield _DESCRIPTION, tool.description or ""
    properties: Any = tool.input_schema.get("properties")
    for name, schema in properties.items() if isinstance(properties, Mapping) else ():
        yield _PARAMETER, str(name)
        about = schema.get("description") if isinstance(schema, Mapping) else None
        yield _ABOUT_PARAMETER, about if isinstance(about, str) else ""
