"""What the client commands write, and where: results to standard output, all else to standard error, both harmless.

On a terminal a server's words can't move the cursor; into a file or pipe a result goes as it is.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import subprocess
import sys
from typing import Any

import msgspec

from hinge.client.content import Result, in_words, save_contents
from hinge.client.screen import is_terminal, plain, plain_text, width_of, write
from hinge.client.terminal import Terminal
from hinge.errors import InvalidResponse, StartError
from hinge.schema.notifications import LogParams, ProgressParams

#: Columns of a bar of progress.
_BAR = 20


class Console(logging.Handler):
    """The screen of one command; the warnings of the library go there as well."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(logging.WARNING)
        self.terminal = Terminal()
        #: Whether somebody may be asked.
        self.asks = self.terminal.usable and not options.no_input
        self._live = is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"
        self._bar_shown = False
        logging.getLogger("hinge").addHandler(self)

    def client_options(self) -> dict[str, Any]:
        """What `client_for` needs for a client that writes here and asks here."""
        found: dict[str, Any] = {"on_log": self.log, **(self.terminal.answers if self.asks else {})}
        if is_terminal(sys.stderr):
            found["show"] = self.note  # what a child process writes can't disturb a question
        return found

    def note(self, text: str) -> None:
        """A line on standard error."""
        self.clear()
        self.terminal.show(text)

    def emit(self, record: logging.LogRecord) -> None:
        """A warning of the library."""
        self.note(f"hinge: {record.getMessage()}")

    def log(self, params: LogParams) -> None:
        """A log message of the server."""
        said = params.data if isinstance(params.data, str) else msgspec.json.encode(params.data).decode()
        self.note(f"{params.level}: {said}")

    def progress(self, params: ProgressParams) -> None:
        """How far a call is: a line that is written anew on a terminal, a line each otherwise."""
        total = f"/{params.total:g}" if params.total is not None else ""
        text = plain(f"{params.progress:g}{total} {params.message or ''}".rstrip())
        if not self._live or self.terminal.prompting:
            self.terminal.show(text)
            return
        if params.total:
            done = min(max(round(_BAR * params.progress / params.total), 0), _BAR)
            text = f"[{'#' * done}{' ' * (_BAR - done)}] {text}"
        write(sys.stderr, f"\r\x1b[K{text[: width_of(sys.stderr) - 1]}")
        self._bar_shown = True

    def clear(self) -> None:
        """Take the line of progress away."""
        if self._bar_shown and not self.terminal.prompting:
            write(sys.stderr, "\r\x1b[K")
        self._bar_shown = False

    # ---------------------------------------------------------------- results

    def result(self, result: Result, options: argparse.Namespace) -> None:
        """Print a result, and save what is asked to be saved. Raises StartError."""
        self.clear()
        if options.save is not None:
            try:
                saved = save_contents(result, options.save)
            except (OSError, InvalidResponse) as exc:
                raise StartError(f"--save {options.save}: {exc}") from exc
            for path in saved:
                self.note(f"saved {path}")
        self.print(as_json(result) if options.json else in_words(result))

    def print(self, text: str) -> None:
        """Print a server's words to standard output."""
        write(sys.stdout, (plain_text(text) if is_terminal(sys.stdout) else text) + "\n")

    def page(self, text: str) -> None:
        """Print what is plain already to standard output; on a terminal that is too small for it, through PAGER or `less`."""
        lines = text.count("\n") + 1
        words = os.environ.get("PAGER", "less").split()
        if is_terminal(sys.stdout) and is_terminal(sys.stdin) and lines >= shutil.get_terminal_size().lines:
            pager = shutil.which(words[0]) if words else None
            if pager is not None:
                environment = {"LESS": "FRX", **os.environ}
                subprocess.run([pager, *words[1:]], input=text.encode(), env=environment, check=False)
                return
        write(sys.stdout, text + "\n")


def as_json(value: Any) -> str:
    """Anything of the protocol as JSON that people can read."""
    return msgspec.json.format(msgspec.json.encode(value)).decode()
