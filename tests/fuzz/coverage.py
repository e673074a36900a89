"""Coverage-guided fuzzing with atheris: `python -m tests.fuzz.coverage TARGET --seconds 60`.

What finds new paths is added to the stored corpus, smallest first, with `--merge`; the suite replays it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

try:
    atheris: Any = importlib.import_module("atheris")
except ImportError:
    sys.exit("This needs atheris: pip install atheris")

with atheris.instrument_imports(include=["gemel"]):
    from tests.fuzz.targets import CORPUS, TARGETS

#: Found inputs, which are not stored until they are merged.
FINDINGS = Path(".cache/fuzz")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line. Does not return: atheris ends the process, with 0 if nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.coverage", description="Coverage-guided fuzzing.")
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument(
        "--seed", type=int, default=0, help="try the same inputs in each run of the same code; 0: others"
    )
    parser.add_argument("--merge", action="store_true", help="add the inputs that reach new code to the corpus")
    options = parser.parse_args(arguments)
    stored, findings = CORPUS / options.target, FINDINGS / options.target
    for directory in (stored, findings):
        directory.mkdir(parents=True, exist_ok=True)
    words = [f"-artifact_prefix={findings}/crash-", "-rss_limit_mb=2000", "-timeout=10", "-max_len=512"]
    if options.merge:
        words += ["-merge=1", str(stored), str(findings)]
    else:
        words += [f"-max_total_time={options.seconds}", f"-seed={options.seed}", str(findings), str(stored)]
    atheris.Setup([sys.argv[0], *words], TARGETS[options.target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
