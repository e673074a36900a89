"""What is published about a server: server.json, bundles, from the server and its pyproject.toml."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tomllib
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gemel import Client
from gemel.cli import main

SERVER = '''\
from contextlib import asynccontextmanager
from gemel import Server


@asynccontextmanager
async def database(server):
    raise RuntimeError("publishing starts nothing")
    yield


server = Server("weather", title="Weather", lifespan=database{more})


@server.tool
def forecast(city: str) -> str:
    """The weather in a city."""
    return f"{{city}}: sunny"
'''
PROJECT = """\
[project]
name = "weather-server"
version = "1.4.0"
description = "Forecasts for cities"
readme = "README.md"
requires-python = ">=3.11"
license = "MIT"
authors = [{ name = "Ada", email = "ada@example.com" }]
dependencies = ["gemel>=0.1"]

[project.urls]
Homepage = "https://example.com/weather"
"Source Code" = "https://github.com/example/weather"

[project.scripts]
weather-server = "weather:server.run"

[tool.gemel]
name = "com.example/weather"
remotes = ["https://mcp.example.com/mcp"]

[tool.gemel.env.WEATHER_TOKEN]
description = "Token of the weather service"
secret = true

[tool.gemel.env.UNITS]
default = "metric"
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project as the working directory, with what must not be published."""
    folder = tmp_path / "weather"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (folder / "weather.py").write_text(SERVER.format(more=""))
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "README.md").write_text("# Weather\n<!-- mcp-name: com.example/weather -->\n")
    for name in (".env", ".git/config", "server.key", "prod.env", "__pycache__/x.pyc", "envs/pyvenv.cfg", "data/a.log"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("secret")
    (folder / "data" / "cities.csv").write_text("Oslo")
    return folder


def printed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    """What a command prints."""
    assert main(words) == code
    output = capsys.readouterr()
    return output.out, output.err


def members(path: str) -> dict[str, bytes]:
    """The files of a bundle."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


# ---------------------------------------------------------------- server.json


def test_server_json_is_made_of_the_server_and_its_project(capsys: pytest.CaptureFixture[str]) -> None:
    output, notes = printed(capsys, "registry", "weather.py")
    assert json.loads(output) == {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": "com.example/weather",
        "title": "Weather",
        "description": "Forecasts for cities",
        "version": "1.4.0",
        "websiteUrl": "https://example.com/weather",
        "repository": {"url": "https://github.com/example/weather", "source": "github"},
        "packages": [
            {
                "registryType": "pypi",
                "identifier": "weather-server",
                "version": "1.4.0",
                "runtimeHint": "uvx",
                "transport": {"type": "stdio"},
                "environmentVariables": [
                    {
                        "name": "WEATHER_TOKEN",
                        "description": "Token of the weather service",
                        "isRequired": True,
                        "isSecret": True,
                    },
                    {"name": "UNITS", "isRequired": False, "isSecret": False, "default": "metric"},
                ],
            }
        ],
        "remotes": [{"type": "streamable-http", "url": "https://mcp.example.com/mcp"}],
    }
    assert not notes


