"""The twin of examples/servers/notes.py in FastMCP."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from fastmcp import FastMCP
from fastmcp.dependencies import Depends
from fastmcp.exceptions import NotFoundError, ToolError

mcp = FastMCP("notes", instructions="Keeps short notes. Search before you add one.")


@dataclass
class Note:
    title: str
    text: str


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    file = os.environ.get("NOTES_DB", "notes.db")
    with closing(sqlite3.connect(file, check_same_thread=False)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS notes (title TEXT PRIMARY KEY, text TEXT NOT NULL)")
        yield connection


@mcp.tool
def add_note(title: str, text: str, database: sqlite3.Connection = Depends(transaction)) -> str:
    """Add a note, or replace the one of that title."""
    database.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (title, text))
    if not text:
        raise ToolError("A note needs a text.")  # the transaction is rolled back
    return f"Saved {title!r}."


@mcp.tool(annotations={"readOnlyHint": True})
def search_notes(word: str, database: sqlite3.Connection = Depends(transaction)) -> list[Note]:
    """Find notes that contain a word."""
    query = "SELECT title, text FROM notes WHERE title || ' ' || text LIKE ? ORDER BY title"
    return [Note(*row) for row in database.execute(query, (f"%{word}%",))]


@mcp.tool
def delete_note(title: str, database: sqlite3.Connection = Depends(transaction)) -> str:
    """Delete a note."""
    if not database.execute("DELETE FROM notes WHERE title = ?", (title,)).rowcount:
        raise ToolError(f"There is no note {title!r}.")
    return f"Deleted {title!r}."


@mcp.resource("notes://{title}")
def note(title: str, database: sqlite3.Connection = Depends(transaction)) -> str:
    """The text of a note."""
    row = database.execute("SELECT text FROM notes WHERE title = ?", (title,)).fetchone()
    if row is None:
        raise NotFoundError(f"There is no note {title!r}.")
    return str(row[0])


@mcp.prompt
def tidy(topic: str) -> str:
    """Tidy up the notes about a topic."""
    return f"Search the notes about {topic}, and merge those that say the same."


if __name__ == "__main__":
    mcp.run()
