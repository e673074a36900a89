"""Requests that carry a token in the wrong way, or look for what is not protected."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.auth.hostile.cases import (
    ACCEPTED,
    ENDPOINT_REQUESTS,
    INVALID_TOKEN,
    MALFORMED,
    NO_TOKEN,
    Expect,
    Headers,
    Request,
    authorized,
)
from tests.auth.hostile.issuer import TokenCase, good_token

#: Refused before anything else of the request is judged.
REFUSED = Expect((400, 401))
#: Nothing of the request's own host may come back.
PUBLIC_URL_ONLY = ("evil.test",)
METADATA = "/.well-known/oauth-protected-resource"


class RequestCase(NamedTuple):
    """How a request carries what it has.

    Attributes:
        name: What is wrong, unique.
        change: Makes the request from a correct one without a token.
        expect: The answer.
        over: The requests of `ENDPOINT_REQUESTS` that the case is about.
    """

    name: str
    change: Callable[[Request], Request]
    expect: Expect
    over: tuple[str, ...] = tuple(ENDPOINT_REQUESTS)


def bearer(*values: str, more: Headers = ()) -> Callable[[Request], Request]:
    """Send these values of Authorization; @GOOD@ and @BAD@ stand for tokens."""

    def change(request: Request) -> Request:
        filled = [fill(value) for value in values]
        return authorized(request, *filled, more=tuple((name, fill(value)) for name, value in more))

    return change


def fill(text: str) -> str:
    """Put tokens in their places."""
    bad = TokenCase("", key="other-rs")
    return text.replace("@GOOD@", good_token()).replace("@BAD@", bad.token() if "@BAD@" in text else "")


def in_query(request: Request) -> Request:
    return request._replace(path=f"{request.path}?access_token={good_token()}")


def in_form(request: Request) -> Request:
    form = (("Content-Type", "application/x-www-form-urlencoded"),)
    return request._replace(headers=form, body=f"access_token={good_token()}".encode())


def in_meta(request: Request) -> Request:
    return request._replace(
        body=request.body.replace(b'"_meta": {', b'"_meta": {"authorization": "Bearer %s",' % good_token().encode())
    )


def to(path: str, method: str = "GET", headers: Headers = (), body: bytes = b"") -> Callable[[Request], Request]:
    """Another request altogether."""
    return lambda request: Request(method, path, headers, body)


def with_body(body: bytes, *, token: str = "Bearer @BAD@") -> Callable[[Request], Request]:
    """A body that is only looked at when the token is good."""
    return lambda request: bearer(token)(request._replace(body=body))


ANY = ("GET",)
POSTS = ("POST 2025", "POST 2026")

CARRIED = [
    RequestCase("no Authorization", lambda request: request, NO_TOKEN),
    RequestCase("Authorization empty", bearer(""), REFUSED),
    RequestCase("Bearer without a token", bearer("Bearer"), REFUSED),
    RequestCase("Bearer with blanks only", bearer("Bearer    "), REFUSED),
    RequestCase("token without a scheme", bearer("@GOOD@"), REFUSED),
    RequestCase("scheme Basic", bearer("Basic YWRhOnNlY3JldA=="), REFUSED),
    RequestCase("scheme Basic with a good token", bearer("Basic @GOOD@"), REFUSED),
    RequestCase("scheme Token", bearer("Token @GOOD@"), REFUSED),
    RequestCase("scheme that begins alike", bearer("BearerX @GOOD@"), REFUSED),
    RequestCase("scheme and token without a blank", bearer("Bearer@GOOD@"), REFUSED),
    RequestCase("a colon behind the scheme", bearer("Bearer: @GOOD@"), REFUSED),
    RequestCase("the token in quotes", bearer('Bearer "@GOOD@"'), REFUSED),
    RequestCase("the token as a parameter", bearer("Bearer token=@GOOD@"), REFUSED),
    RequestCase("two tokens in one header", bearer("Bearer @GOOD@ @GOOD@"), REFUSED),
    RequestCase("two tokens with a comma", bearer("Bearer @GOOD@, Bearer @GOOD@"), REFUSED),
    RequestCase("a bad and a good one with a comma", bearer("Bearer @BAD@, Bearer @GOOD@"), REFUSED),
    RequestCase("two headers, the first bad", bearer("Bearer @BAD@", "Bearer @GOOD@"), REFUSED),
    RequestCase("two headers, the second bad", bearer("Bearer @GOOD@", "Bearer @BAD@"), REFUSED),
    RequestCase("two equal headers", bearer("Bearer @GOOD@", "Bearer @GOOD@"), REFUSED),
    RequestCase("Basic and Bearer in two headers", bearer("Basic YTpi", "Bearer @GOOD@"), REFUSED),
    RequestCase("letters beyond ASCII in the token", bearer("Bearer \xe9@GOOD@"), REFUSED),
    RequestCase("a tab in the token", bearer("Bearer a\tb"), REFUSED),
    RequestCase("a zero byte in the token", bearer("Bearer a\0b"), MALFORMED),
    RequestCase("a challenge in the token", bearer('Bearer x", error="none'), REFUSED),
    RequestCase("a header of 60 KB", bearer("Bearer " + "a" * 60_000), MALFORMED),
    RequestCase("Authorization in another header", bearer(more=(("Proxy-Authorization", "Bearer @GOOD@"),)), NO_TOKEN),
    RequestCase("X-Forwarded-Authorization", bearer(more=(("X-Forwarded-Authorization", "Bearer @GOOD@"),)), NO_TOKEN),
    RequestCase("X-Access-Token", bearer(more=(("X-Access-Token", "@GOOD@"),)), NO_TOKEN),
    RequestCase("a cookie", bearer(more=(("Cookie", "access_token=@GOOD@"),)), NO_TOKEN),
    RequestCase(
        "a trusted name of the user", bearer(more=(("X-Forwarded-User", "ada"), ("X-Remote-User", "ada"))), NO_TOKEN
    ),
    RequestCase("the token in the query", in_query, REFUSED),
    RequestCase("the token in a form", in_form, NO_TOKEN, POSTS),
    RequestCase("the token in _meta", in_meta, NO_TOKEN, ("POST 2026",)),
    RequestCase("DPoP scheme without a proof", bearer("DPoP @GOOD@"), Expect((400, 401))),
    RequestCase("another method by header", bearer(more=(("X-HTTP-Method-Override", "OPTIONS"),)), NO_TOKEN),
    RequestCase("good: the scheme in lower case", bearer("bearer @GOOD@"), ACCEPTED),
    RequestCase("good: the scheme in upper case", bearer("BEARER @GOOD@"), ACCEPTED),
]

#: Without a good token, the body is not judged: nobody learns what the server makes of it.
BODIES = [
    RequestCase("bad token, body is not JSON", with_body(b"{"), INVALID_TOKEN, POSTS),
    RequestCase("bad token, body empty", with_body(b""), INVALID_TOKEN, POSTS),
    RequestCase("bad token, unknown method", with_body(b'{"jsonrpc":"2.0","id":1,"method":"x"}'), INVALID_TOKEN, POSTS),
    RequestCase("bad token, 1 MB", with_body(b"[" * 1_000_000), INVALID_TOKEN, POSTS),
    RequestCase("bad token, a ping", with_body(b'{"jsonrpc":"2.0","id":1,"method":"ping"}'), INVALID_TOKEN, POSTS),
    RequestCase(
        "no token, a notification",
        lambda request: request._replace(body=b'{"jsonrpc":"2.0","method":"notifications/initialized"}'),
        NO_TOKEN,
        POSTS,
    ),
]

PATHS = [
    RequestCase(
        "good: metadata at the root",
        to(METADATA),
        Expect((200, 404), headers={"access-control-allow-origin": "*"}),
        ANY,
    ),
    RequestCase(
        "good: metadata by path",
        to(f"{METADATA}/mcp"),
        Expect(
            (200,),
            headers={"access-control-allow-origin": "*", "content-type": "application/json"},
            holds=("https://notes.test/mcp", "https://login.test"),
        ),
        ANY,
    ),
    RequestCase(
        "metadata for another host",
        to(f"{METADATA}/mcp", headers=(("Host", "evil.test"),)),
        Expect((400, 403, 404, 421)),
        ANY,
    ),
    RequestCase(
        "metadata for a forwarded host",
        to(
            f"{METADATA}/mcp",
            headers=(("X-Forwarded-Host", "evil.test"), ("X-Forwarded-Proto", "ftp"), ("Forwarded", "host=evil.test")),
        ),
        Expect((200,), hides=PUBLIC_URL_ONLY),
        ANY,
    ),
    RequestCase(
        "challenge for a forwarded host",
        bearer("Bearer @BAD@", more=(("X-Forwarded-Host", "evil.test"), ("Forwarded", "host=evil.test"))),
        INVALID_TOKEN._replace(hides=PUBLIC_URL_ONLY),
    ),
    RequestCase("metadata of a path that is not served", to(f"{METADATA}/admin"), Expect((404,)), ANY),
    RequestCase("metadata, then up to the endpoint", to(f"{METADATA}/../../mcp"), Expect((400, 401, 404)), ANY),
    RequestCase("metadata, then up, encoded", to(f"{METADATA}/%2e%2e/%2e%2e/mcp"), Expect((400, 401, 404)), ANY),
    RequestCase(
        "metadata by POST",
        to(f"{METADATA}/mcp", "POST", (("Content-Type", "application/json"),), b"{}"),
        Expect((405,)),
        ANY,
    ),
    RequestCase("metadata by DELETE", to(f"{METADATA}/mcp", "DELETE"), Expect((405,)), ANY),
    RequestCase("metadata with a path of 8 KB", to(f"{METADATA}/{'a' * 8000}"), Expect((404, 414)), ANY),
    RequestCase("the endpoint with a slash", to("/mcp/"), Expect((401, 404, 307, 308)), ANY),
    RequestCase("the endpoint in upper case", to("/MCP"), Expect((401, 404)), ANY),
    RequestCase("the endpoint with two slashes", to("//mcp"), Expect((400, 401, 404)), ANY),
    RequestCase(
        "the endpoint with a parameter", to("/mcp;/.well-known/oauth-protected-resource"), Expect((401, 404)), ANY
    ),
    RequestCase("the endpoint by HEAD", to("/mcp", "HEAD"), Expect((401, 405)), ANY),
    RequestCase("the endpoint by PUT", to("/mcp", "PUT"), Expect((401, 405)), ANY),
    RequestCase("the endpoint by OPTIONS", to("/mcp", "OPTIONS"), Expect((204, 401, 403, 405)), ANY),
    RequestCase(
        "a web page may read why it was refused", bearer(more=(("Origin", "http://127.0.0.1:@PORT@"),)), NO_TOKEN
    ),
]


def cases() -> list[RequestCase]:
    """Return all cases."""
    return [*CARRIED, *BODIES, *PATHS]
