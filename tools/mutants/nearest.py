"""Which test files are most likely to notice a change of a function."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path, PurePosixPath

#: Names, and modules of the package.
_WORD = re.compile(r"[A-Za-z_]\w{3,}|\bgemel[.\w]+")
#: What doesn't run in `make test`, or looks at the source and not at what it does.
_LEFT_OUT = re.compile(r"tests/(browser/|test_(layering|shape|unfinished|exports|public_api|dependencies|mutants)\.py)")


class Nearness:
    """Compares the test files of a project with functions.

    Args:
        root: The project.
    """

    def __init__(self, root: Path) -> None:
        paths = {str(path.relative_to(root)): path for path in sorted(root.glob("tests/**/test_*.py"))}
        self._words = {
            name: _words(name, path.read_text(encoding="utf-8"))
            for name, path in paths.items()
            if not _LEFT_OUT.match(name)
        }
        counts = Counter(word for words in self._words.values() for word in words)
        self._weights = {word: math.log(len(self._words) / count) for word, count in counts.items()}

    def nearest(self, file: str, function: str, most: int) -> list[str]:
        """Return the files that share most words with a function, and folders with its file; a rare word counts more.

        Args:
            file: The path of the source file.
            function: The source text of the function.
            most: How many files.
        """
        wanted = _words(file, function)

        def score(name: str) -> float:
            words = self._words[name]
            return sum(self._weights[word] for word in wanted & words) / math.pow(len(words), 0.3)

        return sorted(self._words, key=score, reverse=True)[:most]


def _words(name: str, text: str) -> set[str]:
    """The words of a file, its module, and the words of its path as `/word`."""
    path = PurePosixPath(name).with_suffix("")
    places = {f"/{word}" for part in path.parts[1:] for word in part.split("_")}
    module = ".".join(path.parts[1:]).removesuffix(".__init__")
    return {*_WORD.findall(text), *places, module}
