"""`hinge run --reload`: start the server again whenever a Python file changes. watchfiles (the extra `cli`) watches."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from hinge.cli.program.own_program import own_program
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
        from watchfiles import run_process
    except ImportError:
        raise StartError("--reload needs the extra cli: pip install 'hinge[cli]'") from None
    roots = {folder, Path.cwd()}
    try:
        run_process(
            *roots,
            target=shlex.join([*own_program(), *words]),
            target_type="command",
            watch_filter=lambda change, path: _is_source(Path(path), roots),
            callback=lambda changes: print("hinge: a file changed, starting again", file=sys.stderr),
            debounce=500,
        )
    except OSError as exc:
        raise StartError(f"--reload can't watch the files: {exc}") from exc
    return 0


def _is_source(path: Path, roots: set[Path]) -> bool:
    """Return whether a Python file is below a root, and not in a folder that tools fill."""
    below = (path.relative_to(root) for root in roots if path.is_relative_to(root))
    return path.suffix == ".py" and any(_IGNORED.isdisjoint(part.parts) for part in below)
