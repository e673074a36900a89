"""Metadata documents, where they are looked for, and the identifier of a resource."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel.auth.metadata import (
    MAX_DOCUMENT,
    AuthorizationServer,
    ClientMetadata,
    ProtectedResource,
    authorization_server_urls,
    canonical_resource,
    protected_resource_urls,
    read_document,
)

WELL_KNOWN = "https://x.example/.well-known"


@pytest.mark.parametrize(
    ("url", "urls"),
    [
        ("https://x.example/mcp", ["/oauth-protected-resource/mcp", "/oauth-protected-resource"]),
        ("https://X.example:443/a/b/?q=1#f", ["/oauth-protected-resource/a/b/?q=1", "/oauth-protected-resource"]),
        ("https://x.example/", ["/oauth-protected-resource"]),
        ("https://x.example", ["/oauth-protected-resource"]),
    ],
)
def test_metadata_of_a_resource_is_below_the_path_then_at_the_root(url: str, urls: list[str]) -> None:
    """AUTHC-03."""
    assert protected_resource_urls(url) == [WELL_KNOWN + each for each in urls]


@pytest.mark.parametrize(
    ("issuer", "revision", "urls"),
    [
        (
            "https://x.example/tenant",
            "2026-07-28",
            [
                f"{WELL_KNOWN}/oauth-authorization-server/tenant",
                f"{WELL_KNOWN}/openid-configuration/tenant",
                "https://x.example/tenant/.well-known/openid-configuration",
            ],
        ),
        (
            "https://x.example",
            "2025-11-25",
            [f"{WELL_KNOWN}/oauth-authorization-server", f"{WELL_KNOWN}/openid-configuration"],
        ),
        (
            "https://x.example/",
            "2025-11-25",
            [f"{WELL_KNOWN}/oauth-authorization-server", f"{WELL_KNOWN}/openid-configuration"],
        ),
        ("https://x.example/tenant", "2025-06-18", [f"{WELL_KNOWN}/oauth-authorization-server/tenant"]),
        ("https://x.example/mcp", "2025-03-26", [f"{WELL_KNOWN}/oauth-authorization-server"]),
    ],
)
def test_metadata_of_an_issuer_is_looked_for_in_order(issuer: str, revision: str, urls: list[str]) -> None:
    """AUTHC-04, AUTHC-06."""
    assert authorization_server_urls(issuer, revision) == urls


@pytest.mark.parametrize(
    ("url", "resource"),
    [
        ("HTTPS://X.Example:443/", "https://x.example"),
        ("https://x.example:8443/MCP", "https://x.example:8443/MCP"),
        ("https://x.example/mcp#part", "https://x.example/mcp"),
        ("https://x.example/mcp/", "https://x.example/mcp/"),
        ("http://[::1]:80/mcp?a=b", "http://[::1]/mcp?a=b"),
        ("https://x.example/?a", "https://x.example/?a"),
    ],
)
def test_a_resource_has_a_canonical_identifier(url: str, resource: str) -> None:
    """AUTHC-11."""
    assert canonical_resource(url) == resource
    assert canonical_resource(resource) == resource


NOT_URLS = [
    "",
    "x.example",
    "//x.example/",
    "ftp://x.example/",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "https://",
    "https:///path",
    "https://user:secret@x.example/",
    "https://x.example:99999/",
    "https://x.example:port/",
    "https://[::1/",
    "https://x.example/a b",
    "https://x.example/\r\nx: y",
    "https://x.example/<script>",
    "https://x.exämple/",
    "https://x.example\\@y.example/",
]


@pytest.mark.parametrize("url", NOT_URLS)
def test_what_is_not_an_http_url_is_refused(url: str) -> None:
    for function in (protected_resource_urls, authorization_server_urls, canonical_resource):
        with pytest.raises(ValueError, match="URL"):
            function(url)


@given(st.text(max_size=40) | st.from_regex(r"https?://[ -~]{0,30}", fullmatch=True))
def test_no_text_is_more_than_refused(url: str) -> None:
    try:
        resource = canonical_resource(url)
    except ValueError:
        return
    assert canonical_resource(resource) == resource
    assert resource.startswith(("https://", "http://"))


def test_a_document_is_read_without_members_that_nobody_knows() -> None:
    data = msgspec.json.encode(
        {"issuer": "https://x.example", "scopes_supported": None, "future": {"a": 1}, "token_endpoint": "https://y/"}
    )
    document = read_document(data, AuthorizationServer)
    assert document == AuthorizationServer(issuer="https://x.example", token_endpoint="https://y/")
    assert msgspec.json.decode(msgspec.json.encode(document)) == {
        "issuer": "https://x.example",
        "token_endpoint": "https://y/",
    }


@pytest.mark.parametrize("kind", [ProtectedResource, AuthorizationServer, ClientMetadata])
@pytest.mark.parametrize(
    "value",
    [
        [],
        None,
        "text",
        {"resource": 7, "issuer": 7, "client_id": 7},
        {"resource": "x", "issuer": "x", "scopes_supported": "a b", "redirect_uris": "x"},
        {"resource": "x", "issuer": "x", "scopes_supported": [1], "redirect_uris": [1]},
        {"resource": "x" * 5000, "issuer": "x" * 5000, "client_id": "x" * 5000},
        {"resource": "x", "issuer": "x", "scopes_supported": ["a"] * 2000, "redirect_uris": ["a"] * 2000},
    ],
)
def test_a_malformed_document_is_refused(kind: Any, value: Any) -> None:
    with pytest.raises(ValueError, match="malformed"):
        read_document(msgspec.json.encode(value), kind)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b'{"a":' * 100_000, b" " * (MAX_DOCUMENT + 1), b'{"resource":"\xff"}']
)
def test_what_is_not_json_or_too_large_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="document"):
        read_document(data, ProtectedResource)
