"""With async: httpx for the pages and Gemel's client for the tools, in the event loop that pytest-asyncio gives each test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

import httpx
import pytest
import pytest_asyncio
from library import app

from gemel import Client, ToolCallError

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture(params=["2025", "2026"])
async def tools(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """The tools, as Ada calls them, in both eras of the protocol. The application runs while the client is connected."""
    era: Literal["2025", "2026"] = request.param
    async with Client(app, url="http://localhost/ai/mcp", auth=lambda: "Bearer 1234", era=era) as client:
        yield client


@pytest_asyncio.fixture
async def pages(tools: Client) -> AsyncIterator[httpx.AsyncClient]:
    """The pages of the application."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        yield client


async def test_a_borrowed_book_is_shown(pages: httpx.AsyncClient, tools: Client) -> None:
    assert (await tools.call_tool("borrow", {"title": "Emma"})).text == "Emma is yours, ada"
    assert (await pages.get("/books/Emma")).json() == {"title": "Emma", "reader": "ada"}


async def test_of_two_who_want_a_book_one_gets_it(tools: Client) -> None:
    both = await asyncio.gather(
        *(tools.call_tool("borrow", {"title": "Emma"}) for _ in range(2)), return_exceptions=True
    )
    assert [type(one) for one in both if isinstance(one, Exception)] == [ToolCallError]
