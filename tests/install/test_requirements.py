"""What Gemel writes for others, and tells them to install, is Gemel, in a version that is compatible."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemel.cli import main
from gemel.install import own_command
from gemel.version import DISTRIBUTION, __version__, requirement
from tests.source import ROOT, bare_strings, read_package

#: Distributions of others that documents, messages and written files name, and what for.
OTHERS = {
    "fastapi": "the web framework of a how-to",
    "httpx": "an HTTP client of the how-to on testing with frameworks",
    "httpx2": "what TestClient of Starlette needs",
    "langchain": "the framework of an example in the guide to adapters",
    "langchain-openai": "the model of the same",
    "mangum": "the ASGI adapter of the how-to on AWS Lambda",
    "opentelemetry-exporter-otlp-proto-http": "the exporter of the how-tos on telemetry",
    "opentelemetry-sdk": "the SDK of the how-tos on telemetry",
    "pytest": "the tests of a user's project",
    "pytest-asyncio": "the same with async",
    "starlette": "the web framework of a how-to",
    "uvicorn": "the ASGI server of how-tos",
    "weather-server": "the example of the how-to on publishing, installed without an index",
    "websockets": "the library of a transport that the reference writes",
}
NAME = re.compile(r"[A-Za-z0-9._-]*[A-Za-z0-9]")
SERVER = "from gemel import Server\n\nserver = Server('weather', version='1.0')\n"
METADATA = "# /// script\n# dependencies = {}\n# ///\n"


def names(words: list[str]) -> Iterator[str]:
    """The distributions that arguments of pip or uv name: neither options nor files nor folders."""
    previous = ""
    for word in words:
        path = "/" in word or word.endswith(".whl") or word[:1] in ".-…"
        if not path and previous not in ("--target", "--platform", "--only-binary", "--with-requirements", "--project"):
            found = NAME.match(word)
            yield found[0] if found else word
        previous = word


def installed_by(text: str) -> Iterator[str]:
    """The distributions that commands in a text install."""
    text = text.replace("\\\n", " ")
    for line in re.findall(
        r"(?<![\w-])(?:pip install|uv add|uv tool install|uvx|pipx install|pipx run|--with)\s+([^\n`)|#;&]+)", text
    ):
        line = line.rstrip(".,: ")
        try:
            words = shlex.split(line)
        except ValueError:  # a quote that closes elsewhere
            words = line.replace("'", "").replace('"', "").split()
        yield from names(words)


def texts() -> Iterator[tuple[str, str]]:
    """The documents, and the strings in the code that users can see."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if path.parent.name != "decisions":
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for module in read_package():
        docstrings = bare_strings(module.tree)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
                yield module.at(node.lineno), node.value


def test_documents_and_messages_have_no_unknown_distribution_installed() -> None:
    found = [(place, name) for place, text in texts() for name in installed_by(text)]
    assert ("docs/tutorial.md", "pytest") in found, "the commands are found at all"
    unknown = [(place, name) for place, name in found if name != DISTRIBUTION and name not in OTHERS]
    assert not unknown, "is this one of ours, or does it belong into OTHERS?"


def test_the_name_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
    assert requirement() == f"{DISTRIBUTION}~={__version__}"


def test_a_new_project_requires_this_version(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path), "--name", "notes"]) == 0
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())
    assert project["project"]["dependencies"] == [requirement()]
    assert project["dependency-groups"]["dev"] == [requirement("cli"), "pytest"]
    assert set(installed_by((tmp_path / "README.md").read_text())) <= {DISTRIBUTION, *OTHERS}


@pytest.mark.parametrize(
    ("inline", "dependencies"),
    [
        (None, [requirement()]),
        (["httpx>=0.27"], [requirement(), "httpx>=0.27"]),
        (["gemel-tools", "other_gemel"], [requirement(), "gemel-tools", "other_gemel"]),
        (["gemel"], ["gemel"]),
        ([" Gemel[auth] >= 0.1"], [" Gemel[auth] >= 0.1"]),
        (["gemel @ file:///wheels/gemel.whl"], ["gemel @ file:///wheels/gemel.whl"]),
    ],
)
def test_the_bundle_of_a_file_requires_this_version_unless_its_author_says_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: list[str] | None, dependencies: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("weather.py").write_text((METADATA.format(json.dumps(inline)) if inline is not None else "") + SERVER)
    assert main(["bundle", "weather.py", "-o", "w.mcpb"]) == 0
    with zipfile.ZipFile("w.mcpb") as archive:
        project = tomllib.loads(archive.read("pyproject.toml").decode())["project"]
    assert project["dependencies"] == dependencies


def test_a_configuration_that_uv_starts_requires_this_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an environment that uvx made for one run, a host gets a command that makes one of its own."""
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{uv.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".cache" / "uv" / "archive-v0" / "x"))
    file = tmp_path / "weather.py"
    file.write_text(SERVER)
    words = own_command(str(file))
    assert words[:5] == [str(uv), "run", "--no-project", "--with", requirement()]
    assert set(installed_by(shlex.join(words))) >= {DISTRIBUTION}
