"""Logins at servers that deviate from the specifications, as data: one row for each deviation.

A row says what the MCP server or the authorization server does (see `tests/auth/double.py`, which is correct), what a client gets
all the same, at once and after its token has expired, and whether it warns.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from tests.auth.double import AuthDouble, Reply
from tests.transports.scripted_http import Asked

#: What changes a double.
Change = Callable[[AuthDouble], object]

RESOURCE = "/.well-known/oauth-protected-resource/mcp"
ROOT = "/.well-known/oauth-protected-resource"
AUTHORITY = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
FORM = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
PAGE = {"content-type": "text/html"}
FAILS = "AuthorizationFailed"
_PROMISE = "authorization_response_iss_parameter_supported"


class Login(NamedTuple):
    """One deviation.

    Attributes:
        name: What the servers do.
        change: Changes the double.
        expected: What the first call gets: the text of the tool, or the class of an error.
        again: What a call gets after the access token has expired.
        logins: How often a person logs in until then.
        warns: Words of the warnings, one text for each.
        options: Options of `OAuth`. For one that needs an issuer, `issuer` is that of the double.
    """

    name: str
    change: Change
    expected: str = "read"
    again: str = "read"
    logins: int = 1
    warns: tuple[str, ...] = ()
    options: Mapping[str, Any] = {}


def failing(name: str, change: Change, **options: Any) -> Login:
    """A login that must not or can't work."""
    return Login(f"{name}: the login fails", change, FAILS, FAILS, options=options)


def replies(path: str, *arguments: Any, **options: Any) -> Change:
    """Replace the answer of a path."""
    return lambda double: double.change(path, Reply(*arguments, **options))


def moved(old: str, new: str, reply: Reply) -> Change:
    """Serve what is at a path elsewhere, and something else there."""

    def change(double: AuthDouble) -> None:
        document = double.metadata if old == AUTHORITY else double.resource_metadata
        double.change(old, reply)
        double.change(new, Reply(200, document))

    return change


def metadata(**members: Any) -> Change:
    """Change members of the metadata of the authorization server; `...` leaves one out."""
    return lambda double: _update(double.metadata, double, members)


def resource(**members: Any) -> Change:
    """Change members of the resource metadata; `...` leaves one out."""
    return lambda double: _update(double.resource_metadata, double, members)


def _update(document: dict[str, Any], double: AuthDouble, members: Mapping[str, Any]) -> None:
    for name, value in members.items():
        if value is ...:
            document.pop(name, None)
        else:
            document[name] = value(double) if callable(value) else value


def marked(double: AuthDouble) -> None:
    """Serve both documents with a byte order mark and the status 203."""
    for place, document in ((AUTHORITY, double.metadata), (RESOURCE, double.resource_metadata)):
        double.change(place, Reply(203, BOM_UTF8 + json.dumps(document).encode()))


def challenge(text: str | None) -> Change:
    """Send another challenge with 401."""
    return lambda double: setattr(double, "challenge", text and text.replace("@ORIGIN@", double.origin))


def redirect(*additions: tuple[str, str], **changes: str | None) -> Change:
    """Change parameters of the redirect at the end of a login; None leaves one out."""

    def change(double: AuthDouble) -> None:
        double.redirect_changes = changes
        double.redirect_additions = list(additions)

    return change


def tokens(status: int = 200, headers: Mapping[str, str] | None = None, **members: Any) -> Change:
    """Change members of each answer of the token endpoint; `...` leaves one out."""

    def answer(double: AuthDouble, asked: Asked) -> Reply:
        access, refresh = double.grant("read")
        found = {
            "access_token": access,
            "token_type": "Bearer",
            "refresh_token": refresh,
            "expires_in": 3600,
            **members,
        }
        found = {name: value for name, value in found.items() if value is not ...}
        is_form = (headers or {}).get("content-type", "").startswith("application/x-www-form-urlencoded")
        return Reply(status, urlencode(found).encode() if is_form else found, headers)

    return lambda double: double.change("/token", lambda asked: answer(double, asked))


