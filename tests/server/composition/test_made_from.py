"""Servers that are made from something else: `Server.from_client` and `Server.from_openapi`."""

from __future__ import annotations

from typing import Any

import pytest

from gemel import Client, DefinitionError, Server


@pytest.mark.parametrize("behind", ["2025", "2026"])
@pytest.mark.parametrize("front", ["2025", "2026"])
async def test_a_server_from_a_client_offers_what_the_other_one_does(behind: Any, front: Any) -> None:
    other = Server("other", version="3")

    @other.tool
    async def double(number: int) -> int:
        """Twice as much."""
        return 2 * number

    made = Server.from_client(Client(other, era=behind), prefix="far", title="Far away")
    async with Client(made, era=front) as client:
        assert [tool.name for tool in await client.list_tools()] == ["far_double"]
        assert (await client.call_tool("far_double", {"number": 4}, returns=int)).data == 8
        assert client.server_info is not None
        assert client.server_info.title == "Far away"


DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Echo", "version": "2"},
    "servers": [{"url": "https://echo.example.com/api"}],
    "paths": {
        "/say/{word}": {
            "post": {
                "operationId": "say",
                "parameters": [
                    {"name": "word", "in": "path", "required": True, "schema": {"type": "string"}},
                    {"name": "times", "in": "query", "schema": {"type": "integer"}},
                ],
                "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}},
            }
        }
    },
}


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_server_from_an_openapi_document_asks_the_client_that_it_was_given(era: Any) -> None:
    asked: list[tuple[str, str]] = []

    async def fetch(method: str, url: str, headers: Any, body: bytes | None) -> tuple[int, dict[str, str], bytes]:
        asked.append((method, url))
        return 200, {"content-type": "application/json"}, b'{"said": true}'

    made = Server.from_openapi(DOCUMENT, fetch, name="speaker", page_size=5)
    async with Client(made, era=era) as client:
        assert (await client.call_tool("say", {"word": "hi there"})).data == {"said": True}
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("speaker", "2")
    assert asked == [("POST", "https://echo.example.com/api/say/hi%20there")]


def test_a_document_that_is_none_is_told_at_the_door() -> None:
    with pytest.raises(DefinitionError):
        Server.from_openapi({"openapi": "3.1.0"})
