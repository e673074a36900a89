"""Installs the foreign peers named in peers.toml into `.cache/` and knows where their programs lie.

Everything comes by package name through the ordinary npm and pip clients. Knows nothing of the protocol or of Gemel.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
VERSIONS = Path(__file__).with_name("peers.toml")
FOREIGN = Path(__file__).with_name("foreign")
_TABLE = tomllib.loads(VERSIONS.read_text())
GROUPS = frozenset(("node", "examples", *_TABLE["python"]))
REVISIONS: dict[str, str] = _TABLE["revisions"]
OLD_SDKS: dict[str, tuple[str, tuple[str, ...]]] = {
    name: (group["revision"], tuple(group.get("transports", ("stdio", "http", "sse"))))
    for name, group in _TABLE["python"].items()
    if "revision" in group
}
"""The SDKs of the handshake era by name: the newest revision that each knows, and its transports."""
AGENTS: tuple[str, ...] = tuple(_TABLE["agents"])
"""The agent frameworks whose own clients meet our server."""
ADAPTED: tuple[str, ...] = (*AGENTS, *_TABLE["adapters"])
"""All agent frameworks."""
IMPORTS = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
"""Where a child finds this checkout, and no other one that may be installed."""


@dataclass(frozen=True, slots=True)
class Peers:
    """Where the installed peers are."""

    node: Path
    node_modules: Path
    peers_python: Path
    examples: Path

    def python(self, group: str) -> Path:
        """The interpreter of a group of Python packages, or of an agent framework."""
        directory = f"{group}-venv" if group in ADAPTED else _TABLE["python"][group]["directory"]
        return Path(CACHE, directory, "bin", "python")

    @property
    def conformance(self) -> list[str]:
        """The command line of the official conformance suite."""
        return [str(self.node), str(self.node_modules / "@modelcontextprotocol/conformance/dist/index.js")]

    @property
    def inspector(self) -> list[str]:
        """The command line of the Inspector's scriptable client."""
        return [str(self.node), str(self.node_modules / ".bin/mcp-inspector"), "--cli"]

    @property
    def everything(self) -> list[str]:
        """The command line of the reference server; a transport name follows."""
        return [str(self.node), str(self.node_modules / ".bin/mcp-server-everything")]

    @property
    def time_server(self) -> list[str]:
        """The command line of the packaged time server (stdio)."""
        return [str(self.peers_python.with_name("mcp-server-time")), "--local-timezone", "UTC"]

    @property
    def fetch_server(self) -> list[str]:
        """The command line of the packaged fetch server (stdio)."""
        return [str(self.peers_python.with_name("mcp-server-fetch"))]

    @property
    def filesystem(self) -> list[str]:
        """The command line of the reference server for files (stdio); a directory follows."""
        return [str(self.node), str(self.node_modules / ".bin/mcp-server-filesystem")]

    @property
    def memory(self) -> list[str]:
        """The command line of the reference server for a graph of knowledge (stdio)."""
        return [str(self.node), str(self.node_modules / ".bin/mcp-server-memory")]


def locate() -> Peers:
    """Where the peers are once `install` has run."""
    modules = CACHE / "node" / "node_modules"
    return Peers(
        node=modules / ".bin" / "node",
        node_modules=modules,
        peers_python=CACHE / "peers-venv" / "bin" / "python",
        examples=CACHE / "python-sdk" / "examples",
    )


def version_of(group: str, package: str) -> str:
    """The version of a package: of the group `node`, or of a group of Python packages."""
    packages: dict[str, str] = (_TABLE if group == "node" else _TABLE["python"])[group]["packages"]
    return packages[package]


