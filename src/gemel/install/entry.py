"""The entry of a server in a host's configuration: what is started or reached, in the host's shape."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gemel.errors import StartError, shorten
from gemel.install.hosts import Host
from gemel.transports.stream.command_line import check_batch_command
from gemel.version import requirement

#: Names that every host takes.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SCRIPT = re.compile(r"(?m)^# /// script$")
#: Folders of environments that uvx and pipx make for one run and may delete.
_EPHEMERAL = ("archive-v0", "environments-v2", ".cache")


class Launch(NamedTuple):
    """A server as a host is to reach it: a program or a URL.

    Args:
        command: The program and its arguments.
        env: Its environment variables. `${NAME}` is a variable of the host's environment.
        cwd: Its working directory.
        url: The URL, in place of a program.
        headers: HTTP headers for the URL. `${NAME}` as in `env`.
        always_load: Whether its tools are kept out of the search by which the host defers tools, where it has a setting.
    """

    command: Sequence[str] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = {}
    always_load: bool = False


class Entry(NamedTuple):
    """The value of an entry, and the variables and headers whose values stand in it literally."""

    value: dict[str, Any]
    literals: dict[str, str]


def check_name(name: str) -> str:
    """Return the name of an entry. Raises StartError for one that some host can't take."""
    if not _NAME.fullmatch(name):
        raise StartError(f"The name {shorten(name)!r} is not possible: use letters, digits, _ and -, at most 64")
    return name


def name_of(target: str) -> str:
    """Return a name for `FILE.py[:NAME]` or `MODULE:NAME`: that of the file or module."""
    place = re.split(r"\.py(?=:|$)|:(?=[^:\\/]*$)", target)[0]
    return check_name(as_name(re.split(r"[\\/.]", place)[-1]))


