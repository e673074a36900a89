"""Requests to a token endpoint: client authentication, the response, errors.

Specification: OAuth 2.1, sections 3.2 "Token Endpoint" and 2.4 "Client Authentication".
"""

from __future__ import annotations

import math
import time
from base64 import b64decode, b64encode
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import parse_qsl, quote_plus, unquote_plus, urlencode

import msgspec

from gemel.auth.client.tokens import Tokens
from gemel.auth.flow import Flow, HttpRequest, HttpResponse
from gemel.auth.url_rules import describe
from gemel.errors import AuthorizationFailed, DefinitionError, shorten
from gemel.protocol.deviations import Note, log_deviation

if TYPE_CHECKING:
    from gemel.auth.jose import WebKey

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
#: Seconds that an assertion of a client is valid.
ASSERTION_SECONDS: Final = 60
#: Longer tokens don't fit into the headers of usual servers.
MAX_TOKEN = 64 * 1024
#: Longer lifetimes, in seconds, are cut.
_LONGEST = 10 * 365 * 86400.0
#: Errors that say nothing about the request: those of RFC 6749, section 4.1.2.1, of RFC 8628, and of Slack.
_TEMPORARY = frozenset(
    {
        "server_error",
        "temporarily_unavailable",
        "slow_down",
        "fatal_error",
        "internal_error",
        "ratelimited",
        "request_timeout",
        "service_unavailable",
    }
)
#: Statuses that refuse a request whatever the body is: a gateway in between has other ones.
_REFUSALS = frozenset({400, 401, 404, 405, 410})
#: Names of token types that are sent as bearer tokens. Slack has one for each kind of account.
_BEARER = frozenset({"", "bearer", "bot", "user"})
#: Content types of form-encoded answers.
_FORM_TYPES = ("application/x-www-form-urlencoded", "text/plain")
#: Parameters of a form-encoded answer that are read.
_MAX_FIELDS = 100
#: Ways to authenticate that need a secret only, the preferred one first.
SECRET_METHODS = ("client_secret_basic", "client_secret_post")


#: Parameters that the client sets itself.
_OWN_PARAMETERS = frozenset(
    {
        "assertion",
        "client_assertion",
        "client_assertion_type",
        "client_id",
        "client_secret",
        "code",
        "code_challenge",
        "code_challenge_method",
        "code_verifier",
        "device_code",
        "grant_type",
        "redirect_uri",
        "refresh_token",
        "request",
        "request_uri",
        "resource",
        "response_mode",
        "response_type",
        "scope",
        "state",
    }
)


#: Characters of a secret that is looked for in texts: shorter ones are parts of words.
_SHORTEST_SECRET = 8
#: Parameters of a token request that no text may show.
_SECRET_PARAMETERS = (
    "assertion",
    "client_assertion",
    "client_secret",
    "code",
    "code_verifier",
    "device_code",
    "refresh_token",
    "subject_token",
    "token",
)


class IssuerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the user chose for requests to one authorization server that differs from the specification.

    Attributes:
        resource: The value of `resource` in requests: True for the identifier of the MCP server, False for none.
        assume_pkce: Whether PKCE with S256 is taken for supported if the metadata says nothing about it.
        parameters: Further parameters of requests that begin an authorization.
        scope_separator: What separates the scopes in such requests.
    """

    resource: str | bool = True
    assume_pkce: bool = False
    parameters: Mapping[str, str] = {}
    scope_separator: str = " "

    def check(self, issuer: str | None) -> None:
        """Check the options.

        Args:
            issuer: The only authorization server that they are for.

        Raises:
            DefinitionError: An option can't work, or there is no issuer.
        """
        if self != IssuerOptions() and issuer is None:
            raise DefinitionError(
                "resource, assume_pkce, scope_separator and further parameters are for one authorization server: name it "
                "with issuer=…"
            )
        if self.resource == "":
            raise DefinitionError("resource is a URI, or False to leave the parameter out")
        if self.scope_separator not in (" ", ","):
            raise DefinitionError('scope_separator is " " or ","')
        for name, value in self.parameters.items():
            if name in _OWN_PARAMETERS:
                raise DefinitionError(f"The parameter {name!r} is set by the client: it can't be given")
            if not isinstance(value, str):
                raise DefinitionError(f"The parameter {name!r} is not a text: {value!r}")

    def resource_of(self, identifier: str) -> str | None:
        """Return the value of `resource` for an MCP server; None to leave the parameter out.

        Args:
            identifier: The identifier that the MCP server publishes.
        """
        if isinstance(self.resource, str):
            return self.resource
        return identifier if self.resource else None

    def scope_of(self, scopes: Sequence[str]) -> str | None:
        """Return the value of `scope`; None to leave the parameter out.

        Args:
            scopes: The scopes to request.
        """
        return self.scope_separator.join(scopes) or None


class TokenRequestFailed(AuthorizationFailed):
    """The token endpoint answered with an error.

    Args:
        message: The text of the error.
        error: The error code, such as "invalid_grant"; "" if the answer had none.
        status: The HTTP status of the answer.
        has_reason: Whether the answer is the authorization server's own: a document that says why.
    """

    def __init__(self, message: str, error: str = "", *, status: int = 200, has_reason: bool = False) -> None:
        super().__init__(message)
        self.error = error
        self.status = status
        self.has_reason = has_reason

    @property
    def is_final(self) -> bool:
        """Whether the same request can't succeed later: it was refused, or there is no such endpoint any more."""
        if self.status == 429 or self.status >= 500 or self.error in _TEMPORARY:
            return False
        return bool(self.error) or self.status in _REFUSALS or self.has_reason


