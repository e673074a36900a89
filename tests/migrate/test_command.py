"""`gemel migrate`: the diff, --write, what is left, and the errors."""

from __future__ import annotations

import builtins
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gemel.cli import main
from tests.programs import require

OLD = 'from fastmcp import FastMCP\n\nmcp = FastMCP("a")\n'
NEW = 'from gemel import Server\n\nmcp = Server("a")\n'


def test_it_shows_a_diff_and_writes_only_when_told_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.py"
    file.write_text(OLD)
    assert main(["migrate", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert '+mcp = Server("a")' in shown.out
    assert "1 file would change with --write; 0 left to do by hand" in shown.err
    assert file.read_text() == OLD
    assert main(["migrate", "--write", str(file)]) == 0
    assert file.read_text() == NEW
    capsys.readouterr()
    assert main(["migrate", "--write", str(file)]) == 0
    assert capsys.readouterr().out == ""
    assert file.read_text() == NEW


def test_the_diff_of_a_file_without_a_last_line_end_can_be_applied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.py"
    file.write_text(OLD.rstrip())
    assert main(["migrate", str(file)]) == 0
    (tmp_path / "a.diff").write_text(capsys.readouterr().out)
    subprocess.run([require("patch"), "--silent", str(file), str(tmp_path / "a.diff")], check=True)
    assert file.read_text() == NEW.rstrip()


def test_what_is_left_has_its_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.py"
    file.write_text(OLD + "\nmcp.add_provider(None)\n")
    assert main(["migrate", str(file)]) == 0
    assert f"{file}:5: server.add_provider: " in capsys.readouterr().err


def test_other_files_and_line_ends_stay_as_they_are(tmp_path: Path) -> None:
    other, windows, broken = tmp_path / "other.py", tmp_path / "windows.py", tmp_path / "broken.py"
    other.write_text("import mcpx\nx = FastMCP ( 1 )\n")
    windows.write_bytes(OLD.replace("\n", "\r\n").encode())
    broken.write_text("from fastmcp import (\n")
    assert main(["migrate", "--write", str(tmp_path)]) == 0
    assert other.read_text() == "import mcpx\nx = FastMCP ( 1 )\n"
    assert windows.read_bytes() == NEW.replace("\n", "\r\n").encode()
    assert broken.read_text() == "from fastmcp import (\n"


def test_a_missing_path_and_a_missing_extra_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["migrate", str(tmp_path / "none.py")]) == 1
    assert capsys.readouterr().err.endswith("none.py doesn't exist\n")
    real: Any = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name == "libcst":
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    assert main(["migrate", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "gemel: migrate needs the extra migrate: pip install 'gemel[migrate]'\n"
