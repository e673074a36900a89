"""`gemel auth`: log in to a server, log out, show the login, print its token."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from gemel.cli.connect import CONFIGURED
from gemel.cli.console import as_json
from gemel.cli.login import Nobody, command_oauth
from gemel.cli.network import given_option, network_of, oauth_options
from gemel.client.terminal.browser import has_browser
from gemel.client.terminal.display import is_terminal, write
from gemel.errors import AuthorizationFailed, StartError
from gemel.visible import escape_line

#: Options of `gemel auth login` only.
_OF_LOGIN = (
    "device",
    "paste",
    "port",
    "scope",
    "client_id",
    "auth_method",
    "client_secret_file",
    *("issuer", "accept_issuer", "resource", "assume_pkce", "parameter", "private_networks"),
)


async def run(options: argparse.Namespace) -> int:
    """Do what the action says. The exit code is 1 if nobody is logged in."""
    actions: dict[str, Callable[[argparse.Namespace, str], Awaitable[int]]] = {
        "logout": _logout,
        "status": _status,
        "token": _token,
    }
    if options.action != "login" and (wrong := given_option(options, _OF_LOGIN)):
        raise StartError(f"{wrong} is for gemel auth login")
    url, oauth = _server(options.target)
    if options.action == "login":
        return await _login(options, url, oauth)
    return await actions[options.action](options, url)


def _server(target: str) -> tuple[str, dict[str, Any]]:
    """Return the URL of the TARGET, and the options of the login that an entry of a configuration has."""
    oauth: dict[str, Any] = {}
    entry = CONFIGURED.fullmatch(target)
    if entry is not None:
        from gemel.client.group.config import pick, read_config

        configured = pick(read_config(entry["path"]), entry["name"])
        if configured.problem:
            raise StartError(configured.problem)
        target, oauth = configured.url, configured.oauth or {}
    if not str(target).startswith(("http://", "https://")):
        raise StartError("gemel auth needs the URL of a server, or the entry of a configuration that has one")
    return str(target), oauth


async def _login(options: argparse.Namespace, url: str, configured: dict[str, Any]) -> int:
    if options.client_secret_file and not options.client_id:
        raise StartError("--client-secret-file needs --client-id")
    if options.auth_method and not options.client_secret_file:
        raise StartError("--auth-method needs --client-secret-file")
    own = {
        "scopes": options.scope or None,
        "client_id": options.client_id,
        "client_secret": _read_secret(options.client_secret_file),
        "auth_method": options.auth_method,
    }
    given = {name: value for name, value in own.items() if value is not None}
    oauth = command_oauth(_authorizer(options, configured), {**oauth_options(options, configured), **given})
    credentials = oauth.bind(url, network_of(options))
    tokens = await credentials.login(again=bool(options.client_id or options.scope))
    scopes = f" with the scopes {' '.join(tokens.scopes)}" if tokens.scopes else ""
    print(f"Logged in to {tokens.issuer}{escape_line(scopes)}.", file=sys.stderr)
    return 0


def _authorizer(options: argparse.Namespace, configured: dict[str, Any]) -> object:
    """Return how the person logs in; None for the browser."""
    from gemel.auth.client.device import DeviceLogin
    from gemel.auth.client.user import BrowserLogin, PasteLogin

    if options.device:
        return DeviceLogin()
    if options.paste or (not options.port and not has_browser() and is_terminal(sys.stdin)):
        port = options.port or configured.get("callback_port") or 8765
        return PasteLogin(redirect_uri=configured.get("redirect_uri") or f"http://localhost:{port}/callback")
    return BrowserLogin(port=options.port) if options.port else None


def _read_secret(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        secret = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise StartError(f"--client-secret-file {path}: {exc}") from exc
    if not secret:
        raise StartError(f"--client-secret-file {path} is empty")
    return secret


async def _logout(options: argparse.Namespace, url: str) -> int:
    is_gone = await command_oauth(Nobody()).bind(url, network_of(options)).logout()
    print(f"Logged out of {url}." if is_gone else f"Nobody is logged in to {url}.", file=sys.stderr)
    return 0


async def _status(options: argparse.Namespace, url: str) -> int:
    credentials = command_oauth(Nobody()).bind(url, network_of(options))
    tokens = await credentials.tokens()
    status: dict[str, object] = {"url": url, "loggedIn": tokens is not None}
    if tokens is not None:
        left = None if tokens.expires_at is None else max(0, round(tokens.expires_at - time.time()))
        status |= {
            "issuer": tokens.issuer,
            "clientId": tokens.client.get("client_id"),
            "scopes": list(tokens.scopes),
            "tokenType": tokens.token_type,
            "expiresIn": left,
            "refreshable": tokens.refresh_token is not None,
        }
    if options.json:
        write(sys.stdout, f"{as_json(status)}\n")
    else:
        write(sys.stdout, "".join(f"{line}\n" for line in _lines(status)))
    return 0 if tokens is not None else 1


def _lines(status: dict[str, object]) -> list[str]:
    if not status["loggedIn"]:
        return [f"Nobody is logged in to {status['url']}: gemel auth login {status['url']} logs in"]
    scopes = status["scopes"]
    assert isinstance(scopes, list)
    left = "when the server says so" if status["expiresIn"] is None else f"in {status['expiresIn']} seconds"
    renewal = ", then it is refreshed" if status["refreshable"] else ""
    lines = [f"Logged in to {status['url']}", f"issuer: {status['issuer']}", f"client: {status['clientId']}"]
    lines += [f"scopes: {' '.join(scopes)}"] if scopes else []
    return [escape_line(line) for line in [*lines, f"the token expires {left}{renewal}"]]


async def _token(options: argparse.Namespace, url: str) -> int:
    tokens = await command_oauth(Nobody()).bind(url, network_of(options)).tokens()
    if tokens is None:
        raise AuthorizationFailed(f"Nobody is logged in to {url}: run gemel auth login {url}")
    if tokens.token_type == "DPoP":
        raise AuthorizationFailed("The token of this login is bound to a key: it is of no use elsewhere")
    if options.json:
        write(sys.stdout, f"{as_json({'accessToken': tokens.access_token, 'expiresAt': tokens.expires_at})}\n")
    else:
        write(sys.stdout, f"{tokens.access_token}\n")
    return 0
