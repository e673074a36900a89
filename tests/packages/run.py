"""Builds the package and uses it without the repository, as people get it: `make packages`.

python -m tests.packages.run                     all ways
python -m tests.packages.run wheel zipapp        some of them: wheel, pipx, sdist, zip, zipapp, frozen, written

Each way runs the command `gemel`: it tells its version, serves a file, and is the client of a server in a child process. The way
`written` starts what the commands write for others.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import venv
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gemel.version import DISTRIBUTION, __version__, requirement

ROOT = Path(__file__).resolve().parents[2]
SERVER = """\
from gemel import Server

server = Server("greeter")


@server.tool
def greet(name: str) -> str:
    \"\"\"Greet somebody.\"\"\"
    return f"Hello {name}"


if __name__ == "__main__":
    server.run()
"""
#: What is run from the source distribution, and what these tests need: files beside them, the package as it is installed.
SDIST_TESTS = ("tests/test_jsonrpc.py", "tests/protocol/http", "tests/docs/test_links.py")
SDIST_NEEDS = ("hypothesis", "mcp-types", "pytest", "pytest-asyncio", "pytest-timeout")
ENTRY = "import sys\n\nfrom gemel.cli import main\n\nsys.exit(main())\n"


class Environment:
    """A folder outside the repository with the wheel, and a virtual environment that has it installed.

    Args:
        folder: The folder.
        install: Whether to install it.
    """

    def __init__(self, folder: Path, *, install: bool = True) -> None:
        self.folder = folder
        _run(
            [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)], ROOT
        )
        (self.wheel,) = folder.glob("gemel-*.whl")
        venv.create(folder / "env", with_pip=True)
        self.python = self.program("python")
        self.server = folder / "greeter.py"
        self.server.write_text(SERVER)
        if install:
            self.install(str(self.wheel))

    def program(self, name: str) -> str:
        """The path of a program of the environment."""
        windows = sys.platform == "win32"
        return str(self.folder / "env" / ("Scripts" if windows else "bin") / (f"{name}.exe" if windows else name))

    def install(self, *requirements: str) -> None:
        _run([self.python, "-m", "pip", "install", "--quiet", *requirements], self.folder)

    def check(self, gemel: Sequence[str], python: str) -> None:
        """Use the command `gemel`, and as a foreign server the file, run by `python`."""
        assert self.output(*gemel, "--version") == f"gemel {__version__}"
        assert "greet" in self.output(*gemel, "list", str(self.server)), "lists what its own child serves"
        assert self.output(*gemel, "call", str(self.server), "greet", "name=Ann") == "Hello Ann"
        assert self.output(*gemel, "call", f"{python} {self.server}", "greet", "name=Bo") == "Hello Bo"

    def output(self, *command: str) -> str:
        return _run(command, self.folder).strip()


def wheel(environment: Environment) -> None:
    """Installed with pip: the program and `python -m gemel`."""
    with zipfile.ZipFile(environment.wheel) as file:
        names = file.namelist()
    assert "gemel/py.typed" in names
    assert not [name for name in names if not name.startswith(("gemel/", "gemel-"))], "nothing else comes along"
    environment.check([environment.program("gemel")], environment.python)
    assert environment.output(environment.python, "-m", "gemel", "--version") == f"gemel {__version__}"


def pipx(environment: Environment) -> None:
    """`pipx run gemel`, in an environment that pipx makes."""
    environment.install("pipx")
    run = [environment.program("pipx"), "run", "--spec", str(environment.wheel), "gemel"]
    environment.check(run, environment.python)


def sdist(environment: Environment) -> None:
    """The source distribution holds what the wheel is made of, and the tests; they run from it."""
    environment.install("build")
    _run([environment.python, "-m", "build", "--sdist", "--outdir", str(environment.folder), str(ROOT)], ROOT)
    (archive,) = environment.folder.glob("gemel-*.tar.gz")
    with tarfile.open(archive) as file:
        names = [name.partition("/")[2] for name in file.getnames()]
        file.extractall(environment.folder, filter="data")
    for name in (
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "src/gemel/py.typed",
        "tests/conftest.py",
        "tools/__init__.py",
    ):
        assert name in names, f"{name} is missing"
    assert not [name for name in names if name.startswith((".cache", ".venv")) or "__pycache__" in name]
    source = environment.folder / archive.name.removesuffix(".tar.gz")
    _run(
        [environment.python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "again", str(source)], source
    )
    (again,) = (source / "again").glob("*.whl")
    with zipfile.ZipFile(environment.wheel) as ours, zipfile.ZipFile(again) as other:
        assert sorted(other.namelist()) == sorted(ours.namelist()), "the same wheel comes from it"
    venv.create(source / "env", with_pip=True)
    python = environment.python.replace(str(environment.folder), str(source))
    _run([python, "-m", "pip", "install", "--quiet", str(again), *SDIST_NEEDS], source)
    _run([python, "-m", "pytest", "-q", *SDIST_TESTS], source)


def plain_zip(environment: Environment) -> None:
    """`python -m zipapp` of the package alone, without metadata; the libraries are those of the interpreter."""
    content = environment.folder / "content"
    with zipfile.ZipFile(environment.wheel) as file:
        file.extractall(content, [name for name in file.namelist() if name.startswith("gemel/")])
    (content / "__main__.py").write_text(ENTRY)
    archive = environment.folder / "small.pyz"
    _run([environment.python, "-m", "zipapp", str(content), "--output", str(archive)], environment.folder)
    environment.output(environment.python, "-m", "pip", "uninstall", "--quiet", "--yes", "gemel")
    try:
        assert environment.output(environment.python, str(archive), "--version") == f"gemel {__version__}"
        assert "greet" in environment.output(environment.python, str(archive), "list", str(environment.server))
    finally:
        environment.install("--no-deps", str(environment.wheel))


def zipapp(environment: Environment) -> None:
    """One file with the libraries, made by shiv, which unpacks it at its first start: they have parts in C and Rust."""
    environment.install("shiv")
    archive = environment.folder / "gemel.pyz"
    shiv = [environment.program("shiv"), "--console-script", "gemel", "--output-file", str(archive)]
    _run([*shiv, str(environment.wheel)], environment.folder)
    environment.check([sys.executable, str(archive)], environment.python)


def frozen(environment: Environment) -> None:
    """A program made by PyInstaller, which needs no Python; the servers that it starts bring their own."""
    environment.install("pyinstaller")
    entry = environment.folder / "entry.py"
    entry.write_text(ENTRY)
    freeze = [environment.python, "-m", "PyInstaller", "--name", "gemel", "--onedir", "--log-level", "WARN"]
    _run([*freeze, "--collect-submodules", "gemel", str(entry)], environment.folder)
    environment.check([str(environment.folder / "dist" / "gemel" / "gemel")], environment.python)


def written(environment: Environment) -> None:
    """A project, a bundle and a host's configuration, which the commands write, start from what they name.

    Nothing but the name leads to the wheel: uv takes it from an index on this machine.
    """
    environment.install("uv")
    uv, ours = environment.program("uv"), environment.program("gemel")
    folder = environment.folder / "written"
    (folder / "home").mkdir(parents=True)
    passed = ("SSL_CERT_FILE", "HTTPS_PROXY", "https_proxy", "UV_DEFAULT_INDEX")
    settings = {name: os.environ[name] for name in passed if name in os.environ}
    settings |= {"UV_CACHE_DIR": str(folder / "cache"), "UV_PYTHON": sys.executable, "UV_PYTHON_DOWNLOADS": "never"}
    settings |= {"HOME": str(folder / "home"), "PATH": f"{Path(uv).parent}{os.pathsep}{os.environ['PATH']}"}

    def greet(command: Sequence[str]) -> str:
        given = [word for name, value in settings.items() for word in ("--env", f"{name}={value}")]
        return _run([ours, "call", shlex.join(command), "greet", "name=Cy", *given], folder, settings).strip()

    with _index(environment.wheel) as url:
        settings["UV_INDEX"] = url
        _run([ours, "init", "project", "--name", "notes"], folder, settings)
        in_project = [uv, "run", "--directory", str(folder / "project")]
        assert "add_note" in _run([*in_project, "gemel", "list", "server.py"], folder, settings)
        _run([*in_project, "pytest", "-q"], folder, settings)

        _run([ours, "bundle", str(environment.server), "-o", "greeter.mcpb"], folder, settings)
        unpacked = folder / "unpacked"
        with zipfile.ZipFile(folder / "greeter.mcpb") as archive:
            archive.extractall(unpacked)
        start = json.loads((unpacked / "manifest.json").read_text())["server"]["mcp_config"]
        words = [word.replace("${__dirname}", str(unpacked)) for word in (start["command"], *start["args"])]
        assert greet(words) == "Hello Cy"

        script = folder / "script.py"
        script.write_text(f'# /// script\n# dependencies = ["{requirement()}"]\n# ///\n{SERVER}')
        once = [uv, "tool", "run", "--from", requirement(), "gemel"]
        for gemel, file in (([ours], script), (once, environment.server)):
            command = [*gemel, "install", str(file), "--name", file.stem]
            _run([*command, "--host", "cursor", "--yes"], folder, settings)
            entry = json.loads((folder / "home" / ".cursor" / "mcp.json").read_text())["mcpServers"][file.stem]
            assert Path(entry["command"]).name.startswith("uv"), f"uv starts it: {entry}"
            assert greet([entry["command"], *entry["args"]]) == "Hello Cy"


@contextmanager
def _index(wheel: Path) -> Iterator[str]:
    """An index of packages on this machine that has one wheel."""
    root = wheel.parent / "index"
    place = root / DISTRIBUTION
    place.mkdir(parents=True)
    shutil.copy(wheel, place)

    class Files(SimpleHTTPRequestHandler):
        def __init__(self, *words: Any) -> None:
            super().__init__(*words, directory=str(root))

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


WAYS: dict[str, Callable[[Environment], None]] = {
    "wheel": wheel,
    "pipx": pipx,
    "sdist": sdist,
    "zip": plain_zip,
    "zipapp": zipapp,
    "frozen": frozen,
    "written": written,
}


def main(words: Sequence[str] | None = None) -> int:
    """Try the ways; the exit code is 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=", ".join(WAYS))
    chosen = parser.parse_args(words).ways or list(WAYS)
    if unknown := set(chosen) - WAYS.keys():
        parser.error(f"no such way: {', '.join(sorted(unknown))}")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="packages-") as folder:
        environment = Environment(Path(folder).resolve())
        for name in chosen:
            begin = time.monotonic()
            try:
                WAYS[name](environment)
                verdict = "ok"
            except (AssertionError, RuntimeError) as error:
                failed += 1
                verdict = f"FAILED: {error}"
            print(f"{name:<8} {time.monotonic() - begin:5.1f} s  {verdict}", flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed else 0


def _run(command: Sequence[str], folder: Path, settings: Mapping[str, str] = MappingProxyType({})) -> str:
    """Run a program to its end and return what it printed. Nothing of this environment helps it to find the package."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment["SHIV_ROOT"] = str(folder / ".shiv")
    environment["PIPX_HOME"] = str(folder / ".pipx")
    environment |= settings
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
