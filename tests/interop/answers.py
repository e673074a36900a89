"""What the clients of the matrix answer when a server asks, and the record of what it asked. Standard library only."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOTS = ["file:///interop/a", "file:///interop/b"]
MODEL = "interop-model"
HELD_LIMIT = 25.0
"""Seconds after which a held question is answered in any case."""


class Asked(list[dict[str, Any]]):
    """The questions so far: `kind` is form, url, sample or roots.

    `forms` has for each message the fields to fill in (`*` for any field), or "decline" or "cancel"; a form that
    nobody expects is declined.
    """

    def __init__(self, forms: dict[str, Any]) -> None:
        super().__init__()
        self._forms = forms
        self._announce: Callable[[], None] | None = None
        self._go = Path()

    def hold(self, announce: Callable[[], None], go: Path) -> None:
        """Announce the next form and keep it waiting until the file `go` is there."""
        self._announce, self._go = announce, go

    async def form(self, message: str, schema: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
        """The action, and the content if it is accepted."""
        fields = list(schema.get("properties", {}))
        self.append({"kind": "form", "message": message, "fields": fields})
        if self._announce is not None:
            announce, self._announce = self._announce, None
            announce()
            deadline = time.monotonic() + HELD_LIMIT
            while not self._go.exists() and time.monotonic() < deadline:  # noqa: ASYNC110 # another process makes it
                await asyncio.sleep(0.02)
        answer = self._forms.get(message, "decline")
        if isinstance(answer, str):
            return answer, None
        filled = {name: answer.get(name, answer.get("*")) for name in fields if name in answer or "*" in answer}
        return "accept", filled

    def url(self, message: str, url: str) -> str:
        """The action."""
        self.append({"kind": "url", "message": message, "url": url})
        return "accept"

    def sample(self, texts: list[str], most: int | None) -> str:
        """What the model says: the last text that it was given."""
        self.append({"kind": "sample", "texts": texts, "max_tokens": most})
        return f"thought of {texts[-1] if texts else 'nothing'}"

    def roots(self) -> list[str]:
        """The folders."""
        self.append({"kind": "roots"})
        return ROOTS