def test_what_the_server_says_of_itself_wins(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ', version="2.0", description="Mine", website_url="https://w.com", icons=["https://w.com/i.png", "data:,x"]'
    (project / "weather.py").write_text(SERVER.format(more=more))
    content = json.loads(printed(capsys, "registry", "weather.py:server", "--name", "org.example/w")[0])
    assert (content["name"], content["version"], content["description"]) == ("org.example/w", "2.0", "Mine")
    assert content["websiteUrl"] == "https://w.com"
    assert content["icons"] == [{"src": "https://w.com/i.png"}]
    assert content["packages"][0]["version"] == "1.4.0"


def test_what_is_left_to_do_is_said(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "README.md").write_text("# Weather\n")
    (project / "pyproject.toml").write_text(PROJECT.replace("weather-server =", "other ="))
    notes = printed(capsys, "registry", "weather.py")[1]
    assert "add <!-- mcp-name: com.example/weather --> to it" in notes
    assert "add weather-server to [project.scripts]" in notes


def test_a_bundle_is_listed_with_its_digest(capsys: pytest.CaptureFixture[str]) -> None:
    url = "https://github.com/example/weather/releases/download/1.4.0/weather.mcpb"
    content = json.loads(printed(capsys, "registry", "weather.py", "--bundle-url", url)[0])
    printed(capsys, "bundle", "weather.py")
    digest = hashlib.sha256(Path("weather-1.4.0.mcpb").read_bytes()).hexdigest()
    expected = {"registryType": "mcpb", "identifier": url, "fileSha256": digest, "transport": {"type": "stdio"}}
    assert content["packages"][1] == expected


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "com.example/weather"', "", "The registry needs a name"),
        ("com.example/weather", "weather", "'weather' is not in reverse DNS form"),
        ("Forecasts for cities", "x" * 101, "The description has 101 characters"),
        ('description = "Forecasts for cities"', "", "A published server needs a description"),
        ("remotes =", "remote =", "[tool.gemel] has no key 'remote'; did you mean 'remotes'?"),
        ("secret = true", 'secret = "yes"', "[tool.gemel.env.WEATHER_TOKEN]: secret must be true or false"),
        ("[tool.gemel.env.UNITS]", '[tool.gemel.env."A B"]', "'A B' is not the name of an environment variable"),
        ("[project]", "[project", "pyproject.toml is not TOML"),
    ],
)
def test_mistakes(old: str, new: str, message: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pyproject.toml").write_text(PROJECT.replace(old, new))
    error = printed(capsys, "registry", "weather.py", code=1)[1]
    assert message in error
    assert error.count("\n") == 1


# ---------------------------------------------------------------- bundles


def test_a_bundle_has_the_project_and_no_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, "bundle", "weather.py", "-o", "w.mcpb")
    files = members("w.mcpb")
    assert list(files) == ["manifest.json", "README.md", "data/cities.csv", "pyproject.toml", "weather.py"]
    assert not any(b"secret\n" in content or content == b"secret" for content in files.values())
    manifest = json.loads(files["manifest.json"])
    assert manifest == {
        "manifest_version": "0.4",
        "name": "weather",
        "display_name": "Weather",
        "version": "1.4.0",
        "description": "Forecasts for cities",
        "author": {"name": "Ada", "email": "ada@example.com"},
        "server": {
            "type": "uv",
            "entry_point": "weather.py",
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--directory", "${__dirname}", "gemel", "run", "weather.py"],
                "env": {"WEATHER_TOKEN": "${user_config.weather_token}", "UNITS": "${user_config.units}"},
            },
        },
        "tools": [{"name": "forecast", "description": "The weather in a city."}],
        "repository": {"type": "git", "url": "https://github.com/example/weather"},
        "homepage": "https://example.com/weather",
        "license": "MIT",
        "compatibility": {"runtimes": {"python": ">=3.11"}},
        "user_config": {
            "weather_token": {
                "type": "string",
                "title": "WEATHER_TOKEN",
                "description": "Token of the weather service",
                "required": True,
                "sensitive": True,
            },
            "units": {
                "type": "string",
                "title": "UNITS",
                "description": "The environment variable UNITS",
                "required": False,
                "sensitive": False,
                "default": "metric",
            },
        },
    }


def test_the_same_sources_make_the_same_bytes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, "bundle", "weather.py", "-o", "../a.mcpb")
    os.utime(project / "weather.py", (1, 1))
    printed(capsys, "bundle", "weather.py", "-o", "../b.mcpb")
    assert (project / "../a.mcpb").read_bytes() == (project / "../b.mcpb").read_bytes()


def test_a_list_of_what_is_left_out(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / ".mcpbignore").write_text("# big\ndata/\n*.md\n")
    printed(capsys, "bundle", "weather:server", "-o", "w.mcpb")
    files = members("w.mcpb")
    assert list(files) == ["manifest.json", "pyproject.toml", "weather.py"]
    assert json.loads(files["manifest.json"])["server"]["mcp_config"]["args"][-1] == "weather:server"
    (project / ".mcpbignore").write_text("weather.py")
    assert "weather.py is left out" in printed(capsys, "bundle", "weather.py", code=1)[1]


