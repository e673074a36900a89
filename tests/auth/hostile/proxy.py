"""Hostile requests to an OAuth proxy: registrations, authorization requests, forms, responses of the provider, token requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.auth.hostile.cases import Expect, Headers

#: A client that came back registered: this is what a good one gets.
CREATED = Expect((201,), hides=("client_secret",))
BAD_URI = Expect((400,), holds=("invalid_redirect_uri",))
BAD_METADATA = Expect((400,), holds=("invalid_client_metadata",))
#: A page for the person, and no redirect.
BAD_PAGE = Expect((400,), headers={"location": None, "set-cookie": None, "content-type": "text/html"})
FORBIDDEN_PAGE = BAD_PAGE._replace(status=(403,))
UNKNOWN_CLIENT = BAD_PAGE._replace(status=(400, 401), holds=("invalid_client",))
CONSENT = Expect((200,), holds=("Allow access?",), headers={"location": None})
INVALID_GRANT = Expect((400,), holds=('"invalid_grant"',), hides=("access_token",))
INVALID_REQUEST = Expect((400,), holds=('"invalid_request"',), hides=("access_token",))
INVALID_CLIENT = Expect((401,), holds=('"invalid_client"',), hides=("access_token",))
ISSUED = Expect((200,), headers={"cache-control": "no-store"}, holds=("access_token",))


class RegistrationCase(NamedTuple):
    """A registration.

    Attributes:
        name: What is wrong, unique.
        metadata: What differs from good metadata, or the whole body.
        expect: The answer.
        content_type: The type of the body.
    """

    name: str
    metadata: Mapping[str, Any] | bytes
    expect: Expect = BAD_METADATA
    content_type: str = "application/json"


#: Redirect URIs that no client may register.
REFUSED_REDIRECT_URIS = (
    "",
    "/callback",
    "app.test/callback",
    "//app.test/callback",
    "https:///callback",
    "https://",
    "https:app.test/callback",
    "HTTPS://app.test/callback",
    " https://app.test/callback",
    "https://app.test/callback ",
    "https://app.test/call back",
    "https://app.test/callback\n",
    "https://app.test/callback\r\nSet-Cookie: a=b",
    "https://app.test/callback\x00",
    "https://app.test/callback#fragment",
    "https://app.test/callback#",
    "https://user@app.test/callback",
    "https://user:password@app.test/callback",
    "https://localhost:80@evil.test/callback",
    "http://127.0.0.1:80@evil.test/callback",
    "https://app.test\\@evil.test/callback",
    "https://app.test\\.evil.test/callback",
    "https://app.test/../callback",
    "https://app.test/a/./callback",
    "https://app.test/%2e%2e/callback",
    "https://app.test/%252e%252e/callback",
    "https://app.test/a/..%2fcallback",
    "https://app.test/a/..%5ccallback",
    "https://app.test:0/callback",
    "https://app.test:/callback",
    "https://app.test:99999/callback",
    "https://app.test:8o/callback",
    "https://[::1/callback",
    "https://äpp.test/callback",
    "https://app.test/\u202ecallback",
    "https://*.test/callback",
    "https://app.test/<script>",
    'https://app.test/"onload="',
    "http://app.test/callback",
    "http://localhost.evil.test/callback",
    "http://127.0.0.1.evil.test/callback",
    "http://127.0.0.2/callback",
    "http://127.1/callback",
    "http://2130706433/callback",
    "http://0177.0.0.1/callback",
    "http://0.0.0.0/callback",
    "http://[::ffff:127.0.0.1]/callback",
    "http://localhost./callback",
    "http://10.0.0.1/callback",
    "http://169.254.169.254/callback",
    "javascript:alert(1)",
    "JavaScript:alert(1)",
    "javascript://app.test/%0aalert(1)",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:msgbox(1)",
    "file:///etc/passwd",
    "ftp://127.0.0.1/callback",
    "ws://localhost/callback",
    "blob:https://app.test/1",
    "about:blank",
    "view-source:https://app.test/",
    "mailto:a@app.test",
    "intent://app.test/#Intent;end",
    "urn:ietf:wg:oauth:2.0:oob",
    "myapp:/callback",
    "https://app.test/" + "a" * 4096,
)
#: Redirect URIs that clients do register.
ACCEPTED_REDIRECT_URIS = (
    "https://app.test/callback",
    "https://app.test:8443/callback?tenant=1",
    "https://app.test",
    "http://localhost/callback",
    "http://localhost:3000/",
    "http://127.0.0.1:33418/callback",
    "http://[::1]:33418/callback",
    "com.example.app:/callback",
    "cursor://anysphere.cursor-retrieval/oauth/user-1/callback",
    "vscode://vscode.github-authentication/did-authenticate",
)

REGISTRATIONS = (
    RegistrationCase("a good one", {}, CREATED),
    RegistrationCase("another name for the type", {}, CREATED, "Application/JSON; charset=utf-8"),
    RegistrationCase("members that nobody knows", {"x": [1, {"y": None}]}, CREATED),
    RegistrationCase("a secret is wanted", {"token_endpoint_auth_method": "client_secret_basic"}, CREATED),
    RegistrationCase("a secret is brought", {"client_secret": "mine", "client_id": "mine"}, CREATED),
    RegistrationCase("no redirect URIs", {"redirect_uris": []}, BAD_URI),
    RegistrationCase("redirect URIs that are null", {"redirect_uris": None}, BAD_URI),
    RegistrationCase("seventeen redirect URIs", {"redirect_uris": [f"https://a{i}.test/" for i in range(17)]}, BAD_URI),
    RegistrationCase("one bad redirect URI", {"redirect_uris": ["https://app.test/", "http://evil.test/"]}, BAD_URI),
    RegistrationCase("a text for a list", {"redirect_uris": "https://app.test/"}),
    RegistrationCase("numbers in the list", {"redirect_uris": [1]}),
    RegistrationCase("a name that is a list", {"client_name": ["a"]}),
    RegistrationCase("only the implicit grant", {"grant_types": ["implicit"]}),
    RegistrationCase("only client credentials", {"grant_types": ["client_credentials"]}),
    RegistrationCase("only tokens as response", {"response_types": ["token"]}),
    RegistrationCase("nothing", b""),
    RegistrationCase("no JSON", b"redirect_uris=https://app.test/"),
    RegistrationCase("a list", b"[]"),
    RegistrationCase("a number", b"1"),
    RegistrationCase("null", b"null"),
    RegistrationCase("no UTF-8", b'{"redirect_uris":["https://app.test/"],"client_name":"\xff"}'),
    RegistrationCase("nested a thousand times", b'{"a":' * 1000 + b"1" + b"}" * 1000, Expect((201, 400))),
    RegistrationCase("much too large", b" " * 100_000, Expect((413,))),
    RegistrationCase("a form", b"{}", Expect((415,)), "application/x-www-form-urlencoded"),
    RegistrationCase("text, as a page of any site may send", b"{}", Expect((415,)), "text/plain"),
    RegistrationCase("no type", b"{}", Expect((415,)), ""),
)

#: A registered redirect URI, and one of a request that must not be taken for it.
NEAR_MISSES = (
    ("https://app.test/callback", "https://app.test/callback/"),
    ("https://app.test/callback/", "https://app.test/callback"),
    ("https://app.test/callback", "https://app.test/callback?"),
    ("https://app.test/callback", "https://app.test/callback?next=https://evil.test"),
    ("https://app.test/callback", "https://app.test/callback#"),
    ("https://app.test/callback", "https://app.test/callback/.."),
    ("https://app.test/callback", "https://app.test/callback/../evil"),
    ("https://app.test/callback", "https://app.test/x/../callback"),
    ("https://app.test/callback", "https://app.test//callback"),
    ("https://app.test/callback", "https://app.test/Callback"),
    ("https://app.test/callback", "https://app.test/%63allback"),
    ("https://app.test/callback", "https://app.test/callback%00"),
    ("https://app.test/callback", "https://app.test/callback;x"),
    ("https://app.test/callback", "https://APP.test/callback"),
    ("https://app.test/callback", "HTTPS://app.test/callback"),
    ("https://app.test/callback", "http://app.test/callback"),
    ("https://app.test/callback", "https://app.test:443/callback"),
    ("https://app.test/callback", "https://app.test:8443/callback"),
    ("https://app.test/callback", "https://app.test./callback"),
    ("https://app.test/callback", "https://app.test.evil.test/callback"),
    ("https://app.test/callback", "https://evil-app.test/callback"),
    ("https://app.test/callback", "https://evil.test/callback"),
    ("https://app.test/callback", "https://evil.test/https://app.test/callback"),
    ("https://app.test/callback", "https://evil.test?https://app.test/callback"),
    ("https://app.test/callback", "https://app.test@evil.test/callback"),
    ("https://app.test/callback", "https://app.test\\@evil.test/callback"),
    ("https://app.test/callback", "//app.test/callback"),
    ("https://app.test/callback", " https://app.test/callback"),
    ("https://app.test/callback", "https://app.test/callback "),
    ("https://app.test/callback", "https://app.test/callback\r\nLocation: https://evil.test"),
    ("https://app.test/callback", "javascript:alert(1)"),
    ("https://app.test/callback?a=1&b=2", "https://app.test/callback?b=2&a=1"),
    ("https://app.test/callback?a=1", "https://app.test/callback"),
    ("https://127.0.0.1/callback", "https://127.0.0.1:8443/callback"),
    ("http://127.0.0.1:33418/callback", "http://localhost:33418/callback"),
    ("http://localhost:33418/callback", "http://127.0.0.1:33418/callback"),
    ("http://127.0.0.1:33418/callback", "http://[::1]:33418/callback"),
    ("http://127.0.0.1:33418/callback", "http://127.0.0.1:33418/other"),
    ("http://127.0.0.1:33418/callback", "http://127.0.0.1:33418/callback/"),
    ("http://127.0.0.1:33418/callback", "http://127.0.0.1:33418/callback?x=1"),
    ("http://127.0.0.1:33418/callback", "https://127.0.0.1:33418/callback"),
    ("http://127.0.0.1:33418/callback", "http://127.0.0.1:33418@evil.test/callback"),
    ("http://127.0.0.1:33418/callback", "http://127.0.0.1:1:2/callback"),
    ("http://127.0.0.1:33418/callback", "http://127.0.0.1:/callback"),
    ("http://127.0.0.1:33418/callback", "http://127.0.0.1:0/callback"),
    ("http://127.0.0.1:33418/callback", "http://127.0.0.1:65536/callback"),
    ("http://127.0.0.1:33418/callback", "http://127.0.0.1.evil.test:33418/callback"),
    ("http://127.0.0.1:33418/callback", "http://evil.test:33418/callback"),
    ("http://localhost/callback", "http://localhost.evil.test/callback"),
    ("http://localhost/callback", "http://LOCALHOST/callback"),
    ("cursor://a/b", "cursor://a/b/c"),
    ("com.example.app:/callback", "com.example.app:/callback2"),
)
#: A registered redirect URI, and one of a request that is the same (RFC 8252 §7.3).
MATCHES = (
    ("https://app.test/callback", "https://app.test/callback"),
    ("http://localhost/callback", "http://localhost:51212/callback"),
    ("http://127.0.0.1:33418/callback", "http://127.0.0.1:1/callback"),
    ("http://127.0.0.1:33418/callback", "http://127.0.0.1/callback"),
    ("http://[::1]:1/callback", "http://[::1]:2/callback"),
    ("cursor://a/b", "cursor://a/b"),
)


class AuthorizeCase(NamedTuple):
    """An authorization request of a client whose redirect URI is a page on the web.

    Attributes:
        name: What is wrong, unique.
        changes: What differs from a good one; None leaves a parameter out.
        expect: The answer.
        more: Text after the query.
    """

    name: str
    changes: Mapping[str, str | None] = {}
    expect: Expect = BAD_PAGE
    more: str = ""


AUTHORIZATIONS = (
    AuthorizeCase("a good one", {}, CONSENT),
    AuthorizeCase("no resource, as old clients", {"resource": None}, CONSENT),
    AuthorizeCase("no state", {"state": None}, CONSENT),
    AuthorizeCase("scopes that nobody knows", {"scope": "admin * openid"}, CONSENT._replace(hides=("admin",))),
    AuthorizeCase("no client", {"client_id": None}),
    AuthorizeCase("an empty client", {"client_id": ""}),
    AuthorizeCase("an unknown client", {"client_id": "client_" + "A" * 54}, UNKNOWN_CLIENT),
    AuthorizeCase("the application at the provider", {"client_id": "proxy-app"}, UNKNOWN_CLIENT),
    AuthorizeCase("a client that is a path", {"client_id": "../../etc/passwd"}, UNKNOWN_CLIENT),
    AuthorizeCase("a client of 10,000 characters", {"client_id": "c" * 10_000}, UNKNOWN_CLIENT),
    AuthorizeCase(
        "a client with markup", {"client_id": "<script>x</script>"}, UNKNOWN_CLIENT._replace(hides=("<script>",))
    ),
    AuthorizeCase("no redirect URI", {"redirect_uri": None}),
    AuthorizeCase("no response type", {"response_type": None}),
    AuthorizeCase("the implicit grant", {"response_type": "token"}),
    AuthorizeCase("a hybrid grant", {"response_type": "code token"}),
    AuthorizeCase("the response in a fragment", {"response_mode": "fragment"}),
    AuthorizeCase("the response as a form", {"response_mode": "form_post"}),
    AuthorizeCase("no challenge", {"code_challenge": None}),
    AuthorizeCase("an empty challenge", {"code_challenge": ""}),
    AuthorizeCase("a short challenge", {"code_challenge": "a" * 42}),
    AuthorizeCase("a challenge of other characters", {"code_challenge": "+" * 43}),
    AuthorizeCase("a plain challenge", {"code_challenge_method": "plain"}),
    AuthorizeCase("no method, which means plain", {"code_challenge_method": None}),
    AuthorizeCase("a method in other case", {"code_challenge_method": "s256"}),
    AuthorizeCase("another resource", {"resource": "https://evil.test/mcp"}),
    AuthorizeCase("the issuer as resource", {"resource": "@ISSUER@"}),
    AuthorizeCase("a resource below ours", {"resource": "@ISSUER@/mcp/admin"}),
    AuthorizeCase("a resource that is no URL", {"resource": "mcp"}),
    AuthorizeCase("two resources", {}, BAD_PAGE, "&resource=https://evil.test/mcp"),
    AuthorizeCase("two redirect URIs", {}, BAD_PAGE, "&redirect_uri=https://evil.test/"),
    AuthorizeCase("two states", {}, BAD_PAGE, "&state=2"),
    AuthorizeCase("two challenges", {}, BAD_PAGE, "&code_challenge=" + "a" * 43),
    AuthorizeCase("a request object", {"request": "e30.e30."}),
    AuthorizeCase("a request object elsewhere", {"request_uri": "https://evil.test/request"}),
    AuthorizeCase("no interaction", {"prompt": "none"}),
    AuthorizeCase("a state of 3,000 characters", {"state": "s" * 3000}),
    AuthorizeCase("a query of 20,000 bytes", {"x": "y" * 20_000}, BAD_PAGE._replace(status=(414,))),
    AuthorizeCase("a hundred parameters", {}, BAD_PAGE, "&a=b" * 100),
    AuthorizeCase("no UTF-8", {}, BAD_PAGE, "&a=%ff"),
    AuthorizeCase("markup in the state", {"state": '"><script>x</script>'}, CONSENT._replace(hides=("<script>",))),
)


class TokenRequestCase(NamedTuple):
    """A request with a good code, or one that is not.

    Attributes:
        name: What is wrong, unique.
        changes: What differs from a good one; None leaves a parameter out.
        expect: The answer.
        headers: Further headers.
        more: Text after the form.
    """

    name: str
    changes: Mapping[str, str | None] = {}
    expect: Expect = INVALID_GRANT
    headers: Headers = ()
    more: str = ""


TOKEN_REQUESTS = (
    TokenRequestCase("a good one", {}, ISSUED),
    TokenRequestCase("no redirect URI, as OAuth 2.1", {"redirect_uri": None}, ISSUED),
    TokenRequestCase("no resource, as old clients", {"resource": None}, ISSUED),
    TokenRequestCase("no verifier", {"code_verifier": None}, INVALID_REQUEST),
    TokenRequestCase("an empty verifier", {"code_verifier": ""}, INVALID_REQUEST),
    TokenRequestCase("another verifier", {"code_verifier": "b" * 50}),
    TokenRequestCase("the challenge as verifier", {"code_verifier": "@CHALLENGE@"}),
    TokenRequestCase("another redirect URI", {"redirect_uri": "https://evil.test/"}),
    TokenRequestCase("an empty redirect URI", {"redirect_uri": ""}),
    TokenRequestCase("another client", {"client_id": "@OTHER@"}),
    TokenRequestCase("an unknown client", {"client_id": "client_" + "A" * 54}, INVALID_CLIENT),
    TokenRequestCase("no client", {"client_id": None}, INVALID_REQUEST),
    TokenRequestCase("no code", {"code": None}, INVALID_REQUEST),
    TokenRequestCase("an unknown code", {"code": "a" * 43}),
    TokenRequestCase("a code of 10,000 characters", {"code": "a" * 10_000}),
    TokenRequestCase("the code of the provider", {"code": "@UPSTREAM@"}),
    TokenRequestCase("no grant type", {"grant_type": None}, INVALID_REQUEST),
    TokenRequestCase(
        "a password",
        {"grant_type": "password", "username": "a", "password": "b"},
        Expect((400,), holds=("unsupported_grant_type",)),
    ),
    TokenRequestCase(
        "client credentials", {"grant_type": "client_credentials"}, Expect((400,), holds=("unsupported_grant_type",))
    ),
    TokenRequestCase("the code as refresh token", {"grant_type": "refresh_token", "refresh_token": "@CODE@"}),
    TokenRequestCase(
        "another resource", {"resource": "https://evil.test/mcp"}, Expect((400,), holds=("invalid_target",))
    ),
    TokenRequestCase(
        "two resources", {}, Expect((400,), holds=("invalid_target",)), (), "&resource=https://evil.test/mcp"
    ),
    TokenRequestCase("two codes", {}, INVALID_REQUEST, (), "&code=2"),
    TokenRequestCase("two verifiers", {}, INVALID_REQUEST, (), "&code_verifier=2"),
    TokenRequestCase("two clients", {}, INVALID_REQUEST, (), "&client_id=2"),
    TokenRequestCase("a secret that nobody gave", {"client_secret": "x"}, INVALID_CLIENT),
    TokenRequestCase("Basic authentication", {}, INVALID_CLIENT, (("Authorization", "Basic YTpi"),)),
    TokenRequestCase("an assertion of a client without keys", {"client_assertion": "e30.e30.c2ln"}, INVALID_CLIENT),
    TokenRequestCase("JSON", {}, INVALID_REQUEST, (("Content-Type", "application/json"),)),
    TokenRequestCase("text, as a page of any site may send", {}, INVALID_REQUEST, (("Content-Type", "text/plain"),)),
    TokenRequestCase("100,000 bytes", {"x": "y" * 100_000}, Expect((413,))),
)


class DocumentCase(NamedTuple):
    """A client ID metadata document.

    Attributes:
        name: What is wrong, unique.
        document: What differs from a good one, or the whole body.
        expect: The answer to an authorization request of that client.
        path: The path and query of the client id, at the client's origin.
        status: The status of the answer.
    """

    name: str
    document: Mapping[str, Any] | bytes = {}
    expect: Expect = Expect((400, 401), headers={"location": None})
    path: str = "/clients/app.json"
    status: int = 200


DOCUMENTS = (
    DocumentCase("a good one", {}, CONSENT),
    DocumentCase("members that nobody knows", {"x": 1}, CONSENT),
    DocumentCase("another client_id", {"client_id": "https://evil.test/app.json"}),
    DocumentCase("a client_id with a slash more", {"client_id": "@ORIGIN@/clients/app.json/"}),
    DocumentCase("no client_id", {"client_id": None}),
    DocumentCase("no redirect URIs", {"redirect_uris": []}),
    DocumentCase("other redirect URIs", {"redirect_uris": ["https://evil.test/"]}),
    DocumentCase("a script as redirect URI", {"redirect_uris": ["javascript:alert(1)"]}),
    DocumentCase("a shared secret", {"token_endpoint_auth_method": "client_secret_post"}),
    DocumentCase("keys that are missing", {"token_endpoint_auth_method": "private_key_jwt"}),
    DocumentCase("no JSON", b"<html>"),
    DocumentCase("a list", b"[]"),
    DocumentCase("70,000 bytes", json.dumps({"client_name": "x" * 70_000}).encode()),
    DocumentCase("2 MB", b" " * 2_000_000),
    DocumentCase("not found", {}, status=404),
    DocumentCase("created", {}, status=201),
    DocumentCase("a redirect to a good one", b"/clients/good.json", status=302),
    DocumentCase("no path", {}, path=""),
    DocumentCase("only a slash", {}, path="/"),
    DocumentCase("a fragment", {}, path="/clients/app.json#x"),
    DocumentCase("dot segments", {}, path="/clients/../clients/app.json"),
    DocumentCase("encoded dot segments", {}, path="/clients/%2E%2e/clients/app.json"),
)

#: Client ids that are URLs, and must not be requested: inner addresses, other schemes, what no URL holds.
UNREACHABLE_CLIENT_IDS = (
    "http://app.test/client.json",
    "https://user@app.test/client.json",
    "https://10.0.0.1/client.json",
    "https://192.168.1.1/client.json",
    "https://169.254.169.254/latest/meta-data/",
    "http://169.254.169.254/latest/meta-data/",
    "https://[fd00:ec2::254]/latest/",
    "https://[::ffff:10.0.0.1]/client.json",
    "https://[64:ff9b::a00:1]/client.json",
    "https://[2002:a00:1::]/client.json",
    "https://0x0a000001/client.json",
    "https://167772161/client.json",
    "https://012.0.0.1/client.json",
    "https://10.1/client.json",
    "https://0.0.0.0/client.json",
    "https://100.64.0.1/client.json",
    "file:///etc/passwd",
    "ftp://app.test/client.json",
    "gopher://app.test/1",
    "javascript://app.test/%0aalert(1)",
    "https://app.test:99999/client.json",
    "https://app.test/cli ent.json",
    "https://äpp.test/client.json",
    "https://app.test/client.json\r\nHost: evil.test",
)
