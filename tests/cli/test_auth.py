"""`gemel auth`, and commands that use its logins, as real processes against servers on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.auth.double import AuthDouble, Reply
from tests.quick_commands import QUICK
from tests.transports.scripted_http import Asked

#: A browser: it opens the page of the login and follows its redirect, which ends at the callback server of the command.
BROWSER = "import sys, urllib.request; urllib.request.urlopen(sys.argv[-1], timeout=10).read()"


class Done(NamedTuple):
    code: int
    stdout: str
    stderr: str


class Shell:
    """Runs commands of one user, who has a browser."""

    def __init__(self, home: Path) -> None:
        script = home / "browser.py"
        script.write_text(BROWSER)
        keep = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        self.environment = {
            **keep,
            "HOME": str(home),
            "XDG_STATE_HOME": str(home),
            "LOCALAPPDATA": str(home),
            "BROWSER": f"{sys.executable} {script} %s",
        }
        self.home = home

    async def gemel(self, *words: str, stdin: bytes = b"") -> Done:
        done = await asyncio.to_thread(QUICK.run, *words, env=self.environment, stdin=stdin.decode())
        return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
async def double() -> AsyncIterator[AuthDouble]:
    async with AuthDouble() as made:
        yield made


async def test_a_login_is_used_by_other_commands_until_it_ends(shell: Shell, double: AuthDouble) -> None:
    done = await shell.gemel("auth", "status", double.url)
    assert (done.code, done.stdout) == (
        1,
        f"Nobody is logged in to {double.url}: gemel auth login {double.url} logs in\n",
    )
    done = await shell.gemel("auth", "login", double.url, "--scope", "notes")
    assert done.code == 0, done.stderr
    assert done.stderr.splitlines()[-1] == f"Logged in to {double.issuer} with the scopes notes."
    done = await shell.gemel("call", double.url, "read")
    assert (done.code, done.stdout) == (0, "notes\n"), done.stderr
    status = json.loads((await shell.gemel("auth", "status", double.url, "--json")).stdout)
    assert (status["loggedIn"], status["issuer"], status["scopes"]) == (True, double.issuer, ["notes"])
    assert 3500 < status["expiresIn"] <= 3600
    token = (await shell.gemel("auth", "token", double.url)).stdout.strip()
    assert token in double.tokens
    text = (await shell.gemel("auth", "status", double.url)).stdout
    assert text.startswith(f"Logged in to {double.url}\nissuer: {double.issuer}\n")
    assert token not in text
    assert (await shell.gemel("auth", "logout", double.url)).code == 0
    assert (await shell.gemel("auth", "status", double.url)).code == 1
    assert double.paths(double.authority).count("/authorize") == 1


async def test_an_expired_token_is_refreshed(shell: Shell, double: AuthDouble) -> None:
    double.lifetime = 0
    assert (await shell.gemel("auth", "login", double.url)).code == 0
    double.lifetime = 3600
    done = await shell.gemel("call", double.url, "read")
    assert done.code == 0, done.stderr
    first, *others = [form["grant_type"] for form in double.forms("/token")]
    assert (first, set(others)) == ("authorization_code", {"refresh_token"})


async def test_what_an_authorization_server_needs_is_said_with_options(shell: Shell, double: AuthDouble) -> None:
    """As Entra ID and Google: no `resource`, PKCE that is not announced, a further parameter, an issuer with two names."""
    double.clients["mine"] = {"redirect_uris": ["*"], "client_secret": None}
    del double.metadata["code_challenge_methods_supported"]
    double.resource_metadata["authorization_servers"] = [f"{double.issuer}/"]
    right = double.answer_token

    def answer(asked: Asked) -> Reply:
        if b"resource=" in asked.body:
            return Reply(400, {"error": "invalid_target"})
        if b"refresh_token=" in asked.body:
            return right(asked)
        return Reply(200, dict(zip(("access_token", "refresh_token"), double.grant("notes"), strict=True)))

    double.change("/token", answer)
    words = ["auth", "login", double.url, "--client-id", "mine", "--issuer", f"{double.issuer}/"]
    done = await shell.gemel(*words)
    assert (done.code, double.opened) == (1, [])
    words += [
        "--accept-issuer",
        double.issuer,
        "--resource",
        "none",
        "--assume-pkce",
        "--parameter",
        "access_type=offline",
    ]
    done = await shell.gemel(*words)
    assert done.code == 0, done.stderr
    asked = next(asked for asked in double.authority.asked if asked.path.startswith("/authorize"))
    assert "access_type=offline" in asked.path
    double.tokens.clear()
    done = await shell.gemel("call", double.url, "read")
    assert (done.code, done.stdout) == (0, "notes\n"), done.stderr


@pytest.mark.parametrize("refusal", [Reply(400, {"error": "invalid_grant"}), Reply(401, b"<html>")])
async def test_a_registered_client_is_named_once(
    shell: Shell, double: AuthDouble, tmp_path: Path, refusal: Reply
) -> None:
    """It logs in again also after its login was refused, and no other one is registered in its place."""
    double.clients["mine"] = {"redirect_uris": ["*"], "client_secret": "its secret"}
    (tmp_path / "secret").write_text("its secret\n")
    words = ["auth", "login", double.url, "--client-id", "mine", "--client-secret-file", str(tmp_path / "secret")]
    double.lifetime = 0
    assert (await shell.gemel(*words)).code == 0
    right = double.answer_token
    double.change("/token", lambda asked: refusal if b"grant_type=refresh_token" in asked.body else right(asked))
    double.lifetime = 3600
    done = await shell.gemel("auth", "login", double.url)
    assert done.code == 0, done.stderr
    assert list(double.clients) == ["mine"]
    done = await shell.gemel("call", double.url, "read")
    assert done.code == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("login", "URL", "--assume-pkce"), "--assume-pkce needs --issuer"),
        (("login", "URL", "--issuer", "https://a.example", "--parameter", "x"), "is not NAME=VALUE"),
        (("status", "URL", "--resource", "none"), "--resource is for gemel auth login"),
    ],
)
async def test_an_option_that_can_not_work_is_an_error(words: tuple[str, ...], text: str, shell: Shell) -> None:
    done = await shell.gemel("auth", *(word.replace("URL", "http://127.0.0.1:1/mcp") for word in words))
    assert (done.code != 0, text in done.stderr) == (True, True), done.stderr


@pytest.mark.parametrize("answer", [Reply(503), Reply(401, b"<html>"), Reply(200, {"ok": False})])
async def test_a_login_that_can_not_be_refreshed_is_made_anew(shell: Shell, double: AuthDouble, answer: Reply) -> None:
    double.lifetime = 0
    assert (await shell.gemel("auth", "login", double.url)).code == 0
    right = double.answer_token
    double.change("/token", lambda asked: answer if b"grant_type=refresh_token" in asked.body else right(asked))
    done = await shell.gemel("call", double.url, "read")
    assert f"gemel auth login {double.url}" in done.stderr
    double.lifetime = 3600
    done = await shell.gemel("auth", "login", double.url)
    assert done.code == 0, done.stderr
    assert (await shell.gemel("call", double.url, "read")).code == 0


@pytest.mark.parametrize("words", [("list",), ("call", "read"), ("read", "x://y"), ("ping",)])
async def test_without_a_terminal_nobody_is_asked(words: tuple[str, ...], shell: Shell, double: AuthDouble) -> None:
    done = await shell.gemel(words[0], double.url, *words[1:])
    assert done.code == 1
    advice = f"Run gemel auth login {double.url}, or give a token with --header on the command line"
    assert done.stderr == f"gemel: {double.url} wants a login (HTTP 401): this command starts none. {advice}\n"
    assert "/register" not in double.paths(double.authority)
    assert "/authorize" not in double.paths(double.authority)


async def test_a_header_of_the_user_is_used_in_place_of_a_login(shell: Shell, double: AuthDouble) -> None:
    await shell.gemel("auth", "login", double.url)
    token, _ = double.grant("mine")
    done = await shell.gemel("call", double.url, "read", "--header", f"Authorization: Bearer {token}")
    assert (done.code, done.stdout) == (0, "mine\n")
    done = await shell.gemel("call", double.url, "read", "--header", "Authorization: Bearer wrong")
    assert done.code == 1
    assert "401" in done.stderr


async def test_the_address_of_the_redirect_is_pasted(shell: Shell, double: AuthDouble) -> None:
    command = (sys.executable, "-m", "gemel", "auth", "login", double.url, "--paste", "--port", "8123")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, env=shell.environment, stdin=pipe, stderr=pipe)
    assert process.stdin is not None
    assert process.stderr is not None
    async with asyncio.timeout(60):
        await process.stderr.readline()
        url = (await process.stderr.readline()).decode().strip()
        redirect = await double.person("http://localhost:8123/callback").authorize(url)
        process.stdin.write(f"{redirect}\n".encode())
        _, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert (await shell.gemel("call", double.url, "read")).code == 0


async def test_a_code_is_typed_on_another_device(shell: Shell, double: AuthDouble) -> None:
    polls = 0

    def token(asked: Asked) -> Reply:
        nonlocal polls
        polls += 1
        form = dict(parse_qsl(asked.body.decode()))
        assert form["device_code"] == "secret-code"
        if polls == 1:
            return Reply(400, {"error": "authorization_pending"})
        access, refresh = double.grant("notes")
        return Reply(200, {"access_token": access, "token_type": "Bearer", "refresh_token": refresh})

    double.metadata["device_authorization_endpoint"] = f"{double.issuer}/device"
    page = f"{double.issuer}/activate"
    code = {
        "device_code": "secret-code",
        "user_code": "ABCD-EFGH",
        "verification_uri": page,
        "expires_in": 60,
        "interval": 0,
    }
    double.change("/device", Reply(200, code))
    double.change("/token", token)
    done = await shell.gemel("auth", "login", double.url, "--device")
    assert done.code == 0, done.stderr
    assert f"open {page} on any device and enter the code ABCD-EFGH" in done.stderr
    assert "secret-code" not in done.stderr
    registration = next(asked.message for asked in double.authority.asked if asked.path == "/register")
    assert "redirect_uris" not in registration
    assert registration["grant_types"] == ["urn:ietf:params:oauth:grant-type:device_code", "refresh_token"]
    assert (await shell.gemel("call", double.url, "read")).stdout == "notes\n"


async def test_a_server_without_device_codes_is_one_clear_line(shell: Shell, double: AuthDouble) -> None:
    done = await shell.gemel("auth", "login", double.url, "--device")
    assert done.code == 1
    assert "has no login with a code on another device" in done.stderr
    assert "--paste" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "/register" not in double.paths(double.authority)
    done = await shell.gemel("auth", "login", double.url, "--device", "--paste")
    assert (done.code, done.stderr.count("\n")) == (2, 1)


async def test_a_registered_client_need_not_be_named_again(shell: Shell, double: AuthDouble) -> None:
    double.clients["mine"] = {"client_secret": "canary", "redirect_uris": ["http://localhost:8124/callback"]}
    double.lifetime = 0
    (shell.home / "secret").write_text("canary\n")
    words = ("--client-id", "mine", "--client-secret-file", str(shell.home / "secret"), "--port", "8124")
    done = await shell.gemel("auth", "login", double.url, *words)
    assert done.code == 0, done.stderr
    done = await shell.gemel("call", double.url, "read")
    assert done.code == 0, done.stderr
    assert "/register" not in double.paths(double.authority)
    kept = b"".join(path.read_bytes() for path in shell.home.rglob("*") if path.is_file() and path.name != "secret")
    assert b"canary" not in kept


async def test_the_secret_is_sent_as_the_user_says(shell: Shell, double: AuthDouble) -> None:
    double.clients["mine"] = {"client_secret": "canary", "redirect_uris": ["http://localhost:8125/callback"]}
    (shell.home / "secret").write_text("canary")
    words = ("--client-id", "mine", "--client-secret-file", str(shell.home / "secret"), "--port", "8125")
    done = await shell.gemel("auth", "login", double.url, *words, "--auth-method", "client_secret_post")
    assert done.code == 0, done.stderr
    assert [form["client_secret"] for form in double.forms("/token")] == ["canary"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("token", "{url}"), "Nobody is logged in to {url}: run gemel auth login {url}"),
        (("login", "weather.py"), "gemel auth needs the URL of a server"),
        (("status", "{url}", "--device"), "--device is for gemel auth login"),
        (("login", "{url}", "--client-secret-file", "x"), "--client-secret-file needs --client-id"),
        (("login", "{url}", "--auth-method", "client_secret_post"), "--auth-method needs --client-secret-file"),
        (("login", "{url}", "--client-id", "a", "--client-secret-file", "/missing"), "No such file"),
    ],
)
async def test_a_mistake_is_one_line(words: tuple[str, ...], text: str, shell: Shell, double: AuthDouble) -> None:
    done = await shell.gemel("auth", *(word.format(url=double.url) for word in words))
    assert done.code == 1
    assert done.stderr.startswith("gemel: ")
    assert text.format(url=double.url) in done.stderr
    assert done.stderr.count("\n") == 1


def asked_at_login(double: AuthDouble) -> tuple[str, str, str]:
    """The client, audience and scope of the last authorization request."""
    *_, asked = [asked for asked in double.authority.asked if asked.path.startswith("/authorize")]
    query = dict(parse_qsl(urlsplit(asked.path).query))
    return query["client_id"], query["audience"], query["scope"]


async def test_an_entry_of_a_configuration_says_how_to_log_in(shell: Shell, double: AuthDouble) -> None:
    double.clients["mine"] = {"redirect_uris": ["*"], "client_secret": "s3cret"}
    oauth = {
        "clientId": "mine",
        "clientSecret": "${SECRET}",
        "issuer": double.issuer,
        "parameters": {"audience": "notes"},
        "scopes": ["notes"],
    }
    config = shell.home / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"web": {"url": double.url, "oauth": oauth}, "bad": {"url": ""}}}))
    shell.environment["SECRET"] = "s3cret"
    done = await shell.gemel("auth", "login", f"{config}:web")
    assert done.code == 0, done.stderr
    assert asked_at_login(double) == ("mine", "notes", "notes")
    double.tokens.clear()
    done = await shell.gemel("call", f"{config}:web", "read")
    assert (done.code, done.stdout) == (0, "notes\n"), done.stderr
    done = await shell.gemel("auth", "login", f"{config}:web", "--scope", "other")
    assert done.code == 0, done.stderr
    client_id, audience, scope = asked_at_login(double)
    assert (client_id, audience) == ("mine", "notes")
    assert "other" in scope.split()
    done = await shell.gemel("auth", "status", f"{config}:bad")
    assert "server 'bad': url: must be a string that is not empty" in done.stderr


async def test_a_login_that_is_refused_is_one_line(shell: Shell, double: AuthDouble) -> None:
    double.redirect_changes = {"code": None, "error": "access_denied", "error_description": "not \x1b[2J you"}
    done = await shell.gemel("auth", "login", double.url)
    assert done.code == 1
    assert "access_denied" in done.stderr.splitlines()[-1]
    assert "\x1b" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("words", [("call", "read"), ("list",)])
async def test_a_command_logs_in_where_a_person_is_at_the_terminal(
    words: tuple[str, ...], shell: Shell, double: AuthDouble
) -> None:
    for option in ("--no-login", None):
        line = [sys.executable, "-m", "gemel", words[0], double.url, *words[1:], *([option] if option else [])]
        leader, follower = os.openpty()
        process = await asyncio.create_subprocess_exec(
            *line, env=shell.environment, stdin=follower, stdout=asyncio.subprocess.PIPE, stderr=follower
        )
        os.close(follower)
        async with asyncio.timeout(60):
            out, _ = await process.communicate()
        screen = os.read(leader, 65536).decode()
        os.close(leader)
        if option:
            assert process.returncode == 1
            assert "wants a login (HTTP 401)" in screen
            assert double.paths(double.authority).count("/authorize") == 0
        else:
            assert process.returncode == 0, screen
            assert "Log in to" in screen
            assert b"read" in out or out == b"\n"
            assert double.paths(double.authority).count("/authorize") == 1
