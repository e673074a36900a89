"""Options of the command line that do not fit together, and how options are written."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.quick_commands import QUICK

SERVER = """
from gemel import Server

server = Server("{name}")

@server.tool
async def greet(name: str) -> str:
    return f"Hello {{name}}"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "small.py"
    found.write_text(SERVER.format(name="small"))
    return found


def gemel(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return QUICK.run(*map(str, words))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "{file}", "--port", "80"], "--port needs --http"),
        (["run", "{file}", "--host", "::1"], "--host needs --http"),
        (["run", "{file}", "--workers", "2"], "--workers needs --http"),
        (["run", "{file}", "--socket", "s", "--path", "/x"], "--path needs --http"),
        (["run", "{file}", "--access-log"], "--access-log needs --http"),
        (["run", "{file}", "--engine", "uvicorn"], "--engine needs --http"),
        (["run", "{file}", "--trusted-proxies", "10.0.0.0/8"], "--trusted-proxies needs --http"),
        (["run", "{file}", "--http", "--trusted-proxies", "me"], "trusted_proxies=['me'] is not possible"),
        (["proxy", "{file}", "--to", "stdio", "--access-log"], "--access-log needs --to http"),
        (["list", "{file}", "--wire", "httpx2"], "--wire needs a URL as the target"),
        (["run", "{file}", "--http", "--socket", "s"], "--http and --socket can't be combined"),
        (
            ["run", "{file}", "--reload"],
            "--reload needs --http: on stdio, a restart would lose messages of the client",
        ),
        (["proxy", "{file}", "--to", "stdio", "--port", "80"], "--port needs --to http"),
        (["proxy", "http://127.0.0.1:1/", "--sse-path", "/sse"], "--sse-path needs --to http"),
        (["replay", "{file}", "--host", "::1"], "--host needs --http"),
        (["record", "tape", "{file}", "--port", "80"], "--port needs --http"),
    ],
)
def test_an_option_of_another_transport_is_told_in_one_line(words: list[str], said: str, file: Path) -> None:
    done = gemel(*(word.format(file=file) for word in words))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith(f"gemel: {said}")


def test_the_name_of_an_option_stands_whole(file: Path) -> None:
    """`--rel` for `--reload` would start the server by a parent that starts it by a parent …"""
    done = gemel("run", file, "--http", "--rel")
    assert done.returncode == 2
    assert "unrecognized arguments: --rel" in done.stderr


def test_a_reader_who_goes_away_gets_no_traceback(file: Path) -> None:
    """As with `gemel list … | head -1`, only that nobody reads at all."""
    words = [sys.executable, "-m", "gemel", "list", str(file)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == ("", 141)


def test_a_file_outside_of_the_working_directory_is_watched_too(
    file: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    words = [sys.executable, "-m", "gemel", "run", str(file), "--http", "--port", "0", "--reload"]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=elsewhere) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline().startswith("Serving MCP at ")
            file.write_text(SERVER.format(name="changed"))
            assert process.stderr.readline() == "gemel: a file changed, starting again\n"
            assert process.stderr.readline().startswith("Serving MCP at ")
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("engine", ["gemel", "uvicorn"])
def test_the_options_of_an_http_server_and_of_a_client_reach_them(file: Path, engine: str) -> None:
    """What stands in the log of requests was sent by the given client, and tells of a proxy that is trusted."""
    words = ["run", file, "--http", "--port", "0", "--engine", engine, "--access-log"]
    words += ["--trusted-proxies", "127.0.0.1", "--trusted-proxies", "10.0.0.0/8"]
    with subprocess.Popen(
        [sys.executable, "-m", "gemel", *map(str, words)], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            while "http://" not in (line := process.stderr.readline()):
                assert line
            url = line.split()[-1]
            sent = gemel(
                "call", url, "greet", "name=Ada", "--wire", "httpx2", "--header", "X-Forwarded-For: 203.0.113.7"
            )
            assert (sent.returncode, sent.stdout) == (0, "Hello Ada\n"), sent.stderr
            while "203.0.113.7" not in (line := process.stderr.readline()):
                assert line
            assert "POST /mcp" in line
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0
        finally:
            process.kill()


def test_the_help_lists_the_values_of_an_option(file: Path) -> None:
    assert "--engine {gemel,uvicorn}" in gemel("run", "--help").stdout
    assert "--wire {httpx2}" in gemel("list", "--help").stdout
    assert "invalid choice: 'apache'" in gemel("run", file, "--http", "--engine", "apache").stderr
