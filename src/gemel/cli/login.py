"""Logins of the command line: kept in encrypted files, used when a server asks for authorization."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gemel.cli.network import oauth_options, with_headers
from gemel.client.terminal.display import is_terminal
from gemel.errors import AuthorizationFailed, HttpStatus
from gemel.http1.client.wire import HeaderPairs
from gemel.transports.http.client.options import Credentials, Network

if TYPE_CHECKING:
    from gemel.auth.client.oauth import OAuth, OAuthCredentials


class StoredLogin:
    """Uses the login that is stored for a server, and starts one where a person is there. Give it to `auth=` of a client.

    Nothing is loaded before a server asks for authorization.

    Args:
        options: The parsed command line.
        headers: Headers for requests to the origin of the server.
        oauth: The options of the login that the entry of a configuration has.

    Raises:
        StartError: An option about the authorization server can't be used.
    """

    def __init__(
        self, options: argparse.Namespace, headers: Mapping[str, str], oauth: Mapping[str, Any] | None = None
    ) -> None:
        self._options = options
        self._headers = headers
        self.oauth = oauth_options(options, oauth)

    def bind(self, url: str, network: Network, /) -> Credentials:
        """Return the credentials for one server."""
        authorizer = None if may_log_in(self._options) else Nobody()
        return _StoredCredentials(url, with_headers(network, self._headers), authorizer, self.oauth)


class _StoredCredentials:
    def __init__(self, url: str, network: Network, authorizer: object, options: Mapping[str, Any]) -> None:
        self._url = url
        self._network = network
        self._authorizer = authorizer
        self._options = options
        self._credentials: OAuthCredentials | None = None

    @property
    def identity(self) -> str | None:
        """Who is logged in."""
        return None if self._credentials is None else self._credentials.identity

    @property
    def asks_person(self) -> bool:
        """Whether a person is logging in."""
        return self._credentials is not None and self._credentials.asks_person

    async def headers(self, method: str, url: str, /) -> HeaderPairs:
        """See `Credentials`."""
        return () if self._credentials is None else await self._credentials.headers(method, url)

    async def refused(self, refusal: HttpStatus, sent: HeaderPairs, /) -> bool:
        """See `Credentials`."""
        if self._credentials is None:
            self._credentials = command_oauth(self._authorizer, self._options).bind(self._url, self._network)
            if await self._credentials.tokens() is not None:
                return True
        nobody = isinstance(self._authorizer, Nobody)
        advice = f"Run gemel auth login {self._url}, or" if nobody else "Without a login,"
        advice += " give a token with --header on the command line"
        if nobody and refusal.status == 401 and await self._credentials.tokens() is None:
            # Metadata is for a login or a refresh. What is wrong with it would hide what is missing.
            raise AuthorizationFailed(f"{self._url} wants a login (HTTP 401): this command starts none. {advice}")
        try:
            return await self._credentials.refused(refusal, sent)
        except AuthorizationFailed as exc:
            raise AuthorizationFailed(f"{exc}. {advice}") from exc


class Nobody:
    """Nobody is there to log in: an `Authorizer` that fails before anything is sent."""

    @property
    def redirect_uri(self) -> str:
        """Raises AuthorizationFailed."""
        raise AuthorizationFailed("this command starts none")

    async def authorize(self, url: str) -> str:
        """Raises AuthorizationFailed."""
        raise AuthorizationFailed("this command starts none")


def may_log_in(options: argparse.Namespace) -> bool:
    """Return whether a command may start a login: a person is at the terminal, and no option says otherwise."""
    if getattr(options, "no_login", False) or getattr(options, "no_input", False):
        return False
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def command_oauth(authorizer: Any = None, options: Mapping[str, Any] | None = None) -> OAuth:
    """Return OAuth with the logins of the command line.

    Args:
        authorizer: How a person logs in; with the browser by default.
        options: Further options, as an entry of a configuration has them.
    """
    from gemel.auth.client.configured import configured_oauth
    from gemel.auth.client.oauth import OAuth
    from gemel.auth.client.stores import FileTokenStore

    base = OAuth(authorizer=authorizer, store=FileTokenStore(), keep_client=True)
    return configured_oauth(options or {}, base)
