"""`hinge run --reload`: start the server again whenever a Python file changes. watchfiles (the extra `cli`) watches."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hinge.errors import StartError

_IGNORED = frozenset({".venv", "venv", "node_modules", "__pycache__", ".git", ".cache"})


def reload(words: Sequence[str], folder: Path) -> int:
    """Run `hinge WORDS…` as a child process until Ctrl-C or SIGTERM; start it again after a change.

    Args:
        words: the command line without `hinge`.
        folder: the folder to watch; the working directory is watched as well.

    Returns:
        The exit code.

    Raises:
        StartError: watchfiles is not installed, or the folders can't be watched.
    """
    try:
        from watchfiles import watch
    except ImportError:
        raise StartError("--reload needs the extra cli: pip install 'hinge[cli]'") from None
    roots = {folder, Path.cwd()}
    signal.signal(signal.SIGTERM, _interrupt)
    child = _start(words)
    ended = False
    try:
        for changes in watch(
            *roots,
            watch_filter=lambda change, path: _is_source(Path(path), roots),
            yield_on_timeout=True,
            rust_timeout=500,
            raise_interrupt=True,
        ):
            if changes:
                if not ended:
                    print("hinge: a file changed, starting again", file=sys.stderr)
                _stop(child)
                child, ended = _start(words), False
            elif not ended and child.poll() is not None:
                print("hinge: the server ended; it starts again when a file changes", file=sys.stderr)
                ended = True
    except KeyboardInterrupt:
        return 0
    except OSError as exc:
        raise StartError(f"--reload can't watch the files: {exc}") from exc
    finally:
        _stop(child)
    return 0


def _is_source(path: Path, roots: set[Path]) -> bool:
    """Return whether a Python file is below a root, and not in a folder that tools fill."""
    below = (path.relative_to(root) for root in roots if path.is_relative_to(root))
    return path.suffix == ".py" and any(_IGNORED.isdisjoint(part.parts) for part in below)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _start(words: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "hinge", *words])


def _stop(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
