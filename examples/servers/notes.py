"""Notes in an SQLite database, each call a transaction. NOTES_DB names the file."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated

from gemel import Depends, Server, ToolError

server = Server("notes", instructions="Keeps short notes. Search before you add one.")


@dataclass
class Note:
    title: str
    text: str


def transaction() -> Iterator[sqlite3.Connection]:
    file = os.environ.get("NOTES_DB", "notes.db")
    with closing(sqlite3.connect(file, check_same_thread=False)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS notes (title TEXT PRIMARY KEY, text TEXT NOT NULL)")
        yield connection


Database = Annotated[sqlite3.Connection, Depends(transaction)]


@server.tool
def add_note(database: Database, title: str, text: str) -> str:
    """Add a note, or replace the one of that title."""
    database.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (title, text))
    if not text:
        raise ToolError("A note needs a text.")  # the transaction is rolled back
    return f"Saved {title!r}."


@server.tool(annotations={"read_only_hint": True})
def search_notes(database: Database, word: str) -> list[Note]:
    """Find notes that contain a word."""
    query = "SELECT title, text FROM notes WHERE title || ' ' || text LIKE ? ORDER BY title"
    return [Note(*row) for row in database.execute(query, (f"%{word}%",))]


@server.tool
def delete_note(database: Database, title: str) -> str:
    """Delete a note."""
    if not database.execute("DELETE FROM notes WHERE title = ?", (title,)).rowcount:
        raise ToolError(f"There is no note {title!r}.")
    return f"Deleted {title!r}."


@server.resource("notes://{title}")
def note(database: Database, title: str) -> str | None:
    """The text of a note."""
    row = database.execute("SELECT text FROM notes WHERE title = ?", (title,)).fetchone()
    return row and str(row[0])


@server.prompt
def tidy(topic: str) -> str:
    """Tidy up the notes about a topic."""
    return f"Search the notes about {topic}, and merge those that say the same."


if __name__ == "__main__":
    server.run()
