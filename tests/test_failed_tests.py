"""The tests that failed, for the report of flaky ones."""

import json
from pathlib import Path

from tools.failed_tests import failed_tests


def test_the_failed_tests_of_the_last_run_are_listed_once_and_sorted(tmp_path: Path) -> None:
    cache = tmp_path / "lastfailed"
    assert failed_tests(cache) == []
    cache.write_text(json.dumps({"tests/test_b.py::test_two": True, "tests/test_a.py::test_one[ä]": True}))
    assert failed_tests(cache) == ["tests/test_a.py::test_one[ä]", "tests/test_b.py::test_two"]
