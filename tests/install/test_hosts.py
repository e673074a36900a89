"""Where each host keeps its file on each platform, and the shape of an entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gemel import StartError
from gemel.doctor import HOSTS as DOCTOR_HOSTS
from gemel.install import HOSTS, SHORT_NAMES, Launch, entry_for

PLATFORMS: dict[str, dict[str, str]] = {
    "linux": {"HOME": "/home/ada"},
    "darwin": {"HOME": "/Users/ada"},
    "win32": {"USERPROFILE": "C:/Users/ada", "APPDATA": "C:/Users/ada/AppData/Roaming"},
}
WINDOWS = "AppData/Roaming"
SUPPORT = "/Users/ada/Library/Application Support"
FILES = {
    "claude-code": (".claude.json",) * 3,
    "claude-desktop": (
        "/home/ada/.config/Claude/claude_desktop_config.json",
        f"{SUPPORT}/Claude/claude_desktop_config.json",
        f"{WINDOWS}/Claude/claude_desktop_config.json",
    ),
    "codex": (".codex/config.toml",) * 3,
    "copilot-cli": (".copilot/mcp-config.json",) * 3,
    "cursor": (".cursor/mcp.json",) * 3,
    "gemini-cli": (".gemini/settings.json",) * 3,
    "kiro": (".kiro/settings/mcp.json",) * 3,
    "vscode": (
        "/home/ada/.config/Code/User/mcp.json",
        f"{SUPPORT}/Code/User/mcp.json",
        f"{WINDOWS}/Code/User/mcp.json",
    ),
    "windsurf": (".codeium/windsurf/mcp_config.json",) * 3,
    "zed": (".config/zed/settings.json", ".config/zed/settings.json", f"{WINDOWS}/Zed/settings.json"),
}


@pytest.mark.parametrize("name", HOSTS)
def test_each_host_has_its_file_on_each_platform(name: str) -> None:
    for (platform, environ), expected in zip(PLATFORMS.items(), FILES[name], strict=True):
        home = environ.get("HOME") or environ["USERPROFILE"]
        assert HOSTS[name].path(platform, environ) == Path(home) / expected


def test_variables_move_the_files() -> None:
    linux = {"HOME": "/home/ada", "XDG_CONFIG_HOME": "/etc/ada"}
    assert HOSTS["vscode"].path("linux", linux) == Path("/etc/ada/Code/User/mcp.json")
    assert HOSTS["vscode"].path("darwin", linux).is_relative_to("/home/ada/Library")
    assert HOSTS["vscode"].path("linux", {**linux, "XDG_CONFIG_HOME": "relative"}).is_relative_to("/home/ada/.config")
    assert HOSTS["codex"].path("linux", {**linux, "CODEX_HOME": "/opt/codex"}) == Path("/opt/codex/config.toml")
    assert HOSTS["claude-code"].path("linux", {"CLAUDE_CONFIG_DIR": "/opt/c"}) == Path("/opt/c/.claude.json")


def test_files_of_a_project() -> None:
    project = Path("/src/weather")
    assert HOSTS["vscode"].path("linux", {}, project=project) == project / ".vscode/mcp.json"
    assert HOSTS["cursor"].path("win32", {}, project=project) == project / ".cursor/mcp.json"
    with pytest.raises(StartError, match="Claude Desktop has no configuration of a project"):
        HOSTS["claude-desktop"].path("linux", {}, project=project)


def test_each_host_has_a_source_and_the_name_that_the_doctor_uses() -> None:
    for name, host in HOSTS.items():
        assert host.source.startswith("https://")
        assert name in DOCTOR_HOSTS or name == "windsurf"
    assert set(SHORT_NAMES.values()) <= set(HOSTS)


PROGRAM = Launch(["/usr/bin/python", "-m", "gemel", "run", "/s.py"], {"TOKEN": "${TOKEN}", "LEVEL": "debug"})
COMMON = {"command": "/usr/bin/python", "args": ["-m", "gemel", "run", "/s.py"]}
ENTRIES: dict[str, dict[str, Any]] = {
    "claude-code": {"type": "stdio", **COMMON, "env": {"TOKEN": "${TOKEN}", "LEVEL": "debug"}},
    "claude-desktop": {**COMMON, "env": {"TOKEN": "secret", "LEVEL": "debug"}},
    "codex": {**COMMON, "env": {"LEVEL": "debug"}, "env_vars": ["TOKEN"]},
    "copilot-cli": {"type": "local", "tools": ["*"], **COMMON, "env": {"TOKEN": "${TOKEN}", "LEVEL": "debug"}},
    "cursor": {**COMMON, "env": {"TOKEN": "${env:TOKEN}", "LEVEL": "debug"}},
    "gemini-cli": {**COMMON, "env": {"TOKEN": "${TOKEN}", "LEVEL": "debug"}},
    "kiro": {**COMMON, "env": {"TOKEN": "${TOKEN}", "LEVEL": "debug"}},
    "vscode": {"type": "stdio", **COMMON, "env": {"TOKEN": "${env:TOKEN}", "LEVEL": "debug"}},
    "windsurf": {**COMMON, "env": {"TOKEN": "${env:TOKEN}", "LEVEL": "debug"}},
    "zed": {**COMMON, "env": {"TOKEN": "secret", "LEVEL": "debug"}},
}


@pytest.mark.parametrize("name", HOSTS)
def test_the_entry_of_a_program(name: str) -> None:
    entry = entry_for(HOSTS[name], PROGRAM, {"TOKEN": "secret"})
    assert entry.value == ENTRIES[name]
    assert entry.literals == {"LEVEL": "debug"} | ({"TOKEN": "secret"} if "secret" in str(entry.value) else {})


URL = Launch(url="https://example.com/mcp", headers={"Authorization": "Bearer ${TOKEN}", "X-Team": "blue"})
REMOTE: dict[str, dict[str, Any]] = {
    "claude-code": {"type": "http", "url": URL.url, "headers": URL.headers},
    "codex": {"url": URL.url, "bearer_token_env_var": "TOKEN", "http_headers": {"X-Team": "blue"}},
    "copilot-cli": {"type": "http", "tools": ["*"], "url": URL.url, "headers": URL.headers},
    "gemini-cli": {"httpUrl": URL.url, "headers": URL.headers},
    "kiro": {"url": URL.url, "headers": URL.headers},
    "windsurf": {"serverUrl": URL.url, "headers": {"Authorization": "Bearer ${env:TOKEN}", "X-Team": "blue"}},
    "zed": {"url": URL.url, "headers": {"Authorization": "Bearer secret", "X-Team": "blue"}},
}


@pytest.mark.parametrize("name", REMOTE)
def test_the_entry_of_a_url(name: str) -> None:
    assert entry_for(HOSTS[name], URL, {"TOKEN": "secret"}).value == REMOTE[name]


#: How the hosts that defer tools are told not to defer those of a server.
ALWAYS_LOAD: dict[str, dict[str, Any]] = {"claude-code": {"alwaysLoad": True}, "copilot-cli": {"deferTools": "never"}}


@pytest.mark.parametrize("launch", [PROGRAM, URL], ids=["program", "url"])
@pytest.mark.parametrize("name", REMOTE)
def test_tools_stay_loaded_where_the_host_has_a_setting_for_it(name: str, launch: Launch) -> None:
    plain = entry_for(HOSTS[name], launch, {"TOKEN": "secret"}).value
    loaded = entry_for(HOSTS[name], launch._replace(always_load=True), {"TOKEN": "secret"}).value
    assert loaded == plain | ALWAYS_LOAD.get(name, {})
    assert not plain.keys() & {"alwaysLoad", "deferTools"}


def test_codex_passes_a_variable_as_a_header() -> None:
    entry = entry_for(HOSTS["codex"], Launch(url="https://e.com", headers={"X-Key": "${KEY}"}), {})
    assert entry.value == {"url": "https://e.com", "env_http_headers": {"X-Key": "KEY"}}
    assert not entry.literals


def test_what_a_host_can_not_take_is_refused() -> None:
    with pytest.raises(StartError, match="takes no URLs in this file: install the command 'gemel proxy "):
        entry_for(HOSTS["claude-desktop"], Launch(url="https://e.com"), {})
    with pytest.raises(StartError, match="can't set a working directory"):
        entry_for(HOSTS["cursor"], Launch(["/bin/x"], cwd="/tmp"), {})
    assert entry_for(HOSTS["codex"], Launch(["/bin/x"], cwd="/tmp"), {}).value["cwd"] == "/tmp"
    with pytest.raises(StartError, match="Zed can't refer to variables, so the value is written: TOKEN is not set"):
        entry_for(HOSTS["zed"], PROGRAM, {})
