"""Published servers: what their data files say, their environments in `.cache`, and the copies that are migrated."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

import gemel
from tests.programs import find

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "migrate-servers"
SERVERS = Path(__file__).with_name("servers")
#: The version of the official SDK whose client also drives the servers.
OFFICIAL = "2.3.0"
#: Seconds for an installation, and for one migration with its check.
INSTALLING, MIGRATING = 900, 240
#: Seconds until a service accepts connections.
STARTING = 20
_SOURCE = Path(gemel.__file__).resolve().parents[1]
_PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
#: What Gemel and its command `migrate` need beside the packages of a server.
_NEEDED: list[str] = [
    *_PROJECT["dependencies"],
    *(line for extra in ("migrate", "pydantic") for line in _PROJECT["optional-dependencies"][extra]),
]
_LEFT = re.compile(r"; (\d+) left to do by hand")


class Problem(Exception):
    """Something that keeps a server from being tried."""


class NotHere(Problem):
    """This machine lacks what the server needs."""


class Call(msgspec.Struct, forbid_unknown_fields=True):
    """One call of a tool or a prompt, or a resource that is read; `fails`: the answer is an error, whose text is compared, too."""

    tool: str = ""
    prompt: str = ""
    read: str = ""
    arguments: dict[str, Any] = {}
    fails: bool = False

    @property
    def name(self) -> str:
        """What is called or read."""
        return self.tool or self.prompt or self.read


class Published(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A published server, as its data file describes it."""

    #: The package, and the versions of it and of what decides how it behaves.
    package: str
    versions: dict[str, str]
    #: The oldest Python that the package supports.
    python: tuple[int, int] = (3, 11)
    #: What is copied and migrated: names of modules and packages in the environment, and of files that they read.
    modules: list[str]
    #: `MODULE:FUNCTION` that the program of the package calls, and its arguments.
    entry: str
    arguments: list[str] = []
    environment: dict[str, str] = {}
    #: Python that runs in the process before the program, in place of a service that isn't there.
    before: str = ""
    #: A program that runs meanwhile. `{port}` is a free port, `{work}` the working directory, wherever they stand in this file.
    service: list[str] = []
    #: The working directory of the server: files, and then commands that are run in it.
    files: dict[str, str] = {}
    prepare: list[list[str]] = []
    calls: list[Call]
    #: Patterns of what differs from one run to the next, in answers.
    changing: list[str] = []
    #: What is expected: notes that are left to do by hand, and each difference with its reason; `*` stands for any text.
    left: int | Literal["unknown"] = 0
    differences: dict[str, str] = {}
    #: Why the migrated server doesn't start, if it doesn't.
    stopped_by: str = ""

    def explains(self, difference: str) -> bool:
        """Whether the data file has a reason for a difference."""
        return any(matches(form, difference) for form in self.differences)

    @property
    def place(self) -> Path:
        """The folder of everything that belongs to the server."""
        return CACHE / self.package

    @property
    def interpreter(self) -> Path:
        """The interpreter of the environment."""
        return _interpreter(self.place)

    @property
    def copy(self) -> Path:
        """The folder with the migrated modules."""
        return self.place / "migrated"

    @property
    def library(self) -> str:
        """The library that the server is written for, with its version."""
        return next((f"{name} {self.versions[name]}" for name in ("fastmcp", "mcp") if name in self.versions), "")


def matches(form: str, text: str) -> bool:
    """Whether a text has a form, in which `*` stands for any text."""
    return re.fullmatch(".*".join(map(re.escape, form.split("*"))), text, re.DOTALL) is not None


def read(name: str) -> Published:
    """Read a data file.

    Args:
        name: The name of the package.

    Raises:
        Problem: There is none, or it is not valid.
    """
    path = SERVERS / f"{name}.toml"
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Published)
    except (OSError, msgspec.MsgspecError) as exc:
        raise Problem(f"{path.name}: {exc}") from None


def placed(server: Published, port: int) -> Published:
    """Return the server with a port in place of `{port}`, and its working directory in place of `{work}`."""
    text = msgspec.json.encode(server).replace(b"{port}", str(port).encode())
    text = text.replace(b"{work}", str(server.place / "work").encode())
    return msgspec.json.decode(text, type=Published)


@contextmanager
def serving(server: Published, port: int) -> Iterator[None]:
    """Run the service that a server needs. Raises Problem if it isn't installed, or doesn't accept connections."""
    if not server.service:
        yield
        return
    words = [str(server.interpreter) if word == "{python}" else word for word in server.service]
    if find(words[0]) is None:
        raise NotHere(f"{words[0]} is not installed")
    folder = server.place / "work"
    folder.mkdir(exist_ok=True)
    quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    process = subprocess.Popen(words, cwd=folder, start_new_session=True, **quiet)
    try:
        end = time.monotonic() + STARTING
        while not _accepts(port):
            if process.poll() is not None or time.monotonic() > end:
                raise Problem(f"{words[0]} doesn't serve")
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def names() -> list[str]:
    """Return the packages that have a data file."""
    return sorted(path.stem for path in SERVERS.glob("*.toml"))


