"""The configuration file of MCP hosts: which servers there are and how to reach them.

What is wrong with one entry is a problem of that entry alone. Errors name file, server and key.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from gemel.client.group.oauth import OAuthReader
from gemel.client.targets import fitting_options
from gemel.errors import StartError, shorten
from gemel.lazy_imports import load
from gemel.options import options_of
from gemel.protocol.eras.base import EraName
from gemel.transports.http.client.options import HttpClientOptions

logger = logging.getLogger("gemel")

#: A configuration: the path of a JSON or TOML file, or what such a file holds.
Source: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]
Kind: TypeAlias = Literal["stdio", "http", "sse"]

#: The names of the section in the files of different hosts: most of them, VS Code, Zed, Codex.
_SECTIONS = ("mcpServers", "servers", "context_servers", "mcp_servers")
#: Keys by which Gemini CLI, Windsurf, Codex and OpenCode call the same thing. Copilot CLI has `oauthClientId`.
_ALIASES = {"httpUrl": "url", "serverUrl": "url", "http_headers": "headers", "environment": "env"}
#: The types, in lower case without `-` and `_`.
_KINDS: dict[str, Kind] = {
    "stdio": "stdio",
    "http": "http",
    "streamablehttp": "http",
    "sse": "sse",
    "local": "stdio",
    "remote": "http",
}
#: Keys of other hosts without which a server may not work as it does there, and what to write instead.
_UNREAD = {
    "envFile": "write its variables into `env`",
    "headersHelper": "write the headers into `headers`",
    "authProviderType": "write a token or a login into `auth`",
}
_KEYS = (
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "auth",
    "oauth",
    "type",
    "transport",
    "disabled",
    "enabled",
    "era",
    "lock",
    "drift",
)
#: Those that only servers with a URL have, and only programs.
_OF_URL, _OF_COMMAND = frozenset({"headers", "auth", "oauth"}), frozenset({"args", "env", "cwd"})
_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_NESTED = re.compile(r"\$\{[^{}]*\$\{[^{}]*\}[^{}]*\}?")
_NAME = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


class ServerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One server of a configuration.

    Attributes:
        name: The name.
        kind: "stdio", "http", or "sse" (the HTTP transport of the first revision).
        command: The command line, for "stdio".
        env: Environment variables, for "stdio".
        cwd: The working directory, for "stdio".
        url: The address, for "http" and "sse".
        headers: HTTP headers, for "http" and "sse".
        oauth: The options of a login with OAuth, for "http" and "sse". None if the entry doesn't say, False if it says that there
            is no login.
        disabled: Whether it is to be left out.
        era: "2025" or "2026" if the era is not to be detected.
        lock: The path of the lock file that the server must match.
        drift: Whether differences from the lock file are refused or logged.
        problem: Why it can't be used: a mistake in the entry, or a variable that is not set. Other servers of the file work.
    """

    name: str
    kind: Kind = "stdio"
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    oauth: dict[str, Any] | Literal[False] | None = None
    disabled: bool = False
    era: EraName | None = None
    lock: str | None = None
    drift: Literal["refuse", "warn"] = "refuse"
    problem: str = ""

    def reach(self, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Get what a Client needs.

        Args:
            options: Options for several servers, of which those are used that fit this one. Headers and environment variables of
                the entry are added to theirs; everything else that the entry has takes their place.

        Returns:
            The target, and options.

        Raises:
            StartError: The entry can't be used.
        """
        if self.problem:
            raise StartError(self.problem)
        given = fitting_options(list(self.command) or self.url, options or {})
        if self.era is not None:
            given["era"] = self.era
        if self.lock is not None:
            given |= {"lock": self.lock, "drift": self.drift}
        if self.kind == "stdio":
            env = {**(given.get("env") or {}), **self.env}
            return list(self.command), {**given, "env": env, "cwd": self.cwd or given.get("cwd")}
        given |= self._authorization(given)
        if self.kind == "http":
            return self.url, given
        from gemel.transports.http.client.legacy_sse import SseTransport

        own = {name: given.pop(name) for name in options_of(HttpClientOptions) if name in given}
        limits = {"limits": given["limits"]} if "limits" in given else {}
        return SseTransport(self.url, **limits, **own), given

    def _authorization(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The headers and the login, with those that are given for several servers."""
        authorizes = any(name.lower() == "authorization" for name in self.headers)
        if authorizes or self.oauth is False:
            auth = None
        elif self.oauth is None:
            auth = given.get("auth")
        else:
            auth = load("configured_oauth")(self.oauth, given.get("auth"))
        is_own = authorizes or self.oauth not in (None, False)
        headers = _merged_headers(given.get("headers"), self.headers, authorizes=is_own)
        return {"headers": headers} | ({} if auth is None and "auth" not in given else {"auth": auth})


def _merged_headers(given: Any, own: Mapping[str, str], *, authorizes: bool) -> Any:
    """The headers of an entry with those that are given for several servers. An entry that authorizes itself keeps that."""
    replaced = {name.lower() for name in own} | ({"authorization"} if authorizes else set())

    def merge(headers: Mapping[str, str] | None) -> dict[str, str]:
        return {name: value for name, value in (headers or {}).items() if name.lower() not in replaced} | dict(own)

    if not callable(given):
        return merge(given)

    async def merged() -> dict[str, str]:
        headers: Any = given()
        return merge(await headers if isawaitable(headers) else headers)

    return merged


def read_config(source: Source, *, environ: Mapping[str, str] | None = None) -> dict[str, ServerEntry]:
    """Read a configuration.

    The format is `{"mcpServers": {name: {"command", "args", "env", "cwd"} or {"url", "headers", "type"}}}`, each also with `era`,
    "2025" or "2026"; `lock`, the path of a lock file (relative to the file); and `drift`, "refuse" or "warn". A server with a URL
    may have `"auth": "oauth"`, or the options of the login as an object. `${VAR}`, `${VAR:-default}` and `${env:VAR}` are replaced
    by variables. Keys that only other hosts know are ignored.

    Args:
        source: The path of a JSON file, which may have comments, or of a TOML file as Codex has it; or its content.
        environ: The variables; those of the process by default.

    Returns:
        The servers by name, in their order. Disabled ones are marked, and those with a mistake have a `problem`.

    Raises:
        StartError: The file can't be read, or has no servers.
    """
    where, servers = ("the configuration", source) if isinstance(source, Mapping) else (str(source), _load(source))
    section = next((name for name in _SECTIONS if name in servers), None) if isinstance(servers, Mapping) else None
    if section is None:
        there = ", ".join(map(repr, servers)) if isinstance(servers, Mapping) and servers else "nothing of the kind"
        raise StartError(f'{where} has no "mcpServers": {{name: {{"command": …}}}}; it holds {shorten(there)}')
    if isinstance(servers[section], _Repeated):
        raise StartError(f"{where}: {section!r} is there twice")
    if not isinstance(servers[section], Mapping):
        raise StartError(f"{where}: {section!r} must be an object that maps names to servers")
    others = [name for name in _SECTIONS if name in servers and name != section]
    if others:
        logger.warning("%s has %r, which is read, and %s, which is not", where, section, ", ".join(map(repr, others)))
    variables = os.environ if environ is None else environ
    folder = "" if isinstance(source, Mapping) else os.path.dirname(os.path.abspath(source))
    return {
        name: _located(_EntryReader(where, name, table, variables).read(), folder)
        for name, table in servers[section].items()
    }


def _located(entry: ServerEntry, folder: str) -> ServerEntry:
    """The entry with an absolute path of its lock file."""
    if entry.lock is None:
        return entry
    return msgspec.structs.replace(entry, lock=os.path.join(folder, os.path.expanduser(entry.lock)))


def pick(entries: Mapping[str, ServerEntry], name: str | None) -> ServerEntry:
    """The entry of that name, or the only one that is not disabled. Raises StartError."""
    if name is not None:
        if name not in entries:
            raise StartError(f"There is no server {name!r} in the configuration: it has {_names(entries)}")
        return entries[name]
    enabled = [entry for entry in entries.values() if not entry.disabled]
    if len(enabled) != 1:
        raise StartError(
            f"Which server? The configuration has {_names(entries)}: name one, or use ClientGroup for all of them"
        )
    return enabled[0]


def _names(entries: Mapping[str, ServerEntry]) -> str:
    return ", ".join(map(repr, entries)) or "none"


def _load(path: str | os.PathLike[str]) -> Any:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        return _read_toml(path, text) if str(path).endswith(".toml") else _read_json(path, text)
    except OSError as exc:
        raise StartError(f"{path} can't be read: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        raise StartError(f"{path} is not UTF-8: {exc.reason} at byte {exc.start}") from exc
    except RecursionError:
        raise StartError(f"{path}: lists and objects are nested too deeply") from None


def _read_json(path: str | os.PathLike[str], text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except ValueError:  # also of a number with too many digits
        from gemel.client.group.jsonc import MalformedJson, read

        try:
            return read(text).value
        except MalformedJson as exc:
            raise StartError(f"{path}:{exc.line}:{exc.column}: not JSON: {exc.what}") from None
        except ValueError as exc:
            raise StartError(f"{path} can't be read: {exc}") from None


def _read_toml(path: str | os.PathLike[str], text: str) -> Any:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise StartError(f"{path}: not TOML: {exc}") from exc


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        members[name] = _Repeated() if name in members else value
    return members


class _Repeated:
    """The value of a member that is there twice."""


class _EntryReader:
    """Reads the table of one server."""

    def __init__(self, where: str, name: str, table: object, variables: Mapping[str, str]) -> None:
        self._place = f"{where}: server {name!r}"
        self._name = name
        self._table: Mapping[str, Any] = {}
        self._written = table
        self._variables = variables

    def read(self) -> ServerEntry:
        """Read the entry. A disabled server is not checked: its variables may be missing."""
        try:
            self._table = self._unified(self._checked(self._written))
            if self._flag("disabled", False) or not self._flag("enabled", True):
                return ServerEntry(name=self._name, disabled=True)
            self._warn_of_slips()
            return self._enabled(self._kind())
        except StartError as exc:
            return ServerEntry(name=self._name, problem=str(exc))

    def _checked(self, table: object) -> Mapping[str, Any]:
        if isinstance(table, _Repeated):
            raise StartError(f"{self._place} is there twice")
        if not isinstance(table, Mapping):
            raise StartError(f'{self._place} must be an object with a "command" or a "url"')
        for key, value in table.items():
            repeated = isinstance(value, Mapping) and any(isinstance(one, _Repeated) for one in value.values())
            if repeated or isinstance(value, _Repeated):
                raise self._wrong(key, f"{'a member' if repeated else 'it'} is there twice")
        return table

    def _unified(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """The table with the keys of most hosts, and with references in place of Codex's names of variables.

        A member that is null is the same as none.
        """
        unified: dict[str, Any] = {}
        for key, value in table.items():
            name = _ALIASES.get(key, key)
            if value is not None and unified.setdefault(name, value) != value:
                raise self._wrong(key, f"there is another name of {name!r} with another value, too: write one of them")
        if isinstance(command := unified.get("command"), list) and command:
            unified |= {"command": command[0], "args": [*command[1:], *self._members(unified, "args", list)]}
        if names := self._members(unified, "env_vars", list):
            variables = [self._item(f"env_vars[{place}]", name) for place, name in enumerate(names)]
            unified["env"] = {**self._members(unified, "env", Mapping), **{name: f"${{{name}}}" for name in variables}}
        headers = self._members(unified, "env_http_headers", Mapping)
        written = {name: f"${{{self._item('env_http_headers', variable)}}}" for name, variable in headers.items()}
        if token := unified.get("bearer_token_env_var"):
            written["Authorization"] = f"Bearer ${{{self._item('bearer_token_env_var', token)}}}"
        if client := unified.get("oauthClientId"):
            unified.setdefault("oauth", {"clientId": client})
        if written:
            unified["headers"] = {**self._members(unified, "headers", Mapping), **written}
        return unified

    def _enabled(self, kind: Kind) -> ServerEntry:
        if kind == "stdio":
            words = [self._text("command"), *self._list("args")]
            cwd = self._text("cwd") if self._table.get("cwd") is not None else None
            entry = ServerEntry(name=self._name, kind=kind, command=tuple(words), env=self._texts("env"), cwd=cwd)
            return self._with_era_and_lock(entry)
        url = self._text("url")
        if not url.startswith(("http://", "https://")):
            raise self._wrong("url", f"must begin with http:// or https://, not {shorten(url)!r}")
        authorization, oauth = self._login()
        headers = self._texts("headers")
        if authorization is not None:
            if any(name.lower() == "authorization" for name in headers):
                raise self._wrong("auth", "`headers` has an Authorization, too: write one of them")
            headers["Authorization"] = authorization
        entry = ServerEntry(name=self._name, kind=kind, url=url, headers=headers, oauth=oauth)
        return self._with_era_and_lock(entry)

    def _login(self) -> tuple[str | None, dict[str, Any] | Literal[False] | None]:
        """The Authorization header that `auth` has, and the options of the login that `auth` or `oauth` asks for.

        A text without a scheme is a bearer token.
        """
        auth, oauth = self._table.get("auth"), self._table.get("oauth")
        if isinstance(auth, str) and auth.lower() not in ("oauth", "none"):
            text = self._text("auth").strip()
            return text if " " in text else f"Bearer {text}", None
        if isinstance(auth, Mapping) and oauth is not None:
            raise self._wrong("oauth", "the options of the login are in `auth`, too: write them once")
        key = "auth" if auth is not None and oauth is None else "oauth"
        written: Any = self._table.get(key)
        if isinstance(written, str) and written.lower() in ("oauth", "none"):
            written = written.lower() == "oauth"
        if written is None or isinstance(written, bool):
            return None, {} if written else written
        if not isinstance(written, Mapping):
            raise self._wrong(key, 'must be "oauth", an object with the options of the login, true or false')
        return None, OAuthReader(self._place, key, written, self._item).read()

    def _with_era_and_lock(self, entry: ServerEntry) -> ServerEntry:
        era = self._table.get("era")
        try:
            entry = msgspec.structs.replace(entry, era=msgspec.convert(era, EraName | None))
        except msgspec.ValidationError:
            raise self._wrong("era", f'{shorten(json.dumps(era))} is not possible: use "2025" or "2026"') from None
        lock, drift = self._table.get("lock"), self._table.get("drift", "refuse")
        if lock is None:
            return entry
        if drift not in ("refuse", "warn"):
            raise self._wrong("drift", f'{shorten(json.dumps(drift))} is not possible: use "refuse" or "warn"')
        return msgspec.structs.replace(entry, lock=self._text("lock"), drift=drift)

    def _kind(self) -> Kind:
        has_command, has_url = "command" in self._table, "url" in self._table
        if has_command == has_url:
            has = "both" if has_command else ", ".join(map(repr, self._table)) or "nothing"
            raise StartError(f'{self._place} needs either a "command" or a "url"; it has {has}')
        key = next((key for key in ("type", "transport") if key in self._table), None)
        if key is None:
            return "stdio" if has_command else "http"
        written = self._table[key]
        kind = _KINDS.get(written.lower().replace("-", "").replace("_", "")) if isinstance(written, str) else None
        if kind is None:
            raise self._wrong(key, f"{shorten(repr(written))} is not a type of server: use stdio, http or sse")
        if (kind == "stdio") != has_command:
            raise self._wrong(key, f"{self._table[key]!r} doesn't go with a {'command' if has_command else 'url'}")
        return kind

    # ---------------------------------------------------------------- values

    def _flag(self, key: str, default: bool) -> bool:
        value = self._table.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "must be true or false")
        return value

    def _text(self, key: str) -> str:
        value = self._table.get(key)
        if not isinstance(value, str) or not value:
            raise self._wrong(key, "must be a string that is not empty")
        return self._expand(key, value)

    def _list(self, key: str) -> list[str]:
        values = self._members(self._table, key, list)
        return [self._item(f"{key}[{place}]", value) for place, value in enumerate(values)]

    def _texts(self, key: str) -> dict[str, str]:
        values = self._members(self._table, key, Mapping)
        return {name: self._item(f"{key}.{name}", value) for name, value in values.items()}

    def _members(self, table: Mapping[str, Any], key: str, kind: type[Any]) -> Any:
        """The list or object of a key, an empty one if it has none."""
        value = table.get(key)
        if value is None:
            return [] if kind is list else {}
        if not isinstance(value, kind):
            of = "a list of strings" if kind is list else "an object that maps names to strings"
            raise self._wrong(key, f"must be {of}")
        return value

    def _item(self, key: str, value: object) -> str:
        if not isinstance(value, str):
            raise self._wrong(key, f"must be a string, in quotes, not {shorten(json.dumps(value))}")
        return self._expand(key, value)

    # ---------------------------------------------------------------- variables

    def _expand(self, key: str, text: str) -> str:
        if nested := _NESTED.search(text):
            raise self._wrong(key, f"a default can't have a reference in it: {shorten(nested[0])}")
        return _VARIABLE.sub(self._lookup(key), text)

    def _lookup(self, key: str) -> Callable[[re.Match[str]], str]:
        def look_up(reference: re.Match[str]) -> str:
            name = _NAME.fullmatch(reference[1])
            if name is None:
                raise self._wrong(key, f"{reference[0]} is only known to another host; write the value itself")
            value, default = self._variables.get(name[1]), name.groups()[1]
            if value is None and default is None:
                hint = f"set it, or write ${{{name[1]}:-default}}"
                raise self._wrong(key, f"the environment has no variable {name[1]}; {hint}")
            return value or default or ""

        return look_up

    def _wrong(self, key: str, what: str) -> StartError:
        return StartError(f"{self._place}: {key}: {what}")

    def _warn_of_slips(self) -> None:
        """Warn about keys without effect, and about those that are almost known ones; others belong to other hosts."""
        for key in self._table.keys() & _UNREAD.keys():
            logger.warning("%s: %r is only known to another host; %s", self._place, key, _UNREAD[key])
        foreign = _OF_URL if "command" in self._table else _OF_COMMAND
        for key in foreign & self._table.keys():
            logger.warning(
                "%s: %r has no effect with a %s", self._place, key, "command" if foreign is _OF_URL else "url"
            )
        unknown = [key for key in self._table if key not in _KEYS and key not in _UNREAD]
        if not unknown:
            return
        import difflib

        for key in unknown:
            if meant := difflib.get_close_matches(key, _KEYS, 1, 0.8):
                logger.warning("%s: %r is not known; did you mean %r?", self._place, key, meant[0])
