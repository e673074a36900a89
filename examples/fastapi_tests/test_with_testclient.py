"""Without async: FastAPI's TestClient for the pages, Gemel's blocking client for the tools."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from library import app

from gemel import HttpStatus, ToolCallError
from gemel.sync import Client

URL = "http://localhost/ai/mcp"


@pytest.fixture
def pages() -> Iterator[TestClient]:
    """The pages of the application, while it runs."""
    with TestClient(app) as client:
        yield client


@pytest.fixture
def tools() -> Iterator[Client]:
    """The tools, as Ada calls them."""
    with Client(app, url=URL, auth=lambda: "Bearer 1234") as client:
        yield client


def test_a_borrowed_book_is_shown(pages: TestClient, tools: Client) -> None:
    assert tools.call_tool("borrow", {"title": "Emma"}).text == "Emma is yours, ada"
    assert pages.get("/books/Emma").json() == {"title": "Emma", "reader": "ada"}


def test_a_book_is_borrowed_once(tools: Client) -> None:
    tools.call_tool("borrow", {"title": "Emma"})
    with pytest.raises(ToolCallError, match="Emma is not on the shelf"):
        tools.call_tool("borrow", {"title": "Emma"})


def test_an_unknown_book_has_no_page(pages: TestClient) -> None:
    assert pages.get("/books/Ulysses").status_code == 404


def test_strangers_are_refused() -> None:
    with pytest.raises(HttpStatus) as refused:
        Client(app, url=URL).connect()
    assert refused.value.status == 401