def refreshes(*arguments: Any) -> Change:
    """Answer refreshes in another way."""

    def change(double: AuthDouble) -> None:
        def answer(asked: Asked) -> Reply:
            is_refresh = b"grant_type=refresh_token" in asked.body
            return Reply(*arguments) if is_refresh else double.answer_token(asked)

        double.change("/token", answer)

    return change


def places() -> Iterator[Login]:
    """Where metadata is looked for."""
    for name, reply in {
        "404": Reply(404),
        "401": Reply(401),
        "429": Reply(429),
        "500": Reply(500),
        "502 with a page": Reply(502, b"<html>", PAGE),
        "a page": Reply(200, b"<html>", PAGE),
        "a list": Reply(200, []),
        "nothing": Reply(200, b""),
        "another document": Reply(200, {"status": "ok"}),
        "a redirect to another host": Reply(302, headers={"location": "https://login.example.com/x"}),
    }.items():
        yield Login(f"the first place of resource metadata has {name}", moved(RESOURCE, ROOT, reply))
        yield Login(f"the first place of server metadata has {name}", moved(AUTHORITY, OPENID, reply))
    for name, text in {
        "no challenge": None,
        "a challenge of another scheme": "Basic realm=x",
        "a challenge without a place": "Bearer",
        "two challenges": 'Basic realm="x", Bearer resource_metadata="@ORIGIN@/.well-known/oauth-protected-resource/mcp"',
        "the path of a place": f'Bearer resource_metadata="{RESOURCE}"',
        "a place that has nothing": 'Bearer resource_metadata="@ORIGIN@/nothing"',
        "a place inside of another network": 'Bearer resource_metadata="http://10.0.0.1/x"',
        "a place that is no URL": 'Bearer resource_metadata="https://["',
        "a place without quotes": "Bearer resource_metadata=@ORIGIN@/.well-known/oauth-protected-resource/mcp",
        "an error": f'Bearer error="invalid_token", resource_metadata="{RESOURCE}"',
    }.items():
        yield Login(f"401 has {name}", challenge(text))
    closed = "http://127.0.0.1:1"
    for name, first in {
        "can't be reached": closed,
        "is not https": "http://login.example.com",
        "is not a URL": "login",
    }.items():
        yield Login(
            f"the first of two authorization servers {name}",
            resource(authorization_servers=lambda double, first=first: [first, double.issuer]),
        )
    yield failing("no authorization server can be reached", resource(authorization_servers=[closed]))
    yield failing(
        "only the second authorization server has metadata, and the client is for the first",
        resource(authorization_servers=lambda double: [closed, double.issuer]),
        issuer=closed,
    )


def documents() -> Iterator[Login]:
    """Members of metadata."""
    for name, change in {
        "members that are null": metadata(scopes_supported=None, jwks_uri=None, revocation_endpoint=None),
        "unknown members": metadata(x={"y": [1]}),
        "the resource as its origin": resource(resource=lambda double: double.origin),
        "the resource with a slash behind": resource(resource=lambda double: f"{double.url}/"),
        "the host in capitals": resource(resource=lambda double: double.url.replace("http", "HTTP")),
    }.items():
        yield Login(f"metadata has {name}", change)
    for name, member, value in (
        ("a text of scopes", "scopes_supported", "read write"),
        ("a number as its documentation", "service_documentation", 5),
        ("a text where a boolean is due", "require_pushed_authorization_requests", "no"),
        ("a relative revocation endpoint", "revocation_endpoint", "/revoke"),
        ("an empty device endpoint", "device_authorization_endpoint", ""),
    ):
        yield Login(f"server metadata has {name}", metadata(**{member: value}), warns=(member,))
    for name, change in {
        "a text in place of a list": resource(authorization_servers=lambda double: double.issuer),
        "a list with null": resource(authorization_servers=lambda double: [None, double.issuer]),
    }.items():
        yield Login(f"the authorization servers are {name}", change, warns=("authorization_servers",))
    yield Login("metadata has a byte order mark and the status 203", marked)
    yield Login(
        "resource metadata has a text of scopes", resource(scopes_supported="read write"), warns=("scopes_supported",)
    )
    for name, change in {
        "another issuer": metadata(issuer="https://login.example.com"),
        "the issuer with a slash behind": metadata(issuer=lambda double: f"{double.issuer}/"),
        "no issuer": metadata(issuer=...),
        "no token endpoint": metadata(token_endpoint=...),
        "a token endpoint that is not https": metadata(token_endpoint="http://login.example.com/token"),
        "no methods of PKCE": metadata(code_challenge_methods_supported=...),
        "other methods of PKCE": metadata(code_challenge_methods_supported=["plain"]),
        "another resource": resource(resource="https://mcp.example.com/mcp"),
        "the resource with another scheme": resource(resource=lambda double: double.url.replace("http:", "https:")),
    }.items():
        yield failing(f"metadata has {name}", change)