def install(server: Published) -> None:
    """Install the packages of a server into an environment of its own, unless they are there. Raises Problem."""
    if sys.version_info < server.python:
        raise NotHere(f"it needs Python {server.python[0]}.{server.python[1]}")
    _install(server.place, [*(f"{name}=={version}" for name, version in server.versions.items()), *_NEEDED])


def official_client() -> Path:
    """Return the interpreter of an environment that has the client of the official SDK. Raises Problem."""
    _install(CACHE / "official-client", [f"mcp=={OFFICIAL}"])
    return _interpreter(CACHE / "official-client")


def _interpreter(place: Path) -> Path:
    return place / "env" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _install(place: Path, wanted: Sequence[str]) -> None:
    mark = place / "installed.sha256"
    print_of = hashlib.sha256(json.dumps([sys.version, *wanted]).encode()).hexdigest()
    if mark.exists() and mark.read_text() == print_of:
        return
    shutil.rmtree(place, ignore_errors=True)
    venv.create(place / "env", with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(_interpreter(place)), "install", "--quiet"]
    code, printed = execute([*pip, "--disable-pip-version-check", *wanted], place, {}, INSTALLING)
    if code:
        raise Problem(f"not installed: {_last(printed)}")
    mark.write_text(print_of)


def migrate(server: Published) -> int | Literal["unknown"]:
    """Migrate a copy of the modules of a server.

    Returns:
        How many notes are left to do by hand; "unknown" if the command could not compare and says so.

    Raises:
        Problem: A module is not there, or the command failed.
    """
    (installed,) = (server.place / "env").glob("**/site-packages")
    shutil.rmtree(server.copy, ignore_errors=True)
    server.copy.mkdir()
    for module in server.modules:
        if (installed / module).is_dir():
            shutil.copytree(installed / module, server.copy / module, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            found = [installed / name for name in (module, f"{module}.py") if (installed / name).is_file()]
            if not found:
                raise Problem(f"the package has no module {module}")
            shutil.copy(found[0], server.copy)
    # As in the source of the package, which says what its program calls.
    project = f'[project]\nname = "{server.package}"\n\n[project.scripts]\n"{server.package}" = "{server.entry}"\n'
    (server.copy / "pyproject.toml").write_text(project, encoding="utf-8")
    command = [str(server.interpreter), "-m", "gemel", "migrate", "--write", str(server.copy)]
    code, printed = execute(command, server.place, environment_of(server, migrated=False, gemel_too=True), MIGRATING)
    (server.place / "migrate.log").write_text(printed, encoding="utf-8")
    if code is None or code < 0 or "Traceback (most recent call last)" in printed:
        raise Problem(f"gemel migrate ended with {code}: {_last(printed)}")
    execute([str(server.interpreter), "-m", "compileall", "-q", str(server.copy)], server.place, {}, MIGRATING)
    said = _LEFT.search(printed)
    return int(said[1]) if said else "unknown"


def environment_of(server: Published, *, migrated: bool, gemel_too: bool = False) -> dict[str, str]:
    """The variables that a process of the server gets.

    Args:
        server: The server.
        migrated: Whether it finds the migrated modules, and Gemel.
        gemel_too: Whether it finds Gemel without the migrated modules.
    """
    paths = [str(server.copy)] if migrated else []
    if migrated or gemel_too:
        paths.append(str(_SOURCE))
    home = str(server.place / "home")
    os.makedirs(home, exist_ok=True)
    return {
        **{name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ},
        "HOME": home,
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(paths),
        **server.environment,
    }


def command_of(server: Published) -> list[str]:
    """The command line that starts the server: what the program of its package does."""
    module, _, function = server.entry.partition(":")
    start = f"import sys; sys.argv[0] = {server.package!r}; from {module} import {function} as main; sys.exit(main())"
    code = f"{server.before}\n{start}" if server.before else start
    return [str(server.interpreter), "-c", code, *server.arguments]


def working_folder(server: Published) -> Path:
    """Make the working directory of the server anew. Raises Problem."""
    folder = server.place / "work"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, text in server.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for command in server.prepare:
        words = [str(server.interpreter) if word == "{python}" else word for word in command]
        code, printed = execute(words, folder, environment_of(server, migrated=False), 60)
        if code:
            raise Problem(f"{' '.join(command)} ended with {code}: {_last(printed)}")
    return folder


def execute(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float
) -> tuple[int | None, str]:
    """Run a command in a process group of its own, which ends with it.

    Args:
        command: The command line.
        folder: The working directory.
        environment: All variables of the process; those of this one if there are none.
        seconds: The time limit.

    Returns:
        The exit code, None if the time was up, and what was printed.
    """
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=dict(environment) or None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=seconds)
        return process.returncode, printed
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
        return None, printed


def _last(printed: str) -> str:
    return next((line.strip() for line in reversed(printed.splitlines()) if line.strip()), "nothing was printed")
