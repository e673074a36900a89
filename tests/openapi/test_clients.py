"""What a given HTTP client says, and what is sent with it: its base URL, cookies, multipart bodies."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from email.parser import BytesParser
from typing import Any

import pytest

from gemel import Client, Server, ToolCallError

DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Files", "version": "1"},
    "servers": [{"url": "https://documented.example"}],
    "paths": {
        "/me": {
            "get": {
                "operationId": "me",
                "parameters": [{"name": "lang", "in": "cookie", "required": True, "schema": {"type": "string"}}],
            }
        },
        "/upload": {
            "post": {
                "operationId": "upload",
                "requestBody": {
                    "required": True,
                    "content": {
                        "multipart/form-data": {
                            "schema": {
                                "type": "object",
                                "properties": {
                                    "title": {"type": "string"},
                                    "file": {"type": "string", "format": "binary"},
                                },
                            }
                        }
                    },
                },
            }
        },
    },
}


class Api:
    """An HTTP client with a base URL, as httpx has it."""

    base_url = "https://client.example/v1/"

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Mapping[str, str], bytes | None]] = []

    async def request(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Any:
        self.requests.append((method, url, headers, body))
        return 200, {}, b""


async def test_the_base_url_of_the_client_counts_and_cookies_are_sent() -> None:
    api = Api()
    async with Client(Server.from_openapi(DOCUMENT, api)) as client:
        await client.call_tool("me", {"lang": "no; x=1"})
    ((method, url, headers, _),) = api.requests
    assert (method, url, headers["Cookie"]) == ("GET", "https://client.example/v1/me", "lang=no%3B%20x%3D1")


async def test_a_multipart_body_has_files_from_base64() -> None:
    api = Api()
    content = bytes(range(256))
    async with Client(Server.from_openapi(DOCUMENT, api, base_url="https://given.example")) as client:
        (upload,) = [tool for tool in await client.list_tools() if tool.name == "upload"]
        assert "as base64" in str(upload.input_schema)
        body = {"title": "All", "file": base64.b64encode(content).decode()}
        await client.call_tool("upload", {"body": body})
        with pytest.raises(ToolCallError, match="file: expected a file as base64"):
            await client.call_tool("upload", {"body": {"file": "?"}})
    ((_, url, headers, sent),) = api.requests
    assert (url, sent is not None) == ("https://given.example/upload", True)
    message = BytesParser().parsebytes(
        b"Content-Type: " + headers["Content-Type"].encode() + b"\r\n\r\n" + (sent or b"")
    )
    parts: Any = message.get_payload()
    assert [part.get_param("name", header="content-disposition") for part in parts] == ["title", "file"]
    assert [part.get_payload(decode=True) for part in parts] == [b"All", content]
