"""Installing changes one entry, remembers it, asks first, and is undone."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from gemel import Client, DefinitionError, StartError
from gemel.cli import main
from gemel.client.group.config import read_config
from gemel.install import (
    HOSTS,
    entry,
    foreign_command,
    found_hosts,
    name_of,
    own_command,
    plan_install,
    plan_uninstall,
)
from gemel.version import requirement

#: A file of each host as its users have it.
FILES = {
    "claude-code": '{\n  "numStartups": 12,\n  "mcpServers": {\n    "github": {"type": "http", "url": "https://g.com"}\n  }\n}',
    "claude-desktop": '{\r\n  "globalShortcut": "Ctrl+Space",\r\n  "mcpServers": {}\r\n}\r\n',
    "codex": '# mine\nmodel = "gpt-5"\n\n[mcp_servers.docs]\ncommand = "npx"\nargs = ["-y", "docs"]\n',
    "copilot-cli": '{\n  "mcpServers": {\n    "fs": {"type": "local", "command": "fs", "tools": ["*"], "args": []}\n  }\n}\n',
    "cursor": '{"mcpServers": {"a": {"command": "a", "env": {"KEY": "k"}}}}',
    "gemini-cli": '{\n  "theme": "Default",\n  "selectedAuthType": "oauth"\n}\n',
    "kiro": '{\n  "mcpServers": {\n    "aws": {"command": "uvx", "args": ["aws"], "disabled": true}\n  }\n}\n',
    "vscode": '{\n\t// team servers\n\t"servers": {\n\t\t"db": { "command": "db" }, // slow\n\t},\n\t"inputs": []\n}\n',
    "windsurf": "\ufeff{}",
    "zed": '// Zed settings\n{\n  "ui_font_size": 16,\n  "theme": {\n    "mode": "system", // or "dark"\n  },\n}\n',
}

SERVER = '''\
import os
from gemel import Server

server = Server("weather")


@server.tool
def forecast(city: str) -> str:
    """The weather in a city."""
    return f"{city}: sunny, {os.environ.get('TOKEN')}, {os.environ.get('LEVEL')}"
'''


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without anything, and a folder with a server as the working directory."""
    for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CODEX_HOME", "COPILOT_HOME", "CLAUDE_CONFIG_DIR", "LEVEL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TOKEN", "t0ken")
    monkeypatch.setattr(shutil, "which", _which_without_uv)
    work = tmp_path / "my work"
    work.mkdir()
    (work / "weather.py").write_text(SERVER)
    monkeypatch.chdir(work)
    return tmp_path / "home"


def _which_without_uv(name: str) -> str | None:
    return None if name == "uv" else f"/usr/bin/{name}" if name in ("npx", "env") else None


def path_of(host: str) -> Path:
    return HOSTS[host].path(sys.platform, os.environ)


def write_file(host: str) -> bytes:
    path = path_of(host)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(FILES[host].encode())
    return FILES[host].encode()


