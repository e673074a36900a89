"""`--reload`: a parent that starts the server again whenever a Python file changes that it may be made of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

_SKIPPED = frozenset({".venv", "venv", "node_modules", "__pycache__", ".git", ".cache"})


def reload(words: Sequence[str], place: Path) -> int:
    """Run `hinge WORDS…` as a child, again after each change below `place` or the working directory, until Ctrl-C or SIGTERM."""
    roots = [place, Path.cwd()]
    seen = _changed_at(roots)
    child = _start(words)
    signal.signal(signal.SIGTERM, _stop)
    try:
        while True:
            time.sleep(0.5)
            now = _changed_at(roots)
            if now != seen:
                seen = now
                print("hinge: a file changed, starting again", file=sys.stderr)
                _end(child)
                child = _start(words)
            elif child.poll() is not None:
                seen = _wait_for_change(roots, seen)
                child = _start(words)
    except KeyboardInterrupt:
        return 0
    finally:
        _end(child)


def _stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _start(words: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "hinge", *words])


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _wait_for_change(roots: Sequence[Path], seen: dict[str, float]) -> dict[str, float]:
    print("hinge: the server ended; it starts again when a file changes", file=sys.stderr)
    while (now := _changed_at(roots)) == seen:
        time.sleep(0.5)
    return now


def _changed_at(roots: Sequence[Path]) -> dict[str, float]:
    found: dict[str, float] = {}
    apart = [root for root in roots if not any(root.is_relative_to(one) and root != one for one in roots)]
    for folder, below, files in chain.from_iterable(os.walk(root) for root in dict.fromkeys(apart)):
        below[:] = [name for name in below if name not in _SKIPPED]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                try:
                    found[path] = os.stat(path).st_mtime
                except OSError:
                    continue
    return found
