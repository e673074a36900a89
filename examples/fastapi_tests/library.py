"""A web application with an MCP server in it: a library whose pages and tools use the same database. The tests beside this file
test both, in three styles. Run `uvicorn library:app` in this directory to serve it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException

from gemel import Context, Principal, Refusal, Server, ToolError

TOKENS = {"1234": "ada"}


def connect() -> sqlite3.Connection:
    """Open the database, with two books in a new one. A connection must stay in the thread that opened it."""
    database = sqlite3.connect(os.environ.get("LIBRARY", "library.db"), isolation_level=None)
    database.execute("CREATE TABLE IF NOT EXISTS books (title TEXT PRIMARY KEY, reader TEXT)")
    database.execute("INSERT OR IGNORE INTO books (title) VALUES ('Emma'), ('Dracula')")
    return database


@asynccontextmanager
async def lifespan(server: Server[sqlite3.Connection]) -> AsyncIterator[sqlite3.Connection]:
    """Open a connection for the tools, in each event loop that serves them."""
    database = connect()
    yield database
    database.close()


server: Server[sqlite3.Connection] = Server("library", lifespan=lifespan)


@server.tool
async def borrow(ctx: Context[sqlite3.Connection], title: str) -> str:
    """Borrow a book."""
    taken = "UPDATE books SET reader = ? WHERE title = ? AND reader IS NULL"
    if not ctx.state.execute(taken, (ctx.principal, title)).rowcount:
        raise ToolError(f"{title} is not on the shelf")
    return f"{title} is yours, {ctx.principal}"


async def authenticate(scope: Mapping[str, Any], headers: Mapping[str, str]) -> Principal | Refusal:
    """Tell who calls, by a token."""
    reader = TOKENS.get((headers.get("authorization") or "").removeprefix("Bearer "))
    return Refusal(401, "A token, please") if reader is None else Principal(reader)


@asynccontextmanager
async def app_lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Enter the lifespan of the tools before the first request."""
    async with server.running():
        yield


app = FastAPI(lifespan=app_lifespan)
app.mount("/ai", server.http_app(authenticate=authenticate))


@app.get("/books/{title}")
async def show(title: str) -> dict[str, str | None]:
    """Who has a book."""
    database = connect()
    try:
        row = database.execute("SELECT reader FROM books WHERE title = ?", (title,)).fetchone()
    finally:
        database.close()
    if row is None:
        raise HTTPException(404)
    return {"title": title, "reader": row[0]}
