"""Tests and type checks of the adapters, each in the environment of its framework; exit code 1 when one fails.

python -m tests.adapters.run                 all of them; the environments are those of `python -m tests.interop.run --agents`
python -m tests.adapters.run smolagents      some, by the names of the modules
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from tests.interop.peers import ROOT, install

#: Each adapter, and the environment of its framework.
ADAPTERS = {
    "langchain": "langchain",
    "pydantic_ai": "pydantic-ai",
    "openai_agents": "openai-agents",
    "llama_index": "llamaindex",
    "google_adk": "google-adk",
    "smolagents": "smolagents",
}
_NEEDED = [
    *tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"],
    "pytest>=9.0",
    "pytest-asyncio>=1.3",
    "pytest-timeout>=2.4",
    "pydantic-monty>=1.4,<2",
]
_PIP = ["-m", "pip", "install", "-q", "--disable-pip-version-check"]
_ENVIRONMENT_OF_PYTHON = "import sysconfig; print(sysconfig.get_path('purelib'))"


def prepare(adapter: str) -> Path:
    """Install the framework and what the tests need, let it import this checkout, and return the interpreter."""
    python = install(frozenset({ADAPTERS[adapter], "peers"})).python(ADAPTERS[adapter])
    if subprocess.run(
        [python, "-c", "import msgspec, pydantic_monty, pytest_asyncio, pytest_timeout"], capture_output=True
    ).returncode:
        subprocess.run([python, *_PIP, *_NEEDED], check=True)
    packages = subprocess.run([python, "-c", _ENVIRONMENT_OF_PYTHON], capture_output=True, text=True, check=True)
    Path(packages.stdout.strip(), "gemel-checkout.pth").write_text(f"{ROOT / 'src'}\n")
    return python


def check(adapter: str) -> bool:
    """Run the tests of an adapter, and mypy over it with the types of its framework."""
    python = prepare(adapter)
    begin = time.monotonic()
    # Frameworks warn of things that are not ours. The plugins of conftest.py would need more packages.
    pytest = os.environ.get("PYTEST", "pytest")
    tests = [python, "-m", pytest, "-q", "--noconftest", "-W", "ignore", "-p", "no:cacheprovider", "-k", adapter]
    files = [
        f"tests/adapters/formats/test_{adapter}.py",
        "tests/adapters/test_agents.py",
        "tests/adapters/test_code.py",
    ]
    types = [sys.executable, "-m", "mypy", "--python-executable", python, "--follow-imports", "silent"]
    fine = [
        subprocess.run([str(word) for word in command], cwd=ROOT).returncode == 0
        for command in ([*tests, *files], [*types, f"src/gemel/adapters/{adapter}.py"])
    ]
    print(f"{adapter}: {'ok' if all(fine) else 'FAILED'}, {time.monotonic() - begin:.0f} s", flush=True)
    return all(fine)


def main() -> int:
    """Check the adapters that the command line names; return the exit code."""
    chosen = sys.argv[1:] or list(ADAPTERS)
    unknown = [name for name in chosen if name not in ADAPTERS]
    if unknown:
        print(f"adapters: FAILED: there is no adapter {unknown[0]!r}; there are {', '.join(ADAPTERS)}")
        return 2
    failed = [adapter for adapter in chosen if not check(adapter)]
    print(f"adapters: FAILED: {', '.join(failed)}" if failed else "adapters: passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
