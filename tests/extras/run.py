"""Installs the package with each extra alone, in a clean environment, and uses what the extra is for: `make extras`.

python -m tests.extras.run                 all extras of pyproject.toml
python -m tests.extras.run otel redis      some of them

What an extra is used for stands in `programs/with_EXTRA.py`, which runs outside the repository.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("programs")
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]
#: Seconds that an installation, and a program, may take; some frameworks are large.
LIMIT = 240


def program_of(extra: str) -> Path:
    """The program that uses the extra."""
    return PROGRAMS / f"with_{extra.replace('-', '_')}.py"


def use(extra: str, wheel: Path, folder: Path) -> None:
    """Install the wheel with an extra and run its program. Raises RuntimeError, with the output, if one of them fails."""
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    _run([*_pip("--python", str(python), "install"), f"gemel[{extra}] @ {wheel.as_uri()}"], folder)
    _run([str(python), "-I", str(program_of(extra))], folder)


def _pip(*words: str) -> list[str]:
    return [sys.executable, "-m", "pip", *words, "--quiet", "--disable-pip-version-check"]


def _run(command: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{error}:\n{(error.output or b'').decode(errors='replace')}") from None
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")


def main(words: Sequence[str] | None = None) -> int:
    """Try the extras; the exit code is 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help=", ".join(EXTRAS))
    chosen = parser.parse_args(words).extras or list(EXTRAS)
    if unknown := [extra for extra in chosen if extra not in EXTRAS]:
        parser.error(f"there is no extra {unknown[0]!r}; there are {', '.join(EXTRAS)}")
    failed = []
    with tempfile.TemporaryDirectory(prefix="extras-") as place:
        _run([*_pip("wheel", "--no-deps", "--wheel-dir", place), str(ROOT)], ROOT)
        (wheel,) = Path(place).glob("*.whl")
        for extra in chosen:
            begin, verdict = time.monotonic(), "ok"
            with tempfile.TemporaryDirectory(prefix=f"{extra}-", dir=place) as folder:
                try:
                    use(extra, wheel, Path(folder))
                except RuntimeError as error:
                    failed.append(extra)
                    verdict = f"FAILED: {error}"
            print(f"{extra:<14} {time.monotonic() - begin:5.1f} s  {verdict}", flush=True)
    print(f"extras: FAILED: {', '.join(failed)}" if failed else "extras: passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