class RegisteredClient(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A client that an authorization server knows.

    Attributes:
        client_id: Its id.
        client_secret: Its secret; None for a public client.
        token_endpoint_auth_method: How it authenticates; None to choose what the server supports.
        redirect_uris: Where the server may send the browser back to.
        client_secret_expires_at: When the secret expires, in Unix seconds; 0 for never.
        is_named_by_user: Whether the user has registered it, and no other one may take its place.
    """

    client_id: str
    client_secret: str | None = None
    token_endpoint_auth_method: str | None = None
    redirect_uris: tuple[str, ...] = ()
    client_secret_expires_at: float = 0
    is_named_by_user: bool = False

    def __repr__(self) -> str:
        """The id only."""
        return f"RegisteredClient({self.client_id!r})"

    def is_current(self, now: float) -> bool:
        """Whether its secret is valid at this time, in Unix seconds."""
        return not self.client_secret_expires_at or now < self.client_secret_expires_at


class Proof(Protocol):
    """Binds requests to a key (DPoP)."""

    def header(self, method: str, url: str, *, access_token: str | None = None) -> tuple[str, str]:
        """Return the header that proves the possession of the key for one request."""
        ...

    def take_nonce(self, url: str, headers: Mapping[str, str]) -> bool:
        """Remember the nonce of a response. Returns whether it is a new one, so that a refused request is repeated."""
        ...


#: Members of a token response that a login works without.
_OPTIONAL_MEMBERS: Mapping[str, Any] = {
    "expires_in": float | str | None,
    "refresh_token": str | None,
    "scope": str | list[str] | None,
}


def request_tokens(
    endpoint: str,
    form: Mapping[str, str | None],
    client: RegisteredClient,
    *,
    methods: Sequence[str] | None = None,
    assertion: Mapping[str, str] | None = None,
    scopes: tuple[str, ...] | None = None,
    proof: Proof | None = None,
    issuer: str = "",
    note: Note = log_deviation,
) -> Flow[Tokens]:
    """Request tokens.

    Args:
        endpoint: The token endpoint.
        form: The parameters of the grant; None leaves one out.
        client: The client.
        methods: How clients may authenticate, as the metadata says; None if it says nothing.
        assertion: `client_assertion` and `client_assertion_type` for `private_key_jwt`, in place of a secret.
        scopes: The scopes that were requested, granted if the response names none (RFC 6749 §5.1); by default those of the form.
        proof: Binds the tokens to a key.
        issuer: The authorization server, noted in the tokens.
        note: Notes what is left out of the response.

    Returns:
        The flow; its result is the tokens. Scopes that the server does not name are those that were requested.

    Raises:
        TokenRequestFailed: The server refuses.
    """
    fields = {name: value for name, value in form.items() if value is not None}
    headers = [("Content-Type", "application/x-www-form-urlencoded"), ("Accept", "application/json")]
    if assertion is not None:
        fields |= {"client_id": client.client_id, **assertion}
    else:
        fields, extra = authenticate(client, methods, fields)
        headers += extra
    body = urlencode(fields).encode()
    for is_last in (False, True):
        sent = headers if proof is None else [*headers, proof.header("POST", endpoint)]
        response = yield HttpRequest("POST", endpoint, sent, body)
        has_nonce = proof is not None and proof.take_nonce(endpoint, response.headers)
        if is_success(response):
            break
        secrets = secrets_in(fields, headers)
        error = read_error(response, f"The token endpoint {describe(endpoint)} refuses the request", secrets)
        if is_last or not has_nonce or error.error != "use_dpop_nonce":
            raise error
    requested = tuple(fields.get("scope", "").split()) if scopes is None else scopes
    return read_tokens(response, requested, endpoint, issuer, note)


def sign_assertion(client_id: str, key: WebKey, audience: str, algorithm: str | None = None) -> dict[str, str]:
    """Prove who a client is by its key (`private_key_jwt`, RFC 7523 §2.2).

    Args:
        client_id: The id of the client.
        key: Its private key.
        audience: The authorization server, by its issuer or its token endpoint.
        algorithm: The signature algorithm; by default what fits the key.

    Returns:
        The parameters of the request.
    """
    from gemel.auth.jose import sign_jwt

    now = int(time.time())
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "iat": now,
        "exp": now + ASSERTION_SECONDS,
        "jti": token_urlsafe(16),
    }
    header = {} if algorithm is None else {"alg": algorithm}
    return {"client_assertion_type": ASSERTION_TYPE, "client_assertion": sign_jwt(claims, key, header=header)}


def authenticate(
    client: RegisteredClient, methods: Sequence[str] | None, fields: Mapping[str, str]
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Authenticate a client in a request to an authorization server.

    Args:
        client: The client.
        methods: What the server supports, None if unknown.
        fields: The parameters of the request.

    Returns:
        The parameters, and further headers.
    """
    method = auth_method(client, methods)
    if method == "client_secret_basic":
        pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret or '')}"
        # The body names the client, too: servers of the official Python SDK look there first.
        return {**fields, "client_id": client.client_id}, [
            ("Authorization", f"Basic {b64encode(pair.encode()).decode()}")
        ]
    secret = {"client_secret": client.client_secret or ""} if method == "client_secret_post" else {}
    return {**fields, "client_id": client.client_id, **secret}, []


