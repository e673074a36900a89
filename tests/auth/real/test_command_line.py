"""`gemel auth` and `gemel call` as processes: somebody logs in once with a real browser, and other commands use the login."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gemel.auth import JWTAuth
from tests.auth.real.browser import Page
from tests.auth.real.login import Person
from tests.auth.real.provider import AuthorizationServer, Settings, authorization_server
from tests.auth.real.servers import notes_server
from tests.ports import free_port
from tests.serving import running

PORT = free_port()
URL = f"http://127.0.0.1:{PORT}/mcp"


@pytest.fixture(scope="module")
def provider(installed_provider: None) -> Iterator[AuthorizationServer]:
    with authorization_server(Settings(resources=[URL])) as server:
        yield server


@pytest.fixture
async def url(provider: AuthorizationServer) -> AsyncIterator[str]:
    auth = JWTAuth(issuer=provider.issuer, audience=URL, required_scopes=["notes"])
    async with running(notes_server(auth=auth), "http", port=PORT) as url:
        yield url


class Shell:
    """Runs commands of one user, on a machine without a display."""

    def __init__(self, home: Path) -> None:
        self.home = home
        kept = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "BROWSER")}
        self._environment = {**kept, "HOME": str(home), "XDG_STATE_HOME": str(home), "XDG_CONFIG_HOME": str(home)}

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", "gemel", *words)
        null = asyncio.subprocess.DEVNULL
        return await asyncio.create_subprocess_exec(
            *command, env=self._environment, stdin=null, stdout=pipe, stderr=pipe
        )

    async def run(self, *words: str) -> tuple[int | None, str, str]:
        """Return the exit code and what it printed."""
        process = await self.start(*words)
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    async def log_in(self, page: Page, url: str, *words: str) -> None:
        """Log in to the page whose URL the command shows."""
        process = await self.start("auth", "login", url, *words)
        assert process.stderr is not None
        text = ""
        while (shown := re.search(r"http://\S*redirect_uri=\S+", text)) is None:
            line = await process.stderr.readline()
            assert line, text
            text += line.decode()
        await asyncio.to_thread(Person().authorize, page, shown[0], "http://localhost:")
        _, err = await process.communicate()
        assert process.returncode == 0, text + err.decode()


def check_files(home: Path, token: str) -> None:
    """What is stored can be read by its owner only, and does not show the token."""
    stored = [path for path in home.rglob("*") if path.is_file()]
    assert stored
    assert not any(token.encode() in path.read_bytes() for path in stored)
    assert not any(path.stat().st_mode & 0o077 for path in stored)


@pytest.mark.timeout(90)  # eight processes
async def test_commands_use_the_login_until_somebody_logs_out(url: str, page: Page, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    await shell.log_in(page, url)
    answers = await asyncio.gather(*(shell.run("call", url, "whoami") for _ in range(2)))
    assert [(code, out.strip()) for code, out, _ in answers] == [(0, "ada: notes")] * 2

    code, out, err = await shell.run("auth", "status", url, "--json")
    assert code == 0, err
    status = json.loads(out)
    code, out, _ = await shell.run("auth", "token", url)
    token = out.strip()
    assert code == 0
    assert token.count(".") == 2
    assert token not in json.dumps(status)
    check_files(tmp_path, token)

    assert (await shell.run("auth", "logout", url))[0] == 0
    code, out, err = await shell.run("call", url, "whoami")
    assert code != 0
    assert "gemel auth login" in err
