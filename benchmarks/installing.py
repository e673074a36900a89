"""The peers, installed by name into environments in `.cache`. Other parts of the project use them too: one lock for all."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.interop.peers import version_of

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
#: uvicorn comes with the SDK; uvloop and httptools make it as fast as it can be.
_SERVER = dict.fromkeys(("uvicorn", "uvloop", "httptools"), "")
#: What must be there, by environment. The versions are those of `make interop`.
WANTED = {
    "peers": {"mcp": version_of("peers", "mcp"), **_SERVER, "msgspec": ""},
    "fastmcp": {"fastmcp": version_of("fastmcp", "fastmcp"), "mcp": version_of("fastmcp", "mcp"), **_SERVER},
}

_VERSIONS = """
import importlib.metadata, sys
for name in sys.argv[1:]:
    try: print(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError: pass
"""


def peer_python(environment: str) -> Path:
    """The interpreter that has a peer; installs what is missing, and nothing else.

    Args:
        environment: A key of `WANTED`.
    """
    CACHE.mkdir(exist_ok=True)
    folder, wanted = CACHE / f"{environment}-venv", WANTED[environment]
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = folder / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        found = installed(python, wanted)
        missing = [
            f"{name}=={version}" if version else name
            for name, version in wanted.items()
            if name not in found or (version and found[name] != version)
        ]
        if missing:
            pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *missing]
            subprocess.run(pip, check=True)
    return python


def installed(python: Path, wanted: Iterable[str]) -> dict[str, str]:
    """The versions of these packages that this interpreter sees."""
    answer = subprocess.run([str(python), "-c", _VERSIONS, *wanted], check=True, capture_output=True, text=True)
    return dict(line.split(" ", 1) for line in answer.stdout.splitlines())