@pytest.mark.parametrize("host", HOSTS)
async def test_what_is_installed_starts_and_answers_and_is_undone(
    host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Our own reader of configurations starts what was written, as the host does."""
    before = write_file(host)
    path = path_of(host)
    path.chmod(0o640)
    arguments = ["weather.py", "--host", host, "--env", "TOKEN", "--env", "LEVEL=debug", "--yes"]
    assert main(["install", *arguments]) == 0
    output = capsys.readouterr()
    assert "debug" not in output.out
    assert "LEVEL" in output.err
    assert path.stat().st_mode & 0o777 == 0o640
    target, options = read_config(path)["weather"].reach()
    assert os.path.isabs(target[0])
    async with Client(target, **options) as client:
        assert (await client.call_tool("forecast", {"city": "Oslo"})).data == "Oslo: sunny, t0ken, debug"
    assert main(["uninstall", "weather", "--host", host, "--yes"]) == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
@pytest.mark.parametrize("host", HOSTS)
def test_every_file_is_written_and_restored_on_every_platform(host: str, platform: str, home: Path) -> None:
    environ = {"HOME": str(home), "USERPROFILE": str(home), "APPDATA": str(home / "Roaming")}
    path = HOSTS[host].path(platform, environ)
    command = ["C:\\Python\\python.exe", "-m", "gemel", "run", "C:\\Users\\Ada L\\weather.py"]
    value = entry.entry_for(HOSTS[host], entry.Launch(command), environ).value
    plan_install(HOSTS[host], path, "weather", value, state=home / "state").apply()
    assert list(read_config(path)["weather"].command) == command
    plan_uninstall(HOSTS[host], path, "weather", state=home / "state").apply()
    assert not path.exists()
    assert not any((home / "state").iterdir())


def test_other_changes_survive_the_undoing() -> None:
    write_file("vscode")
    path = path_of("vscode")
    assert main(["install", "weather.py", "--host", "vscode", "--yes"]) == 0
    path.write_text(path.read_text().replace("// slow", "// fast"))
    assert main(["uninstall", "weather.py", "--host", "vscode", "--yes"]) == 0
    assert path.read_text() == FILES["vscode"].replace("// slow", "// fast")


@pytest.mark.parametrize("host", ["cursor", "codex"])
def test_an_entry_of_somebody_else_is_not_overwritten_unasked(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "npx docs", "--name", "weather", "--host", host, "--yes"]) == 0
    path = path_of(host)
    path.write_text(path.read_text().replace("docs", "other"))
    before = path.read_bytes()
    install = ["install", "weather.py", "--host", host, "--yes"]
    assert main(install) == 1
    assert "gemel did not write" in capsys.readouterr().err
    assert main(["uninstall", "weather", "--host", host, "--yes"]) == 1
    assert path.read_bytes() == before
    assert main([*install, "--force"]) == 0
    assert "weather.py" in path.read_text()


def test_replacing_a_foreign_entry_is_undone_to_that_entry() -> None:
    path = path_of("cursor")
    path.parent.mkdir(parents=True)
    path.write_text('{"mcpServers": {"weather": {"command": "mine"}}}')
    assert main(["install", "weather.py", "--host", "cursor", "--yes", "--force"]) == 0
    path.write_text(path.read_text() + "\n")
    assert main(["uninstall", "weather", "--host", "cursor", "--yes"]) == 0
    assert json.loads(path.read_text()) == {"mcpServers": {"weather": {"command": "mine"}}}


def test_our_own_entry_is_updated_and_the_first_copy_kept(capsys: pytest.CaptureFixture[str]) -> None:
    before = write_file("cursor")
    assert main(["install", "weather.py", "--host", "cursor", "--yes"]) == 0
    assert main(["install", "weather.py", "--host", "cursor", "--env", "LEVEL=a", "--yes"]) == 0
    capsys.readouterr()
    assert main(["install", "weather.py", "--host", "cursor", "--env", "LEVEL=a", "--yes"]) == 0
    assert "nothing to change" in capsys.readouterr().out
    assert main(["uninstall", "weather", "--host", "cursor", "--yes"]) == 0
    assert path_of("cursor").read_bytes() == before


def test_without_a_terminal_and_without_yes_only_the_difference_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    before = write_file("zed")
    assert main(["install", "weather.py", "--host", "zed", "--host", "cursor"]) == 3
    output = capsys.readouterr()
    assert '+  "context_servers": {' in output.out
    assert "nothing is changed" in output.err
    assert path_of("zed").read_bytes() == before
    assert not path_of("cursor").parent.exists()


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 3), ("\n", 3), ("", 3)])
def test_on_a_terminal_it_asks(answer: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert main(["install", "weather.py", "--host", "cursor"]) == code
    assert path_of("cursor").exists() == (code == 0)


def test_a_file_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["install", "weather.py", "--host", "vscode", "--project", "--env", "LEVEL=debug", "--yes"]
    assert main(arguments) == 0
    assert "others may get" in capsys.readouterr().err
    assert set(read_config(".vscode/mcp.json")) == {"weather"}
    assert main(["uninstall", "weather", "--host", "vscode", "--project", "--yes"]) == 0
    assert not Path(".vscode/mcp.json").exists()


@pytest.mark.parametrize("words", [["weather"], ["-m", "weather"], ["weather:server"]])
def test_a_module_is_looked_for_in_the_present_folder(words: list[str]) -> None:
    assert main(["install", *words, "--host", "cursor", "--yes"]) == 0
    command = read_config(path_of("cursor"))["weather"].command
    assert command[4:] == ("run", *words, "--cwd", str(Path.cwd()))


def test_a_url_with_headers() -> None:
    url = ["https://example.com/mcp", "--header", "Authorization:Bearer ${TOKEN}", "--name", "example"]
    assert main(["install", *url, "--host", "gemini", "--yes"]) == 0
    server = read_config(path_of("gemini-cli"))["example"]
    assert (server.url, server.headers) == ("https://example.com/mcp", {"Authorization": "Bearer t0ken"})
    assert "t0ken" not in path_of("gemini-cli").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["https://e.com", "--host", "cursor"], "--name is missing"),
        (["https://e.com", "--host", "cursor", "--name", "a b"], "The name 'a b' is not possible"),
        (["https://e.com", "--host", "claude-desktop", "--name", "e"], "Claude Desktop takes no URLs"),
        (["https://e.com", "--host", "cursor", "--name", "e", "--env", "A=1"], "--env needs a command line"),
        (["unix:/tmp/s", "--host", "cursor", "--name", "e"], "no sockets"),
        (["no-such-program x", "--host", "cursor", "--name", "e"], "'no-such-program' is not found"),
        (["nothing.py", "--host", "cursor"], "No such file"),
        (["weather.py", "--host", "claude-desktop", "--project"], "no configuration of a project"),
        (["weather.py", "--host", "zed", "--env", "UNSET"], "UNSET is not set"),
        (["weather.py", "--host", "cursor", "--header", "A:b"], "--header needs a URL"),
    ],
)
def test_mistakes(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", *words, "--yes"]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_file_that_is_not_understood_is_named_and_stays(capsys: pytest.CaptureFixture[str]) -> None:
    path = path_of("cursor")
    path.parent.mkdir(parents=True)
    path.write_text('{"mcpServers": {')
    assert main(["install", "weather.py", "--host", "cursor", "--yes"]) == 1
    assert f"{path}: line 1" in capsys.readouterr().err
    assert main(["uninstall", "weather", "--host", "zed", "--yes"]) == 1
    assert "has no server 'weather'; it has none" in capsys.readouterr().err


def test_a_change_meanwhile_is_not_overwritten(home: Path) -> None:
    write_file("cursor")
    path = path_of("cursor")
    change = plan_install(HOSTS["cursor"], path, "weather", {"command": "x"}, state=home / "state")
    path.write_text("{}")
    with pytest.raises(StartError, match="has changed meanwhile"):
        change.apply()
    assert path.read_text() == "{}"


def test_a_link_stays_a_link_and_only_the_user_reads_copies(home: Path) -> None:
    """Settings are often links into a folder of dotfiles."""
    write_file("zed")
    path, dotfiles = path_of("zed"), home / "dotfiles.json"
    path.rename(dotfiles)
    path.symlink_to(dotfiles)
    backup = plan_install(HOSTS["zed"], path, "weather", {"command": "x"}).apply()
    assert path.is_symlink()
    assert "weather" in dotfiles.read_text()
    assert backup is not None
    assert backup.read_text() == FILES["zed"]
    assert backup.parent.stat().st_mode & 0o777 == 0o700
    assert backup.stat().st_mode & 0o777 == 0o600


# ---------------------------------------------------------------- commands


def test_commands_have_absolute_paths(tmp_path: Path) -> None:
    file = f"{Path.cwd()}/weather.py"
    assert own_command("weather.py") == [sys.executable, "-P", "-m", "gemel", "run", file]
    assert own_command("weather.py:server", ["-v"], cwd=".") == [
        *[sys.executable, "-P", "-m", "gemel", "run", f"{file}:server"],
        *["--cwd", str(Path.cwd()), "--", "-v"],
    ]
    assert own_command("weather.py", module=True)[4:] == ["run", "-m", "weather.py", "--cwd", str(Path.cwd())]
    assert own_command("weather:server", program=["/bin/gemel"]) == [
        *["/bin/gemel", "run", "weather:server", "--cwd", str(Path.cwd())]
    ]
    assert foreign_command(["npx", "-y", "docs"]) == ["/usr/bin/npx", "-y", "docs"]


def test_batch_files_are_started_by_cmd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "/nodejs/npx.CMD")
    assert foreign_command(["npx", "docs"], platform="win32") == ["cmd", "/c", "/nodejs/npx.CMD", "docs"]


@pytest.mark.parametrize("character", '"%!^&|<>()\r\n\0')
def test_arguments_that_cmd_exe_would_interpret_are_refused(character: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "/nodejs/npx.CMD")
    with pytest.raises(DefinitionError, match="batch file"):
        foreign_command(["npx", f"docs{character}calc"], platform="win32")
    assert foreign_command(["npx", f"docs{character}calc"], platform="linux")[1:] == [f"docs{character}calc"]


@pytest.mark.parametrize("character", "\"'`$&|;<>(){}[]*?!#~%^\\ \t\r\n\0./:")
def test_no_host_gets_a_name_with_meaning_to_a_shell(character: str) -> None:
    """CVE-2025-62801, CVE-2025-64340 (FastMCP): some hosts were configured by commands, with the name in them."""
    for name in (f"a{character}calc", f"a{character}"):
        assert main(["install", "weather.py", "--host", "cursor", "--name", name, "--yes"]) == 1
    assert not path_of("cursor").exists()


def test_uv_makes_the_environment_that_a_file_describes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "/opt/uv")
    folder = Path.cwd()
    script, plain = folder / "script.py", folder / "weather.py"
    script.write_text("# /// script\n# dependencies = ['gemel']\n# ///\n" + SERVER)
    monkeypatch.setattr(sys, "prefix", "/usr")
    assert own_command("weather.py")[0] == sys.executable
    assert own_command("script.py") == [
        *["/opt/uv", "run", "--no-project", "--with-requirements", str(script), "gemel", "run", str(script)]
    ]
    monkeypatch.setattr(sys, "prefix", "/home/ada/.cache/uv/archive-v0/x")
    assert own_command("weather.py")[:6] == ["/opt/uv", "run", "--no-project", "--with", requirement(), "gemel"]
    (folder / "uv.lock").touch()
    assert own_command("weather.py") == ["/opt/uv", "run", "--project", str(folder), "gemel", "run", str(plain)]


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("weather.py", "weather"),
        ("/a b/weather report.py:server", "weather-report"),
        ("C:\\src\\weather.py", "weather"),
        ("package.weather:make", "weather"),
    ],
)
def test_the_name_is_that_of_the_file(target: str, name: str) -> None:
    assert name_of(target) == name


def test_a_server_in_code_mode_stays_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    for words, option in ((["--code"], "--code"), (["--code=search"], "--code=search")):
        assert main(["install", "weather.py", "--host", "claude-code", "--host", "codex", "--yes", *words]) == 0
        assert capsys.readouterr().err == ""
        written = json.loads(path_of("claude-code").read_text())["mcpServers"]["weather"]
        assert written["alwaysLoad"] is True
        assert written["args"][-1] == option
        assert f'"{option}"]' in path_of("codex").read_text()


def test_any_server_can_be_kept_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    url = ["install", "https://example.com/mcp", "--name", "far", "--always-load", "--yes"]
    assert main([*url, "--host", "copilot", "--host", "cursor"]) == 0
    assert json.loads(path_of("copilot-cli").read_text())["mcpServers"]["far"]["deferTools"] == "never"
    assert list(json.loads(path_of("cursor").read_text())["mcpServers"]["far"]) == ["url"]
    assert capsys.readouterr().err == "gemel: --always-load has no effect: Cursor has no such setting\n"


@pytest.mark.parametrize("target", ["https://example.com/mcp", "npx -y some-server"])
def test_code_mode_is_for_a_python_file(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", target, "--name", "far", "--host", "cursor", "--code"]) == 1
    assert capsys.readouterr().err.startswith("gemel: --code needs a Python file or module as the target")


# ---------------------------------------------------------------- names


NAMED = SERVER.replace('Server("weather")', 'Server("Weather station")')


@pytest.mark.parametrize("given", ["Weather-station", "forecasts.py", "forecasts.py:server", "../my work/forecasts.py"])
def test_the_entry_has_the_name_of_the_server_and_is_removed_by_it_or_by_the_file(given: str) -> None:
    Path("forecasts.py").write_text(NAMED)
    assert main(["install", "forecasts.py", "--host", "cursor", "--yes"]) == 0
    assert set(read_config(path_of("cursor"))) == {"Weather-station"}
    assert main(["uninstall", given, "--host", "cursor", "--yes"]) == 0
    assert not path_of("cursor").exists()


def test_the_name_is_found_with_the_variables_of_the_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKEN")
    Path("needs.py").write_text('import os\nfrom gemel import Server\nserver = Server(os.environ["TOKEN"])\n')
    assert main(["install", "needs.py", "--host", "cursor", "--env", "TOKEN=far", "--yes"]) == 0
    assert set(read_config(path_of("cursor"))) == {"far"}
    assert "TOKEN" not in os.environ


def test_a_file_that_cannot_be_loaded_gives_its_own_name(capsys: pytest.CaptureFixture[str]) -> None:
    Path("needs.py").write_text("import a_package_of_another_environment\n")
    assert main(["install", "needs.py", "--host", "cursor", "--yes"]) == 0
    assert set(read_config(path_of("cursor"))) == {"needs"}
    error = capsys.readouterr().err
    assert error.startswith("gemel: named after the file, since it can't be loaded here: needs.py can't be imported")
    assert main(["uninstall", "needs.py", "--host", "cursor", "--yes"]) == 0


def test_of_several_entries_for_a_file_one_has_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        assert main(["install", "weather.py", "--host", "cursor", "--name", name, "--yes"]) == 0
    assert main(["uninstall", "weather.py", "--host", "cursor", "--yes"]) == 1
    assert "name one of one, two" in capsys.readouterr().err
    assert main(["uninstall", "one", "--host", "cursor", "--yes"]) == 0


# ---------------------------------------------------------------- hosts of this machine


def test_hosts_are_found_by_their_configuration_and_by_their_programs(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found_hosts(sys.platform, os.environ) == []
    write_file("claude-code")
    path_of("vscode").parent.mkdir(parents=True)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/codex" if name == "codex" else None)
    assert found_hosts(sys.platform, os.environ) == ["claude-code", "codex", "vscode"]


@pytest.mark.parametrize("words", [["install", "weather.py"], ["uninstall", "weather"]])
def test_without_a_host_those_of_this_machine_are_listed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    write_file("cursor")
    write_file("zed")
    before = path_of("cursor").read_bytes()
    assert main(words) == 2
    first, *hosts, last = capsys.readouterr().err.splitlines()
    assert first == "Hosts on this machine:"
    assert [line.split() for line in hosts] == [
        ["cursor", "Cursor", str(path_of("cursor"))],
        ["zed", "Zed", str(path_of("zed"))],
    ]
    assert last == "gemel: --host is missing: add one of them, such as --host cursor"
    assert path_of("cursor").read_bytes() == before


def test_without_a_known_host_it_says_which_there_could_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "weather.py"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("gemel: --host is missing, and no known host is on this machine: it takes claude-code, ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(("answers", "code"), [("cursor\ny\n", 0), ("cursr\ncursor\ny\n", 0), ("none\n", 3), ("", 3)])
def test_on_a_terminal_it_asks_for_which_host(answers: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    write_file("cursor")
    before = path_of("cursor").read_bytes()
    monkeypatch.setattr(sys, "stdin", Terminal(answers))
    monkeypatch.setattr(sys, "stdout", output := Terminal())
    assert main(["install", "weather.py"]) == code
    assert (path_of("cursor").read_bytes() != before) == (code == 0)
    assert ("No such host: cursr" in output.getvalue()) == answers.startswith("cursr")
