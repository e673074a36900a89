"""A login for visitors of pages: at the authorization server of the MCP server, with an access token for that server.

The token is judged as that of any caller, so that a visitor has the same principal as a client that acts for the same person.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from inspect import isawaitable
from typing import Any, Final, Protocol, runtime_checkable
from urllib.parse import urlsplit

import msgspec

from gemel.ask_by_page.app import PageRequest, VisitorOf, Visitors
from gemel.ask_by_page.page import Reply, message_page, redirect
from gemel.ask_by_page.questions import OpenQuestion, OpenQuestions, digest
from gemel.auth.client.code_flow import Authorization, begin, read_redirect, redeem
from gemel.auth.client.discovery import Discovered, server_metadata
from gemel.auth.client.token_request import IssuerOptions, RegisteredClient
from gemel.auth.flow import Fetcher
from gemel.auth.metadata import ProtectedResource
from gemel.auth.url_rules import UrlRules
from gemel.errors import AuthorizationFailed, DefinitionError
from gemel.http1.cookies import cookie_values
from gemel.protocol.deviations import log_deviation
from gemel.protocol.http.request import Headers, Principal, Refusal
from gemel.transports.http.server.options import Authenticate

logger = logging.getLogger("gemel")

#: What the path of a page has in place of a token where the authorization server sends the browser back to.
CALLBACK: Final = "login"
#: Seconds in which a person must log in, and for which the login is good for further pages.
_LOGIN_SECONDS: Final = 600.0
#: Seconds for which the metadata of the authorization server is used.
_METADATA_SECONDS: Final = 600.0
_STARTED, _SESSION = "gemel_ask_login", "gemel_ask"


@runtime_checkable
class HasMetadata(Protocol):
    """Authorization that names the authorization servers of a resource, such as `JWTAuth`."""

    def document(self, url: str) -> ProtectedResource:
        """Return the metadata of the resource."""
        ...


class PageLogin:
    """How visitors of a page log in: at the authorization server that issues the tokens of the MCP server.

    Register a client there, with the redirect URI `<url><endpoint>/ask/login`, such as `https://shop.example.com/mcp/ask/login`.

    Args:
        client_id: The id of the client.
        client_secret: Its secret; None for a public client.
        issuer: The authorization server, if the `auth=` of the server names several.
        scopes: Scopes to request: those that the server needs for any request.
        resource: The value of `resource` in the requests: True for the identifier of the server, False for none, or another one.
        parameters: Further parameters of the authorization request: `{"prompt": "login"}` asks for the password each time.

    Raises:
        DefinitionError: There is no client, or a parameter is one that the login sets itself.

    Example:
        >>> AskByPage("https://shop.example.com", login=PageLogin("shop-pages", "the secret"))
    """

    def __init__(
        self,
        client_id: str,
        client_secret: str | None = None,
        *,
        issuer: str | None = None,
        scopes: Sequence[str] = (),
        resource: str | bool = True,
        parameters: Mapping[str, str] | None = None,
    ) -> None:
        if not client_id:
            raise DefinitionError(
                "PageLogin needs the client_id of a client that is registered with the authorization server"
            )
        self.client = RegisteredClient(client_id=client_id, client_secret=client_secret, is_named_by_user=True)
        self.issuer = issuer
        self.scopes = tuple(scopes)
        self.options = IssuerOptions(resource=resource, parameters=dict(parameters or {}))
        self.options.check(issuer or "the only one")

    def __repr__(self) -> str:
        """The client only."""
        return f"PageLogin({self.client.client_id!r})"


class _Started(msgspec.Struct, array_like=True):
    """A login under way: the page to return to, and a digest of the cookie of its browser."""

    authorization: Authorization
    page: str
    browser: str


_started = msgspec.msgpack.Decoder(_Started)


class LoginVisitors(Visitors):
    """Visitors who log in.

    Args:
        login: How.
        questions: Where logins are kept.
        auth: The authorization of the MCP server.
        address: The address of the pages, without the token.
        endpoint: The address of the MCP endpoint.

    Raises:
        DefinitionError: The authorization names no authorization server, or several and `issuer=` none of them.
    """

    def __init__(self, login: PageLogin, questions: OpenQuestions, auth: object, address: str, endpoint: str) -> None:
        document = auth.document(endpoint) if isinstance(auth, HasMetadata) else None
        issuers = [] if document is None else list(document.authorization_servers or [])
        issuer = login.issuer or (issuers[0] if len(issuers) == 1 else None)
        if document is None or issuer not in issuers:
            raise DefinitionError(
                "login=PageLogin(…) needs Server(auth=…) that names the authorization server, such as JWTAuth(issuer=…); with "
                "several write PageLogin(issuer=…). Where people log in elsewhere write who=…"
            )
        self._login = login
        self._questions = questions
        self._authenticate: Authenticate = auth.authenticate  # type: ignore[attr-defined]  # that of an `Auth`
        self._resource = document.resource
        self._issuer = issuer
        self._address = address
        self._endpoint = urlsplit(endpoint)
        self._rules = UrlRules(endpoint, trusted=[issuer])
        self._found: Discovered | None = None
        self._found_at = 0.0
        secure = "; Secure" if self._endpoint.scheme == "https" else ""
        self._attributes = f"; HttpOnly; SameSite=Lax; Path={urlsplit(address).path}{secure}"

    async def admit(self, request: PageRequest, token: str, question: OpenQuestion) -> Reply | VisitorOf:
        """Find out who has logged in, or begin a login."""
        for cookie in cookie_values(request.scope["headers"], _SESSION):
            principal = await self._questions.find("session", cookie)
            if principal is not None and (request.method == "POST" or principal.decode() == question.principal):
                return VisitorOf(principal.decode())
        if request.method == "POST":
            return message_page("You are not signed in any more", "Open the link again.", 401)
        if b"login=failed" in request.scope.get("query_string", b""):
            return message_page(
                "This question is for somebody else",
                "You are signed in as another user than the one whose assistant asks. Sign out there, then open the link again.",
                403,
            )
        return await self._begin(token)

    async def _begin(self, page: str) -> Reply:
        try:
            authorization = begin(
                await self._discover(),
                self._login.client,
                f"{self._address}/{CALLBACK}",
                self._login.scopes,
                self._login.options,
            )
        except AuthorizationFailed as exc:
            logger.warning("Visitors of pages can't log in: %s", exc)
            return message_page("You can't sign in now", "The place to sign in can't be used: try again later.", 503)
        browser = secrets.token_urlsafe(24)
        started = _Started(authorization, page, digest(browser))
        await self._questions.store("login", authorization.state, msgspec.msgpack.encode(started), _LOGIN_SECONDS)
        return redirect(authorization.url, ((b"set-cookie", f"{_STARTED}={browser}{self._attributes}".encode()),))

    async def _discover(self) -> Discovered:
        if self._found is None or time.monotonic() - self._found_at > _METADATA_SECONDS:
            async with Fetcher(self._rules) as fetcher:
                server, left_out = await fetcher.run(server_metadata(self._issuer, self._rules, (), log_deviation))
            self._found = Discovered(resource=self._resource, server=server, left_out=left_out)
            self._found_at = time.monotonic()
        return self._found

    async def serve(self, request: PageRequest) -> Reply | None:
        """Serve the address to which the authorization server sends the browser back."""
        if request.name != CALLBACK:
            return None
        failed = message_page("Signing in failed", "Open the link of your assistant again.", 400)
        if request.method != "GET":
            return failed
        query = request.scope.get("query_string", b"").decode("ascii", "replace")
        state = next((part.removeprefix("state=") for part in query.split("&") if part.startswith("state=")), "")
        stored = await self._questions.use_up("login", state)
        started = None if stored is None else _started.decode(stored)
        cookies = cookie_values(request.scope["headers"], _STARTED)
        if started is None or not any(hmac.compare_digest(digest(cookie), started.browser) for cookie in cookies):
            return failed
        try:
            principal = await self._redeem(started.authorization, query, request)
        except AuthorizationFailed as exc:
            logger.warning("The login of a visitor of a page failed: %s", exc)
            return failed
        question = await self._questions.get(started.page)
        is_theirs = question is not None and question.principal == principal
        session = await self._questions.remember("session", principal.encode(), _LOGIN_SECONDS)
        return redirect(
            f"{self._address}/{started.page}{'' if is_theirs else '?login=failed'}",
            (
                (b"set-cookie", f"{_SESSION}={session}{self._attributes}".encode()),
                (b"set-cookie", f"{_STARTED}=; Max-Age=0{self._attributes}".encode()),
            ),
        )

    async def _redeem(self, authorization: Authorization, query: str, request: PageRequest) -> str:
        """Exchange the code for a token, and let the MCP server say whose it is. Raises AuthorizationFailed."""
        code = read_redirect(authorization, f"{authorization.redirect_uri}?{query}")
        found = await self._discover()
        async with Fetcher(self._rules) as fetcher:
            tokens = await fetcher.run(redeem(authorization, code, found, self._login.client))
        authority = self._endpoint.netloc.encode()
        headers = {b"host": authority, b"authorization": f"Bearer {tokens.access_token}".encode()}
        scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "scheme": self._endpoint.scheme,
            "path": self._endpoint.path,
            "query_string": b"",
            "headers": list(headers.items()),
            "client": request.scope.get("client"),
        }
        judged = self._authenticate(scope, Headers(headers))
        caller = await judged if isawaitable(judged) else judged
        if isinstance(caller, Refusal) or caller is None:
            reason = "nobody" if caller is None else caller.text
            raise AuthorizationFailed(f"the MCP server does not accept the token: {reason}")
        return caller.name if isinstance(caller, Principal) else caller
