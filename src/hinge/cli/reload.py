"""`--reload`: a parent that starts the server again whenever a Python file below the working directory changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_SKIPPED = frozenset({".venv", "venv", "node_modules", "__pycache__", ".git", ".cache"})


def reload(words: Sequence[str]) -> int:
    """Run `hinge WORDS…` as a child, again after each change, until Ctrl-C or SIGTERM."""
    child = _start(words)
    seen = _changed_at(Path.cwd())
    signal.signal(signal.SIGTERM, _stop)
    try:
        while True:
            time.sleep(0.5)
            now = _changed_at(Path.cwd())
            if now != seen:
                seen = now
                print("hinge: a file changed, starting again", file=sys.stderr)
                _end(child)
                child = _start(words)
            elif child.poll() is not None:
                seen = _wait_for_change(seen)
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


def _wait_for_change(seen: dict[str, float]) -> dict[str, float]:
    print("hinge: the server ended; it starts again when a file changes", file=sys.stderr)
    while (now := _changed_at(Path.cwd())) == seen:
        time.sleep(0.5)
    return now


def _changed_at(root: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    for folder, below, files in os.walk(root):
        below[:] = [name for name in below if name not in _SKIPPED]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                try:
                    found[path] = os.stat(path).st_mtime
                except OSError:
                    continue
    return found
