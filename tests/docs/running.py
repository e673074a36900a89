"""Runs the Python of a document, block after block, in one module, as a user would in a notebook: `await` is allowed.

An expression that is followed by `# → value` is checked: its `repr`, or what it prints, must be that value.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from gemel.server.run import loading
from tests.docs.documents import Block
from tests.docs.notebook import compiled, shown


class Notebook:
    """One document's module. What its hidden blocks may use:

    - `replaced` maps what readers see to what is there: `https://…` to a port on loopback.
    - `opened` holds what is to be closed when the document is over.
    - `directory` is where the document's files are, and the working directory.
    """

    def __init__(self, document: Path, directory: Path) -> None:
        self.module = types.ModuleType(f"document_{document.stem}")
        self.module.__file__ = str(document)
        self.replaced: dict[str, str] = {}
        self.opened = AsyncExitStack()
        given = {"replaced": self.replaced, "opened": self.opened, "directory": directory, "__shown__": shown}
        self.module.__dict__.update(given)
        sys.modules[self.module.__name__] = self.module
        self._before = set(sys.modules)

    async def close(self) -> None:
        """Close what was opened, forget the modules."""
        try:
            await self.opened.aclose()
        finally:
            del sys.modules[self.module.__name__]
            for name in self._of_the_directory():
                del sys.modules[name]

    def _of_the_directory(self) -> list[str]:
        """Files of the document that were imported: another document may have one of the same name."""
        directory = str(self.module.__dict__["directory"])
        found = {name: getattr(sys.modules[name], "__file__", None) for name in sys.modules.keys() - self._before}
        return [name for name, file in found.items() if file is not None and file.startswith(directory)]

    async def run(self, block: Block) -> None:
        """Run one block; what it raises carries the line of the document."""
        text = replace(block.text, self.replaced) if not block.hidden else block.text
        code = compiled(text, block.place, block.line, str(block.document))
        with loading():
            result = eval(code, self.module.__dict__)
            if inspect.isawaitable(result):
                await result


def replace(text: str, replaced: Mapping[str, str]) -> str:
    """The text as it can be run here."""
    for seen, there in replaced.items():
        text = text.replace(seen, there)
    return text
