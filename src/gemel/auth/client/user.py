"""Ways in which a person authorizes a client: in a browser on this machine, on another one, or through the application.

Specification: RFC 8252 (OAuth 2.0 for Native Apps), and "OAuth Authorization URL Validation" in the Security Best Practices.
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
import ipaddress
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

from gemel.auth.client.callback_server import CallbackServer
from gemel.client.terminal.browser import has_browser, in_daemon_thread, open_page
from gemel.errors import AuthorizationFailed, DefinitionError, shorten

#: Maximum characters of an address that is opened or pasted.
MAX_URL = 16 * 1024
#: Wrong pasted addresses before the login fails.
MAX_ATTEMPTS = 5
#: Characters of an address that is opened: nothing that a shell, a terminal or a script language interprets.
_PLAIN = re.compile(r"[A-Za-z0-9\-._~:/?\[\]@&+,=%]+")


class Authorizer(Protocol):
    """Lets a person authorize the client at an authorization server, by the authorization code flow."""

    @property
    def redirect_uri(self) -> str:
        """Where the authorization server sends the browser afterwards; part of the registration of the client."""
        ...

    async def authorize(self, url: str) -> str:
        """Let a person open `url` and return the address that the browser is redirected to, with its query.

        Args:
            url: The address of the authorization endpoint, with `redirect_uri` and `state` among its parameters.

        Returns:
            The redirect URI with the parameters of the response. Its `state` is that of `url`; `iss`, `code` and `error` are
            not checked yet.

        Raises:
            AuthorizationFailed: The address must not be opened, or nobody authorized the client in time.
        """
        ...


class BrowserLogin:
    """Log in with the browser of this machine: an `Authorizer`.

    The browser returns to a server on the loopback interface, which runs as long as somebody logs in. It takes one response
    with the right `state`, from a request for its own host and path, and answers with a plain page.

    Args:
        host: `localhost` (IPv4 and, where there is one, IPv6), `127.0.0.1` or `::1`.
        port: A fixed port, for authorization servers that compare all of the redirect URI; 0 for a free one.
        path: The path of the redirect URI.
        timeout: Seconds that the person has.
        open_url: Opens a page and returns whether that worked; the default browser by default.
        show: Called with a text for the person; it is printed to standard error by default.

    Raises:
        DefinitionError: The host is not a loopback address, or the path has no slash in front.
    """

    def __init__(
        self,
        *,
        host: str = "localhost",
        port: int = 0,
        path: str = "/callback",
        timeout: float = 300.0,
        open_url: Callable[[str], bool] | None = None,
        show: Callable[[str], object] | None = None,
    ) -> None:
        self._server = CallbackServer(host, port, path)
        self._timeout = timeout
        self._open_url = open_url
        self._show = show or _print

    @property
    def redirect_uri(self) -> str:
        """The address of the callback server. Its port is reserved from here on.

        Raises:
            AuthorizationFailed: The port is in use.
        """
        return self._server.redirect_uri

    async def authorize(self, url: str) -> str:
        """Open the page in the browser and wait for the redirect.

        Args:
            url: The address of the authorization endpoint, with `redirect_uri` and `state` among its parameters.

        Returns:
            The redirect URI with the parameters of the response.

        Raises:
            AuthorizationFailed: The address must not be opened, or nobody authorized the client in time.
        """
        query = _check_url(url, self.redirect_uri)
        host = urlsplit(url).netloc
        async with self._server.listen(partial(_belongs, state=query["state"])) as redirected:
            has_opened = (self._open_url is not None or has_browser()) and await open_page(url, self._open_url)
            if has_opened:
                self._show(f"Log in to {host} in the browser. If it did not open, open this page:\n{url}")
            else:
                self._show(f"To log in to {host}, open this page in a browser on this machine:\n{url}")
            try:
                async with asyncio.timeout(self._timeout):
                    return await redirected
            except TimeoutError:
                dropped = self._server.dropped
                why = f"; {dropped} answers that did not belong to this login were refused" if dropped else ""
                raise AuthorizationFailed(f"Nobody logged in to {host} within {self._timeout:g} seconds{why}") from None

    def close(self) -> None:
        """Give the reserved port back. It is reserved again when it is needed."""
        self._server.close()


class PasteLogin:
    """Log in with a browser on another machine: the person pastes the address that it was redirected to. An `Authorizer`.

    Nothing listens at the redirect URI, so the browser shows an error page; its address bar has what is needed.

    Args:
        redirect_uri: The redirect URI.
        read: Reads one line after a prompt, None at the end of the input; from standard input by default.
        show: Called with a text for the person; it is printed to standard error by default.
        timeout: Seconds that the person has.
    """

    def __init__(
        self,
        *,
        redirect_uri: str = "http://localhost:8765/callback",
        read: Callable[[str], Awaitable[str | None]] | None = None,
        show: Callable[[str], object] | None = None,
        timeout: float = 600.0,
    ) -> None:
        _check_redirect_uri(redirect_uri)
        self._redirect_uri = redirect_uri
        self._read = read or _read_line
        self._show = show or _print
        self._timeout = timeout

    @property
    def redirect_uri(self) -> str:
        """The redirect URI."""
        return self._redirect_uri

    async def authorize(self, url: str) -> str:
        """Show the address of the page and read that of the redirect.

        Args:
            url: The address of the authorization endpoint, with `redirect_uri` and `state` among its parameters.

        Returns:
            The redirect URI with the parameters of the response.

        Raises:
            AuthorizationFailed: The address must not be opened, or nobody authorized the client in time.
        """
        query = _check_url(url, self.redirect_uri)
        host = urlsplit(url).netloc
        self._show(
            f"To log in to {host}, open this page in any browser:\n{url}\n"
            f"Then paste the address that it ends at. It begins with {self.redirect_uri}, and the page may be empty."
        )
        try:
            async with asyncio.timeout(self._timeout):
                for _ in range(MAX_ATTEMPTS):
                    line = await self._read("Address: ")
                    if line is None:
                        break
                    try:
                        return _check_redirect(line.strip(), self.redirect_uri, query["state"])
                    except AuthorizationFailed as exc:
                        self._show(str(exc))
        except TimeoutError:
            raise AuthorizationFailed(f"Nobody logged in to {host} within {self._timeout:g} seconds") from None
        raise AuthorizationFailed(f"Nobody logged in to {host}: no address of the redirect was pasted")


class CallbackLogin:
    """Log in through the application, such as a web application that has a page for the redirect. An `Authorizer`.

    Args:
        authorize: `async def authorize(url) -> redirect`: sends the person to `url` and returns the address that the
            application was called at, with its query. It may also be a plain function.
        redirect_uri: The address of the page of the application.
    """

    def __init__(self, authorize: Callable[[str], str | Awaitable[str]], *, redirect_uri: str) -> None:
        _check_redirect_uri(redirect_uri)
        self._authorize = authorize
        self._redirect_uri = redirect_uri

    @property
    def redirect_uri(self) -> str:
        """The redirect URI."""
        return self._redirect_uri

    async def authorize(self, url: str) -> str:
        """Let the application send the person to the page.

        Args:
            url: The address of the authorization endpoint, with `redirect_uri` and `state` among its parameters.

        Returns:
            The redirect URI with the parameters of the response.

        Raises:
            AuthorizationFailed: The address must not be opened, or nobody authorized the client in time.
        """
        query = _check_url(url, self.redirect_uri)
        redirect = self._authorize(url)
        if inspect.isawaitable(redirect):
            redirect = await redirect
        return _check_redirect(redirect, self.redirect_uri, query["state"])


# ---------------------------------------------------------------- addresses


def check_login_url(url: str) -> None:
    """Check that an address may be opened in a browser: https, or http on the loopback interface.

    Args:
        url: The address of a page of an authorization server.

    Raises:
        AuthorizationFailed: It is anything else, or has characters that a shell, a terminal or a script could interpret.
    """
    if len(url) > MAX_URL:
        raise AuthorizationFailed(
            f"The page for the login is not opened: its address is longer than {MAX_URL} characters"
        )
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise _refused(url, "it is not an address") from None
    if not url.lower().startswith(("https://", "http://")) or not host:
        raise _refused(url, "only https is opened, and http on this machine")
    if _PLAIN.fullmatch(url) is None:
        raise _refused(url, "it has characters that must be percent-encoded")
    if "@" in parts.netloc:
        raise _refused(url, "a user in front of the host hides what the host is")
    if parts.scheme != "https" and not _is_loopback(host):
        raise _refused(url, "http is opened on this machine only")


def _refused(url: str, reason: str) -> AuthorizationFailed:
    return AuthorizationFailed(f"The page for the login is not opened: {reason}: {shorten(ascii(url), 100)}")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_url(url: str, redirect_uri: str) -> Mapping[str, str]:
    """Check the address of an authorization endpoint and return its parameters."""
    check_login_url(url)
    query = dict(parse_qsl(urlsplit(url).query))
    if query.get("redirect_uri") != redirect_uri or not query.get("state"):
        raise AuthorizationFailed(
            "The address for the login names another redirect URI than that of this login, or no state"
        )
    return query


def _check_redirect(address: str, redirect_uri: str, state: str) -> str:
    """Return the address of a redirect if it belongs to this login. Nothing of it is repeated in errors."""
    target, mark, query = address.partition("?")
    if len(address) > MAX_URL or target != redirect_uri or not mark or "#" in query:
        raise AuthorizationFailed(f"This is not the address of the redirect: it begins with {redirect_uri}?")
    if not _belongs(query, state):
        raise AuthorizationFailed("This address belongs to another login: its state differs")
    return address


def _belongs(query: str, state: str) -> bool:
    """Return whether the query of a redirect has exactly this `state`, and a `code` or an `error`."""
    try:
        pairs = parse_qsl(query, max_num_fields=50, keep_blank_values=True)
    except ValueError:
        return False
    states = [value for name, value in pairs if name == "state"]
    is_same = len(states) == 1 and hmac.compare_digest(states[0].encode(), state.encode())
    return is_same and sum(name in ("code", "error") for name, _ in pairs) == 1


def _check_redirect_uri(uri: str) -> None:
    advice = f"redirect_uri={uri!r} is not possible: use an https URL without query or fragment"
    try:
        parts = urlsplit(uri)
        host = parts.hostname or ""
    except ValueError:
        raise DefinitionError(advice) from None
    if not host or parts.query or parts.fragment or parts.scheme not in ("https", "http"):
        raise DefinitionError(advice)
    if parts.scheme == "http" and not _is_loopback(host):
        raise DefinitionError(f"redirect_uri={uri!r} is not possible: http is for localhost, use https")


# ---------------------------------------------------------------- the person


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def _read_line(prompt: str) -> str | None:
    print(prompt, end="", file=sys.stderr, flush=True)
    line = await in_daemon_thread(sys.stdin.readline)
    return line.rstrip("\r\n") if line else None
