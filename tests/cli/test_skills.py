"""`gemel skills`, against a server in a program of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemel.cli import main
from tests.extensions.test_skills import write_skill

SERVER = """
from gemel import Server

server = Server("skilled")
server.add_skills("skills")
"""


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    write_skill(tmp_path / "skills", "acme/refunds", templates__letter_dot_md="Dear customer\n")
    write_skill(tmp_path / "skills", "support/refunds")
    write_skill(tmp_path / "skills", "brewing")
    (tmp_path / "skilled.py").write_text(SERVER)
    return "skilled.py"


def test_the_list_names_each_skill_with_its_uri(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skills", "list", target]) == 0
    printed = capsys.readouterr().out
    assert "refunds  skill://acme/refunds/SKILL.md  (2 files)" in printed
    assert "    What brewing is for" in printed


def test_a_skill_and_its_files_are_printed_verified(target: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["skills", "get", target, "brewing"]) == 0
    assert capfdbinary.readouterr().out == Path("skills/brewing/SKILL.md").read_bytes()
    assert main(["skills", "get", target, "skill://acme/refunds/SKILL.md", "templates/letter.md"]) == 0
    assert capfdbinary.readouterr().out == b"Dear customer\n"


def test_all_files_are_saved_and_none_is_overwritten(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    uri = "skill://acme/refunds/SKILL.md"
    assert main(["skills", "get", target, uri, "--save", "copy"]) == 0
    assert Path("copy/refunds/templates/letter.md").read_text() == "Dear customer\n"
    assert main(["skills", "get", target, uri, "--save", "copy"]) == 1
    assert "File exists" in capsys.readouterr().err


def test_the_entry_is_printed_as_json(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skills", "get", target, "brewing", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["frontmatter"]["name"] == "brewing"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["get", "refunds"], "Several skills are called 'refunds'"),
        (["get", "none"], "The server lists no skill 'none', but brewing, refunds, refunds"),
        (["get"], "needs a SKILL"),
        (["list", "brewing"], "takes a TARGET only"),
        (["get", "brewing", "SKILL.md", "--save", "x"], "leave FILE out"),
    ],
)
def test_a_wrong_command_is_one_clear_line(
    words: list[str], message: str, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["skills", words[0], target, *words[1:]]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
