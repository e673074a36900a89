"""Where each MCP host keeps its configuration, and the shape of an entry there, as data with a source each.

Hosts change: what no longer holds is corrected here. What hosts don't support in a server is in `gemel.doctor.hosts`.
"""

from __future__ import annotations

import ntpath
import os
import posixpath
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from gemel.errors import StartError
from gemel.user_files import path_within

#: The folders that `Host.files` names, by platform: a variable, and what holds where it is not set.
_FOLDERS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "linux": {"config": ("XDG_CONFIG_HOME", "{home}/.config"), "state": ("XDG_STATE_HOME", "{home}/.local/state")},
    "darwin": {
        "config": ("", "{home}/Library/Application Support"),
        "state": ("", "{home}/Library/Application Support"),
    },
    "win32": {
        "config": ("APPDATA", "{home}/AppData/Roaming"),
        "state": ("LOCALAPPDATA", "{home}/AppData/Local"),
    },
}


class Host(NamedTuple):
    """One host.

    Args:
        title: What people call it.
        file: Its configuration file; `{home}` is the user's folder, `{config}` where the platform keeps settings.
        section: The member that maps names to servers.
        source: Where that is documented.
        files: Other files on some platforms, by `sys.platform`.
        project: Its file in a project, or "" if it has none.
        moved_by: A variable with the folder in which the file is instead.
        program: Members that every entry of a program has.
        remote: Members that every entry of a URL has; None if the host takes no URLs in this file.
        url: The member with the URL.
        headers: The member with the headers of requests.
        cwd: Whether an entry can name a working directory.
        variable: How a value refers to a variable of the host's environment, such as `${env:NAME}`; "" if it can't.
        variables: The member that lists variables to pass on, for hosts whose values can't refer to them.
        header_variables: The member that maps headers to variables, likewise.
        bearer_variable: The member with the variable of a bearer token, likewise.
        always_load: Members of an entry whose tools are never put behind the host's own search; {} if it has no setting.
        commands: Its programs, by which it is found where it has no configuration yet.
    """

    title: str
    file: str
    section: str
    source: str
    files: Mapping[str, str] = {}
    project: str = ""
    moved_by: str = ""
    program: Mapping[str, object] = {}
    remote: Mapping[str, object] | None = {}
    url: str = "url"
    headers: str = "headers"
    cwd: bool = False
    variable: str = ""
    variables: str = ""
    header_variables: str = ""
    bearer_variable: str = ""
    always_load: Mapping[str, object] = {}
    commands: tuple[str, ...] = ()

    def path(self, platform: str, environ: Mapping[str, str], *, project: Path | None = None) -> Path:
        """Find the configuration file.

        Args:
            platform: As `sys.platform`; what is neither Windows nor macOS counts as Linux.
            environ: The environment.
            project: The folder of a project, for the host's file in it.

        Returns:
            The path of the file, which need not exist.

        Raises:
            StartError: The host has no file in a project.
        """
        if project is not None:
            if not self.project:
                raise StartError(f"{self.title} has no configuration of a project: leave out --project")
            return path_within(project, self.project)
        if self.moved_by and environ.get(self.moved_by):
            return Path(environ[self.moved_by]) / posixpath.basename(self.file)
        return _expand(self.files.get(platform, self.file), platform, environ)

    def is_found(self, platform: str, environ: Mapping[str, str]) -> bool:
        """Whether the host is on this machine: it has its configuration or a folder for that, or a program on the PATH.

        Args:
            platform: As `sys.platform`.
            environ: The environment.
        """
        file = self.path(platform, environ)
        has_folder = file.parent.is_dir() and file.parent != _expand("{home}", platform, environ)
        return has_folder or file.exists() or any(map(shutil.which, self.commands))


def state_folder(platform: str, environ: Mapping[str, str]) -> Path:
    """Return the folder in which Gemel keeps what it wrote and the backups; arguments as for `Host.path`."""
    return _expand("{state}/gemel/install", platform, environ)


def _expand(place: str, platform: str, environ: Mapping[str, str]) -> Path:
    home = environ.get("USERPROFILE" if platform == "win32" else "HOME") or os.path.expanduser("~")
    folders = {"home": home}
    for name, (variable, usual) in _FOLDERS.get(platform, _FOLDERS["linux"]).items():
        value = environ.get(variable, "")
        isabs = ntpath.isabs if platform == "win32" else posixpath.isabs
        folders[name] = value if isabs(value) else usual.format(home=home)
    return Path(place.format(**folders))


