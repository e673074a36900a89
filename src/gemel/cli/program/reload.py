"""`gemel run --reload`: start the server again whenever a Python file changes. watchfiles (the extra `cli`) watches."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from gemel.cli.program.own_program import own_program
from gemel.errors import StartError
from gemel.version import missing_extra

_IGNORED = frozenset({".venv", "venv", "node_modules", "__pycache__", ".git", ".cache"})
#: Seconds that a server has to end before it is killed.
_STOP_SECONDS = 5.0


def reload(words: Sequence[str], folder: Path) -> int:
    """Run `gemel WORDS…` as a child process until Ctrl-C or SIGTERM; start it again after a change.

    Args:
        words: the command line without `gemel`.
        folder: the folder to watch; the working directory is watched as well.

    Returns:
        The exit code.

    Raises:
        StartError: watchfiles is not installed, or the folders can't be watched.
    """
    try:
        from watchfiles import watch
    except ImportError:
        raise StartError(missing_extra("--reload needs", "cli")) from None
    roots = {folder, Path.cwd()}
    command = [*own_program(), *words]
    before = signal.signal(signal.SIGTERM, _interrupt)
    process = _start(command)
    try:
        changes = watch(*roots, watch_filter=partial(_is_watched, roots), debounce=500)
        with contextlib.suppress(KeyboardInterrupt):
            for _ in changes:
                print("gemel: a file changed, starting again", file=sys.stderr)
                _stop(process)
                process = _start(command)
    except OSError as exc:
        raise StartError(f"--reload can't watch the files: {exc}") from exc
    finally:
        _stop(process)
        signal.signal(signal.SIGTERM, before)
    return 0


async def watch_changes(folder: Path) -> AsyncIterator[list[str]]:
    """Yield the Python files that changed in a folder and in the working directory, as often as that happens.

    Args:
        folder: The folder.

    Raises:
        StartError: watchfiles is not installed, or the folders can't be watched.
    """
    try:
        from watchfiles import watch
    except ImportError:
        raise StartError(missing_extra("to start again when a file changes needs", "cli")) from None
    roots = {folder, Path.cwd()}
    loop, stop = asyncio.get_running_loop(), threading.Event()
    batches: asyncio.Queue[list[str]] = asyncio.Queue()

    def read() -> None:  # in a thread: to look at many folders takes seconds
        is_relevant = partial(_is_watched, roots)
        for changes in watch(*roots, watch_filter=is_relevant, debounce=300, stop_event=stop, raise_interrupt=False):
            loop.call_soon_threadsafe(batches.put_nowait, sorted({path for _, path in changes}))

    reading = loop.run_in_executor(None, read)
    try:
        while True:
            batch = asyncio.ensure_future(batches.get())
            either: list[asyncio.Future[Any]] = [batch, reading]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not batch.done():
                batch.cancel()
                reading.result()
                return
            yield batch.result()
    except OSError as exc:
        raise StartError(f"the files can't be watched: {exc}") from exc
    finally:
        stop.set()


def _is_watched(roots: set[Path], change: object, path: str) -> bool:
    return _is_source(Path(path), roots)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    # On Windows a group of its own, which Ctrl-Break can be sent to.
    return subprocess.Popen(command, creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0))


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Request a stop, as Ctrl-C does (on Windows Ctrl-Break); kill the process if it takes too long."""
    if process.poll() is None:
        process.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGINT))
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_source(path: Path, roots: set[Path]) -> bool:
    """Return whether a Python file is below a root, and not in a folder that tools fill."""
    below = (path.relative_to(root) for root in roots if path.is_relative_to(root))
    return path.suffix == ".py" and any(_IGNORED.isdisjoint(part.parts) for part in below)
