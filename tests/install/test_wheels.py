"""The wheels of the projects that the documents and `gemel init` show hold the server, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gemel.cli import main
from tests.source import ROOT


def modules_of(folder: Path) -> list[str]:
    """The files that setuptools puts into the wheel of a project; by the installed one, which need not build wheels."""
    pytest.importorskip("setuptools", reason="setuptools is not installed")
    command = (sys.executable, "-c", "import setuptools; setuptools.setup()", "build", "--build-base", "../build")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    place = folder.parent / "build" / "lib"
    return [path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()]


def test_the_project_of_the_page_about_publishing(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "publish.md").read_text()
    project = tmp_path / "project"
    (project / "snapshots" / "test_weather").mkdir(parents=True)
    for name in ("weather.py", "pyproject.toml"):
        found = re.search(rf"<!-- file: {re.escape(name)} -->\n```\w+\n(.*?)```", page, re.DOTALL)
        assert found is not None
        (project / name).write_text(found[1])
    for name in ("README.md", "conftest.py", "test_weather.py", "weather.db", "snapshots/test_weather/a.json"):
        (project / name).write_text("")
    assert modules_of(project) == ["weather.py"]


def test_a_new_project(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "project"), "--name", "notes"]) == 0
    assert modules_of(tmp_path / "project") == ["server.py"]
