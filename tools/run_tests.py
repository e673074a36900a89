"""All tests, several parts of them at a time: `python -m tools.run_tests`, and `--failed` for what failed the last time.

Each part is a run of pytest with a cache of its own. Knows the directories of the tests and how long they take, roughly;
a test that is in none of the parts named here is in the last one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
CACHE = ROOT / ".pytest_cache" / "parts"
#: What is run together, one after the other. What takes longest begins first, so that all end at about the same time.
TOGETHER: tuple[tuple[str, ...], ...] = (
    ("faults",),
    ("cli", "stubs"),
    ("transports", "backends"),
    ("docs", "testing"),
    ("bridge", "lock", "openapi", "fuzz"),
    ("server",),
    ("client", "wire"),
)
MOST_AT_A_TIME = 4


class Part(NamedTuple):
    """Some of the tests."""

    name: str
    paths: tuple[Path, ...]

    @property
    def cache(self) -> Path:
        """Where pytest remembers what failed, and we how it ended."""
        return CACHE / self.name


class Ended(NamedTuple):
    """How a part ended: pytest's exit code, what it said, and the seconds that it took."""

    part: Part
    code: int
    said: str
    seconds: float


def parts(tests: Path = TESTS) -> list[Part]:
    """All tests below a directory, each in one part."""
    found = [Part(names[0], tuple(tests / name for name in names if (tests / name).is_dir())) for names in TOGETHER]
    taken = {path for part in found for path in part.paths}
    rest = (path for path in sorted(tests.iterdir()) if path not in taken)
    alone = tuple(path for path in rest if path.match("test_*.py") or (path.is_dir() and any(path.rglob("test_*.py"))))
    return [part for part in (*found, Part("rest", alone)) if part.paths]


def run(part: Part, *options: str) -> Ended:
    """Run a part to its end."""
    part.cache.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={part.cache}", *options, *map(str, part.paths)]
    print(f"... {part.name}", flush=True)
    start = time.monotonic()
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    ended = Ended(part, done.returncode, done.stdout, time.monotonic() - start)
    (part.cache / "code").write_text(str(ended.code))
    return ended


def failed_before(part: Part) -> bool:
    """Whether it didn't end well the last time."""
    code = part.cache / "code"
    return not code.is_file() or code.read_text() != "0"


def report(ended: Ended) -> Ended:
    """Print how it went: all that pytest said, or its last lines."""
    well = ended.code == 0
    lines = ended.said.splitlines()
    print(f"--- {ended.part.name}: {'ok' if well else f'FAILED ({ended.code})'}, {ended.seconds:.0f} s")
    print("\n".join(lines[-2:] if well else lines), flush=True)
    return ended


def total(said: Iterable[str]) -> str:
    """The last lines of all parts in one, in pytest's words: how many passed, failed, were skipped."""
    counts: Counter[str] = Counter()
    for text in said:
        last = text.rstrip().rpartition("\n")[2]
        counts.update(
            {what: int(number) for number, what in re.findall(r"(\d+) (failed|passed|skipped|errors?)", last)}
        )
    return ", ".join(f"{counts[what]} {what}" for what in sorted(counts)) or "no tests ran"


def main(words: Sequence[str]) -> int:
    """Run all parts, or with `--failed` the failed tests of those that failed, one part at a time. 1 if something fails."""
    if words not in ([], ["--failed"]):
        print(__doc__, file=sys.stderr)
        return 2
    begin, again = time.monotonic(), bool(words)
    at_a_time = 1 if again else min(MOST_AT_A_TIME, os.cpu_count() or 1)
    # Where nothing is known to have failed, a part was cut off: that there is nothing to try again is no success.
    options = ("--last-failed", "--last-failed-no-failures", "none") if again else ()
    chosen = [part for part in parts() if not again or failed_before(part)]
    with ThreadPoolExecutor(at_a_time) as pool:
        ended = [report(one) for one in pool.map(lambda part: run(part, *options), chosen)]
    bad = ", ".join(one.part.name for one in ended if one.code)
    print(f"\nparts that failed: {bad}" if bad else "\nall parts went well")
    print(f"{total(one.said for one in ended)} in {time.monotonic() - begin:.2f}s")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