def test_data_and_tests_are_left_out_and_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left_out = ("weather.db", "weather.db-wal", "data/old.sqlite3", "conftest.py", "test_weather.py")
    for name in (*left_out, "tests/x.py", "snapshots/a.json"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("private")
    notes = printed(capsys, "bundle", "weather.py", "-o", "w.mcpb")[1]
    assert list(members("w.mcpb")) == ["manifest.json", "README.md", "data/cities.csv", "pyproject.toml", "weather.py"]
    for name in (*left_out, "tests/", "snapshots/"):
        assert name in notes

    (project / ".mcpbignore").write_text("tests\n!old.sqlite3\n")
    notes = printed(capsys, "bundle", "weather.py", "-o", "w.mcpb")[1]
    assert "data/old.sqlite3" in members("w.mcpb")
    assert "weather.db" in notes
    assert "old.sqlite3" not in notes
    assert "tests/" not in notes


def test_databases_of_other_names_and_wheels_are_left_out(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "dev.pid").write_text("17")
    (project / "wheels").mkdir()
    for name in ("GAMES.DB", "wheels/gemel-0.1.0-py3-none-any.whl"):
        (project / name).write_text("private")
    for name in ("games.db.2026", "archive.data"):
        with closing(sqlite3.connect(project / name)) as database:
            database.execute("CREATE TABLE games (title TEXT)")
            database.commit()
    (project / "dump.sql").write_text("INSERT INTO games VALUES ('Go')")
    notes = printed(capsys, "bundle", "weather.py", "-o", "w.mcpb")[1]
    names = ["manifest.json", "README.md", "data/cities.csv", "dump.sql", "pyproject.toml", "weather.py"]
    assert list(members("w.mcpb")) == names
    for name in ("GAMES.DB", "games.db.2026", "archive.data", "wheels/gemel-0.1.0-py3-none-any.whl", "it has dump.sql"):
        assert name in notes

    (project / ".mcpbignore").write_text("!archive.data\n!*.whl\n")
    printed(capsys, "bundle", "weather.py", "-o", "w.mcpb")
    assert {"archive.data", "wheels/gemel-0.1.0-py3-none-any.whl"} <= members("w.mcpb").keys()
    assert "games.db.2026" not in members("w.mcpb")


def test_a_file_alone_brings_its_dependencies(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pyproject.toml").unlink()
    metadata = '# /// script\n# requires-python = ">=3.12"\n# dependencies = ["httpx"]\n# ///\n'
    (project / "weather.py").write_text(metadata + SERVER.format(more=', version="3"'))
    printed(capsys, "bundle", "weather.py")
    files = members("weather-3.mcpb")
    assert list(files) == ["manifest.json", "pyproject.toml", "weather.py"]
    table: dict[str, Any] = tomllib.loads(files["pyproject.toml"].decode())["project"]
    assert table["requires-python"] == ">=3.12"
    assert re.sub(r"[\d.]+", "N", table["dependencies"][0]) == "gemel~=N"
    assert table["dependencies"][1:] == ["httpx"]


def test_advice_for_authors(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pyproject.toml").write_text('[project]\nname = "w"\ndynamic = ["version"]\n')
    notes = printed(capsys, "bundle", "weather.py")[1]
    assert '`dependencies` in pyproject.toml lacks gemel: add "gemel~=0.1.0"' in notes
    assert "the version is 0" in notes


async def test_what_a_host_starts_answers(project: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """As a host: unpack, replace the references, start; uv is replaced by the present environment."""
    (project / "weather.py").write_text(SERVER.replace("raise RuntimeError", "print").format(more=""))
    with zipfile.ZipFile(io.BytesIO(_bundle_bytes(project))) as archive:
        archive.extractall(tmp_path / "installed")
        config = json.loads(archive.read("manifest.json"))["server"]["mcp_config"]
    words = [word.replace("${__dirname}", str(tmp_path / "installed")) for word in config["args"]]
    assert words[:2] == ["run", "--directory"]
    async with Client([sys.executable, "-m", *words[3:]], cwd=words[2], env={"UNITS": "metric"}) as client:
        assert (await client.call_tool("forecast", {"city": "Oslo"})).data == "Oslo: sunny"


def _bundle_bytes(project: Path) -> bytes:
    command = [sys.executable, "-m", "gemel", "bundle", "weather.py", "-o", "../w.mcpb"]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    return (project / "../w.mcpb").read_bytes()


@pytest.mark.long
@pytest.mark.timeout(120)  # npm may have to fetch the package
@pytest.mark.skipif(shutil.which("npx") is None, reason="needs Node")
def test_the_official_tool_accepts_the_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    """`mcpb validate` of the npm package @anthropic-ai/mcpb, and its unpacking of our archive."""
    tool = ["npx", "--yes", "--prefer-offline", "@anthropic-ai/mcpb@2.1.2"]
    if subprocess.run([*tool, "--version"], capture_output=True, check=False, timeout=60).returncode:
        pytest.skip("@anthropic-ai/mcpb can't be had")
    printed(capsys, "bundle", "weather.py", "-o", "w.mcpb")
    for command in (["unpack", "w.mcpb", "unpacked"], ["validate", "unpacked/manifest.json"]):
        done = subprocess.run([*tool, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (Path("unpacked") / "weather.py").read_bytes() == Path("weather.py").read_bytes()