def auth_method(client: RegisteredClient, methods: Sequence[str] | None) -> str:
    """Return how a client authenticates: as it is registered, or the first way that the server supports."""
    if client.client_secret is None:
        return "none"
    if client.token_endpoint_auth_method is not None:
        return client.token_endpoint_auth_method
    return next((name for name in SECRET_METHODS if methods is None or name in methods), SECRET_METHODS[0])


def read_tokens(
    response: HttpResponse, requested: tuple[str, ...], endpoint: str, issuer: str, note: Note = log_deviation
) -> Tokens:
    """Read the response of a token endpoint.

    Args:
        response: A successful response.
        requested: The scopes that were requested.
        endpoint: The token endpoint.
        issuer: The authorization server.
        note: Notes what is left out.

    Returns:
        The tokens.

    Raises:
        TokenRequestFailed: It has no token that can be used.
    """
    where = f"The token endpoint {describe(endpoint)}"
    answer = read_answer(response)
    access_token, token_type = answer.get("access_token"), answer.get("token_type") or ""
    if not isinstance(access_token, str) or not isinstance(token_type, str):
        raise TokenRequestFailed(f"{where} sent an answer that can't be read")
    token_type = token_type.strip().lower()
    if token_type not in _BEARER and token_type != "dpop":
        raise TokenRequestFailed(f"{where} issues tokens of an unknown type: {shorten(ascii(token_type), 40)}")
    if not _is_token(access_token):
        raise TokenRequestFailed(f"{where} sent a token that can't be sent in a header")
    optional: dict[str, Any] = {}
    left_out = []
    for name, kind in _OPTIONAL_MEMBERS.items():
        try:
            optional[name] = msgspec.convert(answer.get(name), kind)
        except msgspec.ValidationError:
            left_out.append(name)
    refresh_token, scope = optional.get("refresh_token") or None, optional.get("scope")
    try:
        lifetime = optional.get("expires_in")
        seconds = None if lifetime in (None, "") else min(max(float(lifetime), 0.0), _LONGEST)
        if seconds is not None and math.isnan(seconds):
            raise ValueError
    except ValueError:
        seconds = None
        left_out.append("expires_in")
    if refresh_token is not None and (len(refresh_token) > MAX_TOKEN or not refresh_token.isprintable()):
        refresh_token = None
        left_out.append("refresh_token")
    if left_out:
        note("token-member-left-out", ", ".join(left_out))
    now = time.time()
    return Tokens(
        access_token=access_token,
        token_type="DPoP" if token_type == "dpop" else "Bearer",
        refresh_token=refresh_token,
        expires_at=None if seconds is None else now + seconds,
        issued_at=now,
        scopes=requested if scope is None else _read_scopes(scope, requested),
        issuer=issuer,
        token_endpoint=endpoint,
    )


