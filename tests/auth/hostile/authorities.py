"""What a malicious or broken MCP server and authorization server may do to a client that logs in, as data.

Each case changes the correct `AuthDouble`. Besides its own answer, every case is held to what is always true: see
`test_authorities.py`.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from tests.auth.double import AuthDouble, Reply
from tests.transports.scripted_http import Asked

#: Stands in descriptions of errors that must not be shown.
CANARY = "canary-77c1"
RESOURCE = "/.well-known/oauth-protected-resource/mcp"
AUTHORITY = "/.well-known/oauth-authorization-server"


class Case(NamedTuple):
    """One way to misbehave.

    Attributes:
        name: What is wrong.
        prepare: Changes the double.
        works: Whether the login must succeed all the same.
        logins: How often a person may be asked.
        codes: How many codes may be sent to a token endpoint.
    """

    name: str
    prepare: Callable[[AuthDouble], object]
    works: bool = False
    logins: int = 0
    codes: int = 0


#: URLs that must not be requested or opened for a server on loopback: elsewhere http, private and special networks, other schemes.
INSIDE = (
    "http://10.0.0.1/x",
    "https://10.0.0.1/x",
    "https://192.168.1.1/x",
    "https://172.16.0.1:8443/x",
    "http://169.254.169.254/latest/meta-data/iam",
    "https://169.254.169.254/latest/meta-data/iam",
    "https://2852039166/x",
    "https://0xa9fea9fe/x",
    "https://[fe80::1]/x",
    "https://[fd00:ec2::254]/x",
    "https://[::ffff:10.0.0.1]/x",
    "https://[64:ff9b::a9fe:a9fe]/x",
    "https://0.0.0.0/x",
    "https://metadata.google.internal/x",
    "http://login.example.com/x",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "data:application/json,{}",
    "ftp://login.example.com/x",
    "//login.example.com/x",
    "/x",
    "",
    "https://",
    "https://user:password@login.example.com/x",
    "https://login.example.com\\@10.0.0.1/x",
    "https://login.example.com/\r\nHost: 10.0.0.1",
)


def members(document: str, **changes: Any) -> Callable[[AuthDouble], None]:
    """Change members of a document; None leaves one out."""

    def prepare(double: AuthDouble) -> None:
        target: dict[str, Any] = getattr(double, document)
        for member, value in changes.items():
            made = value(double) if callable(value) else value
            target.pop(member) if made is None else target.update({member: made})

    return prepare


def changed(path: str, *arguments: Any, **options: Any) -> Callable[[AuthDouble], None]:
    """Replace the answer of a path."""
    return lambda double: double.change(path, Reply(*arguments, **options))


def challenged(challenge: str) -> Callable[[AuthDouble], None]:
    """Send another challenge with 401."""
    return lambda double: setattr(double, "challenge", challenge)


def redirected(**changes: str | None) -> Callable[[AuthDouble], None]:
    """Change parameters of the redirect at the end of a login."""
    return lambda double: double.redirect_changes.update(changes)


def resources() -> Iterator[Case]:
    """Resource metadata for another resource."""
    wrong: Mapping[str, Any] = {
        "another host": "https://mcp.example.com/mcp",
        "another port": lambda double: double.url.replace(str(double.server.port), "1"),
        "another scheme": lambda double: double.url.replace("http:", "https:"),
        "a longer name": lambda double: f"{double.url}x",
        "a path below": lambda double: f"{double.url}/other",
        "another path": lambda double: f"{double.origin}/other",
        "a path in capitals": lambda double: double.url.replace("/mcp", "/MCP"),
        "a part of the path": lambda double: double.url[:-1],
        "a query": lambda double: f"{double.url}?tenant=1",
        "a user in it": lambda double: double.url.replace("//", "//me@"),
        "nothing": "",
        "no URL": "mcp",
        "a number": 1,
        "no resource": None,
        "another name of the host": lambda double: double.url.replace("127.0.0.1", "localhost"),
    }
    for name, value in wrong.items():
        yield Case(f"resource: {name}", members("resource_metadata", resource=value))


def pointers() -> Iterator[Case]:
    """Documents that name URLs inside, or that are none."""
    for url in INSIDE:
        yield Case(f"issuer: {url!r}", members("resource_metadata", authorization_servers=[url]))
    for url in INSIDE:
        challenge = f'Bearer resource_metadata="{url}"'.replace("\r\n", " ")
        if url:  # it is not requested, except below the origin of the server; the well-known places have the metadata
            yield Case(f"resource_metadata: {url!r}", challenged(challenge), True, 1, 1)
    for endpoint in ("authorization_endpoint", "token_endpoint", "registration_endpoint"):
        for url in INSIDE[:16]:
            # A person may see a page whose name means something inside; no request is made there.
            logins = int("internal" in url and endpoint != "registration_endpoint")
            yield Case(f"{endpoint}: {url!r}", members("metadata", **{endpoint: url}), logins=logins)
    for path, name in ((RESOURCE, "resource metadata"), (AUTHORITY, "server metadata")):
        for url in INSIDE[:16]:
            yield Case(f"{name} redirect to {url!r}", changed(path, 302, headers={"location": url}))
        yield Case(f"{name} redirects to itself", changed(path, 302, headers={"location": path}))


def issuers() -> Iterator[Case]:
    """Metadata of another issuer than the one that was asked for."""
    wrong: Mapping[str, Any] = {
        "a slash more": lambda double: f"{double.issuer}/",
        "a path more": lambda double: f"{double.issuer}/tenant",
        "another port": lambda double: double.issuer[:-1],
        "capitals": lambda double: double.issuer.replace("http", "HTTP"),
        "another host": "https://login.example.com",
        "another name of the host": lambda double: double.issuer.replace("127.0.0.1", "localhost"),
        "a query": lambda double: f"{double.issuer}?",
        "a fragment": lambda double: f"{double.issuer}#",
        "blanks": lambda double: f" {double.issuer}",
        "nothing": "",
        "no issuer": None,
        "a list": lambda double: [double.issuer],
    }
    for name, value in wrong.items():
        yield Case(f"metadata of another issuer: {name}", members("metadata", issuer=value))
    for name, value in {
        "absent": None,
        "plain": ["plain"],
        "none": [],
        "a text": "S256",
        "in small letters": ["s256"],
    }.items():
        yield Case(f"PKCE {name}", members("metadata", code_challenge_methods_supported=value))


def documents() -> Iterator[Case]:
    """Documents that are too large, or not what they should be."""
    large, packed = b" " * (2 << 20), gzip.compress(b" " * (64 << 20))
    bodies: Mapping[str, tuple[bytes, dict[str, str]]] = {
        "too large": (large, {}),
        "a bomb": (packed, {"content-encoding": "gzip"}),
        "nested": (b"[" * 100_000, {}),
        "HTML": (b"<!doctype html><title>x</title>", {"content-type": "text/html"}),
        "a list": (b"[]", {}),
        "null": (b"null", {}),
        "empty": (b"", {}),
        "not UTF-8": (b'{"issuer": "\xff", "resource": "\xff"}', {}),
        "broken off": (b'{"issuer": "', {}),
    }
    for path in (RESOURCE, AUTHORITY, "/register"):
        for name, (body, headers) in bodies.items():
            yield Case(f"{path}: {name}", changed(path, 200, body, headers))
    for name, (body, headers) in bodies.items():
        yield Case(f"/token: {name}", changed("/token", 200, body, headers), logins=1, codes=1)
    for status in (429, 500, 503):
        yield Case(f"resource metadata: {status}", changed(RESOURCE, status))
        yield Case(f"server metadata: {status}", changed(AUTHORITY, status))
        yield Case(f"registration: {status}", changed("/register", status))
        yield Case(f"token: {status}", changed("/token", status), logins=1, codes=1)


def redirects() -> Iterator[Case]:
    """Ends of a login: mix-up, another login, repeated parameters."""
    mixed: Mapping[str, str | None] = {
        "another issuer": "https://evil.example",
        "a slash more": "{issuer}/",
        "capitals": "HTTP{issuer_rest}",
        "percent-encoding": "{issuer}%2f",
        "a default port": "https://login.example.com:443",
        "empty": "",
        "promised and absent": None,
    }
    for name, value in mixed.items():
        for promised in (True, False):
            if value is None and not promised:
                continue

            def prepare(double: AuthDouble, value: str | None = value, promised: bool = promised) -> None:
                double.metadata["authorization_response_iss_parameter_supported"] = promised
                iss = value and value.format(issuer=double.issuer, issuer_rest=double.issuer[4:])
                double.redirect_changes = {"iss": iss, "error": CANARY, "error_description": CANARY}

            yield Case(f"iss: {name}{', not promised' * (not promised)}", prepare, logins=1)
    yield Case("state: another", redirected(state="other"), logins=1)
    yield Case("state: none", redirected(state=None), logins=1)
    yield Case("state: empty", redirected(state=""), logins=1)
    yield Case("code: none", redirected(code=None), logins=1)
    yield Case("code: empty", redirected(code=""), logins=1)
    yield Case("error beside a code", redirected(error="access_denied"), logins=1)
    yield Case(
        "error with controls", redirected(code=None, error="x\r\n\x1b[31m", error_description="y" * 9000), logins=1
    )
    for name in ("code", "state", "iss"):

        def twice(double: AuthDouble, name: str = name) -> None:
            double.redirect_additions.append((name, "2"))

        yield Case(f"two of {name}", twice, logins=1)


def tokens() -> Iterator[Case]:
    """Answers of the token endpoint and of the registration."""
    good = {"access_token": "a" * 20, "token_type": "Bearer"}
    answers: Mapping[str, Any] = {
        "no token": {"token_type": "Bearer"},
        "an empty token": good | {"access_token": ""},
        "a line end in the token": good | {"access_token": "a\r\nX-Evil: 1"},
        "a blank in the token": good | {"access_token": "a b"},
        "a token beyond ASCII": good | {"access_token": "tøken"},
        "a long token": good | {"access_token": "a" * 200_000},
        "a number as token": good | {"access_token": 1},
        "another type": good | {"token_type": "mac"},
        "DPoP without a key": good | {"token_type": "DPoP"},
        "a line end in the refresh token": good | {"refresh_token": "a\nb"},
        "a lifetime that is no number": good | {"expires_in": "soon"},
        "a lifetime that is a list": good | {"expires_in": []},
        "an error with the status 200": {"error": "invalid_grant"},
    }
    for name, answer in answers.items():
        yield Case(f"token: {name}", changed("/token", 200, answer), logins=1, codes=1)
    for name, status in {"a redirect": 307, "a redirect to GET": 303}.items():
        yield Case(f"token: {name}", changed("/token", status, headers={"location": "/stolen"}), logins=1, codes=1)
        yield Case(f"registration: {name}", changed("/register", status, headers={"location": "/stolen"}))
    for error in ("invalid_client", "invalid_grant", "unauthorized_client", "x\r\n\x1b[31m" + "y" * 9000):
        yield Case(f"token: {error[:20]!r}", changed("/token", 400, {"error": error}), logins=1, codes=1)
    for name, registration in {
        "no id": {},
        "a number as id": {"client_id": 1},
        "an empty id": {"client_id": ""},
    }.items():
        yield Case(f"registration: {name}", changed("/register", 201, registration))
    for error in ("invalid_redirect_uri", "invalid_client_metadata", "access_denied", ""):
        yield Case(f"registration: {error!r}", changed("/register", 400, {"error": error}))


def challenges() -> Iterator[Case]:
    """Refusals without end, and challenges with strange content."""

    def refusing(status: int, header: Callable[[int], str]) -> Callable[[AuthDouble], None]:
        def prepare(double: AuthDouble) -> None:
            def answer(asked: Asked) -> Reply:
                return Reply(status, headers={"www-authenticate": header(len(double.server.asked))})

            double.change("/mcp", answer)

        return prepare

    yield Case("401 without end", refusing(401, lambda count: "Bearer"), logins=1, codes=1)
    yield Case("401 for scopes without end", refusing(401, lambda count: f'Bearer scope="s{count}"'), logins=1, codes=1)
    yield Case("403 without a challenge", refusing(403, lambda count: "Bearer"))
    for name, header in {
        "the same scope": lambda count: 'Bearer error="insufficient_scope", scope="more"',
        "another scope each time": lambda count: f'Bearer error="insufficient_scope", scope="s{count}"',
        "another server each time": lambda count: (
            f'Bearer error="insufficient_scope", scope="s{count}", realm="{count}"'
        ),
    }.items():
        yield Case(f"403 without end: {name}", refusing(403, header), logins=3, codes=3)
    strange = {
        "many scopes": 'Bearer scope="' + " ".join(f"s{number}" for number in range(2500)) + '"',
        "quotes in a scope": 'Bearer scope="a\\" b"',
        "markup in a scope": 'Bearer scope="<script>alert(1)</script>"',
        "a parameter without end": 'Bearer scope="',
        "many challenges": ", ".join(f'S{number} a="b"' for number in range(900)) + ', Bearer scope="x"',
        "no challenge": "",
        "only commas": ", , ,,",
    }
    for name, text in strange.items():
        yield Case(f"challenge: {name}", challenged(text), True, 1, 1)


def good() -> Iterator[Case]:
    """Without these a client that refuses everything would pass."""
    yield Case("nothing is wrong", lambda double: None, True, 1, 1)
    yield Case("no iss, and none promised", _without_iss, True, 1, 1)
    yield Case(
        "the resource is the origin", members("resource_metadata", resource=lambda double: double.origin), True, 1, 1
    )
    yield Case("an unknown member", members("metadata", x={"y": [1]}), True, 1, 1)
    yield Case("a null member", lambda double: double.metadata.update(scopes_supported=None), True, 1, 1)
    yield Case(
        "several issuers",
        lambda double: double.resource_metadata["authorization_servers"].append("https://b.example"),
        True,
        1,
        1,
    )
    yield Case("a lifetime as text", _lifetime_as_text, True, 1, 1)
    for url in INSIDE[:16]:
        yield Case(f"a revocation endpoint that is not used: {url!r}", _with("revocation_endpoint", url), True, 1, 1)
        yield Case(f"an issuer that is not used before a good one: {url!r}", _after(url), True, 1, 1)


def _after(issuer: str) -> Callable[[AuthDouble], None]:
    return lambda double: double.resource_metadata["authorization_servers"].insert(0, issuer)


def _with(member: str, value: object) -> Callable[[AuthDouble], None]:
    return lambda double: double.metadata.update({member: value})


def _without_iss(double: AuthDouble) -> None:
    double.metadata.pop("authorization_response_iss_parameter_supported")
    double.redirect_changes = {"iss": None}


def _lifetime_as_text(double: AuthDouble) -> None:
    double.lifetime = "3600"  # type: ignore[assignment]  # as some servers send it


def cases() -> Iterator[Case]:
    """All cases."""
    for table in (resources, pointers, issuers, documents, redirects, tokens, challenges, good):
        yield from table()
