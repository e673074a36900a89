"""What is published about a server, from one source: what the server says of itself, and `pyproject.toml` where there is one.

The table `[tool.gemel]` of pyproject.toml adds what neither knows: the name in the registry, the environment variables of the
server, and where it is served over HTTP.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import metadata as installed
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gemel.channel import Channel
from gemel.client.client import Client
from gemel.errors import StartError
from gemel.schema.base import NO_VERSION, Icon, Implementation
from gemel.schema.tools import Tool
from gemel.server.server import Server
from gemel.session import Session

_KEYS = ("name", "env", "remotes")
_VARIABLE_KEYS = ("description", "required", "secret", "default")


class EnvironmentVariable(NamedTuple):
    """An environment variable of a server, as `[tool.gemel.env.NAME]` declares it.

    Args:
        name: Its name.
        description: What it is for.
        required: Whether the server needs it.
        secret: Whether its value is a secret, such as a token.
        default: The value that the server assumes.
    """

    name: str
    description: str = ""
    required: bool = False
    secret: bool = False
    default: str | None = None


class Metadata(NamedTuple):
    """What is published about a server.

    Args:
        info: Name, version, title, description, website and icons.
        tools: What it offers.
        registry_name: The name in reverse DNS form, "" if there is none.
        variables: Its environment variables.
        remotes: URLs where it is served.
        folder: The folder with `pyproject.toml`; None without a project.
        project: The table `[project]`.
    """

    info: Implementation
    tools: Sequence[Tool]
    registry_name: str = ""
    variables: Sequence[EnvironmentVariable] = ()
    remotes: Sequence[str] = ()
    folder: Path | None = None
    project: Mapping[str, Any] = {}

    @property
    def repository(self) -> str:
        """The URL of the source code, "" if it is not known."""
        urls = {re.sub(r"[^a-z]", "", key.lower()): url for key, url in self.project.get("urls", {}).items()}
        return next((str(urls[key]) for key in ("repository", "source", "sourcecode", "github") if key in urls), "")


async def read_metadata(server: Server[Any], place: Path) -> Metadata:
    """Collect what is published about a server. The server is listed, not started: no lifespan is entered.

    Args:
        server: The server.
        place: Its file, or a folder: the project is the one around it.

    Returns:
        The metadata; of the server's own values and those of the project, the server's.

    Raises:
        StartError: pyproject.toml can't be read, or its table `[tool.gemel]` is wrong.
    """
    async with Client(_Listed(server)) as client:
        info, tools = (
            client.server_info or Implementation(name=server.name, version=NO_VERSION),
            await client.list_tools(),
        )
    folder = next((folder for folder in (place, *place.parents) if (folder / "pyproject.toml").is_file()), None)
    document = {} if folder is None else _read(folder / "pyproject.toml")
    project: Mapping[str, Any] = document.get("project", {})
    if not project:
        folder = None
    own = _Table(document.get("tool", {}).get("gemel", {}), "[tool.gemel]", _KEYS)
    return Metadata(
        info=_completed(info, project),
        tools=tools,
        registry_name=own.get("name", str, ""),
        variables=[_variable(name, table) for name, table in own.get("env", dict, {}).items()],
        remotes=own.get("remotes", list, []),
        folder=folder,
        project=project,
    )


class _Listed:
    """A server that a client can connect to without entering its lifespan."""

    def __init__(self, server: Server[Any]) -> None:
        self._server = server

    def serve(self, channel: Channel) -> Session:
        """Start a session over a channel."""
        return self._server.loops.here().serve(channel)


def _completed(info: Implementation, project: Mapping[str, Any]) -> Implementation:
    """What the server says of itself, completed by the project."""
    urls = {key.lower(): url for key, url in project.get("urls", {}).items()}
    version = info.version
    if version == NO_VERSION:
        version = project.get("version") or _installed_version(project.get("name", "")) or version
    return msgspec.structs.replace(
        info,
        version=str(version),
        description=info.description or project.get("description"),
        website_url=info.website_url or urls.get("homepage") or urls.get("documentation"),
    )


def _installed_version(name: str) -> str | None:
    try:
        return installed.version(name) if name else None
    except installed.PackageNotFoundError:
        return None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise StartError(f"{path} can't be read: {exc.strerror or exc}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise StartError(f"{path} is not TOML: {exc}") from exc


def _variable(name: str, table: object) -> EnvironmentVariable:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise StartError(f"[tool.gemel.env]: {name!r} is not the name of an environment variable")
    own = _Table(table, f"[tool.gemel.env.{name}]", _VARIABLE_KEYS)
    default = own.get("default", str, None)
    required, secret = own.get("required", bool, default is None), own.get("secret", bool, False)
    return EnvironmentVariable(name, own.get("description", str, ""), required, secret, default)


class _Table:
    """A table of pyproject.toml with a fixed set of keys. Raises StartError for others."""

    def __init__(self, table: object, place: str, keys: Sequence[str]) -> None:
        if not isinstance(table, dict):
            raise StartError(f"{place} must be a table")
        for key in table:
            if key not in keys:
                near = difflib.get_close_matches(key, keys, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(keys)}"
                raise StartError(f"{place} has no key {key!r}; {hint}")
        self._table, self._place = table, place

    def get(self, key: str, kind: type, default: Any) -> Any:
        """The value of a key. Raises StartError if it is not of that type."""
        value = self._table.get(key, default)
        if value is not default and not isinstance(value, kind):
            raise StartError(f"{self._place}: {key} must be {_KINDS[kind]}")
        return value


_KINDS: Mapping[type, str] = {
    str: "a string",
    bool: "true or false",
    dict: "a table",
    list: "a list of strings",
}


def icons_of(info: Implementation) -> list[dict[str, Any]]:
    """Return the icons as JSON has them."""
    icons: list[Icon] = info.icons or []
    return [msgspec.to_builtins(icon) for icon in icons]