def install(only: frozenset[str] = GROUPS) -> Peers:
    """Install what is missing or has another version than peers.toml says; do nothing otherwise.

    `only` names the groups; agent frameworks are installed when they are named. Raises `SystemExit` with the installer's
    last words when it fails.
    """
    versions = _TABLE
    CACHE.mkdir(exist_ok=True)
    if "node" in only:
        directory = CACHE / versions["node"]["directory"]
        with _one_installer_at_a_time(directory):
            _install_node(versions["node"]["packages"], directory)
    pythons = {name: (group["directory"], group["packages"]) for name, group in versions["python"].items()}
    frameworks = versions["agents"] | versions["adapters"]
    pythons |= {name: (f"{name}-venv", packages) for name, packages in frameworks.items()}
    for name, (place, packages) in pythons.items():
        if name in only:
            directory = CACHE / place
            with _one_installer_at_a_time(directory):
                _install_python(packages, directory)
    if "examples" in only:
        group = versions["examples"]
        directory = CACHE / group["directory"]
        with _one_installer_at_a_time(directory):
            _install_examples(group["package"], group["version"], directory)
    return locate()


@contextmanager
def _one_installer_at_a_time(directory: Path) -> Iterator[None]:
    with directory.with_name(directory.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install_node(packages: Mapping[str, str], directory: Path) -> None:
    """The packages into one node_modules, node itself (newer than what most systems have) among them."""
    if _is_current(directory, packages):
        return
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("npm was not found: the Node peers and the conformance suite need it (apt install npm)")
    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / "package.json").exists():
        (directory / "package.json").write_text(json.dumps({"private": True, "type": "module"}))
    wanted = [f"{name}@{version}" for name, version in packages.items()]
    _run([npm, "install", "--no-audit", "--no-fund", "--save-exact", *wanted], directory)
    _mark_current(directory, packages)


def script(name: str) -> Path:
    """The path from which the foreign script `name` is to be run.

    ES imports look for node_modules beside and above the importing file, so .mjs scripts are copied next to it.
    """
    source = FOREIGN / name
    return copy_script(source) if source.suffix == ".mjs" else source


def copy_script(source: Path) -> Path:
    """Copy a .mjs script to where its imports find node_modules, and return its new path."""
    copy = CACHE / "node" / "scripts" / source.name
    if not copy.exists() or copy.read_bytes() != source.read_bytes():
        copy.parent.mkdir(parents=True, exist_ok=True)
        fresh = copy.with_suffix(f".{os.getpid()}.tmp")
        fresh.write_bytes(source.read_bytes())
        fresh.replace(copy)
    return copy


def _install_python(packages: Mapping[str, str], directory: Path) -> None:
    """The packages into a virtual environment, bytecode included, so that start-up is quick.

    An environment that is there is added to and never removed: other parts of the project may use it too.
    """
    if _is_current(directory, packages):
        return
    if not (directory / "bin/python").exists():
        _run([sys.executable, "-m", "venv", str(directory)], ROOT)
    wanted = [name if version == "*" else f"{name}=={version}" for name, version in packages.items()]
    _run([str(directory / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted], ROOT)
    _mark_current(directory, packages)


def _install_examples(package: str, version: str, directory: Path) -> None:
    """The folder `examples` of a package's source distribution."""
    if _is_current(directory, {package: version}):
        return
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
    _run([*pip, "--no-binary", package, f"{package}=={version}"], directory)
    (archive,) = directory.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        for member in source:
            member.name = member.name.partition("/")[2]
            if member.name.startswith("examples/"):
                source.extract(member, directory, filter="data")
    _mark_current(directory, {package: version})


def _run(command: list[str], directory: Path) -> None:
    print(f"installing: {' '.join(command[-8:])}", file=sys.stderr, flush=True)
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed with {done.returncode} in {directory}:\n{done.stderr[-3000:]}")


def _fingerprint(packages: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(packages, sort_keys=True).encode()).hexdigest()


def _is_current(directory: Path, packages: Mapping[str, str]) -> bool:
    mark = directory / "installed.sha256"
    return mark.exists() and mark.read_text() == _fingerprint(packages)


def _mark_current(directory: Path, packages: Mapping[str, str]) -> None:
    (directory / "installed.sha256").write_text(_fingerprint(packages))


if __name__ == "__main__":
    chosen = frozenset(sys.argv[1:]) or GROUPS
    found = install(chosen)
    print(json.dumps({"conformance": found.conformance, "inspector": found.inspector}, indent=1))
