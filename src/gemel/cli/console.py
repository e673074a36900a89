"""What the client commands write: results to standard output, everything else to standard error.

On a terminal the text of a server is escaped; into a file or pipe a result goes unchanged.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

import msgspec

from gemel.cli.remaining_time import Pace
from gemel.client.client import Client
from gemel.client.content import Result, content_to_text, save_contents
from gemel.client.terminal.display import is_terminal, rich_console, terminal_width, write
from gemel.client.terminal.terminal import Terminal
from gemel.errors import InvalidResponse, StartError
from gemel.schema.notifications import LogParams, ProgressParams
from gemel.visible import escape_line, escape_text

if TYPE_CHECKING:
    from rich.progress import Progress


class Console(logging.Handler):
    """The output of one command, warnings of the library included. Use it with `with`."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(logging.WARNING)
        self.terminal = options.terminal = Terminal()
        #: Commands without the option never ask.
        self._no_input: bool = getattr(options, "no_input", True)
        #: Whether progress is shown as a bar: on a terminal, with the extra `cli`.
        self.draws_bar = is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb" and bool(find_spec("rich"))
        self._bar: Progress | None = None
        self._paced = is_terminal(sys.stderr)
        self._pace = Pace()

    def __enter__(self) -> Self:
        logging.getLogger("gemel").addHandler(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.clear()
        logging.getLogger("gemel").removeHandler(self)

    @property
    def asks(self) -> bool:
        """Whether to ask the user."""
        return self.terminal.interactive and not self._no_input

    def client_options(self) -> dict[str, Any]:
        """The options of `client_for` for a client that writes and asks here."""
        options: dict[str, Any] = {"on_log": self.log, **({} if self._no_input else self.terminal.callbacks)}
        if is_terminal(sys.stderr):
            options["show"] = self.note  # a child's standard error must not disturb a prompt
        return options

    def note(self, text: str) -> None:
        """Write lines to standard error."""
        self.clear()
        self.terminal.show(text)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a warning of the library."""
        self.note(f"gemel: {record.getMessage()}")

    def log(self, params: LogParams) -> None:
        """Write a log message of the server."""
        text = params.data if isinstance(params.data, str) else msgspec.json.encode(params.data).decode()
        self.note(f"{params.level}: {text}")

    def progress(self, params: ProgressParams) -> None:
        """Show the progress of a call: a bar on a terminal, otherwise a line for each notification.

        A terminal also gets its rate and the remaining time.
        """
        total = f"/{params.total:g}" if params.total is not None else ""
        pace = self._pace.describe(params.progress, params.total, time.monotonic()) if self._paced else ""
        parts = (f"{params.progress:g}{total}", pace and f"({pace})", params.message)
        text = " ".join(filter(None, parts))
        if not self.draws_bar or self.terminal.prompting:
            self.note(text)
            return
        self.draw(params.progress, params.total, text)

    def draw(self, completed: float, total: float | None, text: str) -> None:
        """Draw the progress bar; only where `draws_bar` is true."""
        self._bar = self._bar or _progress_bar()
        for task in self._bar.task_ids or [self._bar.add_task("")]:
            self._bar.update(task, completed=completed, total=total, description=escape_line(text))
        self._bar.refresh()

    def clear(self) -> None:
        """Remove the progress bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    # ---------------------------------------------------------------- results

    def result(self, result: Result, options: argparse.Namespace) -> None:
        """Print a result, and save its contents if `--save` is given. Raises StartError if that fails."""
        self.clear()
        if options.save is not None:
            try:
                saved = save_contents(result, options.save)
            except (OSError, InvalidResponse) as exc:
                raise StartError(f"--save {options.save}: {exc}") from exc
            for path in saved:
                self.note(f"saved {path}")
        text = as_json(result) if options.json else content_to_text(result)
        self.print(_indent_json(text) if is_terminal(sys.stdout) and not options.json else text)

    def print(self, text: str) -> None:
        """Print the text of a server to standard output."""
        write(sys.stdout, (escape_text(text) if is_terminal(sys.stdout) else text) + "\n")

    def page(self, text: str) -> None:
        """Print escaped text to standard output; if it is higher than the terminal, through PAGER or `less`."""
        height = text.count("\n") + 1
        words = os.environ.get("PAGER", "less").split()
        if is_terminal(sys.stdout) and is_terminal(sys.stdin) and height >= shutil.get_terminal_size().lines:
            pager = shutil.which(words[0]) if words else None
            if pager is not None:
                environment = {"LESS": "FRX", **os.environ}
                subprocess.run([pager, *words[1:]], input=text.encode(), env=environment, check=False)
                return
        write(sys.stdout, text + "\n")


def _progress_bar() -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn

    console = rich_console(sys.stderr, terminal_width(sys.stderr))
    bar = Progress(
        BarColumn(20),
        TextColumn("{task.description}", markup=False),
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.start()
    console.show_cursor()  # a process that is killed leaves it as it is
    return bar


def _indent_json(text: str) -> str:
    """Return an object or array of JSON with indentation, any other text unchanged."""
    if text[:1] in ("{", "["):
        try:
            msgspec.json.decode(text)
            return msgspec.json.format(text)
        except (msgspec.DecodeError, RecursionError):
            pass
    return text


def describe_server(client: Client) -> str:
    """Return the name that the server gives itself, and the protocol revision in use."""
    info = client.server_info
    name = info.name_and_version if info is not None else "unnamed server"
    return f"{name}, protocol {client.protocol_version}"


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Ctrl-C ends the block, and not the command."""
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.uncancel() > 0:
            raise


def as_json(value: object) -> str:
    """Return any value of the protocol as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value)).decode()
