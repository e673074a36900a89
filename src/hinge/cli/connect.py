"""What the client commands share: from their options to a connected client."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from typing import Any

from hinge.client.client import Client
from hinge.client.targets import ADDRESSES
from hinge.errors import StartError
from hinge.transports.stream.subprocess import Shown


def client_for(options: argparse.Namespace, *, show: Callable[[str], object] | None = None, **more: Any) -> Client:
    """A client for the TARGET of a command line; `show` gets what a child process writes to standard error.

    Raises StartError for an option that doesn't fit.
    """
    target, found = target_of(options, show)
    if getattr(options, "root", None):
        more["on_roots"] = list(options.root)
    return Client(target, **{"era": options.era, **found, **more})


#: A configuration that hosts share, and which of its servers is meant.
_CONFIGURED = re.compile(r"(?!https?://|unix:|tcp://)(?P<path>\S+\.json)(?::(?P<name>.+))?")


def target_of(options: argparse.Namespace, show: Callable[[str], object] | None = None) -> tuple[Any, dict[str, Any]]:
    """The TARGET as a client takes it, and the options of its transport. Raises StartError."""
    target, found = _named(options)
    if isinstance(target, list) or (isinstance(target, str) and not target.startswith(ADDRESSES)):
        found["stderr"] = Shown(show)
    return target, found


def _named(options: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    found: dict[str, Any] = {}
    if options.header:
        if not options.target.startswith(("http://", "https://")):
            raise StartError("--header needs a URL as the target")
        found["headers"] = dict(_header(text) for text in options.header)
    entry = _CONFIGURED.fullmatch(options.target)
    if entry is not None:
        from hinge.client.group.config import pick, read_config

        target, found = pick(read_config(entry["path"]), entry["name"]).reach()
        return target, dict(found)
    return _target(options.target), found


def _target(target: str) -> str | list[str]:
    """A Python file, with or without a server's name, is run like `hinge run` does; all else is a client's own matter."""
    if " " not in target and (target.endswith(".py") or ".py:" in target):
        return [sys.executable, "-m", "hinge", "run", target]
    return target


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise StartError(f"--header {text!r} is no header: write NAME:VALUE")
    return name.strip(), value.strip()
