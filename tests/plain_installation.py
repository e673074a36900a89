"""What `pip install gemel` brings, and nothing else that this environment has: no extra, no tool of the tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from tests.source import ROOT

_NAME = re.compile(r"[\w.-]+")


def required_distributions(name: str = "gemel") -> set[str]:
    """Return the distributions that an installation without extras brings, besides `name`."""
    found: set[str] = set()
    left = [name]
    while left:
        for requirement in distribution(left.pop()).requires or ():
            match = _NAME.match(requirement)
            if match is None or "extra ==" in requirement or match[0] in found:
                continue
            try:
                distribution(match[0])
            except PackageNotFoundError:
                continue  # for another platform
            found.add(match[0])
            left.append(match[0])
    return found


class PlainInstallation:
    """A folder with links to the installed files of these distributions, in place of the packages of this environment.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in required_distributions():
            for path in {file.parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}:
                (folder / path).symlink_to(Path(str(distribution(name).locate_file(path))))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments."""
        path = f"{self._folder}{os.pathsep}{ROOT / 'src'}"
        return subprocess.run(
            [sys.executable, "-S", *words],
            env={**os.environ, "PYTHONPATH": path},
            cwd=self._folder.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=25,
            check=False,
        )
