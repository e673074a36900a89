"""`server.json`, the entry of a server in the public registry.

https://github.com/modelcontextprotocol/registry/blob/main/docs/reference/server-json/generic-server-json.md
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemel.install.metadata import EnvironmentVariable, Metadata, icons_of
from gemel.server.card import check_published

_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"


def server_json(metadata: Metadata, name: str = "", *, bundle: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Make the content of `server.json`.

    Args:
        metadata: What is published about the server.
        name: The name in the registry, such as "com.example/weather"; that of `[tool.gemel]` by default.
        bundle: `url` and `sha256` of an MCPB bundle, to be listed as a package.

    Returns:
        The content.

    Raises:
        DefinitionError: The name or the description is not what the registry demands.
    """
    info = metadata.info
    name = name or metadata.registry_name
    check_published(name, info)
    content: dict[str, Any] = {"$schema": _SCHEMA, "name": name}
    if info.title:
        content["title"] = info.title
    content |= {"description": info.description, "version": info.version}
    if info.website_url:
        content["websiteUrl"] = info.website_url
    if icons := [icon for icon in icons_of(info) if icon["src"].startswith("https://")]:  # all that it takes
        content["icons"] = icons
    if metadata.repository:
        host = re.sub(r"^https?://(www\.)?", "", metadata.repository).partition("/")[0]
        content["repository"] = {"url": metadata.repository, "source": host.removesuffix(".com").removesuffix(".org")}
    packages = [_distribution(metadata)] if metadata.project.get("name") else []
    if bundle is not None:
        packages.append(
            {
                "registryType": "mcpb",
                "identifier": bundle["url"],
                "fileSha256": bundle["sha256"],
                "transport": {"type": "stdio"},
            }
        )
    if packages:
        content["packages"] = packages
    if metadata.remotes:
        content["remotes"] = [{"type": "streamable-http", "url": url} for url in metadata.remotes]
    return content


def remaining_steps(metadata: Metadata, name: str = "") -> list[str]:
    """Say what the registry and uvx demand of the project besides `server.json`, as far as it is missing."""
    project, folder = metadata.project, metadata.folder
    name = name or metadata.registry_name
    if folder is None or not project.get("name"):
        remotes = metadata.remotes
        return [] if remotes else ["there is neither a project in pyproject.toml nor `remotes` in its [tool.gemel]"]
    steps = []
    if f"mcp-name: {name}" not in _readme(folder, project):
        steps.append(f"the registry proves ownership by the README of the package: add <!-- mcp-name: {name} --> to it")
    if project["name"] not in project.get("scripts", {}):
        steps.append(f"`uvx` runs the script of the package's name: add {project['name']} to [project.scripts]")
    return steps


def _distribution(metadata: Metadata) -> dict[str, Any]:
    """The Python distribution as a package."""
    project = metadata.project
    package: dict[str, Any] = {
        "registryType": "pypi",
        "identifier": project["name"],
        "version": str(project.get("version") or metadata.info.version),
        "runtimeHint": "uvx",
        "transport": {"type": "stdio"},
    }
    if metadata.variables:
        package["environmentVariables"] = list(map(_input, metadata.variables))
    return package


def _input(variable: EnvironmentVariable) -> dict[str, Any]:
    content: dict[str, Any] = {"name": variable.name}
    if variable.description:
        content["description"] = variable.description
    content |= {"isRequired": variable.required, "isSecret": variable.secret}
    if variable.default is not None:
        content["default"] = variable.default
    return content


def _readme(folder: Path, project: Mapping[str, Any]) -> str:
    readme = project.get("readme", "")
    if isinstance(readme, dict):
        if "text" in readme:
            return str(readme["text"])
        readme = readme.get("file", "")
    try:
        return (folder / str(readme)).read_text(encoding="utf-8", errors="replace") if readme else ""
    except OSError:
        return ""
