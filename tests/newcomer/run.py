"""Types the README, the tutorial and every how-to as printed, like somebody who has the wheel only: `make newcomer`.

python -m tests.newcomer.run                     all of them
python -m tests.newcomer.run --short             the README and the tutorial
python -m tests.newcomer.run docs/how-to/tls.md

Each document is typed in an empty folder: files are written, commands run in a shell, Python in a notebook, and what is
printed is compared where the document shows it. `typed.toml` says what is not typed, and why.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.docs import notebook
from tests.docs.console import commands, compare
from tests.docs.documents import Block, blocks
from tests.packages.run import Environment
from tests.ports import free_port
from tests.programs import find
from tests.source import ROOT

HOW_TO = ROOT / "docs" / "how-to"
SHORT = (ROOT / "README.md", ROOT / "docs" / "tutorial.md")
TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("typed.toml").read_text(encoding="utf-8"))
#: Seconds for one command; pip may have to download. Less than CI gives to the README and the tutorial.
LIMIT = 120.0
_MARK = "newcomer-is-done"
#: What serves until the document is over, in a terminal of its own.
_SERVES = re.compile(r"(gemel run .*--http|gemel dev |uvicorn |python metered\.py)")
_PORT = "8000"
#: What has a port of its own, so that it serves beside a server on `_PORT`.
_PAGE = "gemel dev "


class Failed(Exception):
    """Something is not as the document says."""


class Shell:
    """A terminal with a shell that keeps its folder and variables from command to command."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def type(self, command: str) -> tuple[str, int]:
        """Run a command to its end. Returns what it printed, and its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '\\n{_MARK} %s\\n' $?\n".encode())
        self._process.stdin.flush()
        printed = self._read_until_mark(command)
        output, _, code = printed.rpartition(f"\n{_MARK} ")
        return output, int(code)

    def _read_until_mark(self, command: str) -> str:
        assert self._process.stdout is not None
        file, data, end = self._process.stdout.fileno(), b"", time.monotonic() + LIMIT
        while not re.search(rf"\n{_MARK} \d+\n\Z".encode(), data):
            ready, _, _ = select.select([file], [], [], max(0.0, end - time.monotonic()))
            piece = os.read(file, 65536) if ready else b""
            if not piece:
                raise Failed(f"{command!r} did not end; it printed\n{data.decode(errors='replace')}")
            data += piece
        return data.decode(errors="replace")

    def close(self) -> None:
        """End the shell and everything that was started in it."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait()


class Reader:
    """Somebody who types one document."""

    def __init__(self, document: Path, folder: Path, environment: Mapping[str, str], wheel: Path) -> None:
        name = document.relative_to(ROOT).as_posix()
        self.skipped: dict[str, str] = dict(TABLE["skipped"].get(name, {}))
        self._replaced = {"{wheel}": str(wheel), "{folder}": str(folder)}
        self._texts: dict[str, str] = {**TABLE["replaced"].get(name, {}), _PORT: str(free_port())}
        self._document = document
        self._folder = folder
        self._environment = environment
        self._shell = Shell(folder, environment)
        self._notebook: subprocess.Popen[str] | None = None
        self.typed = 0

    def read(self) -> None:
        """Type all of it. Raises Failed."""
        try:
            for block in blocks(self._document):
                self._read(block)
            if self.skipped:
                raise Failed(f"typed.toml skips what is not there: {', '.join(self.skipped)}")
        finally:
            self._close()

    def _read(self, block: Block) -> None:
        if block.file is not None:  # also a hidden one: a server that the reader has
            path = Path(self._shell.type("pwd")[0].strip(), block.file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._here(block.text), encoding="utf-8")
        reason = next((text for text in self.skipped if block.text.startswith(text)), None)
        if reason is not None:
            del self.skipped[reason]
        elif block.hidden or (block.file is not None and block.language != "console"):
            return
        elif block.language == "sh":
            for command in self._here(block.text).replace("\\\n", "").split("\n"):
                self._type(command, "", block)
        elif block.language == "console":
            for command, wanted in commands(block.text):
                self._type(self._here(command), self._here(wanted), block)
        elif block.language == "python":
            self._note(block)

    def _here(self, text: str) -> str:
        """The text with what is named differently here."""
        for shown, there in self._texts.items():
            for name, value in self._replaced.items():
                there = there.replace(name, value)
            text = text.replace(shown, there)
        return text

    def _type(self, command: str, wanted: str, block: Block) -> None:
        self.typed += 1
        print(f"  {block.place}: $ {command}", flush=True)
        if _SERVES.match(command):
            self._serve(command, wanted, block)
            return
        output, code = self._shell.type(command)
        try:
            compare(output, wanted, block)
        except AssertionError as exc:
            raise Failed(str(exc)) from exc
        if code and not wanted:
            raise Failed(f"{block.place}: {command} ended with {code}:\n{output}")

    def _serve(self, command: str, wanted: str, block: Block) -> None:
        """Start it in the background, and wait until it prints what the document shows, or accepts connections."""
        port = str(free_port()) if command.startswith(_PAGE) else self._texts[_PORT]
        if port not in command and not command.startswith("python "):
            command = f"{command} --port {port}"
        log = Path(self._folder, f"served-{block.line}.log")
        self._shell.type(f"{command} >{log} 2>&1 &")
        end = time.monotonic() + LIMIT
        probe = f"import socket; socket.create_connection(('127.0.0.1', {port}), 1).close()"
        while subprocess.run([sys.executable, "-c", probe], stderr=subprocess.DEVNULL, check=False).returncode:
            if time.monotonic() > end or self._shell.type("kill -0 $!")[1]:
                raise Failed(f"{block.place}: {command} does not serve:\n{log.read_text(encoding='utf-8')}")
            time.sleep(0.1)
        try:
            compare(log.read_text(encoding="utf-8"), wanted, block)
        except AssertionError as exc:
            raise Failed(str(exc)) from exc

    def _note(self, block: Block) -> None:
        """Run Python in the notebook, which belongs to the environment of the shell."""
        self.typed += 1
        print(f"  {block.place}: {len(block.text.splitlines())} lines of Python", flush=True)
        if self._notebook is None:
            python, folder = (self._shell.type(words)[0].strip() for words in ("command -v python", "pwd"))
            source = Path(notebook.__file__).read_text(encoding="utf-8")
            self._notebook = subprocess.Popen(
                [python, "-c", source],
                cwd=folder,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        process = self._notebook
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"text": self._here(block.text), "place": block.place}) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], LIMIT)
        reply = json.loads(process.stdout.readline() or '"the notebook ended"') if ready else "it did not end"
        if reply:
            raise Failed(f"{block.place}: {reply}")

    def _close(self) -> None:
        if self._notebook is not None:
            self._notebook.communicate()
        self._shell.close()


