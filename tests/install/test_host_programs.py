"""Hosts whose own command line runs here without a login list and start what `gemel install` wrote: `make hosts`.

Skipped where they are not installed; with REQUIRE_HOSTS that fails.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.documents import blocks
from tests.programs import find
from tests.source import ROOT

INSTALLED = ROOT / ".cache" / "hosts" / "node_modules" / ".bin"
TUTORIAL = ROOT / "docs" / "tutorial.md"


class Program(NamedTuple):
    """The command line of a host: its name for `--host`, the program, and what its list says of a server that it knows."""

    host: str
    name: str
    known: str


PROGRAMS = (
    Program("claude-code", "claude", r"notes: .*notes\.py - . Connected"),
    Program("codex", "codex", r"notes .*notes\.py .*enabled"),
    Program("gemini-cli", "gemini", r". notes: .*notes\.py \(stdio\) - Connected"),
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the server of the tutorial, for a user who has nothing else."""
    home, folder = tmp_path / "home", tmp_path / "notes"
    folder.mkdir()
    (home / ".gemini").mkdir(parents=True)
    (home / ".gemini" / "trustedFolders.json").write_text(json.dumps({str(folder): "TRUST_FOLDER"}))
    *_, text = (block.text for block in blocks(TUTORIAL) if block.module == "notes.py")
    (folder / "notes.py").write_text(text, encoding="utf-8")
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
    return folder


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.host)
def test_a_host_lists_what_was_installed(program: Program, folder: Path) -> None:
    path = located(program.name)
    run([sys.executable, "-m", "gemel", "install", "notes.py", "--host", program.host, "--yes"], folder)
    listed = run([path, "mcp", "list"], folder)
    assert re.search(program.known, listed), listed
    run([sys.executable, "-m", "gemel", "uninstall", "notes", "--host", program.host, "--yes"], folder)
    assert "notes.py" not in run([path, "mcp", "list"], folder)


@pytest.mark.parametrize("document", ["tutorial.md", "how-to/hosts/claude.md"])
def test_a_listing_in_the_documents_is_that_of_the_host(document: str, folder: Path) -> None:
    """`$ claude mcp list` in a text block, behind a `gemel install` in a console block, of a server that stands before both."""
    path = located("claude")
    found = blocks(ROOT / "docs" / document)
    (shown,) = (block for block in found if block.language == "text" and block.text.startswith("$ claude mcp list"))
    before = [block.text for block in found if block.language in ("console", "sh") and block.line < shown.line]
    *_, install = re.findall(r"^(?:\$ )?gemel (install .*--host claude-code.*)$", "\n".join(before), re.MULTILINE)
    server = next(word for word in shlex.split(install) if word.endswith(".py"))
    *_, text = (block.text for block in found if block.module == server and block.line < shown.line)
    (folder / server).write_text(text, encoding="utf-8")
    run([sys.executable, "-m", "gemel", *shlex.split(install)], folder)
    pattern = ".*".join(map(re.escape, shown.text.partition("\n")[2].strip().split("…")))
    listed = run([path, "mcp", "list"], folder)
    assert re.search(pattern, listed, re.DOTALL), listed


def located(name: str) -> str:
    """The program of a host."""
    path = INSTALLED / name
    if path.exists():
        return str(path)
    if "REQUIRE_HOSTS" in os.environ:
        pytest.fail(f"{name} is not installed: make hosts")
    found = find(name)
    if found is None:
        pytest.skip(f"{name} is not installed: make hosts")
    return found


def run(command: list[str], folder: Path) -> str:
    """What a program prints."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
