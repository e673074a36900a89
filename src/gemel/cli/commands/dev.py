"""`gemel dev`: a web page to look at a server, try it and debug it."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gemel.cli.connect import CONFIGURED, is_python, target_of
from gemel.cli.login import StoredLogin, command_oauth
from gemel.cli.network import network_of
from gemel.cli.program.load import package_folder
from gemel.cli.program.reload import watch_changes
from gemel.client.terminal.display import is_terminal
from gemel.dev.serve import serve_dev
from gemel.dev.target import DevTarget
from gemel.dev.wire import is_secret
from gemel.errors import StartError
from gemel.options import check_option, near_file, options_of
from gemel.transports.http.server.options import HttpOptions
from gemel.version import missing_extra


async def run(options: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    options.no_login = True  # the page starts logins
    if options.port is not None:
        check_option("port", options.port, options_of(HttpOptions)["port"].check)
    await serve_dev(
        _target(options),
        era=options.era,
        host=options.host,
        port=options.port,
        open_browser=not options.no_open and is_terminal(sys.stdout),
    )
    return 0


def _target(options: argparse.Namespace) -> DevTarget:
    def connect(show: Callable[[str], object]) -> tuple[Any, dict[str, Any]]:
        return target_of(options, show)

    target, transport = connect(lambda line: None)  # a wrong option is reported now
    folder = watched = None
    if is_python(options):
        path, dot, _ = options.target.partition(".py")
        if dot and not options.module and not Path(path + dot).is_file():
            raise StartError(f"No such file: {path}{dot}{near_file(path + dot)}")
        folder = Path(options.cwd or ".").resolve() if options.module else Path(options.target).resolve().parent
        watched = folder if options.module else package_folder(Path(path + dot))
    watches = folder is not None and not options.no_reload
    if watches and find_spec("watchfiles") is None:
        print(f"gemel: {missing_extra('to reload when a file changes needs', 'cli')}", file=sys.stderr)
        watches = False
    logins: dict[str, Any] = {}
    if isinstance(login := transport.get("auth"), StoredLogin):
        logins = {"authorize": partial(command_oauth, options=login.oauth), "network": network_of(options)}
    return DevTarget(
        name=_name(options),
        open=connect,
        words=_words(options),
        arguments=options.program_arguments,
        place=options.target if folder is not None or isinstance(target, str) else shlex.join(target),
        is_own=folder is not None,
        changes=partial(watch_changes, watched) if watches and watched is not None else None,
        lock=None if folder is None else folder / "gemel.lock",
        **logins,
    )


def _words(options: argparse.Namespace) -> list[str]:
    """Return the TARGET with its options, without secrets."""
    words = [options.target] if not options.module else ["-m", options.target]
    for header in options.header:
        name, _, value = header.partition(":")
        words += ["--header", f"{name}:{'…' if is_secret(name) else value}"]
    for cookie in options.cookie:
        words += ["--cookie", f"{cookie.partition('=')[0]}=…"]
    for name in ("ca", "client_cert"):
        if value := getattr(options, name):
            words += [f"--{name.replace('_', '-')}", value]
    for variable in options.env:
        words += ["--env", variable.partition("=")[0]]
    for file in options.env_file:
        words += ["--env-file", file]
    return [*words, *(["--cwd", options.cwd] if options.cwd is not None else [])]


def _name(options: argparse.Namespace) -> str:
    """Return a short name: that of the file, host, configuration or program."""
    target: str = options.target
    if target.startswith(("http://", "https://")):
        return urlsplit(target).netloc.rpartition("@")[2]
    if (configured := CONFIGURED.fullmatch(target)) is not None:
        return configured["name"] or Path(configured["path"]).stem
    if is_python(options):
        return Path(target.rpartition(".py")[0] or target).name
    return target
