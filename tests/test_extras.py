"""Every extra: without it, what needs it says so when it is made or started, not when it is first used."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from gemel.version import install_command
from tests.plain_installation import PlainInstallation, required_distributions
from tests.source import ROOT

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
_OIDC = "JWTAuth(issuer='https://login.example', audience='https://notes.example/mcp')"
#: How each extra is reached: a program, or a line that begins with `gemel `. Nothing is served, and no tool is called.
DOORS: dict[str, list[str]] = {
    "pydantic": ["from pathlib import Path\ndef read(path: Path) -> str: ...\nserver.tool(read)"],
    # Spans and metrics go to the provider that a program has installed, with its own import of OpenTelemetry.
    "otel": [],
    "metrics": ["import gemel; gemel.metrics_app()", "gemel run server.py --http --port 0 --metrics"],
    "httpx2": ["from gemel import Client; Client('http://127.0.0.1/', wire='httpx2')"],
    "uvicorn": [
        "server.run('http', engine='uvicorn', port=0)",
        "gemel run server.py --http --port 0 --engine uvicorn",
    ],
    "redis": [
        "Server('s', backend='redis://127.0.0.1')",
        "from gemel.backends import RedisBackend",
    ],
    "auth": [
        f"from gemel.auth import JWTAuth; Server('s', auth={_OIDC})",
        "from gemel.auth import DPoPProofs; DPoPProofs()",
        "from gemel.auth import GitHub, OAuthProxy\n"
        "OAuthProxy(GitHub(client_id='a', client_secret='b' * 32), url='https://notes.example/mcp')",
        "from gemel.auth import DPoP; DPoP()",
        "from gemel.auth import ClientCredentials; ClientCredentials('a', private_key='b')",
    ],
    "keyring": ["from gemel.auth import FileTokenStore; FileTokenStore('logins', keyring=True)"],
    "cli": ["gemel run server.py --http --port 0 --reload"],
    "skills": [
        "server.add_skills('skills')",
        "from gemel import Client, SkillsClient; SkillsClient(Client('http://127.0.0.1/'))",
    ],
    "openapi": ["Server.from_openapi('api.yaml', base_url='http://127.0.0.1')"],
    "prefab": ["import gemel.extensions.prefab"],
    # In Python nothing is refused before a script is run: the search needs no extra.
    "code": ["gemel run server.py --code", "gemel proxy server.py --code"],
    "migrate": ["gemel migrate server.py"],
    **{
        name: [f"import gemel.adapters.{name.replace('-', '_')}"]
        for name in ("langchain", "pydantic-ai", "openai-agents", "llama-index", "google-adk", "smolagents")
    },
}
BEGIN = "from gemel import Server\nserver = Server('s')\n"


@pytest.fixture
def plain(tmp_path: Path) -> PlainInstallation:
    (tmp_path / "packages").mkdir()
    (tmp_path / "server.py").write_text(f"{BEGIN}@server.tool\ndef count() -> int:\n    return 1\n")
    (tmp_path / "api.yaml").write_text("openapi: 3.1.0\npaths: {}\n")
    (tmp_path / "skills/notes").mkdir(parents=True)
    (tmp_path / "skills/notes/SKILL.md").write_text("---\nname: notes\ndescription: Takes notes.\n---\nWrite.\n")
    return PlainInstallation(tmp_path / "packages")


def test_every_extra_has_its_doors() -> None:
    assert sorted(DOORS) == sorted(EXTRAS)


@pytest.mark.parametrize(("extra", "door"), [(extra, door) for extra, doors in DOORS.items() for door in doors])
def test_what_needs_an_extra_does_not_start_without_it(extra: str, door: str, plain: PlainInstallation) -> None:
    words = ["-m", *door.split()] if door.startswith("gemel ") else ["-c", BEGIN + door]
    done = plain.run(*words)
    assert done.returncode != 0, done.stdout
    assert any(line.endswith(install_command(extra)) for line in done.stderr.splitlines()), done.stderr


def test_a_plain_installation_serves_and_calls(plain: PlainInstallation) -> None:
    """So that what is refused above is refused for the extra alone."""
    for module in ("pydantic", "opentelemetry", "joserfc", "yaml", "pytest"):
        assert plain.run("-c", f"import {module}").returncode != 0, module
    assert {"msgspec", "cryptography"} <= required_distributions()
    done = plain.run("-m", "gemel", "list", "server.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("s, protocol ")
