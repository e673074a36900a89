"""The peers, installed by name into `.cache/peers-venv`. Other parts of the project use it too: one lock for all."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

from tests.interop.peers import version_of

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
PEERS = CACHE / "peers-venv"
#: What must be there. The SDK is that of `make interop`; uvicorn comes with it, uvloop and httptools make it as fast as it can be.
WANTED = {"mcp": version_of("peers", "mcp"), "uvicorn": "", "uvloop": "", "httptools": "", "msgspec": ""}

_VERSIONS = """
import importlib.metadata, sys
for name in sys.argv[1:]:
    try: print(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError: pass
"""


def peers_python() -> Path:
    """The interpreter that has the peers; installs what is missing, and nothing else."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "peers-venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = PEERS / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(PEERS)], check=True)
        found = installed(python)
        missing = [
            f"{name}=={version}" if version else name
            for name, version in WANTED.items()
            if name not in found or (version and found[name] != version)
        ]
        if missing:
            pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *missing]
            subprocess.run(pip, check=True)
    return python


def installed(python: Path) -> dict[str, str]:
    """The versions of the wanted packages that this interpreter sees."""
    answer = subprocess.run([str(python), "-c", _VERSIONS, *WANTED], check=True, capture_output=True, text=True)
    return dict(line.split(" ", 1) for line in answer.stdout.splitlines())
