"""The PATH that tests run with where nothing but Python is installed."""

import shutil
from pathlib import Path

import pytest

from tests import programs


def test_a_bare_path_has_python_and_coreutils_only(tmp_path: Path) -> None:
    path = programs.bare_path(tmp_path / "programs")
    assert programs.bare_path(tmp_path / "programs") == path
    assert all(shutil.which(name, path=path) for name in ("python", "gemel", "pytest", "cat", "sleep"))
    assert not any(shutil.which(name, path=path) for name in ("sh", "git", "make", "openssl", "nginx"))


def test_a_test_without_its_program_is_skipped_with_a_line_that_names_it() -> None:
    with pytest.raises(pytest.skip.Exception, match=r"^no-such-program is not installed$"):
        programs.require("no-such-program")
