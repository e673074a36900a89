"""The tests that failed in the last run of pytest, one a line: `python -m tools.failed_tests`."""

import json
from pathlib import Path

CACHE = Path(__file__).resolve().parents[1] / ".pytest_cache" / "v" / "cache" / "lastfailed"


def failed_tests(cache: Path = CACHE) -> list[str]:
    """Their names, sorted by their bytes, as `LC_ALL=C comm` expects; none if the last run left no record."""
    if not cache.is_file():
        return []
    return sorted(json.loads(cache.read_text(encoding="utf-8")))


if __name__ == "__main__":
    for name in failed_tests():
        print(name)
