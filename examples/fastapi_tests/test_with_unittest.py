"""With unittest: an event loop for each test, and the tools without HTTP where that is not what is tested."""

from __future__ import annotations

import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from library import app, server

from gemel import Client, Principal, ToolCallError


class ToolsTest(unittest.IsolatedAsyncioTestCase):
    """The tools, called by a reader."""

    async def asyncSetUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.enterContext(mock.patch.dict(os.environ, LIBRARY=str(Path(folder) / "library.db")))
        self.ada = await self.enterAsyncContext(Client(server, principal=Principal("ada")))
        self.ben = await self.enterAsyncContext(Client(server, principal=Principal("ben")))

    async def test_a_reader_borrows_a_book(self) -> None:
        self.assertEqual((await self.ada.call_tool("borrow", {"title": "Emma"})).text, "Emma is yours, ada")
        with self.assertRaisesRegex(ToolCallError, "Emma is not on the shelf"):
            await self.ben.call_tool("borrow", {"title": "Emma"})

    async def test_the_application_uses_the_same_books(self) -> None:
        await self.ben.call_tool("borrow", {"title": "Dracula"})
        async with Client(app, url="http://localhost/ai/mcp", auth=lambda: "Bearer 1234") as client:
            with self.assertRaisesRegex(ToolCallError, "Dracula is not on the shelf"):
                await client.call_tool("borrow", {"title": "Dracula"})
