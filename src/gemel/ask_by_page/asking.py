"""`AskByPage`: what a server is given to ask by page, where the pages are, and who may answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from gemel.ask_by_page.app import AnyVisitors, FirstVisitors, KnownVisitors, PageApp, Visitors
from gemel.ask_by_page.local import PATH, LocalPages
from gemel.ask_by_page.login import LoginVisitors, PageLogin
from gemel.ask_by_page.questions import Audience, OpenQuestions, process_secret
from gemel.ask_by_page.strategy import (
    ARGUMENT,
    HandshakePageElicitation,
    PageElicitation,
    strip_argument,
)
from gemel.backends.server_backend import ServerBackend
from gemel.client.terminal.browser import has_browser, open_page
from gemel.errors import DefinitionError, Overloaded
from gemel.http1.asgi import AsgiApp
from gemel.jsonrpc import ABSENT
from gemel.loops import PerLoop
from gemel.protocol.eras.base import Era
from gemel.protocol.eras.handshake import HANDSHAKE, task_wish
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.http.origin import LOOPBACK, parse_origin
from gemel.protocol.records import Call
from gemel.schema.methods import METHODS
from gemel.server.context import Context
from gemel.server.elicitation.elicit import ElicitationStrategy, offers
from gemel.server.elicitation.request_state import RequestStateCodec
from gemel.session import Session
from gemel.transports.http.server.options import Auth, Authenticate

_ELICITATIONS: Final[Mapping[Era, type[PageElicitation]]] = {
    HANDSHAKE: HandshakePageElicitation,
    STATELESS: PageElicitation,
}
_NAME: Final = f'"{ARGUMENT}"'.encode()
#: Channels of whoever started this process or holds the server.
_LOCAL: Final = ("stdio", "memory")


class AskByPage:
    """Asks the users of clients without forms on web pages: `Server("shop", ask=AskByPage("https://shop.example.com"))`.

    A client that opens pages is asked to. For another one the tool call ends with a text: the model gives its user the link and
    calls again. Handlers stay as they are; what must not happen twice belongs in `ctx.step`, since they run again in both eras.

    Over stdio the page is on the loopback interface, and opened in the browser. Over HTTP it is served beside the endpoint, at
    `<endpoint>/ask/…`, and the server must know who visits it: `login`, `who`, or `anybody_with_the_link`. Behind several
    processes the server needs a backend that they share.

    Args:
        url: The public address of the application that serves the endpoint, without the path of the endpoint; https, except on
            loopback. Needed for HTTP.
        login: Visitors log in to the authorization server of the MCP server; only the principal of the call may answer.
        who: `who(scope, headers)` tells who visits, as `authenticate=` does: by the cookie of a login of yours, or by the header
            of a proxy in front. Only the principal of the call may answer.
        anybody_with_the_link: Whoever has the link may answer, the model included. No policy asks that way, and no client is
            asked to open such a page.
        ttl: Seconds in which a question can be answered, and then its call be repeated.
        wait: Seconds for which a call waits at a client that has opened a page.
        open_browser: Whether pages on loopback are opened in the browser.
        open_url: Opens a page there and returns whether that worked; the default browser by default.
        most: OpenQuestions of one caller that may wait for an answer.
        most_in_all: The same of all callers, in one process.
        answer_bytes: Bytes of an answer.

    Raises:
        DefinitionError: The options can't work together, or a value is not possible.

    Example:
        >>> Server("shop", auth=auth, ask=AskByPage("https://shop.example.com", login=PageLogin("shop-pages", secret)))
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        login: PageLogin | None = None,
        who: Authenticate | None = None,
        anybody_with_the_link: bool = False,
        ttl: float = 600.0,
        wait: float = 45.0,
        open_browser: bool = True,
        open_url: Callable[[str], bool] | None = None,
        most: int = 20,
        most_in_all: int = 10_000,
        answer_bytes: int = 64 * 1024,
    ) -> None:
        if sum((login is not None, who is not None, anybody_with_the_link)) > 1:
            raise DefinitionError("AskByPage: login=, who= and anybody_with_the_link= exclude each other: choose one")
        if ttl <= 0 or wait < 0 or most < 1 or most_in_all < 1 or answer_bytes < 1024:
            raise DefinitionError(
                "AskByPage: ttl= is more than 0 seconds, wait= 0 or more, most= and most_in_all= 1 or more, answer_bytes= 1024 or "
                "more"
            )
        self._url = None if url is None else _checked_url(url)
        self._login, self._who, self._anybody = login, who, anybody_with_the_link
        self._opens, self._open_url = open_browser, open_url
        self._bounds = {"most": most, "most_in_all": most_in_all}
        self._ttl, self._answer_bytes = ttl, answer_bytes
        self.wait = wait
        self.process = process_secret()
        self._backend: ServerBackend | None = None
        self._questions: OpenQuestions | None = None
        #: The address of the pages over HTTP; None before an endpoint is served.
        self._address: str | None = None
        #: Whether callers over HTTP are authenticated.
        self._authorized = False
        self._local = PerLoop(self._make_local, end=LocalPages.close, abandon=lambda pages, why: pages.abandon())

    def __repr__(self) -> str:
        """The address only."""
        return f"AskByPage({self._url!r})"

    # ---------------------------------------------------------------- what a server is given

    @property
    def questions(self) -> OpenQuestions:
        """What waits for an answer."""
        assert self._questions is not None, "AskByPage was not given to a server"
        return self._questions

    @property
    def middleware(
        self,
    ) -> Sequence[Callable[[Context[Any], Callable[[Context[Any]], Awaitable[Any]]], Awaitable[Any]]]:
        """What takes the argument that names a call out of its arguments."""
        return [_strip] if self._anybody else []

    @property
    def not_shared(self) -> str:
        """What other processes of the server miss; "" if they share a backend."""
        return "" if self._backend is None or self._backend.shared else "open questions"

    def use_backend(self, backend: ServerBackend, /) -> None:
        """Keep questions there.

        Args:
            backend: That of the server.

        Raises:
            DefinitionError: Another server has this object already.
        """
        if self._backend is not None:
            raise DefinitionError("An AskByPage belongs to one server: make another one")
        self._backend = backend
        self._questions = OpenQuestions(backend, ttl=self._ttl, **self._bounds)

    @asynccontextmanager
    async def lifespan(self, server: Any, /) -> AsyncIterator[None]:
        """Entered while the server serves in an event loop.

        Args:
            server: The server.
        """
        try:
            yield
        finally:
            pages = self._local.find()
            if pages is not None:
                self._local.forget()
                await pages.close()

    def routes(self, endpoint_path: str, auth: Auth | None, authenticate: Authenticate | None, /) -> dict[str, AsgiApp]:
        """Return the app of the pages, by path.

        Args:
            endpoint_path: The path of the endpoint.
            auth: The authorization of the server.
            authenticate: What tells who is calling, without it.

        Returns:
            The app.

        Raises:
            DefinitionError: It can't be told where the pages are, or who may answer.
        """
        path = f"{endpoint_path.rstrip('/')}/ask"
        if self._url is None:
            raise DefinitionError(
                'Over HTTP the pages need an address: AskByPage("https://…"), without the path of the endpoint'
            )
        authorized = auth is not None or authenticate is not None
        self._check_audience(auth, authorized=authorized)
        address = f"{self._url}{path}"
        visitors: dict[Audience, Visitors] = {}
        if self._anybody:
            visitors["anybody"] = AnyVisitors()
        elif self._login is not None:
            endpoint = f"{self._url}{endpoint_path}"
            visitors["principal"] = LoginVisitors(self._login, self.questions, auth, address, endpoint)
        elif self._who is not None:
            visitors["principal"] = KnownVisitors(self._who)
        self._address = address
        app = PageApp(self.questions, visitors, _origin_of(self._url), answer_bytes=self._answer_bytes)
        return {f"{path}/": app}

    def _check_audience(self, auth: Auth | None, *, authorized: bool) -> None:
        """Raise DefinitionError unless it can be told who may answer."""
        if self._anybody:
            return
        if not authorized:
            if self._login is not None or self._who is not None:
                raise DefinitionError(
                    "AskByPage: login= and who= compare the visitor with the caller, but callers are not authenticated: give "
                    "the server auth=…"
                )
            raise DefinitionError(
                "Callers are not authenticated, so nobody can tell who may answer a page: give the server auth=…, or write "
                "AskByPage(…, anybody_with_the_link=True)"
            )
        if self._login is None and self._who is None:
            raise DefinitionError(
                "Callers are authenticated, and nothing tells who visits a page: write AskByPage(…, login=PageLogin(client_id)), "
                "or who=… for a login of your own"
            )
        if self._login is not None and auth is None:
            raise DefinitionError("login=PageLogin(…) needs Server(auth=…): with authenticate= write who=…")

    def elicitation(self, session: Session, call: Call, codec: RequestStateCodec, /) -> ElicitationStrategy | None:
        """Return how a call asks by page; None if its client has forms, or its user can't be asked by page.

        Args:
            session: The session of the call.
            call: The call.
            codec: Encrypts states that clients carry.
        """
        row = METHODS.get(call.method)
        client = call.era.client_capabilities(call.meta, session.connection.handshake)
        if call.id is None or row is None or not row.may_ask or offers(client, {"elicitation": {"form": {}}}):
            return None
        if task_wish(call.revision, call.params) is not ABSENT:  # it has no result that could name a page
            return None
        audience = self._audience(session, call)
        by_url = audience != "anybody" and offers(client, {"elicitation": {"url": {}}})
        if audience is None or not (by_url or call.method == "tools/call"):
            return None
        return _ELICITATIONS[call.era](session, call, codec, self, audience, by_url=by_url)

    def _audience(self, session: Session, call: Call) -> Audience | None:
        """Who may answer the questions of a call; None if nobody can be asked."""
        if session.channel.kind in _LOCAL:
            return "local"
        if call.origin.http_scope is None or self._address is None:
            return None
        if self._anybody:
            return "anybody"
        return None if call.origin.principal is None else "principal"

    # ---------------------------------------------------------------- the pages

    def _make_local(self) -> LocalPages:
        visitors = FirstVisitors(self.questions)
        app = PageApp(self.questions, {"local": visitors}, lambda: pages.origin, answer_bytes=self._answer_bytes)
        pages = LocalPages(app)
        return pages

    async def address(self, token: str, audience: Audience) -> str:
        """Return the address of a page.

        Args:
            token: Its token.
            audience: Who may answer.

        Raises:
            Overloaded: No port of this machine can be used.
        """
        if audience == "local":
            return f"{await self._local.here().start()}{PATH}/{token}"
        if self._address is None:
            raise Overloaded("No page can be shown: no endpoint is served over HTTP")
        return f"{self._address}/{token}"

    @property
    def opens(self) -> bool:
        """Whether there is a browser to open pages with."""
        return self._opens and (self._open_url is not None or has_browser())

    async def open(self, address: str) -> bool:
        """Open a page in the browser of this machine.

        Args:
            address: Its address.

        Returns:
            Whether that worked.
        """
        return self.opens and await open_page(address, self._open_url)


async def _strip(ctx: Context[Any], call_next: Callable[[Context[Any]], Awaitable[Any]]) -> Any:
    """Take the argument that names a call out of its arguments, before anything else sees them."""
    if ctx.method == "tools/call" and _NAME in bytes(ctx.params):
        params = strip_argument(ctx.decoded_params)
        if params is not None:
            ctx = ctx.replace(params=params)
    return await call_next(ctx)


def _origin_of(url: str) -> str:
    return "{0.scheme}://{0.netloc}".format(urlsplit(url))


def _checked_url(url: str) -> str:
    """The public address without a slash at its end. Raises DefinitionError for one that can't be that."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise DefinitionError(f'AskByPage({url!r}): write the public address, such as "https://shop.example.com"')
    if parse_origin(_origin_of(url)) is None:  # a browser names the host in ASCII, and is compared with it
        raise DefinitionError(
            f'AskByPage({url!r}): write the name of the host in ASCII, such as "https://xn--mnchen-3ya.example"'
        )
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise DefinitionError(f"AskByPage({url!r}): a page outside of this machine needs https")
    return url.rstrip("/")