def both(*changes: Change) -> Change:
    """Make several changes."""

    def change(double: AuthDouble) -> None:
        for one in changes:
            one(double)

    return change


def registered(change: Change) -> Change:
    """Add a client that is registered beforehand."""

    return both(lambda double: double.clients.update(mine={"redirect_uris": ["*"]}), change)


def choices() -> Iterator[Login]:
    """What the user has to choose: it is not tried without."""
    mine: dict[str, Any] = {"client_id": "mine", "issuer": ...}
    yield Login(
        "metadata has no methods of PKCE, and the user says that S256 is supported",
        registered(metadata(code_challenge_methods_supported=...)),
        options={**mine, "assume_pkce": True},
    )
    yield failing(
        "metadata has other methods of PKCE, whatever the user says",
        registered(metadata(code_challenge_methods_supported=["plain"])),
        **mine,
        assume_pkce=True,
    )
    yield Login(
        "metadata has the issuer with a slash behind, which the user accepts",
        both(metadata(issuer=lambda double: f"{double.issuer}/"), redirect(iss=None), metadata(**{_PROMISE: False})),
        options={"accept_issuers": ["@ISSUER@/"]},
    )
    yield Login(
        "a registration endpoint can't be used, and the client is registered",
        registered(metadata(registration_endpoint="/register")),
        options={"client_id": "mine"},
        warns=("registration_endpoint",),
    )


def registrations() -> Iterator[Login]:
    """Answers to a registration."""
    answer: dict[str, Any] = {"client_id": "mine", "client_secret": None}
    for name, status, members in (
        ("200", 200, {}),
        ("a time as a text", 201, {"client_secret_expires_at": "0"}),
        ("null members", 201, {"client_secret_expires_at": None, "token_endpoint_auth_method": None, "scope": None}),
        ("other redirect URIs", 201, {"redirect_uris": ["https://login.example.com/x"]}),
    ):
        yield Login(
            f"a registration is answered with {name}", registered(replies("/register", status, {**answer, **members}))
        )
    for name, status, content in (
        ("403", 403, {"detail": "Ask us"}),
        ("an error with the status 200", 200, {"error": "not_allowed"}),
        ("no id", 201, {"client_id": ""}),
        ("a page", 200, b"<html>"),
    ):
        yield failing(f"a registration is answered with {name}", replies("/register", status, content))


def redirects() -> Iterator[Login]:
    """How the browser comes back."""
    yield Login(
        "the redirect has further parameters", redirect(("session_state", "x"), ("scope", "read"), ("iss2", "x"))
    )
    for name, change in {
        "no state": redirect(state=None),
        "another state": redirect(state="x"),
        "no issuer, though it is promised": redirect(iss=None),
        "another issuer": redirect(iss="https://login.example.com"),
        "no code": redirect(code=None),
        "two codes": redirect(("code", "x")),
        "a refusal": redirect(code=None, error="access_denied"),
        "an unknown error": redirect(code=None, error="server_says_no", error_description="x"),
    }.items():
        yield failing(f"the redirect has {name}", change)