def _read_scopes(scope: str | list[str], requested: Sequence[str]) -> tuple[str, ...]:
    """The scopes of an answer, which GitHub and Slack separate by commas. A comma may also be part of a scope."""
    if isinstance(scope, list):
        return tuple(scope)
    has_commas = "," in scope and not any("," in name for name in requested)
    return tuple((scope.replace(",", " ") if has_commas else scope).split())


def is_success(response: HttpResponse) -> bool:
    """Whether a response is a success: its status says so, and its content doesn't contradict.

    GitHub and Slack send refusals with the status 200.

    Args:
        response: The response of a token endpoint or a device authorization endpoint.
    """
    if not 200 <= response.status < 300:
        return False
    answer = read_answer(response)
    return answer.get("ok") is not False and not answer.get("error")


def read_answer(response: HttpResponse) -> Mapping[str, Any]:
    """Read the object in a response: JSON, or form-encoded as old OAuth servers and frameworks send it.

    Args:
        response: The response.

    Returns:
        The members; empty if there is no object.
    """
    try:
        answer = msgspec.json.decode(response.body.removeprefix(BOM_UTF8))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        if not response.headers.get("content-type", "").startswith(_FORM_TYPES):
            return {}
        try:
            return dict(parse_qsl(response.body.decode(), max_num_fields=_MAX_FIELDS))
        except ValueError:
            return {}
    return answer if isinstance(answer, dict) else {}


def secrets_in(fields: Mapping[str, str], headers: Iterable[tuple[str, str]] = ()) -> list[str]:
    """Return what a request has that no text may show: some servers repeat it.

    Args:
        fields: The parameters of the request.
        headers: Its headers.
    """
    found = [fields[name] for name in _SECRET_PARAMETERS if name in fields]
    for name, value in headers:
        if name == "Authorization":
            credentials = value.partition(" ")[2]
            found += [credentials, unquote_plus(b64decode(credentials).decode().partition(":")[2])]
    return found


def read_error(response: HttpResponse, what: str, secrets: Iterable[str] = ()) -> TokenRequestFailed:
    """Make the error for a response that is not a success.

    Args:
        response: The response.
        what: What was refused.
        secrets: What the text of the error must not show; see `secrets_in`.

    Returns:
        The error, with the code and description of the server.
    """
    answer = read_answer(response)
    error = next(_texts(answer, "error", "errorCode", "code"), "")
    description = next(
        _texts(answer, "error_description", "error_message", "message", "detail", "errorSummary", "title", "msg"), None
    )
    shown, explained = error or f"HTTP {response.status}", description
    for secret in (secret for secret in secrets if len(secret) >= _SHORTEST_SECRET):
        for text in (secret, quote_plus(secret)):
            shown = shown.replace(text, "…")
            explained = explained and explained.replace(text, "…")
    return TokenRequestFailed(
        f"{what}: {describe_error(shown, explained)}", error, status=response.status, has_reason=bool(answer)
    )


def _texts(answer: Mapping[str, Any], *names: str) -> Iterator[str]:
    """The texts of members of an error, also within an object in `error` or `detail`, where frameworks put it."""
    nested = (answer.get("error"), answer.get("detail"))
    for members in (answer, *(inner for inner in nested if isinstance(inner, dict))):
        for name in names:
            value = members.get(name)
            if isinstance(value, str) and value:
                yield value


def describe_error(error: str, description: str | None) -> str:
    """The error code and description of an authorization server in one short line, fit for an error text."""
    text = error if not description else f"{error} ({description})"
    return shorten("".join(character if character.isprintable() else " " for character in text), 200)


def read_client(stored: Mapping[str, Any]) -> RegisteredClient | None:
    """Read a client from a token store; None if it is not one."""
    try:
        return msgspec.convert(stored, RegisteredClient)
    except msgspec.ValidationError:
        return None


def _is_token(token: str) -> bool:
    return 0 < len(token) <= MAX_TOKEN and token.isascii() and token.isprintable() and " " not in token
