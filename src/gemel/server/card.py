"""The server card: what a client can read about a server before it connects, at `<endpoint>/server-card`.

It has identity, address and protocol revisions; nothing that is registered, and nothing of the environment. Specification:
https://github.com/modelcontextprotocol/experimental-ext-server-card (draft)
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

from gemel.errors import DefinitionError, shorten
from gemel.http1.asgi import HeaderPairs, Receive, Scope, Send
from gemel.protocol.description import ServerDescription
from gemel.schema.base import Implementation

_SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
_TYPE = b"application/mcp-server-card+json"
_NAME = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
#: The most characters that a card and the registry take.
_DESCRIPTION = 100
_PUBLIC: HeaderPairs = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET"),
    (b"access-control-allow-headers", b"Content-Type, If-None-Match"),
    (b"access-control-expose-headers", b"ETag"),
    (b"cache-control", b"public, max-age=3600"),
)


def check_published(name: str, info: Implementation) -> None:
    """Check what a card and the registry demand of a server's name and description.

    Args:
        name: The name in reverse DNS form, "com.example/weather".
        info: What the server says of itself.

    Raises:
        DefinitionError: The name has another form, or the description is missing or too long.
    """
    if not _NAME.fullmatch(name) or not 3 <= len(name) <= 200:
        raise DefinitionError(f"The name {shorten(repr(name))} is not in reverse DNS form: write com.example/weather")
    if not info.description:
        raise DefinitionError('A published server needs a description: Server(…, description="What it is for")')
    if len(info.description) > _DESCRIPTION:
        text = f"The description has {len(info.description)} characters; cards and the registry take at most {_DESCRIPTION}"
        raise DefinitionError(text)


class ServerCard:
    """The ASGI application that answers with the card of a server.

    Args:
        name: The name in reverse DNS form.
        description: What the server says of itself.
        path: The path of the endpoint.

    Raises:
        DefinitionError: See `check_published`.
    """

    #: Pages of all origins may read it: it has public data only.
    any_origin = True

    def __init__(self, name: str, description: ServerDescription, path: str) -> None:
        check_published(name, description.info)
        self._name = name
        self._description = description
        self._path = path

    def content(self, url: str) -> dict[str, Any]:
        """Return the card for the URL of the endpoint."""
        info: dict[str, Any] = msgspec.to_builtins(self._description.info)
        remote = {
            "type": "streamable-http",
            "url": url,
            "supportedProtocolVersions": list(self._description.revisions),
        }
        return {"$schema": _SCHEMA, **info, "name": self._name, "remotes": [remote]}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET, HEAD and the OPTIONS of a preflight request."""
        method = scope["method"]
        if method not in ("GET", "HEAD", "OPTIONS"):
            await _respond(send, 405, ((b"allow", b"GET, HEAD, OPTIONS"),))
        elif method == "OPTIONS":
            await _respond(send, 204, _PUBLIC)
        else:
            headers = dict(scope["headers"])
            host = headers.get(b"host", b"").decode("latin-1")
            root = scope.get("root_path", "")
            body = msgspec.json.encode(self.content(f"{scope['scheme']}://{host}{root}{self._path}"))
            tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'.encode()
            tags = [part.strip().removeprefix(b"W/") for part in headers.get(b"if-none-match", b"").split(b",")]
            public = (*_PUBLIC, (b"etag", tag))
            if tag in tags or b"*" in tags:
                await _respond(send, 304, public)
            else:
                await _respond(send, 200, ((b"content-type", _TYPE), *public), body, is_head=method == "HEAD")


async def _respond(send: Send, status: int, headers: HeaderPairs, body: bytes = b"", *, is_head: bool = False) -> None:
    length = () if status in (204, 304) else ((b"content-length", str(len(body)).encode()),)
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": b"" if is_head else body})
