"""The client that the options of a command describe."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from typing import Any

from hinge.client.client import Client
from hinge.client.targets import ADDRESSES
from hinge.errors import StartError
from hinge.transports.stream.options import Shown


def client_for(options: argparse.Namespace, *, show: Callable[[str], object] | None = None, **more: Any) -> Client:
    """Return a client for the TARGET of a command line.

    Args:
        options: The parsed command line.
        show: Called with what a child process writes to standard error; by default it is printed.
        **more: Further options of Client.

    Raises:
        StartError: An option does not fit the target.
    """
    target, transport = target_of(options, show)
    if getattr(options, "root", None):
        more["on_roots"] = list(options.root)
    return Client(target, **{"era": options.era, **transport, **more})


#: A configuration file with `mcpServers`, and the name of one of them.
_CONFIGURED = re.compile(r"(?!https?://|unix:|tcp://)(?P<path>\S+\.json)(?::(?P<name>.+))?")


def target_of(options: argparse.Namespace, show: Callable[[str], object] | None = None) -> tuple[Any, dict[str, Any]]:
    """Return the TARGET as Client takes it, and options of its transport. Raises StartError."""
    target, transport = _find_target(options)
    if isinstance(target, list) or (isinstance(target, str) and not target.startswith(ADDRESSES)):
        transport["stderr"] = Shown(show)
    return target, transport


def time_limits(options: argparse.Namespace) -> Any:
    """Return the limits of a request that `--timeout` sets."""
    return {} if options.timeout is None else {"idle": options.timeout, "total": options.timeout}


def _find_target(options: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    transport: dict[str, Any] = {}
    for name in ("header", "wire"):
        if getattr(options, name) and not options.target.startswith(("http://", "https://")):
            raise StartError(f"--{name} needs a URL as the target")
    if options.header:
        transport["headers"] = dict(_header(text) for text in options.header)
    if options.wire:
        transport["wire"] = options.wire
    entry = _CONFIGURED.fullmatch(options.target)
    if entry is not None:
        from hinge.client.group.config import pick, read_config

        target, configured = pick(read_config(entry["path"]), entry["name"]).reach()
        return target, dict(configured)
    return _python_command(options.target), transport


def _python_command(target: str) -> str | list[str]:
    """Run a Python file with `hinge run`; return other targets unchanged."""
    if " " not in target and (target.endswith(".py") or ".py:" in target):
        return [sys.executable, "-m", "hinge", "run", target]
    return target


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise StartError(f"--header {text!r} is not a header: write NAME:VALUE")
    return name.strip(), value.strip()
