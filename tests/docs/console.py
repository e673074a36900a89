"""Runs the console blocks of a document: `$ command` lines, each followed by what it prints (`…` stands for anything).

A command that serves keeps running until the document is over; over HTTP on a free port in place of 8000.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.docs.documents import Block
from tests.docs.running import replace
from tests.ports import free_port
from tests.source import ROOT

#: Seconds for one command.
LIMIT = 60
_PORT = "127.0.0.1:8000"


class Console:
    """One document's terminal, in a directory of its own."""

    def __init__(self, directory: Path, replaced: Mapping[str, str]) -> None:
        self._directory = directory
        self._replaced = replaced
        self._serving: list[subprocess.Popen[str]] = []
        self._address = _PORT
        # Plugins of pytest that are installed here have things to say that a reader's terminal won't show.
        self._environment = {
            **os.environ,
            "COLUMNS": "80",
            "PYTHONWARNINGS": "ignore::DeprecationWarning",
            "XDG_STATE_HOME": str(directory / ".state"),
        }

    def run(self, block: Block) -> None:
        """Run each command and hold what it prints against the document."""
        for command, wanted in commands(block.text):
            text = replace(command, self._replaced)
            print(f"{block.place}: $ {text}")
            if "--http" in text or "--socket" in text:
                self._serve(text, wanted, block)
            else:
                self._call(text.replace(_PORT, self._address), wanted, block)

    def _call(self, command: str, wanted: str, block: Block) -> None:
        done = subprocess.run(
            shlex.split(command),
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        compare(done.stdout.replace(self._address, _PORT), wanted, block)
        fails = any(line.startswith(("gemel: ", "Invalid arguments ")) for line in wanted.split("\n"))
        if wanted and command.startswith("gemel call") and done.returncode == 1:
            return  # a tool failed, with the text that the document shows
        assert (done.returncode != 0) == fails, f"{block.place}: {command} ended with {done.returncode}: {done.stdout}"

    def _serve(self, command: str, wanted: str, block: Block) -> None:
        port = free_port()
        self._address = f"127.0.0.1:{port}"
        process = subprocess.Popen(
            shlex.split(command) + (["--port", str(port)] if "--http" in command else []),
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._serving.append(process)
        assert process.stderr is not None
        compare(process.stderr.readline().replace(self._address, _PORT), wanted, block)

    def close(self) -> None:
        """End what serves; it must end well."""
        for process in self._serving:
            process.send_signal(signal.SIGTERM)
        for process in self._serving:
            _, said = process.communicate(timeout=LIMIT)
            assert process.returncode == 0, f"a server of the document ended with {process.returncode}: {said}"


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command with the lines that follow it."""
    command, wanted = "", list[str]()
    for line in text.split("\n"):
        if line.startswith("$ "):
            if command:
                yield command, "\n".join(wanted)
            command, wanted = line[2:], []
        else:
            wanted.append(line)
    assert command, f"a console block begins with a command: {text!r}"
    yield command, "\n".join(wanted)


def compare(found: str, wanted: str, block: Block) -> None:
    if not wanted:
        return
    wanted = wanted.replace(str(ROOT), "").strip()
    pattern = ".*".join(map(re.escape, wanted.split("…")))
    assert re.fullmatch(pattern, found.strip(), re.DOTALL), (
        f"{block.place}: the document shows\n{wanted}\nbut it is\n{found.strip()}"
    )
