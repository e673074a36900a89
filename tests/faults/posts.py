"""An HTTP server on loopback that goes wrong at one step, in the way that a row of `posts.faults` says, to the byte.

What it answers in good order comes from `server.py`; how it travels, and where it breaks, is here.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.faults.server import Server
from tests.faults.table import Case
from tests.transports.scripted_http import SESSION, Answer, Asked

PROGRESS = "notifications/progress"


class Posts:
    """The script of one case: `server` says what was served, `faults` how often it went wrong."""

    def __init__(self, case: Case) -> None:
        self.server = Server({"era": case.era})
        self.faults = 0
        self._case = case
        self._answered = asyncio.Event()
        self._answer = ""

    async def __call__(self, asked: Asked, answer: Answer) -> None:
        """Serve one HTTP request."""
        if asked.method != "POST":
            await answer.body(status=405)
            return
        message = asked.message
        if self._case.era == "2026" and "id" in message and message["method"] == "notifications/cancelled":
            raise AssertionError("a stateless client cancels by closing")
        for step, reply, _ in list(self.server.take(message)) or [("", "", message)]:
            await self._serve(step, reply, Way(asked, answer, reply))

    async def _serve(self, step: str, reply: str, way: Way) -> None:
        if step == "answer" and self._case.era == "2025":
            self._answer = reply
            self._answered.set()
            await way.answer.body(status=202)
            return
        if self._case.era == "2025" and step == "question":
            await self._ask(way)
        elif step == self._case.step and not self.faults:
            self.faults += 1
            await way.go(self._case.does)
        else:
            await way.go(["json"] if reply else ["status-202"])

    async def _ask(self, way: Way) -> None:
        """The handshake era: the question, and later the answer, are events of the call's stream."""
        await way.go(["stream"])
        await self._event("question", way)
        async with asyncio.timeout(10):
            await self._answered.wait()
        way.reply = self._answer
        await self._event("answer", way)
        if not self.faults:
            await way.go(["end"])

    async def _event(self, step: str, way: Way) -> None:
        if step == self._case.step:
            self.faults += 1
            await way.go([word for word in self._case.does if word != "stream"])
        else:
            await way.go(["event"])


class Way:
    """One reply on its way. Each word of a plan is a method, `-` written as `_`; `status-N` answers with that status."""

    def __init__(self, asked: Asked, answer: Answer, reply: str) -> None:
        self.answer = answer
        self.reply = reply
        self._asked = asked

    async def go(self, words: list[str] | tuple[str, ...]) -> None:
        for word in words:
            if word.startswith("status-"):
                await self.answer.body(b"", kind="", status=int(word.removeprefix("status-")))
            else:
                await getattr(self, word.replace("-", "_"))()

    @property
    def headers(self) -> dict[str, str]:
        return SESSION if self._asked.message.get("method") == "initialize" else {}

    # ---------------------------------------------------------------- a whole answer

    async def json(self) -> None:
        await self.answer.body(self.reply.encode(), headers=self.headers)

    async def page(self) -> None:
        await self.answer.body(b"<html>Welcome</html>", kind="text/html")

    async def empty(self) -> None:
        await self.answer.body(b"")

    async def no_json(self) -> None:
        await self.answer.body(b"{nothing")

    async def other_id(self) -> None:
        await self.answer.body(json.dumps({**json.loads(self.reply), "id": 999}).encode())

    async def null(self) -> None:
        await self.answer.body(json.dumps({"jsonrpc": "2.0", "id": self._asked.message["id"], "result": None}).encode())

    async def huge(self) -> None:
        await self.answer.body(self.reply.encode()[:-1] + b" " * 10_000_000 + b"}")

    async def error_without_id(self) -> None:
        await self.answer.body(json.dumps({"jsonrpc": "2.0", "error": {"code": 7, "message": "no"}}).encode())

    # ---------------------------------------------------------------- a stream

    async def stream(self) -> None:
        await self.answer.stream(self.headers)

    async def event(self) -> None:
        await self.answer.event(json.loads(self.reply))

    async def half_event(self) -> None:
        text = f"data: {self.reply}\n\n".encode()
        await self.answer.chunk(text[: len(text) // 2])

    async def unended_event(self) -> None:
        await self.answer.chunk(f"data: {self.reply}\n".encode())

    async def other_event(self) -> None:
        await self.answer.event({**json.loads(self.reply), "id": 999})

    async def garbage_event(self) -> None:
        await self.answer.chunk(b"data: {nothing\n\n")

    async def huge_event(self) -> None:
        await self.answer.chunk(b"data: " + b" " * 10_000_000 + self.reply.encode() + b"\n\n")

    async def comments(self) -> None:
        await self.answer.chunk(b": still here\n\n" * 10)

    async def progress(self) -> None:
        token: Any = self._asked.message.get("params", {}).get("_meta", {}).get("progressToken")
        params = {"progressToken": token, "progress": 1}
        await self.answer.event({"jsonrpc": "2.0", "method": PROGRESS, "params": params})

    async def broken_notification(self) -> None:
        await self.answer.event({"jsonrpc": "2.0", "method": "notifications/message", "params": None})

    async def end(self) -> None:
        await self.answer.end()

    # ---------------------------------------------------------------- breaking

    async def half_head(self) -> None:
        await self.answer.raw(b"HTTP/1.1 200 OK\r\ncontent-ty")

    async def no_http(self) -> None:
        await self.answer.raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")

    async def half_body(self) -> None:
        body = self.reply.encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        await self.answer.raw(head.encode() + body[: len(body) // 2])

    async def close(self) -> None:
        self.answer.close()

    async def reset(self) -> None:
        self.answer.reset()

    async def hang(self) -> None:
        await self.answer.gone()
