"""MCPB bundles: a zip archive with a server, `manifest.json` and `pyproject.toml`, which a host installs with a click.

The host makes the environment with uv, from pyproject.toml (server type "uv" of manifest 0.4).
https://github.com/modelcontextprotocol/mcpb/blob/main/MANIFEST.md
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import json
import os
import re
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gemel.errors import StartError
from gemel.install.metadata import EnvironmentVariable, Metadata
from gemel.schema.base import NO_VERSION
from gemel.user_files import path_within
from gemel.version import DISTRIBUTION, requirement

#: Files and folders that are never in a bundle: environments, caches, results of builds, and what often holds secrets.
_EXCLUDED = (
    *(".*", "__pycache__", "*.pyc", "node_modules", "venv", "env", "build", "dist", "*.egg-info", "*.mcpb"),
    *(
        "*.pem",
        "*.key",
        "*.p12",
        "*.pfx",
        "id_rsa*",
        "id_ed25519*",
        "*.env",
        "secrets.*",
        "credentials*.json",
        "*.log",
        "*.pid",
    ),
)
#: Data that a server keeps beside its program, wheels, and tests with what they compare. Their names are among the notes.
_NAMED = (
    *("*.db", "*.db3", "*.sqlite", "*.sqlite3", "*.duckdb", "*.mdb", "*.rdb"),
    *("*-journal", "*-wal", "*-shm", "*.wal", "*.bak"),
    "*.whl",
    *("conftest.py", "test_*.py", "*_test.py", "/test", "/tests", "/snapshots"),
)
#: The first bytes of an SQLite database: https://www.sqlite.org/fileformat.html#magic_header_string
_SQLITE = b"SQLite format 3\0"
_IGNORE_FILE = ".mcpbignore"
#: The beginning of the calendar of zip files: the same sources make the same archive.
_TIME = (1980, 1, 1, 0, 0, 0)
#: The most bytes of all files together.
_MAX_BYTES = 256 * 1024 * 1024
_SCRIPT = re.compile(r"(?m)^# /// script$\n(?P<lines>(?:^#(?: .*)?$\n)+)^# ///$")
#: The name at the beginning of a requirement (PEP 508).
_REQUIRED_NAME = re.compile(r"\s*([A-Za-z0-9._-]*[A-Za-z0-9])")


class Bundle(NamedTuple):
    """A bundle.

    Args:
        content: The archive.
        names: The files in it.
        notes: What its author should know.
    """

    content: bytes
    names: Sequence[str]
    notes: Sequence[str]

    @property
    def sha256(self) -> str:
        """The digest that `server.json` wants."""
        return hashlib.sha256(self.content).hexdigest()


def make_bundle(metadata: Metadata, target: str) -> Bundle:
    """Make the bundle of a server.

    In a project it has all files of the project's folder, except hidden ones, environments, caches, build results, keys,
    databases, wheels, tests, and what `.mcpbignore` lists. A line `!PATTERN` there includes what is excluded otherwise. A file
    without a project is bundled alone, with a pyproject.toml of its inline metadata.

    Args:
        metadata: What is published about the server.
        target: `FILE.py[:NAME]` or `MODULE:NAME`, as `gemel run` takes it.

    Returns:
        The bundle; the same sources make the same bytes.

    Raises:
        StartError: The file is outside the project, or the files are too large.
    """
    notes: list[str] = []
    path, suffix = _split(target)
    if metadata.folder is None:
        if path is None:
            raise StartError("A module can only be bundled with its project: there is no pyproject.toml with [project]")
        files = {path.name: path.read_bytes(), "pyproject.toml": _pyproject(metadata, path).encode()}
        entry_point, words = path.name, [f"{path.name}{suffix}"]
    else:
        left_out: list[str] = []
        files = dict(_project_files(metadata.folder, left_out))
        if left_out:
            notes.append(
                f"left out as data, wheels or tests: {', '.join(left_out)}; to include one, write `!NAME` into {_IGNORE_FILE}"
            )
        if scripts := [name for name in files if name.lower().endswith(".sql")]:
            notes.append(f"it has {', '.join(scripts)}: if one is a dump of a database, list it in {_IGNORE_FILE}")
        if not _needs_gemel(metadata.project.get("dependencies", ())):
            notes.append(f"`dependencies` in pyproject.toml lacks {DISTRIBUTION}: add {json.dumps(requirement())}")
        entry_point, words = _located(path, target, suffix, metadata.folder, files)
    manifest = _manifest(metadata, entry_point, words)
    if metadata.info.version == NO_VERSION:
        notes.append("the version is 0: set Server(version=…), or `version` in pyproject.toml")
    files["manifest.json"] = (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode()
    return Bundle(_archive(files), sorted(files), notes)


def _split(target: str) -> tuple[Path | None, str]:
    """The file of a target and what follows it; None for a module."""
    file, dot, name = target.partition(".py")
    if not dot or name[:1] not in ("", ":"):
        return None, ""
    return Path(os.path.abspath(f"{file}.py")), name


def _located(
    path: Path | None, target: str, suffix: str, folder: Path, files: dict[str, bytes]
) -> tuple[str, list[str]]:
    """The entry point, and the target for `gemel run` in the project's folder."""
    if path is None:
        module = target.partition(":")[0].replace(".", "/")
        names = [f"{root}{module}{end}" for root in ("", "src/") for end in (".py", "/__init__.py")]
        return next((name for name in names if name in files), "pyproject.toml"), [target]
    try:
        name = path.relative_to(folder.absolute()).as_posix()
    except ValueError:
        raise StartError(f"{path} is not in the project {folder}") from None
    if name not in files:
        raise StartError(
            f"{name} is left out of the bundle: rename it, or write `!{Path(name).name}` into {_IGNORE_FILE}"
        )
    return name, [f"{name}{suffix}"]


