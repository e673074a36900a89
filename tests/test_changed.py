"""Which tests `make test-quick` runs, and what `make check-quick` looks at."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.programs import require
from tools import changed


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        *("src/gemel/session.py", "src/gemel/client/cache.py", "src/gemel/client/terminal/browser.py"),
        *("tests/test_session.py", "tests/test_shape.py", "tests/client/test_cache.py", "tests/client/test_pool.py"),
        *("tests/client/site.py", "tests/client/group/test_group.py"),
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return tmp_path


@pytest.mark.parametrize(
    ("files", "tests"),
    [
        (["tests/client/test_cache.py"], ["tests/client/test_cache.py"]),
        (["src/gemel/client/cache.py"], ["tests/client/test_cache.py", "tests/client/test_pool.py"]),
        (["tests/client/site.py"], ["tests/client/test_cache.py", "tests/client/test_pool.py"]),
        (["src/gemel/client/terminal/browser.py"], ["tests/client/test_cache.py", "tests/client/test_pool.py"]),
        (["src/gemel/session.py"], ["tests/test_session.py", "tests/test_shape.py"]),
        (["tools/shape.py", "benchmarks/wire.py"], ["tests/test_shape.py"]),
        (["Makefile", "pyproject.toml", ".ci/run"], []),
    ],
)
def test_the_tests_of_the_same_folder_belong_to_a_file(files: list[str], tests: list[str], tree: Path) -> None:
    assert changed.select_tests([Path(file) for file in files], tree) == tests


def test_the_examples_and_links_of_a_document_belong_to_it() -> None:
    shown = "tests/docs/test_blocks.py::test_what_a_document_shows_works[docs/how-to/tls.md]"
    assert changed.select_tests([Path("docs/how-to/tls.md")]) == [shown, "tests/docs/test_links.py"]
    assert shown not in changed.select_tests([Path("docs/how-to/tls.md"), Path("tests/docs/test_blocks.py")])


def test_what_differs_from_main_is_found(tmp_path: Path) -> None:
    git = [require("git"), "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.com"]

    def run(*words: str) -> None:
        subprocess.run([*git, *words], check=True, capture_output=True)

    run("init", "--initial-branch", "main")
    for name in ("same", "gone", "written", "committed"):
        (tmp_path / name).touch()
    run("add", ".")
    run("commit", "-m", "one")
    run("switch", "-c", "branch")
    (tmp_path / "committed").write_text("a")
    (tmp_path / "gone").unlink()
    run("commit", "-a", "-m", "two")
    (tmp_path / "written").write_text("a")
    (tmp_path / "new ä").touch()
    assert changed.changed_files(tmp_path)[1] == [Path("committed"), Path("new ä"), Path("written")]


def test_a_missing_git_and_a_missing_checkout_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("git")
    with pytest.raises(changed.Missing, match=r"^git does not tell what has changed: .*not a git repository"):
        changed.changed_files(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(changed.Missing, match=r"^what has changed is asked of git, which is not installed"):
        changed.changed_files(tmp_path)


@pytest.mark.parametrize(
    ("name", "typed"),
    [("src/gemel/session.py", True), ("tests/migrate/original.py", False), ("examples/demo.py", False)],
)
def test_types_are_checked_where_mypy_checks_them(name: str, typed: bool) -> None:
    assert changed.is_typed(name) is typed