_SERVERS = "mcpServers"

#: The hosts, by the name that `--host` takes: the names of `gemel.doctor.HOSTS`.
HOSTS: Mapping[str, Host] = {
    "claude-code": Host(
        "Claude Code",
        "{home}/.claude.json",
        _SERVERS,
        "https://code.claude.com/docs/en/mcp",
        project=".mcp.json",
        moved_by="CLAUDE_CONFIG_DIR",
        program={"type": "stdio"},
        remote={"type": "http"},
        variable="${NAME}",
        always_load={"alwaysLoad": True},  # https://github.com/anthropics/claude-code/issues/82900
        commands=("claude",),
    ),
    "claude-desktop": Host(
        "Claude Desktop",
        "{config}/Claude/claude_desktop_config.json",
        _SERVERS,
        "https://modelcontextprotocol.io/docs/develop/connect-local-servers",
        remote=None,
    ),
    "codex": Host(
        "Codex",
        "{home}/.codex/config.toml",
        "mcp_servers",
        "https://developers.openai.com/codex/mcp",
        project=".codex/config.toml",
        moved_by="CODEX_HOME",
        headers="http_headers",
        cwd=True,
        variables="env_vars",
        header_variables="env_http_headers",
        bearer_variable="bearer_token_env_var",
        commands=("codex",),
    ),
    "copilot-cli": Host(
        "Copilot CLI",
        "{home}/.copilot/mcp-config.json",
        _SERVERS,
        "https://docs.github.com/en/copilot/how-tos/copilot-cli/customize-copilot/add-mcp-servers",
        project=".mcp.json",
        moved_by="COPILOT_HOME",
        program={"type": "local", "tools": ["*"]},
        remote={"type": "http", "tools": ["*"]},
        variable="${NAME}",
        # https://docs.github.com/en/copilot/concepts/agents/copilot-cli/tool-search
        always_load={"deferTools": "never"},
        commands=("copilot",),
    ),
    "cursor": Host(
        "Cursor",
        "{home}/.cursor/mcp.json",
        _SERVERS,
        "https://cursor.com/docs/mcp",
        project=".cursor/mcp.json",
        commands=("cursor",),
        variable="${env:NAME}",
    ),
    "gemini-cli": Host(
        "Gemini CLI",
        "{home}/.gemini/settings.json",
        _SERVERS,
        "https://github.com/google-gemini/gemini-cli/blob/main/docs/tools/mcp-server.md",
        project=".gemini/settings.json",
        url="httpUrl",
        commands=("gemini",),
        cwd=True,
        variable="${NAME}",
    ),
    "kiro": Host(
        "Kiro",
        "{home}/.kiro/settings/mcp.json",
        _SERVERS,
        "https://kiro.dev/docs/mcp/configuration",
        project=".kiro/settings/mcp.json",
        commands=("kiro",),
        variable="${NAME}",
    ),
    "vscode": Host(
        "VS Code",
        "{config}/Code/User/mcp.json",
        "servers",
        "https://code.visualstudio.com/docs/copilot/reference/mcp-configuration",
        commands=("code",),
        project=".vscode/mcp.json",
        program={"type": "stdio"},
        remote={"type": "http"},
        variable="${env:NAME}",
    ),
    "windsurf": Host(
        "Windsurf",
        "{home}/.codeium/windsurf/mcp_config.json",
        _SERVERS,
        "https://docs.windsurf.com/windsurf/cascade/mcp",
        url="serverUrl",
        commands=("windsurf",),
        variable="${env:NAME}",
    ),
    "zed": Host(
        "Zed",
        "{config}/zed/settings.json",
        "context_servers",
        "https://zed.dev/docs/ai/mcp",
        commands=("zed", "zeditor"),
        files={"darwin": "{home}/.config/zed/settings.json", "win32": "{config}/Zed/settings.json"},
    ),
}

#: Short names that `--host` takes as well.
SHORT_NAMES: Mapping[str, str] = {"copilot": "copilot-cli", "gemini": "gemini-cli"}


def found_hosts(platform: str, environ: Mapping[str, str]) -> list[str]:
    """Return the names of the hosts on this machine.

    Args:
        platform: As `sys.platform`.
        environ: The environment.
    """
    return [name for name, host in HOSTS.items() if host.is_found(platform, environ)]
