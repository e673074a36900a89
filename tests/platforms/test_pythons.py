"""The tool that runs the tests on other Pythons: what it finds, what it holds to, what is claimed."""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.source import ROOT
from tools import pythons

WORKFLOW = (ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8")
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}{'t' if sysconfig.get_config_var('Py_GIL_DISABLED') else ''}"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with programs that say that they are Pythons; nothing else is found."""
    for name, version in (("old", "3.98.2"), ("new", "3.98.10"), ("free", "3.98.1t"), ("other", ""), ("broken", None)):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{'exit 1' if version is None else f'echo {version}'}\n")
        program.chmod(0o755)
    monkeypatch.setenv(
        "PYTHONS", ":".join(str(tmp_path / name) for name in ("old", "new", "free", "other", "broken", "none"))
    )
    for variable in ("PATH", "PYENV_ROOT", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / "nowhere"))
    return tmp_path


def test_the_newest_interpreter_of_each_version_is_taken(programs: Path) -> None:
    interpreters = pythons.find([HERE, "3.98", "3.98t", "3.99"])
    assert interpreters.pop(HERE).path == sys.executable
    assert interpreters == {
        "3.98": pythons.Interpreter(str(programs / "new"), "3.98.10"),
        "3.98t": pythons.Interpreter(str(programs / "free"), "3.98.1t"),
    }


def test_a_version_that_was_asked_for_must_be_there(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pythons.main(["3.99", "3.98", "--list"]) == 1
    assert "not on this machine: 3.99\n" in capsys.readouterr().out
    assert pythons.main(["--list"]) == 0
    assert pythons.main(["--list", "--others"]) == 1


def test_the_lowest_versions_are_those_that_are_declared() -> None:
    needed, held = pythons.requirements(lowest=True)
    versions = dict(one.split("==") for one in held)
    assert versions["msgspec"] == "0.22"
    assert versions["cryptography"] == "45.0.1"
    assert set(versions) >= {"httptools", "uvloop", "jsonschema-rs", "rich", "libcst", "opentelemetry-api"}
    names = [re.split(r"[\[><=; ]", one)[0] for one in needed]
    assert {"pytest", "hypothesis"} <= set(names) - set(versions)


def test_the_supported_pythons_are_those_of_the_workflow_and_of_the_document() -> None:
    versions = pythons.supported()
    found = re.search(r"python: \[(.*)\]", WORKFLOW)
    assert found is not None
    assert found[1].replace('"', "").split(", ") == versions
    assert f"now {versions[0]} to {versions[-2]}" in (ROOT / "VERSIONING.md").read_text(encoding="utf-8")


def test_only_the_system_that_the_tests_run_on_is_claimed() -> None:
    systems = [one for one in pythons.PROJECT["project"]["classifiers"] if one.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]