def _manifest(metadata: Metadata, entry_point: str, words: list[str]) -> dict[str, Any]:
    info, project = metadata.info, metadata.project
    author = next((author for author in project.get("authors", ()) if author.get("name")), {"name": info.name})
    manifest: dict[str, Any] = {
        "manifest_version": "0.4",
        "name": re.sub(r"[^A-Za-z0-9._-]+", "-", info.name),
        "display_name": info.display_name,
        "version": info.version,
        "description": info.description or info.display_name,
        "author": {key: author[key] for key in ("name", "email") if key in author},
        "server": {
            "type": "uv",
            "entry_point": entry_point,
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--directory", "${__dirname}", "gemel", "run", *words],
                "env": {variable.name: f"${{user_config.{_key(variable)}}}" for variable in metadata.variables},
            },
        },
        "tools": [
            {"name": tool.name, **({"description": tool.description} if tool.description else {})}
            for tool in metadata.tools
        ],
    }
    if metadata.repository:
        manifest["repository"] = {"type": "git", "url": metadata.repository}
    if info.website_url:
        manifest["homepage"] = info.website_url
    if isinstance(project.get("license"), str):
        manifest["license"] = project["license"]
    if project.get("keywords"):
        manifest["keywords"] = list(project["keywords"])
    if project.get("requires-python"):
        manifest["compatibility"] = {"runtimes": {"python": project["requires-python"]}}
    if metadata.variables:
        manifest["user_config"] = {_key(variable): _question(variable) for variable in metadata.variables}
    return manifest


def _key(variable: EnvironmentVariable) -> str:
    return variable.name.lower()


def _question(variable: EnvironmentVariable) -> dict[str, Any]:
    """What the host asks its user for."""
    question: dict[str, Any] = {
        "type": "string",
        "title": variable.name,
        "description": variable.description or f"The environment variable {variable.name}",
        "required": variable.required,
        "sensitive": variable.secret,
    }
    if not variable.required:  # so that the reference is never left unreplaced
        question["default"] = variable.default or ""
    return question


