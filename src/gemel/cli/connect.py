"""The client that the options of a command describe."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from gemel.cli.network import URL_OPTIONS, given_option, http_options, limits_of
from gemel.cli.program.environment import program_options, refuse_program_options
from gemel.cli.program.own_program import own_program
from gemel.client.client import Client
from gemel.client.targets import command_line, is_address
from gemel.errors import StartError
from gemel.protocol.limits import DEFAULT_LIMITS, Limits
from gemel.transports.stream.options import Shown

if TYPE_CHECKING:
    from gemel.client.group.config import ServerEntry
    from gemel.protocol.eras.base import EraOption


def client_for(
    options: argparse.Namespace, *, show: Callable[[str], object] | None = None, query: str = "", **more: object
) -> Client:
    """Return a client for the TARGET of a command line.

    Args:
        options: The parsed command line.
        show: Called with what a child process writes to standard error; by default it is printed.
        query: Added to the URL of the target, if it has one: `name=value`.
        **more: Further options of Client.

    Raises:
        StartError: An option does not fit the target.
    """
    target, transport = target_of(options, show)
    if query and _is_url(target):
        parts = urlsplit(target)
        target = parts._replace(query="&".join(filter(None, (parts.query, query)))).geturl()
    if getattr(options, "root", None):
        more["on_roots"] = list(options.root)
    timeout, is_limited = getattr(options, "timeout", None), getattr(options, "is_limited", False)
    given: dict[str, Any] = {"era": options.era, **transport, **more}
    limits: Limits = given.get("limits", DEFAULT_LIMITS)
    # The limit of the whole command covers a shorter time for connecting; others are limits of each request.
    if timeout is not None and (timeout > DEFAULT_LIMITS.connect or not is_limited) and limits is DEFAULT_LIMITS:
        limits = Limits(connect=timeout)
    given["limits"] = limits_of(options, limits)
    return Client(target, **given)


def configuration_of(options: argparse.Namespace) -> str | None:
    """Return the path of a configuration if the TARGET is one without the name of a server.

    Args:
        options: The parsed command line.

    Raises:
        StartError: An option is given that fits one server only.
    """
    configured = CONFIGURED.fullmatch(options.target)
    if configured is None or configured["name"] is not None:
        return None
    names = (*URL_OPTIONS, "env", "env_file", "cwd", "program_arguments")
    if wrong := given_option(options, names):
        wrong = "-- ARGS" if wrong == "--program-arguments" else wrong
        raise StartError(f"{wrong} is for one server: name it, as in {options.target}:NAME")
    return configured["path"]


def client_of_entry(options: argparse.Namespace, entry: ServerEntry) -> Client:
    """Return a client for one of the servers of a configuration.

    Args:
        options: The parsed command line.
        entry: The server.

    Raises:
        StartError: The entry can't be used.
    """
    target, transport = _reach(options, entry)
    if _starts_program(target):
        transport["stderr"] = Shown(None)
    return Client(target, era=_era(options, entry), limits=limits_of(options), **transport)


#: A configuration file of a host, and the name of one of them.
CONFIGURED = re.compile(r"(?!https?://|unix:|tcp://)(?P<path>\S+\.(?:json|toml))(?::(?P<name>.+))?")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
#: A Python file, or a module, with the name of the server in it. `unix:path` is the address of a socket.
_PYTHON = re.compile(r"\S+\.py(:\w+)?|(?!unix:)[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def target_of(options: argparse.Namespace, show: Callable[[str], object] | None = None) -> tuple[Any, dict[str, Any]]:
    """Return the TARGET as Client takes it, and options of its transport. Raises StartError."""
    target, transport = _find_target(options)
    if _starts_program(target):
        more = program_options(options)
        if "env" in more:
            more["env"] = {**(transport.get("env") or {}), **more["env"]}
        own = [*own_program(), "run"]
        is_own = isinstance(target, list) and target[: len(own)] == own
        transport.update(more, stderr=_OwnStderr(options, show) if is_own else Shown(show))
    else:
        refuse_program_options(options)
    return target, transport


def time_limits(options: argparse.Namespace) -> Any:
    """Return the limits of one request that `--timeout` sets: those of the client may be shorter."""
    return {} if options.timeout is None else {"idle": options.timeout, "total": options.timeout}


def _find_target(options: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    entry = CONFIGURED.fullmatch(options.target)
    target: Any = options.target
    transport: dict[str, Any] = {}
    if entry is not None:
        configured = _entry(entry["path"], entry["name"])
        options.era = _era(options, configured)
        target, transport = _reach(options, configured)
    elif _is_url(target):
        transport = http_options(options, {})
        return target, transport | _login(options, transport)
    if _is_url(target):
        return target, transport
    if wrong := given_option(options, URL_OPTIONS):
        raise StartError(f"{wrong} needs a URL as the target")
    if entry is None and is_python(options):
        words = ["-m"] if options.module else []
        words += [_located(options), *(["--", *options.program_arguments] if options.program_arguments else [])]
        # A program of the user's own: it gets the whole environment.
        return [*own_program(), "run", *words], {"env": dict(os.environ)}
    return _with_arguments(options, target), transport


def _entry(path: str, name: str | None) -> ServerEntry:
    """Return the server of that name in a configuration, or the only one. Raises StartError."""
    from gemel.client.group.config import pick, read_config

    entries = read_config(path)
    enabled = [one for one, entry in entries.items() if not entry.disabled]
    if name is None and len(enabled) > 1:
        names = ", ".join(f"{path}:{one}" for one in enabled[:10])
        raise StartError(f"{path} has {len(enabled)} servers: name one of them, {names}{', …' * (len(enabled) > 10)}")
    return pick(entries, name)


def _era(options: argparse.Namespace, entry: ServerEntry) -> EraOption:
    """Return the era that `--era` fixes, else that of the entry."""
    given: EraOption = getattr(options, "era", "auto")
    return (entry.era or "auto") if given == "auto" else given


def _reach(options: argparse.Namespace, entry: ServerEntry) -> tuple[Any, dict[str, Any]]:
    """Return the target of an entry of a configuration, and options of its transport. Raises StartError."""
    target, transport = msgspec.structs.replace(entry, oauth=None, era=None).reach(_login_of_sse(options, entry))
    if _is_url(target):
        transport = http_options(options, transport)
        if entry.oauth is not False:
            transport |= _login(options, transport, entry.oauth)
    return target, transport


def _is_url(target: Any) -> bool:
    return isinstance(target, str) and target.startswith(("http://", "https://"))


def _login_of_sse(options: argparse.Namespace, entry: ServerEntry) -> dict[str, Any]:
    """Return the option `auth` for an entry whose transport is made with its options."""
    return _login(options, {}, entry.oauth) if entry.kind == "sse" and entry.oauth is not False else {}


def _login(
    options: argparse.Namespace, transport: Mapping[str, Any], oauth: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the option `auth`; nothing if the headers of the user have credentials."""
    headers = transport.get("headers") or {}
    if callable(headers) or any(name.lower() == "authorization" for name in headers):
        return {}
    from gemel.cli.login import StoredLogin

    return {"auth": StoredLogin(options, headers, oauth)}


