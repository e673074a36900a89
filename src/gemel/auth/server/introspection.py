"""Access tokens that the authorization server judges when it is asked (RFC 7662)."""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Hashable
from hashlib import sha256
from typing import Any, Final, Unpack
from urllib.parse import quote_plus, urlencode

import msgspec

from gemel.auth.flow import FetchFailed, Flow, HttpRequest
from gemel.auth.jose import TokenInvalid
from gemel.auth.server.jwks import issuer_metadata
from gemel.auth.server.jwt import check_claims, principal_of
from gemel.auth.server.options import (
    IntrospectionAuthOptions,
    check_audience,
    check_issuers,
    protected_options,
    public_url,
)
from gemel.auth.server.questions import ASKED_FOR, IssuerQuestions
from gemel.auth.server.resource import AuthorizationServerDown, TokenAuth
from gemel.auth.url_rules import UrlRules
from gemel.errors import AuthorizationFailed, ConnectionLost, DefinitionError
from gemel.options import accepts, resolve
from gemel.protocol.http.request import Principal
from gemel.shares import Shares

logger = logging.getLogger("gemel")

#: Seconds for which a token that is not active is refused without asking again, and how many such tokens are remembered.
_INACTIVE_SECONDS: Final = 10.0
_INACTIVE: Final = 1000


class IntrospectionAuth(TokenAuth):
    """Protects a server with access tokens that the authorization server judges: opaque ones, or those that it can revoke.

    An answer is used for `remember` seconds, and requests with the same token wait for one question. At most 32 questions are
    asked at once, over connections that are used again, and 1,000 wait; then the address that asks most gets 503.

    Args:
        options: See `IntrospectionAuthOptions`; `issuer`, `audience`, `client_id` and `client_secret` are needed.

    Raises:
        DefinitionError: An option is missing, unknown or has a value that it doesn't take.

    Example:
        ```python
        auth = IntrospectionAuth(
            issuer="https://login.example.com",
            audience="https://notes.example.com/mcp",
            client_id="notes",
            client_secret=os.environ["CLIENT_SECRET"],
        )
        server = Server("notes", auth=auth)
        ```

    Specification: RFC 7662.
    """

    @accepts(IntrospectionAuthOptions)
    def __init__(self, **options: Unpack[IntrospectionAuthOptions]) -> None:
        settings = resolve(IntrospectionAuthOptions, options, "IntrospectionAuth")
        (self._issuer,) = check_issuers("IntrospectionAuth", settings["issuer"])[:1]
        self._audience = check_audience("IntrospectionAuth", settings["audience"])
        if not settings["client_id"] or not settings["client_secret"]:
            raise DefinitionError(
                "IntrospectionAuth needs client_id=… and client_secret=…, with which this server asks"
            )
        pair = f"{quote_plus(settings['client_id'])}:{quote_plus(settings['client_secret'])}"
        self._credentials = f"Basic {base64.b64encode(pair.encode()).decode()}"
        self._endpoint = settings["endpoint"]
        self._missing_audience = settings["missing_audience"]
        self._leeway = settings["leeway"]
        self._rules = UrlRules(self._issuer, trusted=[self._endpoint] if self._endpoint else [])
        self._questions: IssuerQuestions[dict[str, Any]] = IssuerQuestions(self._rules)
        #: Hashes of tokens that are not active, each with the time until when it is not asked for again, and whose share it is.
        self._inactive: dict[bytes, tuple[float, Hashable]] = {}
        self._inactive_shares: Shares[bytes] = Shares()
        super().__init__(
            self._introspect,
            **protected_options(settings, settings["resource"] or public_url(self._audience)),
            authorization_servers=[self._issuer],
            remember=settings["remember"],
        )

    async def _introspect(self, token: str) -> Principal:
        digest = sha256(token.encode()).digest()
        inactive = self._inactive.get(digest)
        if inactive is not None and time.monotonic() < inactive[0]:
            raise TokenInvalid("the token is not active")
        answer = dict(await self._ask(digest, token))
        if answer.get("active") is not True:
            self._refuse_for_now(digest)
            raise TokenInvalid("the token is not active")
        if answer.get("iss", self._issuer) != self._issuer:
            raise TokenInvalid("the token is from another issuer")
        if answer.get("aud") is None and self._missing_audience:
            answer["aud"] = self._audience[0]
        # `exp` is optional here: without it the answer counts for `remember` seconds.
        timed = answer.get("exp") is not None
        expires = check_claims(answer if timed else {**answer, "exp": time.time() + 1}, self._audience, self._leeway)
        return principal_of({"sub": answer.get("username"), **answer}, expires if timed else None, issuer=None)

    def _refuse_for_now(self, digest: bytes) -> None:
        """Remember a token that is not active. The oldest one of the address that has most makes room."""
        holder = ASKED_FOR.get()
        self._forget_inactive(digest)
        if len(self._inactive) >= _INACTIVE:
            self._forget_inactive(self._inactive_shares.giving_way(holder)[0])
        self._inactive[digest] = time.monotonic() + _INACTIVE_SECONDS, holder
        self._inactive_shares.add(holder, digest)

    def _forget_inactive(self, digest: bytes) -> None:
        if (entry := self._inactive.pop(digest, None)) is not None:
            self._inactive_shares.discard(entry[1], digest)

    async def _ask(self, digest: bytes, token: str) -> dict[str, Any]:
        try:
            return await self._questions.ask(digest, ASKED_FOR.get(), lambda: self._question(token))
        except (AuthorizationFailed, TimeoutError, ValueError) as exc:
            logger.warning("%s can't be asked about tokens: %s", self._issuer, str(exc) or type(exc).__name__)
            raise AuthorizationServerDown("Access tokens can't be verified now: try again later") from None

    async def close(self) -> None:
        """Close the connections to the authorization server, and the backends that were named by their URLs."""
        await self._questions.close()
        await super().close()

    def _question(self, token: str) -> Flow[dict[str, Any]]:
        if self._endpoint is None:
            metadata = yield from issuer_metadata(self._issuer)
            if metadata.introspection_endpoint is None:
                raise AuthorizationFailed("its metadata names no introspection_endpoint: give endpoint=…")
            self._rules.check_endpoint(metadata.introspection_endpoint)
            self._endpoint = metadata.introspection_endpoint
        headers = (
            ("Accept", "application/json"),
            ("Content-Type", "application/x-www-form-urlencoded"),
            ("Authorization", self._credentials),
        )
        body = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        request = HttpRequest("POST", self._endpoint, headers, body)
        try:
            response = yield request
        except FetchFailed as exc:
            if not isinstance(exc.__cause__, ConnectionLost):
                raise
            response = yield request  # the connection was closed while it was idle; a question changes nothing
        if response.status != 200:
            raise AuthorizationFailed(f"it answered {response.status}")
        try:
            return msgspec.json.decode(response.body, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise AuthorizationFailed("its answer is not a JSON object") from None