def _pyproject(metadata: Metadata, path: Path) -> str:
    """A pyproject.toml for a file, with the dependencies of its inline metadata (PEP 723)."""
    script = _SCRIPT.search(path.read_text(encoding="utf-8"))
    table: dict[str, Any] = {}
    if script is not None:
        lines = (line[2:] for line in script["lines"].splitlines())
        try:
            table = tomllib.loads("\n".join(lines))
        except tomllib.TOMLDecodeError as exc:
            raise StartError(f"{path}: the inline metadata is not TOML: {exc}") from None
    dependencies = table.get("dependencies", [])
    if not _needs_gemel(dependencies):
        dependencies = [requirement(), *dependencies]
    name = re.sub(r"[^A-Za-z0-9]+", "-", metadata.info.name).strip("-") or "server"
    return "\n".join(
        [
            "[project]",
            f"name = {json.dumps(name)}",
            f"version = {json.dumps(metadata.info.version)}",
            f"requires-python = {json.dumps(table.get('requires-python', '>=3.11'))}",
            f"dependencies = {json.dumps(dependencies)}",
            "",
        ]
    )


def _needs_gemel(dependencies: Sequence[Any]) -> bool:
    """Whether one of the requirements (PEP 508) is on this distribution."""
    names = (_REQUIRED_NAME.match(str(dependency)) for dependency in dependencies)
    return any(found is not None and found[1].lower() == DISTRIBUTION for found in names)


def _project_files(folder: Path, left_out: list[str]) -> Iterator[tuple[str, bytes]]:
    """The files of a project by name; the names of data, wheels and tests are added to `left_out`.

    Symbolic links to folders are not followed; those that lead out are refused.
    """
    own = _ignored(folder)
    size = 0

    def included(path: Path, *, is_folder: bool = False) -> bool:
        if not _excludes([*_EXCLUDED, *_NAMED, *own], path):
            return True
        if not _excludes([*_EXCLUDED, *own], path):
            left_out.append(path.as_posix() + "/" * is_folder)
        return False

    for place, folders, names in os.walk(folder):
        inside = Path(place).relative_to(folder)
        folders[:] = sorted(
            name
            for name in folders
            if included(inside / name, is_folder=True) and not (Path(place) / name / "pyvenv.cfg").exists()
        )
        for name in sorted(names):
            if not included(inside / name):
                continue
            content = path_within(folder, inside / name).read_bytes()
            if content.startswith(_SQLITE) and _excludes(["*", *own], inside / name):
                left_out.append((inside / name).as_posix())
                continue
            size += len(content)
            if size > _MAX_BYTES:
                raise StartError(
                    f"The project has more than {_MAX_BYTES >> 20} MB: list what to leave out in {_IGNORE_FILE}"
                )
            yield (inside / name).as_posix(), content


def _ignored(folder: Path) -> list[str]:
    """The patterns of `.mcpbignore`, one a line; a pattern with a slash is relative to the project."""
    try:
        lines = (folder / _IGNORE_FILE).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [line.strip().rstrip("/") for line in lines if line.strip() and not line.startswith("#")]


def _excludes(patterns: Sequence[str], path: Path) -> bool:
    """Whether the last pattern that matches excludes the file or folder; one with `!` before it includes. Case is ignored."""
    name, whole = path.name.lower(), path.as_posix().lower()
    excluded = False
    for pattern in map(str.lower, patterns):
        bare = pattern.removeprefix("!")
        if fnmatch.fnmatchcase(whole if "/" in bare else name, bare.removeprefix("/")):
            excluded = bare == pattern
    return excluded


def _archive(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files, key=lambda name: (name != "manifest.json", name)):
            member = zipfile.ZipInfo(name, _TIME)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = 0o644 << 16
            archive.writestr(member, files[name])
    return stream.getvalue()