def as_name(text: str) -> str:
    """Return a text with - in place of what no name of an entry has; it may be empty."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_")[:64]


def own_command(
    target: str,
    arguments: Sequence[str] = (),
    *,
    module: bool = False,
    cwd: str | None = None,
    program: Sequence[str] = (),
    options: Sequence[str] = (),
) -> list[str]:
    """Return the command that serves a Python file or module, with absolute paths.

    A file with inline metadata (PEP 723) or in a project with a `uv.lock` is run by `uv`, if it is installed: it makes the
    environment that they describe. Everything else is run by the interpreter that runs this.

    Args:
        target: `FILE.py[:NAME]` or `MODULE[:NAME]`.
        arguments: Arguments for the file.
        module: Whether the target is a module even if it looks like a file.
        cwd: The working directory of the server; for a module the current one by default, where it is looked for.
        program: The words that start Gemel's command line; this interpreter by default.
        options: Options of `gemel run`.

    Returns:
        The words of the command.

    Raises:
        StartError: There is no such file.
    """
    file, dot, name = target.partition(".py")
    is_file = bool(dot) and name[:1] in ("", ":") and not module
    words = list(program) or [sys.executable, "-P", "-m", "gemel"]
    if is_file:
        path = Path(os.path.abspath(f"{file}.py"))
        if not path.is_file():
            raise StartError(f"No such file: {path}")
        words = _with_uv(path) or words
        target = f"{path}{name}"
    elif cwd is None:
        cwd = os.getcwd()
    words += ["run", *(["-m"] if module else []), target, *options]
    if cwd is not None:
        words += ["--cwd", os.path.abspath(cwd)]
    return [*words, "--", *arguments] if arguments else words


def _with_uv(path: Path) -> list[str] | None:
    """The words with which uv starts `gemel` in the environment of a file; None if that is not a task for uv."""
    uv = shutil.which("uv")
    if uv is None:
        return None
    uv = os.path.abspath(uv)
    if _SCRIPT.search(path.read_text(encoding="utf-8", errors="replace")):
        return [uv, "run", "--no-project", "--with-requirements", str(path), "gemel"]
    project = next((folder for folder in path.parents if (folder / "uv.lock").is_file()), None)
    if project is not None:
        return [uv, "run", "--project", str(project), "gemel"]
    if any(part in _EPHEMERAL for part in Path(sys.prefix).parts):
        return [uv, "run", "--no-project", "--with", requirement(), "gemel"]
    return None


def foreign_command(words: Sequence[str], *, platform: str = sys.platform) -> list[str]:
    """Return a command line with the absolute path of its program: hosts often have another PATH.

    Raises:
        StartError: The program is not found.
        DefinitionError: It is a batch file, and cmd.exe would interpret a character in an argument.
    """
    program = shutil.which(words[0]) if words else None
    if program is None:
        raise StartError(f"The program {words[0] if words else ''!r} is not found")
    program = os.path.abspath(program)
    if platform == "win32" and program.lower().endswith((".cmd", ".bat")):  # no program that a host can start itself
        check_batch_command(program, words)
        return ["cmd", "/c", program, *words[1:]]
    return [program, *words[1:]]


def entry_for(host: Host, launch: Launch, environ: Mapping[str, str]) -> Entry:
    """Make the entry of a server.

    Args:
        host: The host.
        launch: What it is to start or reach.
        environ: The environment, for `${NAME}` where the host can't refer to a variable.

    Returns:
        The entry.

    Raises:
        StartError: The host can't take it, or a variable is not set.
    """
    writer = _Writer(host, environ)
    if launch.url:
        if host.remote is None:
            command = f"'gemel proxy {launch.url} --to stdio'"
            raise StartError(f"{host.title} takes no URLs in this file: install the command {command} instead")
        value = {**host.remote, host.url: launch.url, **writer.headers(launch.headers)}
    else:
        command, *arguments = launch.command
        value = {**host.program, "command": command, "args": arguments, **writer.env(launch.env)}
        if launch.cwd is not None:
            if not host.cwd:
                raise StartError(f"{host.title} can't set a working directory for a program: leave out --cwd")
            value["cwd"] = os.path.abspath(launch.cwd)
    if launch.always_load:
        value |= host.always_load
    return Entry(value, writer.literals)


class _Writer:
    """Writes values that refer to variables in the way of a host."""

    def __init__(self, host: Host, environ: Mapping[str, str]) -> None:
        self._host = host
        self._environ = environ
        self.literals: dict[str, str] = {}

    def env(self, env: Mapping[str, str]) -> dict[str, Any]:
        """The members for the environment of a program."""
        passed = [name for name, value in env.items() if self._host.variables and value == f"${{{name}}}"]
        written = {name: self._value(name, value) for name, value in env.items() if name not in passed}
        return {
            **({"env": written} if written else {}),
            **({self._host.variables: passed} if passed else {}),
        }

    def headers(self, headers: Mapping[str, str]) -> dict[str, Any]:
        """The members for HTTP headers."""
        written: dict[str, str] = {}
        passed: dict[str, str] = {}
        members: dict[str, Any] = {}
        for name, value in headers.items():
            reference = _REFERENCE.fullmatch(value.removeprefix("Bearer "))
            if reference and self._host.bearer_variable and name.lower() == "authorization" and value[:7] == "Bearer ":
                members[self._host.bearer_variable] = reference[1]
            elif reference and self._host.header_variables and value[:1] == "$":
                passed[name] = reference[1]
            else:
                written[name] = self._value(name, value)
        if written:
            members[self._host.headers] = written
        if passed:
            members[self._host.header_variables] = passed
        return members

    def _value(self, name: str, value: str) -> str:
        if self._host.variable:
            written = _REFERENCE.sub(lambda match: self._host.variable.replace("NAME", match[1]), value)
            if not _REFERENCE.search(value):
                self.literals[name] = written
            return written
        self.literals[name] = written = _REFERENCE.sub(self._look_up, value)
        return written

    def _look_up(self, match: re.Match[str]) -> str:
        if match[1] not in self._environ:
            text = f"{self._host.title} can't refer to variables, so the value is written: {match[1]} is not set"
            raise StartError(text)
        return self._environ[match[1]]
