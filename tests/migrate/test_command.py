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
NEW = 'from gemel import Server\n\nmcp = Server("a", coerce=True, error_details=True, structured_text=True)\n'


def test_it_shows_a_diff_and_writes_only_when_told_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.py"
    file.write_text(OLD)
    assert main(["migrate", "--no-check", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert '+mcp = Server("a", coerce=True, error_details=True, structured_text=True)' in shown.out
    assert "1 file would change with --write; nothing is known to be left to do by hand (not checked)" in shown.err
    assert file.read_text() == OLD
    assert main(["migrate", "--no-check", "--write", str(file)]) == 0
    assert file.read_text() == NEW
    capsys.readouterr()
    assert main(["migrate", "--no-check", "--write", str(file)]) == 0
    assert capsys.readouterr().out == ""
    assert file.read_text() == NEW


def test_the_diff_of_a_file_without_a_last_line_end_can_be_applied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.py"
    file.write_text(OLD.rstrip())
    assert main(["migrate", "--no-check", str(file)]) == 0
    (tmp_path / "a.diff").write_text(capsys.readouterr().out)
    subprocess.run([require("patch"), "--silent", str(file), str(tmp_path / "a.diff")], check=True)
    assert file.read_text() == NEW.rstrip()


def test_what_is_left_has_its_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.py"
    file.write_text(OLD + "\nmcp.add_provider(None)\n")
    assert main(["migrate", "--no-check", str(file)]) == 0
    assert f"{file}:5: server.add_provider: " in capsys.readouterr().err


def test_lines_are_those_of_the_file_as_it_is_afterwards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "import asyncio\n"
        + OLD.replace("\n\n", "\nfrom fastmcp.exceptions import ToolError\n\n")
        + "\nmcp.add_provider(ToolError)\n"
    )
    assert main(["migrate", "--no-check", str(file)]) == 0
    assert f"{file}:7: server.add_provider: " in capsys.readouterr().err
    assert main(["migrate", "--no-check", "--write", str(file)]) == 0
    assert f"{file}:6: server.add_provider: " in capsys.readouterr().err
    assert "add_provider" in file.read_text().splitlines()[5]


def test_one_fact_is_said_once_with_its_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.py"
    file.write_text(OLD + "\nmcp.add_provider(1)\nmcp.add_provider(2)\nmcp.add_provider(3)\n")
    assert main(["migrate", "--no-check", str(file)]) == 0
    said = capsys.readouterr().err
    assert said.count("server.add_provider") == 1
    assert "(3 times; also 6, 7)" in said
    assert "; 1 left to do by hand" in said


def test_other_files_and_line_ends_stay_as_they_are(tmp_path: Path) -> None:
    other, windows, broken = tmp_path / "other.py", tmp_path / "windows.py", tmp_path / "broken.py"
    other.write_text("import mcpx\nx = FastMCP ( 1 )\n")
    windows.write_bytes(OLD.replace("\n", "\r\n").encode())
    broken.write_text("from fastmcp import (\n")
    assert main(["migrate", "--no-check", "--write", str(tmp_path)]) == 0
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
