"""How commands reach a URL, by options: TLS, client certificates, cookies, limits, authorization servers. Against real servers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.auth.double import AuthDouble
from tests.cli.test_auth import Shell
from tests.quick_commands import QUICK
from tests.transports.certificates import make_pair
from tests.typist import at_the_terminal

SERVER = """
import ssl, sys
from gemel import Server

server = Server("locked")

@server.tool
def hi() -> str:
    return "hi"

certificate, key, clients = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
if clients:
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(clients)
server.run("http", port=0, tls=context)
"""


class Files:
    """Certificates of a server and of a client, each with its key."""

    def __init__(self, folder: Path) -> None:
        for name in ("server", "client"):
            (folder / name).mkdir()
        self.server, self.server_key = make_pair(folder / "server")
        self.client, self.client_key = make_pair(folder / "client")
        self.both = folder / "both.pem"
        self.both.write_bytes(self.client.read_bytes() + self.client_key.read_bytes())
        self.program = folder / "locked.py"
        self.program.write_text(SERVER)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


@contextmanager
def serving(files: Files, clients: str) -> Iterator[str]:
    """The URL of a server over TLS, which may want certificates of its clients."""
    command = [sys.executable, str(files.program), str(files.server), str(files.server_key), clients]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield process.stderr.readline().removeprefix("Serving MCP at ").strip()
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def over_tls(files: Files) -> Iterator[str]:
    with serving(files, "") as url:
        yield url


@pytest.fixture(scope="module")
def mutual(files: Files) -> Iterator[str]:
    with serving(files, str(files.client)) as url:
        yield url


def test_an_authority_is_trusted_if_its_certificate_is_given(files: Files, over_tls: str) -> None:
    refused = QUICK.run("call", over_tls, "hi")
    assert (refused.returncode, "certificate" in refused.stderr) == (1, True)
    for words in (
        ("call", over_tls, "hi"),
        ("list", over_tls),
        ("ping", over_tls, "--count", "1"),
        ("doctor", over_tls),
    ):
        done = QUICK.run(*words, "--ca", str(files.server))
        assert done.returncode == 0, done.stderr


def test_an_entry_of_a_configuration_is_reached_with_the_same_options(
    files: Files, over_tls: str, tmp_path: Path
) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(f'{{"mcpServers": {{"a": {{"url": "{over_tls}", "headers": {{"X-One": "1"}}}}}}}}')
    done = QUICK.run("call", f"{path}:a", "hi", "--ca", str(files.server), "--header", "X-Two: 2")
    assert (done.returncode, done.stdout) == (0, "hi\n"), done.stderr


async def test_a_login_reaches_its_server_in_the_same_way(files: Files, mutual: str, tmp_path: Path) -> None:
    """This server has no metadata; that is found out only with the right certificates."""
    shell = Shell(tmp_path)
    refused = await shell.gemel("auth", "login", mutual, "--ca", str(files.server))
    asked = await shell.gemel(
        "auth",
        "login",
        mutual,
        "--ca",
        str(files.server),
        "--client-cert",
        str(files.both),
        "--issuer",
        "https://a.example",
    )
    assert "HTTP 404" not in refused.stderr
    assert "HTTP 404" in asked.stderr


@pytest.mark.parametrize("is_one_file", [True, False])
def test_a_client_certificate_is_shown(files: Files, mutual: str, is_one_file: bool) -> None:
    refused = QUICK.run("call", mutual, "hi", "--ca", str(files.server))
    assert refused.returncode == 1
    certificate = str(files.both) if is_one_file else f"{files.client},{files.client_key}"
    done = QUICK.run("call", mutual, "hi", "--ca", str(files.server), "--client-cert", certificate)
    assert (done.returncode, done.stdout) == (0, "hi\n"), done.stderr


async def test_a_proxy_shows_it_too(files: Files, mutual: str) -> None:
    from gemel import Client

    words = ["proxy", mutual, "--ca", str(files.server), "--client-cert", str(files.both)]
    async with Client([sys.executable, "-m", "gemel", *words]) as client:
        assert (await client.call_tool("hi")).text == "hi"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--ca", "/missing.pem"), "--ca /missing.pem: the certificates can't be read"),
        (("--ca", "{program}"), "the certificates can't be read"),
        (("--client-cert", "/missing.pem"), "--client-cert /missing.pem: .* can't be read as PEM"),
        (("--client-cert", "{client}"), "can't be read as PEM with a certificate and its key"),
        (("--cookie", "a b"), "--cookie 'a b' is not a cookie"),
        (("--cookie", "a=1; b=2"), "--cookie 'a' is not a cookie"),
        (("--limit", "connect"), "--limit connect is not NAME=NUMBER"),
        (("--limit", "conect=1"), "There is no limit 'conect': did you mean 'connect'"),
        (("--assume-pkce",), "--assume-pkce needs --issuer"),
    ],
)
def test_a_value_that_can_not_work_is_one_line(words: tuple[str, ...], text: str, files: Files) -> None:
    given = [word.format(program=files.program, client=files.client) for word in words]
    done = QUICK.run("call", "http://127.0.0.1:1/mcp", "hi", *given)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert re.search(text, done.stderr), done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--ca", "x"),
        ("--client-cert", "x"),
        ("--cookie", "a=1"),
        ("--private-networks",),
        ("--accept-issuer", "x"),
        ("--issuer", "x"),
    ],
)
def test_options_of_a_url_need_one(words: tuple[str, ...]) -> None:
    done = QUICK.run("list", "some-program", *words)
    assert (done.returncode, done.stderr) == (1, f"gemel: {words[0]} needs a URL as the target\n")


# ---------------------------------------------------------------- logins


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
async def double() -> AsyncIterator[AuthDouble]:
    async with AuthDouble() as made:
        yield made


def _cookies(asked: Any) -> set[str | None]:
    return {one.headers.get("cookie") for one in asked}


async def test_a_cookie_goes_to_the_origin_of_the_server_only(shell: Shell, double: AuthDouble) -> None:
    words = ("--cookie", "stick=7", "--cookie", "zone=b")
    done = await shell.gemel("auth", "login", double.url, *words)
    assert done.code == 0, done.stderr
    done = await shell.gemel("call", double.url, "read", *words, "--header", "Cookie: own=1")
    assert done.code == 0, done.stderr
    assert _cookies(double.server.asked) == {"stick=7; zone=b", "own=1; stick=7; zone=b"}
    assert double.authority.asked
    assert _cookies(double.authority.asked) == {None}


async def test_what_a_login_was_told_about_its_issuer_is_kept_with_it(shell: Shell, double: AuthDouble) -> None:
    """An issuer with two names, no PKCE in its metadata, a parameter of its own: said at the first login only."""
    double.clients["mine"] = {"redirect_uris": ["*"], "client_secret": None}
    del double.metadata["code_challenge_methods_supported"]
    double.resource_metadata["authorization_servers"] = [f"{double.issuer}/"]
    words = ["--client-id", "mine", "--issuer", f"{double.issuer}/", "--accept-issuer", double.issuer]
    words += ["--assume-pkce", "--parameter", "access_type=offline"]
    done = await shell.gemel("auth", "login", double.url, *words)
    assert done.code == 0, done.stderr
    double.tokens.clear()
    double.refresh_tokens.clear()  # so that the next login is a new one
    done = await shell.gemel("call", double.url, "read")
    assert "wants a login (HTTP 401): this command starts none" in done.stderr
    done = await shell.gemel("auth", "login", double.url)
    assert done.code == 0, done.stderr
    pages = [asked.path for asked in double.authority.asked if asked.path.startswith("/authorize")]
    assert len(pages) == 2
    assert all("access_type=offline" in page for page in pages)
    assert (await shell.gemel("call", double.url, "read")).code == 0
    assert (await shell.gemel("auth", "logout", double.url)).code == 0
    done = await shell.gemel("auth", "login", double.url)
    assert done.code == 1


async def test_any_command_takes_the_options_of_a_login(shell: Shell, double: AuthDouble) -> None:
    """What the metadata says is checked before a login is begun, which takes a person."""
    double.resource_metadata["authorization_servers"] = [f"{double.issuer}/"]
    command = [sys.executable, "-m", "gemel", "list", double.url]
    async with at_the_terminal(command, shell.environment) as (typist, process):
        await typist.sees(f"gemel: {double.url} wants a login (HTTP 401): ")
        await typist.sees("names the issuer")
        await typist.sees("Without a login, give a token with --header on the command line\n")
    assert process.returncode == 1
    async with at_the_terminal([*command, "--accept-issuer", double.issuer], shell.environment) as (typist, process):
        await typist.sees("Log in to")
    assert process.returncode == 0


class _Proxy(BaseHTTPRequestHandler):
    """Stands for an MCP server that is not on this machine, and is reached by a proxy."""

    issuer = ""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._answer(401, b"", "www-authenticate", 'Bearer resource_metadata="http://mcp.example/meta"')

    def do_GET(self) -> None:
        metadata = {"resource": "http://mcp.example/mcp", "authorization_servers": [self.issuer]}
        self._answer(200, json.dumps(metadata).encode(), "content-type", "application/json")

    def _answer(self, status: int, body: bytes, *header: str) -> None:
        self.send_response(status)
        self.send_header(header[0], header[1])
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


async def test_an_authorization_server_in_a_private_network_is_used_if_that_is_allowed(
    shell: Shell, double: AuthDouble
) -> None:
    handler = type("Handler", (_Proxy,), {"issuer": double.issuer})
    with HTTPServer(("127.0.0.1", 0), handler) as proxy:
        threading.Thread(target=proxy.serve_forever, args=(0.01,), daemon=True).start()
        shell.environment |= {"http_proxy": f"http://127.0.0.1:{proxy.server_port}", "no_proxy": "127.0.0.1"}
        command = [sys.executable, "-m", "gemel", "list", "http://mcp.example/mcp"]
        async with at_the_terminal(command, shell.environment) as (typist, _):
            await typist.sees("is not https")
        async with at_the_terminal([*command, "--private-networks"], shell.environment) as (typist, _):
            await typist.sees("Log in to")
            typist.type("\x03")
        proxy.shutdown()
    assert "/.well-known/oauth-authorization-server" in double.paths(double.authority)


# ---------------------------------------------------------------- limits and eras

SLOW = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    print(message["method"], file=sys.stderr, flush=True)
    if sys.argv[1:] == ["deaf"]:
        continue
    result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
    if message["method"] == "tools/list":
        result = {"tools": [{"name": "long", "description": "x" * 50_000, "inputSchema": {"type": "object"}}]}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.fixture
def slow(tmp_path: Path) -> str:
    path = tmp_path / "slow.py"
    path.write_text(SLOW)
    return f"{sys.executable} {path}"


def test_a_limit_of_the_client_is_set(slow: str) -> None:
    done = QUICK.run("list", f"{slow} deaf", "--limit", "connect=0.3", "--era", "2025", env=dict(os.environ))
    assert (done.returncode, "within 0.3 seconds: initialize (no answer)" in done.stderr) == (1, True), done.stderr
    done = QUICK.run("list", slow, "--limit", "line=1000", "--era", "2025", env=dict(os.environ))
    assert done.returncode == 1
    assert (
        "The answer to tools/list can't be read: its line has more than 1000 bytes, the limit `limits.line`"
        in done.stderr
    )


def test_an_era_is_not_probed(slow: str) -> None:
    done = QUICK.run("list", slow, "--era", "2025", env=dict(os.environ))
    assert (done.returncode, "server/discover" in done.stderr) == (0, False), done.stderr