def is_python(options: argparse.Namespace) -> bool:
    """Return whether the TARGET is a Python file or module, which `gemel run` serves."""
    return options.module or _PYTHON.fullmatch(options.target) is not None or _is_module(options)


def _is_module(options: argparse.Namespace) -> bool:
    """Return whether the TARGET is the name of a Python module, and not of a program on the PATH. Nothing is imported."""
    if _MODULE.fullmatch(options.target) is None or shutil.which(options.target) is not None:
        return False
    top = options.target.partition(".")[0]
    return PathFinder.find_spec(top, [options.cwd or os.getcwd(), *sys.path]) is not None


class _OwnStderr(Shown):
    """Standard error of `gemel run`. Its last line, if it is `gemel: …`, is why the server did not start."""

    def __init__(self, options: argparse.Namespace, show: Callable[[str], object] | None) -> None:
        super().__init__(show)
        self._options = options

    def begin(self) -> Callable[[str], object]:
        show = super().begin()

        def note(line: str) -> None:
            self._options.start_error = line.removeprefix("gemel: ") if line.startswith("gemel: ") else None
            show(line)

        return note


def _with_arguments(options: argparse.Namespace, target: object) -> Any:
    is_extended = options.program_arguments and _starts_program(target)
    return [*command_line(target), *options.program_arguments] if is_extended else target


def _located(options: argparse.Namespace) -> str:
    """Return FILE.py[:NAME] so that it is found in another working directory."""
    file, dot, name = options.target.partition(".py")
    return f"{os.path.abspath(file)}{dot}{name}" if dot and options.cwd is not None else options.target


def _starts_program(target: object) -> bool:
    return isinstance(target, list) or (isinstance(target, str) and not is_address(target))
