"""MCP Apps: the HTML pages of a server, served from an origin of their own, which reaches nothing of the inspector."""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from gemel.extensions.apps import MIME_TYPE
from gemel.http1.asgi import Receive, Scope, Send

#: Pages that are kept, and bytes of one.
MAX_PAGES = 100
MAX_BYTES = 8 * 1024 * 1024
#: Origins of a policy that a page may ask for. What is not one is left out.
_ORIGIN = re.compile(
    r"(?:https?|wss?)://(?:\*\.)?[A-Za-z0-9.-]+(?::\d{1,5})?|(?:https?|wss?)://\[[0-9A-Fa-f:.]+\](?::\d{1,5})?"
)
_MAX_ORIGINS = 100


class Frames:
    """An ASGI app that serves pages of servers, each at an address that can't be guessed.

    Args:
        page: The origin of the inspector, the only one that may show them in a frame.
        port: The port that they are served at.
    """

    def __init__(self, page: str, port: int) -> None:
        self._page = page
        host = page.removeprefix("http://").rpartition(":")[0]
        self.origin = f"http://{host}:{port}"
        self._hosts = {f"{name}:{port}" for name in (host, "127.0.0.1", "localhost", "[::1]")}
        self._pages: OrderedDict[str, tuple[bytes, bytes]] = OrderedDict()

    def add(self, html: str, csp: Mapping[str, Any]) -> str:
        """Add a page.

        Args:
            html: The document.
            csp: The origins that it may use: `_meta.ui.csp` of its resource.

        Returns:
            Its address.

        Raises:
            ValueError: It is too large.
        """
        data = html.encode("utf-8", "replace")
        if len(data) > MAX_BYTES:
            raise ValueError(f"The page has more than {MAX_BYTES} bytes")
        name = secrets.token_urlsafe(18)
        self._pages[name] = data, self._policy(csp).encode()
        if len(self._pages) > MAX_PAGES:
            self._pages.popitem(last=False)
        return f"{self.origin}/frame/{name}"

    def _policy(self, csp: Mapping[str, Any]) -> str:
        """The policy of a page (MCP Apps, "Sandbox proxy"): what it doesn't declare is blocked."""
        resources = _origins(csp.get("resourceDomains"))
        parts = {
            "default-src": "'none'",
            "script-src": f"'unsafe-inline' {resources}",
            "style-src": f"'unsafe-inline' {resources}",
            "img-src": f"data: blob: {resources}",
            "font-src": f"data: {resources}",
            "media-src": f"data: blob: {resources}",
            "connect-src": _origins(csp.get("connectDomains")) or "'none'",
            "frame-src": _origins(csp.get("frameDomains")) or "'none'",
            "base-uri": _origins(csp.get("baseUriDomains")) or "'none'",
            "form-action": "'none'",
            "frame-ancestors": f"{self._page} {self._page.replace('127.0.0.1', 'localhost')}",
            "sandbox": "allow-scripts",
        }
        return "; ".join(f"{name} {value}".strip() for name, value in parts.items())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        hosts = [value.decode("latin-1").lower() for name, value in scope["headers"] if name.lower() == b"host"]
        page = self._pages.get(scope["path"].removeprefix("/frame/")) if scope["path"].startswith("/frame/") else None
        status, data, policy = 200, b"", b"default-src 'none'; frame-ancestors 'none'; sandbox"
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            status, data = 403, b"This host is not served here"
        elif scope["method"] != "GET":
            status, data = 405, b"Only GET is possible here"
        elif page is None:
            status, data = 404, b"There is no such page, or not any more"
        else:
            data, policy = page
        kind = b"text/html; charset=utf-8" if status == 200 else b"text/plain; charset=utf-8"
        headers = [
            (b"content-type", kind),
            (b"content-length", str(len(data)).encode()),
            (b"content-security-policy", policy),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cache-control", b"no-store"),
            (b"cross-origin-opener-policy", b"same-origin"),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": data, "more_body": False})


def page_of(result: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the document of a page and what it may reach, from the result of `resources/read`.

    Raises:
        ValueError: It has no HTML.
    """
    contents = result.get("contents")
    for content in contents if isinstance(contents, list) else ():
        if not isinstance(content, dict) or not isinstance(content.get("text"), str):
            continue
        kind = content.get("mimeType")
        if not isinstance(kind, str) or kind.partition(";")[0].strip() != "text/html":
            continue
        meta = content.get("_meta")
        ui = meta.get("ui") if isinstance(meta, dict) else None
        csp = ui.get("csp") if isinstance(ui, dict) else None
        return content["text"], csp if isinstance(csp, dict) else {}
    raise ValueError(f"The resource is not a page: its type is not {MIME_TYPE}")


def _origins(values: object) -> str:
    """The origins in a list as they stand in a policy."""
    texts = values if isinstance(values, list) else []
    return " ".join(text for text in texts[:_MAX_ORIGINS] if isinstance(text, str) and _ORIGIN.fullmatch(text))