def answers() -> Iterator[Login]:
    """Answers of the token endpoint."""
    for name, change in {
        "the status 201": tokens(201),
        "a lifetime as a text": tokens(expires_in="3600"),
        "an empty lifetime": tokens(expires_in=""),
        "a lifetime of null": tokens(expires_in=None),
        "a type in other letters": tokens(token_type="BEARER"),
        "no type": tokens(token_type=...),
        "the type of Slack": tokens(token_type="bot", ok=True),
        "scopes with commas": tokens(scope="read,write"),
        "a list of scopes": tokens(scope=["read", "write"]),
        "scopes of null": tokens(scope=None),
        "an error of null": tokens(error=None),
        "an empty error": tokens(error=""),
        "further members": tokens(id_token="x", ext_expires_in=7200),
        "another content type": tokens(headers={"content-type": "text/plain"}),
        "the encoding of forms": tokens(headers=FORM),
        "a type with blanks": tokens(token_type=" Bearer "),
        "a refresh token of two words": tokens(refresh_token="two words"),
    }.items():
        yield Login(f"tokens come with {name}", change)
    for name, change in {
        "a lifetime that is a word": tokens(expires_in="soon"),
        "a lifetime that is an object": tokens(expires_in={}),
        "scopes that are a number": tokens(scope=7),
    }.items():
        yield Login(f"tokens come with {name}", change, warns=("token-member-left-out",))
    yield Login(
        "tokens come with a refresh token that is false",
        tokens(refresh_token=False),
        logins=2,
        warns=("token-member-left-out",),
    )
    for name, change in {
        "no refresh token": tokens(refresh_token=...),
        "an empty refresh token": tokens(refresh_token=""),
    }.items():
        yield Login(f"tokens come with {name}", change, logins=2)
    for name, change in {
        "no access token": tokens(access_token=...),
        "an empty access token": tokens(access_token=""),
        "an access token that is a number": tokens(access_token=5),
        "an unknown type": tokens(token_type="mac"),
        "an error": tokens(error="invalid_code"),
        "ok as false": tokens(ok=False),
        "a page": replies("/token", 200, b"<html>", PAGE),
        "400 with a text in the detail": replies("/token", 400, {"detail": "Wrong"}),
        "400 with an error as an object": replies("/token", 400, {"error": {"code": "bad_code", "message": "x"}}),
        "401 with a page": replies("/token", 401, b"<html>", PAGE),
        "a redirect": replies("/token", 307, headers={"location": "/token2"}),
    }.items():
        yield failing(f"tokens come with {name}", change)


def renewals() -> Iterator[Login]:
    """Answers to a refresh. A refusal in any form leads to a new login."""
    for name, reply in {
        "invalid_grant": (400, {"error": "invalid_grant"}),
        "invalid_client": (401, {"error": "invalid_client"}),
        "an error of its own": (400, {"error": "bad_refresh_token"}),
        "an error with the status 200": (200, {"error": "bad_refresh_token"}),
        "ok as false": (200, {"ok": False, "error": "token_revoked"}),
        "a form-encoded error": (200, b"error=bad_refresh_token", FORM),
        "an error as an object": (400, {"error": {"code": "invalid_grant", "message": "x"}}),
        "a text in the detail": (400, {"detail": "Invalid refresh token"}),
        "validation errors": (422, {"detail": [{"loc": ["body"], "msg": "x"}]}),
        "401 with a page": (401, b"<html>", PAGE),
        "403 with a message": (403, {"message": "no"}),
        "404": (404, b"Not Found"),
        "410": (410, b""),
    }.items():
        yield Login(f"a refresh is refused by {name}", refreshes(*reply), logins=2)
    for name, reply in {
        "429": (429, {"error": "slow_down"}),
        "500 with a page": (500, b"<html>", PAGE),
        "503": (503, b""),
        "a page with 200": (200, b"<html>", PAGE),
        "a redirect": (302, b"", {"location": "/x"}),
    }.items():
        yield Login(
            f"a refresh is answered by {name}: it is tried again later", refreshes(*reply), again="ConnectFailed"
        )


LOGINS: tuple[Login, ...] = (
    *places(),
    *documents(),
    *choices(),
    *registrations(),
    *redirects(),
    *answers(),
    *renewals(),
)
