"""Runs the tests on other Pythons and with the oldest dependencies: `make pythons`, `make lowest`.

python -m tools.pythons                    PARTS on each supported Python that is here; names those that are missing
python -m tools.pythons 3.13 3.14t         on these only; a missing one is an error
python -m tools.pythons --lowest           on this Python, with the lowest versions that pyproject.toml allows
python -m tools.pythons --part servers     one of PARTS; may be repeated
python -m tools.pythons --whole            all tests; with --list none, it only tells what is here
python -m tools.pythons --wheel dist       the package is the wheel in this folder, not the checkout

Pythons are taken from the variable PYTHONS (paths, separated as in PATH), from PATH, and from the folders of pyenv and uv.
Each other one gets an environment in .cache/pythons, which is made anew when pyproject.toml changes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / ".cache" / "pythons"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
#: The tests of what depends on the version of Python or of a dependency, in parts that take some minutes each. The rest reads
#: files (documents, structure, other programs).
PARTS = {
    "sessions": (
        "tests/test_deadline.py",
        "tests/test_errors.py",
        "tests/test_exports.py",
        "tests/test_jsonrpc.py",
        "tests/test_options.py",
        "tests/test_session.py",
        "tests/test_session_asking.py",
        "tests/test_session_end.py",
        "tests/test_sync.py",
        "tests/backends",
        "tests/client",
        "tests/contracts",
        "tests/extensions",
        "tests/openapi",
        "tests/platforms",
        "tests/proxy",
        "tests/testing",
        "tests/upgrade",
    ),
    "messages": ("tests/auth", "tests/protocol", "tests/schema"),
    "servers": ("tests/server",),
    "transports": ("tests/http1", "tests/transports"),
}
#: Extras for agent frameworks. Their lowest versions don't go together; `make interop-agents` gives each its own environment.
FRAMEWORKS = frozenset({"langchain", "pydantic-ai", "openai-agents", "llama-index", "google-adk", "smolagents"})
#: Tells the version of an interpreter as in `3.14.1t`; `t` is a build without the global lock.
_VERSION = (
    "import sys, sysconfig; v = sys.version_info; "
    "print('%d.%d.%d' % v[:3] + ('t' if sysconfig.get_config_var('Py_GIL_DISABLED') else '')"
    " if v.releaselevel == 'final' and sys.implementation.name == 'cpython' else '')"
)


class Interpreter(NamedTuple):
    """A Python of this machine: its program, and its version such as `3.13.1` or `3.14.0t`."""

    path: str
    version: str

    @property
    def minor(self) -> str:
        """The version without its last number: `3.13`, `3.14t`."""
        return re.sub(r"\.\d+(t?)$", r"\1", self.version)


def supported() -> list[str]:
    """The versions that the classifiers of pyproject.toml name, and the newest of them without the global lock."""
    classifiers = " ".join(PROJECT["project"]["classifiers"])
    versions = re.findall(r"Python :: (3\.\d+)\b", classifiers)
    return [*versions, f"{versions[-1]}t"]


def candidates(versions: Iterable[str]) -> Iterator[str]:
    """Paths that may be interpreters of these versions."""
    yield from filter(None, os.environ.get("PYTHONS", "").split(os.pathsep))
    for version in versions:
        for entry in os.environ.get("PATH", "").split(os.pathsep):
            if program := shutil.which(f"python{version}", path=entry):
                yield program
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv" / "python")
    for folder in (pyenv / "versions", uv):
        for pattern in ("*/bin/python3", "*/python.exe"):
            yield from sorted(map(str, folder.glob(pattern)))


def find(versions: Iterable[str]) -> dict[str, Interpreter]:
    """The interpreters of this machine by their versions: this one, and the newest of each other version."""
    here = Interpreter(sys.executable, _version_of(sys.executable))
    best = {here.minor: here}
    for path in dict.fromkeys(candidates(versions)):
        other = Interpreter(path, _version_of(path))
        now = best.get(other.minor)
        if now is None or (now is not here and _order(other.version) > _order(now.version)):
            best[other.minor] = other
    return {version: best[version] for version in versions if version in best}


def _version_of(path: str) -> str:
    try:
        done = subprocess.run([path, "-c", _VERSION], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _order(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def requirements(*, lowest: bool, whole: bool = False) -> tuple[list[str], list[str]]:
    """What to install besides the package, and the versions to hold to.

    Args:
        lowest: Whether packages of our own dependencies and extras are taken in the lowest version that they declare. What
            only the tests need stays free, except where it insists on a newer version of such a package.
        whole: Whether all tests run, those of the documentation, too.
    """
    groups = ["code", "docs"] if whole else ["code"]
    if not lowest:
        return [word for group in groups for word in ("--group", group)], []
    extras = PROJECT["project"]["optional-dependencies"]
    together = [extra for name, extra in extras.items() if name not in FRAMEWORKS]
    ours = [*PROJECT["project"]["dependencies"], *(one for extra in together for one in extra)]
    versions: dict[str, str] = {}
    for requirement in ours:
        name, version = _parse(requirement)
        versions[name] = max(version, versions.get(name, version), key=_order)
    listed = [one for group in groups for one in PROJECT["dependency-groups"][group]]
    tests = [one for one in listed if _parse(one)[0] not in versions]
    return [*ours, *tests], [f"{name}=={version}" for name, version in versions.items()]


def _parse(requirement: str) -> tuple[str, str]:
    found = re.match(r"(?P<name>[\w.-]+)(?:\[[^]]*\])?\s*>=\s*(?P<version>[^\s;,]+)", requirement)
    if found is None:
        raise SystemExit(f"pyproject.toml: {requirement!r} has no lowest version")
    return found["name"].lower(), found["version"]


def environment(interpreter: Interpreter, *, lowest: bool, whole: bool = False, wheel: Path | None = None) -> Path:
    """Make the environment of an interpreter, or take the one that is there. Returns the path of its Python."""
    if interpreter.path == sys.executable and sys.prefix != sys.base_prefix and not lowest and wheel is None:
        return Path(sys.executable)  # this environment, as `make` has made it
    name = f"{interpreter.version}{'-lowest' if lowest else ''}{'-wheel' if wheel else ''}"
    folder = ENVIRONMENTS / name
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    needed, held = requirements(lowest=lowest, whole=whole)
    groups = [
        PROJECT["project"]["dependencies"],
        PROJECT["project"]["optional-dependencies"],
        PROJECT["dependency-groups"],
    ]
    bytes_of_wheel = hashlib.sha256(wheel.read_bytes()).hexdigest() if wheel else ""
    state = hashlib.sha256(repr((groups, needed, held, interpreter, bytes_of_wheel)).encode()).hexdigest()
    stamp = folder / "made"
    if stamp.is_file() and stamp.read_text() == state:
        return python
    print(f"{name}: making an environment", flush=True)
    _run([interpreter.path, "-m", "venv", "--clear", "--without-pip", str(folder)])
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join([*held, ""]))
    # The pip of this environment serves the others, too: some Pythons come without one.
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    package = [str(wheel)] if wheel else ["--editable", str(ROOT)]
    _run([*pip, "--constraint", str(constraints), *package, *needed])
    stamp.write_text(state)
    return python


def _run(command: Sequence[str]) -> None:
    if code := subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {code}")


def run_tests(python: Path, arguments: Sequence[str], *, without_lock: bool) -> int:
    """Run pytest with an interpreter; its programs are the first on the PATH. Returns the exit code."""
    variables = os.environ | {"PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    variables.pop("VIRTUAL_ENV", None)
    if without_lock:
        variables["PYTHON_GIL"] = "0"  # a package that was not made for it, such as hiredis, would bring the lock back
    cache = ["-o", f"cache_dir={ENVIRONMENTS / 'pytest' / python.parent.parent.name}"]
    pytest = os.environ.get("PYTEST", "pytest")
    # A file that can't be imported on a system is an error, and hides none of the others.
    options = ["-n", "auto", "--dist", "worksteal", "-q", "--continue-on-collection-errors", *cache]
    command = [str(python), "-m", pytest, *options, *arguments]
    return subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode


def main(words: Sequence[str] | None = None) -> int:
    """Run the tests; the exit code is 1 if some failed or something that was asked for is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "versions", nargs="*", metavar="VERSION", help="such as 3.13 or 3.14t; all supported ones if none"
    )
    parser.add_argument("--lowest", action="store_true", help="the lowest versions of the dependencies")
    parser.add_argument("--whole", action="store_true", help="all tests, not only those of PARTS")
    parser.add_argument("--part", action="append", choices=PARTS, help="these of PARTS; all by default")
    parser.add_argument("--wheel", type=Path, metavar="FOLDER", help="test the wheel in this folder, not the checkout")
    parser.add_argument("--others", action="store_true", help="fail if there is no Python besides this one")
    parser.add_argument("--list", action="store_true", help="only tell what is here and what is missing")
    parser.add_argument("--tests", nargs=argparse.REMAINDER, metavar="…", help="the rest are arguments for pytest")
    options = parser.parse_args(words)
    here = Interpreter(sys.executable, _version_of(sys.executable)).minor
    versions = options.versions or ([here] if options.lowest else supported())
    interpreters = find(versions)
    missing = [version for version in versions if version not in interpreters]
    for interpreter in interpreters.values():
        print(f"{interpreter.version}: {interpreter.path}", flush=True)
    if missing:
        print(f"not on this machine: {', '.join(missing)}", flush=True)
    failed = missing if options.versions else []
    if options.others and not interpreters.keys() - {here}:
        print(f"no Python besides {here}: install another one, or name its program in the variable PYTHONS")
        return 1
    if options.list:
        return 1 if failed else 0
    wheel = None
    if options.wheel and (wheel := next(options.wheel.resolve().glob("*.whl"), None)) is None:
        parser.error(f"there is no wheel in {options.wheel}")
    parts = [] if options.whole else options.part or PARTS
    arguments = options.tests or [path for part in parts for path in PARTS[part]]
    for version, interpreter in interpreters.items():
        print(f"\n=== {interpreter.version}{', lowest dependencies' if options.lowest else ''}", flush=True)
        try:
            python = environment(interpreter, lowest=options.lowest, whole=options.whole, wheel=wheel)
            code = run_tests(python, arguments, without_lock=interpreter.version.endswith("t"))
        except RuntimeError as error:
            print(error, flush=True)
            code = 1
        if code:
            failed.append(version)
    if failed:
        print(f"\nfailed or missing: {', '.join(failed)}")
    print(f"{len(interpreters) - len(set(failed) & interpreters.keys())} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