class Newcomer:
    """A machine that has Python, the wheel and a package index."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = Environment(folder, install=False)
        self._installed = False
        programs = str(Path(self._made.python).parent)
        hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        kept = [one for one in os.environ["PATH"].split(os.pathsep) if not Path(one).is_relative_to(ROOT)]
        self._environment = {name: value for name, value in os.environ.items() if name not in hidden}
        self._environment |= {
            "PATH": os.pathsep.join([programs, *kept]),
            "HOME": str(folder / "home"),
            "COLUMNS": "80",
            "NO_COLOR": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_CACHE_DIR": subprocess.run(
                [sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=False
            ).stdout.strip(),
        }

    def read(self, document: Path) -> int:
        """Type one document, and remove what it had installed. Returns how much was typed. Raises Failed.

        The README and the tutorial say how to install Gemel; readers of the others have it.
        """
        if document not in SHORT and not self._installed:
            self._made.install(f"{self._made.wheel}[cli]")
            self._installed = True
        before = self._packages()
        folder = Path(tempfile.mkdtemp(prefix=f"{document.stem}-", dir=self._folder))
        reader = Reader(document, folder, self._environment, self._made.wheel)
        try:
            reader.read()
        finally:
            if more := sorted(self._packages() - before):
                self._made.output(self._made.python, "-m", "pip", "uninstall", "--quiet", "--yes", *more)
        return reader.typed

    def _packages(self) -> set[str]:
        listed = self._made.output(self._made.python, "-m", "pip", "list", "--format=freeze")
        return {line.partition("==")[0] for line in listed.splitlines()}


def main(words: Sequence[str] | None = None) -> int:
    """Type the documents; the exit code is 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", nargs="*", type=Path)
    parser.add_argument("--short", action="store_true", help="the README and the tutorial only")
    options = parser.parse_args(words)
    if find("bash") is None:
        print("make newcomer types into bash, which is not installed: apt install bash")
        return 1
    chosen = [path.resolve() for path in options.documents] or [*SHORT, *([] if options.short else HOW_TO.glob("*.md"))]
    failed: list[str] = []
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="newcomer-") as folder:
        newcomer = Newcomer(Path(folder).resolve())
        for document in sorted(chosen, key=lambda path: (path not in SHORT, path)):
            name = document.relative_to(ROOT).as_posix()
            try:
                print(f"{name}: {newcomer.read(document)} things typed", flush=True)
            except Failed as exc:
                failed.append(name)
                print(f"{name}: FAILED: {exc}", flush=True)
    took = time.monotonic() - begin
    print(f"newcomer: {'FAILED: ' + ', '.join(failed) if failed else 'passed'}, {len(chosen)} documents, {took:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
