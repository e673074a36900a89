"""Redirect URIs of clients: which ones may be registered, and which one of a request equals a registered one.

Specification: Security Considerations, "Open Redirection"; RFC 8252 §7 (native applications); RFC 9700 §2.1 and §4.1.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

#: Characters of a redirect URI.
MAX_URI: Final = 2048
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
#: What RFC 3986 allows in a URI, without the fragment.
_CHARACTERS = re.compile(r"[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=%]+")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
#: Schemes of editors that have no dot, as RFC 8252 §7.1 wants it.
EDITOR_SCHEMES: Final = ("cursor", "vscode", "vscode-insiders", "windsurf", "zed")


def check_redirect_uri(uri: str, schemes: Collection[str] = EDITOR_SCHEMES) -> None:
    """Check a redirect URI that a client wants to register.

    Args:
        uri: The URI: https, http to a loopback host, or a private scheme with a dot in it.
        schemes: Private schemes without a dot that are accepted.

    Raises:
        ValueError: It is of another kind; the text says why.
    """
    if not 0 < len(uri) <= MAX_URI or not _CHARACTERS.fullmatch(uri):
        raise ValueError(f"a redirect URI is a URI of at most {MAX_URI} characters, without a fragment")
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        raise ValueError("the redirect URI is malformed") from None
    if not uri.startswith(f"{parts.scheme}:") or not _SCHEME.fullmatch(parts.scheme):
        raise ValueError("a redirect URI begins with its scheme, in lower case")
    if _has_dot_segments(parts.path):
        raise ValueError("a redirect URI has no . or .. in its path")
    if parts.scheme in ("http", "https"):
        _check_web(parts, port)
    elif not ("." in parts.scheme or parts.scheme in schemes):
        raise ValueError(f"the scheme {parts.scheme!r} is not accepted: use https, or http on a loopback address")
    elif not (parts.path or parts.netloc):
        raise ValueError("the redirect URI has no path")


def _check_web(parts: SplitResult, port: int | None) -> None:
    host = parts.netloc if port is None else parts.netloc.rpartition(":")[0]
    if not _HOST.fullmatch(host) or parts.netloc.endswith(":") or port == 0:
        raise ValueError("the redirect URI has no host, or more than a host and a port")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise ValueError("a redirect URI with http is for localhost, 127.0.0.1 or [::1] only: use https")


def _has_dot_segments(path: str) -> bool:
    decoded = path
    for _ in range(3):
        decoded = unquote(decoded)
    return any(segment in (".", "..") for segment in decoded.replace("\\", "/").split("/"))


def is_loopback(uri: str) -> bool:
    """Whether a checked redirect URI leads to the machine of the browser."""
    parts = urlsplit(uri)
    return parts.scheme == "http" and parts.hostname in _LOOPBACK


def without_port(uri: str) -> str:
    """A checked redirect URI as it is compared: on a loopback host every port is the same (RFC 8252 §7.3)."""
    if not is_loopback(uri):
        return uri
    parts = urlsplit(uri)
    host = parts.netloc if parts.port is None else parts.netloc.rpartition(":")[0]
    return uri.replace(parts.netloc, host, 1)


def matches(registered: Collection[str], uri: str) -> bool:
    """Whether the redirect URI of a request equals a registered one, character for character except for loopback ports.

    Args:
        registered: Checked redirect URIs.
        uri: The URI of the request.

    Returns:
        Whether a browser may be sent there.
    """
    if uri in registered:
        return True
    try:
        check_redirect_uri(uri)
    except ValueError:
        return False
    return is_loopback(uri) and without_port(uri) in map(without_port, registered)
