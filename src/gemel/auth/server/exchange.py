"""Token exchange (RFC 8693): a token for an upstream API in place of the caller's, which is never passed on to it."""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack
from urllib.parse import urlsplit

from gemel.auth.client.token_request import RegisteredClient, TokenRequestFailed, request_tokens, sign_assertion
from gemel.auth.client.tokens import Tokens
from gemel.auth.flow import Flow
from gemel.auth.server.questions import IssuerQuestions
from gemel.auth.url_rules import UrlRules, describe
from gemel.errors import AuthorizationFailed, DefinitionError
from gemel.options import check_names
from gemel.protocol.scopes import parse_scopes
from gemel.server.context import Context
from gemel.shares import Shares

if TYPE_CHECKING:
    from gemel.auth.jose import WebKey

_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
#: Seconds before its end when a token is no longer used. One that doesn't say when it ends is used once.
_EARLY: Final = 30.0
#: Tokens that are kept.
_KEPT: Final = 1000


class ExchangeOptions(TypedDict, total=False):
    """The options of `TokenExchange`."""

    #: The id of this server as a client of the authorization server. Required.
    client_id: str
    #: Its secret there.
    client_secret: str | None
    #: Its private key there, in place of a secret (`private_key_jwt`): `gemel.auth.jose.import_key(…)`.
    key: WebKey | None
    #: The name of the upstream API at the authorization server.
    audience: str | None
    #: The URL of the upstream API, for authorization servers that want that (RFC 8707).
    resource: str | None
    #: The scopes that are needed there. Default: the authorization server decides.
    scopes: Collection[str]


class TokenExchange:
    """Exchanges the token of a caller for one that an upstream API accepts, in the name of that caller.

    The caller's token goes to the token endpoint alone, which must belong to the authorization server that issued it. Tokens
    are kept in memory until they end, one for each token of a caller, and requested once for calls at the same time.

    Args:
        token_endpoint: The URL of the token endpoint.
        **options: See `ExchangeOptions`.

    Raises:
        DefinitionError: An option is unknown, missing, or has a value that it doesn't take.

    Example:
        ```python
        tickets = TokenExchange(
            "https://login.example.com/token", client_id="notes", client_secret=secret, audience="tickets"
        )


        @server.tool
        async def open_tickets(ctx: Context) -> list[str]:
            reply = await api.get("/tickets", headers=await tickets.headers(ctx))
            return reply.json()
        ```

    Specification: RFC 8693; basic/authorization/security-considerations, "Access Token Privilege Restriction".
    """

    def __init__(self, token_endpoint: str, **options: Unpack[ExchangeOptions]) -> None:
        given: Any = options
        check_names(given, ExchangeOptions.__annotations__, "TokenExchange")
        if urlsplit(token_endpoint).scheme not in ("http", "https"):
            raise DefinitionError("TokenExchange needs the URL of a token endpoint: https://…")
        if not given.get("client_id"):
            raise DefinitionError('TokenExchange needs the id of this server there: client_id="…"')
        self._endpoint = token_endpoint
        self._client = RegisteredClient(client_id=given["client_id"], client_secret=given.get("client_secret"))
        self._key: WebKey | None = given.get("key")
        self._form = {
            "grant_type": _GRANT,
            "subject_token_type": _ACCESS_TOKEN,
            "requested_token_type": _ACCESS_TOKEN,
            "audience": given.get("audience"),
            "resource": given.get("resource"),
            "scope": " ".join(sorted(parse_scopes("TokenExchange", given.get("scopes", ())))) or None,
        }
        #: Tokens by the hash of the caller's, each with the name of the caller.
        self._kept: dict[bytes, tuple[str, Tokens]] = {}
        self._shares: Shares[bytes] = Shares()
        self._questions: IssuerQuestions[Tokens] = IssuerQuestions(UrlRules(token_endpoint, trusted=[token_endpoint]))

    def __repr__(self) -> str:
        """The endpoint only: other options are secret."""
        return f"<TokenExchange {describe(self._endpoint)}>"

    async def headers(self, ctx: Context[Any], /) -> dict[str, str]:
        """Return the headers of a request to the upstream API.

        Args:
            ctx: The context of the call.

        Returns:
            `{"Authorization": "Bearer …"}`.

        Raises:
            AuthorizationFailed: The caller has no token, or the authorization server refuses to exchange it.
            Overloaded: Too many tokens are being exchanged for this caller.
        """
        return {"Authorization": f"Bearer {await self.token(ctx)}"}

    async def token(self, ctx: Context[Any], /) -> str:
        """Return a token for the upstream API.

        Args:
            ctx: The context of the call.

        Returns:
            The token.

        Raises:
            AuthorizationFailed: The caller has no token, or the authorization server refuses to exchange it.
            Overloaded: Too many tokens are being exchanged for this caller.
        """
        scheme, _, subject = ctx.headers.get("authorization", "").strip().partition(" ")
        subject = subject.strip()
        if scheme.lower() not in ("bearer", "dpop") or not subject or ctx.principal is None:
            raise AuthorizationFailed("There is no token to exchange: this call was not authorized over HTTP")
        digest, caller = sha256(subject.encode("latin-1")).digest(), ctx.principal
        name, kept = self._kept.get(digest, (caller, None))
        if kept is not None and kept.expires_at is not None and time.time() < kept.expires_at - _EARLY:
            self._shares.add(name, digest)
            return kept.access_token
        try:
            tokens = await self._questions.ask(digest, caller, partial(self._exchange, subject))
        except TimeoutError:
            raise AuthorizationFailed(f"{self!r} did not exchange the caller's token in time") from None
        self._keep(digest, caller, tokens)
        return tokens.access_token

    def _keep(self, digest: bytes, caller: str, tokens: Tokens) -> None:
        """Keep tokens. The ones unused for longest of the caller with most of them make room."""
        if (former := self._kept.pop(digest, None)) is not None:
            self._shares.discard(former[0], digest)
        if len(self._kept) >= _KEPT:
            oldest = self._shares.giving_way(caller)[0]
            self._shares.discard(self._kept.pop(oldest)[0], oldest)
        self._kept[digest] = caller, tokens
        self._shares.add(caller, digest)

    def _exchange(self, subject: str) -> Flow[Tokens]:
        form = {**self._form, "subject_token": subject}
        name, key = self._client.client_id, self._key
        assertion = None if key is None else sign_assertion(name, key, self._endpoint)
        try:
            tokens = yield from request_tokens(self._endpoint, form, self._client, assertion=assertion)
        except TokenRequestFailed as exc:
            # Without the server's description: it may quote the token.
            error = exc.error if exc.error.isascii() and exc.error.replace("_", "").isalpha() else "an error"
            raise AuthorizationFailed(f"{self!r} refuses to exchange the caller's token: {error[:60]}") from None
        if tokens.token_type != "Bearer" or tokens.access_token == subject:
            raise AuthorizationFailed(f"{self!r} did not give another bearer token")
        return tokens
